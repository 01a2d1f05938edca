//! The ring of slots that wait for a server. SEGMENT.md has the algorithm: claim, then unlink; head
//! and tail are hints.
//!
//! A push or an unlink is one compare-and-swap of one cell, as in Tsigas and Zhang, "A simple, fast
//! and scalable non-blocking concurrent FIFO queue" (SPAA 2001), with laps instead of their two
//! kinds of null. A cell knows its own position, so the first look corrects a hint that lags, and
//! the hint is written without a swap.

use super::layout::MAX_SLOTS;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicU64, Ordering};

/// `{ lap: 40, full: 1, slot: 23 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u64);

const FULL: u64 = 1 << 23;
const SLOT: u64 = FULL - 1;
const LAP_SHIFT: u32 = 24;
const LAPS: u64 = (1 << 40) - 1;
const _: () = assert!(MAX_SLOTS as u64 - 1 <= SLOT, "a cell holds the number of any slot");

impl Cell {
    fn empty(lap: u64) -> Cell {
        Cell((lap & LAPS) << LAP_SHIFT)
    }

    fn full(lap: u64, slot: u32) -> Cell {
        Cell(Cell::empty(lap).0 | FULL | u64::from(slot))
    }

    fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// How many laps the cell is ahead of `lap`; negative if it is behind.
    fn ahead_of(self, lap: u64) -> i64 {
        // Laps wrap: the difference has 40 bits, and its highest bit is the sign.
        let difference = (self.0 >> LAP_SHIFT).wrapping_sub(lap) << LAP_SHIFT;
        difference as i64 >> LAP_SHIFT
    }

    fn slot(self) -> u32 {
        (self.0 & SLOT) as u32
    }
}

/// The ring, borrowed from a segment.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    /// Their number is a power of two.
    pub(crate) cells: &'a [AtomicU64],
    /// A position; may lag behind the first entry, never leads.
    pub(crate) head: &'a AtomicU64,
    /// A position; may lag behind the first empty cell, never leads.
    pub(crate) tail: &'a AtomicU64,
}

/// The result of a pop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Popped<T> {
    /// The claimed slot; `None` if the ring is empty.
    pub(crate) claimed: Option<T>,
    /// How many entries of ended calls were removed.
    pub(crate) stale: u32,
}

impl Queue<'_> {
    /// Appends a slot; returns false if the ring is full, which only stale entries can cause.
    /// `is_needed` says whether the entry of a slot must stay.
    #[inline]
    pub(crate) fn push(&self, slot: u32, is_needed: impl Fn(u32) -> bool, op: &'static str) -> Result<bool> {
        // Relaxed, for all hints: a hint counts only if the cell agrees.
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(tail);
            // Swaps without loading the cell first: the hint is mostly right, so the line is
            // fetched once instead of twice. Release: pairs with the Acquire of the pop, which must
            // see the slot sent. Acquire: pairs with the Release of the unlink, and of the push.
            let (empty, full) = (Cell::empty(lap), Cell::full(lap, slot));
            let swapped = at.compare_exchange(empty.0, full.0, Ordering::AcqRel, Ordering::Acquire);
            let Err(bits) = swapped else {
                self.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
                return Ok(true);
            };
            let cell = Cell(bits);
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, ahead) if ahead >= 0 => tail = self.after(tail, ahead as u64),
                (false, ahead) if ahead > 0 => tail = self.after(tail, ahead as u64 - 1),
                (true, -1) if is_needed(cell.slot()) => return Ok(false),
                (true, -1) => drop(swap(at, cell, Cell::empty(lap), Ordering::Release)),
                _ => break,
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    /// Whether a push would find the ring full.
    pub(crate) fn is_full(&self, is_needed: impl Fn(u32) -> bool) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(tail);
            // Acquire: as in `push`.
            let cell = Cell(at.load(Ordering::Acquire));
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, ahead) if ahead >= 0 => tail = self.after(tail, ahead as u64),
                (false, ahead) if ahead > 0 => tail = self.after(tail, ahead as u64 - 1),
                (true, -1) => return is_needed(cell.slot()),
                // An empty cell, or a damaged one, which the push reports.
                _ => return false,
            }
        }
        false
    }

    /// Removes the first entry whose slot `claim` claims.
    #[inline]
    pub(crate) fn pop<T>(
        &self,
        mut claim: impl FnMut(u32) -> Option<T>,
        op: &'static str,
    ) -> Result<Popped<T>> {
        let (mut stale, mut head) = (0, self.head.load(Ordering::Relaxed));
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(head);
            // Acquire: pairs with the Release of the push.
            let cell = Cell(at.load(Ordering::Acquire));
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, 0) => {
                    let claimed = claim(cell.slot());
                    // Release: pairs with the Acquire of the push, so that no push finds the freed
                    // cell before the claim.
                    let unlinked = swap(at, cell, Cell::empty(lap + 1), Ordering::Release);
                    stale += u32::from(unlinked && claimed.is_none());
                    if claimed.is_some() {
                        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
                        return Ok(Popped { claimed, stale });
                    }
                }
                (false, 0) => {
                    if stale > 0 {
                        self.head.store(head, Ordering::Relaxed);
                    }
                    return Ok(Popped { claimed: None, stale });
                }
                (_, ahead) if ahead > 0 => head = self.after(head, ahead as u64 - 1),
                _ => break,
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    /// The number of entries, including stale ones. Others may change it meanwhile.
    pub(crate) fn len(&self) -> usize {
        self.entries().count()
    }

    /// Every slot in the ring, in order, as one pass finds them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = u32> {
        let mut pos = self.head.load(Ordering::Relaxed);
        let mut turns = self.max_attempts();
        let entries = std::iter::from_fn(move || {
            while turns > 0 {
                turns -= 1;
                let (at, lap) = self.place(pos);
                let cell = Cell(at.load(Ordering::Acquire));
                match (cell.is_full(), cell.ahead_of(lap)) {
                    (true, 0) => {
                        pos = pos.wrapping_add(1);
                        return Some(cell.slot());
                    }
                    (_, ahead) if ahead > 0 => pos = self.after(pos, ahead as u64 - 1),
                    _ => break,
                }
            }
            None
        });
        // Damaged cells can lead in a circle.
        entries.take(self.cells.len())
    }

    /// The same without the first entry. A process may be about to remove the first one because it
    /// found it stale before its slot was sent again; no process is at the others before the first
    /// is gone.
    pub(crate) fn entries_behind_first(&self) -> impl Iterator<Item = u32> {
        self.entries().skip(1)
    }

    fn place(&self, pos: u64) -> (&AtomicU64, u64) {
        let idx = pos & (self.cells.len() as u64 - 1);
        (&self.cells[idx as usize], pos >> self.cells.len().trailing_zeros())
    }

    /// The position behind that of the same cell, `laps` laps later.
    fn after(&self, pos: u64, laps: u64) -> u64 {
        pos.wrapping_add(laps.wrapping_mul(self.cells.len() as u64)).wrapping_add(1)
    }

    /// Far more attempts than processes that keep the rules ever need.
    fn max_attempts(&self) -> usize {
        // A fuzzer damages rings all the time and has no other process to wait for.
        let turns = if cfg!(fuzzing) { 1 << 10 } else { 1 << 20 };
        turns + 8 * self.cells.len()
    }
}

fn swap(at: &AtomicU64, from: Cell, to: Cell, success: Ordering) -> bool {
    at.compare_exchange(from.0, to.0, success, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring(cells: usize, start: u64) -> (Vec<AtomicU64>, AtomicU64, AtomicU64) {
        let lap = |idx: usize| (start + (cells - 1 - idx) as u64) / cells as u64;
        let cells = (0..cells).map(|idx| AtomicU64::new(Cell::empty(lap(idx)).0)).collect();
        (cells, AtomicU64::new(start), AtomicU64::new(start))
    }

    proptest! {
        /// Compared with a plain queue, from any starting position, with hints that lag by any
        /// amount.
        #[test]
        fn entries_come_out_in_order_with_hints_that_lag(
            steps in proptest::collection::vec((0u8..8, 0u32..4), 1..500),
            start in prop_oneof![0u64..100, (1u64 << 42) - 50..(1 << 42) + 50],
        ) {
            let (cells, head, tail) = ring(8, start);
            let queue = Queue { cells: &cells, head: &head, tail: &tail };
            let mut model = VecDeque::new();
            let mut sent = [true; 4];
            for (step, slot) in steps {
                match step {
                    0..=2 => {
                        let was_full = queue.is_full(|other| other != slot && sent[other as usize]);
                        let pushed = queue.push(slot, |other| other != slot && sent[other as usize], "test").expect("well formed");
                        // A full ring first removes a stale entry at its front.
                        let is_stale = |front: &u32| *front == slot || !sent[*front as usize];
                        if model.len() == 8 && model.front().is_some_and(is_stale) {
                            model.pop_front();
                        }
                        prop_assert_eq!(pushed, model.len() < 8);
                        prop_assert_eq!(was_full, !pushed);
                        if pushed {
                            model.push_back(slot);
                        }
                    }
                    3 | 4 => {
                        let popped = queue.pop(|slot| sent[slot as usize].then_some(slot), "test").expect("well formed");
                        while model.front().is_some_and(|slot| !sent[*slot as usize]) {
                            model.pop_front();
                        }
                        prop_assert_eq!(popped.claimed, model.pop_front());
                    }
                    5 => sent[slot as usize] ^= true,
                    6 => {
                        // A slow process writes an old position.
                        let hint = if slot % 2 == 0 { &head } else { &tail };
                        let back = [1, 7, 8, 100][slot as usize % 4].min(hint.load(Ordering::Relaxed) - start);
                        hint.fetch_sub(back, Ordering::Relaxed);
                    }
                    _ => prop_assert!(queue.entries().eq(model.iter().copied())),
                }
            }
        }
    }

    #[test]
    fn malformed_cells_are_an_error_and_no_endless_loop() {
        let (cells, head, tail) = ring(4, 0);
        let queue = Queue { cells: &cells, head: &head, tail: &tail };
        for (at, garbage) in [(0, u64::MAX >> 1), (0, Cell::full(9, 1).0), (0, Cell::empty(7).0)] {
            cells[at].store(garbage, Ordering::Relaxed);
            assert_eq!(
                queue.pop(|_| None::<()>, "test").map_err(|error| error.kind()),
                Err(ErrorKind::Corrupt)
            );
            assert_eq!(
                queue.push(0, |_| false, "test").map_err(|error| error.kind()),
                Err(ErrorKind::Corrupt)
            );
        }
        tail.store(1 << 50, Ordering::Relaxed);
        assert!(queue.push(0, |_| false, "test").is_err());
    }
}
