//! The wait queue of a member: its threads and tasks that wait for a place in the segment, of which
//! there are few, in the order in which they came.
//!
//! A newcomer goes to the end of the queue. The first entry that waits is the *leader*. A thread that
//! leads parks on an event of the segment, `space`, beside the leaders of other members, and takes the
//! next place that becomes free; the other threads park here until they lead. For a task that leads,
//! the member's watch thread parks at `space`. A free place is given to a task by *selecting* it: the
//! task is woken and looks for the place when its runtime polls it. A selected task that is not polled
//! in time is *missing*: it keeps its position in the queue and delays no other entry.
//!
//! Invariant: as long as an entry waits, its leader announces itself at `space` and then looks, or
//! is about to; if the leader cannot use a place, it does so at [`Waiters::ends`].
//!
//! Each rule below has its measured effect, on an AMD EPYC (family 25, model 17) with two CPUs:
//! callers in closed loops against one server that answers at once, medians of several runs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::mapping::{Contents, Shared};
use crate::clock;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::event::{Event, Wait};
use crate::spin::{Looks, Spin};
use crate::sync::{self, AtomicU64, Hint, Ordering, Reach};

/// One of this many places that a member frees goes to `space` although one of its own tasks waits.
/// Without that, a thread of another member beside three such tasks gets 4 places a second where there
/// is one, with a p99 of 625 ms instead of 5 ms.
const OWN: u64 = 8;

/// For how long the last free place is reserved for other members after this member has woken one of
/// them for it: a newcomer of this member would be faster than the woken thread. Without it, four
/// tasks of a member beside six members of one thread each, on 4 places, have a p99 of 29 ms instead
/// of 3.3 ms, and a task beside a thread of another member waits up to 226 ms for one place instead
/// of 10 ms. A millisecond is no better for these cases, and makes the p99 of two members of one
/// thread each 1.0 ms instead of 0.2 ms, on one place.
pub(crate) const GRACE: Duration = Duration::from_micros(100);

/// The time between two counts of the places that a member has.
const COUNT: Duration = Duration::from_millis(20);

/// For how long a place is kept for a selected task. After that the task is missing until it is
/// polled: otherwise a future that is kept and not polled would keep the place for ever.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The wait queue of one member, and the limit on its places.
#[derive(Debug)]
pub(crate) struct Waiters<C: Contents> {
    shared: Arc<Shared<C>>,
    /// The event at which the leaders of all members wait for a place.
    space: fn(&Shared<C>) -> &Event,
    /// The number of entries, so that a caller that need not wait pays one load.
    len: Hint,
    /// The number of the thread that leads; 0 if no thread does. Each thread polls this.
    leader: Hint,
    /// How many tasks are selected.
    selected: Hint,
    queue: Mutex<Queue>,
    /// How many places became free while a member of the segment waited.
    freed: Hint,
    /// When this member last woke another for a place, in nanoseconds of the clock; 0 if [`GRACE`]
    /// is over.
    offered_ns: Hint,
    /// Places that the member may have; 0 for any number.
    limit: u32,
    /// `{ fork generation: 32, places: 32 }`: those that it has, if there is a limit.
    taken: AtomicU64,
    /// When they were last recounted, in nanoseconds of the clock.
    counted_ns: Hint,
    /// `{ as they were recounted: 32, places: 32 }` if the two numbers differed; otherwise 0.
    doubt: Hint,
    /// The event at which a leader parks that cannot use a place now: because its member is at its
    /// limit, or because it is the watch thread and a thread leads. Notified when the member gives a
    /// place back and when the queue changes.
    ends: Event,
}

#[derive(Debug, Default)]
struct Queue {
    /// The fork generation: a child ignores its parent's entries.
    generation: u32,
    last: u64,
    /// How to wake each entry.
    entries: BTreeMap<u64, Wake>,
    /// The entries that wait to lead or to be selected.
    waiting: BTreeSet<u64>,
    /// The selected tasks, and until when a place is kept for each. An entry that neither waits nor
    /// is selected is a missing task, or a task that is looking for its place.
    selected: BTreeMap<u64, Deadline>,
}

/// The queue at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// The number of entries that wait.
    pub(crate) waiting: usize,
    /// The number of selected tasks.
    pub(crate) selected: usize,
    /// Whether one of the entries that wait is a task.
    pub(crate) has_task: bool,
    /// Whether a thread leads, which looks for places itself.
    pub(crate) thread_leads: bool,
    /// When the first of the selected tasks counts as missing.
    pub(crate) patience_ends: Option<Deadline>,
}

/// How to wake an entry.
#[derive(Debug)]
enum Wake {
    Thread(Arc<Event>),
    /// Empty once used: a waker is foreign code, and is neither cloned nor dropped under a lock.
    Task(Option<Waker>),
}

/// A position in the queue, held by the thread or task that waits. When it is dropped, a place that was
/// meant for it goes to the next entry, or to another member.
#[derive(Debug)]
pub(crate) struct Entry<C: Contents> {
    waiters: Arc<Waiters<C>>,
    number: u64,
    generation: u32,
    /// The event at which the thread parks, if the entry is a thread's.
    event: Option<Arc<Event>>,
    /// Whether a place was meant for it that it has not used yet.
    is_owed: Cell<bool>,
}

fn counted(places: u32) -> u64 {
    u64::from(sync::generation()) << 32 | u64::from(places)
}

/// The number of places in the word; 0 in a child that has its parent's word.
fn counted_in(word: u64) -> u32 {
    if word >> 32 == u64::from(sync::generation()) { word as u32 } else { 0 }
}

// ---------------------------------------------------------------- the limit

impl<C: Contents> Waiters<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, space: fn(&Shared<C>) -> &Event, limit: u32) -> Waiters<C> {
        Waiters {
            shared,
            space,
            len: Hint::new(0),
            leader: Hint::new(0),
            selected: Hint::new(0),
            queue: Mutex::default(),
            freed: Hint::new(0),
            offered_ns: Hint::new(0),
            limit,
            taken: AtomicU64::new(0),
            counted_ns: Hint::new(0),
            doubt: Hint::new(0),
            ends: Event::new(),
        }
    }

    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit != 0
    }

    /// Counts one more place, if the limit allows it.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        !self.is_limited() || self.enter_limited()
    }

    #[cold]
    fn enter_limited(&self) -> bool {
        self.change(|taken| (taken < self.limit).then_some(taken + 1))
    }

    /// Counts one place less. Returns true if [`notify_ends`](Waiters::notify_ends) must be called.
    #[inline]
    pub(crate) fn exit(&self) -> bool {
        let subtracts = || self.change(|taken| Some(taken.saturating_sub(1)));
        self.is_limited() && subtracts() && self.ends.is_awaited()
    }

    /// Wakes a leader that could not use a place, so that it checks again.
    pub(crate) fn notify_ends(&self) {
        self.ends.notify_all(Reach::Machine);
    }

    /// The event at which a leader parks that cannot use a place. At `space` it would consume
    /// wake-ups that other members need, and they would sleep beside a free place until their slices
    /// end. It parks in slices, as at `space`, because places may be given back without notice.
    pub(crate) fn ends(&self) -> &Event {
        &self.ends
    }

    /// Whether the limit would allow `more` places and one.
    pub(crate) fn lets_in(&self, more: usize) -> bool {
        let taken = counted_in(self.taken.load(Ordering::Relaxed));
        !self.is_limited() || u64::from(taken) + (more as u64) < u64::from(self.limit)
    }

    /// For a place that the limit does not allow: places may have been given back without notice,
    /// because another member took this one for dead. Recounts them, with `taken`, if a recount is due.
    /// Returns true if that has changed the number. The number changes when two counts agree, because a
    /// place that is taken or given back may disturb one count.
    pub(crate) fn recount(&self, taken: impl FnOnce() -> usize) -> bool {
        let now_ns = clock::monotonic_ns() as u64;
        if self.lets_in(0) || now_ns.saturating_sub(self.counted_ns.get()) < COUNT.as_nanos() as u64 {
            return false;
        }
        self.counted_ns.set(now_ns);
        let word = self.taken.load(Ordering::Relaxed);
        let found = taken() as u32;
        let doubt = u64::from(found) << 32 | u64::from(counted_in(word));
        if found == counted_in(word) || self.doubt.get() != doubt {
            self.doubt.set(if found == counted_in(word) { 0 } else { doubt });
            return false;
        }
        self.doubt.set(0);
        let (order, now) = (Ordering::Relaxed, counted(found));
        let is_new = self.taken.compare_exchange(word, now, order, order).is_ok();
        self.notify_ends();
        is_new
    }

    fn change(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        // Relaxed: it orders nothing; waiters are woken as for a place.
        let next = |word| next(counted_in(word)).map(counted);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

// ---------------------------------------------------------------- the queue

impl<C: Contents> Waiters<C> {
    /// Whether the queue is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.len.get()
    }

    /// How many entries wait or are selected: this many free places are not for newcomers.
    pub(crate) fn present(&self) -> usize {
        if self.is_empty() { 0 } else { self.with(|queue| queue.waiting.len() + queue.selected.len()) }
    }

    /// How many tasks are selected: this many free places are not for the leader.
    ///
    /// The leader counts the free places before it calls this. A task stops being selected before it
    /// looks for its place, so a place that was counted as kept for a task is one that this task has
    /// not looked for yet.
    pub(crate) fn selected(&self) -> usize {
        self.selected.get() as usize
    }

    pub(crate) fn view(&self) -> View {
        if self.is_empty() { View::default() } else { self.with(|queue| queue.view()) }
    }

    /// Stops keeping places for selected tasks that were not polled in time, and passes these places
    /// on.
    pub(crate) fn give_up_on_missing(&self) {
        if self.is_empty() {
            return;
        }
        let missing = self.with(|queue| {
            let before = queue.selected.len();
            queue.selected.retain(|_, until| !until.has_passed());
            before - queue.selected.len()
        });
        if missing > 0 {
            self.hand_on(missing);
        }
    }

    /// Passes places that were meant for entries here to other entries, or to other members.
    fn hand_on(&self, places: usize) {
        let selected = (0..places).take_while(|_| self.select()).count();
        if selected < places {
            (self.space)(&self.shared).notify_many(places - selected, Reach::Machine);
        }
        self.notify_ends();
    }

    /// A place was freed here. Returns true if a task was selected for it.
    ///
    /// Then the watch thread need not be woken. With three tasks beside a thread of another member,
    /// on one place, p99 is 0.2 ms and a turn takes 17 us of CPU time; without it, 4.9 ms and 33 us.
    pub(crate) fn hand_over(&self) -> bool {
        let freed = self.freed.get() + 1;
        self.freed.set(freed);
        !freed.is_multiple_of(OWN) && !self.is_empty() && self.select()
    }

    /// Records that a waiter at `space` was woken for a place that this member has freed.
    pub(crate) fn has_offered(&self) {
        self.offered_ns.set(clock::monotonic_ns() as u64);
    }

    /// Whether the last free place is reserved for other members.
    #[inline]
    pub(crate) fn leaves_last_place(&self) -> bool {
        self.offered_ns.get() != 0 && self.is_grace()
    }

    #[cold]
    fn is_grace(&self) -> bool {
        let passed_ns = (clock::monotonic_ns() as u64).saturating_sub(self.offered_ns.get());
        let is_grace = passed_ns < GRACE.as_nanos() as u64;
        if !is_grace {
            self.offered_ns.set(0);
        }
        is_grace
    }

    /// Selects the task that leads and wakes it; returns false if no task leads.
    pub(crate) fn select(&self) -> bool {
        let waker = self.with(|queue| {
            let first = *queue.waiting.first()?;
            let Some(Wake::Task(waker)) = queue.entries.get_mut(&first) else { return None };
            let waker = waker.take();
            queue.waiting.remove(&first);
            queue.selected.insert(first, Deadline::after(PATIENCE));
            Some(waker)
        });
        let is_selected = waker.is_some();
        waker.flatten().into_iter().for_each(wake);
        is_selected
    }

    /// The wakers of all tasks that wait, each once: the tasks must look, whether there is a place
    /// or not.
    pub(crate) fn take_wakers(&self) -> Vec<Waker> {
        let taken = |wake: &mut Wake| if let Wake::Task(waker) = wake { waker.take() } else { None };
        match self.is_empty() {
            true => Vec::new(),
            false => self.with(|queue| queue.entries.values_mut().filter_map(taken).collect()),
        }
    }

    /// Puts this thread at the end of the queue.
    pub(crate) fn join(self: &Arc<Self>) -> Entry<C> {
        self.add(Wake::Thread(Arc::new(Event::new())))
    }

    /// Puts a task at the end of the queue. `waker` must be given again whenever the task has
    /// looked.
    pub(crate) fn join_task(self: &Arc<Self>, waker: &Waker) -> Entry<C> {
        self.add(Wake::Task(Some(waker.clone())))
    }

    fn add(self: &Arc<Self>, wake: Wake) -> Entry<C> {
        let event = match &wake {
            Wake::Thread(event) => Some(Arc::clone(event)),
            Wake::Task(_) => None,
        };
        let (number, generation) = self.with(|queue| {
            queue.last += 1;
            queue.waiting.insert(queue.last);
            queue.entries.insert(queue.last, wake);
            (queue.last, queue.generation)
        });
        Entry { waiters: Arc::clone(self), number, generation, event, is_owed: Cell::new(false) }
    }

    /// Changes the queue, and wakes the thread that leads from now on. No process forks meanwhile,
    /// or a child could inherit a lock that no thread of it can release.
    fn with<T>(&self, act: impl FnOnce(&mut Queue) -> T) -> T {
        let (done, new_leader) = {
            let _forks_wait = sync::no_forks();
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.generation != sync::generation() {
                // These are a parent's entries. Their wakers are leaked instead of dropped:
                // dropping them may run foreign code.
                let generation = sync::generation();
                mem::forget(mem::replace(&mut *queue, Queue { generation, ..Queue::default() }));
            }
            let before = queue.leader().map(|(number, _)| number);
            let done = act(&mut queue);
            let leader = queue.leader();
            self.len.set(queue.entries.len() as u64);
            self.leader.set(leader.map_or(0, |(number, _)| number));
            self.selected.set(queue.selected.len() as u64);
            (done, leader.filter(|(number, _)| before != Some(*number)).map(|(_, event)| Arc::clone(event)))
        };
        new_leader.into_iter().for_each(|event| event.notify(Reach::Process));
        done
    }
}

impl Queue {
    /// The thread that leads, and where it parks until it does.
    fn leader(&self) -> Option<(u64, &Arc<Event>)> {
        let first = *self.waiting.first()?;
        match &self.entries[&first] {
            Wake::Thread(event) => Some((first, event)),
            Wake::Task(_) => None,
        }
    }

    /// Whether this entry waits and must let others before it look first.
    fn is_behind_others(&self, number: u64) -> bool {
        let is_first = || {
            let selected = self.selected.first_key_value().map(|(first, _)| first);
            selected.is_none_or(|first| number < *first) && self.waiting.first() == Some(&number)
        };
        self.waiting.contains(&number) && !is_first()
    }

    fn view(&self) -> View {
        View {
            waiting: self.waiting.len(),
            selected: self.selected.len(),
            has_task: self.waiting.iter().any(|number| matches!(self.entries[number], Wake::Task(_))),
            thread_leads: self.leader().is_some(),
            patience_ends: self.selected.values().copied().min_by_key(|until| until.as_ns()),
        }
    }
}

impl<C: Contents> Entry<C> {
    /// Whether this thread leads.
    pub(crate) fn leads(&self) -> bool {
        self.waiters.leader.get() == self.number
    }

    /// Waits until this thread leads. The wait is inside one process, where no thread dies alone.
    /// Only the leader checks the conditions of the wait for a place: when it fails, the next thread
    /// leads and finds the same failure.
    ///
    /// If all threads waited at `space`, the longest wait of 64 threads on 2 places would be 111 ms
    /// instead of 10 ms.
    pub(crate) fn wait_to_lead(&self, deadline: Deadline, op: &'static str) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        let spin = Spin::new(Duration::ZERO, Looks::Load);
        let wait = Wait { deadline, spin: &spin, reach: Reach::Process, tick: None, long: None, op };
        event.wait(&wait, || Ok(self.leads().then_some(())), || Ok(()))
    }

    /// Whether this task may look for a place now: it was selected, it was missing, or it is the
    /// first. It stops being selected: see [`Waiters::selected`]. A thread that leads and looks
    /// before the task does may take its place. The task then keeps its position, and gets the next place.
    pub(crate) fn may_look(&self) -> bool {
        self.waiters.with(|queue| {
            if queue.selected.remove(&self.number).is_some() {
                self.is_owed.set(true);
            }
            !queue.is_behind_others(self.number)
        })
    }

    /// This task has found no place, or cannot use it, and waits again in the same position. It must
    /// look once more after this, if it [may](Entry::may_look). Returns whether it was selected.
    pub(crate) fn wait_again(&self, waker: &Waker) -> bool {
        let wake = Wake::Task(Some(waker.clone()));
        let (before, was_selected) = self.waiters.with(|queue| {
            queue.waiting.insert(self.number);
            let was_selected = queue.selected.remove(&self.number).is_some();
            (queue.entries.insert(self.number, wake), was_selected)
        });
        // Outside of the lock: a waker runs foreign code.
        drop(before);
        // The watch thread may have to lead again.
        self.waiters.notify_ends();
        self.is_owed.replace(false) || was_selected
    }

    /// Records that it got its place.
    pub(crate) fn is_served(&self) {
        self.is_owed.set(false);
    }

    /// False in a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.generation == sync::generation()
    }
}

impl<C: Contents> Drop for Entry<C> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let (gone, was_selected) = self.waiters.with(|queue| {
            queue.waiting.remove(&self.number);
            (queue.entries.remove(&self.number), queue.selected.remove(&self.number).is_some())
        });
        drop(gone);
        if was_selected || self.is_owed.get() {
            self.waiters.hand_on(1);
        } else {
            // The watch thread may have to lead now.
            self.waiters.notify_ends();
        }
    }
}

/// Wakes a task. A panic in foreign code must not end the thread that others rely on; the panic
/// hook has reported it.
pub(crate) fn wake(waker: Waker) {
    let woken = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    // Dropping the panic's payload could panic again.
    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| drop(woken))) {
        mem::forget(panic);
    }
}
