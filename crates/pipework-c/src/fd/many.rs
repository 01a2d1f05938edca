//! Many descriptors in one call: waiting for some, closing a range of them.

use libc::pollfd;
use pipework::fd;
use pipework::fd::raw::close_range_on_exec;

use crate::deadline::{at, pwk_deadline};
use crate::edge::{Out, Space, close_range, done, put, run};
use crate::error::{pwk_error, pwk_status};

/// As poll(2), until a deadline: waits until one of `count` descriptors is ready for its events.
/// `ready` is set to the number of them, 0 once the deadline has passed. With `count` 0 it is a
/// sleep.
///
/// Fails with PWK_INTERRUPTED; PWK_OS. A descriptor that is not open is ready, with POLLNVAL; one
/// with a negative number is left out.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_poll(
    fds: Space<'_, pollfd>,
    count: usize,
    deadline: pwk_deadline,
    ready: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_poll", error, |name| {
        let (all, mut polled) = fds.polled(count, name)?;
        let found = fd::poll(&mut polled, at(deadline))?;
        let mut polled = polled.iter();
        for one in all {
            let answer = if one.fd < 0 { None } else { polled.next() };
            one.revents = answer.map_or(0, |polled| polled.revents().bits() as i16);
        }
        put(ready, found)
    })
}

/// Closes every open descriptor from `first` to `last`; UINT32_MAX is the last there can be. None
/// of them may be one that a handle of this library holds or was lent.
///
/// Fails with PWK_INVALID if `first` is larger than `last`; PWK_UNSUPPORTED where the kernel or a
/// sandbox does not know the call.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_close_range(first: u32, last: u32, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_fd_close_range", error, |_| done(close_range(first, last)))
}

/// Has every open descriptor from `first` to `last` closed when another program is executed.
///
/// Fails as pwk_fd_close_range. Linux 5.11 was the first to know how.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_close_range_on_exec(first: u32, last: u32, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_fd_close_range_on_exec", error, |_| done(close_range_on_exec(first, last)))
}
