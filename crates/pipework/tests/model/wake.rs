//! The one wait on memory: a word that says whether there are sleepers, and a kernel that compares
//! the word before a thread sleeps.
//!
//! Waiters wait for one thing each; wakers bring things and wake. Steps are single accesses and
//! system calls, as in `event.rs`, sequentially consistent. A wake-up may reach any sleeper.

use crate::search::{Kind, Model, Promise, Step};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) waiters: usize,
    /// How many things each waker brings.
    pub(crate) brings: &'static [u8],
    pub(crate) deaths: u8,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

/// The rules on which the handshake relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A waiter looks once more after it has announced itself.
    LookAgain,
    /// A waker loads the word after it has changed something.
    ChangeFirst,
    /// The kernel compares the word before the waiter sleeps.
    Compare,
    /// A waker that clears the mark of sleepers also wakes the waiters that went to sleep
    /// meanwhile.
    WakeAfterClearing,
    /// Clearing the mark changes the sequence. A waiter may be about to sleep on the old word,
    /// which must not come back.
    ClearCounts,
    /// Sleep is divided into slices.
    Slices,
}

pub(crate) const RULES: [Rule; 6] = [
    Rule::LookAgain,
    Rule::ChangeFirst,
    Rule::Compare,
    Rule::WakeAfterClearing,
    Rule::ClearCounts,
    Rule::Slices,
];

const ACTORS: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    word: Word,
    things: u8,
    actors: [Actor; ACTORS],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Word {
    sequence: u8,
    parked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Actor {
    /// Dead or finished.
    #[default]
    Gone,
    // A waiter.
    Look,
    Announce,
    LookAgain {
        seen: Word,
    },
    Park {
        seen: Word,
    },
    Asleep,
    // A waker. `left` is the number of things that it brings after this one.
    Change {
        left: u8,
    },
    Load {
        left: u8,
    },
    Add {
        left: u8,
    },
    Wake {
        left: u8,
        now: Word,
    },
    Clear {
        left: u8,
        now: Word,
    },
    WakeAll {
        left: u8,
    },
    ChangeLate {
        left: u8,
    },
}

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn go_on(&self, mut world: World, me: usize) -> (World, &'static str) {
        let (next, what) = match world.actors[me] {
            Actor::Look | Actor::LookAgain { .. } if world.things > 0 => {
                world.things -= 1;
                (Actor::Gone, "takes one")
            }
            Actor::Look => (Actor::Announce, "finds nothing"),
            Actor::Announce => {
                world.word.parked = true;
                let seen = world.word;
                let next = if self.keeps(Rule::LookAgain) {
                    Actor::LookAgain { seen }
                } else {
                    Actor::Park { seen }
                };
                (next, "announces")
            }
            Actor::LookAgain { seen } => (Actor::Park { seen }, "finds nothing again"),
            Actor::Park { seen } if seen == world.word || !self.keeps(Rule::Compare) => {
                (Actor::Asleep, "falls asleep")
            }
            Actor::Park { .. } => (self.awake(), "may not sleep"),
            Actor::Change { left } if self.keeps(Rule::ChangeFirst) => {
                world.things += 1;
                (Actor::Load { left }, "brings one")
            }
            Actor::Change { left } | Actor::Load { left } => {
                let next = if world.word.parked { Actor::Add { left } } else { self.announced(left) };
                (next, "looks for sleepers")
            }
            Actor::Add { left } => {
                world.word.sequence += 1;
                (Actor::Wake { left, now: world.word }, "adds")
            }
            Actor::Wake { left, now } => (Actor::Clear { left, now }, "wakes no waiter"),
            Actor::Clear { left, now } if world.word == now => {
                world.word.parked = false;
                world.word.sequence += u8::from(self.keeps(Rule::ClearCounts));
                let next = if self.keeps(Rule::WakeAfterClearing) {
                    Actor::WakeAll { left }
                } else {
                    self.announced(left)
                };
                (next, "takes the mark away")
            }
            Actor::Clear { left, .. } => (self.announced(left), "leaves the mark"),
            Actor::WakeAll { left } => {
                let asleep = world.actors.iter_mut().filter(|actor| **actor == Actor::Asleep);
                asleep.for_each(|actor| *actor = self.awake());
                (self.announced(left), "wakes all")
            }
            Actor::ChangeLate { left } => {
                world.things += 1;
                (brings(left), "brings one")
            }
            Actor::Gone | Actor::Asleep => unreachable!("it does nothing"),
        };
        world.actors[me] = next;
        (world, what)
    }

    /// The next step of a waiter that is no longer asleep.
    fn awake(&self) -> Actor {
        if self.keeps(Rule::LookAgain) { Actor::Announce } else { Actor::Look }
    }

    /// The next step of a waker that has announced one thing and has `left` more.
    fn announced(&self, left: u8) -> Actor {
        if self.keeps(Rule::ChangeFirst) { brings(left) } else { Actor::ChangeLate { left } }
    }
}

fn brings(things: u8) -> Actor {
    things.checked_sub(1).map_or(Actor::Gone, |left| Actor::Change { left })
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let mut world = World { deaths: self.deaths, ..World::default() };
        world.actors[..self.waiters].fill(Actor::Look);
        for (actor, left) in world.actors[self.waiters..].iter_mut().zip(self.brings) {
            *actor = brings(*left);
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        let mut step = |kind, actor, (world, what)| steps.push(Step { kind, actor, what, to: Ok(world) });
        let put = |me: usize, actor: Actor| {
            let mut world = *world;
            world.actors[me] = actor;
            world
        };
        let asleep = (0..self.waiters).filter(|waiter| world.actors[*waiter] == Actor::Asleep);
        for (me, actor) in world.actors.iter().enumerate() {
            if world.deaths > 0 && *actor != Actor::Gone {
                step(Kind::Whim, me, (World { deaths: world.deaths - 1, ..put(me, Actor::Gone) }, "dies"));
            }
            match *actor {
                Actor::Gone => {}
                Actor::Asleep if self.keeps(Rule::Slices) => {
                    step(Kind::Time, me, (put(me, self.awake()), "wakes by itself"));
                }
                Actor::Asleep => {}
                Actor::Wake { left, .. } if asleep.clone().next().is_some() => {
                    asleep.clone().for_each(|sleeper| {
                        let mut world = put(me, self.announced(left));
                        world.actors[sleeper] = self.awake();
                        step(Kind::Work, me, (world, "wakes one"));
                    })
                }
                _ => step(Kind::Work, me, self.go_on(*world, me)),
            }
        }
    }

    fn fault(&self, _world: &World) -> Option<&'static str> {
        None
    }

    const PROMISES: &'static [Promise<Self, World>] = &[
        Promise {
            name: "a wake-up is lost",
            by: &[Kind::Work],
            asks: |scope, world| world.deaths == scope.deaths,
            keeps: is_served,
        },
        Promise {
            name: "a lost wake-up is never replaced",
            by: &[Kind::Work, Kind::Time],
            asks: |_, _| true,
            keeps: is_served,
        },
    ];
}

/// Whether everything was brought, and no waiter waits while something is left to take.
fn is_served(scope: &Scope, world: &World) -> bool {
    let gone = |actors: &[Actor]| actors.iter().all(|actor| *actor == Actor::Gone);
    let (waiters, wakers) = world.actors.split_at(scope.waiters);
    gone(wakers) && (world.things == 0 || gone(waiters))
}
