//! Which waiter gets a slot, and when.

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
use crate::segment::waiters::PATIENCE;
use crate::sync::{AtomicU64, Hint, Ordering};
use crate::sys;

const SOON: Duration = Duration::from_secs(20);
/// After this time a wait is at the start of one of its longest slices.
const IN_A_LONG_SLICE: Duration = Duration::from_millis(370);
/// Less than the rest of that slice: a thread that is late by at most this was woken.
const AT_ONCE: Duration = Duration::from_millis(120);

/// The client of a segment with two slots and four cells. All cells are taken: by a call of this
/// client, and by three ended calls. The entry of the first of these looks like one of the next call.
fn full_ring() -> Client {
    let segment = Options::new().slots(2).members(8).anonymous().expect("a segment");
    let client = segment.client().expect("a place");
    assert!(client.try_send("first").unwrap().is_some());
    while let Some(ticket) = client.try_send("again").unwrap() {
        assert!(client.cancel(ticket).unwrap().is_none());
    }
    assert_eq!(segment.audit().unwrap().entries, 4);
    let shared = segment.shared();
    // Of the two slots it is the one whose generations have grown.
    let generation = || shared.slots().map(|(_, slot)| slot.load().generation()).max();
    // A call that finds the ring full has a generation, too.
    while generation().is_some_and(|last| last % 16 != 0) {
        assert!(client.send("again", Deadline::now()).is_err());
    }
    client
}

/// The time from an end to the wake-up of the waiter. It is the shortest of a few attempts if the
/// first ones are too long, because other programs use the machine as well.
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
fn taken() -> (Segment, Client, Ticket) {
    let segment = Options::new().slots(1).members(8).anonymous().expect("a segment");
    let client = segment.client().expect("a place");
    let ticket = client.try_send("first").unwrap().expect("there is a slot");
    (segment, client, ticket)
}

/// Counts its wake-ups.
struct Counter(Hint);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.set(self.0.get() + 1);
    }
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>, woken: &Arc<Counter>) -> Poll<T> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
}

fn awaited(woken: &Counter) {
    let began = Instant::now();
    while woken.0.get() == 0 {
        assert!(began.elapsed() < SOON);
        thread::yield_now();
    }
}

/// Returns when the wait queue has `len` entries.
fn until_waiting(client: &Client, len: u64) {
    let began = Instant::now();
    while client.sender().waiters.len() < len {
        assert!(began.elapsed() < SOON);
        thread::sleep(Duration::from_micros(200));
    }
}

/// The leader of the queue and the thread behind it fail; a thread of another client continues to
/// wait.
#[test]
fn send_ends_with_no_server_for_all_waiting_threads_of_a_client_that_needs_one() {
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
fn send_that_waits_for_a_cell_ends_when_the_last_server_leaves() {
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

/// Threads and tasks alternate: each gets the only slot after the earlier ones have had it. But a
/// thread may take the slot of the task before it: see [`Entry::may_look`]. On a machine so busy that
/// tasks are missing, a round does not count.
#[test]
fn waiting_threads_and_tasks_get_slots_in_the_order_in_which_they_came() {
    assert!((0..20).any(|_| slots_come_in_order()), "in each round a task was missing");
}

fn slots_come_in_order() -> bool {
    const WAITING: u64 = 8;
    let (segment, client, first) = taken();
    let server = segment.server().unwrap();
    let (mut served, mut longest) = (Vec::new(), Duration::ZERO);
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
        // A newcomer queues behind them, although a slot is free for a moment.
        server.recv(SOON).unwrap().reply("").unwrap();
        client.recv(first, SOON).unwrap();
        let newcomer = client.try_send("late");
        for _ in 0..WAITING {
            let began = Instant::now();
            let request = server.recv(SOON).unwrap();
            longest = longest.max(began.elapsed());
            let answer = request.to_vec();
            request.reply(&answer).unwrap();
            served.extend(answer);
        }
        // After the loop: a panic in front of it would leave the tasks waiting for ever.
        assert_eq!(newcomer.map(|sent| sent.is_none()), Ok(true));
    });
    assert_eq!(segment.audit().unwrap().free, 1);
    let came = served.clone();
    for task in (1..served.len() - 1).step_by(2) {
        if usize::from(served[task]) == task + 1 {
            served.swap(task, task + 1);
        }
    }
    let in_order = served.is_sorted();
    assert!(in_order || longest >= PATIENCE, "{came:?}");
    in_order
}

#[test]
fn freed_slot_wakes_one_task() {
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
    // Each call finds no slot when it starts; few find none again.
    let (calls, full) = (10 * TASKS as u64, segment.stats().full);
    assert!(full < 3 * calls, "{full} looks without a slot for {calls} calls");
    assert_eq!(segment.audit().unwrap().free, 4);
}

#[test]
fn selected_task_passes_its_slot_on_when_it_is_dropped() {
    let (_segment, client, first) = taken();
    let [mut one, mut other] = ["a", "b"].map(|text| Box::pin(client.send_async(text)));
    let woken = [(); 2].map(|()| Arc::new(Counter(Hint::new(0))));
    assert!(poll(one.as_mut(), &woken[0]).is_pending() && poll(other.as_mut(), &woken[1]).is_pending());
    thread::scope(|scope| {
        let third = scope.spawn(|| client.send("c", SOON).unwrap());
        until_waiting(&client, 3);
        // The first is selected and dropped; the second is selected instead and dropped; the thread
        // remains.
        assert!(client.cancel(first).unwrap().is_none());
        awaited(&woken[0]);
        drop(one);
        awaited(&woken[1]);
        drop(other);
        assert!(client.cancel(third.join().unwrap()).unwrap().is_none());
    });
    // A wait that times out leaves nothing behind. The slot may be reserved for other clients for a
    // moment.
    let ticket = client.send("d", SOON).unwrap();
    assert!(client.send("e", Duration::from_millis(2)).is_err());
    assert!(client.cancel(ticket).unwrap().is_none() && client.try_send("f").unwrap().is_some());
}

/// A future was polled once and is kept, as `select!` in a loop does.
#[test]
fn future_that_is_not_polled_again_keeps_one_slot_for_a_limited_time() {
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
    // The last slot is kept for the future. An event loop is not woken meanwhile, and gets the slot
    // when the future counts as missing.
    let (began, mut looks) = (Instant::now(), 0);
    let last = loop {
        assert!(sys::wait(&[space.as_fd()], sys::For::Reading, SOON.into()).expect("poll"));
        looks += 1;
        match other.try_send("last").unwrap() {
            Some(ticket) => break ticket,
            None => assert!(began.elapsed() < SOON && looks < 100),
        }
    };
    // The future is polled after all. The ring is full of entries, which a server removes.
    assert!(other.cancel(last).unwrap().is_none());
    drop(segment.server().unwrap().drain(9).unwrap());
    assert!(poll(kept.as_mut(), &woken).is_ready());
}

#[test]
fn the_slot_of_a_selected_task_that_is_not_polled_goes_to_the_next_entry() {
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
            assert!(
                client
                    .cancel(next.join().unwrap().expect("the task before it is missing"))
                    .unwrap()
                    .is_none()
            );
        });
        assert!(poll(kept.as_mut(), &woken).is_ready());
    }
}

#[test]
fn only_tasks_of_a_client_that_needs_a_server_are_woken_when_the_last_one_leaves() {
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
    // Two of the longest slices.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(woken[0].0.get(), 0, "it waits for a slot, and for a server");
}

#[test]
fn max_in_flight_limits_the_slots_of_a_client() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(2)).unwrap();
    let server = segment.server().unwrap();
    let before = client.send("before", SOON).unwrap();
    let other = client.clone();
    let second = other.send("second", SOON).unwrap();
    assert!(client.try_send("a third").unwrap().is_none());
    let late = other.send("a third", Duration::from_millis(2)).map_err(|error| error.kind());
    assert_eq!(late, Err(ErrorKind::TimedOut));
    assert_eq!(segment.audit().unwrap().free, 2, "other clients may use them");
    server.recv(SOON).unwrap().reply("").unwrap();
    let taken = server.recv(SOON).unwrap();
    thread::scope(|scope| {
        // A reply is received; a call that a server has taken is cancelled; a call in the ring is
        // cancelled.
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
    assert!(!taken.reply("too late").unwrap());
    assert!(segment.client().unwrap().try_send("without a limit").unwrap().is_some());
}

/// As if another member had taken the client for dead.
#[test]
fn calls_that_others_have_ended_do_not_count_for_max_in_flight() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap();
    let free = |ticket: Ticket| {
        let slot = client.slot(ticket, "test").unwrap();
        assert!(
            slot.cancel(ticket.generation(), slot.load().owner(), &crate::reqrep::slot::none_leave).is_some()
        );
    };
    let first = client.try_send("first").unwrap().expect("there is a slot");
    // A call in progress counts, however many times it is counted.
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

/// Two clients, one of which calls without a pause.
#[test]
fn busy_client_leaves_slots_to_a_waiting_client() {
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
        // This holds on a machine of any speed: a thread that is woken only after a slice has let
        // thousands of other calls pass.
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

/// Looking at all of these slots takes longer than the deadline allows.
#[test]
fn send_keeps_its_deadline_in_a_segment_of_many_taken_slots() {
    let segment = Options::new().slots(1 << 16).request_bytes(8).reply_bytes(8).anonymous().unwrap();
    let client = segment.client().unwrap();
    let tickets: Vec<_> = std::iter::from_fn(|| client.try_send("a").unwrap()).collect();
    assert_eq!(tickets.len(), 1 << 16);
    let looks = || client.sender().likely.get();
    // It has looked at only some of the slots.
    let before = looks();
    assert!(client.send("b", Deadline::now()).is_err());
    assert!(looks().wrapping_sub(before) % (1 << 16) <= 8 * u64::from(super::LOOKED_AT_ONCE));
    // A waiting thread finds the slot that becomes free.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.send("c", SOON).unwrap());
        until_waiting(&client, 1);
        thread::sleep(Duration::from_millis(20));
        assert!(client.cancel(tickets[40_000]).unwrap().is_none());
        assert_eq!(waiting.join().unwrap().idx(), tickets[40_000].idx());
    });
}

#[test]
fn a_claim_wakes_a_thread_that_waits_for_a_cell() {
    let woken = shortest(|segment| {
        let server = segment.server().unwrap();
        assert_eq!(*server.recv(SOON).unwrap(), *b"first");
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}

/// A thread that was stopped before its push goes on when a server has had its request.
#[test]
fn a_late_push_of_an_ended_call_removes_no_entry_of_the_slots_next_call() {
    let segment = Options::new().slots(1).members(8).anonymous().unwrap();
    let (client, server, shared) = (segment.client().unwrap(), segment.server().unwrap(), segment.shared());
    let ended = client.try_send("ended").unwrap().unwrap();
    let sent = shared.slot(0).unwrap().load();
    assert!(client.cancel(ended).unwrap().is_none() && server.try_recv().unwrap().is_none());
    let next = client.try_send("next").unwrap().unwrap();
    assert_eq!(next.idx(), ended.idx());
    assert_eq!([(); 3].map(|()| shared.push(0, sent, "late")), [Ok(true), Ok(false), Ok(false)]);
    assert_eq!(*server.try_recv().unwrap().expect("it waits"), *b"next");
}

#[test]
fn a_claim_through_an_older_entry_ends_the_wait_for_a_cell() {
    let woken = shortest(|segment| {
        let server = segment.server().unwrap();
        let requests = server.drain(2).unwrap();
        assert!(requests.iter().map(|request| &**request).eq([&b"first"[..], b"last"]));
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}

#[test]
fn a_cancelled_call_wakes_a_thread_that_waits_for_a_cell() {
    let woken = shortest(|segment| {
        let shared = segment.shared();
        let front = shared.queue().entries().next().expect("the ring is full").slot();
        let slot = shared.slot(front).expect("it is one of the slots");
        let (first, client) = (slot.load(), segment.client().unwrap());
        // As its client would do it.
        assert!(slot.cancel(first.generation(), first.owner(), &crate::reqrep::slot::none_leave).is_some());
        client.sender().gave_up(front);
        Instant::now()
    });
    assert!(woken < AT_ONCE, "{woken:?}");
}

// ---------------------------------------------------------------- wake-ups that a waiter cannot use

/// The slices of a wait are 50, 50, 100, 200 and 250 ms long: after this time the last has begun.
const IN_THE_LAST_SLICE: Duration = Duration::from_millis(430);

fn counter() -> Arc<Counter> {
    Arc::new(Counter(Hint::new(0)))
}

/// Sends with `late`, which parks at `space` after all others. Returns how long it takes to get a
/// slot after `free` has freed one.
fn late(late: &Client, free: impl FnOnce()) -> Duration {
    let before = late.sender().waiters.len();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let ticket = late.send("late", SOON).unwrap();
            (Instant::now(), ticket)
        });
        until_waiting(late, before + 1);
        thread::sleep(IN_THE_LAST_SLICE);
        let freed = Instant::now();
        free();
        let (came, ticket) = waiting.join().unwrap();
        assert!(late.cancel(ticket).unwrap().is_none());
        came.saturating_duration_since(freed)
    })
}

/// Three slots: one client holds two of them, and another, which is limited to one call, holds one.
fn limited() -> (Segment, (Client, [Ticket; 2]), (Client, Ticket)) {
    let segment = Options::new().slots(3).members(8).anonymous().unwrap();
    let (holder, limited) =
        (segment.client().unwrap(), segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap());
    let held = [(); 2].map(|()| holder.try_send("held").unwrap().unwrap());
    let own = limited.try_send("own").unwrap().unwrap();
    (segment, (holder, held), (limited, own))
}

#[test]
fn client_at_its_limit_takes_no_wake_up_from_others() {
    let (segment, (holder, held), (limited, own)) = limited();
    let other = segment.client().unwrap();
    thread::scope(|scope| {
        let at_limit = scope.spawn(|| limited.send("waits", SOON).unwrap());
        until_waiting(&limited, 1);
        let took = late(&other, || assert!(holder.cancel(held[0]).unwrap().is_none()));
        // Also in the last slice of that wait.
        let freed = Instant::now();
        assert!(limited.cancel(own).unwrap().is_none());
        let own = at_limit.join().unwrap();
        let came = freed.elapsed();
        assert!(took < AT_ONCE && came < AT_ONCE, "{took:?}, {came:?}");
        assert!(limited.cancel(own).unwrap().is_none());
    });
}

#[test]
fn the_watch_thread_of_a_client_at_its_limit_takes_no_wake_up_from_others() {
    let (segment, (holder, held), (limited, own)) = limited();
    let (other, woken) = (segment.client().unwrap(), counter());
    let mut at_limit = Box::pin(limited.send_async("waits"));
    assert!(poll(at_limit.as_mut(), &woken).is_pending());
    // The limited client's thread parks first.
    thread::sleep(Duration::from_millis(20));
    let took = late(&other, || assert!(holder.cancel(held[0]).unwrap().is_none()));
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(woken.0.get(), 0, "it is at its limit");
    let freed = Instant::now();
    assert!(limited.cancel(own).unwrap().is_none());
    awaited(&woken);
    assert!(freed.elapsed() < AT_ONCE, "{:?}", freed.elapsed());
    assert!(poll(at_limit.as_mut(), &woken).is_ready());
}

/// The limit is reached while a thread waits for a slot, and the thread has parked before all
/// others.
#[test]
fn thread_passes_the_wake_up_on_when_its_client_reaches_its_limit() {
    let (segment, (holder, held), (limited, own)) = limited();
    let (other, waiters) = (segment.client().unwrap(), &limited.sender().waiters);
    // A third client takes its slot, so that no slot is free while the limit is not reached yet.
    assert!(limited.cancel(own).unwrap().is_none());
    let third = segment.client().unwrap();
    third.try_send("last").unwrap().unwrap();
    thread::scope(|scope| {
        let at_limit = scope.spawn(|| limited.send("waits", SOON).unwrap());
        until_waiting(&limited, 1);
        let took = late(&other, || {
            assert!(waiters.enter(), "as if another thread had sent a call");
            assert!(holder.cancel(held[0]).unwrap().is_none());
        });
        // It is woken when the other call ends.
        let over = Instant::now();
        if waiters.exit() {
            waiters.notify_ends();
        }
        let ticket = at_limit.join().unwrap();
        let came = over.elapsed();
        assert!(took < AT_ONCE && came < AT_ONCE, "{took:?}, {came:?}");
        assert!(limited.cancel(ticket).unwrap().is_none());
    });
}

/// A task is selected for a slot and dropped. The rest of its queue is empty, or a thread, which
/// cannot be selected.
#[test]
fn the_slot_of_a_selected_task_that_is_dropped_goes_to_the_next_thread_at_space() {
    for by_itself in [true, false] {
        let (segment, client, first) = taken();
        let (other, woken) = (segment.client().unwrap(), counter());
        let mut leaving = Box::pin(client.send_async("leaves"));
        assert!(poll(leaving.as_mut(), &woken).is_pending());
        let took = late(if by_itself { &other } else { &client }, || {
            assert!(client.cancel(first).unwrap().is_none());
            awaited(&woken);
            drop(leaving);
        });
        assert!(took < AT_ONCE, "by itself {by_itself}: {took:?}");
    }
}

#[test]
fn two_selected_tasks_find_their_slots_among_many() {
    let segment = Options::new().slots(1024).request_bytes(8).reply_bytes(8).anonymous().unwrap();
    let client = segment.client().unwrap();
    let tickets: Vec<_> = std::iter::from_fn(|| client.try_send("a").unwrap()).collect();
    assert_eq!(tickets.len(), 1024);
    let slot = |idx| *tickets.iter().find(|ticket| ticket.idx() == idx).unwrap();
    let [mut one, mut other] = ["b", "c"].map(|text| Box::pin(client.send_async(text)));
    let woken = [(); 2].map(|()| counter());
    assert!(poll(one.as_mut(), &woken[0]).is_pending() && poll(other.as_mut(), &woken[1]).is_pending());
    assert!(client.cancel(slot(100)).unwrap().is_none() && client.cancel(slot(600)).unwrap().is_none());
    woken.iter().for_each(|woken| awaited(woken));
    assert!(poll(one.as_mut(), &woken[0]).is_ready() && poll(other.as_mut(), &woken[1]).is_ready());
}
