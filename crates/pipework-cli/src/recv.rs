//! `pipework recv`: messages from a FIFO or standard input, written out or given to commands.
//!
//! What has been received is written before the next wait, so nothing lies in a buffer while the
//! pipe is silent. With `--count` nothing is read from the pipe behind the last message asked for.

mod args;

use crate::args::ReadingArgs;
use crate::exec;
use crate::failure::{DAMAGE, Failure, at, during, no_pipe};
use crate::fifo::{Rest, Turn};
use crate::form::{Form, Parts};
use crate::location::{self, Location, no_fifo};
use crate::progress::{Progress, say};
use crate::streams::{self, Stream};
use pipework::atomic::{Item, Options, Reader, Zstd, create_fifo};
use pipework::{Deadline, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Command;

pub(crate) use args::{HELP, RecvArgs};

/// Bytes of output that are gathered before they are written.
const BLOCK: usize = 64 << 10;

/// Runs `pipework recv`.
pub(crate) fn recv(args: &RecvArgs, quiet: bool) -> Result<u8, Failure> {
    if let Some(name) = args.exec.first() {
        exec::find(name, "no message was taken")?;
    }
    // Before anything is taken out of the pipe it is known where to put it.
    let mut sink = Sink::new(args, quiet)?;
    let mut left = args.count;
    let mut rest: Option<Rest> = None;
    loop {
        let mut source = Source::open(args, quiet, rest)?;
        // Workers of --exec have it open as well while their commands run, and wait for their
        // turns.
        if args.exec.is_empty() && source.reader.has_rival() {
            sink.progress
                .warn("somebody else reads from the same FIFO: each gets pieces, and loses messages");
        }
        let outcome = source.receive(args, &mut left, &mut sink);
        rest = source.leave().unwrap_or_else(|lost| {
            sink.progress.warn(lost);
            None
        });
        // A sender may have come when the last one had left.
        let goes_on = outcome.is_ok() && rest.is_some() && left != Some(0);
        if !goes_on {
            outcome.and(rest.map_or(Ok(()), Rest::keep))?;
            return sink.finish();
        }
    }
}

/// Where messages come from.
struct Source {
    reader: Reader,
    /// Where others may read as well: a FIFO that was opened by its path.
    turn: Option<Turn>,
}

impl Source {
    /// Opens it; `rest` is what was left in it the last time.
    fn open(args: &RecvArgs, quiet: bool, rest: Option<Rest>) -> Result<Self, Failure> {
        let (mut reader, turn) = open(args, quiet, rest)?;
        // Any message may turn out to be the last that is wanted, or that a command could be run
        // for.
        reader.set_exact(args.count.is_some() || !args.exec.is_empty());
        if let Some(turn) = &turn {
            turn.count_earlier_senders();
        }
        Ok(Self { reader, turn })
    }

    /// Takes messages until there are no more, or `left` has come down to 0.
    fn receive(&mut self, args: &RecvArgs, left: &mut Option<u64>, sink: &mut Sink) -> Result<(), Failure> {
        let outcome = loop {
            if *left == Some(0) {
                break Ok(());
            }
            let next = match self.reader.try_next_item() {
                Ok(None) => {
                    sink.flush()?;
                    self.reader.next_item(Deadline::from(args.timeout))
                }
                Ok(Some(item)) => Ok(item),
                Err(error) => Err(error),
            };
            match next {
                Ok(item @ (Item::Message(_) | Item::Burst(_))) => {
                    if let Some(left) = left {
                        *left -= 1;
                    }
                    if args.exec.is_empty() {
                        sink.take(&item)?;
                        continue;
                    }
                    let item = item.into_owned();
                    self.while_others_read(args, || sink.take(&item))?;
                }
                Ok(item) => sink.take(&item)?,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::Closed => break Ok(()),
                    ErrorKind::TimedOut => break Err(failure(error)),
                    _ => {
                        sink.flush()?;
                        return Err(failure(error));
                    }
                },
            }
        };
        // What has begun and was not finished is told of, too.
        self.reader.finish().map_err(during("receiving"))?;
        while let Ok(Some(item)) = self.reader.try_next_item() {
            sink.take(&item)?;
        }
        sink.flush()?;
        outcome
    }

    /// Does what takes its time, in which other receivers may have their turn.
    fn while_others_read(
        &self,
        args: &RecvArgs,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // What has begun here must go on here.
        let turn = self.turn.as_ref().filter(|_| self.reader.is_empty());
        turn.map_or(Ok(()), Turn::give)?;
        let done = work();
        if let Some(turn) = turn {
            turn.take(args.timeout, |_| ())?;
        }
        done
    }

    fn leave(self) -> Result<Option<Rest>, Failure> {
        self.turn.map_or(Ok(None), |turn| turn.leave(self.reader))
    }
}

/// Why receiving ends before the end.
fn failure(error: pipework::Error) -> Failure {
    match error.kind() {
        ErrorKind::TimedOut => Failure::timeout("nothing arrived whole in time"),
        ErrorKind::Corrupt => {
            Failure::new("what comes is no message; if text shares the pipe, both ends need --mixed")
        }
        _ => during("receiving")(error),
    }
}

/// What a receiver is to accept.
pub(crate) fn options(limits: &ReadingArgs) -> Result<Options, Failure> {
    let mut options = Options::new();
    if let Some(path) = &limits.dictionary {
        let zstd = Zstd::new().dictionary_file(path).map_err(during(path.display()))?;
        options = options.zstd(zstd);
    } else if limits.zstd {
        options = options.zstd(Zstd::new());
    }
    if let Some(bytes) = limits.max_message {
        options = options.max_message(bytes);
    }
    if let Some(time) = limits.frame_timeout {
        options = options.frame_timeout(time);
    }
    Ok(options)
}

/// The reader that was asked for; with a FIFO that has a path, what it needs to take turns there.
fn open(args: &RecvArgs, quiet: bool, rest: Option<Rest>) -> Result<(Reader, Option<Turn>), Failure> {
    let options = options(&args.limits)?.mixed(args.mixed);
    let Some(path) = &args.from else {
        streams::stdin()?;
        let reader = options.stdin().map_err(|error| {
            Failure::new(format!(
                "standard input brings no messages: {}; pipe a sender into it, as in \
                 `pipework send ... | pipework recv`, or name a FIFO with --from",
                no_pipe(error)
            ))
        })?;
        return Ok((reader, None));
    };
    let path = match Location::of(path, 0) {
        Location::Path(path) => path,
        Location::Descriptor(number) if args.forever => {
            return Err(Failure::new(format!(
                "{}: --forever opens the FIFO again and again, so it needs its path; descriptor \
                 {number} has none",
                path.display()
            )));
        }
        Location::Descriptor(number) => {
            let refused = |error| Failure::new(format!("{}: {}", path.display(), no_pipe(error)));
            let reader = options.reader(location::inherited(number)?).map_err(refused)?;
            return Ok((reader, None));
        }
    };
    if args.create {
        create(&path)?;
    }
    let turn = Turn::at(&path, rest);
    if let Some(turn) = &turn {
        turn.take(args.timeout, |path| {
            if !quiet && streams::stderr().is_terminal() {
                say(format!("{}: waiting for another receiver to leave", path.display()));
            }
        })?;
    }
    let opened = if args.forever { options.listen_fifo(&path) } else { options.read_fifo(&path) };
    let reader = opened.map_err(|error| {
        let name = path.display();
        match (error.kind(), error.errno()) {
            (_, Some(libc::ENOENT)) => Failure::new(format!("{name}: no such FIFO; --create makes it")),
            (ErrorKind::Invalid, _) => Failure::new(format!("{name}: {}", no_fifo(&path))),
            _ => during(name)(error),
        }
    })?;
    Ok((reader, turn))
}

/// Makes the FIFO unless it is there. What else may stand at the path is found out when opening it.
fn create(path: &Path) -> Result<(), Failure> {
    match create_fifo(path) {
        Err(error) if error.errno() == Some(libc::EEXIST) => Ok(()),
        outcome => outcome.map_err(during(path.display())),
    }
}

/// Where received items go.
struct Sink {
    form: Form,
    /// The command of `--exec`; empty: items are written out.
    exec: Vec<OsString>,
    out: Vec<u8>,
    stdout: Stream,
    progress: Progress,
    torn: u64,
    failed: u64,
}

impl Sink {
    fn new(args: &RecvArgs, quiet: bool) -> Result<Self, Failure> {
        let stdout = streams::stdout()?;
        // A person reads better with the messages on lines of their own.
        let lines = args.lines || stdout.is_terminal();
        let default = if lines { Form::Lines } else { Form::Raw };
        Ok(Self {
            form: Form::of(&args.form, default),
            exec: args.exec.clone(),
            out: Vec::new(),
            stdout,
            progress: Progress::new("received", quiet),
            torn: 0,
            failed: 0,
        })
    }

    fn take(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item {
            Item::Torn(torn) => {
                self.torn += 1;
                match self.form {
                    Form::Json => self.form.append(&mut self.out, item, None),
                    _ => self.progress.warn(torn),
                }
            }
            Item::Message(_) | Item::Burst(_) if !self.exec.is_empty() => self.execute(item)?,
            _ => self.form.append(&mut self.out, item, None),
        }
        if let (Item::Message(_) | Item::Burst(_), Some(parts)) = (item, Parts::of(item)) {
            self.progress.add(1, parts.whole.len() as u64);
        }
        if self.out.len() >= BLOCK { self.flush() } else { Ok(()) }
    }

    /// Runs the command of `--exec` and waits for it.
    fn execute(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        // Lines that came before the message are to be seen before what the command prints.
        self.flush()?;
        let mut command = Command::new(&self.exec[0]);
        let name = self.exec[0].display();
        let status = exec::start(command.args(&self.exec[1..]), item)
            .and_then(|mut child| child.wait())
            .map_err(at(format!("cannot run {name}")))?;
        if !status.success() {
            self.failed += 1;
            self.progress.warn(format!("{name}: {status}"));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let outcome = self.stdout.write_all(&self.out);
        self.out.clear();
        outcome.map_err(Failure::stdout)
    }

    fn finish(mut self) -> Result<u8, Failure> {
        self.flush()?;
        let (failed, torn) = (self.failed, self.torn);
        self.progress.finish();
        match (failed, torn) {
            (0, 0) => Ok(0),
            (0, _) => Ok(DAMAGE),
            _ => Err(Failure::new(format!("{failed} of the commands failed"))),
        }
    }
}
