//! Standard error of a command, taken line by line. Its bytes are lines only: a message that is
//! sent there by mistake is shown as it came.

use crate::records::Records;
use crate::sys;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeReader, PipeWriter};
use std::mem;

/// A line that is longer than this comes in pieces, each behind the tag and with an end.
const LONGEST_LINE: usize = 1 << 20;
/// The warning about such a line.
pub(crate) const CUT: &str = "a line on standard error longer than 1 MiB was cut into several";

/// The reading end of a pipe.
pub(crate) struct Stderr {
    pipe: PipeReader,
    records: Records,
    /// There may be something to read.
    pub(crate) ready: bool,
    /// The piece before was not all of its line.
    is_inside: bool,
    has_cut: bool,
}

impl Stderr {
    /// Also returns the writing end, which becomes the command's standard error.
    pub(crate) fn pair() -> io::Result<(Self, PipeWriter)> {
        let (pipe, writer) = io::pipe()?;
        sys::never_wait(&pipe)?;
        Ok((
            Self { pipe, records: Records::new(b'\n'), ready: true, is_inside: false, has_cut: false },
            writer,
        ))
    }

    /// The descriptor to wait for before `take`.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.pipe, PollFlags::IN)
    }

    /// Whether a line has come in pieces.
    pub(crate) fn has_cut(&self) -> bool {
        self.has_cut
    }

    /// Whether a process may still write to it.
    pub(crate) fn is_held(&self) -> bool {
        sys::has_writer(&self.pipe)
    }

    /// Reads once, and appends the lines that it got, each behind `tag`; false at the end of the
    /// pipe.
    pub(crate) fn take(&mut self, tag: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        match self.records.read(&mut self.pipe) {
            Ok(true) => {}
            Ok(false) => {
                self.end(tag, out);
                return Ok(false);
            }
            Err(error) if sys::is_temporary(&error) => {
                self.ready = false;
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        while let Some(line) = self.records.first() {
            let is_inside = mem::take(&mut self.is_inside);
            // A line of which only the end was missing has one already.
            if !is_inside || line != b"\n" {
                self.has_cut |= is_inside;
                out.extend_from_slice(tag);
                out.extend_from_slice(line);
            }
            self.records.pass();
        }
        if self.records.len() >= LONGEST_LINE {
            self.end(tag, out);
            self.is_inside = true;
        }
        Ok(true)
    }

    /// Appends a line that has not ended, with an end, so that nothing runs into it.
    pub(crate) fn end(&mut self, tag: &[u8], out: &mut Vec<u8>) {
        if self.records.len() > 0 {
            self.has_cut |= self.is_inside;
            out.extend_from_slice(tag);
            out.extend_from_slice(self.records.rest());
            out.push(b'\n');
            self.records.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn take_returns_whole_lines_with_their_tag() {
        let (mut stderr, mut writer) = Stderr::pair().unwrap();
        let mut out = Vec::new();
        writer.write_all(b"one\ntw").unwrap();
        assert!(stderr.take(b"> ", &mut out).unwrap() && stderr.ready);
        assert!(stderr.take(b"> ", &mut out).unwrap() && !stderr.ready);
        assert_eq!(out, b"> one\n");
        writer.write_all(b"o\n\nthree").unwrap();
        drop(writer);
        assert!(stderr.take(b"> ", &mut out).unwrap());
        assert!(!stderr.take(b"> ", &mut out).unwrap());
        assert_eq!(out, b"> one\n> two\n> \n> three\n");
    }

    #[test]
    fn take_bounds_the_memory_of_an_endless_line() {
        let (mut stderr, mut writer) = Stderr::pair().unwrap();
        let mut out = Vec::new();
        let block = [b'x'; 4096];
        for _ in 0..(LONGEST_LINE / block.len()) {
            writer.write_all(&block).unwrap();
            stderr.take(b"", &mut out).unwrap();
        }
        assert_eq!((out.len(), out.last()), (LONGEST_LINE + 1, Some(&b'\n')));
        // All of the line was there: nothing is cut yet, nor by its end.
        writer.write_all(b"\n").unwrap();
        stderr.take(b"", &mut out).unwrap();
        assert_eq!((out.len(), stderr.has_cut()), (LONGEST_LINE + 1, false));
    }

    #[test]
    fn take_tags_each_piece_of_a_cut_line() {
        let (mut stderr, mut writer) = Stderr::pair().unwrap();
        let mut out = Vec::new();
        let block = [b'x'; 4096];
        for _ in 0..(LONGEST_LINE / block.len()) {
            writer.write_all(&block).unwrap();
            stderr.take(b"> ", &mut out).unwrap();
        }
        assert!(!stderr.has_cut());
        writer.write_all(b"rest\nline\n").unwrap();
        stderr.take(b"> ", &mut out).unwrap();
        assert!(stderr.has_cut() && out.ends_with(b"x\n> rest\n> line\n"));
        assert_eq!(out.iter().filter(|&&byte| byte == b'x').count(), LONGEST_LINE);
    }
}
