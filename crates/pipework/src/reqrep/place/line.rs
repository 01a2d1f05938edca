//! The thread that waits for a slot: in its client's line, or as the one that represents this line
//! towards the other clients.

use std::cell::Cell;
use std::time::Duration;

use super::{Acquired, Sender, Terms};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::event::Wait;
use crate::reqrep::waiters::{Ahead, Place};
use crate::spin::{Looks, Spin};
use crate::sync::Reach;

impl Sender {
    /// Waits for a free slot where other clients wait, too. A slot that is meant for a waiter
    /// before this thread goes there.
    pub(super) fn represent(
        &self,
        place: &Place,
        me: u16,
        terms: Terms,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<Acquired> {
        let (shared, waiters, parks) = (&self.shared, &self.waiters, Cell::new(0));
        let look = || {
            self.liveness.lacks_slot();
            // A watch thread may have met it before.
            self.liveness.meet_failure(op)?;
            self.refuse_without_server(terms, op)?;
            if parks.get() > 1 {
                waiters.took_offer();
            }
            self.count_anew(me);
            match place.ahead() {
                Ahead { waits: false, chosen: 0 } => return Ok(self.acquire(me, Some(&|| deadline))),
                Ahead { chosen, .. } if !waiters.lets_in(chosen) => {}
                Ahead { chosen, .. } if !shared.has_free(chosen) => {}
                Ahead { waits: false, .. } => return Ok(self.acquire(me, Some(&|| deadline))),
                Ahead { .. } => drop(waiters.choose()),
            }
            Ok(None)
        };
        let check = || {
            // The next announcement comes without a wake-up.
            parks.set(0);
            self.full.set(0);
            self.liveness.check(op)
        };
        let wait = self.waiting_for_any(deadline, op);
        let slot = shared.space().wait_parking(&wait, || parks.set(parks.get() + 1), look, check);
        // The wake-up that this thread got may be for another.
        slot.inspect_err(|_| shared.space().notify(Reach::Machine))
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
