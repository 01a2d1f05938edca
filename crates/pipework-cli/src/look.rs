//! The file at a path: a segment, of calls or of a broadcast, or a FIFO, and whether any process uses it.
//!
//! Looking changes nothing: a segment is opened and no member joins it, a FIFO is not opened at
//! all. That a member lives is proved by its lock. /proc shows that a process has a file open
//! without being a member, but it does not show every process; removing a file needs a better proof
//! than this.

use crate::channel;
use crate::pipes::{self, Fill};
use crate::processes::{FileId, Use, Uses};
use crate::progress::size;
use crate::sys::is_shortage;
use crate::table::{count, path};
use pipework::broadcast;
use pipework::reqrep::{BlobAudit, Geometry, Member, Options, Role};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A segment or a FIFO.
pub(crate) struct Find {
    pub(crate) path: PathBuf,
    pub(crate) file: FileId,
    /// When it was made, or changed last where the file system does not know.
    pub(crate) since: Option<SystemTime>,
    /// How long it is.
    pub(crate) bytes: u64,
    pub(crate) what: What,
    /// The processes that have it open.
    pub(crate) uses: Vec<Use>,
}

pub(crate) enum What {
    Segment(Result<Attached, pipework::Error>),
    Broadcast(Result<Broadcast, pipework::Error>),
    Fifo(Option<Fill>),
}

/// The members and calls of a segment.
pub(crate) struct Attached {
    pub(crate) geometry: Geometry,
    pub(crate) members: Vec<Member>,
    /// Requests that wait for a server; without those of dead clients, whose replies no one waits
    /// for.
    pub(crate) waiting: usize,
    pub(crate) blobs: BlobAudit,
}

impl Attached {
    /// Members that live, of one role.
    pub(crate) fn living(&self, role: Role) -> usize {
        self.members.iter().filter(|member| member.is_alive && member.role == role).count()
    }

    /// Members that died without leaving.
    pub(crate) fn dead(&self) -> usize {
        self.members.iter().filter(|member| !member.is_alive).count()
    }
}

/// The members and messages of a broadcast.
pub(crate) struct Broadcast {
    pub(crate) geometry: broadcast::Geometry,
    pub(crate) members: Vec<broadcast::Member>,
    /// The number of the newest message.
    pub(crate) newest: u64,
    pub(crate) blobs: BlobAudit,
}

impl Broadcast {
    /// Members that live, of one role.
    pub(crate) fn living(&self, role: broadcast::Role) -> usize {
        self.members.iter().filter(|member| member.is_alive && member.role == role).count()
    }

    /// Members that died without leaving.
    pub(crate) fn dead(&self) -> usize {
        self.members.iter().filter(|member| !member.is_alive).count()
    }

    /// The subscribers that live and for which publishers wait now.
    pub(crate) fn holding_up(&self) -> impl Iterator<Item = &broadcast::Member> {
        let messages = u64::from(self.geometry.messages);
        let is_full = move |member: &&broadcast::Member| {
            member.is_alive && member.must_see_all && member.lag >= messages
        };
        self.members.iter().filter(is_full)
    }
}

/// How something is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A live member is attached, or the FIFO has a reader and a writer.
    InUse,
    /// A process has it open, and that is all.
    Open,
    /// A FIFO that no visible process has open: it may wait for its next user.
    Unused,
    /// A segment that no visible process uses.
    Left,
    /// A segment that no program can use any more, or not by this version or from here.
    Broken,
    /// This user may not look.
    Closed,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::InUse => "in use",
            State::Open => "open",
            State::Unused => "unused",
            State::Left => "left",
            State::Broken => "broken",
            State::Closed => "closed",
        }
    }
}

impl Find {
    pub(crate) fn state(&self) -> State {
        let is_open = !self.uses.is_empty();
        match &self.what {
            What::Segment(Ok(found)) if found.members.iter().any(|member| member.is_alive) => State::InUse,
            What::Broadcast(Ok(found)) if found.members.iter().any(|member| member.is_alive) => State::InUse,
            What::Segment(Err(error)) | What::Broadcast(Err(error)) if error.errno().is_some() => {
                State::Closed
            }
            What::Segment(Err(_)) | What::Broadcast(Err(_)) => State::Broken,
            What::Segment(Ok(_)) | What::Broadcast(Ok(_)) if is_open => State::Open,
            What::Segment(Ok(_)) | What::Broadcast(Ok(_)) => State::Left,
            What::Fifo(_) if self.readers() > 0 && self.writers() > 0 => State::InUse,
            What::Fifo(_) if is_open => State::Open,
            What::Fifo(_) => State::Unused,
        }
    }

    pub(crate) fn readers(&self) -> usize {
        self.processes(|found| found.reads)
    }

    pub(crate) fn writers(&self) -> usize {
        self.processes(|found| found.writes)
    }

    fn processes(&self, counts: impl Fn(&Use) -> bool) -> usize {
        self.uses.iter().filter(|found| counts(found)).map(|found| found.id).collect::<HashSet<_>>().len()
    }

    /// The users, in words.
    pub(crate) fn users(&self) -> String {
        match &self.what {
            What::Fifo(_) => {
                format!("{}, {}", count(self.readers(), "reader"), count(self.writers(), "writer"))
            }
            What::Segment(Err(error)) | What::Broadcast(Err(error)) => channel::why(&self.path, *error),
            What::Segment(Ok(found)) => {
                let (servers, clients) = (found.living(Role::Server), found.living(Role::Client));
                let living = format!("{}, {}", count(servers, "server"), count(clients, "client"));
                living + &remains(found.dead(), &found.blobs)
            }
            What::Broadcast(Ok(found)) => {
                use broadcast::Role;
                let (publishers, subscribers) =
                    (found.living(Role::Publisher), found.living(Role::Subscriber));
                let living =
                    format!("{}, {}", count(publishers, "publisher"), count(subscribers, "subscriber"));
                living + &remains(found.dead(), &found.blobs)
            }
        }
    }
}

/// What stands behind the living members of a channel.
fn remains(dead: usize, found: &BlobAudit) -> String {
    let dead = if dead > 0 { format!(", {dead} dead") } else { String::new() };
    let blobs = if found.files > 0 { format!(", {}", blobs(found)) } else { String::new() };
    dead + &blobs
}

/// The role of a member of a broadcast, as a word.
pub(crate) fn role(role: broadcast::Role) -> &'static str {
    match role {
        broadcast::Role::Publisher => "publisher",
        broadcast::Role::Subscriber => "subscriber",
    }
}

/// The files of a channel's blobs, in words.
pub(crate) fn blobs(audit: &BlobAudit) -> String {
    let left = if audit.left > 0 { format!(", {} left behind", audit.left) } else { String::new() };
    format!("{} in {}{left}", size(audit.bytes), count(audit.files, "blob file"))
}

/// The same for programs.
pub(crate) fn blobs_object(audit: &BlobAudit) -> Value {
    json!({
        "files": audit.files,
        "bytes": audit.bytes,
        "held": audit.held,
        "named": audit.named,
        "left": audit.left,
        "left_bytes": audit.left_bytes,
    })
}

/// The default places of this user's segments and FIFOs: folders in memory, and
/// that of temporary files.
pub(crate) fn usual_places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/dev/shm")];
    places.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    places.push(std::env::temp_dir());
    // After a change of user, the environment may still name the folders of the first.
    let is_barred = |error: &io::Error| {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        matches!(error.kind(), NotADirectory | NotFound | PermissionDenied)
    };
    places.retain(|place| !fs::read_dir(place).as_ref().is_err_and(is_barred));
    places.dedup();
    places
}

/// The segments and FIFOs at these paths: a folder is searched for files of `owner`, without the
/// folders in it. A path that cannot be read is an error with that path.
pub(crate) fn at_all(paths: &[PathBuf], owner: u32) -> Result<Vec<Find>, (PathBuf, io::Error)> {
    let mut finds = vec![];
    for path in paths {
        let failed = |error| (path.clone(), error);
        let facts = path.metadata().map_err(failed)?;
        if facts.is_dir() {
            let mut inside: Vec<_> = fs::read_dir(path).map_err(failed)?.flatten().collect();
            inside.sort_by_key(fs::DirEntry::file_name);
            for entry in inside {
                let Some(facts) = entry.metadata().ok().filter(|facts| facts.uid() == owner) else {
                    continue;
                };
                // A file that cannot be read is not said to be a segment.
                let find = of(&entry.path(), &facts).map_err(failed)?;
                finds.extend(find.filter(|find| find.state() != State::Closed));
            }
        } else {
            let nothing = || failed(io::Error::other("it is neither a channel nor a FIFO"));
            // A finding about a link is about its target, the more so if that is removed.
            let target = match path.is_symlink() {
                true => &path.canonicalize().map_err(failed)?,
                false => path,
            };
            finds.push(of(target, &facts).map_err(failed)?.ok_or_else(nothing)?);
        }
    }
    let files = finds.iter().map(|find| find.file).collect();
    let uses = Uses::of(&files).map_err(|error| (PathBuf::from("/proc"), error))?;
    for find in &mut finds {
        find.uses = uses.at(find.file).to_vec();
        if let What::Fifo(fill) = &mut find.what {
            *fill = pipes::fill(find.file, &find.uses);
        }
    }
    Ok(finds)
}

/// The segment or FIFO at a path, if it is one; fails if this process lacks a permission to look.
/// Its users are not looked up yet.
fn of(path: &Path, facts: &Metadata) -> io::Result<Option<Find>> {
    let what = match facts.file_type() {
        kind if kind.is_fifo() => What::Fifo(None),
        kind if kind.is_file() => {
            let what = segment(path);
            let error = match &what {
                What::Segment(found) => found.as_ref().err(),
                What::Broadcast(found) => found.as_ref().err(),
                What::Fifo(_) => None,
            };
            match error.and_then(pipework::Error::errno).map(io::Error::from_raw_os_error) {
                Some(error) if is_shortage(&error) => return Err(error),
                _ if error.is_some_and(is_something_else) => return Ok(None),
                _ => what,
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(Find {
        path: path.into(),
        file: (facts.dev(), facts.ino()),
        since: facts.created().or_else(|_| facts.modified()).ok(),
        bytes: facts.len(),
        what,
        uses: vec![],
    }))
}

/// The contents of the segment at a path.
fn segment(path: &Path) -> What {
    let attached = || {
        // Reads the beginning of the file first, and so finds out whether it is a segment.
        Geometry::of(path)?;
        let segment = Options::new().any_owner(true).open(path)?;
        let members = segment.members()?;
        let waiting = channel::waiting(&segment, &members);
        Ok(Attached { geometry: *segment.geometry(), members, waiting, blobs: segment.blob_audit() })
    };
    let broadcast = || {
        let segment = channel::open_broadcast(path)?;
        let (geometry, members, newest) = (*segment.geometry(), segment.members()?, segment.newest());
        Ok(Broadcast { geometry, members, newest, blobs: segment.blob_audit() })
    };
    match attached() {
        Err(error) if channel::is_other_kind(&error) => match broadcast() {
            Err(error) if channel::is_other_kind(&error) => What::Segment(Err(error)),
            found => What::Broadcast(found),
        },
        found => What::Segment(found),
    }
}

/// Whether the error means that the file is no segment, or is gone.
pub(crate) fn is_something_else(error: &pipework::Error) -> bool {
    let ends = [": not a segment", ": too short for a segment", ": not a regular file", ": symbolic link"];
    ends.iter().any(|end| error.op().ends_with(end)) || error.errno() == Some(libc::ENOENT)
}

/// Says that nothing was found; otherwise a person would see no output at all.
pub(crate) fn say_nothing_found(paths: &[PathBuf]) {
    let places: Vec<String> = paths.iter().map(|place| path(place)).collect();
    crate::progress::say(format!("nothing found in {}", places.join(", ")));
}

/// A path that could not be looked at, in words.
pub(crate) fn failure((place, error): (PathBuf, io::Error)) -> crate::failure::Failure {
    crate::failure::at(path(&place))(error)
}
