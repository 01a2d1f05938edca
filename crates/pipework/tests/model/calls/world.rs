//! What there is: the words in shared memory, the locks in the kernel, and what each actor has in
//! mind.

use std::fmt;

use super::recovery::Recovery;
use super::ring::{Pop, Push};
use super::{Rule, Scope};

/// A slot's word; the waiter bit is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    pub(crate) generation: u8,
    pub(crate) owner: u8,
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
    Died,
    /// FILL with the waiter bit: its reply is being copied out.
    Held,
}

impl Word {
    pub(crate) fn with(self, state: State, owner: u8) -> Word {
        Word { state, owner, ..self }
    }

    pub(crate) fn acquired(self, client: u8, scope: &Scope) -> Word {
        let generation = self.generation + u8::from(scope.keeps(Rule::GenerationsCount));
        Word { generation, owner: client, delivery: 0, state: State::Fill }
    }

    pub(crate) fn freed(self) -> Word {
        Word { generation: self.generation, ..Word::default() }
    }

    /// Steps 10 to 14.
    pub(crate) fn without(self, dead: u8, client: u8, scope: &Scope) -> Option<Word> {
        let owned = self.owner == dead;
        match self.state {
            State::Taken if owned && self.delivery < scope.redeliveries => {
                let delivery = self.delivery + u8::from(scope.keeps(Rule::DeliveriesCount));
                Some(Word { delivery, ..self.with(State::Sent, client) })
            }
            State::Taken if owned => Some(self.with(State::Died, client)),
            State::Taken if client == dead && scope.keeps(Rule::DropForTheDead) => {
                Some(self.with(State::Dropped, self.owner))
            }
            State::Free | State::Taken => None,
            _ => owned.then(|| self.freed()),
        }
    }

    /// Whether the server that claimed this word still has the request, now that the word is `now`.
    pub(crate) fn is_held(self, now: Word) -> bool {
        now == self || now == self.with(State::Dropped, self.owner)
    }
}

/// Which call of which actor: the payload of its request and of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) actor: u8,
    pub(crate) call: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) word: Word,
    pub(crate) client: u8,
    pub(crate) request: Tag,
    pub(crate) reply: Tag,
    /// Not in shared memory: a server has had this request since it was last sent.
    pub(crate) claimed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) lap: u8,
    pub(crate) slot: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) epoch: u8,
    /// Whether it has one.
    pub(crate) role: bool,
    /// The actor that the kernel holds the lock for.
    pub(crate) holder: Option<u8>,
}

/// A call that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) slot: u8,
    pub(crate) generation: u8,
}

impl Call {
    /// Whether a slot is still this call's.
    pub(crate) fn is_mine(self, slot: &Slot, client: &Actor) -> bool {
        let word = slot.word;
        let filling = matches!(client.main, Main::Fill | Main::Send);
        let owner = if word.state == State::Taken { slot.client } else { word.owner };
        let state = match word.state {
            State::Fill => filling,
            State::Held => matches!(client.main, Main::Copy { .. } | Main::Free { .. }),
            State::Free | State::Dropped => false,
            _ => !filling,
        };
        word.generation == self.generation && owner == client.number && state
    }
}

/// A process: what it is doing. It loses all of it when it dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    pub(crate) number: u8,
    /// How many calls were begun in its place.
    pub(crate) calls: u8,
    pub(crate) call: Option<Call>,
    pub(crate) main: Main,
    /// Goes on first.
    pub(crate) recovery: Option<Recovery>,
    /// Goes on before that.
    pub(crate) push: Option<Push>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Main {
    #[default]
    Gone,
    /// It has the lock and looks whether somebody is to be recovered.
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
    Send,
    /// Its push goes on.
    Queue,
    QueueWait,
    Wait,
    /// Looks for its slot in the ring.
    ScanHead,
    Scan {
        pos: u8,
    },
    Hold {
        seen: Word,
    },
    Copy {
        seen: Word,
    },
    Free {
        seen: Word,
        reply: Tag,
    },
    CancelLoad,
    CancelSwap {
        seen: Word,
    },
    /// Takes back what it could not push.
    Withdraw,
    // A server.
    Pop(Pop),
    Read {
        slot: u8,
        taken: Word,
    },
    Write {
        slot: u8,
        taken: Word,
        request: Tag,
    },
    FinishLoad {
        slot: u8,
        taken: Word,
    },
    FinishSwap {
        slot: u8,
        taken: Word,
        seen: Word,
        client: u8,
    },
}

impl Main {
    /// The request that a server has in hand.
    pub(crate) fn request(self) -> Option<(u8, Word)> {
        match self {
            Main::Read { slot, taken }
            | Main::Write { slot, taken, .. }
            | Main::FinishLoad { slot, taken }
            | Main::FinishSwap { slot, taken, .. } => Some((slot, taken)),
            Main::Pop(pop) => pop.claimed(),
            _ => None,
        }
    }
}

impl Actor {
    /// Its word says that it is there.
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

    /// It lives, and is not about to leave.
    pub(crate) fn is_staying(&self) -> bool {
        !matches!(self.main, Main::Gone | Main::LeaveRole | Main::LeaveLock)
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
    pub(crate) members: [Member; MEMBERS],
    pub(crate) actors: [Actor; ACTORS],
    /// How many may still happen.
    pub(crate) deaths: u8,
    pub(crate) cancels: u8,
    pub(crate) leaves: u8,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for slot in &self.slots {
            let Word { generation, owner, delivery, state } = slot.word;
            write!(f, "{state:?}({owner})g{generation}d{delivery} ")?;
        }
        write!(f, "[")?;
        for cell in &self.cells {
            match cell.slot {
                Some(slot) => write!(f, " {}:{slot}", cell.lap)?,
                None => write!(f, " {}:-", cell.lap)?,
            }
        }
        write!(f, " ] {}..{} ", self.head, self.tail)?;
        for member in &self.members {
            let holder = member.holder.map_or("-".into(), |holder| holder.to_string());
            write!(f, " e{}{}{holder}", member.epoch, if member.role { '@' } else { '.' })?;
        }
        Ok(())
    }
}
