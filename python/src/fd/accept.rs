//! Accepting many connections at once, and turning them away.

use std::os::fd::IntoRawFd;

use pipework::fd::{self, Stopped};
use pyo3::prelude::*;

use super::address::to_python;
use super::raw::borrow;
use crate::error::{OrRaise, Raise};
use crate::handle::{Handle, InChild};

/// The name in `pipework.fd.Stopped`, and the exception if accepting failed.
type Why = (&'static str, Option<Py<PyAny>>);

fn why(py: Python<'_>, stopped: Stopped) -> Why {
    match stopped {
        Stopped::WouldBlock => ("WOULD_BLOCK", None),
        Stopped::Limit => ("LIMIT", None),
        Stopped::NoDescriptors(error) => ("NO_DESCRIPTORS", Some(error.raise(py).into_value(py).into_any())),
        Stopped::Failed(error) => ("FAILED", Some(error.raise(py).into_value(py).into_any())),
    }
}

/// Accepts up to `count` connections: their descriptors, their peers, and why it stopped.
#[pyfunction]
pub(super) fn accept_connections(
    py: Python<'_>,
    fd: i32,
    count: usize,
) -> PyResult<(Vec<i32>, Vec<Py<PyAny>>, Why)> {
    let fd = borrow(py, fd)?;
    let accepted = py.detach(|| fd::accept_many(fd, count));
    let connections = accepted.connections.iter();
    let peers =
        connections.map(|connection| to_python(py, connection.peer.as_ref())).collect::<PyResult<_>>()?;
    let fds = accepted.connections.into_iter().map(|connection| connection.fd.into_raw_fd()).collect();
    Ok((fds, peers, why(py, accepted.stopped)))
}

/// A descriptor that is given up when none is left, so that connections can be turned away instead
/// of left to wait.
#[pyclass(frozen, module = "pipework.fd")]
pub(crate) struct ReserveCore {
    handle: Handle<fd::Reserve>,
}

#[pymethods]
impl ReserveCore {
    #[new]
    fn new(py: Python<'_>) -> PyResult<ReserveCore> {
        Ok(ReserveCore { handle: Handle::new("reserve", fd::Reserve::new().or_raise(py)?, InChild::Used) })
    }

    /// Whether it holds a descriptor to give up. If not, the next `shed` tries to take one again.
    #[getter]
    fn held(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "fd reserve", |reserve| reserve.is_held())
    }

    /// Accepts up to `count` connections and closes each at once: how many, and why not more.
    fn shed(&self, py: Python<'_>, fd: i32, count: usize) -> PyResult<(usize, Why)> {
        let fd = borrow(py, fd)?;
        let shed = self.handle.with(py, "fd shed", |reserve| py.detach(|| reserve.shed(fd, count)))?;
        Ok((shed.turned_away, why(py, shed.stopped)))
    }

    /// Releases the descriptor permanently.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py, |_, end| drop(end));
    }
}
