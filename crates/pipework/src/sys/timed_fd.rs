//! One end of a transfer: any descriptor from outside, read and written until a deadline.
//!
//! Invariant: its flags are never changed, whether it blocks or not. Where the deadline forbids
//! waiting, each call asks not to wait: sockets and pipes can be asked. A terminal or a device
//! cannot, nor can a pipe on kernels before 6.5; it is polled first, and if somebody else is
//! quicker between poll and call, the call waits for its turn beyond the deadline.

use std::os::fd::BorrowedFd;

use super::file::{self, Kind, Stat};
use super::net::{self, Take};
use super::{Blocking, Errno, For, Result, without_sigpipe};
use crate::deadline::Deadline;
use crate::error::Unfinished;

/// What may be written, without waiting, to whatever polls as writable: the space that POSIX
/// promises of a pipe.
pub(crate) const SMALL: usize = 4096;

#[derive(Debug)]
pub(crate) struct TimedFd<'fd> {
    pub(crate) fd: BorrowedFd<'fd>,
    pub(crate) kind: Kind,
    pub(crate) stat: Stat,
    /// Whether a plain call could wait in the kernel beyond the deadline.
    pub(crate) may_block: bool,
    deadline: Deadline,
}

impl Errno {
    /// The error of the operation `op`, which had done so much by then.
    pub(crate) fn after(self, done: usize, op: &'static str) -> Unfinished {
        Unfinished { done: done as u64, error: self.at(op) }
    }
}

impl<'fd> TimedFd<'fd> {
    pub(crate) fn new(fd: BorrowedFd<'fd>, deadline: Deadline) -> Result<TimedFd<'fd>> {
        let stat = file::stat(fd)?;
        let kind = stat.kind;
        let may_block = kind != Kind::File && !deadline.is_never() && file::blocks(fd)?;
        Ok(TimedFd { fd, kind, stat, may_block, deadline })
    }

    /// As [`TimedFd::new`], for reading alone: whoever may wait for ever need not know what it is.
    pub(crate) fn to_read(fd: BorrowedFd<'fd>, deadline: Deadline) -> Result<TimedFd<'fd>> {
        if !deadline.is_never() {
            return TimedFd::new(fd, deadline);
        }
        let stat = Stat { kind: Kind::Other, len: 0, identity: (0, 0) };
        Ok(TimedFd { fd, kind: stat.kind, stat, may_block: false, deadline })
    }

    /// Waits until a call may succeed; [`Errno::TIMEDOUT`] once the deadline has passed.
    pub(crate) fn wait(&self, what: For) -> Result<()> {
        if self.is_ready(what, self.deadline)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
    }

    fn is_ready(&self, what: For, deadline: Deadline) -> Result<bool> {
        Ok(self.kind == Kind::File || super::wait(&[self.fd], what, deadline)?)
    }

    /// Reads what is there. 0 is end of file; [`Errno::AGAIN`] means that it is to be waited for.
    pub(crate) fn read(&self, buf: &mut [u8]) -> Result<usize> {
        match self.kind {
            _ if !self.may_block => super::read(self.fd, buf),
            Kind::Socket => net::recv(self.fd, buf, Take::Out, true),
            _ => match super::read_nowait(self.fd, buf) {
                Err(Errno::OPNOTSUPP) if self.is_ready(For::Reading, Deadline::now())? => {
                    super::read(self.fd, buf)
                }
                Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
                done => done,
            },
        }
    }

    /// Writes what there is space for, within [`TimedFd::without_sigpipe`]. [`Errno::AGAIN`] means
    /// that space is to be waited for.
    pub(crate) fn write(&self, buf: &[u8]) -> Result<usize> {
        let outcome = match self.kind {
            Kind::Socket => net::send(self.fd, buf, self.may_block),
            _ if !self.may_block => super::write(self.fd, buf, Blocking::Native),
            _ => match super::write(self.fd, buf, Blocking::Never) {
                Err(Errno::OPNOTSUPP) if self.is_ready(For::Writing, Deadline::now())? => {
                    super::write(self.fd, &buf[..buf.len().min(SMALL)], Blocking::Native)
                }
                Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
                done => done,
            },
        };
        outcome.and_then(progress)
    }

    /// Runs `writes`, all by [`TimedFd::write`]: of what that writes to, only a pipe raises
    /// SIGPIPE.
    pub(crate) fn without_sigpipe<T>(
        &self,
        writes: impl FnOnce() -> T,
        met_closed_end: impl FnOnce(&T) -> bool,
    ) -> T {
        if self.kind == Kind::Pipe { without_sigpipe(writes, met_closed_end) } else { writes() }
    }

    /// Makes `call` until it does not ask to be made again, waiting in between.
    pub(crate) fn until_done<T>(&self, what: For, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(Errno::AGAIN) => self.wait(what)?,
                done => return done,
            }
        }
    }
}

/// A device that takes nothing and calls that a success would be asked for ever.
pub(crate) fn progress(len: usize) -> Result<usize> {
    if len > 0 { Ok(len) } else { Err(Errno::IO) }
}
