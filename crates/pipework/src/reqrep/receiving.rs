//! Receiving replies: that of one call, of the call that ends first, or part by part.

use std::cell::LazyCell;
use std::time::Duration;

use super::calls::Standing;
use super::client::{Client, may_be_open};
use super::layout::Direction;
use super::place::Sending;
use super::reply::{Answer, CallError, Completion, Reply};
use super::shared::Shared;
use super::slot::{Mark, SlotWord, State};
use super::word::Ticket;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::Message;
use crate::segment::watch::NoneDone;
use crate::sync::Reach;

const RECV: &str = "reqrep recv";

/// Receiving.
impl Client {
    /// Waits for the reply of a call.
    ///
    /// # Blocking
    ///
    /// As [`call`](Client::call).
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the ticket stays valid. `PeerDied`, `Failed`, `NoServer`: the
    /// call is over. `TooLong`: the reply is longer than
    /// [`max_message`](super::ClientOptions::max_message), or has more bytes of blobs that have to be
    /// copied, and the call is over. `Stale`: the call
    /// was over already, or is not this client's, or its reply comes in parts. `Os`: with ENOMEM,
    /// EMFILE or ENOENT the call is over, as for [`call`](Client::call). With any other number the
    /// ticket stays valid, but the kernel does not say which members are alive, for instance because
    /// the program has closed a descriptor of the segment (EBADF). `Corrupt`: the segment was
    /// damaged. In a forked child also the errors of [`Segment::client`](super::Segment::client).
    #[inline]
    pub fn recv(&self, ticket: Ticket, deadline: impl Into<Deadline>) -> Answer {
        let deadline = LazyCell::new(|| deadline.into());
        match self.wait_until(ticket, &|| *deadline, RECV, || self.poll(ticket, RECV)) {
            Ok(done) if done.is_answered() => self.collect_reply(ticket, done),
            Ok(done) => self.recv_other(ticket, done),
            Err(error) => self.noted(ticket, Err(error.into())),
        }
    }

    /// Receives the reason why a call has no reply.
    #[cold]
    fn recv_other(&self, ticket: Ticket, done: SlotWord) -> Answer {
        self.noted(ticket, self.collect(ticket, done, RECV))
    }

    /// The reply of a call; `None` if it has not come. It does not block.
    ///
    /// # Errors
    ///
    /// As [`recv`](Client::recv), but never `TimedOut` or `Interrupted`.
    #[inline]
    pub fn try_recv(&self, ticket: Ticket) -> Answer<Option<Reply>> {
        match self.poll(ticket, RECV) {
            Ok(Some(done)) if done.is_answered() => self.collect_reply(ticket, done).map(Some),
            Ok(_) => {
                let found = self.poll_only(ticket, RECV, || self.look(ticket, RECV));
                let is_open = |error: &CallError| may_be_open(error.kind());
                self.looked(ticket, found.as_ref().map_or_else(is_open, Option::is_none));
                found
            }
            Err(error) => self.noted(ticket, Err(error.into())),
        }
    }

    /// Waits for the reply of a call, and copies it to the beginning of `into`. Returns its length
    /// and its flags.
    ///
    /// # Blocking
    ///
    /// As [`recv`](Client::recv).
    ///
    /// # Errors
    ///
    /// As [`recv`](Client::recv). `TooLong` if the reply is longer than `into`: the ticket stays
    /// valid, and [`reply_len`](Client::reply_len) returns the size that it needs.
    pub fn recv_into(
        &self,
        ticket: Ticket,
        into: &mut [u8],
        deadline: impl Into<Deadline>,
    ) -> Answer<(usize, u32)> {
        self.noted(ticket, self.receive_in_place(ticket, into, deadline.into()))
    }

    /// Waits for the call of this client that ends next, and returns its ticket with its reply or
    /// with the reason why it has none; `None` if no call is in progress. It covers all calls that
    /// were [sent](Client::send) by this client and its clones, and not received meanwhile.
    ///
    /// # Blocking
    ///
    /// Until a call ends, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`, `Corrupt` and `Os` as those of [`recv`](Client::recv), about the
    /// wait. The error of a call comes with its ticket.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let segment = pipework::reqrep::Options::new().anonymous()?;
    /// # let (client, server) = (segment.client()?, segment.server()?);
    /// client.send_many(["one", "two", "three"], Duration::from_secs(1))?;
    /// # for request in server.drain(3)? { request.reply("done")?; }
    /// while let Some(done) = client.recv_any(Duration::from_secs(5))? {
    ///     println!("{:?}: {:?}", done.ticket, done.result);
    /// }
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn recv_any(&self, deadline: impl Into<Deadline>) -> Result<Option<Completion>> {
        const OP: &str = "reqrep recv any";
        let (shared, deadline) = (self.shared(), deadline.into());
        let me = self.sender().present(OP)?;
        let look = || {
            if self.sender().present(OP)? != me {
                // Other members had to count this client as dead, so its calls are over.
                return Err(Error::new(ErrorKind::Stale, OP));
            }
            let (mut any, first) = (false, self.inner.next_received.get() as u32);
            // With a doorbell the watcher knows which calls are done; otherwise look at all calls.
            let watcher = self.inner.replies.asked_for();
            let done =
                watcher.map_or(Ok(None), |watcher| watcher.next_done(|call| self.has_ticket(call.ticket)));
            let all = done.iter().flatten().map(|call| call.ticket).chain(shared.calls_of_from(me, first));
            for ticket in all.filter(|ticket| self.has_ticket(*ticket)) {
                any = true;
                let result = match self.look(ticket, OP) {
                    Ok(None) => {
                        // The server may have given a part, and so notified an event loop.
                        self.looked(ticket, true);
                        match done {
                            Err(NoneDone) => break,
                            Ok(_) => continue,
                        }
                    }
                    // Another thread was faster.
                    Err(error) if error.kind() == ErrorKind::Stale => continue,
                    Err(error) if may_be_open(error.kind()) && self.goes_on(ticket, me, OP)? => {
                        match error.kind() {
                            // Its server has given it up at the last moment, and the next look
                            // finds that.
                            ErrorKind::TooLong => continue,
                            _ => return Err(error.error()),
                        }
                    }
                    Ok(Some(reply)) => Ok(reply),
                    Err(error) => Err(error),
                };
                self.inner.next_received.set(u64::from(ticket.idx()) + 1);
                self.looked(ticket, false);
                return Ok(Some(Some(Completion { ticket, result })));
            }
            shared.check_whole(OP)?;
            if any {
                return Ok(None);
            }
            // From now on an event loop is to be notified of the next reply.
            self.inner.replies.found_none();
            Ok(Some(None))
        };
        let wait = self.sender().waiting_for_any(deadline, OP);
        let any = &shared.member(me).ok_or(Error::new(ErrorKind::Corrupt, OP))?.any;
        let check = || {
            let calls = shared.calls_of(me).map(|ticket| ticket.idx());
            self.sender().liveness().check(calls, OP)
        };
        let received = any.wait(&wait, look, check);
        // The wake-up may have been for a reply that this thread leaves to others.
        received.inspect_err(|_| any.notify(Reach::Machine))
    }

    /// Whether a call goes on after an error. If the file was cut short, that is the error, because
    /// nothing that is read from it can be trusted.
    #[cold]
    fn goes_on(&self, ticket: Ticket, me: u16, op: &'static str) -> Result<bool> {
        self.shared().check_whole(op)?;
        Ok(self.shared().standing(ticket, me) != Standing::Over)
    }

    /// The length of a reply that has come, otherwise 0: the number of bytes that
    /// [`try_recv`](Client::try_recv) would copy now. This is a hint, to decide whether to do work
    /// of that size elsewhere: more may come right after.
    pub fn reply_len(&self, ticket: Ticket) -> usize {
        let is_here = self.shared().slot(ticket.idx()).is_some_and(|slot| {
            let now = slot.load();
            let has_come = matches!(now.state(), Some(State::Answered | State::Part));
            has_come && now.generation() == ticket.generation()
        });
        let len = if is_here { self.shared().payload_len(Direction::Reply.of(ticket.idx())) } else { 0 };
        // A reply that is too long is not copied. A peer that breaks the rules may have written any
        // number.
        let most = self.inner.max_message.max(self.shared().geometry().bytes(Direction::Reply));
        if len > most { 0 } else { len }
    }

    /// Whether the caller has the ticket.
    pub(super) fn has_ticket(&self, ticket: Ticket) -> bool {
        self.shared().slot(ticket.idx()).is_some_and(|slot| {
            let word = slot.load();
            // While a request is being written, the mark is the last call's.
            let is_sent = word.state() != Some(State::Fill) && word.generation() == ticket.generation();
            is_sent && slot.caller().has_ticket
        })
    }
}

/// The state of a call.
impl Client {
    // Always, as the next function: a wait polls it.
    #[inline(always)]
    pub(super) fn standing(&self, ticket: Ticket, op: &'static str) -> Result<Standing> {
        let me = self.sender().number(op)?;
        let standing = self.shared().standing(ticket, me);
        match standing {
            Standing::Done(_) | Standing::Turn(_) => {}
            Standing::Sent if self.terms().needs_server && self.sender().liveness().has_no_server() => {
                self.give_up_without_server(ticket, op)?;
            }
            Standing::Sent | Standing::Taken => self.sender().liveness().meet_failure(op)?,
            Standing::Over => {
                // If the file was cut short, nothing that is read from it can be trusted.
                self.shared().check_whole(op)?;
                return Err(Error::new(ErrorKind::Stale, op));
            }
        }
        Ok(standing)
    }

    /// The word of a call that can be received; `None` if nothing has come yet. Waits poll this
    /// function and not the payload, to move the payload as rarely as possible.
    #[inline(always)]
    pub(super) fn poll(&self, ticket: Ticket, op: &'static str) -> Result<Option<SlotWord>> {
        let standing = self.standing(ticket, op)?;
        Ok(match standing {
            Standing::Done(word) => Some(word),
            Standing::Turn(word) if self.slot(ticket, op)?.caller().takes_parts => Some(word),
            // Only a server that breaks the rules gives a part to a client that does not take
            // parts.
            Standing::Turn(_) => {
                self.cancel_if_open(ticket)?;
                return Err(Error::new(ErrorKind::Corrupt, op));
            }
            Standing::Sent | Standing::Taken | Standing::Over => None,
        })
    }

    /// The result of `look` without a wait. A caller that only polls must learn of a death as well.
    pub(super) fn poll_only<T>(
        &self,
        ticket: Ticket,
        op: &'static str,
        mut look: impl FnMut() -> Answer<Option<T>>,
    ) -> Answer<Option<T>> {
        match look()? {
            None if self.sender().liveness().look_after([ticket.idx()], op)? => look(),
            found => Ok(found),
        }
    }

    /// Ends a call that no server has taken while there is no server.
    #[cold]
    fn give_up_without_server(&self, ticket: Ticket, op: &'static str) -> Result<()> {
        match self.sender().refuse_without_server(op) {
            // If it cannot be cancelled, a server has taken it at the last moment, and the next
            // look finds the outcome.
            Err(error) if error.kind() == ErrorKind::NoServer && !self.cancel_if_open(ticket)? => Ok(()),
            // If the kernel does not say which members are alive, the call goes on.
            refused => refused,
        }
    }

    /// Waits until `look` finds something in a call.
    #[inline]
    pub(super) fn wait_until<T>(
        &self,
        ticket: Ticket,
        deadline: Later<'_>,
        op: &'static str,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        match look() {
            Ok(None) => self.wait_longer(ticket, deadline(), op, look),
            Ok(Some(found)) => Ok(found),
            Err(error) => Err(error),
        }
    }

    fn wait_longer<T>(
        &self,
        ticket: Ticket,
        deadline: Deadline,
        op: &'static str,
        look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let slot = self.slot(ticket, op)?;
        let wait = match slot.load().has_begun() {
            true => self.sender().waiting_for_turn(deadline, op),
            false => self.sender().waiting(deadline, op),
        };
        let check = || self.sender().liveness().check([ticket.idx()], op);
        slot.wait(ticket.generation(), &[State::Sent, State::Taken], &wait, look, check)
    }
}

/// Copying replies out.
impl Client {
    /// The end of a call whose ticket no other thread has, after a wait for it.
    #[cold]
    pub(super) fn end_call(&self, ticket: Ticket, waited: Result<SlotWord>, op: &'static str) -> Answer {
        match waited {
            Ok(done) => self.take_out(ticket, done, done, op),
            // No other thread has the ticket, so end the call here.
            Err(error) => self.end_for(ticket, op)?.ok_or(error.into()),
        }
    }

    /// The reply of a call; `None` while it is in progress.
    #[inline]
    pub(super) fn look(&self, ticket: Ticket, op: &'static str) -> Answer<Option<Reply>> {
        match self.poll(ticket, op)? {
            Some(word) => self.collect(ticket, word, op).map(Some),
            None => Ok(None),
        }
    }

    /// Copies out the reply of a call that is done, and frees its slot.
    #[inline]
    pub(super) fn collect(&self, ticket: Ticket, done: SlotWord, op: &'static str) -> Answer {
        let held = self.hold(ticket, done, op)?;
        self.take_out(ticket, done, held, op)
    }

    /// As `collect`, for a call that was answered, with fewer moves of its reply.
    #[inline]
    fn collect_reply(&self, ticket: Ticket, done: SlotWord) -> Answer {
        let reply = self.hold(ticket, done, RECV).and_then(|held| self.take_reply(ticket, held, RECV));
        self.noted(ticket, reply.map_err(CallError::from))
    }

    /// Another thread may receive the same call. The thread that comes second must not copy: the
    /// slot may belong to another call by then, whose reply a server of this process is writing.
    #[inline]
    pub(super) fn hold(&self, ticket: Ticket, done: SlotWord, op: &'static str) -> Result<SlotWord> {
        if done.state() == Some(State::Part) {
            // Only the stream may receive it.
            return Err(Error::new(ErrorKind::Stale, op));
        }
        if done.state() == Some(State::Died) {
            // The outcome has no payload to copy, and the marks of a dead server mean nothing: the
            // step that frees the slot decides.
            return Ok(done);
        }
        self.slot(ticket, op)?.hold(done).ok_or(Error::new(ErrorKind::Stale, op))
    }

    /// As [`collect`](Client::collect), for a call whose ticket no other thread has, or that was
    /// held for this thread.
    pub(super) fn take_out(
        &self,
        ticket: Ticket,
        done: SlotWord,
        held: SlotWord,
        op: &'static str,
    ) -> Answer {
        match done.state() {
            Some(State::Answered) => Ok(self.take_reply(ticket, held, op)?),
            Some(State::Failed) if self.slot(ticket, op)?.is_marked(Mark::Reason) => {
                Err(CallError::failed(self.take_reply(ticket, held, op)?, op))
            }
            state => {
                self.free(ticket, held, op)?;
                let has_failed = state == Some(State::Failed);
                Err(Error::new(if has_failed { ErrorKind::Failed } else { ErrorKind::PeerDied }, op).into())
            }
        }
    }

    /// As `take_out`, for a call that was answered.
    #[inline]
    pub(super) fn take_reply(&self, ticket: Ticket, held: SlotWord, op: &'static str) -> Result<Reply> {
        let mut reply = Reply::empty();
        let Reply { payload, blobs, .. } = &mut reply;
        let read = |shared: &Shared| {
            let max = self.inner.max_message;
            shared.read(Direction::Reply.of(ticket.idx()), (payload, blobs), max, op)
        };
        reply.flags = self.copy_and_free(ticket, held, read, op)?;
        Ok(reply)
    }

    /// As `take_out`, but appends the bytes to `into`, which is empty after an error; returns the
    /// flags.
    pub(super) fn append_reply(
        &self,
        ticket: Ticket,
        held: SlotWord,
        into: &mut Vec<u8>,
        op: &'static str,
    ) -> Result<u32> {
        let max = self.inner.max_message;
        let append = |shared: &Shared| shared.append(Direction::Reply.of(ticket.idx()), into, max, op);
        self.copy_and_free(ticket, held, append, op).inspect_err(|_| into.clear())
    }

    /// Copies the reply in the slot of a call that is done, and frees the slot, also if `copy`
    /// fails. `copy` returns `None` for a reply that breaks the format.
    #[inline]
    pub(super) fn copy_and_free<T>(
        &self,
        ticket: Ticket,
        held: SlotWord,
        copy: impl FnOnce(&Shared) -> Result<Option<T>>,
        op: &'static str,
    ) -> Result<T> {
        let copied = copy(self.shared());
        self.free(ticket, held, op)?;
        copied?.ok_or(Error::new(ErrorKind::Corrupt, op))
    }

    /// Step 8.
    #[inline]
    fn free(&self, ticket: Ticket, held: SlotWord, op: &'static str) -> Result<()> {
        if !self.slot(ticket, op)?.free(held, &self.shared().leaving(ticket.idx())) {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        self.sender().gave_back(ticket.idx());
        Ok(())
    }

    fn receive_in_place(&self, ticket: Ticket, into: &mut [u8], deadline: Deadline) -> Answer<(usize, u32)> {
        let done = self.wait_until(ticket, &|| deadline, RECV, || self.poll(ticket, RECV))?;
        if !done.is_answered() {
            return self.collect(ticket, done, RECV).map(|_| (0, 0));
        }
        if self.reply_len(ticket) > into.len() {
            return Err(Error::new(ErrorKind::TooLong, RECV).into());
        }
        let held = self.hold(ticket, done, RECV)?;
        let read = |shared: &Shared| shared.read_into(Direction::Reply.of(ticket.idx()), into, RECV);
        Ok(self.copy_and_free(ticket, held, read, RECV)?)
    }

    /// Receives the reply of a call whose ticket no other thread has into a vector.
    pub(super) fn receive_into(
        &self,
        ticket: Ticket,
        into: &mut Vec<u8>,
        deadline: Later<'_>,
        op: &'static str,
    ) -> Answer<u32> {
        into.clear();
        let done = self.wait_until(ticket, deadline, op, || self.poll(ticket, op))?;
        match done.is_answered() {
            true => Ok(self.append_reply(ticket, done, into, op)?),
            false => Ok(self.take_out(ticket, done, done, op)?.move_to(into)),
        }
    }
}

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
