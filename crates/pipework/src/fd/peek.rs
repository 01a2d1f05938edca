//! A look at what lies in a pipe.
//!
//! The kernel has no call for that. It can put the same pages into a second pipe (tee(2)), and that
//! one can be read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::{self, Errno, file};

/// The second pipe, empty between two looks; there once it was needed.
#[derive(Debug)]
pub(super) struct Peek(Option<(OwnedFd, OwnedFd)>);

impl Peek {
    pub(super) fn new() -> Peek {
        Peek(None)
    }

    /// Copies what lies in `pipe` into `buf`, as much as there is space for in the buffer and in a
    /// pipe of the usual size. Returns how many bytes it copied. With `nowait` it does not wait for
    /// any.
    pub(super) fn look(
        &mut self,
        pipe: BorrowedFd<'_>,
        buf: &mut [u8],
        nowait: bool,
    ) -> Result<usize, Errno> {
        let (read, write) = match self.0.take() {
            Some(second) => second,
            None => sys::pipe()?,
        };
        let len = file::tee(pipe, write.as_fd(), buf.len(), nowait);
        let mut copied = 0;
        while copied < *len.as_ref().unwrap_or(&0) {
            match sys::read(read.as_fd(), &mut buf[copied..]) {
                Ok(0) => return Err(Errno::IO),
                Ok(more) => copied += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        // Where a read failed, what is left in it goes with it.
        self.0 = Some((read, write));
        len
    }
}
