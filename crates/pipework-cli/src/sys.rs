//! The command's boundary to the kernel: calls that neither the library nor the standard library offers.
//!
//! Everything goes through `rustix`; `libc` serves for signals, for adopting a descriptor by its
//! number and for `getrusage`, which rustix lacks. No other file of the command has unsafe code.

use pipework::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags, StatVfsMountFlags, inotify};
use rustix::io::{Errno, FdFlags, ReadWriteFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource, Signal, WaitId, WaitIdOptions};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Waits until a descriptor is ready, or the deadline has passed. A signal ends the wait early.
pub(crate) fn wait_for(fds: &mut [PollFd<'_>], deadline: Deadline) -> io::Result<()> {
    // A time beyond what the kernel's clock can count is as good as none.
    let time = deadline.remaining().and_then(|time| Timespec::try_from(time).ok());
    match poll(fds, time.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            // The results that poll left there are from before the call.
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Bit B of word W: descriptor 64 W + B was closed when this process began.
static CLOSED_AT_START: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Notes which descriptors are closed, before the standard library opens /dev/null in the place of
/// standard ones, and this program opens its own.
extern "C" fn note_closed() {
    for (word, first) in CLOSED_AT_START.iter().zip((0..).step_by(64)) {
        // SAFETY: F_GETFD only looks at the number, which may be open or not.
        let is_closed = |bit: &i32| unsafe { libc::fcntl(first + bit, libc::F_GETFD) } < 0;
        let bits = (0..64).filter(is_closed).fold(0, |bits, bit| bits | 1 << bit);
        word.store(bits, Ordering::Relaxed);
    }
}

// SAFETY: the C library calls each pointer of this section once before `main`, and the function
// needs nothing that is not there yet: it makes system calls and writes one static.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_closed;

/// Whether this descriptor was closed when the command was started, of the first 256; then what has
/// its number now is ours.
pub(crate) fn was_closed(number: i32) -> bool {
    let word = usize::try_from(number / 64).ok().and_then(|word| CLOSED_AT_START.get(word));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (number % 64) != 0)
}

/// An unnamed file in memory that holds `content` and is at its start.
pub(crate) fn file_in_memory(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("pipework", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Gives a pipe this capacity in bytes, which the kernel rounds up to pages; a refusal (many pipes,
/// small limits) leaves it as it is.
pub(crate) fn resize(pipe: impl AsFd, bytes: usize) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, bytes);
}

/// A duplicate of a descriptor that the parent process left open.
///
/// The original is closed on exec from now on, so that children do not hold it open too. To be
/// called before anything else is opened: a number of our own would be taken for the user's.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the borrow ends in this function, where nothing closes the descriptor; if the number
    // is not open, the calls return EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let own = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
    if number > 2 {
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
    }
    Ok(own)
}

/// The user in whose name this process acts.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process may execute the file.
pub(crate) fn may_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// An end of a pipe.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FifoEnd {
    Reading,
    Writing,
}

/// Opens an end of the FIFO at `path` without waiting for the other one: for writing only if there
/// is a reader.
pub(crate) fn open_fifo(path: &Path, end: FifoEnd) -> io::Result<OwnedFd> {
    let way = if end == FifoEnd::Reading { OFlags::RDONLY } else { OFlags::WRONLY };
    let flags = way | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The file at a path, not opened for data. The kernel follows links as it does for an open.
pub(crate) fn find(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a file to read and write it, without following a link and without waiting for another process.
pub(crate) fn open_to_change(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes the name of a file; false if another file has it now.
pub(crate) fn unlink_file(path: &Path, id: (u64, u64)) -> io::Result<bool> {
    if identity(&rustix::fs::lstat(path)?) != id {
        return Ok(false);
    }
    std::fs::remove_file(path)?;
    Ok(true)
}

/// Leases a file for writing, until it is closed; EAGAIN if another process on this machine has it
/// open. A process that opens it meanwhile waits, or gets EAGAIN, and this process gets SIGIO.
pub(crate) fn lease(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the argument is a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens an end of the pipe or FIFO to which a link of /proc leads, without waiting for the other.
pub(crate) fn open_again(link: &Path, end: FifoEnd) -> io::Result<OwnedFd> {
    let way = if end == FifoEnd::Reading { OFlags::RDONLY } else { OFlags::WRONLY };
    let flags = way | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(link, flags, Mode::empty())?)
}

/// A duplicate of a descriptor of another process.
pub(crate) fn descriptor_of(id: i32, number: i32) -> io::Result<OwnedFd> {
    let id = Pid::from_raw(id).ok_or(Errno::SRCH)?;
    let process = rustix::process::pidfd_open(id, PidfdFlags::empty())?;
    Ok(rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Bytes that a pipe can hold.
pub(crate) fn capacity(pipe: impl AsFd) -> Option<u64> {
    rustix::pipe::fcntl_getpipe_size(pipe).ok().map(|bytes| bytes as u64)
}

/// Bytes that lie in a pipe.
pub(crate) fn unread(pipe: impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap_or(0)
}

/// Whether the pipe of this writing end has a reader.
pub(crate) fn has_reader(pipe: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pipe, PollFlags::OUT)];
    wait_for(&mut fds, Deadline::now()).is_ok() && !fds[0].revents().contains(PollFlags::ERR)
}

/// Whether a process has the other end of the pipe of this reading end.
pub(crate) fn has_writer(pipe: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pipe, PollFlags::empty())];
    wait_for(&mut fds, Deadline::now()).is_ok() && !fds[0].revents().contains(PollFlags::HUP)
}

/// Whether the file has lost its last name.
pub(crate) fn is_unlinked(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Locks an open file (flock) as soon as no other process has it locked, unless `gives_up`, which
/// is called every few milliseconds; returns whether it did.
pub(crate) fn lock_unless(file: impl AsFd, mut gives_up: impl FnMut() -> bool) -> io::Result<bool> {
    let _alarm = Alarm::every(20_000);
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) if gives_up() => return Ok(false),
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome.map(|()| true)?),
        }
    }
}

/// Interrupts the system calls of the first thread again and again, until it is dropped: for a call
/// that has no time-out. Nothing else of the command uses SIGALRM.
struct Alarm {
    action: libc::sigaction,
    mask: libc::sigset_t,
}

impl Alarm {
    fn every(microseconds: i64) -> Self {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: the actions and sets are plain data, valid when zeroed; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before = Self { action, mask: std::mem::zeroed() };
            // Without SA_RESTART, so that the call returns.
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            libc::sigaction(libc::SIGALRM, &action, &mut before.action);
            let mut alarm: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut alarm, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &alarm, &mut before.mask);
            set_alarm(microseconds);
            before
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        set_alarm(0);
        // SAFETY: both were filled in by `every`, and outlive the calls.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut());
            libc::sigaction(libc::SIGALRM, &self.action, std::ptr::null_mut());
        }
    }
}

fn set_alarm(microseconds: i64) {
    let time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let times = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the call reads the struct, which outlives it.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &times, std::ptr::null_mut()) };
}

/// Locks an open file if no other process has it locked; returns whether it did.
pub(crate) fn try_lock(file: impl AsFd) -> io::Result<bool> {
    taken(rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive))
}

pub(crate) fn unlock(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

/// Marks a writing end as kept, with another kind of lock (of the open file, by fcntl), unless
/// another one is.
pub(crate) fn try_to_keep(fifo: &OwnedFd) {
    lock_open_file(fifo, libc::F_WRLCK, libc::F_OFD_SETLK);
}

/// The same when no other one is.
pub(crate) fn keep_in_turn(fifo: &OwnedFd) {
    while !lock_open_file(fifo, libc::F_WRLCK, libc::F_OFD_SETLKW) {
        if Errno::from_io_error(&io::Error::last_os_error()) != Some(Errno::INTR) {
            break;
        }
    }
}

/// Whether the pipe of this reading end has no writing end that is marked as kept.
pub(crate) fn is_free_of_keepers(fifo: &OwnedFd) -> bool {
    let free = lock_open_file(fifo, libc::F_RDLCK, libc::F_OFD_SETLK);
    lock_open_file(fifo, libc::F_UNLCK, libc::F_OFD_SETLK);
    free
}

fn lock_open_file(file: &OwnedFd, kind: libc::c_int, command: libc::c_int) -> bool {
    // SAFETY: all zeros are a valid flock, which fcntl only reads.
    unsafe {
        let mut lock: libc::flock = MaybeUninit::zeroed().assume_init();
        // Byte 0 is the library's, by which its readers see each other.
        (lock.l_type, lock.l_start, lock.l_len) = (kind as libc::c_short, 1, 1);
        libc::fcntl(file.as_raw_fd(), command, &lock) == 0
    }
}

fn taken(outcome: rustix::io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives this thread a name, which for the first one is that of the process in ps(1).
pub(crate) fn name_thread(name: &CStr) {
    // Without a name it is called after the file that was executed.
    let _ = rustix::thread::set_name(name);
}

/// Closes every descriptor above the standard ones.
pub(crate) fn close_all_but_standard() {
    // SAFETY: called at the start of a process that has opened nothing yet, so no descriptor above
    // the standard ones has an owner here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

/// Tells when a file is opened, or loses a name.
pub(crate) struct Stir(Option<OwnedFd>);

impl Stir {
    pub(crate) fn watch(file: &OwnedFd) -> Self {
        let watched = || -> rustix::io::Result<OwnedFd> {
            let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            let what = inotify::WatchFlags::OPEN | inotify::WatchFlags::ATTRIB;
            inotify::add_watch(&events, format!("/proc/self/fd/{}", file.as_raw_fd()), what)?;
            Ok(events)
        };
        // Each user has a limited number; without one the clock is used.
        Self(watched().ok())
    }

    /// Waits until there may be something new.
    pub(crate) fn wait(&self) {
        const LOOK: Duration = Duration::from_millis(250);
        let Some(events) = &self.0 else { return std::thread::sleep(LOOK) };
        let mut fds = [PollFd::new(events, PollFlags::IN)];
        if wait_for(&mut fds, Deadline::NEVER).is_err() {
            std::thread::sleep(LOOK);
        }
        // The content of the events does not matter; all of them go with one read or the next.
        let _ = rustix::io::read(events, &mut [0u8; 4096]);
    }
}

/// The size and the free space of a file system.
pub(crate) struct Space {
    pub(crate) total: u64,
    /// For users without privileges.
    pub(crate) free: u64,
    pub(crate) is_in_memory: bool,
    pub(crate) is_read_only: bool,
}

/// The space of the file system at a path.
pub(crate) fn space(path: &Path) -> io::Result<Space> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58F6;
    let (there, kind) = (rustix::fs::statvfs(path)?, rustix::fs::statfs(path)?.f_type as i64);
    Ok(Space {
        total: there.f_blocks.saturating_mul(there.f_frsize),
        free: there.f_bavail.saturating_mul(there.f_frsize),
        is_in_memory: kind == TMPFS || kind == RAMFS,
        is_read_only: there.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// How many descriptors this process may have, and may let itself have.
pub(crate) fn descriptor_limits() -> (Option<u64>, Option<u64>) {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    (limits.current, limits.maximum)
}

/// Whether two descriptors refer to the same file, pipe or device.
pub(crate) fn same_file(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    Ok(identity(&rustix::fs::fstat(one)?) == identity(&rustix::fs::fstat(other)?))
}

/// Whether the path leads to the file of the descriptor.
pub(crate) fn is_file_at(fd: impl AsFd, path: &Path) -> bool {
    let open = rustix::fs::fstat(fd).map(|stat| identity(&stat));
    let named = rustix::fs::stat(path).map(|stat| identity(&stat));
    open.is_ok() && open == named
}

/// The owner of a descriptor's file.
pub(crate) fn owner(fd: impl AsFd) -> io::Result<u32> {
    Ok(rustix::fs::fstat(fd)?.st_uid)
}

/// The file of a descriptor: device and inode.
pub(crate) fn file_id(fd: impl AsFd) -> io::Result<(u64, u64)> {
    Ok(identity(&rustix::fs::fstat(fd)?))
}

fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Ends this process as `kill -9` does.
pub(crate) fn kill_self() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    unreachable!("nobody survives that signal")
}

/// From now on a write past the limit of a file's size fails, as one to a full disk does. By
/// default the kernel ends the process without a word. Commands that are started have the default
/// again, which they would not for a signal that is ignored.
pub(crate) fn fail_past_size_limits() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the action is plain data, valid when zeroed, and its handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
    }
}

/// Has the kernel's word that somebody opens a leased file pass without effect; by default it ends
/// the process. For a command that starts no other.
pub(crate) fn ignore_broken_leases() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
}

/// Ends this process by the signal that it was stopped with, so that a shell sees that, and ends a
/// script with Ctrl-C. Returns the exit status that says the same where the signal does not end
/// it: it is ignored or blocked from the start, or this is the first process of a container.
pub(crate) fn end_by(number: i32) -> u8 {
    // A core dump would be useless.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    give_signals_back();
    signal(rustix::process::getpid().as_raw_pid(), number);
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Sends a signal to a process.
pub(crate) fn signal(id: i32, number: i32) {
    if let (Some(id), Some(signal)) = (Pid::from_raw(id), Signal::from_named_raw(number)) {
        // It has ended already, or has become another user's; both are out of our hands.
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// Sends a signal to all of a process group.
pub(crate) fn signal_group(id: i32, number: i32) {
    if let (Some(id), Some(signal)) = (Pid::from_raw(id), Signal::from_named_raw(number)) {
        // As above.
        let _ = rustix::process::kill_process_group(id, signal);
    }
}

/// The living children of a process, their children and so on, as far as they are in the process
/// group of this process.
pub(crate) fn descendants_in_our_group(id: i32) -> Vec<i32> {
    let ours = rustix::process::getpgrp();
    let mut found = vec![id];
    let mut next = 0;
    while let Some(id) = found.get(next) {
        // A process that has ended meanwhile has no children any more.
        for task in std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<i32>().ok()));
        }
        next += 1;
    }
    found.remove(0);
    found.retain(|id| rustix::process::getpgid(Pid::from_raw(*id)) == Ok(ours));
    found
}

/// How a child has ended, if it has; it stays to be waited for.
pub(crate) fn ended(id: i32) -> io::Result<Option<ExitStatus>> {
    let Some(id) = Pid::from_raw(id) else { return Ok(None) };
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = rustix::process::waitid(WaitId::Pid(id), how)?;
    Ok(status.map(|status| {
        // As wait(2) would give it.
        let raw = status.exit_status().map(|code| (code & 0xff) << 8);
        ExitStatus::from_raw(raw.or(status.terminating_signal()).unwrap_or(1 << 8))
    }))
}

/// A descriptor that becomes readable when a child ends.
pub(crate) fn end_of(id: i32) -> io::Result<OwnedFd> {
    let id = Pid::from_raw(id).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(id, PidfdFlags::empty())?)
}

/// Writes as much as a descriptor takes without waiting, in spite of its flags. EOPNOTSUPP if the
/// kernel cannot be asked per call.
pub(crate) fn write_now(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    // Offset -1 is the descriptor's own position, the only one that a pipe has.
    let bytes = [io::IoSlice::new(bytes)];
    match rustix::io::pwritev2(fd, &bytes, u64::MAX, ReadWriteFlags::NOWAIT) {
        // The error of older kernels and sandboxes for a flag that they do not know.
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::OPNOTSUPP.into()),
        outcome => Ok(outcome?),
    }
}

/// A later attempt may do better: a stranger may have made the descriptor non-blocking, or another
/// process may have been faster.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::INTR))
}

/// This process, or the system, has no descriptors or no memory left for now.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// A process cannot be started now, for want of such things or of a place among processes.
pub(crate) fn is_startable_later(error: &io::Error) -> bool {
    is_shortage(error) || Errno::from_io_error(error) == Some(Errno::AGAIN)
}

/// Makes reads and writes on an end of a pipe fail instead of wait; for an end that is not shared.
pub(crate) fn never_wait(pipe: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(pipe, true)?)
}

/// Has them wait, for a file that was opened without a wait.
pub(crate) fn wait_again(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(file, false)?)
}

/// Whether what is written to an open file comes behind all that it holds.
pub(crate) fn appends(file: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::APPEND))
}

/// The terminal of this process, which may be none of its standard streams.
pub(crate) fn terminal() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/tty", flags, Mode::empty())?)
}

/// Whether the kernel gives orphans to this process: it is the first one of a container, or has
/// asked for them before it became this command.
pub(crate) fn adopts_orphans() -> bool {
    let mut asked: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives it.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut asked) };
    asked != 0 || rustix::process::getpid().is_init()
}

/// Goes on in a child, while this process waits for all children that it gets, so that no orphan
/// stays a zombie. The child waits for its own only. Returns `None` in the child, and in this
/// process how the child has ended.
///
/// The signals of other processes are handed on, except those of the terminal, which the child gets,
/// too. To be called before any thread is started.
pub(crate) fn stand_in() -> io::Result<Option<ExitStatus>> {
    let parent = rustix::process::getpid();
    // SAFETY: the sets are initialised before use, and every pointer refers to a local that outlives
    // its call. There is one thread, so the child may go on as this process would. What follows is all
    // that this process still does, and it needs no descriptor.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        let (all, restore) = (all.assume_init(), libc::SIG_SETMASK);
        // If SIGCHLD were ignored, children would end without a notice.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, before.as_mut_ptr());
        let before = before.assume_init();
        let child = match libc::fork() {
            0 => {
                // If the parent is killed, it hands no signal on, so the child ends with it.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if rustix::process::getppid() != Some(parent) {
                    libc::_exit(1);
                }
                libc::pthread_sigmask(restore, &before, std::ptr::null_mut());
                return Ok(None);
            }
            -1 => {
                let error = io::Error::last_os_error();
                libc::pthread_sigmask(restore, &before, std::ptr::null_mut());
                return Err(error);
            }
            child => child,
        };
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        let mut ended = None;
        while ended.is_none() {
            let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
            let number = libc::sigwaitinfo(&all, about.as_mut_ptr());
            let is_from_kernel = about.assume_init().si_code > 0;
            match number {
                libc::SIGCHLD => {
                    let mut status = 0;
                    loop {
                        match libc::waitpid(-1, &mut status, libc::WNOHANG) {
                            ..=0 => break,
                            id if id == child => ended = Some(ExitStatus::from_raw(status)),
                            _ => {}
                        }
                    }
                }
                // At a hangup the kernel signals only the leader of the terminal's session.
                1.. if !is_from_kernel || number == libc::SIGHUP => drop(libc::kill(child, number)),
                _ => {}
            }
        }
        libc::pthread_sigmask(restore, &before, std::ptr::null_mut());
        Ok(ended)
    }
}

/// Makes a child get SIGTERM when this process is killed, because it can then hand nothing on.
pub(crate) fn end_with_parent(command: &mut Command) {
    end_with(rustix::process::getpid(), command);
}

fn end_with(parent: Pid, command: &mut Command) {
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The kernel reports only a death that comes after this. The new parent shows an earlier
        // one.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(Errno::SRCH.into()),
        }
    };
    // SAFETY: between fork and exec only prctl and getppid are called, which are bare system calls.
    unsafe { command.pre_exec(ask) };
}

/// Processor time, user and system together, of this process and of its children waited for.
pub(crate) fn cpu_time() -> (Duration, Duration) {
    (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN))
}

fn usage(who: libc::c_int) -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct, and all zeros are a valid one should it ever fail.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time =
        |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Signals wait until they are asked for, so nothing ends a wait of the main thread for anything else.
static SIGNALS_HELD: AtomicBool = AtomicBool::new(false);
/// A signal to stop has been given out.
static STOP_HEARD: AtomicBool = AtomicBool::new(false);
/// The signals that were blocked when the command was started.
static BLOCKED_AT_START: OnceLock<libc::sigset_t> = OnceLock::new();

/// Whether signals that would end the process wait instead.
pub(crate) fn are_signals_held() -> bool {
    SIGNALS_HELD.load(Ordering::Relaxed)
}

/// Whether a signal to stop has come.
pub(crate) fn has_heard_stop() -> bool {
    STOP_HEARD.load(Ordering::Relaxed)
}

/// Lets signals do again what they do by themselves, at the end of the command. One that waits ends
/// the process here.
pub(crate) fn give_signals_back() {
    SIGNALS_HELD.store(false, Ordering::Relaxed);
    if let Some(before) = BLOCKED_AT_START.get() {
        // SAFETY: the set was initialised when it was filled, and outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

/// The signals that ask a command to stop.
pub(crate) const STOPS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that arrive as data on a descriptor instead of interrupting.
pub(crate) struct Signals {
    fd: OwnedFd,
    /// The signals that were blocked when the command was started.
    before: libc::sigset_t,
}

/// A signal that has arrived.
pub(crate) struct Arrived {
    pub(crate) number: i32,
    /// A process sent it; otherwise the kernel did, as for Ctrl-C, to everyone on the terminal.
    pub(crate) from_process: bool,
}

impl Signals {
    /// Takes these signals from now on, except those that the command was started to ignore.
    ///
    /// They are blocked in this thread, so no other thread may exist yet; and they would be in the
    /// children, so `give_back` is due for each of them.
    pub(crate) fn take(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: the sets are initialised by sigemptyset before use, and every pointer refers to a
        // local that outlives its call. The descriptor returned has no other owner.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            // Ignored, children would vanish without a status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            for &number in numbers {
                let mut action = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(number, std::ptr::null(), action.as_mut_ptr());
                // As nohup and a shell's background jobs want it.
                if action.assume_init().sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(set.as_mut_ptr(), number);
                }
            }
            let set = set.assume_init();
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, before.as_mut_ptr()) {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let before = before.assume_init();
            BLOCKED_AT_START.get_or_init(|| before);
            SIGNALS_HELD.store(true, Ordering::Relaxed);
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// Has a child start with the signals blocked that were blocked before `take`.
    pub(crate) fn give_back(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: between fork and exec only pthread_sigmask is called, which is allowed there.
        unsafe {
            command.pre_exec(move || {
                match libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            });
        }
    }

    /// Stops the process group as a terminal does for Ctrl-Z, unless it is an orphaned one, which
    /// no process could continue; returns when it goes on.
    pub(crate) fn stop_group(&self) -> io::Result<()> {
        // SAFETY: the set is initialised by sigemptyset before use, and outlives the calls.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            libc::sigaddset(&mut set, libc::SIGTSTP);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            let stopped = rustix::process::kill_current_process_group(Signal::TSTP);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(stopped?)
        }
    }

    /// The next signal that has arrived, if any.
    pub(crate) fn next(&self) -> io::Result<Option<Arrived>> {
        // signalfd(2): ssi_signo (u32), ssi_errno (i32), ssi_code (i32), then more up to 128 bytes.
        let mut record = [0u8; 128];
        match rustix::io::read(&self.fd, &mut record) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let field = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| record[at + i]));
        let number = field(0);
        if STOPS.contains(&number) {
            STOP_HEARD.store(true, Ordering::Relaxed);
        }
        Ok(Some(Arrived { number, from_process: field(8) <= 0 }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_does_not_start_if_its_parent_has_died() {
        let ours = rustix::process::getpid();
        // A process that has died meanwhile is not the parent any more; here it never was.
        let gone = Pid::from_raw(ours.as_raw_pid() + 1).expect("a number");
        let start = |parent| {
            let mut command = Command::new("true");
            end_with(parent, &mut command);
            command.status()
        };
        assert!(start(ours).expect("it runs").success());
        assert_eq!(start(gone).expect_err("nothing runs").raw_os_error(), Some(libc::ESRCH));
    }
}
