//! What there is to report.

use super::{Call, Interests, Topic, WatcherState};
use crate::event::Event;
use crate::reqrep::shm::call::Standing;
use crate::reqrep::shm::ticket::Ticket;

/// What a look for the descriptor has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// What it was rung for, and nobody has received yet.
    Known,
    /// Something that it was not rung for.
    News,
}

impl WatcherState {
    /// Where the thread of the member `me` parks. Not at `space` while the limit of its client
    /// stops all whom it would report to: it would take wake-ups that others need.
    pub(super) fn event(&self, me: u16) -> &Event {
        let more = || self.represents().unwrap_or_else(|| self.in_line());
        let line = self.topic.line().filter(|waiters| waiters.is_limited());
        match line.filter(|waiters| !waiters.lets_in(more())) {
            Some(waiters) => waiters.ends(),
            None => self.common_event(me),
        }
    }

    /// The same without a limit.
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

    /// How many waiters are chosen in the line for slots, if the thread is to represent them.
    pub(super) fn represents(&self) -> Option<usize> {
        self.topic.line().and_then(|waiters| waiters.has_tasks())
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
            Topic::Space(_) => self.lets_in(more) && self.shared.has_space(more),
            Topic::Replies | Topic::Turns => false,
        }
    }

    /// The same for the other members that wait there.
    pub(super) fn is_there_for_others(&self) -> bool {
        match &self.topic {
            Topic::Space(_) => self.shared.has_space(0),
            _ => self.is_there(0),
        }
    }

    /// What there is for the descriptor to report.
    pub(super) fn find(&self, interests: &mut Interests, in_line: usize) -> Found {
        if !self.topic.is_of_calls() {
            // It is the same for all interests, and was not there a moment ago.
            return if self.is_there(in_line) { Found::News } else { Found::Nothing };
        }
        let Interests { calls, done, .. } = interests;
        let is_current = |ticket: &Ticket| {
            let call = calls.get(&ticket.idx()).filter(|call| call.ticket == *ticket);
            call.is_some_and(|call| self.is_done(call))
        };
        while let Some(first) = done.front() {
            if is_current(first) {
                return Found::Known;
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
        if done.is_empty() { Found::Nothing } else { Found::News }
    }

    /// Whether there is something to do: to receive a part, or how the call has ended, or that
    /// there is no server. For a server: whether it is its turn.
    pub(super) fn is_done(&self, call: &Call) -> bool {
        if matches!(self.topic, Topic::Turns) {
            return !self.shared.is_clients_turn(call.ticket);
        }
        match self.standing(call) {
            Standing::Sent => call.needs_server && self.liveness.is_forsaken(),
            standing => matches!(standing, Standing::Done(_) | Standing::Turn(_)),
        }
    }

    /// Whether it was received or given up.
    pub(super) fn is_over(&self, call: &Call) -> bool {
        !matches!(self.topic, Topic::Turns) && self.standing(call) == Standing::Over
    }

    fn standing(&self, call: &Call) -> Standing {
        self.shared.standing(call.ticket, self.liveness.number())
    }
}
