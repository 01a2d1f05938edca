//! Victims that recover the calls and slots of dead members.

use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::reqrep::{Client, ClientOptions, Request, Segment, Server, Stream, Ticket};

use super::calling::{answer, answer_all};
use super::serving::{answered, outcome, outcome_with};
use super::{SOON, assert_whole, options, small};
use crate::harness::PATIENCE;
use crate::harness::fate::Fate;
use crate::harness::tracee::{Tracee, mark, trace};

pub(super) fn recover(fate: &Fate) {
    let segment = Living::segment();
    let living = Living::among_the_dead(&segment);
    let victim = fate.victim(&segment, || {
        mark();
        assert_eq!(segment.recover(), Ok(Living::DEAD));
        mark();
    });
    let died = victim.die();
    living.get_on(fate, died);
    assert_whole(&segment);
}

/// As `recover`, with streams, and with requests that no client waits for.
pub(super) fn recover_streams(fate: &Fate) {
    let segment = options(5).members(12).anonymous().unwrap();
    let living = Giving::among_the_dead(&segment);
    let victim = fate.victim(&segment, || {
        mark();
        assert_eq!(segment.recover(), Ok(Giving::DEAD));
        mark();
    });
    let died = victim.die();
    living.get_on(fate, died);
    assert_whole(&segment);
}

/// The victim is a server that finds its client dead; a survivor finds it dead as well.
pub(super) fn wait_for_a_client(fate: &Fate) {
    let segment = small(2);
    let server = segment.server().unwrap();
    let dead = streamer(&segment, 2);
    let victim = fate.victim(&segment, || {
        let server = segment.server().unwrap();
        let mut request = server.try_recv().unwrap().unwrap();
        assert_eq!(request.part("part", SOON), Ok(true));
        mark();
        assert_eq!(request.part("next", SOON), Ok(false));
        mark();
    });
    let mut request = server.try_recv().unwrap().unwrap();
    assert_eq!(request.part("part", PATIENCE), Ok(true));
    dead.kill();
    let died = victim.die();
    assert_eq!(request.part("next", PATIENCE), Ok(false));
    fate.got_on(died);
    drop(request);
    assert_whole(&segment);
}

/// The victim finds its server dead; a survivor finds it dead as well.
pub(super) fn wait(fate: &Fate) {
    let segment = small(2);
    let client = segment.client().unwrap();
    let victim = fate.victim(&segment, || {
        let client = segment.client().unwrap();
        let ticket = client.try_send("ping").unwrap().unwrap();
        mark();
        let error = client.recv(ticket, SOON).unwrap_err();
        mark();
        assert_eq!(error.kind(), ErrorKind::PeerDied);
    });
    let ticket = client.try_send("first").unwrap().unwrap();
    taker(&segment, 2).kill();
    let died = victim.die();
    assert_eq!(outcome(&client, ticket), Err(ErrorKind::PeerDied));
    fate.got_on(died);
    assert_whole(&segment);
}

/// As `wait`, but the requests may go to another server.
pub(super) fn wait_and_redeliver(fate: &Fate) {
    let segment = small(2);
    let (server, client) =
        (segment.server().unwrap(), segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap());
    let victim = fate.victim(&segment, || {
        let client = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
        let ticket = client.try_send("ping").unwrap().unwrap();
        mark();
        // Ends after the first slice and before the second.
        let error = client.recv(ticket, Duration::from_millis(80)).unwrap_err();
        mark();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
    let ticket = client.try_send("first").unwrap().unwrap();
    taker(&segment, 2).kill();
    let died = victim.die();
    assert_eq!(outcome_with(&server, fate, died, &client, ticket), answered("FIRST"));
    assert_whole(&segment);
}

// ---------------------------------------------------------------- survivors and dead members

/// Two clients and a server that had calls with six members that died, two of them servers.
pub(super) struct Living {
    client: Client,
    /// A client that allows a redelivery.
    insistent: Client,
    server: Server,
    /// The call whose server died with its request.
    lost: Ticket,
    /// The calls whose servers died, and whose requests another server may take.
    redeliverable: [Ticket; 2],
    /// The request of a dead client.
    request: Request<'static>,
}

impl Living {
    pub(super) const DEAD: usize = 6;

    /// Has space for these members, for a victim, and for the members that check the segment.
    pub(super) fn segment() -> Segment {
        options(9).members(13).anonymous().unwrap()
    }

    /// Leaves calls of dead members in every state that outlives them, one in each of the nine
    /// slots.
    pub(super) fn among_the_dead(segment: &Segment) -> Living {
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let insistent = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
        let send = |request| client.try_send(request).unwrap().unwrap();
        let send_twice = |request| insistent.try_send(request).unwrap().unwrap();
        let audit = || segment.audit().unwrap();

        let (lost, again, dropped) = (send("lost"), send_twice("again"), send("dropped"));
        let mut dead = vec![taker(segment, 3)];
        assert_eq!(client.cancel(dropped), Ok(None));

        dead.push(caller(segment, &["done", "taken"]));
        assert_eq!(answer(server.try_recv().unwrap().unwrap()), b"done");
        let request = server.try_recv().unwrap().unwrap().into_owned();

        let claimed = send_twice("claimed");
        dead.push(caller(segment, &["sent"]));
        dead.push(caught(caller(segment, &[]), || audit().filling == 1));
        dead.push(caught(caller(segment, &[]), || audit().unqueued == 1));
        // The server dies while its entry is still in the ring.
        dead.push(caught(taker(segment, 0), || audit().taken == 4));

        assert_eq!(dead.len(), Living::DEAD);
        dead.into_iter().for_each(Tracee::kill);
        Living { client, insistent, server, lost, redeliverable: [again, claimed], request }
    }

    /// Checks that all members go on after a victim has died as well.
    pub(super) fn get_on(self, fate: &Fate, died: Instant) {
        let Living { client, insistent, server, lost, redeliverable: [again, claimed], request } = self;
        assert_eq!(outcome(&client, lost), Err(ErrorKind::PeerDied));
        fate.got_on(died);
        // They start to wait only now.
        assert_eq!(outcome_with(&server, fate, Instant::now(), &insistent, again), answered("AGAIN"));
        assert_eq!(outcome_with(&server, fate, Instant::now(), &insistent, claimed), answered("CLAIMED"));
        assert_eq!(&*request, b"taken");
        // The death of its client may or may not have been noticed.
        let _was_wanted = request.reply("TAKEN").expect("it is this server's");
        answer_all(&server);
    }
}

/// A client and a server in the middle of calls with three processes that died, one of them a server.
struct Giving {
    server: Server,
    /// The stream whose server died after it had given a part.
    given: Stream,
    /// The request of a dead client, which has not taken the first part of the reply.
    untaken: Request<'static>,
}

impl Giving {
    const DEAD: usize = 3;

    /// Leaves a call in each of five slots.
    fn among_the_dead(segment: &Segment) -> Giving {
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let again = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
        let forget = |client: &Client, request| {
            let ticket = client.try_send(request).unwrap().unwrap();
            client.forget(ticket).unwrap();
        };
        let given = client.stream("given", PATIENCE).unwrap();
        forget(&client, "lost");
        forget(&again, "once more");
        let giver = trace(|| {
            let server = segment.server().unwrap();
            let mut given = server.try_recv().unwrap().unwrap();
            assert_eq!(given.part("part", SOON), Ok(true));
            let forgotten = server.drain(2).unwrap();
            mark();
            drop((given, forgotten));
        });

        let streamer = streamer(segment, 1);
        let mut untaken = server.try_recv().unwrap().unwrap().into_owned();
        assert_eq!(untaken.part("part", SOON), Ok(true));

        // No member joins from here on: it would take the number of a dead member and recover it.
        forget(&again, "again");
        taker(segment, 1).kill();
        // The recovering process dies before it has pushed the request.
        let recoverer = trace(|| {
            mark();
            segment.recover().unwrap();
            mark();
        });
        caught(recoverer, || segment.audit().unwrap().unqueued == 1).kill();

        giver.kill();
        streamer.kill();
        Giving { server, given, untaken }
    }

    /// Checks that all members go on after a victim has died as well.
    fn get_on(self, fate: &Fate, died: Instant) {
        let Giving { server, mut given, mut untaken } = self;
        let ended = match given.next_part(PATIENCE) {
            Ok(Some(part)) if *part == *b"part" => given.next_part(PATIENCE),
            ended => ended,
        };
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::PeerDied));
        fate.got_on(died);
        let began = Instant::now();
        assert_eq!(untaken.part("next", PATIENCE), Ok(false));
        fate.got_on(began);
        // They come with a tick: each member notices its own loss before the rest is recovered.
        let mut requests = [(); 2].map(|()| answer(server.recv(PATIENCE).unwrap()));
        requests.sort();
        assert_eq!(requests, [&b"again"[..], b"once more"]);
        assert!(server.try_recv().unwrap().is_none(), "the other was lost with its server");
    }
}

/// A client that has sent these requests and is about to send one more.
fn caller(segment: &Segment, requests: &[&str]) -> Tracee {
    trace(|| {
        let client = segment.client().unwrap();
        for request in requests {
            client.try_send(*request).unwrap().unwrap();
        }
        mark();
        client.try_send("ping").unwrap().unwrap();
        mark();
    })
}

/// A client that has begun that many streams.
fn streamer(segment: &Segment, streams: usize) -> Tracee {
    trace(|| {
        let client = segment.client().unwrap();
        let streams: Vec<_> = (0..streams).map(|_| client.stream("ping", SOON).unwrap()).collect();
        mark();
        drop(streams);
        mark();
    })
}

/// A server that has taken that many requests, and is about to take one more.
fn taker(segment: &Segment, requests: usize) -> Tracee {
    trace(|| {
        let server = segment.server().unwrap();
        let taken = server.drain(requests).unwrap();
        assert_eq!(taken.len(), requests);
        mark();
        let one_more = server.try_recv().unwrap().unwrap();
        mark();
        drop((taken, one_more));
    })
}

/// Steps the process until `is_there` holds.
pub(super) fn caught(tracee: Tracee, is_there: impl Fn() -> bool) -> Tracee {
    while !is_there() {
        assert!(!tracee.is_at_mark(), "it went past the point");
        tracee.step();
    }
    tracee
}
