//! How a request gets into the segment: a slot for it, and a cell of the ring for the slot.

mod representing;

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::liveness::Liveness;
use super::shm::mapping::{Shared, count};
use super::shm::member::Attached;
use super::shm::slot::{Caller, Slot, SlotWord, State};
use super::shm::ticket::Ticket;
use super::waiters::{Place, Waiters};
use super::watch::{Topic, Watcher, WatcherState};
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Wait;
use crate::spin::{Looks, Spin, for_holders, for_turns};
use crate::sync::{Flag, Hint, Ordering, Reach};

/// A slot that was acquired, and its word.
type Acquired = (u32, SlotWord);

/// How many slots are looked at between two readings of the clock. Segments with no more than this
/// are searched at once.
const LOOKED_AT_ONCE: u32 = 256;

/// What a client asks for its calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How often a request may go to another server.
    pub(super) redeliveries: u8,
    /// Calls fail where there is no server.
    pub(super) needs_server: bool,
}

/// What is said of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) terms: Terms,
    /// The caller gets the ticket.
    pub(super) has_ticket: bool,
    /// Another part of the request follows the one that is placed.
    pub(super) follows: bool,
    /// Servers hear of it later, from [`Sender::announce`].
    pub(super) quietly: bool,
}

impl Sending {
    pub(super) fn new(terms: Terms, has_ticket: bool) -> Sending {
        Sending { terms, has_ticket, follows: false, quietly: false }
    }
}

/// The sending half of a client, and what it waits by.
#[derive(Debug)]
pub(super) struct Sender {
    // Its thread ends before the membership does.
    space: Watcher,
    shared: Arc<Shared>,
    membership: Attached,
    /// Shared with the client's threads.
    liveness: Arc<Liveness>,
    waiters: Arc<Waiters>,
    spin: Spin,
    /// For the server's step in a call that goes in parts.
    turn_spin: Spin,
    /// For callers that hold what others need, and give it away before they wait.
    held_spin: Spin,
    /// For slots: where there are many, a look costs more than a few loads.
    slot_spin: Spin,
    /// Where to look for a free slot first: one that was ours a moment ago is still in our caches.
    likely: Hint,
    /// The event `space` as it was when all slots were looked at in vain; 0 if it may have changed
    /// unnoticed.
    full: Hint,
    /// How many slots had [come free](Waiters::freed) here then.
    full_after: Hint,
    /// Whether a request that does not wait has found the ring full: the next one looks before it
    /// acquires a slot.
    ring_was_full: Flag,
}

/// From this many slots on, looking at all of them costs too much to spin.
const MANY: u32 = 1024;

impl Sender {
    /// `limit` calls may be in progress at a time; 0 is no limit.
    pub(super) fn new(membership: Attached, spin: Duration, limit: u32, op: &'static str) -> Result<Sender> {
        let shared = Arc::clone(membership.shared());
        let waiters = Arc::new(Waiters::new(Arc::clone(&shared), limit));
        // Clients begin to look at places far from each other (2^32 divided by the golden ratio).
        let number = u64::from(membership.number(op)?);
        let slots = shared.geometry().slots;
        let likely = number.wrapping_mul(0x9E37_79B9) % u64::from(slots);
        let slot_spin = if slots > MANY { Duration::ZERO } else { spin };
        Ok(Sender {
            space: Watcher::new(),
            shared,
            liveness: Arc::new(Liveness::new(&membership)),
            membership,
            waiters,
            spin: Spin::new(spin, Looks::Load),
            turn_spin: Spin::new(for_turns(spin), Looks::Load),
            held_spin: Spin::new(for_holders(spin), Looks::Load),
            slot_spin: Spin::new(slot_spin, Looks::Call),
            likely: Hint::new(likely),
            full: Hint::new(0),
            full_after: Hint::new(0),
            ring_was_full: Flag::new(),
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// The client's number. The first call in a forked child joins there.
    #[inline]
    pub(super) fn number(&self, op: &'static str) -> Result<u16> {
        self.membership.number(op)
    }

    /// The same before the client's calls are found by it: where others have taken the number away,
    /// they are the next holder's.
    #[inline]
    pub(super) fn present(&self, op: &'static str) -> Result<u16> {
        self.membership.present(op)
    }

    /// The calls in progress; none in a forked child that has not used this client.
    pub(super) fn calls_here(&self) -> Vec<Ticket> {
        self.membership.present_here().map_or(Vec::new(), |me| self.shared.calls_of(me).collect())
    }

    /// How many calls are in progress.
    pub(super) fn pending(&self, op: &'static str) -> Result<usize> {
        Ok(self.shared.calls_of(self.present(op)?).count())
    }

    /// How this client waits for anything that other processes do.
    pub(super) fn waiting(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        let tick = Some(self.liveness.tick());
        Wait { deadline, spin: &self.spin, reach: Reach::Machine, tick, op }
    }

    pub(super) fn held_spin(&self) -> &Spin {
        &self.held_spin
    }

    /// The same for a call that goes in parts.
    pub(super) fn waiting_for_turn(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        Wait { spin: &self.turn_spin, ..self.waiting(deadline, op) }
    }

    /// The same for a thread that looks at all of its calls each time.
    pub(super) fn waiting_for_any(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        Wait { spin: &self.slot_spin, ..self.waiting(deadline, op) }
    }

    /// Fails with `NoServer` where one is needed and none was there at the last tick, nor is now.
    pub(super) fn refuse_without_server(&self, terms: Terms, op: &'static str) -> Result<()> {
        let liveness = &self.liveness;
        if terms.needs_server && liveness.has_no_server() && !liveness.sees_server(&self.shared, op)? {
            return Err(Error::new(ErrorKind::NoServer, op));
        }
        Ok(())
    }

    /// What event loops and tasks wait by for a slot.
    pub(super) fn watch_space(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.number(op)?;
        let topic = Topic::Space(Arc::clone(&self.waiters));
        self.space.watch(&self.shared, &self.liveness, topic, op)
    }

    /// A request has found no slot, and whoever sends it does not wait.
    #[inline]
    pub(super) fn found_no_slot(&self) {
        self.space.found_none();
    }

    /// Whether an event loop waits for slots: then it may be what was woken.
    fn has_send_doorbell(&self) -> bool {
        self.space.asked_for().is_some_and(|watcher| watcher.has_descriptor())
    }
}

// ---------------------------------------------------------------- a place for a request

impl Sender {
    /// Puts a request into a slot and the slot into the ring; without a deadline only if that is
    /// possible now. A thread that has not waited in a `place` goes behind those that have. `write`
    /// writes the request, into the slot that it gets.
    #[inline]
    pub(super) fn place(
        &self,
        write: impl FnOnce(u32) -> Result<()>,
        Sending { terms, has_ticket, follows, quietly }: Sending,
        deadline: Option<Later<'_>>,
        place: Option<&Place>,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        let shared = &self.shared;
        let me = self.membership.present(op)?;
        if terms.needs_server && !self.liveness.sees_server(shared, op)? {
            return Err(Error::new(ErrorKind::NoServer, op));
        }
        let is_up = place.map_or_else(|| self.is_up(), Place::may_look)
            && (deadline.is_some() || !self.finds_ring_full());
        let (idx, filled) = match is_up.then(|| self.acquire(me, deadline)).flatten() {
            Some(slot) => slot,
            None => {
                count(&self.membership.member(me).counters.0.full);
                match self.acquire_waiting(me, terms, deadline, is_up, op)? {
                    Some(slot) => slot,
                    None => return Ok(None),
                }
            }
        };
        let slot = shared.slot(idx).ok_or(Error::new(ErrorKind::Corrupt, op))?;
        let freed_without_a_request = Unwritten { sender: self, idx, slot, filled };
        write(idx)?;
        mem::forget(freed_without_a_request);
        let redeliveries = terms.redeliveries;
        slot.set_caller(Caller { client: me, redeliveries, follows, has_ticket });
        let Some(sent) = slot.send(filled) else { return Err(Error::new(ErrorKind::Corrupt, op)) };
        let ticket = Ticket::new(idx, sent);
        let pushed = if quietly { shared.push(idx, op) } else { shared.enqueue(idx, op) };
        let queued = match pushed {
            Ok(true) => return Ok(Some(ticket)),
            Ok(false) => self.queue_waiting((idx, sent), terms, deadline, op),
            Err(error) => Err(error),
        };
        if queued == Ok(true) {
            return Ok(Some(ticket));
        }
        self.ring_was_full.set(true);
        self.found_no_slot();
        match slot.take_back(sent) {
            // An older entry of the slot has led a server to it: it is sent.
            None => Ok(Some(ticket)),
            Some(before) => {
                // A call that another thread has forgotten counts as this client's no more.
                match before.owner() {
                    0 => {
                        shared.slot_is_free(idx);
                        shared.cells().notify_all_swapped(Reach::Machine);
                    }
                    // An older entry of the slot is stale again.
                    _ => self.gave_up(idx),
                }
                queued.map(|_| None)
            }
        }
    }

    /// Whether the ring is full, for a request that does not wait for that: it would get a slot, and
    /// give it back, which notifies those that wait for one.
    #[inline]
    fn finds_ring_full(&self) -> bool {
        self.ring_was_full.is_set() && self.is_ring_full()
    }

    #[cold]
    fn is_ring_full(&self) -> bool {
        let is_full = self.shared.is_ring_full();
        self.ring_was_full.set(is_full);
        is_full
    }

    /// Wakes servers for requests that were placed quietly.
    pub(super) fn announce(&self, requests: u32) {
        if requests > 0 {
            self.shared.requests().notify_many_swapped(requests, Reach::Machine);
        }
    }

    /// Whether a newcomer may look for a slot: the line is empty, or there are slots for all in it,
    /// and one more.
    #[inline]
    fn is_up(&self) -> bool {
        self.waiters.is_empty() || self.is_up_beside_others()
    }

    #[cold]
    fn is_up_beside_others(&self) -> bool {
        let (shared, waiters) = (&self.shared, &self.waiters);
        let present = waiters.present();
        present == 0 || waiters.lets_in(present) && !self.is_full() && shared.has_free(present)
    }

    /// Acquires a slot, if one is free and the limit of this client admits the call.
    #[inline]
    fn acquire(&self, me: u16, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let is_in = self.waiters.enter();
        let slot = is_in.then(|| self.acquire_any(me, deadline)).flatten();
        if is_in && slot.is_none() && self.waiters.exit() {
            self.waiters.tell_of_end();
        }
        slot
    }

    #[inline]
    fn acquire_any(&self, me: u16, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let (shared, waiters) = (&self.shared, &self.waiters);
        if waiters.must_leave_one() && !shared.has_free(1) {
            return None;
        }
        let slots = shared.geometry().slots;
        match self.acquire_among(me, slots.min(LOOKED_AT_ONCE)) {
            None if slots > LOOKED_AT_ONCE => self.acquire_among_many(me, slots, deadline),
            found => found,
        }
    }

    /// Looks at this many slots, beginning where one is likely to be free.
    #[inline]
    fn acquire_among(&self, me: u16, slots: u32) -> Option<Acquired> {
        let (shared, mut idx) = (&self.shared, self.likely.get() as u32);
        for _ in 0..slots {
            if idx >= shared.geometry().slots {
                idx = 0;
            }
            if let Some(filled) = shared.slot(idx)?.acquire(me) {
                shared.acquired.add(idx);
                // The next one is likelier to be free than this one, until this one is freed.
                self.likely.set(u64::from(idx) + 1);
                return Some((idx, filled));
            }
            idx += 1;
        }
        None
    }

    /// Looks at all slots, but not past the deadline, and not again as long as none has come free
    /// since all were looked at in vain.
    #[cold]
    fn acquire_among_many(&self, me: u16, slots: u32, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let shared = &self.shared;
        if self.is_full() {
            return None;
        }
        let before = self.waiters.freed();
        let (seen, first) = (shared.space().seen(), self.likely.get());
        let freed = shared.freed().load(Ordering::Relaxed) as u32;
        if let Some(filled) = shared.slot(freed).and_then(|slot| slot.acquire(me)) {
            shared.acquired.add(freed);
            return Some((freed, filled));
        }
        for looked in (0..slots).step_by(LOOKED_AT_ONCE as usize) {
            if looked > 0 && deadline.is_some_and(|deadline| deadline().has_passed()) {
                // The next look goes on from here.
                return None;
            }
            self.likely.set((first + u64::from(looked)) % u64::from(slots));
            if let Some(found) = self.acquire_among(me, LOOKED_AT_ONCE) {
                return Some(found);
            }
        }
        self.full.set(seen.unwrap_or(0));
        self.full_after.set(before);
        None
    }

    /// Whether all slots were looked at in vain, and none has come free since: a slot that is for a
    /// waiter of this client changes its count, any other changes the event.
    fn is_full(&self) -> bool {
        let (full, after) = (self.full.get(), self.full_after.get());
        full != 0 && self.shared.space().is_still(full) && self.waiters.freed() == after
    }

    /// Registers a task in the line for slots: at the place that it has, or at a new one. The task
    /// must look once more after this.
    pub(super) fn join_line(
        &self,
        before: Option<Place>,
        waker: &Waker,
        terms: Terms,
        op: &'static str,
    ) -> Result<Place> {
        let watcher = self.watch_space(op)?;
        let place = match before {
            Some(place) => {
                if place.leave(waker, terms.needs_server) && self.shared.is_ring_full() {
                    // It has left its slot to those that can hold it until the ring has space.
                    self.shared.space().notify(Reach::Machine);
                }
                place
            }
            None => self.waiters.join_task(waker, terms.needs_server),
        };
        // That thread notices the slots that other clients free, and the cells.
        if watcher.has_descriptor() {
            // It may be parked for a loop, for which no time passes.
            watcher.rouse();
        } else {
            watcher.wake_thread();
        }
        Ok(place)
    }

    fn count_anew(&self, me: u16) -> bool {
        self.waiters.count_anew(|| self.shared.calls_of(me).count())
    }

    /// There is no slot: dead members may hold some, or one may come free.
    #[cold]
    fn acquire_waiting(
        &self,
        me: u16,
        terms: Terms,
        deadline: Option<Later<'_>>,
        is_up: bool,
        op: &'static str,
    ) -> Result<Option<Acquired>> {
        // An event loop may call with a deadline that has passed, and is to be notified of the next.
        self.found_no_slot();
        self.liveness.lacks_slot();
        let is_time = self.liveness.look_after(op)?;
        if self.count_anew(me) || is_time {
            // A process that died between freeing a slot and announcing that has left the mark as
            // it was.
            self.full.set(0);
            if let Some(slot) = is_up.then(|| self.acquire(me, deadline)).flatten() {
                return Ok(Some(slot));
            }
        }
        let Some(deadline) = deadline.map(|deadline| deadline()) else { return Ok(None) };
        let place = self.waiters.join();
        let slot = loop {
            if place.is_representative() {
                match self.represent(&place, me, terms, deadline, op)? {
                    Some(slot) => break slot,
                    None => continue,
                }
            }
            self.wait_in_line(&place, terms, deadline, op)?;
            if place.may_look()
                && let Some(slot) = self.acquire(me, None)
            {
                break slot;
            }
            place.wait_again();
        };
        place.is_served();
        Ok(Some(slot))
    }

    /// The ring is full of calls that are over: waits until a server has removed them. True once
    /// the request is in the ring or taken.
    fn queue_waiting(
        &self,
        (idx, sent): (u32, SlotWord),
        terms: Terms,
        deadline: Option<Later<'_>>,
        op: &'static str,
    ) -> Result<bool> {
        let Some(deadline) = deadline.map(|deadline| deadline()) else { return Ok(false) };
        let look = || {
            // Also if another thread has forgotten the call: nobody else pushes it.
            let waits = self.shared.slot(idx).is_some_and(|slot| slot.load().still_waits(sent));
            if !waits || self.shared.enqueue(idx, op)? {
                return Ok(Some(true));
            }
            self.refuse_without_server(terms, op)?;
            Ok(None)
        };
        // A server that claims a request wakes all that wait here, its client among them.
        self.shared.cells().wait(&self.waiting(deadline, op), look, || self.liveness.check(op))
    }
}

/// A slot that a request is written into. Dropping it frees the slot: writing has failed, or
/// foreign code that writes has panicked. Whether the thread panics does not tell: a destructor may
/// send meanwhile.
struct Unwritten<'a> {
    sender: &'a Sender,
    idx: u32,
    slot: &'a Slot,
    filled: SlotWord,
}

impl Drop for Unwritten<'_> {
    #[cold]
    fn drop(&mut self) {
        // If others took this client for dead meanwhile, the slot is not this call's any more.
        self.slot.step(self.filled, self.filled.freed());
        self.sender.gave_back(self.idx);
    }
}

/// A slot has come free.
impl Sender {
    /// A slot that was this client's, in the last step.
    #[inline]
    pub(super) fn gave_back(&self, idx: u32) {
        self.likely.set(u64::from(idx));
        if self.waiters.exit() | self.shared.space().is_awaited() {
            self.offer(idx);
        }
    }

    /// The slot of a call that this client has cancelled, whose word is now `left`.
    pub(super) fn cancelled(&self, idx: u32, me: u16, left: SlotWord) {
        count(&self.membership.member(me).counters.0.cancelled);
        match left.state() {
            Some(State::Free) => self.gave_up(idx),
            _ => self.left(left),
        }
    }

    /// A slot that is its server's now, or will be: it does not count as this client's any more.
    pub(super) fn left(&self, left: SlotWord) {
        self.shared.ring_server(left.owner());
        if self.waiters.exit() {
            self.waiters.tell_of_end();
        }
    }

    #[cold]
    fn offer(&self, idx: u32) {
        let (shared, waiters) = (&self.shared, &self.waiters);
        shared.freed().store(u64::from(idx), Ordering::Relaxed);
        if waiters.hand_over() {
            return;
        }
        // Before the wake-up: the woken thread may be the representative of this client, and takes
        // the offer back.
        waiters.offered();
        if !shared.space().wake_one(Reach::Machine) || self.has_send_doorbell() {
            waiters.took_offer();
        }
        // After that: it would leave to others what nobody came for.
        if waiters.is_limited() {
            waiters.tell_of_end();
        }
    }

    /// A slot whose entry in the ring is stale now: a full ring may have space.
    fn gave_up(&self, idx: u32) {
        self.gave_back(idx);
        self.shared.ring_may_have_space();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod woken;
