//! Reports of the kernel when a file is closed: inotify(7).

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::{Errno, Result};

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

/// Takes the reports that have come, and adds the numbers of their watches; `None` if the kernel has
/// dropped some.
pub(crate) fn take(instance: BorrowedFd<'_>, numbers: &mut BTreeSet<Option<i32>>) -> Result<()> {
    let mut buf = [MaybeUninit::uninit(); 4096];
    let mut reports = inotify::Reader::new(instance, &mut buf);
    loop {
        match reports.next() {
            Ok(report) => {
                let is_lost = report.events().contains(ReadFlags::QUEUE_OVERFLOW);
                numbers.insert((!is_lost).then(|| report.wd()));
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
