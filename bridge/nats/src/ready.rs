//! **Boundary**: waiting until a descriptor can be read or written. All that is unsafe in the
//! bridge.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A descriptor that the event loop watches. Its flags are never changed.
#[derive(Debug)]
pub(crate) struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Watches for bytes to read.
    pub(crate) fn to_read(fd: impl Into<OwnedFd>) -> io::Result<Ready> {
        Ready::watch(fd.into(), Interest::READABLE)
    }

    /// Watches for space to write into.
    pub(crate) fn to_write(fd: impl Into<OwnedFd>) -> io::Result<Ready> {
        Ready::watch(fd.into(), Interest::WRITABLE)
    }

    fn watch(fd: OwnedFd, interest: Interest) -> io::Result<Ready> {
        // SAFETY: an OwnedFd is open for as long as it lives, always the same number, and nothing
        // here hands it out to be replaced.
        let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
        watched.map(Ready).map_err(io::Error::from)
    }

    /// Waits for bytes. If a caller finds none, it must say so to the guard.
    pub(crate) async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }

    /// Waits for space. If a caller finds none, it must say so to the guard.
    pub(crate) async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.writable().await
    }
}
