//! What there is to report.

use super::{AwaitedCall, Interests, Topic, WatcherState};
use crate::event::Event;
use crate::reqrep::shm::call::Standing;
use crate::reqrep::shm::ticket::Ticket;
use crate::reqrep::waiters::View;

/// What a look for the descriptor has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorNews {
    Nothing,
    /// What it was rung for, and nobody has received yet.
    Known,
    /// Something that it was not rung for.
    News,
}

impl WatcherState {
    /// Where the thread of the member `me` parks. Not at `space` while it has no use for a slot: it
    /// would take wake-ups that others need. That is so while the limit of its client stops all that
    /// it would report to, while a thread stands before these, which looks for itself, and while the
    /// ring is full, for neither a task nor a loop can hold a slot until then.
    pub(super) fn event(&self, me: u16, view: &View) -> &Event {
        let Topic::Space(waiters) = &self.topic else { return self.common_event(me) };
        let more = if view.has_task { view.chosen } else { view.waiting + view.chosen };
        if view.is_thread_first || !waiters.lets_in(more) {
            waiters.ends()
        } else if self.shared.is_ring_full() {
            self.shared.cells()
        } else {
            self.shared.space()
        }
    }

    /// The same where it has use for what comes.
    pub(super) fn common_event(&self, me: u16) -> &Event {
        match &self.topic {
            Topic::Requests(_) => self.shared.requests(),
            Topic::Space(_) => self.shared.space(),
            Topic::Replies | Topic::Turns => {
                &self.shared.member(me).expect("one's own number is in the geometry").bell
            }
        }
    }

    pub(super) fn lets_in(&self, more: usize) -> bool {
        self.topic.line().is_none_or(|waiters| waiters.lets_in(more))
    }

    /// The line for slots, if this is what the thread is for.
    pub(super) fn view(&self) -> View {
        self.topic.line().map_or_else(View::default, |waiters| waiters.view())
    }

    /// Counts the calls in progress anew: some of this client may have ended unseen.
    pub(super) fn count_anew(&self) {
        if let Some(waiters) = self.topic.line() {
            waiters.count_anew(|| self.shared.calls_of(self.liveness.number()).count());
        }
    }

    /// How many slots are not for the loops behind the descriptor.
    pub(super) fn in_line(&self) -> usize {
        self.topic.line().map_or(0, |waiters| waiters.present())
    }

    pub(super) fn is_wanted(&self, interests: &Interests) -> bool {
        let for_calls = self.topic.is_of_calls();
        !interests.tasks.is_empty() || interests.armed && !(for_calls && interests.calls.is_empty())
    }

    /// Whether there is what all interests here wait for, where that is the same for all. Where it
    /// is space: enough for `more` others first.
    pub(super) fn is_there(&self, more: usize) -> bool {
        match &self.topic {
            Topic::Requests(inbox) => self.shared.has_request() || inbox.has_gathered(),
            Topic::Space(_) => {
                self.lets_in(more) && !self.shared.is_ring_full() && self.shared.has_free(more)
            }
            Topic::Replies | Topic::Turns => false,
        }
    }

    /// The same for the other members that wait there.
    pub(super) fn is_there_for_others(&self) -> bool {
        match &self.topic {
            // A thread can hold a slot until the ring has space.
            Topic::Space(_) => self.shared.has_free(0),
            _ => self.is_there(0),
        }
    }

    /// What there is for the descriptor to report.
    pub(super) fn find(&self, interests: &mut Interests, in_line: usize) -> DescriptorNews {
        if !self.topic.is_of_calls() {
            // It is the same for all interests, and was not there a moment ago.
            return if self.is_there(in_line) { DescriptorNews::News } else { DescriptorNews::Nothing };
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
        // Only calls that are over are forgotten: one that is done by now is to be rung for.
        calls.retain(|_, call| {
            let is_done = self.is_done(call);
            if is_done {
                done.push_back(call.ticket);
            }
            is_done || !self.is_over(call)
        });
        if done.is_empty() { DescriptorNews::Nothing } else { DescriptorNews::News }
    }

    /// Whether there is something to do: to receive a part, or how the call has ended, or that
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

    /// Whether it was received or given up.
    pub(super) fn is_over(&self, call: &AwaitedCall) -> bool {
        !matches!(self.topic, Topic::Turns) && self.standing(call) == Standing::Over
    }

    fn standing(&self, call: &AwaitedCall) -> Standing {
        self.shared.standing(call.ticket, self.liveness.number())
    }
}
