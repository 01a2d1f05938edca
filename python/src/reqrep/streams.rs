//! Replies that come part by part, and calls as they end: the iterators over a client.

use std::future::poll_fn;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use pipework::reqrep::{self, CallError, Client, Completion, Reply, Ticket};
use pipework::{Deadline, ErrorKind, Result};
use pyo3::exceptions::{PyException, PyRuntimeError, PyStopAsyncIteration};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::blobs::Attached;
use super::calls::{CLIENT, Calls, OfClient, RECV, Request, message, received};
use super::codec::Give;
use super::segment::MODULE;
use super::shared::{Shared, closed};
use crate::buffer::{Held, bytes};
use crate::error::{OrRaise, Raise};
use crate::handle::{Handle, InChild, attached, drop_detached};
use crate::imports::Import;
use crate::locked::Locked;
use crate::task::Task;
use crate::wait::{Seconds, wait};

pub(super) const STREAM: &str = "reqrep stream";
const TASKS: &str = "pipework._asyncio_tasks";

/// Why no part comes.
enum Ended {
    Error(CallError),
    ClientClosed,
}

impl Raise for Ended {
    fn kind(&self) -> ErrorKind {
        match self {
            Ended::Error(error) => error.kind(),
            Ended::ClientClosed => ErrorKind::Invalid,
        }
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Ended::Error(error) => error.raise(py),
            Ended::ClientClosed => closed(py, "client", STREAM),
        }
    }
}

impl OfClient for Handle<Option<reqrep::Stream>> {
    fn leave(&self, py: Python<'_>) {
        // A thread that waits for a part ends the stream by itself.
        let left = self.try_with(py, STREAM, Option::take);
        py.detach(|| drop(left.ok()));
    }
}

impl OfClient for Locked<State> {
    fn leave(&self, py: Python<'_>) {
        let left = self.with(|state| match state {
            State::Begins(..) | State::GoesOn(_) => Some(std::mem::replace(state, State::Left)),
            State::UnderWay | State::Left | State::Over => None,
        });
        py.detach(|| drop(left));
    }
}

/// The parts of a reply, as the server sends them: `Client.stream` returns it.
///
/// It ends after the last part, after the first exception, and when it is closed. Ended before the
/// last part, it cancels the call: also when a loop over it is left, which drops it.
#[pyclass(frozen, weakref, module = "pipework.reqrep")]
pub(crate) struct Stream {
    /// None once the client is closed.
    parts: Arc<Handle<Option<reqrep::Stream>>>,
    client: Shared<Client>,
    each: Option<Seconds>,
    give: Give,
}

impl Calls {
    pub(super) fn stream(
        &self,
        py: Python<'_>,
        request: Request<'_>,
        each: Option<Seconds>,
        give: Give,
    ) -> PyResult<Stream> {
        let deadline = Seconds::from_now(each);
        // Dropped because a signal handler has raised, it cancels the call.
        let stream = wait(py, &self.shared().used(), || {
            let client = self.get(py)?;
            Ok(py.detach(|| client.stream_by(message(request), deadline)))
        })?;
        let stream = stream.map_err(|error| self.for_request(request.0.len(), error.into()));
        let parts = Arc::new(Handle::new("stream", Some(stream.or_raise(py)?), InChild::Used));
        self.keep(Arc::downgrade(&parts) as _);
        if self.is_closed() {
            parts.leave(py);
        }
        Ok(Stream { parts, client: self.shared().clone(), each, give })
    }

    pub(super) fn stream_in_tasks<'py>(
        &self,
        py: Python<'py>,
        (data, flags, blobs): (Held, u32, Attached),
        each: Option<Seconds>,
        give: Give,
    ) -> PyResult<Bound<'py, PyAny>> {
        static PARTS: Import = Import::new(TASKS, "Parts");
        let state = Arc::new(Locked::new(State::Begins(data, flags, blobs)));
        self.keep(Arc::downgrade(&state) as _);
        PARTS.call(py, (Parts { state, client: self.shared().clone(), each, give },))
    }

    pub(super) fn as_completed(&self, deadline: Deadline, give: Give) -> Completed {
        Completed { client: self.shared().clone(), deadline, give }
    }
}

#[pymethods]
impl Stream {
    fn __iter__(slf: Py<Stream>) -> Py<Stream> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.parts.is_closed() {
            return Ok(None);
        }
        let (mut is_ours, deadline) = (false, Seconds::from_now(self.each));
        let part = self.parts.wait(py, deadline, STREAM, |stream| {
            is_ours = true;
            match stream {
                Some(stream) if !self.client.is_closed() => {
                    py.detach(|| stream.next_part(deadline)).map_err(Ended::Error)
                }
                _ => Err(Ended::ClientClosed),
            }
        });
        // While this thread waited for its turn, another one has ended the stream.
        if !is_ours && self.parts.is_closed() {
            return Ok(None);
        }
        // Not where another thread has the stream.
        if is_ours && !matches!(part, Ok(Some(_))) {
            self.close(py);
        }
        let given = part?.map(|part| self.give.reply(py, &part)).transpose();
        given.inspect_err(|_| self.close(py))
    }

    /// Cancels the call, if its last part has not come. A second time does nothing.
    fn close(&self, py: Python<'_>) {
        self.parts.close(py, drop_detached);
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.parts.describe("Stream", |_| String::new()))
    }

    fn __enter__(slf: Py<Stream>) -> Py<Stream> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// The same for `async for`; `pipework/_asyncio_tasks.py` has the iterator.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Parts {
    state: Arc<Locked<State>>,
    client: Shared<Client>,
    each: Option<Seconds>,
    give: Give,
}

enum State {
    /// Nothing was sent.
    Begins(Held, u32, Attached),
    GoesOn(Box<reqrep::Stream>),
    /// A task waits for the next part.
    UnderWay,
    /// The client was closed before the last part.
    Left,
    Over,
}

#[pymethods]
impl Parts {
    /// The coroutine of the next part; it raises StopAsyncIteration after the last. If it is
    /// cancelled, so is the call.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let before = self.state.with(|state| {
            let next = if matches!(state, State::Left | State::Over) { State::Over } else { State::UnderWay };
            std::mem::replace(state, next)
        });
        match before {
            State::Left => return Err(closed(py, "client", STREAM)),
            State::Over => return Err(PyStopAsyncIteration::new_err(())),
            State::UnderWay => return Err(PyRuntimeError::new_err("another task waits for the next part")),
            State::Begins(..) | State::GoesOn(_) => {}
        }
        let (turn, ticket) = (Turn { state: Arc::clone(&self.state) }, Arc::new(OnceLock::new()));
        let (len, known) = match &before {
            State::Begins(data, ..) => (data.len(), None),
            State::GoesOn(stream) => (0, stream.ticket()),
            State::UnderWay | State::Left | State::Over => (0, None),
        };
        known.inspect(|known| _ = ticket.set(*known));
        let client = self.client.get(py, STREAM)?;
        let (of_parts, told) = (client.clone(), Arc::clone(&ticket));
        let part = self.client.until_closed(next(client, before, turn, told));
        let copied = move || ticket.get().map_or(len, |ticket: &Ticket| of_parts.reply_len(*ticket));
        let of_future = self.give.of_future();
        let give_out =
            move |py: Python<'_>, part: Option<std::result::Result<Option<Reply>, Ended>>| match part
                .unwrap_or(Err(Ended::ClientClosed))
                .or_raise(py)?
            {
                Some(part) => of_future.reply(py, &part),
                None => Err(PyStopAsyncIteration::new_err(())),
            };
        self.give.awaited(
            py,
            Task::new(self.client.second_looks(), copied, part, give_out).start(py, STREAM, self.each)?,
        )
    }

    /// Cancels the call, if its last part has not come.
    fn close(&self) {
        drop(self.state.with(|state| std::mem::replace(state, State::Over)));
    }
}

/// The next part. The stream is put back if others may follow.
async fn next(
    client: Client,
    before: State,
    turn: Turn,
    ticket: Arc<OnceLock<Ticket>>,
) -> std::result::Result<Option<Reply>, Ended> {
    let mut stream = match before {
        State::GoesOn(stream) => stream,
        State::Begins(data, flags, blobs) => {
            let stream = client.stream_async(message((&data, flags, &blobs))).await;
            let stream = stream.map_err(|error| Ended::Error(error.into()))?;
            stream.ticket().inspect(|sent| _ = ticket.set(*sent));
            Box::new(stream)
        }
        State::UnderWay | State::Left | State::Over => return Ok(None),
    };
    let part = stream.next_part_async().await.map_err(Ended::Error)?;
    if part.is_some() {
        turn.put_back(stream);
    }
    Ok(part)
}

/// The turn of a task that waits for a part. Dropped, it ends the stream, if that is not back.
struct Turn {
    state: Arc<Locked<State>>,
}

impl Turn {
    fn put_back(&self, stream: Box<reqrep::Stream>) {
        let left = attached(|| {
            self.state.with(|state| match state {
                State::UnderWay => std::mem::replace(state, State::GoesOn(stream)),
                // It was closed meanwhile.
                _ => State::GoesOn(stream),
            })
        });
        drop(left);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        attached(|| {
            self.state.with(|state| {
                if matches!(state, State::UnderWay) {
                    *state = State::Over;
                }
            });
        });
    }
}

/// Calls as they end: `Client.as_completed` returns it.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Completed {
    client: Shared<Client>,
    deadline: Deadline,
    give: Give,
}

#[pymethods]
impl Completed {
    fn __iter__(slf: Py<Completed>) -> Py<Completed> {
        slf
    }

    /// The next call that has ended, as its ticket and an `Outcome`.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<(u64, Py<PyAny>)>> {
        let recv_any = |client: &Client, deadline| py.detach(|| client.recv_any(deadline));
        let ended = self.client.wait(py, self.deadline, CLIENT, recv_any)?;
        ended.map(|ended| pair(py, ended, &self.give)).transpose()
    }

    fn __aiter__(slf: Py<Completed>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static COMPLETED: Import = Import::new(TASKS, "Completed");
        COMPLETED.call(py, (slf,))
    }

    /// The same as `__next__`, for a task that has [`doorbell`](Completed::doorbell) and
    /// [`seconds`](Completed::seconds) wake it.
    fn next(&self, py: Python<'_>) -> PyResult<Task> {
        let (client, deadline, give) = (self.client.get(py, CLIENT)?, self.deadline, self.give.clone_ref(py));
        let recv_any = poll_fn(move |_cx| match client.recv_any(Deadline::now()) {
            Err(error) if error.kind() == ErrorKind::TimedOut && !deadline.has_passed() => Poll::Pending,
            ended => Poll::Ready(ended),
        });
        let give_out = move |py: Python<'_>, ended: Option<Result<Option<Completion>>>| match ended {
            Some(ended) => match ended.or_raise(py)? {
                Some(ended) => Ok(pair(py, ended, &give)?.into_pyobject(py)?.into_any().unbind()),
                None => Err(PyStopAsyncIteration::new_err(())),
            },
            None => Err(closed(py, "client", CLIENT)),
        };
        Ok(Task::new(self.client.second_looks(), || 0, self.client.until_closed(recv_any), give_out))
    }

    /// A descriptor that is readable while a call has ended. The caller closes it.
    fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.client.get(py, CLIENT)?.doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    /// Until the time is over; None if it never is.
    fn seconds(&self) -> Option<f64> {
        self.deadline.remaining().map(|left| left.as_secs_f64())
    }
}

/// The pair that Python gets for a call that has ended. A reply that cannot be decoded is the error
/// of its call.
fn pair(py: Python<'_>, ended: Completion, give: &Give) -> PyResult<(u64, Py<PyAny>)> {
    static OUTCOME: Import = Import::new(MODULE, "Outcome");
    let reply = received(py, RECV, ended.result).and_then(|reply| {
        let (data, blobs) = give.decode(py, bytes(py, [&reply])?, reply.blobs())?;
        Ok((data, reply.flags(), blobs))
    });
    let outcome = match reply {
        Ok((data, flags, blobs)) => OUTCOME.make(py, (data, flags, None::<PyErr>, blobs)),
        Err(error) if error.is_instance_of::<PyException>(py) => {
            OUTCOME.make(py, (None::<u8>, 0, error, PyTuple::empty(py)))
        }
        Err(error) => Err(error),
    };
    Ok((ended.ticket.to_bits(), outcome?))
}
