//! The options and the help of `pipework run`.

use crate::args::{FormArgs, ReadingArgs, seconds};
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Put the name of its command before each line of text
    #[arg(long, short)]
    pub(crate) tag: bool,

    /// How to treat the commands' standard error, which is not touched by default
    #[arg(long, value_name = "WHAT")]
    pub(crate) stderr: Option<StderrTo>,

    /// The target of messages: a file, which is emptied first (a FIFO is waited for), fd:N (an open
    /// descriptor), or exec:CMD (a shell command for each message)
    #[arg(long, short, value_name = "FILE|fd:N|exec:CMD", value_parser = destination)]
    pub(crate) messages: Option<Destination>,

    /// Add messages to the end of the file of --messages instead of emptying it
    #[arg(long, requires = "messages")]
    pub(crate) append: bool,

    /// Take bursts for messages, too; otherwise bytes between 0x0E and 0x0F are text
    #[arg(long)]
    pub(crate) bursts: bool,

    #[command(flatten)]
    pub(crate) form: FormArgs,

    /// Run this line with the shell (may be given many times)
    #[arg(long, short, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) shell: Vec<OsString>,

    /// The separator between two commands
    #[arg(long, value_name = "WORD", default_value = ":::")]
    pub(crate) separator: OsString,

    /// Run the commands once for each line of this file (- for standard input). The line takes the
    /// place of {} in the command, or comes last, as one argument
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) arg_file: Option<PathBuf>,

    /// Arguments in the file end with a NUL byte, as `find -print0` prints it
    #[arg(long, requires = "arg_file")]
    pub(crate) arg_nul: bool,

    /// Run at most N commands at a time, 0 for all at once; the default is all at once, and with
    /// --arg-file as many as there are CPUs
    #[arg(long, short = 'P', value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// Print in the order of the commands: the output of one is read when those before it have ended.
    /// Until then it waits when its pipe is full (64 KiB), and its --timeout goes on
    #[arg(long, short)]
    pub(crate) keep_order: bool,

    /// Write an object for each command that has ended to this file, which is emptied first: its
    /// place among the commands, when it was started, how long it ran, its status and its signal
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) joblog: Option<PathBuf>,

    /// When a command fails, stop the others and start no more
    #[arg(long)]
    pub(crate) fail_fast: bool,

    /// Stop a command that takes longer than this; its status is then 124
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,

    /// How long a command that has to stop may take until SIGKILL: after --timeout, --fail-fast, or
    /// a signal that another process has sent to this one
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) grace: Duration,

    #[command(flatten)]
    pub(crate) limits: ReadingArgs,

    /// The command and its arguments; further commands follow after :::
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// The use of standard error.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum StderrTo {
    /// Whole lines there, behind the name of their command
    Tagged,
    /// Part of standard output, in the order in which it was printed
    Merged,
}

/// The target of messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Destination {
    /// A file, made or emptied first, or one of the names of a descriptor.
    File(PathBuf),
    /// A descriptor that is open already.
    Descriptor(i32),
    /// A shell command, run for each message.
    Command(OsString),
}

fn destination(text: &str) -> Result<Destination, String> {
    if let Some(number) = text.strip_prefix("fd:") {
        return match number.parse() {
            Ok(number) if number >= 0 => Ok(Destination::Descriptor(number)),
            _ => Err("after fd: comes the number of an open descriptor, as in fd:3".into()),
        };
    }
    match text.strip_prefix("exec:") {
        Some("") => Err("after exec: comes a shell command, as in exec:'cat >> log'".into()),
        Some(line) => Ok(Destination::Command(line.into())),
        None => Ok(Destination::File(OsStr::new(text).into())),
    }
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Each command has a pipe of its own as standard output. A single command keeps
standard input, many get an empty one. Lines are printed whole, never mixed
with each other. Of many commands, each that fails is named.

With --tag a command is named by its file name; if several have the same
one, by all its words; with --arg-file by its argument (as GNU parallel does).
Unlike there, ::: separates commands, and does not introduce arguments:
`printf '%s\\n' a b | pipework run -a - gzip` runs `gzip a` and `gzip b`.
In a line of --shell, write {} without quotes, for all arguments; for arithmetic
give it a name first: --shell 'n={}; echo $((n * n))'.

Without --messages, messages go to standard output with a newline behind them.
--nul and --json choose another form for them, and for lines that share the
destination with them. Objects name their command, and the end of each command
is one: {\"type\":\"exit\",\"command\":\"make lint\",\"status\":2}. A name that is not
UTF-8 is \"command_base64\". With exec: the message is on the command's standard
input, as with `pipework recv --exec`; it has no other form. A
destination that is standard output by another name (fd:1, /dev/stdout, -) is
the same as none.

A single command is passed through to the byte and as it comes, also a question
whose line does not end; a message behind it begins on a new line. Other lines
are printed when they are whole. One that is longer than --max-message comes in
pieces: behind a tag, between other commands and before a message it is cut,
which is said; objects have {\"continued\":true} from the second piece on. Bursts
are taken out of the text only with --bursts: other programs print their bytes
for other reasons.

With --joblog each command that has ended is a line of JSON in a file, beside
any form of output:
    {\"index\":2,\"command\":\"make lint\",\"start\":1764327010.25,\"seconds\":1.5,
     \"status\":2,\"signal\":null}
(in one line). \"index\" counts the commands from 1 in the order in which they
were started. \"start\" is the time of that in seconds since 1970, and \"seconds\"
how long its process ran. \"status\" is 128 + N if \"signal\" N killed it, and 124
after --timeout. A command that could not be started has 126 or 127.

A message is in memory until it is whole: --max-message bounds that for each
command, so all together may take --jobs times as much, besides what an output
has not taken yet.

A pipe is read until everyone who holds it has left, also processes that the
command left behind, unless it was stopped. A command that has ended before its
--timeout keeps its status; when that time has passed, the pipe is read to the
bytes that it holds then, and closed. When an output fails or its reader leaves,
no more commands are started, the pipes are closed (the commands get SIGPIPE),
and data received for the other output is still written there.
Of a message that finds no space in a file nothing stays there, and --append
begins a new line behind a line that another program has left unfinished.
Ctrl-C (or SIGTERM, SIGHUP, SIGQUIT) is handed on to the commands and to the
processes that they have started, and their last output is printed. A second
one, a second later or more, kills them. So does the time of --grace when
another process has sent the signal, or the terminal has gone; after Ctrl-C a
person decides. An output that takes nothing for 5 seconds after a signal is
given up, and a message says how much is left out. Without a terminal each
command has a process group of its own, and the group is signalled. If this
process itself is killed (SIGKILL), its commands get SIGTERM; processes that
they started do not. A signal that was ignored when this began, as under nohup
or in the background of a script, stays ignored here and in the commands.

Examples:
  Messages and stray prints of a program, told apart (the program sends with
  `pipework send --mixed`, or with the library):
    pipework run --messages messages.log -- ./collect --fast

  Many commands at once, each line whole and marked:
    pipework run --tag make lint ::: make test ::: make docs

  A command for each line of a list, four at a time, none longer than a minute:
    printf '%s\\n' one two three |
      pipework run --tag --jobs 4 --timeout 60 --arg-file - echo fetching {}

  All of it in one log, and an end at the first failure:
    pipework run --tag --stderr merged --fail-fast make lint ::: make test

  Text with tags, and how long each command took:
    pipework run --tag --joblog log make lint ::: make test ::: make docs
    jq -r '\"\\(.seconds) \\(.command)\"' log

  The failed commands, to be tried again:
    seq 3 | pipework run --json -a - --shell 'test {} -gt 1' > ends ||
      jq -r 'select(.type == \"exit\" and .status != 0).command' ends

  Shell lines, their messages as JSON:
    pipework run --json --shell 'echo text; pipework send --mixed data' \\
      --shell 'sleep 1; echo more'

  A command for each message:
    pipework run --messages exec:'jq .id' -- ./collect

Exit status:
  That of the command, or 128 + N if signal N killed it; of many commands the
  highest, with --fail-fast that of the one that failed first.
  124       a command took longer than --timeout
  126, 127  a command could not be started, or was not found
  130       after Ctrl-C (143 after SIGTERM, 129 SIGHUP, 131 SIGQUIT): it ends
            by the signal itself, so that a shell ends its script with Ctrl-C
  If all commands went well:
  1         messages could not be delivered
  141       the reader of standard output has left
  3         damaged messages were reported: on standard error, or as objects;
            or a line was cut";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_parses_descriptors_commands_and_files() {
        assert_eq!(destination("fd:3"), Ok(Destination::Descriptor(3)));
        assert_eq!(destination("exec:jq .id"), Ok(Destination::Command("jq .id".into())));
        assert_eq!(destination("log"), Ok(Destination::File("log".into())));
        for wrong in ["fd:", "fd:-1", "fd:x", "exec:"] {
            assert!(destination(wrong).is_err(), "{wrong}");
        }
    }
}
