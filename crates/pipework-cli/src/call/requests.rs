//! The source of requests: arguments, or standard input as a whole or record by record.

use super::args::CallArgs;
use crate::failure::{Failure, at};
use crate::progress::invite;
use crate::records::Records;
use crate::streams::{self, Stream};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

/// Requests, one after the other.
pub(super) enum Requests {
    Given(VecDeque<Vec<u8>>),
    /// Standard input is one.
    Whole(Option<Stream>),
    Records {
        /// `None` at its end.
        input: Option<Stream>,
        end: u8,
        records: Records,
    },
}

impl Requests {
    pub(super) fn new(args: &CallArgs, quiet: bool) -> Result<Self, Failure> {
        if !args.data.is_empty() {
            return Ok(Self::Given(args.data.iter().map(|data| data.clone().into_vec()).collect()));
        }
        let input = Some(streams::stdin()?);
        if args.lines || args.nul {
            invite(quiet, "reading requests from the terminal; Ctrl-D ends them");
            let end = if args.nul { 0 } else { b'\n' };
            return Ok(Self::Records { input, end, records: Records::new(end) });
        }
        invite(quiet, "reading the request from the terminal; Ctrl-D ends it");
        Ok(Self::Whole(input))
    }

    /// There may be more than one.
    pub(super) fn are_many(&self) -> bool {
        match self {
            Self::Given(given) => given.len() > 1,
            Self::Whole(_) => false,
            Self::Records { .. } => true,
        }
    }
}

impl Iterator for Requests {
    type Item = Result<Vec<u8>, Failure>;

    fn next(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        match self {
            Self::Given(given) => given.pop_front().map(Ok),
            Self::Whole(input) => {
                let mut content = Vec::new();
                let read = input.take()?.read_to_end(&mut content).map_err(at("standard input"));
                Some(read.map(|_| content))
            }
            Self::Records { input, end, records } => loop {
                if let Some(record) = records.first() {
                    let request = record.strip_suffix(&[*end]).unwrap_or(record).to_vec();
                    records.pass();
                    return Some(Ok(request));
                }
                let read = records.read(input.as_mut()?);
                match read {
                    Ok(true) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(false) => {
                        *input = None;
                        // A last record without an end.
                        return (records.len() > 0).then(|| Ok(records.rest().to_vec()));
                    }
                    Err(error) => {
                        *input = None;
                        return Some(Err(at("standard input")(error)));
                    }
                }
            },
        }
    }
}
