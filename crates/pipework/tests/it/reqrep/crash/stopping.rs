//! Victims that are stopped in the middle of a call in parts, and stay alive. The other side gets
//! its error by the deadline. Then the victim continues, learns that the call has ended, and leaves
//! nothing behind.

use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use pipework::reqrep::{CallError, Client, Reply, Request, Segment, ServerOptions, Ticket};
use pipework::{Deadline, Error, ErrorKind};

use super::fate::{Fate, Stopped, Victim};
use super::{LONG, PART, assert_whole, small};
use crate::harness::tracee::{mark, others_sleep};
use crate::harness::{PATIENCE, poll_once};

/// How long the other side waits.
const SHORT: Duration = Duration::from_millis(10);

// ---------------------------------------------------------------- servers

/// The victim drops the request after its part.
pub(super) fn give(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let mut stream = client.stream("ping", PATIENCE).unwrap();
    let victim = fate.server(&segment, |mut request| {
        let given = request.part("part", PATIENCE);
        assert!(given.is_ok(), "{given:?}");
    });
    let stopped = victim.stop();
    match stream.next_part(SHORT) {
        Ok(part) => assert_eq!(*part.expect("there is no answer"), *b"part"),
        Err(error) => assert!([ErrorKind::TimedOut, ErrorKind::Failed].contains(&error.kind()), "{error}"),
    }
    drop(stream);
    end(fate, &segment, stopped);
}

/// The client takes the first part while the victim sleeps.
pub(super) fn reply_in_parts(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        let replied = request.reply(LONG);
        assert!(replied.is_ok(), "{replied:?}");
    });
    let mut reply = None;
    let stopped = victim.stop_but_first(|| reply = client.try_recv(ticket).unwrap());
    // A victim at full speed may be faster than the first look.
    let reply = reply.map_or_else(|| received(&client, ticket), |reply| Some(reply.into_vec()));
    assert!(reply.as_deref().is_none_or(|reply| reply == LONG), "{reply:?}");
    end(fate, &segment, stopped);
}

/// The client writes the second part while the victim sleeps.
pub(super) fn ask(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        // There is no request if the client gave up earlier.
        if let Ok(mut request) = server.claim(Deadline::now()) {
            match request.next_part(PATIENCE) {
                Ok(has_come) => assert_eq!((has_come, request.read().unwrap()), (true, &LONG[PART..])),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
            }
        }
        mark();
    });
    let mut sent = Poll::Pending;
    let stopped = {
        // Dropping the future cancels the call if it is pending.
        let mut sending = pin!(client.send_async(LONG));
        assert!(poll_once(sending.as_mut()).is_pending());
        others_sleep();
        let stopped = victim.stop_but_first(|| sent = poll_once(sending.as_mut()));
        if sent.is_pending() {
            sent = poll_once(sending);
        }
        stopped
    };
    if let Poll::Ready(sent) = sent {
        assert!(is_over(client.cancel(sent.unwrap())));
    }
    end(fate, &segment, stopped);
}

pub(super) fn fail(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| _ = request.fail("why"));
    let stopped = victim.stop();
    let reason = received(&client, ticket);
    assert!(reason.as_deref().is_none_or(|reason| reason == b"why"), "{reason:?}");
    end(fate, &segment, stopped);
}

// ---------------------------------------------------------------- clients

/// The last part comes while the victim sleeps.
pub(super) fn stream(fate: &Fate) {
    let segment = small(1);
    let server = segment.server_with(&ServerOptions::new().part_timeout(SHORT)).unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        let stream = client.stream("ping", PATIENCE).unwrap();
        mark();
        let parts: Result<Vec<_>, CallError> = stream.map(|part| part.map(Reply::into_vec)).collect();
        match parts {
            Ok(parts) => assert_eq!(parts, [b"part", b"last"]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Failed),
        }
        mark();
    });
    finish(fate, &segment, server.try_recv().unwrap().unwrap(), victim);
}

/// The same with the reply in one piece.
pub(super) fn receive_parts(fate: &Fate) {
    let segment = small(1);
    let server = segment.server_with(&ServerOptions::new().part_timeout(SHORT)).unwrap();
    let victim = fate.caller(&segment, |client, ticket| match client.recv(ticket, PATIENCE) {
        Ok(reply) => assert_eq!(*reply, *b"partlast"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Failed),
    });
    finish(fate, &segment, server.try_recv().unwrap().unwrap(), victim);
}

/// The server asks for the second part while the victim sleeps.
pub(super) fn send_long(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        mark();
        let sent = client.send(LONG, PATIENCE);
        mark();
        let ended = sent.map_err(CallError::from).and_then(|ticket| client.recv(ticket, PATIENCE)).map(drop);
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::Failed));
    });
    let mut request = None;
    let stopped = victim.stop_but_first(|| {
        let mut first = server.claim(PATIENCE).unwrap();
        let has_come = first.next_part(Deadline::now()) == Ok(true);
        request = Some((first, has_come));
    });
    if request.is_none() {
        request = server.claim(SHORT).ok().map(|first| (first, false));
    }
    let Some((mut request, has_come)) = request else {
        // The victim has not sent the request yet.
        return thread::scope(|scope| {
            scope.spawn(|| server.recv(PATIENCE).map(drop).unwrap());
            end(fate, &segment, stopped);
        });
    };
    match if has_come { Ok(true) } else { request.next_part(SHORT) } {
        Ok(has_come) => assert_eq!((has_come, request.read().unwrap()), (true, &LONG[PART..])),
        Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
    }
    drop(request);
    end(fate, &segment, stopped);
}

pub(super) fn cancel(fate: &Fate) {
    let segment = small(1);
    let victim = fate.caller(&segment, |client, ticket| {
        assert!(is_over(client.cancel(ticket)));
    });
    gives_the_next(fate, &segment, victim);
}

pub(super) fn forget(fate: &Fate) {
    let segment = small(1);
    let victim = fate.caller(&segment, |client, ticket| client.forget(ticket).unwrap());
    gives_the_next(fate, &segment, victim);
}

/// The victim cancels in the middle of its request.
pub(super) fn cancel_half_sent(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        {
            let mut sending = pin!(client.send_async(LONG));
            assert!(poll_once(sending.as_mut()).is_pending());
            others_sleep();
            mark();
        }
        mark();
    });
    let mut request = server.claim(PATIENCE).unwrap();
    let stopped = victim.on_foot().stop();
    let ended = request.next_part(SHORT).map_err(|error| error.kind());
    assert!([Err(ErrorKind::TimedOut), Err(ErrorKind::Closed)].contains(&ended), "{ended:?}");
    drop(request);
    end(fate, &segment, stopped);
}

// ---------------------------------------------------------------- both sides

/// Gives a part before the victim continues, and the last one when it sleeps or has stopped.
fn finish(fate: &Fate, segment: &Segment, mut request: Request<'_>, victim: Victim<'_>) {
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    let mut request = Some(request);
    let mut last = || request.take().map(|request| request.reply("last"));
    let stopped = victim.stop_but_first(|| assert_eq!(last(), Some(Ok(true))));
    if let Some(replied) = last() {
        assert!(replied == Ok(true) || is_timed_out(replied), "{replied:?}");
    }
    end(fate, segment, stopped);
}

/// Gives a part before the victim continues, and has another ready when it has stopped.
fn gives_the_next(fate: &Fate, segment: &Segment, victim: Victim<'_>) {
    let server = segment.server().unwrap();
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    let stopped = victim.stop();
    let given = request.part("next", SHORT);
    assert!(given == Ok(false) || is_timed_out(given), "{given:?}");
    drop(request);
    end(fate, segment, stopped);
}

/// The reply or the reason if one comes in time; cancels the call otherwise.
fn received(client: &Client, ticket: Ticket) -> Option<Vec<u8>> {
    match client.recv(ticket, SHORT) {
        Ok(reply) => Some(reply.into_vec()),
        Err(error) if error.kind() == ErrorKind::Failed => {
            error.into_reason().map(|reason| reason.into_vec())
        }
        Err(error) => {
            assert_eq!((error.kind(), client.cancel(ticket)), (ErrorKind::TimedOut, Ok(None)));
            None
        }
    }
}

/// Whether `cancelled` is the result of cancelling a call without a reply, which its server may
/// have failed.
fn is_over(cancelled: Result<Option<Reply>, CallError>) -> bool {
    matches!(cancelled.map_err(|error| error.kind()), Ok(None) | Err(ErrorKind::Failed))
}

fn is_timed_out<T, E: Into<Error>>(outcome: Result<T, E>) -> bool {
    outcome.is_err_and(|error| error.into().kind() == ErrorKind::TimedOut)
}

/// The other side has ended. Checks that every member still counts the victim as alive, and that it
/// continues and leaves nothing behind.
fn end(fate: &Fate, segment: &Segment, stopped: Stopped) {
    fate.got_on(stopped.since);
    assert_eq!(segment.recover(), Ok(0), "no member died");
    stopped.go_on();
    assert_whole(segment);
}
