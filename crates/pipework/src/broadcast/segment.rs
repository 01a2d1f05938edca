//! A segment as a whole: how it is made or opened, its members, its statistics, and the state of every
//! cell.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::layout::{Geometry, MAX_BLOBS};
use super::shared::{FULL, MISSED, NEXT, Role, Shared, cursor_of};
use super::waiting::Attached;
use super::word::State;
use crate::blob::{BlobAudit, BlobMut, BlobStats, Limits};
use crate::error::{Error, ErrorKind, Result};
use crate::segment::header::Sizes;
use crate::segment::mapping::{Checks, Making};
use crate::sync::{AtomicU64, Flag, Ordering};
use crate::{defaults, sys};

/// How to make or open a segment. A segment that is opened has its sizes already: sizes that are
/// set here must equal them.
#[derive(Clone, Debug)]
pub struct Options {
    messages: Option<u32>,
    message_bytes: Option<u32>,
    members: Option<u32>,
    blobs: Option<u32>,
    observers: Option<bool>,
    blob_limits: Limits,
    max_bytes: u64,
    mode: u32,
    any_owner: bool,
    read_only: bool,
    spin: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            messages: None,
            message_bytes: None,
            members: None,
            blobs: None,
            observers: None,
            blob_limits: Limits { pool: defaults::BLOB_POOL, held: u64::MAX },
            max_bytes: u64::MAX,
            mode: defaults::MODE,
            any_owner: false,
            read_only: false,
            spin: defaults::SPIN,
        }
    }
}

impl Options {
    /// The [`defaults`]: a segment of 1.5 MiB.
    pub fn new() -> Options {
        Options::default()
    }

    /// How many messages the ring keeps, rounded up to a power of two; 2 to 2^20. A subscriber that is
    /// further behind has missed messages, or publishers wait for it.
    pub fn messages(self, messages: u32) -> Options {
        Options { messages: Some(messages), ..self }
    }

    /// Bytes of the longest message that a cell of the ring holds, at most 2^30. A longer one is published
    /// as a blob. Each cell takes 24 bytes, these, and the names of blobs, rounded up to 64 in all.
    pub fn message_bytes(self, bytes: u32) -> Options {
        Options { message_bytes: Some(bytes), ..self }
    }

    /// How many publishers and subscribers can be attached at the same time; 1 to 65535.
    pub fn members(self, members: u32) -> Options {
        Options { members: Some(members), ..self }
    }

    /// How many [blobs](super::Blob) a message can carry, 0 to 8; the default is 8. Each takes 32
    /// bytes of every cell.
    pub fn blobs(self, blobs: u32) -> Options {
        Options { blobs: Some(blobs), ..self }
    }

    /// Whether processes that may only read the file can subscribe: see
    /// [`read_only`](Options::read_only). The default is no. With it, every message costs a system call,
    /// because publishers cannot know whether such a process sleeps.
    pub fn observers(self, yes: bool) -> Options {
        Options { observers: Some(yes), ..self }
    }

    /// Bytes of shared memory that this process keeps for its next blobs, as
    /// [for calls](crate::reqrep::Options::blob_pool).
    pub fn blob_pool(self, bytes: u64) -> Options {
        Options { blob_limits: Limits { pool: bytes, ..self.blob_limits }, ..self }
    }

    /// Bytes of all blobs that this process may hold at a time, copies included: beyond that, calls
    /// fail with `TooLong`, and a message stays for the next call. By default only the file system limits
    /// it.
    pub fn blob_limit(self, bytes: u64) -> Options {
        Options { blob_limits: Limits { held: bytes, ..self.blob_limits }, ..self }
    }

    /// Bytes of the largest segment to open. The default is no cap.
    pub fn max_bytes(self, bytes: u64) -> Options {
        Options { max_bytes: bytes, ..self }
    }

    /// Permissions of the file, for instance 0o660 to share it with a group, or 0o644 to let every user
    /// [observe](Options::observers).
    pub fn mode(self, mode: u32) -> Options {
        Options { mode, ..self }
    }

    /// Whether to open a segment that belongs to another user. The default is to refuse.
    pub fn any_owner(self, yes: bool) -> Options {
        Options { any_owner: yes, ..self }
    }

    /// Whether to open a segment only for reading. This process can then neither disturb nor forge
    /// anything, and needs only the permission to read. Its subscribers may lag, copy every message, and
    /// are no members. The segment must have been made for [`observers`](Options::observers).
    pub fn read_only(self, yes: bool) -> Options {
        Options { read_only: yes, ..self }
    }

    /// How long publishers and subscribers made from the segment spin before they park, at most 1 ms. The
    /// default is 20 µs, about the cost of parking and waking. They spin only as long as recent waits
    /// ended within that time, and never if only one CPU may be used. Zero turns it off.
    pub fn spin(self, limit: Duration) -> Options {
        Options { spin: limit, ..self }
    }

    /// Makes a segment at `path`, which must not exist. The name appears when the segment is
    /// complete.
    ///
    /// # Errors
    ///
    /// `Invalid` for impossible sizes; `Os` with EEXIST if the file exists, ENOSPC if the file
    /// system is full, and so on.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Segment> {
        Shared::create(path.as_ref(), &self.making()).map(|shared| self.segment(shared, true))
    }

    /// Opens the segment at `path`.
    ///
    /// # Errors
    ///
    /// As [for calls](crate::reqrep::Options::open). A segment of calls is `Incompatible`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment> {
        Shared::open(path.as_ref(), &self.checks()).map(|shared| self.segment(shared, false))
    }

    /// Opens the segment at `path`, or makes it if there is none. If several processes do this at
    /// the same time, one of them makes it. An empty regular file of this user counts as none.
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create) and [`open`](Options::open); `WouldBlock` if another program
    /// keeps the empty file locked for a second; `Invalid` with [`read_only`](Options::read_only).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Segment> {
        if self.read_only {
            return Err(Error::new(ErrorKind::Invalid, "broadcast open or create"));
        }
        let opened = Shared::open_or_create(path.as_ref(), &self.checks(), &self.making());
        opened.map(|(shared, is_new)| self.segment(shared, is_new))
    }

    /// Makes a segment without a name, for threads and for processes that are forked from this one.
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create).
    pub fn anonymous(&self) -> Result<Segment> {
        self.memfd("pipework")
    }

    /// As [`anonymous`](Options::anonymous); `name` shows up in `/proc/PID/maps`. The descriptor
    /// ([`AsFd`]) can be passed to other processes, which use [`from_fd`](Options::from_fd).
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create).
    pub fn memfd(&self, name: &str) -> Result<Segment> {
        Shared::in_memory(name, &self.making()).map(|shared| self.segment(shared, false))
    }

    /// Opens the segment behind a descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open).
    pub fn from_fd(&self, fd: OwnedFd) -> Result<Segment> {
        sys::set_cloexec(fd.as_fd()).map_err(|errno| errno.at("broadcast open"))?;
        Shared::open_behind(fd, &self.checks()).map(|shared| self.segment(shared, false))
    }

    /// Opens the segment behind a duplicate of a descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open); `Os` if no descriptor is left.
    pub fn dup_fd(&self, fd: impl AsFd) -> Result<Segment> {
        self.from_fd(sys::duplicate(fd.as_fd()).map_err(|errno| errno.at("broadcast open"))?)
    }

    fn making(&self) -> Making {
        let geometry = Geometry {
            messages: rounded(self.messages.unwrap_or(defaults::MESSAGES)),
            message_bytes: self.message_bytes.unwrap_or(defaults::MESSAGE_BYTES),
            members: self.members.unwrap_or(defaults::MEMBERS),
            blobs: self.blobs.unwrap_or(MAX_BLOBS),
            observers: self.observers.unwrap_or(false),
        };
        Making { sizes: geometry.to_sizes(), mode: self.mode, sparse: false }
    }

    fn checks(&self) -> Checks<'_> {
        let differs = |found: &Sizes| {
            let found = Geometry::checked(found)?;
            let other = |asked: Option<u32>, found: u32| asked.is_some_and(|asked| asked != found);
            [
                (other(self.messages.map(rounded), found.messages), "broadcast open: messages"),
                (other(self.message_bytes, found.message_bytes), "broadcast open: message_bytes"),
                (other(self.members, found.members), "broadcast open: members"),
                (other(self.blobs, found.blobs), "broadcast open: blobs"),
                (self.observers.is_some_and(|asked| asked != found.observers), "broadcast open: observers"),
            ]
            .into_iter()
            .find_map(|(differs, op)| differs.then_some(op))
        };
        let Options { any_owner, read_only, max_bytes, .. } = *self;
        Checks { any_owner, read_only, max_bytes, differs: Box::new(differs) }
    }

    fn segment(&self, shared: Shared, is_new: bool) -> Segment {
        let (shared, is_unlinked) = (shared.with_blobs(self.blob_limits, is_new), Flag::new());
        Segment(Arc::new(SegmentInner { shared, spin: self.spin, is_unlinked }))
    }
}

/// The number of cells for so many messages; 0 if there is no such ring.
fn rounded(messages: u32) -> u32 {
    messages.checked_next_power_of_two().filter(|_| messages > 0).unwrap_or(0)
}

impl Geometry {
    /// The sizes of the segment at `path`, which is opened only for reading: to report them when
    /// [`Options::open`](super::Options::open) refused it, or to find out whether it is a segment.
    ///
    /// # Errors
    ///
    /// As [`Options::open`](super::Options::open), as far as the file itself is concerned.
    pub fn of(path: impl AsRef<Path>) -> Result<Geometry> {
        let sizes = Shared::sizes_at(path.as_ref())?;
        Geometry::checked(&sizes).ok_or(Error::new(ErrorKind::Corrupt, "broadcast open: impossible sizes"))
    }
}

/// A segment that this process has opened. Clones are the same segment.
///
/// It attaches publishers and subscribers, and reports on the whole segment. The numbers may be outdated
/// as soon as they are returned.
#[derive(Clone, Debug)]
pub struct Segment(Arc<SegmentInner>);

#[derive(Debug)]
struct SegmentInner {
    shared: Arc<Shared>,
    spin: Duration,
    /// Whether this process has removed its name.
    is_unlinked: Flag,
}

impl Drop for SegmentInner {
    fn drop(&mut self) {
        if self.is_unlinked.is_set() {
            self.shared.free_left("broadcast unlink");
        }
    }
}

impl Segment {
    /// Memory for a blob of `len` bytes: fill it, [freeze](BlobMut::freeze) it and
    /// [attach](super::Message::attach) it to messages of this channel. It may hold bytes of an
    /// earlier blob of this process.
    ///
    /// # Errors
    ///
    /// `Os`: with ENOSPC if there is no memory for it, with EMFILE if no descriptor is left, or
    /// with the kernel's error for the folder beside the segment. `TooLong` if this process would
    /// hold more than [`blob_limit`](super::Options::blob_limit). `Unsupported` if it may only read.
    pub fn blob(&self, len: usize) -> Result<BlobMut> {
        self.check_writable("broadcast blob")?;
        BlobMut::new(self.shared().blobs(), len, "broadcast blob")
    }

    /// This process's share of the channel's blobs.
    pub fn blob_stats(&self) -> BlobStats {
        BlobStats::of(self.shared().blobs())
    }

    /// The files of the channel's blobs, of all processes. It opens each of them, and changes nothing.
    pub fn blob_audit(&self) -> BlobAudit {
        self.shared().blobs().audit()
    }

    /// The folder for the files of the channel's blobs. The first blob makes the folder, and the
    /// last one removes it.
    pub fn blob_folder(&self) -> &Path {
        self.shared().blobs().location()
    }

    pub(super) fn join(&self, role: Role, op: &'static str) -> Result<Attached> {
        self.check_writable(op)?;
        Attached::join(Arc::clone(&self.0.shared), role, op)
    }

    fn check_writable(&self, op: &'static str) -> Result<()> {
        if self.is_read_only() { Err(Error::new(ErrorKind::Unsupported, op)) } else { Ok(()) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn spin(&self) -> Duration {
        self.0.spin
    }

    /// Whether it was opened [to read](Options::read_only).
    pub fn is_read_only(&self) -> bool {
        self.shared().is_read_only()
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        self.shared().geometry()
    }

    /// The path at which it was made or opened; `None` for a segment without a name.
    pub fn path(&self) -> Option<&Path> {
        self.shared().path()
    }

    /// The number of the newest message, or of one that is just being published; 0 if there was none.
    pub fn newest(&self) -> u64 {
        self.shared().tail().load(Ordering::Acquire)
    }

    /// Removes its name if the name still leads to this segment; returns false if it does not.
    /// Attached members stay attached. This also recovers what dead members held and frees the blobs that
    /// dead processes have left, as [`recover`](Segment::recover) does, and so does the drop of this
    /// process's last handle of the segment.
    ///
    /// # Errors
    ///
    /// `Invalid` for a segment without a name; `Unsupported` if it may only read; `Os`.
    pub fn unlink(&self) -> Result<bool> {
        self.check_writable("broadcast unlink")?;
        let is_removed = self.shared().unlink("broadcast unlink")?;
        if is_removed {
            self.0.is_unlinked.set(true);
            self.0.shared.free_left("broadcast unlink");
        }
        Ok(is_removed)
    }

    /// Writes the segment to the storage of its file, if there is one, and blocks until that is
    /// done.
    ///
    /// # Errors
    ///
    /// `Os`.
    pub fn sync(&self) -> Result<()> {
        self.shared().sync("broadcast sync")
    }

    /// Recovers everything that dead members held, and returns how many members had died. Ends
    /// that wait do so by themselves. It also frees the files of blobs that dead processes have
    /// left, also of processes that were no members.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`; `Unsupported` if it may only
    /// read.
    pub fn recover(&self) -> Result<usize> {
        self.check_writable("broadcast recover")?;
        let dead = self.shared().recover_all("broadcast recover")?;
        self.shared().blobs().sweep(&mut None, || false);
        Ok(dead)
    }

    /// The totals of all members so far, including those that have left or died.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats {
            published: self.newest().saturating_sub(get(shared.skipped())),
            skipped: get(shared.skipped()),
            dead_members: get(&shared.recoveries().dead_members),
            recovered: get(&shared.recoveries().recovered),
            ..Stats::default()
        };
        for (_, member) in shared.members() {
            stats.missed = stats.missed.wrapping_add(get(&member.own.0[MISSED]));
            stats.full = stats.full.wrapping_add(get(&member.own.0[FULL]));
        }
        stats
    }

    /// The attached members, including those that died and were not noticed yet. Processes that may only
    /// read are no members.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`.
    pub fn members(&self) -> Result<Vec<Member>> {
        let (shared, mut members) = (self.shared(), Vec::new());
        for (number, entry) in shared.members() {
            let Some(role) = Shared::role(entry.word.load(Ordering::Acquire)) else { continue };
            let cursor = cursor_of(entry);
            let (newest, next) = (self.newest(), entry.own.0[NEXT].load(Ordering::Relaxed));
            let lag = match role {
                Role::Publisher => 0,
                Role::Subscriber if cursor.is_active() => cursor.behind(newest).max(0) as u64,
                Role::Subscriber => newest.saturating_sub(next),
            };
            let since = Duration::from_nanos(entry.since.load(Ordering::Relaxed));
            members.push(Member {
                number,
                role,
                must_see_all: cursor.is_active(),
                lag,
                pid: entry.pid.load(Ordering::Relaxed),
                since: SystemTime::UNIX_EPOCH + since,
                is_alive: !shared.is_gone(number, "broadcast members")?,
            });
        }
        shared.check_whole("broadcast members")?;
        Ok(members)
    }

    /// Counts the cells in each state. While the segment is in use, the counts are not a snapshot.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`.
    pub fn audit(&self) -> Result<Audit> {
        let (shared, mut audit) = (self.shared(), Audit::default());
        for idx in 0..self.geometry().messages {
            let word = shared.cell(idx).load();
            *match word.state() {
                State::Skipped if word.ahead_of(0) == 0 => &mut audit.empty,
                State::Skipped => &mut audit.skipped,
                State::Writing => &mut audit.writing,
                State::Done => &mut audit.done,
                State::Dropped => &mut audit.dropped,
            } += 1;
            if word.state() == State::Writing && shared.is_gone(word.member(), "broadcast audit")? {
                audit.orphaned += 1;
            }
        }
        for (number, member) in shared.members() {
            if cursor_of(member).is_active() && shared.is_gone(number, "broadcast audit")? {
                audit.orphaned += 1;
            }
        }
        shared.check_whole("broadcast audit")?;
        Ok(audit)
    }
}

impl AsFd for Segment {
    /// The file, for instance to pass on a memfd. It holds no lock.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().file()
    }
}

/// The totals of a segment. A process that is killed may leave its last step uncounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages published.
    pub published: u64,
    /// Numbers that were passed over, because their publisher was killed.
    pub skipped: u64,
    /// Messages that subscribers have missed, all together.
    pub missed: u64,
    /// Times that a publisher had to wait for room in the ring.
    pub full: u64,
    /// Members that died without leaving.
    pub dead_members: u64,
    /// Cells and cursors that were recovered from them.
    pub recovered: u64,
}

impl Stats {
    /// Each under its name, for bindings to other languages.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let Stats { published, skipped, missed, full, dead_members, recovered } = *self;
        [
            ("published", published),
            ("skipped", skipped),
            ("missed", missed),
            ("full", full),
            ("dead_members", dead_members),
            ("recovered", recovered),
        ]
        .into_iter()
    }
}

/// An attached publisher or subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number, counted from 1.
    pub number: u16,
    /// Publisher or subscriber.
    pub role: Role,
    /// Whether publishers wait for it.
    pub must_see_all: bool,
    /// How many messages it has not received, for a subscriber.
    pub lag: u64,
    /// Its process id in its own pid namespace. For people.
    pub pid: u32,
    /// When it attached.
    pub since: SystemTime,
    /// False if it died and was not recovered yet.
    pub is_alive: bool,
}

/// How many cells of a segment are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Never used.
    pub empty: usize,
    /// A publisher is writing a message.
    pub writing: usize,
    /// It has a message.
    pub done: usize,
    /// Its number was passed over.
    pub skipped: usize,
    /// Its message was dropped.
    pub dropped: usize,
    /// Of the cells that are being written, and of the subscribers that must see all: those of members
    /// that are gone. Recovery frees them.
    pub orphaned: usize,
}

impl Audit {
    /// Each under its name, for bindings to other languages.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        let Audit { empty, writing, done, skipped, dropped, orphaned } = *self;
        [
            ("empty", empty),
            ("writing", writing),
            ("done", done),
            ("skipped", skipped),
            ("dropped", dropped),
            ("orphaned", orphaned),
        ]
        .into_iter()
    }
}
