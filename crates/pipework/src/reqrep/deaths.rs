//! Every kind of wait that a death ends, without ticks: only a report of the kernel can end it.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::tests::block_on;
use super::{Client, ClientOptions, Options, Segment, Server, Ticket};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::segment::deaths::held::{HELD, has_thread, listens, settle};
use crate::segment::mapping::LISTENERS;
use crate::sys::fault::{Fault, Turn, all_met, fork, order, wait};
use crate::sys::{self, Errno, For, memory};

/// After this time a wait counts as forgotten.
const GUARD: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1);
/// How long a waiter has to park. If it parks later, the test only shows less.
const SETTLE: Duration = Duration::from_millis(4);

fn segment() -> Segment {
    Options::new().slots(4).members(8).request_bytes(64).reply_bytes(64).anonymous().unwrap()
}

/// Looks until this process listens for the segment. It does not begin while the thread of the last
/// listener, which may be another test's, is about to end.
fn listen(segment: &Segment, look: impl Fn()) {
    let file = segment.shared().identity();
    let limit = Deadline::after(GUARD);
    loop {
        settle();
        look();
        if listens(Some(file)) {
            return;
        }
        assert!(!limit.has_passed(), "this process listens");
        thread::sleep(SHORT);
    }
}

/// A client that is listed for news, and has no ticks.
fn client(segment: &Segment, options: &ClientOptions) -> Client {
    let client = segment.client_with(options).unwrap();
    let liveness = client.sender().liveness();
    listen(segment, || _ = liveness.look_after([0], "test").unwrap());
    liveness.tick().stop();
    client
}

fn server(segment: &Segment) -> Server {
    let server = segment.server().unwrap();
    let liveness = server.serving().liveness();
    listen(segment, || {
        liveness.awaits_client();
        liveness.look_after(None, "test").unwrap();
    });
    liveness.tick().stop();
    server
}

/// Runs `wait` in a thread, then `die`, and returns what the wait returned.
fn woken<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static, die: impl FnOnce()) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(wait()));
    thread::sleep(SETTLE);
    die();
    ended.recv_timeout(GUARD).expect("the death was reported")
}

/// A child that has a server take `requests`, and then lives until the returned sender is dropped.
struct Dying {
    pid: i32,
    end: OwnedFd,
}

impl Dying {
    fn serving(segment: &Segment, requests: usize) -> Dying {
        Dying::with(|| {
            let server = ManuallyDrop::new(segment.server().unwrap());
            (0..requests).for_each(|_| std::mem::forget(server.recv(GUARD).unwrap()));
        })
    }

    /// A child that runs `act`, and dies without leaving what it forgot.
    fn with(act: impl FnOnce()) -> Dying {
        let [(ready, is_ready), (ended, end)] = [sys::pipe().unwrap(), sys::pipe().unwrap()];
        let mut end = Some(end);
        let pid = fork(|| {
            drop(end.take());
            act();
            sys::write(is_ready.as_fd(), b"y", sys::Blocking::Native).unwrap();
            let _ = sys::wait(&[ended.as_fd()], For::Reading, Deadline::NEVER);
        });
        drop(is_ready);
        assert_eq!(sys::read(ready.as_fd(), &mut [0]), Ok(1), "it is ready");
        Dying { pid, end: end.expect("only the child has closed it") }
    }

    fn die(self) {
        drop(self.end);
        wait(self.pid);
    }
}

/// Keeps this process from listening.
fn lock_of_a_listener(segment: &Segment) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", segment.shared().file().as_raw_fd());
    let file = OwnedFd::from(File::options().read(true).write(true).open(path).unwrap());
    let is_free = |byte: &&u64| memory::try_lock(file.as_fd(), **byte) == Ok(true);
    assert_eq!(LISTENERS.iter().filter(is_free).count(), 1, "another process has the other one");
    file
}

fn send(client: &Client) -> Ticket {
    client.try_send("a").unwrap().expect("a slot is free")
}

#[test]
fn report_of_a_death_ends_every_wait_for_a_reply() {
    let _turn = Turn::alone();
    type Wait = fn(&Client, Ticket) -> Option<ErrorKind>;
    let waits: [(&str, Wait); 4] = [
        ("recv", |client, ticket| client.recv(ticket, Deadline::NEVER).err().map(|error| error.kind())),
        ("recv_any", |client, _| {
            let done = client.recv_any(Deadline::NEVER).unwrap().expect("a call");
            done.result.err().map(|error| error.kind())
        }),
        ("task", |client, ticket| block_on(client.recv_async(ticket)).err().map(|error| error.kind())),
        ("doorbell", |client, ticket| {
            let doorbell = client.doorbell().unwrap();
            sys::wait(&[doorbell.as_fd()], For::Reading, Deadline::NEVER).unwrap();
            client.recv(ticket, Deadline::now()).err().map(|error| error.kind())
        }),
    ];
    for (name, wait) in waits {
        let segment = segment();
        let client = client(&segment, &ClientOptions::new());
        let ticket = send(&client);
        let dying = Dying::serving(&segment, 1);
        let ended = woken(move || wait(&client, ticket), || dying.die());
        assert_eq!(ended, Some(ErrorKind::PeerDied), "{name}");
    }
}

#[test]
fn report_of_a_death_brings_a_request_to_the_next_server() {
    let _turn = Turn::alone();
    let segment = segment();
    let client = client(&segment, &ClientOptions::new().redeliveries(1));
    send(&client);
    let dying = Dying::serving(&segment, 1);
    let next = server(&segment);
    let request = woken(move || next.recv(Deadline::NEVER).map(|request| request.to_vec()), || dying.die());
    assert_eq!(request, Ok(b"a".to_vec()));
}

#[test]
fn report_of_a_clients_death_gives_its_slots_to_a_client_that_waits() {
    let _turn = Turn::alone();
    let segment = segment();
    let dying = Dying::with(|| {
        let client = segment.client().unwrap();
        for _ in 0..4 {
            send(&client);
        }
        std::mem::forget(client);
    });
    let client = client(&segment, &ClientOptions::new());
    let sent = woken(move || client.send("b", Deadline::NEVER).map(drop), || dying.die());
    assert_eq!(sent, Ok(()));
}

#[test]
fn report_of_a_clients_death_ends_a_reply_in_parts() {
    let _turn = Turn::alone();
    let segment = segment();
    let server = server(&segment);
    let dying = Dying::with(|| {
        let client = segment.client().unwrap();
        std::mem::forget(client.stream("a", GUARD).unwrap());
        std::mem::forget(client);
    });
    let give = move || {
        let mut request = server.recv(GUARD).unwrap();
        assert_eq!(request.part("one", GUARD), Ok(true));
        // The client takes no part, so the next one waits for it.
        request.part("two", Deadline::NEVER)
    };
    assert_eq!(woken(give, || dying.die()), Ok(false));
}

#[test]
fn process_that_listens_wakes_those_of_other_processes() {
    let _turn = Turn::alone();
    let segment = segment();
    // In another process, so that this one does not listen.
    let listening = Dying::with(|| {
        for _ in 0..2 {
            std::mem::forget(client(&segment, &ClientOptions::new()));
        }
    });
    let client = segment.client().unwrap();
    let ticket = send(&client);
    let dying = Dying::serving(&segment, 1);
    // One listens in the child only, so one place is free: somebody else must have it.
    let held = lock_of_a_listener(&segment);
    let liveness = client.sender().liveness();
    liveness.look_after([ticket.idx()], "test").unwrap();
    liveness.tick().stop();
    let ended = woken(move || client.recv(ticket, Deadline::NEVER), || dying.die());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::PeerDied);
    drop(held);
    listening.die();
}

/// How many descriptors of the segment's file are above the inotify instance.
fn above_the_instance(segment: &Segment) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
    let open = open.filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, std::fs::read_link(entry.path()).ok()?))
    });
    let open: Vec<_> = open.collect();
    let instance =
        open.iter().find(|(_, file)| file.as_os_str() == "anon_inode:inotify").expect("it listens").0;
    let path = format!("/proc/self/fd/{}", segment.shared().file().as_raw_fd());
    let file = std::fs::read_link(path).unwrap();
    open.iter().filter(|(number, named)| *named == file && *number > instance).count()
}

/// The kernel closes the highest number first.
#[test]
fn dying_listener_loses_its_locks_before_the_inotify_instance_that_takes_long_to_close() {
    // In a process that has no instance yet.
    wait(fork(|| {
        let segment = segment();
        let [first, second] = [segment.client().unwrap(), segment.client().unwrap()];
        let liveness = first.sender().liveness();
        settle();
        liveness.look_after([0], "test").unwrap();
        // The locks of the two members, and the lock of a listener.
        assert_eq!(above_the_instance(&segment), 3);
        let third = segment.client().unwrap();
        assert_eq!(above_the_instance(&segment), 4);
        drop((second, third));
        assert_eq!(above_the_instance(&segment), 2);
        drop(first);
        assert_eq!(above_the_instance(&segment), 0);
    }));
}

/// A process without news has its ticks.
#[test]
fn call_ends_after_its_servers_death_where_the_kernel_cannot_report_it() {
    let _turn = Turn::alone();
    for call in ["inotify_init", "inotify_add_watch", "thread"] {
        // In a process that has asked for nothing yet.
        wait(fork(|| {
            let segment = segment();
            let client = segment.client().unwrap();
            let ticket = send(&client);
            let dying = Dying::serving(&segment, 1);
            order(call, 0, Fault::Errno(Errno::MFILE.number()));
            settle();
            let early = client.recv(ticket, SHORT).unwrap_err().kind();
            assert!(early == ErrorKind::TimedOut && all_met(), "{call}");
            dying.die();
            assert_eq!(client.recv(ticket, GUARD).unwrap_err().kind(), ErrorKind::PeerDied, "{call}");
        }));
    }
}

#[test]
fn thread_that_ends_gets_the_report_that_ends_it() {
    let _turn = Turn::alone();
    let (segment, other) = (segment(), segment());
    let client = client(&segment, &ClientOptions::new());
    let [(arrived, has_arrived), (go_on, goes_on), (left, has_left)] = [(); 3].map(|()| mpsc::channel());
    *HELD.lock().unwrap() = Some((arrived, goes_on));
    // This closes the file, and so the thread reads a report and comes back.
    drop(lock_of_a_listener(&segment));
    has_arrived.recv_timeout(GUARD).unwrap();
    let leaving = thread::spawn(move || {
        drop(client);
        left.send(()).unwrap();
    });
    while has_thread() {
        thread::yield_now();
    }
    // Without the report, dropping this would wait for ever.
    let next = ManuallyDrop::new(other.client().unwrap());
    let look = || next.sender().liveness().look_after([0], "test").unwrap();
    look();
    thread::sleep(SETTLE);
    go_on.send(()).unwrap();
    has_left.recv_timeout(GUARD).expect("the thread has ended");
    leaving.join().unwrap();
    // The next one listens now.
    while !listens(None) {
        look();
        thread::yield_now();
    }
    drop(ManuallyDrop::into_inner(next));
}
