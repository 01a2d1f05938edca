//! Finds dead members and recovers what they held.
//!
//! Invariant: a word is read first, then the death of the member that it names is proved, then that
//! very word is swapped. So an outdated proof changes nothing. One proof serves for all words that
//! were read before it: asking the kernel takes far longer than swapping a word, and a member may
//! have held very many slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use super::mapping::{ROLE, Role, Shared, Sweep, count, refused, role};
use super::slot::{Slot, SlotWord, State};
use super::word::NOBODY;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sync::{self, Ordering, Unshared};
#[cfg(test)]
use crate::sys;
use crate::sys::{Errno, memory};

/// How long a waiting thread looks for dead members and recovers them at a time. Peers that break
/// the rules can make every number look dead.
const LOOK: Duration = Duration::from_millis(10);

/// How many words are read before the kernel is asked about their members.
const AT_ONCE: usize = 256;

/// Members that are gone, and the words that named them.
pub(crate) type Gone = BTreeMap<u16, u64>;

/// The result of a search for dead members.
struct Survey {
    gone: Gone,
    /// The member that was checked last.
    last: u16,
    has_server: bool,
}

/// How a process knows that a member is gone.
#[derive(Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// The member itself leaves, and has this lock.
    Leaving(&'a Unshared),
    /// The caller holds this lock of that number.
    Lock(&'a Unshared),
    /// The kernel is asked after the words were read.
    Kernel,
}

/// A slot whose word names a member that must be removed from it.
struct Named {
    idx: u32,
    number: u16,
    word: SlotWord,
    /// The word without that member.
    next: SlotWord,
}

/// The findings of a waiting thread about the other members.
pub(crate) struct Looked {
    /// Whether a server is alive, or may be.
    pub(crate) has_server: bool,
    /// False if the time was up before all slots of dead members were recovered.
    pub(crate) is_done: bool,
}

impl Shared {
    /// Whether a member is dead or has left. The kernel reports the locks; this process's own
    /// members have theirs on other open files than the one that asks.
    pub(crate) fn is_gone(&self, number: u16, op: &'static str) -> Result<bool> {
        let Some(byte) = self.lock_byte(number) else { return Ok(true) };
        if memory::is_locked(self.file(), byte).map_err(|errno| refused(errno, op))? {
            return Ok(false);
        }
        // "Not locked" counts only for this file. The answer for another file would make a live
        // member lose its slots.
        if self.is_lost() { Err(refused(Errno::BADF, op)) } else { Ok(true) }
    }

    /// Recovers the members that died without leaving, if their role `matters`. For threads that
    /// wait for something else: it ends soon, and the next call continues from there.
    pub(crate) fn recover_dead(&self, matters: impl Fn(Role) -> bool, op: &'static str) -> Result<Looked> {
        let members = self.geometry().members as u16;
        let (first, limit) = (self.looked_at.get() as u16 % members, Deadline::after(LOOK));
        let round = (first..members).chain(0..first).map(|idx| idx + 1);
        let Survey { gone, last, has_server } = self.survey(round, matters, |_| limit.has_passed(), op)?;
        // Some members may not have been checked.
        let has_server = has_server || limit.has_passed();
        let (dead, cleared) = (gone.len(), self.recover_gone(gone, Deadline::after(LOOK), op)?);
        self.looked_at.set(u64::from(last));
        Ok(Looked { has_server, is_done: dead == 0 || cleared.is_some() })
    }

    /// Removes dead members from these slots, except the member `me`. For a thread that waits for
    /// calls: it learns first of deaths that concern these calls, however much else the dead
    /// members held, and however many members there are. The rest of their recovery is left to
    /// others. Returns false if the time was up before all slots were looked at.
    pub(crate) fn recover_calls(
        &self,
        slots: impl IntoIterator<Item = u32>,
        me: u16,
        op: &'static str,
    ) -> Result<bool> {
        let limit = Deadline::after(LOOK);
        let (mut slots, mut named) = (slots.into_iter().peekable(), Vec::new());
        while slots.peek().is_some() {
            let mut suspects = Gone::new();
            while named.len() < AT_ONCE
                && let Some(idx) = slots.next()
            {
                if let Some(found) = self.named_in(idx, |number| number != me && number != NOBODY) {
                    suspects.insert(found.number, 0);
                    named.push(found);
                }
            }
            self.take_away(&mut named, &mut suspects, Proof::Kernel, op)?;
            if slots.peek().is_some() && limit.has_passed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Recovers all dead members without a time limit; returns how many had died.
    pub(crate) fn recover_all(&self, op: &'static str) -> Result<usize> {
        self.check_whole(op)?;
        let all = self.members().map(|(number, _)| number);
        let survey = self.survey(all, |_| true, |_| false, op)?;
        Ok(self.recover_gone(survey.gone, Deadline::NEVER, op)?.unwrap_or(0))
    }

    /// Whether a server is attached and alive.
    pub(crate) fn has_server(&self, op: &'static str) -> Result<bool> {
        let all = self.members().map(|(number, _)| number);
        Ok(self.survey(all, |role| role == Role::Server, |found| found.has_server, op)?.has_server)
    }

    /// Returns the members of `numbers` that died without leaving, and whether a server is alive.
    /// Stops when `is_enough`.
    fn survey(
        &self,
        numbers: impl IntoIterator<Item = u16>,
        matters: impl Fn(Role) -> bool,
        is_enough: impl Fn(&Survey) -> bool,
        op: &'static str,
    ) -> Result<Survey> {
        let mut survey = Survey { gone: Gone::new(), last: 0, has_server: false };
        for number in numbers {
            survey.last = number;
            let Some(member) = self.member(number) else { continue };
            // Acquire: pairs with the Release in `take_number`. The word is read before the proof,
            // and the proof is made before the first slot is looked at.
            let word = member.word.load(Ordering::Acquire);
            let Some(role) = role(word).filter(|role| matters(*role)) else { continue };
            if self.is_gone(number, op)? {
                survey.gone.insert(number, word);
            } else {
                survey.has_server |= role == Role::Server;
            }
            if is_enough(&survey) {
                break;
            }
        }
        Ok(survey)
    }

    /// Recovers all that these members held, and then clears their roles. Returns how many roles it
    /// was the first to clear, or `None` if not everything is done.
    fn recover_gone(&self, mut gone: Gone, limit: Deadline, op: &'static str) -> Result<Option<usize>> {
        // A member that has taken over a number meanwhile sees the role, and must do the rest.
        if !self.recover(&mut gone, Proof::Kernel, limit, op)? || !self.sweep_blobs(&mut gone, limit) {
            return Ok(None);
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
        Ok(Some(found))
    }

    /// Frees the blobs of dead members before their roles are cleared: as long as a role is there,
    /// another process does it if this one dies meanwhile. Returns false if the time was up before
    /// that. Otherwise `gone` keeps only the members that were dead when the sweep began.
    fn sweep_blobs(&self, gone: &mut Gone, limit: Deadline) -> bool {
        if gone.is_empty() {
            return true;
        }
        let begun = self.swap_sweep(None).filter(|begun| begun.process == sync::generation());
        let fresh = || Sweep { process: sync::generation(), begun_for: gone.clone(), left: None };
        let mut sweep = begun.unwrap_or_else(fresh);
        if !self.blobs().sweep(&mut sweep.left, || limit.has_passed()) {
            self.swap_sweep(Some(sweep));
            return false;
        }
        gone.retain(|number, word| sweep.begun_for.get(number) == Some(word));
        true
    }

    /// Frees files left by processes whose deaths are not noticed, because they were not members or
    /// had left before. For a short time only: the next sweep finds the rest.
    pub(crate) fn sweep_after_joining(&self) {
        self.blobs().sweep_some();
    }

    /// Exchanges the sweep in progress. Another thread that takes it meanwhile starts from the
    /// beginning.
    fn swap_sweep(&self, sweep: Option<Sweep>) -> Option<Sweep> {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        std::mem::replace(&mut self.sweep.lock().unwrap_or_else(PoisonError::into_inner), sweep)
    }

    /// Recovers all slots that name the members `gone`, in one pass. Returns false if not
    /// everything is done: the time was up, or the ring is full. Members that turn out to be alive
    /// are removed from `gone`.
    ///
    /// Each process starts where it last stopped, at a slot of its own. So processes that recover
    /// the same member at the same time share the work.
    pub(crate) fn recover(
        &self,
        gone: &mut Gone,
        proof: Proof<'_>,
        limit: Deadline,
        op: &'static str,
    ) -> Result<bool> {
        if gone.is_empty() {
            return Ok(true);
        }
        #[cfg(test)]
        sys::fault::reached("recover");
        let slots = self.geometry().slots;
        let first = (self.recovered_to.get() % u64::from(slots)) as u32;
        let mut named = Vec::new();
        for idx in (first..slots).chain(0..first) {
            named.extend(self.named_in(idx, |number| gone.contains_key(&number)));
            if named.len() == AT_ONCE {
                self.take_away(&mut named, gone, proof, op)?;
                self.recovered_to.set(u64::from(idx));
                if limit.has_passed() {
                    return Ok(false);
                }
            }
        }
        self.take_away(&mut named, gone, proof, op)?;
        // As long as the role is there, another process does this if this one dies before it.
        self.enqueue_again(op)
    }

    /// How to change a slot that names a member which `are_gone` picks.
    fn named_in(&self, idx: u32, are_gone: impl Fn(u16) -> bool) -> Option<Named> {
        let slot = self.slot(idx)?;
        // The fields are read after the word: if they do not belong to it, the swap fails.
        let word = slot.load();
        let fields = slot.fields();
        word.names(fields).into_iter().filter(|number| are_gone(*number)).find_map(|number| {
            let next = word.without(number, fields)?;
            Some(Named { idx, number, word, next })
        })
    }

    /// Removes members that are gone from the slots that name them, and looks at these slots again
    /// until none names one. Members that are alive are removed from `gone`. `named` is empty
    /// afterwards.
    fn take_away(
        &self,
        named: &mut Vec<Named>,
        gone: &mut Gone,
        proof: Proof<'_>,
        op: &'static str,
    ) -> Result<()> {
        /// More times than a slot can change hands while its member is gone.
        const TURNS: usize = 64;
        for _ in 0..TURNS {
            // The words were read, so the proof may follow.
            let numbers: BTreeSet<u16> = named.iter().map(|named| named.number).collect();
            for number in numbers {
                if gone.contains_key(&number) && !self.is_proved(number, proof, op)? {
                    gone.remove(&number);
                }
            }
            for &Named { idx, number, word, next } in &*named {
                let leaving = self.leaving(idx);
                // A part may have got the same word again before the death: see `leaving`.
                let is_still = |slot: &Slot| word.state() != Some(State::Part) || slot.load() == word;
                let swaps = |slot: &Slot| {
                    gone.contains_key(&number) && is_still(slot) && slot.take_out(word, next, &leaving)
                };
                if self.slot(idx).is_some_and(swaps) {
                    if !matches!(proof, Proof::Leaving(_)) {
                        count(&self.recoveries().recovered);
                    }
                    self.tell_of_death(idx, word, next);
                }
            }
            named.retain_mut(|named| {
                let again = self.named_in(named.idx, |number| gone.contains_key(&number));
                again.map(|again| *named = again).is_some()
            });
            if named.is_empty() {
                break;
            }
        }
        named.clear();
        Ok(())
    }

    fn is_proved(&self, number: u16, proof: Proof<'_>, op: &'static str) -> Result<bool> {
        match proof {
            Proof::Kernel => self.is_gone(number, op),
            // In a child that was forked meanwhile, the lock is the parent's.
            Proof::Lock(lock) | Proof::Leaving(lock) => Ok(lock.is_here()),
        }
    }

    /// The effects of a slot's step from `word` to `next`, which removes a member from it.
    pub(crate) fn tell_of_death(&self, idx: u32, word: SlotWord, next: SlotWord) {
        let Some(slot) = self.slot(idx) else { return };
        match next.state() {
            Some(State::Sent) => {
                // It is pushed when all slots are done.
                count(&self.recoveries().redelivered);
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
