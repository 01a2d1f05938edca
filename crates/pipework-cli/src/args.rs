//! Every option of the command, once.
//!
//! `--help`, the shell completions and the man pages are all made from these definitions, so they cannot disagree. What is
//! written here is what users read: plain sentences, and an example for each thing that one would want to do.

mod help;

use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Sends and receives whole messages through pipes and FIFOs.
#[derive(Parser)]
#[command(
    name = "pipework",
    version,
    about = "Whole messages of any size through pipes and FIFOs, from many writers at once",
    long_about = "Sends and receives whole messages of any size through ordinary pipes and FIFOs. Any number of processes may write \
                  to one pipe: a message is never torn, mixed with another, or lost in silence. In mixed mode the same pipe also \
                  carries ordinary text, so that a program may print while it sends.",
    after_long_help = help::TOP,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print no progress and no summary on a terminal
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// The subcommands, one file each.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send messages to a FIFO or to standard output
    #[command(after_long_help = help::SEND)]
    Send(SendArgs),
    /// Receive messages from a FIFO or from standard input
    #[command(after_long_help = help::RECV)]
    Recv(RecvArgs),
    /// Run commands, printing their text line by line and taking their messages
    #[command(after_long_help = help::RUN)]
    Run(RunArgs),
    /// Show it at work: many processes, a real file, every record and every call checked
    #[command(after_long_help = help::DEMO)]
    Demo(DemoArgs),
    /// Print the completions of a shell
    #[command(after_long_help = help::COMPLETIONS)]
    Completions {
        /// The shell to print them for
        shell: clap_complete::Shell,
    },
    /// Print the man pages, or write them into a folder
    #[command(after_long_help = help::MAN)]
    Man {
        /// The folder for the pages, which is made if need be; without it they are printed
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

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

    /// Send to this FIFO, waiting until somebody reads from it
    #[arg(long, short, value_name = "FIFO", value_hint = ValueHint::FilePath)]
    pub(crate) to: Option<PathBuf>,

    /// Give up when no reader comes, or a message cannot be sent whole, within this time
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

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
        value_parser = clap::value_parser!(i32).range(-131_072..=22)
    )]
    pub(crate) zstd: Option<i32>,

    /// Compress with this dictionary (both ends must have the same)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) dictionary: Option<PathBuf>,
}

/// Options of `pipework recv`.
#[derive(Args)]
pub(crate) struct RecvArgs {
    /// Receive from this FIFO; otherwise from standard input
    #[arg(long, short, value_name = "FIFO", value_hint = ValueHint::FilePath)]
    pub(crate) from: Option<PathBuf>,

    /// Make the FIFO if it does not exist (only its owner may use it)
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

    /// Run a command for each message, with the message on its standard input; must be the last option
    #[arg(
        long,
        value_names = ["CMD", "ARGS"],
        num_args = 1..,
        allow_hyphen_values = true,
        group = "form",
        value_hint = ValueHint::CommandName
    )]
    pub(crate) exec: Vec<OsString>,

    /// Stop after this many messages, leaving in the pipe what comes behind them
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Give up when no message (or line of text) is complete within this time
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// Options of `pipework run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Put the name of its command before each line of text
    #[arg(long, short)]
    pub(crate) tag: bool,

    /// Where messages go: a file, fd:N (an open descriptor) or exec:CMD (a shell command for each message)
    #[arg(long, short, value_name = "FILE|fd:N|exec:CMD", value_parser = destination)]
    pub(crate) messages: Option<Destination>,

    #[command(flatten)]
    pub(crate) form: FormArgs,

    /// Run this line with the shell (may be given many times)
    #[arg(long, short, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) shell: Vec<OsString>,

    /// What stands between two commands
    #[arg(long, value_name = "WORD", default_value = ":::")]
    pub(crate) separator: OsString,

    #[command(flatten)]
    pub(crate) limits: ReadingArgs,

    /// The command and its arguments; further commands follow after :::
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How a receiver understands and limits messages.
#[derive(Args)]
pub(crate) struct ReadingArgs {
    /// Messages are compressed
    #[arg(long, short)]
    pub(crate) zstd: bool,

    /// Messages are compressed with this dictionary
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) dictionary: Option<PathBuf>,

    /// The largest message to accept, e.g. 64K, 10M or 1G (default 256M); a larger one is reported as damage
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_message: Option<usize>,
}

/// How messages are written out.
#[derive(Args)]
pub(crate) struct FormArgs {
    /// End each message (and in mixed mode each line) with a NUL byte
    #[arg(long, short = '0', group = "form")]
    pub(crate) nul: bool,

    /// Write each message (and in mixed mode each line) as one JSON object on a line
    #[arg(long, short, group = "form")]
    pub(crate) json: bool,
}

/// Options of `pipework demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// The file whose lines are sent; without it, text found on this machine
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// How many processes write at once
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) writers: u8,

    /// Take less text, to be done in about a second
    #[arg(long)]
    pub(crate) quick: bool,
}

/// The first argument that makes this process a writer of the demo.
///
/// It is no subcommand, so that it appears in no help, completion or page.
pub(crate) const DEMO_WRITER: &str = "demo-writer";

/// What one writer process of the demo is told.
#[derive(Parser)]
pub(crate) struct DemoWriterArgs {
    /// Its number among the writers.
    #[arg(long)]
    pub(crate) number: u32,
    /// Where its share of the text starts, in bytes.
    #[arg(long)]
    pub(crate) start: u64,
    /// Length of its share, in bytes.
    #[arg(long)]
    pub(crate) len: usize,
    /// Index of its first record.
    #[arg(long)]
    pub(crate) first: u64,
    /// Write the bytes only, as to any pipe.
    #[arg(long)]
    pub(crate) bare: bool,
    /// Compress, at this level.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) zstd: Option<i32>,
}

/// Where `pipework run` puts messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Destination {
    /// A file, made or emptied first.
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

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "a number of seconds, as in 5 or 0.25".to_string())?;
    Duration::try_from_secs_f64(number).map_err(|_| "seconds cannot be negative or without end".into())
}

fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("a number of bytes, as in 4096, 64K, 10M or 1G".into()),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&number| number > 0)
        .ok_or_else(|| "a number of bytes, as in 4096, 64K, 10M or 1G".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        assert_eq!(bytes("1G"), Ok(1 << 30));
        for wrong in ["", "0", "K", "-1", "1.5M", "10MB", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "inf", "nan", "1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn destinations() {
        assert_eq!(destination("fd:3"), Ok(Destination::Descriptor(3)));
        assert_eq!(destination("exec:jq .id"), Ok(Destination::Command("jq .id".into())));
        assert_eq!(destination("log"), Ok(Destination::File("log".into())));
        for wrong in ["fd:", "fd:-1", "fd:x", "exec:"] {
            assert!(destination(wrong).is_err(), "{wrong}");
        }
    }
}

/// The first argument that makes this process a client or a worker of the demo; no subcommand, for the same reason.
pub(crate) const DEMO_PEER: &str = "demo-peer";

/// What one client or worker process of the demo is told.
#[derive(Parser)]
pub(crate) struct DemoPeerArgs {
    /// The segment.
    #[arg(long)]
    pub(crate) segment: PathBuf,
    /// Where a client's share of the text starts, in bytes.
    #[arg(long, default_value_t = 0)]
    pub(crate) start: u64,
    /// Length of its share, in bytes; without it, this is a worker.
    #[arg(long)]
    pub(crate) len: Option<usize>,
    /// How often its calls go to another worker.
    #[arg(long, default_value_t = 0)]
    pub(crate) redeliveries: u8,
    /// Makes a worker die when so many calls are answered.
    #[arg(long)]
    pub(crate) dies_after: Option<u64>,
}
