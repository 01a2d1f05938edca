//! The options and the help of `pipework tee`.

use crate::args::{FormArgs, ReadingArgs, bytes, seconds};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework tee`.
#[derive(Args)]
pub(crate) struct TeeArgs {
    /// The target of the messages: a file, which is emptied first, or a descriptor open already
    /// (/dev/fd/3, >(command)); with --count, where the counts are, otherwise on standard error
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "count")]
    pub(crate) file: Option<PathBuf>,

    /// Do not empty the file; write behind its content
    #[arg(long, short, requires = "file")]
    pub(crate) append: bool,

    /// The stream carries text besides messages
    #[arg(long, short)]
    pub(crate) mixed: bool,

    /// Write lines of text, too
    #[arg(long, short, requires = "mixed", conflicts_with = "count")]
    pub(crate) text: bool,

    #[command(flatten)]
    pub(crate) limits: ReadingArgs,

    #[command(flatten)]
    pub(crate) form: FormArgs,

    /// Count messages, their bytes and lines of text instead; the counts are written at the end
    #[arg(long, short, conflicts_with = "nul")]
    pub(crate) count: bool,

    /// Write the counts this often, too
    #[arg(long, short, value_name = "SECS", requires = "count", value_parser = interval, allow_negative_numbers = true)]
    pub(crate) interval: Option<Duration>,

    /// How much may wait for a file that takes nothing (its disk is slow or full), e.g. 64K, 10M or
    /// 1G; later messages are passed on and left out of the file
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub(crate) backlog: usize,
}

fn interval(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("seconds above 0, as in 5 or 0.25".into()),
        time => Ok(time),
    }
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  The messages from one program to another, written to a file as well:
    pipework send one two | pipework tee sent.log | pipework recv --lines

  Messages and text as JSON, with their senders:
    (echo begin; pipework send --mixed data) |
      pipework tee --mixed --text --json log.json | pipework recv --mixed

  How many messages pass, every ten seconds and at the end:
    seq 100000 | pipework send --lines | pipework tee --count --interval 10 |
      pipework recv --lines > numbers

  Into a program instead of a file, and not to the next in the pipeline:
    mkfifo ids; jq .id < ids & exec 3> ids
    pipework send '{\"id\":7}' | pipework tee /dev/fd/3 > /dev/null 3>&3
    exec 3>&-

Promises:
  Standard output gets every byte of standard input as it is, before it is
  looked at, and its end as soon as it comes. Trouble with the file changes
  nothing of that: when its disk is full or slow, up to --backlog waits in
  memory, and is tried again every second; then whole messages are left out of
  the file. It is said how many, and the exit status is 1. A FIFO is waited for
  in the same way. Of a message that finds no space nothing stays in the file,
  and --append begins a new line behind a line that was left unfinished.

  A reader at the other end that stands still stops the stream, as in any
  pipeline. No other program should write to the same standard output: pieces
  of the stream end anywhere.

Output:
  Each message with a newline at its end, with --nul a NUL; with --json objects
  as `pipework recv --json` prints them, damage included. Otherwise damage is
  said on standard error. Counts are lines like
    3 messages, 120 bytes, 2 lines of text, 0 damaged
    {\"seconds\":1.5,\"messages\":3,\"bytes\":120,\"lines\":2,\"damaged\":0}

Signals:
  Ctrl-C, SIGTERM, SIGHUP or SIGQUIT: the bytes in the pipe by then are passed
  on and written, then it ends. A second one, a second later or more, ends it at
  once; so does a standard output or a file that takes nothing for 5 seconds. It
  is said how much was not passed on, and how much may be missing from the file.

Exit status:
  0    all was passed on and written
  1    something could not be written, passed on or understood
  2    usage
  3    damaged messages were reported, or a line was cut (see recv --help)
  130  after Ctrl-C (143 after SIGTERM, 129 SIGHUP, 131 SIGQUIT): it ends by
       the signal itself
  141  the reader of standard output has left";
