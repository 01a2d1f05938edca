//! `pipework-bench`: pipework and its alternatives, side by side in one run on one
//! machine.
//!
//! The map: `measure.rs` (rounds, medians, CPU, forked processes), `corpus.rs` (the data to move),
//! `machine.rs` (the machine), one file a module with its cases and targets as data (`atomic.rs`),
//! `report.rs` (table, targets, record), `plot.rs` (a picture of a record). A new module is a file
//! with
//! `cases` and `TARGETS`, a variant of `Module` and a line in `Module::definition`.

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
mod blob;
mod broadcast;
mod deaths;
mod python;
mod node;
mod perl;
mod nats;
mod plot;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use measure::{Case, Failure, Meter, interleaved};
use report::{CaseRecord, Record, Target};

/// Runs pipework and its peers side by side and prints their ratios.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
struct Args {
    /// The module to measure
    #[arg(required = true)]
    module: Option<Module>,
    /// The main cases with fewer rounds, in less than a minute
    #[arg(long)]
    quick: bool,
    /// Print the record as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Keep the record under bench/record/, by make of CPU and date
    #[arg(long, conflicts_with = "case")]
    record: bool,
    /// Run only contenders with this text in their CASE/CONTENDER
    #[arg(long, value_name = "FILTER")]
    case: Option<String>,
    /// Exit with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Draw a record as an SVG picture on standard output
    Plot { record: PathBuf },
    #[command(flatten)]
    Death(deaths::Role),
}

#[derive(Clone, Copy, ValueEnum)]
enum Module {
    /// Whole messages over one pipe
    Atomic,
    /// Raw descriptors
    Fd,
    /// A byte pipe inside one process
    Pipe,
    /// Request and response over shared memory
    Reqrep,
    /// Shared memory that one process hands to another
    Blob,
    /// One message to many receivers over shared memory
    Broadcast,
    /// How soon the death of a process is known
    Deaths,
    /// The Python package, calls and messages
    Python,
    /// Large payloads and arrays between processes of Python
    PythonBlob,
    /// Objects between processes of Python, as by `multiprocessing`
    PythonMultiprocessing,
    /// The Node package, calls
    Node,
    /// The Perl distribution: calls, messages and descriptors
    Perl,
    /// Calls across two bridges over NATS
    Nats,
}

impl Module {
    fn definition(self) -> (&'static str, Vec<Case>, &'static [Target]) {
        match self {
            Module::Atomic => ("atomic", atomic::cases(), atomic::TARGETS),
            Module::Fd => ("fd", fd::cases(), fd::TARGETS),
            Module::Pipe => ("pipe", pipe::cases(), pipe::TARGETS),
            Module::Reqrep => ("reqrep", reqrep::cases(), reqrep::TARGETS),
            Module::Blob => ("blob", blob::cases(), blob::TARGETS),
            Module::Broadcast => ("broadcast", broadcast::cases(), broadcast::TARGETS),
            Module::Deaths => ("deaths", deaths::cases(), deaths::TARGETS),
            Module::Python => ("python", python::cases(), python::TARGETS),
            Module::PythonBlob => ("python-blob", python::blob_cases(), python::BLOB_TARGETS),
            Module::PythonMultiprocessing => {
                ("python-multiprocessing", python::object_cases(), python::OBJECT_TARGETS)
            }
            Module::Node => ("node", node::cases(), node::TARGETS),
            Module::Perl => ("perl", perl::cases(), perl::TARGETS),
            Module::Nats => ("nats", nats::cases(), nats::TARGETS),
        }
    }

    /// The names of the two sides whose CPU time is shown: the other processes, and this one or its
    /// substitute.
    fn sides(self) -> [&'static str; 2] {
        match self {
            Module::Reqrep | Module::Blob => ["clients", "servers"],
            Module::Python | Module::PythonBlob | Module::PythonMultiprocessing | Module::Perl => {
                ["senders", "receiver"]
            }
            Module::Broadcast => ["publisher", "receivers"],
            Module::Nats => ["others", "caller"],
            Module::Node => ["server", "caller"],
            _ => ["writers", "reader"],
        }
    }
}

const ROUNDS: usize = 9;
const QUICK_ROUNDS: usize = 5;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.action, args.module) {
        (Some(Action::Plot { record }), _) => plot(record),
        (Some(Action::Death(role)), _) => role.play().map(|()| true),
        (None, Some(module)) => run(&args, module),
        (None, None) => unreachable!("clap asks for a module"),
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

/// Measures a module and reports. Returns `false` if `--strict` is given and a target is missed.
fn run(args: &Args, module: Module) -> Result<bool, Failure> {
    let (name, mut cases, targets) = module.definition();
    let rounds = if args.quick { QUICK_ROUNDS } else { ROUNDS };
    match &args.case {
        Some(filter) => cases.iter_mut().for_each(|case| {
            case.contenders
                .retain(|contender| format!("{}/{}", case.name, contender.name).contains(filter.as_str()));
        }),
        None => cases.retain(|case| case.quick || !args.quick),
    }
    cases.retain(|case| !case.contenders.is_empty());
    if cases.is_empty() {
        return Err("no case or contender has that text in its name".into());
    }
    let meter = Meter::start();
    let mut out = io::stdout();
    let mut told = Vec::new();
    for mut case in cases {
        progress(case.name);
        let way_ns = machine::coherence_ns();
        let series = interleaved(&mut case.contenders, rounds);
        let measured = CaseRecord::new(case.name, module.sides(), way_ns, series);
        progress("");
        if !args.json {
            writeln!(out, "{measured}")?;
        }
        told.push(measured);
    }
    let record = Record::new(name, args.quick, rounds, &meter, told, targets);
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&record)?)?;
    } else {
        writeln!(out, "{}\n{}\n", record.machine, record.circumstances())?;
        record.targets.iter().try_for_each(|target| writeln!(out, "{target}"))?;
    }
    if args.record {
        let path = record.save(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/record")))?;
        eprintln!("recorded in {}", path.display());
    }
    Ok(!(args.strict && record.targets.iter().any(|target| target.is_short())))
}

fn plot(path: &Path) -> Result<bool, Failure> {
    let record = Record::load(path).map_err(|why| format!("{}: {why}", path.display()))?;
    io::stdout().write_all(plot::svg(&record).as_bytes())?;
    Ok(true)
}

/// Shows the running case on a terminal; an empty name clears the line.
fn progress(case: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{case}");
    }
}
