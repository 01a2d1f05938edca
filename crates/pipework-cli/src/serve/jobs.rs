//! Jobs: requests that nobody waits for. One that fails comes back, and is set aside in the end.
//!
//! A job is a request that its client has forgotten, so its slot is the queue's entry. It is freed
//! by the server that has carried it out; when that server dies, another one gives the request back
//! to all. Both are steps of the channel, with or without this process.

use super::service::Service;
use crate::channel;
use crate::failure::words;
use crate::progress::say;
use crate::sys;
use pipework::reqrep::Request;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn is_job(request: &Request<'_>) -> bool {
    request.flags() == channel::JOB
}

/// Ends a job that was carried out.
pub(super) fn finish(request: Request<'_>) {
    // Its sender may be about to forget it; it does not look at this.
    if let Err(error) = request.reply("") {
        say(format!("a job that was carried out may be carried out again: {}", words(error)));
    }
}

/// Ends an attempt that has failed: the job comes back, or is set aside.
pub(super) fn fail(service: &Service<'_>, mut job: Request<'_>, reason: &[u8]) {
    let (attempt, most) = (job.redeliveries() + 1, service.args.attempts);
    let (name, reason) = (name(&job), String::from_utf8_lossy(reason).into_owned());
    // A service that is stopped is no fault of the job's.
    if (attempt < most || service.has_to_hurry()) && job.give_back() {
        say(format!("{name}: {reason}; this was attempt {attempt} of {most}, it comes back"));
        return;
    }
    set_aside(service, job, &reason);
}

/// Whether a job had all its attempts, and its servers have died with it; then it is set aside.
pub(super) fn is_used_up(service: &Service<'_>, job: &Request<'_>) -> bool {
    job.redeliveries() >= service.args.attempts
}

/// Makes a file of a job. Where that fails, the job comes back if it can.
pub(super) fn set_aside(service: &Service<'_>, mut job: Request<'_>, reason: &str) {
    let (name, attempts) = (name(&job), service.args.attempts);
    match write(&service.args.channel, &job) {
        Ok(path) => {
            say(format!("{name}: {reason}; after {attempts} attempts it is set aside as {}", path.display()));
            finish(job);
        }
        Err(error) => {
            let comes_back = job.give_back();
            if !comes_back {
                service.lost_a_job();
            }
            let then = if comes_back { "comes back" } else { "is lost" };
            say(format!("{name}: {reason}; it {then}, for it cannot be set aside: {}", words(error)))
        }
    }
}

fn name(job: &Request<'_>) -> String {
    let shown = String::from_utf8_lossy(&job[..job.len().min(60)]);
    format!("job {shown:?}")
}

/// Writes a job into the folder beside the channel, all of it or nothing.
fn write(channel: &Path, job: &[u8]) -> io::Result<PathBuf> {
    let mut folder = OsString::from(channel);
    folder.push(".failed");
    let folder = PathBuf::from(folder);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = fs::symlink_metadata(&folder)?;
            if !there.is_dir() || there.uid() != sys::user() {
                let why = format!("{} is no folder, or another user's", folder.display());
                return Err(io::Error::other(why));
            }
        }
        made => made?,
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let path = folder.join(format!("{}.{:09}-{thread}", since.as_secs(), since.subsec_nanos()));
    let begun = path.with_extension("begun");
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&begun)?;
    let written = file.write_all(job).and_then(|()| fs::rename(&begun, &path));
    if written.is_err() {
        // It is of no use; that it cannot be removed either changes nothing.
        let _ = fs::remove_file(&begun);
    }
    written.map(|()| path)
}
