//! Replies that come in parts, and what is done step by step.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{MutexGuard, PoisonError, TryLockError};

use super::arrivals::{Arrival, Arrived};
use super::client::{Client, may_be_open};
use super::reply::{Answer, Reply};
use super::shm::call::Standing;
use super::shm::layout::Direction;
use super::shm::mapping::Shared;
use super::shm::parts::Taken;
use super::shm::slot::{SlotWord, State};
use super::shm::ticket::Ticket;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};

/// One step of what takes several: `None` as long as the other side is to make its own, `Break`
/// with what came of the last.
pub(super) type Step<T> = Option<ControlFlow<T>>;

/// Makes the steps that can be made now; not too many, or a server that makes its own as quickly
/// would keep an event loop busy.
pub(super) fn make_steps<T>(mut step: impl FnMut() -> Result<Step<T>>) -> Result<Option<T>> {
    const AT_ONCE: u32 = 64;
    for _ in 0..AT_ONCE {
        match step()? {
            None => break,
            Some(Continue(())) => {}
            Some(Break(done)) => return Ok(Some(done)),
        }
    }
    Ok(None)
}

impl Client {
    /// Waits for one step after the other. Each is a wait of its own: one spin would not do for all
    /// parts of a long message, and the rest of them would be parked for. Where each is there at
    /// once, no wait notices the deadline.
    pub(super) fn wait_for_steps<T>(
        &self,
        ticket: Ticket,
        deadline: Deadline,
        op: &'static str,
        mut step: impl FnMut() -> Result<Step<T>>,
    ) -> Result<T> {
        loop {
            match self.wait_until(ticket, &|| deadline, op, &mut step)? {
                Break(done) => return Ok(done),
                Continue(()) if deadline.has_passed() => return Err(Error::new(ErrorKind::TimedOut, op)),
                Continue(()) => {}
            }
        }
    }

    pub(super) fn arrival(&self, ticket: Ticket) -> Arrival {
        let me = self.sender().liveness().number();
        self.inner.arrivals.of(ticket, |ticket| self.shared().standing(ticket, me) == Standing::Over)
    }

    /// Receives all parts of a reply, as they come.
    #[cold]
    pub(super) fn gather_all(&self, ticket: Ticket, deadline: Deadline, op: &'static str) -> Answer {
        let arrival = self.arrival(ticket);
        self.wait_for_steps(ticket, deadline, op, || self.gather_part(&arrival, ticket, op))?
    }

    #[cold]
    pub(super) fn gather(&self, ticket: Ticket, op: &'static str) -> Answer<Option<Reply>> {
        let arrival = self.arrival(ticket);
        make_steps(|| self.gather_part(&arrival, ticket, op))?.transpose()
    }

    /// Takes the parts that have come of this client's other calls, which are kept until they are
    /// received; whether there were any. Those that only one thread waits for are that thread's.
    #[cold]
    pub(super) fn take_parts_of_others(&self, ticket: Ticket, op: &'static str) -> bool {
        if !self.has_sent() {
            return false;
        }
        let Ok(me) = self.sender().present(op) else { return false };
        let others = self.shared().calls_of(me).filter(|other| *other != ticket && self.has_ticket(*other));
        let take = |other: Ticket| -> Option<()> {
            let part = self.shared().slot(other.idx())?.load();
            let is_part = part.state() == Some(State::Part) && part.generation() == other.generation();
            let arrival = is_part.then(|| self.arrival(other))?;
            let mut arrived = arrival.try_lock().ok()?;
            // What cannot be taken is for the thread that receives it, which gets the error.
            self.admit(other, arrived.bytes.len(), op).ok()?;
            let taken = self.shared().take_part(other.idx(), part, &mut arrived.bytes, op).ok()??;
            arrived.blobs.append(taken.blobs);
            Some(())
        };
        others.filter_map(take).count() > 0
    }

    /// Takes the part that is there; the last one makes the reply.
    fn gather_part(&self, arrival: &Arrival, ticket: Ticket, op: &'static str) -> Result<Step<Answer>> {
        let mut arrived: MutexGuard<'_, Arrived> = match arrival.try_lock() {
            Ok(arrived) => arrived,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread of this client is at it.
            Err(TryLockError::WouldBlock) => match self.poll(ticket, op)? {
                // It has taken the part before the last, and only has to let go: nobody waits
                // while he has the lock. Without a deadline left, this is the only look.
                Some(done) if done.state() != Some(State::Part) => {
                    arrival.lock().unwrap_or_else(PoisonError::into_inner)
                }
                _ => return Ok(None),
            },
        };
        let taken = match self.poll(ticket, op) {
            Ok(None) => return Ok(None),
            Ok(Some(word)) if word.state() == Some(State::Part) => {
                self.take_part(ticket, word, &mut arrived.bytes, op).map(|taken| {
                    if let Some(taken) = taken {
                        arrived.blobs.append(taken.blobs);
                    }
                    Continue(())
                })
            }
            Ok(Some(done)) => Ok(Break(self.take_last(ticket, done, &mut arrived, op))),
            Err(error) if may_be_open(error.kind()) => return Err(error),
            Err(error) => Err(error),
        };
        if !matches!(taken, Ok(Continue(()))) {
            self.inner.arrivals.forget(ticket);
        }
        taken.map(Some)
    }

    /// Takes a part and appends it; `None` if the call was ended meanwhile. A call whose part
    /// cannot be taken is cancelled.
    pub(super) fn take_part(
        &self,
        ticket: Ticket,
        part: SlotWord,
        bytes: &mut Vec<u8>,
        op: &'static str,
    ) -> Result<Option<Taken>> {
        let admitted = self.admit(ticket, bytes.len(), op);
        let taken = admitted.and_then(|()| self.shared().take_part(ticket.idx(), part, bytes, op));
        // Stale means that it has ended already.
        taken.inspect_err(|_| _ = self.cancel_if_open(ticket))
    }

    /// Appends the last part of a reply, which is all of it if there was none before, and frees the
    /// slot.
    pub(super) fn take_last(
        &self,
        ticket: Ticket,
        done: SlotWord,
        arrived: &mut Arrived,
        op: &'static str,
    ) -> Answer {
        if done.state() != Some(State::Answered) {
            return self.take_out(ticket, done, done, op);
        }
        let Arrived { bytes, blobs } = arrived;
        let admitted = self.admit(ticket, bytes.len(), op);
        let append = |shared: &Shared| {
            admitted?;
            let flags = shared.append(ticket.idx(), Direction::Reply, bytes, op)?;
            shared.add_named_blobs(ticket.idx(), Direction::Reply, blobs, op)?;
            Ok(flags)
        };
        let flags = self.copy_and_free(ticket, done, append, op)?;
        let Arrived { bytes, blobs } = std::mem::take(arrived);
        Ok(Reply { blobs, ..Reply::from_vec(bytes, flags) })
    }

    /// Fails with `TooLong` if the part that is there makes the reply longer than it may be.
    fn admit(&self, ticket: Ticket, arrived: usize, op: &'static str) -> Result<()> {
        let is_short = arrived.saturating_add(self.reply_len(ticket)) <= self.inner.max_message;
        if is_short { Ok(()) } else { Err(Error::new(ErrorKind::TooLong, op)) }
    }
}
