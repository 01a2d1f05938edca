//! Publishers.

use super::world::{Aim, CELLS, Main, Name, Position, State, Word, cell, lap, lap_order, names};
use super::{CORRUPT, Done, OVERTAKEN, Rule, Turn};

impl Turn<'_> {
    pub(super) fn publish(&mut self) -> Done {
        let main = self.actor().main;
        let (next, what) = match main {
            Main::Ready if self.actor().messages == 0 => (Main::Ready, "rests"),
            Main::Ready => match self.free_file() {
                Some(file) if self.actor().file.is_none() => (Main::Fill { file }, "finds a file"),
                _ => (self.again(), "has a message"),
            },
            Main::Fill { file } => {
                if self.world.files[usize::from(file)].count != 0 {
                    (Main::Ready, "finds the file in use")
                } else {
                    let (me, bytes) = (self.me, self.message());
                    let of_file = &mut self.world.files[usize::from(file)];
                    (of_file.bytes, of_file.holders) = (bytes, of_file.holders | 1 << me);
                    self.actor().file = Some(file);
                    (self.again(), "fills the file")
                }
            }
            Main::Kept { .. } | Main::Tail if self.is_replaced() => (Main::Join, "has lost its number"),
            Main::Kept { position } => {
                let word = Word { lap: lap(position), state: State::Done, member: self.actor().number };
                if self.world.cells[cell(position)].word == word {
                    let aim = Aim { position, is_drop: true, word };
                    (self.checked(aim, Rule::LookBeforeDropping), "finds its message")
                } else {
                    self.actor().kept = None;
                    (Main::Tail, "finds its message gone")
                }
            }
            Main::Tail => (Main::Cell { tail: self.world.tail }, "reads the tail"),
            Main::Cell { tail } => self.look_at_cell(tail)?,
            Main::RaisePast { tail } => {
                self.raise(tail);
                (self.again(), "raises the tail past a claimed cell")
            }
            Main::Joins(aim) => self.read_joins(aim),
            Main::Look { aim, joins, number, lowest } => self.look_at_cursor(aim, joins, number, lowest),
            Main::JoinsLate { aim, lowest } => {
                self.actor().known = (self.world.joins, lowest);
                (self.allowed(aim), "reads the joins late")
            }
            Main::CountEarly(aim) => {
                if let Some(old) = Name::of(self.world.cells[cell(aim.position)].halves) {
                    self.count(old.file, -1);
                }
                (Main::Swap(aim), "counts names down early")
            }
            Main::Swap(aim) => self.swap(aim)?,
            Main::Raise { position, old } => {
                if self.keeps(Rule::RaiseFromClaimed) {
                    self.raise(position);
                } else {
                    self.world.tail += 1;
                }
                let next = match old.filter(|_| self.keeps(Rule::CountDownAfterStep)) {
                    Some(old) => Main::CountDown { old, position: Some(position) },
                    None => Main::Write { position, half: 0 },
                };
                (next, "raises the tail")
            }
            Main::CountDown { old, position } => {
                self.count(old.file, -1);
                let next = position.map(|position| Main::Write { position, half: 0 });
                (next.unwrap_or(Main::Tail), "counts names down")
            }
            Main::Write { position, half } => {
                let message = self.message();
                let file = self.actor().file;
                let halves = file.map_or([message; 2], |file| Name { file, bytes: message }.halves());
                let idx = usize::from(half);
                self.world.cells[cell(position)].halves[idx] = halves[idx];
                let next = match half {
                    0 => Main::Write { position, half: 1 },
                    _ if file.is_some() && self.keeps(Rule::CountBeforePublishing) => {
                        Main::CountUp { position }
                    }
                    _ => Main::Publish { position },
                };
                (next, "writes half of its message")
            }
            Main::CountUp { position } => {
                self.count_own(1);
                (Main::Publish { position }, "counts a name")
            }
            Main::Publish { position } => self.make_visible(position),
            Main::CountLate => {
                self.count_own(1);
                (Main::Published, "counts a name late")
            }
            Main::TakeBack => {
                self.count_own(-1);
                (self.again_after_loss(), "takes a name back")
            }
            Main::Published => {
                let me = self.me;
                let actor = &mut self.world.actors[me];
                if let Some(file) = actor.file.take() {
                    self.world.files[usize::from(file)].holders &= !(1 << me);
                }
                actor.messages -= 1;
                (Main::Ready, "is done with a message")
            }
            _ => unreachable!("no step of a publisher"),
        };
        self.actor().main = next;
        Ok(what)
    }

    /// The message that it publishes.
    fn message(&self) -> u8 {
        self.me as u8 * 8 + self.world.actors[self.me].messages
    }

    /// One of its files that no cell names and no process holds. Without one, the message is short.
    fn free_file(&self) -> Option<u8> {
        let is_free = |file: &u8| {
            let file = self.world.files[usize::from(*file)];
            file.count == 0 && file.holders == 0 && !file.doubted
        };
        (0..self.scope.files).map(|idx| self.file_of(idx)).find(is_free)
    }

    fn count(&mut self, file: u8, by: i8) {
        self.world.files[usize::from(file)].count += by;
    }

    fn count_own(&mut self, by: i8) {
        let file = self.actor().file.expect("a long message");
        self.count(file, by);
    }

    /// What it begins with when it has a message, and after each wait.
    fn again(&mut self) -> Main {
        self.actor().kept.map_or(Main::Tail, |position| Main::Kept { position })
    }

    /// The same after others took it for dead: without its lock, they would do so again.
    fn again_after_loss(&mut self) -> Main {
        if self.actor().lost { Main::Join } else { self.again() }
    }

    fn raise(&mut self, tail: Position) {
        if self.world.tail == tail {
            self.world.tail = tail + 1;
        }
    }

    fn look_at_cell(&mut self, tail: Position) -> Result<(Main, &'static str), &'static str> {
        let seen = self.world.cells[cell(tail)];
        let (order, Word { lap: before, state, .. }) = (lap_order(tail, &seen), seen.word);
        if order.is_eq() && self.keeps(Rule::RaisePastClaimed) {
            return Ok((Main::RaisePast { tail }, "finds a claimed cell"));
        }
        if order.is_ge() {
            return Ok((self.again(), "finds a claimed cell"));
        }
        if before + 1 != lap(tail) {
            return Err(CORRUPT);
        }
        if state == State::Writing {
            if self.keeps(Rule::PublishersSkip) {
                self.ask_about(cell(tail) as u8);
            }
            return Ok((self.again(), "finds a cell that is being written"));
        }
        let aim = Aim { position: tail, is_drop: false, word: seen.word };
        Ok((self.checked(aim, Rule::LookBeforeClaiming), "finds the cell free"))
    }

    /// What comes before the swap.
    fn checked(&self, aim: Aim, rule: Rule) -> Main {
        let is_needed = aim.over().is_some() && self.keeps(rule);
        if is_needed { Main::Joins(aim) } else { self.allowed(aim) }
    }

    fn allowed(&self, aim: Aim) -> Main {
        let is_early = !self.keeps(Rule::CountDownAfterStep) && aim.word.state == State::Done;
        if is_early { Main::CountEarly(aim) } else { Main::Swap(aim) }
    }

    fn read_joins(&mut self, aim: Aim) -> (Main, &'static str) {
        let over = aim.over().expect("there is a message to lose");
        let joins = self.world.joins;
        let (known, lowest) = self.actor().known;
        if known == joins && over < lowest {
            return (self.allowed(aim), "need not look at the cursors");
        }
        // Without cursors, those that are stored later will not be lower than the tail is now.
        let lowest = over + CELLS as u8;
        (Main::Look { aim, joins, number: 0, lowest }, "reads the joins")
    }

    fn look_at_cursor(&mut self, aim: Aim, joins: u8, number: u8, lowest: Position) -> (Main, &'static str) {
        let over = aim.over().expect("there is a message to lose");
        let cursor = self.world.members[usize::from(number)].cursor;
        if cursor.active && cursor.next <= over {
            if self.keeps(Rule::RemoveDeadCursors) {
                self.ask_about(CELLS as u8 + number);
            }
            return (self.again(), "finds a subscriber that needs the message");
        }
        let lowest = if cursor.active { lowest.min(cursor.next) } else { lowest };
        let next = if number + 1 < self.scope.members {
            Main::Look { aim, joins, number: number + 1, lowest }
        } else if aim.is_drop {
            self.allowed(aim)
        } else if self.keeps(Rule::JoinsBeforeLooking) {
            self.actor().known = (joins, lowest);
            self.allowed(aim)
        } else {
            Main::JoinsLate { aim, lowest }
        };
        (next, "looks at a cursor")
    }

    /// Claims a cell, or drops its message.
    fn swap(&mut self, aim: Aim) -> Result<(Main, &'static str), &'static str> {
        let Aim { position, is_drop, word } = aim;
        let number = self.actor().number;
        let of_cell = &mut self.world.cells[cell(position)];
        if of_cell.word != word {
            if is_drop {
                self.actor().kept = None;
            }
            return Ok((self.again(), "finds the cell changed"));
        }
        let old = names(of_cell);
        if self.world.actors.iter().any(|actor| actor.writes_to(cell(position))) {
            return Ok((self.again(), "leaves time to one that was taken for dead"));
        }
        let of_cell = &mut self.world.cells[cell(position)];
        if is_drop {
            of_cell.word.state = State::Dropped;
            self.actor().kept = None;
            let next = match old.filter(|_| self.keeps(Rule::CountDownAfterStep)) {
                Some(old) => Main::CountDown { old, position: None },
                None => Main::Tail,
            };
            return Ok((next, "drops its message"));
        }
        of_cell.word = Word { lap: lap(position), state: State::Writing, member: number };
        if aim.over().is_some_and(|over| self.world.actors.iter().any(|actor| actor.needs(over))) {
            return Err(OVERTAKEN);
        }
        Ok((Main::Raise { position, old }, "claims a cell"))
    }

    fn make_visible(&mut self, position: Position) -> (Main, &'static str) {
        let (number, message) = (self.actor().number, self.message());
        let is_long = self.actor().file.is_some();
        let counts_before = self.keeps(Rule::CountBeforePublishing);
        let of_cell = &mut self.world.cells[cell(position)];
        if of_cell.word != (Word { lap: lap(position), state: State::Writing, member: number }) {
            let takes_back = is_long && counts_before && self.keeps(Rule::TakeNamesBack);
            let next = if takes_back { Main::TakeBack } else { self.again_after_loss() };
            return (next, "finds that it was taken for dead");
        }
        of_cell.word.state = State::Done;
        self.world.published[usize::from(position)] = message;
        self.actor().kept = (self.scope.drops && is_long).then_some(position);
        (if is_long && !counts_before { Main::CountLate } else { Main::Published }, "publishes")
    }
}
