//! The blobs that a message names, and those that a slot stops naming with a step.
//!
//! Invariant: a file's count is raised before a slot names the file, by a process that holds the file
//! until then, and lowered after the slot has stopped naming it.

use std::mem;
use std::sync::Arc;

use super::layout::HANDLE;
use super::word::{SlotWord, State};
use crate::blob::{Blob, Detaching, Handle, Named};
use crate::sync::{AtomicU64, Ordering};

/// The place of a handle in a slot. A thread that does not own the slot may read it while it is
/// written, and must not rely on what it gets.
#[repr(C)]
pub(crate) struct HandlePlace([AtomicU64; 4]);

const _: () = assert!(size_of::<HandlePlace>() == HANDLE);

impl HandlePlace {
    pub(super) fn load(&self) -> Handle {
        Handle::from_words(self.0.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    pub(super) fn store(&self, handle: Handle) {
        for (place, word) in self.0.iter().zip(handle.to_words()) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

/// The number and use of the blobs that a message names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedBlobs {
    /// At most 15 as it is read.
    pub(crate) count: u8,
    /// The first blob is the payload.
    pub(crate) is_long: bool,
}

impl NamedBlobs {
    /// How many of them the sender has attached: all but the payload.
    pub(crate) fn attached(self) -> u8 {
        self.count.saturating_sub(u8::from(self.is_long))
    }

    /// The first of them alone.
    pub(crate) fn first(self) -> NamedBlobs {
        NamedBlobs { count: self.count.min(1), ..self }
    }

    /// `{ count: 4, is_long: 1 }`
    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.is_long) | u32::from(self.count) << 1
    }

    pub(crate) fn from_bits(bits: u32) -> NamedBlobs {
        NamedBlobs { count: (bits >> 1 & 0xF) as u8, is_long: bits & 1 != 0 }
    }
}

impl SlotWord {
    /// The messages whose blobs the slot stops naming with a step to `to`: the request and the
    /// reply.
    ///
    /// A request names its blobs until the slot is free, because another server may get it. A part
    /// of a reply that its server withdraws when it fails the call still names its blobs: the marks
    /// stay.
    #[inline]
    pub(super) fn stops_naming(self, to: SlotWord) -> [bool; 2] {
        let (Some(from), Some(to)) = (self.state(), to.state()) else { return [false; 2] };
        // The reply is being copied out. A request that is being written must not be read.
        let is_held = from == State::Fill && self.has_waiter();
        let has_request = is_held || !matches!(from, State::Free | State::Fill);
        let has_reply = is_held || matches!(from, State::Answered | State::Failed | State::Part);
        let keeps_reply = from == to || matches!(to, State::Fill | State::Failed);
        [has_request && to == State::Free, has_reply && !keeps_reply]
    }
}

/// The blobs that came with a message. Takes one word if there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blobs(Option<Arc<Vec<Blob>>>);

impl Blobs {
    pub(crate) fn as_slice(&self) -> &[Blob] {
        self.0.as_ref().map_or(&[], |blobs| blobs.as_slice())
    }
}

impl Blobs {
    /// Makes them blobs that this process finds when it receives them again.
    pub(crate) fn share(&self) {
        self.as_slice().iter().for_each(Blob::share);
    }
}

impl FromIterator<Blob> for Blobs {
    fn from_iter<T: IntoIterator<Item = Blob>>(blobs: T) -> Blobs {
        Blobs(Some(Arc::new(blobs.into_iter().collect())))
    }
}

/// Finds the blobs that a slot would stop naming with a step from one word to the other.
pub(crate) type Leaver<'a> = dyn Fn(SlotWord, SlotWord) -> Leaving + 'a;

/// For a slot that names no blobs.
pub(crate) fn none_leave(_: SlotWord, _: SlotWord) -> Leaving {
    Leaving::default()
}

/// The blobs that a slot stops naming with its next step.
#[derive(Default)]
pub(crate) struct Leaving(pub(super) Vec<Detaching>);

impl Leaving {
    /// Counts the names down, after the slot has made the step.
    #[inline]
    pub(crate) fn apply(self) {
        if !self.0.is_empty() {
            self.0.into_iter().for_each(Detaching::remove);
        }
    }
}

/// Blobs that a slot is about to name. If it is dropped before that, it lowers their counts again.
///
/// Takes one word if there are none: it is moved several times with every call.
#[derive(Default)]
pub(crate) struct Naming(pub(super) Option<Box<Names>>);

#[derive(Default)]
pub(crate) struct Names {
    pub(super) blobs: Vec<Named>,
    /// The first blob is the payload.
    pub(super) is_long: bool,
}

impl Naming {
    /// For the marks of the slot.
    #[inline]
    pub(crate) fn named(&self) -> NamedBlobs {
        let named = |names: &Names| NamedBlobs { count: names.blobs.len() as u8, is_long: names.is_long };
        self.0.as_deref().map_or_else(NamedBlobs::default, named)
    }

    /// Keeps the names, after the slot has made the step by which other processes see them.
    #[inline(always)]
    pub(crate) fn publish(self) {
        match self.0 {
            Some(_) => self.let_go(),
            // Without a drop, which would cost as much as the rest of this.
            None => mem::forget(self),
        }
    }

    #[cold]
    fn let_go(mut self) {
        drop(self.0.take());
    }

    #[cold]
    fn take_back(&mut self) {
        self.0.take().into_iter().flat_map(|names| names.blobs).for_each(Named::remove);
    }
}

impl Drop for Naming {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.take_back();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn request_names_its_blobs_until_the_slot_is_free_and_reply_until_it_is_received() {
        let word = |state: State| SlotWord::from_bits(state as u64);
        let held = SlotWord::from_bits(State::Fill as u64 | 1 << 4);
        let free = word(State::Free);
        let to_free = |state| word(state).stops_naming(free);
        for state in [State::Sent, State::Taken, State::Dropped, State::Forgotten, State::Died] {
            assert_eq!(to_free(state), [true, false], "{state:?}");
        }
        assert_eq!((to_free(State::Fill), to_free(State::Free)), ([false; 2], [false; 2]));
        assert_eq!((to_free(State::Answered), to_free(State::Failed)), ([true; 2], [true; 2]));
        assert_eq!(
            (held.stops_naming(free), word(State::Answered).stops_naming(held)),
            ([true; 2], [false; 2])
        );
        let part_to = |state| word(State::Part).stops_naming(word(state));
        for state in [State::Taken, State::Dropped, State::Forgotten, State::Died] {
            assert_eq!(part_to(state), [false, true], "{state:?}");
        }
        assert_eq!((part_to(State::Failed), part_to(State::Part)), ([false; 2], [false; 2]));
        assert_eq!(word(State::Taken).stops_naming(word(State::Sent)), [false; 2]);
    }
}
