//! The messages in slots: copies payloads in and out, and names and receives their blobs.

use super::layout::{Direction, Half};
use super::shared::Shared;
use super::slot::SlotWord;
use crate::blob::{Blob, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::message::{Message, Payload, Space};
use crate::segment::naming::{Blobs, Leaving, NamedBlobs, Naming};

/// The operation of errors about the blob of a long payload.
pub(crate) const LONG: &str = "reqrep blob for a long message";

impl Shared {
    /// Writes a request or a reply to its slot; returns the blobs that the slot is to name. `Os`
    /// with ENOSPC if there is no page for it. `Corrupt` if a page of the segment was lost, because
    /// no other process could read bytes that were written there.
    // Always: every call runs this twice. Tried: two moves instead of a call for up to 64 bytes (no gain), and
    // the narrowest type for small payloads (20 ns more, because the loads did not match the stores before).
    #[inline(always)]
    pub(crate) fn write(&self, half: Half, message: &Message<'_>, op: &'static str) -> Result<Naming> {
        let (bytes, corrupt) = (message.payload, Error::new(ErrorKind::Corrupt, op));
        if bytes.len() > self.geometry().bytes(half.direction) {
            return self.write_long(half, message, op);
        }
        let (slot, area) = self.slot(half.idx).zip(self.payload(half)).ok_or(corrupt)?;
        self.reserve(half, bytes.len(), op)?;
        if !area.copy_in(bytes) {
            return Err(corrupt);
        }
        slot.describe(half.direction, bytes.len() as u32, message.flags);
        self.check_whole(op)?;
        if message.blobs.is_empty() {
            return Ok(Naming::default());
        }
        Naming::new(self.blobs(), (self.handles(half), half.idx), None, message.blobs, op)
    }

    /// A payload that is longer than its part of a slot goes into a blob.
    #[cold]
    fn write_long(&self, half: Half, message: &Message<'_>, op: &'static str) -> Result<Naming> {
        let slot = self.slot(half.idx).ok_or(Error::new(ErrorKind::Corrupt, op))?;
        let payload = Blob::copy_of(self.blobs(), message.payload, LONG)?;
        slot.describe(half.direction, 0, message.flags);
        self.long.set(message.payload.len() as u64);
        self.check_whole(op)?;
        let places = (self.handles(half), half.idx);
        Naming::new(self.blobs(), places, Some(&payload), message.blobs, op)
    }

    /// Fails with `TooLong` if a message is longer than both a slot and `max`.
    #[inline]
    pub(crate) fn admit(
        &self,
        direction: Direction,
        message: &Message<'_>,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        let len = message.payload.len();
        let is_admitted = len <= self.geometry().bytes(direction) || len <= max;
        if is_admitted { Ok(()) } else { Err(Error::new(ErrorKind::TooLong, op)) }
    }

    /// Lets the caller write a request or a reply of up to `len` bytes in place; otherwise as
    /// `write`.
    pub(crate) fn write_with(
        &self,
        half: Half,
        len: usize,
        fill: impl FnOnce(&mut Space<'_>) -> Result<()>,
        op: &'static str,
    ) -> Result<()> {
        let (corrupt, too_long) = (Error::new(ErrorKind::Corrupt, op), Error::new(ErrorKind::TooLong, op));
        let (slot, area) = self.slot(half.idx).zip(self.payload(half)).ok_or(corrupt)?;
        let area = area.first(len).ok_or(too_long)?;
        self.reserve(half, len, op)?;
        let mut space = Space::new(area, "reqrep put");
        fill(&mut space)?;
        let (written, flags) = space.described();
        slot.describe(half.direction, written, flags);
        self.check_whole(op)
    }

    /// Puts a request or a reply into `payload`, and its attached blobs into `blobs`; returns its
    /// flags. `None` if it breaks the format, `TooLong` if it is in a blob of more than `max`
    /// bytes.
    // Always: every short call runs this, and the compiler counts its callers.
    #[inline(always)]
    pub(crate) fn read(
        &self,
        half: Half,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(half.idx).zip(self.payload(half)) else { return Ok(None) };
        let (len, flags) = slot.described(half.direction);
        if slot.named(half.direction) != NamedBlobs::default() {
            return self.read_named(half, (payload, blobs), max, op);
        }
        let copied = payload.fill(&area, len as usize);
        // Check first: a segment that is not whole may give any length.
        self.check_whole(op)?;
        Ok(copied.map_err(|errno| errno.at(op))?.then_some(flags))
    }

    #[cold]
    fn read_named(
        &self,
        half: Half,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(half.idx).zip(self.payload(half)) else { return Ok(None) };
        let (len, flags) = slot.described(half.direction);
        let fits = match self.long_payload(half, max, op)? {
            Some(handle) => {
                let fits = payload.receive(self.blobs(), &handle, max, op)?;
                payload.share();
                fits
            }
            None => payload.fill(&area, len as usize).map_err(|errno| errno.at(op))?,
        };
        self.add_named_blobs(half, blobs, max, op)?;
        self.check_whole(op)?;
        Ok(fits.then_some(flags))
    }
}

/// What a server receives of a request that it has not claimed yet. It is worth nothing unless the
/// claim succeeds.
impl Shared {
    /// Puts the payload into `payload` if it is in a blob; returns the flags. `None` if the payload
    /// is in the slot.
    pub(crate) fn receive_long(
        &self,
        idx: u32,
        payload: &mut Payload,
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let half = Direction::Request.of(idx);
        let Some(handle) = self.long_payload(half, max, op)? else { return Ok(None) };
        if !payload.receive(self.blobs(), &handle, max, op)? {
            return Err(Error::new(ErrorKind::Corrupt, op));
        }
        self.check_whole(op)?;
        Ok(self.slot(idx).map(|slot| slot.described(half.direction).1))
    }

    /// Appends the payload to `bytes` if it is in a blob, as `receive_long`.
    pub(crate) fn append_long(
        &self,
        idx: u32,
        bytes: &mut Vec<u8>,
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let half = Direction::Request.of(idx);
        if self.long_payload(half, max, op)?.is_none() {
            return Ok(None);
        }
        self.append(half, bytes, max, op)?.ok_or(Error::new(ErrorKind::Corrupt, op)).map(Some)
    }

    /// Bytes of a payload that is in the slot.
    pub(crate) fn len_in_slot(&self, idx: u32) -> usize {
        let len = self.slot(idx).map_or(0, |slot| slot.described(Direction::Request).0);
        (len as usize).min(self.geometry().bytes(Direction::Request))
    }
}

/// Payloads that are copied to memory of the caller.
impl Shared {
    /// Appends a request or a reply to `bytes`; returns its flags. Otherwise as `read`.
    #[inline]
    pub(crate) fn append(
        &self,
        half: Half,
        bytes: &mut Vec<u8>,
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(half.idx).zip(self.payload(half)) else { return Ok(None) };
        let (before, (len, flags)) = (bytes.len(), slot.described(half.direction));
        let copied = match self.long_payload(half, max, op)? {
            Some(handle) => Blob::read(self.blobs(), &handle, op, |area, len| area.append_to(len, bytes))
                .inspect_err(|_| bytes.truncate(before))?,
            None => area.append_to(len as usize, bytes),
        };
        self.check_whole(op).inspect_err(|_| bytes.truncate(before))?;
        Ok(copied.map_err(|errno| errno.at(op))?.then_some(flags))
    }

    /// Copies a request or a reply to the beginning of `bytes`; returns its length and flags.
    /// `TooLong` if it is longer than `bytes`.
    pub(crate) fn read_into(
        &self,
        half: Half,
        bytes: &mut [u8],
        op: &'static str,
    ) -> Result<Option<(usize, u32)>> {
        let Some((slot, area)) = self.slot(half.idx).zip(self.payload(half)) else { return Ok(None) };
        let (len, flags) = slot.described(half.direction);
        if let Some(handle) = self.long_payload(half, bytes.len(), op)? {
            let len = handle.len as usize;
            let copied = Blob::read(self.blobs(), &handle, op, |area, len| area.copy_out(&mut bytes[..len]))?;
            return self.check_whole(op).map(|()| copied.then_some((len, flags)));
        }
        let len = len as usize;
        if len > area.len() {
            return Ok(None);
        }
        let into = bytes.get_mut(..len).ok_or(Error::new(ErrorKind::TooLong, op))?;
        let copied = area.copy_out(into);
        self.check_whole(op)?;
        Ok(copied.then_some((len, flags)))
    }
}

/// The blobs that slots name.
impl Shared {
    /// The blobs that slot `idx` stops naming with a step of its word. Call it after the word was
    /// read: if the step then succeeds, the handles belong to it.
    ///
    /// The word of a part returns with the next part. So a client's threads read it, call this, and
    /// make the step under [`parts`](super::shared::Calls::parts), and recovery reads the word again after the
    /// proof.
    #[inline(always)]
    pub(crate) fn leaving(&self, idx: u32) -> impl Fn(SlotWord, SlotWord) -> Leaving {
        move |from, to| {
            let [request, reply] = from.stops_naming(to);
            let mut leaving = Leaving::default();
            if request {
                self.add_leaving(Direction::Request.of(idx), &mut leaving);
            }
            if reply {
                self.add_leaving(Direction::Reply.of(idx), &mut leaving);
            }
            leaving
        }
    }

    #[inline]
    fn add_leaving(&self, half: Half, leaving: &mut Leaving) {
        let named = self.named(half);
        if named.count > 0 {
            leaving.add(self.blobs(), self.handles(half), named);
        }
    }

    #[inline]
    fn named(&self, half: Half) -> NamedBlobs {
        self.slot(half.idx).map_or_else(NamedBlobs::default, |slot| slot.named(half.direction))
    }

    /// Adds the blobs that are attached to a message that this process has received, while its slot
    /// still names them, unless `blobs` has them already. `TooLong` if copies of them would have more
    /// than `max` bytes together.
    // Always inlined, and without a word if there are none: a message is moved right after this,
    // and a move stalls the processor when it meets a recent store of another size.
    #[inline(always)]
    pub(crate) fn add_named_blobs(
        &self,
        half: Half,
        blobs: &mut Blobs,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        let named = self.named(half);
        if named.attached() > 0 && blobs.as_slice().is_empty() {
            *blobs = Blobs::receive(self.blobs(), self.handles(half), named, max, op)?;
            blobs.share();
        }
        Ok(())
    }

    /// The same for a request that this process has not claimed yet.
    pub(crate) fn receive_attached(
        &self,
        idx: u32,
        blobs: &mut Blobs,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        let half = Direction::Request.of(idx);
        let named = self.named(half);
        if named.attached() > 0 {
            *blobs = Blobs::receive(self.blobs(), self.handles(half), named, max, op)?;
        }
        Ok(())
    }

    /// Bytes of the blobs that a process holds when it receives a request: of those that are attached,
    /// and of the payload if it is one and is wanted.
    pub(crate) fn bytes_to_hold(&self, idx: u32, with_payload: bool) -> u64 {
        let half = Direction::Request.of(idx);
        let named = self.named(half);
        let skipped = usize::from(named.is_long && !with_payload);
        let handles = named.handles(self.handles(half));
        handles.iter().skip(skipped).fold(0, |bytes, handle| bytes.saturating_add(handle.len))
    }

    /// The handle of a payload that is a blob; `None` if it lies in the slot. `TooLong` if it has
    /// more than `max` bytes.
    #[inline(always)]
    fn long_payload(&self, half: Half, max: usize, op: &'static str) -> Result<Option<Handle>> {
        match self.named(half) {
            named if named.is_long => self.find_long(half, named, max, op).map(Some),
            _ => Ok(None),
        }
    }

    #[cold]
    fn find_long(&self, half: Half, named: NamedBlobs, max: usize, op: &'static str) -> Result<Handle> {
        match self.long_handle(half, named) {
            Some(handle) if handle.len > max as u64 => Err(Error::new(ErrorKind::TooLong, op)),
            Some(handle) => {
                self.long.set(handle.len);
                Ok(handle)
            }
            // Only a peer that breaks the rules names none.
            None => Err(Error::new(ErrorKind::Corrupt, op)),
        }
    }

    /// The handle of a payload that is a blob, which is the first.
    fn long_handle(&self, half: Half, named: NamedBlobs) -> Option<Handle> {
        named.first().handles(self.handles(half)).pop()
    }

    /// The length of a message's payload, in its slot or in a blob, as its writer recorded it.
    pub(crate) fn payload_len(&self, half: Half) -> usize {
        let Some(slot) = self.slot(half.idx) else { return 0 };
        match slot.named(half.direction) {
            named if named.is_long => self.long_handle(half, named).map_or(0, |handle| handle.len as usize),
            _ => (slot.described(half.direction).0 as usize).min(self.geometry().bytes(half.direction)),
        }
    }
}
