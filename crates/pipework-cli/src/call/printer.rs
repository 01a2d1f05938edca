//! Prints the outcome of calls: replies or objects, and a report of calls without a reply.

use super::args::CallArgs;
use super::caller::Outcome;
use crate::failure::{DIED, Failure, NO_WORKER, TIMEOUT};
use crate::form::{Form, append_bytes};
use crate::progress::say;
use crate::streams::Stream;
use std::io::Write;
use std::time::Duration;

/// A call that has ended.
pub(super) struct Done {
    /// Counted from 1.
    pub(super) index: u64,
    pub(super) outcome: Outcome,
    pub(super) time: Duration,
}

pub(super) struct Printer {
    stdout: Stream,
    form: Form,
    /// There may be more than one call.
    many: bool,
    out: Vec<u8>,
    /// The last output does not end a line.
    is_open: bool,
    /// The gravest so far.
    status: u8,
}

/// Exit statuses, the gravest last.
const GRAVITY: [u8; 5] = [0, 1, TIMEOUT, DIED, NO_WORKER];

impl Printer {
    pub(super) fn new(args: &CallArgs, many: bool, stdout: Stream) -> Self {
        let form = match (args.json, args.nul) {
            (true, _) => Form::Json,
            (_, true) => Form::Nul,
            _ if many || args.newline || stdout.is_terminal() => Form::Lines,
            _ => Form::Raw,
        };
        Self { stdout, form, many, out: Vec::new(), is_open: false, status: 0 }
    }

    /// Appends a part of a reply, and writes it.
    pub(super) fn part(&mut self, index: u64, part: &[u8]) -> Result<(), Failure> {
        match self.form {
            Form::Json => {
                self.begin(index);
                append_bytes(&mut self.out, "part", part);
                self.out.extend_from_slice(b"}\n");
            }
            _ => {
                self.out.extend_from_slice(part);
                self.is_open = !part.ends_with(b"\n");
            }
        }
        self.flush()
    }

    /// Appends how a call has ended; `is_streamed` if its reply was given in parts.
    pub(super) fn done(&mut self, done: &Done, is_streamed: bool) {
        let status = done.outcome.status();
        let gravity = |status: u8| GRAVITY.iter().position(|known| *known == status);
        if gravity(status) > gravity(self.status) {
            self.status = status;
        }
        if self.form == Form::Json {
            return self.object(done, is_streamed);
        }
        if let Outcome::Queued = &done.outcome {
            return;
        }
        if let Outcome::Answered(reply) = &done.outcome {
            self.out.extend_from_slice(reply);
            if !is_streamed {
                self.is_open = !reply.ends_with(b"\n");
            }
            match self.form {
                Form::Nul => self.out.push(0),
                Form::Lines if self.is_open => self.out.push(b'\n'),
                _ => {}
            }
        } else {
            if std::mem::take(&mut self.is_open) && self.form == Form::Lines {
                self.out.push(b'\n');
            }
            let reason = String::from_utf8_lossy(done.outcome.reason());
            match self.many {
                true => say(format!("call {}: {reason}", done.index)),
                false => say(reason),
            }
        }
        self.is_open = false;
    }

    fn object(&mut self, done: &Done, is_streamed: bool) {
        self.begin(done.index);
        let seconds = done.time.as_secs_f64();
        let text = format!(",\"outcome\":\"{}\",\"seconds\":{seconds:.6}", done.outcome.name());
        self.out.extend_from_slice(text.as_bytes());
        match &done.outcome {
            Outcome::Queued => {}
            Outcome::Answered(_) if is_streamed => {}
            Outcome::Answered(reply) => append_bytes(&mut self.out, "data", reply),
            other => append_bytes(&mut self.out, "reason", other.reason()),
        }
        self.out.extend_from_slice(b"}\n");
    }

    fn begin(&mut self, index: u64) {
        self.out.extend_from_slice(format!("{{\"index\":{index}").as_bytes());
    }

    /// Writes the appended output.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let outcome = self.stdout.write_all(&self.out);
        self.out.clear();
        outcome.map_err(Failure::stdout)
    }

    /// The exit status.
    pub(super) fn status(&self) -> u8 {
        self.status
    }
}
