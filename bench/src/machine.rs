//! The machine of a run: ratios differ between makes of CPU.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// Distinguishes makes where a virtual machine hides the name.
    #[serde(default)]
    pub make: String,
    pub cores: usize,
    /// Whether the first two CPUs are two threads of one core; virtual machines may not know.
    #[serde(default)]
    pub share_a_core: Option<bool>,
    pub kernel: String,
    pub page_bytes: usize,
    pub rustc: String,
    /// `release`, or `plain`, the profile of a program that sets nothing.
    #[serde(default)]
    pub profile: String,
}

impl Machine {
    pub fn this() -> Machine {
        let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let value =
                |line: &str| line.strip_prefix(name)?.trim_start().strip_prefix(": ").map(str::to_owned);
            about.lines().find_map(value)
        };
        let make = [field("vendor_id"), field("cpu family"), field("model")];
        let make = make.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        // The text behind the number is the name of a build, which is of no use.
        let number = kernel.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        Machine {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            make: if make.is_empty() { std::env::consts::ARCH.to_owned() } else { make },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            share_a_core: two_cpus().and_then(share_a_core),
            kernel: format!("Linux {number}"),
            page_bytes: rustix::param::page_size(),
            rustc: env!("BENCH_RUSTC").to_owned(),
            profile: env!("BENCH_PROFILE").to_owned(),
        }
    }

    /// The folder of this make's records: `amd-26-2`.
    pub fn folder(&self) -> String {
        let make = self.make.replace("AuthenticAMD", "amd").replace("GenuineIntel", "intel");
        make.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, make, cores, kernel, page_bytes, rustc, .. } = self;
        write!(out, "{cpu}")?;
        if !make.is_empty() {
            write!(out, " ({make})")?;
        }
        write!(out, ", {cores} CPUs")?;
        match self.share_a_core {
            Some(true) => write!(out, " of one core")?,
            Some(false) => write!(out, " on cores of their own")?,
            None => {}
        }
        write!(out, ", {kernel}, {page_bytes}-byte pages, {rustc}")?;
        if !self.profile.is_empty() {
            write!(out, ", profile {}", self.profile)?;
        }
        Ok(())
    }
}

/// The first two CPUs that this process may run on.
pub fn two_cpus() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    Some([cpus.next()?, cpus.next()?])
}

/// Keeps the calling thread, and what it forks, on this CPU.
pub fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)
}

fn share_a_core([one, other]: [usize; 2]) -> Option<bool> {
    let path = format!("/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(path).ok()?;
    let is_sibling = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse::<usize>().ok()?..=last.parse().ok()?).contains(&other))
    };
    siblings.trim().split(',').map(is_sibling).try_fold(false, |any, one| Some(any | one?))
}

/// How long a changed word takes from the first CPU to the second, in nanoseconds: two threads hand
/// a number to each other.
pub fn coherence_ns() -> Option<u64> {
    let [one, other] = two_cpus()?;
    const TURNS: u32 = 200_000;
    let word = AtomicU32::new(0);
    let play = |cpu, first: u32| {
        // A thread that could not be pinned still takes its turns, because the other waits for them.
        let pinned = pin(cpu).is_ok();
        let began = Instant::now();
        for turn in (first..TURNS).step_by(2) {
            while word.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            word.store(turn + 1, Ordering::Release);
        }
        pinned.then(|| began.elapsed())
    };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| play(other, 1));
        let here = scope.spawn(|| play(one, 0));
        let (there, here) = (there.join().ok()??, here.join().ok()??);
        Some(there.max(here).as_nanos() as u64 / u64::from(TURNS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_has_one_line_and_one_folder() {
        let mut machine = Machine::this();
        machine.make = "AuthenticAMD 26 2".to_owned();
        assert_eq!(machine.folder(), "amd-26-2");
        assert!(machine.to_string().contains("(AuthenticAMD 26 2), "), "{machine}");
        assert!(!machine.to_string().contains('\n'));
    }
}
