//! Victims that are clients.

use std::thread;
use std::time::Instant;

use pipework::reqrep::{Client, Request, Server};
use pipework::{Deadline, ErrorKind};

use super::{SOON, assert_whole, small};
use crate::harness::fate::Fate;
use crate::harness::tracee::{mark, trace};
use crate::harness::{PATIENCE, asleep};

pub(super) fn send(fate: &Fate) {
    let segment = small(2);
    let server = segment.server().unwrap();
    let victim = fate.client(&segment, |client| {
        client.try_send("ping").unwrap().unwrap();
    });
    victim.die();
    answer_all(&server);
    assert_whole(&segment);
}

/// The server sleeps; the victim wakes it, or dies before that.
pub(super) fn send_to_a_parked_server(fate: &Fate) {
    let segment = small(2);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.client(&segment, |client| {
        client.try_send("ping").unwrap().unwrap();
    });
    thread::scope(|scope| {
        asleep(scope, || serve(&server));
        let died = victim.die();
        client.call(END, PATIENCE).unwrap();
        fate.got_on(died);
    });
    assert_whole(&segment);
}

/// All cells of the ring hold ended calls, and the victim's push removes one of them.
pub(super) fn send_into_a_stale_ring(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    for _ in 0..segment.geometry().queue {
        send_and_cancel(&client);
    }
    let victim = fate.client(&segment, |client| {
        client.try_send("ping").unwrap().unwrap();
    });
    victim.die();
    answer_all(&server);
    assert_whole(&segment);
}

/// The slot becomes free while the victim sleeps, and another client sleeps in the queue behind it.
pub(super) fn send_waiting_for_a_slot(fate: &Fate) {
    let segment = small(1);
    let clients = [segment.client().unwrap(), segment.client().unwrap()];
    let ticket = clients[0].try_send("first").unwrap().unwrap();
    let victim = fate.client(&segment, |client| {
        client.send("ping", SOON).unwrap();
    });
    // A victim that takes single steps is slow, and the other client may get the slot first. It frees
    // it at once, because the victim waits for it.
    let send_and_cancel = || {
        let ticket = clients[1].send("second", PATIENCE).unwrap();
        assert_eq!(clients[1].cancel(ticket), Ok(None));
    };
    thread::scope(|scope| {
        let mut second = None;
        let mut free_the_slot = || {
            second.get_or_insert_with(|| {
                let second = asleep(scope, send_and_cancel);
                assert_eq!(clients[0].cancel(ticket), Ok(None));
                second
            });
        };
        let died = victim.die_but_first(&mut free_the_slot);
        free_the_slot();
        second.unwrap().join().unwrap();
        fate.got_on(died);
    });
    assert_whole(&segment);
}

/// A dead client has all slots, and the victim frees them.
pub(super) fn send_with_a_dead_clients_slot(fate: &Fate) {
    let segment = small(1);
    let next = segment.client().unwrap();
    let dead = trace(|| {
        let client = segment.client().unwrap();
        client.try_send("dead").unwrap().unwrap();
        mark();
    });
    dead.kill();
    let victim = fate.client(&segment, |client| {
        client.send("ping", SOON).unwrap();
    });
    let died = victim.die();
    let ticket = next.send("next", PATIENCE).unwrap();
    fate.got_on(died);
    assert_eq!(next.cancel(ticket), Ok(None));
    assert_whole(&segment);
}

/// The ring is full of cancelled calls behind one that waits for a server.
pub(super) fn send_waiting_for_the_ring(fate: &Fate) {
    let segment = small(2);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("first").unwrap().unwrap();
    for _ in 1..segment.geometry().queue {
        send_and_cancel(&client);
    }
    let victim = fate.client(&segment, |client| {
        client.send("ping", SOON).unwrap();
    });
    victim.die_but_first(|| assert_eq!(answer_next(&server), b"first"));
    answer_all(&server);
    assert_eq!(&*client.try_recv(ticket).unwrap().unwrap(), b"FIRST");
    assert_whole(&segment);
}

pub(super) fn wait(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(&*client.recv(ticket, SOON).unwrap(), b"PING");
    });
    victim.die_but_first(|| answer_all(&server));
    answer_all(&server);
    assert_whole(&segment);
}

/// The reply has come, and another client waits for the slot.
pub(super) fn get(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(&*client.try_recv(ticket).unwrap().unwrap(), b"PING");
    });
    answer_all(&server);
    next_gets_the_slot(fate, &client, || victim.die());
    assert_whole(&segment);
}

/// Sends, looks for the reply, and cancels.
pub(super) fn call_too_late(fate: &Fate) {
    let segment = small(1);
    let server = segment.server().unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        let now = Deadline::now();
        mark();
        let error = client.call("ping", now).unwrap_err();
        mark();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
    victim.die();
    answer_all(&server);
    assert_whole(&segment);
}

pub(super) fn cancel_sent(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(client.cancel(ticket), Ok(None));
    });
    next_gets_the_slot(fate, &client, || victim.die());
    answer_all(&server);
    assert_whole(&segment);
}

pub(super) fn cancel_taken(fate: &Fate) {
    let segment = small(1);
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.caller(&segment, |client, ticket| {
        assert_eq!(client.cancel(ticket), Ok(None));
    });
    let request = server.try_recv().unwrap().unwrap();
    next_gets_the_slot(fate, &client, || {
        let died = victim.die();
        assert_eq!(&*request, b"ping");
        request.reply("PING").unwrap();
        died
    });
    assert_whole(&segment);
}

/// With a call in each state.
pub(super) fn close(fate: &Fate) {
    let segment = small(3);
    let (server, next) = (segment.server().unwrap(), segment.client().unwrap());
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        for request in ["done", "taken", "sent"] {
            client.try_send(request).unwrap().unwrap();
        }
        mark();
        drop(client);
        mark();
    });
    assert_eq!(answer_next(&server), b"done");
    let taken = server.try_recv().unwrap().unwrap();
    next_gets_the_slot(fate, &next, || victim.die());
    assert_eq!(&*taken, b"taken");
    taken.reply("TAKEN").unwrap();
    answer_all(&server);
    assert_whole(&segment);
}

// ---------------------------------------------------------------- survivors

/// Answers in capitals; returns the request.
pub(super) fn answer(request: Request<'_>) -> Vec<u8> {
    let asked = request.to_vec();
    // The caller may be dead, and its death may have been noticed.
    let _was_wanted = request.reply(&asked.to_ascii_uppercase()).expect("it is this server's");
    asked
}

fn answer_next(server: &Server) -> Vec<u8> {
    answer(server.try_recv().unwrap().unwrap())
}

/// Answers all waiting requests, each of which must be one that a client sent.
pub(super) fn answer_all(server: &Server) {
    while let Some(request) = server.try_recv().unwrap() {
        let asked = answer(request);
        assert!([&b"ping"[..], b"first", b"sent"].contains(&&*asked), "{}", asked.escape_ascii());
    }
}

/// Answers requests until the [`END`] comes.
pub(super) fn serve(server: &Server) {
    while answer(server.recv(PATIENCE).unwrap()) != END {}
}

pub(super) const END: &[u8] = b"end";

fn send_and_cancel(client: &Client) {
    let ticket = client.try_send("never").unwrap().unwrap();
    assert_eq!(client.cancel(ticket), Ok(None));
}

/// `client` sleeps because the victim has the last slot. `die` ends the victim; then the client
/// must soon get the slot.
pub(super) fn next_gets_the_slot(fate: &Fate, client: &Client, die: impl FnOnce() -> Instant) {
    thread::scope(|scope| {
        let next = asleep(scope, || client.send("next", PATIENCE).unwrap());
        let died = die();
        let ticket = next.join().unwrap();
        fate.got_on(died);
        assert_eq!(client.cancel(ticket), Ok(None));
    });
}
