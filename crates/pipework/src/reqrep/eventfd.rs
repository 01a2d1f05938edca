//! Eventfds that are rung by hand: for related processes with event loops, without a thread.
//!
//! This file knows nothing of calls. A process that sends or replies and wants the other side's
//! loop to run rings afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::{sync, sys};

/// Holds an eventfd that is rung by hand, for processes that are forked from each other or pass
/// descriptors on. Only [`ring`](EventFd::ring) rings it: neither
/// [`Client::send`](super::Client::send) nor [`Request::reply`](super::Request::reply) does.
///
/// A client and a server have two each, one for requests and one for replies. The eventfd belongs
/// to the handle and its clones. Processes share one by putting the same eventfd into their
/// handles.
#[derive(Debug, Default)]
pub struct EventFd(Mutex<Option<Arc<OwnedFd>>>);

impl EventFd {
    /// The eventfd. If there is none, this makes one, non-blocking and close-on-exec.
    ///
    /// # Errors
    ///
    /// `Os`, if no descriptor is left.
    pub fn create(&self) -> Result<Arc<OwnedFd>> {
        self.with(|place| {
            if let Some(eventfd) = place {
                return Ok(Arc::clone(eventfd));
            }
            let made = sys::eventfd().map_err(|errno| errno.at("reqrep eventfd"))?;
            Ok(Arc::clone(place.insert(Arc::new(made))))
        })
    }

    /// Puts an eventfd in, for instance an inherited one, which may block. The one that was there
    /// is closed.
    pub fn set(&self, eventfd: OwnedFd) {
        drop(self.with(|place| place.replace(Arc::new(eventfd))));
    }

    /// The eventfd, if there is one.
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.with(|place| place.clone())
    }

    /// Makes the eventfd readable; false if there is none.
    pub fn ring(&self) -> bool {
        self.get().inspect(|eventfd| sys::eventfd_ring(eventfd.as_fd())).is_some()
    }

    /// Makes the eventfd unreadable and returns how often it was rung since the last time; `None`
    /// if it was not, or if there is none. Never waits. To be called before looking for requests or
    /// replies. (An eventfd that was made with EFD_SEMAPHORE and [`set`](EventFd::set) gives one
    /// ring for each call.)
    pub fn consume(&self) -> Option<u64> {
        self.get().and_then(|eventfd| sys::eventfd_take(eventfd.as_fd()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<Arc<OwnedFd>>) -> T) -> T {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The two eventfds of a handle.
#[derive(Debug, Default)]
pub(super) struct EventFds {
    pub(super) request: EventFd,
    pub(super) reply: EventFd,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use rustix::event::EventfdFlags;

    use super::super::Options;
    use super::*;
    use crate::deadline::Deadline;
    use crate::sys::fault::{Fault, all_met, order};

    const SOON: Duration = Duration::from_secs(20);

    fn is_silent(fd: &impl AsFd) -> bool {
        !sys::wait(&[fd.as_fd()], sys::For::Reading, Deadline::now()).expect("poll")
    }

    #[test]
    fn an_eventfd_is_rung_by_hand_and_only_so() {
        let segment = Options::new().anonymous().unwrap();
        let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
        let requests = server.request_eventfd();
        assert!(requests.get().is_none() && !requests.ring() && requests.consume().is_none());
        let eventfd = requests.create().unwrap();
        assert!(Arc::ptr_eq(&eventfd, &requests.create().unwrap()));
        // The client rings it as its own.
        client.request_eventfd().set(eventfd.try_clone().unwrap());
        client.try_send("a").unwrap().expect("there is a slot");
        assert!(is_silent(&eventfd), "sending alone rings nothing");
        assert!(client.request_eventfd().ring() && client.request_eventfd().ring());
        assert!(!is_silent(&eventfd));
        assert_eq!((requests.consume(), is_silent(&eventfd)), (Some(2), true), "whoever rang it");
        assert_eq!(requests.consume(), None);
        // The other direction has another eventfd.
        let replies = client.clone().reply_eventfd().create().unwrap();
        server.reply_eventfd().set(replies.try_clone().unwrap());
        server.recv(SOON).unwrap().reply("b").unwrap();
        assert!(is_silent(&replies) && server.reply_eventfd().ring() && !is_silent(&replies));
        assert_eq!(client.reply_eventfd().consume(), Some(1));
        assert!(is_silent(&replies) && is_silent(&eventfd));
        server.reply_eventfd().set(sys::eventfd().unwrap());
        assert!(server.reply_eventfd().ring() && is_silent(&replies), "it was replaced");
    }

    #[test]
    fn one_that_blocks_is_not_waited_for() {
        for kernel_knows in [true, false] {
            let place = EventFd::default();
            place.set(rustix::event::eventfd(0, EventfdFlags::empty()).unwrap());
            let consume = || {
                if !kernel_knows {
                    order("read_nowait", 0, Fault::Errno(libc::EOPNOTSUPP));
                }
                let count = place.consume();
                assert!(all_met());
                count
            };
            assert_eq!(consume(), None, "{kernel_knows}");
            assert!((0..3).all(|_| place.ring()));
            assert_eq!((consume(), consume()), (Some(3), None), "{kernel_knows}");
        }
    }

    #[test]
    fn what_is_no_eventfd_has_no_count() {
        let place = EventFd::default();
        let (reader, writer) = sys::pipe().unwrap();
        place.set(reader);
        assert_eq!(place.consume(), None);
        rustix::io::write(&writer, b"text").unwrap();
        assert_eq!(place.consume(), None);
    }
}
