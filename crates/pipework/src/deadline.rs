//! How long to wait: an absolute instant, or never.
//!
//! Because it is absolute, a wait that a signal interrupted can be resumed without growing longer.

use std::time::{Duration, Instant};

use crate::clock;

/// The instant, on the monotonic clock, after which a blocking call gives up; or never.
///
/// A `Duration` or an `Instant` converts into one, so `reader.recv(Duration::from_secs(1))` works.
/// A `Duration` that is passed to a call of the module `reqrep` starts when the call first has to
/// wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(
    /// Nanoseconds of CLOCK_MONOTONIC; `i64::MAX` is never.
    i64,
);

impl Deadline {
    /// Never passes: the call waits for as long as it takes.
    pub const NEVER: Deadline = Deadline(i64::MAX);

    /// Has already passed: the call tries once and does not wait.
    pub fn now() -> Deadline {
        Deadline(clock::monotonic_ns())
    }

    /// Passes after `time` from now. A time beyond the clock's range is never.
    pub fn after(time: Duration) -> Deadline {
        Deadline(later(clock::monotonic_ns(), time))
    }

    /// Passes at `instant`, or later by at most the time between two readings of the clock: an
    /// `Instant` does not reveal its number.
    pub fn at(instant: Instant) -> Deadline {
        // In this order, so that the result is never earlier than `instant`.
        let (now, now_ns) = (Instant::now(), clock::monotonic_ns());
        match instant.checked_duration_since(now) {
            Some(left) => Deadline(later(now_ns, left)),
            None => Deadline(earlier(now_ns, now - instant)),
        }
    }

    /// Passes at time `ns` of CLOCK_MONOTONIC, in nanoseconds. For other languages, whose clocks
    /// return numbers. `i64::MAX` is never; a time in the past, negative ones included, has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::Deadline;
    ///
    /// assert!(Deadline::at_ns(1).has_passed());
    /// assert_eq!(Deadline::at_ns(i64::MAX), Deadline::NEVER);
    /// let deadline = Deadline::after(std::time::Duration::from_secs(1));
    /// assert_eq!(Deadline::at_ns(deadline.as_ns()), deadline);
    /// ```
    pub const fn at_ns(ns: i64) -> Deadline {
        Deadline(ns)
    }

    /// The number from which [`Deadline::at_ns`] makes the same deadline.
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// The time left: zero if the deadline has passed, `None` if it never passes.
    pub fn remaining(self) -> Option<Duration> {
        (!self.is_never()).then(|| Duration::from_nanos(self.remaining_ns().unsigned_abs()))
    }

    /// Nanoseconds left: 0 if the deadline has passed, `i64::MAX` if it never passes.
    pub fn remaining_ns(self) -> i64 {
        if self.is_never() { i64::MAX } else { self.0.saturating_sub(clock::monotonic_ns()).max(0) }
    }

    /// Whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.remaining_ns() == 0
    }

    /// The same instant, but no later than `time` from now: for waits that check something in
    /// between.
    pub fn capped(self, time: Duration) -> Deadline {
        self.or_earlier(Deadline::after(time))
    }

    /// The earlier of the two deadlines.
    pub fn or_earlier(self, other: Deadline) -> Deadline {
        Deadline(self.0.min(other.0))
    }

    pub(crate) fn is_never(self) -> bool {
        self == Deadline::NEVER
    }
}

/// `ns` plus `time`; never, if the sum overflows.
fn later(ns: i64, time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).map_or(i64::MAX, |time| ns.saturating_add(time))
}

/// `ns` minus `time`.
fn earlier(ns: i64, time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).map_or(i64::MIN, |time| ns.saturating_sub(time))
}

/// A deadline that is computed when it is first needed. Most waits end before that, and reading the
/// clock (26 ns) would take longer than they do.
pub(crate) type Later<'a> = &'a dyn Fn() -> Deadline;

impl From<Duration> for Deadline {
    fn from(time: Duration) -> Deadline {
        Deadline::after(time)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Deadline {
        Deadline::at(instant)
    }
}

impl From<Option<Duration>> for Deadline {
    /// `None` is never.
    fn from(time: Option<Duration>) -> Deadline {
        time.map_or(Deadline::NEVER, Deadline::after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_does_not_pass_and_now_has_passed() {
        assert!(!Deadline::NEVER.has_passed());
        assert!(Deadline::now().has_passed());
        assert!(!Deadline::after(Duration::from_secs(60)).has_passed());
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
        assert_eq!(Deadline::from(None), Deadline::NEVER);
    }

    #[test]
    fn at_ns_makes_a_deadline_from_a_clock_reading() {
        const SECOND: i64 = 1_000_000_000;
        let now = clock::monotonic_ns();
        let soon = Deadline::at_ns(now + 60 * SECOND);
        assert!((1..=60 * SECOND).contains(&soon.remaining_ns()) && !soon.has_passed());
        assert!(soon.remaining().is_some_and(|left| left <= Duration::from_secs(60)));
        for past in [now, 0, -1, i64::MIN] {
            let past = Deadline::at_ns(past);
            assert_eq!((past.remaining_ns(), past.remaining()), (0, Some(Duration::ZERO)));
            assert!(past.has_passed());
        }
        assert_eq!((Deadline::at_ns(i64::MAX), Deadline::NEVER.remaining_ns()), (Deadline::NEVER, i64::MAX));
        assert!(!Deadline::at_ns(i64::MAX - 1).has_passed());
        assert_eq!((soon.as_ns(), Deadline::NEVER.as_ns()), (now + 60 * SECOND, i64::MAX));
    }

    #[test]
    fn at_converts_an_instant_to_the_same_time() {
        let (before, instant) = (clock::monotonic_ns(), Instant::now());
        let after = clock::monotonic_ns();
        // Converting may make it later, never earlier, so the closest of many conversions is close
        // to the readings.
        let converted = || Deadline::at(instant).as_ns();
        assert!(converted() >= before);
        let closest = (0..1000).map(|_| converted()).min().expect("there are some");
        assert!(closest <= after + 1_000_000, "within a millisecond: {}", closest - after);
        let minute = Duration::from_secs(60);
        assert!(Deadline::at(instant + minute).remaining().is_some_and(|left| left <= minute));
        assert!(Deadline::at(instant).has_passed());
    }

    #[test]
    fn or_earlier_returns_the_earlier_deadline() {
        let (soon, late) = (Deadline::after(Duration::from_secs(1)), Deadline::after(Duration::from_secs(2)));
        assert_eq!((soon.or_earlier(late), late.or_earlier(soon)), (soon, soon));
        assert_eq!((soon.or_earlier(Deadline::NEVER), Deadline::NEVER.or_earlier(soon)), (soon, soon));
        assert_eq!(Deadline::NEVER.or_earlier(Deadline::NEVER), Deadline::NEVER);
    }

    #[test]
    fn capped_never_makes_a_deadline_later() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let soon = Deadline::after(minute);
        assert_eq!(soon.capped(hour), soon);
        assert!(Deadline::NEVER.capped(minute).remaining().is_some_and(|left| left <= minute));
        assert!(Deadline::after(hour).capped(minute).remaining().is_some_and(|left| left <= minute));
    }
}
