//! Module `fd`: raw descriptors, for tasks that rustix and the standard library leave unfinished.
//!
//! In Rust, rustix has every system call, by type and name. This module completes what a single
//! call leaves half done:
//!
//! | to do | with |
//! | --- | --- |
//! | accept all waiting connections, and know why it stopped | [`accept_many`], [`accept_fds`]; [`Reserve`] for when descriptors run out |
//! | copy from any descriptor to any other, by whatever the kernel does best | [`copy_all`], [`sendfile_all`], [`splice_all`] |
//! | read or write all of it | [`read_full`], [`write_all`], [`pread_full`], [`pwrite_all`], [`slurp`] |
//! | many datagrams in one system call | [`Inbox`], [`send_many`] |
//! | a new file in a folder | [`mkstemp_at`], [`mktemp_at`] |
//! | socket options by number | [`option_number`], [`set_option_number`], [`option_bytes`] |
//! | poll until a [`Deadline`] | [`poll()`] |
//! | plain integers from other languages | [`raw`] |
//!
//! Descriptors are borrowed (`AsFd`) and their flags never changed: they may block or not, and
//! share an open file with other processes; deadlines hold either way. (They do not hold for a file
//! whose file system blocks, over a network or in FUSE: no call can ask such a file not to wait.)
//! New descriptors come as an `OwnedFd`, close-on-exec. A call that fails half-way says how far it
//! got: [`Unfinished`](crate::Unfinished). A signal handler that ran while waiting ends the call
//! with `Interrupted`. SIGPIPE never kills the caller.
//!
//! Types that rustix has, such as [`SocketAddrAny`], are rustix's own, so that they fit the calls
//! that this module leaves to rustix.

mod peek;
mod pipe_end;
mod accept;
mod copy;
mod bytes;
mod datagrams;
mod names;
mod options;
pub mod raw;

#[cfg(test)]
mod tests;

use crate::deadline::Deadline;
use crate::error::Result;
use crate::sys::file;

pub use accept::{Accepted, Connection, Reserve, Shed, Stopped, accept_fds, accept_many};
pub use bytes::{pread_full, pwrite_all, read_full, slurp, write_all};
pub use copy::{copy_all, sendfile_all, splice_all};
pub use datagrams::{Datagram, Inbox, send_many};
pub use names::{mkstemp_at, mktemp_at};
pub use options::{option_bytes, option_number, set_option_number};

pub use crate::sys::file::{CWD, PollFd, PollFlags};
pub use crate::sys::net::SocketAddrAny;

#[cfg(test)]
pub(crate) use pipe_end::NOSIGNAL_REFUSED;
pub(crate) use pipe_end::{Behind, Held, PipeEnd, max_capacity};

/// Waits until one of `fds` is ready for its requested events, and returns how many are: 0 once the
/// deadline has passed.
///
/// The events of each are in its [`PollFd::revents`]. An empty slice makes it a sleep.
///
/// # Errors
///
/// `Interrupted` if a signal handler ran. A descriptor that is not open is ready, with
/// [`PollFlags::NVAL`].
pub fn poll(fds: &mut [PollFd<'_>], deadline: impl Into<Deadline>) -> Result<usize> {
    file::poll(fds, deadline.into()).map_err(|errno| errno.at("fd poll"))
}
