//! The interrupt hook: decides whether a wait continues after a signal handler has run.
//!
//! Without a hook, a signal handler ends a wait with `Interrupted`, and the caller may call again.
//! That is enough for Rust and C. A language that defers its signal handlers needs more: it must be
//! asked in the middle of a wait, even if the signal came just before the system call or reached
//! another thread.
//!
//! Invariant: the hook is asked in the thread that waits, and never while this library holds a
//! lock. A thread asks at most once in 250 ms, or when a signal handler has run. That interval
//! outlives the waits, so a thread that waits often and briefly asks as well. A wait that need not
//! sleep does not ask.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::defaults::SLICE;
use crate::error::{Error, ErrorKind, Result};

/// The outcome of a wait that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The wait continues: a thread keeps its position among those that wait for the same thing.
    GoOn,
    /// The wait ends with [`Interrupted`](ErrorKind::Interrupted).
    Stop,
}

static HOOK: OnceLock<fn() -> Verdict> = OnceLock::new();

thread_local! {
    /// When this thread asks next.
    static DUE: Cell<Deadline> = const { Cell::new(Deadline::at_ns(0)) };
    /// Whether this library started the thread: such a thread runs no call of the program that
    /// could be interrupted.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    #[cfg(test)]
    static TEST_HOOK: Cell<Option<fn() -> Verdict>> = const { Cell::new(None) };
}

/// Sets the hook of this process. It cannot be changed or removed.
///
/// From now on each thread that waits in this library asks the hook: when a signal handler has run,
/// and every 250 ms. [`Verdict::GoOn`] lets the wait continue, and [`Verdict::Stop`] ends it with
/// [`Interrupted`](ErrorKind::Interrupted). Nothing else interrupts a call then. In the middle of a
/// message of [`atomic`](crate::atomic), in which a signal handler alone interrupts nothing, `Stop`
/// gives up the message. Calls that need not wait do not ask, and neither do the threads that this
/// library starts by itself.
///
/// The hook may take its time, run signal handlers of its language, and call this library, except
/// for the very handle whose call asks. It must not panic. This library holds no lock while the
/// hook runs.
///
/// # Errors
///
/// `Invalid` if a hook is already set.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::thread;
/// use std::time::Duration;
///
/// use pipework::interrupt::{Verdict, set_hook};
/// use pipework::{Deadline, ErrorKind, atomic};
///
/// static STOPPED: AtomicBool = AtomicBool::new(false);
///
/// set_hook(|| if STOPPED.load(Ordering::Relaxed) { Verdict::Stop } else { Verdict::GoOn })?;
/// let (mut reader, _writer) = atomic::pair()?;
/// let waiting = thread::spawn(move || reader.recv(Deadline::NEVER).map(|_| ()).unwrap_err());
/// // As a handler of SIGTERM would.
/// STOPPED.store(true, Ordering::Relaxed);
/// assert_eq!(waiting.join().unwrap().kind(), ErrorKind::Interrupted);
/// # Ok::<(), pipework::Error>(())
/// ```
pub fn set_hook(hook: fn() -> Verdict) -> Result<()> {
    HOOK.set(hook).map_err(|_| Error::new(ErrorKind::Invalid, "set interrupt hook"))
}

fn hook() -> Option<fn() -> Verdict> {
    #[cfg(test)]
    return TEST_HOOK.get();
    #[cfg(not(test))]
    HOOK.get().copied().filter(|_| !IS_OURS.get())
}

/// Whether this thread must ask a hook.
pub(crate) fn is_hooked() -> bool {
    hook().is_some()
}

/// Whether a call may wait in the kernel without a limit. The hook cannot be asked there.
pub(crate) fn kernel_may_wait(deadline: Deadline) -> bool {
    deadline.is_never() && !is_hooked()
}

/// Makes this thread never ask. For threads that this library starts.
pub(crate) fn is_our_thread() {
    IS_OURS.set(true);
}

/// The time until this thread asks; `None` without a hook.
pub(crate) fn left() -> Option<Duration> {
    hook().and_then(|_| due().remaining())
}

/// A signal handler has run: this thread asks at the next opportunity. Returns false without a
/// hook.
pub(crate) fn signal_came() -> bool {
    let is_hooked = is_hooked();
    if is_hooked {
        DUE.set(Deadline::now());
    }
    is_hooked
}

/// Asks the hook, if this thread's interval is over. Call this at a point at which the wait may end
/// without losing anything, with no lock held.
pub(crate) fn asked() -> Option<Verdict> {
    let hook = hook()?;
    if !due().has_passed() {
        return None;
    }
    // A wait inside the hook has slices of its own.
    DUE.set(Deadline::after(SLICE));
    let verdict = hook();
    DUE.set(Deadline::after(SLICE));
    Some(verdict)
}

/// Whether the hook, if it was asked, ended the wait.
pub(crate) fn is_stopped() -> bool {
    asked() == Some(Verdict::Stop)
}

/// Whether to repeat a system call that a signal handler ended. False without a hook.
pub(crate) fn goes_on() -> bool {
    signal_came() && !is_stopped()
}

/// When this thread asks next. An interval that ended long ago belongs to waits that ended long
/// ago.
fn due() -> Deadline {
    let (due, now_ns) = (DUE.get(), Deadline::now().as_ns());
    if now_ns.saturating_sub(due.as_ns()) < SLICE.as_nanos() as i64 {
        return due;
    }
    let due = Deadline::after(SLICE);
    DUE.set(due);
    due
}

/// Runs `run` with a hook for this thread only.
#[cfg(test)]
pub(crate) fn with_hook<T>(hook: fn() -> Verdict, run: impl FnOnce() -> T) -> T {
    TEST_HOOK.set(Some(hook));
    let done = run();
    TEST_HOOK.set(None);
    done
}
