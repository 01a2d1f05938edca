//! A command that stays: one process that answers request after request, and is started again when
//! it ends.
//!
//! Records have no numbers, so a record that no request has asked for means that the next answers
//! could be those of other requests. Therefore the process is started again then. The end of a
//! request is not given before all that stands before it was read, and nothing that came until then
//! is an answer; see [`Input`].

use super::conversation::{Input, Output, Record};
use super::process::{self, Process};
use super::service::{Service, Stop, TICK};
use crate::failure::{Failure, at, words};
use crate::progress::say;
use crate::sys;
use pipework::Deadline;
use pipework::reqrep::Request;
use rustix::event::PollFlags;
use std::io;
use std::iter;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// How long one that has closed its input or output may take to end by itself.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Keeps a process of the command running and answers requests with it, until no more are taken.
pub(super) fn work(service: &Service<'_>) -> Result<(), Failure> {
    let mut delay = Duration::ZERO;
    // One that a process has died with before it read any of it; the next process gets it.
    let mut unread = None;
    loop {
        // The second one that dies without reading it is the last.
        let mut is_second = unread.is_some();
        let gone = match Worker::start(service) {
            Ok(mut worker) => {
                let end = worker.serve(unread.take())?;
                worker.finish(end.is_some()).map_err(at("waiting for a command"))?;
                let Some(gone) = end else { return Ok(()) };
                if worker.answered > 0 {
                    (delay, is_second) = (Duration::ZERO, false);
                }
                // One that ends well after some answers is no news, nor is one at the end of all.
                let is_expected = worker.answered > 0 && worker.has_ended_well();
                if !is_expected && !service.is_stopping() {
                    say(format!("{}; it is started again", gone.why));
                }
                gone
            }
            Err(error) => {
                let why = format!("cannot run {}: {}", service.name(), words(&error));
                say(format!("{why}; it is tried again"));
                // No caller must wait for a command that cannot be run at all.
                if !sys::is_startable_later(&error) {
                    let waiting = iter::from_fn(|| service.take().transpose());
                    for request in unread.take().map(Ok).into_iter().chain(waiting) {
                        service.fail(request?, why.as_bytes());
                    }
                }
                Gone { unread: unread.take().map(|request| (request, why.clone().into_bytes())), why }
            }
        };
        unread = gone.unread.and_then(|(request, reason)| match is_second {
            true => {
                service.fail(request, &reason);
                None
            }
            false => Some(request),
        });
        // Requests in hand are finished all the same.
        if service.is_stopping_within(delay)? && unread.is_none() {
            return Ok(());
        }
        delay = (delay * 2).clamp(FIRST_DELAY, LONGEST_DELAY);
    }
}

/// A process of the command, in the middle of its conversation.
struct Worker<'a> {
    service: &'a Service<'a>,
    process: Process<'a>,
    input: Input,
    output: Output,
    /// How many requests it has answered.
    answered: u64,
}

/// A process that has ended, or is of no use any more.
struct Gone<'a> {
    why: String,
    /// A request that it has read nothing of, and the reason with which its call would fail.
    unread: Option<(Request<'a>, Vec<u8>)>,
}

impl Gone<'_> {
    fn because(why: String) -> Self {
        Self { why, unread: None }
    }
}

impl<'a> Worker<'a> {
    fn start(service: &'a Service<'a>) -> io::Result<Self> {
        let (stdin, input) = io::pipe()?;
        let (stdout, printing) = process::output()?;
        let process = Process::start(service, Stdio::from(stdin), printing)?;
        let (input, output) = (Input::new(service.args, input)?, Output::new(service, stdout)?);
        Ok(Self { service, process, input, output, answered: 0 })
    }

    /// Answers requests, `first` before all others; `None` when no more are taken.
    fn serve(&mut self, first: Option<Request<'a>>) -> Result<Option<Gone<'a>>, Failure> {
        let mut next = first;
        let mut is_busy = true;
        loop {
            if let Some(why) = self.look(is_busy).map_err(at("poll"))? {
                let unread = next.map(|request| (request, self.reason_for(&why)));
                return Ok(Some(Gone { why, unread }));
            }
            if next.is_none() {
                if self.service.is_stopping() {
                    return Ok(None);
                }
                next = self.service.take()?;
            }
            is_busy = next.is_some();
            if let Some(request) = next.take()
                && let Some(gone) = self.answer(request).map_err(at("poll"))?
            {
                return Ok(Some(gone));
            }
        }
    }

    /// Waits for something to do, unless it `is_busy`; says why if the process is of no use any
    /// more.
    fn look(&mut self, is_busy: bool) -> io::Result<Option<String>> {
        let mut fds = vec![
            (self.service.doorbell.as_fd(), PollFlags::IN),
            (self.service.stopping.as_fd(), PollFlags::IN),
        ];
        fds.extend(self.output.fd().map(|fd| (fd, PollFlags::IN)));
        let until = if is_busy { Deadline::now() } else { self.output.due() };
        self.process.wait(&fds, until)?;
        Ok(match self.output.next(self.service) {
            Ok(Some(record)) => Some(self.unasked(&record.whole[..record.len])),
            Ok(None) if !self.output.begun().is_empty() => Some(self.unasked(self.output.begun())),
            Ok(None) if self.has_left() || self.input.is_abandoned() => {
                self.wait_for_end();
                Some(self.process.how())
            }
            Ok(None) => None,
            Err(why) => Some(format!("{}: {why}", self.service.name())),
        })
    }

    /// It has ended, or will say nothing any more.
    fn has_left(&self) -> bool {
        self.process.status().is_some() || self.output.fd().is_none()
    }

    fn unasked(&self, text: &[u8]) -> String {
        let shown = String::from_utf8_lossy(&text[..text.len().min(60)]);
        format!("{}: no request has asked for {shown:?}", self.service.name())
    }

    /// The reason with which a call fails if the process did not get its request, because it was of
    /// no use (`why`).
    fn reason_for(&mut self, why: &str) -> Vec<u8> {
        match self.process.status() {
            Some(_) => self.process.reason(),
            None => why.as_bytes().to_vec(),
        }
    }

    /// It reads no more, and has not read the request.
    fn cannot_read(&self) -> bool {
        self.input.is_abandoned() && !self.input.is_read()
    }

    /// It has closed its input or output, and may be about to end. If it cannot be waited for, it
    /// goes on without its end.
    fn wait_for_end(&mut self) {
        let _ = self.process.finish(LAST_STEPS);
    }

    /// Has the process answer a request; `None` if it can go on with the next.
    fn answer(&mut self, mut request: Request<'a>) -> io::Result<Option<Gone<'a>>> {
        let deadline = Deadline::from(self.service.args.timeout);
        if let Err(why) = self.input.put(&request) {
            self.service.fail(request, why.as_bytes());
            return Ok(None);
        }
        // The caller no longer waits for the answer, but it has to come before the next one.
        let mut is_unwanted = false;
        let mut slow: Option<Instant> = None;
        // The part that the caller has no space for yet.
        let mut part: Option<Record> = None;
        loop {
            self.input.write();
            // Ask before looking at the output: bytes printed before that are there by then.
            let (is_read, wants_end) = (self.input.is_read(), self.input.wants_end());
            let next = match part.take() {
                Some(record) => Ok(Some(record)),
                None => self.output.next(self.service),
            };
            // There may be more to do at once.
            let goes_on = matches!(next, Ok(Some(_)));
            match next {
                Ok(Some(record)) if !is_read => {
                    let why = self.unasked(&record.whole[..record.len]);
                    let unread = Some((request, why.clone().into_bytes()));
                    return Ok(Some(Gone { why, unread }));
                }
                Ok(Some(record)) if !self.service.args.stream || record.len == 0 => {
                    self.answered += 1;
                    self.process.forget();
                    self.service.reply(request, &record.whole[..record.len]);
                    return Ok(None);
                }
                Ok(Some(_)) if is_unwanted => {}
                Ok(Some(record)) => match self.service.give(&mut request, &record.whole, &mut slow) {
                    Ok(true) => {}
                    Ok(false) => part = Some(record),
                    Err(Stop::Unwanted) => is_unwanted = true,
                    Err(stop) => return Ok(Some(self.give_up(request, &stop))),
                },
                Ok(None) if self.has_left() || self.cannot_read() => {
                    return Ok(Some(self.died_with(request)));
                }
                Ok(None) if wants_end => self.input.give_end(),
                Ok(None) => {}
                Err(why) => {
                    self.service.fail(request, why.as_bytes());
                    return Ok(Some(Gone::because(format!("{}: {why}", self.service.name()))));
                }
            }
            match self.service.why_stop(&request, deadline) {
                // The process has no other request to come, and time to end by itself.
                Some(Stop::Unwanted) if self.service.is_stopping() => return Ok(None),
                Some(Stop::Unwanted) => is_unwanted = true,
                Some(stop) => return Ok(Some(self.give_up(request, &stop))),
                None => {}
            }
            let mut fds = Vec::new();
            fds.extend(self.input.pending().map(|fd| (fd, PollFlags::OUT)));
            // While the caller has a part to take, the process waits, as for any pipe.
            fds.extend(self.output.fd().filter(|_| part.is_none()).map(|fd| (fd, PollFlags::IN)));
            let until = if goes_on { Deadline::now() } else { Deadline::after(TICK) };
            self.process.wait(&fds, until.or_earlier(self.output.due()))?;
        }
    }

    /// Work on the request does not go on, so the process cannot be used any more.
    fn give_up(&mut self, request: Request<'_>, stop: &Stop) -> Gone<'a> {
        self.service.fail_stopped(request, stop);
        Gone::because(format!("{}: stopped in the middle of a request", self.service.name()))
    }

    /// The process has ended with a request, or will not read it.
    fn died_with(&mut self, request: Request<'a>) -> Gone<'a> {
        self.wait_for_end();
        let why = self.process.how();
        let reason = self.process.reason();
        if self.input.is_read() {
            self.service.fail(request, &reason);
            return Gone::because(why);
        }
        Gone { why, unread: Some((request, reason)) }
    }

    fn has_ended_well(&self) -> bool {
        self.process.status().is_some_and(|status| status.success())
    }

    /// Has the process end: by itself, at the end of its input, if it can.
    ///
    /// One that is of no use is stopped instead. It must not take the end of its input for the end
    /// of a request that another process gets.
    fn finish(&mut self, is_of_no_use: bool) -> io::Result<()> {
        match is_of_no_use {
            true => self.process.stop(),
            false => self.input.close(),
        }
        self.process.finish(self.service.args.grace)
    }
}
