//! Copies payloads into a segment and out of it. A small payload that was copied out is kept in
//! place, a larger one on the heap.

use std::marker::PhantomData;
use std::ops::Deref;
use std::{fmt, io};

use super::layout::{Direction, SMALL};
use super::mapping::Shared;
use super::naming::{Blobs, NamedBlobs, Naming};
use crate::blob::Blob;
use crate::error::{Error, ErrorKind, Result};
use crate::region::{self, Region};
use crate::sys::Errno;

/// The operation of errors about the blob of a long payload.
pub(crate) const LONG: &str = "reqrep blob for a long message";

/// A long payload of up to this many bytes is copied when it is received. That costs less than to
/// hold its blob: the copy needs no system call.
const COPIED: u64 = 32 << 10;

impl Shared {
    /// Writes a request or a reply to its slot; returns the blobs that the slot is to name. `Os`
    /// with ENOSPC if there is no page for it. `Corrupt` if a page of the segment was lost, because
    /// no other process could read bytes that were written there.
    // Always: every call runs this twice.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        idx: u32,
        direction: Direction,
        message: &Message<'_>,
        op: &'static str,
    ) -> Result<Naming> {
        let (bytes, corrupt) = (message.payload, Error::new(ErrorKind::Corrupt, op));
        if bytes.len() > self.geometry().bytes(direction) {
            return self.write_long(idx, direction, message, op);
        }
        let (slot, area) = self.slot(idx).zip(self.payload(idx, direction)).ok_or(corrupt)?;
        self.reserve(idx, direction, bytes.len(), op)?;
        if !area.copy_in(bytes) {
            return Err(corrupt);
        }
        slot.describe(direction, bytes.len() as u32, message.flags);
        self.check_whole(op)?;
        self.name(idx, direction, message.blobs, op)
    }

    /// A payload that is longer than its part of a slot goes into a blob.
    #[cold]
    fn write_long(
        &self,
        idx: u32,
        direction: Direction,
        message: &Message<'_>,
        op: &'static str,
    ) -> Result<Naming> {
        let slot = self.slot(idx).ok_or(Error::new(ErrorKind::Corrupt, op))?;
        let payload = Blob::copy_of(self.blobs(), message.payload, LONG)?;
        slot.describe(direction, 0, message.flags);
        self.long.set(message.payload.len() as u64);
        self.check_whole(op)?;
        self.name_some(idx, direction, Some(&payload), message.blobs, op)
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
        idx: u32,
        direction: Direction,
        len: usize,
        fill: impl FnOnce(&mut Space<'_>) -> Result<()>,
        op: &'static str,
    ) -> Result<()> {
        let (corrupt, too_long) = (Error::new(ErrorKind::Corrupt, op), Error::new(ErrorKind::TooLong, op));
        let (slot, area) = self.slot(idx).zip(self.payload(idx, direction)).ok_or(corrupt)?;
        let area = area.first(len).ok_or(too_long)?;
        self.reserve(idx, direction, len, op)?;
        let mut space = Space { area, written: 0, flags: 0, segment: PhantomData };
        fill(&mut space)?;
        slot.describe(direction, space.written as u32, space.flags);
        self.check_whole(op)
    }

    /// Puts a request or a reply into `payload`, and its attached blobs into `blobs`; returns its
    /// flags. `None` if it breaks the format, `TooLong` if it is in a blob of more than `max`
    /// bytes.
    // Always: every short call runs this, and the compiler counts its callers.
    #[inline(always)]
    pub(crate) fn read(
        &self,
        idx: u32,
        direction: Direction,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(idx).zip(self.payload(idx, direction)) else { return Ok(None) };
        let (len, flags) = slot.described(direction);
        if slot.named(direction) != NamedBlobs::default() {
            return self.read_named(idx, direction, (payload, blobs), max, op);
        }
        let copied = payload.fill(&area, len as usize);
        // Check first: a segment that is not whole may give any length.
        self.check_whole(op)?;
        Ok(copied.map_err(|errno| errno.at(op))?.then_some(flags))
    }

    #[cold]
    fn read_named(
        &self,
        idx: u32,
        direction: Direction,
        (payload, blobs): (&mut Payload, &mut Blobs),
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(idx).zip(self.payload(idx, direction)) else { return Ok(None) };
        let (len, flags) = slot.described(direction);
        let fits = match self.long_payload(idx, direction, max, op)? {
            Some(handle) if handle.len <= COPIED => {
                let copied = Blob::read(self.blobs(), &handle, op, |area, len| payload.fill(area, len))?;
                copied.map_err(|errno| errno.at(op))?
            }
            Some(handle) => {
                payload.set_blob(Blob::receive(self.blobs(), &handle, max, op)?);
                true
            }
            None => payload.fill(&area, len as usize).map_err(|errno| errno.at(op))?,
        };
        self.add_named_blobs(idx, direction, blobs, max, op)?;
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
        let direction = Direction::Request;
        let Some(handle) = self.long_payload(idx, direction, max, op)? else { return Ok(None) };
        if handle.len <= COPIED {
            let copied = Blob::read(self.blobs(), &handle, op, |area, len| payload.fill(area, len))?;
            if !copied.map_err(|errno| errno.at(op))? {
                return Err(Error::new(ErrorKind::Corrupt, op));
            }
        } else {
            payload.set_blob(Blob::receive_alone(self.blobs(), &handle, max, op)?);
        }
        self.check_whole(op)?;
        Ok(self.slot(idx).map(|slot| slot.described(direction).1))
    }

    /// Appends the payload to `bytes` if it is in a blob, as `receive_long`.
    pub(crate) fn append_long(
        &self,
        idx: u32,
        bytes: &mut Vec<u8>,
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        if self.long_payload(idx, Direction::Request, max, op)?.is_none() {
            return Ok(None);
        }
        self.append(idx, Direction::Request, bytes, max, op)?
            .ok_or(Error::new(ErrorKind::Corrupt, op))
            .map(Some)
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
        idx: u32,
        direction: Direction,
        bytes: &mut Vec<u8>,
        max: usize,
        op: &'static str,
    ) -> Result<Option<u32>> {
        let Some((slot, area)) = self.slot(idx).zip(self.payload(idx, direction)) else { return Ok(None) };
        let (before, (len, flags)) = (bytes.len(), slot.described(direction));
        let copied = match self.long_payload(idx, direction, max, op)? {
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
        idx: u32,
        direction: Direction,
        bytes: &mut [u8],
        op: &'static str,
    ) -> Result<Option<(usize, u32)>> {
        let Some((slot, area)) = self.slot(idx).zip(self.payload(idx, direction)) else { return Ok(None) };
        let (len, flags) = slot.described(direction);
        if let Some(handle) = self.long_payload(idx, direction, bytes.len(), op)? {
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

/// Space for a payload that is written in place, from its beginning to its end. All bytes that were
/// written when the writing function returns are the payload.
///
/// It cannot be read: other processes may change these bytes at any time.
#[derive(Debug)]
pub struct Space<'a> {
    area: Region,
    written: usize,
    flags: u32,
    segment: PhantomData<&'a Shared>,
}

impl Space<'_> {
    /// How many more bytes fit.
    pub fn remaining(&self) -> usize {
        self.area.len() - self.written
    }

    /// Sends 32 bits of the user's with the message. The default is 0.
    pub fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// `TooLong` if they do not all fit: then none are written.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let rest = self.area.rest(self.written);
        if !rest.is_some_and(|rest| rest.copy_in(bytes)) {
            return Err(Error::new(ErrorKind::TooLong, "reqrep put"));
        }
        self.written += bytes.len();
        Ok(())
    }
}

impl io::Write for Space<'_> {
    /// Writes as many bytes as fit; 0 if the space is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fit = &bytes[..bytes.len().min(self.remaining())];
        self.put(fit)?;
        Ok(fit.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A payload with its flags, as it is sent: a request or a reply. Bytes and text convert into one.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) blobs: &'a [Blob],
}

impl<'a> Message<'a> {
    /// A payload with flags 0.
    pub fn new<T: AsRef<[u8]> + ?Sized>(payload: &'a T) -> Message<'a> {
        Message { payload: payload.as_ref(), flags: 0, blobs: &[] }
    }

    /// Sends 32 bits of the user's with it.
    pub fn flags(self, flags: u32) -> Message<'a> {
        Message { flags, ..self }
    }

    /// Sends blobs with it: one, or a list of up to as many as the channel [was made
    /// for](crate::reqrep::Options::blobs). A blob of another channel, and one that [was
    /// copied](Blob::is_copied), is copied into a new one.
    pub fn attach(self, blobs: &'a (impl AsRef<[Blob]> + ?Sized)) -> Message<'a> {
        Message { blobs: blobs.as_ref(), ..self }
    }

    /// Its first `len` bytes, without the blobs.
    pub(crate) fn cut(self, len: usize) -> Message<'a> {
        Message { payload: &self.payload[..len.min(self.payload.len())], blobs: &[], ..self }
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Message<'a> {
    fn from(payload: &'a T) -> Message<'a> {
        Message::new(payload)
    }
}

/// Bytes of a request or a reply: this process's own copy, or the bytes of a blob that it holds.
///
/// No field is narrower than a word, and the small bytes are copied whole. Otherwise a move right
/// after writes of other sizes makes the processor wait for longer than the rest of a small call
/// takes.
#[derive(Clone)]
pub(crate) struct Payload {
    /// Length of the small bytes; more than [`SMALL`] if the bytes are in `large`.
    len: usize,
    small: Small,
    large: Large,
}

/// As large as a vector at most.
#[derive(Clone)]
enum Large {
    Copied(Vec<u8>),
    Blob(Blob),
}

const _: () = assert!(size_of::<Large>() == size_of::<Vec<u8>>());

#[derive(Clone)]
#[repr(align(16))]
struct Small([u8; SMALL]);

impl Payload {
    /// A payload of no bytes.
    pub(crate) fn empty() -> Payload {
        Payload { len: 0, small: Small([0; SMALL]), large: Large::Copied(Vec::new()) }
    }

    /// Becomes the first `len` bytes of `region`. False, and no change, if `region` is shorter. It
    /// works in place, because a payload is larger than the processor moves at once.
    #[inline(always)]
    fn fill(&mut self, region: &Region, len: usize) -> std::result::Result<bool, Errno> {
        let fits = match len {
            0..=SMALL => region.copy_few(len, &mut self.small.0),
            // Check before asking for memory: a length from the segment may be any number.
            _ => {
                let mut bytes = self.take_reserved();
                let fits = region.append_to(len, &mut bytes)?;
                self.large = Large::Copied(bytes);
                fits
            }
        };
        self.len = if fits { len } else { 0 };
        Ok(fits)
    }

    /// Allocates memory for a later `fill`.
    pub(crate) fn reserve(&mut self, len: usize) -> std::result::Result<(), Errno> {
        let mut bytes = Vec::new();
        region::reserve(&mut bytes, len)?;
        self.large = Large::Copied(bytes);
        Ok(())
    }

    fn take_reserved(&mut self) -> Vec<u8> {
        match &mut self.large {
            Large::Copied(bytes) if self.len == 0 => std::mem::take(bytes),
            _ => Vec::new(),
        }
    }

    /// Makes its blob one that this process finds when it receives the same blob again.
    pub(crate) fn share(&self) {
        if let Large::Blob(blob) = &self.large {
            blob.share();
        }
    }

    fn set_blob(&mut self, blob: Blob) {
        // Only a peer that breaks the rules puts so few bytes into a blob.
        if let Some(few) = self.small.0.get_mut(..blob.len()) {
            few.copy_from_slice(&blob);
        }
        (self.len, self.large) = (blob.len(), Large::Blob(blob));
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Payload {
        let mut payload = Payload::empty();
        payload.len = bytes.len();
        match bytes.len() {
            0..=SMALL => payload.small.0[..bytes.len()].copy_from_slice(&bytes),
            _ => payload.large = Large::Copied(bytes),
        }
        payload
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self.large {
            _ if self.len <= SMALL => self.small.0[..self.len].to_vec(),
            Large::Copied(bytes) => bytes,
            Large::Blob(blob) => blob.into_vec(),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.large {
            _ if self.len <= SMALL => &self.small.0[..self.len],
            Large::Copied(bytes) => bytes,
            Large::Blob(blob) => blob,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
