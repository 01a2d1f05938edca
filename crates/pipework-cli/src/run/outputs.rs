//! The outputs for everything that commands print and send: lines, messages and reports, each in its
//! form.

use super::args::{RunArgs, StderrTo};
use super::job::Job;
use super::messages::Messages;
use crate::exec;
use crate::failure::{CLOSED, DAMAGE, Failure, STDERR, STDOUT, at, words};
use crate::form::{self, Form, OpenLine};
use crate::group::{Group, Start};
use crate::log_file::LogFile;
use crate::outlet::Outlet;
use crate::progress::Progress;
use crate::stderr;
use crate::streams::{self, Stream};
use crate::table::count;
use pipework::atomic::{Burst, Item, Message, Reader};
use rustix::event::PollFd;
use std::fmt::Display;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// The name of the log of jobs in errors.
const JOBLOG: &str = "--joblog";

/// Descriptors that are written to, each when it can take something.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Out {
    Text,
    Stderr,
    Messages,
    Log,
}

/// The target of `--joblog`.
enum JobLog {
    None,
    /// It is standard output by another name.
    WithText,
    Outlet(Outlet),
}

impl JobLog {
    fn open(path: Option<&Path>, stdout: Stream) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::None) };
        match LogFile::open(path, false, b'\n', stdout)? {
            None => Ok(Self::WithText),
            Some(file) => Ok(Self::Outlet(Outlet::new(file.into_file()?))),
        }
    }

    fn outlet(&self) -> Option<&Outlet> {
        match self {
            Self::Outlet(outlet) => Some(outlet),
            _ => None,
        }
    }
}

/// The outputs for received items, and their state.
pub(super) struct Outputs {
    /// Standard output.
    text: Outlet,
    /// Standard error, where that of the commands goes through us.
    stderr: Outlet,
    pub(super) messages: Messages,
    log: JobLog,
    form: Form,
    tag: bool,
    /// Messages are compressed.
    zstd: bool,
    /// It runs more than one command.
    many: bool,
    /// Text is passed on as it comes: it may be a question whose line does not end, or a line
    /// without end.
    passes_through: bool,
    /// Something could not be delivered.
    failed: bool,
    /// The reader of standard output has left.
    closed: bool,
    torn: bool,
    progress: Progress,
}

impl Outputs {
    pub(super) fn new(
        args: &RunArgs,
        many: bool,
        quiet: bool,
        stdout: Stream,
        messages: Messages,
    ) -> Result<Self, Failure> {
        let outlet = |stream: Stream, name: &str| {
            stream.as_fd().try_clone_to_owned().map(Outlet::new).map_err(at(name))
        };
        let form = Form::of(&args.form, Form::Lines);
        Ok(Self {
            text: outlet(stdout, STDOUT)?,
            stderr: match args.stderr {
                Some(StderrTo::Tagged) => outlet(streams::open_stderr()?, STDERR)?,
                _ => outlet(streams::stderr(), STDERR)?,
            },
            log: JobLog::open(args.joblog.as_deref(), stdout)?,
            passes_through: !many && !args.tag && messages.form_of_lines(form) == Form::Lines,
            messages,
            form,
            tag: args.tag,
            zstd: args.limits.has_zstd(),
            many,
            failed: false,
            closed: false,
            torn: false,
            progress: Progress::new("received", quiet),
        })
    }

    /// Tells a person that something went wrong, which has a status of its own.
    pub(super) fn warn(&mut self, text: impl Display) {
        if self.stderr.is_pending() {
            // Between two lines of the commands, and not inside of one that is half written.
            let warning = self.progress.warning(text);
            self.stderr.buffer().extend_from_slice(warning.as_bytes());
        } else {
            self.progress.warn(text);
        }
    }

    /// Tells a person that something could not be done for the commands.
    pub(super) fn fail(&mut self, text: impl Display) {
        self.failed = true;
        self.warn(text);
    }

    /// No more can be taken from the commands for now.
    pub(super) fn is_busy(&self) -> bool {
        let has_full_log = self.log.outlet().is_some_and(Outlet::is_full);
        self.text.is_full() || self.stderr.is_full() || self.messages.is_busy() || has_full_log
    }

    /// All has been handed over.
    pub(super) fn is_over(&self) -> bool {
        let handed_over = !matches!(&self.messages, Messages::Command(_, Some(_)));
        handed_over && self.pending().next().is_none()
    }

    /// Those that have something to be written.
    pub(super) fn pending(&self) -> impl Iterator<Item = (Out, &Outlet)> {
        let outlets = [
            (Out::Text, Some(&self.text)),
            (Out::Stderr, Some(&self.stderr)),
            (Out::Messages, self.messages.outlet()),
            (Out::Log, self.log.outlet()),
        ];
        let outlets = outlets.into_iter().filter_map(|(out, outlet)| Some((out, outlet?)));
        outlets.filter(|(_, outlet)| outlet.is_pending())
    }

    /// Writes some, when the outlet can take it; false if it is of no use any more.
    pub(super) fn write(&mut self, out: Out) -> bool {
        let (outlet, name) = match (out, &mut self.messages) {
            (Out::Text, _) => (&mut self.text, STDOUT),
            (Out::Stderr, _) => (&mut self.stderr, STDERR),
            (Out::Messages, Messages::Outlet(outlet)) => (outlet, "messages"),
            (Out::Messages, _) => return true,
            (Out::Log, _) => match &mut self.log {
                JobLog::Outlet(outlet) => (outlet, JOBLOG),
                _ => return true,
            },
        };
        let Err(error) = outlet.write_some() else { return true };
        let is_whole = out != Out::Messages || outlet.take_back_entry();
        outlet.give_up();
        if !is_whole {
            self.warn("messages: the last of them is cut");
        }
        if out == Out::Text && error.kind() == io::ErrorKind::BrokenPipe {
            self.closed = true;
        } else {
            self.fail(format!("{name}: {}", words(error)));
        }
        false
    }

    /// Gives up an outlet that takes nothing, and reports what is left out.
    pub(super) fn give_up(&mut self, out: Out) {
        let left_out = match (out, &mut self.messages) {
            (Out::Text, _) => give_up(&mut self.text, STDOUT),
            (Out::Stderr, _) => give_up(&mut self.stderr, STDERR),
            (Out::Messages, Messages::Outlet(outlet)) => {
                let (entries, is_whole) = (outlet.unwritten_entries(), outlet.take_back_entry());
                outlet.give_up();
                let cut = if is_whole { "" } else { ", the first of them cut" };
                (entries > 0).then(|| {
                    let entries = count(entries, "message");
                    format!("messages: not taken in time: {entries} left out{cut}")
                })
            }
            (Out::Messages, _) => None,
            (Out::Log, _) => match &mut self.log {
                JobLog::Outlet(outlet) => give_up(outlet, JOBLOG),
                _ => None,
            },
        };
        if let Some(left_out) = left_out {
            self.fail(left_out);
        }
    }

    /// The descriptor to poll for the end of standard output's reader, while no data is to be
    /// written there and all goes there.
    pub(super) fn idle(&self) -> Option<PollFd<'_>> {
        let all_goes_there = matches!(self.messages, Messages::WithText);
        let is_idle = all_goes_there && !self.closed && !self.text.is_pending();
        is_idle.then(|| self.text.poll_for_end())
    }

    /// Standard output has no reader any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Gives up all that has not been written, and says so.
    pub(super) fn give_up_all(&mut self) {
        [Out::Text, Out::Stderr, Out::Messages, Out::Log].into_iter().for_each(|out| self.give_up(out));
    }

    /// Takes notice if the command that has the latest message has ended.
    pub(super) fn look_after_command(&mut self) -> io::Result<()> {
        if let Messages::Command(line, group) = &mut self.messages
            && let Some(status) = group.as_mut().map(Group::try_wait).transpose()?.flatten()
        {
            *group = None;
            if !status.success() {
                let text = format!("{}: {status}", line.display());
                self.fail(text);
            }
        }
        Ok(())
    }

    /// Passes on the beginning of a line that has not ended.
    pub(super) fn pass_on_begun(&mut self, job: &mut Job, reader: &mut Reader) {
        if self.passes_through
            && let Some(text) = reader.take_peeked()
        {
            self.text.buffer().extend_from_slice(&text);
            job.line = OpenLine::Open;
        }
    }

    /// The command has printed all of its text.
    pub(super) fn end_text(&mut self, job: &mut Job) {
        let form = self.messages.form_of_lines(self.form);
        job.line.finish(form, self.text.buffer(), Some(job.name.as_bytes()));
    }

    /// Takes what a command has said on standard error.
    pub(super) fn take_stderr(&mut self, job: &mut Job) {
        let cut_off = job.is_cut_off();
        let Some(stderr) = &mut job.stderr else { return };
        let more = match stderr.take(&job.tag, self.stderr.buffer()) {
            Ok(more) if stderr.ready || !cut_off => more,
            Ok(_) => {
                stderr.end(&job.tag, self.stderr.buffer());
                false
            }
            Err(error) => {
                let text = format!("standard error of {}: {}", job.label, words(error));
                self.fail(text);
                return job.desert_stderr();
            }
        };
        if stderr.has_cut() && !mem::replace(&mut job.has_cut_stderr, true) {
            self.torn = true;
            self.warn(format!("{}: {}", job.label, stderr::CUT));
        }
        if !more {
            job.stderr = None;
        }
    }

    /// Passes an item on to where it belongs.
    pub(super) fn pass_on(&mut self, job: &mut Job, item: &Item<'_>, start: Start<'_>) {
        let name = job.name.clone();
        let name = Some(name.as_bytes());
        match item {
            Item::Torn(torn) => {
                self.torn = true;
                match self.reports() {
                    Some(out) => {
                        Form::Json.append(out, item, name, &mut OpenLine::default());
                        self.end_report();
                    }
                    None => self.warn(format!("{}: {}", job.label, form::loss(torn, self.zstd, true))),
                }
            }
            Item::Line(line) if self.passes_through => {
                self.text.buffer().extend_from_slice(&line.data);
                job.line = OpenLine::after(line);
            }
            Item::Line(_) => {
                let form = self.messages.form_of_lines(self.form);
                let out = self.text.buffer();
                if self.tag && form != Form::Json {
                    out.extend_from_slice(&job.tag);
                }
                let is_cut = form.append(out, item, name, &mut job.line);
                // The last line of one command must not run into the next line of another.
                if self.many || self.tag {
                    job.line.end(form, out);
                }
                if is_cut {
                    self.torn = true;
                    if !mem::replace(&mut job.has_cut, true) && form != Form::Json {
                        self.warn(format!("{}: {}", job.label, form::CUT));
                    }
                }
            }
            Item::Message(Message { data, .. }) | Item::Burst(Burst { data, .. }) => {
                match &mut self.messages {
                    Messages::WithText => {
                        self.form.append(self.text.buffer(), item, name, &mut job.line);
                    }
                    Messages::Outlet(outlet) => {
                        self.form.append(outlet.buffer(), item, name, &mut OpenLine::default());
                        outlet.end_entry();
                    }
                    Messages::Command(line, group) => {
                        let mut command = Command::new("sh");
                        start.prepare(&mut command);
                        match exec::start(command.arg("-c").arg(line), item) {
                            Ok(child) => *group = Some(start.group(child)),
                            Err(error) => self.fail(format!("cannot run sh: {error}")),
                        }
                    }
                }
                self.progress.add(1, data.len() as u64);
            }
        }
    }

    /// Reports how a command has ended: always among objects, else if it has failed.
    pub(super) fn report(&mut self, job: &Job) {
        let log = match &mut self.log {
            JobLog::None => None,
            JobLog::WithText => {
                let text = self.text.buffer();
                // The text of a single command may end inside a line.
                if job.line == OpenLine::Open && self.form != Form::Json {
                    text.push(b'\n');
                }
                Some(text)
            }
            JobLog::Outlet(outlet) => Some(outlet.buffer()),
        };
        if let Some(log) = log {
            job.entry().append(log);
        }
        if let Some(out) = self.reports() {
            form::append_exit(out, job.name.as_bytes(), job.status());
            self.end_report();
        } else if job.has_failed()
            // One command alone says by its status that it has failed.
            && (self.many || job.is_late())
            // The failed start has been reported.
            && let Some(how) = job.how()
        {
            self.warn(format!("{}: {how}", job.label));
        }
    }

    /// The buffer for reports, if they are objects among others.
    fn reports(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.messages {
            _ if self.form != Form::Json => None,
            Messages::WithText => Some(self.text.buffer()),
            Messages::Outlet(outlet) => Some(outlet.buffer()),
            Messages::Command(..) => None,
        }
    }

    fn end_report(&mut self) {
        if let Messages::Outlet(outlet) = &mut self.messages {
            outlet.end_entry();
        }
    }

    /// Ends the command for a message by force.
    pub(super) fn kill_command(&self) {
        if let Messages::Command(_, Some(group)) = &self.messages {
            group.signal(libc::SIGKILL);
        }
    }

    /// The exit status, where the commands have none to give.
    pub(super) fn status(&self) -> u8 {
        match () {
            () if self.failed => 1,
            () if self.closed => CLOSED,
            () if self.torn => DAMAGE,
            () => 0,
        }
    }

    pub(super) fn finish(self) {
        if self.progress.messages() > 0 {
            self.progress.finish();
        }
    }
}

fn give_up(outlet: &mut Outlet, name: &str) -> Option<String> {
    let bytes = outlet.unwritten();
    outlet.give_up();
    (bytes > 0).then(|| format!("{name}: not taken in time: {} left out", count(bytes, "byte")))
}
