//! The wall to atomics and futexes: no other file names one.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sys;

/// How many forks lie between the process that first asked and this one. A handle that remembers another number than this was
/// inherited from a parent.
pub(crate) fn generation() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static REGISTER: Once = Once::new();
    extern "C" fn in_child() {
        // Relaxed, here and below: it publishes no other memory, and the child's only thread sees its own store.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    REGISTER.call_once(|| sys::at_fork_in_child(in_child));
    FORKS.load(Ordering::Relaxed)
}

/// A fact that, once learnt, stays true for the process.
///
/// Relaxed throughout: a thread that reads it late only learns the same fact by itself.
pub(crate) struct Fact(AtomicBool);

impl Fact {
    pub(crate) const fn unknown() -> Fact {
        Fact(AtomicBool::new(false))
    }

    pub(crate) fn learn(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// A test that made it up takes it back.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
