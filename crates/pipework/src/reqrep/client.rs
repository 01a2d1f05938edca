//! The client end: sends requests, ends calls, and asks to be notified of replies.

use std::cell::LazyCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::calls::Standing;
use super::layout::Direction;
use super::place::{Sender, Sending, Terms};
use super::reply::{Answer, Reply};
use super::segment::Segment;
use super::shared::{Role, Shared};
use super::slot::Slot;
use super::waiting::{AwaitedCall, Steps, Watcher, WatcherState};
use super::word::{MAX_REDELIVERIES, Ticket};
use crate::deadline::{Deadline, Later};
use crate::defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::{Message, Space};
use crate::segment::naming::Naming;
use crate::sync::{Flag, Hint, Ordering, Reach};

/// Sends requests and gets their replies.
///
/// A payload may be longer than [a slot](super::Options::request_bytes). The client then copies it
/// into a [blob](super::Segment::blob); the caller notices only that this is faster.
///
/// Clones share one membership. Threads may use one client, or a clone each, at the same time. A
/// client that a forked child inherits works there, as a separate member. Calls in progress stay
/// the parent's.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: Arc<ClientInner>,
}

#[derive(Debug)]
pub(super) struct ClientInner {
    // Its thread ends before the membership does.
    pub(super) replies: Watcher,
    pub(super) sender: Sender,
    /// The slot to look at first for a call that has ended, so that every call gets its turn.
    pub(super) next_received: Hint,
    /// The slot at which the last search for a call in progress ended.
    in_progress: Hint,
    /// Whether a ticket was given out.
    has_sent: Flag,
    segment: Segment,
    /// Bytes of the longest message.
    pub(super) max_message: usize,
}

const CALL: &str = "reqrep call";
const SEND: &str = "reqrep send";

impl Segment {
    /// Attaches a client with the default options.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the segment has the largest number of members already. `Corrupt` if the
    /// segment was damaged. `Os` if no descriptor is left for its lock, or the program has closed
    /// the segment's (EBADF).
    ///
    /// A client or a server has to join again in a forked child, and if other members had to count
    /// it as dead. It does so in its next operation, which may fail with the same errors. A forked
    /// child opens the file again for that. If it has given up its rights since (`setuid`) and may
    /// not open the file any more, that fails with EACCES: use the handle once before.
    pub fn client(&self) -> Result<Client> {
        self.client_with(&ClientOptions::new())
    }

    /// Attaches a client with these options.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client).
    pub fn client_with(&self, options: &ClientOptions) -> Result<Client> {
        Client::new(self, options)
    }
}

/// The settings of a client. They are given [when the client is made](Segment::client_with), and
/// hold for all of its clones.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    terms: Terms,
    max_message: usize,
    max_in_flight: u32,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        let terms = Terms { redeliveries: 0, needs_server: false };
        ClientOptions { terms, max_message: defaults::MAX_MESSAGE, max_in_flight: 0 }
    }
}

impl ClientOptions {
    /// No redelivery, calls wait for a server, messages of up to [`defaults::MAX_MESSAGE`] bytes,
    /// any number of calls in progress.
    pub fn new() -> ClientOptions {
        ClientOptions::default()
    }

    /// How many times another server may get a request after a server died with it: at most
    /// [`MAX_REDELIVERIES`]. After that the call fails with `PeerDied`. A [stream](super::Stream)
    /// also fails if a part was given. Set this only if a request may be carried out twice. The
    /// default is 0.
    pub fn redeliveries(self, times: u8) -> ClientOptions {
        let terms = Terms { redeliveries: times.min(MAX_REDELIVERIES), ..self.terms };
        ClientOptions { terms, ..self }
    }

    /// Whether a call fails with `NoServer` if no server is attached, instead of waiting for one.
    /// The default is to wait. The client asks the kernel only every 50 ms, because asking takes
    /// longer than a call. So a call that is sent right after the last server has left fails during
    /// its wait.
    pub fn needs_server(self, yes: bool) -> ClientOptions {
        let terms = Terms { needs_server: yes, ..self.terms };
        ClientOptions { terms, ..self }
    }

    /// Bytes of the longest message that the client sends or receives. The default is
    /// [`defaults::MAX_MESSAGE`]. A longer request is `TooLong`, and so is a longer reply, whose call
    /// is over then. A message that fits into a slot is never too long. [Copies](super::Blob::is_copied)
    /// of the blobs of a reply may have as many bytes together.
    pub fn max_message(self, bytes: usize) -> ClientOptions {
        ClientOptions { max_message: bytes, ..self }
    }

    /// How many calls of the client and its clones may be in progress at a time; 0, the default, is
    /// no limit. At the limit, [`send`](Client::send) and [`call`](Client::call) wait as if no slot
    /// were free, until a reply is received or a call cancelled, and [`try_send`](Client::try_send)
    /// returns `None`. So a client that sends and does not receive leaves slots to the others.
    ///
    /// A call that was cancelled or has timed out does not count, although its slot is in use until its
    /// server has finished. In a forked child the limit counts only the child's calls.
    pub fn max_in_flight(self, calls: u32) -> ClientOptions {
        ClientOptions { max_in_flight: calls, ..self }
    }
}

impl Client {
    pub(super) fn new(segment: &Segment, options: &ClientOptions) -> Result<Client> {
        let membership = segment.join(Role::Client, "reqrep attach client")?;
        let inner = ClientInner {
            replies: Watcher::new(),
            sender: Sender::new(membership, segment.spin(), options.terms, options.max_in_flight, SEND)?,
            next_received: Hint::new(0),
            in_progress: Hint::new(0),
            has_sent: Flag::new(),
            segment: segment.clone(),
            max_message: options.max_message,
        };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// The segment that this client is attached to.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Blocking
    ///
    /// Until the reply comes, or until the deadline, which covers sending and receiving. If the
    /// server that has the request dies, the client notices within 250 ms after the kernel has
    /// closed the server's files. The kernel does so after it has written a core dump and freed
    /// memory.
    ///
    /// # Errors
    ///
    /// `TimedOut` and `Interrupted`: the call is cancelled, but a server may have begun with it. To
    /// resume a wait after a signal, use [`send`](Client::send) and [`recv`](Client::recv).
    /// `PeerDied`: its server has died. `Failed`: its server gave it up, and
    /// [`CallError::reason`](super::CallError::reason) says why. `TooLong`: the request or the
    /// reply is longer than [`max_message`](ClientOptions::max_message). `NoServer`: no server is
    /// attached, and [`needs_server`](ClientOptions::needs_server) was set. `Corrupt`: the segment
    /// was damaged.
    ///
    /// `Os` with ENOSPC: no memory is left for the request, in a [sparse](super::Options::sparse)
    /// segment or for the blob of a long one; nothing was sent. With ENOMEM: this process has no
    /// memory for the reply, and the call is over. So it is if a blob of the reply cannot be opened:
    /// EMFILE if this process has no descriptor left, ENOENT if the file was removed. With any other
    /// number: the kernel does not say which members are alive, for instance because the program has
    /// closed a descriptor of the segment (EBADF); the call is cancelled, as above. In a forked child
    /// also the errors of [`Segment::client`].
    #[inline]
    pub fn call<'a>(&self, request: impl Into<Message<'a>>, deadline: impl Into<Deadline>) -> Answer {
        let deadline = LazyCell::new(|| deadline.into());
        let ticket = self.start_by(&request.into(), &|| *deadline, Sending::new(false), CALL)?;
        match self.wait_until(ticket, &|| *deadline, CALL, || self.poll(ticket, CALL)) {
            Ok(done) if done.is_answered() => Ok(self.take_reply(ticket, done, CALL)?),
            waited => self.end_call(ticket, waited, CALL),
        }
    }

    /// As [`call`](Client::call), but the reply replaces the contents of `into`, and this returns
    /// its flags. It copies the reply once, and uses the memory of `into` again.
    ///
    /// # Errors
    ///
    /// As [`call`](Client::call). After an error `into` is empty.
    pub fn call_into<'a>(
        &self,
        request: impl Into<Message<'a>>,
        into: &mut Vec<u8>,
        deadline: impl Into<Deadline>,
    ) -> Answer<u32> {
        let deadline = LazyCell::new(|| deadline.into());
        into.clear();
        let ticket = self.start_by(&request.into(), &|| *deadline, Sending::new(false), CALL)?;
        self.receive_into(ticket, into, &|| *deadline, CALL).or_else(|error| {
            into.clear();
            Ok(self.end_for(ticket, CALL)?.ok_or(error)?.move_to(into))
        })
    }

    /// Ends a call whose reply is no longer wanted, in any state. Returns its reply if that came at
    /// the last moment, and `None` if the call is cancelled now, or was over already. A server that
    /// has the request finds out when it replies. Until then it keeps the slot.
    ///
    /// After a wait that failed, `client.cancel(ticket)?.ok_or(error)` gives the result.
    /// [`call`](Client::call) does so, and so does the future of [`call_async`](Client::call_async)
    /// when it is dropped. To have the request carried out although the reply is not wanted,
    /// [`forget`](Client::forget) it.
    ///
    /// # Errors
    ///
    /// `Failed`, `PeerDied`, `Corrupt`, `TooLong` and `Os` as those of [`recv`](Client::recv), for a
    /// call that ended with one of them at the last moment.
    ///
    /// # Examples
    ///
    /// A wait that asks every 100 ms whether to go on, and ends when the answer is no:
    ///
    /// ```
    /// use pipework::{ErrorKind, reqrep::{CallError, Client, Reply}};
    /// use std::time::Duration;
    ///
    /// fn call(client: &Client, request: &[u8], go_on: impl Fn() -> bool) -> Result<Reply, CallError> {
    ///     let ticket = client.send(request, Duration::from_secs(1))?;
    ///     loop {
    ///         match client.recv(ticket, Duration::from_millis(100)) {
    ///             Err(error) if error.kind() == ErrorKind::TimedOut && go_on() => {}
    ///             Err(error) => return client.cancel(ticket)?.ok_or(error),
    ///             reply => return reply,
    ///         }
    ///     }
    /// }
    /// # let segment = pipework::reqrep::Options::new().anonymous()?;
    /// # let ended = call(&segment.client()?, b"", || false);
    /// # assert_eq!(ended.map_err(|error| error.kind()).err(), Some(ErrorKind::TimedOut));
    /// # assert_eq!(segment.audit()?.free, 256);
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn cancel(&self, ticket: Ticket) -> Answer<Option<Reply>> {
        self.end_for(ticket, "reqrep cancel")
    }

    /// Cancels a call. False if it is done: then [`recv`](Client::recv) gets its outcome.
    ///
    /// Fails with `Stale` if the call is over already, or is not this client's.
    pub(super) fn cancel_if_open(&self, ticket: Ticket) -> Result<bool> {
        const OP: &str = "reqrep cancel";
        let me = self.sender().number(OP)?;
        let slot = self.slot(ticket, OP)?;
        let others_wait = self.shared().own.parts.lock();
        let left = slot.cancel(ticket.generation(), me, &self.shared().leaving(ticket.idx()));
        drop(others_wait);
        match left {
            Some(left) => {
                self.sender().cancelled(ticket.idx(), me, left);
                self.ended(ticket);
                Ok(true)
            }
            None => match self.shared().standing(ticket, me) {
                Standing::Done(_) => Ok(false),
                _ => Err(Error::new(ErrorKind::Stale, OP)),
            },
        }
    }

    /// Gives up the reply of a call, but not the call: a server carries out its request, also after
    /// this client has left. Without this, a client that leaves takes back each request that no
    /// server has taken. If the reply has come already, it is dropped.
    ///
    /// The request is lost only if its server dies with it, and may not [go to
    /// another](ClientOptions::redeliveries).
    ///
    /// # Errors
    ///
    /// `Stale`: the call is over already, or is not this client's. In a forked child also the
    /// errors of [`Segment::client`].
    pub fn forget(&self, ticket: Ticket) -> Result<()> {
        const OP: &str = "reqrep forget";
        let me = self.sender().number(OP)?;
        let slot = self.slot(ticket, OP)?;
        // From now on, servers have to recover dead servers, too.
        self.shared().forgotten().store(1, Ordering::Relaxed);
        let others_wait = self.shared().own.parts.lock();
        let left = slot.forget(ticket.generation(), me, &self.shared().leaving(ticket.idx()));
        drop(others_wait);
        match left {
            Some(left) => {
                self.sender().left(left);
                self.ended(ticket);
                Ok(())
            }
            None => match self.end_for(ticket, OP) {
                Ok(None) => Err(Error::new(ErrorKind::Stale, OP)),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Stale) => {
                    Err(error.error())
                }
                // Any outcome will do.
                Ok(Some(_)) | Err(_) => Ok(()),
            },
        }
    }

    /// [Forgets](Client::forget) every call in progress whose ticket was given out, and returns
    /// their number. Call it before a client leaves, so that the client does not take back any of
    /// its requests. In a forked child that has not used this client there are none, because the
    /// calls are the parent's.
    ///
    /// Calls that other threads or tasks wait for in [`call`](Client::call) or in a
    /// [`Stream`](super::Stream) go on. A request that is sent at the same moment may be forgotten
    /// before its [`send`](Client::send) returns. It reaches a server all the same, or that `send`
    /// fails.
    pub fn forget_all(&self) -> usize {
        if !self.has_sent() {
            return 0;
        }
        let calls = self.sender().calls_here().into_iter().filter(|&ticket| self.has_ticket(ticket));
        calls.filter(|&ticket| self.forget(ticket).is_ok()).count()
    }

    /// As [`cancel`](Client::cancel).
    #[cold]
    pub(super) fn end_for(&self, ticket: Ticket, op: &'static str) -> Answer<Option<Reply>> {
        // A call that is over, or is no longer this client's, cannot be cancelled either.
        let Ok(false) = self.cancel_if_open(ticket) else { return Ok(None) };
        self.noted(
            ticket,
            match self.look(ticket, op) {
                // Another thread was faster.
                Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
                ended => ended,
            },
        )
    }

    /// The number of this client's calls in progress: sent, and their replies not received. Calls that
    /// were cancelled or have timed out do not count; [`Audit::dropped`](super::Audit::dropped) counts
    /// those whose servers still keep their slots.
    pub fn pending(&self) -> usize {
        self.sender().pending("reqrep pending").unwrap_or(0)
    }

    pub(super) fn terms(&self) -> Terms {
        self.sender().terms()
    }

    pub(super) fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.sender().shared()
    }

    pub(super) fn slot(&self, ticket: Ticket, op: &'static str) -> Result<&Slot> {
        self.shared().slot(ticket.idx()).ok_or(Error::new(ErrorKind::Stale, op))
    }
}

// ---------------------------------------------------------------- notification

impl Client {
    /// A descriptor for an event loop, readable while a reply, or an error in its place, can be
    /// received. The server may be any process, and need not know of it. It covers all calls that
    /// were sent by this client and its clones, except those of [`call`](Client::call).
    ///
    /// When it is readable, call [`recv_any`](Client::recv_any) with [`Deadline::now`] until it
    /// times out, or try to receive each call in progress; `recv_any` looks only at calls that are
    /// done. As soon as nothing is left to receive, it is not readable any more. A thread of this
    /// process waits on behalf of the loop: the first call of this method starts it, and it ends
    /// with the client.
    ///
    /// The caller owns the descriptor, may close it at any time, and must not read from it. Each
    /// call returns another one. A forked child needs its own.
    ///
    /// # Errors
    ///
    /// `Os` if no descriptor is left, or no thread can be started. In a forked child also the
    /// errors of [`Segment::client`].
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep doorbell";
        let watcher = self.watch_replies(OP)?;
        let doorbell = watcher.descriptor(OP)?;
        // These calls were sent before. A call that another thread is sending now either is found
        // here or finds the watcher: each thread has a fence between its store and its load.
        let me = self.sender().present(OP)?;
        let sent = self.shared().calls_of(me).filter(|&ticket| self.has_ticket(ticket));
        sent.for_each(|ticket| watcher.expect(self.as_awaited(ticket)));
        Ok(doorbell)
    }

    /// As [`doorbell`](Client::doorbell), but readable while a request can be sent. It becomes
    /// unreadable when [`try_send`](Client::try_send) finds no slot. If this client [needs a
    /// server](ClientOptions::needs_server), it becomes readable when the last server has gone,
    /// too.
    ///
    /// # Errors
    ///
    /// As [`doorbell`](Client::doorbell).
    pub fn send_doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep send doorbell";
        self.sender().watch_space(OP)?.descriptor(OP)
    }

    pub(super) fn watch_replies(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.sender().number(op)?;
        self.inner.replies.watch(|| self.sender().topic(Steps::Replies), op)
    }

    pub(super) fn as_awaited(&self, ticket: Ticket) -> AwaitedCall {
        AwaitedCall { ticket, needs_server: self.terms().needs_server }
    }

    #[inline]
    pub(super) fn sent(&self, ticket: Ticket) {
        self.inner.has_sent.set(true);
        if let Some(watcher) = self.inner.replies.asked_for() {
            watcher.expect(self.as_awaited(ticket));
        }
    }

    /// Whether a ticket was given out. If not, every call has a thread that waits for it.
    #[inline]
    pub(super) fn has_sent(&self) -> bool {
        self.inner.has_sent.is_set()
    }

    #[inline]
    pub(super) fn looked(&self, ticket: Ticket, is_open: bool) {
        if let Some(watcher) = self.inner.replies.asked_for() {
            watcher.looked(self.as_awaited(ticket), is_open);
        }
        if !is_open {
            self.may_be_without_calls();
        }
    }

    /// As [`looked`](Client::looked), for a call that was received; returns the outcome.
    pub(super) fn noted<T>(&self, ticket: Ticket, received: Answer<T>) -> Answer<T> {
        self.looked(ticket, received.as_ref().is_err_and(|error| may_be_open(error.kind())));
        received
    }

    /// As [`looked`](Client::looked), for a call that this client has ended: no server wakes the
    /// tasks that wait for it.
    fn ended(&self, ticket: Ticket) {
        self.looked(ticket, false);
        if let Some(member) = self.shared().member(self.sender().liveness().number()) {
            member.bell.notify_swapped(Reach::Machine);
        }
    }

    /// Wakes the threads in `recv_any` if the call that is over was the last one, because they
    /// return then. No server does that if this client has ended the call.
    #[inline]
    fn may_be_without_calls(&self) {
        let me = self.sender().liveness().number();
        let Some(member) = self.shared().member(me) else { return };
        // The call was ended by a swap.
        if member.any.is_awaited() && !self.has_calls(me) {
            member.any.notify_all_swapped(Reach::Machine);
        }
    }

    /// Whether a call is in progress whose ticket was given out. Each search begins where the last
    /// one ended. Otherwise the end of each of many calls would look at all that ended before.
    fn has_calls(&self, me: u16) -> bool {
        let first = self.inner.in_progress.get() as u32;
        let found = self.shared().calls_of_from(me, first).find(|ticket| self.has_ticket(*ticket));
        found.inspect(|ticket| self.inner.in_progress.set(u64::from(ticket.idx()))).is_some()
    }
}

/// Whether the call may still be in progress after an error of this kind. If it is over, the next
/// look finds that.
pub(super) fn may_be_open(kind: ErrorKind) -> bool {
    use ErrorKind::{Failed, NoServer, PeerDied, Stale};
    !matches!(kind, PeerDied | Failed | NoServer | Stale)
}

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
            self.shared().write_with(Direction::Request.of(idx), len, write, SEND).map(|()| Naming::default())
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
        let write = |idx| self.shared().write(Direction::Request.of(idx), request, op);
        self.sender().place(write, sending, deadline, None, op)
    }
}
