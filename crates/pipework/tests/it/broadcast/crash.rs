//! The promises of the module, instruction by instruction. In every scene a victim does one operation and is
//! killed or stopped at one point of it, and the other processes go on.
//!
//! `harness/scenes.rs` plays them. The survivors are a publisher, a subscriber that must see all, and one
//! that may lag: they must finish by themselves and in time, in whatever state the victim left the segment.
//! All that they receive is [checked](living::Living::go_on), and at the end nothing may be
//! [missing](assert_whole).

use std::path::PathBuf;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::broadcast::{Options, Publisher, Segment, Start, Subscriber, SubscriberOptions};

use crate::harness::fate::{Fate, Victim};
use crate::harness::scenes::{NamedScene, patience, play_scenes};
use crate::harness::tracee::mark;
use crate::harness::{Folder, PATIENCE, alone_for, blob_files, left_to_test_all};

mod living;
mod publishing;
mod subscribing;
mod joining;
mod stopping;

const SCENES: [NamedScene; 46] = [
    ("publish", publishing::publish),
    ("publish to sleeping subscribers", publishing::publish_to_sleepers),
    ("publish a long message", publishing::publish_long),
    ("publish over old messages", publishing::publish_over),
    ("publish a long message over old ones", publishing::publish_long_over),
    ("publish an attached blob", publishing::publish_attached),
    ("publish many", publishing::publish_many),
    ("publish and drop", publishing::publish_and_drop),
    ("publish, waiting for room", publishing::publish_waiting_for_room),
    ("publish, waiting to drop", publishing::publish_waiting_to_drop),
    ("publish, waiting for a dead subscriber", publishing::publish_after_a_dead_subscriber),
    ("publish, waiting for a dead publisher", publishing::publish_after_a_dead_publisher),
    ("publish that times out", publishing::publish_too_late),
    ("close a publisher", publishing::close),
    ("attach a publisher", joining::attach_publisher),
    ("attach in a dead member's place", joining::attach_in_a_dead_place),
    ("subscribe now", |fate| joining::subscribe(fate, Start::Now, false)),
    ("subscribe to the oldest", |fate| joining::subscribe(fate, Start::Oldest, false)),
    ("subscribe to the latest", |fate| joining::subscribe(fate, Start::Latest, false)),
    ("subscribe after a number", |fate| joining::subscribe(fate, Start::After(2), false)),
    ("subscribe to all now", |fate| joining::subscribe(fate, Start::Now, true)),
    ("subscribe to all from the oldest", |fate| joining::subscribe(fate, Start::Oldest, true)),
    ("subscribe to all from the latest", |fate| joining::subscribe(fate, Start::Latest, true)),
    ("subscribe to all after a number", |fate| joining::subscribe(fate, Start::After(2), true)),
    ("first publication after a fork", joining::publish_after_fork),
    ("first reception after a fork", |fate| joining::receive_after_fork(fate, false)),
    ("first reception of all after a fork", |fate| joining::receive_after_fork(fate, true)),
    ("receive", |fate| subscribing::receive(fate, false)),
    ("receive all", |fate| subscribing::receive(fate, true)),
    ("receive a long message", |fate| subscribing::receive_long(fate, false)),
    ("receive all, a long message", |fate| subscribing::receive_long(fate, true)),
    ("receive after a lag", subscribing::receive_after_a_lag),
    ("receive a long message after a lag", subscribing::receive_long_after_a_lag),
    ("receive the latest", |fate| subscribing::receive_latest(fate, false)),
    ("receive the latest of all", |fate| subscribing::receive_latest(fate, true)),
    ("receive and make room", subscribing::receive_and_make_room),
    ("wait for a message", |fate| subscribing::wait(fate, false)),
    ("wait for all messages", |fate| subscribing::wait(fate, true)),
    ("receive behind a dead publisher", |fate| subscribing::receive_behind_a_dead_publisher(fate, false)),
    ("receive all behind a dead publisher", |fate| subscribing::receive_behind_a_dead_publisher(fate, true)),
    ("leave", |fate| subscribing::leave(fate, false)),
    ("leave while a publisher waits", |fate| subscribing::leave(fate, true)),
    ("recover", joining::recover),
    ("create", joining::create),
    ("unlink", joining::unlink),
    ("drop a received blob", subscribing::drop_received),
];

/// Scenes whose victim stops where it would die in others, and then goes on.
const STOPPING: [NamedScene; 5] = [
    ("stopped: publish", |fate| stopping::publish(fate, "victim")),
    ("stopped: publish a long message", |fate| stopping::publish(fate, "victim: a long message")),
    ("stopped: receive all", stopping::receive_all),
    ("stopped: receive what is overtaken", stopping::receive_overtaken),
    ("stopped: subscribe to all", stopping::subscribe_to_all),
];

#[test]
fn kill_at_any_instruction_leaves_the_channel_usable() {
    if left_to_test_all("thousands of kills, each after another instruction") {
        return;
    }
    alone_for(patience(), || play(&SCENES));
}

#[test]
fn stop_at_any_instruction_disturbs_others_no_longer_than_their_deadline() {
    if left_to_test_all("thousands of stops, each after another instruction") {
        return;
    }
    alone_for(patience(), || play(&STOPPING));
}

fn play(scenes: &[NamedScene]) {
    play_scenes(scenes, || Stage::new().assert_whole());
}

// ---------------------------------------------------------------- parts of scenes

/// The smallest useful ring.
const MESSAGES: u32 = 4;
/// Bytes of a cell. The text of a longer message ends with [`LONG`].
const CELL: usize = 16;
const LONG: &str = ", which is too long for a cell";

/// The longest time that a victim waits. The event it waits for comes as soon as the victim sleeps,
/// except in rare cases.
const SOON: Duration = Duration::from_secs(10);

/// A channel at a path in a folder of its own. No process keeps files for later blobs, and no thread spins.
struct Stage {
    folder: Folder,
    segment: Segment,
}

fn options() -> Options {
    let options = Options::new().messages(MESSAGES).message_bytes(CELL as u32).members(7).blobs(1);
    options.spin(Duration::ZERO).blob_pool(0)
}

fn all() -> SubscriberOptions {
    SubscriberOptions::new().must_see_all(true)
}

fn policy(sees_all: bool) -> SubscriberOptions {
    SubscriberOptions::new().must_see_all(sees_all)
}

/// A victim that is a publisher.
fn publisher<'a>(fate: &Fate, segment: &'a Segment, operation: impl FnOnce(&Publisher)) -> Victim<'a> {
    fate.victim(segment, || {
        let publisher = segment.publisher().unwrap();
        mark();
        operation(&publisher);
        mark();
    })
}

/// A victim that is a subscriber.
fn subscriber<'a>(
    fate: &Fate,
    segment: &'a Segment,
    sees_all: bool,
    operation: impl FnOnce(&mut Subscriber),
) -> Victim<'a> {
    fate.victim(segment, || {
        let mut subscriber = segment.subscriber_with(&policy(sees_all)).unwrap();
        mark();
        operation(&mut subscriber);
        mark();
    })
}

impl Stage {
    fn new() -> Stage {
        let folder = Folder::new();
        let segment = options().create(folder.join("channel")).unwrap();
        Stage { folder, segment }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("channel")
    }

    /// Checks what must hold once all members have ended, whichever processes died at whichever point:
    /// nothing is claimed, no cursor is left, all files of blobs are those of messages in the ring, every
    /// place for members can be taken, and messages arrive.
    fn assert_whole(self) {
        let Stage { folder, segment } = self;
        segment.recover().expect("recovery works");
        let audit = segment.audit().expect("the audit works");
        assert_eq!((audit.writing, audit.orphaned), (0, 0), "after recovery: {audit:?}");
        let blobs = segment.blob_audit();
        assert_eq!((blobs.files, blobs.left), (blobs.named, 0), "after recovery: {blobs:?}");
        assert_eq!(segment.members(), Ok(vec![]), "after recovery");
        assert_eq!(segment.recover(), Ok(0), "a second time");

        let places = 0..segment.geometry().members;
        let members: Vec<_> =
            places.map(|_| segment.subscriber_with(&all()).expect("a free place")).collect();
        let refused = segment.publisher().map_err(|error| error.kind());
        assert_eq!(refused.map(|_| ()), Err(ErrorKind::WouldBlock), "all places are taken");
        drop(members);

        let publisher = segment.publisher().expect("a place");
        let mut sees_all = segment.subscriber_with(&all()).expect("a place");
        let mut lags = segment.subscriber().expect("a place");
        for turn in 0..30 {
            let text = format!("turn {turn}{}", ["", LONG][turn % 2]);
            publisher.publish(&text, PATIENCE).expect("there is room");
            for subscriber in [&mut sees_all, &mut lags] {
                let received = subscriber.try_recv().expect("no error").expect("it was published");
                assert!(*received == *text.as_bytes(), "{received:?}");
            }
        }
        for _ in 0..MESSAGES {
            publisher.try_publish("").expect("no error").expect("there is room");
            sees_all.try_recv().expect("no error").expect("it was published");
        }
        assert_eq!(blob_files(&segment).len(), 0, "the ring has gone on");
        drop((publisher, sees_all, lags, segment, folder));
    }
}
