//! The output for a person at a terminal besides the data: a counter while it runs, a summary at
//! its end.
//!
//! All of it goes to standard error and only if that is a terminal, so a pipe or a log gets
//! nothing. The counter is left out when standard output is a terminal too, where it would run into
//! the data, and by a sender into standard output, for the receiver at the other end has one.

use crate::streams::{self, Stream};
use crate::{table, words};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// How often the counter is drawn, at most.
const INTERVAL: Duration = Duration::from_millis(200);

/// Counts messages and bytes, and shows them to a terminal.
pub(crate) struct Progress {
    /// The verb for the messages: "sent", "received".
    verb: &'static str,
    summary: bool,
    counter: bool,
    started: Instant,
    /// When the counter was drawn last; it stands on the terminal since then.
    drawn: Option<Instant>,
    messages: u64,
    bytes: u64,
}

impl Progress {
    pub(crate) fn new(verb: &'static str, quiet: bool) -> Self {
        let summary = !quiet && streams::stderr().is_terminal();
        Self {
            verb,
            summary,
            counter: summary && !streams::stdout().is_ok_and(Stream::is_terminal),
            started: Instant::now(),
            drawn: None,
            messages: 0,
            bytes: 0,
        }
    }

    /// The same without a counter.
    pub(crate) fn without_counter(self) -> Self {
        Self { counter: false, ..self }
    }

    /// Counts messages, and draws the counter when its time has come.
    pub(crate) fn add(&mut self, messages: u64, bytes: u64) {
        self.messages += messages;
        self.bytes += bytes;
        if self.counter && self.drawn.unwrap_or(self.started).elapsed() >= INTERVAL {
            self.drawn = Some(Instant::now());
            words::put_if_idle(&format!("\r\x1b[K{}", self.text()));
        }
    }

    /// Prints a line for standard error, clear of the counter.
    pub(crate) fn warn(&self, text: impl Display) {
        words::put(&self.warning(text));
    }

    /// The line that `warn` prints.
    pub(crate) fn warning(&self, text: impl Display) -> String {
        format!("{}{}", self.clear(), marked(text))
    }

    /// Messages counted so far.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Ends the counter and prints the summary.
    pub(crate) fn finish(self) {
        if self.summary {
            words::put(&format!("{}{}\n", self.clear(), self.text()));
        }
    }

    /// The text that removes the counter from the terminal.
    fn clear(&self) -> &'static str {
        if self.drawn.is_some() { "\r\x1b[K" } else { "" }
    }

    fn text(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        format!(
            "{} {} {}, {} in {seconds:.1} s",
            self.verb,
            grouped(self.messages),
            if self.messages == 1 { "message" } else { "messages" },
            size(self.bytes),
        )
    }
}

/// Prints a line on standard error, marked as ours.
pub(crate) fn say(text: impl Display) {
    words::put(&marked(text));
}

/// A line for standard error, marked as ours. Paths, reasons and names in it come from strangers.
fn marked(text: impl Display) -> String {
    format!("pipework: {}\n", table::plain_lines(&text.to_string()))
}

/// Tells a person that the command waits for them.
pub(crate) fn invite(quiet: bool, text: &str) {
    if !quiet && streams::stdin().is_ok_and(Stream::is_terminal) {
        say(text);
    }
}

/// A number with its thousands set apart: 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes for reading, in decimal units: 1.5 MB.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 999.95 {
        match units.next() {
            Some(next) => (value, unit) = (value / 1000.0, next),
            None => break,
        }
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_separates_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1000), "1.0 kB");
        assert_eq!(size(999_960), "1.0 MB");
        assert_eq!(size(32_000_000), "32.0 MB");
    }
}
