//! How a segment is made or opened.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use super::layout::{Geometry, MAX_BLOBS};
use super::segment::Segment;
use super::shared::{Calls, Shared};
use crate::blob::Limits;
use crate::defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::segment::header::Sizes;
use crate::segment::mapping::{Checks, Contents, Making};
use crate::sys::{self, Errno};

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

    /// Bytes of the largest request, at most 2^30.
    pub fn request_bytes(self, bytes: u32) -> Options {
        Options { request_bytes: Some(bytes), ..self }
    }

    /// Bytes of the largest reply, at most 2^30.
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
        let segment = self.segment(Shared::create(path.as_ref(), &self.making(), "reqrep create")?);
        segment.shared().make_blob_folder();
        Ok(segment)
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
        Shared::open(path.as_ref(), &self.checks()).map(|shared| self.segment(shared))
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
        const OP: &str = "reqrep open or create";
        let path = path.as_ref();
        // A process that keeps unlinking and making segments at this path may win a few rounds.
        for _ in 0..16 {
            match self.open(path) {
                Err(error) if error.errno() == Some(Errno::NOENT.number()) => {}
                Err(error) if error.op() == Calls::OPERATIONS.too_short => {
                    if !Shared::remove_empty(path, OP)? {
                        return Err(error);
                    }
                }
                done => return done,
            }
            match self.create(path) {
                Err(error) if error.errno() == Some(Errno::EXIST.number()) => {}
                done => return done,
            }
        }
        Err(Error::new(ErrorKind::WouldBlock, OP))
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
        Shared::in_memory(name, &self.making(), "reqrep create").map(|shared| self.segment(shared))
    }

    /// Opens the segment behind a descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open).
    pub fn from_fd(&self, fd: OwnedFd) -> Result<Segment> {
        sys::set_cloexec(fd.as_fd()).map_err(|errno| errno.at("reqrep open"))?;
        Shared::open_behind(fd, &self.checks()).map(|shared| self.segment(shared))
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
        Checks { any_owner: self.any_owner, max_bytes: self.max_bytes, differs: Box::new(differs) }
    }

    fn segment(&self, shared: Shared) -> Segment {
        Segment::new(shared, self.spin, self.blob_limits)
    }
}
