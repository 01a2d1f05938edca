//! The one wait of this binding: time-outs, and signals.
//!
//! Python's signal handlers run between two steps of the interpreter. A wait of the core asks
//! [`hook`] whether to go on, when a system call was interrupted and four times a second besides,
//! for a signal may reach another thread, may arrive just before the system call, and may have a
//! handler that lets system calls go on. The hook runs Python's handlers in the middle of the call;
//! if they raise, the exception is kept, ends the call, and is raised there. Only if handlers may
//! use the very end that the call has taken out of its handle, the call ends first, and is made
//! again.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pipework::interrupt::{Verdict, set_hook};
use pipework::{Deadline, ErrorKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyEllipsis;

use crate::error::{OrRaise, Raise};
use crate::interpreter;

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
        // A time that is too long for a Duration is as good as no limit.
        Ok(Seconds(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
    }
}

/// The `timeout` of one call of an end that has a time-out of its own.
#[derive(Clone, Copy)]
pub(crate) enum CallTimeout {
    /// Not given, or given as `...`: the end's own.
    Unset,
    Set(Option<Seconds>),
}

impl CallTimeout {
    pub(crate) fn or(self, own: Option<Seconds>) -> Option<Seconds> {
        match self {
            CallTimeout::Unset => own,
            CallTimeout::Set(timeout) => timeout,
        }
    }
}

impl FromPyObject<'_, '_> for CallTimeout {
    type Error = PyErr;

    fn extract(timeout: Borrowed<'_, '_, PyAny>) -> PyResult<CallTimeout> {
        if timeout.is(&*PyEllipsis::get(timeout.py())) {
            return Ok(CallTimeout::Unset);
        }
        timeout.extract().map(CallTimeout::Set)
    }
}

/// None is for ever.
pub(crate) fn until(timeout: Option<Timeout>) -> Deadline {
    timeout.map_or(Deadline::NEVER, |timeout| timeout.0)
}

/// Lets the core ask this binding whether waits go on.
pub(crate) fn add_hook(py: Python<'_>) -> PyResult<()> {
    set_hook(hook).or_raise(py)
}

/// The object that a call uses while it waits.
#[derive(Clone, Default)]
pub(crate) enum Used {
    /// Nothing that could be closed.
    #[default]
    Nothing,
    /// The end of a handle, which signal handlers and other threads may use before the call is made
    /// again. That costs it nothing.
    Turn,
    /// Something that the call keeps until it is done. This is the mark that it was closed.
    Held(Arc<AtomicBool>),
}

impl Used {
    fn is_closed(&self) -> bool {
        matches!(self, Used::Held(closed) if closed.load(Ordering::Relaxed))
    }
}

thread_local! {
    /// The exception that a signal handler has raised in [`hook`].
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
    /// The object that the call of this thread uses.
    static USED: RefCell<Used> = const { RefCell::new(Used::Nothing) };
}

/// Makes `call` until it ends for another reason than a signal. `call` gives the interpreter lock
/// away by itself, and loses nothing when it ends early. An exception of a signal handler counts
/// more than the result of the call; `call` itself may be refused, which ends the wait. The core's
/// error is left to the caller, who may have to tell the two apart.
pub(crate) fn wait<T, E: Raise>(
    py: Python<'_>,
    used: &Used,
    mut call: impl FnMut() -> PyResult<Result<T, E>>,
) -> PyResult<Result<T, E>> {
    interpreter::park_at_the_end();
    loop {
        let outer = USED.replace(used.clone());
        let done = call();
        USED.set(outer);
        if let Some(raised) = RAISED.take() {
            return Err(raised);
        }
        let done = done?;
        if !done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

/// Whether a wait of the core goes on. It is called in the thread that waits, mostly without the
/// interpreter lock.
fn hook() -> Verdict {
    let used = USED.take();
    let verdict = if matches!(used, Used::Turn) || has_raised() || used.is_closed() {
        Verdict::Stop
    } else {
        Verdict::GoOn
    };
    USED.set(used);
    verdict
}

/// Runs signal handlers, which may raise, and may call all of this again.
fn has_raised() -> bool {
    // If the interpreter is ending, no handlers can run.
    let ran = Python::try_attach(|py| py.check_signals().map_err(|raised| RAISED.set(Some(raised))));
    ran.is_some_and(|ran| ran.is_err())
}

/// Reports an exception that no code can catch, as Python does with exceptions of `__del__`.
pub(crate) fn report_raised(py: Python<'_>) {
    if let Some(raised) = RAISED.take() {
        raised.write_unraisable(py, None);
    }
}
