//! pipework's broadcast, in a channel made as the contender says.

use std::os::fd::AsFd;
use std::time::Duration;

use pipework::Deadline;
use pipework::broadcast::{
    self, Message, Options, PublisherOptions, RecvError, Segment, Subscriber, SubscriberOptions,
};

use super::deliveries::{Channel, NUMBER, Publish, Receive, Task, number};
use crate::measure::Failure;

#[derive(Clone, Copy)]
pub struct Settings {
    pub sees_all: bool,
    pub observers: bool,
    /// The subscribers may only read the segment.
    pub observes: bool,
    pub members: u32,
    pub large: Large,
}

/// How a message that is longer than a cell is published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Large {
    /// As it is: it is copied into a blob.
    Copied,
    /// In a blob in which it was made: of its bytes only the number is written.
    Blob,
    /// The same blob again and again, in which the number stays that of the first.
    SameBlob,
}

pub const USUAL: Settings = Settings {
    sees_all: false,
    observers: false,
    observes: false,
    members: pipework::defaults::MEMBERS,
    large: Large::Copied,
};

/// Blobs of any size that a process keeps for the next messages: the publisher makes one while
/// subscribers may still have the last ones.
const POOL: u64 = 4;

pub struct Pipework {
    segment: Segment,
    task: Task,
    settings: Settings,
}

impl Pipework {
    pub fn new(task: &Task, settings: Settings) -> Result<Pipework, Failure> {
        let options = Options::new().members(settings.members).observers(settings.observers);
        let pool = pipework::defaults::BLOB_POOL.max(POOL * task.bytes as u64);
        let options = options.blob_pool(pool);
        let options = if task.sleeps() { options.spin(Duration::ZERO) } else { options };
        Ok(Pipework { segment: options.anonymous()?, task: *task, settings })
    }

    /// The segment, or the same file opened for reading.
    fn seen(&self) -> Result<Segment, Failure> {
        if !self.settings.observes {
            return Ok(self.segment.clone());
        }
        let options = Options::new().read_only(true);
        let options = if self.task.sleeps() { options.spin(Duration::ZERO) } else { options };
        Ok(options.dup_fd(self.segment.as_fd())?)
    }
}

impl Channel for Pipework {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn publisher(&self) -> Result<Publisher, Failure> {
        let options = PublisherOptions::new().max_message(self.task.bytes.max(1 << 20));
        let publisher = self.segment.publisher_with(&options)?;
        let Settings { large, .. } = self.settings;
        let is_large = self.task.bytes > pipework::defaults::MESSAGE_BYTES as usize;
        let large = if is_large { large } else { Large::Copied };
        let same = (large == Large::SameBlob).then(|| self.segment.blob(self.task.bytes)?.freeze());
        let same = same.transpose()?;
        let bytes = if large == Large::Copied { self.task.bytes } else { NUMBER };
        Ok(Publisher { publisher, payload: vec![7; bytes], task: self.task, large, same })
    }

    fn subscriber(&self, _nth: usize) -> Result<Subscriber, Failure> {
        let options = SubscriberOptions::new().must_see_all(self.settings.sees_all);
        let options = options.max_message(self.task.bytes.max(1 << 20));
        Ok(self.seen()?.subscriber_with(&options)?)
    }
}

pub struct Publisher {
    publisher: broadcast::Publisher,
    /// The message, or what goes along with its blob.
    payload: Vec<u8>,
    task: Task,
    large: Large,
    same: Option<broadcast::Blob>,
}

impl Publish for Publisher {
    fn publish(&mut self, number: u64) -> Result<(), Failure> {
        self.payload[..NUMBER].copy_from_slice(&number.to_ne_bytes());
        let message = Message::new(&self.payload);
        match self.large {
            Large::Copied => self.publisher.publish(message, Deadline::NEVER)?,
            Large::Blob => {
                let mut draft = self.publisher.segment().blob(self.task.bytes)?;
                draft[..NUMBER].copy_from_slice(&number.to_ne_bytes());
                self.publisher.publish(message.attach(&draft.freeze()?), Deadline::NEVER)?
            }
            Large::SameBlob => {
                let blob = self.same.as_ref().ok_or("no blob")?;
                self.publisher.publish(message.attach(blob), Deadline::NEVER)?
            }
        };
        Ok(())
    }
}

impl Receive for Subscriber {
    fn receive(&mut self) -> Result<Option<u64>, Failure> {
        loop {
            match self.recv(Deadline::NEVER) {
                Ok(received) => {
                    let found = number(&received)?;
                    if let Some(blob) = received.blobs().first() {
                        std::hint::black_box(number(blob)?);
                    }
                    return Ok(Some(found));
                }
                // The message that comes next says how many.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Failed(error)) => return Err(error.into()),
            }
        }
    }
}
