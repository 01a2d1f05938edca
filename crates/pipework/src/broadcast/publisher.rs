//! The publishing end.

use std::cell::LazyCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::ring::{Claimed, Cursors};
use super::segment::Segment;
use super::shared::{Described, FULL, Role, Shared};
use super::waiting::{Attached, Liveness, Steps, Topic, Watcher, WatcherState};
use super::word::Position;
use crate::blob::Blob;
use crate::deadline::Deadline;
use crate::defaults;
use crate::error::{Error, ErrorKind, Explanation, Result, Unfinished};
use crate::event::Wait;
use crate::segment::mapping::count;
use crate::segment::message::Message;
use crate::segment::naming::Naming;
use crate::spin::{Looks, Spin};
use crate::sync::{Own, Reach};

pub(super) const PUBLISH: &str = "broadcast publish";

/// Publishes messages. Clones are the same publisher; its methods may be called by several threads at the
/// same time. In a forked child it is another member.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Dropped first: its thread uses the rest.
    watcher: Watcher,
    segment: Segment,
    attached: Attached,
    liveness: Arc<Liveness>,
    cursors: Cursors,
    kept: Own<Kept>,
    options: PublisherOptions,
    spin: Spin,
}

impl std::fmt::Debug for Own<Kept> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

/// The messages of this process in the ring that are in blobs, oldest first.
#[derive(Default)]
struct Kept {
    messages: VecDeque<(Position, u64)>,
    bytes: u64,
}

/// The settings of a publisher. They are given [when it is made](Segment::publisher_with), and hold for all
/// of its clones.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    max_message: usize,
    keep_bytes: u64,
}

impl Default for PublisherOptions {
    fn default() -> PublisherOptions {
        PublisherOptions { max_message: defaults::MAX_MESSAGE, keep_bytes: defaults::KEEP_BYTES }
    }
}

impl PublisherOptions {
    /// Messages of up to [`defaults::MAX_MESSAGE`] bytes, of which the ring keeps
    /// [`defaults::KEEP_BYTES`] in blobs.
    pub fn new() -> PublisherOptions {
        PublisherOptions::default()
    }

    /// Bytes of the longest message. A longer one is `TooLong`, unless it fits into a cell.
    pub fn max_message(self, bytes: usize) -> PublisherOptions {
        PublisherOptions { max_message: bytes, ..self }
    }

    /// Bytes of this publisher's messages that the ring keeps in blobs, with those that are attached. When
    /// a message would exceed it, the publisher first drops its oldest ones: subscribers that may lag and
    /// have not received one have missed it, and for those that must see all it waits, as for room in the
    /// ring. The newest message stays until the next one is there, whatever its size. Messages in cells do
    /// not count.
    pub fn keep_bytes(self, bytes: u64) -> PublisherOptions {
        PublisherOptions { keep_bytes: bytes, ..self }
    }
}

/// The blobs of a message that is ready to be published: all that can fail has been done.
struct InBlobs {
    /// The payload, if it is longer than a cell.
    long: Option<Blob>,
    attached: Vec<Blob>,
    /// Bytes of them all.
    bytes: u64,
}

impl Segment {
    /// Attaches a publisher with the default settings.
    ///
    /// # Errors
    ///
    /// As [`publisher_with`](Segment::publisher_with).
    pub fn publisher(&self) -> Result<Publisher> {
        self.publisher_with(&PublisherOptions::new())
    }

    /// Attaches a publisher.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if all places for members are taken; `Unsupported` if the segment was opened
    /// [to read](super::Options::read_only); `Os`; `Corrupt` if the segment was damaged.
    pub fn publisher_with(&self, options: &PublisherOptions) -> Result<Publisher> {
        let attached = self.join(Role::Publisher, "broadcast attach publisher")?;
        let inner = Inner {
            watcher: Watcher::new(),
            liveness: Arc::new(Liveness::new(&attached)),
            attached,
            cursors: Cursors::new(),
            kept: Own::default(),
            options: options.clone(),
            spin: Spin::new(self.spin(), Looks::Load),
            segment: self.clone(),
        };
        Ok(Publisher { inner: Arc::new(inner) })
    }
}

impl Publisher {
    /// The segment that it is attached to.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    fn shared(&self) -> &Arc<Shared> {
        self.inner.segment.shared()
    }

    /// Publishes a message; returns its number. All subscribers get all messages in the order of their
    /// numbers, which begin with 1. A number that a publisher had taken when it was killed is passed over.
    ///
    /// # Blocking
    ///
    /// It waits only for subscribers that [must see all](super::SubscriberOptions::must_see_all), while
    /// the oldest message of a full ring is one that they have not received. If such a subscriber dies or
    /// leaves, it does not wait for it any longer. It also waits for another publisher that is stopped in
    /// the middle of writing the message which a full ring has at this place.
    ///
    /// # Errors
    ///
    /// `TimedOut`: nothing was published. [`Error::process`] says whom it has waited for. `Interrupted`:
    /// a signal came, and nothing was published. `TooLong`: the message is longer than
    /// [`max_message`](PublisherOptions::max_message), or has more blobs than the channel was made for.
    /// `Os` with ENOSPC: there is no memory for the blob of a long message; nothing was published, and no
    /// number was taken. `Corrupt`: the segment was damaged. In a forked child also the errors of
    /// [`Segment::publisher`].
    #[inline]
    pub fn publish<'a>(&self, message: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Result<u64> {
        let message = message.into();
        let blobs = self.in_blobs(&message, PUBLISH)?;
        match self.attempt(&message, blobs.as_deref(), true, PUBLISH)? {
            Some(number) => Ok(number),
            None => self.wait(&message, blobs.as_deref(), deadline.into(), PUBLISH),
        }
    }

    /// Publishes a message if it need not wait; `None` if it had to.
    ///
    /// # Errors
    ///
    /// As [`publish`](Publisher::publish), but never `TimedOut` or `Interrupted`.
    pub fn try_publish<'a>(&self, message: impl Into<Message<'a>>) -> Result<Option<u64>> {
        const OP: &str = "broadcast try_publish";
        let message = message.into();
        let blobs = self.in_blobs(&message, OP)?;
        let number = self.attempt(&message, blobs.as_deref(), true, OP)?;
        if number.is_some() {
            return Ok(number);
        }
        self.inner.watcher.found_none();
        // The check may free the ring of a dead subscriber.
        if self.inner.liveness.look_after(None, OP)? {
            return self.attempt(&message, blobs.as_deref(), true, OP);
        }
        Ok(number)
    }

    /// Publishes messages one after the other, and wakes the subscribers once; returns the number of the
    /// last one, 0 if there are none. The deadline is for all together. Messages of other publishers may
    /// come in between.
    ///
    /// # Errors
    ///
    /// As [`publish`](Publisher::publish), for the first message that was not published.
    pub fn publish_many<'a, M: Into<Message<'a>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
        deadline: impl Into<Deadline>,
    ) -> std::result::Result<u64, Unfinished> {
        const OP: &str = "broadcast publish_many";
        let deadline = LazyCell::new(|| deadline.into());
        let (mut done, mut last) = (0, 0);
        let publish = |message: Message<'_>| {
            let blobs = self.in_blobs(&message, OP)?;
            match self.attempt(&message, blobs.as_deref(), false, OP)? {
                Some(number) => Ok(number),
                None => {
                    self.shared().tell_subscribers();
                    self.wait(&message, blobs.as_deref(), *deadline, OP)
                }
            }
        };
        let mut ended = Ok(());
        for message in messages {
            match publish(message.into()) {
                Ok(number) => (done, last) = (done + 1, number),
                Err(error) => {
                    ended = Err(Unfinished { done, error });
                    break;
                }
            }
        }
        if done > 0 {
            self.shared().tell_subscribers();
        }
        ended.map(|()| last)
    }

    /// A descriptor that is readable while there may be room in the ring, after
    /// [`try_publish`](Publisher::try_publish) had returned `None`. The caller owns it, polls it, and never
    /// reads from it.
    ///
    /// # Errors
    ///
    /// `Os` if no thread or descriptor can be had; `Stale` if the process was forked meanwhile.
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "broadcast doorbell";
        self.watch(OP)?.descriptor(OP)
    }

    pub(super) fn watch(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        let topic = || Topic {
            shared: Arc::clone(self.shared()),
            liveness: Arc::clone(&self.inner.liveness),
            steps: Steps::Room,
        };
        self.inner.watcher.watch(topic, op)
    }

    /// Does all that may fail before a number is taken. `None` for a message without blobs.
    #[inline]
    fn in_blobs(&self, message: &Message<'_>, op: &'static str) -> Result<Option<Box<InBlobs>>> {
        let is_short = message.payload.len() <= self.shared().geometry().message_bytes as usize;
        if is_short && message.blobs.is_empty() { Ok(None) } else { self.put_in_blobs(message, op).map(Some) }
    }

    #[cold]
    fn put_in_blobs(&self, message: &Message<'_>, op: &'static str) -> Result<Box<InBlobs>> {
        let (geometry, store) = (self.shared().geometry(), self.shared().blobs());
        let is_long = message.payload.len() > geometry.message_bytes as usize;
        if is_long && message.payload.len() > self.inner.options.max_message {
            return Err(Error::new(ErrorKind::TooLong, op));
        }
        if message.blobs.len() > geometry.blobs as usize {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::TooManyBlobs));
        }
        let attached = message.blobs.iter().map(|blob| blob.within(store, op)).collect::<Result<Vec<_>>>()?;
        let long = is_long
            .then(|| Blob::copy_of(store, message.payload, "broadcast blob for a long message"))
            .transpose()?;
        let bytes = attached.iter().chain(&long).map(|blob| blob.len() as u64).sum();
        Ok(Box::new(InBlobs { long, attached, bytes }))
    }

    /// Publishes the message if there is room; returns its number.
    #[inline]
    fn attempt(
        &self,
        message: &Message<'_>,
        blobs: Option<&InBlobs>,
        tell: bool,
        op: &'static str,
    ) -> Result<Option<u64>> {
        let shared = self.shared();
        loop {
            let me = self.inner.attached.present(op)?;
            if blobs.is_some_and(|blobs| !self.make_space(me, blobs.bytes)) {
                return Ok(None);
            }
            let Some(claimed) = shared.claim(me, &self.inner.cursors, op)? else {
                self.inner.liveness.known.lacks_room(None);
                return Ok(None);
            };
            let naming = self.write(claimed, message, blobs, op).inspect_err(|_| shared.give_up(claimed))?;
            if !shared.finish(claimed) {
                // Others have taken this member for dead. It joins again, or they would do so for ever.
                self.inner.attached.hold(op)?;
                continue;
            }
            naming.publish();
            if tell {
                shared.tell_subscribers();
            }
            if let Some(blobs) = blobs {
                self.keep(claimed.position, blobs.bytes);
                // If a subscriber needs one, that can wait until the next message.
                let _ = self.drop_oldest(me, 0);
            }
            return Ok(Some(claimed.position.wrapping_add(1)));
        }
    }

    /// Remembers a message that is in blobs.
    #[cold]
    fn keep(&self, position: Position, bytes: u64) {
        let messages = u64::from(self.shared().geometry().messages);
        self.inner.kept.with(|kept| {
            // The ring has gone on over these.
            while let Some((_, gone)) =
                kept.messages.pop_front_if(|(before, _)| before.saturating_add(messages) <= position)
            {
                kept.bytes -= gone;
            }
            kept.messages.push_back((position, bytes));
            kept.bytes += bytes;
        });
    }

    /// Drops messages until there is space for so many bytes. False if a subscriber needs one of them.
    #[cold]
    fn make_space(&self, me: u16, bytes: u64) -> bool {
        let needed = self.drop_oldest(me, bytes);
        if needed.is_some() {
            self.inner.liveness.known.lacks_room(needed);
        }
        needed.is_none()
    }

    /// Drops the oldest messages of this process that are in blobs, until there is space for so many bytes
    /// more. The newest stays until the next one is there: a subscriber that begins with the latest must not
    /// find an older one, or none. Returns the position of a message that a subscriber needs.
    #[cold]
    fn drop_oldest(&self, me: u16, bytes: u64) -> Option<Position> {
        let Inner { kept, options, cursors, .. } = &*self.inner;
        let oldest = |kept: &mut Kept| {
            let exceeds = kept.bytes.saturating_add(bytes) > options.keep_bytes;
            kept.messages.front().filter(|_| exceeds && kept.messages.len() > 1).copied()
        };
        while let Some((position, dropped)) = kept.with(oldest) {
            if self.shared().drop_message(position, me, cursors).is_none() {
                return Some(position);
            }
            kept.with(|kept| {
                if kept.messages.front() == Some(&(position, dropped)) {
                    kept.messages.pop_front();
                    kept.bytes -= dropped;
                }
            });
        }
        None
    }

    /// Writes the message to its cell; returns the blobs that it is to name.
    #[inline]
    fn write(
        &self,
        Claimed { idx, .. }: Claimed,
        message: &Message<'_>,
        blobs: Option<&InBlobs>,
        op: &'static str,
    ) -> Result<Naming> {
        let (shared, mut naming) = (self.shared(), Naming::default());
        let mut in_cell = message.payload;
        if let Some(InBlobs { long, attached, .. }) = blobs {
            naming = Naming::new(shared.blobs(), (shared.handles(idx), idx), long.as_ref(), attached, op)?;
            if long.is_some() {
                in_cell = &[];
            }
        }
        if !shared.payload(idx).overtaken().copy_in(in_cell) {
            return Err(Error::new(ErrorKind::Corrupt, op));
        }
        let (len, flags, named) = (in_cell.len() as u32, message.flags, naming.named());
        shared.cell(idx).describe(Described { len, flags, named });
        shared.check_whole(op)?;
        Ok(naming)
    }

    #[cold]
    fn wait(
        &self,
        message: &Message<'_>,
        blobs: Option<&InBlobs>,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<u64> {
        let Inner { liveness, spin, attached, .. } = &*self.inner;
        count(&attached.member(attached.number(op)?).own.0[FULL]);
        let (tick, reach) = (Some(liveness.tick()), Reach::Machine);
        let wait = Wait { deadline, spin, reach, tick, long: None, op };
        let waited = self.shared().room().wait(
            &wait,
            || self.attempt(message, blobs, true, op),
            || liveness.check(None, op),
        );
        waited.map_err(|error| match self.shared().blocking_process(liveness.known.kept()) {
            Some(process) if error.kind() == ErrorKind::TimedOut => Error::waited_for(error, process),
            _ => error,
        })
    }

    /// As [`publish`](Publisher::publish), for a task. Nothing is published if the future is dropped
    /// before it is ready. There is no deadline: runtimes have timers.
    ///
    /// The future runs on any runtime. It is woken by a thread of this process, which the first future
    /// that has to wait starts, and which ends with the publisher.
    ///
    /// # Errors
    ///
    /// As [`publish`](Publisher::publish), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started.
    pub async fn publish_async<'a>(&self, message: impl Into<Message<'a>>) -> Result<u64> {
        let message = message.into();
        let blobs = self.in_blobs(&message, PUBLISH)?;
        super::future::until(
            || self.watch(PUBLISH),
            || match self.attempt(&message, blobs.as_deref(), true, PUBLISH)? {
                None => self.inner.liveness.look_after(None, PUBLISH).map(|_| None),
                number => Ok(number),
            },
        )
        .await
    }
}
