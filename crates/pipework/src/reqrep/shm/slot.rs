//! One call's state: the slot word, and every step that may change it. SEGMENT.md numbers the
//! steps.
//!
//! Invariant: a word that was left never comes back. So a successful swap of a word that was read
//! proves that nothing happened in between.

use super::layout::{MAX_MEMBERS, Part};
use crate::error::Result;
use crate::event::Wait;
use crate::sync::{AtomicU32, AtomicU64, EVERYONE, Ordering, Reach, Word};

/// `{ generation: 40, owner: 16, zero: 1, delivery: 2, waiter: 1, state: 4 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWord(u64);

/// The state of a call. In brackets in the comments: the owner of the slot meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    Free = 0,
    /// The request is being written, or the reply being copied out (client).
    Fill = 1,
    /// It waits for a server (client).
    Sent = 2,
    /// A server has it (server).
    Taken = 3,
    /// A server has it, and no caller waits for the reply any more (server).
    Dropped = 4,
    /// Done: the reply is there (client).
    Answered = 5,
    /// Done: the server gave it up (client).
    Failed = 6,
    /// Done: the server died (client).
    Died = 7,
}

impl State {
    pub(crate) fn is_done(self) -> bool {
        matches!(self, State::Answered | State::Failed | State::Died)
    }
}

/// Swaps that are tried before a step is given up. Peers of ours change a word between read and
/// swap a few times at most; peers that break the rules may do it for ever.
const TURNS: usize = 64;

const STATE: u64 = 0xF;
const WAITER: u64 = 1 << 4;
const DELIVERY_SHIFT: u32 = 5;
const DELIVERY: u64 = 3 << DELIVERY_SHIFT;
const OWNER_SHIFT: u32 = 8;
const OWNER: u64 = 0xFFFF << OWNER_SHIFT;
const GENERATION_SHIFT: u32 = 24;
const _: () = assert!(MAX_MEMBERS as u64 <= OWNER >> OWNER_SHIFT, "a word holds any member's number");

/// How often a request can go to another server after one died with it.
pub const MAX_REDELIVERIES: u8 = 3;
const _: () = assert!(MAX_REDELIVERIES as u64 <= DELIVERY >> DELIVERY_SHIFT);

impl SlotWord {
    pub(crate) fn from_bits(bits: u64) -> SlotWord {
        SlotWord(bits)
    }

    /// The state; `None` for bits that no member of ours writes.
    pub(crate) fn state(self) -> Option<State> {
        Some(match self.0 & STATE {
            0 => State::Free,
            1 => State::Fill,
            2 => State::Sent,
            3 => State::Taken,
            4 => State::Dropped,
            5 => State::Answered,
            6 => State::Failed,
            7 => State::Died,
            _ => return None,
        })
    }

    pub(crate) fn owner(self) -> u16 {
        ((self.0 & OWNER) >> OWNER_SHIFT) as u16
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    /// How many servers have died with this call.
    pub(crate) fn delivery(self) -> u8 {
        ((self.0 & DELIVERY) >> DELIVERY_SHIFT) as u8
    }

    pub(crate) fn has_waiter(self) -> bool {
        self.0 & WAITER != 0
    }

    pub(crate) fn is(self, state: State, owner: u16) -> bool {
        self.state() == Some(state) && self.owner() == owner
    }

    /// Whether the server that claimed `taken` still has that call.
    #[inline]
    pub(crate) fn is_held(self, taken: SlotWord) -> bool {
        const CALL: u64 = !(STATE | WAITER);
        self.0 & CALL == taken.0 & CALL && matches!(self.state(), Some(State::Taken | State::Dropped))
    }

    fn with(self, state: State, owner: u16) -> SlotWord {
        SlotWord(self.0 & !(STATE | OWNER) | u64::from(owner) << OWNER_SHIFT | state as u64)
    }

    /// Step 1.
    pub(crate) fn acquired(self, client: u16) -> SlotWord {
        let generation = self.generation().wrapping_add(1) << GENERATION_SHIFT;
        SlotWord(generation | u64::from(client) << OWNER_SHIFT | State::Fill as u64)
    }

    pub(crate) fn freed(self) -> SlotWord {
        SlotWord(self.generation() << GENERATION_SHIFT)
    }

    /// What the slot becomes when member `dead` is dead: steps 10 to 14. `None` if it does not name
    /// that member. `client` and `redeliveries` are the slot's fields; they belong to the word if
    /// it can still be swapped.
    pub(crate) fn without(self, dead: u16, client: u16, redeliveries: u8) -> Option<SlotWord> {
        let owned = self.owner() == dead;
        match self.state()? {
            State::Taken if owned && self.delivery() < redeliveries.min(MAX_REDELIVERIES) => {
                Some(SlotWord(self.with(State::Sent, client).0 + (1 << DELIVERY_SHIFT)))
            }
            State::Taken if owned => Some(self.with(State::Died, client)),
            State::Taken if client == dead => Some(self.with(State::Dropped, self.owner())),
            State::Free | State::Taken => None,
            _ => owned.then(|| self.freed()),
        }
    }
}

/// The head of a slot, as it lies in the segment; request and reply follow.
#[cfg_attr(not(loom), repr(C))]
#[derive(Debug)]
pub(crate) struct Slot {
    word: Word,
    /// The member that calls. Written by the client in FILL, and so are the next three.
    client: AtomicU32,
    /// 0 to [`MAX_REDELIVERIES`].
    redeliveries: AtomicU32,
    /// Bytes of the request.
    request_len: AtomicU32,
    /// The user's.
    request_flags: AtomicU32,
    /// Bytes of the reply. Written by the server in TAKEN or DROPPED, and so is the next.
    reply_len: AtomicU32,
    /// The user's.
    reply_flags: AtomicU32,
    /// How often a server was done with this slot. Written by the server in TAKEN or DROPPED:
    /// nobody else counts meanwhile, so this needs no swap.
    replies: AtomicU64,
}

impl Slot {
    /// A slot as creation leaves it: all zero.
    #[cfg(loom)]
    pub(crate) fn new() -> Slot {
        let zero = || AtomicU32::new(0);
        Slot {
            word: Word::new(0),
            client: zero(),
            redeliveries: zero(),
            request_len: zero(),
            request_flags: zero(),
            reply_len: zero(),
            reply_flags: zero(),
            replies: AtomicU64::new(0),
        }
    }

    /// Acquire: pairs with the Release of every swap, so that the fields and the payload are those
    /// of the word.
    #[inline]
    pub(crate) fn load(&self) -> SlotWord {
        SlotWord(self.word.load(Ordering::Acquire))
    }

    /// Makes one step; false if the slot has moved on. AcqRel: what was written to the slot before
    /// belongs to the new word.
    pub(crate) fn step(&self, from: SlotWord, to: SlotWord) -> bool {
        self.word.replace(from.0, to.0, Ordering::AcqRel).is_ok()
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
        self.step(filled, sent).then_some(sent)
    }

    /// Step 4: claims the request, if it waits for a server.
    pub(crate) fn claim(&self, server: u16) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let sent = self.load();
            if sent.state() != Some(State::Sent) {
                return None;
            }
            // It can fail because a client has set `waiter` or has cancelled, or because another
            // server was quicker.
            let taken = sent.with(State::Taken, server);
            if self.step(sent, taken) {
                return Some(taken);
            }
        }
        None
    }

    /// Steps 5 and 7: a server lets go of what it had taken. Returns the slot's new word; `None` if
    /// the slot was not this server's any more.
    #[inline]
    pub(crate) fn finish(&self, taken: SlotWord, outcome: State) -> Option<SlotWord> {
        self.replies.store(self.replies.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        for _ in 0..TURNS {
            let now = self.load();
            if now.generation() != taken.generation() || now.delivery() != taken.delivery() {
                return None;
            }
            let next = if now.is(State::Taken, taken.owner()) {
                now.with(outcome, self.client())
            } else if now.is(State::Dropped, taken.owner()) {
                now.freed()
            } else {
                return None;
            };
            if self.step(now, next) {
                return Some(next);
            }
        }
        None
    }

    /// Step 15: puts a call that is done out of the reach of every other thread that has its
    /// ticket.
    pub(crate) fn hold(&self, done: SlotWord) -> Option<SlotWord> {
        // With w, which no slot has while its request is written: so this word differs from that
        // one.
        let held = SlotWord(done.with(State::Fill, done.owner()).0 | WAITER);
        self.step(done, held).then_some(held)
    }

    /// Steps 3 and 6: a client gives up a call that has no reply yet. Returns the slot's new word;
    /// `None` if the reply is there, or if the call is not this client's.
    pub(crate) fn cancel(&self, generation: u64, client: u16) -> Option<SlotWord> {
        for _ in 0..TURNS {
            let now = self.load();
            if now.generation() != generation {
                return None;
            }
            let next = match now.state()? {
                State::Sent if now.owner() == client => now.freed(),
                State::Taken if self.client() == client => now.with(State::Dropped, now.owner()),
                _ => return None,
            };
            if self.step(now, next) {
                if now.has_waiter() {
                    self.wake();
                }
                return Some(next);
            }
        }
        None
    }

    /// Stores the client, and how often the request may go to another server. In FILL.
    #[inline]
    pub(crate) fn set_caller(&self, client: u16, redeliveries: u8) {
        // Relaxed: the swap that sends the request publishes them.
        self.client.store(u32::from(client), Ordering::Relaxed);
        self.redeliveries.store(u32::from(redeliveries), Ordering::Relaxed);
    }

    /// The client of the call.
    #[inline]
    pub(crate) fn client(&self) -> u16 {
        self.client.load(Ordering::Relaxed) as u16
    }

    /// How often the request may go to another server.
    #[inline]
    pub(crate) fn redeliveries(&self) -> u8 {
        self.redeliveries.load(Ordering::Relaxed).min(u32::from(u8::MAX)) as u8
    }

    /// Says how long a payload is, and its flags. In FILL for the request, by the server that has
    /// it for the reply.
    #[inline]
    pub(crate) fn describe(&self, part: Part, len: u32, flags: u32) {
        let (len_at, flags_at) = self.description(part);
        // Relaxed: the swap publishes them.
        len_at.store(len, Ordering::Relaxed);
        flags_at.store(flags, Ordering::Relaxed);
    }

    /// How long a payload is, and its flags, as its writer says.
    #[inline]
    pub(crate) fn described(&self, part: Part) -> (u32, u32) {
        let (len_at, flags_at) = self.description(part);
        (len_at.load(Ordering::Relaxed), flags_at.load(Ordering::Relaxed))
    }

    #[inline]
    fn description(&self, part: Part) -> (&AtomicU32, &AtomicU32) {
        match part {
            Part::Request => (&self.request_len, &self.request_flags),
            Part::Reply => (&self.reply_len, &self.reply_flags),
        }
    }

    pub(crate) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Wakes the threads that wait for this call.
    pub(crate) fn wake(&self) {
        self.word.wake(EVERYONE, Reach::Machine);
    }

    /// Waits until `look` finds something. Step 9 is how a waiter announces itself.
    pub(crate) fn wait<T>(
        &self,
        generation: u64,
        wait: &Wait<'_>,
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        let announce = || {
            let now = self.load();
            let waits =
                matches!(now.state(), Some(State::Sent | State::Taken)) && now.generation() == generation;
            let told = SlotWord(now.0 | WAITER);
            (waits && (now == told || self.step(now, told))).then_some(told.0)
        };
        wait.on(&self.word, announce, look, check)
    }
}
