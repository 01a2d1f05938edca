//! The steps that a server and its requests make in slots: what it receives before it claims a request,
//! and what it does with the requests that it has claimed.
//!
//! Invariant: a server claims a request only if it has all for which it may lack a descriptor, memory
//! or space under its limits. So what it lacks is back-pressure: the request stays where it is, in its
//! order, for this server or another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::queue::Entry;
use super::segment::Segment;
use super::shared::{REPLIES, Role, Shared};
use super::slot::{Holding, Mark, Slot, SlotWord, State};
use super::waiting::{Attached, Liveness, Membership, Readiness, Steps, Topic, Watcher, WatcherState};
use super::word::Ticket;
use crate::blob::Blob;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::event::Wait;
use crate::segment::mapping::count;
use crate::segment::message::{Message, Payload};
use crate::segment::naming::{Blobs, NamedBlobs};
use crate::spin::{Looks, Spin, for_holders, for_turns};
use crate::sync::{self, AtomicU64, Hint, Ordering, Reach};
use crate::sys::Errno;
use crate::{defaults, region};

const RECV: &str = "reqrep recv";

/// The operation of the error if this process cannot use the folder of the channel's blobs.
pub(super) const FOLDER: &str = "reqrep recv: folder of the blobs";

/// What a server receives with a request.
#[derive(Debug)]
pub(super) enum Wanted<'a> {
    /// Its bytes and blobs.
    All,
    /// The same, with its bytes in memory of the caller.
    Bytes(&'a mut Vec<u8>),
    /// Its blobs, but not the one that is its payload.
    Blobs,
    Nothing,
}

/// What a server wants of the next request, and what it has received before it claimed that request.
#[derive(Debug)]
pub(super) struct Receipt<'a> {
    wanted: Wanted<'a>,
    /// Boxed, because few requests have any, and waits pass this on.
    received: Option<Box<Result<Received>>>,
    /// Whether the last look found a request that this process cannot take now.
    is_short: bool,
}

/// What was received of a request.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) payload: Payload,
    pub(super) blobs: Blobs,
    /// The flags, if its bytes were received. Otherwise they are in the slot.
    pub(super) flags: Option<u32>,
}

impl<'a> Receipt<'a> {
    #[inline]
    pub(super) fn new(wanted: Wanted<'a>) -> Receipt<'a> {
        Receipt { wanted, received: None, is_short: false }
    }

    /// What was received of the request that was claimed; `None` if all of it is in the slot.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Box<Result<Received>>> {
        self.received.take()
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns whether the last look found this process short of something, and forgets that.
    pub(super) fn forget_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Receives the blobs of the call which the slot has with the word `sent`, and claims it by the
    /// swap of a word of that very call. If the swap succeeds, the slot has named the blobs all the
    /// time. `None` if a server has the call, or it has ended. Fails if this process lacks what it
    /// takes to receive them.
    #[cold]
    pub(super) fn claim(
        &mut self,
        shared: &Shared,
        (idx, slot, sent): (u32, &Slot, SlotWord),
        server: u16,
        max: usize,
    ) -> Result<Option<SlotWord>> {
        let is_it =
            |word: SlotWord| word.state() == Some(State::Sent) && word.generation() == sent.generation();
        let received = self.receive(shared, idx, max);
        if let Err(error) = received
            && self.is_shortage(shared, idx, error)
        {
            // What is in the slot of another call proves nothing.
            self.is_short = is_it(slot.load());
            return if self.is_short { Err(error) } else { Ok(None) };
        }
        let taken = slot.claim_call(sent, server);
        if taken.is_some() {
            if let Ok(received) = &received {
                received.payload.share();
                received.blobs.share();
            }
            self.received = Some(Box::new(received));
        }
        Ok(taken)
    }

    fn receive(&mut self, shared: &Shared, idx: u32, max: usize) -> Result<Received> {
        let (mut payload, mut blobs, mut flags) = (Payload::empty(), Blobs::default(), None);
        match &mut self.wanted {
            Wanted::Nothing => {}
            Wanted::Blobs => shared.receive_attached(idx, &mut blobs, max, RECV)?,
            Wanted::All => {
                flags = shared.receive_long(idx, &mut payload, max, RECV)?;
                shared.receive_attached(idx, &mut blobs, max, RECV)?;
                if flags.is_none() {
                    payload.reserve(shared.len_in_slot(idx)).map_err(|errno| errno.at(RECV))?;
                }
            }
            Wanted::Bytes(bytes) => {
                bytes.clear();
                shared.receive_attached(idx, &mut blobs, max, RECV)?;
                flags = shared.append_long(idx, bytes, max, RECV)?;
                if flags.is_none() {
                    region::reserve(bytes, shared.len_in_slot(idx)).map_err(|errno| errno.at(RECV))?;
                }
            }
        }
        Ok(Received { payload, blobs, flags })
    }

    /// Whether an error says that this process lacks something that it may have later, and not that
    /// the request cannot be received.
    fn is_shortage(&self, shared: &Shared, idx: u32, error: Error) -> bool {
        if is_at_limit(error) {
            let with_payload = matches!(self.wanted, Wanted::All);
            return shared.bytes_to_hold(idx, with_payload) <= shared.blobs().limit();
        }
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::NOLCK];
        lacks.iter().any(|errno| errno.at(RECV) == error)
    }
}

/// Whether this process holds as many bytes of blobs as it may.
pub(super) fn is_at_limit(error: Error) -> bool {
    error == Error::with_explanation(ErrorKind::TooLong, RECV, Explanation::BlobsHeld)
}

/// The parts of such a reply so far. Only the server's process has them, until the request is
/// answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
}

/// The limits of a whole reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) bytes: usize,
    pub(super) blobs: usize,
}

impl Collected {
    /// Adds a part; after an error it has added nothing.
    pub(super) fn add(&mut self, part: &Message<'_>, most: Most, op: &'static str) -> Result<()> {
        if self.bytes.len().saturating_add(part.payload.len()) > most.bytes {
            return Err(Error::new(ErrorKind::TooLong, op));
        }
        if self.blobs.len() + part.blobs.len() > most.blobs {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::TooManyBlobs));
        }
        region::reserve(&mut self.bytes, part.payload.len()).map_err(|errno| errno.at(op))?;
        self.bytes.extend_from_slice(part.payload);
        self.blobs.extend_from_slice(part.blobs);
        Ok(())
    }

    /// Removes the part that was added last.
    pub(super) fn take_back(&mut self, part: &Message<'_>) {
        self.bytes.truncate(self.bytes.len() - part.payload.len());
        self.blobs.truncate(self.blobs.len() - part.blobs.len());
    }

    /// All parts as one message.
    pub(super) fn message(&self, flags: u32) -> Message<'_> {
        Message::new(&self.bytes).flags(flags).attach(&self.blobs)
    }
}

/// A server handle. Its clones and its requests share all state of the server.
#[derive(Clone, Debug)]
pub(super) struct Serving(Arc<ServingInner>);

#[derive(Debug)]
struct ServingInner {
    // Its threads end before the membership does.
    requests: Watcher,
    turns: Watcher,
    kept: KeptRequests,
    shared: Arc<Shared>,
    membership: Attached,
    segment: Segment,
    spin: Spin,
    /// For waits for the client's step in a call whose reply comes in parts.
    turn_spin: Spin,
    /// For callers that hold a lock which others need, and release it before they wait.
    held_spin: Spin,
    liveness: Arc<Liveness>,
    /// Shared with its watch thread.
    readiness: Arc<Readiness>,
    options: ServerOptions,
}

/// The limits of a server. They are given [when the server is made](super::Segment::server_with),
/// and hold for all of its clones.
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
    /// fails at its client, and a longer reply is `TooLong`. [Copies](super::Blob::is_copied) of the
    /// blobs of a request may have as many bytes together.
    pub fn max_message(self, bytes: usize) -> ServerOptions {
        ServerOptions { max_message: bytes, ..self }
    }

    /// For how long an answering server waits for the client to take the previous
    /// [part](super::Request::part). Then the call fails. The default is
    /// [`defaults::PART_TIMEOUT`].
    pub fn part_timeout(self, time: Duration) -> ServerOptions {
        ServerOptions { part_timeout: time, ..self }
    }

    /// Whether received requests stay in their slots until
    /// [`Request::read_into`](super::Request::read_into) copies them, unless they are short or in a
    /// blob: for callers that copy them to memory of their own.
    #[doc(hidden)]
    pub fn reads_later(self, yes: bool) -> ServerOptions {
        ServerOptions { reads_later: yes, ..self }
    }
}

/// A request that this process has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) idx: u32,
    /// The word as this server claimed it. The slot may have another word by now.
    pub(super) taken: SlotWord,
    /// The member that claimed it, so that a forked child knows that the request is the parent's.
    pub(super) holder: u64,
}

impl Claimed {
    pub(super) fn ticket(&self) -> Ticket {
        Ticket::new(self.idx, self.taken)
    }

    fn slot_and_word(&self) -> (u32, SlotWord) {
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
            readiness: Arc::default(),
            options: options.clone(),
        };
        Ok(Serving(Arc::new(inner)))
    }

    pub(super) fn max_message(&self) -> usize {
        self.0.options.max_message
    }

    /// The limits of a reply.
    pub(super) fn most(&self) -> Most {
        let geometry = self.shared().geometry();
        let bytes = self.max_message().max(geometry.reply_bytes as usize);
        Most { bytes, blobs: geometry.blobs as usize }
    }

    /// The end of the time that a client has for its next step.
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
    pub(super) fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    /// The settings of a wait of this server for a step of other processes.
    pub(super) fn waiting(&self, deadline: Deadline, op: &'static str) -> Wait<'_> {
        let tick = Some(self.0.liveness.tick());
        let long = Some(&self.shared().long);
        Wait { deadline, spin: &self.0.spin, reach: Reach::Machine, tick, long, op }
    }

    pub(super) fn held_spin(&self) -> &Spin {
        &self.0.held_spin
    }

    /// The watcher that notifies event loops and tasks of requests.
    pub(super) fn watch_requests(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.watch(&self.0.requests, || Steps::Requests(Arc::clone(&self.0.readiness)), op)
    }

    /// The watcher that notifies tasks of the client's step.
    pub(super) fn watch_turns(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.watch(&self.0.turns, || Steps::Turns, op)
    }

    fn watch(
        &self,
        watcher: &Watcher,
        steps: impl FnOnce() -> Steps,
        op: &'static str,
    ) -> Result<Arc<WatcherState>> {
        // A forked child must become a member before its thread waits.
        self.membership().number(op)?;
        let (shared, liveness) = (self.shared(), &self.0.liveness);
        let topic = || Topic { shared: Arc::clone(shared), liveness: Arc::clone(liveness), steps: steps() };
        watcher.watch(topic, op)
    }

    /// Records that a look has found no request, so that an event loop is notified of the next.
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
        let check = || self.0.liveness.check([claimed.idx], op);
        let wait = Wait { spin: &self.0.turn_spin, ..self.waiting(deadline, op) };
        slot.wait(claimed.taken.generation(), &[State::Part], &wait, look, check)
    }

    /// From now on the watcher notices the death of a client, too.
    pub(super) fn look_after_client(&self, op: &'static str) -> Result<()> {
        self.0.liveness.awaits_client();
        self.0.liveness.meet_failure(op)
    }

    /// Checks that the client is alive if the last check is old enough; returns whether it checked.
    /// For a server that only polls. It drops the error of a check, because a wait returns it.
    pub(super) fn polls_client(&self, claimed: Claimed) -> bool {
        self.0.liveness.awaits_client();
        let looks = || self.0.liveness.look_after([claimed.idx], "reqrep is wanted");
        self.is_here(claimed) && looks() == Ok(true)
    }

    /// Gives the client a part of the reply; false if it is not this server's turn.
    pub(super) fn give_part(&self, claimed: Claimed, part: &Message<'_>, op: &'static str) -> Result<bool> {
        self.shared().give_part(claimed.slot_and_word(), part, op)
    }

    /// Ends a request with the reply in its slot and the blobs that the slot names. True if its
    /// client gets the reply.
    #[inline]
    pub(super) fn finish_answered(&self, claimed: Claimed, named: NamedBlobs) -> bool {
        self.0.finish(claimed, State::Answered, Some(named))
    }

    /// Gives a request up. Its client gets the reason, cut to the size of the slot. True if the
    /// client waits.
    pub(super) fn fail(&self, claimed: Claimed, reason: &Message<'_>) -> bool {
        self.0.fail(claimed, reason)
    }

    /// Ends a request as this server's death would. True if its client waits.
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

    /// Gives a request back to all servers. If this server still has it afterwards, returns the
    /// claim.
    pub(super) fn give_back(&self, claimed: Claimed) -> Option<Claimed> {
        let slot = self.shared().slot(claimed.idx)?;
        if slot.give_back(claimed.taken) { self.queue_again(claimed) } else { Some(claimed) }
    }

    /// Pushes a request that was sent again into the ring. If the ring is full, it claims the
    /// request again; `None` if the request is no longer this server's.
    fn queue_again(&self, claimed: Claimed) -> Option<Claimed> {
        let (shared, Claimed { idx, taken, .. }) = (self.shared(), claimed);
        if shared.push_again(Entry::of(idx, taken), "reqrep give back").unwrap_or(false) {
            return None;
        }
        let taken = shared.slot(idx)?.claim_again(taken)?;
        // An older entry of the slot is stale again, so the ring may have space.
        shared.ring_may_have_space();
        Some(Claimed { taken, ..claimed })
    }

    /// Keeps a request for [`kept`](Serving::kept), with the parts that were collected of its
    /// reply.
    #[inline]
    pub(super) fn keep(&self, Claimed { idx, taken, .. }: Claimed, collected: Option<Arc<Collected>>) {
        if let Some(collected) = collected {
            self.0.kept.with_collected(|all| all.insert(idx, collected));
        }
        let place = self.0.kept.place(self.shared(), idx);
        place.inspect(|place| place.store(taken.to_bits(), Ordering::Relaxed));
    }

    /// Takes back a request that was kept; `None` if it was not kept, or was taken back already.
    #[inline]
    pub(super) fn kept(&self, ticket: Ticket) -> Option<(SlotWord, Option<Arc<Collected>>)> {
        let place = self.0.kept.places.get()?.get(ticket.idx() as usize)?;
        let bits = place.load(Ordering::Relaxed);
        let is_it = bits != 0 && SlotWord::from_bits(bits).generation() == ticket.generation();
        // Relaxed: the steps of the slot order all accesses to the request.
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
        self.shared.member(taken.owner()).inspect(|me| count(&me.own.0[REPLIES]));
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
    /// Fails the requests that are still kept, because no caller can take them out any more.
    fn drop(&mut self) {
        let here = |taken: SlotWord| self.membership.packed(taken.owner());
        let kept = self.kept.places.get().into_iter().flatten().zip(0..);
        let kept = kept.map(|(place, idx)| (idx, SlotWord::from_bits(place.load(Ordering::Relaxed))));
        let kept = kept.filter(|(_, taken)| taken.to_bits() != 0);
        for (idx, taken) in kept {
            let claimed = Claimed { idx, taken, holder: here(taken) };
            // In a forked child, leave the parent's requests alone.
            if self.membership.still_is(claimed.holder) {
                self.fail(claimed, &Message::new(""));
            }
        }
    }
}

/// The requests that are answered by ticket: a word for each slot. The first kept request allocates
/// it.
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
        // Forks wait, or a child could inherit a lock that no thread of it can release.
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
        // Forks wait, or a child could wait for ever for the thread that makes them.
        let _forks_wait = sync::no_forks();
        let slots = 0..shared.geometry().slots;
        self.places.get_or_init(|| slots.map(|_| AtomicU64::new(0)).collect())
    }
}
