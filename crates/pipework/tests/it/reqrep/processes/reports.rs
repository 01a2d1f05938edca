//! The thread that hears of deaths: which processes have it, and for how long.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{Client, Segment};

use super::{holder, kind, small};
use crate::harness::{Child, PATIENCE, alone, awaited, fork, fork_past_handlers, shared};

const SHORT: Duration = Duration::from_millis(1);
/// Longer than a process waits before it listens.
const SETTLED: Duration = Duration::from_millis(1100);
/// Longer than the time between two ticks.
const A_TICK: Duration = Duration::from_millis(60);

/// Waits until this many threads of this process hear of deaths, and it has this many inotify
/// instances. A new thread gets its name when it first runs.
fn assert_listening(expected: (usize, usize)) {
    let began = Instant::now();
    while listening() != expected {
        assert!(began.elapsed() < PATIENCE, "{:?} instead of {expected:?}", listening());
        std::thread::sleep(SHORT);
    }
}

/// The two numbers.
fn listening() -> (usize, usize) {
    let links = entries("/proc/self/fd").filter_map(|fd| fs::read_link(fd).ok());
    let instances = links.filter(|link| link.to_string_lossy().contains("inotify"));
    (threads().count(), instances.count())
}

/// The folders of the threads that hear of deaths.
fn threads() -> impl Iterator<Item = PathBuf> {
    let name = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap_or_default();
    entries("/proc/self/task").filter(move |task| name(task).trim() == "pipework-deaths")
}

fn entries(folder: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).unwrap().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Waits until these threads wait for the next report, without a limit. Until then they may have the
/// allocator's lock, and a child without fork handlers would inherit that.
fn await_idle_threads() {
    let is_idle = |task: PathBuf| {
        let call = fs::read_to_string(task.join("syscall")).unwrap_or_default();
        let mut fields = call.split(' ');
        fields.next() == Some(&libc::SYS_ppoll.to_string()) && fields.nth(2) == Some("0x0")
    };
    until(|| threads().all(is_idle));
}

fn wait_briefly(client: &Client) {
    let ticket = client.send("", PATIENCE).unwrap();
    assert_eq!(kind(client.recv(ticket, SHORT)), Some(ErrorKind::TimedOut));
    assert_eq!(client.cancel(ticket), Ok(None));
}

/// Waits so often that this process listens.
fn settle(client: &Client) {
    wait_briefly(client);
    std::thread::sleep(SETTLED);
    wait_briefly(client);
}

#[test]
fn process_listens_a_second_after_its_first_wait_until_its_last_handle_is_dropped() {
    alone(|| {
        wait_briefly(&small().client().unwrap());
        assert_listening((0, 0));
        std::thread::sleep(SETTLED);
        // The instance stays for the next time.
        for instances in [0, 1] {
            let (one, other) = (small(), small());
            let clients = [one.client().unwrap(), one.client().unwrap(), other.client().unwrap()];
            // No thread has waited.
            assert_listening((0, instances));
            clients.iter().for_each(wait_briefly);
            assert_listening((1, 1));
            let [first, second, third] = clients;
            drop((first, third, other));
            // The second does not listen.
            assert_listening((0, 1));
            std::thread::sleep(A_TICK);
            wait_briefly(&second);
            // It takes the place of the first.
            assert_listening((1, 1));
            drop((second, one));
            assert_listening((0, 1));
        }
    });
}

#[test]
fn two_processes_listen_and_another_takes_the_place_of_one_that_dies() {
    alone(|| {
        let (segment, counts) = (small(), shared(3));
        let start = |nth: usize| {
            fork(|| {
                let client = segment.client().unwrap();
                loop {
                    wait_briefly(&client);
                    counts[nth].store(listening().0 as u64, SeqCst);
                }
            })
        };
        let mut children: Vec<_> = (0..3).map(|nth| Some(start(nth))).collect();
        let listen = || -> Vec<bool> { counts.iter().map(|count| count.load(SeqCst) == 1).collect() };
        until(|| listen().iter().filter(|listens| **listens).count() == 2);
        let first = listen().iter().position(|listens| *listens).unwrap();
        children[first].take().unwrap().kill();
        until(|| (0..3).all(|nth| nth == first || listen()[nth]));
        children.into_iter().flatten().for_each(Child::kill);
    });
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(SHORT);
    }
}

#[test]
fn server_that_waits_for_requests_does_not_listen() {
    alone(|| {
        let server = small().server().unwrap();
        assert_eq!(kind(server.recv(SHORT)), Some(ErrorKind::TimedOut));
        assert_eq!(kind(server.recv(SETTLED)), Some(ErrorKind::TimedOut));
        assert_listening((0, 0));
    });
}

#[test]
fn forked_child_listens_by_itself_once_it_waits() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        settle(&client);
        // The tick of the inherited handle is due.
        std::thread::sleep(A_TICK);
        let in_child = || {
            let inherited = listening();
            assert!(inherited == (0, 0) || inherited == (0, 1), "without handlers the first use closes it");
            settle(&client);
            assert_listening((1, 1));
            assert_hears(&segment, &client);
        };
        fork(in_child).join();
        await_idle_threads();
        fork_past_handlers(in_child).join();
        assert_listening((1, 1));
        assert_hears(&segment, &client);
    });
}

/// Has a server die with a request of this client.
fn assert_hears(segment: &Segment, client: &Client) {
    let [taken, never] = shared(2) else { unreachable!("two were asked for") };
    let ticket = client.send("a", PATIENCE).unwrap();
    let server = holder(segment, taken, never);
    awaited(taken);
    server.kill();
    assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
}

#[test]
fn files_that_are_opened_and_closed_all_the_time_take_a_small_share_of_a_cpu() {
    alone(|| {
        let folder = crate::harness::Folder::new();
        let segment = super::options().create(folder.join("segment")).unwrap();
        let client = segment.client().unwrap();
        settle(&client);
        assert_listening((1, 1));
        let ticket = client.send("", PATIENCE).unwrap();
        let stop = &shared(1)[0];
        let closing = fork(|| {
            while stop.load(SeqCst) == 0 {
                drop(fs::File::open(folder.join("segment")).unwrap());
            }
        });
        let (before, began) = (crate::harness::cost().0, Instant::now());
        assert_eq!(kind(client.recv(ticket, Duration::from_secs(1))), Some(ErrorKind::TimedOut));
        let (used, passed) = (crate::harness::cost().0 - before, began.elapsed());
        stop.store(1, SeqCst);
        closing.join();
        // The rule is a twentieth for the looks; waking up and reading the reports come on top.
        assert!(used < passed / 4, "{used:?} of {passed:?}");
    });
}
