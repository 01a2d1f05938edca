//! The boundary to the mapping: a checked file in memory, accessed as shared structs.
//!
//! Invariant: the layout was checked against the file once, is kept in private memory, and is the
//! only source of offsets. This file gives out atomics and [`Region`]s, so any value that a peer
//! writes is a valid value and never leads outside of the mapping.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::layout::{
    self, Area, BIRTHPLACE, BIRTHPLACE_AT, CELLS_AT, COUNTERS_AT, CUT, Direction, FIXED, FORGOTTEN_AT,
    FREED_AT, Geometry, HEAD_AT, Layout, REQUESTS_AT, SMALL, SPACE_AT, SegmentHeader, TAIL_AT,
};
use super::naming::HandlePlace;
use super::queue::Queue;
use super::slot::Slot;
use crate::blob::{Folder, Limits, Name, Store};
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::event::Event;
use crate::region::{Mapping, Region};
use crate::sync::{AtomicU32, AtomicU64, Hint, KeptFd, Numbers, Ordering, ShortLock};
use crate::sys::known::KnownFile;
use crate::sys::memory::Facts;
use crate::sys::{self, Errno, memory};

/// A segment that this process has mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    mapping: Mapping,
    layout: Layout,
    /// Opened again for each lock. It holds no lock itself, so a forked child may keep it.
    file: KeptFd,
    path: Option<PathBuf>,
    /// The slots that clients of this process have acquired, which include all that may hold their
    /// calls. Looking at every slot of a large segment takes long and touches its pages.
    pub(crate) acquired: Numbers,
    /// The member that was last checked for being dead.
    pub(crate) looked_at: Hint,
    /// The slot at which a recovery in this process last stopped.
    pub(crate) recovered_to: Hint,
    /// Bytes of the last payload that this process has sent or received as a blob; 0 if the wait
    /// after it was too long to spin for.
    pub(crate) long: Hint,
    /// The number at the end of the file, which is there unless the file was cut short.
    mark: u64,
    /// How many bytes of each slot's request and reply are known to have allocated pages; empty if
    /// all have.
    reserved: Vec<[Hint; 2]>,
    blobs: OnceLock<Arc<Store>>,
    pub(crate) sweep: Mutex<Option<Sweep>>,
    /// For a client's threads: held from reading the word of a part to the step that leaves it.
    pub(crate) parts: ShortLock,
    /// The segment's random number, and its user and permissions.
    random: u64,
    facts: Facts,
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

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Calls.
    Client = 1,
    /// Takes requests.
    Server = 2,
}

pub(crate) const ROLE: u64 = 0xFF;
pub(crate) const EPOCH: u64 = ROLE + 1;

/// The role in a member word; `None` if no member is attached.
pub(crate) fn role(word: u64) -> Option<Role> {
    match word & ROLE {
        1 => Some(Role::Client),
        2 => Some(Role::Server),
        _ => None,
    }
}

/// The entry of an attached client or server in the segment. Its holder writes it; the member that
/// recovers the holder also writes `word`.
#[repr(C, align(64))]
pub(crate) struct MemberEntry {
    /// `{ epoch: 56, role: 8 }`
    pub(crate) word: AtomicU64,
    /// For people.
    pub(crate) pid: AtomicU32,
    _zero: AtomicU32,
    /// Nanoseconds since 1970, for people.
    pub(crate) since: AtomicU64,
    /// The event at which its watch thread waits for steps of the other side in any of its slots.
    pub(crate) bell: Event,
    /// The event at which threads of a client wait for any of its calls to end.
    pub(crate) any: Event,
    pub(crate) counters: CacheLine<Counters>,
}

/// The counters of members' actions. Each may lag behind actions of other threads.
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) full: AtomicU64,
    pub(crate) empty: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) replies: AtomicU64,
}

/// The counters of recovery.
#[repr(C)]
pub(crate) struct Recoveries {
    pub(crate) dead_members: AtomicU64,
    pub(crate) recovered: AtomicU64,
    pub(crate) redelivered: AtomicU64,
}

/// The operation of the error when the program has closed a descriptor that the segment needs; the
/// error has the kernel's number for it. The segment and the ticket are intact, and trying again
/// does not help.
const LOST: &str = "reqrep: a descriptor of the segment was closed";

/// The operation of the error for a file that is shorter than a header, or empty.
pub(crate) const TOO_SHORT: &str = "reqrep open: too short for a segment";

const _: () = assert!(LOST.len() < 48, "C has no more space for an operation");

/// The error of `op`, or that of a lost descriptor.
pub(crate) fn refused(errno: Errno, op: &'static str) -> Error {
    if errno == Errno::BADF { Error::with_errno(ErrorKind::Os, LOST, errno.number()) } else { errno.at(op) }
}

/// Starts a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct CacheLine<T>(pub(crate) T);

const _: () = assert!(cfg!(loom) || size_of::<MemberEntry>() == layout::MEMBER);
const _: () = assert!(cfg!(loom) || size_of::<Slot>() == layout::SLOT_HEAD);

// ---------------------------------------------------------------- birth

/// How to make a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    pub(crate) geometry: Geometry,
    pub(crate) mode: u32,
    /// Whether pages that hold only payloads are allocated when they are first written, instead of
    /// all at once.
    pub(crate) sparse: bool,
}

/// The conditions on a segment that is opened.
pub(crate) struct Checks<'a> {
    pub(crate) any_owner: bool,
    pub(crate) max_bytes: u64,
    /// Returns the operation of the error if a size is not the one that was asked for.
    pub(crate) differs: Box<Differs<'a>>,
}

type Differs<'a> = dyn Fn(&Geometry) -> Option<&'static str> + 'a;

impl Shared {
    /// Makes a segment and gives it a name that must not exist.
    pub(crate) fn create(path: &Path, making: &Making, op: &'static str) -> Result<Shared> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        match memory::create_unnamed(folder) {
            Ok(file) => {
                let shared = Shared::fill(file, making, op)?.born_at(path);
                match memory::link(shared.file.as_fd(), path) {
                    Ok(()) => Ok(shared.named(path)),
                    // Without /proc, an unnamed file cannot be given a name.
                    Err(Errno::NOENT) => Shared::create_beside(folder, path, making, op),
                    Err(errno) => Err(errno.at(op)),
                }
            }
            Err(Errno::OPNOTSUPP) => Shared::create_beside(folder, path, making, op),
            Err(errno) => Err(errno.at(op)),
        }
    }

    /// As `create`, for a file system without unnamed files.
    fn create_beside(folder: &Path, path: &Path, making: &Making, op: &'static str) -> Result<Shared> {
        let random = sys::random().map_err(|errno| errno.at(op))?;
        let beside = folder.join(format!(".pipework-{}-{random:08x}", sys::process_id()));
        let file = memory::create_named(&beside).map_err(|errno| errno.at(op))?;
        let made = Shared::fill(file, making, op).and_then(|shared| {
            let shared = shared.born_at(path);
            memory::rename_new(&beside, path).map_err(|errno| errno.at(op))?;
            Ok(shared.named(path))
        });
        if made.is_err() {
            // Best effort: the caller must get the error that made this fail.
            let _ = memory::unlink(&beside);
        }
        made
    }

    /// Makes a segment without a name in the file system; `name` is for people.
    pub(crate) fn in_memory(name: &str, making: &Making, op: &'static str) -> Result<Shared> {
        let name = CString::new(name).map_err(|_| Error::new(ErrorKind::Invalid, op))?;
        let file = memory::create_in_memory(&name).map_err(|errno| errno.at(op))?;
        let shared = Shared::fill(file, making, op)?;
        memory::seal(shared.file.as_fd()).map_err(|errno| errno.at(op))?;
        Ok(shared)
    }

    /// Removes the file at `path` if it is empty and this user's, so that a segment can take its
    /// name. Returns false if it is too short for a segment but not such a file.
    pub(crate) fn remove_empty(path: &Path, op: &'static str) -> Result<bool> {
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

    fn fill(file: OwnedFd, making: &Making, op: &'static str) -> Result<Shared> {
        let geometry = making.geometry.checked(op)?;
        let layout = Layout::new(geometry);
        let sparse = making.sparse && layout.can_be_sparse();
        let made = || {
            let fd = file.as_fd();
            memory::set_mode(fd, making.mode)?;
            if sparse {
                memory::set_len(fd, layout.len as u64)?;
                layout.words().try_for_each(|area| memory::reserve(fd, area.at as u64, area.len as u64))?;
            } else {
                memory::reserve(fd, 0, layout.len as u64)?;
            }
            let random = u64::from(sys::random()?) << 32 | u64::from(sys::random()?);
            Ok((Mapping::new(fd, layout.len)?, memory::facts(fd)?, random))
        };
        let (mapping, facts, random) = made().map_err(|errno: Errno| errno.at(op))?;
        let header = SegmentHeader { geometry, sparse, identity: facts.identity, random };
        let bytes = layout::encode(&header);
        let file = KnownFile::new(file, facts.identity);
        let shared = Shared::new(mapping, file, facts, &header, layout::mark(&bytes));
        let written = shared.region(Area { at: 0, len: FIXED, space: FIXED }).copy_in(&bytes);
        assert!(written, "a header is as long as its bytes");
        shared.end().store(shared.mark, Ordering::Relaxed);
        Ok(shared)
    }

    fn new(mapping: Mapping, file: KnownFile, facts: Facts, header: &SegmentHeader, mark: u64) -> Shared {
        let layout = Layout::new(header.geometry);
        let unknown = || [Hint::new(0), Hint::new(0)];
        let reserved = if header.sparse { header.geometry.slots } else { 0 };
        Shared {
            mapping,
            layout,
            file: KeptFd::new(file),
            path: None,
            acquired: Numbers::below(header.geometry.slots),
            looked_at: Hint::new(0),
            // Each process starts at another slot (2^32 divided by the golden ratio).
            long: Hint::new(0),
            recovered_to: Hint::new(sys::process_id() as u64 * 0x9E37_79B9),
            mark,
            reserved: (0..reserved).map(|_| unknown()).collect(),
            blobs: OnceLock::new(),
            sweep: Mutex::new(None),
            parts: ShortLock::default(),
            random: header.random,
            facts,
        }
    }

    /// Opens the segment at `path`.
    pub(crate) fn open(path: &Path, checks: &Checks<'_>) -> Result<Shared> {
        let file = memory::open(path).map_err(|errno| match errno {
            Errno::LOOP => errno.at("reqrep open: symbolic link"),
            errno => errno.at("reqrep open"),
        })?;
        let facts = regular(file.as_fd())?;
        Ok(Shared::check(KnownFile::new(file, facts.identity), facts, checks)?.named(path))
    }

    /// Opens the segment behind a descriptor.
    pub(crate) fn open_behind(file: OwnedFd, checks: &Checks<'_>) -> Result<Shared> {
        let facts = regular(file.as_fd())?;
        let mut shared = Shared::check(KnownFile::passed(file), facts, checks)?;
        // Other descriptors of the program, and other processes, may have the same open file, so it is
        // opened again. Without /proc, or without the permission, the given one is used.
        if let Ok(again) = memory::open_again(shared.file())
            && memory::is_of(again.as_fd(), facts.identity)
        {
            shared.file = KeptFd::new(KnownFile::new(again, facts.identity));
        }
        Ok(shared)
    }

    /// Maps a segment, after the same checks.
    fn check(file: KnownFile, facts: Facts, checks: &Checks<'_>) -> Result<Shared> {
        const OP: &str = "reqrep open";
        if facts.owner != memory::user() && !checks.any_owner {
            return Err(Error::new(ErrorKind::Invalid, "reqrep open: another user's file"));
        }
        let (header, mark) = Shared::read_header(file.as_fd(), facts.len)?;
        // In another file its locks would be other locks, and live members would look dead.
        if header.identity != (0, 0) && header.identity != facts.identity {
            return Err(Error::with_explanation(ErrorKind::Incompatible, OP, Explanation::OtherMount));
        }
        if let Some(op) = (checks.differs)(&header.geometry) {
            return Err(Error::with_explanation(ErrorKind::Incompatible, op, Explanation::OtherSize));
        }
        if facts.len > checks.max_bytes {
            return Err(Error::new(ErrorKind::TooLong, "reqrep open: max_bytes"));
        }
        let len = Layout::new(header.geometry).len;
        let mapping = Mapping::new(file.as_fd(), len).map_err(|errno| errno.at(OP))?;
        let shared = Shared::new(mapping, file, facts, &header, mark);
        if shared.is_whole() { Ok(shared) } else { Err(Error::new(ErrorKind::Corrupt, CUT)) }
    }

    fn read_header(file: BorrowedFd<'_>, len: u64) -> Result<(SegmentHeader, u64)> {
        const OP: &str = "reqrep open";
        let mut bytes = [0; FIXED];
        let read = memory::read_at(file, &mut bytes, 0).map_err(|errno| errno.at(OP))?;
        if read < FIXED {
            return Err(Error::new(ErrorKind::Incompatible, TOO_SHORT));
        }
        Ok((layout::decode(&bytes, len)?, layout::mark(&bytes)))
    }

    /// The sizes of the segment at `path`, which is opened for nothing else.
    pub(crate) fn geometry_at(path: &Path) -> Result<Geometry> {
        let file = memory::open_to_read(path).map_err(|errno| errno.at("reqrep open"))?;
        let facts = regular(file.as_fd())?;
        Shared::read_header(file.as_fd(), facts.len).map(|(header, _)| header.geometry)
    }

    fn named(mut self, path: &Path) -> Shared {
        self.path = Some(path.to_owned());
        self
    }

    /// Sets how much memory this process uses for blobs. Called once, before any message is
    /// received or sent.
    pub(crate) fn set_blob_limits(self: &Arc<Self>, limits: Limits) {
        let store = Arc::new(Store::new(self.blob_folder(), limits));
        let slots: Weak<Shared> = Arc::downgrade(self);
        store.set_slots(slots);
        let is_first = self.blobs.set(store).is_ok();
        debug_assert!(is_first);
    }

    /// Makes the folder of the blobs now if other users may use the segment: they may not be allowed to
    /// make it. Called by the process that makes the segment.
    pub(crate) fn make_blob_folder(&self) {
        if self.facts.mode & 0o022 != 0 {
            // Without it, long messages fail, with the error that the process gets that makes it then.
            self.blobs().make_folder();
        }
    }

    /// Whether the segment still has a name.
    pub(crate) fn has_name(&self) -> bool {
        memory::names_and_len(self.file(), self.facts.identity).is_none_or(|(names, _)| names > 0)
    }

    /// Whether this process cannot reach the folder of the blobs: it may not, or the segment is not
    /// beside it as this process sees it. No client can cause that, other than a file that is not
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
    fn born_at(self, path: &Path) -> Shared {
        let path = std::path::absolute(path).unwrap_or_default();
        if let Some(bytes) = layout::encode_birthplace(path.as_os_str().as_bytes(), self.random) {
            let written = self.birthplace(bytes.len()).copy_in(&bytes);
            assert!(written, "the header has space for it");
        }
        self
    }

    fn birthplace(&self, len: usize) -> Region {
        self.region(Area { at: BIRTHPLACE_AT, len, space: BIRTHPLACE })
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
        let path = layout::decode_birthplace(&bytes, self.random).filter(|_| is_read);
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

    pub(crate) fn sync(&self) -> Result<()> {
        self.mapping.write_back().map_err(|errno| errno.at("reqrep sync"))
    }

    /// Removes the name if it still leads to this file; returns false if it does not.
    pub(crate) fn unlink(&self) -> Result<bool> {
        const OP: &str = "reqrep unlink";
        let Some(path) = &self.path else { return Err(Error::new(ErrorKind::Invalid, OP)) };
        let there = match memory::facts_at(path) {
            Ok(facts) => facts.identity,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno.at(OP)),
        };
        let is_here = there == self.facts.identity;
        if is_here {
            memory::unlink(path).map_err(|errno| errno.at(OP))?;
            self.blobs().leave_folder();
        }
        Ok(is_here)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(store) = self.blobs.get() {
            if !self.has_name() {
                store.leave_folder();
            }
            store.close();
        }
    }
}

/// The facts of a file that may be a segment.
fn regular(file: BorrowedFd<'_>) -> Result<Facts> {
    let facts = memory::facts(file).map_err(|errno| errno.at("reqrep open"))?;
    if facts.is_regular {
        Ok(facts)
    } else {
        Err(Error::new(ErrorKind::Invalid, "reqrep open: not a regular file"))
    }
}

// ---------------------------------------------------------------- contents

impl Shared {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    pub(crate) fn slot(&self, idx: u32) -> Option<&Slot> {
        // SAFETY: the layout keeps every slot inside the mapping, aligned to 64 bytes and apart
        // from all else.
        self.layout.slot(idx).map(|at| unsafe { self.at(at) })
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.layout.geometry.slots).map_while(|idx| Some((idx, self.slot(idx)?)))
    }

    /// The bytes of the request or the reply of a slot.
    #[inline]
    pub(crate) fn payload(&self, idx: u32, direction: Direction) -> Option<Region> {
        self.layout.payload(idx, direction).map(|area| self.region(area))
    }

    /// The place of the handle with this number of a request's or a reply's blobs.
    pub(crate) fn handle(&self, idx: u32, direction: Direction, number: usize) -> Option<&HandlePlace> {
        // SAFETY: the layout keeps every handle inside the mapping, aligned to 32 bytes and apart from all
        // else.
        self.layout.handle(idx, direction, number).map(|at| unsafe { self.at(at) })
    }

    /// A member by its number, counted from 1.
    pub(crate) fn member(&self, number: u16) -> Option<&MemberEntry> {
        // SAFETY: the layout keeps every member inside the mapping, aligned to 64 bytes and apart
        // from all else.
        self.layout.member(number).map(|at| unsafe { self.at(at) })
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (u16, &MemberEntry)> {
        (1..=self.layout.geometry.members as u16).map_while(|number| Some((number, self.member(number)?)))
    }

    /// The byte whose lock proves that a member is alive.
    pub(crate) fn lock_byte(&self, number: u16) -> Option<u64> {
        self.layout.member(number).map(|at| at as u64)
    }

    pub(crate) fn queue(&self) -> Queue<'_> {
        let len = self.layout.geometry.queue as usize;
        // SAFETY: the layout keeps the ring inside the mapping, aligned to 64 bytes and apart from
        // all else, `len` cells long; the hints have lines of their own in the header.
        unsafe {
            let cells: *const AtomicU64 = self.at(self.layout.ring);
            Queue {
                cells: std::slice::from_raw_parts(cells, len),
                head: self.at(HEAD_AT),
                tail: self.at(TAIL_AT),
            }
        }
    }

    /// The event at which servers wait for a request.
    pub(crate) fn requests(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(REQUESTS_AT) }
    }

    /// A slot that was freed recently, while a client waited for one. A hint.
    pub(crate) fn freed(&self) -> &AtomicU64 {
        // SAFETY: behind the event `space`, in its line.
        unsafe { self.at(FREED_AT) }
    }

    /// 1 once a client has forgotten a request. A hint.
    pub(crate) fn forgotten(&self) -> &AtomicU64 {
        // SAFETY: behind the two above, in their line.
        unsafe { self.at(FORGOTTEN_AT) }
    }

    /// The event at which clients wait for a cell of the ring.
    pub(crate) fn cells(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(CELLS_AT) }
    }

    /// The event at which clients wait for a slot.
    pub(crate) fn space(&self) -> &Event {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(SPACE_AT) }
    }

    pub(crate) fn recoveries(&self) -> &Recoveries {
        // SAFETY: a line of its own in the header.
        unsafe { self.at(COUNTERS_AT) }
    }

    /// Device and inode of the file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.facts.identity
    }

    /// The number at the end of the file.
    fn end(&self) -> &AtomicU64 {
        // SAFETY: the layout keeps the last eight bytes apart from all else, aligned to eight.
        unsafe { self.at(self.layout.end()) }
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

    /// Makes sure that the first `len` bytes of a request or a reply have allocated pages.
    #[inline]
    pub(crate) fn reserve(&self, idx: u32, direction: Direction, len: usize, op: &'static str) -> Result<()> {
        // A copy of a few bytes out of the segment reads this many.
        let len = len.max(SMALL);
        match self.reserved.get(idx as usize) {
            Some(known) if len as u64 > known[direction as usize].get() => {
                self.reserve_pages(idx, direction, &known[direction as usize], len, op)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn reserve_pages(
        &self,
        idx: u32,
        direction: Direction,
        known: &Hint,
        len: usize,
        op: &'static str,
    ) -> Result<()> {
        let area = self.layout.payload(idx, direction);
        let Some(area) = area.filter(|area| len <= area.len.max(SMALL)) else { return Ok(()) };
        if self.is_lost() {
            return Err(refused(Errno::BADF, op));
        }
        let reserved = memory::reserve(self.file(), area.at as u64, len.min(area.space) as u64);
        reserved.map_err(|errno| errno.at(op))?;
        known.set(area.reserved(len).max(len) as u64);
        Ok(())
    }

    /// # Safety
    ///
    /// At `at` there is space for a `T` inside the mapping, aligned for it, and all references to
    /// these bytes are to the same type, which is made of atomics only: any bytes are a value of
    /// it, and others may change them.
    unsafe fn at<T>(&self, at: usize) -> &T {
        debug_assert!(at + size_of::<T>() <= self.mapping.len() && at.is_multiple_of(align_of::<T>()));
        // SAFETY: as above; the mapping lives as long as the borrow of `self`.
        unsafe { self.mapping.start().add(at).cast::<T>().as_ref() }
    }

    fn region(&self, Area { at, len, space }: Area) -> Region {
        debug_assert!(at + space <= self.mapping.len());
        // SAFETY: the layout keeps it inside the mapping, apart from all that is given out as
        // references. A region is used at once, while `self` is borrowed.
        unsafe { Region::new(self.mapping.start().add(at), len, space) }
    }
}

/// The bytes whose locks two processes hold that listen for deaths.
pub(crate) const LISTENERS: [u64; 2] = [1, 2];

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
