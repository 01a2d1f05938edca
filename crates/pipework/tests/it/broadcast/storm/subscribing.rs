//! The life of a process that subscribes.

use std::time::Duration;

use pipework::ErrorKind;
use pipework::broadcast::{Received, RecvError, Segment, Start, Subscriber, SubscriberOptions};

use super::board::Count;
use super::publishing::{ID, attached, message};
use super::{Hall, Run};
use crate::harness::{Random, fork};

/// A subscriber, and what it must receive next.
struct Listener<'a> {
    hall: &'a Hall<'a>,
    party: usize,
    subscriber: Subscriber,
    sees_all: bool,
    start: Option<Start>,
    /// The next number is higher than this one.
    last: u64,
    /// Numbers from here on are not lost unseen: every one that it does not get was passed over, or is
    /// reported. 0 until that is known.
    exact_from: u64,
    /// The newest number when it had subscribed. Of what was there before, one that must see all may have
    /// missed messages.
    joined_at: u64,
    missed: u64,
}

/// Subscribes and leaves until all has ended, or until it is killed.
pub(super) fn subscribe(hall: &Hall<'_>, party: usize, segment: &Segment, inherited: Option<Subscriber>) {
    let mut random = Random::new(hall.run.seed ^ (party as u64) << 20);
    if let Some(subscriber) = inherited {
        // It goes on where the other process has subscribed, before the first message.
        let mut listener = Listener {
            hall,
            party,
            subscriber,
            sees_all: false,
            start: None,
            last: 0,
            exact_from: 0,
            joined_at: segment.newest(),
            missed: 0,
        };
        listener.listen(&mut random, 100);
    }
    while !hall.board.has_ended() {
        let mut listener = Listener::new(hall, party, segment, &mut random);
        let count = [3, 30, 300][random.below(3)];
        listener.listen(&mut random, count);
    }
}

impl<'a> Listener<'a> {
    fn new(hall: &'a Hall<'a>, party: usize, segment: &Segment, random: &mut Random) -> Listener<'a> {
        let (board, messages) = (&hall.board, u64::from(hall.run.messages));
        let sees_all = !segment.is_read_only() && random.below(2) == 0;
        let (before, known) = (segment.newest(), board.newest());
        let start = match random.below(4) {
            0 => Start::Now,
            1 => Start::Oldest,
            2 => Start::Latest,
            _ => Start::After(before.saturating_sub(random.below(2 * messages as usize) as u64)),
        };
        let options = SubscriberOptions::new().start(start).must_see_all(sees_all);
        let subscriber = segment.subscriber_with(&options).expect("a place");
        board.add(Count::Joined, 1);
        let after = segment.newest();
        let last = match start {
            Start::Now => before,
            Start::After(number) => number,
            // The newest that was published then, or a later one.
            Start::Latest => known.saturating_sub(1),
            _ => before.saturating_sub(messages),
        };
        let exact_from = match start {
            Start::After(number) => number,
            // With the oldest it has begun behind those that publishers had dropped by then.
            _ => after,
        };
        let mut listener = Listener {
            hall,
            party,
            subscriber,
            sees_all,
            start: Some(start),
            last,
            exact_from,
            joined_at: after,
            missed: 0,
        };
        // In a small ring, messages that are being written may have the place of all others.
        let is_there = known > 0 && messages >= 64;
        if start == Start::Latest && is_there {
            let is_heard = listener.hear(|subscriber| subscriber.try_recv().transpose());
            assert!(is_heard, "it has to wait for a second message: {}", listener.what());
        }
        listener
    }

    fn what(&self) -> String {
        let Listener { party, start, sees_all, last, exact_from, joined_at, hall: Hall { run, .. }, .. } =
            self;
        format!(
            "subscriber {party}, sees all: {sees_all}, {start:?}, last {last}, exact from {exact_from}, \
            joined at {joined_at}, {run:?}"
        )
    }

    /// Receives up to so many messages.
    fn listen(&mut self, random: &mut Random, count: usize) {
        let board = &self.hall.board;
        for _ in 0..count {
            // Before the look that finds nothing.
            let is_over = board.has_ended();
            let began_ns = board.now_ns();
            let is_heard = match random.below(40) {
                0 if !self.sees_all => {
                    // What it passes over does not count.
                    (self.exact_from, self.missed) = (u64::MAX, 0);
                    self.hear(|subscriber| subscriber.try_recv_latest().map_err(RecvError::from).transpose())
                }
                1..20 => self.hear(|subscriber| subscriber.try_recv().transpose()),
                20 if random.below(20) == 0 => {
                    self.fork(random);
                    continue;
                }
                _ => self.hear(|subscriber| Some(subscriber.recv(Duration::from_millis(20)))),
            };
            match is_heard {
                true => board.waited(began_ns, &|| self.what()),
                false if is_over => return self.end(),
                false => std::thread::yield_now(),
            }
        }
    }

    /// A child goes on from the same place. This process has to receive meanwhile, if others wait for it.
    fn fork(&mut self, random: &mut Random) {
        let child = fork(|| {
            // What was overtaken before it joins is reported.
            self.joined_at = u64::MAX;
            for _ in 0..10 {
                if self.hear(|subscriber| Some(subscriber.recv(Duration::from_millis(2)))) {
                    self.hall.board.add(Count::InChild, 1);
                }
            }
        });
        for _ in 0..20 + random.below(20) {
            self.hear(|subscriber| Some(subscriber.recv(Duration::from_millis(2))));
        }
        child.join();
    }

    /// All that was published has arrived.
    fn end(&self) {
        let newest = self.subscriber.segment().newest();
        if self.exact_from != u64::MAX {
            let last = self.last.max(self.exact_from);
            self.hall.board.missed_between(last, newest + 1, self.missed, &|| self.what());
        }
    }

    /// Receives once, and checks what comes. False if nothing has come.
    fn hear(&mut self, receive: impl FnOnce(&mut Subscriber) -> Option<Result<Received, RecvError>>) -> bool {
        let board = &self.hall.board;
        match receive(&mut self.subscriber) {
            None => return false,
            Some(Ok(received)) => self.check(&received),
            Some(Err(RecvError::Lagged(missed))) => {
                self.missed += missed;
                board.add(Count::Lagged, 1);
                board.add(Count::Missed, missed);
            }
            Some(Err(RecvError::Failed(error))) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}: {}", self.what());
                return false;
            }
        }
        true
    }

    fn check(&mut self, received: &Received) {
        let (board, run, number) = (&self.hall.board, self.hall.run, received.number());
        let id = id(received, run, || self.what());
        board.is(number, id, "received");
        assert!(number > self.last, "{number} after {}: {}", self.last, self.what());
        if self.exact_from != u64::MAX {
            let last = self.last.max(self.exact_from).min(number - 1);
            board.missed_between(last, number, self.missed.min(number - 1 - last), &|| self.what());
            let is_exact = self.exact_from <= self.last;
            assert!(
                !is_exact || self.missed < number - self.last,
                "{} missed between {} and {number}: {}",
                self.missed,
                self.last,
                self.what()
            );
        }
        if self.sees_all {
            let is_before = self.last + self.missed <= self.joined_at;
            assert!(self.missed == 0 || is_before, "{} missed: {}", self.missed, self.what());
        }
        (self.last, self.exact_from, self.missed) = (number, number, 0);
        board.add(if self.sees_all { Count::ReceivedAll } else { Count::Received }, 1);
        board.add(Count::Observed, self.subscriber.segment().is_read_only().into());
    }
}

/// The id of a message whose every byte is right.
fn id(received: &Received, run: &Run, what: impl Fn() -> String) -> u64 {
    let id = u64::from_le_bytes(*received.first_chunk::<ID>().expect("a message has an id"));
    let is_whole = **received == *message(run, id);
    assert!(is_whole, "{id:#x}: foreign bytes: {}", what());
    let (blobs, expected) = (received.blobs(), attached(run, id));
    // `publish_many` attaches none.
    let is_right = blobs.iter().all(|blob| expected.as_deref() == Some(&**blob)) && blobs.len() <= 1;
    assert!(is_right, "{id:#x}: a foreign blob: {}", what());
    id
}
