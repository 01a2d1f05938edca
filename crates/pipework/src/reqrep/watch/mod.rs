//! How those hear of something who do not wait in a thread of theirs: descriptors for event loops, wakers for tasks.
//!
//! Only threads wait for a futex, and before Linux 5.16 each for one word. So a handle that is asked for a descriptor or a future gets a thread of its own,
//! which parks where the handle would, tells those who want to be told, and rests until somebody wants to be told again.
//!
//! Invariant: who wants to be told puts that down first and then looks once more; the thread announces itself in the event first and then reads what
//! was put down. Whoever changes something looks at the event after the change. With a full fence in each of the three, nothing is missed.

mod looking;
mod interests;
mod thread;
mod handle;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::event::Event;
use crate::reqrep::liveness::Liveness;
use crate::reqrep::shm::mapping::Shared;
use crate::reqrep::shm::ticket::Ticket;
use crate::reqrep::waiters::Waiters;
use crate::spin::Spin;
use crate::sync::Unshared;

pub(super) use handle::Watcher;
pub(super) use interests::Registration;

/// What a watcher waits for, and so where its thread parks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A request that waits for a server.
    Requests,
    /// Space for one more call.
    Space,
    /// The ends of calls.
    Replies,
}

/// A call whose end is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) ticket: Ticket,
    needs_server: bool,
    /// The descriptor has been rung since this was done.
    is_told: bool,
}

impl Call {
    pub(crate) fn new(ticket: Ticket, needs_server: bool) -> Call {
        Call { ticket, needs_server, is_told: false }
    }
}

/// How a call stands, as somebody who waits for it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// There is something to receive.
    Done,
    /// Somebody has received it, or given it up.
    Over,
}

/// What a handle and its thread share.
#[derive(Debug)]
pub(crate) struct WatcherState {
    shared: Arc<Shared>,
    liveness: Arc<Liveness>,
    /// Whom it represents, where it waits for space. Never asked under the lock of `interests`: forks wait for both.
    waiters: Option<Arc<Waiters>>,
    topic: Topic,
    generation: u32,
    /// Off: this is for those who can wait.
    spin: Spin,
    /// Where the thread parks while nobody wants to be told.
    rest: Event,
    /// What makes the descriptors readable that were given out, once one was.
    eventfd: OnceLock<Unshared>,
    interests: Mutex<Interests>,
}

/// Who wants to be told.
#[derive(Debug, Default)]
struct Interests {
    /// The eventfd is unreadable, and is to be rung.
    armed: bool,
    /// The calls that it is rung for, by slot. Each stays until it was received.
    calls: HashMap<u32, Call, foldhash::fast::RandomState>,
    /// Those that wait, by the number of their [`Registration`]. Each stays until it was woken.
    tasks: HashMap<u64, Task, foldhash::fast::RandomState>,
    /// The highest number so far.
    last: u64,
    /// Somebody behind the descriptor needs a server, besides space.
    needs_server: bool,
    /// It was rung since there is none.
    is_told_of_no_server: bool,
    /// The handle is gone.
    stop: bool,
    /// The thread is running strangers' code.
    is_waking: bool,
}

#[derive(Debug)]
struct Task {
    /// What it waits for, where that is a call.
    call: Option<Call>,
    waker: Waker,
}

/// Who is to be told, as a look has found.
#[derive(Debug, Default)]
struct Ready {
    /// Those behind the eventfd, who know already.
    descriptor: bool,
    /// So many who wait for a slot.
    from_line: usize,
    tasks: Vec<Waker>,
}

const WATCH: &str = "reqrep watch";

/// An event wakes one who waits. If that was a watch, and those it told have not come to look within this time, others are woken.
const PATIENCE: Duration = Duration::from_millis(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
