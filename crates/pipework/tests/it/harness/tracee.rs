//! A forked child that runs one instruction at a time, and is killed between two of them.
//!
//! It stops at a [`mark`] of its own and after every [step](Tracee::step); the code in between can
//! run at full speed, up to an [address](Tracee::run_to). It is a fork, so its code is at the same
//! addresses as the parent's. For x86-64 only: elsewhere, single-stepping a loop of exclusive loads
//! and stores never ends.

use std::fs::{self, DirEntry};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::harness::{Child, fork, shared, sleeps};

const INT3: u8 = 0xCC;
const SYSCALL: u16 = 0x050F;
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// A system call that fails: the n-th, if it is that call. Code that depends on other threads may
/// make another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) nth: usize,
    pub(crate) call: i64,
    pub(crate) errno: i32,
}

/// A traced child. It is stopped, or sleeps in the kernel.
#[must_use]
pub(crate) struct Tracee(Child);

/// The state of a traced child after it was made to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It is stopped in front of its next instruction.
    Stopped,
    /// It sleeps on a futex, inside an instruction. Use [`Tracee::rest`] to wait for the end of
    /// that.
    Asleep,
}

/// Stops a traced process. It kills any other process.
#[inline(always)]
pub(crate) fn mark() {
    // SAFETY: the instruction changes nothing; its exception stops the process and is delivered to
    // the tracer.
    unsafe { std::arch::asm!("int3") };
}

/// Whether processes may be traced here.
pub(crate) fn is_permitted() -> bool {
    let permitted = shared(1);
    fork(|| permitted[0].store(u64::from(let_parent_trace()), SeqCst)).join();
    permitted[0].load(SeqCst) == 1
}

/// Forks a child and lets it run to its first mark.
pub(crate) fn trace(body: impl FnOnce()) -> Tracee {
    let tracee = Tracee(fork(|| {
        assert!(let_parent_trace(), "ptrace: {}", io::Error::last_os_error());
        ignore_children();
        // A thread that a single step starts would end the process: nothing handles its traps.
        // SAFETY: a forked child has no other thread.
        unsafe { std::env::set_var("PIPEWORK_DEATH_THREAD", "off") };
        body();
    }));
    tracee.rest();
    tracee
}

fn let_parent_trace() -> bool {
    // SAFETY: this request uses none of its arguments.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 }
}

/// Keeps the end of a grandchild from stopping the child: a traced process stops for every signal
/// that is not blocked.
fn ignore_children() {
    // SAFETY: the set is plain data, and initialised by sigemptyset.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
}

impl Tracee {
    /// The address of the next instruction.
    pub(crate) fn address(&self) -> u64 {
        self.ptrace(libc::PTRACE_PEEKUSER, RIP, 0)
    }

    /// Whether the next instruction is a mark.
    pub(crate) fn is_at_mark(&self) -> bool {
        self.text(self.address()) as u8 == INT3
    }

    /// Whether the next instruction is a system call.
    pub(crate) fn is_at_call(&self) -> bool {
        self.text(self.address()) as u16 == SYSCALL
    }

    /// Executes one instruction, or one iteration of a repeating instruction.
    pub(crate) fn step(&self) -> Ran {
        let may_sleep = self.is_at_call();
        self.ptrace(libc::PTRACE_SINGLESTEP, 0, 0);
        if may_sleep {
            return self.stopped_or_asleep();
        }
        self.rest();
        Ran::Stopped
    }

    /// Runs until the instruction at `address` is next; calls `asleep` when the child first sleeps
    /// on the way. Returns false if it met a mark before.
    pub(crate) fn run_to(&self, address: u64, asleep: impl FnOnce()) -> bool {
        let text = self.text(address);
        self.ptrace(libc::PTRACE_POKETEXT, address, text & !0xFF | u64::from(INT3));
        self.ptrace(libc::PTRACE_CONT, 0, 0);
        if self.stopped_or_asleep() == Ran::Asleep {
            asleep();
            self.rest();
        }
        self.ptrace(libc::PTRACE_POKETEXT, address, text);
        // It is behind the instruction that stopped it.
        let stopped_at = self.address() - 1;
        self.ptrace(libc::PTRACE_POKEUSER, RIP, stopped_at);
        stopped_at == address
    }

    /// Runs to its next mark, and returns the system calls that it makes on the way. With `fault`,
    /// one of them is not made and fails.
    pub(crate) fn calls_to_mark(&self, fault: Option<Fault>) -> Vec<i64> {
        self.ptrace(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_TRACESYSGOOD as u64);
        let mut calls = vec![];
        while self.run_to_call() {
            let call = self.ptrace(libc::PTRACE_PEEKUSER, CALL, 0) as i64;
            let is_next = |fault: &Fault| (fault.nth, fault.call) == (calls.len(), call);
            let fails = fault.filter(|fault| is_next(fault) && self.may_fail(fault));
            calls.push(call);
            if fails.is_some() {
                self.ptrace(libc::PTRACE_POKEUSER, CALL, u64::MAX);
            }
            assert!(self.run_to_call(), "a call that begins ends");
            if let Some(Fault { errno, .. }) = fails {
                self.ptrace(libc::PTRACE_POKEUSER, ANSWER, -i64::from(errno) as u64);
            }
        }
        calls
    }

    /// Whether the call that begins may fail so. A wait for a futex has a time limit in its fourth
    /// argument, or none: libc's join of a thread gives up if a wait without one reports that its time is over.
    fn may_fail(&self, fault: &Fault) -> bool {
        (fault.call, fault.errno) != (libc::SYS_futex, libc::ETIMEDOUT)
            || self.ptrace(libc::PTRACE_PEEKUSER, FOURTH, 0) != 0
    }

    /// Runs to the beginning or the end of a system call. Returns false if it met a mark before.
    fn run_to_call(&self) -> bool {
        let mut signal = 0;
        loop {
            self.ptrace(libc::PTRACE_SYSCALL, 0, signal);
            let status = waitpid(Some(self.pid()), WaitOptions::empty());
            match status.ok().flatten().and_then(|(_, status)| status.stopping_signal()) {
                Some(stop) if stop == Signal::TRAP.as_raw() | 0x80 => return true,
                Some(stop) if stop == Signal::TRAP.as_raw() => return false,
                Some(other) => signal = other as u64,
                None => panic!("the traced child has ended: {status:?}"),
            }
        }
    }

    /// Waits until it stops.
    pub(crate) fn rest(&self) {
        while !self.has_stopped(WaitOptions::empty()) {}
    }

    pub(crate) fn kill(self) {
        self.0.kill();
    }

    /// Stops it where it sleeps, inside a call. Otherwise it is stopped anyway.
    pub(crate) fn halt(&self) {
        self.0.stop();
        // It may have been woken, and be behind its call.
        let stopped = waitpid(Some(self.pid()), WaitOptions::empty());
        assert!(stopped.is_ok_and(|status| status.is_some_and(|(_, status)| status.stopped())));
    }

    /// Lets it run to its end, past all marks. It must end with success.
    pub(crate) fn finish(self) {
        loop {
            self.ptrace(libc::PTRACE_CONT, 0, 0);
            match waitpid(Some(self.pid()), WaitOptions::empty()) {
                Ok(Some((_, status))) if status.stopping_signal().is_some_and(is_expected) => {}
                Ok(Some((_, status))) if status.exit_status() == Some(0) => return,
                other => panic!("the traced child does not end well: {other:?}"),
            }
        }
    }

    fn stopped_or_asleep(&self) -> Ran {
        let task = format!("/proc/{0}/task/{0}", self.0.pid());
        loop {
            if self.has_stopped(WaitOptions::NOHANG) {
                return Ran::Stopped;
            }
            if sleeps(&task) {
                // A child that has just stopped behind its call may look like one inside it.
                return if self.has_stopped(WaitOptions::NOHANG) { Ran::Stopped } else { Ran::Asleep };
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn has_stopped(&self, how: WaitOptions) -> bool {
        match waitpid(Some(self.pid()), how) {
            Ok(Some((_, status))) if status.stopping_signal() == Some(Signal::TRAP.as_raw()) => true,
            Ok(None) | Err(rustix::io::Errno::INTR) => false,
            other => panic!("the traced child neither stops nor sleeps: {other:?}"),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.pid()).expect("a child has a number")
    }

    /// Eight bytes of its code.
    fn text(&self, address: u64) -> u64 {
        self.ptrace(libc::PTRACE_PEEKTEXT, address, 0)
    }

    fn ptrace(&self, request: libc::c_uint, address: u64, data: u64) -> u64 {
        // SAFETY: the requests used here read and write the child's memory and registers, and none
        // of ours.
        let (answer, error) = unsafe {
            *libc::__errno_location() = 0;
            (libc::ptrace(request, self.0.pid(), address, data), io::Error::last_os_error())
        };
        assert_eq!(error.raw_os_error(), Some(0), "ptrace {request} {address:#x}: {error}");
        answer as u64
    }
}

/// Whether the signal belongs to a mark, or to [`halt`](Tracee::halt).
fn is_expected(signal: i32) -> bool {
    [Signal::TRAP, Signal::STOP].iter().any(|expected| expected.as_raw() == signal)
}

/// Where the tracer finds the address of the next instruction.
const RIP: u64 = offset_of!(libc::user_regs_struct, rip) as u64;
/// Where the tracer finds the number of a system call, and puts the result of the call.
const CALL: u64 = offset_of!(libc::user_regs_struct, orig_rax) as u64;
const ANSWER: u64 = offset_of!(libc::user_regs_struct, rax) as u64;
/// And the fourth argument of a system call.
const FOURTH: u64 = offset_of!(libc::user_regs_struct, r10) as u64;

/// Waits until all other threads of this process sleep, except the one that waits for reports of
/// deaths: nobody wakes that.
pub(crate) fn others_sleep() {
    let this = fs::read_link("/proc/thread-self").expect("/proc is there");
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is there").map(|task| task.expect("a thread"));
    let hears = |task: &DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "pipework-deaths\n")
    };
    for task in tasks.filter(|task| Some(&*task.file_name()) != this.file_name()) {
        // A new thread gets its name when it first runs.
        while !hears(&task) && !sleeps(&task.path().display().to_string()) {
            thread::sleep(LOOK_EVERY);
        }
    }
}
