//! The ring: bytes from one writer to one reader, with two positions and no lock.
//!
//! Invariant: at any time each byte of the memory belongs to one side. The reader owns the bytes
//! between the two positions, the writer all others that the capacity allows. A side moves only its
//! own position, and so passes bytes to the other side when it is done with them. Therefore it may
//! lend the bytes that it owns as plain slices. This file holds all the unsafe code of the module.
//!
//! A position counts bytes and never decreases: 64 bits last for centuries. The memory is a power
//! of two long, so that a mask turns a position into an index. The capacity is the requested one.
//! This is Lamport's queue (1983) for two processes, where each side keeps a stale copy of the
//! other side's position, after FastForward (2008), so that two busy sides touch each other's cache
//! lines only when they have used up the bytes that they know of.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Errno;

/// A ring of `capacity` bytes, as its two sides see it.
pub(super) fn ring(capacity: usize, op: &'static str) -> Result<(Window<FREE>, Window<FILLED>)> {
    let ring = Arc::new(Ring::new(capacity, op)?);
    let free = Window { ring: Arc::clone(&ring), pos: 0, end: capacity as u64 };
    Ok((free, Window { ring, pos: 0, end: 0 }))
}

/// The writer's side.
pub(super) const FREE: bool = true;
/// The reader's side.
pub(super) const FILLED: bool = false;

/// One side of a ring: the bytes that it owns now. Each side has one window.
pub(super) struct Window<const SIDE: bool> {
    ring: Arc<Ring>,
    /// This side's position, at which its bytes begin.
    pos: u64,
    /// Where its bytes end, as of the last read of the other side's position; from `pos` to
    /// `pos + capacity`. May be stale: then it owns more.
    end: u64,
}

impl<const SIDE: bool> Window<SIDE> {
    /// Bytes that this side owns for certain: it may own more, never fewer.
    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.end - self.pos) as usize
    }

    /// Reads the other side's position, and returns how many bytes this side owns now.
    #[inline]
    pub(super) fn refresh(&mut self) -> usize {
        let ring = &*self.ring;
        // Acquire: pairs with the Release in `advance` of the other side, which was done with these
        // bytes then.
        self.end = match SIDE {
            FREE => ring.read.0.load(Ordering::Acquire) + ring.capacity as u64,
            FILLED => ring.written.0.load(Ordering::Acquire),
        };
        self.len()
    }

    /// Passes the first `len` of its bytes to the other side.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        assert!(len <= self.len(), "a side gives away only what it owns");
        #[cfg(loom)]
        self.witness(len);
        self.pos += len as u64;
        let own = if SIDE == FREE { &self.ring.written.0 } else { &self.ring.read.0 };
        // Release: pairs with the Acquire in `refresh` of the other side.
        own.store(self.pos, Ordering::Release);
    }

    /// Bytes that are written and not read, now.
    pub(super) fn buffered(&self) -> usize {
        let ring = &*self.ring;
        match SIDE {
            FREE => (self.pos - ring.read.0.load(Ordering::Relaxed)) as usize,
            FILLED => (ring.written.0.load(Ordering::Relaxed) - self.pos) as usize,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.ring.capacity
    }

    /// The index in the memory where its bytes begin.
    fn idx(&self) -> usize {
        self.pos as usize & self.ring.mask
    }

    /// Reports to loom that this side has touched bytes, so that loom detects any that were not its
    /// own.
    #[cfg(loom)]
    fn witness(&self, len: usize) {
        for idx in self.idx()..self.idx() + len {
            let cell = &self.ring.cells[idx & self.ring.mask];
            if SIDE == FREE { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
        }
    }

    /// The two ranges of the memory that have its bytes, each a start and a length. The second is
    /// empty unless they wrap around the end of the memory.
    fn places(&self) -> [(NonNull<u8>, usize); 2] {
        let idx = self.idx();
        let first = self.len().min(self.ring.mask + 1 - idx);
        // SAFETY: the index is below the length of the memory.
        [(unsafe { self.ring.start.add(idx) }, first), (self.ring.start, self.len() - first)]
    }
}

impl Window<FREE> {
    /// The writable bytes in their order, in two pieces if they wrap around the end of the memory.
    pub(super) fn bytes(&mut self) -> (&mut [u8], &mut [u8]) {
        let [first, second] = self.places();
        // SAFETY: the places lie in the memory, which is initialised and lives as long as this
        // side; they do not overlap, being at most the capacity together. They are the writer's own
        // until it advances, for which this borrow must have ended; the reader was done with them
        // when it moved the position that `end` came from.
        unsafe {
            (
                slice::from_raw_parts_mut(first.0.as_ptr(), first.1),
                slice::from_raw_parts_mut(second.0.as_ptr(), second.1),
            )
        }
    }
}

impl Window<FILLED> {
    /// The readable bytes in their order, in two pieces if they wrap around the end of the memory.
    pub(super) fn bytes(&self) -> (&[u8], &[u8]) {
        let [first, second] = self.places();
        // SAFETY: the places lie in the memory, which is initialised and lives as long as this
        // side. They are the reader's own until it advances, for which this borrow must have ended;
        // the writer was done with them when it moved the position that `end` came from.
        unsafe {
            (
                slice::from_raw_parts(first.0.as_ptr(), first.1),
                slice::from_raw_parts(second.0.as_ptr(), second.1),
            )
        }
    }
}

impl<const SIDE: bool> fmt::Debug for Window<SIDE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("pos", &self.pos).field("end", &self.end).finish_non_exhaustive()
    }
}

struct Ring {
    /// Bytes written since the beginning: from `read` to `read + capacity`. The writer stores, the
    /// reader loads.
    written: LinePair<AtomicU64>,
    /// Bytes read since the beginning, at most `written`. The reader stores, the writer loads.
    read: LinePair<AtomicU64>,
    /// The allocation, and where the memory begins in it: at a cache line, so that the two sides
    /// share as few lines as possible.
    allocated: (NonNull<u8>, Layout),
    start: NonNull<u8>,
    /// One less than the length of the memory, which is a power of two and at least the capacity.
    mask: usize,
    capacity: usize,
    /// The memory as loom sees it: one cell for each byte.
    #[cfg(loom)]
    cells: Vec<loom::cell::UnsafeCell<()>>,
}

/// A field that one side stores all the time has a cache line without the other side's data. Two
/// lines: processors fetch them in pairs.
#[repr(align(128))]
struct LinePair<T>(T);

const LINE: usize = align_of::<LinePair<u8>>();

// SAFETY: a ring is reached only through its two windows. They touch disjoint bytes of the memory,
// as the head of this file says; all else is atomic or never changes.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(capacity: usize, op: &'static str) -> Result<Ring> {
        let len = capacity.checked_next_power_of_two().filter(|_| capacity > 0);
        // Allocate extra bytes instead of asking for an aligned layout: for aligned layouts, the
        // allocator would write the zeros, and so touch all pages at once.
        let layout = len.and_then(|len| Layout::array::<u8>(len.checked_add(LINE - 1)?).ok());
        let (len, layout) = len.zip(layout).ok_or(Error::new(ErrorKind::Invalid, op))?;
        // SAFETY: the layout is not empty.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM.at(op))?;
        let off = allocated.addr().get().wrapping_neg() % LINE;
        // SAFETY: the offset is less than a line, and the allocation has that much besides the
        // memory.
        let start = unsafe { allocated.add(off) };
        Ok(Ring {
            written: LinePair(AtomicU64::new(0)),
            read: LinePair(AtomicU64::new(0)),
            allocated: (allocated, layout),
            start,
            mask: len - 1,
            capacity,
            #[cfg(loom)]
            cells: std::iter::repeat_with(Default::default).take(len).collect(),
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let (allocated, layout) = self.allocated;
        // SAFETY: it was allocated with this layout, and both windows are gone.
        unsafe { dealloc(allocated.as_ptr(), layout) };
    }
}
