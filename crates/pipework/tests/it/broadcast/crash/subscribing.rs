//! Victims that receive, and leave.

use pipework::broadcast::{RecvError, Start};

use super::living::{Living, dead_publisher};
use super::{LONG, MESSAGES, SOON, Stage, policy, subscriber};
use crate::harness::blob_files;
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;

/// The victim receives one message, and dies.
fn receive_text(fate: &Fate, sees_all: bool, text: &str) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, sees_all, |subscriber| {
        let received = subscriber.try_recv().unwrap().unwrap();
        assert!(*received == *text.as_bytes());
    });
    living.publish(text);
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

pub(super) fn receive(fate: &Fate, sees_all: bool) {
    receive_text(fate, sees_all, "short");
}

pub(super) fn receive_long(fate: &Fate, sees_all: bool) {
    receive_text(fate, sees_all, LONG);
}

/// The victim gets the report, and the message behind it.
fn receive_overtaken(fate: &Fate, text: &str) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, false, |subscriber| {
        assert_eq!(subscriber.try_recv().unwrap_err(), RecvError::Lagged(u64::from(MESSAGES)));
        subscriber.try_recv().unwrap().unwrap();
    });
    (0..2).for_each(|_| living.fill(text));
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

pub(super) fn receive_after_a_lag(fate: &Fate) {
    receive_overtaken(fate, "short");
}

pub(super) fn receive_long_after_a_lag(fate: &Fate) {
    receive_overtaken(fate, LONG);
}

pub(super) fn receive_latest(fate: &Fate, sees_all: bool) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, sees_all, |subscriber| {
        let latest = subscriber.try_recv_latest().unwrap().unwrap();
        assert_eq!(latest.number(), u64::from(MESSAGES));
    });
    living.fill(LONG);
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// A publisher waits for the victim.
pub(super) fn receive_and_make_room(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, true, |subscriber| {
        subscriber.try_recv().unwrap().unwrap();
    });
    living.fill("short");
    let died = living.publish_while("awaited", || victim.die());
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// A message comes when the victim sleeps.
pub(super) fn wait(fate: &Fate, sees_all: bool) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, sees_all, |subscriber| {
        subscriber.recv(SOON).unwrap();
    });
    let died = victim.die_but_first(|| living.publish("awaited"));
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

pub(super) fn receive_behind_a_dead_publisher(fate: &Fate, sees_all: bool) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = subscriber(fate, &stage.segment, sees_all, |subscriber| {
        assert_eq!(&*subscriber.recv(SOON).unwrap(), b"behind");
    });
    dead_publisher(&stage.segment);
    living.publish("behind");
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// With `holds_up`, the victim must see all, and a publisher waits for it.
pub(super) fn leave(fate: &Fate, holds_up: bool) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let victim = fate.victim(segment, || {
        let subscriber = segment.subscriber_with(&policy(holds_up)).unwrap();
        mark();
        drop(subscriber);
        mark();
    });
    living.fill(LONG);
    let died = match holds_up {
        true => living.publish_while("awaited", || victim.die()),
        false => victim.die(),
    };
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

/// The victim is the last holder of the blob: the ring has gone on.
pub(super) fn drop_received(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.publish_attached("short");
    living.catch_up();
    let victim = fate.victim(segment, || {
        let mut subscriber = segment.subscriber_with(&policy(false).start(Start::Oldest)).unwrap();
        let received = subscriber.try_recv().unwrap().unwrap();
        mark();
        drop(received);
        mark();
    });
    living.fill("short");
    assert_eq!(blob_files(segment).len(), 1, "the victim holds it");
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}
