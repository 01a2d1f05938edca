//! The offset of everything that a broadcast has in a segment. No other file knows one; the byte tables are
//! in BROADCAST.md. Pure.

#![cfg_attr(loom, allow(dead_code, reason = "a model has no file"))]

use super::word::Position;
use crate::segment::header::{Area, BIRTHPLACE_AT, HANDLE, LINE, MAX_MEMBERS, OWN_AT, Sizes};

/// The sizes of a segment. They never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many messages the ring keeps, a power of two.
    pub messages: u32,
    /// Bytes of the longest message that a cell of the ring holds.
    pub message_bytes: u32,
    /// How many publishers and subscribers can be attached at the same time.
    pub members: u32,
    /// How many [blobs](super::Blob) a message can carry.
    pub blobs: u32,
    /// Whether processes that may only read the file can subscribe.
    pub observers: bool,
}

/// The largest number of messages that a ring keeps.
pub const MAX_MESSAGES: u32 = 1 << 20;
/// Bytes of the longest message that a cell can be made for.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 30;
/// The largest number of blobs that a message can carry.
pub const MAX_BLOBS: u32 = 8;

/// The counter of numbers that were passed over.
pub(crate) const SKIPPED_AT: usize = OWN_AT;
pub(crate) const TAIL_AT: usize = 192;
pub(crate) const PUBLISHED_AT: usize = 256;
pub(crate) const ROOM_AT: usize = 320;
pub(crate) const JOINS_AT: usize = 384;
const _: () = assert!(JOINS_AT + 8 <= BIRTHPLACE_AT);

/// Bytes of a cell in front of its message.
pub(crate) const CELL_HEAD: usize = 24;

impl Geometry {
    fn is_possible(&self) -> bool {
        self.messages.is_power_of_two()
            && (2..=MAX_MESSAGES).contains(&self.messages)
            && (1..=MAX_MEMBERS).contains(&self.members)
            && self.message_bytes <= MAX_MESSAGE_BYTES
            && self.blobs <= MAX_BLOBS
    }

    pub(crate) fn to_sizes(self) -> Sizes {
        let Geometry { messages, message_bytes, members, blobs, observers } = self;
        Sizes { own: [messages, message_bytes, observers.into(), 0], members, blobs }
    }

    /// `None` for sizes out of range.
    pub(crate) fn checked(sizes: &Sizes) -> Option<Geometry> {
        let Sizes { own: [messages, message_bytes, observers, zero], members, blobs } = *sizes;
        let geometry = Geometry { messages, message_bytes, members, blobs, observers: observers == 1 };
        (observers <= 1 && zero == 0 && geometry.is_possible()).then_some(geometry)
    }

    /// The cell of a message.
    #[inline]
    pub(crate) fn cell(&self, position: Position) -> u32 {
        (position & u64::from(self.messages - 1)) as u32
    }

    /// The lap of a message. The first one is 1, because a file of zeros is an empty ring.
    #[inline]
    pub(crate) fn lap(&self, position: Position) -> u64 {
        (position >> self.messages.trailing_zeros()) + 1
    }
}

/// The offsets that follow from a geometry, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) geometry: Geometry,
    /// The offset of the first cell, with its handles.
    cells: usize,
    stride: usize,
    /// Bytes of the handles in front of the head of a cell.
    handles: usize,
    pub(crate) len: usize,
}

impl Layout {
    pub(crate) fn new(geometry: Geometry) -> Layout {
        let cells = geometry.to_sizes().behind_members();
        let handles = ((geometry.blobs as usize + 1) * HANDLE).next_multiple_of(LINE);
        let stride = handles + (CELL_HEAD + geometry.message_bytes as usize).next_multiple_of(LINE);
        let len = cells + geometry.messages as usize * stride + LINE;
        Layout { geometry, cells, stride, handles, len }
    }

    /// The offset of a cell, whose number is below that of the messages.
    #[inline]
    pub(crate) fn cell(&self, idx: u32) -> usize {
        debug_assert!(idx < self.geometry.messages);
        self.cells + idx as usize * self.stride + self.handles
    }

    /// The offset of the handles of a cell, and their number. The first is for a message that is in a blob
    /// itself.
    pub(crate) fn handles(&self, idx: u32) -> (usize, usize) {
        (self.cell(idx) - self.handles, self.geometry.blobs as usize + 1)
    }

    #[inline]
    pub(crate) fn payload(&self, idx: u32) -> Area {
        let (at, len) = (self.cell(idx) + CELL_HEAD, self.geometry.message_bytes as usize);
        Area { at, len, space: self.stride - self.handles - CELL_HEAD }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::Ring;
    use super::*;
    use crate::segment::header::{FIXED, Header, encode};
    use crate::segment::mapping::checked;

    const GEOMETRY: Geometry =
        Geometry { messages: 4, message_bytes: 100, members: 2, blobs: 0, observers: false };

    #[test]
    fn areas_of_a_layout_do_not_overlap() {
        let layout = Layout::new(GEOMETRY);
        assert_eq!((layout.cells, layout.stride, layout.len), (4352, 192, 4352 + 4 * 192 + 64));
        assert_eq!((layout.cell(0), layout.handles(0)), (4416, (4352, 1)));
        let payload = layout.payload(3);
        assert_eq!((payload.at, payload.len, payload.space), (4352 + 3 * 192 + 64 + 24, 100, 104));
        assert_eq!(payload.at + payload.space, layout.len - LINE);
        let with_blobs = Layout::new(Geometry { blobs: 8, ..GEOMETRY });
        assert_eq!((with_blobs.handles, with_blobs.cell(0)), (320, 4352 + 320));
    }

    #[test]
    fn short_messages_share_the_line_of_the_head() {
        let stride = |message_bytes| {
            let layout = Layout::new(Geometry { message_bytes, ..GEOMETRY });
            layout.stride - layout.handles
        };
        assert_eq!([0, 40, 41, 104, 1024].map(stride), [64, 64, 128, 128, 1088]);
    }

    #[test]
    fn cells_and_laps_of_positions() {
        assert_eq!([0, 3, 4, 9].map(|position| GEOMETRY.cell(position)), [0, 3, 0, 1]);
        assert_eq!([0, 3, 4, 9].map(|position| GEOMETRY.lap(position)), [1, 1, 2, 3]);
    }

    #[test]
    fn header_is_read_as_it_was_written_and_every_changed_byte_is_refused() {
        let (said, len) = header(GEOMETRY.to_sizes());
        let bytes = encode(&said);
        assert_eq!(checked::<Ring>(&bytes, len), Ok(said));
        for at in 0..FIXED {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(checked::<Ring>(&damaged, len).is_err(), "byte {at}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_even_with_a_checksum() {
        let bad = [
            Geometry { messages: 0, ..GEOMETRY },
            Geometry { messages: 1, ..GEOMETRY },
            Geometry { messages: 6, ..GEOMETRY },
            Geometry { messages: 2 * MAX_MESSAGES, ..GEOMETRY },
            Geometry { members: 0, ..GEOMETRY },
            Geometry { members: 1 << 16, ..GEOMETRY },
            Geometry { blobs: 9, ..GEOMETRY },
            Geometry { message_bytes: MAX_MESSAGE_BYTES + 1, ..GEOMETRY },
        ];
        let other = |own| Sizes { own, ..GEOMETRY.to_sizes() };
        let sizes = bad.map(Geometry::to_sizes);
        for sizes in sizes.into_iter().chain([other([4, 100, 2, 0]), other([4, 100, 0, 1])]) {
            let (said, len) = header(sizes);
            assert!(checked::<Ring>(&encode(&said), len).is_err(), "{sizes:?}");
        }
    }

    fn header(sizes: Sizes) -> (Header, u64) {
        let len = Geometry::checked(&sizes).map_or(1 << 20, |geometry| Layout::new(geometry).len as u64);
        (Header { kind: 1, sizes, sparse: false, len, identity: (8, 9), random: 7 }, len)
    }
}
