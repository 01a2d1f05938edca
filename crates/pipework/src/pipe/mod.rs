//! Module `pipe`: a byte pipe inside one process, without descriptors, and without system calls
//! while both sides run.
//!
//! One thread or task produces a stream (a document, an archive, a compressed file), another
//! consumes it as a reader, and neither holds it whole. The ends implement `std::io`'s
//! [`Write`](std::io::Write), and [`Read`](std::io::Read) and [`BufRead`](std::io::BufRead). Either
//! end can be converted for a task with `into_async`, independently of the other.
//!
//! ```
//! use std::io::{BufRead, Write};
//!
//! let (reader, writer) = pipework::pipe::pipe(pipework::pipe::CAPACITY)?;
//! let mut writer = writer.must_finish(); // else an early `?` would look like the end
//! let producer = std::thread::spawn(move || {
//!     (0..1000).try_for_each(|i| writeln!(writer, "line {i}"))?;
//!     writer.finish().map_err(std::io::Error::from)
//! });
//! let lines: Vec<String> = reader.lines().collect::<Result<_, _>>()?;
//! assert_eq!(lines.len(), 1000);
//! producer.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The contract
//!
//! Bytes come out once and in order. There is one writer and one reader. The following holds for
//! threads and tasks at either end, whichever of them waits:
//!
//! | when | the reader gets | the writer gets |
//! | --- | --- | --- |
//! | the writer is finished, closed or dropped | the rest, then the end of the stream, 0 bytes, on every call | |
//! | one that [must finish](Writer::must_finish) is dropped | the rest, then an error that says so | |
//! | the writer closes with an error | the rest, then that error, on every call | |
//! | the writer is dropped by a panic | the rest, then an error that says so | |
//! | the reader is closed or dropped, also by a panic | | `Closed` (`BrokenPipe`), even if there is space |
//! | the reader closes with an error | | that error |
//! | a deadline passes | `TimedOut`; nothing is lost | `TimedOut`; the error says how much was put in |
//! | a future that waits is dropped | nothing is lost | nothing was put in |
//!
//! A writer that is dropped because its function returns early, or because its task is aborted,
//! looks like one that is done. If a truncated stream must not pass for a complete one, as with the
//! body of a request, make the writer one that [must finish](Writer::must_finish).
//!
//! A waiting end is woken by all of these at once. The calls with a deadline return `Failed` for
//! the other end's error, and `failure()` returns that error; those of `std::io` return it
//! directly.
//!
//! # What it costs
//!
//! A write is a copy and a store; if the other end is a task, a full fence as well. The output of
//! one `write!` or `writeln!` is one write, however many pieces it has. Where lines need not be
//! seen one by one, a `BufWriter` around the writer notifies the reader once per 8 KiB; end it with
//! `into_inner()?.finish()`.
//!
//! A write wakes the reader only if the reader sleeps, and only once: the reader needs some
//! microseconds to wake, anything written meanwhile costs nothing more, and then it takes
//! everything at once. Then it spins for up to 20 microseconds before it sleeps again, as long as
//! recent waits ended within that time. So small writes do not wake a reader for each byte, but
//! once each time that it has found nothing and gone to sleep. The same holds for a writer that
//! waits for space. A thread or task that sleeps costs nothing. A task that always finds something
//! yields its thread after 128 calls: it returns pending once, and is woken at once.
//!
//! A thread that parks has the kernel execute a fence on each CPU where this process has a thread
//! (membarrier(2), some microseconds). Where the kernel or a sandbox refuses that, reads and writes
//! have a fence of their own. The first pipe of a process registers with the kernel; if the process
//! has more than one thread by then, that may take milliseconds.
//!
//! A pipe belongs to one process: a forked child has a copy of its memory, with no one at the other
//! end.

mod ring;
mod bell;
mod endpoint;
mod reader;
mod writer;
mod copy;
mod asynchronous;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "futures-io")]
mod futures;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::error::Result;

pub use asynchronous::{AsyncReader, AsyncWriter};
pub use reader::Reader;
pub use writer::Writer;

/// A capacity in bytes that suits most uses: that of the kernel's pipes.
pub const CAPACITY: usize = 64 << 10;

/// A new pipe that holds up to `capacity` bytes.
///
/// The memory is reserved at once, rounded up to a power of two; the system provides it page by
/// page as it is used.
///
/// # Errors
/// `Invalid` if the capacity is 0 or more than half of the address space; `Os` with ENOMEM if there
/// is no such memory.
pub fn pipe(capacity: usize) -> Result<(Reader, Writer)> {
    let (reader, writer) = endpoint::endpoints(capacity, "create pipe")?;
    Ok((Reader { endpoint: reader }, Writer { endpoint: writer }))
}
