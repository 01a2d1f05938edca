//! The module `deaths`: how long after SIGKILL a process learns that another one has died. Its cases
//! and targets, as data, and the processes that take part.
//!
//! An operation is one kill. A run starts this program again as the *caller*, which starts it again
//! as the *victim*: a server that takes a number of requests and then sleeps. The caller waits, a
//! thread of it kills the victim 5 to 305 ms later, and the time from there to the end of the wait
//! counts. The victim's standard input is a Unix socket, whose end of file is one of the contenders.

use std::env;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Subcommand;
use pipework::reqrep::{Client, Options, Segment, Ticket};
use pipework::{Deadline, ErrorKind};

use crate::measure::{Case, Contender, Cost, Failure, Latency, Sample};
use crate::report::Target;
use crate::script;

struct Definition {
    name: &'static str,
    quick: bool,
    /// Requests that the victim has.
    held: u32,
    /// Processes that only compute.
    busy: usize,
    /// Memory of the victim that was written to.
    resident: usize,
    /// Kills in each run.
    kills: u32,
}

const REPORTS: &str = "call";
const TICKS: &str = "call, without reports";
const SOCKET: &str = "Unix socket, end of file";

/// Contenders: the name in the table, and that of the wait.
const CONTENDERS: [(&str, &str); 7] = [
    (REPORTS, "call"),
    ("recv_any", "any"),
    ("tokio task", "task"),
    ("doorbell in epoll", "doorbell"),
    ("asyncio task", "asyncio"),
    (TICKS, "call"),
    (SOCKET, "socket"),
];

#[rustfmt::skip]
const DEFINITIONS: &[Definition] = &[
    Definition { name: "held/1",        quick: true,  held: 1,      busy: 0, resident: 0,       kills: 41 },
    Definition { name: "held/1/busy",   quick: true,  held: 1,      busy: 2, resident: 0,       kills: 41 },
    Definition { name: "held/1000",     quick: false, held: 1000,   busy: 0, resident: 0,       kills: 41 },
    Definition { name: "held/60000",    quick: false, held: 60_000, busy: 0, resident: 0,       kills: 41 },
    Definition { name: "held/1/4-gib",  quick: false, held: 1,      busy: 0, resident: 4 << 30, kills: 6 },
];

/// The goal: no later than twice the end of file of a Unix socket.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "deaths/held/1/vs-socket",      of: ("held/1", REPORTS),      slower_of: &[("held/1", SOCKET)],      at_least: 0.5 },
    Target { name: "deaths/held/1/busy/vs-socket", of: ("held/1/busy", REPORTS), slower_of: &[("held/1/busy", SOCKET)], at_least: 0.5 },
    Target { name: "deaths/held/1000/vs-socket",   of: ("held/1000", REPORTS),   slower_of: &[("held/1000", SOCKET)],   at_least: 0.5 },
    Target { name: "deaths/held/60000/vs-socket",  of: ("held/60000", REPORTS),  slower_of: &[("held/60000", SOCKET)],  at_least: 0.5 },
    Target { name: "deaths/held/1/vs-ticks",       of: ("held/1", REPORTS),      slower_of: &[("held/1", TICKS)],       at_least: 50.0 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let case = |definition: &'static Definition| Case {
        name: definition.name,
        quick: definition.quick,
        contenders: CONTENDERS
            .iter()
            // How late a tick is does not depend on the case.
            .filter(|(name, _)| *name != TICKS || definition.name == "held/1")
            .map(|contender| definition.contender(contender))
            .collect(),
    };
    DEFINITIONS.iter().map(case).collect()
}

impl Definition {
    fn contender(&'static self, &(name, wait): &'static (&str, &str)) -> Contender {
        Contender { name, rounds_at_most: 5, run: Box::new(move || self.run(name, wait)) }
    }

    /// One run of the caller, beside those that compute.
    fn run(&self, name: &str, wait: &str) -> Result<Sample, Failure> {
        let mut busy = Vec::new();
        for _ in 0..self.busy {
            busy.push(Ended(Command::new(env::current_exe()?).arg("busy").spawn()?));
        }
        let [held, resident, kills] = [u64::from(self.held), self.resident as u64, u64::from(self.kills)];
        let mut caller = match wait {
            "asyncio" => {
                let python = env::var_os("PIPEWORK_PYTHON").unwrap_or_else(|| "python3".into());
                let mut caller = Command::new(python);
                caller.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peer/deaths.py")).arg(env::current_exe()?);
                caller
            }
            _ => {
                let mut caller = Command::new(env::current_exe()?);
                caller.args(["caller", wait]);
                caller
            }
        };
        caller.args([held, resident, kills].map(|number| number.to_string()));
        if name == TICKS {
            caller.env("PIPEWORK_DEATH_THREAD", "off");
        }
        let mut took_ns: Vec<u64> =
            script::output(&mut caller)?.split_whitespace().flat_map(str::parse).collect();
        took_ns.sort_unstable();
        let last = took_ns.len().checked_sub(1).ok_or("no times came back")?;
        // Of so few, the last one is nearest to the 99.9th percentile.
        let latency = Latency { p50: took_ns[last / 2], p99: took_ns[last * 99 / 100], p999: took_ns[last] };
        let wall = Duration::from_nanos(took_ns.iter().sum());
        let ops = took_ns.len() as u64;
        Ok(Sample {
            ops,
            bytes: ops,
            wire: None,
            cost: Cost { wall, latency: Some(latency), ..Cost::default() },
        })
    }
}

/// A child that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---------------------------------------------------------------- processes

/// A process that takes part.
#[derive(Subcommand)]
pub enum Role {
    /// Waits for a victim to die, again and again, and prints the nanoseconds
    Caller { wait: String, held: u32, resident: usize, kills: u32 },
    /// Takes requests, says so, and sleeps
    Victim { path: String, held: u32, resident: usize },
    /// Computes
    Busy,
}

const PATIENCE: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_millis(1100);

impl Role {
    pub fn play(&self) -> Result<(), Failure> {
        match self {
            Role::Caller { wait, held, resident, kills } => call(wait, *held, *resident, *kills),
            Role::Victim { path, held, resident } => serve(path, *held, *resident),
            Role::Busy => loop {
                std::hint::spin_loop();
            },
        }
    }
}

fn serve(path: &str, held: u32, resident: usize) -> Result<(), Failure> {
    let server = Options::new().open(path)?.server()?;
    let memory = vec![1u8; resident];
    let mut requests = Vec::new();
    for _ in 0..held {
        requests.push(server.recv(PATIENCE)?);
    }
    println!("ready");
    thread::sleep(PATIENCE);
    Err(format!("not killed, with {} bytes", memory.len()).into())
}

fn call(wait: &str, held: u32, resident: usize, kills: u32) -> Result<(), Failure> {
    let path = format!("/dev/shm/pipework-bench-deaths-{}", std::process::id());
    let segment = Options::new().slots(held).request_bytes(8).reply_bytes(8).create(&path)?;
    // A process listens a second after it has waited for the first time.
    let began = Instant::now();
    let mut nth = 0;
    while began.elapsed() < SETTLED {
        kill_once(&segment, &path, wait, held, resident, nth)?;
        nth += 1;
    }
    let called = (0..kills).try_for_each(|nth| {
        let took = kill_once(&segment, &path, wait, held, resident, nth)?;
        println!("{}", took.as_nanos());
        Ok(())
    });
    fs::remove_file(&path)?;
    called
}

fn kill_once(
    segment: &Segment,
    path: &str,
    wait: &str,
    held: u32,
    resident: usize,
    nth: u32,
) -> Result<Duration, Failure> {
    let client = segment.client()?;
    let (mut near, far) = UnixStream::pair()?;
    let numbers = [held as usize, resident].map(|number| number.to_string());
    let mut victim = Command::new(env::current_exe()?);
    victim.args(["victim", path]).args(numbers).stdin(OwnedFd::from(far)).stdout(Stdio::piped());
    let mut child = Ended(victim.spawn()?);
    // The command has the other copy of the socket's far end.
    drop(victim);
    let mut last = client.send("", PATIENCE)?;
    for _ in 1..held {
        last = client.send("", PATIENCE)?;
    }
    let mut ready = [0; 6];
    child.0.stdout.take().ok_or("it has a standard output")?.read_exact(&mut ready)?;
    // The calls are of every age that a tick can have.
    let pause = Duration::from_millis(5 + u64::from(nth) * 37 % 300);
    let killer = thread::spawn(move || {
        thread::sleep(pause);
        let killed = Instant::now();
        child.0.kill().map(|()| (killed, child))
    });
    let ended = match wait {
        "call" => client.recv(last, PATIENCE).err().map(|error| error.kind()),
        "any" => client.recv_any(PATIENCE)?.and_then(|done| done.result.err()).map(|error| error.kind()),
        "task" => runtime()?.block_on(client.recv_async(last)).err().map(|error| error.kind()),
        "doorbell" => until_rung(&client, last)?,
        "socket" => near.read(&mut [0]).ok().filter(|len| *len == 0).map(|_| ErrorKind::PeerDied),
        other => return Err(format!("no wait {other}").into()),
    };
    let now = Instant::now();
    let (killed, _child) = killer.join().map_err(|_| "the killer has panicked")??;
    if ended != Some(ErrorKind::PeerDied) {
        return Err(format!("the wait ended with {ended:?}").into());
    }
    Ok(now - killed)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()
}

fn until_rung(client: &Client, ticket: Ticket) -> Result<Option<ErrorKind>, Failure> {
    use rustix::event::epoll;
    let (doorbell, poll) = (client.doorbell()?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
    epoll::add(&poll, doorbell.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    loop {
        match client.recv(ticket, Deadline::now()) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            ended => return Ok(ended.err().map(|error| error.kind())),
        }
        let mut events = [epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) }];
        epoll::wait(&poll, &mut events, None)?;
    }
}
