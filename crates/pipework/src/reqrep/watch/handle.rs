//! A handle's watch thread: started by the first request for a descriptor or a waker, ended with
//! the handle.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::{Topic, WatcherState, locked};
use crate::error::{Error, ErrorKind, Result};
use crate::reqrep::liveness::Liveness;
use crate::reqrep::shm::mapping::Shared;
use crate::sync::{self, Hint};
use crate::sys;

/// A handle's watch thread. It starts when it is first asked for; in a forked child, once more.
#[derive(Debug)]
pub(in crate::reqrep) struct Watcher {
    /// 1 once it was asked for, so that a handle that never asks pays for one load.
    asked: Hint,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    state: Arc<WatcherState>,
    thread: JoinHandle<()>,
}

impl Watcher {
    pub(in crate::reqrep) fn new() -> Watcher {
        Watcher { asked: Hint::new(0), running: Mutex::new(None) }
    }

    /// The thread's state, if this process has asked for it.
    #[inline]
    pub(in crate::reqrep) fn asked_for(&self) -> Option<Arc<WatcherState>> {
        if self.asked.get() == 0 { None } else { self.here() }
    }

    #[cold]
    fn here(&self) -> Option<Arc<WatcherState>> {
        let _forks_wait = sync::no_forks();
        let running = locked(&self.running);
        running.as_ref().map(|running| &running.state).filter(|state| state.is_here()).cloned()
    }

    /// A look has found nothing: the descriptor is to be rung when something comes.
    #[inline]
    pub(in crate::reqrep) fn found_none(&self) {
        if let Some(state) = self.asked_for() {
            state.arm();
        }
    }

    /// The thread's state; starts the thread if there is none.
    pub(in crate::reqrep) fn watch(
        &self,
        shared: &Arc<Shared>,
        liveness: &Arc<Liveness>,
        topic: Topic,
        op: &'static str,
    ) -> Result<Arc<WatcherState>> {
        let _forks_wait = sync::no_forks();
        let mut running = locked(&self.running);
        if let Some(Running { state, .. }) = &*running
            && state.is_here()
        {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(WatcherState::new(Arc::clone(shared), Arc::clone(liveness), topic));
        let watching = Arc::clone(&state);
        let thread = sys::start_thread("pipework-watch", move || watching.run())
            .map_err(|errno| Error::with_errno(ErrorKind::Os, op, errno.number()))?;
        // A parent's state is neither used nor dropped: its thread does not exist here, and may
        // have been in the middle of anything.
        mem::forget(running.replace(Running { state: Arc::clone(&state), thread }));
        self.asked.set(1);
        Ok(state)
    }
}

impl Drop for Watcher {
    /// Ends the thread and joins it, unless it is waking a task. What it wakes may need something
    /// that the dropping thread holds, or may be what drops this handle.
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { state, thread }) = running else { return };
        if !state.is_here() {
            mem::forget((state, thread));
            return;
        }
        if state.stop() {
            // It does not panic: panics of wakers are caught.
            let _ = thread.join();
        }
    }
}
