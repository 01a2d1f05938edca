//! Loops over a server: each request is the loop's until its turn is over.
//!
//! A loop variable still refers to a request whose loop body has failed, while the loop waits for
//! the next one, perhaps for ever; and so would the caller wait. So a loop that comes back fails
//! the request that it gave out last, if that is neither answered nor detached.

use std::sync::Weak;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::open::Lent;
use super::taking::Given;
use crate::imports::Import;
use crate::locked::Locked;

type Next = dyn Fn(Python<'_>) -> PyResult<Option<(Py<PyAny>, Weak<dyn Lent>)>> + Send + Sync;

/// The iterator of a server: requests until it is closed.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Requests {
    next: Box<Next>,
    lent_by: fn(&Bound<'_, PyAny>) -> PyResult<Weak<dyn Lent>>,
    last: Locked<Option<Weak<dyn Lent>>>,
}

impl Requests {
    /// `next` gives None once the server is closed.
    pub(super) fn new<G: Given>(
        next: impl Fn(Python<'_>) -> PyResult<Option<G>> + Send + Sync + 'static,
    ) -> Requests {
        let next = move |py: Python<'_>| {
            let Some(given) = next(py)? else { return Ok(None) };
            let lent = given.lend();
            Ok(Some((Py::new(py, given)?.into_any(), lent)))
        };
        Requests { next: Box::new(next), lent_by: lent_by::<G>, last: Locked::new(None) }
    }

    /// The same for `async for`.
    pub(super) fn in_tasks<'py>(self, server: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        static REQUESTS: Import = Import::new("pipework._asyncio_tasks", "Requests");
        REQUESTS.call(server.py(), (server, self))
    }

    fn give_out(&self, lent: Weak<dyn Lent>) {
        drop(self.last.replace(lent));
    }
}

#[pymethods]
impl Requests {
    fn __iter__(slf: Py<Requests>) -> Py<Requests> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.come_back();
        let Some((request, lent)) = (self.next)(py)? else { return Ok(None) };
        self.give_out(lent);
        Ok(Some(request))
    }

    /// Ends the turn of the request that was given out last.
    fn come_back(&self) {
        if let Some(last) = self.last.take().and_then(|last| last.upgrade()) {
            last.expire();
        }
    }

    /// Begins the turn of that request.
    fn lend(&self, request: &Bound<'_, PyAny>) -> PyResult<()> {
        self.give_out((self.lent_by)(request)?);
        Ok(())
    }
}

fn lent_by<G: Given>(request: &Bound<'_, PyAny>) -> PyResult<Weak<dyn Lent>> {
    match request.cast::<G>() {
        Ok(request) => Ok(request.get().lend()),
        Err(_) => Err(PyTypeError::new_err("this is no request of the loop's server")),
    }
}
