//! What comes to a server besides the ring: requests that a thread of its own has put together, and
//! the order to stop.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::shm::payload::Payload;
use super::shm::slot::SlotWord;
use crate::sync::{self, AtomicU64, Hint, Ordering};

/// Shared by the clones of a server and its watch thread.
#[derive(Debug)]
pub(super) struct Inbox {
    /// 1 if there is anything, so that a look that finds nothing pays for one load.
    news: Hint,
    /// 1 once the server is to stop.
    stopped: Hint,
    /// How many threads put requests together.
    gathering: AtomicU64,
    gathered: Mutex<VecDeque<Gathered>>,
}

/// A request of several parts, whole.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) claimed: (u32, SlotWord),
    /// The member that claimed it.
    pub(super) holder: u64,
    pub(super) flags: u32,
    pub(super) payload: Payload,
}

impl Default for Inbox {
    fn default() -> Inbox {
        let (news, stopped, gathering) = (Hint::new(0), Hint::new(0), AtomicU64::new(0));
        Inbox { news, stopped, gathering, gathered: Mutex::default() }
    }
}

impl Inbox {
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.news.get() != 0
    }

    pub(super) fn stop(&self) {
        // Under the lock, or a thread that is just leaving it would take the news back.
        self.with(|_| self.stopped.set(1));
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get() != 0
    }

    /// Counts a thread that begins (1) or ends (-1).
    pub(super) fn is_gathering(&self, threads: i64) {
        self.gathering.fetch_add(threads as u64, Ordering::Relaxed);
    }

    /// How many threads put requests together.
    pub(super) fn gathering(&self) -> usize {
        self.gathering.load(Ordering::Relaxed) as usize
    }

    /// Whether a request waits here. Without the lock: watch threads ask under one of their own.
    pub(super) fn has_gathered(&self) -> bool {
        self.has_news() && !self.is_stopped()
    }

    pub(super) fn push(&self, request: Gathered) {
        self.with(|gathered| gathered.push_back(request));
    }

    pub(super) fn pop(&self) -> Option<Gathered> {
        self.with(VecDeque::pop_front)
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Gathered>) -> T) -> T {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut gathered);
        self.news.set(u64::from(!gathered.is_empty() || self.is_stopped()));
        done
    }
}
