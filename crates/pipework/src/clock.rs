//! The monotonic clock, which deadlines are measured on. It is a **wall** of its own because the
//! wall to the kernel waits until deadlines, and so stands behind them.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC, the clock of [`std::time::Instant`] too. Read by way of the
/// vDSO, without a system call.
pub(crate) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    // It starts with the machine, and 63 bits hold 292 years.
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
