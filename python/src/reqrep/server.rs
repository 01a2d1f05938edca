//! The answering end. Mirrors `client.rs`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::request::Request;
use super::segment::{Place, Reduced, Segment, options_text, reduce};
use super::taking::{Settings, Taking, Terms};
use super::turns::Requests;
use crate::imports::Import;
use crate::interpreter;
use crate::keywords::{MaxMessage, PartTimeout};
use crate::wait::{CallTimeout, Seconds};

#[doc = concat!("Server(segment, *, timeout=None, max_message=268435456, part_timeout=10.0, ", options_text!(), ")\n--\n")]
/// The base of `pipework.reqrep.Server`; handlers, in `pipework/_serving.py`, build on it.
#[pyclass(frozen, weakref, subclass, module = "pipework._core")]
pub(crate) struct Server(Taking);

#[pymethods]
impl Server {
    #[new]
    #[pyo3(
        signature = (
            segment,
            *,
            timeout=None,
            max_message=MaxMessage::DEFAULT,
            part_timeout=PartTimeout::DEFAULT,
            **options
        ),
        text_signature = None
    )]
    fn attach(
        py: Python<'_>,
        segment: Place<'_, '_>,
        timeout: Option<Seconds>,
        max_message: MaxMessage,
        part_timeout: PartTimeout,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Server> {
        let segment = segment.made(py, options)?;
        let terms = Terms { timeout, max_message: max_message.0, part_timeout: part_timeout.0 };
        let server = segment.get().attach(py, |segment| segment.server_with(&terms.options()))?;
        Ok(Server(Taking::new(server, segment, terms)))
    }

    /// Waits for the next request. Raises `TimedOut`, `Closed` if this server was stopped, and
    /// `Corrupt` if the segment is damaged.
    #[pyo3(signature = (*, timeout=CallTimeout::Unset))]
    fn recv(&self, py: Python<'_>, timeout: CallTimeout) -> PyResult<Request> {
        self.0.recv(py, self.0.timeout(timeout))
    }

    /// The next request; None if none waits.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Request>> {
        self.0.try_recv(py)
    }

    /// Waits for the next request and leaves its bytes in the segment, for `Request.recv_into`. Raises as
    /// `recv`.
    #[pyo3(signature = (*, timeout=CallTimeout::Unset))]
    fn claim(&self, py: Python<'_>, timeout: CallTimeout) -> PyResult<Request> {
        self.0.claim(py, self.0.until(timeout))
    }

    /// Receives up to `count` requests: waits for the first, then takes those that are there and
    /// those that arrive within `linger` seconds. For work that is cheaper by the batch. Raises as
    /// `recv`. If a signal handler raises, or the server is closed, during `linger`, the requests
    /// taken so far fail.
    #[pyo3(signature = (count, *, timeout=CallTimeout::Unset, linger=None), text_signature = "($self, count, *, timeout=..., linger=0)")]
    fn recv_many(
        &self,
        py: Python<'_>,
        count: usize,
        timeout: CallTimeout,
        linger: Option<Seconds>,
    ) -> PyResult<Vec<Request>> {
        let linger = linger.map_or_else(Default::default, |linger| linger.0);
        self.0.recv_many(py, count, self.0.until(timeout), linger)
    }

    /// Receives up to `count` of the requests that wait now. Never waits.
    fn drain(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Request>> {
        self.0.drain(py, count)
    }

    /// Fails all requests that wait now; returns how many they were.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.clear(py)
    }

    /// Stops receiving: from now on `recv` and the like raise `Closed`, at once, loops end, and no
    /// more requests are taken. Requests that were taken can be answered; those that wait in the
    /// segment are for other servers. Any thread may call it, and signal handlers.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.0.stop(py)
    }

    /// Takes back a request that was kept, by the ticket that `keep` has returned; None if `ticket`
    /// has none. Raises `Stale` in a forked child for a request that its parent keeps.
    fn kept(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<Request>> {
        self.0.kept(py, ticket)
    }

    /// In a forked child, makes a request its own that the parent had kept when it forked:
    /// for servers that fork for each request. Raises `Stale` if the parent has answered it
    /// or has died, or has given a part of the reply; the parent gets it from then on.
    fn adopt(&self, py: Python<'_>, ticket: u64) -> PyResult<Request> {
        self.0.adopt(py, ticket)
    }

    fn __iter__(slf: Py<Server>) -> Requests {
        Requests::new(move |py| slf.get().0.next::<Request>(py))
    }

    /// As `recv`, in asyncio, on any event loop, or in trio. A task that is cancelled has
    /// taken nothing. Raises `Invalid` when the server is closed.
    #[pyo3(signature = (*, timeout=CallTimeout::Unset))]
    fn arecv<'py>(&self, py: Python<'py>, timeout: CallTimeout) -> PyResult<Bound<'py, PyAny>> {
        self.0.start_recv::<Request>(py, self.0.timeout(timeout))
    }

    /// As `recv_many`, in asyncio or trio. A task that is cancelled has taken nothing; but requests
    /// that it had taken before it lingered fail.
    #[pyo3(signature = (count, *, timeout=CallTimeout::Unset, linger=None), text_signature = "($self, count, *, timeout=..., linger=0)")]
    fn arecv_many<'py>(
        slf: &Bound<'py, Server>,
        count: usize,
        timeout: CallTimeout,
        linger: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static LINGER: Import = Import::new("pipework._asyncio_tasks", "linger");
        let timeout = slf.get().0.timeout(timeout);
        let linger = linger.map_or_else(Default::default, |linger| linger.0);
        match linger.is_zero() {
            true => slf.get().0.start_recv_many::<Request>(slf.py(), count, timeout),
            false => {
                let timeout = timeout.map(Seconds::to_f64);
                LINGER.call(slf.py(), (slf, count, linger.as_secs_f64(), timeout))
            }
        }
    }

    fn __aiter__<'py>(slf: &Bound<'py, Server>) -> PyResult<Bound<'py, PyAny>> {
        Server::__iter__(slf.clone().unbind()).in_tasks(slf)
    }

    /// A descriptor for another event loop than asyncio's, readable while a request waits. It is
    /// the caller's to close, and not to be read from. When it is readable, `try_recv` until it
    /// returns None. A forked child asks for one of its own.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// As `doorbell`, but the same one each time, which is closed with the server: for
    /// `selectors`, and for `multiprocessing.connection.wait`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.fileno(py)
    }

    /// The segment that this server is attached to.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// Seconds that a method of this server waits if the caller gives no `timeout`; None: for
    /// ever.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.0.terms().timeout.map(Seconds::to_f64)
    }

    /// Bytes of the longest request and reply.
    #[getter]
    fn max_message(&self) -> usize {
        self.0.terms().max_message
    }

    /// Seconds that a client may take for a part that the reply comes after.
    #[getter]
    fn part_timeout(&self) -> f64 {
        self.0.terms().part_timeout.as_secs_f64()
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

    fn __enter__(slf: Py<Server>) -> Py<Server> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Server>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        interpreter::call_method(slf, "close")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Server>) -> PyResult<Reduced<Settings<'py>>> {
        reduce(slf, slf.get().0.settings(slf.py())?)
    }

    fn __repr__(slf: &Bound<'_, Server>) -> PyResult<String> {
        Ok(format!("<{} of {}>", slf.get_type().name()?, slf.get().0.describe()))
    }
}
