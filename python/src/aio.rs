//! Coroutines: made here, run in `pipework/_aio.py`, on whatever event loop there is.

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
pub(crate) fn forget(py: Python<'_>, fd: i32) -> PyResult<()> {
    MODULE.get(py).map_or(Ok(()), |module| module.bind(py).getattr("forget")?.call1((fd,)).map(drop))
}
