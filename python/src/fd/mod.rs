//! `pipework.fd`: raw descriptors as plain integers. `pipework/fd.py` takes the functions that
//! Python has already from Python's own modules.

mod raw;
mod progress;
mod address;
mod accept;
mod bytes;
mod copy;
mod datagrams;
mod names;
mod poll;
mod sockets;

use pyo3::prelude::*;

pub(crate) use progress::add_up;
pub(crate) use raw::{FileId, borrow, take_over};

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    sockets::add_to(module)?;
    module.add_class::<accept::ReserveCore>()?;
    module.add_class::<datagrams::InboxCore>()?;
    module.add_function(wrap_pyfunction!(accept::accept_connections, module)?)?;
    module.add_function(wrap_pyfunction!(datagrams::send_many, module)?)?;
    module.add_function(wrap_pyfunction!(raw::close_range, module)?)?;
    module.add_function(wrap_pyfunction!(copy::copy_all, module)?)?;
    module.add_function(wrap_pyfunction!(copy::splice_all, module)?)?;
    module.add_function(wrap_pyfunction!(copy::sendfile_all, module)?)?;
    module.add_function(wrap_pyfunction!(bytes::read_full, module)?)?;
    module.add_function(wrap_pyfunction!(bytes::write_all, module)?)?;
    module.add_function(wrap_pyfunction!(bytes::pread_full, module)?)?;
    module.add_function(wrap_pyfunction!(bytes::pwrite_all, module)?)?;
    module.add_function(wrap_pyfunction!(bytes::slurp, module)?)?;
    module.add_function(wrap_pyfunction!(names::mkstemp, module)?)?;
    module.add_function(wrap_pyfunction!(names::mktemp, module)?)?;
    module.add_function(wrap_pyfunction!(poll::poll, module)?)
}
