//! Broadcast: one message to many receivers through shared memory.
//!
//! Any number of publishers write to a ring in a file that all share. Every subscriber sees all messages, in
//! one order, from where it began. Each subscriber decides for itself what its slowness means: by default it
//! may lag, and then learns exactly how many messages it has missed; or it
//! [must see all](SubscriberOptions::must_see_all), and then publishers wait for it.
//!
//! ```
//! use pipework::Deadline;
//! use pipework::broadcast::Options;
//!
//! let segment = Options::new().anonymous()?;
//! let (publisher, mut subscriber) = (segment.publisher()?, segment.subscriber()?);
//! let number = publisher.publish("ready", Deadline::NEVER)?;
//! let message = subscriber.recv(Deadline::NEVER)?;
//! assert_eq!((&*message, message.number()), (&b"ready"[..], number));
//! # Ok::<(), pipework::Error>(())
//! ```
//!
//! # Promises
//!
//! All subscribers get the messages in the same order, each message once and whole. A message of a publisher
//! that was killed is received by all or by none. A publisher or a subscriber that was killed holds up
//! nobody for longer than its death takes to be noticed: 1 or 2 ms where a process
//! [hears of deaths](crate::reqrep::hears_of_deaths), otherwise 250 ms after the kernel has closed its
//! files. A subscriber that may lag never holds up anybody.
//!
//! A process that is stopped is alive. A subscriber that must see all and is stopped holds up the publishers
//! until their deadline; their error [names its process](crate::Error::process). A publisher that is stopped
//! while it writes a message holds up the subscribers at that message. That takes as long as copying the
//! bytes of a cell, because longer messages are written before.
//!
//! A process that may write to the segment can cause errors and lost service, and nothing else. One that may
//! only read it, in a channel made for [observers](Options::observers), cannot disturb anybody.
//!
//! Not promised: the order of messages that two publishers publish at the same time; that a subscriber which
//! may lag sees any message; that a message which nobody has received survives the channel.

#![doc = include_str!("BROADCAST.md")]

mod word;
mod layout;
mod shared;
mod ring;
mod waiting;
mod segment;
mod future;
mod publisher;
mod subscriber;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod faults;

pub use crate::blob::{Blob, BlobAudit, BlobMut, BlobStats};
pub use crate::segment::header::MAX_MEMBERS;
pub use crate::segment::message::Message;
pub use layout::{Geometry, MAX_BLOBS, MAX_MESSAGE_BYTES, MAX_MESSAGES};
pub use publisher::{Publisher, PublisherOptions};
pub use segment::{Audit, Member, Options, Segment, Stats};
pub use shared::Role;
pub use subscriber::{Received, RecvError, Start, Subscriber, SubscriberOptions};
