//! The one error map: an error of the core becomes the exception that Python people expect.
//!
//! Which class that is, `pipework/_errors.py` says; here an error only gives up its fields, and the
//! core its table of error numbers.

use std::path::Path;

use pipework::reqrep::CallError;
use pipework::{Error, ErrorKind, Unfinished};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::imports::Import;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let errnos = PyDict::new(module.py());
    for kind in ErrorKind::ALL {
        errnos.set_item(*kind as i32, kind.errno())?;
    }
    module.add("ERRNOS", errnos)
}

/// An error that can be raised.
pub(crate) trait Raise {
    fn kind(&self) -> ErrorKind;
    fn raise(&self, py: Python<'_>) -> PyErr;

    /// The reason that a server gave for a failed call; empty if it gave none.
    fn reason(&self) -> &[u8] {
        b""
    }
}

impl Raise for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        make(py, self, &self.to_string(), None)
    }
}

impl Raise for CallError {
    fn kind(&self) -> ErrorKind {
        CallError::kind(self)
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        match self.kind() {
            ErrorKind::Failed => remote(py, self.error().op(), Raise::reason(self)),
            _ => self.error().raise(py),
        }
    }

    fn reason(&self) -> &[u8] {
        CallError::reason(self).map_or(b"", |reason| reason)
    }
}

impl Raise for Unfinished {
    fn kind(&self) -> ErrorKind {
        Unfinished::kind(self)
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        make(py, &self.error, &self.to_string(), Some(self.done))
    }
}

/// An error of a call with a payload of `len` bytes. If that is too long, it names the limit.
pub(crate) struct Oversize {
    pub(crate) error: CallError,
    pub(crate) len: usize,
    /// The option that sets the limit, and the limit.
    pub(crate) option: &'static str,
    pub(crate) most: usize,
}

impl Raise for Oversize {
    fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        let Oversize { error, len, option, most } = self;
        // A reply may be too long as well, and its length is unknown.
        if error.kind() != ErrorKind::TooLong || len <= most {
            return error.raise(py);
        }
        make(py, &error.error(), &format!("{error}: {len} bytes, and {option} is {most}"), None)
    }

    fn reason(&self) -> &[u8] {
        Raise::reason(&self.error)
    }
}

/// An error followed by advice.
pub(crate) struct Advised<'a> {
    pub(crate) error: Error,
    pub(crate) advice: &'a str,
}

impl Raise for Advised<'_> {
    fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        make(py, &self.error, &format!("{}: {}", self.error, self.advice), None)
    }
}

/// For the `?` of functions that Python calls.
pub(crate) trait OrRaise<T>: Sized {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;

    /// As `or_raise`, for an operation on the file at `path`: the exception names it.
    fn or_raise_at(self, py: Python<'_>, path: &Path) -> PyResult<T> {
        self.or_raise(py).map_err(|raised| at(py, raised, path))
    }
}

/// The exception with the path that it is about.
pub(crate) fn at(py: Python<'_>, raised: PyErr, path: &Path) -> PyErr {
    // An exception that takes no attributes, such as one that a signal handler has raised, is worth
    // more than the attribute.
    let _ = raised.value(py).setattr("filename", path.as_os_str());
    raised
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| error.raise(py))
    }
}

/// An `Invalid` of the binding itself: an argument that has no meaning, or a handle that is closed.
pub(crate) fn invalid(py: Python<'_>, op: &str, text: &str) -> PyErr {
    of_kind(py, ErrorKind::Invalid, op, text)
}

/// Whether an exception is an `Invalid`.
pub(crate) fn is_invalid(py: Python<'_>, raised: &PyErr) -> bool {
    static INVALID: Import = Import::new("pipework._errors", "Invalid");
    INVALID.get(py).is_ok_and(|class| raised.is_instance(py, class))
}

/// The reason that a server gave when it gave a request up.
pub(crate) fn remote(py: Python<'_>, op: &str, reason: &[u8]) -> PyErr {
    static REMOTE: Import = Import::new("pipework._errors", "remote");
    let fields = (op, PyBytes::new(py, reason), format!("{op}: {}", ErrorKind::Failed));
    REMOTE.call(py, fields).map_or_else(|error| error, PyErr::from_value)
}

/// An error of that kind, where the core had no part in it.
pub(crate) fn of_kind(py: Python<'_>, kind: ErrorKind, op: &str, text: &str) -> PyErr {
    call_make(py, (kind as i32, op, None, format!("{op}: {text}"), None))
}

fn make(py: Python<'_>, error: &Error, text: &str, done: Option<u64>) -> PyErr {
    call_make(py, (error.kind() as i32, error.op(), error.errno(), text.to_owned(), done))
}

fn call_make(py: Python<'_>, fields: (i32, &str, Option<i32>, String, Option<u64>)) -> PyErr {
    static MAKE: Import = Import::new("pipework._errors", "make");
    MAKE.call(py, fields).map_or_else(|error| error, PyErr::from_value)
}
