//! What a server and its requests do to the slots that the server has claimed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::collected::{Collected, Most};
use super::liveness::Liveness;
use super::segment::Segment;
use super::shm::mapping::{Role, Shared, count};
use super::shm::member::{Attached, Membership};
use super::shm::naming::NamedBlobs;
use super::shm::payload::Message;
use super::shm::slot::{Holding, Mark, Slot, SlotWord, State};
use super::shm::ticket::Ticket;
use super::watch::{Topic, Watcher, WatcherState};
use crate::deadline::Deadline;
use crate::defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Wait;
use crate::spin::{Looks, Spin, for_holders, for_turns};
use crate::sync::{self, AtomicU64, Flag, Hint, Ordering, Reach};

/// A server handle. All that there is of a server is shared by its clones, and by its requests.
#[derive(Clone, Debug)]
pub(super) struct Serving(Arc<ServingInner>);

#[derive(Debug)]
struct ServingInner {
    // Their threads end before the membership does.
    requests: Watcher,
    turns: Watcher,
    kept: KeptRequests,
    shared: Arc<Shared>,
    membership: Attached,
    segment: Segment,
    spin: Spin,
    /// For the client's step in a call whose reply comes in parts.
    turn_spin: Spin,
    /// For callers that hold what others need, and give it away before they wait.
    held_spin: Spin,
    liveness: Arc<Liveness>,
    /// Whether the server is to stop. Shared with its watch thread.
    stopped: Arc<Flag>,
    options: ServerOptions,
}

/// What a server accepts. It is given [when the server is made](super::Segment::server_with), and
/// holds for all of its clones.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    max_message: usize,
    part_timeout: Duration,
    reads_later: bool,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            max_message: defaults::MAX_MESSAGE,
            part_timeout: defaults::PART_TIMEOUT,
            reads_later: false,
        }
    }
}

impl ServerOptions {
    /// Messages of up to [`defaults::MAX_MESSAGE`] bytes, [`defaults::PART_TIMEOUT`] for a part.
    pub fn new() -> ServerOptions {
        ServerOptions::default()
    }

    /// Bytes of the longest message that the server receives or answers with. The default is
    /// [`defaults::MAX_MESSAGE`]. A message that fits into a slot is never too long. A longer request
    /// fails at its client, and a longer reply is `TooLong`.
    pub fn max_message(self, bytes: usize) -> ServerOptions {
        ServerOptions { max_message: bytes, ..self }
    }

    /// For how long a client may keep the server waiting that answers after a
    /// [part](super::Request::part): until it has taken that part. Then the call fails. The default is
    /// [`defaults::PART_TIMEOUT`].
    pub fn part_timeout(self, time: Duration) -> ServerOptions {
        ServerOptions { part_timeout: time, ..self }
    }

    /// Whether received requests stay in their slots until
    /// [`Request::read_into`](super::Request::read_into) copies them, unless they are short or in a
    /// blob: for callers that have a place of their own for them.
    #[doc(hidden)]
    pub fn reads_later(self, yes: bool) -> ServerOptions {
        ServerOptions { reads_later: yes, ..self }
    }
}

/// A request that this process has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) idx: u32,
    /// The word as it was claimed, which the slot need not have any more.
    pub(super) taken: SlotWord,
    /// The member that claimed it, so that the same request in a forked child is known to be the
    /// parent's.
    pub(super) holder: u64,
}

impl Claimed {
    pub(super) fn ticket(&self) -> Ticket {
        Ticket::new(self.idx, self.taken)
    }

    pub(super) fn slot_and_word(&self) -> (u32, SlotWord) {
        (self.idx, self.taken)
    }
}

impl Serving {
    pub(super) fn new(segment: &Segment, options: &ServerOptions) -> Result<Serving> {
        let membership = segment.join(Role::Server, "reqrep attach server")?;
        let inner = ServingInner {
            requests: Watcher::new(),
            turns: Watcher::new(),
            kept: KeptRequests::new(),
            shared: Arc::clone(membership.shared()),
            liveness: Arc::new(Liveness::new(&membership)),
            membership,
            segment: segment.clone(),
            spin: Spin::new(segment.spin(), Looks::Load),
            turn_spin: Spin::new(for_turns(segment.spin()), Looks::Load),
            held_spin: Spin::new(for_holders(segment.spin()), Looks::Load),
            stopped: Arc::new(Flag::new()),
            options: options.clone(),
        };
        Ok(Serving(Arc::new(inner)))
    }

    pub(super) fn max_message(&self) -> usize {
        self.0.options.max_message
    }

    /// What a reply may have.
    pub(super) fn most(&self) -> Most {
        let geometry = self.shared().geometry();
        let bytes = self.max_message().max(geometry.reply_bytes as usize);
        Most { bytes, blobs: geometry.blobs as usize }
    }

    /// When a client that is to make the next step has taken too long for it.
    pub(super) fn part_deadline(&self) -> Deadline {
        Deadline::after(self.0.options.part_timeout)
    }

    #[inline]
    pub(super) fn reads_later(&self) -> bool {
        self.0.options.reads_later
    }

    #[inline]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn membership(&self) -> &Membership {
        &self.0.membership
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.0.segment
    }

    pub(super) fn liveness(&self) -> &Liveness {
        &self.0.liveness
    }

    #[inline]
    pub(super) fn stopped(&self) -> &Flag {
        &self.0.stopped
    }

    /// How this server waits for anything that other processes do.
    pub(super) fn waiting(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        let tick = Some(self.0.liveness.tick());
        Wait { deadline, spin: &self.0.spin, reach: Reach::Machine, tick, op }
    }

    pub(super) fn held_spin(&self) -> &Spin {
        &self.0.held_spin
    }

    /// What event loops and tasks wait by for a request.
    pub(super) fn watch_requests(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        let topic = Topic::Requests(Arc::clone(&self.0.stopped));
        self.watch(&self.0.requests, topic, op)
    }

    /// What tasks wait by for the client's step.
    pub(super) fn watch_turns(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.watch(&self.0.turns, Topic::Turns, op)
    }

    fn watch(&self, watcher: &Watcher, topic: Topic, op: &'static str) -> Result<Arc<WatcherState>> {
        // A forked child is to be a member before its thread waits for anything.
        self.membership().number(op)?;
        watcher.watch(self.shared(), &self.0.liveness, topic, op)
    }

    /// A look has found no request: an event loop is to be notified of the next.
    pub(super) fn found_none(&self) {
        self.0.requests.found_none();
    }

    pub(super) fn slot(&self, claimed: Claimed, op: &'static str) -> Result<&Slot> {
        self.shared().slot(claimed.idx).ok_or(Error::new(ErrorKind::Corrupt, op))
    }

    /// False in a forked child.
    pub(super) fn is_here(&self, claimed: Claimed) -> bool {
        self.membership().still_is(claimed.holder)
    }

    /// Waits until it is this server's turn, or the request is over.
    pub(super) fn wait_for_turn(
        &self,
        claimed: Claimed,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<Holding> {
        let slot = self.slot(claimed, op)?;
        match slot.holding(claimed.taken) {
            Holding::Given => {}
            holding => return Ok(holding),
        }
        let look = || {
            let holding = slot.holding(claimed.taken);
            if holding == Holding::Given {
                return self.look_after_client(op).map(|()| None);
            }
            Ok(Some(holding))
        };
        let check = || self.0.liveness.check_calls([claimed.idx], op);
        let wait = Wait { spin: &self.0.turn_spin, ..self.waiting(deadline, op) };
        slot.wait(claimed.taken.generation(), &[State::Part], &wait, look, check)
    }

    /// From now on the death of a client is noticed, too.
    pub(super) fn look_after_client(&self, op: &'static str) -> Result<()> {
        self.0.liveness.awaits_client();
        self.0.liveness.meet_failure(op)
    }

    /// The same for a server that only asks now and then. Whether it was time for a look; what that
    /// fails with is for whoever waits.
    pub(super) fn polls_client(&self, claimed: Claimed) -> bool {
        self.0.liveness.awaits_client();
        let looks = || self.0.liveness.look_after_calls([claimed.idx], "reqrep is wanted");
        self.is_here(claimed) && looks() == Ok(true)
    }

    /// Gives the client a part of the reply; false if it is not this server's turn.
    pub(super) fn give_part(&self, claimed: Claimed, part: &Message<'_>, op: &'static str) -> Result<bool> {
        self.shared().give_part(claimed.slot_and_word(), part, op)
    }

    /// Ends a request with the reply in its slot, and the blobs that it names; true if its client
    /// gets it.
    #[inline]
    pub(super) fn finish_answered(&self, claimed: Claimed, named: NamedBlobs) -> bool {
        self.0.finish(claimed, State::Answered, Some(named))
    }

    /// Gives a request up, for a reason that its client gets as far as the slot holds it; true if
    /// the client waits.
    pub(super) fn fail(&self, claimed: Claimed, reason: &Message<'_>) -> bool {
        self.0.fail(claimed, reason)
    }

    /// Ends a request as this server's death would; true if its client waits.
    pub(super) fn lose(&self, claimed: Claimed) -> bool {
        let Claimed { idx, taken, .. } = claimed;
        let shared = self.shared();
        let Some((before, after)) = shared.slot(idx).and_then(|slot| slot.lose(taken, &shared.leaving(idx)))
        else {
            return false;
        };
        shared.tell_of_death(idx, before, after);
        match after.state() {
            Some(State::Sent) => match self.queue_again(claimed) {
                Some(claimed) => self.0.finish(claimed, State::Died, None),
                None => true,
            },
            state => state == Some(State::Died),
        }
    }

    /// Gives a request back, for other servers; the claim, if this server still has it.
    pub(super) fn give_back(&self, claimed: Claimed) -> Option<Claimed> {
        let slot = self.shared().slot(claimed.idx)?;
        if slot.give_back(claimed.taken) { self.queue_again(claimed) } else { Some(claimed) }
    }

    /// Puts a request into the ring that was sent again. Where there is no place it is claimed
    /// again; `None` if it is not this server's any more.
    fn queue_again(&self, claimed: Claimed) -> Option<Claimed> {
        let (shared, Claimed { idx, taken, .. }) = (self.shared(), claimed);
        if shared.push_again(idx, "reqrep give back").unwrap_or(false) {
            return None;
        }
        let taken = shared.slot(idx)?.claim_again(taken)?;
        // An older entry of the slot is stale again.
        shared.ring_may_have_space();
        Some(Claimed { taken, ..claimed })
    }

    /// Keeps a request for [`kept`](Serving::kept), with what was collected of its reply.
    #[inline]
    pub(super) fn keep(&self, claimed: Claimed, collected: Option<Arc<Collected>>) {
        if let Some(collected) = collected {
            self.0.kept.with_collected(|all| all.insert(claimed.idx, collected));
        }
        let place = self.0.kept.place(self.shared(), claimed.idx);
        place.inspect(|place| place.store(claimed.taken.to_bits(), Ordering::Relaxed));
    }

    /// Takes back a request that was kept; `None` if it was not, or was taken back already.
    #[inline]
    pub(super) fn kept(&self, ticket: Ticket) -> Option<(SlotWord, Option<Arc<Collected>>)> {
        let place = self.0.kept.places.get()?.get(ticket.idx() as usize)?;
        let bits = place.load(Ordering::Relaxed);
        let is_it = bits != 0 && SlotWord::from_bits(bits).generation() == ticket.generation();
        // Relaxed: the request is in the segment, and has an order of its own.
        let taken = is_it && place.compare_exchange(bits, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let collected = || match self.0.kept.collecting.get() {
            0 => None,
            _ => self.0.kept.with_collected(|all| all.remove(&ticket.idx())),
        };
        taken.then(|| (SlotWord::from_bits(bits), collected()))
    }
}

impl ServingInner {
    // Always: every call passes here, and the compiler counts the callers.
    #[inline(always)]
    fn finish(&self, claimed: Claimed, outcome: State, reply: Option<NamedBlobs>) -> bool {
        let Claimed { idx, taken, .. } = claimed;
        let Some(slot) = self.shared.slot(idx) else { return false };
        if let Some(named) = reply {
            slot.set_holder(taken.owner(), Mark::Whole, named);
        }
        let client = slot.caller().client;
        let Some(next) = slot.finish(taken, outcome, &self.shared.leaving(idx)) else { return false };
        self.shared.member(taken.owner()).inspect(|me| count(&me.counters.0.replies));
        if next.state() == Some(State::Free) {
            self.shared.slot_is_free(idx);
            return false;
        }
        self.shared.tell_client(slot, next.has_waiter(), client);
        true
    }

    fn fail(&self, claimed: Claimed, reason: &Message<'_>) -> bool {
        self.shared.write_reason(claimed.slot_and_word(), reason);
        self.finish(claimed, State::Failed, None)
    }
}

impl Drop for ServingInner {
    /// What was kept, and that nobody will take out any more, fails.
    fn drop(&mut self) {
        let here = |taken: SlotWord| self.membership.packed(taken.owner());
        let kept = self.kept.places.get().into_iter().flatten().zip(0..);
        let kept = kept.map(|(place, idx)| (idx, SlotWord::from_bits(place.load(Ordering::Relaxed))));
        let kept = kept.filter(|(_, taken)| taken.to_bits() != 0);
        for (idx, taken) in kept {
            let claimed = Claimed { idx, taken, holder: here(taken) };
            // Not what a forked child's parent has.
            if self.membership.still_is(claimed.holder) {
                self.fail(claimed, &Message::new(""));
            }
        }
    }
}

/// The requests that are answered by their tickets: a word for each slot, made when the first is
/// kept.
#[derive(Debug)]
struct KeptRequests {
    places: OnceLock<Box<[AtomicU64]>>,
    /// How many of them have collected parts.
    collecting: Hint,
    collected: Mutex<CollectedOfSlots>,
}

type CollectedOfSlots = HashMap<u32, Arc<Collected>, foldhash::fast::RandomState>;

impl KeptRequests {
    fn new() -> KeptRequests {
        KeptRequests { places: OnceLock::new(), collecting: Hint::new(0), collected: Mutex::default() }
    }

    #[cold]
    fn with_collected<T>(&self, act: impl FnOnce(&mut CollectedOfSlots) -> T) -> T {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut collected);
        self.collecting.set(collected.len() as u64);
        done
    }

    fn place(&self, shared: &Shared, idx: u32) -> Option<&AtomicU64> {
        let places = match self.places.get() {
            Some(places) => places,
            None => self.make(shared),
        };
        places.get(idx as usize)
    }

    #[cold]
    fn make(&self, shared: &Shared) -> &[AtomicU64] {
        // No fork in here, or a child could wait for ever for the thread that makes them.
        let _forks_wait = sync::no_forks();
        let slots = 0..shared.geometry().slots;
        self.places.get_or_init(|| slots.map(|_| AtomicU64::new(0)).collect())
    }
}
