//! Joining, leaving, dying, and taking back what somebody left behind.

use super::{Done, Main, Member, Rule, State, Turn, Word};

/// A recovery of member `gone`, and its next access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovery {
    gone: u8,
    proof: Proof,
    at: At,
}

/// How it is known that a member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Proof {
    Leaving,
    Lock,
    /// The kernel is asked. The epoch is that of the member word that was read first.
    Kernel {
        epoch: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Role,
    Ask,
    Load { slot: u8 },
    Fields { slot: u8, seen: Word },
    AskAgain { slot: u8, seen: Word, client: u8 },
    Swap { slot: u8, seen: Word, client: u8 },
    Clear,
}

impl Recovery {
    pub(crate) fn of(gone: u8) -> Recovery {
        Recovery { gone, proof: Proof::Kernel { epoch: 0 }, at: At::Role }
    }
}

impl Turn<'_> {
    pub(crate) fn recover(&mut self) -> Done {
        let Some(Recovery { gone, mut proof, at }) = self.actor().recovery else {
            unreachable!("it recovers")
        };
        let role_first = !self.scope.keeps(Rule::SlotsBeforeRole);
        let next = match at {
            At::Role => {
                let Member { epoch, role, .. } = *self.member(gone);
                proof = Proof::Kernel { epoch };
                role.then_some(At::Ask)
            }
            At::Ask => match role_first {
                _ if self.member(gone).holder.is_some() => None,
                true => Some(At::Clear),
                false => Some(At::Load { slot: 0 }),
            },
            At::Load { slot } => {
                let seen = self.slot(slot).word;
                match seen.state {
                    State::Taken => Some(At::Fields { slot, seen }),
                    _ => self.take_away(gone, proof, slot, seen, 0),
                }
            }
            At::Fields { slot, seen } => {
                let client = self.slot(slot).client;
                self.take_away(gone, proof, slot, seen, client)
            }
            At::AskAgain { slot, .. } if self.member(gone).holder.is_some() => {
                if self.scope.keeps(Rule::StopWhenTakenOver) { None } else { self.after(slot, proof) }
            }
            At::AskAgain { slot, seen, client } => Some(At::Swap { slot, seen, client }),
            At::Swap { slot, seen, client } => {
                let next = seen.without(gone, client, self.scope).expect("take_away saw it");
                if self.swap(slot, seen, next) && next.state == State::Sent {
                    self.slot(slot).claimed = false;
                    self.start_push(slot);
                }
                Some(At::Load { slot })
            }
            At::Clear => {
                let Proof::Kernel { epoch } = proof else { unreachable!("others have it done elsewhere") };
                let member = self.member(gone);
                if member.epoch == epoch {
                    member.role = false;
                }
                role_first.then_some(At::Load { slot: 0 })
            }
        };
        self.actor().recovery = next.map(|at| Recovery { gone, proof, at });
        Ok("recovers")
    }

    /// What comes after a slot's word was read, and its field, if that matters.
    fn take_away(&self, gone: u8, proof: Proof, slot: u8, seen: Word, client: u8) -> Option<At> {
        match proof {
            _ if seen.without(gone, client, self.scope).is_none() => self.after(slot, proof),
            Proof::Kernel { .. } if self.scope.keeps(Rule::ProofAfterTheWord) => {
                Some(At::AskAgain { slot, seen, client })
            }
            _ => Some(At::Swap { slot, seen, client }),
        }
    }

    fn after(&self, slot: u8, proof: Proof) -> Option<At> {
        let clears = matches!(proof, Proof::Kernel { .. }) && self.scope.keeps(Rule::SlotsBeforeRole);
        match slot + 1 {
            slot if slot < self.scope.slots => Some(At::Load { slot }),
            _ => clears.then_some(At::Clear),
        }
    }

    /// The lock is there; what is left is to recover whoever had the number, and to say so.
    pub(crate) fn join(&mut self) -> &'static str {
        let number = self.actor().number;
        match self.main() {
            Main::JoinLook => {
                self.actor().main = Main::JoinLoad;
                if self.member(number).role && self.scope.keeps(Rule::RecoverBeforeJoining) {
                    self.actor().recovery =
                        Some(Recovery { gone: number, proof: Proof::Lock, at: At::Load { slot: 0 } });
                }
                "looks whose number it has"
            }
            Main::JoinLoad => {
                let epoch = self.member(number).epoch + u8::from(self.scope.keeps(Rule::EpochsCount));
                self.actor().main = Main::JoinStore { epoch };
                "reads its number's word"
            }
            Main::JoinStore { epoch } => {
                let member = self.member(number);
                (member.epoch, member.role) = (epoch, true);
                self.actor().main = Main::Idle;
                "has joined"
            }
            _ => unreachable!("it joins"),
        }
    }

    pub(crate) fn leave(&mut self) -> &'static str {
        let number = self.actor().number;
        let actor = self.actor();
        (actor.main, actor.call) = (Main::LeaveRole, None);
        actor.recovery = Some(Recovery { gone: number, proof: Proof::Leaving, at: At::Load { slot: 0 } });
        if !self.scope.keeps(Rule::LeaveBeforeUnlocking) {
            self.member(number).holder = None;
        }
        "begins to leave"
    }

    pub(crate) fn leave_on(&mut self) -> &'static str {
        let number = self.actor().number;
        match self.main() {
            Main::LeaveRole => {
                self.member(number).role = false;
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
