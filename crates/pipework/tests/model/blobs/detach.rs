//! A swap of a slot's word after which the slot may no longer name some files: the process reads the
//! counts of files that it has not locked, makes the swap, and lowers the counts.

use super::look::Look;
use super::world::{FILES, Handle, Name, Named, Seen, State, Word, leave};
use super::{Done, Rule, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Detach {
    slot: u8,
    seen: Word,
    to: Word,
    /// The files whose handles are removed.
    files: [Option<u8>; 2],
    /// Files of which the process has a lock.
    pub(crate) locked: [bool; FILES],
    /// For other files: the word from which the count is lowered.
    pub(crate) named: [Option<Seen>; FILES],
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Reads the word again: under the lock for the parts of a reply, or after the proof.
    Word,
    Read,
    Open(u8),
    Named(u8),
    CountEarly(u8),
    Swap,
    NamedLate(u8),
    Count(u8),
    End,
}

impl Detach {
    /// Whether its thread has the lock for the parts of a reply.
    pub(crate) fn has_lock(&self) -> bool {
        let is_within =
            matches!(self.at, At::Read | At::Open(_) | At::Named(_) | At::CountEarly(_) | At::Swap);
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
        let (locked, named) = ([false; FILES], [None; FILES]);
        Detach { slot, seen, to, files: [None; 2], locked, named, at: At::Word }
    }

    fn file(&self, which: u8) -> Option<u8> {
        self.files.get(usize::from(which)).copied().flatten()
    }
}

impl Turn<'_> {
    pub(crate) fn detach(&mut self) -> Done {
        let Some(detach) = self.actor().detach else { unreachable!("it detaches") };
        let mut detach = self.skip_all(detach);
        let slot = usize::from(detach.slot);
        let file_of = |which| detach.file(which).expect("not skipped");
        let (next, what) = match detach.at {
            At::Word if self.world.slots[slot].word == detach.seen => (At::Read, "reads the word again"),
            At::Word => {
                self.has_swapped(detach.slot, detach.to.state, false)?;
                (At::End, "finds another word")
            }
            At::Read => {
                let slot = self.world.slots[slot];
                let (request, reply) = leave(detach.seen.state, detach.to.state, self.scope);
                let file = |handle: Option<Handle>, leaves| handle.filter(|_| leaves).map(|it| it.file);
                detach.files = [file(slot.request, request), file(slot.reply, reply)];
                for file in detach.files.into_iter().flatten().map(usize::from) {
                    detach.locked[file] = self.has_locked(file);
                }
                (At::Open(0), "reads the handles that leave")
            }
            At::Open(which) => {
                // A file that is gone was no longer named, so the swap will fail.
                let is_there = self.world.files[usize::from(file_of(which))].name == Name::Final;
                (if is_there { At::Named(which) } else { At::Open(which + 1) }, "opens the file it detaches")
            }
            At::Named(which) | At::NamedLate(which) => {
                let file = usize::from(file_of(which));
                detach.named[file] = Some(Seen { named: self.kept(file), changed: false });
                let next = if detach.at == At::Named(which) { At::Open(which + 1) } else { At::Count(which) };
                (next, "reads the count that it will lower")
            }
            At::CountEarly(which) => {
                self.lower(file_of(which));
                (At::CountEarly(which + 1), "lowers the count too early")
            }
            At::Swap => {
                let swaps = self.world.slots[slot].word == detach.seen;
                if swaps {
                    self.world.slots[slot].word = detach.to;
                }
                self.has_swapped(detach.slot, detach.to.state, swaps)?;
                (detach.seen, detach.to) = (Word::default(), Word::default());
                match (swaps, self.keeps(Rule::CountAfterSwap), self.keeps(Rule::NamedBeforeSwap)) {
                    (false, ..) => (At::End, "fails to swap the word"),
                    (_, false, _) => (At::End, "swaps the word"),
                    (_, _, true) => (At::Count(0), "swaps the word"),
                    _ => (At::NamedLate(0), "swaps the word"),
                }
            }
            At::Count(which) => {
                let file = file_of(which);
                let what = self.lower_named(file, &mut detach);
                let next = if self.keeps(Rule::NamedBeforeSwap) { At::Count } else { At::NamedLate };
                (next(which + 1), what)
            }
            At::End => unreachable!("it has ended"),
        };
        let detach = self.skip_all(Detach { at: next, ..detach });
        self.actor().detach = (detach.at != At::End).then_some(detach);
        if detach.at == At::End {
            self.let_go_of(detach);
        }
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
        let is_swept = self.world.actors[self.me].sweep.is_some();
        let rule = if is_swept { Rule::ReadWordAfterProof } else { Rule::PartsUnderOneLock };
        let lacks = |which: u8| detach.file(which).is_none();
        let is_locked = |which: u8| detach.file(which).is_none_or(|file| detach.locked[usize::from(file)]);
        // The first handle's word does for both.
        let is_second = |which: u8| which == 1 && detach.files[0] == detach.files[1];
        match detach.at {
            At::Word => (!(detach.is_of_part() && self.keeps(rule))).then_some(At::Read),
            At::Read => {
                let leaves = leave(detach.seen.state, detach.to.state, self.scope);
                (leaves == (false, false)).then_some(At::Open(0))
            }
            At::Open(2) if self.keeps(Rule::CountAfterSwap) => Some(At::Swap),
            At::Open(2) => Some(At::CountEarly(0)),
            At::Open(which) => {
                let skips = is_locked(which) || is_second(which) || !self.keeps(Rule::NamedBeforeSwap);
                skips.then_some(At::Open(which + 1))
            }
            At::CountEarly(2) => Some(At::Swap),
            At::CountEarly(which) => lacks(which).then_some(At::CountEarly(which + 1)),
            At::NamedLate(2) => Some(At::End),
            At::NamedLate(which) => (is_locked(which) || is_second(which)).then_some(At::Count(which)),
            At::Count(2) => Some(At::End),
            At::Count(which) if lacks(which) && self.keeps(Rule::NamedBeforeSwap) => {
                Some(At::Count(which + 1))
            }
            At::Count(which) => lacks(which).then_some(At::NamedLate(which + 1)),
            At::Named(_) | At::Swap | At::End => None,
        }
    }

    /// Whether the process has a lock of a file.
    fn has_locked(&self, file: usize) -> bool {
        let process = self.scope.process(self.me);
        self.world.opens[process][file].is_locked() || self.world.actors[process].inherits[file]
    }

    /// Unlocks files that the process locked for another thread, which has left them to this one.
    fn let_go_of(&mut self, detach: Detach) {
        let process = self.scope.process(self.me);
        for file in (0..FILES).filter(|file| detach.locked[*file]) {
            if self.world.opens[process][file].hold {
                self.let_go(file, true);
            }
        }
    }

    /// Lowers the count of a file that a slot named, or doubts it.
    fn lower_named(&mut self, file: u8, detach: &mut Detach) -> &'static str {
        let idx = usize::from(file);
        if detach.locked[idx] {
            self.lower(file);
            return "lowers the count";
        }
        // A file that was not there is not lowered.
        let seen = detach.named[idx].unwrap_or(Seen { changed: true, ..Seen::default() });
        let named = self.world.files[idx].named;
        let is_same =
            if self.keeps(Rule::LoweredVersionCounts) { !seen.changed } else { named == seen.named };
        let looks = self.keeps(Rule::LookAfterDetaching);
        if !is_same && self.keeps(Rule::LowerOnlyTheWordRead) {
            detach.named[idx] = Some(Seen { changed: true, ..seen });
            let mut look =
                if self.keeps(Rule::DoubtIfChanged) { Look::doubting(file) } else { Look::at(file) };
            if !self.keeps(Rule::ChangedIsNotLowered) {
                self.world.doubt(file);
                (look, detach.named[idx]) = (Look::at(file), Some(Seen { changed: false, ..seen }));
            }
            self.actor().look = looks.then_some(look);
            return "finds another count";
        }
        self.lower(file);
        detach.named[idx] = Some(Seen { named: self.kept(idx), changed: false });
        self.actor().look = (self.world.files[idx].named.doubted && looks).then_some(Look::at(file));
        "lowers the count that it has read"
    }

    /// What a detach remembers of a word in addition to whether it has changed.
    fn kept(&self, file: usize) -> Named {
        if self.keeps(Rule::LoweredVersionCounts) { Named::default() } else { self.world.files[file].named }
    }

    pub(crate) fn lower(&mut self, file: u8) {
        let keeps = self.keeps(Rule::LoweredKeepsDoubt);
        self.world.change_named(file, |named| {
            named.count = named.count.wrapping_sub(1);
            named.doubted &= keeps;
        });
    }

    pub(crate) fn raise(&mut self, file: u8) {
        let keeps = self.keeps(Rule::RaisedKeepsDoubt);
        self.world.change_named(file, |named| {
            named.count += 1;
            named.doubted &= keeps;
        });
    }
}
