//! The status that a function returns, and the error that it fills in.

use std::ffi::c_char;

use pipework::broadcast::RecvError;
use pipework::reqrep::CallError;
use pipework::{Error, ErrorKind, Unfinished};

/// How a call ended: PWK_OK, or why it failed. The numbers never change.
pub type pwk_status = i32;

/// It is done.
pub const PWK_OK: pwk_status = 0;
/// It cannot be done at once, and waiting was not asked for.
pub const PWK_WOULD_BLOCK: pwk_status = 1;
/// The deadline passed first. Work that the call had not done by then is not done.
pub const PWK_TIMED_OUT: pwk_status = 2;
/// A signal handler ran while the call waited. Nothing is lost; call again. (Only pwk_client_call,
/// under each of its names, has cancelled its call, which a server may have carried out.)
pub const PWK_INTERRUPTED: pwk_status = 3;
/// The other side is gone: no more bytes to read, or no reader.
pub const PWK_CLOSED: pwk_status = 4;
/// Larger than a limit that this end was given.
pub const PWK_TOO_LONG: pwk_status = 5;
/// The handle or the ticket belongs to a time that is over.
pub const PWK_STALE: pwk_status = 6;
/// The process that had the request has died.
pub const PWK_PEER_DIED: pwk_status = 7;
/// No server is there to take the request.
pub const PWK_NO_SERVER: pwk_status = 8;
/// A part of the message never came.
pub const PWK_TORN: pwk_status = 9;
/// Bytes that no correct peer writes.
pub const PWK_CORRUPT: pwk_status = 10;
/// Made by a build or a machine that this one cannot work with, or for another kind of call.
pub const PWK_INCOMPATIBLE: pwk_status = 11;
/// This kernel or this kind of descriptor cannot do it.
pub const PWK_UNSUPPORTED: pwk_status = 12;
/// The arguments have no meaning: NULL where it is not allowed, impossible sizes.
pub const PWK_INVALID: pwk_status = 13;
/// Any other refusal of the kernel; pwk_error.os says which.
pub const PWK_OS: pwk_status = 14;
/// The other side gave up: a server its request, or a pipe's other end its stream.
pub const PWK_FAILED: pwk_status = 15;
/// Messages are gone that a subscriber had not received; pwk_error.done says how many.
pub const PWK_LAGGED: pwk_status = 16;
/// A mistake of this library. Its text went to standard error.
pub const PWK_BUG: pwk_status = 255;

/// Why a call failed. A program that wants to know passes a pointer to one of its own; it is filled
/// in when the call fails, and left as it is otherwise.
#[repr(C)]
pub struct pwk_error {
    /// The status that the call returned.
    pub kind: pwk_status,
    /// The kernel's number, as in errno; 0 if the kernel had no part in it. A negative number is
    /// for pwk_error_text.
    pub os: i32,
    /// How far the call had got, in bytes or items, where it does several; after PWK_LAGGED, how many
    /// messages were missed.
    pub done: u64,
    /// The operation that failed, for instance "reqrep recv".
    pub op: [c_char; 48],
}

const _: () = assert!(size_of::<pwk_error>() == 64, "as the first program was compiled");

// ---------------------------------------------------------------- on this side

/// The result of a closure that [`run`](crate::edge::run) calls.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a function fails.
pub(crate) struct Failure {
    status: pwk_status,
    op: &'static str,
    os: i32,
    done: u64,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, op: &'static str) -> Failure {
        Failure { status: kind as pwk_status, op, os: 0, done: 0 }
    }

    pub(crate) fn no_memory(op: &'static str) -> Failure {
        Failure { os: libc::ENOMEM, ..Failure::new(ErrorKind::Os, op) }
    }

    /// An error of the standard library.
    pub(crate) fn of_os(op: &'static str, errno: i32) -> Failure {
        let kind = if errno == libc::EBADF { ErrorKind::Invalid } else { ErrorKind::Os };
        Failure { os: errno, ..Failure::new(kind, op) }
    }

    pub(crate) fn bug(op: &'static str) -> Failure {
        Failure { status: PWK_BUG, op, os: 0, done: 0 }
    }

    pub(crate) fn status(&self) -> pwk_status {
        self.status
    }

    pub(crate) fn to_c(&self) -> pwk_error {
        let mut op = [0; 48];
        // The last one stays NUL.
        op[..47].iter_mut().zip(self.op.bytes()).for_each(|(to, from)| *to = from as c_char);
        pwk_error { kind: self.status, os: self.os, done: self.done, op }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { status: error.kind() as pwk_status, op: error.op(), os: error.detail(), done: 0 }
    }
}

impl From<CallError> for Failure {
    /// Leaves out the reason.
    fn from(error: CallError) -> Failure {
        error.error().into()
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Failure {
        Failure { done: error.missed().unwrap_or(0), ..Error::from(error).into() }
    }
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Failure {
        Failure { done: unfinished.done, ..unfinished.error.into() }
    }
}
