//! The work of a server, on Python's terms, for all kinds of payloads. Mirrors `calls.rs`.

use std::os::fd::IntoRawFd;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pipework::reqrep::{Request, Server, ServerOptions, Ticket};
use pipework::{Deadline, ErrorKind, Result};
use pyo3::PyClass;
use pyo3::exceptions::{PyEOFError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::PyDict;

use super::open::Lent;
use super::segment::Segment;
use super::shared::{Shared, closed};
use crate::buffer::{SMALL, unless_small};
use crate::error::OrRaise;
use crate::handle::warn_unclosed;
use crate::task::Task;
use crate::wait::{CallTimeout, Seconds, wait};

/// A request as Python gets it.
pub(super) trait Given: Into<PyClassInitializer<Self>> + PyClass<Frozen = True> + Sync {
    /// One whose payload is here. `limit` is that of its reply.
    fn of(py: Python<'_>, request: Request<'static>, limit: Limit) -> PyResult<Self>;

    /// One whose payload is in the segment.
    fn claimed(py: Python<'_>, request: Request<'static>, limit: Limit) -> PyResult<Self>;

    /// Makes it a loop's, for a turn.
    fn lend(&self) -> Weak<dyn Lent>;
}

/// The option that limits a reply, and its value.
pub(super) type Limit = (&'static str, usize);

/// The settings of a server.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The `timeout` of each call that is given none.
    pub(super) timeout: Option<Seconds>,
    pub(super) max_message: usize,
    pub(super) part_timeout: Duration,
}

impl Terms {
    /// A request is copied once, into the object that Python gets.
    pub(super) fn options(self) -> ServerOptions {
        let options = ServerOptions::new().max_message(self.max_message).part_timeout(self.part_timeout);
        options.reads_later(true)
    }
}

/// Enough to make an equal server in another process: the segment, and the keyword arguments.
pub(super) type Settings<'py> = (Py<Segment>, Bound<'py, PyDict>);

/// The work of a server, on Python's terms.
pub(super) struct Taking {
    server: Shared<Server>,
    segment: Py<Segment>,
    terms: Terms,
    /// Whether `stop` was called: dropping a server that has done its work needs no warning.
    stopped: AtomicBool,
}

const RECV: &str = "reqrep recv";

impl Taking {
    pub(super) fn new(server: Server, segment: Py<Segment>, terms: Terms) -> Taking {
        Taking { server: Shared::new("server", server), segment, terms, stopped: AtomicBool::new(false) }
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// The time-out of a call: its own, or else the server's.
    pub(super) fn timeout(&self, timeout: CallTimeout) -> Option<Seconds> {
        timeout.or(self.terms.timeout)
    }

    /// When a call that begins now ends.
    pub(super) fn until(&self, timeout: CallTimeout) -> Deadline {
        Seconds::from_now(self.timeout(timeout))
    }

    pub(super) fn recv<G: Given>(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<G> {
        // As `Calls::call_at_once`: a request that is there, or comes at once, costs no turn of
        // the interpreter lock.
        let server = self.get(py)?;
        if server.spin_for_any()
            && waiting_bytes(&server, 1) <= SMALL
            && let Some(taken) = server.try_recv().or_raise(py)?
        {
            return G::of(py, taken.into_owned(), self.limit());
        }
        drop(server);
        let deadline = Seconds::from_now(timeout);
        let recv = |server: &Server, deadline| py.detach(|| server.recv(deadline).map(Request::into_owned));
        G::of(py, self.server.wait(py, deadline, RECV, recv)?, self.limit())
    }

    pub(super) fn try_recv<G: Given>(&self, py: Python<'_>) -> PyResult<Option<G>> {
        let server = self.get(py)?;
        let try_recv = || Ok(server.try_recv()?.map(Request::into_owned));
        let taken: Result<_> = unless_small(py, waiting_bytes(&server, 1), try_recv);
        taken.or_raise(py)?.map(|taken| G::of(py, taken, self.limit())).transpose()
    }

    pub(super) fn claim<G: Given>(&self, py: Python<'_>, deadline: Deadline) -> PyResult<G> {
        let claim = |server: &Server, deadline| py.detach(|| server.claim(deadline).map(Request::into_owned));
        G::claimed(py, self.server.wait(py, deadline, RECV, claim)?, self.limit())
    }

    pub(super) fn recv_many<G: Given>(
        &self,
        py: Python<'_>,
        count: usize,
        deadline: Deadline,
        linger: Duration,
    ) -> PyResult<Vec<G>> {
        let recv = |server: &Server, count, deadline| {
            py.detach(|| server.recv_many(count, deadline, Duration::ZERO).map(owned))
        };
        let mut taken =
            self.server.wait(py, deadline, RECV, |server, deadline| recv(server, count, deadline))?;
        let most = count.min(self.segment.get().sizes().slots as usize);
        let lingers = (!linger.is_zero()).then(|| Deadline::after(linger));
        while let Some(until) = lingers.filter(|_| taken.len() < most) {
            // An error comes again with the next call.
            let recv = || Ok(recv(&self.get(py)?, most - taken.len(), until));
            let more = wait(py, &self.server.used(), recv)?;
            match more {
                Ok(more) => taken.extend(more),
                Err(_) => break,
            }
        }
        self.give(py, taken)
    }

    pub(super) fn drain<G: Given>(&self, py: Python<'_>, count: usize) -> PyResult<Vec<G>> {
        let server = self.get(py)?;
        let drain = || server.drain(count).map(owned);
        let taken = unless_small(py, waiting_bytes(&server, count), drain).or_raise(py)?;
        self.give(py, taken)
    }

    fn give<G: Given>(&self, py: Python<'_>, taken: Vec<Request<'static>>) -> PyResult<Vec<G>> {
        taken.into_iter().map(|taken| G::of(py, taken, self.limit())).collect()
    }

    pub(super) fn kept<G: Given>(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<G>> {
        let server = self.get(py)?;
        let kept = server.kept(Ticket::from_bits(ticket)).or_raise(py)?;
        kept.map(|kept| self.with_blobs(py, kept)).transpose()
    }

    pub(super) fn adopt<G: Given>(&self, py: Python<'_>, ticket: u64) -> PyResult<G> {
        let server = self.get(py)?;
        let adopted = server.adopt(Ticket::from_bits(ticket)).or_raise(py)?;
        self.with_blobs(py, adopted)
    }

    /// A request that was kept, with its blobs. If they cannot be received, its call fails. A request
    /// that another process has adopted has none, and answering it raises `Stale`.
    fn with_blobs<G: Given>(&self, py: Python<'_>, mut kept: Request<'_>) -> PyResult<G> {
        let read = kept.read_blobs().map(drop);
        if read.as_ref().is_err_and(|error| error.kind() != ErrorKind::Stale) {
            read.or_raise(py)?;
        }
        G::claimed(py, kept.into_owned(), self.limit())
    }

    /// As `recv`; None once the server is closed or stopped.
    pub(super) fn next<G: Given>(&self, py: Python<'_>) -> PyResult<Option<G>> {
        match self.recv(py, None) {
            Err(error) if self.is_closed() && error.is_instance_of::<PyValueError>(py) => Ok(None),
            // Closed, which is how the core says that it was stopped.
            Err(error) if error.is_instance_of::<PyEOFError>(py) => Ok(None),
            next => next.map(Some),
        }
    }

    pub(super) fn start_recv<'py, G: Given>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = self.limit();
        self.start(
            py,
            1,
            |server| async move { server.recv_async().await.map(Request::into_owned) },
            move |py, taken| Ok(Py::new(py, G::of(py, taken, limit)?)?.into_any()),
            timeout,
        )
    }

    pub(super) fn start_recv_many<'py, G: Given>(
        &self,
        py: Python<'py>,
        count: usize,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let recv = move |server: Server| async move {
            if count == 0 {
                return Ok(Vec::new());
            }
            let mut taken = vec![server.recv_async().await.map(Request::into_owned)?];
            // If this fails, so will the next call.
            taken.extend(server.drain(count - 1).map(owned).into_iter().flatten());
            Ok(taken)
        };
        let limit = self.limit();
        let give = move |py: Python<'_>, taken: Vec<Request<'static>>| {
            let given = taken.into_iter().map(|taken| Py::new(py, G::of(py, taken, limit)?));
            Ok(given.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.unbind())
        };
        self.start(py, count, recv, give, timeout)
    }

    /// A poll may take up to `count` requests.
    fn start<'py, T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        py: Python<'py>,
        count: usize,
        recv: impl FnOnce(Server) -> F,
        give: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let server = self.get(py)?;
        let taken = self.server.until_closed(recv(server.clone()));
        let give = move |py: Python<'_>, taken: Option<Result<T>>| match taken {
            Some(taken) => give(py, taken.or_raise(py)?),
            None => Err(closed(py, "server", RECV)),
        };
        Task::new(self.server.second_looks(), move || waiting_bytes(&server, count), taken, give)
            .start(py, RECV, timeout)
    }

    fn limit(&self) -> Limit {
        let slot = self.segment.get().sizes().reply_bytes as usize;
        ("the server's max_message", self.terms.max_message.max(slot))
    }

    pub(super) fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        self.get(py)?.clear().or_raise(py)
    }

    pub(super) fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.stopped.store(true, Ordering::Relaxed);
        self.get(py).map(|server| server.stop())
    }

    pub(super) fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.server.fileno(py, RECV, Server::doorbell)
    }

    /// The segment that it is attached to, for people.
    pub(super) fn describe(&self) -> String {
        self.server.describe(self.segment.get().place())
    }

    pub(super) fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.segment.clone_ref(py)
    }

    pub(super) fn settings<'py>(&self, py: Python<'py>) -> PyResult<Settings<'py>> {
        let Terms { timeout, max_message, part_timeout } = self.terms;
        let options = PyDict::new(py);
        options.set_item("timeout", timeout.map(Seconds::to_f64))?;
        options.set_item("max_message", max_message)?;
        options.set_item("part_timeout", part_timeout.as_secs_f64())?;
        Ok((self.segment(py), options))
    }

    pub(super) fn close(&self) {
        self.server.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.server.is_closed()
    }

    fn get(&self, py: Python<'_>) -> PyResult<Server> {
        self.server.get(py, RECV)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if !self.is_closed() && !self.stopped.load(Ordering::Relaxed) {
            warn_unclosed(|| format!("server of {}", self.segment.get().place()));
        }
    }
}

fn owned(requests: Vec<Request<'_>>) -> Vec<Request<'static>> {
    requests.into_iter().map(Request::into_owned).collect()
}

/// Bytes that `count` requests would copy now. A look that finds nothing copies nothing, so it keeps the
/// interpreter lock.
fn waiting_bytes(server: &Server, count: usize) -> usize {
    server.waiting_bytes(count).try_into().unwrap_or(usize::MAX)
}
