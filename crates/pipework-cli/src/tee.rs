//! `pipework tee`: a stream passed on as it is, while its messages are written to a file or
//! counted.
//!
//! One loop reads, writes and decodes, in this order. The library, which reads pipes, decides what
//! a receiver would get; so a copy of the stream goes through a pipe of our own to a reader, which
//! empties it each time. The file is written by a thread (see `log.rs`), so that nothing here waits
//! but for the stream itself.

mod args;
mod log;
mod account;

use crate::failure::{DAMAGE, Ending, Failure, STDERR, STDOUT, at, during};
use crate::form::Form;
use crate::log_file::LogFile;
use crate::outlet::{Outlet, STILL};
use crate::progress::{invite, say};
use crate::recv;
use crate::stop::Stop;
use crate::streams::{self, Stream};
use crate::sys;
use crate::table::count;
use account::Account;
use log::Log;
use pipework::Deadline;
use pipework::atomic::Reader;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(crate) use args::{HELP, TeeArgs};

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;
/// How often the log is looked at after a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `pipework tee`.
pub(crate) fn tee(args: &TeeArgs, quiet: bool) -> Result<Ending, Failure> {
    // First of all, before a descriptor of our own could have the number of the user's.
    let (input, stdout) = (streams::stdin()?, streams::stdout()?);
    let file = open(args, stdout)?;
    let name = file.name.clone();
    let end = [Form::of(&args.form, Form::Lines).end()];
    let front = if file.ends_inside { &end[..] } else { &[] };
    // Before any other thread starts.
    let stop = Stop::take(&[])?;
    let (read, copy) = io::pipe().map_err(at("pipe"))?;
    sys::never_wait(&copy).map_err(at("pipe"))?;
    let options = recv::options(&args.limits)?.mixed(args.mixed);
    invite(quiet, "reading the stream from the terminal; Ctrl-D ends it");
    let mut tee = Tee {
        input,
        left: None,
        out: Outlet::new(stdout.as_fd().try_clone_to_owned().map_err(at(STDOUT))?),
        copy,
        reader: Some(options.reader(read).map_err(during("pipe"))?),
        account: Account::new(args),
        log: Log::start(file, name, args.backlog, front)?,
        stop,
    };
    let outcome = tee.pass_all();
    let unwritten = tee.out.unwritten() + tee.left.unwrap_or(0) as usize;
    // The program behind this one has all, and need not wait for a disk.
    drop(tee.out);
    streams::leave_stdout()?;
    drop(tee.copy);
    if outcome.is_err() {
        // The beginning of a message is not damage: no reader waits for its rest.
        tee.reader = None;
    }
    tee.account.take_from(&mut tee.reader, &tee.log);
    tee.account.end(&tee.log);
    wait_for(&tee.log, &mut tee.stop)?;
    outcome?;
    if unwritten > 0 {
        say(format!("{STDOUT}: not taken in time: {} left out", count(unwritten, "byte")));
    }
    Ok(match tee.stop.first() {
        Some(signal) => Ending::Signal(signal),
        None if tee.account.failed || tee.log.is_incomplete() => Ending::Status(1),
        None if tee.account.damaged > 0 || tee.account.cut => Ending::Status(DAMAGE),
        None => Ending::Status(0),
    })
}

/// The target of the log.
fn open(args: &TeeArgs, stdout: Stream) -> Result<LogFile, Failure> {
    let Some(path) = &args.file else {
        let stderr = streams::stderr().as_fd().try_clone_to_owned();
        return Ok(LogFile::of(stderr.map_err(at(STDERR))?.into(), STDERR.into()));
    };
    let end = Form::of(&args.form, Form::Lines).end();
    LogFile::open(path, args.append, end, stdout)?.ok_or_else(|| {
        let name = path.display();
        Failure::new(format!("{name}: the stream itself goes there; name another file"))
    })
}

/// Everything that the loop looks after.
struct Tee {
    input: Stream,
    /// Once a signal has come: how much is still read.
    left: Option<u64>,
    /// Standard output.
    out: Outlet,
    /// The way to the reader.
    copy: PipeWriter,
    /// `None` if the input is no stream of messages.
    reader: Option<Reader>,
    account: Account,
    log: Log,
    stop: Stop,
}

impl Tee {
    /// Passes everything on.
    fn pass_all(&mut self) -> Result<(), Failure> {
        let mut block = vec![0; BLOCK];
        let mut ended = false;
        while (!ended || self.out.is_pending()) && !self.stop.has_insisted() {
            let mut fds = vec![PollFd::new(&self.stop.signals, PollFlags::IN)];
            if self.out.is_pending() {
                fds.push(self.out.poll());
            }
            let still = self.stop.since().map_or(Deadline::NEVER, |stopped| self.out.still(stopped));
            if still.has_passed() {
                break;
            }
            let reads = !ended && !self.out.is_full();
            if reads {
                fds.push(PollFd::new(&self.input, PollFlags::IN));
            }
            let due = self.reader.as_ref().and_then(Reader::next_timeout).unwrap_or(Deadline::NEVER);
            let until = self.account.due.or_earlier(due).or_earlier(still);
            sys::wait_for(&mut fds, until).map_err(at("poll"))?;
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let before = self.stop.first();
            while ready[0] && self.stop.next()?.is_some() {}
            if before.is_none() && self.stop.first().is_some() {
                // The bytes in the pipe by now are the last that are read.
                let is_pipe = sys::capacity(self.input).is_some();
                self.left = Some(if is_pipe { sys::unread(self.input) } else { 0 });
            }
            self.write_out()?;
            if reads && ready.last() == Some(&true) {
                let most = self.left.map_or(BLOCK, |left| left.min(BLOCK as u64) as usize);
                let len = self.input.read(&mut block[..most]).map_err(at("standard input"))?;
                ended = len == 0;
                self.left = self.left.map(|left| left - len as u64);
                self.out.buffer().extend_from_slice(&block[..len]);
                self.write_out()?;
                self.decode(&block[..len])?;
            }
            ended |= self.left == Some(0);
            self.account.take_from(&mut self.reader, &self.log);
        }
        Ok(())
    }

    /// Writes what standard output takes at once.
    fn write_out(&mut self) -> Result<(), Failure> {
        while self.out.is_pending() {
            let mut fds = [self.out.poll()];
            sys::wait_for(&mut fds, Deadline::now()).map_err(at("poll"))?;
            if fds[0].revents().is_empty() {
                break;
            }
            self.out.write_some().map_err(Failure::stdout)?;
        }
        Ok(())
    }

    /// Gives the reader its copy.
    fn decode(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while self.reader.is_some() && !bytes.is_empty() {
            match self.copy.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(at("pipe")(error)),
            }
            self.account.take_from(&mut self.reader, &self.log);
        }
        Ok(())
    }
}

/// Waits until the log has been written. After a signal it may take its time as long as it
/// gets on.
fn wait_for(log: &Log, stop: &mut Stop) -> Result<(), Failure> {
    let (mut written, mut moved) = (log.written(), Instant::now());
    let mut is_over = false;
    while !is_over && !stop.has_insisted() {
        let mut still = Deadline::NEVER;
        if let Some(stopped) = stop.since() {
            log.hurry();
            if written != log.written() {
                (written, moved) = (log.written(), Instant::now());
            }
            still = Deadline::from(moved.max(stopped) + STILL);
            if still.has_passed() {
                break;
            }
            still = still.or_earlier(Deadline::after(LOOK));
        }
        let mut fds = [PollFd::new(&stop.signals, PollFlags::IN), PollFd::new(log.ended(), PollFlags::IN)];
        sys::wait_for(&mut fds, still).map_err(at("poll"))?;
        is_over = !fds[1].revents().is_empty();
        while stop.next()?.is_some() {}
    }
    let missing = log.missing();
    if !is_over && missing > 0 {
        let name = log.name();
        say(format!("{name}: not written in time: entries left out, at most: {missing}"));
    }
    Ok(())
}
