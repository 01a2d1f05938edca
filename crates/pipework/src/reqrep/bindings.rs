//! For bindings to other languages only. Calls go in two steps, between which the binding releases
//! a lock of its language. Requests are used by their tickets, with payloads in the binding's
//! memory.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use super::client::{Client, may_be_open};
use super::layout::Direction;
use super::place::Sending;
use super::reply::{Answer, CallError};
use super::request::Request;
use super::server::Server;
use super::serving::{Receipt, Wanted};
use super::word::Ticket;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::{Message, Payload};
use crate::sync::KeptFd;
use crate::sys;
use crate::sys::known::KnownFile;

/// A descriptor that a binding keeps by its number, or gives to an event loop. The program may close
/// it, and open another file under its number: that file is neither read, written nor closed.
#[derive(Debug)]
pub struct KeptDescriptor(KeptFd);

impl KeptDescriptor {
    /// A new eventfd.
    pub fn eventfd() -> Result<KeptDescriptor> {
        let made = KeptFd::open(|| sys::eventfd().and_then(KnownFile::nameless));
        made.map(KeptDescriptor).map_err(|errno| errno.at("eventfd"))
    }

    /// Keeps a doorbell, a pidfd or an epoll instance. Nobody else may have its open file, which gets
    /// the mark.
    pub fn new(fd: OwnedFd) -> Result<KeptDescriptor> {
        let kept = KeptFd::open(|| KnownFile::nameless(fd));
        kept.map(KeptDescriptor).map_err(|errno| errno.at("keep a descriptor"))
    }

    /// Whether the program has left it open.
    pub fn is_intact(&self) -> bool {
        self.0.is_intact()
    }

    /// Its number.
    pub fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Makes an eventfd readable.
    pub fn ring(&self) {
        self.0.intact().map(sys::eventfd_ring);
    }

    /// Makes an eventfd unreadable.
    pub fn clear(&self) {
        self.0.intact().map(sys::eventfd_clear);
    }
}

const CALL: &str = "reqrep call";
const RECV: &str = "reqrep recv";
const REPLY: &str = "reqrep reply";

/// Calls in two steps.
impl Client {
    /// As [`send`](Client::send), but only the caller receives the call:
    /// [`recv_any`](Client::recv_any), [`doorbell`](Client::doorbell) and
    /// [`forget_all`](Client::forget_all) leave it out.
    #[doc(hidden)]
    pub fn start_call<'a>(&self, request: impl Into<Message<'a>>, deadline: Deadline) -> Result<Ticket> {
        self.start_by(&request.into(), &|| deadline, Sending::new(false), CALL)
    }

    /// As [`call_async`](Client::call_async). Sets `sent` to the ticket once the request is sent,
    /// to ask for [the size of the reply](Client::reply_len). Do not receive the ticket.
    #[doc(hidden)]
    pub async fn call_async_with<'a>(
        &self,
        request: impl Into<Message<'a>>,
        sent: &OnceLock<Ticket>,
    ) -> Answer {
        let ticket = self.start_async(&request.into(), Sending::new(false), CALL).await?;
        sent.get_or_init(|| ticket);
        self.finish_async(ticket).await
    }

    /// Polls for an outcome for as long as a wait would spin; returns whether it has found one. For
    /// callers that hold a lock which others need, and release it before a wait that parks.
    #[doc(hidden)]
    pub fn spin_for(&self, ticket: Ticket) -> Result<bool> {
        if self.poll(ticket, RECV)?.is_some() {
            return Ok(true);
        }
        Ok(self.sender().held_spin().briefly(|| self.poll(ticket, RECV))?.is_some())
    }

    /// Whether [`spin_for`](Client::spin_for) would spin. If recent spins failed, because the other
    /// side needs the same lock, release it before sending; otherwise the server wakes only to block
    /// on it.
    #[doc(hidden)]
    pub fn is_to_spin(&self) -> bool {
        self.sender().held_spin().is_due()
    }

    /// Waits until the call can be received.
    #[doc(hidden)]
    pub fn wait_for(&self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        let waited = self.wait_until(ticket, &|| deadline, RECV, || self.poll(ticket, RECV));
        waited.map(drop).inspect_err(|error| self.looked(ticket, may_be_open(error.kind())))
    }

    /// Cancels a call. False if it is done: then [`recv`](Client::recv) gets its outcome.
    ///
    /// Fails with `Stale` if the call is over already, or is not this client's.
    #[doc(hidden)]
    pub fn cancel_unless_done(&self, ticket: Ticket) -> Result<bool> {
        self.cancel_if_open(ticket)
    }
}

/// Payloads in memory that the binding has.
impl Client {
    /// Whether blobs are attached to a reply that has come. [`recv_into`](Client::recv_into) drops
    /// them. This is a hint, as [`reply_len`](Client::reply_len).
    #[doc(hidden)]
    pub fn reply_has_blobs(&self, ticket: Ticket) -> bool {
        self.shared().slot(ticket.idx()).is_some_and(|slot| {
            slot.load().generation() == ticket.generation() && slot.named(Direction::Reply).attached() > 0
        })
    }

    /// As [`recv`](Client::recv); the reply replaces the contents of `into`. Returns the flags.
    #[doc(hidden)]
    pub fn recv_to(&self, ticket: Ticket, into: &mut Vec<u8>, deadline: Deadline) -> Answer<u32> {
        into.clear();
        let flags = match self.wait_until(ticket, &|| deadline, RECV, || self.poll(ticket, RECV)) {
            Ok(done) if done.is_answered() => {
                let held = self.hold(ticket, done, RECV);
                held.and_then(|held| self.append_reply(ticket, held, into, RECV)).map_err(CallError::from)
            }
            Ok(done) => self.collect(ticket, done, RECV).map(|reply| reply.move_to(into)),
            Err(error) => Err(error.into()),
        };
        self.noted(ticket, flags)
    }
}

/// A request that was left with its server.
#[derive(Clone, Copy, Debug)]
pub struct KeptRequest {
    /// The ticket that takes it [back](Server::kept).
    pub ticket: Ticket,
    /// As [`Request::flags`].
    pub flags: u32,
    /// As [`Request::redeliveries`].
    pub redeliveries: u8,
}

impl Request<'_> {
    /// Drops the bytes that were received, because the binding has a copy.
    #[doc(hidden)]
    pub fn drop_payload(&mut self) {
        self.payload = Payload::empty();
    }
}

/// Requests by their tickets.
impl Server {
    /// As [`Client::spin_for`]: whether a request waits.
    #[doc(hidden)]
    pub fn spin_for_any(&self) -> bool {
        let look = || Ok::<_, Error>(self.serving().shared().has_request().then_some(()));
        self.serving().held_spin().briefly(look).is_ok_and(|found| found.is_some())
    }

    /// As [`recv`](Server::recv), but [keeps](Request::keep) the request. Its bytes replace the
    /// contents of `into`.
    #[doc(hidden)]
    pub fn recv_to(&self, into: &mut Vec<u8>, deadline: Deadline) -> Result<KeptRequest> {
        loop {
            into.clear();
            let mut receipt = Receipt::new(Wanted::Bytes(into));
            let found = self.find_until(&mut receipt, &|| deadline)?;
            let received = receipt.take();
            let mut request = self.request(found);
            if request.receive_to(into, received)? {
                let (flags, redeliveries) = (request.flags(), request.redeliveries());
                return Ok(KeptRequest { ticket: request.leave(), flags, redeliveries });
            }
            if deadline.has_passed() {
                return Err(Error::new(ErrorKind::TimedOut, RECV));
            }
        }
    }

    /// As [`Request::try_reply`] of a request that was kept. A request that is still open
    /// afterwards stays kept. `None` if no request with this ticket is kept.
    #[doc(hidden)]
    pub fn reply_to(&self, ticket: Ticket, reply: &Message<'_>) -> Result<Option<bool>> {
        let Some(mut request) = self.kept(ticket)? else { return Ok(None) };
        let answered = request.try_reply(*reply);
        if !request.is_over() {
            request.keep();
        }
        answered.map(Some)
    }

    /// As [`reply_to`](Server::reply_to), but waits for the client until the deadline. The request
    /// stays kept after `TimedOut` and `Interrupted`, too.
    #[doc(hidden)]
    pub fn reply_until(
        &self,
        ticket: Ticket,
        reply: &Message<'_>,
        deadline: Deadline,
    ) -> Result<Option<bool>> {
        let Some(mut request) = self.kept(ticket)? else { return Ok(None) };
        let waits =
            |request: &Request<'_>| request.serving().wait_for_turn(request.claimed(), deadline, REPLY);
        let answered = request.answer_by(reply, waits);
        match &answered {
            Err(error) if is_open_after(error.kind()) => _ = request.keep(),
            Err(error) => request.fail_for(*error),
            Ok(_) => {}
        }
        answered.map(Some)
    }
}

impl Request<'_> {
    /// As [`reply`](Request::reply), if it need not wait for the client; otherwise `None`, and
    /// nothing was given.
    #[doc(hidden)]
    pub fn reply_at_once(&mut self, reply: &Message<'_>) -> Result<Option<bool>> {
        self.answer_now(reply)
    }
}

/// Whether a kept request stays kept after this error of its reply.
fn is_open_after(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::TooLong | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
