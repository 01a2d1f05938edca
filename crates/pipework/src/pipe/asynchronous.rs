//! The ends for tasks: they wait with a waker where a thread would sleep. They need no runtime.
//!
//! Invariant: bytes move only in a call that is ready, so dropping a waiting future loses nothing.
//! The traits of tokio and of futures-io are in files of their own.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use super::reader::{self, Reader};
use super::writer::{self, Writer};
use crate::deadline::Deadline;
use crate::error::Result;

/// The reading end of a pipe, for a task. Made by [`Reader::into_async`].
///
/// It implements tokio's `AsyncRead` and `AsyncBufRead` with the feature `tokio`, and those of
/// `futures-io` with that feature. [`AsyncReader::get_mut`] gives access to the calls that do not
/// wait.
#[derive(Debug)]
pub struct AsyncReader {
    reader: Reader,
}

impl Reader {
    /// Converts this end for use in a task.
    pub fn into_async(self) -> AsyncReader {
        AsyncReader { reader: self }
    }
}

impl AsyncReader {
    /// Waits for the first byte and takes what is available, as much as `buf` holds. 0 is the end
    /// of the stream.
    ///
    /// # Errors
    /// `Failed` as [`Reader::recv`].
    pub async fn recv(&mut self, buf: &mut [u8]) -> Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// As [`AsyncReader::recv`], for code that polls by hand.
    ///
    /// # Errors
    /// `Failed` as [`Reader::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        if !buf.is_empty() {
            ready!(self.reader.endpoint.poll_for(1, buf.len(), cx, reader::OP))?;
        }
        Poll::Ready(self.reader.take(buf))
    }

    /// Waits until the calls of `std::io` would not wait.
    #[cfg(any(feature = "tokio", feature = "futures-io"))]
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>, want: usize) -> Poll<std::io::Result<&mut Reader>> {
        let reader = &mut self.reader;
        reader.endpoint.poll_for(want.min(1), want, cx, reader::OP).map_ok(|()| reader).map_err(Into::into)
    }

    /// As [`Reader::peek`].
    ///
    /// # Errors
    /// `TooLong` and `Failed` as [`Reader::peek`].
    pub async fn peek(&mut self, min: usize) -> Result<(&[u8], &[u8])> {
        poll_fn(|cx| self.reader.endpoint.poll_for(min, min.max(1), cx, "pipe peek")).await?;
        self.reader.peek(0, Deadline::NEVER)
    }

    /// The end inside, for reading its state.
    pub fn get_ref(&self) -> &Reader {
        &self.reader
    }

    /// The end inside: to consume what [`AsyncReader::peek`] lent, or to try without waiting. Its
    /// waiting calls would block the whole thread.
    pub fn get_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Converts this end for use in a thread.
    pub fn into_blocking(self) -> Reader {
        self.reader
    }
}

/// The writing end of a pipe, for a task. Made by [`Writer::into_async`].
///
/// It implements tokio's `AsyncWrite` with the feature `tokio`, and that of `futures-io` with that
/// feature. [`AsyncWriter::get_mut`] gives access to the calls that do not wait. After a shutdown
/// its calls return `Closed`.
#[derive(Debug)]
pub struct AsyncWriter {
    writer: Writer,
}

impl Writer {
    /// Converts this end for use in a task.
    pub fn into_async(self) -> AsyncWriter {
        AsyncWriter { writer: self }
    }
}

impl AsyncWriter {
    /// Waits for space for the first byte and puts in as much of `buf` as fits.
    ///
    /// # Errors
    /// `Closed` and `Failed` as [`Writer::send`].
    pub async fn send(&mut self, buf: &[u8]) -> Result<usize> {
        poll_fn(|cx| self.poll_send(cx, buf)).await
    }

    /// As [`AsyncWriter::send`], for code that polls by hand.
    ///
    /// # Errors
    /// `Closed` and `Failed` as [`Writer::send`].
    pub fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        if !buf.is_empty() {
            ready!(self.writer.endpoint.poll_for(1, buf.len(), cx, writer::OP))?;
        }
        Poll::Ready(self.writer.put(buf))
    }

    /// Waits until the calls of `std::io` would not wait.
    #[cfg(any(feature = "tokio", feature = "futures-io"))]
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>, want: usize) -> Poll<std::io::Result<&mut Writer>> {
        let writer = &mut self.writer;
        writer.endpoint.poll_for(want.min(1), want, cx, writer::OP).map_ok(|()| writer).map_err(Into::into)
    }

    /// Closes this end without dropping it.
    #[cfg(any(feature = "tokio", feature = "futures-io"))]
    pub(super) fn shut_down(&self) {
        self.writer.endpoint.close(None);
    }

    /// As [`Writer::reserve`].
    ///
    /// # Errors
    /// `TooLong`, `Closed` and `Failed` as [`Writer::reserve`].
    pub async fn reserve(&mut self, min: usize) -> Result<(&mut [u8], &mut [u8])> {
        poll_fn(|cx| self.writer.endpoint.poll_for(min, min.max(1), cx, "pipe reserve")).await?;
        self.writer.reserve(0, Deadline::NEVER)
    }

    /// As [`Writer::finish`]. A shutdown by the traits does the same.
    ///
    /// # Errors
    /// `Closed` and `Failed` as [`Writer::finish`].
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }

    /// The end inside, for reading its state.
    pub fn get_ref(&self) -> &Writer {
        &self.writer
    }

    /// The end inside: to commit what was put into the space that [`AsyncWriter::reserve`] lent, or
    /// to try without waiting. Its waiting calls would block the whole thread.
    pub fn get_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Converts this end for use in a thread.
    pub fn into_blocking(self) -> Writer {
        self.writer
    }
}
