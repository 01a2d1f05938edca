//! The names of operations in the errors of this layer. Each module has its own.

/// The operations of one module. [`operations!`] makes them.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) open: &'static str,
    pub(crate) symbolic_link: &'static str,
    pub(crate) no_regular_file: &'static str,
    pub(crate) other_user: &'static str,
    /// The file is shorter than a header, or empty.
    pub(crate) too_short: &'static str,
    pub(crate) damaged: &'static str,
    pub(crate) other_format: &'static str,
    pub(crate) no_segment: &'static str,
    pub(crate) unknown_kind: &'static str,
    pub(crate) unknown_flags: &'static str,
    pub(crate) impossible_sizes: &'static str,
    /// The length of the file is not the one that it was made with, or was not for a moment.
    pub(crate) cut: &'static str,
    pub(crate) max_bytes: &'static str,
    /// The program has closed a descriptor that the segment needs; the error has the kernel's number
    /// for it. The segment and what it holds are intact, and trying again does not help.
    pub(crate) lost: &'static str,
}

/// The [`Operations`] of the module of this name.
macro_rules! operations {
    ($module:literal) => {
        $crate::segment::operations::Operations {
            open: concat!($module, " open"),
            symbolic_link: concat!($module, " open: symbolic link"),
            no_regular_file: concat!($module, " open: not a regular file"),
            other_user: concat!($module, " open: another user's file"),
            too_short: concat!($module, " open: too short for a segment"),
            damaged: concat!($module, " open: damaged header"),
            other_format: concat!($module, " open: another format"),
            no_segment: concat!($module, " open: not a segment"),
            unknown_kind: concat!($module, " open: unknown kind of payload"),
            unknown_flags: concat!($module, " open: unknown flags"),
            impossible_sizes: concat!($module, " open: impossible sizes"),
            cut: concat!($module, " open: cut short or grown"),
            max_bytes: concat!($module, " open: max_bytes"),
            lost: concat!($module, ": a descriptor of the segment was closed"),
        }
    };
}

pub(crate) use operations;
