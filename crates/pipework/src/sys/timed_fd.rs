//! One end of a transfer: any descriptor from outside, read and written until a deadline.
//!
//! Invariant: its flags are never changed, whether it blocks or not. If the deadline forbids
//! waiting, each call asks not to wait; sockets and pipes support that. A terminal or a device does
//! not, nor does a pipe on kernels before 6.5. Such a descriptor is polled first; if another
//! process takes its bytes or space between poll and call, the call blocks beyond the deadline. For
//! poll, a regular file is always ready. If its file system has no data yet and says so (EAGAIN),
//! [`Pauses`] separate the calls; if it blocks, as over a network, the deadline cannot be kept.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::file::{self, Kind, Stat};
use super::net::{self, Take};
use super::{Blocking, Errno, For, Result, without_sigpipe};
use crate::deadline::Deadline;
use crate::error::Unfinished;
use crate::interrupt;

/// The number of bytes that may be written, without waiting, to any descriptor that polls as
/// writable: the space that POSIX promises of a pipe.
pub(crate) const SMALL: usize = 4096;

#[derive(Debug)]
pub(crate) struct TimedFd<'fd> {
    pub(crate) fd: BorrowedFd<'fd>,
    pub(crate) kind: Kind,
    pub(crate) stat: Stat,
    /// Whether a plain call could block in the kernel beyond the deadline.
    pub(crate) may_block: bool,
    /// Whether it is a file whose content is generated as it is read, such as those of `/proc`, and
    /// reading could wait beyond the deadline. Some of them can be polled (`kmsg`, `trace_pipe`).
    pub(crate) is_made_up: bool,
    deadline: Deadline,
}

/// Pauses between calls that return [`Errno::AGAIN`] although poll reports the descriptor as ready.
/// Some descriptors do so for any length of time, and only a later call shows when that is over.
#[derive(Debug)]
pub(crate) struct Pauses(Option<Duration>);

impl Pauses {
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(50);

    pub(crate) fn new() -> Pauses {
        Pauses(None)
    }

    /// Call this after each poll that reported ready. The first call returns at once, because the
    /// poll may have waited; each later one sleeps, longer each time. [`Errno::TIMEDOUT`] once the
    /// deadline has passed.
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
    /// The error of the operation `op`, which had done `done` bytes by then.
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

    /// As [`TimedFd::new`], for reading only: a call that may wait in the kernel for ever need not
    /// know the kind.
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

    /// As [`TimedFd::wait`], after a call that returned [`Errno::AGAIN`].
    pub(crate) fn wait_again(&self, what: For, pauses: &mut Pauses) -> Result<()> {
        self.wait(what)?;
        match self.kind {
            // Poll tells the truth about these. If many use the same pipe, another one may still
            // come first.
            Kind::Pipe | Kind::Socket => Ok(()),
            Kind::File | Kind::Other => pauses.pause(self.deadline),
        }
    }

    fn is_ready(&self, what: For, deadline: Deadline) -> Result<bool> {
        super::wait(&[self.fd], what, deadline)
    }

    /// Reads what is available. 0 is end of file; [`Errno::AGAIN`] means that the caller must wait.
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

    /// Writes as much as there is space for, within [`TimedFd::without_sigpipe`]. [`Errno::AGAIN`]
    /// means that the caller must wait for space.
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

    /// Runs `writes`, all through [`TimedFd::write`]: of the kinds that it writes to, only a pipe
    /// raises SIGPIPE.
    pub(crate) fn without_sigpipe<T>(
        &self,
        writes: impl FnOnce() -> T,
        met_closed_end: impl FnOnce(&T) -> bool,
    ) -> T {
        if self.kind == Kind::Pipe { without_sigpipe(writes, met_closed_end) } else { writes() }
    }

    /// Repeats `call` while it returns [`Errno::AGAIN`], waiting in between, and after a signal if
    /// the interrupt hook lets it go on.
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

/// A device that takes nothing and reports success would be asked for ever.
pub(crate) fn progress(len: usize) -> Result<usize> {
    if len > 0 { Ok(len) } else { Err(Errno::IO) }
}
