//! The unit of the wire: a part is a header and data. Pure: bytes in, bytes out.
//!
//! [`PartHeader`] is the 16 bytes in front of a part's data, and their meaning. `WIRE.md` is the
//! normative text.

use super::check::Check;
use super::item::WriterKey;

/// Opens a burst or a part in mixed mode.
pub(super) const SHIFT_OUT: u8 = 0x0E;
/// Closes a burst or a part.
pub(super) const SHIFT_IN: u8 = 0x0F;
/// Directly after [`SHIFT_OUT`]: a part follows, not a burst.
pub(super) const DATA_LINK_ESCAPE: u8 = 0x10;

/// How parts lie on the wire: bare, or between text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    Mixed,
}

impl Mode {
    /// Bytes in front of a part's header.
    pub(super) const fn prefix(self) -> usize {
        match self {
            Mode::Plain => 0,
            Mode::Mixed => 2,
        }
    }

    /// Bytes that a part needs beside its data.
    pub(super) const fn part_overhead(self) -> usize {
        match self {
            Mode::Plain => PartHeader::LEN,
            Mode::Mixed => 2 + PartHeader::LEN + 1,
        }
    }

    /// Bytes that a burst needs beside its data.
    pub(super) const fn burst_overhead(self) -> usize {
        match self {
            Mode::Plain => 0,
            Mode::Mixed => 2,
        }
    }
}

/// The bytes in front of a part's data, as they lie on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartHeader {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) id: u32,
    /// Bytes of data.
    pub(super) len: u32,
}

/// The position of a part in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// It is the whole message.
    Only,
    /// The first of several.
    First,
    /// One that comes after another.
    Later,
    /// Atomic::Pipe does not mark it.
    Untold,
}

/// The smallest number that a writer of this library uses beside the process number. Smaller ones
/// are thread numbers of Atomic::Pipe.
const LEAST_NONCE: i32 = 1 << 16;
/// In the number beside the process number: the message is in several parts.
const SEVERAL: i32 = 1;
/// In the number beside the process number: the payload is a zstd frame.
const COMPRESSED: i32 = 1 << 30;
/// In the id of a part: it is the first of several.
const FIRST: u32 = 1 << 31;
/// This many bits of the first number are the process number; Linux uses no more. The others are
/// the check.
const PID_BITS: u32 = 22;

impl PartHeader {
    pub(super) const LEN: usize = 16;

    /// The header of a part of `len` bytes with `following` more behind it, the first of its
    /// message or a later one. `check` and `compressed` describe the whole payload.
    pub(super) fn new(
        writer: WriterKey,
        check: u32,
        compressed: bool,
        first: bool,
        following: u32,
        len: u32,
    ) -> PartHeader {
        let compressed = if compressed { COMPRESSED } else { 0 };
        let several = if first && following == 0 { 0 } else { SEVERAL };
        let mark = if first && following > 0 { FIRST } else { 0 };
        PartHeader {
            pid: (writer.pid as u32 & ((1 << PID_BITS) - 1) | check << PID_BITS) as i32,
            tid: writer.tid | several | compressed,
            id: following | mark,
            len,
        }
    }

    pub(super) fn to_bytes(self) -> [u8; PartHeader::LEN] {
        let mut bytes = [0; PartHeader::LEN];
        bytes[0..4].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.id.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.len.to_ne_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`; `None` if they are too short.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<PartHeader> {
        #[cfg(test)]
        HEADERS_READ.set(HEADERS_READ.get() + 1);
        let word = |at: usize| -> [u8; 4] { [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]] };
        (bytes.len() >= PartHeader::LEN).then(|| PartHeader {
            pid: i32::from_ne_bytes(word(0)),
            tid: i32::from_ne_bytes(word(4)),
            id: u32::from_ne_bytes(word(8)),
            len: u32::from_ne_bytes(word(12)),
        })
    }

    /// The header of the part that `bytes` begin with, if the part is complete. No part is longer
    /// than `limit`.
    pub(super) fn of_whole_part(bytes: &[u8], mode: Mode, limit: usize) -> Option<PartHeader> {
        let header = PartHeader::from_bytes(bytes.get(mode.prefix()..)?)?;
        let (len, max) = (mode.part_overhead() + header.len as usize, limit - mode.part_overhead());
        let is_part = match mode {
            Mode::Plain => header.is_possible(max) && bytes.len() >= len,
            Mode::Mixed => {
                bytes.starts_with(&[SHIFT_OUT, DATA_LINK_ESCAPE])
                    && header.is_possible_in_text(max)
                    && bytes.get(len - 1) == Some(&SHIFT_IN)
            }
        };
        is_part.then_some(header)
    }

    /// Whether it may be in front of a part with at most `max` bytes of data. No process has the
    /// number 0, and zeros are a frequent kind of damage.
    pub(super) fn is_possible(self, max: usize) -> bool {
        self.len as usize <= max && self.pid != 0
    }

    /// Whether it may be in front of a part between arbitrary bytes that a program prints: the
    /// conditions are stricter there.
    pub(super) fn is_possible_in_text(self, max: usize) -> bool {
        let is_placed = self.kind() != PartKind::Later || self.tid & SEVERAL != 0 && self.id < FIRST;
        self.is_possible(max) && self.writer().pid != 0 && is_placed
    }

    fn is_ours(self) -> bool {
        self.tid >= LEAST_NONCE
    }

    /// The writer, without the bits that describe the message.
    pub(super) fn writer(self) -> WriterKey {
        match self.is_ours() {
            true => {
                WriterKey { pid: self.pid & ((1 << PID_BITS) - 1), tid: self.tid & !(SEVERAL | COMPRESSED) }
            }
            false => WriterKey { pid: self.pid, tid: self.tid },
        }
    }

    pub(super) fn kind(self) -> PartKind {
        match self.tid & SEVERAL == SEVERAL {
            _ if !self.is_ours() => PartKind::Untold,
            false if self.id == 0 => PartKind::Only,
            true if self.id > FIRST => PartKind::First,
            _ => PartKind::Later,
        }
    }

    /// Whether the writer says that it has compressed the message.
    pub(super) fn is_compressed(self) -> bool {
        self.is_ours() && self.tid & COMPRESSED != 0
    }

    /// How many parts of the same message follow.
    pub(super) fn following(self) -> u32 {
        if self.is_ours() { self.id & !FIRST } else { self.id }
    }

    /// The check of the message's payload, if its writer has computed one.
    pub(super) fn check(self) -> Option<Check> {
        Check::from_number(if self.is_ours() { self.pid as u32 >> PID_BITS } else { 0 })
    }

    /// Whether it belongs to the same message as `other`, as far as the headers tell.
    pub(super) fn is_of_the_same(self, other: PartHeader) -> bool {
        (self.pid, self.tid) == (other.pid, other.tid)
    }

    /// Whether `next` is the part after this one.
    pub(super) fn is_before(self, next: PartHeader) -> bool {
        matches!(next.kind(), PartKind::Later | PartKind::Untold)
            && self.is_of_the_same(next)
            && self.following().checked_sub(1) == Some(next.following())
    }

    /// Whether `payload`, a whole message, is the one that the writer sent, as far as the header
    /// tells.
    pub(super) fn vouches_for(self, payload: &[u8]) -> bool {
        self.check().is_none_or(|check| check == Check::of(payload))
    }

    /// Whether a writer of this library may have written it at the beginning of a stream, with at
    /// most `max` bytes of data: few of all possible sixteen bytes pass.
    fn is_likely(self, max: usize) -> bool {
        // Rows of small numbers are common in files: a nonce is not a small number.
        self.is_ours()
            && self.begins_message()
            && self.is_possible(max)
            && (self.len > 0 || self.vouches_for(&[]))
    }

    /// Whether it may be the header of the first part of a message, if nothing else is known of its
    /// writer: programs print all kinds of bytes.
    pub(super) fn begins_message(self) -> bool {
        // Linux has no larger process numbers, Atomic::Pipe no negative threads, and a message of 4
        // GiB no more parts.
        self.kind() != PartKind::Later
            && (1..=1 << PID_BITS).contains(&self.writer().pid)
            && self.tid >= 0
            && self.following() < 1 << 20
    }
}

impl WriterKey {
    /// The key of a writer of this library; `None` if the random bits are unsuitable.
    pub(super) fn draw(pid: i32, bits: u32) -> Option<WriterKey> {
        let tid = (bits >> 1) as i32 & !(SEVERAL | COMPRESSED);
        (tid >= LEAST_NONCE).then_some(WriterKey { pid: pid & ((1 << PID_BITS) - 1), tid })
    }

    /// A different key, for when there are no random bits.
    pub(super) fn next(self, pid: i32) -> WriterKey {
        let tid = ((self.tid + 2) & !COMPRESSED).max(LEAST_NONCE);
        WriterKey { pid: pid & ((1 << PID_BITS) - 1), tid }
    }
}

/// The first bytes of a stream, which distinguish a wrong mode from text. Text hardly ever matches
/// these rules: the last two of its sixteen bytes would have to be zero.
#[derive(Debug)]
pub(super) struct Opening {
    bytes: [u8; PartHeader::LEN],
    len: usize,
}

impl Opening {
    pub(super) const NEW: Opening = Opening { bytes: [0; PartHeader::LEN], len: 0 };

    /// Takes the next bytes of the stream. Returns true once: when enough bytes have come to see
    /// that a writer of this library sends in plain mode.
    #[inline]
    pub(super) fn shows_plain(&mut self, read: &[u8], limit: usize) -> bool {
        self.len < PartHeader::LEN && self.shows_plain_now(read, limit)
    }

    fn shows_plain_now(&mut self, read: &[u8], limit: usize) -> bool {
        let len = read.len().min(PartHeader::LEN - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&read[..len]);
        self.len += len;
        let whole = PartHeader::from_bytes(&self.bytes[..self.len]);
        whole.is_some_and(|header| header.is_likely(limit - Mode::Plain.part_overhead()))
    }
}

/// Whether these bytes begin as a part in mixed mode does.
pub(super) fn shows_mixed(bytes: &[u8], limit: usize) -> bool {
    let header = bytes.strip_prefix(&[SHIFT_OUT, DATA_LINK_ESCAPE]).and_then(PartHeader::from_bytes);
    header.is_some_and(|header| header.is_likely(limit - Mode::Mixed.part_overhead()))
}

/// How many parts a payload of `len` bytes takes if each holds at most `max` bytes: at least one.
/// `None` if that is more than ids can count.
pub(super) fn parts_of(len: usize, max: usize) -> Option<u32> {
    u32::try_from(len.div_ceil(max).max(1)).ok().filter(|parts| *parts <= FIRST)
}

#[cfg(test)]
thread_local! {
    /// How many headers this thread has read: it proves that no input causes more reads than a
    /// multiple of the number of parts.
    pub(super) static HEADERS_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_counts_parts() {
        assert_eq!(parts_of(0, 4080), Some(1));
        assert_eq!(parts_of(4080, 4080), Some(1));
        assert_eq!(parts_of(4081, 4080), Some(2));
        assert_eq!(parts_of(usize::MAX, 1), None);
    }

    proptest! {
        #[test]
        fn any_header_survives(pid: i32, tid: i32, id: u32, len: u32) {
            let header = PartHeader { pid, tid, id, len };
            prop_assert_eq!(PartHeader::from_bytes(&header.to_bytes()), Some(header));
        }
    }
}
