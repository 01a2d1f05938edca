//! The defaults: what applies unless a program says otherwise.
//!
//! Every binding, help text and page takes a default from here, or a test compares it with the
//! constant.

use std::time::Duration;

/// Calls of a segment that can be in progress at the same time.
pub const SLOTS: u32 = 256;
/// Bytes of a slot for a request. A longer request lies in a blob.
pub const REQUEST_BYTES: u32 = 4096;
/// Bytes of a slot for a reply. A longer reply lies in a blob.
pub const REPLY_BYTES: u32 = 4096;
/// Clients and servers that can be attached to a segment at the same time.
pub const MEMBERS: u32 = 256;
/// Messages that the ring of a broadcast keeps.
pub const MESSAGES: u32 = 1024;
/// Bytes of a cell of the ring. A longer message lies in a blob.
pub const MESSAGE_BYTES: u32 = 1024;
/// Bytes of a publisher's messages that the ring keeps in blobs: 128 MiB.
pub const KEEP_BYTES: u64 = 128 << 20;
/// Permissions of the file of a segment.
pub const MODE: u32 = 0o600;
/// Bytes of shared memory that a process keeps for its next blobs in a segment: 128 MiB.
// A process often makes a blob while the receiver still holds the last one, so that blobs of 64 MiB take
// two files in turns.
pub const BLOB_POOL: u64 = 128 << 20;
/// Bytes of the longest message, request or reply: 256 MiB.
pub const MAX_MESSAGE: usize = 256 << 20;
/// How long a client may take for a part that the reply comes after.
pub const PART_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a wait spins before it parks: about the cost of parking and waking.
pub const SPIN: Duration = Duration::from_micros(20);
/// The longest time for which a waiting thread neither checks whether a process has died nor asks
/// the [interrupt hook](crate::interrupt).
pub const SLICE: Duration = Duration::from_millis(250);
/// Bytes that a reader of messages requests at once: the capacity of a pipe that was not resized.
pub const READ_SIZE: usize = 64 << 10;
/// Bytes that may be pending in a writer of messages before `try_send` accepts no more.
pub const MAX_PENDING: usize = 1 << 20;
/// How long a reader in mixed mode waits for the rest of a frame while no byte arrives: long enough
/// for a relay on a busy machine, or for a network that retransmits (after 1 s, then 2 s).
pub const FRAME_TIMEOUT: Duration = Duration::from_secs(5);
/// The level of zstd.
pub const ZSTD_LEVEL: i32 = 3;
