//! The thread that waits for a slot: in its client's line, or as the one that represents this line
//! towards the other clients.
//!
//! Invariant: a thread that parks at `space` can use the next slot that comes free, or choose a
//! waiter for it. A thread that learns there that it cannot leaves, and wakes another: once, since
//! it parks elsewhere then. So a wake-up goes from one to the next until it is used, and never
//! back.

use std::cell::Cell;
use std::time::Duration;

use super::{Acquired, Sender, Terms};
use crate::deadline::Deadline;
use crate::error::{ErrorKind, Result};
use crate::event::Wait;
use crate::reqrep::waiters::{Ahead, GRACE, Place};
use crate::spin::{Looks, Spin};
use crate::sync::Reach;

impl Sender {
    /// Waits for a free slot where other clients wait, too; while the limit stops this client, for
    /// the end of one of its calls. A slot that is meant for a waiter before this thread goes
    /// there. `None` if this thread may represent the line no more, or is to begin anew.
    pub(super) fn represent(
        &self,
        place: &Place,
        me: u16,
        terms: Terms,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<Option<Acquired>> {
        let (shared, waiters, parks) = (&self.shared, &self.waiters, Cell::new(0));
        let meet = || {
            self.liveness.lacks_slot();
            // A watch thread may have met it before.
            self.liveness.meet_failure(op)?;
            self.refuse_without_server(terms, op)?;
            self.count_anew(me);
            Ok(())
        };
        let check = || {
            // The next announcement comes without a wake-up.
            parks.set(0);
            self.full.set(0);
            self.liveness.check(op)
        };
        let wait = self.waiting_for_any(deadline, op);
        if waiters.is_limited() {
            let is_due = || waiters.lets_in(place.ahead().chosen) || !place.is_representative();
            waiters.ends().wait(&wait, || meet().map(|()| is_due().then_some(())), check)?;
        }
        // A slot that was offered to others is left to them for a moment. It may be one that they
        // have freed again, which nobody says then.
        let is_left = || waiters.must_leave_one() && shared.has_free(0) && !shared.has_free(1);
        if is_left() {
            let moment = Wait { deadline: deadline.capped(GRACE), ..self.waiting_for_any(deadline, op) };
            let over = || meet().map(|()| (!is_left()).then_some(()));
            match waiters.ends().wait(&moment, over, check) {
                Err(error) if error.kind() == ErrorKind::TimedOut && !deadline.has_passed() => {}
                ended => ended?,
            }
        }
        let look = || {
            meet()?;
            if parks.get() > 1 {
                waiters.took_offer();
            }
            let mut ahead = place.ahead();
            if ahead.chosen > 0 && shared.has_free(0) && !shared.has_free(ahead.chosen) {
                ahead = place.leave_to_chosen();
            }
            let slot = loop {
                break match ahead {
                    Ahead { waits: false, chosen: 0 } => self.acquire(me, Some(&|| deadline)),
                    Ahead { chosen, .. } if !waiters.lets_in(chosen) || !shared.has_free(chosen) => None,
                    // Before it stand tasks, which hold no slot while the ring is full. It does.
                    Ahead { waits: true, .. } if !shared.is_ring_full() => {
                        if waiters.choose() {
                            // There may be slots for others, too.
                            ahead = place.ahead();
                            continue;
                        }
                        None
                    }
                    Ahead { .. } => self.acquire(me, Some(&|| deadline)),
                };
            };
            let stays = place.is_representative() && waiters.lets_in(ahead.chosen) && !is_left();
            Ok((slot.is_some() || !stays).then_some(slot))
        };
        let slot = shared.space().wait_parking(&wait, || parks.set(parks.get() + 1), look, check);
        if !matches!(slot, Ok(Some(_))) {
            // The wake-up that this thread got may be for another.
            shared.space().notify(Reach::Machine);
        }
        slot
    }

    /// Waits until a slot is meant for this place, or it is to represent the line. The wait is
    /// inside one process, where no thread dies alone; but a server may, and whoever needs one asks
    /// for itself: those before it may not need any.
    pub(super) fn wait_in_line(
        &self,
        place: &Place,
        terms: Terms,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<()> {
        let Some(event) = place.event() else { return Ok(()) };
        let spin = Spin::new(Duration::ZERO, Looks::Load);
        let tick = terms.needs_server.then(|| self.liveness.tick());
        let wait = Wait { deadline, spin: &spin, reach: Reach::Process, tick, op };
        let look = || {
            if place.may_look() || place.is_representative() {
                return Ok(Some(()));
            }
            self.refuse_without_server(terms, op)?;
            Ok(None)
        };
        let check = || {
            // The representative misses the ticks that are taken here.
            self.full.set(0);
            self.liveness.check(op)
        };
        event.wait(&wait, look, check)
    }
}
