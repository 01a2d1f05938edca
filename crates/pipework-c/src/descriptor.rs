//! The ways to pass a descriptor in.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::edge::{Name, Number};
use crate::error::Result;

/// How a function treats a descriptor that is passed in: one of PWK_FD_TAKE, PWK_FD_DUP and
/// PWK_FD_LEND.
pub type pwk_fd_how = u32;

/// It is the library's from then on, which closes it; also where the call fails.
pub const PWK_FD_TAKE: pwk_fd_how = 1;
/// It stays the program's; the library makes a duplicate for itself.
pub const PWK_FD_DUP: pwk_fd_how = 2;
/// It stays the program's, which keeps it open for as long as the handle lives.
pub const PWK_FD_LEND: pwk_fd_how = 3;

// ---------------------------------------------------------------- on this side

/// A descriptor as it was passed in.
pub(crate) enum Passed {
    Own(OwnedFd),
    Lent(BorrowedFd<'static>),
}

impl Passed {
    pub(crate) fn of(fd: Number, how: pwk_fd_how, name: Name) -> Result<Passed> {
        match how {
            PWK_FD_TAKE => fd.take(name).map(Passed::Own),
            PWK_FD_DUP => fd.duplicate(name).map(Passed::Own),
            PWK_FD_LEND => fd.lend_on().map(Passed::Lent),
            _ => Err(name.invalid()),
        }
    }
}
