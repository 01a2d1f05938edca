//! What a segment of a broadcast holds, and the boundary to it: its cells, its cursors and its events.
//!
//! Invariant: the layout was checked against the file once, is kept in private memory, and is the
//! only source of offsets.

#![allow(unsafe_code)]

use super::layout::{CELL_HEAD, Geometry, Layout};
#[cfg(not(loom))]
use super::layout::{JOINS_AT, PUBLISHED_AT, ROOM_AT, SKIPPED_AT, TAIL_AT};
use super::word::{CellWord, Cursor, Position, State};
use crate::blob::Name;
use crate::event::Event;
use crate::region::Region;
use crate::segment::header::{Area, Sizes};
use crate::segment::mapping::{self, Contents, MemberEntry};
use crate::segment::naming::{HandlePlace, NamedBlobs};
use crate::segment::operations::{Operations, operations};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A segment of a broadcast that this process has mapped.
pub(crate) type Shared = mapping::Shared<Ring>;

/// What this process knows of a ring of messages.
#[derive(Debug)]
pub(crate) struct Ring {
    layout: Layout,
    #[cfg(loom)]
    model: Model,
}

/// What lies in the segment, in a model: loom's atomics are larger than the places in a file.
#[cfg(loom)]
struct Model {
    tail: AtomicU64,
    joins: AtomicU64,
    skipped: AtomicU64,
    published: Event,
    room: Event,
    cells: Vec<Cell>,
    members: Vec<MemberEntry>,
}

#[cfg(loom)]
impl Model {
    fn new(geometry: &Geometry) -> Model {
        let [tail, joins, skipped] = [0; 3].map(AtomicU64::new);
        let cells = (0..geometry.messages).map(|_| Cell::new()).collect();
        let members = (0..geometry.members).map(|_| MemberEntry::new()).collect();
        Model { tail, joins, skipped, published: Event::new(), room: Event::new(), cells, members }
    }
}

#[cfg(loom)]
impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Publishes messages.
    Publisher = 1,
    /// Receives them.
    Subscriber = 2,
}

impl From<Role> for u64 {
    fn from(role: Role) -> u64 {
        role as u64
    }
}

/// The words of a member, by their numbers. The cursor of one that must see all.
const CURSOR: usize = 0;
/// The next position of a subscriber that may lag. For people.
pub(crate) const NEXT: usize = 1;
/// How many messages its subscriber has missed.
pub(crate) const MISSED: usize = 2;
/// How many times its publisher has found the ring full.
pub(crate) const FULL: usize = 3;

/// The head of a cell.
#[repr(C)]
pub(crate) struct Cell {
    word: AtomicU64,
    /// Bytes of the message in the cell.
    len: AtomicU32,
    flags: AtomicU32,
    /// Its [`NamedBlobs`].
    marks: AtomicU32,
    _zero: AtomicU32,
}

const _: () = assert!(cfg!(loom) || size_of::<Cell>() == CELL_HEAD);

/// What a publisher writes beside a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) len: u32,
    pub(crate) flags: u32,
    pub(crate) named: NamedBlobs,
}

impl Cell {
    #[cfg(loom)]
    fn new() -> Cell {
        let [len, flags, marks, _zero] = [0; 4].map(AtomicU32::new);
        Cell { word: AtomicU64::new(0), len, flags, marks, _zero }
    }

    #[inline]
    pub(crate) fn load(&self) -> CellWord {
        // Acquire: pairs with the Release of the publisher. What follows is read after it.
        CellWord::from_bits(self.word.load(Ordering::Acquire))
    }

    /// Whether the word is still the same, after all that was read before.
    #[inline]
    pub(crate) fn still_is(&self, word: CellWord) -> bool {
        // Acquire: the reads before stay before the load.
        crate::sync::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == word.to_bits()
    }

    #[inline]
    pub(crate) fn swap(&self, from: CellWord, to: CellWord) -> bool {
        let (from, to) = (from.to_bits(), to.to_bits());
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn describe(&self, described: Described) {
        self.len.store(described.len, Ordering::Relaxed);
        self.flags.store(described.flags, Ordering::Relaxed);
        self.marks.store(described.named.to_bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn described(&self) -> Described {
        Described {
            len: self.len.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            named: NamedBlobs::from_bits(self.marks.load(Ordering::Relaxed)),
        }
    }
}

impl Contents for Ring {
    const KIND: u32 = 1;
    const OPERATIONS: Operations = operations!("broadcast");
    type Role = Role;

    fn len(sizes: &Sizes) -> Option<usize> {
        Geometry::checked(sizes).map(|geometry| Layout::new(geometry).len)
    }

    fn words(_: &Sizes) -> Option<impl Iterator<Item = Area>> {
        None::<std::iter::Empty<Area>>
    }

    fn new(sizes: &Sizes, _: bool) -> Ring {
        let geometry = Geometry::checked(sizes).expect("they were checked");
        Ring {
            #[cfg(loom)]
            model: Model::new(&geometry),
            layout: Layout::new(geometry),
        }
    }

    #[cfg(loom)]
    fn member_of_model(&self, number: u16) -> Option<&MemberEntry> {
        self.model.members.get(usize::from(number.checked_sub(1)?))
    }

    fn role(number: u64) -> Option<Role> {
        match number {
            1 => Some(Role::Publisher),
            2 => Some(Role::Subscriber),
            _ => None,
        }
    }

    fn naming(shared: &Shared, name: Name, near: u64, most: u32) -> u32 {
        let messages = shared.geometry().messages;
        let near = u32::try_from(near).map_or(0, |near| near.min(messages - 1));
        let mut count = 0;
        // Backwards: the cells in front of the last that named the file are the older ones.
        for idx in (0..=near).rev().chain((near + 1..messages).rev()) {
            if count >= most {
                break;
            }
            let cell = shared.cell(idx);
            if cell.load().state() == State::Done {
                count += cell.described().named.naming(shared.handles(idx), name);
            }
        }
        count.min(most)
    }
}

impl Shared {
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.own.layout.geometry
    }

    /// The cell of this number, which is below that of the messages.
    #[inline]
    pub(crate) fn cell(&self, idx: u32) -> &Cell {
        #[cfg(loom)]
        return &self.own.model.cells[idx as usize];
        #[cfg(not(loom))]
        // SAFETY: the layout keeps every cell inside the mapping, aligned to 8 bytes and apart from all
        // else.
        unsafe {
            self.at(self.own.layout.cell(idx))
        }
    }

    /// The cell of a message.
    #[inline]
    pub(crate) fn cell_of(&self, position: Position) -> &Cell {
        self.cell(self.geometry().cell(position))
    }

    /// The bytes of the message of a cell.
    #[inline]
    pub(crate) fn payload(&self, idx: u32) -> Region {
        // SAFETY: the layout keeps it inside the mapping, apart from all that is given out as references.
        unsafe { self.region(self.own.layout.payload(idx)) }
    }

    /// The places of the handles of a cell.
    pub(crate) fn handles(&self, idx: u32) -> &[HandlePlace] {
        let (at, count) = self.own.layout.handles(idx);
        // SAFETY: the layout keeps so many handles inside the mapping, aligned to 32 bytes and apart from
        // all else.
        unsafe { std::slice::from_raw_parts(self.at(at), count) }
    }

    /// The next position. A hint: the cell of that position may be claimed already.
    #[inline]
    pub(crate) fn tail(&self) -> &AtomicU64 {
        #[cfg(loom)]
        return &self.own.model.tail;
        #[cfg(not(loom))]
        // SAFETY: a line of its own in the header.
        unsafe {
            self.at(TAIL_AT)
        }
    }

    /// How many times a subscriber has begun to see all.
    #[inline]
    pub(crate) fn joins(&self) -> &AtomicU64 {
        #[cfg(loom)]
        return &self.own.model.joins;
        #[cfg(not(loom))]
        // SAFETY: a line of its own in the header.
        unsafe {
            self.at(JOINS_AT)
        }
    }

    /// How many numbers were passed over because their publisher had died.
    pub(crate) fn skipped(&self) -> &AtomicU64 {
        #[cfg(loom)]
        return &self.own.model.skipped;
        #[cfg(not(loom))]
        // SAFETY: the header's first word for the module, aligned to eight bytes.
        unsafe {
            self.at(SKIPPED_AT)
        }
    }

    /// The event at which subscribers wait for a message.
    #[inline]
    pub(crate) fn published(&self) -> &Event {
        #[cfg(loom)]
        return &self.own.model.published;
        #[cfg(not(loom))]
        // SAFETY: a line of its own in the header.
        unsafe {
            self.at(PUBLISHED_AT)
        }
    }

    /// The event at which publishers wait for room in the ring.
    #[inline]
    pub(crate) fn room(&self) -> &Event {
        #[cfg(loom)]
        return &self.own.model.room;
        #[cfg(not(loom))]
        // SAFETY: a line of its own in the header.
        unsafe {
            self.at(ROOM_AT)
        }
    }
}

/// The cursor of a member.
#[inline]
pub(crate) fn cursor(member: &MemberEntry) -> &AtomicU64 {
    &member.own.0[CURSOR]
}

#[inline]
pub(crate) fn cursor_of(member: &MemberEntry) -> Cursor {
    Cursor::from_bits(cursor(member).load(Ordering::Acquire))
}

/// Changes a cursor, if it is still the one that was read.
#[inline]
pub(crate) fn swap_cursor(member: &MemberEntry, from: Cursor, to: Cursor) -> bool {
    let (from, to) = (from.to_bits(), to.to_bits());
    cursor(member).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}
