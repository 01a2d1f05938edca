//! The parts of replies that have arrived so far.
//!
//! Invariant: the parts stay here until their call has ended, so a wait that ends early loses
//! nothing; and one thread at a time adds to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::shm::naming::Blobs;
use super::shm::ticket::Ticket;
use crate::sync::{self, Hint};

/// The replies of one client, by ticket.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The number of replies, so that calls of one part cost one load.
    len: Hint,
    table: Mutex<Table>,
}

type Table = HashMap<Ticket, Arrival, foldhash::fast::RandomState>;

/// The parts of one reply so far. The thread that holds the lock receives more of them.
pub(super) type Arrival = Arc<Mutex<Arrived>>;

/// The bytes and the blobs of the parts that have come.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) bytes: Vec<u8>,
    pub(super) blobs: Blobs,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals { len: Hint::new(0), table: Mutex::default() }
    }

    /// The parts of a call so far. A new call makes this drop the parts of calls that have ended.
    pub(super) fn of(&self, ticket: Ticket, is_over: impl Fn(Ticket) -> bool) -> Arrival {
        self.with(|table| {
            if !table.contains_key(&ticket) {
                table.retain(|ticket, _| !is_over(*ticket));
            }
            Arc::clone(table.entry(ticket).or_default())
        })
    }

    /// Called when a call has ended.
    pub(super) fn forget(&self, ticket: Ticket) {
        if self.len.get() > 0 {
            // Dropped outside of the lock.
            let arrived = self.with(|table| table.remove(&ticket));
            drop(arrived);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        // No fork while this is held, or a child could inherit a lock that no thread of it can
        // release.
        let _forks_wait = sync::no_forks();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut table);
        self.len.set(table.len() as u64);
        done
    }
}
