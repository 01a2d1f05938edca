//! The receiving end of broadcast.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use pipework::ErrorKind;
use pipework::broadcast::{Received, RecvError, Start, Subscriber, SubscriberOptions};

use super::channel::pwk_broadcast;
use crate::bytes::pwk_bytes;
use crate::deadline::{at, pwk_deadline};
use crate::defaults::PWK_DEFAULT_MAX_MESSAGE;
use crate::edge::{
    Growing, Handle, In, InOut, Lent, Name, Options, Out, Space, Truth, free, get, hand_out, or_would_block,
    put, run,
};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};
use crate::reqrep::blob::pwk_blobs;

/// Receives the messages of a channel, one after the other. One thread at a time may use it. A child that
/// was forked may use it, as a member of its own, which goes on with the same message. It is freed with
/// pwk_subscriber_free.
pub struct pwk_subscriber {
    subscriber: Subscriber,
    /// The message that C has been lent.
    lent: Option<Received>,
    broadcast: pwk_broadcast,
}

/// A message that a subscriber has received. Its bytes are lent until the next receiving call on the
/// subscriber, whether that succeeds or fails, or until the subscriber is freed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_received {
    /// The bytes. If they came in a blob, they lie in its memory, which must not be written.
    pub bytes: pwk_bytes,
    /// Its number. The first message of a channel has 1.
    pub number: u64,
    /// The 32 bits that the publisher sent with it.
    pub flags: u32,
    /// How many blobs came with it, for pwk_subscriber_blobs.
    pub blob_count: u32,
}

/// With the first message that is published after the subscriber was attached.
pub const PWK_START_NOW: u32 = 0;
/// With the oldest message that is still there.
pub const PWK_START_OLDEST: u32 = 1;
/// With the newest message that is there, at once: for a state rather than events. If there is none,
/// with the first that comes.
pub const PWK_START_LATEST: u32 = 2;
/// With the message after the number pwk_subscriber_options.after.
pub const PWK_START_AFTER: u32 = 3;

/// How a subscriber receives.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_subscriber_options {
    /// sizeof(pwk_subscriber_options).
    pub size: usize,
    /// Where it begins: PWK_START_NOW, the default, PWK_START_OLDEST, PWK_START_LATEST or
    /// PWK_START_AFTER.
    pub start: u32,
    /// Publishers wait for it, and it gets every message. By default they never wait for it, and it gets
    /// PWK_LAGGED when it was too slow. One that is stopped or does not receive holds up all publishers;
    /// if it dies or leaves, they go on.
    pub must_see_all: Truth,
    /// For PWK_START_AFTER: the number of the last message that is not wanted, to go on after a restart;
    /// 0 is before the first message. If the message after it is gone, PWK_LAGGED comes first.
    pub after: u64,
    /// Bytes of the longest message that it receives; PWK_DEFAULT_MAX_MESSAGE by default. A longer one is
    /// PWK_TOO_LONG, once. A message that fits into a cell is never too long. Copies of the blobs of a
    /// message may have as many bytes together.
    pub max_message: usize,
}

/// Fills in the defaults. `size` is sizeof(pwk_subscriber_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_options_init(options: Space<'_, pwk_subscriber_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Attaches a subscriber.
///
/// Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_INVALID for another `start`, and
/// if no message with the number `after` was published; PWK_OS; PWK_CORRUPT if the channel was damaged.
/// In a channel that was opened with read_only, with PWK_UNSUPPORTED for one that must see all, and if
/// the channel was made without observers.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_new(
    broadcast: In<'_, pwk_broadcast>,
    options: Lent<'_, pwk_subscriber_options>,
    subscriber: Out<'_, Handle<pwk_subscriber>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_new", error, |name| {
        let (broadcast, subscriber) = (name.given(broadcast)?, name.given(subscriber)?);
        hand_out(subscriber, options.options(name)?.attach(broadcast, name)?)
    })
}

/// Waits for the next message.
///
/// Fails with PWK_LAGGED if messages are gone that it had not received; pwk_error.done says how many.
/// This is reported once, and the next call goes on with the oldest message that is there.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: call again. With PWK_TOO_LONG if the message is longer
/// than max_message, which passes it over, or if blob_limit leaves no space for it now: then it stays.
/// With PWK_OS if no descriptor or memory is left for a blob: the message stays, so that the next call
/// can succeed. With PWK_CORRUPT if the channel was damaged, or a blob was removed, whose message is
/// passed over.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_recv(
    subscriber: InOut<'_, pwk_subscriber>,
    deadline: pwk_deadline,
    message: Out<'_, pwk_received>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_recv", error, |name| {
        receive(subscriber, message, |subscriber| subscriber.recv(at(deadline)).map(Some), name)
    })
}

/// The next message if there is one, else PWK_WOULD_BLOCK. Otherwise it is as pwk_subscriber_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_try_recv(
    subscriber: InOut<'_, pwk_subscriber>,
    message: Out<'_, pwk_received>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_try_recv", error, |name| receive(subscriber, message, Subscriber::try_recv, name))
}

/// Waits until there is a message, and receives the newest. The ones before it are passed over, and do
/// not count as missed.
///
/// Fails as pwk_subscriber_recv, but never with PWK_LAGGED.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_recv_latest(
    subscriber: InOut<'_, pwk_subscriber>,
    deadline: pwk_deadline,
    message: Out<'_, pwk_received>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_recv_latest", error, |name| {
        let latest = |subscriber: &mut Subscriber| Ok(Some(subscriber.recv_latest(at(deadline))?));
        receive(subscriber, message, latest, name)
    })
}

/// The newest message if there is one, else PWK_WOULD_BLOCK. Otherwise it is as
/// pwk_subscriber_recv_latest.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_try_recv_latest(
    subscriber: InOut<'_, pwk_subscriber>,
    message: Out<'_, pwk_received>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_try_recv_latest", error, |name| {
        receive(subscriber, message, |subscriber| Ok(subscriber.try_recv_latest()?), name)
    })
}

/// The blobs of the message that was received last. They replace the content of `blobs`. The program may
/// keep them while it receives further messages.
///
/// Fails with PWK_STALE if the last receiving call has failed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_blobs(
    subscriber: In<'_, pwk_subscriber>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_blobs", error, |name| {
        let (subscriber, blobs) = (name.given(subscriber)?, name.given(blobs)?);
        *blobs = pwk_blobs::of(&[]);
        let lent = subscriber.lent.as_ref().ok_or_else(|| name.failure(ErrorKind::Stale))?;
        *blobs = pwk_blobs::of(lent.blobs());
        Ok(PWK_OK)
    })
}

/// How many messages were published that it has not received; 0 for NULL. Numbers that were passed over
/// count.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_lag(subscriber: In<'_, pwk_subscriber>) -> u64 {
    get(0, || subscriber.map_or(0, |subscriber| subscriber.subscriber.lag()))
}

/// A descriptor for an event loop, readable while there is something to receive. It is the program's to
/// close, and not to be read from. When it is readable, call pwk_subscriber_try_recv until that returns
/// PWK_WOULD_BLOCK. A forked child asks for one of its own.
///
/// Fails with PWK_OS if no descriptor is left, or no thread can be started; PWK_UNSUPPORTED if the
/// channel was opened with read_only.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_doorbell(
    subscriber: In<'_, pwk_subscriber>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_subscriber_doorbell", error, |name| {
        let (subscriber, fd) = (name.given(subscriber)?, name.given(fd)?);
        put(Some(fd), subscriber.subscriber.doorbell()?.into_raw_fd())
    })
}

/// The channel that a subscriber is attached to, lent until the subscriber is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_broadcast(subscriber: In<'_, pwk_subscriber>) -> In<'_, pwk_broadcast> {
    subscriber.map(|subscriber| &subscriber.broadcast)
}

/// Leaves the channel. Publishers no longer wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_subscriber_free(subscriber: Handle<pwk_subscriber>) {
    free(subscriber);
}

// ---------------------------------------------------------------- on this side

/// Takes the lent message back, and lends the one that is received.
#[inline]
fn receive(
    subscriber: InOut<'_, pwk_subscriber>,
    message: Out<'_, pwk_received>,
    receive: impl FnOnce(&mut Subscriber) -> std::result::Result<Option<Received>, RecvError>,
    name: Name,
) -> Result<pwk_status> {
    let pwk_subscriber { subscriber, lent, .. } = name.given(subscriber)?;
    *lent = None;
    or_would_block(receive(subscriber)?, |received| put(message, pwk_received::lend(lent.insert(received))))
}

impl pwk_received {
    #[inline]
    fn lend(received: &Received) -> pwk_received {
        pwk_received {
            bytes: pwk_bytes::lend(received),
            number: received.number(),
            flags: received.flags(),
            blob_count: received.blobs().len() as u32,
        }
    }
}

// SAFETY: numbers, and a truth value that may be any byte.
unsafe impl Growing for pwk_subscriber_options {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_subscriber_options {
    const DEFAULT: pwk_subscriber_options = pwk_subscriber_options {
        size: size_of::<pwk_subscriber_options>(),
        start: PWK_START_NOW,
        must_see_all: Truth::of(false),
        after: 0,
        max_message: PWK_DEFAULT_MAX_MESSAGE,
    };
}

impl pwk_subscriber_options {
    fn attach(&self, broadcast: &pwk_broadcast, name: Name) -> Result<pwk_subscriber> {
        let start = match self.start {
            PWK_START_NOW => Start::Now,
            PWK_START_OLDEST => Start::Oldest,
            PWK_START_LATEST => Start::Latest,
            PWK_START_AFTER => Start::After(self.after),
            _ => return Err(name.invalid()),
        };
        let options = SubscriberOptions::new().start(start).max_message(self.max_message);
        let options = options.must_see_all(self.must_see_all.is_set());
        let subscriber = broadcast.segment.subscriber_with(&options)?;
        Ok(pwk_subscriber { subscriber, lent: None, broadcast: broadcast.clone() })
    }
}
