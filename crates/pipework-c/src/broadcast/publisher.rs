//! The publishing end of broadcast.

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;

use pipework::broadcast::{Message, Publisher, PublisherOptions};

use super::channel::pwk_broadcast;
use crate::bytes::pwk_bytes;
use crate::deadline::{at, pwk_deadline};
use crate::defaults::{PWK_DEFAULT_KEEP_BYTES, PWK_DEFAULT_MAX_MESSAGE};
use crate::edge::{
    Growing, Handle, In, Lent, Name, Options, Out, Space, free, get, hand_out, or_would_block, put, run,
};
use crate::error::{Result, pwk_error, pwk_status};
use crate::reqrep::blob::{Attached, pwk_message};

/// Publishes messages to a channel. Any threads may use one at the same time. A child that was forked
/// may use it, as a member of its own. It is freed with pwk_publisher_free.
pub struct pwk_publisher {
    publisher: Publisher,
    broadcast: pwk_broadcast,
}

/// How a publisher works.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_publisher_options {
    /// sizeof(pwk_publisher_options).
    pub size: usize,
    /// Bytes of the longest message; PWK_DEFAULT_MAX_MESSAGE by default. A message that fits into a
    /// cell is never too long.
    pub max_message: usize,
    /// Bytes of this publisher's messages that the ring keeps in blobs, with those that are attached;
    /// PWK_DEFAULT_KEEP_BYTES by default. When a message would exceed it, the publisher first drops its
    /// oldest ones: a subscriber that may lag and has not received one has missed it, and for those that
    /// must see all the publisher waits. The newest message stays, whatever its size.
    pub keep_bytes: u64,
}

/// Fills in the defaults. `size` is sizeof(pwk_publisher_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_options_init(options: Space<'_, pwk_publisher_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Attaches a publisher.
///
/// Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_UNSUPPORTED if the channel was
/// opened with read_only; PWK_OS; PWK_CORRUPT if the channel was damaged.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_new(
    broadcast: In<'_, pwk_broadcast>,
    options: Lent<'_, pwk_publisher_options>,
    publisher: Out<'_, Handle<pwk_publisher>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_new", error, |name| {
        let (broadcast, publisher) = (name.given(broadcast)?, name.given(publisher)?);
        hand_out(publisher, options.options(name)?.attach(broadcast)?)
    })
}

/// Publishes a message. All subscribers get all messages in one order.
///
/// It waits while the ring is full and a subscriber that must see all has not received the oldest
/// message; and while another publisher is stopped in the middle of writing that message. It does not
/// wait for a process that has died or left.
///
/// Fails with PWK_TIMED_OUT, where pwk_error_process says for whom it has waited; PWK_INTERRUPTED;
/// PWK_TOO_LONG if the message is longer than max_message, or if this process would hold more bytes of
/// blobs than blob_limit; PWK_OS, for instance with ENOSPC if there is no memory for the blob of a long
/// message; PWK_CORRUPT if the channel was damaged. Then nothing was published.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_publish(
    publisher: In<'_, pwk_publisher>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_publish", error, |name| {
        publish(publisher, message((data, len), 0, name)?, deadline, None, name)
    })
}

/// As pwk_publisher_publish, with flags. `number` is the number of the message.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_publish_message(
    publisher: In<'_, pwk_publisher>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_publish_message", error, |name| {
        publish(publisher, message((data, len), flags, name)?, deadline, number, name)
    })
}

/// As pwk_publisher_publish_message, with blobs.
///
/// Fails as pwk_publisher_publish; with PWK_TOO_LONG, too, if the message has more blobs than the
/// channel allows.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_publish_blobs(
    publisher: In<'_, pwk_publisher>,
    message: In<'_, pwk_message>,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_publish_blobs", error, |name| {
        publish(publisher, Attached::of(message, name)?.message(), deadline, number, name)
    })
}

/// Publishes a message if it need not wait, else PWK_WOULD_BLOCK. Otherwise it is as
/// pwk_publisher_publish.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_try_publish(
    publisher: In<'_, pwk_publisher>,
    data: Lent<'_, c_void>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_try_publish", error, |name| {
        try_publish(publisher, message((data, len), 0, name)?, None, name)
    })
}

/// As pwk_publisher_try_publish, with flags. `number` is the number of the message.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_try_publish_message(
    publisher: In<'_, pwk_publisher>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_try_publish_message", error, |name| {
        try_publish(publisher, message((data, len), flags, name)?, number, name)
    })
}

/// As pwk_publisher_try_publish_message, with blobs. Fails as pwk_publisher_publish_blobs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_try_publish_blobs(
    publisher: In<'_, pwk_publisher>,
    message: In<'_, pwk_message>,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_try_publish_blobs", error, |name| {
        try_publish(publisher, Attached::of(message, name)?.message(), number, name)
    })
}

/// Publishes `count` messages one after the other, with the same flags, and wakes the subscribers once.
/// `number` is the number of the last message, 0 if there are none. The deadline is for all together.
/// Messages of other publishers may come in between.
///
/// Fails as pwk_publisher_publish, for the first message that was not published; pwk_error.done says
/// how many were.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_publish_many(
    publisher: In<'_, pwk_publisher>,
    messages: Lent<'_, pwk_bytes>,
    count: usize,
    flags: u32,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_publish_many", error, |name| {
        let messages = messages.array(count, name)?.iter();
        let messages = messages.map(|bytes| Ok(Message::new(bytes.read(name)?).flags(flags)));
        publish_many(publisher, messages.collect::<Result<_>>()?, deadline, number, name)
    })
}

/// As pwk_publisher_publish_many, with blobs, and with flags for each message.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_publish_many_blobs(
    publisher: In<'_, pwk_publisher>,
    messages: Lent<'_, pwk_message>,
    count: usize,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_publish_many_blobs", error, |name| {
        let messages = messages.array(count, name)?.iter();
        let messages = messages.map(|message| Attached::of(Some(message), name));
        let messages = messages.collect::<Result<Vec<_>>>()?;
        publish_many(publisher, messages.iter().map(Attached::message).collect(), deadline, number, name)
    })
}

/// A descriptor for an event loop, readable while there may be room in the ring, after
/// pwk_publisher_try_publish has returned PWK_WOULD_BLOCK. It is the program's to close, and not to be
/// read from. A forked child asks for one of its own.
///
/// Fails with PWK_OS if no descriptor is left, or no thread can be started.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_doorbell(
    publisher: In<'_, pwk_publisher>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_publisher_doorbell", error, |name| {
        let (publisher, fd) = (name.given(publisher)?, name.given(fd)?);
        put(Some(fd), publisher.publisher.doorbell()?.into_raw_fd())
    })
}

/// The channel that a publisher is attached to, lent until the publisher is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_broadcast(publisher: In<'_, pwk_publisher>) -> In<'_, pwk_broadcast> {
    publisher.map(|publisher| &publisher.broadcast)
}

/// Leaves the channel. Messages that were published stay in the ring.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_publisher_free(publisher: Handle<pwk_publisher>) {
    free(publisher);
}

// ---------------------------------------------------------------- with flags or blobs, or without

#[inline]
fn message<'a>((data, len): (Lent<'a, c_void>, usize), flags: u32, name: Name) -> Result<Message<'a>> {
    Ok(Message::new(data.bytes(len, name)?).flags(flags))
}

#[inline]
fn publish(
    publisher: In<'_, pwk_publisher>,
    message: Message<'_>,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    name: Name,
) -> Result<pwk_status> {
    put(number, name.given(publisher)?.publisher.publish(message, at(deadline))?)
}

#[inline]
fn try_publish(
    publisher: In<'_, pwk_publisher>,
    message: Message<'_>,
    number: Out<'_, u64>,
    name: Name,
) -> Result<pwk_status> {
    let published = name.given(publisher)?.publisher.try_publish(message)?;
    or_would_block(published, |published| put(number, published))
}

fn publish_many(
    publisher: In<'_, pwk_publisher>,
    messages: Vec<Message<'_>>,
    deadline: pwk_deadline,
    number: Out<'_, u64>,
    name: Name,
) -> Result<pwk_status> {
    put(number, name.given(publisher)?.publisher.publish_many(messages, at(deadline))?)
}

// ---------------------------------------------------------------- on this side

// SAFETY: numbers.
unsafe impl Growing for pwk_publisher_options {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_publisher_options {
    const DEFAULT: pwk_publisher_options = pwk_publisher_options {
        size: size_of::<pwk_publisher_options>(),
        max_message: PWK_DEFAULT_MAX_MESSAGE,
        keep_bytes: PWK_DEFAULT_KEEP_BYTES,
    };
}

impl pwk_publisher_options {
    fn attach(&self, broadcast: &pwk_broadcast) -> Result<pwk_publisher> {
        let &pwk_publisher_options { max_message, keep_bytes, .. } = self;
        let options = PublisherOptions::new().max_message(max_message).keep_bytes(keep_bytes);
        let publisher = broadcast.segment.publisher_with(&options)?;
        Ok(pwk_publisher { publisher, broadcast: broadcast.clone() })
    }
}
