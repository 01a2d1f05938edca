//! Coroutines: made here, run in `pipework/_aio.py`, on whatever event loop there is.

use std::sync::Arc;
use std::task::{Wake, Waker};

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// What the function of that name in `pipework/_aio.py` returns: a coroutine or an asynchronous iterator.
pub(crate) fn start<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = MODULE.get_or_try_init(py, || py.import("pipework._aio").map(Bound::unbind))?;
    module.bind(py).getattr(name)?.call1(arguments)
}

/// Wakes tasks that wait for a descriptor which is about to be closed. Where nobody has made a coroutine yet, nobody waits.
pub(crate) fn forget(py: Python<'_>, fd: i32) {
    let Some(module) = MODULE.get(py) else { return };
    if let Err(error) = module.bind(py).getattr("forget").and_then(|forget| forget.call1((fd,))) {
        error.write_unraisable(py, None);
    }
}

/// A waker that calls `wake`, a Python function, from whatever thread wakes.
pub(crate) fn waker(wake: Py<PyAny>) -> Waker {
    struct Call(Py<PyAny>);

    impl Wake for Call {
        fn wake(self: Arc<Self>) {
            // Without an interpreter there is no task either.
            Python::try_attach(|py| {
                if let Err(error) = self.0.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }

    Waker::from(Arc::new(Call(wake)))
}
