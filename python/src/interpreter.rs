//! **Wall**: the interpreter that the package is imported in.
//!
//! A thread of the core that wakes a task finds its way into the main interpreter, and no other;
//! classes and exceptions are made once for a process. So no other is let in. From Python 3.12 on,
//! one with a lock of its own is refused before this is asked.

#![allow(unsafe_code)]

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// The number of the main interpreter.
const MAIN: i64 = 0;

/// Raises ImportError in a subinterpreter.
pub(crate) fn refuse_others(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread has the lock of the interpreter that it runs, which is alive.
    let number = unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    let text = "pipework can be imported in the main interpreter only, and this is a subinterpreter \
                (with mod_wsgi: WSGIApplicationGroup %{GLOBAL})";
    Err(PyImportError::new_err(text))
}
