//! The state: the words in shared memory, the locks in the kernel, and the private state of each
//! actor.

use std::fmt;

use super::recovery::Recovery;
use super::ring::{Pop, Push};
use super::server::{Serve, Work};
use super::{Rule, Scope};

/// A slot's word; the waiter bit is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    pub(crate) generation: u8,
    pub(crate) owner: u8,
    pub(crate) begun: bool,
    pub(crate) delivery: u8,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    #[default]
    Free,
    Fill,
    Sent,
    Taken,
    Dropped,
    Answered,
    Failed,
    Died,
    Part,
    Forgotten,
    /// FILL with the waiter bit: the reply is being copied out.
    Held,
}

/// The owner of a SENT request whose client does not wait for the reply.
pub(crate) const NOBODY: u8 = 0;

impl Word {
    pub(crate) fn with(self, state: State, owner: u8) -> Word {
        Word { state, owner, ..self }
    }

    /// Step 16.
    pub(crate) fn begun(self, state: State, client: u8) -> Word {
        Word { begun: true, ..self.with(state, client) }
    }

    pub(crate) fn acquired(self, client: u8, scope: &Scope) -> Word {
        let generation = self.generation + u8::from(scope.keeps(Rule::GenerationsCount));
        Word { generation, owner: client, state: State::Fill, ..Word::default() }
    }

    /// Steps 4 and 27.
    pub(crate) fn claimed(self, server: u8) -> Word {
        let state = if self.owner == NOBODY { State::Forgotten } else { State::Taken };
        self.with(state, server)
    }

    pub(crate) fn freed(self) -> Word {
        Word { generation: self.generation, ..Word::default() }
    }

    /// Step 31.
    pub(crate) fn given_back(self, client: u8, scope: &Scope) -> Option<Word> {
        let owner = match self.state {
            State::Taken => client,
            State::Forgotten => NOBODY,
            _ => return None,
        };
        let delivery = self.delivery + u8::from(scope.keeps(Rule::GivingBackCounts));
        let may = self.delivery < 3 && !self.begun;
        may.then(|| Word { delivery, ..self.with(State::Sent, owner) })
    }

    /// Steps 10 to 14, 21, 22, 29 and 30.
    pub(crate) fn without(self, dead: u8, Ends { client, server }: Ends, scope: &Scope) -> Option<Word> {
        let owned = self.owner == dead;
        let again = || {
            let delivery = self.delivery + u8::from(scope.keeps(Rule::DeliveriesCount));
            Word { delivery, state: State::Sent, ..self }
        };
        match self.state {
            State::Taken if owned && self.may_go_elsewhere(scope) => Some(Word { owner: client, ..again() }),
            State::Taken if owned => Some(self.with(State::Died, client)),
            State::Taken if client == dead && scope.keeps(Rule::DropCallsOfDeadClients) => {
                Some(self.with(State::Dropped, self.owner))
            }
            State::Part if owned && scope.keeps(Rule::DropPartsOfDeadClients) => {
                Some(self.with(State::Dropped, server))
            }
            State::Part if server == dead && scope.keeps(Rule::EndPartsOfDeadServers) => {
                Some(self.with(State::Died, self.owner))
            }
            State::Forgotten if owned && self.may_go_elsewhere(scope) => {
                Some(Word { owner: NOBODY, ..again() })
            }
            State::Free | State::Taken | State::Part => None,
            _ => owned.then(|| self.freed()),
        }
    }

    /// Whether the request may go to another server if its server is dead.
    pub(crate) fn may_go_elsewhere(self, scope: &Scope) -> bool {
        let begun = self.begun && scope.keeps(Rule::BegunIsNotRedelivered);
        self.delivery < scope.redeliveries && !begun
    }

    /// Whether both are words of one claim of one call.
    pub(crate) fn is_delivery(self, other: Word) -> bool {
        (self.generation, self.delivery) == (other.generation, other.delivery)
    }
}

/// The client and the server of a call: fields of its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) client: u8,
    /// Written before the call begins.
    pub(crate) server: u8,
}

/// The actor, call and part that a payload belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) actor: u8,
    pub(crate) call: u8,
    pub(crate) part: u8,
}

impl Tag {
    pub(crate) fn part(self, part: u8) -> Tag {
        Tag { part, ..self }
    }
}

/// Written and copied in two halves, so that a copy can be torn.
pub(crate) type Payload = [Tag; 2];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) word: Word,
    pub(crate) ends: Ends,
    pub(crate) request: Payload,
    pub(crate) reply: Payload,
    /// Not in shared memory: a server has had this request since it was last sent.
    pub(crate) claimed: bool,
    /// Not in shared memory: its client does not wait for the reply but wants the request carried
    /// out.
    pub(crate) forgotten: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) lap: u8,
    pub(crate) entry: Option<Entry>,
}

/// A slot, and which of its calls the entry was pushed for: two calls in a row differ, and every
/// second one looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) slot: u8,
    call: u8,
}

impl Entry {
    pub(crate) fn of(slot: u8, word: Word) -> Entry {
        Entry { slot, call: word.generation % 2 }
    }

    pub(crate) fn is_of(self, word: Word) -> bool {
        self == Entry::of(self.slot, word)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) epoch: u8,
    pub(crate) role: Option<Role>,
    /// The actor for which the kernel holds the lock.
    pub(crate) holder: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Client,
    Server,
}

impl Member {
    /// Whether it died without leaving, so that another process has to recover it.
    pub(crate) fn is_dead(self) -> bool {
        self.role.is_some() && self.holder.is_none()
    }
}

/// A call that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) slot: u8,
    pub(crate) generation: u8,
    /// Parts of the reply that it has taken.
    pub(crate) got: u8,
    /// Another thread of the client has cancelled it.
    pub(crate) cancelled: bool,
}

impl Call {
    /// Whether a slot still belongs to this call.
    pub(crate) fn is_mine(self, slot: &Slot, client: &Actor) -> bool {
        let word = slot.word;
        let filling = matches!(client.main, Main::Fill | Main::FillOn | Main::Send);
        let owner = if word.state == State::Taken { slot.ends.client } else { word.owner };
        let state = match word.state {
            State::Fill => filling,
            State::Held => {
                matches!(client.main, Main::Copy { .. } | Main::CopyOn { .. } | Main::Free { .. })
            }
            State::Free | State::Dropped | State::Forgotten => false,
            _ => !filling,
        };
        word.generation == self.generation && owner == client.number && state
    }
}

/// The private state of a process. All of it is lost when the process dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    pub(crate) number: u8,
    /// How many calls were begun by processes in its place.
    pub(crate) calls: u8,
    pub(crate) call: Option<Call>,
    /// What a forked child knows of its parent.
    pub(crate) born: Option<Birth>,
    /// It took over a dead member's number, and found the ring full when it recovered that member.
    pub(crate) owes: bool,
    pub(crate) main: Main,
    /// Continues first.
    pub(crate) recovery: Option<Recovery>,
    /// Continues before the recovery.
    pub(crate) push: Option<Push>,
}

/// The request that the parent held when it forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Birth {
    pub(crate) parent: u8,
    pub(crate) slot: u8,
    pub(crate) taken: Word,
}

/// How a client ends a call that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quit {
    Cancel,
    /// The request is still to be carried out.
    Forget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Main {
    #[default]
    Gone,
    /// It has the lock and checks whether its number must be recovered.
    JoinLook,
    JoinLoad,
    JoinStore {
        epoch: u8,
    },
    Idle,
    LeaveRole,
    LeaveLock,
    // A client.
    Acquire,
    AcquireSwap {
        slot: u8,
        seen: Word,
    },
    Fill,
    FillOn,
    Send,
    /// Its push is in progress.
    Queue,
    QueueWait,
    Wait,
    /// Step 15.
    Hold {
        seen: Word,
    },
    Copy {
        seen: Word,
    },
    /// The second half; `good`: the first half was the expected one.
    CopyOn {
        seen: Word,
        good: bool,
    },
    /// Step 17.
    Take {
        seen: Word,
        good: bool,
    },
    Free {
        seen: Word,
        good: bool,
    },
    /// Announces a forgotten request before it forgets it.
    Hint,
    QuitLoad {
        how: Quit,
    },
    QuitSwap {
        how: Quit,
        seen: Word,
    },
    /// Withdraws the request that it could not push.
    Withdraw,
    // A server.
    Pop(Pop),
    Serve(Work, Serve),
    // A forked child of one.
    AdoptLoad,
    AdoptSwap {
        seen: Word,
    },
}

impl Main {
    /// Whether a server still owns the slot of the request that it holds. `None`: it holds no
    /// request.
    pub(crate) fn holds_its_request(self, world: &World, number: u8) -> Option<bool> {
        let (slot, taken) = match self {
            Main::Serve(_, Serve::Lent { .. } | Serve::GivenBack | Serve::Claim { .. }) => return None,
            Main::Serve(work, _) => (work.slot, work.taken),
            Main::Pop(pop) => pop.claimed()?,
            _ => return None,
        };
        let slot = &world.slots[usize::from(slot)];
        let held = match slot.word.state {
            State::Taken | State::Dropped | State::Forgotten => slot.word.owner == number,
            State::Part => slot.ends.server == number,
            _ => false,
        };
        Some(held && slot.word.is_delivery(taken))
    }
}

impl Actor {
    /// Whether its member word shows it as attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.number != 0
            && !matches!(
                self.main,
                Main::Gone
                    | Main::JoinLook
                    | Main::JoinLoad
                    | Main::JoinStore { .. }
                    | Main::LeaveRole
                    | Main::LeaveLock
            )
    }

    /// Whether it is alive and not about to leave.
    pub(crate) fn is_staying(&self) -> bool {
        !matches!(self.main, Main::Gone | Main::LeaveRole | Main::LeaveLock) && self.born.is_none()
    }
}

pub(crate) const SLOTS: usize = 2;
pub(crate) const CELLS: usize = 4;
pub(crate) const MEMBERS: usize = 4;
pub(crate) const ACTORS: usize = 4;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) cells: [Cell; CELLS],
    pub(crate) head: u8,
    pub(crate) tail: u8,
    /// A request was forgotten: servers recover dead servers as well.
    pub(crate) hint: bool,
    pub(crate) members: [Member; MEMBERS],
    pub(crate) actors: [Actor; ACTORS],
    /// How many of each may still happen.
    pub(crate) left: Whims,
}

/// How many times each optional action may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Whims {
    pub(crate) deaths: u8,
    pub(crate) cancels: u8,
    /// Requests whose client does not wait for the reply.
    pub(crate) forgets: u8,
    /// The same by another thread than the one that makes the call.
    pub(crate) forgets_aside: u8,
    /// Requests that their server gives up.
    pub(crate) failures: u8,
    /// Requests that their server gives back for another server.
    pub(crate) give_backs: u8,
    /// How many times a server forks.
    pub(crate) forks: u8,
    /// How many times a member leaves.
    pub(crate) leaves: u8,
}

impl World {
    /// Whether a forgotten request waits for a server or is with one.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.slots.iter().any(|slot| slot.word.is_forgotten())
    }

    pub(crate) fn is_queued(&self, slot: usize) -> bool {
        let entry = Entry::of(slot as u8, self.slots[slot].word);
        self.cells.iter().any(|cell| cell.entry == Some(entry))
    }
}

impl Word {
    pub(crate) fn is_forgotten(self) -> bool {
        self.state == State::Forgotten || self.state == State::Sent && self.owner == NOBODY
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for slot in &self.slots {
            let Word { generation, owner, begun, delivery, state } = slot.word;
            let begun = if begun { "b" } else { "" };
            write!(f, "{state:?}({owner})g{generation}d{delivery}{begun} ")?;
        }
        write!(f, "[")?;
        for cell in &self.cells {
            match cell.entry {
                Some(Entry { slot, call }) => {
                    write!(f, " {}:{slot}{}", cell.lap, if call == 1 { "'" } else { "" })?;
                }
                None => write!(f, " {}:-", cell.lap)?,
            }
        }
        let hint = if self.hint { "!" } else { "" };
        write!(f, " ] {}..{}{hint} ", self.head, self.tail)?;
        for Member { epoch, role, holder } in &self.members {
            let role = role.map_or('.', |role| if role == Role::Client { 'c' } else { 's' });
            write!(f, " e{epoch}{role}{}", holder.map_or("-".into(), |holder| holder.to_string()))?;
        }
        Ok(())
    }
}
