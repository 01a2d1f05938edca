//! Waiting for many descriptors.

use pipework::fd::{self, PollFd, PollFlags};
use pyo3::prelude::*;

use super::raw::borrow;
use crate::error::OrRaise;
use crate::wait::{Timeout, Used, until, wait};

/// Waits until one of the descriptors is ready for its events: pairs of a descriptor and `POLLIN`,
/// `POLLOUT` and the like.
///
/// Returns those that are ready, each with the events that are ready; an empty list once the time
/// is over. A descriptor that is not open is ready, with `POLLNVAL`.
#[pyfunction]
#[pyo3(signature = (fds, *, timeout=None))]
pub(super) fn poll(
    py: Python<'_>,
    fds: Vec<(i32, u16)>,
    timeout: Option<Timeout>,
) -> PyResult<Vec<(i32, u16)>> {
    let borrowed = fds.iter().map(|(number, _)| borrow(py, *number)).collect::<PyResult<Vec<_>>>()?;
    let asked = borrowed.iter().zip(&fds);
    let mut polled: Vec<_> = asked
        .map(|(fd, (_, events))| PollFd::from_borrowed_fd(*fd, PollFlags::from_bits_retain(*events)))
        .collect();
    let deadline = until(timeout);
    wait(py, &Used::Nothing, || Ok(py.detach(|| fd::poll(&mut polled, deadline))))?.or_raise(py)?;
    let ready = polled.iter().zip(fds).map(|(polled, (number, _))| (number, polled.revents().bits()));
    Ok(ready.filter(|(_, revents)| *revents != 0).collect())
}
