//! The thread: it parks where the handle would, and notifies tasks and event loops.

use std::task::Waker;

use super::{PATIENCE, Ready, Task, Topic, WATCH, WatcherState};
use crate::deadline::Deadline;
use crate::error::{ErrorKind, Result};
use crate::event::Wait;
use crate::segment::waiters::{self, View, wake};
use crate::sync::Reach;

/// The next task of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Watch,
    Stop,
    /// It rests, but for a shorter time, because a task was selected and may be missing.
    Sooner,
}

/// The reason why a wait for something to report ended.
enum Seen {
    Ready(Ready),
    /// The thread must park elsewhere.
    Elsewhere,
    /// It must park for a shorter time.
    Sooner,
}

impl<T: Topic> WatcherState<T> {
    pub(super) fn run(&self) {
        loop {
            if let Some(waiters) = self.topic.waiters() {
                waiters.give_up_on_missing();
            }
            match self.rest(self.view().patience_ends.unwrap_or(Deadline::NEVER)) {
                Ok(Order::Watch) => {
                    if let Some(notified) = self.tell() {
                        self.pass_on(notified);
                    }
                }
                Ok(Order::Stop) => return,
                Ok(Order::Sooner) | Err(_) => {}
            }
        }
    }

    /// Parks until there is something to do, or the deadline.
    fn rest(&self, deadline: Deadline) -> Result<Order> {
        let wait =
            Wait { deadline, spin: &self.spin, reach: Reach::Process, tick: None, long: None, op: WATCH };
        let look = || {
            let view = self.view();
            let interests = self.interests();
            Ok(if interests.stop {
                Some(Order::Stop)
            } else if view.has_task || self.is_wanted(&interests) {
                Some(Order::Watch)
            } else {
                is_sooner(&view, deadline).then_some(Order::Sooner)
            })
        };
        self.rest.wait(&wait, look, || Ok(()))
    }

    /// Waits until there is something to report, and reports it. Returns false if it has notified
    /// neither a task nor a loop, and `None` if it has consumed no wake-up that another waiter
    /// could use.
    fn tell(&self) -> Option<bool> {
        let tick = Some(self.topic.liveness().tick());
        let (view, reach) = (self.view(), Reach::Machine);
        // A thread that frees a place may select a task at any time, without waking this one.
        let patience = || match view.has_task && self.topic.liveness().tick().goes_on() {
            true => Deadline::after(waiters::PATIENCE),
            false => Deadline::NEVER,
        };
        let until = view.patience_ends.or_else(|| self.topic.rests_until());
        let deadline = until.unwrap_or_else(patience);
        let wait = Wait { deadline, spin: &self.spin, reach, tick, long: None, op: WATCH };
        let (me, failures) = (self.topic.liveness().number(), self.topic.liveness().failures());
        // A member that has joined again has other items and another bell. A failed check concerns
        // all interests, whichever thread had the tick.
        let event = self.topic.event(me, &view);
        let look = || {
            // In this order: see `Waiters::selected`.
            let free = self.topic.free_places();
            let view = self.view();
            if !std::ptr::eq(event, self.topic.event(me, &view)) {
                return Ok(Some(Seen::Elsewhere));
            }
            let has_changed =
                self.topic.liveness().number() != me || self.topic.liveness().failures() != failures;
            let ready = self.look(has_changed || self.topic.is_stopped(), free, &view);
            Ok(ready.map(Seen::Ready).or_else(|| is_sooner(&view, deadline).then_some(Seen::Sooner)))
        };
        let ready = match event.wait(&wait, look, || self.check()) {
            Ok(Seen::Ready(ready)) => ready,
            // The wake-up that it got may belong to another waiter.
            Ok(Seen::Elsewhere) => return std::ptr::eq(event, self.topic.common_event(me)).then_some(false),
            Ok(Seen::Sooner) => return None,
            Err(error) if error.kind() == ErrorKind::TimedOut => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => Ready::default(),
            // The tasks and loops look, and get the error.
            Err(_) => self.look(true, 0, &self.view()).unwrap_or_default(),
        };
        let mut any = ready.descriptor || !ready.tasks.is_empty();
        ready.tasks.into_iter().for_each(wake);
        any |= ready.selects && self.topic.waiters().is_some_and(|waiters| waiters.select());
        self.interests().is_waking = false;
        Some(any)
    }

    /// Returns what to report now; `None` if there is nothing and an interest is registered.
    /// `everybody`: something was found that concerns all, so all must look.
    fn look(&self, everybody: bool, free: usize, view: &View) -> Option<Ready> {
        let has_tasks = !self.interests().tasks.is_empty();
        self.topic.looks(has_tasks);
        let is_there = self.topic.is_there(free, view.waiting + view.selected);
        let selects = view.has_task && !view.thread_leads && self.topic.is_there(free, view.selected);
        // Wakers are dropped after the lock.
        let mut tasks = if everybody || self.topic.is_deserted() { self.take_wakers() } else { Vec::new() };
        let mut interests = self.interests();
        if interests.stop {
            return Some(Ready::default());
        }
        let descriptor = self.ring_if_due(&mut interests, is_there) || self.ring_deserted(&mut interests);
        if everybody {
            self.ring(&mut interests);
        }
        let for_all = everybody || is_there;
        let has_ended = |item: &T::Item| self.topic.is_done(item) || self.topic.is_over(item);
        let is_due = |task: &mut Task<T::Item>| for_all || task.item.as_ref().is_some_and(has_ended);
        tasks.extend(interests.tasks.extract_if(|_, task| is_due(task)).map(|(_, task)| task.waker));
        interests.is_waking = !tasks.is_empty() || selects;
        let is_wanted = view.has_task || self.is_wanted(&interests);
        let over = descriptor || everybody || interests.is_waking || !is_wanted;
        over.then_some(Ready { descriptor, selects, tasks })
    }

    /// The event has woken one thread, which was this one. If no task or loop that it notified
    /// looks, another waiter must be woken. For items there is no other waiter.
    fn pass_on(&self, notified: bool) {
        if self.topic.has_items() {
            return;
        }
        let came = notified && matches!(self.rest(Deadline::after(PATIENCE)), Ok(Order::Watch));
        if !came && self.topic.is_there_for_others() {
            self.topic.common_event(self.topic.liveness().number()).notify(Reach::Machine);
        }
    }

    /// The check at a tick, as the handle itself does it in a wait.
    fn check(&self) -> Result<()> {
        self.topic.liveness().check(self.words(), WATCH)
    }

    /// The words of the items that are waited for.
    fn words(&self) -> Vec<u32> {
        let interests = self.interests();
        let tasks = interests.tasks.values().filter_map(|task| task.item.as_ref());
        interests.items.values().chain(tasks).map(|item| self.topic.word(item)).collect()
    }

    /// The wakers of the tasks in the wait queue.
    fn take_wakers(&self) -> Vec<Waker> {
        self.topic.waiters().map_or_else(Vec::new, |waiters| waiters.take_wakers())
    }

    /// Makes the thread end; returns whether that will be soon. It starts no further wakers, but
    /// may be in the middle of some.
    pub(super) fn stop(&self) -> bool {
        let is_waking = {
            let mut interests = self.interests();
            interests.stop = true;
            interests.is_waking
        };
        self.rouse();
        !is_waking
    }

    /// Makes the thread look, wherever it is parked.
    pub(crate) fn rouse(&self) {
        self.rest.notify_all(Reach::Process);
        // Other threads that park there look, and park again.
        self.topic.common_event(self.topic.liveness().number()).notify_all(Reach::Machine);
        self.topic.rouse_elsewhere();
    }
}

/// Whether a task is to count as missing before the deadline.
fn is_sooner(view: &View, deadline: Deadline) -> bool {
    view.patience_ends.is_some_and(|ends| ends.as_ns() + SLACK_NS < deadline.as_ns())
}

/// Two readings of the clock for one instant differ by less than this.
const SLACK_NS: i64 = 1_000_000;
