//! `pipework-bench`: pipework and what its users reach for today, side by side in one run on one
//! machine.
//!
//! The map: `measure.rs` (rounds, medians, CPU, forked processes), `corpus.rs` (what is moved),
//! `machine.rs` (what on), one file a room with its cases and bars as data (`atomic.rs`),
//! `report.rs` (table, bars, record), `plot.rs` (a picture of a record). A new room is a file with
//! `cases` and `BARS`, a variant of `Room` and a line in `Room::definition`.

mod measure;
mod corpus;
mod machine;
mod report;
mod c;
mod script;
mod atomic;
mod fd;
mod pipe;
mod reqrep;
mod python;
mod perl;
mod nats;
mod plot;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use measure::{Case, Failure, Meter, interleaved};
use report::{Bar, CaseRecord, Record};

/// Runs pipework and its peers side by side and prints their ratios.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
struct Args {
    /// What to measure
    #[arg(required = true)]
    room: Option<Room>,
    /// The main cases with fewer rounds, in less than a minute
    #[arg(long)]
    quick: bool,
    /// Print the record as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Keep the record under bench/record/, by make of CPU and date
    #[arg(long, conflicts_with = "case")]
    record: bool,
    /// Run only what has this text in its CASE/LANE
    #[arg(long, value_name = "FILTER")]
    case: Option<String>,
    /// Exit with status 1 if a bar is short
    #[arg(long)]
    strict: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Draw a record as an SVG picture on standard output
    Plot { record: PathBuf },
}

#[derive(Clone, Copy, ValueEnum)]
enum Room {
    /// Whole messages over one pipe
    Atomic,
    /// Raw descriptors
    Fd,
    /// A byte pipe inside one process
    Pipe,
    /// Request and response over shared memory
    Reqrep,
    /// The Python package, calls and messages
    Python,
    /// The Perl distribution: calls, messages and descriptors
    Perl,
    /// Calls across two bridges over NATS
    Nats,
}

impl Room {
    fn definition(self) -> (&'static str, Vec<Case>, &'static [Bar]) {
        match self {
            Room::Atomic => ("atomic", atomic::cases(), atomic::BARS),
            Room::Fd => ("fd", fd::cases(), fd::BARS),
            Room::Pipe => ("pipe", pipe::cases(), pipe::BARS),
            Room::Reqrep => ("reqrep", reqrep::cases(), reqrep::BARS),
            Room::Python => ("python", python::cases(), python::BARS),
            Room::Perl => ("perl", perl::cases(), perl::BARS),
            Room::Nats => ("nats", nats::cases(), nats::BARS),
        }
    }

    /// What the two sides are called whose CPU time is told apart: the other processes, and this
    /// one or who stands for it.
    fn sides(self) -> [&'static str; 2] {
        match self {
            Room::Reqrep => ["clients", "servers"],
            Room::Python | Room::Perl => ["senders", "receiver"],
            Room::Nats => ["others", "caller"],
            _ => ["writers", "reader"],
        }
    }
}

const ROUNDS: usize = 9;
const QUICK_ROUNDS: usize = 5;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.action, args.room) {
        (Some(Action::Plot { record }), _) => plot(record),
        (None, Some(room)) => run(&args, room),
        (None, None) => unreachable!("clap asks for a room"),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("pipework-bench: {why}");
            ExitCode::from(2)
        }
    }
}

/// Measures a room and reports. `false` if a bar is short and that matters.
fn run(args: &Args, room: Room) -> Result<bool, Failure> {
    let (name, mut cases, bars) = room.definition();
    let rounds = if args.quick { QUICK_ROUNDS } else { ROUNDS };
    match &args.case {
        Some(filter) => cases.iter_mut().for_each(|case| {
            case.lanes.retain(|lane| format!("{}/{}", case.name, lane.name).contains(filter.as_str()));
        }),
        None => cases.retain(|case| case.quick || !args.quick),
    }
    cases.retain(|case| !case.lanes.is_empty());
    if cases.is_empty() {
        return Err("no case or lane has that text in its name".into());
    }
    let meter = Meter::start();
    let mut out = io::stdout();
    let mut told = Vec::new();
    for mut case in cases {
        progress(case.name);
        let way_ns = machine::coherence_ns();
        let series = interleaved(&mut case.lanes, rounds);
        let measured = CaseRecord::new(case.name, room.sides(), way_ns, series);
        progress("");
        if !args.json {
            writeln!(out, "{measured}")?;
        }
        told.push(measured);
    }
    let record = Record::new(name, args.quick, rounds, &meter, told, bars);
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&record)?)?;
    } else {
        writeln!(out, "{}\n{}\n", record.machine, record.circumstances())?;
        record.bars.iter().try_for_each(|bar| writeln!(out, "{bar}"))?;
    }
    if args.record {
        let path = record.save(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/record")))?;
        eprintln!("recorded in {}", path.display());
    }
    Ok(!(args.strict && record.bars.iter().any(|bar| bar.is_short())))
}

fn plot(path: &Path) -> Result<bool, Failure> {
    let record = Record::load(path).map_err(|why| format!("{}: {why}", path.display()))?;
    io::stdout().write_all(plot::svg(&record).as_bytes())?;
    Ok(true)
}

/// Names the running case to somebody who waits at a terminal; an empty name clears the line.
fn progress(case: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{case}");
    }
}
