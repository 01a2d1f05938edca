//! A handle's watch thread: started by the first request for a descriptor or a waker, ended with
//! the handle.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::{Topic, WatcherState};
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
    first: Link,
}

/// The thread of one process; behind it, that of a child which was forked from it. What is there
/// stays for as long as the handle, so it is read without a lock.
#[derive(Debug, Default)]
struct Link {
    running: OnceLock<Running>,
    child: OnceLock<Box<Link>>,
}

#[derive(Debug)]
struct Running {
    state: Arc<WatcherState>,
    thread: JoinHandle<()>,
}

impl Link {
    /// The link of this process: the first without a thread, or with one that is here.
    fn here(&self) -> &Link {
        let mut link = self;
        while link.running.get().is_some_and(|running| !running.state.is_here()) {
            link = link.child.get_or_init(Box::default);
        }
        link
    }
}

impl Watcher {
    pub(in crate::reqrep) fn new() -> Watcher {
        Watcher { asked: Hint::new(0), first: Link::default() }
    }

    /// The thread's state, if this process has asked for it.
    #[inline]
    pub(in crate::reqrep) fn asked_for(&self) -> Option<&WatcherState> {
        if self.asked.get() == 0 { None } else { self.here() }
    }

    #[cold]
    fn here(&self) -> Option<&WatcherState> {
        self.first.here().running.get().map(|running| &*running.state)
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
        // One thread at a time starts it, and no fork meanwhile.
        let _forks_wait = sync::no_forks();
        let here = self.first.here();
        if let Some(Running { state, .. }) = here.running.get() {
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(WatcherState::new(Arc::clone(shared), Arc::clone(liveness), topic));
        let watching = Arc::clone(&state);
        let thread = sys::start_thread("pipework-watch", move || watching.run())
            .map_err(|errno| Error::with_errno(ErrorKind::Os, op, errno.number()))?;
        here.running.set(Running { state: Arc::clone(&state), thread }).expect("there was none");
        self.asked.set(1);
        Ok(state)
    }
}

impl Drop for Watcher {
    /// Ends the thread and joins it, unless it is waking a task. What it wakes may need something
    /// that the dropping thread holds, or may be what drops this handle.
    fn drop(&mut self) {
        let mut next = Some(mem::take(&mut self.first));
        while let Some(Link { running, mut child }) = next {
            next = child.take().map(|child| *child);
            let Some(Running { state, thread }) = running.into_inner() else { continue };
            if !state.is_here() {
                // A parent's state is neither used nor dropped: its thread does not exist here, and
                // may have been in the middle of anything.
                mem::forget((state, thread));
            } else if state.stop() {
                // It does not panic: panics of wakers are caught.
                let _ = thread.join();
            }
        }
    }
}
