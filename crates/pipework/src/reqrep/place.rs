//! How a request gets into the segment: a slot for it, and a cell of the ring for the slot.

use super::client::{Client, Message, Ticket};
use super::segment::count;
use super::slot::{SlotWord, State};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Ordering;

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
        let me = self.inner.membership.present(op)?;
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
        // A server that claims wakes all who wait here, the one whose request it was among them.
        self.shared().cells().wait(&self.waiting(deadline, op), look, || self.check(me, op))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::{Options, Segment};

    const SOON: Duration = Duration::from_secs(20);
    /// Half a slice: who is late by less was woken.
    const AT_ONCE: Duration = Duration::from_millis(25);

    /// A segment of two slots and four cells, which are full: a live call, and three that are over.
    fn full_ring() -> Segment {
        let segment = Options::new().slots(2).members(8).anonymous().expect("a segment");
        let client = segment.client().expect("a place");
        assert!(client.try_send("first").unwrap().is_some());
        while let Some(ticket) = client.try_send("again").unwrap() {
            assert!(client.cancel(ticket).unwrap());
        }
        assert_eq!(segment.len(), 4);
        // It leaves when the segment goes, and keeps the first call.
        std::mem::forget(client);
        segment
    }

    /// The shortest time between an end and its notice, of a few: others use the machine as well.
    fn shortest(end: impl Fn(&Segment) -> Instant) -> Duration {
        let rounds = (0..5).map(|_| {
            let segment = full_ring();
            let client = segment.client().unwrap();
            thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    client.send("last", SOON).unwrap();
                    Instant::now()
                });
                thread::sleep(Duration::from_millis(10));
                assert!(!sending.is_finished(), "the ring is full");
                let ended = end(&segment);
                sending.join().unwrap().saturating_duration_since(ended)
            })
        });
        rounds.min().expect("there are some")
    }

    #[test]
    fn a_claim_wakes_who_waits_for_the_ring() {
        let woken = shortest(|segment| {
            let server = segment.server().unwrap();
            assert_eq!(*server.recv(SOON).unwrap(), *b"first");
            Instant::now()
        });
        assert!(woken < AT_ONCE, "{woken:?}");
    }

    /// Its request goes out through the entry of a call that its slot had before.
    #[test]
    fn who_is_claimed_through_an_older_entry_need_not_wait_for_the_ring() {
        let woken = shortest(|segment| {
            let server = segment.server().unwrap();
            let requests = server.drain(2).unwrap();
            assert_eq!(*requests[0], *b"first");
            let taken = requests.len();
            assert!(taken == 2 || *server.recv(SOON).unwrap() == *b"last");
            Instant::now()
        });
        assert!(woken < AT_ONCE, "{woken:?}");
    }

    #[test]
    fn a_call_that_is_cancelled_wakes_who_waits_for_the_ring() {
        let woken = shortest(|segment| {
            let (_, slot) = segment.0.shared.slots().next().expect("there are two");
            let first = slot.load();
            let client = segment.client().unwrap();
            // As its client would.
            assert!(slot.cancel(first.generation(), first.owner()).is_some());
            client.gave_up(0);
            Instant::now()
        });
        assert!(woken < AT_ONCE, "{woken:?}");
    }
}
