//! Room fd: raw descriptors, and what one system call leaves half done.
//!
//! What libc does in one call is libc's. Here a call does all of it, until a deadline. Descriptors
//! may block or not, and share an open file with strangers: their flags are never changed, and a
//! deadline holds either way. Functions that never wait take none.
//!
//! What fails half-way says how far it got, in pw_error.done. PW_TIMED_OUT and PW_INTERRUPTED end a
//! wait, and the rest can be done by another call. PW_CLOSED is a pipe or socket that nobody reads,
//! without SIGPIPE; PW_INVALID, with EBADF, a number that is no open descriptor; PW_OS anything
//! else that the kernel refuses.

pub mod accept;
pub mod copy;
pub mod bytes;
pub mod datagrams;
pub mod names;
pub mod many;
