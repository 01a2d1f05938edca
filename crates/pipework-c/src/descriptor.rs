//! What becomes of a descriptor that is passed in.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::edge::{Name, Number};
use crate::error::Result;

/// What becomes of a descriptor that is passed in: one of PW_FD_TAKE, PW_FD_DUP and PW_FD_LEND.
pub type pw_fd_how = u32;

/// It is the library's from then on, which closes it; also where the call fails.
pub const PW_FD_TAKE: pw_fd_how = 1;
/// It stays the program's; the library makes a duplicate for itself.
pub const PW_FD_DUP: pw_fd_how = 2;
/// It stays the program's, which keeps it open for as long as the handle lives.
pub const PW_FD_LEND: pw_fd_how = 3;

// ---------------------------------------------------------------- on this side

/// A descriptor as it was passed in.
pub(crate) enum Passed {
    Own(OwnedFd),
    Lent(BorrowedFd<'static>),
}

impl Passed {
    pub(crate) fn of(fd: Number, how: pw_fd_how, name: Name) -> Result<Passed> {
        match how {
            PW_FD_TAKE => fd.take(name).map(Passed::Own),
            PW_FD_DUP => fd.duplicate(name).map(Passed::Own),
            PW_FD_LEND => fd.lend_on().map(Passed::Lent),
            _ => Err(name.invalid()),
        }
    }
}
