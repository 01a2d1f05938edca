//! The ring: push, pop, and hints that may lag by any amount.

use super::server::{Serve, Work};
use super::{Cell, Done, Entry, Main, Rule, State, Turn, Word};

/// A push of `entry`, and its next access. Positions in here are this process's view of the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Push {
    entry: Entry,
    at: PushAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PushAt {
    Tail,
    Cell {
        pos: u8,
    },
    Insert {
        pos: u8,
    },
    StoreTail {
        pos: u8,
    },
    /// Checks whether the oldest entry, `of`, is stale.
    Look {
        pos: u8,
        of: Entry,
    },
    Clean {
        pos: u8,
        of: Entry,
    },
}

impl Push {
    pub(crate) fn of(entry: Entry) -> Push {
        Push { entry, at: PushAt::Tail }
    }
}

/// A pop, and its next access; the load of the head comes first. `stale`: it has unlinked an entry
/// of an ended call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pop {
    Cell { pos: u8, stale: bool },
    Load { pos: u8, entry: Entry, stale: bool },
    Claim { pos: u8, entry: Entry, seen: Word, stale: bool },
    Unlink { pos: u8, entry: Entry, taken: Option<Word>, stale: bool },
    StoreHead { pos: u8, taken: Option<(u8, Word)> },
}

impl Pop {
    pub(crate) fn claimed(self) -> Option<(u8, Word)> {
        match self {
            Pop::Unlink { entry, taken, .. } => Some((entry.slot, taken?)),
            Pop::StoreHead { taken, .. } => taken,
            _ => None,
        }
    }
}

const CORRUPT: &str = "the ring looks corrupt to an honest process";

impl Turn<'_> {
    pub(crate) fn push(&mut self) -> Done {
        let Some(Push { entry, at }) = self.actor().push else { unreachable!("it pushes") };
        let next = match at {
            PushAt::Tail => PushAt::Cell { pos: self.world.tail },
            PushAt::Cell { pos } => match (self.cell(pos).entry, self.ahead(pos)) {
                (None, 0) => PushAt::Insert { pos },
                (_, ahead) if ahead > 1 && !self.scope.keeps(Rule::HintsMayLag) => return Err(CORRUPT),
                (Some(_), ahead @ 0..) => PushAt::Cell { pos: self.behind(pos, ahead) },
                (None, ahead @ 1..) => PushAt::Cell { pos: self.behind(pos, ahead - 1) },
                (Some(of), -1) if self.may_clean(entry, of) => PushAt::Clean { pos, of },
                (Some(of), -1) => PushAt::Look { pos, of },
                _ => return Err(CORRUPT),
            },
            PushAt::Insert { pos } => {
                let lap = self.lap(pos);
                match self.swap_cell(pos, Cell { lap, entry: None }, Cell { lap, entry: Some(entry) }) {
                    true => PushAt::StoreTail { pos },
                    false => PushAt::Cell { pos },
                }
            }
            PushAt::StoreTail { pos } => {
                self.world.tail = pos + 1;
                return Ok(self.pushed(true));
            }
            PushAt::Look { pos, of } => {
                let word = self.slot(of.slot).word;
                let waits = word.state == State::Sent && of.is_of(word);
                if waits && self.scope.keeps(Rule::CleanOnlyStale) {
                    return Ok(self.pushed(false));
                }
                PushAt::Clean { pos, of }
            }
            PushAt::Clean { pos, of } => {
                let lap = self.lap(pos);
                self.swap_cell(pos, Cell { lap: lap - 1, entry: Some(of) }, Cell { lap, entry: None });
                PushAt::Cell { pos }
            }
        };
        self.actor().push = Some(Push { entry, at: next });
        Ok("pushes")
    }

    /// A client repeats its push until it succeeds. A recovering process may give up, and the entry
    /// may be the only one.
    fn may_clean(&self, own: Entry, of: Entry) -> bool {
        let is_own = of == own || of.slot == own.slot && !self.scope.keeps(Rule::CleanOnlyItsOwn);
        is_own && (self.main() == Main::Queue || !self.scope.keeps(Rule::RecoveryKeepsItsPushes))
    }

    fn pushed(&mut self, queued: bool) -> &'static str {
        let actor = self.actor();
        actor.push = None;
        if actor.main == Main::Queue {
            actor.main = if queued { Main::Wait } else { Main::QueueWait };
        } else if let Main::Serve(work, Serve::GivenBack) = actor.main {
            self.gave_back(work, queued);
        } else if !queued {
            self.cannot_push_again();
        }
        if queued { "has pushed" } else { "finds the ring full" }
    }

    pub(crate) fn pop(&mut self, at: Pop) -> Done {
        let number = self.actor().number;
        let claims_first = self.scope.keeps(Rule::ClaimBeforeUnlink);
        let next = match at {
            Pop::Cell { pos, stale } => match (self.cell(pos).entry, self.ahead(pos)) {
                (Some(entry), 0) if claims_first => Pop::Load { pos, entry, stale },
                (Some(entry), 0) => Pop::Unlink { pos, entry, taken: None, stale },
                (None, 0) if stale => Pop::StoreHead { pos, taken: None },
                (None, 0) => return Ok(self.popped(None)),
                (_, ahead) if ahead > 1 && !self.scope.keeps(Rule::HintsMayLag) => return Err(CORRUPT),
                (_, ahead @ 1..) => Pop::Cell { pos: self.behind(pos, ahead - 1), stale },
                _ => return Err(CORRUPT),
            },
            Pop::Load { pos, entry, stale } => match self.slot(entry.slot).word {
                seen if seen.state == State::Sent && entry.is_of(seen) => {
                    Pop::Claim { pos, entry, seen, stale }
                }
                _ if claims_first => Pop::Unlink { pos, entry, taken: None, stale },
                _ => Pop::Cell { pos, stale },
            },
            Pop::Claim { pos, entry, seen, stale } => {
                let slot = entry.slot;
                let taken = seen.claimed(number);
                if !self.swap(slot, seen, taken) {
                    Pop::Load { pos, entry, stale }
                } else if std::mem::replace(&mut self.slot(slot).claimed, true) {
                    return Err("a request was claimed twice");
                } else if claims_first {
                    Pop::Unlink { pos, entry, taken: Some(taken), stale }
                } else {
                    Pop::StoreHead { pos: pos + 1, taken: Some((slot, taken)) }
                }
            }
            Pop::Unlink { pos, entry, taken, stale } => {
                let lap = self.lap(pos);
                let full = Cell { lap, entry: Some(entry) };
                let unlinked = self.swap_cell(pos, full, Cell { lap: lap + 1, entry: None });
                match taken {
                    Some(taken) => Pop::StoreHead { pos: pos + 1, taken: Some((entry.slot, taken)) },
                    None if unlinked && !claims_first => Pop::Load { pos, entry, stale: true },
                    None => Pop::Cell { pos, stale: stale || unlinked },
                }
            }
            Pop::StoreHead { pos, taken } => {
                self.world.head = pos;
                return Ok(self.popped(taken));
            }
        };
        self.actor().main = Main::Pop(next);
        Ok("pops")
    }

    fn popped(&mut self, taken: Option<(u8, Word)>) -> &'static str {
        self.actor().main = match taken.map(|(slot, taken)| Work::of(slot, taken)) {
            Some(work) => Main::Serve(work, self.next_part(work)),
            None => Main::Idle,
        };
        if taken.is_some() { "has popped" } else { "finds the ring empty" }
    }

    fn lap(&self, pos: u8) -> u8 {
        pos / self.scope.cells
    }

    /// How many laps the cell of a position is ahead of it.
    pub(super) fn ahead(&mut self, pos: u8) -> i8 {
        self.cell(pos).lap as i8 - self.lap(pos) as i8
    }

    /// The position behind that of the same cell, `laps` laps later.
    pub(super) fn behind(&self, pos: u8, laps: i8) -> u8 {
        pos + laps as u8 * self.scope.cells + 1
    }

    pub(super) fn cell(&mut self, pos: u8) -> &mut Cell {
        &mut self.world.cells[usize::from(pos % self.scope.cells)]
    }

    fn swap_cell(&mut self, pos: u8, from: Cell, to: Cell) -> bool {
        let cell = self.cell(pos);
        let done = *cell == from;
        if done {
            *cell = to;
        }
        done
    }
}
