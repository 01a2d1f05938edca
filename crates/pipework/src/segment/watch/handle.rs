//! A handle's watch thread: started by the first request for a descriptor or a waker, and ended
//! with the handle.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::{Topic, WatcherState};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{self, Flag};
use crate::sys;

/// A handle's watch thread. It starts on first use, and again in a forked child.
#[derive(Debug)]
pub(crate) struct Watcher<T: Topic> {
    /// Whether it was asked for, so that a handle that never asks costs one load.
    asked: Flag,
    first: ThreadCell<T>,
}

/// The cell for the thread of one process. Its content stays as long as the handle, so it is read
/// without a lock.
type ThreadCell<T> = OnceLock<Box<Running<T>>>;

#[derive(Debug)]
struct Running<T: Topic> {
    state: Arc<WatcherState<T>>,
    thread: JoinHandle<()>,
    /// For the thread of a child that was forked from this process.
    child: ThreadCell<T>,
}

impl<T: Topic> Watcher<T> {
    pub(crate) fn new() -> Watcher<T> {
        Watcher { asked: Flag::new(), first: ThreadCell::new() }
    }

    /// The thread's state, if this process has asked for it.
    #[inline]
    pub(crate) fn asked_for(&self) -> Option<&WatcherState<T>> {
        if self.asked.is_set() { self.here() } else { None }
    }

    #[cold]
    fn here(&self) -> Option<&WatcherState<T>> {
        self.place().get().map(|running| &*running.state)
    }

    /// The cell of this process's thread, which may be empty.
    fn place(&self) -> &ThreadCell<T> {
        let mut place = &self.first;
        while let Some(running) = place.get().filter(|running| !running.state.is_here()) {
            place = &running.child;
        }
        place
    }

    /// Records that a look has found nothing: the descriptor must be rung when something comes.
    #[inline]
    pub(crate) fn found_none(&self) {
        if let Some(state) = self.asked_for() {
            state.arm();
        }
    }

    /// The thread's state; starts the thread, for this `topic`, on first use.
    pub(crate) fn watch(&self, topic: impl FnOnce() -> T, op: &'static str) -> Result<Arc<WatcherState<T>>> {
        // Without the lock that holds off forks, which takes three system calls.
        if let Some(running) = self.place().get() {
            return Ok(Arc::clone(&running.state));
        }
        // One thread at a time starts it, and no process forks meanwhile.
        let _forks_wait = sync::no_forks();
        let place = self.place();
        if let Some(running) = place.get() {
            return Ok(Arc::clone(&running.state));
        }
        let state = Arc::new(WatcherState::new(topic()));
        let watching = Arc::clone(&state);
        let thread = sys::start_thread("pipework-watch", move || watching.run())
            .map_err(|errno| Error::with_errno(ErrorKind::Os, op, errno.number()))?;
        let running = Running { state: Arc::clone(&state), thread, child: ThreadCell::new() };
        // Before the thread can be found.
        self.asked.set(true);
        place.set(Box::new(running)).expect("there was none");
        Ok(state)
    }
}

impl<T: Topic> Drop for Watcher<T> {
    /// Ends the thread and joins it, unless the thread is waking a task. The woken code may need
    /// something that the dropping thread holds, or may itself be dropping this handle.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(running) = next {
            let Running { state, thread, child } = *running;
            next = child.into_inner();
            if !state.is_here() {
                // A parent's state is neither used nor dropped: its thread does not exist here, and
                // may have been in the middle of an operation.
                mem::forget((state, thread));
            } else if state.stop() {
                // The thread does not panic: panics of wakers are caught.
                let _ = thread.join();
            }
        }
    }
}
