//! Many datagrams in one system call.

use pipework::fd::{self, SocketAddrAny};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::address::{Address, to_python};
use super::progress::progress;
use super::raw::borrow;
use crate::buffer::Bytes;
use crate::error::OrRaise;
use crate::handle::{Handle, InChild};
use crate::wait::{Timeout, until};

/// Sends datagrams: pairs of bytes and an address, or None for the socket's own peer. Waits for
/// space.
///
/// Hosts are numbers. The exception's `done` says how many datagrams were sent before the one that
/// it failed at.
#[pyfunction]
#[pyo3(signature = (fd, datagrams, *, timeout=None))]
pub(super) fn send_many(
    py: Python<'_>,
    fd: i32,
    datagrams: Vec<(Bound<'_, PyAny>, Option<Address>)>,
    timeout: Option<Timeout>,
) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    let bytes = datagrams.iter().map(|(data, _)| data.extract()).collect::<PyResult<Vec<Bytes<'_, '_>>>>()?;
    let pairs = bytes.iter().zip(&datagrams).map(|(data, (_, to))| (&**data, to.as_ref().map(|to| &to.0)));
    let datagrams: Vec<(&[u8], Option<&SocketAddrAny>)> = pairs.collect();
    let deadline = until(timeout);
    let all = |done: u64| {
        let rest = &datagrams[done as usize..];
        fd::send_many(fd, rest, deadline).map(|()| rest.len() as u64)
    };
    progress(py, &mut 0, all).map(drop)
}

/// The datagram, its sender, and whether it was cut off.
type Come = (Py<PyBytes>, Py<PyAny>, bool);

/// Space for `count` datagrams of at most `max_bytes` each, to be received into again and again. All
/// memory is taken at once.
#[pyclass(frozen, module = "pipework.fd")]
pub(crate) struct InboxCore {
    handle: Handle<fd::Inbox>,
}

#[pymethods]
impl InboxCore {
    #[new]
    fn new(py: Python<'_>, count: usize, max_bytes: usize) -> PyResult<InboxCore> {
        Ok(InboxCore {
            handle: Handle::new("inbox", fd::Inbox::new(count, max_bytes).or_raise(py)?, InChild::Used),
        })
    }

    /// Waits for a datagram and returns all that are there, as many as fit: bytes, sender, and
    /// whether the end is lost.
    #[pyo3(signature = (fd, *, timeout=None))]
    fn recv(&self, py: Python<'_>, fd: i32, timeout: Option<Timeout>) -> PyResult<Vec<Come>> {
        let (fd, deadline) = (borrow(py, fd)?, until(timeout));
        self.handle.wait(py, deadline, "fd recv many", |inbox| {
            py.detach(|| inbox.recv(fd, deadline))?;
            let come = inbox.iter().map(|datagram| {
                let from = to_python(py, datagram.from)?;
                Ok((PyBytes::new(py, datagram.bytes).unbind(), from, datagram.is_cut))
            });
            Ok::<_, pipework::Error>(come.collect())
        })?
    }
}
