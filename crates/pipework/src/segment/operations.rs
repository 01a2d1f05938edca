//! The names of operations in the errors of this layer. Each module has its own.

/// Defines [`Operations`], and the macro that makes those of a module from its name.
macro_rules! define {
    ($d:tt $($(#[$doc:meta])* $field:ident: $text:literal,)*) => {
        /// The operations of one module.
        #[derive(Debug)]
        pub(crate) struct Operations {
            $($(#[$doc])* pub(crate) $field: &'static str,)*
        }

        /// The [`Operations`] of the module of this name.
        macro_rules! operations {
            ($d module:literal) => {
                $crate::segment::operations::Operations { $($field: concat!($d module, $text),)* }
            };
        }

        pub(crate) use operations;
    };
}

define! { $
    create: " create",
    open_or_create: " open or create",
    open: " open",
    symbolic_link: " open: symbolic link",
    no_regular_file: " open: not a regular file",
    other_user: " open: another user's file",
    too_short: " open: too short for a segment",
    damaged: " open: damaged header",
    other_format: " open: another format",
    no_segment: " open: not a segment",
    unknown_kind: " open: unknown kind of payload",
    unknown_flags: " open: unknown flags",
    impossible_sizes: " open: impossible sizes",
    cut: " open: cut short or grown",
    max_bytes: " open: max_bytes",
    /// The program has closed a descriptor that the segment needs; the error has the kernel's number
    /// for it. The segment and what it holds are intact, and trying again does not help.
    lost: ": a descriptor of the segment was closed",
}
