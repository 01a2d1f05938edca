//! The module as a whole, in one process.

use std::collections::HashSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Barrier, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::layout::Direction;
use super::shared::Role;
use super::slot::Caller;
use super::*;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::segment::naming::NamedBlobs;
use crate::sync::{Flag, Ordering};
use crate::sys::Errno;
use crate::sys::fault::{Before, Fault, all_met, fork_once, order};

const SOON: Duration = Duration::from_secs(20);

fn small() -> Segment {
    Options::new().slots(2).members(8).request_bytes(100).reply_bytes(100).anonymous().expect("a segment")
}

fn kind<T, E: Into<Error>>(outcome: std::result::Result<T, E>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.into().kind())
}

fn all_free(segment: &Segment) {
    let slots = segment.geometry().slots as usize;
    let audit = segment.audit().unwrap();
    assert_eq!(Audit { entries: 0, ..audit }, Audit { free: slots, ..Audit::default() });
}

/// Runs a task on this thread, without a runtime.
pub(crate) fn block_on<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

// ---------------------------------------------------------------- one call

#[test]
fn recv_any_returns_the_ticket_of_a_damaged_reply() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send("a", SOON).unwrap();
    server.recv(SOON).unwrap().reply("b").unwrap();
    client.slot(ticket, "test").unwrap().describe(Direction::Reply, u32::MAX, 0);
    let done = client.recv_any(SOON).unwrap().expect("a call");
    assert_eq!((done.ticket, kind(done.result)), (ticket, Some(ErrorKind::Corrupt)));
    assert!(client.recv_any(SOON).unwrap().is_none(), "no call is left");
    all_free(&segment);
}

/// A hostile client must not end a server's loop.
#[test]
fn recv_fails_a_request_that_no_client_of_ours_sends_and_takes_the_next() {
    let named = |count, is_long| NamedBlobs { count, is_long };
    let malformed = [
        (u32::MAX, named(0, false)),
        (101, named(0, false)),
        // Handles of zeros name no file.
        (5, named(1, false)),
        (0, named(1, true)),
        (0, named(0, true)),
        (0, named(15, true)),
    ];
    for (len, named) in malformed {
        let segment = small();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let ticket = client.try_send("first").unwrap().expect("there is a slot");
        let slot = client.slot(ticket, "test").unwrap();
        slot.describe(Direction::Request, len, 0);
        slot.set_caller(Caller { named, ..slot.caller() });
        let good = client.try_send("good").unwrap().expect("there is a slot");
        assert_eq!(&*server.recv(SOON).unwrap(), b"good", "{len} {named:?}");
        assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::Failed));
        assert_eq!(kind(client.recv(good, SOON)), Some(ErrorKind::Failed));
        all_free(&segment);
    }
}

#[test]
fn a_server_that_reads_later_leaves_long_payloads_in_their_slots() {
    let segment = small();
    let (client, server) =
        (segment.client().unwrap(), segment.server_with(&ServerOptions::new().reads_later(true)).unwrap());
    let bytes: Vec<u8> = (0..250).collect();
    for (len, is_left) in [(0, false), (64, false), (65, true), (100, true)] {
        for drains in [false, true] {
            let ticket = client.send(Message::new(&bytes[..len]).flags(7), SOON).unwrap();
            let taken = if drains { server.drain(1).unwrap().pop() } else { server.recv(SOON).ok() };
            let mut request = taken.unwrap();
            assert_eq!((request.is_read(), request.size()), (!is_left, len));
            assert_eq!(request.payload().is_empty(), is_left || len == 0);
            let mut place = [0; 100];
            assert_eq!((request.read_into(&mut place), request.flags()), (Ok(len), 7));
            assert_eq!(place[..len], bytes[..len]);
            assert_eq!((request.reply("done"), client.recv(ticket, SOON).is_ok()), (Ok(true), true));
        }
    }
    // What is in a blob is lent.
    let ticket = client.send(&bytes, SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert_eq!((request.is_read(), &*request), (true, &*bytes));
    assert_eq!(request.reply("done"), Ok(true));
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"done");
    all_free(&segment);
}

#[test]
fn answered_call_frees_its_slot() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for turn in 0..100u32 {
        let ticket = client.send(Message::new(&turn.to_le_bytes()).flags(turn), SOON).unwrap();
        assert_eq!(client.try_recv(ticket).unwrap().map(|reply| reply.flags()), None);
        let request = server.recv(SOON).unwrap();
        assert_eq!((&*request, request.flags(), request.redeliveries()), (&turn.to_le_bytes()[..], turn, 0));
        assert_eq!((segment.waiting(), client.pending()), (0, 1));
        assert!(request.reply(Message::new("yes").flags(!turn)).unwrap());
        let reply = client.recv(ticket, SOON).unwrap();
        assert_eq!((&*reply, reply.flags()), (&b"yes"[..], !turn));
        assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::Stale));
        assert!(matches!(client.cancel(ticket), Ok(None)));
    }
    all_free(&segment);
    let stats = segment.stats();
    assert_eq!((stats.requests, stats.replies, stats.cancelled), (100, 100, 0));
}

#[test]
fn by_name_lists_every_field_of_stats_and_audit() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let [first, _] = ["a", "b"].map(|text| client.send(text, SOON).unwrap());
    let _request = server.recv(SOON).unwrap();
    assert!(client.cancel(first).unwrap().is_none());
    let (stats, audit) = (segment.stats(), segment.audit().unwrap());
    assert_eq!((stats.cancelled, audit.waiting, audit.dropped), (1, 1, 1));
    let named: Vec<_> = stats.by_name().map(|(name, count)| format!("{name}: {count}")).collect();
    assert_eq!(format!("{stats:?}"), format!("Stats {{ {} }}", named.join(", ")));
    let named: Vec<_> = audit.by_name().map(|(name, count)| format!("{name}: {count}")).collect();
    assert_eq!(format!("{audit:?}"), format!("Audit {{ {} }}", named.join(", ")));
}

#[test]
fn calls_shows_stages_and_members() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let seen = || segment.calls().map(|call| (call.stage, call.client, call.server)).collect::<Vec<_>>();
    assert_eq!(seen(), []);
    let stream = client.stream("a", SOON).unwrap();
    let first = stream.ticket().expect("it goes on");
    let number = |role| segment.members().unwrap().iter().find(|member| member.role == role).unwrap().number;
    let clients = Some(number(Role::Client));
    assert_eq!(seen(), [(Stage::Waiting, clients, None)]);
    let mut request = server.recv(SOON).unwrap();
    let servers = Some(number(Role::Server));
    assert_eq!(seen(), [(Stage::Taken, clients, servers)]);
    assert_eq!(segment.calls().map(|call| call.ticket).collect::<Vec<_>>(), [first]);
    request.part("b", SOON).unwrap();
    assert_eq!(seen(), [(Stage::InParts, clients, servers)]);
    assert!(client.cancel(first).unwrap().is_none());
    assert_eq!(seen(), [(Stage::Dropped, None, servers)]);
    assert!(!request.reply("").unwrap());
    assert_eq!(seen(), []);
    let answered = client.send("c", SOON).unwrap();
    server.recv(SOON).unwrap().reply("d").unwrap();
    assert_eq!(seen(), [(Stage::Done, clients, None)]);
    client.recv(answered, SOON).unwrap();
    let forgotten = client.send("e", SOON).unwrap();
    client.forget(forgotten).unwrap();
    assert_eq!(seen(), [(Stage::Waiting, None, None)]);
    let request = server.recv(SOON).unwrap();
    assert_eq!(seen(), [(Stage::Taken, None, servers)]);
    drop(request);
    all_free(&segment);
}

#[test]
fn waiting_bytes_and_reply_len_count_only_present_payloads() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    assert_eq!((server.waiting_bytes(1), server.waiting_bytes(9)), (0, 0));
    let [gone, first] = [3, 500].map(|len| client.send(&vec![0; len], SOON).unwrap());
    assert_eq!((server.waiting_bytes(0), server.waiting_bytes(1), server.waiting_bytes(9)), (0, 3, 503));
    // A call that is over still has its entry.
    assert!(client.cancel(gone).unwrap().is_none());
    assert_eq!((server.waiting_bytes(1), client.reply_len(gone)), (500, 0));
    let request = server.recv(SOON).unwrap();
    assert_eq!((server.waiting_bytes(9), client.reply_len(first)), (0, 0));
    request.reply(&[0; 700]).unwrap();
    assert_eq!(client.reply_len(first), 700);
    client.recv(first, SOON).unwrap();
    assert_eq!((client.reply_len(first), client.reply_len(Ticket::from_bits(u64::MAX))), (0, 0));
    all_free(&segment);
}

#[test]
fn payloads_of_every_size_arrive_and_larger_ones_are_refused() {
    let segment = small();
    let client = segment.client_with(&ClientOptions::new().max_message(110)).unwrap();
    let server = segment.server_with(&ServerOptions::new().max_message(110)).unwrap();
    let bytes: Vec<u8> = (0..=111).collect();
    for len in 0..=110 {
        let ticket = client.try_send(&bytes[..len]).unwrap().expect("there is a slot");
        let request = server.try_recv().unwrap().expect("it was sent");
        assert_eq!(&*request, &bytes[..len]);
        assert!(request.reply(&bytes[1..=len]).unwrap());
        assert_eq!(client.recv(ticket, SOON).unwrap().into_vec(), &bytes[1..=len]);
    }
    assert_eq!(kind(client.try_send(&bytes[..111])), Some(ErrorKind::TooLong));
    let ticket = client.try_send("x").unwrap().expect("there is a slot");
    assert_eq!(kind(server.recv(SOON).unwrap().reply(&bytes[..111])), Some(ErrorKind::TooLong));
    assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::Failed));
    all_free(&segment);
}

#[test]
fn dropped_request_fails_at_its_client_at_once() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let [first, second] = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
    server.recv(SOON).unwrap().fail("");
    drop(server.recv(SOON).unwrap());
    assert_eq!(kind(client.try_recv(first)), Some(ErrorKind::Failed));
    assert_eq!(kind(client.recv(second, SOON)), Some(ErrorKind::Failed));
    all_free(&segment);
}

#[test]
fn cancel_ends_a_call_in_any_state() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let send = |text| client.try_send(text).unwrap().expect("there is a slot");
    // In the ring, from which no server takes it any more.
    assert!(client.cancel(send("a")).unwrap().is_none() && server.try_recv().unwrap().is_none());
    // Taken by a server.
    let taken = send("b");
    let request = server.recv(SOON).unwrap();
    assert!(client.cancel(taken).unwrap().is_none());
    assert!(!request.is_wanted() && !request.reply("too late").unwrap());
    // Answered, and failed.
    let answered = send("c");
    server.recv(SOON).unwrap().reply("d").unwrap();
    assert_eq!(&*client.cancel(answered).unwrap().expect("it has come"), b"d");
    let failed = send("e");
    server.recv(SOON).unwrap().fail("");
    assert_eq!(kind(client.cancel(failed)), Some(ErrorKind::Failed));
    // Ended, or another client's.
    let others = segment.client().unwrap();
    for ticket in [taken, answered, failed, others.try_send("f").unwrap().expect("there is a slot")] {
        assert!(client.cancel(ticket).unwrap().is_none());
    }
    assert_eq!((client.pending(), others.pending()), (0, 1));
    drop(others);
    all_free(&segment);
}

#[test]
fn owned_request_keeps_its_server_attached() {
    let segment = small();
    let client = segment.client().unwrap();
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    let mut request = segment.server().unwrap().recv(SOON).map(|request| request.into_owned()).unwrap();
    assert_eq!(segment.members().unwrap().len(), 2, "the request keeps its server attached");
    thread::spawn(move || {
        assert_eq!(request.take_payload(), b"a");
        assert!(request.is_wanted() && request.reply("b").unwrap());
    });
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"b");
}

// ---------------------------------------------------------------- ends that come early

#[test]
fn the_end_of_each_of_many_calls_does_not_look_at_all_others() {
    const CALLS: usize = 1000;
    let segment = Options::new().slots(CALLS as u32).anonymous().unwrap();
    let client = segment.client().unwrap();
    for is_reversed in [false, true] {
        let mut tickets = client.send_many(std::iter::repeat_n("request", CALLS), SOON).unwrap();
        if is_reversed {
            tickets.reverse();
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| client.recv_any(SOON));
            let me = client.sender().liveness().number();
            while !client.shared().member(me).unwrap().any.is_awaited() {
                thread::yield_now();
            }
            order("look at a call", 10 * CALLS, Fault::Errno(0));
            for ticket in tickets {
                assert!(client.cancel(ticket).unwrap().is_none());
            }
            assert!(!all_met(), "an end looks at ten calls and more");
            assert!(waiting.join().unwrap().unwrap().is_none());
        });
    }
}

#[test]
fn cancelled_call_is_stale_in_any_state() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    // In the ring.
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    assert!(client.cancel(ticket).unwrap().is_none());
    assert_eq!((kind(client.try_recv(ticket)), client.pending()), (Some(ErrorKind::Stale), 0));
    assert!(server.try_recv().unwrap().is_none());
    // Taken by a server, which keeps the slot.
    let ticket = client.try_send("b").unwrap().expect("there is a slot");
    let request = server.recv(SOON).unwrap();
    assert!(request.is_wanted() && client.cancel(ticket).unwrap().is_none() && !request.is_wanted());
    assert_eq!((segment.audit().unwrap().dropped, client.pending()), (1, 0));
    assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::Stale));
    assert!(!request.reply("too late").unwrap());
    // Answered, for a binding that leaves the reply to `recv`.
    let ticket = client.try_send("c").unwrap().expect("there is a slot");
    server.recv(SOON).unwrap().reply("d").unwrap();
    assert_eq!(client.cancel_unless_done(ticket), Ok(false));
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"d");
    all_free(&segment);
    assert_eq!(segment.stats().cancelled, 2);
}

#[test]
fn call_that_times_out_frees_its_slot() {
    let segment = small();
    let client = segment.client().unwrap();
    for _ in 0..10 {
        assert_eq!(kind(client.call("a", Duration::from_millis(1))), Some(ErrorKind::TimedOut));
    }
    all_free(&segment);
    let server = segment.server().unwrap();
    let late = client.try_send("b").unwrap().expect("there is a slot");
    assert_eq!(kind(client.recv(late, Duration::from_millis(1))), Some(ErrorKind::TimedOut));
    server.recv(SOON).unwrap().reply("c").unwrap();
    assert_eq!(&*client.recv(late, Deadline::now()).unwrap(), b"c", "the ticket stays good");
}

#[test]
fn send_waits_for_a_free_slot() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let tickets = ["a", "b"].map(|text| client.try_send(text).unwrap().expect("there is a slot"));
    assert!(client.try_send("c").unwrap().is_none());
    assert_eq!(kind(client.send("c", Duration::from_millis(1))), Some(ErrorKind::TimedOut));
    assert_eq!(segment.stats().full, 2);
    thread::scope(|scope| {
        let other = segment.client().unwrap();
        let waiting = scope.spawn(move || other.call("c", SOON).unwrap().into_vec());
        for _ in 0..2 {
            server.recv(SOON).unwrap().reply("x").unwrap();
        }
        tickets.into_iter().for_each(|ticket| drop(client.recv(ticket, SOON).unwrap()));
        server.recv(SOON).unwrap().reply("y").unwrap();
        assert_eq!(waiting.join().unwrap(), b"y");
    });
    all_free(&segment);
}

#[test]
fn cancelled_calls_fill_the_ring_behind_a_live_one_until_a_server_comes() {
    let segment = small();
    let client = segment.client().unwrap();
    let first = client.try_send("first").unwrap().expect("there is a slot");
    let mut sent = 0;
    while let Some(ticket) = client.try_send("again").unwrap() {
        assert!(client.cancel(ticket).unwrap().is_none());
        sent += 1;
    }
    // The ring has four cells; three of them are behind the first call.
    let audit = segment.audit().unwrap();
    assert_eq!((sent, audit.entries, audit.free, segment.waiting()), (3, 4, 1, 1));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.call("last", SOON).unwrap().into_vec());
        let server = segment.server().unwrap();
        for _ in 0..2 {
            let request = server.recv(SOON).unwrap();
            let answer = request.to_vec();
            request.reply(&answer).unwrap();
        }
        assert_eq!(waiting.join().unwrap(), b"last");
    });
    assert_eq!(&*client.recv(first, SOON).unwrap(), b"first");
    all_free(&segment);
    // Without a live entry in front, a push makes space by itself.
    for _ in 0..20 {
        assert!(client.cancel(client.try_send("alone").unwrap().expect("there is space")).unwrap().is_none());
    }
}

#[test]
fn request_that_was_sent_again_is_in_the_ring_once() {
    let segment = small();
    let (client, server) =
        (segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap(), segment.server().unwrap());
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    std::mem::forget(server.recv(SOON).unwrap());
    drop(server);
    assert_eq!((segment.audit().unwrap().waiting, segment.waiting()), (1, 1));
    // Long enough for several looks at the end of a slice, in a ring of four cells.
    assert_eq!(kind(client.recv(ticket, Duration::from_millis(700))), Some(ErrorKind::TimedOut));
    assert_eq!(segment.waiting(), 1);
    let other = client.try_send("b").unwrap().expect("there is a slot, and space in the ring");
    let server = segment.server().unwrap();
    for request in server.drain(3).unwrap() {
        let answer = request.redeliveries().to_string();
        assert!(request.reply(&answer).unwrap());
    }
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"1");
    assert_eq!(&*client.recv(other, SOON).unwrap(), b"0");
    all_free(&segment);
}

#[test]
fn dropped_client_and_server_free_their_slots() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let _queued = client.try_send("a").unwrap();
    let _taken = client.try_send("b").unwrap();
    let request = server.recv(SOON).unwrap();
    drop(client);
    assert_eq!(segment.audit().unwrap().dropped, 1);
    assert!(!request.reply("too late").unwrap());
    drop(server);
    all_free(&segment);
    assert_eq!(segment.members().unwrap(), []);
    assert_eq!((segment.stats().dead_members, segment.stats().recovered), (0, 0));
}

#[test]
fn one_death_is_counted_once() {
    const DEATHS: u64 = 10_000;
    let segment = small();
    let word = || &segment.shared().member(1).expect("there are eight").word;
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..DEATHS {
                begin.wait();
                segment.recover().unwrap();
                begin.wait();
            }
        });
        for turn in 0..DEATHS {
            // As a dead client would leave it: its role, in a word that was not used before.
            word().store((turn + 1) << 32 | Role::Client as u64, Ordering::Relaxed);
            begin.wait();
            let _takes_its_number = segment.client().unwrap();
            begin.wait();
        }
    });
    assert_eq!(segment.stats().dead_members, DEATHS);
}

#[test]
fn recovery_of_a_segment_blocks_no_other_segment_and_no_fork() {
    static STANDS_STILL: Flag = Flag::new();
    static GOES_ON: Flag = Flag::new();
    fn until(flag: &Flag) {
        let limit = Deadline::after(SOON);
        while !flag.is_set() && !limit.has_passed() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    fn stop() {
        STANDS_STILL.set(true);
        until(&GOES_ON);
    }
    let segment = small();
    // As a dead client would leave it: its role. So its number has to be recovered first.
    segment.shared().member(1).expect("there are eight").word.store(Role::Client as u64, Ordering::Relaxed);
    thread::scope(|scope| {
        let joining = scope.spawn(|| {
            order("recover", 0, Fault::After(Before(stop)));
            let client = segment.client();
            assert!(all_met());
            client.map(drop)
        });
        until(&STANDS_STILL);
        let other = small();
        let (client, server) = (other.client().unwrap(), other.server().unwrap());
        let ticket = client.send("a", SOON).unwrap();
        server.recv(SOON).unwrap().reply("b").unwrap();
        assert_eq!(*client.recv(ticket, SOON).unwrap(), *b"b");
        fork_once();
        assert!(!joining.is_finished(), "the recovery stands still");
        GOES_ON.set(true);
        assert_eq!(joining.join().unwrap(), Ok(()));
    });
    assert_eq!(segment.stats().dead_members, 1);
}

#[test]
fn needs_server_fails_with_no_server_at_once() {
    let segment = small();
    let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    assert_eq!(kind(client.call("a", SOON)), Some(ErrorKind::NoServer));
    assert_eq!(kind(client.try_send("a")), Some(ErrorKind::NoServer));
    let server = segment.server().unwrap();
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    drop(server);
    assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::NoServer), "at the end of a slice");
    all_free(&segment);
}

// ---------------------------------------------------------------- many

#[test]
fn many_requests_come_at_once() {
    let segment = Options::new().slots(8).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let send =
        |count: u8| (0..count).map(|n| client.try_send(&[n]).unwrap().expect("a slot")).collect::<Vec<_>>();
    let first = |requests: &[Request<'_>]| requests.iter().map(|request| request[0]).collect::<Vec<_>>();
    let tickets = send(5);
    let requests = server.recv_many(3, SOON, Duration::ZERO).unwrap();
    assert_eq!(first(&requests), [0, 1, 2]);
    drop(requests);
    let requests = server.drain(usize::MAX).unwrap();
    assert_eq!(first(&requests), [3, 4]);
    drop(requests);
    assert!(
        server.drain(9).unwrap().is_empty()
            && server.recv_many(0, Deadline::now(), Duration::ZERO).unwrap().is_empty()
    );
    assert_eq!(kind(server.recv_many(9, Deadline::now(), Duration::ZERO)), Some(ErrorKind::TimedOut));
    tickets.into_iter().for_each(|ticket| assert_eq!(kind(client.try_recv(ticket)), Some(ErrorKind::Failed)));
    let tickets = send(8);
    assert_eq!((server.clear().unwrap(), segment.waiting()), (8, 0));
    tickets.into_iter().for_each(|ticket| assert_eq!(kind(client.try_recv(ticket)), Some(ErrorKind::Failed)));
    all_free(&segment);
}

#[test]
fn spin_of_any_length_is_accepted() {
    let segment = Options::new().slots(2).spin(Duration::MAX).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    // It ends long before that, and parks.
    assert_eq!(kind(server.recv(Duration::from_millis(20))), Some(ErrorKind::TimedOut));
    let ticket = client.send("a", SOON).unwrap();
    assert!(server.recv(SOON).unwrap().reply("b").unwrap());
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"b");
}

#[test]
fn calls_between_threads_all_get_their_own_answer() {
    for spin in [Duration::ZERO, Duration::from_micros(20)] {
        let segment = Options::new().slots(4).spin(spin).anonymous().unwrap();
        let servers: Vec<Server> = (0..2).map(|_| segment.server().unwrap()).collect();
        thread::scope(|scope| {
            for server in &servers {
                scope.spawn(move || {
                    loop {
                        let request = server.recv(Deadline::NEVER).unwrap();
                        let end = request.is_empty();
                        let mut answer = request.to_vec();
                        answer.reverse();
                        request.reply(&answer).unwrap();
                        if end {
                            break;
                        }
                    }
                });
            }
            let calls = |seed: usize| {
                let client = segment.client().unwrap();
                move || {
                    for turn in 0..1000 {
                        let request = format!("{seed} asks {turn} {}", "x".repeat((seed * turn) % 3000));
                        let reply = client.call(&request, SOON).unwrap();
                        assert!(reply.iter().rev().eq(request.as_bytes()));
                    }
                }
            };
            // More clients than slots.
            let clients: Vec<_> = (1..6).map(|seed| scope.spawn(calls(seed))).collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            let last = segment.client().unwrap();
            servers.iter().for_each(|_| drop(last.call("", SOON).unwrap()));
        });
        all_free(&segment);
    }
}

#[test]
fn threads_share_one_client_and_one_server() {
    let segment = Options::new().slots(4).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let call = |number: i64| {
        i64::from_ne_bytes((*client.call(&number.to_ne_bytes(), SOON).unwrap()).try_into().unwrap())
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let request = server.recv(Deadline::NEVER).unwrap();
                    let value = i64::from_ne_bytes(request.payload().try_into().unwrap());
                    request.reply(&value.wrapping_neg().to_ne_bytes()).unwrap();
                    if value == i64::MIN {
                        break;
                    }
                }
            });
        }
        let calls: Vec<_> = (0..4i64)
            .map(|seed| {
                let call = &call;
                scope.spawn(move || (0..1000).for_each(|n| assert_eq!(call(seed * n), -seed * n)))
            })
            .collect();
        calls.into_iter().for_each(|call| call.join().unwrap());
        (0..2).for_each(|_| assert_eq!(call(i64::MIN), i64::MIN));
    });
    assert_eq!(segment.members().unwrap().len(), 2);
}

#[test]
fn one_ticket_received_by_two_threads_gives_one_reply() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for _ in 0..300 {
        let ticket = client.try_send("a").unwrap().expect("there is a slot");
        thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| kind(client.recv(ticket, SOON))));
            server.recv(SOON).unwrap().reply("b").unwrap();
            let ends: HashSet<_> = both.into_iter().map(|end| end.join().unwrap()).collect();
            assert_eq!(ends, HashSet::from([None, Some(ErrorKind::Stale)]));
        });
    }
    all_free(&segment);
}

#[test]
fn recv_reports_corrupt_when_the_file_is_cut_while_it_parks() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| std::env::temp_dir().join(format!("pipework-cut-{}", std::process::id())));
    let segment = Options::new().slots(2).create(path).unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let cut = || {
        let file = std::fs::OpenOptions::new().write(true).open(PATH.get().expect("it was made")).unwrap();
        file.set_len(100).unwrap();
    };
    // Between the announcement and the system call.
    order("futex", 0, Fault::After(Before(cut)));
    assert_eq!(kind(server.recv(SOON)), Some(ErrorKind::Corrupt));
    assert!(all_met());
    assert_eq!(kind(client.try_send("a")), Some(ErrorKind::Corrupt));
    std::fs::remove_file(path).unwrap();
}

/// In the middle of a copy, the slot is out of reach of every other thread: one with the same
/// ticket, and one that makes up a ticket.
#[test]
fn slot_that_another_thread_copies_from_or_to_cannot_be_received_or_cancelled() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    server.recv(SOON).unwrap().reply("b").unwrap();
    let slot = segment.shared().slot(ticket.idx()).unwrap();
    let held = slot.hold(slot.load()).expect("it is done");
    let stale = || {
        assert_eq!(kind(client.try_recv(ticket)), Some(ErrorKind::Stale));
        assert!(matches!(client.cancel(ticket), Ok(None)));
    };
    stale();
    assert!(slot.step(held, held.freed()));
    stale();
    let (idx, other) = segment.shared().slots().nth(1).expect("there are two");
    let filling = other.acquire(1).expect("it is free");
    let guessed = Ticket::from_bits(filling.generation() << 24 | u64::from(idx));
    assert!(matches!(client.cancel(guessed), Ok(None)));
    assert_eq!(kind(client.try_recv(guessed)), Some(ErrorKind::Stale));
    assert!(other.step(filling, filling.freed()), "it is still being filled");
    all_free(&segment);
}

// ---------------------------------------------------------------- parts for clients that take none

#[test]
fn parts_of_a_call_come_as_one_reply_with_the_flags_of_the_last() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let answers: [fn(Request<'_>); 4] = [
        |request| assert_eq!(request.reply(Message::new("three").flags(3)), Ok(true)),
        |request| {
            let write = |space: &mut Space<'_>| {
                space.set_flags(3);
                space.put(b"three")
            };
            assert_eq!(request.reply_with(50, write), Ok(true));
        },
        |request| {
            let mut request = request.into_owned();
            assert_eq!(request.flush(SOON), Ok(true));
            assert_eq!(request.try_reply(Message::new("three").flags(3)), Ok(true));
        },
        |request| {
            let reply = Message::new("three").flags(3);
            assert_eq!(block_on(request.reply_async(reply)), Ok(true));
        },
    ];
    for answer in answers {
        let ticket = client.send("", SOON).unwrap();
        let mut request = server.recv(SOON).unwrap();
        assert_eq!(request.part(Message::new("one ").flags(1), Deadline::now()), Ok(true));
        assert_eq!(block_on(request.part_async("two ")), Ok(true));
        assert_eq!(client.try_recv(ticket), Ok(None));
        answer(request);
        let reply = client.recv(ticket, SOON).unwrap();
        assert_eq!((&*reply, reply.flags()), (&b"one two three"[..], 3));
    }
    all_free(&segment);
}

#[test]
fn parts_of_a_call_stay_with_a_request_that_is_kept_or_adopted() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let [one, two] = ["one", "two"].map(|text| client.send(text, SOON).unwrap());
    for _ in 0..2 {
        let mut request = server.recv(SOON).unwrap();
        let text = request.to_vec();
        assert_eq!(request.part(&text, SOON), Ok(true));
        request.keep();
    }
    let mut request = server.kept(one).unwrap().expect("it is kept");
    assert_eq!(request.part(", more", SOON), Ok(true));
    request.keep();
    assert_eq!(server.kept(one).unwrap().expect("it is kept").reply(", done"), Ok(true));
    assert_eq!(server.adopt(two).unwrap().reply(", done"), Ok(true));
    assert_eq!(&*client.recv(one, SOON).unwrap(), b"one, more, done");
    assert_eq!(&*client.recv(two, SOON).unwrap(), b"two, done");
    all_free(&segment);
}

#[test]
fn parts_of_a_call_are_together_no_longer_than_max_message() {
    let segment = small();
    let client = segment.client().unwrap();
    let server = segment.server_with(&ServerOptions::new().max_message(1000)).unwrap();
    let ticket = client.send("", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert_eq!(request.part(&[1; 600], SOON), Ok(true));
    assert_eq!(kind(request.part(&[2; 401], SOON)), Some(ErrorKind::TooLong));
    assert_eq!(kind(request.try_reply(&[2; 401])), Some(ErrorKind::TooLong));
    assert_eq!(request.try_reply(&[3; 400]), Ok(true));
    assert_eq!(*client.recv(ticket, SOON).unwrap(), *[[1; 600].as_slice(), &[3; 400]].concat());
    all_free(&segment);
}

// ---------------------------------------------------------------- numbers

#[test]
fn places_for_members_run_out_and_are_freed() {
    let segment = Options::new().members(2).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    assert_eq!(kind(segment.client()), Some(ErrorKind::WouldBlock));
    let members = segment.members().unwrap();
    let listed: Vec<_> = members.iter().map(|member| (member.number, member.role, member.is_alive)).collect();
    assert_eq!(listed, [(1, Role::Client, true), (2, Role::Server, true)]);
    assert!(members.iter().all(|member| member.pid == std::process::id()));
    drop(client);
    assert_eq!(segment.server().unwrap().segment().members().unwrap()[0].role, Role::Server);
    drop(server);
}

#[test]
fn tickets_survive_as_numbers_and_foreign_ones_are_stale() {
    let segment = small();
    let (client, other) = (segment.client().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("a").unwrap().expect("there is a slot");
    assert_eq!(Ticket::from_bits(ticket.to_bits()), ticket);
    for bits in [0, u64::MAX, ticket.to_bits() + 1, ticket.to_bits() + (1 << 24)] {
        assert_eq!(kind(client.try_recv(Ticket::from_bits(bits))), Some(ErrorKind::Stale), "{bits:x}");
        assert!(matches!(client.cancel(Ticket::from_bits(bits)), Ok(None)), "{bits:x}");
    }
    assert_eq!(kind(other.try_recv(ticket)), Some(ErrorKind::Stale));
    assert!(matches!(other.cancel(ticket), Ok(None)));
    assert_eq!(client.pending(), 1);
}

// ---------------------------------------------------------------- servers that answer in a loop

// Threads without a scope: one that still serves must not keep a failed test from ending.
#[test]
fn serve_answers_with_what_its_handler_returns_until_it_is_stopped() {
    let segment = small();
    let client = segment.client().unwrap();
    let server = segment.server_with(&ServerOptions::new().max_message(1000)).unwrap();
    let act = |request: &mut Request<'_>| match &**request {
        b"fail" => Err("no such thing".to_owned()),
        b"parts" => {
            for part in ["one ", "two "] {
                assert_eq!(request.part(part, SOON), Ok(true));
            }
            Ok(b"three".to_vec())
        }
        b"too long" => Ok(vec![0; 1001]),
        other => Err(format!("{other:?}")),
    };
    let stop = server.clone();
    let serving = thread::spawn(move || server.serve(act));
    let failed = |request: &str| {
        let error = client.call(request, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        String::from_utf8(error.into_reason().expect("the server gave one").into_vec()).unwrap()
    };
    assert_eq!(failed("fail"), "no such thing");
    let parts = client.stream("parts", SOON).unwrap().map(|part| part.unwrap().into_vec());
    assert_eq!(parts.collect::<Vec<_>>(), [&b"one "[..], b"two ", b"three"]);
    assert_eq!(*client.call("parts", SOON).unwrap(), *b"one two three");
    assert_eq!(failed("too long"), "reqrep reply: larger than the limit");
    stop.stop();
    assert_eq!(serving.join().unwrap(), Ok(()));
    drop(stop);
    all_free(&segment);
}

#[test]
fn serve_runs_in_several_threads_of_one_server() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let serving = [(); 2].map(|()| {
        let server = server.clone();
        thread::spawn(move || server.serve(|request| Ok::<_, Error>(request.take_payload())))
    });
    for n in 0..20 {
        let tickets = client.send_many([&[n; 10], &[n + 1; 10]], SOON).unwrap();
        let replies = tickets.into_iter().map(|ticket| client.recv(ticket, SOON).unwrap().into_vec());
        assert_eq!(replies.collect::<Vec<_>>(), [[n; 10], [n + 1; 10]]);
        assert_eq!(*client.call(&[n; 250], SOON).unwrap(), [n; 250]);
    }
    server.stop();
    serving.into_iter().for_each(|serving| assert_eq!(serving.join().unwrap(), Ok(())));
    all_free(&segment);
}

#[test]
fn requests_ends_after_stop_and_after_the_first_error() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let tickets = client.send_many(["a", "b"], SOON).unwrap();
    let mut requests = server.requests();
    for _ in 0..2 {
        let request = requests.next().expect("one waits").unwrap();
        let answer = request.to_ascii_uppercase();
        assert_eq!(request.reply(&answer), Ok(true));
    }
    assert_eq!(*client.recv(tickets[0], SOON).unwrap(), *b"A");
    assert_eq!(*client.recv(tickets[1], SOON).unwrap(), *b"B");
    server.stop();
    assert!(requests.next().is_none() && requests.next().is_none());
    assert!(server.requests().next().is_none());

    let server = segment.server().unwrap();
    let mut requests = server.requests();
    order("futex", 0, Fault::Errno(Errno::IO.number()));
    assert!(matches!(requests.next(), Some(Err(error)) if error.errno() == Some(Errno::IO.number())));
    assert!(all_met() && requests.next().is_none());
    all_free(&segment);
}

// ---------------------------------------------------------------- servers that give requests back

#[test]
fn give_back_sends_the_request_to_another_server() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send(Message::new("x").flags(7), SOON).unwrap();
    for times in 0..3 {
        let mut request = server.recv(SOON).unwrap();
        assert_eq!((request.redeliveries(), request.give_back(), request.is_over()), (times, true, true));
        assert!(!request.give_back());
    }
    // A slot's word cannot count more than three.
    let mut request = server.recv(SOON).unwrap();
    assert!(!request.give_back());
    assert_eq!((&*request, request.flags()), (&b"x"[..], 7));
    request.reply("y").unwrap();
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"y");
    all_free(&segment);
}

#[test]
fn given_back_request_fails_with_no_server_when_none_is_left() {
    let segment = small();
    let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
    thread::scope(|scope| {
        let server = segment.server().unwrap();
        let call = scope.spawn(|| kind(client.call("x", SOON)));
        let given_back = server.recv(SOON).unwrap().give_back();
        drop(server);
        assert_eq!((given_back, call.join().unwrap()), (true, Some(ErrorKind::NoServer)));
    });
    all_free(&segment);
}

#[test]
fn give_back_handles_cancelled_forgotten_and_begun_calls() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send("cancelled", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert!(client.cancel(ticket).unwrap().is_none());
    assert!(!request.give_back());
    drop(request);
    all_free(&segment);

    client.forget(client.send("forgotten", SOON).unwrap()).unwrap();
    assert!(server.recv(SOON).unwrap().give_back());
    let request = server.recv(SOON).unwrap();
    assert_eq!((&*request, request.is_wanted(), request.redeliveries()), (&b"forgotten"[..], true, 1));
    drop(request);

    let mut stream = client.stream("parts", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert!(request.part("one", SOON).unwrap());
    assert!(!request.give_back());
    drop(request);
    assert_eq!(kind(stream.next_part(SOON)), Some(ErrorKind::Failed));

    // Its client takes no parts, and has got none.
    let ticket = client.send("call", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert!(request.part("one", SOON).unwrap() && request.give_back());
    drop(request);
    assert_eq!(server.recv(SOON).unwrap().reply("two"), Ok(true));
    assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"two");
    all_free(&segment);
}

#[test]
fn report_death_ends_a_call_as_if_its_server_had_died() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let ticket = client.send("once", SOON).unwrap();
    assert!(server.recv(SOON).unwrap().report_death());
    assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::PeerDied));

    // In the middle of a reply.
    let mut stream = client.stream("parts", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    assert!(request.part("one", SOON).unwrap());
    assert!(request.report_death());
    assert_eq!(kind(stream.next_part(SOON)), Some(ErrorKind::PeerDied));

    let client = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
    let ticket = client.send("twice", SOON).unwrap();
    assert!(server.recv(SOON).unwrap().report_death());
    assert!(server.recv(SOON).unwrap().report_death());
    assert_eq!(kind(client.recv(ticket, SOON)), Some(ErrorKind::PeerDied));

    let ticket = client.send("cancelled", SOON).unwrap();
    let request = server.recv(SOON).unwrap();
    assert!(client.cancel(ticket).unwrap().is_none());
    assert!(!request.report_death());
    assert_eq!(segment.stats().redelivered, 1);
    all_free(&segment);
}

#[test]
fn give_back_fails_when_the_ring_is_full() {
    let segment = Options::new().slots(3).members(8).anonymous().unwrap();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    let first = client.send("first", SOON).unwrap();
    let mut request = server.recv(SOON).unwrap();
    // One request waits at the front, and behind it are entries of cancelled calls.
    let second = client.send("second", SOON).unwrap();
    for _ in 1..segment.geometry().queue {
        assert!(client.cancel(client.send("", SOON).unwrap()).unwrap().is_none());
    }
    assert!(!request.give_back());
    request.reply("done").unwrap();
    assert_eq!(&*client.recv(first, SOON).unwrap(), b"done");
    server.recv(SOON).unwrap().reply("").unwrap();
    client.recv(second, SOON).unwrap();
    all_free(&segment);
}

#[test]
fn waiting_counts_only_requests_that_a_server_can_take() {
    type End = fn(&Segment, Client, Vec<Ticket>);
    let ends: [(&str, usize, End); 5] = [
        ("its client has left", 0, |_, client, _| drop(client)),
        ("its client has left and has forgotten them", 3, |_, client, _| {
            assert_eq!(client.forget_all(), 3);
        }),
        ("cancelled", 0, |_, client, tickets| {
            tickets.into_iter().for_each(|ticket| assert_eq!(client.cancel(ticket), Ok(None)));
        }),
        ("timed out", 0, |_, client, tickets| {
            tickets.into_iter().for_each(|ticket| assert_eq!(client.cancel(ticket), Ok(None)));
            assert_eq!(kind(client.call("x", Deadline::now())), Some(ErrorKind::TimedOut));
        }),
        ("pushed again by a recovery", 3, |segment, client, _| {
            assert_eq!(client.forget_all(), 3);
            drop(client);
            // Each recovery of a member pushes the first one again.
            for _ in 0..3 {
                drop(segment.client().unwrap());
            }
            assert!(segment.audit().unwrap().entries > 3);
        }),
    ];
    for (why, taken, end) in ends {
        let segment = Options::new().slots(8).members(4).anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let tickets = client.send_many(["a", "b", "c"], SOON).unwrap();
        assert_eq!(segment.waiting(), 3);
        end(&segment, client, tickets);
        assert_eq!(segment.waiting(), taken, "{why}");
        let mut drained = 0;
        while segment.waiting() > 0 {
            server.recv(SOON).unwrap().reply("").unwrap();
            drained += 1;
        }
        assert_eq!((drained, server.drain(8).unwrap().len()), (taken, 0), "{why}");
        all_free(&segment);
    }
}

#[test]
fn call_that_has_timed_out_keeps_its_slot_until_its_server_has_finished() {
    let segment = Options::new().slots(2).members(4).anonymous().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap();
    let (other, server) = (segment.client().unwrap(), segment.server().unwrap());
    let mut taken: Vec<_> = (0..2)
        .map(|_| {
            let ticket = client.send("slow", SOON).unwrap();
            let request = server.recv(SOON).unwrap();
            assert_eq!(kind(client.recv(ticket, Deadline::now())), Some(ErrorKind::TimedOut));
            assert_eq!(client.cancel(ticket), Ok(None));
            request
        })
        .collect();
    // Neither `pending` nor `max_in_flight` counts them.
    assert_eq!((client.pending(), segment.audit().unwrap().dropped), (0, 2));
    assert!(other.try_send("x").unwrap().is_none(), "no slot is free");
    assert_eq!(taken.remove(0).reply("late"), Ok(false));
    let ticket = other.try_send("x").unwrap().expect("a slot is free");
    // One that no server has taken gives its slot back at once.
    assert_eq!(other.cancel(ticket), Ok(None));
    assert_eq!(segment.audit().unwrap().free, 1);
    drop(taken);
    all_free(&segment);
}
