//! The calling end. Mirrors `server.rs`.

use std::sync::{Arc, OnceLock};

use pipework::reqrep::{self, Reply, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::calls::{CALL, Calls, Give, RECV, Received, Settings, Terms, message};
use super::segment::{MODULE, Place, Reduced, Segment, reduce};
use super::streams::{Completed, Stream};
use crate::buffer::{Bytes, Held, Space, bytes};
use crate::imports::Import;
use crate::interpreter;
use crate::keywords::{Flags, InFlight, MaxMessage, Redeliveries};
use crate::wait::{Seconds, Timeout, until};

/// The methods of a class of clients: `calls`, which take or give payloads, and those that are the
/// same whatever the payloads are.
macro_rules! client {
    ($Client:ident, $attach:expr, $give:expr, { $($calls:tt)* }) => {
        #[pymethods]
        impl $Client {
            #[new]
            #[pyo3(
                signature = (
                    segment,
                    redeliveries=Redeliveries(0),
                    needs_server=false,
                    max_in_flight=InFlight(0),
                    max_message=MaxMessage::DEFAULT,
                    timeout=None
                ),
                text_signature = "(segment, redeliveries=0, needs_server=False, max_in_flight=0, max_message=268435456, timeout=None)"
            )]
            fn attach(
                py: Python<'_>,
                segment: Place<'_, '_>,
                redeliveries: Redeliveries,
                needs_server: bool,
                max_in_flight: InFlight,
                max_message: MaxMessage,
                timeout: Option<Timeout>,
            ) -> PyResult<$Client> {
                let segment = match timeout {
                    Some(_) => segment.served(py, until(timeout))?,
                    None => segment.opened(py)?,
                };
                let (redeliveries, max_in_flight) = (redeliveries.0, max_in_flight.0);
                let terms = Terms { redeliveries, needs_server, max_in_flight, max_message: max_message.0 };
                let client = segment.get().attach(py, |segment| $attach(segment, &terms.options()))?;
                Ok($Client(Calls::new(client, segment, terms)))
            }

            $($calls)*

            /// Gives up a call. False if its reply is there: then it is for `recv`. A server that
            /// has the request finds out when it replies.
            ///
            /// Raises `Stale` if the call is over already, or is not this client's.
            fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
                self.0.cancel(py, ticket)
            }

            /// Gives up the reply of a call, and not the call: its request is carried out, also
            /// when this client has gone, which otherwise takes back what no server has taken. A
            /// reply that is there already is dropped.
            ///
            /// Raises `Stale` if the call is over already, or is not this client's.
            fn forget(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
                self.0.forget(py, ticket)
            }

            /// The calls that were sent and not received, each as soon as it has ended: pairs of
            /// its ticket and an `Outcome`, whose `result()` returns the reply or raises. Ends when
            /// no call is in progress; those that are sent meanwhile come as well. `timeout` is for
            /// the whole. In asyncio: `async for ticket, outcome in client.as_completed()`.
            ///
            /// Raises `TimedOut`; calls that have not ended can still be received.
            #[pyo3(signature = (timeout=None))]
            fn as_completed(&self, timeout: Option<Timeout>) -> Completed {
                self.0.as_completed(until(timeout), $give)
            }

            /// Calls of this client that are in progress: sent, and their replies not received.
            #[getter]
            fn pending(&self, py: Python<'_>) -> PyResult<usize> {
                self.0.pending(py)
            }

            /// A descriptor for another event loop than asyncio's, readable while there is
            /// something to receive for a ticket. It is the caller's to close, and not to be read
            /// from. When it is readable, `try_recv` each call in progress. A forked child asks for
            /// one of its own.
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

            fn __enter__(slf: Py<$Client>) -> Py<$Client> {
                slf
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(slf: &Bound<'_, $Client>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
                interpreter::call_method(slf, "close")
            }

            fn __reduce__(slf: &Bound<'_, $Client>) -> PyResult<Reduced<Settings>> {
                reduce(slf, slf.get().0.settings(slf.py()))
            }

            fn __repr__(slf: &Bound<'_, $Client>) -> PyResult<String> {
                Ok(format!("<{} of {}>", slf.get_type().name()?, slf.get().0.describe()))
            }
        }
    };
}

/// Sends requests and gets their replies.
///
/// `Client(segment)` attaches to a `Segment`, or to the one at a path, which must be there. With a
/// `timeout` it waits so many seconds for a server, and for one that makes the segment at a path;
/// then it raises `TimedOut`. (A task that is not to stop its loop: `asyncio.to_thread`.) Any
/// number of threads and tasks may use one client at the same time. In a forked child it works on,
/// as a member of its own; calls in progress stay the parent's. It can be pickled for another
/// process.
///
/// If a server dies with a request, another gets it, up to `redeliveries` times (at most 3): for
/// requests that may be carried out twice. That holds for requests that fit into a slot: of a longer
/// one no copy is kept, and so its call raises `PeerDied`, as does one whose reply has begun to come
/// in parts. With `needs_server`, a call raises `NoServer` where no
/// server is attached, instead of waiting for one. With `max_in_flight`, at most so many calls are
/// in progress at a time (0 is any number): beyond that, `send` and `call` wait as they do without
/// a free slot, and `try_send` gives None, until a reply is received or a call cancelled. So a
/// client that sends and does not receive leaves slots to the others.
///
/// A request or a reply may be longer than a slot: it goes in parts then, and arrives whole, or the
/// call raises. Each part costs a change of process, so where most are long, slots should be as long
/// as they are: `Options` says how. `max_message` is the longest one, in bytes.
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

client!(Client, reqrep::Segment::client_with, reply_bytes, {
    /// Sends a request and waits for its reply; returns its bytes. `timeout` covers both. `flags`
    /// are 32 bits of the user's that travel along.
    ///
    /// Raises `TimedOut`: the call is cancelled then, as it is when a signal handler raises, but a
    /// server may have begun with it. `PeerDied` within 250 ms if its server has died;
    /// `RemoteError` if its server gave it up, with its reason; `TooLong` if the request or the
    /// reply is longer than `max_message`; `NoServer`, if that was asked for.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn call(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Py<PyBytes>> {
        self.0.call(py, (&data, flags.0), timeout)?.into_bytes(py)
    }

    /// As `call`; returns a `Message`: the reply with its flags.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn call_message(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Py<PyAny>> {
        as_message(py, self.0.call(py, (&data, flags.0), timeout)?)
    }

    /// Sends a request and returns the ticket for its reply. Waits until a slot is free, and of a
    /// request that is longer than a slot until a server has taken all but its last part. Any
    /// number of calls may be in progress, up to the slots of the segment.
    ///
    /// Raises `TimedOut`, `TooLong` and `NoServer`: then no server has the whole request.
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

    /// Sends several requests, and wakes servers once for all of them. Returns their tickets, in
    /// this order: fewer than there are requests if an error came in between.
    ///
    /// Raises as `send`, if none could be sent. If a signal handler raises, those that were sent
    /// are cancelled.
    #[pyo3(signature = (requests, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<Vec<u64>> {
        let deadline = until(timeout);
        let requests = interpreter::collect(requests)?;
        let requests =
            requests.iter().map(|data| data.extract()).collect::<PyResult<Vec<Bytes<'_, '_>>>>()?;
        let requests: Vec<(&[u8], u32)> = requests.iter().map(|data| (&**data, 0)).collect();
        self.0.send_many(py, &requests, deadline)
    }

    /// Sends a request if a slot is free; None if none is. Raises as `send`, but for `TimedOut`;
    /// `TooLong` if it is longer than a slot.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn try_send(&self, py: Python<'_>, data: Bytes<'_, '_>, flags: Flags) -> PyResult<Option<u64>> {
        self.0.try_send(py, (&data, flags.0))
    }

    /// Waits for the reply of a call and returns its bytes.
    ///
    /// Raises `TimedOut`, with the ticket still good. `PeerDied`, `RemoteError`, `NoServer`: the
    /// call is over. `Stale`: it was over already, or is not this client's.
    #[pyo3(signature = (ticket, timeout=None))]
    fn recv(&self, py: Python<'_>, ticket: u64, timeout: Option<Seconds>) -> PyResult<Py<PyBytes>> {
        self.0.recv(py, ticket, timeout)?.into_bytes(py)
    }

    /// As `recv`; returns a `Message`: the reply with its flags.
    #[pyo3(signature = (ticket, timeout=None))]
    fn recv_message(&self, py: Python<'_>, ticket: u64, timeout: Option<Seconds>) -> PyResult<Py<PyAny>> {
        as_message(py, self.0.recv(py, ticket, timeout)?)
    }

    /// The bytes of a call's reply; None if it has not come. Raises as `recv`, but for `TimedOut`.
    fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyBytes>>> {
        self.0.try_recv(py, ticket)?.map(|reply| reply.into_bytes(py)).transpose()
    }

    /// As `try_recv`; returns a `Message`: the reply with its flags.
    fn try_recv_message(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Py<PyAny>>> {
        self.0.try_recv(py, ticket)?.map(|reply| as_message(py, reply)).transpose()
    }

    /// Sends a request and returns an iterator of the parts of its reply, as the server sends them:
    /// `for part in client.stream(data, timeout=5.0)`. A server that answers at once gives one
    /// part; an empty last reply only ends it. `timeout` is how long to wait for the request to be
    /// taken, and for each part. Leaving the loop cancels the call, which the server is told with
    /// its next part.
    ///
    /// Raises as `send`; the iterator as `recv`, and then it is over, as a generator would be.
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
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn stream(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Stream> {
        self.0.stream(py, (&data, flags.0), timeout.map(|timeout| timeout.0), reply_bytes)
    }

    /// As `stream`; gives each part as a `Message`, with the flags that the server sent along.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn stream_messages(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Stream> {
        self.0.stream(py, (&data, flags.0), timeout.map(|timeout| timeout.0), with_flags)
    }

    /// As `stream`, in asyncio or trio: `async for part in client.astream(data)`. The request is
    /// sent with the first step. Cancelling the task, or leaving the loop, cancels the call.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn astream<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.stream_in_tasks(py, data.hold(), flags.0, timeout, reply_bytes)
    }

    /// As `stream_messages`, in asyncio or trio.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn astream_messages<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.stream_in_tasks(py, data.hold(), flags.0, timeout, with_flags)
    }

    /// As `call`; the reply is copied from the segment to the beginning of `buffer`, and its length
    /// is returned. A reply that is longer than the buffer raises `TooLong`, and the call is over.
    #[pyo3(
        signature = (data, buffer, timeout=None, flags=Flags(0)),
        text_signature = "($self, data, buffer, timeout=None, flags=0)"
    )]
    fn call_into(
        &self,
        py: Python<'_>,
        data: Bytes<'_, '_>,
        mut buffer: Space<'_>,
        timeout: Option<Timeout>,
        flags: Flags,
    ) -> PyResult<usize> {
        self.0.call_into(py, (&data, flags.0), &mut buffer, until(timeout))
    }

    /// As `recv`; the reply is copied from the segment to the beginning of `buffer`, and its length
    /// is returned. A reply that is longer than the buffer raises `TooLong`: the ticket stays good,
    /// unless the reply came in parts.
    #[pyo3(signature = (ticket, buffer, timeout=None))]
    fn recv_into(
        &self,
        py: Python<'_>,
        ticket: u64,
        mut buffer: Space<'_>,
        timeout: Option<Timeout>,
    ) -> PyResult<usize> {
        self.0.recv_into(py, ticket, &mut buffer, until(timeout))
    }

    /// As `call`, in asyncio, on any event loop, or in trio. Cancelling the task cancels the call.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn acall<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, data.hold(), flags.0, timeout, reply_bytes)
    }

    /// As `call_message`, in asyncio or trio.
    #[pyo3(signature = (data, timeout=None, flags=Flags(0)), text_signature = "($self, data, timeout=None, flags=0)")]
    fn acall_message<'py>(
        &self,
        py: Python<'py>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_call(py, data.hold(), flags.0, timeout, with_flags)
    }

    /// As `recv`, in asyncio or trio. The ticket stays good if the task is cancelled.
    #[pyo3(signature = (ticket, timeout=None))]
    fn arecv<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, timeout, reply_bytes)
    }

    /// As `recv_message`, in asyncio or trio. The ticket stays good if the task is cancelled.
    #[pyo3(signature = (ticket, timeout=None))]
    fn arecv_message<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.start_recv(py, ticket, timeout, with_flags)
    }
});

impl Client {
    fn start_call<'py>(
        &self,
        py: Python<'py>,
        data: Held,
        flags: u32,
        timeout: Option<Seconds>,
        give: Give,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = data.len();
        let ticket = Arc::new(OnceLock::new());
        let told = Arc::clone(&ticket);
        let call = move |client: reqrep::Client| async move {
            client.call_async_with(message((&data, flags)), &told).await
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
    MESSAGE.make(py, (bytes(py, [reply])?, reply.flags()))
}

fn as_message(py: Python<'_>, reply: Received) -> PyResult<Py<PyAny>> {
    let flags = reply.flags();
    MESSAGE.make(py, (reply.into_bytes(py)?, flags))
}

static MESSAGE: Import = Import::new(MODULE, "Message");
