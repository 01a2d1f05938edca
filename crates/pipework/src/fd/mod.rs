//! Raw descriptors: what rustix and the standard library leave undone.
//!
//! Whoever writes Rust has every system call in rustix, by type and name. This room finishes what
//! one call leaves half done:
//!
//! | to do | with |
//! | --- | --- |
//! | accept all who wait, and know why it stopped | [`accept_many`], [`accept_fds`]; [`Reserve`] for when descriptors run out |
//! | copy from any descriptor to any other, by whatever the kernel does best | [`copy_all`], [`sendfile_all`], [`splice_all`] |
//! | read or write all of it | [`read_full`], [`write_all`], [`pread_full`], [`pwrite_all`], [`slurp`] |
//! | many datagrams in one system call | [`Inbox`], [`send_many`] |
//! | a new file in a folder | [`mkstemp_at`], [`mktemp_at`] |
//! | socket options by number | [`option_number`], [`set_option_number`], [`option_bytes`] |
//! | poll until a [`Deadline`] | [`poll()`] |
//! | plain integers from other languages | [`raw`] |
//!
//! Descriptors are lent (`AsFd`) and their flags never changed: they may block or not, and share an
//! open file with strangers; deadlines hold either way. (Of a file whose file system blocks, over a
//! network or in FUSE, they cannot: no call asks such a file not to wait.) What is new comes as an `OwnedFd`,
//! close-on-exec. What fails half-way says how far it got: [`Unfinished`](crate::Unfinished). A
//! signal handler that ran while waiting ends the call with `Interrupted`, and nobody is killed by
//! SIGPIPE.
//!
//! Types that rustix has, such as [`SocketAddrAny`], are rustix's, so that they fit the calls that
//! stayed there.

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

/// Waits until one of `fds` is ready for what is asked of it, and says how many are: 0 once the
/// deadline has passed.
///
/// What each is ready for stands in its [`PollFd::revents`]. No descriptors at all make it a sleep.
///
/// # Errors
///
/// `Interrupted` if a signal handler ran. A descriptor that is not open is ready, with
/// [`PollFlags::NVAL`].
pub fn poll(fds: &mut [PollFd<'_>], deadline: impl Into<Deadline>) -> Result<usize> {
    file::poll(fds, deadline.into()).map_err(|errno| errno.at("fd poll"))
}
