//! What is done for calls after a death, and whose deaths matter to a client or a server.

use super::shared::{Calls, Role, Shared};
use super::slot::{SlotWord, State};
use crate::clock;
use crate::error::Result;
use crate::event::FIRST_SLICE;
use crate::segment::liveness::{self, Needs, WAITING_TICKS};
use crate::segment::mapping::count;
use crate::segment::member;
use crate::segment::recovery::{Looked, Named, Recover};
use crate::sync::{Flag, Hint, Ordering};

pub(crate) type Attached = member::Attached<Calls>;
pub(crate) type Membership = member::Membership<Calls>;
pub(crate) type Liveness = liveness::Liveness<Calls>;

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

/// What one end knows of the members that it depends on.
#[derive(Debug)]
pub(crate) struct Known {
    /// For how many more ticks dead clients matter as well, because a thread has found no slot.
    lacks_slot: Hint,
    /// For how many more ticks dead clients matter to a server, because a thread has waited for
    /// one.
    awaits_client: Hint,
    /// Whether there was no server at the last tick.
    has_no_server: Flag,
    /// Until when the last seen server is believed to be attached, in nanoseconds of the clock.
    has_server_until_ns: Hint,
}

impl Default for Known {
    fn default() -> Known {
        let [lacks_slot, awaits_client, has_server_until_ns] = [const { Hint::new(0) }; 3];
        Known { lacks_slot, awaits_client, has_no_server: Flag::new(), has_server_until_ns }
    }
}

impl Needs for Calls {
    type Known = Known;

    /// A server that waits for a request depends on no member: clients send requests again.
    fn waits(known: &Known) -> bool {
        known.lacks_slot.get() > 0 || known.awaits_client.get() > 0
    }

    fn recover_needed(known: &Known, me: &Membership, op: &'static str) -> Result<bool> {
        match me.role() {
            Role::Client => known.recover_for_client(me.shared(), op),
            Role::Server => {
                me.finish_recovery(op)?;
                known.recover_for_server(me.shared(), op)
            }
        }
    }
}

impl Known {
    /// Recovers what dead servers held, so that their calls end or go to another server. Returns
    /// false if there is more to recover.
    fn recover_for_client(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let lacks_slot = self.lacks_slot.get() > 0;
        self.lacks_slot.set(self.lacks_slot.get().saturating_sub(1));
        let Looked { has_sought, is_done } =
            shared.recover_dead(|role| lacks_slot || is_server(role), is_server, op)?;
        self.has_no_server.set(!has_sought);
        Ok(is_done)
    }

    /// Ends the calls of dead clients, if a thread waits for a client. If a request was forgotten,
    /// recovers all dead members: the request may have no client that would do it, or that pushes
    /// it. Returns false if there is more to recover.
    fn recover_for_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let awaits_client = self.awaits_client.get() > 0;
        let is_forgotten = shared.forgotten().load(Ordering::Relaxed) != 0;
        if !awaits_client && !is_forgotten {
            return Ok(true);
        }
        self.awaits_client.set(self.awaits_client.get().saturating_sub(1));
        let matters = |role| is_forgotten || !is_server(role);
        Ok(shared.recover_dead(matters, is_server, op)?.is_done)
    }
}

fn is_server(role: Role) -> bool {
    role == Role::Server
}

impl Liveness {
    /// Records that a thread wants a slot and has found none.
    pub(crate) fn lacks_slot(&self) {
        self.known.lacks_slot.set(WAITING_TICKS);
    }

    /// Records that a thread of a server waits for the next step of a client.
    pub(crate) fn awaits_client(&self) {
        self.known.awaits_client.set(WAITING_TICKS);
    }

    /// Whether there was no server at the last tick.
    pub(crate) fn has_no_server(&self) -> bool {
        self.known.has_no_server.is_set()
    }

    /// Whether a server is attached and alive, or was at the last question, which counts for the
    /// time between two ticks: asking the kernel takes longer than a call. If the server leaves
    /// meanwhile, the wait for the reply notices it.
    pub(crate) fn sees_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let now_ns = clock::monotonic_ns() as u64;
        if now_ns < self.known.has_server_until_ns.get() && !self.has_no_server() {
            return Ok(true);
        }
        let sees_one = shared.has(is_server, op)?;
        if sees_one {
            self.known.has_server_until_ns.set(now_ns + FIRST_SLICE.as_nanos() as u64);
            self.known.has_no_server.set(false);
        }
        Ok(sees_one)
    }
}
