//! Files under unused names.

use std::ffi::OsString;
use std::os::fd::IntoRawFd;

use pipework::fd;
use pyo3::prelude::*;

use super::raw::borrow;
use crate::error::OrRaise;
use crate::keywords::FilePath;

/// Creates a file under a new name: every X at the end of `template` becomes a random letter or
/// digit. Returns its descriptor and path.
///
/// It is open for reading and writing, and of mode 0600. A relative `template` starts from the
/// folder `dir_fd`, or the current one. Raises `Invalid` if `template` does not end with six X at
/// least.
#[pyfunction]
#[pyo3(signature = (template, *, dir_fd=None))]
pub(super) fn mkstemp(py: Python<'_>, template: FilePath, dir_fd: Option<i32>) -> PyResult<(i32, OsString)> {
    let folder = dir_fd.map_or(Ok(fd::CWD), |number| borrow(py, number))?;
    let (made, path) = fd::mkstemp_at(folder, template.0.as_os_str()).or_raise_at(py, &template.0)?;
    Ok((made.into_raw_fd(), path))
}

/// A path that nothing has, as `mkstemp` would choose it. Nothing is created, so another process may
/// take it meanwhile.
#[pyfunction]
#[pyo3(signature = (template, *, dir_fd=None))]
pub(super) fn mktemp(py: Python<'_>, template: FilePath, dir_fd: Option<i32>) -> PyResult<OsString> {
    let folder = dir_fd.map_or(Ok(fd::CWD), |number| borrow(py, number))?;
    fd::mktemp_at(folder, template.0.as_os_str()).or_raise_at(py, &template.0)
}
