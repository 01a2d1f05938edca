//! The number that identifies a call.

use super::layout::MAX_SLOTS;
use super::slot::SlotWord;

/// A call in progress: `{ generation: 40, slot: 24 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

const _: () = assert!(MAX_SLOTS <= 1 << Ticket::SLOT_BITS, "a ticket holds the number of any slot");

impl Ticket {
    const SLOT_BITS: u32 = 24;

    pub(crate) fn new(idx: u32, word: SlotWord) -> Ticket {
        Ticket(word.generation() << Ticket::SLOT_BITS | u64::from(idx))
    }

    /// As a number, for instance to keep it in another language.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From that number. A number that was never a ticket is `Stale` wherever it is used.
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket(bits)
    }

    /// The index of its slot, which is below [`Geometry::slots`](crate::reqrep::Geometry::slots) if
    /// it is a ticket of that segment.
    pub fn idx(self) -> u32 {
        (self.0 & ((1 << Ticket::SLOT_BITS) - 1)) as u32
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 >> Ticket::SLOT_BITS
    }
}
