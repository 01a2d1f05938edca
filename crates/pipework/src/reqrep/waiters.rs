//! Who of a client waits for a slot: threads and tasks, in the order in which they came.
//!
//! Whoever comes while others wait stands behind them, and each slot that comes free is for one of them, who is *chosen*. Those who wait are
//! represented before the other clients of the segment, by the first thread among them or by the client's watch thread, which parks on the segment's event:
//! so other clients' slots are heard of.
//!
//! Invariant: as long as somebody waits and is not chosen, a representative announces itself there and then looks, or is about to. So it does not matter if
//! a slot comes free while everybody here was chosen already.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::notify::wake;
use crate::event::Event;
use crate::sync::{self, AtomicU64, Hint, NoForks, Ordering, Reach};

/// Of so many slots that come free, one is offered to all clients, although somebody waits here.
const OWN: u64 = 8;

/// For how long a slot that was offered to other clients is left to them.
const GRACE: Duration = Duration::from_millis(1);

/// The line of one client.
#[derive(Debug)]
pub(super) struct Waiters {
    /// What tells it from any other of this process.
    id: u64,
    /// How many there are, so that those who need not wait pay for one load.
    len: Hint,
    line: Mutex<Line>,
    began: Instant,
    /// When a slot was last offered to other clients, in nanoseconds since `began`; 0 if they have had their time.
    offered_ns: Hint,
    /// How many slots came free while somebody waited anywhere.
    freed: Hint,
    /// Calls that may be in progress; 0 for any number.
    limit: Hint,
    /// `{ fork generation: 32, calls: 32 }`: those in progress, if there is a limit.
    in_progress: AtomicU64,
}

#[derive(Debug, Default)]
struct Line {
    /// Of forks: what was a parent's is none of ours.
    generation: u32,
    last: u64,
    places: BTreeMap<u64, Waiting>,
    /// Those of them that are threads.
    threads: BTreeSet<u64>,
    /// How many are chosen.
    chosen: usize,
}

#[derive(Debug)]
struct Waiting {
    /// A slot is meant for it, and it was woken.
    is_chosen: bool,
    wake: Wake,
}

fn counted(calls: u32) -> u64 {
    u64::from(sync::generation()) << 32 | u64::from(calls)
}

/// None of a parent's calls are a child's.
fn calls(word: u64) -> u32 {
    if word >> 32 == u64::from(sync::generation()) { word as u32 } else { 0 }
}

/// How one is woken.
#[derive(Clone, Debug)]
enum Wake {
    Thread(Arc<Event>),
    Task(Waker),
}

impl Wake {
    fn wake(self) {
        match self {
            Wake::Thread(event) => event.notify(Reach::Process),
            Wake::Task(waker) => wake(waker),
        }
    }
}

/// Who stands before somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) waiting: usize,
    pub(super) chosen: usize,
}

/// A place in the line. It is given up, and what was meant for it goes to the next, when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    waiters: Arc<Waiters>,
    number: u64,
    generation: u32,
    event: Option<Arc<Event>>,
    /// It got what it waited for.
    is_served: Cell<bool>,
}

/// Who comes back within this time after it gave up has waited all the time.
const BACK: Duration = Duration::from_secs(1);

/// A place that a thread has given up.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    /// The line's number: an address is another line's as soon as this one is gone.
    line: u64,
    number: u64,
    at: Instant,
}

thread_local! {
    /// The last one of this thread.
    static GIVEN_UP: Cell<Option<GivenUp>> = const { Cell::new(None) };
}

impl Waiters {
    pub(super) fn new() -> Waiters {
        Waiters {
            id: sync::new_id(),
            len: Hint::new(0),
            line: Mutex::default(),
            began: Instant::now(),
            offered_ns: Hint::new(0),
            freed: Hint::new(0),
            limit: Hint::new(0),
            in_progress: AtomicU64::new(0),
        }
    }

    /// Lets in no more than so many calls at a time, 0 for any number; so many are in progress.
    pub(super) fn set_limit(&self, limit: u32, in_progress: u32) {
        self.in_progress.store(counted(in_progress), Ordering::Relaxed);
        self.limit.set(u64::from(limit));
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.limit.get() != 0
    }

    /// Counts one more call, if one more is let in.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        !self.is_limited() || self.enter_limited()
    }

    #[cold]
    fn enter_limited(&self) -> bool {
        self.change(|calls| (u64::from(calls) < self.limit.get()).then_some(calls + 1))
    }

    /// One call is over.
    #[inline]
    pub(super) fn exit(&self) {
        if self.is_limited() {
            self.change(|calls| Some(calls.saturating_sub(1)));
        }
    }

    /// Whether so many more calls, and one, would be let in.
    pub(super) fn lets_in(&self, more: usize) -> bool {
        let calls = calls(self.in_progress.load(Ordering::Relaxed));
        !self.is_limited() || u64::from(calls) + (more as u64) < self.limit.get()
    }

    fn change(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        // Relaxed: it orders nothing; who waits is woken as for a slot.
        let next = |word| next(calls(word)).map(counted);
        self.in_progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.get() == 0 || self.line().places.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.len.get()
    }

    /// Whether the next free slot is to be left to other clients.
    #[inline]
    pub(super) fn must_leave_one(&self) -> bool {
        self.offered_ns.get() != 0 && self.is_grace()
    }

    #[cold]
    fn is_grace(&self) -> bool {
        let passed = self.now_ns().saturating_sub(self.offered_ns.get());
        let is_grace = Duration::from_nanos(passed) < GRACE;
        if !is_grace {
            self.offered_ns.set(0);
        }
        is_grace
    }

    /// A slot was offered to other clients, and one of them, or a representative of these, was woken.
    pub(super) fn offered(&self) {
        self.offered_ns.set(self.now_ns().max(1));
    }

    /// A representative of these was woken: the offer has come back.
    pub(super) fn took_offer(&self) {
        self.offered_ns.set(0);
    }

    /// A slot has come free here; true if somebody was chosen for it. Now and then it is for all clients.
    pub(super) fn hand_over(&self) -> bool {
        let freed = self.freed.get() + 1;
        self.freed.set(freed);
        !freed.is_multiple_of(OWN) && !self.is_empty() && self.choose()
    }

    /// Chooses the first who waits and wakes it; false if nobody waits who could be woken here.
    pub(super) fn choose(&self) -> bool {
        let mut line = self.line();
        let representative = line.representative();
        let first = line.places.iter_mut().find(|(_, waiting)| !waiting.is_chosen);
        let Some((number, waiting)) = first else { return false };
        if Some(*number) == representative {
            return false;
        }
        let (number, wake) = (*number, waiting.wake.clone());
        line.mark(number, true);
        drop(line);
        wake.wake();
        true
    }

    /// Has every task look: there is something that concerns them all.
    pub(super) fn choose_all_tasks(&self) {
        while self.has_tasks().is_some() && self.choose() {}
    }

    /// How many are chosen, if a task waits that is not; that needs somebody who represents it.
    pub(super) fn has_tasks(&self) -> Option<usize> {
        if self.len.get() == 0 {
            return None;
        }
        let line = self.line();
        let waits = |waiting: &Waiting| !waiting.is_chosen && matches!(waiting.wake, Wake::Task(_));
        line.places.values().any(waits).then_some(line.chosen)
    }

    /// A place for this thread, behind all others; where it stood before, if it is back.
    pub(super) fn join(self: &Arc<Self>) -> Place {
        let event = Arc::new(Event::new());
        let before = GIVEN_UP.take().filter(|left| left.line == self.id && left.at.elapsed() < BACK);
        let number = before.map(|left| left.number);
        let mut place = self.add(number, Wake::Thread(Arc::clone(&event)));
        place.event = Some(event);
        place
    }

    /// A place for a task. `waker` is to be left anew whenever it has looked.
    pub(super) fn join_task(self: &Arc<Self>, waker: &Waker) -> Place {
        self.add(None, Wake::Task(waker.clone()))
    }

    fn add(self: &Arc<Self>, number: Option<u64>, wake: Wake) -> Place {
        let mut line = self.line();
        line.last += 1;
        let is_left = |number: &u64| *number < line.last && !line.places.contains_key(number);
        let number = number.filter(is_left).unwrap_or(line.last);
        drop(line.put(number, wake));
        self.len.set(line.places.len() as u64);
        let generation = line.generation;
        drop(line);
        Place { waiters: Arc::clone(self), number, generation, event: None, is_served: Cell::new(false) }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// No process forks while this is held, or a child could inherit a lock that nobody is left to open.
    fn line(&self) -> Locked<'_> {
        let forks_wait = sync::no_forks();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.generation != sync::generation() {
            // Those of a parent. Its wakers are left as they lie: they may do anything when they go.
            mem::forget(mem::replace(&mut *line, Line { generation: sync::generation(), ..Line::default() }));
            self.len.set(0);
        }
        Locked { line, _forks_wait: forks_wait }
    }
}

/// The line, locked. The lock goes first.
struct Locked<'a> {
    line: MutexGuard<'a, Line>,
    _forks_wait: NoForks,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Line {
        &mut self.line
    }
}

impl Line {
    /// The first thread: it parks on the segment's event, where it cannot be woken from here.
    fn representative(&self) -> Option<u64> {
        self.threads.first().copied()
    }

    /// Lets somebody wait there; gives what woke it before.
    fn put(&mut self, number: u64, wake: Wake) -> Option<Waiting> {
        if matches!(wake, Wake::Thread(_)) {
            self.threads.insert(number);
        }
        self.mark(number, false);
        self.places.insert(number, Waiting { is_chosen: false, wake })
    }

    fn take(&mut self, number: u64) -> Option<Waiting> {
        self.threads.remove(&number);
        let gone = self.places.remove(&number);
        self.chosen -= usize::from(gone.as_ref().is_some_and(|gone| gone.is_chosen));
        gone
    }

    fn mark(&mut self, number: u64, is_chosen: bool) {
        let Some(waiting) = self.places.get_mut(&number) else { return };
        self.chosen -= usize::from(waiting.is_chosen);
        self.chosen += usize::from(is_chosen);
        waiting.is_chosen = is_chosen;
    }
}

impl Place {
    /// Whether a slot is meant for it, or nobody stands before it: it may look for one.
    pub(super) fn may_look(&self) -> bool {
        let line = self.waiters.line();
        let is_first = line.places.first_key_value().is_some_and(|(first, _)| *first == self.number);
        is_first || line.places.get(&self.number).is_none_or(|waiting| waiting.is_chosen)
    }

    /// Whether it speaks for all who wait here.
    pub(super) fn is_representative(&self) -> bool {
        self.waiters.line().representative() == Some(self.number)
    }

    /// Who stands before it.
    pub(super) fn ahead(&self) -> Ahead {
        let line = self.waiters.line();
        let chosen = line.places.range(..self.number).filter(|(_, waiting)| waiting.is_chosen).count();
        Ahead { waiting: line.places.range(..self.number).count() - chosen, chosen }
    }

    /// What was meant for it is gone: it waits again, where it stood.
    pub(super) fn wait_again(&self) {
        self.waiters.line().mark(self.number, false);
    }

    /// The same for a task, with what wakes it from now on. It must look once more if it [may](Place::may_look).
    pub(super) fn leave(&self, waker: &Waker) {
        let wake = Wake::Task(waker.clone());
        let mut line = self.waiters.line();
        // Dropped outside of the lock: what a waker does is a stranger's affair.
        let before = line.put(self.number, wake);
        drop(line);
        drop(before);
    }

    /// Where a thread parks that represents nobody.
    pub(super) fn event(&self) -> Option<&Event> {
        self.event.as_deref()
    }

    /// It got what it waited for.
    pub(super) fn is_served(&self) {
        self.is_served.set(true);
    }

    /// False in a forked child.
    pub(super) fn is_here(&self) -> bool {
        self.generation == sync::generation()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let mut line = self.waiters.line();
        let was = line.representative();
        let gone = line.take(self.number);
        self.waiters.len.set(line.places.len() as u64);
        let next = line.representative().filter(|next| was != Some(*next));
        let next = next.and_then(|next| line.places.get(&next)).map(|waiting| waiting.wake.clone());
        drop(line);
        let was_chosen = gone.is_some_and(|waiting| waiting.is_chosen);
        if !self.is_served.get() {
            if self.event.is_some() {
                let (line, number, at) = (self.waiters.id, self.number, Instant::now());
                GIVEN_UP.set(Some(GivenUp { line, number, at }));
            }
            if was_chosen {
                self.waiters.choose();
            }
        }
        // It represents the others from now on.
        next.into_iter().for_each(Wake::wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_at_once_stands_where_it_stood() {
        let waiters = Arc::new(Waiters::new());
        let (first, others) = (waiters.join(), waiters.join_task(Waker::noop()));
        let number = first.number;
        drop(first);
        assert_eq!(waiters.join().number, number);
        // It was here again, and has left again: but too long ago.
        let left = GIVEN_UP.take().expect("it gave up");
        GIVEN_UP.set(left.at.checked_sub(BACK).map(|at| GivenUp { at, ..left }));
        assert!(waiters.join().number > others.number);
    }

    #[test]
    fn nobody_takes_the_place_of_another() {
        let waiters = Arc::new(Waiters::new());
        drop(waiters.join());
        let left = GIVEN_UP.get().expect("it gave up");
        // Whatever it may be that has led somebody else there.
        let here = waiters.join();
        GIVEN_UP.set(Some(left));
        let other = waiters.join();
        assert!(here.number == left.number && other.number != here.number && waiters.len() == 2);
        // A line that lies where the first one lay, or anywhere, is another.
        drop(other);
        let second = Arc::new(Waiters::new());
        let places: Vec<_> = (0..3).map(|_| second.join_task(Waker::noop())).collect();
        GIVEN_UP.set(Some(GivenUp { number: places[1].number, ..left }));
        drop(places);
        assert_eq!(second.join().number, 4);
    }
}
