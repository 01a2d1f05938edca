//! Streamed replies, and requests that are cancelled, failed or forgotten meanwhile.

use pipework::reqrep::Stream;

use super::*;
use crate::harness::{alone, awaited, fork, shared};

/// Gives parts until the caller has gone; returns how many were given.
fn count(mut request: Request<'_>) -> u64 {
    for n in 0u64.. {
        match request.part(&n.to_le_bytes(), PATIENCE) {
            Ok(true) => {}
            Ok(false) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("it counts for ever")
}

#[test]
fn next_part_returns_parts_with_flags_and_none_for_an_empty_end() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = Random::new(4).bytes(5 * PART + 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for last in ["", "end"] {
                let mut request = server.recv(PATIENCE).unwrap();
                for (flags, part) in [&b"one"[..], b"", &long, b"four"].into_iter().enumerate() {
                    let part = pipework::reqrep::Message::new(part).flags(flags as u32);
                    assert_eq!(request.part(part, PATIENCE), Ok(true));
                }
                assert_eq!(request.reply(last), Ok(true));
            }
            // A plain `recv` gets all parts joined, and a stream gets a plain reply.
            let mut request = server.recv(PATIENCE).unwrap();
            assert_eq!(request.part("a", PATIENCE), Ok(true));
            request.reply(&long).unwrap();
            server.recv(PATIENCE).unwrap().reply(&long).unwrap();
        });
        for last in [&[][..], &[b"end"]] {
            let parts: Vec<_> = client.stream("go", PATIENCE).unwrap().map(|part| part.unwrap()).collect();
            let flags: Vec<_> = parts.iter().take(4).map(|part| part.flags()).collect();
            assert_eq!(flags, [0, 1, 2, 3]);
            let parts: Vec<_> = parts.into_iter().map(|part| part.into_vec()).collect();
            let expected =
                [&b"one"[..], b"", &long, b"four"].into_iter().chain(last.iter().map(|last| &last[..]));
            assert!(parts.iter().eq(expected));
        }
        assert_eq!(*client.call("go", PATIENCE).unwrap(), [b"a", &long[..]].concat());
        let parts: Vec<_> = client.stream("go", PATIENCE).unwrap().map(|part| part.unwrap()).collect();
        assert!(parts.len() == 1 && *parts[0] == *long);
    });
    assert_all_free(&segment);
}

#[test]
fn try_next_part_returns_parts_and_the_flags_of_an_empty_end() {
    let segment = small();
    let (client, server) = ends(&segment);
    let mut stream = client.stream("go", PATIENCE).unwrap();
    assert_eq!((stream.try_next_part().unwrap().is_some(), stream.ticket().is_some()), (false, true));
    let mut request = server.recv(PATIENCE).unwrap();
    let message = |text: &'static str, flags| pipework::reqrep::Message::new(text).flags(flags);
    assert_eq!(request.part(message("part", 1), PATIENCE), Ok(true));
    let part = stream.try_next_part().unwrap().expect("it was given");
    assert_eq!((&*part, part.flags(), stream.end_flags()), (&b"part"[..], 1, 0));
    assert_eq!(request.reply(message("", 2)), Ok(true));
    assert!(stream.try_next_part().unwrap().is_none());
    assert_eq!((stream.ticket(), stream.end_flags()), (None, 2));
    assert!(stream.try_next_part().unwrap().is_none());
    // A last part has its own flags, and a failure is returned as the error.
    let mut stream = client.stream("go", PATIENCE).unwrap();
    assert_eq!(server.recv(PATIENCE).unwrap().reply(message("all", 3)), Ok(true));
    let part = stream.try_next_part().unwrap().expect("it was given");
    assert_eq!((part.flags(), stream.end_flags(), stream.ticket()), (3, 3, None));
    let mut stream = client.stream("go", PATIENCE).unwrap();
    server.recv(PATIENCE).unwrap().fail("no");
    let error = stream.try_next_part().unwrap_err();
    assert_eq!((error.kind(), &**error.reason().unwrap()), (ErrorKind::Failed, &b"no"[..]));
    assert_all_free(&segment);
}

#[test]
fn dropped_stream_stops_its_server_at_the_next_part() {
    let segment = small();
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        let serving = scope.spawn(|| count(server.recv(PATIENCE).unwrap()));
        let mut stream = client.stream("count", PATIENCE).unwrap();
        for n in 0u64..5 {
            assert_eq!(*stream.next_part(PATIENCE).unwrap().unwrap(), n.to_le_bytes());
        }
        drop(stream);
        let given = serving.join().unwrap();
        assert!((5..=6).contains(&given), "{given}");
    });
    // One stream is cancelled in the middle, and another is forgotten there: its server goes on.
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut request = server.recv(PATIENCE).unwrap();
            assert_eq!(request.part("part", PATIENCE), Ok(true));
            // The client never takes the part.
            assert_eq!(kind(request.flush(SHORT)), Some(ErrorKind::TimedOut));
            request.flush(PATIENCE)
        });
        let stream = client.stream("hold", PATIENCE).unwrap();
        while segment.audit().unwrap().in_parts == 0 {
            thread::yield_now();
        }
        thread::sleep(2 * SHORT);
        let ticket = stream.ticket().expect("it goes on");
        assert_eq!(kind(client.recv(ticket, SHORT)), Some(ErrorKind::Stale), "it is for the stream");
        assert_eq!(client.cancel(ticket), Ok(None));
        assert_eq!(serving.join().unwrap(), Ok(false));
        let serving = scope.spawn(|| {
            let mut request = server.recv(PATIENCE).unwrap();
            while request.part("part", PATIENCE) == Ok(true) {}
            (request.is_wanted(), request.reply("done"))
        });
        let mut stream = client.stream("count", PATIENCE).unwrap();
        assert_eq!(&*stream.next_part(PATIENCE).unwrap().unwrap(), b"part");
        assert_eq!(client.forget(stream.ticket().expect("it goes on")), Ok(()));
        assert_eq!(serving.join().unwrap(), (true, Ok(false)), "it is to be carried out, and nobody waits");
    });
    assert_all_free(&segment);
}

#[test]
fn fail_delivers_its_reason_before_and_within_a_stream() {
    let segment = small();
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(server.recv(PATIENCE).unwrap().fail("no such model"));
            let mut request = server.recv(PATIENCE).unwrap();
            assert_eq!(request.part("a", PATIENCE), Ok(true));
            // Once the client has taken the part, the slot has space for a reason.
            while request.part("b", SHORT) != Ok(true) {}
            assert_eq!(request.flush(PATIENCE), Ok(true));
            assert_eq!(request.flush(PATIENCE), Ok(true), "no part is left to take");
            assert!(request.fail(&[b'x'; 2 * PART]));
            drop(server.recv(PATIENCE).unwrap());
            assert!(server.recv(PATIENCE).unwrap().fail("no such model"));
        });
        let mut stream = client.stream("go", PATIENCE).unwrap();
        let error = stream.next_part(PATIENCE).unwrap_err();
        assert_eq!((error.kind(), &**error.reason().unwrap()), (ErrorKind::Failed, &b"no such model"[..]));
        assert_eq!(stream.next_part(PATIENCE).unwrap().map(drop), None, "the stream has ended");
        let mut stream = client.stream("go", PATIENCE).unwrap();
        assert_eq!(*stream.next_part(PATIENCE).unwrap().unwrap(), *b"a");
        assert_eq!(*stream.next_part(PATIENCE).unwrap().unwrap(), *b"b");
        let error = stream.next_part(PATIENCE).unwrap_err();
        assert_eq!(&**error.reason().unwrap(), [b'x'; PART], "as much of it as fits");
        assert_eq!(reason(client.call("go", PATIENCE)), b"", "the server gave none");
        let mut into = b"old contents".to_vec();
        let error = client.call_into("go", &mut into, PATIENCE).unwrap_err();
        assert_eq!((&**error.reason().unwrap(), &*into), (&b"no such model"[..], &b""[..]));
        assert_eq!(kind(client.call_into("go", &mut into, SHORT)), Some(ErrorKind::TimedOut));
        assert!(into.is_empty());
    });
    assert_all_free(&segment);
}

#[test]
fn stream_ends_in_time_when_its_server_is_killed() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        for parts in 0..4 {
            let given = &shared(1)[0];
            let child = fork(|| {
                let server = segment.server().unwrap();
                let mut request = server.recv(PATIENCE).unwrap();
                for n in 0..parts {
                    assert_eq!(request.part("part", PATIENCE), Ok(true));
                    given.store(n + 1, SeqCst);
                }
                given.store(100, SeqCst);
                thread::sleep(PATIENCE);
            });
            let mut stream = client.stream("go", PATIENCE).unwrap();
            for _ in 0..parts.saturating_sub(1) {
                assert_eq!(*stream.next_part(PATIENCE).unwrap().unwrap(), *b"part");
            }
            while awaited(given) != 100 {}
            child.kill();
            let killed = Instant::now();
            // The last part that the server gave may come before the error, but never after it.
            let rest: Vec<_> = stream.collect();
            assert!(killed.elapsed() < PATIENCE / 10, "{:?}", killed.elapsed());
            let (last, before) = rest.split_last().expect("an error");
            assert_eq!(last.as_ref().map_err(|error| error.kind()).err(), Some(ErrorKind::PeerDied));
            assert!(
                before.len() <= 1 && before.iter().all(|part| part.as_ref().is_ok_and(|p| **p == *b"part"))
            );
            segment.recover().unwrap();
            assert_all_free(&segment);
        }
    });
}

/// Polls until the stream has ended, or until the guard time is over.
fn poll(stream: &mut Stream) -> Option<ErrorKind> {
    let began = Instant::now();
    loop {
        match stream.try_next_part() {
            Ok(None) if began.elapsed() < PATIENCE / 10 => thread::sleep(Duration::from_millis(1)),
            ended => return kind(ended),
        }
    }
}

#[test]
fn try_next_part_reports_the_end_when_the_server_is_gone() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let taken = &shared(1)[0];
        let child = fork(|| {
            let server = segment.server().unwrap();
            let _request = server.recv(PATIENCE).unwrap();
            taken.store(1, SeqCst);
            thread::sleep(PATIENCE);
        });
        let mut stream = client.stream("go", PATIENCE).unwrap();
        awaited(taken);
        child.kill();
        assert_eq!((poll(&mut stream), stream.ticket()), (Some(ErrorKind::PeerDied), None));
        // Here the only server leaves before it takes the request.
        let server = segment.server().unwrap();
        let wary = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
        let mut stream = wary.stream("go", PATIENCE).unwrap();
        drop(server);
        assert_eq!((poll(&mut stream), stream.ticket()), (Some(ErrorKind::NoServer), None));
        assert_all_free(&segment);
    });
}

#[test]
fn server_learns_of_a_client_killed_in_the_middle_of_a_call() {
    alone(|| {
        let segment = small();
        let server = segment.server().unwrap();
        let ready = &shared(1)[0];
        let child = fork(|| {
            let client = segment.client().unwrap();
            let mut stream = client.stream("go", PATIENCE).unwrap();
            stream.next_part(PATIENCE).unwrap();
            ready.store(1, SeqCst);
            thread::sleep(PATIENCE);
        });
        let mut request = server.recv(PATIENCE).unwrap();
        assert_eq!(request.part("one", PATIENCE), Ok(true));
        awaited(ready);
        assert_eq!(request.part("two", PATIENCE), Ok(true));
        child.kill();
        let killed = Instant::now();
        assert_eq!(request.part("three", PATIENCE), Ok(false));
        assert!(killed.elapsed() < PATIENCE / 10);
        drop(request);
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn stopped_peer_blocks_no_call_beyond_its_deadline() {
    alone(|| {
        let segment = small();
        // The server is stopped between two parts: the stream times out, and continues when the
        // server does.
        let client = segment.client().unwrap();
        let given = &shared(1)[0];
        let child = fork(|| {
            let server = segment.server().unwrap();
            let mut request = server.recv(PATIENCE).unwrap();
            for n in 0..4u64 {
                assert_eq!(request.part(&n.to_le_bytes(), PATIENCE), Ok(true));
                given.store(n + 1, SeqCst);
                thread::sleep(SHORT * 3);
            }
            request.reply("").unwrap();
        });
        let mut stream = client.stream("go", PATIENCE).unwrap();
        assert_eq!(*stream.next_part(PATIENCE).unwrap().unwrap(), 0u64.to_le_bytes());
        while awaited(given) < 1 {}
        child.stop();
        let began = Instant::now();
        let ended = loop {
            match stream.next_part(SHORT) {
                Ok(Some(_)) => {}
                ended => break kind(ended),
            }
        };
        assert_eq!(ended, Some(ErrorKind::TimedOut));
        assert!(began.elapsed() < PATIENCE / 10);
        child.resume();
        assert!(stream.all(|part| part.is_ok()));
        child.join();
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

/// Each part is available at once, so no call ever has to wait.
#[test]
fn endless_parts_do_not_hold_recv_beyond_its_deadline_or_try_recv() {
    let segment = small();
    let (client, server) = ends(&segment);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let mut request = server.recv(PATIENCE).unwrap();
                while request.part("", PATIENCE).unwrap() {}
            }
        });
        let began = Instant::now();
        assert_eq!(kind(client.call("go", 3 * SHORT)), Some(ErrorKind::TimedOut));
        let ticket = client.send("go", PATIENCE).unwrap();
        thread::sleep(SHORT);
        assert!(matches!(client.try_recv(ticket), Ok(None)));
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        assert_eq!(client.cancel(ticket), Ok(None));
    });
    assert_all_free(&segment);
}
