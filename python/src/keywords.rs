//! Options and other arguments that have a range: each is refused with its name, its range, and the
//! value given.
//!
//! Options that many functions share are read out of the keyword arguments by name.
//! `inspect.signature` and `help` show the first line of a docstring for them, which a module
//! writes once, as a macro.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pipework::defaults;
use pipework::reqrep::MAX_REDELIVERIES;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error::invalid;
use crate::imports::Import;
use crate::interpreter;

/// One keyword argument.
pub(crate) struct Keyword<'a, 'py> {
    op: &'static str,
    name: &'a str,
    value: Borrowed<'a, 'py, PyAny>,
}

/// Reads each of `named`; `read` gets its name, and returns whether that option exists.
pub(crate) fn each<'py>(
    op: &'static str,
    named: Option<&Bound<'py, PyDict>>,
    mut read: impl FnMut(&str, Keyword<'_, 'py>) -> PyResult<bool>,
) -> PyResult<()> {
    interpreter::park_at_the_end();
    for (name, value) in named.into_iter().flatten() {
        let name = name.cast::<PyString>()?.to_str()?;
        if !read(name, Keyword { op, name, value: value.as_borrowed() })? {
            return Err(PyTypeError::new_err(format!("{op}: there is no option {name:?}")));
        }
    }
    Ok(())
}

/// A path: text, bytes, or an object that has one.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl FromPyObject<'_, '_> for FilePath {
    type Error = PyErr;

    fn extract(path: Borrowed<'_, '_, PyAny>) -> PyResult<FilePath> {
        static FSDECODE: Import = Import::new("os", "fsdecode");
        FSDECODE.call(path.py(), (path,))?.extract().map(FilePath)
    }
}

impl Keyword<'_, '_> {
    /// A number in that range.
    pub(crate) fn number<T: TryFrom<i64>>(&self, range: RangeInclusive<i64>) -> PyResult<T> {
        number(self.op, self.name, self.value, range)
    }

    pub(crate) fn yes_or_no(&self) -> PyResult<bool> {
        self.value.extract().map_err(|_| self.wrong("True or False"))
    }

    /// Seconds, up to `most`.
    pub(crate) fn seconds(&self, most: f64) -> PyResult<Duration> {
        let seconds: f64 = self.value.extract().map_err(|_| self.wrong("a number of seconds"))?;
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= most);
        let what = || match most.is_finite() {
            true => format!("{} must be a number of seconds from 0 to {most}, not {seconds}", self.name),
            false => format!("{} must be a number of seconds, 0 or more, not {seconds}", self.name),
        };
        time.ok_or_else(|| invalid(self.value.py(), self.op, &what()))
    }

    /// The value, unless it is None.
    pub(crate) fn unless_none(self) -> Option<Self> {
        (!self.is_none()).then_some(self)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.value.is_none()
    }

    pub(crate) fn extract<'b, T: FromPyObject<'b, 'b>>(&'b self) -> PyResult<T>
    where
        PyErr: From<T::Error>,
    {
        Ok(self.value.extract()?)
    }

    fn wrong(&self, what: &str) -> PyErr {
        let kind = self.value.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
        PyTypeError::new_err(format!("{}: {} must be {what}, not {kind}", self.op, self.name))
    }
}

/// A number that has a name and a range.
pub(crate) fn number<T: TryFrom<i64>>(
    op: &'static str,
    name: &str,
    value: Borrowed<'_, '_, PyAny>,
    range: RangeInclusive<i64>,
) -> PyResult<T> {
    let py = value.py();
    let found = match value.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
        Err(_) => return Err(Keyword { op, name, value }.wrong("a whole number")),
        Ok(number) => {
            Some(number).filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok())
        }
    };
    let (least, most) = range.into_inner();
    let what = || match most {
        i64::MAX => format!("{name} must be a whole number, {least} or more, not {}", *value),
        _ => format!("{name} must be from {least} to {most}, not {}", *value),
    };
    found.ok_or_else(|| invalid(py, op, &what()))
}

/// The 32 bits beside a payload.
pub(crate) struct Flags(pub(crate) u32);

impl FromPyObject<'_, '_> for Flags {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Flags> {
        number("reqrep", "flags", value, 0..=u32::MAX.into()).map(Flags)
    }
}

/// How often a request may go to another server.
#[derive(Clone, Copy)]
pub(crate) struct Redeliveries(pub(crate) u8);

impl FromPyObject<'_, '_> for Redeliveries {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Redeliveries> {
        number("reqrep client", "redeliveries", value, 0..=MAX_REDELIVERIES.into()).map(Redeliveries)
    }
}

/// How many calls may be in progress; 0 for any number.
#[derive(Clone, Copy)]
pub(crate) struct InFlight(pub(crate) u32);

impl FromPyObject<'_, '_> for InFlight {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<InFlight> {
        number("reqrep client", "max_in_flight", value, 0..=u32::MAX.into()).map(InFlight)
    }
}

/// Bytes of the longest message.
#[derive(Clone, Copy)]
pub(crate) struct MaxMessage(pub(crate) usize);

impl MaxMessage {
    pub(crate) const DEFAULT: MaxMessage = MaxMessage(defaults::MAX_MESSAGE);
}

impl FromPyObject<'_, '_> for MaxMessage {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<MaxMessage> {
        number("reqrep", "max_message", value, 0..=i64::MAX).map(MaxMessage)
    }
}

/// How long a client may keep a server waiting in the middle of a call.
#[derive(Clone, Copy)]
pub(crate) struct PartTimeout(pub(crate) Duration);

impl PartTimeout {
    pub(crate) const DEFAULT: PartTimeout = PartTimeout(defaults::PART_TIMEOUT);
}

impl FromPyObject<'_, '_> for PartTimeout {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<PartTimeout> {
        Keyword { op: "reqrep server", name: "part_timeout", value }.seconds(f64::INFINITY).map(PartTimeout)
    }
}
