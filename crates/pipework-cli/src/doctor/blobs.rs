//! Folders of blobs whose channels are gone. Each lies beside the path that its channel had, or in
//! memory, and its name ends with the channel's number.
//!
//! A message in a slot or in a cell may name a blob that no process holds, and a process may use a channel that
//! has no name. So a folder is removed only if /proc shows no process that has the channel open.

use crate::channel::AnyChannel;
use crate::failure::words;
use crate::look::is_something_else;
use crate::processes;
use pipework::reqrep::{BlobAudit, Segment};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders of `owner` at these paths, and directly in the folders at these paths, whose
/// channels have no name any more.
pub(super) fn at_all(paths: &[PathBuf], owner: u32) -> Vec<PathBuf> {
    let places = paths.iter().flat_map(|path| [path.clone(), path.join(format!("pipework-{owner}"))]);
    let inside = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let mut found: Vec<_> = paths.iter().cloned().chain(inside.map(|entry| entry.path())).collect();
    found.retain(|path| is_left(path, owner));
    found.sort();
    found.dedup();
    found
}

fn is_left(path: &Path, owner: u32) -> bool {
    let is_ours = |facts: &fs::Metadata| facts.is_dir() && facts.uid() == owner;
    let Some((name, _)) = parts(path) else { return false };
    if !path.symlink_metadata().is_ok_and(|facts| is_ours(&facts)) {
        return false;
    }
    match AnyChannel::open(&path.with_file_name(name)) {
        _ if name.is_empty() => true,
        Ok(channel) => !is_of(path, &channel),
        Err(error) => is_something_else(&error),
    }
}

/// The name of the channel, empty if it had none, and the end of its blob folder's name.
fn parts(path: &Path) -> Option<(&str, &str)> {
    let file_name = path.file_name().and_then(OsStr::to_str)?;
    let (name, end) =
        file_name.split_at_checked(file_name.len().checked_sub("0123456789abcdef.blobs".len())?)?;
    let number = end.strip_suffix(".blobs")?;
    let is_number = number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_number && (name.is_empty() || name.ends_with('.')))
        .then(|| (name.strip_suffix('.').unwrap_or(""), end))
}

fn is_of(path: &Path, channel: &AnyChannel) -> bool {
    parts(path).map(|(_, end)| end) == parts(channel.blob_folder()).map(|(_, end)| end)
}

/// Removes the folder, or says why it cannot.
pub(super) fn remove(path: &Path) -> Result<BlobAudit, String> {
    let is_used = |file: &Path| {
        let opened = File::options().read(true).write(true).open(file)?;
        Ok(AnyChannel::behind(&opened).is_ok_and(|channel| is_of(path, &channel)))
    };
    let (user, hidden) = processes::with_unnamed_file(is_used).map_err(words)?;
    if let Some(id) = user {
        return Err(format!("process {id} has the channel open"));
    }
    let facts = fs::symlink_metadata(path).map_err(words)?;
    if hidden > 0 && facts.mode() & 0o066 != 0 {
        return Err("processes of other users, who may use it, do not show what they have open".into());
    }
    match Segment::remove_blob_folder(path).map_err(words)? {
        Some(found) => Ok(found),
        None => Err("a process holds a blob in it".into()),
    }
}
