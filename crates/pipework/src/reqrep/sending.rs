//! How requests are sent: at once, several, written in place, or in parts.

use std::cell::LazyCell;
use std::ops::ControlFlow::{Break, Continue};

use super::client::Client;
use super::gathering::Step;
use super::place::Sending;
use super::shm::call::Standing;
use super::shm::layout::Direction;
use super::shm::naming::Naming;
use super::shm::payload::{Message, Space};
use super::shm::slot::State;
use super::shm::ticket::Ticket;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};

const SEND: &str = "reqrep send";

/// Sending.
impl Client {
    /// Sends a request and returns the ticket for its reply. Any number of calls may be in
    /// progress, up to the slots of the segment.
    ///
    /// # Blocking
    ///
    /// Until a slot is free, or until the deadline. A request that is longer than a slot: until a
    /// server has taken all but the last part of it.
    ///
    /// # Errors
    ///
    /// As [`call`](Client::call), but never `PeerDied`, `Failed` or ENOMEM: these are for
    /// [`recv`](Client::recv). Whatever the error is, no server has the whole request. `TimedOut`
    /// and `Interrupted` mean that there was no slot, or that the server has not taken a request
    /// that is longer than one: that call is cancelled.
    #[inline]
    pub fn send<'a>(&self, request: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Result<Ticket> {
        let deadline = LazyCell::new(|| deadline.into());
        let ticket = self.start_by(&request.into(), &|| *deadline, true, SEND)?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// Sends a request if a slot is free; `None` if none is. It does not block.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send), but never `TimedOut` or `Interrupted`; `TooLong` if the request
    /// is longer than a slot.
    #[inline]
    pub fn try_send<'a>(&self, request: impl Into<Message<'a>>) -> Result<Option<Ticket>> {
        let ticket = self.start(&request.into(), None, true, SEND);
        match ticket {
            Ok(Some(ticket)) => self.sent(ticket),
            // An event loop goes on after an error, too.
            Ok(None) | Err(_) => self.sender().found_no_slot(),
        }
        ticket
    }

    /// Sends a request of up to `len` bytes that `write` writes into the slot, so that it is not
    /// copied. If `write` fails, nothing is sent, and its error is returned.
    ///
    /// # Blocking
    ///
    /// Until a slot is free, or until the deadline. `write` keeps the slot while it runs.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send); `TooLong` if `len` is more than a slot holds.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::Write;
    /// use std::time::Duration;
    ///
    /// # let segment = pipework::reqrep::Options::new().anonymous()?;
    /// let client = segment.client()?;
    /// let ticket = client.send_with(64, Duration::from_secs(1), |space| {
    ///     write!(space, "{{\"id\":{}}}", 7).expect("there is space for 64 bytes");
    ///     Ok(())
    /// })?;
    /// # let server = segment.server()?;
    /// # let request = server.recv(Duration::from_secs(1))?;
    /// # assert_eq!(&*request, b"{\"id\":7}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_with(
        &self,
        len: usize,
        deadline: impl Into<Deadline>,
        write: impl FnOnce(&mut Space<'_>) -> Result<()>,
    ) -> Result<Ticket> {
        let write = |idx| {
            self.shared().write_with(idx, Direction::Request, len, write, SEND).map(|()| Naming::default())
        };
        if len > self.shared().geometry().bytes(Direction::Request) {
            return Err(Error::new(ErrorKind::TooLong, SEND));
        }
        let sending = Sending::new(true);
        let deadline = LazyCell::new(|| deadline.into());
        let placed = self.sender().place(write, sending, Some(&|| *deadline), None, SEND)?;
        let ticket = placed.ok_or(Error::new(ErrorKind::TimedOut, SEND))?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// Sends several requests, and wakes servers once for all of them. Returns their tickets, in
    /// this order: fewer than there are requests if an error came in between, which comes again
    /// with the next call.
    ///
    /// # Blocking
    ///
    /// Until there was a slot for each, or until the deadline.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send), if none could be sent.
    pub fn send_many<'a, M: Into<Message<'a>>>(
        &self,
        requests: impl IntoIterator<Item = M>,
        deadline: impl Into<Deadline>,
    ) -> Result<Vec<Ticket>> {
        let (deadline, mut many) = (deadline.into(), Many { client: self, tickets: Vec::new(), quiet: 0 });
        let outcome = requests.into_iter().try_for_each(|request| {
            let request = request.into();
            let ticket = match self.place_quietly(&request)? {
                Some(ticket) => {
                    many.quiet += 1;
                    ticket
                }
                None => {
                    // Before this waits: what it waits for may need them.
                    many.announce();
                    self.start_by(&request, &|| deadline, true, SEND)?
                }
            };
            self.sent(ticket);
            many.tickets.push(ticket);
            Ok(())
        });
        many.announce();
        let tickets = std::mem::take(&mut many.tickets);
        if tickets.is_empty() { outcome.map(|()| tickets) } else { Ok(tickets) }
    }
}

/// Requests that are sent together. Dropping it cancels them: the iterator that makes them is
/// foreign code and has panicked, and no caller has their tickets.
struct Many<'a> {
    client: &'a Client,
    tickets: Vec<Ticket>,
    /// How many of them servers were not notified of.
    quiet: u32,
}

impl Many<'_> {
    fn announce(&mut self) {
        self.client.sender().announce(std::mem::take(&mut self.quiet));
    }
}

impl Drop for Many<'_> {
    fn drop(&mut self) {
        self.announce();
        // No caller is left to report the outcomes to.
        self.tickets.drain(..).for_each(|ticket| drop(self.client.end_for(ticket, SEND)));
    }
}

/// Placing a request.
impl Client {
    /// Places a request and hands out what follows its first part.
    #[inline]
    pub(super) fn start_by(
        &self,
        request: &Message<'_>,
        deadline: Later<'_>,
        has_ticket: bool,
        op: &'static str,
    ) -> Result<Ticket> {
        let started = self.start(request, Some(deadline), has_ticket, op)?;
        started.ok_or(Error::new(ErrorKind::TimedOut, op))
    }

    /// The same; without a deadline only a request of one part, and `None` if no slot is free.
    #[inline]
    fn start(
        &self,
        request: &Message<'_>,
        deadline: Option<Later<'_>>,
        has_ticket: bool,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        if !self.shared().fits(Direction::Request, request) {
            return self.start_long(request, deadline, has_ticket, op);
        }
        let write = |idx| self.shared().write(idx, Direction::Request, request, op);
        self.sender().place(write, Sending::new(has_ticket), deadline, None, op)
    }

    /// The first part of a request, which is all of it if it fits into a slot, and what follows.
    pub(super) fn divide<'a>(
        &self,
        request: &Message<'a>,
        op: &'static str,
    ) -> Result<(Message<'a>, Message<'a>)> {
        self.shared().admit(Direction::Request, request, self.inner.max_message, op)?;
        Ok(self.shared().split(Direction::Request, request))
    }

    /// Places a request of one part if a slot is free, and wakes no server; `None` for a longer
    /// one.
    fn place_quietly(&self, request: &Message<'_>) -> Result<Option<Ticket>> {
        if !self.shared().fits(Direction::Request, request) {
            return Ok(None);
        }
        let write = |idx| self.shared().write(idx, Direction::Request, request, SEND);
        let sending = Sending { quietly: true, ..Sending::new(true) };
        self.sender().place(write, sending, None, None, SEND)
    }

    /// Hands out the next part of a request, if its server asks for it; the last step is the one
    /// after which all are handed out, or the server wants no more. Nobody else has the ticket
    /// before.
    pub(super) fn hand_out(
        &self,
        ticket: Ticket,
        rest: &mut Message<'_>,
        has_ticket: bool,
        op: &'static str,
    ) -> Result<Step<()>> {
        match self.standing(ticket, op)? {
            Standing::Turn(word) if word.state() == Some(State::More) => {
                let (part, follows) = self.shared().split(Direction::Request, rest);
                let is_last = follows.payload.is_empty();
                let last = is_last.then_some(has_ticket);
                if !self.shared().write_more(ticket.idx(), word, &part, last, op)? {
                    return Ok(Some(Continue(())));
                }
                *rest = follows;
                Ok(Some(if is_last { Break(()) } else { Continue(()) }))
            }
            Standing::Sent | Standing::Taken => Ok(None),
            // It is this client's turn, and the server wants no more.
            _ => {
                self.slot(ticket, op)?.set_whole(has_ticket);
                Ok(Some(Break(())))
            }
        }
    }
}

/// Requests that go in parts.
impl Client {
    #[cold]
    fn start_long(
        &self,
        request: &Message<'_>,
        deadline: Option<Later<'_>>,
        has_ticket: bool,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        let deadline = deadline.ok_or(Error::new(ErrorKind::TooLong, op))?();
        let (first, mut rest) = self.divide(request, op)?;
        let write = |idx| self.shared().write(idx, Direction::Request, &first, op);
        // The ticket is the caller's when all is handed out.
        let sending = Sending { follows: true, ..Sending::new(false) };
        let placed = self.sender().place(write, sending, Some(&|| deadline), None, op)?;
        let Some(ticket) = placed else { return Ok(None) };
        let step = || self.hand_out(ticket, &mut rest, has_ticket, op);
        // No other thread has the ticket, so a call that fails here must not stay behind.
        let handed_out = self.wait_for_steps(ticket, deadline, op, step);
        handed_out.inspect_err(|_| drop(self.end_own(ticket, op))).map(|()| Some(ticket))
    }
}
