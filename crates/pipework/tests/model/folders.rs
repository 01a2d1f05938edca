//! The folder of a channel without a path: who shows that the channel is open, and when another
//! channel's process may remove the folder.
//!
//! One channel, one file, one slot. Steps are single system calls. A removal looks at no lock of a
//! blob's file, and none protects the file.

use crate::search::{Kind, Model, Promise, Step};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// How many more processes open the channel, through a descriptor that is on its way.
    pub(crate) arrivals: u8,
    pub(crate) forks: u8,
    /// Deaths of processes that remove folders. All others may die anyway.
    pub(crate) deaths: u8,
    /// How many times another program removes the lock file and all folders, while no process makes
    /// a blob or removes folders. After that, a process shows itself again when it makes a blob.
    pub(crate) wipes: u8,
    pub(crate) blobs: u8,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A process locks the channel's byte when it opens the channel, not when it makes a blob.
    ShowAtOpening,
    /// A forked child has its parent's lock.
    ChildShares,
    /// A process that closes the channel does not unlock, for its children have the lock, too.
    CloseWithoutUnlocking,
    /// A process that removes a folder has the exclusive lock meanwhile.
    ExclusiveLock,
    /// A process that makes a file locks the byte again if the lock file is another one.
    ShowAgain,
}

pub(crate) const RULES: [Rule; 5] = [
    Rule::ShowAtOpening,
    Rule::ChildShares,
    Rule::CloseWithoutUnlocking,
    Rule::ExclusiveLock,
    Rule::ShowAgain,
];

const USERS: usize = 3;
const REMOVERS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Which file is the lock file: how often another program has removed one.
    locks: u8,
    users: [User; USERS],
    removers: [Remover; REMOVERS],
    has_folder: bool,
    has_file: bool,
    /// Whether a slot names the file, and a process has had the channel open since.
    is_named: bool,
    arrivals: u8,
    forks: u8,
    deaths: u8,
    blobs: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct User {
    at: At,
    /// The lock files in which it has the byte locked, a bit for each.
    shown: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    /// Dead, or without the channel.
    #[default]
    Gone,
    Opening,
    Idle,
    /// Makes a blob: the lock, the file, the folder if there is none, and the name in the slot.
    Showing,
    MakingFile,
    MakingFolder,
    Naming,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Remover {
    #[default]
    Away,
    Locking,
    Unlinking,
    RemovingFolder,
    Unlocking,
}

impl Remover {
    fn is_locked(self) -> bool {
        !matches!(self, Remover::Away | Remover::Locking)
    }
}

const GONE: &str = "a blob that a process makes is gone";

impl World {
    fn is_open(&self) -> bool {
        self.users.iter().any(|user| !matches!(user.at, At::Gone | At::Opening))
    }

    fn is_shown(&self) -> bool {
        self.users.iter().any(|user| user.shown >> self.locks & 1 == 1)
    }

    /// Without any process that has the channel, nothing is promised.
    fn settled(mut self) -> World {
        self.is_named &= if self.locks == 0 { self.is_open() } else { self.is_shown() };
        self
    }
}

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The next step of a process that has the channel, or opens it; `None` while it waits.
    fn use_on(&self, mut world: World, me: usize) -> Option<(&'static str, Result<World, &'static str>)> {
        let is_locked = self.keeps(Rule::ExclusiveLock) && world.removers.iter().any(|one| one.is_locked());
        let user = world.users[me];
        let is_shown = match self.keeps(Rule::ShowAgain) {
            true => user.shown >> world.locks & 1 == 1,
            false => user.shown > 0,
        };
        let (at, what) = match user.at {
            At::Gone => return None,
            At::Opening if !self.keeps(Rule::ShowAtOpening) => (At::Idle, "opens the channel"),
            At::Opening | At::Showing if !is_shown => {
                if is_locked {
                    return None;
                }
                world.users[me].shown |= 1 << world.locks;
                let next = if user.at == At::Opening { At::Idle } else { At::MakingFile };
                (next, "locks the byte")
            }
            At::Opening => unreachable!("it has no lock yet"),
            At::Idle => {
                world.blobs = world.blobs.checked_sub(1)?;
                (At::Showing, "begins a blob")
            }
            At::Showing => (At::MakingFile, "has the lock"),
            At::MakingFile if world.has_folder => {
                world.has_file = true;
                (At::Naming, "makes the file")
            }
            At::MakingFile => (At::MakingFolder, "finds no folder"),
            At::MakingFolder => {
                world.has_folder = true;
                (At::Showing, "makes the folder")
            }
            At::Naming if !world.has_file => return Some(("names the file", Err(GONE))),
            At::Naming => {
                world.is_named = true;
                (At::Idle, "names the file")
            }
        };
        world.users[me].at = at;
        Some((what, Ok(world)))
    }

    fn remove_on(&self, mut world: World, me: usize) -> (&'static str, World) {
        let others = world.removers.iter().enumerate().any(|(who, one)| who != me && one.is_locked());
        let (next, what) = match world.removers[me] {
            Remover::Away => unreachable!("it does nothing"),
            Remover::Locking if world.is_shown() || others => (Remover::Away, "finds the byte locked"),
            Remover::Locking => (Remover::Unlinking, "locks the byte for itself"),
            Remover::Unlinking => {
                world.has_file = false;
                (Remover::RemovingFolder, "unlinks the file")
            }
            Remover::RemovingFolder => {
                world.has_folder &= world.has_file;
                (Remover::Unlocking, "removes the folder")
            }
            Remover::Unlocking => (Remover::Away, "unlocks"),
        };
        world.removers[me] = next;
        (what, world)
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let Scope { arrivals, forks, deaths, blobs, .. } = *self;
        let mut world = World { arrivals, forks, deaths, blobs, ..World::default() };
        world.users[0].at = At::Opening;
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        let mut step = |kind, actor, what, to| steps.push(Step { kind, actor, what, to });
        let free = world.users.iter().position(|user| *user == User::default());
        for (me, user) in world.users.iter().enumerate().filter(|(_, user)| user.at != At::Gone) {
            let mut without = *world;
            without.users[me] = User::default();
            step(Kind::Whim, me, "dies", Ok(without.settled()));
            if user.at == At::Idle && !self.keeps(Rule::CloseWithoutUnlocking) {
                // It unlocks an open file that its parent and children share.
                without.users.iter_mut().for_each(|other| other.shown &= !user.shown);
                step(Kind::Whim, me, "closes", Ok(without.settled()));
            }
            if let Some((what, to)) = self.use_on(*world, me) {
                step(Kind::Work, me, what, to);
            }
            if let (At::Idle, 1.., Some(free)) = (user.at, world.forks, free) {
                let mut with = World { forks: world.forks - 1, ..*world };
                let shown = if self.keeps(Rule::ChildShares) { user.shown } else { 0 };
                with.users[free] = User { at: At::Idle, shown };
                step(Kind::Whim, me, "forks", Ok(with));
            }
        }
        if let (1.., Some(free)) = (world.arrivals, free) {
            let mut with = World { arrivals: world.arrivals - 1, ..*world };
            with.users[free].at = At::Opening;
            step(Kind::Whim, free, "receives the descriptor", Ok(with));
        }
        for (me, remover) in world.removers.iter().enumerate() {
            let mut with = *world;
            if *remover == Remover::Away {
                if world.has_folder {
                    with.removers[me] = Remover::Locking;
                    step(Kind::Time, USERS + me, "finds the folder", Ok(with));
                }
                continue;
            }
            let (what, to) = self.remove_on(*world, me);
            step(Kind::Work, USERS + me, what, Ok(to));
            if world.deaths > 0 {
                with.deaths -= 1;
                with.removers[me] = Remover::Away;
                step(Kind::Whim, USERS + me, "dies", Ok(with));
            }
        }
        let is_quiet = world.users.iter().all(|user| matches!(user.at, At::Gone | At::Opening | At::Idle))
            && world.removers.iter().all(|one| *one == Remover::Away);
        if world.locks < self.wipes && is_quiet {
            let (locks, has_folder, has_file, is_named) = (world.locks + 1, false, false, false);
            let wiped = World { locks, has_folder, has_file, is_named, ..*world };
            step(Kind::Whim, USERS + REMOVERS, "removes all", Ok(wiped));
        }
    }

    fn fault(&self, world: &World) -> Option<&'static str> {
        (world.is_named && !world.has_file).then_some("a blob that a message names is gone")
    }

    const PROMISES: &'static [Promise<Self, World>] = &[
        Promise {
            name: "the folder of a dead channel is left behind",
            by: &[Kind::Work, Kind::Time],
            asks: |_, world| world.users == [User::default(); USERS],
            keeps: |_, world| !world.has_folder,
        },
        Promise {
            name: "a process can never open the channel",
            by: &[Kind::Work],
            asks: |_, _| true,
            keeps: |_, world| world.users.iter().all(|user| user.at != At::Opening),
        },
    ];
}
