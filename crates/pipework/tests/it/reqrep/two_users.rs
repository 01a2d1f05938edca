//! Two users of one handle at the same moment: two threads, or a thread and a task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::reqrep::{Audit, Client, ClientOptions, Options, Segment, Server, Ticket};
use pipework::{Deadline, Error, ErrorKind};
use rustix::event::PollFlags;

use crate::harness::{PATIENCE, alone, asleep, awaited, fork, is_ready, say, setting, shared, wait_for};

mod strangers;

/// Bytes of a part.
const PART: usize = 16;

fn small(slots: u32) -> Segment {
    let options = Options::new().slots(slots).members(8).spin(Duration::ZERO);
    options.request_bytes(PART as u32).reply_bytes(PART as u32).anonymous().expect("a segment")
}

fn ends(segment: &Segment) -> (Client, Server) {
    (segment.client().expect("a place"), segment.server().expect("a place"))
}

fn assert_all_free(segment: &Segment) {
    let audit = segment.audit().expect("the audit works");
    let mut expected = Audit::default();
    (expected.free, expected.entries) = (segment.geometry().slots as usize, audit.entries);
    assert_eq!(audit, expected);
}

fn kind<T, E: Into<Error>>(outcome: Result<T, E>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.into().kind())
}

/// A client that has given out a ticket, and whose next call gets the last slot, to which no older
/// entry of the ring leads.
fn sender(segment: &Segment, options: &ClientOptions) -> Client {
    let (client, other) = (segment.client_with(options).unwrap(), segment.client().unwrap());
    let slots = segment.geometry().slots;
    let tickets: Vec<_> = (0..slots).map(|_| other.try_send("over").unwrap().unwrap()).collect();
    let (last, rest): (Vec<_>, Vec<_>) = tickets.into_iter().partition(|ticket| ticket.idx() == slots - 1);
    assert_eq!(other.cancel(last[0]), Ok(None));
    let own = client.try_send("over").unwrap().unwrap();
    assert_eq!(own.idx(), slots - 1);
    rest.into_iter().for_each(|ticket| assert_eq!(other.cancel(ticket), Ok(None)));
    assert_eq!(client.cancel(own), Ok(None));
    client
}

/// Fills the ring: its first entry is a request of `first`, the others are of ended calls.
fn fill_ring(segment: &Segment, first: &Client, server: &Server) -> Ticket {
    // `try_recv` removes the entries of earlier calls.
    assert!(server.try_recv().unwrap().is_none());
    let ticket = first.try_send("first").unwrap().expect("there is a slot");
    for _ in 1..segment.geometry().queue {
        let over = first.try_send("over").unwrap().expect("there is a slot");
        assert!(first.cancel(over).unwrap().is_none());
    }
    ticket
}

// ---------------------------------------------------------------- calls in the middle of sending

#[test]
fn forget_all_leaves_calls_to_threads_that_wait_for_them() {
    let segment = small(3);
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        let calling = asleep(scope, || client.call("called", PATIENCE).unwrap().into_vec());
        let mut stream = client.stream("streamed", PATIENCE).unwrap();
        client.send("sent", PATIENCE).unwrap();
        assert_eq!(client.forget_all(), 1);
        for _ in 0..3 {
            let request = server.recv(PATIENCE).unwrap();
            let (answer, is_forgotten) = (request.to_vec(), *request == *b"sent");
            assert_eq!(request.reply(&answer), Ok(!is_forgotten));
        }
        assert_eq!(calling.join().unwrap(), b"called");
        assert_eq!(&*stream.next_part(PATIENCE).unwrap().unwrap(), b"streamed");
    });
    assert_all_free(&segment);
}

#[test]
fn send_pushes_a_request_that_was_forgotten_while_the_ring_was_full() {
    let segment = small(3);
    let (other, server) = ends(&segment);
    let client = sender(&segment, &ClientOptions::new());
    let first = fill_ring(&segment, &other, &server);
    thread::scope(|scope| {
        let sending = asleep(scope, || client.send("forgotten", PATIENCE));
        assert_eq!((segment.audit().unwrap().unqueued, client.forget_all()), (1, 1));
        assert!(server.recv(PATIENCE).unwrap().reply("").unwrap());
        sending.join().unwrap().unwrap();
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!(&*request, b"forgotten");
        assert_eq!(request.reply(""), Ok(false));
    });
    other.recv(first, PATIENCE).unwrap();
    assert_all_free(&segment);
}

#[test]
fn send_takes_back_a_forgotten_request_when_its_time_is_over() {
    let segment = small(3);
    let (other, server) = ends(&segment);
    let client = sender(&segment, &ClientOptions::new().max_in_flight(1));
    let first = fill_ring(&segment, &other, &server);
    thread::scope(|scope| {
        let sending = asleep(scope, || client.send("forgotten", Duration::from_secs(1)));
        assert_eq!(client.forget_all(), 1);
        assert_eq!(kind(sending.join().unwrap()), Some(ErrorKind::TimedOut));
    });
    assert_eq!((segment.audit().unwrap().waiting, segment.audit().unwrap().unqueued), (1, 0));
    assert!(server.recv(PATIENCE).unwrap().reply("").unwrap());
    other.recv(first, PATIENCE).unwrap();
    assert!(server.try_recv().unwrap().is_none());
    // `max_in_flight` counts the call once.
    let ticket = client.try_send("next").unwrap().expect("none is in progress");
    assert!(client.try_send("too many").unwrap().is_none() && client.cancel(ticket).unwrap().is_none());
    assert_all_free(&segment);
}

#[test]
fn recovery_pushes_a_forgotten_request_whose_client_died_before_it_could() {
    alone(|| {
        for by_server in [false, true] {
            let segment = small(3);
            let (other, server) = ends(&segment);
            let [is_ready, forgotten] = shared(2) else { panic!("there are two") };
            let child = fork(|| {
                let client = sender(&segment, &ClientOptions::new());
                forgotten.store(1, SeqCst);
                awaited(is_ready);
                thread::scope(|scope| {
                    asleep(scope, || client.send("forgotten", PATIENCE));
                    assert_eq!(client.forget_all(), 1);
                    forgotten.store(2, SeqCst);
                    thread::sleep(PATIENCE);
                });
            });
            awaited(forgotten);
            let first = fill_ring(&segment, &other, &server);
            is_ready.store(1, SeqCst);
            while awaited(forgotten) < 2 {
                thread::yield_now();
            }
            child.kill();
            assert!(server.recv(PATIENCE).unwrap().reply("").unwrap());
            other.recv(first, PATIENCE).unwrap();
            if !by_server {
                segment.recover().unwrap();
            }
            // Otherwise the server would do it at its next tick.
            let request = server.recv(PATIENCE).unwrap();
            assert_eq!(&*request, b"forgotten");
            assert_eq!(request.reply(""), Ok(false));
            assert_all_free(&segment);
        }
    });
}

// ---------------------------------------------------------------- foreign code that panics

#[test]
fn panic_in_the_callers_code_during_send_frees_the_slot() {
    let segment = small(4);
    let (client, server) = ends(&segment);
    let requests = (0..3).map(|nth| if nth < 2 { "b" } else { panic!("foreign code") });
    let many = catch_unwind(AssertUnwindSafe(|| client.send_many(requests, PATIENCE)));
    assert!(many.is_err());
    let filled = catch_unwind(AssertUnwindSafe(|| client.send_with(1, PATIENCE, |_| panic!("foreign code"))));
    assert!(filled.is_err());
    assert_all_free(&segment);
    assert!(server.try_recv().unwrap().is_none());
}

// ---------------------------------------------------------------- doorbells without calls

fn is_readable(doorbell: &impl std::os::fd::AsFd) -> bool {
    is_ready(doorbell, PollFlags::IN, Duration::ZERO)
}

#[test]
fn clients_doorbell_is_not_readable_without_calls() {
    let segment = small(4);
    let (client, server) = ends(&segment);
    let doorbell = client.doorbell().unwrap();
    let answered = || {
        let ticket = client.send("a", PATIENCE).unwrap();
        assert!(server.recv(PATIENCE).unwrap().reply("b").unwrap());
        wait_for(&doorbell, PollFlags::IN);
        ticket
    };
    // For each way in which the last call can end.
    assert!(client.forget(answered()).is_ok() && !is_readable(&doorbell));
    assert!(client.cancel(answered()).unwrap().is_some() && !is_readable(&doorbell));
    assert!(client.try_recv(answered()).unwrap().is_some() && !is_readable(&doorbell));
    answered();
    assert!(client.forget_all() == 1 && !is_readable(&doorbell));
    answered();
    assert!(client.recv_any(PATIENCE).unwrap().is_some() && !is_readable(&doorbell));
    // A call that another thread waits for is not the event loop's.
    thread::scope(|scope| {
        let calling = asleep(scope, || client.call("a", PATIENCE));
        let late = client.doorbell().unwrap();
        assert!(server.recv(PATIENCE).unwrap().reply("b").unwrap());
        assert!(calling.join().unwrap().is_ok());
        assert!(client.recv_any(Duration::ZERO).unwrap().is_none() && !is_readable(&late));
    });
    assert_all_free(&segment);
}

#[test]
fn recv_any_that_finds_no_call_makes_the_doorbell_unreadable() {
    let segment = small(1);
    let (client, server) = ends(&segment);
    let doorbell = client.doorbell().unwrap();
    let ticket = client.send("a", PATIENCE).unwrap();
    assert!(server.recv(PATIENCE).unwrap().reply("b").unwrap());
    wait_for(&doorbell, PollFlags::IN);
    // A thread receives the reply before the notified event loop does.
    thread::scope(|scope| scope.spawn(|| client.recv(ticket, PATIENCE).unwrap()).join().unwrap());
    assert!(client.recv_any(Duration::ZERO).unwrap().is_none());
    assert!(!is_readable(&doorbell));
}

#[test]
fn servers_doorbell_is_not_readable_without_requests() {
    let segment = small(2);
    let (client, server) = ends(&segment);
    let doorbell = server.doorbell().unwrap();
    let sent = || {
        let ticket = client.send("a", PATIENCE).unwrap();
        wait_for(&doorbell, PollFlags::IN);
        ticket
    };
    let ticket = sent();
    assert_eq!(server.clear(), Ok(1));
    assert!(server.clear() == Ok(0) && !is_readable(&doorbell));
    assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::Failed));
    assert!(client.cancel(sent()).unwrap().is_none());
    assert!(server.try_recv().unwrap().is_none() && !is_readable(&doorbell));
    assert!(client.cancel(sent()).unwrap().is_none());
    assert!(server.drain(2).unwrap().is_empty() && !is_readable(&doorbell));
    assert!(client.cancel(sent()).unwrap().is_none());
    assert_eq!(kind(server.claim(Deadline::now())), Some(ErrorKind::TimedOut));
    assert!(!is_readable(&doorbell));
    assert!(client.cancel(sent()).unwrap().is_none());
    assert_eq!(kind(server.recv_many(2, Deadline::now(), Duration::ZERO)), Some(ErrorKind::TimedOut));
    assert!(!is_readable(&doorbell));
}

#[test]
fn send_doorbell_is_not_readable_after_any_send_that_found_no_slot() {
    let segment = small(1);
    let (client, other) = (segment.client().unwrap(), segment.client().unwrap());
    let doorbell = client.send_doorbell().unwrap();
    let now = Deadline::now;
    let sends: [&dyn Fn() -> Option<ErrorKind>; 5] = [
        &|| client.try_send("a").unwrap().is_none().then_some(ErrorKind::TimedOut),
        &|| kind(client.send("a", now())),
        &|| kind(client.send_with(1, now(), |_| Ok(()))),
        &|| kind(client.send_many(["a"], now())),
        &|| kind(client.call("a", now())),
    ];
    for send in sends {
        wait_for(&doorbell, PollFlags::IN);
        let ticket = other.send("b", PATIENCE).unwrap();
        assert_eq!(send(), Some(ErrorKind::TimedOut));
        assert!(!is_readable(&doorbell));
        assert!(other.cancel(ticket).unwrap().is_none());
    }
}
