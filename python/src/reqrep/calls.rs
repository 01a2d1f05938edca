//! What a client does, on Python's terms, whatever its payloads are. Mirrors `taking.rs`.

use std::convert::identity;
use std::os::fd::IntoRawFd;
use std::sync::{Arc, OnceLock};

use pipework::reqrep::{Client, IntClient, Message, Reply, Ticket};
use pipework::{Deadline, Error, Result};
use pyo3::prelude::*;

use super::segment::Segment;
use super::shared::{Shared, closed};
use crate::buffer::unless_small;
use crate::error::{OrRaise, Oversize};
use crate::task::Task;
use crate::wait::in_slices;

/// A client of the core.
pub(super) trait Caller: Clone + Send + Sync + 'static {
    type Request<'a>: Copy + Send + Sync;
    type Reply: Send;

    /// Bytes that are copied to send it.
    fn len(request: Self::Request<'_>) -> usize;
    fn client(&self) -> &Client;
    fn send(&self, request: Self::Request<'_>, deadline: Deadline) -> Result<Ticket>;
    fn try_send(&self, request: Self::Request<'_>) -> Result<Option<Ticket>>;
    fn recv(&self, ticket: Ticket, deadline: Deadline) -> Result<Self::Reply>;
    fn try_recv(&self, ticket: Ticket) -> Result<Option<Self::Reply>>;
    fn abandon(&self, ticket: Ticket) -> Result<Option<Self::Reply>>;
}

/// Each client of the core has these by the same names. `len` and `message` tell of a request how
/// long it is and what the core sends; `client` is the client inside.
macro_rules! caller {
    ($Client:ty, $Request:ty, $Reply:ty, $len:ident, $message:ident, $client:expr) => {
        impl Caller for $Client {
            type Request<'a> = $Request;
            type Reply = $Reply;

            fn len(request: Self::Request<'_>) -> usize {
                $len(request)
            }

            fn client(&self) -> &Client {
                $client(self)
            }

            fn send(&self, request: Self::Request<'_>, deadline: Deadline) -> Result<Ticket> {
                self.send($message(request), deadline)
            }

            fn try_send(&self, request: Self::Request<'_>) -> Result<Option<Ticket>> {
                self.try_send($message(request))
            }

            fn recv(&self, ticket: Ticket, deadline: Deadline) -> Result<$Reply> {
                self.recv(ticket, deadline)
            }

            fn try_recv(&self, ticket: Ticket) -> Result<Option<$Reply>> {
                self.try_recv(ticket)
            }

            fn abandon(&self, ticket: Ticket) -> Result<Option<$Reply>> {
                self.abandon(ticket)
            }
        }
    };
}

caller!(Client, (&'a [u8], u32), Reply, data_len, message, identity);
caller!(IntClient, i64, i64, number_len, identity, IntClient::get_ref);

fn data_len((data, _): (&[u8], u32)) -> usize {
    data.len()
}

fn number_len(number: i64) -> usize {
    size_of_val(&number)
}

pub(super) fn message((data, flags): (&[u8], u32)) -> Message<'_> {
    Message::new(data).flags(flags)
}

const CLIENT: &str = "reqrep client";

/// How a client was set: redeliveries, needs_server, max_in_flight.
pub(super) type Terms = (u8, bool, u32);

/// What makes a client like this one in another process: the segment, and those.
pub(super) type Settings = (Py<Segment>, u8, bool, u32);

/// What a client does, on Python's terms.
pub(super) struct Calls<C> {
    client: Shared<C>,
    segment: Py<Segment>,
    terms: Terms,
}

impl<C: Caller> Calls<C> {
    pub(super) fn new(client: C, segment: Py<Segment>, terms: Terms) -> Calls<C> {
        Calls { client: Shared::new("client", client), segment, terms }
    }

    pub(super) fn call(
        &self,
        py: Python<'_>,
        request: C::Request<'_>,
        deadline: Deadline,
    ) -> PyResult<C::Reply> {
        let (mut client, mut sent) = (None, None);
        let done = in_slices(py, deadline, |slice| {
            // Refused once it is closed; the clone from before is still good to give the call up
            // with.
            let client = &*client.insert(self.get(py)?);
            Ok(py.detach(|| {
                let ticket = match sent {
                    Some(ticket) => ticket,
                    None => *sent.insert(client.send(request, slice)?),
                };
                client.recv(ticket, slice)
            }))
        });
        if let Ok(Ok(reply)) = done {
            return Ok(reply);
        }
        // Nobody has the ticket but this, so the call must not stay behind.
        let abandoned = client.zip(sent).map_or(Ok(None), |(client, ticket)| client.abandon(ticket));
        // What a signal handler has raised counts more than a reply at the last moment.
        let outcome = done?.or_else(|error| abandoned?.ok_or(error));
        outcome.map_err(|error| self.for_request(C::len(request), error)).or_raise(py)
    }

    pub(super) fn send(&self, py: Python<'_>, request: C::Request<'_>, deadline: Deadline) -> PyResult<u64> {
        let send = |client: &C, slice| {
            let sent = py.detach(|| client.send(request, slice));
            sent.map_err(|error| self.for_request(C::len(request), error))
        };
        self.client.wait(py, deadline, CLIENT, send).map(Ticket::to_bits)
    }

    pub(super) fn try_send(&self, py: Python<'_>, request: C::Request<'_>) -> PyResult<Option<u64>> {
        let client = self.get(py)?;
        let sent = unless_small(py, C::len(request), || client.try_send(request));
        let sent = sent.map_err(|error| self.for_request(C::len(request), error));
        Ok(sent.or_raise(py)?.map(Ticket::to_bits))
    }

    pub(super) fn recv(&self, py: Python<'_>, ticket: u64, deadline: Deadline) -> PyResult<C::Reply> {
        let ticket = Ticket::from_bits(ticket);
        self.client.wait(py, deadline, CLIENT, |client, slice| py.detach(|| client.recv(ticket, slice)))
    }

    pub(super) fn try_recv(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<C::Reply>> {
        let (client, ticket) = (self.get(py)?, Ticket::from_bits(ticket));
        // Who looks in vain keeps the interpreter lock, however large a reply may be.
        unless_small(py, client.client().reply_len(ticket), || client.try_recv(ticket)).or_raise(py)
    }

    pub(super) fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<bool> {
        self.get(py)?.client().cancel(Ticket::from_bits(ticket)).or_raise(py)
    }

    pub(super) fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.client().pending())
    }

    pub(super) fn doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.client().doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn send_doorbell(&self, py: Python<'_>) -> PyResult<i32> {
        self.get(py)?.client().send_doorbell().or_raise(py).map(IntoRawFd::into_raw_fd)
    }

    pub(super) fn segment(&self, py: Python<'_>) -> Py<Segment> {
        self.segment.clone_ref(py)
    }

    pub(super) fn settings(&self, py: Python<'_>) -> Settings {
        let (redeliveries, needs_server, max_in_flight) = self.terms;
        (self.segment(py), redeliveries, needs_server, max_in_flight)
    }

    fn for_request(&self, len: usize, error: Error) -> Oversize {
        for_request(len, self.largest_request(), error)
    }

    fn largest_request(&self) -> usize {
        self.segment.get().get_ref().geometry().request_bytes as usize
    }

    pub(super) fn get(&self, py: Python<'_>) -> PyResult<C> {
        self.client.get(py, CLIENT)
    }

    /// The coroutine of what `start` begins with the client: it ends when the client is closed. It
    /// copies `len` bytes until `ticket` is there, and then those of its reply.
    pub(super) fn start<'py, F: Future<Output = Result<C::Reply>> + Send + 'static>(
        &self,
        py: Python<'py>,
        len: usize,
        ticket: Arc<OnceLock<Ticket>>,
        start: impl FnOnce(C) -> F,
        give: impl Fn(Python<'_>, C::Reply) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        C::Reply: 'static,
    {
        let (client, most) = (self.get(py)?, self.largest_request());
        let reply = self.client.until_closed(start(client.clone()));
        let copied = move || ticket.get().map_or(len, |ticket| client.client().reply_len(*ticket));
        let give = move |py: Python<'_>, reply: Option<Result<C::Reply>>| match reply {
            Some(reply) => give(py, reply.map_err(|error| for_request(len, most, error)).or_raise(py)?),
            None => Err(closed(py, "client", CLIENT)),
        };
        Task::new(copied, reply, give).start(py)
    }

    pub(super) fn close(&self) {
        self.client.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

fn for_request(len: usize, most: usize, error: Error) -> Oversize {
    Oversize { error, len, option: "the segment's request_bytes", most }
}
