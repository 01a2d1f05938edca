//! The options and the help of `pipework demo`, and the arguments of its processes.

use crate::args::number;
use clap::{Args, Parser, ValueHint};
use std::path::PathBuf;

/// Options of `pipework demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// The file whose lines are sent; without it, text found on this machine
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// How many processes write at once
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = number(1..=64u8))]
    pub(crate) writers: u8,

    /// Take less text, to be done in about a second
    #[arg(long)]
    pub(crate) quick: bool,
}

/// The first argument that makes this process a writer of the demo.
///
/// It is no subcommand, so that it appears in no help, completion or page. And the processes of the
/// demo are not those of `send`, `serve` and `call`: a writer prints between its own messages, a
/// client works out each answer itself, and a worker dies at a call that was counted, while it has
/// others. For the subcommands these would be options that no user needs.
pub(crate) const DEMO_WRITER: &str = "demo-writer";

/// The arguments of one writer process of the demo.
#[derive(Parser)]
pub(crate) struct DemoWriterArgs {
    /// Its number among the writers.
    #[arg(long)]
    pub(crate) number: u32,
    /// The start of its share of the text, in bytes.
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
    #[arg(long)]
    pub(crate) zstd: Option<i32>,
}

/// The first argument that makes this process a client or a worker of the demo; no subcommand, for
/// the same reason.
pub(crate) const DEMO_PEER: &str = "demo-peer";

/// The arguments of one client or worker process of the demo.
#[derive(Parser)]
pub(crate) struct DemoPeerArgs {
    /// The channel.
    #[arg(long)]
    pub(crate) segment: PathBuf,
    /// The start of a client's share of the text, in bytes.
    #[arg(long, default_value_t = 0)]
    pub(crate) start: u64,
    /// Length of its share, in bytes; without it, this is a worker.
    #[arg(long)]
    pub(crate) len: Option<usize>,
    /// How often its calls go to another worker.
    #[arg(long, default_value_t = 0)]
    pub(crate) redeliveries: u8,
    /// Makes a worker die when this many calls are answered.
    #[arg(long)]
    pub(crate) dies_after: Option<u64>,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Each line of the file is a record. The writers are processes; each sends its
share of the records as messages, and prints stray text into the same pipe
besides. The reader compares every record with the file, and checks that each
comes exactly once and that a writer's records keep their order. For comparison
the same bytes go through a bare pipe, unchecked and undivided.

Then client processes ask worker processes about the records, through a channel
in shared memory. Half-way a worker is killed; every call must get the right
answer, or an error that its worker has died.

Examples:
  With text that this machine has:
    pipework demo

  With a file of your own and eight writers:
    pipework demo --writers 8 /var/log/syslog

Exit status:
  0    every record arrived once and whole, every call was answered or failed
       with that error
  1    otherwise
  141  the reader of standard output left before that was known";
