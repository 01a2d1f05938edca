//! The options and the help of `pipework bench`, and the options of its other process.

use clap::{Args, Parser, ValueEnum};
use std::path::PathBuf;

/// Options of `pipework bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// The modules to measure; all by default
    #[arg(value_name = "MODULE", value_enum)]
    pub(crate) modules: Vec<Module>,

    /// Take about a second; the figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A part of the library.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Module {
    /// Messages from one process to another
    Atomic,
    /// Calls between two processes
    Reqrep,
    /// Bytes from one thread to another
    Pipe,
    /// A file to a socket
    Fd,
}

/// The first argument that makes this process the other side of a measurement; no subcommand, so
/// that it appears in no help, completion or page.
pub(crate) const BENCH_PEER: &str = "bench-peer";

/// Options of the other process.
#[derive(Parser)]
pub(crate) struct BenchPeerArgs {
    #[arg(value_enum)]
    pub(crate) role: Role,
    /// For how long to send, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) millis: u64,
    /// The segment of `serve`.
    #[arg(long)]
    pub(crate) segment: Option<PathBuf>,
}

/// The work of the other process.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// Answers each call with its request.
    Serve,
    /// Writes back the bytes that it reads.
    Echo,
    /// Sends messages.
    Send,
    /// Writes as many bytes.
    Write,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Each module beside the kernel's means for the same purpose, on this machine, in
less than a minute: calls of 12 bytes between two processes, messages of 5000
bytes between two processes, blocks of 1 KiB between two threads, a file to a
TCP connection.

Examples:
  All of it:
    pipework bench

  Calls only:
    pipework bench reqrep

How to read it:
  \"each\" is the time for one call, message or block, from the median of nine
  rounds in which all take turns; \"CPU\" is the processor time of both sides
  for it, spinning included; \"spread\" is how much longer the slowest round took
  than the fastest; \"pipework is\" says how many times as fast pipework is.

  Nothing is pinned to a CPU. The ratios change when other programs use the
  machine, and from one make of CPU to another. Compare figures of one run only.

Exit status:
  0    measured
  1    failed
  2    usage
  141  the reader of standard output has left";
