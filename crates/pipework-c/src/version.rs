//! Which library this is.

use std::ffi::c_char;

/// The number of this interface. A program that was compiled with another one must not go on.
pub const PWK_ABI: u32 = 1;

/// The number of the interface that the library has: PWK_ABI, or the program was compiled for
/// another one.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_abi() -> u32 {
    PWK_ABI
}

/// The version of the library, for people: "0.1.0". Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
