//! Processes that are stopped or killed: whom others wait for, and for how long.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::broadcast::{Options, Segment, SubscriberOptions};

use crate::harness::{Child, PATIENCE, PROMPT, alone, asleep, awaited, fork, say, shared, tolerance};

const MESSAGES: u32 = 4;

fn small() -> Segment {
    let options = Options::new().messages(MESSAGES).message_bytes(64).members(8);
    options.spin(Duration::ZERO).anonymous().unwrap()
}

fn all() -> SubscriberOptions {
    SubscriberOptions::new().must_see_all(true)
}

/// A process with a subscriber that must see all and never receives.
fn idle(segment: &Segment) -> Child {
    let ready = &shared(1)[0];
    let child = fork(|| {
        let _subscriber = segment.subscriber_with(&all()).unwrap();
        ready.store(1, SeqCst);
        loop {
            thread::sleep(PATIENCE);
        }
    });
    awaited(ready);
    child
}

/// Checks that something that a death sets free comes in the promised time.
fn assert_prompt(killed: Instant) -> Duration {
    let took = killed.elapsed();
    assert!(took < PROMPT + tolerance(), "it has taken {took:?}");
    took
}

#[test]
fn stopped_subscriber_that_must_see_all_holds_publishers_until_their_deadline() {
    alone(|| {
        let segment = small();
        let publisher = segment.publisher().unwrap();
        let mut other = segment.subscriber_with(&all()).unwrap();
        let child = idle(&segment);
        child.stop();
        for _ in 0..MESSAGES {
            publisher.publish("more", PATIENCE).unwrap();
            other.recv(PATIENCE).unwrap();
        }
        for deadline in [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(300)] {
            let began = Instant::now();
            let late = publisher.publish("too late", deadline).unwrap_err();
            assert_eq!((late.kind(), late.process()), (ErrorKind::TimedOut, Some(child.pid() as u32)));
            assert!(began.elapsed() >= deadline);
            assert!(began.elapsed() < deadline + tolerance());
        }
        assert_eq!(segment.newest(), u64::from(MESSAGES), "no number was taken");
        assert_eq!(segment.recover(), Ok(0), "it is alive");
        let members = segment.members().unwrap();
        let slowest = members.iter().max_by_key(|member| member.lag).unwrap();
        assert_eq!((slowest.pid, slowest.lag), (child.pid() as u32, u64::from(MESSAGES)));
        child.kill();
        assert_eq!(publisher.publish("more", PATIENCE), Ok(u64::from(MESSAGES) + 1));
    });
}

#[test]
fn publishers_go_on_in_time_after_a_subscriber_that_must_see_all_is_killed() {
    alone(|| {
        let segment = small();
        let publisher = segment.publisher().unwrap();
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let child = idle(&segment);
            for _ in 0..MESSAGES {
                publisher.publish("more", PATIENCE).unwrap();
            }
            thread::scope(|scope| {
                let waiting = asleep(scope, || publisher.publish("awaited", PATIENCE));
                let killed = Instant::now();
                child.kill();
                waiting.join().unwrap().unwrap();
                longest = longest.max(assert_prompt(killed));
            });
        }
        // The last one has no heir yet.
        segment.recover().unwrap();
        assert_eq!(segment.stats().dead_members, 20);
        say(&format!("broadcast: a subscriber's death sets publishers free within {longest:.0?}"));
    });
}

#[test]
fn subscriber_that_may_lag_is_stopped_and_holds_up_nobody() {
    alone(|| {
        let segment = small();
        let (publisher, ready) = (segment.publisher().unwrap(), &shared(1)[0]);
        let child = fork(|| {
            let mut subscriber = segment.subscriber().unwrap();
            ready.store(1, SeqCst);
            while subscriber.recv(PATIENCE).map_or(true, |received| *received != *b"end") {}
        });
        awaited(ready);
        child.stop();
        for number in 1..1000 {
            assert_eq!(publisher.try_publish("more"), Ok(Some(number)));
        }
        publisher.publish("end", PATIENCE).unwrap();
        child.resume();
        child.join();
    });
}

/// Two subscribers that must see all are behind, and the error names the slowest.
#[test]
fn error_names_the_process_of_the_slowest_subscriber() {
    alone(|| {
        let segment = small();
        let publisher = segment.publisher().unwrap();
        let slowest = idle(&segment);
        publisher.publish("between", PATIENCE).unwrap();
        let slower = idle(&segment);
        for _ in 1..MESSAGES {
            publisher.publish("more", PATIENCE).unwrap();
        }
        let late = publisher.publish("too late", Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.process(), Some(slowest.pid() as u32));
        slowest.kill();
        publisher.publish("more", PATIENCE).unwrap();
        let late = publisher.publish("too late", Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.process(), Some(slower.pid() as u32));
        slower.kill();
        publisher.publish("more", PATIENCE).unwrap();
    });
}

/// A publisher whose own process is stopped after a publication holds up nobody.
#[test]
fn publisher_that_is_stopped_between_messages_holds_up_nobody() {
    alone(|| {
        let segment = small();
        let (publisher, ready) = (segment.publisher().unwrap(), &shared(1)[0]);
        let mut subscriber = segment.subscriber_with(&all()).unwrap();
        let child = fork(|| {
            segment.publisher().unwrap().publish("from the child", PATIENCE).unwrap();
            ready.store(1, SeqCst);
            loop {
                thread::sleep(PATIENCE);
            }
        });
        awaited(ready);
        child.stop();
        for _ in 0..100 {
            publisher.publish("more", PATIENCE).unwrap();
            subscriber.recv(PATIENCE).unwrap();
        }
        child.kill();
    });
}

#[cfg(target_arch = "x86_64")]
mod in_the_middle {
    use super::*;
    use crate::harness::left_out;
    use crate::harness::tracee::{Ran, Tracee, is_permitted, mark, trace};

    /// A publisher that has stopped while it wrote a message.
    fn stopped(segment: &Segment) -> Option<Tracee> {
        if !is_permitted() {
            left_out("broadcast waits", "processes cannot be traced here");
            return None;
        }
        let writing = trace(|| {
            let publisher = segment.publisher().unwrap();
            mark();
            publisher.publish("in the middle", PATIENCE).unwrap();
        });
        while segment.audit().unwrap().writing == 0 {
            assert_eq!(writing.step(), Ran::Stopped);
        }
        Some(writing)
    }

    #[test]
    fn publisher_that_stops_in_the_middle_holds_up_subscribers_there_and_a_full_ring() {
        alone(|| {
            let segment = small();
            let publisher = segment.publisher().unwrap();
            let mut subscribers = [false, true].map(|sees_all| {
                segment.subscriber_with(&SubscriberOptions::new().must_see_all(sees_all)).unwrap()
            });
            let Some(stopped) = stopped(&segment) else { return };
            for _ in 1..MESSAGES {
                publisher.try_publish("behind").unwrap().expect("there is room");
            }
            for subscriber in &mut subscribers {
                let late = subscriber.recv(Duration::from_millis(100)).unwrap_err();
                assert_eq!(late.kind(), ErrorKind::TimedOut);
            }
            let [_, sees_all] = subscribers;
            // Otherwise publishers wait for it.
            drop(sees_all);
            let late = publisher.publish("too late", Duration::from_millis(100)).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            let pid = late.process().expect("a process");
            assert_ne!(pid, std::process::id());
            assert_eq!(segment.recover(), Ok(0), "it is alive");
            stopped.finish();
            let [mut lags, _] = [false, true].map(|_| segment.subscriber().unwrap());
            publisher.publish("more", PATIENCE).unwrap();
            assert_eq!(lags.recv(PATIENCE).unwrap().number(), u64::from(MESSAGES) + 1);
        });
    }

    #[test]
    fn subscribers_pass_over_in_time_after_a_publisher_is_killed_in_the_middle() {
        alone(|| {
            let segment = small();
            let publisher = segment.publisher().unwrap();
            let mut longest = Duration::ZERO;
            for round in 0..10 {
                let mut subscriber =
                    segment.subscriber_with(&SubscriberOptions::new().must_see_all(round % 2 == 0)).unwrap();
                let Some(stopped) = stopped(&segment) else { return };
                publisher.publish("behind", PATIENCE).unwrap();
                thread::scope(|scope| {
                    let waiting = asleep(scope, || subscriber.recv(PATIENCE).unwrap().into_vec());
                    let killed = Instant::now();
                    stopped.kill();
                    assert_eq!(waiting.join().unwrap(), b"behind");
                    longest = longest.max(assert_prompt(killed));
                });
            }
            assert_eq!(segment.stats().skipped, 10);
            say(&format!("broadcast: a publisher's death is noticed within {longest:.0?}"));
        });
    }
}
