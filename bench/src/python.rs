//! The Python package between processes, beside the packages that Python programs use today: the
//! modules `python`, `python-blob` for large payloads and arrays, and `python-multiprocessing` for
//! objects.
//!
//! Every contender is one run of `peer/python.py`, which measures itself in there: starting an
//! interpreter is not counted. The interpreter is that of the environment that
//! `make bench MODULE=python` sets up, or the one that PIPEWORK_PYTHON names.

use std::env;
use std::process::Command;

use crate::measure::{Case, Contender, Failure, Sample};
use crate::report::Target;
use crate::script;

struct Definition {
    name: &'static str,
    quick: bool,
    job: Job,
}

#[derive(Clone, Copy)]
enum Job {
    /// Calls of so many bytes, whose reply is the request.
    Calls { bytes: usize },
    /// So many threads, each of which sends, takes, answers and receives.
    Threads { bytes: usize, threads: usize },
    /// Calls between two event loops, from so many tasks.
    Awaited { bytes: usize, tasks: usize },
    /// Two event loops in which nothing happens, and so many tasks that wait for replies.
    Idle { tasks: usize },
    /// Messages of so many bytes, from so many writers.
    Stream { bytes: usize, writers: usize },
    /// Tasks of two processes, which return their argument of so many bytes.
    Tasks { bytes: usize },
    /// Log records of so many processes.
    Logs { processes: usize },
    /// Bytes through a chain of three processes and back, beside so many that only compute.
    Chain { bytes: usize, busy: usize },
    /// An array to another process.
    Array { bytes: usize },
    /// An array as argument of a task.
    Submit { bytes: usize },
    /// An array as result of a task.
    Return { bytes: usize },
    /// Objects of so many bytes, from so many processes to one.
    Queue { bytes: usize, putters: usize },
    /// An object of so many bytes there and back.
    Pipe { bytes: usize },
    /// Items of so many bytes, returned by a pool of two processes, in chunks or each by itself.
    Map { bytes: usize, shape: &'static str },
    /// An array to another process, as an object.
    ArrayObject { bytes: usize },
    /// An array as argument of a task, of executors and pools.
    ArrayTask { bytes: usize },
}

const PIPEWORK: &str = "pipework";
const FREE: &str = "pipework, 3.14t";
const MANY: &str = "pipework send_many";
const CONNECTION: &str = "Connection";
const ASYNCIO: &str = "pipework asyncio";
const ASYNCIO_STREAMS: &str = "asyncio streams";
const POOL: &str = "ProcessPoolExecutor";
const QUEUE_HANDLER: &str = "QueueHandler";
const CONCURRENT_LOG_HANDLER: &str = "concurrent-log-handler";
const BLOBS: &str = "pipework, blobs";
const QUEUE: &str = "Queue";
const ZEROMQ: &str = "pyzmq ipc";
const BY_HAND: &str = "shared_memory";
const PIPEWORK_QUEUE: &str = "pipework Queue";
const PIPEWORK_BOUNDED: &str = "pipework Queue(n)";
const QUEUE_BOUNDED: &str = "Queue(n)";
const PIPEWORK_PIPE: &str = "pipework Pipe";
const PIPE: &str = "Pipe";
const PIPEWORK_POOL: &str = "pipework Pool";
const STANDARD_POOL: &str = "Pool";
/// It starts for seconds.
const RAY: &str = "ray";
/// How long an idle process is watched.
const IDLE_SECONDS: usize = 3;
/// Bytes of a log record's text.
const RECORD: usize = 60;

/// Contenders: the name in the table, the one in the script, and the number of calls; slow ones make
/// fewer.
const CALLS: [(&str, &str, usize); 9] = [
    (PIPEWORK, "pipework", 100_000),
    (CONNECTION, "connection", 8_000),
    ("SimpleQueue", "simple_queue", 5_000),
    (QUEUE, "queue", 2_000),
    ("socketpair", "socketpair", 10_000),
    ("os.pipe", "os_pipe", 10_000),
    (ZEROMQ, "zeromq", 3_000),
    ("faster-fifo", "faster_fifo", 3_000),
    ("iceoryx2, polling", "iceoryx2", 10_000),
];

const AWAITED: [(&str, &str, usize); 7] = [
    (ASYNCIO, "pipework", 20_000),
    ("pipework uvloop", "pipework_uvloop", 20_000),
    (ASYNCIO_STREAMS, "streams", 10_000),
    ("uvloop streams", "streams_uvloop", 10_000),
    ("asyncio protocol", "protocol", 10_000),
    ("uvloop protocol", "protocol_uvloop", 10_000),
    (PIPEWORK, CALLS[0].1, CALLS[0].2),
];

/// The same for executors.
const EXECUTORS: [(&str, &str, usize); 3] =
    [(PIPEWORK, "pipework", 20_000), (POOL, "standard", 10_000), ("loky", "loky", 5_000)];

/// The same for logs.
const LOGS: [(&str, &str, usize); 3] = [
    (PIPEWORK, "pipework", 20_000),
    (QUEUE_HANDLER, "queue", 20_000),
    (CONCURRENT_LOG_HANDLER, "concurrent", 10_000),
];

/// The same for streams, with how much of the bytes it is given.
const STREAMS: [(&str, &str, f64); 9] = [
    (PIPEWORK, "pipework", 1.0),
    (MANY, "pipework_many", 1.0),
    (CONNECTION, "connection", 1.0),
    ("SimpleQueue", "simple_queue", 0.5),
    (QUEUE, "queue", 0.5),
    ("socketpair", "socketpair", 1.0),
    ("os.pipe", "os_pipe", 1.0),
    (ZEROMQ, "zeromq", 0.5),
    ("faster-fifo", "faster_fifo", 0.25),
];

/// Contenders and their names in the script. All make as many calls.
const CHAIN: [(&str, &str); 6] = [
    (PIPEWORK, "pipework"),
    (BLOBS, "pipework_blobs"),
    (QUEUE, "queue"),
    (CONNECTION, "connection"),
    (ZEROMQ, "zeromq"),
    (BY_HAND, "shared_memory"),
];

const ARRAY: [(&str, &str); 6] = [
    (PIPEWORK, "pipework"),
    ("pipework, in place", "pipework_in_place"),
    (QUEUE, "queue"),
    (CONNECTION, "connection"),
    (ZEROMQ, "zeromq"),
    (BY_HAND, "shared_memory"),
];

/// Contenders of `python-multiprocessing`, and their names in the script.
const QUEUES: [(&str, &str); 6] = [
    (PIPEWORK_BOUNDED, "pipework_queue"),
    (PIPEWORK_QUEUE, "pipework_queue_unbounded"),
    (QUEUE_BOUNDED, "queue"),
    (QUEUE, "queue_unbounded"),
    ("SimpleQueue", "simple_queue"),
    ("pyzmq send_pyobj", "zeromq_objects"),
];

const PIPES: [(&str, &str); 3] =
    [(PIPEWORK_PIPE, "pipework_pipe"), (PIPE, "pipe"), ("pyzmq send_pyobj", "zeromq_objects")];

const POOLS: [(&str, &str); 6] = [
    (PIPEWORK_POOL, "pipework_pool"),
    ("pipework Executor", "pipework"),
    (STANDARD_POOL, "pool"),
    (POOL, "standard"),
    ("loky", "loky"),
    (RAY, "ray"),
];

const ARRAY_OBJECTS: [(&str, &str); 5] = [
    (PIPEWORK_QUEUE, "pipework_queue"),
    (PIPEWORK_PIPE, "pipework_pipe"),
    (QUEUE, "queue"),
    (PIPE, "connection"),
    (ZEROMQ, "zeromq"),
];

const fn stream(bytes: usize, writers: usize) -> Job {
    Job::Stream { bytes, writers }
}

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "call/12",         quick: true,  job: Job::Calls { bytes: 12 } },
    Definition { name: "call/1024",       quick: false, job: Job::Calls { bytes: 1024 } },
    Definition { name: "call/16384",      quick: false, job: Job::Calls { bytes: 16384 } },
    Definition { name: "threads/12x1",    quick: true,  job: Job::Threads { bytes: 12, threads: 1 } },
    Definition { name: "threads/12x2",    quick: true,  job: Job::Threads { bytes: 12, threads: 2 } },
    Definition { name: "threads/12x4",    quick: false, job: Job::Threads { bytes: 12, threads: 4 } },
    Definition { name: "await/12x1",      quick: true,  job: Job::Awaited { bytes: 12, tasks: 1 } },
    Definition { name: "await/12x64",     quick: true,  job: Job::Awaited { bytes: 12, tasks: 64 } },
    Definition { name: "idle/1",          quick: false, job: Job::Idle { tasks: 1 } },
    Definition { name: "idle/64",         quick: true,  job: Job::Idle { tasks: 64 } },
    Definition { name: "stream/100/1w",   quick: true,  job: stream(100, 1) },
    Definition { name: "stream/100/4w",   quick: false, job: stream(100, 4) },
    Definition { name: "stream/900/1w",   quick: true,  job: stream(900, 1) },
    Definition { name: "stream/900/4w",   quick: true,  job: stream(900, 4) },
    Definition { name: "stream/5k/1w",    quick: true,  job: stream(5_000, 1) },
    Definition { name: "stream/5k/4w",    quick: false, job: stream(5_000, 4) },
    Definition { name: "stream/64k/1w",   quick: true,  job: stream(65_536, 1) },
    Definition { name: "stream/64k/4w",   quick: false, job: stream(65_536, 4) },
    Definition { name: "stream/1m/1w",    quick: true,  job: stream(1_000_000, 1) },
    Definition { name: "stream/1m/4w",    quick: false, job: stream(1_000_000, 4) },
    Definition { name: "execute/1",       quick: true,  job: Job::Tasks { bytes: 1 } },
    Definition { name: "execute/1024",    quick: true,  job: Job::Tasks { bytes: 1024 } },
    Definition { name: "execute/1m",      quick: false, job: Job::Tasks { bytes: 1 << 20 } },
    Definition { name: "log/1p",          quick: false, job: Job::Logs { processes: 1 } },
    Definition { name: "log/4p",          quick: true,  job: Job::Logs { processes: 4 } },
];

/// A round of these takes seconds.
const LARGE: usize = 64 * MB;
const ROUNDS_OF_LARGE: usize = 5;
const ROUNDS_OF_RAY: usize = 1;
const ROUNDS_OF_IDLE: usize = 3;

const MB: usize = 1_000_000;
const MIB: usize = 1 << 20;

#[rustfmt::skip]
const BLOB_DEFINITIONS: &[Definition] = &[
    Definition { name: "chain/1mb",       quick: true,  job: Job::Chain { bytes: MB, busy: 0 } },
    Definition { name: "chain/1mb/busy",  quick: true,  job: Job::Chain { bytes: MB, busy: 2 } },
    Definition { name: "chain/64mb",      quick: true,  job: Job::Chain { bytes: 64 * MB, busy: 0 } },
    Definition { name: "array/1m",        quick: false, job: Job::Array { bytes: MIB } },
    Definition { name: "array/64m",       quick: true,  job: Job::Array { bytes: 64 * MIB } },
    Definition { name: "submit/1m",       quick: false, job: Job::Submit { bytes: MIB } },
    Definition { name: "submit/64m",      quick: true,  job: Job::Submit { bytes: 64 * MIB } },
    Definition { name: "result/1m",       quick: false, job: Job::Return { bytes: MIB } },
    Definition { name: "result/64m",      quick: true,  job: Job::Return { bytes: 64 * MIB } },
];

#[rustfmt::skip]
const OBJECT_DEFINITIONS: &[Definition] = &[
    Definition { name: "queue/1",         quick: true,  job: Job::Queue { bytes: 1, putters: 1 } },
    Definition { name: "queue/1/2p",      quick: false, job: Job::Queue { bytes: 1, putters: 2 } },
    Definition { name: "queue/1k",        quick: true,  job: Job::Queue { bytes: 1000, putters: 1 } },
    Definition { name: "queue/64k",       quick: false, job: Job::Queue { bytes: 1 << 16, putters: 1 } },
    Definition { name: "queue/1m",        quick: true,  job: Job::Queue { bytes: MIB, putters: 1 } },
    Definition { name: "queue/64m",       quick: false, job: Job::Queue { bytes: 64 * MIB, putters: 1 } },
    Definition { name: "pipe/1",          quick: true,  job: Job::Pipe { bytes: 1 } },
    Definition { name: "pipe/64k",        quick: false, job: Job::Pipe { bytes: 1 << 16 } },
    Definition { name: "pipe/1m",         quick: true,  job: Job::Pipe { bytes: MIB } },
    Definition { name: "pipe/64m",        quick: false, job: Job::Pipe { bytes: 64 * MIB } },
    Definition { name: "each/1",          quick: true,  job: Job::Map { bytes: 1, shape: "execute" } },
    Definition { name: "map/1",           quick: true,  job: Job::Map { bytes: 1, shape: "map" } },
    Definition { name: "map/1k",          quick: false, job: Job::Map { bytes: 1000, shape: "map" } },
    Definition { name: "map/64k",         quick: false, job: Job::Map { bytes: 1 << 16, shape: "map" } },
    Definition { name: "map/1m",          quick: true,  job: Job::Map { bytes: MIB, shape: "map" } },
    Definition { name: "map/64m",         quick: false, job: Job::Map { bytes: 64 * MIB, shape: "map" } },
    Definition { name: "array/1m",        quick: false, job: Job::ArrayObject { bytes: MIB } },
    Definition { name: "array/64m",       quick: true,  job: Job::ArrayObject { bytes: 64 * MIB } },
    Definition { name: "submit/1m",       quick: false, job: Job::ArrayTask { bytes: MIB } },
    Definition { name: "submit/64m",      quick: true,  job: Job::ArrayTask { bytes: 64 * MIB } },
];

/// Nothing that a program moves here by one import becomes slower.
#[rustfmt::skip]
pub const OBJECT_TARGETS: &[Target] = &[
    Target { name: "python-multiprocessing/queue/1/vs-queue",    of: ("queue/1", PIPEWORK_QUEUE),    slower_of: &[("queue/1", QUEUE)],    at_least: 1.0 },
    Target { name: "python-multiprocessing/queue/1/2p/vs-queue", of: ("queue/1/2p", PIPEWORK_QUEUE), slower_of: &[("queue/1/2p", QUEUE)], at_least: 1.0 },
    Target { name: "python-multiprocessing/queue/1k/vs-queue",   of: ("queue/1k", PIPEWORK_QUEUE),   slower_of: &[("queue/1k", QUEUE)],   at_least: 1.0 },
    Target { name: "python-multiprocessing/queue/64k/vs-queue",  of: ("queue/64k", PIPEWORK_QUEUE),  slower_of: &[("queue/64k", QUEUE)],  at_least: 1.0 },
    Target { name: "python-multiprocessing/queue/1m/vs-queue",   of: ("queue/1m", PIPEWORK_QUEUE),   slower_of: &[("queue/1m", QUEUE)],   at_least: 1.0 },
    Target { name: "python-multiprocessing/queue/64m/vs-queue",  of: ("queue/64m", PIPEWORK_QUEUE),  slower_of: &[("queue/64m", QUEUE)],  at_least: 1.0 },
    Target { name: "python-multiprocessing/pipe/1/vs-pipe",      of: ("pipe/1", PIPEWORK_PIPE),      slower_of: &[("pipe/1", PIPE)],      at_least: 1.0 },
    Target { name: "python-multiprocessing/pipe/64k/vs-pipe",    of: ("pipe/64k", PIPEWORK_PIPE),    slower_of: &[("pipe/64k", PIPE)],    at_least: 1.0 },
    Target { name: "python-multiprocessing/pipe/1m/vs-pipe",     of: ("pipe/1m", PIPEWORK_PIPE),     slower_of: &[("pipe/1m", PIPE)],     at_least: 1.0 },
    Target { name: "python-multiprocessing/pipe/64m/vs-pipe",    of: ("pipe/64m", PIPEWORK_PIPE),    slower_of: &[("pipe/64m", PIPE)],    at_least: 1.0 },
    Target { name: "python-multiprocessing/each/1/vs-pool",      of: ("each/1", PIPEWORK_POOL),      slower_of: &[("each/1", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/map/1/vs-pool",       of: ("map/1", PIPEWORK_POOL),       slower_of: &[("map/1", STANDARD_POOL)],  at_least: 1.0 },
    Target { name: "python-multiprocessing/map/1k/vs-pool",      of: ("map/1k", PIPEWORK_POOL),      slower_of: &[("map/1k", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/map/64k/vs-pool",     of: ("map/64k", PIPEWORK_POOL),     slower_of: &[("map/64k", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/map/1m/vs-pool",      of: ("map/1m", PIPEWORK_POOL),      slower_of: &[("map/1m", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/map/64m/vs-pool",     of: ("map/64m", PIPEWORK_POOL),     slower_of: &[("map/64m", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/array/1m/vs-queue",   of: ("array/1m", PIPEWORK_QUEUE),   slower_of: &[("array/1m", QUEUE)],   at_least: 1.0 },
    Target { name: "python-multiprocessing/array/64m/vs-queue",  of: ("array/64m", PIPEWORK_QUEUE),  slower_of: &[("array/64m", QUEUE)],  at_least: 5.0 },
    Target { name: "python-multiprocessing/array/64m/vs-pipe",   of: ("array/64m", PIPEWORK_PIPE),   slower_of: &[("array/64m", PIPE)],   at_least: 1.0 },
    Target { name: "python-multiprocessing/submit/1m/vs-pool",   of: ("submit/1m", PIPEWORK_POOL),   slower_of: &[("submit/1m", STANDARD_POOL)], at_least: 1.0 },
    Target { name: "python-multiprocessing/submit/64m/vs-pool",  of: ("submit/64m", PIPEWORK_POOL),  slower_of: &[("submit/64m", STANDARD_POOL)], at_least: 5.0 },
];

/// A limit on time is its inverse here: within 3 times of shared memory by hand is a third of its
/// speed.
#[rustfmt::skip]
pub const BLOB_TARGETS: &[Target] = &[
    Target { name: "python-blob/chain/1mb/vs-queue",           of: ("chain/1mb", PIPEWORK),       slower_of: &[("chain/1mb", QUEUE)],          at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/vs-connection",      of: ("chain/1mb", PIPEWORK),       slower_of: &[("chain/1mb", CONNECTION)],     at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/vs-pyzmq",           of: ("chain/1mb", PIPEWORK),       slower_of: &[("chain/1mb", ZEROMQ)],         at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/vs-by-hand",         of: ("chain/1mb", PIPEWORK),       slower_of: &[("chain/1mb", BY_HAND)],        at_least: 0.333 },
    Target { name: "python-blob/chain/1mb/blobs-vs-by-hand",   of: ("chain/1mb", BLOBS),          slower_of: &[("chain/1mb", BY_HAND)],        at_least: 0.333 },
    Target { name: "python-blob/chain/1mb/busy/vs-queue",      of: ("chain/1mb/busy", PIPEWORK),  slower_of: &[("chain/1mb/busy", QUEUE)],     at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/busy/vs-connection", of: ("chain/1mb/busy", PIPEWORK),  slower_of: &[("chain/1mb/busy", CONNECTION)], at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/busy/vs-pyzmq",      of: ("chain/1mb/busy", PIPEWORK),  slower_of: &[("chain/1mb/busy", ZEROMQ)],    at_least: 1.0 },
    Target { name: "python-blob/chain/1mb/busy/vs-by-hand",    of: ("chain/1mb/busy", PIPEWORK),  slower_of: &[("chain/1mb/busy", BY_HAND)],   at_least: 0.333 },
    Target { name: "python-blob/chain/64mb/vs-queue",          of: ("chain/64mb", PIPEWORK),      slower_of: &[("chain/64mb", QUEUE)],         at_least: 1.0 },
    Target { name: "python-blob/chain/64mb/vs-connection",     of: ("chain/64mb", PIPEWORK),      slower_of: &[("chain/64mb", CONNECTION)],    at_least: 1.0 },
    Target { name: "python-blob/chain/64mb/vs-pyzmq",          of: ("chain/64mb", PIPEWORK),      slower_of: &[("chain/64mb", ZEROMQ)],        at_least: 1.0 },
    Target { name: "python-blob/chain/64mb/vs-by-hand",        of: ("chain/64mb", PIPEWORK),      slower_of: &[("chain/64mb", BY_HAND)],       at_least: 0.333 },
    Target { name: "python-blob/chain/64mb/blobs-vs-by-hand",  of: ("chain/64mb", BLOBS),         slower_of: &[("chain/64mb", BY_HAND)],       at_least: 0.333 },
    Target { name: "python-blob/array/64m/vs-queue",           of: ("array/64m", PIPEWORK),       slower_of: &[("array/64m", QUEUE)],          at_least: 20.0 },
    Target { name: "python-blob/array/64m/vs-by-hand",         of: ("array/64m", PIPEWORK),       slower_of: &[("array/64m", BY_HAND)],        at_least: 0.333 },
    Target { name: "python-blob/submit/64m/vs-pool",           of: ("submit/64m", PIPEWORK),      slower_of: &[("submit/64m", POOL)],          at_least: 5.0 },
    Target { name: "python-blob/result/64m/vs-pool",           of: ("result/64m", PIPEWORK),      slower_of: &[("result/64m", POOL)],          at_least: 5.0 },
];

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "python/call/vs-connection",          of: ("call/12", PIPEWORK),       slower_of: &[("call/12", CONNECTION)],       at_least: 40.0 },
    Target { name: "python/await/12x1/vs-streams",       of: ("await/12x1", ASYNCIO),     slower_of: &[("await/12x1", ASYNCIO_STREAMS)], at_least: 1.0 },
    Target { name: "python/await/12x64/vs-call",         of: ("await/12x64", ASYNCIO),    slower_of: &[("await/12x64", PIPEWORK)],    at_least: 0.12 },
    Target { name: "python/stream/100/1w/vs-connection", of: ("stream/100/1w", PIPEWORK), slower_of: &[("stream/100/1w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/100/4w/vs-connection", of: ("stream/100/4w", PIPEWORK), slower_of: &[("stream/100/4w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/900/1w/vs-connection", of: ("stream/900/1w", PIPEWORK), slower_of: &[("stream/900/1w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/900/4w/vs-connection", of: ("stream/900/4w", PIPEWORK), slower_of: &[("stream/900/4w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/5k/1w/vs-connection",  of: ("stream/5k/1w", PIPEWORK),  slower_of: &[("stream/5k/1w", CONNECTION)],  at_least: 1.0 },
    Target { name: "python/stream/5k/4w/vs-connection",  of: ("stream/5k/4w", PIPEWORK),  slower_of: &[("stream/5k/4w", CONNECTION)],  at_least: 1.0 },
    Target { name: "python/stream/64k/1w/vs-connection", of: ("stream/64k/1w", PIPEWORK), slower_of: &[("stream/64k/1w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/64k/4w/vs-connection", of: ("stream/64k/4w", PIPEWORK), slower_of: &[("stream/64k/4w", CONNECTION)], at_least: 1.0 },
    Target { name: "python/stream/1m/1w/vs-connection",  of: ("stream/1m/1w", PIPEWORK),  slower_of: &[("stream/1m/1w", CONNECTION)],  at_least: 1.0 },
    Target { name: "python/stream/1m/4w/vs-connection",  of: ("stream/1m/4w", PIPEWORK),  slower_of: &[("stream/1m/4w", CONNECTION)],  at_least: 1.0 },
    Target { name: "python/execute/1/vs-pool",           of: ("execute/1", PIPEWORK),     slower_of: &[("execute/1", POOL)],           at_least: 3.0 },
    Target { name: "python/execute/1024/vs-pool",        of: ("execute/1024", PIPEWORK),  slower_of: &[("execute/1024", POOL)],        at_least: 3.0 },
    Target { name: "python/log/4p/vs-queue",             of: ("log/4p", PIPEWORK),        slower_of: &[("log/4p", QUEUE_HANDLER)],     at_least: 5.0 },
    Target { name: "python/log/4p/vs-concurrent",        of: ("log/4p", PIPEWORK),        slower_of: &[("log/4p", CONCURRENT_LOG_HANDLER)], at_least: 5.0 },
];

/// The cases of the module `python`, ready to run.
pub fn cases() -> Vec<Case> {
    ready(DEFINITIONS)
}

/// The cases of the module `python-blob`, ready to run.
pub fn blob_cases() -> Vec<Case> {
    ready(BLOB_DEFINITIONS)
}

/// The cases of the module `python-multiprocessing`, ready to run.
pub fn object_cases() -> Vec<Case> {
    ready(OBJECT_DEFINITIONS)
}

fn ready(definitions: &'static [Definition]) -> Vec<Case> {
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: contenders(definition.job),
    };
    definitions.iter().map(case).collect()
}

fn contenders(job: Job) -> Vec<Contender> {
    let contender = |name, shape, engine, ops, bytes, many| {
        let rounds_at_most = match name {
            RAY => ROUNDS_OF_RAY,
            _ if shape == "idle" => ROUNDS_OF_IDLE,
            _ if bytes < LARGE => usize::MAX,
            _ => ROUNDS_OF_LARGE,
        };
        let work = move || run(shape, engine, ops, bytes, many);
        Contender { name, rounds_at_most, run: Box::new(work) }
    };
    match job {
        Job::Calls { bytes } => CALLS
            .iter()
            .map(|&(name, engine, calls)| contender(name, "call", engine, calls, bytes, 1))
            .collect(),
        Job::Threads { bytes, threads } => [(PIPEWORK, USUAL), (FREE, WITHOUT_LOCK)]
            .map(|(name, python)| {
                let work = move || run_by(python, "threads", "pipework", 100_000, bytes, threads);
                Contender { name, rounds_at_most: usize::MAX, run: Box::new(work) }
            })
            .into(),
        Job::Awaited { bytes, tasks } => AWAITED
            .iter()
            .map(|&(name, engine, calls)| {
                let shape = if name == PIPEWORK { "call" } else { "await" };
                contender(name, shape, engine, calls, bytes, tasks)
            })
            .collect(),
        Job::Idle { tasks } => AWAITED
            .iter()
            .filter(|(name, ..)| *name != PIPEWORK)
            .map(|&(name, engine, _)| contender(name, "idle", engine, IDLE_SECONDS, 12, tasks))
            .collect(),
        Job::Stream { bytes, writers } => {
            let share = |share: f64| (messages(bytes) as f64 * share) as usize;
            let contender =
                |&(name, engine, part)| contender(name, "stream", engine, share(part), bytes, writers);
            STREAMS.iter().map(contender).collect()
        }
        Job::Tasks { bytes } => {
            let tasks = |most: usize| most.min(300_000_000 / bytes);
            let contender = |&(name, engine, most)| contender(name, "execute", engine, tasks(most), bytes, 2);
            EXECUTORS.iter().map(contender).collect()
        }
        Job::Logs { processes } => LOGS
            .iter()
            .map(|&(name, engine, most)| contender(name, "log", engine, most, RECORD, processes))
            .collect(),
        Job::Chain { bytes, busy } => {
            let calls = large(100, bytes);
            CHAIN.iter().map(|&(name, engine)| contender(name, "chain", engine, calls, bytes, busy)).collect()
        }
        Job::Array { bytes } => {
            let arrays = large(200, bytes);
            ARRAY.iter().map(|&(name, engine)| contender(name, "array", engine, arrays, bytes, 0)).collect()
        }
        Job::Submit { bytes } | Job::Return { bytes } => {
            let (tasks, shape) =
                (large(200, bytes), if matches!(job, Job::Submit { .. }) { "submit" } else { "result" });
            let contender = |&(name, engine, _)| contender(name, shape, engine, tasks, bytes, 1);
            EXECUTORS.iter().map(contender).collect()
        }
        Job::Queue { bytes, putters } => {
            let objects = some(10_000, bytes);
            QUEUES
                .iter()
                .map(|&(name, engine)| contender(name, "queue", engine, objects, bytes, putters))
                .collect()
        }
        Job::Pipe { bytes } => {
            let objects = some(5_000, bytes);
            PIPES.iter().map(|&(name, engine)| contender(name, "call", engine, objects, bytes, 1)).collect()
        }
        Job::Map { bytes, shape } => {
            let items = if shape == "execute" { 5_000 } else { some(100_000, bytes) };
            POOLS.iter().map(|&(name, engine)| contender(name, shape, engine, items, bytes, 2)).collect()
        }
        Job::ArrayObject { bytes } => {
            let arrays = some(200, bytes);
            ARRAY_OBJECTS
                .iter()
                .map(|&(name, engine)| contender(name, "array", engine, arrays, bytes, 0))
                .collect()
        }
        Job::ArrayTask { bytes } => {
            let tasks = some(200, bytes);
            POOLS.iter().map(|&(name, engine)| contender(name, "submit", engine, tasks, bytes, 1)).collect()
        }
    }
}

/// Enough for a few tenths of a second: up to 200,000 messages, and up to 200 MB.
fn messages(bytes: usize) -> usize {
    (200_000_000 / bytes).min(200_000)
}

/// So many operations, and fewer beyond 100 MB in all.
fn some(most: usize, bytes: usize) -> usize {
    (100 * MB / bytes).clamp(4, most)
}

/// So many operations of a megabyte, and fewer of larger ones.
fn large(most: usize, bytes: usize) -> usize {
    (most * MB / bytes).clamp(4, most)
}

/// One run of the script.
pub fn run(shape: &str, engine: &str, ops: usize, bytes: usize, many: usize) -> Result<Sample, Failure> {
    run_by(USUAL, shape, engine, ops, bytes, many)
}

/// A variable of the environment that names an interpreter, and the one that is taken without it.
type Python = (&'static str, &'static str);

const USUAL: Python = ("PIPEWORK_PYTHON", "python3");
const WITHOUT_LOCK: Python = ("PIPEWORK_FREE_PYTHON", "python3.14t");

/// One run of the script by that interpreter.
fn run_by(
    (variable, otherwise): Python,
    shape: &str,
    engine: &str,
    ops: usize,
    bytes: usize,
    many: usize,
) -> Result<Sample, Failure> {
    let python = env::var_os(variable).unwrap_or_else(|| otherwise.into());
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peer/python.py")).args([shape, engine]);
    script::run(command.args([ops, bytes, many].map(|number| number.to_string())), bytes)
}
