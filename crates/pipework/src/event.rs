//! The one wait on memory: check, spin, announce, check again, park.
//!
//! A waiter announces itself in a word before its last check; a notifier reads that word after its
//! change. With a full fence on both sides, at least one of them sees the other (Dekker), so a
//! wake-up is lost only if a process is killed in between. If other processes take part, a waiter
//! parks in slices and checks again after each. A [`Tick`] schedules the checks of what the wait
//! depends on. It outlives the wait: otherwise a thread whose waits are all short would never reach
//! the end of a slice.

use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::defaults::SLICE;
use crate::error::{Error, ErrorKind, Result};
use crate::interrupt::{self, Verdict};
use crate::spin::Spin;
use crate::sync::{EVERYONE, Flag, Hint, Ordering, Reach, Word, fence, fence_after_swap};
use crate::sys::Errno;

/// Lowest bit of an event's word: a thread may be parked.
const PARKED: u64 = 1;
/// The other bits count the notifications that found the parked bit set, and those that cleared it.
const STEP: u64 = 2;

/// The first slice of a wait that depends on other processes; doubled up to [`SLICE`]. Also the
/// time from one tick to the next.
pub(crate) const FIRST_SLICE: Duration = Duration::from_millis(50);
/// The time from a check that left work to the next one. Half of it remains for the program.
const SOON: Duration = Duration::from_millis(10);

/// How many times a thread checks a word that it cannot park on before it sleeps between two
/// checks.
const LOOKS: u32 = 64;
/// How long it sleeps.
const PAUSE: Duration = Duration::from_micros(50);

/// A place to wait for a change: `{ sequence: 63, parked: 1 }`. It starts at zero, which is a safe
/// state at any time.
#[cfg_attr(not(loom), repr(transparent))]
#[derive(Debug)]
pub(crate) struct Event(Word);

impl Event {
    pub(crate) fn new() -> Event {
        Event(Word::new(0))
    }

    /// Wakes one parked thread, if any. Call this after the change.
    pub(crate) fn notify(&self, reach: Reach) {
        // Pairs with the fence in `announce`: either this sees PARKED, or the waiter's next check
        // sees the change.
        fence(Ordering::SeqCst);
        self.wake(1, reach);
    }

    /// As `notify`, after a change by a swap. On machines where a swap is already a full fence,
    /// another fence would double the cost.
    pub(crate) fn notify_swapped(&self, reach: Reach) {
        fence_after_swap();
        self.wake(1, reach);
    }

    /// Wakes up to `count` parked threads; as `notify`.
    pub(crate) fn notify_many(&self, count: usize, reach: Reach) {
        fence(Ordering::SeqCst);
        self.wake(count as u32, reach);
    }

    /// Wakes up to `count` parked threads; as `notify_swapped`.
    pub(crate) fn notify_many_swapped(&self, count: u32, reach: Reach) {
        fence_after_swap();
        self.wake(count, reach);
    }

    /// Wakes all parked threads; as `notify_swapped`.
    pub(crate) fn notify_all_swapped(&self, reach: Reach) {
        fence_after_swap();
        self.wake(EVERYONE, reach);
    }

    /// Wakes all parked threads.
    pub(crate) fn notify_all(&self, reach: Reach) {
        fence(Ordering::SeqCst);
        self.wake(EVERYONE, reach);
    }

    /// Wakes all parked threads, those that could not announce themselves included; as `notify_swapped`.
    pub(crate) fn notify_unseen(&self, reach: Reach) {
        // Release: pairs with the Acquire of `wait_unseen`.
        self.0.fetch_add(STEP, Ordering::Release);
        self.0.wake(EVERYONE, reach);
    }

    /// Whether a thread may be parked. Call this after a change that was a swap.
    pub(crate) fn is_awaited(&self) -> bool {
        fence_after_swap();
        self.0.load(Ordering::Relaxed) & PARKED != 0
    }

    /// Wakes one parked thread, after [`is_awaited`](Event::is_awaited); returns false if none was
    /// parked.
    pub(crate) fn wake_one(&self, reach: Reach) -> bool {
        self.wake(1, reach)
    }

    /// Returns false if no thread was parked.
    fn wake(&self, count: u32, reach: Reach) -> bool {
        if self.0.load(Ordering::Relaxed) & PARKED == 0 {
            return false;
        }
        // Relaxed, here and below: the word orders only itself. The data that woken threads check
        // has orderings of its own.
        let now = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        // One step more. Otherwise the next waiter's PARKED would restore the value `now`, on which
        // an earlier waiter may be about to park.
        let cleared = now.wrapping_add(STEP) & !PARKED;
        let woken = self.0.wake(count, reach) > 0;
        if !woken && self.0.replace(now, cleared, Ordering::Relaxed).is_ok() {
            // A thread may have parked in between. It parked on the old value, so this wakes it,
            // and no later thread can park on that value.
            self.0.wake(EVERYONE, reach);
        }
        woken
    }

    /// Shows notifiers that a thread is about to park; returns the value that the word must still
    /// have when it parks.
    fn announce(&self) -> u64 {
        let seen = self.0.fetch_or(PARKED, Ordering::Relaxed) | PARKED;
        fence_after_swap();
        seen
    }

    /// Waits until `look` finds something, for as long as `wait` allows. `check` runs whenever its
    /// tick is due.
    pub(crate) fn wait<T>(
        &self,
        wait: &Wait<'_>,
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        wait.on(&self.0, || Some(self.announce()), look, check)
    }

    /// As `wait`, for a thread that may only read the word: only [`notify_unseen`](Event::notify_unseen)
    /// wakes it.
    pub(crate) fn wait_unseen<T>(
        &self,
        wait: &Wait<'_>,
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        // Acquire: the look after it sees everything from before the step of the word.
        let read = || Some(self.0.load(Ordering::Acquire));
        wait.on(&self.0, read, look, check)
    }
}

/// Records when the things that waits depend on were last checked.
///
/// All waits and polls that depend on the same things share one tick. The tick outlives them. So it
/// becomes due just as soon for a thread with short waits, which end by a deadline, a signal or an
/// arrival.
#[derive(Debug)]
pub(crate) struct Tick {
    began: Instant,
    /// Nanoseconds since `began`; 0 before the first check.
    last_ns: Hint,
    /// Whether the last check left work, so that the next one is due after [`SOON`].
    has_more: Flag,
    /// 1 if a test has stopped the tick, 2 if it has stopped the slices only.
    #[cfg(test)]
    stopped: Hint,
}

impl Tick {
    /// A tick that is due.
    pub(crate) fn new() -> Tick {
        Tick {
            began: Instant::now(),
            last_ns: Hint::new(0),
            has_more: Flag::new(),
            #[cfg(test)]
            stopped: Hint::new(0),
        }
    }

    /// Stops the tick: it is never due, and no slice ends. Any later wake-up then came from an
    /// event.
    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.stopped.set(1);
    }

    /// As `stop`, but watch threads go on checking for tasks that may be missing.
    #[cfg(test)]
    pub(crate) fn stop_slices(&self) {
        self.stopped.set(2);
    }

    fn is_stopped(&self) -> bool {
        #[cfg(test)]
        return self.stopped.get() > 0;
        #[cfg(not(test))]
        false
    }

    /// Whether a thread that depends on this tick may check by itself, without an event.
    pub(crate) fn goes_on(&self) -> bool {
        #[cfg(test)]
        return self.stopped.get() != 1;
        #[cfg(not(test))]
        true
    }

    /// Records whether a check left work. Call this during the check.
    pub(crate) fn has_more(&self, yes: bool) {
        self.has_more.set(yes);
    }

    /// The time from one check to the next.
    fn interval(&self) -> Duration {
        if self.has_more.is_set() { SOON } else { FIRST_SLICE }
    }

    /// Whether a check is due. If so, the caller must do it for all that share the tick, and report
    /// it [done](Tick::done). Two threads may both get true.
    pub(crate) fn take(&self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let (now_ns, last_ns) = (self.now_ns(), self.last_ns.get());
        let due = last_ns == 0 || now_ns.saturating_sub(last_ns) >= self.interval().as_nanos() as u64;
        if due {
            self.last_ns.set(now_ns.max(1));
        }
        due
    }

    /// Restarts the interval: however long the check took, the next one is due a full interval
    /// later.
    pub(crate) fn done(&self) {
        self.last_ns.set(self.now_ns().max(1));
    }

    /// The time until the end of a slice of length `slice` that began at the last tick.
    fn until(&self, slice: Duration) -> Duration {
        if self.is_stopped() {
            return Duration::MAX;
        }
        let slice = if self.has_more.is_set() { SOON } else { slice };
        let passed_ns = self.now_ns().saturating_sub(self.last_ns.get());
        slice.saturating_sub(Duration::from_nanos(passed_ns))
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

/// How to wait, and which operation an error names.
pub(crate) struct Wait<'a> {
    pub(crate) deadline: Deadline,
    pub(crate) spin: &'a Spin,
    pub(crate) reach: Reach,
    /// Between processes, parking goes in slices. `None` inside one process, where no thread dies
    /// alone.
    pub(crate) tick: Option<&'a Tick>,
    /// Bytes of a long payload that the other side may copy.
    pub(crate) long: Option<&'a Hint>,
    pub(crate) op: &'static str,
}

impl Wait<'_> {
    /// Waits on any word. `announce` must make sure that a thread which changes the data of `look`
    /// also wakes the word, with a full fence after the change. It returns the value that the word
    /// must still have when this thread parks; `None` if the word changed meanwhile, and then
    /// `look` runs again first.
    ///
    /// Fails with `TimedOut`, with `Interrupted`, and as `look` and `check` do. It runs `look` once
    /// more after the deadline, and before it asks the interrupt hook.
    pub(crate) fn on<T>(
        &self,
        word: &Word,
        mut announce: impl FnMut() -> Option<u64>,
        mut look: impl FnMut() -> Result<Option<T>>,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let look = std::cell::RefCell::new(look);
        self.spin.wait(
            self.long,
            self.deadline,
            || look.borrow_mut()(),
            || {
                let (mut slice, mut changes) = (None, 0);
                loop {
                    // Announcing is expensive, and a thread does not park after its deadline. With
                    // a tick, there is a check to do even then.
                    let is_over = self.tick.is_none() && self.deadline.has_passed();
                    let expected = if is_over { None } else { announce() };
                    if let Some(found) = look.borrow_mut()()? {
                        return Ok(found);
                    }
                    // Only after `look` found nothing, and before anything that can end this wait
                    // without a result.
                    if self.tick.is_some_and(Tick::take) {
                        check()?;
                        self.tick.inspect(|tick| tick.done());
                        slice = Some(slice.map_or(FIRST_SLICE, |len: Duration| (2 * len).min(SLICE)));
                        continue;
                    }
                    let left = self.deadline.remaining();
                    if left == Some(Duration::ZERO) {
                        return Err(Error::new(ErrorKind::TimedOut, self.op));
                    }
                    match interrupt::asked() {
                        // The hook may have taken a long time.
                        Some(Verdict::GoOn) => continue,
                        Some(Verdict::Stop) => return Err(Errno::INTR.at(self.op)),
                        None => {}
                    }
                    // Check again. The word may stay as it is for as long as another thread needs,
                    // and that thread has no CPU if this one never sleeps and has the higher
                    // priority. And a hostile peer can change the word all the time.
                    let Some(expected) = expected else {
                        changes += 1;
                        if changes > LOOKS {
                            std::thread::sleep(PAUSE);
                        }
                        continue;
                    };
                    changes = 0;
                    let to_end = self.tick.map(|tick| tick.until(slice.unwrap_or(FIRST_SLICE)));
                    let limit = [to_end, left, interrupt::left()].into_iter().flatten().min();
                    match word.park(expected, limit, self.reach) {
                        // Run `look` before asking the hook: this thread may have consumed a
                        // wake-up.
                        Err(Errno::INTR) if interrupt::signal_came() => {}
                        done => done.map_err(|errno| errno.at(self.op))?,
                    }
                }
            },
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::interrupt::with_hook;
    use crate::spin::Looks;
    use crate::sys::fault::{Fault, all_met, order};

    fn wait<'a>(spin: &'a Spin, deadline: impl Into<Deadline>, reach: Reach) -> Wait<'a> {
        Wait { deadline: deadline.into(), spin, reach, tick: None, long: None, op: "test wait" }
    }

    #[test]
    fn wait_ends_after_a_notification_or_a_deadline() {
        for (reach, spin_us) in [(Reach::Process, 0), (Reach::Machine, 0), (Reach::Machine, 20)] {
            let (event, left) = (Event::new(), AtomicU32::new(0));
            let spin = Spin::new(Duration::from_micros(spin_us), Looks::Load);
            let take = || Ok(left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).ok());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..500 {
                            event
                                .wait(&wait(&spin, Deadline::NEVER, reach), take, || Ok(()))
                                .expect("no deadline");
                        }
                    });
                }
                for _ in 0..2000 {
                    left.fetch_add(1, SeqCst);
                    event.notify(reach);
                }
            });
            let late = event.wait(&wait(&spin, Duration::from_millis(5), reach), take, || Ok(()));
            assert_eq!(late.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
        }
    }

    #[test]
    fn word_never_returns_to_a_value_that_a_waiter_may_park_on() {
        let event = Event::new();
        let slow = event.announce();
        event.notify(Reach::Process);
        // No thread was parked, so this notification does not change the word.
        event.notify(Reach::Process);
        assert_ne!(event.announce(), slow, "the slow one would sleep through both");
    }

    #[test]
    fn wait_runs_its_check_although_notifications_keep_waking_it() {
        let (event, spin, tick) = (Event::new(), Spin::new(Duration::ZERO, Looks::Load), Tick::new());
        let checks = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while checks.load(SeqCst) < 2 {
                    event.notify_all(Reach::Machine);
                }
            });
            let stop = || match checks.fetch_add(1, SeqCst) {
                0 => Ok(()),
                _ => Err(Error::new(ErrorKind::PeerDied, "test wait")),
            };
            let wait = Wait { tick: Some(&tick), ..wait(&spin, Deadline::NEVER, Reach::Machine) };
            let ended = event.wait(&wait, || Ok(None::<()>), stop);
            assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::PeerDied));
        });
    }

    const FUTEX_INTR: Fault = Fault::Errno(4);

    #[test]
    fn signal_ends_a_wait_only_without_a_hook() {
        type Ended = std::result::Result<usize, (ErrorKind, Option<i32>)>;
        fn ended(looks: usize) -> Ended {
            let (event, spin) = (Event::new(), Spin::new(Duration::ZERO, Looks::Load));
            let mut left = looks;
            let look = || {
                left -= 1;
                Ok((left == 0).then_some(looks))
            };
            order("futex", 0, FUTEX_INTR);
            let ended = event.wait(&wait(&spin, Deadline::NEVER, Reach::Process), look, || Ok(()));
            assert!(all_met());
            ended.map_err(|error| (error.kind(), error.errno()))
        }
        /// In a thread whose slice has just begun.
        fn hooked(hook: fn() -> Verdict, looks: usize) -> Ended {
            let thread = std::thread::spawn(move || with_hook(hook, || ended(looks)));
            thread.join().expect("it does not panic")
        }
        let interrupted = Err((ErrorKind::Interrupted, Some(4)));
        assert_eq!(ended(9), interrupted);
        // The check after the signal finds it, so the hook is not asked.
        assert_eq!(hooked(|| panic!("asked"), 3), Ok(3));
        assert_eq!(hooked(|| Verdict::GoOn, 4), Ok(4));
        assert_eq!(hooked(|| Verdict::Stop, 4), interrupted);
    }

    #[test]
    fn wait_sees_a_change_made_while_the_hook_runs() {
        static EVENT: std::sync::LazyLock<Event> = std::sync::LazyLock::new(Event::new);
        static CHANGED: AtomicU32 = AtomicU32::new(0);
        fn change() -> Verdict {
            CHANGED.store(1, SeqCst);
            EVENT.notify(Reach::Process);
            // This notification clears the waiter's announcement.
            EVENT.notify(Reach::Process);
            Verdict::GoOn
        }
        let spin = Spin::new(Duration::ZERO, Looks::Load);
        for deadline in [Deadline::NEVER, Deadline::after(Duration::from_secs(60))] {
            CHANGED.store(0, SeqCst);
            order("futex", 0, FUTEX_INTR);
            let look = || Ok((CHANGED.load(SeqCst) == 1).then_some(()));
            let found =
                with_hook(change, || EVENT.wait(&wait(&spin, deadline, Reach::Process), look, || Ok(())));
            assert_eq!(found, Ok(()));
        }
    }

    #[test]
    fn wait_asks_the_hook_at_the_end_of_a_slice_without_a_signal() {
        thread_local! {
            static ASKED: Cell<u32> = const { Cell::new(0) };
        }
        fn stop_the_second_time() -> Verdict {
            ASKED.set(ASKED.get() + 1);
            if ASKED.get() == 2 { Verdict::Stop } else { Verdict::GoOn }
        }
        let (event, spin, tick) = (Event::new(), Spin::new(Duration::ZERO, Looks::Load), Tick::new());
        for tick in [None, Some(&tick)] {
            ASKED.set(0);
            let wait = Wait { tick, ..wait(&spin, Deadline::NEVER, Reach::Process) };
            let began = Instant::now();
            let ended = with_hook(stop_the_second_time, || event.wait(&wait, || Ok(None::<()>), || Ok(())));
            assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
            assert!(ASKED.get() == 2 && began.elapsed() >= SLICE, "the first may be due at once");
        }
    }

    #[test]
    fn wait_that_need_not_sleep_does_not_ask_the_hook() {
        let (event, mut looks) = (Event::new(), 0);
        let spin = Spin::new(Duration::from_millis(1), Looks::Load);
        let wait_until = |deadline| wait(&spin, deadline, Reach::Process);
        with_hook(
            || panic!("asked"),
            || {
                interrupt::signal_came();
                let look = || {
                    looks += 1;
                    Ok((looks > 20).then_some(()))
                };
                assert_eq!(event.wait(&wait_until(Deadline::NEVER), look, || Ok(())), Ok(()));
                let late = event.wait(&wait_until(Deadline::now()), || Ok(None::<()>), || Ok(()));
                assert_eq!(late.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
            },
        );
    }

    #[test]
    fn tick_becomes_due_although_every_wait_is_shorter_than_a_slice() {
        let (event, spin, tick) = (Event::new(), Spin::new(Duration::ZERO, Looks::Load), Tick::new());
        let (mut checks, mut waits) = (0, 0);
        let began = Instant::now();
        while checks < 3 {
            let wait = Wait { tick: Some(&tick), ..wait(&spin, Duration::from_micros(100), Reach::Machine) };
            let count = || {
                checks += 1;
                Ok(())
            };
            let ended = event.wait(&wait, || Ok(None::<()>), count);
            assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
            waits += 1;
        }
        assert!(began.elapsed() >= 2 * FIRST_SLICE, "due at once, then once per slice at most");
        assert!(waits > 3, "no wait was as long as a slice");
        let taken = Duration::from_nanos(tick.last_ns.get());
        assert!(taken >= 2 * FIRST_SLICE, "each check restarted the tick: {taken:?}");
    }
}
