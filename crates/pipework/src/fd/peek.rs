//! A look at the content of a pipe, and a way to take part of it and leave the rest.
//!
//! The kernel has no call for either. It can put the same pages into a second pipe (tee(2)), or
//! move them there (splice(2)), and that pipe can be read. A plain read takes no more than it asks
//! for out of a stream, but of a packet (`O_DIRECT`) it drops the part that does not fit.

use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::known::KnownFile;
use crate::sys::{self, Errno, file};

/// The second pipe, empty between two looks; created when first needed.
#[derive(Debug)]
pub(super) struct Peek(Option<(KnownFile, KnownFile)>);

impl Peek {
    pub(super) fn new() -> Peek {
        Peek(None)
    }

    /// Copies the content of `pipe` into `buf`, as much as fits into the buffer and into a pipe of
    /// the usual size. Returns how many bytes it copied. With `nowait` it does not wait for any.
    pub(super) fn look(&mut self, pipe: BorrowedFd<'_>, buf: &mut [u8], nowait: bool) -> sys::Result<usize> {
        self.through(buf, |second, len| file::tee(pipe, second, len, nowait))
    }

    /// Takes up to `buf.len()` bytes out of `pipe`, and leaves the rest there, even the rest of a
    /// packet. Never waits. `None` if the kernel cannot do it: then nothing was taken.
    pub(super) fn take(&mut self, pipe: BorrowedFd<'_>, buf: &mut [u8]) -> sys::Result<Option<usize>> {
        match self.through(buf, |second, len| file::splice(pipe, None, second, len, true)) {
            Ok(len) => Ok(Some(len)),
            Err(errno @ (Errno::AGAIN | Errno::INTR | Errno::IO)) => Err(errno),
            Err(_) => Ok(None),
        }
    }

    /// Lets `fill` put up to `buf.len()` bytes into the second pipe, and reads them. [`Errno::IO`]
    /// if that fails.
    fn through(
        &mut self,
        buf: &mut [u8],
        fill: impl FnOnce(BorrowedFd<'_>, usize) -> sys::Result<usize>,
    ) -> sys::Result<usize> {
        // The program may have closed them, and opened others under the numbers.
        let kept = self.0.take().filter(|(read, write)| read.is_intact() && write.is_intact());
        let (read, write) = match kept {
            Some(second) => second,
            None => {
                let (read, write) = sys::pipe()?;
                (KnownFile::nameless(read)?, KnownFile::nameless(write)?)
            }
        };
        let len = fill(write.as_fd(), buf.len());
        let mut copied = 0;
        while copied < *len.as_ref().unwrap_or(&0) {
            match sys::read(read.as_fd(), &mut buf[copied..]) {
                Ok(more) if more > 0 => copied += more,
                Err(Errno::INTR) => {}
                // Replacing the pipe also discards its content.
                _ => return Err(Errno::IO),
            }
        }
        self.0 = Some((read, write));
        len
    }
}
