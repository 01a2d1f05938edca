//! The options and the help of `pipework ls`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `pipework ls`.
#[derive(Args)]
pub(crate) struct LsArgs {
    /// Folders to search, or channels and FIFOs to look at; without any, the usual places
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Show only those that no visible process uses: channels left or broken, and FIFOs
    #[arg(long, short)]
    pub(crate) unused: bool,

    /// Print the paths alone, each ended by a NUL byte
    #[arg(long, short = '0', group = "form")]
    pub(crate) nul: bool,

    /// Print each as one JSON object on a line
    #[arg(long, short, group = "form")]
    pub(crate) json: bool,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Lists channels, broadcasts and FIFOs, and the processes that use them. Looking
disturbs none of them: nothing is written, no channel is joined and no FIFO is
opened.

The usual places are /dev/shm, $XDG_RUNTIME_DIR and $TMPDIR (/tmp). In a
folder only what belongs to you is shown; folders inside are not searched, and
links are not followed. A link that you name means its target.

Examples:
  All of them, alive or left behind:
    pipework ls

  One channel:
    pipework ls /dev/shm/work

  The paths of all that no process uses, for a script:
    pipework ls --unused --nul | xargs -0 -r ls -l

  Channels with a server, one JSON object on a line:
    pipework ls --json /dev/shm | grep '\"servers\":[1-9]'

States:
  in use  members are attached to the channel; a FIFO has readers and writers
  open    a process has it open, and that is all
  left    no visible process uses the channel; `pipework doctor` removes it
  unused  no visible process has the FIFO open; it may wait for its next user
  broken  the channel is damaged, a copy, or of another version
  closed  you may not look into it

  The kernel knows that a member lives, on any user and in any container.
  Processes that merely have a file open are visible only as far as /proc shows
  them to you: not processes of other users or of containers.

Columns:
  KIND says what it is: a channel for calls, a broadcast, or a FIFO. SIZE is the
  length of the file, and of a FIFO the unread bytes and the bytes that it can
  hold. AGE is the time since it was made.

Exit status:
  0    listed; an empty list is reported on standard error
  1    failed; a path does not exist, for instance
  2    usage";
