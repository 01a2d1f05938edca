//! Notification without a waiting thread of the program: descriptors for event loops, wakers for
//! tasks.
//!
//! Only threads can wait for a futex, and before Linux 5.16 each for one word. So a handle that is
//! asked for a descriptor or a future gets its own thread. The thread parks where the handle would,
//! reports to the registered interests, and rests until there are new ones.
//!
//! Invariant: a task or loop registers its interest first and then looks once more. The thread
//! announces itself in the event first and then reads the interests. A thread that changes
//! something looks at the event after the change. With a full fence in each of the three, no
//! notification is lost.

mod looking;
mod interests;
mod thread;
mod handle;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::event::Event;
use crate::reqrep::liveness::Liveness;
use crate::reqrep::readiness::Readiness;
use crate::reqrep::shm::mapping::Shared;
use crate::reqrep::shm::ticket::Ticket;
use crate::reqrep::waiters::Waiters;
use crate::spin::Spin;
use crate::sync::{Flag, Unshared};

pub(super) use handle::Watcher;
pub(super) use interests::Registration;

/// The steps that a watcher waits for, which also decide where its thread parks.
#[derive(Clone, Debug)]
pub(super) enum Topic {
    /// A request that waits for a server; and whether that server takes it.
    Requests(Arc<Readiness>),
    /// A slot for one more call, and a cell of the ring for it; also the wait queue that the thread
    /// leads when a task comes first. Never lock the queue while the interests are locked, because
    /// forks wait for both.
    Space(Arc<Waiters>),
    /// The ends of calls, and parts of their replies.
    Replies,
    /// The steps of clients in calls whose replies come in parts.
    Turns,
}

impl Topic {
    /// Whether each call is waited for separately.
    fn is_of_calls(&self) -> bool {
        matches!(self, Topic::Replies | Topic::Turns)
    }

    /// The wait queue for slots, if the topic is slots.
    fn waiters(&self) -> Option<&Arc<Waiters>> {
        if let Topic::Space(waiters) = self { Some(waiters) } else { None }
    }

    /// Whether its server was stopped.
    fn is_stopped(&self) -> bool {
        matches!(self, Topic::Requests(readiness) if readiness.is_stopped())
    }

    /// Until when its server leaves requests to others, if it lacks something.
    fn short_until(&self) -> Option<Deadline> {
        if let Topic::Requests(readiness) = self { readiness.short_until() } else { None }
    }
}

/// A call whose end is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedCall {
    ticket: Ticket,
    needs_server: bool,
}

impl AwaitedCall {
    pub(super) fn new(ticket: Ticket, needs_server: bool) -> AwaitedCall {
        AwaitedCall { ticket, needs_server }
    }
}

/// The state that a handle shares with its thread.
#[derive(Debug)]
pub(super) struct WatcherState {
    shared: Arc<Shared>,
    liveness: Arc<Liveness>,
    topic: Topic,
    generation: u32,
    /// Off, because tasks and loops need no spinning.
    spin: Spin,
    /// The event at which the thread parks while there are no interests.
    rest: Event,
    /// Whether a descriptor was given out.
    has_descriptor: Flag,
    interests: Mutex<Interests>,
}

/// The interests: what to report, and to which tasks and loops.
#[derive(Debug, Default)]
struct Interests {
    /// The eventfd behind the descriptors that were given out, once one was.
    eventfd: Option<Unshared>,
    /// Whether the eventfd is unreadable and must be rung for the next event.
    armed: bool,
    /// The calls that it is rung for, by slot. Each stays until it was received.
    calls: HashMap<u32, AwaitedCall, foldhash::fast::RandomState>,
    /// Those of the calls that the last scan of all has found done, some of which may have ended by
    /// now. All calls are scanned again only when this is empty, so a scan costs each call no more
    /// often than others end.
    done: VecDeque<Ticket>,
    /// The waiting tasks, by the number of their [`Registration`]. Each stays until it was woken.
    tasks: HashMap<u64, Task, foldhash::fast::RandomState>,
    /// The highest number of a registration so far.
    last: u64,
    /// Whether it was rung since the last server left.
    has_rung_for_no_server: bool,
    /// Whether the handle is gone.
    stop: bool,
    /// Whether the thread is running wakers, which are foreign code.
    is_waking: bool,
}

#[derive(Debug)]
struct Task {
    /// The call that it waits for, if it waits for one.
    call: Option<AwaitedCall>,
    waker: Waker,
}

/// No call that the descriptor reports is done.
#[derive(Debug)]
pub(super) struct NoneDone;

/// The findings of a look that must be reported.
#[derive(Debug, Default)]
struct Ready {
    /// Whether the eventfd was rung.
    descriptor: bool,
    /// Whether to select the task that leads the wait queue for slots.
    selects: bool,
    tasks: Vec<Waker>,
}

const WATCH: &str = "reqrep watch";

/// An event wakes one waiter. If that was a watch thread, and no task or loop that it notified
/// looks within this time, another waiter is woken.
const PATIENCE: Duration = Duration::from_millis(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
