//! Bytes on their way to one descriptor, written when it can take them.
//!
//! The event loop asks `pending`, waits for space together with everything else it waits for, and
//! calls `write_some`. A consumer that stands still therefore stops the output and nothing besides,
//! unless others write into the same pipe: one may take the space between the wait and the write,
//! and then the write waits. Only O_NONBLOCK could prevent that, and it would be set for them too.

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// More than this waiting, and no more is taken in.
const FULL: usize = 256 << 10;
/// A pipe that polls as writable has space for a page, so that a write of this size does not block
/// as long as nobody else writes.
const SPACE: usize = 4096;

/// A destination for bytes.
pub(crate) struct Outlet {
    file: File,
    waiting: Vec<u8>,
    /// How much of `waiting` has been written.
    written: usize,
}

impl Outlet {
    pub(crate) fn new(fd: impl Into<OwnedFd>) -> Self {
        Self { file: File::from(fd.into()), waiting: Vec::new(), written: 0 }
    }

    /// Where to append what is to be written.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.waiting
    }

    /// Nothing should be appended before some has been written.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() - self.written >= FULL
    }

    /// There is something to write.
    pub(crate) fn is_pending(&self) -> bool {
        self.waiting.len() > self.written
    }

    /// What to wait for before `write_some`.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.file, PollFlags::OUT)
    }

    /// Writes once; to be called when the descriptor is writable.
    ///
    /// A piece ends with a line where it can, so that lines stay whole also where several
    /// `pipework run` share one standard output.
    pub(crate) fn write_some(&mut self) -> io::Result<()> {
        let rest = &self.waiting[self.written..];
        let mut piece = &rest[..rest.len().min(SPACE)];
        if let Some(end) = piece.iter().rposition(|&byte| byte == b'\n') {
            piece = &piece[..=end];
        }
        match self.file.write(piece) {
            Ok(written) => self.written += written,
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
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

    /// Gives up what has not been written.
    pub(crate) fn discard(&mut self) {
        self.waiting.clear();
        self.written = 0;
    }
}

/// A stranger may have made the descriptor non-blocking, or another writer may have been faster.
fn is_temporary(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::INTR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn pieces_are_short_and_end_with_a_line() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outlet = Outlet::new(writer);
        let line = [vec![b'x'; 999], vec![b'\n']].concat();
        let long = vec![b'y'; 5000];
        for _ in 0..7 {
            outlet.buffer().extend_from_slice(&line);
        }
        outlet.buffer().extend_from_slice(&long);
        let mut piece = vec![0; 1 << 16];
        for expected in [4000, 3000, 4096, 904] {
            assert!(outlet.is_pending());
            outlet.write_some().unwrap();
            assert_eq!(reader.read(&mut piece).unwrap(), expected);
        }
        assert!(!outlet.is_pending() && !outlet.is_full());
    }
}
