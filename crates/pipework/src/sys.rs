//! The boundary to the kernel: every system call of the crate is made here, and nowhere else. (The
//! clock, which takes none, is read in `clock.rs`.)
//!
//! Each function is one call, or one fact about the system. It returns the bare [`Errno`]; the
//! caller knows the name of the operation and turns it into an [`Error`] with [`Errno::at`].
//! Nothing here retries (except after a signal, where no caller would want to stop), waits by
//! itself (except [`wait`] and [`sleep`], which take a deadline) or keeps state beyond what it has
//! learnt about the kernel.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{FdFlags, ReadWriteFlags};
use rustix::pipe::PipeFlags;

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind};
use crate::interrupt;

/// The kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const ACCES: Errno = Errno(libc::EACCES);
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const BADF: Errno = Errno(libc::EBADF);
    pub(crate) const CONNRESET: Errno = Errno(libc::ECONNRESET);
    pub(crate) const EXIST: Errno = Errno(libc::EEXIST);
    pub(crate) const INTR: Errno = Errno(libc::EINTR);
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const IO: Errno = Errno(libc::EIO);
    pub(crate) const LOOP: Errno = Errno(libc::ELOOP);
    pub(crate) const MFILE: Errno = Errno(libc::EMFILE);
    pub(crate) const NFILE: Errno = Errno(libc::ENFILE);
    pub(crate) const NOENT: Errno = Errno(libc::ENOENT);
    pub(crate) const NOLCK: Errno = Errno(libc::ENOLCK);
    pub(crate) const NOMEM: Errno = Errno(libc::ENOMEM);
    pub(crate) const NXIO: Errno = Errno(libc::ENXIO);
    pub(crate) const NOSPC: Errno = Errno(libc::ENOSPC);
    pub(crate) const PERM: Errno = Errno(libc::EPERM);
    pub(crate) const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub(crate) const PIPE: Errno = Errno(libc::EPIPE);
    /// Not from the kernel: the deadline has passed. The kernel's ETIMEDOUT belongs to a connection
    /// whose peer is silent.
    pub(crate) const TIMEDOUT: Errno = Errno(0);
    /// Not from the kernel: it has split a write that POSIX promises to keep whole.
    pub(crate) const CUT: Errno = Errno(libc::EPROTO);

    fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    pub(crate) fn number(self) -> i32 {
        self.0
    }

    /// The error of the operation `op`.
    pub(crate) fn at(self, op: &'static str) -> Error {
        let kind = match self.0 {
            libc::EAGAIN => ErrorKind::WouldBlock,
            libc::EINTR => ErrorKind::Interrupted,
            libc::EPIPE | libc::ECONNRESET => ErrorKind::Closed,
            libc::EINVAL | libc::EBADF | libc::ELOOP => ErrorKind::Invalid,
            libc::ENOTSOCK | libc::ESPIPE | libc::EISDIR => ErrorKind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOPROTOOPT => ErrorKind::Unsupported,
            libc::EPROTO => ErrorKind::Corrupt,
            0 => ErrorKind::TimedOut,
            _ => ErrorKind::Os,
        };
        Error::with_errno(kind, op, self.0)
    }
}

impl ErrorKind {
    /// The errno for this kind of error, for languages whose errors are such numbers. If the kernel
    /// reported an error, its own number is more exact: [`Error::errno`]. For [`ErrorKind::Os`] the
    /// kernel always did, so the EIO returned here is never needed.
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, atomic};
    ///
    /// let (mut reader, _writer) = atomic::pair()?;
    /// let error = reader.recv(Deadline::now()).unwrap_err();
    /// assert_eq!(error.errno().unwrap_or(error.kind().errno()), 110); // ETIMEDOUT
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub const fn errno(self) -> i32 {
        match self {
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Interrupted => libc::EINTR,
            ErrorKind::Closed => libc::EPIPE,
            ErrorKind::TooLong => libc::EMSGSIZE,
            ErrorKind::Stale => libc::ESTALE,
            ErrorKind::PeerDied => libc::ECONNRESET,
            ErrorKind::NoServer => libc::ENOTCONN,
            ErrorKind::Torn | ErrorKind::Corrupt => libc::EBADMSG,
            ErrorKind::Incompatible => libc::EPROTO,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::Invalid => libc::EINVAL,
            ErrorKind::Os => libc::EIO,
            ErrorKind::Failed => libc::ECANCELED,
            ErrorKind::Lagged => libc::ENOBUFS,
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The result of a call of the C library.
fn checked<T: Copy + Into<i64>>(result: T) -> Result<T> {
    if result.into() == -1 { Err(Errno::last()) } else { Ok(result) }
}

/// Runs `call`, unless a test has ordered the call of that name to fail here.
macro_rules! sys {
    ($name:literal, $call:expr) => {{
        #[cfg(test)]
        if let Some($crate::sys::fault::Fault::Errno(errno)) = $crate::sys::fault::due($name) {
            return Err($crate::sys::Errno(errno));
        }
        $call.map_err($crate::sys::Errno::from)
    }};
}

/// As `sys!`, for a call that makes a descriptor. If none is left, it gives up the files that this
/// process keeps for later, and tries again.
macro_rules! opens {
    ($name:literal, $call:expr) => {{
        let mut made = sys!($name, $call);
        if matches!(made, Err($crate::sys::Errno::MFILE | $crate::sys::Errno::NFILE))
            && $crate::sys::gives_up_descriptors()
        {
            made = $call.map_err($crate::sys::Errno::from);
        }
        made
    }};
}

/// How much a call may move: `len`, unless a test has ordered a short count.
macro_rules! capped {
    ($name:literal, $len:expr) => {{
        let len: usize = $len;
        #[cfg(test)]
        let len = match $crate::sys::fault::due($name) {
            Some($crate::sys::fault::Fault::Errno(errno)) => return Err($crate::sys::Errno(errno)),
            Some($crate::sys::fault::Fault::Short(short)) => short.min(len),
            Some($crate::sys::fault::Fault::After(_)) | None => len,
        };
        len
    }};
}

/// The part of `buf` that a call may move.
macro_rules! allowed {
    ($name:literal, $buf:expr) => {{
        let len = capped!($name, $buf.len());
        &mut $buf[..len]
    }};
}

mod raised;
pub(crate) mod memory;
pub(crate) mod known;
pub(crate) mod file;
pub(crate) mod closes;
pub(crate) mod net;
mod carrier;
pub(crate) mod timed_fd;

pub(crate) use carrier::{Access, Carrier, carrier};
pub(crate) use raised::{met_closed_end, without_sigpipe};

// ---------------------------------------------------------------- descriptors

/// Closes descriptors that this process can do without, and returns whether there were any.
static GIVES_UP: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on, when no descriptor is left, `give_up` is called before that is an error.
pub(crate) fn when_descriptors_run_out(give_up: fn() -> bool) {
    GIVES_UP.get_or_init(|| give_up);
}

/// Runs `run` again if it failed for want of a descriptor and this process has closed some.
pub(crate) fn with_descriptors<T>(
    mut run: impl FnMut() -> std::result::Result<T, Error>,
) -> std::result::Result<T, Error> {
    let lacks_one = |error: &Error| {
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.errno() == Some(errno.number()))
    };
    match run() {
        Err(error) if lacks_one(&error) && gives_up_descriptors() => run(),
        done => done,
    }
}

fn gives_up_descriptors() -> bool {
    GIVES_UP.get().is_some_and(|give_up| give_up())
}

/// How many page faults a thread has had, small and large; `None` if the kernel does not say.
pub(crate) type Faults = Option<[libc::c_long; 2]>;

/// The page faults of this thread so far.
pub(crate) fn faults() -> Faults {
    // SAFETY: the struct is plain data, and outlives the call.
    let (done, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_THREAD, &mut usage), usage)
    };
    (done == 0).then_some([usage.ru_minflt, usage.ru_majflt])
}

/// How many descriptors this process may have (RLIMIT_NOFILE).
pub(crate) fn most_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// A new pipe, read end first, both close-on-exec and blocking.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    opens!("pipe", rustix::pipe::pipe_with(PipeFlags::CLOEXEC))
}

/// A new close-on-exec descriptor of the same open file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    opens!("fcntl", rustix::io::fcntl_dupfd_cloexec(fd, 0))
}

/// Duplicates the descriptor to a number above `low`.
pub(crate) fn duplicate_above(fd: BorrowedFd<'_>, low: RawFd) -> Result<OwnedFd> {
    opens!("dup", rustix::io::fcntl_dupfd_cloexec(fd, low + 1))
}

/// Marks a descriptor from outside as close-on-exec.
pub(crate) fn set_cloexec(fd: BorrowedFd<'_>) -> Result<()> {
    sys!("fcntl", rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC))
}

/// Makes a FIFO with mode 0600.
pub(crate) fn make_fifo(path: &Path) -> Result<()> {
    sys!("mkfifo", rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR))
}

/// Whether `path` names a FIFO; false for a symbolic link to one.
pub(crate) fn is_fifo(path: &Path) -> Result<bool> {
    let stat = sys!("lstat", rustix::fs::lstat(path))?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// How to open a FIFO by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Non-blocking, succeeds without a writer.
    Read,
    /// Waits in the kernel for a reader.
    WriteWaiting,
    /// [`Errno::NXIO`] without a reader; the descriptor blocks once it is open.
    WriteAtOnce,
}

/// A descriptor of the file at `path` that appears in /proc and does not take part in anything that
/// happens to the file.
pub(crate) fn show(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Opens the FIFO at `path`, following no symbolic link in its last component.
pub(crate) fn open_fifo(path: &Path, how: Open) -> Result<OwnedFd> {
    let flags = OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NOCTTY
        | match how {
            Open::Read => OFlags::RDONLY | OFlags::NONBLOCK,
            Open::WriteWaiting => OFlags::WRONLY,
            Open::WriteAtOnce => OFlags::WRONLY | OFlags::NONBLOCK,
        };
    let fd = opens!("open", rustix::fs::open(path, flags, Mode::empty()))?;
    if how == Open::WriteAtOnce {
        let flags = sys!("fcntl", rustix::fs::fcntl_getfl(&fd))?;
        sys!("fcntl", rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK))?;
    }
    Ok(fd)
}

/// Opens the pipe behind `fd` again, as an open file of our own that does not block.
///
/// Setting `O_NONBLOCK` on `fd` itself would change it for every process that shares the open file.
pub(crate) fn reopen_nonblocking(fd: BorrowedFd<'_>, access: Access) -> Result<OwnedFd> {
    let flags = OFlags::CLOEXEC
        | OFlags::NONBLOCK
        | if access == Access::Write { OFlags::WRONLY } else { OFlags::RDONLY };
    let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    opens!("open", rustix::fs::open(&path, flags, Mode::empty()))
}

/// The largest write that the kernel never splits. POSIX promises 512 bytes; Linux gives 4096.
pub(crate) fn pipe_buf(fd: BorrowedFd<'_>) -> usize {
    // SAFETY: fpathconf takes any number as a descriptor and touches no memory of this process.
    let answer = unsafe { libc::fpathconf(fd.as_raw_fd(), libc::_PC_PIPE_BUF) };
    usize::try_from(answer).unwrap_or(512).clamp(512, 1 << 16)
}

/// Bytes that the pipe holds before a writer waits.
pub(crate) fn pipe_capacity(fd: BorrowedFd<'_>) -> Result<usize> {
    sys!("fcntl", rustix::pipe::fcntl_getpipe_size(fd))
}

/// Asks for a capacity; returns the one that the kernel chose, which is at least as large.
pub(crate) fn set_pipe_capacity(fd: BorrowedFd<'_>, bytes: usize) -> Result<usize> {
    sys!("fcntl", rustix::pipe::fcntl_setpipe_size(fd, bytes))
}

/// The largest capacity that an unprivileged process may ask for.
pub(crate) fn max_pipe_capacity() -> Result<usize> {
    let text = read_file(Path::new("/proc/sys/fs/pipe-max-size"))?;
    let text = std::str::from_utf8(&text).map_err(|_| Errno(libc::EIO))?;
    text.trim().parse().map_err(|_| Errno(libc::EIO))
}

/// The whole content of a file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// A non-blocking eventfd that counts.
pub(crate) fn eventfd() -> Result<OwnedFd> {
    use rustix::event::EventfdFlags;
    opens!("eventfd", rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
}

/// Makes an eventfd readable.
pub(crate) fn eventfd_ring(eventfd: BorrowedFd<'_>) {
    // This fails only if the counter is full, and then the descriptor is readable already.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Makes an eventfd unreadable.
pub(crate) fn eventfd_clear(eventfd: BorrowedFd<'_>) {
    // This fails only if the descriptor is not readable.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
}

/// A new epoll descriptor.
pub(crate) fn epoll() -> Result<OwnedFd> {
    opens!("epoll", rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC))
}

/// Makes `epoll` readable whenever `fd` is.
pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()> {
    use rustix::event::epoll::{EventData, EventFlags, add};
    sys!("epoll", add(epoll, fd, EventData::new_u64(0), EventFlags::IN))
}

/// Takes `fd` out of `epoll`.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> Result<()> {
    sys!("epoll", rustix::event::epoll::delete(epoll, fd))
}

// ---------------------------------------------------------------- bytes

/// Reads what is available, or waits for the first byte. 0 is end of file.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize> {
    let buf = allowed!("read", buf);
    rustix::io::read(fd, buf).map_err(Errno::from)
}

/// Reads what is available now, with any flags of the descriptor. [`Errno::OPNOTSUPP`] if the
/// kernel cannot be asked per call.
pub(crate) fn read_nowait(fd: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize> {
    let buf = allowed!("read_nowait", buf);
    let mut bufs = [std::io::IoSliceMut::new(buf)];
    rustix::io::preadv2(fd, &mut bufs, u64::MAX, ReadWriteFlags::NOWAIT).map_err(unknown_flag)
}

/// Whether a write waits for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// As the descriptor's flags say.
    Native,
    /// Does not wait, with any flags. [`Errno::OPNOTSUPP`] as in [`read_nowait`].
    Never,
}

/// Writes, with EPIPE but without SIGPIPE if no reader is left (`RWF_NOSIGNAL`, Linux 6.18).
/// [`Errno::OPNOTSUPP`] if the kernel does not know this flag, or not the one for `blocking`.
pub(crate) fn write_nosignal(fd: BorrowedFd<'_>, buf: &[u8], blocking: Blocking) -> Result<usize> {
    const NOSIGNAL: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x100);
    #[cfg(test)]
    let buf = fault::shortened(
        if blocking == Blocking::Never { "write_nowait" } else { "write" },
        fault::shortened("nosignal", buf)?,
    )?;
    pwritev2(fd, buf, NOSIGNAL | blocking.flags())
}

/// As [`write_nosignal`], on any kernel, within [`without_sigpipe`]: EPIPE comes with the signal.
pub(crate) fn write(fd: BorrowedFd<'_>, buf: &[u8], blocking: Blocking) -> Result<usize> {
    #[cfg(test)]
    let buf = fault::shortened(if blocking == Blocking::Never { "write_nowait" } else { "write" }, buf)?;
    match blocking {
        Blocking::Native => rustix::io::write(fd, buf).map_err(Errno::from),
        Blocking::Never => pwritev2(fd, buf, blocking.flags()),
    }
}

impl Blocking {
    fn flags(self) -> ReadWriteFlags {
        if self == Blocking::Never { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() }
    }
}

fn pwritev2(fd: BorrowedFd<'_>, buf: &[u8], flags: ReadWriteFlags) -> Result<usize> {
    // Offset -1 is the descriptor's own position, the only one that a pipe has.
    rustix::io::pwritev2(fd, &[std::io::IoSlice::new(buf)], u64::MAX, flags).map_err(unknown_flag)
}

/// Older kernels return EINVAL, and sandboxes ENOSYS, for a flag that they do not know.
fn unknown_flag(errno: rustix::io::Errno) -> Errno {
    match Errno::from(errno) {
        Errno(libc::EINVAL | libc::ENOSYS) => Errno::OPNOTSUPP,
        errno => errno,
    }
}

// ---------------------------------------------------------------- waiting

/// The events to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
}

/// Waits until one of the descriptors can be read or written (or has failed, or lost its other
/// side), or until the deadline. Returns true if one is ready. [`Errno::INTR`] if a signal handler
/// ran, or if the interrupt hook ended the wait.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], what: For, deadline: Deadline) -> Result<bool> {
    let events = if what == For::Reading { PollFlags::IN } else { PollFlags::OUT };
    let watch = |fd| PollFd::from_borrowed_fd(fd, events);
    let ready = match *fds {
        [pipe] => poll(&mut [watch(pipe)], deadline)?,
        [pipe, bell] => poll(&mut [watch(pipe), watch(bell)], deadline)?,
        _ => unreachable!("no caller waits for more than a pipe and a bell"),
    };
    Ok(ready > 0)
}

/// Waits for the deadline only.
pub(crate) fn sleep(time: Duration) -> Result<()> {
    poll(&mut [], Deadline::after(time)).map(drop)
}

/// Whether a reader's pipe has had a writer since it was opened, and has lost the last one.
pub(crate) fn writers_have_left(fd: BorrowedFd<'_>) -> Result<bool> {
    let mut polled = PollFd::from_borrowed_fd(fd, PollFlags::IN);
    poll(std::slice::from_mut(&mut polled), Deadline::now())?;
    Ok(polled.revents().contains(PollFlags::HUP))
}

fn poll(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize> {
    loop {
        // A check that does not wait may be made under a lock, and does not ask the hook. Any other
        // asks before it waits, because it may be one of many calls that find something at once.
        if interrupt::is_hooked() && !deadline.has_passed() && interrupt::is_stopped() {
            return Err(Errno::INTR);
        }
        let slice = interrupt::left().map_or(deadline, |left| deadline.capped(left));
        match poll_once(fds, slice) {
            Ok(0) if !deadline.has_passed() => {}
            Err(Errno::INTR) if interrupt::signal_came() => {}
            done => return done,
        }
    }
}

fn poll_once(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize> {
    let timeout = deadline.remaining().map(|time| Timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    sys!("poll", rustix::event::poll(fds, timeout.as_ref()))
}

// ---------------------------------------------------------------- processes

/// This process's number in its own pid namespace.
pub(crate) fn process_id() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Nanoseconds since 1970, as far as the machine knows.
pub(crate) fn wall_clock_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// CPUs that this process may use at the same time: its affinity, and its cgroup's quota rounded
/// down.
pub(crate) fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// 32 random bits from the kernel.
pub(crate) fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    loop {
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            // The kernel always fills a request of at most 256 bytes completely.
            Ok(_) => return Ok(u32::from_ne_bytes(bytes)),
            // During boot it may wait, and a signal may end that wait.
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Starts a thread with all signals blocked, so that they interrupt the calls of the program's own
/// threads.
pub(crate) fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    // A thread inherits the mask of the thread that starts it.
    let run = || {
        interrupt::is_our_thread();
        run();
    };
    let start = || without_signals(|| std::thread::Builder::new().name(name.into()).spawn(run));
    sys!("thread", start().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))))
}

/// Runs `run` with signals blocked, except those that an instruction raises in this thread.
fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    let _signals_wait = no_signals();
    run()
}

/// While this lives, signals are blocked in this thread, except those that an instruction raises in
/// it.
pub(crate) struct NoSignals {
    before: libc::sigset_t,
    /// The mask belongs to this thread.
    _not_send: PhantomData<*const ()>,
}

pub(crate) fn no_signals() -> NoSignals {
    const CAUSED_HERE: [i32; 6] =
        [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: the sets are plain data, valid when zeroed, and initialised by the calls that take
    // pointers to them.
    unsafe {
        let (mut others, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut others);
        for signal in CAUSED_HERE {
            libc::sigdelset(&mut others, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &others, &mut before);
        NoSignals { before, _not_send: PhantomData }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the call that changed the mask filled this one in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Registers fork handlers with the C library for this process: `before` and `in_parent` run in the
/// thread that forks, `in_child` before fork returns in the child. Between fork and exec, a child
/// of a threaded process may make system calls and store to atomics, and do little else.
pub(crate) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the handlers are functions that live as long as the program, and do nothing that is
    // forbidden there.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(refused, 0, "there is memory for one set of fork handlers");
}

#[cfg(test)]
pub(crate) mod fault {
    //! Orders a system call of this thread to fail: the n-th of its name from now on.

    use std::cell::RefCell;

    /// Facts about the kernel are stored for the whole process, so tests that simulate a different
    /// kernel take turns.
    pub(crate) static KERNEL: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// A child has the open files of all tests of this process, and their locks, until it ends. So
    /// tests that count files share this, and tests that fork have it alone.
    pub(crate) static FORKS: std::sync::RwLock<()> = std::sync::RwLock::new(());

    /// A test's share of [`FORKS`].
    #[allow(dead_code, reason = "held, and not read")]
    pub(crate) enum Turn {
        Shared(std::sync::RwLockReadGuard<'static, ()>),
        Alone(std::sync::RwLockWriteGuard<'static, ()>),
    }

    impl Turn {
        pub(crate) fn shared() -> Turn {
            Turn::Shared(FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner))
        }

        pub(crate) fn alone() -> Turn {
            Turn::Alone(FORKS.write().unwrap_or_else(std::sync::PoisonError::into_inner))
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Fault {
        Errno(i32),
        /// Moves at most this many bytes.
        Short(usize),
        /// Something is done before the call, and then the call proceeds normally.
        After(Before),
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Before(pub(crate) fn());

    impl PartialEq for Before {
        fn eq(&self, _: &Before) -> bool {
            false
        }
    }

    impl std::fmt::Debug for Before {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Before")
        }
    }

    thread_local! {
        static ORDERS: RefCell<Vec<(&'static str, usize, Fault)>> = const { RefCell::new(Vec::new()) };
    }

    /// Lets the `nth` call (0 is the next) of `name` meet `fault`.
    pub(crate) fn order(name: &'static str, nth: usize, fault: Fault) {
        ORDERS.with_borrow_mut(|orders| orders.push((name, nth, fault)));
    }

    /// Forgets the orders; returns true if all of them had happened.
    pub(crate) fn all_met() -> bool {
        unmet() == 0
    }

    /// Forgets the orders; returns how many had not happened.
    pub(crate) fn unmet() -> usize {
        ORDERS.with_borrow_mut(|orders| std::mem::take(orders).len())
    }

    /// Runs `test` in a program that dies of SIGPIPE.
    pub(crate) fn with_deadly_sigpipe(test: impl FnOnce()) {
        // SAFETY: it changes a disposition that no other test of this process relies on, and
        // restores it.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        test();
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }

    /// A named point in the code that is no system call, where [`Fault::After`] can be ordered.
    pub(crate) fn reached(name: &str) {
        due(name);
    }

    /// Forks a child that exits at once, and waits for it.
    pub(crate) fn fork_once() {
        let _turn = Turn::alone();
        wait(fork(|| {}));
    }

    /// Forks a child that ends after `body`, without anything that ends with a program. For a test
    /// that has [`FORKS`] alone.
    pub(crate) fn fork(body: impl FnOnce()) -> i32 {
        // SAFETY: of the locks that other threads may hold, the child takes only the allocator's,
        // which has fork handlers.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: it takes any number, and does not return.
            unsafe { libc::_exit(i32::from(ended.is_err())) };
        }
        assert!(pid > 0);
        pid
    }

    /// Waits for the end of a child, which must not have panicked.
    pub(crate) fn wait(pid: i32) {
        let mut status = 0;
        // SAFETY: the status is there during the call.
        assert_eq!((unsafe { libc::waitpid(pid, &mut status, 0) }, status), (pid, 0));
    }

    pub(in crate::sys) fn due(name: &str) -> Option<Fault> {
        let met = ORDERS.with_borrow_mut(|orders| {
            let mut met = None;
            orders.retain_mut(|(order, left, fault)| {
                if *order != name || met.is_some() {
                    return true;
                }
                if *left == 0 {
                    met = Some(*fault);
                    return false;
                }
                *left -= 1;
                true
            });
            met
        });
        if let Some(Fault::After(Before(before))) = met {
            before();
            return None;
        }
        met
    }

    pub(super) fn shortened<'a>(name: &str, buf: &'a [u8]) -> super::Result<&'a [u8]> {
        match due(name) {
            Some(Fault::Errno(errno)) => Err(super::Errno(errno)),
            Some(Fault::Short(len)) => Ok(&buf[..len.min(buf.len())]),
            Some(Fault::After(_)) | None => Ok(buf),
        }
    }
}
