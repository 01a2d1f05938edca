//! Calls of any size: long payloads, streams, payloads in place, and calls with other options.

use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{
    Audit, CallError, Client, ClientOptions, Options, Reply, Request, Segment, Server, ServerOptions, Ticket,
};
use pipework::{Error, ErrorKind, Result};

use crate::harness::{PATIENCE, Random};

mod ends;
mod memory;
mod streams;
mod tickets;

const SHORT: Duration = Duration::from_millis(30);
/// Bytes of a slot.
const PART: usize = 64;

fn small() -> Segment {
    let options = Options::new().slots(4).members(8);
    options.request_bytes(PART as u32).reply_bytes(PART as u32).anonymous().expect("a segment")
}

fn ends(segment: &Segment) -> (Client, Server) {
    (segment.client().expect("a place"), segment.server().expect("a place"))
}

fn kind<T, E: Into<Error>>(outcome: std::result::Result<T, E>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.into().kind())
}

/// The reason that a server gave when it failed a call.
fn reason(ended: std::result::Result<Reply, CallError>) -> Vec<u8> {
    let error = ended.expect_err("its server failed it");
    assert_eq!(error.kind(), ErrorKind::Failed);
    error.into_reason().map_or(Vec::new(), Reply::into_vec)
}

fn assert_all_free(segment: &Segment) {
    let audit = segment.audit().expect("the audit works");
    let mut expected = Audit::default();
    (expected.free, expected.entries) = (segment.geometry().slots as usize, audit.entries);
    assert_eq!(audit, expected);
}

/// Answers each request with its own bytes, until an empty one comes.
fn echo(server: &Server) {
    loop {
        let request = server.recv(PATIENCE).expect("a request");
        if request.is_empty() {
            request.reply("").expect("it is this server's");
            return;
        }
        let answer = request.to_vec();
        request.reply(&answer).expect("it is this server's");
    }
}

#[test]
fn payloads_of_every_size_arrive_whole_with_any_kind_of_wait() {
    let segment = small();
    let (client, server) = ends(&segment);
    let mut random = Random::new(1);
    thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        let sizes = (0..4 * PART + 2).chain([1000, 4096, 100_000, 1 << 20]);
        for (turn, len) in sizes.filter(|len| *len > 0).enumerate() {
            let sent = random.bytes(len);
            let received = match turn % 4 {
                0 => client.call(&sent, PATIENCE).unwrap().into_vec(),
                1 => {
                    let ticket = client.send(&sent, PATIENCE).unwrap();
                    client.recv(ticket, PATIENCE).unwrap().into_vec()
                }
                2 => {
                    let ticket = client.send(&sent, PATIENCE).unwrap();
                    loop {
                        if let Some(reply) = client.try_recv(ticket).unwrap() {
                            break reply.into_vec();
                        }
                    }
                }
                _ => {
                    let mut into = vec![7; 3];
                    assert_eq!(client.call_into(&sent, &mut into, PATIENCE), Ok(0));
                    into
                }
            };
            assert!(received == sent, "{len} bytes in turn {turn}");
        }
        client.call("", PATIENCE).unwrap();
    });
    assert_all_free(&segment);
}

#[test]
fn many_threads_call_with_long_payloads_at_once() {
    let segment = small();
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        for server in [server.clone(), server] {
            scope.spawn(move || echo(&server));
        }
        let callers: Vec<_> = (0..4)
            .map(|seed| {
                let client = client.clone();
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..200 {
                        let len = 1 + random.below(6 * PART);
                        let sent = random.bytes(len);
                        assert_eq!(*client.call(&sent, PATIENCE).unwrap(), sent);
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        (0..2).for_each(|_| drop(client.call("", PATIENCE).unwrap()));
    });
    assert_all_free(&segment);
}

#[test]
fn payloads_above_max_message_are_too_long_at_both_ends() {
    let segment = small();
    let client = segment.client().unwrap();
    let bytes = [1; 1000];
    // A long request is refused by the client, and by the server, which continues with the next
    // one.
    let strict = segment.client_with(&ClientOptions::new().max_message(999)).unwrap();
    assert_eq!(kind(strict.call(&bytes, PATIENCE)), Some(ErrorKind::TooLong));
    assert_eq!(kind(strict.try_send(&bytes)), Some(ErrorKind::TooLong));
    assert_all_free(&segment);
    thread::scope(|scope| {
        let strict = segment.server_with(&ServerOptions::new().max_message(999)).unwrap();
        let serving = scope.spawn(move || strict.recv(PATIENCE).unwrap().reply("short").unwrap());
        assert_eq!(reason(client.call(&bytes, PATIENCE)), b"longer than the server's max_message");
        assert_eq!(*client.call("next", PATIENCE).unwrap(), *b"short");
        assert!(serving.join().unwrap());
    });
    // A long reply is refused by the server, and by the client, and then the call is over.
    thread::scope(|scope| {
        let strict = segment.server_with(&ServerOptions::new().max_message(999)).unwrap();
        let serving = scope.spawn(move || {
            let mut request = strict.recv(PATIENCE).unwrap();
            assert_eq!(kind(request.try_reply(&bytes)), Some(ErrorKind::TooLong));
            request.try_reply(&bytes[1..])
        });
        assert_eq!(client.call("a", PATIENCE).unwrap().len(), 999);
        assert_eq!(serving.join().unwrap(), Ok(true));
    });
    let server = segment.server_with(&ServerOptions::new().max_message(1000)).unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.recv(PATIENCE).unwrap().reply(&bytes));
        let strict = segment.client_with(&ClientOptions::new().max_message(500)).unwrap();
        let ticket = strict.send("a", PATIENCE).unwrap();
        assert_eq!(kind(strict.recv(ticket, PATIENCE)), Some(ErrorKind::TooLong));
        assert_eq!(kind(strict.recv(ticket, PATIENCE)), Some(ErrorKind::Stale));
        assert_eq!(serving.join().unwrap(), Ok(true));
    });
    assert_all_free(&segment);
}

#[test]
fn recv_any_returns_the_ticket_of_a_reply_that_is_too_long() {
    let segment = small();
    let server = segment.server().unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.recv(PATIENCE).unwrap().reply(&[1; 1000]));
        let strict = segment.client_with(&ClientOptions::new().max_message(500)).unwrap();
        let ticket = strict.send("a", PATIENCE).unwrap();
        let done = strict.recv_any(PATIENCE).unwrap().expect("a call");
        assert_eq!((done.ticket, kind(done.result)), (ticket, Some(ErrorKind::TooLong)));
        assert!(strict.recv_any(PATIENCE).unwrap().is_none(), "it is over");
        assert_eq!(serving.join().unwrap(), Ok(true));
    });
    assert_all_free(&segment);
}

#[test]
fn recv_that_times_out_keeps_the_parts_that_arrived() {
    let segment = small();
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut request = server.recv(PATIENCE).unwrap();
            for part in ["one ", "two ", "three "] {
                thread::sleep(SHORT);
                assert_eq!(request.part(part, PATIENCE), Ok(true));
            }
            thread::sleep(SHORT);
            assert_eq!(request.reply("four"), Ok(true));
        });
        let ticket = client.send("count", PATIENCE).unwrap();
        let mut waits = 0;
        let reply = loop {
            match client.recv(ticket, Duration::from_millis(1)) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                Ok(reply) => break reply,
            }
            waits += 1;
        };
        assert_eq!(*reply, *b"one two three four");
        assert!(waits > 10, "{waits} waits");
    });
    assert_all_free(&segment);
}

#[test]
fn a_request_is_claimed_and_read_in_place() {
    let segment = small();
    let (client, server) = ends(&segment);
    let sent = Random::new(2).bytes(10 * PART + 5);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            for reads_in_place in [true, false] {
                let mut request = server.claim(PATIENCE).unwrap();
                assert_eq!((request.payload().len(), request.size()), (0, sent.len()));
                let mut buffer = vec![0; sent.len()];
                if reads_in_place {
                    let too_small = request.read_into(&mut buffer[1..]);
                    assert_eq!(kind(too_small), Some(ErrorKind::TooLong));
                    assert_eq!(request.read_into(&mut buffer), Ok(sent.len()));
                } else {
                    buffer.copy_from_slice(request.read().unwrap());
                }
                assert!(buffer == sent);
                let long = request.reply_with(PART + 1, |_| Ok(()));
                assert_eq!(kind(long), Some(ErrorKind::TooLong));
            }
            let mut request = server.recv(PATIENCE).unwrap();
            assert_eq!(request.flags(), 9);
            let payload = request.take_payload();
            let answer = [b"<", &*payload, b">"];
            request
                .reply_with(PART, |space| {
                    space.set_flags(8);
                    answer.iter().try_for_each(|bytes| space.put(bytes))
                })
                .unwrap();
        });
        for _ in 0..2 {
            assert_eq!(kind(client.call(&sent, PATIENCE)), Some(ErrorKind::Failed));
        }
        let too_long = client.send_with(PART + 1, PATIENCE, |_| Ok(()));
        let refused = too_long.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLong);
        assert_eq!(client.send_with(8, PATIENCE, |_| Err(refused)), Err(refused), "the slot is free again");
        let ticket = client
            .send_with(16, PATIENCE, |space| {
                space.set_flags(9);
                write!(space, "{}", 12345).expect("there is space");
                assert_eq!((space.remaining(), kind(space.put(&[0; 12]))), (11, Some(ErrorKind::TooLong)));
                Ok(())
            })
            .unwrap();
        assert_eq!(kind(client.recv_into(ticket, &mut [0; 6], PATIENCE)), Some(ErrorKind::TooLong));
        assert_eq!(client.reply_len(ticket), 7);
        let mut buffer = [0; 10];
        assert_eq!(client.recv_into(ticket, &mut buffer, PATIENCE), Ok((7, 8)));
        assert_eq!(&buffer[..7], b"<12345>");
        serving.join().unwrap();
    });
    assert_all_free(&segment);
}

#[test]
fn long_messages_are_sent_and_received_without_a_wait() {
    let segment = small();
    let (client, server) = ends(&segment);
    let sent = Random::new(3).bytes(50 * PART);
    let ticket = client.try_send(&sent).unwrap().expect("a slot is free");
    let request = server.try_recv().unwrap().expect("it was sent");
    assert!(*request == *sent);
    assert_eq!(request.reply(&sent[1..]), Ok(true));
    assert_eq!(client.reply_len(ticket), sent.len() - 1);
    let mut into = vec![0; sent.len()];
    assert_eq!(kind(client.recv_into(ticket, &mut into[2..], PATIENCE)), Some(ErrorKind::TooLong));
    assert_eq!(client.recv_into(ticket, &mut into, PATIENCE), Ok((sent.len() - 1, 0)));
    assert!(into[..sent.len() - 1] == sent[1..]);
    assert_all_free(&segment);
}

#[test]
fn reply_in_parts_times_out_when_the_client_does_not_take_them() {
    let segment = small();
    let client = segment.client().unwrap();
    let server = segment.server_with(&ServerOptions::new().part_timeout(SHORT)).unwrap();
    // This client does not take the part before the reply.
    let mut stream = client.stream("a", PATIENCE).unwrap();
    let mut request = server.recv(PATIENCE).unwrap();
    assert_eq!(request.part("part", SHORT), Ok(true));
    assert_eq!(kind(request.reply(&[1; 3 * PART])), Some(ErrorKind::TimedOut));
    assert_eq!(kind(stream.next_part(PATIENCE)), Some(ErrorKind::Failed));
    let mut stream = client.stream("b", PATIENCE).unwrap();
    let mut request = server.recv(PATIENCE).unwrap();
    assert_eq!(request.part("first", SHORT), Ok(true));
    assert_eq!(kind(request.part("second", SHORT)), Some(ErrorKind::TimedOut));
    assert!(request.is_wanted(), "no byte of the part was given, so it can be given again");
    assert_eq!(kind(request.part(&[1; 2 * PART], SHORT)), Some(ErrorKind::TimedOut));
    assert!(request.fail("the part before is still there"));
    let error = stream.next_part(PATIENCE).unwrap_err();
    assert_eq!((error.kind(), error.into_reason()), (ErrorKind::Failed, None));
    assert_all_free(&segment);
}
