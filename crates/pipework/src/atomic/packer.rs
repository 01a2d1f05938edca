//! How payloads become writes: cut into parts, and packed side by side. Pure: bytes in, bytes out.
//!
//! [`Cut`] records where a payload is divided. [`Packer`] puts whole parts and bursts into one
//! write of at most PIPE_BUF bytes. It copies headers and payloads side by side: with 4 KiB, letting the kernel
//! gather them (writev) took 919 ns instead of 895.

use super::check::Check;
use super::frame::{DATA_LINK_ESCAPE, Mode, PartHeader, SHIFT_IN, SHIFT_OUT};
use super::item::WriterKey;

/// How far a payload has been cut into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the payload in parts so far.
    pub(super) off: usize,
    /// The id of the next part; `None` before the first, whose size decides how many there are.
    pub(super) next_id: Option<u32>,
    /// The check of the whole payload; known with the first part.
    check: u32,
    /// Whether the payload is a zstd frame. It may be pending while the writer's setting changes.
    compressed: bool,
    done: bool,
}

impl Cut {
    pub(super) const fn new(compressed: bool) -> Cut {
        Cut { off: 0, next_id: None, check: 0, compressed, done: false }
    }

    /// Whether the last part has been cut.
    pub(super) fn is_done(self) -> bool {
        self.done
    }

    /// The same position, counted from the rest of the payload.
    pub(super) fn of_the_rest(self) -> Cut {
        Cut { off: 0, ..self }
    }

    pub(super) fn has_begun(self) -> bool {
        self.next_id.is_some()
    }
}

/// Packs parts and bursts side by side into one write.
#[derive(Debug)]
pub(super) struct Packer {
    bytes: Vec<u8>,
    /// PIPE_BUF: `bytes` never exceeds it.
    limit: usize,
    mode: Mode,
    /// Whether payloads become lines, for people: without headers and control bytes.
    prints: bool,
    /// Whether `bytes` ends with the end of a message or burst.
    ends_whole: bool,
    /// Whether the text that was printed last has not ended its line.
    in_line: bool,
    /// How much of the pipe's last page the writes so far have filled, if there is no other writer.
    page: usize,
}

impl Packer {
    pub(super) fn new(limit: usize, mode: Mode, prints: bool) -> Packer {
        let bytes = Vec::with_capacity(limit);
        Packer { bytes, limit, mode, prints, ends_whole: true, in_line: false, page: 0 }
    }

    pub(super) fn prints(&self) -> bool {
        self.prints
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether control bytes mark where a burst begins and ends.
    pub(super) fn opens_bursts(&self) -> bool {
        self.mode == Mode::Mixed && !self.prints
    }

    /// Applies to later parts.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The largest data of one part.
    pub(super) fn max_part(&self) -> usize {
        self.limit - self.mode.part_overhead()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn ends_whole(&self) -> bool {
        self.ends_whole
    }

    /// The bytes have been written.
    pub(super) fn written(&mut self) {
        let len = self.bytes.len();
        self.page = if self.page + len <= self.limit { self.page + len } else { len } % self.limit;
        self.in_line = self.prints && !self.bytes.ends_with(b"\n");
        self.clear();
    }

    /// The first `len` bytes, at least 1, have been printed.
    pub(super) fn printed(&mut self, len: usize) {
        self.in_line = self.bytes[len - 1] != b'\n';
        self.bytes.drain(..len);
    }

    /// Leaves the end of a line that was printed in part, if any, to another writer.
    pub(super) fn forget_line(&mut self) {
        self.in_line = false;
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends_whole = true;
    }

    /// Adds the next part of `payload`; returns false if it should go into the next write instead.
    /// An empty packer always takes it.
    pub(super) fn push_part(&mut self, writer: WriterKey, payload: &[u8], cut: &mut Cut) -> bool {
        let left = payload.len() - cut.off;
        let Some(len) = (if cut.has_begun() { self.later_part(left) } else { self.first_part(left) }) else {
            return false;
        };
        let following = (left - len).div_ceil(self.max_part()) as u32;
        if self.prints {
            self.print(&payload[cut.off..cut.off + len], !cut.has_begun(), following == 0);
            (cut.off, cut.next_id, cut.done) = (cut.off + len, Some(0), following == 0);
            return true;
        }
        debug_assert!(cut.next_id.is_none_or(|id| id == following), "later parts are full except the last");
        let first = !cut.has_begun();
        if first {
            cut.check = Check::of(payload).number();
        }
        let header = PartHeader::new(writer, cut.check, cut.compressed, first, following, len as u32);
        if self.mode == Mode::Mixed {
            self.bytes.extend_from_slice(&[SHIFT_OUT, DATA_LINK_ESCAPE]);
        }
        self.bytes.extend_from_slice(&header.to_bytes());
        self.bytes.extend_from_slice(&payload[cut.off..cut.off + len]);
        if self.mode == Mode::Mixed {
            self.bytes.push(SHIFT_IN);
        }
        cut.off += len;
        cut.next_id = following.checked_sub(1).or(Some(0));
        cut.done = following == 0;
        self.ends_whole = cut.done;
        true
    }

    /// The data of the first part of `left` bytes; `None` if it should go into the next write.
    ///
    /// A payload that fits in one part is never divided. A longer message begins with a part that
    /// fills the available space, unless that costs an additional part. The space is beside the
    /// parts that are in this write already, or on the last page of the pipe. A pipe is a row of
    /// pages; a write that fits beside the one before it shares its page, and a page costs the
    /// kernel more than a write does. If the guess about the page is wrong (another writer, a
    /// reader that took it), nothing is lost: any first part is correct.
    fn first_part(&self, left: usize) -> Option<usize> {
        let (max, overhead) = (self.max_part(), self.mode.part_overhead());
        let space = self.limit.checked_sub(self.bytes.len() + overhead);
        if space.is_some_and(|space| left <= space) {
            return Some(left);
        }
        let fill = if self.is_empty() { (self.limit - self.page).checked_sub(overhead) } else { space };
        let fills = |fill: &usize| left > max && 1 + (left - fill).div_ceil(max) == left.div_ceil(max);
        fill.filter(fills).or(self.is_empty().then_some(max))
    }

    fn later_part(&self, left: usize) -> Option<usize> {
        self.is_empty().then_some(left.min(self.max_part()))
    }

    /// Adds a burst; returns false if there is no space beside what is already packed.
    pub(super) fn push_burst(&mut self, data: &[u8]) -> bool {
        let newline = usize::from(self.prints && !data.ends_with(b"\n"));
        // A burst that fits into a pipe is printed as well, where no write is too long: its newline
        // does not count.
        let uncounted = if self.is_empty() { newline } else { 0 };
        let len = data.len() + newline + self.mode.burst_overhead();
        if self.bytes.len() + len - uncounted > self.limit {
            return false;
        }
        if self.prints {
            self.print(data, true, true);
            return true;
        }
        if self.mode == Mode::Mixed {
            self.bytes.push(SHIFT_OUT);
        }
        self.bytes.extend_from_slice(data);
        if self.mode == Mode::Mixed {
            self.bytes.push(SHIFT_IN);
        }
        self.ends_whole = true;
        true
    }

    /// Adds text, and a line end after the last piece. Only an empty message has an empty last
    /// piece: text in front of it belongs to another message. If the line of a message that was
    /// given up has no end, the next message ends it.
    fn print(&mut self, text: &[u8], is_first: bool, is_last: bool) {
        if is_first && self.in_line && self.bytes.is_empty() {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(text);
        if is_last && !text.ends_with(b"\n") {
            self.bytes.push(b'\n');
        }
        self.ends_whole = is_last;
    }
}

/// Round trip of header and cut over arbitrary bytes, for the fuzzer: packed payloads are unpacked
/// again, in order, in writes that keep the limit, with ids that descend to 0. With `each`, every
/// message ends a write, as a single `send` does.
#[cfg(any(test, fuzzing))]
pub(super) fn check_round_trip(limit: usize, mode: Mode, each: bool, payloads: &[&[u8]]) {
    use super::frame::PartKind;

    let writer = WriterKey { pid: 7, tid: 70_000 };
    let mut packer = Packer::new(limit, mode, false);
    let (mut writes, mut unpacked) = (Vec::new(), Vec::new());
    for payload in payloads {
        let mut cut = Cut::new(false);
        while !cut.is_done() {
            if !packer.push_part(writer, payload, &mut cut) {
                assert!(!packer.is_empty(), "an empty packer takes a part");
                writes.push(packer.bytes().to_vec());
                packer.written();
            }
        }
        if each {
            writes.push(packer.bytes().to_vec());
            packer.written();
        }
    }
    writes.push(packer.bytes().to_vec());
    let (mut message, mut expected) = (Vec::<u8>::new(), None);
    for write in &writes {
        assert!(write.len() <= limit, "a write keeps the limit");
        let mut rest = &write[..];
        while !rest.is_empty() {
            let header = PartHeader::from_bytes(&rest[mode.prefix()..]).expect("a header");
            assert_eq!(PartHeader::from_bytes(&header.to_bytes()), Some(header));
            let (part, after) = rest.split_at(mode.part_overhead() + header.len as usize);
            assert_eq!(header.writer(), writer);
            let kind = match (expected, header.following()) {
                (None, 0) => PartKind::Only,
                (None, _) => PartKind::First,
                (Some(_), _) => PartKind::Later,
            };
            assert_eq!(header.kind(), kind);
            assert!(expected.is_none_or(|id| id == header.following()), "ids descend by one");
            assert_eq!(header.id == 0, header.following() == 0, "to Atomic::Pipe, 0 is the last");
            message.extend_from_slice(&part[mode.prefix() + PartHeader::LEN..][..header.len as usize]);
            expected = header.following().checked_sub(1);
            if expected.is_none() {
                assert!(header.check().is_some() && header.vouches_for(&message));
                unpacked.push(std::mem::take(&mut message));
            }
            rest = after;
        }
    }
    assert_eq!(expected, None, "the last message is whole");
    assert_eq!(unpacked, payloads, "every payload comes out as it went in");
}

#[cfg(test)]
mod tests {
    use super::super::frame::parts_of;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packer_puts_small_messages_whole_into_one_write() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Mixed, false);
        for _ in 0..4 {
            assert!(packer.push_part(writer, &[0; 890], &mut Cut::new(false)));
        }
        let mut fifth = Cut::new(false);
        assert!(!packer.push_part(writer, &[0; 890], &mut fifth));
        assert!(!fifth.has_begun());
        assert_eq!(packer.bytes().len(), 4 * (890 + 19));
    }

    #[test]
    fn printing_packer_writes_one_line_per_message() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        for mode in [Mode::Plain, Mode::Mixed] {
            let mut packer = Packer::new(4096, mode, true);
            for payload in [&b"a"[..], b"", b"b\n", b"", b""] {
                assert!(packer.push_part(writer, payload, &mut Cut::new(false)));
            }
            assert!(packer.push_burst(b"") && packer.push_burst(b"c"));
            assert_eq!(packer.bytes(), b"a\n\nb\n\n\n\nc\n");
        }
    }

    #[test]
    fn printing_packer_takes_a_full_burst_and_its_newline() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Plain, true);
        assert!(packer.push_burst(&[b'x'; 4096]), "a pipe takes as many");
        assert_eq!(packer.bytes().len(), 4097);
        assert!(!packer.push_part(writer, b"next", &mut Cut::new(false)));
        packer.written();
        assert!(packer.push_burst(b"a"));
        assert!(!packer.push_burst(&[b'x'; 4094]), "not beside another");
        assert!(packer.push_burst(&[b'x'; 4093]));
        assert_eq!(packer.bytes().len(), 4096);
    }

    #[test]
    fn packer_never_adds_a_part_to_fill_space() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        for (before, len) in
            [(0, 4081), (100, 4081), (100, 8160), (4000, 8161), (4079, 9000), (2000, 6000), (2000, 7000)]
        {
            let mut packer = Packer::new(4096, Mode::Plain, false);
            packer.push_part(writer, &vec![0; before], &mut Cut::new(false));
            if len % 2 == 0 {
                packer.written();
            }
            let (payload, mut cut, mut parts) = (vec![1; len], Cut::new(false), 0);
            while !cut.is_done() {
                if packer.push_part(writer, &payload, &mut cut) {
                    parts += 1;
                } else {
                    packer.written();
                }
            }
            assert_eq!(Some(parts), parts_of(len, packer.max_part()), "{len} bytes after {before}");
        }
    }

    #[test]
    fn packer_fills_remaining_space_with_a_long_message() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Plain, false);
        assert!(packer.push_part(writer, &[0; 1000], &mut Cut::new(false)));
        let mut cut = Cut::new(false);
        assert!(packer.push_part(writer, &[1; 9000], &mut cut));
        assert_eq!(packer.bytes().len(), 4096);
        assert_eq!(cut.next_id, Some(1), "9000 bytes: 3064 here, 4080 and 1856 to come");
        packer.written();
        assert!(!packer.is_empty() || packer.push_part(writer, &[1; 9000], &mut cut));
        assert!(!packer.push_part(writer, &[1; 9000], &mut cut), "a later part has a write of its own");
    }

    proptest! {
        #[test]
        fn round_trip(
            limit in 512usize..5000,
            mixed: bool,
            each: bool,
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12_000), 0..8),
        ) {
            let mode = if mixed { Mode::Mixed } else { Mode::Plain };
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            check_round_trip(limit, mode, each, &payloads);
        }
    }
}
