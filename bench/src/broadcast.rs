//! The module `broadcast`: its cases and targets, as data. How publishing is measured is in
//! `broadcast/deliveries.rs`; the ways to carry messages are in `broadcast/ours.rs`,
//! `broadcast/bare.rs` and `broadcast/peers.rs`.

mod deliveries;
mod ours;
mod bare;
mod peers;

use crate::measure::{Case, Contender, Failure, Sample};
use crate::report::Target;
use crate::reqrep::calls::Cpus;
use bare::{Pipes, Signal, Steps, Words};
use deliveries::{Pace, Task, run};
use ours::{Large, Pipework, Settings, USUAL};
use peers::Iceoryx2;

struct Definition {
    name: &'static str,
    quick: bool,
    task: Task,
    contenders: &'static [Entry],
}

/// A contender: its name in the table, and how it carries messages.
type Entry = (&'static str, Engine);

#[derive(Clone, Copy)]
enum Engine {
    Pipework(Settings),
    Iceoryx2(Iceoryx2),
    /// Whether it holds as many messages as there are.
    ZeroMq(bool),
    Pipes,
    Words(Signal),
    /// How many swaps.
    Steps(u32),
}

const PIPEWORK: &str = "pipework";
const SEES_ALL: &str = "pipework, sees all";
const MAY_LAG: &str = "pipework, may lag";
const OBSERVERS: &str = "pipework, observers";
const OBSERVED: &str = "pipework, an observer";
const ICEORYX2: &str = "iceoryx2, polling";
const EVENTS: &str = "iceoryx2, events";
const ZEROMQ: &str = "ZeroMQ PUB/SUB ipc";
const PIPES: &str = "a pipe to each";
const FUTEXES: &str = "4 futexes";
const SWAP: &str = "one swap and the copy";

const ALL: Settings = Settings { sees_all: true, ..USUAL };
const WITH_OBSERVERS: Settings = Settings { observers: true, ..USUAL };
const OBSERVING: Settings = Settings { observes: true, ..WITH_OBSERVERS };
const OVERWRITES: Iceoryx2 = Iceoryx2 { sees_all: false, in_place: false };
const WAITS: Iceoryx2 = Iceoryx2 { sees_all: true, in_place: false };

const AWAKE: [Entry; 8] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (SEES_ALL, Engine::Pipework(ALL)),
    (OBSERVERS, Engine::Pipework(WITH_OBSERVERS)),
    (OBSERVED, Engine::Pipework(OBSERVING)),
    (ICEORYX2, Engine::Iceoryx2(OVERWRITES)),
    (ZEROMQ, Engine::ZeroMq(true)),
    (PIPES, Engine::Pipes),
    ("a flag and the copy", Engine::Words(Signal::Flag)),
];

const STREAM: [Entry; 7] = [
    (SEES_ALL, Engine::Pipework(ALL)),
    (MAY_LAG, Engine::Pipework(USUAL)),
    (ICEORYX2, Engine::Iceoryx2(WAITS)),
    ("iceoryx2, overwrites", Engine::Iceoryx2(OVERWRITES)),
    (ZEROMQ, Engine::ZeroMq(true)),
    ("ZeroMQ, 1000 at most", Engine::ZeroMq(false)),
    (PIPES, Engine::Pipes),
];

const ASLEEP: [Entry; 9] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (SEES_ALL, Engine::Pipework(ALL)),
    (OBSERVERS, Engine::Pipework(WITH_OBSERVERS)),
    (OBSERVED, Engine::Pipework(OBSERVING)),
    (FUTEXES, Engine::Words(Signal::FutexEach)),
    ("1 futex", Engine::Words(Signal::FutexOfAll)),
    (EVENTS, Engine::Iceoryx2(OVERWRITES)),
    (ZEROMQ, Engine::ZeroMq(true)),
    (PIPES, Engine::Pipes),
];

const LARGE: [Entry; 6] = [
    (PIPEWORK, Engine::Pipework(Settings { large: Large::Blob, ..USUAL })),
    ("pipework, same blob", Engine::Pipework(Settings { large: Large::SameBlob, ..USUAL })),
    ("pipework, long message", Engine::Pipework(USUAL)),
    (EVENTS, Engine::Iceoryx2(Iceoryx2 { in_place: true, ..OVERWRITES })),
    ("iceoryx2, copied", Engine::Iceoryx2(OVERWRITES)),
    (PIPES, Engine::Pipes),
];

/// By four pipes it takes a second.
const LARGEST: [Entry; 5] = [LARGE[0], LARGE[1], LARGE[2], LARGE[3], LARGE[4]];

const NOBODY: [Entry; 4] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (OBSERVERS, Engine::Pipework(WITH_OBSERVERS)),
    (SWAP, Engine::Steps(1)),
    ("three swaps, the copy", Engine::Steps(3)),
];

const ONE_THREAD: [Entry; 3] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (SEES_ALL, Engine::Pipework(ALL)),
    ("iceoryx2", Engine::Iceoryx2(OVERWRITES)),
];

const MEMBERS: [Entry; 2] = [
    ("pipework, 64", Engine::Pipework(Settings { members: 64, ..USUAL })),
    ("pipework, 60,000", Engine::Pipework(Settings { members: 60_000, ..USUAL })),
];

const MEMBERS_SEE_ALL: [Entry; 2] = [
    (MEMBERS[0].0, Engine::Pipework(Settings { members: 64, ..ALL })),
    (MEMBERS[1].0, Engine::Pipework(Settings { members: 60_000, ..ALL })),
];

const fn task(bytes: usize, subscribers: usize, pace: Pace) -> Task {
    Task { bytes, subscribers, pace, cpus: Cpus::Any }
}

const fn asleep(bytes: usize, cpus: Cpus) -> Task {
    Task { cpus, ..task(bytes, 4, Pace::Turns) }
}

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "awake/64",           quick: true,  task: task(64, 1, Pace::PingPong),    contenders: &AWAKE },
    Definition { name: "awake/1k",           quick: true,  task: task(1024, 1, Pace::PingPong),  contenders: &AWAKE },
    Definition { name: "stream/64/1",        quick: true,  task: task(64, 1, Pace::Stream),      contenders: &STREAM },
    Definition { name: "stream/64/4",        quick: true,  task: task(64, 4, Pace::Stream),      contenders: &STREAM },
    Definition { name: "stream/1k/1",        quick: false, task: task(1024, 1, Pace::Stream),    contenders: &STREAM },
    Definition { name: "large/1m",           quick: true,  task: asleep(1 << 20, Cpus::Two),     contenders: &LARGE },
    Definition { name: "large/64m",          quick: true,  task: asleep(64 << 20, Cpus::Two),    contenders: &LARGEST },
    Definition { name: "asleep/64/1-cpu",    quick: true,  task: asleep(64, Cpus::One),          contenders: &ASLEEP },
    Definition { name: "asleep/64/2-cpus",   quick: true,  task: asleep(64, Cpus::Two),          contenders: &ASLEEP },
    Definition { name: "nobody/64",          quick: true,  task: task(64, 0, Pace::Stream),      contenders: &NOBODY },
    Definition { name: "nobody/1k",          quick: false, task: task(1024, 0, Pace::Stream),    contenders: &NOBODY },
    Definition { name: "1-thread/64",        quick: true,  task: task(64, 1, Pace::OneThread),   contenders: &ONE_THREAD },
    Definition { name: "flat/nobody",        quick: true,  task: task(64, 0, Pace::Stream),      contenders: &MEMBERS },
    Definition { name: "flat/sees-all",      quick: true,  task: task(64, 1, Pace::OneThread),   contenders: &MEMBERS_SEE_ALL },
];

/// The promises of the design. A publisher whose subscribers sleep is measured until all have the
/// message.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "broadcast/awake/64/vs-iceoryx2",     of: ("awake/64", PIPEWORK),    slower_of: &[("awake/64", ICEORYX2)],    at_least: 2.0 },
    Target { name: "broadcast/awake/1k/vs-iceoryx2",     of: ("awake/1k", PIPEWORK),    slower_of: &[("awake/1k", ICEORYX2)],    at_least: 2.0 },
    Target { name: "broadcast/stream/64/1/vs-iceoryx2",  of: ("stream/64/1", SEES_ALL), slower_of: &[("stream/64/1", ICEORYX2)], at_least: 2.0 },
    Target { name: "broadcast/stream/64/4/vs-iceoryx2",  of: ("stream/64/4", SEES_ALL), slower_of: &[("stream/64/4", ICEORYX2)], at_least: 2.0 },
    Target { name: "broadcast/stream/64/1/vs-zeromq",    of: ("stream/64/1", SEES_ALL), slower_of: &[("stream/64/1", ZEROMQ)],   at_least: 20.0 },
    Target { name: "broadcast/stream/64/4/vs-zeromq",    of: ("stream/64/4", SEES_ALL), slower_of: &[("stream/64/4", ZEROMQ)],   at_least: 20.0 },
    Target { name: "broadcast/large/1m/vs-iceoryx2",     of: ("large/1m", PIPEWORK),    slower_of: &[("large/1m", EVENTS)],      at_least: 1.0 },
    Target { name: "broadcast/large/64m/vs-iceoryx2",    of: ("large/64m", PIPEWORK),   slower_of: &[("large/64m", EVENTS)],     at_least: 1.0 },
    Target { name: "broadcast/large/1m/copied",          of: ("large/1m", LARGE[2].0),  slower_of: &[("large/1m", LARGE[4].0)],  at_least: 1.0 },
    Target { name: "broadcast/large/64m/copied",         of: ("large/64m", LARGE[2].0), slower_of: &[("large/64m", LARGE[4].0)], at_least: 1.0 },
    Target { name: "broadcast/asleep/1-cpu/vs-futexes",  of: ("asleep/64/1-cpu", PIPEWORK),  slower_of: &[("asleep/64/1-cpu", FUTEXES)],  at_least: 0.9 },
    Target { name: "broadcast/asleep/2-cpus/vs-futexes", of: ("asleep/64/2-cpus", PIPEWORK), slower_of: &[("asleep/64/2-cpus", FUTEXES)], at_least: 0.9 },
    Target { name: "broadcast/nobody/vs-swap",           of: ("nobody/64", PIPEWORK),   slower_of: &[("nobody/64", SWAP)],       at_least: 0.8 },
    Target { name: "broadcast/flat/nobody",              of: ("flat/nobody", MEMBERS[1].0),   slower_of: &[("flat/nobody", MEMBERS[0].0)],   at_least: 0.8 },
    Target { name: "broadcast/flat/sees-all",            of: ("flat/sees-all", MEMBERS[1].0), slower_of: &[("flat/sees-all", MEMBERS[0].0)], at_least: 0.8 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |task: Task, &(name, engine): &Entry| Contender {
        name,
        rounds_at_most: usize::MAX,
        run: engine.runner(task),
    };
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition.task, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}

impl Engine {
    fn runner(self, task: Task) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        match self {
            Engine::Pipework(settings) => run(task, move |task| Pipework::new(task, settings)),
            Engine::Iceoryx2(used) => peers::iceoryx2(task, used),
            Engine::ZeroMq(sees_all) => peers::zeromq(task, sees_all),
            Engine::Pipes => run(task, Pipes::new),
            Engine::Words(signal) => run(task, move |task| Words::new(task, signal)),
            Engine::Steps(swaps) => run(task, move |task| Steps::new(task, swaps)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::deliveries::{Channel, Publish, Receive};
    use super::*;

    /// One thread publishes three messages and receives each.
    fn carries(channel: &impl Channel) {
        let mut subscriber = channel.subscriber(0).expect("a subscriber");
        let mut publisher = channel.publisher().expect("a publisher");
        for number in 1..=3 {
            publisher.publish(number).expect("there is space");
            assert_eq!(subscriber.receive().expect("a message waits"), Some(number));
        }
    }

    #[test]
    fn every_channel_carries_the_numbers() {
        let task = task(64, 1, Pace::OneThread);
        for settings in [USUAL, ALL, WITH_OBSERVERS, OBSERVING] {
            carries(&Pipework::new(&task, settings).expect("a segment"));
        }
        for large in [Large::Copied, Large::Blob, Large::SameBlob] {
            let task = Task { bytes: 1 << 20, ..task };
            carries(&Pipework::new(&task, Settings { large, ..USUAL }).expect("a segment"));
        }
        carries(&Pipes::new(&task).expect("a pipe"));
        for signal in [Signal::Flag, Signal::FutexEach, Signal::FutexOfAll] {
            carries(&Words::new(&task, signal).expect("memory"));
        }
        let mut publisher = Steps::new(&task, 3).expect("memory").publisher().expect("a publisher");
        (1..=5000).for_each(|number| publisher.publish(number).expect("nobody else is there"));
    }

    #[test]
    fn every_target_names_existing_contenders() {
        let cases = cases();
        let has = |&(case, contender): &(&str, &str)| {
            cases.iter().any(|found| {
                found.name == case
                    && found.quick
                    && found.contenders.iter().any(|found| found.name == contender)
            })
        };
        for target in TARGETS {
            assert!(has(&target.of) && target.slower_of.iter().all(has), "{}", target.name);
        }
    }
}
