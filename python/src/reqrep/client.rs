//! The calling end. Mirrors `server.rs`.

use std::sync::{Arc, OnceLock};

use pipework::reqrep::{self, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::blobs::Attached;
use super::calls::{CALL, Calls, RECV, Request, Settings, Terms, message};
use super::codec::{Arguments, Codec, Form, SEND};
use super::segment::{Place, Reduced, Segment, reduce};
use super::streams::{Completed, STREAM, Stream};
use crate::buffer::Space;
use crate::interpreter;
use crate::keywords::{Flags, InFlight, MaxMessage, Redeliveries};
use crate::wait::{CallTimeout, Seconds, Timeout, until};

/// Sends requests and gets their replies.
///
/// `Client(segment)` attaches to a `Segment` or to the segment at a path. Any number of threads and
/// tasks may use one client at the same time. In a forked child the client becomes a member of its
/// own, and the calls in progress stay with the parent. It can be pickled for another process.
///
/// `connect_timeout`: seconds to wait for a server to attach, and for the segment to appear at the
/// path; then `TimedOut` is raised. Default None: the segment must exist, and no server needs to.
/// The wait blocks an event loop, so a task calls `asyncio.to_thread(Client, ...)`.
///
/// `timeout`: seconds that each method of this client waits, unless it is given a `timeout` of its
/// own. Default None: for ever.
///
/// `redeliveries`: how often (at most 3) a request goes to another server because its own has died,
/// for requests that may be carried out twice. A stream of which a part has come raises
/// `PeerDied` all the same. Default 0.
///
/// `needs_server`: whether a call raises `NoServer` if no server is attached. Default False: it
/// waits for one.
///
/// `max_in_flight`: how many calls of this client may be in progress; then `send` and `call` wait and
/// `try_send` returns None, as without a free slot, until a reply is received or a call cancelled.
/// That leaves slots to other clients. Default 0: any number.
///
/// `max_message`: bytes of the longest request and reply. A payload longer than a slot is copied
/// into a file in memory, unseen, and out of it once. Blobs of a reply that have to be copied may have
/// as many bytes together.
///
/// `codec`: requests and replies are objects instead of bytes, and `data` is any object that the codec
/// can encode: "json", "msgpack", "pickle", or an object with `dumps` and `loads`. The server names
/// the same: `server.serve(handler, codec=...)`. A request that cannot be encoded raises `Invalid`, a
/// reply that cannot be decoded raises `Corrupt`. Only name "pickle" if the server is trusted:
/// unpickling runs code of the sender.
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
#[pyclass(frozen, weakref, subclass, module = "pipework.reqrep")]
pub(crate) struct Client(Calls);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(
        signature = (
            segment,
            *,
            connect_timeout=None,
            timeout=None,
            redeliveries=Redeliveries(0),
            needs_server=false,
            max_in_flight=InFlight(0),
            max_message=MaxMessage::DEFAULT,
            codec=None
        ),
        text_signature = "(segment, *, connect_timeout=None, timeout=None, redeliveries=0, needs_server=False, max_in_flight=0, max_message=268435456, codec=None)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn attach(
        py: Python<'_>,
        segment: Place<'_, '_>,
        connect_timeout: Option<Timeout>,
        timeout: Option<Seconds>,
        redeliveries: Redeliveries,
        needs_server: bool,
        max_in_flight: InFlight,
        max_message: MaxMessage,
        codec: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Client> {
        let codec = Codec::new(py, codec.as_ref())?;
        let segment = match connect_timeout {
            Some(_) => segment.served(py, until(connect_timeout))?,
            None => segment.opened(py)?,
        };
        let (redeliveries, max_in_flight) = (redeliveries.0, max_in_flight.0);
        let terms = Terms { timeout, redeliveries, needs_server, max_in_flight, max_message: max_message.0 };
        let client = segment.get().attach(py, |segment| segment.client_with(&terms.options()))?;
        Ok(Client(Calls::new(client, segment, terms, codec)))
    }

    /// Sends a request, waits for its reply and returns the bytes of the reply. `timeout` covers both.
    /// `flags` are 32 bits that travel with the request, `blobs` is a list of the `Blob` objects that
    /// it carries.
    ///
    /// Raises `TimedOut`, which cancels the call, as an exception of a signal handler does; a server
    /// may have begun with it. `PeerDied` within 250 ms if the server has died; `RemoteError` with
    /// the server's reason if the server failed the request; `TooLong` if the request or the reply
    /// is longer than `max_message`; `NoServer` with `needs_server`.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn call(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Py<PyAny>> {
        self.call_for(py, (data, flags.0, blobs), timeout, Form::Data)
    }

    /// As `call`; returns a `Message`: the reply with its flags and blobs.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn call_message(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Py<PyAny>> {
        self.call_for(py, (data, flags.0, blobs), timeout, Form::Message)
    }

    /// Sends a request and returns the ticket for its reply. Waits for a free slot. As many calls may
    /// be in progress as the segment has slots.
    ///
    /// Raises `TimedOut`, `TooLong` and `NoServer`: then no server has the request.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn send(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<u64> {
        self.0
            .encoded(SEND, (data, flags.0, blobs), |request| self.0.send(py, request, self.0.until(timeout)))
    }

    /// Sends several requests and wakes servers once for all of them. Returns their tickets in the
    /// same order; fewer tickets than requests if an error came in between.
    ///
    /// Raises as `send` if no request could be sent. If a signal handler raises, the requests that
    /// were sent are cancelled.
    #[pyo3(signature = (requests, *, timeout=CallTimeout::Unset))]
    fn send_many(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        timeout: CallTimeout,
    ) -> PyResult<Vec<u64>> {
        let deadline = self.0.until(timeout);
        let requests = interpreter::collect(requests)?;
        let requests = requests.iter().map(|data| self.0.held(SEND, (data, 0, Attached::default())));
        let requests = requests.collect::<PyResult<Vec<_>>>()?;
        let requests: Vec<_> = requests.iter().map(|(data, flags, blobs)| (&**data, *flags, blobs)).collect();
        self.0.send_many(py, &requests, deadline)
    }

    /// Sends a request and returns its ticket; None if no slot is free. Never waits. Raises `NoServer`
    /// and `TooLong` as `send`.
    #[pyo3(signature = (data, *, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, flags=0, blobs=())")]
    fn try_send(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Option<u64>> {
        self.0.encoded(SEND, (data, flags.0, blobs), |request| self.0.try_send(py, request))
    }

    /// Sends a request whose reply is not wanted: `forget(send(...))` in one step, which an exception
    /// of a signal handler does not divide. Waits for a free slot; with `timeout=0` it never waits.
    ///
    /// Raises as `send`.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn post(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<()> {
        self.0
            .encoded(SEND, (data, flags.0, blobs), |request| self.0.post(py, request, self.0.until(timeout)))
    }

    /// Waits for the reply of a call and returns its bytes.
    ///
    /// Raises `TimedOut`: the ticket stays valid. `PeerDied`, `RemoteError`, `NoServer`: the call is
    /// over. `Stale`: the call was over before, or is another client's.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn recv(&self, py: Python<'_>, ticket: u64, timeout: CallTimeout) -> PyResult<Py<PyAny>> {
        let reply = self.0.recv(py, ticket, self.0.timeout(timeout))?;
        reply.give(py, &self.0.give(py, RECV, Form::Data))
    }

    /// As `recv`; returns a `Message`: the reply with its flags and blobs.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn recv_message(&self, py: Python<'_>, ticket: u64, timeout: CallTimeout) -> PyResult<Py<PyAny>> {
        let reply = self.0.recv(py, ticket, self.0.timeout(timeout))?;
        reply.give(py, &self.0.give(py, RECV, Form::Message))
    }

    /// The bytes of a call's reply; None if it has not come. Raises as `recv`, but for `TimedOut`.
    fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyAny>>> {
        let give = self.0.give(py, RECV, Form::Data);
        self.0.try_recv(py, ticket)?.map(|reply| reply.give(py, &give)).transpose()
    }

    /// As `try_recv`; returns a `Message`: the reply with its flags and blobs.
    fn try_recv_message(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyAny>>> {
        let give = self.0.give(py, RECV, Form::Message);
        self.0.try_recv(py, ticket)?.map(|reply| reply.give(py, &give)).transpose()
    }

    /// Sends a request and returns an iterator over the parts of its reply, as the server sends them:
    /// `for part in client.stream(data, timeout=5.0)`. A reply that comes whole is one part. An empty
    /// last part only ends the iteration. `timeout` is the time to wait for a server to take the
    /// request, and then for each part. Leaving the loop cancels the call; the server learns of that
    /// when it sends the next part.
    ///
    /// Raises as `send`. The iterator raises as `recv`, and then it is over, as a generator is.
    ///
    /// >>> from pipework.reqrep import Client, Segment, Server
    /// >>> import threading
    /// >>> segment = Segment.anonymous()
    /// >>> def count():
    /// ...     with Server(segment).recv() as request:
    /// ...         for word in (b"one", b"two", b"three"):
    /// ...             if not request.send_part(word):
    /// ...                 return  # the caller has gone
    /// ...         request.reply(b"")
    /// >>> thread = threading.Thread(target=count)
    /// >>> thread.start()
    /// >>> list(Client(segment).stream(b"count", timeout=5.0))
    /// [b'one', b'two', b'three']
    /// >>> thread.join()
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn stream(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Stream> {
        self.stream_for(py, (data, flags.0, blobs), timeout, Form::Data)
    }

    /// As `stream`; gives each part as a `Message`, with the flags and blobs that the server sent along.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn stream_messages(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Stream> {
        self.stream_for(py, (data, flags.0, blobs), timeout, Form::Message)
    }

    /// As `stream`, in asyncio or trio: `async for part in client.astream(data)`. The request is
    /// sent with the first step. Cancelling the task, or leaving the loop, cancels the call.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn astream<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (request, give) =
            (self.0.held(STREAM, (data, flags.0, blobs))?, self.0.give(py, STREAM, Form::Data));
        self.0.stream_in_tasks(py, request, self.0.timeout(timeout), give)
    }

    /// As `stream_messages`, in asyncio or trio.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn astream_messages<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (request, give) =
            (self.0.held(STREAM, (data, flags.0, blobs))?, self.0.give(py, STREAM, Form::Message));
        self.0.stream_in_tasks(py, request, self.0.timeout(timeout), give)
    }

    /// As `call`, but copies the reply from the segment to the beginning of `buffer` and returns its
    /// length. A reply longer than the buffer raises `TooLong`, and the call is over. Blobs of the
    /// reply are dropped.
    #[pyo3(
        signature = (data, buffer, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()),
        text_signature = "($self, data, buffer, *, timeout=..., flags=0, blobs=())"
    )]
    fn call_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        mut buffer: Space<'_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<usize> {
        self.0.encoded(CALL, (data, flags.0, blobs), |request| {
            self.0.call_into(py, request, &mut buffer, self.0.until(timeout))
        })
    }

    /// As `recv`, but copies the reply from the segment to the beginning of `buffer` and returns its
    /// length. A reply longer than the buffer raises `TooLong`: the ticket stays valid.
    #[pyo3(signature = (ticket, buffer, *, timeout=CallTimeout::Unset))]
    fn recv_into(
        &self,
        py: Python<'_>,
        ticket: u64,
        mut buffer: Space<'_>,
        timeout: CallTimeout,
    ) -> PyResult<usize> {
        self.0.recv_into(py, ticket, &mut buffer, self.0.until(timeout))
    }

    /// As `call`, in asyncio, on any event loop, or in trio. Cancelling the task cancels the call.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn acall<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, (data, flags.0, blobs), self.0.timeout(timeout), Form::Data)
    }

    /// As `call_message`, in asyncio or trio.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn acall_message<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'_, PyAny>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, (data, flags.0, blobs), self.0.timeout(timeout), Form::Message)
    }

    /// As `recv`, in asyncio or trio. The ticket stays valid if the task is cancelled.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn arecv<'py>(&self, py: Python<'py>, ticket: u64, timeout: CallTimeout) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, self.0.timeout(timeout), Form::Data)
    }

    /// As `recv_message`, in asyncio or trio. The ticket stays valid if the task is cancelled.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn arecv_message<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: CallTimeout,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, self.0.timeout(timeout), Form::Message)
    }

    /// Gives up a call. Returns False if its reply has come: `recv` returns it. A server that has the
    /// request learns of it when it replies.
    ///
    /// Raises `Stale` if the call is over, or is another client's.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.0.cancel(py, ticket)
    }

    /// Gives up the reply of a call, but not the call: a server carries the request out, even if this
    /// client closes before one has taken it. A reply that has come is dropped.
    ///
    /// Raises `Stale` if the call is over, or is another client's.
    fn forget(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.0.forget(py, ticket)
    }

    /// Iterates over the calls in progress, each as soon as it has ended: pairs of its ticket and
    /// an `Outcome`, whose `result()` returns the reply or raises. Calls sent meanwhile come as
    /// well. It ends when no call is in progress. `timeout` is for the whole iteration. In asyncio:
    /// `async for ticket, outcome in client.as_completed()`.
    ///
    /// Raises `TimedOut`; calls that have not ended can still be received.
    #[pyo3(signature = (*, timeout=CallTimeout::Unset))]
    fn as_completed(&self, py: Python<'_>, timeout: CallTimeout) -> Completed {
        self.0.as_completed(self.0.until(timeout), self.0.give(py, RECV, Form::Data))
    }

    /// Calls of this client that are in progress: sent, and their replies not received.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.pending(py)
    }

    /// A descriptor for another event loop than asyncio's, readable while a ticket has something to
    /// receive. It is the caller's to close, and not to be read from. When it is readable,
    /// `try_recv` each call in progress. A forked child asks for one of its own.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// As `doorbell`, but readable while a request can be sent. It becomes unreadable when
    /// `try_send` finds no slot.
    fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.send_doorbell(py)
    }

    /// As `doorbell`, but the same one each time, which is closed with the client: for
    /// `selectors`, and for `multiprocessing.connection.wait`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.fileno(py)
    }

    /// Seconds that a method of this client waits if the caller gives no `timeout`; None: for
    /// ever.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.0.terms().timeout.map(Seconds::to_f64)
    }

    /// How often a request may go to another server because its own has died.
    #[getter]
    fn redeliveries(&self) -> u8 {
        self.0.terms().redeliveries
    }

    /// Whether a call raises `NoServer` where no server is attached.
    #[getter]
    fn needs_server(&self) -> bool {
        self.0.terms().needs_server
    }

    /// How many calls may be in progress at the same time; 0: any number.
    #[getter]
    fn max_in_flight(&self) -> u32 {
        self.0.terms().max_in_flight
    }

    /// Bytes of the longest request and reply.
    #[getter]
    fn max_message(&self) -> usize {
        self.0.terms().max_message
    }

    /// The codec, as the caller gave it; None: requests and replies are bytes.
    #[getter]
    fn codec<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.codec().named(py)
    }

    /// The segment that this client is attached to.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// Leaves the segment. Calls that wait raise `Invalid`, those of other threads within
    /// 250 ms, those of tasks at once; a server may have begun with them. A second time
    /// does nothing.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Whether this client is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// `Client[T]` is a type: a client whose replies are of type `T`.
    #[classmethod]
    fn __class_getitem__<'py>(kind: &Bound<'py, PyType>, _item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        kind.clone()
    }

    fn __enter__(slf: Py<Client>) -> Py<Client> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Client>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        interpreter::call_method(slf, "close")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Client>) -> PyResult<Reduced<Settings<'py>>> {
        reduce(slf, slf.get().0.settings(slf.py())?)
    }

    fn __repr__(slf: &Bound<'_, Client>) -> PyResult<String> {
        Ok(format!("<{} of {}>", slf.get_type().name()?, slf.get().0.describe()))
    }
}

impl Client {
    fn call_for(
        &self,
        py: Python<'_>,
        arguments: Arguments<'_, '_>,
        timeout: CallTimeout,
        form: Form,
    ) -> PyResult<Py<PyAny>> {
        let call = |request: Request<'_>| self.0.call(py, request, self.0.timeout(timeout));
        let reply = self.0.encoded(CALL, arguments, call)?;
        reply.give(py, &self.0.give(py, CALL, form))
    }

    fn stream_for(
        &self,
        py: Python<'_>,
        arguments: Arguments<'_, '_>,
        timeout: CallTimeout,
        form: Form,
    ) -> PyResult<Stream> {
        let (each, give) = (self.0.timeout(timeout), self.0.give(py, STREAM, form));
        self.0.encoded(STREAM, arguments, |request| self.0.stream(py, request, each, give))
    }

    fn start_call<'py>(
        &self,
        py: Python<'py>,
        arguments: Arguments<'_, '_>,
        timeout: Option<Seconds>,
        form: Form,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (data, flags, blobs) = self.0.held(CALL, arguments)?;
        let len = data.len();
        let ticket = Arc::new(OnceLock::new());
        let told = Arc::clone(&ticket);
        let call = move |client: reqrep::Client| async move {
            client.call_async_with(message((&data, flags, &blobs)), &told).await
        };
        self.0.start(py, len, ticket, call, self.0.give(py, CALL, form), (CALL, timeout))
    }

    fn start_recv<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<Seconds>,
        form: Form,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ticket = Ticket::from_bits(ticket);
        let recv = move |client: reqrep::Client| async move { client.recv_async(ticket).await };
        self.0.start(py, 0, Arc::new(ticket.into()), recv, self.0.give(py, RECV, form), (RECV, timeout))
    }
}
