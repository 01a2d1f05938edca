//! Making and opening a segment, and its counts.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use pipework::reqrep::{self, Audit, Geometry, Member, Role, Segment, Stats};

use crate::defaults::{PWK_DEFAULT_BLOB_POOL, PWK_DEFAULT_MODE, PWK_DEFAULT_SPIN_NS};
use crate::descriptor::{Passed, pwk_fd_how};
use crate::edge::{
    Growing, Handle, In, Lent, Name, Number, Options, Out, Space, Truth, done, free, get, hand_out, put, run,
};
use crate::error::{Result, pwk_error, pwk_status};

/// A segment that this process has opened. Any threads may use one at the same time. Clients and
/// servers made from it live on when it is freed, with pwk_segment_free.
#[derive(Clone)]
pub struct pwk_segment {
    pub(super) segment: Segment,
    path: Option<CString>,
}

/// Not said: the default where a segment is made, any where one is opened.
pub const PWK_UNSET: u32 = u32::MAX;

/// How a segment is made or opened. One that is opened has its sizes already: those that are set
/// here must be the same.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_segment_options {
    /// sizeof(pwk_segment_options).
    pub size: usize,
    /// How many calls can be in progress at the same time, in all clients together: 1 to 2^20, or
    /// PWK_UNSET for PWK_DEFAULT_SLOTS. Further callers wait in line.
    pub slots: u32,
    /// How many entries the queue of waiting requests has, cancelled ones included, or PWK_UNSET
    /// for twice the slots, which is enough.
    pub queue: u32,
    /// Bytes of the largest request in a slot, or PWK_UNSET for PWK_DEFAULT_REQUEST_BYTES. A longer one
    /// lies in a blob, unseen.
    pub request_bytes: u32,
    /// Bytes of the largest reply in a slot, or PWK_UNSET for PWK_DEFAULT_REPLY_BYTES.
    pub reply_bytes: u32,
    /// How many clients and servers can be attached at the same time: 1 to 65535, or PWK_UNSET for
    /// PWK_DEFAULT_MEMBERS.
    pub members: u32,
    /// Permissions of the file; PWK_DEFAULT_MODE by default.
    pub mode: u32,
    /// Bytes of the largest segment to open; UINT64_MAX, the default, is no limit.
    pub max_bytes: u64,
    /// For how long clients and servers spin before they park, up to 1 ms; PWK_DEFAULT_SPIN_NS by
    /// default.
    pub spin_ns: u64,
    /// Memory for payloads is taken when they are first written, and not all at once.
    pub sparse: Truth,
    /// A segment that belongs to another user may be opened.
    pub any_owner: Truth,
    /// How many blobs a message can carry: 0 to PWK_MAX_BLOBS, or PWK_UNSET for PWK_MAX_BLOBS.
    pub blobs: u32,
    /// Bytes of shared memory that this process keeps for its next blobs after earlier ones were freed,
    /// and as much again of files from other processes; PWK_DEFAULT_BLOB_POOL by default.
    pub blob_pool: u64,
    /// Bytes of all blobs that this process may hold at a time, copies included; UINT64_MAX, the
    /// default, is no limit.
    pub blob_limit: u64,
}

/// Fills in the defaults. `size` is sizeof(pwk_segment_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_options_init(options: Space<'_, pwk_segment_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Makes a segment at `path`, which must not exist. The name appears when the segment is complete.
///
/// Fails with PWK_INVALID for impossible sizes; PWK_OS with EEXIST if the file exists, with ENOSPC
/// if the file system is full, and so on.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_create(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_segment_create", options, segment, error, |options, name| Ok(options.create(path.path(name)?)?))
}

/// Opens the segment at `path`.
///
/// Fails with PWK_OS and ENOENT if the file does not exist; PWK_INVALID for a symbolic link, for
/// anything but a regular file, and for another user's file; PWK_INCOMPATIBLE for a file that is no
/// segment, one of another format or with other sizes than were set, and for a copy; PWK_CORRUPT
/// for one that was damaged or cut short; PWK_TOO_LONG for one larger than max_bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_open(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_segment_open", options, segment, error, |options, name| Ok(options.open(path.path(name)?)?))
}

/// Opens the segment at `path`, or makes it if it does not exist. If several processes do this at
/// the same time, one of them makes it. An empty regular file of this user counts as none: the
/// segment replaces it. Fails as pwk_segment_open and pwk_segment_create.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_open_or_create(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_segment_open_or_create", options, segment, error, |options, name| {
        Ok(options.open_or_create(path.path(name)?)?)
    })
}

/// Makes a segment without a name, for threads and for processes that are forked from this one.
/// Fails as pwk_segment_create.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_anonymous(
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_segment_anonymous", options, segment, error, |options, _| Ok(options.anonymous()?))
}

/// As pwk_segment_anonymous; `name`, in UTF-8, shows up in /proc/PID/maps. Other processes open the
/// descriptor that pwk_segment_fd returns, when they were given it.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_memfd(
    name: Lent<'_, c_char>,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_segment_memfd", options, segment, error, |options, of| {
        Ok(options.memfd(name.text(of)?.to_str().map_err(|_| of.invalid())?)?)
    })
}

/// Opens the segment behind a descriptor, with PWK_FD_TAKE or PWK_FD_DUP. Fails as
/// pwk_segment_open.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_from_fd(
    fd: Number,
    how: pwk_fd_how,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_from_fd", error, |name| {
        let (fd, segment) = (Passed::of(fd, how, name)?, name.given(segment)?);
        let Passed::Own(fd) = fd else { return Err(name.invalid()) };
        hand_out(segment, options.options(name)?.options().from_fd(fd)?.into())
    })
}

/// The sizes that a segment was made with. They never change.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_geometry {
    /// How many calls can be in progress at the same time.
    pub slots: u32,
    /// Cells of the ring of waiting requests.
    pub queue: u32,
    /// Bytes of the largest request of one part.
    pub request_bytes: u32,
    /// Bytes of the largest reply of one part.
    pub reply_bytes: u32,
    /// How many clients and servers can be attached at the same time.
    pub members: u32,
    /// How many blobs a message can carry.
    pub blobs: u32,
}

/// Fills in the sizes of the segment at `path`, without opening it for anything else: to report
/// them where pwk_segment_open refused it. `size` is sizeof(pwk_geometry). Fails as
/// pwk_segment_open, as far as the file itself is concerned.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_geometry_of_path(
    path: Lent<'_, c_char>,
    geometry: Space<'_, pwk_geometry>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_geometry_of_path", error, |name| {
        geometry.fill(&(&Geometry::of(path.path(name)?)?).into(), size, name)
    })
}

/// Frees the handle. Clients and servers that were made from it stay as they are, and so does the
/// file.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_free(segment: Handle<pwk_segment>) {
    free(segment);
}

/// Fills in the sizes of a segment. `size` is sizeof(pwk_geometry).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_geometry(
    segment: In<'_, pwk_segment>,
    geometry: Space<'_, pwk_geometry>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_geometry", error, |name| {
        geometry.fill(&name.given(segment)?.segment.geometry().into(), size, name)
    })
}

/// The path at which the segment was made or opened, lent until it is freed; NULL for one without a
/// name.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_path(segment: In<'_, pwk_segment>) -> *const c_char {
    let path = segment.and_then(|segment| segment.path.as_deref());
    path.map_or(std::ptr::null(), |path| path.as_ptr())
}

/// The descriptor of the file, lent until the handle is freed; -1 for NULL. It can be passed on to
/// processes that open it with pwk_segment_from_fd.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_fd(segment: In<'_, pwk_segment>) -> c_int {
    get(-1, || segment.map_or(-1, |segment| segment.segment.as_fd().as_raw_fd()))
}

/// How many requests wait for a server; 0 for NULL. A call that has ended without a server does not
/// count.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_len(segment: In<'_, pwk_segment>) -> usize {
    get(0, || segment.map_or(0, |segment| segment.segment.waiting()))
}

/// Removes its name, if that still leads to this segment; `removed` says whether it did. Attached
/// clients and servers stay attached. Then frees the blobs of processes that have ended.
///
/// Fails with PWK_INVALID for a segment without a name; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_unlink(
    segment: In<'_, pwk_segment>,
    removed: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_unlink", error, |name| put(removed, name.given(segment)?.segment.unlink()?))
}

/// Writes the segment to the storage that its file lies on, if it lies on any, and waits until that
/// is done.
///
/// Fails with PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_sync(segment: In<'_, pwk_segment>, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_segment_sync", error, |name| done(name.given(segment)?.segment.sync()))
}

/// Recovers what dead members held; `dead` says how many had died. Clients that wait do so by
/// themselves.
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_recover(
    segment: In<'_, pwk_segment>,
    dead: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_recover", error, |name| put(dead, name.given(segment)?.segment.recover()?))
}

/// The counts of a segment, of all members so far. A process that is killed may leave its last step
/// uncounted.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_stats {
    /// Calls begun.
    pub requests: u64,
    /// Requests that servers have answered or given up.
    pub replies: u64,
    /// Times that a client found no free slot.
    pub full: u64,
    /// Times that a server found no request.
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

/// Fills in the counts so far. `size` is sizeof(pwk_stats).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_stats(
    segment: In<'_, pwk_segment>,
    stats: Space<'_, pwk_stats>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_stats", error, |name| {
        stats.fill(&name.given(segment)?.segment.stats().into(), size, name)
    })
}

/// A process's share of the blobs of a segment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_blob_stats {
    /// Bytes of the blobs that it holds now, drafts and copies included.
    pub held: u64,
    /// How many blobs it has copied since it opened the segment: those that it received as copies,
    /// as pwk_blob_is_copied says, and those that it sent although they were copies or belong to
    /// another segment. A message that is longer than a slot does not count.
    pub copied: u64,
}

/// Fills in this process's share of the blobs of a segment. `size` is sizeof(pwk_blob_stats).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_blob_stats(
    segment: In<'_, pwk_segment>,
    stats: Space<'_, pwk_blob_stats>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_blob_stats", error, |name| {
        let found = name.given(segment)?.segment.blob_stats();
        stats.fill(&pwk_blob_stats { held: found.held, copied: found.copied }, size, name)
    })
}

/// A client, in pwk_member.role.
pub const PWK_CLIENT: u32 = 1;
/// A server, in pwk_member.role.
pub const PWK_SERVER: u32 = 2;

/// An attached client or server.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_member {
    /// When it attached, in nanoseconds since 1970.
    pub since_ns: i64,
    /// Its number, counted from 1.
    pub number: u32,
    /// PWK_CLIENT or PWK_SERVER.
    pub role: u32,
    /// Its process, as numbered in its own pid namespace. For people.
    pub pid: u32,
    /// 0 if it died and was not recovered yet, else 1.
    pub is_alive: u32,
}

/// Fills in up to `max` of the attached members; `count`, which must not be NULL, is set to the
/// number of all.
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_members(
    segment: In<'_, pwk_segment>,
    members: Space<'_, pwk_member>,
    max: usize,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_members", error, |name| {
        let (segment, count) = (name.given(segment)?, name.given(count)?);
        let (space, found) = (members.array(max, name)?, segment.segment.members()?);
        space.iter_mut().zip(&found).for_each(|(place, member)| _ = place.write(member.into()));
        put(Some(count), found.len())
    })
}

/// How many slots of a segment are in each state. In a segment that is in use, the counts are not
/// of one moment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_audit {
    /// Not in use.
    pub free: u64,
    /// A client is writing its request.
    pub filling: u64,
    /// Its request waits for a server.
    pub waiting: u64,
    /// A server has its request.
    pub taken: u64,
    /// A server has its request, and the call was cancelled.
    pub dropped: u64,
    /// A server has its request, and it is the client's turn.
    pub in_parts: u64,
    /// Its reply waits for the client.
    pub done: u64,
    /// Its word is none that a member of ours writes.
    pub damaged: u64,
    /// Of all these: held by a member that is gone. Recovery frees them.
    pub orphaned: u64,
    /// Of those waiting: not in the ring.
    pub unqueued: u64,
    /// Entries of the ring, including those of cancelled calls.
    pub entries: u64,
}

/// Counts the slots in each state. `size` is sizeof(pwk_audit).
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_segment_audit(
    segment: In<'_, pwk_segment>,
    audit: Space<'_, pwk_audit>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_segment_audit", error, |name| {
        audit.fill(&name.given(segment)?.segment.audit()?.into(), size, name)
    })
}

// ---------------------------------------------------------------- on this side

// SAFETY: numbers, and truth values that may be any byte.
unsafe impl Growing for pwk_segment_options {}
// SAFETY: numbers.
unsafe impl Growing for pwk_geometry {}
// SAFETY: numbers.
unsafe impl Growing for pwk_stats {}
// SAFETY: numbers.
unsafe impl Growing for pwk_audit {}
// SAFETY: numbers.
unsafe impl Growing for pwk_blob_stats {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_segment_options {
    const DEFAULT: pwk_segment_options = pwk_segment_options {
        size: size_of::<pwk_segment_options>(),
        slots: PWK_UNSET,
        queue: PWK_UNSET,
        request_bytes: PWK_UNSET,
        reply_bytes: PWK_UNSET,
        members: PWK_UNSET,
        mode: PWK_DEFAULT_MODE,
        max_bytes: u64::MAX,
        spin_ns: PWK_DEFAULT_SPIN_NS,
        sparse: Truth::of(false),
        any_owner: Truth::of(false),
        blobs: PWK_UNSET,
        blob_pool: PWK_DEFAULT_BLOB_POOL,
        blob_limit: u64::MAX,
    };
}

impl pwk_segment_options {
    fn options(&self) -> reqrep::Options {
        let options = reqrep::Options::new()
            .mode(self.mode)
            .max_bytes(self.max_bytes)
            .spin(Duration::from_nanos(self.spin_ns))
            .sparse(self.sparse.is_set())
            .any_owner(self.any_owner.is_set())
            .blob_pool(self.blob_pool)
            .blob_limit(self.blob_limit);
        type Set = fn(reqrep::Options, u32) -> reqrep::Options;
        let sizes: [(u32, Set); 6] = [
            (self.slots, reqrep::Options::slots),
            (self.queue, reqrep::Options::queue),
            (self.request_bytes, reqrep::Options::request_bytes),
            (self.reply_bytes, reqrep::Options::reply_bytes),
            (self.members, reqrep::Options::members),
            (self.blobs, reqrep::Options::blobs),
        ];
        let set = sizes.into_iter().filter(|(size, _)| *size != PWK_UNSET);
        set.fold(options, |options, (size, set)| set(options, size))
    }
}

impl From<Segment> for pwk_segment {
    fn from(segment: Segment) -> pwk_segment {
        // A path that came from C has no NUL inside.
        let path = segment.path().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        pwk_segment { segment, path }
    }
}

/// Every function that makes a segment.
fn make(
    name: &'static str,
    options: Lent<'_, pwk_segment_options>,
    segment: Out<'_, Handle<pwk_segment>>,
    error: Out<'_, pwk_error>,
    make: impl FnOnce(reqrep::Options, Name) -> Result<Segment>,
) -> pwk_status {
    run(name, error, |name| {
        let segment = name.given(segment)?;
        hand_out(segment, make(options.options(name)?.options(), name)?.into())
    })
}

impl From<&Geometry> for pwk_geometry {
    fn from(geometry: &Geometry) -> pwk_geometry {
        let &Geometry { slots, queue, request_bytes, reply_bytes, members, blobs } = geometry;
        pwk_geometry { slots, queue, request_bytes, reply_bytes, members, blobs }
    }
}

impl From<Stats> for pwk_stats {
    fn from(stats: Stats) -> pwk_stats {
        pwk_stats {
            requests: stats.requests,
            replies: stats.replies,
            full: stats.full,
            empty: stats.empty,
            cancelled: stats.cancelled,
            dead_members: stats.dead_members,
            recovered: stats.recovered,
            redelivered: stats.redelivered,
        }
    }
}

impl From<&Member> for pwk_member {
    fn from(member: &Member) -> pwk_member {
        let since = member.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        pwk_member {
            since_ns: since.as_nanos().try_into().unwrap_or(i64::MAX),
            number: member.number.into(),
            role: if member.role == Role::Client { PWK_CLIENT } else { PWK_SERVER },
            pid: member.pid,
            is_alive: member.is_alive.into(),
        }
    }
}

impl From<Audit> for pwk_audit {
    fn from(audit: Audit) -> pwk_audit {
        pwk_audit {
            free: audit.free as u64,
            filling: audit.filling as u64,
            waiting: audit.waiting as u64,
            taken: audit.taken as u64,
            dropped: audit.dropped as u64,
            in_parts: audit.in_parts as u64,
            done: audit.done as u64,
            damaged: audit.damaged as u64,
            orphaned: audit.orphaned as u64,
            unqueued: audit.unqueued as u64,
            entries: audit.entries as u64,
        }
    }
}
