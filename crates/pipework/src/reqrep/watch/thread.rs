//! The thread: it parks where the handle would, and notifies tasks and event loops.

use std::task::Waker;

use super::{Call, PATIENCE, Ready, Task, Topic, WATCH, WatcherState};
use crate::deadline::Deadline;
use crate::error::{ErrorKind, Result};
use crate::event::Wait;
use crate::reqrep::waiters::wake;
use crate::sync::Reach;

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Watch,
    Stop,
}

impl WatcherState {
    pub(super) fn run(&self) {
        loop {
            match self.rest(Deadline::NEVER) {
                Ok(Order::Watch) => self.pass_on(self.tell()),
                Ok(Order::Stop) => return,
                Err(_) => {}
            }
        }
    }

    /// Parks until there is something to do, or the deadline.
    fn rest(&self, deadline: Deadline) -> Result<Order> {
        let wait = Wait { deadline, spin: &self.spin, reach: Reach::Process, tick: None, op: WATCH };
        let look = || {
            let represents = self.represents().is_some();
            let interests = self.interests();
            let is_wanted = represents || self.is_wanted(&interests);
            Ok(if interests.stop { Some(Order::Stop) } else { is_wanted.then_some(Order::Watch) })
        };
        self.rest.wait(&wait, look, || Ok(()))
    }

    /// Waits until there is something to report, and reports it; false if it has notified neither a
    /// task nor a loop.
    fn tell(&self) -> bool {
        let tick = Some(self.liveness.tick());
        let (deadline, reach) = (Deadline::NEVER, Reach::Machine);
        let wait = Wait { deadline, spin: &self.spin, reach, tick, op: WATCH };
        let (me, failures) = (self.liveness.number(), self.liveness.failures());
        // A member that has joined anew has other calls, and another bell. A failed check concerns
        // all interests, whichever thread had the tick.
        let event = self.event(me);
        let look = || {
            if !std::ptr::eq(event, self.event(me)) {
                return Ok(Some(None));
            }
            let has_changed = self.liveness.number() != me || self.liveness.failures() != failures;
            Ok(self.look(has_changed || self.topic.is_stopped()).map(Some))
        };
        let ready = match event.wait(&wait, look, || self.check()) {
            Ok(Some(ready)) => ready,
            // It parks elsewhere from now on.
            Ok(None) => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => Ready::default(),
            // The tasks and loops look, and get the error.
            Err(_) => self.look(true).unwrap_or_default(),
        };
        let mut any = ready.descriptor || !ready.tasks.is_empty();
        ready.tasks.into_iter().for_each(wake);
        if let Some(waiters) = self.topic.line() {
            waiters.took_offer();
            any |= (0..ready.from_line).take_while(|_| waiters.choose()).count() > 0;
        }
        self.interests().is_waking = false;
        any
    }

    /// What is to be reported now; `None` if there is nothing, but an interest is registered.
    fn look(&self, everybody: bool) -> Option<Ready> {
        let represents = self.represents();
        self.count_anew();
        let has_slot = |chosen| self.lets_in(chosen) && self.shared.has_free(chosen);
        let from_line = match represents {
            Some(_) if everybody => usize::MAX,
            Some(chosen) => usize::from(has_slot(chosen)),
            None => 0,
        };
        let in_line = self.in_line();
        // Wakers are dropped after the lock.
        let mut tasks = self.told_of_no_server();
        let mut interests = self.interests();
        if interests.stop {
            return Some(Ready::default());
        }
        match self.topic {
            Topic::Space(_) => self.liveness.lacks_slot(),
            Topic::Turns if !interests.tasks.is_empty() => self.liveness.awaits_client(),
            _ => {}
        }
        let descriptor =
            self.ring_if_due(&mut interests, in_line) || self.ring_without_server(&mut interests);
        if everybody {
            self.ring(&mut interests);
        }
        let for_all = everybody || !interests.tasks.is_empty() && self.is_there(0);
        let has_ended = |call: &Call| self.is_done(call) || self.is_over(call);
        let is_due = |task: &mut Task| for_all || task.call.as_ref().is_some_and(has_ended);
        tasks.extend(interests.tasks.extract_if(|_, task| is_due(task)).map(|(_, task)| task.waker));
        interests.is_waking = !tasks.is_empty() || from_line > 0;
        let is_wanted = represents.is_some() || self.is_wanted(&interests);
        let over = descriptor || everybody || interests.is_waking || !is_wanted;
        over.then_some(Ready { descriptor, from_line, tasks })
    }

    /// The event has woken one thread, and that was this one. If no task or loop that it notified
    /// comes to look, another waiter is to be woken. For replies, there is no other waiter.
    fn pass_on(&self, told: bool) {
        if self.topic.is_of_calls() {
            return;
        }
        let came = told && matches!(self.rest(Deadline::after(PATIENCE)), Ok(Order::Watch));
        if !came && self.is_there_for_others() {
            self.common_event(self.liveness.number()).notify(Reach::Machine);
        }
    }

    /// When the tick is due: what the handle itself does in a wait.
    fn check(&self) -> Result<()> {
        self.liveness.check_calls(self.slots(), WATCH)
    }

    /// The slots of the calls that are waited for.
    fn slots(&self) -> Vec<u32> {
        let interests = self.interests();
        let tasks = interests.tasks.values().filter_map(|task| task.call.as_ref());
        interests.calls.values().chain(tasks).map(|call| call.ticket.idx()).collect()
    }

    /// The tasks in the line for slots that need a server, if there is none now.
    fn told_of_no_server(&self) -> Vec<Waker> {
        let waiters = self.topic.line().filter(|_| self.liveness.is_forsaken());
        waiters.map_or_else(Vec::new, |waiters| waiters.tell_of_no_server())
    }

    /// Makes the thread end; returns whether that will be soon. It starts no further wakers, but
    /// may be in the middle of some.
    pub(super) fn stop(&self) -> bool {
        let is_waking = {
            let mut interests = self.interests();
            interests.stop = true;
            interests.is_waking
        };
        self.rest.notify_all(Reach::Process);
        // Other threads that park there look, and park again.
        self.common_event(self.liveness.number()).notify_all(Reach::Machine);
        self.topic.line().inspect(|waiters| waiters.tell_of_end());
        !is_waking
    }
}
