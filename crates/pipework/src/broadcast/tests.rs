//! What publishers and subscribers do with each other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use super::word::{CellWord, State};
use super::*;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::sync::Ordering;
use crate::sys::fault::{self, Before, Fault, Turn, fork, wait};
use crate::sys::{self, For};

const NEVER: Deadline = Deadline::NEVER;
const SOON: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

fn options() -> Options {
    Options::new().messages(4).message_bytes(40).members(8)
}

fn small() -> Segment {
    options().anonymous().expect("a segment")
}

fn all() -> SubscriberOptions {
    SubscriberOptions::new().must_see_all(true)
}

fn publish(publisher: &Publisher, texts: &[&str]) {
    for text in texts {
        publisher.try_publish(*text).expect("it works").expect("there is room");
    }
}

/// All that can be received now: texts, and `-3` for three that were missed.
fn receive(subscriber: &mut Subscriber) -> Vec<String> {
    std::iter::from_fn(|| match subscriber.try_recv() {
        Ok(None) => None,
        Ok(Some(message)) => Some(String::from_utf8(message.to_vec()).expect("text")),
        Err(RecvError::Lagged(missed)) => Some(format!("-{missed}")),
        Err(RecvError::Failed(error)) => panic!("{error}"),
    })
    .collect()
}

fn no_one(subscriber: &mut Subscriber) {
    assert_eq!(receive(subscriber), [""; 0]);
}

#[test]
fn every_subscriber_gets_every_message_in_one_order() {
    let segment = small();
    let (first, second) = (segment.publisher().unwrap(), segment.publisher().unwrap());
    let mut subscribers = [
        segment.subscriber().unwrap(),
        segment.subscriber_with(&all()).unwrap(),
        segment.subscriber().unwrap(),
    ];
    publish(&first, &["a"]);
    publish(&second, &["b", ""]);
    publish(&first, &["c"]);
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.lag(), 4);
        assert_eq!(receive(subscriber), ["a", "b", "", "c"]);
        assert_eq!(subscriber.lag(), 0);
    }
    assert_eq!(segment.stats().published, 4);
}

#[test]
fn messages_have_numbers_flags_and_blobs() {
    let segment = small();
    let (publisher, mut subscriber) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    let mut draft = segment.blob(3).unwrap();
    draft.copy_from_slice(b"xyz");
    let blob = draft.freeze().unwrap();
    assert_eq!(publisher.publish(Message::new("one").flags(7).attach(&blob), NEVER), Ok(1));
    let long = vec![9; 5000];
    assert_eq!(publisher.publish(&long, NEVER), Ok(2));
    let longer = vec![8; 200_000];
    assert_eq!(publisher.publish(Message::new(&longer).attach(&blob), NEVER), Ok(3));
    drop(blob);
    let received = [(); 3].map(|()| subscriber.recv(NEVER).unwrap());
    assert_eq!(received.each_ref().map(Received::number), [1, 2, 3]);
    assert_eq!((&*received[0], received[0].flags(), received[0].blobs().len()), (&b"one"[..], 7, 1));
    assert_eq!(&*received[0].blobs()[0], b"xyz");
    assert!(*received[1] == *long && *received[2] == *longer && *received[2].blobs()[0] == *b"xyz");
    // The ring names all three: the attached one twice.
    assert_eq!(segment.blob_audit().named, 3);
    publish(&publisher, &["1", "2", "3", "4"]);
    assert_eq!(segment.blob_audit().named, 0, "the ring has gone on");
    assert!(*received[2] == *longer, "what is held stays");
}

#[test]
fn subscriber_that_may_lag_learns_how_many_it_has_missed_and_goes_on_with_the_oldest() {
    let segment = small();
    let (publisher, mut subscriber) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    publish(&publisher, &["a"]);
    assert_eq!(receive(&mut subscriber), ["a"]);
    publish(&publisher, &["b", "c", "d", "e", "f", "g", "h"]);
    assert_eq!(receive(&mut subscriber), ["-3", "e", "f", "g", "h"]);
    publish(&publisher, &["i"]);
    assert_eq!(receive(&mut subscriber), ["i"]);
    assert_eq!(segment.stats().missed, 3);
    let error = Error::from(RecvError::Lagged(3));
    assert_eq!(
        (error.kind(), RecvError::Lagged(3).to_string()),
        (ErrorKind::Lagged, "broadcast recv: messages were missed; 3 missed".to_owned())
    );
}

#[test]
fn message_after_those_missed_is_kept_although_the_ring_goes_on() {
    let segment = small();
    let (publisher, mut subscriber) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    publish(&publisher, &["a", "b", "c", "d", "e"]);
    assert_eq!(subscriber.try_recv().unwrap_err(), RecvError::Lagged(1));
    publish(&publisher, &["f", "g", "h", "i"]);
    assert_eq!(receive(&mut subscriber), ["b", "-3", "f", "g", "h", "i"]);
}

#[test]
fn publishers_wait_for_a_subscriber_that_must_see_all() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut subscriber = segment.subscriber_with(&all()).unwrap();
    publish(&publisher, &["a", "b", "c", "d"]);
    assert_eq!(publisher.try_publish("e"), Ok(None));
    let late = publisher.publish("e", NOW).expect_err("there is no room");
    assert_eq!((late.kind(), late.process()), (ErrorKind::TimedOut, Some(process::id())));
    let text =
        format!("broadcast publish: the deadline has passed while it waited for process {}", process::id());
    assert_eq!(late.to_string(), text);
    assert_eq!(&*subscriber.recv(NEVER).unwrap(), b"a");
    publish(&publisher, &["e"]);
    assert_eq!(publisher.try_publish("f"), Ok(None));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| publisher.publish("f", SOON));
        assert_eq!(&*subscriber.recv(NEVER).unwrap(), b"b");
        assert_eq!(waiting.join().unwrap(), Ok(6));
    });
    assert_eq!(receive(&mut subscriber), ["c", "d", "e", "f"]);
    publish(&publisher, &["g", "h", "i", "j"]);
    drop(subscriber);
    publish(&publisher, &["k", "l", "m", "n", "o"]);
}

#[test]
fn subscriber_begins_where_it_says() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let begin = |start| {
        let lags = SubscriberOptions::new().start(start);
        let mut one = segment.subscriber_with(&lags).unwrap();
        let mut other = segment.subscriber_with(&lags.must_see_all(true)).unwrap();
        let received = receive(&mut one);
        assert_eq!(receive(&mut other), received, "{start:?}");
        received
    };
    for start in [Start::Now, Start::Oldest, Start::Latest, Start::After(0)] {
        assert_eq!(begin(start), [""; 0]);
    }
    publish(&publisher, &["a", "b"]);
    assert_eq!(begin(Start::Now), [""; 0]);
    assert_eq!(begin(Start::Oldest), ["a", "b"]);
    assert_eq!(begin(Start::Latest), ["b"]);
    assert_eq!(begin(Start::After(0)), ["a", "b"]);
    assert_eq!(begin(Start::After(1)), ["b"]);
    assert_eq!(begin(Start::After(2)), [""; 0]);
    let unborn = SubscriberOptions::new().start(Start::After(3));
    assert_eq!(segment.subscriber_with(&unborn).unwrap_err().kind(), ErrorKind::Invalid);
    publish(&publisher, &["c", "d", "e", "f"]);
    assert_eq!(begin(Start::Oldest), ["c", "d", "e", "f"]);
    assert_eq!(begin(Start::Latest), ["f"]);
    assert_eq!(begin(Start::After(0)), ["-2", "c", "d", "e", "f"]);
    assert_eq!(begin(Start::After(4)), ["e", "f"]);
}

#[test]
fn latest_is_there_although_the_ring_goes_on_before_it_is_received() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    publish(&publisher, &["a", "b"]);
    let mut subscriber = segment.subscriber_with(&SubscriberOptions::new().start(Start::Latest)).unwrap();
    publish(&publisher, &["c", "d", "e", "f", "g"]);
    assert_eq!(&*subscriber.recv(NEVER).unwrap(), b"b");
    assert_eq!(&*subscriber.recv_latest(NEVER).unwrap(), b"g");
    assert_eq!(subscriber.try_recv_latest().unwrap().map(|message| message.number()), None);
    assert_eq!(subscriber.recv_latest(NOW).unwrap_err().kind(), ErrorKind::TimedOut);
    publish(&publisher, &["h", "i"]);
    assert_eq!(&*subscriber.try_recv_latest().unwrap().expect("a message"), b"i");
    no_one(&mut subscriber);
}

#[test]
fn subscriber_sleeps_until_a_message_comes() {
    let segment = options().spin(Duration::ZERO).anonymous().unwrap();
    let publisher = segment.publisher().unwrap();
    for begin in [SubscriberOptions::new(), all()] {
        let mut subscriber = segment.subscriber_with(&begin).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || subscriber.recv(SOON).map(Received::into_vec));
            publisher.publish("late", NEVER).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(b"late".to_vec()));
        });
    }
    let mut subscriber = segment.subscriber().unwrap();
    assert_eq!(subscriber.recv(NOW).unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn numbers_go_on_across_the_end_of_a_lap_and_of_a_cursor() {
    // The words count 2^46 laps and 2^47 positions, each in a circle.
    for messages in [2, 4] {
        for end in [1_u64 << 46, 1 << 47, (1 << 46) * u64::from(messages)] {
            let segment = options().messages(messages).anonymous().unwrap();
            let tail = end - 5;
            segment.shared().tail().store(tail, Ordering::Relaxed);
            for before in tail - u64::from(messages)..tail {
                let (lap, cell) = (segment.geometry().lap(before), segment.shared().cell_of(before));
                let empty = CellWord::from_bits(0);
                assert!(cell.swap(empty, CellWord::new(lap, State::Skipped, 0)));
            }
            let publisher = segment.publisher().unwrap();
            let mut lags = segment.subscriber().unwrap();
            let mut sees_all = segment.subscriber_with(&all()).unwrap();
            for number in 1..=20 {
                assert_eq!(publisher.try_publish("a"), Ok(Some(tail + number)));
                if number % u64::from(messages) == 0 {
                    assert_eq!(publisher.try_publish("b"), Ok(None), "{messages} {end} {number}");
                    assert_eq!(receive(&mut sees_all).len(), messages as usize);
                }
            }
            let missed = format!("-{}", 20 - messages);
            assert_eq!(receive(&mut lags)[0], missed);
        }
    }
}

/// A child process that does something and then waits until it is killed.
struct Child(i32, OwnedFd);

impl Child {
    fn stays_after(act: impl FnOnce()) -> Child {
        let [(ready, is_ready), (ended, end)] = [sys::pipe().unwrap(), sys::pipe().unwrap()];
        let mut end = Some(end);
        let pid = fork(|| {
            drop(end.take());
            act();
            sys::write(is_ready.as_fd(), b"y", sys::Blocking::Native).unwrap();
            let _ = sys::wait(&[ended.as_fd()], For::Reading, Deadline::NEVER);
        });
        drop(is_ready);
        assert_eq!(sys::read(ready.as_fd(), &mut [0]), Ok(1), "it is ready");
        Child(pid, end.expect("only the child has dropped it"))
    }

    fn die(self) {
        let Child(pid, end) = self;
        drop(end);
        wait(pid);
    }
}

#[test]
fn publishers_do_not_wait_for_a_dead_subscriber() {
    let _turn = Turn::alone();
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let child = Child::stays_after(|| std::mem::forget(segment.subscriber_with(&all()).unwrap()));
    publish(&publisher, &["a", "b", "c", "d"]);
    let late = publisher.publish("e", Duration::from_millis(1)).expect_err("the child lives");
    assert_eq!(late.process(), Some(child.0 as u32));
    child.die();
    assert_eq!(publisher.publish("e", SOON), Ok(5));
    assert_eq!(segment.audit().unwrap().orphaned, 0);
}

#[test]
fn number_of_a_dead_publisher_is_passed_over() {
    let _turn = Turn::alone();
    let segment = small();
    let mut subscribers =
        [SubscriberOptions::new(), all()].map(|options| segment.subscriber_with(&options).unwrap());
    let publisher = segment.publisher().unwrap();
    publish(&publisher, &["a"]);
    let child = Child::stays_after(|| {
        let dying = segment.join(Role::Publisher, "test").unwrap();
        let known = ring::Cursors::new();
        let claimed = segment.shared().claim(dying.latest(), &known, "test").unwrap();
        assert!(claimed.is_some());
        std::mem::forget(dying);
    });
    publish(&publisher, &["c"]);
    let [lags, sees_all] = &mut subscribers;
    assert_eq!(receive(lags), ["a"]);
    assert_eq!(segment.audit().unwrap().writing, 1);
    child.die();
    assert_eq!(&*lags.recv(SOON).unwrap(), b"c");
    assert_eq!(receive(sees_all), ["a", "c"]);
    publish(&publisher, &["d", "e", "f", "g"]);
    let stats = segment.stats();
    assert_eq!((stats.published, stats.skipped), (6, 1));
}

#[test]
fn full_ring_goes_on_after_the_death_of_a_publisher_in_the_middle_of_it() {
    let _turn = Turn::alone();
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let child = Child::stays_after(|| {
        let dying = segment.join(Role::Publisher, "test").unwrap();
        segment.shared().claim(dying.latest(), &ring::Cursors::new(), "test").unwrap();
        std::mem::forget(dying);
    });
    publish(&publisher, &["b", "c", "d"]);
    assert_eq!(publisher.try_publish("e"), Ok(None));
    let late = publisher.publish("e", Duration::from_millis(1)).expect_err("the child lives");
    assert_eq!(late.process(), Some(child.0 as u32));
    child.die();
    assert_eq!(publisher.publish("e", SOON), Ok(5));
}

/// A subscriber that was taken for dead may store its cursor when its number has another holder.
#[test]
fn cursor_of_another_membership_holds_up_nobody() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let subscriber = segment.subscriber_with(&all()).unwrap();
    let number = segment.members().unwrap().iter().find(|member| member.must_see_all).unwrap().number;
    drop(subscriber);
    let heir = segment.publisher().unwrap();
    let entry = segment.shared().member(number).unwrap();
    let joined = entry.word.load(Ordering::Relaxed);
    shared::cursor(entry).store(word::Cursor::new(0, joined / 256 - 1).to_bits(), Ordering::Relaxed);
    publish(&publisher, &["a", "b", "c", "d", "e"]);
    assert_eq!(shared::cursor(entry).load(Ordering::Relaxed), 0, "it was removed");
    shared::cursor(entry).store(word::Cursor::new(1, joined / 256).to_bits(), Ordering::Relaxed);
    assert_eq!(heir.try_publish("f"), Ok(None), "this one is of the holder");
    assert_eq!(segment.shared().see_all((number, joined - 256), 5, "test"), Ok(None));
}

#[test]
fn forked_child_is_another_subscriber_that_goes_on_from_the_same_place() {
    let _turn = Turn::alone();
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut parent = segment.subscriber_with(&all()).unwrap();
    publish(&publisher, &["a", "b"]);
    assert_eq!(&*parent.recv(NEVER).unwrap(), b"a");
    let (from_child, to_parent) = sys::pipe().unwrap();
    let (from_parent, to_child) = sys::pipe().unwrap();
    let pid = fork(|| {
        assert_eq!(receive(&mut parent), ["b"]);
        sys::write(to_parent.as_fd(), b"y", sys::Blocking::Native).unwrap();
        assert_eq!(sys::read(from_parent.as_fd(), &mut [0]), Ok(1));
        assert_eq!(receive(&mut parent), ["c", "d"]);
        publish(&publisher, &["of the child"]);
    });
    assert_eq!(sys::read(from_child.as_fd(), &mut [0]), Ok(1));
    assert_eq!(receive(&mut parent), ["b"]);
    publish(&publisher, &["c", "d"]);
    assert_eq!(receive(&mut parent), ["c", "d"]);
    assert_eq!(segment.members().unwrap().iter().filter(|member| member.must_see_all).count(), 2);
    sys::write(to_child.as_fd(), b"y", sys::Blocking::Native).unwrap();
    wait(pid);
    assert_eq!(receive(&mut parent), ["of the child"]);
}

#[test]
fn forked_child_gets_what_its_parent_holds_in_a_full_ring() {
    let _turn = Turn::alone();
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut parent = segment.subscriber_with(&all()).unwrap();
    publish(&publisher, &["a", "b", "c", "d"]);
    wait(fork(|| assert_eq!(receive(&mut parent), ["a", "b", "c", "d"])));
    assert_eq!(receive(&mut parent), ["a", "b", "c", "d"]);
}

#[test]
fn forked_child_learns_what_was_overtaken_before_it_joined() {
    let _turn = Turn::alone();
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut parent = segment.subscriber_with(&all()).unwrap();
    let (from_parent, to_child) = sys::pipe().unwrap();
    let pid = fork(|| {
        assert_eq!(sys::read(from_parent.as_fd(), &mut [0]), Ok(1));
        assert_eq!(receive(&mut parent), ["-2", "c", "d", "e", "f"]);
    });
    for text in ["a", "b", "c", "d", "e", "f"] {
        publish(&publisher, &[text]);
        assert_eq!(receive(&mut parent), [text]);
    }
    sys::write(to_child.as_fd(), b"y", sys::Blocking::Native).unwrap();
    wait(pid);
}

#[test]
fn publisher_drops_its_oldest_blobs_beyond_its_limit() {
    let segment = small();
    let limited = PublisherOptions::new().keep_bytes(10_000);
    let publisher = segment.publisher_with(&limited).unwrap();
    let mut lags = segment.subscriber().unwrap();
    let long = "x".repeat(4000);
    publish(&publisher, &[&long, "short", &long]);
    assert_eq!(segment.blob_audit().named, 2);
    publish(&publisher, &[&long]);
    assert_eq!(segment.blob_audit().named, 2, "the first one was dropped");
    let lengths = |received: Vec<String>| received.iter().map(String::len).collect::<Vec<_>>();
    let received = receive(&mut lags);
    assert_eq!(received[0], "-1");
    assert_eq!(lengths(received), [2, 5, 4000, 4000]);
    let longest = "x".repeat(50_000);
    publish(&publisher, &[&longest]);
    assert_eq!(segment.blob_audit().named, 1, "the newest stays whatever its size");
    assert_eq!(lengths(receive(&mut lags)), [50_000]);
    let mut sees_all = segment.subscriber_with(&all()).unwrap();
    publish(&publisher, &[&long]);
    publish(&publisher, &[&long]);
    assert_eq!(publisher.try_publish(&long), Ok(None), "one that must see all needs the first");
    publish(&publisher, &["short"]);
    assert_eq!(publisher.publish(&long, NOW).unwrap_err().process(), Some(process::id()));
    assert_eq!(sees_all.recv(NEVER).unwrap().len(), 4000);
    publish(&publisher, &[&long]);
    assert_eq!(lengths(receive(&mut sees_all)), [4000, 5, 4000]);
}

#[test]
fn newest_message_stays_until_the_next_one_is_there() {
    static SEGMENT: OnceLock<Segment> = OnceLock::new();
    static FOUND: AtomicU32 = AtomicU32::new(0);
    fn look() {
        let latest = SubscriberOptions::new().start(Start::Latest);
        let mut subscriber = SEGMENT.get().expect("it was made").subscriber_with(&latest).unwrap();
        FOUND.store(subscriber.try_recv().unwrap().map_or(0, |received| received.number() as u32), Relaxed);
    }
    let segment = SEGMENT.get_or_init(small);
    let publisher = segment.publisher_with(&PublisherOptions::new().keep_bytes(1)).unwrap();
    let long = "x".repeat(4000);
    publish(&publisher, &["short", "short", "short", &long]);
    fault::order("look at the cursors", 0, Fault::After(Before(look)));
    publish(&publisher, &[&long]);
    assert!(fault::all_met());
    assert_eq!((FOUND.load(Relaxed), segment.blob_audit().named), (4, 1));
}

#[test]
fn observer_receives_through_a_mapping_that_it_cannot_write() {
    let path = std::env::temp_dir().join(format!("pipework-observed-{}", process::id()));
    let segment = options().observers(true).create(&path).unwrap();
    let observed = Options::new().read_only(true).open(&path).unwrap();
    let publisher = segment.publisher().unwrap();
    let before = fs::read(&path).unwrap();
    let mut observer = observed.subscriber().unwrap();
    assert_eq!(fs::read(&path).unwrap(), before, "it has changed nothing");
    let mapped = fs::read_to_string("/proc/self/maps").unwrap();
    let access: Vec<_> = mapped
        .lines()
        .filter(|line| line.ends_with(path.to_str().unwrap()))
        .map(|line| &line[26..30])
        .collect();
    assert!(access.iter().any(|access| access.starts_with("r--")), "{access:?}");
    publish(&publisher, &["a"]);
    let long = "x".repeat(5000);
    let mut draft = segment.blob(2).unwrap();
    draft.copy_from_slice(b"yz");
    publisher.publish(Message::new(&long).attach(&draft.freeze().unwrap()), NEVER).unwrap();
    assert_eq!(&*observer.recv(NEVER).unwrap(), b"a");
    let received = observer.recv(NEVER).unwrap();
    assert!(
        *received == *long.as_bytes() && *received.blobs()[0] == *b"yz" && received.blobs()[0].is_copied()
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let received = observer.recv(SOON).map(Received::into_vec);
            (observer, received)
        });
        publish(&publisher, &["awaited"]);
        let (mut observer, received) = waiting.join().unwrap();
        assert_eq!(received, Ok(b"awaited".to_vec()));
        publish(&publisher, &["b", "c", "d", "e", "f"]);
        assert_eq!(receive(&mut observer), ["-1", "c", "d", "e", "f"]);
    });
    let unsupported = |refused: Error| assert_eq!(refused.kind(), ErrorKind::Unsupported);
    unsupported(observed.publisher().unwrap_err());
    unsupported(observed.subscriber_with(&all()).unwrap_err());
    unsupported(observed.unlink().unwrap_err());
    unsupported(observed.blob(1).err().unwrap());
    assert_eq!(segment.members().unwrap().len(), 1, "an observer is no member");
    segment.unlink().unwrap();
}

#[test]
fn observer_passes_over_the_message_of_a_dead_publisher() {
    let _turn = Turn::alone();
    let path = std::env::temp_dir().join(format!("pipework-observed-dead-{}", process::id()));
    let segment = options().observers(true).create(&path).unwrap();
    let mut observer = Options::new().read_only(true).open(&path).unwrap().subscriber().unwrap();
    let publisher = segment.publisher().unwrap();
    let child = Child::stays_after(|| {
        let dying = segment.join(Role::Publisher, "test").unwrap();
        segment.shared().claim(dying.latest(), &ring::Cursors::new(), "test").unwrap();
        std::mem::forget(dying);
    });
    publish(&publisher, &["b"]);
    assert_eq!(observer.recv(Duration::from_millis(1)).unwrap_err().kind(), ErrorKind::TimedOut);
    child.die();
    assert_eq!(&*observer.recv(SOON).unwrap(), b"b");
    assert_eq!(segment.audit().unwrap().writing, 1, "it has changed nothing");
    segment.unlink().unwrap();
}

#[test]
fn channel_without_observers_refuses_to_be_observed() {
    let path = std::env::temp_dir().join(format!("pipework-unobserved-{}", process::id()));
    let segment = options().create(&path).unwrap();
    let observed = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(observed.subscriber().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Options::new().read_only(true).open_or_create(&path).unwrap_err().kind(), ErrorKind::Invalid);
    segment.unlink().unwrap();
}

#[test]
fn doorbell_and_task_learn_of_messages_and_of_room() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut subscriber = segment.subscriber_with(&all()).unwrap();
    let bell = subscriber.doorbell().unwrap();
    let rings = |bell: &OwnedFd, until: Deadline| sys::wait(&[bell.as_fd()], For::Reading, until).unwrap();
    assert!(!rings(&bell, Deadline::now()));
    publish(&publisher, &["a"]);
    assert!(rings(&bell, SOON.into()));
    assert_eq!(receive(&mut subscriber), ["a"]);
    assert!(!rings(&bell, Deadline::now()));
    publish(&publisher, &["b", "c", "d", "e"]);
    let room = publisher.doorbell().unwrap();
    assert_eq!(publisher.try_publish("f"), Ok(None));
    assert!(rings(&bell, SOON.into()));
    assert_eq!(subscriber.try_recv().unwrap().unwrap().number(), 2);
    assert!(rings(&room, SOON.into()));
    assert!(publisher.try_publish("f").unwrap().is_some());
    assert_eq!(publisher.try_publish("g"), Ok(None));
    assert!(!rings(&room, Deadline::now()));
    assert_eq!(subscriber.try_recv().unwrap().unwrap().number(), 3);
    assert!(rings(&room, SOON.into()));
    thread::scope(|scope| {
        let publisher = &publisher;
        scope.spawn(move || {
            block_on(async {
                for number in 7..=50 {
                    assert_eq!(publisher.publish_async("more").await, Ok(number));
                }
            });
        });
        block_on(async {
            for number in 4..=50 {
                assert_eq!(subscriber.recv_async().await.unwrap().number(), number);
            }
        });
    });
}

#[cfg(feature = "futures-core")]
#[test]
fn subscriber_is_a_stream() {
    use std::pin::Pin;
    let segment = small();
    let (publisher, mut subscriber) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    let mut next = || {
        block_on(std::future::poll_fn(|cx| futures_core::Stream::poll_next(Pin::new(&mut subscriber), cx)))
    };
    publish(&publisher, &["a", "b", "c", "d", "e"]);
    assert_eq!(next().unwrap().unwrap_err(), RecvError::Lagged(1));
    assert_eq!(next().unwrap().unwrap().number(), 2);
}

#[test]
fn many_are_published_with_one_wake_up() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    let mut subscriber = segment.subscriber_with(&all()).unwrap();
    assert_eq!(publisher.publish_many(["a", "b", "c"], NEVER), Ok(3));
    assert_eq!(publisher.publish_many([""; 0], NEVER), Ok(0));
    let stopped = publisher.publish_many(["d", "e", "f"], NOW).unwrap_err();
    assert_eq!((stopped.done, stopped.kind()), (1, ErrorKind::TimedOut));
    assert_eq!(receive(&mut subscriber), ["a", "b", "c", "d"]);
}

#[test]
fn message_that_is_too_long_is_passed_over() {
    let segment = small();
    let publisher = segment.publisher_with(&PublisherOptions::new().max_message(10_000)).unwrap();
    let mut subscriber = segment.subscriber_with(&SubscriberOptions::new().max_message(1000)).unwrap();
    assert_eq!(publisher.publish(&[0; 10_001][..], NEVER).unwrap_err().kind(), ErrorKind::TooLong);
    publisher.publish(&[0; 1001][..], NEVER).unwrap();
    publish(&publisher, &["next"]);
    assert_eq!(subscriber.try_recv().unwrap_err().kind(), ErrorKind::TooLong);
    assert_eq!(receive(&mut subscriber), ["next"]);
}

#[test]
fn newest_message_that_is_too_long_prevents_no_subscriber() {
    let segment = small();
    let publisher = segment.publisher().unwrap();
    publisher.publish(&[0; 1001][..], NEVER).unwrap();
    for must_see_all in [false, true] {
        let begin = SubscriberOptions::new().max_message(1000).start(Start::Latest);
        let mut subscriber = segment.subscriber_with(&begin.must_see_all(must_see_all)).unwrap();
        assert_eq!(subscriber.lag(), 1);
        assert_eq!(subscriber.try_recv().unwrap_err().kind(), ErrorKind::TooLong);
        no_one(&mut subscriber);
    }
}

#[test]
fn oldest_is_the_first_message_that_was_not_dropped() {
    let segment = small();
    let publisher = segment.publisher_with(&PublisherOptions::new().keep_bytes(5000)).unwrap();
    let (first, second) = ("x".repeat(4000), "y".repeat(4000));
    publish(&publisher, &[&first, &second]);
    for must_see_all in [false, true] {
        let begin = SubscriberOptions::new().start(Start::Oldest).must_see_all(must_see_all);
        assert_eq!(receive(&mut segment.subscriber_with(&begin).unwrap()), [&*second]);
    }
}

#[test]
fn any_number_as_tail_causes_errors_and_no_panic() {
    for (tail, word) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (u64::MAX - 1, 1 << 18 | 2 << 16), (1 << 46, 0)]
    {
        let segment = small();
        segment.shared().tail().store(tail, Ordering::Relaxed);
        for cell in 0..4 {
            let cell = segment.shared().cell(cell);
            assert!(cell.swap(CellWord::from_bits(0), CellWord::from_bits(word)) || word == 0);
        }
        let publisher = segment.publisher().unwrap();
        for start in [Start::Now, Start::Oldest, Start::Latest, Start::After(tail)] {
            for must_see_all in [false, true] {
                let begin = SubscriberOptions::new().start(start).must_see_all(must_see_all);
                let Ok(mut subscriber) = segment.subscriber_with(&begin) else { continue };
                publisher.try_publish("a").ok();
                (0..10).for_each(|_| drop(subscriber.try_recv()));
                subscriber.lag();
                subscriber.try_recv_latest().ok();
            }
        }
        segment.stats();
        segment.members().unwrap();
    }
}

#[test]
fn publishers_and_subscribers_of_many_threads_lose_nothing() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };
    for messages in [2, 64] {
        let segment = options().messages(messages).anonymous().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut seen = Vec::new();
            for _ in 0..2 {
                let mut subscriber = segment.subscriber_with(&all()).unwrap();
                seen.push(scope.spawn(move || {
                    (0..2 * EACH).map(|_| subscriber.recv(SOON).unwrap().into_vec()).collect::<Vec<_>>()
                }));
            }
            let mut subscriber = segment.subscriber().unwrap();
            let over = &is_over;
            let lags = scope.spawn(move || {
                let (mut received, mut missed, mut last) = (0, 0, 0);
                loop {
                    match subscriber.try_recv() {
                        Ok(Some(message)) => {
                            let (half, other) = message.split_at(message.len() / 2);
                            assert_eq!(half, other, "halves of two messages");
                            assert!(message.number() > last);
                            (received, last) = (received + 1, message.number());
                        }
                        Ok(None) if over.load(Relaxed) && subscriber.lag() == 0 => return received + missed,
                        Ok(None) => thread::yield_now(),
                        Err(RecvError::Lagged(more)) => missed += more,
                        Err(RecvError::Failed(error)) => panic!("{error}"),
                    }
                }
            });
            let publishing: Vec<_> = (0..2_u64)
                .map(|publisher| {
                    let publishers = segment.publisher().unwrap();
                    scope.spawn(move || {
                        for number in 0..EACH {
                            let half = (publisher << 32 | number).to_le_bytes();
                            publishers.publish(&[half, half].concat(), SOON).unwrap();
                        }
                    })
                })
                .collect();
            publishing.into_iter().for_each(|publisher| publisher.join().unwrap());
            is_over.store(true, Relaxed);
            assert_eq!(lags.join().unwrap(), 2 * EACH);
            let seen: Vec<_> = seen.into_iter().map(|subscriber| subscriber.join().unwrap()).collect();
            assert!(seen[0] == seen[1], "all see one order");
            for publisher in 0..2_u64 {
                let of_one = seen[0].iter().map(|half| u64::from_le_bytes(half[..8].try_into().unwrap()));
                assert!(of_one.filter(|id| id >> 32 == publisher).map(|id| id & 0xFFFF_FFFF).eq(0..EACH));
            }
        });
    }
}

#[test]
fn joining_and_leaving_at_full_speed_disturbs_nobody() {
    let segment = options().messages(8).anonymous().unwrap();
    let mut steady = segment.subscriber_with(&all()).unwrap();
    let guests = AtomicU32::new(2);
    let until = Instant::now() + Duration::from_millis(500);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until {
                    for start in [Start::Now, Start::Oldest, Start::Latest, Start::After(0)] {
                        visit(&segment, start);
                    }
                }
                guests.fetch_sub(1, Relaxed);
            });
        }
        scope.spawn(|| {
            let publisher = segment.publisher().unwrap();
            while guests.load(Relaxed) > 0 {
                publisher.publish("x", SOON).unwrap();
            }
            publisher.publish("the last", SOON).unwrap();
        });
        for number in 1.. {
            let message = steady.recv(SOON).unwrap();
            assert_eq!(message.number(), number);
            if *message == *b"the last" {
                break;
            }
        }
    });
}

/// A subscriber that must see all receives three messages, and leaves.
fn visit(segment: &Segment, start: Start) {
    let mut guest = segment.subscriber_with(&all().start(start)).unwrap();
    let mut last = None;
    for _ in 0..3 {
        match guest.recv(SOON) {
            Ok(message) => {
                assert!(last.is_none_or(|last| message.number() == last + 1), "{start:?} {last:?}");
                last = Some(message.number());
            }
            Err(RecvError::Lagged(_)) => assert_eq!((start, last), (Start::After(0), None)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    crate::reqrep::tests::block_on(future)
}

#[test]
fn ends_can_be_sent_to_other_threads() {
    fn sendable<T: Send>(_: &T) {}
    fn shareable<T: Sync>(_: &T) {}
    let segment = small();
    let (publisher, subscriber) = (segment.publisher().unwrap(), segment.subscriber().unwrap());
    sendable(&publisher);
    shareable(&publisher);
    sendable(&subscriber);
    let _ = Arc::new(subscriber);
}
