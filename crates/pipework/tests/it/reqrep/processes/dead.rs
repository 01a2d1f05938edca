//! Killed processes: their death is noticed in time, and their slots and requests are recovered.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, ClientOptions, Segment, Ticket};
use pipework::{Deadline, ErrorKind, Result};

use super::{
    assert_all_free, assert_answers, assert_prompt, assert_prompt_as_a_rule, holder, kind, options, server,
    sleep_until_killed, small,
};
use crate::harness::{PATIENCE, Random, alone, awaited, fork, say, seed, shared};

/// Polls until the call has ended.
fn poll(client: &Client, ticket: Ticket) -> Result<()> {
    loop {
        if client.try_recv(ticket)?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn waiters_get_peer_died_in_time_after_a_server_is_killed() {
    alone(|| {
        let (segment, seed) = (small(), seed());
        let client = segment.client().unwrap();
        let mut random = Random::new(seed);
        let mut waits = Vec::new();
        for round in 0..24 {
            let marks = shared(2);
            let child = holder(&segment, &marks[0], &marks[1]);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| match round % 3 {
                    0 => kind(client.call("a", PATIENCE)),
                    1 => kind(client.recv(client.send("b", PATIENCE).unwrap(), PATIENCE)),
                    _ => kind(poll(&client, client.send("c", PATIENCE).unwrap())),
                });
                awaited(&marks[0]);
                thread::sleep(Duration::from_millis(random.below(200) as u64));
                let killed = Instant::now();
                child.kill();
                assert_eq!(waiting.join().unwrap(), Some(ErrorKind::PeerDied), "PIPEWORK_SEED={seed}");
                waits.push(assert_prompt(killed));
            });
            assert_all_free(&segment);
        }
        assert_eq!(segment.stats().dead_members, 24);
        say(&format!("processes: a server's death is noticed within {:.0?}", waits.iter().max().unwrap()));
        assert_prompt_as_a_rule(waits);
    });
}

#[test]
fn killed_process_counts_as_dead_before_its_parent_waits_for_it() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        let marks = shared(2);
        let child = holder(&segment, &marks[0], &marks[1]);
        let ticket = client.send("a", PATIENCE).unwrap();
        awaited(&marks[0]);
        let child = child.doom();
        child.settle();
        let killed = Instant::now();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
        assert_prompt(killed);
        assert_all_free(&segment);
        child.bury();
    });
}

#[test]
fn request_is_redelivered_as_often_as_its_client_allows() {
    alone(|| {
        let segment = small();
        let client = segment.client_with(&ClientOptions::new().redeliveries(3)).unwrap();
        let mut killed = 0;
        for deaths in [1, 3, 4] {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| client.call("again", PATIENCE));
                for redeliveries in 0..deaths {
                    let marks = shared(2);
                    let child = holder(&segment, &marks[0], &marks[1]);
                    assert_eq!(awaited(&marks[0]), redeliveries + 1);
                    child.kill();
                    killed += 1;
                }
                if deaths > 3 {
                    assert_eq!(kind(waiting.join().unwrap()), Some(ErrorKind::PeerDied));
                } else {
                    let server = server(&segment);
                    assert_eq!(*waiting.join().unwrap().unwrap(), *b"AGAIN");
                    server.kill();
                    killed += 1;
                }
            });
        }
        segment.recover().unwrap();
        let stats = segment.stats();
        assert_eq!((stats.dead_members, stats.redelivered), (killed, 1 + 3 + 3));
        assert_all_free(&segment);
    });
}

#[test]
fn requests_of_a_killed_server_fail_or_are_redelivered() {
    alone(|| {
        for redeliveries in [0, 1] {
            let segment = small();
            let client = segment.client_with(&ClientOptions::new().redeliveries(redeliveries)).unwrap();
            let tickets = [1, 2, 3].map(|n: u8| client.send(&[n], PATIENCE).unwrap());
            let taken = &shared(1)[0];
            let child = fork(|| {
                let server = segment.server().unwrap();
                let requests = server.recv_many(3, PATIENCE, Duration::ZERO).unwrap();
                taken.store(requests.len() as u64, SeqCst);
                sleep_until_killed();
            });
            assert_eq!(awaited(taken), 3);
            child.kill();
            if redeliveries == 0 {
                let killed = Instant::now();
                for ticket in tickets {
                    assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::PeerDied));
                }
                assert_prompt(killed);
            } else {
                // A forgotten request has no caller that would look, so recover here.
                assert_eq!(segment.recover(), Ok(1));
                let server = segment.server().unwrap();
                let requests = server.drain(usize::MAX).unwrap();
                assert!(requests.iter().all(|request| request.redeliveries() == 1));
                assert_eq!(requests.iter().map(|request| request[0]).collect::<Vec<_>>(), [1, 2, 3]);
                requests.into_iter().for_each(|request| assert_eq!(request.reply("b"), Ok(true)));
                for ticket in tickets {
                    assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"b");
                }
            }
            assert_all_free(&segment);
        }
    });
}

#[test]
fn two_threads_waiting_for_one_reply_get_one_peer_died() {
    alone(|| {
        let segment = small();
        let client = segment.client().unwrap();
        for _ in 0..5 {
            let marks = shared(2);
            let child = holder(&segment, &marks[0], &marks[1]);
            let ticket = client.send("a", PATIENCE).unwrap();
            awaited(&marks[0]);
            thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| kind(client.recv(ticket, PATIENCE))));
                child.kill();
                let mut ends = both.map(|end| end.join().unwrap());
                ends.sort_by_key(|end| end.map(|kind| kind as i32));
                assert_eq!(ends, [Some(ErrorKind::Stale), Some(ErrorKind::PeerDied)]);
            });
        }
    });
}

#[test]
fn slots_of_a_killed_client_are_recovered() {
    alone(|| {
        let segment = small();
        let server = segment.server().unwrap();
        let sent = &shared(1)[0];
        let child = fork(|| {
            let client = segment.client().unwrap();
            for text in ["answered", "in work", "in work", "waiting"] {
                client.send(text, PATIENCE).unwrap();
            }
            sent.store(1, SeqCst);
            sleep_until_killed();
        });
        awaited(sent);
        assert_eq!(server.recv(PATIENCE).unwrap().reply("b"), Ok(true));
        let [one, two] = [server.recv(PATIENCE).unwrap(), server.recv(PATIENCE).unwrap()];
        let client = segment.client().unwrap();
        assert!(client.try_send("no slot is free").unwrap().is_none());
        let killed = Instant::now();
        child.kill();
        let ticket = client.send("there is one", PATIENCE).unwrap();
        assert_prompt(killed);
        assert!(!one.is_wanted() && !two.is_wanted(), "the client's death is known");
        assert_eq!(one.reply("to a dead client"), Ok(false));
        two.fail("");
        assert_eq!(*server.recv(PATIENCE).unwrap(), *b"there is one");
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::Failed));
        assert_all_free(&segment);
    });
}

#[test]
fn is_wanted_alone_reports_the_death_of_the_client() {
    alone(|| {
        let segment = small();
        let server = segment.server().unwrap();
        let child = fork(|| {
            let client = segment.client().unwrap();
            client.send("x", PATIENCE).unwrap();
            sleep_until_killed();
        });
        let request = server.recv(PATIENCE).unwrap();
        assert!(request.is_wanted());
        let killed = Instant::now();
        child.kill();
        while request.is_wanted() {
            assert!(killed.elapsed() < PATIENCE, "the loop does not end");
            thread::sleep(Duration::from_millis(1));
        }
        assert_prompt(killed);
    });
}

#[test]
fn place_of_a_dead_member_can_be_taken() {
    alone(|| {
        let segment = options().members(3).anonymous().unwrap();
        let (client, marks) = (segment.client().unwrap(), shared(3));
        let ticket = client.send("a", PATIENCE).unwrap();
        let child = holder(&segment, &marks[0], &marks[1]);
        awaited(&marks[0]);
        let other = fork(|| {
            let _client = segment.client().unwrap();
            marks[2].store(1, SeqCst);
            sleep_until_killed();
        });
        awaited(&marks[2]);
        for refused in [kind(segment.client()), kind(segment.server())] {
            assert_eq!(refused, Some(ErrorKind::WouldBlock));
        }
        child.kill();
        let server = segment.server().unwrap();
        assert_eq!(
            kind(client.try_recv(ticket)),
            Some(ErrorKind::PeerDied),
            "the dead server's place was recovered"
        );
        assert_eq!(kind(segment.client()), Some(ErrorKind::WouldBlock));
        other.kill();
        let heir = fork(|| assert!(segment.client().unwrap().try_send("b").unwrap().is_some()));
        heir.join();
        assert_eq!((segment.stats().dead_members, segment.recover()), (2, Ok(0)));
        drop(server);
        assert_all_free(&segment);
    });
}

#[test]
fn needs_server_does_not_count_a_dead_server() {
    alone(|| {
        let segment = small();
        let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
        let no_server = |segment: &Segment| {
            let began = Instant::now();
            let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
            assert_eq!(kind(client.call("a", PATIENCE)), Some(ErrorKind::NoServer));
            assert_prompt(began);
        };
        no_server(&segment);
        let attached = &shared(1)[0];
        let child = fork(|| {
            let _server = segment.server().unwrap();
            attached.store(1, SeqCst);
            sleep_until_killed();
        });
        awaited(attached);
        // The idle server does not take the request, but it could.
        let ticket = client.send("a", PATIENCE).unwrap();
        assert_eq!(kind(client.recv(ticket, Duration::from_millis(100))), Some(ErrorKind::TimedOut));
        let killed = Instant::now();
        child.kill();
        assert_eq!(kind(client.recv(ticket, PATIENCE)), Some(ErrorKind::NoServer));
        assert_prompt(killed);
        no_server(&segment);
        let server = server(&segment);
        let deadline = Deadline::after(PATIENCE);
        while kind(client.call("is it there?", PATIENCE)) == Some(ErrorKind::NoServer) {
            assert!(!deadline.has_passed());
        }
        assert_answers(&client, "it is");
        server.kill();
    });
}
