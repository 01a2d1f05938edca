//! `pipework recv`: messages from a FIFO or standard input, written out or given to commands.
//!
//! What has been received is written before the next wait, so nothing lies in a buffer while the pipe
//! is silent. With `--count` nothing is read from the pipe behind the last message asked for.

use crate::args::{ReadingArgs, RecvArgs};
use crate::exec;
use crate::failure::{DAMAGE, Failure, at, during, no_pipe};
use crate::form::{Form, Parts};
use crate::place::{self, Place};
use crate::progress::Progress;
use crate::streams::{self, Stream};
use pipework::atomic::{Item, Options, Reader, Zstd, create_fifo};
use pipework::{Deadline, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Bytes of output that are gathered before they are written.
const BLOCK: usize = 64 << 10;

/// Runs `pipework recv`.
pub(crate) fn recv(args: &RecvArgs, quiet: bool) -> Result<u8, Failure> {
    if let Some(name) = args.exec.first() {
        exec::find(name)?;
    }
    // Before anything is taken out of the pipe it is known where to put it.
    let mut sink = Sink::new(args, quiet)?;
    let mut reader = open(args)?;
    if reader.has_rival() {
        sink.progress.warn("somebody else reads from the same FIFO: each gets pieces, and loses messages");
    }
    // Any message may turn out to be the last that is wanted, or that a command could be run for.
    reader.set_exact(args.count.is_some() || !args.exec.is_empty());
    let mut left = args.count;
    while left != Some(0) {
        let next = match reader.try_next_item() {
            Ok(None) => {
                sink.flush()?;
                reader.next_item(Deadline::from(args.timeout))
            }
            Ok(Some(item)) => Ok(item),
            Err(error) => Err(error),
        };
        match next {
            Ok(item) => {
                if let (Item::Message(_) | Item::Burst(_), Some(left)) = (&item, &mut left) {
                    *left -= 1;
                }
                sink.take(&item)?;
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
    sink.finish()
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
    Ok(options)
}

fn open(args: &RecvArgs) -> Result<Reader, Failure> {
    let options = options(&args.limits)?.mixed(args.mixed);
    let Some(path) = &args.from else {
        streams::stdin()?;
        return options.stdin().map_err(|error| {
            Failure::new(format!(
                "standard input brings no messages, {}: pipe a sender into it, as in \
                 `pipework send ... | pipework recv`, or name a FIFO with --from",
                no_pipe(error)
            ))
        });
    };
    let path = match Place::of(path, 0) {
        Place::Path(path) => path,
        Place::Descriptor(number) if args.forever => {
            return Err(Failure::new(format!(
                "{}: --forever opens the FIFO again and again, so it needs its path; descriptor \
                 {number} has none",
                path.display()
            )));
        }
        Place::Descriptor(number) => {
            let refused = |error| Failure::new(format!("{}: {}", path.display(), no_pipe(error)));
            return options.reader(place::inherited(number)?).map_err(refused);
        }
    };
    let path = &*path;
    if args.create {
        create(path)?;
    }
    let opened = if args.forever { options.listen_fifo(path) } else { options.read_fifo(path) };
    let path = path.display();
    opened.map_err(|error| match (error.kind(), error.errno()) {
        (_, Some(libc::ENOENT)) => Failure::new(format!("{path}: no such FIFO; --create makes it")),
        (ErrorKind::Invalid, _) => Failure::new(format!("{path}: it is not a FIFO")),
        _ => during(path)(error),
    })
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
