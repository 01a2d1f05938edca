//! Subscribers.

use super::world::{CELLS, Cursor, Main, Name, Position, State, cell, lap_order};
use super::{Done, MISSED, OVERTAKEN, Part, Rule, Start, TORN, Turn};

impl Turn<'_> {
    pub(super) fn receive(&mut self) -> Done {
        let is_all = self.scope.is_all(self.me);
        let (main, next) = (self.actor().main, self.actor().next);
        let (to, what) = match main {
            Main::Begin => self.begin(is_all),
            Main::LookAtCursor { .. } if self.is_replaced() => (Main::Join, "has lost its number"),
            Main::LookAtCursor { first } => (Main::Store { first, seen: self.cursor() }, "reads its cursor"),
            Main::Store { first, seen } => {
                if self.cursor() != seen && self.keeps(Rule::SubscribeBySwap) {
                    (Main::Begin, "finds its cursor changed")
                } else {
                    self.store(first);
                    let joins = self.keeps(Rule::JoinsAfterStoring);
                    let next = if joins { Main::RaiseJoins { first } } else { self.before_begun(first)? };
                    (next, "stores its cursor")
                }
            }
            Main::RaiseJoins { first } => {
                self.world.joins += 1;
                let stored = self.keeps(Rule::JoinsAfterStoring);
                let next = if stored { self.before_begun(first)? } else { Main::LookAtCursor { first } };
                (next, "raises the joins")
            }
            Main::TailAgain { first } if self.world.tail >= first + CELLS as u8 => {
                (Main::Begin, "finds the tail too far")
            }
            Main::TailAgain { first } => {
                self.has_begun(first)?;
                (Main::Idle, "has subscribed")
            }
            Main::Idle if self.actor().held.is_some() => {
                self.let_go();
                (Main::Idle, "drops a blob")
            }
            Main::Idle if is_all => self.look_at_own_cursor(),
            Main::Idle | Main::Receive => self.look_at_next(is_all)?,
            Main::Behind => {
                let oldest = self.world.tail.saturating_sub(CELLS as u8);
                self.actor().next = oldest.max(next + 1);
                (Main::Idle, "has missed messages")
            }
            Main::Read { word, first } => {
                let halves = self.world.cells[cell(next)].halves;
                match first {
                    None => (Main::Read { word, first: Some(halves[0]) }, "reads half of a message"),
                    Some(first) => {
                        let halves = [first, halves[1]];
                        let is_long = Name::of(halves).is_some();
                        let to = if is_long {
                            Main::Hold { word, halves }
                        } else {
                            Main::WordAgain { word, halves }
                        };
                        (to, "reads half of a message")
                    }
                }
            }
            Main::Hold { word, halves } => {
                let (name, me) = (Name::of(halves).expect("a long message"), self.me);
                let file = &mut self.world.files[usize::from(name.file)];
                if file.bytes == name.bytes {
                    file.holders |= 1 << me;
                    (Main::WordAgain { word, halves }, "takes hold of a blob")
                } else {
                    (Main::Idle, "finds another blob")
                }
            }
            Main::WordAgain { word, halves } => {
                let name = Name::of(halves);
                let rule = match (name, is_all) {
                    (Some(_), _) => Rule::WordAgainAfterHolding,
                    (None, false) => Rule::WordAgainAfterCopying,
                    (None, true) => Rule::AllReadWordAgain,
                };
                self.actor().held = name;
                if self.world.cells[cell(next)].word != word && self.keeps(rule) {
                    self.let_go();
                    (Main::Idle, "was overtaken while it read")
                } else {
                    let message = self.world.published[usize::from(next)];
                    if halves != name.map_or([message; 2], |name| Name { bytes: message, ..name }.halves()) {
                        return Err(TORN);
                    }
                    (self.pass(is_all), "receives a message")
                }
            }
            Main::Move => {
                if self.cursor() == self.actor().mine || !self.keeps(Rule::MoveBySwap) {
                    self.store(next + 1);
                }
                self.actor().next += 1;
                (Main::Idle, "moves its cursor")
            }
            _ => unreachable!("no step of a subscriber"),
        };
        self.actor().main = to;
        Ok(what)
    }

    fn begin(&mut self, is_all: bool) -> (Main, &'static str) {
        let tail = self.world.tail;
        let (begun, next) = (self.actor().begun, self.actor().next);
        let oldest = (tail + u8::from(is_all)).saturating_sub(CELLS as u8);
        let first = match self.scope.cast[self.me] {
            _ if begun => next.max(oldest),
            Part::All(Start::Oldest) | Part::Lag(Start::Oldest) => oldest,
            _ => tail,
        };
        let to = if !is_all {
            self.actor().next = first;
            Main::Idle
        } else if self.keeps(Rule::JoinsAfterStoring) {
            Main::LookAtCursor { first }
        } else {
            Main::RaiseJoins { first }
        };
        (to, "reads the tail")
    }

    fn before_begun(&mut self, first: Position) -> Result<Main, &'static str> {
        if self.keeps(Rule::TailAgain) {
            return Ok(Main::TailAgain { first });
        }
        self.has_begun(first)?;
        Ok(Main::Idle)
    }

    fn has_begun(&mut self, first: Position) -> Result<(), &'static str> {
        let next = self.actor().next;
        if first > next && self.actor().needs(next) {
            return Err(MISSED);
        }
        let newest = self.world.published.iter().rposition(|message| *message != 0);
        let excused = self.actor().lost || self.is_doomed();
        let sure = first.max(newest.map_or(0, |newest| newest as u8 + 1));
        let actor = self.actor();
        (actor.next, actor.begun, actor.sure, actor.excused) = (first, true, sure, excused);
        Ok(())
    }

    fn cursor(&self) -> Cursor {
        self.world.members[usize::from(self.world.actors[self.me].number)].cursor
    }

    fn store(&mut self, next: Position) {
        let epoch = if self.keeps(Rule::EpochInCursor) { self.actor().epoch } else { 0 };
        let (number, mine) = (self.actor().number, Cursor { active: true, next, epoch });
        self.member(number).cursor = mine;
        self.actor().mine = mine;
    }

    /// Whether another process has a proof that this one is dead, and will remove its cursor.
    fn is_doomed(&self) -> bool {
        let number = self.world.actors[self.me].number;
        let word = CELLS as u8 + number;
        let mut recoveries = self.world.actors.iter().filter_map(|actor| actor.recovery);
        recoveries.any(|recovery| recovery.asked && recovery.word == word)
    }

    fn look_at_own_cursor(&mut self) -> (Main, &'static str) {
        if self.keeps(Rule::LookAtOwnCursor) {
            if self.is_replaced() {
                return (Main::Join, "has lost its number");
            }
            if self.cursor() != self.actor().mine {
                return (Main::Begin, "has lost its cursor");
            }
        }
        let is_doomed = self.is_doomed();
        let actor = self.actor();
        actor.excused &= actor.lost || is_doomed;
        (Main::Receive, "finds its cursor")
    }

    fn look_at_next(&mut self, is_all: bool) -> Result<(Main, &'static str), &'static str> {
        let next = self.actor().next;
        let found = self.world.cells[cell(next)];
        let order = lap_order(next, &found);
        if order.is_lt() {
            return Ok((Main::Idle, "finds nothing"));
        }
        if order.is_gt() {
            let is_wrong = is_all && !self.actor().excused;
            return if is_wrong { Err(OVERTAKEN) } else { Ok((Main::Behind, "is overtaken")) };
        }
        match found.word.state {
            State::Done => Ok((Main::Read { word: found.word, first: None }, "finds a message")),
            State::Writing => {
                if self.keeps(Rule::SubscribersSkip) {
                    self.ask_about(cell(next) as u8);
                }
                Ok((Main::Idle, "finds a cell that is being written"))
            }
            State::Skipped if self.world.published[usize::from(next)] != 0 => Err(TORN),
            State::Skipped => Ok((self.pass(is_all), "passes a number over")),
            State::Dropped if is_all && self.actor().needs(next) && next >= self.actor().sure => Err(MISSED),
            State::Dropped => Ok((self.pass(is_all), "has missed a message")),
        }
    }

    /// Goes on with the next position.
    fn pass(&mut self, is_all: bool) -> Main {
        if is_all {
            return Main::Move;
        }
        self.actor().next += 1;
        Main::Idle
    }

    fn let_go(&mut self) {
        let me = self.me;
        if let Some(held) = self.actor().held.take() {
            self.world.files[usize::from(held.file)].holders &= !(1 << me);
        }
    }
}
