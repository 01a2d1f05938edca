//! How long to spin before parking.
//!
//! Parking and waking cost about 20 microseconds, and the other side pays part of that. A wait that
//! ends sooner is cheaper if it spins; any other spin is wasted. It does harm if both sides run
//! on one CPU, because it keeps the other side from running. So a spin that fails postpones the
//! next one, and each further failure postpones it by twice as many waits. Only short waits count:
//! long ones are no evidence for or against spinning. On a single CPU, nothing spins.

use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::defaults;
use crate::sync::Hint;
use crate::sys;

/// The limit for a wait in which the other side first copies a part of a message. It copies 64 KiB
/// in 5 microseconds, and takes ten times as long if it has to allocate the memory.
pub(crate) fn for_turns(limit: Duration) -> Duration {
    limit.saturating_mul(8)
}

/// The limit for a caller that holds a lock which others need, and would get it back late if it
/// released it: long enough for the other side to be woken first.
pub(crate) fn for_holders(limit: Duration) -> Duration {
    limit.saturating_mul(4)
}

/// The limit for a wait in which the other side may copy `bytes` bytes: at 8 bytes per nanosecond,
/// because they come from another core.
pub(crate) fn with_copies(limit: Duration, bytes: u64) -> Duration {
    if limit.is_zero() { limit } else { limit.saturating_add(Duration::from_nanos(bytes / 8)) }
}

/// Below this, spinning is not worth reading the clock.
const LEAST: Duration = Duration::from_micros(2);

/// The longest spin.
const LONGEST: Duration = Duration::from_millis(1);

/// The largest number of short waits that pass without a spin.
const LONGEST_REST: u32 = 64;

/// The longest rest for callers that hold a lock which the other side may need: if it needs it,
/// such a spin always fails.
const LONGEST_REST_OF_HOLDERS: u32 = 512;

/// If a check is a system call: the pause before the first check, doubled before each further one,
/// so that checking does not disturb the other side.
const PAUSE: Duration = Duration::from_nanos(700);

/// If a check is a load: the number of checks for each reading of the clock.
const LOOKS: u32 = 32;

/// The record that a waiting place keeps of its waits. Threads that wait there at the same time
/// share it.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// `{ last rest: 32, rest: 32 }`, in short waits, each at most [`LONGEST_REST`]: by how many
    /// waits the last failed spin postponed the next one, and how many of them are still to come.
    rests: Hint,
    looks: Looks,
}

/// The cost of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// A few loads from memory.
    Load,
    /// A system call.
    Call,
}

impl Spin {
    /// Spins for up to `limit`, at most [`LONGEST`]; never, if `limit` is zero or on a single CPU.
    pub(crate) fn new(limit: Duration, looks: Looks) -> Spin {
        let limit = if has_single_cpu() || limit < LEAST { Duration::ZERO } else { limit.min(LONGEST) };
        Spin { limit, rests: Hint::new(0), looks }
    }

    /// Spins for as long as that is worth it and the deadline allows, then parks. `look` returns
    /// `None` while there is nothing; `park` waits, and may return although nothing has arrived.
    ///
    /// With `long`, the other side may copy that many bytes out and as many in: it spins for that
    /// time too, and sets `long` to zero if that was not long enough.
    pub(crate) fn wait<T, E>(
        &self,
        long: Option<&Hint>,
        deadline: Deadline,
        mut look: impl FnMut() -> Result<Option<T>, E>,
        park: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.limit.is_zero() {
            return park();
        }
        let limit = long.map_or(self.limit, |long| match long.get() {
            0 => self.limit,
            bytes => with_copies(self.limit, bytes.saturating_mul(2)).min(LONGEST),
        });
        let began = Instant::now();
        let rests = self.rests.get();
        let (last, rest) = ((rests >> 32) as u32, rests as u32);
        if rest > 0 {
            let found = park()?;
            // The cost of parking and waking does not count as part of the wait.
            if began.elapsed() < 2 * limit + defaults::SPIN {
                self.remember(last, rest - 1);
            }
            return Ok(found);
        }
        let found = match self.looks {
            Looks::Load => look_often(began, limit, deadline, &mut look)?,
            Looks::Call => look_rarely(began, limit, deadline, &mut look)?,
        };
        if let Some(found) = found {
            self.remember(0, 0);
            return Ok(found);
        }
        long.inspect(|long| long.set(0));
        let found = park()?;
        let next = (2 * last).clamp(1, LONGEST_REST);
        self.remember(next, next);
        Ok(found)
    }

    /// Spins for as long as that is worth it, for callers that hold a lock which the other side may
    /// need. If the spin fails, they release the lock and then wait in a way that parks. Every such
    /// wait counts here, however long it is.
    pub(crate) fn briefly<T, E>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if !self.is_due() {
            return look();
        }
        let last = (self.rests.get() >> 32) as u32;
        let found = look_often(Instant::now(), self.limit, Deadline::NEVER, &mut look)?;
        let next = if found.is_some() { 0 } else { (2 * last).clamp(1, LONGEST_REST_OF_HOLDERS) };
        self.remember(next, next);
        Ok(found)
    }

    /// Whether such a caller should spin now. If not, that counts as one of the waits that pass
    /// without a spin.
    pub(crate) fn is_due(&self) -> bool {
        let rests = self.rests.get();
        let (last, rest) = ((rests >> 32) as u32, rests as u32);
        if rest > 0 {
            self.remember(last, rest - 1);
        }
        rest == 0 && !self.is_off()
    }

    /// Whether waits always park at once.
    pub(crate) fn is_off(&self) -> bool {
        self.limit.is_zero()
    }

    fn remember(&self, last: u32, rest: u32) {
        self.rests.set(u64::from(last) << 32 | u64::from(rest));
    }
}

/// Whether this process may use only one CPU.
fn has_single_cpu() -> bool {
    /// 0 until the CPUs are counted. Two threads may count at once: if one waited for the other, a
    /// child that was forked meanwhile would wait for ever.
    static CPUS: Hint = Hint::new(0);
    if CPUS.get() == 0 {
        CPUS.set(sys::usable_cpus() as u64);
    }
    CPUS.get() < 2
}

fn look_often<T, E>(
    began: Instant,
    budget: Duration,
    deadline: Deadline,
    look: &mut impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    loop {
        for _ in 0..LOOKS {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            std::hint::spin_loop();
        }
        if began.elapsed() >= budget || deadline.has_passed() {
            return Ok(None);
        }
    }
}

fn look_rarely<T, E>(
    began: Instant,
    budget: Duration,
    deadline: Deadline,
    look: &mut impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let budget = budget.min(deadline.remaining().unwrap_or(Duration::MAX));
    let mut next_look = PAUSE;
    loop {
        let passed = began.elapsed();
        if passed >= budget {
            return Ok(None);
        }
        if passed < next_look {
            std::hint::spin_loop();
            continue;
        }
        next_look = 2 * passed + PAUSE;
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(limit: Duration) -> Spin {
        Spin { limit, rests: Hint::new(0), looks: Looks::Call }
    }

    #[test]
    fn wait_stops_spinning_after_long_waits_and_resumes_after_short_ones() {
        let spin = spin(defaults::SPIN);
        let (mut looks, mut waited) = (0, 0);
        let mut wait = |park_us| {
            let park = || {
                std::thread::sleep(Duration::from_micros(park_us));
                Ok::<(), ()>(())
            };
            let before = looks;
            let look = || {
                looks += 1;
                Ok(None)
            };
            assert_eq!(spin.wait(None, Deadline::NEVER, look, park), Ok(()));
            looks > before
        };
        assert!(wait(1000), "it begins with a spin");
        assert!((0..100).all(|_| !wait(1000)));
        while !wait(0) {
            waited += 1;
            // This thread may be preempted now and then, which makes a wait long.
            assert!(waited < 1000, "waits that end at once are worth looking again");
        }
    }

    #[test]
    fn wait_spins_less_often_after_each_failed_spin() {
        let spin = spin(LEAST);
        let mut spins = 0;
        for _ in 0..1000 {
            let mut looked = false;
            let look = || {
                looked = true;
                Ok::<_, ()>(None)
            };
            assert_eq!(spin.wait(None, Deadline::NEVER, look, || Ok(())), Ok(()));
            spins += u32::from(looked);
        }
        // 1, 2, 4 ... 64 waits between them, and then 64 each.
        assert!((3..=7 + 1000 / 65).contains(&spins), "{spins}");
    }

    #[test]
    fn briefly_checks_once_per_call_after_a_failed_spin() {
        let spin = spin(LEAST);
        let looks_of = |comes_with: u32| {
            let mut looks = 0;
            let look = || {
                looks += 1;
                Ok::<_, ()>((looks == comes_with).then_some(()))
            };
            let found = spin.briefly(look).expect("no check fails");
            assert_eq!(found.is_some(), looks == comes_with);
            looks
        };
        let long: Vec<_> = (0..5000).filter(|_| looks_of(u32::MAX) > 1).collect();
        assert_eq!(long[..5], [0, 2, 5, 10, 19]);
        assert!(long.windows(2).all(|spins| spins[1] - spins[0] <= 1 + LONGEST_REST_OF_HOLDERS as usize));
        while looks_of(3) < 3 {}
        assert_eq!((looks_of(3), looks_of(3)), (3, 3), "a spin that succeeds is followed by others");
    }

    #[test]
    fn wait_does_not_park_if_the_spin_succeeds() {
        let spin = spin(Duration::from_secs(60));
        let mut looks = 0;
        let found = spin.wait(
            None,
            Deadline::NEVER,
            || {
                looks += 1;
                Ok::<_, ()>((looks == 3).then_some(looks))
            },
            || unreachable!("it arrived before"),
        );
        assert_eq!(found, Ok(3));
    }

    #[test]
    fn wait_spins_longer_after_a_long_payload_until_such_a_spin_fails() {
        let long = Hint::new(1 << 20);
        let comes_after = |delay: Duration| {
            let (spin, began) = (Spin { looks: Looks::Load, ..spin(LEAST) }, Instant::now());
            let look = || Ok::<_, ()>((began.elapsed() > delay).then_some(true));
            spin.wait(Some(&long), Deadline::NEVER, look, || Ok(false)).expect("no check fails")
        };
        // This thread may be preempted now and then, which makes a wait long.
        let mut found = 0;
        for _ in 0..1000 {
            long.set(1 << 20);
            found += u32::from(comes_after(Duration::from_micros(100)));
        }
        assert!(found > 300, "{found} of 1000");
        while comes_after(Duration::from_secs(60)) {}
        assert_eq!(long.get(), 0);
    }

    #[test]
    fn wait_parks_at_once_if_the_limit_is_zero() {
        let spin = Spin::new(Duration::ZERO, Looks::Load);
        assert_eq!(
            spin.wait(
                None,
                Deadline::NEVER,
                || -> Result<Option<i32>, ()> { unreachable!("it must not look") },
                || Ok(1)
            ),
            Ok(1)
        );
    }
}
