//! What clients and servers need of others: members that live, and steps that a thread, a task or an event
//! loop waits for.

use std::sync::Arc;
use std::time::Duration;

use super::calls::Standing;
use super::shared::{Calls, Role, Shared};
use super::word::Ticket;
use crate::clock;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::event::{Event, FIRST_SLICE};
use crate::segment::liveness::{self, Needs, WAITING_TICKS};
use crate::segment::recovery::Looked;
use crate::segment::waiters::View;
use crate::segment::{member, waiters, watch};
use crate::sync::{Flag, Hint, Ordering, Reach};

pub(crate) type Attached = member::Attached<Calls>;
pub(crate) type Membership = member::Membership<Calls>;
pub(crate) type Liveness = liveness::Liveness<Calls>;

/// What one end knows of the members that it depends on.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// For how many more ticks dead clients matter as well, because a thread has found no slot.
    lacks_slot: Hint,
    /// For how many more ticks dead clients matter to a server, because a thread has waited for
    /// one.
    awaits_client: Hint,
    /// Whether there was no server at the last tick.
    has_no_server: Flag,
    /// Until when the last seen server is believed to be attached, in nanoseconds of the clock.
    has_server_until_ns: Hint,
}

impl Needs for Calls {
    type Known = Known;

    /// A server that waits for a request depends on no member: clients send requests again.
    fn waits(known: &Known) -> bool {
        known.lacks_slot.get() > 0 || known.awaits_client.get() > 0
    }

    fn recover_needed(known: &Known, me: &Membership, op: &'static str) -> Result<bool> {
        match me.role() {
            Role::Client => known.recover_for_client(me.shared(), op),
            Role::Server => {
                me.finish_recovery(op)?;
                known.recover_for_server(me.shared(), op)
            }
        }
    }
}

impl Known {
    /// Recovers what dead servers held, so that their calls end or go to another server. Returns
    /// false if there is more to recover.
    fn recover_for_client(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let lacks_slot = self.lacks_slot.get() > 0;
        self.lacks_slot.set(self.lacks_slot.get().saturating_sub(1));
        let Looked { has_sought, is_done } =
            shared.recover_dead(|role| lacks_slot || is_server(role), is_server, op)?;
        self.has_no_server.set(!has_sought);
        Ok(is_done)
    }

    /// Ends the calls of dead clients, if a thread waits for a client. If a request was forgotten,
    /// recovers all dead members: the request may have no client that would do it, or that pushes
    /// it. Returns false if there is more to recover.
    fn recover_for_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let awaits_client = self.awaits_client.get() > 0;
        let is_forgotten = shared.forgotten().load(Ordering::Relaxed) != 0;
        if !awaits_client && !is_forgotten {
            return Ok(true);
        }
        self.awaits_client.set(self.awaits_client.get().saturating_sub(1));
        let matters = |role| is_forgotten || !is_server(role);
        Ok(shared.recover_dead(matters, is_server, op)?.is_done)
    }
}

fn is_server(role: Role) -> bool {
    role == Role::Server
}

impl Liveness {
    /// Records that a thread wants a slot and has found none.
    pub(crate) fn lacks_slot(&self) {
        self.known.lacks_slot.set(WAITING_TICKS);
    }

    /// Records that a thread of a server waits for the next step of a client.
    pub(crate) fn awaits_client(&self) {
        self.known.awaits_client.set(WAITING_TICKS);
    }

    /// Whether there was no server at the last tick.
    pub(crate) fn has_no_server(&self) -> bool {
        self.known.has_no_server.is_set()
    }

    /// Whether a server is attached and alive, or was at the last question, which counts for the
    /// time between two ticks: asking the kernel takes longer than a call. If the server leaves
    /// meanwhile, the wait for the reply notices it.
    pub(crate) fn sees_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let now_ns = clock::monotonic_ns() as u64;
        if now_ns < self.known.has_server_until_ns.get() && !self.has_no_server() {
            return Ok(true);
        }
        let sees_one = shared.has(is_server, op)?;
        if sees_one {
            self.known.has_server_until_ns.set(now_ns + FIRST_SLICE.as_nanos() as u64);
            self.known.has_no_server.set(false);
        }
        Ok(sees_one)
    }
}

/// Whether a server takes requests.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    stopped: Flag,
    /// Until when it leaves the first request to others, in nanoseconds of the clock.
    short_until_ns: Hint,
}

/// For how long event loops and tasks of a server that lacks something are not notified.
const PAUSE: Duration = Duration::from_millis(20);

impl Readiness {
    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_set()
    }

    /// The server lacks what it takes to receive the first request.
    pub(super) fn is_short(&self) {
        self.short_until_ns.set(Deadline::after(PAUSE).as_ns() as u64);
    }

    /// When to look again, if the server lacks something.
    pub(super) fn short_until(&self) -> Option<Deadline> {
        let until = Deadline::at_ns(self.short_until_ns.get() as i64);
        (!until.has_passed()).then_some(until)
    }
}

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
