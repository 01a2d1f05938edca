//! The wall to atomics and futexes: no other file names one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A counter that a process raises and all its threads read.
///
/// Relaxed throughout: it publishes no other memory. A forked child starts with a single thread, which sees its own store.
pub(crate) struct Counter(AtomicU32);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU32::new(0))
    }

    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
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

    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
