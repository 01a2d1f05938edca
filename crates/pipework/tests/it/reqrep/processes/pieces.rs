//! A caller that waits in many short pieces learns of a death as soon as one long wait would: short
//! deadlines, timers, polling, and other calls in between.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{CallError, Client, ClientOptions, Reply, Segment, Ticket};
use pipework::{Deadline, ErrorKind};
use rustix::event::PollFlags;

use super::{
    assert_all_free, assert_prompt, assert_prompt_as_a_rule, holder, idle_server, kind, options, server,
    sleep_until_killed,
};
use crate::harness::{
    Child, PATIENCE, Random, alarms, alone, awaited, fork, ring_alarms, say, seed, shared, wait_for,
};

/// Ways to wait for a call, none of which ever waits for a whole slice.
#[derive(Clone, Copy, Debug)]
enum Way {
    Pieces(Duration),
    Polls,
    /// Polls another call first, each time.
    PollsOfTwo(Ticket),
    /// Makes other calls meanwhile, which are answered.
    BetweenCalls,
    /// A task, while another task makes calls.
    Task,
    /// An event loop whose descriptor also rings for other calls.
    Loop,
}

const MILLISECOND: Duration = Duration::from_millis(1);

impl Way {
    fn wait(self, client: &Client, ticket: Ticket) -> Result<Vec<u8>, CallError> {
        let bell = client.doorbell();
        loop {
            let reply = match self {
                Way::Pieces(time) => retried(client.recv(ticket, time).map(Some))?,
                Way::Polls => client.try_recv(ticket)?,
                Way::PollsOfTwo(other) => {
                    assert!(client.try_recv(other).unwrap().is_none());
                    client.try_recv(ticket)?
                }
                Way::BetweenCalls => {
                    client.call("other", PATIENCE).unwrap();
                    client.try_recv(ticket)?
                }
                Way::Task => return task(client, ticket),
                Way::Loop => looped(client, ticket, bell.as_ref().unwrap())?,
            };
            match reply {
                Some(reply) => return Ok(reply.into_vec()),
                None if matches!(self, Way::Pieces(_)) => {}
                None => thread::sleep(MILLISECOND),
            }
        }
    }
}

fn retried<T, E: Into<CallError>>(outcome: Result<Option<T>, E>) -> Result<Option<T>, CallError> {
    match outcome.map_err(Into::into) {
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => Ok(None),
        done => done,
    }
}

fn task(client: &Client, ticket: Ticket) -> Result<Vec<u8>, CallError> {
    let others = async {
        loop {
            client.call_async("other").await.unwrap();
            tokio::time::sleep(2 * MILLISECOND).await;
        }
    };
    let both = async {
        tokio::select! {
            reply = client.recv_async(ticket) => reply,
            () = others => unreachable!("it has no end"),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(both).map(|reply| reply.into_vec())
}

/// One turn of the loop, which also makes and receives another call.
fn looped(client: &Client, ticket: Ticket, bell: &OwnedFd) -> Result<Option<Reply>, CallError> {
    let mut other = Some(client.send("other", PATIENCE).unwrap());
    while let Some(open) = other {
        wait_for(bell, PollFlags::IN);
        match client.try_recv(ticket) {
            Ok(None) => other = client.try_recv(open).unwrap().is_none().then_some(open),
            end => return client.recv(open, PATIENCE).and(end),
        }
    }
    Ok(None)
}

/// The outcome of a call whose server died, and how long the caller waited for it.
struct Death {
    outcome: Result<Vec<u8>, CallError>,
    waited: Duration,
}

/// Sends a call that a process takes, starts to wait for it in another thread, and kills the
/// process.
fn die_with_a_call(segment: &Segment, client: &Client, way: Way, pause: Duration) -> Death {
    let marks = shared(2);
    let taken_by = holder(segment, &marks[0], &marks[1]);
    let ticket = client.send("a", PATIENCE).unwrap();
    awaited(&marks[0]);
    // Serves the other calls, and this one if it may be redelivered.
    let living = server(segment);
    let death = thread::scope(|scope| {
        let waiting = scope.spawn(|| way.wait(client, ticket));
        thread::sleep(pause);
        let killed = Instant::now();
        taken_by.kill();
        let outcome = waiting.join().unwrap();
        let waited = assert_prompt(killed);
        say(&format!("pieces: {way:?} {outcome:?} after {waited:.0?}"));
        Death { outcome, waited }
    });
    living.kill();
    death
}

#[test]
fn short_repeated_waits_learn_of_a_death_in_time() {
    alone(|| {
        let seed = seed();
        let mut random = Random::new(seed);
        let segment = options().slots(8).anonymous().unwrap();
        let client = segment.client().unwrap();
        let insistent = segment.client_with(&ClientOptions::new().redeliveries(1)).unwrap();
        let [(open, slow), (insistents, slower)] = [&client, &insistent].map(|client| {
            let marks = shared(2);
            let open = client.send("in work", PATIENCE).unwrap();
            let slow = holder(&segment, &marks[0], &marks[1]);
            awaited(&marks[0]);
            (open, slow)
        });
        let ways = [1000, 10_000, 60_000].map(|us| Way::Pieces(Duration::from_micros(us)));
        let others = [Way::Polls, Way::PollsOfTwo(open), Way::BetweenCalls, Way::Task, Way::Loop];
        let mut waits = Vec::new();
        let mut tell = |way| {
            let mut pause = || Duration::from_millis(random.below(120) as u64);
            let died = die_with_a_call(&segment, &client, way, pause());
            waits.push(died.waited);
            assert_eq!(kind(died.outcome), Some(ErrorKind::PeerDied), "{way:?}, PIPEWORK_SEED={seed}");
            let way = if let Way::PollsOfTwo(_) = way { Way::PollsOfTwo(insistents) } else { way };
            let died = die_with_a_call(&segment, &insistent, way, pause());
            waits.push(died.waited);
            assert_eq!(died.outcome, Ok(b"A".to_vec()), "{way:?}");
        };
        ways.into_iter().chain(others).for_each(&mut tell);
        ring_alarms();
        tell(Way::Pieces(PATIENCE));
        assert!(alarms() > 0);
        assert_prompt_as_a_rule(waits);
        assert_eq!(insistent.cancel(insistents), Ok(None));
        [slow, slower].into_iter().for_each(Child::kill);
        assert_eq!(kind(client.recv(open, PATIENCE)), Some(ErrorKind::PeerDied));
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn short_repeated_waits_get_no_server_in_time() {
    alone(|| {
        let segment = options().slots(2).anonymous().unwrap();
        let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
        let tell = |way: Way| {
            let idle = idle_server(&segment);
            let ticket = client.send("no server takes it", PATIENCE).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| kind(way.wait(&client, ticket)));
                thread::sleep(70 * MILLISECOND);
                let killed = Instant::now();
                idle.kill();
                assert_eq!(waiting.join().unwrap(), Some(ErrorKind::NoServer), "{way:?}");
                assert_prompt(killed);
            });
        };
        tell(Way::Pieces(MILLISECOND));
        tell(Way::Polls);
        ring_alarms();
        tell(Way::Pieces(PATIENCE));
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

/// A sender that polls for a slot learns of dead servers, and of dead clients as well.
#[test]
fn try_send_gets_a_dead_clients_slot_in_time() {
    alone(|| {
        let segment = options().slots(3).anonymous().unwrap();
        let client = segment.client().unwrap();
        let holder = segment.server().unwrap();
        for (pieces, looks_first) in [(false, false), (false, true), (true, true)] {
            let ticket = client.send("in work", PATIENCE).unwrap();
            let request = holder.recv(PATIENCE).unwrap();
            let sent = &shared(1)[0];
            let victim = fork(|| {
                let client = segment.client().unwrap();
                let _tickets = ["a", "b"].map(|text| client.send(text, PATIENCE).unwrap());
                sent.store(1, SeqCst);
                sleep_until_killed();
            });
            awaited(sent);
            assert!(client.try_send("no slot is free").unwrap().is_none());
            let killed = Instant::now();
            victim.kill();
            let send = || match pieces {
                false => client.try_send("c").unwrap(),
                true => retried(client.send("c", MILLISECOND).map(Some)).unwrap(),
            };
            let second = loop {
                assert!(!looks_first || client.try_recv(ticket).unwrap().is_none());
                if let Some(second) = send() {
                    break second;
                }
                assert_prompt(killed);
                thread::sleep(MILLISECOND);
            };
            assert!(client.cancel(second).unwrap().is_none() && request.reply("b").unwrap());
            assert!(client.recv(ticket, PATIENCE).is_ok());
            // Removes the entry of the cancelled call. The recovery of the dead client may still be in
            // progress in another thread.
            let left = loop {
                match holder.recv(Deadline::now()) {
                    Ok(request) => assert_eq!(*request, *b"b"),
                    Err(error) => break error.kind(),
                }
            };
            assert_eq!(left, ErrorKind::TimedOut);
        }
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn send_that_waits_for_a_slot_gets_no_server_in_time() {
    alone(|| {
        let segment = options().slots(1).anonymous().unwrap();
        let client = segment.client_with(&ClientOptions::new().needs_server(true)).unwrap();
        let idle = idle_server(&segment);
        let other = segment.client().unwrap();
        let ticket = other.send("the only slot", PATIENCE).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| kind(client.send("a", PATIENCE)));
            thread::sleep(70 * MILLISECOND);
            let killed = Instant::now();
            idle.kill();
            assert_eq!(waiting.join().unwrap(), Some(ErrorKind::NoServer));
            assert_prompt(killed);
        });
        assert!(other.cancel(ticket).unwrap().is_none());
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}
