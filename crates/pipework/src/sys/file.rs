//! Any descriptor: its kind, bytes at a position, bytes that never leave the kernel, names in a
//! folder, closing many.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

pub use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom};
use rustix::pipe::SpliceFlags;

use super::{Errno, Result, checked};
use crate::deadline::Deadline;

/// The folder that relative names start from, for calls that take a folder's descriptor.
pub const CWD: BorrowedFd<'static> = rustix::fs::CWD;

impl Errno {
    /// Whether the kernel may mean by this that it cannot do it in this way, so that another way
    /// may work.
    pub(crate) fn is_refusal(self) -> bool {
        let refusals = [
            libc::EBADF,
            libc::EINVAL,
            libc::ENOSYS,
            libc::EOPNOTSUPP,
            libc::EOVERFLOW,
            libc::EPERM,
            libc::EXDEV,
        ];
        refusals.contains(&self.0)
    }
}

// ---------------------------------------------------------------- kinds

/// The kind of a descriptor, as far as reading and writing differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file or a block device: it has no peer to wait for.
    File,
    Pipe,
    Socket,
    /// Terminals, devices, folders, and descriptors without a kind of their own.
    Other,
}

/// The kernel's facts about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    /// 0 for descriptors without a length, and for files whose content is generated as it is read.
    pub(crate) len: u64,
    /// Device and inode, which identify the file.
    pub(crate) identity: (u64, u64),
}

pub(crate) fn stat(fd: BorrowedFd<'_>) -> Result<Stat> {
    let stat = sys!("fstat", rustix::fs::fstat(fd))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Kind::File,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        _ => Kind::Other,
    };
    Ok(Stat { kind, len: u64::try_from(stat.st_size).unwrap_or(0), identity: (stat.st_dev, stat.st_ino) })
}

/// Whether calls on the descriptor block.
pub(crate) fn blocks(fd: BorrowedFd<'_>) -> Result<bool> {
    let flags = sys!("fcntl", rustix::fs::fcntl_getfl(fd))?;
    Ok(!flags.contains(OFlags::NONBLOCK))
}

/// Waits until one of the descriptors is ready for the requested events, or until the deadline;
/// returns how many are.
pub(crate) fn poll(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize> {
    super::poll(fds, deadline)
}

/// The descriptor with that number.
///
/// # Safety
///
/// The number is not negative, and no code closes the descriptor while the borrow is used.
pub(crate) unsafe fn borrow<'fd>(number: RawFd) -> BorrowedFd<'fd> {
    // SAFETY: the caller guarantees it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

// ---------------------------------------------------------------- bytes

/// Reads into the spare capacity of `bytes`, and appends.
pub(crate) fn read_append(fd: BorrowedFd<'_>, bytes: &mut Vec<u8>) -> Result<usize> {
    sys!("read", rustix::io::read(fd, rustix::buffer::spare_capacity(bytes)))
}

pub(crate) fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize> {
    let buf = allowed!("pread", buf);
    rustix::io::pread(fd, buf, offset).map_err(Errno::from)
}

pub(crate) fn pwrite(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> Result<usize> {
    let len = capped!("pwrite", buf.len());
    rustix::io::pwrite(fd, &buf[..len], offset).map_err(Errno::from)
}

/// Moves the position back by `bytes`.
pub(crate) fn rewind(fd: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    sys!("seek", rustix::fs::seek(fd, SeekFrom::Current(-(bytes as i64)))).map(drop)
}

/// Copies between files. 0 is the end, or a file system that does not report the length of its
/// files.
pub(crate) fn copy_range(
    from: BorrowedFd<'_>,
    offset: Option<&mut u64>,
    to: BorrowedFd<'_>,
    len: usize,
) -> Result<usize> {
    let len = capped!("copy_file_range", len);
    rustix::fs::copy_file_range(from, offset, to, None, len).map_err(Errno::from)
}

/// Copies from a file to anything.
pub(crate) fn sendfile(
    from: BorrowedFd<'_>,
    offset: Option<&mut u64>,
    to: BorrowedFd<'_>,
    len: usize,
) -> Result<usize> {
    let len = capped!("sendfile", len);
    rustix::fs::sendfile(to, from, offset, len).map_err(Errno::from)
}

/// Copies between a pipe and anything. With `nowait` it does not wait for the pipe; the other side
/// follows its own flags.
pub(crate) fn splice(
    from: BorrowedFd<'_>,
    offset: Option<&mut u64>,
    to: BorrowedFd<'_>,
    len: usize,
    nowait: bool,
) -> Result<usize> {
    let len = capped!("splice", len);
    rustix::pipe::splice(from, offset, to, None, len, nonblock(nowait)).map_err(Errno::from)
}

/// Copies the content of one pipe into another and takes nothing out.
pub(crate) fn tee(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize, nowait: bool) -> Result<usize> {
    let len = capped!("tee", len);
    rustix::pipe::tee(from, to, len, nonblock(nowait)).map_err(Errno::from)
}

fn nonblock(nowait: bool) -> SpliceFlags {
    if nowait { SpliceFlags::NONBLOCK } else { SpliceFlags::empty() }
}

// ---------------------------------------------------------------- names

/// A new file of mode 0600 under `name`, which must not exist.
pub(crate) fn create_new(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    opens!("create", rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR))
}

/// Whether anything has that name, even a dangling symbolic link.
pub(crate) fn exists(folder: BorrowedFd<'_>, name: &OsStr) -> Result<bool> {
    match sys!("lstat", rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

// ---------------------------------------------------------------- many at once

/// The action on a range of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Now,
    /// When the process executes another program.
    OnExec,
}

/// Closes the open descriptors between two numbers, both included.
///
/// # Safety
///
/// With [`Closing::Now`], no code uses one of them afterwards.
pub(crate) unsafe fn close_range(first: u32, last: u32, when: Closing) -> Result<()> {
    let flags = if when == Closing::OnExec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: the call takes plain numbers; the caller is responsible for the descriptors that it
    // closes.
    sys!("close_range", checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }))
        .map(drop)
}
