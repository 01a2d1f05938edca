//! The commands of `--exec`: one for each message, several at a time.
//!
//! While one of them runs, its message is in hand: signals to stop are then held back and heard
//! between two steps, so that no more is taken, and what is in hand is finished.

use super::RecvArgs;
use crate::exec;
use crate::failure::{Failure, at};
use crate::fifo::Turn;
use crate::form::Parts;
use crate::progress::Progress;
use crate::sys::{self, Signals};
use pipework::Deadline;
use pipework::atomic::{Item, Reader};
use rustix::event::{PollFd, PollFlags};
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A second signal gives up what is in hand, unless it comes sooner than this after the first:
/// then it is the same one over two ways, as timeout(1) sends it to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a turn is asked for while commands are looked after, at the least and at the most.
const PAUSES: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(20));

/// Commands that run, and what has become of the others.
pub(super) struct Commands {
    words: Vec<OsString>,
    /// How many run at a time.
    limit: usize,
    running: Vec<Running>,
    /// How many have been started.
    started: u64,
    /// How many have failed.
    failed: u64,
    signals: Signals,
    /// The first signal to stop, and when it came.
    stopped: Option<(i32, Instant)>,
    /// Another one came: what runs is left to itself.
    gives_up: bool,
}

struct Running {
    child: Child,
    /// Which message it has.
    message: String,
}

impl Commands {
    /// Signals to stop end this process until they are held.
    pub(super) fn new(args: &RecvArgs) -> Result<Self, Failure> {
        exec::find(&args.exec[0], "no message was taken")?;
        let signals =
            Signals::take(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD])
                .map_err(at("signals"))?;
        signals.release();
        Ok(Self {
            words: args.exec.clone(),
            limit: args.jobs,
            running: Vec::new(),
            started: 0,
            failed: 0,
            signals,
            stopped: None,
            gives_up: false,
        })
    }

    /// Holds signals back from now on, for a message may be in hand.
    pub(super) fn hold(&self) {
        self.signals.hold();
    }

    /// Lets signals end this process: nothing is in hand.
    pub(super) fn release(&self) {
        self.signals.release();
    }

    /// No more messages are to be taken.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Some run.
    pub(super) fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// No more can be started now.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.limit
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// The exit status after a signal: as if it had ended this process.
    pub(super) fn status(&self) -> u8 {
        self.stopped.map_or(0, |(signal, _)| u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// Starts the command for a message or burst.
    pub(super) fn start(&mut self, item: &Item<'_>, progress: &Progress) -> Result<(), Failure> {
        let origin = Parts::of(item).and_then(|parts| parts.origin);
        let writer = origin.map_or(String::new(), |(writer, _)| format!(" of writer {writer}"));
        let message = format!("message {}{writer}", self.started + 1);
        loop {
            let mut command = Command::new(&self.words[0]);
            self.signals.give_back(&mut command);
            match exec::start(command.args(&self.words[1..]), item) {
                Ok(child) => {
                    self.started += 1;
                    self.running.push(Running { child, message });
                    return Ok(());
                }
                // It is in hand, and is not given back: one of the others makes space.
                Err(error) if sys::is_shortage(&error) && !self.running.is_empty() => {
                    let before = self.running.len();
                    while self.running.len() == before {
                        self.wait(None, Deadline::NEVER, progress)?;
                    }
                }
                Err(error) => {
                    let name = self.words[0].display();
                    return Err(at(format!("{message} is lost: cannot run {name}"))(error));
                }
            }
        }
    }

    /// Waits until the reader may have something, a command has ended, a signal has come or the
    /// deadline has passed; and takes notice of it.
    pub(super) fn wait(
        &mut self,
        reader: Option<&Reader>,
        deadline: Deadline,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(reader.map(|reader| PollFd::new(reader, PollFlags::IN)));
        let due = reader.and_then(Reader::due).unwrap_or(Deadline::NEVER);
        sys::wait_for(&mut fds, deadline.or_earlier(due)).map_err(at("poll"))?;
        self.hear(progress).map_err(at("signals"))
    }

    fn hear(&mut self, progress: &Progress) -> io::Result<()> {
        while let Some(arrived) = self.signals.next()? {
            match self.stopped {
                _ if arrived.number == libc::SIGCHLD => {}
                None => self.stopped = Some((arrived.number, Instant::now())),
                Some((_, since)) => self.gives_up |= since.elapsed() >= PATIENCE,
            }
        }
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

    /// Waits until another command can be started, or no more are to be.
    pub(super) fn wait_for_place(&mut self, progress: &Progress) -> Result<(), Failure> {
        while self.is_full() && !self.is_stopped() {
            self.wait(None, Deadline::NEVER, progress)?;
        }
        Ok(())
    }

    /// Waits for all that is in hand.
    pub(super) fn finish(&mut self, progress: &Progress) -> Result<(), Failure> {
        while !self.running.is_empty() && !self.gives_up {
            self.wait(None, Deadline::NEVER, progress)?;
        }
        for running in self.running.drain(..) {
            self.failed += 1;
            let name = self.words[0].display();
            progress.warn(format!("{name}: still running, for {}", running.message));
        }
        Ok(())
    }

    /// Takes a turn at reading, unless there will be nothing to read for.
    pub(super) fn take(
        &mut self,
        turn: &Turn,
        timeout: Option<Duration>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let deadline = Deadline::from(timeout);
        let mut pause = PAUSES.0;
        while !self.running.is_empty() && !self.is_stopped() {
            if turn.try_take()? {
                return Ok(());
            }
            if deadline.has_passed() {
                return Err(turn.overdue());
            }
            self.wait(None, deadline.or_earlier(Deadline::after(pause)), progress)?;
            pause = (pause * 2).min(PAUSES.1);
        }
        if self.is_stopped() {
            return Ok(());
        }
        // Nothing is in hand.
        self.release();
        let taken = turn.take(deadline.remaining(), |_| ());
        self.hold();
        taken
    }
}
