//! How long to wait: an absolute time, so that a call can be made again with the same one.

use pipework::Deadline;

/// A time of CLOCK_MONOTONIC in nanoseconds, after which a call gives up. It is absolute, so a call
/// that a signal interrupts is made again with the same one. A time in the past does not wait.
pub type pwk_deadline = i64;

/// Waits for as long as it takes.
pub const PWK_NEVER: pwk_deadline = i64::MAX;

/// The time in `ms` milliseconds from now. A negative number is in the past.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_in_ms(ms: i64) -> pwk_deadline {
    pwk_in_ns(ms.saturating_mul(1_000_000))
}

/// The time in `ns` nanoseconds from now. A negative number is in the past; INT64_MAX is PWK_NEVER.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_in_ns(ns: i64) -> pwk_deadline {
    Deadline::now().as_ns().saturating_add(ns)
}

/// Nanoseconds that are left until then: 0 if it has passed, INT64_MAX if it never does.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_left_ns(deadline: pwk_deadline) -> i64 {
    at(deadline).remaining_ns()
}

/// The same for the core.
#[inline]
pub(crate) fn at(deadline: pwk_deadline) -> Deadline {
    Deadline::at_ns(deadline)
}
