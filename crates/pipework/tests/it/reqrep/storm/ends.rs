//! The ends of a segment, and the messages that pass between them.

use std::time::Duration;

use pipework::reqrep::{
    Blob, CallError, Client, ClientOptions, Message, Reply, Request, Segment, Server, ServerOptions, Stream,
    Ticket,
};
use pipework::{Deadline, ErrorKind, Result};

use super::Run;
use crate::harness::{PATIENCE, Random};

/// Bytes of a call's name. A reply of that length is given in one piece.
const SHORTEST: usize = 8;

/// A call's name: `{ number: 32, check: 32 }`. Every request begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    /// Dismisses a server.
    pub(super) const DISMISSAL: Name = Name(0);

    pub(super) fn new(run: &Run, n: u32) -> Name {
        let name = u64::from(n) << 32;
        Name(name | Random::new(run.seed ^ name).next() >> 32)
    }

    /// The number of the call.
    pub(super) fn n(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn request(self, run: &Run) -> Vec<u8> {
        let mut request = self.0.to_ne_bytes().to_vec();
        let mut random = Random::new(run.seed ^ self.0);
        let len = size(&mut random, run.max_bytes - 8);
        request.extend(random.bytes(len));
        request
    }

    pub(super) fn reply(self, run: &Run) -> Vec<u8> {
        let mut random = Random::new(!(run.seed ^ self.0));
        let len = size(&mut random, run.max_bytes);
        random.bytes(len)
    }

    /// The pieces in which its server gives the reply; all but the last are parts of a stream.
    fn pieces(self, reply: &[u8]) -> Vec<&[u8]> {
        let is_cut = self.0.is_multiple_of(4) && reply.len() > SHORTEST;
        let pieces = if is_cut { 1 + self.0 as usize / 4 % 5 } else { 1 };
        let len = reply.len().div_ceil(pieces).max(1);
        if reply.is_empty() { vec![reply] } else { reply.chunks(len).collect() }
    }

    /// Whether its server gives the reply in parts. It may fail then because its client is slow.
    pub(super) fn goes_in_parts(self, run: &Run) -> bool {
        let reply = self.reply(run);
        self.pieces(&reply).len() > 1
    }

    /// Bytes of the blob that goes with the request; most have none.
    fn blob_bytes(self) -> Option<usize> {
        let mut random = Random::new(!self.0);
        let most = match random.below(1024) {
            0 => 16 << 20,
            1..16 => 1 << 20,
            16..128 => 32 << 10,
            _ => return None,
        };
        Some(8 * (512 + random.below(most / 8 - 511)))
    }

    /// Whether the request has a blob, and its server hands that back with the reply.
    pub(super) fn hands_back(self) -> bool {
        self.blob_bytes().is_some() && self.0.is_multiple_of(2)
    }

    /// The contents of the blob, in units of eight bytes, which no other call shares.
    fn blob_words(self) -> impl Iterator<Item = [u8; 8]> {
        (0..).map(move |word: u64| {
            (self.0.rotate_left(32) ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_ne_bytes()
        })
    }

    /// The blob of the request, if it has one.
    fn blobs(self, segment: &Segment) -> Result<Vec<Blob>> {
        let Some(len) = self.blob_bytes() else { return Ok(vec![]) };
        let mut draft = segment.blob(len)?;
        draft.chunks_mut(8).zip(self.blob_words()).for_each(|(bytes, word)| bytes.copy_from_slice(&word));
        Ok(vec![draft.freeze()?])
    }

    /// Checks that these are the blobs of the request, or that there are none.
    fn check_blobs(self, blobs: &[Blob], are_expected: bool) {
        let expected: Vec<usize> = self.blob_bytes().filter(|_| are_expected).into_iter().collect();
        let lens: Vec<usize> = blobs.iter().map(|blob| blob.len()).collect();
        assert_eq!(lens, expected, "the blobs of {self:?}");
        for blob in blobs {
            let is_right = blob.chunks(8).zip(self.blob_words()).all(|(bytes, word)| *bytes == word);
            assert!(is_right && !blob.is_copied(), "the blob of {self:?} has wrong bytes");
        }
    }

    /// The reason that a server gives when it fails the call.
    fn reason(self) -> [u8; 8] {
        (!self.0).to_ne_bytes()
    }

    /// The flags of the request; its reply has them inverted.
    fn flags(self) -> u32 {
        self.0 as u32
    }
}

/// A random size, mostly small.
fn size(random: &mut Random, max: usize) -> usize {
    let limit = if random.below(8) == 0 { max } else { max / 16 };
    random.below(limit + 1)
}

// ---------------------------------------------------------------- the calling end

#[derive(Clone)]
pub(super) struct Asking(Client);

impl Asking {
    pub(super) fn attach(segment: &Segment, run: &Run) -> Asking {
        let options = ClientOptions::new().redeliveries(run.redeliveries).needs_server(run.needs_server);
        Asking(attached(|| segment.client_with(&options)))
    }

    pub(super) fn call(&self, run: &Run, name: Name, deadline: impl Into<Deadline>) -> Answer {
        let blobs = name.blobs(self.0.segment()).expect("there is memory for it");
        let ended = self.0.call(message(name, &name.request(run)).attach(&blobs), deadline);
        name.check_blobs(&blobs, true);
        answer(run, name, ended)
    }

    /// The parts of a reply as they come.
    pub(super) fn stream(&self, run: &Run, name: Name) -> Result<Stream> {
        let blobs = name.blobs(self.0.segment())?;
        self.0.stream(message(name, &name.request(run)).attach(&blobs), PATIENCE)
    }

    pub(super) fn send(&self, run: &Run, name: Name, deadline: impl Into<Deadline>) -> Result<Ticket> {
        let blobs = name.blobs(self.0.segment())?;
        self.0.send(message(name, &name.request(run)).attach(&blobs), deadline)
    }

    pub(super) fn try_send(&self, run: &Run, name: Name) -> Result<Option<Ticket>> {
        let blobs = name.blobs(self.0.segment())?;
        self.0.try_send(message(name, &name.request(run)).attach(&blobs))
    }

    pub(super) fn recv(
        &self,
        run: &Run,
        (name, ticket): (Name, Ticket),
        deadline: impl Into<Deadline>,
    ) -> Answer {
        answer(run, name, self.0.recv(ticket, deadline))
    }

    pub(super) fn try_recv(&self, run: &Run, (name, ticket): (Name, Ticket)) -> Option<Answer> {
        let ended = self.0.try_recv(ticket).transpose()?;
        Some(answer(run, name, ended))
    }

    /// The outcome of a call that ended at the last moment; `None` if it is cancelled now.
    pub(super) fn cancel(&self, run: &Run, (name, ticket): (Name, Ticket)) -> Option<Answer> {
        let ended = self.0.cancel(ticket).transpose()?;
        Some(answer(run, name, ended))
    }

    /// Waits until one of these calls ends; returns its index and its outcome.
    pub(super) fn recv_any(&self, run: &Run, sent: &[(Name, Ticket)]) -> (usize, Answer) {
        let done = self.0.recv_any(PATIENCE).expect("no error").expect("it has sent some");
        let place = sent.iter().position(|(_, sent)| *sent == done.ticket);
        let place = place.expect("no other handle sends as this member");
        (place, answer(run, sent[place].0, done.result))
    }

    pub(super) fn as_client(&self) -> &Client {
        &self.0
    }

    /// Dismisses one server, if one takes the request within `time`.
    pub(super) fn dismiss(&self, time: Duration) {
        let sent = self.0.call(&Name::DISMISSAL.0.to_ne_bytes(), time);
        let expected = [None, Some(ErrorKind::TimedOut), Some(ErrorKind::NoServer)];
        let outcome = sent.err().map(|error| error.kind());
        assert!(expected.contains(&outcome), "{outcome:?}");
    }
}

/// The final outcome of a call.
pub(super) type Answer = std::result::Result<Vec<u8>, ErrorKind>;

fn answer(run: &Run, name: Name, ended: std::result::Result<Reply, CallError>) -> Answer {
    match ended {
        Ok(reply) => {
            assert_eq!(reply.flags(), !name.flags(), "{name:?}");
            check_reply_blobs(name, reply.blobs());
            Ok(reply.into_vec())
        }
        Err(error) if error.kind() == ErrorKind::Failed => {
            let whole = error.reason().is_some_and(|reason| **reason == name.reason());
            assert!(whole || error.reason().is_none() && name.goes_in_parts(run), "{name:?}: {error}");
            Err(ErrorKind::Failed)
        }
        Err(error) => Err(error.kind()),
    }
}

/// Checks the blobs of a reply, or of all parts of it.
pub(super) fn check_reply_blobs(name: Name, blobs: &[Blob]) {
    name.check_blobs(blobs, name.hands_back());
}

fn message(name: Name, request: &[u8]) -> Message<'_> {
    Message::new(request).flags(name.flags())
}

/// Attaches, even if dying processes still hold all places.
fn attached<T>(attach: impl Fn() -> Result<T>) -> T {
    let deadline = Deadline::after(PATIENCE);
    loop {
        match attach() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && !deadline.has_passed() => {
                std::thread::sleep(Duration::from_micros(200));
            }
            done => return done.expect("a place"),
        }
    }
}

// ---------------------------------------------------------------- the answering end

/// How long a server waits for a client, which may be waiting for another call first.
const PART_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) struct Serving(Server);

/// A request that was taken.
pub(super) struct Taken<'a>(Request<'a>);

impl Serving {
    pub(super) fn attach(segment: &Segment) -> Serving {
        let options = ServerOptions::new().part_timeout(PART_TIMEOUT);
        Serving(attached(|| segment.server_with(&options)))
    }

    pub(super) fn recv(&self, deadline: impl Into<Deadline>) -> Result<Taken<'_>> {
        self.0.recv(deadline).map(Taken)
    }

    pub(super) fn try_recv(&self) -> Result<Option<Taken<'_>>> {
        self.0.try_recv().map(|request| request.map(Taken))
    }

    pub(super) fn recv_many(&self, max: usize, deadline: impl Into<Deadline>) -> Result<Vec<Taken<'_>>> {
        Ok(self.0.recv_many(max, deadline, Duration::ZERO)?.into_iter().map(Taken).collect())
    }

    pub(super) fn drain(&self, max: usize) -> Result<Vec<Taken<'_>>> {
        Ok(self.0.drain(max)?.into_iter().map(Taken).collect())
    }

    pub(super) fn as_server(&self) -> &Server {
        &self.0
    }
}

impl Taken<'_> {
    /// The name of the call. Checks that its request is whole.
    pub(super) fn name(&self, run: &Run) -> Name {
        let payload = self.0.payload();
        let name = Name(u64::from_ne_bytes(payload[..8].try_into().expect("8 bytes")));
        if name != Name::DISMISSAL {
            assert_eq!(name, Name::new(run, name.n()), "no client sent it");
            assert!(payload == name.request(run), "{name:?} differs from the sent request");
            assert_eq!(self.0.flags(), name.flags(), "{name:?}");
            name.check_blobs(self.0.blobs(), true);
        }
        name
    }

    pub(super) fn redeliveries(&self) -> u8 {
        self.0.redeliveries()
    }

    /// Answers; returns false if the caller waits no more, or was too slow for a reply in parts.
    pub(super) fn reply(self, run: &Run, name: Name) -> bool {
        let (mut request, reply) = (self.0, name.reply(run));
        let blobs = if name.hands_back() { request.blobs().to_vec() } else { vec![] };
        let pieces = name.pieces(&reply);
        let (last, parts) = pieces.split_last().expect("there is one");
        let given =
            parts.iter().try_fold(
                true,
                |goes_on, part| {
                    if goes_on { request.part(*part, PART_TIMEOUT) } else { Ok(false) }
                },
            );
        let replied = match given {
            Ok(false) => Ok(false),
            Ok(true) => request.reply(Message::new(*last).flags(!name.flags()).attach(&blobs)),
            Err(error) => Err(error),
        };
        match replied {
            Ok(wanted) => wanted,
            Err(error) if error.kind() == ErrorKind::TimedOut && name.goes_in_parts(run) => false,
            Err(error) => panic!("{name:?}: {error}"),
        }
    }

    /// Answers a dismissal with an empty reply.
    pub(super) fn dismissed(self) {
        self.0.reply("").expect("it is this server's");
    }

    pub(super) fn fail(self, name: Name) {
        self.0.fail(&name.reason());
    }

    /// Keeps the request with its server, and takes it back by its ticket.
    pub(super) fn through_its_number<'s>(self, server: &'s Serving, run: &Run, name: Name) -> Taken<'s> {
        let ticket = self.0.keep();
        let mut kept = server.0.kept(ticket).expect("it is this server's").expect("it was kept");
        let bytes = kept.read().expect("it is there");
        assert!(name.request(run) == bytes, "{name:?}: {} bytes", bytes.len());
        Taken(kept)
    }
}
