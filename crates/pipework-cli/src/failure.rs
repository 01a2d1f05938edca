//! Why the command failed, in words for its user, and the exit status that says the same to a
//! script.
//!
//! An error of the library or of the system becomes a `Failure` only together with the operation
//! that failed, or with advice; a bare error number never reaches the user.

use pipework::ErrorKind;
use std::fmt::{self, Display};
use std::io;

/// The command line was not understood.
pub(crate) const USAGE: u8 = 2;
/// The work was done, but damaged messages were reported.
pub(crate) const DAMAGE: u8 = 3;
/// The worker that had a request has died.
pub(crate) const DIED: u8 = 4;
/// The channel has no server.
pub(crate) const NO_WORKER: u8 = 5;
/// Fewer messages came than `--count` asks for.
pub(crate) const FEWER: u8 = 6;
/// The time given by `--timeout` is over (the status of timeout(1)).
pub(crate) const TIMEOUT: u8 = 124;
/// The reader of our standard output has left (the status of a command that SIGPIPE ended).
pub(crate) const CLOSED: u8 = 141;

/// How the command ends when it has not failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// With this exit status.
    Status(u8),
    /// By the signal that has stopped it.
    Signal(i32),
}

impl From<u8> for Ending {
    fn from(status: u8) -> Self {
        Self::Status(status)
    }
}

pub(crate) const STDOUT: &str = "standard output";
pub(crate) const STDERR: &str = "standard error";

/// A failure to report: text for standard error, and an exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    /// Empty: the status says all.
    text: String,
}

impl Failure {
    /// A failure with exit status 1.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { status: 1, text: text.into() }
    }

    /// The time of `--timeout` is over.
    pub(crate) fn timeout(text: impl Into<String>) -> Self {
        Self { status: TIMEOUT, text: text.into() }
    }

    /// Standard output has failed. A reader who has left has seen enough, as with any filter: that
    /// ends the command without a word.
    pub(crate) fn stdout(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(CLOSED),
            _ => at(STDOUT)(error),
        }
    }

    /// The same with another exit status.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// The same with more words.
    pub(crate) fn and(self, words: impl Display) -> Self {
        Self { text: format!("{}; {words}", self.text), ..self }
    }

    /// All has been said; only the exit status remains.
    pub(crate) fn silent(status: u8) -> Self {
        Self { status, text: String::new() }
    }

    /// It has no text.
    pub(crate) fn is_silent(&self) -> bool {
        self.text.is_empty()
    }

    /// The exit status for it.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Names the subject of a system error, for `map_err`: "PATH: No such file or directory".
pub(crate) fn at(what: impl Display) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(format!("{what}: {}", words(error)))
}

/// An error without the system's number for it, which the words before it say already.
pub(crate) fn words(error: impl Display) -> String {
    let text = error.to_string();
    text.split_once(" (os error ").map_or(text.as_str(), |(words, _)| words).into()
}

/// Names the subject of an error of the library, for `map_err`, in words of the command's options.
pub(crate) fn during<E: Into<pipework::Error>>(what: impl Display) -> impl FnOnce(E) -> Failure {
    move |error| {
        let error = error.into();
        match (error.explanation(), error.errno()) {
            (Some(text), _) => Failure::new(format!("{what}: {}", of_the_command(text))),
            (_, Some(number)) => at(what)(io::Error::from_raw_os_error(number)),
            _ => Failure::new(format!("{what}: {}", words(error))),
        }
    }
}

/// Settings of the library, by the names of the command's options.
pub(crate) fn of_the_command(text: &str) -> String {
    text.replace("`mixed`", "--mixed").replace("`zstd`", "--zstd")
}

/// Repeats a call that a signal interrupted. Its deadline is absolute, so the wait gets no longer.
pub(crate) fn uninterrupted<T, E>(mut call: impl FnMut() -> Result<T, E>) -> Result<T, E>
where
    E: Clone + Into<pipework::Error>,
{
    loop {
        match call() {
            Err(error) if error.clone().into().kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Why a descriptor was refused, in the words that help: almost always it is something else.
pub(crate) fn no_pipe(error: pipework::Error) -> String {
    match (error.explanation(), error.kind()) {
        (Some(text), _) => of_the_command(text),
        (_, ErrorKind::Invalid) => "it is not a pipe that is open that way".into(),
        _ => words(error),
    }
}
