//! `pipework.fd`: raw descriptors as plain integers.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use pipework::Result;
use pipework::fd::raw;
use pyo3::prelude::*;

use crate::error::OrRaise;

/// Gives a descriptor of the caller's to `make`, after `check` has found nothing wrong with it: then it belongs to what is made. Otherwise it
/// stays the caller's.
pub(crate) fn take_over<T>(
    py: Python<'_>,
    number: i32,
    check: impl FnOnce(BorrowedFd<'_>) -> Result<()>,
    make: impl FnOnce(OwnedFd) -> Result<T>,
) -> PyResult<T> {
    check(borrow(py, number)?).or_raise(py)?;
    // SAFETY: it is open, and the caller has given it away.
    make(unsafe { OwnedFd::from_raw_fd(number) }).or_raise(py)
}

/// The descriptor of that number. Python code that closes it during a call has its call done on nothing, or on another file, as with the functions of `os`.
pub(crate) fn borrow(py: Python<'_>, number: i32) -> PyResult<BorrowedFd<'static>> {
    // SAFETY: what Python code does with its numbers is its own affair; no memory depends on it.
    unsafe { raw::borrow(number) }.or_raise(py)
}
