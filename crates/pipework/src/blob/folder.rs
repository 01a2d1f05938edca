//! The folder of a channel's blobs: its path and its files.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::file::{NEW, Name};
use crate::sys::Errno;
use crate::sys::memory::{self, Facts};

/// The most bytes in the name of a file (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// A folder that is made on first use.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Permissions of the files in the folder.
    mode: u32,
    /// The user that must own it.
    owner: u32,
    /// For a channel without a path: the random number of its segment. Its folder lies in a folder
    /// that is made as well if it does not exist.
    unnamed: Option<u64>,
}

impl Folder {
    /// The folder of the segment at `path`, with that random number, user and mode. If the segment's
    /// name is so long that the folder's would be too long, the folder's begins with a part of it.
    pub(crate) fn beside(path: &Path, random: u64, owner: u32, mode: u32) -> Folder {
        let end = format!(".{random:016x}.blobs");
        let name = path.file_name().unwrap_or_default().as_bytes();
        let name = &name[..name.len().min(LONGEST_NAME - end.len())];
        let name = OsString::from_vec([name, end.as_bytes()].concat());
        Folder { path: path.with_file_name(name), mode, owner, unnamed: None }
    }

    /// The folder of a segment without a name.
    pub(crate) fn in_memory(random: u64, owner: u32, mode: u32) -> Folder {
        Folder::nested(Path::new(&format!("/dev/shm/pipework-{owner}")), random, owner, mode)
    }

    pub(super) fn nested(above: &Path, random: u64, owner: u32, mode: u32) -> Folder {
        Folder { path: above.join(format!("{random:016x}.blobs")), mode, owner, unnamed: Some(random) }
    }

    pub(crate) fn location(&self) -> &Path {
        &self.path
    }

    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// Makes the folder if it does not exist. EPERM if a file of another kind has its path, or if
    /// the folder above it, whose path is predictable, belongs to another user.
    pub(super) fn make(&self) -> Result<(), Errno> {
        if self.unnamed.is_some() {
            self.make_above()?;
        }
        // Its name is random and known only from the segment, so no other user can have made it.
        make_folder(&self.path, self.mode | searchable(self.mode)).map(drop)
    }

    /// The folder above it.
    pub(super) fn above(&self) -> &Path {
        self.path.parent().expect("it has a name in a folder")
    }

    /// Makes the folder above it, for a channel without a path.
    pub(super) fn make_above(&self) -> Result<(), Errno> {
        let found = make_folder(self.above(), 0o700 | searchable(self.mode))?;
        if found.owner == self.owner { Ok(()) } else { Err(Errno::PERM) }
    }

    /// The random number of the segment, if it has no path.
    pub(super) fn unnamed(&self) -> Option<u64> {
        self.unnamed
    }

    /// Whether the channel is this user's.
    pub(super) fn is_ours(&self) -> bool {
        self.owner == memory::user()
    }

    /// Whether the folder at this path had no change in the last minute.
    pub(super) fn is_old(path: &Path) -> bool {
        let changed = std::fs::metadata(path).and_then(|facts| facts.modified());
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60)))
    }

    /// The folder at this path. Its channel was removed.
    pub(super) fn left(path: &Path) -> Folder {
        Folder { path: path.to_owned(), mode: 0, owner: memory::user(), unnamed: None }
    }

    /// Whether it exists and belongs to the channel's user. Its name has the segment's random number, so
    /// it is no other channel's.
    pub(crate) fn is_there(&self) -> bool {
        memory::facts_at(&self.path).is_ok_and(|facts| facts.is_folder && facts.owner == self.owner)
    }

    /// Whether it stays as long as the segment has a name, because other users may use it and may not be
    /// allowed to make it.
    pub(super) fn stays(&self) -> bool {
        self.unnamed.is_none() && self.mode & 0o022 != 0
    }

    /// Whether this process may search it.
    pub(super) fn reach(&self) -> Result<(), Errno> {
        memory::facts_at(&self.path.join(".")).map(drop)
    }

    /// Removes the folder if it exists and is empty.
    pub(crate) fn remove(&self) {
        // The next sweep finds files that are left.
        let _ = memory::remove_folder(&self.path);
    }

    /// Removes files that were being made when their makers died, on file systems without unnamed
    /// files.
    pub(super) fn remove_unfinished(&self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_new = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(NEW))
        };
        for path in paths.filter(is_new) {
            if let Ok(file) = memory::open(&path)
                && memory::is_any_locked(file.as_fd(), 0..2) == Ok(false)
            {
                // If a living process is making the file, it starts over.
                let _ = memory::unlink(&path);
            }
        }
    }

    /// The blobs in it, in no order; empty if the folder does not exist.
    pub(super) fn names(&self) -> Vec<Name> {
        #[cfg(test)]
        crate::sys::fault::reached("list blobs");
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        entries.filter_map(|entry| Name::parse(entry.ok()?.file_name().to_str()?)).collect()
    }
}

/// How long a process that wants something else may look for files that others have left, and free them.
///
/// Freeing is allowed far longer: otherwise programs that leave more than one of them frees in its time
/// would fill the memory.
pub(super) struct Spent {
    looking: Duration,
    freeing: Duration,
    most: [Duration; 2],
}

impl Spent {
    pub(super) fn new() -> Spent {
        Spent::up_to(Duration::from_millis(10), Duration::from_millis(200))
    }

    pub(super) fn up_to(looking: Duration, freeing: Duration) -> Spent {
        Spent { looking: Duration::ZERO, freeing: Duration::ZERO, most: [looking, freeing] }
    }

    /// Runs a step that looks at a file, and returns whether it has freed it.
    pub(super) fn step(&mut self, step: impl FnOnce() -> bool) -> bool {
        let began = Instant::now();
        let has_freed = step();
        *(if has_freed { &mut self.freeing } else { &mut self.looking }) += began.elapsed();
        has_freed
    }

    pub(super) fn is_all(&self) -> bool {
        self.looking > self.most[0] || self.freeing > self.most[1]
    }
}

/// Adds search permission to each class that has read permission.
fn searchable(mode: u32) -> u32 {
    (mode & 0o444) >> 2
}

/// Opens the folder at `path`; makes it with these permissions if it does not exist.
fn make_folder(path: &Path, mode: u32) -> Result<Facts, Errno> {
    match memory::make_folder(path, mode) {
        Ok(()) => memory::set_mode_at(path, mode)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let facts = memory::facts_at(path)?;
    if facts.is_folder { Ok(facts) } else { Err(Errno::PERM) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spent_counts_the_time_of_freeing_apart_from_that_of_looking() {
        let take_some_time = |has_freed| {
            let began = Instant::now();
            while began.elapsed().is_zero() {}
            has_freed
        };
        let mut spent = Spent::up_to(Duration::ZERO, Duration::MAX);
        assert!((0..100).all(|_| spent.step(|| take_some_time(true))) && !spent.is_all());
        assert!(!spent.step(|| take_some_time(false)) && spent.is_all());
        let mut spent = Spent::up_to(Duration::MAX, Duration::ZERO);
        assert!(spent.step(|| take_some_time(true)) && spent.is_all());
    }
}
