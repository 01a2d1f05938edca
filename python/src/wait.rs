//! The one wait of this face: time-outs, and signals.
//!
//! Python's signal handlers run between two steps of the interpreter, so a wait must come back to
//! it: at once when a system call was interrupted, and four times a second besides, for a signal
//! may reach another thread, may arrive just before the system call, and may have a handler that
//! lets system calls go on. Deadlines are absolute, so nothing grows longer by being taken up
//! again.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pipework::{Deadline, ErrorKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{OrRaise, Raise};
use crate::interpreter;

/// The longest time without a look at signals, and at whether the handle was closed by another
/// thread.
const SLICE: Duration = Duration::from_millis(250);

/// A deadline for those that must not wait.
pub(crate) const PAST: Deadline = Deadline::at_ns(0);

/// Seconds as Python gives them, counted from now on.
#[derive(Clone, Copy)]
pub(crate) struct Timeout(Deadline);

impl FromPyObject<'_, '_> for Timeout {
    type Error = PyErr;

    fn extract(timeout: Borrowed<'_, '_, PyAny>) -> PyResult<Timeout> {
        timeout.extract::<Seconds>().map(|seconds| Timeout(Deadline::after(seconds.0)))
    }
}

/// Seconds as Python gives them, counted later.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    /// Counted from now on; None is for ever.
    pub(crate) fn from_now(timeout: Option<Seconds>) -> Deadline {
        timeout.map_or(Deadline::NEVER, |seconds| Deadline::after(seconds.0))
    }

    pub(crate) fn to_f64(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(timeout: Borrowed<'_, '_, PyAny>) -> PyResult<Seconds> {
        interpreter::park_at_the_end();
        let seconds = timeout.extract::<f64>()?;
        if seconds.is_nan() || seconds < 0.0 {
            return Err(PyValueError::new_err("timeout must be a number of seconds, 0 or more, or None"));
        }
        // What is beyond a Duration is beyond anybody's patience.
        Ok(Seconds(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
    }
}

/// None is for ever.
pub(crate) fn until(timeout: Option<Timeout>) -> Deadline {
    timeout.map_or(Deadline::NEVER, |timeout| timeout.0)
}

/// Asks again and again until `ask` has an answer, and runs Python's signal handlers in between:
/// the one loop of this face that waits. `ask` gives the interpreter lock away by itself; if it may
/// block without being interrupted by signals, then for no longer than a [`slice`].
pub(crate) fn again<T>(py: Python<'_>, mut ask: impl FnMut() -> PyResult<Option<T>>) -> PyResult<T> {
    interpreter::park_at_the_end();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        attend(py)?;
    }
}

/// The end of the slice that begins now.
pub(crate) fn slice(deadline: Deadline) -> Deadline {
    deadline.capped(SLICE)
}

/// Makes `call` until it ends in something else than a signal or the end of a slice. `call` gives
/// the interpreter lock away by itself, and loses nothing when it ends early.
pub(crate) fn wait<T, E: Raise>(
    py: Python<'_>,
    deadline: Deadline,
    mut call: impl FnMut(Deadline) -> Result<T, E>,
) -> PyResult<T> {
    in_slices(py, deadline, |slice| Ok(call(slice)))?.or_raise(py)
}

/// As [`wait`], for a call that may also be refused, which ends the wait. What the core said is
/// left to the caller, who may have to tell it from what a signal handler has raised.
pub(crate) fn in_slices<T, E: Raise>(
    py: Python<'_>,
    deadline: Deadline,
    mut call: impl FnMut(Deadline) -> PyResult<Result<T, E>>,
) -> PyResult<Result<T, E>> {
    again(py, || {
        let done = call(slice(deadline))?;
        let is_early = done.as_ref().is_err_and(|error| is_early(error.kind(), deadline));
        Ok(if is_early { None } else { Some(done) })
    })
}

/// Whether a call that ended so is to be made again.
fn is_early(kind: ErrorKind, deadline: Deadline) -> bool {
    kind == ErrorKind::Interrupted || kind == ErrorKind::TimedOut && !deadline.has_passed()
}

/// Runs Python's signal handlers, or tells what they raised when [`go_on`] ran them.
fn attend(py: Python<'_>) -> PyResult<()> {
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => py.check_signals(),
    }
}

thread_local! {
    /// What a signal handler has raised inside a call of the core that cannot hand it on.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
    /// Whether the handle was closed that such a call of this thread uses.
    static CLOSED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// For calls of the core that cannot just end and be made again, and ask instead: runs signal
/// handlers, and keeps what they raise for [`attend`].
pub(crate) fn go_on() -> bool {
    let closed =
        CLOSED.with_borrow(|closed| closed.as_ref().is_some_and(|closed| closed.load(Ordering::Relaxed)));
    let ran =
        || Python::try_attach(|py| py.check_signals().map_err(|raised| RAISED.set(Some(raised))).is_ok());
    !closed && ran().unwrap_or(true)
}

/// Makes a call that asks [`go_on`], for a handle with that mark.
pub(crate) fn asking<T>(closed: &Arc<AtomicBool>, call: impl FnOnce() -> T) -> T {
    let outer = CLOSED.replace(Some(Arc::clone(closed)));
    let done = call();
    CLOSED.set(outer);
    done
}

/// Tells of what was raised where nobody can catch it, as Python does with what `__del__` raises.
pub(crate) fn report_raised(py: Python<'_>) {
    if let Some(raised) = RAISED.take() {
        raised.write_unraisable(py, None);
    }
}
