//! What a segment of calls holds, and the boundary to it: its slots, its ring and its events.
//!
//! Invariant: the layout was checked against the file once, is kept in private memory, and is the
//! only source of offsets.

#![allow(unsafe_code)]

use super::layout::{
    CELLS_AT, Direction, FORGOTTEN_AT, FREED_AT, Geometry, HEAD_AT, Half, Layout, REDELIVERED_AT,
    REQUESTS_AT, SLOT_HEAD, SPACE_AT, TAIL_AT,
};
use super::queue::Queue;
use super::slot::{Slot, SlotWord};
use crate::blob::Name;
use crate::error::Result;
use crate::event::Event;
use crate::region::Region;
use crate::segment::header::{Area, SMALL, Sizes};
use crate::segment::mapping::{self, Contents};
use crate::segment::naming::HandlePlace;
use crate::segment::operations::{Operations, operations};
use crate::sync::{AtomicU64, Hint, Numbers, ShortLock};
#[cfg(test)]
use crate::sys::fault;

/// A segment of calls that this process has mapped.
pub(crate) type Shared = mapping::Shared<Calls>;

/// What this process knows of the calls of a segment.
#[derive(Debug)]
pub(crate) struct Calls {
    layout: Layout,
    /// The slots that clients of this process have acquired, which include all that may hold their
    /// calls. Looking at every slot of a large segment takes long and touches its pages.
    pub(crate) acquired: Numbers,
    /// How many bytes of each slot's request and reply are known to have allocated pages; empty if
    /// all have.
    reserved: Vec<[Hint; 2]>,
    /// For a client's threads: held from reading the word of a part to the step that leaves it.
    pub(crate) parts: ShortLock,
}

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Calls.
    Client = 1,
    /// Takes requests.
    Server = 2,
}

impl From<Role> for u64 {
    fn from(role: Role) -> u64 {
        role as u64
    }
}

/// The counters of a member's actions, by their words. Each may lag behind actions of other threads.
pub(crate) const FULL: usize = 0;
pub(crate) const EMPTY: usize = 1;
pub(crate) const CANCELLED: usize = 2;
pub(crate) const REPLIES: usize = 3;

const _: () = assert!(cfg!(loom) || size_of::<Slot>() == SLOT_HEAD);

impl Contents for Calls {
    const KIND: u32 = 0;
    const OPERATIONS: Operations = operations!("reqrep");
    type Role = Role;

    fn len(sizes: &Sizes) -> Option<usize> {
        Layout::checked(sizes).map(|layout| layout.len)
    }

    fn words(sizes: &Sizes) -> Option<impl Iterator<Item = Area>> {
        Layout::checked(sizes).filter(Layout::can_be_sparse).map(Layout::words)
    }

    fn new(sizes: &Sizes, sparse: bool) -> Calls {
        let geometry = Geometry::from_sizes(sizes);
        let unknown = || [Hint::new(0), Hint::new(0)];
        let reserved = if sparse { geometry.slots } else { 0 };
        Calls {
            layout: Layout::new(geometry),
            acquired: Numbers::below(geometry.slots),
            reserved: (0..reserved).map(|_| unknown()).collect(),
            parts: ShortLock::default(),
        }
    }

    fn role(number: u64) -> Option<Role> {
        match number {
            1 => Some(Role::Client),
            2 => Some(Role::Server),
            _ => None,
        }
    }

    fn naming(shared: &Shared, name: Name, near: u64, most: u32) -> u32 {
        let slots = shared.geometry().slots;
        let near = u32::try_from(near).map_or(0, |near| near.min(slots - 1));
        // Backwards, because a client mostly acquires the slot behind the last one: the slots that
        // named the file earlier are in front of the one that named it last.
        let backwards = (0..=near).rev().chain((near + 1..slots).rev());
        let mut count = 0;
        for idx in backwards {
            if count >= most {
                break;
            }
            count += shared.naming_in(idx, name);
        }
        count.min(most)
    }
}

impl Shared {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.own.layout.geometry
    }

    pub(crate) fn slot(&self, idx: u32) -> Option<&Slot> {
        // SAFETY: the layout keeps every slot inside the mapping, aligned to 64 bytes and apart
        // from all else.
        self.own.layout.slot(idx).map(|at| unsafe { self.at(at) })
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.geometry().slots).map_while(|idx| Some((idx, self.slot(idx)?)))
    }

    /// The bytes of the request or the reply of a slot.
    #[inline]
    pub(crate) fn payload(&self, half: Half) -> Option<Region> {
        // SAFETY: the layout keeps it inside the mapping, apart from all that is given out as
        // references.
        self.own.layout.payload(half).map(|area| unsafe { self.region(area) })
    }

    /// The places of the handles of a request or a reply.
    pub(crate) fn handles(&self, half: Half) -> &[HandlePlace] {
        let Some((at, count)) = self.own.layout.handles(half) else { return &[] };
        // SAFETY: the layout keeps so many handles inside the mapping, aligned to 32 bytes and apart from
        // all else.
        unsafe { std::slice::from_raw_parts(self.at(at), count) }
    }

    /// How many handles in this slot name a file now.
    fn naming_in(&self, idx: u32, name: Name) -> u32 {
        #[cfg(test)]
        fault::reached("look at a slot for a file");
        let Some(slot) = self.slot(idx) else { return 0 };
        // The blobs that the slot would stop naming if it became free now.
        let [request, reply] = slot.load().stops_naming(SlotWord::from_bits(0));
        let count = |(names, direction)| match slot.named(direction) {
            named if names && named.count > 0 => named.naming(self.handles(direction.of(idx)), name),
            _ => 0,
        };
        [(request, Direction::Request), (reply, Direction::Reply)].map(count).iter().sum()
    }

    pub(crate) fn queue(&self) -> Queue<'_> {
        let len = self.geometry().queue as usize;
        // SAFETY: the layout keeps the ring inside the mapping, aligned to 64 bytes and apart from
        // all else, `len` cells long; the hints have lines of their own in the header.
        unsafe {
            let cells: *const AtomicU64 = self.at(self.own.layout.ring);
            Queue {
                cells: std::slice::from_raw_parts(cells, len),
                head: self.at(HEAD_AT),
                tail: self.at(TAIL_AT),
            }
        }
    }

    /// The event at which servers wait for a request.
    pub(crate) fn requests(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(REQUESTS_AT) }
    }

    /// A slot that was freed recently, while a client waited for one. A hint.
    pub(crate) fn freed(&self) -> &AtomicU64 {
        // SAFETY: behind the event `space`, in its line.
        unsafe { self.at(FREED_AT) }
    }

    /// 1 once a client has forgotten a request. A hint.
    pub(crate) fn forgotten(&self) -> &AtomicU64 {
        // SAFETY: behind the two above, in their line.
        unsafe { self.at(FORGOTTEN_AT) }
    }

    /// The event at which clients wait for a cell of the ring.
    pub(crate) fn cells(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(CELLS_AT) }
    }

    /// The event at which clients wait for a slot.
    pub(crate) fn space(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(SPACE_AT) }
    }

    /// How many requests went to another server because theirs had died.
    pub(crate) fn redelivered(&self) -> &AtomicU64 {
        // SAFETY: the header's first word for the module, aligned to eight bytes.
        unsafe { self.at(REDELIVERED_AT) }
    }

    /// Makes sure that the first `len` bytes of a request or a reply have allocated pages.
    #[inline]
    pub(crate) fn reserve(&self, half: Half, len: usize, op: &'static str) -> Result<()> {
        // A copy of a few bytes out of the segment reads this many.
        let len = len.max(SMALL);
        match self.own.reserved.get(half.idx as usize) {
            Some(known) if len as u64 > known[half.direction as usize].get() => {
                self.reserve_more(half, &known[half.direction as usize], len, op)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn reserve_more(&self, half: Half, known: &Hint, len: usize, op: &'static str) -> Result<()> {
        let area = self.own.layout.payload(half);
        if let Some(area) = area.filter(|area| len <= area.len.max(SMALL)) {
            known.set(self.reserve_pages(area, len, op)?);
        }
        Ok(())
    }
}
