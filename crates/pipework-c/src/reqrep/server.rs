//! The answering end. Requests are answered by their tickets.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::reqrep::{KeptRequest, Message, Request, Server, ServerOptions, Ticket};

use super::client::message;
use super::segment::pwk_segment;
use crate::bytes::pwk_buffer;
use crate::deadline::{at, pwk_deadline};
use crate::defaults::{PWK_DEFAULT_MAX_MESSAGE, PWK_DEFAULT_PART_TIMEOUT_NS};
use crate::edge::{
    Growing, Handle, In, InOut, Lent, Name, Options, Out, Space, free, get, hand_out, or_would_block, put,
    run,
};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};

/// Takes requests from a segment and answers them. Any threads may use one at the same time, and
/// any number of servers, in any number of processes, compete for the requests: each goes to one of
/// them. A child that was forked may use it, as a member of its own; requests taken before stay the
/// parent's. It is freed with pwk_server_free.
pub struct pwk_server {
    pub(super) server: Server,
    segment: pwk_segment,
}

/// A request that a server has taken, and that no other server gets. It is answered by its ticket,
/// once: with pwk_server_reply or pwk_server_fail. It keeps its slot until then, or until the
/// server is freed, even if its client no longer waits for it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_request {
    /// The ticket of the call, the same as pwk_client_send has given out.
    pub ticket: u64,
    /// The offset of its bytes in the buffer: 0, unless several requests came in it.
    pub offset: usize,
    /// How many they are.
    pub len: usize,
    /// The 32 bits that the client sent with it.
    pub flags: u32,
    /// How many servers have died with this request.
    pub redeliveries: u16,
}

/// How a server answers.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_server_options {
    /// sizeof(pwk_server_options).
    pub size: usize,
    /// Bytes of the longest message that it receives or answers with; PWK_DEFAULT_MAX_MESSAGE by
    /// default. Copies of the blobs of a request may have as many bytes together.
    pub max_message: usize,
    /// For how long a client may take for a part that the reply comes after;
    /// PWK_DEFAULT_PART_TIMEOUT_NS by default.
    pub part_timeout_ns: u64,
}

/// Fills in the defaults. `size` is sizeof(pwk_server_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_options_init(options: Space<'_, pwk_server_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Attaches a server. Fails as pwk_client_new.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_new(
    segment: In<'_, pwk_segment>,
    options: Lent<'_, pwk_server_options>,
    server: Out<'_, Handle<pwk_server>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_new", error, |name| {
        let (segment, server) = (name.given(segment)?, name.given(server)?);
        hand_out(server, options.options(name)?.attach(segment)?)
    })
}

/// Waits for the next request, whose bytes replace the content of `data`.
///
/// Fails with PWK_TIMED_OUT; PWK_INTERRUPTED; PWK_CLOSED once the server was stopped; PWK_CORRUPT
/// if the segment was damaged; PWK_OS, for instance with EMFILE; PWK_TOO_LONG if this process holds as
/// many bytes of blobs as blob_limit allows. If this process lacks a descriptor, memory or bytes of
/// blobs, the request stays for another server or a later call.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_recv(
    server: In<'_, pwk_server>,
    deadline: pwk_deadline,
    data: InOut<'_, pwk_buffer>,
    request: Out<'_, pwk_request>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_recv", error, |name| {
        let (server, request) = (&name.given(server)?.server, name.given(request)?);
        let mut data = name.given(data)?.lend(name)?;
        let KeptRequest { ticket, flags, redeliveries } = server.recv_to(&mut data, at(deadline))?;
        let (ticket, redeliveries) = (ticket.to_bits(), redeliveries.into());
        put(Some(request), pwk_request { ticket, offset: 0, len: data.len(), flags, redeliveries })
    })
}

/// The next request if one waits, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pwk_server_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_try_recv(
    server: In<'_, pwk_server>,
    data: InOut<'_, pwk_buffer>,
    request: Out<'_, pwk_request>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_try_recv", error, |name| {
        let (server, request) = (&name.given(server)?.server, name.given(request)?);
        let mut data = name.given(data)?.lend(name)?;
        data.clear();
        or_would_block(server.try_recv()?, |taken| put(Some(request), keep(taken, &mut data)))
    })
}

/// Takes up to `max` requests: waits for the first, then takes those that are there, and for
/// `linger_ns` nanoseconds those that come. Their bytes are put one after the other into `data`,
/// where each request says its offset; `count` says how many they are.
///
/// Fails as pwk_server_recv. Requests that were taken before a failure are returned, and the
/// failure comes again with the next call.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_recv_many(
    server: In<'_, pwk_server>,
    max: usize,
    deadline: pwk_deadline,
    linger_ns: u64,
    data: InOut<'_, pwk_buffer>,
    requests: Space<'_, pwk_request>,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_recv_many", error, |name| {
        let (server, count) = (&name.given(server)?.server, name.given(count)?);
        let (mut data, space) = (name.given(data)?.lend(name)?, requests.array(max, name)?);
        data.clear();
        let taken = server.recv_many(max, at(deadline), Duration::from_nanos(linger_ns))?;
        put(Some(count), keep_all(taken, &mut data, space))
    })
}

/// As pwk_server_recv_many, with the requests that wait now. It does not wait, and `count` may be
/// 0.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_drain(
    server: In<'_, pwk_server>,
    max: usize,
    data: InOut<'_, pwk_buffer>,
    requests: Space<'_, pwk_request>,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_drain", error, |name| {
        let (server, count) = (&name.given(server)?.server, name.given(count)?);
        let (mut data, space) = (name.given(data)?.lend(name)?, requests.array(max, name)?);
        data.clear();
        put(Some(count), keep_all(server.drain(max)?, &mut data, space))
    })
}

/// Answers a request. If its client has cancelled or forgotten the call, or has died, that is no
/// failure: pwk_server_reply_message says so in `wanted`.
///
/// It waits only after pwk_server_part, until the client has taken that part, for which it has
/// part_timeout_ns, whatever signals come.
///
/// Fails with PWK_TOO_LONG if the reply is longer than max_message: then the request is still to be
/// answered. It is over after any other failure: PWK_STALE if the ticket is none that this server
/// has to answer; PWK_TIMED_OUT if the client has not taken the part in time; PWK_CORRUPT;
/// PWK_OS, with ENOSPC if no memory is left for a long reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_reply(
    server: In<'_, pwk_server>,
    ticket: u64,
    data: Lent<'_, c_void>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_reply", error, |name| reply(server, ticket, data, len, 0, None, name))
}

/// As pwk_server_reply, with flags. `wanted` says whether the client still waited: false if it has
/// cancelled or forgotten the call, or if its death was noticed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_reply_message(
    server: In<'_, pwk_server>,
    ticket: u64,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_reply_message", error, |name| reply(server, ticket, data, len, flags, wanted, name))
}

/// As pwk_server_reply_message, but waits for the client until the deadline.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it was not given, and the request is still to be
/// answered. Otherwise as pwk_server_reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_reply_until(
    server: In<'_, pwk_server>,
    ticket: u64,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_reply_until", error, |name| {
        reply_until(server, ticket, message(data.bytes(len, name)?, flags), deadline, wanted, name)
    })
}

/// Gives the client a part of the reply, which it gets as soon as it asks for it; then come other
/// parts, or pwk_server_reply. `wanted` is false if the call is not waited for any more: the client
/// has cancelled or forgotten it, or its death was noticed; pwk_server_fail ends the request then.
/// A client that does not ask for parts gets all of them as one reply: they are collected in this
/// process until then.
///
/// Waits until the client has taken the part before, or until the deadline.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it was not given, and can be given again.
/// PWK_TOO_LONG if it is longer than max_message, or what is collected would be. PWK_STALE,
/// PWK_CORRUPT and PWK_OS as pwk_server_reply, but the request is not over.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_part(
    server: In<'_, pwk_server>,
    ticket: u64,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_part", error, |name| {
        give_part(server, ticket, message(data.bytes(len, name)?, flags), deadline, wanted, name)
    })
}

/// Waits until the client has taken the part that pwk_server_part gave last, or until the deadline.
/// `wanted` is as for pwk_server_part. Call it before pwk_server_fail, whose reason does not fit
/// beside a part that was not taken.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: it has not taken it yet. PWK_STALE, PWK_CORRUPT
/// and PWK_OS as pwk_server_reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_flush(
    server: In<'_, pwk_server>,
    ticket: u64,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_flush", error, |name| {
        let server = &name.given(server)?.server;
        put(wanted, with(server, ticket, name, |request| Ok(request.flush(at(deadline))?))?)
    })
}

/// Gives a request up: its call fails with PWK_FAILED, and its client gets the reason, bytes of
/// which as many arrive as a reply in one slot has. There may be none. `wanted` says whether the
/// client still waited.
///
/// Fails with PWK_STALE if the ticket is none that this server has to answer.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_fail(
    server: In<'_, pwk_server>,
    ticket: u64,
    reason: Lent<'_, c_void>,
    len: usize,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_fail", error, |name| {
        let (server, reason) = (&name.given(server)?.server, message(reason.bytes(len, name)?, 0));
        put(wanted, kept(server, ticket, name)?.fail(reason))
    })
}

/// Whether a request is to be carried out: `wanted` is false once its client has cancelled, or its
/// death was noticed, as it is within 250 ms where this is asked again and again; pwk_server_fail
/// ends the request then.
///
/// Fails with PWK_STALE if the ticket is none that this server has to answer.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_is_wanted(
    server: In<'_, pwk_server>,
    ticket: u64,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_is_wanted", error, |name| {
        let server = &name.given(server)?.server;
        put(wanted, with(server, ticket, name, |request| Ok(request.is_wanted()))?)
    })
}

/// How many servers have died with a request: the same as pwk_request.redeliveries.
///
/// Fails with PWK_STALE if the ticket is none that this server has to answer.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_redeliveries(
    server: In<'_, pwk_server>,
    ticket: u64,
    redeliveries: Out<'_, u16>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_redeliveries", error, |name| {
        let server = &name.given(server)?.server;
        put(redeliveries, with(server, ticket, name, |request| Ok(request.redeliveries().into()))?)
    })
}

/// In a forked child, makes a request its own that the parent had taken when it forked: for servers
/// that fork for each request. The parent must not answer it any more, and gets PWK_STALE.
///
/// Fails with PWK_STALE if the parent has answered it or has died, if it has given a part of the
/// reply, or if the ticket is none that it had to answer. It also fails as pwk_server_new, since
/// the child attaches.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_adopt(
    server: In<'_, pwk_server>,
    ticket: u64,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_adopt", error, |name| {
        name.given(server)?.server.adopt(Ticket::from_bits(ticket))?.keep();
        Ok(PWK_OK)
    })
}

/// Fails all requests that wait now; `count` says how many they were.
///
/// Fails as pwk_server_try_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_clear(
    server: In<'_, pwk_server>,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_clear", error, |name| put(count, name.given(server)?.server.clear()?))
}

/// Stops a server: from now on, calls that receive fail with PWK_CLOSED at once, and no more
/// requests are taken. Requests that were taken can be answered. Any thread may call it; it does
/// not wait. NULL is allowed. To stop on a signal, block it in all threads, and have one wait for
/// it with sigwait and then call this.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_stop(server: In<'_, pwk_server>) {
    get((), || server.into_iter().for_each(|server| server.server.stop()));
}

/// A descriptor for an event loop, readable while a request waits, and once the server was stopped.
/// It is the program's to close, and not to be read from. When it is readable, take requests with
/// pwk_server_try_recv or pwk_server_drain until no request is left. A forked child asks for one of
/// its own.
///
/// Fails with PWK_OS if no descriptor is left, or no thread can be started.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_doorbell(
    server: In<'_, pwk_server>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_doorbell", error, |name| {
        let (server, fd) = (name.given(server)?, name.given(fd)?);
        put(Some(fd), server.server.doorbell()?.into_raw_fd())
    })
}

/// The segment that a server is attached to, lent until the server is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_segment(server: In<'_, pwk_server>) -> In<'_, pwk_segment> {
    server.map(|server| &server.segment)
}

/// Leaves the segment. Requests that it has taken and not answered fail at their clients.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_free(server: Handle<pwk_server>) {
    free(server);
}

// ---------------------------------------------------------------- on this side

#[inline]
fn reply(
    server: In<'_, pwk_server>,
    ticket: u64,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    wanted: Out<'_, bool>,
    name: Name,
) -> Result<pwk_status> {
    let server = &name.given(server)?.server;
    let reply = message(data.bytes(len, name)?, flags);
    let answered = server.reply_to(Ticket::from_bits(ticket), &reply)?;
    put(wanted, answered.ok_or_else(|| name.failure(ErrorKind::Stale))?)
}

pub(super) fn reply_until(
    server: In<'_, pwk_server>,
    ticket: u64,
    reply: Message<'_>,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    name: Name,
) -> Result<pwk_status> {
    let server = &name.given(server)?.server;
    let answered = server.reply_until(Ticket::from_bits(ticket), &reply, at(deadline))?;
    put(wanted, answered.ok_or_else(|| name.failure(ErrorKind::Stale))?)
}

pub(super) fn give_part(
    server: In<'_, pwk_server>,
    ticket: u64,
    part: Message<'_>,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    name: Name,
) -> Result<pwk_status> {
    let server = &name.given(server)?.server;
    put(wanted, with(server, ticket, name, |request| Ok(request.part(part, at(deadline))?))?)
}

// SAFETY: numbers.
unsafe impl Growing for pwk_server_options {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_server_options {
    const DEFAULT: pwk_server_options = pwk_server_options {
        size: size_of::<pwk_server_options>(),
        max_message: PWK_DEFAULT_MAX_MESSAGE,
        part_timeout_ns: PWK_DEFAULT_PART_TIMEOUT_NS,
    };
}

impl pwk_server_options {
    fn attach(&self, segment: &pwk_segment) -> Result<pwk_server> {
        let (max_message, part_timeout) = (self.max_message, Duration::from_nanos(self.part_timeout_ns));
        let options = ServerOptions::new().max_message(max_message).part_timeout(part_timeout);
        Ok(pwk_server { server: segment.segment.server_with(&options)?, segment: segment.clone() })
    }
}

/// Appends the bytes of a request to `data`, and says what it is.
fn described(request: &Request<'_>, data: &mut Vec<u8>) -> pwk_request {
    let (offset, len) = (data.len(), request.payload().len());
    data.extend_from_slice(request.payload());
    pwk_request {
        ticket: request.ticket().to_bits(),
        offset,
        len,
        flags: request.flags(),
        redeliveries: request.redeliveries().into(),
    }
}

/// As `described`, and leaves it with its server.
fn keep(request: Request<'_>, data: &mut Vec<u8>) -> pwk_request {
    let described = described(&request, data);
    request.keep();
    described
}

/// Keeps all of them that have space, and returns how many they are.
fn keep_all(requests: Vec<Request<'_>>, data: &mut Vec<u8>, space: &mut [MaybeUninit<pwk_request>]) -> usize {
    let count = requests.len();
    space.iter_mut().zip(requests).for_each(|(place, request)| _ = place.write(keep(request, data)));
    count
}

/// A request that was left with its server.
fn kept<'a>(server: &'a Server, ticket: u64, name: Name) -> Result<Request<'a>> {
    server.kept(Ticket::from_bits(ticket))?.ok_or_else(|| name.failure(ErrorKind::Stale))
}

/// Does something with a request that was left with its server, and leaves it there again unless it
/// is over.
pub(super) fn with<T>(
    server: &Server,
    ticket: u64,
    name: Name,
    act: impl FnOnce(&mut Request<'_>) -> Result<T>,
) -> Result<T> {
    let mut request = kept(server, ticket, name)?;
    let done = act(&mut request);
    if !request.is_over() {
        request.keep();
    }
    done
}
