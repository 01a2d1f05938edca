//! The calls of a segment: their state, the steps that concern more than the word of one slot, and what is
//! done for them after a death.

use super::layout::Direction;
use super::queue::Entry;
use super::shared::{Calls, Role, Shared};
use super::slot::{Holding, Mark, Slot, SlotWord, State};
use super::word::Ticket;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::mapping::count;
use crate::segment::message::{Message, Payload};
use crate::segment::naming::{Blobs, NamedBlobs};
use crate::segment::recovery::{Named, Recover};
use crate::sync::{Ordering, Reach};
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
        let before = self.own.acquired.from(0).take_while(move |idx| *idx < first);
        self.own.acquired.from(first).chain(before).filter_map(move |idx| {
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

/// Steps from one side to the other: puts a request into the ring and wakes a server, notifies a
/// client or a server, frees a slot for all clients.
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

/// Steps of the server that claimed `taken`, in its turn. Replies that come in parts: the slot holds one
/// part, and the two sides take turns.
///
/// Invariant: a side accesses the reply only in its turn. The bytes that the client has copied out
/// count only after its own swap has passed the turn on.
impl Shared {
    /// Step 16: gives the client a part of the reply. False if the client no longer waits, or the
    /// request is no longer this server's.
    pub(crate) fn give_part(
        &self,
        (idx, taken): (u32, SlotWord),
        part: &Message<'_>,
        op: &'static str,
    ) -> Result<bool> {
        let naming = self.write(Direction::Reply.of(idx), part, op)?;
        // Another server may have the request by now: then the fields are that server's.
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else {
            return Ok(false);
        };
        slot.set_holder(taken.owner(), Mark::Whole, naming.named());
        let client = slot.caller().client;
        let passed = slot.pass_to_client(taken);
        if let Some(before) = passed {
            naming.publish();
            self.tell_client(slot, before.has_waiter(), client);
        }
        Ok(passed.is_some())
    }

    /// Writes the reason of a failure for the client, cut to the space in the slot. In the client's
    /// turn it writes none.
    pub(crate) fn write_reason(&self, (idx, taken): (u32, SlotWord), reason: &Message<'_>) {
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else { return };
        let reason = reason.cut(self.geometry().bytes(Direction::Reply));
        let is_said = !reason.payload.is_empty();
        // If there is no page for the reason, the call fails without it.
        let is_written = is_said && self.write(Direction::Reply.of(idx), &reason, "reqrep fail").is_ok();
        let mark = if is_written { Mark::Reason } else { Mark::Whole };
        slot.set_holder(taken.owner(), mark, NamedBlobs::default());
    }
}

/// Steps of the client of a call, in its turn.
impl Shared {
    /// Step 17: takes the part that has come; returns its flags. `None` if the call was ended
    /// meanwhile: then the bytes that were read mean nothing.
    pub(crate) fn take_part(
        &self,
        idx: u32,
        part: SlotWord,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some(slot) = self.slot(idx) else { return Ok(None) };
        let received = self.read(Direction::Reply.of(idx), (payload, blobs), max, op);
        let received = received.and_then(|flags| flags.ok_or(Error::new(ErrorKind::Corrupt, op)));
        let flags = match received {
            // Another thread has cancelled the call, so the bytes that were read belong to another
            // call.
            Err(_) if !slot.is_still(part) => return Ok(None),
            received => received?,
        };
        let server = slot.fields().server;
        let other_threads_wait = self.own.parts.lock();
        let passed = slot.pass_to_server(part, &self.leaving(idx));
        drop(other_threads_wait);
        if passed {
            self.ring_server(server);
        }
        Ok(passed.then_some(flags))
    }
}

/// A step of a slot: the word that was read, and the word without a member that is gone.
type Step = (SlotWord, SlotWord);

impl Recover for Calls {
    type Step = Step;

    fn words_of_members(shared: &Shared) -> u32 {
        shared.geometry().slots
    }

    fn names(shared: &Shared, idx: u32, are_gone: impl Fn(u16) -> bool) -> Option<Named<Step>> {
        let slot = shared.slot(idx)?;
        // The fields are read after the word: if they do not belong to it, the swap fails.
        let word = slot.load();
        let fields = slot.fields();
        word.names(fields).into_iter().filter(|number| are_gone(*number)).find_map(|number| {
            let next = word.without(number, fields)?;
            Some(Named { word: idx, number, step: (word, next) })
        })
    }

    fn remove(shared: &Shared, named: &Named<Step>, done: impl FnOnce()) {
        let (idx, (word, next)) = (named.word, named.step);
        let Some(slot) = shared.slot(idx) else { return };
        let leaving = shared.leaving(idx);
        // A part may have got the same word again before the death: see `leaving`.
        let is_still = word.state() != Some(State::Part) || slot.load() == word;
        if is_still && slot.take_out(word, next, &leaving) {
            done();
            shared.tell_of_death(idx, word, next);
        }
    }

    /// Pushes the requests that may have no entry. False if the ring is full.
    fn finish(shared: &Shared, op: &'static str) -> Result<bool> {
        shared.enqueue_again(op)
    }

    /// A server may be the only member that makes space in the ring. A client may never wait again.
    fn finishes_later(role: Role) -> bool {
        role == Role::Server
    }
}

impl Shared {
    /// The effects of a slot's step from `word` to `next`, which removes a member from it.
    pub(crate) fn tell_of_death(&self, idx: u32, word: SlotWord, next: SlotWord) {
        let Some(slot) = self.slot(idx) else { return };
        match next.state() {
            Some(State::Sent) => {
                // It is pushed when all slots are done.
                count(self.redelivered());
            }
            Some(State::Free) => {
                self.slot_is_free(idx);
                // It may have been the first entry in a full ring.
                self.ring_may_have_space();
            }
            Some(State::Dropped) => {
                if word.has_waiter() {
                    slot.wake();
                }
                self.ring_server(next.owner());
            }
            _ => self.tell_client(slot, word.has_waiter(), next.owner()),
        }
    }
}
