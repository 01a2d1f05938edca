//! `pipework recv`: messages from a FIFO or standard input, written out or given to commands.
//!
//! What has been received is written before the next wait, so nothing lies in a buffer while the
//! pipe is silent. With `--count` nothing is read from the pipe behind the last message asked for.

mod args;
mod commands;

use crate::args::ReadingArgs;
use crate::failure::{DAMAGE, Failure, during, no_pipe};
use crate::fifo::{Rest, Turn};
use crate::form::{self, Form, OpenLine, Parts};
use crate::location::{self, Location, no_fifo};
use crate::progress::{Progress, say};
use crate::streams::{self, Stream};
use commands::Commands;
use pipework::atomic::{Item, Options, Reader, Zstd, create_fifo};
use pipework::{Deadline, ErrorKind};
use std::io::Write;
use std::mem;
use std::path::Path;

pub(crate) use args::{HELP, RecvArgs};

/// Bytes of output that are gathered before they are written.
const BLOCK: usize = 64 << 10;

/// Runs `pipework recv`.
pub(crate) fn recv(args: &RecvArgs, quiet: bool) -> Result<u8, Failure> {
    // Before anything is taken out of the pipe it is known where to put it.
    let mut sink = Sink::new(args, quiet)?;
    let mut left = args.count;
    let mut rest: Option<Rest> = None;
    loop {
        // Here signals end this process, for nothing is in hand.
        let mut source = Source::open(args, quiet, rest)?;
        sink.hold_signals();
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
        let goes_on = outcome.is_ok() && rest.is_some() && left != Some(0) && !sink.is_stopped();
        if !goes_on {
            outcome.and(rest.map_or(Ok(()), Rest::keep))?;
            return sink.finish();
        }
        sink.release_signals();
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
        let (reader, turn) = open(args, quiet, rest)?;
        if let Some(turn) = &turn {
            turn.count_earlier_senders();
        }
        Ok(Self { reader, turn })
    }

    /// Takes messages until there are no more, or `left` has come down to 0, and sees to it that
    /// all that were taken are dealt with.
    fn receive(&mut self, args: &RecvArgs, left: &mut Option<u64>, sink: &mut Sink) -> Result<(), Failure> {
        let outcome = self.take_all(args, left, sink).and_then(|in_time| {
            self.give_out_rest(sink)?;
            if in_time { Ok(()) } else { Err(Failure::timeout("nothing arrived whole in time")) }
        });
        outcome.and(self.finish_commands(sink))
    }

    /// Returns whether the time given for each was enough.
    fn take_all(
        &mut self,
        args: &RecvArgs,
        left: &mut Option<u64>,
        sink: &mut Sink,
    ) -> Result<bool, Failure> {
        let mut deadline = Deadline::from(args.timeout);
        self.stop_behind(args, *left);
        while *left != Some(0) && !sink.is_stopped() {
            if sink.is_full() {
                self.wait_for_place(args, sink)?;
                deadline = Deadline::from(args.timeout);
                continue;
            }
            let next = match (self.reader.try_next_item(), sink.commands.is_some()) {
                (Ok(None), false) => {
                    sink.flush()?;
                    self.reader.next_item(deadline)
                }
                (Ok(None), true) if deadline.has_passed() => return Ok(false),
                (Ok(None), true) => {
                    sink.flush()?;
                    sink.wait_for(&self.reader, deadline)?;
                    continue;
                }
                (Ok(Some(item)), _) => Ok(item),
                (Err(error), _) => Err(error),
            };
            match next {
                Ok(item) => {
                    let is_text = matches!(item, Item::Line(_));
                    if let (Item::Message(_) | Item::Burst(_), Some(left)) = (&item, &mut *left) {
                        *left -= 1;
                    }
                    sink.take(&item)?;
                    if is_text {
                        self.stop_behind(args, *left);
                    }
                    deadline = Deadline::from(args.timeout);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::Closed => break,
                    ErrorKind::TimedOut => return Ok(false),
                    _ => {
                        sink.flush()?;
                        return Err(failure(error));
                    }
                },
            }
        }
        Ok(true)
    }

    /// Sees to it that nothing is read behind the last message that is wanted: any may turn out to
    /// be the last that a command could be run for. To a reader, lines count as well.
    fn stop_behind(&mut self, args: &RecvArgs, left: Option<u64>) {
        let items = if args.exec.is_empty() { left } else { Some(1) };
        if let Some(items) = items {
            self.reader.set_exact(items);
        }
    }

    /// What has begun and was not finished is told of, too.
    fn give_out_rest(&mut self, sink: &mut Sink) -> Result<(), Failure> {
        self.reader.finish().map_err(during("receiving"))?;
        while let Ok(Some(item)) = self.reader.try_next_item() {
            sink.take(&item)?;
        }
        sink.flush()
    }

    /// Waits for the commands that run; other receivers may have their turn from now on. It is not
    /// taken again, for whoever has it may keep it for long.
    fn finish_commands(&self, sink: &mut Sink) -> Result<(), Failure> {
        let Some(commands) = sink.commands.as_mut().filter(|commands| commands.is_busy()) else {
            return Ok(());
        };
        let given = self.turn_to_give().map_or(Ok(()), Turn::give);
        given.and(commands.finish(&sink.progress))
    }

    /// Waits until another command can be started; other receivers may have their turn meanwhile.
    fn wait_for_place(&self, args: &RecvArgs, sink: &mut Sink) -> Result<(), Failure> {
        let Some(commands) = &mut sink.commands else { return Ok(()) };
        let turn = self.turn_to_give();
        turn.map_or(Ok(()), Turn::give)?;
        commands.wait_for_place(&sink.progress)?;
        turn.map_or(Ok(()), |turn| commands.take(turn, args.timeout, &sink.progress))
    }

    /// The turn, if others may have it: what has begun here must go on here.
    fn turn_to_give(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|_| self.reader.is_empty())
    }

    fn leave(self) -> Result<Option<Rest>, Failure> {
        self.turn.map_or(Ok(None), |turn| turn.leave(self.reader))
    }
}

/// Why receiving ends before the end.
fn failure(error: pipework::Error) -> Failure {
    match error.kind() {
        ErrorKind::Corrupt => Failure::new(form::NO_MESSAGE),
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
        Location::Path(path) => location::led_to(&path)?,
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
    /// Those of `--exec`; None: items are written out.
    commands: Option<Commands>,
    out: Vec<u8>,
    stdout: Stream,
    progress: Progress,
    torn: u64,
    zstd: bool,
    mixed: bool,
    line: OpenLine,
    /// A line was cut.
    cut: bool,
}

impl Sink {
    fn new(args: &RecvArgs, quiet: bool) -> Result<Self, Failure> {
        let stdout = streams::stdout()?;
        // A person reads better with the messages on lines of their own.
        let lines = args.lines || stdout.is_terminal();
        let default = if lines { Form::Lines } else { Form::Raw };
        Ok(Self {
            form: Form::of(&args.form, default),
            commands: if args.exec.is_empty() { None } else { Some(Commands::new(args)?) },
            out: Vec::new(),
            stdout,
            progress: Progress::new("received", quiet),
            torn: 0,
            zstd: args.limits.has_zstd(),
            mixed: args.mixed,
            line: OpenLine::default(),
            cut: false,
        })
    }

    fn take(&mut self, item: &Item<'_>) -> Result<(), Failure> {
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
        if self.out.len() >= BLOCK { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, item: &Item<'_>) {
        if self.form.append(&mut self.out, item, None, &mut self.line) && !mem::replace(&mut self.cut, true) {
            self.progress.warn(form::CUT);
        }
    }

    /// Starts the command of `--exec`.
    fn execute(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        // Lines that came before the message are to be seen before what the command prints.
        self.flush()?;
        let progress = &self.progress;
        self.commands.as_mut().map_or(Ok(()), |commands| commands.start(item, progress))
    }

    /// Waits until the reader may have something, and looks after the commands meanwhile.
    fn wait_for(&mut self, reader: &Reader, deadline: Deadline) -> Result<(), Failure> {
        let progress = &self.progress;
        self.commands.as_mut().map_or(Ok(()), |commands| commands.wait(Some(reader), deadline, progress))
    }

    /// No more messages are to be taken.
    fn is_stopped(&self) -> bool {
        self.commands.as_ref().is_some_and(Commands::is_stopped)
    }

    /// No more messages can be taken now.
    fn is_full(&self) -> bool {
        self.commands.as_ref().is_some_and(Commands::is_full)
    }

    fn hold_signals(&self) {
        if let Some(commands) = &self.commands {
            commands.hold();
        }
    }

    fn release_signals(&self) {
        if let Some(commands) = &self.commands {
            commands.release();
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let outcome = self.stdout.write_all(&self.out);
        self.out.clear();
        outcome.map_err(Failure::stdout)
    }

    fn finish(mut self) -> Result<u8, Failure> {
        self.line.finish(self.form, &mut self.out);
        self.flush()?;
        self.progress.finish();
        match self.commands {
            Some(commands) if commands.failed() > 0 => {
                Err(Failure::new(format!("{} of the commands failed", commands.failed())))
            }
            Some(commands) if commands.is_stopped() => Ok(commands.status()),
            _ if self.torn > 0 || self.cut => Ok(DAMAGE),
            _ => Ok(0),
        }
    }
}
