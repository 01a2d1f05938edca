//! The calling end: acquires a slot, sends a request in it, waits for its reply, frees the slot.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::eventfd::{EventFd, EventFds};
use super::place::{Sender, Terms};
use super::segment::Segment;
use super::shm::call::Standing;
use super::shm::layout::{Kind, Part};
use super::shm::mapping::{Role, Shared};
use super::shm::payload::{Message, Payload};
use super::shm::slot::{MAX_REDELIVERIES, Slot, SlotWord, State};
use super::shm::ticket::Ticket;
use super::watch::{Call, Topic, Watcher, WatcherState};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};

/// What a server answered. It dereferences to its bytes.
#[derive(Clone, Debug)]
pub struct Reply {
    payload: Payload,
    flags: u32,
}

impl Reply {
    /// The 32 bits that the server sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its bytes as a vector. A long payload is moved, not copied.
    pub fn into_vec(self) -> Vec<u8> {
        self.payload.into_vec()
    }
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.payload
    }
}

/// Sends requests and gets their replies.
///
/// Clones share one membership; threads may use one client, or a clone each, at the same time. A
/// client that a forked child inherits works there, as a member of its own. Calls in progress stay
/// the parent's.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
    pub(super) terms: Terms,
}

#[derive(Debug)]
pub(super) struct Inner {
    // Its thread ends before the membership does.
    replies: Watcher,
    pub(super) sender: Sender,
    segment: Segment,
    eventfds: EventFds,
}

const CALL: &str = "reqrep call";
const SEND: &str = "reqrep send";
const RECV: &str = "reqrep recv";

impl Segment {
    /// Attaches a client.
    ///
    /// # Errors
    ///
    /// `Incompatible` for a segment of integers; `WouldBlock` if all places for members are taken;
    /// `Corrupt` if the segment was damaged. `Os` if there is no descriptor left for its lock, or
    /// the program has closed the segment's (EBADF).
    ///
    /// A client or a server that has to join anew, in a forked child or because others had to take
    /// it for dead, does so in its next operation, which may fail with the same.
    pub fn client(&self) -> Result<Client> {
        Client::new(self, Kind::Bytes)
    }
}

impl Client {
    pub(super) fn new(segment: &Segment, kind: Kind) -> Result<Client> {
        let membership = segment.join(kind, Role::Client, "reqrep attach client")?;
        let inner = Inner {
            replies: Watcher::new(),
            sender: Sender::new(membership, segment.spin(), SEND)?,
            segment: segment.clone(),
            eventfds: EventFds::default(),
        };
        let terms = Terms { redeliveries: 0, needs_server: false };
        Ok(Client { inner: Arc::new(inner), terms })
    }

    /// How many times another server may get a request of this client after a server died with it:
    /// at most 3. After that the call fails with `PeerDied`. For requests that may be carried out
    /// twice. The default is 0.
    pub fn redeliveries(self, times: u8) -> Client {
        let terms = Terms { redeliveries: times.min(MAX_REDELIVERIES), ..self.terms };
        Client { terms, ..self }
    }

    /// Whether a call fails with `NoServer` where no server is attached, instead of waiting for
    /// one. The default is to wait.
    pub fn needs_server(self, yes: bool) -> Client {
        let terms = Terms { needs_server: yes, ..self.terms };
        Client { terms, ..self }
    }

    /// Limits how many calls of this client and its clones are in progress at a time; 0, the
    /// default, is no limit. At the limit, [`send`](Client::send) and [`call`](Client::call) wait
    /// as they do without a free slot, until a reply is received or a call cancelled, and
    /// [`try_send`](Client::try_send) gives `None`. So a client that sends and does not receive
    /// leaves slots to the others.
    ///
    /// It holds for all clones together, and in a forked child for the calls of that child.
    pub fn max_in_flight(self, calls: u32) -> Client {
        self.sender().set_limit(calls, "reqrep max in flight");
        self
    }

    /// The segment that this client is attached to.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Blocking
    ///
    /// Until the reply comes, or until the deadline, which covers sending and receiving. The death
    /// of the server that has the request is noticed within 250 ms of the kernel closing its files,
    /// which comes after a core dump and after much memory is freed.
    ///
    /// # Errors
    ///
    /// `TimedOut` and `Interrupted`: the call is cancelled, but a server may have begun with it. To
    /// resume a wait after a signal, use [`send`](Client::send) and [`recv`](Client::recv).
    /// `PeerDied`: its server has died. `Failed`: its server gave it up. `TooLong`: the request is
    /// longer than the segment allows. `NoServer`: there is none, and
    /// [`needs_server`](Client::needs_server) was set. `Corrupt`: the segment was damaged.
    ///
    /// `Os` with ENOSPC: a [sparse](super::Options::sparse) segment has no page for the request.
    /// With ENOMEM: this process has no memory for the reply, and the call is over. With any other
    /// number: the kernel does not say which members are alive, for instance because the program
    /// has closed a descriptor of the segment (EBADF); the call is cancelled, as above. In a forked
    /// child as well what [`Segment::client`] fails with.
    #[inline]
    pub fn call<'a>(&self, request: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Result<Reply> {
        let deadline = deadline.into();
        let ticket =
            self.place(&request.into(), deadline, CALL)?.ok_or(Error::new(ErrorKind::TimedOut, CALL))?;
        match self.wait(ticket, deadline, CALL) {
            Ok(done) => self.take_out(ticket, done, done, CALL),
            // However the wait ended: nobody has the ticket, so the call must not stay behind.
            Err(error) => self.abandon_for(ticket, CALL)?.ok_or(error),
        }
    }

    /// Sends a request and returns the ticket for its reply. Any number of calls may be in
    /// progress, up to the slots of the segment.
    ///
    /// # Blocking
    ///
    /// Until a slot is free, or until the deadline.
    ///
    /// # Errors
    ///
    /// As [`call`](Client::call), but never `PeerDied`, `Failed` or ENOMEM. `TimedOut` and
    /// `Interrupted` mean that there was no slot. Whatever the error is, nothing was sent.
    #[inline]
    pub fn send<'a>(&self, request: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Result<Ticket> {
        let ticket = self
            .place(&request.into(), deadline.into(), SEND)?
            .ok_or(Error::new(ErrorKind::TimedOut, SEND))?;
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
        let ticket = self.place(&request.into(), None, SEND);
        match ticket {
            Ok(Some(ticket)) => self.sent(ticket),
            // An event loop goes on after an error, too.
            Ok(None) | Err(_) => self.sender().found_no_slot(),
        }
        ticket
    }

    /// Waits for the reply of a call.
    ///
    /// # Blocking
    ///
    /// As [`call`](Client::call).
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the ticket stays valid. `PeerDied`, `Failed`, `NoServer`: the
    /// call is over. `Stale`: the call was over already, or is not this client's. `Os`: with ENOMEM
    /// the call is over, as for [`call`](Client::call). With any other number the ticket stays
    /// valid, but the kernel does not say which members are alive, for instance because the program
    /// has closed a descriptor of the segment (EBADF). `Corrupt`: the segment was damaged. In a
    /// forked child as well what [`Segment::client`] fails with.
    #[inline]
    pub fn recv(&self, ticket: Ticket, deadline: impl Into<Deadline>) -> Result<Reply> {
        let done = self.wait(ticket, deadline.into(), RECV);
        let reply = done.and_then(|done| self.collect(ticket, done, RECV));
        self.looked(ticket, reply.as_ref().is_err_and(may_be_open));
        reply
    }

    /// The reply of a call; `None` if it has not come. It does not block.
    ///
    /// # Errors
    ///
    /// As [`recv`](Client::recv), but never `TimedOut` or `Interrupted`.
    #[inline]
    pub fn try_recv(&self, ticket: Ticket) -> Result<Option<Reply>> {
        let mut reply = self.look(ticket, RECV);
        // A caller that only polls must learn of a death as well.
        if matches!(reply, Ok(None)) {
            reply = match self.sender().liveness().look_after(RECV) {
                Ok(true) => self.look(ticket, RECV),
                others => others.map(|_| None),
            };
        }
        self.looked(ticket, reply.as_ref().map_or_else(may_be_open, Option::is_none));
        reply
    }

    /// Cancels a call. False if its reply is there: then it is for [`recv`](Client::recv). A server
    /// that has the request finds out when it replies.
    ///
    /// # Errors
    ///
    /// `Stale`: the call is over already, or is not this client's. In a forked child as well what
    /// [`Segment::client`] fails with.
    pub fn cancel(&self, ticket: Ticket) -> Result<bool> {
        const OP: &str = "reqrep cancel";
        let me = self.sender().number(OP)?;
        let slot = self.slot(ticket, OP)?;
        match slot.cancel(ticket.generation(), me) {
            Some(left) => {
                self.sender().cancelled(ticket.idx(), me, left);
                Ok(true)
            }
            None => match self.shared().standing(ticket, me) {
                Standing::Done(_) => Ok(false),
                _ => Err(Error::new(ErrorKind::Stale, OP)),
            },
        }
    }

    /// Ends a call that nobody waits for any more, in whatever state it is. Returns its reply if
    /// that came at the last moment, and `None` if the call is cancelled now, or was over already.
    ///
    /// After a wait that ended with an error, the result is `client.abandon(ticket)?.ok_or(error)`.
    /// [`call`](Client::call) does so, and so does the future of [`call_async`](Client::call_async)
    /// when it is dropped.
    ///
    /// # Errors
    ///
    /// `Failed`, `PeerDied`, `Corrupt` and `Os` with ENOMEM as those of [`recv`](Client::recv), for
    /// a call that ended with one of them at the last moment.
    ///
    /// # Examples
    ///
    /// A wait that asks every 100 ms whether to go on, and ends when the answer is no:
    ///
    /// ```
    /// use pipework::{ErrorKind, Result, reqrep::{Client, Reply}};
    /// use std::time::Duration;
    ///
    /// fn call(client: &Client, request: &[u8], go_on: impl Fn() -> bool) -> Result<Reply> {
    ///     let ticket = client.send(request, Duration::from_secs(1))?;
    ///     loop {
    ///         match client.recv(ticket, Duration::from_millis(100)) {
    ///             Err(error) if error.kind() == ErrorKind::TimedOut && go_on() => {}
    ///             Err(error) => return client.abandon(ticket)?.ok_or(error),
    ///             reply => return reply,
    ///         }
    ///     }
    /// }
    /// # let segment = pipework::reqrep::Options::new().anonymous()?;
    /// # let outcome = call(&segment.client()?, b"", || false);
    /// # assert_eq!(outcome.map_err(|error| error.kind()).err(), Some(ErrorKind::TimedOut));
    /// # assert_eq!(segment.audit()?.free, 256);
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn abandon(&self, ticket: Ticket) -> Result<Option<Reply>> {
        self.abandon_for(ticket, "reqrep abandon")
    }

    #[cold]
    fn abandon_for(&self, ticket: Ticket, op: &'static str) -> Result<Option<Reply>> {
        // A call that is over, or is not this client's any more, cannot be cancelled either.
        let Ok(false) = self.cancel(ticket) else { return Ok(None) };
        let reply = match self.look(ticket, op) {
            // Another thread was quicker.
            Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
            reply => reply,
        };
        self.looked(ticket, reply.as_ref().is_err_and(may_be_open));
        reply
    }

    /// How many calls of this client are in progress: sent, and their replies not received.
    pub fn pending(&self) -> usize {
        self.sender().pending("reqrep pending").unwrap_or(0)
    }

    /// Bytes of a call's reply if it has come, else 0: what [`try_recv`](Client::try_recv) would
    /// copy now. A hint, to decide whether to do work of that size elsewhere: the reply may come
    /// right after.
    pub fn reply_len(&self, ticket: Ticket) -> usize {
        let answered = self.shared().slot(ticket.idx()).filter(|slot| {
            let now = slot.load();
            now.state() == Some(State::Answered) && now.generation() == ticket.generation()
        });
        answered.map_or(0, |slot| slot.described(Part::Reply).0 as usize)
    }

    pub(super) fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.sender().shared()
    }

    #[inline]
    fn place(
        &self,
        request: &Message<'_>,
        deadline: impl Into<Option<Deadline>>,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        self.sender().place(request, self.terms, deadline.into(), None, op)
    }

    pub(super) fn slot(&self, ticket: Ticket, op: &'static str) -> Result<&Slot> {
        self.shared().slot(ticket.idx()).ok_or(Error::new(ErrorKind::Stale, op))
    }
}

// ---------------------------------------------------------------- receiving

impl Client {
    /// The outcome of a call: `None` while it is in progress.
    #[inline]
    pub(super) fn look(&self, ticket: Ticket, op: &'static str) -> Result<Option<Reply>> {
        let done = self.poll(ticket, op)?;
        done.map(|done| self.collect(ticket, done, op)).transpose()
    }

    /// The word of a call that is done; `None` while it is in progress. Waits poll this and not the
    /// payload, which is moved no more often than it must be.
    #[inline]
    fn poll(&self, ticket: Ticket, op: &'static str) -> Result<Option<SlotWord>> {
        let me = self.sender().number(op)?;
        match self.shared().standing(ticket, me) {
            Standing::Done(word) => Ok(Some(word)),
            Standing::Sent if self.terms.needs_server && self.sender().liveness().is_forsaken() => {
                self.give_up_without_server(ticket, op)
            }
            Standing::Sent | Standing::Taken => self.sender().liveness().meet_failure(op).map(|()| None),
            Standing::Over => {
                // Where the file was cut short, nothing that is read means anything.
                self.shared().check_whole(op)?;
                Err(Error::new(ErrorKind::Stale, op))
            }
        }
    }

    /// Copies out the outcome of a call that is done, and frees its slot.
    #[inline]
    fn collect(&self, ticket: Ticket, done: SlotWord, op: &'static str) -> Result<Reply> {
        let slot = self.slot(ticket, op)?;
        // Another thread may receive the same call. The thread that comes second must not copy: the
        // slot may be another call's by then, whose reply a server of this very process is writing.
        let held = slot.hold(done).ok_or(Error::new(ErrorKind::Stale, op))?;
        self.take_out(ticket, done, held, op)
    }

    /// The same for a call whose ticket no other thread has.
    #[inline]
    fn take_out(&self, ticket: Ticket, done: SlotWord, held: SlotWord, op: &'static str) -> Result<Reply> {
        let slot = self.slot(ticket, op)?;
        let mut reply = Reply { payload: Payload::empty(), flags: 0 };
        let outcome = match done.state() {
            Some(State::Answered) => self.copy_out(ticket.idx(), &mut reply, op),
            Some(State::Failed) => Err(Error::new(ErrorKind::Failed, op)),
            _ => Err(Error::new(ErrorKind::PeerDied, op)),
        };
        // Step 8.
        if !slot.step(held, held.freed()) {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        self.sender().gave_back(ticket.idx());
        outcome.map(|()| reply)
    }

    #[inline]
    fn copy_out(&self, idx: u32, reply: &mut Reply, op: &'static str) -> Result<()> {
        let flags = self.shared().read(idx, Part::Reply, &mut reply.payload, op)?;
        reply.flags = flags.ok_or(Error::new(ErrorKind::Corrupt, op))?;
        Ok(())
    }

    /// Waits until a call is done, and returns its word.
    #[inline]
    fn wait(&self, ticket: Ticket, deadline: Deadline, op: &'static str) -> Result<SlotWord> {
        match self.poll(ticket, op) {
            Ok(None) => self.wait_longer(ticket, deadline, op),
            Ok(Some(done)) => Ok(done),
            Err(error) => Err(error),
        }
    }

    fn wait_longer(&self, ticket: Ticket, deadline: Deadline, op: &'static str) -> Result<SlotWord> {
        let slot = self.slot(ticket, op)?;
        let wait = self.sender().waiting(deadline, op);
        let check = || self.sender().liveness().check(op);
        slot.wait(ticket.generation(), &wait, || self.poll(ticket, op), check)
    }

    /// Ends a call that no server has taken while there is no server.
    #[cold]
    fn give_up_without_server(&self, ticket: Ticket, op: &'static str) -> Result<Option<SlotWord>> {
        match self.sender().refuse_without_server(self.terms, op) {
            // If it cannot be cancelled, a server has taken it at the last moment, and the next
            // look finds the outcome.
            Err(error) if error.kind() == ErrorKind::NoServer && !self.cancel(ticket)? => Ok(None),
            // Where the kernel does not say which members are alive, the call goes on.
            refused => refused.map(|()| None),
        }
    }
}

// ---------------------------------------------------------------- notification

impl Client {
    /// A descriptor for an event loop, readable while there is something to receive: a reply, or an
    /// error in its place. The server may be any process; it knows nothing of this. It covers all
    /// calls that were sent by this client and its clones, except those of [`call`](Client::call).
    ///
    /// When it is readable, try to receive each call in progress. As soon as there is nothing left,
    /// it is not readable any more. A thread of this process waits on behalf of the loop. The first
    /// call of this method starts it, and it ends with the client.
    ///
    /// The caller owns the descriptor, may close it at any time, and must not read from it. Each
    /// call returns another one. A forked child asks for one of its own.
    ///
    /// # Errors
    ///
    /// `Os`, if no descriptor is left, or no thread can be started. In a forked child as well what
    /// [`Segment::client`] fails with.
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep doorbell";
        let watcher = self.watch_replies(OP)?;
        let doorbell = watcher.descriptor(OP)?;
        // Those that were sent before. A call that another thread is sending is found here, or
        // finds the watcher: each thread has a fence between its store and its load.
        let me = self.sender().number(OP)?;
        self.shared().calls_of(me).for_each(|ticket| watcher.expect(self.as_awaited(ticket)));
        Ok(doorbell)
    }

    /// As [`doorbell`](Client::doorbell), but readable while a request can be sent. It becomes
    /// unreadable when [`try_send`](Client::try_send) finds no slot. If this client [needs a
    /// server](Client::needs_server), it becomes readable when the last server has gone, too.
    ///
    /// # Errors
    ///
    /// As [`doorbell`](Client::doorbell).
    pub fn send_doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep send doorbell";
        let watcher = self.sender().watch_space(OP)?;
        if self.terms.needs_server {
            watcher.needs_server();
        }
        watcher.descriptor(OP)
    }

    /// The eventfd that is rung by hand to notify servers of requests.
    pub fn request_eventfd(&self) -> &EventFd {
        &self.inner.eventfds.request
    }

    /// The eventfd that is rung by hand to notify clients of replies.
    pub fn reply_eventfd(&self) -> &EventFd {
        &self.inner.eventfds.reply
    }

    pub(super) fn watch_replies(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.sender().number(op)?;
        self.inner.replies.watch(self.shared(), self.sender().liveness(), None, Topic::Replies, op)
    }

    pub(super) fn as_awaited(&self, ticket: Ticket) -> Call {
        Call::new(ticket, self.terms.needs_server)
    }

    #[inline]
    pub(super) fn sent(&self, ticket: Ticket) {
        if let Some(watcher) = self.inner.replies.asked_for() {
            watcher.expect(self.as_awaited(ticket));
        }
    }

    #[inline]
    pub(super) fn looked(&self, ticket: Ticket, is_open: bool) {
        if let Some(watcher) = self.inner.replies.asked_for() {
            watcher.looked(self.as_awaited(ticket), is_open);
        }
    }
}

/// Whether the call may still be in progress after this error. One that is not is found to be over.
pub(super) fn may_be_open(error: &Error) -> bool {
    use ErrorKind::{Failed, NoServer, PeerDied, Stale};
    !matches!(error.kind(), PeerDied | Failed | NoServer | Stale)
}
