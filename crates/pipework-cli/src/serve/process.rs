//! A process of the command: its end, and its standard error.
//!
//! The caller that starts it owns its standard input and output, and waits for these here too, so
//! that standard error is always read. The last line of it may become the reason of a failed call.

use super::service::{Service, TICK};
use crate::group::{Group, Start};
use crate::stderr::Stderr;
use crate::sys;
use pipework::Deadline;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeReader};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Bytes of a line that can be a reason.
const LONGEST_REASON: usize = 4096;

/// A pipe for the standard output of a process, whose reading end never waits.
pub(super) fn output() -> io::Result<(PipeReader, Stdio)> {
    let (stdout, printing) = io::pipe()?;
    sys::never_wait(&stdout)?;
    Ok((stdout, printing.into()))
}

/// A process and its descendants. Dropping this kills them.
pub(super) struct Process<'a> {
    service: &'a Service<'a>,
    group: Group,
    /// Readable when it has ended.
    end: OwnedFd,
    status: Option<ExitStatus>,
    ending: Ending,
    /// `None` at its end.
    stderr: Option<Stderr>,
    last_line: Vec<u8>,
}

/// How it is being stopped.
enum Ending {
    No,
    /// SIGKILL comes next, at this time.
    Asked(Deadline),
    Forced,
}

impl<'a> Process<'a> {
    /// Starts the command.
    pub(super) fn start(service: &'a Service<'a>, stdin: Stdio, stdout: Stdio) -> io::Result<Self> {
        let (stderr, complaining) = Stderr::pair()?;
        let (name, arguments) = service.args.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        // In a group of its own on a terminal, too: Ctrl-C there is for the service, which lets
        // them finish.
        let start = Start { signals: &service.signals, apart: true };
        start.prepare(&mut command);
        command.args(arguments).stdin(stdin).stdout(stdout).stderr(complaining);
        let mut group = start.group(command.spawn()?);
        let end = group.end().inspect_err(|_| {
            group.signal(libc::SIGKILL);
            // No other code waits for it.
            let _ = group.wait();
        })?;
        let (stderr, last_line) = (Some(stderr), Vec::new());
        Ok(Self { service, group, end, status: None, ending: Ending::No, stderr, last_line })
    }

    /// Waits until one of `others` is ready, the process has ended or said something, or until the
    /// deadline; returns which of the others are ready.
    pub(super) fn wait(
        &mut self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        deadline: Deadline,
    ) -> io::Result<Vec<bool>> {
        let mut fds: Vec<_> =
            others.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        fds.extend(self.stderr.as_ref().map(Stderr::poll));
        let has_stderr = fds.len() > others.len();
        if self.status.is_none() {
            fds.push(PollFd::new(&self.end, PollFlags::IN));
        }
        sys::wait_for(&mut fds, deadline)?;
        let mut ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let own = ready.split_off(others.len());
        if has_stderr && own[0] {
            self.listen();
        }
        if self.status.is_none() && own.last() == Some(&true) {
            self.status = self.group.ended()?;
        }
        Ok(ready)
    }

    /// How it has ended, if it has.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Sends SIGTERM, and SIGKILL once `--grace` has passed. To be called again and again.
    pub(super) fn stop(&mut self) {
        match self.ending {
            Ending::No => {
                self.group.signal(libc::SIGTERM);
                self.ending = Ending::Asked(Deadline::after(self.service.args.grace));
            }
            Ending::Asked(until) if until.has_passed() => {
                self.group.signal(libc::SIGKILL);
                self.ending = Ending::Forced;
            }
            Ending::Asked(_) | Ending::Forced => {}
        }
    }

    /// Whether it was killed, with its descendants: nothing else is to be waited for.
    pub(super) fn is_forced(&self) -> bool {
        matches!(self.ending, Ending::Forced)
    }

    /// Whether a process still holds its standard error.
    pub(super) fn is_held(&self) -> bool {
        self.stderr.is_some()
    }

    /// Waits until it has ended: for a time by itself, then it is stopped.
    pub(super) fn finish(&mut self, by_itself: Duration) -> io::Result<()> {
        let until = Deadline::after(by_itself);
        while self.status.is_none() {
            if until.has_passed() || self.service.has_to_hurry() {
                self.stop();
            }
            self.wait(&[], Deadline::after(TICK))?;
        }
        self.listen();
        Ok(())
    }

    /// Its end: the command's name, and its exit status, or that it closed its input or
    /// output.
    pub(super) fn how(&self) -> String {
        let how = match (self.status, &self.ending) {
            (Some(status), Ending::No) => status.to_string(),
            _ => "it has closed its input or its output".into(),
        };
        format!("{}: {how}", self.service.name())
    }

    /// Why a call has failed: the last line of standard error, or else how the process ended.
    pub(super) fn reason(&mut self) -> Vec<u8> {
        self.listen();
        self.end_line();
        if self.last_line.is_empty() { self.how().into_bytes() } else { self.last_line.clone() }
    }

    /// Forgets the last line of standard error: the request that it was about went well.
    pub(super) fn forget(&mut self) {
        self.last_line.clear();
    }

    /// Passes on its standard error, in whole lines.
    fn listen(&mut self) {
        /// Enough for all that a pipe holds. A process that never stops writing must not hold this
        /// thread.
        const READS: usize = 16;
        let mut said = Vec::new();
        for _ in 0..READS {
            let Some(stderr) = &mut self.stderr else { break };
            stderr.ready = true;
            if !matches!(stderr.take(b"", &mut said), Ok(true)) {
                self.stderr = None;
            } else if !stderr.ready {
                break;
            }
        }
        self.hand_over(&said);
    }

    /// Passes on a line without an end, and adds the end, so that no other line runs into it.
    fn end_line(&mut self) {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.stderr {
            stderr.end(b"", &mut said);
        }
        self.hand_over(&said);
    }

    fn hand_over(&mut self, said: &[u8]) {
        if said.is_empty() {
            return;
        }
        self.service.pass_on(said);
        let mut lines = said.split(|&byte| byte == b'\n').rev().map(<[u8]>::trim_ascii);
        if let Some(line) = lines.find(|line| !line.is_empty()) {
            self.last_line = line[..line.len().min(LONGEST_REASON)].to_vec();
        }
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.listen();
        self.end_line();
        if self.status.is_none() {
            self.group.signal(libc::SIGKILL);
        }
        // It has ended, or is about to end.
        let _ = self.group.wait();
    }
}
