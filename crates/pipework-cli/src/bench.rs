//! `pipework bench`: the modules beside the kernel's own means, on the machine at hand.
//!
//! The two contenders of each case run in turns, and a table shows the results. Numbers that a page
//! quotes come from `bench/` of the project, which keeps records of them.

mod args;
mod cases;
mod figures;

use crate::failure::Failure;
use crate::progress::say;
use crate::streams;
use crate::table::{Align, table};
use cases::{CASES, Case, Sample};
use figures::{Figures, time, times};
use std::fs;
use std::io::{LineWriter, Write};
use std::thread;
use std::time::Duration;

pub(crate) use args::{BENCH_PEER, BenchArgs, BenchPeerArgs, HELP};

/// An odd number, so that the results have a median.
const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(200);
const QUICK_TIME: Duration = Duration::from_millis(20);

/// Runs `pipework bench`.
pub(crate) fn bench(args: &BenchArgs, quiet: bool) -> Result<u8, Failure> {
    let mut out = LineWriter::new(streams::stdout()?);
    if !quiet && streams::stderr().is_terminal() {
        say("less than a minute of work for two processors; Ctrl-C ends it");
    }
    write!(out, "{}", machine()).map_err(Failure::stdout)?;
    for case in CASES.iter().filter(|case| args.modules.is_empty() || args.modules.contains(&case.module)) {
        let figures = measure(case, args.quick)?;
        write!(out, "\n{}\n{}", case.title, rows(case, &figures)).map_err(Failure::stdout)?;
    }
    Ok(0)
}

/// The kernel, the number of CPUs that this process may use, and a warning if other programs use
/// them.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("machine: Linux {}, CPUs: {cpus}\n{}", kernel.trim(), load.map_or(String::new(), busy))
}

/// A warning if other programs disturb the measurement. `load` is the number of threads that wanted to
/// run in the last minute.
fn busy(load: f64) -> String {
    match load {
        0.5.. => format!("         other programs are using it (load {load}), which distorts the results\n"),
        _ => String::new(),
    }
}

/// Is the other process.
pub(crate) fn peer(args: &BenchPeerArgs) -> Result<u8, Failure> {
    cases::peer(args)?;
    Ok(0)
}

/// Runs both contenders of a case, in turns.
fn measure(case: &Case, quick: bool) -> Result<Vec<Figures>, Failure> {
    let (rounds, time) = if quick { (1, QUICK_TIME) } else { (ROUNDS, TIME) };
    let mut samples: Vec<Vec<Sample>> = case.contenders.iter().map(|_| vec![]).collect();
    for _ in 0..rounds {
        for ((_, run), samples) in case.contenders.iter().zip(&mut samples) {
            samples.push(run(time)?);
        }
    }
    Ok(samples.iter().map(|samples| Figures::of(samples)).collect())
}

/// The table of a case.
fn rows(case: &Case, figures: &[Figures]) -> String {
    let row = |((name, _), found): (&cases::Contender, &Figures)| {
        let ratio = found.seconds / figures[0].seconds;
        [
            format!("  {name}"),
            time(found.seconds),
            format!("{:.0}", case.bytes as f64 / found.seconds / 1e6),
            time(found.cpu_seconds),
            format!("{:.0} %", found.spread * 100.0),
            if *name == case.contenders[0].0 { String::new() } else { times(ratio) },
        ]
    };
    let rows: Vec<[String; 6]> = case.contenders.iter().zip(figures).map(row).collect();
    let columns = [
        ("", Align::Left),
        ("each", Align::Right),
        ("MB/s", Align::Right),
        ("CPU", Align::Right),
        ("spread", Align::Right),
        ("pipework is", Align::Right),
    ];
    table(columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_fits_on_a_screen() {
        for case in &CASES {
            let figures: Vec<Figures> = case
                .contenders
                .iter()
                .map(|_| Figures { seconds: 123.4e-6, cpu_seconds: 123.4e-6, spread: 1.0 })
                .collect();
            let text = rows(case, &figures);
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
            assert!(text.ends_with("x 1.00\n"), "{text}");
        }
    }
}
