//! The module `blob`: memory that one process hands to another. Its cases and targets, as data; the
//! ways to hand memory over are in `blob/hands.rs` and `blob/peers.rs`.
//!
//! An operation is a request with its answer, and memory of a given size goes along with the
//! request. In `read` and `parked` the client writes a word into each page of the memory, and the
//! server reads these words and answers with their sum, which the client checks. In `hand` nobody
//! looks at a byte, so an operation counts as one byte, and the speeds of all sizes compare.

mod hands;
mod peers;

use std::time::Duration;

use crate::measure::{Case, Contender, Cost, Failure, Sample};
use crate::python;
use crate::report::Target;
use crate::reqrep::calls::{Cpus, Job, Place};
use hands::{Bare, Blobs, LongPayloads, Memfd, SameBlob, Task, run};

struct Definition {
    name: &'static str,
    quick: bool,
    bytes: usize,
    /// Whether the memory is written and read.
    reads: bool,
    /// `Any` spins on both sides. Pinned, both sides sleep.
    cpus: Cpus,
    contenders: &'static [Entry],
}

/// A contender: its name in the table, and how it hands the memory over.
type Entry = (&'static str, Engine);

#[derive(Clone, Copy)]
enum Engine {
    Blobs,
    /// In a channel as it is made by default.
    SameBlob,
    LongPayloads,
    Publish,
    Request,
    Memfd,
    Bare,
    Python,
    Limit,
}

const PIPEWORK: &str = "pipework";
const PUBLISH: &str = "iceoryx2 publish";
const REQUEST: &str = "iceoryx2 request";
const LIMIT: &str = "5 us";

const HAND: [Entry; 8] = [
    (PIPEWORK, Engine::Blobs),
    ("pipework, same blob", Engine::SameBlob),
    (PUBLISH, Engine::Publish),
    (REQUEST, Engine::Request),
    ("Unix socket, memfd", Engine::Memfd),
    ("shared_memory, Python", Engine::Python),
    ("bare shared memory", Engine::Bare),
    (LIMIT, Engine::Limit),
];

const READ: [Entry; 7] =
    [HAND[0], ("pipework, long payload", Engine::LongPayloads), HAND[2], HAND[3], HAND[4], HAND[5], HAND[6]];

const fn hand(name: &'static str, quick: bool, bytes: usize) -> Definition {
    let contenders: &[Entry] = &HAND;
    Definition { name, quick, bytes, reads: false, cpus: Cpus::Any, contenders }
}

const fn read(name: &'static str, quick: bool, bytes: usize) -> Definition {
    let contenders: &[Entry] = &READ;
    Definition { name, quick, bytes, reads: true, cpus: Cpus::Any, contenders }
}

const fn parked(name: &'static str, quick: bool, bytes: usize, cpus: Cpus) -> Definition {
    Definition { cpus, ..read(name, quick, bytes) }
}

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    hand("hand/64k", false, 64 << 10),
    hand("hand/1m",  true,  1 << 20),
    hand("hand/64m", true,  64 << 20),
    hand("hand/1g",  false, 1 << 30),
    read("read/64k", false, 64 << 10),
    read("read/1m",  true,  1 << 20),
    read("read/64m", true,  64 << 20),
    read("read/1g",  false, 1 << 30),
    parked("parked/64k/1-cpu",  true,  64 << 10, Cpus::One),
    parked("parked/64k/2-cpus", true,  64 << 10, Cpus::Two),
    parked("parked/1m/1-cpu",   false, 1 << 20,  Cpus::One),
    parked("parked/1m/2-cpus",  true,  1 << 20,  Cpus::Two),
    parked("parked/64m/2-cpus", false, 64 << 20, Cpus::Two),
];

/// The goals: a blob is handed on within 5 microseconds, whatever its size, and no slower than by
/// iceoryx2 if both sides sleep.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "blob/hand/64k/within-5us", of: ("hand/64k", PIPEWORK), slower_of: &[("hand/64k", LIMIT)], at_least: 1.0 },
    Target { name: "blob/hand/1m/within-5us",  of: ("hand/1m", PIPEWORK),  slower_of: &[("hand/1m", LIMIT)],  at_least: 1.0 },
    Target { name: "blob/hand/64m/within-5us", of: ("hand/64m", PIPEWORK), slower_of: &[("hand/64m", LIMIT)], at_least: 1.0 },
    Target { name: "blob/hand/1g/within-5us",  of: ("hand/1g", PIPEWORK),  slower_of: &[("hand/1g", LIMIT)],  at_least: 1.0 },
    Target { name: "blob/parked/64k/1-cpu/vs-publish",  of: ("parked/64k/1-cpu", PIPEWORK),  slower_of: &[("parked/64k/1-cpu", PUBLISH)],  at_least: 1.0 },
    Target { name: "blob/parked/64k/1-cpu/vs-request",  of: ("parked/64k/1-cpu", PIPEWORK),  slower_of: &[("parked/64k/1-cpu", REQUEST)],  at_least: 1.0 },
    Target { name: "blob/parked/64k/2-cpus/vs-publish", of: ("parked/64k/2-cpus", PIPEWORK), slower_of: &[("parked/64k/2-cpus", PUBLISH)], at_least: 1.0 },
    Target { name: "blob/parked/64k/2-cpus/vs-request", of: ("parked/64k/2-cpus", PIPEWORK), slower_of: &[("parked/64k/2-cpus", REQUEST)], at_least: 1.0 },
    Target { name: "blob/parked/1m/2-cpus/vs-publish",  of: ("parked/1m/2-cpus", PIPEWORK),  slower_of: &[("parked/1m/2-cpus", PUBLISH)],  at_least: 1.0 },
    Target { name: "blob/parked/1m/2-cpus/vs-request",  of: ("parked/1m/2-cpus", PIPEWORK),  slower_of: &[("parked/1m/2-cpus", REQUEST)],  at_least: 1.0 },
    Target { name: "blob/parked/64m/2-cpus/vs-publish", of: ("parked/64m/2-cpus", PIPEWORK), slower_of: &[("parked/64m/2-cpus", PUBLISH)], at_least: 1.0 },
    Target { name: "blob/parked/64m/2-cpus/vs-request", of: ("parked/64m/2-cpus", PIPEWORK), slower_of: &[("parked/64m/2-cpus", REQUEST)], at_least: 1.0 },
];

/// A gibibyte takes a second to make, so it is measured in fewer rounds.
const LARGE: usize = 1 << 30;
const ROUNDS_OF_LARGE: usize = 3;

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |definition: &'static Definition, &(name, engine): &Entry| {
        let rounds_at_most = if definition.bytes >= LARGE { ROUNDS_OF_LARGE } else { usize::MAX };
        Contender { name, rounds_at_most, run: engine.runner(definition) }
    };
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}

impl Definition {
    fn task(&self) -> Task {
        Task { bytes: self.bytes, reads: self.reads, sleeps: self.cpus != Cpus::Any }
    }

    /// The messages that go with the memory.
    fn job(&self) -> Job {
        let moved = if self.reads { self.bytes } else { 0 };
        let (place, cpus) = (Place::Processes, self.cpus);
        Job { bytes: size_of::<u64>(), moved, clients: 1, servers: 1, depth: 1, place, cpus }
    }
}

impl Engine {
    fn runner(self, of: &'static Definition) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        let (job, task) = (of.job(), of.task());
        let mut run = match self {
            Engine::Blobs => run(job, task, Blobs::new),
            Engine::SameBlob => run(job, task, SameBlob::new),
            Engine::LongPayloads => run(job, task, LongPayloads::new),
            Engine::Memfd => run(job, task, Memfd::new),
            Engine::Bare => run(job, task, Bare::new),
            Engine::Publish => peers::publish(job, task),
            Engine::Request => peers::request(job, task),
            Engine::Python => Box::new(move || by_python(of)),
            Engine::Limit => Box::new(|| Ok(limit())),
        };
        Box::new(move || {
            let sample = run()?;
            let each = if of.reads { of.bytes } else { 1 };
            Ok(Sample { bytes: sample.ops * each as u64, ..sample })
        })
    }
}

/// `multiprocessing.shared_memory`, with a pipe each way for the messages.
fn by_python(of: &Definition) -> Result<Sample, Failure> {
    let ops = match (of.reads, of.bytes) {
        (false, _) | (true, ..0x2_0000) => 2_000,
        (true, ..0x200_0000) => 500,
        (true, ..LARGE) => 20,
        (true, LARGE..) => 2,
    };
    let engine = if of.reads { "shared_memory" } else { "untouched" };
    let cpus = match of.cpus {
        Cpus::Any => 0,
        Cpus::One => 1,
        Cpus::Two => 2,
    };
    python::run("hand", engine, ops, of.bytes, cpus)
}

/// A contender that takes 5 microseconds for an operation, as the goal.
fn limit() -> Sample {
    const OPS: u32 = 20_000;
    let cost = Cost { wall: OPS * Duration::from_micros(5), ..Cost::default() };
    Sample { ops: OPS.into(), bytes: OPS.into(), wire: None, cost }
}
