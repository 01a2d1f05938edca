//! Reading and writing all of it: records, whole files, at a position.

use std::ffi::c_void;

use pipework::fd;

use crate::bytes::pwk_buffer;
use crate::deadline::{at, pwk_deadline};
use crate::edge::{InOut, Lent, Number, Out, Space, put, run};
use crate::error::{PWK_OK, pwk_error, pwk_status};

/// Reads until the `space` bytes at `into` are full or the input ends. `len` says how many there
/// are: fewer than `space` is the end. This is how records of a fixed size are read, one a call,
/// the last of them perhaps short, and then 0.
///
/// When it fails, pwk_error.done bytes were read to `into`: go on behind them.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_read_full(
    fd: Number,
    into: Space<'_, c_void>,
    space: usize,
    deadline: pwk_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_read_full", error, |name| {
        put(len, fd::read_full(fd.lend()?, into.bytes(space, name)?, at(deadline))?)
    })
}

/// Writes all `len` bytes.
///
/// When it fails, the first pwk_error.done bytes were written, and none of the others: go on behind
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_write_all(
    fd: Number,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_write_all", error, |name| {
        fd::write_all(fd.lend()?, data.bytes(len, name)?, at(deadline))?;
        Ok(PWK_OK)
    })
}

/// Appends everything from the current position to the end of file to `data`. `len` is set to the
/// number of bytes. The buffer never takes more than about twice its content.
///
/// Fails with PWK_TOO_LONG if there are more than `max_bytes`; PWK_OS with ENOMEM if the memory
/// does not suffice. The bytes read before are in the buffer, and pwk_error.done is their number.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_slurp(
    fd: Number,
    max_bytes: usize,
    deadline: pwk_deadline,
    data: InOut<'_, pwk_buffer>,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_slurp", error, |name| {
        let mut data = name.given(data)?.lend(name)?;
        put(len, fd::slurp(fd.lend()?, &mut data, max_bytes, at(deadline))?)
    })
}

/// As pwk_fd_read_full, from `offset` on. The descriptor's own position stays.
///
/// Fails with PWK_INVALID for a pipe or socket, which has no positions.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_pread_full(
    fd: Number,
    into: Space<'_, c_void>,
    space: usize,
    offset: u64,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_pread_full", error, |name| {
        put(len, fd::pread_full(fd.lend()?, into.bytes(space, name)?, offset)?)
    })
}

/// As pwk_fd_write_all, from `offset` on. The descriptor's own position stays. If the file was
/// opened for appending, Linux ignores `offset` and appends.
///
/// Fails with PWK_INVALID for a pipe or socket, which has no positions.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_pwrite_all(
    fd: Number,
    data: Lent<'_, c_void>,
    len: usize,
    offset: u64,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_pwrite_all", error, |name| {
        fd::pwrite_all(fd.lend()?, data.bytes(len, name)?, offset)?;
        Ok(PWK_OK)
    })
}
