//! Removes a segment or a FIFO that is unused.
//!
//! The state at the time of listing may be over by now, and /proc does not show every process. So
//! the kernel is asked for the proof here, right before the name goes.

use crate::channel::{self, Removal};
use crate::failure::words;
use crate::look::{Find, What};
use crate::processes::{self, Uses};
use crate::sys;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Removes it, or says why not.
pub(super) fn remove(find: &Find) -> Result<(), String> {
    match find.what {
        What::Segment(_) | What::Broadcast(_) => remove_file(find),
        What::Fifo(_) => remove_fifo(find),
    }
}

fn remove_file(find: &Find) -> Result<(), String> {
    // Requests that were seen to wait may be lost: a person was asked, or none waited.
    let may_lose = match &find.what {
        What::Segment(Ok(found)) => found.waiting,
        _ => usize::MAX,
    };
    match channel::remove_unused(&find.path, find.file, may_lose).map_err(words)? {
        Removal::Done => Ok(()),
        Removal::Changed => Err(CHANGED.into()),
        Removal::Waiting(now) => Err(format!("requests wait in it by now: {now}")),
        Removal::InUse => Err(match find.uses.first() {
            Some(found) => format!("process {} has it open", found.id),
            None => "a process has it open that /proc does not show".into(),
        }),
        Removal::Unknown(error) => {
            Err(format!("the system does not tell whether it is open: {}", words(error)))
        }
    }
}

/// A FIFO has no lease. /proc shows the processes that have it open, and those that wait for its
/// other end. That no process reads from it, anywhere, shows in that it cannot be opened for
/// writing.
fn remove_fifo(find: &Find) -> Result<(), String> {
    let uses = Uses::of(&HashSet::from([find.file])).map_err(words)?;
    if let [first, ..] = uses.at(find.file) {
        return Err(format!("process {} has it open", first.id));
    }
    let facts = fs::symlink_metadata(&find.path).map_err(words)?;
    if uses.hidden > 0 && facts.mode() & 0o066 != 0 {
        return Err("processes of other users, who may use it, do not show what they have open".into());
    }
    if let [first, ..] = processes::waiting_for(find.file).map_err(words)?[..] {
        return Err(format!("process {first} waits for its other end, or for that of a FIFO like it"));
    }
    match sys::open_fifo(&find.path, sys::FifoEnd::Writing) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => unlink(find),
        Err(error) => Err(words(error)),
        Ok(_) => Err("somebody reads from it".into()),
    }
}

const CHANGED: &str = "another file has its name now";

fn unlink(find: &Find) -> Result<(), String> {
    match sys::unlink_file(&find.path, find.file).map_err(words)? {
        true => Ok(()),
        false => Err(CHANGED.into()),
    }
}
