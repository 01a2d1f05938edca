//! A handle's watch thread: started when somebody first wants to be told of something, ended with the handle.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::liveness::Liveness;
use super::notify::{Post, Watch, locked};
use super::segment::Shared;
use super::waiters::Waiters;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{self, Hint};
use crate::sys;

/// A handle's place for a thread that looks out on its behalf. It starts when it is first asked for; in a forked child, once more.
#[derive(Debug)]
pub(super) struct Lookout {
    /// 1 once it was asked for, so that those who never do pay for one load.
    asked: Hint,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    watch: Arc<Watch>,
    thread: JoinHandle<()>,
}

impl Lookout {
    pub(super) fn new() -> Lookout {
        Lookout { asked: Hint::new(0), running: Mutex::new(None) }
    }

    /// The watch, if this process has asked for it.
    #[inline]
    pub(super) fn asked_for(&self) -> Option<Arc<Watch>> {
        if self.asked.get() == 0 { None } else { self.here() }
    }

    #[cold]
    fn here(&self) -> Option<Arc<Watch>> {
        let _forks_wait = sync::no_forks();
        let running = locked(&self.running);
        running.as_ref().map(|running| &running.watch).filter(|watch| watch.is_here()).cloned()
    }

    /// Whoever has looked found nothing: a descriptor is to be rung when something comes.
    #[inline]
    pub(super) fn found_none(&self) {
        if let Some(watch) = self.asked_for() {
            watch.arm();
        }
    }

    /// The watch; starts its thread if there is none.
    pub(super) fn watch(
        &self,
        shared: &Arc<Shared>,
        liveness: &Arc<Liveness>,
        waiters: Option<&Arc<Waiters>>,
        post: Post,
        op: &'static str,
    ) -> Result<Arc<Watch>> {
        let _forks_wait = sync::no_forks();
        let mut running = locked(&self.running);
        if let Some(Running { watch, .. }) = &*running
            && watch.is_here()
        {
            return Ok(Arc::clone(watch));
        }
        let watch = Arc::new(Watch::new(Arc::clone(shared), Arc::clone(liveness), waiters.cloned(), post));
        let watching = Arc::clone(&watch);
        let thread = sys::start_thread("pipework-watch", move || watching.run())
            .map_err(|errno| Error::with_errno(ErrorKind::Os, op, errno.number()))?;
        // What was a parent's is left as it lies: its thread is not here, and may have been in the middle of anything.
        mem::forget(running.replace(Running { watch: Arc::clone(&watch), thread }));
        self.asked.set(1);
        Ok(watch)
    }
}

impl Drop for Lookout {
    /// Ends the thread, and waits for that unless it is waking somebody: that may need what the one who drops this holds, or
    /// be what drops this.
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { watch, thread }) = running else { return };
        if !watch.is_here() {
            mem::forget((watch, thread));
            return;
        }
        if watch.stop() {
            // It does not panic: what wakers do is caught.
            let _ = thread.join();
        }
    }
}
