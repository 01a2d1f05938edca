//! One error for every module and every binding.
//!
//! An [`Error`] holds a kind, the operation that failed and, if the kernel refused, the kernel's
//! error number. It is `Copy` and holds no allocation, so it can be stored and passed on freely.
//! The number of an [`ErrorKind`] is the code that the C library returns.

use std::fmt;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error, from a fixed list that all languages share.
///
/// The discriminant is the C code; it never changes once released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operation cannot be done at once, and the caller did not ask to wait.
    WouldBlock = 1,
    /// The deadline passed first. The rest of the operation was not done.
    TimedOut = 2,
    /// A signal handler ran while waiting. Nothing is lost; call again.
    Interrupted = 3,
    /// The other side is gone: end of file for a reader, no reader for a writer.
    Closed = 4,
    /// Larger than a limit that was set on this end.
    TooLong = 5,
    /// The handle or ticket is no longer valid: it has ended, or belongs to another process.
    Stale = 6,
    /// The process that was handling the request has died. This is detected within 250 ms of the
    /// kernel closing that process's files, which happens after a core dump.
    PeerDied = 7,
    /// No server is attached to take the request.
    NoServer = 8,
    /// A message of which a part never arrived.
    Torn = 9,
    /// Bytes that no correct peer writes.
    Corrupt = 10,
    /// Made by a build or a machine that this build cannot work with.
    Incompatible = 11,
    /// This kernel or this kind of descriptor does not support the operation.
    Unsupported = 12,
    /// The caller asked for something that has no meaning.
    Invalid = 13,
    /// Any other error of the kernel; [`Error::errno`] says which.
    Os = 14,
    /// The other side gave up: a server gave up its request, or the other end of a pipe its stream.
    Failed = 15,
    /// Messages are gone that a subscriber had not received, because it was too slow.
    Lagged = 16,
}

impl ErrorKind {
    /// Every kind, in the order of the numbers, which begin with 1.
    pub const ALL: &[ErrorKind] = &[
        ErrorKind::WouldBlock,
        ErrorKind::TimedOut,
        ErrorKind::Interrupted,
        ErrorKind::Closed,
        ErrorKind::TooLong,
        ErrorKind::Stale,
        ErrorKind::PeerDied,
        ErrorKind::NoServer,
        ErrorKind::Torn,
        ErrorKind::Corrupt,
        ErrorKind::Incompatible,
        ErrorKind::Unsupported,
        ErrorKind::Invalid,
        ErrorKind::Os,
        ErrorKind::Failed,
        ErrorKind::Lagged,
    ];

    fn text(self) -> &'static str {
        match self {
            ErrorKind::WouldBlock => "the operation would block",
            ErrorKind::TimedOut => "the deadline has passed",
            ErrorKind::Interrupted => "interrupted by a signal",
            ErrorKind::Closed => "the other side is closed",
            ErrorKind::TooLong => "larger than the limit",
            ErrorKind::Stale => "the ticket or handle is no longer valid",
            ErrorKind::PeerDied => "the peer has died",
            ErrorKind::NoServer => "no server is attached",
            ErrorKind::Torn => "a part of the message never came",
            ErrorKind::Corrupt => "malformed data",
            ErrorKind::Incompatible => "incompatible",
            ErrorKind::Unsupported => "not supported here",
            ErrorKind::Invalid => "invalid argument",
            ErrorKind::Os => "the system call failed",
            ErrorKind::Failed => "the other side gave up",
            ErrorKind::Lagged => "messages were missed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A more exact reason, for errors whose kind alone leaves the caller guessing. It describes the
/// fault. The documentation, the command or the package says how to fix it, because only they know
/// the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Explanation {
    SentPlain = 1,
    SentMixed,
    SentCompressed,
    NoMessages,
    OtherDirection,
    BothDirections,
    ReadTerminal,
    ReadFile,
    ReadDevice,
    WriteTerminal,
    WriteFile,
    WriteDevice,
    OtherSocket,
    OtherMount,
    OtherSize,
    NoPlace,
    BlobsHeld,
    BlobsCopied,
    TooManyBlobs,
}

impl Explanation {
    const ALL: [(Explanation, &str); 19] = [
        (Explanation::SentPlain, "the data was sent without `mixed`: is `mixed` set on both sides?"),
        (Explanation::SentMixed, "the data was sent with `mixed`: is `mixed` set on both sides?"),
        (Explanation::SentCompressed, "the data was sent compressed: is `zstd` set on both sides?"),
        (Explanation::NoMessages, "the data is not a message: is `mixed` set on both sides?"),
        (Explanation::OtherDirection, "it is open for the other direction only"),
        (Explanation::BothDirections, "it can be read and written: say which end to use"),
        (Explanation::ReadTerminal, "it is a terminal, not a pipe, FIFO or Unix stream socket"),
        (Explanation::ReadFile, "it is a file, not a pipe, FIFO or Unix stream socket"),
        (Explanation::ReadDevice, "it is a device or a folder, not a pipe, FIFO or Unix stream socket"),
        (Explanation::WriteTerminal, "it is a terminal, where no reader decodes messages"),
        (Explanation::WriteFile, "it is a file, where no reader decodes messages"),
        (Explanation::WriteDevice, "it is a device, where no reader decodes messages"),
        (Explanation::OtherSocket, "it is a socket, but not a connected Unix stream socket"),
        (Explanation::OtherMount, "it is a copy, or was made through another path or mount"),
        (Explanation::OtherSize, "the segment has another size than requested"),
        (Explanation::NoPlace, "all places for members are taken"),
        (Explanation::TooManyBlobs, "the channel was made for fewer `blobs` a message"),
        (Explanation::BlobsHeld, "this process holds as many bytes of blobs as `blob_limit` allows"),
        (
            Explanation::BlobsCopied,
            "the message's blobs must be copied, and have more bytes than `max_message`",
        ),
    ];
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Explanation::ALL.iter().find(|(known, _)| known == self).map_or("", |(_, text)| text);
        f.write_str(text)
    }
}

/// A failed operation: its kind, its name and, if the kernel reported an error, the kernel's
/// number.
///
/// It is displayed as `atomic send: the other side is closed: Broken pipe (os error 32)`. If it has
/// an [explanation](Error::explanation), that replaces the text of the kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    op: &'static str,
    /// A positive number is the kernel's; a negative one is an [`Explanation`], or from [`PROCESS`] down a
    /// process. One field for all keeps an error at three words.
    detail: i32,
}

impl Error {
    pub(crate) const fn new(kind: ErrorKind, op: &'static str) -> Error {
        Error { kind, op, detail: 0 }
    }

    pub(crate) const fn with_explanation(
        kind: ErrorKind,
        op: &'static str,
        explanation: Explanation,
    ) -> Error {
        Error { kind, op, detail: -(explanation as i32) }
    }

    pub(crate) const fn with_errno(kind: ErrorKind, op: &'static str, errno: i32) -> Error {
        Error { kind, op, detail: errno }
    }

    /// The same error of an operation that has waited for this process.
    pub(crate) fn waited_for(self, process: u32) -> Error {
        Error { detail: PROCESS.saturating_sub_unsigned(process), ..self }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operation that failed, for instance `"atomic send"`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The kernel's error number, if the kernel reported one.
    pub fn errno(&self) -> Option<i32> {
        (self.detail > 0).then_some(self.detail)
    }

    /// A more exact reason than the kind gives, in words for the person who set it up; `None` if
    /// the kind says all.
    pub fn explanation(&self) -> Option<&'static str> {
        explanation_of(self.detail)
    }

    /// The id of the process that the operation has waited for, as that process itself knows it.
    pub fn process(&self) -> Option<u32> {
        process_of(self.detail)
    }

    pub(crate) fn is_explained(&self, explanation: Explanation) -> bool {
        self.detail == -(explanation as i32)
    }

    /// The part of an error beside kind and operation, as one number: [`describe`] turns the three
    /// into text again.
    #[doc(hidden)]
    pub fn detail(&self) -> i32 {
        self.detail
    }

    /// The same failure, named after the operation that this one was a step of. For bindings.
    #[doc(hidden)]
    pub fn during(self, op: &'static str) -> Error {
        Error { op, ..self }
    }
}

/// The largest number that stands for a process. The kernel's ids have 22 bits.
const PROCESS: i32 = -1_000_000;

/// [`Error::process`] of an error that was taken apart.
#[doc(hidden)]
pub fn process_of(detail: i32) -> Option<u32> {
    (detail <= PROCESS).then(|| PROCESS.abs_diff(detail))
}

fn explanation_of(detail: i32) -> Option<&'static str> {
    let is_it = |(known, _): &&(Explanation, &'static str)| *known as i32 == -detail;
    Explanation::ALL.iter().find(is_it).map(|(_, text)| *text)
}

/// The text of an error that was taken apart, for other languages.
#[doc(hidden)]
pub fn describe(f: &mut impl fmt::Write, kind: ErrorKind, op: &str, detail: i32) -> fmt::Result {
    if let Some(explanation) = explanation_of(detail) {
        return write!(f, "{op}: {explanation}");
    }
    write!(f, "{op}: {kind}")?;
    if let Some(process) = process_of(detail) {
        return write!(f, " while it waited for process {process}");
    }
    match detail {
        errno @ 1.. => write!(f, ": {}", std::io::Error::from_raw_os_error(errno)),
        _ => Ok(()),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("op", &self.op)
            .field("errno", &self.errno())
            .field("explanation", &self.explanation())
            .field("process", &self.process())
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.kind, self.op, self.detail)
    }
}

impl std::error::Error for Error {}

/// An error, and how far the operation had got. The part that is done stays done: to retry,
/// continue after it.
///
/// It is displayed as `pipe send: the deadline has passed; 4096 done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Bytes that were moved; for calls on datagrams, whole datagrams.
    pub done: u64,
    /// The error that stopped it.
    pub error: Error,
}

impl Unfinished {
    /// The kind of the error.
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
    /// Drops `done`.
    fn from(unfinished: Unfinished) -> Error {
        unfinished.error
    }
}

impl From<Unfinished> for std::io::Error {
    /// Drops `done`.
    fn from(unfinished: Unfinished) -> std::io::Error {
        unfinished.error.into()
    }
}

impl From<Error> for std::io::Error {
    /// Keeps the operation's name in the text; the kind becomes the nearest one of
    /// `std::io::ErrorKind`.
    fn from(error: Error) -> std::io::Error {
        use std::io::ErrorKind as Io;
        let kind = match error.kind {
            ErrorKind::WouldBlock => Io::WouldBlock,
            ErrorKind::TimedOut => Io::TimedOut,
            ErrorKind::Interrupted => Io::Interrupted,
            ErrorKind::Closed => Io::BrokenPipe,
            ErrorKind::TooLong | ErrorKind::Invalid => Io::InvalidInput,
            ErrorKind::Torn => Io::UnexpectedEof,
            ErrorKind::Corrupt | ErrorKind::Incompatible => Io::InvalidData,
            ErrorKind::PeerDied => Io::ConnectionReset,
            ErrorKind::NoServer => Io::NotConnected,
            ErrorKind::Unsupported => Io::Unsupported,
            ErrorKind::Stale | ErrorKind::Failed | ErrorKind::Lagged => Io::Other,
            ErrorKind::Os => std::io::Error::from_raw_os_error(error.detail).kind(),
        };
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_the_operation_and_the_errno() {
        let error = Error::with_errno(ErrorKind::Closed, "atomic send", 32);
        assert_eq!(error.to_string(), "atomic send: the other side is closed: Broken pipe (os error 32)");
        assert_eq!(
            Error::new(ErrorKind::Torn, "atomic recv").to_string(),
            "atomic recv: a part of the message never came"
        );
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn display_shows_the_explanation_instead_of_the_kind() {
        for (explanation, text) in Explanation::ALL {
            let error = Error::with_explanation(ErrorKind::Invalid, "atomic recv", explanation);
            assert_eq!((error.explanation(), error.errno()), (Some(text), None));
            assert_eq!(error.to_string(), format!("atomic recv: {text}"));
        }
        let without = Error::new(ErrorKind::Invalid, "atomic recv");
        assert_eq!((without.explanation(), without.errno()), (None, None));
        assert_eq!(Error::with_errno(ErrorKind::Os, "atomic recv", 5).explanation(), None);
    }

    #[test]
    fn every_kind_has_its_number_and_its_errno() {
        // Other languages and other programs store these numbers, so they must not change.
        const ERRNOS: [(ErrorKind, i32); 16] = [
            (ErrorKind::WouldBlock, libc::EAGAIN),
            (ErrorKind::TimedOut, libc::ETIMEDOUT),
            (ErrorKind::Interrupted, libc::EINTR),
            (ErrorKind::Closed, libc::EPIPE),
            (ErrorKind::TooLong, libc::EMSGSIZE),
            (ErrorKind::Stale, libc::ESTALE),
            (ErrorKind::PeerDied, libc::ECONNRESET),
            (ErrorKind::NoServer, libc::ENOTCONN),
            (ErrorKind::Torn, libc::EBADMSG),
            (ErrorKind::Corrupt, libc::EBADMSG),
            (ErrorKind::Incompatible, libc::EPROTO),
            (ErrorKind::Unsupported, libc::EOPNOTSUPP),
            (ErrorKind::Invalid, libc::EINVAL),
            (ErrorKind::Os, libc::EIO),
            (ErrorKind::Failed, libc::ECANCELED),
            (ErrorKind::Lagged, libc::ENOBUFS),
        ];
        assert_eq!(ErrorKind::ALL, ERRNOS.map(|(kind, _)| kind));
        for (number, (kind, errno)) in (1..).zip(ERRNOS) {
            assert_eq!((kind as i32, kind.errno()), (number, errno), "{kind:?}");
        }
    }

    #[test]
    fn error_is_small_enough_to_copy() {
        assert!(size_of::<Error>() <= 24);
    }
}
