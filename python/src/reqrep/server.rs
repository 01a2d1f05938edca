//! The answering end. Mirrors `client.rs`.

use std::os::fd::IntoRawFd;
use std::sync::{Arc, Weak};

use pipework::reqrep::{self, Geometry, Kind, Message};
use pipework::{Deadline, Result};
use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::segment::{Place, Segment};
use super::shared::{Shared, closed};
use super::turns::{Requests, lent};
use crate::buffer::{Bytes, bytes, unless_small};
use crate::error::{OrRaise, Oversize, invalid};
use crate::keywords::Flags;
use crate::locked::Locked;
use crate::task::Task;
use crate::wait::{Timeout, until};

/// Takes requests from a segment and answers them.
///
/// `Server(segment)` attaches to a `Segment`; `Server(path)` to the one at a path, which is made if there is none: the keyword arguments are those of
/// `Options`. Any number of servers, in any number of processes and threads, compete for the requests: each request goes to one of them. In a forked
/// child it works on, as a member of its own; requests taken before stay the parent's. It can be pickled for another process.
///
/// Iterating gives requests until the server is closed, `async for` too. A loop that comes back fails the request that it gave out last, if that is neither answered
/// nor detached: who hands it to a thread or a task hands on `request.detach()`. What `recv` and `recv_many` return is one's own: until it is answered, failed
/// or dropped, its caller waits, so use it in a `with` block.
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

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (segment, **options))]
    fn attach(
        py: Python<'_>,
        segment: Place<'_, '_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Server> {
        let segment = segment.made(py, Kind::Bytes, options)?;
        let server = segment.get().get_ref().server().or_raise(py)?;
        Ok(Server(Taking::new(server, segment)))
    }

    /// Waits for the next request. Raises `TimedOut`, and `Corrupt` if the segment was damaged.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Request> {
        self.0.recv(py, until(timeout))
    }

    /// The next request; None if none waits.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Request>> {
        self.0.try_recv(py)
    }

    /// Up to `max` requests: waits for the first, then takes what else is there. For work that is cheaper by the batch. Raises as `recv`.
    #[pyo3(signature = (max, timeout=None))]
    fn recv_many(&self, py: Python<'_>, max: usize, timeout: Option<Timeout>) -> PyResult<Vec<Request>> {
        self.0.recv_many(py, max, until(timeout))
    }

    /// Up to `max` requests that wait now.
    fn drain(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Request>> {
        self.0.drain(py, max)
    }

    /// Fails all requests that wait now; returns how many they were.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.clear(py)
    }

    fn __iter__(slf: Py<Server>) -> Requests {
        Requests::new(move |py| slf.get().0.next::<Request>(py))
    }

    /// As `recv`, in asyncio, on any event loop. A task that is cancelled has taken nothing. Raises `Invalid` when the server is closed.
    fn arecv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.start_recv::<Request>(py)
    }

    /// As `recv_many`, in asyncio. A task that is cancelled has taken nothing.
    fn arecv_many<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyAny>> {
        self.0.start_recv_many::<Request>(py, max)
    }

    fn __aiter__<'py>(slf: &Bound<'py, Server>) -> PyResult<Bound<'py, PyAny>> {
        Server::__iter__(slf.clone().unbind()).in_tasks(slf)
    }

    /// A descriptor for another event loop than asyncio's, readable while a request waits. It is the caller's to close, and not to be read from. When it is
    /// readable, `try_recv` until there is none. A forked child asks for one of its own.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// The segment that this server is attached to.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// Ends iterations, and `recv` and the like with `Invalid`: those of other threads within 250 ms, those of tasks at once. Leaves the segment as soon
    /// as the requests that were taken are answered or dropped. A second time does nothing.
    fn close(&self) {
        self.0.close();
    }

    /// Whether this server is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __enter__(slf: Py<Server>) -> Py<Server> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __reduce__(slf: &Bound<'_, Server>) -> (Py<PyAny>, (Py<Segment>,)) {
        (slf.get_type().into_any().unbind(), (slf.get().0.segment(slf.py()),))
    }
}

/// A request that this process has taken, and that no other server gets.
///
/// Answer it once, with `reply` or `fail`, from any thread. Dropped without an answer, it fails at its client at once; as a context manager, when the block is left.
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct Request {
    data: Py<PyBytes>,
    flags: u32,
    redeliveries: u8,
    largest_reply: u32,
    open: Arc<Open<reqrep::Request<'static>>>,
}

#[pymethods]
impl Request {
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

    /// How many servers have died with this request. More than 0 only if the client asked for redelivery.
    #[getter]
    fn redeliveries(&self) -> u8 {
        self.redeliveries
    }

    /// Whether somebody waits for the answer: False once the client has cancelled, or its death was noticed, and once it is answered.
    #[getter]
    fn wanted(&self) -> bool {
        self.open.is(|request| request.is_wanted())
    }

    /// Answers. False if the client has cancelled or died.
    ///
    /// Raises `TooLong` if it does not fit into the segment's replies: the request then fails at its client. `Invalid` if it is answered already; `Stale` in a
    /// child that was forked after the request was taken.
    #[pyo3(signature = (data, flags=Flags(0)), text_signature = "($self, data, flags=0)")]
    fn reply(&self, py: Python<'_>, data: Bytes<'_, '_>, flags: Flags) -> PyResult<bool> {
        let (request, data): (_, &[u8]) = (self.open.take(py)?, &data);
        let sent = unless_small(py, data.len(), || request.reply(Message::new(data).flags(flags.0)));
        let (len, option, most) = (data.len(), "the segment's reply_bytes", self.largest_reply as usize);
        sent.map_err(|error| Oversize { error, len, option, most }).or_raise(py)
    }

    /// Tells the client that there will be no answer: its call raises `Failed`. Nothing happens if it is answered already.
    fn fail(&self) {
        self.open.fail();
    }

    /// Takes it out of the loop that gave it out, which would fail it when it comes back. Returns the request, for the thread or the task that answers it:
    /// `pool.submit(work, request.detach())`.
    fn detach(slf: Py<Request>) -> Py<Request> {
        slf.get().open.detach();
        slf
    }

    fn __enter__(slf: Py<Request>) -> Py<Request> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.fail();
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let len = self.data.bind(py).as_bytes().len();
        format!("<Request of {len} bytes{}>", if self.open.is(|_| true) { "" } else { ", answered" })
    }
}

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

// ---------------------------------------------------------------- whatever the payload is

/// A server of the core.
pub(super) trait Taker: Clone + Send + Sync + 'static {
    type Taken: Send;

    fn server(&self) -> &reqrep::Server;
    fn recv(&self, deadline: Deadline) -> Result<Self::Taken>;
    fn try_recv(&self) -> Result<Option<Self::Taken>>;
    fn recv_many(&self, max: usize, deadline: Deadline) -> Result<Vec<Self::Taken>>;
    fn drain(&self, max: usize) -> Result<Vec<Self::Taken>>;
    fn recv_async(&self) -> impl Future<Output = Result<Self::Taken>> + Send;
}

impl Taker for reqrep::Server {
    type Taken = reqrep::Request<'static>;

    fn server(&self) -> &reqrep::Server {
        self
    }

    fn recv(&self, deadline: Deadline) -> Result<Self::Taken> {
        self.recv(deadline).map(reqrep::Request::into_owned)
    }

    fn try_recv(&self) -> Result<Option<Self::Taken>> {
        Ok(self.try_recv()?.map(reqrep::Request::into_owned))
    }

    fn recv_many(&self, max: usize, deadline: Deadline) -> Result<Vec<Self::Taken>> {
        Ok(self.recv_many(max, deadline)?.into_iter().map(reqrep::Request::into_owned).collect())
    }

    fn drain(&self, max: usize) -> Result<Vec<Self::Taken>> {
        Ok(self.drain(max)?.into_iter().map(reqrep::Request::into_owned).collect())
    }

    async fn recv_async(&self) -> Result<Self::Taken> {
        self.recv_async().await.map(reqrep::Request::into_owned)
    }
}

/// A request as Python gets it.
pub(super) trait Given: Sized + Into<PyClassInitializer<Self>> + PyClass {
    type Taken: Send;

    fn of(py: Python<'_>, taken: Self::Taken, sizes: &Geometry) -> PyResult<Self>;

    /// Makes it a loop's, for a turn.
    fn lend(&self) -> Weak<dyn Lent>;
}

/// What a server does, on Python's terms.
pub(super) struct Taking<S> {
    server: Shared<S>,
    segment: Py<Segment>,
}

const RECV: &str = "reqrep recv";

impl<S: Taker> Taking<S> {
    pub(super) fn new(server: S, segment: Py<Segment>) -> Taking<S> {
        Taking { server: Shared::new("server", server), segment }
    }

    pub(super) fn recv<G: Given<Taken = S::Taken>>(&self, py: Python<'_>, deadline: Deadline) -> PyResult<G> {
        let taken = self.server.wait(py, deadline, RECV, |server, slice| py.detach(|| server.recv(slice)))?;
        G::of(py, taken, self.sizes())
    }

    pub(super) fn try_recv<G: Given<Taken = S::Taken>>(&self, py: Python<'_>) -> PyResult<Option<G>> {
        let server = self.get(py)?;
        let taken = unless_small(py, waiting_bytes(&server, 1), || server.try_recv()).or_raise(py)?;
        taken.map(|taken| G::of(py, taken, self.sizes())).transpose()
    }

    pub(super) fn recv_many<G: Given<Taken = S::Taken>>(
        &self,
        py: Python<'_>,
        max: usize,
        deadline: Deadline,
    ) -> PyResult<Vec<G>> {
        let recv = |server: &S, slice| py.detach(|| server.recv_many(max, slice));
        let taken = self.server.wait(py, deadline, RECV, recv)?;
        taken.into_iter().map(|taken| G::of(py, taken, self.sizes())).collect()
    }

    pub(super) fn drain<G: Given<Taken = S::Taken>>(&self, py: Python<'_>, max: usize) -> PyResult<Vec<G>> {
        let server = self.get(py)?;
        let taken = unless_small(py, waiting_bytes(&server, max), || server.drain(max)).or_raise(py)?;
        taken.into_iter().map(|taken| G::of(py, taken, self.sizes())).collect()
    }

    /// As `recv`; None once the server is closed.
    pub(super) fn next<G: Given<Taken = S::Taken>>(&self, py: Python<'_>) -> PyResult<Option<G>> {
        match self.recv(py, Deadline::NEVER) {
            Err(error) if self.is_closed() && error.is_instance_of::<PyValueError>(py) => Ok(None),
            next => next.map(Some),
        }
    }

    pub(super) fn start_recv<'py, G: Given<Taken = S::Taken>>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sizes = *self.sizes();
        self.start(
            py,
            1,
            |server| async move { server.recv_async().await },
            move |py, taken| Ok(Py::new(py, G::of(py, taken, &sizes)?)?.into_any()),
        )
    }

    pub(super) fn start_recv_many<'py, G: Given<Taken = S::Taken>>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let recv = move |server: S| async move {
            if max == 0 {
                return Ok(Vec::new());
            }
            let mut taken = vec![server.recv_async().await?];
            // If this fails, so will the next call.
            taken.extend(server.drain(max - 1).into_iter().flatten());
            Ok(taken)
        };
        let sizes = *self.sizes();
        self.start(py, max, recv, move |py, taken| {
            let given = taken.into_iter().map(|taken| Py::new(py, G::of(py, taken, &sizes)?));
            Ok(given.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.unbind())
        })
    }

    /// `max`: so many requests a poll may take.
    fn start<'py, T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        py: Python<'py>,
        max: usize,
        recv: impl FnOnce(S) -> F,
        give: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let server = self.get(py)?;
        let taken = self.server.until_closed(recv(server.clone()));
        let give = move |py: Python<'_>, taken: Option<Result<T>>| match taken {
            Some(taken) => give(py, taken.or_raise(py)?),
            None => Err(closed(py, "server", RECV)),
        };
        Task::new(move || waiting_bytes(&server, max), taken, give).start(py)
    }

    fn sizes(&self) -> &Geometry {
        self.segment.get().get_ref().geometry()
    }

    pub(super) fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        self.get(py)?.server().clear().or_raise(py)
    }

    pub(super) fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.server().doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.segment.clone_ref(py)
    }

    pub(super) fn close(&self) {
        self.server.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.server.is_closed()
    }

    fn get(&self, py: Python<'_>) -> PyResult<S> {
        self.server.get(py, RECV)
    }
}

/// Bytes of what `max` requests would bring now. Who looks in vain keeps the interpreter lock, however large a request may be.
fn waiting_bytes(server: &impl Taker, max: usize) -> usize {
    server.server().waiting_bytes(max).try_into().unwrap_or(usize::MAX)
}

/// What can be answered, once.
pub(super) struct Open<T>(Locked<State<T>>);

enum State<T> {
    /// Here to be answered. `lent`: a loop that gave it out may fail it.
    Here {
        request: T,
        lent: bool,
    },
    Answered,
    /// The loop's turn was over.
    Expired,
}

impl<T: Send> Open<T> {
    pub(super) fn new(request: T) -> Open<T> {
        Open(Locked::new(State::Here { request, lent: true }))
    }

    pub(super) fn take(&self, py: Python<'_>) -> PyResult<T> {
        let why = match self.end(State::Answered, |_| true) {
            State::Here { request, .. } => return Ok(request),
            State::Answered => "this request is answered already",
            State::Expired => {
                "the loop that gave this request out has gone on, which failed it: detach() it in the loop"
            }
        };
        Err(invalid(py, "reqrep reply", why))
    }

    /// Lets go of it, which fails the request, if it is not answered.
    pub(super) fn fail(&self) {
        drop(self.end(State::Answered, |_| true));
    }

    pub(super) fn is(&self, look: impl FnOnce(&T) -> bool + Send) -> bool {
        self.0.with(|state| matches!(state, State::Here { request, .. } if look(request)))
    }

    /// From now on it does not end with a loop's turn.
    pub(super) fn detach(&self) {
        self.0.with(|state| {
            if let State::Here { lent, .. } = state {
                *lent = false;
            }
        });
    }

    /// What it was until now, if that is `meant`; and what it is from now on.
    fn end(&self, now: State<T>, meant: impl FnOnce(bool) -> bool + Send) -> State<T> {
        self.0.with(|state| match state {
            State::Here { lent, .. } if meant(*lent) => std::mem::replace(state, now),
            State::Here { .. } | State::Answered => State::Answered,
            State::Expired => State::Expired,
        })
    }
}

/// What a loop gives out.
pub(crate) trait Lent: Send + Sync {
    /// Fails it, if it is neither answered nor detached.
    fn expire(&self);
}

impl<T: Send> Lent for Open<T> {
    fn expire(&self) {
        drop(self.end(State::Expired, |lent| lent));
    }
}
