//! Every event of the segment, with each combination of waiters that can park there together: each
//! waiter must be woken by an event. No slice ends here, so a waiter that misses its wake-up never
//! returns, and the test reports it after [`GUARD`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::tests::block_on;
use super::{Client, ClientOptions, Options, Segment, Server, Ticket};
use crate::deadline::Deadline;
use crate::sync::{AtomicU64, Ordering};
use crate::sys;

/// After this time a waiter counts as forgotten. On a busy machine too, a woken thread runs before
/// that.
const GUARD: Duration = Duration::from_secs(60);

/// How long waiters have to park. A waiter that parks later misses nothing; the test then only
/// shows less.
const SETTLE: Duration = Duration::from_millis(4);

fn client(segment: &Segment) -> Client {
    client_with(segment, &ClientOptions::new())
}

fn client_with(segment: &Segment, options: &ClientOptions) -> Client {
    let client = segment.client_with(options).unwrap();
    client.sender().liveness().tick().stop();
    client
}

fn server(segment: &Segment) -> Server {
    let server = segment.server().unwrap();
    server.serving().liveness().tick().stop();
    server
}

/// Waiters, each in its own thread, which report when they have been served. The threads are not
/// joined: a thread that is never woken must fail the test instead of hanging it.
struct Crowd<T> {
    report: Sender<T>,
    reports: Receiver<T>,
}

impl<T: Send + 'static> Crowd<T> {
    fn new() -> Crowd<T> {
        let (report, reports) = mpsc::channel();
        Crowd { report, reports }
    }

    fn add(&self, wait: impl FnOnce() -> T + Send + 'static) {
        let report = self.report.clone();
        thread::spawn(move || {
            // Fails once the test has ended.
            let _ = report.send(wait());
        });
    }

    fn next(&self, what: &str) -> T {
        self.reports.recv_timeout(GUARD).unwrap_or_else(|_| panic!("a waiter was not woken: {what}"))
    }

    fn is_quiet(&self) -> bool {
        self.reports.try_recv().is_err()
    }
}

/// All subsets of `kinds`, each in both orders.
fn picks<K: Copy>(kinds: &[K]) -> Vec<Vec<K>> {
    let pick =
        |mask: u32| kinds.iter().enumerate().filter(move |(n, _)| mask >> n & 1 == 1).map(|(_, kind)| *kind);
    (1..1 << kinds.len())
        .flat_map(|mask| {
            let forwards: Vec<K> = pick(mask).collect();
            let backwards: Vec<K> = forwards.iter().rev().copied().collect();
            [forwards, backwards]
        })
        .collect()
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GUARD);
        thread::sleep(Duration::from_micros(100));
    }
}

pub(super) fn is_rung(doorbell: &OwnedFd, deadline: impl Into<Deadline>) -> bool {
    sys::wait(&[doorbell.as_fd()], sys::For::Reading, deadline.into()).expect("poll")
}

// ---------------------------------------------------------------- replies

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// A thread in `recv_any`.
    Any,
    /// A task in `call_async`.
    Task,
    /// A thread in `call`.
    Call,
    /// An event loop behind the doorbell.
    Loop,
}

#[test]
fn each_waiter_for_a_reply_is_woken_beside_any_others() {
    use Receiving::{Any, Call, Loop, Task};
    // An event loop and a thread in `recv_any` want the same replies: the one that looks first gets
    // one.
    for kinds in picks(&[Any, Any, Task, Task, Call]).into_iter().chain(picks(&[Task, Call, Loop])) {
        let segment = Options::new().slots(8).members(8).anonymous().unwrap();
        let (client, server, crowd) = (client(&segment), server(&segment), Crowd::new());
        // A doorbell reports all calls that are in progress when it is made.
        let mut made = kinds.contains(&Loop).then(|| client.doorbell().unwrap());
        for kind in &kinds {
            let (kind, caller) = (*kind, client.clone());
            match kind {
                Any => drop(client.send(&[kind as u8], GUARD).unwrap()),
                Loop => drop(client.send(&[kind as u8], GUARD).unwrap()),
                Task | Call => {}
            }
            let doorbell = made.take_if(|_| kind == Loop);
            crowd.add(move || {
                match kind {
                    Any => drop(caller.recv_any(Deadline::NEVER).unwrap().expect("a call").result.unwrap()),
                    Task => drop(block_on(caller.call_async(&[kind as u8])).unwrap()),
                    Call => drop(caller.call(&[kind as u8], Deadline::NEVER).unwrap()),
                    Loop => assert!(is_rung(&doorbell.expect("it was made"), Deadline::NEVER)),
                }
                kind
            });
        }
        let requests: Vec<_> = kinds.iter().map(|_| server.recv(GUARD).unwrap()).collect();
        thread::sleep(SETTLE);
        for request in requests {
            let wanted = request[0];
            request.reply("").unwrap();
            let woken = crowd.next(&format!("{kinds:?}"));
            assert_eq!(woken as u8, wanted, "{kinds:?}");
        }
    }
}

/// Many calls, one after the other, beside a thread that waits for another call.
#[test]
fn task_is_woken_in_time_beside_a_thread_in_recv_any() {
    let segment = Options::new().slots(8).members(8).anonymous().unwrap();
    let (client, server, crowd) = (client(&segment), server(&segment), Crowd::new());
    client.send("another", GUARD).unwrap();
    let another = server.recv(GUARD).unwrap();
    let any = client.clone();
    crowd.add(move || drop(any.recv_any(Deadline::NEVER).unwrap().expect("a call").result.unwrap()));
    let tasks = Crowd::new();
    tasks.add(move || {
        for _ in 0..1000 {
            block_on(client.call_async("a")).unwrap();
        }
    });
    let answering = Crowd::new();
    let answerer = server.clone();
    answering.add(move || {
        for _ in 0..1000 {
            answerer.recv(Deadline::NEVER).unwrap().reply("b").unwrap();
        }
    });
    tasks.next("a task beside a thread in recv_any");
    another.reply("").unwrap();
    crowd.next("a thread in recv_any beside a task");
}

/// Other threads end the only call, so threads in `recv_any` have no call left to wait for.
#[test]
fn threads_in_recv_any_return_when_another_thread_ends_the_last_call() {
    type End = fn(&Client, &Server, Ticket);
    let ends: [(&str, End); 8] = [
        ("recv_any of another thread", |_, server, _| answer_one(server)),
        ("recv", |client, server, ticket| {
            thread::scope(|scope| {
                scope.spawn(|| client.recv(ticket, GUARD).map(drop));
                answer_one(server);
            });
        }),
        ("try_recv", |client, server, ticket| {
            answer_one(server);
            let _ = client.try_recv(ticket);
        }),
        ("cancel before a server has it", |client, _, ticket| {
            assert!(client.cancel(ticket).unwrap().is_none())
        }),
        ("cancel", |client, server, ticket| {
            let _request = server.recv(GUARD).unwrap();
            assert!(client.cancel(ticket).unwrap().is_none());
        }),
        ("forget", |client, server, ticket| {
            let _request = server.recv(GUARD).unwrap();
            client.forget(ticket).unwrap();
        }),
        ("forget_all", |client, _, _| assert_eq!(client.forget_all(), 1)),
        ("cancel of an answered call", |client, server, ticket| {
            answer_one(server);
            let _ = client.cancel(ticket);
        }),
    ];
    for (name, end) in ends {
        let segment = Options::new().slots(8).members(8).anonymous().unwrap();
        let (client, server, crowd) = (client(&segment), server(&segment), Crowd::new());
        let ticket = client.send("a", GUARD).unwrap();
        for _ in 0..3 {
            let client = client.clone();
            crowd.add(move || drop(client.recv_any(Deadline::NEVER).unwrap()));
        }
        thread::sleep(SETTLE);
        end(&client, &server, ticket);
        (0..3).for_each(|_| crowd.next(name));
    }
}

fn answer_one(server: &Server) {
    server.recv(GUARD).unwrap().reply("").unwrap();
}

// ---------------------------------------------------------------- slots

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitingSender {
    /// A thread in `send`.
    Thread,
    /// A task in `send_async`.
    Task,
    /// An event loop behind the descriptor for space.
    Loop,
}

/// Sends with a client, in a thread of its own.
fn send(crowd: &Crowd<(Client, Ticket)>, client: &Client, kind: WaitingSender) {
    let client = client.clone();
    crowd.add(move || {
        let ticket = match kind {
            WaitingSender::Thread => client.send("a", Deadline::NEVER).unwrap(),
            WaitingSender::Task => block_on(client.send_async("a")).unwrap(),
            WaitingSender::Loop => {
                let space = client.send_doorbell().unwrap();
                loop {
                    assert!(is_rung(&space, Deadline::NEVER));
                    if let Some(ticket) = client.try_send("a").unwrap() {
                        break ticket;
                    }
                }
            }
        };
        (client, ticket)
    });
}

/// Waiters of two clients.
fn senders() -> Vec<Vec<(usize, WaitingSender)>> {
    use WaitingSender::{Loop, Task, Thread};
    picks(&[(0, Thread), (0, Task), (0, Thread), (0, Loop), (1, Thread), (1, Task), (1, Loop)])
}

/// One slot, which each waiter frees for the next.
#[test]
fn each_waiter_for_a_slot_is_woken_beside_any_others() {
    for (kinds, is_limited) in senders().into_iter().flat_map(|kinds| [(kinds.clone(), false), (kinds, true)])
    {
        let segment = Options::new().slots(1).members(8).anonymous().unwrap();
        let options = ClientOptions::new().max_in_flight(is_limited.into());
        let clients = [(); 2].map(|()| client_with(&segment, &options));
        let held = clients[0].try_send("held").unwrap().expect("there is a slot");
        let crowd = Crowd::new();
        for (which, kind) in &kinds {
            send(&crowd, &clients[*which], *kind);
        }
        thread::sleep(SETTLE);
        let (mut holder, mut held) = (clients[0].clone(), held);
        for _ in &kinds {
            assert!(holder.cancel(held).unwrap().is_none());
            (holder, held) = crowd.next(&format!("{kinds:?}, limited {is_limited}"));
        }
        assert!(holder.cancel(held).unwrap().is_none());
        // The ring must not fill with ended calls, because these waiters do not wait for cells.
        assert!(segment.audit().unwrap().entries <= 2);
    }
}

/// A task is selected for the only slot and is not polled.
#[test]
fn slot_of_a_missing_task_goes_to_the_next_waiter_of_any_kind() {
    use WaitingSender::{Loop, Task, Thread};
    for kinds in picks(&[(0, Thread), (0, Task), (0, Loop)]) {
        let segment = Options::new().slots(1).members(8).anonymous().unwrap();
        let (client, holder) = (client(&segment), client(&segment));
        client.sender().liveness().tick().stop_slices();
        let mut held = (holder.clone(), holder.try_send("held").unwrap().expect("there is a slot"));
        let polls = Arc::new(Polls(AtomicU64::new(0), Mutex::default()));
        let waker = Waker::from(Arc::clone(&polls));
        let mut missing = Box::pin(client.send_async("missing"));
        assert!(missing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let crowd = Crowd::new();
        for (_, kind) in &kinds {
            send(&crowd, &client, *kind);
        }
        thread::sleep(SETTLE);
        for n in 0..kinds.len() {
            assert!(held.0.cancel(held.1).unwrap().is_none());
            held = crowd.next(&format!("{kinds:?}, the {n}th"));
        }
        assert_eq!(polls.0.load(Ordering::Relaxed), 1, "it was selected once");
        assert!(held.0.cancel(held.1).unwrap().is_none());
        // It is polled after all. The slot may be reserved for other clients for a moment.
        let began = Instant::now();
        while missing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            assert!(began.elapsed() < GUARD);
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A task is missing, and another one behind it is dropped: an event loop gets the slot.
#[test]
fn event_loop_is_rung_when_the_tasks_before_it_are_dropped() {
    for is_selected in [true, false] {
        let segment = Options::new().slots(1).members(8).anonymous().unwrap();
        let (client, holder) = (client(&segment), client(&segment));
        client.sender().liveness().tick().stop_slices();
        let held = holder.try_send("held").unwrap().expect("there is a slot");
        let polls = [(); 2].map(|()| Arc::new(Polls(AtomicU64::new(0), Mutex::default())));
        let mut tasks = ["missing", "dropped"].map(|text| Some(Box::pin(client.send_async(text))));
        for (task, polls) in tasks.iter_mut().zip(&polls) {
            let waker = Waker::from(Arc::clone(polls));
            let task = task.as_mut().expect("it is not dropped yet");
            assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let space = client.send_doorbell().unwrap();
        assert!(client.try_send("late").unwrap().is_none() && !is_rung(&space, Deadline::now()));
        assert!(holder.cancel(held).unwrap().is_none());
        let selected = usize::from(is_selected);
        until(|| polls[selected].0.load(Ordering::Relaxed) > 0);
        tasks[1] = None;
        if !is_selected {
            tasks[0] = None;
        }
        let crowd = Crowd::new();
        crowd.add(move || assert!(is_rung(&space, Deadline::NEVER)));
        crowd.next("an event loop behind tasks");
    }
}

// ---------------------------------------------------------------- cells of the ring

/// A segment with free slots which ring is full behind a live call.
fn full_ring() -> (Segment, Client) {
    let segment = Options::new().slots(8).members(8).anonymous().unwrap();
    let client = client(&segment);
    assert!(client.try_send("first").unwrap().is_some());
    while let Some(ticket) = client.try_send("again").unwrap() {
        assert!(client.cancel(ticket).unwrap().is_none());
    }
    let audit = segment.audit().unwrap();
    assert_eq!((audit.entries, audit.free), (16, 7));
    (segment, client)
}

#[test]
fn each_waiter_for_the_ring_is_woken_beside_any_others() {
    for (kinds, by_server) in senders().into_iter().flat_map(|kinds| [(kinds.clone(), true), (kinds, false)])
    {
        let (segment, first) = full_ring();
        let clients = [(); 2].map(|()| client(&segment));
        let crowd = Crowd::new();
        for (which, kind) in &kinds {
            send(&crowd, &clients[*which], *kind);
        }
        thread::sleep(SETTLE);
        assert!(crowd.is_quiet(), "the ring is full");
        let server = server(&segment);
        if by_server {
            assert_eq!(*server.recv(GUARD).unwrap(), *b"first");
        } else {
            let live = segment.shared().calls_of(first.sender().number("test").unwrap()).next().unwrap();
            assert!(first.cancel(live).unwrap().is_none());
        }
        // An entry counts as live again when its slot has another call, so a server takes them all.
        let (serving, thread) = (Crowd::new(), server.clone());
        serving.add(move || while thread.recv(Deadline::NEVER).is_ok() {});
        for _ in &kinds {
            crowd.next(&format!("{kinds:?}, by a server {by_server}"));
        }
        server.stop();
        serving.next("a server that was stopped");
    }
}

/// A waker that counts the polls of a task.
struct Polls(AtomicU64, Mutex<Option<thread::Thread>>);

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = &*self.1.lock().unwrap() {
            thread.unpark();
        }
    }
}

/// The task has a free slot but no cell.
#[test]
fn task_that_found_the_ring_full_is_not_polled_before_a_cell_is_free() {
    let (segment, _first) = full_ring();
    let client = client(&segment);
    let polls = Arc::new(Polls(AtomicU64::new(0), Mutex::default()));
    let [mut one, mut other] = ["a", "b"].map(|text| Box::pin(client.send_async(text)));
    let waker = Waker::from(Arc::clone(&polls));
    // Polls whenever it is woken, as a runtime does, until a thread beside it has given up three
    // times.
    let mut polled = 0;
    let mut poll = |_: u32| {
        for _ in 0..10_000 {
            let before = polls.0.load(Ordering::Relaxed);
            let mut context = Context::from_waker(&waker);
            assert!(one.as_mut().poll(&mut context).is_pending());
            assert!(other.as_mut().poll(&mut context).is_pending());
            polled += 1;
            if polls.0.load(Ordering::Relaxed) == before {
                break;
            }
        }
    };
    let patient = segment.client().unwrap();
    for turn in 0..3 {
        poll(turn);
        assert!(patient.send("late", Duration::from_millis(30)).is_err());
    }
    poll(3);
    assert!(polled <= 40, "{polled} polls without a free cell");
    let server = server(&segment);
    assert_eq!(*server.recv(GUARD).unwrap(), *b"first");
    let mut context = Context::from_waker(&waker);
    until(|| polls.0.load(Ordering::Relaxed) > 0);
    for task in [&mut one, &mut other] {
        drop(server.drain(99).unwrap());
        assert!(matches!(task.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    }
}

// ---------------------------------------------------------------- requests

#[test]
fn each_waiter_for_a_request_is_woken_beside_any_others() {
    use WaitingSender::{Loop, Task, Thread};
    for kinds in picks(&[(0, Thread), (0, Thread), (0, Task), (0, Loop), (1, Thread), (1, Task), (1, Loop)]) {
        let segment = Options::new().slots(8).members(8).anonymous().unwrap();
        let (client, servers) = (client(&segment), [(); 2].map(|()| server(&segment)));
        let crowd = Crowd::new();
        for (which, kind) in &kinds {
            let (server, kind) = (servers[*which].clone(), *kind);
            crowd.add(move || match kind {
                Thread => drop(server.recv(Deadline::NEVER).unwrap()),
                Task => drop(block_on(server.recv_async()).unwrap()),
                Loop => {
                    let doorbell = server.doorbell().unwrap();
                    loop {
                        assert!(is_rung(&doorbell, Deadline::NEVER));
                        if server.try_recv().unwrap().is_some() {
                            break;
                        }
                    }
                }
            });
        }
        thread::sleep(SETTLE);
        for _ in &kinds {
            client.send("a", GUARD).unwrap();
            crowd.next(&format!("{kinds:?}"));
        }
    }
}

// ---------------------------------------------------------------- turns

/// Replies in parts, of one server: the client takes each part when the server waits for that.
#[test]
fn each_waiter_for_the_clients_turn_is_woken_beside_any_others() {
    for kinds in picks(&[true, true, false, false]) {
        let segment = Options::new().slots(8).members(8).anonymous().unwrap();
        let (client, server, crowd) = (client(&segment), server(&segment), Crowd::new());
        let mut streams = Vec::new();
        for by_task in &kinds {
            streams.push(client.stream("a", GUARD).unwrap());
            let (mut request, by_task) = (server.recv(GUARD).unwrap().into_owned(), *by_task);
            assert_eq!(request.part(&[7; 8], GUARD), Ok(true));
            crowd.add(move || match by_task {
                true => assert!(block_on(request.reply_async(&[7; 12])).unwrap()),
                false => assert!(request.reply(&[7; 12]).unwrap()),
            });
        }
        thread::sleep(SETTLE);
        for mut stream in streams {
            let mut bytes = 0;
            while let Some(part) = stream.next_part(GUARD).unwrap() {
                bytes += part.len();
            }
            assert_eq!(bytes, 20);
            crowd.next(&format!("{kinds:?}"));
        }
    }
}
