//! The module `pipe`: its cases and targets, as data. The engines that they name stand in
//! `pipe/engines.rs`.
//!
//! All contenders of a case move the same number of bytes in blocks of the same size, with the same
//! capacity between the two sides. An operation is one block written and read.

mod engines;
#[allow(dead_code, reason = "it is an example, with a main function of its own")]
#[path = "../../crates/pipework/examples/json_body.rs"]
mod json_body;

use crate::measure::{Case, Contender, Failure, Sample, alone};
use crate::report::Target;
use engines::{Engine, Job, Sides};

const KIB: usize = 1024;
/// The most that one run of a contender moves, in bytes and in blocks.
const BYTES: usize = 256 << 20;
const BLOCKS: usize = 500_000;
/// The number of blocks if each one waits for the one before.
const WAKES: usize = 32 * 300;
/// Integers in the document of the HTTP case; the example has ten million.
const INTEGERS: u64 = 500_000;

/// A case: the two sides, the size of their blocks, and the capacity between them.
struct Definition {
    name: &'static str,
    quick: bool,
    sides: Sides,
    block: usize,
    capacity: usize,
    contenders: &'static [(&'static str, Engine)],
}

const OURS: &str = "pipework";
const KERNEL: &str = "kernel pipe";
const RTRB: &str = "rtrb";
const DUPLEX: &str = "tokio duplex";

const ALONE: &[(&str, Engine)] =
    &[(OURS, Engine::Pipework), (RTRB, Engine::Rtrb), ("ringbuf", Engine::Ringbuf), (KERNEL, Engine::Kernel)];

/// The rings only spin, and each thread of the duplex runs a task: neither can do otherwise.
const THREADS: &[(&str, Engine)] = &[
    (OURS, Engine::Pipework),
    (RTRB, Engine::Rtrb),
    ("ringbuf", Engine::Ringbuf),
    (KERNEL, Engine::Kernel),
    (DUPLEX, Engine::Duplex),
];

const TASKS: &[(&str, Engine)] =
    &[(OURS, Engine::Pipework), (DUPLEX, Engine::Duplex), ("piper", Engine::Piper)];

/// Pipes between a thread and a task, and pipes whose sides sleep.
const MIXED: &[(&str, Engine)] = &[(OURS, Engine::Pipework), (KERNEL, Engine::Kernel)];

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "one/8",         quick: true,  sides: Sides::OneThread,  block: 8,        capacity: 64 * KIB,   contenders: ALONE },
    Definition { name: "one/64",        quick: false, sides: Sides::OneThread,  block: 64,       capacity: 64 * KIB,   contenders: ALONE },
    Definition { name: "one/1k",        quick: true,  sides: Sides::OneThread,  block: KIB,      capacity: 64 * KIB,   contenders: ALONE },
    Definition { name: "one/8k",        quick: false, sides: Sides::OneThread,  block: 8 * KIB,  capacity: 64 * KIB,   contenders: ALONE },
    Definition { name: "one/64k",       quick: false, sides: Sides::OneThread,  block: 64 * KIB, capacity: 64 * KIB,   contenders: ALONE },
    Definition { name: "two/8",         quick: true,  sides: Sides::TwoThreads, block: 8,        capacity: 64 * KIB,   contenders: THREADS },
    Definition { name: "two/64",        quick: false, sides: Sides::TwoThreads, block: 64,       capacity: 64 * KIB,   contenders: THREADS },
    Definition { name: "two/1k",        quick: true,  sides: Sides::TwoThreads, block: KIB,      capacity: 64 * KIB,   contenders: THREADS },
    Definition { name: "two/8k",        quick: true,  sides: Sides::TwoThreads, block: 8 * KIB,  capacity: 64 * KIB,   contenders: THREADS },
    Definition { name: "two/64k",       quick: true,  sides: Sides::TwoThreads, block: 64 * KIB, capacity: 64 * KIB,   contenders: THREADS },
    Definition { name: "two/1k/cap-4k", quick: false, sides: Sides::TwoThreads, block: KIB,      capacity: 4 * KIB,    contenders: THREADS },
    Definition { name: "two/1k/cap-1m", quick: false, sides: Sides::TwoThreads, block: KIB,      capacity: 1024 * KIB, contenders: THREADS },
    Definition { name: "two/64k/cap-1m", quick: false, sides: Sides::TwoThreads, block: 64 * KIB, capacity: 1024 * KIB, contenders: THREADS },
    Definition { name: "tasks/8",       quick: false, sides: Sides::TwoTasks,   block: 8,        capacity: 64 * KIB,   contenders: TASKS },
    Definition { name: "tasks/1k",      quick: true,  sides: Sides::TwoTasks,   block: KIB,      capacity: 64 * KIB,   contenders: TASKS },
    Definition { name: "tasks/64k",     quick: false, sides: Sides::TwoTasks,   block: 64 * KIB, capacity: 64 * KIB,   contenders: TASKS },
    Definition { name: "tasks/1k/cap-4k", quick: false, sides: Sides::TwoTasks, block: KIB,      capacity: 4 * KIB,    contenders: TASKS },
    Definition { name: "join/1k",       quick: true,  sides: Sides::OneWorker,  block: KIB,      capacity: 64 * KIB,   contenders: TASKS },
    Definition { name: "join/1k/cap-4k", quick: false, sides: Sides::OneWorker, block: KIB,      capacity: 4 * KIB,    contenders: TASKS },
    Definition { name: "asleep/8",      quick: true,  sides: Sides::Asleep(1),  block: 8,        capacity: 64 * KIB,   contenders: MIXED },
    Definition { name: "asleep/8/32",   quick: true,  sides: Sides::Asleep(32), block: 8,        capacity: 64 * KIB,   contenders: MIXED },
    Definition { name: "mixed/1k",      quick: true,  sides: Sides::Mixed,      block: KIB,      capacity: 64 * KIB,   contenders: MIXED },
];

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "pipe/one/8/vs-kernel",    of: ("one/8", OURS),   slower_of: &[("one/8", KERNEL)],   at_least: 15.0 },
    Target { name: "pipe/one/8/vs-rtrb",      of: ("one/8", OURS),   slower_of: &[("one/8", RTRB)],     at_least: 0.9 },
    Target { name: "pipe/two/1k/vs-rtrb",     of: ("two/1k", OURS),  slower_of: &[("two/1k", RTRB)],    at_least: 0.9 },
    Target { name: "pipe/two/8k/vs-rtrb",     of: ("two/8k", OURS),  slower_of: &[("two/8k", RTRB)],    at_least: 0.9 },
    Target { name: "pipe/two/64k/vs-rtrb",    of: ("two/64k", OURS), slower_of: &[("two/64k", RTRB)],   at_least: 0.9 },
    Target { name: "pipe/two/64k/cap-1m/vs-rtrb", of: ("two/64k/cap-1m", OURS), slower_of: &[("two/64k/cap-1m", RTRB)], at_least: 0.9 },
    Target { name: "pipe/two/1k/vs-kernel",   of: ("two/1k", OURS),  slower_of: &[("two/1k", KERNEL)],  at_least: 3.0 },
    Target { name: "pipe/two/1k/vs-duplex",   of: ("two/1k", OURS),  slower_of: &[("two/1k", DUPLEX)],  at_least: 3.0 },
    Target { name: "pipe/two/8k/vs-kernel",   of: ("two/8k", OURS),  slower_of: &[("two/8k", KERNEL)],  at_least: 3.0 },
    Target { name: "pipe/two/8k/vs-duplex",   of: ("two/8k", OURS),  slower_of: &[("two/8k", DUPLEX)],  at_least: 3.0 },
    Target { name: "pipe/two/64k/vs-kernel",  of: ("two/64k", OURS), slower_of: &[("two/64k", KERNEL)], at_least: 3.0 },
    Target { name: "pipe/two/64k/vs-duplex",  of: ("two/64k", OURS), slower_of: &[("two/64k", DUPLEX)], at_least: 3.0 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |definition: &Definition, (name, engine): (&'static str, Engine)| {
        let &Definition { sides, block, capacity, .. } = definition;
        let blocks = if matches!(sides, Sides::Asleep(_)) { WAKES } else { BLOCKS };
        let job = Job { sides, block, capacity, blocks: (BYTES / block).min(blocks) };
        Contender { name, rounds_at_most: usize::MAX, run: Box::new(move || engine.run(job)) }
    };
    let case = |definition: &Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition, *entry)).collect(),
    };
    let mut cases: Vec<Case> = DEFINITIONS.iter().map(case).collect();
    cases.push(Case { name: "json-body", quick: true, contenders: documents() });
    cases
}

/// The document of the example `json_body` as the body of a request, server included. An operation
/// is an integer.
fn documents() -> Vec<Contender> {
    let digits: u64 = (0..INTEGERS).map(|number| number.max(1).ilog10() as u64 + 1).sum();
    let contender = |(name, over): (&'static str, json_body::Upload)| Contender {
        name,
        rounds_at_most: usize::MAX,
        run: Box::new(move || {
            let ((), cost) = alone(|| over(INTEGERS).map_err(|why| why as Failure))?;
            // A comma behind each, and brackets around all.
            Ok(Sample { ops: INTEGERS, bytes: digits + INTEGERS + 1, wire: None, cost })
        }),
    };
    json_body::OVER.into_iter().map(contender).collect()
}
