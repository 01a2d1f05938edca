//! One request that a server has taken: it is read, answered at once or in parts, kept, or given
//! up.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use super::layout::Direction;
use super::payload::LONG;
use super::serving::{Claimed, Collected, FOLDER, Receipt, Received, Serving};
use super::slot::{Holding, Mark, SlotWord};
use super::word::Ticket;
use crate::blob::Blob;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;
use crate::segment::header::SMALL;
use crate::segment::message::{Message, Payload, Space};
use crate::segment::naming::{Blobs, NamedBlobs, Naming};
use crate::sys::Errno;

const RECV: &str = "reqrep recv";
const REPLY: &str = "reqrep reply";
const PART: &str = "reqrep part";

/// The reason of a request that fails because it is too long.
const TOO_LONG: &str = "longer than the server's max_message";

/// A request that this process has taken, and that no other server gets. If it is dropped without a
/// reply, its call fails at once.
///
/// It dereferences to its bytes: a copy of them, or the blob that carries a long request. It
/// borrows its server; [`into_owned`](Request::into_owned) makes one that can be moved to another
/// thread, and [`keep`](Request::keep) leaves it with the server, to be answered by its ticket.
#[derive(Debug)]
pub struct Request<'a> {
    server: Cow<'a, Serving>,
    /// Its word is 0 once the request is over.
    claimed: Claimed,
    flags: u32,
    pub(super) payload: Payload,
    blobs: Blobs,
    /// The bytes are only in the segment, and not copied yet.
    is_unread: bool,
    /// The parts of the reply so far, if the client does not take parts.
    collected: Option<Arc<Collected>>,
}

impl<'a> Request<'a> {
    /// A claimed request, without its payload.
    #[inline]
    pub(super) fn new(server: Cow<'a, Serving>, claimed: Claimed) -> Request<'a> {
        let (payload, flags, blobs) = (Payload::empty(), 0, Blobs::default());
        Request { server, claimed, flags, payload, blobs, is_unread: true, collected: None }
    }

    /// A request that was kept.
    #[inline]
    pub(super) fn kept(
        server: &'a Serving,
        claimed: Claimed,
        collected: Option<Arc<Collected>>,
    ) -> Request<'a> {
        let mut request = Request::new(Cow::Borrowed(server), claimed);
        request.collected = collected;
        request
    }
}

/// Its contents.
impl Request<'_> {
    /// The bytes of the request. Empty for one that was [claimed](super::Server::claim) or
    /// [kept](super::Server::kept), until it is [read](Request::read).
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Its bytes as a vector. Those that came in a blob are copied.
    pub fn take_payload(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.payload, Payload::empty()).into_vec()
    }

    /// The blobs that the client has [attached](super::Message::attach). Empty for a request that
    /// was [kept](super::Server::kept), until it is [read](Request::read).
    pub fn blobs(&self) -> &[Blob] {
        self.blobs.as_slice()
    }

    /// The 32 bits that the client sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// The ticket that [`send`](super::Client::send) returned for it.
    pub fn ticket(&self) -> Ticket {
        self.claimed.ticket()
    }

    /// How many servers have died with this request or [given it back](Request::give_back), 0 to 3.
    pub fn redeliveries(&self) -> u8 {
        self.claimed.taken.delivery()
    }

    /// Whether a server should still carry out the request. False once the client has cancelled, or
    /// once its death was noticed: within 250 ms if the server calls this again and again. True for
    /// a request that its client has [forgotten](super::Client::forget).
    pub fn is_wanted(&self) -> bool {
        let slot = self.server.slot(self.claimed, RECV);
        let holding = || slot.map_or(Holding::Lost, |slot| slot.holding(self.claimed.taken));
        match holding() {
            // The check may find the death of this very client.
            Holding::Taken | Holding::Given if self.server.polls_client(self.claimed) => {
                matches!(holding(), Holding::Taken | Holding::Given)
            }
            Holding::Taken | Holding::Given | Holding::Forgotten => true,
            Holding::Dropped | Holding::Lost => false,
        }
    }

    /// The same request, with a clone of its server instead of a borrow.
    pub fn into_owned(mut self) -> Request<'static> {
        Request {
            server: Cow::Owned(Serving::clone(&self.server)),
            // From here on, dropping `self` does nothing.
            claimed: self.disarm(),
            flags: self.flags,
            payload: std::mem::replace(&mut self.payload, Payload::empty()),
            blobs: std::mem::take(&mut self.blobs),
            is_unread: self.is_unread,
            collected: self.collected.take(),
        }
    }

    /// Leaves the request with its server. [`Server::kept`](super::Server::kept) takes it back by
    /// its ticket. This is for programs that pass numbers around. It drops the request's bytes and
    /// blobs, which [`read`](Request::read) gets again.
    ///
    /// The server allocates one word for each slot, once; a request allocates nothing. If the last
    /// clone of the server is dropped first, the request fails at its client.
    #[inline]
    pub fn keep(mut self) -> Ticket {
        self.leave()
    }

    /// As `keep`, where the request lies: moving it costs a small call 10 ns.
    #[inline]
    pub(super) fn leave(&mut self) -> Ticket {
        let ticket = self.ticket();
        let claimed = self.disarm();
        self.server.keep(claimed, self.collected.take());
        ticket
    }

    fn disarm(&mut self) -> Claimed {
        // Field by field: one wide load would wait for the stores that have just written them.
        let Claimed { idx, taken, holder } = self.claimed;
        self.claimed.taken = SlotWord::from_bits(0);
        Claimed { idx, taken, holder }
    }

    /// Whether it was answered or given up.
    #[doc(hidden)]
    pub fn is_over(&self) -> bool {
        self.claimed.taken == SlotWord::from_bits(0)
    }

    /// Fails with `Stale` in a forked child, and once the request is over.
    #[inline]
    fn check(&self, op: &'static str) -> Result<()> {
        let is_here = !self.is_over() && self.server.is_here(self.claimed);
        if is_here { Ok(()) } else { Err(Error::new(ErrorKind::Stale, op)) }
    }
}

/// Reading a request that was [claimed](super::Server::claim) or [kept](super::Server::kept).
impl Request<'_> {
    /// Its length in bytes.
    pub fn size(&self) -> usize {
        match self.is_unread {
            // Another process may have written any length.
            true => self.len_there().min(self.longest()),
            false => self.payload.len(),
        }
    }

    fn len_there(&self) -> usize {
        self.server.shared().payload_len(Direction::Request.of(self.claimed.idx))
    }

    /// The longest that it may be, in bytes.
    fn longest(&self) -> usize {
        self.server.max_message().max(self.server.shared().geometry().bytes(Direction::Request))
    }

    /// Copies its bytes out of the segment, or maps the blob that carries a long request, and
    /// returns them. From then on [`payload`](Request::payload) returns them too, and
    /// [`blobs`](Request::blobs) its blobs.
    ///
    /// # Errors
    ///
    /// `TooLong` if it is longer than [`max_message`](super::ServerOptions::max_message), or has
    /// more bytes of blobs that have to be copied, or this process would hold more than
    /// [`blob_limit`](super::Options::blob_limit). `Corrupt` if a client that breaks the rules
    /// wrote it, or the segment was damaged. `Os` with ENOMEM if there is no memory for it, or with
    /// the kernel's error for a blob. `Stale` if the request is no longer this server's. The
    /// request still has to be answered.
    pub fn read(&mut self) -> Result<&[u8]> {
        if self.is_unread {
            self.check_held(RECV)?;
            let (shared, max) = (self.server.shared(), self.server.max_message());
            let into = (&mut self.payload, &mut self.blobs);
            let flags = shared.read(Direction::Request.of(self.claimed.idx), into, max, RECV)?;
            self.flags = flags.ok_or(Error::new(ErrorKind::Corrupt, RECV))?;
            self.is_unread = false;
        }
        Ok(&self.payload)
    }

    /// Copies its bytes to the beginning of `into`, and returns their length.
    ///
    /// # Errors
    ///
    /// As [`read`](Request::read); `TooLong` if it is longer than `into`.
    pub fn read_into(&mut self, into: &mut [u8]) -> Result<usize> {
        const TOO_LONG: Error = Error::new(ErrorKind::TooLong, RECV);
        if !self.is_unread {
            into.get_mut(..self.payload.len()).ok_or(TOO_LONG)?.copy_from_slice(&self.payload);
            return Ok(self.payload.len());
        }
        self.check_held(RECV)?;
        let read = self.server.shared().read_into(Direction::Request.of(self.claimed.idx), into, RECV)?;
        let (len, flags) = read.ok_or(Error::new(ErrorKind::Corrupt, RECV))?;
        self.flags = flags;
        Ok(len)
    }

    /// As [`read`](Request::read), but only for its blobs: for bindings that have the bytes.
    #[doc(hidden)]
    pub fn read_blobs(&mut self) -> Result<&[Blob]> {
        self.check_held(RECV)?;
        self.add_blobs()?;
        Ok(self.blobs.as_slice())
    }

    /// Adds the blobs that its slot names.
    #[inline]
    fn add_blobs(&mut self) -> Result<()> {
        let Request { server, claimed, blobs, .. } = self;
        let (shared, max) = (server.shared(), server.max_message());
        shared.add_named_blobs(Direction::Request.of(claimed.idx), blobs, max, RECV)
    }

    /// Whether this process has its bytes.
    #[doc(hidden)]
    pub fn is_read(&self) -> bool {
        !self.is_unread
    }

    /// Receives its bytes and blobs, unless the bytes are left to the caller. False, and the
    /// request fails, if a client that breaks the rules sent it or if it cannot be received.
    #[inline]
    pub(super) fn receive(&mut self, mut receipt: Receipt<'_>) -> Result<bool> {
        if let Some(received) = receipt.take()
            && let Some(is_received) = self.accept(*received)?
        {
            return Ok(is_received);
        }
        if self.server.reads_later() && self.is_left() {
            return Ok(true);
        }
        let Request { server, claimed, payload, blobs, .. } = self;
        let (shared, max) = (server.shared(), server.max_message());
        match shared.read(Direction::Request.of(claimed.idx), (payload, blobs), max, RECV) {
            Ok(flags) => {
                self.flags = flags.unwrap_or(0);
                self.is_unread = false;
                Ok(flags.is_some())
            }
            Err(error) => self.refuse(error),
        }
    }

    /// Accepts what was received before the claim. `None` if its bytes are still in the slot.
    #[cold]
    fn accept(&mut self, received: Result<Received>) -> Result<Option<bool>> {
        match received {
            Ok(Received { payload, blobs, flags }) => {
                (self.payload, self.blobs) = (payload, blobs);
                Ok(flags.map(|flags| {
                    self.flags = flags;
                    self.is_unread = false;
                    true
                }))
            }
            Err(error) => self.refuse(error).map(Some),
        }
    }

    /// As `receive`, with its bytes appended to `bytes`, which has those that were received before.
    #[inline]
    pub(super) fn receive_to(
        &mut self,
        bytes: &mut Vec<u8>,
        received: Option<Box<Result<Received>>>,
    ) -> Result<bool> {
        if let Some(received) = received
            && let Some(is_received) = self.accept(*received)?
        {
            return Ok(is_received);
        }
        let (shared, max) = (self.server.shared(), self.server.max_message());
        match shared.append(Direction::Request.of(self.claimed.idx), bytes, max, RECV) {
            Ok(flags) => {
                self.flags = flags.unwrap_or(0);
                Ok(flags.is_some())
            }
            Err(error) => self.refuse(error),
        }
    }

    /// As `receive`, and leaves its bytes in the segment.
    pub(super) fn claim(&mut self, mut receipt: Receipt<'_>) -> Result<bool> {
        if self.len_there() > self.longest() {
            return self.refuse(Error::new(ErrorKind::TooLong, RECV));
        }
        match receipt.take().map(|received| *received) {
            Some(Ok(received)) => self.blobs = received.blobs,
            Some(Err(error)) => return self.refuse(error),
            None => {}
        }
        Ok(true)
    }

    /// Whether its bytes stay in the slot, for a caller that copies them to memory of its own.
    /// False for bytes so few that copying them costs nothing.
    fn is_left(&self) -> bool {
        let Ok(slot) = self.server.slot(self.claimed, RECV) else { return false };
        let len = slot.described(Direction::Request).0 as usize;
        len > SMALL && len <= self.server.shared().geometry().bytes(Direction::Request)
    }

    /// Fails a request that cannot be received. Returns the error if this process caused it or the
    /// segment is damaged; any other error can be caused by another client.
    #[cold]
    fn refuse(&mut self, error: Error) -> Result<bool> {
        self.server.shared().check_whole(RECV)?;
        match error.kind() {
            ErrorKind::TooLong if self.len_there() > self.longest() => self.give_up(&Message::new(TOO_LONG)),
            ErrorKind::TooLong => self.give_up(&Message::new(&error.to_string())),
            _ if is_out_of_resources(error) => {
                // Otherwise it is dropped, and fails.
                self.give_back();
                return Err(error);
            }
            ErrorKind::Os => {
                self.give_up(&Message::new(&self.reason_of(error)));
                if self.server.shared().has_lost_blob_folder() {
                    return Err(error.during(FOLDER));
                }
                true
            }
            _ => self.give_up(&Message::new("")),
        };
        Ok(false)
    }

    fn check_held(&self, op: &'static str) -> Result<()> {
        self.check(op)?;
        match self.server.slot(self.claimed, op)?.holding(self.claimed.taken) {
            Holding::Taken | Holding::Dropped | Holding::Forgotten => Ok(()),
            Holding::Given | Holding::Lost => Err(Error::new(ErrorKind::Stale, op)),
        }
    }
}

/// Answering.
impl Request<'_> {
    /// Answers the request. Returns whether the client still waited at that moment: false if it has
    /// cancelled or [forgotten](super::Client::forget) the call, or if its death was noticed
    /// before. True does not mean that the client receives the reply.
    ///
    /// # Blocking
    ///
    /// Only after a [part](Request::part), until the client has taken that part, but at most for
    /// [`part_timeout`](super::ServerOptions::part_timeout).
    ///
    /// # Errors
    ///
    /// `TooLong` if the reply is longer than [`max_message`](super::ServerOptions::max_message).
    /// `TimedOut` if the client has not taken the previous part in time. `Corrupt` if the segment
    /// was damaged. `Os` with ENOSPC if there is no memory for the reply, in a
    /// [sparse](super::Options::sparse) segment or for the blob of a long one; with the kernel's
    /// error if the blob cannot be made for another reason; with EBADF if the program has closed
    /// the segment's descriptor. After each of these the request fails at its client, with the
    /// error's text as the reason if there is memory for it. `Stale` if the request is no longer
    /// this server's: in a child that was forked after the request was taken, and if other members
    /// had to count this server as dead.
    #[inline]
    pub fn reply<'m>(mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        self.answer(&reply.into()).inspect_err(|error| self.fail_for(*error))
    }

    /// As [`reply`](Request::reply), for callers that can answer with something shorter: after
    /// `TooLong` the request still has to be answered. After anything else it is over.
    ///
    /// # Errors
    ///
    /// As [`reply`](Request::reply).
    pub fn try_reply<'m>(&mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        self.answer(&reply.into()).inspect_err(|error| {
            if error.kind() != ErrorKind::TooLong {
                self.fail_for(*error);
            }
        })
    }

    /// Answers with up to `len` bytes that `write` writes directly into the slot. If `write` fails,
    /// the request fails too, and this returns the error.
    ///
    /// # Blocking
    ///
    /// As [`reply`](Request::reply).
    ///
    /// # Errors
    ///
    /// As [`reply`](Request::reply); `TooLong` if `len` is more than a slot holds.
    pub fn reply_with(
        mut self,
        len: usize,
        write: impl FnOnce(&mut Space<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.check(REPLY)?;
        if self.wait_patiently(REPLY)? == Holding::Lost {
            return Err(Error::new(ErrorKind::Stale, REPLY));
        }
        let (idx, shared) = (self.claimed.idx, Arc::clone(self.server.shared()));
        shared.write_with(Direction::Reply.of(idx), len, write, REPLY)?;
        if self.collected.is_none() {
            return Ok(self.finish_answered(Naming::default()));
        }
        // It comes after the parts.
        let slot = self.server.slot(self.claimed, REPLY)?;
        slot.set_holder(self.claimed.taken.owner(), Mark::Whole, NamedBlobs::default());
        let mut bytes = Vec::new();
        let flags = shared.append(Direction::Reply.of(idx), &mut bytes, len, REPLY)?;
        self.answer(&Message::new(&bytes).flags(flags.unwrap_or(0)))
    }

    /// Gives the client a part of the reply. The client gets it as soon as it asks for it. More
    /// parts follow, or [`reply`](Request::reply). False if the client no longer waits: it has
    /// cancelled or [forgotten](super::Client::forget) the call, or its death was noticed.
    ///
    /// A client that did not ask for a [stream](super::Client::stream) gets all parts as one reply:
    /// this process collects them until then.
    ///
    /// # Blocking
    ///
    /// Until the client has taken the previous part, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the part was not given, and can be given again. `TooLong` if it
    /// is longer than [`max_message`](super::ServerOptions::max_message), or if the collected parts
    /// would be. The rest as for [`reply`](Request::reply), but the request is not over.
    pub fn part<'m>(&mut self, part: impl Into<Message<'m>>, deadline: impl Into<Deadline>) -> Result<bool> {
        let (part, deadline) = (part.into(), deadline.into());
        loop {
            if let Some(wanted) = self.give(&part)? {
                return Ok(wanted);
            }
            self.server.wait_for_turn(self.claimed, deadline, PART)?;
        }
    }

    /// Waits until the client has taken the last [part](Request::part). False if the client no
    /// longer waits.
    ///
    /// # Blocking
    ///
    /// Until the client has taken it, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the client has not taken it yet. The rest as for
    /// [`part`](Request::part).
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<bool> {
        self.check(PART)?;
        let holding = self.server.wait_for_turn(self.claimed, deadline.into(), PART)?;
        after_part(holding).map(|is_wanted| is_wanted.unwrap_or(false))
    }

    /// Gives the request up: its call fails with `Failed`, and the client can ask for the reason.
    /// The reason is bytes, cut to the size of a reply in one slot. Returns whether the client
    /// still waited. Dropping the request does the same without a reason.
    ///
    /// It does not wait. It withdraws a [part](Request::part) that the client has not taken, and
    /// then the slot has no space for a reason. [`flush`](Request::flush) waits until the client
    /// has taken the part.
    pub fn fail<'m>(mut self, reason: impl Into<Message<'m>>) -> bool {
        self.give_up(&reason.into())
    }

    /// Gives the request back, so that any server can take it. This is for servers that pass
    /// requests on and find no worker for this one. The request waits again, so its call fails with
    /// `NoServer` if no server is left and the client [needs
    /// one](super::ClientOptions::needs_server).
    ///
    /// False if it cannot be given back: servers have given it back or died with it three times
    /// already, or a part of its reply was given. Then it still has to be answered. Each time
    /// counts in [`redeliveries`](Request::redeliveries), and towards the limit that the client
    /// set.
    pub fn give_back(&mut self) -> bool {
        if self.check(REPLY).is_err() {
            return false;
        }
        let claimed = self.disarm();
        match self.server.give_back(claimed) {
            Some(claimed) => self.claimed = claimed,
            None => return true,
        }
        false
    }

    /// Ends the request as the death of this server would. This is for a server that has passed the
    /// request on to a worker that died. Another server gets it if the client [allows
    /// that](super::ClientOptions::redeliveries); otherwise the call fails with `PeerDied`. Returns
    /// whether the client still waited.
    pub fn report_death(mut self) -> bool {
        let is_here = self.check(REPLY).is_ok();
        let claimed = self.disarm();
        is_here && self.server.lose(claimed)
    }

    fn give_up(&mut self, reason: &Message<'_>) -> bool {
        let is_here = self.check(REPLY).is_ok();
        let claimed = self.disarm();
        is_here && self.server.fail(claimed, reason)
    }

    /// Gives the request up because it cannot be answered, unless it is over.
    #[cold]
    pub(super) fn fail_for(&mut self, error: Error) {
        if !self.is_over() {
            self.give_up(&Message::new(&self.reason_of(error)));
        }
    }

    /// The text of an error for the other side, with the folder of the blobs if the error is about one.
    fn reason_of(&self, error: Error) -> String {
        let folder = self.server.shared().blobs().location();
        match error.kind() {
            ErrorKind::Os if error.op() == RECV || error.op() == LONG => {
                format!("{error}: {}", folder.display())
            }
            _ => error.to_string(),
        }
    }

    #[inline]
    fn answer(&mut self, reply: &Message<'_>) -> Result<bool> {
        self.answer_by(reply, |request| request.wait_patiently(REPLY))
    }

    /// Answers. If `waits`, it waits until the client has taken the previous part.
    #[inline]
    pub(super) fn answer_by(
        &mut self,
        reply: &Message<'_>,
        waits: impl Fn(&Self) -> Result<Holding>,
    ) -> Result<bool> {
        loop {
            if let Some(wanted) = self.answer_now(reply)? {
                return Ok(wanted);
            }
            waits(self)?;
        }
    }

    /// Answers; `None` if the client has not taken the previous part.
    #[inline]
    pub(super) fn answer_now(&mut self, reply: &Message<'_>) -> Result<Option<bool>> {
        self.check(REPLY)?;
        if self.collected.is_some() {
            return self.answer_collected(reply);
        }
        let shared = self.server.shared();
        shared.admit(Direction::Reply, reply, self.server.max_message(), REPLY)?;
        // Check before the copy: if this server lost the request, those bytes belong to another
        // call.
        match self.server.slot(self.claimed, REPLY)?.holding(self.claimed.taken) {
            Holding::Taken => {
                let naming = shared.write(Direction::Reply.of(self.claimed.idx), reply, REPLY)?;
                Ok(Some(self.finish_answered(naming)))
            }
            Holding::Dropped | Holding::Forgotten => Ok(Some(self.finish_answered(Naming::default()))),
            Holding::Given => Ok(None),
            Holding::Lost => Err(Error::new(ErrorKind::Stale, REPLY)),
        }
    }

    #[cold]
    fn answer_collected(&mut self, last: &Message<'_>) -> Result<Option<bool>> {
        let Some(mut collected) = self.collected.take() else { return Ok(None) };
        let whole = Arc::make_mut(&mut collected);
        let answered = whole.add(last, self.server.most(), REPLY).and_then(|()| {
            self.answer_now(&whole.message(last.flags)).inspect_err(|_| whole.take_back(last))
        });
        if answered.is_err() {
            self.collected = Some(collected);
        }
        answered
    }

    /// Gives a part, and returns whether the client waits for it; `None` if the client has not
    /// taken the previous part.
    pub(super) fn give(&mut self, part: &Message<'_>) -> Result<Option<bool>> {
        self.check(PART)?;
        let slot = self.server.slot(self.claimed, PART)?;
        match slot.holding(self.claimed.taken) {
            Holding::Taken if slot.caller().takes_parts => {
                self.server.shared().admit(Direction::Reply, part, self.server.max_message(), PART)?;
                Ok(self.server.give_part(self.claimed, part, PART)?.then_some(true))
            }
            Holding::Taken => {
                let most = self.server.most();
                let collected = Arc::make_mut(self.collected.get_or_insert_default());
                collected.add(part, most, PART).map(|()| Some(true))
            }
            Holding::Given => Ok(None),
            Holding::Dropped | Holding::Forgotten => Ok(Some(false)),
            Holding::Lost => Err(Error::new(ErrorKind::Stale, PART)),
        }
    }

    /// Returns whether the client waits for more, once it has taken the last part; `None` before that.
    pub(super) fn flushed(&self) -> Result<Option<bool>> {
        self.check(PART)?;
        after_part(self.server.slot(self.claimed, PART)?.holding(self.claimed.taken))
    }

    /// Waits for the client's step without a deadline, and goes on after signals. Only an interrupt
    /// hook ends it.
    fn wait_patiently(&self, op: &'static str) -> Result<Holding> {
        let deadline = self.server.part_deadline();
        loop {
            match self.server.wait_for_turn(self.claimed, deadline, op) {
                Err(error) if error.kind() == ErrorKind::Interrupted && !interrupt::is_hooked() => {}
                holding => return holding,
            }
        }
    }

    /// Steps 5, 7 and 28 for a reply that was written into the slot. True if the client gets it.
    #[inline]
    fn finish_answered(&mut self, naming: Naming) -> bool {
        // From here on the request counts as finished, so that a drop cannot finish it twice.
        let claimed = self.disarm();
        let is_wanted = self.server.finish_answered(claimed, naming.named());
        if is_wanted {
            naming.publish();
        }
        is_wanted
    }
}

impl Request<'_> {
    pub(super) fn serving(&self) -> &Serving {
        &self.server
    }

    pub(super) fn claimed(&self) -> Claimed {
        self.claimed
    }
}

impl Deref for Request<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.payload()
    }
}

/// Whether the client waits for more, once it has taken the last part; `None` before that.
fn after_part(holding: Holding) -> Result<Option<bool>> {
    match holding {
        Holding::Taken => Ok(Some(true)),
        Holding::Given => Ok(None),
        Holding::Dropped | Holding::Forgotten => Ok(Some(false)),
        Holding::Lost => Err(Error::new(ErrorKind::Stale, PART)),
    }
}

/// Whether this process lacks descriptors or memory.
fn is_out_of_resources(error: Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM].iter().any(|errno| errno.at(RECV) == error)
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            self.give_up(&Message::new(""));
        }
    }
}
