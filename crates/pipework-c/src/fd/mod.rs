//! Module fd: raw descriptors, and the work that one system call leaves half done.
//!
//! What libc does in one call is left to libc. Here a call does all of it, until a deadline.
//! Descriptors may block or not, and share an open file with strangers: their flags are never
//! changed, and a deadline holds either way. Functions that never wait take none.
//!
//! A call that fails half-way says how far it got, in pwk_error.done. PWK_TIMED_OUT and
//! PWK_INTERRUPTED end a wait, and another call can do the rest. PWK_CLOSED is a pipe or socket
//! without a reader, and SIGPIPE is not raised; PWK_INVALID, with EBADF, a number that is no open
//! descriptor; PWK_OS anything else that the kernel refuses.

pub mod accept;
pub mod copy;
pub mod bytes;
pub mod datagrams;
pub mod names;
pub mod many;
