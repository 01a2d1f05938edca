//! How ends are made: keyword arguments to the core's options.

use std::ops::RangeInclusive;
use std::path::{PathBuf, absolute};
use std::time::Duration;

use pipework::atomic::{self, Options};
use pipework::defaults;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt};

use crate::buffer::Bytes;
use crate::imports::Import;
use crate::keywords;

/// How to compress: a level from -131072 (fastest) to 22 (smallest), and a dictionary: raw bytes
/// that resemble the messages.
///
/// Both ends must agree on whether to compress, and on the dictionary. With `accept_unchecked`, a
/// reader that has a dictionary also takes frames without a checksum, which Atomic::Pipe writes; a
/// wrong dictionary may then give wrong bytes.
///
/// >>> import pipework.atomic
/// >>> pipework.atomic.Zstd(level=1, dictionary=b"like this").level
/// 1
#[pyclass(frozen, eq, from_py_object, module = "pipework.atomic")]
#[derive(Clone, PartialEq)]
pub(crate) struct Zstd(pub(super) atomic::Zstd);

#[pymethods]
impl Zstd {
    #[new]
    #[pyo3(signature = (level=Level(defaults::ZSTD_LEVEL), *, dictionary=None, accept_unchecked=false), text_signature = "(level=3, *, dictionary=None, accept_unchecked=False)")]
    fn new(level: Level, dictionary: Option<Bytes<'_, '_>>, accept_unchecked: bool) -> Zstd {
        let zstd = atomic::Zstd::new().with_level(level.0).accept_unchecked(accept_unchecked);
        Zstd(match dictionary {
            Some(dictionary) => zstd.with_dictionary(&*dictionary),
            None => zstd,
        })
    }

    /// The level that this was given.
    #[getter]
    fn level(&self) -> i32 {
        self.0.level()
    }

    /// The dictionary that this was given.
    #[getter]
    fn dictionary<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.dictionary().map(|dictionary| PyBytes::new(py, dictionary))
    }

    /// Whether a reader also takes frames without a checksum.
    #[getter]
    fn accept_unchecked(&self) -> bool {
        self.0.accepts_unchecked()
    }

    /// The arguments from which pickle makes an equal one.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((i32,), Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("dictionary", self.dictionary(py))?;
        options.set_item("accept_unchecked", self.accept_unchecked())?;
        Ok(((self.level(),), options))
    }

    fn __repr__(&self) -> String {
        let dictionary =
            self.0.dictionary().map_or(String::from("None"), |bytes| format!("<{} bytes>", bytes.len()));
        format!("Zstd(level={}, dictionary={dictionary})", self.level())
    }
}

struct Level(i32);

impl FromPyObject<'_, '_> for Level {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Level> {
        keywords::number("atomic zstd", "level", value, LEVELS).map(Level)
    }
}

/// A `Zstd`, its level alone, or None.
pub(super) struct Compression(pub(super) Option<atomic::Zstd>);

impl FromPyObject<'_, '_> for Compression {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Compression> {
        if object.is_none() {
            return Ok(Compression(None));
        }
        if let Ok(zstd) = object.cast::<Zstd>() {
            return Ok(Compression(Some(zstd.get().0.clone())));
        }
        if !object.is_instance_of::<PyInt>() {
            return Err(PyTypeError::new_err("zstd must be a Zstd, a level, or None"));
        }
        let level = keywords::number("atomic", "zstd", object, LEVELS)?;
        Ok(Compression(Some(atomic::Zstd::new().with_level(level))))
    }
}

/// The options as `inspect.signature` shows them.
macro_rules! options_text {
    () => {
        "mixed=False, bursts=True, strict=False, zstd=None, keep_compressed=False, \
         max_message=268435456, max_unfinished=None, read_size=65536, frame_timeout=5.0, \
         max_pending=1048576, or_print=False, spin=2e-05"
    };
}
pub(super) use options_text;

/// The options that `named` holds; each must be one of those that the caller takes.
pub(super) fn options(named: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    keywords::each("atomic", named, |name, value| {
        let now = options.clone();
        options = match name {
            "mixed" => now.mixed(value.yes_or_no()?),
            "bursts" => now.bursts(value.yes_or_no()?),
            "strict" => now.strict(value.yes_or_no()?),
            "zstd" => match value.extract::<Compression>()?.0 {
                Some(zstd) => now.zstd(zstd),
                None => now,
            },
            "keep_compressed" => now.keep_compressed(value.yes_or_no()?),
            "max_message" => now.max_message(value.number(0..=i64::MAX)?),
            "max_unfinished" => match value.unless_none() {
                Some(value) => now.max_unfinished(value.number(0..=i64::MAX)?),
                None => now,
            },
            "read_size" => now.read_size(value.number(READ_SIZE)?),
            "frame_timeout" => now.frame_timeout(match value.unless_none() {
                Some(value) => value.seconds(f64::INFINITY)?,
                None => Duration::MAX,
            }),
            "max_pending" => now.max_pending(value.number(0..=i64::MAX)?),
            "or_print" => now.or_print(value.yes_or_no()?),
            "spin" => now.spin(value.seconds(LONGEST_SPIN)?),
            _ => return Ok(false),
        };
        Ok(true)
    })?;
    Ok(options)
}

/// Bytes that one read may ask for.
pub(super) const READ_SIZE: RangeInclusive<i64> = 1..=atomic::MAX_READ_SIZE as i64;

/// Seconds for which an end may look again before it sleeps.
const LONGEST_SPIN: f64 = 0.001;

/// Levels of zstd.
const LEVELS: RangeInclusive<i64> = -131_072..=22;

/// Where an end comes from, and its settings since: enough to make an equal one in another process.
pub(super) struct Origin {
    options: Py<PyDict>,
    /// The FIFO that a reader opens again.
    path: Option<PathBuf>,
    listens: bool,
    /// Whether the descriptor goes with the end.
    is_own: bool,
}

impl Origin {
    pub(super) fn of(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Origin> {
        let options = options.map_or_else(|| Ok(PyDict::new(py)), Bound::copy)?;
        Ok(Origin { options: options.unbind(), path: None, listens: false, is_own: true })
    }

    pub(super) fn at(self, path: PathBuf, listens: bool) -> Origin {
        // One that cannot be made absolute is for the other process to refuse.
        Origin { path: Some(absolute(&path).unwrap_or(path)), listens, ..self }
    }

    /// The same for an end whose descriptor belongs to the caller, or to the process.
    pub(super) fn of_others(self) -> Origin {
        Origin { is_own: false, ..self }
    }

    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether the path was opened, and not a descriptor given.
    pub(super) fn is_of_path(&self) -> bool {
        self.path.is_some()
    }

    /// The options of an equal end.
    pub(super) fn options(&self, py: Python<'_>) -> PyResult<Options> {
        options(Some(self.options.bind(py)))
    }

    /// The same for a clone.
    pub(super) fn copy(&self, py: Python<'_>) -> PyResult<Origin> {
        let options = self.options.bind(py).copy()?.unbind();
        Ok(Origin { options, path: self.path.clone(), listens: self.listens, is_own: true })
    }

    /// Writes down that an option was changed.
    pub(super) fn set<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        self.options.bind(py).set_item(name, value)
    }

    /// How pickle brings the end to another process.
    pub(super) fn reduce(&self, py: Python<'_>, kind: Py<PyAny>, fd: i32) -> PyResult<Py<PyAny>> {
        static REDUCE: Import = Import::new("pipework.atomic", "_reduce");
        REDUCE.make(py, (kind, fd, self.path.clone(), self.listens, self.options.bind(py).copy()?))
    }
}
