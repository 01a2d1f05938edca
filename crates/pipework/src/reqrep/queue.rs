//! The ring of slots that wait for a server. SEGMENT.md has the algorithm: claim, then unlink; everyone helps.
//!
//! One compare-and-swap of one cell is all that a push or an unlink is, as in Tsigas and Zhang, "A simple, fast and scalable non-blocking
//! concurrent FIFO queue" (SPAA 2001); laps instead of their two kinds of null, and hints for head and tail.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicU64, Ordering};

/// `{ lap: 40, full: 1, slot: 23 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u64);

const FULL: u64 = 1 << 23;
const SLOT: u64 = FULL - 1;
const LAP_SHIFT: u32 = 24;
const LAPS: u64 = (1 << 40) - 1;

impl Cell {
    fn empty(lap: u64) -> Cell {
        Cell((lap & LAPS) << LAP_SHIFT)
    }

    fn full(lap: u64, slot: u32) -> Cell {
        Cell(Cell::empty(lap).0 | FULL | u64::from(slot))
    }

    fn is_full(self, lap: u64) -> bool {
        self.0 & !SLOT == Cell::full(lap, 0).0
    }

    fn slot(self) -> u32 {
        (self.0 & SLOT) as u32
    }
}

/// The ring, borrowed from a segment.
#[derive(Clone, Copy)]
pub(super) struct Queue<'a> {
    /// A power of two of them.
    pub(super) cells: &'a [AtomicU64],
    /// Position; may lag, never leads.
    pub(super) head: &'a AtomicU64,
    /// Position; may lag, never leads.
    pub(super) tail: &'a AtomicU64,
}

/// What a pop came back with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Popped<T> {
    /// What was claimed; `None` if the ring is empty.
    pub(super) claimed: Option<T>,
    /// Entries that belonged to calls which are over.
    pub(super) stale: u32,
}

impl Queue<'_> {
    /// Appends a slot; false if the ring is full, which it is of stale entries only. `is_sent` tells of any slot whether it waits for a server.
    pub(super) fn push(&self, slot: u32, is_sent: impl Fn(u32) -> bool, op: &'static str) -> Result<bool> {
        for _ in 0..self.patience() {
            // Relaxed, for all hints: what is read there is only believed if the cell agrees.
            let tail = self.tail.load(Ordering::Relaxed);
            let (at, lap) = self.place(tail);
            // Acquire: pairs with the Release of the unlink, and of the push.
            let cell = Cell(at.load(Ordering::Acquire));
            if cell == Cell::empty(lap) {
                // Release: pairs with the Acquire of the pop, which must see the slot sent.
                if swap(at, cell, Cell::full(lap, slot), Ordering::Release) {
                    self.help(self.tail, tail);
                    return Ok(true);
                }
            } else if cell.is_full(lap) || cell == Cell::empty(lap + 1) {
                self.help(self.tail, tail);
            } else if cell.is_full(lap.wrapping_sub(1)) {
                if is_sent(cell.slot()) {
                    return Ok(false);
                }
                if swap(at, cell, Cell::empty(lap), Ordering::Release) {
                    self.help(self.head, tail.wrapping_sub(self.cells.len() as u64));
                }
            } else if self.tail.load(Ordering::Relaxed) == tail {
                break;
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    /// Takes the first entry whose slot `claim` claims.
    pub(super) fn pop<T>(
        &self,
        mut claim: impl FnMut(u32) -> Option<T>,
        op: &'static str,
    ) -> Result<Popped<T>> {
        let mut stale = 0;
        for _ in 0..self.patience() {
            let head = self.head.load(Ordering::Relaxed);
            let (at, lap) = self.place(head);
            // Acquire: pairs with the Release of the push.
            let cell = Cell(at.load(Ordering::Acquire));
            if cell.is_full(lap) {
                let claimed = claim(cell.slot());
                // Release: pairs with the Acquire of the push, so that nobody meets the freed cell before the claim.
                if swap(at, cell, Cell::empty(lap + 1), Ordering::Release) {
                    self.help(self.head, head);
                    stale += u32::from(claimed.is_none());
                }
                if claimed.is_some() {
                    return Ok(Popped { claimed, stale });
                }
            } else if cell == Cell::empty(lap) {
                return Ok(Popped { claimed: None, stale });
            } else if cell == Cell::empty(lap + 1) || cell.is_full(lap + 1) {
                self.help(self.head, head);
            } else if self.head.load(Ordering::Relaxed) == head {
                break;
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    /// Entries, stale ones included. Others may change it meanwhile.
    pub(super) fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        let len = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        usize::try_from(len).map_or(0, |len| len.min(self.cells.len()))
    }

    /// Every slot in the ring, in order, as far as one look can tell.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        let head = self.head.load(Ordering::Relaxed);
        let cells = (0..self.cells.len() as u64).map(move |off| {
            let (at, lap) = self.place(head.wrapping_add(off));
            (Cell(at.load(Ordering::Acquire)), lap)
        });
        cells.filter(|(cell, lap)| cell.is_full(*lap)).map(|(cell, _)| cell.slot())
    }

    fn place(&self, pos: u64) -> (&AtomicU64, u64) {
        let idx = pos & (self.cells.len() as u64 - 1);
        (&self.cells[idx as usize], pos >> self.cells.len().trailing_zeros())
    }

    fn help(&self, hint: &AtomicU64, from: u64) {
        let _ = hint.compare_exchange(from, from.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Turns that are far more than any honest company of processes makes necessary.
    fn patience(&self) -> usize {
        (1 << 20) + 8 * self.cells.len()
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
        /// Against a plain queue, from any starting position, hints lagging by any amount that a death can cause.
        #[test]
        fn entries_come_out_in_order_whatever_the_hints(
            steps in proptest::collection::vec((0u8..8, 0u32..4), 1..200),
            start in prop_oneof![0u64..100, (1u64 << 42) - 50..(1 << 42) + 50],
        ) {
            let (cells, head, tail) = ring(8, start);
            let queue = Queue { cells: &cells, head: &head, tail: &tail };
            let mut model = VecDeque::new();
            let mut sent = [true; 4];
            for (step, slot) in steps {
                match step {
                    0..=2 => {
                        let pushed = queue.push(slot, |slot| sent[slot as usize], "test").expect("well formed");
                        // A full ring first loses the stale entries at its head.
                        if model.len() == 8 {
                            while pushed && model.front().is_some_and(|slot: &u32| !sent[*slot as usize]) && model.len() == 8 {
                                model.pop_front();
                            }
                        }
                        prop_assert_eq!(pushed, model.len() < 8);
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
                        // A death before the help: hints lag by one.
                        let lag = |hint: &AtomicU64| hint.fetch_sub(u64::from(hint.load(Ordering::Relaxed) > start), Ordering::Relaxed);
                        if queue.len() < 7 && !model.is_empty() { lag(&tail); }
                    }
                    _ => prop_assert!(queue.entries().eq(model.iter().copied())),
                }
            }
        }
    }

    #[test]
    fn what_no_peer_writes_is_an_error_and_no_endless_loop() {
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
