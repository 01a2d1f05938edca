//! Victims that publish.

use pipework::Deadline;
use pipework::ErrorKind;
use pipework::broadcast::{Message, PublisherOptions};

use super::living::{Living, dead_publisher, dead_subscriber};
use super::{LONG, MESSAGES, SOON, Stage, publisher};
use crate::harness::blob_of;
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;

/// The text of the victim in a cell.
const SHORT: &str = "victim";

fn long() -> String {
    format!("{SHORT}{LONG}")
}

/// The victim publishes to a ring that others have left so, and dies.
fn publish_text(fate: &Fate, text: &str, set_up: impl FnOnce(&mut Living)) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    set_up(&mut living);
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.try_publish(text).unwrap().unwrap();
    });
    let died = victim.die();
    living.go_on(fate, died, &[text]);
    stage.assert_whole();
}

pub(super) fn publish(fate: &Fate) {
    publish_text(fate, SHORT, |_| ());
}

pub(super) fn publish_long(fate: &Fate) {
    publish_text(fate, &long(), |_| ());
}

/// Its cell has an old message, whose blob goes.
pub(super) fn publish_over(fate: &Fate) {
    publish_text(fate, SHORT, |living| living.fill(LONG));
}

pub(super) fn publish_long_over(fate: &Fate) {
    publish_text(fate, &long(), |living| living.fill(LONG));
}

/// The victim wakes them, or dies before that.
pub(super) fn publish_to_sleepers(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.try_publish(SHORT).unwrap().unwrap();
    });
    let died = living.asleep_while(|| victim.die());
    living.go_on(fate, died, &[SHORT]);
    stage.assert_whole();
}

pub(super) fn publish_attached(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    living.fill(LONG);
    let victim = fate.victim(segment, || {
        let (publisher, blob) = (segment.publisher().unwrap(), blob_of(segment, b"attached"));
        mark();
        publisher.try_publish(Message::new(SHORT).attach(&blob)).unwrap().unwrap();
        drop(blob);
        mark();
    });
    let died = victim.die();
    living.go_on(fate, died, &[SHORT]);
    stage.assert_whole();
}

pub(super) fn publish_many(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    living.fill(LONG);
    let texts = ["victim 1".to_owned(), format!("victim 2{LONG}"), "victim 3".to_owned()];
    let texts = texts.each_ref().map(String::as_str);
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.publish_many(texts, Deadline::now()).unwrap();
    });
    let died = living.asleep_while(|| victim.die());
    living.go_on(fate, died, &texts);
    stage.assert_whole();
}

/// The victim takes its first long message back for the third one.
pub(super) fn publish_and_drop(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let texts = [1, 2, 3].map(|nth| format!("victim {nth}{LONG}"));
    let texts = texts.each_ref().map(String::as_str);
    let victim = fate.victim(segment, || {
        let options = PublisherOptions::new().keep_bytes(2 * texts[0].len() as u64);
        let publisher = segment.publisher_with(&options).unwrap();
        publisher.try_publish(texts[0]).unwrap().unwrap();
        publisher.try_publish(texts[1]).unwrap().unwrap();
        mark();
        publisher.try_publish(texts[2]).unwrap().unwrap();
        mark();
    });
    living.catch_up();
    let died = victim.die();
    living.go_on(fate, died, &texts);
    stage.assert_whole();
}

/// The subscriber that must see all receives the first message when the victim sleeps.
pub(super) fn publish_waiting_for_room(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    (0..MESSAGES).for_each(|_| living.publish("before"));
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.publish(SHORT, SOON).unwrap();
    });
    let died = victim.die_but_first(|| living.catch_up());
    living.go_on(fate, died, &[SHORT]);
    stage.assert_whole();
}

pub(super) fn publish_waiting_to_drop(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let mut living = Living::new(segment);
    let texts = [1, 2].map(|nth| format!("victim {nth}{LONG}"));
    let texts = texts.each_ref().map(String::as_str);
    let victim = fate.victim(segment, || {
        let publisher = segment.publisher_with(&PublisherOptions::new().keep_bytes(1)).unwrap();
        publisher.try_publish(texts[0]).unwrap().unwrap();
        mark();
        publisher.publish(texts[1], SOON).unwrap();
        mark();
    });
    let died = victim.die_but_first(|| living.catch_up());
    living.go_on(fate, died, &texts);
    stage.assert_whole();
}

pub(super) fn publish_after_a_dead_subscriber(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    dead_subscriber(&stage.segment);
    living.fill(LONG);
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.publish(SHORT, SOON).unwrap();
    });
    let died = victim.die();
    living.go_on(fate, died, &[SHORT]);
    stage.assert_whole();
}

/// The cell of the victim's message is the one that a publisher has died with.
pub(super) fn publish_after_a_dead_publisher(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    dead_publisher(&stage.segment);
    (1..MESSAGES).for_each(|_| living.publish("behind"));
    let victim = publisher(fate, &stage.segment, |publisher| {
        publisher.publish(SHORT, SOON).unwrap();
    });
    // The subscriber that must see all stands at the dead one's message, too.
    let died = victim.die_but_first(|| living.catch_up());
    living.go_on(fate, died, &[SHORT]);
    stage.assert_whole();
}

pub(super) fn publish_too_late(fate: &Fate) {
    let stage = Stage::new();
    let mut living = Living::new(&stage.segment);
    (0..MESSAGES).for_each(|_| living.publish("before"));
    let text = long();
    let victim = fate.victim(&stage.segment, || {
        let (publisher, now) = (stage.segment.publisher().unwrap(), Deadline::now());
        mark();
        let late = publisher.publish(&text, now).unwrap_err();
        mark();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
    let died = victim.die();
    living.go_on(fate, died, &[]);
    stage.assert_whole();
}

pub(super) fn close(fate: &Fate) {
    let stage = Stage::new();
    let segment = &stage.segment;
    let living = Living::new(segment);
    let text = long();
    let victim = fate.victim(segment, || {
        let publisher = segment.publisher().unwrap();
        publisher.try_publish(&text).unwrap().unwrap();
        mark();
        drop(publisher);
        mark();
    });
    let died = victim.die();
    living.go_on(fate, died, &[&text]);
    stage.assert_whole();
}
