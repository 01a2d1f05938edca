//! Measures calls, with any carrier.
//!
//! Every process that takes part is forked, so that what a peer does to its process (threads,
//! signal handlers, files) stays there. Servers work before the clients begin, and clients call a
//! while before the clock starts. Each client takes the time on its own clock: the sample lasts
//! from the first one's beginning to the last one's end. An operation is a call with its reply; its
//! bytes are those of the request, and the reply is as long.

use std::collections::VecDeque;
use std::fs::File;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::machine::{pin, two_cpus};
use crate::measure::{Cost, Crew, Failure, Latency, Sample, cpu_time, now_ns};

/// The calls to make: their number and size, the processes and the CPUs.
#[derive(Clone, Copy)]
pub struct Job {
    /// Of a request, and of its reply.
    pub bytes: usize,
    /// Bytes that go along with a request by another way.
    pub moved: usize,
    pub clients: usize,
    pub servers: usize,
    /// Calls that a client has in progress at the same time.
    pub depth: usize,
    pub place: Place,
    pub cpus: Cpus,
}

/// The threads or processes of client and server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// One thread sends, answers and receives.
    OneThread,
    /// Two threads of one process.
    TwoThreads,
    /// A process for each client and each server.
    Processes,
}

/// Which CPUs the processes may use. Where both sides sleep, that decides: to be woken on the CPU
/// where the other side has just run takes a tenth of what it takes on another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    Any,
    /// All of them the same.
    One,
    /// Clients one, servers another.
    Two,
}

impl Cpus {
    pub fn pin(self, is_server: bool) -> Result<(), Failure> {
        let cpus = || two_cpus().ok_or("there is only one CPU");
        match self {
            Cpus::Any => {}
            Cpus::One => pin(cpus()?[0])?,
            Cpus::Two => pin(cpus()?[usize::from(is_server)])?,
        }
        Ok(())
    }
}

/// A way to carry calls. It is made before the processes are forked, and its ends in the processes
/// that use them.
pub trait Carrier {
    type Client: Client;
    type Server: Server;

    fn client(&self, nth: usize) -> Result<Self::Client, Failure>;

    fn server(&self, nth: usize) -> Result<Self::Server, Failure>;

    /// Asks the servers to end. False for servers that cannot be asked: those are killed.
    fn ask_to_end(&self) -> bool {
        false
    }
}

/// The calling end.
pub trait Client {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure>;

    /// Waits for the reply to the oldest request, and returns its length.
    fn receive(&mut self) -> Result<usize, Failure>;

    /// Sends and receives, for carriers that have one function for both.
    fn call(&mut self, request: &[u8]) -> Result<usize, Failure> {
        self.send(request)?;
        self.receive()
    }
}

/// The answering end.
pub trait Server {
    /// Waits for a request and sends its bytes back. Returns false if no request came and it was
    /// asked to end.
    fn answer(&mut self) -> Result<bool, Failure>;
}

/// The intended length of a contender's run.
const RUN: Duration = Duration::from_millis(100);
/// Calls with which each client begins to find out how many a run needs; fewer of large ones.
const PILOT_CALLS: u64 = 500;
/// Bytes up to which a request is not large in that sense.
const PILOT_BYTES: usize = 16 << 10;
/// Calls before the clock starts: at least as many as the pieces of memory that any contender uses in
/// turn.
const WARM_CALLS: u64 = 4;
/// No run needs more of them to tell one call in a thousand.
pub const LATENCIES: u64 = 8192;

/// A contender that runs in one thread, in threads or in processes.
pub fn anywhere<C: Carrier + 'static>(
    job: Job,
    make: impl Fn(&Job) -> Result<C, Failure> + 'static,
) -> Box<dyn FnMut() -> Result<Sample, Failure>>
where
    C::Server: Send + 'static,
{
    match job.place {
        Place::OneThread => steady(job, make, one_thread),
        Place::TwoThreads => steady(job, make, two_threads),
        Place::Processes => steady(job, make, processes),
    }
}

/// A contender whose ends must be in processes of their own.
pub fn between_processes<C: Carrier + 'static>(
    job: Job,
    make: impl Fn(&Job) -> Result<C, Failure> + 'static,
) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    assert!(job.place == Place::Processes, "this carrier has no threads to share");
    steady(job, make, processes)
}

/// Makes a carrier for each run, and as many calls in each as take [`RUN`].
fn steady<C: Carrier + 'static>(
    job: Job,
    make: impl Fn(&Job) -> Result<C, Failure> + 'static,
    run: fn(&Job, &C, u64) -> Result<Sample, Failure>,
) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    let mut known = None;
    Box::new(move || {
        let mut once = |calls| run(&job, &make(&job)?, calls);
        let calls = match known {
            Some(calls) => calls,
            None => *known.insert(calibrate(pilot(&job) * job.clients as u64, &mut once)?),
        };
        once(calls)
    })
}

fn pilot(job: &Job) -> u64 {
    let large = job.bytes.max(job.moved).div_ceil(PILOT_BYTES).max(1);
    PILOT_CALLS.div_ceil(large as u64)
}

/// How many calls take [`RUN`]. Short runs say little, so only one of a quarter of that is
/// believed.
pub fn calibrate(pilot: u64, mut run: impl FnMut(u64) -> Result<Sample, Failure>) -> Result<u64, Failure> {
    let mut calls = pilot;
    loop {
        let factor = RUN.div_duration_f64(run(calls)?.cost.wall);
        if factor <= 4.0 {
            return Ok(((calls as f64 * factor) as u64).max(pilot));
        }
        calls *= factor.min(64.0) as u64;
    }
}

fn one_thread<C: Carrier>(job: &Job, carrier: &C, calls: u64) -> Result<Sample, Failure> {
    let both = |nth| Ok(Both { client: carrier.client(nth)?, server: carrier.server(0)? });
    clients(job, calls, None, both)
}

fn two_threads<C: Carrier>(job: &Job, carrier: &C, calls: u64) -> Result<Sample, Failure>
where
    C::Server: Send + 'static,
{
    clients(job, calls, None, |nth| {
        let server = carrier.server(0)?;
        // The thread ends with its process.
        std::thread::spawn(move || {
            if let Err(why) = serve(server) {
                eprintln!("server: {why}");
                std::process::abort();
            }
        });
        carrier.client(nth)
    })
}

fn processes<C: Carrier>(job: &Job, carrier: &C, calls: u64) -> Result<Sample, Failure> {
    let mut servers = Crew::fork(job.servers, (), |nth, (), start| {
        job.cpus.pin(true)?;
        let server = carrier.server(nth)?;
        start.wait()?;
        serve(server)
    })?;
    servers.go();
    let sample = clients(job, calls, Some(&servers), |nth| carrier.client(nth))?;
    if carrier.ask_to_end() {
        servers.finish()?;
    }
    Ok(sample)
}

fn serve(mut server: impl Server) -> Result<(), Failure> {
    while server.answer()? {}
    Ok(())
}

/// Client and server in one thread: a request is answered when the client waits for its reply.
struct Both<C, S> {
    client: C,
    server: S,
}

impl<C: Client, S: Server> Client for Both<C, S> {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.client.send(request)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        self.server.answer()?;
        self.client.receive()
    }
}

/// The results of one client.
#[derive(Serialize, Deserialize)]
struct Findings {
    began_ns: u64,
    ended_ns: u64,
    cpu: Duration,
    latencies_ns: Vec<u64>,
}

/// Forks the clients, lets them make `calls` calls in all, and gathers their results and the CPU
/// time of the servers.
fn clients<C: Client>(
    job: &Job,
    calls: u64,
    servers: Option<&Crew>,
    make: impl Fn(usize) -> Result<C, Failure>,
) -> Result<Sample, Failure> {
    let each = calls / job.clients as u64;
    let papers = (0..job.clients)
        .map(|_| Ok(File::from(memfd_create("findings", MemfdFlags::CLOEXEC)?)))
        .collect::<Result<Vec<File>, Failure>>()?;
    let crew = Crew::fork(job.clients, (), |nth, (), start| {
        job.cpus.pin(false)?;
        let mut client = make(nth)?;
        drive(job, &mut client, (each / 8).max(WARM_CALLS))?;
        start.wait()?;
        Ok(serde_json::to_writer(&papers[nth], &drive(job, &mut client, each)?)?)
    })?;
    let used = || servers.map_or(Ok(Duration::ZERO), Crew::cpu_time);
    let before = used()?;
    crew.run(|| Ok(()))?;
    let cpu_here = used()? - before;
    let found = papers.into_iter().map(read_again).collect::<Result<Vec<Findings>, Failure>>()?;
    let began_ns = found.iter().map(|one| one.began_ns).min().ok_or("no client")?;
    let ended_ns = found.iter().map(|one| one.ended_ns).max().ok_or("no client")?;
    let cost = Cost {
        wall: Duration::from_nanos(ended_ns - began_ns),
        cpu_here,
        cpu_there: found.iter().map(|one| one.cpu).sum(),
        latency: latency(found.iter().flat_map(|one| &one.latencies_ns))?,
        ..Cost::default()
    };
    let ops = each * job.clients as u64;
    Ok(Sample { ops, bytes: ops * job.bytes as u64, wire: None, cost })
}

/// Makes `calls` calls. Of some that are spread evenly, no more than [`LATENCIES`], the clock is
/// asked: when the request is sent, and when the reply is there.
fn drive(job: &Job, client: &mut impl Client, calls: u64) -> Result<Findings, Failure> {
    let request: Vec<u8> = (0..job.bytes).map(|at| at as u8).collect();
    let stride = calls.div_ceil(LATENCIES);
    let mut latencies_ns = Vec::with_capacity(LATENCIES as usize);
    let mut bytes = 0;
    let (began_ns, cpu) = (now_ns(), cpu_time());
    if job.depth == 1 {
        let mut untimed = 0;
        for _ in 0..calls {
            if untimed > 0 {
                untimed -= 1;
                bytes += client.call(&request)?;
                continue;
            }
            untimed = stride - 1;
            let asked = Instant::now();
            bytes += client.call(&request)?;
            latencies_ns.push(asked.elapsed().as_nanos() as u64);
        }
    } else {
        let ahead = calls.min(job.depth as u64);
        let mut asked = VecDeque::with_capacity(job.depth);
        for nth in 0..calls + ahead {
            if nth >= ahead {
                bytes += client.receive()?;
                let asked: Option<Instant> = asked.pop_front().ok_or("a reply to nothing")?;
                latencies_ns.extend(asked.map(|asked| asked.elapsed().as_nanos() as u64));
            }
            if nth < calls {
                asked.push_back((nth % stride == 0).then(Instant::now));
                client.send(&request)?;
            }
        }
    }
    let (ended_ns, cpu) = (now_ns(), cpu_time() - cpu);
    let expected = calls as usize * job.bytes;
    if bytes != expected {
        return Err(format!("{bytes} bytes came back of {expected}").into());
    }
    Ok(Findings { began_ns, ended_ns, cpu, latencies_ns })
}

/// Reads the text that a child wrote into a file whose position it shares.
fn read_again(mut file: File) -> Result<Findings, Failure> {
    std::io::Seek::rewind(&mut file)?;
    Ok(serde_json::from_reader(std::io::BufReader::new(file))?)
}

pub fn latency<'a>(all_ns: impl Iterator<Item = &'a u64>) -> Result<Option<Latency>, Failure> {
    let mut histogram = Histogram::<u64>::new(3)?;
    for &ns in all_ns {
        histogram.record(ns)?;
    }
    let within = |share| histogram.value_at_quantile(share);
    Ok((!histogram.is_empty()).then(|| Latency { p50: within(0.5), p99: within(0.99), p999: within(0.999) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_makes_enough_calls_although_the_first_pilot_was_slow() {
        let cases =
            [(80, 1_250_000, 20), (1_000, 100_000, 20), (30_000, 3333, 0), (10_000_000, PILOT_CALLS, 0)];
        for (each_ns, calls, hiccup_ms) in cases {
            let mut hiccup = Duration::from_millis(hiccup_ms);
            let run = |calls: u64| {
                let wall = std::mem::take(&mut hiccup) + calls as u32 * Duration::from_nanos(each_ns);
                Ok(Sample { ops: calls, bytes: calls, wire: None, cost: Cost { wall, ..Cost::default() } })
            };
            let found = calibrate(PILOT_CALLS, run).expect("no run fails");
            assert!(found.abs_diff(calls) * 4 <= calls, "{found} calls of {each_ns} ns");
        }
    }

    #[test]
    fn latency_is_a_percentile_of_the_calls() {
        let all: Vec<u64> = (1..=1000).collect();
        assert_eq!(
            latency(all.iter()).expect("they are in range"),
            Some(Latency { p50: 500, p99: 990, p999: 999 })
        );
        assert_eq!(latency([].iter()).expect("nothing is in range"), None);
    }

    /// Counts its requests, and loses `lost` bytes of each reply.
    struct Echo {
        lens: std::collections::VecDeque<usize>,
        most: usize,
        lost: usize,
    }

    impl Client for Echo {
        fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
            self.lens.push_back(request.len());
            self.most = self.most.max(self.lens.len());
            Ok(())
        }

        fn receive(&mut self) -> Result<usize, Failure> {
            Ok(self.lens.pop_front().ok_or("nothing was sent")? - self.lost)
        }
    }

    #[test]
    fn calls_reach_the_depth_and_a_lost_byte_is_a_failure() {
        for (depth, calls, timed) in [(1, 20_000, 6667), (32, 20_000, 6667), (32, 5, 5)] {
            let job = Job {
                bytes: 12,
                moved: 0,
                clients: 1,
                servers: 1,
                depth,
                place: Place::OneThread,
                cpus: Cpus::Any,
            };
            let mut echo = Echo { lens: Default::default(), most: 0, lost: 0 };
            let found = drive(&job, &mut echo, calls).expect("it echoes");
            assert_eq!(echo.most as u64, (depth as u64).min(calls));
            assert_eq!(found.latencies_ns.len(), timed);
            echo.lost = 1;
            assert!(drive(&job, &mut echo, calls).is_err());
        }
    }
}
