//! The offset of everything in a segment. No other file knows an offset; the byte tables are in
//! SEGMENT.md. Pure.

use crate::error::{Error, ErrorKind, Result};

/// The sizes of a segment. They never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many calls can be in progress at the same time.
    pub slots: u32,
    /// Cells of the ring of waiting requests, a power of two.
    pub queue: u32,
    /// Bytes of the largest request.
    pub request_bytes: u32,
    /// Bytes of the largest reply.
    pub reply_bytes: u32,
    /// How many clients and servers can be attached at the same time.
    pub members: u32,
    /// How many [blobs](super::super::Blob) a message can carry.
    pub blobs: u32,
}

/// The largest number of slots of a segment.
pub const MAX_SLOTS: u32 = 1 << 20;
/// The largest number of cells of its ring.
pub const MAX_QUEUE: u32 = 1 << 22;
/// Bytes of the largest request or reply that a segment can be made for.
pub const MAX_PAYLOAD: u32 = 1 << 30;
/// The largest number of clients and servers that can be attached to a segment.
pub const MAX_MEMBERS: u32 = u16::MAX as u32;
// `queue` is a power of two, and at least twice `slots`.
const _: () = assert!(MAX_QUEUE.is_power_of_two() && MAX_SLOTS <= MAX_QUEUE / 2);
/// The largest number of blobs that a message can carry.
pub const MAX_BLOBS: u32 = 8;
const MAX_LEN: u64 = 1 << 46;

const MAGIC: [u8; 8] = *b"pipework";
const FORMAT: u32 = 5;
/// The only flag: pages that hold only payloads are allocated when they are first written.
const SPARSE: u32 = 1;

/// Bytes of the header, and the offset of the first member.
pub(crate) const HEADER: usize = 4096;
/// Bytes of the header that never change. Their checksum is the last of them.
pub(crate) const FIXED: usize = 128;
/// The offset of the checksum. The file ends with the same number.
pub(crate) const CHECKSUM_AT: usize = FIXED - 8;
/// The offset of the counters of the header.
pub(crate) const COUNTERS_AT: usize = 128;
pub(crate) const HEAD_AT: usize = 192;
pub(crate) const TAIL_AT: usize = 256;
pub(crate) const REQUESTS_AT: usize = 320;
pub(crate) const SPACE_AT: usize = 384;
pub(crate) const FREED_AT: usize = SPACE_AT + 8;
pub(crate) const FORGOTTEN_AT: usize = SPACE_AT + 16;
pub(crate) const CELLS_AT: usize = 448;
/// The path at which the segment was made: its length, the checksum of the rest, and its bytes.
pub(crate) const BIRTHPLACE_AT: usize = 512;
const PATH_AT: usize = 16;
/// Bytes of the longest path that the header holds.
const MAX_PATH: usize = HEADER - BIRTHPLACE_AT - PATH_AT;
/// Bytes of the birthplace.
pub(crate) const BIRTHPLACE: usize = PATH_AT + MAX_PATH;

/// Bytes of a member.
pub(crate) const MEMBER: usize = 128;
/// Bytes of a cell of the ring.
const CELL: usize = 8;
/// Bytes of a slot in front of its request.
pub(crate) const SLOT_HEAD: usize = 32;
/// Bytes of a handle: how a slot names a blob.
pub(crate) const HANDLE: usize = 32;
/// Bytes that are copied out together, even if fewer are asked for.
pub(crate) const SMALL: usize = 64;
/// Bytes that the processor's caches transfer together: a cache line.
const LINE: usize = 64;
/// Bytes of a page, or of a part of a larger page.
const PAGE: usize = 4096;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a segment has up to 2^46 bytes, and so do its offsets");

impl Geometry {
    /// Bytes of a slot for one direction.
    #[inline]
    pub(crate) fn bytes(&self, direction: Direction) -> usize {
        match direction {
            Direction::Request => self.request_bytes as usize,
            Direction::Reply => self.reply_bytes as usize,
        }
    }

    /// Refuses sizes that cannot be built.
    pub(crate) fn checked(self, op: &'static str) -> Result<Geometry> {
        let ok = (1..=MAX_SLOTS).contains(&self.slots)
            && (1..=MAX_MEMBERS).contains(&self.members)
            && self.queue.is_power_of_two()
            && (2 * self.slots..=MAX_QUEUE).contains(&self.queue)
            && self.request_bytes <= MAX_PAYLOAD
            && self.reply_bytes <= MAX_PAYLOAD
            && self.blobs <= MAX_BLOBS
            && Layout::new(self).len as u64 <= MAX_LEN;
        if ok { Ok(self) } else { Err(Error::new(ErrorKind::Invalid, op)) }
    }
}

/// The offsets that follow from a geometry, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    pub(crate) ring: usize,
    /// The offset of the first slot, with its handles.
    slots: usize,
    stride: usize,
    /// Bytes of the handles in front of the head of a slot.
    handles: usize,
    /// Offset of the reply inside its slot.
    reply: usize,
    pub(crate) len: usize,
}

impl Layout {
    pub(crate) fn new(geometry: Geometry) -> Layout {
        let ring = HEADER + geometry.members as usize * MEMBER;
        let slots = (ring + geometry.queue as usize * CELL).next_multiple_of(LINE);
        let (request_bytes, reply_bytes) = (geometry.request_bytes as usize, geometry.reply_bytes as usize);
        let handles = (2 * handles_of(&geometry) * HANDLE).next_multiple_of(LINE);
        let reply = in_few_lines(SLOT_HEAD + request_bytes, reply_bytes);
        let stride = handles + (reply + reply_bytes).next_multiple_of(LINE);
        let len = slots + geometry.slots as usize * stride + LINE;
        Layout { geometry, ring, slots, stride, handles, reply, len }
    }

    /// The offset of the last number of the file. A process that cuts the file short removes that
    /// number.
    pub(crate) fn end(&self) -> usize {
        self.len - 8
    }

    /// Whether there are pages that hold only payloads.
    pub(crate) fn can_be_sparse(&self) -> bool {
        self.stride > PAGE
    }

    /// The areas of a sparse segment that hold words.
    pub(crate) fn words(&self) -> impl Iterator<Item = Area> {
        let area = |at, len| Area { at, len, space: len };
        let heads = (0..self.geometry.slots)
            .filter_map(move |idx| Some(area(self.slot(idx)? - self.handles, self.handles + SLOT_HEAD)));
        std::iter::once(area(0, self.slots)).chain(heads).chain(std::iter::once(area(self.len - LINE, LINE)))
    }

    /// The offset of member `number`, counted from 1; also the byte that it locks.
    pub(crate) fn member(&self, number: u16) -> Option<usize> {
        let idx = usize::from(number).checked_sub(1)?;
        (idx < self.geometry.members as usize).then_some(HEADER + idx * MEMBER)
    }

    pub(crate) fn slot(&self, idx: u32) -> Option<usize> {
        (idx < self.geometry.slots).then_some(self.slots + idx as usize * self.stride + self.handles)
    }

    /// The offset of the handle with this number of a slot's request or reply. The first handle is for a
    /// message that is in a blob itself.
    pub(crate) fn handle(&self, idx: u32, direction: Direction, number: usize) -> Option<usize> {
        let count = handles_of(&self.geometry);
        let before = if matches!(direction, Direction::Request) { number } else { count + number };
        let first = self.slot(idx)? - self.handles;
        (number < count).then_some(first + before * HANDLE)
    }

    pub(crate) fn payload(&self, idx: u32, direction: Direction) -> Option<Area> {
        let (slot, Geometry { request_bytes, reply_bytes, .. }) = (self.slot(idx)?, self.geometry);
        let (at, len) = match direction {
            Direction::Request => (SLOT_HEAD, request_bytes),
            Direction::Reply => (self.reply, reply_bytes),
        };
        Some(Area { at: slot + at, len: len as usize, space: self.stride - self.handles - at })
    }
}

/// How many handles a slot has space for, in each direction.
fn handles_of(geometry: &Geometry) -> usize {
    geometry.blobs as usize + 1
}

/// The offset of a reply after `at`: `at` itself if the reply ends in the same line, otherwise the
/// next line. Each line of a payload has to come from the other side's cache.
fn in_few_lines(at: usize, bytes: usize) -> usize {
    let at = at.next_multiple_of(4);
    if at % LINE + bytes <= LINE { at } else { at.next_multiple_of(LINE) }
}

/// Which payload of a slot.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Request,
    Reply,
}

/// The area of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) at: usize,
    /// Bytes of the largest payload.
    pub(crate) len: usize,
    /// Bytes from `at` to the end of the slot, which may be read as well.
    pub(crate) space: usize,
}

impl Area {
    /// How many of its bytes have allocated pages once its first `len` have them.
    pub(crate) fn reserved(&self, len: usize) -> usize {
        ((self.at + len).next_multiple_of(PAGE) - self.at).min(self.len)
    }
}

/// The contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) geometry: Geometry,
    pub(crate) sparse: bool,
    /// Device and inode of the file when it was made; zeros in a segment that may be in any file.
    pub(crate) identity: (u64, u64),
    pub(crate) random: u64,
}

/// The bytes of the header that never change.
pub(crate) fn encode(header: &SegmentHeader) -> [u8; FIXED] {
    let SegmentHeader { geometry, sparse, identity, random } = header;
    let mut bytes = [0; FIXED];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &MAGIC);
    put(8, &FORMAT.to_le_bytes());
    put(16, &geometry.slots.to_le_bytes());
    put(20, &geometry.queue.to_le_bytes());
    put(24, &geometry.request_bytes.to_le_bytes());
    put(28, &geometry.reply_bytes.to_le_bytes());
    put(32, &geometry.members.to_le_bytes());
    put(36, &(if *sparse { SPARSE } else { 0 }).to_le_bytes());
    put(40, &(Layout::new(*geometry).len as u64).to_le_bytes());
    put(48, &random.to_le_bytes());
    put(56, &identity.0.to_le_bytes());
    put(64, &identity.1.to_le_bytes());
    put(72, &geometry.blobs.to_le_bytes());
    let checksum = fnv1a(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes of the birthplace; `None` if the path is too long for it.
pub(crate) fn encode_birthplace(path: &[u8], random: u64) -> Option<Vec<u8>> {
    (1..=MAX_PATH).contains(&path.len()).then(|| {
        let len = (path.len() as u64).to_le_bytes();
        [&len, &(fnv1a(path) ^ random).to_le_bytes(), path].concat()
    })
}

/// The path in a birthplace. `None` if there is none, or a peer that breaks the rules has changed it.
pub(crate) fn decode_birthplace(bytes: &[u8], random: u64) -> Option<&[u8]> {
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let len = usize::try_from(u64_at(0)?).ok().filter(|len| (1..=MAX_PATH).contains(len))?;
    let path = bytes.get(PATH_AT..PATH_AT + len)?;
    (u64_at(8)? == fnv1a(path) ^ random && path[0] == b'/' && !path.contains(&0)).then_some(path)
}

/// The checksum of a header.
pub(crate) fn mark(header: &[u8; FIXED]) -> u64 {
    u64::from_le_bytes(header[CHECKSUM_AT..].try_into().expect("eight bytes"))
}

/// Decodes the header, and refuses any that this build did not write. `len` is the length of the
/// file.
pub(crate) fn decode(bytes: &[u8; FIXED], len: u64) -> Result<SegmentHeader> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let refused = |kind, op| Err(Error::new(kind, op));
    // Text may start with the magic, as the messages of the command do. The checksum has the same
    // offset in every format.
    let is_sound = mark(bytes) == fnv1a(&bytes[..CHECKSUM_AT]);
    match (bytes[..8] == MAGIC, u32_at(8) == FORMAT) {
        (true, true) if is_sound => {}
        (true, true) => return refused(ErrorKind::Corrupt, "reqrep open: damaged header"),
        (true, false) if is_sound => return refused(ErrorKind::Incompatible, "reqrep open: another format"),
        _ => return refused(ErrorKind::Incompatible, "reqrep open: not a segment"),
    }
    if u32_at(12) != 0 {
        return refused(ErrorKind::Incompatible, "reqrep open: unknown kind of payload");
    }
    let sparse = match u32_at(36) {
        0 => false,
        SPARSE => true,
        _ => return refused(ErrorKind::Incompatible, "reqrep open: unknown flags"),
    };
    let (slots, queue, members) = (u32_at(16), u32_at(20), u32_at(32));
    let (request_bytes, reply_bytes, blobs) = (u32_at(24), u32_at(28), u32_at(72));
    let geometry = Geometry { slots, queue, request_bytes, reply_bytes, members, blobs };
    const IMPOSSIBLE: &str = "reqrep open: impossible sizes";
    let Ok(geometry) = geometry.checked(IMPOSSIBLE) else {
        return refused(ErrorKind::Corrupt, IMPOSSIBLE);
    };
    let whole = Layout::new(geometry).len as u64;
    if u64_at(40) != whole || len != whole {
        return refused(ErrorKind::Corrupt, CUT);
    }
    Ok(SegmentHeader { geometry, sparse, identity: (u64_at(56), u64_at(64)), random: u64_at(48) })
}

/// The error for a file whose length is, or was for a moment, not the one that it was made with.
pub(crate) const CUT: &str = "reqrep open: cut short or grown";

/// FNV-1a with 64 bits (Fowler, Noll, Vo): against damage, not against malice.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry =
        Geometry { slots: 3, queue: 8, request_bytes: 100, reply_bytes: 50, members: 2, blobs: 0 };

    #[test]
    fn areas_of_a_layout_do_not_overlap() {
        let layout = Layout::new(GEOMETRY);
        assert_eq!((layout.member(1), layout.member(2)), (Some(4096), Some(4224)));
        assert_eq!((layout.member(0), layout.member(3)), (None, None));
        assert_eq!((layout.ring, layout.slots), (4352, 4416));
        assert_eq!((layout.reply, layout.stride, layout.len), (132, 256, 4416 + 3 * 256 + 64));
        assert_eq!((layout.slot(2), layout.slot(3)), (Some(4416 + 2 * 256 + 64), None));
        assert_eq!(layout.handle(0, Direction::Request, 0), Some(4416));
        assert_eq!(layout.handle(2, Direction::Reply, 0), Some(4416 + 2 * 256 + 32));
        assert_eq!(layout.handle(2, Direction::Reply, 1), None);
        let layout = Layout::new(Geometry { blobs: 8, ..GEOMETRY });
        assert_eq!((layout.handles, layout.slot(0)), (576, Some(4416 + 576)));
    }

    #[test]
    fn small_payloads_share_the_line_of_the_head() {
        let places = |request_bytes, reply_bytes| {
            let layout = Layout::new(Geometry { request_bytes, reply_bytes, ..GEOMETRY });
            (layout.reply, layout.stride - layout.handles)
        };
        assert_eq!(places(12, 12), (44, 64));
        assert_eq!(places(16, 16), (48, 64));
        assert_eq!(places(17, 16), (64, 128));
        assert_eq!(places(32, 64), (64, 128));
        assert_eq!(places(33, 8), (68, 128));
        assert_eq!(places(64, 64), (128, 192));
        assert_eq!(places(65, 0), (100, 128));
        assert_eq!(places(4096, 4096), (4160, 8256));
        assert_eq!(places(0, 0), (32, 64));
    }

    #[test]
    fn words_of_a_sparse_segment_cover_all_words() {
        let large = Geometry { request_bytes: 5000, ..GEOMETRY };
        let (layout, small) = (Layout::new(large), Layout::new(GEOMETRY));
        assert!(layout.can_be_sparse() && !small.can_be_sparse());
        let words: Vec<_> = layout.words().map(|area| area.at..area.at + area.len).collect();
        let in_words =
            |at: usize, len: usize| words.iter().any(|words| words.start <= at && at + len <= words.end);
        assert!(in_words(0, HEADER) && in_words(layout.ring, 8 * 8) && in_words(layout.end(), 8));
        assert!((0..3).all(|idx| layout.slot(idx).is_some_and(|at| in_words(at, SLOT_HEAD))));
        let request = layout.payload(0, Direction::Request).expect("there is one");
        assert_eq!(request.reserved(1), PAGE - request.at % PAGE);
        assert_eq!(request.reserved(5000), 5000);
    }

    #[test]
    fn decode_returns_the_encoded_header_and_refuses_every_changed_byte() {
        let said = SegmentHeader { geometry: GEOMETRY, sparse: true, identity: (8, 9), random: 7 };
        let (header, len) = (encode(&said), Layout::new(GEOMETRY).len as u64);
        assert_eq!(decode(&header, len), Ok(said));
        assert!(decode(&header, len - 1).is_err() && decode(&header, len + 1).is_err());
        for at in 0..FIXED {
            let mut damaged = header;
            damaged[at] ^= 1;
            assert!(decode(&damaged, len).is_err(), "byte {at}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_even_with_a_checksum() {
        let bad = [
            Geometry { slots: 0, ..GEOMETRY },
            Geometry { queue: 4, ..GEOMETRY },
            Geometry { queue: 12, ..GEOMETRY },
            Geometry { members: 0, ..GEOMETRY },
            Geometry { members: 1 << 16, ..GEOMETRY },
            Geometry { slots: MAX_SLOTS + 1, queue: MAX_QUEUE, ..GEOMETRY },
            Geometry { request_bytes: MAX_PAYLOAD + 1, ..GEOMETRY },
            Geometry { slots: MAX_SLOTS, queue: MAX_QUEUE, reply_bytes: MAX_PAYLOAD, ..GEOMETRY },
        ];
        for geometry in bad {
            assert!(geometry.checked("test").is_err(), "{geometry:?}");
            let header = encode(&SegmentHeader { geometry, sparse: false, identity: (0, 0), random: 0 });
            assert!(decode(&header, Layout::new(geometry).len as u64).is_err(), "{geometry:?}");
        }
    }
}
