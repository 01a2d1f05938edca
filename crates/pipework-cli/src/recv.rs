//! `pipework recv`: messages from a FIFO or standard input, written out or given to commands.
//!
//! Received messages are written before the next wait, so nothing lies in a buffer while the pipe
//! is silent. From a FIFO, which others may read as well, it reads only as much as it can deliver:
//! no more than is asked for, and no more than standard output is sure to take.

mod args;
mod commands;
mod sink;

use crate::args::ReadingArgs;
use crate::failure::{Ending, Failure, during, no_pipe};
use crate::fifo::{Rest, Turn};
use crate::form;
use crate::location::{self, Location, no_fifo};
use crate::progress::say;
use crate::streams;
use pipework::atomic::{Item, Options, Reader, Zstd, create_fifo};
use pipework::{Deadline, ErrorKind};
use sink::Sink;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

pub(crate) use args::{HELP, RecvArgs};

/// After a signal to stop: how long the rest of a message that has begun may let nothing come, and
/// how long it may take in all.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// Runs `pipework recv`.
pub(crate) fn recv(args: &RecvArgs, quiet: bool) -> Result<Ending, Failure> {
    // First of all, before a descriptor of our own could have the number of the user's.
    let mut given = match args.from.as_ref().map(|path| Location::of(path, 0)) {
        Some(Location::Descriptor(number)) if !args.forever => Some(location::inherited(number)?),
        _ => None,
    };
    // Before anything is taken out of the pipe it is known where to put it.
    let mut sink = Sink::new(args, quiet)?;
    let mut left = args.count;
    let mut rest: Option<Rest> = None;
    loop {
        let Some(mut source) = Source::open(args, quiet, given.take(), rest, &mut sink)? else {
            // A signal came first.
            return sink.finish(left);
        };
        // Workers of --exec have it open as well while their commands run, and wait for their
        // turns.
        if args.exec.is_empty() && source.reader.has_other_reader() {
            sink.progress
                .warn("another process reads from the same FIFO: each gets pieces, and loses messages");
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
            return sink.finish(left);
        }
    }
}

/// The source of messages.
struct Source {
    reader: Reader,
    /// A FIFO that was opened by its path, from which others may read as well.
    turn: Option<Turn>,
}

impl Source {
    /// Opens it; `given` is the descriptor that was asked for, if any, and `rest` the bytes that
    /// were left in it the last time. None if a signal came first.
    fn open(
        args: &RecvArgs,
        quiet: bool,
        given: Option<OwnedFd>,
        rest: Option<Rest>,
        sink: &mut Sink,
    ) -> Result<Option<Self>, Failure> {
        let source = open(args, quiet, given, rest, sink)?;
        if let Some(Self { turn: Some(turn), .. }) = &source {
            turn.count_earlier_senders();
        }
        Ok(source)
    }

    /// Takes messages until the pipe ends, or `left` has come down to 0, and sees to it that all
    /// that were taken are dealt with.
    fn receive(&mut self, args: &RecvArgs, left: &mut Option<u64>, sink: &mut Sink) -> Result<(), Failure> {
        let outcome = self.take_all(args, left, sink).and_then(|in_time| {
            if sink.is_stopped() {
                self.take_begun(left, sink)?;
            }
            self.give_out_rest(sink)?;
            if in_time { Ok(()) } else { Err(Failure::timeout("no complete message arrived in time")) }
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
        // Items that may be read before it is asked again how many.
        let mut allowed = 0;
        while *left != Some(0) && !sink.is_stopped() {
            if sink.is_full() {
                self.wait_for_place(args, sink)?;
                deadline = Deadline::from(args.timeout);
                continue;
            }
            if allowed == 0 {
                sink.flush()?;
                allowed = self.allow(*left, sink)?;
                continue;
            }
            match self.reader.try_next_item() {
                Ok(None) if deadline.has_passed() => return Ok(false),
                Ok(None) => {
                    sink.flush()?;
                    sink.wait_for(Some(&self.reader), deadline)?;
                }
                Ok(Some(item)) => {
                    if !matches!(item, Item::Torn(_)) {
                        allowed -= 1;
                    }
                    take(&item, left, sink)?;
                    deadline = Deadline::from(args.timeout);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::Closed => break,
                    _ => {
                        sink.flush()?;
                        return Err(failure(error));
                    }
                },
            }
        }
        Ok(true)
    }

    /// Sees to it that nothing is read behind the last item that is wanted, or that surely can be
    /// delivered; returns how many may be read. To a reader, lines count as well.
    fn allow(&mut self, left: Option<u64>, sink: &mut Sink) -> Result<u64, Failure> {
        let most = left.unwrap_or(u64::MAX);
        let items = match &self.turn {
            Some(_) => sink.wait_for_space()?.min(most),
            // Bytes left in a pipe without a name rarely have another reader.
            None if !sink.executes() => most,
            None => 1,
        };
        if items != u64::MAX {
            self.reader.set_exact(items);
        }
        Ok(items)
    }

    /// After a signal to stop: takes the messages that were read, and the rest of one that has
    /// begun to come, for neither can be put back.
    fn take_begun(&mut self, left: &mut Option<u64>, sink: &mut Sink) -> Result<(), Failure> {
        self.reader.set_exact(1);
        let last = Deadline::after(LONGEST);
        let mut until = Deadline::after(PAUSE);
        while !self.reader.is_empty() && *left != Some(0) && !sink.is_hurried() {
            match self.reader.try_next_item() {
                Ok(Some(item)) => take(&item, left, sink)?,
                Ok(None) if until.or_earlier(last).has_passed() => break,
                Ok(None) => {
                    if sink.wait_for(Some(&self.reader), until.or_earlier(last))? {
                        until = Deadline::after(PAUSE);
                    }
                }
                // The error comes again when the rest is given out, if it matters then.
                Err(error) if error.kind() != ErrorKind::Interrupted => break,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// An unfinished message is reported, too.
    fn give_out_rest(&mut self, sink: &mut Sink) -> Result<(), Failure> {
        self.reader.finish().map_err(during("receiving"))?;
        while let Ok(Some(item)) = self.reader.try_next_item() {
            sink.take(&item)?;
        }
        sink.flush()
    }

    /// Waits for the commands that run; other receivers may have their turn from now on. It does
    /// not take the turn again, for another receiver may keep it for long.
    fn finish_commands(&self, sink: &mut Sink) -> Result<(), Failure> {
        if !sink.is_busy() {
            return Ok(());
        }
        let given = self.turn_to_give().map_or(Ok(()), Turn::give);
        given.and(sink.finish_commands())
    }

    /// Waits until another command can be started; other receivers may have their turn meanwhile.
    fn wait_for_place(&self, args: &RecvArgs, sink: &mut Sink) -> Result<(), Failure> {
        let turn = self.turn_to_give();
        turn.map_or(Ok(()), Turn::give)?;
        sink.wait_for_place()?;
        match turn {
            Some(turn) => take_turn(turn, args.timeout, sink, || ()).map(drop),
            None => Ok(()),
        }
    }

    /// The turn, if others may have it: a message that has begun here must go on here.
    fn turn_to_give(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|_| self.reader.is_empty())
    }

    fn leave(self) -> Result<Option<Rest>, Failure> {
        self.turn.map_or(Ok(None), |turn| turn.leave(Some(self.reader)))
    }
}

/// Takes an item, and counts messages.
fn take(item: &Item<'_>, left: &mut Option<u64>, sink: &mut Sink) -> Result<(), Failure> {
    if let (Item::Message(_) | Item::Burst(_), Some(left)) = (item, left) {
        *left -= 1;
    }
    sink.take(item)
}

/// Takes a turn at reading, and looks after commands meanwhile; false if a signal to stop came
/// first. `meanwhile` is called once if it has to wait.
fn take_turn(
    turn: &Turn,
    timeout: Option<Duration>,
    sink: &mut Sink,
    meanwhile: impl FnOnce(),
) -> Result<bool, Failure> {
    sink.hear()?;
    if sink.is_stopped() {
        return Ok(false);
    }
    if turn.try_take()? {
        return Ok(true);
    }
    meanwhile();
    let deadline = Deadline::from(timeout);
    let mut heard = Ok(());
    let taken = turn.take_unless(|| {
        heard = sink.hear();
        heard.is_err() || sink.is_stopped() || deadline.has_passed()
    })?;
    heard?;
    if !taken && !sink.is_stopped() {
        return Err(turn.overdue());
    }
    Ok(taken)
}

/// Why receiving ends before the end.
fn failure(error: pipework::Error) -> Failure {
    match error.kind() {
        ErrorKind::Corrupt => Failure::new(form::NO_MESSAGE),
        _ => during("receiving")(error),
    }
}

/// The options of a receiver.
pub(crate) fn options(limits: &ReadingArgs) -> Result<Options, Failure> {
    let mut options = Options::new();
    if let Some(path) = &limits.dictionary {
        let zstd = Zstd::new().with_dictionary_file(path).map_err(during(path.display()))?;
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

/// The source that was asked for; None if a signal to stop came first.
fn open(
    args: &RecvArgs,
    quiet: bool,
    given: Option<OwnedFd>,
    mut rest: Option<Rest>,
    sink: &mut Sink,
) -> Result<Option<Source>, Failure> {
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
        return Ok(Some(Source { reader, turn: None }));
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
        Location::Descriptor(_) => {
            let refused = |error| Failure::new(format!("{}: {}", path.display(), no_pipe(error)));
            let given = given.ok_or_else(|| Failure::new(format!("{}: it is closed", path.display())))?;
            let reader = options.reader(given).map_err(refused)?;
            return Ok(Some(Source { reader, turn: None }));
        }
    };
    if args.create {
        create(&path)?;
    }
    loop {
        let turn = Turn::at(&path, rest.take());
        let taken = match &turn {
            Some(turn) => begin_turn(turn, args, quiet, sink),
            None => Ok(true),
        };
        let opened = match taken {
            Ok(true) if args.forever => options.listen_fifo(&path).map_err(|error| refused(&path, error)),
            Ok(true) => options.read_fifo(&path).map_err(|error| refused(&path, error)),
            // Bytes in the FIFO stay there for others.
            outcome => {
                leave(turn, None)?;
                return outcome.map(|_| None);
            }
        };
        match (opened, turn) {
            // Another one was put in its place meanwhile.
            (Ok(reader), Some(turn)) if !turn.is_at_its_path() => leave(Some(turn), Some(reader))?,
            (Ok(reader), turn) => return Ok(Some(Source { reader, turn })),
            (Err(failure), turn) => {
                leave(turn, None)?;
                return Err(failure);
            }
        }
    }
}

/// Takes the turn for the first time.
fn begin_turn(turn: &Turn, args: &RecvArgs, quiet: bool, sink: &mut Sink) -> Result<bool, Failure> {
    if args.create {
        turn.refuse_other_owner()?;
    }
    take_turn(turn, args.timeout, sink, || {
        if let Some(path) = args.from.as_ref().filter(|_| !quiet && streams::stderr().is_terminal()) {
            say(format!("{}: waiting for another receiver to leave", path.display()));
        }
    })
}

/// Leaves a FIFO for good.
fn leave(turn: Option<Turn>, reader: Option<Reader>) -> Result<(), Failure> {
    let rest = turn.map_or(Ok(None), |turn| turn.leave(reader))?;
    rest.map_or(Ok(()), Rest::keep)
}

/// Why a FIFO cannot be opened.
fn refused(path: &Path, error: pipework::Error) -> Failure {
    let name = path.display();
    match (error.kind(), error.errno()) {
        (_, Some(libc::ENOENT)) => Failure::new(format!("{name}: no such FIFO; --create makes it")),
        (ErrorKind::Invalid, _) => Failure::new(format!("{name}: {}", no_fifo(path))),
        _ => during(name)(error),
    }
}

/// Makes the FIFO unless it exists. Opening it finds out if the path has another kind of file.
fn create(path: &Path) -> Result<(), Failure> {
    match create_fifo(path) {
        Err(error) if error.errno() == Some(libc::EEXIST) => Ok(()),
        outcome => outcome.map_err(during(path.display())),
    }
}
