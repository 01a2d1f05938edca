//! What is measured on: the make of the CPUs, how far they are from each other, the kernel.

use crate::progress::grouped;
use crate::sys;
use std::fs;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// CPUs whose distance from the first is measured.
const CPUS: usize = 16;
/// Times that a word goes there and back, and how often that is tried.
const TRIPS: u64 = 200;
const TRIES: usize = 30;
/// Somebody else has one of the CPUs.
const PATIENCE: Duration = Duration::from_millis(200);

/// The machine in a few lines.
pub(super) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok());
    format!(
        "machine: {}, Linux {}\n         {}\n{}",
        make(&read("/proc/cpuinfo")),
        read("/proc/sys/kernel/osrelease").trim(),
        distances(&sys::cpus()),
        load.map_or(String::new(), busy)
    )
}

/// What others do to the figures, by the number of threads that wanted to run in the last minute.
fn busy(load: f64) -> String {
    match load {
        0.5.. => format!("         others are busy on it (load {load}): the figures say less\n"),
        _ => String::new(),
    }
}

fn make(about: &str) -> String {
    let field = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.trim_start().strip_prefix(": ").map(str::to_owned);
        about.lines().find_map(value)
    };
    let part = |name, word: &str| field(name).map(|value| format!("{word} {value}"));
    let parts = [
        field("model name"),
        part("cpu family", "family"),
        part("model\t", "model"),
        part("CPU implementer", "implementer"),
        part("CPU part", "part"),
    ];
    match parts.into_iter().flatten().collect::<Vec<_>>() {
        parts if parts.is_empty() => std::env::consts::ARCH.into(),
        parts => parts.join(", "),
    }
}

/// How long a changed word takes from one CPU to the others.
fn distances(cpus: &[usize]) -> String {
    let Some((&first, others)) = cpus.split_first().filter(|(_, others)| !others.is_empty()) else {
        return "one CPU, which both sides share".into();
    };
    let times: Vec<u64> = others
        .iter()
        .take(CPUS)
        .filter_map(|&other| distance(first, other))
        .map(|time| time.as_nanos() as u64)
        .collect();
    let how_far = match (times.iter().min(), times.iter().max()) {
        (Some(near), Some(far)) if near == far => format!("{} ns", grouped(*near)),
        (Some(near), Some(far)) => format!("{} to {} ns", grouped(*near), grouped(*far)),
        _ => "an unknown time".into(),
    };
    format!("{} CPUs, a changed word takes {how_far} from one to another", cpus.len())
}

/// How long a word that one CPU has changed takes to the other, at best.
fn distance(one: usize, other: usize) -> Option<Duration> {
    // { number of trips, whose turn it is }: odd numbers are for the other side to make even.
    let word = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let answer = || {
        if sys::stay_on(other).is_err() {
            return;
        }
        while !over.load(Ordering::Relaxed) {
            let seen = word.load(Ordering::Acquire);
            match seen % 2 {
                1 => word.store(seen + 1, Ordering::Release),
                _ => hint::spin_loop(),
            }
        }
    };
    let ask = || {
        let mut best = None;
        if sys::stay_on(one).is_ok() {
            let begin = Instant::now();
            for turn in 0..TRIES as u64 {
                let start = Instant::now();
                for trip in 0..TRIPS {
                    let sent = (turn * TRIPS + trip) * 2 + 1;
                    word.store(sent, Ordering::Release);
                    let mut looks = 0u32;
                    while word.load(Ordering::Acquire) == sent {
                        hint::spin_loop();
                        looks += 1;
                        if looks.is_multiple_of(4096) && begin.elapsed() > PATIENCE {
                            over.store(true, Ordering::Relaxed);
                            return best;
                        }
                    }
                }
                let time = start.elapsed() / (2 * TRIPS as u32);
                best = Some(best.map_or(time, |best: Duration| best.min(time)));
            }
        }
        over.store(true, Ordering::Relaxed);
        best
    };
    thread::scope(|scope| {
        scope.spawn(answer);
        scope.spawn(ask).join().expect("it does not panic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_of_cpus() {
        let amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(make(amd), "AMD EPYC, family 26, model 2");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(make(arm), "implementer 0x41, part 0xd0c");
        assert_eq!(make(""), std::env::consts::ARCH);
    }

    #[test]
    fn a_busy_machine_is_told() {
        assert_eq!(busy(0.3), "");
        assert!(busy(7.5).contains("load 7.5"));
    }

    #[test]
    fn cpus_that_are_there_have_a_distance() {
        let cpus = sys::cpus();
        assert!(!cpus.is_empty());
        if let [one, other, ..] = cpus[..] {
            let time = distance(one, other);
            assert!(time.is_none_or(|time| time > Duration::ZERO), "{time:?}");
        }
        // Nobody has that many.
        assert_eq!(distance(cpus[0], 100_000), None);
        assert_eq!(distances(&cpus[..1]), "one CPU, which both sides share");
    }
}
