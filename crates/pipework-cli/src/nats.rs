//! `pipework nats`: hands over to the program `pipework-nats`, which is built by itself, so that
//! users without a network need not build a client for it.

use crate::exec::{self, CANNOT_EXECUTE};
use crate::failure::{Failure, words};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The arguments that `pipework nats` passes on.
#[derive(Args)]
pub(crate) struct NatsArgs {
    /// A subcommand of pipework-nats (expose, attach, join, publish, subscribe) and its options
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true, required = true, num_args = 1.., value_hint = ValueHint::Other)]
    arguments: Vec<OsString>,
}

/// The beginning of `--help`.
pub(crate) const ABOUT: &str = "\
Runs pipework-nats, a separate program, which pipework's packages do not hold:
it is built from bridge/nats in the repository. It carries channels from
machine to machine over NATS.";

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  Workers on one machine, callers on another:
    one$     pipework nats expose /dev/shm/upper --subject upper
    another$ pipework nats attach /dev/shm/upper --subject upper
    another$ pipework call --wait /dev/shm/upper hello

  All commands:
    pipework nats expose --help

The program:
  pipework-nats is found beside pipework, or else in PATH. In a clone of the
  repository, `cargo install --path bridge/nats` builds it.";

const NAME: &str = "pipework-nats";

/// Becomes `pipework-nats`.
pub(crate) fn nats(args: &NatsArgs) -> Result<u8, Failure> {
    let program = beside_this().unwrap_or_else(|| NAME.into());
    exec::find(
        program.as_os_str(),
        "`cargo install --path bridge/nats` in a clone of the repository builds it",
    )?;
    let error = Command::new(&program).args(&args.arguments).exec();
    Err(Failure::new(format!("{}: {}", program.display(), words(error))).with_status(CANNOT_EXECUTE))
}

/// The program in the folder of this one, if it is there.
fn beside_this() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.parent()?.join(NAME);
    program.is_file().then_some(program)
}
