//! Runs tests in processes of their own, and forks them. The unsafe code of the integration tests
//! is in this file, in `damage.rs` and in `tracee.rs`; `project/sanitizer.rs` has deliberate
//! faults.
//!
//! A test that changes a whole process (signals, limits, users), that forks, or that may hang runs
//! [`alone`]: the test binary starts itself again for that one test. There the only other thread
//! waits for the test to end, so `fork` without `exec` is sound. A forked child dies with the
//! thread that forked it, and a test that is stuck is killed and fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::type_name;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, compiler_fence};
use std::sync::{OnceLock, mpsc};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, WaitOptions};

use super::{PATIENCE, say};

/// Holds the name of the test that this process was started for.
const ALONE: &str = "PIPEWORK_TEST_ALONE";

/// Whether this process runs a single test.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// The command that runs `test` (module and name) in a process of its own, where [`is_alone`] is
/// true; through the program `through`, if any.
pub(crate) fn again(through: &[&str], test: &str) -> Command {
    let binary = std::env::current_exe().expect("the test binary has a name");
    let words = through.iter().map(|word| OsStr::new(*word)).chain([binary.as_os_str()]);
    let words: Vec<&OsStr> =
        words.chain([test, "--exact", "--nocapture", "--include-ignored"].map(OsStr::new)).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(ALONE, test);
    command
}

/// Runs `body`, the whole of a test, in a process of its own; it must end well within [`PATIENCE`]
/// and close every descriptor that it opens.
pub(crate) fn alone<F: FnOnce()>(body: F) {
    alone_for(PATIENCE, body);
}

/// As [`alone`], with another time limit.
pub(crate) fn alone_for<F: FnOnce()>(patience: Duration, body: F) {
    if is_alone() {
        die_with_parent();
        // Whatever this was started with.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let before = descriptors();
        body();
        let began = Instant::now();
        // The library does not wait for a watch thread that was waking a task when its handle was
        // dropped.
        while descriptors() != before && began.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(descriptors(), before, "descriptors are left open: {:?}", open_files());
        return;
    }
    // The name of the closure is that of its test: `it::atomic::fifos::a_test::{{closure}}`.
    let name = type_name::<F>().trim_end_matches("::{{closure}}");
    let test = name.split_once("::").expect("a test stands in a module").1;
    // A name that no test has would run none, and succeed. The harness names its threads, except
    // the main one.
    assert!([test, "main"].contains(&thread::current().name().unwrap_or(test)), "{test} is not the test");
    let child = again(&[], test).stdout(Stdio::null()).spawn().expect("a process");
    let status = within(patience, child);
    assert!(status.success(), "{test} failed in its own process, see above: {status}");
}

/// Waits for a process that must end in time; it is killed if it does not.
pub(crate) fn within(patience: Duration, mut child: process::Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if begin.elapsed() > patience {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            panic!("stuck for {patience:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A descriptor that the test still owns, lent to a value that it drops before.
pub(crate) fn lent(fd: &impl AsRawFd) -> BorrowedFd<'static> {
    // SAFETY: the borrower is dropped first, as said above.
    unsafe { pipework::fd::raw::borrow(fd.as_raw_fd()) }.expect("it is no negative number")
}

/// How many descriptors this process has open, except the inotify instance that the library keeps
/// once a client has waited.
pub(crate) fn descriptors() -> usize {
    let is_kept = |file: &PathBuf| file.to_string_lossy() == "anon_inode:inotify";
    open_files().iter().filter(|file| !is_kept(file)).count()
}

/// The files that they refer to.
fn open_files() -> Vec<PathBuf> {
    let all = fs::read_dir("/proc/self/fd").expect("/proc is there").flatten();
    all.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

// ---------------------------------------------------------------- forks

/// A forked child. It must be [joined](Child::join) or [killed](Child::kill).
#[must_use]
pub(crate) struct Child(Pid);

/// Runs `body` in a forked child, which ends with it.
pub(crate) fn fork(body: impl FnOnce()) -> Child {
    assert!(is_alone(), "only a process that runs a single test may fork");
    // SAFETY: the harness's thread waits for the test to end and holds no lock meanwhile. Threads
    // of a test that forks hold no locks except those that a fork waits for, the allocator's among
    // them. So the child may run any code.
    forked(unsafe { libc::fork() }, body)
}

/// As `fork`, bypassing the C library: no fork handler runs. No thread but the test's may run: the
/// child would inherit a lock of the allocator that it holds.
pub(crate) fn fork_past_handlers(body: impl FnOnce()) -> Child {
    assert!(is_alone(), "only a process that runs a single test may fork");
    // SAFETY: without further flags this is a fork. No other thread runs in here, so no lock is
    // held.
    forked(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32, body)
}

/// Runs `body` if this is the child.
fn forked(pid: i32, body: impl FnOnce()) -> Child {
    match pid {
        0 => {
            // Unwinding would end in a harness whose thread the child does not have, and might not
            // count as a failure.
            panic::set_hook(Box::new(|panic| {
                say(&panic.to_string());
                leave(101);
            }));
            die_with_parent();
            body();
            leave(0)
        }
        pid => Child(Pid::from_raw(pid).unwrap_or_else(|| panic!("fork: {}", io::Error::last_os_error()))),
    }
}

/// Forks a child that sleeps, bypassing the C library: no fork handler runs, and it has everything
/// that its parent had.
pub(crate) fn fork_unnoticed() -> Child {
    // SAFETY: without further flags this is a fork; the child only makes system calls.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => {
            die_with_parent();
            loop {
                // SAFETY: the call takes no argument.
                unsafe { libc::pause() };
            }
        }
        pid => Child(Pid::from_raw(pid as i32).unwrap_or_else(|| panic!("{}", io::Error::last_os_error()))),
    }
}

fn die_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("prctl");
}

/// Ends this process without running anything that the parent must run.
fn leave(status: i32) -> ! {
    // SAFETY: _exit takes any number, and does not return.
    unsafe { libc::_exit(status) }
}

impl Child {
    pub(crate) fn pid(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Kills the child, wherever it is, and waits until it is dead.
    pub(crate) fn kill(self) {
        self.doom().bury();
    }

    /// Kills the child, and does not wait until it is dead.
    pub(crate) fn doom(self) -> Doomed {
        rustix::process::kill_process(self.0, Signal::KILL).expect("a child can be killed");
        Doomed(self)
    }

    /// Stops the child wherever it is.
    pub(crate) fn stop(&self) {
        rustix::process::kill_process(self.0, Signal::STOP).expect("a child can be stopped");
    }

    /// Continues the child.
    pub(crate) fn resume(&self) {
        rustix::process::kill_process(self.0, Signal::CONT).expect("a child can be continued");
    }

    /// Stops the child as a debugger does; returns false if that is not permitted here.
    pub(crate) fn seize(&self) -> bool {
        // SAFETY: the request uses neither of its last two arguments.
        let seized = unsafe { libc::ptrace(libc::PTRACE_ATTACH, self.pid(), 0, 0) == 0 };
        if seized {
            let stopped = rustix::process::waitpid(Some(self.0), WaitOptions::UNTRACED);
            assert!(stopped.is_ok_and(|status| status.is_some_and(|(_, status)| status.stopped())));
        }
        seized
    }

    /// Continues the child as a debugger does that detaches.
    pub(crate) fn release(&self) {
        // SAFETY: the request uses neither of its last two arguments.
        let released = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid(), 0, 0) == 0 };
        assert!(released, "ptrace: {}", io::Error::last_os_error());
    }

    /// Waits until the child is in that state, as /proc names it: `S` asleep, `T` stopped, `Z` dead
    /// and not reaped.
    pub(crate) fn settle(&self, state: char) {
        settle(&format!("/proc/{}", self.pid()), state);
    }

    /// Waits until the child ends, which must be with success.
    pub(crate) fn join(self) {
        let (pid, status) = self.wait();
        assert_eq!(status.exit_status(), Some(0), "process {pid:?} failed, see above: {status:?}");
    }

    fn wait(&self) -> (Pid, rustix::process::WaitStatus) {
        loop {
            match rustix::process::waitpid(Some(self.0), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                done => return done.expect("a child can be waited for").expect("waitpid waits"),
            }
        }
    }
}

/// A child that was killed and may still be dying.
#[must_use]
pub(crate) struct Doomed(Child);

impl Doomed {
    /// Waits until it is dead, without reaping it.
    pub(crate) fn settle(&self) {
        self.0.settle('Z');
    }

    /// Waits until it is dead, and reaps it.
    pub(crate) fn bury(self) {
        let (pid, status) = self.0.wait();
        assert_eq!(
            status.terminating_signal(),
            Some(libc::SIGKILL),
            "process {pid:?} ended by itself: {status:?}"
        );
    }
}

/// Waits until the process or thread with that folder in /proc is in that state, as its `stat`
/// names it.
pub(crate) fn settle(folder: &str, state: char) {
    let begin = Instant::now();
    loop {
        let stat = fs::read_to_string(format!("{folder}/stat")).expect("it is there");
        // The name in brackets may contain anything.
        if stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(state)) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "stuck for {PATIENCE:?}, not in {state}: {stat}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Runs `body` in a thread, and waits until that thread sleeps on a futex, or has ended.
pub(crate) fn asleep<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let (sender, receiver) = mpsc::channel();
    let thread = scope.spawn(move || {
        sender.send(fs::read_link("/proc/thread-self").expect("/proc is there")).expect("it is received");
        drop(sender);
        body()
    });
    let task = format!("/proc/{}", receiver.recv().expect("sent at once").display());
    let begin = Instant::now();
    while !sleeps(&task) && !thread.is_finished() {
        assert!(begin.elapsed() < PATIENCE, "stuck for {PATIENCE:?}, and not asleep");
        thread::sleep(Duration::from_micros(100));
    }
    thread
}

/// Whether the thread with that folder in /proc sleeps on a futex. A thread that wakes another one, and
/// has lost its CPU meanwhile, is in the same system call, with another operation.
pub(crate) fn sleeps(task: &str) -> bool {
    // Its number, and the arguments: the word and the operation.
    let call = fs::read_to_string(format!("{task}/syscall")).unwrap_or_default();
    let mut words = call.split_ascii_whitespace();
    let (number, operation) = (words.next(), words.nth(1).and_then(|hex| hex.strip_prefix("0x")));
    let operation = operation.and_then(|hex| i32::from_str_radix(hex, 16).ok());
    number == Some(&libc::SYS_futex.to_string())
        && operation.is_some_and(|operation| {
            [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&(operation & libc::FUTEX_CMD_MASK))
        })
}

/// Numbers that this process shares with children that it forks later, all 0. They live as long as
/// the process.
pub(crate) fn shared(len: usize) -> &'static [AtomicU64] {
    let bytes = len * size_of::<AtomicU64>();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    // SAFETY: the mapping is page-aligned, `bytes` long, zeroed, never unmapped, and no code has
    // another kind of reference into it.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Waits until a number that another process sets is no longer 0; returns it.
pub(crate) fn awaited(number: &AtomicU64) -> u64 {
    let begin = Instant::now();
    loop {
        match number.load(Ordering::SeqCst) {
            0 => assert!(begin.elapsed() < PATIENCE, "stuck for {PATIENCE:?}"),
            number => return number,
        }
        thread::sleep(Duration::from_micros(100));
    }
}

// ---------------------------------------------------------------- resources of a process

/// Gives SIGPIPE back the disposition that a C program starts with: it kills.
pub(crate) fn let_sigpipe_kill() {
    // SAFETY: SIG_DFL runs no code of ours, and the Rust runtime does not rely on its own choice.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Makes sure that SIGXFSZ kills: a program may be started with another disposition.
pub(crate) fn let_sigxfsz_kill() {
    // SAFETY: SIG_DFL runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Keeps this process alive when its parent's thread ends. It must end by itself.
pub(crate) fn outlive_parent() {
    rustix::process::set_parent_process_death_signal(None).expect("prctl");
}

/// Ends only this thread, without running anything: if it is the first of a process, the others
/// continue without it.
pub(crate) fn leave_thread() -> ! {
    // SAFETY: the call takes a plain number, and what this thread's stack holds stays there.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}

/// Restricts this process and its later children to one CPU.
pub(crate) fn use_one_cpu() {
    // SAFETY: the set is plain data, all zero is an empty one, and it outlives the calls.
    let done = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&cpus);
        let known = libc::sched_getaffinity(0, size, &mut cpus) == 0;
        let last = (0..8 * size).rev().find(|cpu| libc::CPU_ISSET(*cpu, &cpus));
        libc::CPU_ZERO(&mut cpus);
        last.inspect(|cpu| libc::CPU_SET(*cpu, &mut cpus));
        known && libc::sched_setaffinity(0, size, &cpus) == 0
    };
    assert!(done, "sched_setaffinity: {}", io::Error::last_os_error());
}

/// When this process wakes up, a process that is running may continue first.
pub(crate) fn be_patient() {
    let only = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct outlives the call.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &only) == 0 };
    assert!(done, "sched_setscheduler: {}", io::Error::last_os_error());
}

/// A line of this process's `status` in /proc, in KiB: "VmRSS" is its current memory, "VmHWM" its
/// peak.
pub(crate) fn memory_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    number.unwrap_or_else(|| panic!("{name} is not in {status}"))
}

/// The cost of this process so far: time on a CPU, and how often it went to sleep.
pub(crate) fn cost() -> (Duration, u64) {
    // SAFETY: all of the structs' fields may be zero, and they outlive the calls.
    let (clock, usage, done) = unsafe {
        let mut clock: libc::timespec = std::mem::zeroed();
        let mut usage: libc::rusage = std::mem::zeroed();
        let done = libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut clock) == 0
            && libc::getrusage(libc::RUSAGE_SELF, &mut usage) == 0;
        (clock, usage, done)
    };
    assert!(done, "clock_gettime or getrusage: {}", io::Error::last_os_error());
    (Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32), usage.ru_nvcsw as u64)
}

static ALARMS: AtomicU64 = AtomicU64::new(0);

/// How many alarms have rung in this process.
pub(crate) fn alarms() -> u64 {
    ALARMS.load(Ordering::SeqCst)
}

/// Interrupts this process every millisecond, by a handler without `SA_RESTART`.
pub(crate) fn ring_alarms() {
    extern "C" fn ring(_: libc::c_int) {
        ALARMS.fetch_add(1, Ordering::SeqCst);
    }
    let millisecond = libc::timeval { tv_sec: 0, tv_usec: 1000 };
    let timer = libc::itimerval { it_interval: millisecond, it_value: millisecond };
    // SAFETY: all of sigaction's fields may be zero; the handler only changes an atomic; both
    // structs outlive the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ring as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()), 0);
    }
}

/// Makes this process unprivileged permanently. Returns false if it does not run as root: then it is
/// unprivileged already.
pub(crate) fn become_nobody() -> bool {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // SAFETY: the calls take plain numbers.
    let refused = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(NOBODY, NOBODY, NOBODY) != 0
            || libc::setresuid(NOBODY, NOBODY, NOBODY) != 0
    };
    assert!(!refused, "root may become another user: {}", io::Error::last_os_error());
    // The kernel forgets this setting when rights change.
    die_with_parent();
    true
}

/// Gives the next child of this process a pid namespace of its own. Returns false if that is not
/// permitted here.
pub(crate) fn enter_pid_namespace() -> bool {
    // SAFETY: the call takes a plain number, and changes nothing that this process holds memory
    // for.
    let permitted = |flags| unsafe { libc::unshare(flags) == 0 };
    let entered = permitted(libc::CLONE_NEWPID) || permitted(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
    die_with_parent();
    entered
}

// ---------------------------------------------------------------- forks in signal handlers

/// The system's allocator, which records that a thread is inside: a fork in a signal handler that
/// interrupts it may hang in the C library.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

thread_local! {
    static ALLOCATES: Cell<bool> = const { Cell::new(false) };
}

impl Allocator {
    fn inside<T>(call: impl FnOnce() -> T) -> T {
        ALLOCATES.set(true);
        // For a signal handler of this thread. The compiler knows that the allocator does not read it,
        // and would leave the store out.
        compiler_fence(Ordering::SeqCst);
        let done = call();
        compiler_fence(Ordering::SeqCst);
        ALLOCATES.set(false);
        done
    }
}

// SAFETY: every call is passed to the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    // SAFETY: the caller's guarantees are passed to the system's allocator.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Allocator::inside(|| unsafe { System.alloc(layout) })
    }

    // SAFETY: the caller's guarantees are passed to the system's allocator.
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        Allocator::inside(|| unsafe { System.dealloc(start, layout) })
    }

    // SAFETY: the caller's guarantees are passed to the system's allocator.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Allocator::inside(|| unsafe { System.alloc_zeroed(layout) })
    }

    // SAFETY: the caller's guarantees are passed to the system's allocator.
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as above.
        Allocator::inside(|| unsafe { System.realloc(start, layout, len) })
    }
}

type Body = Box<dyn Fn() + Send + Sync>;

/// The work of a child that was forked in a signal handler.
static IN_HANDLER: OnceLock<Body> = OnceLock::new();
/// The process number of the current child; 0 if there is none.
static HANDLERS_CHILD: AtomicI32 = AtomicI32::new(0);

/// Repeats `turn` in this process, which has no other threads, and interrupts it all the time by
/// signal handlers that fork, until `forks` children have run. Each child runs `child` in the
/// handler, and must end with success; one child runs at a time.
pub(crate) fn fork_in_handlers(
    forks: usize,
    mut turn: impl FnMut(),
    child: impl Fn() + Send + Sync + 'static,
) {
    extern "C" fn ring(_: libc::c_int) {
        if ALLOCATES.get() || HANDLERS_CHILD.load(Ordering::SeqCst) != 0 {
            return;
        }
        // SAFETY: fork may be called in a handler that has not interrupted the allocator.
        match unsafe { libc::fork() } {
            0 => {
                // The child has no timer. If it is stuck, a signal that kills ends it.
                // SAFETY: the default disposition is no code, and the number is a plain one.
                unsafe {
                    libc::signal(libc::SIGALRM, libc::SIG_DFL);
                    libc::alarm(PATIENCE.as_secs() as u32 / 2);
                }
                // SAFETY: the set is plain data, and outlives the calls.
                unsafe {
                    let mut alarms: libc::sigset_t = std::mem::zeroed();
                    libc::sigaddset(&mut alarms, libc::SIGALRM);
                    libc::sigprocmask(libc::SIG_UNBLOCK, &alarms, std::ptr::null_mut());
                }
                IN_HANDLER.get().expect("it was set before")();
                leave(0)
            }
            pid => HANDLERS_CHILD.store(pid, Ordering::SeqCst),
        }
    }
    assert!(IN_HANDLER.set(Box::new(child)).is_ok(), "one test in a process");
    let pause = libc::timeval { tv_sec: 0, tv_usec: 100 };
    let timer = libc::itimerval { it_interval: pause, it_value: pause };
    // SAFETY: all of sigaction's fields may be zero; both structs outlive the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ring as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()), 0);
    }
    let mut buried = 0;
    while buried < forks {
        turn();
        let pid = HANDLERS_CHILD.load(Ordering::SeqCst);
        if pid != 0
            && let Ok(Some((_, status))) = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::NOHANG)
        {
            assert_eq!(status.exit_status(), Some(0), "a child that was forked in a handler: {status:?}");
            buried += 1;
            HANDLERS_CHILD.store(0, Ordering::SeqCst);
        }
    }
    // SAFETY: the struct outlives the call.
    unsafe {
        let off: libc::itimerval = std::mem::zeroed();
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &off, std::ptr::null_mut()), 0);
    }
    let last = HANDLERS_CHILD.load(Ordering::SeqCst);
    if last != 0 {
        Child(Pid::from_raw(last).expect("it is not 0")).join();
    }
}
