//! SIGPIPE, which the kernel raises with every EPIPE of a pipe, and which by default kills the
//! program.
//!
//! Linux 6.18 can be asked to write without it, per call
//! ([`write_nosignal`](super::write_nosignal)); sockets always could. Any other write runs inside
//! [`without_sigpipe`].

use std::marker::PhantomData;

use super::{Errno, Result};

/// Runs `writes` with SIGPIPE blocked in this thread. Consumes the signal if `met_closed_end` says
/// that one of the writes met a closed end, or if `writes` panics.
pub(crate) fn without_sigpipe<T>(writes: impl FnOnce() -> T, met_closed_end: impl FnOnce(&T) -> bool) -> T {
    let mut blocked = Blocked::new();
    let done = writes();
    blocked.may_be_raised = met_closed_end(&done);
    done
}

/// Whether a write, or a series that stops at the first error, met a closed end.
pub(crate) fn met_closed_end<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Errno::PIPE))
}

/// Blocks SIGPIPE in this thread for as long as it lives, and consumes a signal that was raised
/// meanwhile.
struct Blocked {
    before: libc::sigset_t,
    /// Whether the program itself had blocked it.
    was_blocked: bool,
    /// Whether one was already pending; that one is the program's to receive.
    was_pending: bool,
    /// True until the writes have reported that none of them raised it: they may panic.
    may_be_raised: bool,
    /// The mask belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

impl Blocked {
    fn new() -> Blocked {
        // SAFETY: the sets are plain data, valid when zeroed, and initialised by the calls that
        // take pointers to them.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe(), &mut before);
            let was_blocked = libc::sigismember(&before, libc::SIGPIPE) == 1;
            // A signal that is not blocked does not stay pending, so in that case there is nothing
            // to ask.
            let was_pending = was_blocked && {
                let mut pending: libc::sigset_t = std::mem::zeroed();
                libc::sigpending(&mut pending);
                libc::sigismember(&pending, libc::SIGPIPE) == 1
            };
            Blocked { before, was_blocked, was_pending, may_be_raised: true, _not_send: PhantomData }
        }
    }

    fn take_back(&self) {
        if self.may_be_raised && !self.was_pending {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: both pointers are to values that outlive the call.
            unsafe { libc::sigtimedwait(&sigpipe(), std::ptr::null_mut(), &at_once) };
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

fn sigpipe() -> libc::sigset_t {
    // SAFETY: the set is plain data, and initialised by sigemptyset.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
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
        let blocked = Blocked::new();
        assert_eq!((write_to_nobody(), state()), (Err(Errno::PIPE), (true, false)));
        // SAFETY: the signal goes to this thread, which has blocked it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
        assert_eq!((write_to_nobody(), state()), (Err(Errno::PIPE), (true, true)));
        drop(blocked);
        assert_eq!(state(), (false, false));
    }

    #[test]
    fn without_sigpipe_takes_the_signal_back_after_a_panic() {
        let _blocked = Blocked::new();
        let (_, writer) = pipe().unwrap();
        let panics = || {
            assert_eq!(write(writer.as_fd(), b"to nobody", Blocking::Native), Err(Errno::PIPE));
            resume_unwind(Box::new(()))
        };
        assert!(catch_unwind(AssertUnwindSafe(|| without_sigpipe(panics, |()| false))).is_err());
        assert_eq!(state(), (true, false));
    }
}
