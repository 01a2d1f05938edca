//! The state: files with their locks, slots with their handles, and the private state of each
//! process.

use super::detach::Detach;
use super::look::{Look, Sweep};
use std::fmt;

use super::{Main, ReuseAt, Rule, Scope};

/// The most files that a scope has.
pub(crate) const FILES: usize = 2;
pub(crate) const SLOTS: usize = 2;
pub(crate) const ACTORS: usize = 4;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) files: [File; FILES],
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) actors: [Actor; ACTORS],
    /// The open files of each actor.
    pub(crate) opens: [[Open; FILES]; ACTORS],
    /// Open files that only the child still has.
    pub(crate) inherited: [Open; FILES],
    pub(crate) left: super::Whims,
    /// A process that was not a member has died with a lock. Only a later sweep can find its files.
    pub(crate) unnoticed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct File {
    pub(crate) name: Name,
    /// 0: freed, or not written yet.
    pub(crate) generation: u8,
    /// The generation that the data was written for.
    pub(crate) data: u8,
    pub(crate) named: Named,
    /// It was garbage in some state, so it must never be used again.
    pub(crate) garbage: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    #[default]
    None,
    /// The temporary name that a file has first where the file system has no files without a name.
    New,
    Final,
    Unlinked,
}

/// The word `named`. Its version is left out: instead, a change marks the processes that have read
/// the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    pub(crate) count: u8,
    pub(crate) doubted: bool,
}

/// The value of `named` that a process has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) named: Named,
    /// Whether the word has changed since.
    pub(crate) changed: bool,
}

/// The locks of an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Open {
    /// Byte 0.
    pub(crate) hold: bool,
    /// Byte 1.
    pub(crate) interest: bool,
    /// The child has it open as well.
    pub(crate) shared: bool,
}

impl Open {
    pub(crate) fn is_locked(self) -> bool {
        self.hold || self.interest
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) file: u8,
    pub(crate) generation: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) word: Word,
    pub(crate) client: u8,
    pub(crate) server: u8,
    pub(crate) request: Option<Handle>,
    pub(crate) reply: Option<Handle>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    pub(crate) generation: u8,
    /// An actor, if the state is not FREE.
    pub(crate) owner: u8,
    pub(crate) begun: bool,
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
    Failed,
    Died,
    Part,
    /// FILL with the waiter bit.
    Held,
}

impl State {
    /// Whether the slot names the handles of its request.
    pub(crate) fn names_request(self) -> bool {
        !matches!(self, State::Free | State::Fill)
    }

    pub(crate) fn names_reply(self) -> bool {
        matches!(self, State::Part | State::Answered | State::Failed | State::Held)
    }
}

impl Word {
    pub(crate) fn with(self, state: State, owner: u8) -> Word {
        Word { state, owner, ..self }
    }

    pub(crate) fn freed(self) -> Word {
        Word { generation: self.generation, ..Word::default() }
    }

    pub(crate) fn is(self, state: State, owner: usize) -> bool {
        self.state == state && usize::from(self.owner) == owner
    }
}

impl Slot {
    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle> {
        let request = self.request.filter(|_| self.word.state.names_request());
        let reply = self.reply.filter(|_| self.word.state.names_reply());
        request.into_iter().chain(reply)
    }

    /// The word after the next step of a recovery of `dead`, if the slot names it.
    pub(crate) fn without(&self, dead: u8, scope: &Scope) -> Option<Word> {
        let Slot { word, client, server, .. } = *self;
        let owned = word.owner == dead;
        match word.state {
            State::Free => None,
            State::Taken if owned && !word.begun && word.delivery < scope.redeliveries => {
                Some(Word { delivery: word.delivery + 1, ..word.with(State::Sent, client) })
            }
            State::Taken if owned => Some(word.with(State::Died, client)),
            State::Taken => (client == dead).then(|| word.with(State::Dropped, word.owner)),
            State::Part if owned => Some(word.with(State::Dropped, server)),
            State::Part => (server == dead).then(|| word.with(State::Died, client)),
            _ => owned.then(|| word.freed()),
        }
    }
}

/// Which handles a slot no longer names when its word changes: those of its request, and those of
/// its reply.
pub(crate) fn leave(from: State, to: State, scope: &Scope) -> (bool, bool) {
    let trusts_all = !scope.keeps(Rule::FillIsNotTrusted);
    let request = to == State::Free && (from.names_request() || trusts_all);
    let stays = to == State::Held || to == State::Failed && scope.keeps(Rule::FailureKeepsThePart);
    (request, from.names_reply() && !stays)
}

/// A process.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    pub(crate) main: Main,
    /// Operations in progress, the innermost last: a recovery, a step that detaches handles, a
    /// look.
    pub(crate) sweep: Option<Sweep>,
    pub(crate) detach: Option<Detach>,
    pub(crate) look: Option<Look>,
    /// Whether it is a member, or was one and has not been recovered.
    pub(crate) role: bool,
    pub(crate) calls: u8,
    /// The generation of its call.
    pub(crate) call: u8,
    /// The slot of a request that it serves.
    pub(crate) serves: Option<u8>,
    /// How many blobs of each file the program has, and of which generation.
    pub(crate) blobs: [u8; FILES],
    pub(crate) generations: [u8; FILES],
    /// Files that it has locked for a part that it is about to take.
    pub(crate) borrowed: [bool; FILES],
    /// Whether the blobs existed at a fork.
    pub(crate) forked: [bool; FILES],
    /// Blobs that a child has inherited from its parent.
    pub(crate) inherits: [bool; FILES],
    /// Files that must be looked at again.
    pub(crate) listed: [bool; FILES],
    /// Files whose interest was given up, when a rule is left out.
    pub(crate) given_up: [bool; FILES],
}

impl Actor {
    pub(crate) fn has_blob(&self, file: usize) -> bool {
        self.blobs[file] > 0 || self.inherits[file]
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.main == Main::Gone
    }

    /// Whether it will do nothing more for others.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self.main, Main::Leaving { .. })
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.sweep.is_none() && self.detach.is_none() && self.look.is_none()
    }
}

impl World {
    /// Changes the word `named`, and with it its version. For a file that is gone that has no effect.
    pub(crate) fn change_named(&mut self, file: u8, change: impl FnOnce(&mut Named)) {
        let it = &mut self.files[usize::from(file)];
        if it.name == Name::Unlinked {
            return;
        }
        change(&mut it.named);
        for actor in &mut self.actors {
            if let Some(look) = &mut actor.look {
                look.note_change(file);
            }
            if let Some(Seen { changed, .. }) =
                actor.detach.as_mut().and_then(|detach| detach.named[usize::from(file)].as_mut())
            {
                *changed = true;
            }
            if let Main::Reuse { file: reused, changed, at: ReuseAt::Ask | ReuseAt::ReadAgain } =
                &mut actor.main
                && *reused == file
            {
                *changed = true;
            }
        }
    }

    pub(crate) fn doubt(&mut self, file: u8) {
        self.change_named(file, |named| named.doubted = true);
    }

    /// All open files of a file.
    pub(crate) fn opens_of(&self, file: usize) -> impl Iterator<Item = Open> {
        self.opens.iter().map(move |opens| opens[file]).chain([self.inherited[file]])
    }

    pub(crate) fn is_locked(&self, file: usize) -> bool {
        self.opens_of(file).any(Open::is_locked)
    }

    pub(crate) fn is_held(&self, file: usize) -> bool {
        self.opens_of(file).any(|open| open.hold)
    }

    /// An actor closes a file.
    pub(crate) fn close(&mut self, actor: usize, file: usize) {
        let open = std::mem::take(&mut self.opens[actor][file]);
        if open.shared {
            self.inherited[file] = Open { shared: false, ..open };
        }
    }

    /// The child closes a file of its parent.
    pub(crate) fn close_inherited(&mut self, file: usize) {
        self.inherited[file] = Open::default();
        self.opens.iter_mut().for_each(|opens| opens[file].shared = false);
    }

    /// Whether a file still is the one that a handle or blob of that generation names.
    pub(crate) fn is_whole(&self, Handle { file, generation }: Handle) -> bool {
        let file = &self.files[usize::from(file)];
        file.name == Name::Final && file.generation == generation && file.data == generation
    }

    /// Records which files are garbage now; they must stay so.
    pub(crate) fn note_garbage(&mut self) {
        for file in 0..FILES {
            let is_unused = self.files[file].named.count == 0 && !self.is_locked(file);
            self.files[file].garbage |= self.files[file].name == Name::Final && is_unused;
        }
    }
}

/// Shows only what differs from the initial state.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_list();
        let opens = self.opens.iter().flatten().chain(&self.inherited);
        for (file, it) in self.files.iter().enumerate().filter(|(_, it)| **it != File::default()) {
            let File { name, generation, data, named: Named { count, doubted }, garbage } = it;
            let doubted = if *doubted { " or fewer" } else { "" };
            let garbage = if *garbage { " garbage" } else { "" };
            set.entry(&format_args!(
                "file {file} {name:?} {generation}/{data} named {count}{doubted}{garbage}"
            ));
        }
        for (idx, open) in opens.enumerate().filter(|(_, open)| **open != Open::default()) {
            let (actor, file) = (idx / FILES, idx % FILES);
            set.entry(&format_args!("{actor} has file {file} open: {open:?}"));
        }
        set.entries(self.slots.iter().filter(|slot| **slot != Slot::default()));
        set.entries(self.actors.iter().enumerate().filter(|(_, actor)| **actor != Actor::default()));
        set.entry(&self.left).finish()
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.main)?;
        self.sweep.iter().try_for_each(|it| write!(f, " {it:?}"))?;
        self.detach.iter().try_for_each(|it| write!(f, " {it:?}"))?;
        self.look.iter().try_for_each(|it| write!(f, " {it:?}"))?;
        let flags = [self.borrowed, self.forked, self.inherits, self.listed, self.given_up];
        let names = ["borrowed", "forked", "inherits", "listed", "given up"];
        let set = names.iter().zip(flags).filter(|(_, flags)| *flags != [false; FILES]);
        set.into_iter().try_for_each(|it| write!(f, " {it:?}"))?;
        let Actor { role, calls, call, serves, blobs, generations, .. } = self;
        write!(
            f,
            " role {role} calls {calls} call {call} serves {serves:?} blobs {blobs:?} of {generations:?}"
        )
    }
}
