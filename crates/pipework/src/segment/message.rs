//! A message as it is sent and as it is received. A small payload that was copied out is kept in
//! place, a larger one on the heap.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, io};

use super::header::SMALL;
use crate::blob::{Blob, Handle, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::region::{self, Region};
use crate::sys::Errno;

/// A long payload of up to this many bytes is copied when it is received. That costs less than to
/// hold its blob: the copy needs no system call.
const COPIED: u64 = 32 << 10;

/// Space for a payload that is written in place, from its beginning to its end. All bytes that were
/// written when the writing function returns are the payload.
///
/// It cannot be read: other processes may change these bytes at any time.
#[derive(Debug)]
pub struct Space<'a> {
    area: Region,
    written: usize,
    flags: u32,
    /// Of the error if bytes do not fit.
    op: &'static str,
    segment: PhantomData<&'a ()>,
}

impl Space<'_> {
    pub(crate) fn new(area: Region, op: &'static str) -> Self {
        Space { area, written: 0, flags: 0, op, segment: PhantomData }
    }

    /// Bytes of the payload so far, and its flags.
    pub(crate) fn described(&self) -> (u32, u32) {
        (self.written as u32, self.flags)
    }

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
            return Err(Error::new(ErrorKind::TooLong, self.op));
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

/// A payload with its flags, as it is sent. Bytes and text convert into one.
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

    /// Sends blobs with it: one, or a list of up to as many as the channel was made for. A blob of
    /// another channel, and one that [was copied](Blob::is_copied), is copied into a new one.
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

/// Bytes of a message: this process's own copy, or the bytes of a blob that it holds.
///
/// No field is narrower than a word, and the small bytes are copied whole. Otherwise a move right
/// after writes of other sizes makes the processor wait for longer than the rest of receiving a small
/// message takes.
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
    pub(crate) fn fill(&mut self, region: &Region, len: usize) -> std::result::Result<bool, Errno> {
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

    /// Becomes the bytes of a blob that a message names: it holds the blob, or copies it if that costs
    /// less. Other threads do not find the blob before it is [shared](Payload::share). False if the
    /// blob is shorter than its handle says.
    pub(crate) fn receive(
        &mut self,
        store: &Arc<Store>,
        handle: &Handle,
        max: usize,
        op: &'static str,
    ) -> Result<bool> {
        if handle.len > COPIED || store.only_reads() {
            self.set_blob(Blob::receive(store, handle, max, op)?);
            return Ok(true);
        }
        Blob::read(store, handle, op, |area, len| self.fill(area, len))?.map_err(|errno| errno.at(op))
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
