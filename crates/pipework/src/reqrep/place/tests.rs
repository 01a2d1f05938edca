//! Who gets a slot, and when.

use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::reqrep::tests::block_on;
use crate::reqrep::{Client, ClientOptions, Options, Segment, Ticket};
use crate::sync::{AtomicU64, Hint, Ordering};
use crate::sys;

pub(super) const SOON: Duration = Duration::from_secs(20);
/// After this time a wait is at the beginning of one of its longest slices.
const IN_A_LONG_SLICE: Duration = Duration::from_millis(370);
/// Less than what is left of that slice: a thread that is late by no more was woken.
pub(super) const AT_ONCE: Duration = Duration::from_millis(120);

/// The client of a segment of two slots and four cells, which are full: a live call, which is this
/// client's, and three that are over.
fn full_ring() -> Client {
    let segment = Options::new().slots(2).members(8).anonymous().expect("a segment");
    let client = segment.client().expect("a place");
    assert!(client.try_send("first").unwrap().is_some());
    while let Some(ticket) = client.try_send("again").unwrap() {
        assert!(client.cancel(ticket).unwrap().is_none());
    }
    assert_eq!(segment.waiting(), 4);
    client
}

/// The time between an end and its notice. The shortest of a few if the first are too long,
/// because other programs use the machine as well.
fn shortest(end: impl Fn(&Segment) -> Instant) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let first = full_ring();
        let segment = first.segment();
        let client = segment.client().unwrap();
        let took = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                client.send("last", SOON).unwrap();
                Instant::now()
            });
            thread::sleep(IN_A_LONG_SLICE);
            assert!(!sending.is_finished(), "the ring is full");
            let ended = end(segment);
            sending.join().unwrap().saturating_duration_since(ended)
        });
        shortest = shortest.min(took);
        if shortest < AT_ONCE {
            break;
        }
    }
    shortest
}

/// A segment with one slot, which is taken, the client that has it, and its ticket.
pub(super) fn taken() -> (Segment, Client, Ticket) {
    let segment = Options::new().slots(1).members(8).anonymous().expect("a segment");
    let client = segment.client().expect("a place");
    let ticket = client.try_send("first").unwrap().expect("there is a slot");
    (segment, client, ticket)
}

/// Counts how often it is woken.
pub(super) struct Counter(pub(super) Hint);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.set(self.0.get() + 1);
    }
}

pub(super) fn poll<T>(future: Pin<&mut impl Future<Output = T>>, woken: &Arc<Counter>) -> Poll<T> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
}

pub(super) fn awaited(woken: &Counter) {
    let began = Instant::now();
    while woken.0.get() == 0 {
        assert!(began.elapsed() < SOON);
        thread::yield_now();
    }
}

/// Returns when `len` wait for a slot.
pub(super) fn until_waiting(client: &Client, len: u64) {
    let began = Instant::now();
    while client.sender().waiters.len() < len {
        assert!(began.elapsed() < SOON);
        thread::sleep(Duration::from_micros(200));
    }
}

/// Wherever in the line it stands. A thread of another client goes on waiting.
#[test]
fn threads_in_the_line_of_a_client_that_needs_a_server_end_when_the_last_server_leaves() {
    let (segment, client, _first) = taken();
    let needy = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    let server = segment.server().unwrap();
    thread::scope(|scope| {
        let patient = scope.spawn(|| client.send("a", Duration::from_secs(3)));
        until_waiting(&client, 1);
        let wary = [1, 2].map(|len| {
            let sending =
                scope.spawn(|| (needy.send("b", SOON).map_err(|error| error.kind()), Instant::now()));
            until_waiting(&needy, len);
            sending
        });
        drop(server);
        let gone = Instant::now();
        for sending in wary {
            let (end, at) = sending.join().unwrap();
            let late = at.saturating_duration_since(gone);
            assert!(end == Err(ErrorKind::NoServer) && late < Duration::from_secs(1), "{end:?}, {late:?}");
        }
        assert_eq!(patient.join().unwrap().map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    });
}

#[test]
fn who_waits_for_space_in_the_ring_hears_that_there_is_no_server() {
    let first = full_ring();
    let server = first.segment().server().unwrap();
    let needy = first.segment().client_with(&ClientOptions::new().needs_server(true)).unwrap();
    thread::scope(|scope| {
        let wary = scope.spawn(|| needy.send("last", Duration::from_secs(3)).map_err(|error| error.kind()));
        thread::sleep(IN_A_LONG_SLICE);
        assert!(!wary.is_finished(), "the ring is full");
        drop(server);
        assert_eq!(wary.join().unwrap(), Err(ErrorKind::NoServer));
    });
    assert_eq!((needy.pending(), first.segment().audit().unwrap().free), (0, 1));
}

/// Threads and tasks by turns: each gets the only slot when those that came before have had it.
#[test]
fn who_came_first_is_served_first() {
    const WAITING: u64 = 8;
    let (segment, client, first) = taken();
    let server = segment.server().unwrap();
    thread::scope(|scope| {
        for n in 0..WAITING {
            let caller = client.clone();
            scope.spawn(move || {
                let reply = match n % 2 {
                    0 => caller.call(&[n as u8], SOON),
                    _ => block_on(caller.call_async(&[n as u8])),
                };
                assert_eq!(*reply.unwrap(), [n as u8]);
            });
            until_waiting(&client, n + 1);
        }
        // A newcomer goes behind them, although there is a slot for a moment.
        server.recv(SOON).unwrap().reply("").unwrap();
        client.recv(first, SOON).unwrap();
        assert!(client.try_send("late").unwrap().is_none());
        for n in 0..WAITING {
            let request = server.recv(SOON).unwrap();
            assert_eq!(*request, [n as u8], "in the order in which they came");
            let answer = request.to_vec();
            request.reply(&answer).unwrap();
        }
    });
    assert_eq!(segment.audit().unwrap().free, 1);
}

#[test]
fn one_is_woken_for_each_slot_that_comes_free() {
    const TASKS: usize = 200;
    let segment = Options::new().slots(4).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..TASKS * 10 {
                let request = server.recv(SOON).unwrap();
                let answer = request.to_vec();
                request.reply(&answer).unwrap();
            }
        });
        runtime.block_on(async {
            let tasks: Vec<_> = (0..TASKS as u32)
                .map(|n| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        for _ in 0..10 {
                            let reply = client.call_async(&n.to_le_bytes()).await.unwrap();
                            assert_eq!(*reply, n.to_le_bytes());
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    });
    // Each call looks once in vain; few do so again.
    let (calls, full) = (10 * TASKS as u64, segment.stats().full);
    assert!(full < 3 * calls, "{full} attempts in vain for {calls} calls");
    assert_eq!(segment.audit().unwrap().free, 4);
}

#[test]
fn who_gives_up_passes_its_turn_on() {
    let (_segment, client, first) = taken();
    let [mut one, mut other] = ["a", "b"].map(|text| Box::pin(client.send_async(text)));
    let woken = [(); 2].map(|()| Arc::new(Counter(Hint::new(0))));
    assert!(poll(one.as_mut(), &woken[0]).is_pending() && poll(other.as_mut(), &woken[1]).is_pending());
    thread::scope(|scope| {
        let third = scope.spawn(|| client.send("c", SOON).unwrap());
        until_waiting(&client, 3);
        // The first is chosen, and leaves; the second is chosen for it, and leaves; the thread
        // remains.
        assert!(client.cancel(first).unwrap().is_none());
        awaited(&woken[0]);
        drop(one);
        awaited(&woken[1]);
        drop(other);
        assert!(client.cancel(third.join().unwrap()).unwrap().is_none());
    });
    // In time for nothing: a wait in vain leaves no trace.
    // The slot may be left to other clients for a moment.
    let ticket = client.send("d", SOON).unwrap();
    assert!(client.send("e", Duration::from_millis(2)).is_err());
    assert!(client.cancel(ticket).unwrap().is_none() && client.try_send("f").unwrap().is_some());
}

/// A future was polled once and is kept, as `select!` in a loop does.
#[test]
fn who_is_never_asked_again_stops_nobody() {
    let segment = Options::new().slots(4).members(8).anonymous().unwrap();
    let client = segment.client().unwrap();
    let other = client.clone();
    let space = other.send_doorbell().unwrap();
    let tickets = [(); 4].map(|()| client.try_send("first").unwrap().expect("there is a slot"));
    let (woken, mut kept) = (Arc::new(Counter(Hint::new(0))), Box::pin(client.send_async("kept")));
    assert!(poll(kept.as_mut(), &woken).is_pending() && other.try_send("late").unwrap().is_none());
    tickets.into_iter().for_each(|ticket| assert!(client.cancel(ticket).unwrap().is_none()));
    awaited(&woken);
    (0..3).for_each(|_| assert!(other.try_send("beside it").unwrap().is_some(), "three are left"));
    // The last one is kept for it. A loop that waits for the descriptor is not woken meanwhile,
    // and gets the slot when the future did not come.
    let (began, mut looks) = (Instant::now(), 0);
    let last = loop {
        assert!(sys::wait(&[space.as_fd()], sys::For::Reading, SOON.into()).expect("poll"));
        looks += 1;
        match other.try_send("last").unwrap() {
            Some(ticket) => break ticket,
            None => assert!(began.elapsed() < SOON && looks < 100),
        }
    };
    // It comes after all; the ring is full of entries, which a server takes out.
    assert!(other.cancel(last).unwrap().is_none());
    drop(segment.server().unwrap().drain(9).unwrap());
    assert!(poll(kept.as_mut(), &woken).is_ready());
}

#[test]
fn a_turn_that_is_not_taken_goes_to_the_next() {
    for by_thread in [true, false] {
        let (_segment, client, first) = taken();
        let (woken, mut kept) = (Arc::new(Counter(Hint::new(0))), Box::pin(client.send_async("a")));
        assert!(poll(kept.as_mut(), &woken).is_pending());
        thread::scope(|scope| {
            let next = scope.spawn(|| match by_thread {
                true => client.send("b", SOON),
                false => block_on(client.send_async("b")),
            });
            until_waiting(&client, 2);
            assert!(client.cancel(first).unwrap().is_none());
            awaited(&woken);
            assert!(client.cancel(next.join().unwrap().expect("it is its turn")).unwrap().is_none());
        });
        assert!(poll(kept.as_mut(), &woken).is_ready());
    }
}

#[test]
fn only_those_who_need_a_server_hear_that_there_is_none() {
    let (segment, client, _first) = taken();
    let needy = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    let server = segment.server().unwrap();
    let space = needy.send_doorbell().unwrap();
    let [mut one, mut other] = [&client, &needy].map(|client| Box::pin(client.send_async("a")));
    let woken = [(); 2].map(|()| Arc::new(Counter(Hint::new(0))));
    assert!(poll(one.as_mut(), &woken[0]).is_pending() && poll(other.as_mut(), &woken[1]).is_pending());
    let is_readable = |until: Deadline| sys::wait(&[space.as_fd()], sys::For::Reading, until).expect("poll");
    assert!(needy.try_send("b").unwrap().is_none() && !is_readable(Deadline::now()));
    drop(server);
    awaited(&woken[1]);
    let Poll::Ready(end) = poll(other.as_mut(), &woken[1]) else { panic!("it waits for a server") };
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::NoServer));
    assert!(is_readable(SOON.into()));
    assert_eq!(needy.try_send("b").map_err(|error| error.kind()), Err(ErrorKind::NoServer));
    // Two slices of the longest.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(woken[0].0.get(), 0, "it waits for a slot, and for a server");
}

#[test]
fn a_client_keeps_no_more_slots_than_it_may() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(2)).unwrap();
    let server = segment.server().unwrap();
    let before = client.send("before", SOON).unwrap();
    let other = client.clone();
    let second = other.send("second", SOON).unwrap();
    assert!(client.try_send("a third").unwrap().is_none());
    let late = other.send("a third", Duration::from_millis(2)).map_err(|error| error.kind());
    assert_eq!(late, Err(ErrorKind::TimedOut));
    assert_eq!(segment.audit().unwrap().free, 2, "others may have them");
    server.recv(SOON).unwrap().reply("").unwrap();
    let taken = server.recv(SOON).unwrap();
    thread::scope(|scope| {
        // A reply is received, a call that a server has taken is cancelled, and one in the
        // ring.
        let ends: [&(dyn Fn(Ticket) + Sync); 3] = [
            &|_| drop(client.recv(before, SOON).unwrap()),
            &|_| assert!(client.cancel(second).unwrap().is_none()),
            &|last| assert!(client.cancel(last).unwrap().is_none()),
        ];
        let mut last = before;
        for (n, end) in ends.into_iter().enumerate() {
            let other = &other;
            let waiting = scope.spawn(move || match n {
                1 => block_on(other.send_async("waits")).unwrap(),
                _ => other.send("waits", SOON).unwrap(),
            });
            until_waiting(&client, 1);
            end(last);
            last = waiting.join().unwrap();
            assert_eq!(client.pending(), 2);
        }
    });
    assert!(!taken.reply("to nobody").unwrap());
    assert!(segment.client().unwrap().try_send("without a limit").unwrap().is_some());
}

/// As where a client was taken for dead, and joined anew.
#[test]
fn calls_that_end_unseen_are_counted_no_more() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap();
    let free = |ticket: Ticket| {
        let slot = client.slot(ticket, "test").unwrap();
        assert!(slot.cancel(ticket.generation(), slot.load().owner()).is_some());
    };
    let first = client.try_send("first").unwrap().expect("there is a slot");
    // A call that is in progress counts, however often it is counted.
    let late = client.send("second", 3 * AT_ONCE).map_err(|error| error.kind());
    assert_eq!(late, Err(ErrorKind::TimedOut));
    free(first);
    free(client.send("second", SOON).unwrap());
    free(block_on(client.send_async("third")).unwrap());
    let began = Instant::now();
    let last = loop {
        match client.try_send("last").unwrap() {
            Some(ticket) => break ticket,
            None => assert!(began.elapsed() < SOON),
        }
    };
    assert!(client.try_send("one more").unwrap().is_none() && client.cancel(last).unwrap().is_none());
    assert!(client.try_send("one more").unwrap().is_some());
}

/// Two clients, one of which makes calls without a pause: it leaves slots to the other, which
/// waits.
#[test]
fn a_busy_client_starves_nobody() {
    let segment = Options::new().slots(1).anonymous().unwrap();
    let (busy, modest) = (segment.client().unwrap(), segment.client().unwrap());
    let (stop, calls) = (Hint::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            let server = segment.server().unwrap();
            scope.spawn(move || {
                while let Ok(request) = server.recv(Duration::from_millis(500)) {
                    request.reply("").unwrap();
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.get() == 0 {
                    busy.call("busy", SOON).unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while calls.load(Ordering::Relaxed) < 100 {
            thread::yield_now();
        }
        // However slow the machine is: a thread that is woken only after a slice has seen
        // thousands of others pass.
        let mut passed: Vec<_> = (0..20)
            .map(|_| {
                let before = calls.load(Ordering::Relaxed);
                modest.call("modest", SOON).unwrap();
                calls.load(Ordering::Relaxed) - before
            })
            .collect();
        stop.set(1);
        passed.sort_unstable();
        assert!(passed[10] < 100, "{passed:?}");
    });
}

/// A look at many slots costs more than the time that there is.
#[test]
fn many_slots_are_no_reason_to_come_late() {
    let segment = Options::new().slots(1 << 16).request_bytes(8).reply_bytes(8).anonymous().unwrap();
    let client = segment.client().unwrap();
    let tickets: Vec<_> = std::iter::from_fn(|| client.try_send("a").unwrap()).collect();
    assert_eq!(tickets.len(), 1 << 16);
    let looks = || client.sender().likely.get();
    // What is looked at before the deadline is not all of it.
    let before = looks();
    assert!(client.send("b", Deadline::now()).is_err());
    assert!(looks().wrapping_sub(before) % (1 << 16) <= 8 * u64::from(super::LOOKED_AT_ONCE));
    // A waiting thread goes on with the one that comes free.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.send("c", SOON).unwrap());
        until_waiting(&client, 1);
        thread::sleep(Duration::from_millis(20));
        assert!(client.cancel(tickets[40_000]).unwrap().is_none());
        assert_eq!(waiting.join().unwrap().idx(), tickets[40_000].idx());
    });
}

#[test]
fn a_claim_wakes_who_waits_for_the_ring() {
    let woken = shortest(|segment| {
        let server = segment.server().unwrap();
        assert_eq!(*server.recv(SOON).unwrap(), *b"first");
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}

/// Its request goes out through the entry of a call that its slot had before.
#[test]
fn who_is_claimed_through_an_older_entry_need_not_wait_for_the_ring() {
    let woken = shortest(|segment| {
        let server = segment.server().unwrap();
        let requests = server.drain(2).unwrap();
        assert_eq!(*requests[0], *b"first");
        let taken = requests.len();
        assert!(taken == 2 || *server.recv(SOON).unwrap() == *b"last");
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}

#[test]
fn a_call_that_is_cancelled_wakes_who_waits_for_the_ring() {
    let woken = shortest(|segment| {
        let shared = segment.shared();
        let front = shared.queue().entries().next().expect("the ring is full");
        let slot = shared.slot(front).expect("it is one of the slots");
        let (first, client) = (slot.load(), segment.client().unwrap());
        // As its client would.
        assert!(slot.cancel(first.generation(), first.owner()).is_some());
        client.sender().gave_up(front);
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}
