//! The bell: wakes the one end that waits behind it, be it a thread or a task.
//!
//! A waiter announces itself in the word before its last check; the other end reads the word after
//! its change. With a full fence on both sides, at least one of them sees the other, as in
//! `event.rs`, which also does the waiting of threads. A fence in each ring would be most of the
//! cost of a small write, so the fence is asymmetric: a thread that is about to park has the kernel
//! execute it for both. That interrupts every CPU of the process, and the kernel executes only one
//! at a time. So rings have a fence of their own in three cases: while a thread parks so often that
//! the kernel's fence would be expensive; once a task waits, which happens far more often than a
//! thread parks; and where the kernel refuses.
//!
//! Unlike an `Event`, a bell has one end that waits and one that rings. So a ring clears the word,
//! and each sleep costs the other end one wake-up, however much it moves meanwhile.

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::TryLockError;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Result;
use crate::event::Wait;
use crate::sync::{
    Ordering, Reach, Word, affords_fence_heavy, fence, fence_after_swap, fence_heavy, fence_light,
};

const NOBODY: u64 = 0;
/// A thread is parked, or about to be.
const THREAD: u64 = 1;
/// A task has left its waker.
const TASK: u64 = 2;
/// Rings have a full fence of their own.
const FENCED: u64 = 4;
/// Rings have their own fence for good, because the kernel refuses.
const REFUSED: u64 = 8;

/// Longer than a store takes to reach the other CPUs.
const STORES_LAND: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Bell {
    /// `{ refused: 1, fenced: 1, task: 1, thread: 1 }`. The waiting end sets bits and clears
    /// `fenced`; either end clears `thread` and `task`. Both of those are set at once if a task
    /// returned pending, and may still rely on the wake-up, but was dropped or has its thread wait
    /// for a while.
    word: Word,
    /// The task's waker while its bit is set; it may remain afterwards. The waiting end puts it in,
    /// either end takes it out.
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn new(has_fence_heavy: bool) -> Bell {
        let word = if has_fence_heavy { NOBODY } else { FENCED | REFUSED };
        Bell { word: Word::new(word), waker: Mutex::new(None) }
    }

    /// Wakes the end that waits. Call this after the change.
    #[inline]
    pub(super) fn ring(&self) {
        // Pairs with the fence in `announce`: either this sees the waiter, or the waiter's next
        // check sees the change.
        fence_light();
        if self.word.load(Ordering::Relaxed) != NOBODY {
            self.ring_fenced();
        }
    }

    #[inline(never)]
    fn ring_fenced(&self) {
        // As above, for waiters that rely on rings to fence.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) & (THREAD | TASK) != NOBODY {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let waiting = self.clear(THREAD | TASK);
        if waiting & THREAD != 0 {
            self.word.wake(1, Reach::Process);
        }
        if waiting & TASK != 0 {
            // Not under the lock: waking a task may run it right here.
            let waker = self.slot().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Spins, and then parks this thread, until `look` returns true, for as long as `wait` allows.
    pub(super) fn wait(&self, wait: &Wait<'_>, mut look: impl FnMut() -> bool) -> Result<()> {
        let announce = || Some(self.announce_thread(affords_fence_heavy()));
        let waited = wait.on(&self.word, announce, || Ok(look().then_some(())), || Ok(()));
        self.clear(THREAD);
        waited
    }

    /// Registers this task to be woken at the next ring, unless `look` returns true.
    pub(super) fn poll(&self, cx: &Context<'_>, look: impl FnOnce() -> bool) -> Poll<()> {
        self.leave(cx.waker());
        self.announce(TASK | FENCED);
        if !look() {
            return Poll::Pending;
        }
        self.clear(TASK);
        Poll::Ready(())
    }

    /// Drops the waker of an end that is gone. While it is kept, so is its task's memory.
    pub(super) fn forget(&self) {
        let slot = match self.waker.try_lock() {
            Ok(mut slot) => slot.take(),
            Err(TryLockError::Poisoned(slot)) => slot.into_inner().take(),
            // The other end is taking the waker. (Or this is a forked child, and the thread that
            // held the lock does not exist here.)
            Err(TryLockError::WouldBlock) => None,
        };
        drop(slot);
    }

    fn leave(&self, waker: &Waker) {
        let mut slot = self.slot();
        let before = match &*slot {
            Some(left) if left.will_wake(waker) => None,
            _ => slot.replace(waker.clone()),
        };
        // Release the lock first: dropping the last waker may drop the task, and the other end with
        // it.
        drop(slot);
        drop(before);
    }

    /// Announces that a thread waits, through the kernel's fence or with rings that have their own.
    fn announce_thread(&self, affords_fence_heavy: bool) -> u64 {
        let now = self.word.load(Ordering::Relaxed);
        // In a model, the two ways alternate.
        let is_heavy = if cfg!(loom) { now & FENCED != 0 } else { affords_fence_heavy };
        if now & REFUSED != 0 || !is_heavy {
            return self.announce(THREAD | FENCED);
        }
        // A ring that misses this store executes a fence that it does not need.
        self.clear(FENCED);
        self.announce(THREAD)
    }

    /// Announces the waiter `who`; returns the value that the word must still have when a thread
    /// parks. With FENCED, rings have a fence of their own from now on.
    fn announce(&self, mut who: u64) -> u64 {
        // Relaxed, here and in `clear`: the lock orders the waker, and the fences order all else.
        let before = self.word.fetch_or(who, Ordering::Relaxed);
        if before & FENCED != 0 {
            fence_after_swap();
        } else if !fence_heavy() {
            // The kernel had the fence when the pipe was made, and refuses it now. A ring at this
            // moment may have read the word before its change became visible. Later rings fence.
            self.word.fetch_or(FENCED | REFUSED, Ordering::Relaxed);
            std::thread::sleep(STORES_LAND);
            who |= FENCED | REFUSED;
        }
        before | who
    }

    /// Clears bits and returns which of them were set. An end that no longer waits spares the other
    /// end a needless wake-up.
    fn clear(&self, who: u64) -> u64 {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & who != NOBODY {
            match self.word.replace(seen, seen & !who, Ordering::Relaxed) {
                Ok(()) => break,
                Err(now) => seen = now,
            }
        }
        seen & who
    }

    #[cfg(not(loom))]
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        // A waker's own code may panic under the lock, but leaves the slot whole.
        self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(loom)]
    fn slot(&self) -> loom::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().expect("a model does not panic under its lock")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::has_fence_heavy;
    use crate::sys::fault::{Fault, all_met, order};

    #[test]
    fn rings_fence_if_the_kernels_fence_is_expensive_or_refused() {
        assert!(has_fence_heavy(), "this machine refuses membarrier");
        let bell = Bell::new(true);
        let announced = |affords| {
            let word = bell.announce_thread(affords);
            assert_eq!(word, bell.word.load(Ordering::Relaxed));
            bell.clear(THREAD);
            word & !THREAD
        };
        let refuse = || order("membarrier", 0, Fault::Errno(libc::ENOSYS));

        assert_eq!(announced(true), NOBODY);
        assert_eq!(announced(false), FENCED);
        refuse();
        assert_eq!(announced(false), FENCED);
        assert!(!all_met(), "the kernel is asked only for the change");
        assert_eq!(announced(true), NOBODY);
        refuse();
        assert_eq!(announced(true), FENCED | REFUSED);
        assert!(all_met());
        refuse();
        assert_eq!(announced(true), FENCED | REFUSED);
        assert!(!all_met(), "a refused bell does not ask again");
    }
}
