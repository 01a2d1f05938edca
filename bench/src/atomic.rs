//! The module `atomic`: its cases and targets, as data. The engines that they name stand in
//! `atomic/engines.rs`.
//!
//! All contenders of a case move the same records, except Atomic::Pipe (see `ORIGINAL_BYTES`) and
//! the contenders of bare zstd, which move nothing. Pipes keep their usual 64 KiB.

mod engines;

use crate::corpus::Corpus;
use crate::measure::{Case, Contender};
use crate::report::Target;
use engines::{Block, Engine, Job};

/// Records in one call of `send_many`.
const BATCH: usize = 64;

/// A case: the corpus to move, how often to move it, and the contenders.
struct Definition {
    name: &'static str,
    quick: bool,
    corpus: Corpus,
    /// The corpus is moved this many times, so that a run is long enough to be timed.
    passes: usize,
    contenders: &'static [Entry],
}

/// A contender: its name in the table, the number of writer processes, and the engine.
type Entry = (&'static str, usize, Engine);

const SEND: &str = "pipework send";
const PLAIN: &str = "pipework plain mode";
const C: &str = "the same, C";
const SEND_MANY: &str = "pipework send_many";
const BARE: &str = "bare pipe, 4096 B";
const ORIGINAL: &str = "Atomic::Pipe (Perl)";
const COMPRESS: &str = "compress alone";
const DECOMPRESS: &str = "decompress alone";

/// Records without compression, beside every other way to move them.
const fn plain(writers: usize) -> [Entry; 8] {
    [
        (SEND, writers, Engine::Pipework { mixed: true, level: None, batch: 1 }),
        (SEND_MANY, writers, Engine::Pipework { mixed: true, level: None, batch: BATCH }),
        (PLAIN, writers, Engine::Pipework { mixed: false, level: None, batch: 1 }),
        (C, writers, Engine::C),
        (BARE, writers, Engine::Bare { block: Block::Bytes(4096), packets: false }),
        ("bare pipe, records", writers, Engine::Bare { block: Block::Record, packets: false }),
        ("SOCK_SEQPACKET", writers, Engine::Bare { block: Block::Record, packets: true }),
        ("pipe under flock", writers, Engine::Locked),
    ]
}

/// Records as zstd frames, beside the two halves of the work.
const fn zstd(level: i32, writers: usize) -> [Entry; 5] {
    [
        (SEND, writers, Engine::Pipework { mixed: true, level: Some(level), batch: 1 }),
        (SEND_MANY, writers, Engine::Pipework { mixed: true, level: Some(level), batch: BATCH }),
        (COMPRESS, 1, Engine::Compress { level }),
        (DECOMPRESS, 1, Engine::Decompress { level }),
        ("both, without a pipe", 1, Engine::Halves { level }),
    ]
}

/// Beside the Perl module that defined the wire format.
const SEED: [Entry; 4] = [
    (SEND, 1, Engine::Pipework { mixed: true, level: None, batch: 1 }),
    (ORIGINAL, 1, Engine::Original { level: None }),
    ("pipework send, zstd 3", 1, Engine::Pipework { mixed: true, level: Some(3), batch: 1 }),
    ("Atomic::Pipe, zstd 3", 1, Engine::Original { level: Some(3) }),
];

/// The same work by one writer and by many.
const CROWD: [Entry; 4] = [
    ("pipework, 1 writer", 1, Engine::Pipework { mixed: true, level: None, batch: 1 }),
    ("pipework, 64 writers", 64, Engine::Pipework { mixed: true, level: None, batch: 1 }),
    ("bare pipe, 1 writer", 1, Engine::Bare { block: Block::Bytes(4096), packets: false }),
    ("bare pipe, 64 writers", 64, Engine::Bare { block: Block::Bytes(4096), packets: false }),
];

/// Parses the same messages with few and with many of them buffered in the reader.
const WAITING: [Entry; 2] = [
    ("pipework, 10,000", 1, Engine::Waiting { at_once: 10_000 }),
    ("pipework, 1,000,000", 1, Engine::Waiting { at_once: 1_000_000 }),
];

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "json-5k/plain/1w",   quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &plain(1) },
    Definition { name: "json-5k/plain/2w",   quick: false, corpus: Corpus::Json5k,  passes: 1, contenders: &plain(2) },
    Definition { name: "json-5k/plain/4w",   quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &plain(4) },
    Definition { name: "json-5k/plain/8w",   quick: false, corpus: Corpus::Json5k,  passes: 1, contenders: &plain(8) },
    Definition { name: "json-890/plain/1w",  quick: true,  corpus: Corpus::Json890, passes: 5, contenders: &plain(1) },
    Definition { name: "json-890/plain/2w",  quick: false, corpus: Corpus::Json890, passes: 5, contenders: &plain(2) },
    Definition { name: "json-890/plain/4w",  quick: true,  corpus: Corpus::Json890, passes: 5, contenders: &plain(4) },
    Definition { name: "json-890/plain/8w",  quick: false, corpus: Corpus::Json890, passes: 5, contenders: &plain(8) },
    Definition { name: "json-5k/seed",       quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &SEED },
    Definition { name: "json-890/seed",      quick: false, corpus: Corpus::Json890, passes: 5, contenders: &SEED },
    Definition { name: "json-5k/zstd-3/1w",  quick: false, corpus: Corpus::Json5k,  passes: 1, contenders: &zstd(-3, 1) },
    Definition { name: "json-5k/zstd1/1w",   quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &zstd(1, 1) },
    Definition { name: "json-5k/zstd1/4w",   quick: false, corpus: Corpus::Json5k,  passes: 1, contenders: &zstd(1, 4) },
    Definition { name: "json-5k/zstd3/1w",   quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &zstd(3, 1) },
    Definition { name: "json-5k/zstd7/1w",   quick: false, corpus: Corpus::Json5k,  passes: 1, contenders: &zstd(7, 1) },
    Definition { name: "json-890/zstd-3/1w", quick: false, corpus: Corpus::Json890, passes: 2, contenders: &zstd(-3, 1) },
    Definition { name: "json-890/zstd1/1w",  quick: true,  corpus: Corpus::Json890, passes: 2, contenders: &zstd(1, 1) },
    Definition { name: "json-890/zstd1/4w",  quick: false, corpus: Corpus::Json890, passes: 2, contenders: &zstd(1, 4) },
    Definition { name: "json-890/zstd3/1w",  quick: false, corpus: Corpus::Json890, passes: 2, contenders: &zstd(3, 1) },
    Definition { name: "json-890/zstd7/1w",  quick: false, corpus: Corpus::Json890, passes: 1, contenders: &zstd(7, 1) },
    Definition { name: "json-5k/crowd",      quick: true,  corpus: Corpus::Json5k,  passes: 1, contenders: &CROWD },
    Definition { name: "json-890/crowd",     quick: true,  corpus: Corpus::Json890, passes: 5, contenders: &CROWD },
    Definition { name: "waiting",            quick: true,  corpus: Corpus::Json890, passes: 1, contenders: &WAITING },
];

/// What the design promises; the last four say that cost stays flat as work grows.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "atomic/json-5k/plain/vs-bare-pipe",    of: ("json-5k/plain/1w", SEND),       slower_of: &[("json-5k/plain/1w", BARE)],     at_least: 0.7 },
    Target { name: "atomic/json-5k/plain/c-vs-rust",       of: ("json-5k/plain/1w", C),          slower_of: &[("json-5k/plain/1w", PLAIN)],    at_least: 0.95 },
    Target { name: "atomic/json-5k/plain/vs-atomic-pipe",  of: ("json-5k/seed", SEND),           slower_of: &[("json-5k/seed", ORIGINAL)],     at_least: 100.0 },
    Target { name: "atomic/json-890/batched/vs-bare-pipe", of: ("json-890/plain/1w", SEND_MANY), slower_of: &[("json-890/plain/1w", BARE)],    at_least: 0.6 },
    Target { name: "atomic/json-5k/zstd1/vs-slower-half",  of: ("json-5k/zstd1/1w", SEND),       slower_of: &[("json-5k/zstd1/1w", COMPRESS), ("json-5k/zstd1/1w", DECOMPRESS)], at_least: 0.85 },
    Target { name: "atomic/json-5k/zstd3/vs-slower-half",  of: ("json-5k/zstd3/1w", SEND),       slower_of: &[("json-5k/zstd3/1w", COMPRESS), ("json-5k/zstd3/1w", DECOMPRESS)], at_least: 0.85 },
    Target { name: "atomic/flat/million-waiting",          of: ("waiting", "pipework, 1,000,000"), slower_of: &[("waiting", "pipework, 10,000")],  at_least: 0.8 },
    Target { name: "atomic/flat/json-5k/64-writers",       of: ("json-5k/crowd", "pipework, 64 writers"),  slower_of: &[("json-5k/crowd", "pipework, 1 writer")],  at_least: 0.8 },
    Target { name: "atomic/flat/json-890/64-writers",      of: ("json-890/crowd", "pipework, 64 writers"), slower_of: &[("json-890/crowd", "pipework, 1 writer")], at_least: 0.8 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |definition: &'static Definition, &(name, writers, engine): &Entry| {
        let job = Job { corpus: definition.corpus, passes: definition.passes, writers };
        let rounds_at_most = if matches!(engine, Engine::Original { .. }) { 3 } else { usize::MAX };
        Contender { name, rounds_at_most, run: engine.runner(job) }
    };
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}
