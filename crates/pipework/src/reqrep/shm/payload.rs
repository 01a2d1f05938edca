//! Copies payloads into a segment and out of it. A small payload that was copied out is kept in
//! place, a larger one on the heap.

use std::fmt;
use std::ops::Deref;

use super::layout::SMALL;
use super::mapping::{Part, Shared};
use super::slot::Slot;
use crate::error::{Error, ErrorKind, Result};
use crate::region::Region;
use crate::sync::Ordering;
use crate::sys::Errno;

impl Shared {
    /// Writes a request to its slot. `Os` with ENOSPC if there is no page for it; `Corrupt` if a
    /// page of the segment was lost: no other process could read what was written there.
    #[inline]
    pub(crate) fn write_request(&self, idx: u32, request: &Message<'_>, op: &'static str) -> Result<()> {
        let (slot, Message { payload, flags }) = (self.filled(idx, op)?, request);
        self.reserve(idx, Part::Request, payload.len(), op)?;
        write(self.request(idx), payload, op)?;
        // Relaxed, here and below: the swap publishes them.
        slot.request_len.store(payload.len() as u32, Ordering::Relaxed);
        slot.request_flags.store(*flags, Ordering::Relaxed);
        self.check_whole(op)
    }

    /// Writes a reply to its slot.
    #[inline]
    pub(crate) fn write_reply(&self, idx: u32, reply: &Message<'_>, op: &'static str) -> Result<()> {
        let (slot, Message { payload, flags }) = (self.filled(idx, op)?, reply);
        self.reserve(idx, Part::Reply, payload.len(), op)?;
        write(self.reply(idx), payload, op)?;
        slot.reply_len.store(payload.len() as u32, Ordering::Relaxed);
        slot.reply_flags.store(*flags, Ordering::Relaxed);
        self.check_whole(op)
    }

    /// Copies a request into `payload` and returns its flags; `None` if no client of ours wrote it.
    #[inline]
    pub(crate) fn read_request(
        &self,
        idx: u32,
        payload: &mut Payload,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some(slot) = self.slot(idx) else { return Ok(None) };
        let flags = slot.request_flags.load(Ordering::Relaxed);
        let is_read = self.read(self.request(idx), slot.request_len(), payload, op)?;
        Ok(is_read.then_some(flags))
    }

    /// Copies a reply into `payload` and returns its flags; `None` if no server of ours wrote it.
    #[inline]
    pub(crate) fn read_reply(
        &self,
        idx: u32,
        payload: &mut Payload,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some(slot) = self.slot(idx) else { return Ok(None) };
        let flags = slot.reply_flags.load(Ordering::Relaxed);
        let is_read = self.read(self.reply(idx), slot.reply_len(), payload, op)?;
        Ok(is_read.then_some(flags))
    }

    #[inline]
    fn filled(&self, idx: u32, op: &'static str) -> Result<&Slot> {
        self.slot(idx).ok_or(Error::new(ErrorKind::Corrupt, op))
    }

    #[inline]
    fn read(&self, area: Option<Region>, len: u32, payload: &mut Payload, op: &'static str) -> Result<bool> {
        let copied = area.map_or(Ok(false), |area| payload.fill(&area, len as usize));
        // First: a segment that is not whole may give any length.
        self.check_whole(op)?;
        copied.map_err(|errno| errno.at(op))
    }
}

#[inline]
fn write(area: Option<Region>, bytes: &[u8], op: &'static str) -> Result<()> {
    let area = area.ok_or(Error::new(ErrorKind::Corrupt, op))?;
    if area.copy_in(bytes) { Ok(()) } else { Err(Error::new(ErrorKind::TooLong, op)) }
}

/// A payload with its flags, as it is sent: a request or a reply. Bytes and text convert into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) flags: u32,
}

impl<'a> Message<'a> {
    /// A payload with flags 0.
    pub fn new<T: AsRef<[u8]> + ?Sized>(payload: &'a T) -> Message<'a> {
        Message { payload: payload.as_ref(), flags: 0 }
    }

    /// Sends 32 bits of the user's along.
    pub fn flags(self, flags: u32) -> Message<'a> {
        Message { flags, ..self }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Message<'a> {
    fn from(payload: &'a T) -> Message<'a> {
        Message::new(payload)
    }
}

/// Bytes of a request or a reply. They are this process's own.
///
/// No field is narrower than a word, and the small bytes are copied whole. Otherwise a move right
/// after a write in pieces of other sizes makes the processor wait for longer than the rest of a
/// small call takes.
#[derive(Clone)]
pub(crate) struct Payload {
    /// Length of the small bytes; more than [`SMALL`] if the bytes are in `large`.
    len: usize,
    small: Small,
    large: Vec<u8>,
}

#[derive(Clone)]
#[repr(align(16))]
struct Small([u8; SMALL]);

impl Payload {
    /// A payload of no bytes.
    pub(crate) fn empty() -> Payload {
        Payload { len: 0, small: Small([0; SMALL]), large: Vec::new() }
    }

    /// Becomes the first `len` bytes of `region`; false if there are fewer. In place: a payload is
    /// larger than what the processor moves at once.
    #[inline]
    fn fill(&mut self, region: &Region, len: usize) -> std::result::Result<bool, Errno> {
        self.len = len;
        match len {
            0..=SMALL => Ok(region.copy_few(len, &mut self.small.0)),
            // This checks before it allocates: a length from the segment may be any number.
            _ => region.append_to(len, &mut self.large),
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        if self.len <= SMALL { self.to_vec() } else { self.large }
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len <= SMALL { &self.small.0[..self.len] } else { &self.large }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
