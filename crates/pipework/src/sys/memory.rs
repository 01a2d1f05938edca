//! Memory that processes share: files and what maps them, locks that tell of a death, futexes, and
//! SIGBUS kept away.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::{Errno, Result, without_signals};

// ---------------------------------------------------------------- files

/// What the kernel says of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) is_regular: bool,
    pub(crate) is_folder: bool,
    pub(crate) len: u64,
    pub(crate) owner: u32,
    /// Permissions.
    pub(crate) mode: u32,
    /// Device and inode: which file it is.
    pub(crate) identity: (u64, u64),
}

pub(crate) fn facts(fd: BorrowedFd<'_>) -> Result<Facts> {
    sys!("fstat", rustix::fs::fstat(fd)).map(facts_of)
}

/// Of what `path` names, a symbolic link not followed.
pub(crate) fn facts_at(path: &Path) -> Result<Facts> {
    sys!("lstat", rustix::fs::lstat(path)).map(facts_of)
}

fn facts_of(stat: rustix::fs::Stat) -> Facts {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Facts {
        is_regular: kind == FileType::RegularFile,
        is_folder: kind == FileType::Directory,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        identity: (stat.st_dev, stat.st_ino),
    }
}

/// Whether a descriptor is open, and of the file with that device and inode.
pub(crate) fn is_of(fd: BorrowedFd<'_>, identity: (u64, u64)) -> bool {
    // Not by way of `facts`, which tests make fail: a drop asks this, and has nobody to tell.
    rustix::fs::fstat(fd).is_ok_and(|stat| facts_of(stat).identity == identity)
}

/// How many names an open file has, and how many bytes; `None` if it is not the file with that
/// device and inode.
pub(crate) fn names_and_len(fd: BorrowedFd<'_>, identity: (u64, u64)) -> Option<(u64, u64)> {
    // Not by way of `facts`, as above.
    let stat = rustix::fs::fstat(fd).ok().filter(|stat| (stat.st_dev, stat.st_ino) == identity)?;
    Some((stat.st_nlink, stat.st_size as u64))
}

/// A descriptor, and which file it is of.
///
/// Programs close descriptors that they do not know, and what they open next gets the number. So it
/// is asked for before it matters, and what is somebody else's by then is not closed.
#[derive(Debug)]
pub(crate) struct KnownFile {
    fd: ManuallyDrop<OwnedFd>,
    identity: (u64, u64),
}

impl KnownFile {
    pub(crate) fn new(fd: OwnedFd, identity: (u64, u64)) -> KnownFile {
        KnownFile { fd: ManuallyDrop::new(fd), identity }
    }

    pub(crate) fn of(fd: OwnedFd) -> Result<KnownFile> {
        let identity = facts(fd.as_fd())?.identity;
        Ok(KnownFile::new(fd, identity))
    }

    /// Device and inode of the file that it was, and is to be.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Whether the descriptor still is of that file.
    fn is_intact(&self) -> bool {
        is_of(self.as_fd(), self.identity)
    }

    /// Leaves the number to whoever has it now.
    pub(crate) fn forget(&mut self) {
        self.identity = (0, 0);
    }
}

impl AsFd for KnownFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        if self.is_intact() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A new file without a name in the folder `folder`. [`Errno::OPNOTSUPP`] where the file system has
/// no such files.
pub(crate) fn create_unnamed(folder: &Path) -> Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match sys!("tmpfile", rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)) {
        // What a file system says that has never heard of it.
        Err(Errno(libc::EISDIR)) => Err(Errno::OPNOTSUPP),
        done => done,
    }
}

/// A new file at `path`, which must not exist.
pub(crate) fn create_named(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    sys!("create", rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
}

/// A new file in memory that can be sealed.
pub(crate) fn create_in_memory(name: &CStr) -> Result<OwnedFd> {
    sys!("memfd", rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING))
}

/// Gives an open file a name, which must not exist.
pub(crate) fn link(fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
    // Before Linux 6.10 the first way needs a capability, and fails with ENOENT without it. The second
    // way leaves entries of /proc behind that delay the end of the process.
    sys!(
        "link",
        match rustix::fs::linkat(fd, c"", CWD, path, AtFlags::EMPTY_PATH) {
            Err(rustix::io::Errno::NOENT) => {
                rustix::fs::linkat(CWD, own_path(fd), CWD, path, AtFlags::SYMLINK_FOLLOW)
            }
            linked => linked,
        }
    )
}

/// Gives the file at `old` the name `new`, which must not exist.
pub(crate) fn rename_new(old: &Path, new: &Path) -> Result<()> {
    sys!("rename", rustix::fs::renameat_with(CWD, old, CWD, new, rustix::fs::RenameFlags::NOREPLACE))
}

/// Sets the permissions of what `path` names.
pub(crate) fn set_mode_at(path: &Path, mode: u32) -> Result<()> {
    sys!("chmod", rustix::fs::chmod(path, Mode::from_raw_mode(mode)))
}

/// Makes a folder with these permissions, as far as the umask allows them.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<()> {
    sys!("mkdir", rustix::fs::mkdir(path, Mode::from_raw_mode(mode)))
}

/// Removes a folder, which must be empty.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    sys!("rmdir", rustix::fs::rmdir(path))
}

pub(crate) fn unlink(path: &Path) -> Result<()> {
    sys!("unlink", rustix::fs::unlink(path))
}

/// Opens an existing file, following no symbolic link in its last component and waiting for nobody.
pub(crate) fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    sys!("open", rustix::fs::open(path, flags, Mode::empty()))
}

/// The same, to read only.
pub(crate) fn open_to_read(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    sys!("open", rustix::fs::open(path, flags, Mode::empty()))
}

/// Opens the file behind `fd` once more: an open file of its own, with locks of its own.
pub(crate) fn open_again(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    sys!("open", rustix::fs::open(own_path(fd), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))
}

/// The path of an open file; `None` for one that never had any, and without /proc.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(own_path(fd)).ok()?.into_os_string().into_encoded_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    let has_one = path.starts_with(b"/") && !path.starts_with(b"/memfd:");
    has_one.then(|| PathBuf::from(OsStr::from_bytes(path)))
}

fn own_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}

pub(crate) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    sys!("chmod", rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)))
}

/// Makes the file `len` bytes long without giving it pages.
pub(crate) fn set_len(fd: BorrowedFd<'_>, len: u64) -> Result<()> {
    again(|| sys!("truncate", rustix::fs::ftruncate(fd, len)))
}

/// Gives `len` bytes from `off` on their pages, so that a full file system is an error now and not
/// a signal later. The file grows if it is shorter.
///
/// It is one call, however long: only so does the kernel notice that its own pages fill the memory,
/// and refuses. For many calls it ends processes instead. Files in memory undo a call that a signal
/// has stopped, and a profiler's signals come for ever: they wait meanwhile.
pub(crate) fn reserve(fd: BorrowedFd<'_>, off: u64, len: u64) -> Result<()> {
    let call = || sys!("fallocate", rustix::fs::fallocate(fd, FallocateFlags::empty(), off, len));
    without_signals(|| again(call))
}

/// Takes the pages of `len` bytes from `off` on away: they read as zero from then on.
pub(crate) fn punch(fd: BorrowedFd<'_>, off: u64, len: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    again(|| sys!("punch", rustix::fs::fallocate(fd, flags, off, len)))
}

/// Makes a call again for as long as signals stop it: one that gets on by itself, so that nobody
/// means to leave it.
fn again<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Nobody can change the length of the file from now on.
pub(crate) fn seal(fd: BorrowedFd<'_>) -> Result<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    sys!("seal", rustix::fs::fcntl_add_seals(fd, seals))
}

/// Reads from offset `off`; fewer bytes than `bytes` holds only at the end of the file.
pub(crate) fn read_at(fd: BorrowedFd<'_>, bytes: &mut [u8], off: u64) -> Result<usize> {
    sys!("pread", rustix::io::pread(fd, bytes, off))
}

// ---------------------------------------------------------------- locks

/// Takes the write lock of one byte for this open file; false if another open file has it. It goes
/// with the last descriptor.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    match lock_call(fd, libc::F_OFD_SETLK, libc::F_WRLCK, byte..byte + 1) {
        Ok(_) => Ok(true),
        Err(Errno(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes a read lock of one byte for this open file, which others may have as well. It goes with
/// the last descriptor.
pub(crate) fn lock_shared(fd: BorrowedFd<'_>, byte: u64) -> Result<()> {
    lock_call(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte..byte + 1).map(drop)
}

/// Gives the lock of one byte back, whoever else has a descriptor of this open file.
pub(crate) fn unlock(fd: BorrowedFd<'_>, byte: u64) -> Result<()> {
    lock_call(fd, libc::F_OFD_SETLK, libc::F_UNLCK, byte..byte + 1).map(drop)
}

/// Whether another open file has the lock, in either form.
pub(crate) fn is_locked(fd: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    is_any_locked(fd, byte..byte + 1)
}

/// Whether another open file has the lock of one of these bytes, in either form.
pub(crate) fn is_any_locked(fd: BorrowedFd<'_>, bytes: Range<u64>) -> Result<bool> {
    lock_call(fd, libc::F_OFD_GETLK, libc::F_WRLCK, bytes).map(|kind| kind != libc::F_UNLCK)
}

fn lock_call(fd: BorrowedFd<'_>, command: c_int, kind: c_int, bytes: Range<u64>) -> Result<c_int> {
    #[cfg(test)]
    if let Some(super::fault::Fault::Errno(errno)) = super::fault::due("lock") {
        return Err(Errno(errno));
    }
    // SAFETY: the struct is plain data; its pid must be 0 for these commands.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start as libc::off_t;
    lock.l_len = (bytes.end - bytes.start) as libc::off_t;
    // SAFETY: the descriptor is open and the struct outlives the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut lock) } {
        -1 => Err(Errno::last()),
        _ => Ok(c_int::from(lock.l_type)),
    }
}

/// The descriptor of that number, for as long as `_owner` lives, which closes it.
///
/// The program may have closed it all the same, and opened something else: whoever uses this asks
/// for nothing that a stranger's file does not bear, or has asked [`is_of`] before.
pub(crate) fn borrow<T>(fd: RawFd, _owner: &T) -> BorrowedFd<'_> {
    // SAFETY: the number is that of a descriptor, not -1, and nothing else is relied on: what
    // happens to a descriptor that is another's by now is said above.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

// ---------------------------------------------------------------- mappings

/// Maps the first `len` bytes of a file that is at least so long, shared with whoever else maps
/// them. What is near a page that is touched is not read along from a disk.
pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = sys!("mmap", unsafe { rustix::mm::mmap(null_mut(), len, access, MapFlags::SHARED, fd, 0) })?;
    // SAFETY: it changes what the kernel reads ahead, and nothing that is there. No failure matters.
    let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::Random) };
    NonNull::new(start.cast()).ok_or(Errno::INVAL)
}

/// # Safety
///
/// `len` bytes from `start` on were mapped by [`map`], and nobody uses them any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: as above. It fails only for what is no mapping.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) };
}

/// Gives `len` bytes from `start` on their pages in this process in one call, where the kernel can
/// (Linux 5.14): otherwise each page costs a fault when it is first touched. No failure matters.
///
/// # Safety
///
/// The bytes are mapped.
pub(crate) unsafe fn populate(start: NonNull<u8>, len: usize) {
    // SAFETY: as above; it changes nothing that is there.
    let _ = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
}

/// Writes what was changed in a mapping to its file's storage, and waits for it.
///
/// # Safety
///
/// `len` bytes from `start` on are mapped.
pub(crate) unsafe fn write_back(start: NonNull<u8>, len: usize) -> Result<()> {
    // SAFETY: as above.
    sys!("msync", unsafe { rustix::mm::msync(start.as_ptr().cast(), len, MsyncFlags::SYNC) })
}

/// From now on children find `page` filled with zeros, whichever way they are made. `EINVAL` where
/// the kernel cannot do that, or where it is no whole page of memory.
///
/// What is there must bear to be zero, and that others write to it: it is made of atomics.
pub(crate) fn wipe_in_children<T>(page: &'static T) -> Result<()> {
    let (start, advice) = (std::ptr::from_ref(page).cast_mut().cast(), rustix::mm::Advice::LinuxWipeOnFork);
    // SAFETY: nothing changes in this process, and what a child finds is a value, as said above.
    sys!("madvise", unsafe { rustix::mm::madvise(start, size_of::<T>(), advice) })
}

/// Asks for large pages where the kernel gives them on request: without them, to touch 64 MiB of
/// new memory is 16,384 faults, which take longer than to copy as much. No failure matters.
pub(crate) fn prefer_large_pages(bytes: &mut Vec<u8>) {
    // All of it, and outwards: a mapping that an allocator has made for it is not divided, so that
    // it can still be moved instead of copied.
    let page = rustix::param::page_size();
    let start = bytes.as_mut_ptr().map_addr(|start| start & !(page - 1));
    let len = (bytes.as_ptr().addr() + bytes.capacity()).next_multiple_of(page) - start.addr();
    // SAFETY: it changes how the memory is kept, and nothing that is in it.
    let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
}

static CAUGHT: OnceLock<Caught> = OnceLock::new();

struct Caught {
    /// Which bytes to replace where one is gone; `None` if it is not ours.
    lost: fn(usize) -> Option<Range<usize>>,
    /// What the program did with SIGBUS before.
    before: libc::sigaction,
}

/// A file at a path can be cut short by whoever may write to it, and then touching its pages kills.
/// From the first call on, `lost` is asked which bytes are to be replaced; their pages become empty
/// ones of our own. If it knows none, the signal goes where it went before.
///
/// `lost` is called in a signal handler: it may only use atomics. What it owns up to must bear to
/// be zero at any moment.
pub(crate) fn catch_bus_errors(lost: fn(usize) -> Option<Range<usize>>) {
    CAUGHT.get_or_init(|| {
        // SAFETY: all of sigaction's fields may be zero; the handler keeps to what is allowed in
        // one.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &action(), &mut before);
            Caught { lost, before }
        }
    });
}

/// That `on_bus_error` is called.
fn action() -> libc::sigaction {
    // SAFETY: all of the struct's fields may be zero, and it outlives the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            on_bus_error as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        action
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler; for SIGBUS it holds an
    // address. sysconf may be called in a handler.
    let (code, address, page) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, libc::sysconf(libc::_SC_PAGESIZE) as usize) };
    let caught = CAUGHT.get();
    // Only the kernel says so, and only where an instruction met it.
    if code == libc::BUS_ADRERR
        && let Some(lost) = caught.and_then(|caught| (caught.lost)(address))
        && make_empty(lost.start & !(page - 1)..lost.end)
    {
        return;
    }
    let before = caught.map(|caught| &caught.before);
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // Sent by a process, not by an instruction: nothing is tried again, and what ignores may go on.
    let sent = code <= 0;
    // SAFETY: what is called was installed by the program as a handler of just this kind; the
    // default, put back, acts as soon as the instruction is tried again, or the signal comes again,
    // which is when this returns.
    unsafe {
        if sent && handler == libc::SIG_IGN {
        } else if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
            if sent {
                libc::raise(signal);
            }
        } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        }
        // Rust's own handler puts the default in place and returns, so that the instruction is
        // tried again. Of a signal that was sent nothing is tried again, and what is mapped stays
        // guarded.
        let mut now: libc::sigaction = std::mem::zeroed();
        if sent
            && handler != libc::SIG_DFL
            && libc::sigaction(signal, null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_DFL
        {
            libc::sigaction(signal, &action(), null_mut());
        }
    }
}

/// Puts empty memory of this process in place of some pages of a mapping, the first and the last of
/// them whole; false if that is refused.
fn make_empty(pages: Range<usize>) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: what is replaced is a mapping of ours, which nothing but raw copies and atomics read;
    // errno is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let made =
            libc::mmap(pages.start as *mut c_void, pages.len(), access, kind, -1, 0) != libc::MAP_FAILED;
        *libc::__errno_location() = errno;
        made
    }
}

// ---------------------------------------------------------------- futexes

/// Sleeps if the 32 bits at `word` are `expected`, until woken or for at most `limit`.
/// [`Errno::INTR`] if a signal handler ran.
///
/// `shared` is for words that other processes map. The word is read by the kernel: no address makes
/// this more than an error.
#[cfg_attr(loom, expect(dead_code, reason = "a model parks on a lock"))]
pub(crate) fn futex_wait(
    word: *const u32,
    expected: u32,
    limit: Option<Duration>,
    shared: bool,
) -> Result<()> {
    #[cfg(test)]
    if let Some(super::fault::Fault::Errno(errno)) = super::fault::due("futex") {
        return Err(Errno(errno));
    }
    let limit = limit.map(|limit| libc::timespec {
        // Its type has no name that does not warn: musl's `time_t` is about to change.
        tv_sec: limit.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: the kernel checks the address; the limit outlives the call.
    match unsafe { libc::syscall(libc::SYS_futex, word, operation, expected, limit) } {
        -1 => match Errno::last() {
            // It holds something else, or the time is over: the caller looks for itself. It does so
            // where the file was cut short, too: it learns of that when it touches the word.
            Errno(libc::EAGAIN | libc::ETIMEDOUT | libc::EFAULT) => Ok(()),
            errno => Err(errno),
        },
        _ => Ok(()),
    }
}

/// Wakes at most `count` who sleep on `word`; says how many it woke.
#[cfg_attr(loom, expect(dead_code, reason = "a model parks on a lock"))]
pub(crate) fn futex_wake(word: *const u32, count: u32, shared: bool) -> u32 {
    let operation = libc::FUTEX_WAKE | if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: the kernel uses the address as a name only.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, operation, count) };
    u32::try_from(woken).unwrap_or(0)
}

// ---------------------------------------------------------------- fences

/// Says that this process will call [`membarrier`]. Forked children need not.
///
/// While the process has one thread this is a short call. Otherwise the first one waits until every
/// CPU has switched once (milliseconds), later ones are short.
pub(crate) fn register_membarrier() -> Result<()> {
    call_membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// A full fence in every thread of this process that runs now; one that does not has had one since
/// it last did.
pub(crate) fn membarrier() -> Result<()> {
    call_membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn call_membarrier(command: c_int) -> Result<()> {
    #[cfg(test)]
    if let Some(super::fault::Fault::Errno(errno)) = super::fault::due("membarrier") {
        return Err(Errno(errno));
    }
    // SAFETY: it takes no memory.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fault::{Fault, all_met, order};

    #[test]
    fn signals_do_not_keep_a_file_from_its_pages() {
        let file = create_in_memory(c"test").unwrap();
        let fd = file.as_fd();
        order("truncate", 0, Fault::Errno(libc::EINTR));
        assert_eq!((set_len(fd, 100), all_met()), (Ok(()), true));
        order("fallocate", 0, Fault::Errno(libc::EINTR));
        assert_eq!((reserve(fd, 4096, 8192), all_met()), (Ok(()), true));
        let stat = rustix::fs::fstat(fd).unwrap();
        assert_eq!((facts(fd).unwrap().len, stat.st_blocks as u64 * 512), (3 * 4096, 8192));
        order("fallocate", 0, Fault::Errno(libc::ENOSPC));
        assert_eq!((reserve(fd, 0, 4096), all_met()), (Err(Errno(libc::ENOSPC)), true));
    }
}
