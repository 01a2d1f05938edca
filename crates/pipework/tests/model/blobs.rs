//! The life of a blob's file between processes that may die at any step: locks, handles in slots,
//! the count of the slots that name a file, re-use, and the sweep after a death, as in FILE.md.
//!
//! Each load, swap and store of shared memory, each question about a lock and each system call is
//! its own step; between two steps any other process may act or die. Accesses are sequentially
//! consistent. Left out is everything that the model of calls covers: the ring, waiting, proofs of
//! death, and numbers that are taken over. Each process has one thread, except for a client beside
//! which a second thread cancels.

use super::search::{Kind, Model, Promise, Step};
use detach::Detach;
use look::{Look, Sweep};
use world::{ACTORS, FILES, Handle, Name, State, Word};

mod world;
mod look;
mod detach;
mod programs;

pub(crate) use world::{Actor, World};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) cast: &'static [Part],
    pub(crate) slots: u8,
    pub(crate) files: u8,
    /// How many times each process fills a blob, or sends one that it has.
    pub(crate) calls: u8,
    /// How many times a request may go to another server.
    pub(crate) redeliveries: u8,
    /// Whether a server that sends blobs back does so in parts of the reply, as many as it has
    /// calls.
    pub(crate) parts: bool,
    /// Whether clients, and servers that need no blob, copy the bytes that they receive.
    pub(crate) copies: bool,
    /// Whether a client takes its reply with step 15.
    pub(crate) holds_replies: bool,
    /// Whether the file system has files without a name.
    pub(crate) unnamed: bool,
    /// Whether a child becomes a member.
    pub(crate) joins: bool,
    pub(crate) whims: Whims,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

/// How many times each optional event may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Whims {
    pub(crate) deaths: u8,
    pub(crate) cancels: u8,
    /// A server fails a request while a part of its reply waits.
    pub(crate) failures: u8,
    pub(crate) forks: u8,
    /// A client leaves without a death.
    pub(crate) leaves: u8,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Fills blobs and sends them.
    Client,
    /// Receives blobs, and replies without any.
    Server,
    /// Replies with the blob that it has received.
    Echo,
    /// Replies with a blob of its own, or gives one in each part of a reply.
    Maker,
    /// Sends the blob that it has received to another server, before its reply or after it.
    Forwarder,
    /// Is forked by a client, and sends a blob that it has from there.
    Child,
    /// Another thread of the client before it, which cancels the call while a part of the reply
    /// waits.
    Canceller,
    /// Recovers dead members and is not a member itself.
    Doctor,
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
    /// A process looks at a file after it has unlocked it,
    LookAfterDropping,
    /// after it has given up its interest,
    LookAfterGivingUp,
    /// and after it has lowered or doubted a count without a lock, if that count is doubted.
    LookAfterDetaching,
    /// It unlocks before it looks.
    UnlockBeforeLooking,
    /// A look reads `named` again after the question about locks,
    ReadNamedAgain,
    /// compares the version as well,
    VersionCounts,
    /// and starts over if the word has changed.
    LookAgainIfChanged,
    /// A look asks through an open file that has no lock.
    AskThroughAnotherOpen,
    /// The count is raised before the handle is published.
    CountBeforePublishing,
    /// If the handle was not published, the count is lowered again.
    LowerUnpublishedCount,
    /// The count is lowered after the swap.
    CountAfterSwap,
    /// A process without a lock lowers only the word that it has read,
    LowerOnlyTheWordRead,
    /// compares the version as well,
    LoweredVersionCounts,
    /// and reads the word before the slot stops naming the file.
    NamedBeforeSwap,
    /// If the word has changed, it doubts the count,
    DoubtIfChanged,
    /// and does not lower it for a second handle of the message either.
    ChangedIsNotLowered,
    /// The mark of doubt stays when a count is raised,
    RaisedKeepsDoubt,
    /// lowered,
    LoweredKeepsDoubt,
    /// or corrected by a look.
    CorrectedKeepsDoubt,
    /// A receiver has the lock before the slot stops naming the file,
    LockBeforeFreeing,
    /// or has copied the bytes.
    CopyBeforeFreeing,
    /// A copy is discarded if the client has lost the slot meanwhile.
    DiscardLostCopies,
    /// A server claims only the call whose handles it has read.
    ClaimTheCallSeen,
    /// The handles of a request stay named until its slot is free.
    RequestStaysNamed,
    /// The handles of a request that was not published have no meaning.
    FillIsNotTrusted,
    /// Step 15 is not made for a call whose server died.
    DiedIsNotHeld,
    /// Step 23 detaches no handle.
    FailureKeepsThePart,
    /// Threads of a client read the handles of a part and swap the word under one lock.
    PartsUnderOneLock,
    /// A recovering process that has read PART reads the word again after the proof, before the
    /// handles.
    ReadWordAfterProof,
    /// Re-use asks about holders,
    AskBeforeReuse,
    /// looks at the count,
    CountBeforeReuse,
    /// and reads `named` again after the question.
    ReadNamedAgainBeforeReuse,
    /// It asks about holders again after it has counted the slots for a doubtful count.
    AskAgainBeforeReuse,
    /// A maker does not use a file again while its other thread detaches a handle of it.
    DetachKeepsFromReuse,
    /// Interest that was given up is not taken again.
    InterestOnce,
    /// The maker doubts the count when it gives its interest up.
    DoubtWhenGivingUp,
    /// A file that was held at a fork is closed instead of being unlocked,
    ForkedIsClosed,
    /// before the look,
    CloseBeforeLooking,
    /// and not re-used.
    ForkedIsNotReused,
    /// A maker that closes a file doubts its count.
    DoubtAfterFork,
    /// Its maker looks at it again later.
    LookAgainAfterFork,
    /// After a death all files are looked at before the role is cleared.
    SweepBeforeRole,
    /// A sweep counts for the members whose death was proved before it began.
    SweepAfterProof,
    /// A sweep marks each count as doubtful, for the process that unlocks or detaches last,
    DoubtAfterDeath,
    /// also a count of 0,
    DoubtZero,
    /// and changes the word even if it is marked already.
    DoubtAgain,
    /// The look at a doubtful count asks about locks once more after it has counted the slots,
    AskAgainAfterCounting,
    /// reads `named` once more,
    CountedIsReadAgain,
    /// and corrects only the word that it has read.
    CorrectOnlyTheWordRead,
    /// A file that was made under a temporary name gets its final name when it is locked and
    /// written.
    RenameAtTheEnd,
}

const CHANGED: &str = "a blob that is held was changed or freed";
const LOST: &str = "a file that a slot names was changed or freed";
const NOT_FOUND: &str = "a receiver does not find the file that its slot names";
const REVIVED: &str = "garbage is used again";
const TOO_LOW: &str = "a count is too low";
const TORN: &str = "a copy has other bytes than its blob";
const LEAKS: &str = "a file is left behind";
const STUCK: &str = "a file that is kept can never be used again";

/// The next access of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Main {
    /// Not started, ended, or dead.
    #[default]
    Gone,
    /// A client between two calls; a server that waits for a request.
    Idle,
    Reuse {
        file: u8,
        /// Whether `named` has changed since it was read.
        changed: bool,
        at: ReuseAt,
    },
    Birth {
        file: u8,
        at: BirthAt,
    },
    Write {
        file: u8,
    },
    Acquire {
        file: u8,
    },
    Count {
        slot: u8,
        file: u8,
    },
    Handle {
        slot: u8,
        file: u8,
    },
    Publish {
        slot: u8,
        file: u8,
    },
    CountLate {
        slot: u8,
        file: u8,
    },
    Wait {
        slot: u8,
    },
    Hold {
        slot: u8,
        died: bool,
    },
    Receive {
        slot: u8,
        handle: Handle,
        at: ReceiveAt,
        then: Then,
    },
    /// A server has seen a request of this call in the slot.
    FindRequest {
        slot: u8,
        call: u8,
    },
    Claim {
        slot: u8,
        call: u8,
        handle: Option<Handle>,
        /// Its copy has other bytes.
        torn: bool,
    },
    TakePart {
        slot: u8,
        handle: Option<Handle>,
        /// Its copy has other bytes.
        torn: bool,
    },
    GivingUp {
        file: u8,
    },
    /// Looks at its listed files from this one on.
    Leaving {
        file: u8,
    },
    Finish {
        slot: u8,
        late: Option<Handle>,
    },
    Cancel {
        slot: u8,
    },
    Serve {
        slot: u8,
    },
    ReplyCount {
        slot: u8,
        file: u8,
        to: State,
    },
    ReplyHandle {
        slot: u8,
        file: Option<u8>,
        to: State,
    },
    Reply {
        slot: u8,
        file: Option<u8>,
        to: State,
    },
    Undo {
        slot: u8,
        file: u8,
    },
    Dropping {
        slot: u8,
    },
    PartWait {
        slot: u8,
    },
    Fail {
        slot: u8,
    },
    Aside {
        slot: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReuseAt {
    Read { counted: bool },
    Ask,
    ReadAgain,
    Raise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BirthAt {
    Create,
    Lock,
    Header,
    Rename,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReceiveAt {
    Open,
    Lock,
    Check,
    CopyHalf,
    CopyRest { torn: bool },
}

/// The next step after a blob was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    Claim { call: u8 },
    TakePart,
    Finish,
    End,
}

impl Then {
    /// Whether a swap decides that comes after the blob was received.
    fn is_uncertain(self) -> bool {
        matches!(self, Then::Claim { .. } | Then::TakePart)
    }
}

/// An action that a process may choose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    GoOn,
    Die,
    Fork { child: u8 },
    Recover(u8),
    Drop(u8),
    DropInherited(u8),
    GiveUp(u8),
    LookAgain(u8),
    Reuse(u8),
    Birth(u8),
    Send(u8),
    Acquire(u8),
    FindNoSlot,
    Claim(u8),
    Reply(Option<u8>, State),
    Cancel { is_whim: bool },
    Fail,
    CancelAside(u8),
    Leave,
    Exit,
}

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn part(&self, actor: usize) -> Part {
        self.cast[actor]
    }

    /// The actor of whose process this one is a thread.
    fn process(&self, actor: usize) -> usize {
        actor - usize::from(self.part(actor) == Part::Canceller)
    }

    fn is_child(&self, actor: usize) -> bool {
        self.part(actor) == Part::Child
    }

    fn is_server(&self, actor: usize) -> bool {
        matches!(self.part(actor), Part::Server | Part::Echo | Part::Maker | Part::Forwarder)
    }

    fn slots(&self) -> std::ops::Range<u8> {
        0..self.slots
    }

    fn files(&self) -> std::ops::Range<usize> {
        0..usize::from(self.files)
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        assert!(self.cast.len() <= ACTORS && usize::from(self.files) <= FILES);
        let mut world = World { left: self.whims, ..World::default() };
        for (actor, part) in world.actors.iter_mut().zip(self.cast) {
            let role = !matches!(part, Part::Doctor | Part::Canceller);
            *actor = Actor { calls: self.calls, role, main: Main::Idle, ..*actor };
            if *part == Part::Child {
                (actor.main, actor.role) = (Main::Gone, false);
            }
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        for me in 0..self.cast.len() {
            self.choices(world, me, &mut |kind, choice| {
                let mut turn = Turn { scope: self, world: *world, me };
                let done = turn.take(choice);
                turn.world.note_garbage();
                match done {
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
        for actor in &world.actors {
            for file in self.files().filter(|file| actor.has_blob(*file)) {
                let blob = Handle { file: file as u8, generation: actor.generations[file] };
                if !world.is_whole(blob) {
                    return Some(CHANGED);
                }
            }
        }
        for handle in world.slots.iter().flat_map(|slot| slot.handles()) {
            if !world.is_whole(handle) {
                return Some(LOST);
            }
        }
        for file in self.files().filter(|file| world.files[*file].garbage) {
            let is_interesting = world.opens_of(file).any(|open| open.interest);
            let is_held = world.actors.iter().any(|actor| actor.has_blob(file));
            if is_interesting || is_held || world.files[file].named.count > 0 {
                return Some(REVIVED);
            }
        }
        let is_too_low = |file: usize| {
            let handles = world.slots.iter().flat_map(|slot| slot.handles());
            let names = handles.filter(|handle| usize::from(handle.file) == file).count();
            let count = world.files[file].named.count;
            usize::from(count) < names || count > u8::MAX / 2
        };
        if self.files().any(is_too_low) {
            return Some(TOO_LOW);
        }
        let is_left = |file: usize| {
            let has_name = matches!(world.files[file].name, Name::New | Name::Final);
            has_name && !world.is_locked(file)
        };
        let is_stuck = |file: usize| {
            let named = world.files[file].named;
            named.count > 0 && !named.doubted && world.files[file].name == Name::Final
        };
        if !is_quiet(self, world) || world.unnoticed {
            return None;
        }
        let stuck = self.files().any(is_stuck).then_some(STUCK);
        self.files().any(is_left).then_some(LEAKS).or(stuck)
    }

    const PROMISES: &'static [Promise<Self, World>] = &[Promise {
        name: "an operation does not end although a process lives",
        by: &[Kind::Work],
        asks: |_, world| world.actors.iter().any(|actor| !actor.is_gone() && !actor.leaves()),
        keeps: is_quiet,
    }];
}

/// Whether all calls have ended, all blobs are dropped, and all dead members are recovered.
fn is_quiet(scope: &Scope, world: &World) -> bool {
    let rests = |actor: &Actor| match actor.main {
        Main::Gone => !actor.role,
        Main::Idle => {
            let has_time = |file| actor.listed[file] && is_worth_a_look(world, file);
            actor.is_at_rest() && !scope.files().any(|file| actor.has_blob(file) || has_time(file))
        }
        _ => false,
    };
    world.actors.iter().all(rests) && world.slots.iter().all(|slot| slot.word.state == State::Free)
}

fn is_worth_a_look(world: &World, file: usize) -> bool {
    world.files[file].name == Name::Final && !world.is_locked(file)
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
            Choice::GoOn if self.actor().look.is_some() => self.look(),
            Choice::GoOn if self.actor().detach.is_some() => self.detach(),
            Choice::GoOn if self.actor().sweep.is_some() => self.sweep(),
            Choice::GoOn => self.go_on(),
            Choice::Die => {
                self.world.left.deaths -= 1;
                self.vanish();
                Ok("dies")
            }
            Choice::Leave => {
                self.world.left.leaves -= 1;
                self.actor().main = Main::Leaving { file: 0 };
                self.go_on()
            }
            Choice::Exit => {
                self.vanish();
                Ok("exits")
            }
            Choice::Recover(gone) => {
                self.actor().sweep = Some(Sweep::of(gone, self.world.unnoticed));
                self.sweep()
            }
            Choice::Drop(file) => {
                self.drop_blob(usize::from(file));
                Ok("drops a blob")
            }
            Choice::DropInherited(file) => {
                self.drop_inherited(usize::from(file));
                Ok("drops a blob of its parent's")
            }
            Choice::GiveUp(file) => {
                self.actor().main = Main::GivingUp { file };
                if !self.keeps(Rule::DoubtWhenGivingUp) {
                    return self.go_on();
                }
                self.world.doubt(file);
                Ok("doubts the count of a file that it gives up")
            }
            Choice::LookAgain(file) => {
                self.actor().look = Some(Look::at(file));
                self.look()
            }
            _ => self.choose(choice),
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.scope.keeps(rule)
    }

    fn actor(&mut self) -> &mut Actor {
        &mut self.world.actors[self.me]
    }

    fn slot(&mut self, idx: u8) -> &mut world::Slot {
        &mut self.world.slots[usize::from(idx)]
    }

    fn file(&mut self, idx: u8) -> &mut world::File {
        &mut self.world.files[usize::from(idx)]
    }

    fn start_detach(&mut self, slot: u8, to: Word) {
        let seen = self.slot(slot).word;
        self.actor().detach = Some(Detach::of(slot, seen, to));
    }
}
