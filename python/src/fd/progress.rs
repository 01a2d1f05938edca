//! What goes on slice after slice, and counts what it has done.

use pipework::{Deadline, Unfinished};
use pyo3::prelude::*;

use crate::wait::wait;

/// Repeats what makes progress: `call` gets how much is done, and does a slice of the rest without
/// the interpreter lock. `done` counts it, whatever ends it.
pub(super) fn progress(
    py: Python<'_>,
    deadline: Deadline,
    done: &mut u64,
    mut call: impl FnMut(u64, Deadline) -> Result<u64, Unfinished> + Send,
) -> PyResult<u64> {
    wait(py, deadline, |slice| add_up(done, py.detach(|| call(*done, slice))))
}

/// Adds what one slice has done to what was done before.
pub(crate) fn add_up(total: &mut u64, done: Result<u64, Unfinished>) -> Result<u64, Unfinished> {
    *total += done.unwrap_or_else(|unfinished| unfinished.done);
    done.map(|_| *total).map_err(|unfinished| Unfinished { done: *total, ..unfinished })
}
