//! The command `pipework`: whole messages through pipes and FIFOs, and calls, from the shell.
//!
//! This file names the subcommands, hands over to the file of one and turns its outcome into an
//! exit status and at most one line on standard error. The library decides what a message is and
//! how it travels; nothing here knows the wire.

// In reading order: the part that subcommands share, then the subcommands.
mod args;
mod failure;
mod sys;
mod streams;
mod usage;
mod words;
mod table;
mod progress;
mod form;
mod records;
mod location;
mod log_file;
mod processes;
mod channel;
mod pipes;
mod look;
mod stop;
mod exec;
mod group;
mod stderr;
mod outlet;
mod openmetrics;
mod peers;
mod fifo;
mod send;
mod recv;
mod run;
mod tee;
mod serve;
mod call;
mod ls;
mod top;
mod doctor;
mod bench;
mod demo;
mod nats;
mod completions;
mod man;

use crate::bench::{BENCH_PEER, BenchArgs, BenchPeerArgs};
use crate::call::CallArgs;
use crate::completions::CompletionsArgs;
use crate::demo::{DEMO_PEER, DEMO_WRITER, DemoArgs, DemoPeerArgs, DemoWriterArgs};
use crate::doctor::DoctorArgs;
use crate::failure::{Ending, Failure};
use crate::ls::LsArgs;
use crate::man::ManArgs;
use crate::nats::NatsArgs;
use crate::recv::RecvArgs;
use crate::run::RunArgs;
use crate::send::SendArgs;
use crate::serve::ServeArgs;
use crate::tee::TeeArgs;
use crate::top::TopArgs;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

/// Sends and receives whole messages through pipes and FIFOs, answers calls and makes them.
#[derive(Parser)]
#[command(
    name = "pipework",
    version,
    about = "Whole messages through pipes and FIFOs, and calls between processes",
    long_about = "Sends and receives whole messages of any size through ordinary pipes and FIFOs. Any number of processes may write \
                  to one pipe: a message is never torn, mixed with another, or lost in silence. In mixed mode the same pipe also \
                  carries ordinary text, so that a program may print while it sends. And it makes a service of any program: \
                  whoever calls it gets its reply, or learns why there is none.",
    after_long_help = TOP
)]
struct Cli {
    /// The subcommand to run.
    #[command(subcommand)]
    command: Command,

    /// Print no progress and no summary on a terminal
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// The subcommands, one file each.
#[derive(Subcommand)]
enum Command {
    /// Send messages to a FIFO or to standard output
    #[command(after_long_help = send::HELP)]
    Send(SendArgs),
    /// Receive messages from a FIFO or from standard input
    #[command(after_long_help = recv::HELP)]
    Recv(RecvArgs),
    /// Run commands, printing their text line by line and taking their messages
    #[command(after_long_help = run::HELP)]
    Run(RunArgs),
    /// Pass a stream on as it is, and write or count its messages
    #[command(after_long_help = tee::HELP)]
    Tee(TeeArgs),
    /// Answer calls with a command
    #[command(after_long_help = serve::HELP)]
    Serve(ServeArgs),
    /// Call a service and print its reply
    #[command(after_long_help = call::HELP)]
    Call(CallArgs),
    /// List channels and FIFOs, alive or left behind
    #[command(after_long_help = ls::HELP)]
    Ls(LsArgs),
    /// Watch channels and pipes at work
    #[command(after_long_help = top::HELP)]
    Top(TopArgs),
    /// Report faults of channels and the system, and remove dead channels
    #[command(after_long_help = doctor::HELP)]
    Doctor(DoctorArgs),
    /// Measure it beside the kernel's own means, on this machine
    #[command(after_long_help = bench::HELP)]
    Bench(BenchArgs),
    /// Show it at work: many processes, a real file, every record and every call checked
    #[command(after_long_help = demo::HELP)]
    Demo(DemoArgs),
    /// Carry channels between machines over NATS, by a separate program, pipework-nats
    #[command(long_about = nats::ABOUT, after_long_help = nats::HELP)]
    Nats(NatsArgs),
    /// Print the completions of a shell
    #[command(after_long_help = completions::HELP)]
    Completions(CompletionsArgs),
    /// Print the man pages, or write them into a folder
    #[command(after_long_help = man::HELP)]
    Man(ManArgs),
}

/// The text of `--help` beside the subcommands.
const TOP: &str = "\
Examples:
  Two programs write whole messages into one pipe:
    (pipework send one & pipework send two & wait) | pipework recv --lines

  A FIFO that any process may send to, for as long as the receiver runs:
    pipework recv --from inbox --create --forever --lines &
    pipework send --to inbox 'a message'

  A build whose lines stay whole and name their command:
    pipework run --tag make ::: npm run build

  A service, and a call of it:
    pipework serve /dev/shm/upper -- tr a-z A-Z &
    pipework call --wait /dev/shm/upper hello

Exit status:
  0    done
  1    failed; the message on standard error says why and what to do
  2    the command line was not understood
  3    done, but damaged messages were reported (a writer was killed
       in the middle of one); doctor: something is wrong
  4    the server that had a request has died
  5    the channel has no server
  6    fewer messages came than recv --count asks for
  124  the time given by --timeout has passed
  141  the reader of standard output has left: the end, without a word
  pipework run passes on the exit status of its commands.

`pipework COMMAND --help` has more examples.";

fn main() -> ExitCode {
    sys::fail_past_size_limits();
    let mut arguments = std::env::args_os().skip(1).peekable();
    let outcome = match arguments.peek().and_then(|first| first.to_str()) {
        Some(DEMO_WRITER) => demo::writer(&DemoWriterArgs::parse_from(arguments)).map(Ending::from),
        Some(fifo::FIFO_KEEPER) => fifo::keep().map(Ending::from),
        Some(BENCH_PEER) => bench::peer(&BenchPeerArgs::parse_from(arguments)).map(Ending::from),
        Some(DEMO_PEER) => demo::peer(&DemoPeerArgs::parse_from(arguments)).map(Ending::from),
        _ => understand().and_then(|cli| obey(&cli)),
    };
    let ending = outcome.unwrap_or_else(|failure| {
        if !failure.is_silent() {
            progress::say(&failure);
        }
        Ending::Status(failure.status())
    });
    words::finish();
    ExitCode::from(match ending {
        Ending::Status(status) => status,
        Ending::Signal(number) => sys::end_by(number),
    })
}

/// Hands over to the subcommand; returns how it ends.
fn obey(cli: &Cli) -> Result<Ending, Failure> {
    let starts_commands = match &cli.command {
        Command::Run(_) | Command::Serve(_) => true,
        Command::Recv(args) => !args.exec.is_empty(),
        _ => false,
    };
    // These commands may leave processes behind.
    if starts_commands
        && sys::adopts_orphans()
        && let Some(status) = sys::stand_in().map_err(failure::at("fork"))?
    {
        return Ok(match status.signal() {
            Some(number) => Ending::Signal(number),
            None => Ending::Status(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        });
    }
    let status = match &cli.command {
        Command::Run(args) => return run::run(args, cli.quiet),
        Command::Tee(args) => return tee::tee(args, cli.quiet),
        Command::Recv(args) => return recv::recv(args, cli.quiet),
        Command::Top(args) => return top::top(args, cli.quiet),
        Command::Send(args) => send::send(args, cli.quiet),
        Command::Serve(args) => serve::serve(args, cli.quiet),
        Command::Call(args) => call::call(args, cli.quiet),
        Command::Ls(args) => ls::ls(args, cli.quiet),
        Command::Doctor(args) => doctor::doctor(args, cli.quiet),
        Command::Bench(args) => bench::bench(args, cli.quiet),
        Command::Demo(args) => demo::demo(args, cli.quiet),
        Command::Nats(args) => nats::nats(args),
        Command::Completions(args) => completions::completions(args, definition()),
        Command::Man(args) => man::man(args, definition()),
    };
    status.map(Ending::Status)
}

/// The definition of the command line.
fn definition() -> clap::Command {
    // A number below zero is a wrong value, not an option that is not there.
    let signed = |command: clap::Command| {
        command.mut_args(|arg| {
            let takes_value = !arg.is_positional() && arg.get_action().takes_values();
            if takes_value { arg.allow_negative_numbers(true) } else { arg }
        })
    };
    Cli::command().mut_subcommands(signed)
}

/// Parses the command line.
fn understand() -> Result<Cli, Failure> {
    let matches = definition().try_get_matches();
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| usage::misread(&error, definition()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        definition().debug_assert();
    }
}
