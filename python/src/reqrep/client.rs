//! The calling end. Mirrors `server.rs`.

use std::sync::{Arc, OnceLock};

use pipework::reqrep::{self, Reply, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::blobs::{self, Attached};
use super::calls::{CALL, Calls, Give, RECV, Received, Settings, Terms, message};
use super::segment::{MODULE, Place, Reduced, Segment, reduce};
use super::streams::{Completed, Stream};
use crate::buffer::{Bytes, Held, Space, bytes};
use crate::imports::Import;
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
/// into a file in memory, unseen, and out of it once.
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
            max_message=MaxMessage::DEFAULT
        ),
        text_signature = "(segment, *, connect_timeout=None, timeout=None, redeliveries=0, needs_server=False, max_in_flight=0, max_message=268435456)"
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
    ) -> PyResult<Client> {
        let segment = match connect_timeout {
            Some(_) => segment.served(py, until(connect_timeout))?,
            None => segment.opened(py)?,
        };
        let (redeliveries, max_in_flight) = (redeliveries.0, max_in_flight.0);
        let terms = Terms { timeout, redeliveries, needs_server, max_in_flight, max_message: max_message.0 };
        let client = segment.get().attach(py, |segment| segment.client_with(&terms.options()))?;
        Ok(Client(Calls::new(client, segment, terms)))
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
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Py<PyBytes>> {
        self.0.call(py, (&data, flags.0, &blobs), self.0.timeout(timeout))?.into_bytes(py)
    }

    /// As `call`; returns a `Message`: the reply with its flags and blobs.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn call_message(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Py<PyAny>> {
        as_message(py, self.0.call(py, (&data, flags.0, &blobs), self.0.timeout(timeout))?)
    }

    /// Sends a request and returns the ticket for its reply. Waits for a free slot. As many calls may
    /// be in progress as the segment has slots.
    ///
    /// Raises `TimedOut`, `TooLong` and `NoServer`: then no server has the request.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn send(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<u64> {
        self.0.send(py, (&data, flags.0, &blobs), self.0.until(timeout))
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
        let requests =
            requests.iter().map(|data| data.extract()).collect::<PyResult<Vec<Bytes<'_, '_>>>>()?;
        let none = Attached::default();
        let requests: Vec<_> = requests.iter().map(|data| (&**data, 0, &none)).collect();
        self.0.send_many(py, &requests, deadline)
    }

    /// Sends a request and returns its ticket; None if no slot is free. Never waits. Raises `NoServer`
    /// and `TooLong` as `send`.
    #[pyo3(signature = (data, *, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, flags=0, blobs=())")]
    fn try_send(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Option<u64>> {
        self.0.try_send(py, (&data, flags.0, &blobs))
    }

    /// Sends a request whose reply is not wanted: `forget(send(...))` in one step, which an exception
    /// of a signal handler does not divide. Waits for a free slot; with `timeout=0` it never waits.
    ///
    /// Raises as `send`.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn post(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<()> {
        self.0.post(py, (&data, flags.0, &blobs), self.0.until(timeout))
    }

    /// Waits for the reply of a call and returns its bytes.
    ///
    /// Raises `TimedOut`: the ticket stays valid. `PeerDied`, `RemoteError`, `NoServer`: the call is
    /// over. `Stale`: the call was over before, or is another client's.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn recv(&self, py: Python<'_>, ticket: u64, timeout: CallTimeout) -> PyResult<Py<PyBytes>> {
        self.0.recv(py, ticket, self.0.timeout(timeout))?.into_bytes(py)
    }

    /// As `recv`; returns a `Message`: the reply with its flags and blobs.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn recv_message(&self, py: Python<'_>, ticket: u64, timeout: CallTimeout) -> PyResult<Py<PyAny>> {
        as_message(py, self.0.recv(py, ticket, self.0.timeout(timeout))?)
    }

    /// The bytes of a call's reply; None if it has not come. Raises as `recv`, but for `TimedOut`.
    fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyBytes>>> {
        self.0.try_recv(py, ticket)?.map(|reply| reply.into_bytes(py)).transpose()
    }

    /// As `try_recv`; returns a `Message`: the reply with its flags and blobs.
    fn try_recv_message(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyAny>>> {
        self.0.try_recv(py, ticket)?.map(|reply| as_message(py, reply)).transpose()
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
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Stream> {
        self.0.stream(py, (&data, flags.0, &blobs), self.0.timeout(timeout), reply_bytes)
    }

    /// As `stream`; gives each part as a `Message`, with the flags and blobs that the server sent along.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn stream_messages(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Stream> {
        self.0.stream(py, (&data, flags.0, &blobs), self.0.timeout(timeout), with_flags)
    }

    /// As `stream`, in asyncio or trio: `async for part in client.astream(data)`. The request is
    /// sent with the first step. Cancelling the task, or leaving the loop, cancels the call.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn astream<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.stream_in_tasks(py, (data.hold(), flags.0, blobs), self.0.timeout(timeout), reply_bytes)
    }

    /// As `stream_messages`, in asyncio or trio.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn astream_messages<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.stream_in_tasks(py, (data.hold(), flags.0, blobs), self.0.timeout(timeout), with_flags)
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
        data: Bytes<'_, '_>,
        mut buffer: Space<'_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<usize> {
        self.0.call_into(py, (&data, flags.0, &blobs), &mut buffer, self.0.until(timeout))
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
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, (data.hold(), flags.0, blobs), self.0.timeout(timeout), reply_bytes)
    }

    /// As `call_message`, in asyncio or trio.
    #[pyo3(signature = (data, *, timeout=CallTimeout::Unset, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=..., flags=0, blobs=())")]
    fn acall_message<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: CallTimeout,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, (data.hold(), flags.0, blobs), self.0.timeout(timeout), with_flags)
    }

    /// As `recv`, in asyncio or trio. The ticket stays valid if the task is cancelled.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn arecv<'py>(&self, py: Python<'py>, ticket: u64, timeout: CallTimeout) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, self.0.timeout(timeout), reply_bytes)
    }

    /// As `recv_message`, in asyncio or trio. The ticket stays valid if the task is cancelled.
    #[pyo3(signature = (ticket, *, timeout=CallTimeout::Unset))]
    fn arecv_message<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: CallTimeout,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, self.0.timeout(timeout), with_flags)
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
    fn as_completed(&self, timeout: CallTimeout) -> Completed {
        self.0.as_completed(self.0.until(timeout), reply_bytes)
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

    /// The segment that this client is attached to.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// Leaves the segment. Calls that wait raise `Invalid`, those of other threads within
    /// 250 ms, those of tasks at once; a server may have begun with them. A second time
    /// does nothing.
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
    fn start_call<'py>(
        &self,
        py: Python<'py>,
        (data, flags, blobs): (Held, u32, Attached),
        timeout: Option<Seconds>,
        give: Give,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = data.len();
        let ticket = Arc::new(OnceLock::new());
        let told = Arc::clone(&ticket);
        let call = move |client: reqrep::Client| async move {
            client.call_async_with(message((&data, flags, &blobs)), &told).await
        };
        self.0.start(py, len, ticket, call, give, (CALL, timeout))
    }

    fn start_recv<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<Seconds>,
        give: Give,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ticket = Ticket::from_bits(ticket);
        let recv = move |client: reqrep::Client| async move { client.recv_async(ticket).await };
        self.0.start(py, 0, Arc::new(ticket.into()), recv, give, (RECV, timeout))
    }
}

fn reply_bytes(py: Python<'_>, reply: &Reply) -> PyResult<Py<PyAny>> {
    Ok(bytes(py, [reply])?.into_any())
}

fn with_flags(py: Python<'_>, reply: &Reply) -> PyResult<Py<PyAny>> {
    MESSAGE.make(py, (bytes(py, [reply])?, reply.flags(), blobs::received(py, reply.blobs())?))
}

fn as_message(py: Python<'_>, reply: Received) -> PyResult<Py<PyAny>> {
    let (flags, blobs) = (reply.flags(), blobs::received(py, reply.blobs())?);
    MESSAGE.make(py, (reply.into_bytes(py)?, flags, blobs))
}

static MESSAGE: Import = Import::new(MODULE, "Message");
