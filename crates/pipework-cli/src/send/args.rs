//! The options and the help of `pipework send`.

use crate::args::{bytes, number, seconds};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework send`.
#[derive(Args)]
pub(crate) struct SendArgs {
    /// The messages; without any, standard input is the message
    #[arg(value_name = "MESSAGE", conflicts_with_all = ["lines", "nul"])]
    pub(crate) messages: Vec<OsString>,

    /// Each line of standard input is a message (without its newline)
    #[arg(long, short, group = "framing")]
    pub(crate) lines: bool,

    /// Each NUL-terminated record of standard input is a message
    #[arg(long, short = '0', group = "framing")]
    pub(crate) nul: bool,

    /// Each argument names a file whose content is a message (- is standard input)
    #[arg(long, short, group = "framing", requires = "messages")]
    pub(crate) files: bool,

    /// Send to this FIFO, waiting until it has a reader, or to this open pipe (/dev/fd/3,
    /// >(command), - for standard output)
    #[arg(long, short, value_name = "FIFO", value_hint = ValueHint::FilePath)]
    pub(crate) to: Option<PathBuf>,

    /// Give up when no reader comes, or a message cannot be sent whole, within this time
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,

    /// The largest message to send, e.g. 64K, 10M or 1G (default 256M, as receivers have it)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_message: Option<usize>,

    /// Mark messages off from the text that shares the pipe (both ends must agree)
    #[arg(long, short)]
    pub(crate) mixed: bool,

    /// Send each message as a burst: one short piece without a writer's name
    #[arg(long, requires = "mixed")]
    pub(crate) burst: bool,

    /// Compress each message (both ends must agree); levels run from -131072 to 22
    #[arg(
        long,
        short,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        allow_negative_numbers = true,
        value_parser = number(-131_072..=22)
    )]
    pub(crate) zstd: Option<i32>,

    /// Compress with this dictionary (both ends must have the same)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) dictionary: Option<PathBuf>,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Messages are sent whole whatever their size, also when other processes send
into the same pipe at the same time. Many short ones share a write, and only
the longest is held in memory. Without --timeout, sending waits for as long as
it takes.

If the reader of a FIFO leaves before it has taken any byte of the first
message, this waits for the next reader. It can tell only if the message is one
part, of up to 4,000 bytes (compressed, 2,000). In all other cases the reader
may have taken something, and the status is 1.

A receiver drops, and reports, what is larger than its --max-message, after it
was sent. So what is larger than 256M is refused here, unless --max-message
says that receivers take more.

Examples:
  A message from an argument:
    pipework send 'hello' | pipework recv

  The whole of standard input, of any size, as one message:
    tar c photos | pipework send --to inbox

  Each line a message, sent as soon as it is there:
    tail -f access.log | pipework send --lines --to inbox

  Each file a message, compressed:
    pipework send --zstd=9 --files *.json | pipework recv --zstd --nul

  Text and messages through one pipe:
    (echo begin; pipework send --mixed data; echo end) |
      pipework recv --mixed --json

Exit status:
  0    sent
  1    failed: the reader has left, for instance
  2    usage
  124  no reader came, or the pipe stayed full, for longer than --timeout";
