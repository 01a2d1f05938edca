//! One request in the hands of a server: read, answered at once or in parts, kept, or given up.

use std::borrow::Cow;
use std::ops::Deref;

use super::serving::{Claimed, Serving};
use super::shm::layout::Direction;
use super::shm::naming::{Blobs, Naming};
use super::shm::payload::{Message, Payload, Space};
use super::shm::slot::{Holding, Slot, SlotWord, State};
use super::shm::ticket::Ticket;
use crate::blob::Blob;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt;

const RECV: &str = "reqrep recv";
const REPLY: &str = "reqrep reply";
const PART: &str = "reqrep part";

/// A request that this process has taken, and that no other server gets. If it is dropped without a
/// reply, it fails at its client at once.
///
/// It dereferences to its bytes, which are a copy. It borrows its server;
/// [`into_owned`](Request::into_owned) makes one that can be moved to another thread, and
/// [`keep`](Request::keep) leaves it with the server, to be answered by its number.
#[derive(Debug)]
pub struct Request<'a> {
    server: Cow<'a, Serving>,
    /// With the word 0 once it is over.
    claimed: Claimed,
    flags: u32,
    payload: Payload,
    blobs: Blobs,
    /// The bytes are in the segment, and only there.
    is_unread: bool,
    /// The client has more parts of it.
    follows: bool,
    /// The client was asked for the next one.
    is_asked: bool,
}

impl<'a> Request<'a> {
    /// A claimed request, without its payload.
    #[inline]
    pub(super) fn new(server: Cow<'a, Serving>, claimed: Claimed) -> Request<'a> {
        let (payload, flags, blobs) = (Payload::empty(), 0, Blobs::default());
        Request { server, claimed, flags, payload, blobs, is_unread: true, follows: false, is_asked: false }
    }

    /// One that was kept.
    #[inline]
    pub(super) fn kept(server: &'a Serving, claimed: Claimed) -> Request<'a> {
        let (taken, is_asked) = claimed.taken.without_asked();
        let mut request = Request::new(Cow::Borrowed(server), Claimed { taken, ..claimed });
        let slot = server.slot(request.claimed, RECV);
        // What the client was asked for may have come, and be the last. The fields of a slot that
        // was lost are another call's.
        let follows = |slot: &Slot| slot.holding(taken) != Holding::Lost && slot.caller().follows;
        (request.follows, request.is_asked) = (is_asked || slot.is_ok_and(follows), is_asked);
        request
    }

    /// One whose payload and blobs are here.
    pub(super) fn with_payload(
        server: Cow<'a, Serving>,
        claimed: Claimed,
        payload: Payload,
        flags: u32,
        blobs: Blobs,
    ) -> Request<'a> {
        let (follows, is_asked) = (false, false);
        Request { server, claimed, payload, flags, blobs, is_unread: false, follows, is_asked }
    }
}

/// What it is.
impl Request<'_> {
    /// The bytes of the request; none of one that was [claimed](super::Server::claim) and not
    /// [read](Request::read).
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Its bytes as a vector. A long payload is moved, not copied.
    pub fn take_payload(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.payload, Payload::empty()).into_vec()
    }

    /// The blobs that the client has [attached](super::Message::attach).
    pub fn blobs(&self) -> &[Blob] {
        self.blobs.as_slice()
    }

    /// The 32 bits that the client sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// The ticket that [`send`](super::Client::send) has returned for it.
    pub fn ticket(&self) -> Ticket {
        self.claimed.ticket()
    }

    /// How many servers have died with this request or [given it back](Request::give_back), 0 to 3.
    pub fn redeliveries(&self) -> u8 {
        self.claimed.taken.delivery()
    }

    /// Whether the request is to be carried out: false once the client has cancelled, or its death
    /// was noticed, as it is within 250 ms where this is asked again and again. True for one that
    /// its client has [forgotten](super::Client::forget).
    pub fn is_wanted(&self) -> bool {
        let slot = self.server.slot(self.claimed, RECV);
        let holding = || slot.map_or(Holding::Lost, |slot| slot.holding(self.claimed.taken));
        match holding() {
            // What a tick finds may be about this one.
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
            // From here on, dropping this one does nothing.
            claimed: self.disarm(),
            flags: self.flags,
            payload: std::mem::replace(&mut self.payload, Payload::empty()),
            blobs: std::mem::take(&mut self.blobs),
            is_unread: self.is_unread,
            follows: self.follows,
            is_asked: self.is_asked,
        }
    }

    /// Leaves the request with its server, to be taken back by its ticket with
    /// [`Server::kept`](super::Server::kept): for programs that hand numbers around. The copy of
    /// its bytes is dropped; [take](Request::take_payload) it before. One that was
    /// [claimed](super::Server::claim) goes on with its parts where it was kept.
    ///
    /// It costs a word for each slot, once for the server, and nothing for each request. It fails
    /// at its client if the last clone of the server is dropped before it was taken back.
    #[inline]
    pub fn keep(mut self) -> Ticket {
        let ticket = self.ticket();
        let claimed = self.disarm();
        let taken = if self.is_asked { claimed.taken.as_asked() } else { claimed.taken };
        self.server.keep(Claimed { taken, ..claimed });
        ticket
    }

    fn disarm(&mut self) -> Claimed {
        let over = Claimed { taken: SlotWord::from_bits(0), ..self.claimed };
        std::mem::replace(&mut self.claimed, over)
    }

    /// Whether it was answered or given up.
    #[doc(hidden)]
    pub fn is_over(&self) -> bool {
        self.claimed.taken == SlotWord::from_bits(0)
    }

    /// Fails with `Stale` in a forked child, and once it is over.
    #[inline]
    fn check(&self, op: &'static str) -> Result<()> {
        let is_here = !self.is_over() && self.server.is_here(self.claimed);
        if is_here { Ok(()) } else { Err(Error::new(ErrorKind::Stale, op)) }
    }
}

/// Reading a request that was [claimed](super::Server::claim), part by part.
impl Request<'_> {
    /// Bytes of the part that is there.
    pub fn size(&self) -> usize {
        match self.server.slot(self.claimed, RECV) {
            Ok(slot) if self.is_unread => {
                let len = slot.described(Direction::Request).0;
                (len as usize).min(self.server.shared().geometry().bytes(Direction::Request))
            }
            _ => self.payload.len(),
        }
    }

    /// Whether the client has more parts of it. A request that was [received](super::Server::recv)
    /// is whole.
    pub fn has_more(&self) -> bool {
        self.follows
    }

    /// Copies the part that is there out of the segment, and returns it;
    /// [`payload`](Request::payload) returns it as well from then on.
    ///
    /// # Errors
    ///
    /// `Corrupt` if no client of ours wrote it, or the segment was damaged; `Os` with ENOMEM if
    /// there is no memory for it; `Stale` if the request is not this server's any more.
    pub fn read(&mut self) -> Result<&[u8]> {
        if self.is_unread {
            self.check_held(RECV)?;
            let shared = self.server.shared();
            let flags = shared.read(self.claimed.idx, Direction::Request, &mut self.payload, RECV)?;
            self.flags = flags.ok_or(Error::new(ErrorKind::Corrupt, RECV))?;
            self.is_unread = false;
        }
        Ok(&self.payload)
    }

    /// Copies the part that is there to the beginning of `into`, and returns its length.
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
        let read = self.server.shared().read_into(self.claimed.idx, Direction::Request, into, RECV)?;
        let (len, flags) = read.ok_or(Error::new(ErrorKind::Corrupt, RECV))?;
        self.flags = flags;
        Ok(len)
    }

    /// Gets the next part from the client, in the place of the one that is there; false if there is
    /// none. [`read`](Request::read) or [`read_into`](Request::read_into) copies it.
    ///
    /// # Blocking
    ///
    /// Until the client has written it, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: the next call goes on waiting for the same part. `Closed`: the
    /// client has cancelled the call, or its death was noticed. `Stale` as for
    /// [`reply`](Request::reply).
    pub fn next_part(&mut self, deadline: impl Into<Deadline>) -> Result<bool> {
        if !self.follows {
            return Ok(false);
        }
        self.check(RECV)?;
        self.is_asked = self.is_asked || self.server.ask_for_more(self.claimed);
        match self.server.wait_for_turn(self.claimed, deadline.into(), RECV)? {
            Holding::Taken if self.is_asked => {
                self.payload = Payload::empty();
                (self.is_unread, self.is_asked) = (true, false);
                self.look_for_more()?;
                Ok(true)
            }
            Holding::Lost => Err(Error::new(ErrorKind::Stale, RECV)),
            _ => Err(Error::new(ErrorKind::Closed, RECV)),
        }
    }

    /// Notes whether another part follows the one that is there.
    #[inline]
    pub(super) fn look_for_more(&mut self) -> Result<()> {
        self.follows = self.server.slot(self.claimed, RECV)?.caller().follows;
        Ok(())
    }

    /// Whether its bytes are here.
    #[doc(hidden)]
    pub fn is_read(&self) -> bool {
        !self.is_unread
    }

    /// The next part, appended to `bytes`.
    pub(super) fn append_next(&mut self, bytes: &mut Vec<u8>, deadline: Deadline) -> Result<bool> {
        if !self.next_part(deadline)? {
            return Ok(false);
        }
        if self.follows && self.size() == 0 {
            // It would never end; no client of ours sends that.
            return Err(Error::new(ErrorKind::Corrupt, RECV));
        }
        if bytes.len().saturating_add(self.size()) > self.server.max_message() {
            return Err(Error::new(ErrorKind::TooLong, RECV));
        }
        let appended = self.server.shared().append(self.claimed.idx, Direction::Request, bytes, RECV)?;
        self.flags = appended.ok_or(Error::new(ErrorKind::Corrupt, RECV))?;
        Ok(true)
    }

    /// It is whole now.
    pub(super) fn set_payload(&mut self, bytes: Vec<u8>) {
        self.payload = Payload::from_vec(bytes);
        self.is_unread = false;
    }

    /// Copies the first part out, unless that is left to the caller; false if no client of ours
    /// sends such a request.
    #[inline]
    pub(super) fn copy_out(&mut self) -> Result<bool> {
        if self.server.reads_later() && self.is_left()? {
            return Ok(true);
        }
        let shared = self.server.shared();
        let flags = shared.read(self.claimed.idx, Direction::Request, &mut self.payload, RECV)?;
        self.flags = flags.unwrap_or(0);
        self.is_unread = false;
        self.receive_blobs()?;
        self.look_for_more()?;
        Ok(flags.is_some())
    }

    /// Holds the blobs that came with it.
    #[inline]
    pub(super) fn receive_blobs(&mut self) -> Result<()> {
        let Request { server, claimed, blobs, .. } = self;
        server.shared().add_named_blobs(claimed.idx, Direction::Request, blobs, RECV)
    }

    /// As `copy_out`, into `bytes`, unless other parts follow.
    #[inline]
    pub(super) fn copy_to(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        let flags = self.server.shared().append(self.claimed.idx, Direction::Request, bytes, RECV)?;
        self.flags = flags.unwrap_or(0);
        self.receive_blobs()?;
        self.look_for_more()?;
        if self.follows {
            self.set_payload(std::mem::take(bytes));
        }
        Ok(flags.is_some())
    }

    /// The claim, the payload and the blobs, for the inbox: dropping this does nothing any more.
    pub(super) fn into_parts(mut self) -> (Claimed, u32, Payload, Blobs) {
        let payload = std::mem::replace(&mut self.payload, Payload::empty());
        (self.disarm(), self.flags, payload, std::mem::take(&mut self.blobs))
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
    /// Answers, and returns whether the client still waited when it was answered: false if it has
    /// cancelled or [forgotten](super::Client::forget) the call, or if its death was noticed
    /// before. True does not mean that the client receives the reply.
    ///
    /// # Blocking
    ///
    /// Not at all for a reply that fits into a slot. One that is longer goes in parts, each as soon
    /// as the client has taken the one before; and so does a reply after a
    /// [part](Request::part). The client may take
    /// [`part_timeout`](super::ServerOptions::part_timeout) for each.
    ///
    /// # Errors
    ///
    /// `TooLong` if the reply is longer than [`max_message`](super::ServerOptions::max_message);
    /// `TimedOut` if the client has not taken a part of it in time; `Corrupt` if the segment was
    /// damaged; in a [sparse](super::Options::sparse) segment `Os`, with ENOSPC if there is no page
    /// for the reply, and with EBADF if the program has closed the segment's descriptor. The
    /// request then fails at its client. `Stale` if the request is not this server's any more: in a
    /// child that was forked after it was taken, and where others had to take this server for dead.
    #[inline]
    pub fn reply<'m>(mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        // Dropping this fails it, if it is not over.
        self.answer(&reply.into())
    }

    /// As [`reply`](Request::reply), for callers that can answer with something shorter: after
    /// `TooLong` the request is still to be answered. After anything else it is over.
    ///
    /// # Errors
    ///
    /// As [`reply`](Request::reply).
    pub fn try_reply<'m>(&mut self, reply: impl Into<Message<'m>>) -> Result<bool> {
        let answered = self.answer(&reply.into());
        if answered.as_ref().is_err_and(|error| error.kind() != ErrorKind::TooLong) {
            self.give_up(&Message::new(""));
        }
        answered
    }

    /// Answers with up to `len` bytes that `write` writes into the slot, so that they are not
    /// copied. If `write` fails, so does the request, and the error is returned.
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
        match self.wait_patiently(REPLY)? {
            Holding::Lost => Err(Error::new(ErrorKind::Stale, REPLY)),
            _ => {
                let (idx, shared) = (self.claimed.idx, self.server.shared());
                shared.write_with(idx, Direction::Reply, len, write, REPLY)?;
                Ok(self.finish_answered(Naming::default()))
            }
        }
    }

    /// Gives the client a part of the reply, which it gets as soon as it asks for it; then come
    /// other parts, or [`reply`](Request::reply). False if nobody waits for it any more: the client
    /// has cancelled or [forgotten](super::Client::forget) the call, or its death was noticed.
    ///
    /// A client that does not ask for parts gets all of them as one reply.
    ///
    /// # Blocking
    ///
    /// Until the client has taken the part before, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: nothing of it was given, and it can be given again. Of a part
    /// that is longer than a slot, something may have been given; then the request has failed.
    /// `TooLong` if it is longer than [`max_message`](super::ServerOptions::max_message). `Invalid` if the
    /// request [has more](Request::has_more) parts: they come first. The rest as for
    /// [`reply`](Request::reply), but the request is not over.
    pub fn part<'m>(&mut self, part: impl Into<Message<'m>>, deadline: impl Into<Deadline>) -> Result<bool> {
        let mut giving = self.begin_part(&part.into())?;
        let given = self.give_until(&mut giving, deadline.into());
        given.inspect_err(|_| self.stop_giving(&giving))
    }

    /// Waits until the client has taken the [part](Request::part) that was given last; false if
    /// nobody waits for it any more.
    ///
    /// # Blocking
    ///
    /// Until the client has taken it, or until the deadline.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `Interrupted`: it has not taken it yet. The rest as for [`part`](Request::part).
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<bool> {
        self.check(PART)?;
        match self.server.wait_for_turn(self.claimed, deadline.into(), PART)? {
            Holding::Taken => Ok(true),
            Holding::Lost => Err(Error::new(ErrorKind::Stale, PART)),
            Holding::Given | Holding::Dropped | Holding::Forgotten => Ok(false),
        }
    }

    /// Gives the request up; its call fails with `Failed`, and the client can ask for the reason:
    /// bytes, of which as many arrive as a reply in one slot has. Returns whether the client still
    /// waited. Dropping the request does the same without a reason.
    ///
    /// It does not wait: a [part](Request::part) that the client has not taken is taken back, and
    /// leaves no space for a reason. [`flush`](Request::flush) waits until it was taken.
    pub fn fail<'m>(mut self, reason: impl Into<Message<'m>>) -> bool {
        self.give_up(&reason.into())
    }

    /// Gives the request back, for another server to take, or this one: for servers that hand
    /// requests on, and find nobody to hand this one to. It waits again, so its call fails with
    /// `NoServer` where no server is left and the client [needs one](super::ClientOptions::needs_server).
    ///
    /// False if that cannot be: it was given back, or lost with a server, three times already, or
    /// something of it went in parts. Then it is still to be answered. Each time counts in
    /// [`redeliveries`](Request::redeliveries), and against those that the client allows.
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

    /// Ends the request as the death of this server would: for one that has handed the request on
    /// to a worker that has died. Another server gets it, if the client [allows
    /// that](super::ClientOptions::redeliveries); else the call fails with `PeerDied`. Returns whether the
    /// client still waited.
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

    /// As [`reply`](Request::reply), and fails the request with the text of an error, if it is not
    /// over.
    pub(super) fn answer_or_fail(mut self, reply: &Message<'_>) {
        let answered = self.answer(reply);
        if let Err(error) = answered
            && !self.is_over()
        {
            self.fail(&error.to_string());
        }
    }

    #[inline]
    fn answer(&mut self, reply: &Message<'_>) -> Result<bool> {
        match self.answer_at_once(reply)? {
            Some(wanted) => Ok(wanted),
            None => self.answer_in_parts(*reply),
        }
    }

    /// Answers with what fits into the slot; `None` if the reply has to go in parts.
    #[inline]
    pub(super) fn answer_at_once(&mut self, reply: &Message<'_>) -> Result<Option<bool>> {
        self.check(REPLY)?;
        let shared = self.server.shared();
        if !shared.fits(Direction::Reply, reply) {
            self.admit(reply, REPLY)?;
            return Ok(None);
        }
        // Before the copy: if the request was taken away, the bytes there belong to another call by
        // now.
        match self.server.slot(self.claimed, REPLY)?.holding(self.claimed.taken) {
            Holding::Taken | Holding::Dropped | Holding::Forgotten => {
                let naming = shared.write(self.claimed.idx, Direction::Reply, reply, REPLY)?;
                Ok(Some(self.finish_answered(naming)))
            }
            Holding::Given => Ok(None),
            Holding::Lost => Err(Error::new(ErrorKind::Stale, REPLY)),
        }
    }

    #[cold]
    fn answer_in_parts(&mut self, reply: Message<'_>) -> Result<bool> {
        let mut rest = reply;
        loop {
            let holding = self.wait_patiently(REPLY)?;
            if let Some(wanted) = self.answer_part(&mut rest, holding)? {
                return Ok(wanted);
            }
        }
    }

    /// Gives the next part of a reply, if it is this server's turn; whether the client waited for
    /// it, once all of it is given.
    pub(super) fn answer_part(&mut self, rest: &mut Message<'_>, holding: Holding) -> Result<Option<bool>> {
        match holding {
            Holding::Taken => {}
            Holding::Given => return Ok(None),
            Holding::Lost => return Err(Error::new(ErrorKind::Stale, REPLY)),
            Holding::Dropped | Holding::Forgotten => {
                return Ok(Some(self.finish_answered(Naming::default())));
            }
        }
        let (piece, later) = self.server.shared().split(Direction::Reply, rest);
        if later.payload.is_empty() {
            let (idx, shared) = (self.claimed.idx, self.server.shared());
            let naming = shared.write(idx, Direction::Reply, &piece, REPLY)?;
            return Ok(Some(self.finish_answered(naming)));
        }
        if self.server.give_part(self.claimed, &piece, true, REPLY)? {
            *rest = later;
        }
        Ok(None)
    }

    /// Waits for the client's step as long as it may take, whatever signals come. Only an interrupt hook
    /// ends it.
    fn wait_patiently(&self, op: &'static str) -> Result<Holding> {
        let deadline = self.server.part_deadline();
        loop {
            match self.server.wait_for_turn(self.claimed, deadline, op) {
                Err(error) if error.kind() == ErrorKind::Interrupted && !interrupt::is_hooked() => {}
                holding => return holding,
            }
        }
    }

    fn admit(&self, message: &Message<'_>, op: &'static str) -> Result<()> {
        self.server.shared().admit(Direction::Reply, message, self.server.max_message(), op)
    }

    /// Steps 5, 7 and 28 for what was written into the slot; true if the client gets it.
    #[inline]
    fn finish_answered(&mut self, naming: Naming) -> bool {
        // It counts as finished from here on, whatever happens: a drop must not finish it again.
        let claimed = self.disarm();
        self.server.shared().describe_answer(claimed.slot_and_word(), &naming);
        let is_wanted = self.server.finish(claimed, State::Answered);
        if is_wanted {
            naming.publish();
        }
        is_wanted
    }
}

/// A part on its way to the client.
#[derive(Clone, Copy, Debug)]
pub struct Giving<'m> {
    rest: Message<'m>,
    has_begun: bool,
}

/// The steps of [`part`](Request::part), for threads, tasks and bindings.
impl Request<'_> {
    #[doc(hidden)]
    pub fn begin_part<'m>(&self, part: &Message<'m>) -> Result<Giving<'m>> {
        self.check(PART)?;
        self.admit(part, PART)?;
        if self.follows {
            return Err(Error::new(ErrorKind::Invalid, PART));
        }
        Ok(Giving { rest: *part, has_begun: false })
    }

    /// After `TimedOut` and `Interrupted` it can be called again. After any other error, and when the
    /// caller gives up, the rest must not follow: [`stop_giving`](Request::stop_giving).
    #[doc(hidden)]
    pub fn give_until(&mut self, giving: &mut Giving<'_>, deadline: Deadline) -> Result<bool> {
        loop {
            let holding = self.server.wait_for_turn(self.claimed, deadline, PART)?;
            if let Some(wanted) = self.give(giving, holding)? {
                return Ok(wanted);
            }
        }
    }

    /// Gives the next piece, if it is this server's turn; whether the client waits for it, once all
    /// of the part is given.
    pub(super) fn give(&mut self, giving: &mut Giving<'_>, holding: Holding) -> Result<Option<bool>> {
        match holding {
            Holding::Taken => {}
            Holding::Given => return Ok(None),
            Holding::Dropped | Holding::Forgotten => return Ok(Some(false)),
            Holding::Lost => return Err(Error::new(ErrorKind::Stale, PART)),
        }
        let (piece, later) = self.server.shared().split(Direction::Reply, &giving.rest);
        let is_last = later.payload.is_empty();
        if !self.server.give_part(self.claimed, &piece, !is_last, PART)? {
            return Ok(None);
        }
        *giving = Giving { rest: later, has_begun: true };
        Ok(is_last.then_some(true))
    }

    /// Fails the request if something of a part was given, and the rest will not be.
    #[doc(hidden)]
    pub fn stop_giving(&mut self, giving: &Giving<'_>) {
        if giving.has_begun && !giving.rest.payload.is_empty() {
            self.give_up(&Message::new(""));
        }
    }

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

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            self.give_up(&Message::new(""));
        }
    }
}
