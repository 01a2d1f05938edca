//! The one way to say how long to wait: an absolute instant, or never.
//!
//! Absolute, so that a wait that a signal interrupts can be resumed without growing longer.

use std::time::{Duration, Instant};

/// The instant, on the monotonic clock, after which a blocking call gives up; or never.
///
/// A `Duration` or an `Instant` converts into one, so `reader.recv(Duration::from_secs(1))` works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Never passes: the call waits for as long as it takes.
    pub const NEVER: Deadline = Deadline(None);

    /// Has passed already: the call tries once and does not wait.
    pub fn now() -> Deadline {
        Deadline(Some(Instant::now()))
    }

    /// Passes after `time` from now. A time beyond the clock's range is never.
    pub fn after(time: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(time))
    }

    /// Passes at `instant`.
    pub fn at(instant: Instant) -> Deadline {
        Deadline(Some(instant))
    }

    /// The time left, zero if it has passed; `None` if it never does.
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|instant| instant.saturating_duration_since(Instant::now()))
    }

    /// Whether the instant has come.
    pub fn has_passed(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }

    /// The same instant, but not later than `time` from now: for waits that look in between.
    pub fn capped(self, time: Duration) -> Deadline {
        match self.remaining() {
            Some(left) if left <= time => self,
            _ => Deadline::after(time),
        }
    }

    /// The earlier of the two.
    pub fn or_earlier(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(one), Some(two)) => Deadline(Some(one.min(two))),
            (one, two) => Deadline(one.or(two)),
        }
    }

    pub(crate) fn is_never(self) -> bool {
        self.0.is_none()
    }
}

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
    fn never_never_passes_and_now_has() {
        assert!(!Deadline::NEVER.has_passed());
        assert!(Deadline::now().has_passed());
        assert!(!Deadline::after(Duration::from_secs(60)).has_passed());
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
        assert_eq!(Deadline::from(None), Deadline::NEVER);
    }

    #[test]
    fn of_two_the_earlier_counts() {
        let (soon, late) = (Deadline::after(Duration::from_secs(1)), Deadline::after(Duration::from_secs(2)));
        assert_eq!((soon.or_earlier(late), late.or_earlier(soon)), (soon, soon));
        assert_eq!((soon.or_earlier(Deadline::NEVER), Deadline::NEVER.or_earlier(soon)), (soon, soon));
        assert_eq!(Deadline::NEVER.or_earlier(Deadline::NEVER), Deadline::NEVER);
    }

    #[test]
    fn a_cap_only_brings_it_nearer() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let soon = Deadline::after(minute);
        assert_eq!(soon.capped(hour), soon);
        assert!(Deadline::NEVER.capped(minute).remaining().is_some_and(|left| left <= minute));
        assert!(Deadline::after(hour).capped(minute).remaining().is_some_and(|left| left <= minute));
    }
}
