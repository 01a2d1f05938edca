//! Waits in slices, for other languages, whose runtimes want to be asked now and then whether to go
//! on: where a slice ends, nothing is lost, and nothing is begun again.

use std::time::Duration;

use super::client::{Client, Outcome};
use super::request::{Giving, Request};
use super::sending::Calling;
use super::shm::payload::Message;
use super::shm::ticket::Ticket;
use super::stream::Stream;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};

const RECV: &str = "reqrep recv";
const REPLY: &str = "reqrep reply";

/// A reply on its way to the client.
#[derive(Debug)]
pub struct Answering<'m> {
    rest: Message<'m>,
    has_begun: bool,
    /// When the client has let its time for the next part pass.
    limit: Option<Deadline>,
}

impl<'m> Answering<'m> {
    /// This reply, of which nothing was given.
    pub fn new(reply: Message<'m>) -> Answering<'m> {
        Answering { rest: reply, has_begun: false, limit: None }
    }
}

/// Each of these goes on with the same call after `TimedOut` and `Interrupted`.
impl Client {
    /// As [`call_outcome`](Client::call_outcome).
    #[doc(hidden)]
    pub fn call_on(&self, calling: &mut Calling<'_>, deadline: Deadline) -> Result<Outcome> {
        let ticket = self.start_on(calling, deadline)?;
        self.receive(ticket, deadline)
    }

    /// The parts of the reply of a [call](Calling::call) that was handed out.
    #[doc(hidden)]
    pub fn stream_of(&self, ticket: Ticket) -> Stream {
        Stream::new(self.clone(), ticket, Duration::MAX)
    }

    /// Waits until there is something to receive.
    #[doc(hidden)]
    pub fn wait_for(&self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        self.wait_until(ticket, deadline, RECV, || self.poll(ticket, RECV)).map(drop)
    }

    /// As [`abandon`](Client::abandon), with the reason why a server gave the request up.
    #[doc(hidden)]
    pub fn abandon_outcome(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        self.abandon_for(ticket, "reqrep abandon")
    }
}

impl Request<'_> {
    /// As [`part`](Request::part). After any error but `TimedOut` and `Interrupted`, and when it is
    /// given up, the rest is not to follow: [`stop_giving`](Request::stop_giving).
    #[doc(hidden)]
    pub fn part_on<'m>(
        &mut self,
        giving: &mut Option<Giving<'m>>,
        part: &Message<'m>,
        deadline: Deadline,
    ) -> Result<bool> {
        let giving = match giving {
            Some(giving) => giving,
            none => none.insert(self.begin_part(part)?),
        };
        self.give_until(giving, deadline)
    }

    /// As [`reply`](Request::reply): `Interrupted` at the end of the slice, and `TimedOut` once the
    /// client has let [`part_timeout`](super::Server::part_timeout) pass. After any error but
    /// `Interrupted` the request is to be dropped.
    #[doc(hidden)]
    pub fn reply_on(&mut self, answering: &mut Answering<'_>, slice: Deadline) -> Result<bool> {
        if !answering.has_begun {
            if let Some(wanted) = self.answer_at_once(&answering.rest)? {
                return Ok(wanted);
            }
            answering.has_begun = true;
        }
        loop {
            let (server, claimed) = (self.serving(), self.claimed());
            let limit = *answering.limit.get_or_insert_with(|| server.part_deadline());
            let holding = match server.wait_for_turn(claimed, limit.or_earlier(slice), REPLY) {
                Err(error) if error.kind() == ErrorKind::TimedOut && !limit.has_passed() => {
                    return Err(Error::new(ErrorKind::Interrupted, REPLY));
                }
                holding => holding?,
            };
            answering.limit = None;
            if let Some(wanted) = self.answer_part(&mut answering.rest, holding)? {
                return Ok(wanted);
            }
        }
    }
}
