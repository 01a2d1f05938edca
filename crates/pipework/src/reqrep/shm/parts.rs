//! Replies that come in parts: the slot holds one part, and the two sides take turns.
//!
//! Invariant: a side accesses the reply only in its turn. The bytes that the client has copied out
//! count only after its own swap has passed the turn on.

use super::layout::Direction;
use super::mapping::Shared;
use super::naming::{Blobs, NamedBlobs};
use super::payload::{Message, Payload};
use super::slot::{Holding, Mark, SlotWord};
use crate::error::{Error, ErrorKind, Result};

/// Steps of the server that claimed `taken`, in its turn.
impl Shared {
    /// Step 16: gives the client a part of the reply. False if the client no longer waits, or the
    /// request is no longer this server's.
    pub(crate) fn give_part(
        &self,
        (idx, taken): (u32, SlotWord),
        part: &Message<'_>,
        op: &'static str,
    ) -> Result<bool> {
        let naming = self.write(idx, Direction::Reply, part, op)?;
        // Another server may have the request by now: then the fields are that server's.
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else {
            return Ok(false);
        };
        slot.set_holder(taken.owner(), Mark::Whole, naming.named());
        let client = slot.caller().client;
        let passed = slot.pass_to_client(taken);
        if let Some(before) = passed {
            naming.publish();
            self.tell_client(slot, before.has_waiter(), client);
        }
        Ok(passed.is_some())
    }

    /// Writes the reason of a failure for the client, cut to the space in the slot. In the client's
    /// turn it writes none.
    pub(crate) fn write_reason(&self, (idx, taken): (u32, SlotWord), reason: &Message<'_>) {
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else { return };
        let reason = reason.cut(self.geometry().bytes(Direction::Reply));
        let is_said = !reason.payload.is_empty();
        // If there is no page for the reason, the call fails without it.
        let is_written = is_said && self.write(idx, Direction::Reply, &reason, "reqrep fail").is_ok();
        let mark = if is_written { Mark::Reason } else { Mark::Whole };
        slot.set_holder(taken.owner(), mark, NamedBlobs::default());
    }
}

/// Steps of the client of a call, in its turn.
impl Shared {
    /// Step 17: takes the part that has come; returns its flags. `None` if the call was ended
    /// meanwhile: then the bytes that were read mean nothing.
    pub(crate) fn take_part(
        &self,
        idx: u32,
        part: SlotWord,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some(slot) = self.slot(idx) else { return Ok(None) };
        let received = self.read(idx, Direction::Reply, (payload, blobs), max, op);
        let received = received.and_then(|flags| flags.ok_or(Error::new(ErrorKind::Corrupt, op)));
        let flags = match received {
            // Another thread has cancelled the call, so the bytes that were read belong to another
            // call.
            Err(_) if !slot.is_still(part) => return Ok(None),
            received => received?,
        };
        let server = slot.fields().server;
        let other_threads_wait = self.parts.lock();
        let passed = slot.pass_to_server(part, &self.leaving(idx));
        drop(other_threads_wait);
        if passed {
            self.ring_server(server);
        }
        Ok(passed.then_some(flags))
    }
}
