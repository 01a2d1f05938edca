//! The names of the processes of a segment's members.

use crate::processes::{self, FileId};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// What is known of a member from all that a segment tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Joined {
    pub(super) number: u16,
    pub(super) pid: u32,
    pub(super) since: SystemTime,
}

/// The names that were found, each looked up once.
#[derive(Default)]
pub(super) struct Commands(HashMap<Joined, Option<String>>);

impl Commands {
    /// The name of the process of each member of the segment in `file`.
    pub(super) fn of(&mut self, members: &[Joined], file: FileId) -> Vec<Option<String>> {
        self.0.retain(|known, _| members.contains(known));
        let mut look_up = |member| self.0.entry(member).or_insert_with(|| command(member, file)).clone();
        members.iter().map(|member| look_up(*member)).collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The name of the member's process. Its number is one of its own pid namespace, and may be another
/// process's by now: one that was started later, or does not have the segment open.
fn command(member: Joined, file: FileId) -> Option<String> {
    let id = i32::try_from(member.pid).ok()?;
    let is_another = processes::has_open(id, file) == Some(false)
        || processes::started(id)? > member.since.checked_add(Duration::from_secs(2))?;
    if is_another { None } else { processes::command(id) }
}
