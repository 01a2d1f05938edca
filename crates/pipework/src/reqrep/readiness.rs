//! Whether a server takes requests: it may be stopped, or lack something for a while.

use std::time::Duration;

use crate::deadline::Deadline;
use crate::sync::{Flag, Hint};

/// Whether a server takes requests.
#[derive(Debug)]
pub(super) struct Readiness {
    stopped: Flag,
    /// Until when it leaves the first request to others, in nanoseconds of the clock.
    short_until_ns: Hint,
}

/// For how long event loops and tasks of a server that lacks something are not notified.
const PAUSE: Duration = Duration::from_millis(20);

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness { stopped: Flag::new(), short_until_ns: Hint::new(0) }
    }
}

impl Readiness {
    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_set()
    }

    /// The server lacks what it takes to receive the first request.
    pub(super) fn is_short(&self) {
        self.short_until_ns.set(Deadline::after(PAUSE).as_ns() as u64);
    }

    /// When to look again, if the server lacks something.
    pub(super) fn short_until(&self) -> Option<Deadline> {
        let until = Deadline::at_ns(self.short_until_ns.get() as i64);
        (!until.has_passed()).then_some(until)
    }
}
