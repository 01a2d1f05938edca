//! One command of `pipework run`: its process, and the pipes that are its standard output and,
//! where that was asked for, its standard error.
//!
//! A job is over when its process has ended and its pipes are at their ends. These come in any
//! order: a process may leave others behind that still hold the pipes, and may close its output
//! early. A job that is being stopped, or whose time is over, is over with its process, even if
//! another process holds the pipes.

use super::args::StderrTo;
use super::plan::{self, Plan};
use crate::exec::{CANNOT_EXECUTE, NOT_FOUND};
use crate::failure::{CLOSED, TIMEOUT};
use crate::form::{Entry, OpenLine};
use crate::group::{Group, Start};
use crate::stderr::Stderr;
use crate::sys;
use pipework::Deadline;
use pipework::atomic::{Options, Reader};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A command that runs, or has run.
pub(super) struct Job {
    /// Its name in objects.
    pub(super) name: OsString,
    /// The same for a person.
    pub(super) label: String,
    /// The same at the beginning of a line.
    pub(super) tag: Vec<u8>,
    /// None at the end of the pipe.
    pub(super) reader: Option<Reader>,
    /// The reader may hold items already read, which no poll would show.
    pub(super) ready: bool,
    /// None at its end, or if it is not read.
    pub(super) stderr: Option<Stderr>,
    /// The line of text that has begun and not ended.
    pub(super) line: OpenLine,
    /// Such a line was cut, and that has been said.
    pub(super) has_cut: bool,
    /// The same, of a line on standard error.
    pub(super) has_cut_stderr: bool,
    /// None if it could not be started.
    group: Option<Group>,
    end: Option<End>,
    /// Its place among the commands, from 1.
    pub(super) index: u64,
    /// When it was started, by the wall clock and by the monotonic clock.
    started: (SystemTime, Instant),
    /// How long its process ran, once it has ended.
    time: Duration,
    /// By when it has to be over.
    until: Deadline,
    /// When it is killed if it ignores that signal.
    last: Deadline,
    /// It was not.
    is_late: bool,
    /// It could not be started, or was late, or has failed before it was stopped.
    has_failed: bool,
    /// Its output has no reader any more.
    is_deserted: bool,
    stopping: Stopping,
}

/// How a process has ended.
enum End {
    By(ExitStatus),
    /// It has not even begun, for this reason.
    NotStarted(io::ErrorKind),
}

/// How far it is with being stopped.
#[derive(Clone, Copy)]
enum Stopping {
    No,
    /// SIGKILL comes next, at this time.
    Asked(Deadline),
    Forced,
}

/// How jobs are started, which is the same for all.
pub(super) struct Manner<'a> {
    pub(super) start: Start<'a>,
    pub(super) options: &'a Options,
    pub(super) stderr: Option<StderrTo>,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    /// Standard input is that of this process, and not an empty one.
    pub(super) keeps_stdin: bool,
}

impl Job {
    /// Starts a command.
    pub(super) fn start(plan: &Plan, manner: &Manner<'_>) -> io::Result<Self> {
        let system = |error: pipework::Error| match error.errno() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(error),
        };
        let (reader, writer) = manner.options.pair().map_err(system)?;
        let mut command = Command::new(&plan.words[0]);
        manner.start.prepare(&mut command);
        let stdin = if manner.keeps_stdin { Stdio::inherit() } else { Stdio::null() };
        command.args(&plan.words[1..]).stdin(stdin).stdout(writer.as_fd().try_clone_to_owned()?);
        let mut stderr = None;
        match manner.stderr {
            None => {}
            Some(StderrTo::Merged) => {
                command.stderr(writer.as_fd().try_clone_to_owned()?);
            }
            Some(StderrTo::Tagged) => {
                let (reading, writing) = Stderr::pair()?;
                stderr = Some(reading);
                command.stderr(writing);
            }
        }
        let begun = Self::of(plan);
        let group = manner.start.group(command.spawn()?);
        // `command` and `writer` end here: our copies of the writing ends would keep the pipes from
        // ever ending.
        let (reader, until) = (Some(reader), Deadline::from(manner.timeout));
        let last = Deadline::from(manner.timeout.map(|timeout| timeout.saturating_add(manner.grace)));
        Ok(Self { reader, stderr, group: Some(group), until, last, ..begun })
    }

    /// A command that could not be started; that is its exit status, as in a shell.
    pub(super) fn not_started(plan: &Plan, why: io::ErrorKind) -> Self {
        Self { end: Some(End::NotStarted(why)), has_failed: true, ..Self::of(plan) }
    }

    fn of(plan: &Plan) -> Self {
        let label = plan::label(&plan.name);
        Self {
            name: plan.name.clone(),
            tag: format!("[{label}] ").into_bytes(),
            label,
            reader: None,
            ready: true,
            stderr: None,
            line: OpenLine::default(),
            has_cut: false,
            has_cut_stderr: false,
            group: None,
            end: None,
            index: 0,
            started: (SystemTime::now(), Instant::now()),
            time: Duration::ZERO,
            until: Deadline::NEVER,
            last: Deadline::NEVER,
            is_late: false,
            has_failed: false,
            is_deserted: false,
            stopping: Stopping::No,
        }
    }

    /// Takes note if the process has ended.
    pub(super) fn look_after(&mut self) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        if let Some(status) = self.group.as_ref().map(Group::ended).transpose()?.flatten() {
            self.end = Some(End::By(status));
            self.time = self.started.1.elapsed();
            self.has_failed |= !self.is_stopping() && self.status() != 0;
            // If the job waited only for this, it looks at the pipes once more.
            self.look_again();
        }
        Ok(())
    }

    fn look_again(&mut self) {
        self.ready = true;
        if let Some(stderr) = &mut self.stderr {
            stderr.ready = true;
        }
    }

    /// When to look at it although nothing has come.
    pub(super) fn due(&self) -> Deadline {
        match self.stopping {
            Stopping::No => self.until,
            Stopping::Asked(until) => until,
            Stopping::Forced => Deadline::NEVER,
        }
    }

    /// Its reader has something to decide although nothing has come.
    pub(super) fn is_due(&self) -> bool {
        let due = self.reader.as_ref().and_then(Reader::next_timeout);
        due.is_some_and(Deadline::has_passed)
    }

    /// Stops it if it has taken too long, and kills it if it ignores the signal.
    pub(super) fn mind_the_time(&mut self) -> io::Result<()> {
        if !self.due().has_passed() {
            return Ok(());
        }
        self.look_after()?;
        match self.stopping {
            // It was in time: the bytes still in the pipes wait for us.
            Stopping::No if self.has_ended() && !self.is_held() => {
                (self.until, self.last) = (Deadline::NEVER, Deadline::NEVER);
            }
            // It was in time as well. The processes that it has left behind are no part of it.
            Stopping::No if self.has_ended() => self.stop(None, self.last),
            Stopping::No => {
                (self.is_late, self.has_failed) = (true, true);
                self.stop(Some(libc::SIGTERM), self.last);
            }
            Stopping::Asked(_) => {
                self.signal(libc::SIGKILL);
                self.stopping = Stopping::Forced;
            }
            Stopping::Forced => {}
        }
        Ok(())
    }

    /// Whether a process may still write to its pipes.
    fn is_held(&self) -> bool {
        let stdout = self.reader.as_ref().is_some_and(sys::has_writer);
        stdout || self.stderr.as_ref().is_some_and(Stderr::is_held)
    }

    /// From now on waits only for its end; sends a signal, unless it has had one already. SIGKILL
    /// follows at the deadline, or earlier if it was due earlier.
    pub(super) fn stop(&mut self, signal: Option<i32>, until: Deadline) {
        if let Some(number) = signal {
            self.signal(number);
        }
        self.stopping = match self.stopping {
            Stopping::No => Stopping::Asked(until.or_earlier(self.last)),
            Stopping::Asked(earlier) => Stopping::Asked(until.or_earlier(earlier)),
            Stopping::Forced => Stopping::Forced,
        };
        // It is to be seen now whether the pipes still hold anything.
        self.look_again();
    }

    /// Closes the pipe of its standard output, so that it gets SIGPIPE at its next print.
    pub(super) fn desert(&mut self) {
        self.is_deserted |= self.reader.take().is_some();
    }

    /// Closes the pipe of its standard error.
    pub(super) fn desert_stderr(&mut self) {
        self.is_deserted |= self.stderr.take().is_some();
    }

    /// Hands a signal on to the process and to its descendants, as long as any of them may be
    /// there.
    pub(super) fn signal(&self, number: i32) {
        if let Some(group) = self.group.as_ref().filter(|_| !self.is_over()) {
            group.signal(number);
        }
    }

    /// The process has ended; others may still hold the pipes.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// It is being stopped.
    pub(super) fn is_stopping(&self) -> bool {
        !matches!(self.stopping, Stopping::No)
    }

    /// It has ended while it was being stopped: other processes that hold its pipes are not waited
    /// for.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_stopping() && self.has_ended()
    }

    /// The process has ended and the pipes are at their ends.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() && self.reader.is_none() && self.stderr.is_none()
    }

    /// Its exit status as a shell gives it; 0 while it has none.
    pub(super) fn status(&self) -> u8 {
        match &self.end {
            // It took too long, whatever its exit status.
            Some(_) if self.is_late => TIMEOUT,
            None => 0,
            // It is not to blame; nor is a shell that reports this of the command that it has run.
            Some(End::By(status)) if self.is_deserted && shell_status(*status) == CLOSED => 0,
            Some(End::By(status)) => shell_status(*status),
            Some(End::NotStarted(io::ErrorKind::NotFound)) => NOT_FOUND,
            Some(End::NotStarted(_)) => CANNOT_EXECUTE,
        }
    }

    /// It could not be started, or was late, or has failed before it was stopped.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// It took longer than it may.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Its entry in the log of jobs.
    pub(super) fn entry(&self) -> Entry<'_> {
        let signal = match &self.end {
            Some(End::By(status)) => status.signal(),
            _ => None,
        };
        Entry {
            index: self.index,
            command: self.name.as_bytes(),
            start: self.started.0,
            time: self.time,
            status: self.status(),
            signal,
        }
    }

    /// How its process has ended, in words; None if it had no process.
    pub(super) fn how(&self) -> Option<String> {
        match &self.end {
            Some(End::By(_)) if self.is_late => Some("it took too long, and was stopped".into()),
            Some(End::By(status)) => Some(status.to_string()),
            _ => None,
        }
    }

    /// Forgets the process, which has ended; to be called when no signals are sent to it any more.
    pub(super) fn close(mut self) {
        // So this does not block, and cannot fail.
        let _ = self.group.as_mut().map(Group::wait);
    }
}

/// An exit status as a shell gives it.
fn shell_status(status: ExitStatus) -> u8 {
    let number = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_status_matches_the_shell() {
        assert_eq!(shell_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
    }
}
