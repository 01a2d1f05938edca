//! Victims that are servers of calls in parts, or of cancelled and forgotten calls.

use std::thread;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::reqrep::{Client, Reply, Segment, Stream, Ticket};
use rustix::event::PollFlags;

use super::calling::{END, next_gets_the_slot, serve};
use super::fate::Fate;
use super::serving::{self, outcome_while};
use super::{LONG, PART, SOON, assert_whole, small};
use crate::harness::tracee::{mark, others_sleep};
use crate::harness::{Child, PATIENCE, asleep, fork, wait_for};

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

/// A sleeping thread is to notify the client's event loop.
pub(super) fn give_to_a_doorbell(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        mark();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        drop(request);
    });
    let doorbell = client.doorbell().unwrap();
    others_sleep();
    let died = victim.die();
    // The doorbell rings for the part, if it was given, and for the death.
    let error = loop {
        wait_for(&doorbell, PollFlags::IN);
        match client.try_recv(ticket) {
            Ok(reply) => assert!(reply.is_none(), "no reply was sent"),
            Err(error) => break error,
        }
    };
    fate.got_on(died);
    assert_eq!(error.kind(), ErrorKind::PeerDied);
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

/// The client takes the first part while the victim sleeps.
pub(super) fn reply_in_parts(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply(LONG), Ok(true));
    });
    let mut reply = None;
    // A victim at full speed may be faster than this look.
    let died = victim.die_but_first(|| reply = client.try_recv(ticket).unwrap());
    let outcome = reply.map_or_else(|| serving::outcome(&client, ticket), |reply| Ok(reply.into_vec()));
    fate.got_on(died);
    assert!([Ok(LONG.to_vec()), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

/// The client writes the next part while the victim sleeps.
pub(super) fn ask(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        let mut request = server.claim(SOON).unwrap();
        assert_eq!(request.next_part(SOON), Ok(true));
        assert_eq!(request.read().unwrap(), &LONG[PART..]);
        mark();
        drop(request);
    });
    let writer = writer(&segment);
    let died = victim.die_but_first(|| writer.resume());
    writer.resume();
    thread::scope(|scope| {
        scope.spawn(|| serve(&server));
        writer.join();
        fate.got_on(died);
        client.call(END, PATIENCE).unwrap();
    });
    assert_whole(&segment);
}

pub(super) fn fail_with_a_reason(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert!(request.fail("why"));
    });
    let reason = outcome_while(fate, || reason(&client, ticket), || victim.die());
    assert!([Ok(b"why".to_vec()), Err(ErrorKind::PeerDied)].contains(&reason), "{reason:?}");
    assert_whole(&segment);
}

/// The client has taken a part before.
pub(super) fn fail_in_a_stream(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        assert!(request.fail("why"));
        mark();
    });
    assert!(client.try_recv(ticket).unwrap().is_none());
    let reason = outcome_while(fate, || reason(&client, ticket), || victim.die());
    assert!([Ok(b"why".to_vec()), Err(ErrorKind::PeerDied)].contains(&reason), "{reason:?}");
    assert_whole(&segment);
}

/// A part that the client has not taken comes before.
pub(super) fn fail_behind_a_part(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        assert!(request.fail("why"));
        mark();
    });
    let died = victim.die();
    let reason = reason(&client, ticket);
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

/// A client that has sent the first part of a request and then stops. When it continues, the
/// request is answered, or its server dies.
pub(super) fn writer(segment: &Segment) -> Child {
    let waiting = || segment.audit().unwrap().waiting;
    let before = waiting();
    let writer = fork(|| {
        let client = segment.client().unwrap();
        let ticket = client.send(LONG, PATIENCE).unwrap();
        let outcome = serving::outcome(&client, ticket);
        let answered = Ok(LONG.to_ascii_uppercase());
        assert!([answered, Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    });
    while waiting() == before {
        thread::sleep(Duration::from_micros(100));
    }
    writer.settle('S');
    writer.stop();
    writer.settle('T');
    writer
}

/// The reason of a failed call, or the kind of another error.
fn reason(client: &Client, ticket: Ticket) -> Result<Vec<u8>, ErrorKind> {
    match client.recv(ticket, PATIENCE) {
        Ok(reply) => panic!("no reply was sent: {reply:?}"),
        Err(error) if error.kind() == ErrorKind::Failed => {
            Ok(error.into_reason().map_or(Vec::new(), Reply::into_vec))
        }
        Err(error) => Err(error.kind()),
    }
}
