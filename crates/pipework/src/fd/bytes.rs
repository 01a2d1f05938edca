//! Reading and writing all of it: records, whole files, at a position. What a single call leaves undone is done here.

use std::os::fd::AsFd;

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::sys::file::{self, Kind};
use crate::sys::{Errno, For};

use super::Unfinished;
use super::end::{End, guarded, progress};

/// What a slurp asks for where nobody says how much there is; then it asks for as much again as has come.
const FIRST_READ: usize = 16 * 1024;
/// As much as is read at once into memory that has to be cleared for it.
const CLEARED_READ: usize = 64 * 1024;

/// Reads until `buf` is full or the input ends, and says how much that was: less than `buf` holds means end of file.
///
/// This is how records of a fixed size are read: one a call, the last of them perhaps short, and then 0.
///
/// # Errors
///
/// What had been read by then stands at the beginning of `buf`, `done` bytes of it.
pub fn read_full(
    fd: impl AsFd,
    buf: &mut [u8],
    deadline: impl Into<Deadline>,
) -> Result<usize, Unfinished> {
    const OP: &str = "fd read full";
    let end = End::new(fd.as_fd(), deadline.into()).map_err(|errno| Unfinished::new(0, errno, OP))?;
    let mut done = 0;
    while done < buf.len() {
        match end.until_done(For::Reading, || end.read(&mut buf[done..])) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(errno) => return Err(Unfinished::new(done, errno, OP)),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`. A pipe or socket that nobody reads is `Closed`, without SIGPIPE.
///
/// # Errors
///
/// The first `done` bytes have been written, and none of the others.
pub fn write_all(fd: impl AsFd, bytes: &[u8], deadline: impl Into<Deadline>) -> Result<(), Unfinished> {
    let mut done = 0;
    let all = || {
        let end = End::new(fd.as_fd(), deadline.into())?;
        while done < bytes.len() {
            done += end.until_done(For::Writing, || end.write(&bytes[done..]))?;
        }
        Ok(())
    };
    let outcome = guarded(all);
    outcome.map_err(|errno| Unfinished::new(done, errno, "fd write all"))
}

/// Appends everything to `bytes`, from the current position to the end of file, and says how much it was.
///
/// More than `max_bytes` is `TooLong`. A file of a known length is read in one call; of anything else, a read asks for as much as
/// has come already, so `bytes` never takes more than about twice what it holds.
///
/// # Errors
///
/// What had been read by then has been appended, and `done` says how much it is. Memory that cannot be had is an error too (ENOMEM).
pub fn slurp(
    fd: impl AsFd,
    bytes: &mut Vec<u8>,
    max_bytes: usize,
    deadline: impl Into<Deadline>,
) -> Result<usize, Unfinished> {
    const OP: &str = "fd slurp";
    let before = bytes.len();
    let deadline = deadline.into();
    let mut all = || {
        let end = End::new(fd.as_fd(), deadline)?;
        // One more than there should be, so that the end of file shows at once.
        let known = if end.kind == Kind::File { usize::try_from(end.len).unwrap_or(usize::MAX) } else { 0 };
        let mut ask = known.saturating_add(1).max(FIRST_READ);
        let limit = max_bytes.saturating_add(1);
        loop {
            let done = bytes.len() - before;
            if done > max_bytes {
                return Ok(false);
            }
            if done > 0 && deadline.has_passed() {
                return Err(Errno::TIMEDOUT);
            }
            if end.until_done(For::Reading, || append(&end, bytes, ask.min(limit - done)))? == 0 {
                return Ok(true);
            }
            ask = FIRST_READ.max(bytes.len() - before);
        }
    };
    let outcome = all();
    let done = bytes.len() - before;
    match outcome {
        Ok(true) => Ok(done),
        Ok(false) => Err(Unfinished { done: done as u64, error: Error::new(ErrorKind::TooLong, OP) }),
        Err(errno) => Err(Unfinished::new(done, errno, OP)),
    }
}

/// Reads at `offset` until `buf` is full or the file ends, and says how much that was. The descriptor's own position stays.
///
/// # Errors
///
/// As [`read_full`]; a pipe or socket, which has no positions, is `Invalid`.
pub fn pread_full(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Unfinished> {
    let mut done = 0;
    while done < buf.len() {
        match file::pread(fd.as_fd(), &mut buf[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(errno) => return Err(Unfinished::new(done, errno, "fd pread full")),
        }
    }
    Ok(done)
}

/// Writes all of `bytes` at `offset`. The descriptor's own position stays. Linux appends, whatever `offset` is, if the file was
/// opened for appending.
///
/// # Errors
///
/// As [`write_all`]; a pipe or socket, which has no positions, is `Invalid`.
pub fn pwrite_all(fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Unfinished> {
    let mut done = 0;
    while done < bytes.len() {
        let outcome = file::pwrite(fd.as_fd(), &bytes[done..], offset.saturating_add(done as u64));
        done += outcome.and_then(progress).map_err(|errno| Unfinished::new(done, errno, "fd pwrite all"))?;
    }
    Ok(())
}

/// Reads once, at most about `ask` bytes, behind what is there.
fn append(end: &End<'_>, bytes: &mut Vec<u8>, ask: usize) -> Result<usize, Errno> {
    let ask = if end.may_block { ask.min(CLEARED_READ) } else { ask };
    bytes.try_reserve_exact(ask).map_err(|_| Errno::NOMEM)?;
    if !end.may_block {
        return file::read_append(end.fd, bytes);
    }
    let start = bytes.len();
    bytes.resize(start + ask, 0);
    let outcome = end.read(&mut bytes[start..]);
    bytes.truncate(start + outcome.unwrap_or(0));
    outcome
}
