//! What comes to a server besides the ring: requests that a thread of its own has put together, and
//! the order to stop.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::shm::naming::Blobs;
use super::shm::payload::Payload;
use super::shm::slot::SlotWord;
use crate::sync::{self, AtomicU64, Flag, Ordering};

/// Shared by the clones of a server and its watch thread.
#[derive(Debug)]
pub(super) struct ServerInbox {
    /// Whether there is anything, so that a look that finds nothing pays for one load.
    news: Flag,
    /// Whether the server is to stop.
    stopped: Flag,
    /// How many threads put requests together.
    gathering: AtomicU64,
    gathered: Mutex<Long>,
}

/// Requests of several parts that no thread of the program waits for.
#[derive(Debug, Default)]
struct Long {
    /// The fork generation: the threads of a parent put together nothing for its child.
    generation: u32,
    /// Those that are whole.
    whole: VecDeque<Gathered>,
    /// Bytes that are set aside for them, and for those that are being put together.
    bytes: u64,
}

/// How many threads put requests together at the same time.
const MAX_THREADS: usize = 1024;

/// How many requests as long as the longest may be in memory without having been taken.
const MAX_LONGEST: u64 = 4;

/// A request of several parts, whole.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) claimed: (u32, SlotWord),
    /// The member that claimed it.
    pub(super) holder: u64,
    pub(super) flags: u32,
    pub(super) payload: Payload,
    pub(super) blobs: Blobs,
}

impl Default for ServerInbox {
    fn default() -> ServerInbox {
        let (news, stopped, gathering) = (Flag::new(), Flag::new(), AtomicU64::new(0));
        ServerInbox { news, stopped, gathering, gathered: Mutex::default() }
    }
}

impl ServerInbox {
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.news.is_set()
    }

    pub(super) fn stop(&self) {
        // Under the lock; otherwise a thread that is leaving `with` could clear `news`.
        self.with(|_| self.stopped.set(true));
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_set()
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

    /// Whether one more thread may put a request together.
    pub(super) fn admits_one(&self) -> bool {
        self.gathering() < MAX_THREADS
    }

    /// Changes what a thread has set aside from `before` to `after` bytes; false, and nothing, if
    /// that is more than there is where a message has up to `max_message` bytes.
    pub(super) fn set_aside(&self, before: u64, after: u64, max_message: u64) -> bool {
        self.with(|long| {
            let bytes = long.bytes.saturating_sub(before).saturating_add(after);
            let fits = after <= before || bytes <= max_message.saturating_mul(MAX_LONGEST);
            if fits {
                long.bytes = bytes;
            }
            fits
        })
    }

    /// Its bytes were set aside.
    pub(super) fn push(&self, request: Gathered) {
        self.with(|long| long.whole.push_back(request));
    }

    pub(super) fn pop(&self) -> Option<Gathered> {
        self.with(|long| {
            let gathered = long.whole.pop_front()?;
            long.bytes = long.bytes.saturating_sub(gathered.payload.len() as u64);
            Some(gathered)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Long) -> T) -> T {
        // No fork in here, or a child could inherit a lock that no thread of it can release.
        let _forks_wait = sync::no_forks();
        let mut long = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if long.generation != sync::generation() {
            let whole = long.whole.iter().map(|gathered| gathered.payload.len() as u64).sum();
            (long.generation, long.bytes) = (sync::generation(), whole);
        }
        let done = act(&mut long);
        self.news.set(!long.whole.is_empty() || self.is_stopped());
        done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_1024_threads_put_requests_together() {
        let inbox = ServerInbox::default();
        inbox.is_gathering(MAX_THREADS as i64 - 1);
        assert!(inbox.admits_one());
        inbox.is_gathering(1);
        assert!(!inbox.admits_one() && MAX_THREADS == 1024);
        inbox.is_gathering(-1);
        assert!(inbox.admits_one());
    }
}
