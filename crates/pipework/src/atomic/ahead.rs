//! How far a reader may read if it has to stop after an item. Pure.
//!
//! Invariant: it never asks for a byte that may lie behind the last wanted item, unless fewer bytes
//! cannot tell where that item ends.

use super::frame::{Mode, PartHeader};
use super::mixed::{self, LineState, Rest, Rules, Start};

/// The item with which the bytes begin.
pub(super) enum Beginning {
    /// A part, which is no longer than `pipe_buf` bytes.
    Plain { pipe_buf: usize },
    /// `text` bytes of text in the line, and then anything. A line of more than `max_line` bytes
    /// comes in pieces.
    Mixed { text: usize, line: LineState, max_line: usize, rules: Rules },
}

/// How many bytes (`bytes` first, then those behind them) can be read without reading past the next
/// `items` items. Reports of lost messages do not count.
pub(super) fn certain(bytes: &[u8], place: Beginning, items: u64) -> usize {
    let mut look = Look { bytes, at: 0, left: items };
    match place {
        Beginning::Plain { pipe_buf } => look.parts(pipe_buf),
        Beginning::Mixed { text, line, max_line, rules } => look.anything(text, line, max_line, rules),
    }
    look.at
}

struct Look<'a> {
    bytes: &'a [u8],
    /// The number of bytes that can be read for certain.
    at: usize,
    /// Items still wanted.
    left: u64,
}

impl Look<'_> {
    fn parts(&mut self, pipe_buf: usize) {
        let max_part = pipe_buf - Mode::Plain.part_overhead();
        while self.left > 0 && self.at <= self.bytes.len() {
            match PartHeader::from_bytes(&self.bytes[self.at..]).filter(|header| header.is_possible(max_part))
            {
                Some(header) => self.part(header, Mode::Plain),
                None => return self.at += PartHeader::LEN,
            }
        }
    }

    fn part(&mut self, header: PartHeader, mode: Mode) {
        self.at += mode.part_overhead() + header.len as usize;
        self.left -= u64::from(header.following() == 0);
    }

    fn anything(&mut self, text: usize, mut line: LineState, max_line: usize, rules: Rules) {
        self.text(text, &mut line, max_line);
        while self.left > 0 {
            let bytes = &self.bytes[self.at..];
            if bytes.is_empty() {
                return self.at += 1;
            }
            match mixed::scan(bytes, Rest::Possible, rules) {
                Start::Text(len) | Start::Broken { len, .. } => self.text(len, &mut line, max_line),
                Start::Part { header, .. } => self.part(header, Mode::Mixed),
                Start::Burst { len, .. } => (self.at, self.left) = (self.at + len, self.left - 1),
                Start::Undecided => return self.at += mixed::len_to_decide(bytes, rules),
                Start::NoFrame => return self.at += 1,
            }
        }
    }

    /// Counts as many of the next `len` bytes, which are text, as the wanted lines take.
    fn text(&mut self, len: usize, line: &mut LineState, max_line: usize) {
        let end = self.at + len;
        while self.left > 0 && self.at < end {
            let (taken, ended) = line.take(&self.bytes[self.at..end], max_line);
            self.at += taken;
            self.left -= u64::from(ended);
            // Only the byte after the line showed that the line ends here.
            self.at += usize::from(ended && taken == 0 && self.left == 0);
        }
    }
}
