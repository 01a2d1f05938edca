//! `pipework completions`: the proposals of a shell, made from the definitions of the options.

use crate::failure::Failure;
use crate::streams;
use clap::{Args, Command};

/// Options of `pipework completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to print them for
    shell: clap_complete::Shell,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  For bash:
    mkdir -p ~/.local/share/bash-completion/completions
    pipework completions bash \\
      > ~/.local/share/bash-completion/completions/pipework

  For zsh, where ~/.zfunc is in fpath:
    pipework completions zsh > ~/.zfunc/_pipework

  For fish:
    pipework completions fish > ~/.config/fish/completions/pipework.fish";

/// Prints the completions of the command `top`.
pub(crate) fn completions(args: &CompletionsArgs, mut top: Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut top, "pipework", &mut script);
    streams::print(&script)?;
    Ok(0)
}
