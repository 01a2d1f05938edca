//! Bytes that come in pieces, taken out record by record. Each byte is looked at once.

use std::io::{self, Read};
use std::ops::Range;

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;

/// The bytes that are read and not taken.
pub(crate) struct Records {
    /// The byte that ends a record.
    end: u8,
    bytes: Vec<u8>,
    /// The beginning of the first record.
    begin: usize,
    /// The first record has no end up to here.
    searched: usize,
}

impl Records {
    pub(crate) fn new(end: u8) -> Self {
        Self { end, bytes: Vec::new(), begin: 0, searched: 0 }
    }

    /// Reads once; false at the end of the input. WouldBlock as the input says it.
    pub(crate) fn read(&mut self, input: &mut impl Read) -> io::Result<bool> {
        if self.begin > 0 {
            self.bytes.drain(..self.begin);
            self.searched -= self.begin;
            self.begin = 0;
        }
        let filled = self.bytes.len();
        self.bytes.resize(filled + BLOCK, 0);
        let read = input.read(&mut self.bytes[filled..]);
        self.bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// The first whole record, with its end.
    pub(crate) fn first(&mut self) -> Option<&[u8]> {
        self.range().map(|range| &self.bytes[range])
    }

    /// Takes the first whole record out.
    pub(crate) fn pass(&mut self) {
        if let Some(range) = self.range() {
            (self.begin, self.searched) = (range.end, range.end);
        }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.begin, self.searched) = (0, 0);
    }

    fn range(&mut self) -> Option<Range<usize>> {
        let found = self.bytes[self.searched..].iter().position(|&byte| byte == self.end);
        self.searched = found.map_or(self.bytes.len(), |at| self.searched + at);
        found.map(|_| self.begin..self.searched + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_the_same_however_reads_are_cut() {
        let text = b"one\n\nthree\nrest";
        for size in 1..=text.len() {
            let mut records = Records::new(b'\n');
            let mut taken = Vec::new();
            for mut piece in text.chunks(size) {
                assert!(records.read(&mut piece).unwrap());
                while let Some(record) = records.first() {
                    taken.push(record.to_vec());
                    records.pass();
                }
            }
            assert!(!records.read(&mut io::empty()).unwrap());
            assert_eq!(taken, [&b"one\n"[..], b"\n", b"three\n"], "pieces of {size}");
            assert_eq!((records.rest(), records.len()), (&b"rest"[..], 4));
        }
    }
}
