//! The options and the help of `pipework serve`.

use crate::args::{bytes, number, seconds};
use clap::{Args, ValueHint};
use pipework::reqrep;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pipework serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The path of the channel, by which callers find it; it is made if it does not exist
    #[arg(value_name = "CHANNEL", value_hint = ValueHint::FilePath)]
    pub(crate) channel: PathBuf,

    /// The command and its arguments, after --
    #[arg(value_names = ["CMD", "ARGS"], last = true, required = true, num_args = 1.., value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,

    /// The command stays, and answers each line of its input with one line
    #[arg(long, short, group = "framing")]
    pub(crate) lines: bool,

    /// The same with NUL-terminated records
    #[arg(long, short = '0', group = "framing")]
    pub(crate) nul: bool,

    /// The same with messages of any bytes: it receives them, and sends one with --mixed for
    /// each
    #[arg(long, short, group = "framing")]
    pub(crate) messages: bool,

    /// Give each line (or record) of its output to the caller as it comes; where the command stays,
    /// an empty one ends the reply
    #[arg(long, short)]
    pub(crate) stream: bool,

    /// How many commands run at the same time
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = number(1..=4096u16))]
    pub(crate) workers: u16,

    /// Stop a command that has worked on one request for this long; its call fails
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Give a job (`pipework call --queue`) to a command up to N times, 3 at most, before it is set
    /// aside
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number(1..=3u8))]
    pub(crate) attempts: u8,

    /// When stopped (SIGTERM, Ctrl-C), how long to wait for requests in progress; without it, as
    /// long as it takes
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) drain: Option<Duration>,

    /// How long a command that has to stop may take from SIGTERM to SIGKILL
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) grace: Duration,

    /// The largest request or reply to accept, e.g. 64K, 10M or 1G (default 256M)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_message: Option<usize>,

    /// How long a caller may take for a part of a streamed reply
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    pub(crate) part_timeout: Duration,

    #[command(flatten)]
    pub(crate) making: MakingArgs,
}

/// How a channel is made. A channel that exists must have the options given here.
#[derive(Args)]
#[command(next_help_heading = "Options for the channel")]
pub(crate) struct MakingArgs {
    /// Calls that can be in progress at the same time (default 256)
    #[arg(long, value_name = "N", value_parser = number(1..=reqrep::MAX_SLOTS))]
    pub(crate) slots: Option<u32>,

    /// Space for a request in a slot; a longer one goes in a blob (default 4096)
    #[arg(long, value_name = "BYTES", value_parser = short_bytes)]
    pub(crate) request_bytes: Option<u32>,

    /// Space for a reply in a slot; a longer one goes in a blob (default 4096)
    #[arg(long, value_name = "BYTES", value_parser = short_bytes)]
    pub(crate) reply_bytes: Option<u32>,

    /// Callers and servers that can be attached at the same time (default 256)
    #[arg(long, value_name = "N", value_parser = number(2..=reqrep::MAX_MEMBERS))]
    pub(crate) members: Option<u32>,

    /// The permissions of its file, which say who may use it, as chmod takes them (default 600)
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    pub(crate) mode: Option<u32>,

    /// Use a channel of another user; all who may write to it can disturb it
    #[arg(long)]
    pub(crate) any_owner: bool,
}

fn short_bytes(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?).map_err(|_| "at most 1G".into())
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(mode),
        _ => Err("permissions in octal with which you can use it yourself, as in 600 or 660".into()),
    }
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Without --lines, --nul or --messages, each request is given to a process of
its own: the request is its standard input, its output is the reply. Exit
status 0 is an answer. With any other the call fails, and the last line of its
standard error is the reason. The reply is complete when the process has ended
and no other process holds its standard output any more. A call that fails is
over when the process has ended, and so is a job. A process that stays behind
should have outputs of its own: `./daemon > log 2>&1 &`.

Examples:
  A filter becomes a service; called from anywhere on this machine:
    pipework serve /dev/shm/upper -- tr a-z A-Z

  Four at a time, none for longer than a minute:
    pipework serve --workers 4 --timeout 60 /dev/shm/sort -- sort

  Python starts once, and answers line by line:
    pipework serve --lines /dev/shm/length -- \\
      python3 -uc 'import sys; [print(len(x.strip())) for x in sys.stdin]'

  Each line of the output goes to the caller as it comes:
    pipework serve --stream /dev/shm/count -- sh -c 'seq \"$(cat)\"'

  Requests and replies of any bytes, to a command that stays:
    pipework serve --messages /dev/shm/sum -- \\
      pipework recv --exec sh -c 'cksum | pipework send --mixed'

Commands that stay:
  They start with `pipework serve`, one for each of --workers, and are started
  again when they end: at once if one has answered anything since, otherwise
  after 0.1 s, then 0.2 s, up to 10 s. A call whose command dies fails with the
  last line of its standard error; if it had read nothing of the request, the
  next one gets it, once. With --lines and --nul, a newline or NUL at the end
  of a request is its end; one inside is refused.

  One record is answered with one record. With --stream each is a part of the
  reply and keeps the byte that ends it, and an empty record ends the reply. A
  command that prints a record that no request asked for (a greeting, one line
  too many) is started again. A request that it has not read to its end goes to
  the next process, once, and then fails with that reason.

  With --lines and --nul, no such record is taken for an answer. The end of a
  request is sent only when the command has read all bytes before it: output
  until then is no answer. Three cases cannot be detected: a prompt without a
  newline is part of the next answer; in a pipeline (a | b), or if one thread
  reads while another prints, late output may look like the next answer; and so
  may it before an empty request. A command that takes each read(2) for a line,
  and not all up to the newline, cannot be used so. If a command may print
  anything, use --messages, or no option: text between
  messages is passed on to standard error, and is no answer.

  Buffers hold answers back: use python3 -u, sed -u, grep --line-buffered, or
  stdbuf -oL.

A queue of jobs:
    pipework serve --workers 4 /dev/shm/jobs -- ./work &
    pipework call --queue /dev/shm/jobs lint test docs

  With `call --queue` a request is a job. It lies in the channel until a command
  has ended with status 0 for it (one that stays: has answered). Its output is
  dropped. The job stays even if the caller has gone, and without any server.

  A job comes back when its command fails, is killed, or takes longer than
  --timeout, and when this process itself is killed (SIGKILL) or stopped: then
  another worker gets it, of this server or of another one, or the next one
  that is started. So a job may be carried out more than once. After --attempts
  times it is set aside: it becomes a file in the folder CHANNEL.failed, and is
  named on standard error with the reason. To try it once more:
    pipework call --queue CHANNEL < CHANNEL.failed/FILE
  If no file can be made (on a full disk), the job comes back, up to three
  times. Then it is lost: standard error names it, and the exit status is 1.

  The channel holds as many jobs as it has --slots; when it is full,
  `call --queue` waits. Jobs longer than --request-bytes take memory of their
  own. All of it is in memory: a restart of the machine empties the channel. A
  channel in which jobs wait is not removed.

When a caller gives up:
  A process that works for it alone gets SIGTERM, and SIGKILL after --grace. A
  command that stays goes on, and its answer is dropped; only --timeout stops
  it, or the end of the service, which does not wait for such an answer.

When it is stopped:
  After SIGTERM, SIGINT (Ctrl-C), SIGHUP or SIGQUIT no more requests are taken;
  those that wait are for other servers of the channel, or for the next one.
  Requests in progress are finished, for up to --drain; then, or after a second
  signal (a second later or more), commands are stopped and their calls fail.
  Commands that stay get the end of their input first. If this process itself
  is killed (SIGKILL), its commands get SIGTERM, and callers get an error;
  processes that the commands have started get no signal.

  The channel is removed if this process has made it and no other uses it,
  unless jobs wait in it.

An existing channel:
  Several `pipework serve`, and servers in any language, share a channel. It is
  used as it is; options for the channel that say something else are refused.

Standard error of the commands is passed on line by line.

Exit status:
  0    stopped, and all requests in progress were finished
  1    failed, or requests in progress were cut short, or a job is lost
  126, 127  the command cannot be run, or is not there
  2    usage";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_parses_octal_permissions() {
        assert_eq!(mode("660"), Ok(0o660));
        for wrong in ["", "668", "rw", "-1", "7777", "0", "066", "400"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }
}
