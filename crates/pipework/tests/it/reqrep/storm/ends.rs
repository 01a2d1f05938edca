//! The ends of a segment of bytes or of numbers under one name, and what passes between them.

use std::time::Duration;

use pipework::reqrep::{
    Client, IntClient, IntRequest, IntServer, Message, Outcome, Request, Segment, Server, Stream, Ticket,
};
use pipework::{Deadline, ErrorKind, Result};

use super::Run;
use crate::harness::{PATIENCE, Random};

/// A call's name: `{ number: 32, check: 32 }`. Every request begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    /// Sends a server home.
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
        if !run.integers {
            let mut random = Random::new(run.seed ^ self.0);
            let len = size(&mut random, run.max_bytes - 8);
            request.extend(random.bytes(len));
        }
        request
    }

    pub(super) fn reply(self, run: &Run) -> Vec<u8> {
        let mut random = Random::new(!(run.seed ^ self.0));
        let len = if run.integers { 8 } else { size(&mut random, run.max_bytes) };
        random.bytes(len)
    }

    /// The pieces in which its server gives the reply; all but the last are parts of a stream.
    fn pieces(self, reply: &[u8]) -> Vec<&[u8]> {
        let pieces = if self.0.is_multiple_of(4) { 1 + self.0 as usize / 4 % 5 } else { 1 };
        let len = reply.len().div_ceil(pieces).max(1);
        if reply.is_empty() { vec![reply] } else { reply.chunks(len).collect() }
    }

    pub(super) fn is_long(self, run: &Run) -> bool {
        self.request(run).len() > run.part_bytes
    }

    /// Whether the call goes in parts in one of its directions. It may fail at any time, then:
    /// because one side is slow, or leaves while the request is being put together.
    pub(super) fn goes_in_parts(self, run: &Run) -> bool {
        let reply = self.reply(run);
        let is_streamed = !run.integers && self.pieces(&reply).len() > 1;
        is_streamed || self.is_long(run) || reply.len() > run.part_bytes
    }

    /// What a server says that gives it up.
    fn reason(self) -> [u8; 8] {
        (!self.0).to_ne_bytes()
    }

    /// What goes with a request, and inverted with its reply.
    fn flags(self) -> u32 {
        self.0 as u32
    }
}

/// Mostly small.
fn size(random: &mut Random, max: usize) -> usize {
    let limit = if random.below(8) == 0 { max } else { max / 16 };
    random.below(limit + 1)
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

// ---------------------------------------------------------------- the calling end

#[derive(Clone)]
pub(super) enum Asking {
    Bytes(Client),
    Integers(IntClient),
}

impl Asking {
    pub(super) fn attach(segment: &Segment, run: &Run) -> Asking {
        match run.integers {
            true => {
                let client = attached(|| segment.int_client());
                Asking::Integers(client.redeliveries(run.redeliveries).needs_server(run.needs_server))
            }
            false => {
                let client = attached(|| segment.client());
                Asking::Bytes(client.redeliveries(run.redeliveries).needs_server(run.needs_server))
            }
        }
    }

    pub(super) fn call(&self, run: &Run, name: Name, deadline: impl Into<Deadline>) -> Answer {
        let request = name.request(run);
        match self {
            Asking::Bytes(client) => {
                let outcome = client.call_outcome(message(name, &request), deadline);
                answer(run, name, outcome)
            }
            Asking::Integers(client) => {
                client.call(number(&request), deadline).map(bytes).map_err(|error| error.kind())
            }
        }
    }

    /// The parts of a reply as they come; `None` for numbers, which have none.
    pub(super) fn stream(&self, run: &Run, name: Name) -> Option<Result<Stream>> {
        let Asking::Bytes(client) = self else { return None };
        Some(client.stream(message(name, &name.request(run)), PATIENCE))
    }

    pub(super) fn send(&self, run: &Run, name: Name, deadline: impl Into<Deadline>) -> Result<Ticket> {
        let request = name.request(run);
        match self {
            Asking::Bytes(client) => client.send(message(name, &request), deadline),
            Asking::Integers(client) => client.send(number(&request), deadline),
        }
    }

    pub(super) fn try_send(&self, run: &Run, name: Name) -> Result<Option<Ticket>> {
        let request = name.request(run);
        match self {
            Asking::Bytes(client) => client.try_send(message(name, &request)),
            Asking::Integers(client) => client.try_send(number(&request)),
        }
    }

    pub(super) fn recv(
        &self,
        run: &Run,
        (name, ticket): (Name, Ticket),
        deadline: impl Into<Deadline>,
    ) -> Answer {
        match self {
            Asking::Bytes(client) => answer(run, name, client.outcome(ticket, deadline)),
            Asking::Integers(client) => {
                client.recv(ticket, deadline).map(bytes).map_err(|error| error.kind())
            }
        }
    }

    pub(super) fn try_recv(&self, run: &Run, (name, ticket): (Name, Ticket)) -> Option<Answer> {
        match self {
            Asking::Bytes(client) => {
                let outcome = client.try_outcome(ticket).transpose()?;
                Some(answer(run, name, outcome))
            }
            Asking::Integers(client) => {
                let value = client.try_recv(ticket).transpose()?;
                Some(value.map(bytes).map_err(|error| error.kind()))
            }
        }
    }

    /// Whichever of these calls ends first: its place among them, and how.
    pub(super) fn recv_any(&self, run: &Run, sent: &[(Name, Ticket)]) -> (usize, Answer) {
        let place = |ticket: Ticket| {
            sent.iter().position(|(_, sent)| *sent == ticket).expect("nobody else sends in its name")
        };
        match self {
            Asking::Bytes(client) => {
                let (ticket, outcome) =
                    client.recv_any(PATIENCE).expect("no error").expect("it has sent some");
                (place(ticket), answer(run, sent[place(ticket)].0, outcome))
            }
            Asking::Integers(client) => {
                let (ticket, value) = client.recv_any(PATIENCE).expect("no error").expect("it has sent some");
                (place(ticket), value.map(bytes).map_err(|error| error.kind()))
            }
        }
    }

    /// What is the same for bytes and numbers.
    pub(super) fn as_client(&self) -> &Client {
        match self {
            Asking::Bytes(client) => client,
            Asking::Integers(client) => client.get_ref(),
        }
    }

    /// Sends one server home, if one is there within `time`.
    pub(super) fn dismiss(&self, time: Duration) {
        let request = Name::DISMISSAL.0.to_ne_bytes();
        let sent = match self {
            Asking::Bytes(client) => client.call(&request, time).map(drop),
            Asking::Integers(client) => client.call(number(&request), time).map(drop),
        };
        let expected = [None, Some(ErrorKind::TimedOut), Some(ErrorKind::NoServer)];
        let outcome = sent.err().map(|error| error.kind());
        assert!(expected.contains(&outcome), "{outcome:?}");
    }
}

/// What a caller gets in the end.
pub(super) type Answer = std::result::Result<Vec<u8>, ErrorKind>;

fn answer(run: &Run, name: Name, outcome: Result<Outcome>) -> Answer {
    match outcome.map_err(|error| error.kind())? {
        Outcome::Answered(reply) => {
            assert_eq!(reply.flags(), !name.flags(), "{name:?}");
            Ok(reply.into_vec())
        }
        Outcome::Failed(reason) => {
            let whole = *reason == name.reason();
            assert!(whole || reason.is_empty() && name.goes_in_parts(run), "{name:?}: {reason:?}");
            Err(ErrorKind::Failed)
        }
    }
}

fn message(name: Name, request: &[u8]) -> Message<'_> {
    Message::new(request).flags(name.flags())
}

fn bytes(number: i64) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}

/// Attaches, even if all places are taken by those who are just dying.
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

/// A client that waits for another call first keeps its server waiting for so long.
const PART_TIMEOUT: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) enum Serving {
    Bytes(Server),
    Integers(IntServer),
}

/// A request that was taken.
pub(super) enum Taken<'a> {
    Bytes(Request<'a>),
    Integers(IntRequest<'a>),
}

impl Serving {
    pub(super) fn attach(segment: &Segment, run: &Run) -> Serving {
        match run.integers {
            true => Serving::Integers(attached(|| segment.int_server())),
            false => Serving::Bytes(attached(|| segment.server()).part_timeout(PART_TIMEOUT)),
        }
    }

    pub(super) fn recv(&self, deadline: impl Into<Deadline>) -> Result<Taken<'_>> {
        match self {
            Serving::Bytes(server) => server.recv(deadline).map(Taken::Bytes),
            Serving::Integers(server) => server.recv(deadline).map(Taken::Integers),
        }
    }

    pub(super) fn try_recv(&self) -> Result<Option<Taken<'_>>> {
        match self {
            Serving::Bytes(server) => server.try_recv().map(|request| request.map(Taken::Bytes)),
            Serving::Integers(server) => server.try_recv().map(|request| request.map(Taken::Integers)),
        }
    }

    pub(super) fn recv_many(&self, max: usize, deadline: impl Into<Deadline>) -> Result<Vec<Taken<'_>>> {
        let linger = Duration::ZERO;
        Ok(match self {
            Serving::Bytes(server) => many(server.recv_many(max, deadline, linger)?, Taken::Bytes),
            Serving::Integers(server) => many(server.recv_many(max, deadline, linger)?, Taken::Integers),
        })
    }

    pub(super) fn drain(&self, max: usize) -> Result<Vec<Taken<'_>>> {
        Ok(match self {
            Serving::Bytes(server) => many(server.drain(max)?, Taken::Bytes),
            Serving::Integers(server) => many(server.drain(max)?, Taken::Integers),
        })
    }

    /// What is the same for bytes and numbers.
    pub(super) fn as_server(&self) -> &Server {
        match self {
            Serving::Bytes(server) => server,
            Serving::Integers(server) => server.get_ref(),
        }
    }
}

fn many<T, U>(requests: Vec<T>, wrap: fn(T) -> U) -> Vec<U> {
    requests.into_iter().map(wrap).collect()
}

impl Taken<'_> {
    /// Whose it is. It is whole, or this fails.
    pub(super) fn name(&self, run: &Run) -> Name {
        let (payload, flags) = match self {
            Taken::Bytes(request) => (request.to_vec(), Some(request.flags())),
            Taken::Integers(request) => (bytes(request.value()), None),
        };
        let name = Name(u64::from_ne_bytes(payload[..8].try_into().expect("8 bytes")));
        if name != Name::DISMISSAL {
            assert_eq!(name, Name::new(run, name.n()), "nobody sent it");
            assert!(payload == name.request(run), "{name:?} is not what was sent");
            assert_eq!(flags.unwrap_or(name.flags()), name.flags(), "{name:?}");
        }
        name
    }

    pub(super) fn redeliveries(&self) -> u8 {
        match self {
            Taken::Bytes(request) => request.redeliveries(),
            Taken::Integers(request) => request.redeliveries(),
        }
    }

    /// Answers; false if nobody waits any more, or the client was too slow for a reply in parts.
    pub(super) fn reply(self, run: &Run, name: Name) -> bool {
        let reply = name.reply(run);
        let replied = match self {
            Taken::Bytes(mut request) => {
                let pieces = name.pieces(&reply);
                let (last, parts) = pieces.split_last().expect("there is one");
                let given = parts.iter().try_fold(true, |goes_on, part| {
                    if goes_on { request.part(*part, PART_TIMEOUT) } else { Ok(false) }
                });
                match given {
                    Ok(false) => Ok(false),
                    Ok(true) => request.reply(Message::new(*last).flags(!name.flags())),
                    Err(error) => Err(error),
                }
            }
            Taken::Integers(request) => request.reply(number(&reply)),
        };
        match replied {
            Ok(wanted) => wanted,
            Err(error) if error.kind() == ErrorKind::TimedOut && name.goes_in_parts(run) => false,
            Err(error) => panic!("{name:?}: {error}"),
        }
    }

    /// Answers a dismissal, with anything.
    pub(super) fn dismissed(self) {
        match self {
            Taken::Bytes(request) => request.reply(""),
            Taken::Integers(request) => request.reply(0),
        }
        .expect("it is this server's");
    }

    pub(super) fn fail(self, name: Name) {
        match self {
            Taken::Bytes(request) => request.fail(&name.reason()),
            Taken::Integers(request) => request.fail(),
        };
    }

    /// Leaves it with its server, and takes it back.
    pub(super) fn through_its_number<'s>(self, server: &'s Serving, run: &Run, name: Name) -> Taken<'s> {
        match (self, server) {
            (Taken::Bytes(request), Serving::Bytes(server)) => {
                let ticket = request.keep();
                let mut kept = server.kept(ticket).expect("it is this server's").expect("it was kept");
                let bytes = kept.read().expect("it is there");
                assert!(name.request(run).ends_with(bytes), "{name:?}: {} bytes", bytes.len());
                Taken::Bytes(kept)
            }
            (Taken::Integers(request), Serving::Integers(server)) => {
                let ticket = request.keep();
                Taken::Integers(server.kept(ticket).expect("it is this server's").expect("it was kept"))
            }
            _ => unreachable!("a segment has payloads of one kind"),
        }
    }
}
