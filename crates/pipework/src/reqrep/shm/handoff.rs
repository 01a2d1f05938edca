//! Steps from one side to the other: puts a request into the ring and wakes a server, notifies a
//! client or a server, frees a slot for all clients.

use super::mapping::Shared;
use super::queue::Entry;
use super::slot::{Slot, SlotWord, State};
use crate::error::Result;
use crate::sync::{Ordering, Reach};

impl Shared {
    /// Pushes the call that a client has `sent` in a slot; returns false if the ring is full.
    #[inline]
    pub(crate) fn push(&self, idx: u32, sent: SlotWord, op: &'static str) -> Result<bool> {
        let entry = Entry::of(idx, sent);
        // The same entry can be there: from a process that recovered another one.
        self.queue().push(entry, |other| other != entry && self.is_waiting(other), op)
    }

    /// The same, and wakes a server.
    #[inline]
    pub(crate) fn enqueue(&self, idx: u32, sent: SlotWord, op: &'static str) -> Result<bool> {
        let pushed = self.push(idx, sent, op)?;
        if pushed {
            self.requests().notify_swapped(Reach::Machine);
        }
        Ok(pushed)
    }

    /// Notifies the client of a slot that its call is done, or that it is its turn.
    #[inline]
    pub(crate) fn tell_client(&self, slot: &Slot, waiter: bool, client: u16) {
        if waiter {
            slot.wake();
        }
        if let Some(member) = self.member(client) {
            member.bell.notify_swapped(Reach::Machine);
            // After the same fence. Any thread that waits there can use the news.
            member.any.wake_one(Reach::Machine);
        }
    }

    /// Rings the doorbell of a server: a client has made a step in one of its slots.
    pub(crate) fn ring_server(&self, server: u16) {
        if let Some(member) = self.member(server) {
            member.bell.notify_swapped(Reach::Machine);
        }
    }

    /// Pushes the requests that no client pushes and that have no entry that stays: requests that
    /// were sent again, and forgotten requests whose clients may have died before the push. Returns
    /// false if the ring is full.
    pub(crate) fn enqueue_again(&self, op: &'static str) -> Result<bool> {
        let may_lack_entry = |(idx, slot): (u32, &Slot)| {
            let word = slot.load();
            let may_lack = word.state() == Some(State::Sent) && (word.delivery() > 0 || word.owner() == 0);
            may_lack.then(|| Entry::of(idx, word))
        };
        let mut again: Vec<Option<Entry>> = self.slots().map(may_lack_entry).collect();
        if again.iter().all(Option::is_none) {
            return Ok(true);
        }
        // Otherwise each recovery would add an entry that is not stale, until the ring is full.
        for entry in self.queue().entries_behind_first() {
            again.get_mut(entry.slot() as usize).into_iter().for_each(|again| {
                again.take_if(|again| *again == entry);
            });
        }
        for entry in again.into_iter().flatten() {
            if !self.push_again(entry, op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Pushes a call that was sent again, and wakes a server; returns false if the ring is full.
    pub(crate) fn push_again(&self, entry: Entry, op: &'static str) -> Result<bool> {
        // This push removes no entry of the same call: another recovering process may rely on that
        // entry.
        let pushed = self.queue().push(entry, |other| self.is_waiting(other), op)?;
        if pushed {
            self.requests().notify_swapped(Reach::Machine);
        }
        Ok(pushed)
    }

    /// The last step may have made space in a full ring: it has removed an entry, or made one
    /// stale. Wakes all waiters, because the step may also have claimed the request of any of them
    /// through an older entry of its slot.
    #[inline]
    pub(crate) fn ring_may_have_space(&self) {
        self.cells().notify_all_swapped(Reach::Machine);
    }

    /// The last step has freed a slot, whichever member held it.
    pub(crate) fn slot_is_free(&self, idx: u32) {
        if self.space().is_awaited() {
            self.freed().store(u64::from(idx), Ordering::Relaxed);
            self.space().wake_one(Reach::Machine);
        }
    }
}
