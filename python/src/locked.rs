//! **Boundary**: data that threads share behind a lock, under which no Python runs.
//!
//! A thread may wait for a lock while it holds the interpreter's, so a thread that holds the lock
//! must never need the interpreter: not to make an exception, not to drop an object, not to run a
//! signal handler, which may come back for the same lock. So the lock is held for the length of a
//! closure, and the closure must be `Send`, which a `Python` token and all that is bound to one are
//! not. A value that may be a Python object is returned, and the caller drops it.
//!
//! No other file names a lock; `tests/it/project/tidy.rs` of the core checks it.

use std::sync::{Mutex, PoisonError};

use crate::interpreter;

pub(crate) struct Locked<T>(Mutex<T>);

impl<T: Send> Locked<T> {
    pub(crate) const fn new(value: T) -> Locked<T> {
        Locked(Mutex::new(value))
    }

    /// Lends the value. `look` does not wait, and makes, drops and calls no Python object.
    pub(crate) fn with<R: Send>(&self, look: impl FnOnce(&mut T) -> R + Send) -> R {
        // Every object that has a state calls this before it runs Python.
        interpreter::park_at_the_end();
        // A panic cannot leave a value half changed: nothing here takes two steps that belong
        // together.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send> Locked<Option<T>> {
    /// Takes the value out.
    pub(crate) fn take(&self) -> Option<T> {
        self.with(Option::take)
    }

    /// Returns the value until now. The caller drops it, out of the lock.
    #[must_use = "it is dropped where this is, which must be out of every lock"]
    pub(crate) fn replace(&self, value: T) -> Option<T> {
        self.with(|now| now.replace(value))
    }
}
