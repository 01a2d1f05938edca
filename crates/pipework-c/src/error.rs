//! What a function returns, and the error that it fills in.

use std::ffi::c_char;

use pipework::{Error, ErrorKind, Unfinished};

/// How a call ended: PW_OK, or why it failed. The numbers never change.
pub type pw_status = i32;

/// It is done.
pub const PW_OK: pw_status = 0;
/// It cannot be done at once, and waiting was not asked for.
pub const PW_WOULD_BLOCK: pw_status = 1;
/// The deadline passed first. What the call had not done, it has not done.
pub const PW_TIMED_OUT: pw_status = 2;
/// A signal handler ran while the call waited. Nothing is lost; call again.
pub const PW_INTERRUPTED: pw_status = 3;
/// The other side is gone: the end of what there is to read, or nobody who reads.
pub const PW_CLOSED: pw_status = 4;
/// Larger than a limit that this end was given.
pub const PW_TOO_LONG: pw_status = 5;
/// The handle or the ticket belongs to a time that is over.
pub const PW_STALE: pw_status = 6;
/// The process that had the request has died.
pub const PW_PEER_DIED: pw_status = 7;
/// Nobody is there to take the request.
pub const PW_NO_SERVER: pw_status = 8;
/// A part of the message never came.
pub const PW_TORN: pw_status = 9;
/// Bytes that no correct peer writes.
pub const PW_CORRUPT: pw_status = 10;
/// Made by a build or a machine that this one cannot work with, or for another kind of call.
pub const PW_INCOMPATIBLE: pw_status = 11;
/// This kernel or this kind of descriptor cannot do it.
pub const PW_UNSUPPORTED: pw_status = 12;
/// The arguments have no meaning: NULL where it is not allowed, impossible sizes.
pub const PW_INVALID: pw_status = 13;
/// Any other refusal of the kernel; pw_error.os says which.
pub const PW_OS: pw_status = 14;
/// The other side gave up: a server its request, or a pipe's other end its stream.
pub const PW_FAILED: pw_status = 15;
/// A mistake of this library. Its text went to standard error.
pub const PW_BUG: pw_status = 255;

/// Why a call failed. A program that wants to know passes a pointer to one of its own; it is filled
/// in when the call fails, and left as it is otherwise.
#[repr(C)]
pub struct pw_error {
    /// What the call returned.
    pub kind: pw_status,
    /// The kernel's number, as in errno; 0 if the kernel had no part in it. A negative number is
    /// for pw_error_text.
    pub os: i32,
    /// How far the call had got, in bytes or items, where it does several.
    pub done: u64,
    /// The operation that failed, for instance "reqrep recv".
    pub op: [c_char; 48],
}

const _: () = assert!(size_of::<pw_error>() == 64, "as the first program was compiled");

// ---------------------------------------------------------------- on this side

/// What a function returns to [`run`](crate::edge::run).
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a function fails.
pub(crate) struct Failure {
    status: pw_status,
    op: &'static str,
    os: i32,
    done: u64,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, op: &'static str) -> Failure {
        Failure { status: kind as pw_status, op, os: 0, done: 0 }
    }

    pub(crate) fn no_memory(op: &'static str) -> Failure {
        Failure { os: libc::ENOMEM, ..Failure::new(ErrorKind::Os, op) }
    }

    /// What the standard library was refused.
    pub(crate) fn of_os(op: &'static str, errno: i32) -> Failure {
        let kind = if errno == libc::EBADF { ErrorKind::Invalid } else { ErrorKind::Os };
        Failure { os: errno, ..Failure::new(kind, op) }
    }

    pub(crate) fn bug(op: &'static str) -> Failure {
        Failure { status: PW_BUG, op, os: 0, done: 0 }
    }

    pub(crate) fn status(&self) -> pw_status {
        self.status
    }

    pub(crate) fn to_c(&self) -> pw_error {
        let mut op = [0; 48];
        // The last one stays NUL.
        op[..47].iter_mut().zip(self.op.bytes()).for_each(|(to, from)| *to = from as c_char);
        pw_error { kind: self.status, os: self.os, done: self.done, op }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { status: error.kind() as pw_status, op: error.op(), os: error.detail(), done: 0 }
    }
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Failure {
        Failure { done: unfinished.done, ..unfinished.error.into() }
    }
}
