//! Victims that stop in the middle, and live on. Others wait for them until their deadline and no longer,
//! and learn whom they have waited for. Then the victim goes on, and nothing is lost.

use std::process;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::broadcast::{RecvError, Start};

use super::living::Living;
use super::{LONG, MESSAGES, SOON, Stage, all, publisher};
use crate::harness::fate::{Fate, Stopped};
use crate::harness::tracee::mark;

/// The deadline of the others.
const SHORT: Duration = Duration::from_millis(10);

/// A publisher that stops holds up subscribers at its message, and publishers once the ring comes round.
/// What is behind it arrives when it goes on.
pub(super) fn publish(fate: &Fate, text: &'static str) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut sees_all = segment.subscriber_with(&all()).unwrap();
    let mut lags = segment.subscriber().unwrap();
    let other = segment.publisher().unwrap();
    let victim = publisher(fate, segment, |publisher| {
        publisher.publish(text, SOON).unwrap();
    });
    let stopped = victim.stop();
    for nth in 2..=MESSAGES {
        other.try_publish(&nth.to_string()).unwrap().expect("there is room");
    }
    for subscriber in [&mut sees_all, &mut lags] {
        match subscriber.recv(SHORT) {
            Ok(received) => assert!([text.as_bytes(), b"2"].contains(&&*received), "{received:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
        }
    }
    fate.got_on(stopped.since);
    assert_eq!(segment.recover(), Ok(0), "no member died");
    stopped.go_on();
    let numbers: Vec<u64> = std::iter::from_fn(|| sees_all.try_recv().expect("it has missed nothing"))
        .map(|received| received.number())
        .collect();
    assert_eq!(numbers.last(), Some(&u64::from(MESSAGES)));
    drop((sees_all, lags, other));
    stage.assert_whole();
}

/// A subscriber that must see all and stops holds publishers up.
pub(super) fn receive_all(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let other = segment.publisher().unwrap();
    let victim = fate.victim(segment, || {
        let mut subscriber = segment.subscriber_with(&all()).unwrap();
        mark();
        assert_eq!(subscriber.try_recv().unwrap().unwrap().number(), 1);
        mark();
        for number in 2..=u64::from(MESSAGES) {
            assert_eq!(subscriber.recv(SOON).unwrap().number(), number);
        }
    });
    (0..MESSAGES).for_each(|_| _ = other.try_publish(LONG).unwrap().expect("there is room"));
    let stopped = victim.stop();
    let mut published = 0;
    let late = loop {
        match other.publish("more", SHORT) {
            Ok(_) => published += 1,
            Err(late) => break late,
        }
    };
    assert!(published <= 1, "{published} messages have overtaken it");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert_ne!(late.process(), Some(process::id()));
    assert!(late.process().is_some());
    end(fate, stage, stopped, || drop(other));
}

/// The ring goes over what the victim is about to receive: it gets the whole message, or knows that it has
/// missed it.
pub(super) fn receive_overtaken(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let victim = fate.victim(segment, || {
        let mut subscriber = segment.subscriber().unwrap();
        mark();
        let first = subscriber.try_recv();
        mark();
        let mut next = 1;
        let mut outcome = first;
        while next <= 3 * u64::from(MESSAGES) {
            match outcome {
                Ok(Some(received)) => {
                    assert_eq!(received.number(), next);
                    let lap = (next - 1) / u64::from(MESSAGES);
                    let text = format!("{}: {}", (next - 1) % u64::from(MESSAGES), text_of(lap));
                    assert!(*received == *text.as_bytes(), "{received:?} instead of {text}");
                    next += 1;
                }
                Ok(None) => panic!("message {next} is gone"),
                Err(RecvError::Lagged(missed)) => next += missed,
                Err(RecvError::Failed(error)) => panic!("{error}"),
            }
            outcome = subscriber.try_recv();
        }
    });
    living.fill(text_of(0));
    let stopped = victim.stop();
    living.fill(text_of(1));
    living.fill(text_of(2));
    fate.got_on(stopped.since);
    assert_eq!(segment.recover(), Ok(0), "no member died");
    stopped.go_on();
    living.go_on(fate, Instant::now(), &[]);
    stage.assert_whole();
}

fn text_of(lap: u64) -> &'static str {
    ["first", LONG, "third"][lap as usize]
}

/// Publishers overtake a subscriber that begins: it begins again where it cannot lose a message.
pub(super) fn subscribe_to_all(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let other = segment.publisher().unwrap();
    for _ in 0..MESSAGES {
        other.try_publish("before").unwrap().expect("there is room");
    }
    let victim = fate.victim(segment, || {
        mark();
        let mut subscriber = segment.subscriber_with(&all().start(Start::Oldest)).unwrap();
        mark();
        let mut last = None;
        while let Some(received) = subscriber.try_recv().expect("it has missed nothing") {
            assert!(last.is_none_or(|last| received.number() == last + 1), "{last:?}, then {received:?}");
            last = Some(received.number());
        }
        assert!(last.is_some());
    });
    let stopped = victim.stop();
    // Publishers get no further than its cursor, if it has one.
    for _ in 0..2 * MESSAGES {
        if other.try_publish(LONG).unwrap().is_none() {
            break;
        }
    }
    end(fate, stage, stopped, || drop(other));
}

/// Call this when the others have had their deadline. It checks that they still count the victim as alive,
/// and that it goes on and leaves nothing behind.
fn end(fate: &Fate, stage: Stage, stopped: Stopped, leave: impl FnOnce()) {
    fate.got_on(stopped.since);
    assert_eq!(stage.segment.recover(), Ok(0), "no member died");
    stopped.go_on();
    leave();
    stage.assert_whole();
}
