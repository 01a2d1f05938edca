//! The offset of everything that calls have in a segment. No other file knows one; the byte tables are
//! in SEGMENT.md. Pure.

use crate::segment::header::{Area, BIRTHPLACE_AT, HANDLE, LINE, MAX_MEMBERS, OWN_AT, PAGE, Sizes};

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
    /// How many [blobs](super::Blob) a message can carry.
    pub blobs: u32,
}

/// The largest number of slots of a segment.
pub const MAX_SLOTS: u32 = 1 << 20;
/// The largest number of cells of its ring.
pub const MAX_QUEUE: u32 = 1 << 22;
/// Bytes of the largest request or reply that a segment can be made for.
pub const MAX_PAYLOAD: u32 = 1 << 30;
// `queue` is a power of two, and at least twice `slots`.
const _: () = assert!(MAX_QUEUE.is_power_of_two() && MAX_SLOTS <= MAX_QUEUE / 2);
/// The largest number of blobs that a message can carry.
pub const MAX_BLOBS: u32 = 8;

pub(crate) const REDELIVERED_AT: usize = OWN_AT;
pub(crate) const HEAD_AT: usize = 192;
pub(crate) const TAIL_AT: usize = 256;
pub(crate) const REQUESTS_AT: usize = 320;
pub(crate) const SPACE_AT: usize = 384;
pub(crate) const FREED_AT: usize = SPACE_AT + 8;
pub(crate) const FORGOTTEN_AT: usize = SPACE_AT + 16;
pub(crate) const CELLS_AT: usize = 448;
const _: () = assert!(CELLS_AT + 8 <= BIRTHPLACE_AT);

/// Bytes of a cell of the ring.
const CELL: usize = 8;
/// Bytes of a slot in front of its request.
pub(crate) const SLOT_HEAD: usize = 32;

impl Geometry {
    /// Bytes of a slot for one direction.
    #[inline]
    pub(crate) fn bytes(&self, direction: Direction) -> usize {
        match direction {
            Direction::Request => self.request_bytes as usize,
            Direction::Reply => self.reply_bytes as usize,
        }
    }

    /// Whether each size is in its range.
    fn is_possible(&self) -> bool {
        (1..=MAX_SLOTS).contains(&self.slots)
            && (1..=MAX_MEMBERS).contains(&self.members)
            && self.queue.is_power_of_two()
            && (2 * self.slots..=MAX_QUEUE).contains(&self.queue)
            && self.request_bytes <= MAX_PAYLOAD
            && self.reply_bytes <= MAX_PAYLOAD
            && self.blobs <= MAX_BLOBS
    }

    pub(crate) fn to_sizes(self) -> Sizes {
        let Geometry { slots, queue, request_bytes, reply_bytes, members, blobs } = self;
        Sizes { own: [slots, queue, request_bytes, reply_bytes], members, blobs }
    }

    pub(crate) fn from_sizes(sizes: &Sizes) -> Geometry {
        let Sizes { own: [slots, queue, request_bytes, reply_bytes], members, blobs } = *sizes;
        Geometry { slots, queue, request_bytes, reply_bytes, members, blobs }
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
    /// `None` for sizes out of range.
    pub(crate) fn checked(sizes: &Sizes) -> Option<Layout> {
        let geometry = Geometry::from_sizes(sizes);
        geometry.is_possible().then(|| Layout::new(geometry))
    }

    pub(crate) fn new(geometry: Geometry) -> Layout {
        let ring = geometry.to_sizes().behind_members();
        let slots = (ring + geometry.queue as usize * CELL).next_multiple_of(LINE);
        let (request_bytes, reply_bytes) = (geometry.request_bytes as usize, geometry.reply_bytes as usize);
        let handles = (2 * handles_of(&geometry) * HANDLE).next_multiple_of(LINE);
        let reply = in_few_lines(SLOT_HEAD + request_bytes, reply_bytes);
        let stride = handles + (reply + reply_bytes).next_multiple_of(LINE);
        let len = slots + geometry.slots as usize * stride + LINE;
        Layout { geometry, ring, slots, stride, handles, reply, len }
    }

    /// Whether there are pages that hold only payloads.
    pub(crate) fn can_be_sparse(&self) -> bool {
        self.stride > PAGE
    }

    /// The areas of a sparse segment that hold words.
    pub(crate) fn words(self) -> impl Iterator<Item = Area> {
        let head = move |idx| Some(Area::new(self.slot(idx)? - self.handles, self.handles + SLOT_HEAD));
        let [first, last] = [Area::new(0, self.slots), Area::new(self.len - LINE, LINE)];
        [first].into_iter().chain((0..self.geometry.slots).filter_map(head)).chain([last])
    }

    pub(crate) fn slot(&self, idx: u32) -> Option<usize> {
        (idx < self.geometry.slots).then_some(self.slots + idx as usize * self.stride + self.handles)
    }

    /// The offset of the handles of a slot's request or reply, and their number. The first handle is for
    /// a message that is in a blob itself.
    pub(crate) fn handles(&self, half: Half) -> Option<(usize, usize)> {
        let (first, count) = (self.slot(half.idx)? - self.handles, handles_of(&self.geometry));
        let before = if matches!(half.direction, Direction::Request) { 0 } else { count };
        Some((first + before * HANDLE, count))
    }

    pub(crate) fn payload(&self, half: Half) -> Option<Area> {
        let (slot, Geometry { request_bytes, reply_bytes, .. }) = (self.slot(half.idx)?, self.geometry);
        let (at, len) = match half.direction {
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

/// The request or the reply of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Half {
    pub(crate) idx: u32,
    pub(crate) direction: Direction,
}

impl Direction {
    /// The half of the slot `idx`.
    #[inline]
    pub(crate) fn of(self, idx: u32) -> Half {
        Half { idx, direction: self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::Calls;
    use super::*;
    use crate::segment::header::{FIXED, Header, encode};
    use crate::segment::mapping::checked;

    const GEOMETRY: Geometry =
        Geometry { slots: 3, queue: 8, request_bytes: 100, reply_bytes: 50, members: 2, blobs: 0 };

    #[test]
    fn areas_of_a_layout_do_not_overlap() {
        let layout = Layout::new(GEOMETRY);
        assert_eq!((layout.ring, layout.slots), (4352, 4416));
        assert_eq!((layout.reply, layout.stride, layout.len), (132, 256, 4416 + 3 * 256 + 64));
        assert_eq!((layout.slot(2), layout.slot(3)), (Some(4416 + 2 * 256 + 64), None));
        assert_eq!(layout.handles(Direction::Request.of(0)), Some((4416, 1)));
        assert_eq!(layout.handles(Direction::Reply.of(2)), Some((4416 + 2 * 256 + 32, 1)));
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
        assert!(in_words(0, layout.ring + 8 * 8) && in_words(layout.len - 8, 8));
        assert!((0..3).all(|idx| layout.slot(idx).is_some_and(|at| in_words(at, SLOT_HEAD))));
        let request = layout.payload(Direction::Request.of(0)).expect("there is one");
        assert_eq!(request.reserved(1), PAGE - request.at % PAGE);
        assert_eq!(request.reserved(5000), 5000);
    }

    #[test]
    fn header_is_read_as_it_was_written_and_every_changed_byte_is_refused() {
        let (said, len) = header(GEOMETRY);
        let bytes = encode(&said);
        assert_eq!(checked::<Calls>(&bytes, len), Ok(said));
        assert!(checked::<Calls>(&bytes, len - 1).is_err() && checked::<Calls>(&bytes, len + 1).is_err());
        for at in 0..FIXED {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(checked::<Calls>(&damaged, len).is_err(), "byte {at}");
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
            let (said, len) = header(geometry);
            assert!(checked::<Calls>(&encode(&said), len).is_err(), "{geometry:?}");
        }
    }

    fn header(geometry: Geometry) -> (Header, u64) {
        let (sizes, len) = (geometry.to_sizes(), Layout::new(geometry).len as u64);
        (Header { kind: 0, sizes, sparse: true, len, identity: (8, 9), random: 7 }, len)
    }
}
