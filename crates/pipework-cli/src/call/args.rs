//! The options and the help of `pipework call`.

use crate::args::{bytes, number, seconds};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework call`.
#[derive(Args)]
pub(crate) struct CallArgs {
    /// The path of the channel
    #[arg(value_name = "CHANNEL", value_hint = ValueHint::FilePath)]
    pub(crate) channel: PathBuf,

    /// The requests, each a call; without any, standard input is the request
    #[arg(value_name = "DATA", conflicts_with_all = ["lines", "nul"])]
    pub(crate) data: Vec<OsString>,

    /// Each line of standard input is a request (without its newline), and each reply ends with a
    /// newline
    #[arg(long, short, group = "framing")]
    pub(crate) lines: bool,

    /// Each NUL-terminated record of standard input is a request, and each reply ends with a NUL
    #[arg(long, short = '0', group = "framing")]
    pub(crate) nul: bool,

    /// How many calls are in progress at the same time; replies that wait for their turn to be
    /// printed count
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = number(1..=4096u16))]
    pub(crate) in_flight: u16,

    /// Print replies as they come, not in the order of the requests
    #[arg(long, short)]
    pub(crate) unordered: bool,

    /// Write how each call has ended as one JSON object on a line
    #[arg(long, short)]
    pub(crate) json: bool,

    /// End each reply with a newline if it has none, also that of a single call
    #[arg(long, conflicts_with_all = ["json", "nul"])]
    pub(crate) newline: bool,

    /// Print the parts of a reply as they come; one call at a time
    #[arg(long, short)]
    pub(crate) stream: bool,

    /// Leave each request in the channel as a job, and do not wait for it to be carried out
    #[arg(long, conflicts_with_all = ["stream", "retries"])]
    pub(crate) queue: bool,

    /// Give up a call that has no reply within this time; a command that works for it is stopped
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Wait if the channel does not exist, has no server, or all its places are taken
    #[arg(long, short)]
    pub(crate) wait: bool,

    /// When a server dies with a request, let another one have it, up to N times (at most 3): for
    /// requests that may be carried out twice
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=3u8))]
    pub(crate) retries: u8,

    /// The largest request or reply, e.g. 64K, 10M or 1G (default 256M)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_message: Option<usize>,

    /// Use a channel of another user; all who may write to it can disturb it
    #[arg(long)]
    pub(crate) any_owner: bool,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  One call, its request an argument or standard input:
    pipework call /dev/shm/upper hello
    pipework call /dev/shm/sort < names

  A call for each line, eight at the same time, replies in the same order:
    pipework call --lines -n 8 /dev/shm/length < names

  The results of many calls as JSON:
    pipework call --lines --json -n 8 --unordered /dev/shm/length < names |
      jq 'select(.outcome != \"answered\")'

  Replies on lines of their own, from calls that do not know of each other:
    seq 5 | xargs -n 1 pipework call --newline /dev/shm/upper

  Jobs, which workers take when they can (`pipework serve --help`):
    pipework call --queue --lines /dev/shm/sort < names

  The output of a service, line by line, as it comes:
    pipework call --stream /dev/shm/count 3

  A service that may not be there yet, or may die; ten seconds for all of it:
    pipework call --wait --retries 3 --timeout 10 /dev/shm/upper hello

Output:
  The reply to a single request as it is: not one byte is added, so that any
  file can be a reply. (On a terminal, and with --newline, it ends with a
  newline.) Of several, each reply ends with a newline, which is added if it is
  missing, or with --nul always with a NUL. A call that fails prints nothing
  there: standard error says why it failed, with its number, counted from 1.

  --json writes for each call an object like
    {\"index\":1,\"outcome\":\"answered\",\"seconds\":0.000113,\"data\":\"HELLO\"}
  The outcome is answered, queued, failed, timed_out, worker_died or no_worker;
  those that are not answered have a \"reason\". Bytes that are not UTF-8 come as
  \"data_base64\" or \"reason_base64\". With --stream, each part is an object with
  \"index\" and \"part\" and comes before that of its call, which has no data.

  Calls go on after one that has failed, except after no_worker, which ends
  them: requests that were not sent by then are not sent.

Exit status:
  0    answered; with --queue: all jobs are in the channel
  1    failed: the service has given it up, for instance
  2    usage
  4    the server has died with the request, which may be carried out or not
  5    the channel does not exist or has no server; the request was not taken
  124  no reply came within --timeout; a server may have begun with the request
  141  the reader of standard output has left
  Of many calls, the gravest of these that has occurred: 5 before 4, then 124,
  then 1.";
