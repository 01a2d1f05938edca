//! `pipework run`: commands whose standard output is a pipe in mixed mode.
//!
//! One loop waits for everything: the pipes of the commands, signals (the end of a command is one
//! of them) and space in the outputs. So a Ctrl-C is heard at once, unless others fill the same
//! output: a write that lost its space to them waits, and signals with it (see `outlet.rs`). No
//! more is read than the outputs take, so a slow consumer slows the commands down as any pipe does.

mod args;
mod job;
mod outlet;
mod messages;

use crate::exec;
use crate::failure::{CLOSED, DAMAGE, Failure, STDOUT, at};
use crate::form::Form;
use crate::group::{Group, Start};
use crate::progress::Progress;
use crate::recv;
use crate::streams;
use crate::sys::{self, Arrived, Signals};
use job::{Job, Plan};
use messages::Messages;
use outlet::Outlet;
use pipework::atomic::{Burst, Item, Message, Reader};
use pipework::{Deadline, ErrorKind};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use args::{HELP, RunArgs};

/// Items taken from one command before the others have their turn.
const TURN: usize = 1000;
/// A second signal kills the commands, unless it comes sooner than this after the first: then it
/// is the same one over two ways, as timeout(1) sends it to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an unfinished line that are shown before it ends.
const LONGEST_PROMPT: usize = 4096;

/// Runs `pipework run`.
pub(crate) fn run(args: &RunArgs, quiet: bool) -> Result<u8, Failure> {
    // First of all, before a descriptor of our own could have the number of the user's.
    let stdout = streams::stdout()?;
    let messages = Messages::open(args.messages.as_ref(), stdout)?;
    let plans = plans(args)?;
    let signals = Signals::take(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD])
        .map_err(at("signals"))?;
    let options = recv::options(&args.limits)?.mixed(true).bursts(args.bursts);
    let many = plans.len() > 1;
    let form = Form::of(&args.form, Form::Lines);
    let mut run = Run {
        jobs: Vec::new(),
        signals,
        apart: sys::terminal().is_err(),
        text: Outlet::new(stdout.as_fd().try_clone_to_owned().map_err(at(STDOUT))?),
        prompts: !many && !args.tag && messages.form_of_lines(form) == Form::Lines && stdout.is_terminal(),
        messages,
        form,
        tag: args.tag,
        many,
        stopped: None,
        failed: false,
        closed: false,
        torn: false,
        progress: Progress::new("received", quiet),
    };
    for plan in plans {
        let stdin = if many { Stdio::null() } else { Stdio::inherit() };
        let start = Start { signals: &run.signals, apart: run.apart };
        match Job::start(plan, stdin, &options, start) {
            Ok(job) => run.jobs.push(job),
            Err(failure) => {
                // What has been started is not left to itself.
                run.jobs.iter().for_each(|job| job.signal(libc::SIGTERM));
                run.failed = true;
                run.progress.warn(failure);
                break;
            }
        }
    }
    run.until_over()?;
    let status = run.status();
    if run.progress.messages() > 0 {
        run.progress.finish();
    }
    Ok(status)
}

/// What the command line asks for, in its order; that of `--shell` first.
fn plans(args: &RunArgs) -> Result<Vec<Plan>, Failure> {
    let mut plans: Vec<Plan> = args.shell.iter().map(Plan::shell).collect();
    if !args.command.is_empty() {
        for words in args.command.split(|word| *word == args.separator) {
            if words.is_empty() {
                let separator = args.separator.display();
                return Err(Failure::new(format!("a command is missing beside {separator}")));
            }
            plans.push(Plan::command(words));
        }
    }
    job::tell_apart(&mut plans);
    Ok(plans)
}

/// What the loop waits for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Text,
    Messages,
    Job(usize),
}

/// Everything that the loop looks after.
struct Run {
    jobs: Vec<Job>,
    signals: Signals,
    /// There is no terminal, so commands get process groups of their own.
    apart: bool,
    /// Standard output.
    text: Outlet,
    messages: Messages,
    form: Form,
    tag: bool,
    /// There is more than one command.
    many: bool,
    /// A person sees what is printed, and may be asked something by a line that has no end.
    prompts: bool,
    /// The first signal to stop, and when it came.
    stopped: Option<(i32, Instant)>,
    /// Something could not be delivered or started.
    failed: bool,
    /// Whoever read standard output has left.
    closed: bool,
    torn: bool,
    progress: Progress,
}

impl Run {
    fn until_over(&mut self) -> Result<(), Failure> {
        while !self.is_over() {
            for source in self.wait().map_err(at("poll"))? {
                match source {
                    Source::Signals => self.hear().map_err(at("signals"))?,
                    Source::Text => {
                        if let Err(error) = self.text.write_some() {
                            self.text.discard();
                            self.closed = error.kind() == io::ErrorKind::BrokenPipe;
                            self.stop_reading((!self.closed).then_some((STDOUT, error)));
                        }
                    }
                    Source::Messages => {
                        if let Messages::Outlet(outlet) = &mut self.messages
                            && let Err(error) = outlet.write_some()
                        {
                            outlet.discard();
                            self.stop_reading(Some(("messages", error)));
                        }
                    }
                    Source::Job(place) => self.jobs[place].ready = true,
                }
            }
            for place in 0..self.jobs.len() {
                self.take_from(place);
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let handed_over = match &self.messages {
            Messages::Command(_, group) => group.is_none(),
            messages => messages.pending().is_none(),
        };
        handed_over && !self.text.is_pending() && self.jobs.iter().all(Job::is_over)
    }

    /// No more can be taken from the commands for now.
    fn is_busy(&self) -> bool {
        self.text.is_full() || self.messages.is_busy()
    }

    /// Waits until something is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if self.text.is_pending() {
            sources.push(Source::Text);
            fds.push(self.text.poll());
        }
        if let Some(outlet) = self.messages.pending() {
            sources.push(Source::Messages);
            fds.push(outlet.poll());
        }
        let mut until = Deadline::NEVER;
        if !self.is_busy() {
            for (place, job) in self.jobs.iter().enumerate() {
                if let Some(reader) = &job.reader {
                    sources.push(Source::Job(place));
                    fds.push(PollFd::new(reader, PollFlags::IN));
                    let due = if job.ready { Some(Deadline::now()) } else { reader.due() };
                    until = until.or_earlier(due.unwrap_or(Deadline::NEVER));
                }
            }
        }
        sys::wait_for(&mut fds, until)?;
        let is_due = |source: Source| match source {
            Source::Job(place) => self.jobs[place].is_due(),
            _ => false,
        };
        let ready =
            sources.iter().zip(&fds).filter(|(source, fd)| !fd.revents().is_empty() || is_due(**source));
        Ok(ready.map(|(source, _)| *source).collect())
    }

    /// Takes notice of signals, the end of processes among them.
    fn hear(&mut self) -> io::Result<()> {
        while let Some(arrived) = self.signals.next()? {
            if arrived.number != libc::SIGCHLD {
                self.stop(arrived);
                continue;
            }
            self.jobs.iter_mut().try_for_each(Job::look_after)?;
            if let Messages::Command(line, group) = &mut self.messages
                && let Some(status) = group.as_mut().map(Group::try_wait).transpose()?.flatten()
            {
                *group = None;
                if !status.success() {
                    self.failed = true;
                    self.progress.warn(format!("{}: {status}", line.display()));
                }
            }
        }
        Ok(())
    }

    /// Ends the commands: the first time as the signal asks, the second time by force.
    fn stop(&mut self, arrived: Arrived) {
        match self.stopped {
            None => {
                self.stopped = Some((arrived.number, Instant::now()));
                for job in &mut self.jobs {
                    // Those who share the terminal with us have had its Ctrl-C already.
                    if arrived.from_process || self.apart {
                        job.signal(arrived.number);
                    }
                    // It is to be seen now whether the pipe still holds anything.
                    job.ready = true;
                }
            }
            Some((_, since)) if since.elapsed() >= PATIENCE => {
                self.jobs.iter().for_each(|job| job.signal(libc::SIGKILL));
                if let Messages::Command(_, Some(group)) = &self.messages {
                    group.signal(libc::SIGKILL);
                }
                self.abandon();
            }
            Some(_) => {}
        }
    }

    /// Closes all pipes, for an output is gone; the commands get SIGPIPE at their next print. What
    /// waits for the other output is still written.
    fn stop_reading(&mut self, failure: Option<(&str, io::Error)>) {
        if let Some((what, error)) = failure {
            self.failed = true;
            self.progress.warn(format!("{what}: {error}"));
        }
        self.jobs.iter_mut().for_each(|job| job.reader = None);
    }

    /// Closes all pipes and forgets what has not been written.
    fn abandon(&mut self) {
        self.stop_reading(None);
        self.text.discard();
        if let Messages::Outlet(outlet) = &mut self.messages {
            outlet.discard();
        }
    }

    /// Takes what a command has sent, up to a turn's worth.
    fn take_from(&mut self, place: usize) {
        // The reader is lent out, for its items are borrowed from it.
        let Some(mut reader) = self.jobs[place].reader.take() else { return };
        for _ in 0..TURN {
            if !self.jobs[place].ready || self.is_busy() {
                break;
            }
            match reader.try_next_item() {
                Ok(Some(item)) => self.pass_on(place, &item),
                Ok(None) => {
                    self.show_prompt(place, &mut reader);
                    let job = &mut self.jobs[place];
                    job.ready = false;
                    if self.stopped.is_some() && job.has_ended() {
                        // Whoever else holds the pipe is not waited for. What has been read of an
                        // item is given out, and its end comes as that of any pipe.
                        job.ready = reader.finish().is_ok();
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::Closed => return,
                    _ => {
                        self.failed = true;
                        self.progress.warn(format!("{}: {error}", self.jobs[place].name));
                        return;
                    }
                },
            }
        }
        self.jobs[place].reader = Some(reader);
    }

    /// Shows a person what has been printed of a line that has not ended.
    fn show_prompt(&mut self, place: usize, reader: &mut Reader) {
        let shown = &mut self.jobs[place].shown;
        // What is longer than this is no prompt, and each look at it costs its length.
        if self.prompts
            && *shown < LONGEST_PROMPT
            && let Some(line) = reader.peek()
        {
            self.text.buffer().extend_from_slice(&line[*shown..]);
            *shown = line.len();
        }
    }

    /// Passes an item on to where it belongs.
    fn pass_on(&mut self, place: usize, item: &Item<'_>) {
        let name = &self.jobs[place].name;
        match item {
            Item::Torn(torn) => {
                self.torn = true;
                let out = match &mut self.messages {
                    Messages::WithText => Some(&mut self.text),
                    Messages::Outlet(outlet) => Some(outlet),
                    Messages::Command(..) => None,
                };
                match out.filter(|_| self.form == Form::Json) {
                    Some(out) => self.form.append(out.buffer(), item, Some(name)),
                    None => self.progress.warn(format!("{name}: {torn}")),
                }
            }
            Item::Line(line) if self.jobs[place].shown > 0 => {
                let shown = std::mem::take(&mut self.jobs[place].shown);
                self.text.buffer().extend_from_slice(line.data.get(shown..).unwrap_or_default());
            }
            Item::Line(line) => {
                let form = self.messages.form_of_lines(self.form);
                let out = self.text.buffer();
                if self.tag && form != Form::Json {
                    out.extend_from_slice(format!("[{name}] ").as_bytes());
                }
                form.append(out, item, Some(name));
                // The last line of one command must not run into the next line of another.
                let ended = line.data.ends_with(b"\n") || line.data.ends_with(b"\r");
                if form == Form::Lines && !ended && (self.many || self.tag) {
                    out.push(b'\n');
                }
            }
            Item::Message(Message { data, .. }) | Item::Burst(Burst { data, .. }) => {
                match &mut self.messages {
                    Messages::WithText => {
                        if self.jobs[place].shown > 0 && self.form == Form::Lines {
                            self.text.buffer().push(b'\n');
                        }
                        self.form.append(self.text.buffer(), item, Some(name));
                    }
                    Messages::Outlet(outlet) => {
                        self.form.append(outlet.buffer(), item, Some(name));
                    }
                    Messages::Command(line, group) => {
                        let mut command = Command::new("sh");
                        let start = Start { signals: &self.signals, apart: self.apart };
                        start.prepare(&mut command);
                        match exec::start(command.arg("-c").arg(line), item) {
                            Ok(child) => *group = Some(start.group(child)),
                            Err(error) => {
                                self.failed = true;
                                self.progress.warn(format!("cannot run sh: {error}"));
                            }
                        }
                    }
                }
                self.progress.add(1, data.len() as u64);
            }
        }
    }

    /// The exit status, when all is over.
    fn status(&self) -> u8 {
        if let Some((signal, _)) = self.stopped {
            return u8::try_from(128 + signal).unwrap_or(u8::MAX);
        }
        let highest = self.jobs.iter().map(Job::status).max().unwrap_or(0);
        match highest {
            0 if self.failed => 1,
            0 if self.closed => CLOSED,
            0 if self.torn => DAMAGE,
            _ => highest,
        }
    }
}
