//! The reading end: takes bytes out, or lends them in place. Mirrors `writer.rs`.

use std::fmt;
use std::io::{self, BufRead, IoSliceMut, Read};
use std::time::Duration;

use super::endpoint::Endpoint;
use super::ring::FILLED;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result, Unfinished};

/// The reading end of a pipe.
///
/// Calls that can wait take a [`Deadline`]; those of [`Read`] and [`BufRead`] wait as long as
/// needed. A stream that has ended without an error gives 0 bytes.
pub struct Reader {
    pub(super) endpoint: Endpoint<FILLED>,
}

/// At most this much is copied before the other end may have it, so that both ends copy at the same
/// time. Of 4, 8, 16 and 64 KiB it is the fastest, or as fast, for blocks of 1 to 64 KiB, with 64 KiB and
/// with 1 MiB of memory.
pub(super) const PIECE: usize = 8 << 10;

impl Reader {
    /// Waits for the first byte and takes what is available, as much as `buf` holds. 0 is the end
    /// of the stream.
    ///
    /// # Errors
    /// - `Failed`: the writer closed with an error or panicked, and everything before that has been
    ///   taken. [`Reader::failure`] says why.
    /// - `TimedOut`; `Interrupted` by a signal handler: nothing was taken, call again.
    #[inline]
    pub fn recv(&mut self, buf: &mut [u8], deadline: impl Into<Deadline>) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.endpoint.wait_for(1, buf.len(), deadline.into(), OP)?;
        self.take(buf)
    }

    /// Takes the bytes that are available now; `None` if none are. Never waits.
    ///
    /// # Errors
    /// `Failed` as [`Reader::recv`].
    pub fn try_recv(&mut self, buf: &mut [u8]) -> Result<Option<usize>> {
        if buf.is_empty() {
            return Ok(Some(0));
        }
        if !self.endpoint.is_ready(1, buf.len()) {
            return Ok(None);
        }
        self.take(buf).map(Some)
    }

    /// Takes until `buf` is full, and returns how much it took: less only at the end of the stream.
    ///
    /// # Errors
    /// As [`Reader::recv`]. The bytes that were taken before are in `buf`, and the error gives
    /// their number: continue after them.
    pub fn recv_full(
        &mut self,
        buf: &mut [u8],
        deadline: impl Into<Deadline>,
    ) -> std::result::Result<usize, Unfinished> {
        let deadline = deadline.into();
        let mut done = 0;
        while done < buf.len() {
            match self.recv(&mut buf[done..], deadline) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) => return Err(Unfinished { done: done as u64, error }),
            }
        }
        Ok(done)
    }

    /// Takes bytes up to and including the first that equals `delimiter`, or until `buf` is full,
    /// and returns how many it took. If the last of them is not `delimiter`, `buf` is full or the
    /// stream has ended.
    ///
    /// # Errors
    /// As [`Reader::recv_full`].
    pub fn recv_until(
        &mut self,
        delimiter: u8,
        buf: &mut [u8],
        deadline: impl Into<Deadline>,
    ) -> std::result::Result<usize, Unfinished> {
        let deadline = deadline.into();
        let mut done = 0;
        while done < buf.len() && !buf[..done].ends_with(&[delimiter]) {
            let (there, _) =
                self.peek(1, deadline).map_err(|error| Unfinished { done: done as u64, error })?;
            if there.is_empty() {
                break;
            }
            let there = &there[..there.len().min(buf.len() - done)];
            let len = memchr::memchr(delimiter, there).map_or(there.len(), |at| at + 1);
            buf[done..done + len].copy_from_slice(&there[..len]);
            self.endpoint.advance(len);
            done += len;
        }
        Ok(done)
    }

    /// Waits until at least `min` bytes are there and lends them in place: in two pieces if they
    /// wrap around the end of the ring. Fewer only at the end of the stream. With `min` 0 it never
    /// waits and lends what is there.
    ///
    /// Meanwhile the writer may add bytes, but not change these.
    ///
    /// # Errors
    /// - `TooLong`: `min` is more than the capacity.
    /// - Others as [`Reader::recv`]; `Failed` only once there is nothing left.
    pub fn peek(&mut self, min: usize, deadline: impl Into<Deadline>) -> Result<(&[u8], &[u8])> {
        self.endpoint.wait_for(min, min.max(1), deadline.into(), "pipe peek")?;
        self.refuse_failed("pipe peek")?;
        Ok(self.endpoint.window().bytes())
    }

    /// Consumes the first `len` bytes that [`Reader::peek`] lent.
    ///
    /// # Errors
    /// `Invalid` if it lent fewer.
    #[inline]
    pub fn consume(&mut self, len: usize) -> Result<()> {
        if len > self.endpoint.window().len() {
            return Err(Error::new(ErrorKind::Invalid, "pipe consume"));
        }
        self.endpoint.advance(len);
        Ok(())
    }

    /// Closes this end: unread bytes are lost, and the writer's calls return `Closed`
    /// (`BrokenPipe`). Dropping does the same.
    pub fn close(self) {}

    /// Closes this end with an error, which the writer's calls return instead.
    pub fn close_with_error(self, error: impl Into<io::Error>) {
        self.endpoint.close(Some(error.into()));
    }

    /// Whether the writer is closed. Unread bytes may be left.
    pub fn is_closed(&self) -> bool {
        self.endpoint.is_closed()
    }

    /// The error that the writer closed with; each call makes a new copy. Unread bytes may be left.
    pub fn failure(&self) -> Option<io::Error> {
        self.endpoint.failure()
    }

    /// Bytes that can be taken now. The writer may add to them at any time.
    pub fn len(&self) -> usize {
        self.endpoint.buffered()
    }

    /// Whether there is nothing to take now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest number of bytes that the pipe holds.
    pub fn capacity(&self) -> usize {
        self.endpoint.capacity()
    }

    /// Sets how long a thread spins before it sleeps, as long as recent waits ended within that
    /// time; zero for never. At most 1 ms. Default 20 microseconds, and never where this process
    /// may use only one CPU.
    pub fn set_spin(&mut self, limit: Duration) {
        self.endpoint.set_spin(limit);
    }

    /// Passes the available bytes, up to `limit` of them, piece by piece to `take`; nothing at the
    /// end of the stream.
    #[inline]
    pub(super) fn hand_out(&mut self, limit: usize, mut give: impl FnMut(&[u8])) -> Result<usize> {
        let mut done = 0;
        while done < limit {
            let window = self.endpoint.window();
            if window.len() == 0 && window.refresh() == 0 {
                break;
            }
            let (there, _) = window.bytes();
            let piece = &there[..there.len().min(limit - done).min(PIECE)];
            let len = piece.len();
            give(piece);
            self.endpoint.advance(len);
            done += len;
        }
        if done == 0 {
            self.refuse_failed(OP)?;
        }
        Ok(done)
    }

    #[inline]
    pub(super) fn take(&mut self, mut buf: &mut [u8]) -> Result<usize> {
        self.hand_out(buf.len(), |piece| {
            let (now, later) = std::mem::take(&mut buf).split_at_mut(piece.len());
            now.copy_from_slice(piece);
            buf = later;
        })
    }

    fn refuse_failed(&mut self, op: &'static str) -> Result<()> {
        // First check for the end, then for bytes: bytes may have come before the end, but none
        // come after it.
        let ended = self.endpoint.is_over() && self.endpoint.window().refresh() == 0;
        if ended && self.endpoint.failure().is_some() { Err(self.endpoint.ended(op)) } else { Ok(()) }
    }
}

pub(super) const OP: &str = "pipe recv";

impl Read for Reader {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf, Deadline::NEVER).map_err(|error| self.endpoint.in_full(error))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut done = 0;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            // Only the first byte is waited for.
            let len = if done == 0 { self.read(buf)? } else { self.take(buf).unwrap_or(0) };
            done += len;
            if len < buf.len() {
                break;
            }
        }
        Ok(done)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Err(error) = self.peek(1, Deadline::NEVER) {
            return Err(self.endpoint.in_full(error));
        }
        Ok(self.endpoint.window().bytes().0)
    }

    fn consume(&mut self, len: usize) {
        let len = len.min(self.endpoint.window().len());
        self.endpoint.advance(len);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}
