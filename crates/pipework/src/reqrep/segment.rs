//! A segment as a whole: how it is made or opened, its members, its statistics, and the state of every
//! slot.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::layout::{Geometry, MAX_BLOBS};
use super::queue::Entry;
use super::shared::{CANCELLED, EMPTY, FULL, REPLIES, Role, Shared};
use super::slot::{Slot, State};
use super::waiting::Attached;
use super::word::Ticket;
use crate::blob::{self, BlobAudit, BlobMut, BlobStats, Limits};
use crate::error::Result;
use crate::segment::header::Sizes;
use crate::segment::mapping::{Checks, Making};
use crate::sync::{AtomicU64, Flag, Ordering};
use crate::sys;
use crate::{defaults, spin};

/// How to make or open a segment. A segment that is opened has its sizes already: sizes that are
/// set here must equal them.
#[derive(Clone, Debug)]
pub struct Options {
    slots: Option<u32>,
    queue: Option<u32>,
    request_bytes: Option<u32>,
    reply_bytes: Option<u32>,
    members: Option<u32>,
    blobs: Option<u32>,
    blob_limits: Limits,
    max_bytes: u64,
    mode: u32,
    sparse: bool,
    any_owner: bool,
    spin: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            slots: None,
            queue: None,
            request_bytes: None,
            reply_bytes: None,
            members: None,
            blobs: None,
            blob_limits: Limits { pool: defaults::BLOB_POOL, held: u64::MAX },
            max_bytes: u64::MAX,
            mode: defaults::MODE,
            sparse: false,
            any_owner: false,
            spin: defaults::SPIN,
        }
    }
}

impl Options {
    /// The [`defaults`]: a segment of 2 MiB and a little.
    pub fn new() -> Options {
        Options::default()
    }

    /// How many calls can be in progress at the same time, in all clients together, with those that
    /// have timed out while a server works on them; 1 to 2^20. Each
    /// takes 32 bytes, a request, a reply and the names of blobs, rounded up to 64 in all. Further
    /// callers wait in a queue.
    pub fn slots(self, slots: u32) -> Options {
        Options { slots: Some(slots), ..self }
    }

    /// Cells of the ring, rounded up to a power of two and to at least twice the slots, which is
    /// the default and enough. More cells help if many calls are cancelled before a server takes
    /// them.
    pub fn queue(self, cells: u32) -> Options {
        Options { queue: Some(cells), ..self }
    }

    /// Bytes of the longest request that a slot holds, at most 2^30. A longer one is sent as a blob.
    pub fn request_bytes(self, bytes: u32) -> Options {
        Options { request_bytes: Some(bytes), ..self }
    }

    /// Bytes of the longest reply that a slot holds, at most 2^30. A longer one is sent as a blob.
    pub fn reply_bytes(self, bytes: u32) -> Options {
        Options { reply_bytes: Some(bytes), ..self }
    }

    /// How many clients and servers can be attached at the same time; 1 to 65535.
    pub fn members(self, members: u32) -> Options {
        Options { members: Some(members), ..self }
    }

    /// How many [blobs](super::Blob) a message can carry, 0 to 8; the default is 8. Each takes 64
    /// bytes of every slot.
    pub fn blobs(self, blobs: u32) -> Options {
        Options { blobs: Some(blobs), ..self }
    }

    /// Bytes of shared memory that this process keeps for its next blobs after earlier ones were
    /// dropped. As much again stays mapped of files that other processes have sent. The default is
    /// 128 MiB. A file of more than this is never kept, nor one that was made when less than half
    /// of the file system was free, and less than 8 times this: other processes may need the space.
    pub fn blob_pool(self, bytes: u64) -> Options {
        Options { blob_limits: Limits { pool: bytes, ..self.blob_limits }, ..self }
    }

    /// Bytes of all blobs that this process may hold at a time, copies included: beyond that, calls
    /// fail with `TooLong`. A request that a server has no place for stays in the segment until it has
    /// dropped others; one that alone exceeds the limit fails. By default only the file system limits
    /// it.
    pub fn blob_limit(self, bytes: u64) -> Options {
        Options { blob_limits: Limits { held: bytes, ..self.blob_limits }, ..self }
    }

    /// Bytes of the largest segment to open. This caps all of its sizes: the address space that it
    /// takes in this process, and the largest payload that memory is allocated for. The default is
    /// no cap.
    pub fn max_bytes(self, bytes: u64) -> Options {
        Options { max_bytes: bytes, ..self }
    }

    /// Permissions of the file, for instance 0o660 to share it with a group. The group's members
    /// are then trusted not to disturb.
    pub fn mode(self, mode: u32) -> Options {
        Options { mode, ..self }
    }

    /// Whether memory for payloads is allocated when they are first written, instead of all at
    /// once. By default it is reserved, so that a full file system is an error when the segment is
    /// made. With a sparse segment it is an error of `send` (ENOSPC) or `reply`, whose call then
    /// fails. This saves memory if a slot is much larger than a page: the first page of each is
    /// allocated at once.
    pub fn sparse(self, yes: bool) -> Options {
        Options { sparse: yes, ..self }
    }

    /// Whether to open a segment that belongs to another user. The default is to refuse.
    pub fn any_owner(self, yes: bool) -> Options {
        Options { any_owner: yes, ..self }
    }

    /// How long clients and servers made from the segment spin before they park, at most 1 ms. The
    /// default is 20 µs, about the cost of parking and waking. The limit grows by the time that the
    /// other side may take to copy a slot's request and reply, or a payload that was longer than a
    /// slot, 1 ns for each 8 bytes, and is eight times as long in the middle of a call that goes in
    /// parts. They spin only as long as recent waits ended within that time, and never if only one
    /// CPU may be used. Zero turns it off.
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
    /// `Os` with ENOENT if there is no such file; `Invalid` for a symbolic link, for anything but a
    /// regular file, and for another user's file; `Incompatible` for a file that is no segment, or
    /// a segment of another format; `Corrupt` for one that was damaged or cut short. The
    /// operation's name says which.
    ///
    /// `Incompatible` also for a segment of another size than requested ([`Geometry::of`] returns
    /// its sizes), and for one that was made elsewhere: a copy, or a file that is reached by
    /// another way than the one by which it was made, if its locks are other locks there. The
    /// merged and the upper folder of an overlay have different locks; a bind mount has the same. A
    /// device may get another number when the machine starts again: a segment on it is refused
    /// then, and can be removed, because no member of it is alive. `TooLong` for a segment larger
    /// than [`max_bytes`](Options::max_bytes).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment> {
        Shared::open(path.as_ref(), &self.checks()).map(|shared| self.segment(shared, false))
    }

    /// Opens the segment at `path`, or makes it if there is none. If several processes do this at
    /// the same time, one of them makes it.
    ///
    /// An empty regular file of this user counts as none: a program that asks for a temporary file
    /// gets one. The segment replaces it; a program that has the empty file open keeps it.
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create) and [`open`](Options::open); `WouldBlock` if another program
    /// keeps the empty file locked for a second.
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Segment> {
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
    /// A process that passes it on keeps the segment open until the other one has opened it. While no
    /// process has it open, files of blobs in waiting requests may be removed; a server then skips such
    /// a request.
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
        sys::set_cloexec(fd.as_fd()).map_err(|errno| errno.at("reqrep open"))?;
        Shared::open_behind(fd, &self.checks()).map(|shared| self.segment(shared, false))
    }

    /// Opens the segment behind a duplicate of a descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open); `Os` if no descriptor is left.
    pub fn dup_fd(&self, fd: impl AsFd) -> Result<Segment> {
        self.from_fd(sys::duplicate(fd.as_fd()).map_err(|errno| errno.at("reqrep open"))?)
    }

    fn making(&self) -> Making {
        let slots = self.slots.unwrap_or(defaults::SLOTS);
        let geometry = Geometry {
            slots,
            queue: self.cells(slots),
            request_bytes: self.request_bytes.unwrap_or(defaults::REQUEST_BYTES),
            reply_bytes: self.reply_bytes.unwrap_or(defaults::REPLY_BYTES),
            members: self.members.unwrap_or(defaults::MEMBERS),
            blobs: self.blobs.unwrap_or(MAX_BLOBS),
        };
        Making { sizes: geometry.to_sizes(), mode: self.mode, sparse: self.sparse }
    }

    /// Cells of a ring for this number of slots; 0 if there is no such ring.
    fn cells(&self, slots: u32) -> u32 {
        let least = slots.saturating_mul(2).max(self.queue.unwrap_or(0));
        least.checked_next_power_of_two().unwrap_or(0)
    }

    fn checks(&self) -> Checks<'_> {
        let differs = |found: &Sizes| {
            let found = Geometry::from_sizes(found);
            let other = |asked: Option<u32>, found: u32| asked.is_some_and(|asked| asked != found);
            let queue = self.queue.map(|_| self.cells(found.slots));
            [
                (other(self.slots, found.slots), "reqrep open: slots"),
                (other(queue, found.queue), "reqrep open: queue"),
                (other(self.request_bytes, found.request_bytes), "reqrep open: request_bytes"),
                (other(self.reply_bytes, found.reply_bytes), "reqrep open: reply_bytes"),
                (other(self.members, found.members), "reqrep open: members"),
                (other(self.blobs, found.blobs), "reqrep open: blobs"),
            ]
            .into_iter()
            .find_map(|(differs, op)| differs.then_some(op))
        };
        let Options { any_owner, max_bytes, .. } = *self;
        Checks { any_owner, read_only: false, max_bytes, differs: Box::new(differs) }
    }

    fn segment(&self, shared: Shared, is_new: bool) -> Segment {
        let (shared, is_unlinked) = (shared.with_blobs(self.blob_limits, is_new), Flag::new());
        Segment(Arc::new(SegmentInner { shared, spin: self.spin, is_unlinked }))
    }
}

impl Geometry {
    /// The sizes of the segment at `path`, which is opened only for reading: to report them when
    /// [`Options::open`](super::Options::open) refused it, or to find out whether it is a segment.
    ///
    /// # Errors
    ///
    /// As [`Options::open`](super::Options::open), as far as the file itself is concerned.
    pub fn of(path: impl AsRef<Path>) -> Result<Geometry> {
        Shared::sizes_at(path.as_ref()).map(|sizes| Geometry::from_sizes(&sizes))
    }
}

/// A segment that this process has opened. Clones are the same segment.
///
/// It attaches clients and servers, and reports on the whole segment. The numbers may be outdated
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
            self.shared.free_left("reqrep unlink");
        }
    }
}

impl Segment {
    /// Memory for a blob of `len` bytes: fill it, [freeze](BlobMut::freeze) it and
    /// [attach](super::Message::attach) it to messages of this channel. It may hold bytes of an
    /// earlier blob of this process.
    ///
    /// # Blocking
    ///
    /// It does not wait for other processes. The first blob of a size has its memory allocated
    /// here; later ones use it again.
    ///
    /// # Errors
    ///
    /// `Os`: with ENOSPC if there is no memory for it, with EMFILE if no descriptor is left, or
    /// with the kernel's error for the folder beside the segment. `TooLong` if this process would
    /// hold more than [`blob_limit`](super::Options::blob_limit).
    pub fn blob(&self, len: usize) -> Result<BlobMut> {
        BlobMut::new(self.shared().blobs(), len, "reqrep blob")
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

    /// Removes the [folder](Segment::blob_folder) of a channel that was removed, with the files in it.
    /// Returns the files that it removed. Returns `None` and removes nothing if a process holds a
    /// file. A message in a slot may name a file that no process holds, so no process may have the
    /// channel open.
    ///
    /// # Errors
    ///
    /// `Os`; with ENOTEMPTY if the folder has other files.
    #[doc(hidden)]
    pub fn remove_blob_folder(folder: impl AsRef<Path>) -> Result<Option<BlobAudit>> {
        blob::remove_left(folder.as_ref(), "reqrep blob folder")
    }

    pub(super) fn join(&self, role: Role, op: &'static str) -> Result<Attached> {
        Attached::join(Arc::clone(&self.0.shared), role, op)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        self.shared().geometry()
    }

    /// The path at which it was made or opened; `None` for a segment without a name.
    pub fn path(&self) -> Option<&Path> {
        self.shared().path()
    }

    /// How many requests wait for a server: each of them can be received now. A call that has ended
    /// without a server does not count. A request of a client that has died counts until a server
    /// takes it or the client is recovered.
    pub fn waiting(&self) -> usize {
        self.shared().waiting()
    }

    /// Removes its name if the name still leads to this segment; returns false if it does not.
    /// Attached members stay attached.
    ///
    /// No process can open the segment after that. So this also recovers what dead members held and
    /// frees the blobs that dead processes have left, as [`recover`](Segment::recover) does, and so
    /// does the drop of this process's last handle of the segment.
    ///
    /// # Errors
    ///
    /// `Invalid` for a segment without a name; `Os`.
    pub fn unlink(&self) -> Result<bool> {
        let is_removed = self.shared().unlink("reqrep unlink")?;
        if is_removed {
            self.0.is_unlinked.set(true);
            self.0.shared.free_left("reqrep unlink");
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
        self.shared().sync("reqrep sync")
    }

    /// Recovers everything that dead members held, and returns how many members had died. Clients
    /// that wait do so by themselves. It also frees the files of blobs that dead processes have
    /// left, also of processes that were no members.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`.
    pub fn recover(&self) -> Result<usize> {
        let dead = self.shared().recover_all("reqrep recover")?;
        self.shared().blobs().sweep(&mut None, || false);
        Ok(dead)
    }

    /// The totals of all members so far, including those that have left or died.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let recoveries = shared.recoveries();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats {
            dead_members: get(&recoveries.dead_members),
            recovered: get(&recoveries.recovered),
            redelivered: get(shared.redelivered()),
            ..Stats::default()
        };
        for (_, slot) in shared.slots() {
            // Every call was a generation of its slot.
            stats.requests = stats.requests.wrapping_add(slot.load().generation());
        }
        for (_, member) in shared.members() {
            let add = |sum: &mut u64, word: usize| *sum = sum.wrapping_add(get(&member.own.0[word]));
            add(&mut stats.full, FULL);
            add(&mut stats.empty, EMPTY);
            add(&mut stats.cancelled, CANCELLED);
            add(&mut stats.replies, REPLIES);
        }
        stats
    }

    /// The attached members, including those that died and were not noticed yet.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`.
    pub fn members(&self) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for (number, member) in self.shared().members() {
            let Some(role) = Shared::role(member.word.load(Ordering::Acquire)) else { continue };
            let since = Duration::from_nanos(member.since.load(Ordering::Relaxed));
            members.push(Member {
                number,
                role,
                pid: member.pid.load(Ordering::Relaxed),
                since: SystemTime::UNIX_EPOCH + since,
                is_alive: !self.shared().is_gone(number, "reqrep members")?,
            });
        }
        self.shared().check_whole("reqrep members")?;
        Ok(members)
    }

    /// Every slot that is in use, found in one pass. The pass is not a snapshot: calls may end and
    /// begin while others are looked at. A segment that was cut short has none;
    /// [`members`](Segment::members) reports the damage.
    pub fn calls(&self) -> impl Iterator<Item = Call> + '_ {
        self.shared().slots().filter_map(|(idx, slot)| Call::in_slot(idx, slot))
    }

    /// Counts the slots in each state. While the segment is in use, the counts are not a snapshot.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say which members are alive; `Corrupt`.
    pub fn audit(&self) -> Result<Audit> {
        let shared = self.shared();
        let mut audit = Audit::default();
        let mut entries = HashSet::new();
        for entry in shared.queue().entries() {
            audit.entries += 1;
            entries.insert(entry);
        }
        for (idx, slot) in shared.slots() {
            let word = slot.load();
            *match Stage::of(word.state()) {
                None => &mut audit.free,
                Some(Stage::Filling) => &mut audit.filling,
                Some(Stage::Waiting) => &mut audit.waiting,
                Some(Stage::Taken) => &mut audit.taken,
                Some(Stage::InParts) => &mut audit.in_parts,
                Some(Stage::Dropped) => &mut audit.dropped,
                Some(Stage::Done) => &mut audit.done,
                Some(Stage::Damaged) => &mut audit.damaged,
            } += 1;
            if word.state() == Some(State::Sent) && !entries.contains(&Entry::of(idx, word)) {
                audit.unqueued += 1;
            }
            // A request whose client does not wait for its reply has no owner.
            if word.owner() != 0 && shared.is_gone(word.owner(), "reqrep audit")? {
                audit.orphaned += 1;
            }
        }
        shared.check_whole("reqrep audit")?;
        Ok(audit)
    }

    /// How long to spin. With long payloads this includes the time in which the other side copies
    /// one payload out and the next one in.
    pub(super) fn spin(&self) -> Duration {
        let geometry = self.geometry();
        let copied = u64::from(geometry.request_bytes) + u64::from(geometry.reply_bytes);
        spin::with_copies(self.0.spin, copied)
    }
}

impl AsFd for Segment {
    /// The file, for instance to pass on a memfd. It holds no lock.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().file()
    }
}

/// The fields of a struct, each under its name.
macro_rules! by_name {
    ($of:ident, $($field:ident),*) => { [$((stringify!($field), $of.$field)),*].into_iter() };
}

/// The totals of a segment. A process that is killed may leave its last step uncounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls begun.
    pub requests: u64,
    /// Requests that servers have answered or failed, whether or not the client still waited.
    pub replies: u64,
    /// Times that a client found no free slot.
    pub full: u64,
    /// Times that [`Server::try_recv`](super::Server::try_recv), or the first look of a
    /// [`Server::recv`](super::Server::recv), found no request.
    pub empty: u64,
    /// Calls cancelled, including those that timed out.
    pub cancelled: u64,
    /// Members that died without leaving.
    pub dead_members: u64,
    /// Slots that were recovered from them.
    pub recovered: u64,
    /// Requests that went to another server because theirs had died.
    pub redelivered: u64,
}

impl Stats {
    /// Each under its name, for bindings to other languages.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        by_name!(self, requests, replies, full, empty, cancelled, dead_members, recovered, redelivered)
    }
}

/// An attached client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number, counted from 1.
    pub number: u16,
    /// Client or server.
    pub role: Role,
    /// Its process id in its own pid namespace. For people.
    pub pid: u32,
    /// When it attached.
    pub since: SystemTime,
    /// False if it died and was not recovered yet.
    pub is_alive: bool,
}

/// A call in progress, as [`Segment::calls`] found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The call. Two looks that find the same ticket have found the same call.
    pub ticket: Ticket,
    /// Its stage.
    pub stage: Stage,
    /// The member that waits for the reply, if any does.
    pub client: Option<u16>,
    /// The member that has the request, if any.
    pub server: Option<u16>,
}

/// The stage of a call. Each stage is also a field of [`Audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// A client is writing its request.
    Filling,
    /// Its request waits for a server.
    Waiting,
    /// A server has its request.
    Taken,
    /// A server has its request, and the call was cancelled.
    Dropped,
    /// A server has its request, and the client must take a part of the reply or write a part of
    /// the request.
    InParts,
    /// Its reply waits for the client.
    Done,
    /// Its word is one that no member writes.
    Damaged,
}

impl Stage {
    /// `None` for a slot that is free.
    fn of(state: Option<State>) -> Option<Stage> {
        Some(match state {
            Some(State::Free) => return None,
            Some(State::Fill) => Stage::Filling,
            Some(State::Sent) => Stage::Waiting,
            Some(State::Taken | State::Forgotten) => Stage::Taken,
            Some(State::Part) => Stage::InParts,
            Some(State::Dropped) => Stage::Dropped,
            Some(State::Answered | State::Failed | State::Died) => Stage::Done,
            None => Stage::Damaged,
        })
    }
}

impl Call {
    /// `None` for a slot that is free.
    fn in_slot(idx: u32, slot: &Slot) -> Option<Call> {
        let word = slot.load();
        let stage = Stage::of(word.state())?;
        // The fields may belong to another call by now; the numbers are only for people.
        let fields = slot.fields();
        let (client, server) = match stage {
            Stage::Filling | Stage::Waiting | Stage::Done => (word.owner(), 0),
            Stage::Taken if word.state() == Some(State::Forgotten) => (0, word.owner()),
            Stage::Taken => (fields.client, word.owner()),
            Stage::InParts => (word.owner(), fields.server),
            Stage::Dropped => (0, word.owner()),
            Stage::Damaged => (0, 0),
        };
        let someone = |number| Some(number).filter(|number| *number != 0);
        let (client, server) = (someone(client), someone(server));
        Some(Call { ticket: Ticket::new(idx, word), stage, client, server })
    }
}

/// How many slots of a segment are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Not in use.
    pub free: usize,
    /// A client is writing its request.
    pub filling: usize,
    /// Its request waits for a server.
    pub waiting: usize,
    /// A server has its request.
    pub taken: usize,
    /// A server has its request, and the call was cancelled.
    pub dropped: usize,
    /// A server has its request, and the client must take a part of the reply or write a part of
    /// the request.
    pub in_parts: usize,
    /// Its reply waits for the client.
    pub done: usize,
    /// Its word is one that no member writes.
    pub damaged: usize,
    /// Of all these: held by a member that is gone. Recovery frees them.
    pub orphaned: usize,
    /// Of the waiting ones: not in the ring. Zero, unless a member was between two steps.
    pub unqueued: usize,
    /// Entries of the ring, including those of cancelled calls.
    pub entries: usize,
}

impl Audit {
    /// Each under its name, for bindings to other languages.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        by_name!(
            self, free, filling, waiting, taken, dropped, in_parts, done, damaged, orphaned, unqueued,
            entries
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reqrep::Options;

    #[test]
    fn client_that_joins_many_members_tries_few_held_locks() {
        let segment = Options::new().slots(1).members(600).anonymous().expect("a segment");
        let mut clients: Vec<_> = (0..500).map(|_| segment.client().expect("a place")).collect();
        drop(clients.remove(399));
        let joined = segment.join(Role::Client, "test").expect("a place");
        assert_eq!(joined.latest(), 400, "the first that looks free");
        drop(joined);
        let joined = segment.join(Role::Client, "test").expect("a place");
        let tried: Vec<u16> = joined.candidates(1).map(|(number, _)| number).collect();
        assert!(tried.iter().take(65).copied().eq((1..=64).chain([501])), "400 is taken");
        assert!((1..=600).all(|number| tried.contains(&number)), "none is left out for good");
    }

    #[test]
    fn client_is_refused_when_all_places_are_taken() {
        let segment = Options::new().slots(1).members(70).anonymous().expect("a segment");
        let mut clients: Vec<_> = (0..70).map(|_| segment.client().expect("a place")).collect();
        let refused = segment.client().expect_err("all places are taken");
        assert!(refused.to_string().ends_with(": all places for members are taken"), "{refused}");
        clients.truncate(69);
        segment.client().expect("a place that was left");
    }
}
