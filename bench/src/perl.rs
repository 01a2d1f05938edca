//! The Perl distribution beside core Perl, the modules that Perl programs use today, and the
//! originals where they are installed.
//!
//! Every contender but Rust's is one run of `peer/perl.pl`.

use pipework::Deadline;
use pipework::atomic;

use crate::measure::{Case, Contender, Crew, Failure, Sample};
use crate::report::Target;
use crate::{reqrep, script};

struct Definition {
    name: &'static str,
    quick: bool,
    /// The script's work.
    shape: &'static str,
    bytes: usize,
    /// The names that the script knows, and how many operations each makes; slow ones make fewer.
    contenders: &'static [(&'static str, usize)],
}

const RUST: &str = "Rust";
const CORE: &str = "core Perl";
const REQREP: &str = "Pipework::ReqRep";
const ATOMIC: &str = "Pipework::Atomic";
const FD: &str = "Pipework::FD";

const CALLS: &[(&str, usize)] = &[
    (REQREP, 100_000),
    (RUST, 0),
    ("pipe pair", 10_000),
    ("socketpair", 10_000),
    ("MCE::Channel", 10_000),
    ("Data::ReqRep::Shared", 5_000),
];
const SHARED: &[(&str, usize)] = &[(REQREP, 100_000), ("Data::ReqRep::Shared", 50_000)];
const INTEGERS: &[(&str, usize)] =
    &[("Pipework::ReqRep::Int", 100_000), ("Data::ReqRep::Shared::Int", 50_000)];
const STREAMS: &[(&str, usize)] =
    &[(ATOMIC, 40_000), (RUST, 400_000), ("pipe", 40_000), ("MCE::Channel", 20_000), ("Atomic::Pipe", 1_000)];
const DESCRIPTORS: &[(&str, usize)] = &[(FD, 200_000), (CORE, 200_000), ("IO::FD", 200_000)];
const CONNECTIONS: &[(&str, usize)] = &[(FD, 400), (CORE, 400), ("IO::FD", 400)];
const HELD: &[(&str, usize)] = &[(FD, 900), (CORE, 900)];

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "call/12",    quick: true,  shape: "call",   bytes: 12,     contenders: CALLS },
    Definition { name: "call/1024",  quick: false, shape: "call",   bytes: 1024,   contenders: CALLS },
    Definition { name: "alone/12",   quick: false, shape: "alone",  bytes: 12,     contenders: SHARED },
    Definition { name: "alone/int",  quick: true,  shape: "alone",  bytes: 8,      contenders: INTEGERS },
    Definition { name: "batch/12",   quick: false, shape: "batch",  bytes: 12,     contenders: SHARED },
    Definition { name: "stream/890", quick: false, shape: "stream", bytes: 890,    contenders: STREAMS },
    Definition { name: "stream/5k",  quick: true,  shape: "stream", bytes: 5_000,  contenders: STREAMS },
    Definition { name: "write/1k",   quick: true,  shape: "write",  bytes: 1024,   contenders: DESCRIPTORS },
    Definition { name: "write/16k",  quick: false, shape: "write",  bytes: 16_384, contenders: DESCRIPTORS },
    Definition { name: "read/1k",    quick: true,  shape: "read",   bytes: 1024,   contenders: DESCRIPTORS },
    Definition { name: "read/16k",   quick: false, shape: "read",   bytes: 16_384, contenders: DESCRIPTORS },
    Definition { name: "open",       quick: true,  shape: "open",   bytes: 1,      contenders: DESCRIPTORS },
    Definition { name: "inet",       quick: true,  shape: "inet",   bytes: 1,      contenders: DESCRIPTORS },
    Definition { name: "unix",       quick: true,  shape: "unix",   bytes: 1,      contenders: DESCRIPTORS },
    Definition { name: "poll",       quick: true,  shape: "poll",   bytes: 1,      contenders: DESCRIPTORS },
    Definition { name: "accept",     quick: true,  shape: "accept", bytes: 1,      contenders: CONNECTIONS },
    Definition { name: "memory",     quick: true,  shape: "memory", bytes: 1,      contenders: HELD },
];

/// A limit on time becomes its inverse, as in the module `reqrep`: 6 times the time of Rust's call
/// is 0.167 of its speed.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "perl/call/vs-rust",       of: ("call/12", REQREP),   slower_of: &[("call/12", RUST)],                   at_least: 0.167 },
    Target { name: "perl/call/vs-original",   of: ("call/12", REQREP),   slower_of: &[("call/12", "Data::ReqRep::Shared")], at_least: 20.0 },
    Target { name: "perl/stream/vs-rust",     of: ("stream/5k", ATOMIC), slower_of: &[("stream/5k", RUST)],                 at_least: 0.6 },
    Target { name: "perl/stream/vs-original", of: ("stream/5k", ATOMIC), slower_of: &[("stream/5k", "Atomic::Pipe")],       at_least: 100.0 },
    Target { name: "perl/write/vs-core",      of: ("write/1k", FD),      slower_of: &[("write/1k", CORE)],                  at_least: 0.952 },
    Target { name: "perl/read/vs-core",       of: ("read/1k", FD),       slower_of: &[("read/1k", CORE)],                   at_least: 0.952 },
    Target { name: "perl/open/vs-core",       of: ("open", FD),          slower_of: &[("open", CORE)],                      at_least: 1.5 },
    Target { name: "perl/inet/vs-core",       of: ("inet", FD),          slower_of: &[("inet", CORE)],                      at_least: 2.0 },
    Target { name: "perl/unix/vs-core",       of: ("unix", FD),          slower_of: &[("unix", CORE)],                      at_least: 4.0 },
    Target { name: "perl/memory/vs-core",     of: ("memory", FD),        slower_of: &[("memory", CORE)],                    at_least: 5.0 },
    Target { name: "perl/poll/vs-core",       of: ("poll", FD),          slower_of: &[("poll", CORE)],                      at_least: 2.0 },
    Target { name: "perl/accept/vs-core",     of: ("accept", FD),        slower_of: &[("accept", CORE)],                    at_least: 1.5 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |definition: &'static Definition, &(name, ops): &(&'static str, usize)| {
        let Definition { shape, bytes, .. } = *definition;
        let run: Box<dyn FnMut() -> Result<Sample, Failure>> = match (name, shape) {
            (RUST, "call") => reqrep::calls(bytes),
            (RUST, _) => Box::new(move || stream(ops, bytes)),
            _ => Box::new(move || script::perl(shape, name, ops, bytes)),
        };
        Contender { name, rounds_at_most: usize::MAX, run }
    };
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}

/// Messages of one size from a forked writer.
fn stream(ops: usize, bytes: usize) -> Result<Sample, Failure> {
    let (mut reader, writer) = atomic::pair()?;
    let message = vec![b'x'; bytes];
    let crew = Crew::fork(1, writer, |_, mut writer, start| {
        start.wait()?;
        (0..ops).try_for_each(|_| writer.send(&message, Deadline::NEVER).map(drop))?;
        Ok(writer.close(Deadline::NEVER)?)
    })?;
    let (came, cost) = crew.run(|| {
        let mut came = 0;
        for _ in 0..ops {
            came += reader.recv(Deadline::NEVER)?.data.len() as u64;
        }
        Ok(came)
    })?;
    Ok(Sample { ops: ops as u64, bytes: came, wire: None, cost })
}
