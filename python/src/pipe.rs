//! `pipework.pipe`: the base of the `io` classes in `pipework/pipe.py`.
//!
//! Bytes are copied directly between the ring and Python's objects, under the interpreter lock.
//! Only waits, and writes that are larger than the free space, give the lock away. The exception
//! that one end closes with is raised at the other as the same object.

use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Context;

use pipework::pipe::{self, AsyncReader, AsyncWriter};
use pipework::{Deadline, Error, ErrorKind};
use pyo3::exceptions::PyBaseException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTraceback};

use crate::buffer::{Bytes, SMALL, Space, bytes, unless_small};
use crate::error::{OrRaise, Raise, of_kind};
use crate::fd::{add_up, borrow};
use crate::handle::{Handle, InChild, drop_detached};
use crate::task::Inbox;
use crate::wait::{Timeout, until};

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PipeReader>()?;
    module.add_class::<PipeWriter>()?;
    module.add("PIPE_CAPACITY", pipe::CAPACITY)?;
    module.add_function(wrap_pyfunction!(byte_pipe, module)?)
}

/// The two ends of a new pipe that holds up to `capacity` bytes.
#[pyfunction]
fn byte_pipe(py: Python<'_>, capacity: usize) -> PyResult<(PipeReader, PipeWriter)> {
    let (reader, writer) = pipe::pipe(capacity).or_raise(py)?;
    let (to_reader, to_writer) = (SharedFailure::default(), SharedFailure::default());
    let (of_reader, of_writer) = (Arc::downgrade(&to_reader), Arc::downgrade(&to_writer));
    let reader = PipeReader {
        handle: Handle::new("reader", reader.into_async(), InChild::Copied),
        failure: to_reader,
        peer: of_writer,
    };
    let writer = PipeWriter {
        handle: Handle::new("writer", writer.into_async(), InChild::Copied),
        failure: to_writer,
        peer: of_reader,
    };
    Ok((reader, writer))
}

const RECV: &str = "pipe recv";
const SEND: &str = "pipe send";

/// The reading end, as far as it is not Python's `io`.
#[pyclass(frozen, module = "pipework._core")]
struct PipeReader {
    handle: Handle<AsyncReader>,
    failure: SharedFailure,
    peer: Peer,
}

impl PipeReader {
    /// Waits for data or the end of the stream, and hands it out as `take` likes; that returns how
    /// much it has used.
    fn take<T>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        mut take: impl FnMut(&[u8], &[u8]) -> (T, usize),
    ) -> PyResult<T> {
        self.handle.wait(py, deadline, RECV, |end| {
            let reader = end.get_mut();
            if reader.is_empty() {
                py.detach(|| reader.peek(1, deadline).map(drop))
                    .map_err(|error| Ended::of(py, Peeked(error), &self.failure))?;
            }
            take_now(py, reader, &self.failure, &mut take)
        })
    }
}

fn take_now<T>(
    py: Python<'_>,
    reader: &mut pipe::Reader,
    failure: &SharedFailure,
    take: impl FnOnce(&[u8], &[u8]) -> (T, usize),
) -> Result<T, Ended<Peeked>> {
    // So many are there already, so this does not wait.
    let done = reader.peek(reader.len(), Deadline::NEVER).map(|(now, later)| take(now, later));
    let (taken, len) = done.map_err(|error| Ended::of(py, Peeked(error), failure))?;
    reader.consume(len).expect("no more was used than was lent");
    Ok(taken)
}
#[pymethods]
impl PipeReader {
    /// Waits for the first byte and returns the bytes that are there, up to `count`; b"" at the end of
    /// the stream.
    #[pyo3(signature = (count, timeout=None))]
    fn recv(&self, py: Python<'_>, count: usize, timeout: Option<Timeout>) -> PyResult<Py<PyBytes>> {
        if count == 0 {
            return Ok(PyBytes::new(py, b"").unbind());
        }
        self.take(py, until(timeout), |now, later| to_bytes(py, now, later, count))?
    }

    /// The bytes that are there now, up to `count`; None if the pipe is empty.
    fn try_recv(&self, py: Python<'_>, count: usize) -> PyResult<Option<Py<PyBytes>>> {
        let taken = self.handle.try_with(py, RECV, |end| {
            let reader = end.get_mut();
            // First looks for the end, then for bytes: no bytes come after the end.
            let over = reader.is_closed();
            take_now(py, reader, &self.failure, |now, later| {
                let nothing = count > 0 && now.is_empty() && !over;
                if nothing { (Ok(None), 0) } else { to_bytes_or_none(to_bytes(py, now, later, count)) }
            })
        })?;
        taken.unwrap_or(Ok(Ok(None))).or_raise(py)?
    }

    /// As `recv`, into a buffer of the caller's. Returns the number of bytes; 0 at the end of the
    /// stream.
    #[pyo3(signature = (buffer, timeout=None))]
    fn recv_into(&self, py: Python<'_>, mut buffer: Space<'_>, timeout: Option<Timeout>) -> PyResult<usize> {
        if buffer.len() == 0 {
            return Ok(0);
        }
        self.take(py, until(timeout), |now, later| {
            let (now, later) = within(now, later, buffer.len());
            buffer.fill(0, now);
            buffer.fill(now.len(), later);
            (now.len() + later.len(), now.len() + later.len())
        })
    }

    /// Whether something can be received now. If not, `inbox` gets `number` as soon as that may
    /// have changed.
    fn poll(&self, py: Python<'_>, inbox: &Inbox, number: u64) -> PyResult<bool> {
        self.handle.with(py, RECV, |end| {
            pin!(end.peek(1)).poll(&mut Context::from_waker(&inbox.waker(number))).is_ready()
        })
    }

    /// Copies `count` bytes, or everything up to the end of the stream, to a descriptor. Returns how
    /// many.
    #[pyo3(signature = (fd, count=None, timeout=None))]
    fn copy_to_fd(
        &self,
        py: Python<'_>,
        fd: i32,
        count: Option<u64>,
        timeout: Option<Timeout>,
    ) -> PyResult<u64> {
        let (fd, count, mut total) = (borrow(py, fd)?, count.unwrap_or(u64::MAX), 0);
        let deadline = until(timeout);
        self.handle.wait(py, deadline, "pipe copy to descriptor", |end| {
            let reader = end.get_mut();
            let done = py.detach(|| reader.copy_to_fd(fd, count - total, deadline));
            add_up(&mut total, done).map_err(|error| Ended::of(py, error, &self.failure))
        })
    }

    /// Closes this end: the writer's calls fail from now on.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py, drop_detached);
    }

    /// Closes this end with an exception, which the writer's calls raise.
    fn close_with_error(&self, py: Python<'_>, error: Bound<'_, PyBaseException>) {
        let peer = Peer::clone(&self.peer);
        let raised = Raised::of(error);
        self.handle.close(py, move |_, end| end.into_blocking().close_with_error(tell(&peer, raised)));
    }

    /// Whether the writer is closed. There may be bytes left.
    #[getter]
    fn peer_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "pipe closed", |end| end.get_ref().is_closed())
    }

    /// Bytes that can be taken now.
    #[getter]
    fn buffered(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pipe buffered", |end| end.get_ref().len())
    }

    /// Bytes that the pipe holds at most.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pipe capacity", |end| end.get_ref().capacity())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(raised) = self.failure.get() else { return Ok(()) };
        visit.call(&raised.error)?;
        visit.call(&raised.traceback)
    }
}

/// The writing end, as far as it is not Python's `io`.
#[pyclass(frozen, module = "pipework._core")]
struct PipeWriter {
    handle: Handle<AsyncWriter>,
    failure: SharedFailure,
    peer: Peer,
}

#[pymethods]
impl PipeWriter {
    /// Waits until all of `data` is in the pipe. Returns its length. The exception's `done` says how
    /// many bytes are in the pipe.
    #[pyo3(signature = (data, timeout=None))]
    fn send(&self, py: Python<'_>, data: Bytes<'_, '_>, timeout: Option<Timeout>) -> PyResult<usize> {
        let (data, deadline): (&[u8], _) = (&data, until(timeout));
        let mut total = 0;
        self.handle.wait(py, deadline, SEND, |end| {
            let writer = end.get_mut();
            let rest = &data[total as usize..];
            let space = writer.capacity() - writer.len();
            let done = match rest.len() <= space.min(SMALL) {
                true => writer.send_all(rest, deadline),
                false => py.detach(|| writer.send_all(rest, deadline)),
            };
            let done = add_up(&mut total, done.map(|()| rest.len() as u64));
            done.map(|total| total as usize).map_err(|error| Ended::of(py, error, &self.failure))
        })
    }

    /// Puts the bytes of `data` from `start` on into the free space. Returns their number; None if
    /// the pipe is full.
    #[pyo3(signature = (data, start=0))]
    fn try_send(&self, py: Python<'_>, data: Bytes<'_, '_>, start: usize) -> PyResult<Option<usize>> {
        let rest = data.get(start..).unwrap_or_default();
        let sent = self.handle.try_with(py, SEND, |end| {
            let writer = end.get_mut();
            let sent = unless_small(py, (writer.capacity() - writer.len()).min(rest.len()), || {
                writer.try_send(rest)
            });
            sent.map_err(|error| Ended::of(py, error, &self.failure))
        })?;
        sent.unwrap_or(Ok(None)).or_raise(py)
    }

    /// Whether something can be sent now. If not, `inbox` gets `number` as soon as that may have
    /// changed.
    fn poll(&self, py: Python<'_>, inbox: &Inbox, number: u64) -> PyResult<bool> {
        self.handle.with(py, SEND, |end| {
            pin!(end.reserve(1)).poll(&mut Context::from_waker(&inbox.waker(number))).is_ready()
        })
    }

    /// Copies `count` bytes, or everything up to the end of file, from a descriptor. Returns how many.
    #[pyo3(signature = (fd, count=None, timeout=None))]
    fn copy_from_fd(
        &self,
        py: Python<'_>,
        fd: i32,
        count: Option<u64>,
        timeout: Option<Timeout>,
    ) -> PyResult<u64> {
        let (fd, count, mut total) = (borrow(py, fd)?, count.unwrap_or(u64::MAX), 0);
        let deadline = until(timeout);
        self.handle.wait(py, deadline, "pipe copy from descriptor", |end| {
            let writer = end.get_mut();
            let done = py.detach(|| writer.copy_from_fd(fd, count - total, deadline));
            add_up(&mut total, done).map_err(|error| Ended::of(py, error, &self.failure))
        })
    }

    /// Closes this end: the reader gets the bytes in the pipe, and then the end of the stream.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py, drop_detached);
    }

    /// Closes this end with an exception: the reader gets the bytes in the pipe, and then that
    /// exception.
    fn close_with_error(&self, py: Python<'_>, error: Bound<'_, PyBaseException>) {
        let peer = Peer::clone(&self.peer);
        let raised = Raised::of(error);
        self.handle.close(py, move |_, end| end.into_blocking().close_with_error(tell(&peer, raised)));
    }

    /// Whether the reader is closed.
    #[getter]
    fn peer_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "pipe closed", |end| end.get_ref().is_closed())
    }

    /// Bytes that wait to be read now.
    #[getter]
    fn buffered(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pipe buffered", |end| end.get_ref().len())
    }

    /// Bytes that the pipe holds at most.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pipe capacity", |end| end.get_ref().capacity())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(raised) = self.failure.get() else { return Ok(()) };
        visit.call(&raised.error)?;
        visit.call(&raised.traceback)
    }
}

/// The part of the lent bytes that fits into `n` bytes.
fn within<'a>(now: &'a [u8], later: &'a [u8], n: usize) -> (&'a [u8], &'a [u8]) {
    let now = &now[..now.len().min(n)];
    (now, &later[..later.len().min(n - now.len())])
}

/// Up to `n` of the lent bytes, and their number.
fn to_bytes(py: Python<'_>, now: &[u8], later: &[u8], n: usize) -> (PyResult<Py<PyBytes>>, usize) {
    let (now, later) = within(now, later, n);
    let bytes = bytes(py, [now, later]);
    // Without memory for them, they stay in the pipe.
    let used = if bytes.is_ok() { now.len() + later.len() } else { 0 };
    (bytes, used)
}

fn to_bytes_or_none((bytes, used): (PyResult<Py<PyBytes>>, usize)) -> (PyResult<Option<Py<PyBytes>>>, usize) {
    (bytes.map(Some), used)
}

// ---------------------------------------------------------------- how a stream ends

/// The exception that the other end was closed with, once it was. It lies with the end that raises
/// it, where Python's garbage collector sees it: its traceback may lead back to that end.
type SharedFailure = Arc<OnceLock<Raised>>;

/// The place for an end's closing exception; none once the other end is gone.
type Peer = Weak<OnceLock<Raised>>;

struct Raised {
    error: Py<PyBaseException>,
    /// The traceback of the first raise. Raising it again would add to that, time after time.
    traceback: Option<Py<PyTraceback>>,
}

impl Raised {
    fn of(error: Bound<'_, PyBaseException>) -> Raised {
        let traceback = PyErr::from_value(error.clone().into_any()).traceback(error.py()).map(Bound::unbind);
        Raised { error: error.unbind(), traceback }
    }
}

/// Hands an exception over. The core only learns that there is one.
fn tell(peer: &Peer, raised: Raised) -> io::Error {
    if let Some(failure) = peer.upgrade() {
        // An end is closed once, so this is the first.
        let _ = failure.set(raised);
    }
    io::Error::other("an exception of Python's")
}

/// The result of the look that receiving begins with: Python does not see that look.
struct Peeked(Error);

impl Raise for Peeked {
    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        of_kind(py, self.kind(), RECV, &self.kind().to_string())
    }
}

/// Why a call failed: an error of the core, or the exception that the other end was closed with.
struct Ended<E> {
    error: E,
    raised: Option<PyErr>,
}

impl<E: Raise> Ended<E> {
    fn of(py: Python<'_>, error: E, failure: &SharedFailure) -> Ended<E> {
        let raised = failure.get().filter(|_| error.kind() == ErrorKind::Failed).map(|raised| {
            let error = PyErr::from_value(raised.error.bind(py).clone().into_any());
            error.set_traceback(py, raised.traceback.as_ref().map(|traceback| traceback.bind(py).clone()));
            error
        });
        Ended { error, raised }
    }
}

impl<E: Raise> Raise for Ended<E> {
    fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        self.raised.as_ref().map_or_else(|| self.error.raise(py), |raised| raised.clone_ref(py))
    }
}
