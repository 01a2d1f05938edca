//! The room as a whole, in one process.

use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::deadline::Deadline;

const SOON: Duration = Duration::from_secs(20);

fn small() -> Segment {
    Options::new().slots(2).members(8).request_bytes(100).reply_bytes(100).anonymous().expect("a segment")
}

#[test]
fn a_call_is_answered_and_its_slot_is_free_again() {
    let segment = small();
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for turn in 0..100u32 {
        let ticket = client.send(Message::new(&turn.to_le_bytes()).flags(turn), SOON).unwrap();
        assert_eq!(client.try_recv(ticket).unwrap().map(|reply| reply.flags()), None);
        let request = server.recv(SOON).unwrap();
        assert_eq!((&*request, request.flags(), request.deliveries()), (&turn.to_le_bytes()[..], turn, 0));
        assert_eq!((segment.len(), client.pending()), (0, 1));
        assert!(request.reply(Message::new("yes").flags(!turn)).unwrap());
        let reply = client.recv(ticket, SOON).unwrap();
        assert_eq!((&*reply, reply.flags()), (&b"yes"[..], !turn));
        assert_eq!(client.recv(ticket, SOON).map(|_| ()).unwrap_err().kind(), ErrorKind::Stale);
    }
    assert_eq!(segment.audit().unwrap(), Audit { free: 2, ..Audit::default() });
    let stats = segment.stats();
    assert_eq!((stats.requests, stats.replies, stats.cancelled), (100, 100, 0));
}

#[test]
fn calls_between_threads_all_get_their_own_answer() {
    let segment = Options::new().slots(8).anonymous().unwrap();
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
                for turn in 0..3000 {
                    let request = format!("{seed} asks {turn} {}", "x".repeat((seed * turn) % 3000));
                    let reply = client.call(&request, SOON).unwrap();
                    assert!(reply.iter().rev().eq(request.as_bytes()));
                }
            }
        };
        let clients: Vec<_> = (1..4).map(|seed| scope.spawn(calls(seed))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let last = segment.client().unwrap();
        servers.iter().for_each(|_| drop(last.call("", SOON).unwrap()));
    });
    assert_eq!(segment.audit().unwrap().free, 8);
}

#[test]
fn parked_both_sides() {
    let segment = Options::new().spin(Duration::ZERO).anonymous().unwrap();
    let server = segment.server().unwrap();
    let client = segment.client().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                server.recv(Deadline::NEVER).unwrap().reply("").unwrap();
            }
        });
        let begin = Instant::now();
        (0..3000).for_each(|_| drop(client.call("x", SOON).unwrap()));
        eprintln!("parked: {:?} a call", begin.elapsed() / 3000);
    });
}

#[test]
fn quick() {
    let segment = Options::new().anonymous().unwrap();
    let server = segment.server().unwrap();
    let client = segment.client().unwrap();
    let begin = Instant::now();
    for _ in 0..1_000_000 {
        let ticket = client.try_send("hello world!").unwrap().unwrap();
        let request = server.try_recv().unwrap().unwrap();
        request.reply("hello world!").unwrap();
        client.try_recv(ticket).unwrap().unwrap();
    }
    eprintln!("one thread: {:?} a call", begin.elapsed() / 1_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000_000 {
                server.recv(Deadline::NEVER).unwrap().reply("").unwrap();
            }
        });
        let begin = Instant::now();
        (0..1_000_000).for_each(|_| drop(client.call("x", Deadline::NEVER).unwrap()));
        eprintln!("two threads: {:?} a call", begin.elapsed() / 1_000_000);
    });
}
