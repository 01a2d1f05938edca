//! Blobs: memory that is filled once, frozen, and read in place by every process that holds it.
//! Higher layers name blobs and carry the names from process to process.

mod file;
mod folder;
mod channels;
mod idle;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::region::Region;
pub(crate) use file::{Handle, Name, Slots};
pub(crate) use folder::Folder;
pub use store::{BlobAudit, BlobStats};
use store::{Counted, Found, Hold};
pub(crate) use store::{Limits, Store};

/// Removes the folder of a channel that no process uses any more, with the files in it. Returns the
/// files that it removed. Returns `None` and removes nothing if a process holds a file.
///
/// A message in a slot may name a file that no process holds. So the caller must know that no process
/// has the channel open.
pub(crate) fn remove_left(folder: &Path, op: &'static str) -> Result<Option<BlobAudit>> {
    store::remove_left(folder).map_err(|errno| errno.at(op))
}

/// Bytes in shared memory that only this process can access until they are frozen.
///
/// The memory may hold bytes of an earlier blob of this process, so fill all of it. If it is
/// dropped without being frozen, its file is used for a later blob.
pub struct BlobMut(Hold);

impl BlobMut {
    pub(crate) fn new(store: &Arc<Store>, len: usize, op: &'static str) -> Result<BlobMut> {
        store.draft(len, op).map(BlobMut)
    }

    /// Fixes the bytes: from now on they do not change, and messages can carry them.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the file was cut short meanwhile and bytes are lost.
    ///
    /// # Panics
    ///
    /// In a forked child, because the draft belongs to its parent.
    pub fn freeze(self) -> Result<Blob> {
        self.check_process();
        if !self.0.file().is_uncut() {
            return Err(Error::new(ErrorKind::Corrupt, "blob freeze"));
        }
        Ok(Blob(Bytes::Lent(self.0.share())))
    }

    /// Whether it can be used: false in a forked child.
    #[doc(hidden)]
    pub fn is_here(&self) -> bool {
        self.0.is_here()
    }

    fn check_process(&self) {
        assert!(self.is_here(), "a draft of a blob belongs to the process that made it");
    }
}

impl Deref for BlobMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.file().bytes(self.0.len())
    }
}

impl DerefMut for BlobMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.check_process();
        let len = self.0.len();
        self.0.file_mut().bytes_mut(len)
    }
}

impl fmt::Debug for BlobMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobMut").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

/// Bytes in shared memory that do not change as long as any process holds them. Clones are the same
/// bytes.
///
/// The memory is freed when its last holder has dropped it or died, and no message in a slot names
/// it any more.
#[derive(Clone)]
pub struct Blob(Bytes);

#[derive(Clone)]
enum Bytes {
    Lent(Arc<Hold>),
    Copied(Arc<Copied>),
}

/// The bytes of a file that another user may change.
struct Copied {
    bytes: Vec<u8>,
    _counted: Counted,
}

/// A blob that a slot is about to name, held by this process meanwhile.
#[derive(Clone)]
pub(crate) struct Named(Arc<Hold>);

impl Named {
    /// Counts a slot that is about to name the blob. `None` if it has no file in this channel: it
    /// belongs to another one, or is a copy.
    pub(crate) fn new(store: &Arc<Store>, blob: &Blob, slot: u32) -> Option<Named> {
        match &blob.0 {
            Bytes::Lent(hold) if hold.is_of(store) => {
                hold.file().add_name(slot);
                Some(Named(Arc::clone(hold)))
            }
            _ => None,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Records that the slot does not name the blob.
    pub(crate) fn remove(self) {
        self.0.file().remove_name();
    }
}

/// A file that a slot is about to stop naming.
pub(crate) struct Detaching {
    found: Found,
    /// The word from before the slot's step.
    seen: file::Named,
}

impl Detaching {
    /// Called before the slot's step. `None` if there is no such file: then there is no count to
    /// change.
    pub(crate) fn find(store: &Arc<Store>, handle: &Handle) -> Option<Detaching> {
        let found = store.detaching(handle)?;
        Some(Detaching { seen: found.file().named(), found })
    }

    /// Records that the slot no longer names it. Called after the slot's step.
    pub(crate) fn remove(self) {
        self.found.remove_name(self.seen);
    }
}

impl Blob {
    /// Receives the blob that a slot names. The slot must name it until this returns. `TooLong` if
    /// it has to be copied and has more than `most` bytes. This process may not have a claim on the
    /// message: other threads of it do not find the blob before it is [shared](Blob::share).
    pub(crate) fn receive(
        store: &Arc<Store>,
        handle: &Handle,
        most: usize,
        op: &'static str,
    ) -> Result<Blob> {
        if store.only_reads() {
            if handle.len > most as u64 {
                return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::BlobsCopied));
            }
            let counted = store.count_copy(handle.len as usize, op)?;
            let bytes = store.copy_out(handle, op)?;
            store.count_copied();
            return Ok(Blob(Bytes::Copied(Arc::new(Copied { bytes, _counted: counted }))));
        }
        let hold = store.receive(handle, op)?;
        if hold.file().is_trusted() {
            return Ok(Blob(Bytes::Lent(hold)));
        }
        if hold.len() > most {
            return Err(Error::with_explanation(ErrorKind::TooLong, op, Explanation::BlobsCopied));
        }
        let mut bytes = Vec::new();
        let copied = hold.file().region(hold.len()).append_to(hold.len(), &mut bytes);
        store.count_copied();
        match copied {
            Ok(true) if hold.file().is_uncut() => {
                drop(hold); // otherwise its bytes count twice: as a hold and as a copy
                let counted = store.count_copy(bytes.len(), op)?;
                Ok(Blob(Bytes::Copied(Arc::new(Copied { bytes, _counted: counted }))))
            }
            Ok(_) => Err(Error::new(ErrorKind::Corrupt, op)),
            Err(errno) => Err(errno.at(op)),
        }
    }

    /// Makes it findable: if this process receives the same blob, it gets this one.
    pub(crate) fn share(&self) {
        if let Bytes::Lent(hold) = &self.0 {
            hold.make_findable();
        }
    }

    /// Calls `copy` with the bytes of the blob that a slot names, and their number. The slot must
    /// name it until this returns.
    pub(crate) fn read<T>(
        store: &Arc<Store>,
        handle: &Handle,
        op: &'static str,
        copy: impl FnOnce(&Region, usize) -> T,
    ) -> Result<T> {
        store.read(handle, op, copy)
    }

    /// This blob, or a copy of it if messages of the store's channel cannot name it: it belongs to another
    /// one, or is a copy.
    pub(crate) fn within(&self, store: &Arc<Store>, op: &'static str) -> Result<Blob> {
        match &self.0 {
            Bytes::Lent(hold) if hold.is_of(store) => Ok(self.clone()),
            _ => Blob::copy_of(store, self, op).inspect(|_| store.count_copied()),
        }
    }

    /// A new blob with these bytes.
    pub(crate) fn copy_of(store: &Arc<Store>, bytes: &[u8], op: &'static str) -> Result<Blob> {
        let mut draft = store.draft(bytes.len(), op)?;
        draft.file_mut().bytes_mut(bytes.len()).copy_from_slice(bytes);
        // A look at the file's length would cost as much as the copy, and the file may be cut short
        // at any later time.
        if draft.file().is_whole() {
            Ok(Blob(Bytes::Lent(draft.share())))
        } else {
            Err(Error::new(ErrorKind::Corrupt, op))
        }
    }

    /// Its bytes as a vector.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Copied(copied) => {
                Arc::try_unwrap(copied).map_or_else(|shared| shared.bytes.clone(), |copied| copied.bytes)
            }
            Bytes::Lent(_) => self.to_vec(),
        }
    }

    /// Whether this process got its own copy, because another user owns the file or may change it.
    pub fn is_copied(&self) -> bool {
        matches!(self.0, Bytes::Copied(_))
    }

    /// Fails if some of its bytes are lost.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the file was cut short: the missing bytes read as zero here.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Bytes::Lent(hold) if !hold.file().is_uncut() => Err(Error::new(ErrorKind::Corrupt, "blob check")),
            _ => Ok(()),
        }
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Lent(hold) => hold.file().bytes(hold.len()),
            Bytes::Copied(copied) => &copied.bytes,
        }
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A list of only this blob.
impl AsRef<[Blob]> for Blob {
    fn as_ref(&self) -> &[Blob] {
        std::slice::from_ref(self)
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blob").field("len", &self.len()).field("is_copied", &self.is_copied()).finish()
    }
}
