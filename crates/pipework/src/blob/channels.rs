//! The channels without a path that processes of this user have open, and what is left of others.
//!
//! The folders of such channels lie in one folder, beside files whose bytes stand for channels. A
//! process that has a channel open has the channel's byte locked, before it can make or receive a
//! blob of it. A forked child shares the lock, because it has the channel, too. So if a process gets
//! the exclusive lock of a byte, no process has that channel open, and no message of it can be
//! received any more.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use super::file::{BlobFile, path_of};
use super::folder::{Folder, Spent};
use crate::sys::memory::{self, KeptOpen};
use crate::sys::{self, Errno};

/// The path of the file with the channel's lock. It is empty, and stays. There are 16: the kernel
/// searches all locks of a file one by one.
fn locks_of(above: &Path, random: u64) -> PathBuf {
    above.join(format!("channels-{:x}", random >> 60))
}

/// The number of the channel whose folder has that path.
fn number_of(path: &Path) -> Option<u64> {
    let number = path.file_name()?.to_str()?.strip_suffix(".blobs")?;
    (number.len() == 16).then(|| u64::from_str_radix(number, 16).ok())?
}

/// The byte whose lock shows that a process has the channel open. Offsets have 63 bits. If two
/// channels have the same byte, the folder of the first to die stays as long as the other lives.
fn byte_of(random: u64) -> u64 {
    random >> 1
}

/// The lock of a channel that this process has open.
#[derive(Debug)]
pub(super) struct OpenChannel {
    locked: KeptOpen,
    /// The lock in the file that has the path now, if another program has removed the first file.
    later: Shown,
}

/// How a process shows that it has a channel open.
pub(super) type Shown = OnceLock<Box<OpenChannel>>;

/// Locks the byte of the folder's channel, unless `shown` has that lock already. Does nothing for a
/// channel with a path.
///
/// It waits, for a second at most, while another process removes what the channel has left. That
/// happens only if no process had the channel open before this one.
pub(super) fn show_open(folder: &Folder, shown: &Shown) -> Result<(), Errno> {
    let Some(random) = folder.unnamed() else { return Ok(()) };
    let locks = locks_of(folder.above(), random);
    let mut shown = shown;
    while let Some(open) = shown.get() {
        if memory::facts_at(&locks).is_ok_and(|there| there.identity == open.locked.identity()) {
            return Ok(());
        }
        shown = &open.later;
    }
    let file = if folder.is_ours() {
        folder.make_above()?;
        open_locks(&locks)?
    } else if let Ok(file) = memory::open(&locks) {
        file
    } else {
        // Files that other users may use are not removed by force.
        return Ok(());
    };
    lock(&file, byte_of(random))?;
    // If another thread was first, this lock goes.
    let _ = shown.set(Box::new(OpenChannel { locked: KeptOpen::new(file)?, later: OnceLock::new() }));
    Ok(())
}

/// Opens the lock file; makes it if it does not exist.
fn open_locks(path: &Path) -> Result<OwnedFd, Errno> {
    loop {
        match memory::open(path) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        match memory::create_named(path) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
}

fn lock(file: &OwnedFd, byte: u64) -> Result<(), Errno> {
    for _ in 0..1000 {
        if memory::try_lock_shared(file.as_fd(), byte)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Errno::AGAIN)
}

/// Removes the folders beside this one whose channels no process has open, with the files in them,
/// if it is of a channel without a path. Stops when all time is spent, after one folder or file at
/// least.
pub(super) fn remove_unopened(folder: &Folder, spent: &mut Spent) {
    let is_ours = |path: &Path| {
        memory::facts_at(path).is_ok_and(|facts| facts.is_folder && facts.owner == memory::user())
    };
    let above = folder.above();
    if folder.unnamed().is_none() || !is_ours(above) {
        return;
    }
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    let mut folders: Vec<_> =
        entries.filter_map(|entry| Some((number_of(&entry.path())?, entry.path()))).collect();
    // Most of very many may be in use. So each process starts at another one.
    let first = sys::random().unwrap_or(0) as usize % folders.len().max(1);
    folders.rotate_left(first);
    for (number, path) in folders {
        let byte = byte_of(number);
        let mut unopened = None;
        spent.step(|| {
            let locks = open_locks(&locks_of(above, number));
            unopened = locks.ok().filter(|locks| memory::try_lock(locks.as_fd(), byte) == Ok(true));
            false
        });
        if let Some(locks) = unopened {
            if is_ours(&path) {
                remove(&path, spent);
            }
            // Explicitly, because a child that another thread forks meanwhile has the descriptor, too.
            let _ = memory::unlock(locks.as_fd(), byte);
        }
        if spent.is_all() {
            return;
        }
    }
}

/// Removes a folder, with the files in it, while its channel's byte is locked exclusively.
fn remove(path: &Path, spent: &mut Spent) {
    if memory::facts_at(path).is_ok_and(|facts| facts.mode & 0o066 != 0) {
        return remove_unused(path, spent);
    }
    let folder = Folder::left(path);
    for name in folder.names() {
        let path = path_of(path, name);
        // A process that could not show that it has the channel open may hold a file.
        let is_held = |file: OwnedFd| memory::is_any_locked(file.as_fd(), 0..2) != Ok(false);
        let is_freed =
            spent.step(|| !memory::open(&path).is_ok_and(is_held) && memory::unlink(&path).is_ok());
        if !is_freed || spent.is_all() {
            return;
        }
    }
    folder.remove_unfinished();
    folder.remove();
}

/// Removes the files that no process and no message needs, of a channel that other users may use:
/// their processes do not show that they have it open.
fn remove_unused(path: &Path, spent: &mut Spent) {
    let folder = Folder::left(path);
    // A process makes the folder a while before it links the first file.
    let mut is_left = Folder::is_old(path);
    for name in folder.names() {
        let mut is_used = false;
        is_left |= spent.step(|| {
            let Ok(Some(file)) = BlobFile::open(path, name) else { return false };
            is_used = file.is_held();
            !is_used && {
                file.doubt();
                file.look(path, None)
            }
        });
        if is_used || spent.is_all() {
            break;
        }
    }
    if is_left {
        // It stays if it has other files.
        folder.remove();
    }
}
