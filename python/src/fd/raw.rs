//! Where plain integers become descriptors. Python code owns its numbers: it may close one at any
//! time, and then a call does its work on nothing, or on another file, as the functions of `os`
//! would. No memory depends on it.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use pipework::Result;
use pipework::fd::raw;
use pyo3::prelude::*;

use crate::error::{OrRaise, invalid};
use crate::interpreter;

/// The descriptor of that number, for one call.
pub(crate) fn borrow(py: Python<'_>, number: i32) -> PyResult<BorrowedFd<'static>> {
    interpreter::park_at_the_end();
    // SAFETY: another thread that closes it meanwhile does no more harm than with any function of
    // `os`.
    unsafe { raw::borrow(number) }.or_raise(py)
}

/// Gives a descriptor of the caller's to `make`, after `check` has found nothing wrong with it:
/// then it belongs to the new object. Otherwise it stays the caller's.
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

/// A file, as its device and its number there: what tells whether a descriptor is still what it was.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct FileId(Option<(u64, u64)>);

impl FileId {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> FileId {
        FileId(rustix::fs::fstat(fd).ok().map(|facts| (facts.st_dev, facts.st_ino)))
    }

    /// Raises if the descriptor of that number is another file by now.
    pub(crate) fn check(self, py: Python<'_>, number: i32) -> PyResult<()> {
        if FileId::of(borrow(py, number)?) == self {
            return Ok(());
        }
        Err(invalid(
            py,
            "use after fork",
            &format!("descriptor {number} is not the one of this end any more"),
        ))
    }
}

/// Closes, or marks as close-on-exec, every descriptor between two numbers, both included.
///
/// `on_exec` marks them only. Raises `Invalid` if `first` is larger than `last`.
#[pyfunction]
#[pyo3(signature = (first, last, *, on_exec=false))]
pub(super) fn close_range(py: Python<'_>, first: u32, last: u32, on_exec: bool) -> PyResult<()> {
    let done = if on_exec {
        raw::close_range_on_exec(first, last)
    } else {
        // SAFETY: as `os.closerange`: the caller answers for all users of these numbers.
        unsafe { raw::close_range(first, last) }
    };
    done.or_raise(py)
}

/// Sets a socket's option to bytes.
pub(super) fn set_option_bytes(py: Python<'_>, fd: i32, level: i32, name: i32, value: &[u8]) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    // SAFETY: as `socket.setsockopt`: if the option takes addresses, the caller answers for the
    // memory there.
    unsafe { raw::set_option_bytes(fd, level, name, value) }.or_raise(py)
}
