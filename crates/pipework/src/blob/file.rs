//! The file of one blob: its header, its bytes, and the two locks that say whether it is in use.
//!
//! Invariant: a file in which nobody has a lock and which no slot names stays so. A process takes a
//! lock only where a slot names the file or where it holds it already, and a slot names it only
//! where a process holds it. So a file that was seen in that state may be freed at any later time.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::slice;

use crate::region::{Mapping, Region};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::sys::memory::{self, Facts, KnownFile};
use crate::sys::{self, Errno};

/// Bytes in front of the data.
pub(super) const HEADER: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"pipeblob");
const FORMAT: u64 = 1;
/// Data of more bytes than this is rounded up coarsely, so that files can be used again for data of
/// other lengths.
const COARSE: usize = 64 << 10;
const PAGE: usize = 4096;

/// A process that did not make the file, and holds it, has this byte locked.
const HOLDERS: u64 = 0;
/// The process that made the file has this byte locked for as long as it may use it again.
const MAKER: u64 = 1;

/// What the name of a file begins with that is being made, where the file system has no files
/// without a name.
pub(super) const NEW: &str = "new-";

/// How often a word is swapped before a peer must have broken the rules.
const TURNS: usize = 1000;

/// The name of a blob's file: random, and never used for another file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) [u8; 16]);

impl Name {
    fn random() -> Result<Name, Errno> {
        let mut name = [0; 16];
        for part in name.chunks_exact_mut(4) {
            part.copy_from_slice(&sys::random()?.to_le_bytes());
        }
        Ok(Name(name))
    }

    /// The name that a file in the folder has; `None` for a file of something else.
    pub(crate) fn parse(text: &str) -> Option<Name> {
        let bits = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok())??;
        Some(Name(bits.to_be_bytes()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a slot names a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) name: Name,
    /// Which use of the file it is. The maker uses a file again and again.
    pub(crate) generation: u64,
    /// Bytes of the blob.
    pub(crate) len: u64,
}

impl Handle {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Handle::BYTES] {
        let mut bytes = [0; Handle::BYTES];
        bytes[..16].copy_from_slice(&self.name.0);
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Handle::BYTES]) -> Handle {
        let (name, numbers) = bytes.split_first_chunk().expect("16 of 32 bytes");
        let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        Handle { name: Name(*name), generation: number(0), len: number(8) }
    }
}

/// What lies at the beginning of a blob's file.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    format: AtomicU64,
    /// Which use of the file this is; 0 once the file is freed.
    generation: AtomicU64,
    /// Bytes of data that have pages.
    capacity: AtomicU64,
    /// A [`Named`]. Only a process that has a lock changes the count.
    named: AtomicU64,
}

/// `{ version: 31, doubted: 1, count: 32 }`: how many slots name the file. The version grows with
/// each change. A death may leave the count too high, and never too low; then it is doubted until
/// a process has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named(u64);

impl Named {
    fn count(self) -> u32 {
        self.0 as u32
    }

    fn is_doubted(self) -> bool {
        self.0 & 1 << 32 != 0
    }

    fn next(self, is_doubted: bool, count: u32) -> Named {
        let version = (self.0 >> 33).wrapping_add(1);
        Named(version << 33 | u64::from(is_doubted) << 32 | u64::from(count))
    }

    /// After a slot more names the file, or one less. `None` if the count leaves its range, which
    /// peers of ours never bring about.
    fn counted(self, more: bool) -> Option<Named> {
        let count = self.count();
        let count = if more { count.checked_add(1) } else { count.checked_sub(1) }?;
        Some(self.next(self.is_doubted(), count))
    }
}

/// The slots of a channel.
pub(crate) trait Slots: fmt::Debug + Send + Sync {
    /// How many times slots name a file now.
    fn naming(&self, name: Name) -> u32;
}

/// A blob's file that this process has open and mapped.
#[derive(Debug)]
pub(super) struct BlobFile {
    pub(super) name: Name,
    mapping: Mapping,
    fd: KnownFile,
    facts: Facts,
}

impl BlobFile {
    /// Makes a file for at least `len` bytes in `folder`, and locks it as its maker. All of its pages
    /// are allocated: ENOSPC is an error here.
    pub(super) fn create(folder: &Path, mode: u32, len: usize) -> Result<BlobFile, Errno> {
        let name = Name::random()?;
        match memory::create_unnamed(folder) {
            Ok(file) => {
                let made = BlobFile::fill(name, file, mode, len)?;
                match memory::link(made.fd.as_fd(), &path_of(folder, name)) {
                    // Without /proc, a file without a name cannot be given one.
                    Err(Errno::NOENT) => BlobFile::create_named(folder, name, mode, len),
                    linked => linked.map(|()| made),
                }
            }
            Err(Errno::OPNOTSUPP) => BlobFile::create_named(folder, name, mode, len),
            Err(errno) => Err(errno),
        }
    }

    /// The same on a file system without unnamed files: under another name first, so that a name of
    /// this kind always is of a file that is complete and locked.
    fn create_named(folder: &Path, name: Name, mode: u32, len: usize) -> Result<BlobFile, Errno> {
        let beside = folder.join(format!("{NEW}{name}"));
        let made = BlobFile::fill(name, memory::create_named(&beside)?, mode, len).and_then(|made| {
            memory::rename_new(&beside, &path_of(folder, name))?;
            Ok(made)
        });
        if made.is_err() {
            // Best effort: the caller must get the error that made this fail. A sweep that took
            // it for what a death has left was quicker: that is ENOENT.
            let _ = memory::unlink(&beside);
        }
        made
    }

    fn fill(name: Name, file: OwnedFd, mode: u32, len: usize) -> Result<BlobFile, Errno> {
        let fd = file.as_fd();
        memory::lock_shared(fd, MAKER)?;
        memory::set_mode(fd, mode)?;
        let capacity = capacity_for(len).ok_or(Errno::NOMEM)?;
        memory::reserve(fd, 0, (HEADER + capacity) as u64)?;
        let facts = memory::facts(fd)?;
        let mapping = Mapping::new(fd, HEADER + capacity)?;
        let file = BlobFile { name, mapping, fd: KnownFile::new(file, facts.identity), facts };
        // SAFETY: it is mapped, and longer than `len`.
        unsafe { memory::populate(file.mapping.start(), HEADER + len) };
        let header = file.header();
        // Relaxed: the file has no name yet, and the swap of a slot publishes it later.
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.format.store(FORMAT, Ordering::Relaxed);
        header.capacity.store(capacity as u64, Ordering::Relaxed);
        Ok(file)
    }

    /// Opens the file of that name. `None` for anything but such a file.
    pub(super) fn open(folder: &Path, name: Name) -> Result<Option<BlobFile>, Errno> {
        let file = memory::open(&path_of(folder, name))?;
        let fd = file.as_fd();
        let facts = memory::facts(fd)?;
        let len = usize::try_from(facts.len).map_err(|_| Errno::NOMEM)?;
        if !facts.is_regular || len < HEADER || !len.is_multiple_of(PAGE) {
            return Ok(None);
        }
        let mapping = Mapping::new(fd, len)?;
        let file = BlobFile { name, mapping, fd: KnownFile::new(file, facts.identity), facts };
        Ok(file.is_sound().then_some(file))
    }

    fn is_sound(&self) -> bool {
        let header = self.header();
        let capacity = (self.mapping.len() - HEADER) as u64;
        header.magic.load(Ordering::Relaxed) == MAGIC
            && header.format.load(Ordering::Relaxed) == FORMAT
            && header.capacity.load(Ordering::Relaxed) == capacity
            && self.is_whole()
    }

    /// Whether it is the blob that the handle names.
    pub(super) fn is(&self, handle: &Handle) -> bool {
        self.name == handle.name
            && self.generation() == handle.generation
            && handle.generation != 0
            && handle.len <= self.capacity() as u64
    }

    /// False once a page of it was missing when it was touched: it was cut short.
    pub(super) fn is_whole(&self) -> bool {
        self.mapping.is_whole()
    }

    /// Whether nobody but this process's user may change its bytes.
    pub(super) fn is_trusted(&self) -> bool {
        self.facts.owner == memory::user() && self.facts.mode & 0o022 == 0
    }

    pub(super) fn capacity(&self) -> usize {
        self.mapping.len() - HEADER
    }

    pub(super) fn generation(&self) -> u64 {
        self.header().generation.load(Ordering::Acquire)
    }

    /// Begins the next use of the file. By its maker, of a file that [is unused](Self::is_unused).
    pub(super) fn renew(&self) -> u64 {
        // A peer may have written any number there.
        let generation = self.generation().wrapping_add(1).max(1);
        // Relaxed: the swap of a slot publishes it.
        self.header().generation.store(generation, Ordering::Relaxed);
        generation
    }

    /// Counts a slot that is to name it. By a process that holds it, before the slot does.
    pub(super) fn add_name(&self) {
        self.count(true);
    }

    /// Counts a slot less. By the process that made the slot's step, after that.
    pub(super) fn remove_name(&self) {
        self.count(false);
    }

    fn count(&self, more: bool) {
        self.change(|named| named.counted(more));
    }

    /// A death may have left the count too high: the next process that finds nobody holding the
    /// file is to ask the slots.
    pub(super) fn doubt(&self) {
        self.change(|named| (named.count() > 0).then(|| named.next(true, named.count())));
    }

    fn change(&self, next: impl Fn(Named) -> Option<Named>) {
        let mut now = self.named();
        for _ in 0..TURNS {
            let Some(next) = next(now) else { return };
            if self.replace(now, next) {
                return;
            }
            now = self.named();
        }
    }

    fn named(&self) -> Named {
        Named(self.header().named.load(Ordering::Acquire))
    }

    fn replace(&self, from: Named, to: Named) -> bool {
        // AcqRel: what was done with the bytes comes before the count, and a process that sees the
        // count does what follows after it.
        self.header().named.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Locks it as a holder. Peers of ours have no lock that stands against this one.
    pub(super) fn hold(&self) -> Result<(), Errno> {
        if self.is_intact() { memory::lock_shared(self.fd.as_fd(), HOLDERS) } else { Err(Errno::BADF) }
    }

    /// Gives the lock of a holder back.
    pub(super) fn let_go(&self) {
        self.unlock(HOLDERS);
    }

    /// Gives up being its maker: it is not used again by this process.
    pub(super) fn give_up(&self) {
        self.unlock(MAKER);
    }

    fn unlock(&self, byte: u64) {
        if self.is_intact() {
            // As in `observe`.
            fence(Ordering::SeqCst);
            // It fails for no open file. Otherwise the lock goes with the mapping.
            let _ = memory::unlock(self.fd.as_fd(), byte);
        }
    }

    fn is_intact(&self) -> bool {
        memory::is_of(self.fd.as_fd(), self.facts.identity)
    }

    /// Whether it has its name and its length. Somebody may have removed the folder.
    pub(super) fn is_there(&self) -> bool {
        self.is_uncut() && self.names_and_len().is_some_and(|(names, _)| names > 0)
    }

    /// As [`is_whole`](Self::is_whole), and asks the kernel: of a file that was cut short within its
    /// last page, no page is missing.
    pub(super) fn is_uncut(&self) -> bool {
        self.is_whole() && self.names_and_len().is_none_or(|(_, len)| len >= self.mapping.len() as u64)
    }

    fn names_and_len(&self) -> Option<(u64, u64)> {
        memory::names_and_len(self.fd.as_fd(), self.facts.identity)
    }

    /// Whether its maker, this process, can use it again: no slot names it, and nobody else holds
    /// it.
    pub(super) fn is_unused(&self, slots: Option<&dyn Slots>) -> bool {
        self.observe(HOLDERS..MAKER, slots)
    }

    /// Frees it if nobody holds it and no slot names it; true if that was so. For a process that has
    /// no lock of it any more. It looks after everything it did that can have brought that about: it
    /// unlocked it, and before that, a slot may have stopped to name it.
    pub(super) fn look(&self, folder: &Path, slots: Option<&dyn Slots>) -> bool {
        let is_garbage = self.observe(HOLDERS..MAKER + 1, slots);
        if is_garbage {
            // Relaxed: nobody holds it or finds it in a slot.
            self.header().generation.store(0, Ordering::Relaxed);
            // Mappings that other processes keep for later cost no memory then. No error can be
            // reported to anybody; a file that stays is found by the next sweep.
            let _ = memory::punch(self.fd.as_fd(), HEADER as u64, self.capacity() as u64);
            let _ = memory::unlink(&path_of(folder, self.name));
        }
        is_garbage
    }

    /// Whether there was a moment at which nobody else had one of these locks and no slot named it.
    fn observe(&self, locks: std::ops::Range<u64>, slots: Option<&dyn Slots>) -> bool {
        let is_free = || {
            // The kernel may find no lock without taking a lock of its own: what it is asked between
            // two looks at the count has to be asked there.
            fence(Ordering::SeqCst);
            let asked = memory::is_any_locked(self.fd.as_fd(), locks.clone());
            fence(Ordering::SeqCst);
            self.is_intact() && asked == Ok(false)
        };
        // A process that changed the word meanwhile may have died before it looked.
        for _ in 0..TURNS {
            let named = self.named();
            // The process that makes a slot stop naming it looks then, unless that has died.
            if named.count() > 0 && !named.is_doubted() || !is_free() {
                return false;
            }
            let mut found = 0;
            if named.count() > 0 {
                let Some(slots) = slots else { return false };
                found = slots.naming(self.name);
                if !is_free() {
                    return false;
                }
            }
            let is_unchanged = match named.count() {
                0 => self.named() == named,
                _ => self.replace(named, named.next(false, found)),
            };
            if is_unchanged {
                return found == 0;
            }
        }
        false
    }

    /// Its first `len` bytes, which nobody changes as long as it is held. For a trusted file only.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.capacity());
        // SAFETY: they are mapped for as long as this lives. The caller holds a blob that was
        // frozen: no process of ours writes to it, and no other user may.
        unsafe { slice::from_raw_parts(self.mapping.start().as_ptr().add(HEADER), len) }
    }

    /// Its first `len` bytes, to be written. By its maker, before any slot names this use of it.
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.capacity());
        // SAFETY: as above; no other process holds it, and this one has it borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.mapping.start().as_ptr().add(HEADER), len) }
    }

    /// Its first `len` bytes, which others may change meanwhile.
    pub(super) fn region(&self, len: usize) -> Region {
        assert!(len <= self.capacity());
        // SAFETY: they are mapped for as long as this lives, and nobody has a reference to a file
        // that is not trusted.
        unsafe { Region::new(self.mapping.start().add(HEADER), len, len) }
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header, aligned to a page, and nothing but atomics
        // refers to these bytes.
        unsafe { self.mapping.start().cast::<Header>().as_ref() }
    }
}

pub(super) fn path_of(folder: &Path, name: Name) -> PathBuf {
    folder.join(name.to_string())
}

/// Bytes of data that a file for `len` bytes has; `None` if there is no such number.
fn capacity_for(len: usize) -> Option<usize> {
    let step = if len <= COARSE { PAGE } else { (len.checked_next_power_of_two()? / 16).max(PAGE) };
    len.max(1).checked_next_multiple_of(step).filter(|bytes| bytes.checked_add(HEADER).is_some())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn capacities_waste_an_eighth_at_most() {
        for len in [0, 1, 4096, 4097, 65536, 65537, 100_000, 1 << 20, (1 << 20) + 1, 8_294_400, 1 << 30] {
            let capacity = capacity_for(len).unwrap();
            assert!(capacity >= len && capacity.is_multiple_of(PAGE), "{len}");
            assert!(capacity - len <= (len / 8).max(PAGE), "{len}: {capacity}");
        }
        assert_eq!(capacity_for(usize::MAX), None);
    }

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let handle = Handle { name: Name(*b"0123456789abcdef"), generation: 7, len: 1 << 40 };
        assert_eq!(Handle::decode(&handle.encode()), handle);
        assert_eq!(Name::parse(&handle.name.to_string()), Some(handle.name));
        assert_eq!(Name::parse("x"), None);
    }

    #[test]
    fn the_count_of_names_stays_in_its_range_and_each_change_has_a_version() {
        let one = Named(0).counted(true).unwrap();
        assert_eq!((one.count(), one.is_doubted(), one.0 >> 33), (1, false, 1));
        let doubted = one.next(true, 1);
        let none = doubted.counted(false).unwrap();
        assert_eq!((none.count(), none.is_doubted(), none.0 >> 33), (0, true, 3));
        assert_eq!((Named(0).counted(false), Named(u64::from(u32::MAX)).counted(true)), (None, None));
        assert_eq!(Named(u64::MAX << 33).counted(true), Some(Named(1)));
    }
}
