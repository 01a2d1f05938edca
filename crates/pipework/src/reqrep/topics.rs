//! What event loops and tasks of clients and servers wait for, and whether it is there.

use std::sync::Arc;

use super::calls::Standing;
use super::readiness::Readiness;
use super::recovery::Liveness;
use super::shared::{Calls, Shared};
use super::word::Ticket;
use crate::deadline::Deadline;
use crate::event::Event;
use crate::segment::waiters::View;
use crate::segment::{waiters, watch};
use crate::sync::Reach;

pub(super) type Watcher = watch::Watcher<Topic>;
pub(super) type WatcherState = watch::WatcherState<Topic>;
pub(super) type Registration = watch::Registration<Topic>;
pub(super) type Waiters = waiters::Waiters<Calls>;
pub(super) type Entry = waiters::Entry<Calls>;

/// What a watcher of a client or a server waits for.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) shared: Arc<Shared>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) steps: Steps,
}

/// The steps of other processes that a watcher waits for.
#[derive(Debug)]
pub(super) enum Steps {
    /// A request that waits for a server; and whether that server takes it.
    Requests(Arc<Readiness>),
    /// A slot for one more call, and a cell of the ring for it; also the wait queue of the client, and
    /// whether it needs a server.
    Space(Arc<Waiters>, bool),
    /// The ends of calls, and parts of their replies.
    Replies,
    /// The steps of clients in calls whose replies come in parts.
    Turns,
}

/// A call whose end is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedCall {
    pub(super) ticket: Ticket,
    pub(super) needs_server: bool,
}

impl Topic {
    fn standing(&self, call: &AwaitedCall) -> Standing {
        self.shared.standing(call.ticket, self.liveness.number())
    }
}

impl watch::Topic for Topic {
    type Contents = Calls;
    type Item = AwaitedCall;

    fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn common_event(&self, me: u16) -> &Event {
        match &self.steps {
            Steps::Requests(_) => self.shared.requests(),
            Steps::Space(..) => self.shared.space(),
            Steps::Replies | Steps::Turns => {
                &self.shared.member(me).expect("one's own number is in the geometry").bell
            }
        }
    }

    /// The thread does not park at `space` while its client is at its limit, while a thread leads the
    /// wait queue, and while the ring is full: neither a task nor a loop holds a slot until there is a
    /// cell.
    fn event(&self, me: u16, view: &View) -> &Event {
        match &self.steps {
            Steps::Space(waiters, _) if view.thread_leads || !waiters.lets_in(view.selected) => {
                waiters.ends()
            }
            Steps::Space(..) if self.shared.is_ring_full() => self.shared.cells(),
            _ => self.common_event(me),
        }
    }

    fn rouse_elsewhere(&self) {
        if let Steps::Space(waiters, _) = &self.steps {
            self.shared.cells().notify_all(Reach::Machine);
            waiters.notify_ends();
        }
    }

    fn waiters(&self) -> Option<&Waiters> {
        if let Steps::Space(waiters, _) = &self.steps { Some(waiters) } else { None }
    }

    fn free_places(&self) -> usize {
        if let Steps::Space(..) = self.steps { self.shared.free_slots() } else { 0 }
    }

    fn is_there(&self, free: usize, others: usize) -> bool {
        match &self.steps {
            Steps::Requests(_) => self.rests_until().is_none() && self.shared.has_request(),
            Steps::Space(waiters, _) => {
                waiters.lets_in(others) && free > others && !self.shared.is_ring_full()
            }
            Steps::Replies | Steps::Turns => false,
        }
    }

    fn is_there_for_others(&self) -> bool {
        match &self.steps {
            // A thread may hold a slot until the ring has space.
            Steps::Space(..) => self.shared.has_free(0),
            Steps::Requests(_) => self.shared.has_request(),
            Steps::Replies | Steps::Turns => false,
        }
    }

    fn has_items(&self) -> bool {
        matches!(self.steps, Steps::Replies | Steps::Turns)
    }

    fn word(&self, call: &AwaitedCall) -> u32 {
        call.ticket.idx()
    }

    /// Whether the program can receive a part or the outcome, or learn that there is no server. For a
    /// server: whether it is its turn.
    fn is_done(&self, call: &AwaitedCall) -> bool {
        if let Steps::Turns = self.steps {
            return !self.shared.is_clients_turn(call.ticket);
        }
        match self.standing(call) {
            Standing::Sent => call.needs_server && self.liveness.has_no_server(),
            standing => matches!(standing, Standing::Done(_) | Standing::Turn(_)),
        }
    }

    fn is_over(&self, call: &AwaitedCall) -> bool {
        !matches!(self.steps, Steps::Turns) && self.standing(call) == Standing::Over
    }

    fn looks(&self, has_tasks: bool) {
        match &self.steps {
            Steps::Space(waiters, _) => {
                // Some calls of this client may have ended without notice.
                waiters.recount(|| self.shared.calls_of(self.liveness.number()).count());
                self.liveness.lacks_slot();
            }
            Steps::Turns if has_tasks => self.liveness.awaits_client(),
            _ => {}
        }
    }

    fn is_deserted(&self) -> bool {
        matches!(self.steps, Steps::Space(_, true)) && self.liveness.has_no_server()
    }

    fn is_stopped(&self) -> bool {
        matches!(&self.steps, Steps::Requests(readiness) if readiness.is_stopped())
    }

    fn rests_until(&self) -> Option<Deadline> {
        if let Steps::Requests(readiness) = &self.steps { readiness.short_until() } else { None }
    }
}
