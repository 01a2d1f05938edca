//! The answering end for single numbers. Mirrors `int_client.rs`.

use std::sync::{Arc, Weak};

use pipework::reqrep::{self, Geometry, Kind};
use pipework::{Deadline, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::segment::{Place, Segment};
use super::server::{Given, Lent, Open, Taker, Taking};
use super::turns::{Requests, lent};
use crate::error::OrRaise;
use crate::wait::{Timeout, until};

/// A `Server` whose requests and replies are numbers, -2**63 to 2**63 - 1. The segment is one of integers, also where this makes it.
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

#[pymethods]
impl IntServer {
    #[new]
    #[pyo3(signature = (segment, **options))]
    fn attach(
        py: Python<'_>,
        segment: Place<'_, '_>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<IntServer> {
        let segment = segment.made(py, Kind::Integers, options)?;
        let server = segment.get().get_ref().int_server().or_raise(py)?;
        Ok(IntServer(Taking::new(server, segment)))
    }

    /// As `Server.recv`.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<IntRequest> {
        self.0.recv(py, until(timeout))
    }

    /// As `Server.try_recv`.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<IntRequest>> {
        self.0.try_recv(py)
    }

    /// As `Server.recv_many`.
    #[pyo3(signature = (max, timeout=None))]
    fn recv_many(&self, py: Python<'_>, max: usize, timeout: Option<Timeout>) -> PyResult<Vec<IntRequest>> {
        self.0.recv_many(py, max, until(timeout))
    }

    /// As `Server.drain`.
    fn drain(&self, py: Python<'_>, max: usize) -> PyResult<Vec<IntRequest>> {
        self.0.drain(py, max)
    }

    /// As `Server.clear`.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.clear(py)
    }

    fn __iter__(slf: Py<IntServer>) -> Requests {
        Requests::new(move |py| slf.get().0.next::<IntRequest>(py))
    }

    /// As `Server.arecv`.
    fn arecv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.start_recv::<IntRequest>(py)
    }

    /// As `Server.arecv_many`.
    fn arecv_many<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Bound<'py, PyAny>> {
        self.0.start_recv_many::<IntRequest>(py, max)
    }

    fn __aiter__<'py>(slf: &Bound<'py, IntServer>) -> PyResult<Bound<'py, PyAny>> {
        IntServer::__iter__(slf.clone().unbind()).in_tasks(slf)
    }

    /// As `Server.doorbell`.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// As `Server.segment`.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// As `Server.close`.
    fn close(&self) {
        self.0.close();
    }

    /// Whether this server is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __enter__(slf: Py<IntServer>) -> Py<IntServer> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __reduce__(slf: &Bound<'_, IntServer>) -> (Py<PyAny>, (Py<Segment>,)) {
        (slf.get_type().into_any().unbind(), (slf.get().0.segment(slf.py()),))
    }
}

/// A `Request` that is a number.
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct IntRequest {
    value: i64,
    redeliveries: u8,
    open: Arc<Open<reqrep::IntRequest<'static>>>,
}

#[pymethods]
impl IntRequest {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("value",);

    /// The number.
    #[getter]
    fn value(&self) -> i64 {
        self.value
    }

    /// As `Request.redeliveries`.
    #[getter]
    fn redeliveries(&self) -> u8 {
        self.redeliveries
    }

    /// As `Request.wanted`.
    #[getter]
    fn wanted(&self) -> bool {
        self.open.is(|request| request.is_wanted())
    }

    /// As `Request.reply`.
    fn reply(&self, py: Python<'_>, value: i64) -> PyResult<bool> {
        self.open.take(py)?.reply(value).or_raise(py)
    }

    /// As `Request.fail`.
    fn fail(&self) {
        self.open.fail();
    }

    /// As `Request.detach`.
    fn detach(slf: Py<IntRequest>) -> Py<IntRequest> {
        slf.get().open.detach();
        slf
    }

    fn __enter__(slf: Py<IntRequest>) -> Py<IntRequest> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.fail();
    }

    fn __repr__(&self) -> String {
        let state = if self.open.is(|_| true) { "" } else { ", answered" };
        format!("<IntRequest {}{state}>", self.value)
    }
}

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

impl Taker for reqrep::IntServer {
    type Taken = reqrep::IntRequest<'static>;

    fn server(&self) -> &reqrep::Server {
        self.get_ref()
    }

    fn recv(&self, deadline: Deadline) -> Result<Self::Taken> {
        self.recv(deadline).map(reqrep::IntRequest::into_owned)
    }

    fn try_recv(&self) -> Result<Option<Self::Taken>> {
        Ok(self.try_recv()?.map(reqrep::IntRequest::into_owned))
    }

    fn recv_many(&self, max: usize, deadline: Deadline) -> Result<Vec<Self::Taken>> {
        Ok(self.recv_many(max, deadline)?.into_iter().map(reqrep::IntRequest::into_owned).collect())
    }

    fn drain(&self, max: usize) -> Result<Vec<Self::Taken>> {
        Ok(self.drain(max)?.into_iter().map(reqrep::IntRequest::into_owned).collect())
    }

    async fn recv_async(&self) -> Result<Self::Taken> {
        self.recv_async().await.map(reqrep::IntRequest::into_owned)
    }
}
