//! **Boundary**: descriptors that programs name by their numbers.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::{DirEntry, read_dir, read_link, read_to_string};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use napi::Env;
use napi_derive::napi;
use pipework::ErrorKind;
use pipework::fd::{self, raw};
use rustix::fs::{self, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::ioctl;

use crate::error::{Failure, OrThrow};
use crate::inbox::{Inbox, Tasks};
use crate::value::{Value, milliseconds};
use crate::watch::{For, Wait};

const GUARD: &str = "guard stdout";

/// Borrows a descriptor. Fails if it is not open.
pub(crate) fn borrow(number: i32) -> Result<BorrowedFd<'static>, Failure> {
    // SAFETY: the caller of JavaScript answers for the number, as for those of module `fs`.
    unsafe { raw::borrow(number) }.map_err(Failure::from)
}

/// Takes a descriptor over that `check` accepts; otherwise it stays the caller's.
pub(crate) fn take_over<T>(
    number: i32,
    check: impl FnOnce(BorrowedFd<'_>) -> pipework::Result<()>,
    make: impl FnOnce(OwnedFd) -> pipework::Result<T>,
) -> Result<T, Failure> {
    check(borrow(number)?)?;
    // SAFETY: it is open, and the caller has given it away.
    Ok(make(unsafe { OwnedFd::from_raw_fd(number) })?)
}

/// A duplicate of a descriptor, close-on-exec. It belongs to the caller.
#[napi]
pub fn duplicate(env: Env, number: i32) -> napi::Result<i32> {
    let copy = borrow(number).or_throw(&env)?.try_clone_to_owned();
    copy.map(IntoRawFd::into_raw_fd).map_err(|error| Failure::of_kernel("duplicate", &error).thrown(&env))
}

/// Whether a descriptor is in non-blocking mode. False if it is not open.
#[napi]
pub fn is_nonblocking(number: i32) -> bool {
    borrow(number).is_ok_and(|fd| fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)))
}

/// Whether an epoll instance of this process has a file under this number, or had when the number was
/// that file's.
#[napi]
pub fn is_polled(number: i32) -> bool {
    let is_target = |line: &str| {
        let target = line.strip_prefix("tfd:").and_then(|rest| rest.split_whitespace().next());
        target.is_some_and(|target| target.parse() == Ok(number))
    };
    let has_target = |entry: DirEntry| {
        read_link(entry.path()).is_ok_and(|file| file.as_os_str() == "anon_inode:[eventpoll]")
            && read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name()))
                .is_ok_and(|info| info.lines().any(is_target))
    };
    read_dir("/proc/self/fd").is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(has_target)))
}

/// Writes what a descriptor takes within `time` milliseconds. Returns how many bytes that were.
#[napi]
pub fn write(env: Env, number: i32, data: &[u8], time: f64) -> napi::Result<f64> {
    written(borrow(number).or_throw(&env)?, data, time).or_throw(&env)
}

fn written(fd: BorrowedFd<'_>, data: &[u8], time: f64) -> Result<f64, Failure> {
    match fd::write_all(fd, data, milliseconds(time)) {
        Ok(()) => Ok(data.len() as f64),
        Err(unfinished) if unfinished.kind() == ErrorKind::TimedOut => Ok(unfinished.done as f64),
        Err(unfinished) => Err(Failure::from(unfinished.error)),
    }
}

/// The original stdout, while descriptor 1 is another name of descriptor 2.
#[napi]
pub struct Stdout {
    number: i32,
    file: (u64, u64),
    was_blocking: bool,
}

#[napi]
impl Stdout {
    /// Duplicates descriptor 1; under the number `spare`, which `restore` has left, if it is unused.
    #[napi(constructor)]
    pub fn new(env: Env, spare: Option<i32>) -> napi::Result<Stdout> {
        let open = || {
            let stdout = borrow(1)?;
            let number = match spare.filter(|&number| is_spare(number)) {
                Some(number) => {
                    rename(stdout, number)?;
                    number
                }
                None => stdout.try_clone_to_owned().map_err(of_system)?.into_raw_fd(),
            };
            let flags = fs::fcntl_getfl(stdout).map_err(of_kernel)?;
            let was_blocking = !flags.contains(OFlags::NONBLOCK);
            Ok::<_, Failure>(Stdout { number, file: identity(stdout)?, was_blocking })
        };
        open().or_throw(&env)
    }

    #[napi(getter)]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Makes descriptor 1 another name of descriptor 2: from now on what is printed goes to stderr.
    #[napi]
    pub fn divert(&self, env: Env) -> napi::Result<()> {
        rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(of_kernel).or_throw(&env)
    }

    /// Makes descriptor 1 a name of the original again. The number of this one stays in use: there is
    /// nothing behind it, so a program that writes to it gets an error and hits no other file.
    #[napi]
    pub fn restore(&self, env: Env) -> napi::Result<()> {
        let restored = self.get().and_then(|fd| rustix::stdio::dup2_stdout(fd).map_err(of_kernel));
        restored.and_then(|()| self.leave()).or_throw(&env)
    }

    /// The same if descriptor 1 was not diverted.
    #[napi]
    pub fn close(&self, env: Env) -> napi::Result<()> {
        self.get().and_then(|_| self.leave()).or_throw(&env)
    }

    /// Writes what it takes within `time` milliseconds. Returns how many bytes that were.
    #[napi]
    pub fn write(&self, env: Env, data: &[u8], time: f64) -> napi::Result<f64> {
        let written = self.get().and_then(|fd| written(fd, data, time));
        written.map_err(|failure| failure.of(GUARD)).or_throw(&env)
    }

    /// A task: waits until it can be written to.
    #[napi]
    pub fn writable(&self, env: Env, inbox: &Inbox) -> napi::Result<Value> {
        Ok(ready(&inbox.tasks(), self.get().or_throw(&env)?, For::Writing, GUARD))
    }

    /// How many bytes its reader has not taken yet; 0 if the system does not say.
    #[napi]
    pub fn unread(&self, env: Env) -> napi::Result<f64> {
        let fd = self.get().or_throw(&env)?;
        let kind = fs::fstat(fd).map(|stat| fs::FileType::from_raw_mode(stat.st_mode));
        let unread = match kind {
            Ok(fs::FileType::Fifo) => rustix::io::ioctl_fionread(fd).unwrap_or(0),
            Ok(fs::FileType::Socket | fs::FileType::CharacterDevice) => unsent(fd),
            _ => 0,
        };
        Ok(unread as f64)
    }

    /// Leaves the file in the mode that it had, for processes that share it. Node does the same for
    /// descriptor 1 when it ends.
    #[napi]
    pub fn reset_mode(&self) {
        if let Ok(fd) = self.get()
            && self.was_blocking
            && let Ok(flags) = fs::fcntl_getfl(fd)
        {
            // Without the mode, there is no harm to this process.
            let _ = fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK);
        }
    }
}

impl Stdout {
    /// The descriptor, unless the program has closed it: then its number may be that of another file.
    fn get(&self) -> Result<BorrowedFd<'static>, Failure> {
        match borrow(self.number) {
            Ok(fd) if identity(fd)? == self.file => Ok(fd),
            _ => Err(Failure::invalid(GUARD, "the program has closed the descriptor of the original stdout")),
        }
    }

    fn leave(&self) -> Result<(), Failure> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let nothing = fs::open(NOTHING, flags, fs::Mode::empty()).map_err(of_kernel)?;
        rename(nothing.as_fd(), self.number)
    }
}

/// What a number without a file is a name of. It is opened as a path, for neither reading nor writing.
const NOTHING: &str = "/dev/null";

/// Whether a number was left by [`Stdout::restore`], and not used since.
fn is_spare(number: i32) -> bool {
    borrow(number).is_ok_and(|fd| {
        fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::PATH))
            && fs::fstat(fd)
                .is_ok_and(|stat| fs::stat(NOTHING).is_ok_and(|null| stat.st_rdev == null.st_rdev))
    })
}

/// Makes `number`, which this module owns, another name of `fd`.
fn rename(fd: BorrowedFd<'_>, number: i32) -> Result<(), Failure> {
    // SAFETY: it is open, and the caller owns it.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup3(fd, &mut target, DupFlags::CLOEXEC).map_err(of_kernel)
}

/// Bytes that a socket or a terminal has not handed on.
fn unsent(fd: BorrowedFd<'_>) -> u64 {
    /// The numbers are the same for both.
    const TIOCOUTQ: ioctl::Opcode = 0x5411;
    // SAFETY: the kernel writes one `int`.
    let unsent = unsafe { ioctl::ioctl(fd, ioctl::Getter::<TIOCOUTQ, c_int>::new()) };
    unsent.map_or(0, |unsent| u64::from(unsent.unsigned_abs()))
}

/// What tells a pipe, a socket or a file from all others that are open.
fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64), Failure> {
    let stat = fs::fstat(fd).map_err(of_kernel)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn of_kernel(error: Errno) -> Failure {
    of_system(error.into())
}

fn of_system(error: io::Error) -> Failure {
    Failure::of_kernel(GUARD, &error)
}

/// A task: waits until a descriptor is ready.
pub(crate) fn ready(tasks: &Tasks, fd: BorrowedFd<'_>, direction: For, op: &'static str) -> Value {
    let wait = Wait::new(fd, direction);
    tasks.start(async move {
        let ready = match &wait {
            Ok(wait) => wait.ready().await,
            Err(error) => return Value::Failure(Failure::of_kernel(op, error)),
        };
        ready.map_or_else(|error| Value::Failure(Failure::of_kernel(op, &error)), |()| Value::Undefined)
    })
}
