//! The items that a reader takes out of a pipe.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;

use pipework::atomic::{Item, Limit, Message, Torn, WriterKey};

use crate::error::{PWK_OK, pwk_status};

/// A line of ordinary text, in pwk_item.kind.
pub const PWK_ITEM_LINE: u32 = 1;
/// A burst: bytes that were sent in one write, without a sender's name.
pub const PWK_ITEM_BURST: u32 = 2;
/// A message, whole.
pub const PWK_ITEM_MESSAGE: u32 = 3;
/// The report of a message or burst that is lost.
pub const PWK_ITEM_TORN: u32 = 4;

/// Names one writer. Writers that live at the same time have different ones, whatever their
/// processes and threads.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_key {
    /// The sender's process, as numbered in its own pid namespace.
    pub pid: i32,
    /// A random number, drawn for each writer and again after a fork.
    pub tid: i32,
}

/// pwk_atomic_options.max_message, in pwk_item.limit.
pub const PWK_LIMIT_MAX_MESSAGE: u32 = 1;
/// pwk_atomic_options.max_unfinished.
pub const PWK_LIMIT_MAX_UNFINISHED: u32 = 2;
/// The memory that the system has left.
pub const PWK_LIMIT_MEMORY: u32 = 3;

/// An item from a reader. Its data is lent until the next call on the reader,
/// pwk_atomic_reader_free included.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_item {
    /// The kind of the item: PWK_ITEM_MESSAGE, and so on.
    pub kind: u32,
    /// Message and report: in how many parts it came, or how many of them had come.
    pub parts: u32,
    /// Message and report: its writer. Zeros if that is not known.
    pub writer: pwk_key,
    /// The bytes of the message or burst, or a line with its "\n", "\r\n" or "\r", which the last
    /// line before the end may lack, or a piece of a line that is longer than max_message. NULL in
    /// a report.
    pub data: *const c_void,
    /// How many bytes.
    pub len: usize,
    /// The zstd frame that it came in, if the reader keeps it; else NULL.
    pub compressed: *const c_void,
    /// How many bytes that has.
    pub compressed_len: usize,
    /// Report: how many bytes of it had come.
    pub torn_bytes: usize,
    /// Report: why it is lost. PWK_TORN: a part of it never came. PWK_TOO_LONG: it is over `limit`.
    /// PWK_CORRUPT: it is not what was sent, or does not decompress. PWK_INCOMPATIBLE: it is
    /// compressed, and the reader does not decompress. Otherwise PWK_OK.
    pub torn: pwk_status,
    /// Report that says PWK_TOO_LONG: which limit, as PWK_LIMIT_MAX_MESSAGE. Otherwise 0.
    pub limit: u32,
}

// ---------------------------------------------------------------- on this side

/// No writer has this key.
pub(super) const NOBODY: pwk_key = pwk_key { pid: 0, tid: 0 };

impl From<WriterKey> for pwk_key {
    fn from(WriterKey { pid, tid }: WriterKey) -> pwk_key {
        pwk_key { pid, tid }
    }
}

/// The buffer that an item is lent from, if it is not the reader's own.
#[derive(Default)]
pub(super) struct Loan {
    data: Vec<u8>,
    compressed: Vec<u8>,
}

impl Loan {
    /// Returns the lent bytes.
    #[inline]
    pub(super) fn end(&mut self) {
        *self = Loan::default();
    }

    #[inline]
    pub(super) fn lend(&mut self, item: Item<'_>) -> pwk_item {
        let (kind, parts, writer, data, compressed) = match item {
            Item::Line(line) => (PWK_ITEM_LINE, 0, NOBODY, line.data, None),
            Item::Burst(burst) => (PWK_ITEM_BURST, 0, NOBODY, burst.data, burst.compressed),
            Item::Message(Message { data, writer, parts, compressed }) => {
                (PWK_ITEM_MESSAGE, parts, writer.into(), data, compressed)
            }
            Item::Torn(torn) => return torn.into(),
        };
        let (data, len) = lend(&mut self.data, data);
        let (compressed, compressed_len) =
            compressed.map_or((ptr::null(), 0), |frame| lend(&mut self.compressed, frame));
        let (torn, torn_bytes, limit) = (PWK_OK, 0, 0);
        pwk_item { kind, parts, writer, data, len, compressed, compressed_len, torn_bytes, torn, limit }
    }
}

/// The address of the bytes: unchanged, or in `own`, if nothing else keeps them.
#[inline]
fn lend(own: &mut Vec<u8>, bytes: Cow<'_, [u8]>) -> (*const c_void, usize) {
    let bytes = match bytes {
        Cow::Borrowed(bytes) => bytes,
        Cow::Owned(bytes) => {
            *own = bytes;
            own
        }
    };
    (bytes.as_ptr().cast(), bytes.len())
}

impl From<Torn> for pwk_item {
    fn from(torn: Torn) -> pwk_item {
        pwk_item {
            kind: PWK_ITEM_TORN,
            parts: torn.parts,
            writer: torn.writer.map_or(NOBODY, pwk_key::from),
            data: ptr::null(),
            len: 0,
            compressed: ptr::null(),
            compressed_len: 0,
            torn_bytes: torn.bytes,
            torn: torn.kind as pwk_status,
            limit: match torn.limit {
                None => 0,
                Some(Limit::MaxMessage) => PWK_LIMIT_MAX_MESSAGE,
                Some(Limit::MaxUnfinished) => PWK_LIMIT_MAX_UNFINISHED,
                Some(Limit::Memory) => PWK_LIMIT_MEMORY,
            },
        }
    }
}
