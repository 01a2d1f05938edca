//! How long to spin before parking.
//!
//! To park and be woken costs about 20 microseconds, and the other side pays part of it. A wait that is over sooner is cheaper spent
//! spinning; any other spin is wasted. So the time to spin follows the waits of late: it doubles when one ended within it and
//! halves when one did not, and it is nothing where only one CPU may be used, because there the other side cannot run meanwhile.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::sync::Hint;
use crate::sys;

/// Without being told otherwise: about the cost of a sleep and a wake-up.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_micros(20);

/// Below this, spinning is not worth its clock readings.
const LEAST: Duration = Duration::from_micros(2);

/// Where a look is a system call: the pause before the first, doubled before each further one, so that looking does not get into
/// the other side's way.
const PAUSE: Duration = Duration::from_nanos(700);

/// Where a look is a load: how many are made for each reading of the clock.
const LOOKS: u32 = 32;

/// One waiting place's memory of its waits. Threads may wait there at the same time: they share what was learnt.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// Nanoseconds, at most `limit`; nothing, or at least [`LEAST`].
    budget: Hint,
    looks: Looks,
}

/// What one look costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// A few loads from memory.
    Load,
    /// A system call.
    Call,
}

impl Spin {
    /// Spins for up to `limit`, at most 1 ms; never, if that is zero or only one CPU may be used.
    pub(crate) fn new(limit: Duration, looks: Looks) -> Spin {
        static ALONE: OnceLock<bool> = OnceLock::new();
        let alone = *ALONE.get_or_init(|| sys::usable_cpus() < 2);
        let limit = if alone || limit < LEAST { Duration::ZERO } else { limit.min(Duration::from_millis(1)) };
        Spin { limit, budget: Hint::new(limit.as_nanos() as u64), looks }
    }

    /// Looks again and again for as long as that is worth it and the deadline allows, then parks. `look` returns `None` as long as there is nothing;
    /// `park` waits, and may return without anything having come.
    pub(crate) fn wait<T, E>(
        &self,
        deadline: Deadline,
        mut look: impl FnMut() -> Result<Option<T>, E>,
        park: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let budget = Duration::from_nanos(self.budget.get());
        if self.limit.is_zero() {
            return park();
        }
        let began = Instant::now();
        if !budget.is_zero() {
            let found = match self.looks {
                Looks::Load => look_often(began, budget, deadline, &mut look)?,
                Looks::Call => look_rarely(began, budget, deadline, &mut look)?,
            };
            if let Some(found) = found {
                self.learn(true);
                return Ok(found);
            }
        }
        let found = park()?;
        // What a sleep and its wake-up add is not held against the wait.
        self.learn(began.elapsed() < 2 * self.limit + DEFAULT_LIMIT);
        Ok(found)
    }

    /// Whether it parks at once, always.
    pub(crate) fn is_off(&self) -> bool {
        self.limit.is_zero()
    }

    fn learn(&self, soon: bool) {
        let budget = Duration::from_nanos(self.budget.get());
        let budget = match soon {
            true => (2 * budget).clamp(LEAST, self.limit),
            false if budget < 2 * LEAST => Duration::ZERO,
            false => budget / 2,
        };
        self.budget.set(budget.as_nanos() as u64);
    }
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
        Spin { limit, budget: Hint::new(limit.as_nanos() as u64), looks: Looks::Call }
    }

    #[test]
    fn long_waits_end_the_spinning_and_short_ones_bring_it_back() {
        let idle = || {
            std::thread::sleep(Duration::from_millis(1));
            Ok::<(), ()>(())
        };
        let spin = spin(DEFAULT_LIMIT);
        for _ in 0..5 {
            assert_eq!(spin.wait(Deadline::NEVER, || Ok(None), idle), Ok(()));
        }
        assert_eq!(spin.budget.get(), 0);
        assert_eq!(
            spin.wait(Deadline::NEVER, || unreachable!("an idle wait does not look at all"), idle),
            Ok(())
        );
        for _ in 0..50 {
            assert_eq!(spin.wait(Deadline::NEVER, || Ok(None), || Ok::<(), ()>(())), Ok(()));
        }
        assert!(
            spin.budget.get() >= LEAST.as_nanos() as u64,
            "waits that end at once are worth looking again"
        );
    }

    #[test]
    fn what_comes_while_spinning_is_taken_without_parking() {
        let spin = spin(Duration::from_secs(60));
        let mut looks = 0;
        let found = spin.wait(
            Deadline::NEVER,
            || {
                looks += 1;
                Ok::<_, ()>((looks == 3).then_some(looks))
            },
            || unreachable!("it came before"),
        );
        assert_eq!(found, Ok(3));
    }

    #[test]
    fn without_a_limit_it_parks_at_once() {
        let spin = Spin::new(Duration::ZERO, Looks::Load);
        assert_eq!(
            spin.wait(
                Deadline::NEVER,
                || -> Result<Option<i32>, ()> { unreachable!("it must not look") },
                || Ok(1)
            ),
            Ok(1)
        );
    }
}
