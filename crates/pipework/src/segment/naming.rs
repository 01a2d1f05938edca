//! The handles by which a message in the segment names blobs: adding names, receiving the blobs, and
//! removing names.
//!
//! The word of the message decides from when to when it names them. Invariant: a file's count is raised
//! before the word says so, by a process that holds the file until then, and lowered after the word has
//! stopped saying so.

use std::mem;
use std::sync::Arc;

use super::header::HANDLE;
use crate::blob::{Blob, Detaching, Handle, Name, Named, Store};
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::sync::{AtomicU64, Ordering};

/// The place of a handle. A thread whose turn it is not may read it while it is written, and must not
/// rely on what it gets.
#[repr(C)]
pub(crate) struct HandlePlace([AtomicU64; 4]);

const _: () = assert!(size_of::<HandlePlace>() == HANDLE);

impl HandlePlace {
    fn load(&self) -> Handle {
        Handle::from_words(self.0.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    fn store(&self, handle: Handle) {
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

    /// Their handles, of which `places` has the first. A peer that breaks the rules may have written
    /// any bytes.
    pub(crate) fn handles(self, places: &[HandlePlace]) -> Vec<Handle> {
        places.iter().take(self.count.into()).map(HandlePlace::load).collect()
    }

    /// How many of them name this file.
    pub(crate) fn naming(self, places: &[HandlePlace], name: Name) -> u32 {
        self.handles(places).iter().filter(|handle| handle.name == name).count() as u32
    }
}

/// The blobs that came with a message. Takes one word if there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blobs(Option<Arc<Vec<Blob>>>);

impl Blobs {
    /// Receives the blobs that are attached to a message, while that still names them. `TooLong` if
    /// copies of them would have more than `max` bytes together.
    #[cold]
    pub(crate) fn receive(
        store: &Arc<Store>,
        places: &[HandlePlace],
        named: NamedBlobs,
        max: usize,
        op: &'static str,
    ) -> Result<Blobs> {
        let handles = named.handles(places);
        let attached = handles.iter().skip(usize::from(named.is_long));
        let mut most = max;
        let receive = |handle| {
            let blob = Blob::receive(store, handle, most, op)?;
            if blob.is_copied() {
                most -= blob.len();
            }
            Ok(blob)
        };
        attached.map(receive).collect()
    }

    pub(crate) fn as_slice(&self) -> &[Blob] {
        self.0.as_ref().map_or(&[], |blobs| blobs.as_slice())
    }

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

/// The blobs that a message stops naming with the next step of its word.
#[derive(Default)]
pub(crate) struct Leaving(Vec<Detaching>);

impl Leaving {
    /// Adds those of a message, before the step.
    pub(crate) fn add(&mut self, store: &Arc<Store>, places: &[HandlePlace], named: NamedBlobs) {
        let handles = named.handles(places);
        self.0.extend(handles.iter().filter_map(|handle| Detaching::find(store, handle)));
    }

    /// Counts the names down, after the step.
    #[inline]
    pub(crate) fn apply(self) {
        if !self.0.is_empty() {
            self.0.into_iter().for_each(Detaching::remove);
        }
    }
}

/// Blobs that a message is about to name. If it is dropped before that, it lowers their counts again.
///
/// Takes one word if there are none: it is moved several times with every message.
#[derive(Default)]
pub(crate) struct Naming(Option<Box<Names>>);

#[derive(Default)]
struct Names {
    blobs: Vec<Named>,
    /// The first blob is the payload.
    is_long: bool,
}

impl Naming {
    /// Names blobs in `places`, which only this process writes to, and of which `hint` leads to the
    /// message. `long` is the payload. The names last as long as the result lives, or permanently once
    /// it is [published](Naming::publish).
    #[cold]
    pub(crate) fn new(
        store: &Arc<Store>,
        (places, hint): (&[HandlePlace], u32),
        long: Option<&Blob>,
        blobs: &[Blob],
        op: &'static str,
    ) -> Result<Naming> {
        // One place is for the payload.
        if blobs.len() >= places.len() {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::TooManyBlobs));
        }
        let mut naming = Naming(Some(Box::new(Names { blobs: Vec::new(), is_long: long.is_some() })));
        for (blob, place) in long.into_iter().chain(blobs).zip(places) {
            let named = match Named::new(store, blob, hint) {
                Some(named) => named,
                // It is a blob of another channel, or a copy.
                None => {
                    let copied = blob.within(store, op)?;
                    Named::new(store, &copied, hint).ok_or(Error::new(ErrorKind::Corrupt, op))?
                }
            };
            place.store(named.handle());
            naming.0.get_or_insert_default().blobs.push(named);
        }
        Ok(naming)
    }

    /// For the marks of the message.
    #[inline]
    pub(crate) fn named(&self) -> NamedBlobs {
        let named = |names: &Names| NamedBlobs { count: names.blobs.len() as u8, is_long: names.is_long };
        self.0.as_deref().map_or_else(NamedBlobs::default, named)
    }

    /// Keeps the names, after the step by which other processes see them.
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
