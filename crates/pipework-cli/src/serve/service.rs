//! Shared by the workers of one `pipework serve`: the source of requests, how long they may take,
//! when to stop, and the standard error to which commands' words are passed on.

use super::args::ServeArgs;
use super::jobs::{self, is_job};
use crate::failure::{self, Failure, at, during};
use crate::progress::say;
use crate::sys::{self, Signals};
use crate::words;
use pipework::reqrep::{Request, Server};
use pipework::{Deadline, ErrorKind, defaults};
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How soon the service notices that a caller has given up, or that work has to stop.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Errors of one request, after which the next try may succeed: this process lacks something, or has no
/// access to the files of long requests.
const MAY_PASS: [i32; 6] =
    [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::ENOLCK, libc::EACCES, libc::ENOENT];

pub(super) struct Service<'a> {
    pub(super) args: &'a ServeArgs,
    pub(super) server: Server,
    /// Readable while a request waits, for whichever worker is free.
    pub(super) doorbell: OwnedFd,
    pub(super) signals: Arc<Signals>,
    /// At its end when no more requests are to be taken.
    pub(super) stopping: PipeReader,
    /// The other end, until then.
    taking: Mutex<Option<PipeWriter>>,
    /// Requests in hand are to be cut short.
    hurry: AtomicBool,
    /// Requests that were cut short because of that.
    cut_short: AtomicU64,
    /// Jobs that could neither come back nor be set aside.
    lost: AtomicUsize,
    /// Whether the last try to receive a request has failed for a reason that may pass.
    cannot_receive: AtomicBool,
}

/// Why work on a request does not go on.
pub(super) enum Stop {
    /// The caller no longer waits for its reply.
    Unwanted,
    /// It took longer than `--timeout`.
    TimedOut,
    /// Its process has ended with status 0 in time, and others have not closed its output.
    Held,
    /// The service has to end.
    Hurried,
    /// The reply is longer than `--max-message`.
    TooLong,
    /// The caller cannot be given a part of its reply.
    NotTaken(pipework::Error),
}

impl<'a> Service<'a> {
    pub(super) fn new(args: &'a ServeArgs, server: Server, signals: Arc<Signals>) -> Result<Self, Failure> {
        let (stopping, taking) = io::pipe().map_err(at("pipe"))?;
        let doorbell = server.doorbell().map_err(during("waiting for requests"))?;
        Ok(Self {
            args,
            server,
            doorbell,
            signals,
            stopping,
            taking: Mutex::new(Some(taking)),
            hurry: AtomicBool::new(false),
            cut_short: AtomicU64::new(0),
            lost: AtomicUsize::new(0),
            cannot_receive: AtomicBool::new(false),
        })
    }

    /// The command by its first word, to name it.
    pub(super) fn name(&self) -> String {
        self.args.command[0].to_string_lossy().into_owned()
    }

    /// The longest reply.
    pub(super) fn longest(&self) -> usize {
        // The library holds what fits into a slot against no limit.
        let slot = self.server.segment().geometry().reply_bytes as usize;
        self.args.max_message.unwrap_or(slot.max(defaults::MAX_MESSAGE))
    }

    /// A request that waits, if any; `None` also when no more are taken.
    pub(super) fn take(&self) -> Result<Option<Request<'_>>, Failure> {
        loop {
            match (self.server.try_recv(), self.args.max_message) {
                (Ok(Some(request)), _) if is_job(&request) && jobs::is_used_up(self.args, &request) => {
                    let reason = "its servers have died with it, were stopped, or could not set it aside";
                    self.count_if_lost(jobs::set_aside(self.args, request, reason));
                }
                (Ok(Some(request)), Some(longest)) if request.len() > longest => {
                    self.fail(request, format!("the request is longer than {longest} bytes").as_bytes());
                }
                (Ok(request), _) => {
                    if request.is_some() {
                        self.cannot_receive.store(false, Ordering::Relaxed);
                    }
                    return Ok(request);
                }
                (Err(error), _) => {
                    return match (error.kind(), error.errno()) {
                        (ErrorKind::Closed, _) => Ok(None),
                        // The request waits, or its caller has got the error.
                        (_, Some(errno)) if MAY_PASS.contains(&errno) => {
                            if !self.cannot_receive.swap(true, Ordering::Relaxed) {
                                say(format!("a request cannot be received: {}", failure::words(error)));
                            }
                            Ok(None)
                        }
                        _ => Err(during("receiving")(error)),
                    };
                }
            }
        }
    }

    /// Why work on `request` is not to go on; `None` as long as it is.
    pub(super) fn why_stop(&self, request: &Request<'_>, deadline: Deadline) -> Option<Stop> {
        if deadline.has_passed() {
            return Some(Stop::TimedOut);
        }
        if self.has_to_hurry() {
            return Some(Stop::Hurried);
        }
        (!request.is_wanted()).then_some(Stop::Unwanted)
    }

    /// No more requests are taken; those in hand are finished.
    pub(super) fn stop(&self) {
        self.server.stop();
        *self.taking.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether no more requests are taken.
    pub(super) fn is_stopping(&self) -> bool {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The same; waits so long to learn it.
    pub(super) fn is_stopping_within(&self, time: Duration) -> Result<bool, Failure> {
        let until = Deadline::after(time);
        loop {
            let mut fds = [PollFd::new(&self.stopping, PollFlags::IN)];
            sys::wait_for(&mut fds, until).map_err(at("poll"))?;
            if !fds[0].revents().is_empty() {
                return Ok(true);
            }
            if until.has_passed() {
                return Ok(false);
            }
        }
    }

    /// From now on, requests in hand are cut short.
    pub(super) fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_to_hurry(&self) -> bool {
        self.hurry.load(Ordering::Relaxed)
    }

    pub(super) fn cut_short(&self) -> u64 {
        self.cut_short.load(Ordering::Relaxed)
    }

    fn count_if_lost(&self, is_lost: bool) {
        self.lost.fetch_add(usize::from(is_lost), Ordering::Relaxed);
    }

    pub(super) fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }

    /// Gives the caller a part of the reply; false if it has not taken the one before yet. It has
    /// `--part-timeout` for that; `slow` says since when it is waited for.
    pub(super) fn give(
        &self,
        request: &mut Request<'_>,
        part: &[u8],
        slow: &mut Option<Instant>,
    ) -> Result<bool, Stop> {
        let limit = self.args.part_timeout;
        if is_job(request) {
            return Ok(true);
        }
        match request.part(part, TICK.min(limit)) {
            Ok(true) => {
                *slow = None;
                Ok(true)
            }
            Ok(false) => Err(Stop::Unwanted),
            Err(error) => {
                let is_early = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted);
                let since = *slow.get_or_insert_with(Instant::now);
                if is_early && since.elapsed() < limit { Ok(false) } else { Err(Stop::NotTaken(error)) }
            }
        }
    }

    pub(super) fn reply(&self, mut request: Request<'_>, reply: &[u8]) {
        if is_job(&request) {
            return jobs::finish(request);
        }
        match request.try_reply(reply) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::TooLong => self.fail_stopped(request, &Stop::TooLong),
            Err(error) => say(format!("a reply was not taken: {}", failure::words(error))),
        }
    }

    /// Fails a call, when its caller has taken the part that it was given last; false if it does
    /// not wait any more. A job comes back.
    pub(super) fn fail(&self, mut request: Request<'_>, reason: &[u8]) -> bool {
        if is_job(&request) {
            self.count_if_lost(jobs::fail(self.args, request, reason, self.has_to_hurry()));
            return false;
        }
        let until = Deadline::after(self.args.part_timeout);
        while self.args.stream
            && !until.has_passed()
            && request.flush(TICK).is_err_and(|error| error.kind() == ErrorKind::TimedOut)
            && !self.has_to_hurry()
        {}
        request.fail(reason)
    }

    /// Fails a call whose work was stopped.
    pub(super) fn fail_stopped(&self, request: Request<'_>, stop: &Stop) {
        let reason = match stop {
            Stop::Unwanted => String::new(),
            Stop::TimedOut => format!("it took longer than the {} s that it may", self.timeout()),
            Stop::Held => format!(
                "its command has ended, but a process that it left behind held standard output for longer \
                 than the {} s that it may take",
                self.timeout()
            ),
            Stop::Hurried => "the service was stopped".into(),
            Stop::TooLong => format!("the reply is longer than {} bytes", self.longest()),
            Stop::NotTaken(error) if error.kind() == ErrorKind::TimedOut => {
                "a part of the reply was not taken in time".into()
            }
            Stop::NotTaken(error) => failure::words(error),
        };
        let is_told = match stop {
            // It takes no parts.
            Stop::Unwanted | Stop::NotTaken(_) => request.fail(reason.as_bytes()),
            _ => self.fail(request, reason.as_bytes()),
        };
        if is_told && matches!(stop, Stop::Hurried) {
            self.cut_short.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn timeout(&self) -> f64 {
        self.args.timeout.unwrap_or_default().as_secs_f64()
    }

    /// Passes on standard error of a command.
    pub(super) fn pass_on(&self, text: &[u8]) {
        words::pass_on(text);
    }
}
