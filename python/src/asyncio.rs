//! Coroutines: made here, run in `pipework/_asyncio_fd.py`, on the event loop of the caller, either
//! asyncio's or trio's.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::interpreter;
use crate::locked::Locked;

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Calls the function of that name in `pipework/_asyncio_fd.py` and returns its result: a coroutine
/// or an asynchronous iterator.
pub(crate) fn start<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    interpreter::park_at_the_end();
    let module = MODULE.get_or_try_init(py, || py.import("pipework._asyncio_fd").map(Bound::unbind))?;
    module.bind(py).getattr(name)?.call1(arguments)
}

type Act = dyn FnOnce(Python<'_>) + Send;

/// Closes a descriptor by `act`, once every event loop has let go of it: a loop of another thread
/// goes on watching the number until it has run, and by then the number may belong to another file.
/// Tasks that wait for it are woken. If no coroutine was ever made, no task waits.
pub(crate) fn close(py: Python<'_>, fd: i32, act: impl FnOnce(Python<'_>) + Send + 'static) {
    let act = Parting(Locked::new(Some(Box::new(act))));
    let Some(module) = MODULE.get(py) else { return };
    if let Err(error) = module.bind(py).getattr("forget").and_then(|forget| forget.call1((fd, act))) {
        error.write_unraisable(py, None);
    }
}

/// Closes something as soon as nothing refers to this any more.
#[pyclass(frozen, module = "pipework._core")]
struct Parting(Locked<Option<Box<Act>>>);

impl Drop for Parting {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            Python::try_attach(act);
        }
    }
}
