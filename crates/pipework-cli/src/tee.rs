//! `pipework tee`: a stream passed on as it is, while its messages are written to a file or
//! counted.
//!
//! One loop reads, writes and decodes, in this order. What a receiver would get is decided by the
//! library, which reads pipes; so a copy of the stream goes through a pipe of our own to a reader,
//! which empties it each time. The file is written by a thread (see `log.rs`), so that nothing here
//! waits but for the stream itself.

mod args;
mod log;
mod account;

use crate::failure::{DAMAGE, Failure, STDERR, STDOUT, at, during};
use crate::form::Form;
use crate::log_file::LogFile;
use crate::outlet::Outlet;
use crate::progress::{invite, marked};
use crate::recv;
use crate::streams::{self, Stream};
use crate::sys::{self, Signals};
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
/// A second signal ends it at once, unless it comes sooner than this after the first: then it is
/// the same one over two ways, as timeout(1) sends it to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `pipework tee`.
pub(crate) fn tee(args: &TeeArgs, quiet: bool) -> Result<u8, Failure> {
    // First of all, before a descriptor of our own could have the number of the user's.
    let (input, stdout) = (streams::stdin()?, streams::stdout()?);
    let file = open(args, stdout)?;
    let name = file.name.clone();
    let end = [Form::of(&args.form, Form::Lines).end()];
    let front = if file.ends_inside { &end[..] } else { &[] };
    // Before there is any other thread.
    let signals =
        Signals::take(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]).map_err(at("signals"))?;
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
        words: Outlet::new(streams::stderr().as_fd().try_clone_to_owned().map_err(at(STDERR))?),
        stop: Stop { signals, first: None, hurried: false },
    };
    let outcome = tee.pass_all();
    // Whoever comes behind has all, and need not wait for a disk.
    drop(tee.out);
    streams::leave_stdout()?;
    drop(tee.copy);
    if outcome.is_err() {
        // What has come of a message is not damage: nobody waits for its rest.
        tee.reader = None;
    }
    tee.account.take_from(&mut tee.reader, &tee.log);
    tee.account.end(&tee.log);
    tee.words.buffer().append(&mut tee.account.words);
    tee.stop.wait_for(&tee.log, &mut tee.words)?;
    outcome?;
    Ok(match tee.stop.first {
        Some((signal, _)) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        None if tee.account.failed || tee.log.is_incomplete() => 1,
        None if tee.account.damaged > 0 || tee.account.cut => DAMAGE,
        None => 0,
    })
}

/// Where the log goes.
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
    /// `None` when what comes is no stream of messages.
    reader: Option<Reader>,
    account: Account,
    log: Log,
    /// Standard error, which may stand still as any file.
    words: Outlet,
    stop: Stop,
}

impl Tee {
    /// Passes everything on.
    fn pass_all(&mut self) -> Result<(), Failure> {
        let mut block = vec![0; BLOCK];
        let mut ended = false;
        while (!ended || self.out.is_pending()) && !self.stop.hurried {
            let mut fds = vec![PollFd::new(&self.stop.signals, PollFlags::IN)];
            for outlet in [&self.out, &self.words] {
                if outlet.is_pending() {
                    fds.push(outlet.poll());
                }
            }
            let reads = !ended && !self.out.is_full();
            if reads {
                fds.push(PollFd::new(&self.input, PollFlags::IN));
            }
            let due = self.reader.as_ref().and_then(Reader::due).unwrap_or(Deadline::NEVER);
            sys::wait_for(&mut fds, self.account.due.or_earlier(due)).map_err(at("poll"))?;
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] && self.stop.hear()? {
                // What lies in the pipe by now is all that is still read.
                let is_pipe = sys::capacity(self.input).is_some();
                self.left = Some(if is_pipe { sys::unread(self.input) } else { 0 });
            }
            self.write_out()?;
            write_words(&mut self.words);
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
            self.words.buffer().append(&mut self.account.words);
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

/// Signals to stop.
struct Stop {
    signals: Signals,
    /// The first one, and when it came.
    first: Option<(i32, Instant)>,
    /// A second one has come.
    hurried: bool,
}

impl Stop {
    /// Hears those that have come; whether the first is among them.
    fn hear(&mut self) -> Result<bool, Failure> {
        let before = self.first;
        while let Some(arrived) = self.signals.next().map_err(at("signals"))? {
            let (_, since) = *self.first.get_or_insert_with(|| (arrived.number, Instant::now()));
            self.hurried |= since.elapsed() >= PATIENCE;
        }
        Ok(before.is_none() && self.first.is_some())
    }

    /// Waits until the log has been written, and what there is to say.
    fn wait_for(&mut self, log: &Log, words: &mut Outlet) -> Result<(), Failure> {
        let mut logs = true;
        while (logs || words.is_pending()) && !self.hurried {
            if self.first.is_some() {
                log.hurry();
            }
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if words.is_pending() {
                fds.push(words.poll());
            }
            if logs {
                fds.push(PollFd::new(log.ended(), PollFlags::IN));
            }
            sys::wait_for(&mut fds, Deadline::NEVER).map_err(at("poll"))?;
            logs &= fds.last().is_none_or(|fd| fd.revents().is_empty());
            self.hear()?;
            write_words(words);
        }
        let missing = log.missing();
        if logs && missing > 0 {
            let text = format!("{}: not written in time: entries left out, at most: {missing}", log.name());
            words.buffer().extend(marked(text).bytes());
            write_words(words);
        }
        Ok(())
    }
}

/// Writes what standard error takes at once.
fn write_words(words: &mut Outlet) {
    if words.is_pending() && words.write_some().is_err() {
        // Nobody could be told so.
        words.discard();
    }
}
