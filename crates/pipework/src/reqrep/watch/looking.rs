//! How a watcher finds out whether there is something to report.

use super::{AwaitedCall, Interests, Topic, WatcherState};
use crate::event::Event;
use crate::reqrep::shm::call::Standing;
use crate::reqrep::shm::ticket::Ticket;
use crate::reqrep::waiters::View;

/// The result of a look for the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorNews {
    Nothing,
    /// There is something that the descriptor was rung for and that was not received yet.
    Known,
    /// There is something that it was not rung for.
    News,
}

impl WatcherState {
    /// The event at which the thread of the member `me` parks. It does not park at `space` while it
    /// cannot use a slot, because it would consume wake-ups that others need. That is so while its
    /// client is at its limit, while a thread leads the wait queue, and while the ring is full:
    /// neither a task nor a loop holds a slot until there is a cell.
    pub(super) fn event(&self, me: u16, view: &View) -> &Event {
        let Topic::Space(waiters) = &self.topic else { return self.common_event(me) };
        if view.thread_leads || !waiters.lets_in(view.selected) {
            waiters.ends()
        } else if self.shared.is_ring_full() {
            self.shared.cells()
        } else {
            self.shared.space()
        }
    }

    /// The event at which it parks when it can use a wake-up.
    pub(super) fn common_event(&self, me: u16) -> &Event {
        match &self.topic {
            Topic::Requests(_) => self.shared.requests(),
            Topic::Space(_) => self.shared.space(),
            Topic::Replies | Topic::Turns => {
                &self.shared.member(me).expect("one's own number is in the geometry").bell
            }
        }
    }

    /// The wait queue for slots; an empty one if the thread is for another topic.
    pub(super) fn view(&self) -> View {
        self.topic.waiters().map_or_else(View::default, |waiters| waiters.view())
    }

    /// Recounts the calls in progress: some of this client may have ended without notice.
    pub(super) fn recount(&self) {
        if let Some(waiters) = self.topic.waiters() {
            waiters.recount(|| self.shared.calls_of(self.liveness.number()).count());
        }
    }

    /// Whether this waits for slots, its client needs a server, and there is none.
    pub(super) fn lacks_server(&self) -> bool {
        self.topic.waiters().is_some_and(|waiters| waiters.needs_server) && self.liveness.has_no_server()
    }

    pub(super) fn is_wanted(&self, interests: &Interests) -> bool {
        let for_calls = self.topic.is_of_calls();
        !interests.tasks.is_empty() || interests.armed && !(for_calls && interests.calls.is_empty())
    }

    /// For a topic that is the same for all interests: whether the thing that they wait for is
    /// there. For slots: whether there is one more than the wait queue needs. Locks the queue.
    pub(super) fn is_there(&self) -> bool {
        // In this order: see `Waiters::selected`.
        let free = self.free_slots();
        self.is_there_beside(free, &self.view())
    }

    /// The same for this number of free slots and this queue.
    pub(super) fn is_there_beside(&self, free: usize, view: &View) -> bool {
        match &self.topic {
            Topic::Requests(_) => self.topic.short_until().is_none() && self.shared.has_request(),
            Topic::Space(_) => self.has_slot(free, view.waiting + view.selected),
            Topic::Replies | Topic::Turns => false,
        }
    }

    /// How many slots are free, if the topic is slots.
    pub(super) fn free_slots(&self) -> usize {
        self.topic.waiters().map_or(0, |_| self.shared.free_slots())
    }

    /// Whether a request could be sent with one of these free slots if `others` come first.
    pub(super) fn has_slot(&self, free: usize, others: usize) -> bool {
        let lets_in = self.topic.waiters().is_none_or(|waiters| waiters.lets_in(others));
        lets_in && free > others && !self.shared.is_ring_full()
    }

    /// The same for the other members that wait there.
    pub(super) fn is_there_for_others(&self) -> bool {
        match &self.topic {
            // A thread may hold a slot until the ring has space.
            Topic::Space(_) => self.shared.has_free(0),
            Topic::Requests(_) => self.shared.has_request(),
            _ => self.is_there(),
        }
    }

    /// Returns what the descriptor must report. `is_there` was [read](Self::is_there) before the
    /// interests were locked.
    pub(super) fn find(&self, interests: &mut Interests, is_there: bool) -> DescriptorNews {
        if !self.topic.is_of_calls() {
            // It is the same for all interests, and was not there a moment ago.
            return if is_there { DescriptorNews::News } else { DescriptorNews::Nothing };
        }
        let Interests { calls, done, .. } = interests;
        let is_current = |ticket: &Ticket| {
            let call = calls.get(&ticket.idx()).filter(|call| call.ticket == *ticket);
            call.is_some_and(|call| self.is_done(call))
        };
        while let Some(first) = done.front() {
            if is_current(first) {
                return DescriptorNews::Known;
            }
            done.pop_front();
        }
        // Removes only calls that have ended: one that is done by now must still be rung for.
        calls.retain(|_, call| {
            let is_done = self.is_done(call);
            if is_done {
                done.push_back(call.ticket);
            }
            is_done || !self.is_over(call)
        });
        if done.is_empty() { DescriptorNews::Nothing } else { DescriptorNews::News }
    }

    /// Whether the program can make the next step: receive a part or the outcome, or learn that
    /// there is no server. For a server: whether it is its turn.
    pub(super) fn is_done(&self, call: &AwaitedCall) -> bool {
        if matches!(self.topic, Topic::Turns) {
            return !self.shared.is_clients_turn(call.ticket);
        }
        match self.standing(call) {
            Standing::Sent => call.needs_server && self.liveness.has_no_server(),
            standing => matches!(standing, Standing::Done(_) | Standing::Turn(_)),
        }
    }

    /// Whether the call was received or given up.
    pub(super) fn is_over(&self, call: &AwaitedCall) -> bool {
        !matches!(self.topic, Topic::Turns) && self.standing(call) == Standing::Over
    }

    fn standing(&self, call: &AwaitedCall) -> Standing {
        self.shared.standing(call.ticket, self.liveness.number())
    }
}
