//! The server end: finds requests in the ring, claims each, and answers it once.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::layout::Direction;
use super::queue::{Claim, Entry};
use super::request::Request;
use super::segment::Segment;
use super::serving::{self, Claimed, Receipt, ServerOptions, Serving, Wanted};
use super::shared::{EMPTY, Shared};
use super::slot::SlotWord;
use super::waiting::WatcherState;
use super::word::Ticket;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::mapping::count;
use crate::sync::Reach;
use crate::sys;

const RECV: &str = "reqrep recv";

impl Segment {
    /// Attaches a server with the default options.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client).
    pub fn server(&self) -> Result<Server> {
        self.server_with(&ServerOptions::new())
    }

    /// Attaches a server with these options.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client).
    pub fn server_with(&self, options: &ServerOptions) -> Result<Server> {
        Server::new(self, options)
    }
}

/// Takes requests from a segment and answers them.
///
/// Clones share one membership. Threads may use one server, or a clone each, at the same time. Any
/// number of servers, in any number of processes, compete for the requests of a segment: each
/// request goes to one of them. A server that a forked child inherits works there, as a separate
/// member. Requests that were taken before the fork stay the parent's.
#[derive(Clone, Debug)]
pub struct Server(Serving);

/// An iterator over requests: what [`Server::requests`] returns.
#[derive(Debug)]
pub struct Requests<'a> {
    server: &'a Server,
    is_over: bool,
}

impl<'a> Iterator for Requests<'a> {
    type Item = Result<Request<'a>>;

    fn next(&mut self) -> Option<Result<Request<'a>>> {
        while !self.is_over {
            match self.server.recv(Deadline::NEVER) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_over = true;
                    return (error.kind() != ErrorKind::Closed).then_some(Err(error));
                }
                request => return Some(request),
            }
        }
        None
    }
}

impl Server {
    pub(super) fn new(segment: &Segment, options: &ServerOptions) -> Result<Server> {
        Serving::new(segment, options).map(Server)
    }

    /// The segment that this server is attached to.
    pub fn segment(&self) -> &Segment {
        self.0.segment()
    }

    /// Waits for the next request.
    ///
    /// # Blocking
    ///
    /// Until a request comes, or until the deadline. If recent waits were short, it spins before it
    /// parks, for as long as [`Options::spin`](super::Options::spin) says.
    ///
    /// A request that breaks the format fails at its client, and so does one that is longer than
    /// [`max_message`](super::ServerOptions::max_message), or has more bytes of blobs that have to be
    /// copied. Then this keeps waiting.
    ///
    /// # Errors
    ///
    /// `TimedOut`. `Interrupted` if a signal handler ran. `Closed` once this server was
    /// [stopped](Server::stop). `Corrupt` if the segment was damaged.
    ///
    /// `Os` with ENOMEM, EMFILE, ENFILE or ENOLCK if this process lacks memory, a descriptor or a lock
    /// for the next request, and `TooLong` if it holds as many bytes of blobs as
    /// [`blob_limit`](super::Options::blob_limit) allows. Then the request stays, in its order, for
    /// another server or a later call; this one has waited 100 ms for what it lacks. A request that
    /// alone exceeds the limit fails at its client instead.
    ///
    /// `Os` if this process has no access to the [folder](Segment::blob_folder) of the request's blobs:
    /// the request fails at its client, with the same reason. `Os` with another number if the kernel
    /// does not say whether this server still has its lock, for instance because the program has closed
    /// a descriptor of the segment (EBADF). In a forked child also the errors of [`Segment::server`].
    // Always: the result is large, and a call would move it once more.
    #[inline(always)]
    pub fn recv(&self, deadline: impl Into<Deadline>) -> Result<Request<'_>> {
        let deadline = LazyCell::new(|| deadline.into());
        loop {
            let mut receipt = Receipt::new(Wanted::All);
            let mut request = self.request(self.find_until(&mut receipt, &|| *deadline)?);
            if request.receive(receipt)? {
                return Ok(request);
            }
            if deadline.has_passed() {
                return Err(Error::new(ErrorKind::TimedOut, RECV));
            }
        }
    }

    /// Answers each request with the result of `handler`, until this server is
    /// [stopped](Server::stop). An `Err` fails the request, and the client gets its text as the
    /// reason. The handler may give [parts](Request::part) before it returns the last one.
    ///
    /// To answer requests in several threads, call it in each.
    ///
    /// # Blocking
    ///
    /// Until this server is stopped. It continues after a signal handler has run.
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv), but never `TimedOut`, `Interrupted` or `Closed`. While this process
    /// is at its [`blob_limit`](super::Options::blob_limit), it waits. A reply that cannot be sent fails
    /// its request, and is no error here.
    ///
    /// # Examples
    ///
    /// ```
    /// # use pipework::reqrep::Options;
    /// # use std::{thread, time::Duration};
    /// let segment = Options::new().anonymous()?;
    /// let server = segment.server()?;
    /// let stop = server.clone();
    /// let serving = thread::spawn(move || {
    ///     server.serve(|request| match std::str::from_utf8(request) {
    ///         Ok(text) => Ok(text.to_uppercase()),
    ///         Err(error) => Err(error),
    ///     })
    /// });
    /// let client = segment.client()?;
    /// assert_eq!(&*client.call("hello", Duration::from_secs(5))?, b"HELLO");
    /// let error = client.call(b"\xFF", Duration::from_secs(5)).unwrap_err();
    /// assert!(error.to_string().contains("invalid utf-8"));
    /// stop.stop();
    /// serving.join().unwrap()?;
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn serve<R: AsRef<[u8]>, E: Display>(
        &self,
        mut handler: impl FnMut(&mut Request<'_>) -> std::result::Result<R, E>,
    ) -> Result<()> {
        let mut requests = self.requests();
        while let Some(request) = requests.next() {
            let mut request = match request {
                // Other threads of this process hold the blobs, and drop them.
                Err(error) if serving::is_at_limit(error) => {
                    requests.is_over = false;
                    continue;
                }
                request => request?,
            };
            match handler(&mut request) {
                // After an error the request has failed for that reason.
                Ok(reply) => _ = request.reply(reply.as_ref()),
                Err(error) => _ = request.fail(&error.to_string()),
            }
        }
        Ok(())
    }

    /// The requests as they come, until this server is [stopped](Server::stop): an iterator that
    /// [receives](Server::recv) without a deadline, and continues after a signal handler has run.
    ///
    /// A request that is dropped fails at its client. The iterator ends after the first error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use pipework::reqrep::Options;
    /// # let server = Options::new().anonymous()?.server()?;
    /// for request in server.requests() {
    ///     let request = request?;
    ///     let answer = request.to_ascii_uppercase();
    ///     request.reply(&answer)?;
    /// }
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn requests(&self) -> Requests<'_> {
        Requests { server: self, is_over: false }
    }

    /// The next request; `None` if none waits. It does not block.
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv), but never `TimedOut` or `Interrupted`.
    #[inline]
    pub fn try_recv(&self) -> Result<Option<Request<'_>>> {
        let request = self.take();
        match request {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.found_none()?;
                self.0.liveness().look_after(None, RECV)?;
            }
            // An event loop continues after an error, too.
            Err(_) => self.0.found_none(),
        }
        request
    }

    /// Waits for the next request, and leaves its bytes in the segment until [`Request::read_into`]
    /// copies them.
    ///
    /// # Blocking
    ///
    /// As [`recv`](Server::recv).
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// # use pipework::reqrep::Options;
    /// # use std::{thread, time::Duration};
    /// # let segment = Options::new().anonymous()?;
    /// # let (client, server) = (segment.client()?, segment.server()?);
    /// # let wait = Duration::from_secs(5);
    /// # let caller = thread::spawn(move || client.call(&[7; 100_000], wait));
    /// let mut frame = vec![0; 1 << 20];
    /// let mut request = server.claim(Duration::from_secs(5))?;
    /// let len = request.read_into(&mut frame)?;
    /// request.reply("stored")?;
    /// # assert_eq!((len, frame[len - 1], &*caller.join().unwrap()?), (100_000, 7, &b"stored"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim(&self, deadline: impl Into<Deadline>) -> Result<Request<'_>> {
        let deadline = LazyCell::new(|| deadline.into());
        for _ in 0..self.turns() {
            let mut receipt = Receipt::new(Wanted::Blobs);
            let mut request = self.request(self.find_until(&mut receipt, &|| *deadline)?);
            if request.claim(receipt)? {
                return Ok(request);
            }
        }
        Err(Error::new(ErrorKind::Corrupt, RECV))
    }

    /// Up to `max` requests: waits for the first, takes all that wait then, and takes more for a
    /// time of `linger`.
    ///
    /// # Blocking
    ///
    /// As [`recv`](Server::recv), and then for up to `linger`, which may be zero, or until it has
    /// `max` requests.
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv). If an error comes after the first request, this returns the
    /// requests so far, and the next call returns the error.
    pub fn recv_many(
        &self,
        max: usize,
        deadline: impl Into<Deadline>,
        linger: Duration,
    ) -> Result<Vec<Request<'_>>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut requests = vec![self.recv(deadline)?];
        let lingers = (!linger.is_zero()).then(|| Deadline::after(linger));
        while requests.len() < self.most(max) {
            let next = match (self.take(), lingers) {
                (Ok(None), Some(until)) => self.recv(until).map(Some),
                (next, _) => next,
            };
            let Ok(Some(request)) = next else { break };
            requests.push(request);
        }
        Ok(requests)
    }

    /// Up to `max` requests that wait now. It does not block.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Server::try_recv), if it could not take any. If it could take some, the next
    /// call returns the error.
    pub fn drain(&self, max: usize) -> Result<Vec<Request<'_>>> {
        let mut requests = Vec::new();
        while requests.len() < self.most(max) {
            match self.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => {
                    self.0.found_none();
                    if requests.is_empty() {
                        self.0.liveness().look_after(None, RECV)?;
                    }
                    break;
                }
                Err(error) if requests.is_empty() => {
                    self.0.found_none();
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        Ok(requests)
    }

    /// Bytes of the first `max` requests that wait now: the number that [`drain`](Server::drain)
    /// would copy. This is a hint, to decide whether to do work of that size elsewhere: requests
    /// come and go meanwhile.
    pub fn waiting_bytes(&self, max: usize) -> u64 {
        let shared = self.shared();
        let queue = shared.queue();
        let waiting = queue.entries().filter(|entry| shared.is_waiting(*entry)).take(max);
        waiting
            .map(|entry| shared.payload_len(Direction::Request.of(entry.slot())) as u64)
            .fold(0, u64::saturating_add)
    }

    /// Fails all requests that wait now, and returns their number.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Server::try_recv).
    pub fn clear(&self) -> Result<usize> {
        let mut cleared = 0;
        // Limited to one pass over the slots: clients may send as quickly as this loop fails
        // requests.
        for _ in 0..self.shared().geometry().slots {
            match self.find(&mut Receipt::new(Wanted::Nothing))? {
                Some(claimed) => drop(self.request(claimed)),
                None => {
                    self.0.found_none();
                    break;
                }
            }
            cleared += 1;
        }
        if cleared == 0 {
            self.0.liveness().look_after(None, RECV)?;
        }
        Ok(cleared)
    }

    /// Stops this server and its clones: from now on every receiving call returns `Closed` at once,
    /// and takes no request. Requests that were taken before can be answered. Requests that wait in
    /// the segment stay for other servers.
    ///
    /// Any thread may call it. It does not block.
    pub fn stop(&self) {
        self.0.readiness().stop();
        self.shared().requests().notify_all(Reach::Machine);
    }

    /// Takes back a request that was [kept](Request::keep). `None` if no request with this ticket
    /// is kept, or it was taken back already. Its bytes and blobs are in the segment:
    /// [`Request::read`] gets them again.
    ///
    /// # Errors
    ///
    /// `Stale` in a forked child, for a request that its parent keeps: use
    /// [`adopt`](Server::adopt). `Stale` also if other members had to count this server as dead.
    // Always: a call would move the request once more.
    #[inline(always)]
    pub fn kept(&self, ticket: Ticket) -> Result<Option<Request<'_>>> {
        const OP: &str = "reqrep kept";
        let number = self.0.membership().number(OP)?;
        match self.0.kept(ticket) {
            Some((taken, collected)) if taken.owner() == number => {
                let claimed = self.claimed((ticket.idx(), taken));
                Ok(Some(Request::kept(&self.0, claimed, collected)))
            }
            Some((taken, collected)) => {
                self.0.keep(self.claimed((ticket.idx(), taken)), collected);
                Err(Error::new(ErrorKind::Stale, OP))
            }
            None => Ok(None),
        }
    }

    /// Takes over a request that the parent had [kept](Request::keep) when it forked this process:
    /// for servers that fork for each request. The parent must not answer it any more, and gets
    /// `Stale` if it tries. Until the child has adopted the request, it fails if the parent drops
    /// its server.
    ///
    /// # Errors
    ///
    /// `Stale` if the parent has answered it, has died, or has given a part of the reply, or if no
    /// request with this ticket was kept. The errors of [`Segment::server`], because the child
    /// joins.
    pub fn adopt(&self, ticket: Ticket) -> Result<Request<'_>> {
        const OP: &str = "reqrep adopt";
        let number = self.0.membership().present(OP)?;
        let stale = Error::new(ErrorKind::Stale, OP);
        let (taken, collected) = self.0.kept(ticket).ok_or(stale)?;
        let Some(adopted) = self.shared().slot(ticket.idx()).and_then(|slot| slot.adopt(taken, number))
        else {
            // The request may already belong to this process.
            self.0.keep(self.claimed((ticket.idx(), taken)), collected);
            return Err(stale);
        };
        Ok(Request::kept(&self.0, self.claimed((ticket.idx(), adopted)), collected))
    }

    /// A descriptor for an event loop, readable while a request waits. The client may be any
    /// process, and need not know of it.
    ///
    /// When it is readable, take requests with [`try_recv`](Server::try_recv) or
    /// [`drain`](Server::drain) until none is left: then it is not readable any more. Until then,
    /// further requests cost no system call. A thread of this process waits on behalf of the loop:
    /// the first call of this method starts it, and it ends with the server. If the loop takes no
    /// request within a millisecond, another server is woken. The descriptor is also readable once
    /// the server was [stopped](Server::stop).
    ///
    /// The caller owns the descriptor, may close it at any time, and must not read from it. Each
    /// call returns another one. A forked child needs its own.
    ///
    /// # Errors
    ///
    /// `Os` if no descriptor is left, or no thread can be started. In a forked child also the
    /// errors of [`Segment::server`].
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep doorbell";
        self.watch(OP)?.descriptor(OP)
    }

    pub(super) fn watch(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        self.0.watch_requests(op)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.0.shared()
    }

    /// How many requests one call may take: at most the number of slots, even if the segment
    /// contains wrong numbers.
    fn most(&self, max: usize) -> usize {
        max.min(self.shared().geometry().slots as usize)
    }

    #[inline]
    pub(super) fn take(&self) -> Result<Option<Request<'_>>> {
        for _ in 0..self.turns() {
            let mut receipt = Receipt::new(Wanted::All);
            let Some(found) = self.find(&mut receipt)? else { return Ok(None) };
            let mut request = self.request(found);
            if request.receive(receipt)? {
                return Ok(Some(request));
            }
        }
        // A steady flow of malformed requests is not damage.
        Ok(None)
    }

    pub(super) fn serving(&self) -> &Serving {
        &self.0
    }

    /// How often to try to claim. Each try but the last fails a request with an impossible length;
    /// the limit keeps a client that sends such requests from holding up this loop for ever.
    pub(super) fn turns(&self) -> u32 {
        self.shared().geometry().slots + 1
    }

    pub(super) fn found_none(&self) -> Result<()> {
        let membership = self.0.membership();
        count(&membership.member(membership.number(RECV)?).own.0[EMPTY]);
        self.0.found_none();
        self.shared().check_whole(RECV)
    }

    /// A claimed request, without its payload.
    #[inline]
    pub(super) fn request(&self, claimed: (u32, SlotWord)) -> Request<'_> {
        Request::new(Cow::Borrowed(&self.0), self.claimed(claimed))
    }

    #[inline]
    fn claimed(&self, (idx, taken): (u32, SlotWord)) -> Claimed {
        Claimed { idx, taken, holder: self.0.membership().packed(taken.owner()) }
    }
}

/// For how long a server that lacks something waits for it, before it reports the error.
pub(super) const SHORT: Duration = Duration::from_millis(100);

impl Server {
    /// Claims the first request that waits, and returns its word after that step. Waits poll this
    /// function and not the payload, to move the payload as rarely as possible. Only blobs are
    /// received before the claim, into the receipt. If this process lacks what they take, it fails,
    /// and the request stays.
    // Always, as below.
    #[inline(always)]
    pub(super) fn find(&self, receipt: &mut Receipt<'_>) -> Result<Option<(u32, SlotWord)>> {
        if self.serving().readiness().is_stopped() {
            return Err(Error::new(ErrorKind::Closed, RECV));
        }
        let (shared, number) = (self.shared(), self.serving().membership().present(RECV)?);
        let mut shortage = None;
        let claim = |entry: Entry| {
            let Some(slot) = shared.slot(entry.slot()) else { return Claim::Stale };
            match slot.claim(entry, number) {
                Some(taken) => Claim::Claimed((entry.slot(), taken)),
                None => self.claim_with_blobs(entry, number, receipt, &mut shortage),
            }
        };
        let popped = shared.queue().pop(claim, RECV)?;
        if popped.claimed.is_some() || popped.stale > 0 {
            shared.ring_may_have_space();
        }
        if popped.claimed.is_none() {
            self.serving().liveness().meet_failure(RECV)?;
        }
        match shortage {
            Some(error) => Err(self.is_short(error)),
            None => Ok(popped.claimed),
        }
    }

    /// Claims the call of an entry if it waits for a server.
    #[cold]
    fn claim_with_blobs(
        &self,
        entry: Entry,
        number: u16,
        receipt: &mut Receipt<'_>,
        shortage: &mut Option<Error>,
    ) -> Claim<(u32, SlotWord)> {
        let (shared, idx) = (self.shared(), entry.slot());
        let Some(slot) = shared.slot(idx) else { return Claim::Stale };
        for _ in 0..self.turns() {
            let sent = slot.load();
            if !shared.is_waiting(entry) {
                return Claim::Stale;
            }
            match receipt.claim(shared, (idx, slot, sent), number, self.serving().max_message()) {
                Ok(Some(taken)) => return Claim::Claimed((idx, taken)),
                // Another server was faster, or the slot has another call by now.
                Ok(None) => {}
                Err(error) => {
                    *shortage = Some(error);
                    return Claim::Left;
                }
            }
        }
        Claim::Left
    }

    /// Leaves a request to other servers, because this process lacks what it takes to receive it.
    #[cold]
    fn is_short(&self, error: Error) -> Error {
        self.serving().readiness().is_short();
        // The wake-up may have been for a server that lacks nothing.
        self.shared().requests().notify_all(Reach::Machine);
        error
    }

    #[inline]
    pub(super) fn find_until(
        &self,
        receipt: &mut Receipt<'_>,
        deadline: Later<'_>,
    ) -> Result<(u32, SlotWord)> {
        match self.find(receipt) {
            Ok(Some(found)) => Ok(found),
            found => self.find_later(found, receipt, deadline()),
        }
    }

    /// Waits after a look that has `found` no request.
    #[cold]
    fn find_later(
        &self,
        mut found: Result<Option<(u32, SlotWord)>>,
        receipt: &mut Receipt<'_>,
        deadline: Deadline,
    ) -> Result<(u32, SlotWord)> {
        loop {
            found = match found {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => self.find_waiting(receipt, deadline).map(Some),
                Err(error) if receipt.is_short() => self.find_while_short(error, receipt, deadline),
                Err(error) => return Err(error),
            };
        }
    }

    fn find_waiting(&self, receipt: &mut Receipt<'_>, deadline: Deadline) -> Result<(u32, SlotWord)> {
        self.found_none()?;
        let (shared, check) = (self.shared(), || self.serving().liveness().check(None, RECV));
        let found =
            shared.requests().wait(&self.serving().waiting(deadline, RECV), || self.find(receipt), check);
        // The wake-up may have been for a request that this server leaves to others.
        found.inspect_err(|_| {
            if shared.has_request() {
                shared.requests().notify(Reach::Machine)
            }
        })
    }

    /// Looks again for a while after a look has found this process short of something: other threads
    /// may give back what they hold. They cannot wake this one, so it looks every few milliseconds.
    fn find_while_short(
        &self,
        mut error: Error,
        receipt: &mut Receipt<'_>,
        deadline: Deadline,
    ) -> Result<Option<(u32, SlotWord)>> {
        let limit = Deadline::after(SHORT);
        let mut pause = Duration::from_millis(1);
        while receipt.forget_shortage() && !limit.has_passed() && !deadline.has_passed() {
            sys::sleep(deadline.remaining().unwrap_or(pause).min(pause)).map_err(|errno| errno.at(RECV))?;
            pause = (pause * 2).min(Duration::from_millis(10));
            match self.find(receipt) {
                Err(again) => error = again,
                found => return found,
            }
        }
        Err(error)
    }
}
