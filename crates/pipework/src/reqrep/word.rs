//! The word of a slot: the state of one call, the side that makes the next step, the word after that
//! step, and the ticket, which is the number of the call. Pure.
//!
//! Invariant: a slot never gets an earlier word again, unless a part of the reply was given; and
//! then only after a step of each side.

use super::layout::MAX_SLOTS;
use crate::segment::header::{MAX_MEMBERS, NOBODY};

/// `{ generation: 40, owner: 16, begun: 1, delivery: 2, waiter: 1, state: 4 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWord(pub(super) u64);

/// The state of a call. The comments have the owner of the slot in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    Free = 0,
    /// The request is being written, or the reply being copied out (client).
    Fill = 1,
    /// It waits for a server (client).
    Sent = 2,
    /// A server has the request (server).
    Taken = 3,
    /// A server has the request, and no caller waits for the reply any more (server).
    Dropped = 4,
    /// Done: the reply has come (client).
    Answered = 5,
    /// Done: the server gave it up (client).
    Failed = 6,
    /// Done: the server died (client).
    Died = 7,
    /// A part of the reply has come, and more may follow (client).
    Part = 8,
    /// A server has the request, and its caller does not want the reply (server).
    Forgotten = 9,
}

impl State {
    pub(crate) fn is_done(self) -> bool {
        matches!(self, State::Answered | State::Failed | State::Died)
    }
}

const STATE: u64 = 0xF;
pub(super) const WAITER: u64 = 1 << 4;
const DELIVERY_SHIFT: u32 = 5;
const DELIVERY: u64 = 3 << DELIVERY_SHIFT;
const BEGUN: u64 = 1 << 7;
const OWNER_SHIFT: u32 = 8;
const OWNER: u64 = 0xFFFF << OWNER_SHIFT;
const GENERATION_SHIFT: u32 = 24;
const _: () = assert!(MAX_MEMBERS as u64 <= OWNER >> OWNER_SHIFT, "a word holds any member's number");

/// How many times a request can go to another server after one died with it.
pub const MAX_REDELIVERIES: u8 = 3;
const _: () = assert!(MAX_REDELIVERIES as u64 <= DELIVERY >> DELIVERY_SHIFT);

impl SlotWord {
    pub(crate) fn from_bits(bits: u64) -> SlotWord {
        SlotWord(bits)
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// Marks a word that a server remembers as that of an adopted request. Such a request is not
    /// adopted again by a child of the child: that child may get the number of a dead grandparent,
    /// and the slot would get an earlier word again.
    pub(super) fn as_adopted(self) -> SlotWord {
        SlotWord(self.0 | BEGUN)
    }

    /// Whether a word that a server remembers has that mark.
    pub(super) fn is_adopted(self) -> bool {
        self.has_begun()
    }

    /// The state; `None` for bits that only a peer that breaks the rules writes.
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
            8 => State::Part,
            9 => State::Forgotten,
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

    /// Whether its reply has come.
    pub(crate) fn is_answered(self) -> bool {
        self.0 & STATE == State::Answered as u64
    }

    /// Whether a part of its reply was given.
    pub(crate) fn has_begun(self) -> bool {
        self.0 & BEGUN != 0
    }

    /// Whether this is the call that a server claimed with `taken`, whichever side makes the next
    /// step.
    pub(super) fn is_call(self, taken: SlotWord) -> bool {
        self.generation() == taken.generation() && self.delivery() == taken.delivery()
    }

    /// Whether this is the word that was `seen`, except that the other side may have announced that
    /// it waits.
    pub(super) fn is_same_turn(self, seen: SlotWord) -> bool {
        self.0 | WAITER == seen.0 | WAITER
    }

    /// Whether the request that a client has `sent` still waits for its first server. The client
    /// may have forgotten it.
    pub(crate) fn still_waits(self, sent: SlotWord) -> bool {
        self.state() == Some(State::Sent) && self.is_call(sent)
    }

    pub(super) fn with(self, state: State, owner: u16) -> SlotWord {
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

    /// The word after one side of a call whose reply comes in parts passes the turn to the other.
    /// It wakes the threads that wait for the turn, and they announce themselves again.
    pub(super) fn turned(self, state: State, owner: u16) -> SlotWord {
        SlotWord((self.with(state, owner).0 | BEGUN) & !WAITER)
    }

    /// The word after the death of member `dead`: steps 10 to 14, 21, 22, 29 and 30. `None` if the
    /// word does not name that member. If the word can still be swapped, the fields belong to it.
    pub(crate) fn without(self, dead: u16, fields: Fields) -> Option<SlotWord> {
        let Fields { client, server, redeliveries } = fields;
        let owned = self.owner() == dead;
        let goes_on = !self.has_begun() && self.delivery() < redeliveries.min(MAX_REDELIVERIES);
        match self.state()? {
            State::Taken if owned && goes_on => Some(self.sent_again(client)),
            State::Taken if owned => Some(self.with(State::Died, client)),
            State::Taken if client == dead => Some(self.with(State::Dropped, self.owner())),
            State::Forgotten if owned && goes_on => Some(self.sent_again(NOBODY)),
            State::Part if owned => Some(self.with(State::Dropped, server)),
            State::Part if server == dead => Some(self.with(State::Died, self.owner())),
            State::Free | State::Taken | State::Part => None,
            _ => owned.then(|| self.freed()),
        }
    }

    /// The word after its server gives the request back: step 31. `None` if it cannot.
    pub(super) fn given_back(self, client: u16) -> Option<SlotWord> {
        let can_be = !self.has_begun() && self.delivery() < MAX_REDELIVERIES;
        match self.state()? {
            State::Taken if can_be => Some(self.sent_again(client)),
            State::Forgotten if can_be => Some(self.sent_again(NOBODY)),
            _ => None,
        }
    }

    pub(super) fn sent_again(self, client: u16) -> SlotWord {
        SlotWord(self.with(State::Sent, client).0 + (1 << DELIVERY_SHIFT))
    }

    /// The members that it names.
    pub(crate) fn names(self, fields: Fields) -> [u16; 2] {
        let other = match self.state() {
            Some(State::Taken) => fields.client,
            Some(State::Part) => fields.server,
            _ => self.owner(),
        };
        [self.owner(), other]
    }
}

/// The fields of a slot that name members, and how many times its request may go to another server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) client: u16,
    pub(crate) server: u16,
    pub(crate) redeliveries: u8,
}

impl SlotWord {
    /// The messages whose blobs the slot stops naming with a step to `to`: the request and the
    /// reply.
    ///
    /// A request names its blobs until the slot is free, because another server may get it. A part
    /// of a reply that its server withdraws when it fails the call still names its blobs: the marks
    /// stay.
    #[inline]
    pub(super) fn stops_naming(self, to: SlotWord) -> [bool; 2] {
        let (Some(from), Some(to)) = (self.state(), to.state()) else { return [false; 2] };
        // The reply is being copied out. A request that is being written must not be read.
        let is_held = from == State::Fill && self.has_waiter();
        let has_request = is_held || !matches!(from, State::Free | State::Fill);
        let has_reply = is_held || matches!(from, State::Answered | State::Failed | State::Part);
        let keeps_reply = from == to || matches!(to, State::Fill | State::Failed);
        [has_request && to == State::Free, has_reply && !keeps_reply]
    }
}

/// A call in progress: `{ generation: 40, slot: 24 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

const _: () = assert!(MAX_SLOTS <= 1 << Ticket::SLOT_BITS, "a ticket holds the number of any slot");

impl Ticket {
    const SLOT_BITS: u32 = 24;

    pub(crate) fn new(idx: u32, word: SlotWord) -> Ticket {
        Ticket(word.generation() << Ticket::SLOT_BITS | u64::from(idx))
    }

    /// As a number, for instance to keep it in another language.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From that number. A number that was never a ticket is `Stale` wherever it is used.
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket(bits)
    }

    /// The index of its slot, which is below [`Geometry::slots`](crate::reqrep::Geometry::slots) if
    /// it is a ticket of that segment.
    pub fn idx(self) -> u32 {
        (self.0 & ((1 << Ticket::SLOT_BITS) - 1)) as u32
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 >> Ticket::SLOT_BITS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn request_names_its_blobs_until_the_slot_is_free_and_reply_until_it_is_received() {
        let word = |state: State| SlotWord::from_bits(state as u64);
        let held = SlotWord::from_bits(State::Fill as u64 | 1 << 4);
        let free = word(State::Free);
        let to_free = |state| word(state).stops_naming(free);
        for state in [State::Sent, State::Taken, State::Dropped, State::Forgotten, State::Died] {
            assert_eq!(to_free(state), [true, false], "{state:?}");
        }
        assert_eq!((to_free(State::Fill), to_free(State::Free)), ([false; 2], [false; 2]));
        assert_eq!((to_free(State::Answered), to_free(State::Failed)), ([true; 2], [true; 2]));
        assert_eq!(
            (held.stops_naming(free), word(State::Answered).stops_naming(held)),
            ([true; 2], [false; 2])
        );
        let part_to = |state| word(State::Part).stops_naming(word(state));
        for state in [State::Taken, State::Dropped, State::Forgotten, State::Died] {
            assert_eq!(part_to(state), [false, true], "{state:?}");
        }
        assert_eq!((part_to(State::Failed), part_to(State::Part)), ([false; 2], [false; 2]));
        assert_eq!(word(State::Taken).stops_naming(word(State::Sent)), [false; 2]);
    }
}
