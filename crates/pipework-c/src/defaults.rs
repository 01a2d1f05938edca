//! Defaults: the values for everything that a program does not set.

use std::time::Duration;

use pipework::defaults;

/// Calls of a segment that can be in progress at the same time.
pub const PWK_DEFAULT_SLOTS: u32 = defaults::SLOTS;
/// Bytes of a slot for a request. A longer request lies in a blob.
pub const PWK_DEFAULT_REQUEST_BYTES: u32 = defaults::REQUEST_BYTES;
/// Bytes of a slot for a reply. A longer reply lies in a blob.
pub const PWK_DEFAULT_REPLY_BYTES: u32 = defaults::REPLY_BYTES;
/// Members that can be attached to a channel at the same time: clients and servers, or publishers and
/// subscribers.
pub const PWK_DEFAULT_MEMBERS: u32 = defaults::MEMBERS;
/// Messages that the ring of a broadcast keeps.
pub const PWK_DEFAULT_MESSAGES: u32 = defaults::MESSAGES;
/// Bytes of a cell of the ring. A longer message lies in a blob.
pub const PWK_DEFAULT_MESSAGE_BYTES: u32 = defaults::MESSAGE_BYTES;
/// Bytes of a publisher's messages that the ring keeps in blobs: 128 MiB.
pub const PWK_DEFAULT_KEEP_BYTES: u64 = defaults::KEEP_BYTES;
/// Permissions of the file of a segment.
pub const PWK_DEFAULT_MODE: u32 = defaults::MODE;
/// Bytes of shared memory that a process keeps for its next blobs in a segment: 128 MiB.
pub const PWK_DEFAULT_BLOB_POOL: u64 = defaults::BLOB_POOL;
/// Bytes of the longest message, request or reply: 256 MiB.
pub const PWK_DEFAULT_MAX_MESSAGE: usize = defaults::MAX_MESSAGE;
/// For how long a client may take for a part that the reply comes after.
pub const PWK_DEFAULT_PART_TIMEOUT_NS: u64 = nanoseconds(defaults::PART_TIMEOUT);
/// For how long a wait spins before it parks.
pub const PWK_DEFAULT_SPIN_NS: u64 = nanoseconds(defaults::SPIN);
/// Bytes that a reader of messages asks for at once.
pub const PWK_DEFAULT_READ_SIZE: usize = defaults::READ_SIZE;
/// Bytes that may be pending in a writer of messages.
pub const PWK_DEFAULT_MAX_PENDING: usize = defaults::MAX_PENDING;
/// For how long a reader of mixed mode waits for the rest of a part while nothing comes.
pub const PWK_DEFAULT_FRAME_TIMEOUT_NS: u64 = nanoseconds(defaults::FRAME_TIMEOUT);
/// The level of zstd.
pub const PWK_DEFAULT_ZSTD_LEVEL: i32 = defaults::ZSTD_LEVEL;

const fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}
