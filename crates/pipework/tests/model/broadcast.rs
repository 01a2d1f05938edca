//! Broadcast: cells, cursors, numbers of members, and the names of blobs in cells.
//!
//! A ring of two cells. A message is two halves: its bytes, or, if it is long, a file and what was
//! written to it. Steps are single accesses of shared memory and questions to the kernel. A step
//! reads two words only where nothing that may come between them makes a difference. Waiting is a
//! look that is taken again; `waking.rs` has the wake-ups.
//!
//! A member may lose its lock while it lives, as if its program had closed the descriptor. Then
//! others take it for dead. It cannot die any more until it is a member again.

mod world;
mod publisher;
mod subscriber;
pub(crate) mod waking;

use crate::search::{Kind, Model, Promise, Step};
use world::{Actor, CELLS, Cursor, FILES, Main, Recovery, Seen, State, World, cell, lap_order, names};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) cast: &'static [Part],
    /// How many of the cast, at its end, come later.
    pub(crate) late: u8,
    pub(crate) members: u8,
    /// How many messages each publisher publishes.
    pub(crate) messages: u8,
    /// Whether they are long. Then each publisher has this many files.
    pub(crate) files: u8,
    /// Whether a publisher drops its last message before it publishes the next.
    pub(crate) drops: bool,
    pub(crate) whims: Whims,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Publisher,
    /// A subscriber that must see all.
    All(Start),
    /// A subscriber that may lag. It is no member.
    Lag(Start),
    /// A child of a subscriber that must see all.
    Heir,
    /// A process that only recovers. It is no member.
    Helper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    Oldest,
}

/// How often something may happen that no process needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Whims {
    pub(crate) deaths: u8,
    /// How many dead processes are replaced by new ones.
    pub(crate) returns: u8,
    /// How many subscribers and publishers lose their locks.
    pub(crate) losses: u8,
    pub(crate) publisher_losses: u8,
    pub(crate) forks: u8,
}

impl Whims {
    fn losses_of(&mut self, part: Part) -> &mut u8 {
        if part == Part::Publisher { &mut self.publisher_losses } else { &mut self.losses }
    }
}

/// The rules on which the protocol relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Any publisher raises the tail past a claimed cell.
    RaisePastClaimed,
    /// The tail is raised only from the position that was claimed.
    RaiseFromClaimed,
    /// Publishers pass over the cell of a dead publisher,
    PublishersSkip,
    /// and so do subscribers.
    SubscribersSkip,
    /// Publishers look at the cursors before they claim,
    LookBeforeClaiming,
    /// and before they drop.
    LookBeforeDropping,
    /// They take away the cursor of a dead subscriber,
    RemoveDeadCursors,
    /// and one of an earlier membership.
    RemoveOldCursors,
    /// They read `joins` before they look.
    JoinsBeforeLooking,
    /// A subscriber raises `joins` after it has stored its cursor,
    JoinsAfterStoring,
    /// and reads the tail again after that.
    TailAgain,
    /// A cursor has the epoch of its membership.
    EpochInCursor,
    /// A subscriber stores its first cursor by a swap from the word that it read before it looked at
    /// its membership,
    SubscribeBySwap,
    /// and moves its cursor by a swap.
    MoveBySwap,
    /// Before it receives, it looks at its cursor.
    LookAtOwnCursor,
    /// One that may lag reads the word again after copying;
    WordAgainAfterCopying,
    /// so does one that must see all.
    AllReadWordAgain,
    /// Both do it after they took hold of a blob.
    WordAgainAfterHolding,
    /// A death is proved after the word was read that it is to change.
    ProofAfterWord,
    /// A number is recovered before it is used.
    RecoverBeforeJoining,
    /// Names are counted before the message is published,
    CountBeforePublishing,
    /// counted down if it was not,
    TakeNamesBack,
    /// and counted down only after the step that ends the message.
    CountDownAfterStep,
}

pub(crate) const RULES: &[Rule] = &[
    Rule::RaisePastClaimed,
    Rule::RaiseFromClaimed,
    Rule::PublishersSkip,
    Rule::SubscribersSkip,
    Rule::LookBeforeClaiming,
    Rule::LookBeforeDropping,
    Rule::RemoveDeadCursors,
    Rule::RemoveOldCursors,
    Rule::JoinsBeforeLooking,
    Rule::JoinsAfterStoring,
    Rule::TailAgain,
    Rule::EpochInCursor,
    Rule::SubscribeBySwap,
    Rule::MoveBySwap,
    Rule::LookAtOwnCursor,
    Rule::WordAgainAfterCopying,
    Rule::AllReadWordAgain,
    Rule::WordAgainAfterHolding,
    Rule::ProofAfterWord,
    Rule::RecoverBeforeJoining,
    Rule::CountBeforePublishing,
    Rule::TakeNamesBack,
    Rule::CountDownAfterStep,
];

const CORRUPT: &str = "the ring looks corrupt";
const OVERTAKEN: &str = "a subscriber that must see all is overtaken";
const MISSED: &str = "a subscriber that must see all misses a message";
const TORN: &str = "a subscriber has received what nobody published there";
const CHANGED: &str = "a blob that is held was changed";
const LOST: &str = "a file that a cell names was changed";
const TOO_LOW: &str = "a count is too low";
const TOO_HIGH: &str = "a name is never counted down";

/// An action that a process may choose.
#[derive(Clone, Copy, Debug)]
enum Choice {
    GoOn,
    Die,
    Return,
    LoseLock,
    LockAgain,
    Fork { child: u8 },
    Join { number: u8 },
    Recover { word: u8 },
}

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn is_all(&self, actor: usize) -> bool {
        matches!(self.cast[actor], Part::All(_) | Part::Heir)
    }

    fn is_member(&self, actor: usize) -> bool {
        self.is_all(actor) || self.cast[actor] == Part::Publisher
    }

    /// Where a process begins that is a member, or need not be one.
    fn start(&self, actor: usize) -> Main {
        match self.cast[actor] {
            Part::Publisher => Main::Ready,
            Part::Helper => Main::Idle,
            Part::All(_) | Part::Lag(_) | Part::Heir => Main::Begin,
        }
    }

    fn choices(&self, world: &World, me: usize, choose: &mut dyn FnMut(Kind, Choice)) {
        let (actor, part) = (&world.actors[me], self.cast[me]);
        if actor.main == Main::Gone {
            if world.left.returns > 0 && part != Part::Heir {
                choose(Kind::Time, Choice::Return);
            }
            return;
        }
        if world.left.deaths > 0 && self.is_member(me) && !actor.lost {
            choose(Kind::Whim, Choice::Die);
        }
        let has_lock = self.is_member(me) && actor.main != Main::Join && !actor.lost;
        if *{ world.left }.losses_of(part) > 0 && has_lock {
            choose(Kind::Whim, Choice::LoseLock);
        }
        if actor.lost && matches!(actor.main, Main::Idle | Main::Ready) {
            let member = world.members[usize::from(actor.number)];
            if member.holder.is_none() && member.epoch == actor.epoch {
                choose(Kind::Work, Choice::LockAgain);
            }
        }
        if world.left.forks > 0 && self.is_all(me) && actor.main == Main::Idle {
            let heirs = (0..self.cast.len()).filter(|heir| self.cast[*heir] == Part::Heir);
            heirs
                .filter(|heir| world.actors[*heir].main == Main::Gone)
                .for_each(|heir| choose(Kind::Whim, Choice::Fork { child: heir as u8 }));
        }
        match actor.main {
            Main::Join => (0..self.members)
                .filter(|number| world.members[usize::from(*number)].holder.is_none())
                .for_each(|number| choose(Kind::Work, Choice::Join { number })),
            Main::Idle if part == Part::Helper && actor.recovery.is_none() => {
                (0..CELLS as u8 + self.members).for_each(|word| choose(Kind::Work, Choice::Recover { word }));
            }
            _ => choose(Kind::Work, Choice::GoOn),
        }
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let mut world = World { left: self.whims, ..World::default() };
        let present = self.cast.len() - usize::from(self.late);
        let mut number = 0;
        for me in 0..present {
            world.actors[me] = Actor { main: self.start(me), ..Actor::default() };
            if self.cast[me] == Part::Heir {
                world.actors[me].main = Main::Gone;
            } else if self.is_member(me) {
                let member = &mut world.members[usize::from(number)];
                (member.holder, member.epoch) = (Some(me as u8), 1);
                (world.actors[me].number, world.actors[me].epoch) = (number, 1);
                number += 1;
            }
        }
        for actor in &mut world.actors {
            (actor.messages, actor.excused) = (self.messages, true);
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        for me in 0..self.cast.len() {
            self.choices(world, me, &mut |kind, choice| {
                let mut turn = Turn { scope: self, world: *world, me };
                match turn.take(choice) {
                    Ok(what) if turn.world != *world => {
                        steps.push(Step { kind, actor: me, what, to: Ok(turn.world) });
                    }
                    Ok(_) => {}
                    Err(what) => steps.push(Step { kind, actor: me, what: "", to: Err(what) }),
                }
            });
        }
    }

    fn fault(&self, world: &World) -> Option<&'static str> {
        let held = world.actors.iter().filter_map(|actor| actor.held);
        if held.into_iter().any(|held| world.files[usize::from(held.file)].bytes != held.bytes) {
            return Some(CHANGED);
        }
        if self.files == 0 {
            return None;
        }
        let is_quiet = is_quiet(self, world);
        for (idx, file) in world.files.iter().enumerate() {
            let named = world.cells.iter().filter_map(names).filter(|name| usize::from(name.file) == idx);
            if named.clone().any(|name| name.bytes != file.bytes) {
                return Some(LOST);
            }
            let named = named.count() as i8;
            if file.count < named {
                return Some(TOO_LOW);
            }
            if is_quiet && !file.doubted && file.count > named {
                return Some(TOO_HIGH);
            }
        }
        None
    }

    const PROMISES: &'static [Promise<Self, World>] =
        &[Promise { name: "a process is stuck", by: &[Kind::Work], asks: |_, _| true, keeps: is_quiet }];
}

/// Whether all living publishers have published all, and all living subscribers have received it.
fn is_quiet(scope: &Scope, world: &World) -> bool {
    let rests = |(me, part): (usize, &Part)| {
        let actor = &world.actors[me];
        match (part, actor.main) {
            (_, Main::Gone) => true,
            // No number is free.
            (_, Main::Join) => {
                world.members[..scope.members.into()].iter().all(|member| member.holder.is_some())
            }
            (Part::Publisher, main) => main == Main::Ready && actor.messages == 0,
            (Part::Helper, main) => main == Main::Idle && actor.recovery.is_none(),
            (_, Main::Idle) => {
                let is_there = lap_order(actor.next, &world.cells[cell(actor.next)]).is_ge();
                let later = &world.published[usize::from(actor.next)..];
                actor.held.is_none() && !is_there && later.iter().all(|message| *message == 0)
            }
            _ => false,
        }
    };
    scope.cast.iter().enumerate().all(rests)
}

/// One step of one process.
struct Turn<'a> {
    scope: &'a Scope,
    world: World,
    me: usize,
}

/// The step that was done, or the fault in it.
type Done = Result<&'static str, &'static str>;

impl Turn<'_> {
    fn take(&mut self, choice: Choice) -> Done {
        match choice {
            Choice::GoOn if self.actor().recovery.is_some() => Ok(self.recover()),
            Choice::GoOn => match (self.actor().main, self.scope.cast[self.me]) {
                (Main::Recover { word }, _) => Ok(self.recover_own(word)),
                (_, Part::Publisher) => self.publish(),
                (_, Part::Helper) => Ok("rests"),
                _ => self.receive(),
            },
            Choice::Die => {
                self.world.left.deaths -= 1;
                self.vanish();
                Ok("dies")
            }
            Choice::Return => {
                self.world.left.returns -= 1;
                let main = if self.scope.is_member(self.me) { Main::Join } else { self.scope.start(self.me) };
                self.actor().main = main;
                Ok("comes")
            }
            Choice::LoseLock => {
                let part = self.scope.cast[self.me];
                *self.world.left.losses_of(part) -= 1;
                let number = self.actor().number;
                self.member(number).holder = None;
                (self.actor().lost, self.actor().excused) = (true, true);
                Ok("loses its lock")
            }
            Choice::LockAgain => {
                let number = self.actor().number;
                self.member(number).holder = Some(self.me as u8);
                self.actor().lost = false;
                Ok("locks its number again")
            }
            Choice::Fork { child } => {
                self.world.left.forks -= 1;
                let next = self.actor().next;
                let child = &mut self.world.actors[usize::from(child)];
                *child = Actor { main: Main::Join, next, begun: true, ..*child };
                Ok("forks")
            }
            Choice::Join { number } => {
                self.member(number).holder = Some(self.me as u8);
                let recovers = self.scope.keeps(Rule::RecoverBeforeJoining);
                let word = if recovers { 0 } else { self.words() };
                let actor = self.actor();
                (actor.number, actor.lost, actor.main) = (number, false, Main::Recover { word });
                Ok("locks a number")
            }
            Choice::Recover { word } => Ok(self.begin_recovery(word)),
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.scope.keeps(rule)
    }

    fn actor(&mut self) -> &mut Actor {
        &mut self.world.actors[self.me]
    }

    fn member(&mut self, number: u8) -> &mut world::Member {
        &mut self.world.members[usize::from(number)]
    }

    /// Whether its number has been taken over by another process.
    fn is_replaced(&self) -> bool {
        let Actor { number, epoch, .. } = self.world.actors[self.me];
        self.world.members[usize::from(number)].epoch != epoch
    }

    /// How many words name members: the cells, then the cursors.
    fn words(&self) -> u8 {
        CELLS as u8 + self.scope.members
    }

    /// A number that it has just locked: removes the last holder from one word, in the end counts the
    /// epoch.
    fn recover_own(&mut self, word: u8) -> &'static str {
        let number = self.actor().number;
        if word < self.words() {
            if self.named_in(word) == Some(number) {
                self.remove(word);
            }
            self.actor().main = Main::Recover { word: word + 1 };
            return "recovers its number";
        }
        self.member(number).epoch += 1;
        self.actor().epoch = self.member(number).epoch;
        self.actor().main = self.scope.start(self.me);
        "joins"
    }

    /// The member that a word names.
    fn named_in(&self, word: u8) -> Option<u8> {
        match self.world.cells.get(usize::from(word)) {
            Some(cell) => (cell.word.state == State::Writing).then_some(cell.word.member),
            None => {
                let number = word - CELLS as u8;
                self.world.members[usize::from(number)].cursor.active.then_some(number)
            }
        }
    }

    fn remove(&mut self, word: u8) {
        match self.world.cells.get_mut(usize::from(word)) {
            Some(cell) => cell.word.state = State::Skipped,
            None => self.member(word - CELLS as u8).cursor = Cursor::default(),
        }
    }

    /// A helper reads a word that names a member. Without the rule it asks about that member at once,
    /// and reads the word later.
    fn begin_recovery(&mut self, word: u8) -> &'static str {
        let Some(number) = self.named_in(word) else { return "finds no member" };
        let (asked, seen) = (!self.keeps(Rule::ProofAfterWord), self.world.seen(word));
        if !asked || self.is_gone(number, seen) {
            self.actor().recovery = Some(Recovery { word, number, seen, asked });
        }
        "reads a word that names a member"
    }

    /// Whether the kernel says that nobody has the lock of a number, or a cursor is one of an earlier
    /// membership.
    fn is_gone(&self, number: u8, seen: Seen) -> bool {
        let member = &self.world.members[usize::from(number)];
        let is_old = || matches!(seen, Seen::Cursor(cursor) if cursor.epoch != member.epoch);
        let asks = self.keeps(Rule::RemoveOldCursors) && self.keeps(Rule::EpochInCursor);
        member.holder.is_none() || asks && is_old()
    }

    /// Goes on with the recovery of one word.
    fn recover(&mut self) -> &'static str {
        let Some(recovery) = self.actor().recovery.take() else { unreachable!("it recovers") };
        let Recovery { word, number, seen, asked } = recovery;
        if !asked {
            let asked = self.is_gone(number, seen);
            self.actor().recovery = asked.then_some(Recovery { asked, ..recovery });
            return if asked { "proves a death" } else { "finds a member alive" };
        }
        let is_same = match self.keeps(Rule::ProofAfterWord) {
            true => self.world.seen(word) == seen,
            false => self.named_in(word) == Some(number),
        };
        if is_same {
            self.remove(word);
        }
        "removes a dead member"
    }

    /// Begins to recover the word that it waits for.
    fn ask_about(&mut self, word: u8) {
        let Some(number) = self.named_in(word) else { unreachable!("it names a member") };
        let seen = self.world.seen(word);
        self.actor().recovery = Some(Recovery { word, number, seen, asked: false });
    }

    /// The kernel releases the locks; everything outside of shared memory is lost.
    fn vanish(&mut self) {
        let me = self.me as u8;
        let held = |member: &&mut world::Member| member.holder == Some(me);
        self.world.members.iter_mut().filter(held).for_each(|member| member.holder = None);
        let pending = self.actor().pending();
        for (idx, file) in self.world.files.iter_mut().enumerate() {
            file.holders &= !(1 << me);
            file.doubted |= pending >> idx & 1 == 1;
        }
        *self.actor() = Actor { messages: self.actor().messages, excused: true, ..Actor::default() };
    }

    /// A file of this publisher, by its index among them.
    fn file_of(&self, idx: u8) -> u8 {
        let file = self.me as u8 * self.scope.files + idx;
        assert!(usize::from(file) < FILES);
        file
    }
}
