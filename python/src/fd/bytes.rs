//! All of the bytes that were asked for, in and out.

use pipework::fd;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::progress::progress;
use super::raw::borrow;
use crate::buffer::Bytes;
use crate::wait::{Timeout, until};

/// Reads `count` bytes, and fewer only at the end of file.
///
/// The exceptions, `TimedOut` among them, have an attribute `data`: the bytes read before the failure.
#[pyfunction]
#[pyo3(signature = (fd, count, *, timeout=None))]
pub(super) fn read_full(
    py: Python<'_>,
    fd: i32,
    count: usize,
    timeout: Option<Timeout>,
) -> PyResult<Py<PyBytes>> {
    let (fd, mut buffer, mut len) = (borrow(py, fd)?, zeros(count)?, 0);
    let deadline = until(timeout);
    let done = progress(py, &mut len, |done| {
        fd::read_full(fd, &mut buffer[done as usize..], deadline).map(|len| len as u64)
    });
    with_data(py, done, &buffer[..len as usize])
}

/// As `read_full`, from `offset` on. The position of the descriptor does not change.
#[pyfunction]
pub(super) fn pread_full(py: Python<'_>, fd: i32, count: usize, offset: u64) -> PyResult<Py<PyBytes>> {
    let (fd, mut buffer, mut len) = (borrow(py, fd)?, zeros(count)?, 0);
    let done = progress(py, &mut len, |done| {
        fd::pread_full(fd, &mut buffer[done as usize..], offset + done).map(|len| len as u64)
    });
    with_data(py, done, &buffer[..len as usize])
}

/// Writes all of `data`.
///
/// Raises `Closed` (a `BrokenPipeError`) if the other end has no reader, `TimedOut` and others; the
/// exception's `done` is the number of bytes written.
#[pyfunction]
#[pyo3(signature = (fd, data, *, timeout=None))]
pub(super) fn write_all(
    py: Python<'_>,
    fd: i32,
    data: Bytes<'_, '_>,
    timeout: Option<Timeout>,
) -> PyResult<()> {
    let (fd, data, deadline): (_, &[u8], _) = (borrow(py, fd)?, &data, until(timeout));
    let all = |done: u64| {
        let rest = &data[done as usize..];
        fd::write_all(fd, rest, deadline).map(|()| rest.len() as u64)
    };
    progress(py, &mut 0, all).map(drop)
}

/// As `write_all`, from `offset` on. The position of the descriptor does not change.
#[pyfunction]
pub(super) fn pwrite_all(py: Python<'_>, fd: i32, data: Bytes<'_, '_>, offset: u64) -> PyResult<()> {
    let (fd, data): (_, &[u8]) = (borrow(py, fd)?, &data);
    let all = |done: u64| {
        let rest = &data[done as usize..];
        fd::pwrite_all(fd, rest, offset + done).map(|()| rest.len() as u64)
    };
    progress(py, &mut 0, all).map(drop)
}

/// Everything from the current position to the end of file.
///
/// Raises `TooLong` beyond `max_bytes`, `TimedOut` and others; the bytes read by then are in the
/// exception's `data`.
#[pyfunction]
#[pyo3(signature = (fd, *, max_bytes=None, timeout=None))]
pub(super) fn slurp(
    py: Python<'_>,
    fd: i32,
    max_bytes: Option<usize>,
    timeout: Option<Timeout>,
) -> PyResult<Py<PyBytes>> {
    let (fd, max_bytes, mut data) = (borrow(py, fd)?, max_bytes.unwrap_or(usize::MAX), Vec::new());
    let deadline = until(timeout);
    let done = progress(py, &mut 0, |done| {
        fd::slurp(fd, &mut data, max_bytes - done as usize, deadline).map(|len| len as u64)
    });
    with_data(py, done, &data)
}

/// Memory for `n` bytes, and none of them in it.
pub(super) fn space_for(n: usize) -> PyResult<Vec<u8>> {
    let mut space = Vec::new();
    space.try_reserve_exact(n).map_err(|_| PyMemoryError::new_err(()))?;
    Ok(space)
}

pub(super) fn zeros(n: usize) -> PyResult<Vec<u8>> {
    let mut zeros = space_for(n)?;
    zeros.resize(n, 0);
    Ok(zeros)
}

/// The bytes that were read, or the exception that ended the read, with those bytes.
fn with_data(py: Python<'_>, done: PyResult<u64>, data: &[u8]) -> PyResult<Py<PyBytes>> {
    let data = PyBytes::new(py, data);
    match done {
        Ok(_) => Ok(data.unbind()),
        Err(raised) => {
            // An exception that takes no attributes is worth more than the attribute.
            let _ = raised.value(py).setattr("data", data);
            Err(raised)
        }
    }
}
