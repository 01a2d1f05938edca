//! Two machines with callers and workers each, and three servers in between, while workers, bridges
//! and servers are killed: every call gets a reply or an error, and none is carried out twice.
//!
//! PIPEWORK_NATS_CALLS says how many calls; PIPEWORK_PYTHON is a Python that has pipework, which
//! then calls and works, too.

use crate::harness::{Folder, Nats, Process, bridge, free_port, has_nats, wait_until};
use pipework::reqrep::{Options, Segment};
use pipework::{Deadline, ErrorKind};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Callers, of which three in four are at the first machine, and most workers at the second: so
/// most calls go from one to the other.
const CALLERS: usize = 16;
/// Calls of each Python caller.
const PYTHON_CALLS: u64 = 2000;
/// The numbers of Python's calls begin here.
const PYTHON: u64 = 1 << 40;

/// In a process of its own: writes down each number that it is asked with, and answers with its
/// complement.
#[test]
fn worker() {
    let Some(channel) = std::env::var_os("PIPEWORK_TEST_WORK") else { return };
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(std::env::var("PIPEWORK_TEST_LOG").unwrap())
        .unwrap();
    let server = Options::new().open(channel).unwrap().server().unwrap();
    loop {
        let request = server.recv(Deadline::NEVER).unwrap();
        let number: [u8; 8] = (*request).try_into().unwrap();
        log.write_all(&number).unwrap();
        // So that others are asked as well.
        thread::sleep(Duration::from_millis(1));
        let _ = request.reply(&(!u64::from_le_bytes(number)).to_le_bytes());
    }
}

const PYTHON_WORKER: &str = "
import sys, time
from pipework.reqrep import Server
log = open(sys.argv[2], 'ab', buffering=0)
for request in Server(sys.argv[1]):
    log.write(request.data)
    time.sleep(0.001)
    request.reply(bytes(byte ^ 255 for byte in request.data))
";

const PYTHON_CALLER: &str = "
import sys, time
from pipework.reqrep import Client
path, first, count, deadline = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
client = Client(path)
answered = told = 0
for number in range(first, first + count):
    request, begin = number.to_bytes(8, 'little'), time.monotonic()
    try:
        reply = client.call(request, timeout=deadline)
        assert bytes(byte ^ 255 for byte in reply) == request
        answered += 1
    except OSError as error:
        assert 'Died' in type(error).__name__ or isinstance(error, TimeoutError), repr(error)
        told += 1
    assert time.monotonic() - begin < deadline + 2
print(answered, told)
";

struct Machine {
    path: PathBuf,
    segment: Segment,
}

struct Cluster {
    folder: Folder,
    machines: [Machine; 2],
    ports: [u16; 3],
    routes: [u16; 3],
    urls: String,
    python: Option<String>,
    logs: AtomicU64,
}

impl Cluster {
    fn new() -> Cluster {
        let folder = Folder::new();
        let machines = ["one", "two"].map(|name| {
            let path = folder.0.join(name);
            Machine { segment: Options::new().create(&path).unwrap(), path }
        });
        let (ports, routes) = ([0; 3].map(|_| free_port()), [0; 3].map(|_| free_port()));
        let urls = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
        let python = std::env::var("PIPEWORK_PYTHON").ok().filter(|path| Path::new(path).exists());
        Cluster { folder, machines, ports, routes, urls, python, logs: AtomicU64::new(0) }
    }

    fn server(&self, idx: usize) -> Nats {
        let routes = self.routes.map(|port| format!("nats://127.0.0.1:{port}"));
        let options = ["--cluster", &routes[idx], "--cluster_name", "test", "--routes", &routes.join(",")];
        Nats::start_at(self.ports[idx], &options)
    }

    fn bridge(&self, idx: usize) -> Process {
        bridge("join", &self.machines[idx].path, &self.urls, &["--overflow", "0.001", "--silence", "2"])
    }

    fn worker(&self, idx: usize) -> Process {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.0.join(format!("log-{number}"));
        // Three of four are at the second machine, where one is a Python program.
        let path = &self.machines[idx.min(1)].path;
        if let (Some(python), 3) = (&self.python, idx) {
            return Process::start(Command::new(python).args(["-c", PYTHON_WORKER]).arg(path).arg(log));
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["cluster::worker", "--exact", "--nocapture"]).stdout(Stdio::null());
        // Its last words when its machine is gone.
        command.stderr(Stdio::null());
        Process::start(command.env("PIPEWORK_TEST_WORK", path).env("PIPEWORK_TEST_LOG", log))
    }

    /// How often each number was carried out.
    fn carried_out(&self) -> HashMap<u64, u64> {
        let mut times = HashMap::new();
        for entry in fs::read_dir(&self.folder.0).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_name().to_string_lossy().starts_with("log-") {
                continue;
            }
            for number in fs::read(entry.path()).unwrap().chunks_exact(8) {
                *times.entry(u64::from_le_bytes(number.try_into().unwrap())).or_default() += 1;
            }
        }
        times
    }
}

/// The results of calls.
#[derive(Default)]
struct Tally {
    answered: Mutex<Vec<u64>>,
    told: Mutex<BTreeMap<String, u64>>,
    longest: Mutex<Duration>,
}

impl Tally {
    fn call(&self, client: &pipework::reqrep::Client, number: u64) {
        let begin = Instant::now();
        match client.call(&number.to_le_bytes(), DEADLINE) {
            Ok(reply) => {
                assert_eq!(*reply, (!number).to_le_bytes());
                self.answered.lock().unwrap().push(number);
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::TimedOut), "{error}");
                *self.told.lock().unwrap().entry(format!("{:?}", error.kind())).or_default() += 1;
            }
        }
        let mut longest = self.longest.lock().unwrap();
        *longest = begin.elapsed().max(*longest);
    }
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// A random number.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[test]
fn killing_workers_bridges_and_servers_loses_and_repeats_no_call() {
    if !has_nats() {
        return;
    }
    let calls = setting("PIPEWORK_NATS_CALLS", 4000);
    let cluster = Cluster::new();
    let mut servers = [0, 1, 2].map(|idx| Some(cluster.server(idx)));
    let mut bridges = [0, 1].map(|idx| cluster.bridge(idx));
    let mut workers = [0, 1, 2, 3].map(|idx| cluster.worker(idx));
    let python: Vec<_> = (cluster.python.iter().flat_map(|python| [(python, 0), (python, 1)]))
        .map(|(python, idx)| {
            let mut command = Command::new(python);
            let first = PYTHON + idx as u64 * PYTHON_CALLS;
            command.args(["-c", PYTHON_CALLER]).arg(&cluster.machines[idx].path);
            command.args([first.to_string(), PYTHON_CALLS.to_string(), DEADLINE.as_secs().to_string()]);
            Process::start(command.stdout(Stdio::piped()))
        })
        .collect();

    let (tally, next, is_over) = (Tally::default(), AtomicU64::new(0), AtomicBool::new(false));
    let mut kills = BTreeMap::<&str, u64>::new();
    let begin = Instant::now();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let client = cluster.machines[usize::from(caller % 4 == 0)].segment.client().unwrap();
                let (tally, next) = (&tally, &next);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= calls {
                            break;
                        }
                        tally.call(&client, number);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            callers.into_iter().for_each(|caller| drop(caller.join()));
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100 + random() % 400));
            let idx = random() as usize;
            match random() % 8 {
                0 => {
                    let server = servers[idx % 3].take();
                    drop(server);
                    thread::sleep(Duration::from_millis(random() % 500));
                    servers[idx % 3] = Some(cluster.server(idx % 3));
                    *kills.entry("servers").or_default() += 1;
                }
                1 | 2 => {
                    bridges[idx % 2].kill();
                    bridges[idx % 2] = cluster.bridge(idx % 2);
                    *kills.entry("bridges").or_default() += 1;
                }
                _ => {
                    workers[idx % 4].kill();
                    workers[idx % 4] = cluster.worker(idx % 4);
                    *kills.entry("workers").or_default() += 1;
                }
            }
        }
    });
    let took = begin.elapsed();

    // Python's callers go on for as long as they have numbers, now without deaths.
    for caller in python {
        let Process(child) = &mut { caller };
        assert!(child.wait().unwrap().success());
        let mut text = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
        eprintln!("python: answered and told {}", text.trim());
    }
    // Their memory stays the same.
    let steady = |first: u64| {
        thread::scope(|scope| {
            for caller in 0..4 {
                let client = cluster.machines[caller as usize % 2].segment.client().unwrap();
                let tally = &tally;
                scope.spawn(move || {
                    (0..calls / 16)
                        .for_each(|turn| tally.call(&client, first + caller * (calls / 16) + turn));
                });
            }
        });
        bridges.each_ref().map(Process::memory)
    };
    let (before, after) = (steady(1 << 32), steady(1 << 33));
    for (before, after) in before.iter().zip(after) {
        assert!(after < before + 4096, "{before} and then {after} kB");
    }

    let (answered, told) = (tally.answered.lock().unwrap(), tally.told.lock().unwrap());
    let longest = *tally.longest.lock().unwrap();
    eprintln!(
        "{} answered, {told:?} told, {kills:?} killed, {longest:?} the longest call, {took:?}; bridges {after:?} kB",
        answered.len()
    );
    assert_eq!(answered.len() as u64 + told.values().sum::<u64>(), calls + 8 * (calls / 16));
    assert!(longest < DEADLINE + Duration::from_secs(2), "{longest:?}");
    assert!(answered.len() as u64 > calls * 9 / 10, "hardly any call got through");
    let carried_out = cluster.carried_out();
    let twice: Vec<_> = carried_out.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(answered.iter().all(|number| carried_out.contains_key(number)));
    wait_until("all slots are free", || {
        cluster.machines.iter().all(|machine| {
            machine.segment.recover().is_ok() && machine.segment.audit().is_ok_and(|audit| audit.free == 256)
        })
    });
}
