//! Making and opening a channel of broadcast, and its counts.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use pipework::broadcast::{self, Audit, Geometry, Member, Role, Segment, Stats};

use crate::defaults::{PWK_DEFAULT_BLOB_POOL, PWK_DEFAULT_MODE, PWK_DEFAULT_SPIN_NS};
use crate::descriptor::{Passed, pwk_fd_how};
use crate::edge::{
    Growing, Handle, In, Lent, Name, Number, Options, Out, Space, Truth, done, free, get, hand_out, put, run,
};
use crate::error::{Result, pwk_error, pwk_status};
use crate::reqrep::blob::pwk_blob_draft;
use crate::reqrep::segment::{PWK_UNSET, pwk_blob_stats};

/// A channel of broadcast that this process has opened. Any threads may use one at the same time.
/// Publishers and subscribers made from it live on when it is freed, with pwk_broadcast_free.
#[derive(Clone)]
pub struct pwk_broadcast {
    pub(super) segment: Segment,
    path: Option<CString>,
}

/// How a channel is made or opened. One that is opened has its sizes already: those that are set here
/// must be the same.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_broadcast_options {
    /// sizeof(pwk_broadcast_options).
    pub size: usize,
    /// How many messages the ring keeps, rounded up to a power of two: 2 to 2^20, or PWK_UNSET for
    /// PWK_DEFAULT_MESSAGES.
    pub messages: u32,
    /// Bytes of the longest message in a cell of the ring, at most 2^30, or PWK_UNSET for
    /// PWK_DEFAULT_MESSAGE_BYTES. A longer one lies in a blob, unseen.
    pub message_bytes: u32,
    /// How many publishers and subscribers can be attached at the same time: 1 to 65535, or PWK_UNSET
    /// for PWK_DEFAULT_MEMBERS.
    pub members: u32,
    /// How many blobs a message can carry: 0 to PWK_MAX_BLOBS, or PWK_UNSET for PWK_MAX_BLOBS.
    pub blobs: u32,
    /// Processes that may only read the file can subscribe: see read_only. Every message then costs a
    /// system call. By default they cannot, and a channel of either kind is opened.
    pub observers: Truth,
    /// A channel that belongs to another user may be opened.
    pub any_owner: Truth,
    /// The channel is opened only for reading. This process can then disturb nobody. It cannot publish,
    /// and its subscribers may lag, copy every message, and are no members. The channel must have been
    /// made with observers.
    pub read_only: Truth,
    /// Permissions of the file; PWK_DEFAULT_MODE by default. With 0644 every user can observe.
    pub mode: u32,
    /// Bytes of the largest channel to open; UINT64_MAX, the default, is no limit.
    pub max_bytes: u64,
    /// For how long publishers and subscribers spin before they park, up to 1 ms; PWK_DEFAULT_SPIN_NS by
    /// default.
    pub spin_ns: u64,
    /// Bytes of shared memory that this process keeps for its next blobs after earlier ones were freed,
    /// and as much again of files from other processes; PWK_DEFAULT_BLOB_POOL by default.
    pub blob_pool: u64,
    /// Bytes of all blobs that this process may hold at a time, copies included; UINT64_MAX, the
    /// default, is no limit.
    pub blob_limit: u64,
}

/// Fills in the defaults. `size` is sizeof(pwk_broadcast_options).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_options_init(options: Space<'_, pwk_broadcast_options>, size: usize) {
    get((), || _ = options.init(size));
}

/// Makes a channel at `path`, which must not exist. The name appears when the channel is complete.
///
/// Fails with PWK_INVALID for impossible sizes; PWK_OS with EEXIST if the file exists, with ENOSPC if
/// the file system is full, and so on.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_create(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_broadcast_create", options, broadcast, error, |options, name| {
        Ok(options.create(path.path(name)?)?)
    })
}

/// Opens the channel at `path`. Fails as pwk_segment_open; a segment of calls is PWK_INCOMPATIBLE.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_open(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_broadcast_open", options, broadcast, error, |options, name| Ok(options.open(path.path(name)?)?))
}

/// Opens the channel at `path`, or makes it if it does not exist. If several processes do this at the
/// same time, one of them makes it. An empty regular file of this user counts as none: the channel
/// replaces it. Fails as pwk_broadcast_open and pwk_broadcast_create; with PWK_INVALID for read_only.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_open_or_create(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_broadcast_open_or_create", options, broadcast, error, |options, name| {
        Ok(options.open_or_create(path.path(name)?)?)
    })
}

/// Makes a channel without a name, for threads and for processes that are forked from this one. Fails
/// as pwk_broadcast_create.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_anonymous(
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_broadcast_anonymous", options, broadcast, error, |options, _| Ok(options.anonymous()?))
}

/// As pwk_broadcast_anonymous; `name`, in UTF-8, shows up in /proc/PID/maps. Other processes open the
/// descriptor that pwk_broadcast_fd returns, when they were given it.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_memfd(
    name: Lent<'_, c_char>,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_broadcast_memfd", options, broadcast, error, |options, of| {
        Ok(options.memfd(name.text(of)?.to_str().map_err(|_| of.invalid())?)?)
    })
}

/// Opens the channel behind a descriptor, with PWK_FD_TAKE or PWK_FD_DUP. Fails as
/// pwk_broadcast_open.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_from_fd(
    fd: Number,
    how: pwk_fd_how,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_from_fd", error, |name| {
        let (fd, broadcast) = (Passed::of(fd, how, name)?, name.given(broadcast)?);
        let Passed::Own(fd) = fd else { return Err(name.invalid()) };
        hand_out(broadcast, options.options(name)?.options().from_fd(fd)?.into())
    })
}

/// The sizes that a channel was made with. They never change.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_broadcast_sizes {
    /// How many messages the ring keeps, a power of two.
    pub messages: u32,
    /// Bytes of the longest message in a cell of the ring.
    pub message_bytes: u32,
    /// How many publishers and subscribers can be attached at the same time.
    pub members: u32,
    /// How many blobs a message can carry.
    pub blobs: u32,
    /// 1 if processes that may only read the file can subscribe, else 0.
    pub observers: u32,
}

/// Fills in the sizes of the channel at `path`, without opening it for anything else: to report them
/// where pwk_broadcast_open refused it. `size` is sizeof(pwk_broadcast_sizes). Fails as
/// pwk_broadcast_open, as far as the file itself is concerned.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_geometry_of_path(
    path: Lent<'_, c_char>,
    sizes: Space<'_, pwk_broadcast_sizes>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_geometry_of_path", error, |name| {
        sizes.fill(&(&Geometry::of(path.path(name)?)?).into(), size, name)
    })
}

/// Frees the handle. Publishers and subscribers that were made from it stay as they are, and so does
/// the file.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_free(broadcast: Handle<pwk_broadcast>) {
    free(broadcast);
}

/// Fills in the sizes of a channel. `size` is sizeof(pwk_broadcast_sizes).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_geometry(
    broadcast: In<'_, pwk_broadcast>,
    sizes: Space<'_, pwk_broadcast_sizes>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_geometry", error, |name| {
        sizes.fill(&name.given(broadcast)?.segment.geometry().into(), size, name)
    })
}

/// The path at which the channel was made or opened, lent until it is freed; NULL for one without a
/// name.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_path(broadcast: In<'_, pwk_broadcast>) -> *const c_char {
    let path = broadcast.and_then(|broadcast| broadcast.path.as_deref());
    path.map_or(std::ptr::null(), |path| path.as_ptr())
}

/// The descriptor of the file, lent until the handle is freed; -1 for NULL. It can be passed on to
/// processes that open it with pwk_broadcast_from_fd.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_fd(broadcast: In<'_, pwk_broadcast>) -> c_int {
    get(-1, || broadcast.map_or(-1, |broadcast| broadcast.segment.as_fd().as_raw_fd()))
}

/// The number of the newest message, or of one that is just being published; 0 if there was none, and
/// for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_newest(broadcast: In<'_, pwk_broadcast>) -> u64 {
    get(0, || broadcast.map_or(0, |broadcast| broadcast.segment.newest()))
}

/// Removes its name, if that still leads to this channel; `removed` says whether it did. Attached
/// publishers and subscribers stay attached. Then frees the blobs of processes that have ended.
///
/// Fails with PWK_INVALID for a channel without a name; PWK_UNSUPPORTED if it was opened with
/// read_only; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_unlink(
    broadcast: In<'_, pwk_broadcast>,
    removed: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_unlink", error, |name| put(removed, name.given(broadcast)?.segment.unlink()?))
}

/// Writes the channel to the storage that its file lies on, if it lies on any, and waits until that is
/// done.
///
/// Fails with PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_sync(
    broadcast: In<'_, pwk_broadcast>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_sync", error, |name| done(name.given(broadcast)?.segment.sync()))
}

/// Recovers what dead members held; `dead` says how many had died. Publishers and subscribers that wait
/// do so by themselves.
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT; PWK_UNSUPPORTED if
/// the channel was opened with read_only.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_recover(
    broadcast: In<'_, pwk_broadcast>,
    dead: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_recover", error, |name| put(dead, name.given(broadcast)?.segment.recover()?))
}

/// The counts of a channel, of all members so far. A process that is killed may leave its last step
/// uncounted.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_broadcast_counts {
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
    /// Cells and places in the ring that were recovered from them.
    pub recovered: u64,
}

/// Fills in the counts so far. `size` is sizeof(pwk_broadcast_counts).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_stats(
    broadcast: In<'_, pwk_broadcast>,
    counts: Space<'_, pwk_broadcast_counts>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_stats", error, |name| {
        counts.fill(&name.given(broadcast)?.segment.stats().into(), size, name)
    })
}

/// Fills in this process's share of the blobs of a channel. `size` is sizeof(pwk_blob_stats).
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_blob_stats(
    broadcast: In<'_, pwk_broadcast>,
    stats: Space<'_, pwk_blob_stats>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_blob_stats", error, |name| {
        let found = name.given(broadcast)?.segment.blob_stats();
        stats.fill(&pwk_blob_stats { held: found.held, copied: found.copied }, size, name)
    })
}

/// Makes a draft of `len` bytes for a blob, as pwk_blob_draft_new does for calls. The blob is attached to
/// messages of this channel.
///
/// Fails as pwk_blob_draft_new; with PWK_UNSUPPORTED if the channel was opened with read_only.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_draft_for_broadcast(
    broadcast: In<'_, pwk_broadcast>,
    len: usize,
    draft: Out<'_, Handle<pwk_blob_draft>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_blob_draft_for_broadcast", error, |name| {
        let (segment, draft) = (&name.given(broadcast)?.segment, name.given(draft)?);
        hand_out(draft, segment.blob(len)?.into())
    })
}

/// A publisher, in pwk_broadcast_member.role.
pub const PWK_PUBLISHER: u32 = 1;
/// A subscriber, in pwk_broadcast_member.role.
pub const PWK_SUBSCRIBER: u32 = 2;

/// An attached publisher or subscriber. A process that opened the channel with read_only is none.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_broadcast_member {
    /// When it attached, in nanoseconds since 1970.
    pub since_ns: i64,
    /// How many messages it has not received, if it is a subscriber; otherwise 0.
    pub lag: u64,
    /// Its number, counted from 1.
    pub number: u32,
    /// PWK_PUBLISHER or PWK_SUBSCRIBER.
    pub role: u32,
    /// Its process, as numbered in its own pid namespace. For people.
    pub pid: u32,
    /// 1 if publishers wait for it, else 0.
    pub must_see_all: u32,
    /// 0 if it died and was not recovered yet, else 1.
    pub is_alive: u32,
}

/// Fills in up to `max` of the attached members; `count`, which must not be NULL, is set to the number
/// of all.
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_members(
    broadcast: In<'_, pwk_broadcast>,
    members: Space<'_, pwk_broadcast_member>,
    max: usize,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_members", error, |name| {
        let (broadcast, count) = (name.given(broadcast)?, name.given(count)?);
        let (space, found) = (members.array(max, name)?, broadcast.segment.members()?);
        space.iter_mut().zip(&found).for_each(|(place, member)| _ = place.write(member.into()));
        put(Some(count), found.len())
    })
}

/// How many cells of a channel's ring are in each state. In a channel that is in use, the counts are
/// not of one moment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_broadcast_cells {
    /// Never used.
    pub empty: u64,
    /// A publisher is writing a message.
    pub writing: u64,
    /// It has a message.
    pub done: u64,
    /// Its number was passed over.
    pub skipped: u64,
    /// Its message was dropped: see pwk_publisher_options.keep_bytes.
    pub dropped: u64,
    /// Of the cells that are being written, and of the subscribers that must see all: those of members
    /// that are gone. Recovery frees them.
    pub orphaned: u64,
}

/// Counts the cells in each state. `size` is sizeof(pwk_broadcast_cells).
///
/// Fails with PWK_OS if the kernel does not say which members are alive; PWK_CORRUPT.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_broadcast_audit(
    broadcast: In<'_, pwk_broadcast>,
    cells: Space<'_, pwk_broadcast_cells>,
    size: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_broadcast_audit", error, |name| {
        cells.fill(&name.given(broadcast)?.segment.audit()?.into(), size, name)
    })
}

// ---------------------------------------------------------------- on this side

// SAFETY: numbers, and truth values that may be any byte.
unsafe impl Growing for pwk_broadcast_options {}
// SAFETY: numbers.
unsafe impl Growing for pwk_broadcast_sizes {}
// SAFETY: numbers.
unsafe impl Growing for pwk_broadcast_counts {}
// SAFETY: numbers.
unsafe impl Growing for pwk_broadcast_cells {}

// SAFETY: its first field is its size.
unsafe impl Options for pwk_broadcast_options {
    const DEFAULT: pwk_broadcast_options = pwk_broadcast_options {
        size: size_of::<pwk_broadcast_options>(),
        messages: PWK_UNSET,
        message_bytes: PWK_UNSET,
        members: PWK_UNSET,
        blobs: PWK_UNSET,
        observers: Truth::of(false),
        any_owner: Truth::of(false),
        read_only: Truth::of(false),
        mode: PWK_DEFAULT_MODE,
        max_bytes: u64::MAX,
        spin_ns: PWK_DEFAULT_SPIN_NS,
        blob_pool: PWK_DEFAULT_BLOB_POOL,
        blob_limit: u64::MAX,
    };
}

impl pwk_broadcast_options {
    fn options(&self) -> broadcast::Options {
        let options = broadcast::Options::new()
            .mode(self.mode)
            .max_bytes(self.max_bytes)
            .spin(Duration::from_nanos(self.spin_ns))
            .any_owner(self.any_owner.is_set())
            .read_only(self.read_only.is_set())
            .blob_pool(self.blob_pool)
            .blob_limit(self.blob_limit);
        let options = if self.observers.is_set() { options.observers(true) } else { options };
        type Set = fn(broadcast::Options, u32) -> broadcast::Options;
        let sizes: [(u32, Set); 4] = [
            (self.messages, broadcast::Options::messages),
            (self.message_bytes, broadcast::Options::message_bytes),
            (self.members, broadcast::Options::members),
            (self.blobs, broadcast::Options::blobs),
        ];
        let set = sizes.into_iter().filter(|(size, _)| *size != PWK_UNSET);
        set.fold(options, |options, (size, set)| set(options, size))
    }
}

impl From<Segment> for pwk_broadcast {
    fn from(segment: Segment) -> pwk_broadcast {
        // A path that came from C has no NUL inside.
        let path = segment.path().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        pwk_broadcast { segment, path }
    }
}

/// Every function that makes a channel.
fn make(
    name: &'static str,
    options: Lent<'_, pwk_broadcast_options>,
    broadcast: Out<'_, Handle<pwk_broadcast>>,
    error: Out<'_, pwk_error>,
    make: impl FnOnce(broadcast::Options, Name) -> Result<Segment>,
) -> pwk_status {
    run(name, error, |name| {
        let broadcast = name.given(broadcast)?;
        hand_out(broadcast, make(options.options(name)?.options(), name)?.into())
    })
}

impl From<&Geometry> for pwk_broadcast_sizes {
    fn from(geometry: &Geometry) -> pwk_broadcast_sizes {
        let &Geometry { messages, message_bytes, members, blobs, observers } = geometry;
        pwk_broadcast_sizes { messages, message_bytes, members, blobs, observers: observers.into() }
    }
}

impl From<Stats> for pwk_broadcast_counts {
    fn from(stats: Stats) -> pwk_broadcast_counts {
        pwk_broadcast_counts {
            published: stats.published,
            skipped: stats.skipped,
            missed: stats.missed,
            full: stats.full,
            dead_members: stats.dead_members,
            recovered: stats.recovered,
        }
    }
}

impl From<&Member> for pwk_broadcast_member {
    fn from(member: &Member) -> pwk_broadcast_member {
        let since = member.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        pwk_broadcast_member {
            since_ns: since.as_nanos().try_into().unwrap_or(i64::MAX),
            lag: member.lag,
            number: member.number.into(),
            role: if member.role == Role::Publisher { PWK_PUBLISHER } else { PWK_SUBSCRIBER },
            pid: member.pid,
            must_see_all: member.must_see_all.into(),
            is_alive: member.is_alive.into(),
        }
    }
}

impl From<Audit> for pwk_broadcast_cells {
    fn from(audit: Audit) -> pwk_broadcast_cells {
        pwk_broadcast_cells {
            empty: audit.empty as u64,
            writing: audit.writing as u64,
            done: audit.done as u64,
            skipped: audit.skipped as u64,
            dropped: audit.dropped as u64,
            orphaned: audit.orphaned as u64,
        }
    }
}
