//! The monotonic clock, which measures deadlines. It is a **boundary** of its own: the boundary to
//! the kernel waits until deadlines, so it depends on this file.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC, the clock that [`std::time::Instant`] uses too. Read through the
/// vDSO, without a system call.
pub(crate) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at boot, and 63 bits hold 292 years.
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
