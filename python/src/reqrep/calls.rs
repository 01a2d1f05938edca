//! The work of a client, on Python's terms, for all kinds of payloads. Mirrors `taking.rs`.

use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock, Weak};

use pipework::reqrep::{CallError, Client, ClientOptions, Message, Reply, Ticket};
use pipework::{Deadline, ErrorKind, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::blobs::Attached;
use super::codec::{Arguments, Codec, Form, Give};
use super::segment::Segment;
use super::shared::{Shared, closed};
use crate::buffer::{Bytes, Held, SMALL, Space, filled, unless_small};
use crate::error::{OrRaise, Oversize, Raise, remote};
use crate::handle::warn_unclosed;
use crate::locked::Locked;
use crate::task::Task;
use crate::wait::{CallTimeout, PAST, Seconds, wait};

/// Bytes, flags and blobs.
pub(super) type Request<'a> = (&'a [u8], u32, &'a Attached);

pub(super) fn message<'a>((data, flags, blobs): Request<'a>) -> Message<'a> {
    Message::new(data).flags(flags).attach(&blobs.0)
}

pub(super) const CLIENT: &str = "reqrep client";
pub(super) const CALL: &str = "reqrep call";
pub(super) const RECV: &str = "reqrep recv";

/// The settings of a client.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The `timeout` of each call that is given none.
    pub(super) timeout: Option<Seconds>,
    pub(super) redeliveries: u8,
    pub(super) needs_server: bool,
    pub(super) max_in_flight: u32,
    pub(super) max_message: usize,
}

impl Terms {
    pub(super) fn options(self) -> ClientOptions {
        let options = ClientOptions::new().redeliveries(self.redeliveries).needs_server(self.needs_server);
        options.max_in_flight(self.max_in_flight).max_message(self.max_message)
    }
}

/// Enough to make an equal client in another process: the segment, and the keyword arguments.
pub(super) type Settings<'py> = (Py<Segment>, Bound<'py, PyDict>);

/// Something that keeps a client in the segment, until the client is closed.
pub(super) trait OfClient: Send + Sync {
    fn leave(&self, py: Python<'_>);
}

/// The work of a client, on Python's terms.
pub(super) struct Calls {
    client: Shared<Client>,
    segment: Py<Segment>,
    terms: Terms,
    codec: Codec,
    streams: Locked<Vec<Weak<dyn OfClient>>>,
}

impl Calls {
    pub(super) fn new(client: Client, segment: Py<Segment>, terms: Terms, codec: Codec) -> Calls {
        let streams = Locked::new(Vec::new());
        Calls { client: Shared::new("client", client), segment, terms, codec, streams }
    }

    pub(super) fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Calls `with` with the encoded request.
    pub(super) fn encoded<T>(
        &self,
        op: &str,
        (data, flags, blobs): Arguments<'_, '_>,
        with: impl FnOnce(Request<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let (data, blobs) = self.codec.encode(op, &self.segment, (data, blobs))?;
        let data: Bytes<'_, '_> = data.extract()?;
        with((&data, flags, &blobs))
    }

    /// The encoded request, for a task.
    pub(super) fn held(
        &self,
        op: &str,
        (data, flags, blobs): Arguments<'_, '_>,
    ) -> PyResult<(Held, u32, Attached)> {
        let (data, blobs) = self.codec.encode(op, &self.segment, (data, blobs))?;
        Ok((data.extract::<Bytes<'_, '_>>()?.hold(), flags, blobs))
    }

    pub(super) fn give(&self, py: Python<'_>, op: &'static str, form: Form) -> Give {
        Give::new(py, &self.codec, op, form)
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// The time-out of a call: its own, or else the client's.
    pub(super) fn timeout(&self, timeout: CallTimeout) -> Option<Seconds> {
        timeout.or(self.terms.timeout)
    }

    /// When a call that begins now ends.
    pub(super) fn until(&self, timeout: CallTimeout) -> Deadline {
        Seconds::from_now(self.timeout(timeout))
    }

    pub(super) fn call(
        &self,
        py: Python<'_>,
        request: Request<'_>,
        timeout: Option<Seconds>,
    ) -> PyResult<Received> {
        let mut ticket = None;
        let ended = match self.call_at_once(py, request, &mut ticket)? {
            Some(ended) => ended.map(Received::Reply),
            None => {
                let deadline = Seconds::from_now(timeout);
                let called = self.make(py, ticket, |client, ticket| {
                    end(py, client, deadline, || start(client, ticket, request, deadline))
                })?;
                // A reply that came at the last moment counts.
                called.or_else(|given_up| given_up.last?.map(Received::Reply).ok_or(given_up.error))
            }
        };
        // Sending and receiving are steps of it.
        received(py, CALL, ended.map_err(|error| self.for_request(request.0.len(), error.during(CALL))))
    }

    /// Makes a short call that is answered at once, without giving the interpreter lock away: a
    /// thread that computes would keep it for 5 ms. It does not read the clock either, unless it
    /// spins. Returns None if there was no slot or no answer yet, or on an error, which the slow
    /// path gets again; and also if holding the lock has failed of late, since a thread that
    /// answers needs the lock too. A call that was started leaves its ticket.
    fn call_at_once(
        &self,
        py: Python<'_>,
        request: Request<'_>,
        started: &mut Option<Ticket>,
    ) -> PyResult<Option<Answer<Reply>>> {
        let (client, len) = (self.get(py)?, request.0.len());
        if len > SMALL || len > self.largest_request() || !client.is_to_spin() {
            return Ok(None);
        }
        let Ok(ticket) = start(&client, started, request, PAST) else { return Ok(None) };
        let is_there = client.spin_for(ticket).unwrap_or(false) && client.reply_len(ticket) <= SMALL;
        Ok(is_there.then(|| client.recv(ticket, PAST)))
    }

    pub(super) fn send(&self, py: Python<'_>, request: Request<'_>, deadline: Deadline) -> PyResult<u64> {
        let sent = self.make(py, None, |client, ticket| {
            Ok(*ticket.insert(py.detach(|| client.send(message(request), deadline))?))
        })?;
        let sent = sent.map_err(|given_up| self.for_request(request.0.len(), given_up.error));
        sent.or_raise(py).map(Ticket::to_bits)
    }

    /// Fewer tickets than requests, where an error came between.
    pub(super) fn send_many(
        &self,
        py: Python<'_>,
        requests: &[Request<'_>],
        deadline: Deadline,
    ) -> PyResult<Vec<u64>> {
        let mut tickets = Vec::new();
        while let Some(next) = requests.get(tickets.len()) {
            // Those that were sent before a signal handler raised are known, too.
            let sent = wait(py, &self.client.used(), || {
                let (client, rest) = (self.get(py)?, &requests[tickets.len()..]);
                let messages = rest.iter().map(|request| message(*request));
                let sent = py.detach(|| client.send_many(messages, deadline));
                Ok(sent.map(|more| tickets.extend(more)).map_err(CallError::from))
            });
            match sent {
                Ok(Ok(())) => {}
                Ok(Err(error)) if tickets.is_empty() => {
                    return Err(self.for_request(next.0.len(), error).raise(py));
                }
                Ok(Err(_)) => break,
                Err(raised) => {
                    // No caller gets their tickets.
                    if let Ok(client) = self.get(py) {
                        tickets.into_iter().for_each(|ticket| drop(client.cancel(ticket)));
                    }
                    return Err(raised);
                }
            }
        }
        Ok(tickets.into_iter().map(Ticket::to_bits).collect())
    }

    pub(super) fn try_send(&self, py: Python<'_>, request: Request<'_>) -> PyResult<Option<u64>> {
        let (client, len) = (self.get(py)?, request.0.len());
        let sent = unless_small(py, len, || client.try_send(message(request)));
        let (option, most) = self.limit();
        let sent = sent.map_err(|error| Oversize { error: error.into(), len, option, most });
        Ok(sent.or_raise(py)?.map(Ticket::to_bits))
    }

    pub(super) fn post(&self, py: Python<'_>, request: Request<'_>, deadline: Deadline) -> PyResult<()> {
        let ticket = match self.try_send(py, request)? {
            Some(ticket) => ticket,
            None => self.send(py, request, deadline)?,
        };
        self.forget(py, ticket)
    }

    pub(super) fn recv(&self, py: Python<'_>, ticket: u64, timeout: Option<Seconds>) -> PyResult<Received> {
        let (client, ticket) = (self.get(py)?, Ticket::from_bits(ticket));
        // As in `call_at_once`.
        if client.spin_for(ticket).unwrap_or(false)
            && client.reply_len(ticket) <= SMALL
            && let Some(reply) = client.try_recv(ticket).or_raise(py)?
        {
            return Ok(Received::Reply(reply));
        }
        let recv = |client: &Client, deadline| end(py, client, deadline, || Ok(ticket));
        self.client.wait(py, Seconds::from_now(timeout), CLIENT, recv)
    }

    pub(super) fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Received>> {
        let (client, ticket) = (self.get(py)?, Ticket::from_bits(ticket));
        if is_copied_here(&client, ticket) {
            return end_in_place(py, &client, ticket).or_raise(py).map(Some);
        }
        Ok(client.try_recv(ticket).or_raise(py)?.map(Received::Reply))
    }

    pub(super) fn recv_into(
        &self,
        py: Python<'_>,
        ticket: u64,
        space: &mut Space<'_>,
        deadline: Deadline,
    ) -> PyResult<usize> {
        let (ticket, mut len) = (Ticket::from_bits(ticket), 0);
        let received = wait(py, &self.client.used(), || {
            let client = self.get(py)?;
            Ok(recv_in_place(py, &client, ticket, space, deadline, &mut len))
        });
        let copied = received?.map_err(|error| for_buffer(len, space.len(), error));
        self::received(py, RECV, copied).map(|(len, _flags)| len)
    }

    pub(super) fn call_into(
        &self,
        py: Python<'_>,
        request: Request<'_>,
        space: &mut Space<'_>,
        deadline: Deadline,
    ) -> PyResult<usize> {
        let mut reply_len = 0;
        let called = self.make(py, None, |client, ticket| {
            let ticket = py.detach(|| start(client, ticket, request, deadline))?;
            recv_in_place(py, client, ticket, space, deadline, &mut reply_len)
        })?;
        let called = called.map_err(|given_up| match (reply_len, given_up.error.during(CALL)) {
            (0, error) => self.for_request(request.0.len(), error),
            (len, error) => for_buffer(len, space.len(), error),
        });
        received(py, CALL, called).map(|(len, _flags)| len)
    }

    /// Waits in `step`, which leaves the ticket of the call that it starts. If the wait fails, the
    /// call is cancelled: its result at the last moment, if it had one, comes beside the error.
    /// `step` gives the interpreter lock away by itself.
    fn make<T>(
        &self,
        py: Python<'_>,
        mut ticket: Option<Ticket>,
        mut step: impl FnMut(&Client, &mut Option<Ticket>) -> Answer<T>,
    ) -> PyResult<std::result::Result<T, GivenUp>> {
        let mut client = None;
        let done = wait(py, &self.client.used(), || {
            // Refused once it is closed; the clone from before is still good to give the call up
            // with.
            let client = &*client.insert(self.get(py)?);
            Ok(step(client, &mut ticket))
        });
        if let Ok(Ok(done)) = done {
            return Ok(Ok(done));
        }
        // Python gets no ticket, so the call must not stay behind.
        let last = client.zip(ticket).map(|(client, ticket)| client.cancel(ticket));
        // An exception of a signal handler counts more than a reply at the last moment.
        Ok(done?.map_err(|error| GivenUp { error, last: last.unwrap_or(Ok(None)) }))
    }

    pub(super) fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.get(py)?.cancel_unless_done(Ticket::from_bits(ticket)).or_raise(py)
    }

    pub(super) fn forget(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.get(py)?.forget(Ticket::from_bits(ticket)).or_raise(py)
    }

    pub(super) fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.pending())
    }

    pub(super) fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.client.fileno(py, CLIENT, Client::doorbell)
    }

    /// The segment that it is attached to, for people.
    pub(super) fn describe(&self) -> String {
        self.client.describe(self.segment.get().place())
    }

    pub(super) fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.send_doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.segment.clone_ref(py)
    }

    pub(super) fn settings<'py>(&self, py: Python<'py>) -> PyResult<Settings<'py>> {
        let Terms { timeout, redeliveries, needs_server, max_in_flight, max_message } = self.terms;
        let options = PyDict::new(py);
        options.set_item("timeout", timeout.map(Seconds::to_f64))?;
        options.set_item("redeliveries", redeliveries)?;
        options.set_item("needs_server", needs_server)?;
        options.set_item("max_in_flight", max_in_flight)?;
        options.set_item("max_message", max_message)?;
        options.set_item("codec", self.codec.named(py)?)?;
        Ok((self.segment(py), options))
    }

    pub(super) fn get(&self, py: Python<'_>) -> PyResult<Client> {
        self.client.get(py, CLIENT)
    }

    /// The client as its streams and iterators hold it.
    pub(super) fn shared(&self) -> &Shared<Client> {
        &self.client
    }

    pub(super) fn for_request(&self, len: usize, error: CallError) -> Oversize {
        for_request(len, self.limit(), error)
    }

    fn limit(&self) -> Limit {
        ("the client's max_message", self.terms.max_message.max(self.largest_request()))
    }

    fn largest_request(&self) -> usize {
        self.segment.get().sizes().request_bytes as usize
    }

    /// A coroutine for the future that `start` makes with the client: it ends when the client is
    /// closed. It copies `len` bytes until `ticket` is there, and then those of its reply.
    pub(super) fn start<'py, F: Future<Output = Answer<Reply>> + Send + 'static>(
        &self,
        py: Python<'py>,
        len: usize,
        ticket: Arc<OnceLock<Ticket>>,
        start: impl FnOnce(Client) -> F,
        give: Give,
        (op, timeout): (&'static str, Option<Seconds>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (client, limit) = (self.get(py)?, self.limit());
        let (ended, of_future) = (self.client.until_closed(start(client.clone())), give.of_future());
        let copied = move || ticket.get().map_or(len, |ticket| client.reply_len(*ticket));
        let give_out = move |py: Python<'_>, ended: Option<Answer<Reply>>| match ended {
            Some(ended) => {
                let ended = ended.map_err(|error| for_request(len, limit, error));
                of_future.reply(py, &received(py, op, ended)?)
            }
            None => Err(closed(py, "client", CLIENT)),
        };
        give.awaited(
            py,
            Task::new(self.client.second_looks(), copied, ended, give_out).start(py, op, timeout)?,
        )
    }

    /// Ends the stream when this client is closed.
    pub(super) fn keep(&self, stream: Weak<dyn OfClient>) {
        self.streams.with(|streams| {
            if streams.len() == streams.capacity() {
                streams.retain(|stream| stream.strong_count() > 0);
            }
            streams.push(stream);
        });
    }

    pub(super) fn close(&self, py: Python<'_>) {
        self.client.close();
        let streams = self.streams.with(std::mem::take);
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| stream.leave(py));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if !self.is_closed() {
            warn_unclosed(|| format!("client of {}", self.segment.get().place()));
        }
    }
}

/// A call that came to nothing.
struct GivenUp {
    error: CallError,
    /// Its end at the last moment, if it had ended.
    last: Answer<Option<Reply>>,
}

/// Starts a call, unless that was done before: then `ticket` is there.
fn start(
    client: &Client,
    ticket: &mut Option<Ticket>,
    request: Request<'_>,
    deadline: Deadline,
) -> Result<Ticket> {
    let started = ticket.map_or_else(|| client.start_call(message(request), deadline), Ok)?;
    Ok(*ticket.insert(started))
}

/// The option that limits a request, and its value.
type Limit = (&'static str, usize);

fn for_request(len: usize, (option, most): Limit, error: CallError) -> Oversize {
    Oversize { error, len, option, most }
}

fn for_buffer(len: usize, most: usize, error: CallError) -> Oversize {
    Oversize { error, len, option: "the buffer's length", most }
}

/// The received value, or the exception in its place: for a failed call as an error of `op`.
pub(super) fn received<T, E: Raise>(
    py: Python<'_>,
    op: &str,
    ended: std::result::Result<T, E>,
) -> PyResult<T> {
    ended.map_err(|error| match error.kind() {
        ErrorKind::Failed => remote(py, op, error.reason()),
        _ => error.raise(py),
    })
}

/// A reply, out of the segment.
pub(super) enum Received {
    /// As the core gives it.
    Reply(Reply),
    /// Copied straight into the object that Python gets, with its flags. It came without blobs.
    Bytes(Py<PyBytes>, u32),
}

impl Received {
    pub(super) fn give(self, py: Python<'_>, give: &Give) -> PyResult<Py<PyAny>> {
        match self {
            Received::Reply(reply) => give.reply(py, &reply),
            Received::Bytes(data, flags) => give.make(py, data, flags, &[]),
        }
    }
}

/// How a call has ended.
pub(super) type Answer<T = Received> = std::result::Result<T, CallError>;

/// Waits until a call has ended, without the interpreter lock. A long reply is copied once, to where
/// it is to lie.
fn end(
    py: Python<'_>,
    client: &Client,
    deadline: Deadline,
    ticket: impl FnOnce() -> Result<Ticket> + Send,
) -> Answer {
    let (ticket, reply) = py.detach(|| {
        let ticket = ticket()?;
        client.wait_for(ticket, deadline)?;
        if is_copied_here(client, ticket) {
            return Ok::<_, CallError>((ticket, None));
        }
        client.recv(ticket, deadline).map(|reply| (ticket, Some(reply)))
    })?;
    reply.map_or_else(|| end_in_place(py, client, ticket), |reply| Ok(Received::Reply(reply)))
}

/// Whether a reply is copied straight into the object that the program gets: it is long, and no blobs
/// are attached to it.
fn is_copied_here(client: &Client, ticket: Ticket) -> bool {
    client.reply_len(ticket) > SMALL && !client.reply_has_blobs(ticket)
}

/// Receives into a buffer of the caller's, under the interpreter lock; waits without it. `len` is how
/// long the reply is.
fn recv_in_place(
    py: Python<'_>,
    client: &Client,
    ticket: Ticket,
    space: &mut Space<'_>,
    deadline: Deadline,
    len: &mut usize,
) -> Answer<(usize, u32)> {
    py.detach(|| client.wait_for(ticket, deadline))?;
    *len = client.reply_len(ticket);
    space.write(py, *len, |space| client.recv_into(ticket, space, PAST))
}

/// The same for such a reply, once it is there.
fn end_in_place(py: Python<'_>, client: &Client, ticket: Ticket) -> Answer {
    let len = client.reply_len(ticket);
    match filled(py, len, |space| client.recv_into(ticket, space, PAST)) {
        Ok((made, Ok((copied, flags)))) if copied == len => Ok(Received::Bytes(made, flags)),
        Ok((_, Err(error))) => Err(error),
        // The memory ran out, or a peer has changed the length meanwhile: the core reports it.
        _ => client.recv(ticket, PAST).map(Received::Reply),
    }
}
