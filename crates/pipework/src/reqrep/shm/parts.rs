//! Calls that go in parts: a slot holds one part each way, and the two sides take turns.
//!
//! Invariant: a side touches the payloads only while it is its turn, and what it has copied out
//! counts only once its own swap has passed the turn on.

use super::layout::Direction;
use super::mapping::Shared;
use super::naming::{Blobs, NamedBlobs, Naming};
use super::payload::Message;
use super::slot::{Holding, Mark, SlotWord, State};
use crate::error::{Error, ErrorKind, Result};

/// A part of a reply that a client has taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) flags: u32,
    pub(crate) blobs: Blobs,
    /// The next part of the reply continues this one.
    pub(crate) continues: bool,
}

/// What has to go in parts, and what cannot.
impl Shared {
    /// Whether one part is enough for a message.
    #[inline]
    pub(crate) fn fits(&self, direction: Direction, message: &Message<'_>) -> bool {
        message.payload.len() <= self.geometry().bytes(direction)
    }

    /// Fails with `TooLong` if a message that is longer than a slot is longer than `max` as well,
    /// or no number of parts is enough for it, since slots hold no byte.
    pub(crate) fn admit(
        &self,
        direction: Direction,
        message: &Message<'_>,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        let can_follow = self.geometry().bytes(direction) > 0;
        let is_admitted = self.fits(direction, message) || can_follow && message.payload.len() <= max;
        if is_admitted { Ok(()) } else { Err(Error::new(ErrorKind::TooLong, op)) }
    }

    /// What one part takes of a message, and the rest.
    pub(crate) fn split<'m>(
        &self,
        direction: Direction,
        message: &Message<'m>,
    ) -> (Message<'m>, Message<'m>) {
        message.split(self.geometry().bytes(direction))
    }
}

/// For the server that claimed `taken`, when it is its turn.
impl Shared {
    /// Step 16: gives the client a part of the reply. False if no client waits for it any more, or
    /// the request is not this server's.
    pub(crate) fn give_part(
        &self,
        (idx, taken): (u32, SlotWord),
        part: &Message<'_>,
        continues: bool,
        op: &'static str,
    ) -> Result<bool> {
        let mark = if continues { Mark::Continues } else { Mark::Whole };
        let naming = self.write(idx, Direction::Reply, part, op)?;
        Ok(self.pass_to_client((idx, taken), mark, naming, State::Part))
    }

    /// Step 18: asks the client for the next part of the request; as `give_part`.
    pub(crate) fn ask_for_more(&self, claimed: (u32, SlotWord)) -> bool {
        self.pass_to_client(claimed, Mark::Whole, Naming::default(), State::More)
    }

    /// Before a request is answered: says what the reply is that lies in the slot.
    #[inline]
    pub(crate) fn describe_answer(&self, (idx, taken): (u32, SlotWord), naming: &Naming) {
        let slot = self.slot(idx);
        slot.inspect(|slot| slot.set_holder(taken.owner(), Mark::Whole, naming.named()));
    }

    /// Before a request fails: leaves the reason for its client, as much of it as there is space
    /// for. Where it is the client's turn, it gets none.
    pub(crate) fn write_reason(&self, (idx, taken): (u32, SlotWord), reason: &Message<'_>) {
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else { return };
        let (reason, _) = self.split(Direction::Reply, reason);
        let is_said = !reason.payload.is_empty();
        // Without a page for it, the call fails without it.
        let reason = Message { blobs: &[], ..reason };
        let is_written = is_said && self.write(idx, Direction::Reply, &reason, "reqrep fail").is_ok();
        let mark = if is_written { Mark::Reason } else { Mark::Whole };
        slot.set_holder(taken.owner(), mark, NamedBlobs::default());
    }

    fn pass_to_client(
        &self,
        (idx, taken): (u32, SlotWord),
        mark: Mark,
        naming: Naming,
        state: State,
    ) -> bool {
        // Another server may have the request by now, and the fields are that one's.
        let Some(slot) = self.slot(idx).filter(|slot| slot.holding(taken) == Holding::Taken) else {
            return false;
        };
        slot.set_holder(taken.owner(), mark, naming.named());
        let client = slot.caller().client;
        let passed = slot.pass_to_client(taken, state);
        if let Some(before) = passed {
            naming.publish();
            self.tell_client(slot, before.has_waiter(), client);
        }
        passed.is_some()
    }
}

/// For the client of a call, when it is its turn.
impl Shared {
    /// Step 17: appends the part that is there to `bytes`. `None`, and nothing, if the call was
    /// ended meanwhile.
    pub(crate) fn take_part(
        &self,
        idx: u32,
        part: SlotWord,
        bytes: &mut Vec<u8>,
        op: &'static str,
    ) -> Result<Option<Taken>> {
        let Some(slot) = self.slot(idx) else { return Ok(None) };
        let (before, continues) = (bytes.len(), slot.is_marked(Mark::Continues));
        let flags = self.append(idx, Direction::Reply, bytes, op)?;
        let flags = flags.ok_or(Error::new(ErrorKind::Corrupt, op))?;
        let mut blobs = Blobs::default();
        let received = self.add_named_blobs(idx, Direction::Reply, &mut blobs, op);
        received.inspect_err(|_| bytes.truncate(before))?;
        if !self.pass_to_server(idx, part) {
            bytes.truncate(before);
            return Ok(None);
        }
        Ok(Some(Taken { flags, continues, blobs }))
    }

    /// Step 19: writes the next part of the request; the last one says whether the caller gets the
    /// ticket. False if the call was ended meanwhile.
    pub(crate) fn write_more(
        &self,
        idx: u32,
        more: SlotWord,
        part: &Message<'_>,
        last: Option<bool>,
        op: &'static str,
    ) -> Result<bool> {
        let Some(slot) = self.slot(idx) else { return Ok(false) };
        self.write(idx, Direction::Request, part, op)?;
        if let Some(has_ticket) = last {
            slot.set_whole(has_ticket);
        }
        Ok(self.pass_to_server(idx, more))
    }

    fn pass_to_server(&self, idx: u32, seen: SlotWord) -> bool {
        let Some(slot) = self.slot(idx) else { return false };
        let server = slot.fields().server;
        let others_wait = self.parts.lock();
        let passed = slot.pass_to_server(seen, &self.leaving(idx));
        drop(others_wait);
        if passed {
            self.ring_server(server);
        }
        passed
    }
}
