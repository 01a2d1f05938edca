//! The line of threads and tasks of a client that wait for a slot, in the order in which they came.
//!
//! A newcomer goes behind those that wait already, and each slot that comes free is for one waiter,
//! which is *chosen*. The waiters are represented towards the other clients of the segment, by the
//! first thread among them or by the client's watch thread. The representative parks on the
//! segment's event, and so notices slots that other clients free; while the client is at its limit,
//! it parks where it notices that a call has ended.
//!
//! A task that is chosen and does not come keeps its place, but stops no other waiter: its runtime
//! may be slow, or may never poll it again.
//!
//! Invariant: as long as a waiter is not chosen, a representative announces itself there
//! and then looks, or is about to. So it does not matter if a slot comes free while every waiter
//! here was chosen already.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::shm::mapping::Shared;
use crate::deadline::Deadline;
use crate::event::Event;
use crate::sync::{self, AtomicU64, Hint, NoForks, Ordering, Reach};

/// One of this many slots that come free is offered to all clients, although a thread or task waits
/// here.
const OWN: u64 = 8;

/// For how long a slot that was offered to other clients is left to them.
pub(super) const GRACE: Duration = Duration::from_millis(1);

/// The time between two counts of the calls in progress.
const COUNT: Duration = Duration::from_millis(20);

/// For how long a slot is kept for a task that was chosen. After that the task counts as absent
/// until it comes.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// The line of one client.
#[derive(Debug)]
pub(super) struct Waiters {
    shared: Arc<Shared>,
    /// How many are in it, so that a call that need not wait pays for one load.
    len: Hint,
    /// The first that waits or is chosen, which represents the line; 0 for none. As the line was
    /// when it was last unlocked, so that a thread that polls all the time need not lock it.
    first: Hint,
    representative: Hint,
    line: Mutex<Line>,
    began: Instant,
    /// When a slot was last offered to other clients, in nanoseconds since `began`; 0 if their time
    /// is over.
    offered_ns: Hint,
    /// How many slots came free while a client of the segment waited.
    freed: Hint,
    /// Calls that may be in progress; 0 for any number.
    limit: u32,
    /// `{ fork generation: 32, calls: 32 }`: the calls in progress, if there is a limit.
    in_progress: AtomicU64,
    /// When they were last counted anew, in nanoseconds since `began`.
    counted_ns: Hint,
    /// `{ as they were counted anew: 32, calls: 32 }`, if the two numbers differed; else 0.
    doubt: Hint,
    /// Where a representative parks that has no use for a slot now: the limit stops it, or a thread
    /// stands before all that it represents. It is notified of each call that ends, and each change
    /// of the line.
    ends: Event,
}

#[derive(Debug, Default)]
struct Line {
    /// The fork generation: what was a parent's is none of ours.
    generation: u32,
    last: u64,
    /// How to wake each.
    places: BTreeMap<u64, Wake>,
    /// Those of them that are threads.
    threads: BTreeSet<u64>,
    /// Those that wait to be chosen.
    waiting: BTreeSet<u64>,
    /// The waiters that a slot is meant for, and since when, in nanoseconds; a thread always comes.
    /// A waiter that is in neither is absent.
    chosen: BTreeMap<u64, u64>,
    /// The tasks that need a server and were not notified yet that there is none.
    needy: BTreeSet<u64>,
    /// A representative was woken for a free slot and has left it to those that are chosen. It may
    /// be one slot more than they need, if one of them has its own already: so the next of them that
    /// leaves the line hands on.
    is_left: bool,
}

/// How the line is now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// Waiters that are not chosen.
    pub(super) waiting: usize,
    /// Waiters that are chosen, without those that are absent.
    pub(super) chosen: usize,
    /// One of those that are not chosen is a task.
    pub(super) has_task: bool,
    /// The first of those that are not chosen is a thread, which looks for itself.
    pub(super) is_thread_first: bool,
    /// When the first of the tasks that are chosen counts as absent.
    pub(super) patience_ends: Option<Deadline>,
}

fn counted(calls: u32) -> u64 {
    u64::from(sync::generation()) << 32 | u64::from(calls)
}

/// A parent's calls are not its child's.
fn calls(word: u64) -> u32 {
    if word >> 32 == u64::from(sync::generation()) { word as u32 } else { 0 }
}

/// How to wake a waiter.
#[derive(Debug)]
enum Wake {
    Thread(Arc<Seat>),
    /// Until it is used: a waker is foreign code, and is neither cloned nor dropped under a lock.
    Task(Option<Waker>),
}

/// Where a thread waits.
#[derive(Debug)]
struct Seat {
    event: Event,
    /// 1 if a slot is meant for it.
    is_chosen: Hint,
}

impl Wake {
    /// What is needed to wake it once.
    fn take(&mut self) -> Wake {
        match self {
            Wake::Thread(seat) => Wake::Thread(Arc::clone(seat)),
            Wake::Task(waker) => Wake::Task(waker.take()),
        }
    }

    fn wake(self) {
        match self {
            Wake::Thread(seat) => seat.event.notify(Reach::Process),
            Wake::Task(waker) => waker.into_iter().for_each(wake),
        }
    }
}

/// What stands before a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// A waiter that is not chosen.
    pub(super) waits: bool,
    pub(super) chosen: usize,
}

/// A place in the line. When it is dropped, what was meant for it goes to the next, in this line
/// or another.
#[derive(Debug)]
pub(super) struct Place {
    waiters: Arc<Waiters>,
    number: u64,
    generation: u32,
    /// Where it parks, if it is a thread's.
    seat: Option<Arc<Seat>>,
    /// It got what it waited for.
    is_served: Cell<bool>,
}

impl Waiters {
    pub(super) fn new(shared: Arc<Shared>, limit: u32) -> Waiters {
        Waiters {
            shared,
            len: Hint::new(0),
            first: Hint::new(0),
            representative: Hint::new(0),
            line: Mutex::default(),
            began: Instant::now(),
            offered_ns: Hint::new(0),
            freed: Hint::new(0),
            limit,
            in_progress: AtomicU64::new(0),
            counted_ns: Hint::new(0),
            doubt: Hint::new(0),
            ends: Event::new(),
        }
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.limit != 0
    }

    /// Counts one more call, if the limit admits it.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        !self.is_limited() || self.enter_limited()
    }

    #[cold]
    fn enter_limited(&self) -> bool {
        self.change(|calls| (calls < self.limit).then_some(calls + 1))
    }

    /// One call is over. True if that is to be [told](Waiters::tell_of_end).
    #[inline]
    pub(super) fn exit(&self) -> bool {
        let subtracts = || self.change(|calls| Some(calls.saturating_sub(1)));
        self.is_limited() && subtracts() && self.ends.is_awaited()
    }

    /// Wakes those whom the limit has stopped.
    pub(super) fn tell_of_end(&self) {
        self.ends.notify_all(Reach::Machine);
    }

    /// Where a representative parks while the limit stops it. In slices, as at `space`: calls may
    /// end unseen.
    pub(super) fn ends(&self) -> &Event {
        &self.ends
    }

    /// Whether the limit would admit `more` calls and one.
    pub(super) fn lets_in(&self, more: usize) -> bool {
        let calls = calls(self.in_progress.load(Ordering::Relaxed));
        !self.is_limited() || u64::from(calls) + (more as u64) < u64::from(self.limit)
    }

    /// For a call that the limit does not admit: calls may have ended unseen, because others took
    /// this client for dead. Counts them anew, if it is time. True if that has changed the number:
    /// it changes when two counts agree, because one count may be disturbed by a call that begins
    /// or ends.
    pub(super) fn count_anew(&self, in_progress: impl FnOnce() -> usize) -> bool {
        if self.lets_in(0) || self.now_ns().saturating_sub(self.counted_ns.get()) < COUNT.as_nanos() as u64 {
            return false;
        }
        self.counted_ns.set(self.now_ns());
        let word = self.in_progress.load(Ordering::Relaxed);
        let found = in_progress() as u32;
        let doubt = u64::from(found) << 32 | u64::from(calls(word));
        if found == calls(word) || self.doubt.get() != doubt {
            self.doubt.set(if found == calls(word) { 0 } else { doubt });
            return false;
        }
        self.doubt.set(0);
        let (order, now) = (Ordering::Relaxed, counted(found));
        let is_new = self.in_progress.compare_exchange(word, now, order, order).is_ok();
        self.tell_of_end();
        is_new
    }

    fn change(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        // Relaxed: it orders nothing; waiters are woken as for a slot.
        let next = |word| next(calls(word)).map(counted);
        self.in_progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether the line is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// How many wait or are chosen: so many slots are not for newcomers.
    pub(super) fn present(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let line = self.line();
        line.waiting.len() + line.present(..u64::MAX, self.now_ns())
    }

    pub(super) fn view(&self) -> View {
        if self.is_empty() { View::default() } else { self.view_of(&self.line()) }
    }

    /// The same for a representative that leaves a free slot to those that are chosen. It must look
    /// for one more than these need once more.
    pub(super) fn leave_to_chosen(&self) -> View {
        let mut line = self.line();
        line.is_left = true;
        self.view_of(&line)
    }

    fn view_of(&self, line: &Line) -> View {
        let now_ns = self.now_ns();
        let first_ns = line.chosen.values().copied().filter(|since| *since != u64::MAX).min();
        let left = |since: u64| since.saturating_add(PATIENCE.as_nanos() as u64).saturating_sub(now_ns);
        View {
            waiting: line.waiting.len(),
            chosen: line.present(..u64::MAX, now_ns),
            has_task: line.waiting.iter().any(|number| !line.threads.contains(number)),
            is_thread_first: line.waiting.first().is_some_and(|first| line.threads.contains(first)),
            patience_ends: first_ns.map(|since| Deadline::after(Duration::from_nanos(left(since)))),
        }
    }

    /// Keeps no slot any longer for tasks that have not come in time, and hands on what was kept.
    pub(super) fn give_up_on_the_absent(&self) {
        if self.is_empty() {
            return;
        }
        let mut line = self.line();
        let (before, now_ns) = (line.chosen.len(), self.now_ns());
        line.chosen.retain(|_, since| is_present(*since, now_ns));
        let absent = before - line.chosen.len();
        let is_left = absent > 0 && mem::take(&mut line.is_left);
        drop(line);
        if absent > 0 {
            self.hand_on(absent, is_left);
        }
    }

    /// Slots that were meant for waiters here are for others: of this line, or of other clients.
    fn hand_on(&self, slots: usize, is_left: bool) {
        let chosen = (0..slots).take_while(|_| self.choose()).count();
        if is_left {
            self.shared.space().notify_all(Reach::Machine);
        } else if chosen < slots {
            // They may be of use where no waiter of this line can be chosen.
            self.shared.space().notify_many(slots - chosen, Reach::Machine);
        }
        self.tell_of_end();
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

    /// A slot was offered to other clients, and one of them, or the representative of this line,
    /// was woken.
    pub(super) fn offered(&self) {
        self.offered_ns.set(self.now_ns().max(1));
    }

    /// The representative of this line was woken: the offer has come back.
    pub(super) fn took_offer(&self) {
        self.offered_ns.set(0);
    }

    /// Another number whenever a slot has come free here while a client of the segment waited.
    pub(super) fn freed(&self) -> u64 {
        self.freed.get()
    }

    /// A slot has come free here; true if a waiter was chosen for it. Now and then it is for all
    /// clients.
    pub(super) fn hand_over(&self) -> bool {
        let freed = self.freed.get() + 1;
        self.freed.set(freed);
        let is_chosen = !freed.is_multiple_of(OWN) && !self.is_empty() && self.choose();
        if is_chosen {
            // The waiter may take it, although it may be the only one that is free.
            self.took_offer();
        }
        is_chosen
    }

    /// Chooses the first that waits and wakes it; false if no waiter can be woken here.
    pub(super) fn choose(&self) -> bool {
        let mut line = self.line();
        let Some(first) = line.waiting.first().copied() else { return false };
        if Some(first) == line.representative() {
            return false;
        }
        let woken = line.choose(first, self.now_ns());
        drop(line);
        woken.into_iter().for_each(Wake::wake);
        true
    }

    /// The wakers of the tasks that need a server, each once.
    pub(super) fn tell_of_no_server(&self) -> Vec<Waker> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut line = self.line();
        let needy = mem::take(&mut line.needy);
        let taken = |number: &u64| match line.places.get_mut(number) {
            Some(Wake::Task(waker)) => waker.take(),
            _ => None,
        };
        let wakers = needy.iter().filter_map(taken).collect();
        drop(line);
        wakers
    }

    /// A place for this thread, behind all others.
    pub(super) fn join(self: &Arc<Self>) -> Place {
        let seat = Arc::new(Seat { event: Event::new(), is_chosen: Hint::new(0) });
        let mut place = self.add(Wake::Thread(Arc::clone(&seat)), false);
        place.seat = Some(seat);
        place
    }

    /// A place for a task, which may need a server. `waker` is to be left anew whenever the task
    /// has looked.
    pub(super) fn join_task(self: &Arc<Self>, waker: &Waker, needs_server: bool) -> Place {
        self.add(Wake::Task(Some(waker.clone())), needs_server)
    }

    fn add(self: &Arc<Self>, wake: Wake, needs_server: bool) -> Place {
        let mut line = self.line();
        line.last += 1;
        let number = line.last;
        let nobody = line.put(number, wake, needs_server);
        let generation = line.generation;
        drop(line);
        debug_assert!(nobody.is_none(), "the number is free");
        Place { waiters: Arc::clone(self), number, generation, seat: None, is_served: Cell::new(false) }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// No process forks while this is held, or a child could inherit a lock that no thread of it
    /// can release.
    fn line(&self) -> Locked<'_> {
        let forks_wait = sync::no_forks();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.generation != sync::generation() {
            // A parent's waiters. Their wakers are not dropped: foreign code may run when they are.
            mem::forget(mem::replace(&mut *line, Line { generation: sync::generation(), ..Line::default() }));
        }
        Locked { waiters: self, line, _forks_wait: forks_wait }
    }
}

/// The line, locked. The lock goes first.
struct Locked<'a> {
    waiters: &'a Waiters,
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

impl Drop for Locked<'_> {
    /// Publishes how the line is now, for threads that do not lock it.
    fn drop(&mut self) {
        self.waiters.len.set(self.line.places.len() as u64);
        self.waiters.first.set(self.line.first().unwrap_or(0));
        self.waiters.representative.set(self.line.representative().unwrap_or(0));
    }
}

impl Line {
    /// The first thread: it parks on the segment's event, where it cannot be woken from here.
    fn representative(&self) -> Option<u64> {
        self.threads.first().copied()
    }

    /// The first that is not absent.
    fn first(&self) -> Option<u64> {
        let chosen = self.chosen.first_key_value().map(|(number, _)| number);
        self.waiting.first().into_iter().chain(chosen).min().copied()
    }

    /// Puts a waiter in; returns how it was to be woken before.
    fn put(&mut self, number: u64, wake: Wake, needs_server: bool) -> Option<Wake> {
        if matches!(wake, Wake::Thread(_)) {
            self.threads.insert(number);
        }
        if needs_server {
            self.needy.insert(number);
        }
        self.chosen.remove(&number);
        self.waiting.insert(number);
        self.places.insert(number, wake)
    }

    /// Takes a waiter out; returns how it was to be woken, and whether it was chosen.
    fn take(&mut self, number: u64) -> (Option<Wake>, bool) {
        self.threads.remove(&number);
        self.needy.remove(&number);
        self.waiting.remove(&number);
        let was_chosen = self.chosen.remove(&number).is_some();
        (self.places.remove(&number), was_chosen)
    }

    /// Means a slot for a waiter; returns how to wake it.
    fn choose(&mut self, number: u64, now_ns: u64) -> Option<Wake> {
        self.waiting.remove(&number);
        self.needy.remove(&number);
        let place = self.places.get_mut(&number)?;
        let since = match place {
            Wake::Thread(seat) => {
                seat.is_chosen.set(1);
                u64::MAX
            }
            Wake::Task(_) => now_ns,
        };
        self.chosen.insert(number, since);
        Some(place.take())
    }

    /// How many of these are chosen and not absent.
    fn present(&self, numbers: std::ops::RangeTo<u64>, now_ns: u64) -> usize {
        self.chosen.range(numbers).filter(|(_, since)| is_present(**since, now_ns)).count()
    }
}

/// Whether a slot is kept for a waiter that was chosen then.
fn is_present(since_ns: u64, now_ns: u64) -> bool {
    now_ns < since_ns.saturating_add(PATIENCE.as_nanos() as u64)
}

impl Place {
    /// Whether it may look for a slot: one is meant for it, or no waiter stands before it.
    pub(super) fn may_look(&self) -> bool {
        if let Some(seat) = &self.seat {
            return seat.is_chosen.get() == 1 || self.waiters.first.get() == self.number;
        }
        let line = self.waiters.line();
        !line.waiting.contains(&self.number) || line.first() == Some(self.number)
    }

    /// Whether it represents this line.
    pub(super) fn is_representative(&self) -> bool {
        self.waiters.representative.get() == self.number
    }

    /// What stands before it.
    pub(super) fn ahead(&self) -> Ahead {
        // Fast path, without the lock: the first thread polls this.
        if self.waiters.first.get() == self.number {
            return Ahead { waits: false, chosen: 0 };
        }
        self.ahead_in(&self.waiters.line())
    }

    /// The same for a representative that leaves a free slot to those before it that are chosen. It
    /// must look for one more than these need once more.
    pub(super) fn leave_to_chosen(&self) -> Ahead {
        let mut line = self.waiters.line();
        line.is_left = true;
        self.ahead_in(&line)
    }

    fn ahead_in(&self, line: &Line) -> Ahead {
        Ahead {
            waits: line.waiting.first().is_some_and(|first| *first < self.number),
            chosen: line.present(..self.number, self.waiters.now_ns()),
        }
    }

    /// The slot that was meant for a thread is gone: it waits again, in the same place.
    pub(super) fn wait_again(&self) {
        let Some(seat) = &self.seat else { return };
        let mut line = self.waiters.line();
        seat.is_chosen.set(0);
        let was_chosen = line.chosen.remove(&self.number).is_some();
        line.waiting.insert(self.number);
        let is_left = was_chosen && mem::take(&mut line.is_left);
        drop(line);
        if is_left {
            self.waiters.hand_on(1, true);
        }
    }

    /// The same for a task, with the waker for it from now on. It must look once more if it
    /// [may](Place::may_look). Returns whether it was chosen.
    pub(super) fn leave(&self, waker: &Waker, needs_server: bool) -> bool {
        let wake = Wake::Task(Some(waker.clone()));
        let mut line = self.waiters.line();
        let was_chosen = line.chosen.contains_key(&self.number);
        // Dropped outside of the lock: a waker runs foreign code.
        let before = line.put(self.number, wake, needs_server);
        let is_left = was_chosen && mem::take(&mut line.is_left);
        drop(line);
        drop(before);
        if is_left {
            self.waiters.hand_on(1, true);
        } else {
            // It needs a representative again.
            self.waiters.tell_of_end();
        }
        was_chosen
    }

    /// Where a thread parks that does not represent the line.
    pub(super) fn event(&self) -> Option<&Event> {
        self.seat.as_ref().map(|seat| &seat.event)
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
        let (gone, was_chosen) = line.take(self.number);
        let next = line.representative().filter(|next| was != Some(*next));
        let next = next.and_then(|next| line.places.get_mut(&next)).map(Wake::take);
        let is_left = was_chosen && mem::take(&mut line.is_left);
        drop(line);
        drop(gone);
        if is_left || was_chosen && !self.is_served.get() {
            self.waiters.hand_on(1, is_left);
        } else {
            // A representative may be waiting for that.
            self.waiters.tell_of_end();
        }
        // It represents the others from now on.
        next.into_iter().for_each(Wake::wake);
    }
}

/// A panic in foreign code must not end the thread that others rely on. The panic was reported by
/// its hook.
pub(super) fn wake(waker: Waker) {
    let woken = panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
    // Dropping what it panicked with could panic again.
    if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| drop(woken))) {
        mem::forget(panic);
    }
}
