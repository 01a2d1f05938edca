//! Checks everything that an end depends on: the file, its own lock, and the members whose deaths
//! matter to it.
//!
//! Invariant: the thread that takes the tick does all of the work, for every wait of this end,
//! whatever it waits for itself. So any thread that polls without success notices a death, even if
//! each of its waits ends early. If the work fails, every thread that polls without success repeats
//! it until it succeeds. So every affected thread gets the error, whichever thread got it first.

use std::fmt;
use std::sync::Arc;

use super::deaths;
use super::member::{Attached, Membership};
use super::recovery::Recover;
use crate::clock;
use crate::defaults::SLICE;
use crate::error::Result;
use crate::event::{FIRST_SLICE, Tick};
use crate::sync::{Flag, Hint};

/// What an end needs of other members.
pub(crate) trait Needs: Recover {
    /// What one end knows of the members that it depends on.
    type Known: Default + fmt::Debug + Send + Sync;

    /// Whether the end waits for a step of others.
    fn waits(known: &Self::Known) -> bool;

    /// Recovers the dead members that matter to the end. Returns false if there is more to recover.
    fn recover_needed(known: &Self::Known, me: &Membership<Self>, op: &'static str) -> Result<bool>;
}

/// What one end knows of the members that it depends on. Its clones and its watch threads share it.
#[derive(Debug)]
pub(crate) struct Liveness<C: Needs> {
    /// Not [`Attached`], which leaves when it is dropped: a forked child neither uses nor drops its
    /// parent's threads and their state.
    membership: Arc<Membership<C>>,
    tick: Tick,
    /// Whether this process [listens](deaths) for deaths in the name of this member.
    listens: Flag,
    /// Until when two other processes are believed to listen, in nanoseconds of the clock.
    others_listen_until_ns: Hint,
    pub(crate) known: C::Known,
    /// Whether the last check has failed.
    has_failed: Flag,
    /// How many checks at a tick have failed.
    failures: Hint,
}

/// For so many ticks a thread's wait counts. At most this many ticks come in the longest slice, and the
/// thread reports its wait at least once in each slice.
pub(crate) const WAITING_TICKS: u64 = 8;
const _: () = assert!(SLICE.as_millis() < WAITING_TICKS as u128 * FIRST_SLICE.as_millis());

/// How long two other processes are believed to listen: asking for their locks takes longer the more
/// members there are.
const OTHERS_LISTEN_NS: u64 = 2_000_000_000;

impl<C: Needs> Liveness<C> {
    pub(crate) fn new(attached: &Attached<C>) -> Liveness<C> {
        Liveness {
            membership: Arc::clone(attached.membership()),
            tick: Tick::new(),
            listens: Flag::new(),
            others_listen_until_ns: Hint::new(0),
            known: C::Known::default(),
            has_failed: Flag::new(),
            failures: Hint::new(0),
        }
    }

    /// The number under which this end has joined last.
    pub(crate) fn number(&self) -> u16 {
        self.membership.latest()
    }

    /// The tick for waits, which have their own slices.
    pub(crate) fn tick(&self) -> &Tick {
        &self.tick
    }

    /// Called after a poll without success: does the check if it is due. Returns whether it was due.
    /// `words` are those that the thread has polled.
    pub(crate) fn look_after(&self, words: impl IntoIterator<Item = u32>, op: &'static str) -> Result<bool> {
        let due = self.tick.take();
        if due {
            self.check(words, op)?;
            self.tick.done();
        } else {
            self.meet_failure(op)?;
        }
        Ok(due)
    }

    /// Called after a poll without success: fails if another thread's check has failed, and fails
    /// again here.
    #[inline]
    pub(crate) fn meet_failure(&self, op: &'static str) -> Result<()> {
        if self.has_failed.is_set() { self.check_all(None, op) } else { Ok(()) }
    }

    /// How many checks have failed. Watch threads report a change of it.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// The work of every tick. The `words` for which the thread waits are recovered from dead members
    /// first.
    pub(crate) fn check(&self, words: impl IntoIterator<Item = u32>, op: &'static str) -> Result<()> {
        let mut words = words.into_iter().peekable();
        // The first look follows, so a death is either found by it or reported after it.
        let depends = words.peek().is_some() || C::waits(&self.known);
        let now_ns = clock::monotonic_ns() as u64;
        if depends && self.others_listen_until_ns.get() <= now_ns {
            match deaths::listen(&self.membership) {
                deaths::Listening::Begun => self.listens.set(true),
                deaths::Listening::Others => self.others_listen_until_ns.set(now_ns + OTHERS_LISTEN_NS),
                deaths::Listening::Not => {}
            }
        }
        self.check_all(words, op).inspect_err(|_| self.failures.set(self.failures.get() + 1))
    }

    #[cold]
    fn check_all(&self, words: impl IntoIterator<Item = u32>, op: &'static str) -> Result<()> {
        let membership = &self.membership;
        let look = || {
            membership.hold(op)?;
            let words_are_done = membership.shared().recover_words(words, self.number(), op)?;
            let others_are_done = C::recover_needed(&self.known, membership, op)?;
            self.tick.has_more(!words_are_done || !others_are_done);
            Ok(())
        };
        // While its handle is being dropped, nothing waits.
        let checked = look().or_else(|error| if membership.has_left() { Ok(()) } else { Err(error) });
        self.has_failed.set(checked.is_err());
        checked
    }
}

impl<C: Needs> Drop for Liveness<C> {
    fn drop(&mut self) {
        if self.listens.is_set() {
            deaths::forget(&self.membership);
        }
    }
}
