//! Module pipe: a byte pipe inside one process, without descriptors, and without system calls while
//! both sides run.
//!
//! One thread writes a stream (a document, an archive, a compressed file), another reads it, and
//! neither holds it whole. Bytes come out once and in order. There is one writer and one reader:
//!
//! - The writer finishes or is freed: the reader gets the rest, then 0 bytes, which is the end of
//!   the stream, as often as it asks.
//! - The writer closes with an error, or is freed where it must finish: the reader gets the rest,
//!   then PWK_FAILED.
//! - The reader is freed: the writer gets PWK_CLOSED, although there be space.
//! - The reader closes with an error: the writer gets PWK_FAILED.
//!
//! An end that waits learns of this at once. A forked child has a copy of the memory, and no other
//! end.

pub mod ends;
pub mod reader;
pub mod writer;
