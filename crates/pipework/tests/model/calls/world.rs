//! What there is: the words in shared memory, the locks in the kernel, and what each actor has in mind.

use std::fmt;

use super::recovery::Recovery;
use super::ring::{Pop, Push};
use super::{Rule, Scope};

/// A slot's word; the waiter bit is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word {
    pub generation: u8,
    pub owner: u8,
    pub delivery: u8,
    pub state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    #[default]
    Free,
    Fill,
    Sent,
    Taken,
    Dropped,
    Answered,
    Died,
}

impl Word {
    pub fn with(self, state: State, owner: u8) -> Word {
        Word { state, owner, ..self }
    }

    pub fn acquired(self, client: u8, scope: &Scope) -> Word {
        let generation = self.generation + u8::from(scope.keeps(Rule::GenerationsCount));
        Word { generation, owner: client, delivery: 0, state: State::Fill }
    }

    pub fn freed(self) -> Word {
        Word { generation: self.generation, ..Word::default() }
    }

    /// Steps 10 to 14.
    pub fn without(self, dead: u8, client: u8, scope: &Scope) -> Option<Word> {
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
    pub fn is_held(self, now: Word) -> bool {
        now == self || now == self.with(State::Dropped, self.owner)
    }
}

/// Which call of which actor: the payload of its request and of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    pub actor: u8,
    pub call: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub word: Word,
    pub client: u8,
    pub request: Tag,
    pub reply: Tag,
    /// Not in shared memory: a server has had this request since it was last sent.
    pub claimed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cell {
    pub lap: u8,
    pub slot: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Member {
    pub epoch: u8,
    /// Whether it has one.
    pub role: bool,
    /// The actor that the kernel holds the lock for.
    pub holder: Option<u8>,
}

/// A call that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub slot: u8,
    pub generation: u8,
}

impl Call {
    /// Whether a slot is still this call's.
    pub fn is_mine(self, slot: &Slot, client: &Actor) -> bool {
        let word = slot.word;
        let filling = matches!(client.main, Main::Fill | Main::Send);
        let owner = if word.state == State::Taken { slot.client } else { word.owner };
        let state = match word.state {
            State::Fill => filling,
            State::Free | State::Dropped => false,
            _ => !filling,
        };
        word.generation == self.generation && owner == client.number && state
    }
}

/// A process: what it is doing. It loses all of it when it dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actor {
    pub number: u8,
    /// How many calls were begun in its place.
    pub calls: u8,
    pub call: Option<Call>,
    pub main: Main,
    /// Goes on first.
    pub recovery: Option<Recovery>,
    /// Goes on before that.
    pub push: Option<Push>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Main {
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
    pub fn request(self) -> Option<(u8, Word)> {
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
    pub fn is_attached(&self) -> bool {
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
    pub fn is_staying(&self) -> bool {
        !matches!(self.main, Main::Gone | Main::LeaveRole | Main::LeaveLock)
    }
}

pub const SLOTS: usize = 2;
pub const CELLS: usize = 4;
pub const MEMBERS: usize = 4;
pub const ACTORS: usize = 4;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub slots: [Slot; SLOTS],
    pub cells: [Cell; CELLS],
    pub head: u8,
    pub tail: u8,
    pub members: [Member; MEMBERS],
    pub actors: [Actor; ACTORS],
    /// How many may still happen.
    pub deaths: u8,
    pub cancels: u8,
    pub leaves: u8,
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
