//! Calls between processes that may die at any step: slots, ring, members and recovery, as in
//! SEGMENT.md.
//!
//! Every access of shared memory and every question to the kernel is its own step; between two
//! steps any other process may act or die. Accesses are sequentially consistent; the models in the
//! crate search what weaker orders add. Wake-ups are left out: a waiting process may look at any
//! time.

use super::search::{Kind, Model, Promise, Step};
use choices::Choice;
use recovery::Recovery;
use ring::Push;
use server::Serve;

mod world;
mod choices;
mod ring;
mod recovery;
mod client;
mod server;

pub(crate) use world::*;

/// One search: the processes, their numbers of slots, calls and parts, and what may go wrong.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The processes. All of them are attached at the start, in this order, except helpers, which
    /// never attach, and children, which do not exist yet.
    pub(crate) cast: &'static [Part],
    pub(crate) slots: u8,
    pub(crate) cells: u8,
    pub(crate) members: u8,
    /// Calls that each client makes, including its successors.
    pub(crate) calls: u8,
    /// Parts of each reply.
    pub(crate) replies: u8,
    /// How many times a request may go to another server.
    pub(crate) redeliveries: u8,
    /// How many times each optional action may happen.
    pub(crate) whims: Whims,
    /// Whether dead processes are replaced by new ones.
    pub(crate) returns: bool,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Client,
    Server,
    /// A process that a server forks to answer the request that the server holds.
    Child,
    /// Recovers dead members and is not a member itself.
    Helper,
}

macro_rules! rules {
    ($($(#[$what:meta])* $rule:ident,)*) => {
        /// The rules on which the protocol relies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Rule {
            $($(#[$what])* $rule,)*
        }

        pub(crate) const RULES: &[Rule] = &[$(Rule::$rule,)*];
    };
}

rules! {
    /// A death is proved again for each word, after that word was read.
    ProofAfterTheWord,
    /// The role is cleared when all slots are done.
    SlotsBeforeRole,
    /// A recovering process that finds the number taken over stops, and leaves the rest and the
    /// role to the new holder.
    StopWhenTakenOver,
    /// A request that is sent again raises its delivery count.
    DeliveriesCount,
    /// Generations grow.
    GenerationsCount,
    /// A joining process raises the epoch.
    EpochsCount,
    /// A server claims before it unlinks.
    ClaimBeforeUnlink,
    /// A process that takes over a number recovers it before using it.
    RecoverBeforeJoining,
    /// A leaving process keeps its lock until its slots are freed.
    LeaveBeforeUnlocking,
    /// A call that is cancelled while a server has it stays the server's.
    DropTakenCalls,
    /// A full ring removes only entries of calls that are not SENT.
    CleanOnlyStale,
    /// A hint may lag by more than a lap.
    HintsMayLag,
    /// Every recovering process pushes requests that were sent again, before the role is cleared.
    PushBeforeRole,
    /// Except if the ring has an entry for the request; the first entry does not count.
    FirstEntryMayGo,
    /// Nor does the entry of another call of its slot.
    OwnEntryCounts,
    /// Such an entry is not removed to make space. A client removes only one of its own call,
    CleanOnlyItsOwn,
    /// and a recovering process none.
    RecoveryKeepsItsPushes,
    /// The role stays if the ring has no space for the request.
    RoleStaysWhenFull,
    /// A process that took the number over keeps no role for that: a server pushes the request
    /// later, a client gives up the number.
    OweWhenFull,
    /// A request of a dead client is marked dropped for its server.
    DropCallsOfDeadClients,
    /// So is a call whose dead client was to take a part.
    DropPartsOfDeadClients,
    /// A call whose dead server waited for its client gets DIED.
    EndPartsOfDeadServers,
    /// A call that is cancelled while its server waits for the client stays the server's.
    DropBegunCalls,
    /// A client copies a part before it takes it.
    CopyBeforeTaking,
    /// A copy of a part that could not be taken is discarded.
    DiscardUntakenCopies,
    /// A client pushes its request although another thread has forgotten the call.
    PushForgottenRequests,
    /// If it cannot push the request, it withdraws it.
    WithdrawForgottenRequests,
    /// If it dies before that, recovery pushes the request.
    RecoveryPushesForgottenRequests,
    /// For that, a server recovers dead clients as well once a request was forgotten.
    ServersRecoverForForgotten,
    /// A call that has begun is not sent to another server.
    BegunIsNotRedelivered,
    /// Nor does a child adopt it.
    BegunIsNotAdopted,
    /// A child adopts only the delivery that its parent had.
    AdoptTakenDelivery,
    /// A request that a child has adopted cannot be adopted by its own children.
    AdoptOnce,
    /// A request that is given back raises its count. Otherwise the next claim would restore the
    /// same word, and a process with proof that the giver is dead would take the request from a
    /// later holder of its number.
    GivingBackCounts,
    /// A request that was given back and finds the ring full is claimed again.
    ClaimAgainWhenFull,
    /// A parent checks whether a child has adopted its request before it writes a reply.
    LookBeforeReplying,
    /// A waiting server recovers dead servers once a request was forgotten,
    ServersRecoverServers,
    /// which is announced before it happens,
    HintBeforeForgetting,
    /// and dead clients if it waits for one to take a part.
    ServersRecoverClients,
    /// A forgotten request is not treated as cancelled.
    ForgottenIsNotDropped,
}

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

    /// The role with which an actor joins.
    fn role(&self, actor: usize) -> Option<Role> {
        match self.part(actor) {
            Part::Client => Some(Role::Client),
            Part::Server | Part::Child => Some(Role::Server),
            Part::Helper => None,
        }
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let mut world = World { left: self.whims, ..World::default() };
        for (actor, part) in self.cast.iter().enumerate().filter(|(_, part)| **part != Part::Child) {
            world.actors[actor].main = Main::Idle;
            if *part != Part::Helper {
                world.actors[actor].number = actor as u8 + 1;
                world.members[actor] = Member { epoch: 1, role: self.role(actor), holder: Some(actor as u8) };
            }
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
        for actor in &world.actors[..self.cast.len()] {
            if actor.is_attached() && world.members[usize::from(actor.number) - 1].role.is_none() {
                return Some("a living member has lost its role");
            }
            if let Some(call) = actor.call
                && !call.cancelled
                && !call.is_mine(&world.slots[usize::from(call.slot)], actor)
            {
                return Some("a living client lost its call");
            }
            if actor.main.holds_its_request(world, actor.number) == Some(false)
                && self.keeps(Rule::LookBeforeReplying)
            {
                return Some("a living server lost its request");
            }
        }
        (is_quiet(self, world) && !accounts(self, *world))
            .then_some("a slot leaks: recovery leaves it behind")
    }

    const PROMISES: &'static [Promise<Self, World>] = &[
        Promise {
            name: "a call hangs although a server lives",
            by: &[Kind::Work],
            asks: has_server,
            keeps: all_calls_are_over,
        },
        Promise {
            name: "a call hangs although all dead processes return",
            by: &[Kind::Work, Kind::Time],
            asks: |scope, _| scope.returns,
            keeps: is_quiet,
        },
        Promise {
            name: "a forgotten request hangs although a server lives",
            by: &[Kind::Work],
            asks: has_server,
            keeps: |_, world| !world.has_forgotten(),
        },
        Promise {
            name: "a forgotten request hangs although all dead processes return",
            by: &[Kind::Work, Kind::Time],
            asks: |scope, _| scope.returns && scope.actors(Part::Server).next().is_some(),
            keeps: |_, world| !world.has_forgotten(),
        },
    ];
}

fn has_server(scope: &Scope, world: &World) -> bool {
    scope.actors(Part::Server).any(|actor| world.actors[actor].is_staying())
}

fn all_calls_are_over(scope: &Scope, world: &World) -> bool {
    scope.actors(Part::Client).all(|client| matches!(world.actors[client].main, Main::Idle | Main::Gone))
}

/// Whether no process is doing anything.
fn is_quiet(scope: &Scope, world: &World) -> bool {
    world.actors[..scope.cast.len()].iter().all(|actor| {
        matches!(actor.main, Main::Idle | Main::Gone) && actor.recovery.is_none() && actor.push.is_none()
    })
}

/// Whether every slot is free or waits for a server after every dead member was recovered.
fn accounts(scope: &Scope, mut world: World) -> bool {
    let mut pushes = world.actors.iter().any(|actor| actor.owes);
    for number in (1..=scope.members).filter(|number| world.members[usize::from(*number) - 1].is_dead()) {
        pushes = true;
        for slot in &mut world.slots {
            while let Some(next) = slot.word.without(number, slot.ends, scope) {
                slot.word = next;
            }
        }
    }
    world.slots.iter().enumerate().all(|(idx, Slot { word, .. })| {
        let is_sent = word.state == State::Sent && word.owner == NOBODY;
        word.state == State::Free || is_sent && (world.is_queued(idx) || pushes)
    })
}

/// One step of one actor.
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
            Choice::Die => {
                self.world.left.deaths -= 1;
                self.vanish();
                Ok("dies")
            }
            Choice::Return(number) => {
                match number {
                    Some(number) => self.start(number),
                    None => self.actor().main = Main::Idle,
                }
                Ok("returns")
            }
            Choice::Fork { parent, number } => {
                self.world.left.forks -= 1;
                self.start(number);
                Ok(self.fork_of(parent))
            }
            Choice::Leave => {
                self.world.left.leaves -= 1;
                Ok(self.leave())
            }
            Choice::Quit(how) => {
                match how {
                    Quit::Cancel => self.world.left.cancels -= 1,
                    Quit::Forget => self.world.left.forgets -= 1,
                }
                let hints = how == Quit::Forget && self.scope.keeps(Rule::HintBeforeForgetting);
                self.actor().main = match self.main() {
                    Main::Wait if hints => Main::Hint,
                    Main::Wait => Main::QuitLoad { how },
                    _ => Main::Withdraw,
                };
                Ok("begins to give its call up")
            }
            Choice::CancelAside { seen } => Ok(self.cancel_aside(seen)),
            Choice::ForgetAside => Ok(self.forget_aside()),
            Choice::GiveUp => {
                let Main::Serve(work, _) = self.main() else { unreachable!("it has a request") };
                self.world.left.failures -= 1;
                self.actor().main = Main::Serve(work, Serve::PassLoad { to: State::Failed });
                Ok("gives its request up")
            }
            Choice::GiveBack => {
                let Main::Serve(work, _) = self.main() else { unreachable!("it has a request") };
                self.world.left.give_backs -= 1;
                self.actor().main = Main::Serve(work, Serve::GiveBackLoad);
                Ok("wants to give its request back")
            }
            Choice::Acquire(slot) => Ok(self.look_for_slot(slot)),
            Choice::Recover(gone) => {
                self.actor().recovery = Some(Recovery::of(gone));
                self.recover()
            }
            Choice::PushOwed => {
                self.actor().recovery = Some(Recovery::rest(self.world.actors[self.me].number));
                self.recover()
            }
            Choice::GoOn if self.actor().push.is_some() => self.push(),
            Choice::GoOn if self.actor().recovery.is_some() => self.recover(),
            Choice::GoOn => match (self.scope.part(self.me), self.main()) {
                (_, Main::JoinLook | Main::JoinLoad | Main::JoinStore { .. }) => Ok(self.join()),
                (_, Main::LeaveRole | Main::LeaveLock) => Ok(self.leave_on()),
                (Part::Client, _) => self.client(),
                (Part::Server | Part::Child, _) => self.server(),
                (Part::Helper, _) => Ok("rests"),
            },
        }
    }

    /// A new process gets the lock of a number.
    fn start(&mut self, number: u8) {
        self.actor().number = number;
        self.member(number).holder = Some(self.me as u8);
        self.actor().main = Main::JoinLook;
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

    fn start_push(&mut self, entry: Entry) {
        self.actor().push = Some(Push::of(entry));
    }

    /// The kernel releases the lock; everything outside of shared memory is lost.
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
