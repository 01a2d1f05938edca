//! The ring of slots that wait for a server. SEGMENT.md has the algorithm: claim, then unlink; head
//! and tail are hints.
//!
//! A push or an unlink is one compare-and-swap of one cell, as in Tsigas and Zhang, "A simple, fast
//! and scalable non-blocking concurrent FIFO queue" (SPAA 2001), with laps instead of their two
//! kinds of null. A cell knows its own position, so the first look corrects a hint that lags, and
//! the hint is written without a swap.

use super::layout::MAX_SLOTS;
use super::word::SlotWord;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicU64, Ordering};

/// An entry: the slot of a request, and which of the slot's calls it was pushed for. No other call is
/// claimed through it, unless their generations differ by a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry(u32);

impl Entry {
    /// That of the call which the slot has with this word.
    pub(crate) fn of(slot: u32, word: SlotWord) -> Entry {
        let call = word.generation() << SLOT_BITS & CALL;
        Entry(call as u32 | slot)
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 & SLOT
    }

    /// Whether it was pushed for the call which the slot has with this word.
    pub(crate) fn is_of(self, word: SlotWord) -> bool {
        self == Entry::of(self.slot(), word)
    }
}

/// `{ lap: 39, full: 1, call: 4, slot: 20 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u64);

const SLOT_BITS: u32 = 20;
const SLOT: u32 = (1 << SLOT_BITS) - 1;
const CALL: u64 = 0xF << SLOT_BITS;
const FULL: u64 = 1 << 24;
const LAP_SHIFT: u32 = 25;
const LAPS: u64 = (1 << 39) - 1;
const _: () = assert!(MAX_SLOTS - 1 <= SLOT, "a cell holds the number of any slot");

impl Cell {
    fn empty(lap: u64) -> Cell {
        Cell((lap & LAPS) << LAP_SHIFT)
    }

    fn full(lap: u64, entry: Entry) -> Cell {
        Cell(Cell::empty(lap).0 | FULL | u64::from(entry.0))
    }

    fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// How many laps the cell is ahead of `lap`; negative if it is behind.
    fn ahead_of(self, lap: u64) -> i64 {
        // Laps wrap: the difference has 39 bits, and its highest bit is the sign.
        let difference = (self.0 >> LAP_SHIFT).wrapping_sub(lap) << LAP_SHIFT;
        difference as i64 >> LAP_SHIFT
    }

    fn entry(self) -> Entry {
        Entry((self.0 & (CALL | u64::from(SLOT))) as u32)
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

/// What a server does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim<T> {
    /// It has claimed the call.
    Claimed(T),
    /// It has seen that the entry is stale, and removes it.
    Stale,
    /// It cannot take the call, and leaves the entry to others.
    Left,
}

impl<T> From<Option<T>> for Claim<T> {
    /// `None` is stale.
    fn from(claimed: Option<T>) -> Claim<T> {
        claimed.map_or(Claim::Stale, Claim::Claimed)
    }
}

/// The result of a pop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Popped<T> {
    /// The claimed slot; `None` if the ring is empty, or the first entry was left.
    pub(crate) claimed: Option<T>,
    /// How many entries of ended calls were removed.
    pub(crate) stale: u32,
}

impl Queue<'_> {
    /// Appends an entry; returns false if the ring is full, which only stale entries can cause.
    /// `is_needed` says whether an entry must stay.
    #[inline]
    pub(crate) fn push(
        &self,
        entry: Entry,
        is_needed: impl Fn(Entry) -> bool,
        op: &'static str,
    ) -> Result<bool> {
        // Relaxed, for all hints: a hint counts only if the cell agrees.
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(tail);
            // Swaps without loading the cell first: the hint is mostly right, so the line is
            // fetched once instead of twice. Release: pairs with the Acquire of the pop, which must
            // see the slot sent. Acquire: pairs with the Release of the unlink, and of the push.
            let (empty, full) = (Cell::empty(lap), Cell::full(lap, entry));
            let swapped = at.compare_exchange(empty.0, full.0, Ordering::AcqRel, Ordering::Acquire);
            let Err(bits) = swapped else {
                self.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
                return Ok(true);
            };
            let cell = Cell(bits);
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, ahead) if ahead >= 0 => tail = self.after(tail, ahead as u64),
                (false, ahead) if ahead > 0 => tail = self.after(tail, ahead as u64 - 1),
                (true, -1) if is_needed(cell.entry()) => return Ok(false),
                (true, -1) => drop(swap(at, cell, Cell::empty(lap), Ordering::Release)),
                _ => break,
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    /// Whether a push would find the ring full.
    pub(crate) fn is_full(&self, is_needed: impl Fn(Entry) -> bool) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(tail);
            // Acquire: as in `push`.
            let cell = Cell(at.load(Ordering::Acquire));
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, ahead) if ahead >= 0 => tail = self.after(tail, ahead as u64),
                (false, ahead) if ahead > 0 => tail = self.after(tail, ahead as u64 - 1),
                (true, -1) => return is_needed(cell.entry()),
                // An empty cell, or a damaged one, which the push reports.
                _ => return false,
            }
        }
        false
    }

    /// Removes the first entry whose call `claim` claims, unless `claim` leaves one before it.
    #[inline]
    pub(crate) fn pop<T>(
        &self,
        mut claim: impl FnMut(Entry) -> Claim<T>,
        op: &'static str,
    ) -> Result<Popped<T>> {
        let (mut stale, mut head) = (0, self.head.load(Ordering::Relaxed));
        for _ in 0..self.max_attempts() {
            let (at, lap) = self.place(head);
            // Acquire: pairs with the Release of the push.
            let cell = Cell(at.load(Ordering::Acquire));
            match (cell.is_full(), cell.ahead_of(lap)) {
                (true, 0) => {
                    let claimed = match claim(cell.entry()) {
                        Claim::Claimed(claimed) => Some(claimed),
                        Claim::Stale => None,
                        Claim::Left => return Ok(self.found_none(head, stale)),
                    };
                    // Release: pairs with the Acquire of the push, so that no push finds the freed
                    // cell before the claim.
                    let unlinked = swap(at, cell, Cell::empty(lap + 1), Ordering::Release);
                    stale += u32::from(unlinked && claimed.is_none());
                    if claimed.is_some() {
                        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
                        return Ok(Popped { claimed, stale });
                    }
                }
                (false, 0) => return Ok(self.found_none(head, stale)),
                (_, ahead) if ahead > 0 => head = self.after(head, ahead as u64 - 1),
                _ => break,
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    fn found_none<T>(&self, head: u64, stale: u32) -> Popped<T> {
        if stale > 0 {
            self.head.store(head, Ordering::Relaxed);
        }
        Popped { claimed: None, stale }
    }

    /// Every entry, in order, as one pass finds them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
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
                        return Some(cell.entry());
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
    pub(crate) fn entries_behind_first(&self) -> impl Iterator<Item = Entry> {
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

    fn entry(slot: u32) -> Entry {
        Entry::of(slot, SlotWord::from_bits(0))
    }

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
                        let is_needed = |other: Entry| other.slot() != slot && sent[other.slot() as usize];
                        let was_full = queue.is_full(is_needed);
                        let pushed = queue.push(entry(slot), is_needed, "test").expect("well formed");
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
                        let claim =
                            |entry: Entry| sent[entry.slot() as usize].then_some(entry.slot()).into();
                        let popped = queue.pop(claim, "test").expect("well formed");
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
                    _ => prop_assert!(queue.entries().map(Entry::slot).eq(model.iter().copied())),
                }
            }
        }
    }

    #[test]
    fn malformed_cells_are_an_error_and_no_endless_loop() {
        let (cells, head, tail) = ring(4, 0);
        let queue = Queue { cells: &cells, head: &head, tail: &tail };
        for (at, garbage) in [(0, u64::MAX >> 1), (0, Cell::full(9, entry(1)).0), (0, Cell::empty(7).0)] {
            cells[at].store(garbage, Ordering::Relaxed);
            assert_eq!(
                queue.pop(|_| Claim::<()>::Stale, "test").map_err(|error| error.kind()),
                Err(ErrorKind::Corrupt)
            );
            assert_eq!(
                queue.push(entry(0), |_| false, "test").map_err(|error| error.kind()),
                Err(ErrorKind::Corrupt)
            );
        }
        tail.store(1 << 50, Ordering::Relaxed);
        assert!(queue.push(entry(0), |_| false, "test").is_err());
    }
}
