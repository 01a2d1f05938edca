//! The blobs of one channel in this process: those that it holds, and files that are kept for later
//! blobs.
//!
//! Invariant: a step of the state takes a few system calls at most. Files are made, mapped and
//! unmapped, and holds are dropped, outside of such steps.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::channels::{self, Shown};
use super::file::{self, BlobFile, Handle, Name, Named, Slots, path_of};
use super::folder::{Folder, Spent};
use super::idle::{self, IdleFiles};
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::region::Region;
use crate::sync::{self, Flag, Hint, Own};
use crate::sys::{self, Errno, memory};

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

/// A process's share of a channel's blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobStats {
    /// Bytes of the blobs that the process holds now, drafts and copies included.
    pub held: u64,
    /// How many blobs the process has copied since it opened the channel: those that it received as
    /// [copies](crate::reqrep::Blob::is_copied), and those that it sent although they were copies or belong to
    /// another channel. A payload that is longer than a slot or a cell does not count.
    pub copied: u64,
}

impl BlobStats {
    pub(crate) fn of(store: &Store) -> BlobStats {
        BlobStats { held: store.held(), copied: store.copied() }
    }
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

pub(crate) struct Store {
    limits: Limits,
    idle: Arc<IdleFiles>,
    state: Own<State>,
    copied: Hint,
    /// Whether it copies every blob out of its file, because it changes nothing in the files.
    only_reads: bool,
    /// Whether this process has used the folder.
    has_opened: Flag,
    /// Whether the folder does not stay any more.
    has_left: Flag,
    /// Shows other processes that this one has the channel open. Children inherit it.
    shown: Shown,
}

#[derive(Default)]
struct State {
    /// The blobs that this process holds and can find.
    holds: HashMap<Name, Weak<Hold>>,
    /// Files to look at later, those that were looked at last at the end.
    left: VecDeque<Left>,
    /// Bytes of the blobs that it holds.
    held: u64,
}

/// A file that this process must look at: a child may hold it through an open file that it shares with
/// this process, or there was no descriptor to look at it.
struct Left {
    name: Name,
    is_doubted: bool,
}

/// The most files that an operation frees after the child that held them has ended.
const FREED_AT_ONCE: usize = 64;

/// Bytes that count as held.
pub(super) struct Counted {
    store: Arc<Store>,
    len: u64,
    process: u32,
}

impl Counted {
    /// Counts them no longer, and removes the file of that name from those that can be found, if
    /// its hold has been dropped.
    fn end(&mut self, name: Option<Name>) {
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
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.len > 0 {
            self.end(None);
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
        Arc::ptr_eq(&self.counted.store, store) || self.counted.store.location() == store.location()
    }

    /// Makes it findable: if this process receives the same blob, it gets this hold.
    pub(super) fn share(self) -> Arc<Hold> {
        let hold = Arc::new(self);
        hold.make_findable();
        hold
    }

    /// As `share`, unless another hold of the file is findable.
    pub(super) fn make_findable(self: &Arc<Self>) {
        let (name, found) = (self.file().name, Arc::downgrade(self));
        self.counted.store.state.with(|state| {
            let there = state.holds.entry(name).or_default();
            if there.strong_count() == 0 {
                *there = found;
            }
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let (store, name) = (Arc::clone(&self.counted.store), file.name);
        if !self.is_here() || self.forks != sync::forks() {
            // An unlock would also release the lock for the parent or the children, which share the
            // open file. So this only closes the file.
            file.doubt();
            drop(file);
            self.counted.end(Some(name));
            // The last of the processes that had it finds it free. Otherwise it is looked at again
            // later: a process may end without a look.
            store.look_again(Left { name, is_doubted: true });
            store.look_at_some_left();
        } else if self.is_made {
            self.counted.end(Some(name));
            store.idle.keep_made(file);
        } else {
            file.let_go();
            store.idle.look_at(&file);
            self.counted.end(Some(name));
            store.idle.keep_seen(file);
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
                    kept.store.idle.look_at(kept.file());
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
        // In a child that a signal handler has forked, the file is its parent's.
        let Some(file) = self.file.take().filter(|_| self.process == sync::generation()) else { return };
        if self.is_made {
            self.store.idle.keep_made(file);
        } else {
            self.store.idle.keep_seen(file);
        }
    }
}

impl Store {
    pub(crate) fn new(folder: Folder, limits: Limits, only_reads: bool) -> Store {
        let store = Store {
            limits,
            idle: IdleFiles::new(folder, limits.pool),
            state: Own::default(),
            copied: Hint::new(0),
            only_reads,
            has_opened: Flag::new(),
            has_left: Flag::new(),
            shown: OnceLock::new(),
        };
        // Without it, calls without blobs work, too. It is tried again before a file is made.
        if !only_reads {
            let _ = channels::show_open(store.idle.folder(), &store.shown);
        }
        store
    }

    /// Sets the slots that name blobs. Called once, before anything else.
    pub(crate) fn set_slots(&self, slots: Weak<dyn Slots>) {
        self.idle.set_slots(slots);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn folder(&self) -> &Folder {
        self.idle.folder()
    }

    /// How many blobs this process has copied because another user may change their files.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.get()
    }

    /// Bytes of the blobs that this process may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.held
    }

    pub(crate) fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// The bytes of a blob that a slot names, without a lock or a change of its file. If the slot did not
    /// name it all the time until this returns, they are any bytes.
    pub(super) fn copy_out(&self, handle: &Handle, op: &'static str) -> Result<Vec<u8>> {
        let copied = file::copy_out(self.location(), handle).map_err(|errno| errno.at(op))?;
        copied.ok_or(Error::new(ErrorKind::Corrupt, op))
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
        let counted = self.state.with(|state| self.count(state, len as u64, op))?;
        let mut found = self.idle.take_unused(len);
        self.look_at_some_left();
        // Damaged files are dropped.
        while found.as_ref().is_some_and(|file| !file.is_there()) {
            found = self.idle.take_unused(len);
        }
        let file = match found {
            Some(file) => file,
            None => self.create(len).map_err(|errno| errno.at(op))?,
        };
        let generation = file.renew();
        Ok(Hold::new(counted, file, generation, true))
    }

    fn create(&self, len: usize) -> sys::Result<BlobFile> {
        let folder = self.idle.folder();
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
                    channels::remove_unopened(folder, &mut Spent::new());
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
            Err(Errno::NOSPC) => {
                idle::give_up_all();
                self.sweep(&mut None, || false);
                channels::remove_unopened(folder, &mut Spent::up_to(Duration::MAX, Duration::MAX));
                create()
            }
            made => made,
        }
    }

    /// Holds the blob that a slot names. If the slot did not name it all the time until this returns,
    /// it must not be used, and not be made findable.
    pub(super) fn receive(self: &Arc<Self>, handle: &Handle, op: &'static str) -> Result<Arc<Hold>> {
        let corrupt = Error::new(ErrorKind::Corrupt, op);
        let (held, counted) =
            self.state.with(|state| match state.holds.get(&handle.name).and_then(Weak::upgrade) {
                Some(hold) => Ok::<_, Error>((Some(hold), None)),
                None => Ok((None, Some(self.count(state, handle.len, op)?))),
            })?;
        // A hold may be dropped here, but not in the step above, which it needs itself.
        let Some(counted) = counted else {
            return held.filter(|hold| hold.handle() == *handle).ok_or(corrupt);
        };
        let (file, is_made) = self.open(handle.name).map_err(|errno| errno.at(op))?.ok_or(corrupt)?;
        let is_it = file.is(handle);
        let hold = Hold::new(counted, file, handle.generation, is_made);
        if is_it { Ok(Arc::new(hold)) } else { Err(corrupt) }
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
                let left = Left { name: handle.name, is_doubted: false };
                self.state.with(|state| state.left.push_back(left));
                None
            }
        }
    }

    /// Finds a file that this process holds or keeps, or opens it. `None` if it is not a sound blob
    /// file.
    fn find(self: &Arc<Self>, name: Name) -> sys::Result<Option<Found>> {
        if let Some(hold) = self.state.with(|state| state.holds.get(&name).and_then(Weak::upgrade)) {
            return Ok(Some(Found::Held(hold)));
        }
        let Some((file, is_made)) = self.take_or_open(name)? else { return Ok(None) };
        let process = sync::generation();
        Ok(Some(Found::Kept(Kept { store: Arc::clone(self), file: Some(file), is_made, process })))
    }

    /// Opens and locks a file, unless it was kept by this process, and returns whether this process
    /// is its maker; otherwise the lock is a holder's.
    fn open(&self, name: Name) -> sys::Result<Option<(BlobFile, bool)>> {
        let found = self.take_or_open(name)?;
        if let Some((file, false)) = &found {
            file.hold()?;
        }
        Ok(found)
    }

    /// A file that is kept, or else opened; and whether this process is its maker.
    fn take_or_open(&self, name: Name) -> sys::Result<Option<(BlobFile, bool)>> {
        match self.idle.take(name) {
            Some(kept) => Ok(Some(kept)),
            None => Ok(self.open_file(name)?.map(|file| (file, false))),
        }
    }

    fn open_file(&self, name: Name) -> sys::Result<Option<BlobFile>> {
        self.has_opened.set(true);
        BlobFile::open(self.location(), name)
    }

    /// Looks at all files that are to be looked at later.
    pub(crate) fn look_at_left(&self) {
        let left = self.state.with(|state| mem::take(&mut state.left));
        left.into_iter().for_each(|left| {
            self.look_again(left);
        });
    }

    /// Looks at some of them. As long as a child has them all, it looks at one, however many there
    /// are. Once the child has ended, each call frees some.
    fn look_at_some_left(&self) {
        for _ in 0..FREED_AT_ONCE {
            let first = self.state.with(|state| state.left.pop_front());
            if first.is_none_or(|left| !self.look_again(left)) {
                break;
            }
        }
    }

    /// Frees the file if no process has it. Otherwise it is looked at later; then this returns false.
    fn look_again(&self, left: Left) -> bool {
        let stays = match BlobFile::is_locked(self.location(), left.name) {
            Ok(true) if left.is_doubted => Some(left),
            Ok(_) => match self.open_file(left.name) {
                Ok(Some(file)) => {
                    file.doubt();
                    (!self.idle.look_at(&file)).then_some(Left { is_doubted: true, ..left })
                }
                Ok(None) | Err(Errno::NOENT) => None,
                Err(_) => Some(left),
            },
            Err(Errno::NOENT) => None,
            Err(_) => Some(left),
        };
        let is_gone = stays.is_none();
        self.state.with(|state| state.left.extend(stays));
        is_gone
    }

    /// Frees the files that dead processes left in the folder, now or when their last holders look.
    /// Returns false if it stopped because it `is_late`, after one file at least.
    ///
    /// `left` is `None` at the beginning of a sweep. Afterwards it has the files that were there at the
    /// beginning and are still to be looked at.
    pub(crate) fn sweep(&self, left: &mut Option<Vec<Name>>, is_late: impl Fn() -> bool) -> bool {
        // A dead process may have left an empty folder.
        self.has_opened.set(true);
        let left = left.get_or_insert_with(|| self.idle.folder().names());
        while let Some(name) = left.pop() {
            self.sweep_file(name);
            if is_late() {
                return false;
            }
        }
        self.idle.folder().remove_unfinished();
        true
    }

    /// A sweep of a process that wants something else: it takes a short time, and nobody goes on with
    /// it. So it begins at a random file.
    pub(crate) fn sweep_some(&self) {
        let (mut names, mut spent) = (self.idle.folder().names(), Spent::new());
        let first = sys::random().unwrap_or(0) as usize % names.len().max(1);
        names.rotate_left(first);
        for name in names {
            spent.step(|| self.sweep_file(name));
            if spent.is_all() {
                return;
            }
        }
        self.idle.folder().remove_unfinished();
    }

    /// Returns whether it has freed the file.
    fn sweep_file(&self, name: Name) -> bool {
        let Ok(Some(file)) = self.open_file(name) else { return false };
        file.doubt();
        self.idle.look_at(&file)
    }

    /// Counts the files of all processes. It opens them, and changes nothing.
    pub(crate) fn audit(&self) -> BlobAudit {
        audit(self.idle.folder(), self.idle.slots().as_deref())
    }

    /// Fails if there is no folder, or this process may not search it.
    pub(crate) fn reach_folder(&self) -> sys::Result<()> {
        self.idle.folder().reach()
    }

    /// Makes the folder. A later operation reports the error if that fails.
    pub(crate) fn make_folder(&self) {
        let _ = self.idle.folder().make();
    }

    /// The segment has no name any more: the folder does not stay.
    pub(crate) fn leave_folder(&self) {
        if self.idle.folder().stays() {
            self.has_opened.set(true);
            self.has_left.set(true);
            self.idle.folder().remove();
        }
    }

    /// The folder of the files.
    pub(crate) fn location(&self) -> &Path {
        self.idle.folder().location()
    }

    /// Frees the files that dead processes left, and those that this one keeps, and removes the folder if
    /// it is empty.
    pub(crate) fn free_all_left(&self) {
        self.idle.give_up_all();
        self.sweep(&mut None, || false);
        self.idle.folder().remove();
    }

    /// Gives up the files that are kept, and removes the folder if it is empty. Called when the
    /// channel is closed.
    pub(crate) fn close(&self) {
        self.look_at_left();
        self.idle.give_up_all();
        if self.has_opened.is_set() && (!self.idle.folder().stays() || self.has_left.is_set()) {
            self.idle.folder().remove();
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
pub(super) fn remove_left(path: &Path) -> sys::Result<Option<BlobAudit>> {
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
        f.debug_struct("Store").field("folder", self.idle.folder()).finish_non_exhaustive()
    }
}
