//! A handle's watch thread: started by the first request for a descriptor or a waker, and ended
//! with the handle.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::{Topic, WatcherState};
use crate::error::{Error, ErrorKind, Result};
use crate::reqrep::liveness::Liveness;
use crate::reqrep::shm::mapping::Shared;
use crate::sync::{self, Flag};
use crate::sys;

/// A handle's watch thread. It starts on first use, and again in a forked child.
#[derive(Debug)]
pub(in crate::reqrep) struct Watcher {
    /// Whether it was asked for, so that a handle that never asks costs one load.
    asked: Flag,
    first: ThreadCell,
}

/// The cell for the thread of one process. Its content stays as long as the handle, so it is read
/// without a lock.
type ThreadCell = OnceLock<Box<Running>>;

#[derive(Debug)]
struct Running {
    state: Arc<WatcherState>,
    thread: JoinHandle<()>,
    /// For the thread of a child that was forked from this process.
    child: ThreadCell,
}

impl Watcher {
    pub(in crate::reqrep) fn new() -> Watcher {
        Watcher { asked: Flag::new(), first: ThreadCell::new() }
    }

    /// The thread's state, if this process has asked for it.
    #[inline]
    pub(in crate::reqrep) fn asked_for(&self) -> Option<&WatcherState> {
        if self.asked.is_set() { self.here() } else { None }
    }

    #[cold]
    fn here(&self) -> Option<&WatcherState> {
        self.place().get().map(|running| &*running.state)
    }

    /// The cell of this process's thread, which may be empty.
    fn place(&self) -> &ThreadCell {
        let mut place = &self.first;
        while let Some(running) = place.get().filter(|running| !running.state.is_here()) {
            place = &running.child;
        }
        place
    }

    /// Records that a look has found nothing: the descriptor must be rung when something comes.
    #[inline]
    pub(in crate::reqrep) fn found_none(&self) {
        if let Some(state) = self.asked_for() {
            state.arm();
        }
    }

    /// The thread's state; starts the thread on first use.
    pub(in crate::reqrep) fn watch(
        &self,
        shared: &Arc<Shared>,
        liveness: &Arc<Liveness>,
        topic: Topic,
        op: &'static str,
    ) -> Result<Arc<WatcherState>> {
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
        let state = Arc::new(WatcherState::new(Arc::clone(shared), Arc::clone(liveness), topic));
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

impl Drop for Watcher {
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
