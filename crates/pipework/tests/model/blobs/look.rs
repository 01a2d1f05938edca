//! The look that finds out whether a file is garbage and frees it, and the recovery of a dead
//! member.

use super::detach::Detach;
use super::world::{FILES, Name, Named, Seen, State, Word};
use super::{Done, Main, Part, Rule, Turn};

/// A look at a file, and its next access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Look {
    pub(crate) file: u8,
    pub(crate) seen: Seen,
    at: At,
    /// Its process had a lock of the file.
    gave_up: bool,
    purpose: Purpose,
    /// A step that is done at the end, when a rule is left out.
    late: Option<Late>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Free,
    /// The maker only corrects a doubtful count.
    Reuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Late {
    Unlock,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Doubt,
    Read,
    Ask,
    /// Counts the slots that name the file.
    Word {
        slot: u8,
        named: u8,
    },
    Request {
        slot: u8,
        named: u8,
        then_reply: bool,
    },
    Reply {
        slot: u8,
        named: u8,
    },
    AskAgain {
        named: u8,
    },
    Correct {
        named: u8,
    },
    ReadAgain,
    Zero,
    Punch,
    Unlink,
    Late,
}

impl Look {
    /// A look by a process that has released a lock.
    pub(crate) fn after(file: u8, late: Option<Late>) -> Look {
        let (seen, at, purpose) = (Seen::default(), At::Read, Purpose::Free);
        Look { file, seen, at, gave_up: true, purpose, late }
    }

    /// A look by a process that checks files that others may have left behind.
    pub(crate) fn at(file: u8) -> Look {
        Look { gave_up: false, ..Look::after(file, None) }
    }

    /// A look by a process that doubts the count first.
    pub(crate) fn doubting(file: u8) -> Look {
        Look { at: At::Doubt, ..Look::at(file) }
    }

    /// The count by a maker that has read a doubtful count.
    pub(crate) fn for_reuse(file: u8, named: Named) -> Look {
        let seen = Seen { named, changed: false };
        Look { seen, at: At::Ask, purpose: Purpose::Reuse, ..Look::at(file) }
    }
}

impl Look {
    /// The word `named` of a file has changed.
    pub(crate) fn note_change(&mut self, file: u8) {
        let has_read =
            !matches!(self.at, At::Doubt | At::Read | At::Zero | At::Punch | At::Unlink | At::Late);
        self.seen.changed |= self.file == file && has_read;
    }
}

/// The recovery of a dead member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sweep {
    gone: u8,
    at: SweepAt,
    /// A process without a role had died before it began.
    unnoticed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SweepAt {
    Slot(u8),
    /// Asks whether the member is dead. The word of a slot was read before.
    Ask {
        slot: u8,
        seen: Word,
        to: Word,
    },
    Mark(u8),
    AskNew(u8),
    UnlinkNew(u8),
    Clear,
}

impl Sweep {
    pub(crate) fn of(gone: u8, unnoticed: bool) -> Sweep {
        Sweep { gone, at: SweepAt::Slot(0), unnoticed }
    }
}

impl Turn<'_> {
    pub(crate) fn look(&mut self) -> Done {
        let Some(mut look) = self.actor().look else { unreachable!("it looks") };
        let file = usize::from(look.file);
        let (next, what) = match look.at {
            At::Doubt => {
                self.world.doubt(look.file);
                (Some(At::Read), "doubts the count")
            }
            At::Read => {
                let named = self.world.files[file].named;
                look.seen = Seen { named, changed: false };
                let leaves = !named.doubted;
                let is_there = self.world.files[file].name == Name::Final;
                ((is_there && !leaves).then_some(At::Ask), "reads `named`")
            }
            At::Ask => {
                let next = match look.seen.named.count {
                    0 => At::ReadAgain,
                    _ => At::Word { slot: 0, named: 0 },
                };
                ((!self.is_locked_for_others(look)).then_some(next), "asks for locks")
            }
            At::Word { slot, named } => {
                let state = self.slot(slot).word.state;
                let then_reply = state.names_reply();
                let next = if state.names_request() {
                    At::Request { slot, named, then_reply }
                } else {
                    self.count_on(look, slot, named)
                };
                (Some(next), "reads a slot's word")
            }
            At::Request { slot, named, then_reply } => {
                let handle = self.slot(slot).request;
                let named = named + u8::from(handle.is_some_and(|handle| handle.file == look.file));
                let next =
                    if then_reply { At::Reply { slot, named } } else { self.count_on(look, slot, named) };
                (Some(next), "reads a request's handle")
            }
            At::Reply { slot, named } => {
                let handle = self.slot(slot).reply;
                let named = named + u8::from(handle.is_some_and(|handle| handle.file == look.file));
                (Some(self.count_on(look, slot, named)), "reads a reply's handle")
            }
            At::AskAgain { named } => {
                let next = self.counted(look, named);
                ((!self.is_locked_for_others(look)).then_some(next), "asks for locks again")
            }
            At::Correct { named } => {
                let may = !look.seen.changed || !self.keeps(Rule::CorrectOnlyTheWordRead);
                let doubted = look.purpose == Purpose::Free && self.keeps(Rule::CorrectedKeepsDoubt);
                if may {
                    self.world.change_named(look.file, |word| *word = Named { count: named, doubted });
                }
                let ends = may || look.purpose == Purpose::Reuse;
                (if ends { None } else { self.again() }, "corrects the count")
            }
            At::ReadAgain => {
                let next = if self.differs(look) { self.again() } else { Some(At::Zero) };
                (next, "reads `named` again")
            }
            At::Zero => {
                self.world.files[file].generation = 0;
                (Some(At::Punch), "frees it: clears the generation")
            }
            At::Punch => {
                self.world.files[file].data = 0;
                (Some(At::Unlink), "punches a hole")
            }
            At::Unlink => {
                // Nobody reads it any more.
                self.world.change_named(look.file, |named| *named = Named::default());
                self.world.files[file].name = Name::Unlinked;
                (None, "unlinks it")
            }
            At::Late => {
                match look.late.take() {
                    Some(Late::Unlock) => self.world.opens[self.me][file].hold = false,
                    _ => self.world.close(self.me, file),
                }
                (None, "unlocks too late")
            }
        };
        if matches!(next, Some(At::Read | At::Zero)) {
            look.seen = Seen::default();
        }
        let next = next.or(look.late.map(|_| At::Late));
        self.actor().look = next.map(|at| Look { at, ..look });
        Ok(what)
    }

    /// What a look does when `named` has changed.
    fn again(&self) -> Option<At> {
        self.keeps(Rule::LookAgainIfChanged).then_some(At::Read)
    }

    /// Whether the kernel reports a lock.
    fn is_locked_for_others(&self, look: Look) -> bool {
        let file = usize::from(look.file);
        if look.purpose == Purpose::Reuse {
            return self.world.is_held(file);
        }
        let is_own = look.late.is_some()
            || self.world.actors[self.me].sweep.is_some() && !self.keeps(Rule::AskThroughAnotherOpen);
        let mut world = self.world;
        if is_own {
            world.opens[self.me][file] = Default::default();
        }
        world.is_locked(file)
    }

    fn differs(&self, look: Look) -> bool {
        let named = self.world.files[usize::from(look.file)].named;
        if look.seen.named.count > 0 {
            return look.seen.changed && self.keeps(Rule::CountedIsReadAgain);
        }
        match (self.keeps(Rule::ReadNamedAgain), self.keeps(Rule::VersionCounts)) {
            (false, _) => false,
            (true, false) => named != look.seen.named,
            (true, true) => look.seen.changed,
        }
    }

    /// The next access after a slot, with `named` handles counted so far.
    fn count_on(&self, look: Look, slot: u8, named: u8) -> At {
        let rule = match look.purpose {
            Purpose::Free => Rule::AskAgainAfterCounting,
            Purpose::Reuse => Rule::AskAgainBeforeReuse,
        };
        match slot + 1 {
            slot if slot < self.scope.slots => At::Word { slot, named },
            _ if self.keeps(rule) => At::AskAgain { named },
            _ => self.counted(look, named),
        }
    }

    /// The next access when the slots are counted.
    fn counted(&self, look: Look, named: u8) -> At {
        if named == 0 && look.purpose == Purpose::Free { At::ReadAgain } else { At::Correct { named } }
    }

    pub(crate) fn sweep(&mut self) -> Done {
        let Some(Sweep { gone, at, unnoticed }) = self.actor().sweep else { unreachable!("it sweeps") };
        let clears_first = !self.keeps(Rule::SweepBeforeRole);
        let (next, what) = match at {
            SweepAt::Slot(slot) => {
                let seen = *self.slot(slot);
                let is_dead = self.world.actors[usize::from(gone)].is_gone();
                match seen.without(gone, self.scope) {
                    Some(to) if !is_dead => {
                        (Some(SweepAt::Ask { slot, seen: seen.word, to }), "finds a slot of a member")
                    }
                    None if !is_dead => (None, "finds no slot of a member"),
                    Some(to) => {
                        self.actor().detach = Some(Detach::of(slot, seen.word, to));
                        (Some(at), "finds a slot of a dead member")
                    }
                    None if slot + 1 < self.scope.slots => (Some(SweepAt::Slot(slot + 1)), "finds none"),
                    None if clears_first => (Some(SweepAt::Clear), "has done the slots"),
                    None => (self.sweep_from(0), "has done the slots"),
                }
            }
            SweepAt::Ask { slot, seen, to } => {
                let is_dead = self.world.actors[usize::from(gone)].is_gone();
                if is_dead {
                    self.actor().detach = Some(Detach::of(slot, seen, to));
                }
                (is_dead.then_some(SweepAt::Slot(slot)), "asks whether the member is dead")
            }
            SweepAt::Mark(file) => {
                let Named { count, doubted } = self.world.files[usize::from(file)].named;
                let marks = self.keeps(Rule::DoubtAfterDeath) && (!doubted || self.keeps(Rule::DoubtAgain));
                if marks && (count > 0 || self.keeps(Rule::DoubtZero)) {
                    self.world.doubt(file);
                }
                self.actor().look = Some(Look::at(file));
                (self.sweep_from(file + 1), "doubts the count")
            }
            SweepAt::AskNew(file) => {
                let is_locked = self.world.is_locked(usize::from(file));
                let next = if is_locked { self.sweep_from(file + 1) } else { Some(SweepAt::UnlinkNew(file)) };
                (next, "asks for the lock of a new file")
            }
            SweepAt::UnlinkNew(file) => {
                let it = &mut self.world.files[usize::from(file)];
                if it.name == Name::New {
                    it.name = Name::Unlinked;
                }
                (self.sweep_from(file + 1), "unlinks a new file")
            }
            SweepAt::Clear => {
                self.world.actors[usize::from(gone)].role = false;
                if !self.keeps(Rule::SweepAfterProof) {
                    self.clear_roles();
                }
                self.world.unnoticed &= !unnoticed;
                (if clears_first { self.sweep_from(0) } else { None }, "clears the role")
            }
        };
        self.actor().sweep = next.map(|at| Sweep { gone, at, unnoticed });
        Ok(what)
    }

    /// Clears the role of each dead member that no slot names.
    fn clear_roles(&mut self) {
        let (slots, scope) = (self.world.slots, self.scope);
        for (number, actor) in (0..).zip(&mut self.world.actors) {
            let is_named = slots.iter().any(|slot| slot.without(number, scope).is_some());
            actor.role &= is_named || !actor.is_gone();
        }
    }

    /// The next access when all files before this one are done.
    fn sweep_from(&self, file: u8) -> Option<SweepAt> {
        let step = |file: usize| match self.world.files[file].name {
            Name::Final => Some(SweepAt::Mark(file as u8)),
            Name::New => Some(SweepAt::AskNew(file as u8)),
            Name::None | Name::Unlinked => None,
        };
        let file = (usize::from(file)..FILES).find_map(step);
        file.or(self.keeps(Rule::SweepBeforeRole).then_some(SweepAt::Clear))
    }

    /// The program drops one of its blobs.
    pub(crate) fn drop_blob(&mut self, file: usize) {
        self.actor().blobs[file] -= 1;
        self.let_go(file, self.keeps(Rule::LookAfterDropping));
    }

    /// Releases the lock of a file unless the process still needs it.
    pub(crate) fn let_go(&mut self, file: usize, looks: bool) {
        let me = self.scope.process(self.me);
        let actor = self.world.actors[me];
        let is_needed = actor.blobs[file] > 0 || actor.borrowed[file];
        if is_needed || self.scope.detaches_beside(&self.world, self.me, file) {
            return;
        }
        let open = self.world.opens[me][file];
        let (mut late, mut looks, mut doubts) = (None, looks, false);
        if actor.forked[file] && (!open.interest || self.keeps(Rule::ForkedIsNotReused)) {
            self.world.actors[me].forked[file] = false;
            doubts = open.interest && self.keeps(Rule::DoubtAfterFork);
            if !self.keeps(Rule::ForkedIsClosed) {
                (self.world.opens[me][file].hold, self.world.opens[me][file].interest) = (false, false);
            } else if self.keeps(Rule::CloseBeforeLooking) {
                self.world.close(me, file);
            } else {
                late = Some(Late::Close);
            }
            self.world.actors[me].listed[file] = self.keeps(Rule::LookAgainAfterFork);
        } else if open.interest {
            // The file is in the pool.
            looks = false;
        } else if self.keeps(Rule::UnlockBeforeLooking) {
            self.world.opens[me][file].hold = false;
        } else {
            late = Some(Late::Unlock);
        }
        if looks {
            let look = Look::after(file as u8, late);
            self.actor().look = Some(if doubts { Look { at: At::Doubt, ..look } } else { look });
        }
    }

    /// A child drops a blob of its parent's.
    pub(crate) fn drop_inherited(&mut self, file: usize) {
        self.actor().inherits[file] = false;
        self.world.close_inherited(file);
        self.actor().look = Some(Look::after(file as u8, None));
    }

    /// The maker of a file gives up its interest.
    pub(crate) fn give_up(&mut self, file: usize) {
        self.world.opens[self.me][file].interest = false;
        self.actor().given_up[file] = !self.keeps(Rule::InterestOnce);
        if self.keeps(Rule::LookAfterGivingUp) {
            self.actor().look = Some(Look::after(file as u8, None));
        }
    }

    /// Whether a child's parent is alive: it holds every file that the child shares with it, or has
    /// it on its list.
    fn is_watched(&self) -> bool {
        let mut actors = self.scope.cast.iter().zip(&self.world.actors);
        actors.any(|(part, actor)| *part == Part::Client && !actor.is_gone())
    }

    /// The kernel closes all files of a process.
    pub(crate) fn vanish(&mut self) {
        let (me, is_child, role) = (self.me, self.scope.is_child(self.me), self.world.actors[self.me].role);
        let has_lock = self.world.opens[me].iter().any(|open| open.is_locked());
        let gave_up = self.actor().look.is_some_and(|look| look.gave_up);
        self.world.unnoticed |= !role && (has_lock || gave_up || is_child && !self.is_watched());
        if self.scope.cast.get(me + 1) == Some(&Part::Canceller) {
            self.world.actors[me + 1] = super::Actor::default();
        }
        for file in 0..FILES {
            self.world.close(me, file);
            if is_child {
                self.world.close_inherited(file);
            }
        }
        *self.actor() = super::Actor { main: Main::Gone, role, ..super::Actor::default() };
    }

    pub(crate) fn is_state(&self, slot: u8, state: State) -> bool {
        self.world.slots[usize::from(slot)].word.state == state
    }
}
