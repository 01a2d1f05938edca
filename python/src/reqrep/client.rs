//! The calling end. Mirrors `server.rs`.

use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock};

use pipework::reqrep::{self, Message, Reply, Ticket};
use pipework::{Deadline, Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::segment::{MODULE, Place, Segment};
use super::shared::{Shared, closed};
use crate::buffer::{Bytes, Held, bytes, unless_small};
use crate::error::{OrRaise, Oversize};
use crate::imports::Import;
use crate::keywords::{Flags, InFlight, Redeliveries};
use crate::task::Task;
use crate::wait::{Timeout, in_slices, until};

/// Sends requests and gets their replies.
///
/// `Client(segment)` attaches to a `Segment`, or to the one at a path, which must be there. Any number of threads and tasks may use one
/// client at the same time. In a forked child it works on, as a member of its own; calls in progress stay the parent's. It can be pickled for another process.
///
/// If a server dies with a request, another gets it, up to `redeliveries` times (at most 3): for requests that may be carried out twice. With
/// `needs_server`, a call raises `NoServer` where no server is attached, instead of waiting for one. With `max_in_flight`, at most so many calls are in
/// progress at a time (0 is any number): beyond that, `send` and `call` wait as they do without a free slot, and `try_send` gives None, until a reply is
/// received or a call cancelled. So a client that sends and does not receive leaves slots to the others.
///
/// >>> import threading
/// >>> from pipework.reqrep import Client, Segment, Server
/// >>> segment = Segment.anonymous()
/// >>> server, client = Server(segment), Client(segment)
/// >>> def serve():
/// ...     for request in server:
/// ...         with request:
/// ...             request.reply(request.data.upper())
/// >>> thread = threading.Thread(target=serve)
/// >>> thread.start()
/// >>> client.call(b"hello", timeout=5.0)
/// b'HELLO'
/// >>> server.close(); thread.join()
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct Client(Calls<reqrep::Client>);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(
        signature = (segment, redeliveries=Redeliveries(0), needs_server=false, max_in_flight=InFlight(0)),
        text_signature = "(segment, redeliveries=0, needs_server=false, max_in_flight=0)"
    )]
    fn attach(
        py: Python<'_>,
        segment: Place<'_, '_>,
        redeliveries: Redeliveries,
        needs_server: bool,
        max_in_flight: InFlight,
    ) -> PyResult<Client> {
        let segment = segment.opened(py)?;
        let client = segment.get().get_ref().client().or_raise(py)?;
        let client = client.redeliveries(redeliveries.0).needs_server(needs_server);
        let client = client.max_in_flight(max_in_flight.0);
        Ok(Client(Calls::new(client, segment, (redeliveries.0, needs_server, max_in_flight.0))))
    }

    /// Sends a request and waits for its reply; returns its bytes. `timeout` covers both. `flags` are 32 bits of the user's that travel along.
    ///
    /// Raises `TimedOut`: the call is cancelled then, as it is when a signal handler raises, but a server may have begun with it. `PeerDied` within 250 ms if its server has
    /// died; `Failed` if its server gave it up; `TooLong` if it does not fit into the segment's requests; `NoServer`, if that was asked for.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn call(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Timeout>,
        flags: Flags,
    ) -> PyResult<Py<PyBytes>> {
        bytes(py, [&self.0.call(py, (&data, flags.0), until(timeout))?])
    }

    /// As `call`; returns a `Message`: the reply with its flags.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn call_message(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Timeout>,
        flags: Flags,
    ) -> PyResult<Py<PyAny>> {
        with_flags(py, self.0.call(py, (&data, flags.0), until(timeout))?)
    }

    /// Sends a request and returns the ticket for its reply. Waits until a slot is free. Any number of calls may be in progress, up to the slots of the segment.
    ///
    /// Raises `TimedOut` if there was no slot, `TooLong` and `NoServer`: then nothing was sent.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn send(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Timeout>,
        flags: Flags,
    ) -> PyResult<u64> {
        self.0.send(py, (&data, flags.0), until(timeout))
    }

    /// Sends a request if a slot is free; None if none is. Raises as `send`, but for `TimedOut`.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn try_send(&self, py: Python<'_>, data: Bytes<'_, '_>, flags: Flags) -> PyResult<Option<u64>> {
        self.0.try_send(py, (&data, flags.0))
    }

    /// Waits for the reply of a call and returns its bytes.
    ///
    /// Raises `TimedOut`, with the ticket still good. `PeerDied`, `Failed`, `NoServer`: the call is over. `Stale`: it was over already, or is not this client's.
    #[pyo3(signature = (ticket, timeout=None))]
    fn recv(&self, py: Python<'_>, ticket: u64, timeout: Option<Timeout>) -> PyResult<Py<PyBytes>> {
        bytes(py, [&self.0.recv(py, ticket, until(timeout))?])
    }

    /// As `recv`; returns a `Message`: the reply with its flags.
    #[pyo3(signature = (ticket, timeout=None))]
    fn recv_message(&self, py: Python<'_>, ticket: u64, timeout: Option<Timeout>) -> PyResult<Py<PyAny>> {
        with_flags(py, self.0.recv(py, ticket, until(timeout))?)
    }

    /// The bytes of a call's reply; None if it has not come. Raises as `recv`, but for `TimedOut`.
    fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyBytes>>> {
        self.0.try_recv(py, ticket)?.map(|reply| bytes(py, [&reply])).transpose()
    }

    /// As `try_recv`; returns a `Message`: the reply with its flags.
    fn try_recv_message(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyAny>>> {
        self.0.try_recv(py, ticket)?.map(|reply| with_flags(py, reply)).transpose()
    }

    /// As `call`, in asyncio, on any event loop. Cancelling the task cancels the call. The time-out is asyncio's own: `asyncio.wait_for`.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn acall<'py>(&self, py: Python<'py>, data: Bytes<'_, '_>, flags: Flags) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, data.hold(), flags.0, |py, reply| Ok(bytes(py, [&reply])?.into_any()))
    }

    /// As `call_message`, in asyncio.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn acall_message<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        flags: Flags,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, data.hold(), flags.0, with_flags)
    }

    /// As `recv`, in asyncio. The ticket stays good if the task is cancelled.
    fn arecv<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, |py, reply| Ok(bytes(py, [&reply])?.into_any()))
    }

    /// As `recv_message`, in asyncio. The ticket stays good if the task is cancelled.
    fn arecv_message<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, with_flags)
    }

    /// Gives up a call. False if its reply is there: then it is for `recv`. A server that has the request finds out when it replies.
    ///
    /// Raises `Stale` if the call is over already, or is not this client's.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.0.cancel(py, ticket)
    }

    /// Calls of this client that are in progress: sent, and their replies not received.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.pending(py)
    }

    /// A descriptor for another event loop than asyncio's, readable while there is something to receive for a ticket. It is the caller's to close, and not to be
    /// read from. When it is readable, `try_recv` each call in progress. A forked child asks for one of its own.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// As `doorbell`, but readable while a request can be sent. It becomes unreadable when `try_send` finds no slot.
    fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.send_doorbell(py)
    }

    /// The segment that this client is attached to.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// Leaves the segment. Calls that wait raise `Invalid`, those of other threads within 250 ms, those of tasks at once; a server may have begun with
    /// them. A second time does nothing.
    fn close(&self) {
        self.0.close();
    }

    /// Whether this client is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __enter__(slf: Py<Client>) -> Py<Client> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __reduce__(slf: &Bound<'_, Client>) -> (Py<PyAny>, Settings) {
        (slf.get_type().into_any().unbind(), slf.get().0.settings(slf.py()))
    }
}

impl Client {
    fn start_call<'py>(
        &self,
        py: Python<'py>,
        data: Held,
        flags: u32,
        give: impl Fn(Python<'_>, Reply) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = data.len();
        let ticket = Arc::new(OnceLock::new());
        let told = Arc::clone(&ticket);
        let call = move |client: reqrep::Client| async move {
            let sent = |ticket| told.set(ticket).expect("a request is sent once");
            client.call_async_told(message((&data, flags)), sent).await
        };
        self.0.start(py, len, ticket, call, give)
    }

    fn start_recv<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        give: impl Fn(Python<'_>, Reply) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ticket = Ticket::from_bits(ticket);
        let recv = move |client: reqrep::Client| async move { client.recv_async(ticket).await };
        self.0.start(py, 0, Arc::new(ticket.into()), recv, give)
    }
}

fn message((data, flags): (&[u8], u32)) -> Message<'_> {
    Message::new(data).flags(flags)
}

fn with_flags(py: Python<'_>, reply: Reply) -> PyResult<Py<PyAny>> {
    static MESSAGE: Import = Import::new(MODULE, "Message");
    MESSAGE.make(py, (bytes(py, [&reply])?, reply.flags()))
}

// ---------------------------------------------------------------- whatever the payload is

/// A client of the core.
pub(super) trait Caller: Clone + Send + Sync + 'static {
    type Request<'a>: Copy + Send + Sync;
    type Reply: Send;

    /// Bytes that are copied to send it.
    fn len(request: Self::Request<'_>) -> usize;
    fn client(&self) -> &reqrep::Client;
    fn send(&self, request: Self::Request<'_>, deadline: Deadline) -> Result<Ticket>;
    fn try_send(&self, request: Self::Request<'_>) -> Result<Option<Ticket>>;
    fn recv(&self, ticket: Ticket, deadline: Deadline) -> Result<Self::Reply>;
    fn try_recv(&self, ticket: Ticket) -> Result<Option<Self::Reply>>;
    fn abandon(&self, ticket: Ticket) -> Result<Option<Self::Reply>>;
}

impl Caller for reqrep::Client {
    type Request<'a> = (&'a [u8], u32);
    type Reply = Reply;

    fn len((data, _): (&[u8], u32)) -> usize {
        data.len()
    }

    fn client(&self) -> &reqrep::Client {
        self
    }

    fn send(&self, request: (&[u8], u32), deadline: Deadline) -> Result<Ticket> {
        self.send(message(request), deadline)
    }

    fn try_send(&self, request: (&[u8], u32)) -> Result<Option<Ticket>> {
        self.try_send(message(request))
    }

    fn recv(&self, ticket: Ticket, deadline: Deadline) -> Result<Reply> {
        self.recv(ticket, deadline)
    }

    fn try_recv(&self, ticket: Ticket) -> Result<Option<Reply>> {
        self.try_recv(ticket)
    }

    fn abandon(&self, ticket: Ticket) -> Result<Option<Reply>> {
        self.abandon(ticket)
    }
}

const CLIENT: &str = "reqrep client";

/// How a client was set: redeliveries, needs_server, max_in_flight.
pub(super) type Terms = (u8, bool, u32);

/// What makes a client like this one in another process: the segment, and those.
pub(super) type Settings = (Py<Segment>, u8, bool, u32);

/// What a client does, on Python's terms.
pub(super) struct Calls<C> {
    client: Shared<C>,
    segment: Py<Segment>,
    terms: Terms,
}

impl<C: Caller> Calls<C> {
    pub(super) fn new(client: C, segment: Py<Segment>, terms: Terms) -> Calls<C> {
        Calls { client: Shared::new("client", client), segment, terms }
    }

    pub(super) fn call(
        &self,
        py: Python<'_>,
        request: C::Request<'_>,
        deadline: Deadline,
    ) -> PyResult<C::Reply> {
        let (mut client, mut sent) = (None, None);
        let done = in_slices(py, deadline, |slice| {
            // Refused once it is closed; the clone from before is still good to give the call up with.
            let client = &*client.insert(self.get(py)?);
            Ok(py.detach(|| {
                let ticket = match sent {
                    Some(ticket) => ticket,
                    None => *sent.insert(client.send(request, slice)?),
                };
                client.recv(ticket, slice)
            }))
        });
        if let Ok(Ok(reply)) = done {
            return Ok(reply);
        }
        // Nobody has the ticket but this, so the call must not stay behind.
        let abandoned = client.zip(sent).map_or(Ok(None), |(client, ticket)| client.abandon(ticket));
        // What a signal handler has raised counts more than a reply at the last moment.
        let outcome = done?.or_else(|error| abandoned?.ok_or(error));
        outcome.map_err(|error| self.for_request(C::len(request), error)).or_raise(py)
    }

    pub(super) fn send(&self, py: Python<'_>, request: C::Request<'_>, deadline: Deadline) -> PyResult<u64> {
        let send = |client: &C, slice| {
            let sent = py.detach(|| client.send(request, slice));
            sent.map_err(|error| self.for_request(C::len(request), error))
        };
        self.client.wait(py, deadline, CLIENT, send).map(Ticket::to_bits)
    }

    pub(super) fn try_send(&self, py: Python<'_>, request: C::Request<'_>) -> PyResult<Option<u64>> {
        let client = self.get(py)?;
        let sent = unless_small(py, C::len(request), || client.try_send(request));
        let sent = sent.map_err(|error| self.for_request(C::len(request), error));
        Ok(sent.or_raise(py)?.map(Ticket::to_bits))
    }

    pub(super) fn recv(&self, py: Python<'_>, ticket: u64, deadline: Deadline) -> PyResult<C::Reply> {
        let ticket = Ticket::from_bits(ticket);
        self.client.wait(py, deadline, CLIENT, |client, slice| py.detach(|| client.recv(ticket, slice)))
    }

    pub(super) fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<C::Reply>> {
        let (client, ticket) = (self.get(py)?, Ticket::from_bits(ticket));
        // Who looks in vain keeps the interpreter lock, however large a reply may be.
        unless_small(py, client.client().reply_len(ticket), || client.try_recv(ticket)).or_raise(py)
    }

    pub(super) fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.get(py)?.client().cancel(Ticket::from_bits(ticket)).or_raise(py)
    }

    pub(super) fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.client().pending())
    }

    pub(super) fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.client().doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.client().send_doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.segment.clone_ref(py)
    }

    pub(super) fn settings(&self, py: Python<'_>) -> Settings {
        let (redeliveries, needs_server, max_in_flight) = self.terms;
        (self.segment(py), redeliveries, needs_server, max_in_flight)
    }

    fn for_request(&self, len: usize, error: Error) -> Oversize {
        for_request(len, self.largest_request(), error)
    }

    fn largest_request(&self) -> usize {
        self.segment.get().get_ref().geometry().request_bytes as usize
    }

    pub(super) fn get(&self, py: Python<'_>) -> PyResult<C> {
        self.client.get(py, CLIENT)
    }

    /// The coroutine of what `start` begins with the client: it ends when the client is closed. It copies `len` bytes until `ticket` is there, and
    /// then those of its reply.
    pub(super) fn start<'py, F: Future<Output = Result<C::Reply>> + Send + 'static>(
        &self,
        py: Python<'py>,
        len: usize,
        ticket: Arc<OnceLock<Ticket>>,
        start: impl FnOnce(C) -> F,
        give: impl Fn(Python<'_>, C::Reply) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        C::Reply: 'static,
    {
        let (client, most) = (self.get(py)?, self.largest_request());
        let reply = self.client.until_closed(start(client.clone()));
        let copied = move || ticket.get().map_or(len, |ticket| client.client().reply_len(*ticket));
        let give = move |py: Python<'_>, reply: Option<Result<C::Reply>>| match reply {
            Some(reply) => give(py, reply.map_err(|error| for_request(len, most, error)).or_raise(py)?),
            None => Err(closed(py, "client", CLIENT)),
        };
        Task::new(copied, reply, give).start(py)
    }

    pub(super) fn close(&self) {
        self.client.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

fn for_request(len: usize, most: usize, error: Error) -> Oversize {
    Oversize { error, len, option: "the segment's request_bytes", most }
}
