//! The two ends for single numbers: a payload is one `i64`.

use std::time::Duration;

use super::client::{Client, Outcome, Reply};
use super::request::Request;
use super::segment::Segment;
use super::server::Server;
use super::shm::layout::Kind;
use super::shm::payload::Message;
use super::shm::ticket::Ticket;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};

/// A [`Client`] whose requests and replies are numbers.
#[derive(Clone, Debug)]
pub struct IntClient(pub(super) Client);

/// A [`Server`] whose requests and replies are numbers.
#[derive(Clone, Debug)]
pub struct IntServer(pub(super) Server);

/// A [`Request`] that is a number.
#[derive(Debug)]
pub struct IntRequest<'a> {
    value: i64,
    request: Request<'a>,
}

impl Segment {
    /// Attaches a client to a segment of integers.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client), with `Incompatible` for a segment of bytes.
    pub fn int_client(&self) -> Result<IntClient> {
        Client::new(self, Kind::Integers).map(IntClient)
    }

    /// Attaches a server to a segment of integers.
    ///
    /// # Errors
    ///
    /// As [`int_client`](Segment::int_client).
    pub fn int_server(&self) -> Result<IntServer> {
        Server::new(self, Kind::Integers).map(IntServer)
    }
}

impl IntClient {
    /// As [`Client::redeliveries`].
    pub fn redeliveries(self, times: u8) -> IntClient {
        IntClient(self.0.redeliveries(times))
    }

    /// As [`Client::needs_server`].
    pub fn needs_server(self, yes: bool) -> IntClient {
        IntClient(self.0.needs_server(yes))
    }

    /// As [`Client::max_in_flight`].
    pub fn max_in_flight(self, calls: u32) -> IntClient {
        IntClient(self.0.max_in_flight(calls))
    }

    /// As [`Client::segment`].
    pub fn segment(&self) -> &Segment {
        self.0.segment()
    }

    /// As [`Client::call`].
    pub fn call(&self, request: i64, deadline: impl Into<Deadline>) -> Result<i64> {
        self.0.call(&request.to_ne_bytes(), deadline).and_then(|reply| value_of(&reply))
    }

    /// As [`Client::send`].
    pub fn send(&self, request: i64, deadline: impl Into<Deadline>) -> Result<Ticket> {
        self.0.send(&request.to_ne_bytes(), deadline)
    }

    /// As [`Client::try_send`].
    pub fn try_send(&self, request: i64) -> Result<Option<Ticket>> {
        self.0.try_send(&request.to_ne_bytes())
    }

    /// As [`Client::recv`].
    pub fn recv(&self, ticket: Ticket, deadline: impl Into<Deadline>) -> Result<i64> {
        self.0.recv(ticket, deadline).and_then(|reply| value_of(&reply))
    }

    /// As [`Client::try_recv`].
    pub fn try_recv(&self, ticket: Ticket) -> Result<Option<i64>> {
        self.0.try_recv(ticket)?.map(|reply| value_of(&reply)).transpose()
    }

    /// As [`Client::cancel`].
    pub fn cancel(&self, ticket: Ticket) -> Result<bool> {
        self.0.cancel(ticket)
    }

    /// As [`Client::abandon`].
    pub fn abandon(&self, ticket: Ticket) -> Result<Option<i64>> {
        self.0.abandon(ticket)?.map(|reply| value_of(&reply)).transpose()
    }

    /// As [`Client::forget`].
    pub fn forget(&self, ticket: Ticket) -> Result<()> {
        self.0.forget(ticket)
    }

    /// As [`Client::send_many`].
    pub fn send_many(
        &self,
        requests: impl IntoIterator<Item = i64>,
        deadline: impl Into<Deadline>,
    ) -> Result<Vec<Ticket>> {
        let requests: Vec<_> = requests.into_iter().map(i64::to_ne_bytes).collect();
        self.0.send_many(&requests, deadline)
    }

    /// As [`Client::recv_any`].
    pub fn recv_any(&self, deadline: impl Into<Deadline>) -> Result<Option<(Ticket, Result<i64>)>> {
        let received = self.0.recv_any(deadline)?;
        let value = |outcome: Outcome| outcome.into_reply(RECV_ANY).and_then(|reply| value_of(&reply));
        Ok(received.map(|(ticket, outcome)| (ticket, outcome.and_then(value))))
    }

    /// As [`Client::pending`].
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// As [`Client::call_async`].
    pub async fn call_async(&self, request: i64) -> Result<i64> {
        self.0.call_async(&request.to_ne_bytes()).await.and_then(|reply| value_of(&reply))
    }

    /// As [`Client::send_async`].
    pub async fn send_async(&self, request: i64) -> Result<Ticket> {
        self.0.send_async(&request.to_ne_bytes()).await
    }

    /// As [`Client::recv_async`].
    pub async fn recv_async(&self, ticket: Ticket) -> Result<i64> {
        self.0.recv_async(ticket).await.and_then(|reply| value_of(&reply))
    }

    /// The client inside, for its eventfds and doorbells. Numbers are sent and received through
    /// this one.
    pub fn get_ref(&self) -> &Client {
        &self.0
    }
}

impl IntServer {
    /// As [`Server::segment`].
    pub fn segment(&self) -> &Segment {
        self.0.segment()
    }

    /// As [`Server::recv`].
    pub fn recv(&self, deadline: impl Into<Deadline>) -> Result<IntRequest<'_>> {
        self.0.recv(deadline).map(IntRequest::new)
    }

    /// As [`Server::try_recv`].
    pub fn try_recv(&self) -> Result<Option<IntRequest<'_>>> {
        Ok(self.0.try_recv()?.map(IntRequest::new))
    }

    /// As [`Server::recv_many`].
    pub fn recv_many(
        &self,
        max: usize,
        deadline: impl Into<Deadline>,
        linger: Duration,
    ) -> Result<Vec<IntRequest<'_>>> {
        Ok(self.0.recv_many(max, deadline, linger)?.into_iter().map(IntRequest::new).collect())
    }

    /// As [`Server::drain`].
    pub fn drain(&self, max: usize) -> Result<Vec<IntRequest<'_>>> {
        Ok(self.0.drain(max)?.into_iter().map(IntRequest::new).collect())
    }

    /// As [`Server::clear`].
    pub fn clear(&self) -> Result<usize> {
        self.0.clear()
    }

    /// As [`Server::stop`].
    pub fn stop(&self) {
        self.0.stop();
    }

    /// As [`Server::kept`].
    pub fn kept(&self, ticket: Ticket) -> Result<Option<IntRequest<'_>>> {
        self.0.kept(ticket)?.map(IntRequest::read).transpose()
    }

    /// As [`Server::adopt`].
    pub fn adopt(&self, ticket: Ticket) -> Result<IntRequest<'_>> {
        IntRequest::read(self.0.adopt(ticket)?)
    }

    /// As [`Server::recv_async`].
    pub async fn recv_async(&self) -> Result<IntRequest<'_>> {
        self.0.recv_async().await.map(IntRequest::new)
    }

    /// The server inside, for its eventfds and its doorbell. Numbers are received through this one.
    pub fn get_ref(&self) -> &Server {
        &self.0
    }
}

impl<'a> IntRequest<'a> {
    fn new(request: Request<'a>) -> IntRequest<'a> {
        // A payload of another size was written by no client of ours; zero is as wrong an answer as
        // any.
        let value = request.payload().try_into().map_or(0, i64::from_ne_bytes);
        IntRequest { value, request }
    }

    /// One whose number is still in the segment.
    fn read(mut request: Request<'a>) -> Result<IntRequest<'a>> {
        request.read()?;
        Ok(IntRequest::new(request))
    }

    /// The number.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// As [`Request::ticket`].
    pub fn ticket(&self) -> Ticket {
        self.request.ticket()
    }

    /// As [`Request::keep`].
    pub fn keep(self) -> Ticket {
        self.request.keep()
    }

    /// As [`Request::redeliveries`].
    pub fn redeliveries(&self) -> u8 {
        self.request.redeliveries()
    }

    /// As [`Request::is_wanted`].
    pub fn is_wanted(&self) -> bool {
        self.request.is_wanted()
    }

    /// As [`Request::into_owned`].
    pub fn into_owned(self) -> IntRequest<'static> {
        IntRequest { value: self.value, request: self.request.into_owned() }
    }

    /// As [`Request::reply`].
    pub fn reply(self, reply: i64) -> Result<bool> {
        self.request.reply(Message::new(&reply.to_ne_bytes()))
    }

    /// As [`Request::fail`], without a reason: there is space for a number.
    pub fn fail(self) -> bool {
        self.request.fail("")
    }
}

const RECV_ANY: &str = "reqrep recv any";

fn value_of(reply: &Reply) -> Result<i64> {
    let bytes = (**reply).try_into().map_err(|_| Error::new(ErrorKind::Corrupt, "reqrep recv"))?;
    Ok(i64::from_ne_bytes(bytes))
}
