//! Rounds, medians and CPU time: the measuring that all modules share.
//!
//! The contenders of a case take turns, once each a round, so that a disturbance of the machine
//! affects all of them. A target compares two contenders within each round and takes the median of
//! those ratios. CPU is user plus system time of the process, read from the kernel just before and
//! just after the work, in every process that takes part; making and ending processes is not
//! counted. Nothing in this file depends on a module.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The reason why a contender cannot run: a missing peer or a failure. The table shows it; it does
/// not end the run.
pub type Failure = Box<dyn std::error::Error>;

/// Contenders that do the same work, to be compared with each other.
pub struct Case {
    pub name: &'static str,
    /// Whether a quick run includes it.
    pub quick: bool,
    pub contenders: Vec<Contender>,
}

/// One contender: a name and a closure that does the whole work once.
pub struct Contender {
    pub name: &'static str,
    /// A very slow peer takes part in the first rounds only.
    pub rounds_at_most: usize,
    pub run: Box<dyn FnMut() -> Result<Sample, Failure>>,
}

/// The work and the cost of one run of one contender.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub ops: u64,
    /// Payload bytes of all operations together, before any compression.
    pub bytes: u64,
    /// Bytes after compression, if the contender knows them.
    pub wire: Option<u64>,
    pub cost: Cost,
}

/// Time on the clock, CPU time on either side, and how long single operations took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall: Duration,
    /// CPU of the measuring process: the reader, or all of it where there is one process only.
    /// Where calls are measured, of the servers.
    pub cpu_here: Duration,
    /// CPU of all other processes together: the writers. Where calls are measured, of the clients.
    pub cpu_there: Duration,
    /// Times of single operations, if the contender measured any.
    pub latency: Option<Latency>,
    /// The share of the messages that arrived, if some were lost.
    pub arrived: Option<f64>,
}

/// Nanoseconds within which half, 99 % and 99.9 % of the operations were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
}

impl Latency {
    /// Those of one way, where there and back was measured.
    pub fn halved(self) -> Latency {
        Latency { p50: self.p50 / 2, p99: self.p99 / 2, p999: self.p999 / 2 }
    }
}

/// All samples of one contender, or the reason why it has none.
pub struct Series {
    pub name: &'static str,
    pub samples: Vec<Sample>,
    pub absent: Option<String>,
}

/// Runs every contender once a round. A contender that fails is not run again; its reason is kept.
pub fn interleaved(contenders: &mut [Contender], rounds: usize) -> Vec<Series> {
    let mut all: Vec<Series> = contenders
        .iter()
        .map(|contender| Series { name: contender.name, samples: Vec::new(), absent: None })
        .collect();
    for round in 0..rounds {
        for (contender, series) in contenders.iter_mut().zip(&mut all) {
            if series.absent.is_some() || round >= contender.rounds_at_most {
                continue;
            }
            match (contender.run)() {
                Ok(sample) => series.samples.push(sample),
                Err(why) => series.absent = Some(why.to_string()),
            }
        }
    }
    all
}

/// The middle value; the mean of the two middle ones where their number is even. `None` of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Measures `work` in this process alone.
pub fn alone<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Cost), Failure> {
    let (cpu, start) = (cpu_time(), Instant::now());
    let made = work()?;
    Ok((made, Cost { wall: start.elapsed(), cpu_here: cpu_time() - cpu, ..Cost::default() }))
}

/// User plus system time that this process has used so far.
pub fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Measures how busy the machine was with other work: a run beside a compiler says little, and its
/// record should show that.
pub struct Meter {
    since: Instant,
    others: f64,
}

impl Meter {
    pub fn start() -> Meter {
        Meter { since: Instant::now(), others: cpu_of_others().unwrap_or(f64::NAN) }
    }

    /// Cores that other processes kept busy since the start, on average. `None` where the kernel
    /// does not report it.
    pub fn cores_of_others(&self) -> Option<f64> {
        let cores = (cpu_of_others()? - self.others) / self.since.elapsed().as_secs_f64();
        // Ticks are coarse, so the difference of a short run on an idle machine may be negative.
        (!cores.is_nan()).then_some(cores.max(0.0))
    }
}

/// CPU seconds that all processes but this one and its children have used since the machine started.
fn cpu_of_others() -> Option<f64> {
    let ticks = |fields: &mut dyn Iterator<Item = &str>| {
        fields.map(|field| field.parse().unwrap_or(0.0)).sum::<f64>()
    };
    let whole = std::fs::read_to_string("/proc/stat").ok()?;
    // user nice system idle iowait irq softirq steal: all but the two idle ones.
    let mut whole = whole.lines().next()?.split_whitespace().skip(1);
    let busy = ticks(&mut whole.by_ref().take(3)) + ticks(&mut whole.skip(2).take(3));
    let own = std::fs::read_to_string("/proc/self/stat").ok()?;
    // User and system time, of this process and of its reaped children: fields 14 to 17, counted
    // from behind the name.
    let own = ticks(&mut own.rsplit_once(')')?.1.split_whitespace().skip(11).take(4));
    Some((busy - own) / rustix::param::clock_ticks_per_second() as f64)
}

/// Forked processes that are ready to work and wait for the signal. They are killed and reaped if
/// this is dropped early.
pub struct Crew {
    pids: Vec<Pid>,
    /// Closed to say "go": all of them see end of file at once.
    go: Option<OwnedFd>,
    /// Closed to let them end. Taking a process apart costs the kernel more than a small job does,
    /// and must not be timed with it.
    leave: Option<OwnedFd>,
    reports: OwnedFd,
}

/// A member of the crew holds this until it is ready to work.
pub struct Start {
    go: OwnedFd,
    leave: OwnedFd,
    reports: OwnedFd,
    cpu_before: Duration,
}

/// A report is a tag and a number, small enough that a pipe never mixes two of them.
const REPORT_BYTES: usize = 9;
const READY: u8 = b'r';
const DONE: u8 = b'd';
/// A member that reports nothing for longer than this hangs because another one has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

impl Crew {
    /// Forks `members` processes, each running `work(nth, end, start)`, and waits until all of them
    /// have called [`Start::wait`].
    ///
    /// Each owns its copy of `end`, the writing end of something, and this process keeps none: so
    /// the reader sees end of file when the work is done, and not when the kernel has taken the
    /// last process apart. This process must not have started a thread: the children go on using
    /// the allocator.
    pub fn fork<E>(
        members: usize,
        end: E,
        work: impl Fn(usize, E, &mut Start) -> Result<(), Failure>,
    ) -> Result<Crew, Failure> {
        let (go_seen, go) = rustix::pipe::pipe()?;
        let (leave_seen, leave) = rustix::pipe::pipe()?;
        let (reports, report) = rustix::pipe::pipe()?;
        let mut crew = Crew { pids: Vec::with_capacity(members), go: Some(go), leave: Some(leave), reports };
        for nth in 0..members {
            // SAFETY: the process has one thread, so the child's copy of every lock and of the heap
            // is in a usable state.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error().into()),
                0 => {
                    // The child's copies of these ends would keep the signals from ever being seen.
                    drop((crew.go.take(), crew.leave.take()));
                    let (go, leave, reports) = (go_seen, leave_seen, report);
                    let start = Start { go, leave, reports, cpu_before: Duration::ZERO };
                    member(nth, end, start, work);
                }
                pid => crew.pids.push(Pid::from_raw(pid).expect("the pid of a child is positive")),
            }
        }
        drop(report);
        crew.collect(READY)?;
        Ok(crew)
    }

    /// Says "go", runs `work` here, and waits for the crew to finish.
    pub fn run<T>(mut self, work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Cost), Failure> {
        let go = self.go.take();
        let (made, mut cost) = alone(move || {
            drop(go);
            work()
        })?;
        cost.cpu_there = self.finish()?;
        Ok((made, cost))
    }

    /// Says "go" to a crew that works beside another crew.
    pub fn go(&mut self) {
        drop(self.go.take());
    }

    /// CPU time that all members together have used so far.
    pub fn cpu_time(&self) -> Result<Duration, Failure> {
        let mut total = Duration::ZERO;
        for pid in &self.pids {
            let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
            total += Duration::from(clock_getcpuclockid(pid)?.now()?);
        }
        Ok(total)
    }

    /// Waits for the crew to finish, and returns the CPU time of its work.
    pub fn finish(mut self) -> Result<Duration, Failure> {
        let cpu = self.collect(DONE)?;
        drop(self.leave.take());
        for pid in std::mem::take(&mut self.pids) {
            waitpid(Some(pid), WaitOptions::empty())?;
        }
        Ok(cpu)
    }

    /// Takes one report of each member and adds their numbers up.
    fn collect(&self, expected: u8) -> Result<Duration, Failure> {
        let mut total_ns = 0;
        for _ in &self.pids {
            let mut report = [0; REPORT_BYTES];
            let mut reports = [PollFd::new(&self.reports, PollFlags::IN)];
            if rustix::io::retry_on_intr(|| poll(&mut reports, Some(&PATIENCE)))? == 0 {
                return Err("a process hung, and was ended".into());
            }
            let len = rustix::io::retry_on_intr(|| rustix::io::read(&self.reports, &mut report))?;
            if len != REPORT_BYTES || report[0] != expected {
                return Err("a process failed; its message is above".into());
            }
            total_ns += u64::from_ne_bytes(report[1..].try_into().expect("eight bytes follow the tag"));
        }
        Ok(Duration::from_nanos(total_ns))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for pid in self.pids.drain(..) {
            // Both can fail only because the child has already ended, as intended.
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

impl Start {
    /// Reports readiness, waits for "go" and starts counting this process's CPU.
    pub fn wait(&mut self) -> Result<(), Failure> {
        self.report(READY, Duration::ZERO)?;
        wait_for_end(&self.go)?;
        self.cpu_before = cpu_time();
        Ok(())
    }

    fn report(&self, tag: u8, time: Duration) -> Result<(), Failure> {
        let mut report = [tag; REPORT_BYTES];
        report[1..].copy_from_slice(&(time.as_nanos() as u64).to_ne_bytes());
        rustix::io::retry_on_intr(|| rustix::io::write(&self.reports, &report))?;
        Ok(())
    }
}

/// Waits until the other end is closed.
fn wait_for_end(signal: &OwnedFd) -> Result<(), Failure> {
    rustix::io::retry_on_intr(|| rustix::io::read(signal, &mut [0; 1]))?;
    Ok(())
}

/// The life of a forked process. It never returns: the caller's frames belong to the parent.
fn member<E>(
    nth: usize,
    end: E,
    mut start: Start,
    work: impl Fn(usize, E, &mut Start) -> Result<(), Failure>,
) -> ! {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // If the parent is killed, its children must not wait or spin for ever.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        work(nth, end, &mut start)?;
        start.report(DONE, cpu_time() - start.cpu_before)?;
        wait_for_end(&start.leave)
    }));
    let status = match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(why)) => {
            eprintln!("process {nth}: {why}");
            1
        }
        Err(_) => 1,
    };
    // SAFETY: always sound. Ordinary exit would write out the parent's buffered output a second
    // time.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn median_ignores_one_wild_value() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 1e9, 2.0]), Some(3.0));
    }

    #[test]
    fn interleaved_runs_contenders_in_turn_and_drops_a_failing_one() {
        let order = Rc::new(RefCell::new(String::new()));
        let sample = Sample { ops: 1, bytes: 1, wire: None, cost: Cost::default() };
        let contender = |name: &'static str, rounds_at_most, fails| {
            let order = Rc::clone(&order);
            let run = move || {
                order.borrow_mut().push_str(name);
                if fails { Err("not installed".into()) } else { Ok(sample) }
            };
            Contender { name, rounds_at_most, run: Box::new(run) }
        };
        let all = interleaved(
            &mut [contender("a", 9, false), contender("b", 9, true), contender("c", 2, false)],
            3,
        );
        assert_eq!(*order.borrow(), "abcaca");
        assert_eq!(all[0].samples.len(), 3);
        assert_eq!(all[1].absent.as_deref(), Some("not installed"));
        assert_eq!(all[2].samples.len(), 2);
    }
}
