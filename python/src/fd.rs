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
    // SAFETY: the lock is held, so no Python code closes it meanwhile.
    unsafe { raw::borrow(number) }.and_then(check).or_raise(py)?;
    // SAFETY: it is open, and the caller has given it away.
    make(unsafe { OwnedFd::from_raw_fd(number) }).or_raise(py)
}
