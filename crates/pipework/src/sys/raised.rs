//! Signals that the kernel raises together with an error, and that by default kill the program:
//! SIGPIPE with every EPIPE of a pipe, and SIGXFSZ with the EFBIG of a file that would become longer
//! than the process's limit (RLIMIT_FSIZE, `ulimit -f`).
//!
//! Linux 6.18 can be asked to write without SIGPIPE, per call
//! ([`write_nosignal`](super::write_nosignal)); sockets always could. Any other write runs inside
//! [`without_sigpipe`]. The flag costs about 80 ns for each write, and blocking the signal about 320.

use std::ffi::c_int;
use std::marker::PhantomData;

use super::{Errno, Result};

/// Runs `writes` with SIGPIPE blocked in this thread. Consumes the signal if `met_closed_end` says
/// that one of the writes met a closed end, or if `writes` panics.
pub(crate) fn without_sigpipe<T>(writes: impl FnOnce() -> T, met_closed_end: impl FnOnce(&T) -> bool) -> T {
    without(libc::SIGPIPE, writes, met_closed_end)
}

/// Runs a call that can make a file longer with SIGXFSZ blocked in this thread, and consumes the
/// signal if the limit of the process has refused the call.
pub(super) fn without_sigxfsz<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    without(libc::SIGXFSZ, call, |done| matches!(done, Err(Errno(libc::EFBIG))))
}

fn without<T>(signal: c_int, run: impl FnOnce() -> T, was_raised: impl FnOnce(&T) -> bool) -> T {
    let mut blocked = Blocked::new(signal);
    let done = run();
    blocked.may_be_raised = was_raised(&done);
    done
}

/// Whether a write, or a series that stops at the first error, met a closed end.
pub(crate) fn met_closed_end<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Errno::PIPE))
}

/// Blocks a signal in this thread for as long as it lives, and consumes one that was raised meanwhile.
struct Blocked {
    signal: c_int,
    before: libc::sigset_t,
    /// Whether the program itself had blocked it.
    was_blocked: bool,
    /// Whether one was already pending; that one is the program's to receive.
    was_pending: bool,
    /// True until the calls have reported that none of them raised it: they may panic.
    may_be_raised: bool,
    /// The mask belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

impl Blocked {
    fn new(signal: c_int) -> Blocked {
        // SAFETY: the sets are plain data, valid when zeroed, and initialised by the calls that
        // take pointers to them.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &only(signal), &mut before);
            let was_blocked = libc::sigismember(&before, signal) == 1;
            // A signal that is not blocked does not stay pending, so in that case there is nothing
            // to ask.
            let was_pending = was_blocked && {
                let mut pending: libc::sigset_t = std::mem::zeroed();
                libc::sigpending(&mut pending);
                libc::sigismember(&pending, signal) == 1
            };
            Blocked { signal, before, was_blocked, was_pending, may_be_raised: true, _not_send: PhantomData }
        }
    }

    fn take_back(&self) {
        if self.may_be_raised && !self.was_pending {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: both pointers are to values that outlive the call.
            unsafe { libc::sigtimedwait(&only(self.signal), std::ptr::null_mut(), &at_once) };
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.take_back();
        if !self.was_blocked {
            // SAFETY: the call that blocked the signal filled this mask in.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
        }
    }
}

fn only(signal: c_int) -> libc::sigset_t {
    // SAFETY: the set is plain data, and initialised by sigemptyset.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;
    use crate::sys::{Blocking, pipe, write};

    /// Whether SIGPIPE is blocked in this thread, and whether it is pending.
    fn state() -> (bool, bool) {
        // SAFETY: the sets are plain data, valid when zeroed and initialised by the calls that take
        // pointers to them.
        unsafe {
            let (mut blocked, mut pending): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
            libc::sigpending(&mut pending);
            let has = |set| libc::sigismember(set, libc::SIGPIPE) == 1;
            (has(&blocked), has(&pending))
        }
    }

    #[test]
    fn without_sigpipe_takes_back_its_own_signal_and_keeps_the_programs() {
        let write_to_nobody = || {
            let (_, writer) = pipe().unwrap();
            without_sigpipe(
                || {
                    assert!(state().0, "it is blocked");
                    let done = write(writer.as_fd(), b"to nobody", Blocking::Native);
                    assert!(state().1, "it was raised");
                    done
                },
                met_closed_end,
            )
        };
        assert_eq!((write_to_nobody(), state()), (Err(Errno::PIPE), (false, false)));
        let blocked = Blocked::new(libc::SIGPIPE);
        assert_eq!((write_to_nobody(), state()), (Err(Errno::PIPE), (true, false)));
        // SAFETY: the signal goes to this thread, which has blocked it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
        assert_eq!((write_to_nobody(), state()), (Err(Errno::PIPE), (true, true)));
        drop(blocked);
        assert_eq!(state(), (false, false));
    }

    #[test]
    fn without_sigpipe_takes_the_signal_back_after_a_panic() {
        let _blocked = Blocked::new(libc::SIGPIPE);
        let (_, writer) = pipe().unwrap();
        let panics = || {
            assert_eq!(write(writer.as_fd(), b"to nobody", Blocking::Native), Err(Errno::PIPE));
            resume_unwind(Box::new(()))
        };
        assert!(catch_unwind(AssertUnwindSafe(|| without_sigpipe(panics, |()| false))).is_err());
        assert_eq!(state(), (true, false));
    }
}
