//! The answering end: takes requests from the ring, answers each of them once.

use std::borrow::Cow;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::eventfd::{EventFd, EventFds};
use super::liveness::Liveness;
use super::segment::Segment;
use super::shm::layout::{Kind, Part};
use super::shm::mapping::{Role, Shared, count};
use super::shm::member::Membership;
use super::shm::payload::{Message, Payload};
use super::shm::slot::{SlotWord, State};
use super::watch::{Topic, Watcher, WatcherState};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Wait;
use crate::spin::{Looks, Spin};
use crate::sync::Reach;

/// Takes requests from a segment and answers them.
///
/// Clones share one membership; threads may use one server, or a clone each, at the same time. Any
/// number of servers, in any number of processes, compete for the requests of a segment: each
/// request goes to one of them. A server that a forked child inherits works there, as a member of
/// its own. Requests taken before the fork stay the parent's.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Its thread ends before the membership does.
    watcher: Watcher,
    shared: Arc<Shared>,
    membership: Arc<Membership>,
    segment: Segment,
    eventfds: EventFds,
    spin: Spin,
    liveness: Arc<Liveness>,
}

const RECV: &str = "reqrep recv";

impl Segment {
    /// Attaches a server.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client).
    pub fn server(&self) -> Result<Server> {
        Server::new(self, Kind::Bytes)
    }
}

impl Server {
    pub(super) fn new(segment: &Segment, kind: Kind) -> Result<Server> {
        let membership = Arc::new(segment.join(kind, Role::Server, "reqrep attach server")?);
        Ok(Server(Arc::new(Inner {
            watcher: Watcher::new(),
            shared: Arc::clone(membership.shared()),
            liveness: Arc::new(Liveness::new(&membership)),
            membership,
            segment: segment.clone(),
            eventfds: EventFds::default(),
            spin: Spin::new(segment.spin(), Looks::Load),
        })))
    }

    /// The segment that this server is attached to.
    pub fn segment(&self) -> &Segment {
        &self.0.segment
    }

    /// Waits for the next request.
    ///
    /// # Blocking
    ///
    /// Until a request comes, or until the deadline. It spins before it parks, for as long as
    /// [`Options::spin`](super::Options::spin) says, if recent waits were short.
    ///
    /// # Errors
    ///
    /// `TimedOut`; `Interrupted` if a signal handler ran; `Corrupt` if the segment was damaged.
    /// `Os` with ENOMEM if there is no memory for the request, which then fails at its client. `Os`
    /// with another number if the kernel does not say whether this server still has its lock, for
    /// instance because the program has closed a descriptor of the segment (EBADF). In a forked
    /// child as well what [`Segment::server`] fails with.
    #[inline]
    pub fn recv(&self, deadline: impl Into<Deadline>) -> Result<Request<'_>> {
        let deadline = deadline.into();
        for _ in 0..self.turns() {
            let claimed = match self.claim()? {
                Some(claimed) => claimed,
                None => self.claim_waiting(deadline)?,
            };
            let mut request = self.request(claimed);
            if request.copy_out()? {
                return Ok(request);
            }
        }
        Err(Error::new(ErrorKind::Corrupt, RECV))
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
                self.0.liveness.look_after(RECV)?;
            }
            // An event loop goes on after an error, too.
            Err(_) => self.0.watcher.found_none(),
        }
        request
    }

    /// Up to `max` requests: waits for the first, then takes those that are there.
    ///
    /// # Blocking
    ///
    /// As [`recv`](Server::recv).
    ///
    /// # Errors
    ///
    /// As [`recv`](Server::recv). The requests that were taken before an error are returned, and
    /// the error comes again with the next call.
    pub fn recv_many(&self, max: usize, deadline: impl Into<Deadline>) -> Result<Vec<Request<'_>>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut requests = vec![self.recv(deadline)?];
        while requests.len() < self.most(max)
            && let Ok(Some(request)) = self.take()
        {
            requests.push(request);
        }
        Ok(requests)
    }

    /// Up to `max` requests that wait now. It does not block.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Server::try_recv), if it could not take any.
    pub fn drain(&self, max: usize) -> Result<Vec<Request<'_>>> {
        let mut requests = Vec::new();
        while requests.len() < self.most(max) {
            match self.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => {
                    self.0.watcher.found_none();
                    break;
                }
                Err(error) if requests.is_empty() => {
                    self.0.watcher.found_none();
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        Ok(requests)
    }

    /// Bytes of the first `max` requests that wait now: what [`drain`](Server::drain) would copy. A
    /// hint, to decide whether to do work of that size elsewhere: requests come and go meanwhile.
    pub fn waiting_bytes(&self, max: usize) -> u64 {
        let shared = self.shared();
        let queue = shared.queue();
        let waiting = queue.entries().filter(|idx| shared.is_sent(*idx)).take(max);
        let slots = waiting.filter_map(|idx| shared.slot(idx));
        slots.map(|slot| u64::from(slot.described(Part::Request).0)).sum()
    }

    /// Fails all requests that wait now, and returns how many they were.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Server::try_recv).
    pub fn clear(&self) -> Result<usize> {
        let mut cleared = 0;
        // No more than can have waited when it began: clients may send as quickly as this loop
        // fails them.
        for _ in 0..self.shared().geometry().slots {
            match self.take()? {
                Some(request) => request.fail(),
                None => break,
            }
            cleared += 1;
        }
        Ok(cleared)
    }

    /// A descriptor for an event loop, readable while a request waits. The client may be any
    /// process; it knows nothing of this.
    ///
    /// When it is readable, take requests with [`try_recv`](Server::try_recv) or
    /// [`drain`](Server::drain) until there is none: then it is not readable any more. Until then,
    /// further requests cost no system call. A thread of this process waits on behalf of the loop.
    /// The first call of this method starts it, and it ends with the server. If the loop does not
    /// come within a millisecond, another server is woken.
    ///
    /// The caller owns the descriptor, may close it at any time, and must not read from it. Each
    /// call returns another one. A forked child asks for one of its own.
    ///
    /// # Errors
    ///
    /// `Os`, if no descriptor is left, or no thread can be started. In a forked child as well what
    /// [`Segment::server`] fails with.
    pub fn doorbell(&self) -> Result<OwnedFd> {
        const OP: &str = "reqrep doorbell";
        self.watch(OP)?.descriptor(OP)
    }

    /// The eventfd that is rung by hand to notify servers of requests.
    pub fn request_eventfd(&self) -> &EventFd {
        &self.0.eventfds.request
    }

    /// The eventfd that is rung by hand to notify clients of replies.
    pub fn reply_eventfd(&self) -> &EventFd {
        &self.0.eventfds.reply
    }

    pub(super) fn watch(&self, op: &'static str) -> Result<Arc<WatcherState>> {
        // A forked child is to be a member before its thread waits for anything.
        self.0.membership.number(op)?;
        self.0.watcher.watch(self.shared(), &self.0.liveness, None, Topic::Requests, op)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// How many requests one call may take: no more than there can be at the same time, whatever is
    /// written into the segment.
    fn most(&self, max: usize) -> usize {
        max.min(self.shared().geometry().slots as usize)
    }

    #[inline]
    pub(super) fn take(&self) -> Result<Option<Request<'_>>> {
        for _ in 0..self.turns() {
            let Some(claimed) = self.claim()? else { return Ok(None) };
            let mut request = self.request(claimed);
            if request.copy_out()? {
                return Ok(Some(request));
            }
        }
        Err(Error::new(ErrorKind::Corrupt, RECV))
    }

    /// How often to try to claim. Each try but the last fails a request whose length no client of
    /// ours wrote; a client that goes on sending such requests must not keep this loop running.
    fn turns(&self) -> u32 {
        self.shared().geometry().slots + 1
    }

    /// Claims the first request that waits; returns the word that makes it this server's. Waits
    /// poll this and not the payload, which is moved no more often than it must be.
    #[inline]
    fn claim(&self) -> Result<Option<(u32, SlotWord)>> {
        let (shared, number) = (self.shared(), self.0.membership.present(RECV)?);
        let claim = |idx| Some((idx, shared.slot(idx)?.claim(number)?));
        let popped = shared.queue().pop(claim, RECV)?;
        if popped.claimed.is_some() || popped.stale > 0 {
            // All of them: the claimed request may be that of any client that waits, by an older
            // entry.
            shared.cells().notify_all_swapped(Reach::Machine);
        }
        if popped.stale > 0 {
            // An event loop that waits for a slot waits for a cell, too.
            shared.space().notify_all(Reach::Machine);
        }
        if popped.claimed.is_none() {
            self.0.liveness.meet_failure(RECV)?;
        }
        Ok(popped.claimed)
    }

    fn claim_waiting(&self, deadline: Deadline) -> Result<(u32, SlotWord)> {
        self.found_none()?;
        let tick = Some(self.0.liveness.tick());
        let wait = Wait { deadline, spin: &self.0.spin, reach: Reach::Machine, tick, op: RECV };
        self.shared().requests().wait(&wait, || self.claim(), || self.0.liveness.check(RECV))
    }

    fn found_none(&self) -> Result<()> {
        let number = self.0.membership.number(RECV)?;
        count(&self.0.membership.member(number).counters.0.empty);
        self.0.watcher.found_none();
        self.shared().check_whole(RECV)
    }

    /// A claimed request, without its payload.
    #[inline]
    fn request(&self, (idx, taken): (u32, SlotWord)) -> Request<'_> {
        let holder = self.0.membership.packed(taken.owner());
        let server = Cow::Borrowed(self);
        Request { server, idx, taken, holder, flags: 0, payload: Payload::empty() }
    }
}

/// A request that this process has taken, and that no other server gets. If it is dropped without a
/// reply, it fails at its client at once.
///
/// It dereferences to its bytes, which are a copy. It borrows its server;
/// [`into_owned`](Request::into_owned) makes one that can be moved to another thread.
#[derive(Debug)]
pub struct Request<'a> {
    server: Cow<'a, Server>,
    idx: u32,
    /// The word as it was claimed; the waiter bit may have been set since.
    taken: SlotWord,
    /// The member that claimed it, so that the same request in a forked child is known to be the
    /// parent's.
    holder: u64,
    flags: u32,
    payload: Payload,
}

const REPLY: &str = "reqrep reply";

impl Request<'_> {
    /// The bytes of the request.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Its bytes as a vector. A long payload is moved, not copied.
    pub fn take_payload(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.payload, Payload::empty()).into_vec()
    }

    /// The 32 bits that the client sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// The same request, with a clone of its server instead of a borrow.
    pub fn into_owned(mut self) -> Request<'static> {
        Request {
            server: Cow::Owned(Server::clone(&self.server)),
            idx: self.idx,
            // From here on, dropping this one does nothing.
            taken: std::mem::replace(&mut self.taken, SlotWord::from_bits(0)),
            holder: self.holder,
            flags: self.flags,
            payload: std::mem::replace(&mut self.payload, Payload::empty()),
        }
    }

    /// How many servers have died with this request, 0 to 3. More than 0 only if the client asked
    /// for redelivery.
    pub fn redeliveries(&self) -> u8 {
        self.taken.delivery()
    }

    /// Answers, and returns whether the client still waited when it was answered: false if it has
    /// cancelled, or if its death was noticed before. True does not mean that the client receives
    /// the reply.
    ///
    /// # Errors
    ///
    /// `TooLong` if the reply is longer than the segment allows; `Corrupt` if the segment was
    /// damaged; in a [sparse](super::Options::sparse) segment `Os`, with ENOSPC if there is no page
    /// for the reply, and with EBADF if the program has closed the segment's descriptor. The
    /// request then fails at its client. `Stale` if the request is not this server's any more: in a
    /// child that was forked after it was taken, and where others had to take this server for dead.
    #[inline]
    pub fn reply<'m>(mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        self.check()?;
        let shared = self.server.shared();
        let slot = shared.slot(self.idx).ok_or(Error::new(ErrorKind::Corrupt, REPLY))?;
        // Before the copy: if the request was taken away, the bytes there belong to another call by
        // now.
        if !slot.load().is_held(self.taken) {
            return Err(Error::new(ErrorKind::Stale, REPLY));
        }
        shared.write(self.idx, Part::Reply, &reply.into(), REPLY)?;
        Ok(self.finish(State::Answered))
    }

    /// Gives the request up; its call fails with `Failed`. Dropping does the same.
    pub fn fail(self) {}

    /// Whether the client waits for the reply: false once it has cancelled, or its death was
    /// noticed.
    pub fn is_wanted(&self) -> bool {
        let slot = self.server.shared().slot(self.idx);
        let now = slot.map(|slot| slot.load());
        now.is_some_and(|now| {
            now.is(State::Taken, self.taken.owner()) && now.generation() == self.taken.generation()
        })
    }

    /// Copies it out of the segment; false for a request that no client of ours sends. One that
    /// cannot be copied out is to be dropped, and fails.
    #[inline]
    fn copy_out(&mut self) -> Result<bool> {
        let flags = self.server.shared().read(self.idx, Part::Request, &mut self.payload, RECV)?;
        self.flags = flags.unwrap_or(0);
        Ok(flags.is_some())
    }

    /// Fails with `Stale` in a forked child.
    fn check(&self) -> Result<()> {
        let ours = self.server.0.membership.still_is(self.holder);
        if ours { Ok(()) } else { Err(Error::new(ErrorKind::Stale, REPLY)) }
    }

    /// Steps 5 and 7; true if the client gets it.
    #[inline]
    fn finish(&mut self, outcome: State) -> bool {
        let shared = self.server.shared();
        // It counts as finished from here on, whatever happens: a drop must not finish it again.
        let taken = std::mem::replace(&mut self.taken, SlotWord::from_bits(0));
        let Some(slot) = shared.slot(self.idx) else { return false };
        let client = slot.client();
        let Some(next) = slot.finish(taken, outcome) else { return false };
        if next.state() == Some(State::Free) {
            shared.slot_is_free(self.idx);
            return false;
        }
        shared.tell_client(slot, next.has_waiter(), client);
        true
    }
}

impl Deref for Request<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.payload()
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.taken != SlotWord::from_bits(0) && self.check().is_ok() {
            self.finish(State::Failed);
        }
    }
}
