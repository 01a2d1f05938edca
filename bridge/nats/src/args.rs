//! The options and the help of `pipework-nats`.

use clap::{Args, Parser, Subcommand};
use pipework::defaults;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Carries channels and message pipes over NATS.
#[derive(Parser)]
#[command(name = "pipework nats", bin_name = "pipework nats", version, about = "Carries channels and message pipes from machine to machine over NATS", after_long_help = HELP)]
pub(crate) struct Cli {
    /// The command to run
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
    /// Messages of a pipe go to a subject
    Publish(PublishArgs),
    /// Messages of a subject go into a pipe
    Subscribe(SubscribeArgs),
}

impl Command {
    /// The options that all of them have.
    pub(crate) fn common(&self) -> &CommonArgs {
        match self {
            Command::Expose(args) | Command::Attach(args) | Command::Join(args) => &args.common,
            Command::Publish(args) => &args.common,
            Command::Subscribe(args) => &args.common,
        }
    }
}

/// When to stop, what to report, and the connection.
#[derive(Args)]
pub(crate) struct CommonArgs {
    /// When stopped, how long to wait for work in progress; without it, as long as it takes
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) drain: Option<Duration>,

    /// Serve figures for Prometheus at this address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Options of those that carry calls.
#[derive(Args)]
pub(crate) struct CarryArgs {
    /// The path of the channel, which is made if it is not there
    #[arg(value_name = "CHANNEL")]
    pub(crate) channel: PathBuf,

    /// The subject of its calls
    #[arg(long, short, value_name = "SUBJECT", value_parser = subject)]
    pub(crate) subject: String,

    /// All processes that expose a subject under the name of this group share its calls
    #[arg(long, value_name = "GROUP", default_value = "pipework", value_parser = subject)]
    pub(crate) queue: String,

    /// Calls in progress at the same time, each way; more are refused (in) or wait (out)
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) concurrency: u32,

    /// The largest request, reply or part with its blobs, in bytes (default 256 MiB)
    #[arg(long, value_name = "BYTES", default_value_t = defaults::MAX_MESSAGE)]
    pub(crate) max_message: usize,

    /// How long a call that goes out may take
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// How long the far side of a call may be silent before it is taken for dead
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    pub(crate) silence: Duration,

    /// If workers are attached here, send out only calls that have waited for them this long
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) overflow: Option<Duration>,

    /// While a call is in progress, how long to poll for the next event before sleeping
    #[arg(long, value_name = "SECS", default_value = "0.0002", value_parser = seconds)]
    pub(crate) spin: Duration,

    /// Use a channel of another user; all who may write to it can disturb it
    #[arg(long)]
    pub(crate) any_owner: bool,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The properties of a message pipe.
#[derive(Args)]
pub(crate) struct PipeArgs {
    /// Text may share the pipe with messages
    #[arg(long, short)]
    pub(crate) mixed: bool,

    /// The messages in the pipe are compressed
    #[arg(long, short)]
    pub(crate) zstd: bool,

    /// The largest message, in bytes (default 256 MiB)
    #[arg(long, value_name = "BYTES", default_value_t = defaults::MAX_MESSAGE)]
    pub(crate) max_message: usize,

    /// A file that lets another start go on where this one was killed
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

/// Options of `publish`.
#[derive(Args)]
#[command(after_long_help = PUBLISH_HELP)]
pub(crate) struct PublishArgs {
    /// The FIFO to read from; without it, standard input
    #[arg(value_name = "FIFO")]
    pub(crate) fifo: Option<PathBuf>,

    /// Make the FIFO if it does not exist (only its owner may use it)
    #[arg(long, requires = "fifo")]
    pub(crate) create: bool,

    /// Go on when the last writer has left, and wait for the next one
    #[arg(long, requires = "fifo")]
    pub(crate) forever: bool,

    /// The subject to publish to
    #[arg(long, short, value_name = "SUBJECT", value_parser = subject)]
    pub(crate) subject: String,

    /// The stream that is to keep them and acknowledges each; without it, nothing does
    #[arg(long, value_name = "STREAM")]
    pub(crate) jetstream: Option<String>,

    /// Publish the lines of text, too
    #[arg(long, requires = "mixed")]
    pub(crate) lines: bool,

    /// Messages that may wait to be acknowledged; 1 keeps their order in all cases
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) window: u32,

    #[command(flatten)]
    pub(crate) pipe: PipeArgs,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Options of `subscribe`.
#[derive(Args)]
#[command(after_long_help = SUBSCRIBE_HELP)]
pub(crate) struct SubscribeArgs {
    /// The subject, perhaps with wildcards
    #[arg(long, short, value_name = "SUBJECT", value_parser = pattern)]
    pub(crate) subject: String,

    /// Receive from a stream by this name, under which it keeps the acknowledgements
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub(crate) durable: Option<String>,

    /// The stream, if it is not the one that takes the subject
    #[arg(long, value_name = "STREAM", requires = "durable")]
    pub(crate) jetstream: Option<String>,

    /// The FIFO to write to; without it, standard output
    #[arg(long, value_name = "FIFO")]
    pub(crate) to: Option<PathBuf>,

    /// Make the FIFO if it does not exist (only its owner may use it)
    #[arg(long, requires = "to")]
    pub(crate) create: bool,

    #[command(flatten)]
    pub(crate) pipe: PipeArgs,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
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

    /// The certificate of this client
    #[arg(long, value_name = "FILE", env = "NATS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Its key
    #[arg(long, value_name = "FILE", env = "NATS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The prefix of the inboxes that replies come to (default _INBOX)
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

/// A subject whose words may be * and, at the end, >.
fn pattern(text: &str) -> Result<String, String> {
    let plain = text.strip_suffix(".>").unwrap_or(if text == ">" { "all" } else { text });
    let words: Vec<_> = plain.split('.').map(|word| if word == "*" { "any" } else { word }).collect();
    subject(&words.join(".")).map(|_| text.to_owned())
}

/// The name of a consumer.
fn word(text: &str) -> Result<String, String> {
    match subject(text) {
        Ok(text) if !text.contains(['.', '/', '\\']) => Ok(text),
        _ => Err("one word, without dots and slashes".into()),
    }
}

/// The text of `--help` beside the options.
const HELP: &str = "\
Examples:
  A service on one machine, its callers on another:
    one$     pipework serve /dev/shm/upper -- tr a-z A-Z &
    one$     pipework nats expose /dev/shm/upper --subject upper
    another$ pipework nats attach /dev/shm/upper --subject upper &
    another$ pipework call --wait /dev/shm/upper hello

  Callers and workers on each of several machines; calls that wait for local
  workers for a tenth of a second go elsewhere:
    pipework nats join /dev/shm/upper --subject upper --overflow 0.1

  Any NATS client is a caller:
    nats request upper hello

  Messages of any number of writers on one machine, received on another; none
  is lost when a bridge is killed; one may come twice, and is then named:
    one$ pipework nats publish inbox --create --forever --subject jobs \\
           --jetstream JOBS --journal inbox.journal
    two$ pipework nats subscribe --subject jobs --durable two \\
           --to outbox --create --journal outbox.journal

Secrets:
  They come from files (--creds, --nkey, --tls-key) and from the environment:
  NATS_URL may hold a user and a password, NATS_USER and NATS_PASSWORD do, and
  NATS_TOKEN is a token. None is taken from the command line.

When it is stopped:
  After SIGTERM or SIGINT (Ctrl-C) no more calls are taken, and those in
  progress are finished, for up to --drain; the messages in a pipe are
  published and acknowledged. A second signal ends it at once.

Journals:
  Bytes of a pipe are gone when they were read. With --journal, publish moves
  them into a file in the same step; killed and started again, it goes on there.
  The journal of subscribe says which messages are in the pipe, by number and
  by name, so that none is written twice; if it is killed in the very moment of
  writing one, the next start says that this one may be there twice. A FIFO
  itself ends with the last process that has it open: keep it open in a shell
  (exec 9<> inbox) while bridges come and go.

Exit status:
  0    stopped, and all work in progress was finished; or the writers have left,
       and all is published
  1    failed, or work in progress was cut short
  2    usage
  3    messages were lost on their way here: standard error says so";

const PUBLISH_HELP: &str = "\
Examples:
  Messages of any number of writers, through restarts and kills:
    pipework nats publish inbox --create --forever --subject jobs \\
      --jetstream JOBS --journal inbox.journal

More: pipework nats --help";

const SUBSCRIBE_HELP: &str = "\
Examples:
  All that the stream has and gets, through restarts and kills:
    pipework nats subscribe --subject jobs --durable two \\
      --to outbox --create --journal outbox.journal

One subscribe at a time may have a durable name: the pieces of a message come
to one of them only. Another one does not start.

More: pipework nats --help";

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
    fn subject_accepts_only_valid_words() {
        assert_eq!(subject("a.b-c.d"), Ok("a.b-c.d".into()));
        for wrong in ["", ".", "a.", "a b", "a.*", ">", "a..b", "a\r\nPUB x 0"] {
            assert!(subject(wrong).is_err(), "{wrong:?}");
        }
        for right in [">", "a.>", "*.b", "a.*.>"] {
            assert_eq!(pattern(right), Ok(right.into()));
        }
        for wrong in ["a.>.b", "a*", "", ".>", "a. >", "a.>>"] {
            assert!(pattern(wrong).is_err(), "{wrong:?}");
        }
        assert!(word("a.b").is_err() && word("a/b").is_err() && word("*").is_err() && word("a-b").is_ok());
    }
}
