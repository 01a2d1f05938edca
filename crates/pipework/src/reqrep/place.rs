//! How a request gets into the segment: a slot for it, and a cell of the ring for the slot.
//!
//! Invariant: a thread that parks at `space` can use the next slot that becomes free. A thread that
//! finds there that it cannot leaves `space` and wakes another waiter, only once, because it parks
//! elsewhere after that. So a wake-up is passed on until it is used, and never goes back.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::shared::{CANCELLED, FULL, Shared};
use super::slot::{Caller, Slot, SlotWord, State};
use super::waiting::{Attached, Entry, Liveness, Steps, Topic, Waiters, Watcher, WatcherState};
use super::word::Ticket;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Wait;
use crate::segment::mapping::count;
use crate::segment::naming::Naming;
use crate::segment::waiters::GRACE;
use crate::spin::{Looks, Spin, for_holders, for_turns};
use crate::sync::{Flag, Hint, Ordering, Reach};
use crate::sys;

/// A slot that was acquired, and its word.
type Acquired = (u32, SlotWord);

/// How many slots are looked at between two readings of the clock. A segment with at most this many
/// slots is searched without reading it.
const LOOKED_AT_ONCE: u32 = 256;

/// The terms of a client's calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How many times a request may go to another server.
    pub(super) redeliveries: u8,
    /// Whether a call fails if no server is attached.
    pub(super) needs_server: bool,
}

/// How to place one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Whether the caller gets the ticket.
    pub(super) has_ticket: bool,
    /// Whether the caller takes the parts of the reply one by one.
    pub(super) takes_parts: bool,
    /// Whether servers are notified later, by [`Sender::announce`].
    pub(super) quietly: bool,
}

impl Sending {
    pub(super) fn new(has_ticket: bool) -> Sending {
        Sending { has_ticket, takes_parts: false, quietly: false }
    }

    /// Of a stream.
    pub(super) fn for_parts() -> Sending {
        Sending { takes_parts: true, ..Sending::new(false) }
    }
}

/// The sending half of a client, and how it waits.
#[derive(Debug)]
pub(super) struct Sender {
    // Its thread ends before the membership does.
    space: Watcher,
    shared: Arc<Shared>,
    membership: Attached,
    /// Shared with the client's threads.
    liveness: Arc<Liveness>,
    waiters: Arc<Waiters>,
    terms: Terms,
    spin: Spin,
    /// For the server's step in a call whose reply comes in parts.
    turn_spin: Spin,
    /// For callers that hold a resource that others need, and release it before they wait.
    held_spin: Spin,
    /// For slots: among many slots, one look costs more than a few loads.
    slot_spin: Spin,
    /// The slot to look at first: one that was just freed, or the one after the last acquired. With
    /// 3,000 tasks on 2,048 slots, p99 is 149 ms with this and 479 ms without it.
    likely: Hint,
    /// Whether a request that does not wait found the ring full: the next one checks the ring
    /// before it acquires a slot.
    ring_was_full: Flag,
}

/// With this many slots or more, one look at all of them costs too much to spin.
const MANY: u32 = 1024;

impl Sender {
    /// `limit` calls may be in progress at a time; 0 is no limit.
    pub(super) fn new(
        membership: Attached,
        spin: Duration,
        terms: Terms,
        limit: u32,
        op: &'static str,
    ) -> Result<Sender> {
        let shared = Arc::clone(membership.shared());
        let waiters = Arc::new(Waiters::new(Arc::clone(&shared), Shared::space, limit));
        // Clients start to look at slots far from each other (2^32 divided by the golden ratio).
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
            terms,
            spin: Spin::new(spin, Looks::Load),
            turn_spin: Spin::new(for_turns(spin), Looks::Load),
            held_spin: Spin::new(for_holders(spin), Looks::Load),
            slot_spin: Spin::new(slot_spin, Looks::Call),
            likely: Hint::new(likely),
            ring_was_full: Flag::new(),
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// The client's number. In a forked child, the first call joins.
    #[inline]
    pub(super) fn number(&self, op: &'static str) -> Result<u16> {
        self.membership.number(op)
    }

    /// The same, for use before the client's calls are found by its number: if another member has
    /// taken the number, the calls under it belong to that member.
    #[inline]
    pub(super) fn present(&self, op: &'static str) -> Result<u16> {
        self.membership.present(op)
    }

    /// The calls in progress; empty in a forked child that has not used this client.
    pub(super) fn calls_here(&self) -> Vec<Ticket> {
        self.membership.present_here().map_or(Vec::new(), |me| self.shared.calls_of(me).collect())
    }

    /// How many calls are in progress.
    pub(super) fn pending(&self, op: &'static str) -> Result<usize> {
        Ok(self.shared.calls_of(self.present(op)?).count())
    }

    /// How this client waits for steps of other processes.
    pub(super) fn waiting(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        let tick = Some(self.liveness.tick());
        let long = Some(&self.shared.long);
        Wait { deadline, spin: &self.spin, reach: Reach::Machine, tick, long, op }
    }

    pub(super) fn held_spin(&self) -> &Spin {
        &self.held_spin
    }

    /// The same for a call whose reply comes in parts.
    pub(super) fn waiting_for_turn(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        Wait { spin: &self.turn_spin, ..self.waiting(deadline, op) }
    }

    /// The same for a thread that looks at all of its calls each time.
    pub(super) fn waiting_for_any(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        Wait { spin: &self.slot_spin, ..self.waiting(deadline, op) }
    }

    /// Fails with `NoServer` if this client needs a server, and there was none at the last tick and
    /// is none now.
    pub(super) fn refuse_without_server(&self, op: &'static str) -> Result<()> {
        let liveness = &self.liveness;
        if self.terms.needs_server && liveness.has_no_server() && !liveness.sees_server(&self.shared, op)? {
            return Err(Error::new(ErrorKind::NoServer, op));
        }
        Ok(())
    }

    /// The watcher that notifies event loops and tasks of free slots.
    pub(super) fn watch_space(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.number(op)?;
        let steps = || Steps::Space(Arc::clone(&self.waiters), self.terms.needs_server);
        self.space.watch(|| self.topic(steps()), op)
    }

    /// What a watcher of this client waits for.
    pub(super) fn topic(&self, steps: Steps) -> Topic {
        Topic { shared: Arc::clone(&self.shared), liveness: Arc::clone(&self.liveness), steps }
    }

    /// Records that a request that does not wait found no slot.
    #[inline]
    pub(super) fn found_no_slot(&self) {
        self.space.found_none();
    }
}

// ---------------------------------------------------------------- placing a request

impl Sender {
    /// Puts a request into a slot and the slot into the ring; without a deadline, only if that is
    /// possible now. `entry` is the position of a task that is already in the wait queue: other
    /// callers go to its end. `write` writes the request into the slot.
    #[inline]
    pub(super) fn place(
        &self,
        write: impl FnOnce(u32) -> Result<Naming>,
        Sending { has_ticket, takes_parts, quietly }: Sending,
        deadline: Option<Later<'_>>,
        entry: Option<&Entry>,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        let shared = &self.shared;
        let me = self.membership.present(op)?;
        if self.terms.needs_server && !self.liveness.sees_server(shared, op)? {
            return Err(Error::new(ErrorKind::NoServer, op));
        }
        let may_look = entry.map_or_else(|| self.may_look(deadline.is_some()), Entry::may_look)
            && (deadline.is_some() || !self.finds_ring_full());
        let (idx, filled) = match may_look.then(|| self.acquire(me, deadline)).flatten() {
            Some(slot) => slot,
            None => {
                count(&self.membership.member(me).own.0[FULL]);
                match self.acquire_waiting(me, deadline, may_look, op)? {
                    Some(slot) => slot,
                    None => return Ok(None),
                }
            }
        };
        let slot = shared.slot(idx).ok_or(Error::new(ErrorKind::Corrupt, op))?;
        let freed_without_a_request = Unwritten { sender: self, idx, slot, filled };
        let naming = write(idx)?;
        mem::forget(freed_without_a_request);
        let redeliveries = self.terms.redeliveries;
        let named = naming.named();
        slot.set_caller(Caller { client: me, redeliveries, takes_parts, has_ticket, named });
        let Some(sent) = slot.send(filled) else { return Err(Error::new(ErrorKind::Corrupt, op)) };
        naming.publish();
        let ticket = Ticket::new(idx, sent);
        let pushed = if quietly { shared.push(idx, sent, op) } else { shared.enqueue(idx, sent, op) };
        let queued = match pushed {
            Ok(true) => return Ok(Some(ticket)),
            Ok(false) => self.queue_waiting((idx, sent), deadline, op),
            Err(error) => Err(error),
        };
        if queued == Ok(true) {
            return Ok(Some(ticket));
        }
        self.ring_was_full.set(true);
        self.found_no_slot();
        match slot.take_back(sent, &shared.leaving(idx)) {
            // A server found the request through an older entry of the slot. It is sent.
            None => Ok(Some(ticket)),
            Some(before) => {
                // A call that another thread has forgotten is not counted as this client's.
                match before.owner() {
                    0 => {
                        shared.slot_is_free(idx);
                        shared.cells().notify_all_swapped(Reach::Machine);
                    }
                    // The slot is free again, so an older entry of it is stale again.
                    _ => self.gave_up(idx),
                }
                queued.map(|_| None)
            }
        }
    }

    /// Whether the ring is full, for a request that does not wait for it. Otherwise the request
    /// would get a slot and free it again, which wakes waiters that cannot send either.
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

    /// Whether a newcomer may look for a slot; if not, it queues behind the others, if it `waits`.
    /// If it always looked, the p99 of 400 tasks on 16 slots would be 261 ms instead of 24 ms, and
    /// the longest wait of 64 threads on 2 slots 53 ms instead of 10 ms.
    #[inline]
    fn may_look(&self, waits: bool) -> bool {
        (self.waiters.is_empty() || self.may_look_beside_others(waits)) && !self.leaves_last_slot()
    }

    /// Whether every entry of the queue is missing; or, for a caller that does not wait, whether
    /// there is one slot more than entries. The entries may be tasks that are not polled.
    #[cold]
    fn may_look_beside_others(&self, waits: bool) -> bool {
        let waiters = &self.waiters;
        let present = waiters.present();
        present == 0 || !waits && waiters.lets_in(present) && self.shared.has_free(present)
    }

    /// Whether the only free slot is reserved for the client that was woken for it.
    #[inline]
    fn leaves_last_slot(&self) -> bool {
        self.waiters.leaves_last_place() && !self.shared.has_free(1)
    }

    /// Acquires a slot, if one is free and this client's limit allows the call.
    #[inline]
    fn acquire(&self, me: u16, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let is_in = self.waiters.enter();
        let slot = is_in.then(|| self.acquire_any(me, deadline)).flatten();
        if is_in && slot.is_none() && self.waiters.exit() {
            self.waiters.notify_ends();
        }
        slot
    }

    #[inline]
    fn acquire_any(&self, me: u16, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let slots = self.shared.geometry().slots;
        match self.acquire_among(me, slots.min(LOOKED_AT_ONCE)) {
            None if slots > LOOKED_AT_ONCE => self.acquire_among_many(me, slots, deadline),
            found => found,
        }
    }

    /// Looks at this many slots, starting where one is likely to be free.
    #[inline]
    fn acquire_among(&self, me: u16, slots: u32) -> Option<Acquired> {
        let (shared, mut idx) = (&self.shared, self.likely.get() as u32);
        for _ in 0..slots {
            if idx >= shared.geometry().slots {
                idx = 0;
            }
            if let Some(filled) = shared.slot(idx)?.acquire(me) {
                shared.own.acquired.add(idx);
                // The next slot is more likely to be free than this one, until this one is freed.
                self.likely.set(u64::from(idx) + 1);
                return Some((idx, filled));
            }
            idx += 1;
        }
        None
    }

    /// Looks at all slots, but not past the deadline.
    #[cold]
    fn acquire_among_many(&self, me: u16, slots: u32, deadline: Option<Later<'_>>) -> Option<Acquired> {
        let (shared, first) = (&self.shared, self.likely.get());
        let freed = shared.freed().load(Ordering::Relaxed) as u32;
        if let Some(filled) = shared.slot(freed).and_then(|slot| slot.acquire(me)) {
            shared.own.acquired.add(freed);
            return Some((freed, filled));
        }
        for looked in (0..slots).step_by(LOOKED_AT_ONCE as usize) {
            if looked > 0 && deadline.is_some_and(|deadline| deadline().has_passed()) {
                // The next look continues from here.
                return None;
            }
            self.likely.set((first + u64::from(looked)) % u64::from(slots));
            if let Some(found) = self.acquire_among(me, LOOKED_AT_ONCE) {
                return Some(found);
            }
        }
        None
    }

    /// Registers a task in the wait queue: at its position if it has one, otherwise at the end. The
    /// task must look once more after this.
    pub(super) fn register(&self, before: Option<Entry>, waker: &Waker, op: &'static str) -> Result<Entry> {
        let watcher = self.watch_space(op)?;
        let entry = match before {
            Some(entry) => {
                if entry.wait_again(waker) && self.shared.is_ring_full() {
                    // A task holds no slot while the ring is full, but a thread of another client
                    // may.
                    self.shared.space().notify(Reach::Machine);
                }
                entry
            }
            None => self.waiters.join_task(waker),
        };
        // That thread notices the slots and cells that other clients free.
        if watcher.has_descriptor() {
            // It may be parked for an event loop, without a deadline for missing tasks.
            watcher.rouse();
        } else {
            watcher.wake_thread();
        }
        Ok(entry)
    }

    fn recount(&self, me: u16) -> bool {
        self.waiters.recount(|| self.shared.calls_of(me).count())
    }

    /// No slot was found: dead members may hold some, or one may become free.
    #[cold]
    fn acquire_waiting(
        &self,
        me: u16,
        deadline: Option<Later<'_>>,
        may_look: bool,
        op: &'static str,
    ) -> Result<Option<Acquired>> {
        // An event loop may call with a deadline that has passed, and must be notified of the next
        // slot.
        self.found_no_slot();
        self.liveness.lacks_slot();
        let is_time = self.liveness.look_after(None, op)?;
        if (self.recount(me) || is_time)
            && may_look
            && let Some(slot) = self.acquire(me, deadline)
        {
            return Ok(Some(slot));
        }
        let Some(deadline) = deadline.map(|deadline| deadline()) else { return Ok(None) };
        let entry = self.waiters.join();
        // Only for a newcomer: a leader that has waited in the queue parks at `space` in the
        // kernel's order.
        if entry.leads() && self.leaves_last_slot() {
            let left = deadline.remaining().unwrap_or(GRACE);
            sys::sleep(left.min(GRACE)).map_err(|errno| errno.at(op))?;
        }
        loop {
            entry.wait_to_lead(deadline, op)?;
            if let Some(slot) = self.lead(&entry, me, deadline, op)? {
                return Ok(Some(slot));
            }
        }
    }

    /// Waits for a slot as the leader of the wait queue, beside the leaders of other clients. While
    /// this client is at its limit, it waits for the end of one of the client's calls instead.
    /// `None` if this thread no longer leads, or must start over.
    fn lead(&self, entry: &Entry, me: u16, deadline: Deadline, op: &'static str) -> Result<Option<Acquired>> {
        let (shared, waiters) = (&self.shared, &self.waiters);
        let meet = || {
            self.liveness.lacks_slot();
            // A watch thread may have got the error first.
            self.liveness.meet_failure(op)?;
            self.refuse_without_server(op)?;
            self.recount(me);
            Ok(())
        };
        let check = || self.liveness.check(None, op);
        let wait = self.waiting_for_any(deadline, op);
        // At `space` it would consume wake-ups that others need. With 8 threads beside a client of
        // 16 tasks that is limited to 2 calls, on 4 slots, p99 is 0.4 ms for the threads and 2.7 ms
        // for the tasks; without this check, 1.1 ms and 21 ms.
        if waiters.is_limited() {
            let is_due = || waiters.lets_in(waiters.selected()) || !entry.leads();
            waiters.ends().wait(&wait, || meet().map(|()| is_due().then_some(())), check)?;
        }
        let look = || {
            meet()?;
            // Selected tasks came first. If the leader took their slots, p99 would be 41 ms instead
            // of 24 ms for 32 threads and 32 tasks on 2 slots. In this order: see
            // `Waiters::selected`.
            let leaves_slots = waiters.selected() > 0 && shared.free_slots() <= waiters.selected();
            let can_use_one = entry.leads() && waiters.lets_in(waiters.selected());
            let slot = (can_use_one && !leaves_slots).then(|| self.acquire(me, Some(&|| deadline))).flatten();
            Ok((slot.is_some() || !can_use_one).then_some(slot))
        };
        let slot = shared.space().wait(&wait, look, check);
        if !matches!(slot, Ok(Some(_))) {
            // The wake-up that this thread got may belong to another.
            shared.space().notify(Reach::Machine);
        }
        slot
    }

    /// The ring is full of ended calls: waits until a server has removed them. Returns true once
    /// the request is in the ring or taken.
    fn queue_waiting(
        &self,
        (idx, sent): (u32, SlotWord),
        deadline: Option<Later<'_>>,
        op: &'static str,
    ) -> Result<bool> {
        let Some(deadline) = deadline.map(|deadline| deadline()) else { return Ok(false) };
        let look = || {
            // Also if another thread has forgotten the call, because no other thread pushes it.
            let waits = self.shared.slot(idx).is_some_and(|slot| slot.load().still_waits(sent));
            if !waits || self.shared.enqueue(idx, sent, op)? {
                return Ok(Some(true));
            }
            self.refuse_without_server(op)?;
            Ok(None)
        };
        // A server that claims a request wakes all threads that wait here.
        self.shared.cells().wait(&self.waiting(deadline, op), look, || self.liveness.check(None, op))
    }
}

/// A slot whose request is being written. Dropping it frees the slot: writing has failed, or the
/// caller's code that writes has panicked. `thread::panicking` cannot replace this: a destructor
/// may send while its thread panics.
struct Unwritten<'a> {
    sender: &'a Sender,
    idx: u32,
    slot: &'a Slot,
    filled: SlotWord,
}

impl Drop for Unwritten<'_> {
    #[cold]
    fn drop(&mut self) {
        // If another member took this client for dead meanwhile, the slot no longer belongs to this
        // call.
        self.slot.step(self.filled, self.filled.freed());
        self.sender.gave_back(self.idx);
    }
}

/// Steps after a slot was freed.
impl Sender {
    /// A slot of this client was freed by the last step.
    #[inline]
    pub(super) fn gave_back(&self, idx: u32) {
        self.likely.set(u64::from(idx));
        if self.waiters.exit() | self.shared.space().is_awaited() {
            self.offer(idx);
        }
    }

    /// This client has cancelled a call; the slot's word is now `left`.
    pub(super) fn cancelled(&self, idx: u32, me: u16, left: SlotWord) {
        count(&self.membership.member(me).own.0[CANCELLED]);
        match left.state() {
            Some(State::Free) => self.gave_up(idx),
            _ => self.left(left),
        }
    }

    /// A slot now belongs to its server, or will: it no longer counts as this client's.
    pub(super) fn left(&self, left: SlotWord) {
        self.shared.ring_server(left.owner());
        if self.waiters.exit() {
            self.waiters.notify_ends();
        }
    }

    #[cold]
    fn offer(&self, idx: u32) {
        let (shared, waiters) = (&self.shared, &self.waiters);
        shared.freed().store(u64::from(idx), Ordering::Relaxed);
        if waiters.hand_over() {
            return;
        }
        // The wake-up may have gone to an event loop of this client, which must find the slot.
        let has_loop = self.space.asked_for().is_some_and(|watcher| watcher.has_descriptor());
        if shared.space().wake_one(Reach::Machine) && !has_loop {
            waiters.has_offered();
        }
        // In this order: otherwise the leader could leave the slot to other clients, of which none
        // was woken.
        if waiters.is_limited() {
            waiters.notify_ends();
        }
    }

    /// A slot's entry in the ring has become stale: a full ring may have space.
    fn gave_up(&self, idx: u32) {
        self.gave_back(idx);
        self.shared.ring_may_have_space();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
