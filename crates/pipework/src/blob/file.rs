//! The file of one blob: its header, its bytes, and the two locks that show whether it is in use.
//!
//! Invariant: once no process has a lock of a file and no slot names it, this stays so. A process
//! takes a lock only if a slot names the file or if it holds the file already, and a slot names a
//! file only while a process holds it. So a file that was seen in that state may be freed at any
//! later time.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::slice;

use crate::region::{self, Mapping, Region};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::sys::known::KnownFile;
use crate::sys::memory::{self, Facts};
use crate::sys::{self, Errno};

/// Bytes in front of the data.
pub(super) const HEADER: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"pipeblob");
const FORMAT: u64 = 1;
/// Data of more bytes than this is rounded up coarsely, so that a file fits later blobs of other
/// lengths, too.
const COARSE: usize = 64 << 10;
const PAGE: usize = 4096;

/// A process that holds the file and did not make it has locked this byte.
const HOLDERS: u64 = 0;
/// The process that made the file has locked this byte as long as it may use the file again.
const MAKER: u64 = 1;

/// The prefix of a file's name while it is being made, on file systems without unnamed files.
pub(super) const NEW: &str = "new-";

/// How many times a swap of a word is tried before a peer must have broken the rules.
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

    /// The blob name of a file in the folder; `None` for any other file.
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
    /// The use of the file that the slot means. The maker uses a file again and again.
    pub(crate) generation: u64,
    /// Bytes of the blob.
    pub(crate) len: u64,
}

impl Handle {
    /// As it lies in a slot.
    pub(crate) fn to_words(self) -> [u64; 4] {
        let name = u128::from_le_bytes(self.name.0);
        [name as u64, (name >> 64) as u64, self.generation, self.len]
    }

    pub(crate) fn from_words([low, high, generation, len]: [u64; 4]) -> Handle {
        let name = u128::from(low) | u128::from(high) << 64;
        Handle { name: Name(name.to_le_bytes()), generation, len }
    }
}

/// The header of a blob's file.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    format: AtomicU64,
    /// The current use of the file; 0 once the file is freed.
    generation: AtomicU64,
    /// Bytes of data that have pages.
    capacity: AtomicU64,
    /// A [`Named`]. Only a process with a lock raises the count.
    named: AtomicU64,
    /// The slot that last began to name the file. A hint: any process may have written any number.
    near: AtomicU64,
}

/// The bytes of a blob, copied out of its file, which stays unlocked and unchanged. `None` if the file does
/// not have it.
pub(super) fn copy_out(folder: &Path, handle: &Handle) -> Result<Option<Vec<u8>>, Errno> {
    const WORDS: usize = size_of::<Header>() / 8;
    let file = memory::open_to_read(&path_of(folder, handle.name))?;
    let facts = memory::facts(file.as_fd())?;
    let mut header = [0; 8 * WORDS];
    let read = memory::read_at(file.as_fd(), &mut header, 0)?;
    let word = |idx: usize| u64::from_le_bytes(header[8 * idx..8 * idx + 8].try_into().expect("eight bytes"));
    let is_it = facts.is_regular
        && read == header.len()
        && [word(0), word(1), word(2)] == [MAGIC, FORMAT, handle.generation]
        && facts.len.checked_sub(HEADER as u64).is_some_and(|space| handle.len <= space);
    if !is_it {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    region::reserve(&mut bytes, handle.len as usize)?;
    bytes.resize(handle.len as usize, 0);
    let read = memory::read_at(file.as_fd(), &mut bytes, HEADER as u64)?;
    Ok((read == bytes.len()).then_some(bytes))
}

/// `{ version: 31, doubted: 1, count: 32 }`: how many slots name the file. The version grows with
/// each change. A death may leave the count too high, but never too low, and the file without a
/// maker; then the count is doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named(u64);

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

    /// The word after one more slot names the file, or one less. `None` if the count leaves its
    /// range, which only peers that break the rules can cause.
    fn counted(self, more: bool) -> Option<Named> {
        let count = self.count();
        let count = if more { count.checked_add(1) } else { count.checked_sub(1) }?;
        Some(self.next(self.is_doubted(), count))
    }
}

/// The slots of a channel.
pub(crate) trait Slots: fmt::Debug + Send + Sync {
    /// How many handles in slots name a file now; `most` if there are as many or more. The search
    /// begins at the slot `near`.
    fn naming(&self, name: Name, near: u64, most: u32) -> u32;
}

/// A blob's file that this process has open and mapped.
#[derive(Debug)]
pub(super) struct BlobFile {
    pub(super) name: Name,
    mapping: Mapping,
    fd: KnownFile,
    facts: Facts,
    /// Bytes that its file system had free, and all of its bytes, when this process made it.
    space: Option<(u64, u64)>,
}

impl BlobFile {
    /// Makes a file for at least `len` bytes in `folder`, and locks it as its maker. All of its
    /// pages are allocated here, so ENOSPC is an error of this function.
    pub(super) fn create(folder: &Path, mode: u32, len: usize) -> Result<BlobFile, Errno> {
        let name = Name::random()?;
        match memory::create_unnamed(folder) {
            Ok(file) => {
                let made = BlobFile::fill(name, file, mode, len)?;
                match memory::link(made.fd.as_fd(), &path_of(folder, name)) {
                    // Without /proc, an unnamed file cannot be given a name.
                    Err(Errno::NOENT) => BlobFile::create_named(folder, name, mode, len),
                    linked => linked.map(|()| made),
                }
            }
            Err(Errno::OPNOTSUPP) => BlobFile::create_named(folder, name, mode, len),
            Err(errno) => Err(errno),
        }
    }

    /// The same on a file system without unnamed files. The file has another name first, so that a
    /// file with a blob's name is always complete and locked.
    fn create_named(folder: &Path, name: Name, mode: u32, len: usize) -> Result<BlobFile, Errno> {
        let beside = folder.join(format!("{NEW}{name}"));
        let made = BlobFile::fill(name, memory::create_named(&beside)?, mode, len).and_then(|made| {
            memory::rename_new(&beside, &path_of(folder, name))?;
            Ok(made)
        });
        if made.is_err() {
            // Best effort: the caller must get the error that made this fail. It is ENOENT if a
            // sweep mistook the file for one of a dead process and removed it.
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
        let space = memory::space(fd);
        let fd = KnownFile::new(file, facts.identity);
        let file = BlobFile { name, mapping, fd, facts, space };
        // SAFETY: it is mapped, and longer than `len`.
        unsafe { memory::populate(file.mapping.start(), HEADER + len) };
        let header = file.header();
        // Relaxed: the file has no name yet, and the swap of a slot's word publishes it later.
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.format.store(FORMAT, Ordering::Relaxed);
        header.capacity.store(capacity as u64, Ordering::Relaxed);
        Ok(file)
    }

    /// Opens the file of that name. `None` if it is not a sound blob file.
    pub(super) fn open(folder: &Path, name: Name) -> Result<Option<BlobFile>, Errno> {
        let file = memory::open(&path_of(folder, name))?;
        let fd = file.as_fd();
        let facts = memory::facts(fd)?;
        let len = usize::try_from(facts.len).map_err(|_| Errno::NOMEM)?;
        if !facts.is_regular || len < HEADER || !len.is_multiple_of(PAGE) {
            return Ok(None);
        }
        let mapping = Mapping::new(fd, len)?;
        let fd = KnownFile::new(file, facts.identity);
        let file = BlobFile { name, mapping, fd, facts, space: None };
        Ok(file.is_sound().then_some(file))
    }

    /// Whether a process has a lock of the file of that name.
    pub(super) fn is_locked(folder: &Path, name: Name) -> Result<bool, Errno> {
        let file = memory::open(&path_of(folder, name))?;
        memory::is_any_locked(file.as_fd(), HOLDERS..MAKER + 1)
    }

    fn is_sound(&self) -> bool {
        let header = self.header();
        let capacity = (self.mapping.len() - HEADER) as u64;
        header.magic.load(Ordering::Relaxed) == MAGIC
            && header.format.load(Ordering::Relaxed) == FORMAT
            && header.capacity.load(Ordering::Relaxed) == capacity
            && self.is_whole()
    }

    /// Whether this file still is the blob that the handle names.
    pub(super) fn is(&self, handle: &Handle) -> bool {
        self.name == handle.name
            && self.generation() == handle.generation
            && handle.generation != 0
            && handle.len <= self.capacity() as u64
    }

    /// False once a touched page of it was missing because the file was cut short.
    pub(super) fn is_whole(&self) -> bool {
        self.mapping.is_whole()
    }

    /// Whether its file system had this many bytes to spare when this process made it, or half of
    /// all that it has.
    pub(super) fn left_free(&self, bytes: u64) -> bool {
        self.space.is_none_or(|(free, all)| free >= bytes.min(all / 2))
    }

    /// Whether only this process's user may change its bytes.
    pub(super) fn is_trusted(&self) -> bool {
        self.facts.owner == memory::user() && self.facts.mode & 0o022 == 0
    }

    pub(super) fn capacity(&self) -> usize {
        self.mapping.len() - HEADER
    }

    pub(super) fn generation(&self) -> u64 {
        self.header().generation.load(Ordering::Acquire)
    }

    /// Starts the next use of the file. Called by its maker, for a file that [is
    /// unused](Self::is_unused).
    pub(super) fn renew(&self) -> u64 {
        // A peer may have written any number there.
        let generation = self.generation().wrapping_add(1).max(1);
        // Relaxed: the swap of a slot's word publishes it.
        self.header().generation.store(generation, Ordering::Relaxed);
        generation
    }

    /// Counts a slot that is to name the file. Called by a process that holds it, before the slot
    /// names it.
    pub(super) fn add_name(&self, slot: u32) {
        self.header().near.store(slot.into(), Ordering::Relaxed);
        self.count(true);
    }

    /// Counts one slot less. Called by the process that made the slot's step, after the step, if it
    /// holds the file or is its maker.
    pub(super) fn remove_name(&self) {
        self.count(false);
    }

    /// The same by any other process. `seen` is the word from before the step: if it has changed,
    /// a process may have counted the slots after the step. Returns whether the caller must look.
    pub(super) fn remove_seen_name(&self, seen: Named) -> bool {
        match seen.counted(false) {
            Some(next) if self.replace(seen, next) => next.is_doubted(),
            _ => {
                self.doubt();
                true
            }
        }
    }

    fn count(&self, more: bool) {
        self.change(|named| named.counted(more));
    }

    /// Records that a death may have left the count too high, and that the file may have no maker:
    /// from now on, processes that detach it look at it, and one that finds no holder counts the
    /// slots.
    pub(super) fn doubt(&self) {
        self.change(|named| Some(named.next(true, named.count())));
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

    pub(super) fn named(&self) -> Named {
        Named(self.header().named.load(Ordering::Acquire))
    }

    fn near(&self) -> u64 {
        self.header().near.load(Ordering::Relaxed)
    }

    fn replace(&self, from: Named, to: Named) -> bool {
        // AcqRel: accesses to the bytes come before the count, and a process that sees the count
        // makes its next accesses after it.
        self.header().named.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Locks it as a holder. No process that keeps the rules has a conflicting lock.
    pub(super) fn hold(&self) -> Result<(), Errno> {
        if self.is_intact() { memory::lock_shared(self.fd.as_fd(), HOLDERS) } else { Err(Errno::BADF) }
    }

    /// Releases the lock of a holder.
    pub(super) fn let_go(&self) {
        self.unlock(HOLDERS);
    }

    /// Releases the maker's lock: this process does not use the file again.
    pub(super) fn give_up(&self) {
        self.doubt();
        self.unlock(MAKER);
    }

    fn unlock(&self, byte: u64) {
        if self.is_intact() {
            // As in `observe`.
            fence(Ordering::SeqCst);
            // It cannot fail for an open file, and the kernel would release the lock with the
            // mapping anyway.
            let _ = memory::unlock(self.fd.as_fd(), byte);
        }
    }

    fn is_intact(&self) -> bool {
        self.fd.is_intact()
    }

    /// Whether it still has its name and its length. Another program may have removed the folder.
    pub(super) fn is_there(&self) -> bool {
        self.is_whole() && self.names_and_len().is_some_and(|(names, len)| names > 0 && self.fits(len))
    }

    /// As [`is_whole`](Self::is_whole), but asks the kernel: a file that was cut short within its
    /// last page misses no page.
    pub(super) fn is_uncut(&self) -> bool {
        self.is_whole() && self.names_and_len().is_none_or(|(_, len)| self.fits(len))
    }

    fn fits(&self, len: u64) -> bool {
        len >= self.mapping.len() as u64
    }

    fn names_and_len(&self) -> Option<(u64, u64)> {
        memory::names_and_len(self.fd.as_fd(), self.facts.identity)
    }

    /// Whether its maker, this process, can use it again: no slot names it, and no other process
    /// holds it. The answer is right only if the file [is there](Self::is_there) afterwards.
    pub(super) fn is_unused(&self, slots: Option<&dyn Slots>) -> bool {
        self.observe(true, slots)
    }

    /// Frees the file if no process holds it and no slot names it; returns whether it did. The
    /// caller has no lock of it. It calls this after every action that can have made the file free:
    /// after it unlocked the file, and after it lowered a doubted count.
    pub(super) fn look(&self, folder: &Path, slots: Option<&dyn Slots>) -> bool {
        let is_garbage = self.observe(false, slots) && self.is_intact();
        if is_garbage {
            // Relaxed: no process holds the file or finds it in a slot.
            self.header().generation.store(0, Ordering::Relaxed);
            // The hole saves the memory of mappings that other processes keep for later. There is
            // no caller to report an error to; a file that stays is found by the next sweep.
            let _ = memory::punch(self.fd.as_fd(), HEADER as u64, self.capacity() as u64);
            let _ = memory::unlink(&path_of(folder, self.name));
        }
        is_garbage
    }

    /// Bytes that the file takes.
    pub(super) fn size(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Whether a process has a lock of it through another open file than this one.
    pub(super) fn is_held(&self) -> bool {
        memory::is_any_locked(self.fd.as_fd(), HOLDERS..MAKER + 1) != Ok(false)
    }

    /// Whether a slot names it. If `is_held`, it reads only the count, which a death may have left
    /// too high.
    pub(super) fn is_named(&self, is_held: bool, slots: Option<&dyn Slots>) -> bool {
        let names = self.named().count() > 0;
        names && (is_held || slots.is_none_or(|slots| slots.naming(self.name, self.near(), 1) > 0))
    }

    /// Whether at some moment no other process held the file, no slot named it, and, unless this
    /// process `is_maker`, it had no maker. The answer is right only if the descriptor is intact
    /// afterwards.
    fn observe(&self, is_maker: bool, slots: Option<&dyn Slots>) -> bool {
        let is_free = || {
            // The kernel may find no lock without taking a lock of its own, so the fence keeps the
            // question to the kernel between the two looks at the count.
            fence(Ordering::SeqCst);
            let locks = if is_maker { HOLDERS..MAKER } else { HOLDERS..MAKER + 1 };
            let asked = memory::is_any_locked(self.fd.as_fd(), locks);
            fence(Ordering::SeqCst);
            asked == Ok(false)
        };
        // A process that changed the word meanwhile may have died before it looked.
        for _ in 0..TURNS {
            let named = self.named();
            // As long as the count is not doubted, the file has a maker, or the sweep after its
            // maker's death looks.
            let is_settled = !named.is_doubted() && (named.count() > 0 || !is_maker);
            if is_settled || !is_free() {
                return false;
            }
            let mut found = 0;
            if named.count() > 0 {
                let Some(slots) = slots else { return false };
                // The count is never too low, so the search may end when it has found as many.
                found = slots.naming(self.name, self.near(), named.count());
                if !is_free() || !self.is_intact() {
                    return false;
                }
            }
            let stays = named.count() == 0 && !(is_maker && named.is_doubted());
            let is_unchanged = if stays {
                self.named() == named
            } else {
                // Without a maker, the mark stays.
                self.replace(named, named.next(!is_maker, found))
            };
            if is_unchanged {
                return found == 0;
            }
        }
        false
    }

    /// Its first `len` bytes, which do not change while the file is held. For a trusted file only.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.capacity());
        // SAFETY: they are mapped for as long as this lives. The caller holds a blob that was
        // frozen: no process that keeps the rules writes to it, and no other user may.
        unsafe { slice::from_raw_parts(self.mapping.start().as_ptr().add(HEADER), len) }
    }

    /// Its first `len` bytes, to be written by its maker, before any slot names this use of the
    /// file.
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.capacity());
        // SAFETY: as above; no other process holds it, and this one has it borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.mapping.start().as_ptr().add(HEADER), len) }
    }

    /// Its first `len` bytes, which other processes may change at any time.
    pub(super) fn region(&self, len: usize) -> Region {
        assert!(len <= self.capacity());
        // SAFETY: they are mapped for as long as this lives, and the bytes of an untrusted
        // file are never lent as a reference.
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

/// Bytes of data in a file that is made for `len` bytes; `None` on overflow.
fn capacity_for(len: usize) -> Option<usize> {
    let step = if len <= COARSE { PAGE } else { (len.checked_next_power_of_two()? / 16).max(PAGE) };
    len.max(1).checked_next_multiple_of(step).filter(|bytes| bytes.checked_add(HEADER).is_some())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn capacity_exceeds_the_length_by_at_most_an_eighth() {
        for len in [0, 1, 4096, 4097, 65536, 65537, 100_000, 1 << 20, (1 << 20) + 1, 8_294_400, 1 << 30] {
            let capacity = capacity_for(len).unwrap();
            assert!(capacity >= len && capacity.is_multiple_of(PAGE), "{len}");
            assert!(capacity - len <= (len / 8).max(PAGE), "{len}: {capacity}");
        }
        assert_eq!(capacity_for(usize::MAX), None);
    }

    #[test]
    fn from_words_returns_the_handle_that_to_words_was_given() {
        let handle = Handle { name: Name(*b"0123456789abcdef"), generation: 7, len: 1 << 40 };
        assert_eq!(handle.to_words()[..2], [b"01234567", b"89abcdef"].map(|half| u64::from_le_bytes(*half)));
        assert_eq!(Handle::from_words(handle.to_words()), handle);
        assert_eq!(Name::parse(&handle.name.to_string()), Some(handle.name));
        assert_eq!(Name::parse("x"), None);
    }

    #[test]
    fn named_count_stays_in_its_range_and_each_change_raises_the_version() {
        let one = Named(0).counted(true).unwrap();
        assert_eq!((one.count(), one.is_doubted(), one.0 >> 33), (1, false, 1));
        let doubted = one.next(true, 1);
        let none = doubted.counted(false).unwrap();
        assert_eq!((none.count(), none.is_doubted(), none.0 >> 33), (0, true, 3));
        assert_eq!((Named(0).counted(false), Named(u64::from(u32::MAX)).counted(true)), (None, None));
        assert_eq!(Named(u64::MAX << 33).counted(true), Some(Named(1)));
    }
}
