//! Standard input, output and error as they are: perhaps closed, full, or shared with strangers.
//!
//! Behaviour of the standard library that suits most programs loses data here: it puts /dev/null
//! where a descriptor is closed, takes EBADF for success, and hands EAGAIN to callers who have
//! nothing else to do. So every read and write of the command on a standard stream goes through
//! this file, each one system call, nothing buffered.

use crate::failure::{Failure, STDERR, STDOUT, at};
use crate::sys;
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A standard stream. Waits for space or data also where a stranger made it non-blocking.
#[derive(Clone, Copy)]
pub(crate) struct Stream(BorrowedFd<'static>);

/// Standard input; a failure if the parent process had closed it.
pub(crate) fn stdin() -> Result<Stream, Failure> {
    open(rustix::stdio::stdin(), "standard input")
}

/// Standard output; a failure if the parent process had closed it.
pub(crate) fn stdout() -> Result<Stream, Failure> {
    open(rustix::stdio::stdout(), STDOUT)
}

/// Standard error; where it is closed, what is written is gone.
pub(crate) fn stderr() -> Stream {
    Stream(rustix::stdio::stderr())
}

/// Standard error for text that must not get lost; a failure if the parent process had closed it.
pub(crate) fn open_stderr() -> Result<Stream, Failure> {
    open(rustix::stdio::stderr(), STDERR)
}

/// Prints a whole text on standard output.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    stdout()?.write_all(text).map_err(Failure::stdout)
}

/// Leaves standard output to the other processes that have it, so that its reader sees the end;
/// from then on its number is /dev/null.
pub(crate) fn leave_stdout() -> Result<(), Failure> {
    let nowhere = File::open("/dev/null").map_err(at("/dev/null"))?;
    rustix::stdio::dup2_stdout(nowhere).map_err(|error| at(STDOUT)(error.into()))
}

/// The source of keys: standard input, or else the terminal of this process.
pub(crate) fn keys() -> io::Result<OwnedFd> {
    match stdin().ok().filter(|stdin| stdin.is_terminal()) {
        Some(stdin) => stdin.as_fd().try_clone_to_owned(),
        None => sys::terminal(),
    }
}

fn open(fd: BorrowedFd<'static>, name: &str) -> Result<Stream, Failure> {
    match sys::was_closed(fd.as_raw_fd()) {
        true => Err(Failure::new(format!("{name} is closed"))),
        false => Ok(Stream(fd)),
    }
}

impl Stream {
    pub(crate) fn is_terminal(self) -> bool {
        self.0.is_terminal()
    }

    /// Makes a call, again and again after waits, until it does more than ask for patience.
    fn patiently<T>(self, what: PollFlags, mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
        loop {
            match call() {
                Err(Errno::AGAIN) => sys::wait_for(&mut [PollFd::new(&self.0, what)], Deadline::NEVER)?,
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patiently(PollFlags::IN, || rustix::io::read(self.0, &mut *buffer))
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(PollFlags::OUT, || rustix::io::write(self.0, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}
