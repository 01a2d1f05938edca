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

mod interests;
mod thread;
mod handle;
#[cfg(all(test, loom))]
mod model;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::event::Event;
use crate::segment::liveness::{Liveness, Needs};
use crate::segment::waiters::{View, Waiters};
use crate::spin::Spin;
use crate::sync::{Flag, Unshared};
pub(crate) use handle::Watcher;
pub(crate) use interests::Registration;

/// What a watcher waits for, which also decides where its thread parks.
pub(crate) trait Topic: fmt::Debug + Send + Sync + 'static {
    type Contents: Needs;

    /// One of the things that interests may wait for separately.
    type Item: Copy + PartialEq + fmt::Debug + Send;

    fn liveness(&self) -> &Liveness<Self::Contents>;

    /// The event at which the thread of the member `me` parks when it can use a wake-up.
    fn common_event(&self, me: u16) -> &Event;

    /// The event at which it parks now: where it can use no wake-up, it would consume those that others
    /// need. `view` is of its wait queue.
    fn event(&self, me: u16, view: &View) -> &Event;

    /// Wakes the thread if it is parked at none of the common events.
    fn rouse_elsewhere(&self);

    /// The wait queue that the thread leads when a task comes first, if there is one. Never lock it while
    /// the interests are locked, because forks wait for both.
    fn waiters(&self) -> Option<&Waiters<Self::Contents>>;

    /// How many of the places are free that entries of the wait queue want.
    fn free_places(&self) -> usize;

    /// Whether all interests wait for the same, and that is there: with a wait queue, if so many places
    /// are `free` and so many `others` come first.
    fn is_there(&self, free: usize, others: usize) -> bool;

    /// The same for other members that wait there.
    fn is_there_for_others(&self) -> bool;

    /// Whether each interest waits for items of its own.
    fn has_items(&self) -> bool;

    /// The word of an item.
    fn word(&self, item: &Self::Item) -> u32;

    /// Whether the program can make the next step of an item.
    fn is_done(&self, item: &Self::Item) -> bool;

    /// Whether an item was received or given up.
    fn is_over(&self, item: &Self::Item) -> bool;

    /// Called before each look.
    fn looks(&self, has_tasks: bool);

    /// Whether all in the wait queue must look, because a member is missing that they need.
    fn is_deserted(&self) -> bool;

    /// Whether all must look, because the end was stopped.
    fn is_stopped(&self) -> bool;

    /// Until when the thread notifies nobody, if it has to rest.
    fn rests_until(&self) -> Option<Deadline>;
}

/// The state that a handle shares with its thread.
#[derive(Debug)]
pub(crate) struct WatcherState<T: Topic> {
    topic: T,
    generation: u32,
    /// Off, because tasks and loops need no spinning.
    spin: Spin,
    /// The event at which the thread parks while there are no interests.
    rest: Event,
    /// Whether a descriptor was given out.
    has_descriptor: Flag,
    interests: Mutex<Interests<T::Item>>,
}

/// The interests: what to report, and to which tasks and loops.
#[derive(Debug)]
struct Interests<I> {
    /// The eventfd behind the descriptors that were given out, once one was.
    eventfd: Option<Unshared>,
    /// Whether the eventfd is unreadable and must be rung for the next event.
    armed: bool,
    /// The items that it is rung for, by word. Each stays until it was received.
    items: HashMap<u32, I, foldhash::fast::RandomState>,
    /// Those of the items that the last scan of all has found done, some of which may be over by now.
    /// All are scanned again only when this is empty, so a scan costs each item no more often than
    /// others end.
    done: VecDeque<I>,
    /// The waiting tasks, by the number of their [`Registration`]. Each stays until it was woken.
    tasks: HashMap<u64, Task<I>, foldhash::fast::RandomState>,
    /// The highest number of a registration so far.
    last: u64,
    /// Whether it was rung since the topic was [deserted](Topic::is_deserted).
    has_rung_deserted: bool,
    /// Whether the handle is gone.
    stop: bool,
    /// Whether the thread is running wakers, which are foreign code.
    is_waking: bool,
}

#[derive(Debug)]
struct Task<I> {
    /// The item that it waits for, if it waits for one.
    item: Option<I>,
    waker: Waker,
}

/// No item that the descriptor reports is done.
#[derive(Debug)]
pub(crate) struct NoneDone;

/// The findings of a look that must be reported.
#[derive(Debug, Default)]
struct Ready {
    /// Whether the eventfd was rung.
    descriptor: bool,
    /// Whether to select the task that leads the wait queue.
    selects: bool,
    tasks: Vec<Waker>,
}

const WATCH: &str = "watch";

/// An event wakes one waiter. If that was a watch thread, and no task or loop that it notified
/// looks within this time, another waiter is woken.
const PATIENCE: Duration = Duration::from_millis(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
