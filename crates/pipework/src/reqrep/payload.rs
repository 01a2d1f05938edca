//! A payload that was copied out of a segment: in place if it is small, else on the heap.

use std::fmt;
use std::ops::Deref;

use crate::region::Region;

/// What is copied in place.
const SMALL: usize = 62;

/// Bytes of a request or a reply. They are this process's own.
#[derive(Clone)]
pub(super) enum Payload {
    Small { len: u8, bytes: [u8; SMALL] },
    Large(Vec<u8>),
}

impl Payload {
    /// The first `len` bytes of `region`; `None` if there are fewer.
    pub(super) fn copy(region: &Region, len: usize) -> Option<Payload> {
        if len <= SMALL {
            let mut bytes = [0; SMALL];
            return region.copy_out(&mut bytes[..len]).then_some(Payload::Small { len: len as u8, bytes });
        }
        // Checked before the memory is asked for: a length from the segment may be any number.
        if len > region.len() {
            return None;
        }
        let mut bytes = Vec::new();
        region.append_to(len, &mut bytes).then_some(Payload::Large(bytes))
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Payload::Small { len, bytes } => bytes[..len.into()].to_vec(),
            Payload::Large(bytes) => bytes,
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Small { len, bytes } => &bytes[..usize::from(*len)],
            Payload::Large(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
