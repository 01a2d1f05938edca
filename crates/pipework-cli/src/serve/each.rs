//! A process for each request.
//!
//! The request is the process's standard input as an unnamed file in memory, not a pipe: so no
//! process has to feed it, and a command that reads only a part of it causes no failure. The
//! request is over when the process has ended and no process holds its standard output any more, as
//! with `$(...)` in a shell.

use super::jobs::is_job;
use super::process::{self, Process};
use super::service::{Service, Stop, TICK};
use crate::failure::{Failure, at, words};
use crate::records::Records;
use crate::sys;
use pipework::Deadline;
use pipework::reqrep::Request;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// Reads that take all that a pipe holds. A process that was left behind may print without end.
const READS: u32 = 16;
/// How long to wait for the descriptors, the memory and the place that a process takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes requests and answers them, one after the other, until no more are taken.
pub(super) fn work(service: &Service<'_>) -> Result<(), Failure> {
    loop {
        while let Some(request) = service.take()? {
            answer(service, request);
        }
        let mut fds =
            [PollFd::new(&service.doorbell, PollFlags::IN), PollFd::new(&service.stopping, PollFlags::IN)];
        sys::wait_for(&mut fds, Deadline::NEVER).map_err(at("poll"))?;
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
    }
}

fn answer(service: &Service<'_>, request: Request<'_>) {
    let deadline = Deadline::from(service.args.timeout);
    let (process, stdout) = match start(service, &request, deadline) {
        Ok(started) => started,
        Err(error) => {
            service.fail(request, format!("cannot run {}: {}", service.name(), words(error)).as_bytes());
            return;
        }
    };
    let output = Records::new(b'\n');
    let (slow, stopped) = (None, None);
    let mut work = Work { service, request, deadline, process, stdout, output, slow, stopped };
    match work.until_over() {
        Ok(()) => work.end(),
        Err(error) => {
            _ = service.fail(work.request, format!("{}: {}", service.name(), words(error)).as_bytes())
        }
    }
}

/// Starts a process for a request. If descriptors, memory or processes have run out, it tries
/// again for a while, since other processes end meanwhile.
fn start<'a>(
    service: &'a Service<'a>,
    request: &Request<'_>,
    deadline: Deadline,
) -> io::Result<(Process<'a>, Option<PipeReader>)> {
    let begin = || {
        let stdin = Stdio::from(sys::file_in_memory(request)?);
        let (stdout, printing) = match is_job(request) {
            true => (None, Stdio::null()),
            false => {
                let (stdout, printing) = process::output()?;
                (Some(stdout), printing)
            }
        };
        Ok((Process::start(service, stdin, printing)?, stdout))
    };
    let until = Deadline::after(PATIENCE);
    loop {
        match begin() {
            Err(error)
                if sys::is_startable_later(&error)
                    && !until.has_passed()
                    && service.why_stop(request, deadline).is_none() =>
            {
                thread::sleep(TICK);
            }
            started => return started,
        }
    }
}

/// A request, and the process that works on it.
struct Work<'a> {
    service: &'a Service<'a>,
    request: Request<'a>,
    deadline: Deadline,
    process: Process<'a>,
    /// `None` at its end, and for a job.
    stdout: Option<PipeReader>,
    /// Output that the caller has not got.
    output: Records,
    /// Since when the caller is waited for.
    slow: Option<Instant>,
    stopped: Option<Stop>,
}

impl Work<'_> {
    fn until_over(&mut self) -> io::Result<()> {
        while !self.is_over() {
            self.give_lines();
            if self.stopped.is_none() && self.has_to_stop()? {
                // It was in time, after all.
                break;
            }
            if self.stopped.is_some() {
                self.output.clear();
                self.process.stop();
            }
            // A caller that is slow to take a line slows the process down, as a pipe does.
            let has_line = self.has_line();
            let stdout = self.stdout.as_ref().filter(|_| !has_line).map(|pipe| (pipe.as_fd(), PollFlags::IN));
            let until = if has_line { Deadline::now() } else { Deadline::after(TICK) };
            if self.process.wait(stdout.as_slice(), until)?.contains(&true) {
                self.read();
            }
            if self.stopped.is_none() && self.process.status().is_some_and(|status| !status.success()) {
                if self.service.args.stream {
                    self.read_all();
                }
                self.stdout = None;
            }
        }
        Ok(())
    }

    /// Whether it waits for nothing any more.
    fn is_over(&mut self) -> bool {
        let Some(status) = self.process.status() else { return false };
        match self.stopped {
            _ if self.process.is_forced() => true,
            // Its descendants are being stopped, too.
            Some(_) => self.stdout.is_none() && !self.process.is_held(),
            None => self.stdout.is_none() && (status.success() || !self.has_line()),
        }
    }

    /// Looks whether work has to stop, which `stopped` says then; returns whether it is over, for a
    /// process that has ended is not stopped.
    fn has_to_stop(&mut self) -> io::Result<bool> {
        let Some(stop) = self.service.why_stop(&self.request, self.deadline) else { return Ok(false) };
        self.process.wait(&[], Deadline::now())?;
        let has_succeeded = self.process.status().is_some_and(|status| status.success());
        if has_succeeded {
            self.read_all();
        }
        if self.is_over() {
            return Ok(true);
        }
        let is_held = has_succeeded && matches!(stop, Stop::TimedOut);
        self.stopped.get_or_insert(if is_held { Stop::Held } else { stop });
        Ok(false)
    }

    /// Reads all that the process has printed, once it has ended.
    fn read_all(&mut self) {
        let mut reads = 0;
        while self.read() && reads < READS {
            reads += 1;
        }
    }

    /// Whether the caller is to be given a line.
    fn has_line(&mut self) -> bool {
        self.service.args.stream && self.output.first().is_some()
    }

    /// Reads once; returns whether there may be more.
    fn read(&mut self) -> bool {
        let Some(stdout) = &mut self.stdout else { return false };
        match self.output.read(stdout) {
            Ok(true) if self.output.len() > self.service.longest() => {
                self.stopped.get_or_insert(Stop::TooLong);
                false
            }
            Ok(true) => true,
            Ok(false) => {
                self.stdout = None;
                false
            }
            // The pipe is empty now.
            Err(_) => false,
        }
    }

    /// Gives the caller the lines that have come, as far as it takes them.
    fn give_lines(&mut self) {
        while self.service.args.stream
            && self.stopped.is_none()
            && let Some(line) = self.output.first()
        {
            match self.service.give(&mut self.request, line, &mut self.slow) {
                Ok(true) => self.output.pass(),
                Ok(false) => return,
                Err(stop) => self.stopped = Some(stop),
            }
        }
    }

    fn end(mut self) {
        let status = self.process.status();
        match &self.stopped {
            Some(stop) => self.service.fail_stopped(self.request, stop),
            None if status.is_some_and(|status| status.success()) => {
                self.service.reply(self.request, self.output.rest());
            }
            None => {
                let reason = self.process.reason();
                self.service.fail(self.request, &reason);
            }
        }
    }
}
