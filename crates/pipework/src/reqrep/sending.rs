//! Sending requests: one, several, or written in place.

use std::cell::LazyCell;

use super::client::Client;
use super::layout::Direction;
use super::place::Sending;
use super::word::Ticket;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::{Message, Space};
use crate::segment::naming::Naming;

const SEND: &str = "reqrep send";

/// Sending.
impl Client {
    /// Sends a request and returns the ticket for its reply. Any number of calls may be in
    /// progress, up to the slots of the segment.
    ///
    /// # Blocking
    ///
    /// Until a slot is free, or until the deadline.
    ///
    /// # Errors
    ///
    /// As [`call`](Client::call), but never `PeerDied`, `Failed` or ENOMEM: [`recv`](Client::recv)
    /// returns those. After any error, no server has the request. `TimedOut` and `Interrupted` mean
    /// that no slot was free.
    #[inline]
    pub fn send<'a>(&self, request: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Result<Ticket> {
        let deadline = LazyCell::new(|| deadline.into());
        let ticket = self.start_by(&request.into(), &|| *deadline, Sending::new(true), SEND)?;
        self.sent(ticket);
        Ok(ticket)
    }

    /// Sends a request if a slot is free; `None` if none is. It does not block.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send), but never `TimedOut` or `Interrupted`.
    #[inline]
    pub fn try_send<'a>(&self, request: impl Into<Message<'a>>) -> Result<Option<Ticket>> {
        let ticket = self.start(&request.into(), None, Sending::new(true), SEND);
        match ticket {
            Ok(Some(ticket)) => self.sent(ticket),
            // An event loop continues after an error, too.
            Ok(None) | Err(_) => self.sender().found_no_slot(),
        }
        ticket
    }

    /// Sends a request of up to `len` bytes that `write` writes directly into the slot. If `write`
    /// fails, nothing is sent, and this returns its error.
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

    /// Sends several requests, and wakes servers once for all of them. Returns their tickets in
    /// this order. After an error it returns the tickets so far, and the next call returns the
    /// error.
    ///
    /// # Blocking
    ///
    /// Until each request had a slot, or until the deadline.
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
            let quietly = Sending { quietly: true, ..Sending::new(true) };
            let ticket = match self.start(&request, None, quietly, SEND)? {
                Some(ticket) => {
                    many.quiet += 1;
                    ticket
                }
                None => {
                    // Announce before the wait: a slot may become free only after servers took
                    // these requests.
                    many.announce();
                    self.start_by(&request, &|| deadline, Sending::new(true), SEND)?
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

/// Requests that are sent together. Dropping it cancels them: then the caller's iterator has
/// panicked, and no caller has their tickets.
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
    #[inline]
    pub(super) fn start_by(
        &self,
        request: &Message<'_>,
        deadline: Later<'_>,
        sending: Sending,
        op: &'static str,
    ) -> Result<Ticket> {
        let started = self.start(request, Some(deadline), sending, op)?;
        started.ok_or(Error::new(ErrorKind::TimedOut, op))
    }

    /// As `start_by`; without a deadline `None` if no slot is free.
    #[inline]
    fn start(
        &self,
        request: &Message<'_>,
        deadline: Option<Later<'_>>,
        sending: Sending,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        self.shared().admit(Direction::Request, request, self.inner.max_message, op)?;
        let write = |idx| self.shared().write(idx, Direction::Request, request, op);
        self.sender().place(write, sending, deadline, None, op)
    }
}
