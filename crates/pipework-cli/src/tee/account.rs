//! The log entries, or counts, that `pipework tee` makes of the messages that it sees.

use super::args::TeeArgs;
use super::log::{Entries, Log};
use crate::form::{self, Form, OpenLine};
use crate::progress::say;
use crate::table::count;
use pipework::atomic::{Item, Reader};
use pipework::{Deadline, ErrorKind};
use std::mem;
use std::time::{Duration, Instant};

/// The messages seen so far.
pub(super) struct Account {
    form: Form,
    /// Lines of text are entries, too.
    text: bool,
    /// It only counts, and writes no log.
    counts: bool,
    interval: Option<Duration>,
    /// When the counts are due.
    pub(super) due: Deadline,
    started: Instant,
    messages: u64,
    bytes: u64,
    lines: u64,
    pub(super) damaged: u64,
    zstd: bool,
    mixed: bool,
    line: OpenLine,
    /// A line was cut.
    pub(super) cut: bool,
    /// The stream could not be decoded at all.
    pub(super) failed: bool,
    entries: Entries,
}

impl Account {
    pub(super) fn new(args: &TeeArgs) -> Self {
        Self {
            form: Form::of(&args.form, Form::Lines),
            text: args.text,
            counts: args.count,
            interval: args.interval,
            due: Deadline::from(args.interval),
            started: Instant::now(),
            messages: 0,
            bytes: 0,
            lines: 0,
            damaged: 0,
            zstd: args.limits.has_zstd(),
            mixed: args.mixed,
            line: OpenLine::default(),
            cut: false,
            failed: false,
            entries: Entries::default(),
        }
    }

    /// Takes all that the reader has, and hands it to the log; `None` is left of a reader that is
    /// at its end.
    pub(super) fn take_from(&mut self, reader: &mut Option<Reader>, log: &Log) {
        while let Some(source) = reader {
            match source.try_next_item() {
                Ok(Some(item)) => self.enter(&item),
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::Closed {
                        self.failed = true;
                        say(not_understood(error));
                    }
                    *reader = None;
                }
            }
        }
        if self.due.has_passed() {
            self.due = Deadline::from(self.interval);
            self.count();
        }
        self.hand_over(log);
    }

    fn hand_over(&mut self, log: &Log) {
        if log.put(&mut self.entries) {
            let why = "it takes nothing, and --backlog is full";
            say(format!("{}: {why}: entries are left out from here on", log.name()));
        }
    }

    fn enter(&mut self, item: &Item<'_>) {
        match item {
            Item::Message(message) => {
                self.messages += 1;
                self.bytes += message.data.len() as u64;
            }
            Item::Burst(burst) => {
                self.messages += 1;
                self.bytes += burst.data.len() as u64;
            }
            Item::Line(_) if self.line != OpenLine::None => {}
            Item::Line(_) => self.lines += 1,
            Item::Torn(_) => self.damaged += 1,
        }
        match item {
            Item::Torn(torn) if self.counts || self.form != Form::Json => {
                say(form::loss(torn, self.zstd, self.mixed));
            }
            Item::Line(line) if !self.text => self.line = OpenLine::after(line),
            _ if self.counts => {}
            _ => self.write(item),
        }
    }

    fn write(&mut self, item: &Item<'_>) {
        // Text that is not written needs no end before a message.
        let mut nothing = OpenLine::default();
        let line = if self.text { &mut self.line } else { &mut nothing };
        let mut cut = false;
        self.entries.add(|out| cut = self.form.append(out, item, None, line));
        if cut && !mem::replace(&mut self.cut, true) {
            say(form::CUT);
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self, log: &Log) {
        if self.counts {
            self.count();
        } else if self.text && self.line.has_rest(self.form) {
            self.entries.add(|out| self.line.finish(self.form, out, None));
        }
        self.hand_over(log);
        log.end();
    }

    /// Makes an entry of the counts.
    fn count(&mut self) {
        let Self { messages, bytes, lines, damaged, .. } = *self;
        let text = match self.form {
            Form::Json => {
                let seconds = self.started.elapsed().as_secs_f64();
                format!(
                    "{{\"seconds\":{seconds:.3},\"messages\":{messages},\"bytes\":{bytes},\
                     \"lines\":{lines},\"damaged\":{damaged}}}\n"
                )
            }
            _ => {
                let [messages, bytes, lines] = [(messages, "message"), (bytes, "byte"), (lines, "line")]
                    .map(|(number, noun)| count(number as usize, noun));
                format!("{messages}, {bytes}, {lines} of text, {damaged} damaged\n")
            }
        };
        self.entries.add(|out| out.extend_from_slice(text.as_bytes()));
    }
}

/// Why nothing more is written or counted.
fn not_understood(error: pipework::Error) -> String {
    let why = match error.kind() {
        ErrorKind::Corrupt => "what comes is no message; if text shares the pipe, --mixed is needed".into(),
        _ => error.to_string(),
    };
    format!("{why}; the stream goes on, but from here on nothing is written or counted")
}
