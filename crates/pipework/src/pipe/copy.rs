//! Copying between the pipe and a descriptor: the kernel reads and writes the ring itself.
//!
//! Invariant: what has left one side has arrived at the other, so a copy that has failed can be
//! taken up again. The descriptor is a [`TimedFd`]: its flags are never changed.

use std::os::fd::AsFd;

use super::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Unfinished};
use crate::sys::For;
use crate::sys::timed_fd::TimedFd;

type Result<T, E = Unfinished> = std::result::Result<T, E>;

impl Reader {
    /// Copies `len` bytes to a descriptor, or as many as the stream has, and says how many that
    /// was. `u64::MAX` is everything.
    ///
    /// Whether the descriptor blocks does not matter. One that nobody reads any more is `Closed`,
    /// without SIGPIPE.
    ///
    /// # Errors
    /// As [`Reader::recv`], and what the kernel says. `done` bytes have arrived, and no other has
    /// left the pipe: the same call may be made again.
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
    /// Copies `len` bytes from a descriptor, or as many as it has, and says how many that was.
    /// `u64::MAX` is everything.
    ///
    /// Whether the descriptor blocks does not matter. That the reader has closed is noticed when
    /// there is something for it, not before.
    ///
    /// # Errors
    /// As [`Writer::send`], and what the kernel says. `done` bytes are in the pipe, and no other
    /// has left the descriptor: the same call may be made again. The exception is a pipe whose
    /// writer has set `O_DIRECT`: the kernel drops the rest of a packet for which there is no space.
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

/// The smaller of what is there and what is still wanted.
fn within(len: usize, wanted: u64) -> usize {
    len.min(usize::try_from(wanted).unwrap_or(usize::MAX))
}
