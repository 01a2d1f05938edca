//! The command `pipework`: whole messages through pipes and FIFOs, from the shell.
//!
//! This file reads the command line, hands over to the subcommand's file and turns its outcome into
//! an exit status and at most one line on standard error. What a message is and how it travels is
//! decided in the library; nothing here knows the wire.

// In reading order: what the subcommands share, then the subcommands.
mod args;
mod failure;
mod sys;
mod streams;
mod progress;
mod form;
mod place;
mod exec;
mod fifo;
mod send;
mod recv;
mod run;
mod demo;
mod man;

use crate::args::{Cli, Command, DEMO_PEER, DEMO_WRITER, DemoPeerArgs, DemoWriterArgs};
use crate::failure::{Failure, USAGE};
use clap::{CommandFactory, Parser};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let outcome = match arguments.peek().and_then(|first| first.to_str()) {
        Some(DEMO_WRITER) => demo::writer(&DemoWriterArgs::parse_from(arguments)),
        Some(fifo::FIFO_KEEPER) => fifo::keep(),
        Some(DEMO_PEER) => demo::peer(&DemoPeerArgs::parse_from(arguments)),
        _ => Cli::try_parse().map_err(|error| misread(&error)).and_then(|cli| obey(&cli)),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !failure.is_silent() {
                progress::say(&failure);
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Hands over to the subcommand; returns its exit status.
fn obey(cli: &Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Send(args) => send::send(args, cli.quiet),
        Command::Recv(args) => recv::recv(args, cli.quiet),
        Command::Run(args) => run::run(args, cli.quiet),
        Command::Demo(args) => demo::demo(args, cli.quiet),
        Command::Completions { shell } => completions(*shell),
        Command::Man { dir } => man::man(dir.as_deref()),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pipework", &mut script);
    streams::print(&script)?;
    Ok(0)
}

/// What came of a command line that names nothing to do: help that was asked for is printed here, and
/// the failure says nothing; any other is a usage error in the words of the parser.
fn misread(error: &clap::Error) -> Failure {
    let text = error.render();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let words = |terminal: bool| match terminal && !plain {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    if error.use_stderr() {
        let mut stderr = streams::stderr();
        // Where it cannot be written nobody could be told so.
        let _ = stderr.write_all(words(stderr.is_terminal()).as_bytes());
        return Failure::silent(USAGE);
    }
    let printed = streams::stdout().and_then(|mut stdout| {
        stdout.write_all(words(stdout.is_terminal()).as_bytes()).map_err(Failure::stdout)
    });
    printed.err().unwrap_or(Failure::silent(0))
}
