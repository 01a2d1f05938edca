//! The bell: wakes the one end that waits behind it, be it a thread or a task.
//!
//! Whoever waits says so in the word before its last look; whoever changes something looks at the word after the change. With a full fence
//! on both sides one of them sees the other, as in `event.rs`, which also does the waiting of threads. Unlike an `Event`, a bell has one end waiting
//! and one end ringing. So a ring takes the word away, and each time that somebody sleeps costs the other end one wake-up, however much it moves meanwhile.

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;
use std::task::Waker;

use crate::error::Result;
use crate::event::Wait;
use crate::sync::{Ordering, Reach, Word, fence, fence_after_swap};

const NOBODY: u64 = 0;
/// A thread is parked, or about to be.
const THREAD: u64 = 1;
/// A task has left its waker.
const TASK: u64 = 2;

#[derive(Debug)]
pub(super) struct Bell {
    /// `{ task: 1, thread: 1 }`. The end that waits sets bits, either end clears them. Both at once if a task was given up and a thread took
    /// over its end.
    word: Word,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn new() -> Bell {
        Bell { word: Word::new(NOBODY), waker: Mutex::new(None) }
    }

    /// Wakes whoever waits. To be called after the change.
    #[inline]
    pub(super) fn ring(&self) {
        // Pairs with the fence in `announce`: either this sees who waits, or their next look sees the change. (To make the change by a swap,
        // which is a fence on x86-64, is a little quicker for one thread and slower for two.)
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) != NOBODY {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let waiting = self.clear();
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

    /// Parks this thread until `look` says that it need not wait, for as long as `wait` allows.
    pub(super) fn wait(&self, wait: &Wait<'_>, mut look: impl FnMut() -> bool) -> Result<()> {
        let announce = || Some(self.announce(THREAD));
        let waited = wait.on(&self.word, announce, || Ok(look().then_some(())), || Ok(()));
        self.hush();
        waited
    }

    /// Has this task woken at the next ring. It must look once more after this.
    pub(super) fn leave(&self, waker: &Waker) {
        let mut slot = self.slot();
        let before = match &*slot {
            Some(left) if left.will_wake(waker) => None,
            _ => slot.replace(waker.clone()),
        };
        // The lock first: with its last waker a task may be dropped, and with that the other end.
        drop(slot);
        drop(before);
        self.announce(TASK);
    }

    /// Nobody waits any more: spares the other end a wake-up for nothing.
    pub(super) fn hush(&self) {
        if self.word.load(Ordering::Relaxed) != NOBODY {
            self.clear();
        }
    }

    /// Says who waits, and what the word must still be when a thread parks.
    fn announce(&self, who: u64) -> u64 {
        // Release: pairs with the Acquire in `clear`, so that who sees the bit finds the waker.
        let word = self.word.fetch_or(who, Ordering::Release) | who;
        fence_after_swap();
        word
    }

    /// Takes the word away and says what it was.
    fn clear(&self) -> u64 {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen != NOBODY {
            match self.word.replace(seen, NOBODY, Ordering::Acquire) {
                Ok(()) => break,
                Err(now) => seen = now,
            }
        }
        seen
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
