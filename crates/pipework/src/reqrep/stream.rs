//! A reply that is received part by part.

use std::time::Duration;

use super::client::{Client, may_be_open};
use super::place::Sending;
use super::reply::{Answer, CallError, Reply};
use super::slot::State;
use super::word::Ticket;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::segment::message::Message;

pub(super) const STREAM: &str = "reqrep stream";

/// The parts of a reply, as its server gives them: what [`Client::stream`] returns.
///
/// It is an iterator, which ends after the first error. [`next_part`](Stream::next_part) takes its
/// own deadline for each part, and can be called again after it timed out. Dropping the stream
/// before its end cancels the call.
#[derive(Debug)]
pub struct Stream {
    pub(super) client: Client,
    pub(super) progress: Progress,
    each: Duration,
}

/// The state of a stream.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None` once the call is over. No other part of the process has it.
    pub(super) ticket: Option<Ticket>,
    /// The flags of the last part, once that has come.
    end_flags: u32,
}

impl Client {
    /// Sends a request and returns the parts of its reply, one after the other, as the server
    /// [gives](super::Request::part) them. `each` limits the wait for a slot, for a server to take
    /// the request, and for each part.
    ///
    /// A server that answers at once gives one part. An empty last reply only ends the stream.
    /// Dropping the stream cancels the call, and the server finds out with its next part.
    ///
    /// # Blocking
    ///
    /// As [`send`](Client::send), with `each` for the deadline.
    ///
    /// # Errors
    ///
    /// As [`send`](Client::send).
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, reqrep::Options};
    /// use std::{thread, time::Duration};
    ///
    /// let segment = Options::new().anonymous()?;
    /// let server = segment.server()?;
    /// thread::spawn(move || {
    ///     let mut request = server.recv(Deadline::NEVER)?;
    ///     for word in ["one ", "two ", "three"] {
    ///         if !request.part(word, Duration::from_secs(5))? {
    ///             return Ok(false); // The caller has gone.
    ///         }
    ///     }
    ///     request.reply("")
    /// });
    /// let mut text = Vec::new();
    /// for part in segment.client()?.stream("count", Duration::from_secs(5))? {
    ///     text.extend_from_slice(&part?);
    /// }
    /// assert_eq!(text, b"one two three");
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn stream<'a>(&self, request: impl Into<Message<'a>>, each: Duration) -> Result<Stream> {
        let mut stream = self.stream_by(request, Deadline::after(each))?;
        stream.each = each;
        Ok(stream)
    }

    /// As [`stream`](Client::stream), with a deadline for sending and none for the parts.
    #[doc(hidden)]
    pub fn stream_by<'a>(&self, request: impl Into<Message<'a>>, deadline: Deadline) -> Result<Stream> {
        let ticket = self.start_by(&request.into(), &|| deadline, Sending::for_parts(), STREAM)?;
        Ok(Stream::new(self.clone(), ticket, Duration::MAX))
    }
}

impl Stream {
    pub(super) fn new(client: Client, ticket: Ticket, each: Duration) -> Stream {
        let progress = Progress { ticket: Some(ticket), end_flags: 0 };
        Stream { client, progress, each }
    }

    /// The next part of the reply; `None` after the last.
    ///
    /// # Blocking
    ///
    /// Until the part comes, or until the deadline. The death of the server is noticed as in
    /// [`Client::call`].
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the stream can go on, so call it again. After any other error the
    /// stream is over: `PeerDied`, `Failed`, `NoServer`, `TooLong`, `Corrupt` and `Os`, as those of
    /// [`Client::recv`].
    pub fn next_part(&mut self, deadline: impl Into<Deadline>) -> Answer<Option<Reply>> {
        let Stream { client, progress, .. } = self;
        let (Some(ticket), deadline) = (progress.ticket, deadline.into()) else { return Ok(None) };
        client.wait_until(ticket, &|| deadline, STREAM, || progress.advance(client))?
    }

    /// As [`next_part`](Stream::next_part), without waiting: `None` also if no part has come yet.
    /// At the end of the stream, [`ticket`](Stream::ticket) is `None` too.
    ///
    /// # Errors
    ///
    /// As [`next_part`](Stream::next_part), but never `TimedOut` or `Interrupted`.
    pub fn try_next_part(&mut self) -> Answer<Option<Reply>> {
        let Stream { client, progress, .. } = self;
        let Some(ticket) = progress.ticket else { return Ok(None) };
        let look = || progress.advance(client)?.transpose();
        client.poll_only(ticket, STREAM, look).map(Option::flatten)
    }

    /// The ticket of its call while that is in progress. `None` once the call is over: after an
    /// error, and after the last part, which is how to recognise it.
    pub fn ticket(&self) -> Option<Ticket> {
        self.progress.ticket
    }

    /// The flags of the last part, also if that is empty and only ends the stream; 0 before it.
    pub fn end_flags(&self) -> u32 {
        self.progress.end_flags
    }
}

impl Progress {
    /// Takes the part that has come; `None` for the end.
    pub(super) fn advance(&mut self, client: &Client) -> Result<Option<Answer<Option<Reply>>>> {
        let Some(ticket) = self.ticket else { return Ok(Some(Ok(None))) };
        let advanced = self.advance_in(client, ticket);
        if advanced.as_ref().is_err_and(|error| !may_be_open(error.kind())) {
            self.ticket = None;
        }
        advanced
    }

    fn advance_in(&mut self, client: &Client, ticket: Ticket) -> Result<Option<Answer<Option<Reply>>>> {
        let Some(word) = client.poll(ticket, STREAM)? else { return Ok(None) };
        if word.state() == Some(State::Part) {
            let mut part = Reply::empty();
            let (into, max) = ((&mut part.payload, &mut part.blobs), client.inner.max_message);
            let taken = client.shared().take_part(ticket.idx(), word, into, max, STREAM);
            let Some(flags) = taken.inspect_err(|_| self.cancel(client, ticket))? else { return Ok(None) };
            part.flags = flags;
            return Ok(Some(Ok(Some(part))));
        }
        self.ticket = None;
        let last = client.take_out(ticket, word, word, STREAM);
        Ok(Some(last.map(|last| {
            self.end_flags = last.flags();
            (!last.is_empty() || !last.blobs().is_empty()).then_some(last)
        })))
    }

    /// Ends the stream after a part that cannot be received.
    fn cancel(&mut self, client: &Client, ticket: Ticket) {
        self.ticket = None;
        // `Stale` means that it has ended already.
        let _ = client.cancel_if_open(ticket);
    }
}

impl Iterator for Stream {
    type Item = std::result::Result<Reply, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        let part = self.next_part(self.each);
        if part.is_err() {
            self.cancel();
        }
        part.transpose()
    }
}

impl Stream {
    fn cancel(&mut self) {
        if let Some(ticket) = self.progress.ticket.take() {
            // No caller is left to report the outcome to.
            let _ = self.client.cancel(ticket);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel();
    }
}
