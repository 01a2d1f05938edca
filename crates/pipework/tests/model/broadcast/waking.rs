//! The wake-ups of broadcast: subscribers and observers wait at one event, publishers at the other.
//!
//! `wake.rs` has the event itself, and rules that are not left out here. A publication and the move of a
//! cursor are single steps. An observer may only read: it cannot announce itself.

use crate::search::{Kind, Model, Promise, Step};

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) cast: &'static [Part],
    /// How many messages each publisher publishes.
    pub(crate) messages: u8,
    pub(crate) deaths: u8,
    /// A rule that is left out, to check that the search finds the fault that it prevents.
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Publisher,
    /// Must see all.
    Subscriber,
    Observer,
}

/// The rules on which the handshake relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A publisher looks at the word of `published` after it has published.
    PublishFirst,
    /// A subscriber looks at the word of `room` after it has moved its cursor.
    MoveFirst,
    /// A subscriber looks again after it has announced itself,
    SubscribersLookAgain,
    /// and so does a publisher.
    PublishersLookAgain,
    /// All that wait are woken.
    WakeAll,
    /// With observers, publishers always wake.
    WakeUnseen,
    /// An observer reads the word before it looks.
    ReadBeforeLooking,
    /// Sleep is divided into slices.
    Slices,
}

pub(crate) const RULES: [Rule; 8] = [
    Rule::PublishFirst,
    Rule::MoveFirst,
    Rule::SubscribersLookAgain,
    Rule::PublishersLookAgain,
    Rule::WakeAll,
    Rule::WakeUnseen,
    Rule::ReadBeforeLooking,
    Rule::Slices,
];

/// The length of the ring.
const CELLS: u8 = 1;
const ACTORS: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    published: u8,
    /// The words of `published` and `room`.
    words: [Word; 2],
    actors: [Actor; ACTORS],
    deaths: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Word {
    sequence: u8,
    parked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Actor {
    at: At,
    /// How many messages a publisher has left, or a subscriber has received.
    count: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    /// Dead or finished.
    #[default]
    Gone,
    Look,
    Announce,
    LookAgain {
        seen: Word,
    },
    /// Without the rule: an observer has looked, and reads the word now.
    ReadLate,
    Park {
        seen: Word,
    },
    Asleep,
    Change,
    /// After the change: loads the word of the other event.
    Load,
    Add,
    Wake {
        now: Word,
    },
    Clear {
        now: Word,
    },
    WakeRest,
    /// Without the rule: the change comes last.
    ChangeLate,
}

impl Scope {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn is_publisher(&self, me: usize) -> bool {
        self.cast[me] == Part::Publisher
    }

    /// The event at which it waits.
    fn waits_at(&self, me: usize) -> usize {
        usize::from(self.is_publisher(me))
    }

    fn has_observers(&self) -> bool {
        self.cast.contains(&Part::Observer)
    }

    fn looks_again(&self, me: usize) -> bool {
        match self.cast[me] {
            Part::Publisher => self.keeps(Rule::PublishersLookAgain),
            Part::Subscriber => self.keeps(Rule::SubscribersLookAgain),
            Part::Observer => true,
        }
    }

    fn changes_first(&self, me: usize) -> bool {
        self.keeps(if self.is_publisher(me) { Rule::PublishFirst } else { Rule::MoveFirst })
    }

    /// Whether it need not wait.
    fn may_go_on(&self, world: &World, me: usize) -> bool {
        let is_behind = |(other, part): (usize, &Part)| {
            let Actor { at, count } = world.actors[other];
            *part == Part::Subscriber && at != At::Gone && world.published - count >= CELLS
        };
        match self.cast[me] {
            Part::Publisher => !self.cast.iter().enumerate().any(is_behind),
            Part::Subscriber | Part::Observer => world.actors[me].count < world.published,
        }
    }

    fn go_on(&self, mut world: World, me: usize) -> (World, &'static str) {
        let (mine, other) = (self.waits_at(me), 1 - self.waits_at(me));
        let unseen = self.is_publisher(me) && self.has_observers() && self.keeps(Rule::WakeUnseen);
        let (next, what) = match world.actors[me].at {
            At::Look | At::LookAgain { .. } if self.may_go_on(&world, me) => {
                (if self.changes_first(me) { At::Change } else { At::Load }, "need not wait")
            }
            At::Look if self.cast[me] != Part::Observer => (At::Announce, "must wait"),
            At::Look if self.keeps(Rule::ReadBeforeLooking) => {
                (At::LookAgain { seen: world.words[mine] }, "reads the word")
            }
            At::Look => (At::ReadLate, "must wait"),
            At::ReadLate => (At::Park { seen: world.words[mine] }, "reads the word late"),
            At::Announce => {
                world.words[mine].parked = true;
                let seen = world.words[mine];
                let next = if self.looks_again(me) { At::LookAgain { seen } } else { At::Park { seen } };
                (next, "announces")
            }
            At::LookAgain { seen } => (At::Park { seen }, "must wait"),
            At::Park { seen } if seen == world.words[mine] => (At::Asleep, "falls asleep"),
            At::Park { .. } => (self.awake(me), "may not sleep"),
            At::Change if !self.may_go_on(&world, me) => (At::Look, "comes too late"),
            At::Change | At::ChangeLate => {
                let late = world.actors[me].at == At::ChangeLate;
                if late && !self.may_go_on(&world, me) {
                    (At::Look, "comes too late")
                } else {
                    self.change(&mut world, me);
                    let next = match self.cast[me] {
                        Part::Observer => At::Look,
                        _ if late => self.changed(&world, me),
                        _ if unseen => At::Add,
                        _ => At::Load,
                    };
                    (next, "publishes or receives")
                }
            }
            At::Load if world.words[other].parked => (At::Add, "finds sleepers"),
            At::Load => (self.woken(&world, me), "finds no sleepers"),
            At::Add => {
                world.words[other].sequence += 1;
                (if unseen { At::WakeRest } else { At::Wake { now: world.words[other] } }, "adds")
            }
            At::Wake { now } => {
                let next =
                    if self.wake(&mut world, other) { self.woken(&world, me) } else { At::Clear { now } };
                (next, "wakes")
            }
            At::Clear { now } if world.words[other] == now => {
                world.words[other] = Word { sequence: now.sequence + 1, parked: false };
                (At::WakeRest, "takes the mark away")
            }
            At::Clear { .. } => (self.woken(&world, me), "leaves the mark"),
            At::WakeRest => {
                self.wake(&mut world, other);
                (self.woken(&world, me), "wakes all")
            }
            At::Gone | At::Asleep => unreachable!("it does nothing"),
        };
        world.actors[me].at = next;
        (world, what)
    }

    fn change(&self, world: &mut World, me: usize) {
        match self.cast[me] {
            Part::Publisher => {
                world.published += 1;
                world.actors[me].count -= 1;
            }
            Part::Subscriber => world.actors[me].count += 1,
            Part::Observer => world.actors[me].count = world.published,
        }
    }

    /// The next step after the wake-up.
    fn woken(&self, world: &World, me: usize) -> At {
        if self.changes_first(me) { self.changed(world, me) } else { At::ChangeLate }
    }

    fn changed(&self, world: &World, me: usize) -> At {
        if self.is_publisher(me) && world.actors[me].count == 0 { At::Gone } else { At::Look }
    }

    /// The next step of one that is no longer asleep.
    fn awake(&self, me: usize) -> At {
        if self.looks_again(me) && self.cast[me] != Part::Observer { At::Announce } else { At::Look }
    }

    /// Wakes those that sleep at an event; false if there were none.
    fn wake(&self, world: &mut World, event: usize) -> bool {
        let is_asleep = |me: &usize| self.waits_at(*me) == event && world.actors[*me].at == At::Asleep;
        let mut sleepers: Vec<usize> = (0..self.cast.len()).filter(is_asleep).collect();
        if !self.keeps(Rule::WakeAll) {
            sleepers.truncate(1);
        }
        sleepers.iter().for_each(|me| world.actors[*me].at = self.awake(*me));
        !sleepers.is_empty()
    }
}

impl Model for Scope {
    type State = World;

    fn initial(&self) -> World {
        let mut world = World { deaths: self.deaths, ..World::default() };
        for (actor, part) in world.actors.iter_mut().zip(self.cast) {
            let count = if *part == Part::Publisher { self.messages } else { 0 };
            *actor = Actor { at: At::Look, count };
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step<World>>) {
        let mut step = |kind, actor, (world, what)| steps.push(Step { kind, actor, what, to: Ok(world) });
        for (me, actor) in world.actors.iter().enumerate().filter(|(_, actor)| actor.at != At::Gone) {
            let put = |at| {
                let mut world = *world;
                world.actors[me].at = at;
                world
            };
            if world.deaths > 0 {
                step(Kind::Whim, me, (World { deaths: world.deaths - 1, ..put(At::Gone) }, "dies"));
            }
            match actor.at {
                At::Asleep if self.keeps(Rule::Slices) => {
                    step(Kind::Time, me, (put(self.awake(me)), "wakes by itself"));
                }
                At::Asleep => {}
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

/// Whether all is published, and all living subscribers and observers have received it.
fn is_served(scope: &Scope, world: &World) -> bool {
    scope.cast.iter().zip(&world.actors).all(|(part, actor)| match part {
        _ if actor.at == At::Gone => true,
        Part::Publisher => false,
        Part::Subscriber | Part::Observer => actor.count == world.published,
    })
}
