//! One call: the head of its slot, and every step that may change its word. SEGMENT.md numbers the
//! steps.
//!
//! Invariant: a slot never gets an earlier word again, unless a part of the reply was given; and
//! then only after a step of each side. So a successful swap of a word that was read proves that no
//! other step happened in between that matters to the member that swaps.

use super::layout::Direction;
use super::queue::Entry;
use super::word::WAITER;
pub(crate) use super::word::{Fields, SlotWord, State};
use crate::error::Result;
use crate::event::Wait;
use crate::segment::header::NOBODY;
use crate::segment::naming::{Leaving, NamedBlobs};
use crate::sync::{AtomicU32, EVERYONE, Ordering, Reach, Word};

/// Swaps that are tried before a step is given up. Peers that keep the rules change a word between
/// read and swap a few times at most; a peer that breaks them may change it for ever.
const TURNS: usize = 64;

/// Memory for a longer payload in a slot is allocated before the claim. A program that has no memory
/// left for less ends anyway.
const LARGE: u32 = 64 << 10;

/// Finds the blobs that a slot would stop naming with a step from one word to the other.
pub(crate) type Leaver<'a> = dyn Fn(SlotWord, SlotWord) -> Leaving + 'a;

/// For a slot that names no blobs.
pub(crate) fn none_leave(_: SlotWord, _: SlotWord) -> Leaving {
    Leaving::default()
}

/// The client's description of its request, besides the length and the user's flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) client: u16,
    pub(crate) redeliveries: u8,
    /// The caller takes the parts of the reply one by one, because it asked for a stream.
    pub(crate) takes_parts: bool,
    /// The caller has the ticket, because it called `send` and not `call`.
    pub(crate) has_ticket: bool,
    pub(crate) named: NamedBlobs,
}

const TAKES_PARTS: u32 = 1 << 24;
const HAS_TICKET: u32 = 1 << 25;
const NAMED_SHIFT: u32 = 27;

impl Caller {
    fn to_bits(self) -> u32 {
        let mark = |mark: u32, is_set| if is_set { mark } else { 0 };
        u32::from(self.client)
            | u32::from(self.redeliveries) << 16
            | mark(TAKES_PARTS, self.takes_parts)
            | mark(HAS_TICKET, self.has_ticket)
            | self.named.to_bits() << NAMED_SHIFT
    }

    fn from_bits(bits: u32) -> Caller {
        Caller {
            client: bits as u16,
            redeliveries: (bits >> 16) as u8,
            takes_parts: bits & TAKES_PARTS != 0,
            has_ticket: bits & HAS_TICKET != 0,
            named: NamedBlobs::from_bits(bits >> NAMED_SHIFT),
        }
    }
}

/// The kind of a server's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A reply, or a part of one.
    Whole = 0,
    /// The reason why the call has failed.
    Reason = 1,
}

/// The state of a request for the server that claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// It is the server's turn.
    Taken,
    /// It is the client's turn: to take a part.
    Given,
    /// No caller waits for the reply: it was cancelled, or its client is dead.
    Dropped,
    /// No caller waits for the reply, and the request is to be carried out.
    Forgotten,
    /// The request is no longer this server's.
    Lost,
}

/// The head of a slot, as it lies in the segment; request and reply follow.
#[cfg_attr(not(loom), repr(C))]
#[derive(Debug)]
pub(crate) struct Slot {
    word: Word,
    /// `{ named: 5, marks: 3, redeliveries: 8, client: 16 }`, a [`Caller`]. Written by the client in FILL.
    caller: AtomicU32,
    /// `{ named: 5, marks: 11, server: 16 }`. Written by the server in TAKEN.
    holder: AtomicU32,
    /// Bytes of the request in the slot. Written by the client in FILL, and so is the next.
    request_len: AtomicU32,
    /// The user's flags.
    request_flags: AtomicU32,
    /// Bytes of the reply in the slot. Written by the server in TAKEN or DROPPED, and so is the
    /// next.
    reply_len: AtomicU32,
    /// The user's flags.
    reply_flags: AtomicU32,
}

impl Slot {
    /// A slot as creation leaves it: all zero.
    #[cfg(loom)]
    pub(crate) fn new() -> Slot {
        let zero = || AtomicU32::new(0);
        Slot {
            word: Word::new(0),
            caller: zero(),
            holder: zero(),
            request_len: zero(),
            request_flags: zero(),
            reply_len: zero(),
            reply_flags: zero(),
        }
    }

    /// Acquire: pairs with the Release of every swap, so that the fields and the payload are those
    /// of the word.
    #[inline]
    pub(crate) fn load(&self) -> SlotWord {
        SlotWord(self.word.load(Ordering::Acquire))
    }

    /// Makes one step; false if the slot has moved on. AcqRel: bytes that were written to the slot
    /// before belong to the new word.
    pub(crate) fn step(&self, from: SlotWord, to: SlotWord) -> bool {
        self.word.replace(from.0, to.0, Ordering::AcqRel).is_ok()
    }

    /// Makes a step after which the slot may stop naming blobs. `leaving` finds these blobs.
    // Always: a call without blobs pays two loads here.
    #[inline(always)]
    fn step_leaving(&self, from: SlotWord, to: SlotWord, leaving: &Leaver<'_>) -> bool {
        // The marks may be those of an earlier call: then `leaving` finds that out.
        let marks = self.caller.load(Ordering::Relaxed) | self.holder.load(Ordering::Relaxed);
        if marks >> NAMED_SHIFT == 0 { self.step(from, to) } else { self.step_with(from, to, leaving) }
    }

    #[cold]
    fn step_with(&self, from: SlotWord, to: SlotWord, leaving: &Leaver<'_>) -> bool {
        let left = leaving(from, to);
        let is_made = self.step(from, to);
        if is_made {
            left.apply();
        }
        is_made
    }

    /// Step 8, and step 3 from FILL: the client frees the slot.
    #[inline]
    pub(crate) fn free(&self, from: SlotWord, leaving: &Leaver<'_>) -> bool {
        self.step_leaving(from, from.freed(), leaving)
    }

    /// Any step that removes a member that is gone from the slot.
    pub(crate) fn take_out(&self, from: SlotWord, to: SlotWord, leaving: &Leaver<'_>) -> bool {
        self.step_leaving(from, to, leaving)
    }

    /// Step 1: acquires the slot for a call, if it is free.
    pub(crate) fn acquire(&self, client: u16) -> Option<SlotWord> {
        let free = self.load();
        (free.state() == Some(State::Free) && self.step(free, free.acquired(client)))
            .then(|| free.acquired(client))
    }

    /// Step 2: hands a filled slot over to the servers.
    pub(crate) fn send(&self, filled: SlotWord) -> Option<SlotWord> {
        let sent = filled.with(State::Sent, filled.owner());
        // A store would take 6 ns less. But a program that closes the descriptor of its client's lock is dead to
        // the others, and by then its slot may belong to another client.
        self.step(filled, sent).then_some(sent)
    }

    /// Steps 4 and 27: claims the request of an entry of this slot, if it waits for a server and
    /// [is plain](Self::is_plain).
    #[inline]
    pub(crate) fn claim(&self, entry: Entry, server: u16) -> Option<SlotWord> {
        // The fields are read after the word, and the swap of that word fails unless they belong to it.
        self.claim_if(server, |sent| entry.is_of(sent) && self.is_plain())
    }

    /// Steps 4 and 27 for a request whose blobs this server has received since the slot had the word
    /// `sent`.
    pub(crate) fn claim_call(&self, sent: SlotWord, server: u16) -> Option<SlotWord> {
        self.claim_if(server, |now| now.generation() == sent.generation())
    }

    /// Whether a server needs nothing but a little memory to receive the request.
    #[inline]
    fn is_plain(&self) -> bool {
        let names_some = self.caller.load(Ordering::Relaxed) >> NAMED_SHIFT != 0;
        !names_some && self.request_len.load(Ordering::Relaxed) <= LARGE
    }

    /// As `claim`, by the server that claimed `taken` and sent that very call again.
    pub(crate) fn claim_again(&self, taken: SlotWord) -> Option<SlotWord> {
        let again = |sent: SlotWord| {
            sent.generation() == taken.generation() && sent.delivery() == taken.delivery() + 1
        };
        self.claim_if(taken.owner(), again)
    }

    #[inline]
    fn claim_if(&self, server: u16, is_it: impl Fn(SlotWord) -> bool) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let sent = self.load();
            if sent.state() != Some(State::Sent) || !is_it(sent) {
                return None;
            }
            // The swap fails if a client has set `waiter`, has cancelled, or has forgotten the
            // call, or if another server was faster.
            let state = if sent.owner() == NOBODY { State::Forgotten } else { State::Taken };
            let taken = sent.with(state, server);
            if self.step(sent, taken) {
                return Some(taken);
            }
        }
        None
    }

    /// The state of the request for the server that claimed `taken`.
    #[inline]
    pub(crate) fn holding(&self, taken: SlotWord) -> Holding {
        self.holding_now(self.load(), taken)
    }

    #[inline]
    fn holding_now(&self, now: SlotWord, taken: SlotWord) -> Holding {
        let is_mine = now.owner() == taken.owner();
        match now.state() {
            _ if !now.is_call(taken) => Holding::Lost,
            Some(State::Taken) if is_mine => Holding::Taken,
            Some(State::Dropped) if is_mine => Holding::Dropped,
            Some(State::Forgotten) if is_mine => Holding::Forgotten,
            Some(State::Part) if self.fields().server == taken.owner() => Holding::Given,
            _ => Holding::Lost,
        }
    }

    /// Steps 5, 7, 23 and 28: a server finishes a request. Returns the slot's new word; `None` if
    /// the request was no longer this server's.
    #[inline]
    pub(crate) fn finish(&self, taken: SlotWord, outcome: State, leaving: &Leaver<'_>) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            let next = match self.holding_now(now, taken) {
                Holding::Taken => now.with(outcome, self.fields().client),
                // The part in the slot is not the reply.
                Holding::Given => now.with(State::Failed, now.owner()),
                Holding::Dropped | Holding::Forgotten => now.freed(),
                Holding::Lost => return None,
            };
            if self.step_leaving(now, next, leaving) {
                return Some(next);
            }
        }
        None
    }

    /// Step 31: a server gives a request back to all servers. False if the request cannot be given
    /// back, or is no longer this server's.
    pub(crate) fn give_back(&self, taken: SlotWord) -> bool {
        self.part_with(taken, |now, fields| now.given_back(fields.client), &none_leave).is_some()
    }

    /// Makes the step that recovery would make for the call of `taken` if its server were dead.
    /// Returns the words before and after; `None` if the request was no longer this server's.
    pub(crate) fn lose(&self, taken: SlotWord, leaving: &Leaver<'_>) -> Option<(SlotWord, SlotWord)> {
        self.part_with(taken, |now, fields| now.without(taken.owner(), fields), leaving)
    }

    fn part_with(
        &self,
        taken: SlotWord,
        next: impl Fn(SlotWord, Fields) -> Option<SlotWord>,
        leaving: &Leaver<'_>,
    ) -> Option<(SlotWord, SlotWord)> {
        for _ in 0..TURNS {
            let now = self.load();
            if self.holding_now(now, taken) == Holding::Lost {
                return None;
            }
            let next = next(now, self.fields())?;
            if self.step_leaving(now, next, leaving) {
                return Some((now, next));
            }
        }
        None
    }

    /// Step 16: passes the turn to the client, to take a part of the reply. Returns the word
    /// before; `None` if it is not this server's turn.
    pub(crate) fn pass_to_client(&self, taken: SlotWord) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            if self.holding_now(now, taken) != Holding::Taken {
                return None;
            }
            if self.step(now, now.turned(State::Part, self.fields().client)) {
                return Some(now);
            }
        }
        None
    }

    /// Step 17: passes the turn back to the server. False if the slot has moved on since it was
    /// `seen` in PART.
    pub(crate) fn pass_to_server(&self, seen: SlotWord, leaving: &Leaver<'_>) -> bool {
        for _ in 0..TURNS {
            let now = self.load();
            if !now.is_same_turn(seen) {
                return false;
            }
            if self.step_leaving(now, now.turned(State::Taken, self.fields().server), leaving) {
                if now.has_waiter() {
                    self.wake();
                }
                return true;
            }
        }
        false
    }

    /// Whether the slot is in the state in which it was `seen`.
    pub(crate) fn is_still(&self, seen: SlotWord) -> bool {
        self.load().is_same_turn(seen)
    }

    /// Step 24: a forked child takes over the request that its parent claimed with `taken`.
    pub(crate) fn adopt(&self, taken: SlotWord, child: u16) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            let state = match self.holding_now(now, taken) {
                Holding::Taken => State::Taken,
                Holding::Forgotten => State::Forgotten,
                _ => return None,
            };
            if now.has_begun() || taken.is_adopted() {
                return None;
            }
            let adopted = now.with(state, child);
            if self.step(now, adopted) {
                return Some(adopted.as_adopted());
            }
        }
        None
    }

    /// Step 15: hides a call that is done from every other thread that has its ticket.
    pub(crate) fn hold(&self, done: SlotWord) -> Option<SlotWord> {
        // No slot has `w` while its request is written, so `w` tells the two words apart.
        let held = SlotWord(done.with(State::Fill, done.owner()).0 | WAITER);
        self.step(done, held).then_some(held)
    }

    /// Steps 3, 6 and 20: a client gives up a call that is not done. Returns the slot's new word;
    /// `None` if the call is done, or is not this client's.
    pub(crate) fn cancel(&self, generation: u64, client: u16, leaving: &Leaver<'_>) -> Option<SlotWord> {
        self.leave(generation, client, SlotWord::freed, State::Dropped, leaving)
    }

    /// Steps 25 and 26: a client gives up the reply of a call that is not done, and the request
    /// stays; as `cancel`.
    pub(crate) fn forget(&self, generation: u64, client: u16, leaving: &Leaver<'_>) -> Option<SlotWord> {
        let unclaimed = |sent: SlotWord| sent.with(State::Sent, NOBODY);
        self.leave(generation, client, unclaimed, State::Forgotten, leaving)
    }

    /// Step 3 by the thread that could not push the request that it has `sent`, even if another
    /// thread has forgotten the call meanwhile. Returns the word before; `None` if a server has the
    /// request, or had it.
    pub(crate) fn take_back(&self, sent: SlotWord, leaving: &Leaver<'_>) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            if !now.still_waits(sent) {
                return None;
            }
            if self.free(now, leaving) {
                return Some(now);
            }
        }
        None
    }

    fn leave(
        &self,
        generation: u64,
        client: u16,
        unclaimed: impl Fn(SlotWord) -> SlotWord,
        claimed: State,
        leaving: &Leaver<'_>,
    ) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            if now.generation() != generation {
                return None;
            }
            let Fields { client: caller, server, .. } = self.fields();
            let next = match now.state()? {
                State::Sent if now.owner() == client => unclaimed(now),
                State::Taken if caller == client => now.with(claimed, now.owner()),
                State::Part if now.owner() == client => now.with(claimed, server),
                _ => return None,
            };
            if self.step_leaving(now, next, leaving) {
                if now.has_waiter() {
                    self.wake();
                }
                return Some(next);
            }
        }
        None
    }

    /// Records the caller. In FILL.
    #[inline]
    pub(crate) fn set_caller(&self, caller: Caller) {
        // Relaxed: the swap that hands the request over publishes it.
        self.caller.store(caller.to_bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn caller(&self) -> Caller {
        Caller::from_bits(self.caller.load(Ordering::Relaxed))
    }

    /// Records the server that has the request, and the kind of its reply. Called by that server in
    /// TAKEN.
    #[inline]
    pub(crate) fn set_holder(&self, server: u16, mark: Mark, named: NamedBlobs) {
        let bits = u32::from(server) | (mark as u32) << 16 | named.to_bits() << NAMED_SHIFT;
        // Relaxed: the swap that hands the reply over publishes it.
        self.holder.store(bits, Ordering::Relaxed);
    }

    /// Whether the reply in the slot has this mark. In ANSWERED, PART and FAILED.
    pub(crate) fn is_marked(&self, mark: Mark) -> bool {
        self.holder.load(Ordering::Relaxed) >> 16 & 0x7FF == mark as u32
    }

    /// The blobs of a message. For a reply in ANSWERED, PART and FAILED.
    #[inline]
    pub(crate) fn named(&self, direction: Direction) -> NamedBlobs {
        let field = match direction {
            Direction::Request => &self.caller,
            Direction::Reply => &self.holder,
        };
        NamedBlobs::from_bits(field.load(Ordering::Relaxed) >> NAMED_SHIFT)
    }

    /// The fields that recovery needs.
    #[inline]
    pub(crate) fn fields(&self) -> Fields {
        let Caller { client, redeliveries, .. } = self.caller();
        Fields { client, server: self.holder.load(Ordering::Relaxed) as u16, redeliveries }
    }

    /// Records the length of a payload, and its flags. Called in FILL for the request, and by the
    /// server that has it for the reply.
    #[inline]
    pub(crate) fn describe(&self, direction: Direction, len: u32, flags: u32) {
        let (len_at, flags_at) = self.description(direction);
        // Relaxed: the swap publishes them.
        len_at.store(len, Ordering::Relaxed);
        flags_at.store(flags, Ordering::Relaxed);
    }

    /// The length and the flags of a payload, as its writer recorded them.
    #[inline]
    pub(crate) fn described(&self, direction: Direction) -> (u32, u32) {
        let (len_at, flags_at) = self.description(direction);
        (len_at.load(Ordering::Relaxed), flags_at.load(Ordering::Relaxed))
    }

    #[inline]
    fn description(&self, direction: Direction) -> (&AtomicU32, &AtomicU32) {
        match direction {
            Direction::Request => (&self.request_len, &self.request_flags),
            Direction::Reply => (&self.reply_len, &self.reply_flags),
        }
    }

    /// Wakes the threads that wait for this call.
    pub(crate) fn wake(&self) {
        self.word.wake(EVERYONE, Reach::Machine);
    }

    /// Waits until `look` finds something, while the slot is in one of `states`. A waiter announces
    /// itself by step 9.
    pub(crate) fn wait<T>(
        &self,
        generation: u64,
        states: &[State],
        wait: &Wait<'_>,
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        let announce = || {
            let now = self.load();
            let is_open = now.state().is_some_and(|state| states.contains(&state));
            let waits = is_open && now.generation() == generation;
            let told = SlotWord(now.0 | WAITER);
            (waits && (now == told || self.step(now, told))).then_some(told.0)
        };
        wait.on(&self.word, announce, look, check)
    }
}
