//! The parts of a reply that are sent as one message, because the client does not take parts.

use crate::blob::Blob;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::region;
use crate::segment::message::Message;

/// The parts of such a reply so far. Only the server's process has them, until the request is
/// answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
}

/// The limits of a whole reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) bytes: usize,
    pub(super) blobs: usize,
}

impl Collected {
    /// Adds a part; after an error it has added nothing.
    pub(super) fn add(&mut self, part: &Message<'_>, most: Most, op: &'static str) -> Result<()> {
        if self.bytes.len().saturating_add(part.payload.len()) > most.bytes {
            return Err(Error::new(ErrorKind::TooLong, op));
        }
        if self.blobs.len() + part.blobs.len() > most.blobs {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::TooManyBlobs));
        }
        region::reserve(&mut self.bytes, part.payload.len()).map_err(|errno| errno.at(op))?;
        self.bytes.extend_from_slice(part.payload);
        self.blobs.extend_from_slice(part.blobs);
        Ok(())
    }

    /// Removes the part that was added last.
    pub(super) fn take_back(&mut self, part: &Message<'_>) {
        self.bytes.truncate(self.bytes.len() - part.payload.len());
        self.blobs.truncate(self.blobs.len() - part.blobs.len());
    }

    /// All parts as one message.
    pub(super) fn message(&self, flags: u32) -> Message<'_> {
        Message::new(&self.bytes).flags(flags).attach(&self.blobs)
    }
}
