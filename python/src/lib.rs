//! `pipework._core`: the core of pipework as a Python extension.
//!
//! It converts arguments, releases the interpreter lock while something waits, and maps errors.
//! The crate `pipework` decides what everything does. Classes are found under their public names in
//! `pipework.atomic` and the other modules.
//!
//! It works without the interpreter lock too, on CPython 3.14t: what threads share lies behind
//! `locked.rs`, and no method relies on the interpreter lock for taking two steps at once.

mod interpreter;
mod imports;
mod error;
mod keywords;
mod wait;
mod buffer;
mod locked;
mod handle;
mod fd;
mod asyncio;
mod task;
mod pipe;
mod atomic;
mod reqrep;

use pyo3::prelude::*;

/// The core of pipework. Its contents are public as `pipework.atomic`, `pipework.reqrep`,
/// `pipework.pipe` and `pipework.fd`.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::refuse_others(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add_to(module)?;
    handle::watch_forks(module.py())?;
    wait::add_hook(module.py())?;
    task::add_to(module)?;
    fd::add_to(module)?;
    pipe::add_to(module)?;
    atomic::add_to(module)?;
    reqrep::add_to(module)?;
    // The public names are those of the Python modules.
    module.delattr("__all__")
}
