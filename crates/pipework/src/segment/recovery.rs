//! Finds dead members and recovers what they held.
//!
//! Invariant: a word is read first, then the death of the member that it names is proved, then that
//! very word is swapped. So an outdated proof changes nothing. One proof serves for all words that
//! were read before it: asking the kernel takes far longer than swapping a word, and a member may
//! have held very many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use super::header::NOBODY;
use super::mapping::{Contents, ROLE, Shared, Sweep, count, refused};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sync::{self, Ordering, Unshared};
#[cfg(test)]
use crate::sys;
use crate::sys::{Errno, memory};

/// How long a waiting thread looks for dead members and recovers them at a time. Peers that break
/// the rules can make every number look dead.
const LOOK: Duration = Duration::from_millis(10);

/// How many words are read before the kernel is asked about their members. A question takes a
/// microsecond, and a swap a fiftieth of that.
const AT_ONCE: usize = 256;

/// What a module does after a death: its words that name members, each at a number of its own, and the
/// steps that remove a member from them.
pub(crate) trait Recover: Contents {
    /// A step of a word, from the word that was read.
    type Step: Copy;

    /// How many words may name members.
    fn words_of_members(shared: &Shared<Self>) -> u32;

    /// The step that removes a member from this word: one of those that `are_gone` picks. `None` if the
    /// word names none of them.
    fn names(shared: &Shared<Self>, word: u32, are_gone: impl Fn(u16) -> bool) -> Option<Named<Self::Step>>;

    /// Makes the step, if the word is still the one that was read. It calls `done` then, before it wakes
    /// those that wait for the step.
    fn remove(shared: &Shared<Self>, named: &Named<Self::Step>, done: impl FnOnce());

    /// Called after the last step. False if something remains to be done, for which the role stays.
    fn finish(shared: &Shared<Self>, op: &'static str) -> Result<bool>;

    /// Whether a member of this role joins although its number is not [finished](Recover::finish),
    /// because it does the rest at its ticks.
    fn finishes_later(role: Self::Role) -> bool;
}

/// A word that names a member which must be removed from it.
#[derive(Clone, Copy)]
pub(crate) struct Named<S> {
    pub(crate) word: u32,
    pub(crate) number: u16,
    pub(crate) step: S,
}

/// Members that are gone, and the words that named them.
pub(crate) type Gone = BTreeMap<u16, u64>;

/// The result of a search for dead members.
struct Survey {
    gone: Gone,
    /// The member that was checked last.
    last: u16,
    /// Whether one that is alive was sought.
    has_sought: bool,
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

/// The findings of a waiting thread about the other members.
pub(crate) struct Looked {
    /// Whether a member that was sought is alive, or may be.
    pub(crate) has_sought: bool,
    /// False if the time was up before all words of dead members were recovered.
    pub(crate) is_done: bool,
}

impl<C: Contents> Shared<C> {
    /// Whether a member is dead or has left. The kernel reports the locks; this process's own
    /// members have theirs on other open files than the one that asks.
    pub(crate) fn is_gone(&self, number: u16, op: &'static str) -> Result<bool> {
        let Some(byte) = self.lock_byte(number) else { return Ok(true) };
        if memory::is_locked(self.file(), byte).map_err(|errno| refused::<C>(errno, op))? {
            return Ok(false);
        }
        // "Not locked" counts only for this file. The answer for another file would make a live
        // member lose what it holds.
        if self.is_lost() { Err(refused::<C>(Errno::BADF, op)) } else { Ok(true) }
    }

    /// Whether a member that is `sought` is attached and alive.
    pub(crate) fn has(&self, sought: impl Fn(C::Role) -> bool, op: &'static str) -> Result<bool> {
        let all = self.members().map(|(number, _)| number);
        Ok(self.survey(all, &sought, &sought, |found| found.has_sought, op)?.has_sought)
    }

    /// Returns the members of `numbers` that died without leaving, if their role `matters`, and whether
    /// one of them that is `sought` is alive. Stops when `is_enough`.
    fn survey(
        &self,
        numbers: impl IntoIterator<Item = u16>,
        matters: impl Fn(C::Role) -> bool,
        sought: impl Fn(C::Role) -> bool,
        is_enough: impl Fn(&Survey) -> bool,
        op: &'static str,
    ) -> Result<Survey> {
        let mut survey = Survey { gone: Gone::new(), last: 0, has_sought: false };
        for number in numbers {
            survey.last = number;
            let Some(member) = self.member(number) else { continue };
            // Acquire: pairs with the Release in `take_number`. The word is read before the proof,
            // and the proof is made before the first word of the module is looked at.
            let word = member.word.load(Ordering::Acquire);
            let Some(role) = Self::role(word).filter(|role| matters(*role)) else { continue };
            if self.is_gone(number, op)? {
                survey.gone.insert(number, word);
            } else {
                survey.has_sought |= sought(role);
            }
            if is_enough(&survey) {
                break;
            }
        }
        Ok(survey)
    }

    fn is_proved(&self, number: u16, proof: Proof<'_>, op: &'static str) -> Result<bool> {
        match proof {
            Proof::Kernel => self.is_gone(number, op),
            // In a child that was forked meanwhile, the lock is the parent's.
            Proof::Lock(lock) | Proof::Leaving(lock) => Ok(lock.is_here()),
        }
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

    /// Exchanges the sweep in progress. Another thread that takes it meanwhile starts from the
    /// beginning.
    fn swap_sweep(&self, sweep: Option<Sweep>) -> Option<Sweep> {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        std::mem::replace(&mut self.sweep.lock().unwrap_or_else(PoisonError::into_inner), sweep)
    }
}

impl<C: Recover> Shared<C> {
    /// Recovers the members that died without leaving, if their role `matters`; says whether one that is
    /// `sought` is alive. For threads that wait for something else: it ends soon, and the next call
    /// continues from there.
    pub(crate) fn recover_dead(
        &self,
        matters: impl Fn(C::Role) -> bool,
        sought: impl Fn(C::Role) -> bool,
        op: &'static str,
    ) -> Result<Looked> {
        let members = self.sizes().members as u16;
        let (first, limit) = (self.looked_at.get() as u16 % members, Deadline::after(LOOK));
        let round = (first..members).chain(0..first).map(|idx| idx + 1);
        let survey = self.survey(round, matters, sought, |_| limit.has_passed(), op)?;
        // Some members may not have been checked.
        let has_sought = survey.has_sought || limit.has_passed();
        let (dead, cleared) = (survey.gone.len(), self.recover_gone(survey.gone, Deadline::after(LOOK), op)?);
        self.looked_at.set(u64::from(survey.last));
        Ok(Looked { has_sought, is_done: dead == 0 || cleared.is_some() })
    }

    /// Removes dead members from these words, except the member `me`. For a thread that waits for these
    /// words: it learns first of deaths that concern it, however much else the dead members held, and
    /// however many members there are. The rest of their recovery is left to others. Returns false if
    /// the time was up before all words were looked at.
    pub(crate) fn recover_words(
        &self,
        words: impl IntoIterator<Item = u32>,
        me: u16,
        op: &'static str,
    ) -> Result<bool> {
        let limit = Deadline::after(LOOK);
        let (mut words, mut named) = (words.into_iter().peekable(), Vec::new());
        while words.peek().is_some() {
            let mut suspects = Gone::new();
            while named.len() < AT_ONCE
                && let Some(word) = words.next()
            {
                if let Some(found) = C::names(self, word, |number| number != me && number != NOBODY) {
                    suspects.insert(found.number, 0);
                    named.push(found);
                }
            }
            self.remove_gone(&mut named, &mut suspects, Proof::Kernel, op)?;
            if words.peek().is_some() && limit.has_passed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// For a segment whose name this process has removed: recovers dead members, and frees the blobs that
    /// dead processes have left. This process may end without closing the segment.
    pub(crate) fn free_left(&self, op: &'static str) {
        // The name is gone already, and an error would say that it is not.
        let _ = self.recover_all(op);
        self.blobs().free_all_left();
    }

    /// Recovers all dead members without a time limit; returns how many had died.
    pub(crate) fn recover_all(&self, op: &'static str) -> Result<usize> {
        self.check_whole(op)?;
        let all = self.members().map(|(number, _)| number);
        let survey = self.survey(all, |_| true, |_| false, |_| false, op)?;
        Ok(self.recover_gone(survey.gone, Deadline::NEVER, op)?.unwrap_or(0))
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

    /// Recovers all words that name the members `gone`, in one pass. Returns false if not everything is
    /// done: the time was up, or the module has more to do. Members that turn out to be alive are removed
    /// from `gone`.
    ///
    /// Each process starts where it last stopped, at a word of its own. So processes that recover the
    /// same member at the same time share the work.
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
        let words = C::words_of_members(self);
        let first = (self.recovered_to.get() % u64::from(words)) as u32;
        let mut named = Vec::new();
        for word in (first..words).chain(0..first) {
            named.extend(C::names(self, word, |number| gone.contains_key(&number)));
            if named.len() == AT_ONCE {
                self.remove_gone(&mut named, gone, proof, op)?;
                self.recovered_to.set(u64::from(word));
                if limit.has_passed() {
                    return Ok(false);
                }
            }
        }
        self.remove_gone(&mut named, gone, proof, op)?;
        // As long as the role is there, another process does this if this one dies before it.
        C::finish(self, op)
    }

    /// Removes members that are gone from the words that name them, and looks at these words again
    /// until none names one. Members that are alive are removed from `gone`. `named` is empty
    /// afterwards.
    fn remove_gone(
        &self,
        named: &mut Vec<Named<C::Step>>,
        gone: &mut Gone,
        proof: Proof<'_>,
        op: &'static str,
    ) -> Result<()> {
        /// More times than a word can change hands while its member is gone.
        const TURNS: usize = 64;
        for _ in 0..TURNS {
            // The words were read, so the proof may follow.
            let numbers: BTreeSet<u16> = named.iter().map(|named| named.number).collect();
            for number in numbers {
                if gone.contains_key(&number) && !self.is_proved(number, proof, op)? {
                    gone.remove(&number);
                }
            }
            for named in named.iter().filter(|named| gone.contains_key(&named.number)) {
                C::remove(self, named, || {
                    if !matches!(proof, Proof::Leaving(_)) {
                        count(&self.recoveries().recovered);
                    }
                });
            }
            named.retain_mut(|named| {
                let again = C::names(self, named.word, |number| gone.contains_key(&number));
                again.map(|again| *named = again).is_some()
            });
            if named.is_empty() {
                break;
            }
        }
        named.clear();
        Ok(())
    }
}
