//! Calls across two bridges, beside a bare request of one NATS client to another, and beside a call
//! that stays on its machine.
//!
//! Every contender is one run of `bridge/nats/examples/speed.rs`, which starts a server and all
//! other processes.

use std::process::Command;

use crate::measure::{Case, Contender};
use crate::report::Target;
use crate::script;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bridge/nats/target/release/examples/speed");

const BRIDGED: &str = "across two bridges";
const BARE: &str = "bare NATS request";
const LOCAL: &str = "local call";

/// The names that the program knows.
const CONTENDERS: &[(&str, &str)] = &[(BRIDGED, "bridged"), (BARE, "bare"), (LOCAL, "local")];

struct Definition {
    name: &'static str,
    quick: bool,
    /// How many calls are in progress: one at a time, or 64 together.
    shape: &'static str,
    calls: usize,
    bytes: usize,
}

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "alone/12",    quick: true,  shape: "alone",    calls: 5_000,  bytes: 12 },
    Definition { name: "alone/4k",    quick: false, shape: "alone",    calls: 5_000,  bytes: 4096 },
    Definition { name: "together/12", quick: true,  shape: "together", calls: 50_000, bytes: 12 },
    Definition { name: "together/4k", quick: false, shape: "together", calls: 30_000, bytes: 4096 },
];

/// Within 1.3 times the latency is 0.769 of the speed.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "nats/latency/vs-request",    of: ("alone/12", BRIDGED),    slower_of: &[("alone/12", BARE)],    at_least: 0.769 },
    Target { name: "nats/throughput/vs-request", of: ("together/12", BRIDGED), slower_of: &[("together/12", BARE)], at_least: 0.7 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |definition: &Definition, &(name, known): &(&'static str, &str)| {
        let Definition { shape, calls, bytes, .. } = *definition;
        let arguments = [shape.to_owned(), known.to_owned(), calls.to_string(), bytes.to_string()];
        let run = move || script::run(Command::new(PROGRAM).args(&arguments), bytes);
        Contender { name, rounds_at_most: usize::MAX, run: Box::new(run) }
    };
    let case = |definition: &Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: CONTENDERS.iter().map(|entry| contender(definition, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}
