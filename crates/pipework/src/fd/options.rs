//! Socket options by their numbers, as other languages name them. Rust programs have them by name
//! and type in rustix.

use std::os::fd::AsFd;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::net;

/// Reads an option that is an integer.
///
/// # Errors
///
/// `Unsupported` if the socket has no such option, `Incompatible` if its value is of another size.
pub fn option_number(socket: impl AsFd, level: i32, name: i32) -> Result<i32> {
    const OP: &str = "fd getsockopt";
    // There is space for more, so that a longer value is detected.
    let mut value = [0; 2 * size_of::<i32>()];
    match net::option(socket.as_fd(), level, name, &mut value) {
        Ok(4) => Ok(i32::from_ne_bytes([value[0], value[1], value[2], value[3]])),
        Ok(_) => Err(Error::new(ErrorKind::Incompatible, OP)),
        Err(errno) => Err(errno.at(OP)),
    }
}

/// Sets an option that is an integer.
///
/// # Errors
///
/// `Unsupported` if the socket has no such option.
pub fn set_option_number(socket: impl AsFd, level: i32, name: i32, value: i32) -> Result<()> {
    net::set_number(socket.as_fd(), level, name, value).map_err(|errno| errno.at("fd setsockopt"))
}

/// Reads the bytes of any option: fills the beginning of `value` and returns the option's length.
/// Bytes that do not fit are left out.
///
/// `value` is cleared first, so the few options that read their buffer get zeros.
///
/// # Errors
///
/// As with [`option_number`].
pub fn option_bytes(socket: impl AsFd, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    net::option(socket.as_fd(), level, name, value).map_err(|errno| errno.at("fd getsockopt"))
}
