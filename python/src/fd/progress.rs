//! Calls that are made again after an interruption, and count the bytes done.

use pipework::Unfinished;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::wait::{Used, wait};

/// Makes progress without the interpreter lock: `call` gets how much is done, and does the rest.
/// `done` counts it in every case.
pub(super) fn progress(
    py: Python<'_>,
    done: &mut u64,
    mut call: impl FnMut(u64) -> Result<u64, Unfinished> + Send,
) -> PyResult<u64> {
    wait(py, &Used::Nothing, || Ok(add_up(done, py.detach(|| call(*done)))))?.or_raise(py)
}

/// Adds the count of one call to the counts of those before.
pub(crate) fn add_up(total: &mut u64, done: Result<u64, Unfinished>) -> Result<u64, Unfinished> {
    *total += done.unwrap_or_else(|unfinished| unfinished.done);
    done.map(|_| *total).map_err(|unfinished| Unfinished { done: *total, ..unfinished })
}
