//! Peers in other languages: scripts that measure themselves, so that starting an interpreter is
//! not counted. Each run prints one line of five numbers: operations, bytes that came, seconds on
//! the clock, CPU seconds of the other processes and of the script's own.

use std::env;
use std::process::Command;
use std::time::Duration;

use crate::measure::{Cost, Failure, Sample};

/// One run of a script whose operations are so many bytes each.
pub fn run(command: &mut Command, bytes: usize) -> Result<Sample, Failure> {
    let numbers: Vec<f64> = output(command)?.split_whitespace().flat_map(str::parse).collect();
    let &[ops, came, wall, there, here] = &numbers[..] else {
        return Err("no five numbers came back".into());
    };
    if came as usize != ops as usize * bytes {
        return Err(format!("{came} bytes came of {}", ops as usize * bytes).into());
    }
    let [wall, cpu_there, cpu_here] = [wall, there, here].map(Duration::from_secs_f64);
    let cost = Cost { wall, cpu_here, cpu_there, ..Cost::default() };
    Ok(Sample { ops: ops as u64, bytes: came as u64, wire: None, cost })
}

/// What the command prints, or why it failed.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command.output().map_err(|_| format!("not installed: {name}"))?;
    if !ran.status.success() {
        return Err(why(&String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(String::from_utf8(ran.stdout)?)
}

/// One run of `peer/perl.pl`, by `perl` or the program that PIPEWORK_PERL names.
pub fn perl(shape: &str, engine: &str, ops: usize, bytes: usize) -> Result<Sample, Failure> {
    const ROOT: &str = env!("CARGO_MANIFEST_DIR");
    let mut perl = Command::new(env::var_os("PIPEWORK_PERL").unwrap_or_else(|| "perl".into()));
    // The folder where `perl/dev build` puts its results.
    perl.args(["lib", "arch"].map(|part| format!("-I{ROOT}/../perl/blib/{part}")));
    perl.arg(format!("{ROOT}/peer/perl.pl")).args([shape, engine]);
    run(perl.args([ops, bytes].map(|number| number.to_string())), bytes)
}

/// The missing module, or else the last line that the script printed.
fn why(text: &str) -> String {
    let after = |mark: &str| text.split_once(mark)?.1.split_whitespace().next();
    let missing = after("No module named ").or_else(|| after("Can't locate "));
    match missing {
        Some(module) => format!("not installed: {}", module.trim_matches('\'')),
        None => text.trim().lines().last().unwrap_or("it was ended").to_owned(),
    }
}
