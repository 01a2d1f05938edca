//! Eventfds that are rung by hand: for related processes with event loops, without a thread. Who
//! sends or replies, and wants the other side's loop to run, rings afterwards.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use pipework::reqrep::EventFd;

use crate::edge::{Handle, In, Number, Out, free, get, hand_out, put, run};
use crate::error::{PWK_OK, pwk_error, pwk_status};

/// Holds an eventfd. Any threads may use one at the same time. It is freed with pwk_eventfd_free,
/// which closes the eventfd.
pub struct pwk_eventfd(EventFd);

/// Makes one that holds no eventfd yet.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_new(
    eventfd: Out<'_, Handle<pwk_eventfd>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_eventfd_new", error, |name| hand_out(name.given(eventfd)?, pwk_eventfd(EventFd::default())))
}

/// Returns the descriptor in `fd`, lent until the handle is freed or another one is set. If there
/// is none, this makes one, which does not block.
///
/// Fails with PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_create(
    eventfd: In<'_, pwk_eventfd>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_eventfd_create", error, |name| put(fd, name.given(eventfd)?.0.create()?.as_raw_fd()))
}

/// Puts a duplicate of an eventfd in, for instance of an inherited one. The one that was there is
/// closed.
///
/// Fails with PWK_INVALID if `fd` is not open; PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_set(
    eventfd: In<'_, pwk_eventfd>,
    fd: Number,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_eventfd_set", error, |name| {
        name.given(eventfd)?.0.set(fd.duplicate(name)?);
        Ok(PWK_OK)
    })
}

/// The descriptor, lent as that of pwk_eventfd_create; -1 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_fd(eventfd: In<'_, pwk_eventfd>) -> c_int {
    get(-1, || eventfd.and_then(|eventfd| eventfd.0.get()).map_or(-1, |fd| fd.as_raw_fd()))
}

/// Makes the eventfd readable; false if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_ring(eventfd: In<'_, pwk_eventfd>) -> bool {
    get(false, || eventfd.is_some_and(|eventfd| eventfd.0.ring()))
}

/// Makes the eventfd unreadable and returns how often it was rung since the last time; 0 if it was
/// not, or if there is none. To be called before looking for requests or replies.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_consume(eventfd: In<'_, pwk_eventfd>) -> u64 {
    get(0, || eventfd.and_then(|eventfd| eventfd.0.consume()).unwrap_or(0))
}

/// Frees the handle, and closes the eventfd.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_eventfd_free(eventfd: Handle<pwk_eventfd>) {
    free(eventfd);
}
