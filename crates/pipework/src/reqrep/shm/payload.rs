//! Copies payloads into a segment and out of it. A small payload that was copied out is kept in
//! place, a larger one on the heap.

use std::fmt;
use std::ops::Deref;

use super::layout::{Part, SMALL};
use super::mapping::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::region::Region;
use crate::sys::Errno;

impl Shared {
    /// Writes a request to its slot, or a reply. `Os` with ENOSPC if there is no page for it,
    /// `Corrupt` if one of the segment's was lost: nobody else could read what was written there.
    #[inline]
    pub(crate) fn write(&self, idx: u32, part: Part, message: &Message<'_>, op: &'static str) -> Result<()> {
        let (bytes, corrupt) = (message.payload, Error::new(ErrorKind::Corrupt, op));
        let (slot, area) = self.slot(idx).zip(self.payload(idx, part)).ok_or(corrupt)?;
        self.reserve(idx, part, bytes.len(), op)?;
        if !area.copy_in(bytes) {
            return Err(Error::new(ErrorKind::TooLong, op));
        }
        slot.describe(part, bytes.len() as u32, message.flags);
        self.check_whole(op)
    }

    /// Copies a request or a reply into `payload`; its flags. `None` if no peer of ours wrote it.
    #[inline]
    pub(crate) fn read(
        &self,
        idx: u32,
        part: Part,
        payload: &mut Payload,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(idx).zip(self.payload(idx, part)) else { return Ok(None) };
        let (len, flags) = slot.described(part);
        let copied = payload.fill(&area, len as usize);
        // First: what is not whole may give any length.
        self.check_whole(op)?;
        Ok(copied.map_err(|errno| errno.at(op))?.then_some(flags))
    }
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

    /// Becomes the first `len` bytes of `region`; false, and nothing, if there are fewer. In place:
    /// a payload is larger than what the processor moves at once.
    #[inline]
    fn fill(&mut self, region: &Region, len: usize) -> std::result::Result<bool, Errno> {
        let fits = match len {
            0..=SMALL => region.copy_few(len, &mut self.small.0),
            // It checks before it asks for memory: a length from the segment may be any number.
            _ => {
                self.large.clear();
                region.append_to(len, &mut self.large)?
            }
        };
        self.len = if fits { len } else { 0 };
        Ok(fits)
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
