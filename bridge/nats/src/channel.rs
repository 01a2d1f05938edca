//! The local end: a channel at a path, and whether workers are attached to it.

use pipework::reqrep::{Options, Role, Segment};
use pipework::{Error, ErrorKind};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Why a bridge cannot go on, in words for its user.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Names the subject of an error, for `map_err`.
pub(crate) fn at<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure(format!("{what}: {error}"))
}

/// Opens the channel at `path`, or makes it.
pub(crate) fn open(path: &Path, any_owner: bool) -> Result<Segment, Failure> {
    Options::new().any_owner(any_owner).open_or_create(path).map_err(at(path.display()))
}

/// Which bridges may be at one channel at the same time. Two directions in two programs would send
/// calls round for ever: neither knows which calls the other has brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Any number that bring calls in.
    Inwards,
    /// One that takes calls out.
    Outwards,
}

/// A lock of the channel's file that is held for as long as the bridge runs, and ends with its
/// process.
#[derive(Debug)]
pub(crate) struct OnlyOne {
    _locked: File,
}

impl OnlyOne {
    /// `None` while another bridge has the lock.
    pub(crate) fn try_lock(segment: &Segment, direction: Direction) -> Result<Option<OnlyOne>, Failure> {
        let file = File::from(segment.as_fd().try_clone_to_owned().map_err(at("the channel's file"))?);
        let locked = match direction {
            Direction::Inwards => file.try_lock_shared(),
            Direction::Outwards => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Some(OnlyOne { _locked: file })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(at("the channel's lock")(error)),
        }
    }
}

/// Whether a worker is attached that lives and is not this program.
pub(crate) fn has_worker(segment: &Segment) -> Result<bool, Error> {
    let own = std::process::id();
    let is_worker = |member: &pipework::reqrep::Member| {
        member.role == Role::Server && member.is_alive && member.pid != own
    };
    Ok(segment.members()?.iter().any(is_worker))
}

/// Whether an error of a channel may be over by the next time.
pub(crate) fn is_passing(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible | ErrorKind::Stale)
}
