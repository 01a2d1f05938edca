//! The commands of `--exec`: one for each message, several at a time.

use super::RecvArgs;
use crate::exec;
use crate::failure::{Failure, at};
use crate::form::Parts;
use crate::progress::Progress;
use crate::sys::{self, Signals};
use pipework::atomic::Item;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};

/// Commands that run, and the results of the others.
pub(super) struct Commands {
    words: Vec<OsString>,
    /// How many run at a time.
    limit: usize,
    running: Vec<Running>,
    /// How many have been started.
    started: u64,
    /// How many have failed.
    failed: u64,
}

struct Running {
    child: Child,
    /// Which message it has.
    message: String,
}

impl Commands {
    pub(super) fn new(args: &RecvArgs) -> Result<Self, Failure> {
        // `--` may stand before a command here as everywhere.
        let words = match &args.exec[..] {
            [dashes, command @ ..] if dashes == "--" && !command.is_empty() => command,
            command => command,
        };
        exec::find(&words[0], "no message was taken")?;
        Ok(Self { words: words.to_vec(), limit: args.jobs, running: Vec::new(), started: 0, failed: 0 })
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// No more can be started now.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.limit
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Starts the command for a message or burst; false if it has to be tried again when one of
    /// the others has made space.
    pub(super) fn start(&mut self, item: &Item<'_>, signals: &Signals) -> Result<bool, Failure> {
        let origin = Parts::of(item).and_then(|parts| parts.origin);
        let writer = origin.map_or(String::new(), |(writer, _)| format!(" of writer {writer}"));
        let message = format!("message {}{writer}", self.started + 1);
        let mut command = Command::new(&self.words[0]);
        signals.give_back(&mut command);
        match exec::start(command.args(&self.words[1..]), item) {
            Ok(child) => {
                self.started += 1;
                self.running.push(Running { child, message });
                Ok(true)
            }
            Err(error) if sys::is_startable_later(&error) && !self.running.is_empty() => Ok(false),
            Err(error) => {
                let name = self.words[0].display();
                Err(at(format!("{message} is lost: cannot run {name}"))(error))
            }
        }
    }

    /// Takes notice of those that have ended.
    pub(super) fn look_after(&mut self, progress: &Progress) -> io::Result<()> {
        let mut place = 0;
        while let Some(running) = self.running.get_mut(place) {
            let Some(status) = running.child.try_wait()? else {
                place += 1;
                continue;
            };
            if !status.success() {
                self.failed += 1;
                progress.warn(format!("{}: {status}, for {}", self.words[0].display(), running.message));
            }
            self.running.remove(place);
        }
        Ok(())
    }

    /// Leaves those that still run to themselves.
    pub(super) fn leave(&mut self, progress: &Progress) {
        for running in self.running.drain(..) {
            self.failed += 1;
            let name = self.words[0].display();
            progress.warn(format!("{name}: still running, for {}", running.message));
        }
    }
}
