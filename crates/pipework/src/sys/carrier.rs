//! The kind of a descriptor, as far as sending or receiving whole messages depends on it.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, OFlags};

use super::{Result, net};

/// Which way a pipe's descriptor was opened, or a socket is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Both,
}

/// The kind of a descriptor, as far as sending or receiving whole messages depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A pipe or FIFO, opened for that direction.
    Pipe(Access),
    /// A connected stream socket of the Unix family, which carries both directions.
    Socket,
    OtherSocket,
    Terminal,
    /// A regular file or a block device.
    File,
    /// Anything else.
    Device,
}

pub(crate) fn carrier(fd: BorrowedFd<'_>) -> Result<Carrier> {
    let stat = sys!("fstat", rustix::fs::fstat(fd))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => {}
        FileType::Socket if net::is_unix_stream(fd)? => return Ok(Carrier::Socket),
        FileType::Socket => return Ok(Carrier::OtherSocket),
        FileType::RegularFile | FileType::BlockDevice => return Ok(Carrier::File),
        _ if rustix::termios::isatty(fd) => return Ok(Carrier::Terminal),
        _ => return Ok(Carrier::Device),
    }
    let flags = sys!("fcntl", rustix::fs::fcntl_getfl(fd))?;
    Ok(Carrier::Pipe(match flags & OFlags::ACCMODE {
        OFlags::RDONLY => Access::Read,
        OFlags::WRONLY => Access::Write,
        _ => Access::Both,
    }))
}
