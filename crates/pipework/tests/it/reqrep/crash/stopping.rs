//! Victims that stop in the middle of a stream or of a long reply, and live on. The other side ends
//! by its deadline and reports that. Then the victim continues and finds out, and no call is left.

use std::time::Duration;

use pipework::reqrep::{CallError, Client, Reply, Request, Segment, ServerOptions, Ticket};
use pipework::{Error, ErrorKind};

use super::getting::streaming;
use super::{LONG, assert_whole, small};
use crate::harness::PATIENCE;
use crate::harness::fate::{Fate, Stopped, Victim};
use crate::harness::tracee::mark;

/// The deadline of the other side.
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

pub(super) fn reply_long(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        let replied = request.reply(LONG);
        assert!(replied.is_ok(), "{replied:?}");
    });
    let stopped = victim.stop();
    let reply = received(&client, ticket);
    assert!(reply.as_deref().is_none_or(|reply| reply == LONG), "{reply:?}");
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

pub(super) fn cancel(fate: &Fate) {
    let segment = small(1);
    let victim = streaming(fate, &segment, |client, stream| {
        assert!(is_over(client.cancel(stream.ticket().unwrap())));
    });
    gives_the_next(fate, &segment, victim);
}

pub(super) fn forget(fate: &Fate) {
    let segment = small(1);
    let victim = streaming(fate, &segment, |client, stream| {
        client.forget(stream.ticket().unwrap()).unwrap();
    });
    gives_the_next(fate, &segment, victim);
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

/// Call this when the other side has ended. It checks that every member still counts the victim as
/// alive, and that the victim continues and leaves nothing behind.
fn end(fate: &Fate, segment: &Segment, stopped: Stopped) {
    fate.got_on(stopped.since);
    assert_eq!(segment.recover(), Ok(0), "no member died");
    stopped.go_on();
    assert_whole(segment);
}
