//! How an operation that moves much fails: with what had been done by then.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::sys::Errno;

/// An error, and how far the operation had got. What is done is done: whoever tries again goes on from there.
///
/// It is displayed as `fd copy: the deadline has passed; 4096 done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Bytes that were moved, or whole datagrams where datagrams are.
    pub done: u64,
    /// What stopped it.
    pub error: Error,
}

impl Unfinished {
    pub(super) fn new(done: usize, errno: Errno, op: &'static str) -> Unfinished {
        Unfinished { done: done as u64, error: errno.at(op) }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} done", self.error, self.done)
    }
}

impl std::error::Error for Unfinished {}

impl From<Unfinished> for Error {
    /// Forgets how far it had got.
    fn from(unfinished: Unfinished) -> Error {
        unfinished.error
    }
}

impl From<Unfinished> for std::io::Error {
    /// Forgets how far it had got.
    fn from(unfinished: Unfinished) -> std::io::Error {
        unfinished.error.into()
    }
}
