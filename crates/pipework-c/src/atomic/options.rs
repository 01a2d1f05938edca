//! The options of the ends of a pipe, and functions to check a descriptor before.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pipework::atomic::{self, End, Zstd};

use crate::bytes::pwk_bytes;
use crate::defaults::{
    PWK_DEFAULT_FRAME_TIMEOUT_NS, PWK_DEFAULT_MAX_MESSAGE, PWK_DEFAULT_MAX_PENDING, PWK_DEFAULT_READ_SIZE,
    PWK_DEFAULT_SPIN_NS, PWK_DEFAULT_ZSTD_LEVEL,
};
use crate::edge::{Growing, Lent, Name, Number, Options, Out, Space, Truth, done, get, put, run};
use crate::error::{Result, pwk_error, pwk_status};

/// How an end is made. Both ends of a pipe must agree on `mixed`, `compress` and the dictionary;
/// the rest is each end's own affair.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_atomic_options {
    /// sizeof(pwk_atomic_options).
    pub size: usize,
    /// Reader: bytes of the largest message, compressed or not, and of the longest line that is
    /// given out in one piece; PWK_DEFAULT_MAX_MESSAGE by default.
    pub max_message: usize,
    /// Reader: bytes of all unfinished messages together. Past it, the one that waited longest is
    /// given up and reported. 0, the default, is 8 times max_message, and at least 1 GiB.
    pub max_unfinished: usize,
    /// Reader: how many bytes one read asks for, from 1 to 16 MiB; PWK_DEFAULT_READ_SIZE by
    /// default.
    pub read_size: usize,
    /// Writer: how many bytes may be pending before pwk_atomic_writer_try_send takes no more;
    /// PWK_DEFAULT_MAX_PENDING by default.
    pub max_pending: usize,
    /// Mixed reader, not strict: for how long the rest of a part that has begun is waited for while
    /// nothing comes, before it is text and its message is reported;
    /// PWK_DEFAULT_FRAME_TIMEOUT_NS by default. 0 is right where all writers write into this very
    /// pipe, UINT64_MAX waits for the end.
    pub frame_timeout_ns: u64,
    /// Reader: for how long it spins before it sleeps, up to 1 ms; PWK_DEFAULT_SPIN_NS by default.
    pub spin_ns: u64,
    /// Raw bytes that resemble the messages, for instance one of them; none by default. They are
    /// copied.
    pub dictionary: pwk_bytes,
    /// Writer: the level of zstd, from -131072 (fastest) to 22 (smallest); PWK_DEFAULT_ZSTD_LEVEL
    /// by default.
    pub level: i32,
    /// Ordinary text may lie between the messages.
    pub mixed: Truth,
    /// Each message and burst is compressed with zstd.
    pub compress: Truth,
    /// Reader: frames without a checksum are taken even if a dictionary is set, which may then be a
    /// wrong one. Atomic::Pipe writes such frames.
    pub accept_unchecked: Truth,
    /// Reader: items come with the zstd frame that held them.
    pub keep_compressed: Truth,
    /// Mixed reader: a control byte 0x0E that opens no part or burst is PWK_CORRUPT, and not text.
    pub strict: Truth,
    /// Mixed reader: bursts are looked for, which is the default. Without them, only messages lie
    /// between text: for the output of programs that may print any bytes.
    pub bursts: Truth,
    /// Writer: if the descriptor is a terminal, a file or a device, messages are printed there as
    /// lines. By default that is PWK_INVALID, because no reader decodes messages there.
    pub or_print: Truth,
}

/// Fills in the defaults. `size` is sizeof(pwk_atomic_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_options_init(options: Space<'_, pwk_atomic_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Makes a FIFO at `path` that only this user may open.
///
/// Fails with PWK_OS, and EEXIST if something is there already.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_create_fifo(path: Lent<'_, c_char>, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_atomic_create_fifo", error, |name| done(atomic::create_fifo(path.path(name)?)))
}

/// A descriptor that is open for reading, for pwk_atomic_reader_from_fd.
pub const PWK_READER: u32 = 1;
/// One that is open for writing, for pwk_atomic_writer_from_fd.
pub const PWK_WRITER: u32 = 2;

/// Finds out which end of a pipe a descriptor is: PWK_READER or PWK_WRITER.
///
/// Fails with PWK_INVALID if it is not open, no pipe or FIFO, or open for both, as every socket is.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_which_end(
    fd: Number,
    end: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_which_end", error, |name| {
        let found = atomic::Options::new().end(fd.duplicate(name)?)?;
        put(end, if matches!(found, End::Reader(_)) { PWK_READER } else { PWK_WRITER })
    })
}

/// The largest capacity in bytes that an unprivileged user may give a pipe.
///
/// Fails with PWK_OS where /proc is not there.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_max_capacity(bytes: Out<'_, usize>, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_atomic_max_capacity", error, |_| put(bytes, atomic::max_capacity()?))
}

// ---------------------------------------------------------------- on this side

// SAFETY: numbers, truth values that may be any byte, and where bytes are.
unsafe impl Growing for pwk_atomic_options {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_atomic_options {
    const DEFAULT: pwk_atomic_options = pwk_atomic_options {
        size: size_of::<pwk_atomic_options>(),
        max_message: PWK_DEFAULT_MAX_MESSAGE,
        max_unfinished: 0,
        read_size: PWK_DEFAULT_READ_SIZE,
        max_pending: PWK_DEFAULT_MAX_PENDING,
        frame_timeout_ns: PWK_DEFAULT_FRAME_TIMEOUT_NS,
        spin_ns: PWK_DEFAULT_SPIN_NS,
        dictionary: pwk_bytes::NONE,
        level: PWK_DEFAULT_ZSTD_LEVEL,
        mixed: Truth::of(false),
        compress: Truth::of(false),
        accept_unchecked: Truth::of(false),
        keep_compressed: Truth::of(false),
        strict: Truth::of(false),
        bursts: Truth::of(true),
        or_print: Truth::of(false),
    };
}

impl pwk_atomic_options {
    /// The same for the core.
    pub(super) fn options(&self, name: Name) -> Result<atomic::Options> {
        let options = atomic::Options::new()
            .mixed(self.mixed.is_set())
            .strict(self.strict.is_set())
            .bursts(self.bursts.is_set())
            .keep_compressed(self.keep_compressed.is_set())
            .max_message(self.max_message)
            .read_size(self.read_size)
            .frame_timeout(Duration::from_nanos(self.frame_timeout_ns))
            .max_pending(self.max_pending)
            .or_print(self.or_print.is_set())
            .spin(Duration::from_nanos(self.spin_ns));
        let options = match self.max_unfinished {
            0 => options,
            bytes => options.max_unfinished(bytes),
        };
        Ok(match self.zstd(name)? {
            Some(zstd) => options.zstd(zstd),
            None => options,
        })
    }

    /// How messages are compressed, if they are.
    pub(super) fn zstd(&self, name: Name) -> Result<Option<Zstd>> {
        if !self.compress.is_set() {
            return Ok(None);
        }
        let zstd = Zstd::new().with_level(self.level).accept_unchecked(self.accept_unchecked.is_set());
        Ok(Some(match self.dictionary.read(name)? {
            [] => zstd,
            dictionary => zstd.with_dictionary(dictionary),
        }))
    }
}

/// The number of an end's descriptor.
pub(super) fn number(end: Option<&impl AsFd>) -> c_int {
    get(-1, || end.map_or(-1, |end| end.as_fd().as_raw_fd()))
}
