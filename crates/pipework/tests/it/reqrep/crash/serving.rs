//! Victims that are servers.

use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{Client, ClientOptions, Server, Ticket};
use rustix::event::PollFlags;

use super::calling::{END, answer_all, next_gets_the_slot, serve};
use super::{assert_whole, small};
use crate::harness::fate::Fate;
use crate::harness::tracee::{mark, others_sleep, trace};
use crate::harness::{PATIENCE, asleep, wait_for};

pub(super) fn take(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        drop(request);
    });
    let outcome = outcome_of_waiting(fate, &client, ticket, || {
        let died = victim.die();
        answer_all(&server);
        died
    });
    assert!([answered("PING"), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

pub(super) fn take_redeliverable(fate: &Fate) {
    let segment = small(1);
    let (server, client) =
        (segment.server().unwrap(), segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        drop(request);
    });
    let died = victim.die();
    assert_eq!(outcome_with(&server, fate, died, &client, ticket), answered("PING"));
    assert_whole(&segment);
}

pub(super) fn give_back(fate: &Fate) {
    let segment = small(1);
    let (server, client) =
        (segment.server().unwrap(), segment.client_with(&ClientOptions::new().redeliveries(3)).unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        mark();
        assert!(request.give_back());
        mark();
    });
    let died = victim.die();
    assert_eq!(outcome_with(&server, fate, died, &client, ticket), answered("PING"));
    assert_whole(&segment);
}

/// The request comes while the victim sleeps, and another server sleeps in the queue behind it.
pub(super) fn wait(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        // The other server may get the request first; then a long wait would only take time.
        let request = server.recv(Duration::from_secs(1));
        mark();
        drop(request);
    });
    thread::scope(|scope| {
        let mut ticket = None;
        let mut send = || {
            ticket.get_or_insert_with(|| {
                asleep(scope, || serve(&server));
                client.try_send("ping").unwrap().unwrap()
            });
        };
        let died = victim.die_but_first(&mut send);
        send();
        let outcome = outcome(&client, ticket.unwrap());
        fate.got_on(died);
        assert!([answered("PING"), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
        client.call(END, PATIENCE).unwrap();
    });
    assert_whole(&segment);
}

/// The client sleeps; the victim wakes it, or dies before that.
pub(super) fn reply(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply("pong"), Ok(true));
    });
    let outcome = outcome_of_waiting(fate, &client, ticket, || victim.die());
    assert!([answered("pong"), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

/// A sleeping thread is to notify the client's event loop.
pub(super) fn reply_to_a_doorbell(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply("pong"), Ok(true));
    });
    let doorbell = client.doorbell().unwrap();
    others_sleep();
    let died = victim.die();
    wait_for(&doorbell, PollFlags::IN);
    fate.got_on(died);
    let outcome = client.try_recv(ticket).map(|reply| reply.expect("it rang").to_vec());
    let outcome = outcome.map_err(|error| error.kind());
    assert!([answered("pong"), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

/// The call was cancelled, and another client waits for its slot.
pub(super) fn reply_to_a_cancelled_call(fate: &Fate) {
    let segment = small(1);
    let (client, next) = (segment.client().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        assert_eq!(request.reply("pong"), Ok(false));
    });
    assert_eq!(client.cancel(ticket), Ok(None));
    next_gets_the_slot(fate, &next, || victim.die());
    assert_whole(&segment);
}

pub(super) fn fail(fate: &Fate) {
    let segment = small(1);
    let client = segment.client().unwrap();
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.server(&segment, |request| {
        request.fail("");
    });
    let outcome = outcome_of_waiting(fate, &client, ticket, || victim.die());
    assert!([Err(ErrorKind::Failed), Err(ErrorKind::PeerDied)].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

pub(super) fn close(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        drop(server);
        mark();
    });
    let ticket = client.try_send("ping").unwrap().unwrap();
    let died = victim.die();
    assert_eq!(outcome_with(&server, fate, died, &client, ticket), answered("PING"));
    assert_whole(&segment);
}

/// The victim takes and answers a request that was taken by a server that died.
pub(super) fn serve_again(fate: &Fate) {
    let segment = small(1);
    let (server, client) =
        (segment.server().unwrap(), segment.client_with(&ClientOptions::new().redeliveries(2)).unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let dead = trace(|| {
        let server = segment.server().unwrap();
        let request = server.try_recv().unwrap().unwrap();
        mark();
        drop(request);
    });
    dead.kill();
    assert_eq!(segment.recover(), Ok(1));
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        mark();
        let request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.reply("pong"), Ok(true));
        mark();
    });
    let died = victim.die();
    let outcome = outcome_with(&server, fate, died, &client, ticket);
    assert!([answered("pong"), answered("PING")].contains(&outcome), "{outcome:?}");
    assert_whole(&segment);
}

// ---------------------------------------------------------------- survivors

/// The outcome of a call.
pub(super) type Outcome = Result<Vec<u8>, ErrorKind>;

pub(super) fn answered(reply: &str) -> Outcome {
    Ok(reply.into())
}

pub(super) fn outcome(client: &Client, ticket: Ticket) -> Outcome {
    client.recv(ticket, PATIENCE).map(|reply| reply.to_vec()).map_err(|error| error.kind())
}

/// The outcome of a call if its client sleeps when `die` ends a victim.
fn outcome_of_waiting(
    fate: &Fate,
    client: &Client,
    ticket: Ticket,
    die: impl FnOnce() -> Instant,
) -> Outcome {
    outcome_while(fate, || outcome(client, ticket), die)
}

/// The result of a wait that is in progress when `die` ends a victim.
pub(super) fn outcome_while<T: Send>(
    fate: &Fate,
    wait: impl FnOnce() -> T + Send,
    die: impl FnOnce() -> Instant,
) -> T {
    thread::scope(|scope| {
        let waiting = asleep(scope, wait);
        let died = die();
        let came = waiting.join().unwrap();
        fate.got_on(died);
        came
    })
}

/// The outcome of a call if its client starts to wait after a victim has died, while a server
/// serves.
pub(super) fn outcome_with(
    server: &Server,
    fate: &Fate,
    died: Instant,
    client: &Client,
    ticket: Ticket,
) -> Outcome {
    thread::scope(|scope| {
        scope.spawn(|| serve(server));
        let outcome = outcome(client, ticket);
        fate.got_on(died);
        client.call(END, PATIENCE).unwrap();
        outcome
    })
}
