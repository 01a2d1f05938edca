//! What a server does, on Python's terms, whatever its payloads are. Mirrors `calls.rs`.

use std::convert::identity;
use std::os::fd::IntoRawFd;
use std::sync::Weak;
use std::time::Duration;

use pipework::reqrep::{Geometry, IntRequest, IntServer, Request, Server};
use pipework::{Deadline, Result};
use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

use super::open::Lent;
use super::segment::Segment;
use super::shared::{Shared, closed};
use crate::buffer::unless_small;
use crate::error::OrRaise;
use crate::task::Task;

/// A server of the core.
pub(super) trait Taker: Clone + Send + Sync + 'static {
    type Taken: Send;

    fn server(&self) -> &Server;
    fn recv(&self, deadline: Deadline) -> Result<Self::Taken>;
    fn try_recv(&self) -> Result<Option<Self::Taken>>;
    fn recv_many(&self, max: usize, deadline: Deadline) -> Result<Vec<Self::Taken>>;
    fn drain(&self, max: usize) -> Result<Vec<Self::Taken>>;
    fn recv_async(&self) -> impl Future<Output = Result<Self::Taken>> + Send;
}

/// Each server of the core has these by the same names. `server` is the server inside.
macro_rules! taker {
    ($Server:ty, $Request:ident, $server:expr) => {
        impl Taker for $Server {
            type Taken = $Request<'static>;

            fn server(&self) -> &Server {
                $server(self)
            }

            fn recv(&self, deadline: Deadline) -> Result<Self::Taken> {
                self.recv(deadline).map($Request::into_owned)
            }

            fn try_recv(&self) -> Result<Option<Self::Taken>> {
                Ok(self.try_recv()?.map($Request::into_owned))
            }

            fn recv_many(&self, max: usize, deadline: Deadline) -> Result<Vec<Self::Taken>> {
                Ok(self
                    .recv_many(max, deadline, Duration::ZERO)?
                    .into_iter()
                    .map($Request::into_owned)
                    .collect())
            }

            fn drain(&self, max: usize) -> Result<Vec<Self::Taken>> {
                Ok(self.drain(max)?.into_iter().map($Request::into_owned).collect())
            }

            async fn recv_async(&self) -> Result<Self::Taken> {
                self.recv_async().await.map($Request::into_owned)
            }
        }
    };
}

taker!(Server, Request, identity);
taker!(IntServer, IntRequest, IntServer::get_ref);

/// A request as Python gets it.
pub(super) trait Given: Into<PyClassInitializer<Self>> + PyClass<Frozen = True> + Sync {
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

/// Bytes of what `max` requests would bring now. Who looks in vain keeps the interpreter lock,
/// however large a request may be.
fn waiting_bytes(server: &impl Taker, max: usize) -> usize {
    server.server().waiting_bytes(max).try_into().unwrap_or(usize::MAX)
}
