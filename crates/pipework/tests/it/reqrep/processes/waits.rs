//! Waiting: wake-ups that are lost with a killed process, the cost of idling, signals, and calls
//! that are cancelled while their reply comes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::Segment;
use pipework::{Deadline, Error, ErrorKind};

use super::{assert_all_free, assert_answers, assert_prompt, kind, options, server, sleep_until_killed};
use crate::harness::{
    Child, PATIENCE, Random, alarms, alone, alone_for, asleep, be_patient, cost, fork, ring_alarms, say,
    seed, setting, shared, use_one_cpu,
};

// ---------------------------------------------------------------- wake-ups

/// Trials unless PIPEWORK_TRIALS is set. Three processes run them at the same time.
const TRIALS: u64 = 300;

/// Two servers wait for a request. The kernel wakes the first one, which is killed before it runs.
/// The other gets the request.
#[test]
fn request_with_a_lost_wake_up_is_taken_by_another_server() {
    fn round(segment: &Segment) -> Option<Duration> {
        let victim = fork(|| {
            be_patient();
            let server = segment.server().unwrap();
            let _request = server.recv(Deadline::NEVER);
            sleep_until_killed();
        });
        victim.settle('S');
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        thread::scope(|scope| {
            let other = asleep(scope, || server.recv(PATIENCE).map(|request| request.reply("b").is_ok()));
            let ticket = client.send("a", PATIENCE).unwrap();
            let victim = victim.doom();
            let killed = Instant::now();
            let outcome = kind(client.recv(ticket, PATIENCE));
            let waited = assert_prompt(killed);
            victim.bury();
            if outcome.is_some() {
                assert_eq!(outcome, Some(ErrorKind::PeerDied), "the victim was faster and took it");
                client.send("for the other", PATIENCE).unwrap();
            }
            assert_eq!(other.join().unwrap(), Ok(true));
            outcome.is_none().then_some(waited)
        })
    }
    alone_for(patience(), || lose_wake_ups("a request", round));
}

/// The same with two clients that wait for a slot.
#[test]
fn slot_with_a_lost_wake_up_is_taken_by_another_client() {
    fn round(segment: &Segment) -> Option<Duration> {
        let client = segment.client().unwrap();
        let ticket = client.send("the only slot", PATIENCE).unwrap();
        let victim = fork(|| {
            be_patient();
            let client = segment.client().unwrap();
            let _ticket = client.send("a", PATIENCE);
            sleep_until_killed();
        });
        victim.settle('S');
        let other = segment.client().unwrap();
        thread::scope(|scope| {
            let other = asleep(scope, || kind(other.send("b", PATIENCE)));
            assert_eq!(client.cancel(ticket), Ok(None));
            let victim = victim.doom();
            let killed = Instant::now();
            assert_eq!(other.join().unwrap(), None);
            let waited = assert_prompt(killed);
            victim.bury();
            Some(waited)
        })
    }
    alone_for(patience(), || lose_wake_ups("a slot", round));
}

fn trials() -> u64 {
    setting("PIPEWORK_TRIALS").unwrap_or(TRIALS)
}

fn patience() -> Duration {
    PATIENCE * (1 + trials() / TRIALS) as u32
}

/// A round returns how long the other waited, or `None` if the victim ran before it was killed.
fn lose_wake_ups(what: &str, round: fn(&Segment) -> Option<Duration>) {
    // With one CPU, the woken process does not run before this one sleeps.
    use_one_cpu();
    let rounds = trials() / 3;
    let counts = shared(2);
    let eaters = [(); 3].map(|()| {
        fork(|| {
            for _ in 0..rounds {
                let segment = options().slots(1).spin(Duration::ZERO).anonymous().unwrap();
                let waited = round(&segment).unwrap_or_default();
                counts[0].fetch_max(waited.as_micros() as u64, SeqCst);
                // A wake-up takes a fraction of this; without one, the waiter sleeps for the rest
                // of a slice.
                counts[1].fetch_add(u64::from(waited > Duration::from_millis(10)), SeqCst);
                segment.recover().unwrap();
                assert_all_free(&segment);
            }
        })
    });
    eaters.into_iter().for_each(Child::join);
    let [longest_us, eaten] = [0, 1].map(|n| counts[n].load(SeqCst));
    let (all, longest) = (3 * rounds, Duration::from_micros(longest_us));
    say(&format!("processes: {eaten} of {all} wake-ups for {what} lost, the longest wait {longest:.0?}"));
    assert!(eaten > 0, "no wake-up was lost");
}

/// No process dies, so each call wakes its waiter, and none waits for the end of a slice. With one
/// slot and no spinning, some process always parks.
#[test]
fn no_wake_up_is_lost_while_all_members_live() {
    const CALLS: usize = 1000;
    const SLICE: Duration = Duration::from_millis(50);
    alone(|| {
        let segment = options().slots(1).spin(Duration::ZERO).anonymous().unwrap();
        let (server, late) = (server(&segment), &shared(1)[0]);
        let clients = [(); 3].map(|()| {
            fork(|| {
                let client = segment.client().unwrap();
                for _ in 0..CALLS {
                    let began = Instant::now();
                    assert_answers(&client, "next");
                    late.fetch_add(u64::from(began.elapsed() >= SLICE), SeqCst);
                }
            })
        });
        clients.into_iter().for_each(Child::join);
        server.kill();
        let late = late.load(SeqCst);
        say(&format!("processes: {late} of {} calls took as long as a slice", 3 * CALLS));
        // A busy machine makes some calls late.
        assert!(late < CALLS as u64 / 33, "{late} calls took as long as a slice");
    });
}

// ---------------------------------------------------------------- idling

/// The CPU time that ten waiters may use in ten seconds. In CI they wait less, because each wake-up
/// costs more there: other processes have used the caches.
const IDLE_CPU: Duration = Duration::from_millis(10);
/// How many times each may wake up.
const WAKE_UPS_PER_S: u64 = 4;

#[test]
fn parked_waiters_use_almost_no_cpu_time() {
    let is_storm = setting("PIPEWORK_KILLS").is_some_and(|kills| kills > 10_000);
    let secs = if is_storm { 10 } else { 3 };
    alone_for(PATIENCE + Duration::from_secs(secs), || {
        let segment = options().slots(5).members(16).anonymous().unwrap();
        let (costs, holder) = (shared(20), segment.server().unwrap());
        let clients: Vec<Child> = (0..5)
            .map(|n| {
                fork(|| {
                    let client = segment.client().unwrap();
                    let ticket = client.send("never answered", PATIENCE).unwrap();
                    let waiting = || {
                        assert_eq!(
                            kind(client.recv(ticket, Duration::from_secs(secs))),
                            Some(ErrorKind::TimedOut)
                        )
                    };
                    measure(&costs[2 * n..], waiting);
                })
            })
            .collect();
        let requests: Vec<_> = (0..5).map(|_| holder.recv(PATIENCE).unwrap()).collect();
        let servers: Vec<Child> = (5..10)
            .map(|n| {
                fork(|| {
                    let server = segment.server().unwrap();
                    let waiting = || {
                        assert_eq!(kind(server.recv(Duration::from_secs(secs))), Some(ErrorKind::TimedOut))
                    };
                    measure(&costs[2 * n..], waiting);
                })
            })
            .collect();
        clients.into_iter().chain(servers).for_each(Child::join);
        drop(requests);
        let sum = |nth: usize| costs.iter().skip(nth).step_by(2).map(|cost| cost.load(SeqCst)).sum::<u64>();
        let (cpu, sleeps) = (Duration::from_nanos(sum(0)), sum(1));
        say(&format!(
            "processes: ten that wait for {secs} s cost {cpu:.1?} of CPU time and sleep {sleeps} times"
        ));
        // The first slices are shorter, and a waiter may sleep for a lock or a page.
        assert!(sleeps <= 10 * (WAKE_UPS_PER_S * secs + 6), "{sleeps} times");
        assert!(cpu < IDLE_CPU, "{cpu:?}");
    });
}

fn measure(costs: &[AtomicU64], waiting: impl FnOnce()) {
    let (cpu, sleeps) = cost();
    waiting();
    let after = cost();
    costs[0].store((after.0 - cpu).as_nanos() as u64, SeqCst);
    costs[1].store(after.1 - sleeps, SeqCst);
}

// ---------------------------------------------------------------- signals

/// An alarm every millisecond on both sides, with a handler that does not restart system calls.
#[test]
fn signals_interrupt_every_wait_without_losing_a_call() {
    const CALLS: usize = 300;
    const END: &str = "end";
    alone(|| {
        let segment = options().slots(2).anonymous().unwrap();
        let server = fork(|| {
            ring_alarms();
            let server = segment.server().unwrap();
            let (mut interrupted, mut is_over) = (0, false);
            while !is_over {
                let request = insist(&mut interrupted, || server.recv(Deadline::NEVER));
                is_over = *request == *END.as_bytes();
                // Gives an alarm time to hit the waiting client.
                thread::sleep(Duration::from_micros(500));
                let answer = request.to_vec();
                request.reply(&answer).unwrap();
            }
            say(&format!("signals: {} alarms, {interrupted} waits of a server interrupted", alarms()));
            assert!(interrupted > 0);
        });
        let client = fork(|| {
            let client = segment.client().unwrap();
            ring_alarms();
            let (mut sends, mut waits, mut calls) = (0, 0, 0);
            for n in 0..CALLS {
                // Now and then, gives an alarm time to hit the waiting server.
                thread::sleep(Duration::from_millis(if n % 30 == 0 { 3 } else { 0 }));
                let texts = [n.to_string(), format!("{n} again")];
                // The server may still have the calls that were cancelled in the last turn.
                let tickets = texts.each_ref().map(|text| insist(&mut sends, || client.send(text, PATIENCE)));
                let third = client.send("both slots are taken", Deadline::NEVER);
                assert_eq!(kind(third), Some(ErrorKind::Interrupted));
                for (ticket, text) in tickets.into_iter().zip(&texts) {
                    let reply = insist(&mut waits, || client.recv(ticket, Deadline::NEVER));
                    assert_eq!(*reply, *text.as_bytes(), "the ticket stays good");
                }
                match client.call("called", PATIENCE) {
                    Ok(reply) => assert_eq!(*reply, *b"called"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
                        assert_eq!(client.pending(), 0, "the call is cancelled");
                        calls += 1;
                    }
                }
            }
            let last = insist(&mut sends, || client.send(END, PATIENCE));
            assert_eq!(*insist(&mut waits, || client.recv(last, PATIENCE)), *END.as_bytes());
            let alarms = alarms();
            say(&format!(
                "signals: {alarms} alarms, {sends}, {waits}, {calls} sends, waits and calls interrupted"
            ));
            assert!(waits > 0 && calls > 0);
        });
        client.join();
        server.join();
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

/// Repeats the call until no signal interrupts it; counts the interruptions.
fn insist<T, E: Into<Error>>(interrupted: &mut u32, mut call: impl FnMut() -> Result<T, E>) -> T {
    loop {
        match call().map_err(Into::into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => *interrupted += 1,
            done => return done.expect("nothing but signals"),
        }
    }
}

// ---------------------------------------------------------------- cancelled while the reply comes

#[test]
fn cancel_and_reply_agree_on_the_outcome() {
    const CALLS: usize = 4000;
    alone(|| {
        let seed = seed();
        let segment = options().anonymous().unwrap();
        // The result of each reply: 1 if the call was cancelled, 2 if the client got it.
        let replied = shared(CALLS + 1);
        let server = fork(|| {
            let server = segment.server().unwrap();
            loop {
                let request = server.recv(Deadline::NEVER).unwrap();
                let n = number(&request) as usize;
                if n == CALLS {
                    request.reply(&0i64.to_ne_bytes()).unwrap();
                    break;
                }
                // Some calls are still being served when they are cancelled.
                work(Duration::from_micros(n as u64 % 4 * 50));
                replied[n].store(1 + u64::from(request.reply(&(-(n as i64)).to_ne_bytes()).unwrap()), SeqCst);
            }
        });
        let client = segment.client().unwrap();
        let mut random = Random::new(seed);
        let cancelled: Vec<bool> = (0..CALLS)
            .map(|n| {
                let ticket = client.send(&(n as i64).to_ne_bytes(), PATIENCE).unwrap();
                work(Duration::from_micros(random.below(200) as u64));
                let last = client.cancel(ticket).unwrap();
                assert_eq!(kind(client.recv(ticket, Deadline::now())), Some(ErrorKind::Stale));
                assert!(last.as_ref().is_none_or(|reply| number(reply) == -(n as i64)), "{last:?}");
                last.is_none()
            })
            .collect();
        assert_eq!(client.call(&(CALLS as i64).to_ne_bytes(), PATIENCE).map(|reply| number(&reply)), Ok(0));
        server.join();
        let mut ends = [0; 3];
        for (n, cancelled) in cancelled.into_iter().enumerate() {
            let replied = replied[n].load(SeqCst);
            assert_eq!(cancelled, replied < 2, "call {n}, PIPEWORK_SEED={seed}: both ends agree");
            ends[replied as usize] += 1;
        }
        say(&format!(
            "processes: of {CALLS} calls {} were cancelled untaken, {} in work, {} too late",
            ends[0], ends[1], ends[2]
        ));
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// Spins, for times that are too short to sleep.
fn work(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}
