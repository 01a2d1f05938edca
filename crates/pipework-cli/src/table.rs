//! Text in columns for people, and numbers and names in words that fit there.
//!
//! Names of files and of processes come from strangers: characters that would move a terminal's
//! cursor are shown escaped.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Alignment of a column's text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a heading, each column as wide as its widest cell, two spaces between them. The last
/// column is as long as it is.
pub(crate) fn table<const N: usize>(columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: [usize; N] = std::array::from_fn(|n| {
        rows.iter().map(|row| width(&row[n])).chain([width(columns[n].0)]).max().unwrap_or(0)
    });
    let mut text = String::new();
    let heading = columns.map(|(name, _)| name.to_string());
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (n, cell) in row.iter().enumerate() {
            let space = " ".repeat(widths[n] - width(cell));
            match columns[n].1 {
                Align::Left => line.extend([cell.as_str(), &space]),
                Align::Right => line.extend([&space, cell.as_str()]),
            }
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A name without control characters.
pub(crate) fn plain(name: &str) -> String {
    without(name, char::is_control)
}

/// Text of several lines without control characters that a terminal would obey.
pub(crate) fn plain_lines(text: &str) -> String {
    without(text, |character| character.is_control() && !matches!(character, '\n' | '\t'))
}

fn without(name: &str, is_meant: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match is_meant(character) {
            true => write!(text, "\\x{:02x}", u32::from(character)).expect("a String takes all"),
            false => text.push(character),
        }
    }
    text
}

/// A path for people.
pub(crate) fn path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// For how long it has been, in one unit: 45s, 12m, 3h, 9d.
pub(crate) fn age(since: Option<SystemTime>) -> String {
    // A clock that was set back.
    since.map_or("-".into(), |since| span(since.elapsed().unwrap_or(Duration::ZERO)))
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds}s"),
        seconds @ 100..=5999 => format!("{}m", seconds / 60),
        seconds @ 6000..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A number and its noun: 1 server, 2 servers.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_its_columns() {
        let rows = [["1".to_string(), "a".into(), "x".into()], ["20".into(), "bcd".into(), String::new()]];
        let text = table([("N", Align::Right), ("AB", Align::Left), ("C", Align::Left)], &rows);
        assert_eq!(text, " N  AB   C\n 1  a    x\n20  bcd\n");
    }

    #[test]
    fn plain_escapes_and_span_rounds() {
        assert_eq!(plain("a\u{1b}[2Jb\nü"), "a\\x1b[2Jb\\x0aü");
        assert_eq!(plain_lines("a\u{1b}[2J\u{9b}1m\tb\nü"), "a\\x1b[2J\\x9b1m\tb\nü");
        let spans = [0, 99, 100, 5999, 6000, 172_799, 172_800].map(|s| span(Duration::from_secs(s)));
        assert_eq!(spans, ["0s", "99s", "1m", "99m", "1h", "47h", "2d"]);
        assert_eq!((count(1, "server"), count(0, "server")), ("1 server".into(), "0 servers".into()));
    }
}
