//! The calling end for single numbers. Mirrors `int_server.rs`.

use std::sync::Arc;

use pipework::reqrep::{self, Ticket};
use pipework::{Deadline, Result};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::client::{Caller, Calls, Settings};
use super::segment::{Place, Segment};
use crate::error::OrRaise;
use crate::keywords::{InFlight, Redeliveries};
use crate::wait::{Timeout, until};

/// A `Client` whose requests and replies are numbers, -2**63 to 2**63 - 1. The segment is one of integers.
///
/// >>> from pipework.reqrep import IntClient, IntServer, Segment
/// >>> segment = Segment.anonymous(integers=True)
/// >>> server, client = IntServer(segment), IntClient(segment)
/// >>> ticket = client.send(20)
/// >>> request = server.recv()
/// >>> request.reply(request.value + 1)
/// True
/// >>> client.recv(ticket)
/// 21
#[pyclass(frozen, module = "pipework.reqrep")]
pub(crate) struct IntClient(Calls<reqrep::IntClient>);

#[pymethods]
impl IntClient {
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
    ) -> PyResult<IntClient> {
        let segment = segment.opened(py)?;
        let client = segment.get().get_ref().int_client().or_raise(py)?;
        let client = client.redeliveries(redeliveries.0).needs_server(needs_server);
        let client = client.max_in_flight(max_in_flight.0);
        Ok(IntClient(Calls::new(client, segment, (redeliveries.0, needs_server, max_in_flight.0))))
    }

    /// As `Client.call`.
    #[pyo3(signature = (value, timeout=None))]
    fn call(&self, py: Python<'_>, value: i64, timeout: Option<Timeout>) -> PyResult<i64> {
        self.0.call(py, value, until(timeout))
    }

    /// As `Client.send`.
    #[pyo3(signature = (value, timeout=None))]
    fn send(&self, py: Python<'_>, value: i64, timeout: Option<Timeout>) -> PyResult<u64> {
        self.0.send(py, value, until(timeout))
    }

    /// As `Client.try_send`.
    fn try_send(&self, py: Python<'_>, value: i64) -> PyResult<Option<u64>> {
        self.0.try_send(py, value)
    }

    /// As `Client.recv`.
    #[pyo3(signature = (ticket, timeout=None))]
    fn recv(&self, py: Python<'_>, ticket: u64, timeout: Option<Timeout>) -> PyResult<i64> {
        self.0.recv(py, ticket, until(timeout))
    }

    /// As `Client.try_recv`.
    fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<i64>> {
        self.0.try_recv(py, ticket)
    }

    /// As `Client.acall`.
    fn acall<'py>(&self, py: Python<'py>, value: i64) -> PyResult<Bound<'py, PyAny>> {
        let call = move |client: reqrep::IntClient| async move { client.call_async(value).await };
        self.0.start(py, 0, Arc::default(), call, number)
    }

    /// As `Client.arecv`.
    fn arecv<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Bound<'py, PyAny>> {
        let ticket = Ticket::from_bits(ticket);
        let recv = move |client: reqrep::IntClient| async move { client.recv_async(ticket).await };
        self.0.start(py, 0, Arc::default(), recv, number)
    }

    /// As `Client.cancel`.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.0.cancel(py, ticket)
    }

    /// As `Client.pending`.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.pending(py)
    }

    /// As `Client.doorbell`.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.doorbell(py)
    }

    /// As `Client.send_doorbell`.
    fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.send_doorbell(py)
    }

    /// As `Client.segment`.
    #[getter]
    fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.0.segment(py)
    }

    /// As `Client.close`.
    fn close(&self) {
        self.0.close();
    }

    /// Whether this client is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __enter__(slf: Py<IntClient>) -> Py<IntClient> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __reduce__(slf: &Bound<'_, IntClient>) -> (Py<PyAny>, Settings) {
        (slf.get_type().into_any().unbind(), slf.get().0.settings(slf.py()))
    }
}

fn number(py: Python<'_>, reply: i64) -> PyResult<Py<PyAny>> {
    Ok(reply.into_pyobject(py)?.into_any().unbind())
}

impl Caller for reqrep::IntClient {
    type Request<'a> = i64;
    type Reply = i64;

    fn len(_request: i64) -> usize {
        size_of::<i64>()
    }

    fn client(&self) -> &reqrep::Client {
        self.get_ref()
    }

    fn send(&self, request: i64, deadline: Deadline) -> Result<Ticket> {
        self.send(request, deadline)
    }

    fn try_send(&self, request: i64) -> Result<Option<Ticket>> {
        self.try_send(request)
    }

    fn recv(&self, ticket: Ticket, deadline: Deadline) -> Result<i64> {
        self.recv(ticket, deadline)
    }

    fn try_recv(&self, ticket: Ticket) -> Result<Option<i64>> {
        self.try_recv(ticket)
    }

    fn abandon(&self, ticket: Ticket) -> Result<Option<i64>> {
        self.abandon(ticket)
    }
}
