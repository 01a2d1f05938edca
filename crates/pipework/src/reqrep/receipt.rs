//! The blobs of a request, which a server receives before it claims the request.
//!
//! Invariant: a server claims a request only if it has all for which it may lack a descriptor, memory
//! or space under its limits. So what it lacks is back-pressure: the request stays where it is, in its
//! order, for this server or another one.

use super::shared::Shared;
use super::slot::{Slot, SlotWord, State};
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::region;
use crate::segment::message::Payload;
use crate::segment::naming::Blobs;
use crate::sys::Errno;

const RECV: &str = "reqrep recv";

/// The operation of the error if this process cannot use the folder of the channel's blobs.
pub(super) const FOLDER: &str = "reqrep recv: folder of the blobs";

/// What a server receives with a request.
#[derive(Debug)]
pub(super) enum Wanted<'a> {
    /// Its bytes and blobs.
    All,
    /// The same, with its bytes in memory of the caller.
    Bytes(&'a mut Vec<u8>),
    /// Its blobs, but not the one that is its payload.
    Blobs,
    Nothing,
}

/// What a server wants of the next request, and what it has received before it claimed that request.
#[derive(Debug)]
pub(super) struct Receipt<'a> {
    wanted: Wanted<'a>,
    /// Boxed, because few requests have any, and waits pass this on.
    received: Option<Box<Result<Received>>>,
    /// Whether the last look found a request that this process cannot take now.
    is_short: bool,
}

/// What was received of a request.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) payload: Payload,
    pub(super) blobs: Blobs,
    /// The flags, if its bytes were received. Otherwise they are in the slot.
    pub(super) flags: Option<u32>,
}

impl<'a> Receipt<'a> {
    #[inline]
    pub(super) fn new(wanted: Wanted<'a>) -> Receipt<'a> {
        Receipt { wanted, received: None, is_short: false }
    }

    /// What was received of the request that was claimed; `None` if all of it is in the slot.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Box<Result<Received>>> {
        self.received.take()
    }

    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns whether the last look found this process short of something, and forgets that.
    pub(super) fn forget_shortage(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Receives the blobs of the call which the slot has with the word `sent`, and claims it by the
    /// swap of a word of that very call. If the swap succeeds, the slot has named the blobs all the
    /// time. `None` if a server has the call, or it has ended. Fails if this process lacks what it
    /// takes to receive them.
    #[cold]
    pub(super) fn claim(
        &mut self,
        shared: &Shared,
        (idx, slot, sent): (u32, &Slot, SlotWord),
        server: u16,
        max: usize,
    ) -> Result<Option<SlotWord>> {
        let is_it =
            |word: SlotWord| word.state() == Some(State::Sent) && word.generation() == sent.generation();
        let received = self.receive(shared, idx, max);
        if let Err(error) = received
            && self.is_shortage(shared, idx, error)
        {
            // What is in the slot of another call proves nothing.
            self.is_short = is_it(slot.load());
            return if self.is_short { Err(error) } else { Ok(None) };
        }
        let taken = slot.claim_call(sent, server);
        if taken.is_some() {
            if let Ok(received) = &received {
                received.payload.share();
                received.blobs.share();
            }
            self.received = Some(Box::new(received));
        }
        Ok(taken)
    }

    fn receive(&mut self, shared: &Shared, idx: u32, max: usize) -> Result<Received> {
        let (mut payload, mut blobs, mut flags) = (Payload::empty(), Blobs::default(), None);
        match &mut self.wanted {
            Wanted::Nothing => {}
            Wanted::Blobs => shared.receive_attached(idx, &mut blobs, max, RECV)?,
            Wanted::All => {
                flags = shared.receive_long(idx, &mut payload, max, RECV)?;
                shared.receive_attached(idx, &mut blobs, max, RECV)?;
                if flags.is_none() {
                    payload.reserve(shared.len_in_slot(idx)).map_err(|errno| errno.at(RECV))?;
                }
            }
            Wanted::Bytes(bytes) => {
                bytes.clear();
                shared.receive_attached(idx, &mut blobs, max, RECV)?;
                flags = shared.append_long(idx, bytes, max, RECV)?;
                if flags.is_none() {
                    region::reserve(bytes, shared.len_in_slot(idx)).map_err(|errno| errno.at(RECV))?;
                }
            }
        }
        Ok(Received { payload, blobs, flags })
    }

    /// Whether an error says that this process lacks something that it may have later, and not that
    /// the request cannot be received.
    fn is_shortage(&self, shared: &Shared, idx: u32, error: Error) -> bool {
        if is_at_limit(error) {
            let with_payload = matches!(self.wanted, Wanted::All);
            return shared.bytes_to_hold(idx, with_payload) <= shared.blobs().limit();
        }
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::NOLCK];
        lacks.iter().any(|errno| errno.at(RECV) == error)
    }
}

/// Whether this process holds as many bytes of blobs as it may.
pub(super) fn is_at_limit(error: Error) -> bool {
    error == Error::with_explanation(ErrorKind::TooLong, RECV, Explanation::BlobsHeld)
}
