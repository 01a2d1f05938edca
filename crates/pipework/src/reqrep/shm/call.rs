//! How the calls of a segment stand.

use super::mapping::Shared;
use super::slot::{Slot, State};
use super::ticket::Ticket;
use crate::sync::Ordering;

impl Shared {
    /// Calls of a client that are in progress: sent, and their replies not received.
    pub(crate) fn calls_of(&self, me: u16) -> impl Iterator<Item = Ticket> {
        self.slots().filter_map(move |(idx, slot)| {
            let word = slot.load();
            let is_mine = match word.state() {
                Some(State::Taken) => slot.client.load(Ordering::Relaxed) == u32::from(me),
                state => word.owner() == me && state != Some(State::Dropped),
            };
            is_mine.then(|| Ticket::new(idx, word))
        })
    }

    /// Whether so many slots are free now, and one.
    pub(crate) fn has_free(&self, more: usize) -> bool {
        let is_free = |(_, slot): &(u32, &Slot)| slot.load().state() == Some(State::Free);
        self.slots().filter(is_free).nth(more).is_some()
    }

    /// Whether a request waits for a server.
    pub(crate) fn has_request(&self) -> bool {
        self.queue().entries().any(|idx| self.is_sent(idx))
    }

    /// Whether so many requests and one could be sent: there are free slots, and the ring is not full, or would not be after a push has thrown the first one out.
    pub(crate) fn has_space(&self, more: usize) -> bool {
        let queue = self.queue();
        let first_waits = || queue.entries().next().is_some_and(|idx| self.is_sent(idx));
        let is_full = || queue.len() >= self.geometry().queue as usize && first_waits();
        self.has_free(more) && !is_full()
    }

    pub(crate) fn is_sent(&self, idx: u32) -> bool {
        self.slot(idx).is_some_and(|slot| slot.load().state() == Some(State::Sent))
    }
}

/// Who calls, and how often the request may go to another server.
pub(crate) fn fields(slot: &Slot) -> (u16, u8) {
    let redeliveries = slot.redeliveries.load(Ordering::Relaxed).min(u32::from(u8::MAX));
    (slot.client.load(Ordering::Relaxed) as u16, redeliveries as u8)
}
