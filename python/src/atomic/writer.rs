//! The writing end. Mirrors `reader.rs`.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use pipework::Deadline;
use pipework::atomic::{self, Options};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::item;
use super::options::{Compression, Origin, Zstd, options, options_text};
use crate::asyncio;
use crate::buffer::Bytes;
use crate::error::{OrRaise, at, is_invalid};
use crate::fd::{FileId, borrow, take_over};
use crate::handle::{Handle, InChild, warn_unclosed};
use crate::interpreter;
use crate::keywords::FilePath;
use crate::wait::{Seconds, Timeout, Used, until, wait};

const SEND: &str = "atomic send";

#[doc = concat!("Writer(fd, *, closefd=True, ", options_text!(), ")\n--\n")]
/// The writing end of a pipe or FIFO.
///
/// `Writer(fd)` takes over a descriptor that is the writing end of a pipe; the keyword arguments
/// are those of `Options`. With `closefd=False` the descriptor stays the caller's: it is never
/// closed here, and neither made close-on-exec nor non-blocking; close the writer, which writes all
/// pending data, before it. Time-outs are seconds, None is for ever. Any thread may call it, one
/// call at a time; `clone()` makes a writer for another thread. It may be used on in a forked
/// child, also if a thread was sending at the fork. It may be pickled for another process: that gets
/// its descriptor, as with sockets in `multiprocessing`, and pending data stays here. Messages are
/// any bytes-like objects, of any size.
///
/// >>> import pipework.atomic
/// >>> reader, writer = pipework.atomic.pair()
/// >>> writer.send(b"hello", timeout=5.0)
/// >>> reader.recv()
/// b'hello'
#[pyclass(frozen, weakref, module = "pipework.atomic")]
pub(crate) struct Writer {
    handle: Handle<atomic::Writer>,
    origin: Arc<Origin>,
}

impl Writer {
    /// `writer` has its descriptor for itself.
    pub(super) fn new(writer: atomic::Writer, origin: Origin) -> Writer {
        Writer::make(writer, origin, |py, fd, options| {
            // Tried on a duplicate first: the descriptor is not lost where this fails.
            options.dup_writer(borrow(py, fd)?).or_raise(py)?;
            Ok(take_over(py, fd, |_| Ok(()), |fd| options.writer(fd)))
        })
    }

    /// `renew` makes another of the descriptor of that number, for a forked child.
    fn make(
        writer: atomic::Writer,
        origin: Origin,
        renew: fn(Python<'_>, RawFd, Options) -> PyResult<PyResult<atomic::Writer>>,
    ) -> Writer {
        let (origin, fd) = (Arc::new(origin), writer.as_fd().as_raw_fd());
        let (of_parent, file) = (Arc::clone(&origin), FileId::of(writer.as_fd()));
        let renewal = InChild::Renewed(Box::new(move |py| {
            file.check(py, fd)?;
            renew(py, fd, of_parent.options(py)?)
        }));
        Writer { handle: Handle::new("writer", writer, renewal), origin }
    }

    fn describe(&self, noun: &str) -> String {
        self.handle.describe(noun, |writer| format!(" of descriptor {}", writer.as_fd().as_raw_fd()))
    }

    /// Makes a call that cannot just be made again: half of a message may be in the pipe.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        op: &'static str,
        mut call: impl FnMut(&mut atomic::Writer) -> pipework::Result<T> + Send,
    ) -> PyResult<T> {
        self.handle.hold(py, deadline, op, |writer| py.detach(|| call(writer)))
    }

    /// Makes a call that does not wait; None while another thread is in the middle of one that
    /// does.
    fn try_call<T: Send>(
        &self,
        py: Python<'_>,
        op: &'static str,
        call: impl FnOnce(&mut atomic::Writer) -> pipework::Result<Option<T>> + Send,
    ) -> PyResult<Option<T>> {
        self.handle.try_with(py, op, |writer| py.detach(|| call(writer)))?.unwrap_or(Ok(None)).or_raise(py)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.handle.is_closed() && self.origin.is_own() {
            warn_unclosed(|| self.describe("writer"));
        }
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (fd, *, closefd=true, **options), text_signature = None)]
    fn open(py: Python<'_>, fd: i32, closefd: bool, options: Option<&Bound<'_, PyDict>>) -> PyResult<Writer> {
        let (origin, options) = (Origin::of(py, options)?, self::options(options)?);
        if !closefd {
            let writer = options.writer_on(borrow(py, fd)?).or_raise(py)?;
            return Ok(Writer::make(writer, origin.of_others(), |py, fd, options| {
                options.writer_on(borrow(py, fd)?).or_raise(py).map(Ok)
            }));
        }
        let writer = take_over(py, fd, |fd| options.dup_writer(fd).map(drop), |fd| options.writer(fd))?;
        Ok(Writer::new(writer, origin))
    }

    #[doc = concat!("fifo(path, *, connect_timeout=None, ", options_text!(), ")\n--\n")]
    /// Opens the FIFO at `path` as soon as it has a reader. Raises `TimedOut` if it has none after
    /// `connect_timeout` seconds.
    #[staticmethod]
    #[pyo3(signature = (path, *, connect_timeout=None, **options), text_signature = None)]
    fn fifo(
        py: Python<'_>,
        path: FilePath,
        connect_timeout: Option<Timeout>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Writer> {
        let (origin, options) = (Origin::of(py, options)?, self::options(options)?);
        let deadline = until(connect_timeout);
        let opened = wait(py, &Used::Nothing, || Ok(py.detach(|| options.write_fifo(&path.0, deadline))));
        let writer = opened.and_then(|opened| opened.or_raise(py));
        writer.map(|writer| Writer::new(writer, origin)).map_err(|raised| at(py, raised, &path.0))
    }

    #[doc = concat!("stdout(*, ", options_text!(), ")\n--\n")]
    /// Writes to this process's stdout: a pipe, a FIFO or a Unix stream socket, such as Node gives
    /// its children; anything else is refused, or printed to with `or_print`. Text that the program
    /// prints goes through `sys.stdout`'s own buffer: flush that before a message that shall come
    /// after it.
    #[staticmethod]
    #[pyo3(signature = (**options), text_signature = None)]
    fn stdout(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Writer> {
        let writer = self::options(options)?.stdout().or_raise(py)?;
        Ok(Writer::new(writer, Origin::of(py, options)?.of_others()))
    }

    /// Sends one message, after all pending data, and waits until all of it is in the pipe.
    ///
    /// After any exception the message is not delivered, and may be sent again. Raises `TimedOut`;
    /// `Closed` (a `BrokenPipeError`) if the pipe has no reader; and the exception of a signal
    /// handler. Parts that are in the pipe already reach the reader as `Torn`.
    #[pyo3(signature = (data, *, timeout=None))]
    fn send(&self, py: Python<'_>, data: Bytes<'_, '_>, timeout: Option<Timeout>) -> PyResult<()> {
        let data: &[u8] = &data;
        self.call(py, until(timeout), SEND, |writer| writer.send(data, until(timeout)).map(drop))
    }

    /// Sends one message without waiting. Bytes that the pipe has no space for are pending: the next
    /// call that writes, or `close`, writes them. Returns False, and takes nothing, if more than
    /// `max_pending` bytes would be pending.
    ///
    /// Raises `Closed` if the pipe has no reader.
    fn try_send(&self, py: Python<'_>, data: Bytes<'_, '_>) -> PyResult<bool> {
        let data: &[u8] = &data;
        Ok(self.try_call(py, SEND, |writer| writer.try_send(data))?.is_some())
    }

    /// Sends messages in their order, several small ones in one write. Returns how many were sent
    /// whole: all, or fewer if the time was over.
    ///
    /// Raises as `send`, if not one was sent.
    ///
    /// >>> import pipework.atomic
    /// >>> reader, writer = pipework.atomic.pair()
    /// >>> writer.send_many([b"many", b"small", b"ones"])
    /// 3
    #[pyo3(signature = (messages, *, timeout=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<usize> {
        let messages = interpreter::collect(messages)?;
        let messages =
            messages.iter().map(|message| message.extract()).collect::<PyResult<Vec<Bytes<'_, '_>>>>()?;
        let messages: Vec<&[u8]> = messages.iter().map(|message| &**message).collect();
        let mut sent = 0;
        self.call(py, until(timeout), "atomic send_many", |writer| {
            sent += writer.send_many(&messages[sent..], until(timeout))?;
            Ok(sent)
        })
    }

    /// As `send`, in asyncio or trio. A task that is cancelled, or whose time is over, may have
    /// sent the message, or a part that is pending: then the next call that writes, or `close`,
    /// completes it.
    #[pyo3(signature = (data, *, timeout=None))]
    fn asend<'py>(
        slf: &Bound<'py, Writer>,
        data: &Bound<'py, PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        asyncio::start(slf.py(), "send", (slf, data, timeout.map(Seconds::to_f64)))
    }

    /// As `flush`, in asyncio or trio. After it, `close` does not wait.
    #[pyo3(signature = (*, timeout=None))]
    fn aflush<'py>(slf: &Bound<'py, Writer>, timeout: Option<Seconds>) -> PyResult<Bound<'py, PyAny>> {
        asyncio::start(slf.py(), "flush", (slf, timeout.map(Seconds::to_f64)))
    }

    /// Adds one message to the pending data and writes nothing. Memory is the only limit.
    fn enqueue(&self, py: Python<'_>, data: Bytes<'_, '_>) -> PyResult<()> {
        let data: &[u8] = &data;
        let enqueue = |writer: &mut atomic::Writer| py.detach(|| writer.enqueue(data).map(drop));
        self.handle.with(py, "atomic enqueue", enqueue)?.or_raise(py)
    }

    /// Sends bytes in one write, after all pending data, without a sender's name.
    ///
    /// Raises `TooLong` if they do not fit in one write, `Invalid` if they hold the bytes 0x0E or
    /// 0x0F or begin with 0x10 (in mixed mode without compression), and as `send`.
    #[pyo3(signature = (data, *, timeout=None))]
    fn burst(&self, py: Python<'_>, data: Bytes<'_, '_>, timeout: Option<Timeout>) -> PyResult<()> {
        let data: &[u8] = &data;
        self.call(py, until(timeout), "atomic burst", |writer| writer.burst(data, until(timeout)))
    }

    /// As `burst`, without waiting. Returns False if nothing was taken.
    fn try_burst(&self, py: Python<'_>, data: Bytes<'_, '_>) -> PyResult<bool> {
        let data: &[u8] = &data;
        let burst = |writer: &mut atomic::Writer| Ok(writer.try_burst(data)?.then_some(()));
        Ok(self.try_call(py, "atomic burst", burst)?.is_some())
    }

    /// Whether `burst` can send these bytes: whether they fit in one write.
    fn fits_in_burst(&self, py: Python<'_>, data: Bytes<'_, '_>) -> PyResult<bool> {
        let data: &[u8] = &data;
        let fits = |writer: &mut atomic::Writer| py.detach(|| writer.fits_in_burst(data));
        Ok(self.handle.with(py, "atomic burst", fits)?.or_raise(py)?.is_some())
    }

    /// Bytes that were taken and are not in the pipe yet.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pending", |writer| writer.pending())
    }

    /// Writes pending messages.
    ///
    /// Raises `TimedOut`: the rest is still pending. After `Closed` it is dropped.
    #[pyo3(signature = (*, timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        self.call(py, until(timeout), "atomic flush", |writer| writer.flush(until(timeout)))
    }

    /// Writes as much as the pipe has space for. Returns whether nothing is pending any more.
    fn try_flush(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.try_call(py, "atomic flush", |writer| writer.try_flush().map(Some))?.unwrap_or(false))
    }

    /// Drops pending messages. A message that was written in part reaches the reader as `Torn`.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.with(py, "discard", |writer| writer.discard())
    }

    /// Writes all pending data, after the message that another thread is sending, and closes this
    /// end. A second call does nothing.
    ///
    /// Raises as `flush`; the end is closed all the same, and the data still pending is dropped. A
    /// signal handler that calls this during a call of this end ends that call.
    #[pyo3(signature = (*, timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        if self.handle.is_closed() {
            return Ok(());
        }
        let flushed = if self.handle.is_under_way_here() { Ok(()) } else { self.flush(py, timeout) };
        // Another thread may have closed it meanwhile, after a flush of its own.
        let flushed = flushed.or_else(|error| match self.handle.is_closed() && is_invalid(py, &error) {
            true => Ok(()),
            false => Err(error),
        });
        self.handle.close(py, |py, mut end| {
            end.discard();
            asyncio::close(py, end.as_fd().as_raw_fd(), |_| drop(end));
        });
        flushed
    }

    /// Whether this end is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Another writer of the same pipe with a key of its own, for another thread. Pending data
    /// stays here.
    fn clone(&self, py: Python<'_>) -> PyResult<Writer> {
        let writer = self.handle.with(py, "clone writer", |writer| writer.try_clone())?.or_raise(py)?;
        Ok(Writer::new(writer, self.origin.copy(py)?))
    }

    /// The pipe's descriptor: hand it to a child process as its stdout, or poll it for writing.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.handle.with(py, "fileno", |writer| writer.as_fd().as_raw_fd())
    }

    /// The name under which the next message goes out.
    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        item::key(py, self.handle.with(py, "key", |writer| writer.key())?)
    }

    /// The largest write that the kernel never splits, in bytes.
    #[getter]
    fn pipe_buf(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "pipe_buf", |writer| writer.pipe_buf())
    }

    /// The largest message, in bytes, that goes out as a single part.
    #[getter]
    fn max_part(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "max_part", |writer| writer.max_part())
    }

    /// Whether messages are printed as lines, because no reader is there to take them apart: the
    /// option `or_print`.
    #[getter]
    fn is_printing(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "is_printing", |writer| writer.is_printing())
    }

    /// Whether text may lie between the messages. Set it at the place of the stream where the
    /// reader does, with nothing pending.
    #[getter]
    fn mixed(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "mixed", |writer| writer.is_mixed())
    }

    #[setter]
    fn set_mixed(&self, py: Python<'_>, mixed: bool) -> PyResult<()> {
        self.handle.with(py, "mixed", |writer| {
            writer.set_mixed(mixed).or_raise(py)?;
            self.origin.set(py, "mixed", mixed)
        })?
    }

    /// How messages are compressed: a `Zstd` or None. Set it to a `Zstd`, a level or None; it holds
    /// for the messages that follow.
    #[getter]
    fn zstd(&self, py: Python<'_>) -> PyResult<Option<Zstd>> {
        self.handle.with(py, "zstd", |writer| writer.zstd().cloned().map(Zstd))
    }

    #[setter]
    fn set_zstd(&self, py: Python<'_>, zstd: &Bound<'_, PyAny>) -> PyResult<()> {
        let compression: Compression = zstd.extract()?;
        self.handle.with(py, "zstd", |writer| {
            writer.set_zstd(compression.0).or_raise(py)?;
            self.origin.set(py, "zstd", zstd)
        })?
    }

    /// How many bytes may be pending before `try_send` takes no more.
    #[getter]
    fn max_pending(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "max_pending", |writer| writer.max_pending())
    }

    #[setter]
    fn set_max_pending(&self, py: Python<'_>, max_pending: usize) -> PyResult<()> {
        self.handle.with(py, "max_pending", |writer| {
            writer.set_max_pending(max_pending);
            self.origin.set(py, "max_pending", max_pending)
        })?
    }

    /// Bytes that the pipe holds before a writer waits. Set it to at most `max_capacity()`: the
    /// kernel chooses a capacity that is at least as large.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "capacity", |writer| writer.capacity())?.or_raise(py)
    }

    #[setter]
    fn set_capacity(&self, py: Python<'_>, capacity: usize) -> PyResult<()> {
        self.handle.with(py, "capacity", |writer| writer.set_capacity(capacity))?.or_raise(py).map(drop)
    }

    fn __reduce__(slf: &Bound<'_, Writer>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.origin.reduce(py, slf.get_type().into_any().unbind(), this.fileno(py)?)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.describe("Writer"))
    }

    fn __enter__(slf: Py<Writer>) -> Py<Writer> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py, None)
    }
}
