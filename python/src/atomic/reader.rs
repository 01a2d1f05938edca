//! The reading end. Mirrors `writer.rs`.

use std::os::fd::{AsFd, AsRawFd};

use pipework::atomic::{self, Options};
use pipework::{Deadline, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::item;
use super::options::{Compression, Origin, READ_SIZE, Zstd, options, options_text};
use crate::asyncio;
use crate::buffer::{Space, bytes};
use crate::error::{OrRaise, Raise, invalid, of_kind};
use crate::fd::{FileId, borrow, take_over};
use crate::handle::{Handle, InChild, drop_detached, warn_unclosed};
use crate::keywords::{self, FilePath};
use crate::wait::{Seconds, Timeout, until};

const RECV: &str = "atomic recv";

#[doc = concat!("Reader(fd, *, closefd=True, ", options_text!(), ")\n--\n")]
/// The reading end of a pipe or FIFO.
///
/// `Reader(fd)` takes over a descriptor that is the reading end of a pipe; the keyword arguments
/// are those of `Options`. With `closefd=False` the descriptor stays the caller's: it is never
/// closed here, and neither made close-on-exec nor non-blocking; close the reader before it.
/// Time-outs are seconds, None is for ever. Any thread may call it, one call at a time; `clone()`
/// makes a reader for another thread.
///
/// It can be pickled for another process. That process opens the FIFO again, or else gets a copy of
/// the descriptor, and must then be the only one to read.
///
/// Iterating gives `Line`, `Burst`, `Message` and `Torn` items until the end of the pipe,
/// `messages()` only messages.
///
/// >>> import pipework.atomic
/// >>> reader, writer = pipework.atomic.pair()
/// >>> with writer:
/// ...     writer.send(b"one"); writer.send(b"two")
/// >>> list(reader.messages())
/// [b'one', b'two']
#[pyclass(frozen, weakref, module = "pipework.atomic")]
pub(crate) struct Reader {
    handle: Handle<atomic::Reader>,
    origin: Origin,
}

impl Reader {
    pub(super) fn new(reader: atomic::Reader, origin: Origin) -> Reader {
        let (fd, file, options) = (reader.as_fd().as_raw_fd(), FileId::of(reader.as_fd()), Options::new());
        // A reader of a FIFO changes its descriptor, and has more than one.
        let in_child = match origin.is_of_path() {
            true => InChild::Used,
            false => InChild::Closed(Box::new(move |py| {
                file.check(py, fd)?;
                options.dup_reader(borrow(py, fd)?).or_raise(py)?;
                Ok(take_over(py, fd, |_| Ok(()), |fd| options.reader(fd)))
            })),
        };
        Reader { handle: Handle::new("reader", reader, in_child), origin }
    }

    /// The same for a reader whose descriptor belongs to the caller.
    fn of_lent(reader: atomic::Reader, origin: Origin) -> Reader {
        Reader { handle: Handle::new("reader", reader, InChild::Used), origin: origin.of_others() }
    }

    fn describe(&self, noun: &str) -> String {
        self.handle.describe(noun, |reader| format!(" of descriptor {}", reader.as_fd().as_raw_fd()))
    }

    fn next(&self, py: Python<'_>, deadline: Deadline) -> PyResult<Py<PyAny>> {
        self.handle.wait(py, deadline, RECV, |reader| {
            py.detach(|| reader.next_item(deadline)).map(|item| item::to_python(py, item))
        })?
    }

    fn message<T>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        mut take: impl FnMut(&[u8]) -> T,
    ) -> PyResult<T> {
        self.handle.wait(py, deadline, RECV, |reader| {
            let taken = py.detach(|| reader.recv(deadline)).map(|message| take(&message));
            taken.map_err(|error| Loss::of(reader, error))
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.handle.is_closed() && self.origin.is_own() {
            warn_unclosed(|| self.describe("reader"));
        }
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (fd, *, closefd=true, **options), text_signature = None)]
    fn open(py: Python<'_>, fd: i32, closefd: bool, options: Option<&Bound<'_, PyDict>>) -> PyResult<Reader> {
        let (origin, options) = (Origin::of(py, options)?, self::options(options)?);
        if !closefd {
            let reader = options.reader_on(borrow(py, fd)?).or_raise(py)?;
            return Ok(Reader::of_lent(reader, origin));
        }
        let reader = take_over(py, fd, |fd| options.dup_reader(fd).map(drop), |fd| options.reader(fd))?;
        Ok(Reader::new(reader, origin))
    }

    #[doc = concat!("fifo(path, *, ", options_text!(), ")\n--\n")]
    /// Opens the FIFO at `path`, at once. The pipe ends when the last writer has left; before the
    /// first has come, calls wait for it.
    #[staticmethod]
    #[pyo3(signature = (path, **options), text_signature = None)]
    fn fifo(py: Python<'_>, path: FilePath, options: Option<&Bound<'_, PyDict>>) -> PyResult<Reader> {
        let reader = self::options(options)?.read_fifo(&path.0).or_raise_at(py, &path.0)?;
        Ok(Reader::new(reader, Origin::of(py, options)?.at(path.0, false)))
    }

    #[doc = concat!("listen(path, *, ", options_text!(), ")\n--\n")]
    /// As `fifo`, but the pipe never ends: when the last writer has left, calls wait for the next
    /// one.
    #[staticmethod]
    #[pyo3(signature = (path, **options), text_signature = None)]
    fn listen(py: Python<'_>, path: FilePath, options: Option<&Bound<'_, PyDict>>) -> PyResult<Reader> {
        let reader = self::options(options)?.listen_fifo(&path.0).or_raise_at(py, &path.0)?;
        Ok(Reader::new(reader, Origin::of(py, options)?.at(path.0, true)))
    }

    #[doc = concat!("stdin(*, ", options_text!(), ")\n--\n")]
    /// Reads the data piped into this process. It does not see what `sys.stdin` has buffered
    /// already.
    #[staticmethod]
    #[pyo3(signature = (**options), text_signature = None)]
    fn stdin(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Reader> {
        let reader = self::options(options)?.stdin().or_raise(py)?;
        Ok(Reader::new(reader, Origin::of(py, options)?.of_others()))
    }

    /// Waits for the next message and returns its bytes.
    ///
    /// Raises `Closed` (an `EOFError`) at the end of the pipe; `TimedOut`; and `TornMessage`,
    /// `TooLong` or `Corrupt` for a message that is lost: its `torn` attribute names the writer,
    /// and the next call goes on. `Invalid` in mixed mode: use `next_item`.
    #[pyo3(signature = (*, timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Py<PyBytes>> {
        self.message(py, until(timeout), |message| bytes(py, [message]))?
    }

    /// The next message if it is there; None if it is not. Never waits. Raises as `recv`, but for
    /// `TimedOut`.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        let taken = self.handle.try_with(py, RECV, |reader| {
            let message = py.detach(|| reader.try_recv());
            let taken = message.map(|message| message.map(|message| bytes(py, [&message])).transpose());
            taken.map_err(|error| Loss::of(reader, error))
        })?;
        taken.unwrap_or(Ok(Ok(None))).or_raise(py)?
    }

    /// Waits for the next message, puts it at the beginning of `buffer` and returns its length in
    /// bytes.
    ///
    /// Raises as `recv`, and `TooLong` for a message that does not fit; then the exception's
    /// `message` attribute has it whole.
    ///
    /// >>> import pipework.atomic
    /// >>> reader, writer = pipework.atomic.pair()
    /// >>> writer.send(b"again and again")
    /// >>> buffer = bytearray(4096)
    /// >>> reader.recv_into(buffer)
    /// 15
    #[pyo3(signature = (buffer, *, timeout=None))]
    fn recv_into(&self, py: Python<'_>, mut buffer: Space<'_>, timeout: Option<Timeout>) -> PyResult<usize> {
        let space = buffer.len();
        let len = self.message(py, until(timeout), |message| {
            if message.len() > space {
                return Err((message.len(), bytes(py, [message])));
            }
            buffer.fill(0, message);
            Ok(message.len())
        })?;
        len.or_else(|(len, message)| {
            let message = message?;
            let text = format!("the message has {len} bytes, and the buffer {space}");
            let raised = of_kind(py, ErrorKind::TooLong, "atomic recv_into", &text);
            raised.value(py).setattr("message", message)?;
            Err(raised)
        })
    }

    /// Waits for the next `Line`, `Burst`, `Message` or `Torn`.
    ///
    /// Raises `Closed` (an `EOFError`) at the end of the pipe, and `TimedOut`.
    #[pyo3(signature = (*, timeout=None))]
    fn next_item(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Py<PyAny>> {
        self.next(py, until(timeout))
    }

    /// The next item if it is there; None if it is not. Never waits. Raises as `next_item`, but for
    /// `TimedOut`.
    fn try_next_item(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let item = |reader: &mut atomic::Reader| {
            let item = py.detach(|| reader.try_next_item()).or_raise(py)?;
            item.map(|item| item::to_python(py, item)).transpose()
        };
        self.handle.try_with(py, RECV, item)?.unwrap_or(Ok(None))
    }

    /// All messages until the end of the pipe, as bytes. Raises as `recv`; after the exception for
    /// a lost message it can be gone on with.
    fn messages(slf: Py<Reader>) -> Messages {
        Messages { reader: slf }
    }

    fn __iter__(slf: Py<Reader>) -> Py<Reader> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let item = self.handle.wait(py, Deadline::NEVER, RECV, |reader| {
            unless_closed(
                py.detach(|| reader.next_item(Deadline::NEVER)).map(|item| item::to_python(py, item)),
            )
        })?;
        item.transpose()
    }

    /// As `recv`, in asyncio or trio. A task that is cancelled has taken nothing. Not for readers
    /// with clones, which may have read the message along.
    #[pyo3(signature = (*, timeout=None))]
    fn arecv<'py>(slf: &Bound<'py, Reader>, timeout: Option<Seconds>) -> PyResult<Bound<'py, PyAny>> {
        asyncio::start(slf.py(), "recv", (slf, timeout.map(Seconds::to_f64)))
    }

    /// As `next_item`, in asyncio or trio. A task that is cancelled has taken nothing. Not for
    /// readers with clones.
    #[pyo3(signature = (*, timeout=None))]
    fn anext_item<'py>(slf: &Bound<'py, Reader>, timeout: Option<Seconds>) -> PyResult<Bound<'py, PyAny>> {
        asyncio::start(slf.py(), "next_item", (slf, timeout.map(Seconds::to_f64)))
    }

    /// All items until the end of the pipe, in asyncio or trio: `async for item in reader`.
    fn __aiter__<'py>(slf: &Bound<'py, Reader>) -> PyResult<Bound<'py, PyAny>> {
        asyncio::start(slf.py(), "Items", (slf,))
    }

    /// The text of a line that has begun and not ended, as far as it was parsed; None if no line
    /// has begun. Does not read.
    fn peek(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        let text = self.handle.with(py, "atomic peek", |reader| reader.peek())?;
        Ok(text.map(|text| PyBytes::new(py, &text).unbind()))
    }

    /// In how many seconds an event loop should call again although the descriptor is not readable;
    /// None: not before it is. Ask after a `try_` method returned nothing: by then a frame that
    /// waits for its rest becomes text (`frame_timeout`), or, if this is 0, more can be read.
    fn next_timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let due = self.handle.with(py, "atomic next_timeout", |reader| reader.next_timeout())?;
        Ok(due.and_then(Deadline::remaining).map(|left| left.as_secs_f64()))
    }

    /// Waits for bytes and reads some without parsing them, to make space for writers. Returns how
    /// many; 0 at the end of the pipe.
    ///
    /// Raises `TooLong` once `max_unfinished` bytes lie unparsed, and `TimedOut`.
    #[pyo3(signature = (*, timeout=None))]
    fn read_ahead(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<usize> {
        let deadline = until(timeout);
        let call = |reader: &mut atomic::Reader| py.detach(|| reader.read_ahead(deadline));
        self.handle.wait(py, deadline, "atomic read_ahead", call)
    }

    /// Waits until it is known whether the pipe has ended: True once it has, and all is given out;
    /// False as soon as something is there, even the beginning of a message. Gives nothing out.
    ///
    /// Raises `TimedOut`; `Corrupt` or `Incompatible` where the stream makes no sense.
    ///
    /// >>> import pipework.atomic
    /// >>> reader, writer = pipework.atomic.pair()
    /// >>> with writer:
    /// ...     writer.send(b"hello")
    /// >>> reader.wait_eof(), reader.recv(), reader.wait_eof()
    /// (False, b'hello', True)
    #[pyo3(signature = (*, timeout=None))]
    fn wait_eof(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<bool> {
        let deadline = until(timeout);
        self.handle.wait(py, deadline, "atomic wait_eof", |reader| py.detach(|| reader.wait_eof(deadline)))
    }

    /// Bytes that were read and not returned yet: unparsed bytes, the text of a line that has
    /// begun, and the data of messages that are not whole.
    #[getter]
    fn buffered(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "atomic buffered", |reader| reader.buffered())
    }

    /// Whether the pipe has ended and everything was given out. Does not read: `wait_eof` does.
    #[getter]
    fn eof(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "atomic eof", |reader| reader.is_eof())
    }

    /// Whether another reader reads from the same FIFO now, opened by its path as here: both get
    /// pieces of the stream, and lose messages.
    fn has_other_reader(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "has_other_reader", |reader| reader.has_other_reader())
    }

    /// Another reader of the same pipe, for another thread. The clones share one buffer: each item
    /// goes to one of them.
    fn clone(&self, py: Python<'_>) -> PyResult<Reader> {
        let reader = self.handle.with(py, "clone reader", |reader| reader.try_clone())?.or_raise(py)?;
        Ok(Reader::new(reader, self.origin.copy(py)?))
    }

    /// Closes this end. A second time does nothing.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py, |py, end| {
            asyncio::close(py, end.as_fd().as_raw_fd(), |py| drop_detached(py, end));
        });
    }

    /// Whether this end is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// The descriptor to poll. When it is readable, call a `try_` method until that has nothing.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.handle.with(py, "fileno", |reader| reader.as_fd().as_raw_fd())
    }

    /// Bytes that one read asks for, from 1 to 16 MiB.
    #[getter]
    fn read_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "read_size", |reader| reader.read_size())
    }

    #[setter]
    fn set_read_size(&self, py: Python<'_>, read_size: &Bound<'_, PyAny>) -> PyResult<()> {
        let read_size: usize = keywords::number("atomic", "read_size", read_size.as_borrowed(), READ_SIZE)?;
        self.handle.with(py, "read_size", |reader| {
            reader.set_read_size(read_size);
            self.origin.set(py, "read_size", read_size)
        })?
    }

    /// The number of items after which reads stop, so that the bytes behind them stay in the pipe
    /// for another reader. It counts down to 1 as items come, and then each further item is read
    /// alone. Reports of lost messages do not count. 0: reads take all that is there.
    #[getter]
    fn exact(&self, py: Python<'_>) -> PyResult<u64> {
        self.handle.with(py, "exact", |reader| reader.exact())
    }

    #[setter]
    fn set_exact(&self, py: Python<'_>, items: u64) -> PyResult<()> {
        self.handle.with(py, "exact", |reader| reader.set_exact(items))
    }

    /// Whether text may lie between the messages. Set it at the place of the stream where the
    /// writers do.
    #[getter]
    fn mixed(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "mixed", |reader| reader.is_mixed())
    }

    #[setter]
    fn set_mixed(&self, py: Python<'_>, mixed: bool) -> PyResult<()> {
        self.handle.with(py, "mixed", |reader| {
            reader.set_mixed(mixed).or_raise(py)?;
            self.origin.set(py, "mixed", mixed)
        })?
    }

    /// How messages are compressed: a `Zstd` or None. Set it to a `Zstd`, a level or None; it holds
    /// for all that the reader has not given out.
    #[getter]
    fn zstd(&self, py: Python<'_>) -> PyResult<Option<Zstd>> {
        self.handle.with(py, "zstd", |reader| reader.zstd().map(Zstd))
    }

    #[setter]
    fn set_zstd(&self, py: Python<'_>, zstd: &Bound<'_, PyAny>) -> PyResult<()> {
        let compression: Compression = zstd.extract()?;
        self.handle.with(py, "zstd", |reader| {
            reader.set_zstd(compression.0).or_raise(py)?;
            self.origin.set(py, "zstd", zstd)
        })?
    }

    /// Whether messages and bursts come with the zstd frame that held them.
    #[getter]
    fn keep_compressed(&self, py: Python<'_>) -> PyResult<bool> {
        self.handle.with(py, "keep_compressed", |reader| reader.keeps_compressed())
    }

    #[setter]
    fn set_keep_compressed(&self, py: Python<'_>, keep: bool) -> PyResult<()> {
        self.handle.with(py, "keep_compressed", |reader| {
            reader.set_keep_compressed(keep);
            self.origin.set(py, "keep_compressed", keep)
        })?
    }

    /// Bytes that the pipe holds before a writer waits. Set it to at most `max_capacity()`: the
    /// kernel chooses a capacity that is at least as large.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.with(py, "capacity", |reader| reader.capacity())?.or_raise(py)
    }

    #[setter]
    fn set_capacity(&self, py: Python<'_>, capacity: usize) -> PyResult<()> {
        self.handle.with(py, "capacity", |reader| reader.set_capacity(capacity))?.or_raise(py).map(drop)
    }

    fn __reduce__(slf: &Bound<'_, Reader>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let look = |reader: &mut atomic::Reader| (reader.is_empty(), reader.as_fd().as_raw_fd());
        let (is_empty, fd) = this.handle.with(py, "pickle reader", look)?;
        if !is_empty {
            return Err(invalid(
                py,
                "pickle reader",
                "it has read what it has not given out, and that stays here",
            ));
        }
        this.origin.reduce(py, slf.get_type().into_any().unbind(), fd)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.describe("Reader"))
    }

    fn __enter__(slf: Py<Reader>) -> Py<Reader> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// An error, and the writer of the lost message, if one was lost.
struct Loss {
    error: Error,
    torn: Option<atomic::Torn>,
}

impl Loss {
    fn of(reader: &atomic::Reader, error: Error) -> Loss {
        Loss { error, torn: reader.torn() }
    }
}

impl Raise for Loss {
    fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        let raised = self.error.raise(py);
        let Some(torn) = self.torn else { return raised };
        let told = item::torn(py, torn).and_then(|torn| raised.value(py).setattr("torn", torn));
        told.map_or_else(|error| error, |()| raised)
    }
}

/// The iterator of `Reader.messages`.
#[pyclass(frozen, module = "pipework.atomic")]
pub(crate) struct Messages {
    reader: Py<Reader>,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: Py<Messages>) -> Py<Messages> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        let message = self.reader.get().handle.wait(py, Deadline::NEVER, RECV, |reader| {
            let message = py.detach(|| reader.recv(Deadline::NEVER)).map(|message| bytes(py, [&message]));
            unless_closed(message.map_err(|error| Loss::of(reader, error)))
        })?;
        message.transpose()
    }
}

/// The end of the pipe ends an iteration.
fn unless_closed<T, E: Raise>(next: Result<T, E>) -> Result<Option<T>, E> {
    match next {
        Err(error) if error.kind() == ErrorKind::Closed => Ok(None),
        next => next.map(Some),
    }
}
