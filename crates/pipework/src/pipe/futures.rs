//! The traits of futures-io on the async ends: poll until the call would not wait, then make it.
//! Mirrors `tokio.rs`.

use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use super::{AsyncReader, AsyncWriter};

impl AsyncRead for AsyncReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(ready!(self.poll_ready(cx, buf.len()))?.read(buf))
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        Poll::Ready(ready!(self.poll_ready(cx, len))?.read_vectored(bufs))
    }
}

impl AsyncBufRead for AsyncReader {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Poll::Ready(ready!(self.get_mut().poll_ready(cx, 1))?.fill_buf())
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        BufRead::consume(AsyncReader::get_mut(&mut self), len);
    }
}

impl AsyncWrite for AsyncWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(ready!(self.poll_ready(cx, buf.len()))?.write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        Poll::Ready(ready!(self.poll_ready(cx, len))?.write_vectored(bufs))
    }

    /// Does nothing: written bytes can be read at once.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes this end at once: the reader gets the bytes in the pipe and then the end of the
    /// stream.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut_down();
        Poll::Ready(Ok(()))
    }
}
