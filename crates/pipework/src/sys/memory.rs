//! Memory that processes share: files and their mappings, locks that reveal a death, futexes, and
//! protection from SIGBUS.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::raised::without_sigxfsz;
use super::{Errno, Result, checked, without_signals};

// ---------------------------------------------------------------- files

/// The kernel's facts about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) is_regular: bool,
    pub(crate) is_folder: bool,
    pub(crate) len: u64,
    pub(crate) owner: u32,
    /// Permissions.
    pub(crate) mode: u32,
    /// Device and inode, which identify the file.
    pub(crate) identity: (u64, u64),
}

pub(crate) fn facts(fd: BorrowedFd<'_>) -> Result<Facts> {
    sys!("fstat", rustix::fs::fstat(fd)).map(facts_of)
}

/// The facts about the file at `path`. It does not follow a symbolic link.
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

/// Bytes that are free in the file system of an open file, and bytes that it has. `None` if it has no
/// limit, or does not say.
pub(crate) fn space(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let facts = rustix::fs::fstatvfs(fd).ok().filter(|facts| facts.f_blocks > 0)?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Some((bytes(facts.f_bavail), bytes(facts.f_blocks)))
}

/// Whether a descriptor is open, and refers to the file with that device and inode.
pub(crate) fn is_of(fd: BorrowedFd<'_>, identity: (u64, u64)) -> bool {
    // This does not use `facts`, which tests make fail: a drop calls this, and cannot report an
    // error.
    rustix::fs::fstat(fd).is_ok_and(|stat| facts_of(stat).identity == identity)
}

/// The numbers of an open file's names and bytes; `None` if it is not the file with that device and
/// inode.
pub(crate) fn names_and_len(fd: BorrowedFd<'_>, identity: (u64, u64)) -> Option<(u64, u64)> {
    // This does not use `facts`, as above.
    let stat = rustix::fs::fstat(fd).ok().filter(|stat| (stat.st_dev, stat.st_ino) == identity)?;
    Some((stat.st_nlink, stat.st_size as u64))
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes a file without a name in the folder `folder`. [`Errno::OPNOTSUPP`] if the file system has
/// no such files.
pub(crate) fn create_unnamed(folder: &Path) -> Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match opens!("tmpfile", rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)) {
        // A file system that does not know the flag returns this.
        Err(Errno(libc::EISDIR)) => Err(Errno::OPNOTSUPP),
        done => done,
    }
}

/// Makes a file at `path`, which must not exist.
pub(crate) fn create_named(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    opens!("create", rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
}

/// Makes a file in memory that can be sealed.
pub(crate) fn create_in_memory(name: &CStr) -> Result<OwnedFd> {
    opens!("memfd", rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING))
}

/// Gives an open file a name, which must not exist.
pub(crate) fn link(fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
    // Before Linux 6.10 the first way needs a capability, and fails with ENOENT without it. The
    // second way leaves entries of /proc behind that delay the end of the process.
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

/// Sets the permissions of the file at `path`.
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

/// Opens an existing file. It does not follow a symbolic link in the last component, and does not
/// wait for another process.
pub(crate) fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    opens!("open", rustix::fs::open(path, flags, Mode::empty()))
}

/// As `open`, only for reading.
pub(crate) fn open_to_read(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    opens!("open", rustix::fs::open(path, flags, Mode::empty()))
}

/// Opens the file behind `fd` once more. The result is a separate open file with separate locks. It
/// does not wait for a process that has leased the file, which may be this one.
pub(crate) fn open_again(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    opens!("open", rustix::fs::open(own_path(fd), flags, Mode::empty()))
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

/// Makes the file `len` bytes long without giving it pages. EFBIG if the process may not make files
/// that long.
pub(crate) fn set_len(fd: BorrowedFd<'_>, len: u64) -> Result<()> {
    without_sigxfsz(|| again(|| sys!("truncate", rustix::fs::ftruncate(fd, len))))
}

/// Allocates pages for `len` bytes from `off` on, so that a full file system is an error now and
/// not a signal later. The file grows if it is shorter. EFBIG if the process may not make files that
/// long.
///
/// It is one call of any length, because only then does the kernel notice that its own pages fill
/// the memory, and refuses. With many calls the kernel kills processes instead. Files in memory
/// undo a call that a signal has stopped, and a profiler sends signals all the time, so signals
/// wait meanwhile.
pub(crate) fn reserve(fd: BorrowedFd<'_>, off: u64, len: u64) -> Result<()> {
    let call = || sys!("fallocate", rustix::fs::fallocate(fd, FallocateFlags::empty(), off, len));
    without_sigxfsz(|| without_signals(|| again(call)))
}

/// Frees the pages of `len` bytes from `off` on: they read as zero from then on.
pub(crate) fn punch(fd: BorrowedFd<'_>, off: u64, len: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    again(|| sys!("punch", rustix::fs::fallocate(fd, flags, off, len)))
}

/// Repeats a call while signals interrupt it. It is for calls that end by themselves, so no caller
/// wants to stop them.
fn again<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Fixes the length of the file: from now on no process can change it.
pub(crate) fn seal(fd: BorrowedFd<'_>) -> Result<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    sys!("seal", rustix::fs::fcntl_add_seals(fd, seals))
}

/// Reads from offset `off`; fewer bytes than `bytes` holds only at the end of the file.
pub(crate) fn read_at(fd: BorrowedFd<'_>, bytes: &mut [u8], off: u64) -> Result<usize> {
    sys!("pread", rustix::io::pread(fd, bytes, off))
}

// ---------------------------------------------------------------- locks

/// Takes the write lock of one byte for this open file; false if another open file has it. The lock
/// ends with the last descriptor.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    granted(lock_call(fd, libc::F_OFD_SETLK, libc::F_WRLCK, byte..byte + 1))
}

/// Takes a read lock of one byte for this open file, which others may have as well; false if another
/// open file has the write lock. The lock ends with the last descriptor.
pub(crate) fn try_lock_shared(fd: BorrowedFd<'_>, byte: u64) -> Result<bool> {
    granted(lock_call(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte..byte + 1))
}

/// As [`try_lock_shared`], for a byte whose write lock no process takes.
pub(crate) fn lock_shared(fd: BorrowedFd<'_>, byte: u64) -> Result<()> {
    lock_call(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte..byte + 1).map(drop)
}

fn granted(locked: Result<c_int>) -> Result<bool> {
    match locked {
        Ok(_) => Ok(true),
        Err(Errno(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Releases the lock of one byte, even if other processes have a descriptor of this open file.
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
    // SAFETY: the struct is plain data; its pid must be 0 for these commands.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start as libc::off_t;
    lock.l_len = (bytes.end - bytes.start) as libc::off_t;
    // SAFETY: the descriptor is open and the struct outlives the call.
    sys!("lock", checked(unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut lock) }))?;
    Ok(c_int::from(lock.l_type))
}

/// An open file that stays open without a descriptor, and so do its locks: this process has a page
/// of it mapped, and so has every child that is forked later. The kernel closes the file when the
/// last of them has unmapped the page or has ended. Nothing accesses the page.
#[derive(Debug)]
pub(crate) struct KeptOpen {
    page: NonNull<c_void>,
    identity: (u64, u64),
}

// SAFETY: it is the address of a page that no thread can access.
unsafe impl Send for KeptOpen {}
// SAFETY: as above.
unsafe impl Sync for KeptOpen {}

impl KeptOpen {
    const LEN: usize = 1;

    pub(crate) fn new(file: OwnedFd) -> Result<KeptOpen> {
        // This does not use `facts` and `map`, which tests make fail.
        let identity = sys!("keep_open", rustix::fs::fstat(&file)).map(facts_of)?.identity;
        let access = ProtFlags::empty();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe { rustix::mm::mmap(null_mut(), KeptOpen::LEN, access, MapFlags::SHARED, &file, 0) };
        let page = NonNull::new(sys!("keep_open", page)?).ok_or(Errno::INVAL)?;
        Ok(KeptOpen { page, identity })
    }

    /// Device and inode of the file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped it. It fails only for an address range that is no mapping.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr(), KeptOpen::LEN) };
    }
}

// ---------------------------------------------------------------- mappings

/// Maps the first `len` bytes of a file of at least that length, shared with all other mappings.
/// Touching a page does not make the kernel read its neighbours from a disk.
pub(crate) fn map(fd: BorrowedFd<'_>, len: usize, only_to_read: bool) -> Result<NonNull<u8>> {
    let access = if only_to_read { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = sys!("mmap", unsafe { rustix::mm::mmap(null_mut(), len, access, MapFlags::SHARED, fd, 0) })?;
    // SAFETY: it changes what the kernel reads ahead, and no bytes. A failure does not matter.
    let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::Random) };
    NonNull::new(start.cast()).ok_or(Errno::INVAL)
}

/// # Safety
///
/// `len` bytes from `start` on were mapped by [`map`], and are not used any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: as above. It fails only for an address range that is no mapping.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) };
}

/// Maps the pages of `len` bytes from `start` on in one call, if the kernel can (Linux 5.14).
/// Otherwise the first access to each page costs a fault. A failure does not matter.
///
/// # Safety
///
/// The bytes are mapped.
pub(crate) unsafe fn populate(start: NonNull<u8>, len: usize) {
    // SAFETY: as above; it changes no bytes.
    let _ = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
}

/// Writes the changes in a mapping to its file's storage, and waits for that.
///
/// # Safety
///
/// `len` bytes from `start` on are mapped.
pub(crate) unsafe fn write_back(start: NonNull<u8>, len: usize) -> Result<()> {
    // SAFETY: as above.
    sys!("msync", unsafe { rustix::mm::msync(start.as_ptr().cast(), len, MsyncFlags::SYNC) })
}

/// From now on every forked child finds `page` filled with zeros, however it was forked. `EINVAL`
/// if the kernel cannot do that, or if `page` is not a whole page of memory.
///
/// Zero must be a valid value of `page`, and other threads may write to it: it is made of atomics.
pub(crate) fn wipe_in_children<T>(page: &'static T) -> Result<()> {
    let (start, advice) = (std::ptr::from_ref(page).cast_mut().cast(), rustix::mm::Advice::LinuxWipeOnFork);
    // SAFETY: it changes nothing in this process, and a child finds a valid value, as said above.
    sys!("madvise", unsafe { rustix::mm::madvise(start, size_of::<T>(), advice) })
}

/// Asks for large pages, on kernels that give them on request. Without them the first access to 64
/// MiB of new memory causes 16,384 faults, which take longer than to copy 64 MiB. A failure does
/// not matter.
pub(crate) fn prefer_large_pages(bytes: &mut Vec<u8>) {
    // The range covers all of the memory and is rounded outwards. Otherwise the kernel divides the
    // mapping that an allocator has made for it, and it can no longer be moved instead of copied.
    let page = rustix::param::page_size();
    let start = bytes.as_mut_ptr().map_addr(|start| start & !(page - 1));
    let len = (bytes.as_ptr().addr() + bytes.capacity()).next_multiple_of(page) - start.addr();
    // SAFETY: it changes how the kernel keeps the memory, and no bytes.
    let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
}

static CAUGHT: OnceLock<Caught> = OnceLock::new();

struct Caught {
    /// Returns the range to replace for a missing address; `None` if it is not this library's.
    lost: fn(usize) -> Option<Range<usize>>,
    /// The program's own handling of SIGBUS.
    before: libc::sigaction,
}

/// Any process that may write to a file can cut it short, and then an access to its missing pages
/// kills. From the first call on, the handler asks `lost` for the range to replace, and puts empty
/// memory of this process there. If `lost` returns none, the handler passes the signal on to the
/// program's own handler.
///
/// A signal handler calls `lost`, so it may only use atomics. Zero must be a valid value for the
/// bytes of its ranges at any moment.
pub(crate) fn catch_bus_errors(lost: fn(usize) -> Option<Range<usize>>) {
    CAUGHT.get_or_init(|| {
        // SAFETY: all of sigaction's fields may be zero; the handler only makes calls that are
        // allowed in one.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &action(), &mut before);
            Caught { lost, before }
        }
    });
}

/// Calls `on_bus_error`.
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
    // Only the kernel sends this code, and only for an access by an instruction.
    if code == libc::BUS_ADRERR
        && let Some(lost) = caught.and_then(|caught| (caught.lost)(address))
        && make_empty(lost.start & !(page - 1)..lost.end)
    {
        return;
    }
    let before = caught.map(|caught| &caught.before);
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // A process sent the signal, and no instruction caused it: nothing is repeated, and a program
    // that ignores the signal continues.
    let sent = code <= 0;
    // SAFETY: the program installed this function as a handler of just this kind. The restored
    // default acts when this returns, because then the instruction runs again, or the signal comes
    // again.
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
        // Rust's own handler restores the default and returns, so that the instruction runs again.
        // After a signal that a process sent, no instruction runs again, so the guard must stay
        // installed.
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

/// Replaces some pages of a mapping by empty memory of this process, the first and the last of them
/// whole; false if the kernel refuses.
fn make_empty(pages: Range<usize>) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: it replaces a mapping of this library, which only raw copies and atomics read; it
    // restores errno.
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
/// `shared` is for words that other processes map. The kernel reads the word, so a bad address is
/// only an error.
#[cfg_attr(loom, expect(dead_code, reason = "a model parks on a lock"))]
pub(crate) fn futex_wait(
    word: *const u32,
    expected: u32,
    limit: Option<Duration>,
    shared: bool,
) -> Result<()> {
    let limit = limit.map(|limit| libc::timespec {
        // No name of its type is free of warnings: musl's `time_t` is about to change.
        tv_sec: limit.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: the kernel checks the address; the limit outlives the call.
    match sys!("futex", checked(unsafe { libc::syscall(libc::SYS_futex, word, operation, expected, limit) }))
    {
        // The word has changed, or the time is over: the caller looks again. After EFAULT the
        // caller touches the word and so learns that the file was cut short.
        Err(Errno(libc::EAGAIN | libc::ETIMEDOUT | libc::EFAULT)) => Ok(()),
        done => done.map(drop),
    }
}

/// Wakes at most `count` threads that sleep on `word`; returns how many it woke.
#[cfg_attr(loom, expect(dead_code, reason = "a model parks on a lock"))]
pub(crate) fn futex_wake(word: *const u32, count: u32, shared: bool) -> u32 {
    let operation = libc::FUTEX_WAKE | if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: the kernel uses the address as a name only.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, operation, count) };
    u32::try_from(woken).unwrap_or(0)
}

// ---------------------------------------------------------------- fences

/// Registers this process for [`membarrier`]. Forked children need not register.
///
/// In a process with one thread this is a short call. Otherwise the first call waits until every
/// CPU has switched once (milliseconds), and later ones are short.
pub(crate) fn register_membarrier() -> Result<()> {
    call_membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// A full fence in every thread of this process that runs now. A thread that does not run has had a
/// fence since it last ran.
pub(crate) fn membarrier() -> Result<()> {
    call_membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn call_membarrier(command: c_int) -> Result<()> {
    // SAFETY: it takes no memory.
    sys!("membarrier", checked(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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
