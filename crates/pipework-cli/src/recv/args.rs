//! The options and the help of `pipework recv`.

use crate::args::{FormArgs, ReadingArgs, number, seconds};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework recv`.
#[derive(Args)]
pub(crate) struct RecvArgs {
    /// Receive from this FIFO or open pipe (/dev/fd/3, <(command), - for standard input); otherwise
    /// from standard input
    #[arg(long, short, value_name = "FIFO", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,

    /// Make the FIFO if it does not exist (only its owner may use it); one of another user is refused
    #[arg(long, requires = "from")]
    pub(crate) create: bool,

    /// Go on when the last writer has left, and wait for the next one
    #[arg(long, requires = "from")]
    pub(crate) forever: bool,

    /// The pipe carries text besides messages
    #[arg(long, short)]
    pub(crate) mixed: bool,

    #[command(flatten)]
    pub(crate) limits: ReadingArgs,

    /// End each message with a newline
    #[arg(long, short, group = "form")]
    pub(crate) lines: bool,

    #[command(flatten)]
    pub(crate) form: FormArgs,

    /// Run a command for each message, with the message on its standard input; must be the last
    /// option
    #[arg(
        long,
        value_names = ["CMD", "ARGS"],
        num_args = 1..,
        allow_hyphen_values = true,
        group = "form",
        value_hint = ValueHint::CommandName
    )]
    pub(crate) exec: Vec<OsString>,

    /// Run at most this many commands of --exec at a time
    #[arg(long, short = 'P', value_name = "N", default_value = "1", value_parser = number(1usize..), requires = "exec")]
    pub(crate) jobs: usize,

    /// Stop after this many messages, leaving the bytes behind them in the pipe
    #[arg(long, short = 'n', value_name = "N", value_parser = number(1u64..))]
    pub(crate) count: Option<u64>,

    /// Give up when no message (or line of text) is complete within this time
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  Every message on a line of its own:
    pipework send one two three | pipework recv --lines

  A FIFO made for the purpose, read until it is stopped:
    pipework recv --from inbox --create --forever --json

  One message, or status 124 if none is complete after five seconds:
    pipework recv --from inbox --count 1 --timeout 5

  A worker in a shell; any number of them share the short jobs of one FIFO:
    while job=$(pipework recv --from jobs --count 1) && [ \"$job\" ]; do
      work \"$job\"
    done

  A command for each message:
    pipework recv --from inbox \\
      --exec sh -c 'echo \"$PIPEWORK_PID sent $(wc -c) bytes\"'

  The same for four messages at a time, until it is stopped:
    pipework recv --from inbox --create --forever --jobs 4 --exec ./work

Receivers of one FIFO:
  One reads at a time; others wait for their turn, between whole messages.
  While the limit of --exec commands is reached, others read. The bytes behind
  the last message of --count stay in the FIFO. If no other process has it
  open, a process stays behind that keeps it until it has a reader again or the
  FIFO is removed.

  Any number of workers can share the messages of up to 4,000 bytes of any
  number of senders. The parts of longer ones, of senders that send at the same
  time, lie between each other: a receiver that leaves after one message has
  then read parts of another, which is lost. It reports that, with status 3, and
  the loop above ends without doing the job that it got. For such jobs use one
  receiver with --jobs, or the queue of `pipework serve --attempts`.

When it is stopped:
  SIGTERM, SIGINT (Ctrl-C), SIGHUP and SIGQUIT may come at any time. The rest
  of a message that has begun to come is still taken, for up to five seconds,
  all messages read are delivered, and everything else stays in the FIFO. It
  reads no more than standard output is sure to take; an output that takes
  nothing is given up after five seconds, and standard error counts the
  messages that it has not got. Then it ends by that signal. A signal that
  comes when --count messages were delivered changes nothing: the status is 0.

  A receiver that is killed (SIGKILL) leaves no such process behind, and its
  current message is lost: a script that keeps the FIFO open (`exec 9<> inbox`)
  loses no more than that. If no message may be lost with its worker, use the
  queue of `pipework serve --attempts`.

Forms:
  Messages are written out as they are, nothing between them (on a terminal
  each ends with a newline); --lines, --nul and --json mark them off. In
  mixed mode text lines are written out too, in the order of arrival.

  --json writes objects like
    {\"type\":\"message\",\"pid\":7,\"writer\":\"7:9\",\"parts\":1,\"data\":\"hello\"}
  Data that is not UTF-8 comes as \"data_base64\". A \"burst\" has only data,
  and so has a \"line\", without its end. One that is longer than --max-message
  comes in pieces: as objects, of which all but the first are \"continued\", and
  otherwise as the line that it was, unless a message comes between them. The
  exit status reports a line that is cut so. A message that is lost comes as
    {\"type\":\"torn\",\"writer\":\"7:9\",\"parts\":1,\"bytes\":4,\"reason\":\"...\"}

  --exec gives the message to the command as its standard input, an unnamed
  file. PIPEWORK_TYPE (message or burst), PIPEWORK_PID, PIPEWORK_WRITER and
  PIPEWORK_PARTS are in its environment. A message whose command fails is
  named on standard error. After a signal to stop, the commands that run are
  waited for, until the signal comes again (Ctrl-C and SIGQUIT of a terminal
  reach the commands as well).

  With --from, --count or --exec nothing is read too early: the command looks
  at the bytes in the pipe before it reads them. Text with --mixed and --exec
  takes some 0.1 s a megabyte then.

Exit status:
  0    the senders have left (perhaps before the first message), or --count
       messages have come
  1    failed, or a command of --exec did, or could not be started for a
       message: standard error names the message
  126, 127  the command of --exec cannot be run, or is not there; then no
       message was taken
  2    usage
  3    damaged messages were reported: on standard error, or as objects; or a
       line was cut
  6    the senders have left, and fewer messages than --count have come
  124  no message or line was complete within --timeout
  141  the reader of standard output has left
  143  stopped by SIGTERM (130 for Ctrl-C, 129 SIGHUP, 131 SIGQUIT)";
