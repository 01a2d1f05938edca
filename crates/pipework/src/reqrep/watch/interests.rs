//! The registered interests of tasks and event loops, and the descriptor that event loops watch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use super::looking::DescriptorNews;
use super::{AwaitedCall, Interests, NoneDone, Task, Topic, WatcherState, locked};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::reqrep::liveness::Liveness;
use crate::reqrep::shm::mapping::{Shared, refused};
use crate::reqrep::shm::ticket::Ticket;
use crate::spin::{Looks, Spin};
use crate::sync::{self, Flag, Reach, Unshared};
use crate::sys::known::KnownFile;
use crate::sys::{self, Errno};

impl WatcherState {
    pub(super) fn new(shared: Arc<Shared>, liveness: Arc<Liveness>, topic: Topic) -> WatcherState {
        WatcherState {
            shared,
            liveness,
            topic,
            generation: sync::generation(),
            spin: Spin::new(Duration::ZERO, Looks::Load),
            rest: Event::new(),
            has_descriptor: Flag::new(),
            interests: Mutex::default(),
        }
    }

    /// False in a forked child, which must not use any of it.
    pub(super) fn is_here(&self) -> bool {
        self.generation == sync::generation()
    }

    /// A descriptor that is readable while there is something to receive, as of the last look.
    pub(in crate::reqrep) fn descriptor(&self, op: &'static str) -> Result<OwnedFd> {
        // Forks wait while it opens the eventfd, so it cannot close there what this process keeps.
        sys::with_descriptors(|| self.make_eventfd(op))?;
        self.look_once_more();
        if !self.is_here() {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        // Not a duplicate of the eventfd: the program's duplicates of it would have its mark.
        let around = |eventfd: BorrowedFd<'_>| {
            let epoll = sys::epoll()?;
            sys::epoll_add(epoll.as_fd(), eventfd).map(|()| epoll)
        };
        let given = self.interests().with_eventfd(around).unwrap_or(Err(Errno::BADF));
        given.map_err(|errno| refused(errno, op))
    }

    fn make_eventfd(&self, op: &'static str) -> Result<()> {
        // Dropped last: closing a descriptor waits for forks.
        let _lost;
        let mut forks_wait = sync::no_forks();
        let mut interests = self.interests();
        if interests.intact().is_none() {
            let made = Unshared::open(&mut forks_wait, || sys::eventfd().and_then(KnownFile::nameless))
                .map_err(|errno| errno.at(op))?;
            _lost = interests.eventfd.replace(made);
            self.has_descriptor.set(true);
            interests.armed = true;
        }
        Ok(())
    }

    /// Whether a descriptor was given out.
    pub(in crate::reqrep) fn has_descriptor(&self) -> bool {
        self.has_descriptor.is_set()
    }

    /// Makes the descriptor report a call.
    pub(in crate::reqrep) fn expect(&self, call: AwaitedCall) {
        if self.has_descriptor() {
            let mut interests = self.interests();
            // Another thread may have sent the next call in that slot. That call must stay.
            let stays = |known: &AwaitedCall| known.ticket == call.ticket || !self.is_over(known);
            if interests.calls.get(&call.ticket.idx()).is_some_and(stays) {
                return;
            }
            interests.calls.insert(call.ticket.idx(), call);
            drop(interests);
            self.wake_thread();
            self.ring_if_done(&call, |interests| interests.armed);
        }
    }

    /// Of the calls that the descriptor reports, one that is done and that `wanted` picks. `Err` if
    /// none of them is done.
    pub(in crate::reqrep) fn next_done(
        &self,
        wanted: impl Fn(Ticket) -> bool,
    ) -> std::result::Result<Option<Ticket>, NoneDone> {
        if !self.has_descriptor() {
            return Ok(None);
        }
        let mut interests = self.interests();
        if self.find(&mut interests, false) == DescriptorNews::Nothing {
            return Err(NoneDone);
        }
        // It stays until it was received, but behind the others, so that threads which look at the
        // same time get different ones.
        let next = interests.done.iter().position(|ticket| wanted(*ticket));
        let next = next.and_then(|place| interests.done.remove(place));
        interests.done.extend(next);
        Ok(next)
    }

    fn ring_if_done(&self, call: &AwaitedCall, is_due: impl Fn(&Interests) -> bool) {
        if self.is_done(call) {
            let mut interests = self.interests();
            if is_due(&interests) {
                self.ring(&mut interests);
            }
        }
    }

    /// Records that a call was polled. From now on, the descriptor reports the call if it is in
    /// progress, and everything else that has come.
    pub(in crate::reqrep) fn looked(&self, call: AwaitedCall, is_open: bool) {
        if !self.has_descriptor() {
            return;
        }
        if is_open {
            self.expect(call);
            // A step since the look must be reported.
            self.ring_if_done(&call, |_| true);
        } else {
            let mut interests = self.interests();
            let known = interests.calls.get(&call.ticket.idx());
            if known.is_some_and(|known| known.ticket == call.ticket) {
                interests.calls.remove(&call.ticket.idx());
            }
        }
        self.arm();
    }

    /// Makes the descriptor unreadable until something comes, if nothing is there. Rings again if
    /// something has come since the last ring: an edge-triggered loop is notified of each ring only
    /// once, and may have taken that ring for an event that is gone by now.
    pub(super) fn arm(&self) {
        if !self.has_descriptor() || self.interests().armed {
            return;
        }
        let is_there = self.is_there();
        let mut interests = self.interests();
        match self.find(&mut interests, is_there) {
            DescriptorNews::Nothing => {}
            DescriptorNews::Known => return,
            DescriptorNews::News => return self.ring(&mut interests),
        }
        interests.with_eventfd(sys::eventfd_clear);
        interests.armed = true;
        drop(interests);
        self.look_once_more();
    }

    fn look_once_more(&self) {
        self.wake_thread();
        let is_there = self.is_there();
        self.ring_if_due(&mut self.interests(), is_there);
    }

    /// Makes the thread notice an interest that was registered. If the thread is watching already,
    /// the fence in here is enough: a look after it sees everything from before the thread read the
    /// interest, and a thread that changes something after that look sees that the watcher is
    /// parked.
    pub(in crate::reqrep) fn wake_thread(&self) {
        self.rest.notify(Reach::Process);
    }

    /// Rings the eventfd if that is due.
    pub(super) fn ring_if_due(&self, interests: &mut Interests, is_there: bool) -> bool {
        let due = interests.armed && self.find(interests, is_there) != DescriptorNews::Nothing;
        if due {
            self.ring(interests);
        }
        due
    }

    /// Rings it once when the last server has gone, if the client needs one to send.
    pub(super) fn ring_without_server(&self, interests: &mut Interests) -> bool {
        let is_due = self.lacks_server();
        let is_news = is_due && !interests.has_rung_for_no_server && interests.armed;
        interests.has_rung_for_no_server = is_due && (is_news || interests.has_rung_for_no_server);
        if is_news {
            self.ring(interests);
        }
        is_news
    }

    pub(super) fn ring(&self, interests: &mut Interests) {
        interests.armed = false;
        interests.with_eventfd(sys::eventfd_ring);
    }

    pub(super) fn interests(&self) -> MutexGuard<'_, Interests> {
        locked(&self.interests)
    }
}

impl Interests {
    /// The eventfd; `None` if there is none, or if the program has closed it.
    fn intact(&self) -> Option<&Unshared> {
        self.eventfd.as_ref().filter(|eventfd| eventfd.is_intact())
    }

    /// The result of `call` for the eventfd, if it is intact. Otherwise another file may have its
    /// number, and that file is neither read nor written.
    fn with_eventfd<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.intact()?.with(call)
    }
}

/// Keeps a task's waker registered until this is dropped.
#[derive(Debug)]
pub(in crate::reqrep) struct Registration {
    watcher: Arc<WatcherState>,
    number: u64,
}

impl Registration {
    pub(in crate::reqrep) fn new(watcher: Arc<WatcherState>) -> Registration {
        let mut interests = watcher.interests();
        interests.last += 1;
        let number = interests.last;
        drop(interests);
        Registration { watcher, number }
    }

    /// False in a forked child.
    pub(in crate::reqrep) fn is_here(&self) -> bool {
        self.watcher.is_here()
    }

    /// Registers a waker, which is woken once. The task must look once more after this.
    pub(in crate::reqrep) fn register(&self, call: Option<AwaitedCall>, waker: &Waker) {
        let task = Task { call, waker: waker.clone() };
        // Dropped outside of the lock, as everywhere: a waker runs foreign code.
        let before = self.watcher.interests().tasks.insert(self.number, task);
        drop(before);
        self.watcher.wake_thread();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_here() {
            let task = self.watcher.interests().tasks.remove(&self.number);
            drop(task);
        }
    }
}
