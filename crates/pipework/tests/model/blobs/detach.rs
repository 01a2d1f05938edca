//! A swap of a slot's word after which the slot may no longer name some files: the process locks
//! these files, makes the swap, lowers their counts, and unlocks them.

use super::look::Look;
use super::world::{Handle, Name, State, Word, leave};
use super::{Done, Rule, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Detach {
    slot: u8,
    seen: Word,
    to: Word,
    /// The files whose handles are removed.
    files: [Option<u8>; 2],
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Reads the word again: under the lock for the parts of a reply, or after the proof.
    Word,
    Read,
    Open(u8),
    Lock(u8),
    CountEarly(u8),
    Swap,
    Count(u8),
    Release(u8),
}

impl Detach {
    /// Whether its thread has the lock for the parts of a reply.
    pub(crate) fn has_lock(&self) -> bool {
        let is_within =
            matches!(self.at, At::Read | At::Open(_) | At::Lock(_) | At::CountEarly(_) | At::Swap);
        self.is_of_part() && is_within
    }

    /// Whether it is about to acquire that lock.
    pub(crate) fn wants_lock(&self) -> bool {
        self.is_of_part() && self.at == At::Word
    }

    /// Whether this is a client's step from PART.
    fn is_of_part(&self) -> bool {
        self.seen.state == State::Part && self.to.state != State::Failed
    }

    pub(crate) fn of(slot: u8, seen: Word, to: Word) -> Detach {
        Detach { slot, seen, to, files: [None; 2], at: At::Word }
    }
}

impl Turn<'_> {
    pub(crate) fn detach(&mut self) -> Done {
        let me = self.me;
        let Some(detach) = self.actor().detach else { unreachable!("it detaches") };
        let mut detach = self.skip_all(detach);
        let (slot, early) = (usize::from(detach.slot), !self.keeps(Rule::CountAfterSwap));
        let (next, what) = match detach.at {
            At::Word if self.world.slots[slot].word == detach.seen => (At::Read, "reads the word again"),
            At::Word => {
                self.has_swapped(detach.slot, detach.to.state, false)?;
                (At::Release(0), "finds another word")
            }
            At::Read => {
                let slot = self.world.slots[slot];
                let (request, reply) = leave(detach.seen.state, detach.to.state, self.scope);
                let file = |handle: Option<Handle>, leaves| handle.filter(|_| leaves).map(|it| it.file);
                detach.files = [file(slot.request, request), file(slot.reply, reply)];
                (At::Open(0), "reads the handles that leave")
            }
            At::Open(which) => {
                let file = usize::from(detach.files[usize::from(which)].expect("not skipped"));
                // A file that is gone was no longer named, so the swap will fail.
                let is_there = self.world.files[file].name == Name::Final;
                (if is_there { At::Lock(which) } else { At::Open(which + 1) }, "opens the file it detaches")
            }
            At::Lock(which) => {
                let file = usize::from(detach.files[usize::from(which)].expect("not skipped"));
                self.world.opens[me][file].hold = true;
                self.actor().borrowed[file] = true;
                (At::Open(which + 1), "locks the file it detaches")
            }
            At::CountEarly(which) => {
                let file = detach.files[usize::from(which)].expect("not skipped");
                self.lower(file);
                (At::CountEarly(which + 1), "lowers the count too early")
            }
            At::Swap => {
                let swaps = self.world.slots[slot].word == detach.seen;
                if swaps {
                    self.world.slots[slot].word = detach.to;
                }
                self.has_swapped(detach.slot, detach.to.state, swaps)?;
                let next = if swaps && !early { At::Count(0) } else { At::Release(0) };
                (next, if swaps { "swaps the word" } else { "fails to swap the word" })
            }
            At::Count(which) => {
                let file = detach.files[usize::from(which)].expect("not skipped");
                self.lower(file);
                if !self.keeps(Rule::HoldToDetach) {
                    self.actor().look = Some(Look::after(file, None));
                }
                (At::Count(which + 1), "lowers the count")
            }
            At::Release(which) => {
                let file = usize::from(detach.files[usize::from(which)].expect("not skipped"));
                self.actor().borrowed[file] = false;
                self.let_go(file, self.keeps(Rule::LookAfterDetaching));
                (At::Release(which + 1), "unlocks the file it has detached")
            }
        };
        let detach = self.skip_all(Detach { at: next, ..detach });
        self.actor().detach = (detach.at != At::Release(2)).then_some(detach);
        Ok(what)
    }

    /// Moves on to the next access; there is none where no handle is removed.
    fn skip_all(&self, mut detach: Detach) -> Detach {
        while let Some(next) = self.skip(detach) {
            detach.at = next;
        }
        detach
    }

    fn skip(&self, detach: Detach) -> Option<At> {
        let me = &self.world.actors[self.me];
        let file = |which: u8| detach.files.get(usize::from(which)).copied().flatten().map(usize::from);
        let holds = |file: usize| self.world.opens[self.me][file].is_locked() || me.inherits[file];
        let rule = if me.sweep.is_none() { Rule::PartsUnderOneLock } else { Rule::ReadWordAfterProof };
        match detach.at {
            At::Word => (!(detach.is_of_part() && self.keeps(rule))).then_some(At::Read),
            At::Read => {
                let leaves = leave(detach.seen.state, detach.to.state, self.scope);
                (leaves == (false, false)).then_some(At::Open(0))
            }
            At::Open(2) if self.keeps(Rule::CountAfterSwap) => Some(At::Swap),
            At::Open(2) => Some(At::CountEarly(0)),
            At::Open(which) => {
                let needs = file(which).is_some_and(|file| !holds(file)) && self.keeps(Rule::HoldToDetach);
                (!needs).then_some(At::Open(which + 1))
            }
            At::CountEarly(2) => Some(At::Swap),
            At::CountEarly(which) => file(which).is_none().then_some(At::CountEarly(which + 1)),
            At::Count(2) => Some(At::Release(0)),
            At::Count(which) => file(which).is_none().then_some(At::Count(which + 1)),
            At::Release(2) => None,
            At::Release(which) => {
                let has = file(which).is_some_and(|file| me.borrowed[file]);
                (!has).then_some(At::Release(which + 1))
            }
            At::Lock(_) | At::Swap => None,
        }
    }

    pub(crate) fn lower(&mut self, file: u8) {
        self.world.change_named(file, |named| named.count = named.count.wrapping_sub(1));
    }

    pub(crate) fn raise(&mut self, file: u8) {
        self.world.change_named(file, |named| named.count += 1);
    }
}
