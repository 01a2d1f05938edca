//! Waits for descriptors, for the tasks of all event loops of the process.
//!
//! Node has no public interface that watches a descriptor without reading from it. So one thread,
//! which the first wait starts, waits for all of them, and wakes the tasks. It reads and writes
//! nothing: a task that was woken tries again.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// The direction of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    Reading,
    Writing,
}

/// A descriptor that a task waits for, until it is dropped.
///
/// It is a duplicate. So no other handle has its number, and it cannot belong to another file
/// while the thread knows it.
#[derive(Debug)]
pub(crate) struct Wait {
    fd: OwnedFd,
    number: u64,
    watch: &'static Watch,
    flags: EventFlags,
}

#[derive(Debug)]
struct Watch {
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last wait.
    last: u64,
    /// The tasks that wait, by the numbers of their waits.
    tasks: HashMap<u64, Waker>,
}

impl Wait {
    pub(crate) fn new(fd: BorrowedFd<'_>, direction: For) -> io::Result<Wait> {
        let flags = match direction {
            For::Reading => EventFlags::IN | EventFlags::RDHUP,
            For::Writing => EventFlags::OUT,
        };
        let (watch, fd) = (watch()?, fd.try_clone_to_owned()?);
        let mut state = watch.state();
        state.last += 1;
        Ok(Wait { fd, number: state.last, watch, flags: flags | EventFlags::ONESHOT })
    }

    /// Waits until the descriptor is ready, has failed, or has no other end. Only once.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        let mut has_begun = false;
        poll_fn(|cx| {
            let mut state = self.watch.state();
            if has_begun && !state.tasks.contains_key(&self.number) {
                return Poll::Ready(Ok(()));
            }
            state.tasks.insert(self.number, cx.waker().clone());
            drop(state);
            if !has_begun {
                has_begun = true;
                epoll::add(&self.watch.epoll, &self.fd, EventData::new_u64(self.number), self.flags)?;
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Other duplicates of the file may stay open, so closing this one would not end the watch.
        let _ = epoll::delete(&self.watch.epoll, &self.fd);
        let waker = self.watch.state().tasks.remove(&self.number);
        drop(waker);
    }
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(self.epoll.as_fd(), spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("pipework cannot wait for descriptors: {error}"),
            }
            for event in &events {
                let waker = self.state().tasks.remove(&event.data.u64());
                waker.inspect(Waker::wake_by_ref);
            }
        }
    }
}

/// The watch of this process.
fn watch() -> io::Result<&'static Watch> {
    static WATCH: OnceLock<Watch> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(watch) = WATCH.get() {
        return Ok(watch);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if WATCH.get().is_none() {
        let watch = Watch { epoll: epoll::create(CreateFlags::CLOEXEC)?, state: Mutex::default() };
        let watch = WATCH.get_or_init(|| watch);
        thread::Builder::new().name("pipework-watch".into()).spawn(|| watch.run())?;
    }
    Ok(WATCH.get().expect("it was set"))
}
