//! The one wait on memory: look, spin, announce, look again, park.
//!
//! Whoever waits announces it in a word before the last look; whoever changes something looks at that word after the change. With a
//! full fence on both sides one of them sees the other (Dekker), so a wake-up is lost only with a process that is killed
//! between. Where that can be, parking goes in slices, and what was waited for is looked at when each of them ends. What the wait
//! depends on is looked after by its [`Tick`], which outlives the wait: whoever waits in small pieces would never end a slice.

use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::spin::Spin;
use crate::sync::{EVERYONE, Hint, Ordering, Reach, Word, fence, fence_after_swap};

/// Lowest bit of an event's word: somebody may be parked.
const PARKED: u64 = 1;
/// The rest counts the notifications that found it set, and those that took it away.
const STEP: u64 = 2;

/// The first slice of a wait that depends on other processes, doubled up to [`LONGEST_SLICE`]. Also the time from one tick to the next.
const FIRST_SLICE: Duration = Duration::from_millis(50);
/// How late a death or a wake-up that died with its process is noticed.
const LONGEST_SLICE: Duration = Duration::from_millis(250);

/// A place to wait for something to change: `{ sequence: 63, parked: 1 }`. Zero is its beginning, and a safe state at any time.
#[cfg_attr(not(loom), repr(transparent))]
#[derive(Debug)]
pub(crate) struct Event(Word);

impl Event {
    pub(crate) fn new() -> Event {
        Event(Word::new(0))
    }

    /// Wakes one who is parked, if anybody is. To be called after the change.
    pub(crate) fn notify(&self, reach: Reach) {
        // Pairs with the fence in `announce`: either this sees PARKED, or the waiter's next look sees the change.
        fence(Ordering::SeqCst);
        self.wake(1, reach);
    }

    /// As `notify`, for a change that was a swap: where that is a full fence already, another would cost as much again.
    pub(crate) fn notify_swapped(&self, reach: Reach) {
        fence_after_swap();
        self.wake(1, reach);
    }

    /// Wakes everybody who is parked; as `notify_swapped`.
    pub(crate) fn notify_all_swapped(&self, reach: Reach) {
        fence_after_swap();
        self.wake(EVERYONE, reach);
    }

    /// Wakes everybody who is parked.
    pub(crate) fn notify_all(&self, reach: Reach) {
        fence(Ordering::SeqCst);
        self.wake(EVERYONE, reach);
    }

    /// Whether somebody may be parked. To be called after a change that was a swap.
    pub(crate) fn is_awaited(&self) -> bool {
        fence_after_swap();
        self.0.load(Ordering::Relaxed) & PARKED != 0
    }

    /// Wakes one who is parked, after [`is_awaited`](Event::is_awaited); false if nobody was.
    pub(crate) fn wake_one(&self, reach: Reach) -> bool {
        self.wake(1, reach)
    }

    /// What the word is while somebody announces himself all the time, so that it changes with every notification; `None` if nobody does.
    /// What is looked at after this is found, or will change the word.
    pub(crate) fn seen(&self) -> Option<u64> {
        let seen = self.0.load(Ordering::Relaxed);
        // As in `announce`, but for somebody else's mark.
        fence(Ordering::SeqCst);
        (seen & PARKED != 0).then_some(seen)
    }

    /// Whether it is as it was [seen](Event::seen).
    pub(crate) fn is_still(&self, seen: u64) -> bool {
        self.0.load(Ordering::Relaxed) == seen
    }

    /// False if nobody was parked.
    fn wake(&self, count: u32, reach: Reach) -> bool {
        if self.0.load(Ordering::Relaxed) & PARKED == 0 {
            return false;
        }
        // Relaxed, here and below: the word orders nothing but itself; what the woken look at has orderings of its own.
        let now = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        // A step further: with the next waiter's PARKED it would otherwise be `now` again, on which an earlier one may be about to go to sleep.
        let cleared = now.wrapping_add(STEP) & !PARKED;
        let woken = self.0.wake(count, reach) > 0;
        if !woken && self.0.replace(now, cleared, Ordering::Relaxed).is_ok() {
            // Somebody may have gone to sleep between: on the old value, so this finds them, and no later one can.
            self.0.wake(EVERYONE, reach);
        }
        woken
    }

    /// Tells notifiers that somebody is about to park, and what the word must still be then.
    fn announce(&self) -> u64 {
        let seen = self.0.fetch_or(PARKED, Ordering::Relaxed) | PARKED;
        fence_after_swap();
        seen
    }

    /// Waits until `look` finds something, for as long as `wait` allows. `check` is run whenever its tick is due.
    pub(crate) fn wait<T>(
        &self,
        wait: &Wait<'_>,
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        self.wait_parking(wait, || {}, look, check)
    }

    /// The same; `parks` is called whenever this thread is about to look for the last time before it parks.
    pub(crate) fn wait_parking<T>(
        &self,
        wait: &Wait<'_>,
        mut parks: impl FnMut(),
        look: impl FnMut() -> Result<Option<T>>,
        check: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        let announce = || {
            parks();
            Some(self.announce())
        };
        wait.on(&self.0, announce, look, check)
    }
}

/// When those that waits depend on were last looked after.
///
/// It belongs to all waits and looks that depend on the same. It outlives them, so that one that comes back all the time finds it
/// due as soon as any other, whatever ended its waits: a deadline, a signal, or something that came.
#[derive(Debug)]
pub(crate) struct Tick {
    began: Instant,
    /// Nanoseconds since `began`; 0 for not yet.
    last_ns: Hint,
}

impl Tick {
    /// One that is due.
    pub(crate) fn new() -> Tick {
        Tick { began: Instant::now(), last_ns: Hint::new(0) }
    }

    /// Whether it is due. If so, it is the caller's to look after everybody whom it stands for, and to say when that is
    /// [done](Tick::done); two threads may both be told so.
    pub(crate) fn take(&self) -> bool {
        let (now_ns, last_ns) = (self.now_ns(), self.last_ns.get());
        let due = last_ns == 0 || now_ns.saturating_sub(last_ns) >= FIRST_SLICE.as_nanos() as u64;
        if due {
            self.last_ns.set(now_ns.max(1));
        }
        due
    }

    /// Counts from now on: however long it has taken, the next is due in its time.
    pub(crate) fn done(&self) {
        self.last_ns.set(self.now_ns().max(1));
    }

    /// The time until a slice of this length is over that began when it was last taken.
    fn until(&self, slice: Duration) -> Duration {
        let passed_ns = self.now_ns().saturating_sub(self.last_ns.get());
        slice.saturating_sub(Duration::from_nanos(passed_ns))
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

/// How to wait, and under which name to fail.
pub(crate) struct Wait<'a> {
    pub(crate) deadline: Deadline,
    pub(crate) spin: &'a Spin,
    pub(crate) reach: Reach,
    /// Between processes, parking goes in slices. `None` where nobody dies alone: inside one process.
    pub(crate) tick: Option<&'a Tick>,
    pub(crate) op: &'static str,
}

impl Wait<'_> {
    /// Waits on any word. `announce` makes sure that whoever changes what `look` looks at wakes the word, with a full fence behind it, and says
    /// what the word must still be when this thread parks; `None` if it changed meanwhile and is to be looked at first.
    ///
    /// Fails with `TimedOut`, with `Interrupted`, and as `look` and `check` do. One last look is made after the deadline.
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
            self.deadline,
            || look.borrow_mut()(),
            || {
                let mut slice = None;
                loop {
                    let expected = announce();
                    if let Some(found) = look.borrow_mut()()? {
                        return Ok(found);
                    }
                    // After a look in vain only, and in front of all that can end this wait in vain.
                    if self.tick.is_some_and(Tick::take) {
                        check()?;
                        self.tick.inspect(|tick| tick.done());
                        slice = Some(slice.map_or(FIRST_SLICE, |len: Duration| (2 * len).min(LONGEST_SLICE)));
                        continue;
                    }
                    let left = self.deadline.remaining();
                    if left == Some(Duration::ZERO) {
                        return Err(Error::new(ErrorKind::TimedOut, self.op));
                    }
                    // Looked at anew, but not for ever: a peer that breaks the rules can change the word all the time.
                    let Some(expected) = expected else { continue };
                    let to_end = self.tick.map(|tick| tick.until(slice.unwrap_or(FIRST_SLICE)));
                    let limit = [to_end, left].into_iter().flatten().min();
                    word.park(expected, limit, self.reach).map_err(|errno| errno.at(self.op))?;
                }
            },
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::spin::Looks;

    fn wait<'a>(spin: &'a Spin, deadline: impl Into<Deadline>, reach: Reach) -> Wait<'a> {
        Wait { deadline: deadline.into(), spin, reach, tick: None, op: "test wait" }
    }

    #[test]
    fn a_change_ends_the_wait_of_one_and_a_deadline_that_of_all() {
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
    fn a_word_that_somebody_is_about_to_sleep_on_never_comes_back() {
        let event = Event::new();
        let slow = event.announce();
        event.notify(Reach::Process);
        // Nobody slept, so this notification does not change the word.
        event.notify(Reach::Process);
        assert_ne!(event.announce(), slow, "the slow one would sleep through both");
    }

    #[test]
    fn a_tick_comes_although_others_wake_the_waiter_all_the_time() {
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

    #[test]
    fn a_tick_outlives_the_waits_that_it_stands_for() {
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
        assert!(began.elapsed() >= 2 * FIRST_SLICE, "it is due at once, and then no more often than that");
        assert!(waits > 3, "no wait was as long as a slice");
        let taken = Duration::from_nanos(tick.last_ns.get());
        assert!(taken >= 2 * FIRST_SLICE, "each check has taken it anew: {taken:?}");
    }
}
