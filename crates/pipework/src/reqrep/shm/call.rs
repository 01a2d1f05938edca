//! The state of the calls of a segment.

use super::mapping::Shared;
use super::queue::Entry;
use super::slot::{Slot, SlotWord, State};
use super::ticket::Ticket;
#[cfg(test)]
use crate::sys::fault;

/// The state of a call, for the client that has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It waits for a server.
    Sent,
    /// A server has it and makes the next step.
    Taken,
    /// The client makes the next step, and this is the call's word: there is a part of the reply to
    /// take.
    Turn(SlotWord),
    /// It is done, and this is its word: the reply has come, or the reason for a failure.
    Done(SlotWord),
    /// It has ended, or was never this client's.
    Over,
}

impl Shared {
    /// The state of a call that the client `me` has sent.
    // Always inlined: waits poll it, and otherwise the compiler decides by the number of callers.
    #[inline(always)]
    pub(crate) fn standing(&self, ticket: Ticket, me: u16) -> Standing {
        let Some(slot) = self.slot(ticket.idx()) else { return Standing::Over };
        let now = slot.load();
        let is_mine = now.owner() == me;
        match now.state() {
            _ if now.generation() != ticket.generation() => Standing::Over,
            Some(State::Sent) if is_mine => Standing::Sent,
            Some(State::Taken) if slot.caller().client == me => Standing::Taken,
            Some(State::Part) if is_mine => Standing::Turn(now),
            Some(state) if state.is_done() && is_mine => Standing::Done(now),
            _ => Standing::Over,
        }
    }

    /// Whether the client of a call is to take a part of the reply.
    pub(crate) fn is_clients_turn(&self, ticket: Ticket) -> bool {
        let word = self.slot(ticket.idx()).map(|slot| slot.load());
        word.is_some_and(|word| word.state() == Some(State::Part) && word.generation() == ticket.generation())
    }

    /// The calls in progress of a client of this process: sent, and their replies not received.
    pub(crate) fn calls_of(&self, me: u16) -> impl Iterator<Item = Ticket> {
        self.calls_of_from(me, 0)
    }

    /// The same, starting at the slot `first`.
    pub(crate) fn calls_of_from(&self, me: u16, first: u32) -> impl Iterator<Item = Ticket> {
        let before = self.acquired.from(0).take_while(move |idx| *idx < first);
        self.acquired.from(first).chain(before).filter_map(move |idx| {
            #[cfg(test)]
            fault::reached("look at a call");
            let slot = self.slot(idx)?;
            let word = slot.load();
            let is_mine = match word.state() {
                Some(State::Taken) => slot.caller().client == me,
                // These belong to their server.
                Some(State::Dropped | State::Forgotten) => false,
                _ => word.owner() == me,
            };
            is_mine.then(|| Ticket::new(idx, word))
        })
    }

    /// How many slots are free now.
    pub(crate) fn free_slots(&self) -> usize {
        self.slots().filter(|(_, slot)| slot.load().state() == Some(State::Free)).count()
    }

    /// Whether more than `more` slots are free now.
    pub(crate) fn has_free(&self, more: usize) -> bool {
        let is_free = |(_, slot): &(u32, &Slot)| slot.load().state() == Some(State::Free);
        self.slots().filter(is_free).nth(more).is_some()
    }

    /// How many requests wait for a server and have an entry in the ring.
    pub(crate) fn waiting(&self) -> usize {
        // A request that was sent again may have two entries.
        let queue = self.queue();
        let waiting = queue.entries().filter(|entry| self.is_waiting(*entry));
        let mut slots: Vec<u32> = waiting.map(Entry::slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots.len()
    }

    /// Whether a request waits for a server.
    pub(crate) fn has_request(&self) -> bool {
        self.queue().entries().any(|entry| self.is_waiting(entry))
    }

    /// Whether the ring is full behind the entry of a call that waits for a server.
    pub(crate) fn is_ring_full(&self) -> bool {
        self.queue().is_full(|entry| self.is_waiting(entry))
    }

    /// Whether the call of an entry waits for a server.
    pub(crate) fn is_waiting(&self, entry: Entry) -> bool {
        self.slot(entry.slot()).is_some_and(|slot| {
            let word = slot.load();
            word.state() == Some(State::Sent) && entry.is_of(word)
        })
    }
}
