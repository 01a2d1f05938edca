//! Where plain integers come in: what the faces of other languages need, and whatever only its caller can promise to be sound.
//!
//! A program in another language names a descriptor by its number, and nobody keeps it open while a call uses it. [`borrow`] checks what can be
//! checked: a negative number is an error here, and a number that nobody has is one in the call that follows (`Invalid`, EBADF).

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use crate::error::Result;
use crate::sys::file::{self, Closing};
use crate::sys::{Errno, net};

/// The descriptor of that number.
///
/// # Errors
///
/// `Invalid`, with EBADF, if the number is negative.
///
/// # Safety
///
/// Nobody closes the descriptor while the borrow is used: another file may get its number, and the call would do its work there. If
/// the number is not open in the first place, calls fail and no more.
pub unsafe fn borrow<'fd>(number: RawFd) -> Result<BorrowedFd<'fd>> {
    if number < 0 {
        return Err(Errno::BADF.at("fd borrow"));
    }
    // SAFETY: it is not negative, and the caller promises the rest.
    Ok(unsafe { file::borrow(number) })
}

/// Closes every open descriptor between two numbers, both included. `u32::MAX` is the last there can be.
///
/// # Errors
///
/// `Invalid` if `first` is larger than `last`; `Unsupported` where the kernel or a sandbox does not know the call.
///
/// # Safety
///
/// Nobody uses one of these descriptors afterwards, nor closes it: a value that owns one must have been forgotten, or leaked.
pub unsafe fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: the caller promises it.
    unsafe { file::close_range(first, last, Closing::Now) }.map_err(|errno| errno.at("fd close range"))
}

/// Marks every open descriptor between two numbers, both included, as one to be closed when another program is executed.
///
/// # Errors
///
/// As with [`close_range`]. Linux 5.11 was the first to know how.
pub fn close_range_on_exec(first: u32, last: u32) -> Result<()> {
    // SAFETY: nothing is closed that this program could use.
    let done = unsafe { file::close_range(first, last, Closing::OnExec) };
    // Where the numbers are in order, what is invalid is the request to mark and not to close.
    let done = done.map_err(|errno| if errno == Errno::INVAL && first <= last { Errno::OPNOTSUPP } else { errno });
    done.map_err(|errno| errno.at("fd close range"))
}

/// Sets any socket option to the bytes of `value`.
///
/// # Errors
///
/// `Unsupported` if the socket has no such option.
///
/// # Safety
///
/// A few options take structures that hold addresses (`SO_ATTACH_FILTER`, those of netfilter). Whatever `value` holds there must be good for
/// what the kernel does with it.
pub unsafe fn set_option_bytes(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the caller promises it.
    unsafe { net::set_option(socket.as_fd(), level, name, value) }.map_err(|errno| errno.at("fd setsockopt"))
}
