//! A server dies with very many requests: every caller learns of it at its first tick, in whichever
//! slot its own call is.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Client, Options, Ticket};
use pipework::{Deadline, ErrorKind};
use rustix::event::PollFlags;

use super::{kind, sleep_until_killed};
use crate::harness::{PATIENCE, alone_for, awaited, block_on, fork, say, shared, wait_for};

const HELD: u32 = 60_000;

/// Longer than the time between two ticks.
const A_TICK: Duration = Duration::from_millis(60);

/// Sends a request. The result receives the reply, with one look where the method does not wait by
/// itself, and gives the error.
type Start = fn(Client) -> Box<dyn FnOnce() -> Option<ErrorKind>>;

const CALLS: [(&str, Start); 7] = [
    ("recv", |client| {
        let ticket = sent(&client);
        Box::new(move || kind(client.recv(ticket, Deadline::now())))
    }),
    ("try_recv", |client| {
        let ticket = sent(&client);
        Box::new(move || kind(client.try_recv(ticket)))
    }),
    ("recv_any", |client| {
        let ticket = sent(&client);
        Box::new(move || match client.recv_any(Deadline::now()) {
            Ok(Some(done)) if done.ticket == ticket => kind(done.result),
            other => panic!("{other:?}"),
        })
    }),
    ("recv_async", |client| {
        let ticket = sent(&client);
        Box::new(move || kind(block_on(client.recv_async(ticket))))
    }),
    ("a doorbell", |client| {
        let (doorbell, ticket) = (client.doorbell().unwrap(), sent(&client));
        Box::new(move || {
            wait_for(&doorbell, PollFlags::IN);
            kind(client.recv(ticket, Deadline::now()))
        })
    }),
    ("a stream", |client| {
        let mut stream = client.stream("a", PATIENCE).unwrap();
        Box::new(move || kind(stream.next_part(Deadline::now())))
    }),
    ("call", |client| {
        let caller = thread::spawn(move || kind(client.call("a", Deadline::NEVER)));
        Box::new(|| caller.join().unwrap())
    }),
];

fn sent(client: &Client) -> Ticket {
    client.try_send("a").unwrap().expect("there is a slot")
}

#[test]
fn caller_learns_of_a_death_at_its_first_tick_among_many_calls() {
    alone_for(4 * PATIENCE, || {
        for (name, start) in CALLS {
            fork(|| {
                let segment = Options::new().slots(HELD).request_bytes(8).reply_bytes(8).anonymous().unwrap();
                let others = segment.client().unwrap();
                // Its call gets the last slot, which is the only free one.
                let in_last = |ticket: &Ticket| ticket.to_bits() & 0xFF_FFFF == u64::from(HELD) - 1;
                let tickets: Vec<Ticket> = (0..HELD).map(|_| sent(&others)).collect();
                assert_eq!(others.cancel(*tickets.iter().find(|ticket| in_last(ticket)).unwrap()), Ok(None));
                let look = start(segment.client().unwrap());
                let has_all = &shared(1)[0];
                let server = fork(|| {
                    let server = segment.server().unwrap();
                    let requests: Vec<_> = (0..HELD).map(|_| server.recv(PATIENCE).unwrap()).collect();
                    has_all.store(requests.len() as u64, SeqCst);
                    sleep_until_killed();
                });
                assert_eq!(awaited(has_all), u64::from(HELD));
                assert!(segment.calls().any(|call| in_last(&call.ticket)));
                server.kill();
                let killed = Instant::now();
                thread::sleep(A_TICK);
                assert_eq!(look(), Some(ErrorKind::PeerDied), "{name}");
                let seen = killed.elapsed();
                let mut ended = 0;
                while let Some(done) = others.recv_any(Deadline::now()).unwrap() {
                    assert_eq!(kind(done.result), Some(ErrorKind::PeerDied));
                    ended += 1;
                }
                assert_eq!(ended, HELD - 1, "{name}");
                say(&format!(
                    "processes: {name} in the last of {HELD} slots after {seen:.0?}, all after {:.0?}",
                    killed.elapsed()
                ));
            })
            .join();
        }
    });
}
