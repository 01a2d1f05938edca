//! Jobs: requests whose sender does not wait. One that fails comes back, and is set aside in the end.
//!
//! A job is a request that its client has forgotten, so its slot is the queue's entry. It is freed
//! by the server that has carried it out; when that server dies, another one gives the request back
//! to all. Both are steps of the channel, with or without this process.

use super::args::ServeArgs;
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

/// Ends an attempt that has failed: the job comes back, or is set aside. Returns whether it is lost.
pub(super) fn fail(args: &ServeArgs, mut job: Request<'_>, reason: &[u8], is_stopped: bool) -> bool {
    let (attempt, most) = (job.redeliveries() + 1, args.attempts);
    let (name, reason) = (name(&job), String::from_utf8_lossy(reason).into_owned());
    // A service that is stopped is no fault of the job's.
    if (attempt < most || is_stopped) && job.give_back() {
        say(format!("{name}: {reason}; this was attempt {attempt} of {most}, it comes back"));
        return false;
    }
    set_aside(args, job, &reason)
}

/// Whether a job had all its attempts: its servers have died with it, were stopped, or could not set
/// it aside.
pub(super) fn is_used_up(args: &ServeArgs, job: &Request<'_>) -> bool {
    job.redeliveries() >= args.attempts
}

/// Makes a file of a job. If that fails, the job comes back if it can; else it is lost, which this
/// returns.
pub(super) fn set_aside(args: &ServeArgs, mut job: Request<'_>, reason: &str) -> bool {
    let (name, attempts) = (name(&job), args.attempts);
    match write(&args.channel, &job) {
        Ok(path) => {
            say(format!("{name}: {reason}; after {attempts} attempts it is set aside as {}", path.display()));
            finish(job);
            false
        }
        Err(error) => {
            let comes_back = job.give_back();
            let then = if comes_back { "comes back" } else { "is lost" };
            say(format!("{name}: {reason}; it {then}, for it cannot be set aside: {}", words(error)));
            !comes_back
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
