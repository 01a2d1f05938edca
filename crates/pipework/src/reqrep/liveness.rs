//! Looks after all that an end depends on: the file, its own lock, and for a client dead members and calls that go on without them.
//!
//! Invariant: whoever takes the tick does all of the work, for every call of this end, whichever it waits for itself. So a death is noticed
//! by anybody who looks in vain, and it does not matter what else ends that one's waits. Where the work fails, everybody who looks in vain
//! does it again, until it succeeds: so the error is told to all whom it concerns, whoever met it first.

use std::sync::{Arc, Weak};

use super::shm::mapping::{Role, Shared};
use super::shm::member::Membership;
use crate::error::Result;
use crate::event::Tick;
use crate::sync::Hint;

/// One end's knowledge of those that it depends on. Its clones and the threads that look out on its behalf share it.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Not kept alive: in a forked child, the parent's threads are left as they lie, with all that they had.
    membership: Weak<Membership>,
    /// Its latest number.
    number: Arc<Hint>,
    tick: Tick,
    /// For how many ticks more dead clients matter, too: somebody has found no slot.
    lacks_slot: Hint,
    /// 1 once a call was sent that may go to another server.
    redelivers: Hint,
    /// 1 if there was no server at the last tick.
    is_forsaken: Hint,
    /// 1 if the last check has failed.
    has_failed: Hint,
    /// How often a check has failed that came with a tick.
    failures: Hint,
}

/// Whoever waits for a slot says so at least as often as this many ticks can come: once in the longest slice.
const LACKING_TICKS: u64 = 8;

impl Liveness {
    pub(super) fn new(membership: &Arc<Membership>) -> Liveness {
        let no = || Hint::new(0);
        Liveness {
            membership: Arc::downgrade(membership),
            number: Arc::clone(membership.latest()),
            tick: Tick::new(),
            lacks_slot: no(),
            redelivers: no(),
            is_forsaken: no(),
            has_failed: no(),
            failures: no(),
        }
    }

    /// The number under which this end has joined last.
    pub(super) fn number(&self) -> u16 {
        self.number.get() as u16
    }

    /// For waits, whose slices are its own.
    pub(super) fn tick(&self) -> &Tick {
        &self.tick
    }

    /// Somebody has found no slot, and wants one.
    pub(super) fn lacks_slot(&self) {
        self.lacks_slot.set(LACKING_TICKS);
    }

    /// A call is sent that may go to another server.
    pub(super) fn redelivers(&self) {
        self.redelivers.set(1);
    }

    /// Whether there was no server at the last tick.
    pub(super) fn is_forsaken(&self) -> bool {
        self.is_forsaken.get() == 1
    }

    /// There is one after all.
    pub(super) fn has_server(&self) {
        self.is_forsaken.set(0);
    }

    /// For those who have looked in vain: does what is to be done, if it is time. Whether it was.
    pub(super) fn look_after(&self, op: &'static str) -> Result<bool> {
        let due = self.tick.take();
        if due {
            self.check(op)?;
            self.tick.done();
        } else {
            self.meet_failure(op)?;
        }
        Ok(due)
    }

    /// For those who have looked in vain: fails if somebody's check has failed, and still does.
    #[inline]
    pub(super) fn meet_failure(&self, op: &'static str) -> Result<()> {
        if self.has_failed.get() == 0 { Ok(()) } else { self.check_all(op) }
    }

    /// How often a tick has failed: what those who tell others are to tell of.
    pub(super) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// What is to be done with every tick.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.check_all(op).inspect_err(|_| self.failures.set(self.failures.get() + 1))
    }

    #[cold]
    fn check_all(&self, op: &'static str) -> Result<()> {
        // Else its handle is just going, and nobody waits.
        let checked = self.membership.upgrade().map_or(Ok(()), |membership| {
            membership.hold(op)?;
            match membership.role() {
                Role::Client => self.check_others(membership.shared(), membership.number(op)?, op),
                Role::Server => Ok(()),
            }
        });
        self.has_failed.set(u64::from(checked.is_err()));
        checked
    }

    /// Takes back what the dead had, so that their calls end or go to another server, and puts requests into the ring again whose
    /// recoverer died before it could. `me` is the client.
    fn check_others(&self, shared: &Shared, me: u16, op: &'static str) -> Result<()> {
        let lacks_slot = self.lacks_slot.get() > 0;
        self.lacks_slot.set(self.lacks_slot.get().saturating_sub(1));
        let has_server = shared.recover_dead(|role| lacks_slot || role == Role::Server, op)?;
        self.is_forsaken.set(u64::from(!has_server));
        if self.redelivers.get() == 1 {
            shared.enqueue_again(me, op)?;
        }
        Ok(())
    }
}
