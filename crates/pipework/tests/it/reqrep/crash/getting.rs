//! Victims that are clients of streams, of long messages, or of calls that they forget.

use std::thread;
use std::time::Instant;

use pipework::reqrep::{Client, Request, Segment, Stream};

use super::calling::{END, answer, answer_all, next_gets_the_slot, serve};
use super::serving::outcome_while;
use super::{LONG, SOON, assert_whole, small};
use crate::harness::fate::{Fate, Victim};
use crate::harness::tracee::mark;
use crate::harness::{PATIENCE, asleep};

/// The server sleeps until it can give the next part.
pub(super) fn take_a_part(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = streaming(fate, &segment, |_, stream| {
        assert_eq!(*stream.try_next_part().unwrap().unwrap(), *b"part");
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    server_gets_on(fate, request, || victim.die());
    assert_whole(&segment);
}

/// The last part comes when the victim sleeps.
pub(super) fn stream(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        let mut stream = client.stream("ping", SOON).unwrap();
        mark();
        assert_eq!(&*stream.next_part(SOON).unwrap().unwrap(), b"part");
        assert!(stream.next_part(SOON).unwrap().is_none());
        mark();
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    let mut request = Some(request);
    let mut finish = || request.take().map(|request| request.reply("").unwrap());
    let died = victim.die_but_first(|| _ = finish());
    finish();
    fate.got_on(died);
    assert_whole(&segment);
}

pub(super) fn send_long(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.client(&segment, |client| {
        client.try_send(LONG).unwrap().unwrap();
    });
    victim.die();
    if let Some(request) = server.try_recv().unwrap() {
        assert_eq!(answer(request), LONG);
    }
    assert_whole(&segment);
}

/// The server sleeps until it can give the next part.
pub(super) fn cancel_a_part(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = streaming(fate, &segment, |client, stream| {
        assert_eq!(client.cancel(stream.ticket().unwrap()), Ok(None));
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    assert!(!server_gets_on(fate, request, || victim.die()), "the part is never taken");
    assert_whole(&segment);
}

pub(super) fn forget_sent(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(client.forget(ticket), Ok(()));
    });
    victim.die();
    assert_eq!(answer(server.try_recv().unwrap().unwrap()), b"ping");
    assert_whole(&segment);
}

pub(super) fn forget_taken(fate: &Fate) {
    let segment = small(1);
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(client.forget(ticket), Ok(()));
    });
    let request = server.try_recv().unwrap().unwrap();
    next_gets_the_slot(fate, &next, || {
        let died = victim.die();
        assert_eq!(answer(request), b"ping");
        died
    });
    assert_whole(&segment);
}

/// The server sleeps until it can give the next part.
pub(super) fn forget_a_part(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = streaming(fate, &segment, |client, stream| {
        assert_eq!(client.forget(stream.ticket().unwrap()), Ok(()));
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    assert!(!server_gets_on(fate, request, || victim.die()), "the part is never taken");
    assert_whole(&segment);
}

/// One of two calls is done, and another client waits for its slot.
pub(super) fn receive_any(fate: &Fate) {
    let segment = small(2);
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        let [_, second] = ["first", "ping"].map(|request| client.try_send(request).unwrap().unwrap());
        mark();
        let done = client.recv_any(SOON).unwrap().unwrap();
        mark();
        assert!(done.ticket == second && done.result.is_ok());
    });
    let first = server.try_recv().unwrap().unwrap();
    assert_eq!(answer(server.try_recv().unwrap().unwrap()), b"ping");
    next_gets_the_slot(fate, &next, || victim.die());
    assert_eq!(answer(first), b"first");
    assert_whole(&segment);
}

/// A server sleeps; the victim wakes it, or dies before that.
pub(super) fn send_many(fate: &Fate) {
    let segment = small(3);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        mark();
        let tickets = client.send_many(["ping", "ping"], SOON).unwrap();
        mark();
        assert_eq!(tickets.len(), 2);
    });
    thread::scope(|scope| {
        asleep(scope, || serve(&server));
        let died = victim.die();
        client.call(END, PATIENCE).unwrap();
        fate.got_on(died);
    });
    answer_all(&server);
    assert_whole(&segment);
}

/// A victim that has begun a stream.
pub(super) fn streaming<'a>(
    fate: &Fate,
    segment: &'a Segment,
    operation: impl FnOnce(&Client, &mut Stream),
) -> Victim<'a> {
    fate.victim(segment, || {
        let client = segment.client().unwrap();
        let mut stream = client.stream("ping", SOON).unwrap();
        mark();
        operation(&client, &mut stream);
        mark();
    })
}

// ---------------------------------------------------------------- survivors

/// A server has given a part and sleeps until it can give the next. `die` ends the victim; then the
/// server must soon go on. Returns whether it could give the next part.
pub(super) fn server_gets_on(fate: &Fate, request: Request<'_>, die: impl FnOnce() -> Instant) -> bool {
    let mut request = request;
    outcome_while(fate, || request.part("next", PATIENCE), die).expect("it is this server's")
}
