//! Bytes on their way to one descriptor, written when it can take them.
//!
//! The event loop asks `is_pending`, waits for space together with everything else it waits for,
//! and calls `write_some`. A consumer that stands still therefore stops the output and nothing
//! besides. If others write into the same pipe, one may take the space between the wait and the
//! write; so the kernel is asked, for each write, not to wait. If it cannot be asked so (a
//! terminal, an old kernel), such a write waits. O_NONBLOCK would be set for the others too.

use crate::log_file;
use crate::sys;
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// More than this waiting, and no more is taken in.
const FULL: usize = 256 << 10;
/// A pipe that polls as writable has space for a page, so that a write of this size does not block
/// as long as no other process writes; and it is written as a whole or not at all.
const SPACE: usize = 4096;
/// Pieces that are written before others have their turn.
const TURN: usize = 64;
/// A destination that takes nothing for this long after a signal to stop is given up.
pub(crate) const STILL: Duration = Duration::from_secs(5);

/// A destination for bytes.
pub(crate) struct Outlet {
    file: File,
    /// It is a file, which takes any number of bytes at once.
    takes_all: bool,
    /// The kernel can be asked not to wait.
    never_waits: bool,
    waiting: Vec<u8>,
    /// How much of `waiting` has been written.
    written: usize,
    /// The same, of all that there ever was.
    passed: u64,
    /// The ends of the entries that are not written whole, and of the latest one that is.
    ends: VecDeque<u64>,
    whole: u64,
    /// When it took something the last time, or had nothing to take.
    moved: Instant,
    /// It is of no use any more: appended data is dropped.
    is_gone: bool,
}

impl Outlet {
    pub(crate) fn new(fd: impl Into<OwnedFd>) -> Self {
        let file = File::from(fd.into());
        let takes_all = file.metadata().is_ok_and(|meta| meta.is_file());
        Self {
            file,
            takes_all,
            never_waits: !takes_all,
            waiting: Vec::new(),
            written: 0,
            passed: 0,
            ends: VecDeque::new(),
            whole: 0,
            moved: Instant::now(),
            is_gone: false,
        }
    }

    /// The buffer to append to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.is_gone {
            self.forget();
        } else if !self.is_pending() {
            self.moved = Instant::now();
        }
        &mut self.waiting
    }

    /// Notes that what was appended until now is whole entries; see `take_back_entry`.
    pub(crate) fn end_entry(&mut self) {
        self.ends.push_back(self.passed + (self.waiting.len() - self.written) as u64);
    }

    /// Nothing should be appended before some has been written.
    pub(crate) fn is_full(&self) -> bool {
        self.unwritten() >= FULL
    }

    /// It has data to write.
    pub(crate) fn is_pending(&self) -> bool {
        !self.is_gone && self.unwritten() > 0
    }

    /// Bytes that have not been written.
    pub(crate) fn unwritten(&self) -> usize {
        if self.is_gone { 0 } else { self.waiting.len() - self.written }
    }

    /// Entries that have not been written whole.
    pub(crate) fn unwritten_entries(&self) -> usize {
        self.ends.len()
    }

    /// When it has stood still for too long, if a signal to stop came at `stopped`.
    pub(crate) fn still(&self, stopped: Instant) -> Deadline {
        match self.is_pending() {
            true => Deadline::from(self.moved.max(stopped) + STILL),
            false => Deadline::NEVER,
        }
    }

    /// The descriptor to wait for before `write_some`.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.file, PollFlags::OUT)
    }

    /// Writes some; to be called when the descriptor is writable.
    ///
    /// A piece ends with a line where it can, so that lines stay whole also where several
    /// `pipework run` share one standard output.
    pub(crate) fn write_some(&mut self) -> io::Result<()> {
        for _ in 0..TURN {
            let rest = &self.waiting[self.written..];
            let mut piece = &rest[..rest.len().min(if self.takes_all { FULL } else { SPACE })];
            if let Some(end) = piece.iter().rposition(|&byte| byte == b'\n') {
                piece = &piece[..=end];
            }
            let outcome = match self.never_waits {
                true => sys::write_now(&self.file, piece),
                false => self.file.write(piece),
            };
            match outcome {
                Ok(written) => {
                    self.moved = Instant::now();
                    self.written += written;
                    self.passed += written as u64;
                    while let Some(end) = self.ends.pop_front_if(|end| *end <= self.passed) {
                        self.whole = end;
                    }
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) && self.never_waits => {
                    self.never_waits = false;
                    continue;
                }
                Err(error) if sys::is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
            // If a write may block, it polls for space before each one.
            if !self.is_pending() || !(self.never_waits || self.takes_all) {
                break;
            }
        }
        if self.written == self.waiting.len() {
            self.waiting.clear();
            self.written = 0;
        } else if self.written >= FULL.max(self.waiting.len() / 2) {
            // No more moves than has been written since the last move, however much is waiting.
            self.waiting.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    /// Gives up what has not been written, and all that would be appended: behind an entry that
    /// is cut, or missing, nothing else shall stand.
    pub(crate) fn give_up(&mut self) {
        self.forget();
        self.is_gone = true;
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.written = 0;
        self.ends.clear();
    }

    /// Takes back the part that a file has taken of an entry that it cannot take whole; false if
    /// that must stay there. Only of an outlet all of whose entries were noted.
    pub(crate) fn take_back_entry(&mut self) -> bool {
        let cut = self.passed - self.whole;
        if cut > 0 && !log_file::take_back(&mut self.file, cut as usize) {
            return false;
        }
        self.passed = self.whole;
        true
    }

    /// The descriptor to poll for the reader's end, while no data is to be written.
    pub(crate) fn poll_for_end(&self) -> PollFd<'_> {
        PollFd::new(&self.file, PollFlags::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::io::Read;

    #[test]
    fn write_takes_short_pieces_that_end_with_a_line() {
        // A read of such a pipe returns the bytes of one write.
        let (reader, writer) = pipe_with(PipeFlags::DIRECT).unwrap();
        let mut outlet = Outlet::new(writer);
        let line = [vec![b'x'; 999], vec![b'\n']].concat();
        let long = vec![b'y'; 5000];
        for _ in 0..7 {
            outlet.buffer().extend_from_slice(&line);
        }
        outlet.buffer().extend_from_slice(&long);
        outlet.write_some().unwrap();
        assert!(!outlet.is_pending() && !outlet.is_full());
        let mut piece = vec![0; 1 << 16];
        for expected in [4000, 3000, 4096, 904] {
            assert_eq!(File::from(reader.try_clone().unwrap()).read(&mut piece).unwrap(), expected);
        }
    }

    #[test]
    fn write_does_not_wait_for_a_full_pipe() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outlet = Outlet::new(writer);
        outlet.buffer().resize(200_000, b'x');
        for _ in 0..3 {
            outlet.write_some().unwrap();
        }
        assert_eq!(reader.read(&mut vec![0; 200_000]).unwrap(), 65_536);
        outlet.write_some().unwrap();
        drop(reader);
        // Another test may be starting a process, which has the reading end until it is executed.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let error = loop {
            match outlet.write_some() {
                Err(error) => break error,
                Ok(()) => assert!(std::time::Instant::now() < limit, "no process has the reading end"),
            }
            std::thread::yield_now();
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
