//! The target of received items: standard output, or commands. And the events that end a wait: a signal to
//! stop among others.
//!
//! Signals are held from the beginning. If a signal ended a receiver directly, it would take the
//! bytes in the FIFO with it, because the receiver may be the last to hold an end.

use super::RecvArgs;
use super::commands::Commands;
use crate::failure::{DAMAGE, Ending, FEWER, Failure, STDOUT, at};
use crate::form::{self, Form, OpenLine, Parts};
use crate::outlet::Outlet;
use crate::progress::Progress;
use crate::stop::{Heard, Stop};
use crate::streams::{self, Stream};
use crate::sys;
use pipework::Deadline;
use pipework::atomic::{Item, Reader};
use rustix::event::{PollFd, PollFlags};
use std::mem;
use std::os::fd::AsFd;

/// Bytes of output that are gathered before they are written.
const BLOCK: usize = 64 << 10;
/// The least number of bytes that a pipe or a terminal takes if it takes any.
const PAGE: usize = 4096;
/// The length of an item whose length is not known.
const SHORT: usize = 16;

pub(super) struct Sink {
    form: Form,
    /// Those of `--exec`; None: items are written out.
    commands: Option<Commands>,
    stdout: Stream,
    out: Outlet,
    /// The longest item of the latest ones, as it was written out.
    longest: usize,
    pub(super) progress: Progress,
    stop: Stop,
    torn: u64,
    zstd: bool,
    mixed: bool,
    line: OpenLine,
    /// A line was cut.
    cut: bool,
}

impl Sink {
    pub(super) fn new(args: &RecvArgs, quiet: bool) -> Result<Self, Failure> {
        let stdout = streams::stdout()?;
        // A person reads better with the messages on lines of their own.
        let lines = args.lines || stdout.is_terminal();
        let default = if lines { Form::Lines } else { Form::Raw };
        let commands = if args.exec.is_empty() { None } else { Some(Commands::new(args)?) };
        Ok(Self {
            form: Form::of(&args.form, default),
            commands,
            stdout,
            out: Outlet::new(stdout.as_fd().try_clone_to_owned().map_err(at(STDOUT))?),
            longest: PAGE,
            progress: Progress::new("received", quiet),
            stop: Stop::take(&[libc::SIGCHLD])?,
            torn: 0,
            zstd: args.limits.has_zstd(),
            mixed: args.mixed,
            line: OpenLine::default(),
            cut: false,
        })
    }

    /// No more messages are to be taken.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.first().is_some()
    }

    /// Messages in hand are not finished either.
    pub(super) fn is_hurried(&self) -> bool {
        self.stop.has_insisted()
    }

    /// Messages are given to commands.
    pub(super) fn executes(&self) -> bool {
        self.commands.is_some()
    }

    /// No more messages can be taken now.
    pub(super) fn is_full(&self) -> bool {
        self.commands.as_ref().is_some_and(Commands::is_full)
    }

    /// Commands run.
    pub(super) fn is_busy(&self) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.running() > 0)
    }

    /// Waits until standard output takes data, or a signal to stop has come. Returns how many items
    /// it is sure to take: items that stay in the pipe until then are not lost if the reader of
    /// standard output stands still.
    pub(super) fn wait_for_space(&mut self) -> Result<u64, Failure> {
        if self.commands.is_some() {
            return Ok(1);
        }
        let longest = mem::replace(&mut self.longest, SHORT);
        while !self.is_stopped() {
            let mut fds = [PollFd::new(&self.stop.signals, PollFlags::IN), self.out.poll()];
            sys::wait_for(&mut fds, Deadline::NEVER).map_err(at("poll"))?;
            let [signals, out] = fds.map(|fd| fd.revents());
            if !signals.is_empty() {
                self.hear()?;
            }
            if out.contains(PollFlags::ERR) {
                return Err(Failure::stdout(std::io::ErrorKind::BrokenPipe.into()));
            }
            if !out.is_empty() {
                break;
            }
        }
        let bytes = match sys::capacity(self.stdout) {
            // How many of its pages are taken is not known, unless none is.
            Some(capacity) if sys::unread(self.stdout) == 0 => capacity as usize,
            None if !self.stdout.is_terminal() => BLOCK,
            _ => PAGE,
        };
        Ok((bytes / longest).max(1) as u64)
    }

    pub(super) fn take(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item {
            Item::Torn(torn) => {
                self.torn += 1;
                match self.form {
                    Form::Json => self.write(item),
                    _ => self.progress.warn(form::loss(torn, self.zstd, self.mixed)),
                }
            }
            Item::Message(_) | Item::Burst(_) if self.commands.is_some() => self.execute(item)?,
            _ => self.write(item),
        }
        if let (Item::Message(_) | Item::Burst(_), Some(parts)) = (item, Parts::of(item)) {
            self.progress.add(1, parts.whole.len() as u64);
        }
        if self.out.unwritten() >= BLOCK { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, item: &Item<'_>) {
        let before = self.out.unwritten();
        if self.form.append(self.out.buffer(), item, None, &mut self.line)
            && !mem::replace(&mut self.cut, true)
        {
            self.progress.warn(form::CUT);
        }
        self.out.end_entry();
        self.longest = self.longest.max(self.out.unwritten() - before);
    }

    /// Starts the command of `--exec`.
    fn execute(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        // Lines that came before the message must be visible before the output of the command.
        self.flush()?;
        while let Some(commands) = &mut self.commands
            && !commands.start(item, &self.stop.signals)?
        {
            // It is in hand, and is not given back: one of the others makes space.
            let before = commands.running();
            while self.commands.as_ref().is_some_and(|commands| commands.running() == before) {
                self.wait_for(None, Deadline::NEVER)?;
            }
        }
        Ok(())
    }

    /// Waits until the reader may have something, a command has ended, a signal has come or the
    /// deadline has passed; and takes notice of it. Whether the reader may have something.
    pub(super) fn wait_for(&mut self, reader: Option<&Reader>, deadline: Deadline) -> Result<bool, Failure> {
        let mut fds = vec![PollFd::new(&self.stop.signals, PollFlags::IN)];
        fds.extend(reader.map(|reader| PollFd::new(reader, PollFlags::IN)));
        let due = reader.and_then(Reader::next_timeout).unwrap_or(Deadline::NEVER);
        sys::wait_for(&mut fds, deadline.or_earlier(due)).map_err(at("poll"))?;
        let is_ready = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.hear()?;
        Ok(is_ready)
    }

    /// Takes notice of signals.
    pub(super) fn hear(&mut self) -> Result<(), Failure> {
        while let Some(heard) = self.stop.next()? {
            if let (Heard::Other, Some(commands)) = (heard, &mut self.commands) {
                commands.look_after(&self.progress).map_err(at("signals"))?;
            }
        }
        Ok(())
    }

    /// Waits until another command can be started, or no more are to be.
    pub(super) fn wait_for_place(&mut self) -> Result<(), Failure> {
        while self.is_full() && !self.is_stopped() {
            self.wait_for(None, Deadline::NEVER)?;
        }
        Ok(())
    }

    /// Waits for the commands that run.
    pub(super) fn finish_commands(&mut self) -> Result<(), Failure> {
        while self.is_busy() && !self.is_hurried() {
            self.wait_for(None, Deadline::NEVER)?;
        }
        if let Some(commands) = &mut self.commands {
            commands.leave(&self.progress);
        }
        Ok(())
    }

    /// Writes all that has been taken. After a signal to stop, a standard output that takes nothing
    /// is given up.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        while self.out.is_pending() {
            let still = self.stop.since().map_or(Deadline::NEVER, |since| self.out.still(since));
            let mut fds = [PollFd::new(&self.stop.signals, PollFlags::IN), self.out.poll()];
            sys::wait_for(&mut fds, still).map_err(at("poll"))?;
            let [signals, out] = fds.map(|fd| !fd.revents().is_empty());
            if signals {
                self.hear()?;
            }
            if out {
                self.out.write_some().map_err(|error| self.left_out(Failure::stdout(error)))?;
            } else if still.has_passed() || self.is_hurried() {
                return Err(self.left_out(Failure::new("standard output takes nothing")));
            }
        }
        Ok(())
    }

    /// Adds the lost output to the reason why standard output is given up.
    fn left_out(&self, failure: Failure) -> Failure {
        match (failure.is_silent(), self.out.unwritten_entries()) {
            (true, _) | (_, 0) => failure,
            (_, 1) => failure.and("1 message or line that was received is lost"),
            (_, many) => failure.and(format!("{many} messages or lines that were received are lost")),
        }
    }

    /// `left`: how many of the messages that were asked for have not come.
    pub(super) fn finish(mut self, left: Option<u64>) -> Result<Ending, Failure> {
        self.line.finish(self.form, self.out.buffer(), None);
        self.flush()?;
        self.progress.finish();
        let failed = self.commands.as_ref().map_or(0, Commands::failed);
        match self.stop.first() {
            _ if failed > 0 => Err(Failure::new(format!("{failed} of the commands failed"))),
            // A signal that came after all was done changes nothing: a script that has got its job
            // must not see a failure.
            Some(signal) if left != Some(0) => Ok(Ending::Signal(signal)),
            _ if self.torn > 0 || self.cut => Ok(Ending::Status(DAMAGE)),
            _ => match left {
                None | Some(0) => Ok(Ending::Status(0)),
                Some(left) => Err(Failure::new(format!(
                    "the senders have left; of the messages that --count asks for, {left} did not come"
                ))
                .with_status(FEWER)),
            },
        }
    }
}
