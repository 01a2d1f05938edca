//! `pipework run`: starts commands with a pipe in mixed mode as standard output.
//!
//! One loop waits for everything: the pipes of the commands, arguments for more of them, signals
//! (the end of a command is one of them), times that are over and space in the outputs. So a Ctrl-C
//! is heard at once. No more is read than the outputs take, so a slow consumer slows the commands
//! down as any pipe does.

mod args;
mod plan;
mod queue;
mod job;
mod messages;
mod outputs;

use crate::failure::{Ending, Failure, USAGE, at, words};
use crate::form::Form;
use crate::group::Start;
use crate::outlet::Outlet;
use crate::recv;
use crate::stop::{Heard, Stop};
use crate::streams;
use crate::sys::{self, Arrived};
use job::{Job, Manner};
use messages::Messages;
use outputs::{Out, Outputs};
use pipework::atomic::Options;
use pipework::{Deadline, ErrorKind};
use queue::Queue;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::num::NonZero;
use std::thread;

pub(crate) use args::{HELP, RunArgs};

/// Items taken from one command before the others have their turn.
const TURN: usize = 1000;

/// Runs `pipework run`.
pub(crate) fn run(args: &RunArgs, quiet: bool) -> Result<Ending, Failure> {
    // First of all, before a descriptor of our own could have the number of the user's.
    let stdout = streams::stdout()?;
    let end = Form::of(&args.form, Form::Lines).end();
    if let (Some(args::Destination::Command(_)), true) = (&args.messages, args.form.json || args.form.nul) {
        let text = "--messages exec: gives each message to a command as it is; neither --json nor --nul \
                    has a meaning there";
        return Err(Failure::new(text).with_status(USAGE));
    }
    let messages = Messages::open(args.messages.as_ref(), args.append, end, stdout)?;
    let queue = Queue::open(args)?;
    let stop = Stop::take(&[libc::SIGCHLD])?;
    let many = args.arg_file.is_some() || queue.len() > 1;
    let mut run = Run {
        args,
        options: recv::options(&args.limits)?.mixed(true).bursts(args.bursts),
        queue,
        limit: limit(args),
        jobs: Vec::new(),
        begun: 0,
        stop,
        apart: sys::terminal().is_err(),
        many,
        outputs: Outputs::new(args, many, quiet, stdout, messages)?,
        last: Deadline::NEVER,
        failed: false,
        status: 0,
    };
    run.until_over()?;
    let ending = run.ending();
    run.outputs.finish();
    Ok(ending)
}

/// How many commands run at a time.
fn limit(args: &RunArgs) -> usize {
    match (args.jobs, &args.arg_file) {
        (Some(0), _) | (None, None) => usize::MAX,
        (Some(jobs), _) => jobs,
        (None, Some(_)) => thread::available_parallelism().map_or(1, NonZero::get),
    }
}

/// The events that the loop waits for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Arguments,
    Out(Out),
    /// Standard output has no reader.
    Deserted,
    Job(usize),
    Stderr(usize),
}

/// Everything that the loop looks after.
struct Run<'a> {
    args: &'a RunArgs,
    options: Options,
    queue: Queue,
    /// How many commands run at a time.
    limit: usize,
    /// Those that are not over.
    jobs: Vec<Job>,
    /// How many have begun.
    begun: u64,
    stop: Stop,
    /// The commands have no terminal, so they get process groups of their own.
    apart: bool,
    /// It runs more than one command.
    many: bool,
    outputs: Outputs,
    /// When commands that still run get SIGKILL.
    last: Deadline,
    /// A command has failed that must not (`--fail-fast`).
    failed: bool,
    /// The highest of those that are over.
    status: u8,
}

impl Run<'_> {
    fn until_over(&mut self) -> Result<(), Failure> {
        loop {
            self.start_more();
            if self.queue.is_over() && self.jobs.is_empty() && self.outputs.is_over() {
                return Ok(());
            }
            for source in self.wait().map_err(at("poll"))? {
                match source {
                    Source::Signals => self.hear()?,
                    Source::Arguments => {
                        if let Err(failure) = self.queue.read() {
                            self.outputs.fail(failure);
                        }
                    }
                    Source::Out(out) => self.write(out),
                    Source::Deserted => {
                        self.outputs.close();
                        self.stop_reading();
                    }
                    Source::Job(place) => self.jobs[place].ready = true,
                    Source::Stderr(place) => {
                        if let Some(stderr) = &mut self.jobs[place].stderr {
                            stderr.ready = true;
                        }
                    }
                }
            }
            for place in 0..self.jobs.len() {
                self.jobs[place].mind_the_time().map_err(at("signals"))?;
                if self.is_read(place) {
                    self.take_from(place);
                    self.take_stderr(place);
                }
            }
            self.mind_the_time();
            self.settle();
        }
    }

    /// Starts commands, as many as may run.
    fn start_more(&mut self) {
        while self.jobs.len() < self.limit
            && let Some(plan) = self.queue.next()
        {
            let manner = Manner {
                start: Start { signals: &self.stop.signals, apart: self.apart },
                options: &self.options,
                stderr: self.args.stderr,
                timeout: self.args.timeout,
                grace: self.args.grace,
                keeps_stdin: !self.many,
            };
            match Job::start(&plan, &manner) {
                Ok(job) => self.add(job),
                Err(error) if sys::is_startable_later(&error) && !self.jobs.is_empty() => {
                    self.limit = self.jobs.len();
                    let limit = self.limit;
                    self.outputs
                        .warn(format!("{}: no more than {limit} commands run at a time", words(error)));
                    self.queue.put_back(plan);
                }
                Err(error) => {
                    self.outputs.warn(plan.refused(&error));
                    self.add(Job::not_started(&plan, error.kind()));
                    self.settle();
                }
            }
        }
    }

    fn add(&mut self, mut job: Job) {
        self.begun += 1;
        job.index = self.begun;
        self.jobs.push(job);
    }

    /// Waits until something is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(&self.stop.signals, PollFlags::IN)];
        let mut until = self.last;
        if self.jobs.len() < self.limit
            && let Some(arguments) = self.queue.poll()
        {
            sources.push(Source::Arguments);
            fds.push(arguments);
        }
        for (out, outlet) in self.outputs.pending() {
            sources.push(Source::Out(out));
            fds.push(outlet.poll());
            until = until.or_earlier(self.still(outlet));
        }
        if let Some(stdout) = self.outputs.idle() {
            sources.push(Source::Deserted);
            fds.push(stdout);
        }
        let is_busy = self.outputs.is_busy();
        for (place, job) in self.jobs.iter().enumerate() {
            until = until.or_earlier(job.due());
            if is_busy || !self.is_read(place) {
                continue;
            }
            if let Some(reader) = &job.reader {
                sources.push(Source::Job(place));
                fds.push(PollFd::new(reader, PollFlags::IN));
                let due = if job.ready { Some(Deadline::now()) } else { reader.next_timeout() };
                until = until.or_earlier(due.unwrap_or(Deadline::NEVER));
            }
            if let Some(stderr) = &job.stderr {
                sources.push(Source::Stderr(place));
                fds.push(stderr.poll());
                let due = if stderr.ready { Deadline::now() } else { Deadline::NEVER };
                until = until.or_earlier(due);
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
    fn hear(&mut self) -> Result<(), Failure> {
        while let Some(heard) = self.stop.next()? {
            match heard {
                Heard::Asks(arrived) => self.ask(arrived),
                Heard::Insists => {
                    self.jobs.iter().for_each(|job| job.signal(libc::SIGKILL));
                    self.outputs.kill_command();
                    self.stop_reading();
                    self.jobs.iter_mut().for_each(Job::desert_stderr);
                    self.outputs.give_up_all();
                }
                Heard::Other => {
                    self.jobs.iter_mut().try_for_each(Job::look_after).map_err(at("signals"))?;
                    self.outputs.look_after_command().map_err(at("signals"))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the commands as the first signal asks.
    fn ask(&mut self, arrived: Arrived) {
        self.queue.close();
        // A person who has pressed Ctrl-C can press it again, and a program that handles it, a
        // prompt for instance, goes on. A process that sends a signal, or a terminal that has gone,
        // does so once.
        let has_person = !arrived.from_process && arrived.number != libc::SIGHUP;
        if !has_person {
            self.last = Deadline::after(self.args.grace);
        }
        // Those who share the terminal with us have had its Ctrl-C already.
        let signal = (arrived.from_process || self.apart).then_some(arrived.number);
        let last = self.last;
        self.jobs.iter_mut().for_each(|job| job.stop(signal, last));
    }

    /// The time at which an outlet has stood still for too long.
    fn still(&self, outlet: &Outlet) -> Deadline {
        self.stop.since().map_or(Deadline::NEVER, |stopped| outlet.still(stopped))
    }

    /// After a signal to stop: ends by force what does not end, and gives up outputs that take
    /// nothing.
    fn mind_the_time(&mut self) {
        if self.last.has_passed() {
            // The commands themselves are killed by their own deadlines, which are no later.
            self.outputs.kill_command();
            self.last = Deadline::NEVER;
        }
        let still: Vec<Out> = self
            .outputs
            .pending()
            .filter(|(_, outlet)| self.still(outlet).has_passed())
            .map(|(out, _)| out)
            .collect();
        for out in still {
            self.outputs.give_up(out);
            self.leave(out);
        }
    }

    /// Writes to an output. If it is gone, the commands' pipes are closed, so that they get SIGPIPE
    /// at their next print. Data that waits for the other outputs is still written.
    fn write(&mut self, out: Out) {
        if !self.outputs.write(out) {
            self.leave(out);
        }
    }

    /// Takes nothing more for an output that is gone.
    fn leave(&mut self, out: Out) {
        match out {
            Out::Text | Out::Messages => self.stop_reading(),
            Out::Stderr => self.jobs.iter_mut().for_each(Job::desert_stderr),
            // The commands need not stop for that.
            Out::Log => {}
        }
    }

    fn stop_reading(&mut self) {
        self.queue.close();
        self.jobs.iter_mut().for_each(Job::desert);
    }

    /// Whether what this command prints is read now. With --keep-order it waits in the pipe until
    /// those before it are over, and the command with it when the pipe is full.
    fn is_read(&self, place: usize) -> bool {
        place == 0 || !self.args.keep_order
    }

    /// Takes what a command has sent, up to a turn's worth.
    fn take_from(&mut self, place: usize) {
        let job = &mut self.jobs[place];
        // The reader is lent out, for its items are borrowed from it.
        let Some(mut reader) = job.reader.take() else { return };
        for _ in 0..TURN {
            if !job.ready || self.outputs.is_busy() {
                break;
            }
            match reader.try_next_item() {
                Ok(Some(item)) => {
                    let start = Start { signals: &self.stop.signals, apart: self.apart };
                    self.outputs.pass_on(job, &item, start);
                }
                Ok(None) => {
                    self.outputs.pass_on_begun(job, &mut reader);
                    job.ready = false;
                    if job.is_cut_off() {
                        // The part of an item that was read is given out, and its end comes as that
                        // of any pipe.
                        job.ready = reader.finish().is_ok();
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::Closed => return self.outputs.end_text(job),
                    _ => {
                        self.outputs.fail(format!("{}: {error}", job.label));
                        job.reader = Some(reader);
                        return job.desert();
                    }
                },
            }
        }
        job.reader = Some(reader);
    }

    /// Takes what a command has said on standard error, up to a read's worth.
    fn take_stderr(&mut self, place: usize) {
        let job = &mut self.jobs[place];
        let is_ready = job.stderr.as_ref().is_some_and(|stderr| stderr.ready);
        if is_ready && !self.outputs.is_busy() {
            self.outputs.take_stderr(job);
        }
    }

    /// Takes leave of the commands that are over; stops all if one has failed that must not.
    fn settle(&mut self) {
        // As soon as the process has ended: others may hold its pipes for long.
        if self.args.fail_fast
            && !self.failed
            && let Some(job) = self.jobs.iter().find(|job| job.has_failed() && job.has_ended())
        {
            self.failed = true;
            self.status = job.status();
            self.queue.close();
            let grace = Deadline::after(self.args.grace);
            let jobs = self.jobs.iter_mut().filter(|job| !job.is_stopping());
            jobs.for_each(|job| job.stop(Some(libc::SIGTERM), grace));
        }
        let settled = match self.args.keep_order {
            true => self.jobs.iter().take_while(|job| job.is_over()).count(),
            false => self.jobs.len(),
        };
        for job in self.jobs.extract_if(..settled, |job| job.is_over()) {
            self.outputs.report(&job);
            if !self.failed {
                self.status = self.status.max(job.status());
            }
            job.close();
        }
    }

    /// How this process ends, when all is over.
    fn ending(&self) -> Ending {
        match self.stop.first() {
            Some(signal) => Ending::Signal(signal),
            None if self.status > 0 => self.status.into(),
            None => self.outputs.status().into(),
        }
    }
}
