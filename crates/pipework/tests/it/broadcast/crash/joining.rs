//! Victims that become members, and those that make, recover and remove a channel.

use std::time::Instant;

use pipework::ErrorKind;
use pipework::broadcast::{Segment, Start};

use super::living::{Living, dead_subscriber, dying_publisher};
use super::{LONG, MESSAGES, Stage, options, policy};
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;
use crate::harness::{Folder, PATIENCE};

pub(super) fn attach_publisher(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let living = Living::new(segment);
    let victim = fate.victim(segment, || {
        mark();
        let publisher = segment.publisher().unwrap();
        mark();
        drop(publisher);
    });
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// The victim takes the number of a dead publisher, and recovers its cell; a dead subscriber stays.
pub(super) fn attach_in_a_dead_place(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.publish(LONG);
    let dying = dying_publisher(segment);
    // It does not get the number of the publisher.
    dead_subscriber(segment);
    dying.kill();
    living.publish(LONG);
    let victim = fate.victim(segment, || {
        mark();
        let publisher = segment.publisher().unwrap();
        mark();
        drop(publisher);
    });
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// The ring has gone over the first messages.
pub(super) fn subscribe(fate: &Fate, start: Start, sees_all: bool) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.fill("short");
    living.fill(LONG);
    let victim = fate.victim(segment, || {
        mark();
        let subscriber = segment.subscriber_with(&policy(sees_all).start(start)).unwrap();
        mark();
        drop(subscriber);
    });
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// The victim has inherited a publisher.
pub(super) fn publish_after_fork(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let publisher = segment.publisher().unwrap();
    living.fill(LONG);
    let victim = fate.victim(segment, || {
        mark();
        publisher.try_publish("victim").unwrap().unwrap();
        mark();
    });
    let died = victim.die();
    drop(publisher);
    living.go_on(fate, died, &["victim"]);
    stage.assert_whole();
}

/// The victim has inherited a subscriber, whose next message the ring still has.
pub(super) fn receive_after_fork(fate: &Fate, sees_all: bool) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let mut subscriber = segment.subscriber_with(&policy(sees_all)).unwrap();
    // One fewer than the ring keeps, so that one that must see all can still begin with the first.
    (1..MESSAGES).for_each(|_| living.publish("short"));
    living.catch_up();
    let victim = fate.victim(segment, || {
        mark();
        assert_eq!(subscriber.try_recv().unwrap().unwrap().number(), 1);
        mark();
    });
    let died = victim.die();
    assert_eq!(subscriber.try_recv().unwrap().unwrap().number(), 1, "the parent's goes on");
    drop(subscriber);
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// A cell and a cursor are left.
pub(super) fn recover(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.fill(LONG);
    let dying = dying_publisher(segment);
    dead_subscriber(segment);
    dying.kill();
    let victim = fate.victim(segment, || {
        mark();
        assert_eq!(segment.recover(), Ok(2));
        mark();
    });
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// The name leads to a complete channel, or to none.
pub(super) fn create(fate: &Fate) {
    let folder = Folder::new();
    let path = folder.join("channel");
    let victim = fate.victim(None::<&Segment>, || {
        mark();
        let segment = options().create(&path).unwrap();
        mark();
        drop(segment);
    });
    let died = victim.die();
    let segment = match options().open(&path) {
        Ok(segment) => segment,
        Err(error) => {
            assert!(!fate.is_complete() && error.kind() == ErrorKind::Os, "{error}");
            options().create(&path).unwrap()
        }
    };
    works(fate, died, Stage { folder, segment });
}

pub(super) fn unlink(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.fill(LONG);
    let victim = fate.victim(segment, || {
        mark();
        assert_eq!(segment.unlink(), Ok(true));
        mark();
    });
    let died = victim.die();
    assert!(!fate.is_complete() || !stage.path().exists());
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

fn works(fate: &Fate, died: Instant, stage: Stage) {
    let mut living = Living::new(&stage.segment);
    (0..MESSAGES).for_each(|_| living.publish(LONG));
    let received = stage.segment.subscriber_with(&policy(false).start(Start::Oldest)).unwrap().recv(PATIENCE);
    assert_eq!(received.unwrap().number(), 1);
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}
