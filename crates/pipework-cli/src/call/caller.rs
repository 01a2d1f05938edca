//! Makes calls. Threads share one, and its membership in the channel.

use super::args::CallArgs;
use crate::channel;
use crate::failure::{DIED, Failure, NO_WORKER, TIMEOUT, during, uninterrupted};
use pipework::reqrep::{CallError, Client, ClientOptions, Message, Options, Reply};
use pipework::{Deadline, ErrorKind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How soon a new server of the channel is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// How a call has ended.
pub(super) enum Outcome {
    /// With this reply; if parts were asked for, empty, because they were given out already.
    Answered(Vec<u8>),
    /// It is a job, and lies in the channel.
    Queued,
    /// The service has given it up, for this reason.
    Failed(Vec<u8>),
    /// What did not come in time.
    TimedOut(&'static str),
    WorkerDied,
    NoWorker(String),
    /// It could not be made, or its reply not be taken.
    Refused(String),
}

impl Outcome {
    /// As in JSON.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::Queued => "queued",
            Self::Failed(_) | Self::Refused(_) => "failed",
            Self::TimedOut(_) => "timed_out",
            Self::WorkerDied => "worker_died",
            Self::NoWorker(_) => "no_worker",
        }
    }

    /// The exit status for it.
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Answered(_) | Self::Queued => 0,
            Self::Failed(_) | Self::Refused(_) => 1,
            Self::TimedOut(_) => TIMEOUT,
            Self::WorkerDied => DIED,
            Self::NoWorker(_) => NO_WORKER,
        }
    }

    /// Why the call has no reply; empty if it has one.
    pub(super) fn reason(&self) -> &[u8] {
        match self {
            Self::Answered(_) | Self::Queued => b"",
            Self::Failed(reason) if reason.is_empty() => b"the service has failed, and gives no reason",
            Self::Failed(reason) => reason,
            Self::TimedOut(what) => what.as_bytes(),
            Self::WorkerDied => b"the server has died with the request",
            Self::NoWorker(reason) | Self::Refused(reason) => reason.as_bytes(),
        }
    }
}

/// Takes the parts of a reply.
pub(super) type Parts<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<(), Failure>;

pub(super) struct Caller {
    terms: Terms,
    /// `None` while the channel does not exist, or has no free place.
    client: Mutex<Option<Client>>,
}

/// The settings that all calls share.
struct Terms {
    path: PathBuf,
    options: Options,
    timeout: Option<Duration>,
    /// Of each client.
    calls: ClientOptions,
    waits: bool,
    max_message: Option<usize>,
    /// Requests are jobs.
    queues: bool,
}

impl Caller {
    /// Opens the channel, unless it may come later.
    pub(super) fn new(args: &CallArgs) -> Result<Self, Failure> {
        let options = Options::new().any_owner(args.any_owner);
        let CallArgs { channel: path, timeout, wait: waits, retries, max_message, queue, .. } = args;
        // Of a job, its server decides how often it is given away.
        let retries = if *queue { u8::MAX } else { *retries };
        let calls = ClientOptions::new().needs_server(!queue).redeliveries(retries);
        let terms = Terms {
            path: path.clone(),
            options,
            timeout: *timeout,
            calls: max_message.map_or(calls.clone(), |bytes| calls.max_message(bytes)),
            waits: *waits,
            max_message: *max_message,
            queues: *queue,
        };
        let caller = Self { terms, client: Mutex::new(None) };
        caller.client()?;
        Ok(caller)
    }

    /// Makes a call; with `parts`, its reply goes there.
    ///
    /// # Errors
    ///
    /// Only errors that concern other calls as well.
    pub(super) fn call(&self, request: &[u8], mut parts: Option<Parts<'_>>) -> Result<Outcome, Failure> {
        if self.is_too_long(request) {
            return Ok(Outcome::Refused("the request is longer than --max-message".into()));
        }
        let deadline = Deadline::from(self.terms.timeout);
        loop {
            let outcome = match (self.client()?, &mut parts) {
                // It is waited for.
                (None, _) => Outcome::NoWorker(String::new()),
                (Some(client), None) if self.terms.queues => self.queue(&client, request, deadline),
                (Some(client), None) => self.whole(&client, request, deadline),
                (Some(client), Some(parts)) => self.in_parts(&client, request, deadline, *parts)?,
            };
            if !self.terms.waits || !matches!(outcome, Outcome::NoWorker(_)) {
                return Ok(outcome);
            }
            if deadline.has_passed() {
                return Ok(Outcome::TimedOut(self.awaited()));
            }
            // No server has taken it. The channel may have been removed and made again.
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
            thread::sleep(deadline.capped(LOOK).remaining().unwrap_or(LOOK));
        }
    }

    /// The client; `None` if there can be none now, and that is waited for.
    fn client(&self) -> Result<Option<Client>, Failure> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.is_none() {
            let terms = &self.terms;
            let opened =
                terms.options.open(&terms.path).and_then(|segment| segment.client_with(&terms.calls));
            *client = Some(match opened {
                Err(error) if terms.waits && may_pass(error) => return Ok(None),
                Err(error) if error.errno() == Some(libc::ENOENT) => {
                    return Err(channel::refused(&terms.path, error).with_status(NO_WORKER));
                }
                opened => opened.map_err(|error| channel::refused(&terms.path, error))?,
            });
        }
        Ok(client.clone())
    }

    /// Leaves a job in the channel. From then on it stays, even if this process dies.
    fn queue(&self, client: &Client, job: &[u8], deadline: Deadline) -> Outcome {
        let sent = uninterrupted(|| client.send(Message::new(job).flags(channel::JOB), deadline));
        match sent.and_then(|ticket| client.forget(ticket)) {
            Ok(()) => Outcome::Queued,
            Err(error) => self.ended_with(error),
        }
    }

    fn whole(&self, client: &Client, request: &[u8], deadline: Deadline) -> Outcome {
        let ticket = match uninterrupted(|| client.send(request, deadline)) {
            Ok(ticket) => ticket,
            Err(error) => return self.ended_with(error),
        };
        let received = uninterrupted(|| client.recv(ticket, deadline));
        match received.or_else(|error| client.cancel(ticket)?.ok_or(error)) {
            Ok(reply) if self.is_too_long(&reply) => {
                Outcome::Refused("the reply is longer than --max-message".into())
            }
            Ok(reply) => Outcome::Answered(reply.into_vec()),
            Err(error) => self.ended_with(error),
        }
    }

    fn in_parts(
        &self,
        client: &Client,
        request: &[u8],
        deadline: Deadline,
        parts: Parts<'_>,
    ) -> Result<Outcome, Failure> {
        // It sends the request with this much time; the time for the parts is given with each.
        let time = deadline.remaining().unwrap_or(Duration::MAX);
        let mut stream = match uninterrupted(|| client.stream(request, time)) {
            Ok(stream) => stream,
            Err(error) => return Ok(self.ended_with(error)),
        };
        loop {
            match uninterrupted(|| stream.next_part(deadline)) {
                Ok(Some(part)) => parts(part.into_vec())?,
                Ok(None) => return Ok(Outcome::Answered(Vec::new())),
                Err(error) => return Ok(self.ended_with(error)),
            }
        }
    }

    /// What has not come when the time is over.
    fn awaited(&self) -> &'static str {
        if self.terms.queues {
            "the channel did not take the job in time"
        } else {
            "no reply has come in time"
        }
    }

    /// It also counts replies that fit into a slot, which the library never refuses.
    fn is_too_long(&self, bytes: &[u8]) -> bool {
        self.terms.max_message.is_some_and(|longest| bytes.len() > longest)
    }

    fn ended_with(&self, error: impl Into<CallError>) -> Outcome {
        let error = error.into();
        match error.kind() {
            ErrorKind::TimedOut => Outcome::TimedOut(self.awaited()),
            ErrorKind::PeerDied => Outcome::WorkerDied,
            ErrorKind::NoServer => {
                let path = self.terms.path.display();
                Outcome::NoWorker(format!(
                    "{path}: no server is attached; start `pipework serve {path} -- COMMAND`, or wait with --wait"
                ))
            }
            ErrorKind::Failed => Outcome::Failed(error.into_reason().map_or(Vec::new(), Reply::into_vec)),
            ErrorKind::TooLong => {
                Outcome::Refused("the request or its reply is longer than --max-message".into())
            }
            _ => Outcome::Refused(during(self.terms.path.display())(error.error()).to_string()),
        }
    }
}

/// Whether a channel that cannot be joined for this reason may be joined later: it is not there, or
/// has no place left.
fn may_pass(error: pipework::Error) -> bool {
    error.errno() == Some(libc::ENOENT) || error.kind() == ErrorKind::WouldBlock
}
