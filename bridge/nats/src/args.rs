//! The options and the help of `pipework-nats`.

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Carries channels over NATS.
#[derive(Parser)]
#[command(name = "pipework nats", bin_name = "pipework nats", version, about = "Carries channels from machine to machine over NATS", after_long_help = HELP)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which calls are carried.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Requests from NATS go to the workers of a channel
    Expose(CarryArgs),
    /// Requests of local callers go to workers anywhere
    Attach(CarryArgs),
    /// Both, for a channel that has callers and workers
    Join(CarryArgs),
}

impl Command {
    pub(crate) fn args(&self) -> &CarryArgs {
        match self {
            Command::Expose(args) | Command::Attach(args) | Command::Join(args) => args,
        }
    }
}

/// Options of all of them.
#[derive(Args)]
pub(crate) struct CarryArgs {
    /// The path of the channel, which is made if it is not there
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: PathBuf,

    /// The subject of its calls
    #[arg(long, short, value_name = "SUBJECT", value_parser = subject)]
    pub(crate) subject: String,

    /// Those who expose a subject share its calls by the name of this group
    #[arg(long, value_name = "GROUP", default_value = "pipework", value_parser = subject)]
    pub(crate) queue: String,

    /// Calls in progress at the same time, each way; more are refused (in) or wait (out)
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) concurrency: u32,

    /// The largest request, reply or part, in bytes (default 256 MiB)
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    pub(crate) max_message: usize,

    /// How long a call that goes out may take
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// How long the far side of a call may say nothing before it is taken for dead
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) silence: Duration,

    /// Where there are local workers, send out only what has waited for them this long
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) overflow: Option<Duration>,

    /// When told to stop, how long to wait for calls in progress; without it, as long as it takes
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) drain: Option<Duration>,

    /// Serve figures for Prometheus at this address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Use a channel of another user; all who may write to it can disturb it
    #[arg(long)]
    pub(crate) any_owner: bool,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// The connection.
#[derive(Args)]
#[command(next_help_heading = "Options for the connection")]
pub(crate) struct AccessArgs {
    /// The servers, with commas in between (default: NATS_URL, or nats://127.0.0.1:4222)
    #[arg(long, value_name = "URLS")]
    pub(crate) server: Option<String>,

    /// A file of credentials
    #[arg(long, value_name = "FILE", env = "NATS_CREDS")]
    pub(crate) creds: Option<PathBuf>,

    /// A file with the seed of an NKey
    #[arg(long, value_name = "FILE", env = "NATS_NKEY", conflicts_with = "creds")]
    pub(crate) nkey: Option<PathBuf>,

    /// Refuse a connection without TLS
    #[arg(long)]
    pub(crate) tls: bool,

    /// Certificates to trust, besides those of the system
    #[arg(long, value_name = "FILE", env = "NATS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// A certificate of one's own
    #[arg(long, value_name = "FILE", env = "NATS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Its key
    #[arg(long, value_name = "FILE", env = "NATS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Where the inboxes begin that replies come to (default _INBOX)
    #[arg(long, value_name = "SUBJECT", value_parser = subject)]
    pub(crate) inbox_prefix: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "a number of seconds, as in 5 or 0.25".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|_| "seconds cannot be negative or without end".into())
}

/// A subject without wildcards.
fn subject(text: &str) -> Result<String, String> {
    let is_word = |word: &str| {
        !word.is_empty()
            && !word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>')
    };
    match text.split('.').all(is_word) {
        true => Ok(text.to_owned()),
        false => Err("words with dots in between, without * and >".into()),
    }
}

/// What `--help` says beside the options.
const HELP: &str = "\
Examples:
  A service on one machine, its callers on another:
    one$     pipework serve /dev/shm/upper -- tr a-z A-Z &
    one$     pipework nats expose /dev/shm/upper --subject upper
    another$ pipework nats attach /dev/shm/upper --subject upper &
    another$ pipework call --wait /dev/shm/upper hello

  Callers and workers on each of several machines; what waits for local workers
  for a tenth of a second goes elsewhere:
    pipework nats join /dev/shm/upper --subject upper --overflow 0.1

  Anybody who speaks NATS is a caller:
    nats request upper hello

Secrets:
  They come from files (--creds, --nkey, --tls-key) and from the environment:
  NATS_URL may hold a user and a password, NATS_USER and NATS_PASSWORD do, and
  NATS_TOKEN is a token. None is taken from the command line.

When it is told to stop:
  After SIGTERM or SIGINT (Ctrl-C) no more calls are taken, and those in
  progress are finished, for up to --drain. A second signal ends it at once.

Exit status:
  0    told to stop, and all calls in progress were finished
  1    failed, or calls in progress were cut short
  2    usage";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
        assert!(HELP.lines().all(|line| line.len() < 80));
    }

    #[test]
    fn subjects_have_words() {
        assert_eq!(subject("a.b-c.d"), Ok("a.b-c.d".into()));
        for wrong in ["", ".", "a.", "a b", "a.*", ">", "a..b", "a\r\nPUB x 0"] {
            assert!(subject(wrong).is_err(), "{wrong:?}");
        }
    }
}
