//! From one side to the other: a request into the ring and a server woken, a client notified, a
//! slot freed for all.

use std::collections::BTreeSet;

use super::mapping::Shared;
use super::slot::{Slot, State};
use crate::error::Result;
use crate::sync::{Ordering, Reach};

impl Shared {
    /// Pushes a sent slot and wakes a server; false if the ring is full.
    #[inline]
    pub(crate) fn enqueue(&self, idx: u32, op: &'static str) -> Result<bool> {
        let pushed = self.queue().push(idx, |idx| self.is_sent(idx), op)?;
        if pushed {
            self.requests().notify_swapped(Reach::Machine);
        }
        Ok(pushed)
    }

    /// Notifies the client of a slot that its call is done.
    #[inline]
    pub(crate) fn tell_client(&self, slot: &Slot, waiter: bool, client: u16) {
        if waiter {
            slot.wake();
        }
        if let Some(member) = self.member(client) {
            member.bell.notify_swapped(Reach::Machine);
        }
    }

    /// Puts requests of `me` into the ring that were sent again and have no entry.
    pub(crate) fn enqueue_again(&self, me: u16, op: &'static str) -> Result<()> {
        let is_sent_again = |idx: &u32| {
            let word = self.slot(*idx).map(|slot| slot.load());
            word.is_some_and(|word| word.is(State::Sent, me) && word.delivery() > 0)
        };
        let again: BTreeSet<u32> = self.slots().map(|(idx, _)| idx).filter(is_sent_again).collect();
        if again.is_empty() {
            return Ok(());
        }
        // Without this check, each tick would add an entry that is not stale, until the ring is
        // full.
        let queued: BTreeSet<u32> = self.queue().entries().collect();
        again.difference(&queued).try_for_each(|idx| self.enqueue(*idx, op).map(drop))
    }

    /// A slot has come free in the last step, whichever member held it.
    pub(crate) fn slot_is_free(&self, idx: u32) {
        if self.space().is_awaited() {
            self.freed().store(u64::from(idx), Ordering::Relaxed);
            self.space().wake_one(Reach::Machine);
        }
    }
}
