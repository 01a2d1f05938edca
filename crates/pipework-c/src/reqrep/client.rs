//! The calling end.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;

use pipework::reqrep::{Blob, CallError, Client, ClientOptions, Message, Reply, Ticket};

use super::segment::pwk_segment;
use crate::bytes::{Lending, pwk_buffer, pwk_bytes};
use crate::deadline::{at, pwk_deadline};
use crate::defaults::PWK_DEFAULT_MAX_MESSAGE;
use crate::edge::{
    Growing, Handle, In, InOut, Lent, Name, Options, Out, Space, Truth, done, free, get, hand_out,
    or_would_block, put, run,
};
use crate::error::{Failure, PWK_OK, Result, pwk_error, pwk_status};

/// Sends requests and gets their replies. Any threads may use one at the same time. A child that
/// was forked may use it, as a member of its own; calls in progress stay the parent's. It is freed
/// with pwk_client_free.
pub struct pwk_client {
    pub(super) client: Client,
    segment: pwk_segment,
}

/// How a client calls.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_client_options {
    /// sizeof(pwk_client_options).
    pub size: usize,
    /// Bytes of the longest message that it sends or receives; PWK_DEFAULT_MAX_MESSAGE by default.
    /// Copies of the blobs of a reply may have as many bytes together.
    pub max_message: usize,
    /// How many calls may be in progress at a time; 0, the default, is no limit.
    pub max_in_flight: u32,
    /// How many times another server may get a request after a server died with it: up to 3, and 0
    /// by default. For requests that may be carried out twice. A stream of which a part was given
    /// fails with PWK_PEER_DIED all the same.
    pub redeliveries: u8,
    /// A call fails with PWK_NO_SERVER where no server is attached, instead of waiting for one.
    pub needs_server: Truth,
}

/// Fills in the defaults. `size` is sizeof(pwk_client_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_options_init(options: Space<'_, pwk_client_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Attaches a client.
///
/// Fails with PWK_WOULD_BLOCK if all places for members are taken; PWK_CORRUPT if the segment was
/// damaged; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_new(
    segment: In<'_, pwk_segment>,
    options: Lent<'_, pwk_client_options>,
    client: Out<'_, Handle<pwk_client>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_new", error, |name| {
        let (segment, client) = (name.given(segment)?, name.given(client)?);
        hand_out(client, options.options(name)?.attach(segment)?)
    })
}

/// Sends a request and waits for its reply, whose bytes replace the content of `reply`.
///
/// Waits until the deadline, which covers sending and receiving. After PWK_FAILED, `reply` holds
/// the reason that the server gave, if it gave one; after any other failure it is empty. It must
/// not be where the request lies.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the call is cancelled, but a server may have begun
/// with it; to go on after a signal, use pwk_client_send and pwk_client_recv. PWK_PEER_DIED: its
/// server has died. PWK_FAILED: its server gave it up. PWK_TOO_LONG: the request or the reply is
/// longer than max_message. PWK_NO_SERVER: no server is attached, and needs_server was set.
/// PWK_CORRUPT: the segment was damaged. PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_call(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_call", error, |name| call(client, (data, len), 0, deadline, reply, None, name))
}

/// As pwk_client_call, with the 32 bits of flags that go with a request, and those of its reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_call_message(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    reply_flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_call_message", error, |name| {
        call(client, (data, len), flags, deadline, reply, reply_flags, name)
    })
}

/// As pwk_client_call_message, into memory of the program's: `space` bytes at `into`, which must
/// not be where the request lies. `reply_len` is set to the length of the reply.
///
/// Fails as pwk_client_call; with PWK_TOO_LONG, too, if the reply is longer than `space`. The reply
/// is lost then, and so is the reason after PWK_FAILED: pwk_client_send and pwk_client_recv_into
/// keep both.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_call_into(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    into: Space<'_, c_void>,
    space: usize,
    reply_len: Out<'_, usize>,
    reply_flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_call_into", error, |name| {
        let (client, request) = (&name.given(client)?.client, data.bytes(len, name)?);
        let into = into.bytes_beside(space, request, name)?;
        let request = message(request, flags);
        let ticket = client.send(request, at(deadline))?;
        let (len, flags) = match client.recv_into(ticket, into, at(deadline)) {
            Ok(received) => received,
            Err(error) => {
                // No caller has the ticket.
                let plain = error.error();
                let late = client.cancel(ticket)?.ok_or(error)?;
                let place = into.get_mut(..late.len()).ok_or(plain)?;
                place.copy_from_slice(&late);
                (late.len(), late.flags())
            }
        };
        put(reply_len, len)?;
        put(reply_flags, flags)
    })
}

/// Sends a request; its reply is received by `ticket`. As many calls may be in progress as
/// the segment has slots; a reply that was not received keeps its slot: see module reqrep in
/// pipework(3).
///
/// Waits until a slot is free, or until the deadline.
///
/// Fails as pwk_client_call, but never with PWK_PEER_DIED or PWK_FAILED. After any failure, no server
/// has the request, which can be sent again.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send", error, |name| {
        send(client, message(data.bytes(len, name)?, 0), deadline, ticket, name)
    })
}

/// As pwk_client_send, with flags.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_message(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_message", error, |name| {
        send(client, message(data.bytes(len, name)?, flags), deadline, ticket, name)
    })
}

/// Sends a request if a slot is free, else PWK_WOULD_BLOCK. It does not wait.
///
/// Fails as pwk_client_send, but never with PWK_TIMED_OUT or PWK_INTERRUPTED.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_send(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_send", error, |name| {
        try_send(client, message(data.bytes(len, name)?, 0), ticket, name)
    })
}

/// As pwk_client_try_send, with flags.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_send_message(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_send_message", error, |name| {
        try_send(client, message(data.bytes(len, name)?, flags), ticket, name)
    })
}

/// Sends `count` requests with the same flags, and wakes servers once for all of them. `tickets`
/// has space for as many; `sent`, which must not be NULL, says how many of them were sent: fewer if
/// a failure came in between, which comes again with the next call.
///
/// Waits until each request had a slot, or until the deadline.
///
/// Fails as pwk_client_send, if none could be sent.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_many(
    client: In<'_, pwk_client>,
    requests: Lent<'_, pwk_bytes>,
    count: usize,
    flags: u32,
    deadline: pwk_deadline,
    tickets: Space<'_, u64>,
    sent: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_many", error, |name| {
        let requests = requests.array(count, name)?.iter();
        let requests = requests.map(|request| Ok(message(request.data.bytes(request.len, name)?, flags)));
        let requests = requests.collect::<Result<Vec<_>>>()?;
        send_many(client, requests, deadline, tickets.array(count, name)?, sent, name)
    })
}

/// Waits for the reply of a call, whose bytes replace the content of `reply`. After PWK_FAILED,
/// `reply` holds the reason that the server gave, if it gave one.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the call goes on, call again. PWK_PEER_DIED,
/// PWK_FAILED, PWK_NO_SERVER: it is over. PWK_TOO_LONG: the reply is longer than max_message, and
/// the call is over. PWK_STALE: it was over already, or is not this client's. PWK_CORRUPT. PWK_OS:
/// with ENOMEM it is over, with any other number it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv", error, |name| recv(client, ticket, deadline, reply, None, name))
}

/// As pwk_client_recv, with the flags of the reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_message(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_message", error, |name| recv(client, ticket, deadline, reply, flags, name))
}

/// The reply of a call if it has come, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pwk_client_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_recv(
    client: In<'_, pwk_client>,
    ticket: u64,
    reply: InOut<'_, pwk_buffer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_recv", error, |name| try_recv(client, ticket, reply, None, |_| (), name))
}

/// As pwk_client_try_recv, with the flags of the reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_recv_message(
    client: In<'_, pwk_client>,
    ticket: u64,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_recv_message", error, |name| try_recv(client, ticket, reply, flags, |_| (), name))
}

/// As pwk_client_recv, into memory of the program's: `space` bytes at `into`. `len` says how long
/// the reply is.
///
/// Fails as pwk_client_recv; with PWK_TOO_LONG, too, if the reply is longer than `space`: then the
/// call goes on, and pwk_client_reply_len says how much space it needs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_into(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    into: Space<'_, c_void>,
    space: usize,
    len: Out<'_, usize>,
    flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_into", error, |name| {
        let (client, into) = (&name.given(client)?.client, into.bytes(space, name)?);
        let (received, sent_with) = client.recv_into(Ticket::from_bits(ticket), into, at(deadline))?;
        put(len, received)?;
        put(flags, sent_with)
    })
}

/// Waits for whichever call of this client ends next: of all that were sent and not received, but
/// no streams. Look at `ticket` first.
///
/// If it is not 0, that call is over, and this function returns how it ended, with its reply or
/// reason, as pwk_client_recv does. If it is 0 with PWK_OK, no call was in progress, so it waited
/// for nothing. If it is 0 with another status, the wait has failed.
///
/// The wait fails with PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_CORRUPT and PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_any(
    client: In<'_, pwk_client>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    reply: InOut<'_, pwk_buffer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_any", error, |name| recv_any(client, deadline, ticket, reply, None, |_| (), name))
}

/// As pwk_client_recv_any, with the flags of the reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_any_message(
    client: In<'_, pwk_client>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_any_message", error, |name| {
        recv_any(client, deadline, ticket, reply, flags, |_| (), name)
    })
}

/// How many bytes of a call's reply have come; 0 if none have. A hint: more may come right after.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_reply_len(client: In<'_, pwk_client>, ticket: u64) -> usize {
    get(0, || client.map_or(0, |client| client.client.reply_len(Ticket::from_bits(ticket))))
}

/// Cancels a call. `cancelled` is false if its reply is there: then it is to be received. A server
/// that has the request finds out when it replies, and the call keeps its slot until then.
///
/// Fails with PWK_STALE if the call is over already, or is not this client's.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_cancel(
    client: In<'_, pwk_client>,
    ticket: u64,
    cancelled: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_cancel", error, |name| {
        put(cancelled, name.given(client)?.client.cancel_unless_done(Ticket::from_bits(ticket))?)
    })
}

/// Gives up the reply of a call, and not the call: its request is carried out, also after this
/// client was freed or this process has ended.
///
/// Fails as pwk_client_cancel.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_forget(
    client: In<'_, pwk_client>,
    ticket: u64,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_forget", error, |name| done(name.given(client)?.client.forget(Ticket::from_bits(ticket))))
}

/// Forgets every call in progress, and returns how many they were; 0 for NULL. Before
/// pwk_client_free, so that no request that was sent is taken back. A forked child that has not
/// used the client has none.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_forget_all(client: In<'_, pwk_client>) -> usize {
    get(0, || client.map_or(0, |client| client.client.forget_all()))
}

/// How many calls are in progress: sent, and their replies not received; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_pending(client: In<'_, pwk_client>) -> usize {
    get(0, || client.map_or(0, |client| client.client.pending()))
}

/// A descriptor for an event loop, readable while a reply, or a failure in its place, can be
/// received. It is the program's to close, and not to be read from. When it is readable, try to
/// receive each call in progress; as soon as nothing is left, it is not readable any more. A forked
/// child asks for one of its own.
///
/// Fails with PWK_OS if no descriptor is left, or no thread can be started.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_doorbell(
    client: In<'_, pwk_client>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_doorbell", error, |name| {
        let (client, fd) = (name.given(client)?, name.given(fd)?);
        put(Some(fd), client.client.doorbell()?.into_raw_fd())
    })
}

/// As pwk_client_doorbell, but readable while a request can be sent: until pwk_client_try_send
/// finds no slot.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_doorbell(
    client: In<'_, pwk_client>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_doorbell", error, |name| {
        let (client, fd) = (name.given(client)?, name.given(fd)?);
        put(Some(fd), client.client.send_doorbell()?.into_raw_fd())
    })
}

/// The segment that a client is attached to, lent until the client is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_segment(client: In<'_, pwk_client>) -> In<'_, pwk_segment> {
    client.map(|client| &client.segment)
}

/// Leaves the segment. A request that no server has taken is taken back, unless it was forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_free(client: Handle<pwk_client>) {
    free(client);
}

// ---------------------------------------------------------------- with flags or blobs, or without

#[inline]
fn call(
    client: In<'_, pwk_client>,
    (data, len): (Lent<'_, c_void>, usize),
    flags: u32,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    reply_flags: Out<'_, u32>,
    name: Name,
) -> Result<pwk_status> {
    let (client, reply) = (&name.given(client)?.client, name.given(reply)?);
    let request = data.bytes(len, name)?;
    let mut into = reply.lend_beside(request, name)?;
    let called = client.call_into(message(request, flags), &mut into, at(deadline));
    put(reply_flags, called.map_err(|error| failed(error, &mut into))?)
}

#[inline]
pub(super) fn send(
    client: In<'_, pwk_client>,
    request: Message<'_>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    name: Name,
) -> Result<pwk_status> {
    let (client, ticket) = (&name.given(client)?.client, name.given(ticket)?);
    put(Some(ticket), client.send(request, at(deadline))?.to_bits())
}

pub(super) fn send_many(
    client: In<'_, pwk_client>,
    requests: Vec<Message<'_>>,
    deadline: pwk_deadline,
    tickets: &mut [MaybeUninit<u64>],
    sent: Out<'_, usize>,
    name: Name,
) -> Result<pwk_status> {
    let (client, sent) = (&name.given(client)?.client, name.given(sent)?);
    let all = client.send_many(requests, at(deadline))?;
    tickets.iter_mut().zip(&all).for_each(|(place, ticket)| _ = place.write(ticket.to_bits()));
    put(Some(sent), all.len())
}

#[inline]
pub(super) fn try_send(
    client: In<'_, pwk_client>,
    request: Message<'_>,
    ticket: Out<'_, u64>,
    name: Name,
) -> Result<pwk_status> {
    let (client, ticket) = (&name.given(client)?.client, name.given(ticket)?);
    or_would_block(client.try_send(request)?, |sent| put(Some(ticket), sent.to_bits()))
}

#[inline]
fn recv(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    name: Name,
) -> Result<pwk_status> {
    let (client, mut into) = (&name.given(client)?.client, name.given(reply)?.lend(name)?);
    let received = client.recv_to(Ticket::from_bits(ticket), &mut into, at(deadline));
    put(flags, received.map_err(|error| failed(error, &mut into))?)
}

#[inline]
pub(super) fn try_recv(
    client: In<'_, pwk_client>,
    ticket: u64,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    keep: impl FnOnce(&[Blob]),
    name: Name,
) -> Result<pwk_status> {
    let (client, mut into) = (&name.given(client)?.client, name.given(reply)?.lend(name)?);
    into.clear();
    let ended = client.try_recv(Ticket::from_bits(ticket)).transpose();
    or_would_block(ended, |ended| taken(ended, into, flags, keep))
}

pub(super) fn recv_any(
    client: In<'_, pwk_client>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    keep: impl FnOnce(&[Blob]),
    name: Name,
) -> Result<pwk_status> {
    let (client, ticket) = (&name.given(client)?.client, name.given(ticket)?);
    let mut into = name.given(reply)?.lend(name)?;
    into.clear();
    ticket.write(0);
    let Some(done) = client.recv_any(at(deadline))? else { return Ok(PWK_OK) };
    ticket.write(done.ticket.to_bits());
    taken(done.result, into, flags, keep)
}

// ---------------------------------------------------------------- on this side

// SAFETY: numbers, and truth values that may be any byte.
unsafe impl Growing for pwk_client_options {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_client_options {
    const DEFAULT: pwk_client_options = pwk_client_options {
        size: size_of::<pwk_client_options>(),
        max_message: PWK_DEFAULT_MAX_MESSAGE,
        max_in_flight: 0,
        redeliveries: 0,
        needs_server: Truth::of(false),
    };
}

impl pwk_client_options {
    fn attach(&self, segment: &pwk_segment) -> Result<pwk_client> {
        let &pwk_client_options { max_message, max_in_flight, redeliveries, needs_server, .. } = self;
        let options = ClientOptions::new().max_message(max_message).max_in_flight(max_in_flight);
        let options = options.redeliveries(redeliveries).needs_server(needs_server.is_set());
        Ok(pwk_client { client: segment.segment.client_with(&options)?, segment: segment.clone() })
    }
}

/// Puts a reply where C wants it, or the reason why the call has none; `keep` gets its blobs.
pub(super) fn taken(
    ended: std::result::Result<Reply, CallError>,
    mut into: Lending<'_>,
    flags: Out<'_, u32>,
    keep: impl FnOnce(&[Blob]),
) -> Result<pwk_status> {
    let reply = ended.map_err(|error| failed(error, &mut into))?;
    let sent_with = reply.flags();
    keep(reply.blobs());
    fill(&mut into, reply);
    put(flags, sent_with)
}

/// Puts the reason that a server gave into `into`, which is empty.
fn failed(error: CallError, into: &mut Vec<u8>) -> Failure {
    let failure = error.error().into();
    if let Some(reason) = error.into_reason() {
        fill(into, reason);
    }
    failure
}

fn fill(into: &mut Vec<u8>, reply: Reply) {
    // If the reply does not fit into the buffer's memory, it is moved instead of copied.
    if reply.len() <= into.capacity() { into.extend_from_slice(&reply) } else { *into = reply.into_vec() }
}

#[inline]
pub(super) fn message(payload: &[u8], flags: u32) -> Message<'_> {
    Message::new(payload).flags(flags)
}
