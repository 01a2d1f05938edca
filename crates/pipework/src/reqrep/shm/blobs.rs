//! The blobs that slots name: adding names to a slot, and removing them.

use super::layout::Direction;
use super::mapping::Shared;
use super::naming::{Blobs, Leaving, NamedBlobs, Names, Naming};
use super::word::SlotWord;
use crate::blob::{Blob, Detaching, Handle, Name, Named, Slots};
use crate::error::{Error, ErrorKind, Explanation, Result};
#[cfg(test)]
use crate::sys::fault;

impl Shared {
    /// The blobs that slot `idx` stops naming with a step of its word. Call it after the word was
    /// read: if the step then succeeds, the handles belong to it.
    ///
    /// The word of a part returns with the next part. So a client's threads read it, call this, and
    /// make the step under [`parts`](Shared::parts), and recovery reads the word again after the
    /// proof.
    #[inline(always)]
    pub(crate) fn leaving(&self, idx: u32) -> impl Fn(SlotWord, SlotWord) -> Leaving {
        move |from, to| {
            let [request, reply] = from.stops_naming(to);
            let mut leaving = Leaving::default();
            if request {
                self.add_leaving(idx, Direction::Request, &mut leaving);
            }
            if reply {
                self.add_leaving(idx, Direction::Reply, &mut leaving);
            }
            leaving
        }
    }

    #[inline]
    fn add_leaving(&self, idx: u32, direction: Direction, leaving: &mut Leaving) {
        let named = self.slot(idx).map_or_else(NamedBlobs::default, |slot| slot.named(direction));
        if named.count > 0 {
            let found = self.handles(idx, direction, named);
            leaving.0.extend(found.iter().filter_map(|handle| Detaching::find(self.blobs(), handle)));
        }
    }

    /// The handles of a message. A peer that breaks the rules may have written any bytes.
    fn handles(&self, idx: u32, direction: Direction, named: NamedBlobs) -> Vec<Handle> {
        let handle = |number: u8| Some(self.handle(idx, direction, number.into())?.load());
        (0..named.count).map_while(handle).collect()
    }

    /// Names blobs in a slot that only this process writes to. The names last as long as the result
    /// lives, or permanently once it is [published](Naming::publish).
    #[inline(always)]
    pub(crate) fn name(
        &self,
        idx: u32,
        direction: Direction,
        blobs: &[Blob],
        op: &'static str,
    ) -> Result<Naming> {
        if blobs.is_empty() { Ok(Naming::default()) } else { self.name_some(idx, direction, None, blobs, op) }
    }

    /// As `name`, with `long` as the first blob, which is the payload.
    #[cold]
    pub(super) fn name_some(
        &self,
        idx: u32,
        direction: Direction,
        long: Option<&Blob>,
        blobs: &[Blob],
        op: &'static str,
    ) -> Result<Naming> {
        if blobs.len() > self.geometry().blobs as usize {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::TooManyBlobs));
        }
        let mut naming = Naming(Some(Box::new(Names { blobs: Vec::new(), is_long: long.is_some() })));
        for (number, blob) in long.into_iter().chain(blobs).enumerate() {
            let place = self.handle(idx, direction, number).ok_or(Error::new(ErrorKind::Corrupt, op))?;
            let named = match Named::new(self.blobs(), blob, idx) {
                Some(named) => named,
                // It is a blob of another channel, or a copy.
                None => {
                    let copied = Blob::copy_of(self.blobs(), blob, op)?;
                    self.blobs().count_copied();
                    Named::new(self.blobs(), &copied, idx).ok_or(Error::new(ErrorKind::Corrupt, op))?
                }
            };
            place.store(named.handle());
            naming.0.get_or_insert_default().blobs.push(named);
        }
        Ok(naming)
    }

    /// Adds the blobs that are attached to a message that this process has received, while its slot
    /// still names them, unless `blobs` has them already. `TooLong` if copies of them would have more
    /// than `max` bytes together.
    // Always inlined, and without a word if there are none: a message is moved right after this,
    // and a move stalls the processor when it meets a recent store of another size.
    #[inline(always)]
    pub(crate) fn add_named_blobs(
        &self,
        idx: u32,
        direction: Direction,
        blobs: &mut Blobs,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        match self.slot(idx).map(|slot| slot.named(direction)) {
            Some(named) if named.attached() > 0 && blobs.as_slice().is_empty() => {
                *blobs = self.receive_named(idx, direction, named, max, op)?;
                blobs.share();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The same for a request that this process has not claimed yet.
    pub(crate) fn receive_attached(
        &self,
        idx: u32,
        blobs: &mut Blobs,
        max: usize,
        op: &'static str,
    ) -> Result<()> {
        let named = self.slot(idx).map(|slot| slot.named(Direction::Request));
        if let Some(named) = named.filter(|named| named.attached() > 0) {
            *blobs = self.receive_named(idx, Direction::Request, named, max, op)?;
        }
        Ok(())
    }

    /// Bytes of the blobs that a process holds when it receives a request: of those that are attached,
    /// and of the payload if it is one and is wanted.
    pub(crate) fn bytes_to_hold(&self, idx: u32, with_payload: bool) -> u64 {
        let Some(named) = self.slot(idx).map(|slot| slot.named(Direction::Request)) else { return 0 };
        let skipped = usize::from(named.is_long && !with_payload);
        let handles = self.handles(idx, Direction::Request, named);
        handles.iter().skip(skipped).fold(0, |bytes, handle| bytes.saturating_add(handle.len))
    }

    #[cold]
    fn receive_named(
        &self,
        idx: u32,
        direction: Direction,
        named: NamedBlobs,
        max: usize,
        op: &'static str,
    ) -> Result<Blobs> {
        let handles = self.handles(idx, direction, named);
        let attached = handles.iter().skip(usize::from(named.is_long));
        let mut most = max;
        let receive = |handle| {
            let blob = Blob::receive_alone(self.blobs(), handle, most, op)?;
            if blob.is_copied() {
                most -= blob.len();
            }
            Ok(blob)
        };
        attached.map(receive).collect()
    }

    /// The handle of a payload that is a blob; `None` if it lies in the slot. `TooLong` if it has
    /// more than `max` bytes.
    #[inline(always)]
    pub(super) fn long_payload(
        &self,
        idx: u32,
        direction: Direction,
        max: usize,
        op: &'static str,
    ) -> Result<Option<Handle>> {
        match self.slot(idx).map(|slot| slot.named(direction)) {
            Some(named) if named.is_long => self.find_long(idx, direction, named, max, op).map(Some),
            _ => Ok(None),
        }
    }

    #[cold]
    fn find_long(
        &self,
        idx: u32,
        direction: Direction,
        named: NamedBlobs,
        max: usize,
        op: &'static str,
    ) -> Result<Handle> {
        match self.long_handle(idx, direction, named) {
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
    fn long_handle(&self, idx: u32, direction: Direction, named: NamedBlobs) -> Option<Handle> {
        self.handles(idx, direction, named.first()).pop()
    }

    /// The length of a message's payload, in its slot or in a blob, as its writer recorded it.
    pub(crate) fn payload_len(&self, idx: u32, direction: Direction) -> usize {
        let Some(slot) = self.slot(idx) else { return 0 };
        match slot.named(direction) {
            named if named.is_long => {
                self.long_handle(idx, direction, named).map_or(0, |handle| handle.len as usize)
            }
            _ => (slot.described(direction).0 as usize).min(self.geometry().bytes(direction)),
        }
    }
}

impl Slots for Shared {
    fn naming(&self, name: Name, near: u64, most: u32) -> u32 {
        let slots = self.geometry().slots;
        let near = u32::try_from(near).map_or(0, |near| near.min(slots - 1));
        // Backwards, because a client mostly acquires the slot behind the last one: the slots that
        // named the file earlier are in front of the one that named it last.
        let backwards = (0..=near).rev().chain((near + 1..slots).rev());
        let mut count = 0;
        for idx in backwards {
            if count >= most {
                break;
            }
            count += self.naming_in(idx, name);
        }
        count.min(most)
    }
}

impl Shared {
    /// How many handles in this slot name a file now.
    fn naming_in(&self, idx: u32, name: Name) -> u32 {
        #[cfg(test)]
        fault::reached("look at a slot for a file");
        let Some(slot) = self.slot(idx) else { return 0 };
        let free = SlotWord::from_bits(0);
        // The blobs that the slot would stop naming if it became free now.
        let [request, reply] = slot.load().stops_naming(free);
        let mut count = 0;
        for (names, direction) in [(request, Direction::Request), (reply, Direction::Reply)] {
            let named = slot.named(direction);
            if names && named.count > 0 {
                let handles = self.handles(idx, direction, named);
                count += handles.iter().filter(|handle| handle.name == name).count() as u32;
            }
        }
        count
    }
}
