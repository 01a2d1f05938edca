//! From one descriptor to another.

use pipework::fd;
use pyo3::prelude::*;

use super::progress::progress;
use super::raw::borrow;
use crate::wait::{Timeout, until};

/// Copies `count` bytes, or everything up to the end of file, from `src` to `dst` by the fastest way
/// that the kernel has for the two. Returns how many.
///
/// Every byte that has left `src` has arrived, terminals and devices excepted. The exceptions,
/// `TimedOut` among them, have an attribute `done`: the number of bytes that have arrived. The same
/// call copies the rest.
#[pyfunction]
#[pyo3(signature = (src, dst, *, count=None, timeout=None))]
pub(super) fn copy_all(
    py: Python<'_>,
    src: i32,
    dst: i32,
    count: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (src, dst, count) = (borrow(py, src)?, borrow(py, dst)?, count.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::copy_all(src, dst, count - done, deadline))
}

/// As `copy_all`, through the kernel's `splice` alone. One side must be a pipe.
#[pyfunction]
#[pyo3(signature = (src, dst, *, count=None, timeout=None))]
pub(super) fn splice_all(
    py: Python<'_>,
    src: i32,
    dst: i32,
    count: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (src, dst, count) = (borrow(py, src)?, borrow(py, dst)?, count.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::splice_all(src, dst, count - done, deadline))
}

/// Sends `count` bytes of the file `src` from `offset` on, or everything up to the end of file, to
/// the socket `dst`. Returns how many.
///
/// The position of `src` does not change. Raises as `copy_all`.
#[pyfunction]
#[pyo3(signature = (src, dst, *, offset=0, count=None, timeout=None))]
pub(super) fn sendfile_all(
    py: Python<'_>,
    src: i32,
    dst: i32,
    offset: u64,
    count: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (src, dst, count) = (borrow(py, src)?, borrow(py, dst)?, count.unwrap_or(u64::MAX));
    let deadline = until(timeout);
    progress(py, &mut 0, |done| fd::sendfile_all(dst, src, offset + done, count - done, deadline))
}
