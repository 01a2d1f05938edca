//! The registered interests of tasks and event loops, and the descriptor that event loops watch.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use super::{Interests, NoneDone, Task, Topic, WatcherState, locked};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::segment::mapping::refused;
use crate::segment::waiters::View;
use crate::spin::{Looks, Spin};
use crate::sync::{self, Flag, Reach, Unshared};
use crate::sys::known::KnownFile;
use crate::sys::{self, Errno};

/// The result of a look for the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DescriptorNews {
    Nothing,
    /// There is something that the descriptor was rung for and that was not received yet.
    Known,
    /// There is something that it was not rung for.
    News,
}

impl<T: Topic> WatcherState<T> {
    pub(super) fn new(topic: T) -> WatcherState<T> {
        WatcherState {
            topic,
            generation: sync::generation(),
            spin: Spin::new(Duration::ZERO, Looks::Load),
            rest: Event::new(),
            has_descriptor: Flag::new(),
            interests: Mutex::new(Interests {
                eventfd: None,
                armed: false,
                items: HashMap::default(),
                done: VecDeque::new(),
                tasks: HashMap::default(),
                last: 0,
                has_rung_deserted: false,
                stop: false,
                is_waking: false,
            }),
        }
    }

    /// False in a forked child, which must not use any of it.
    pub(super) fn is_here(&self) -> bool {
        self.generation == sync::generation()
    }

    /// A descriptor that is readable while there is something to receive, as of the last look.
    pub(crate) fn descriptor(&self, op: &'static str) -> Result<OwnedFd> {
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
        given.map_err(|errno| refused::<T::Contents>(errno, op))
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
    pub(crate) fn has_descriptor(&self) -> bool {
        self.has_descriptor.is_set()
    }

    /// Makes the descriptor report an item.
    pub(crate) fn expect(&self, item: T::Item) {
        if self.has_descriptor() {
            let word = self.topic.word(&item);
            let mut interests = self.interests();
            // Another thread may have put the next item into that word. That one must stay.
            let stays = |known: &T::Item| *known == item || !self.topic.is_over(known);
            if interests.items.get(&word).is_some_and(stays) {
                return;
            }
            interests.items.insert(word, item);
            drop(interests);
            self.wake_thread();
            self.ring_if_done(&item, |interests| interests.armed);
        }
    }

    /// Of the items that the descriptor reports, one that is done and that `wanted` picks. `Err` if
    /// none of them is done.
    pub(crate) fn next_done(
        &self,
        wanted: impl Fn(T::Item) -> bool,
    ) -> std::result::Result<Option<T::Item>, NoneDone> {
        if !self.has_descriptor() {
            return Ok(None);
        }
        let mut interests = self.interests();
        if self.find(&mut interests, false) == DescriptorNews::Nothing {
            return Err(NoneDone);
        }
        // It stays until it was received, but behind the others, so that threads which look at the
        // same time get different ones.
        let next = interests.done.iter().position(|item| wanted(*item));
        let next = next.and_then(|place| interests.done.remove(place));
        interests.done.extend(next);
        Ok(next)
    }

    fn ring_if_done(&self, item: &T::Item, is_due: impl Fn(&Interests<T::Item>) -> bool) {
        if self.topic.is_done(item) {
            let mut interests = self.interests();
            if is_due(&interests) {
                self.ring(&mut interests);
            }
        }
    }

    /// Records that an item was polled. From now on, the descriptor reports the item if it is in
    /// progress, and everything else that has come.
    pub(crate) fn looked(&self, item: T::Item, is_open: bool) {
        if !self.has_descriptor() {
            return;
        }
        if is_open {
            self.expect(item);
            // A step since the look must be reported.
            self.ring_if_done(&item, |_| true);
        } else {
            let (mut interests, word) = (self.interests(), self.topic.word(&item));
            if interests.items.get(&word).is_some_and(|known| *known == item) {
                interests.items.remove(&word);
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
    pub(crate) fn wake_thread(&self) {
        self.rest.notify(Reach::Process);
    }

    /// The wait queue; an empty one if the topic has none.
    pub(super) fn view(&self) -> View {
        self.topic.waiters().map_or_else(View::default, |waiters| waiters.view())
    }

    /// For a topic that is the same for all interests: whether it is there, beside what the wait queue
    /// needs. Locks the queue.
    fn is_there(&self) -> bool {
        // In this order: see `Waiters::selected`.
        let (free, view) = (self.topic.free_places(), self.view());
        self.topic.is_there(free, view.waiting + view.selected)
    }

    pub(super) fn is_wanted(&self, interests: &Interests<T::Item>) -> bool {
        let lacks_items = self.topic.has_items() && interests.items.is_empty();
        !interests.tasks.is_empty() || interests.armed && !lacks_items
    }

    /// Returns what the descriptor must report. `is_there` was [read](Self::is_there) before the
    /// interests were locked.
    fn find(&self, interests: &mut Interests<T::Item>, is_there: bool) -> DescriptorNews {
        if !self.topic.has_items() {
            // It is the same for all interests, and was not there a moment ago.
            return if is_there { DescriptorNews::News } else { DescriptorNews::Nothing };
        }
        let Interests { items, done, .. } = interests;
        let is_current = |item: &T::Item| {
            let known = items.get(&self.topic.word(item));
            known.is_some_and(|known| known == item && self.topic.is_done(item))
        };
        while let Some(first) = done.front() {
            if is_current(first) {
                return DescriptorNews::Known;
            }
            done.pop_front();
        }
        // Removes only items that are over: one that is done by now must still be rung for.
        items.retain(|_, item| {
            let is_done = self.topic.is_done(item);
            if is_done {
                done.push_back(*item);
            }
            is_done || !self.topic.is_over(item)
        });
        if done.is_empty() { DescriptorNews::Nothing } else { DescriptorNews::News }
    }

    /// Rings the eventfd if that is due.
    pub(super) fn ring_if_due(&self, interests: &mut Interests<T::Item>, is_there: bool) -> bool {
        let due = interests.armed && self.find(interests, is_there) != DescriptorNews::Nothing;
        if due {
            self.ring(interests);
        }
        due
    }

    /// Rings it once when the topic is deserted.
    pub(super) fn ring_deserted(&self, interests: &mut Interests<T::Item>) -> bool {
        let is_due = self.topic.is_deserted();
        let is_news = is_due && !interests.has_rung_deserted && interests.armed;
        interests.has_rung_deserted = is_due && (is_news || interests.has_rung_deserted);
        if is_news {
            self.ring(interests);
        }
        is_news
    }

    pub(super) fn ring(&self, interests: &mut Interests<T::Item>) {
        interests.armed = false;
        interests.with_eventfd(sys::eventfd_ring);
    }

    pub(super) fn interests(&self) -> MutexGuard<'_, Interests<T::Item>> {
        locked(&self.interests)
    }
}

impl<I> Interests<I> {
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
pub(crate) struct Registration<T: Topic> {
    watcher: Arc<WatcherState<T>>,
    number: u64,
}

impl<T: Topic> Registration<T> {
    pub(crate) fn new(watcher: Arc<WatcherState<T>>) -> Registration<T> {
        let mut interests = watcher.interests();
        interests.last += 1;
        let number = interests.last;
        drop(interests);
        Registration { watcher, number }
    }

    /// Registers the waker of a task that has found nothing. `kept` is the registration of its polls before,
    /// and `watch` returns the watcher for the first one in this process. The task must look once more after
    /// this.
    pub(crate) fn keep(
        kept: &mut Option<Registration<T>>,
        item: Option<T::Item>,
        waker: &Waker,
        watch: impl FnOnce() -> Result<Arc<WatcherState<T>>>,
    ) -> Result<()> {
        let registration = match kept.take().filter(Registration::is_here) {
            Some(registration) => registration,
            None => Registration::new(watch()?),
        };
        kept.insert(registration).register(item, waker);
        Ok(())
    }

    /// False in a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.watcher.is_here()
    }

    /// Registers a waker, which is woken once. The task must look once more after this.
    pub(crate) fn register(&self, item: Option<T::Item>, waker: &Waker) {
        let task = Task { item, waker: waker.clone() };
        // Dropped outside of the lock, as everywhere: a waker runs foreign code.
        let before = self.watcher.interests().tasks.insert(self.number, task);
        drop(before);
        self.watcher.wake_thread();
    }
}

impl<T: Topic> Drop for Registration<T> {
    fn drop(&mut self) {
        if self.is_here() {
            let task = self.watcher.interests().tasks.remove(&self.number);
            drop(task);
        }
    }
}
