//! The commands still to be started: those of the command line, each once, or each once for every
//! argument that is read.
//!
//! Arguments are read when a command can be started with them, and not before: they may come from a
//! program that finds them one by one, and there may be no end of them.

use super::args::RunArgs;
use super::plan::{self, Plan};
use crate::failure::{Failure, USAGE, at};
use crate::location::{self, Location};
use crate::records::Records;
use crate::sys;
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

/// No system takes an argument of this size.
const LONGEST: usize = 4 << 20;

/// Commands in the order in which they are started.
pub(super) struct Queue {
    waiting: VecDeque<Plan>,
    /// Commands that are run for each argument.
    each: Vec<Plan>,
    /// None at its end.
    arguments: Option<Arguments>,
}

struct Arguments {
    name: String,
    /// The kind of each: a line, or an argument that ends with a NUL byte.
    noun: &'static str,
    file: File,
    records: Records,
    /// How many have been taken.
    taken: u64,
}

impl Arguments {
    /// The position of the next one.
    fn origin(&self) -> String {
        format!("{} {} of {}", self.noun, self.taken + 1, self.name)
    }
}

impl Queue {
    /// The commands of the command line, in their order; that of `--shell` first. To be called
    /// before a descriptor of our own could have the number of the user's.
    pub(super) fn open(args: &RunArgs) -> Result<Self, Failure> {
        let mut plans: Vec<Plan> = args.shell.iter().map(Plan::shell).collect();
        if !args.command.is_empty() {
            for words in args.command.split(|word| *word == args.separator) {
                if words.is_empty() {
                    let separator = args.separator.display();
                    let text = format!("a command is missing beside {separator}");
                    return Err(Failure::new(text).with_status(USAGE));
                }
                plans.push(Plan::command(words));
            }
        }
        if args.arg_file.is_some()
            && let Some((line, why)) = args.shell.iter().find_map(|line| Some((line, plan::misplaced(line)?)))
        {
            let text = format!("--shell {}: {why}", line.display());
            return Err(Failure::new(text).with_status(USAGE));
        }
        plan::tell_apart(&mut plans);
        let Some(path) = &args.arg_file else {
            return Ok(Self { waiting: plans.into(), each: Vec::new(), arguments: None });
        };
        let file = match Location::of(path, 0) {
            Location::Descriptor(number) => location::inherited(number)?.into(),
            Location::Path(path) => File::open(&path).map_err(at(path.display()))?,
        };
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        let (noun, end) = if args.arg_nul { ("argument", 0) } else { ("line", b'\n') };
        let arguments = Arguments { name, noun, file, records: Records::new(end), taken: 0 };
        Ok(Self { waiting: VecDeque::new(), each: plans, arguments: Some(arguments) })
    }

    /// How many are known of.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nothing is left to be started.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.arguments.is_none()
    }

    /// The next command to be started, as far as arguments have been read.
    pub(super) fn next(&mut self) -> Option<Plan> {
        if self.waiting.is_empty()
            && let Some(arguments) = &mut self.arguments
            && let Some(argument) = arguments.records.first()
        {
            let argument = argument[..argument.len() - 1].to_vec();
            arguments.records.pass();
            self.add(&argument);
        }
        self.waiting.pop_front()
    }

    /// Plans what is to be done with an argument.
    fn add(&mut self, argument: &[u8]) {
        let Some(arguments) = &mut self.arguments else { return };
        let (origin, others) = (arguments.origin(), self.each.len() > 1);
        arguments.taken += 1;
        let plans = self.each.iter().map(|plan| plan.with_argument(argument, others).from(origin.clone()));
        self.waiting.extend(plans);
    }

    /// It could not be started now.
    pub(super) fn put_back(&mut self, plan: Plan) {
        self.waiting.push_front(plan);
    }

    /// The descriptor to wait for before `read`; None if nothing is to be read.
    pub(super) fn poll(&self) -> Option<PollFd<'_>> {
        self.arguments.as_ref().map(|arguments| PollFd::new(&arguments.file, PollFlags::IN))
    }

    /// Reads arguments once; to be called when it has some, or is at its end.
    pub(super) fn read(&mut self) -> Result<(), Failure> {
        let Some(arguments) = &mut self.arguments else { return Ok(()) };
        let records = &mut arguments.records;
        match records.read(&mut arguments.file) {
            Ok(true) if records.len() < LONGEST || records.first().is_some() => Ok(()),
            Ok(true) => {
                let failure = format!("{} is longer than {LONGEST} bytes", arguments.origin());
                self.close();
                Err(Failure::new(failure))
            }
            Ok(false) => {
                // The last one may lack its end.
                let last = records.rest().to_vec();
                if !last.is_empty() {
                    self.add(&last);
                }
                self.arguments = None;
                Ok(())
            }
            Err(error) if sys::is_temporary(&error) => Ok(()),
            Err(error) => {
                let failure = at(&arguments.name)(error);
                self.close();
                Err(failure)
            }
        }
    }

    /// Forgets what has not been started.
    pub(super) fn close(&mut self) {
        self.waiting.clear();
        self.arguments = None;
    }
}
