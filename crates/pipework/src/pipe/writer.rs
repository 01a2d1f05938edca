//! The writing end: puts bytes in, or lends space for them. Mirrors `reader.rs`.

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::time::Duration;

use super::endpoint::Endpoint;
use super::reader::PIECE;
use super::ring::FREE;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result, Unfinished};
use crate::interrupt;

/// The writing end of a pipe.
///
/// Calls that can wait take a [`Deadline`]; those of [`Write`] wait as long as needed. Written
/// bytes can be read at once: there is nothing to flush.
pub struct Writer {
    pub(super) endpoint: Endpoint<FREE>,
}

impl Writer {
    /// Waits for space for the first byte and puts in as much of `buf` as fits.
    ///
    /// # Errors
    /// - `Closed`: the reader is gone, so the bytes would never be read.
    /// - `Failed`: the reader closed with an error. [`Writer::failure`] says why.
    /// - `TimedOut`; `Interrupted` by a signal handler: nothing was put in, call again.
    #[inline]
    pub fn send(&mut self, buf: &[u8], deadline: impl Into<Deadline>) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.endpoint.wait_for(1, buf.len(), deadline.into(), OP)?;
        self.put(buf)
    }

    /// Puts in as much as fits now; `None` if nothing fits. Never waits.
    ///
    /// # Errors
    /// `Closed` and `Failed` as [`Writer::send`].
    pub fn try_send(&mut self, buf: &[u8]) -> Result<Option<usize>> {
        if buf.is_empty() {
            return Ok(Some(0));
        }
        if !self.endpoint.is_ready(1, buf.len()) {
            return Ok(None);
        }
        self.put(buf).map(Some)
    }

    /// Puts in all of `buf`.
    ///
    /// # Errors
    /// As [`Writer::send`]. The error says how much was put in before: continue after that.
    pub fn send_all(
        &mut self,
        buf: &[u8],
        deadline: impl Into<Deadline>,
    ) -> std::result::Result<(), Unfinished> {
        let deadline = deadline.into();
        let mut done = 0;
        while done < buf.len() {
            match self.send(&buf[done..], deadline) {
                Ok(len) => done += len,
                Err(error) => return Err(Unfinished { done: done as u64, error }),
            }
        }
        Ok(())
    }

    /// Waits until there is space for at least `min` bytes and lends it: in two pieces if it wraps
    /// around the end of the ring. With `min` 0 it never waits and lends the space there is.
    ///
    /// The space holds old bytes. The reader does not see them before [`Writer::commit`]; meanwhile
    /// the space may grow, but never shrinks. The next call may lend other space: bytes that were
    /// put in and not committed are lost then.
    ///
    /// # Errors
    /// - `TooLong`: `min` is more than the capacity.
    /// - Others as [`Writer::send`].
    pub fn reserve(&mut self, min: usize, deadline: impl Into<Deadline>) -> Result<(&mut [u8], &mut [u8])> {
        self.endpoint.wait_for(min, min.max(1), deadline.into(), "pipe reserve")?;
        self.refuse_over("pipe reserve")?;
        Ok(self.endpoint.window().bytes())
    }

    /// Puts in the first `len` bytes of the space that [`Writer::reserve`] lent.
    ///
    /// # Errors
    /// `Invalid` if it lent less.
    #[inline]
    pub fn commit(&mut self, len: usize) -> Result<()> {
        if len > self.endpoint.window().len() {
            return Err(Error::new(ErrorKind::Invalid, "pipe commit"));
        }
        self.endpoint.advance(len);
        Ok(())
    }

    /// The same end, but dropping it is a failure: unless [`Writer::finish`] or [`Writer::close`]
    /// has ended the stream, its reader gets an error after the last byte. For producers that may
    /// return early, by `?` or because their task is aborted: a truncated document then never looks
    /// like a complete one.
    ///
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// fn produce(mut to: pipework::pipe::Writer, numbers: &[&str]) -> Result<(), Box<dyn
    /// std::error::Error>> {
    ///     for number in numbers {
    ///         writeln!(to, "{}", number.parse::<i32>()?)?;
    ///     }
    ///     Ok(to.finish()?)
    /// }
    ///
    /// let (mut reader, writer) = pipework::pipe::pipe(pipework::pipe::CAPACITY)?;
    /// assert!(produce(writer.must_finish(), &["1", "two", "3"]).is_err());
    /// let mut body = String::new();
    /// assert!(reader.read_to_string(&mut body).is_err()); // "1" alone is not the body
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "it is this end that must be finished"]
    pub fn must_finish(mut self) -> Writer {
        self.set_must_finish();
        self
    }

    /// As [`Writer::must_finish`], for an end that cannot be moved, because another language owns
    /// it.
    #[doc(hidden)]
    pub fn set_must_finish(&mut self) {
        self.endpoint.must_finish();
    }

    /// Ends the stream: the reader gets the bytes in the pipe and then the end.
    ///
    /// # Errors
    /// `Closed` and `Failed` as [`Writer::send`]: the reader closed before, and so did not get all
    /// of it. The call does not wait for an open reader to take the rest.
    pub fn finish(self) -> Result<()> {
        let outcome = self.refuse_over("pipe finish");
        self.close();
        outcome
    }

    /// As [`Writer::finish`], whether the reader is still there or not. Dropping does the same,
    /// except in two cases, in which the stream ends with an error: this thread is panicking (and
    /// was not yet panicking when it made the pipe), or the end [must be
    /// finished](Writer::must_finish).
    pub fn close(self) {
        self.endpoint.close(None);
    }

    /// Closes this end with an error: the reader gets the bytes in the pipe and then that error, on
    /// every call.
    pub fn close_with_error(self, error: impl Into<io::Error>) {
        self.endpoint.close(Some(error.into()));
    }

    /// Whether the reader is closed.
    pub fn is_closed(&self) -> bool {
        self.endpoint.is_closed()
    }

    /// The error that the reader closed with; each call makes a new copy.
    pub fn failure(&self) -> Option<io::Error> {
        self.endpoint.failure()
    }

    /// Bytes that wait to be read now. The reader may take some at any time.
    pub fn len(&self) -> usize {
        self.endpoint.buffered()
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest number of bytes that the pipe holds.
    pub fn capacity(&self) -> usize {
        self.endpoint.capacity()
    }

    /// As [`Reader::set_spin`](super::Reader::set_spin).
    pub fn set_spin(&mut self, limit: Duration) {
        self.endpoint.set_spin(limit);
    }

    /// Puts in as much as fits.
    #[inline]
    pub(super) fn put(&mut self, buf: &[u8]) -> Result<usize> {
        self.refuse_over(OP)?;
        let mut done = 0;
        while done < buf.len() {
            let window = self.endpoint.window();
            if window.len() == 0 && window.refresh() == 0 {
                break;
            }
            let (space, _) = window.bytes();
            let len = space.len().min(buf.len() - done).min(PIECE);
            space[..len].copy_from_slice(&buf[done..done + len]);
            self.endpoint.advance(len);
            done += len;
        }
        Ok(done)
    }

    #[inline]
    fn refuse_over(&self, op: &'static str) -> Result<()> {
        if self.endpoint.is_over() { Err(self.endpoint.ended(op)) } else { Ok(()) }
    }
}

pub(super) const OP: &str = "pipe send";

impl Write for Writer {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf, Deadline::NEVER).map_err(|error| self.endpoint.in_full(error))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut done = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            // Only the space for the first byte is waited for.
            let len = if done == 0 { self.write(buf)? } else { self.put(buf).unwrap_or(0) };
            done += len;
            if len < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Puts in the pieces of a formatted text, and notifies the reader once for all of them, or
    /// every 8 KiB. Signal handlers do not interrupt it, because its caller could not resume after
    /// the part that is already in the pipe.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        if let Some(text) = text.as_str() {
            return self.write_all(text.as_bytes());
        }
        self.refuse_over(OP).map_err(|error| self.endpoint.in_full(error))?;
        let mut pieces = Pieces { writer: self, put: 0, outcome: Ok(()) };
        let formatted = fmt::write(&mut pieces, text);
        pieces.commit();
        pieces.outcome?;
        // A text that was not formatted failed in its own `Display`.
        formatted.map_err(|_| io::Error::other("a formatting trait returned an error"))
    }

    /// Does nothing: written bytes can be read at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes the pieces of a formatted text. The text of a serialiser has many pieces of few bytes
/// each: notifying the reader of each would cost more than putting it in.
struct Pieces<'a> {
    writer: &'a mut Writer,
    /// Bytes that were put in, and that the reader has not been notified of.
    put: usize,
    outcome: io::Result<()>,
}

impl Pieces<'_> {
    /// Notifies the reader.
    fn commit(&mut self) {
        if self.put > 0 {
            self.writer.endpoint.advance(std::mem::take(&mut self.put));
        }
    }

    /// Waits for space for at least one byte after those that were put in.
    fn wait_for_space(&mut self) -> io::Result<()> {
        let endpoint = &mut self.writer.endpoint;
        if endpoint.window().refresh() > self.put {
            return Ok(());
        }
        self.commit();
        let endpoint = &mut self.writer.endpoint;
        let waited = loop {
            match endpoint.wait_for(1, 1, Deadline::NEVER, OP) {
                Err(error) if error.kind() == ErrorKind::Interrupted && !interrupt::is_hooked() => {}
                done => break done,
            }
        };
        let waited = waited.and_then(|()| self.writer.refuse_over(OP));
        waited.map_err(|error| self.writer.endpoint.in_full(error))
    }

    /// Puts in as much as fits.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let (first, second) = self.writer.endpoint.window().bytes();
        let space = match self.put.checked_sub(first.len()) {
            Some(off) => &mut second[off..],
            None => &mut first[self.put..],
        };
        let len = space.len().min(bytes.len());
        space[..len].copy_from_slice(&bytes[..len]);
        self.put += len;
        len
    }
}

impl fmt::Write for Pieces<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            let len = self.put(bytes);
            bytes = &bytes[len..];
            if self.put >= PIECE {
                self.commit();
            }
            if len == 0
                && let Err(error) = self.wait_for_space()
            {
                self.outcome = Err(error);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}
