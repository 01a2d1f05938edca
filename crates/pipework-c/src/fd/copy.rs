//! Copying between any two descriptors, inside the kernel where it can.

use pipework::fd;

use crate::deadline::{at, pwk_deadline};
use crate::edge::{Number, Out, put, run};
use crate::error::{pwk_error, pwk_status};

/// Copies `len` bytes, or all if there are fewer; UINT64_MAX is everything. `copied` is set to
/// their number.
///
/// Both positions move along. Either side may be a file, a pipe, a stream socket, a terminal or a
/// device, and the best that the kernel does between them is found by itself. The deadline is
/// looked at in every wait, and after every 4 MiB that needed none.
///
/// pwk_error.done bytes have arrived when it fails, and no other has left `from`: the same call may
/// be made again. (Not so if `from` is a terminal, a device or a socket with SO_PEEK_OFF: up to
/// 4096 bytes are lost there when writing fails.) PWK_UNSUPPORTED if a side is a datagram socket;
/// PWK_INVALID if a file or pipe is both sides. No other reader may read from `from` meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_copy_all(
    from: Number,
    to: Number,
    len: u64,
    deadline: pwk_deadline,
    copied: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_copy_all", error, |_| put(copied, fd::copy_all(from.lend()?, to.lend()?, len, at(deadline))?))
}

/// Sends `len` bytes of the file `from`, beginning at `offset`, or all if there are fewer. `copied`
/// is set to their number. The position of `from` stays where it is, so that many can send from one
/// file.
///
/// Fails as pwk_fd_copy_all; with PWK_INVALID if `from` has no positions.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_sendfile_all(
    to: Number,
    from: Number,
    offset: u64,
    len: u64,
    deadline: pwk_deadline,
    copied: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_sendfile_all", error, |_| {
        put(copied, fd::sendfile_all(to.lend()?, from.lend()?, offset, len, at(deadline))?)
    })
}

/// Moves `len` bytes, or all if there are fewer, through splice(2) alone. `copied` is set to their
/// number. One side must be a pipe.
///
/// Fails as pwk_fd_copy_all; with PWK_INVALID if neither side is a pipe, or where the kernel cannot
/// splice, for instance into a file that is open for appending.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_splice_all(
    from: Number,
    to: Number,
    len: u64,
    deadline: pwk_deadline,
    copied: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_splice_all", error, |_| {
        put(copied, fd::splice_all(from.lend()?, to.lend()?, len, at(deadline))?)
    })
}
