//! Promises P2 to P6, P12 and P13 between real processes: how forks, programs and signals affect a
//! segment, which processes count as dead and which as alive, and the costs of waiting.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Audit, Client, Options, Segment, Server};
use pipework::{Deadline, Error, ErrorKind};

use crate::harness::{Child, PATIENCE, PROMPT, awaited, fork, shared, tolerance};

mod alive;
mod dead;
mod foreign;
mod heirs;
mod lost;
mod many;
mod pieces;
mod reports;
mod waits;

/// Longer than the first four slices of a wait.
const SEVERAL_SLICES: Duration = Duration::from_millis(900);

fn options() -> Options {
    Options::new().slots(4).members(8).request_bytes(64).reply_bytes(64)
}

fn small() -> Segment {
    options().anonymous().expect("a segment")
}

fn kind<T, E: Into<Error>>(outcome: Result<T, E>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.into().kind())
}

/// Answers each request in capitals.
fn serve(server: &Server, requests: usize) {
    for _ in 0..requests {
        let request = server.recv(Deadline::NEVER).expect("a request");
        let answer = request.to_ascii_uppercase();
        request.reply(&answer).expect("it is this server's");
    }
}

/// Starts a process that serves until it is killed.
fn server(segment: &Segment) -> Child {
    fork(|| serve(&segment.server().expect("a place"), usize::MAX))
}

/// Starts a process that is attached as a server and does nothing.
fn idle_server(segment: &Segment) -> Child {
    let attached = &shared(1)[0];
    let idle = fork(|| {
        let _server = segment.server().expect("a place");
        attached.store(1, SeqCst);
        sleep_until_killed();
    });
    awaited(attached);
    idle
}

/// Starts a process that takes one request, sets `taken` to one more than the number of earlier
/// redeliveries, and answers the request when `may_answer` is set.
fn holder(segment: &Segment, taken: &AtomicU64, may_answer: &AtomicU64) -> Child {
    fork(|| hold(&segment.server().expect("a place"), taken, may_answer))
}

fn hold(server: &Server, taken: &AtomicU64, may_answer: &AtomicU64) {
    let request = server.recv(Deadline::NEVER).expect("a request");
    taken.store(u64::from(request.redeliveries()) + 1, SeqCst);
    awaited(may_answer);
    let answer = request.to_ascii_uppercase();
    assert_eq!(request.reply(&answer), Ok(true), "the caller still waits");
}

/// Sleeps until it is killed.
fn sleep_until_killed() {
    thread::sleep(PATIENCE);
    panic!("this process was not killed in time");
}

/// Checks that a wait for a process that was killed at that time is as short as promised.
fn assert_prompt(killed: Instant) -> Duration {
    let waited = killed.elapsed();
    assert!(waited < PROMPT + tolerance(), "waited {waited:?} for dead members");
    waited
}

/// Checks many such waits: one may be late on a busy machine, but not half of them.
fn assert_prompt_as_a_rule(mut waits: Vec<Duration>) {
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < PROMPT, "{waits:?}");
}

fn assert_answers(client: &Client, text: &str) {
    assert_eq!(*client.call(text, PATIENCE).expect("a reply"), *text.to_ascii_uppercase().as_bytes());
}

fn assert_all_free(segment: &Segment) {
    let mut audit = segment.audit().expect("the audit works");
    // Cancelled calls may have left entries in the ring.
    audit.entries = 0;
    let mut expected = Audit::default();
    expected.free = segment.geometry().slots as usize;
    assert_eq!(audit, expected);
}
