//! Calls between processes that may die at any step: slots, ring, members and recovery, as
//! SEGMENT.md has them.
//!
//! Every access of shared memory and every question to the kernel is a step of its own; between two
//! of them anybody else may act or die. Accesses are sequentially consistent; what weaker orders
//! add is searched by the models in the crate. Wake-ups are left out: whoever waits may look at any
//! time.

use super::search::{Kind, Model, Promise, Step};
use recovery::Recovery;
use ring::Push;

mod world;
mod ring;
mod recovery;
mod client;
mod server;

pub(crate) use world::*;

/// What is searched: who takes part, with how much, and what may go wrong.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Who takes part. All of them are attached at the beginning, in this order, but for helpers,
    /// which never are.
    pub(crate) cast: &'static [Part],
    pub(crate) slots: u8,
    pub(crate) cells: u8,
    pub(crate) members: u8,
    /// Calls that each client begins, its successors included.
    pub(crate) calls: u8,
    /// How often a request may go to another server.
    pub(crate) redeliveries: u8,
    pub(crate) deaths: u8,
    pub(crate) cancels: u8,
    /// How often a member leaves.
    pub(crate) leaves: u8,
    /// Whether the dead come back as new processes.
    pub(crate) returns: bool,
    /// A rule that is left out, to see that the search finds what it is for.
    pub(crate) without: Option<Rule>,
}

/// What somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Client,
    Server,
    /// Recovers whoever is dead, and is no member.
    Helper,
}

/// The rules that the protocol stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A death is proved for each word anew, after that word was read.
    ProofAfterTheWord,
    /// The role goes when all slots are done.
    SlotsBeforeRole,
    /// A recoverer that finds the number taken over leaves the rest, and the role, to whoever has
    /// it.
    StopWhenTakenOver,
    /// A request that is sent again counts it.
    DeliveriesCount,
    /// Generations grow.
    GenerationsCount,
    /// Whoever joins raises the epoch.
    EpochsCount,
    /// A server claims before it unlinks.
    ClaimBeforeUnlink,
    /// Whoever takes a number over recovers it before using it.
    RecoverBeforeJoining,
    /// Who leaves keeps its lock until its slots are given back.
    LeaveBeforeUnlocking,
    /// What is cancelled while a server has it stays the server's.
    DropWhatIsTaken,
    /// A full ring loses only what is not sent.
    CleanOnlyStale,
    /// A hint may lag by more than a lap.
    HintsMayLag,
    /// A client pushes its call again if that was sent again and is not in the ring.
    PushAgain,
    /// What a dead client sent is dropped for its server.
    DropForTheDead,
}

pub(crate) const RULES: [Rule; 14] = [
    Rule::ProofAfterTheWord,
    Rule::SlotsBeforeRole,
    Rule::StopWhenTakenOver,
    Rule::DeliveriesCount,
    Rule::GenerationsCount,
    Rule::EpochsCount,
    Rule::ClaimBeforeUnlink,
    Rule::RecoverBeforeJoining,
    Rule::LeaveBeforeUnlocking,
    Rule::DropWhatIsTaken,
    Rule::CleanOnlyStale,
    Rule::HintsMayLag,
    Rule::PushAgain,
    Rule::DropForTheDead,
];

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn part(&self, actor: usize) -> Part {
        self.cast[actor]
    }

    fn actors(&self, part: Part) -> impl Iterator<Item = usize> {
        (0..self.cast.len()).filter(move |actor| self.part(*actor) == part)
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let mut world =
            World { deaths: self.deaths, cancels: self.cancels, leaves: self.leaves, ..World::default() };
        for (actor, part) in self.cast.iter().enumerate() {
            world.actors[actor].main = Main::Idle;
            if *part != Part::Helper {
                world.actors[actor].number = actor as u8 + 1;
                world.members[actor] = Member { epoch: 1, role: true, holder: Some(actor as u8) };
            }
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        for me in 0..self.cast.len() {
            let mut step = |kind, choice| {
                let mut turn = Turn { scope: self, world: *world, me };
                match turn.take(choice) {
                    Ok(what) if turn.world != *world => {
                        steps.push(Step { kind, actor: me, what, to: Ok(turn.world) });
                    }
                    Ok(_) => {}
                    Err(what) => steps.push(Step { kind, actor: me, what: "", to: Err(what) }),
                }
            };
            let actor = &world.actors[me];
            if actor.main == Main::Gone {
                let free =
                    (0..self.members).filter(|member| world.members[usize::from(*member)].holder.is_none());
                match self.part(me) {
                    _ if !self.returns => {}
                    Part::Helper => step(Kind::Time, Choice::Return(None)),
                    _ => free.for_each(|member| step(Kind::Time, Choice::Return(Some(member + 1)))),
                }
                continue;
            }
            if world.deaths > 0 {
                step(Kind::Whim, Choice::Die);
            }
            if actor.push.is_some() || actor.recovery.is_some() {
                step(Kind::Work, Choice::GoOn);
                continue;
            }
            let may_leave = matches!(actor.main, Main::Idle | Main::Wait) && self.part(me) != Part::Helper;
            if may_leave && world.leaves > 0 {
                step(Kind::Whim, Choice::Leave);
            }
            if matches!(actor.main, Main::Wait | Main::QueueWait) && world.cancels > 0 {
                step(Kind::Whim, Choice::Cancel);
            }
            let recovers = match self.part(me) {
                Part::Helper => actor.main == Main::Idle,
                _ => actor.main == Main::Acquire,
            };
            if recovers {
                (1..=self.members).filter(|member| *member != actor.number).for_each(|member| {
                    step(Kind::Work, Choice::Recover(member));
                });
            }
            match actor.main {
                Main::Acquire => (0..self.slots).for_each(|slot| step(Kind::Work, Choice::Acquire(slot))),
                _ => step(Kind::Work, Choice::GoOn),
            }
        }
    }

    fn fault(&self, world: &World) -> Option<&'static str> {
        for actor in &world.actors[..self.cast.len()] {
            if actor.is_attached() && !world.members[usize::from(actor.number) - 1].role {
                return Some("a living member has lost its role");
            }
            if let Some(call) = actor.call
                && !call.is_mine(&world.slots[usize::from(call.slot)], actor)
            {
                return Some("a living client was robbed of its call");
            }
            if let Some((slot, taken)) = actor.main.request()
                && !taken.is_held(world.slots[usize::from(slot)].word)
            {
                return Some("a living server was robbed of its request");
            }
        }
        (is_quiet(self, world) && !accounts(self, *world))
            .then_some("a slot leaks: recovery leaves it behind")
    }

    const PROMISES: &'static [Promise<Self, World>] = &[
        Promise {
            name: "a call hangs although a server lives",
            by: &[Kind::Work],
            asks: |scope, world| scope.actors(Part::Server).any(|actor| world.actors[actor].is_staying()),
            keeps: all_calls_are_over,
        },
        Promise {
            name: "a call hangs although all who died come back",
            by: &[Kind::Work, Kind::Time],
            asks: |scope, _| scope.returns,
            keeps: is_quiet,
        },
    ];
}

fn all_calls_are_over(scope: &Scope, world: &World) -> bool {
    scope.actors(Part::Client).all(|client| matches!(world.actors[client].main, Main::Idle | Main::Gone))
}

/// Nobody is doing anything.
fn is_quiet(scope: &Scope, world: &World) -> bool {
    world.actors[..scope.cast.len()].iter().all(|actor| {
        matches!(actor.main, Main::Idle | Main::Gone) && actor.recovery.is_none() && actor.push.is_none()
    })
}

/// Whether every slot is free once everybody who is dead was recovered.
fn accounts(scope: &Scope, mut world: World) -> bool {
    for number in 1..=scope.members {
        let member = world.members[usize::from(number) - 1];
        if member.role && member.holder.is_none() {
            for slot in &mut world.slots {
                while let Some(next) = slot.word.without(number, slot.client, scope) {
                    slot.word = next;
                }
            }
        }
    }
    world.slots.iter().all(|slot| slot.word.state == State::Free)
}

/// What an actor may do.
#[derive(Clone, Copy, Debug)]
enum Choice {
    GoOn,
    Die,
    /// A new process in the place of one that is gone, with the lock of that number.
    Return(Option<u8>),
    Leave,
    Cancel,
    Acquire(u8),
    Recover(u8),
}

/// One step of one actor.
struct Turn<'a> {
    scope: &'a Scope,
    world: World,
    me: usize,
}

/// What was done; or what is wrong with it.
type Done = Result<&'static str, &'static str>;

impl Turn<'_> {
    fn take(&mut self, choice: Choice) -> Done {
        match choice {
            Choice::Die => {
                self.world.deaths -= 1;
                self.vanish();
                Ok("dies")
            }
            Choice::Return(number) => {
                if let Some(number) = number {
                    self.actor().number = number;
                    self.member(number).holder = Some(self.me as u8);
                }
                self.actor().main = if number.is_some() { Main::JoinLook } else { Main::Idle };
                Ok("returns")
            }
            Choice::Leave => {
                self.world.leaves -= 1;
                Ok(self.leave())
            }
            Choice::Cancel => {
                self.world.cancels -= 1;
                let queued = self.main() == Main::Wait;
                self.actor().main = if queued { Main::CancelLoad } else { Main::Withdraw };
                Ok("begins to cancel")
            }
            Choice::Acquire(slot) => Ok(self.look_for_slot(slot)),
            Choice::Recover(gone) => {
                self.actor().recovery = Some(Recovery::of(gone));
                self.recover()
            }
            Choice::GoOn if self.actor().push.is_some() => self.push(),
            Choice::GoOn if self.actor().recovery.is_some() => self.recover(),
            Choice::GoOn => match (self.scope.part(self.me), self.main()) {
                (_, Main::JoinLook | Main::JoinLoad | Main::JoinStore { .. }) => Ok(self.join()),
                (_, Main::LeaveRole | Main::LeaveLock) => Ok(self.leave_on()),
                (Part::Client, _) => self.client(),
                (Part::Server, _) => self.server(),
                (Part::Helper, _) => Ok("rests"),
            },
        }
    }

    fn actor(&mut self) -> &mut Actor {
        &mut self.world.actors[self.me]
    }

    fn main(&self) -> Main {
        self.world.actors[self.me].main
    }

    fn member(&mut self, number: u8) -> &mut Member {
        &mut self.world.members[usize::from(number) - 1]
    }

    fn slot(&mut self, idx: u8) -> &mut Slot {
        &mut self.world.slots[usize::from(idx)]
    }

    /// One compare-and-swap of a slot's word.
    fn swap(&mut self, idx: u8, from: Word, to: Word) -> bool {
        let slot = self.slot(idx);
        let done = slot.word == from;
        if done {
            slot.word = to;
        }
        done
    }

    fn start_push(&mut self, slot: u8) {
        self.actor().push = Some(Push::of(slot));
    }

    /// The kernel lets go of the lock; all that was not in shared memory is gone.
    fn vanish(&mut self) {
        let me = self.me as u8;
        self.world
            .members
            .iter_mut()
            .filter(|member| member.holder == Some(me))
            .for_each(|member| member.holder = None);
        *self.actor() = Actor { calls: self.actor().calls, ..Actor::default() };
    }
}
