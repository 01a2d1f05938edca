//! Those who live on, and the check of all that they receive.

use std::thread;
use std::time::Instant;

use pipework::broadcast::{Message, Publisher, RecvError, Segment, Subscriber};

use super::{MESSAGES, all};
use crate::harness::fate::Fate;
use crate::harness::tracee::{Ran, Tracee, mark, trace};
use crate::harness::{PATIENCE, asleep, blob_of};

/// The last message of a scene.
const END: &str = "end";

/// A publisher, and a subscriber of each kind, which have begun with the first message.
pub(super) struct Living {
    publisher: Publisher,
    sees_all: Listener,
    lags: Listener,
    /// The texts that were published, without those of the victim.
    sent: Vec<String>,
}

/// A subscriber and all that it has received.
struct Listener {
    subscriber: Subscriber,
    heard: Vec<Heard>,
}

#[derive(Debug, PartialEq)]
enum Heard {
    /// The number and the text of a message.
    Message(u64, String),
    Missed(u64),
}

impl Living {
    pub(super) fn new(segment: &Segment) -> Living {
        let listener = |subscriber| Listener { subscriber, heard: Vec::new() };
        Living {
            publisher: segment.publisher().unwrap(),
            sees_all: listener(segment.subscriber_with(&all()).unwrap()),
            lags: listener(segment.subscriber().unwrap()),
            sent: Vec::new(),
        }
    }

    pub(super) fn publish(&mut self, text: &str) {
        self.publisher.publish(text, PATIENCE).unwrap();
        self.sent.push(text.to_owned());
    }

    /// Publishes a message with a blob, which only the ring holds then.
    pub(super) fn publish_attached(&mut self, text: &str) {
        let blob = blob_of(self.publisher.segment(), b"attached");
        self.publisher.publish(Message::new(text).attach(&blob), PATIENCE).unwrap();
        self.sent.push(text.to_owned());
    }

    /// Publishes a message to each cell, which the subscriber that must see all has received.
    pub(super) fn fill(&mut self, text: &str) {
        for nth in 0..MESSAGES {
            self.publish(&format!("{nth}: {text}"));
        }
        self.catch_up();
    }

    /// The subscriber that must see all receives what there is. The other one does not.
    pub(super) fn catch_up(&mut self) {
        while self.sees_all.try_hear() {}
    }

    /// The victim does its part while the two subscribers sleep. Returns what it returns.
    pub(super) fn asleep_while<T>(&mut self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let Living { sees_all, lags, publisher, .. } = self;
            let sleeping = [sees_all, lags].map(|listener| asleep(scope, || listener.hear()));
            let done = act();
            // The victim may have died before it published.
            publisher.publish("awake", PATIENCE).unwrap();
            sleeping.into_iter().for_each(|listener| listener.join().unwrap());
            self.sent.push("awake".to_owned());
            done
        })
    }

    /// A publisher waits for room while `act` runs. Returns what that returns.
    pub(super) fn publish_while<T>(&mut self, text: &str, act: impl FnOnce() -> T) -> T {
        let done = thread::scope(|scope| {
            let publisher = &self.publisher;
            let waiting = asleep(scope, || publisher.publish(text, PATIENCE).map(drop));
            let done = act();
            waiting.join().unwrap().unwrap();
            done
        });
        self.sent.push(text.to_owned());
        done
    }

    /// Two laps of messages more reach both subscribers in time. Then all that they have received is
    /// checked. `victims` are the texts that the victim publishes, in this order, all of which are there if
    /// its operation was complete.
    pub(super) fn go_on(mut self, fate: &Fate, died: Instant, victims: &[&str]) {
        thread::scope(|scope| {
            let Living { sees_all, lags, publisher, sent } = &mut self;
            scope.spawn(move || sees_all.hear_to_the_end());
            scope.spawn(move || lags.hear_to_the_end());
            for nth in 0..2 * MESSAGES {
                let text = format!("more {nth}");
                publisher.publish(&text, PATIENCE).unwrap();
                sent.push(text);
            }
            publisher.publish(END, PATIENCE).unwrap();
            sent.push(END.to_owned());
        });
        fate.got_on(died);
        self.check(fate, victims);
    }

    fn check(self, fate: &Fate, victims: &[&str]) {
        let all: Vec<(u64, String)> = self.sees_all.heard.into_iter().map(Heard::message).collect();
        assert!(all.is_sorted_by(|(one, _), (other, _)| one < other), "out of order: {all:?}");
        let is_victims = |text: &&str| victims.contains(text);
        let (of_victim, of_others): (Vec<&str>, Vec<&str>) =
            all.iter().map(|(_, text)| &**text).partition(is_victims);
        assert!(of_others == self.sent, "{all:?} instead of {:?}", self.sent);
        assert!(victims.starts_with(&of_victim), "of the victim: {all:?}");
        assert!(!fate.is_complete() || victims == of_victim, "published, and lost: {all:?}");

        // The other one has received some of the same, and knows how many it has missed. Numbers that were
        // passed over may count.
        let mut rest = all.iter();
        let (mut last, mut missed) = (0, 0);
        for heard in self.lags.heard {
            match heard {
                Heard::Missed(count) => missed += count,
                Heard::Message(number, text) => {
                    let gone = rest.by_ref().take_while(|(other, _)| *other != number).count() as u64;
                    assert!(all.contains(&(number, text)), "{number} is another message for {all:?}");
                    assert!(
                        (gone..number - last).contains(&missed),
                        "{missed} missed before {number}: {all:?}"
                    );
                    (last, missed) = (number, 0);
                }
            }
        }
        assert_eq!((rest.next(), missed), (None, 0), "it has the last one");
    }
}

impl Heard {
    fn message(self) -> (u64, String) {
        match self {
            Heard::Message(number, text) => (number, text),
            Heard::Missed(count) => panic!("one that must see all has missed {count}"),
        }
    }
}

impl Listener {
    fn hear(&mut self) {
        let heard = match self.subscriber.recv(PATIENCE) {
            Ok(message) => Heard::Message(message.number(), text(&message)),
            Err(RecvError::Lagged(missed)) => Heard::Missed(missed),
            Err(RecvError::Failed(error)) => panic!("{error}"),
        };
        self.heard.push(heard);
    }

    fn try_hear(&mut self) -> bool {
        let received = self.subscriber.try_recv().expect("it has missed nothing");
        let heard = received.map(|message| Heard::Message(message.number(), text(&message)));
        let is_heard = heard.is_some();
        self.heard.extend(heard);
        is_heard
    }

    fn hear_to_the_end(&mut self) {
        while !matches!(self.heard.last(), Some(Heard::Message(_, text)) if text == END) {
            self.hear();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("only text is published")
}

// ---------------------------------------------------------------- the dead

/// A subscriber that has died.
pub(super) fn dead_subscriber(segment: &Segment) {
    trace(|| {
        let _subscriber = segment.subscriber_with(&all()).unwrap();
        mark();
    })
    .kill();
}

/// A publisher that has died while it wrote a message.
pub(super) fn dead_publisher(segment: &Segment) {
    dying_publisher(segment).kill();
}

/// A publisher that has stopped while it writes a message.
pub(super) fn dying_publisher(segment: &Segment) -> Tracee {
    let writing = segment.audit().unwrap().writing;
    let dying = trace(|| {
        let publisher = segment.publisher().unwrap();
        mark();
        publisher.try_publish("never published").unwrap().unwrap();
        mark();
    });
    while segment.audit().unwrap().writing == writing {
        assert!(!dying.is_at_mark(), "it has published");
        assert_eq!(dying.step(), Ran::Stopped);
    }
    dying
}
