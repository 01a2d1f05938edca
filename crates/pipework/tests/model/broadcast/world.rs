//! What the processes share, and what each of them knows.

use std::cmp::Ordering;

use super::Whims;

/// The length of the ring.
pub(super) const CELLS: usize = 2;
pub(super) const FILES: usize = 4;
const ACTORS: usize = 4;
const MEMBERS: usize = 4;
const POSITIONS: usize = 8;

pub(super) type Position = u8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(super) tail: Position,
    pub(super) joins: u8,
    pub(super) cells: [Cell; CELLS],
    pub(super) members: [Member; MEMBERS],
    pub(super) files: [File; FILES],
    pub(super) actors: [Actor; ACTORS],
    /// The message at each position, if it was published.
    pub(super) published: [u8; POSITIONS],
    pub(super) left: Whims,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub(super) word: Word,
    /// Two halves of a message, or a file and what was written to it.
    pub(super) halves: [u8; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Word {
    pub(super) lap: u8,
    pub(super) state: State,
    pub(super) member: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum State {
    #[default]
    Skipped,
    Writing,
    Done,
    Dropped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cursor {
    pub(super) active: bool,
    pub(super) next: Position,
    pub(super) epoch: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Member {
    /// The process that has the lock.
    pub(super) holder: Option<u8>,
    pub(super) epoch: u8,
    pub(super) cursor: Cursor,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct File {
    pub(super) bytes: u8,
    /// How many cells name it.
    pub(super) count: i8,
    /// The processes that have it locked, a bit for each.
    pub(super) holders: u8,
    /// A process died that was about to change the count. `blobs.rs` has what is done then.
    pub(super) doubted: bool,
}

/// A file, and what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) file: u8,
    pub(super) bytes: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Actor {
    pub(super) main: Main,
    pub(super) recovery: Option<Recovery>,
    pub(super) number: u8,
    pub(super) epoch: u8,
    /// Whether it has lost its lock.
    pub(super) lost: bool,
    // A publisher.
    /// How many messages it has still to publish.
    pub(super) messages: u8,
    /// `joins` and the lowest cursor, as it found them.
    pub(super) known: (u8, Position),
    /// The file of the message that it publishes.
    pub(super) file: Option<u8>,
    /// The position of its message that it drops before it publishes the next.
    pub(super) kept: Option<Position>,
    // A subscriber.
    /// The position of the next message.
    pub(super) next: Position,
    /// Whether it has subscribed once.
    pub(super) begun: bool,
    /// What it has stored as its cursor.
    pub(super) mine: Cursor,
    pub(super) held: Option<Name>,
    /// Messages from here on were published after it had subscribed.
    pub(super) sure: Position,
    /// Others may have taken it for dead since it last looked at its cursor.
    pub(super) excused: bool,
}

/// The recovery of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) word: u8,
    pub(super) number: u8,
    pub(super) seen: Seen,
    /// Whether the death is proved.
    pub(super) asked: bool,
}

/// A word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Cell(Word),
    Cursor(Cursor),
}

/// The next step of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Main {
    /// Not come yet, or dead.
    #[default]
    Gone,
    /// Needs a number.
    Join,
    /// Has locked a number; the next word to recover.
    Recover {
        word: u8,
    },
    // A publisher.
    Ready,
    Fill {
        file: u8,
    },
    Tail,
    RaisePast {
        tail: Position,
    },
    Cell {
        tail: Position,
    },
    Kept {
        position: Position,
    },
    Joins(Aim),
    Look {
        aim: Aim,
        joins: u8,
        number: u8,
        lowest: Position,
    },
    /// Without the rule: `joins` is read after the look.
    JoinsLate {
        aim: Aim,
        lowest: Position,
    },
    /// Without the rule: names are counted down before the step.
    CountEarly(Aim),
    Swap(Aim),
    Raise {
        position: Position,
        old: Option<Name>,
    },
    CountDown {
        old: Name,
        /// The position that it has claimed.
        position: Option<Position>,
    },
    Write {
        position: Position,
        half: u8,
    },
    CountUp {
        position: Position,
    },
    Publish {
        position: Position,
    },
    /// Without the rule: names are counted after the message is published.
    CountLate,
    TakeBack,
    Published,
    // A subscriber.
    Begin,
    LookAtCursor {
        first: Position,
    },
    Store {
        first: Position,
        seen: Cursor,
    },
    RaiseJoins {
        first: Position,
    },
    TailAgain {
        first: Position,
    },
    /// A subscriber before it receives; a helper.
    Idle,
    Receive,
    Behind,
    Read {
        word: Word,
        first: Option<u8>,
    },
    Hold {
        word: Word,
        halves: [u8; 2],
    },
    WordAgain {
        word: Word,
        halves: [u8; 2],
    },
    Move,
}

/// A swap by which a message goes: the claim of this position, or the drop of the message there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Aim {
    pub(super) position: Position,
    pub(super) is_drop: bool,
    /// The word of the cell.
    pub(super) word: Word,
}

impl Aim {
    /// The last position that no subscriber may need then.
    pub(super) fn over(self) -> Option<Position> {
        if self.is_drop { Some(self.position) } else { self.position.checked_sub(CELLS as u8) }
    }
}

/// The half of a message that says which file it is in.
const IN_FILE: u8 = 0x80;

impl Name {
    pub(super) fn halves(self) -> [u8; 2] {
        [IN_FILE | self.file, self.bytes]
    }

    pub(super) fn of(halves: [u8; 2]) -> Option<Name> {
        let [file, bytes] = halves;
        (file & IN_FILE != 0).then_some(Name { file: file & !IN_FILE, bytes })
    }
}

impl World {
    pub(super) fn seen(&self, word: u8) -> Seen {
        match self.cells.get(usize::from(word)) {
            Some(cell) => Seen::Cell(cell.word),
            None => Seen::Cursor(self.members[usize::from(word) - CELLS].cursor),
        }
    }
}

impl Actor {
    /// Whether it is a subscriber that must see all, and must not lose the message at this position.
    pub(super) fn needs(&self, position: Position) -> bool {
        self.begun && !self.excused && self.next <= position
    }

    /// Whether it is a publisher that still writes to a cell.
    pub(super) fn writes_to(&self, idx: usize) -> bool {
        match self.main {
            Main::Raise { position, .. } | Main::CountDown { position: Some(position), .. } => {
                cell(position) == idx
            }
            Main::Write { position, .. } => cell(position) == idx,
            _ => false,
        }
    }

    /// The files whose counts it is about to change, a bit for each.
    pub(super) fn pending(&self) -> u8 {
        let of_own = || self.file.map(|file| Name { file, bytes: 0 });
        let name = match self.main {
            Main::Raise { old, .. } => old,
            Main::CountDown { old, .. } => Some(old),
            Main::Publish { .. } | Main::TakeBack => of_own(),
            _ => None,
        };
        name.map_or(0, |name| 1 << name.file)
    }
}

pub(super) fn cell(position: Position) -> usize {
    usize::from(position) % CELLS
}

pub(super) fn lap(position: Position) -> u8 {
    position / CELLS as u8 + 1
}

/// Whether a cell holds an earlier position than this one, or a later one.
pub(super) fn lap_order(position: Position, cell: &Cell) -> Ordering {
    cell.word.lap.cmp(&lap(position))
}

/// The file that a cell names.
pub(super) fn names(cell: &Cell) -> Option<Name> {
    Name::of(cell.halves).filter(|_| cell.word.state == State::Done)
}
