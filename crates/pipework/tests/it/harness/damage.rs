//! The actions of hostile peers and odd machines, and the state that a program had set up before:
//! memory scribbled over, signals handled, file systems mounted. The unsafe code for this is in
//! this file and in `process.rs`.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::{io, ptr, slice};

use rustix::process::{Resource, Rlimit};

use crate::harness::{Child, Folder, left_out, setting};

/// All words of a file, for tests that write into them. They live as long as the process; once the
/// file is shorter, an access kills.
pub(crate) fn words(file: &File) -> &'static [AtomicU64] {
    let len = file.metadata().expect("an open file has a length").len() as usize;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(start, libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    // SAFETY: the mapping is page-aligned, at least that long, never unmapped, and atomics tolerate
    // writes by others.
    unsafe { slice::from_raw_parts(start.cast(), len / size_of::<AtomicU64>()) }
}

/// The address at which this process has mapped a file, only to read it.
pub(crate) fn mapped_to_read(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let name = path.to_str().expect("names are UTF-8");
    let lines: Vec<&str> = maps.lines().filter(|line| line.ends_with(name)).collect();
    let [line] = lines[..] else { panic!("it is not mapped once: {lines:?}") };
    let (range, rest) = line.split_once(' ').expect("a range");
    assert!(rest.starts_with("r--s"), "{line}");
    let start = range.split('-').next().expect("an address");
    usize::from_str_radix(start, 16).expect("an address")
}

/// Writes to memory that may only be read.
pub(crate) fn write_to(address: usize) {
    // SAFETY: SIG_DFL runs no code of ours.
    assert_ne!(unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) }, libc::SIG_ERR);
    // SAFETY: this is the condition under test: the kernel must kill this process.
    unsafe { ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(7) };
    panic!("it was written");
}

// ---------------------------------------------------------------- descriptors

/// Closes all descriptors except the first three, as a program does that becomes a daemon, or
/// starts others.
pub(crate) fn close_all() {
    // SAFETY: this is the condition under test: the owners of these descriptors must cope.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
}

/// As [`close_all`], but leaves the numbers from `limit` on.
pub(crate) fn close_below(limit: u32) {
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close_range(3, limit - 1, 0) }, 0);
}

/// Descriptors of this process that refer to the file at `path`.
pub(crate) fn descriptors_of(path: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc is there").flatten();
    let ours = entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == path));
    ours.map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()).expect("a number"))
        .collect()
}

/// Makes an eventfd with this number.
pub(crate) fn eventfd_at(number: i32) {
    // SAFETY: as above.
    unsafe {
        let made = libc::eventfd(0, 0);
        assert!(made >= 0 && (made == number || libc::dup2(made, number) == number));
    }
}

/// Makes the second number another name of the first, whatever it was before.
pub(crate) fn put_at(fd: &impl AsRawFd, number: i32) -> OwnedFd {
    // SAFETY: as above. The number is open from now on, and the caller's.
    unsafe {
        assert_eq!(libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC), number);
        OwnedFd::from_raw_fd(number)
    }
}

/// A descriptor that reports SIGWINCH, if that is blocked.
pub(crate) fn signal_descriptor() -> OwnedFd {
    // SAFETY: the set is plain data, and outlives the calls. The descriptor is new.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGWINCH);
        let made = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        assert!(made >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(made)
    }
}

/// Sets a variable of the environment, in a child that has no other thread yet.
pub(crate) fn set_variable(name: &CStr, value: &CStr) {
    // SAFETY: no other thread reads the environment meanwhile.
    assert_eq!(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }, 0);
}

/// Closes a descriptor that other code owns.
pub(crate) fn close(fd: i32) {
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

// ---------------------------------------------------------------- SIGBUS

/// A program's disposition for SIGBUS before it uses the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// The handler of Rust's runtime, which reports stack overflows.
    Runtime,
    Nothing,
    Ignored,
    /// A handler that takes the signal number.
    Handled,
    /// A handler that takes the full siginfo.
    HandledInFull,
}

/// The exit status of a process whose own handler runs.
pub(crate) const HANDLED: i32 = 40;

pub(crate) fn set_up_bus_errors(before: Before) {
    extern "C" fn plain(signal: libc::c_int) {
        // SAFETY: _exit takes any number, and may be called in a handler.
        unsafe { libc::_exit(if signal == libc::SIGBUS { HANDLED } else { 1 }) }
    }
    extern "C" fn full(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel, or the library in between, passes a valid siginfo to a handler that
        // asked for one.
        let is_valid = unsafe { (*info).si_signo == signal && !(*info).si_addr().is_null() };
        plain(if is_valid && !context.is_null() { signal } else { 0 });
    }
    // SAFETY: all of sigaction's fields may be zero; the handlers do nothing but end the process;
    // the struct outlives the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = match before {
            Before::Runtime => return,
            Before::Nothing => libc::SIG_DFL,
            Before::Ignored => libc::SIG_IGN,
            Before::Handled => plain as extern "C" fn(libc::c_int) as libc::sighandler_t,
            Before::HandledInFull => {
                full as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)
                    as libc::sighandler_t
            }
        };
        if let Before::HandledInFull = before {
            action.sa_flags = libc::SA_SIGINFO;
        }
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()), 0);
    }
}

/// The end of a child: its own exit status, or the number of the signal that killed it.
pub(crate) fn end_of(child: Child) -> Result<i32, i32> {
    let pid = rustix::process::Pid::from_raw(child.pid());
    let (_, status) = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())
        .expect("a child can be waited for")
        .expect("waitpid waits");
    status.exit_status().ok_or_else(|| status.terminating_signal().expect("it ended in one way or the other"))
}

/// From now on, a signal that kills writes no core file.
pub(crate) fn leave_no_core() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).expect("less is always permitted");
}

// ---------------------------------------------------------------- file systems

/// Reports a test that was skipped because this process may not mount. PIPEWORK_MUST_MOUNT=1 makes
/// it a failure.
pub(crate) fn not_mounted(what: &str) {
    assert!(setting("PIPEWORK_MUST_MOUNT").unwrap_or(0) == 0, "{what}: this process may not mount one");
    left_out(what, "this process may not mount one");
}

/// Gives this process a mount namespace of its own. Returns false if that is not permitted here.
pub(crate) fn enter_mount_namespace() -> bool {
    // SAFETY: the call takes a plain number, and changes nothing that this process holds memory
    // for.
    let permitted = |flags| unsafe { libc::unshare(flags) == 0 };
    let entered = permitted(libc::CLONE_NEWNS) || permitted(libc::CLONE_NEWUSER | libc::CLONE_NEWNS);
    // Later mounts are visible only here.
    entered && mounted(c"none", c"/", ptr::null(), libc::MS_REC | libc::MS_PRIVATE, c"")
}

/// A folder of a tmpfs of this process's own; `None` if it may not mount one.
pub(crate) fn tmpfs(folder: &Folder, options: &str) -> Option<PathBuf> {
    let mount = folder.join("tmpfs");
    fs::create_dir(&mount).unwrap();
    let mounted = enter_mount_namespace() && mount_tmpfs(&mount, options);
    if !mounted {
        not_mounted(&format!("a tmpfs of {options}"));
    }
    mounted.then_some(mount)
}

/// Mounts an empty tmpfs over a folder of this process's own mounts; `options` may limit its size.
pub(crate) fn mount_tmpfs(folder: &Path, options: &str) -> bool {
    mounted(c"pipework-test", &text(folder), c"tmpfs".as_ptr(), 0, &text(Path::new(options)))
}

/// Mounts a folder at a second path, over its contents.
pub(crate) fn mount_bind(folder: &Path, at: &Path) -> bool {
    mounted(&text(folder), &text(at), ptr::null(), libc::MS_BIND, c"")
}

/// Mounts an overlay over the folder `merged`. `lower`, `upper` and `work` lie beside it.
pub(crate) fn mount_overlay(merged: &Path) -> bool {
    let beside = merged.parent().and_then(Path::to_str).expect("names are UTF-8");
    let options = format!("lowerdir={beside}/lower,upperdir={beside}/upper,workdir={beside}/work");
    mounted(c"pipework-test", &text(merged), c"overlay".as_ptr(), 0, &text(Path::new(&options)))
}

/// Unmounts the entries of a folder; a mount point cannot be removed.
pub(crate) fn unmount_in(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = text(&entry?.path());
        // SAFETY: the path is a string that outlives the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
    Ok(())
}

/// A path as the kernel takes it.
fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zeros")
}

fn mounted(
    source: &CStr,
    target: &CStr,
    kind: *const libc::c_char,
    flags: libc::c_ulong,
    options: &CStr,
) -> bool {
    // SAFETY: every pointer is null, where the mount has no kind, or points to a string that
    // outlives the call.
    unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, options.as_ptr().cast()) == 0 }
}
