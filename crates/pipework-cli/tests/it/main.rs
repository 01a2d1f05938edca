//! The real binary, run as its users run it: through shells, pipes, FIFOs and signals.
//!
//! No test depends on time: each waits on a pipe for the event that must come first. The only long
//! sleeps are in processes that the test ends before.

mod send_recv;
mod recv_jobs;
mod fifo;
mod locations;
mod streams;
mod run;
mod jobs;
mod tee;
mod serve;
mod queue;
mod orphans;
mod call;
mod terminal;
mod ls;
mod top;
mod doctor;
mod broadcast;
mod bench;
mod demo;
mod nats;
mod pages;
mod examples;
mod usage;
mod still;
mod every;

use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, thread};

const PIPEWORK: &str = env!("CARGO_BIN_EXE_pipework");

/// A folder for one test, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cli-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// A shell that finds the binary as `pipework`, with the dispositions of signals that a terminal
/// gives: the tests may run under nohup, or in the background of a script, where a shell has SIGINT
/// and SIGQUIT ignored.
fn shell(folder: &Folder, script: &str) -> Command {
    let bin = Path::new(PIPEWORK).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("env");
    command.args(["--default-signal", "sh", "-c", script]);
    command.env("PATH", path).current_dir(&**folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn scripts_of_the_tests_ignore_no_signal() {
    let ignored = clean("sed -n 's/^SigIgn:\t//p' /proc/self/status");
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    // glibc keeps 32 and 33 to itself, so no program can change what it has inherited for them.
    let of_glibc = 1 << 31 | 1 << 32;
    assert_eq!(ignored & !of_glibc, 0, "{ignored:x}");
}

/// Runs a shell script and returns its output and its status.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: Option<i32>,
    out: String,
    err: String,
}

fn sh(folder: &Folder, script: &str) -> Outcome {
    outcome(shell(folder, script).output().unwrap())
}

fn outcome(output: Output) -> Outcome {
    Outcome {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Reports that a test cannot run here, past the harness, which hides what a passing test prints;
/// `make test` lists it at its end.
fn left_out(what: &str, why: &str) {
    // In one write, because others print at the same time.
    let _ = io::stderr().write_all(format!("left out: {what}: {why}\n").as_bytes());
}

/// Whether `make test` leaves this test to `make test-all`, because of what it does many times or
/// waits for. `make test` counts such tests at its end.
fn left_to_test_all(why: &str) -> bool {
    let is_left = env::var_os("PIPEWORK_SHORT").is_some();
    if is_left {
        // As above, in one write.
        let line = format!("long: {}: {why}\n", thread::current().name().unwrap_or("a test"));
        let _ = io::stderr().write_all(line.as_bytes());
    }
    is_left
}

/// Runs a script that must succeed without a word on standard error; returns its output.
fn clean(script: &str) -> String {
    let outcome = sh(&Folder::new(), script);
    assert_eq!((outcome.status, &*outcome.err), (Some(0), ""), "{script}\n{}", outcome.out);
    outcome.out
}

/// Runs a script that must fail with this status and a message that holds all of `words`.
fn fails(status: i32, words: &[&str], script: &str) {
    let outcome = sh(&Folder::new(), script);
    assert_eq!(outcome.status, Some(status), "{script}: {outcome:?}");
    for word in words {
        assert!(outcome.err.contains(word), "{script}: no {word:?} in {:?}", outcome.err);
    }
}

/// The same for a command whose standard output has to be a pipe.
fn fails_in_pipe(status: i32, words: &[&str], command: &str) {
    fails(status, words, &format!("({command}; echo $? > status) | cat; exit $(cat status)"));
}
