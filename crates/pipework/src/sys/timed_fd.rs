//! One end of a transfer: any descriptor from outside, read and written until a deadline.
//!
//! Invariant: its flags are never changed, whether it blocks or not. Where the deadline forbids
//! waiting, each call asks not to wait: sockets and pipes can be asked. A terminal or a device
//! cannot, nor can a pipe on kernels before 6.5; it is polled first, and if somebody else is
//! quicker between poll and call, the call waits for its turn beyond the deadline. A regular file is
//! always ready as far as poll knows. Where its file system has nothing to give yet and says so
//! (EAGAIN), [`Pauses`] lie between the calls; where it blocks, as over a network, nothing can be
//! done about it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::file::{self, Kind, Stat};
use super::net::{self, Take};
use super::{Blocking, Errno, For, Result, without_sigpipe};
use crate::deadline::Deadline;
use crate::error::Unfinished;
use crate::interrupt;

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
    /// Whether it is a file whose content is made up as it is read, as those of `/proc` are, and
    /// reading could wait beyond the deadline. Some of them can be polled (`kmsg`, `trace_pipe`).
    pub(crate) is_made_up: bool,
    deadline: Deadline,
}

/// Pauses between calls that say [`Errno::AGAIN`] although poll says that the descriptor is ready:
/// some descriptors do so for as long as they like, and only a later call shows when that is over.
#[derive(Debug)]
pub(crate) struct Pauses(Option<Duration>);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Pauses {
        Pauses(None)
    }

    /// To be called after each poll that said ready. The first time it returns at once, for the poll
    /// may have waited; then it sleeps, longer each time. [`Errno::TIMEDOUT`] once the deadline has
    /// passed.
    pub(crate) fn pause(&mut self, deadline: Deadline) -> Result<()> {
        let Some(pause) = self.0 else {
            self.0 = Some(Pauses::FIRST);
            return Ok(());
        };
        if deadline.has_passed() {
            return Err(Errno::TIMEDOUT);
        }
        super::sleep(deadline.remaining().map_or(pause, |left| left.min(pause)))?;
        self.0 = Some((2 * pause).min(Pauses::LONGEST));
        Ok(())
    }
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
        let is_file = kind == Kind::File;
        let is_slow =
            (!is_file || stat.len == 0) && !interrupt::kernel_may_wait(deadline) && file::blocks(fd)?;
        let (may_block, is_made_up) = (is_slow && !is_file, is_slow && is_file);
        Ok(TimedFd { fd, kind, stat, may_block, is_made_up, deadline })
    }

    /// As [`TimedFd::new`], for reading alone: a call that the kernel lets wait for ever need not
    /// know what it is.
    pub(crate) fn to_read(fd: BorrowedFd<'fd>, deadline: Deadline) -> Result<TimedFd<'fd>> {
        if !interrupt::kernel_may_wait(deadline) {
            return TimedFd::new(fd, deadline);
        }
        let stat = Stat { kind: Kind::Other, len: 0, identity: (0, 0) };
        Ok(TimedFd { fd, kind: stat.kind, stat, may_block: false, is_made_up: false, deadline })
    }

    /// Waits until a call may succeed; [`Errno::TIMEDOUT`] once the deadline has passed.
    pub(crate) fn wait(&self, what: For) -> Result<()> {
        if self.is_ready(what, self.deadline)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
    }

    /// As [`TimedFd::wait`], after a call that said [`Errno::AGAIN`].
    pub(crate) fn wait_again(&self, what: For, pauses: &mut Pauses) -> Result<()> {
        self.wait(what)?;
        match self.kind {
            // What poll says of these is true. With many at the same pipe, another one may still be
            // quicker.
            Kind::Pipe | Kind::Socket => Ok(()),
            Kind::File | Kind::Other => pauses.pause(self.deadline),
        }
    }

    fn is_ready(&self, what: For, deadline: Deadline) -> Result<bool> {
        super::wait(&[self.fd], what, deadline)
    }

    /// Reads what is there. 0 is end of file; [`Errno::AGAIN`] means that it is to be waited for.
    pub(crate) fn read(&self, buf: &mut [u8]) -> Result<usize> {
        match self.kind {
            Kind::File if self.is_made_up && !self.is_ready(For::Reading, Deadline::now())? => {
                Err(Errno::AGAIN)
            }
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
        let mut pauses = Pauses::new();
        loop {
            match call() {
                Err(Errno::AGAIN) => self.wait_again(what, &mut pauses)?,
                Err(Errno::INTR) if interrupt::goes_on() => {}
                done => return done,
            }
        }
    }
}

/// A device that takes nothing and calls that a success would be asked for ever.
pub(crate) fn progress(len: usize) -> Result<usize> {
    if len > 0 { Ok(len) } else { Err(Errno::IO) }
}
