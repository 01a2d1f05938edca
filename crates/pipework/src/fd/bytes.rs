//! Reading and writing complete buffers: records, whole files, at a position. These calls continue
//! where a single system call stops short.

use std::os::fd::AsFd;

use super::pipe_end::NOSIGNAL_REFUSED;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Unfinished};
use crate::interrupt;
use crate::sys::file::{self, Kind};
use crate::sys::timed_fd::{TimedFd, progress};
use crate::sys::{self, Blocking, Errno, For};

/// The first allocation of a slurp of unknown length; afterwards the space doubles.
const FIRST_READ: usize = 16 * 1024;
/// The number of bytes that are read at once into memory that has to be cleared first.
const CLEARED_READ: usize = 64 * 1024;

/// Reads until `buf` is full or the input ends, and returns how many bytes that was: fewer than
/// `buf` holds means end of file.
///
/// Use it to read records of a fixed size: one record per call, the last perhaps short, and then 0.
///
/// # Errors
///
/// The bytes read by then are at the beginning of `buf`, `done` of them.
pub fn read_full(fd: impl AsFd, buf: &mut [u8], deadline: impl Into<Deadline>) -> Result<usize, Unfinished> {
    const OP: &str = "fd read full";
    let end = TimedFd::to_read(fd.as_fd(), deadline.into()).map_err(|errno| errno.after(0, OP))?;
    until_full(buf.len(), OP, |done| end.until_done(For::Reading, || end.read(&mut buf[done..])))
}

/// Writes all of `bytes`. A pipe or socket without a reader gives `Closed`, without SIGPIPE.
///
/// # Errors
///
/// The first `done` bytes have been written, and none of the others.
pub fn write_all(fd: impl AsFd, bytes: &[u8], deadline: impl Into<Deadline>) -> Result<(), Unfinished> {
    const OP: &str = "fd write all";
    let (fd, deadline) = (fd.as_fd(), deadline.into());
    let mut done = 0;
    let mut is_refused = false;
    // Usually one call does all of it, for any kind of descriptor.
    if interrupt::kernel_may_wait(deadline) && !bytes.is_empty() && !NOSIGNAL_REFUSED.is_set() {
        match sys::write_nosignal(fd, bytes, Blocking::Native).and_then(progress) {
            Ok(len) if len == bytes.len() => return Ok(()),
            Ok(len) => done = len,
            Err(Errno::OPNOTSUPP) => is_refused = true,
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.after(0, OP)),
        }
    }
    let end = TimedFd::new(fd, deadline).map_err(|errno| errno.after(done, OP))?;
    // Descriptors without a vectored write refuse on any kernel: an eventfd, a file of /proc
    // (length 0).
    let by_the_kernel = match end.kind {
        Kind::Pipe | Kind::Socket => true,
        Kind::File => end.stat.len > 0,
        Kind::Other => false,
    };
    if is_refused && by_the_kernel {
        NOSIGNAL_REFUSED.set(true);
    }
    let all = || {
        while done < bytes.len() {
            done += end.until_done(For::Writing, || end.write(&bytes[done..]))?;
        }
        Ok(())
    };
    let outcome = end.without_sigpipe(all, sys::met_closed_end);
    outcome.map_err(|errno| errno.after(done, OP))
}

/// Appends everything from the current position to the end of file to `bytes`, and returns how many
/// bytes that was.
///
/// More than `max_bytes` is `TooLong`. A file of a known length is read in one piece; for anything
/// else, the space doubles as bytes arrive, so `bytes` never takes more than about twice what it
/// holds. To read all records of a fixed size, slurp and then use [`chunks`](slice::chunks).
///
/// # Errors
///
/// The bytes read by then were appended, and `done` is their number. Memory that cannot be
/// allocated is an error too (ENOMEM).
pub fn slurp(
    fd: impl AsFd,
    bytes: &mut Vec<u8>,
    max_bytes: usize,
    deadline: impl Into<Deadline>,
) -> Result<usize, Unfinished> {
    const OP: &str = "fd slurp";
    let before = bytes.len();
    let all = || {
        let end = TimedFd::new(fd.as_fd(), deadline.into())?;
        let limit = max_bytes.saturating_add(1);
        // One more than the file should hold, so that the end of file shows in memory that is
        // already allocated.
        let known = usize::try_from(end.stat.len).unwrap_or(usize::MAX).saturating_add(1);
        reserve(bytes, if end.kind == Kind::File { known.max(FIRST_READ) } else { FIRST_READ }.min(limit))?;
        loop {
            let done = bytes.len() - before;
            if done > max_bytes {
                return Ok(false);
            }
            if bytes.len() == bytes.capacity() {
                reserve(bytes, done.max(FIRST_READ).min(limit - done))?;
            }
            if end.until_done(For::Reading, || append(&end, bytes))? == 0 {
                return Ok(true);
            }
        }
    };
    let outcome = all();
    let done = bytes.len() - before;
    match outcome {
        Ok(true) => Ok(done),
        Ok(false) => Err(Unfinished { done: done as u64, error: Error::new(ErrorKind::TooLong, OP) }),
        Err(errno) => Err(Errno::after(errno, done, OP)),
    }
}

/// Reads at `offset` until `buf` is full or the file ends, and returns how many bytes that was. The
/// descriptor's own position does not move.
///
/// # Errors
///
/// As [`read_full`]; a pipe or socket, which has no positions, is `Invalid`.
pub fn pread_full(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Unfinished> {
    until_full(buf.len(), "fd pread full", |done| {
        file::pread(fd.as_fd(), &mut buf[done..], offset.saturating_add(done as u64))
    })
}

/// Writes all of `bytes` at `offset`. The descriptor's own position does not move. If the file was
/// opened for appending, Linux appends, whatever `offset` is.
///
/// # Errors
///
/// As [`write_all`]; a pipe or socket, which has no positions, is `Invalid`.
pub fn pwrite_all(fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Unfinished> {
    let all = until_full(bytes.len(), "fd pwrite all", |done| {
        file::pwrite(fd.as_fd(), &bytes[done..], offset.saturating_add(done as u64)).and_then(progress)
    });
    all.map(drop)
}

/// Calls `step` with the number of bytes that are done, until all `len` are or a step does none.
fn until_full(
    len: usize,
    op: &'static str,
    mut step: impl FnMut(usize) -> sys::Result<usize>,
) -> Result<usize, Unfinished> {
    let mut done = 0;
    while done < len {
        match step(done) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(errno) => return Err(errno.after(done, op)),
        }
    }
    Ok(done)
}

fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Errno> {
    bytes.try_reserve_exact(more).map_err(|_| Errno::NOMEM)
}

/// Reads once, into the spare capacity of `bytes`.
fn append(end: &TimedFd<'_>, bytes: &mut Vec<u8>) -> Result<usize, Errno> {
    if !end.may_block && !end.is_made_up {
        return file::read_append(end.fd, bytes);
    }
    let start = bytes.len();
    bytes.resize(bytes.capacity().min(start + CLEARED_READ), 0);
    let outcome = end.read(&mut bytes[start..]);
    bytes.truncate(start + outcome.unwrap_or(0));
    outcome
}
