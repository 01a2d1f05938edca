//! How a request gets into the segment: a slot for it, and a cell of the ring for the slot.

use super::client::{Client, Message, Ticket};
use super::segment::count;
use super::slot::{SlotWord, State};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Ordering, Reach};

impl Client {
    /// Puts a request into a slot and the slot into the ring; without a deadline only if that is possible now.
    #[inline]
    pub(super) fn place(
        &self,
        request: &Message<'_>,
        deadline: impl Into<Option<Deadline>>,
        op: &'static str,
    ) -> Result<Option<Ticket>> {
        let (shared, deadline) = (self.shared(), deadline.into());
        if request.payload.len() > shared.geometry().request_bytes as usize {
            return Err(Error::new(ErrorKind::TooLong, op));
        }
        let me = self.inner.membership.number(op)?;
        if self.needs_server && !shared.has_server(op)? {
            return Err(Error::new(ErrorKind::NoServer, op));
        }
        let (idx, filled) = match self.acquire(me) {
            Some(slot) => slot,
            None => {
                count(&self.inner.membership.member(me).counters.0.full);
                match self.acquire_waiting(me, deadline, op)? {
                    Some(slot) => slot,
                    None => return Ok(None),
                }
            }
        };
        let slot = shared.slot(idx).ok_or(Error::new(ErrorKind::Corrupt, op))?;
        if let Err(error) = shared.put_request(idx, request.payload, op) {
            slot.step(filled, filled.freed());
            self.gave_back(idx);
            return Err(error);
        }
        if self.redeliveries > 0 {
            self.inner.liveness.redelivers();
        }
        // Relaxed: the swap publishes them.
        slot.client.store(u32::from(me), Ordering::Relaxed);
        slot.redeliveries.store(u32::from(self.redeliveries), Ordering::Relaxed);
        slot.request_len.store(request.payload.len() as u32, Ordering::Relaxed);
        slot.request_flags.store(request.flags, Ordering::Relaxed);
        let Some(sent) = slot.send(filled) else { return Err(Error::new(ErrorKind::Corrupt, op)) };
        let ticket = Ticket::new(idx, sent);
        let queued = match shared.enqueue(idx, op) {
            Ok(false) => self.queue_waiting(ticket, deadline, op),
            done => done,
        };
        // If it cannot be taken back, an older entry of the slot has led a server to it: then it is sent.
        if queued == Ok(true) || !slot.step(sent, sent.freed()) {
            return Ok(Some(ticket));
        }
        self.gave_back(idx);
        queued.map(|_| None)
    }

    #[inline]
    fn acquire(&self, me: u16) -> Option<(u32, SlotWord)> {
        let slots = self.shared().geometry().slots;
        let mut idx = self.inner.likely.get() as u32;
        for _ in 0..slots {
            if idx >= slots {
                idx = 0;
            }
            if let Some(filled) = self.shared().slot(idx)?.acquire(me) {
                // The next one is likelier to be free than this one, until this one is given back.
                self.inner.likely.set(u64::from(idx) + 1);
                return Some((idx, filled));
            }
            idx += 1;
        }
        None
    }

    /// There is no slot: maybe the dead have some; maybe one comes free.
    fn acquire_waiting(
        &self,
        me: u16,
        deadline: Option<Deadline>,
        op: &'static str,
    ) -> Result<Option<(u32, SlotWord)>> {
        let shared = self.shared();
        self.inner.liveness.lacks_slot();
        if self.look_after_others(op)?
            && let Some(slot) = self.acquire(me)
        {
            return Ok(Some(slot));
        }
        let Some(deadline) = deadline else { return Ok(None) };
        let look = || {
            self.inner.liveness.lacks_slot();
            self.refuse_without_server(op).map(|()| self.acquire(me))
        };
        shared.room().wait(&self.waiting(deadline, op), look, || self.check(me, op)).map(Some)
    }

    /// The ring is full of calls that are over: waits until a server has thrown them out. True once the request is on its way.
    fn queue_waiting(&self, ticket: Ticket, deadline: Option<Deadline>, op: &'static str) -> Result<bool> {
        let Some(deadline) = deadline else { return Ok(false) };
        let (me, slot) = (self.inner.membership.number(op)?, self.slot(ticket, op)?);
        let look = || {
            let waits =
                slot.load().state() == Some(State::Sent) && slot.load().generation() == ticket.generation();
            Ok((!waits || self.shared().enqueue(ticket.idx(), op)?).then_some(true))
        };
        let wait = self.waiting(deadline, op);
        let queued = self.shared().room().wait(&wait, look, || self.check(me, op));
        // The wake-up may have been meant for somebody who waits for a slot.
        self.shared().room().notify(Reach::Machine);
        queued
    }
}
