//! The boundary to the mapping: a checked file in memory, accessed as shared structs.
//!
//! Invariant: the sizes were checked against the file once, are kept in private memory, and are the
//! only source of offsets. This file gives out atomics and [`Region`]s, so any value that a peer
//! writes is a valid value and never leads outside of the mapping.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::header::{
    self, Area, BIRTHPLACE, BIRTHPLACE_AT, COUNTERS_AT, FIXED, Header, MAX_LEN, MEMBER, Sizes,
};
use super::operations::Operations;
use crate::blob::{Folder, Limits, Name, Slots, Store};
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::event::Event;
use crate::region::{Mapping, Region};
use crate::sync::{AtomicU32, AtomicU64, Hint, KeptFd, Ordering};
use crate::sys::known::KnownFile;
use crate::sys::memory::Facts;
use crate::sys::{self, Errno, memory};

/// What a module keeps in a segment, and what this process knows of it.
pub(crate) trait Contents: fmt::Debug + Send + Sync + Sized + 'static {
    /// The module's number in the header.
    const KIND: u32;
    const OPERATIONS: Operations;
    /// The roles of its members. As a number each is 1 to 255.
    type Role: Copy + fmt::Debug + Into<u64> + Send + Sync;

    /// Bytes of a file of these sizes; `None` if they are impossible.
    fn len(sizes: &Sizes) -> Option<usize>;

    /// The areas that hold words; `None` if no page holds only payloads.
    fn words(sizes: &Sizes) -> Option<impl Iterator<Item = Area>>;

    /// For a segment of these sizes, which are possible.
    fn new(sizes: &Sizes, sparse: bool) -> Self;

    /// The role of a member that has this number for it; `None` if there is no such role.
    fn role(number: u64) -> Option<Self::Role>;

    /// How many handles in words of the segment name a file now; `most` if there are as many or more.
    /// The search begins at `near`, the hint of the word that last began to name it.
    fn naming(shared: &Shared<Self>, name: Name, near: u64, most: u32) -> u32;

    /// The entry of a member in a model, whose atomics cannot lie in a file.
    #[cfg(loom)]
    fn member_of_model(&self, _: u16) -> Option<&MemberEntry> {
        None
    }
}

/// A segment that this process has mapped.
#[derive(Debug)]
pub(crate) struct Shared<C: Contents> {
    mapping: Mapping,
    sizes: Sizes,
    /// The module's part.
    pub(crate) own: C,
    /// Opened again for each lock. It holds no lock itself, so a forked child may keep it.
    file: KeptFd,
    path: Option<PathBuf>,
    /// The member that was last checked for being dead.
    pub(crate) looked_at: Hint,
    /// The word at which a recovery in this process last stopped.
    pub(crate) recovered_to: Hint,
    /// Bytes of the last payload that this process has sent or received as a blob; 0 if the wait
    /// after it was too long to spin for.
    pub(crate) long: Hint,
    /// The number at the end of the file, which is there unless the file was cut short.
    mark: u64,
    blobs: OnceLock<Arc<Store>>,
    pub(crate) sweep: Mutex<Option<Sweep>>,
    /// The segment's random number, and its user and permissions.
    random: u64,
    facts: Facts,
    /// Whether this process can only read it.
    is_read_only: bool,
}

/// A sweep of the folder of blobs that has not ended yet.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The process that has begun it.
    pub(crate) process: u32,
    /// Members that were dead before it began.
    pub(crate) begun_for: BTreeMap<u16, u64>,
    /// The files that it has not looked at yet; `None` before it has listed them.
    pub(crate) left: Option<Vec<Name>>,
}

pub(crate) const ROLE: u64 = 0xFF;
pub(crate) const EPOCH: u64 = ROLE + 1;

/// The entry of an attached member in the segment. Its holder writes it; the member that recovers
/// the holder also writes `word`.
#[repr(C, align(64))]
pub(crate) struct MemberEntry {
    /// `{ epoch: 56, role: 8 }`
    pub(crate) word: AtomicU64,
    /// For people.
    pub(crate) pid: AtomicU32,
    _zero: AtomicU32,
    /// Nanoseconds since 1970, for people.
    pub(crate) since: AtomicU64,
    /// The event at which its watch threads wait for steps of others that concern it.
    pub(crate) bell: Event,
    /// The event at which threads of the member wait for whichever comes first of all that it waits
    /// for.
    pub(crate) any: Event,
    /// The words that the module gives a meaning.
    pub(crate) own: CacheLine<[AtomicU64; 8]>,
}

/// The counters of deaths.
#[repr(C)]
pub(crate) struct Recoveries {
    /// Members that died without leaving.
    pub(crate) dead_members: AtomicU64,
    /// Words that were taken back from the dead.
    pub(crate) recovered: AtomicU64,
}

/// The error of `op`, or that of a lost descriptor.
pub(crate) fn refused<C: Contents>(errno: Errno, op: &'static str) -> Error {
    let lost = C::OPERATIONS.lost;
    if errno == Errno::BADF { Error::with_errno(ErrorKind::Os, lost, errno.number()) } else { errno.at(op) }
}

/// Starts a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct CacheLine<T>(pub(crate) T);

const _: () = assert!(cfg!(loom) || size_of::<MemberEntry>() == MEMBER);

#[cfg(loom)]
impl MemberEntry {
    pub(crate) fn new() -> MemberEntry {
        MemberEntry {
            word: AtomicU64::new(0),
            pid: AtomicU32::new(0),
            _zero: AtomicU32::new(0),
            since: AtomicU64::new(0),
            bell: Event::new(),
            any: Event::new(),
            own: CacheLine(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

// ---------------------------------------------------------------- birth

/// How to make a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    pub(crate) sizes: Sizes,
    pub(crate) mode: u32,
    /// Whether pages that hold only payloads are allocated when they are first written, instead of
    /// all at once.
    pub(crate) sparse: bool,
}

/// The conditions on a segment that is opened.
pub(crate) struct Checks<'a> {
    pub(crate) any_owner: bool,
    /// Whether it is opened and mapped only for reading.
    pub(crate) read_only: bool,
    pub(crate) max_bytes: u64,
    /// Returns the operation of the error if a size is not the one that was asked for.
    pub(crate) differs: Box<Differs<'a>>,
}

type Differs<'a> = dyn Fn(&Sizes) -> Option<&'static str> + 'a;

impl<C: Contents> Shared<C> {
    /// Makes a segment and gives it a name that must not exist.
    pub(crate) fn create(path: &Path, making: &Making) -> Result<Shared<C>> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        match memory::create_unnamed(folder) {
            Ok(file) => {
                let shared = Shared::fill(file, making)?.born_at(path);
                match memory::link(shared.file.as_fd(), path) {
                    Ok(()) => Ok(shared.with_path(path)),
                    // Without /proc, an unnamed file cannot be given a name.
                    Err(Errno::NOENT) => Shared::create_beside(folder, path, making),
                    Err(errno) => Err(errno.at(C::OPERATIONS.create)),
                }
            }
            Err(Errno::OPNOTSUPP) => Shared::create_beside(folder, path, making),
            Err(errno) => Err(errno.at(C::OPERATIONS.create)),
        }
    }

    /// As `create`, for a file system without unnamed files.
    fn create_beside(folder: &Path, path: &Path, making: &Making) -> Result<Shared<C>> {
        let random = sys::random().map_err(|errno| errno.at(C::OPERATIONS.create))?;
        let beside = folder.join(format!(".pipework-{}-{random:08x}", sys::process_id()));
        let file = memory::create_named(&beside).map_err(|errno| errno.at(C::OPERATIONS.create))?;
        let made = Shared::fill(file, making).and_then(|shared| {
            let shared = shared.born_at(path);
            memory::rename_new(&beside, path).map_err(|errno| errno.at(C::OPERATIONS.create))?;
            Ok(shared.with_path(path))
        });
        if made.is_err() {
            // Best effort: the caller must get the error that made this fail.
            let _ = memory::unlink(&beside);
        }
        made
    }

    /// Makes a segment without a name in the file system; `name` is for people.
    pub(crate) fn in_memory(name: &str, making: &Making) -> Result<Shared<C>> {
        let name = CString::new(name).map_err(|_| Error::new(ErrorKind::Invalid, C::OPERATIONS.create))?;
        let file = memory::create_in_memory(&name).map_err(|errno| errno.at(C::OPERATIONS.create))?;
        let shared = Shared::fill(file, making)?;
        memory::seal(shared.file.as_fd()).map_err(|errno| errno.at(C::OPERATIONS.create))?;
        Ok(shared)
    }

    /// Opens the segment at `path`, or makes it if there is none; says whether it has made it. If several
    /// processes do this at the same time, one of them makes it. It replaces an empty file of this user.
    pub(crate) fn open_or_create(
        path: &Path,
        checks: &Checks<'_>,
        making: &Making,
    ) -> Result<(Shared<C>, bool)> {
        // A process that keeps unlinking and making segments at this path may win a few rounds.
        for _ in 0..16 {
            match Shared::open(path, checks) {
                Err(error) if error.errno() == Some(Errno::NOENT.number()) => {}
                Err(error) if error.op() == C::OPERATIONS.too_short => {
                    if !Shared::<C>::remove_empty(path)? {
                        return Err(error);
                    }
                }
                opened => return opened.map(|shared| (shared, false)),
            }
            match Shared::create(path, making) {
                Err(error) if error.errno() == Some(Errno::EXIST.number()) => {}
                made => return made.map(|shared| (shared, true)),
            }
        }
        Err(Error::new(ErrorKind::WouldBlock, C::OPERATIONS.open_or_create))
    }

    /// Removes the file at `path` if it is empty and this user's, so that a segment can take its
    /// name. Returns false if it is too short for a segment but not such a file.
    fn remove_empty(path: &Path) -> Result<bool> {
        let op = C::OPERATIONS.open_or_create;
        let file = match memory::open(path) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Err(errno.at(op)),
        };
        // Of several processes that found the file empty, one removes it. The lock is held for
        // three calls, and the kernel releases it if the holder dies. Another program may lock the
        // file for its own purposes, without a time limit.
        const PAUSE: Duration = Duration::from_millis(1);
        const TIMES: u32 = 1000;
        let mut tried = 0;
        while !memory::try_lock(file.as_fd(), 0).map_err(|errno| errno.at(op))? {
            tried += 1;
            if tried == TIMES {
                return Err(Error::new(ErrorKind::WouldBlock, op));
            }
            std::thread::sleep(PAUSE);
        }
        let removed = || {
            let facts = memory::facts(file.as_fd())?;
            let is_ours = facts.is_regular && facts.owner == memory::user();
            match memory::facts_at(path) {
                // Another process was first: it may have made a segment by now.
                Ok(there) if there.identity != facts.identity => Ok(true),
                Ok(_) if facts.len == 0 && is_ours => memory::unlink(path).map(|()| true),
                Ok(_) => Ok(facts.len >= FIXED as u64),
                Err(Errno::NOENT) => Ok(true),
                Err(errno) => Err(errno),
            }
        };
        let removed = removed().map_err(|errno: Errno| errno.at(op));
        // Unlocks explicitly: a child that another thread forked meanwhile may have the descriptor.
        memory::unlock(file.as_fd(), 0).map_err(|errno| errno.at(op))?;
        removed
    }

    fn fill(file: OwnedFd, making: &Making) -> Result<Shared<C>> {
        let (Making { sizes, mode, sparse }, op) = (*making, C::OPERATIONS.create);
        let len = possible_len::<C>(&sizes).ok_or(Error::new(ErrorKind::Invalid, op))?;
        let words = if sparse { C::words(&sizes) } else { None };
        let sparse = words.is_some();
        let made = || {
            let fd = file.as_fd();
            memory::set_mode(fd, mode)?;
            if let Some(mut words) = words {
                memory::set_len(fd, len as u64)?;
                words.try_for_each(|area| memory::reserve(fd, area.at as u64, area.len as u64))?;
            } else {
                memory::reserve(fd, 0, len as u64)?;
            }
            let random = u64::from(sys::random()?) << 32 | u64::from(sys::random()?);
            Ok((Mapping::new(fd, len)?, memory::facts(fd)?, random))
        };
        let (mapping, facts, random) = made().map_err(|errno: Errno| errno.at(op))?;
        let (kind, identity) = (C::KIND, facts.identity);
        let header = Header { kind, sizes, sparse, len: len as u64, identity, random };
        let bytes = header::encode(&header);
        let file = KnownFile::new(file, facts.identity);
        let shared = Shared::new(mapping, file, facts, &header, header::mark(&bytes));
        let written = shared.header(Area::new(0, FIXED)).copy_in(&bytes);
        assert!(written, "a header is as long as its bytes");
        shared.end().store(shared.mark, Ordering::Relaxed);
        Ok(shared)
    }

    /// A segment for a model: its contents are not in its file.
    #[cfg(all(test, loom))]
    pub(crate) fn of_model(sizes: Sizes) -> Result<Shared<C>> {
        const OP: &str = "model";
        let file = memory::create_in_memory(c"model").map_err(|errno| errno.at(OP))?;
        memory::set_len(file.as_fd(), FIXED as u64).map_err(|errno| errno.at(OP))?;
        let mapping = Mapping::new(file.as_fd(), FIXED).map_err(|errno| errno.at(OP))?;
        let facts = memory::facts(file.as_fd()).map_err(|errno| errno.at(OP))?;
        let (len, identity) = (FIXED as u64, facts.identity);
        let header = Header { kind: C::KIND, sizes, sparse: false, len, identity, random: 0 };
        Ok(Shared::new(mapping, KnownFile::new(file, identity), facts, &header, 0))
    }

    fn new(mapping: Mapping, file: KnownFile, facts: Facts, header: &Header, mark: u64) -> Shared<C> {
        Shared {
            mapping,
            sizes: header.sizes,
            own: C::new(&header.sizes, header.sparse),
            file: KeptFd::new(file),
            path: None,
            looked_at: Hint::new(0),
            long: Hint::new(0),
            // Each process starts at another word (2^32 divided by the golden ratio).
            recovered_to: Hint::new(sys::process_id() as u64 * 0x9E37_79B9),
            mark,
            blobs: OnceLock::new(),
            sweep: Mutex::new(None),
            random: header.random,
            facts,
            is_read_only: false,
        }
    }

    /// Opens the segment at `path`.
    pub(crate) fn open(path: &Path, checks: &Checks<'_>) -> Result<Shared<C>> {
        let open = if checks.read_only { memory::open_to_read } else { memory::open };
        let file = open(path).map_err(|errno| match errno {
            Errno::LOOP => errno.at(C::OPERATIONS.symbolic_link),
            errno => errno.at(C::OPERATIONS.open),
        })?;
        let facts = regular::<C>(file.as_fd())?;
        Ok(Shared::check(KnownFile::new(file, facts.identity), facts, checks)?.with_path(path))
    }

    /// Opens the segment behind a descriptor.
    pub(crate) fn open_behind(file: OwnedFd, checks: &Checks<'_>) -> Result<Shared<C>> {
        let facts = regular::<C>(file.as_fd())?;
        let mut shared = Shared::check(KnownFile::passed(file), facts, checks)?;
        // Other descriptors of the program, and other processes, may have the same open file, so it is
        // opened again. Without /proc, or without the permission, the given one is used.
        if !checks.read_only
            && let Ok(again) = memory::open_again(shared.file())
            && memory::is_of(again.as_fd(), facts.identity)
        {
            shared.file = KeptFd::new(KnownFile::new(again, facts.identity));
        }
        Ok(shared)
    }

    /// Maps a segment, after the same checks.
    fn check(file: KnownFile, facts: Facts, checks: &Checks<'_>) -> Result<Shared<C>> {
        let ops = C::OPERATIONS;
        if facts.owner != memory::user() && !checks.any_owner {
            return Err(Error::new(ErrorKind::Invalid, ops.other_user));
        }
        let (header, mark) = Shared::<C>::read_header(file.as_fd(), facts.len)?;
        // In another file its locks would be other locks, and live members would look dead.
        if header.identity != (0, 0) && header.identity != facts.identity {
            return Err(Error::with_explanation(ErrorKind::Incompatible, ops.open, Explanation::OtherMount));
        }
        if let Some(op) = (checks.differs)(&header.sizes) {
            return Err(Error::with_explanation(ErrorKind::Incompatible, op, Explanation::OtherSize));
        }
        if facts.len > checks.max_bytes {
            return Err(Error::new(ErrorKind::TooLong, ops.max_bytes));
        }
        let mapping = Mapping::with_access(file.as_fd(), header.len as usize, checks.read_only);
        let mapping = mapping.map_err(|errno| errno.at(ops.open))?;
        let mut shared = Shared::new(mapping, file, facts, &header, mark);
        shared.is_read_only = checks.read_only;
        if shared.is_whole() { Ok(shared) } else { Err(Error::new(ErrorKind::Corrupt, ops.cut)) }
    }

    /// Reads and checks the header of a file of `len` bytes.
    fn read_header(file: BorrowedFd<'_>, len: u64) -> Result<(Header, u64)> {
        let mut bytes = [0; FIXED];
        let read = memory::read_at(file, &mut bytes, 0).map_err(|errno| errno.at(C::OPERATIONS.open))?;
        if read < FIXED {
            return Err(Error::new(ErrorKind::Incompatible, C::OPERATIONS.too_short));
        }
        Ok((checked::<C>(&bytes, len)?, header::mark(&bytes)))
    }

    /// The sizes of the segment at `path`, which is opened for nothing else.
    pub(crate) fn sizes_at(path: &Path) -> Result<Sizes> {
        let file = memory::open_to_read(path).map_err(|errno| errno.at(C::OPERATIONS.open))?;
        let facts = regular::<C>(file.as_fd())?;
        Shared::<C>::read_header(file.as_fd(), facts.len).map(|(header, _)| header.sizes)
    }

    fn with_path(mut self, path: &Path) -> Shared<C> {
        self.path = Some(path.to_owned());
        self
    }

    /// Sets how much memory this process uses for blobs, before any message is received or sent.
    ///
    /// The process that has made a segment at a path makes the folder of the blobs now if other users may
    /// use the segment: they may not be allowed to make it.
    pub(crate) fn with_blobs(self, limits: Limits, is_new: bool) -> Arc<Shared<C>> {
        let store = Arc::new(Store::new(self.blob_folder(), limits, self.is_read_only));
        let shared = Arc::new(self);
        let slots: Weak<Shared<C>> = Arc::downgrade(&shared);
        store.set_slots(slots);
        if is_new && shared.facts.mode & 0o022 != 0 {
            // Without it, long messages fail, with the error that the process gets that makes it then.
            store.make_folder();
        }
        let is_first = shared.blobs.set(store).is_ok();
        debug_assert!(is_first);
        shared
    }

    /// Whether this process can only read it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether the segment still has a name.
    pub(crate) fn has_name(&self) -> bool {
        memory::names_and_len(self.file(), self.facts.identity).is_none_or(|(names, _)| names > 0)
    }

    /// Whether this process cannot reach the folder of the blobs: it may not, or the segment is not
    /// beside it as this process sees it. No sender can cause that, other than a file that is not
    /// there.
    pub(crate) fn has_lost_blob_folder(&self) -> bool {
        let is_here =
            |path: PathBuf| memory::facts_at(&path).is_ok_and(|facts| facts.identity == self.facts.identity);
        match self.blobs().reach_folder() {
            Ok(()) => false,
            Err(Errno::ACCES) => true,
            Err(_) => self.has_name() && self.birthplace_here().is_some_and(|path| !is_here(path)),
        }
    }

    /// The segment's blobs in this process.
    pub(crate) fn blobs(&self) -> &Arc<Store> {
        self.blobs.get().expect("the limits are set before anything else")
    }

    /// Records the path at which it is made. It has no name yet.
    fn born_at(self, path: &Path) -> Shared<C> {
        let path = std::path::absolute(path).unwrap_or_default();
        if let Some(bytes) = header::encode_birthplace(path.as_os_str().as_bytes(), self.random) {
            let written = self.birthplace(bytes.len()).copy_in(&bytes);
            assert!(written, "the header has space for it");
        }
        self
    }

    fn birthplace(&self, len: usize) -> Region {
        self.header(Area { at: BIRTHPLACE_AT, len, space: BIRTHPLACE })
    }

    /// The folder of the segment's blobs: beside the path at which it was made, whichever name it was
    /// opened by.
    fn blob_folder(&self) -> Folder {
        let Facts { owner, mode, .. } = self.facts;
        match self.birthplace_here() {
            Some(path) => Folder::beside(&path, self.random, owner, mode & 0o666),
            None => Folder::in_memory(self.random, owner, mode & 0o666),
        }
    }

    /// The path beside which this process looks for the blobs; `None` for a segment without a path.
    fn birthplace_here(&self) -> Option<PathBuf> {
        let here = match &self.path {
            Some(path) => std::path::absolute(path).ok(),
            None => memory::path_of(self.file()),
        };
        here.map(|here| self.birthplace_from(here))
    }

    /// The path at which the segment was made, or what it is in the mounts that this process sees:
    /// `here` is the path by which it was opened.
    fn birthplace_from(&self, here: PathBuf) -> PathBuf {
        let mut bytes = [0; BIRTHPLACE];
        let is_read = self.birthplace(BIRTHPLACE).copy_out(&mut bytes);
        let path = header::decode_birthplace(&bytes, self.random).filter(|_| is_read);
        let Some(born) = path.map(|path| PathBuf::from(OsStr::from_bytes(path))) else { return here };
        if born == here {
            return here;
        }
        // The same folder has another path in another mount.
        let aside = here.with_file_name(born.file_name().unwrap_or_default());
        let is_it = |path: &PathBuf| {
            let is_segment = |facts: Facts| facts.identity == self.facts.identity;
            memory::facts_at(path).is_ok_and(is_segment)
                || Folder::beside(path, self.random, self.facts.owner, 0).is_there()
        };
        if is_it(&born) {
            return born;
        }
        // The file was renamed before the first blob was made. Another user does not choose where this
        // process makes folders.
        let is_renamed = || {
            let above = born.parent().and_then(|folder| memory::facts_at(folder).ok());
            self.facts.owner == memory::user()
                && above.is_some_and(|above| above.identity.0 == self.facts.identity.0)
        };
        if !is_it(&aside) && is_renamed() { born } else { aside }
    }

    /// Opens the file once more, for a lock.
    pub(crate) fn open_again(&self) -> std::result::Result<KnownFile, Errno> {
        let here = self.facts.identity;
        let known = |file: OwnedFd| {
            let found = memory::facts(file.as_fd())?.identity;
            if found == here { Ok(KnownFile::new(file, found)) } else { Err(Errno::NOENT) }
        };
        match (memory::open_again(self.file.as_fd()).and_then(known), &self.path) {
            // Without /proc, or without the descriptor, whose number may belong to another file
            // now: open its path, if that still leads to this file.
            (Err(errno), Some(path)) if errno == Errno::NOENT || self.is_lost() => {
                memory::open(path).and_then(known)
            }
            (again, _) => again,
        }
        .map_err(|errno| if self.is_lost() { Errno::BADF } else { errno })
    }

    /// Whether the program has closed the descriptor, and possibly opened another file under its
    /// number.
    pub(crate) fn is_lost(&self) -> bool {
        !self.file.is_intact()
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn sync(&self, op: &'static str) -> Result<()> {
        self.mapping.write_back().map_err(|errno| errno.at(op))
    }

    /// Removes the name if it still leads to this file; returns false if it does not.
    pub(crate) fn unlink(&self, op: &'static str) -> Result<bool> {
        let Some(path) = &self.path else { return Err(Error::new(ErrorKind::Invalid, op)) };
        let there = match memory::facts_at(path) {
            Ok(facts) => facts.identity,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno.at(op)),
        };
        let is_here = there == self.facts.identity;
        if is_here {
            memory::unlink(path).map_err(|errno| errno.at(op))?;
            self.blobs().leave_folder();
        }
        Ok(is_here)
    }
}

impl<C: Contents> Slots for Shared<C> {
    fn naming(&self, name: Name, near: u64, most: u32) -> u32 {
        C::naming(self, name, near, most)
    }
}

impl<C: Contents> Drop for Shared<C> {
    fn drop(&mut self) {
        if let Some(store) = self.blobs.get() {
            if !self.is_read_only && !self.has_name() {
                store.leave_folder();
            }
            store.close();
        }
    }
}

/// The facts of a file that may be a segment.
fn regular<C: Contents>(file: BorrowedFd<'_>) -> Result<Facts> {
    let facts = memory::facts(file).map_err(|errno| errno.at(C::OPERATIONS.open))?;
    let refused = Error::new(ErrorKind::Invalid, C::OPERATIONS.no_regular_file);
    if facts.is_regular { Ok(facts) } else { Err(refused) }
}

/// Bytes of a file of these sizes; `None` if it cannot be built.
fn possible_len<C: Contents>(sizes: &Sizes) -> Option<usize> {
    C::len(sizes).filter(|len| *len as u64 <= MAX_LEN)
}

/// Decodes the header of a file of `len` bytes, and refuses any that this build did not write.
pub(crate) fn checked<C: Contents>(bytes: &[u8; FIXED], len: u64) -> Result<Header> {
    let header = header::decode(bytes, C::KIND, &C::OPERATIONS)?;
    let Some(whole) = possible_len::<C>(&header.sizes) else {
        return Err(Error::new(ErrorKind::Corrupt, C::OPERATIONS.impossible_sizes));
    };
    let is_whole = header.len == whole as u64 && len == header.len;
    if is_whole { Ok(header) } else { Err(Error::new(ErrorKind::Corrupt, C::OPERATIONS.cut)) }
}

// ---------------------------------------------------------------- contents

impl<C: Contents> Shared<C> {
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// A member by its number, counted from 1.
    pub(crate) fn member(&self, number: u16) -> Option<&MemberEntry> {
        #[cfg(loom)]
        if let Some(member) = self.own.member_of_model(number) {
            return Some(member);
        }
        // SAFETY: every member is inside the mapping, aligned to 64 bytes and apart from all else.
        self.sizes.member(number).map(|at| unsafe { self.at(at) })
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (u16, &MemberEntry)> {
        (1..=self.sizes.members as u16).map_while(|number| Some((number, self.member(number)?)))
    }

    /// The role in a member word; `None` if no member is attached.
    pub(crate) fn role(word: u64) -> Option<C::Role> {
        C::role(word & ROLE)
    }

    /// The byte whose lock proves that a member is alive.
    pub(crate) fn lock_byte(&self, number: u16) -> Option<u64> {
        self.sizes.member(number).map(|at| at as u64)
    }

    pub(crate) fn recoveries(&self) -> &Recoveries {
        // SAFETY: a line of the header, whose other words are apart.
        unsafe { self.at(COUNTERS_AT) }
    }

    /// Device and inode of the file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.facts.identity
    }

    /// The number at the end of the file.
    fn end(&self) -> &AtomicU64 {
        // SAFETY: the last eight bytes are apart from all else, aligned to eight.
        unsafe { self.at(self.mapping.len() - 8) }
    }

    /// False once the file was cut short, even for a moment, or a page was missing when this
    /// process touched it. From then on this process may read other bytes than its peers wrote.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.end().load(Ordering::Relaxed) == self.mark && self.mapping.is_whole()
    }

    /// Fails with `Corrupt` if it is not whole.
    #[inline]
    pub(crate) fn check_whole(&self, op: &'static str) -> Result<()> {
        if self.is_whole() { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, op)) }
    }

    /// Makes sure that the first `len` bytes of a payload have allocated pages; returns how many bytes
    /// have them.
    #[cold]
    pub(crate) fn reserve_pages(&self, area: Area, len: usize, op: &'static str) -> Result<u64> {
        if self.is_lost() {
            return Err(refused::<C>(Errno::BADF, op));
        }
        let reserved = memory::reserve(self.file(), area.at as u64, len.min(area.space) as u64);
        reserved.map_err(|errno| errno.at(op))?;
        Ok(area.reserved(len).max(len) as u64)
    }

    /// The words of type `T` at this offset.
    ///
    /// # Safety
    ///
    /// At `at` there is space for a `T` inside the mapping, aligned for it, and all references to
    /// these bytes are to the same type, which is made of atomics only: any bytes are a value of
    /// it, and others may change them.
    pub(crate) unsafe fn at<T>(&self, at: usize) -> &T {
        debug_assert!(at + size_of::<T>() <= self.mapping.len() && at.is_multiple_of(align_of::<T>()));
        // SAFETY: as above; the mapping lives as long as the borrow of `self`.
        unsafe { self.mapping.start().add(at).cast::<T>().as_ref() }
    }

    /// The bytes of an area.
    ///
    /// # Safety
    ///
    /// It is inside the mapping, apart from all that is given out as references. The region is used
    /// at once, while `self` is borrowed.
    #[inline]
    pub(crate) unsafe fn region(&self, Area { at, len, space }: Area) -> Region {
        debug_assert!(at + space <= self.mapping.len());
        // SAFETY: as above.
        unsafe { Region::new(self.mapping.start().add(at), len, space) }
    }

    /// Bytes of the header that are not words.
    fn header(&self, area: Area) -> Region {
        // SAFETY: the header is inside the mapping, and no reference leads to these bytes of it.
        unsafe { self.region(area) }
    }
}

/// The bytes whose locks two processes hold that listen for deaths.
pub(crate) const LISTENERS: [u64; 2] = [1, 2];

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
