//! Reports of the kernel when a file is closed: inotify(7).

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::{Errno, For, Result};
use crate::deadline::Deadline;

/// A new inotify instance. EMFILE if the user has none left: 128 are usual.
pub(crate) fn open() -> Result<OwnedFd> {
    sys!("inotify_init", inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK))
}

/// Watches the file behind a descriptor; returns the number of the watch, which is the same for each
/// descriptor of a file.
pub(crate) fn add(instance: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<i32> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    sys!("inotify_add_watch", inotify::add_watch(instance, path, WatchFlags::CLOSE))
}

/// Stops watching a file, which is a report, too. Fails if the watch is gone, for instance with its
/// file system.
pub(crate) fn remove(instance: BorrowedFd<'_>, number: i32) -> Result<()> {
    inotify::remove_watch(instance, number).map_err(Errno::from)
}

/// Waits for reports, and adds the numbers of their watches; `None` if the kernel has dropped some.
/// Returns false if none came before the deadline. [`Errno::BADF`] if the descriptor is of something
/// else by then.
pub(crate) fn wait(
    instance: BorrowedFd<'_>,
    deadline: Deadline,
    numbers: &mut BTreeSet<Option<i32>>,
) -> Result<bool> {
    if !super::wait(&[instance], For::Reading, deadline)? {
        return Ok(false);
    }
    // All descriptors without a file have one inode. The program may have closed this one, and made
    // an eventfd under its number.
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", instance.as_raw_fd()), Vec::new())?;
    if link.as_bytes() != b"anon_inode:inotify" {
        return Err(Errno::BADF);
    }
    let mut buf = [MaybeUninit::uninit(); 4096];
    let mut reports = inotify::Reader::new(instance, &mut buf);
    loop {
        match reports.next() {
            Ok(report) => {
                let is_lost = report.events().contains(ReadFlags::QUEUE_OVERFLOW);
                numbers.insert((!is_lost).then(|| report.wd()));
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}
