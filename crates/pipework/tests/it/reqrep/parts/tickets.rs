//! Calls by ticket: receiving any call, sending many, and forgetting calls.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::harness::{alone, fork};

#[test]
fn recv_any_returns_the_next_ended_call_with_its_ticket() {
    let segment = small();
    let (client, server) = ends(&segment);
    assert!(client.recv_any(PATIENCE).unwrap().is_none(), "nothing was sent");
    let tickets = client.send_many(["a", "b", "c", "d"], PATIENCE).unwrap();
    assert_eq!(kind(client.recv_any(SHORT)), Some(ErrorKind::TimedOut));
    let mut requests: Vec<_> = server.drain(4).unwrap().into_iter().map(Some).collect();
    assert!(requests.iter().flatten().map(Request::ticket).eq(tickets.iter().copied()));
    thread::scope(|scope| {
        for nth in [2, 0, 3, 1] {
            let request = requests[nth].take().unwrap();
            match nth {
                0 => drop(request),
                _ => drop(request.reply(&[nth as u8; 1]).unwrap()),
            }
            let done = client.recv_any(PATIENCE).unwrap().unwrap();
            assert_eq!(done.ticket, tickets[nth]);
            match nth {
                0 => assert_eq!(reason(done.result), b""),
                _ => assert_eq!(*done.result.unwrap(), [nth as u8]),
            }
        }
        // This thread must not take the call of another thread, and a long reply must come whole.
        let calling = scope.spawn(|| client.call("mine", PATIENCE));
        let request = server.recv(PATIENCE).unwrap();
        let ticket = client.send("any", PATIENCE).unwrap();
        request.reply("yours").unwrap();
        let serving = scope.spawn(|| server.recv(PATIENCE).unwrap().reply(&[5; 4 * PART]));
        let done = client.recv_any(PATIENCE).unwrap().unwrap();
        assert_eq!((done.ticket, &*done.result.unwrap()), (ticket, &[5; 4 * PART][..]));
        assert_eq!(*calling.join().unwrap().unwrap(), *b"yours");
        assert_eq!(serving.join().unwrap(), Ok(true));
    });
    assert!(client.recv_any(PATIENCE).unwrap().is_none());
    assert_all_free(&segment);
}

#[test]
fn many_requests_go_at_once_and_long_ones_among_them() {
    let segment = small();
    let (client, server) = ends(&segment);
    let (long, short) = (vec![9; 3 * PART], vec![1; 3]);
    // More requests than slots: the rest are sent as far as the deadline allows.
    let some = client.send_many([&short; 9], SHORT).unwrap();
    assert_eq!((some.len(), server.drain(9).unwrap().len()), (4, 4));
    let strict = segment.client_with(&ClientOptions::new().max_message(9)).unwrap();
    assert_eq!(kind(strict.send_many([&long], SHORT)), Some(ErrorKind::TooLong));
    assert!(client.send_many([""; 0], SHORT).unwrap().is_empty());
    some.into_iter().for_each(|ticket| assert_eq!(kind(client.recv(ticket, SHORT)), Some(ErrorKind::Failed)));
    thread::scope(|scope| {
        scope.spawn(|| (0..9).for_each(|_| assert!(server.recv(PATIENCE).unwrap().reply("done").is_ok())));
        let client = &client;
        let sending = scope.spawn(|| client.send_many([&short, &long, &short].repeat(3), PATIENCE).unwrap());
        let mut done = 0;
        while done < 9 {
            if let Some(call) = client.recv_any(PATIENCE).unwrap() {
                assert_eq!(*call.result.unwrap(), *b"done");
                done += 1;
            }
        }
        assert_eq!(sending.join().unwrap().len(), 9);
    });
    assert_all_free(&segment);
}

#[test]
fn recv_many_waits_for_more_requests_only_as_long_as_needed() {
    let segment = small();
    let (client, server) = ends(&segment);
    client.send("a", PATIENCE).unwrap();
    assert_eq!(server.recv_many(4, PATIENCE, Duration::ZERO).unwrap().len(), 1);
    thread::scope(|scope| {
        client.send("b", PATIENCE).unwrap();
        let began = Instant::now();
        assert_eq!(server.recv_many(4, PATIENCE, SHORT).unwrap().len(), 1);
        assert!(began.elapsed() >= SHORT && began.elapsed() < PATIENCE / 4);
        scope.spawn(|| {
            client.send("c", PATIENCE).unwrap();
            thread::sleep(SHORT);
            client.send("d", PATIENCE).unwrap();
        });
        let began = Instant::now();
        assert_eq!(server.recv_many(2, PATIENCE, PATIENCE).unwrap().len(), 2);
        assert!(began.elapsed() < PATIENCE / 2, "as many have come as it asked for");
    });
}

#[test]
fn forgotten_request_is_carried_out_after_its_client_left() {
    let segment = small();
    let (client, server) = ends(&segment);
    let [waiting, taken, answered, taken_back] =
        ["a", "b", "c", "d"].map(|text| client.send(text, PATIENCE).unwrap());
    let _ = taken_back;
    assert_eq!(client.forget(waiting), Ok(()));
    assert_eq!(kind(client.forget(waiting)), Some(ErrorKind::Stale));
    assert_eq!(kind(client.recv(waiting, SHORT)), Some(ErrorKind::Stale));
    let first = server.recv(PATIENCE).unwrap();
    assert!(first.is_wanted() && *first == *b"a");
    let second = server.recv(PATIENCE).unwrap();
    assert_eq!(client.forget(taken), Ok(()));
    assert!(second.is_wanted());
    server.recv(PATIENCE).unwrap().reply("a reply without a caller").unwrap();
    assert_eq!(client.forget(answered), Ok(()));
    assert_eq!(client.pending(), 1, "it has forgotten three of four");
    drop(client);
    assert!(first.is_wanted() && second.is_wanted());
    assert_eq!((first.reply("x"), second.reply("y")), (Ok(false), Ok(false)));
    // The client cancels the requests that it did not forget.
    assert!(server.try_recv().unwrap().is_none());
    assert_all_free(&segment);
}

#[test]
fn forget_all_leaves_every_request_to_the_servers() {
    let segment = small();
    let (client, server) = ends(&segment);
    assert_eq!(client.forget_all(), 0);
    let other = segment.client().unwrap();
    let others = other.send("another's", PATIENCE).unwrap();
    let mine = ["a", "b", "c"].map(|text| client.send(text, PATIENCE).unwrap());
    assert!(client.cancel(mine[2]).unwrap().is_none());
    assert!(others.idx() < segment.geometry().slots, "a ticket names its slot");
    assert_eq!((client.forget_all(), client.forget_all(), client.pending()), (2, 0, 0));
    drop(client);
    for _ in 0..3 {
        let request = server.recv(PATIENCE).unwrap();
        let is_others = request.ticket() == others;
        assert_eq!(request.reply("done"), Ok(is_others));
    }
    assert!(other.recv(others, PATIENCE).is_ok() && server.try_recv().unwrap().is_none());
    assert_all_free(&segment);
}

/// Recovery pushes the first request that waits once more, because a server may be about to remove its
/// entry. A later call of that slot waits for its turn all the same.
#[test]
fn forgotten_requests_keep_their_order_when_a_member_has_died() {
    alone(|| {
        let segment = small();
        let (client, server) = ends(&segment);
        // One slot more, so that a request gets another slot than the one before it in its place.
        let all = 0..segment.geometry().slots - 1;
        let post = |number: u32| {
            let ticket = client.try_send(&number.to_ne_bytes()).unwrap().expect("there is a slot");
            client.forget(ticket).unwrap();
        };
        let take = |number: u32| {
            let request = server.try_recv().unwrap().expect("one waits");
            assert_eq!(*request, number.to_ne_bytes());
            request.reply("").unwrap();
        };
        for _ in all.clone() {
            let attached = &crate::harness::shared(1)[0];
            let child = fork(|| {
                let _member = segment.client().unwrap();
                attached.store(1, SeqCst);
                thread::sleep(PATIENCE);
            });
            crate::harness::awaited(attached);
            all.clone().for_each(post);
            child.kill();
            segment.recover().unwrap();
            all.clone().for_each(take);
            all.clone().for_each(post);
            all.clone().for_each(take);
        }
        assert_eq!(usize::try_from(segment.stats().dead_members), Ok(all.len()));
        assert_all_free(&segment);
    });
}

#[test]
fn forgotten_request_goes_to_another_server_after_its_own_was_killed() {
    alone(|| {
        let segment = small();
        for redeliveries in 0..2 {
            let taken = &crate::harness::shared(1)[0];
            let child = fork(|| {
                let server = segment.server().unwrap();
                let _request = server.recv(PATIENCE).unwrap();
                taken.store(1, SeqCst);
                thread::sleep(PATIENCE);
            });
            let client = segment.client_with(&ClientOptions::new().redeliveries(redeliveries)).unwrap();
            let ticket = client.send("once more", PATIENCE).unwrap();
            client.forget(ticket).unwrap();
            drop(client);
            crate::harness::awaited(taken);
            child.kill();
            let server = segment.server().unwrap();
            // The request is recovered by another client's tick, or by an explicit `recover`.
            segment.recover().unwrap();
            match redeliveries {
                0 => assert!(server.try_recv().unwrap().is_none(), "it was lost with its server"),
                _ => {
                    let request = server.recv(PATIENCE).unwrap();
                    assert_eq!((&*request, request.redeliveries()), (&b"once more"[..], 1));
                    assert_eq!(request.reply("done"), Ok(false));
                }
            }
            drop(server);
            assert_all_free(&segment);
        }
    });
}

#[test]
fn kept_requests_are_answered_once_by_their_tickets() {
    let segment = small();
    let (client, server) = ends(&segment);
    let sent = ["a", "b", "c"].map(|text| client.send(text, PATIENCE).unwrap());
    let kept: Vec<Ticket> = server.drain(9).unwrap().into_iter().map(Request::keep).collect();
    assert_eq!(kept, sent);
    let clone = server.clone();
    let numbers = kept.iter().map(|ticket| Ticket::from_bits(ticket.to_bits()));
    let mut requests: Vec<_> = numbers.map(|ticket| clone.kept(ticket).unwrap().unwrap()).collect();
    assert!(kept.iter().all(|ticket| server.kept(*ticket).unwrap().is_none()), "each is returned once");
    assert_eq!(requests[2].read().unwrap(), b"c");
    let last = requests.pop().unwrap();
    requests.into_iter().for_each(|request| assert_eq!(request.reply("done"), Ok(true)));
    let again = last.keep();
    assert_eq!(*client.recv(sent[0], PATIENCE).unwrap(), *b"done");
    assert_eq!(*client.recv(sent[1], PATIENCE).unwrap(), *b"done");
    // This slot holds another call by now.
    let next = client.send("d", PATIENCE).unwrap();
    assert!(server.kept(sent[0]).unwrap().is_none() && server.kept(next).unwrap().is_none());
    // Dropping the last clone of the server fails the requests that it keeps.
    drop(server);
    assert!(client.try_recv(again).unwrap().is_none());
    drop(clone);
    assert_eq!(kind(client.recv(again, PATIENCE)), Some(ErrorKind::Failed));
    assert_eq!(client.cancel(next), Ok(None));
    assert_all_free(&segment);
}

#[test]
fn a_long_request_is_read_again_where_it_was_kept() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long: Vec<u8> = (0..3 * PART as u32).map(|n| n as u8).collect();
    let ticket = client.send(&long, PATIENCE).unwrap();
    let mut request = server.recv(PATIENCE).unwrap();
    assert_eq!(request.take_payload(), long);
    assert_eq!(request.keep(), ticket);
    for _ in 0..2 {
        let mut request = server.kept(ticket).unwrap().unwrap();
        assert_eq!((request.size(), request.read().unwrap()), (long.len(), &*long));
        request.keep();
    }
    assert_eq!(server.kept(ticket).unwrap().unwrap().reply("whole"), Ok(true));
    assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"whole");
    assert_all_free(&segment);
}

#[test]
fn forked_child_answers_requests_that_it_adopted_from_its_parent() {
    alone(|| {
        let segment = small();
        let (client, server) = ends(&segment);
        let sent = ["a", "b"].map(|text| client.send(text, PATIENCE).unwrap());
        let held = server.recv(PATIENCE).unwrap();
        let kept = server.recv(PATIENCE).unwrap().keep();
        fork(|| {
            assert_eq!(kind(server.kept(kept)), Some(ErrorKind::Stale));
            assert_eq!(kind(server.adopt(sent[0])), Some(ErrorKind::Stale), "the parent holds it");
            assert_eq!(server.adopt(kept).unwrap().keep(), kept);
            assert_eq!(kind(server.adopt(kept)), Some(ErrorKind::Stale), "it has its own already");
            let mut request = server.kept(kept).unwrap().unwrap();
            assert_eq!(request.read().unwrap(), b"b");
            assert_eq!(request.reply("the child's"), Ok(true));
            assert_eq!(kind(server.adopt(kept)), Some(ErrorKind::Stale));
        })
        .join();
        assert_eq!(*client.recv(sent[1], PATIENCE).unwrap(), *b"the child's");
        assert_eq!(kind(server.kept(kept).unwrap().unwrap().reply("too late")), Some(ErrorKind::Stale));
        assert_eq!(held.reply("the parent's"), Ok(true));
        assert_eq!(*client.recv(sent[0], PATIENCE).unwrap(), *b"the parent's");
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn a_panic_while_a_request_is_written_leaves_no_slot_behind() {
    let segment = small();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap();
    for _ in 0..9 {
        let written = catch_unwind(AssertUnwindSafe(|| {
            client.send_with(9, PATIENCE, |_| panic!("as a test wants it"))
        }));
        assert!(written.is_err());
    }
    assert_all_free(&segment);
    assert!(client.try_send("next").unwrap().is_some());
}

/// The thread panics all the time, so `send` cannot tell by that whether the request was written.
#[test]
fn destructor_can_send_while_its_thread_panics() {
    struct Bye<'a>(&'a Client, &'a Cell<Option<Result<Ticket>>>);
    impl Drop for Bye<'_> {
        fn drop(&mut self) {
            let refused = self.0.try_send(&[0; PART + 1]).unwrap_err();
            assert_eq!(self.0.send_with(3, PATIENCE, |_| Err(refused)), Err(refused));
            self.1.set(Some(self.0.send_with(3, PATIENCE, |space| space.put(b"bye"))));
        }
    }
    let segment = small();
    let server = segment.server().unwrap();
    let client = segment.client_with(&ClientOptions::new().max_in_flight(1).max_message(PART)).unwrap();
    let sent = Cell::new(None);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _bye = Bye(&client, &sent);
        panic!("as a test wants it")
    }));
    assert!(panicked.is_err() && matches!(sent.take(), Some(Ok(_))));
    assert_eq!(client.try_send("one more"), Ok(None), "one call is in progress");
    let request = server.recv(PATIENCE).unwrap();
    assert_eq!(*request, *b"bye");
    assert_eq!(request.reply(""), Ok(true));
}

#[test]
fn one_thread_receives_many_long_calls_in_any_order() {
    let segment = small();
    let client = segment.client().unwrap();
    let server = segment.server().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| echo(&server));
        }
        let began = Instant::now();
        for turn in 0..6 {
            let sent: Vec<_> = (0..3u8).map(|call| vec![call; 10 * PART + turn]).collect();
            let tickets: Vec<_> = sent.iter().map(|sent| client.send(sent, PATIENCE).unwrap()).collect();
            for (ticket, sent) in tickets.into_iter().zip(&sent).rev() {
                assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), **sent);
            }
        }
        assert!(began.elapsed() < PATIENCE / 10, "{:?}", began.elapsed());
        (0..2).for_each(|_| drop(client.call("", PATIENCE).unwrap()));
    });
    assert_all_free(&segment);
}
