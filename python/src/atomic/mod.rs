//! `pipework.atomic`: whole messages over one pipe.

mod item;
mod options;
mod reader;
mod writer;

use pipework::atomic;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::OrRaise;
use crate::keywords::FilePath;
use options::{Origin, options, options_text};
use reader::Reader;
use writer::Writer;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Public under shorter names: pipework/atomic.py.
    module.add("AtomicReader", module.py().get_type::<Reader>())?;
    module.add("AtomicWriter", module.py().get_type::<Writer>())?;
    module.add("Messages", module.py().get_type::<reader::Messages>())?;
    module.add_class::<options::Zstd>()?;
    module.add_function(wrap_pyfunction!(pair, module)?)?;
    module.add_function(wrap_pyfunction!(create_fifo, module)?)?;
    module.add_function(wrap_pyfunction!(max_capacity, module)?)
}

#[doc = concat!("pair(*, ", options_text!(), ")\n--\n")]
/// A new pipe: its two ends.
///
/// The keyword arguments are those of `Options`. Both descriptors are close-on-exec; a child
/// process gets one of them as its stdin or stdout, or through `pass_fds`.
///
/// >>> import pipework.atomic
/// >>> reader, writer = pipework.atomic.pair(mixed=True, zstd=3)
/// >>> writer.send(b"x" * 10_000)
/// >>> len(reader.next_item().data)
/// 10000
#[pyfunction]
#[pyo3(signature = (**options), text_signature = None)]
fn pair(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<(Reader, Writer)> {
    let (reader, writer) = self::options(options)?.pair().or_raise(py)?;
    Ok((Reader::new(reader, Origin::of(py, options)?), Writer::new(writer, Origin::of(py, options)?)))
}

/// Makes a FIFO at `path` that only this user may open (mode 0600).
///
/// Raises `FileExistsError` if something is there already.
#[pyfunction]
fn create_fifo(py: Python<'_>, path: FilePath) -> PyResult<()> {
    atomic::create_fifo(&path.0).or_raise_at(py, &path.0)
}

/// The largest capacity in bytes that an unprivileged user may give a pipe.
#[pyfunction]
fn max_capacity(py: Python<'_>) -> PyResult<usize> {
    atomic::max_capacity().or_raise(py)
}
