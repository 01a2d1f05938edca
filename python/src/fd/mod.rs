//! `pipework.fd`: raw descriptors as plain integers. What Python's own modules do already, `pipework/fd.py` takes from them.

mod accept;
mod address;
mod datagrams;
mod raw;
mod sockets;

use std::ffi::OsString;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use pipework::fd::{self, PollFd, PollFlags};
use pipework::{Deadline, ErrorKind, Unfinished};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

pub(crate) use raw::{borrow, take_over};

use crate::buffer::Bytes;
use crate::error::OrRaise;
use crate::wait::{Timeout, again, slice, until, wait};

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    sockets::add_to(module)?;
    module.add_class::<accept::ReserveCore>()?;
    module.add_class::<datagrams::InboxCore>()?;
    module.add_function(wrap_pyfunction!(accept::accept_connections, module)?)?;
    module.add_function(wrap_pyfunction!(datagrams::send_many, module)?)?;
    module.add_function(wrap_pyfunction!(raw::close_range, module)?)?;
    module.add_function(wrap_pyfunction!(copy_all, module)?)?;
    module.add_function(wrap_pyfunction!(splice_all, module)?)?;
    module.add_function(wrap_pyfunction!(sendfile_all, module)?)?;
    module.add_function(wrap_pyfunction!(read_full, module)?)?;
    module.add_function(wrap_pyfunction!(write_all, module)?)?;
    module.add_function(wrap_pyfunction!(pread_full, module)?)?;
    module.add_function(wrap_pyfunction!(pwrite_all, module)?)?;
    module.add_function(wrap_pyfunction!(slurp, module)?)?;
    module.add_function(wrap_pyfunction!(mkstemp, module)?)?;
    module.add_function(wrap_pyfunction!(mktemp, module)?)?;
    module.add_function(wrap_pyfunction!(poll, module)?)
}

/// Repeats what makes progress: `call` gets how much is done, and does a slice of the rest without the interpreter lock. `done` counts it, whatever ends it.
fn progress(
    py: Python<'_>,
    deadline: Deadline,
    done: &mut u64,
    mut call: impl FnMut(u64, Deadline) -> Result<u64, Unfinished> + Send,
) -> PyResult<u64> {
    wait(py, deadline, |slice| add_up(done, py.detach(|| call(*done, slice))))
}

/// Adds what one slice has done to what was done before.
pub(crate) fn add_up(total: &mut u64, done: Result<u64, Unfinished>) -> Result<u64, Unfinished> {
    *total += done.unwrap_or_else(|unfinished| unfinished.done);
    done.map(|_| *total).map_err(|unfinished| Unfinished { done: *total, ..unfinished })
}

/// Copies `len` bytes from one descriptor to another, or everything that there is, by whatever the kernel does best. Returns how many.
///
/// What has left the source has arrived, terminals and devices excepted. Raises `TimedOut` and others, whose `done` says how many have arrived:
/// the same call may be made again for the rest.
#[pyfunction]
#[pyo3(signature = (from_, to, len=None, timeout=None))]
fn copy_all(
    py: Python<'_>,
    from_: i32,
    to: i32,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (from, to, len) = (borrow(py, from_)?, borrow(py, to)?, len.unwrap_or(u64::MAX));
    progress(py, until(timeout), &mut 0, |done, slice| fd::copy_all(from, to, len - done, slice))
}

/// As `copy_all`, through the kernel's `splice` alone. One side must be a pipe.
#[pyfunction]
#[pyo3(signature = (from_, to, len=None, timeout=None))]
fn splice_all(
    py: Python<'_>,
    from_: i32,
    to: i32,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (from, to, len) = (borrow(py, from_)?, borrow(py, to)?, len.unwrap_or(u64::MAX));
    progress(py, until(timeout), &mut 0, |done, slice| fd::splice_all(from, to, len - done, slice))
}

/// Sends `len` bytes of the file `source` to `socket`, beginning at `offset`, or everything that there is. Returns how many.
///
/// The position of `source` stays where it is. Raises as `copy_all`.
#[pyfunction]
#[pyo3(signature = (socket, source, offset=0, len=None, timeout=None))]
fn sendfile_all(
    py: Python<'_>,
    socket: i32,
    source: i32,
    offset: u64,
    len: Option<u64>,
    timeout: Option<Timeout>,
) -> PyResult<u64> {
    let (to, from, len) = (borrow(py, socket)?, borrow(py, source)?, len.unwrap_or(u64::MAX));
    progress(py, until(timeout), &mut 0, |done, slice| {
        fd::sendfile_all(to, from, offset + done, len - done, slice)
    })
}

/// Reads `n` bytes, or fewer at the end of file only.
///
/// Raises `TimedOut` and others; what had been read by then is in the exception's `data`.
#[pyfunction]
#[pyo3(signature = (fd, n, timeout=None))]
fn read_full(py: Python<'_>, fd: i32, n: usize, timeout: Option<Timeout>) -> PyResult<Py<PyBytes>> {
    let (fd, mut buffer, mut len) = (borrow(py, fd)?, zeros(n)?, 0);
    let done = progress(py, until(timeout), &mut len, |done, slice| {
        fd::read_full(fd, &mut buffer[done as usize..], slice).map(|len| len as u64)
    });
    with_data(py, done, &buffer[..len as usize])
}

/// As `read_full`, from `offset` on. The descriptor's own position stays.
#[pyfunction]
fn pread_full(py: Python<'_>, fd: i32, n: usize, offset: u64) -> PyResult<Py<PyBytes>> {
    let (fd, mut buffer, mut len) = (borrow(py, fd)?, zeros(n)?, 0);
    let done = progress(py, Deadline::NEVER, &mut len, |done, _| {
        fd::pread_full(fd, &mut buffer[done as usize..], offset + done).map(|len| len as u64)
    });
    with_data(py, done, &buffer[..len as usize])
}

/// Writes all of `data`.
///
/// Raises `Closed` (a `BrokenPipeError`) where nobody reads, `TimedOut` and others; the exception's `done` says how much was written.
#[pyfunction]
#[pyo3(signature = (fd, data, timeout=None))]
fn write_all(py: Python<'_>, fd: i32, data: Bytes<'_, '_>, timeout: Option<Timeout>) -> PyResult<()> {
    let (fd, data): (_, &[u8]) = (borrow(py, fd)?, &data);
    let all = |done: u64, slice| {
        let rest = &data[done as usize..];
        fd::write_all(fd, rest, slice).map(|()| rest.len() as u64)
    };
    progress(py, until(timeout), &mut 0, all).map(drop)
}

/// As `write_all`, from `offset` on. The descriptor's own position stays.
#[pyfunction]
fn pwrite_all(py: Python<'_>, fd: i32, data: Bytes<'_, '_>, offset: u64) -> PyResult<()> {
    let (fd, data): (_, &[u8]) = (borrow(py, fd)?, &data);
    let all = |done: u64, _| {
        let rest = &data[done as usize..];
        fd::pwrite_all(fd, rest, offset + done).map(|()| rest.len() as u64)
    };
    progress(py, Deadline::NEVER, &mut 0, all).map(drop)
}

/// Everything from the current position to the end of file.
///
/// Raises `TooLong` beyond `max_bytes`, `TimedOut` and others; what had been read by then is in the exception's `data`.
#[pyfunction]
#[pyo3(signature = (fd, max_bytes=None, timeout=None))]
fn slurp(
    py: Python<'_>,
    fd: i32,
    max_bytes: Option<usize>,
    timeout: Option<Timeout>,
) -> PyResult<Py<PyBytes>> {
    let (fd, max_bytes, mut data) = (borrow(py, fd)?, max_bytes.unwrap_or(usize::MAX), Vec::new());
    let done = progress(py, until(timeout), &mut 0, |done, slice| {
        fd::slurp(fd, &mut data, max_bytes - done as usize, slice).map(|len| len as u64)
    });
    with_data(py, done, &data)
}

/// Memory for `n` bytes, and none of them in it.
fn space_for(n: usize) -> PyResult<Vec<u8>> {
    let mut space = Vec::new();
    space.try_reserve_exact(n).map_err(|_| PyMemoryError::new_err(()))?;
    Ok(space)
}

fn zeros(n: usize) -> PyResult<Vec<u8>> {
    let mut zeros = space_for(n)?;
    zeros.resize(n, 0);
    Ok(zeros)
}

/// What was read, or the exception that ended it with what was read.
fn with_data(py: Python<'_>, done: PyResult<u64>, data: &[u8]) -> PyResult<Py<PyBytes>> {
    let data = PyBytes::new(py, data);
    match done {
        Ok(_) => Ok(data.unbind()),
        Err(raised) => {
            // An exception that takes no attributes is worth more than what it would carry.
            let _ = raised.value(py).setattr("data", data);
            Err(raised)
        }
    }
}

/// Creates a file under a new name: every X at the end of `template` becomes a random letter or digit. Returns its descriptor and path.
///
/// It is open for reading and writing, and of mode 0600. A relative `template` starts from the folder `dir_fd`, or the current one. Raises
/// `Invalid` if `template` does not end with six X at least.
#[pyfunction]
#[pyo3(signature = (template, dir_fd=None))]
fn mkstemp(py: Python<'_>, template: PathBuf, dir_fd: Option<i32>) -> PyResult<(i32, OsString)> {
    let folder = dir_fd.map_or(Ok(fd::CWD), |number| borrow(py, number))?;
    let (made, path) = fd::mkstemp_at(folder, template.as_os_str()).or_raise_at(py, &template)?;
    Ok((made.into_raw_fd(), path))
}

/// A path that nothing has, as `mkstemp` would choose it. Nothing is created, so somebody else may take it meanwhile.
#[pyfunction]
#[pyo3(signature = (template, dir_fd=None))]
fn mktemp(py: Python<'_>, template: PathBuf, dir_fd: Option<i32>) -> PyResult<OsString> {
    let folder = dir_fd.map_or(Ok(fd::CWD), |number| borrow(py, number))?;
    fd::mktemp_at(folder, template.as_os_str()).or_raise_at(py, &template)
}

/// Waits until one of the descriptors is ready for what is asked of it: pairs of a descriptor and `POLLIN`, `POLLOUT` and the like.
///
/// Returns those that are ready, each with what it is ready for; none once the time is over. A descriptor that is not open is ready, with `POLLNVAL`.
#[pyfunction]
#[pyo3(signature = (fds, timeout=None))]
fn poll(py: Python<'_>, fds: Vec<(i32, u16)>, timeout: Option<Timeout>) -> PyResult<Vec<(i32, u16)>> {
    let borrowed = fds.iter().map(|(number, _)| borrow(py, *number)).collect::<PyResult<Vec<_>>>()?;
    let asked = borrowed.iter().zip(&fds);
    let mut polled: Vec<_> = asked
        .map(|(fd, (_, events))| PollFd::from_borrowed_fd(*fd, PollFlags::from_bits_retain(*events)))
        .collect();
    let deadline = until(timeout);
    let done = again(py, || {
        Ok(match py.detach(|| fd::poll(&mut polled, slice(deadline))) {
            Ok(0) if !deadline.has_passed() => None,
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            done => Some(done),
        })
    });
    done?.or_raise(py)?;
    let ready = polled.iter().zip(fds).map(|(polled, (number, _))| (number, polled.revents().bits()));
    Ok(ready.filter(|(_, revents)| *revents != 0).collect())
}
