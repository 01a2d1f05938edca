//! The receiving end.

use std::cell::LazyCell;
use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ring::{Found, TURNS};
use super::segment::Segment;
use super::shared::{Described, MISSED, NEXT, Role, Shared};
use super::waiting::{Attached, Liveness, Place, Registration, Steps, Topic, Watcher, WatcherState};
use super::word::{CellWord, Cursor, Position, State, after};
use crate::blob::Blob;
use crate::deadline::Deadline;
use crate::defaults;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::event::{Tick, Wait};
use crate::region::Region;
use crate::segment::message::Payload;
use crate::segment::naming::{Blobs, NamedBlobs};
use crate::spin::{Looks, Spin};
use crate::sync::{Ordering, Reach};
use crate::sys::Errno;

const RECV: &str = "broadcast recv";
const SUBSCRIBE: &str = "broadcast subscribe";

/// A message as a subscriber has received it. It dereferences to its bytes: to a copy, or to the blob that
/// carried a long message.
#[derive(Clone, Debug)]
pub struct Received {
    payload: Payload,
    blobs: Blobs,
    flags: u32,
    number: u64,
}

impl Received {
    fn empty() -> Received {
        Received { payload: Payload::empty(), blobs: Blobs::default(), flags: 0, number: 0 }
    }

    /// Its number. The first message of a channel has 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The 32 bits that the publisher sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// The blobs that the publisher has [attached](super::Message::attach).
    pub fn blobs(&self) -> &[Blob] {
        self.blobs.as_slice()
    }

    /// Its bytes as a vector. Those that came in a blob are copied.
    pub fn into_vec(self) -> Vec<u8> {
        self.payload.into_vec()
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.payload
    }
}

/// Why a subscriber got no message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// So many messages are gone that this subscriber had not received: the ring has gone on over them, or
    /// their publisher has [dropped](super::PublisherOptions::keep_bytes) them. It is reported once, and
    /// the next call goes on with the oldest message that is there. A number that a publisher had taken
    /// when it was killed counts, too, if it is among them.
    Lagged(u64),
    /// Any other error.
    Failed(Error),
}

impl RecvError {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        Error::from(*self).kind()
    }

    /// How many messages this subscriber has missed, if that is the error.
    pub fn missed(&self) -> Option<u64> {
        if let RecvError::Lagged(missed) = self { Some(*missed) } else { None }
    }
}

impl From<Error> for RecvError {
    fn from(error: Error) -> RecvError {
        RecvError::Failed(error)
    }
}

impl From<RecvError> for Error {
    /// Drops the number of messages.
    fn from(error: RecvError) -> Error {
        match error {
            RecvError::Lagged(_) => Error::new(ErrorKind::Lagged, RECV),
            RecvError::Failed(error) => error,
        }
    }
}

impl From<RecvError> for std::io::Error {
    fn from(error: RecvError) -> std::io::Error {
        Error::from(error).into()
    }
}

impl fmt::Debug for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lagged(missed) => f.debug_tuple("Lagged").field(missed).finish(),
            RecvError::Failed(error) => fmt::Debug::fmt(error, f),
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)?;
        match self.missed() {
            Some(missed) => write!(f, "; {missed} missed"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RecvError {}

type Outcome<T = Received> = std::result::Result<T, RecvError>;

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the first message that is published after it has subscribed.
    #[default]
    Now,
    /// With the oldest message that is still there.
    Oldest,
    /// With the newest message that is there, at once: for a state rather than events. If there is none,
    /// with the first that comes.
    Latest,
    /// With the message after this number: to go on after a restart. 0 is before the first message. If
    /// the message after it is gone, the first thing that is received is
    /// [`Lagged`](RecvError::Lagged).
    After(u64),
}

/// The settings of a subscriber. They are given [when it is made](Segment::subscriber_with).
#[derive(Clone, Debug)]
pub struct SubscriberOptions {
    start: Start,
    must_see_all: bool,
    max_message: usize,
}

impl Default for SubscriberOptions {
    fn default() -> SubscriberOptions {
        SubscriberOptions { start: Start::Now, must_see_all: false, max_message: defaults::MAX_MESSAGE }
    }
}

impl SubscriberOptions {
    /// It begins now, may lag, and receives messages of up to [`defaults::MAX_MESSAGE`] bytes.
    pub fn new() -> SubscriberOptions {
        SubscriberOptions::default()
    }

    /// Where it begins. The default is [`Start::Now`].
    pub fn start(self, start: Start) -> SubscriberOptions {
        SubscriberOptions { start, ..self }
    }

    /// Whether publishers wait for it rather than overtake it. By default they never wait for it, and it
    /// gets [`Lagged`](RecvError::Lagged) when it was too slow.
    ///
    /// One that must see all and is stopped, or does not receive, holds up all publishers. If it dies or
    /// leaves, they go on.
    pub fn must_see_all(self, yes: bool) -> SubscriberOptions {
        SubscriberOptions { must_see_all: yes, ..self }
    }

    /// Bytes of the longest message that it receives. A longer one is `TooLong`, once: it goes on with the
    /// next. A message that fits into a cell is never too long. [Copies](super::Blob::is_copied) of the
    /// blobs of a message may have as many bytes together.
    pub fn max_message(self, bytes: usize) -> SubscriberOptions {
        SubscriberOptions { max_message: bytes, ..self }
    }
}

/// Receives the messages of a channel, from a place of its own on.
///
/// In a forked child it is another member, which goes on from the place at which the parent's was. If it
/// must see all, what was overtaken by then is reported as [`Lagged`](RecvError::Lagged).
#[derive(Debug)]
pub struct Subscriber {
    /// Of the task that polls it. Dropped first, as all that uses the thread.
    registration: Option<Registration>,
    watcher: Watcher,
    /// None for one that may only read.
    member: Option<Joined>,
    /// For one that may only read.
    tick: Arc<Tick>,
    segment: Segment,
    place: Arc<Place>,
    /// What it has stored as its cursor, if it must see all.
    cursor: Option<Cursor>,
    /// How many messages it has missed since the last report.
    missed: u64,
    /// The message after those, or why it was not received, which the next call returns.
    held_back: Option<Result<Received>>,
    max_message: usize,
    spin: Arc<Spin>,
}

#[derive(Debug)]
struct Joined {
    attached: Attached,
    liveness: Arc<Liveness>,
}

impl Segment {
    /// Attaches a subscriber that begins now and may lag.
    ///
    /// # Errors
    ///
    /// As [`subscriber_with`](Segment::subscriber_with).
    pub fn subscriber(&self) -> Result<Subscriber> {
        self.subscriber_with(&SubscriberOptions::new())
    }

    /// Attaches a subscriber. On a segment that was opened [to read](super::Options::read_only) it changes
    /// nothing in the file, and is no member.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if all places for members are taken; `Invalid` if no message with the number of
    /// [`Start::After`] was published; `Unsupported` for one that must see all and may only read, and for
    /// one that may only read in a segment that was made without
    /// [`observers`](super::Options::observers); `Os`; `Corrupt` if the segment was damaged.
    pub fn subscriber_with(&self, options: &SubscriberOptions) -> Result<Subscriber> {
        let member = if self.is_read_only() {
            if options.must_see_all || !self.geometry().observers {
                return Err(Error::new(ErrorKind::Unsupported, SUBSCRIBE));
            }
            self.shared().check_whole(SUBSCRIBE)?;
            None
        } else {
            let attached = self.join(Role::Subscriber, "broadcast attach subscriber")?;
            Some(Joined { liveness: Arc::new(Liveness::new(&attached)), attached })
        };
        let mut subscriber = Subscriber {
            registration: None,
            watcher: Watcher::new(),
            member,
            tick: Arc::new(Tick::new()),
            segment: self.clone(),
            place: Arc::default(),
            cursor: options.must_see_all.then_some(Cursor::NONE),
            missed: 0,
            held_back: None,
            max_message: options.max_message,
            spin: Arc::new(Spin::new(self.spin(), Looks::Load)),
        };
        subscriber.begin(options.start)?;
        Ok(subscriber)
    }
}

impl Subscriber {
    fn begin(&mut self, start: Start) -> Result<()> {
        let tail = self.shared().tail().load(Ordering::Acquire);
        let first = match start {
            Start::Now => tail,
            Start::Oldest => self.shared().oldest_there(),
            Start::Latest => self.shared().newest(0).unwrap_or(tail),
            Start::After(number) if number > tail => {
                return Err(Error::new(ErrorKind::Invalid, "broadcast subscribe: start after"));
            }
            Start::After(number) => number,
        };
        self.place.next.set(first);
        if self.cursor.is_some() {
            self.see_all(SUBSCRIBE)?;
            if !matches!(start, Start::After(_)) {
                self.missed = 0;
            }
        }
        if start == Start::Latest {
            // Now, because publishers may overtake it before it is received.
            for _ in 0..TURNS {
                let Some(newest) = self.shared().newest(self.next()) else { break };
                self.place.next.set(newest);
                if self.catch(newest, after(newest))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Receives the message at `position` now if it is there, for the next call, and goes on with `next`.
    /// An error that will not go away is kept for the next call, too. False if it was not there.
    fn catch(&mut self, position: Position, next: Position) -> Result<bool> {
        let Found::Message(word) = self.shared().look(position) else { return Ok(false) };
        let mut received = Received::empty();
        match self.read(position, word, &mut received, SUBSCRIBE) {
            Ok(true) => self.hold_back(Ok(received)),
            Ok(false) => return Ok(false),
            Err(error) if is_temporary(error) => return Err(error),
            Err(error) => self.hold_back(Err(error)),
        }
        self.place.next.set(next);
        self.settle();
        Ok(true)
    }

    fn hold_back(&mut self, received: Result<Received>) {
        self.held_back = Some(received);
        self.place.has_more.set(true);
    }

    /// The segment that it is attached to.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    fn shared(&self) -> &Arc<Shared> {
        self.segment.shared()
    }

    #[inline]
    fn next(&self) -> Position {
        self.place.next.get()
    }

    /// How many messages were published that it has not received. Numbers that were passed over count.
    pub fn lag(&self) -> u64 {
        let in_ring = self.shared().tail().load(Ordering::Relaxed).saturating_sub(self.next());
        in_ring.saturating_add(u64::from(self.held_back.is_some()))
    }

    /// Waits for the next message.
    ///
    /// # Blocking
    ///
    /// Until there is a message, or until the deadline. A publisher that is stopped in the middle of
    /// writing a message holds up all subscribers at that message until it goes on; the message of one
    /// that is killed there is passed over, and no part of it is received.
    ///
    /// # Errors
    ///
    /// [`Lagged`](RecvError::Lagged): messages were lost to this subscriber; the next call goes on.
    /// `TimedOut` and `Interrupted`: call again. `TooLong`: the message is longer than
    /// [`max_message`](SubscriberOptions::max_message), or `blob_limit` leaves no space for it now; the
    /// first is passed over, the second stays. `Os`: with EMFILE if no descriptor is left for a blob, with
    /// ENOMEM if there is no memory for a copy; the message stays, so that the next call can succeed.
    /// `Corrupt`: the segment was damaged, or a blob was removed, whose message is passed over. In a forked
    /// child also the errors of [`Segment::subscriber`].
    #[inline]
    pub fn recv(&mut self, deadline: impl Into<Deadline>) -> Outcome {
        let mut received = Received::empty();
        let found = match self.step(&mut received, RECV)? {
            Step::Nothing => self.wait(&mut received, deadline.into(), Subscriber::step)?,
            found => found,
        };
        match found {
            Step::Lagged(missed) => Err(RecvError::Lagged(missed)),
            _ => Ok(received),
        }
    }

    /// Returns the next message if there is one.
    ///
    /// # Errors
    ///
    /// As [`recv`](Subscriber::recv), but never `TimedOut` or `Interrupted`.
    pub fn try_recv(&mut self) -> Outcome<Option<Received>> {
        let mut received = Received::empty();
        match self.poll(&mut received, Subscriber::step)? {
            Step::Nothing => Ok(None),
            Step::Message => Ok(Some(received)),
            Step::Lagged(missed) => Err(RecvError::Lagged(missed)),
        }
    }

    /// Waits until there is a message, and receives the newest. The ones before it are passed over, and do
    /// not count as missed.
    ///
    /// # Errors
    ///
    /// As [`recv`](Subscriber::recv), but never [`Lagged`](RecvError::Lagged).
    pub fn recv_latest(&mut self, deadline: impl Into<Deadline>) -> Result<Received> {
        let (deadline, mut received) = (LazyCell::new(|| deadline.into()), Received::empty());
        loop {
            let found = match self.step_to_latest(&mut received, RECV)? {
                Step::Nothing => self.wait(&mut received, *deadline, Subscriber::step_to_latest)?,
                found => found,
            };
            if let Step::Message = found {
                return Ok(received);
            }
        }
    }

    /// Receives the newest message if there is one; otherwise as [`recv_latest`](Subscriber::recv_latest).
    ///
    /// # Errors
    ///
    /// As [`recv_latest`](Subscriber::recv_latest), but never `TimedOut` or `Interrupted`.
    pub fn try_recv_latest(&mut self) -> Result<Option<Received>> {
        let mut received = Received::empty();
        loop {
            match self.poll(&mut received, Subscriber::step_to_latest)? {
                Step::Nothing => return Ok(None),
                Step::Message => return Ok(Some(received)),
                Step::Lagged(_) => {}
            }
        }
    }

    /// The messages, one after the other: each as [`recv`](Subscriber::recv) without a deadline. It does
    /// not end.
    pub fn messages(&mut self) -> impl Iterator<Item = Outcome> {
        std::iter::from_fn(|| Some(self.recv(Deadline::NEVER)))
    }

    /// As [`recv`](Subscriber::recv), for a task. Nothing is lost if the future is dropped.
    ///
    /// The future runs on any runtime. It is woken by a thread of this process, which the first future
    /// starts and which ends with the subscriber.
    ///
    /// # Errors
    ///
    /// As [`recv`](Subscriber::recv), but never `TimedOut` or `Interrupted`; `Os` if no thread can be
    /// started; `Unsupported` for one that may only read.
    pub async fn recv_async(&mut self) -> Outcome {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// One poll of [`recv_async`](Subscriber::recv_async), for implementations of streams.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(received) = self.try_recv()? {
            return Poll::Ready(Ok(received));
        }
        let mut kept = self.registration.take();
        let registered = Registration::keep(&mut kept, None, cx.waker(), || self.watch(RECV));
        self.registration = kept;
        registered?;
        // Anything that came before the registration woke no one, so look again.
        self.try_recv()?.map_or(Poll::Pending, |received| Poll::Ready(Ok(received)))
    }

    /// A descriptor that is readable while there is something to receive. It joins the subscriber to an
    /// event loop: when it is readable, call [`try_recv`](Subscriber::try_recv) until that returns `None`.
    /// The caller owns it, polls it, and never reads from it.
    ///
    /// # Errors
    ///
    /// `Os` if no thread or descriptor can be had; `Stale` if the process was forked meanwhile;
    /// `Unsupported` for one that may only read.
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "broadcast doorbell";
        self.watch(OP)?.descriptor(OP)
    }

    fn watch(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        let Some(member) = &self.member else { return Err(Error::new(ErrorKind::Unsupported, op)) };
        let topic = || Topic {
            shared: Arc::clone(self.shared()),
            liveness: Arc::clone(&member.liveness),
            steps: Steps::Message(Arc::clone(&self.place)),
        };
        self.watcher.watch(topic, op)
    }
}

/// The messages as [`recv_async`](Subscriber::recv_async) gives them. It does not end.
#[cfg(feature = "futures-core")]
impl futures_core::Stream for Subscriber {
    type Item = Outcome;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_recv(cx).map(Some)
    }
}

/// The result of a look at the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// It was received.
    Message,
    /// So many were missed since the last report.
    Lagged(u64),
}

type Stepping = fn(&mut Subscriber, &mut Received, &'static str) -> Result<Step>;

impl Subscriber {
    /// Takes the next message into `received`, if there is one.
    #[inline]
    fn step(&mut self, received: &mut Received, op: &'static str) -> Result<Step> {
        if !self.place.has_more.is_set() {
            self.check_cursor(op)?;
        }
        if self.place.has_more.is_set() {
            return self.take_held_back(received);
        }
        let next = self.next();
        if let Found::Message(word) = self.shared().look(next)
            && self.missed == 0
            && self.read(next, word, received, op)?
        {
            self.place.next.set(after(next));
            self.settle();
            return Ok(Step::Message);
        }
        self.step_over(received, op)
    }

    /// What is there in front of the next message: a report, and the message after those that were missed.
    #[cold]
    fn take_held_back(&mut self, into: &mut Received) -> Result<Step> {
        if let Some(lagged) = self.report_missed() {
            return Ok(lagged);
        }
        self.place.has_more.set(false);
        match self.held_back.take() {
            Some(received) => *into = received?,
            None => return Ok(Step::Nothing),
        }
        Ok(Step::Message)
    }

    /// The same where the next message may be gone.
    #[cold]
    fn step_over(&mut self, received: &mut Received, op: &'static str) -> Result<Step> {
        let messages = u64::from(self.shared().geometry().messages);
        let mut margin = 0;
        // Only a peer that breaks the rules makes it more.
        for _ in 0..2 * messages + 64 {
            let next = self.next();
            match self.shared().look(next) {
                Found::Nothing => {
                    self.settle();
                    return Ok(self.report_missed().unwrap_or(Step::Nothing));
                }
                Found::Skipped => self.place.next.set(after(next)),
                Found::Dropped => {
                    self.missed = self.missed.saturating_add(1);
                    self.place.next.set(after(next));
                }
                Found::Overtaken => {
                    let oldest = self.shared().oldest().max(next.saturating_add(1)).saturating_add(margin);
                    // Publishers that are fast overtake it again while it copies the oldest.
                    margin = (2 * margin).clamp(1, messages / 2);
                    self.missed = self.missed.saturating_add(oldest - next);
                    self.place.next.set(oldest);
                }
                Found::Message(word) => {
                    if !self.read(next, word, received, op)? {
                        continue;
                    }
                    self.place.next.set(after(next));
                    self.settle();
                    let Some(lagged) = self.report_missed() else { return Ok(Step::Message) };
                    self.hold_back(Ok(std::mem::replace(received, Received::empty())));
                    return Ok(lagged);
                }
            }
        }
        Err(Error::new(ErrorKind::Corrupt, op))
    }

    fn report_missed(&mut self) -> Option<Step> {
        let missed = std::mem::take(&mut self.missed);
        if missed > 0
            && let Some(member) = &self.member
        {
            let counter = &member.attached.member(member.attached.latest()).own.0[MISSED];
            counter.fetch_add(missed, Ordering::Relaxed);
        }
        (missed > 0).then_some(Step::Lagged(missed))
    }

    /// Goes to the newest message, and takes it.
    fn step_to_latest(&mut self, received: &mut Received, op: &'static str) -> Result<Step> {
        self.check_cursor(op)?;
        if let Some(newest) = self.shared().newest(self.next()) {
            self.held_back = None;
            self.place.has_more.set(false);
            self.missed = 0;
            self.place.next.set(newest);
        }
        self.step(received, op)
    }

    /// Makes sure that publishers still wait for it, if it must see all.
    #[inline]
    fn check_cursor(&mut self, op: &'static str) -> Result<()> {
        let (Some(cursor), Some(member)) = (self.cursor, &self.member) else { return Ok(()) };
        let me = member.attached.present(op)?;
        if self.shared().has_cursor(me, cursor) { Ok(()) } else { self.see_all(op) }
    }

    /// Makes publishers wait for it, from its next message on.
    #[cold]
    fn see_all(&mut self, op: &'static str) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        let next = self.next();
        let (first, cursor) = loop {
            let me = member.attached.present(op)?;
            if let Some(sees) = self.shared().see_all((me, member.attached.word()), next, op)? {
                break sees;
            }
        };
        self.place.next.set(first);
        self.cursor = Some(cursor);
        // The message before may be lost at any time, and be there now.
        let is_caught = first > next && self.catch(first - 1, first)?;
        self.missed = self.missed.saturating_add(first - next - u64::from(is_caught));
        Ok(())
    }

    /// Shows others how far it is.
    #[inline]
    fn settle(&mut self) {
        let Some(member) = &self.member else { return };
        let (next, me) = (self.next(), member.attached.latest());
        match self.cursor {
            None => {
                if let Some(member) = self.shared().member(me) {
                    member.own.0[NEXT].store(next, Ordering::Relaxed);
                }
            }
            Some(from) => {
                let to = from.at(next);
                if to != from && self.shared().move_cursor(me, from, to) {
                    self.cursor = Some(to);
                }
            }
        }
    }

    /// Receives the message at `position`, whose cell had this `word`. False if it was overtaken
    /// meanwhile. After an error that will not go away, it is passed over.
    #[inline]
    fn read(
        &mut self,
        position: Position,
        word: CellWord,
        received: &mut Received,
        op: &'static str,
    ) -> Result<bool> {
        let (idx, Described { len, flags, named }) = self.shared().described(position);
        (received.flags, received.number) = (flags, position.wrapping_add(1));
        let is_read = if named == NamedBlobs::default() {
            received.payload.fill(&self.bytes(position), len as usize).map_err(|errno| errno.at(op))
        } else {
            self.read_named(position, len, named, received, op)
        };
        if !self.shared().cell(idx).still_is(word) {
            // Nothing of it stays for the next one.
            *received = Received::empty();
            return Ok(false);
        }
        // Before anything is said about the message: a segment that is not whole may give any bytes.
        self.shared().check_whole(op)?;
        match is_read {
            Ok(true) if named == NamedBlobs::default() => Ok(true),
            Ok(true) => {
                received.payload.share();
                received.blobs.share();
                Ok(true)
            }
            Ok(false) => Err(self.pass_over(position, Error::new(ErrorKind::Corrupt, op))),
            Err(error) => {
                *received = Received::empty();
                Err(if is_temporary(error) { error } else { self.pass_over(position, error) })
            }
        }
    }

    /// The bytes of the message at `position`.
    #[inline]
    fn bytes(&self, position: Position) -> Region {
        let bytes = self.shared().payload(self.shared().geometry().cell(position));
        // Publishers wait before they write to the cells from its cursor on.
        let waits = |cursor: Cursor| cursor.is_active() && cursor.behind(position) >= 0;
        if self.cursor.is_some_and(waits) { bytes } else { bytes.overtaken() }
    }

    #[cold]
    fn read_named(
        &self,
        position: Position,
        len: u32,
        named: NamedBlobs,
        received: &mut Received,
        op: &'static str,
    ) -> Result<bool> {
        let (shared, max) = (self.shared(), self.max_message);
        let (places, store) = (shared.handles(shared.geometry().cell(position)), shared.blobs());
        let fits = if named.is_long {
            let handle = named.first().handles(places).pop().ok_or(Error::new(ErrorKind::Corrupt, op))?;
            if handle.len > max as u64 {
                return Err(Error::new(ErrorKind::TooLong, op));
            }
            received.payload.receive(store, &handle, max, op)?
        } else {
            received.payload.fill(&self.bytes(position), len as usize).map_err(|errno| errno.at(op))?
        };
        if named.attached() > 0 {
            received.blobs = Blobs::receive(store, places, named, max, op)?;
        }
        Ok(fits)
    }

    #[cold]
    fn pass_over(&mut self, position: Position, error: Error) -> Error {
        self.place.next.set(after(position));
        self.settle();
        error
    }

    /// Takes a step, and does what is due if there is nothing.
    fn poll(&mut self, received: &mut Received, step: Stepping) -> Result<Step> {
        let found = step(self, received, RECV)?;
        if found != Step::Nothing {
            return Ok(found);
        }
        let due = match &self.member {
            Some(member) => {
                member.liveness.known.awaits(self.next());
                self.watcher.found_none();
                member.liveness.look_after(None, RECV)?
            }
            None if self.tick.take() => {
                check_reading(self.shared(), &self.place, RECV)?;
                self.tick.done();
                true
            }
            None => false,
        };
        if due { step(self, received, RECV) } else { Ok(Step::Nothing) }
    }

    #[cold]
    fn wait(&mut self, received: &mut Received, deadline: Deadline, step: Stepping) -> Result<Step> {
        let (shared, place) = (Arc::clone(self.shared()), Arc::clone(&self.place));
        let liveness = self.member.as_ref().map(|member| Arc::clone(&member.liveness));
        let (spin, tick) = (Arc::clone(&self.spin), Arc::clone(&self.tick));
        let look = || {
            let found = step(self, received, RECV)?;
            if let Some(liveness) = &liveness {
                liveness.known.awaits(place.next.get());
            }
            Ok((found != Step::Nothing).then_some(found))
        };
        let (op, tick) = (RECV, Some(liveness.as_ref().map_or(&*tick, |liveness| liveness.tick())));
        let wait = Wait { deadline, spin: &spin, reach: Reach::Machine, tick, long: None, op };
        match &liveness {
            Some(liveness) => shared.published().wait(&wait, look, || liveness.check(None, op)),
            None => shared.published().wait_unseen(&wait, look, || check_reading(&shared, &place, op)),
        }
    }
}

/// What a subscriber that may only read does at a tick: it passes over the message of a dead publisher for
/// itself.
fn check_reading(shared: &Shared, place: &Place, op: &'static str) -> Result<()> {
    shared.check_whole(op)?;
    let next = place.next.get();
    let cell = shared.cell_of(next);
    let word = cell.load();
    let is_writing = word.ahead_of(shared.geometry().lap(next)) == 0 && word.state() == State::Writing;
    if is_writing && shared.is_gone(word.member(), op)? && cell.still_is(word) {
        place.next.set(after(next));
    }
    Ok(())
}

/// Whether the same message may be received later.
fn is_temporary(error: Error) -> bool {
    const LACKS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC];
    let lacks = error.errno().is_some_and(|errno| LACKS.iter().any(|lack| lack.number() == errno));
    lacks || error.is_explained(Explanation::BlobsHeld) || error.kind() == ErrorKind::Interrupted
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let Some(member) = &self.member else { return };
        // Its number may belong to another one soon.
        if self.cursor.is_none()
            && let Some(me) = member.attached.present_here()
        {
            member.attached.member(me).own.0[NEXT].store(0, Ordering::Relaxed);
        }
    }
}
