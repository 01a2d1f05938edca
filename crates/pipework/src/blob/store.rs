//! The blobs of one channel in this process: those that it holds, and files that are kept for later
//! blobs.
//!
//! Invariant: a step of the state takes a few system calls at most. Files are made, mapped and
//! unmapped, and holds are dropped, outside of such steps.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::channels::{self, Shown};
use super::file::{BlobFile, Handle, Name, Named, Slots, path_of};
use super::folder::Folder;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::region::Region;
use crate::sync::{self, Flag, Hint, Own};
use crate::sys::{Errno, memory};

/// The files of a channel's blobs, of all processes together. While the channel is in use, the counts
/// are not a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobAudit {
    /// How many files there are.
    pub files: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Of the files: those that a living process holds, or keeps for its next blobs. The kernel does
    /// not say which process it is.
    pub held: usize,
    /// Of the files: those that messages in slots name.
    pub named: usize,
    /// Of the files: those that neither a process nor a message needs, because a process has died.
    /// [`Segment::recover`](crate::reqrep::Segment::recover) frees them.
    pub left: usize,
    /// Bytes that those files take.
    pub left_bytes: u64,
}

/// How much memory this process uses for the blobs of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of the files that are kept for re-use: of files that it made, and as many again of
    /// others.
    pub(crate) pool: u64,
    /// Bytes of the blobs that the process holds.
    pub(crate) held: u64,
}

/// A file is not kept if the file system had less than this many pools to spare, and less than half of
/// its bytes, when the file was made. Other processes would lack the space: none gives up what it
/// keeps because another one needs it.
const SPARE: u64 = 8;

/// The most files that are kept. They are searched one by one.
const MOST_KEPT: usize = 64;

pub(crate) struct Store {
    folder: Folder,
    limits: Limits,
    /// The slots that name blobs; gone when this process has closed the channel.
    slots: OnceLock<Weak<dyn Slots>>,
    state: Own<State>,
    copied: Hint,
    /// Whether this process has used the folder.
    has_opened: Flag,
    /// Shows other processes that this one has the channel open. Children inherit it.
    shown: Shown,
}

#[derive(Default)]
struct State {
    /// The blobs that this process holds and can find.
    holds: HashMap<Name, Weak<Hold>>,
    /// Files that it made and has locked as their maker, the most recently used last.
    pool: Vec<BlobFile>,
    /// Files that other processes made, without a lock, in the same order.
    seen: Vec<BlobFile>,
    /// Files that a child may hold through an open file that it shares with this process. They are
    /// checked later.
    left: Vec<Name>,
    /// Bytes of the blobs that it holds.
    held: u64,
}

impl State {
    /// Takes a kept file, and returns whether this process made it.
    fn take(&mut self, name: Name) -> Option<(BlobFile, bool)> {
        let mut take = |is_made| {
            let files = if is_made { &mut self.pool } else { &mut self.seen };
            let at = files.iter().rposition(|file| file.name == name)?;
            Some((files.remove(at), is_made))
        };
        take(true).or_else(|| take(false))
    }

    /// Returns the file of a blob that this process made to the pool; gives it back if it is not
    /// worth keeping.
    fn keep_made(&mut self, file: BlobFile, limits: &Limits) -> Option<BlobFile> {
        let bytes: u64 = self.pool.iter().map(|file| file.capacity() as u64).sum();
        let fits = bytes.saturating_add(file.capacity() as u64) <= limits.pool
            && file.left_free(limits.pool.saturating_mul(SPARE));
        if !fits || !file.is_whole() || self.pool.len() == MOST_KEPT {
            return Some(file);
        }
        self.pool.push(file);
        None
    }

    /// Keeps the mapping of a file that another process made, for the next blob in it. Returns the
    /// files that make room for it, and those that their makers have freed.
    fn keep_seen(&mut self, file: BlobFile, limits: &Limits) -> Vec<BlobFile> {
        let mut dropped: Vec<_> = self.seen.extract_if(.., |file| file.generation() == 0).collect();
        self.seen.push(file);
        let mut bytes: u64 = self.seen.iter().map(|file| file.capacity() as u64).sum();
        while bytes > limits.pool || self.seen.len() > MOST_KEPT {
            let oldest = self.seen.remove(0);
            bytes -= oldest.capacity() as u64;
            dropped.push(oldest);
        }
        dropped
    }
}

/// Bytes that count as held.
pub(super) struct Counted {
    store: Arc<Store>,
    len: u64,
    process: u32,
}

impl Counted {
    /// Counts them no longer, and removes the file of that name from those that can be found, if
    /// its hold has been dropped. Runs `act` in the same step.
    fn end<T>(&mut self, name: Option<Name>, act: impl FnOnce(&mut State) -> T) -> T {
        let is_here = self.process == sync::generation();
        let len = mem::take(&mut self.len);
        self.store.state.with(|state| {
            if is_here {
                state.held -= len;
            }
            if let Some(name) = name
                && state.holds.get(&name).is_some_and(|hold| hold.strong_count() == 0)
            {
                state.holds.remove(&name);
            }
            act(state)
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.len > 0 {
            self.end(None, |_| ());
        }
    }
}

/// Keeps a blob: it has a lock of the blob's file.
pub(super) struct Hold {
    counted: Counted,
    /// Present until the hold is dropped.
    file: Option<BlobFile>,
    generation: u64,
    /// Whether the lock is the one that the process has as the maker of the file.
    is_made: bool,
    /// How many times the process had forked before.
    forks: u64,
}

impl Hold {
    fn new(counted: Counted, file: BlobFile, generation: u64, is_made: bool) -> Hold {
        Hold { counted, file: Some(file), generation, is_made, forks: sync::forks_noticed() }
    }

    pub(super) fn file(&self) -> &BlobFile {
        self.file.as_ref().expect("there until it is dropped")
    }

    pub(super) fn file_mut(&mut self) -> &mut BlobFile {
        self.file.as_mut().expect("there until it is dropped")
    }

    pub(super) fn len(&self) -> usize {
        self.counted.len as usize
    }

    pub(super) fn handle(&self) -> Handle {
        Handle { name: self.file().name, generation: self.generation, len: self.counted.len }
    }

    /// False in a forked child.
    pub(super) fn is_here(&self) -> bool {
        self.counted.process == sync::generation()
    }

    /// Whether slots of the store's channel can name it. A process may have a channel open several
    /// times, with a store each.
    pub(super) fn is_of(&self, store: &Arc<Store>) -> bool {
        Arc::ptr_eq(&self.counted.store, store)
            || self.counted.store.folder.location() == store.folder.location()
    }

    /// Makes it findable: if this process receives the same blob, it gets this hold.
    pub(super) fn share(self) -> Arc<Hold> {
        let hold = Arc::new(self);
        let found = (hold.file().name, Arc::downgrade(&hold));
        hold.counted.store.state.with(|state| state.holds.insert(found.0, found.1));
        hold
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let (store, name) = (Arc::clone(&self.counted.store), file.name);
        let limits = &store.limits;
        if !self.is_here() || self.forks != sync::forks() {
            // An unlock would also release the lock for the parent or the children, which share the
            // open file. So this only closes the file.
            drop(file);
            self.counted.end(Some(name), |state| state.left.push(name));
            store.look_at_left();
        } else if self.is_made {
            let over = self.counted.end(Some(name), |state| state.keep_made(file, limits));
            store.give_up(over);
        } else {
            let kept = store.let_go(file);
            let dropped = self
                .counted
                .end(Some(name), |state| kept.map_or_else(Vec::new, |file| state.keep_seen(file, limits)));
            drop(dropped);
        }
    }
}

/// A file that an operation uses for a moment.
pub(super) enum Found {
    /// A blob in it is held.
    Held(Arc<Hold>),
    /// It has no holder here.
    Kept(Kept),
}

impl Found {
    pub(super) fn file(&self) -> &BlobFile {
        match self {
            Found::Held(hold) => hold.file(),
            Found::Kept(kept) => kept.file(),
        }
    }

    /// Records that a slot has stopped naming it. `seen` is the word from before the slot's step.
    pub(super) fn remove_name(&self, seen: Named) {
        match self {
            Found::Kept(kept) if !kept.is_made => {
                if kept.file().remove_seen_name(seen) {
                    kept.store.look_at(kept.file());
                }
            }
            found => found.file().remove_name(),
        }
    }
}

/// Returns the file to the kept ones when it is dropped.
pub(super) struct Kept {
    store: Arc<Store>,
    /// Present until this is dropped.
    file: Option<BlobFile>,
    is_made: bool,
    process: u32,
}

impl Kept {
    fn file(&self) -> &BlobFile {
        self.file.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (store, limits) = (&self.store, &self.store.limits);
        // In a child that a signal handler has forked, the file is its parent's.
        let Some(file) = self.file.take().filter(|_| self.process == sync::generation()) else { return };
        if self.is_made {
            let over = store.state.with(|state| state.keep_made(file, limits));
            store.give_up(over);
        } else if store.is_worth_keeping(&file) {
            drop(store.state.with(|state| state.keep_seen(file, limits)));
        }
    }
}

impl Store {
    pub(crate) fn new(folder: Folder, limits: Limits) -> Store {
        let store = Store {
            folder,
            limits,
            slots: OnceLock::new(),
            state: Own::default(),
            copied: Hint::new(0),
            has_opened: Flag::new(),
            shown: OnceLock::new(),
        };
        // Without it, calls without blobs work, too. It is tried again before a file is made.
        let _ = channels::show_open(&store.folder, &store.shown);
        store
    }

    /// Sets the slots that name blobs. Called once, before anything else.
    pub(crate) fn set_slots(&self, slots: Weak<dyn Slots>) {
        let is_first = self.slots.set(slots).is_ok();
        debug_assert!(is_first);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// How many blobs this process has copied because another user may change their files.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.get()
    }

    pub(crate) fn count_copied(&self) {
        self.copied.set(self.copied.get() + 1);
    }

    /// Counts the bytes of a copy, which is no file of this store.
    pub(super) fn count_copy(self: &Arc<Self>, len: usize, op: &'static str) -> Result<Counted> {
        self.state.with(|state| self.count(state, len as u64, op))
    }

    /// Bytes of the blobs that this process holds.
    pub(crate) fn held(&self) -> u64 {
        self.state.with(|state| state.held)
    }

    fn count(self: &Arc<Self>, state: &mut State, len: u64, op: &'static str) -> Result<Counted> {
        // A peer that breaks the rules may name a blob of any length.
        let held = state.held.checked_add(len).filter(|held| *held <= self.limits.held);
        state.held = held.ok_or(Error::with_explanation(ErrorKind::TooLong, op, Explanation::BlobsHeld))?;
        Ok(self.counted(len))
    }

    fn counted(self: &Arc<Self>, len: u64) -> Counted {
        Counted { store: Arc::clone(self), len, process: sync::generation() }
    }

    /// Makes a blob of `len` bytes, in a new file or in one from the pool.
    pub(super) fn draft(self: &Arc<Self>, len: usize, op: &'static str) -> Result<Hold> {
        let slots = self.slots();
        let find = |state: &mut State| {
            let is_fit = |file: &BlobFile| {
                let is_large = file.capacity() / 4 > len.max(64 << 10);
                file.capacity() >= len && !is_large && file.is_unused(slots.as_deref())
            };
            state.pool.iter().rposition(is_fit).map(|at| state.pool.remove(at))
        };
        let (counted, mut found, left) = self.state.with(|state| {
            let counted = self.count(state, len as u64, op)?;
            Ok::<_, Error>((counted, find(state), mem::take(&mut state.left)))
        })?;
        self.look_at_names(left);
        // Damaged files are dropped.
        while found.as_ref().is_some_and(|file| !file.is_there()) {
            found = self.state.with(find);
        }
        let file = match found {
            Some(file) => file,
            None => self.create(len).map_err(|errno| errno.at(op))?,
        };
        let generation = file.renew();
        Ok(Hold::new(counted, file, generation, true))
    }

    fn create(&self, len: usize) -> std::result::Result<BlobFile, Errno> {
        let folder = &self.folder;
        self.has_opened.set(true);
        // EPERM comes from ext4, if the folder is removed while the file is being made.
        let is_gone = |errno| matches!(errno, Errno::NOENT | Errno::PERM);
        let create = || {
            channels::show_open(folder, &self.shown)?;
            BlobFile::create(folder.location(), folder.mode(), len)
        };
        match create() {
            Err(errno) if is_gone(errno) => {
                let process = u64::from(sync::generation());
                if folder.unnamed().is_some() && LOOKED_BESIDE.get() != process {
                    LOOKED_BESIDE.set(process);
                    let limit = Deadline::after(LOOK_BESIDE);
                    channels::remove_unopened(folder, || limit.has_passed());
                }
                let mut made = Err(errno);
                // Another process may remove the folder as long as it is empty.
                for _ in 0..100 {
                    made = folder.make().and_then(|()| create());
                    if !made.as_ref().is_err_and(|errno| is_gone(*errno)) {
                        break;
                    }
                }
                made
            }
            // Give up files that are kept for later or that a dead process has left, and try again.
            Err(Errno::NOSPC | Errno::MFILE) => {
                self.give_up_idle();
                self.sweep(&mut None, || false);
                channels::remove_unopened(folder, || false);
                create()
            }
            made => made,
        }
    }

    /// Holds the blob that a slot names. The slot must name it until this returns.
    pub(super) fn receive(self: &Arc<Self>, handle: &Handle, op: &'static str) -> Result<Arc<Hold>> {
        let corrupt = Error::new(ErrorKind::Corrupt, op);
        let (held, counted, kept) =
            self.state.with(|state| match state.holds.get(&handle.name).and_then(Weak::upgrade) {
                Some(hold) => Ok::<_, Error>((Some(hold), None, None)),
                None => Ok((None, Some(self.count(state, handle.len, op)?), state.take(handle.name))),
            })?;
        // A hold may be dropped here, but not in the step above, which it needs itself.
        let Some(counted) = counted else {
            return held.filter(|hold| hold.handle() == *handle).ok_or(corrupt);
        };
        let (file, is_made) = self.open(handle.name, kept).map_err(|errno| errno.at(op))?.ok_or(corrupt)?;
        let is_it = file.is(handle);
        let hold = Hold::new(counted, file, handle.generation, is_made);
        if is_it { Ok(hold.share()) } else { Err(corrupt) }
    }

    /// Calls `copy` with the bytes of a blob that a slot names, without holding the blob. The slot
    /// must name it until this returns.
    pub(super) fn read<T>(
        self: &Arc<Self>,
        handle: &Handle,
        op: &'static str,
        copy: impl FnOnce(&Region, usize) -> T,
    ) -> Result<T> {
        let corrupt = Error::new(ErrorKind::Corrupt, op);
        let found = self.find(handle.name).map_err(|errno| errno.at(op))?.ok_or(corrupt)?;
        let file = found.file();
        if !file.is(handle) {
            return Err(corrupt);
        }
        let len = handle.len as usize;
        let done = copy(&file.region(len), len);
        if file.is_whole() { Ok(done) } else { Err(corrupt) }
    }

    /// The file that a slot is about to stop naming. `None` if there is no such blob: then no process
    /// counts it any more.
    pub(super) fn detaching(self: &Arc<Self>, handle: &Handle) -> Option<Found> {
        match self.find(handle.name) {
            Ok(found) => found.filter(|found| found.file().generation() == handle.generation),
            Err(Errno::NOENT) => None,
            Err(_) => {
                // Without a descriptor its count cannot be changed; the next sweep corrects it.
                self.state.with(|state| state.left.push(handle.name));
                None
            }
        }
    }

    /// Finds a file that this process holds or keeps, or opens it. `None` if it is not a sound blob
    /// file.
    fn find(self: &Arc<Self>, name: Name) -> std::result::Result<Option<Found>, Errno> {
        let (held, kept) = self.state.with(|state| {
            let held = state.holds.get(&name).and_then(Weak::upgrade);
            let kept = if held.is_none() { state.take(name) } else { None };
            (held, kept)
        });
        let (file, is_made) = match (held, kept) {
            (Some(hold), _) => return Ok(Some(Found::Held(hold))),
            (None, Some(kept)) => kept,
            (None, None) => match self.open_file(name)? {
                Some(file) => (file, false),
                None => return Ok(None),
            },
        };
        let process = sync::generation();
        Ok(Some(Found::Kept(Kept { store: Arc::clone(self), file: Some(file), is_made, process })))
    }

    /// Opens and locks a file, unless it was kept by this process, and returns whether this process
    /// is its maker; otherwise the lock is a holder's.
    fn open(
        &self,
        name: Name,
        kept: Option<(BlobFile, bool)>,
    ) -> std::result::Result<Option<(BlobFile, bool)>, Errno> {
        let file = match kept {
            Some((_, true)) => return Ok(kept),
            Some((seen, false)) => Some(seen),
            None => self.open_file(name)?,
        };
        let Some(file) = file else { return Ok(None) };
        file.hold()?;
        Ok(Some((file, false)))
    }

    fn open_file(&self, name: Name) -> std::result::Result<Option<BlobFile>, Errno> {
        self.has_opened.set(true);
        BlobFile::open(self.folder.location(), name)
    }

    /// Releases files that this process made and will not use again.
    fn give_up(&self, files: impl IntoIterator<Item = BlobFile>) {
        for file in files {
            file.give_up();
            self.look_at(&file);
        }
    }

    /// Unlocks a file that another process made; returns it if its mapping is worth keeping.
    fn let_go(&self, file: BlobFile) -> Option<BlobFile> {
        file.let_go();
        self.look_at(&file);
        self.is_worth_keeping(&file).then_some(file)
    }

    fn is_worth_keeping(&self, seen: &BlobFile) -> bool {
        seen.generation() != 0 && seen.is_whole() && seen.capacity() as u64 <= self.limits.pool
    }

    fn slots(&self) -> Option<Arc<dyn Slots>> {
        self.slots.get().and_then(Weak::upgrade)
    }

    /// Frees a file that this process has unlocked, if this process was its last holder.
    fn look_at(&self, file: &BlobFile) -> bool {
        file.look(self.folder.location(), self.slots().as_deref())
    }

    pub(crate) fn look_at_left(&self) {
        self.look_at_names(self.state.with(|state| mem::take(&mut state.left)));
    }

    fn look_at_names(&self, names: Vec<Name>) {
        let is_there = |name: &Name| match self.open_file(*name) {
            Ok(Some(file)) => {
                file.doubt();
                !self.look_at(&file)
            }
            Ok(None) => false,
            Err(errno) => errno != Errno::NOENT,
        };
        let still: Vec<_> = names.into_iter().filter(is_there).collect();
        if !still.is_empty() {
            self.state.with(|state| state.left.extend(still));
        }
    }

    /// Frees the files that dead processes left in the folder, now or when their last holders look.
    /// Returns false if it stopped because it `is_late`. It starts after the name in `last`, and
    /// leaves the last name that it has checked there.
    pub(crate) fn sweep(&self, last: &mut Option<Name>, is_late: impl Fn() -> bool) -> bool {
        for name in self.folder.names() {
            if last.is_some_and(|last| name <= last) {
                continue;
            }
            if let Ok(Some(file)) = self.open_file(name) {
                file.doubt();
                self.look_at(&file);
            }
            *last = Some(name);
            if is_late() {
                return false;
            }
        }
        self.folder.remove_unfinished();
        true
    }

    /// Counts the files of all processes. It opens them, and changes nothing.
    pub(crate) fn audit(&self) -> BlobAudit {
        audit(&self.folder, self.slots().as_deref())
    }

    /// The folder of the files.
    pub(crate) fn location(&self) -> &Path {
        self.folder.location()
    }

    /// Gives up the files that are kept for later.
    fn give_up_idle(&self) {
        let (pool, seen) = self.state.with(|state| (mem::take(&mut state.pool), mem::take(&mut state.seen)));
        drop(seen);
        self.give_up(pool);
    }

    /// Gives up the files that are kept, and removes the folder if it is empty. Called when the
    /// channel is closed.
    pub(crate) fn close(&self) {
        self.look_at_left();
        self.give_up_idle();
        if self.has_opened.is_set() {
            self.folder.remove();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// The generation of the last process that has looked at the folders of other channels without a path:
/// of this one, or of one that it was forked from.
static LOOKED_BESIDE: Hint = Hint::new(0);

/// How long a process looks at the folders of other channels before its first blob. The next process
/// looks at others.
const LOOK_BESIDE: Duration = Duration::from_millis(10);

fn audit(folder: &Folder, slots: Option<&dyn Slots>) -> BlobAudit {
    let mut audit = BlobAudit::default();
    for name in folder.names() {
        let Ok(Some(file)) = BlobFile::open(folder.location(), name) else { continue };
        let is_held = file.is_held();
        let is_named = file.is_named(is_held, slots);
        // A process may have received it since the first check of its locks.
        let is_left = !is_held && !is_named && !file.is_held();
        audit.files += 1;
        audit.bytes += file.size();
        audit.held += usize::from(is_held);
        audit.named += usize::from(is_named);
        audit.left += usize::from(is_left);
        audit.left_bytes += if is_left { file.size() } else { 0 };
    }
    audit
}

/// Removes the folder of a channel that no process uses any more, with the files in it. Returns the
/// files that it removed. Returns `None` and removes nothing if a process holds a file.
pub(super) fn remove_left(path: &Path) -> std::result::Result<Option<BlobAudit>, Errno> {
    let folder = Folder::left(path);
    let found = audit(&folder, None);
    if found.held > 0 {
        return Ok(None);
    }
    folder.remove_unfinished();
    for name in folder.names() {
        match memory::unlink(&path_of(path, name)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    match memory::remove_folder(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(Some(found)),
        Err(errno) => Err(errno),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("folder", &self.folder).finish_non_exhaustive()
    }
}
