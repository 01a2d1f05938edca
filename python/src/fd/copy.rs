//! From one descriptor to another.

use pipework::fd;
use pyo3::prelude::*;

use super::progress::progress;
use super::raw::borrow;
use crate::wait::{Timeout, until};

/// Copies `len` bytes from one descriptor to another, or everything that there is, by whatever the
/// kernel does best. Returns how many.
///
/// What has left the source has arrived, terminals and devices excepted. Raises `TimedOut` and
/// others, whose `done` says how many have arrived: the same call may be made again for the rest.
#[pyfunction]
#[pyo3(signature = (from_, to, len=None, timeout=None))]
pub(super) fn copy_all(
    py: Python<'_>,
    from_: i32,
    to: i32,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (from, to, len) = (borrow(py, from_)?, borrow(py, to)?, len.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::copy_all(from, to, len - done, deadline))
}

/// As `copy_all`, through the kernel's `splice` alone. One side must be a pipe.
#[pyfunction]
#[pyo3(signature = (from_, to, len=None, timeout=None))]
pub(super) fn splice_all(
    py: Python<'_>,
    from_: i32,
    to: i32,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (from, to, len) = (borrow(py, from_)?, borrow(py, to)?, len.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::splice_all(from, to, len - done, deadline))
}

/// Sends `len` bytes of the file `source` to `socket`, beginning at `offset`, or everything that
/// there is. Returns how many.
///
/// The position of `source` stays where it is. Raises as `copy_all`.
#[pyfunction]
#[pyo3(signature = (socket, source, offset=0, len=None, timeout=None))]
pub(super) fn sendfile_all(
    py: Python<'_>,
    socket: i32,
    source: i32,
    offset: u64,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (to, from, len) = (borrow(py, socket)?, borrow(py, source)?, len.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::sendfile_all(to, from, offset + done, len - done, deadline))
}
