//! Every option of the command, once: here what subcommands share, in `args/` what is theirs.
//!
//! `--help`, the shell completions and the man pages are all made from these definitions, so they
//! cannot disagree. What is written here is what users read: plain sentences, and an example for each
//! thing that one would want to do. Lines of help are at most 79 characters long and examples are
//! indented, for `man.rs` keeps both as they are: "Words:" alone on a line becomes a section.

mod demo;
mod recv;
mod run;
mod send;

pub(crate) use demo::{DEMO_PEER, DEMO_WRITER, DemoArgs, DemoPeerArgs, DemoWriterArgs};
pub(crate) use recv::RecvArgs;
pub(crate) use run::{Destination, RunArgs};
pub(crate) use send::SendArgs;

use clap::{Args, Parser, Subcommand, ValueHint};
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
    after_long_help = TOP
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
    #[command(after_long_help = send::HELP)]
    Send(SendArgs),
    /// Receive messages from a FIFO or from standard input
    #[command(after_long_help = recv::HELP)]
    Recv(RecvArgs),
    /// Run commands, printing their text line by line and taking their messages
    #[command(after_long_help = run::HELP)]
    Run(RunArgs),
    /// Show it at work: many processes, a real file, every record and every call checked
    #[command(after_long_help = demo::HELP)]
    Demo(DemoArgs),
    /// Print the completions of a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell to print them for
        shell: clap_complete::Shell,
    },
    /// Print the man pages, or write them into a folder
    #[command(after_long_help = MAN)]
    Man {
        /// The folder for the pages, which is made if need be; without it they are printed
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
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

    /// Where text shares the pipe: how long the rest of a part that has begun is waited for while no
    /// byte comes (default 5); a relay such as tee or ssh may cut it and stop for a while
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) frame_timeout: Option<Duration>,
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

const TOP: &str = "\
Examples:
  Two programs write whole messages into one pipe:
    (pipework send one & pipework send two & wait) | pipework recv --lines

  A FIFO that any process may send to, for as long as the receiver runs:
    pipework recv --from inbox --create --forever --lines &
    pipework send --to inbox 'a message'

  A build whose lines stay whole and tell where they come from:
    pipework run --tag make ::: npm run build

Exit status:
  0    done
  1    failed; the message on standard error says why and what to do
  2    the command line was not understood
  3    done, but damaged messages were reported (a writer was killed
       in the middle of one)
  124  the time given by --timeout is over
  141  the reader of standard output has left: the end, without a word
  pipework run hands on the exit status of what it runs.

`pipework COMMAND --help` has more examples.";

const COMPLETIONS: &str = "\
Examples:
  pipework completions bash \\
    > ~/.local/share/bash-completion/completions/pipework
  pipework completions zsh > ~/.zfunc/_pipework
  pipework completions fish > ~/.config/fish/completions/pipework.fish";

const MAN: &str = "\
Examples:
  pipework man ~/.local/share/man/man1
  pipework man | man -l -";

/// What `bytes` takes.
const BYTES: &str = "a number of bytes from 1, as in 4096, 64K, 10M or 1G";

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
        _ => return Err(BYTES.into()),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&number| number > 0)
        .ok_or_else(|| BYTES.into())
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
}
