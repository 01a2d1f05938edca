//! Options that subcommands share, and the parsers of their values. Each subcommand has its own
//! beside it.
//!
//! `--help`, the shell completions and the man pages are all made from these definitions, so they
//! cannot disagree. Users read this text: plain sentences, and an example for each thing that they
//! may want to do. Lines of help are at most 79 characters long and examples are indented, for
//! `man.rs` keeps both as they are: "Words:" alone on a line becomes a section.

use clap::{Args, ValueHint};
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How a receiver understands and limits messages.
#[derive(Args)]
pub(crate) struct ReadingArgs {
    /// Messages are compressed
    #[arg(long, short)]
    pub(crate) zstd: bool,

    /// Messages are compressed with this dictionary
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) dictionary: Option<PathBuf>,

    /// The largest message to accept, e.g. 64K, 10M or 1G (default 256M); a larger one is reported
    /// as damage
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_message: Option<usize>,

    /// If text shares the pipe: how long to wait for the rest of a part that has begun
    /// while no byte comes (default 5); a relay such as tee or ssh may cut it and stop for a while
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) frame_timeout: Option<Duration>,
}

impl ReadingArgs {
    /// Whether messages are compressed.
    pub(crate) fn has_zstd(&self) -> bool {
        self.zstd || self.dictionary.is_some()
    }
}

/// How messages are written out.
#[derive(Args)]
pub(crate) struct FormArgs {
    /// End each message (and in mixed mode each line) with a NUL byte
    #[arg(long, short = '0', group = "form")]
    pub(crate) nul: bool,

    /// Write each message (and in mixed mode each line) as one JSON object on a line
    #[arg(long, short, group = "form")]
    pub(crate) json: bool,
}

/// The values that `bytes` takes.
const BYTES: &str = "a number of bytes from 1, as in 4096, 64K, 10M or 1G";

/// The values that `seconds` takes.
const SECONDS: &str = "a number of seconds that is not negative, as in 5 or 0.25";

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok();
    number.and_then(|number| Duration::try_from_secs_f64(number).ok()).ok_or_else(|| SECONDS.into())
}

/// Understands a whole number in this range, which includes its ends.
pub(crate) fn number<T>(range: impl RangeBounds<T> + Clone) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(least), Bound::Included(most)) => {
                format!("a whole number from {least} to {most}")
            }
            (Bound::Included(least), _) => format!("a whole number from {least}"),
            _ => "a whole number".into(),
        })
    }
}

pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(BYTES.into()),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&number| number > 0)
        .ok_or_else(|| BYTES.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_parses_sizes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("10M"), Ok(10 << 20));
        assert_eq!(bytes("1G"), Ok(1 << 30));
        for wrong in ["", "0", "K", "-1", "1.5M", "10MB", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_parses_times() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "inf", "nan", "1s", "1e300"] {
            assert_eq!(seconds(wrong), Err(SECONDS.into()), "{wrong}");
        }
    }

    #[test]
    fn number_accepts_only_its_range() {
        let few = number(1..=200u8);
        assert_eq!(number(1u64..)("0"), Err("a whole number from 1".into()));
        assert_eq!((few("1"), few("200")), (Ok(1), Ok(200)));
        for wrong in ["0", "201", "256", "-1", "1.5", "one", ""] {
            assert_eq!(few(wrong), Err("a whole number from 1 to 200".into()), "{wrong}");
        }
    }
}
