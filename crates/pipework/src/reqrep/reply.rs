//! The outcome of a call: its reply, or the reason why it has none.

use std::fmt;
use std::ops::Deref;

use super::word::Ticket;
use crate::blob::Blob;
use crate::error::{Error, ErrorKind};
use crate::segment::message::Payload;
use crate::segment::naming::Blobs;

/// The bytes that a server answered with. It dereferences to them: to a copy, or to the blob that
/// carried a long reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) payload: Payload,
    pub(super) flags: u32,
    pub(super) blobs: Blobs,
}

impl Reply {
    /// The blobs that the server has [attached](super::Message::attach).
    pub fn blobs(&self) -> &[Blob] {
        self.blobs.as_slice()
    }

    /// The 32 bits that the server sent with it.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Its bytes as a vector. Those that came in a blob are copied.
    pub fn into_vec(self) -> Vec<u8> {
        self.payload.into_vec()
    }

    /// Replaces the contents of `into` with its bytes. Returns its flags.
    pub(super) fn move_to(self, into: &mut Vec<u8>) -> u32 {
        let flags = self.flags;
        *into = self.into_vec();
        flags
    }

    pub(super) fn empty() -> Reply {
        Reply { payload: Payload::empty(), flags: 0, blobs: Blobs::default() }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn from_vec(bytes: Vec<u8>, flags: u32) -> Reply {
        Reply { payload: Payload::from_vec(bytes), flags, blobs: Blobs::default() }
    }
}

/// Compares bytes and flags.
impl PartialEq for Reply {
    fn eq(&self, other: &Reply) -> bool {
        **self == **other && self.flags == other.flags
    }
}

impl Eq for Reply {}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.payload
    }
}

/// Why a call has no reply: an [`Error`], and the server's reason if it
/// [failed](super::Request::fail) the call.
///
/// `?` turns it into an [`Error`], which leaves the reason out, and into `Box<dyn Error>`. It is
/// displayed as `reqrep call: the other side gave up: out of paper`.
#[derive(Clone, PartialEq, Eq)]
pub struct CallError {
    error: Error,
    /// Boxed, because a call rarely fails and its result is moved often.
    reason: Option<Box<Reply>>,
}

impl CallError {
    pub(super) fn failed(reason: Reply, op: &'static str) -> CallError {
        let reason = (!reason.is_empty() || reason.flags() != 0).then(|| Box::new(reason));
        CallError { error: Error::new(ErrorKind::Failed, op), reason }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The error without the reason.
    pub fn error(&self) -> Error {
        self.error
    }

    /// The server's reason, if the kind is [`Failed`](ErrorKind::Failed); `None` if it gave none.
    pub fn reason(&self) -> Option<&Reply> {
        self.reason.as_deref()
    }

    /// As [`Error::during`].
    #[doc(hidden)]
    pub fn during(self, op: &'static str) -> CallError {
        CallError { error: self.error.during(op), ..self }
    }

    /// As [`reason`](CallError::reason), without a copy.
    pub fn into_reason(self) -> Option<Reply> {
        self.reason.map(|reason| *reason)
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason().map(|reason| String::from_utf8_lossy(reason));
        f.debug_struct("CallError").field("error", &self.error).field("reason", &reason).finish()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let Some(reason) = self.reason() else { return Ok(()) };
        f.write_str(": ")?;
        // Control characters of another process must not reach a terminal.
        for char in String::from_utf8_lossy(reason).chars() {
            if char.is_control() { write!(f, "{}", char.escape_debug())? } else { write!(f, "{char}")? }
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        CallError { error, reason: None }
    }
}

impl From<CallError> for Error {
    /// Leaves out the reason.
    fn from(error: CallError) -> Error {
        error.error
    }
}

impl From<CallError> for std::io::Error {
    fn from(error: CallError) -> std::io::Error {
        let kind = std::io::Error::from(error.error).kind();
        std::io::Error::new(kind, error)
    }
}

/// The reply of a call, or why it has none.
pub(super) type Answer<T = Reply> = std::result::Result<T, CallError>;

/// A call that has ended: what [`Client::recv_any`](super::Client::recv_any) returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The ticket of the call. It is over now.
    pub ticket: Ticket,
    /// Its reply, or why it has none.
    pub result: std::result::Result<Reply, CallError>,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_error_shows_its_reason_without_control_characters() {
        let reason = Reply::from_vec("pa\u{1b}[2Jß\nper".into(), 0);
        let error = CallError::failed(reason, "reqrep call");
        assert_eq!(error.to_string(), "reqrep call: the other side gave up: pa\\u{1b}[2Jß\\nper");
        assert_eq!(CallError::failed(Reply::empty(), "reqrep call").reason().map(|_| ()), None);
    }

    #[test]
    fn question_marks_turn_a_call_error_into_an_error() {
        fn plain() -> crate::Result<()> {
            Err(CallError::failed(Reply::empty(), "reqrep call"))?
        }
        fn boxed() -> Result<(), Box<dyn std::error::Error>> {
            Err(CallError::failed(Reply::from_vec(vec![b'x'], 0), "reqrep call"))?
        }
        assert_eq!(plain().map_err(|error| error.kind()), Err(ErrorKind::Failed));
        assert_eq!(boxed().unwrap_err().to_string(), "reqrep call: the other side gave up: x");
        assert!(size_of::<CallError>() <= 32);
    }
}
