//! Descriptors whose numbers may belong to another file by now.
//!
//! Some programs close descriptors that they do not know, for instance to become a daemon, and what
//! they open next gets the numbers. Device and inode do not show whose a descriptor is: all
//! eventfds, epoll and inotify instances have one inode, and the program may open a file that this
//! library has open. So each open file that is made here gets a mark. The kernel keeps it with the
//! open file, and shows it in one call that takes no longer than any other and needs no /proc.
//!
//! Duplicates share an open file, and so do forked children. So the program never gets a duplicate of
//! a marked open file, except a segment's own; if it makes one that has the library's number, that one
//! counts as the library's.
//!
//! The kernel cannot check a mark and act in one step. So a program that closes descriptors in one
//! thread while another uses this library can still have a new descriptor closed, read or written.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::SeekFrom;

use super::{Result, checked, memory};

/// How an open file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The position of a regular file. This library only reads and writes at given positions, and
    /// the mark is random.
    Position(u64),
    /// The open file has [`SIGNAL`] as the signal for asynchronous input, which is never switched on.
    Signal,
    /// Device and inode only: the program may have the same open file, or the kernel refuses a mark.
    File(u64, u64),
    /// The number belongs to another owner.
    Lost,
}

/// A signal that glibc and musl both keep for themselves: no program asks for it.
const SIGNAL: libc::c_int = 32;

// The C library's bindings lack these two. They are equal on all architectures that Rust has, except
// on some that the library does not support.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

impl Mark {
    /// Whether a descriptor is open, and its open file has this mark.
    pub(crate) fn is_on(self, fd: BorrowedFd<'_>) -> bool {
        // No call here can be made to fail by a test: a drop makes them, and cannot report an error.
        match self {
            Mark::Position(position) => rustix::fs::seek(fd, SeekFrom::Current(0)) == Ok(position),
            Mark::Signal => {
                // SAFETY: it takes any number as a descriptor, and touches no memory.
                unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) == SIGNAL }
            }
            Mark::File(device, inode) => memory::is_of(fd, (device, inode)),
            Mark::Lost => false,
        }
    }

    /// Marks a regular file.
    fn put_at_position(fd: BorrowedFd<'_>) -> Option<Mark> {
        let random = u64::from(super::random().ok()?);
        // No file ends near the first. Some file systems have no such positions.
        let positions = [1 << 40 | random, 1 << 30 | random >> 2];
        let put = |position: &u64| rustix::fs::seek(fd, SeekFrom::Start(*position)) == Ok(*position);
        positions.into_iter().find(put).map(Mark::Position)
    }
}

/// A descriptor with the mark of its open file. It checks the mark before it closes the descriptor;
/// the caller checks it before each use that matters.
#[derive(Debug)]
pub(crate) struct KnownFile {
    fd: ManuallyDrop<OwnedFd>,
    mark: Mark,
}

impl KnownFile {
    /// A regular file with that device and inode that was opened here, so no other owner has the open
    /// file.
    pub(crate) fn new(fd: OwnedFd, identity: (u64, u64)) -> KnownFile {
        let mark = Mark::put_at_position(fd.as_fd()).unwrap_or(Mark::File(identity.0, identity.1));
        KnownFile::with(fd, mark)
    }

    /// A descriptor whose open file the program may have, too.
    pub(crate) fn passed(fd: OwnedFd) -> KnownFile {
        let mark = rustix::fs::fstat(&fd).map_or(Mark::Lost, |stat| Mark::File(stat.st_dev, stat.st_ino));
        KnownFile::with(fd, mark)
    }

    /// Any other open file that was made here: an eventfd, an epoll or inotify instance, a pipe.
    pub(crate) fn nameless(fd: OwnedFd) -> Result<KnownFile> {
        // SAFETY: it takes plain numbers, and touches no memory.
        checked(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, SIGNAL) })?;
        Ok(KnownFile::with(fd, Mark::Signal))
    }

    fn with(fd: OwnedFd, mark: Mark) -> KnownFile {
        KnownFile { fd: ManuallyDrop::new(fd), mark }
    }

    /// Another descriptor of the same open file, with a number above `low`.
    pub(crate) fn duplicate_above(&self, low: RawFd) -> Result<KnownFile> {
        super::duplicate_above(self.as_fd(), low).map(|fd| KnownFile::with(fd, self.mark))
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Whether the program has left the descriptor open.
    pub(crate) fn is_intact(&self) -> bool {
        self.mark.is_on(self.as_fd())
    }

    /// Leaves the number to its present owner.
    pub(crate) fn forget(&mut self) {
        self.mark = Mark::Lost;
    }
}

impl AsFd for KnownFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        if self.is_intact() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The descriptor of that number, for as long as `_owner` lives, which closes it.
///
/// The program may have closed it all the same, and opened another file under its number. So the
/// caller only makes calls that harm no other file, or has checked the [`Mark`] before.
pub(crate) fn borrow<T>(fd: RawFd, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: the number is a descriptor's, not -1, and soundness needs nothing else: the comment
    // above covers a descriptor that belongs to another owner by now.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
