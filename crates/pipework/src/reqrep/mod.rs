//! Room `reqrep`: request and response over shared memory. Many clients, many competing servers, no broker.
//!
//! A **segment** is a file in shared memory, at a path or without a name. Clients put requests into it, each request goes to one of the
//! servers, and each reply goes back to the client that asked. Any process may be killed at any instruction: the others go on,
//! a caller hears `PeerDied`, and what the dead held is taken back.
//!
//! ```
//! use pipework::{Deadline, reqrep::Options};
//! use std::{thread, time::Duration};
//!
//! let segment = Options::new().anonymous()?;
//! let server = segment.server()?;
//! thread::spawn(move || {
//!     while let Ok(request) = server.recv(Deadline::NEVER) {
//!         let answer = request.to_ascii_uppercase();
//!         let _ = request.reply(&answer);
//!     }
//! });
//! let client = segment.client()?;
//! assert_eq!(&*client.call("hello", Duration::from_secs(5))?, b"HELLO");
//! # Ok::<(), pipework::Error>(())
//! ```
//!
//! # What is promised
//!
//! A request is taken by at most one live server. A reply reaches its requester only. The death of a server is noticed within 250 ms of the kernel
//! closing the files of its process, and so is a wake-up that died with a process. The kernel closes them after it has written a core dump, and after much memory
//! is freed: 350 ms after `kill -9` for 4 GB, and 38 s where 4 GB are dumped first. A process that is stopped, debugged or swapped out is alive, whatever its pid namespace. Whoever may
//! write to the segment can cause errors and lost service, and nothing else. Not promised: a client that lives and does not receive its replies keeps their slots
//! ([`Client::pending`] says how many, [`Client::max_in_flight`] limits them). A request that was being worked on when its server died may have been carried
//! out; whether another server gets it is the caller's choice ([`Client::redeliveries`]).

#![doc = include_str!("SEGMENT.md")]

mod layout;
mod slot;
mod queue;
mod segment;
mod member;
mod payload;
mod eventfd;
mod liveness;
mod notify;
mod waiters;
mod watcher;
mod client;
mod place;
mod server;
mod future;
mod int;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
#[cfg(all(test, not(loom)))]
mod faults;
#[cfg(all(test, not(loom)))]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use client::{Client, Message, Reply, Ticket};
pub use eventfd::EventFd;
pub use int::{IntClient, IntRequest, IntServer};
pub use layout::{Geometry, Kind, MAX_MEMBERS, MAX_PAYLOAD, MAX_QUEUE, MAX_SLOTS};
pub use member::Role;
pub use server::{Request, Server};
pub use slot::MAX_REDELIVERIES;

use crate::error::{Error, ErrorKind, Result};
use crate::spin;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Errno};
use member::Membership;
use segment::{Checks, Making, Shared};
use slot::State;

// ---------------------------------------------------------------- making one

/// How to make or open a segment. One that is opened has its sizes already: those that were asked for must be the same.
#[derive(Clone, Debug)]
pub struct Options {
    kind: Option<Kind>,
    slots: Option<u32>,
    queue: Option<u32>,
    request_bytes: Option<u32>,
    reply_bytes: Option<u32>,
    members: Option<u32>,
    max_bytes: u64,
    mode: u32,
    sparse: bool,
    any_owner: bool,
    spin: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kind: None,
            slots: None,
            queue: None,
            request_bytes: None,
            reply_bytes: None,
            members: None,
            max_bytes: u64::MAX,
            mode: 0o600,
            sparse: false,
            any_owner: false,
            spin: spin::DEFAULT_LIMIT,
        }
    }
}

impl Options {
    /// 256 slots, requests and replies of up to 4096 bytes, 256 members, mode 0600: 2 MiB and a little.
    pub fn new() -> Options {
        Options::default()
    }

    /// Payloads are single numbers of 64 bits, for [`IntClient`] and [`IntServer`].
    pub fn integers(self) -> Options {
        Options { kind: Some(Kind::Integers), request_bytes: Some(8), reply_bytes: Some(8), ..self }
    }

    /// Calls that can be in progress at the same time, in all clients together; 1 to 2^20. Each takes memory for a request and a reply. Callers
    /// beyond that wait in line.
    pub fn slots(self, slots: u32) -> Options {
        Options { slots: Some(slots), ..self }
    }

    /// Cells of the ring, rounded up to a power of two and to twice the slots, which is the default and enough. More help where many calls are
    /// cancelled before a server takes them.
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

    /// Clients and servers that can be attached at the same time; 1 to 65535.
    pub fn members(self, members: u32) -> Options {
        Options { members: Some(members), ..self }
    }

    /// Bytes of the largest segment to open, which caps all of its sizes: what it takes of this process's addresses, and the largest payload that memory is asked for. The default is
    /// no cap.
    pub fn max_bytes(self, bytes: u64) -> Options {
        Options { max_bytes: bytes, ..self }
    }

    /// Permissions of the file, for instance 0o660 to share it with a group, whose members are then trusted not to disturb.
    pub fn mode(self, mode: u32) -> Options {
        Options { mode, ..self }
    }

    /// Whether memory for payloads is taken when they are first written, instead of all at once. The default is to reserve it, so that a full file system is an error
    /// where the segment is made; otherwise it is one of `send` (ENOSPC) or `reply`, whose call then fails. It saves memory where a slot is larger than
    /// a page: the first page of each is taken at once.
    pub fn sparse(self, yes: bool) -> Options {
        Options { sparse: yes, ..self }
    }

    /// Whether to open a segment that belongs to another user. The default is to refuse.
    pub fn any_owner(self, yes: bool) -> Options {
        Options { any_owner: yes, ..self }
    }

    /// For how long clients and servers made from the segment look again before they sleep, at most 1 ms. The default is 20 µs, about the cost of a sleep and a
    /// wake-up; they only do as long as waits of late ended within it, and never where only one CPU may be used. Zero turns it off.
    pub fn spin(self, limit: Duration) -> Options {
        Options { spin: limit, ..self }
    }

    /// Makes a segment at `path`, which must not exist. The name appears when the segment is complete.
    ///
    /// # Errors
    ///
    /// `Invalid` for impossible sizes; `Os` with EEXIST if there is such a file, ENOSPC if the file system is full, and so on.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Segment> {
        Shared::create(path.as_ref(), &self.making(), "reqrep create").map(|shared| self.segment(shared))
    }

    /// Opens the segment at `path`.
    ///
    /// # Errors
    ///
    /// `Os` with ENOENT if there is none; `Invalid` for a symbolic link, for what is no regular file, and for another user's; `Incompatible` for what is no segment, or is one of another
    /// format; `Corrupt` for one that was damaged or cut short. The operation's name says which.
    ///
    /// `Incompatible` as well for one that has another size than was asked for ([`Geometry::of`] tells what it has), and for one that was made elsewhere: a copy, or a file that is reached
    /// by another way than the one by which it was made, where its locks are other locks. That is so between the merged and the upper folder of an overlay; a bind mount is the same way.
    /// A device may get another number when the machine is started again: a segment on it is refused then, and can be removed, for nobody who was attached is alive. `TooLong` for one larger than
    /// [`max_bytes`](Options::max_bytes).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment> {
        Shared::open(path.as_ref(), &self.checks()).map(|shared| self.segment(shared))
    }

    /// Opens the segment at `path`, or makes it if there is none. Of several processes that do this at the same time, one makes it.
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create) and [`open`](Options::open).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Segment> {
        let path = path.as_ref();
        // Whoever unlinks and makes segments at this path all the time may win a few rounds.
        for _ in 0..16 {
            match self.open(path) {
                Err(error) if error.errno() == Some(Errno::NOENT.number()) => {}
                done => return done,
            }
            match self.create(path) {
                Err(error) if error.errno() == Some(Errno::EXIST.number()) => {}
                done => return done,
            }
        }
        Err(Error::new(ErrorKind::WouldBlock, "reqrep open or create"))
    }

    /// Makes a segment without a name: for threads, and for processes that are forked from this one.
    ///
    /// # Errors
    ///
    /// As [`create`](Options::create).
    pub fn anonymous(&self) -> Result<Segment> {
        self.memfd("pipework")
    }

    /// As [`anonymous`](Options::anonymous); `name` shows up in `/proc/PID/maps`. The descriptor ([`AsFd`]) can be passed to other processes, who use
    /// [`from_fd`](Options::from_fd).
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
        Shared::check(fd, &self.checks()).map(|shared| self.segment(shared))
    }

    /// Opens the segment behind a duplicate of a descriptor.
    ///
    /// # Errors
    ///
    /// As [`open`](Options::open); `Os` when descriptors have run out.
    pub fn dup_fd(&self, fd: impl AsFd) -> Result<Segment> {
        self.from_fd(sys::duplicate(fd.as_fd()).map_err(|errno| errno.at("reqrep open"))?)
    }

    fn making(&self) -> Making {
        let slots = self.slots.unwrap_or(256);
        let geometry = Geometry {
            kind: self.kind.unwrap_or(Kind::Bytes),
            slots,
            queue: self.cells(slots),
            request_bytes: self.request_bytes.unwrap_or(4096),
            reply_bytes: self.reply_bytes.unwrap_or(4096),
            members: self.members.unwrap_or(256),
        };
        Making { geometry, mode: self.mode, sparse: self.sparse }
    }

    /// Cells of a ring for so many slots; 0 if there can be none.
    fn cells(&self, slots: u32) -> u32 {
        let least = slots.saturating_mul(2).max(self.queue.unwrap_or(0));
        least.checked_next_power_of_two().unwrap_or(0)
    }

    fn checks(&self) -> Checks<'_> {
        let differs = |found: &Geometry| {
            let other = |asked: Option<u32>, found: u32| asked.is_some_and(|asked| asked != found);
            let queue = self.queue.map(|_| self.cells(found.slots));
            [
                (self.kind.is_some_and(|kind| kind != found.kind), "reqrep open: integers"),
                (other(self.slots, found.slots), "reqrep open: slots"),
                (other(queue, found.queue), "reqrep open: queue"),
                (other(self.request_bytes, found.request_bytes), "reqrep open: request_bytes"),
                (other(self.reply_bytes, found.reply_bytes), "reqrep open: reply_bytes"),
                (other(self.members, found.members), "reqrep open: members"),
            ]
            .into_iter()
            .find_map(|(differs, op)| differs.then_some(op))
        };
        Checks { any_owner: self.any_owner, max_bytes: self.max_bytes, differs: Box::new(differs) }
    }

    fn segment(&self, shared: Shared) -> Segment {
        Segment(Arc::new(Inner { shared: Arc::new(shared), spin: self.spin }))
    }
}

impl Geometry {
    /// The sizes of the segment at `path`, without opening it for anything else: to say what it has where [`Options::open`] refused it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`], as far as the file itself is concerned.
    pub fn of(path: impl AsRef<Path>) -> Result<Geometry> {
        Shared::geometry_at(path.as_ref())
    }
}

// ---------------------------------------------------------------- the segment

/// A segment that this process has opened. Clones are the same.
///
/// It attaches clients and servers, and answers questions about the whole; the numbers may be outdated as soon as they are told.
#[derive(Clone, Debug)]
pub struct Segment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    spin: Duration,
}

impl Segment {
    /// Attaches a client.
    ///
    /// # Errors
    ///
    /// `Incompatible` for a segment of integers; `WouldBlock` if all places for members are taken; `Os` if there is no descriptor for its lock.
    pub fn client(&self) -> Result<Client> {
        Client::new(self, Kind::Bytes)
    }

    /// Attaches a server.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client).
    pub fn server(&self) -> Result<Server> {
        Server::new(self, Kind::Bytes)
    }

    /// Attaches a client to a segment of integers.
    ///
    /// # Errors
    ///
    /// As [`client`](Segment::client), with `Incompatible` for a segment of bytes.
    pub fn int_client(&self) -> Result<IntClient> {
        Client::new(self, Kind::Integers).map(IntClient)
    }

    /// Attaches a server to a segment of integers.
    ///
    /// # Errors
    ///
    /// As [`int_client`](Segment::int_client).
    pub fn int_server(&self) -> Result<IntServer> {
        Server::new(self, Kind::Integers).map(IntServer)
    }

    fn join(&self, kind: Kind, role: Role, op: &'static str) -> Result<Membership> {
        if self.geometry().kind != kind {
            return Err(Error::new(ErrorKind::Incompatible, op));
        }
        Membership::join(Arc::clone(&self.0.shared), role, op)
    }

    /// Its sizes.
    pub fn geometry(&self) -> &Geometry {
        self.0.shared.geometry()
    }

    /// Where it was made or opened; `None` for one without a name.
    pub fn path(&self) -> Option<&Path> {
        self.0.shared.path()
    }

    /// Requests in the ring that wait for a server. Calls that were cancelled there count until a server comes past.
    pub fn len(&self) -> usize {
        self.0.shared.queue().len()
    }

    /// Whether no request waits for a server.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes its name, if that still leads here; false if it does not. Whoever is attached stays so.
    ///
    /// # Errors
    ///
    /// `Invalid` for a segment without a name; `Os`.
    pub fn unlink(&self) -> Result<bool> {
        self.0.shared.unlink()
    }

    /// Writes the segment to the storage that its file lies on, if it lies on any, and waits for that.
    ///
    /// # Errors
    ///
    /// `Os`.
    pub fn sync(&self) -> Result<()> {
        self.0.shared.sync()
    }

    /// Takes back what dead members held; says how many had died. It happens by itself, where somebody waits for it.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say who is alive; `Corrupt`.
    pub fn recover(&self) -> Result<usize> {
        self.0.shared.recover_all("reqrep recover")
    }

    /// What was done so far, by all members together, those of the past included.
    pub fn stats(&self) -> Stats {
        let shared = &self.0.shared;
        let recoveries = shared.recoveries();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats {
            dead_members: get(&recoveries.dead_members),
            recovered: get(&recoveries.recovered),
            redelivered: get(&recoveries.redelivered),
            ..Stats::default()
        };
        for (_, slot) in shared.slots() {
            // Every call was a generation of its slot.
            stats.requests = stats.requests.wrapping_add(slot.load().generation());
            stats.replies = stats.replies.wrapping_add(slot.replies());
        }
        for (_, member) in shared.members() {
            let counters = &member.counters.0;
            stats.full = stats.full.wrapping_add(get(&counters.full));
            stats.empty = stats.empty.wrapping_add(get(&counters.empty));
            stats.cancelled = stats.cancelled.wrapping_add(get(&counters.cancelled));
        }
        stats
    }

    /// Who is attached, and who died attached and was not noticed yet.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say who is alive; `Corrupt`.
    pub fn members(&self) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for (number, member) in self.0.shared.members() {
            let Some(role) = member::role(member.word.load(Ordering::Acquire)) else { continue };
            let since = Duration::from_nanos(member.since.load(Ordering::Relaxed));
            members.push(Member {
                number,
                role,
                pid: member.pid.load(Ordering::Relaxed),
                since: SystemTime::UNIX_EPOCH + since,
                is_alive: !self.0.shared.is_gone(number, "reqrep members")?,
            });
        }
        self.0.shared.check_whole("reqrep members")?;
        Ok(members)
    }

    /// Accounts for every slot. Of a segment that is in use, it tells of no single moment.
    ///
    /// # Errors
    ///
    /// `Os`, if the kernel does not say who is alive; `Corrupt`.
    pub fn audit(&self) -> Result<Audit> {
        let shared = &self.0.shared;
        let mut audit = Audit::default();
        let mut queued = vec![false; shared.geometry().slots as usize];
        for idx in shared.queue().entries() {
            audit.entries += 1;
            queued.get_mut(idx as usize).into_iter().for_each(|queued| *queued = true);
        }
        for (idx, slot) in shared.slots() {
            let word = slot.load();
            let place = match word.state() {
                Some(State::Free) => &mut audit.free,
                Some(State::Fill) => &mut audit.filling,
                Some(State::Sent) => &mut audit.waiting,
                Some(State::Taken) => &mut audit.taken,
                Some(State::Dropped) => &mut audit.dropped,
                Some(State::Answered | State::Failed | State::Died) => &mut audit.done,
                None => &mut audit.damaged,
            };
            *place += 1;
            if word.state() == Some(State::Sent) && !queued[idx as usize] {
                audit.unqueued += 1;
            }
            if word.state() != Some(State::Free) && shared.is_gone(word.owner(), "reqrep audit")? {
                audit.orphaned += 1;
            }
        }
        shared.check_whole("reqrep audit")?;
        Ok(audit)
    }

    fn spin(&self) -> Duration {
        self.0.spin
    }
}

impl AsFd for Segment {
    /// The file, for instance to pass a memfd on. It holds no lock.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.shared.file()
    }
}

/// What was done in a segment. A process that is killed may leave a count of its last step out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls begun.
    pub requests: u64,
    /// Requests that servers have answered or given up, whether anybody still waited or not.
    pub replies: u64,
    /// Times that a client found no free slot.
    pub full: u64,
    /// Times that [`Server::try_recv`], or the beginning of a [`Server::recv`], found no request.
    pub empty: u64,
    /// Calls cancelled, those that ran out of time included.
    pub cancelled: u64,
    /// Members that died without leaving.
    pub dead_members: u64,
    /// Slots that were taken back from them.
    pub recovered: u64,
    /// Requests that went to another server because theirs had died.
    pub redelivered: u64,
}

impl Stats {
    /// Each under its name, for a face in another language.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let Stats { requests, replies, full, empty, cancelled, dead_members, recovered, redelivered } = *self;
        [
            ("requests", requests),
            ("replies", replies),
            ("full", full),
            ("empty", empty),
            ("cancelled", cancelled),
            ("dead_members", dead_members),
            ("recovered", recovered),
            ("redelivered", redelivered),
        ]
        .into_iter()
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
    /// Its process, as numbered in its own pid namespace. For people.
    pub pid: u32,
    /// When it attached.
    pub since: SystemTime,
    /// False if it died and nobody has recovered it yet.
    pub is_alive: bool,
}

/// Every slot of a segment, by what it is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Nobody uses it.
    pub free: usize,
    /// A client is writing its request.
    pub filling: usize,
    /// Its request waits for a server.
    pub waiting: usize,
    /// A server has its request.
    pub taken: usize,
    /// A server has its request, and the call was cancelled.
    pub dropped: usize,
    /// Its reply waits for the client.
    pub done: usize,
    /// Its word is none that a member of ours writes.
    pub damaged: usize,
    /// Of all these: held by a member that is gone. Recovery takes them back.
    pub orphaned: usize,
    /// Of those waiting: not in the ring. Zero, unless a member was between two steps.
    pub unqueued: usize,
    /// Entries of the ring, those of cancelled calls included.
    pub entries: usize,
}

impl Audit {
    /// Each under its name, for a face in another language.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, usize)> + use<> {
        let Audit { free, filling, waiting, taken, dropped, done, damaged, orphaned, unqueued, entries } =
            *self;
        [
            ("free", free),
            ("filling", filling),
            ("waiting", waiting),
            ("taken", taken),
            ("dropped", dropped),
            ("done", done),
            ("damaged", damaged),
            ("orphaned", orphaned),
            ("unqueued", unqueued),
            ("entries", entries),
        ]
        .into_iter()
    }
}
