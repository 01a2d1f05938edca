//! Copying between the pipe and a descriptor: the kernel reads and writes the ring itself.
//!
//! Invariant: bytes that have left one side have arrived at the other, so a failed copy can be
//! resumed. The descriptor is a [`TimedFd`]: its flags are never changed.
//!
//! It copies and does not splice: the next write to the ring could still change a page that was given to a
//! pipe of the kernel (vmsplice(2)).

use std::os::fd::AsFd;

use super::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Unfinished};
use crate::sys::For;
use crate::sys::timed_fd::TimedFd;

type Result<T, E = Unfinished> = std::result::Result<T, E>;

impl Reader {
    /// Copies `len` bytes to a descriptor, or as many as the stream has, and returns how many that
    /// was. `u64::MAX` copies everything.
    ///
    /// The descriptor may block or not. One that has lost its reader gives `Closed`, without
    /// SIGPIPE.
    ///
    /// # Errors
    /// As [`Reader::recv`], and errors of the kernel. `done` bytes have arrived, and no other has
    /// left the pipe: the same call may be repeated.
    pub fn copy_to_fd(&mut self, fd: impl AsFd, len: u64, deadline: impl Into<Deadline>) -> Result<u64> {
        const OP: &str = "pipe copy to descriptor";
        let deadline = deadline.into();
        let end = TimedFd::new(fd.as_fd(), deadline).map_err(|errno| errno.after(0, OP))?;
        let mut done = 0;
        let all = || {
            while done < len {
                let (there, _) = self.peek(1, deadline).map_err(|error| at(done, error))?;
                if there.is_empty() {
                    break;
                }
                let there = &there[..within(there.len(), len - done)];
                let written = end.until_done(For::Writing, || end.write(there));
                let written = written.map_err(|errno| at(done, errno.at(OP)))?;
                self.endpoint.advance(written);
                done += written as u64;
            }
            Ok(done)
        };
        end.without_sigpipe(
            all,
            |done: &Result<_>| matches!(done, Err(why) if why.kind() == ErrorKind::Closed),
        )
    }
}

impl Writer {
    /// Copies `len` bytes from a descriptor, or as many as it has, and returns how many that was.
    /// `u64::MAX` copies everything.
    ///
    /// The descriptor may block or not. The call notices that the reader has closed only when it
    /// has bytes for it, not before.
    ///
    /// # Errors
    /// As [`Writer::send`], and errors of the kernel. `done` bytes are in the pipe, and no other
    /// has left the descriptor: the same call may be repeated. The exception is a pipe whose writer
    /// has set `O_DIRECT`: the kernel drops the part of a packet that does not fit.
    pub fn copy_from_fd(&mut self, fd: impl AsFd, len: u64, deadline: impl Into<Deadline>) -> Result<u64> {
        const OP: &str = "pipe copy from descriptor";
        let deadline = deadline.into();
        let end = TimedFd::to_read(fd.as_fd(), deadline).map_err(|errno| errno.after(0, OP))?;
        let mut done = 0;
        while done < len {
            let (space, _) = self.reserve(1, deadline).map_err(|error| at(done, error))?;
            let space_len = within(space.len(), len - done);
            let read = end.until_done(For::Reading, || end.read(&mut space[..space_len]));
            let read = read.map_err(|errno| at(done, errno.at(OP)))?;
            if read == 0 {
                break;
            }
            self.endpoint.advance(read);
            done += read as u64;
        }
        Ok(done)
    }
}

fn at(done: u64, error: Error) -> Unfinished {
    Unfinished { done, error }
}

/// The smaller of `len`, which is available, and `wanted`.
fn within(len: usize, wanted: u64) -> usize {
    len.min(usize::try_from(wanted).unwrap_or(usize::MAX))
}
