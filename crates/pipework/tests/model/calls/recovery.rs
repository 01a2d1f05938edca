//! Joining, leaving, dying, and recovering what a dead member held.

use super::{Done, Ends, Entry, Main, Member, NOBODY, Role, Rule, Scope, State, Turn, Word};

/// A recovery of member `gone`, and its next access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovery {
    gone: u8,
    proof: Proof,
    at: At,
}

/// How a process knows that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Proof {
    Leaving,
    Lock,
    /// The kernel is asked. The epoch is the one in the member word that was read first.
    Kernel {
        epoch: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Role,
    Ask,
    /// Reads the slots `among`, which has a bit for each. Slots that name the dead member go into
    /// the batch.
    Load {
        slot: u8,
        among: u8,
        batch: Batch,
    },
    Fields {
        slot: u8,
        among: u8,
        batch: Batch,
        seen: Word,
    },
    /// One proof for all words that were read.
    AskAgain {
        batch: Batch,
    },
    Swap {
        slot: u8,
        batch: Batch,
    },
    /// All slots are done: looks for requests that were sent again by any process.
    Again {
        slot: u8,
        again: Lacking,
    },
    /// Looks which of them have an entry in the ring, in several looks.
    Head {
        again: Lacking,
    },
    Cell {
        pos: u8,
        is_first: bool,
        again: Lacking,
    },
    Push {
        slot: u8,
        again: Lacking,
    },
    Clear,
}

/// The values that were read of each slot that names the dead member.
type Batch = [Option<(Word, Ends)>; MOST_SLOTS];

/// The entry of each slot that the ring may lack.
type Lacking = [Option<Entry>; MOST_SLOTS];

/// No scope has more slots.
const MOST_SLOTS: usize = 2;

/// The first slot of the set, starting at `slot`.
fn next(slot: u8, among: impl Fn(usize) -> bool) -> Option<u8> {
    (usize::from(slot)..MOST_SLOTS).find(|slot| among(*slot)).map(|slot| slot as u8)
}

impl At {
    /// Starts with the slots.
    fn slots(among: u8) -> At {
        let slot = next(0, |slot| among >> slot & 1 != 0).expect("there is one");
        At::Load { slot, among, batch: [None; MOST_SLOTS] }
    }

    fn all_slots(scope: &Scope) -> At {
        assert!(usize::from(scope.slots) <= MOST_SLOTS);
        At::slots((1 << scope.slots) - 1)
    }

    /// Swaps the words of the batch from `slot` on, and then reads these slots again.
    fn swaps(slot: u8, batch: Batch) -> Option<At> {
        Some(match next(slot, |slot| batch[slot].is_some()) {
            Some(slot) => At::Swap { slot, batch },
            None => At::slots((0..MOST_SLOTS).map(|slot| u8::from(batch[slot].is_some()) << slot).sum()),
        })
    }
}

impl Recovery {
    pub(crate) fn of(gone: u8) -> Recovery {
        Recovery { gone, proof: Proof::Kernel { epoch: 0 }, at: At::Role }
    }

    /// The remaining duty of the process that took over a dead member's number: the pushes that
    /// found the ring full.
    pub(crate) fn rest(number: u8) -> Recovery {
        Recovery { gone: number, proof: Proof::Lock, at: At::Again { slot: 0, again: [None; MOST_SLOTS] } }
    }
}

impl Turn<'_> {
    pub(crate) fn recover(&mut self) -> Done {
        let Some(Recovery { gone, mut proof, at }) = self.actor().recovery else {
            unreachable!("it recovers")
        };
        let next = match at {
            At::Role => {
                let Member { epoch, role, .. } = *self.member(gone);
                proof = Proof::Kernel { epoch };
                role.map(|_| At::Ask)
            }
            At::Ask => match self.scope.keeps(Rule::SlotsBeforeRole) {
                _ if self.member(gone).holder.is_some() => None,
                true => Some(At::all_slots(self.scope)),
                false => Some(At::Clear),
            },
            At::Load { slot, among, batch } => {
                let seen = self.slot(slot).word;
                match seen.state {
                    State::Taken | State::Part => Some(At::Fields { slot, among, batch, seen }),
                    _ => self.has_read(gone, proof, (slot, seen, Ends::default()), among, batch),
                }
            }
            At::Fields { slot, among, batch, seen } => {
                let ends = self.slot(slot).ends;
                self.has_read(gone, proof, (slot, seen, ends), among, batch)
            }
            At::AskAgain { .. } if self.member(gone).holder.is_some() => {
                if self.scope.keeps(Rule::StopWhenTakenOver) { None } else { self.after_slots() }
            }
            At::AskAgain { batch } => At::swaps(0, batch),
            At::Swap { slot, batch } => {
                let (seen, ends) = batch[usize::from(slot)].expect("it was read");
                let next = seen.without(gone, ends, self.scope).expect("has_read saw it");
                if self.swap(slot, seen, next) {
                    self.swapped_for(slot, seen, next)?;
                }
                At::swaps(slot + 1, batch)
            }
            At::Again { slot, mut again } => {
                let word = self.slot(slot).word;
                let is_forgotten =
                    word.owner == NOBODY && self.scope.keeps(Rule::RecoveryPushesForgottenRequests);
                let may_lack = word.state == State::Sent && (word.delivery > 0 || is_forgotten);
                again[usize::from(slot)] = may_lack.then(|| Entry::of(slot, word));
                match slot + 1 {
                    slot if slot < self.scope.slots => Some(At::Again { slot, again }),
                    _ if again != [None; MOST_SLOTS] => Some(At::Head { again }),
                    _ => Some(At::Clear),
                }
            }
            At::Head { again } => Some(At::Cell { pos: self.world.head, is_first: true, again }),
            At::Cell { pos, is_first, mut again } => Some(match (self.cell(pos).entry, self.ahead(pos)) {
                (Some(entry), 0) => {
                    let counts = !is_first || !self.scope.keeps(Rule::FirstEntryMayGo);
                    let exactly = self.scope.keeps(Rule::OwnEntryCounts);
                    again[usize::from(entry.slot)]
                        .take_if(|lacking| counts && (*lacking == entry || !exactly));
                    At::Cell { pos: pos + 1, is_first: false, again }
                }
                (_, ahead @ 1..) => At::Cell { pos: self.behind(pos, ahead - 1), is_first, again },
                _ => At::Push { slot: 0, again },
            }),
            At::Push { slot, .. } if slot == self.scope.slots => Some(At::Clear),
            At::Push { slot, again } => {
                if let Some(entry) = again[usize::from(slot)] {
                    self.start_push(entry);
                }
                Some(At::Push { slot: slot + 1, again })
            }
            At::Clear => self.clear(gone, proof),
        };
        self.actor().recovery = next.map(|at| Recovery { gone, proof, at });
        Ok("recovers")
    }

    /// The next access after a slot's word was read, and its fields if they matter.
    fn has_read(
        &self,
        gone: u8,
        proof: Proof,
        (slot, seen, ends): (u8, Word, Ends),
        among: u8,
        mut batch: Batch,
    ) -> Option<At> {
        let names = seen.without(gone, ends, self.scope).is_some();
        batch[usize::from(slot)] = names.then_some((seen, ends));
        if let Some(slot) = next(slot + 1, |slot| among >> slot & 1 != 0) {
            return Some(At::Load { slot, among, batch });
        }
        match proof {
            _ if batch == [None; MOST_SLOTS] => self.after_slots(),
            Proof::Kernel { .. } if self.scope.keeps(Rule::ProofAfterTheWord) => Some(At::AskAgain { batch }),
            _ => At::swaps(0, batch),
        }
    }

    fn swapped_for(&mut self, slot: u8, seen: Word, next: Word) -> Result<(), &'static str> {
        if next.state == State::Sent {
            self.slot(slot).claimed = false;
            if !self.scope.keeps(Rule::PushBeforeRole) {
                self.start_push(Entry::of(slot, next));
            }
        }
        let lost = next.state == State::Free && self.slot(slot).forgotten;
        if lost && seen.may_go_elsewhere(self.scope) { Err("a forgotten request is lost") } else { Ok(()) }
    }

    /// No slot names the dead member any more.
    fn after_slots(&self) -> Option<At> {
        if self.scope.keeps(Rule::PushBeforeRole) {
            Some(At::Again { slot: 0, again: [None; MOST_SLOTS] })
        } else {
            self.scope.keeps(Rule::SlotsBeforeRole).then_some(At::Clear)
        }
    }

    /// Everything is done; or, when a rule is left out, nothing is.
    fn clear(&mut self, gone: u8, proof: Proof) -> Option<At> {
        let Proof::Kernel { epoch } = proof else {
            // Its role is cleared or replaced when it leaves or joins.
            self.actor().owes = false;
            return None;
        };
        let member = self.member(gone);
        let unchanged = member.epoch == epoch && member.role.is_some();
        if unchanged {
            member.role = None;
        }
        (unchanged && !self.scope.keeps(Rule::SlotsBeforeRole)).then(|| At::all_slots(self.scope))
    }

    /// A request that was sent again finds no space in the ring.
    pub(crate) fn cannot_push_again(&mut self) {
        let Some(Recovery { proof, at, .. }) = self.actor().recovery else { return };
        let (is_server, keeps) =
            (self.scope.role(self.me) == Some(Role::Server), |rule| self.scope.keeps(rule));
        match proof {
            _ if matches!(at, At::Load { .. } | At::Swap { .. }) => {}
            Proof::Kernel { .. } if !keeps(Rule::RoleStaysWhenFull) => {}
            Proof::Kernel { .. } => self.actor().recovery = None,
            Proof::Lock if !keeps(Rule::OweWhenFull) => {}
            // The role is kept for the next process that recovers it.
            Proof::Lock if !is_server => self.vanish(),
            Proof::Lock | Proof::Leaving => {
                self.actor().recovery = None;
                self.actor().owes = true;
            }
        }
    }

    /// It has the lock. It still has to recover the earlier holder of the number, and to announce
    /// itself.
    pub(crate) fn join(&mut self) -> &'static str {
        let number = self.actor().number;
        match self.main() {
            Main::JoinLook => {
                self.actor().main = Main::JoinLoad;
                if self.member(number).role.is_some() && self.scope.keeps(Rule::RecoverBeforeJoining) {
                    self.actor().recovery =
                        Some(Recovery { gone: number, proof: Proof::Lock, at: At::all_slots(self.scope) });
                }
                "checks its number"
            }
            Main::JoinLoad => {
                let epoch = self.member(number).epoch + u8::from(self.scope.keeps(Rule::EpochsCount));
                self.actor().main = Main::JoinStore { epoch };
                "reads its number's word"
            }
            Main::JoinStore { epoch } => {
                let role = self.scope.role(self.me);
                let member = self.member(number);
                (member.epoch, member.role) = (epoch, role);
                self.actor().main = self.actor().born.map_or(Main::Idle, |_| Main::AdoptLoad);
                "has joined"
            }
            _ => unreachable!("it joins"),
        }
    }

    pub(crate) fn leave(&mut self) -> &'static str {
        let (number, at) = (self.actor().number, At::all_slots(self.scope));
        let actor = self.actor();
        (actor.main, actor.call) = (Main::LeaveRole, None);
        actor.recovery = Some(Recovery { gone: number, proof: Proof::Leaving, at });
        if !self.scope.keeps(Rule::LeaveBeforeUnlocking) {
            self.member(number).holder = None;
        }
        "begins to leave"
    }

    pub(crate) fn leave_on(&mut self) -> &'static str {
        let number = self.actor().number;
        match self.main() {
            Main::LeaveRole => {
                if !self.actor().owes {
                    self.member(number).role = None;
                }
                self.actor().main = Main::LeaveLock;
                "gives up its role"
            }
            _ => {
                self.vanish();
                "has left"
            }
        }
    }
}
