//! A server dies with very many requests: every caller learns of it at its first tick, in whichever
//! slot its own call is.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, Options, Segment, Ticket};
use pipework::{Deadline, ErrorKind};

use super::{kind, sleep_until_killed};
use crate::harness::{Child, PATIENCE, alone_for, awaited, block_on, fork, say, shared};

const HELD: u32 = 60_000;

/// Longer than the time between two ticks.
const A_TICK: Duration = Duration::from_millis(60);

/// Has a server take a call in every slot: one of `last` in the last slot, which is returned, and
/// calls of `others` in the rest.
fn held(segment: &Segment, last: &Client, others: &Client) -> (Ticket, Child) {
    let send = |client: &Client| client.try_send("a").unwrap().expect("there is a slot");
    let in_last = |ticket: &Ticket| ticket.to_bits() & 0xFF_FFFF == u64::from(HELD) - 1;
    let tickets: Vec<Ticket> = (0..HELD).map(|_| send(others)).collect();
    assert_eq!(others.cancel(*tickets.iter().find(|ticket| in_last(ticket)).unwrap()), Ok(None));
    let ticket = send(last);
    assert!(in_last(&ticket));
    let has_all = &shared(1)[0];
    let server = fork(|| {
        let server = segment.server().unwrap();
        let requests = server.drain(HELD as usize).unwrap();
        has_all.store(requests.len() as u64, SeqCst);
        sleep_until_killed();
    });
    assert_eq!(awaited(has_all), u64::from(HELD));
    (ticket, server)
}

#[test]
fn caller_learns_of_a_death_at_its_first_tick_among_many_calls() {
    alone_for(4 * PATIENCE, || {
        type Look = fn(&Client, Ticket) -> Option<ErrorKind>;
        let looks: [(&str, Look); 4] = [
            ("recv", |client, ticket| kind(client.recv(ticket, Deadline::now()))),
            ("try_recv", |client, ticket| kind(client.try_recv(ticket))),
            ("recv_any", |client, ticket| match client.recv_any(Deadline::now()) {
                Ok(Some(done)) if done.ticket == ticket => kind(done.result),
                other => panic!("{other:?}"),
            }),
            ("recv_async", |client, ticket| kind(block_on(client.recv_async(ticket)))),
        ];
        for (name, look) in looks {
            fork(|| {
                let segment = Options::new().slots(HELD).request_bytes(8).reply_bytes(8).anonymous().unwrap();
                let (client, others) = (segment.client().unwrap(), segment.client().unwrap());
                let (ticket, server) = held(&segment, &client, &others);
                server.kill();
                let killed = Instant::now();
                thread::sleep(A_TICK);
                assert_eq!(look(&client, ticket), Some(ErrorKind::PeerDied), "{name}");
                say(&format!("processes: {name} in the last of {HELD} slots after {:.0?}", killed.elapsed()));
                let mut ended = 0;
                while let Some(done) = others.recv_any(PATIENCE).unwrap() {
                    assert_eq!(kind(done.result), Some(ErrorKind::PeerDied));
                    ended += 1;
                }
                assert_eq!(ended, HELD - 1);
            })
            .join();
        }
    });
}
