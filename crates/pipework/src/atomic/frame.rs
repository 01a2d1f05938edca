//! The unit of the wire: a part is a header and data. Pure: bytes in, bytes out.
//!
//! [`Header`] is the 16 bytes in front of a part's data, and what they say. [`Packer`] lays whole parts and bursts into one write of at most PIPE_BUF
//! bytes. [`Cut`] says where a payload is divided. `WIRE.md` is the normative text.

use super::check::Check;
use super::item::WriterKey;

/// Opens a burst or a part in mixed mode.
pub(super) const SHIFT_OUT: u8 = 0x0E;
/// Closes it.
pub(super) const SHIFT_IN: u8 = 0x0F;
/// Directly after [`SHIFT_OUT`]: what follows is a part, not a burst.
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
            Mode::Plain => Header::LEN,
            Mode::Mixed => 2 + Header::LEN + 1,
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

/// What stands in front of a part's data, as it lies on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) id: u32,
    /// Bytes of data.
    pub(super) len: u32,
}

/// What a part is of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// It is the whole message.
    Only,
    /// The first of several.
    First,
    /// One that comes after another.
    Later,
    /// Atomic::Pipe does not say.
    Untold,
}

/// The smallest number that a writer of this library uses beside the process number. Smaller ones are Atomic::Pipe's: threads.
const LEAST_NONCE: i32 = 1 << 16;
/// In the number beside the process number: the message is in several parts.
const SEVERAL: i32 = 1;
/// In the number beside the process number: the payload is a zstd frame.
const COMPRESSED: i32 = 1 << 30;
/// In the id of a part: it is the first of several.
const FIRST: u32 = 1 << 31;
/// So many bits of the first number are the process number; Linux has none above. The others are the check.
const PID_BITS: u32 = 22;

impl Header {
    pub(super) const LEN: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        bytes[0..4].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.id.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.len.to_ne_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`; `None` if they are too few.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Header> {
        let word = |at: usize| -> [u8; 4] { [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]] };
        (bytes.len() >= Header::LEN).then(|| Header {
            pid: i32::from_ne_bytes(word(0)),
            tid: i32::from_ne_bytes(word(4)),
            id: u32::from_ne_bytes(word(8)),
            len: u32::from_ne_bytes(word(12)),
        })
    }

    /// Whether it may stand in front of a part with at most `max` bytes of data. No process has the number 0, and zeros are a frequent
    /// sort of damage.
    pub(super) fn is_possible(self, max: usize) -> bool {
        self.len as usize <= max && self.pid != 0
    }

    /// Whether it may do so between bytes of any sort that a program prints: more is asked of it there.
    pub(super) fn is_possible_in_text(self, max: usize) -> bool {
        let is_placed = self.kind() != PartKind::Later || self.tid & SEVERAL != 0 && self.id < FIRST;
        self.is_possible(max) && self.writer().pid != 0 && is_placed
    }

    fn is_ours(self) -> bool {
        self.tid >= LEAST_NONCE
    }

    /// The writer, without what its numbers say of the message.
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

    /// The check of the message's payload, if its writer has made one.
    pub(super) fn check(self) -> Option<Check> {
        Check::from_number(if self.is_ours() { self.pid as u32 >> PID_BITS } else { 0 })
    }

    /// Whether it is of the same message as `other`, as far as can be told.
    pub(super) fn is_of_the_same(self, other: Header) -> bool {
        (self.pid, self.tid) == (other.pid, other.tid)
    }

    /// Whether `next` is the part after this one.
    pub(super) fn is_before(self, next: Header) -> bool {
        matches!(next.kind(), PartKind::Later | PartKind::Untold)
            && self.is_of_the_same(next)
            && self.following().checked_sub(1) == Some(next.following())
    }

    /// Whether `payload`, a whole message, is what the writer sent, as far as can be told.
    pub(super) fn vouches_for(self, payload: &[u8]) -> bool {
        self.check().is_none_or(|check| check == Check::of(payload))
    }

    /// Whether a writer of this library may have written it at the beginning of a stream, with at most `max` bytes of data: far
    /// less than any sixteen bytes.
    fn is_likely(self, max: usize) -> bool {
        // Rows of small numbers are no rarity: a nonce is no small number.
        self.is_ours()
            && self.begins_message()
            && self.is_possible(max)
            && (self.len > 0 || self.vouches_for(&[]))
    }

    /// Whether it may be the header of the first part of a message, where nothing else is known of its
    /// writer: what a program prints holds all sorts of bytes.
    pub(super) fn begins_message(self) -> bool {
        // Linux has no larger process numbers, Atomic::Pipe no negative threads, and a message of 4 GiB no more parts.
        self.kind() != PartKind::Later
            && (1..=1 << PID_BITS).contains(&self.writer().pid)
            && self.tid >= 0
            && self.following() < 1 << 20
    }
}

impl WriterKey {
    /// The key of a writer of this library; `None` if the random bits are of no use.
    pub(super) fn draw(pid: i32, bits: u32) -> Option<WriterKey> {
        let tid = (bits >> 1) as i32 & !(SEVERAL | COMPRESSED);
        (tid >= LEAST_NONCE).then_some(WriterKey { pid: pid & ((1 << PID_BITS) - 1), tid })
    }

    /// Another one, where there are no random bits.
    pub(super) fn next(self, pid: i32) -> WriterKey {
        let tid = ((self.tid + 2) & !COMPRESSED).max(LEAST_NONCE);
        WriterKey { pid: pid & ((1 << PID_BITS) - 1), tid }
    }
}

/// The first bytes of a stream, which tell a wrong mode from text. Text that these rules fit is
/// hardly ever met: the last two of its sixteen bytes are zero.
#[derive(Debug)]
pub(super) struct Opening {
    bytes: [u8; Header::LEN],
    len: usize,
}

impl Opening {
    pub(super) const NEW: Opening = Opening { bytes: [0; Header::LEN], len: 0 };

    /// The next bytes of the stream. True once: when they have become enough to see that a writer
    /// of this library sends in plain mode.
    #[inline]
    pub(super) fn shows_plain(&mut self, read: &[u8], limit: usize) -> bool {
        self.len < Header::LEN && self.shows_plain_now(read, limit)
    }

    fn shows_plain_now(&mut self, read: &[u8], limit: usize) -> bool {
        let len = read.len().min(Header::LEN - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&read[..len]);
        self.len += len;
        let whole = Header::from_bytes(&self.bytes[..self.len]);
        whole.is_some_and(|header| header.is_likely(limit - Mode::Plain.part_overhead()))
    }
}

/// Whether these bytes begin as a part in mixed mode does.
pub(super) fn shows_mixed(bytes: &[u8], limit: usize) -> bool {
    let header = bytes.strip_prefix(&[SHIFT_OUT, DATA_LINK_ESCAPE]).and_then(Header::from_bytes);
    header.is_some_and(|header| header.is_likely(limit - Mode::Mixed.part_overhead()))
}

/// How far a payload has been cut into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the payload in parts so far.
    pub(super) off: usize,
    /// The id of the next part; `None` before the first, whose size decides how many there are.
    pub(super) next_id: Option<u32>,
    /// Of the whole payload; known with the first part.
    check: u32,
    /// Whether that is a zstd frame; decided with the first part.
    compressed: bool,
    done: bool,
}

impl Cut {
    pub(super) const fn new() -> Cut {
        Cut { off: 0, next_id: None, check: 0, compressed: false, done: false }
    }

    /// Whether the last part has been cut.
    pub(super) fn is_done(self) -> bool {
        self.done
    }

    /// The same place, counted in what is left of the payload.
    pub(super) fn of_the_rest(self) -> Cut {
        Cut { off: 0, ..self }
    }

    pub(super) fn has_begun(self) -> bool {
        self.next_id.is_some()
    }
}

/// How many parts a payload of `len` bytes takes if each holds at most `max` bytes: at least one. `None` if that is more than ids
/// can count.
pub(super) fn parts_of(len: usize, max: usize) -> Option<u32> {
    u32::try_from(len.div_ceil(max).max(1)).ok().filter(|parts| *parts <= FIRST)
}

/// Lays parts and bursts side by side into one write.
#[derive(Debug)]
pub(super) struct Packer {
    bytes: Vec<u8>,
    /// PIPE_BUF: the bytes never outgrow it.
    limit: usize,
    mode: Mode,
    /// Whether payloads become lines, for people: without headers and control bytes.
    prints: bool,
    /// Whether the payloads are zstd frames.
    compressed: bool,
    /// Whether the last thing in `bytes` ends a message or burst.
    ends_whole: bool,
    /// How much of the pipe's last page the writes so far have filled, if nobody else writes.
    page: usize,
}

impl Packer {
    pub(super) fn new(limit: usize, mode: Mode, prints: bool, compressed: bool) -> Packer {
        Packer {
            bytes: Vec::with_capacity(limit),
            limit,
            mode,
            prints,
            compressed,
            ends_whole: true,
            page: 0,
        }
    }

    pub(super) fn prints(&self) -> bool {
        self.prints
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether control bytes tell where a burst begins and ends.
    pub(super) fn opens_bursts(&self) -> bool {
        self.mode == Mode::Mixed && !self.prints
    }

    /// For the parts from now on.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// For the messages from now on.
    pub(super) fn set_compressed(&mut self, compressed: bool) {
        self.compressed = compressed;
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
        self.clear();
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends_whole = true;
    }

    /// Adds the next part of `payload`; false if it should go into the next write instead. An empty packer always takes it.
    pub(super) fn push_part(&mut self, writer: WriterKey, payload: &[u8], cut: &mut Cut) -> bool {
        let left = payload.len() - cut.off;
        let Some(len) = (if cut.has_begun() { self.later_part(left) } else { self.first_part(left) }) else {
            return false;
        };
        let following = (left - len).div_ceil(self.max_part()) as u32;
        if self.prints {
            self.print(&payload[cut.off..cut.off + len], following == 0);
            (cut.off, cut.next_id, cut.done) = (cut.off + len, Some(0), following == 0);
            return true;
        }
        debug_assert!(cut.next_id.is_none_or(|id| id == following), "later parts are full but for the last");
        let first = !cut.has_begun();
        if first {
            cut.check = Check::of(payload).number();
            cut.compressed = self.compressed;
        }
        let compressed = if cut.compressed { COMPRESSED } else { 0 };
        let several = if first && following == 0 { 0 } else { SEVERAL };
        let mark = if first && following > 0 { FIRST } else { 0 };
        let header = Header {
            pid: (writer.pid as u32 & ((1 << PID_BITS) - 1) | cut.check << PID_BITS) as i32,
            tid: writer.tid | several | compressed,
            id: following | mark,
            len: len as u32,
        };
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
    /// What fits in one part is never divided. A longer message begins with a part that fills what space there is, unless that takes a
    /// part more: beside what is in this write already, or on the last page of the pipe. A pipe is a row of pages; a write that fits
    /// beside the one before it shares its page, and a page costs the kernel more than a write does. Where the guess about the
    /// page is wrong (another writer, a reader that took it), nothing is lost: any first part will do.
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

    /// Adds a burst; false if there is no space beside what is there.
    pub(super) fn push_burst(&mut self, data: &[u8]) -> bool {
        let newline = usize::from(self.prints && !data.ends_with(b"\n"));
        // What fits into a pipe is printed as well, where no write is too long: its newline does not count.
        let uncounted = if self.is_empty() { newline } else { 0 };
        let len = data.len() + newline + self.mode.burst_overhead();
        if self.bytes.len() + len - uncounted > self.limit {
            return false;
        }
        if self.prints {
            self.print(data, true);
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

    /// Adds text, and what ends a line behind the last of it. Only an empty message has an empty last piece: what stands in front
    /// of it is another's.
    fn print(&mut self, text: &[u8], is_last: bool) {
        self.bytes.extend_from_slice(text);
        if is_last && !text.ends_with(b"\n") {
            self.bytes.push(b'\n');
        }
        self.ends_whole = is_last;
    }
}

/// Round trip of header and cut over arbitrary bytes, for the fuzzer: whatever is packed is unpacked again, in order, in writes that
/// keep the limit, with ids that descend to 0. With `each`, every message ends a write, as a single `send` does.
#[cfg(any(test, fuzzing))]
pub(super) fn check_round_trip(limit: usize, mode: Mode, each: bool, payloads: &[&[u8]]) {
    let writer = WriterKey { pid: 7, tid: 70_000 };
    let mut packer = Packer::new(limit, mode, false, false);
    let (mut writes, mut unpacked) = (Vec::new(), Vec::new());
    for payload in payloads {
        let mut cut = Cut::new();
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
            let header = Header::from_bytes(&rest[mode.prefix()..]).expect("a header");
            assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
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
            message.extend_from_slice(&part[mode.prefix() + Header::LEN..][..header.len as usize]);
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_parts() {
        assert_eq!(parts_of(0, 4080), Some(1));
        assert_eq!(parts_of(4080, 4080), Some(1));
        assert_eq!(parts_of(4081, 4080), Some(2));
        assert_eq!(parts_of(usize::MAX, 1), None);
    }

    #[test]
    fn small_messages_share_a_write_undivided() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Mixed, false, false);
        for _ in 0..4 {
            assert!(packer.push_part(writer, &[0; 890], &mut Cut::new()));
        }
        let mut fifth = Cut::new();
        assert!(!packer.push_part(writer, &[0; 890], &mut fifth));
        assert!(!fifth.has_begun());
        assert_eq!(packer.bytes().len(), 4 * (890 + 19));
    }

    #[test]
    fn what_is_printed_has_a_line_for_each() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        for mode in [Mode::Plain, Mode::Mixed] {
            let mut packer = Packer::new(4096, mode, true, false);
            for payload in [&b"a"[..], b"", b"b\n", b"", b""] {
                assert!(packer.push_part(writer, payload, &mut Cut::new()));
            }
            assert!(packer.push_burst(b"") && packer.push_burst(b"c"));
            assert_eq!(packer.bytes(), b"a\n\nb\n\n\n\nc\n");
        }
    }

    #[test]
    fn a_full_burst_and_its_newline_are_printed() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Plain, true, false);
        assert!(packer.push_burst(&[b'x'; 4096]), "a pipe takes as much");
        assert_eq!(packer.bytes().len(), 4097);
        assert!(!packer.push_part(writer, b"next", &mut Cut::new()));
        packer.written();
        assert!(packer.push_burst(b"a"));
        assert!(!packer.push_burst(&[b'x'; 4094]), "not beside another");
        assert!(packer.push_burst(&[b'x'; 4093]));
        assert_eq!(packer.bytes().len(), 4096);
    }

    #[test]
    fn filling_space_never_takes_a_part_more() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        for (before, len) in
            [(0, 4081), (100, 4081), (100, 8160), (4000, 8161), (4079, 9000), (2000, 6000), (2000, 7000)]
        {
            let mut packer = Packer::new(4096, Mode::Plain, false, false);
            packer.push_part(writer, &vec![0; before], &mut Cut::new());
            if len % 2 == 0 {
                packer.written();
            }
            let (payload, mut cut, mut parts) = (vec![1; len], Cut::new(), 0);
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
    fn a_long_message_fills_the_space_that_is_left() {
        let writer = WriterKey { pid: 1, tid: 70_000 };
        let mut packer = Packer::new(4096, Mode::Plain, false, false);
        assert!(packer.push_part(writer, &[0; 1000], &mut Cut::new()));
        let mut cut = Cut::new();
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

        #[test]
        fn any_header_survives(pid: i32, tid: i32, id: u32, len: u32) {
            let header = Header { pid, tid, id, len };
            prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
        }
    }
}
