//! The module `reqrep`: its cases and targets, as data. The carriers of the calls are in
//! `reqrep/ours.rs`, `reqrep/bare.rs` and `reqrep/peers.rs`, and how they are measured in
//! `reqrep/calls.rs`.
//!
//! Every contender of a case echoes the same payloads. Nothing is pinned to a CPU.

pub mod calls;
mod ours;
pub mod bare;
pub mod peers;

use crate::measure::{Case, Contender, Failure, Sample};
use crate::report::Target;
use bare::{Datagrams, PingPong, Queues, Streams, Waiting};
use calls::{Cpus, Job, Place, anywhere};
use ours::{Copies, Pipework, PipeworkC, PipeworkParts, Settings, USUAL};
use peers::Crossbeam;

struct Definition {
    name: &'static str,
    quick: bool,
    job: Job,
    contenders: &'static [Entry],
}

/// A contender: its name in the table, and the carrier of its calls.
type Entry = (&'static str, Engine);

#[derive(Clone, Copy)]
enum Engine {
    Pipework(Settings),
    /// By the C library.
    C,
    Parts,
    Copies,
    Flags(Waiting),
    Pipes,
    Unix,
    Tcp,
    Datagrams,
    Queues,
    Crossbeam,
    Iceoryx2,
    /// The same, and the client reads its replies.
    Iceoryx2Read,
    IpcChannel,
    ZeroMq,
    Perl,
    Idle,
    IdleBare,
}

const PIPEWORK: &str = "pipework";
const C: &str = "pipework, C";
const FLAGS: &str = "two flags";
const FUTEXES: &str = "two futexes";
const PIPES: &str = "pipe pair";
const CROSSBEAM: &str = "crossbeam, bounded";
const ICEORYX2: &str = "iceoryx2, polling";
const PERL: &str = "Data::ReqRep::Shared";

const THREAD: [Entry; 4] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (CROSSBEAM, Engine::Crossbeam),
    (PIPES, Engine::Pipes),
    ("Unix socket pair", Engine::Unix),
];

/// Flags carry a signal and no bytes, so they take part only in cases of few bytes.
const THREAD_SMALL: [Entry; 5] = [THREAD[0], (C, Engine::C), THREAD[1], THREAD[2], THREAD[3]];
const THREADS: [Entry; 5] =
    [THREAD[0], (FLAGS, Engine::Flags(Waiting::Looking)), THREAD[1], THREAD[2], THREAD[3]];

const PROCESSES: [Entry; 8] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (PIPES, Engine::Pipes),
    ("Unix socket pair", Engine::Unix),
    ("TCP loopback", Engine::Tcp),
    ("POSIX queues", Engine::Queues),
    (ICEORYX2, Engine::Iceoryx2),
    ("ipc-channel", Engine::IpcChannel),
    ("ZeroMQ ipc", Engine::ZeroMq),
];

const PROCESSES_8: [Entry; 2] =
    [(PIPEWORK, Engine::Pipework(USUAL)), (FLAGS, Engine::Flags(Waiting::Looking))];

const PROCESSES_ALL: [Entry; 12] = [
    PROCESSES[0],
    (C, Engine::C),
    ("pipework, deadlines", Engine::Pipework(Settings { deadline: true, ..USUAL })),
    (FLAGS, Engine::Flags(Waiting::Looking)),
    PROCESSES[1],
    PROCESSES[2],
    PROCESSES[3],
    PROCESSES[4],
    PROCESSES[5],
    PROCESSES[6],
    PROCESSES[7],
    (PERL, Engine::Perl),
];

const PARKED: [Entry; 4] = [
    (PIPEWORK, Engine::Pipework(Settings { spin: false, ..USUAL })),
    (FUTEXES, Engine::Flags(Waiting::Parked)),
    ("two futexes, in slices", Engine::Flags(Waiting::ParkedInSlices)),
    (PIPES, Engine::Pipes),
];

const PIPELINED: [Entry; 5] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    (PIPES, Engine::Pipes),
    ("Unix socket pair", Engine::Unix),
    ("POSIX queues", Engine::Queues),
    (ICEORYX2, Engine::Iceoryx2),
];

const PIPELINED_MANY: [Entry; 4] = [
    (PIPEWORK, Engine::Pipework(Settings { slots: 1024, ..USUAL })),
    PIPELINED[1],
    PIPELINED[2],
    ("ZeroMQ ipc", Engine::ZeroMq),
];

const MANY: [Entry; 3] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    ("Unix datagrams", Engine::Datagrams),
    ("ZeroMQ ipc, a broker", Engine::ZeroMq),
];

const CROWD: [Entry; 2] = [(PIPEWORK, Engine::Pipework(USUAL)), ("POSIX queues", Engine::Queues)];

const SLOTS: [Entry; 2] = [
    ("pipework, 64", Engine::Pipework(USUAL)),
    ("pipework, 65,536", Engine::Pipework(Settings { slots: 1 << 16, ..USUAL })),
];

const MEMBERS: [Entry; 2] = [
    ("pipework, 2", Engine::Pipework(USUAL)),
    ("pipework, 200", Engine::Pipework(Settings { members: 200, ..USUAL })),
];

const SLOTS_OF_64_KIB: Settings = Settings { slot_bytes: Some(64 << 10), ..USUAL };

const ECHO: [Entry; 3] = [
    (PIPEWORK, Engine::Pipework(USUAL)),
    ("pipework, in place", Engine::Pipework(Settings { in_place: true, ..USUAL })),
    (ICEORYX2, Engine::Iceoryx2Read),
];

/// Slots of 128 KiB: a payload of 1 MiB is copied into a blob, and out of it.
const ECHO_1M: [Entry; 4] = [
    ECHO[0],
    ECHO[1],
    (
        "pipework, long payload",
        Engine::Pipework(Settings { in_place: true, slot_bytes: Some(128 << 10), ..USUAL }),
    ),
    ECHO[2],
];

const LARGE: [Entry; 3] = [
    (PIPEWORK, Engine::Pipework(SLOTS_OF_64_KIB)),
    ("pipework, in place", Engine::Pipework(Settings { in_place: true, ..SLOTS_OF_64_KIB })),
    ("the copies alone", Engine::Copies),
];

const PARTS: [Entry; 2] = [("pipework, parts", Engine::Parts), (PIPEWORK, Engine::Pipework(USUAL))];

const IDLE: [Entry; 2] = [("pipework", Engine::Idle), ("parked for 250 ms at a time", Engine::IdleBare)];

const fn thread(bytes: usize) -> Job {
    Job { bytes, moved: 0, clients: 1, servers: 1, depth: 1, place: Place::OneThread, cpus: Cpus::Any }
}

const fn threads(bytes: usize) -> Job {
    Job { place: Place::TwoThreads, ..thread(bytes) }
}

const fn processes(bytes: usize) -> Job {
    crowd(bytes, 1, 1)
}

const fn pipelined(bytes: usize, depth: usize) -> Job {
    Job { depth, ..processes(bytes) }
}

const fn pinned(bytes: usize, cpus: Cpus) -> Job {
    Job { cpus, ..processes(bytes) }
}

const fn crowd(bytes: usize, clients: usize, servers: usize) -> Job {
    Job { bytes, moved: 0, clients, servers, depth: 1, place: Place::Processes, cpus: Cpus::Any }
}

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "1-thread/8",        quick: false, job: thread(8),           contenders: &THREAD },
    Definition { name: "1-thread/12",       quick: true,  job: thread(12),          contenders: &THREAD_SMALL },
    Definition { name: "1-thread/64",       quick: false, job: thread(64),          contenders: &THREAD },
    Definition { name: "1-thread/1024",     quick: false, job: thread(1024),        contenders: &THREAD },
    Definition { name: "1-thread/16384",    quick: false, job: thread(16384),       contenders: &THREAD },
    Definition { name: "2-threads/8",       quick: false, job: threads(8),          contenders: &THREAD },
    Definition { name: "2-threads/12",      quick: true,  job: threads(12),         contenders: &THREADS },
    Definition { name: "2-threads/64",      quick: false, job: threads(64),         contenders: &THREAD },
    Definition { name: "2-threads/1024",    quick: false, job: threads(1024),       contenders: &THREAD },
    Definition { name: "2-threads/16384",   quick: false, job: threads(16384),      contenders: &THREAD },
    Definition { name: "2-processes/8",     quick: false, job: processes(8),        contenders: &PROCESSES_8 },
    Definition { name: "2-processes/12",    quick: true,  job: processes(12),       contenders: &PROCESSES_ALL },
    Definition { name: "2-processes/64",    quick: false, job: processes(64),       contenders: &PROCESSES },
    Definition { name: "2-processes/1024",  quick: false, job: processes(1024),     contenders: &PROCESSES },
    Definition { name: "2-processes/16384", quick: false, job: processes(16384),    contenders: &PROCESSES },
    Definition { name: "parked/12/1-cpu",   quick: true,  job: pinned(12, Cpus::One),   contenders: &PARKED },
    Definition { name: "parked/12/2-cpus",  quick: true,  job: pinned(12, Cpus::Two),   contenders: &PARKED },
    Definition { name: "parked/1024/1-cpu", quick: false, job: pinned(1024, Cpus::One), contenders: &PARKED },
    Definition { name: "parked/1024/2-cpus", quick: false, job: pinned(1024, Cpus::Two), contenders: &PARKED },
    Definition { name: "pipelined/12x4",    quick: false, job: pipelined(12, 4),    contenders: &PIPELINED },
    Definition { name: "pipelined/12x32",   quick: true,  job: pipelined(12, 32),   contenders: &PIPELINED },
    Definition { name: "pipelined/1024x32", quick: false, job: pipelined(1024, 32), contenders: &PIPELINED },
    Definition { name: "pipelined/12x1000", quick: true,  job: pipelined(12, 1000), contenders: &PIPELINED_MANY },
    Definition { name: "crowd/1x2",         quick: false, job: crowd(64, 1, 2),     contenders: &CROWD },
    Definition { name: "crowd/1x4",         quick: false, job: crowd(64, 1, 4),     contenders: &CROWD },
    Definition { name: "crowd/2x1",         quick: false, job: crowd(64, 2, 1),     contenders: &CROWD },
    Definition { name: "crowd/2x2",         quick: false, job: crowd(64, 2, 2),     contenders: &CROWD },
    Definition { name: "crowd/4x1",         quick: false, job: crowd(64, 4, 1),     contenders: &CROWD },
    Definition { name: "crowd/4x4",         quick: true,  job: crowd(64, 4, 4),     contenders: &CROWD },
    Definition { name: "crowd/64x8",        quick: true,  job: crowd(64, 64, 8),    contenders: &MANY },
    Definition { name: "echo/16384",        quick: true,  job: processes(16384),    contenders: &ECHO },
    Definition { name: "echo/1m",           quick: true,  job: processes(1 << 20),  contenders: &ECHO_1M },
    Definition { name: "large/1m",          quick: true,  job: processes(1 << 20),  contenders: &LARGE },
    Definition { name: "large/64m",         quick: false, job: processes(64 << 20), contenders: &LARGE },
    Definition { name: "parts/12",          quick: true,  job: processes(12),       contenders: &PARTS },
    Definition { name: "flat/slots",        quick: true,  job: thread(12),          contenders: &SLOTS },
    Definition { name: "flat/members",      quick: true,  job: thread(12),          contenders: &MEMBERS },
    Definition { name: "idle",              quick: true,  job: processes(4),        contenders: &IDLE },
];

/// The promises of the design. A limit on time becomes its inverse, because a target compares
/// speeds: within twice the time of two flags is 0.5 of their speed.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "reqrep/2-processes/vs-flags",     of: ("2-processes/12", PIPEWORK),    slower_of: &[("2-processes/12", FLAGS)],    at_least: 0.5 },
    Target { name: "reqrep/2-processes/vs-iceoryx2",  of: ("2-processes/12", PIPEWORK),    slower_of: &[("2-processes/12", ICEORYX2)], at_least: 3.0 },
    Target { name: "reqrep/2-processes/vs-pipe-pair", of: ("2-processes/12", PIPEWORK),    slower_of: &[("2-processes/12", PIPES)],    at_least: 20.0 },
    Target { name: "reqrep/2-processes/c-vs-rust",    of: ("2-processes/12", C),           slower_of: &[("2-processes/12", PIPEWORK)], at_least: 0.87 },
    Target { name: "reqrep/1-thread/vs-crossbeam",    of: ("1-thread/12", PIPEWORK),       slower_of: &[("1-thread/12", CROSSBEAM)],   at_least: 0.55 },
    Target { name: "reqrep/parked/1-cpu/vs-futexes",  of: ("parked/12/1-cpu", PIPEWORK),   slower_of: &[("parked/12/1-cpu", FUTEXES)], at_least: 0.95 },
    Target { name: "reqrep/parked/2-cpus/vs-futexes", of: ("parked/12/2-cpus", PIPEWORK),  slower_of: &[("parked/12/2-cpus", FUTEXES)], at_least: 0.95 },
    Target { name: "reqrep/pipelined/1000/vs-pipes",  of: ("pipelined/12x1000", PIPEWORK), slower_of: &[("pipelined/12x1000", PIPES)],  at_least: 2.0 },
    Target { name: "reqrep/crowd/64x8/vs-datagrams",  of: ("crowd/64x8", PIPEWORK),        slower_of: &[("crowd/64x8", MANY[1].0)],    at_least: 2.0 },
    Target { name: "reqrep/echo/16384/vs-iceoryx2",   of: ("echo/16384", ECHO[0].0),       slower_of: &[("echo/16384", ICEORYX2)],     at_least: 1.0 },
    Target { name: "reqrep/echo/1m/vs-iceoryx2",      of: ("echo/1m", ECHO_1M[2].0),       slower_of: &[("echo/1m", ICEORYX2)],        at_least: 1.0 },
    Target { name: "reqrep/large/vs-copies",          of: ("large/1m", PIPEWORK),          slower_of: &[("large/1m", LARGE[2].0)],     at_least: 0.5 },
    Target { name: "reqrep/parts/vs-calls",           of: ("parts/12", PARTS[0].0),        slower_of: &[("parts/12", PIPEWORK)],       at_least: 0.667 },
    Target { name: "reqrep/flat/slots",               of: ("flat/slots", SLOTS[1].0),      slower_of: &[("flat/slots", SLOTS[0].0)],   at_least: 0.8 },
    Target { name: "reqrep/flat/members",             of: ("flat/members", MEMBERS[1].0),  slower_of: &[("flat/members", MEMBERS[0].0)], at_least: 0.8 },
    Target { name: "reqrep/idle/vs-parked",           of: ("idle", IDLE[0].0),             slower_of: &[("idle", IDLE[1].0)],          at_least: 0.5 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let contender = |job: Job, &(name, engine): &Entry| {
        let rounds_at_most = match engine {
            // Ten seconds of nothing.
            Engine::Idle | Engine::IdleBare => 1,
            Engine::Perl => 3,
            _ => usize::MAX,
        };
        Contender { name, rounds_at_most, run: engine.runner(job) }
    };
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: definition.contenders.iter().map(|entry| contender(definition.job, entry)).collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}

/// Calls of so many bytes between two processes, for a module that compares its own with them.
pub fn calls(bytes: usize) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    Engine::Pipework(USUAL).runner(processes(bytes))
}

impl Engine {
    /// The engine with its job, ready to run again and again.
    fn runner(self, job: Job) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        match self {
            Engine::Pipework(settings) => anywhere(job, move |job| Pipework::new(job, settings)),
            Engine::C => anywhere(job, |job| PipeworkC::new(job, USUAL)),
            Engine::Parts => anywhere(job, PipeworkParts::new),
            Engine::Copies => anywhere(Job { place: Place::OneThread, ..job }, Copies::new),
            Engine::Flags(waiting) => anywhere(job, move |job| PingPong::new(job.bytes, waiting)),
            Engine::Pipes => anywhere(job, Streams::pipes),
            Engine::Unix => anywhere(job, Streams::unix),
            Engine::Tcp => anywhere(job, Streams::tcp),
            Engine::Datagrams => anywhere(job, Datagrams::new),
            Engine::Queues => anywhere(job, Queues::new),
            Engine::Crossbeam => match job.bytes {
                8 => anywhere(job, Crossbeam::<[u8; 8]>::new),
                12 => anywhere(job, Crossbeam::<[u8; 12]>::new),
                64 => anywhere(job, Crossbeam::<[u8; 64]>::new),
                _ => anywhere(job, Crossbeam::<Vec<u8>>::new),
            },
            Engine::Perl => Box::new(move || peers::perl(&job)),
            Engine::Idle => Box::new(ours::idle),
            Engine::IdleBare => Box::new(ours::idle_bare),
            Engine::Iceoryx2 | Engine::Iceoryx2Read | Engine::IpcChannel | Engine::ZeroMq => self.peer(job),
        }
    }

    #[cfg(feature = "peers")]
    fn peer(self, job: Job) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        use calls::between_processes;
        match self {
            Engine::Iceoryx2 => between_processes(job, |job| peers::Iceoryx2::new(job, false)),
            Engine::Iceoryx2Read => between_processes(job, |job| peers::Iceoryx2::new(job, true)),
            Engine::IpcChannel => between_processes(job, peers::IpcChannel::new),
            Engine::ZeroMq => between_processes(job, peers::ZeroMq::new),
            _ => unreachable!("the others are always built"),
        }
    }

    #[cfg(not(feature = "peers"))]
    fn peer(self, _job: Job) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        Box::new(|| Err("not built: cargo run --features peers".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::calls::{Carrier, Client, Server};
    use super::*;

    /// Three calls in progress, which one thread can answer without waiting. (Forks need a
    /// process with one thread, and tests have many.)
    fn echoes(carrier: &impl Carrier, bytes: usize) {
        let request = vec![7; bytes];
        let mut client = carrier.client(0).expect("a client");
        let mut server = carrier.server(0).expect("a server");
        for _ in 0..3 {
            (0..3).for_each(|_| client.send(&request).expect("there is space"));
            (0..3).for_each(|_| assert!(server.answer().expect("a request waits")));
            (0..3).for_each(|_| assert_eq!(client.receive().expect("a reply waits"), bytes));
        }
    }

    #[test]
    fn every_carrier_returns_all_bytes() {
        for bytes in [12, 1024] {
            let job = Job { depth: 3, ..thread(bytes) };
            let settings = Settings { slots: 4, members: 20, spin: false, deadline: true, ..USUAL };
            echoes(&Pipework::new(&job, settings).expect("a segment"), bytes);
            echoes(&Streams::pipes(&job).expect("pipes"), bytes);
            echoes(&Streams::unix(&job).expect("sockets"), bytes);
            echoes(&Streams::tcp(&job).expect("sockets"), bytes);
            echoes(&Crossbeam::<Vec<u8>>::new(&job).expect("channels"), bytes);
            #[cfg(feature = "peers")]
            echoes(&peers::IpcChannel::new(&job).expect("channels"), bytes);
            // A kernel may be built without them.
            if let Ok(queues) = Queues::new(&job) {
                echoes(&queues, bytes);
            }
        }
        echoes(&Crossbeam::<[u8; 12]>::new(&thread(12)).expect("channels"), 12);
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
