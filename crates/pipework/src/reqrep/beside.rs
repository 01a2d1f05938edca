//! Runs every public method of a client beside every other one, from two threads that share the
//! handle; the same for a server. Each request must arrive as it was sent, and each reply with its
//! own call. No slice ends here, so a wait that misses its wake-up never returns, which is reported
//! after [`GUARD`].
//!
//! The tables are compared with the source, so a new method without an entry fails.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process;
use std::sync::Barrier;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::tests::block_on;
use super::{Audit, Client, Options, Request, Segment, Server, Stream, Ticket};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicU64, Flag, Ordering::SeqCst};
use crate::sys;

/// After this time a wait counts as forgotten.
const GUARD: Duration = Duration::from_secs(60);
const NEVER: Deadline = Deadline::NEVER;

// ---------------------------------------------------------------- both tables

/// The public methods of a type in these files, except those that only bindings use.
fn public_methods(of: &str, files: &[&str]) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reqrep");
    let mut names = BTreeSet::new();
    for file in files {
        let (mut is_of, mut is_hidden) = (false, false);
        for line in fs::read_to_string(folder.join(file)).unwrap().lines() {
            if line.starts_with("impl") {
                is_of = line == format!("impl {of} {{");
            }
            is_hidden |= line == "    #[doc(hidden)]";
            let method = line.strip_prefix("    pub fn ").or(line.strip_prefix("    pub async fn "));
            if let Some(method) = method {
                if is_of && !is_hidden {
                    names.insert(method.split(['(', '<']).next().unwrap().into());
                }
                is_hidden = false;
            }
        }
    }
    names
}

fn assert_complete<'a>(of: &str, files: &[&str], table: impl Iterator<Item = &'a str>) {
    let methods = public_methods(of, files);
    assert!(methods.len() > 10, "the source is read: {methods:?}");
    assert_eq!(methods, table.map(String::from).collect(), "in the source and in the table");
}

/// Runs `scene`, and aborts if it does not end.
fn in_time(what: &str, scene: impl FnOnce()) {
    let (over, is_over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if is_over.recv_timeout(GUARD) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: a wait was not woken");
                process::abort();
            }
        });
        scene();
        drop(over);
    });
}

/// Aborts on a panic: two threads call each other repeatedly, and the other one would wait for
/// ever.
fn or_abort(what: &str, act: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err() {
        eprintln!("{what}: see above");
        process::abort();
    }
}

/// Small slots, so that some requests and replies are longer than a slot.
fn small(slots: u32) -> Segment {
    let options = Options::new().slots(slots).members(8).spin(Duration::ZERO);
    options.request_bytes(24).reply_bytes(32).anonymous().unwrap()
}

fn client(segment: &Segment) -> Client {
    let client = segment.client().unwrap();
    client.sender().liveness().tick().stop();
    client
}

fn server(segment: &Segment) -> Server {
    let server = segment.server().unwrap();
    server.serving().liveness().tick().stop();
    server
}

/// A request with its number in every word.
fn request(number: u64) -> Vec<u8> {
    number.to_ne_bytes().repeat([1, 2, 5][number as usize % 3])
}

/// The ticket of the call, and the complement of the request.
fn reply(request: &Request<'_>) -> Vec<u8> {
    let number = u64::from_ne_bytes(request[..8].try_into().unwrap());
    assert_eq!(**request, self::request(number), "torn, or mixed");
    let complement = request.iter().map(|byte| !byte);
    request.ticket().to_bits().to_ne_bytes().into_iter().chain(complement).collect()
}

/// The number of the request that has this reply.
fn number_of(reply: &[u8], ticket: Option<Ticket>) -> u64 {
    let ticket_bits = u64::from_ne_bytes(reply[..8].try_into().unwrap());
    assert!(ticket.is_none_or(|ticket| ticket.to_bits() == ticket_bits), "the reply of another call");
    let number = !u64::from_ne_bytes(reply[8..16].try_into().unwrap());
    let complement: Vec<u8> = request(number).iter().map(|byte| !byte).collect();
    assert_eq!(reply[8..], complement, "torn, or mixed");
    number
}

fn is_rung(doorbell: &OwnedFd, deadline: impl Into<Deadline>) -> bool {
    sys::wait(&[doorbell.as_fd()], sys::For::Reading, deadline.into()).unwrap()
}

fn assert_all_free(segment: &Segment, what: &str) {
    let audit = segment.audit().unwrap();
    let mut expected = Audit::default();
    (expected.free, expected.entries) = (segment.geometry().slots as usize, audit.entries);
    assert_eq!(audit, expected, "{what}");
}

// ---------------------------------------------------------------- clients

/// One of the threads that share a client.
struct CallingThread {
    client: Client,
    /// The number of the next request.
    next: u64,
    /// Whether the other thread may take calls of this one.
    may_lose: bool,
}

impl CallingThread {
    fn request(&mut self) -> (u64, Vec<u8>) {
        self.next += 1;
        (self.next, request(self.next))
    }

    /// A request that fits into a slot.
    fn short_request(&mut self) -> (u64, Vec<u8>) {
        self.next = self.next.next_multiple_of(3) + 2;
        self.request()
    }

    fn send(&mut self) -> (u64, Ticket) {
        let (number, request) = self.request();
        (number, self.client.send(&request, NEVER).unwrap())
    }

    /// `None` if the other thread has taken or forgotten the call.
    fn or_lost<T, E: Into<Error>>(&self, received: std::result::Result<T, E>) -> Option<T> {
        match received.map_err(Into::into) {
            Err(error) if self.may_lose && error.kind() == ErrorKind::Stale => None,
            received => Some(received.unwrap()),
        }
    }

    fn settle(&self, (number, ticket): (u64, Ticket)) {
        if let Some(reply) = self.or_lost(self.client.recv(ticket, NEVER)) {
            assert_eq!(number_of(&reply, Some(ticket)), number);
        }
    }

    /// Polls until `look` finds something.
    fn poll<T, E: Into<Error>>(
        &self,
        mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
    ) -> Option<T> {
        loop {
            match look().transpose() {
                None => thread::yield_now(),
                Some(found) => return self.or_lost(found),
            }
        }
    }

    fn stream(&self, number: u64, mut stream: Stream) {
        let mut all = Vec::new();
        while let Some(part) = stream.next_part(NEVER).unwrap() {
            all.extend_from_slice(&part);
        }
        assert_eq!(number_of(&all, None), number);
    }
}

type ClientCall = (&'static str, fn(&mut CallingThread));

/// Whether a method may end calls of the other thread.
fn takes_any(name: &str) -> bool {
    ["recv_any", "forget_all"].contains(&name)
}

const CLIENT_CALLS: [ClientCall; 22] = [
    ("segment", |caller| assert_eq!(caller.client.segment().geometry().members, 8)),
    ("call", |caller| {
        let (number, request) = caller.request();
        assert_eq!(number_of(&caller.client.call(&request, NEVER).unwrap(), None), number);
    }),
    ("call_into", |caller| {
        let ((number, request), mut into) = (caller.request(), Vec::new());
        caller.client.call_into(&request, &mut into, NEVER).unwrap();
        assert_eq!(number_of(&into, None), number);
    }),
    ("cancel", |caller| {
        let (number, ticket) = caller.send();
        if let Some(reply) = caller.client.cancel(ticket).unwrap() {
            assert_eq!(number_of(&reply, Some(ticket)), number);
        }
    }),
    ("forget", |caller| {
        let (_, ticket) = caller.send();
        caller.or_lost(caller.client.forget(ticket));
    }),
    ("forget_all", |caller| {
        caller.send();
        caller.client.forget_all();
    }),
    ("pending", |caller| {
        assert!(caller.client.pending() <= 4);
        let sent = caller.send();
        assert!(caller.may_lose || caller.client.pending() > 0);
        caller.settle(sent);
    }),
    ("doorbell", |caller| {
        let doorbell = caller.client.doorbell().unwrap();
        let (number, ticket) = caller.send();
        let reply = caller.poll(|| {
            // The other thread may be faster, and then this one is not rung.
            let deadline = if caller.may_lose { Deadline::after(Duration::from_millis(5)) } else { NEVER };
            is_rung(&doorbell, deadline);
            caller.client.try_recv(ticket)
        });
        reply.inspect(|reply| assert_eq!(number_of(reply, Some(ticket)), number));
    }),
    ("send_doorbell", |caller| {
        let (doorbell, (number, request)) = (caller.client.send_doorbell().unwrap(), caller.short_request());
        let sent = caller.poll(|| {
            assert!(is_rung(&doorbell, NEVER));
            caller.client.try_send(&request)
        });
        caller.settle((number, sent.unwrap()));
    }),
    ("recv", |caller| {
        let sent = caller.send();
        caller.settle(sent);
    }),
    ("try_recv", |caller| {
        let (number, ticket) = caller.send();
        let reply = caller.poll(|| caller.client.try_recv(ticket));
        reply.inspect(|reply| assert_eq!(number_of(reply, Some(ticket)), number));
    }),
    ("recv_into", |caller| {
        let ((number, ticket), mut into) = (caller.send(), [0; 64]);
        if let Some((len, _)) = caller.or_lost(caller.client.recv_into(ticket, &mut into, NEVER)) {
            assert_eq!(number_of(&into[..len], Some(ticket)), number);
        }
    }),
    ("recv_any", |caller| {
        let sent = caller.send();
        // The call may be of either thread.
        if let Some(done) = caller.client.recv_any(NEVER).unwrap() {
            number_of(&done.result.unwrap(), Some(done.ticket));
        }
        let lost = CallingThread { may_lose: true, client: caller.client.clone(), next: 0 };
        lost.settle(sent);
    }),
    ("reply_len", |caller| {
        let sent = caller.send();
        assert!(caller.client.reply_len(sent.1) <= 48);
        caller.settle(sent);
    }),
    ("send", |caller| {
        let sent = caller.send();
        caller.settle(sent);
    }),
    ("try_send", |caller| {
        let (number, request) = caller.short_request();
        if let Some(ticket) = caller.client.try_send(&request).unwrap() {
            caller.settle((number, ticket));
        }
    }),
    ("send_with", |caller| {
        let (number, request) = caller.short_request();
        let write = |space: &mut super::Space<'_>| {
            std::io::Write::write_all(space, &request).expect("there is space");
            Ok(())
        };
        let ticket = caller.client.send_with(request.len(), NEVER, write).unwrap();
        caller.settle((number, ticket));
    }),
    ("send_many", |caller| {
        let requests = [caller.request(), caller.request()];
        // The second request may wait for the slot of the first.
        let slots = caller.client.segment().geometry().slots as usize;
        let requests = &requests[..if slots > 2 { 2 } else { 1 }];
        let tickets = caller.client.send_many(requests.iter().map(|(_, request)| request), NEVER).unwrap();
        assert_eq!(tickets.len(), requests.len());
        requests.iter().zip(tickets).for_each(|((number, _), ticket)| caller.settle((*number, ticket)));
    }),
    ("stream", |caller| {
        let (number, request) = caller.request();
        caller.stream(number, caller.client.stream(&request, GUARD).unwrap());
    }),
    ("call_async", |caller| {
        let (number, request) = caller.request();
        assert_eq!(number_of(&block_on(caller.client.call_async(&request)).unwrap(), None), number);
    }),
    ("send_async", |caller| {
        let (number, request) = caller.request();
        let ticket = block_on(caller.client.send_async(&request)).unwrap();
        caller.settle((number, ticket));
    }),
    ("recv_async", |caller| {
        let (number, ticket) = caller.send();
        let reply = caller.or_lost(block_on(caller.client.recv_async(ticket)));
        reply.inspect(|reply| assert_eq!(number_of(reply, Some(ticket)), number));
    }),
];

const STREAM_ASYNC: ClientCall = ("stream_async", |caller| {
    let (number, request) = caller.request();
    caller.stream(number, block_on(caller.client.stream_async(&request)).unwrap());
});

fn two_callers(what: &str, slots: u32, calls: [ClientCall; 2]) {
    let segment = small(slots);
    let (client, server) = (client(&segment), server(&segment));
    let meet = Barrier::new(2);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            for nth in 0.. {
                match server.recv(NEVER) {
                    // Half of the replies come while their callers sleep.
                    Ok(request) => {
                        if nth % 2 == 0 {
                            thread::sleep(Duration::from_micros(200));
                        }
                        or_abort(what, || _ = request_answered(request));
                    }
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::Closed),
                }
            }
        });
        let callers = [0, 1].map(|side: usize| {
            let (may_lose, client) = (takes_any(calls[1 - side].0), client.clone());
            let mut caller = CallingThread { client, next: (side as u64) << 40, may_lose };
            let (call, meet) = (calls[side].1, &meet);
            scope.spawn(move || {
                for _ in 0..6 {
                    meet.wait();
                    or_abort(what, || call(&mut caller));
                }
            })
        });
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        client.forget_all();
        server.stop();
        serving.join().unwrap();
    });
    let last = segment.server().unwrap();
    while last.clear().unwrap() > 0 {}
    assert_all_free(&segment, what);
}

fn request_answered(request: Request<'_>) -> Result<bool> {
    let answer = reply(&request);
    request.reply(&answer)
}

#[test]
fn every_method_of_a_client_beside_every_other_from_two_threads() {
    let all: Vec<ClientCall> = CLIENT_CALLS.into_iter().chain([STREAM_ASYNC]).collect();
    let files = ["client.rs", "receiving.rs", "future.rs"];
    assert_complete("Client", &files, all.iter().map(|(name, _)| *name));
    for (nth, one) in all.iter().enumerate() {
        for two in &all[..=nth] {
            for slots in [1, 4] {
                let what = format!("{} beside {}, slots {slots}", one.0, two.0);
                in_time(&what, || two_callers(&what, slots, [*one, *two]));
            }
        }
    }
}

// ---------------------------------------------------------------- servers

/// The state of the requests that threads sharing a server know.
struct Round {
    /// Bursts that were sent and answered.
    number: AtomicU64,
    is_over: Flag,
    /// The server was stopped.
    is_stopped: Flag,
}

struct Answerer<'a> {
    server: Server,
    round: &'a Round,
    /// Calls so far.
    nth: u64,
}

/// No more requests will come.
struct Over;

type Answered = std::result::Result<(), Over>;

impl Answerer<'_> {
    /// Answers one request of a burst and leaves the rest to others. So a waiter that is not woken
    /// for its own request is not saved by a thread that returns for the next one.
    fn one(&self, received: Result<Request<'_>>) -> Answered {
        let round = self.round.number.load(SeqCst);
        self.answer(received)?;
        while self.round.number.load(SeqCst) == round && !self.round.is_over.is_set() {
            thread::yield_now();
        }
        Ok(())
    }

    fn answer(&self, received: Result<Request<'_>>) -> Answered {
        match received {
            Ok(request) => {
                request_answered(request).unwrap();
                Ok(())
            }
            Err(error) => self.none(error),
        }
    }

    fn none(&self, error: Error) -> Answered {
        match error.kind() {
            ErrorKind::Closed => Err(Over),
            ErrorKind::TimedOut => self.nothing(()),
            _ => panic!("{error}"),
        }
    }

    /// For calls that take no request.
    fn nothing<T>(&self, _: T) -> Answered {
        thread::yield_now();
        if self.round.is_over.is_set() { Err(Over) } else { Ok(()) }
    }

    /// A kept request, if one comes soon.
    fn kept(&self) -> std::result::Result<Option<Ticket>, Over> {
        match self.server.recv(Duration::from_millis(1)) {
            Ok(request) => Ok(Some(request.keep())),
            Err(error) => self.none(error).map(|()| None),
        }
    }

    fn answer_kept(&self, ticket: Ticket) -> Answered {
        answer_again(self.server.kept(ticket).unwrap().expect("it is kept"))
    }
}

/// The bytes of a request that was kept are still in the segment.
fn answer_again(mut request: Request<'_>) -> Answered {
    let number = u64::from_ne_bytes(request.read().unwrap()[..8].try_into().unwrap());
    let complement = self::request(number).into_iter().map(|byte| !byte);
    let answer: Vec<u8> = request.ticket().to_bits().to_ne_bytes().into_iter().chain(complement).collect();
    request.reply(&answer).unwrap();
    Ok(())
}

/// Whether a method waits for one request each time.
fn waits(name: &str) -> bool {
    ["recv", "claim", "recv_many", "recv_async", "doorbell", "serve", "requests"].contains(&name)
}

type ServerCall = (&'static str, fn(&mut Answerer<'_>) -> Answered);

const SERVER_CALLS: [ServerCall; 15] = [
    ("segment", |answerer| answerer.nothing(answerer.server.segment().geometry().slots)),
    ("recv", |answerer| answerer.one(answerer.server.recv(NEVER))),
    ("try_recv", |answerer| match answerer.server.try_recv().transpose() {
        None => answerer.nothing(()),
        Some(received) => answerer.answer(received),
    }),
    ("claim", |answerer| {
        let mut request = match answerer.server.claim(NEVER) {
            Ok(request) => request,
            Err(error) => return answerer.none(error),
        };
        let bytes = request.read().unwrap().to_vec();
        let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, self::request(number), "torn, or mixed");
        let complement = bytes.iter().map(|byte| !byte);
        let answer: Vec<u8> =
            request.ticket().to_bits().to_ne_bytes().into_iter().chain(complement).collect();
        let round = answerer.round.number.load(SeqCst);
        request.reply(&answer).unwrap();
        while answerer.round.number.load(SeqCst) == round && !answerer.round.is_over.is_set() {
            thread::yield_now();
        }
        Ok(())
    }),
    ("recv_many", |answerer| match answerer.server.recv_many(1, NEVER, Duration::ZERO) {
        Ok(mut requests) => answerer.one(Ok(requests.pop().expect("there is one"))),
        Err(error) => answerer.none(error),
    }),
    ("drain", |answerer| match answerer.server.drain(2) {
        Ok(requests) => {
            requests.into_iter().try_for_each(|request| answerer.answer(Ok(request)))?;
            answerer.nothing(())
        }
        Err(error) => answerer.none(error),
    }),
    ("waiting_bytes", |answerer| answerer.nothing(answerer.server.waiting_bytes(4))),
    // Only after others had their turn.
    ("clear", |answerer| match answerer.nth % 50 {
        49 => match answerer.server.clear() {
            Ok(_) => answerer.nothing(()),
            Err(error) => answerer.none(error),
        },
        _ => answerer.nothing(()),
    }),
    ("stop", |answerer| {
        if answerer.nth == 200 {
            answerer.round.is_stopped.set(true);
            answerer.server.stop();
        }
        answerer.nothing(())
    }),
    ("kept", |answerer| match answerer.kept()? {
        Some(ticket) => answerer.answer_kept(ticket),
        None => Ok(()),
    }),
    ("adopt", |answerer| match answerer.kept()? {
        Some(ticket) => answer_again(answerer.server.adopt(ticket).unwrap()),
        None => Ok(()),
    }),
    ("doorbell", |answerer| {
        let doorbell = answerer.server.doorbell().unwrap();
        loop {
            assert!(is_rung(&doorbell, NEVER));
            if let Some(received) = answerer.server.try_recv().transpose() {
                return answerer.one(received);
            }
        }
    }),
    ("serve", |answerer| {
        answerer.server.serve(|request| Ok::<_, Error>(reply(request))).unwrap();
        Err(Over)
    }),
    ("requests", |answerer| match answerer.server.requests().next() {
        Some(received) => answerer.one(received),
        None => Err(Over),
    }),
    ("recv_async", |answerer| answerer.one(block_on(answerer.server.recv_async()))),
];

fn two_answerers(what: &str, calls: [ServerCall; 2]) {
    let segment = small(4);
    let (client, server) = (client(&segment), server(&segment));
    let round = Round { number: AtomicU64::new(0), is_over: Flag::new(), is_stopped: Flag::new() };
    let may_fail = calls.iter().any(|(name, _)| ["clear", "stop"].contains(name));
    // After `stop`, no server takes the rest of a request.
    let step = if calls.iter().any(|(name, _)| *name == "stop") { 3 } else { 1 };
    thread::scope(|scope| {
        // The third thread answers the requests that the two leave.
        let rest: fn(&mut Answerer<'_>) -> Answered = |answerer| answerer.one(answerer.server.recv(NEVER));
        for call in calls.iter().map(|call| call.1).chain([rest]) {
            let mut answerer = Answerer { server: server.clone(), round: &round, nth: 0 };
            scope.spawn(move || {
                or_abort(what, || {
                    while call(&mut answerer).is_ok() {
                        answerer.nth += 1;
                    }
                });
            });
        }
        // One for each waiting method, and one more.
        let waiting = 1 + calls.iter().filter(|(name, _)| waits(name)).count() as u64;
        let mut number = 0;
        or_abort(what, || {
            for burst in 0..8 {
                if burst % 2 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
                let numbers = (number..number + step * waiting).step_by(step as usize);
                number += step * waiting;
                let requests: Vec<Vec<u8>> = numbers.clone().map(request).collect();
                let sent = client.send_many(&requests, NEVER).unwrap();
                for (number, ticket) in numbers.zip(sent) {
                    let mut received = client.recv(ticket, Duration::from_millis(5));
                    while received.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut)
                        && !round.is_stopped.is_set()
                    {
                        received = client.recv(ticket, Duration::from_millis(5));
                    }
                    match received {
                        Ok(reply) => assert_eq!(number_of(&reply, Some(ticket)), number),
                        Err(_) if may_fail => drop(client.cancel(ticket)),
                        Err(error) => panic!("{error}"),
                    }
                }
                round.number.fetch_add(1, SeqCst);
                if round.is_stopped.is_set() {
                    break;
                }
            }
        });
        round.is_over.set(true);
        server.stop();
    });
    let last = segment.server().unwrap();
    while last.clear().unwrap() > 0 {}
    assert_all_free(&segment, what);
}

#[test]
fn every_method_of_a_server_beside_every_other_from_two_threads() {
    assert_complete("Server", &["server.rs", "future.rs"], SERVER_CALLS.iter().map(|(name, _)| *name));
    for (nth, one) in SERVER_CALLS.iter().enumerate() {
        for two in &SERVER_CALLS[..=nth] {
            let what = format!("{} beside {}", one.0, two.0);
            in_time(&what, || two_answerers(&what, [*one, *two]));
        }
    }
}
