//! The Node package between processes, beside what Node programs use today.
//!
//! Every contender is one run of `peer/node.mjs`, which measures itself in there: starting Node is
//! not counted. It is `node`, or the program that PIPEWORK_NODE names.

use std::env;
use std::process::Command;

use crate::measure::{Case, Contender, Failure, Sample};
use crate::report::Target;
use crate::script;

struct Definition {
    name: &'static str,
    quick: bool,
    /// Bytes of a request, and of its reply.
    bytes: usize,
    /// Calls in progress at the same time.
    tasks: usize,
}

const PIPEWORK: &str = "pipework";
const BLOBS: &str = "pipework blobs";
const SOCKET: &str = "Unix socket";

/// Contenders: the name in the table, and the one in the script.
const CONTENDERS: [(&str, &str); 6] = [
    (PIPEWORK, "pipework"),
    (BLOBS, "pipework_blobs"),
    (SOCKET, "socket"),
    ("child_process", "child_process"),
    ("worker_threads", "worker_threads"),
    ("zeromq ipc", "zeromq"),
];

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "call/12x1",  quick: true, bytes: 12,      tasks: 1 },
    Definition { name: "call/12x64", quick: true, bytes: 12,      tasks: 64 },
    Definition { name: "call/1mx1",  quick: true, bytes: 1 << 20, tasks: 1 },
    Definition { name: "call/1mx64", quick: true, bytes: 1 << 20, tasks: 64 },
];

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "node/call/12x1/vs-socket",  of: ("call/12x1", PIPEWORK),  slower_of: &[("call/12x1", SOCKET)],  at_least: 1.0 },
    Target { name: "node/call/12x64/vs-socket", of: ("call/12x64", PIPEWORK), slower_of: &[("call/12x64", SOCKET)], at_least: 5.0 },
    Target { name: "node/call/1mx1/vs-socket",  of: ("call/1mx1", PIPEWORK),  slower_of: &[("call/1mx1", SOCKET)],  at_least: 1.0 },
    Target { name: "node/call/1mx64/vs-socket", of: ("call/1mx64", PIPEWORK), slower_of: &[("call/1mx64", SOCKET)], at_least: 5.0 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: contenders(definition),
    };
    DEFINITIONS.iter().map(case).collect()
}

fn contenders(definition: &'static Definition) -> Vec<Contender> {
    let contender = |&(name, engine): &(&'static str, &'static str)| {
        let run = move || node(engine, definition);
        Contender { name, rounds_at_most: usize::MAX, run: Box::new(run) }
    };
    // Nobody sends a few bytes as a blob.
    let fits = |&&(name, _): &&(&str, &str)| name != BLOBS || definition.bytes > 1000;
    CONTENDERS.iter().filter(fits).map(contender).collect()
}

/// One run of the script.
fn node(engine: &str, definition: &Definition) -> Result<Sample, Failure> {
    let &Definition { bytes, tasks, .. } = definition;
    // Enough for a few tenths of a second.
    let calls = if bytes > 1000 { 300 } else { 5_000 * tasks.min(20) };
    let mut command = Command::new(env::var_os("PIPEWORK_NODE").unwrap_or_else(|| "node".into()));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peer/node.mjs")).args(["call", engine]);
    script::run(command.args([calls, bytes, tasks].map(|number| number.to_string())), bytes)
}
