//! A payload that was copied out of a segment: in place if it is small, else on the heap.

use std::fmt;
use std::ops::Deref;

use crate::region::Region;

/// Bytes that are kept in place.
const SMALL: usize = 48;

/// Bytes of a request or a reply. They are this process's own.
///
/// No field is narrower than a word, and the small bytes are copied whole: what is moved on right after it was written in pieces of other
/// sizes makes the processor wait for longer than the rest of a small call takes.
#[derive(Clone)]
pub(super) struct Payload {
    /// Of the small bytes; more than [`SMALL`] if the bytes are in `large`.
    len: usize,
    small: Small,
    large: Vec<u8>,
}

#[derive(Clone)]
#[repr(align(16))]
struct Small([u8; SMALL]);

impl Payload {
    /// Nothing.
    pub(super) fn empty() -> Payload {
        Payload { len: 0, small: Small([0; SMALL]), large: Vec::new() }
    }

    /// The first `len` bytes of `region`; `None` if there are fewer.
    #[inline]
    pub(super) fn copy(region: &Region, len: usize) -> Option<Payload> {
        let mut payload = Payload { len, ..Payload::empty() };
        let copied = match len {
            0..=SMALL => region.copy_few(len, &mut payload.small.0),
            // It checks before it asks for memory: a length from the segment may be any number.
            _ => region.append_to(len, &mut payload.large),
        };
        copied.then_some(payload)
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
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
