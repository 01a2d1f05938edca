//! Files that this process keeps for later blobs of a channel. All channels together keep no more than
//! a share of the descriptors that the process may have.
//!
//! Invariant: a step of a channel's lists takes a few system calls at most. Files are closed and
//! unmapped outside of such steps. Forks wait only while the list of channels is used.

use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::file::{BlobFile, Name, Slots};
use super::folder::Folder;
use crate::clock;
use crate::sync::{self, Flag, Hint, Own};
use crate::sys;

/// A file is not kept if the file system had less than this many pools to spare, and less than half of
/// its bytes, when the file was made. Other processes would lack the space: none gives up what it
/// keeps because another one needs it.
const SPARE: u64 = 8;

/// The most files that a channel keeps: of those that this process made, and as many again of others.
/// They are searched one by one.
const MOST_OF_A_CHANNEL: usize = 64;

/// The most files that a process keeps: one for this many descriptors that it may have,
const DESCRIPTORS_EACH: u64 = 8;
/// and no more than this.
const MOST_OF_A_PROCESS: u64 = 1024;

/// The files that are kept for one channel, and how they are given up.
pub(super) struct IdleFiles {
    folder: Folder,
    /// The slots that name blobs; gone when this process has closed the channel.
    slots: OnceLock<Weak<dyn Slots>>,
    /// Bytes of the files that are kept: of files that this process made, and as many again of
    /// others.
    limit: u64,
    lists: Own<Lists>,
    /// How many files may be in the lists before the process's share is looked at again.
    granted: Hint,
    is_listed: Flag,
}

/// In the order in which they were last used.
#[derive(Default)]
struct Lists {
    /// Files that this process made and has locked as their maker.
    made: Vec<Idle>,
    /// Files that other processes made, without a lock.
    seen: Vec<Idle>,
}

struct Idle {
    file: BlobFile,
    since_ns: i64,
}

impl Idle {
    fn new(file: BlobFile) -> Idle {
        Idle { file, since_ns: clock::monotonic_ns() }
    }
}

fn bytes_of(files: &[Idle]) -> u64 {
    files.iter().map(|idle| idle.file.capacity() as u64).sum()
}

impl Lists {
    fn len(&self) -> usize {
        self.made.len() + self.seen.len()
    }

    fn oldest_ns(&self) -> Option<i64> {
        self.made.first().into_iter().chain(self.seen.first()).map(|idle| idle.since_ns).min()
    }
}

impl IdleFiles {
    pub(super) fn new(folder: Folder, limit: u64) -> Arc<IdleFiles> {
        Arc::new(IdleFiles {
            folder,
            slots: OnceLock::new(),
            limit,
            lists: Own::default(),
            granted: Hint::new(0),
            is_listed: Flag::new(),
        })
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Sets the slots that name blobs. Called once.
    pub(super) fn set_slots(&self, slots: Weak<dyn Slots>) {
        let is_first = self.slots.set(slots).is_ok();
        debug_assert!(is_first);
    }

    pub(super) fn slots(&self) -> Option<Arc<dyn Slots>> {
        self.slots.get().and_then(Weak::upgrade)
    }

    /// Takes a kept file, and returns whether this process made it.
    pub(super) fn take(&self, name: Name) -> Option<(BlobFile, bool)> {
        self.lists.with(|lists| {
            let mut take = |is_made| {
                let files = if is_made { &mut lists.made } else { &mut lists.seen };
                let at = files.iter().rposition(|idle| idle.file.name == name)?;
                Some((files.remove(at).file, is_made))
            };
            take(true).or_else(|| take(false))
        })
    }

    /// Takes a file that this process made, if one is free for a blob of that length.
    pub(super) fn take_unused(&self, len: usize) -> Option<BlobFile> {
        let slots = self.slots();
        let is_fit = |Idle { file, .. }: &Idle| {
            let is_large = file.capacity() / 4 > len.max(64 << 10);
            file.capacity() >= len && !is_large && file.is_unused(slots.as_deref())
        };
        self.lists.with(|lists| lists.made.iter().rposition(is_fit).map(|at| lists.made.remove(at).file))
    }

    /// Keeps a file that this process made, or gives it up if it is not worth keeping.
    pub(super) fn keep_made(self: &Arc<Self>, file: BlobFile) {
        let is_worth_it = file.is_whole() && file.left_free(self.limit.saturating_mul(SPARE));
        let (over, count) = self.lists.with(|lists| {
            let bytes = bytes_of(&lists.made).saturating_add(file.capacity() as u64);
            if !is_worth_it || bytes > self.limit || lists.made.len() == MOST_OF_A_CHANNEL {
                return (Some(file), 0);
            }
            lists.made.push(Idle::new(file));
            (None, lists.len())
        });
        self.give_up(over);
        self.check(count);
    }

    /// Keeps the mapping of a file that another process made, for the next blob in it.
    pub(super) fn keep_seen(self: &Arc<Self>, file: BlobFile) {
        if file.generation() == 0 || !file.is_whole() || file.capacity() as u64 > self.limit {
            return;
        }
        let (dropped, count) = self.lists.with(|lists| {
            let seen = &mut lists.seen;
            // Their makers have freed them.
            let mut dropped: Vec<_> = seen.extract_if(.., |idle| idle.file.generation() == 0).collect();
            seen.push(Idle::new(file));
            let mut bytes = bytes_of(seen);
            while bytes > self.limit || seen.len() > MOST_OF_A_CHANNEL {
                let oldest = seen.remove(0);
                bytes -= oldest.file.capacity() as u64;
                dropped.push(oldest);
            }
            (dropped, lists.len())
        });
        drop(dropped);
        self.check(count);
    }

    /// Gives up the files that are kept. Returns whether there were any.
    pub(super) fn give_up_all(&self) -> bool {
        let Lists { made, seen } = self.lists.with(mem::take);
        let were_some = !made.is_empty() || !seen.is_empty();
        drop(seen);
        self.give_up(made.into_iter().map(|idle| idle.file));
        were_some
    }

    fn len(&self) -> usize {
        self.lists.with(|lists| lists.len())
    }

    fn oldest_ns(&self) -> Option<i64> {
        self.lists.with(|lists| lists.oldest_ns())
    }

    fn give_up_oldest(&self) {
        let (made, seen) = self.lists.with(|lists| {
            let oldest = lists.oldest_ns();
            let take = |files: &mut Vec<Idle>| {
                let is_it = files.first().is_some_and(|idle| Some(idle.since_ns) == oldest);
                is_it.then(|| files.remove(0))
            };
            (take(&mut lists.made), take(&mut lists.seen))
        });
        drop(seen);
        self.give_up(made.map(|idle| idle.file));
    }

    /// Releases files that this process made and will not use again.
    pub(super) fn give_up(&self, files: impl IntoIterator<Item = BlobFile>) {
        for file in files {
            file.give_up();
            self.look_at(&file);
        }
    }

    /// Frees a file that this process has unlocked, if this process was its last holder.
    pub(super) fn look_at(&self, file: &BlobFile) -> bool {
        file.look(self.folder.location(), self.slots().as_deref())
    }

    /// Called when there are `count` files in the lists. A process that uses the same few files again
    /// and again ends here.
    fn check(self: &Arc<Self>, count: usize) {
        if count as u64 <= self.granted.get() {
            return;
        }
        if !self.is_listed.is_set() {
            with_channels(|channels| {
                channels.retain(|channel| channel.strong_count() > 0);
                channels.push(Arc::downgrade(self));
            });
            self.is_listed.set(true);
            sys::when_descriptors_run_out(give_up_all);
            sync::in_children(forget_all);
        }
        limit_all();
    }
}

/// The channels for which files are kept; a channel may be there twice.
static CHANNELS: Mutex<Vec<Weak<IdleFiles>>> = Mutex::new(Vec::new());

fn with_channels<T>(act: impl FnOnce(&mut Vec<Weak<IdleFiles>>) -> T) -> T {
    // No fork in here, or a child could inherit a lock that no thread of it can release.
    let _forks_wait = sync::no_forks();
    act(&mut CHANNELS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn channels() -> Vec<Arc<IdleFiles>> {
    with_channels(|channels| channels.iter().filter_map(Weak::upgrade).collect())
}

/// Gives up the files that were not used for the longest time, until the channels of this process keep
/// no more than its share together. Half of the share is divided among them, so that a channel that
/// keeps few files does not have to ask.
fn limit_all() {
    let most = (sys::most_descriptors() / DESCRIPTORS_EACH).min(MOST_OF_A_PROCESS) as usize;
    let channels = channels();
    let of_each = most / 2 / channels.len().max(1);
    let grant = |channel: &Arc<IdleFiles>| {
        let granted = channel.len().max(of_each);
        channel.granted.set(granted as u64);
        granted
    };
    let granted: usize = channels.iter().map(grant).sum();
    for _ in most..granted {
        let has_more = channels.iter().filter(|channel| channel.len() > of_each);
        if let Some(channel) = has_more.min_by_key(|channel| channel.oldest_ns()) {
            channel.give_up_oldest();
            grant(channel);
        }
    }
}

/// Gives up the files of all channels. Returns whether there were any. It changes nothing where forks
/// wait for this thread.
pub(super) fn give_up_all() -> bool {
    let channels = if sync::has_no_forks() { Vec::new() } else { channels() };
    channels.iter().filter(|channel| channel.give_up_all()).count() > 0
}

/// Closes the files that a child has inherited, with the locks of its parent. Otherwise the parent's
/// files would stay as long as the child lives, even after the parent's death.
///
/// It runs in the child before the fork returns there, so there is one thread. The fork may have
/// interrupted the allocator: nothing is allocated or freed.
fn forget_all() {
    let channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    for channel in channels.iter().filter_map(Weak::upgrade) {
        channel.lists.begin(|lists| {
            lists.made.drain(..).for_each(drop);
            lists.seen.drain(..).for_each(drop);
        });
        channel.granted.set(0);
    }
}
