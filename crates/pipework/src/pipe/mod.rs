//! Room `pipe`: a byte pipe inside one process, without descriptors, and without system calls while
//! both sides run.
//!
//! One thread or task produces a stream (a document, an archive, a compressed file), another takes
//! it as a reader, and neither holds it whole. The ends are `std::io`'s [`Write`](std::io::Write),
//! and [`Read`](std::io::Read) and [`BufRead`](std::io::BufRead). Either may become a task's end
//! with `into_async`, whatever the other is.
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
//! Bytes come out once and in order. There is one writer and one reader. Whatever the kinds of the
//! two ends, and whichever of them waits:
//!
//! | when | the reader gets | the writer gets |
//! | --- | --- | --- |
//! | the writer is finished, closed or dropped | the rest, then the end of the stream, 0 bytes, as often as it asks | |
//! | one that [must finish](Writer::must_finish) is dropped | the rest, then an error that says so | |
//! | the writer closes with an error | the rest, then that error, as often as it asks | |
//! | the writer is dropped by a panic | the rest, then an error that says so | |
//! | the reader is closed or dropped, also by a panic | | `Closed` (`BrokenPipe`), although there be space |
//! | the reader closes with an error | | that error |
//! | a deadline passes | `TimedOut`; nothing is lost | `TimedOut`; what was put in is told |
//! | a future that waits is dropped | nothing is lost | nothing was put in |
//!
//! A writer that is dropped because its function returns early, or its task is aborted, looks like
//! one that is done. Whoever produces what must not be taken for whole when it is not, as the body
//! of a request, makes it one that [must finish](Writer::must_finish).
//!
//! An end that waits learns of all this at once. The calls with a deadline say `Failed` where the
//! other end's error is due, and `failure()` is that error; those of `std::io` give it directly.
//!
//! # What it costs
//!
//! A write is a copy and a store; where the other end is a task, a full fence as well. What
//! `write!` and `writeln!` format is one write, whatever the number of its pieces. Where lines need
//! not be seen one by one, a `BufWriter` around the writer tells the reader once in 8 KiB; end it
//! with `into_inner()?.finish()`.
//!
//! Only where the reader sleeps does it also wake it, and that once: the reader needs some
//! microseconds to come, what is written meanwhile costs nothing more, and when it comes it takes
//! all there is. Then it spins for up to 20 microseconds, as long as waits of late have ended
//! within that, before it sleeps once more. So small writes wake a reader not for each byte but
//! once for each time that it has run dry for good. The same holds for a writer that waits for
//! space. A thread or task that sleeps costs nothing. A task that always finds something lets
//! others have its thread after 128 calls: it is pending for once, and woken at once.
//!
//! A thread that parks has the kernel run a fence on each CPU where this process has a thread
//! (membarrier(2), some microseconds). Where the kernel or a sandbox refuses that, reads and writes
//! have a fence of their own. The first pipe of a process tells the kernel; if the process has more
//! than one thread by then, that may take milliseconds.
//!
//! A pipe belongs to one process: a forked child has a copy of its memory, and nobody at the other
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

/// A capacity in bytes that suits most: what a pipe of the kernel has.
pub const CAPACITY: usize = 64 << 10;

/// A new pipe that holds up to `capacity` bytes.
///
/// The memory is taken at once, rounded up to a power of two; the system gives it page by page as
/// it is used.
///
/// # Errors
/// `Invalid` if the capacity is 0 or more than half of the address space; `Os` with ENOMEM if there
/// is no such memory.
pub fn pipe(capacity: usize) -> Result<(Reader, Writer)> {
    let (reader, writer) = endpoint::endpoints(capacity, "create pipe")?;
    Ok((Reader { endpoint: reader }, Writer { endpoint: writer }))
}
