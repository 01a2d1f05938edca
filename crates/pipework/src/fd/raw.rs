//! Where plain integers come in: what the bindings of other languages need, and calls whose
//! soundness only the caller can guarantee.
//!
//! A program in another language names a descriptor by its number, and nothing keeps it open while
//! a call uses it. [`borrow`] checks what can be checked: a negative number is an error here, and
//! an unused number is an error in the call that follows (`Invalid`, EBADF).

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use crate::error::Result;
use crate::sys::file::{self, Closing};
use crate::sys::{Errno, net};

/// The descriptor with that number.
///
/// # Errors
///
/// `Invalid`, with EBADF, if the number is negative.
///
/// # Safety
///
/// No code closes the descriptor while the borrow is used: another file may get its number, and the
/// call would act on that file. If the number is not open in the first place, calls only fail.
pub unsafe fn borrow<'fd>(number: RawFd) -> Result<BorrowedFd<'fd>> {
    if number < 0 {
        return Err(Errno::BADF.at("fd borrow"));
    }
    // SAFETY: it is not negative, and the caller guarantees the rest.
    Ok(unsafe { file::borrow(number) })
}

/// Closes every open descriptor between two numbers, both included. `u32::MAX` is the largest
/// possible number.
///
/// # Errors
///
/// `Invalid` if `first` is larger than `last`; `Unsupported` if the kernel or a sandbox does not
/// know the call.
///
/// # Safety
///
/// No code uses one of these descriptors afterwards, nor closes it: a value that owns one must have
/// been forgotten, or leaked.
pub unsafe fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: the caller guarantees it.
    unsafe { file::close_range(first, last, Closing::Now) }.map_err(|errno| errno.at("fd close range"))
}

/// Marks every open descriptor between two numbers, both included, as close-on-exec.
///
/// # Errors
///
/// As with [`close_range`]. Requires Linux 5.11.
pub fn close_range_on_exec(first: u32, last: u32) -> Result<()> {
    // SAFETY: nothing is closed that this program could use.
    let done = unsafe { file::close_range(first, last, Closing::OnExec) };
    // If the numbers are in order, EINVAL means that the kernel does not know the flag to mark
    // instead of closing.
    let done =
        done.map_err(|errno| if errno == Errno::INVAL && first <= last { Errno::OPNOTSUPP } else { errno });
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
/// A few options take structures that hold addresses (`SO_ATTACH_FILTER`, those of netfilter). Any
/// address inside `value` must be valid for everything that the kernel does with it.
pub unsafe fn set_option_bytes(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: the caller guarantees it.
    unsafe { net::set_option(socket.as_fd(), level, name, value) }.map_err(|errno| errno.at("fd setsockopt"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;
    use crate::error::ErrorKind;
    use crate::sys::fault::{Fault, all_met, order};

    /// A number that no test's descriptor has.
    pub(in crate::fd) fn nobody() -> BorrowedFd<'static> {
        // SAFETY: it is never open.
        unsafe { borrow(0x7FFF_FFF0) }.unwrap()
    }

    #[test]
    fn borrow_refuses_negative_numbers() {
        for number in [-1, -100, i32::MIN] {
            // SAFETY: nothing is borrowed.
            let error = unsafe { borrow(number) }.unwrap_err();
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Invalid, Some(libc::EBADF)));
        }
        let (read, _write) = std::io::pipe().unwrap();
        // SAFETY: it stays open for as long as it is borrowed.
        assert_eq!(unsafe { borrow(read.as_raw_fd()) }.unwrap().as_raw_fd(), read.as_raw_fd());
    }

    #[test]
    fn close_range_marks_and_closes_descriptors() {
        // Numbers that no other test of this process reaches.
        let (first, last) = (900, 903);
        let (read, _write) = std::io::pipe().unwrap();
        let numbers: Vec<i32> = (first..=last)
            .map(|number| {
                let high = rustix::io::fcntl_dupfd_cloexec(&read, number).unwrap().into_raw_fd();
                assert_eq!(high, number, "no other test uses these numbers");
                high
            })
            .collect();
        // SAFETY: the borrowed descriptor is open, or is never used again.
        let flags = |number: &i32| rustix::io::fcntl_getfd(unsafe { borrow(*number) }.unwrap());
        for number in &numbers {
            // SAFETY: as above.
            let fd = unsafe { borrow(*number) }.unwrap();
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
        }
        match close_range_on_exec(first as u32, 901) {
            Ok(()) => {
                let marked = [true, true, false, false];
                let cloexec = |number| flags(number).unwrap().contains(rustix::io::FdFlags::CLOEXEC);
                assert_eq!(numbers.iter().map(cloexec).collect::<Vec<_>>(), marked);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
        }
        // SAFETY: no value owns these numbers.
        unsafe { close_range(first as u32, last as u32) }.unwrap();
        assert!(numbers.iter().all(|number| flags(number) == Err(rustix::io::Errno::BADF)));
    }

    #[test]
    fn close_range_reports_invalid_ranges_and_missing_support() {
        assert_eq!(close_range_on_exec(2, 1).unwrap_err().kind(), ErrorKind::Invalid);
        // SAFETY: the kernel refuses it.
        assert_eq!(unsafe { close_range(2, 1) }.unwrap_err().kind(), ErrorKind::Invalid);
        for errno in [libc::EINVAL, libc::ENOSYS] {
            order("close_range", 0, Fault::Errno(errno));
            assert_eq!(close_range_on_exec(u32::MAX, u32::MAX).unwrap_err().kind(), ErrorKind::Unsupported);
            assert!(all_met());
        }
    }

    #[test]
    fn set_option_bytes_sets_an_option() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut seconds, mut got) = ([0; 16], [1; 64]);
        seconds[0] = 7;
        // SAFETY: a timeval holds no address.
        let set =
            |value: &[u8]| unsafe { set_option_bytes(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value) };
        set(&seconds).unwrap();
        let len = crate::fd::option_bytes(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &mut got).unwrap();
        assert_eq!(got[..len], seconds);
        assert_eq!(set(&seconds[..3]).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
