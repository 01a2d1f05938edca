//! Which events watch threads report, and which they do not.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::{Client, ClientOptions, Options, Segment, Server};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::sys::{self, fault};

const SOON: Duration = Duration::from_secs(20);

fn small() -> Segment {
    Options::new().slots(2).members(8).anonymous().expect("a segment")
}

/// Whether a descriptor becomes readable.
fn rings(fd: &impl AsFd) -> bool {
    sys::wait(&[fd.as_fd()], sys::For::Reading, SOON.into()).expect("poll")
}

fn is_silent(fd: &impl AsFd) -> bool {
    !sys::wait(&[fd.as_fd()], sys::For::Reading, Deadline::now()).expect("poll")
}

#[test]
fn servers_doorbell_is_readable_until_all_requests_are_taken() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let doorbell = server.doorbell().unwrap();
    for _ in 0..50 {
        assert!(is_silent(&doorbell));
        let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
        assert!(rings(&doorbell));
        server.try_recv().unwrap().expect("it rang").reply("x").unwrap();
        assert!(!is_silent(&doorbell), "there is another");
        server.clone().drain(5).unwrap().into_iter().for_each(|last| assert!(last.reply("y").unwrap()));
        tickets.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
    }
    // The descriptor also reports what came before it was asked for, and so does a second one.
    client.try_send("a").unwrap().expect("there is a slot");
    let beside = segment.server().unwrap();
    let [second, other] = [server.doorbell(), beside.doorbell()].map(Result::unwrap);
    assert!(rings(&second) && rings(&doorbell) && rings(&other));
    assert!(server.try_recv().unwrap().is_some() && server.try_recv().unwrap().is_none());
    assert!(is_silent(&second) && is_silent(&doorbell));
}

/// A thread that has failed to copy its reply out does not know that its slot belongs to the next
/// call.
#[test]
fn ended_call_does_not_replace_the_next_call_in_its_slot() {
    let segment = Options::new().slots(1).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let doorbell = client.doorbell().unwrap();
    let over = client.send("a", SOON).unwrap();
    server.recv(SOON).unwrap().reply("x").unwrap();
    client.recv(over, SOON).unwrap();
    let next = client.send("b", SOON).unwrap();
    client.looked(over, true);
    server.recv(SOON).unwrap().reply("y").unwrap();
    assert!(rings(&doorbell));
    assert_eq!(&*client.recv(next, SOON).unwrap(), b"y");
}

#[test]
fn clients_doorbell_rings_for_every_call_that_was_sent() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let before = client.try_send("a").unwrap().expect("there is a slot");
    let doorbell = client.doorbell().unwrap();
    let after = client.send("b", SOON).unwrap();
    let cancelled = client.send("c", SOON).unwrap();
    assert!(is_silent(&doorbell));
    server.recv(SOON).unwrap().reply("x").unwrap();
    assert!(rings(&doorbell));
    // Polling a call in progress does not count as receiving the other one.
    assert!(client.try_recv(after).unwrap().is_none() && !is_silent(&doorbell));
    assert_eq!(&*client.try_recv(before).unwrap().expect("it rang"), b"x");
    assert!(is_silent(&doorbell));
    // A request that its server failed and a call that was cancelled have ended as well.
    server.recv(SOON).unwrap().fail("");
    assert!(client.cancel(cancelled).unwrap().is_none() && rings(&doorbell));
    assert_eq!(client.recv(after, SOON).map_err(|error| error.kind()).err(), Some(ErrorKind::Failed));
    assert!(is_silent(&doorbell) && server.try_recv().unwrap().is_none());
    // A `call` waits by itself and is not reported.
    thread::scope(|scope| {
        let answer = scope.spawn(|| client.call("d", SOON).unwrap().into_vec());
        server.recv(SOON).unwrap().reply("z").unwrap();
        assert_eq!(answer.join().unwrap(), b"z");
    });
    assert!(is_silent(&doorbell));
    // A call that was done before the descriptor was asked for.
    let late = segment.client().unwrap();
    let ticket = late.try_send("e").unwrap().expect("there is a slot");
    server.recv(SOON).unwrap().reply("f").unwrap();
    let doorbell = late.doorbell().unwrap();
    assert!(rings(&doorbell) && late.recv(ticket, SOON).is_ok() && is_silent(&doorbell));
}

/// The calls end in any order, and some that have ended are not received.
#[test]
fn recv_any_finds_ended_calls_in_any_order() {
    let segment = Options::new().slots(64).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let doorbell = client.doorbell().unwrap();
    let recv_any = || client.recv_any(Deadline::now());
    let is_vain = || recv_any().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
    for left in 1..40 {
        let tickets: Vec<_> = (0..40).map(|_| client.send("a", SOON).unwrap()).collect();
        assert!(is_vain() && is_silent(&doorbell));
        let mut requests = server.drain(40).unwrap();
        while requests.len() > left {
            for _ in 0..requests.len().min(3) {
                let next = (13 * left + 7 * requests.len()) % requests.len();
                requests.remove(next).reply("x").unwrap();
            }
            assert!(rings(&doorbell));
            let mut received = 0;
            while let Ok(found) = recv_any() {
                let done = found.expect("calls are in progress");
                assert_eq!(*done.result.unwrap(), *b"x");
                received += 1;
            }
            assert!(received > 0 && is_silent(&doorbell));
        }
        let mut gone = 0;
        for ticket in tickets {
            gone += usize::from(client.cancel_unless_done(ticket).is_ok_and(|was_open| was_open));
        }
        assert_eq!(gone, requests.len());
        drop(requests);
        assert!(matches!(recv_any(), Ok(None)) && is_silent(&doorbell));
    }
}

#[test]
fn send_doorbell_rings_when_a_slot_is_freed() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let space = client.send_doorbell().unwrap();
    for _ in 0..50 {
        assert!(rings(&space));
        let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
        assert!(client.try_send("c").unwrap().is_none() && is_silent(&space));
        server.recv(SOON).unwrap().reply("x").unwrap();
        server.recv(SOON).unwrap().reply("y").unwrap();
        assert!(is_silent(&space), "replies are not space");
        tickets.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
    }
}

#[test]
fn doorbell_rings_once_when_the_last_server_has_gone() {
    let segment = small();
    let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    let server = segment.server().unwrap();
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    let doorbell = client.doorbell().unwrap();
    assert!(is_silent(&doorbell));
    drop(server);
    // It may ring without a result if another thread is just checking for dead members.
    let begin = Instant::now();
    let end = loop {
        assert!(rings(&doorbell) && begin.elapsed() < SOON);
        match client.try_recv(ticket) {
            Ok(None) => assert!(is_silent(&doorbell)),
            end => break end,
        }
    };
    assert_eq!(end.map_err(|error| error.kind()).err(), Some(ErrorKind::NoServer));
    assert!(is_silent(&doorbell));
}

/// Both sides act only when their descriptors are readable.
#[test]
fn two_event_loops_exchange_calls_by_doorbells() {
    const CALLS: u32 = 2000;
    let segment = Options::new().slots(4).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let doorbell = server.doorbell().unwrap();
            let mut served = 0;
            while served < CALLS {
                assert!(rings(&doorbell));
                while let Some(request) = server.try_recv().unwrap() {
                    let answer = request.to_vec();
                    request.reply(&answer).unwrap();
                    served += 1;
                }
            }
        });
        let doorbell = client.doorbell().unwrap();
        let (mut open, mut sent, mut received) = (HashMap::new(), 0, 0);
        while received < CALLS {
            while sent < CALLS
                && let Some(ticket) = client.try_send(&sent.to_le_bytes()).unwrap()
            {
                open.insert(ticket, sent);
                sent += 1;
            }
            assert!(rings(&doorbell));
            open.retain(|ticket, number| match client.try_recv(*ticket).unwrap() {
                Some(reply) => {
                    assert_eq!(*reply, number.to_le_bytes());
                    received += 1;
                    false
                }
                None => true,
            });
        }
    });
}

/// Its loop is busy, so a parked server must get the request long before a slice ends.
#[test]
fn wake_up_of_a_busy_loop_is_passed_on() {
    let segment = small();
    let (client, busy, idle) =
        (segment.client().unwrap(), segment.server().unwrap(), segment.server().unwrap());
    let doorbell = busy.doorbell().unwrap();
    let shortest = (0..10).map(|_| {
        assert!(busy.try_recv().unwrap().is_none() && is_silent(&doorbell));
        // The kernel first wakes the thread that parked first.
        thread::sleep(Duration::from_millis(5));
        thread::scope(|scope| {
            let sleeping = scope.spawn(|| drop(idle.recv(SOON).unwrap()));
            thread::sleep(Duration::from_millis(5));
            let began = Instant::now();
            let ticket = client.try_send("a").unwrap().expect("there is a slot");
            sleeping.join().unwrap();
            let ended = began.elapsed();
            assert!(client.recv(ticket, SOON).is_err() && busy.try_recv().unwrap().is_none());
            ended
        })
    });
    assert!(shortest.min() < Some(Duration::from_millis(25)), "a slice is twice as long");
}

/// In each of its states, the thread ends without waiting for the end of a slice.
#[test]
fn handles_are_dropped_without_waiting_for_a_slice() {
    let segment = small();
    let dropped_in = |handles: (Client, Server)| {
        thread::sleep(Duration::from_millis(5));
        let began = Instant::now();
        drop(handles);
        began.elapsed()
    };
    let shortest = (0..10).map(|turn| {
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        client.try_send("a").unwrap().expect("there is a slot");
        // It is resting in the second case, and parked in the segment in the first.
        let doorbell = if turn % 2 == 0 { client.doorbell() } else { server.doorbell() };
        assert_eq!(is_silent(&doorbell.unwrap()), turn % 2 == 0);
        (turn % 2, dropped_in((client, server)))
    });
    let (parked, resting): (Vec<_>, Vec<_>) = shortest.partition(|(at_rest, _)| *at_rest == 0);
    for times in [parked, resting] {
        let shortest = times.iter().map(|(_, time)| *time).min();
        assert!(shortest < Some(Duration::from_millis(25)), "{times:?}: a slice is twice as long");
    }
}

/// Calls a function when it wakes.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        self.0();
    }
}

/// Polls `future` once; it must be pending then.
fn leave<T>(future: &mut (impl Future<Output = T> + Unpin), wake: impl Fn() + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(Calls(wake)));
    assert!(std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn panicking_waker_does_not_stop_other_wake_ups() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
    let (report, reports) = mpsc::channel();
    let mut futures = tickets.map(|ticket| Box::pin(client.recv_async(ticket)));
    let report_again = report.clone();
    leave(&mut futures[0], move || {
        report.send(0).unwrap();
        panic!("this panic of a waker is part of the test");
    });
    server.recv(SOON).unwrap().reply("c").unwrap();
    assert_eq!(reports.recv_timeout(SOON), Ok(0));
    leave(&mut futures[1], move || report_again.send(1).unwrap());
    server.recv(SOON).unwrap().reply("d").unwrap();
    assert_eq!(reports.recv_timeout(SOON), Ok(1));
}

#[test]
fn handle_can_be_dropped_under_a_lock_that_its_waker_waits_for() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    let (lock, (report, reports)) = (Arc::new(Mutex::new(())), mpsc::channel());
    let mut future = Box::pin({
        let client = client.clone();
        async move { client.recv_async(ticket).await }
    });
    let needed = Arc::clone(&lock);
    leave(&mut future, move || {
        report.send(()).unwrap();
        drop(needed.lock().unwrap());
    });
    let dropping = thread::spawn(move || {
        let held = lock.lock().unwrap();
        server.recv(SOON).unwrap().reply("b").unwrap();
        reports.recv_timeout(SOON).unwrap();
        drop((future, client));
        drop(held);
    });
    let began = Instant::now();
    while !dropping.is_finished() {
        assert!(began.elapsed() < SOON, "each waits for the other");
        thread::sleep(Duration::from_millis(1));
    }
    dropping.join().unwrap();
}

#[test]
fn refused_system_calls_are_errors_and_can_be_repeated() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for name in ["thread", "eventfd", "epoll"] {
        // ENOMEM: after EMFILE it is tried again if other tests of this process keep files to give up.
        fault::order(name, 0, fault::Fault::Errno(12));
        let refused = client.doorbell().map_err(|error| (error.kind(), error.errno()));
        assert_eq!(refused.err(), Some((ErrorKind::Os, Some(12))), "{name}");
        assert!(fault::all_met());
    }
    let doorbell = client.doorbell().unwrap();
    client.try_send("a").unwrap().expect("there is a slot");
    server.recv(SOON).unwrap().fail("");
    assert!(rings(&doorbell));
}
