//! Victims that are servers of streams, of long messages, or of calls that no client waits for.

use std::thread;

use pipework::ErrorKind;
use pipework::reqrep::{CallError, Reply, Stream};

use super::calling::{END, next_gets_the_slot, serve};
use super::serving::{self, outcome_while};
use super::{LONG, SOON, assert_whole, small};
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;
use crate::harness::{PATIENCE, asleep};

/// The client sleeps; the victim wakes it, or dies before that.
pub(super) fn give(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let mut stream = client.stream("ping", PATIENCE).unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        mark();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        drop(request);
    });
    let (parts, end) = outcome_while(fate, || rest(&mut stream), || victim.die());
    assert!(parts.is_empty() || parts == [b"part"], "{parts:?}");
    assert_eq!(end, Some(ErrorKind::PeerDied));
    assert_whole(&segment);
}

/// The call was cancelled, and another client waits for its slot.
pub(super) fn give_to_a_cancelled_call(fate: &Fate) {
    let segment = small(1);
    let (client, next) = (segment.client().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |mut request| {
        assert_eq!(request.part("part", SOON), Ok(false));
        drop(request);
    });
    assert_eq!(client.cancel(ticket), Ok(None));
    next_gets_the_slot(fate, &next, || victim.die());
    assert_whole(&segment);
}

/// The client sleeps; the victim wakes it, or dies before that.
pub(super) fn reply_long(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply(LONG), Ok(true));
    });
    let outcome = outcome_while(fate, || serving::outcome(&client, ticket), || victim.die());
    assert!([Ok(LONG.to_vec()), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

/// Its client does not take parts, and gets all parts or none.
pub(super) fn collect(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |mut request| {
        assert_eq!(request.part(&LONG[..8], SOON), Ok(true));
        assert_eq!(request.reply(&LONG[8..]), Ok(true));
    });
    let outcome = outcome_while(fate, || serving::outcome(&client, ticket), || victim.die());
    assert!([Ok(LONG.to_vec()), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

pub(super) fn fail_with_a_reason(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert!(request.fail("why"));
    });
    let reason = outcome_while(fate, || reason(client.recv(ticket, PATIENCE)), || victim.die());
    assert!([Ok(b"why".to_vec()), Err(ErrorKind::PeerDied)].contains(&reason), "{reason:?}");
    assert_whole(&segment);
}

/// The client has taken a part before.
pub(super) fn fail_in_a_stream(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let mut stream = client.stream("ping", PATIENCE).unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        assert!(request.fail("why"));
        mark();
    });
    assert_eq!(*stream.try_next_part().unwrap().unwrap(), *b"part");
    let reason = outcome_while(fate, || reason(stream.next_part(PATIENCE)), || victim.die());
    assert!([Ok(b"why".to_vec()), Err(ErrorKind::PeerDied)].contains(&reason), "{reason:?}");
    assert_whole(&segment);
}

/// The client has not taken the part before the failure.
pub(super) fn fail_behind_a_part(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let mut stream = client.stream("ping", PATIENCE).unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        assert!(request.fail("why"));
        mark();
    });
    let died = victim.die();
    let ended = match stream.next_part(PATIENCE) {
        Ok(Some(part)) if *part == *b"part" => stream.next_part(PATIENCE),
        ended => ended,
    };
    let reason = reason(ended);
    fate.got_on(died);
    assert!([Ok(vec![]), Err(ErrorKind::PeerDied)].contains(&reason), "{reason:?}");
    assert_whole(&segment);
}

/// Another client waits for its slot.
pub(super) fn answer_a_forgotten_call(fate: &Fate) {
    let segment = small(1);
    let (client, next) = (segment.client().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply("pong"), Ok(false));
    });
    assert_eq!(client.forget(ticket), Ok(()));
    next_gets_the_slot(fate, &next, || victim.die());
    assert_whole(&segment);
}

/// The victim joined before. If it has not adopted the request, its parent answers.
pub(super) fn adopt(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let kept = server.try_recv().unwrap().unwrap().keep();
    let victim = fate.victim(&segment, || {
        assert!(server.try_recv().unwrap().is_none());
        mark();
        let request = server.adopt(kept).unwrap();
        mark();
        drop(request);
    });
    let died = victim.die();
    let replied = server.kept(kept).unwrap().unwrap().reply("PING");
    let outcome = serving::outcome(&client, ticket);
    fate.got_on(died);
    match replied {
        Ok(wanted) => assert_eq!((wanted, outcome), (true, serving::answered("PING"))),
        Err(error) => {
            assert_eq!((error.kind(), outcome), (ErrorKind::Stale, Err(ErrorKind::PeerDied)));
        }
    }
    assert_whole(&segment);
}

/// Another server sleeps and goes on.
pub(super) fn stop(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        server.stop();
        mark();
    });
    thread::scope(|scope| {
        asleep(scope, || serve(&server));
        let died = victim.die();
        client.call(END, PATIENCE).unwrap();
        fate.got_on(died);
    });
    assert_whole(&segment);
}

// ---------------------------------------------------------------- survivors

/// The parts that come, and the error at the end, if any.
fn rest(stream: &mut Stream) -> (Vec<Vec<u8>>, Option<ErrorKind>) {
    let mut parts = vec![];
    loop {
        match stream.next_part(PATIENCE) {
            Ok(Some(part)) => parts.push(part.into_vec()),
            Ok(None) => return (parts, None),
            Err(error) => return (parts, Some(error.kind())),
        }
    }
}

/// The reason why a call has failed.
fn reason<T: std::fmt::Debug>(ended: Result<T, CallError>) -> Result<Vec<u8>, ErrorKind> {
    match ended {
        Ok(reply) => panic!("nobody has answered: {reply:?}"),
        Err(error) if error.kind() == ErrorKind::Failed => {
            Ok(error.into_reason().map_or(Vec::new(), Reply::into_vec))
        }
        Err(error) => Err(error.kind()),
    }
}
