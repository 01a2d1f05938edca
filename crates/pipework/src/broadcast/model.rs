//! Tests every interleaving of accesses to shared memory under loom: the steps of the ring and its two
//! events, with the memory orders that the code asks for. `make model` runs it. Threads stand for processes,
//! and a thread that stops stands for a process that was killed there. The length and the flags of a message,
//! which are relaxed atomics, stand for its bytes, so a thread that reads them without permission finds old
//! ones, or those of two messages. Loom itself finds a thread that sleeps for ever. `tests/model` searches
//! deaths at every step, and their effects, on a separate model.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::layout::Geometry;
use super::ring::{Cursors, Found};
use super::shared::{Described, Ring, Shared};
use super::word::{Cursor, Position};
use crate::deadline::Deadline;
use crate::event::{Event, Wait};
use crate::segment::recovery::Recover;
use crate::spin::{Looks, Spin};
use crate::sync::{Ordering, Reach, search};

const OP: &str = "model";
const MESSAGES: u32 = 2;
const FIRST: u16 = 1;
const SECOND: u16 = 2;
const SUBSCRIBER: u16 = 3;

fn ring() -> Arc<Shared> {
    let geometry = Geometry { messages: MESSAGES, message_bytes: 0, members: 3, blobs: 0, observers: false };
    Arc::new(Shared::of_model(geometry.to_sizes()).expect("a file in memory"))
}

/// Waits at an event, and parks at once, because loom tries repeated looks by itself.
fn until<T>(event: &Event, mut look: impl FnMut() -> Option<T>) -> T {
    let spin = Spin::new(Duration::ZERO, Looks::Load);
    let (deadline, reach) = (Deadline::NEVER, Reach::Machine);
    let wait = Wait { deadline, spin: &spin, reach, tick: None, long: None, op: OP };
    event.wait(&wait, || Ok(look()), || Ok(())).expect("it has no deadline")
}

/// Publishes a message if there is room; returns its position.
fn try_publish(shared: &Shared, me: u16, known: &Cursors, value: u32) -> Option<Position> {
    let claimed = shared.claim(me, known, OP).expect("the ring is well formed")?;
    shared.cell(claimed.idx).describe(Described { len: value, flags: value, ..Described::default() });
    assert!(shared.finish(claimed), "nobody takes this one for dead");
    shared.tell_subscribers();
    Some(claimed.position)
}

fn publish(shared: &Shared, me: u16, known: &Cursors, value: u32) -> Position {
    until(shared.room(), || try_publish(shared, me, known, value))
}

/// The message at a position: whole, or `None` if it was overtaken meanwhile.
fn read(shared: &Shared, position: Position) -> Result<Option<u32>, Found> {
    let Found::Message(word) = shared.look(position) else { return Err(shared.look(position)) };
    let (idx, described) = shared.described(position);
    let is_there = shared.cell(idx).still_is(word);
    assert!(!is_there || described.len == described.flags, "halves of two messages");
    Ok(is_there.then_some(described.len))
}

/// A subscriber that must see all.
struct SeesAll {
    next: Position,
    cursor: Cursor,
}

impl SeesAll {
    fn begin(shared: &Shared, first: Position) -> SeesAll {
        let begun = shared.see_all((SUBSCRIBER, 0), first, OP).expect("it begins in time");
        let (next, cursor) = begun.expect("no other member has its number");
        SeesAll { next, cursor }
    }

    fn try_recv(&mut self, shared: &Shared) -> Option<u32> {
        loop {
            match shared.look(self.next) {
                Found::Nothing => return None,
                Found::Message(word) => {
                    let (idx, described) = shared.described(self.next);
                    assert!(shared.cell(idx).still_is(word), "publishers wait for it");
                    assert_eq!(described.len, described.flags);
                    self.pass();
                    self.settle(shared);
                    return Some(described.len);
                }
                Found::Skipped => {
                    self.pass();
                    self.settle(shared);
                }
                found => panic!("it has lost a message: {found:?}"),
            }
        }
    }

    fn pass(&mut self) {
        self.next += 1;
    }

    fn settle(&mut self, shared: &Shared) {
        let to = self.cursor.at(self.next);
        assert!(shared.move_cursor(SUBSCRIBER, self.cursor, to), "nobody takes it for dead");
        self.cursor = to;
    }

    fn recv(&mut self, shared: &Shared) -> u32 {
        until(shared.published(), || self.try_recv(shared))
    }
}

#[test]
fn one_that_must_see_all_gets_all_of_two_publishers_wherever_they_sleep() {
    search(|| {
        let shared = ring();
        let mut subscriber = SeesAll::begin(&shared, 0);
        let first = Arc::clone(&shared);
        let first = thread::spawn(move || {
            let known = Cursors::new();
            [11, 12].map(|value| publish(&first, FIRST, &known, value))
        });
        let second = Arc::clone(&shared);
        let second = thread::spawn(move || publish(&second, SECOND, &Cursors::new(), 21));
        let received = [(); 3].map(|()| subscriber.recv(&shared));
        let [one, other] = first.join().expect("it does not panic");
        let third = second.join().expect("it does not panic");
        for (position, value) in [(one, 11), (other, 12), (third, 21)] {
            assert_eq!(received[position as usize], value, "{received:?}");
        }
        assert!(one < other && shared.tail().load(Ordering::Relaxed) == 3);
    });
}

/// The cell of the second lap is claimed while a subscriber reads the first.
#[test]
fn one_that_may_lag_reads_whole_messages() {
    search(|| {
        let shared = ring();
        let known = Cursors::new();
        [1, 2].into_iter().for_each(|value| assert!(try_publish(&shared, FIRST, &known, value).is_some()));
        let [first, second] = [FIRST, SECOND].map(|me| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || try_publish(&shared, me, &Cursors::new(), 10 + u32::from(me)))
        });
        for position in 0..3 {
            match read(&shared, position) {
                Ok(Some(value)) if position < 2 => assert_eq!(u64::from(value), position + 1),
                Ok(Some(value)) => assert!(value > 10),
                Ok(None) | Err(_) => {}
            }
        }
        let positions = [first, second].map(|publisher| publisher.join().expect("it does not panic"));
        assert!(positions == [Some(2), Some(3)] || positions == [Some(3), Some(2)], "{positions:?}");
        assert_eq!(shared.look(0), Found::Overtaken);
    });
}

#[test]
fn one_that_may_lag_sleeps_until_a_message_comes() {
    search(|| {
        let shared = ring();
        let publishers = [FIRST, SECOND].map(|me| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || try_publish(&shared, me, &Cursors::new(), me.into()))
        });
        let received = [0, 1].map(|position| {
            until(shared.published(), || read(&shared, position).ok()).expect("nothing overtakes it")
        });
        assert!(received == [1, 2] || received == [2, 1], "{received:?}");
        publishers.into_iter().for_each(|publisher| assert!(publisher.join().expect("no panic").is_some()));
    });
}

/// Publishers are about to overtake the position at which it begins.
#[test]
fn one_that_must_see_all_loses_nothing_from_where_it_begins() {
    search(|| {
        let shared = ring();
        let known = Cursors::new();
        [0, 1].into_iter().for_each(|value| assert!(try_publish(&shared, FIRST, &known, value).is_some()));
        let publishers = [FIRST, SECOND].map(|me| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let known = Cursors::new();
                (0..2).filter_map(|_| try_publish(&shared, me, &known, 7)).count() as u64
            })
        });
        let mut subscriber = SeesAll::begin(&shared, 0);
        let first = subscriber.next;
        while subscriber.try_recv(&shared).is_some() {}
        let published: u64 = publishers.map(|publisher| publisher.join().expect("no panic")).iter().sum();
        while subscriber.try_recv(&shared).is_some() {}
        assert!(first >= 1 && subscriber.next == 2 + published, "{first} {} {published}", subscriber.next);
    });
}

/// Two threads of one publisher share what they know of the cursors.
#[test]
fn threads_of_a_publisher_overtake_no_subscriber_that_begins() {
    search(|| {
        let shared = ring();
        let known = Arc::new(Cursors::new());
        let publishers = [1, 2].map(|value| {
            let (shared, known) = (Arc::clone(&shared), Arc::clone(&known));
            thread::spawn(move || {
                (0..2).filter_map(|_| try_publish(&shared, FIRST, &known, value)).count() as u64
            })
        });
        let mut subscriber = SeesAll::begin(&shared, 0);
        let published: u64 = publishers.map(|publisher| publisher.join().expect("no panic")).iter().sum();
        while subscriber.try_recv(&shared).is_some() {}
        assert_eq!(subscriber.next, published);
        assert!(published >= u64::from(MESSAGES));
    });
}

// ---------------------------------------------------------------- recovery

/// Takes a dead member out of a word, as any process may do.
fn recover(shared: &Shared, member: u16, word: u32) {
    while let Some(named) = Ring::names(shared, word, |number| number == member) {
        Ring::remove(shared, &named, || ());
    }
}

#[test]
fn publisher_and_subscriber_go_on_after_a_death_in_the_middle() {
    search(|| {
        let shared = ring();
        let mut subscriber = SeesAll::begin(&shared, 0);
        let dead = shared.claim(SECOND, &Cursors::new(), OP).expect("the ring is well formed");
        assert!(dead.is_some_and(|claimed| claimed.position == 0));
        let publisher = Arc::clone(&shared);
        let publisher = thread::spawn(move || {
            let known = Cursors::new();
            [1, 2].map(|value| publish(&publisher, FIRST, &known, value))
        });
        let recoverer = Arc::clone(&shared);
        let recoverer = thread::spawn(move || recover(&recoverer, SECOND, 0));
        let received = [(); 2].map(|()| subscriber.recv(&shared));
        assert_eq!(received, [1, 2]);
        assert_eq!(publisher.join().expect("it does not panic"), [1, 2]);
        recoverer.join().expect("it does not panic");
        assert_eq!(shared.skipped().load(Ordering::Relaxed), 1);
    });
}

#[test]
fn dead_number_is_passed_over_once() {
    search(|| {
        let shared = ring();
        let dead = shared.claim(SECOND, &Cursors::new(), OP).expect("the ring is well formed");
        let recoverers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || recover(&shared, SECOND, 0))
        });
        // It was only taken for dead: it learns that others have passed its number over, or it was first.
        let is_published = shared.finish(dead.expect("there is room"));
        recoverers.into_iter().for_each(|recoverer| recoverer.join().expect("it does not panic"));
        assert_eq!(matches!(shared.look(0), Found::Message(_)), is_published);
        assert_eq!(shared.skipped().load(Ordering::Relaxed), u64::from(!is_published));
    });
}

#[test]
fn publisher_goes_on_after_the_death_of_a_subscriber_that_must_see_all() {
    search(|| {
        let shared = ring();
        let dead = SeesAll::begin(&shared, 0);
        assert!(dead.cursor.is_active());
        let recoverer = Arc::clone(&shared);
        let word = MESSAGES + u32::from(SUBSCRIBER) - 1;
        let recoverer = thread::spawn(move || recover(&recoverer, SUBSCRIBER, word));
        let known = Cursors::new();
        let positions = [1, 2, 3].map(|value| publish(&shared, FIRST, &known, value));
        assert_eq!(positions, [0, 1, 2]);
        recoverer.join().expect("it does not panic");
        assert!(!shared.has_cursor(SUBSCRIBER, dead.cursor));
    });
}
