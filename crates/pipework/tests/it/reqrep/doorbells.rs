//! Event loops at both ends of a segment, in processes that share nothing else and are killed,
//! stopped and forked meanwhile.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{Client, ClientOptions, Options, Segment, Server};
use rustix::event::{PollFlags, Timespec, epoll};

use crate::harness::{
    Folder, PATIENCE, PROMPT, Random, alone, awaited, descriptors, fork, is_ready, say, tolerance,
};
use crate::harness::{seed, shared, wait_for};

pub(super) fn open(folder: &Folder) -> Segment {
    Options::new().slots(8).open_or_create(folder.join("segment")).expect("a segment")
}

/// An event loop around one descriptor.
struct Loop {
    doorbell: OwnedFd,
    /// Set for edge-triggered notification, as tokio and similar runtimes use it.
    epoll: Option<OwnedFd>,
}

/// How an event loop is notified.
#[derive(Clone, Copy, PartialEq)]
enum Trigger {
    Level,
    Edge,
}

impl Loop {
    fn new(doorbell: OwnedFd, trigger: Trigger) -> Loop {
        let epoll = (trigger == Trigger::Edge).then(|| {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
            let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &doorbell, epoll::EventData::new_u64(0), edges).expect("epoll");
            epoll
        });
        Loop { doorbell, epoll }
    }

    fn wait(&self) {
        let Some(epoll) = &self.epoll else { return wait_for(&self.doorbell, PollFlags::IN) };
        wait_for(epoll, PollFlags::IN);
        let mut events = [const { MaybeUninit::uninit() }; 4];
        epoll::wait(epoll, &mut events, Some(&Timespec::default())).expect("epoll");
    }
}

/// Answers requests when the doorbell rings, for ever or `count` times. Each takes `work`.
fn serve_by_doorbell(server: &Server, trigger: Trigger, count: u64, work: Duration) {
    let events = Loop::new(server.doorbell().expect("a descriptor"), trigger);
    let mut served = 0;
    while served < count {
        events.wait();
        while let Some(request) = server.try_recv().expect("a segment in order") {
            let answer = request.to_vec();
            if !work.is_zero() {
                thread::sleep(work);
            }
            request.reply(&answer).expect("an answer");
            served += 1;
        }
    }
}

/// Makes `count` calls, up to `at_once` of them at the same time; returns how many ended with
/// PeerDied.
fn call_by_doorbell(client: &Client, trigger: Trigger, count: u32, at_once: usize) -> usize {
    let events = Loop::new(client.doorbell().expect("a descriptor"), trigger);
    let (mut open, mut sent, mut died) = (Vec::new(), 0, 0);
    while sent < count || !open.is_empty() {
        while sent < count
            && open.len() < at_once
            && let Some(ticket) = client.try_send(&sent.to_le_bytes()).expect("a segment in order")
        {
            open.push((ticket, sent));
            sent += 1;
        }
        events.wait();
        open.retain(|(ticket, number)| match client.try_recv(*ticket) {
            Ok(Some(reply)) => {
                assert_eq!(*reply, number.to_le_bytes());
                false
            }
            Ok(None) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PeerDied);
                died += 1;
                false
            }
        });
    }
    died
}

/// The threads of this process, by their numbers.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is there").map_while(Result::ok);
    tasks.map(|task| task.file_name().into_string().expect("a number")).collect()
}

/// Waits until there are `count` threads. A thread that has ended stays in `/proc` for a moment.
fn await_threads(count: usize) {
    await_that(|| threads().len() == count);
}

fn await_that(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
        thread::yield_now();
    }
}

// ---------------------------------------------------------------- event loops

#[test]
fn doorbells_ring_between_processes_that_share_only_a_path() {
    alone(|| {
        for trigger in [Trigger::Level, Trigger::Edge] {
            let folder = Folder::new();
            let serving = fork(|| {
                serve_by_doorbell(&open(&folder).server().expect("a place"), trigger, 3000, Duration::ZERO);
            });
            let client = open(&folder).client().expect("a place");
            let died =
                call_by_doorbell(&client, trigger, 1000, 1) + call_by_doorbell(&client, trigger, 2000, 8);
            serving.join();
            assert_eq!((died, client.segment().audit().expect("an audit").free), (0, 8));
        }
    });
}

#[test]
fn doorbell_rings_when_the_server_dies_with_the_request() {
    alone(|| {
        let (folder, taken) = (Folder::new(), shared(2));
        let segment = open(&folder);
        let doomed = |taken: &'static AtomicU64| {
            let folder = &folder;
            fork(move || {
                let server = open(folder).server().expect("a place");
                let _request = server.recv(PATIENCE).expect("a request");
                taken.store(1, SeqCst);
                thread::sleep(PATIENCE);
            })
        };
        let first = doomed(&taken[0]);
        let client = segment.client().expect("a place");
        let doorbell = client.doorbell().expect("a descriptor");
        let ticket = client.send("a", PATIENCE).expect("a slot");
        awaited(&taken[0]);
        assert!(!is_ready(&doorbell, PollFlags::IN, Duration::from_millis(5)));
        first.kill();
        assert!(is_ready(&doorbell, PollFlags::IN, PROMPT + tolerance()));
        assert_eq!(client.try_recv(ticket).map_err(|error| error.kind()).err(), Some(ErrorKind::PeerDied));
        // With redelivery, another server gets the request and is notified by its own doorbell.
        let second = doomed(&taken[1]);
        let client = segment.client_with(&ClientOptions::new().redeliveries(1)).expect("a place");
        let doorbell = client.doorbell().expect("a descriptor");
        let ticket = client.send("b", PATIENCE).expect("a slot");
        awaited(&taken[1]);
        let server = segment.server().expect("a place");
        let servers = server.doorbell().expect("a descriptor");
        assert!(!is_ready(&servers, PollFlags::IN, Duration::ZERO));
        second.kill();
        assert!(is_ready(&servers, PollFlags::IN, PROMPT + tolerance()));
        let request = server.try_recv().expect("a segment in order").expect("it rang");
        assert_eq!((&*request, request.redeliveries()), (&b"b"[..], 1));
        request.reply("c").expect("an answer");
        assert!(is_ready(&doorbell, PollFlags::IN, PATIENCE));
        assert_eq!(&*client.try_recv(ticket).expect("a reply").expect("it rang"), b"c");
    });
}

#[test]
fn calls_go_on_while_servers_are_killed_in_their_event_loops() {
    alone(|| {
        let (folder, seed) = (Folder::new(), seed());
        say(&format!("doorbells: PIPEWORK_SEED={seed}"));
        let mut random = Random::new(seed);
        let segment = open(&folder);
        let end = shared(1);
        let client = fork(|| {
            let client = open(&folder).client().expect("a place");
            let mut died = 0;
            while end[0].load(SeqCst) == 0 {
                died += call_by_doorbell(&client, Trigger::Level, 20, 8);
            }
            say(&format!("doorbells: {died} calls died with their servers"));
            assert!(died > 0, "20 were killed, most of them while serving");
        });
        let work = Duration::from_micros(200);
        let serve = || {
            fork(|| {
                serve_by_doorbell(&open(&folder).server().expect("a place"), Trigger::Level, u64::MAX, work)
            })
        };
        for _ in 0..20 {
            let answered = segment.stats().replies;
            let doomed = serve();
            await_that(|| segment.stats().replies > answered);
            thread::sleep(Duration::from_micros(random.below(40_000) as u64));
            doomed.kill();
        }
        let last = serve();
        end[0].store(1, SeqCst);
        client.join();
        last.kill();
        segment.recover().expect("a segment in order");
        assert_eq!(segment.audit().expect("an audit").free, 8);
        assert_eq!(segment.members().expect("members"), []);
    });
}

/// The wake-up goes to a thread of the stopped process. The next sleeping server finds the request
/// at the end of a slice.
#[test]
fn request_goes_to_another_server_when_the_woken_one_is_stopped() {
    alone(|| {
        let (folder, ready) = (Folder::new(), shared(1));
        let segment = open(&folder);
        let stopped = fork(|| {
            let server = open(&folder).server().expect("a place");
            let doorbell = server.doorbell().expect("a descriptor");
            assert!(server.try_recv().expect("a segment in order").is_none());
            thread::sleep(Duration::from_millis(20));
            ready[0].store(1, SeqCst);
            wait_for(&doorbell, PollFlags::IN);
        });
        awaited(&ready[0]);
        stopped.stop();
        let server = segment.server().expect("a place");
        thread::scope(|scope| {
            let client = segment.client().expect("a place");
            let call = scope.spawn(move || client.call("a", PATIENCE).map(|reply| reply.to_vec()));
            server.recv(PROMPT + tolerance()).expect("a request").reply("b").expect("an answer");
            assert_eq!(call.join().expect("no panic"), Ok(b"b".to_vec()));
        });
        stopped.kill();
    });
}

// ---------------------------------------------------------------- forks, threads and damage

#[test]
fn forked_child_asks_for_doorbells_of_its_own() {
    alone(|| {
        let segment = Options::new().anonymous().expect("a segment");
        let (mut clients, server) =
            (Some(segment.client().expect("a place")), segment.server().expect("a place"));
        let client = clients.as_ref().expect("the parent still has it");
        let (replies, requests) =
            (client.doorbell().expect("a descriptor"), server.doorbell().expect("a descriptor"));
        let ticket = client.send("parent's", PATIENCE).expect("a slot");
        let child = fork(|| {
            let (client, before) = (clients.take().expect("it was inherited"), descriptors());
            assert!(client.try_recv(ticket).is_err_and(|error| error.kind() == ErrorKind::Stale));
            let own = client.doorbell().expect("a descriptor");
            let ticket = client.send("child's", PATIENCE).expect("a slot");
            wait_for(&own, PollFlags::IN);
            assert_eq!(&*client.try_recv(ticket).expect("a reply").expect("it rang"), b"child's");
            assert!(!is_ready(&own, PollFlags::IN, Duration::ZERO));
            drop((own, client));
            // The child's thread closes its descriptors as it ends, and no call waits for that.
            await_threads(1);
            // The lock of the child's membership has been opened and closed as well.
            assert_eq!(descriptors(), before);
        });
        let client = clients.expect("only the child took its copy");
        for _ in 0..2 {
            wait_for(&requests, PollFlags::IN);
            let request = server.recv(PATIENCE).expect("a request");
            let answer = request.to_vec();
            request.reply(&answer).expect("an answer");
        }
        child.join();
        wait_for(&replies, PollFlags::IN);
        assert_eq!(&*client.try_recv(ticket).expect("a reply").expect("it rang"), b"parent's");
        assert!(server.try_recv().expect("a segment in order").is_none());
        assert!(
            !is_ready(&requests, PollFlags::IN, Duration::ZERO)
                && !is_ready(&replies, PollFlags::IN, Duration::ZERO)
        );
    });
}

#[test]
fn doorbell_threads_start_on_demand_and_end_with_their_handles() {
    alone(|| {
        let before = threads();
        let segment = Options::new().slots(1).anonymous().expect("a segment");
        let (client, server) = (segment.client().expect("a place"), segment.server().expect("a place"));
        client.send("a", PATIENCE).expect("a slot");
        await_threads(before.len());
        let other = client.clone();
        let doorbells = [client.doorbell(), other.doorbell(), client.send_doorbell(), server.doorbell()];
        // One for each kind of descriptor, and one that hears of deaths.
        await_threads(before.len() + 4);
        // The library's threads block all signals except those that an access to the segment may
        // raise.
        for watch in threads().iter().filter(|thread| !before.contains(thread)) {
            let blocked = || {
                let status =
                    fs::read_to_string(format!("/proc/self/task/{watch}/status")).expect("/proc is there");
                let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
                u64::from_str_radix(mask.trim(), 16).expect("a number")
            };
            let is_blocked = |signal: i32| blocked() >> (signal - 1) & 1 == 1;
            // A thread starts with all signals blocked.
            await_that(|| !is_blocked(libc::SIGBUS) && !is_blocked(libc::SIGSEGV));
            assert!([libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGCHLD].into_iter().all(is_blocked));
        }
        drop(client);
        await_threads(before.len() + 4);
        // The server's thread rests, the others are parked in the segment. Dropping a handle waits
        // for no slice to end.
        wait_for(doorbells[3].as_ref().expect("a descriptor"), PollFlags::IN);
        drop((other, server));
        await_threads(before.len());
        assert!(doorbells.iter().all(Result::is_ok));
    });
}

#[test]
fn file_that_is_cut_short_does_not_kill_doorbell_threads() {
    alone(|| {
        let (folder, before) = (Folder::new(), threads().len());
        let segment = open(&folder);
        let (client, server) = (segment.client().expect("a place"), segment.server().expect("a place"));
        let doorbells = [client.doorbell(), client.send_doorbell(), server.doorbell()];
        let ticket = client.send("a", PATIENCE).expect("a slot");
        fs::File::options()
            .write(true)
            .open(folder.join("segment"))
            .and_then(|file| file.set_len(0))
            .expect("a file");
        // Longer than a slice: by now each thread has looked at the file.
        thread::sleep(Duration::from_millis(120));
        assert!(client.try_recv(ticket).is_err_and(|error| error.kind() == ErrorKind::Corrupt));
        assert!(server.try_recv().is_err_and(|error| error.kind() == ErrorKind::Corrupt));
        drop((client, server, doorbells));
        await_threads(before);
    });
}

/// The senders in the queue look for damage in turn, so none needs a slice of its own for that.
#[test]
fn all_queued_senders_get_corrupt_in_time() {
    alone(|| {
        let folder = Folder::new();
        let segment = open(&folder);
        let client = segment.client().expect("a place");
        while client.try_send("a").expect("nothing is damaged").is_some() {}
        thread::scope(|scope| {
            let waiting = [(); 100].map(|()| scope.spawn(|| client.send("b", PATIENCE)));
            thread::sleep(Duration::from_millis(100));
            fs::File::options()
                .write(true)
                .open(folder.join("segment"))
                .and_then(|file| file.set_len(0))
                .expect("a file");
            let began = Instant::now();
            for ended in waiting.map(|waiting| waiting.join().expect("no panic")) {
                assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
            }
            assert!(began.elapsed() < PROMPT + tolerance(), "{:?}", began.elapsed());
        });
    });
}
