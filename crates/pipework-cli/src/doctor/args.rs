//! The options and the help of `pipework doctor`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Options of `pipework doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Channels and FIFOs to examine, or folders with them; without any, the usual places of
    /// `pipework ls`, and the system
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with = "system")]
    pub(crate) paths: Vec<PathBuf>,

    /// Recover and remove dead channels without asking
    #[arg(long, short, conflicts_with = "system")]
    pub(crate) yes: bool,

    /// Remove FIFOs that no process has open, too
    #[arg(long, conflicts_with = "system")]
    pub(crate) fifos: bool,

    /// Examine the system only
    #[arg(long)]
    pub(crate) system: bool,

    /// Print each finding as one JSON object on a line, and ask nothing
    #[arg(long, short)]
    pub(crate) json: bool,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Reports in words the faults of channels and of the system, and fixes those that
it can: it takes back slots, cells and blobs of dead members, and removes channels
that no process has open. On a terminal it asks before each; elsewhere, and without
--yes, it only reports.

Examples:
  Remains of crashed programs, and whether the system fits:
    pipework doctor || [ $? = 3 ]

  Remove it, without questions:
    pipework doctor --yes /dev/shm

  One channel:
    pipework doctor /dev/shm/work

  FIFOs that no process has open, too; they may wait for their next user:
    pipework doctor --yes --fifos /dev/shm

  The system alone, for a report:
    pipework doctor --system --json

Removal:
  A channel, when the kernel says that no process on this machine has it
  open, in a container or not (it then grants a lease of the file). If
  the file system cannot say so, nothing is removed. A channel with requests
  that wait for a server, and a copy of a channel, are not removed by --yes.
  The messages of a broadcast go with its file.

  The folder of a channel's blobs, with the channel; and one whose channel is
  gone, when no process that /proc shows has that channel open, and no process
  at all holds a blob in it.

  A FIFO, with --fifos, when no process that /proc shows has it open or waits
  for its other end, and no process at all reads from it. A FIFO that other
  users may use stays if /proc hides processes. Processes of other containers
  that share the folder are not visible: then do not use --fifos.

Exit status:
  0    no fault, or all of them were fixed
  1    failed; a path does not exist, for instance
  2    usage
  3    a fault was found and not fixed";
