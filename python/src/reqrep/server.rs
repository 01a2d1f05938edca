//! The answering ends: of bytes, and of numbers. Mirrors `client.rs`.

use std::sync::{Arc, Weak};

use pipework::reqrep::{self, Geometry, Kind, Message};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::open::{Lent, Open, lent};
use super::segment::{Place, Segment};
use super::taking::{Given, Taking};
use super::turns::Requests;
use crate::buffer::{Bytes, bytes, unless_small};
use crate::error::{OrRaise, Oversize};
use crate::keywords::Flags;
use crate::wait::{Timeout, until};

/// The methods of a class of servers.
macro_rules! server {
    ($Server:ident, $core_server:ident, $kind:expr, $Request:ident) => {
        #[pymethods]
        impl $Server {
            #[new]
            #[pyo3(signature = (segment, **options))]
            fn attach(
                py: Python<'_>,
                segment: Place<'_, '_>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<$Server> {
                let segment = segment.made(py, $kind, options)?;
                let server = segment.get().get_ref().$core_server().or_raise(py)?;
                Ok($Server(Taking::new(server, segment)))
            }

            /// Waits for the next request. Raises `TimedOut`, and `Corrupt` if the segment was
            /// damaged.
            #[pyo3(signature = (timeout=None))]
            fn recv(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<$Request> {
                self.0.recv(py, until(timeout))
            }

            /// The next request; None if none waits.
            fn try_recv(&self, py: Python<'_>) -> PyResult<Option<$Request>> {
                self.0.try_recv(py)
            }

            /// Up to `max` requests: waits for the first, then takes what else is there. For work
            /// that is cheaper by the batch. Raises as `recv`.
            #[pyo3(signature = (max, timeout=None))]
            fn recv_many(
                &self,
                py: Python<'_>,
                max: usize,
                timeout: Option<Timeout>,
            ) -> PyResult<Vec<$Request>> {
                self.0.recv_many(py, max, until(timeout))
            }

            /// Up to `max` requests that wait now.
            fn drain(&self, py: Python<'_>, max: usize) -> PyResult<Vec<$Request>> {
                self.0.drain(py, max)
            }

            /// Fails all requests that wait now; returns how many they were.
            fn clear(&self, py: Python<'_>) -> PyResult<usize> {
                self.0.clear(py)
            }

            fn __iter__(slf: Py<$Server>) -> Requests {
                Requests::new(move |py| slf.get().0.next::<$Request>(py))
            }

            /// As `recv`, in asyncio, on any event loop. A task that is cancelled has taken
            /// nothing. Raises `Invalid` when the server is closed.
            fn arecv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.0.start_recv::<$Request>(py)
            }

            /// As `recv_many`, in asyncio. A task that is cancelled has taken nothing.
            fn arecv_many<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyAny>> {
                self.0.start_recv_many::<$Request>(py, max)
            }

            fn __aiter__<'py>(slf: &Bound<'py, $Server>) -> PyResult<Bound<'py, PyAny>> {
                $Server::__iter__(slf.clone().unbind()).in_tasks(slf)
            }

            /// A descriptor for another event loop than asyncio's, readable while a request waits.
            /// It is the caller's to close, and not to be read from. When it is readable,
            /// `try_recv` until there is none. A forked child asks for one of its own.
            fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
                self.0.doorbell(py)
            }

            /// The segment that this server is attached to.
            #[getter]
            fn segment(&self, py: Python<'_>) -> Py<Segment> {
                self.0.segment(py)
            }

            /// Ends iterations, and `recv` and the like with `Invalid`: those of other threads
            /// within 250 ms, those of tasks at once. Leaves the segment as soon as the requests
            /// that were taken are answered or dropped. A second time does nothing.
            fn close(&self) {
                self.0.close();
            }

            /// Whether this server is closed.
            #[getter]
            fn closed(&self) -> bool {
                self.0.is_closed()
            }

            fn __enter__(slf: Py<$Server>) -> Py<$Server> {
                slf
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
                self.close();
            }

            fn __reduce__(slf: &Bound<'_, $Server>) -> (Py<PyAny>, (Py<Segment>,)) {
                (slf.get_type().into_any().unbind(), (slf.get().0.segment(slf.py()),))
            }
        }
    };
}

/// The methods of a class of requests: `payload`, and those that are the same whatever that is.
macro_rules! request {
    ($Request:ident, { $($payload:tt)* }) => {
        #[pymethods]
        impl $Request {
            $($payload)*

            /// How many servers have died with this request. More than 0 only if the client asked
            /// for redelivery.
            #[getter]
            fn redeliveries(&self) -> u8 {
                self.redeliveries
            }

            /// Whether somebody waits for the answer: False once the client has cancelled, or its
            /// death was noticed, and once it is answered.
            #[getter]
            fn wanted(&self) -> bool {
                self.open.is(|request| request.is_wanted())
            }

            /// Tells the client that there will be no answer: its call raises `Failed`. Nothing
            /// happens if it is answered already.
            fn fail(&self) {
                self.open.fail();
            }

            /// Takes it out of the loop that gave it out, which would fail it when it comes back.
            /// Returns the request, for the thread or the task that answers it: `pool.submit(work,
            /// request.detach())`.
            fn detach(slf: Py<$Request>) -> Py<$Request> {
                slf.get().open.detach();
                slf
            }

            fn __enter__(slf: Py<$Request>) -> Py<$Request> {
                slf
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
                self.fail();
            }
        }
    };
}

/// Takes requests from a segment and answers them.
///
/// `Server(segment)` attaches to a `Segment`; `Server(path)` to the one at a path, which is made if
/// there is none: the keyword arguments are those of `Options`. Any number of servers, in any
/// number of processes and threads, compete for the requests: each request goes to one of them. In
/// a forked child it works on, as a member of its own; requests taken before stay the parent's. It
/// can be pickled for another process.
///
/// Iterating gives requests until the server is closed, `async for` too. A loop that comes back
/// fails the request that it gave out last, if that is neither answered nor detached: who hands it
/// to a thread or a task hands on `request.detach()`. What `recv` and `recv_many` return is one's
/// own: until it is answered, failed or dropped, its caller waits, so use it in a `with` block.
///
/// >>> from pipework.reqrep import Client, Segment, Server
/// >>> segment = Segment.anonymous()
/// >>> server, client = Server(segment), Client(segment)
/// >>> tickets = [client.send(data) for data in (b"a", b"b", b"c")]
/// >>> for request in server.recv_many(100):
/// ...     with request:
/// ...         done = request.reply(request.data * 3)
/// >>> [client.recv(ticket) for ticket in tickets]
/// [b'aaa', b'bbb', b'ccc']
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct Server(Taking<reqrep::Server>);

server!(Server, server, Kind::Bytes, Request);

/// A request that this process has taken, and that no other server gets.
///
/// Answer it once, with `reply` or `fail`, from any thread. Dropped without an answer, it fails at
/// its client at once; as a context manager, when the block is left.
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct Request {
    data: Py<PyBytes>,
    flags: u32,
    redeliveries: u8,
    largest_reply: u32,
    open: Arc<Open<reqrep::Request<'static>>>,
}

request!(Request, {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("data",);

    /// The bytes of the request.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// The 32 bits that the client sent along.
    #[getter]
    fn flags(&self) -> u32 {
        self.flags
    }

    /// Answers. False if the client has cancelled or died.
    ///
    /// Raises `TooLong` if it does not fit into the segment's replies: the request then fails at
    /// its client. `Invalid` if it is answered already; `Stale` in a child that was forked after
    /// the request was taken.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn reply(&self, py: Python<'_>, data: Bytes<'_, '_>, flags: Flags) -> PyResult<bool> {
        let (request, data): (_, &[u8]) = (self.open.take(py)?, &data);
        let sent = unless_small(py, data.len(), || request.reply(Message::new(data).flags(flags.0)));
        let (len, option, most) = (data.len(), "the segment's reply_bytes", self.largest_reply as usize);
        sent.map_err(|error| Oversize { error, len, option, most }).or_raise(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let len = self.data.bind(py).as_bytes().len();
        format!("<Request of {len} bytes{}>", if self.open.is(|_| true) { "" } else { ", answered" })
    }
});

impl Given for Request {
    type Taken = reqrep::Request<'static>;

    fn of(py: Python<'_>, mut request: reqrep::Request<'static>, sizes: &Geometry) -> PyResult<Request> {
        let data = bytes(py, [&request])?;
        if request.len() >= LARGE {
            // Python has its copy.
            drop(request.take_payload());
        }
        Ok(Request {
            data,
            flags: request.flags(),
            redeliveries: request.redeliveries(),
            largest_reply: sizes.reply_bytes,
            open: Arc::new(Open::new(request)),
        })
    }

    fn lend(&self) -> Weak<dyn Lent> {
        lent(&self.open)
    }
}

/// Bytes of a payload that is not kept twice.
const LARGE: usize = 4096;

/// A `Server` whose requests and replies are numbers, -2**63 to 2**63 - 1. The segment is one of
/// integers, also where this makes it.
///
/// >>> from pipework.reqrep import IntClient, IntServer, Segment
/// >>> segment = Segment.anonymous(integers=True)
/// >>> server, client = IntServer(segment), IntClient(segment)
/// >>> tickets = [client.send(value) for value in range(3)]
/// >>> for request in server.recv_many(100):
/// ...     with request:
/// ...         done = request.reply(request.value ** 2)
/// >>> [client.recv(ticket) for ticket in tickets]
/// [0, 1, 4]
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct IntServer(Taking<reqrep::IntServer>);

server!(IntServer, int_server, Kind::Integers, IntRequest);

/// A `Request` that is a number.
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct IntRequest {
    value: i64,
    redeliveries: u8,
    open: Arc<Open<reqrep::IntRequest<'static>>>,
}

request!(IntRequest, {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("value",);

    /// The number.
    #[getter]
    fn value(&self) -> i64 {
        self.value
    }

    /// As `Request.reply`.
    fn reply(&self, py: Python<'_>, value: i64) -> PyResult<bool> {
        self.open.take(py)?.reply(value).or_raise(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.open.is(|_| true) { "" } else { ", answered" };
        format!("<IntRequest {}{state}>", self.value)
    }
});

impl Given for IntRequest {
    type Taken = reqrep::IntRequest<'static>;

    fn of(_py: Python<'_>, request: reqrep::IntRequest<'static>, _sizes: &Geometry) -> PyResult<IntRequest> {
        Ok(IntRequest {
            value: request.value(),
            redeliveries: request.redeliveries(),
            open: Arc::new(Open::new(request)),
        })
    }

    fn lend(&self) -> Weak<dyn Lent> {
        lent(&self.open)
    }
}
