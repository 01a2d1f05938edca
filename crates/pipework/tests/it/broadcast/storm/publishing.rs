//! The life of a process that publishes.

use std::thread::sleep;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::broadcast::{Message, Publisher, PublisherOptions, Segment};

use super::board::Count;
use super::{Hall, Run};
use crate::harness::{PATIENCE, Random, blob_of};

/// Bytes of the id in front of a message.
pub(super) const ID: usize = 8;

pub(super) fn attach(segment: &Segment, run: &Run) -> Publisher {
    segment.publisher_with(&PublisherOptions::new().keep_bytes(run.keep_bytes)).expect("a place")
}

/// The message with this id, which no other has.
pub(super) fn message(run: &Run, id: u64) -> Vec<u8> {
    let mut random = Random::new(run.seed ^ id);
    let most = [run.message_bytes, run.message_bytes, run.message_bytes, run.max_bytes][random.below(4)];
    let len = random.below(most.max(ID) - ID + 1);
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend(random.bytes(len));
    bytes
}

/// The blob that a message with this id carries, if it does.
pub(super) fn attached(run: &Run, id: u64) -> Option<Vec<u8>> {
    let mut random = Random::new(!run.seed ^ id);
    random.below(8).eq(&0).then(|| random.bytes(3000))
}

/// Publishes until that ends, or until it is killed.
pub(super) fn publish(hall: &Hall<'_>, number: usize, segment: &Segment, inherited: Option<Publisher>) {
    let (run, board) = (hall.run, &hall.board);
    let mut random = Random::new(run.seed ^ (number as u64) << 20);
    let mut publisher = inherited.unwrap_or_else(|| attach(segment, run));
    let mut count = 0;
    let mut next_id = || {
        count += 1;
        (number as u64 + 1) << 32 | count
    };
    while !board.publishing_has_ended() {
        if let Some(rest) = board.pace() {
            sleep(rest);
        }
        let began_ns = board.now_ns();
        let published = match random.below(40) {
            0 => {
                publisher = attach(segment, run);
                continue;
            }
            1..6 => {
                let ids = [(); 3].map(|()| next_id());
                let texts = ids.map(|id| message(run, id));
                let done = publisher.publish_many(texts.iter().map(Vec::as_slice), PATIENCE);
                board.add(Count::Published, 3);
                done.map(|last| (last, ids[2])).map_err(|unfinished| unfinished.error).map(Some)
            }
            choice => {
                let id = next_id();
                let (text, blob) = (message(run, id), attached(run, id));
                let blob = blob.map(|bytes| blob_of(segment, &bytes));
                let message = blob.iter().fold(Message::new(&text), |message, blob| message.attach(blob));
                let published = match choice {
                    6..14 => publisher.try_publish(message),
                    14..18 => publisher.publish(message, Duration::from_micros(300)).map(Some),
                    _ => publisher.publish(message, PATIENCE).map(Some),
                };
                if let Ok(Some(_)) = published {
                    board.add(Count::Published, 1);
                    board.add(Count::Long, (text.len() > run.message_bytes).into());
                    board.add(Count::Attached, blob.is_some().into());
                }
                published.map(|published| published.map(|published| (published, id)))
            }
        };
        match published {
            Ok(Some((published, id))) => board.published(published, id),
            Ok(None) => {
                board.add(Count::NoRoom, 1);
                std::thread::yield_now();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{}", error);
                board.add(Count::TimedOut, 1);
            }
        }
        board.waited(began_ns, &|| format!("publisher {number}, {run:?}"));
    }
}
