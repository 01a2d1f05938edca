//! The bell: wakes the one end that waits behind it, be it a thread or a task.
//!
//! Whoever waits says so in the word before its last look; whoever changes something looks at the
//! word after the change. With a full fence on both sides one of them sees the other, as in
//! `event.rs`, which also does the waiting of threads. A fence in each ring would be most of what a
//! small write costs, so it is an asymmetric one: a thread that is about to park has the kernel
//! carry it out for both. That interrupts every CPU of the process, and the kernel carries out one
//! at a time. So rings have a fence of their own while a thread parks so often that the kernel's
//! would be dear, as soon as a task waits, which is far more often than a thread parks, and where
//! the kernel refuses.
//!
//! Unlike an `Event`, a bell has one end waiting and one end ringing. So a ring takes the word
//! away, and each time that somebody sleeps costs the other end one wake-up, however much it moves
//! meanwhile.

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
/// They always will, for the kernel refuses.
const REFUSED: u64 = 8;

/// Longer than a store can be on its way to the other CPUs.
const STORES_LAND: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Bell {
    /// `{ refused: 1, fenced: 1, task: 1, thread: 1 }`. The end that waits sets bits and clears
    /// that of fenced; either end clears those of thread and task. Both are set at once where a
    /// task that was told to wait, and may still rely on that, was given up or has its thread wait
    /// for a while.
    word: Word,
    /// The task's, while its bit is set; afterwards it may still be there. The end that waits puts
    /// it in, either end takes it out.
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn new(has_fence_heavy: bool) -> Bell {
        let word = if has_fence_heavy { NOBODY } else { FENCED | REFUSED };
        Bell { word: Word::new(word), waker: Mutex::new(None) }
    }

    /// Wakes whoever waits. To be called after the change.
    #[inline]
    pub(super) fn ring(&self) {
        // Pairs with the fence in `announce`: either this sees who waits, or their next look sees
        // the change.
        fence_light();
        if self.word.load(Ordering::Relaxed) != NOBODY {
            self.ring_fenced();
        }
    }

    #[inline(never)]
    fn ring_fenced(&self) {
        // As above, for whoever relies on rings to have it.
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
            // Not under the lock: to wake a task may be to run it, here and now.
            let waker = self.slot().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Spins, and then parks this thread, until `look` says that it need not wait, for as long as
    /// `wait` allows.
    pub(super) fn wait(&self, wait: &Wait<'_>, mut look: impl FnMut() -> bool) -> Result<()> {
        let announce = || Some(self.announce_thread(affords_fence_heavy()));
        let waited = wait.on(&self.word, announce, || Ok(look().then_some(())), || Ok(()));
        self.clear(THREAD);
        waited
    }

    /// Has this task woken at the next ring, unless `look` says that it need not wait.
    pub(super) fn poll(&self, cx: &Context<'_>, look: impl FnOnce() -> bool) -> Poll<()> {
        self.leave(cx.waker());
        self.announce(TASK | FENCED);
        if !look() {
            return Poll::Pending;
        }
        self.clear(TASK);
        Poll::Ready(())
    }

    /// Lets go of the waker of an end that is gone. As long as it is kept, so is its task's memory.
    pub(super) fn forget(&self) {
        let slot = match self.waker.try_lock() {
            Ok(mut slot) => slot.take(),
            Err(TryLockError::Poisoned(slot)) => slot.into_inner().take(),
            // The other end is taking the waker. (Or this is a forked child, and the thread that
            // held the lock is not here.)
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
        // The lock first: with its last waker a task may be dropped, and with that the other end.
        drop(slot);
        drop(before);
    }

    /// Says that a thread waits, by way of the kernel's fence or with rings that have their own.
    fn announce_thread(&self, affords_fence_heavy: bool) -> u64 {
        let now = self.word.load(Ordering::Relaxed);
        // A model takes turns.
        let is_heavy = if cfg!(loom) { now & FENCED != 0 } else { affords_fence_heavy };
        if now & REFUSED != 0 || !is_heavy {
            return self.announce(THREAD | FENCED);
        }
        // A ring that misses this has a fence for nothing.
        self.clear(FENCED);
        self.announce(THREAD)
    }

    /// Says who waits, and what the word must still be when a thread parks. With FENCED, rings have
    /// a fence of their own from now on.
    fn announce(&self, mut who: u64) -> u64 {
        // Relaxed, here and in `clear`: the waker has its lock, and all else has the fences.
        let before = self.word.fetch_or(who, Ordering::Relaxed);
        if before & FENCED != 0 {
            fence_after_swap();
        } else if !fence_heavy() {
            // It was there when the pipe was made, and is refused now. A ring of this moment may
            // have looked at the word before, and what it rings for be still on its way. Later ones
            // fence.
            self.word.fetch_or(FENCED | REFUSED, Ordering::Relaxed);
            std::thread::sleep(STORES_LAND);
            who |= FENCED | REFUSED;
        }
        before | who
    }

    /// Takes bits away and says which of them were set. Whoever does not wait any more spares the
    /// other end a wake-up for nothing.
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
    fn rings_have_a_fence_of_their_own_where_the_kernel_s_is_dear_or_refused() {
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
        assert!(!all_met(), "it is asked only for the change");
        assert_eq!(announced(true), NOBODY);
        refuse();
        assert_eq!(announced(true), FENCED | REFUSED);
        assert!(all_met());
        refuse();
        assert_eq!(announced(true), FENCED | REFUSED);
        assert!(!all_met(), "who was refused does not ask again");
    }
}
