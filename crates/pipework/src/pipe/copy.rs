//! Copying between the pipe and a descriptor: the kernel reads and writes the ring itself.
//!
//! Invariant: what has left one side has arrived at the other, so a copy that has failed can be taken up again. The descriptor's
//! flags are never changed. With a deadline, a socket is asked per call not to wait; anything else is polled first, and if somebody else is quicker
//! between poll and call, the call waits for its turn beyond the deadline.

use std::os::fd::{AsFd, BorrowedFd};

use super::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, Unfinished};
use crate::sys::file::{self, Kind};
use crate::sys::{self, Errno, For, SigpipeBlocked, Wait, net};

type Result<T, E = Unfinished> = std::result::Result<T, E>;

/// What may be written, without waiting, to whatever polls as writable: the space that POSIX promises of a pipe.
const SMALL: usize = 4096;

impl Reader {
    /// Copies `len` bytes to a descriptor, or as many as the stream has, and says how many that was. `u64::MAX` is everything.
    ///
    /// Whether the descriptor blocks does not matter. One that nobody reads any more is `Closed`, without SIGPIPE.
    ///
    /// # Errors
    /// As [`Reader::recv`], and what the kernel says. `done` bytes have arrived, and no other has left the pipe: the same call may be made again.
    pub fn copy_to_fd(&mut self, fd: impl AsFd, len: u64, deadline: impl Into<Deadline>) -> Result<u64> {
        const OP: &str = "pipe copy to descriptor";
        let (fd, deadline) = (fd.as_fd(), deadline.into());
        let kind = file::facts(fd).map_err(|errno| at(0, errno.at(OP)))?.kind;
        let guard = SigpipeBlocked::new();
        let mut done = 0;
        while done < len {
            let (there, _) = self.peek(1, deadline).map_err(|error| at(done, error))?;
            if there.is_empty() {
                break;
            }
            let there = &there[..within(there.len(), len - done)];
            let written = write(fd, kind, there, deadline).map_err(|errno| {
                if errno == Errno::PIPE {
                    guard.take_back();
                }
                at(done, errno.at(OP))
            })?;
            self.half.advance(written);
            done += written as u64;
        }
        Ok(done)
    }
}

impl Writer {
    /// Copies `len` bytes from a descriptor, or as many as it has, and says how many that was. `u64::MAX` is everything.
    ///
    /// Whether the descriptor blocks does not matter. That the reader has closed is noticed when there is something for it, not before.
    ///
    /// # Errors
    /// As [`Writer::send`], and what the kernel says. `done` bytes are in the pipe, and no other has left the descriptor: the same call
    /// may be made again.
    pub fn copy_from_fd(&mut self, fd: impl AsFd, len: u64, deadline: impl Into<Deadline>) -> Result<u64> {
        const OP: &str = "pipe copy from descriptor";
        let (fd, deadline) = (fd.as_fd(), deadline.into());
        let mut done = 0;
        while done < len {
            let (space, _) = self.reserve(1, deadline).map_err(|error| at(done, error))?;
            let space_len = within(space.len(), len - done);
            let read = read(fd, &mut space[..space_len], deadline).map_err(|errno| at(done, errno.at(OP)))?;
            if read == 0 {
                break;
            }
            self.half.advance(read);
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

fn read(fd: BorrowedFd<'_>, buf: &mut [u8], deadline: Deadline) -> Result<usize, Errno> {
    loop {
        if !deadline.is_never() {
            wait(fd, For::Reading, deadline)?;
        }
        match sys::read(fd, buf) {
            Err(Errno::AGAIN) => wait(fd, For::Reading, deadline)?,
            done => return done,
        }
    }
}

fn write(fd: BorrowedFd<'_>, kind: Kind, mut buf: &[u8], deadline: Deadline) -> Result<usize, Errno> {
    loop {
        let written = if kind == Kind::Socket {
            net::send(fd, buf, !deadline.is_never())
        } else {
            if !deadline.is_never() && kind != Kind::File {
                wait(fd, For::Writing, deadline)?;
                buf = &buf[..buf.len().min(SMALL)];
            }
            sys::write_under_guard(fd, buf, Wait::Native)
        };
        match written {
            Err(Errno::AGAIN) => wait(fd, For::Writing, deadline)?,
            // A device that takes nothing and calls that a success would be asked for ever.
            Ok(0) => return Err(Errno::IO),
            done => return done,
        }
    }
}

fn wait(fd: BorrowedFd<'_>, what: For, deadline: Deadline) -> Result<(), Errno> {
    if sys::wait(&[fd], what, deadline)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
}
