//! The one wait on memory: a word that tells of sleepers, and a kernel that compares it before it
//! lets anybody sleep.
//!
//! Some wait, each for one thing; others bring things and wake. Steps are single accesses and
//! system calls, as in `event.rs`, sequentially consistent. Any sleeper may be the one that is
//! woken.

use crate::search::{Kind, Model, Promise, Step};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) waiters: usize,
    /// How many things each of those who wake brings.
    pub(crate) brings: &'static [u8],
    pub(crate) deaths: u8,
    /// A rule that is left out, to see that the search finds what it is for.
    pub(crate) without: Option<Rule>,
}

/// The rules that the handshake stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Who waits looks once more after announcing it.
    LookAgain,
    /// Who has changed something loads the word after that.
    ChangeFirst,
    /// The kernel compares the word before it lets anybody sleep.
    Compare,
    /// Who has taken the mark of sleepers away wakes whoever went to sleep meanwhile.
    WakeAfterClearing,
    /// Taking the mark away changes the sequence: the word that somebody is about to sleep on must
    /// not come back.
    ClearCounts,
    /// Sleep is cut into slices.
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
    /// Dead, or done.
    #[default]
    Gone,
    // Who waits.
    Look,
    Announce,
    LookAgain {
        seen: Word,
    },
    Park {
        seen: Word,
    },
    Asleep,
    // Who wakes. `left` is what it has to bring after this.
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
                let next = if world.word.parked { Actor::Add { left } } else { self.told(left) };
                (next, "looks for sleepers")
            }
            Actor::Add { left } => {
                world.word.sequence += 1;
                (Actor::Wake { left, now: world.word }, "adds")
            }
            Actor::Wake { left, now } => (Actor::Clear { left, now }, "wakes nobody"),
            Actor::Clear { left, now } if world.word == now => {
                world.word.parked = false;
                world.word.sequence += u8::from(self.keeps(Rule::ClearCounts));
                let next = if self.keeps(Rule::WakeAfterClearing) {
                    Actor::WakeAll { left }
                } else {
                    self.told(left)
                };
                (next, "takes the mark away")
            }
            Actor::Clear { left, .. } => (self.told(left), "leaves the mark"),
            Actor::WakeAll { left } => {
                let asleep = world.actors.iter_mut().filter(|actor| **actor == Actor::Asleep);
                asleep.for_each(|actor| *actor = self.awake());
                (self.told(left), "wakes all")
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

    /// What a waiter does when it does not sleep any more.
    fn awake(&self) -> Actor {
        if self.keeps(Rule::LookAgain) { Actor::Announce } else { Actor::Look }
    }

    /// What somebody does who has told of one thing and has so many left.
    fn told(&self, left: u8) -> Actor {
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
                        let mut world = put(me, self.told(left));
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
            name: "a wake-up that died is never made good",
            by: &[Kind::Work, Kind::Time],
            asks: |_, _| true,
            keeps: is_served,
        },
    ];
}

/// All is brought, and nobody waits while there is something.
fn is_served(scope: &Scope, world: &World) -> bool {
    let gone = |actors: &[Actor]| actors.iter().all(|actor| *actor == Actor::Gone);
    let (waiters, wakers) = world.actors.split_at(scope.waiters);
    gone(wakers) && (world.things == 0 || gone(waiters))
}
