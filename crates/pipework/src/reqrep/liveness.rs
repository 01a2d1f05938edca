//! Checks everything that an end depends on: the file, its own lock, and for a client also dead
//! members and calls that end without them.
//!
//! Invariant: the thread that takes the tick does all of the work, for every call of this end,
//! whichever call it waits for itself. So any thread that polls without success notices a death,
//! even if each of its waits ends early. If the work fails, every thread that polls without success
//! repeats it until it succeeds. So every affected thread gets the error, whichever thread got it
//! first.

use std::sync::Arc;

use super::deaths;
use super::shm::mapping::{Role, Shared};
use super::shm::member::{Attached, Membership};
use super::shm::recovery::Looked;
use crate::clock;
use crate::defaults::SLICE;
use crate::error::Result;
use crate::event::{FIRST_SLICE, Tick};
use crate::sync::{Flag, Hint, Ordering};

/// What one end knows of the members that it depends on. Its clones and its watch threads share it.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Not [`Attached`], which leaves when it is dropped: a forked child neither uses nor drops its
    /// parent's threads and their state.
    membership: Arc<Membership>,
    tick: Tick,
    /// Whether this process [listens](deaths) for deaths in the name of this member.
    listens: Flag,
    /// Until when two other processes are believed to listen, in nanoseconds of the clock.
    others_listen_until_ns: Hint,
    /// For how many more ticks dead clients matter as well, because a thread has found no slot.
    lacks_slot: Hint,
    /// For how many more ticks dead clients matter to a server, because a thread has waited for
    /// one.
    awaits_client: Hint,
    /// Whether there was no server at the last tick.
    has_no_server: Flag,
    /// Until when the last seen server is believed to be attached, in nanoseconds of the clock.
    has_server_until_ns: Hint,
    /// Whether the last check has failed.
    has_failed: Flag,
    /// How many checks at a tick have failed.
    failures: Hint,
}

/// At most this many ticks come in the longest slice, and a thread that waits for a slot reports
/// that at least once in each slice.
const LACKING_TICKS: u64 = 8;
const _: () = assert!(SLICE.as_millis() < LACKING_TICKS as u128 * FIRST_SLICE.as_millis());

/// How long two other processes are believed to listen: asking for their locks takes longer the more
/// members there are.
const OTHERS_LISTEN_NS: u64 = 2_000_000_000;

impl Liveness {
    pub(super) fn new(attached: &Attached) -> Liveness {
        let no = || Hint::new(0);
        Liveness {
            membership: Arc::clone(attached.membership()),
            tick: Tick::new(),
            listens: Flag::new(),
            others_listen_until_ns: no(),
            lacks_slot: no(),
            awaits_client: no(),
            has_no_server: Flag::new(),
            has_server_until_ns: no(),
            has_failed: Flag::new(),
            failures: no(),
        }
    }

    /// The number under which this end has joined last.
    pub(super) fn number(&self) -> u16 {
        self.membership.latest()
    }

    /// The tick for waits, which have their own slices.
    pub(super) fn tick(&self) -> &Tick {
        &self.tick
    }

    /// Records that a thread wants a slot and has found none.
    pub(super) fn lacks_slot(&self) {
        self.lacks_slot.set(LACKING_TICKS);
    }

    /// Records that a thread of a server waits for the next step of a client.
    pub(super) fn awaits_client(&self) {
        self.awaits_client.set(LACKING_TICKS);
    }

    /// Whether there was no server at the last tick.
    pub(super) fn has_no_server(&self) -> bool {
        self.has_no_server.is_set()
    }

    /// Whether a server is attached and alive, or was at the last question, which counts for the
    /// time between two ticks: asking the kernel takes longer than a call. If the server leaves
    /// meanwhile, the wait for the reply notices it.
    pub(super) fn sees_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let now_ns = clock::monotonic_ns() as u64;
        if now_ns < self.has_server_until_ns.get() && !self.has_no_server() {
            return Ok(true);
        }
        let sees_one = shared.has_server(op)?;
        if sees_one {
            self.has_server_until_ns.set(now_ns + FIRST_SLICE.as_nanos() as u64);
            self.has_no_server.set(false);
        }
        Ok(sees_one)
    }

    /// Called after a poll without success: does the check if it is due. Returns whether it was
    /// due.
    pub(super) fn look_after(&self, op: &'static str) -> Result<bool> {
        self.look_after_calls(None, op)
    }

    /// The same for a thread that has polled a call.
    pub(super) fn look_after_calls(
        &self,
        slots: impl IntoIterator<Item = u32>,
        op: &'static str,
    ) -> Result<bool> {
        let due = self.tick.take();
        if due {
            self.check_calls(slots, op)?;
            self.tick.done();
        } else {
            self.meet_failure(op)?;
        }
        Ok(due)
    }

    /// Called after a poll without success: fails if another thread's check has failed, and fails
    /// again here.
    #[inline]
    pub(super) fn meet_failure(&self, op: &'static str) -> Result<()> {
        if self.has_failed.is_set() { self.check_all(None, op) } else { Ok(()) }
    }

    /// How many checks have failed. Watch threads report a change of it.
    pub(super) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// The work of every tick.
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.check_calls(None, op)
    }

    /// The same for a thread that waits for the calls in these slots: the slots are recovered from
    /// dead members first.
    pub(super) fn check_calls(&self, slots: impl IntoIterator<Item = u32>, op: &'static str) -> Result<()> {
        let mut slots = slots.into_iter().peekable();
        // A server that waits for a request depends on no member: clients send requests again. The
        // first look follows, so a death is either found by it or reported after it.
        let depends = slots.peek().is_some() || self.lacks_slot.get() > 0 || self.awaits_client.get() > 0;
        let now_ns = clock::monotonic_ns() as u64;
        if depends && self.others_listen_until_ns.get() <= now_ns {
            match deaths::listen(&self.membership) {
                deaths::Listening::Begun => self.listens.set(true),
                deaths::Listening::Others => self.others_listen_until_ns.set(now_ns + OTHERS_LISTEN_NS),
                deaths::Listening::Not => {}
            }
        }
        self.check_all(slots, op).inspect_err(|_| self.failures.set(self.failures.get() + 1))
    }

    #[cold]
    fn check_all(&self, slots: impl IntoIterator<Item = u32>, op: &'static str) -> Result<()> {
        let membership = &self.membership;
        let shared = membership.shared();
        let look = || {
            membership.hold(op)?;
            let calls_are_done = shared.recover_calls(slots, self.number(), op)?;
            let others_are_done = match membership.role() {
                Role::Client => self.check_as_client(shared, op)?,
                Role::Server => {
                    membership.push_owed_requests(op)?;
                    self.check_as_server(shared, op)?
                }
            };
            self.tick.has_more(!calls_are_done || !others_are_done);
            Ok(())
        };
        // While its handle is being dropped, no call waits.
        let checked = look().or_else(|error| if membership.has_left() { Ok(()) } else { Err(error) });
        self.has_failed.set(checked.is_err());
        checked
    }

    /// Recovers what dead servers held, so that their calls end or go to another server. Returns
    /// false if there is more to recover.
    fn check_as_client(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let lacks_slot = self.lacks_slot.get() > 0;
        self.lacks_slot.set(self.lacks_slot.get().saturating_sub(1));
        let Looked { has_server, is_done } =
            shared.recover_dead(|role| lacks_slot || role == Role::Server, op)?;
        self.has_no_server.set(!has_server);
        Ok(is_done)
    }

    /// Ends the calls of dead clients, if a thread waits for a client. If a request was forgotten,
    /// recovers all dead members: the request may have no client that would do it, or that pushes
    /// it. Returns false if there is more to recover.
    fn check_as_server(&self, shared: &Shared, op: &'static str) -> Result<bool> {
        let awaits_client = self.awaits_client.get() > 0;
        let is_forgotten = shared.forgotten().load(Ordering::Relaxed) != 0;
        if !awaits_client && !is_forgotten {
            return Ok(true);
        }
        self.awaits_client.set(self.awaits_client.get().saturating_sub(1));
        let matters = |role| match role {
            Role::Client => awaits_client || is_forgotten,
            Role::Server => is_forgotten,
        };
        Ok(shared.recover_dead(matters, op)?.is_done)
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        if self.listens.is_set() {
            deaths::forget(&self.membership);
        }
    }
}
