//! Requests in the hands of a server.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use pipework::reqrep::{self, Ticket};
use pipework::{ErrorKind, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyMemoryView, PyString, PyTuple, PyType};

use super::blobs::{self, Attached};
use super::calls::message;
use super::open::{Lent, Open, lent};
use super::taking::{Given, Limit};
use crate::buffer::{Bytes, Space, bytes, filled, unless_small};
use crate::error::{OrRaise, Oversize, invalid, of_kind};
use crate::keywords::Flags;
use crate::locked::Locked;
use crate::task::Task;
use crate::wait::{PAST, Seconds, Timeout, Used, until, wait};

/// A request that this process has taken, and that no other server gets.
///
/// Answer it once, with `reply` or `fail`, from any thread. Dropped without an answer, it fails at
/// its client at once; as a context manager, when the block is left. If an exception leaves the
/// block, the reason that its client gets is the exception's type, and no more: its text may
/// contain things that the client must not know. `request.fail(str(error))` sends it.
#[pyclass(frozen, weakref, module = "pipework.reqrep")]
pub(crate) struct Request {
    /// None of one that was claimed.
    data: Option<Py<PyBytes>>,
    /// Of one that was claimed, once it was read.
    read: Locked<Option<Arc<Py<PyBytes>>>>,
    flags: AtomicU32,
    blobs: Py<PyTuple>,
    redeliveries: u8,
    ticket: Ticket,
    limit: Limit,
    open: Arc<Open>,
}

#[pymethods]
impl Request {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    const MATCH_ARGS: (&'static str,) = ("data",);

    /// The bytes of the request.
    #[getter]
    fn data(slf: &Bound<'_, Request>) -> PyResult<Py<PyBytes>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(data) = &this.data {
            return Ok(data.clone_ref(py));
        }
        alone(slf, || {
            if let Some(data) = this.read.with(|data| data.clone()) {
                return Ok((*data).clone_ref(py));
            }
            let mut request = this.open.borrow(py)?;
            let data = read(py, &mut request)?;
            this.flags.store(request.flags(), Ordering::Relaxed);
            drop(this.read.replace(Arc::new(data.clone_ref(py))));
            Ok(data)
        })
    }

    /// A read-only `memoryview` of `data`: slices of it are no copies, and `numpy.frombuffer` makes
    /// an array of it that is none. `recv_into` fills an array that can be written to.
    fn view<'py>(slf: &Bound<'py, Request>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(Request::data(slf)?.bind(slf.py()).as_any())
    }

    /// Bytes of the request: the space that `recv_into` needs.
    #[getter]
    fn size(slf: &Bound<'_, Request>) -> PyResult<usize> {
        let (py, this) = (slf.py(), slf.get());
        match &this.data {
            Some(data) => Ok(data.bind(py).as_bytes().len()),
            None => alone(slf, || Ok(this.open.borrow(py)?.size())),
        }
    }

    /// The 32 bits that the client sent along; of a request that was claimed, once it was read.
    #[getter]
    fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// The blobs that the client sent along: a tuple of `Blob`. They are held as long as this object
    /// is, also when it is answered.
    #[getter]
    fn blobs(&self, py: Python<'_>) -> Py<PyTuple> {
        self.blobs.clone_ref(py)
    }

    /// Copies the bytes of the request, those of a claimed one from the segment, to the beginning of
    /// `buffer`. Returns how many. Raises `TooLong` if they do not fit.
    fn recv_into(slf: &Bound<'_, Request>, mut buffer: Space<'_>) -> PyResult<usize> {
        let (py, this) = (slf.py(), slf.get());
        let too_long = |len, most| {
            let text = format!("the request has {len} bytes, and the buffer {most}");
            of_kind(py, ErrorKind::TooLong, "reqrep recv", &text)
        };
        if let Some(data) = &this.data {
            let data = data.bind(py).as_bytes();
            if data.len() > buffer.len() {
                return Err(too_long(data.len(), buffer.len()));
            }
            buffer.fill(0, data);
            return Ok(data.len());
        }
        alone(slf, || {
            let mut request = this.open.borrow(py)?;
            let size = request.size();
            if size > buffer.len() {
                return Err(too_long(size, buffer.len()));
            }
            let read = buffer.write(py, size, |space| request.read_into(space).map(|len| (len, ())));
            let (len, ()) = read.or_raise(py)?;
            this.flags.store(request.flags(), Ordering::Relaxed);
            Ok(len)
        })
    }

    /// Answers the request. Returns False if the client has cancelled or forgotten the call, or has
    /// died. `flags` are 32 bits that travel with the reply, `blobs` is a list of the `Blob` objects
    /// that it carries.
    ///
    /// After a part, this waits until the client has taken that. Raises `TooLong` if the reply is longer
    /// than the server's `max_message`, and `TimedOut` if the client does not take the part within the
    /// server's `part_timeout`; the request then fails at its client, as it does when a signal handler raises.
    /// `Invalid` if the request was answered before; `Stale` in a child that was forked after the
    /// request was taken.
    #[pyo3(signature = (data, *, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, flags=0, blobs=())")]
    fn reply(slf: &Bound<'_, Request>, data: Bytes<'_, '_>, flags: Flags, blobs: Attached) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let (mut request, data): (_, &[u8]) = (alone(slf, || this.open.take(py))?, &data);
        let reply = message((data, flags.0, &blobs));
        let at_once = unless_small(py, data.len(), || request.reply_at_once(&reply)).transpose();
        let answered = match at_once {
            Some(answered) => answered,
            // An exception in a signal handler fails it.
            None => wait(py, &Used::Nothing, || Ok(py.detach(|| request.try_reply(reply))))?,
        };
        // Its client learns why, unless `try_reply` has failed it already.
        if let Err(error) = &answered {
            request.fail(&error.to_string());
        }
        this.sent(py, data.len(), answered)
    }

    /// As `reply`, in asyncio or trio: other tasks run while the client takes the part before. `timeout`
    /// replaces the server's `part_timeout`. If it passes, or the task is
    /// cancelled, the request fails.
    #[pyo3(signature = (data, *, timeout=None, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=None, flags=0, blobs=())")]
    fn areply<'py>(
        slf: &Bound<'py, Request>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, data) = (slf.py(), data.hold());
        let request = alone(slf, || slf.get().open.take(py))?;
        let (len, this) = (data.len(), slf.clone().unbind());
        let reply = async move { request.reply_async(message((&data, flags.0, &blobs))).await };
        Task::new(
            &Arc::default(),
            move || len,
            reply,
            move |py, answered| truth(py, this.get().sent(py, len, answered)?),
        )
        .start(py, "reqrep reply", timeout)
    }

    /// Sends the client a part of the reply. After the last part comes `reply`, which may be empty.
    /// Returns False if the client has cancelled or forgotten the call, or has died. A client that
    /// does not ask for parts gets all of them as one reply, with the flags of the last: they are
    /// collected here until then.
    ///
    /// Waits until the client has taken the part before. Raises `TimedOut`: nothing was sent. `TooLong`
    /// as `reply`. `Invalid` if the request was answered before.
    #[pyo3(signature = (data, *, timeout=None, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=None, flags=0, blobs=())")]
    fn send_part(
        slf: &Bound<'_, Request>,
        data: Bytes<'_, '_>,
        timeout: Option<Timeout>,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let (deadline, part) = (until(timeout), message((&data, flags.0, &blobs)));
        let at_once = alone(slf, || {
            let mut request = this.open.borrow(py)?;
            Ok(unless_small(py, data.len(), || request.part(part, PAST)))
        })?;
        let given = match at_once {
            Err(error) if error.kind() == ErrorKind::TimedOut && deadline != PAST => {
                let give = |request: &mut reqrep::Request<'static>, deadline| request.part(part, deadline);
                alone(slf, || this.open.wait_for(py, deadline, give))?
            }
            given => given,
        };
        this.sent(py, data.len(), given)
    }

    /// Waits until the client has taken the part that was sent last. Returns False if the client has
    /// cancelled or forgotten the call, or has died. Raises `TimedOut` if it has not taken the part.
    #[pyo3(signature = (*, timeout=None))]
    fn flush(slf: &Bound<'_, Request>, timeout: Option<Timeout>) -> PyResult<bool> {
        let flush = |request: &mut reqrep::Request<'static>, deadline| request.flush(deadline);
        let py = slf.py();
        alone(slf, || slf.get().open.wait_for(py, until(timeout), flush))?.or_raise(py)
    }

    /// As `send_part`, in asyncio or trio. If the task is cancelled, the part was not sent.
    #[pyo3(signature = (data, *, timeout=None, flags=Flags(0), blobs=Attached::default()), text_signature = "($self, data, *, timeout=None, flags=0, blobs=())")]
    fn asend_part<'py>(
        slf: &Bound<'py, Request>,
        data: Bytes<'_, '_>,
        timeout: Option<Seconds>,
        flags: Flags,
        blobs: Attached,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, data) = (slf.py(), data.hold());
        let mut request = alone(slf, || slf.get().open.borrow(py))?;
        let (len, this, open) = (data.len(), slf.clone().unbind(), Arc::clone(&slf.get().open));
        let give = async move {
            let mut part = pin!(request.part_async(message((&data, flags.0, &blobs))));
            poll_fn(|cx| match part.as_mut().poll(cx) {
                // Ended by another task or thread, it is put back, and fails.
                Poll::Pending if open.is_ended(cx.waker()) => Poll::Ready(None),
                polled => polled.map(Some),
            })
            .await
        };
        let give_out = move |py: Python<'_>, given: Option<Result<bool>>| match given {
            Some(given) => truth(py, this.get().sent(py, len, given)?),
            None => Err(invalid(py, "reqrep part", "this request was failed meanwhile")),
        };
        Task::new(&Arc::default(), move || len, give, give_out).start(py, "reqrep part", timeout)
    }

    /// Tells the client that there will be no answer: its call raises `RemoteError`, with this
    /// reason: text or bytes, of which as many arrive as a reply in one slot has, and none where
    /// the client has not taken the part before. Nothing happens if it is answered already.
    #[pyo3(signature = (reason=None), text_signature = "($self, reason='')")]
    fn fail(&self, reason: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.open.fail(reason.map_or(Ok(Vec::new()), reason_of)?);
        Ok(())
    }

    #[pyo3(signature = (kind=None, *_exception))]
    fn __exit__(&self, kind: Option<&Bound<'_, PyType>>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.open.is_open() {
            let name = kind.map(|kind| kind.qualname()).transpose()?;
            self.open.fail(name.map_or(Ok(Vec::new()), |name| reason_of(name.as_any()))?);
        }
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.open.is_open() { "" } else { ", answered" };
        match &self.data {
            Some(data) => format!("<Request of {} bytes{state}>", data.bind(py).as_bytes().len()),
            None => format!("<Request in the segment{state}>"),
        }
    }

    /// How many servers have died with this request. More than 0 only if the client asked
    /// for redelivery.
    #[getter]
    fn redeliveries(&self) -> u8 {
        self.redeliveries
    }

    /// The ticket that the client's `send` has returned for it.
    #[getter]
    fn ticket(&self) -> u64 {
        self.ticket.to_bits()
    }

    /// Leaves the request with its server, whose `kept` takes it back by the ticket that this
    /// returns: for programs that hand numbers around. Raises `Invalid` if it is answered already.
    /// If the server goes before, it fails at its client.
    fn keep(slf: &Bound<'_, Request>) -> PyResult<u64> {
        alone(slf, || slf.get().open.take(slf.py())).map(|request| request.keep().to_bits())
    }

    /// Whether the client waits for the answer: False once the client has cancelled, or its
    /// death was noticed (within 250 ms, where this is asked again and again), and once it
    /// is answered.
    #[getter]
    fn wanted(&self) -> bool {
        self.open.look(|request| request.is_wanted()).unwrap_or_else(|| self.open.is_open())
    }

    /// Takes it out of the loop that gave it out, which would fail it when it comes back.
    /// Returns the request, for the thread or the task that answers it: `pool.submit(work,
    /// request.detach())`.
    fn detach(slf: Py<Request>) -> Py<Request> {
        slf.get().open.detach();
        slf
    }

    fn __enter__(slf: Py<Request>) -> Py<Request> {
        slf
    }
}

/// Does `work` while no other method of this request runs, as the interpreter lock has it anyway:
/// until `work` waits, or copies a long payload.
fn alone<R>(request: &Bound<'_, Request>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    with_critical_section(request.as_any(), work)
}

impl Request {
    fn sent(&self, py: Python<'_>, len: usize, sent: Result<bool>) -> PyResult<bool> {
        let (option, most) = self.limit;
        sent.map_err(|error| Oversize { error: error.into(), len, option, most }).or_raise(py)
    }

    fn new(
        py: Python<'_>,
        request: reqrep::Request<'static>,
        data: Option<Py<PyBytes>>,
        limit: Limit,
    ) -> PyResult<Request> {
        Ok(Request {
            data,
            read: Locked::new(None),
            flags: request.flags().into(),
            blobs: blobs::received(py, request.blobs())?.unbind(),
            redeliveries: request.redeliveries(),
            ticket: request.ticket(),
            limit,
            open: Arc::new(Open::new(request)),
        })
    }
}

fn truth(py: Python<'_>, truth: bool) -> PyResult<Py<PyAny>> {
    Ok(truth.into_pyobject(py)?.to_owned().into_any().unbind())
}

/// Its bytes, straight from the segment.
fn read(py: Python<'_>, request: &mut reqrep::Request<'static>) -> PyResult<Py<PyBytes>> {
    let len = request.size();
    let (data, read) = filled(py, len, |space| request.read_into(space))?;
    if read.or_raise(py)? != len {
        // A peer may have changed it since its size was read.
        let text = "the request was changed while it was read";
        return Err(of_kind(py, ErrorKind::Corrupt, "reqrep recv", text));
    }
    Ok(data)
}

/// The bytes of a reason, which is text or bytes.
fn reason_of(reason: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = reason.cast::<PyString>() {
        // As it is written to standard error: a lone surrogate is no reason to raise.
        let encoded = text.call_method1("encode", ("utf-8", "backslashreplace"))?;
        return Ok(encoded.cast_into::<PyBytes>()?.as_bytes().to_vec());
    }
    match reason.extract::<Bytes<'_, '_>>() {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(_) => Err(PyTypeError::new_err("a reason is text or bytes")),
    }
}

impl Given for Request {
    fn of(py: Python<'_>, mut request: reqrep::Request<'static>, limit: Limit) -> PyResult<Request> {
        if !request.is_read() {
            let data = read(py, &mut request)?;
            return Request::new(py, request, Some(data), limit);
        }
        let data = bytes(py, [&request])?;
        if request.len() >= LARGE {
            // Python has its copy.
            request.drop_payload();
        }
        Request::new(py, request, Some(data), limit)
    }

    fn claimed(py: Python<'_>, request: reqrep::Request<'static>, limit: Limit) -> PyResult<Request> {
        Request::new(py, request, None, limit)
    }

    fn lend(&self) -> Weak<dyn Lent> {
        lent(&self.open)
    }
}

/// Bytes of a payload that is not kept twice.
const LARGE: usize = 4096;
