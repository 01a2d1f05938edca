//! Finds the members that are dead, and recovers what they held.
//!
//! Invariant: a word is read first, then the death of the member that it names is proved, then that
//! very word is swapped. So a proof that is out of date changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mapping::{ROLE, Role, Shared, count, refused, role};
use super::slot::{SlotWord, State};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sync::{Ordering, Reach};
use crate::sys::{Errno, memory};

/// For how long a thread that waits for something else looks for dead members at a time, and
/// recovers what they held: peers that break the rules can make as many as there are numbers.
const LOOK: Duration = Duration::from_millis(10);

/// Members that are gone, and the words that named them.
pub(crate) type Gone = BTreeMap<u16, u64>;

/// What a search for dead members has found.
struct Survey {
    gone: Gone,
    /// The member that was checked last.
    last: u16,
    /// A server lives, or time was up before all members were checked.
    has_server: bool,
}

/// How it is known that a member is gone.
#[derive(Clone, Copy)]
pub(crate) enum Proof {
    /// The member itself leaves.
    Leaving,
    /// The caller holds the lock of that number.
    Lock,
    /// The kernel is asked, anew for each word, after the word was read.
    Kernel,
}

impl Shared {
    /// Whether a member is dead or has left. The kernel knows; this process's own members have
    /// their locks on other open files than the one that asks.
    pub(crate) fn is_gone(&self, number: u16, op: &'static str) -> Result<bool> {
        let Some(byte) = self.lock_byte(number) else { return Ok(true) };
        if memory::is_locked(self.file(), byte).map_err(|errno| refused(errno, op))? {
            return Ok(false);
        }
        // "Not locked" is believed of this file only: of another one it would rob a live member.
        if self.is_lost() { Err(refused(Errno::BADF, op)) } else { Ok(true) }
    }

    /// Recovers the members that died without leaving, if their role `matters`; returns whether a
    /// server lives, or may. For threads that wait for something else: it ends soon, and the next
    /// call continues from there.
    pub(crate) fn recover_dead(&self, matters: impl Fn(Role) -> bool, op: &'static str) -> Result<bool> {
        let members = self.geometry().members as u16;
        let (first, limit) = (self.looked_at.get() as u16 % members, Deadline::after(LOOK));
        let round = (first..members).chain(0..first).map(|idx| idx + 1);
        let Survey { gone, last, has_server } = self.survey(round, matters, limit, op)?;
        self.recover_gone(gone, Deadline::after(LOOK), op)?;
        self.looked_at.set(u64::from(last));
        Ok(has_server)
    }

    /// Recovers all, however long it takes; returns how many had died.
    pub(crate) fn recover_all(&self, op: &'static str) -> Result<usize> {
        self.check_whole(op)?;
        let all = 1..=self.geometry().members as u16;
        let survey = self.survey(all, |_| true, Deadline::NEVER, op)?;
        self.recover_gone(survey.gone, Deadline::NEVER, op)
    }

    /// The members of `numbers` that died without leaving.
    fn survey(
        &self,
        numbers: impl IntoIterator<Item = u16>,
        matters: impl Fn(Role) -> bool,
        limit: Deadline,
        op: &'static str,
    ) -> Result<Survey> {
        let mut survey = Survey { gone: Gone::new(), last: 0, has_server: false };
        for number in numbers {
            survey.last = number;
            let Some(member) = self.member(number) else { continue };
            // Acquire: pairs with the Release in `take_number`. Read before the proof, and the
            // proof is there before the first slot is looked at.
            let word = member.word.load(Ordering::Acquire);
            let Some(role) = role(word).filter(|role| matters(*role)) else { continue };
            if self.is_gone(number, op)? {
                survey.gone.insert(number, word);
            } else {
                survey.has_server |= role == Role::Server;
            }
            if limit.has_passed() {
                survey.has_server = true;
                break;
            }
        }
        Ok(survey)
    }

    /// Recovers all that they held, and then clears their roles; returns how many of them it was
    /// the first to clear.
    fn recover_gone(&self, mut gone: Gone, limit: Deadline, op: &'static str) -> Result<usize> {
        // A member that has taken a number over meanwhile believes the role, and has the rest to
        // do.
        if !self.recover(&mut gone, Proof::Kernel, limit, op)? {
            return Ok(0);
        }
        let mut found = 0;
        for (number, word) in gone {
            let Some(member) = self.member(number) else { continue };
            let swap = |from, to| {
                member.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if swap(word, word & !ROLE) {
                count(&self.recoveries().dead_members);
                found += 1;
            }
        }
        Ok(found)
    }

    /// Whether a server is attached and alive.
    pub(crate) fn has_server(&self, op: &'static str) -> Result<bool> {
        for (number, member) in self.members() {
            if role(member.word.load(Ordering::Acquire)) == Some(Role::Server) && !self.is_gone(number, op)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Recovers all slots that name the members `gone`, in one pass; false if that is not all done:
    /// time was up before, or the ring is full. Members that turned out to live are removed from
    /// `gone`.
    pub(crate) fn recover(
        &self,
        gone: &mut Gone,
        proof: Proof,
        limit: Deadline,
        op: &'static str,
    ) -> Result<bool> {
        /// More often than a slot can change hands while its member is gone.
        const TURNS: usize = 64;
        if gone.is_empty() {
            return Ok(true);
        }
        for (idx, slot) in self.slots() {
            for _ in 0..TURNS {
                let (fields, now) = (slot.fields(), slot.load());
                let names =
                    |number: &u16| gone.contains_key(number) && now.without(*number, fields).is_some();
                let Some(number) = now.names(fields).into_iter().find(names) else { break };
                if !self.take_away(idx, number, proof, op)? {
                    gone.remove(&number);
                }
                if limit.has_passed() {
                    return Ok(false);
                }
            }
        }
        // As long as the role is there, another recoverer does it if this one dies before.
        self.enqueue_again(op)
    }

    /// Takes one slot away from a member that is gone; false if that member lives.
    fn take_away(&self, idx: u32, gone: u16, proof: Proof, op: &'static str) -> Result<bool> {
        let Some(slot) = self.slot(idx) else { return Ok(true) };
        let word = slot.load();
        let Some(next) = word.without(gone, slot.fields()) else { return Ok(true) };
        if matches!(proof, Proof::Kernel) && !self.is_gone(gone, op)? {
            return Ok(false);
        }
        if !slot.step(word, next) {
            return Ok(true);
        }
        if !matches!(proof, Proof::Leaving) {
            count(&self.recoveries().recovered);
        }
        self.tell_of_death(idx, word, next);
        Ok(true)
    }

    /// What follows from a slot's step from `word` to `next`, which takes a member out of it.
    pub(crate) fn tell_of_death(&self, idx: u32, word: SlotWord, next: SlotWord) {
        let Some(slot) = self.slot(idx) else { return };
        match next.state() {
            Some(State::Sent) => {
                // It is pushed when all slots are done.
                count(&self.recoveries().redelivered);
            }
            Some(State::Free) => {
                self.slot_is_free(idx);
                // It may have been the first in a full ring.
                self.cells().notify_all_swapped(Reach::Machine);
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
