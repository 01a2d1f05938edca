//! The boundary to atomics and futexes: no other file names one.
//!
//! Under `cfg(loom)` the same names stand for loom's types, and parking for a loom lock, so that
//! `make model` searches the code that runs.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::sys::known::{self, KnownFile, Mark};
use crate::sys::{self, Errno, memory};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(thread_sanitizer)]
pub(crate) use std::sync::atomic::AtomicU8;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

// Atomics that belong to the process, not to a model of it.
use std::sync::atomic as process;

/// A SeqCst fence for a thread whose last access was an atomic read-modify-write. On x86-64 that
/// instruction was a full fence, so only the compiler has to be held back (Intel's manual, volume
/// 3, 9.2.3.9; AMD's, volume 2, 7.4.2).
pub(crate) fn fence_after_swap() {
    if cfg!(all(target_arch = "x86_64", not(loom))) {
        process::compiler_fence(process::Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The cheap side of an asymmetric fence: a full fence only together with [`fence_heavy`] in
/// another thread of this process. By itself it only restrains the compiler.
#[inline]
pub(crate) fn fence_light() {
    if cfg!(loom) {
        fence(Ordering::SeqCst);
    } else {
        process::compiler_fence(process::Ordering::SeqCst);
    }
}

/// The expensive side of the asymmetric fence: a full fence in every thread of this process. The
/// kernel makes all CPUs that run one execute it (membarrier(2), Linux 4.14). Returns false if the
/// kernel cannot: then only [`fence`] on both sides is a full fence.
///
/// Call [`has_fence_heavy`] once before.
pub(crate) fn fence_heavy() -> bool {
    if cfg!(loom) {
        fence(Ordering::SeqCst);
        return true;
    }
    let began_ns = clock::monotonic_ns();
    let is_done = memory::membarrier().is_ok();
    FENCES.took(began_ns, clock::monotonic_ns());
    is_done
}

/// Whether a [`fence_heavy`] is worth its cost now. If not, threads had better use fences on both
/// sides. It interrupts every CPU that runs this process, and the kernel executes only one at a
/// time for the whole machine.
pub(crate) fn affords_fence_heavy() -> bool {
    FENCES.afford(clock::monotonic_ns())
}

/// Whether [`fence_heavy`] works here, as far as can be known now: a sandbox may begin to refuse it
/// later.
pub(crate) fn has_fence_heavy() -> bool {
    cfg!(loom) || memory::register_membarrier().is_ok()
}

/// The recent cost of the kernel's fences to this process.
struct Fences {
    last_ns: Hint,
    took_ns: Hint,
}

static FENCES: Fences = Fences { last_ns: Hint::new(0), took_ns: Hint::new(0) };

impl Fences {
    /// The fences may take one part in `SHARE` of the time.
    const SHARE: u64 = 32;
    /// A fence that takes longer was measured by a thread that was not running.
    const LONGEST_NS: u64 = 100_000;

    fn took(&self, began_ns: i64, ended_ns: i64) {
        self.took_ns.set((ended_ns - began_ns).unsigned_abs().min(Fences::LONGEST_NS));
        self.last_ns.set(ended_ns.unsigned_abs());
    }

    fn afford(&self, now_ns: i64) -> bool {
        now_ns.unsigned_abs().saturating_sub(self.last_ns.get()) >= Fences::SHARE * self.took_ns.get()
    }
}

/// Searches the interleavings of a loom model in which a thread is preempted 3 times, or as often
/// as PIPEWORK_MODEL_SWITCHES says, and prints how many there are.
#[cfg(all(test, loom))]
pub(crate) fn search(model: impl Fn() + Send + Sync + 'static) {
    let switches = std::env::var("PIPEWORK_MODEL_SWITCHES").map_or(3, |n| n.parse().expect("a number"));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    let (began, runs) = (std::time::Instant::now(), std::sync::Arc::new(Hint::new(0)));
    let counter = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counter.set(counter.get() + 1);
        model();
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {} interleavings, {:.1} s", runs.get(), began.elapsed().as_secs_f64());
}

// ---------------------------------------------------------------- parking

/// Which threads may park on a word: those of this process, or of every process that maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Process,
    Machine,
}

/// A 64-bit word on which threads can park. The kernel compares its lower half only.
#[cfg_attr(not(loom), repr(transparent))]
#[derive(Debug)]
pub(crate) struct Word {
    bits: AtomicU64,
    /// The number of threads that sleep, and the words on which they sleep.
    #[cfg(loom)]
    bed: (loom::sync::Mutex<u32>, loom::sync::Condvar),
}

#[cfg(target_endian = "big")]
compile_error!("the futex is the lower half of a word, and the lower half is expected to come first");

impl Word {
    pub(crate) fn new(bits: u64) -> Word {
        Word {
            bits: AtomicU64::new(bits),
            #[cfg(loom)]
            bed: (loom::sync::Mutex::new(0), loom::sync::Condvar::new()),
        }
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.bits.load(order)
    }

    /// Replaces `from` by `to`; otherwise returns the value that was there.
    pub(crate) fn replace(&self, from: u64, to: u64, success: Ordering) -> Result<(), u64> {
        self.bits.compare_exchange(from, to, success, Ordering::Acquire).map(drop)
    }

    pub(crate) fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.bits.fetch_or(bits, order)
    }

    pub(crate) fn fetch_add(&self, addend: u64, order: Ordering) -> u64 {
        self.bits.fetch_add(addend, order)
    }

    /// Parks while the lower half equals that of `expected`. Returns when another thread wakes this
    /// one, when a signal handler runs ([`Errno::INTR`]) or when the limit has passed; may also
    /// return without any reason.
    #[cfg(not(loom))]
    pub(crate) fn park(&self, expected: u64, limit: Option<Duration>, reach: Reach) -> Result<(), Errno> {
        memory::futex_wait(self.bits.as_ptr().cast(), expected as u32, limit, reach == Reach::Machine)
    }

    /// Wakes at most `count` parked threads; returns how many.
    #[cfg(not(loom))]
    pub(crate) fn wake(&self, count: u32, reach: Reach) -> u32 {
        memory::futex_wake(self.bits.as_ptr().cast(), count, reach == Reach::Machine)
    }
}

/// All threads that are parked now.
pub(crate) const EVERYONE: u32 = i32::MAX as u32;

/// The kernel's part of a futex: compare and sleep, or count and wake, under one lock.
#[cfg(loom)]
impl Word {
    pub(crate) fn park(&self, expected: u64, _limit: Option<Duration>, _reach: Reach) -> Result<(), Errno> {
        let mut asleep = self.bed.0.lock().expect("a model does not panic under its lock");
        if self.bits.load(Ordering::Relaxed) as u32 == expected as u32 {
            *asleep += 1;
            drop(self.bed.1.wait(asleep));
        }
        Ok(())
    }

    pub(crate) fn wake(&self, count: u32, _reach: Reach) -> u32 {
        let mut asleep = self.bed.0.lock().expect("a model does not panic under its lock");
        let woken = count.min(*asleep);
        *asleep -= woken;
        (0..woken).for_each(|_| self.bed.1.notify_one());
        woken
    }
}

// ---------------------------------------------------------------- values without an order

/// A number that may be stale and is only a hint: how long to spin, where to check first.
#[derive(Debug, Default)]
pub(crate) struct Hint(process::AtomicU64);

impl Hint {
    pub(crate) const fn new(value: u64) -> Hint {
        Hint(process::AtomicU64::new(value))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(process::Ordering::Relaxed)
    }

    /// Stores only a new value, so that threads that agree do not take the cache line from each
    /// other.
    pub(crate) fn set(&self, value: u64) {
        if self.get() != value {
            self.0.store(value, process::Ordering::Relaxed);
        }
    }
}

/// A flag that may be stale and is only a hint, or that stays once it is set. It starts unset.
///
/// Relaxed throughout: it orders nothing, and a thread may read it late.
#[derive(Debug, Default)]
pub(crate) struct Flag(process::AtomicBool);

impl Flag {
    pub(crate) const fn new() -> Flag {
        Flag(process::AtomicBool::new(false))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(process::Ordering::Relaxed)
    }

    /// Stores only a new value, as [`Hint::set`].
    pub(crate) fn set(&self, yes: bool) {
        if self.is_set() != yes {
            self.0.store(yes, process::Ordering::Relaxed);
        }
    }
}

/// A lock for a few steps among threads of one process. A forked child finds it free, whichever
/// thread of its parent had it.
///
/// `{ generation: 63, locked: 1 }`: the last process that locked it, and whether it still does.
#[derive(Debug, Default)]
pub(crate) struct ShortLock(process::AtomicU64);

impl ShortLock {
    pub(crate) fn lock(&self) -> ShortLocked<'_> {
        let mine = u64::from(generation()) << 1 | 1;
        let mut turns = 0;
        loop {
            let before = self.0.load(process::Ordering::Relaxed);
            let (acquire, relaxed) = (process::Ordering::Acquire, process::Ordering::Relaxed);
            if before != mine && self.0.compare_exchange(before, mine, acquire, relaxed).is_ok() {
                return ShortLocked { lock: self, before, mine };
            }
            turns += 1;
            if turns % 64 == 0 {
                // A thread of real-time priority that only yields would keep the lock's owner from
                // running.
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
    }
}

pub(crate) struct ShortLocked<'a> {
    lock: &'a ShortLock,
    before: u64,
    mine: u64,
}

impl Drop for ShortLocked<'_> {
    fn drop(&mut self) {
        self.lock.0.store(self.mine & !1, process::Ordering::Release);
    }
}

/// A value that the threads of a process use for a few steps at a time. Each process has its own: a
/// forked child starts with the default.
///
/// A fork in a signal handler may interrupt these steps. Its child may only call exec, exit, or
/// return from the handler.
#[derive(Default)]
pub(crate) struct Own<T> {
    lock: ShortLock,
    value: std::cell::UnsafeCell<T>,
}

// SAFETY: only the thread that has the lock uses the value.
unsafe impl<T: Send> Sync for Own<T> {}

impl<T> Own<T> {
    pub(crate) const fn new(value: T) -> Own<T> {
        Own { lock: ShortLock(process::AtomicU64::new(0)), value: std::cell::UnsafeCell::new(value) }
    }
}

impl<T: Default> Own<T> {
    /// Runs `act` while no other thread of this process uses the value. `act` must not use it a
    /// second time.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let locked = self.lock.lock();
        // SAFETY: this thread has the lock. A thread that had it in the parent does not exist here.
        let value = unsafe { &mut *self.value.get() };
        let is_of_parent = locked.before >> 1 != locked.mine >> 1;
        let of_parent = is_of_parent.then(|| ManuallyDrop::new(std::mem::take(value)));
        let was_locked = locked.before & 1 != 0;
        let done = act(value);
        drop(locked);
        if !was_locked {
            of_parent.map(ManuallyDrop::into_inner);
        } else {
            // A thread of the parent was changing it. It may be half changed, so it stays as it is
            // until this process ends.
        }
        done
    }

    /// For a child that was just forked: begins with the default, after `act` has had the value of the
    /// parent, unless a thread was changing that. The parent's value is not dropped.
    pub(crate) fn begin(&self, act: impl FnOnce(&mut T)) {
        let locked = self.lock.lock();
        if locked.before >> 1 != locked.mine >> 1 {
            // SAFETY: as above.
            let mut of_parent = ManuallyDrop::new(std::mem::take(unsafe { &mut *self.value.get() }));
            if locked.before & 1 == 0 {
                act(&mut of_parent);
            }
        }
    }
}

/// A set of small numbers that only grows. It starts empty, and takes one bit for each number that
/// it can hold.
///
/// Relaxed throughout: a thread that reads it late behaves like one that read it earlier.
#[derive(Debug)]
pub(crate) struct Numbers(Box<[process::AtomicU64]>);

impl Numbers {
    /// An empty set of numbers below `end`.
    pub(crate) fn below(end: u32) -> Numbers {
        Numbers((0..end.div_ceil(64)).map(|_| process::AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn add(&self, number: u32) {
        let (bits, bit) = (&self.0[number as usize / 64], 1 << (number % 64));
        if bits.load(process::Ordering::Relaxed) & bit == 0 {
            bits.fetch_or(bit, process::Ordering::Relaxed);
        }
    }

    /// The numbers of the set from `first` on.
    pub(crate) fn from(&self, first: u32) -> impl Iterator<Item = u32> {
        let words = self.0.iter().enumerate().skip(first as usize / 64);
        let numbers = words.flat_map(|(idx, bits)| {
            let mut bits = bits.load(process::Ordering::Relaxed);
            std::iter::from_fn(move || {
                let number = idx as u32 * 64 + bits.trailing_zeros();
                let has_one = bits != 0;
                bits &= bits.wrapping_sub(1);
                has_one.then_some(number)
            })
        });
        numbers.skip_while(move |number| *number < first)
    }
}

// ---------------------------------------------------------------- forks

/// The generation of this process: a number that no process among its ancestors had. A handle that
/// remembers another number was inherited.
#[inline]
pub(crate) fn generation() -> u32 {
    // Relaxed: it publishes nothing but itself.
    match PROCESS.0.load(process::Ordering::Relaxed) {
        0 => begin(),
        generation => generation,
    }
}

/// A number that nothing else in this process has.
pub(crate) fn new_id() -> u64 {
    static LAST: process::AtomicU64 = process::AtomicU64::new(0);
    LAST.fetch_add(1, process::Ordering::Relaxed)
}

/// This process's generation, 0 until the first call asks for it. The kernel wipes the page in
/// every child, also after `_Fork` and a bare `clone`, when no fork handler runs.
static PROCESS: OwnPage = OwnPage(process::AtomicU32::new(0));

/// No smaller than a page, and nothing else is in it.
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(align(65536)))]
struct OwnPage(process::AtomicU32);

/// The last generation that was given out, by this process or before it.
static GENERATIONS: process::AtomicU32 = process::AtomicU32::new(0);

/// The first look in a process: closes the descriptors that it must not inherit, and gives it a
/// generation.
///
/// After a fork without handlers, this may wait for ever if another thread of the parent was just
/// attaching. The allocator has the same problem: a child of a process with threads may only do
/// what a signal handler may.
#[cold]
fn begin() -> u32 {
    // If another library's fork handler calls this, this thread holds the lock already.
    let held = FORKING.take().map(ManuallyDrop::into_inner);
    let mut no_forks = held.unwrap_or_else(NoForks::hold);
    if PROCESS.0.load(process::Ordering::Relaxed) == 0 {
        // The memory of the list stays, because a child may not free it.
        no_forks.kept.listed.retain(|listed| !listed.unshared);
        no_forks.kept.last = -1;
        let last = GENERATIONS.fetch_add(1, process::Ordering::Relaxed);
        PROCESS.0.store(last.wrapping_add(1), process::Ordering::Relaxed);
    }
    PROCESS.0.load(process::Ordering::Relaxed)
}

/// How many times this process has forked, as far as it has noticed that; at least once more if there is
/// a child that it has not noticed yet.
pub(crate) fn forks() -> u64 {
    notice_forks();
    FORKS.get()
}

/// As [`forks`], for a value that is compared later: usually without a look for children.
pub(crate) fn forks_noticed() -> u64 {
    // The first write to the page is a fault as well, and so is the first one after a fork that a handler
    // has counted.
    if LOOKED_AT.get() != FORKS.get() {
        notice_forks();
    }
    FORKS.get()
}

/// The number of forks at the last look for children.
static LOOKED_AT: Hint = Hint::new(u64::MAX);

/// Grows at each fork and at each look that finds a child. Of two threads that change it at the same
/// time, one may be lost: a look that follows the fork makes up for it.
static FORKS: Hint = Hint::new(0);

/// Notices a child for which no fork handler ran: one of `_Fork` or of a bare `clone`.
///
/// A child shares the pages of its parent, whichever way it was made, and the first write to a page that
/// they share is a fault in the writer. So a fork took place if this thread has a fault as it writes
/// here. Nothing else writes here. If the kernel does not count faults, only fork handlers notice forks.
///
/// Usually the clock rules a fault out: a write that takes less than `NO_FAULT_NS` had none. Where the
/// clock is a system call, or this thread lost its CPU meanwhile, the kernel is asked.
fn notice_forks() {
    /// A write that faults took 877 ns at least in 2,000 trials if the child had gone by then, 2,154 ns if
    /// the page had to be copied, and without a fault 28 to 131 ns, of which the clock takes 27 (Intel Xeon,
    /// family 6, model 207, virtual). Copying a page takes longer than this on any CPU.
    const NO_FAULT_NS: i64 = 100;
    static TOUCHED: [OwnPage; 2] = [const { OwnPage(process::AtomicU32::new(0)) }; 2];
    // Without it, a thread could find no fault because another one has had it, and that has not counted
    // yet.
    static NOTICING: ShortLock = ShortLock(process::AtomicU64::new(0));
    thread_local! {
        static SEEN: Cell<(u32, sys::Faults)> = const { Cell::new((0, None)) };
    }
    // In a child, the kernel counts from 0.
    let process = generation();
    let _alone = NOTICING.lock();
    // Volatile, because the compiler removes what is stored and never read.
    // SAFETY: they are statics, and only the thread that has the lock writes to them.
    let touch = |page: &OwnPage| unsafe { page.0.as_ptr().write_volatile(1) };
    let began = clock::monotonic_ns();
    touch(&TOUCHED[0]);
    if clock::monotonic_ns() - began >= NO_FAULT_NS {
        // If this thread has had no fault since it asked last, one question is enough.
        let faults = sys::faults();
        if SEEN.replace((process, faults)) != (process, faults) {
            // It has had some, perhaps at other addresses. The second page is written between two questions.
            // After a fork, the first page was a fault as well, so both are always written.
            touch(&TOUCHED[1]);
            let after = sys::faults();
            if after != faults {
                FORKS.set(FORKS.get() + 1);
            }
            SEEN.set((process, after));
        }
    }
    LOOKED_AT.set(FORKS.get());
}

/// The descriptors of this process that are known by more than their numbers.
///
/// The lock is held while a process forks, so no descriptor is open and not yet listed then. No
/// signal handler runs in a thread that holds the lock. So a fork in a handler waits only for other
/// threads, and its child never finds a half-changed list.
static KEPT: Mutex<Kept> = Mutex::new(Kept { listed: Vec::new(), last: -1 });

struct Kept {
    listed: Vec<Listed>,
    /// The descriptor that the kernel is to close last when this process dies; -1 for none.
    last: RawFd,
}

struct Listed {
    file: KnownFile,
    /// The id of its [`KeptFd`], which may have two descriptors.
    id: u64,
    /// Set when another `KeptFd` gets the number. If a thread reads it late, the program is closing
    /// descriptors while they are used; the kernel is asked as well.
    lost: Arc<Flag>,
    /// A child's copy of an open file keeps the locks of its parent alive, so the child closes this
    /// one.
    unshared: bool,
}

thread_local! {
    /// Whether this thread holds the lock.
    static HOLDS: Cell<bool> = const { Cell::new(false) };

    /// The lock that a thread holds while it forks. It is never dropped with its thread:
    /// registering that would allocate, and a fork in a signal handler may have interrupted the
    /// allocator.
    static FORKING: std::cell::Cell<Option<ManuallyDrop<NoForks>>> = const { std::cell::Cell::new(None) };
}

fn watch_forks() {
    static REGISTER: Once = Once::new();
    /// Whether the kernel wipes the page: not before Linux 4.14.
    static WIPED: Flag = Flag::new();
    extern "C" fn before() {
        FORKING.set(Some(ManuallyDrop::new(NoForks::hold())));
        // Under the lock, so no other thread counts at the same time.
        FORKS.set(FORKS.get() + 1);
    }
    extern "C" fn in_parent() {
        drop(FORKING.take().map(ManuallyDrop::into_inner));
    }
    extern "C" fn in_child() {
        if !WIPED.is_set() {
            PROCESS.0.store(0, process::Ordering::Relaxed);
        }
        generation();
        in_parent();
        if let Some(act) = IN_CHILDREN.get() {
            act();
        }
    }
    if !REGISTER.is_completed() {
        REGISTER.call_once(|| {
            if memory::wipe_in_children(&PROCESS).is_ok() {
                WIPED.set(true);
            }
            // The wiped page would not do alone. The handlers close descriptors before the fork returns, and
            // before Linux 4.14 they take the place of the page.
            sys::at_fork(before, in_parent, in_child);
        });
    }
}

/// From now on each child that is forked runs `act`, before the fork returns there, if fork handlers
/// run. The fork may have interrupted the allocator, so `act` allocates and frees nothing. There is one
/// such act.
pub(crate) fn in_children(act: fn()) {
    watch_forks();
    IN_CHILDREN.get_or_init(|| act);
}

static IN_CHILDREN: OnceLock<fn()> = OnceLock::new();

/// While it lives, no other thread of this process forks, no other thread adds a kept descriptor,
/// and signals wait in this thread.
///
/// For short sections only: every fork and every other section of the process waits for it.
pub(crate) struct NoForks {
    // Dropped first, which unlocks the list.
    kept: MutexGuard<'static, Kept>,
    _signals_wait: sys::NoSignals,
}

impl Drop for NoForks {
    fn drop(&mut self) {
        HOLDS.set(false);
    }
}

/// Whether a [`NoForks`] lives in this thread: another one would wait for ever.
pub(crate) fn has_no_forks() -> bool {
    HOLDS.get()
}

pub(crate) fn no_forks() -> NoForks {
    // Call this before locking: the first look takes the lock as well.
    generation();
    NoForks::hold()
}

impl NoForks {
    fn hold() -> NoForks {
        let signals_wait = sys::no_signals();
        watch_forks();
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        HOLDS.set(true);
        NoForks { kept, _signals_wait: signals_wait }
    }

    /// Closes a descriptor before its `Unshared` is dropped.
    pub(crate) fn close(&mut self, unshared: &Unshared) {
        self.kept.listed.retain(|listed| listed.id != unshared.kept.id);
    }

    /// If this process dies, the kernel closes `last` after every other descriptor that it shares
    /// with no child.
    ///
    /// Linux closes the descriptors of a dead process from the highest number to the lowest (seen
    /// with 6.18). Where one takes long to close, the process still holds the locks of those below.
    /// So every lower descriptor gets a second one above `last`.
    pub(crate) fn close_last(&mut self, last: &Unshared) {
        if self.kept.last == last.kept.fd {
            return;
        }
        self.kept.last = last.kept.fd;
        for idx in 0..self.kept.listed.len() {
            self.raise(idx);
        }
    }

    /// Makes the second descriptor of a listed one, if it needs one. Without it, for instance for
    /// want of descriptors, a death is known some milliseconds later.
    fn raise(&mut self, idx: usize) {
        let Kept { listed, last } = &mut *self.kept;
        let Listed { file, id, unshared, .. } = &listed[idx];
        let is_lower = *unshared && file.as_fd().as_raw_fd() < *last;
        let again = is_lower.then(|| file.duplicate_above(*last));
        if let Some(Ok(file)) = again {
            let id = *id;
            listed.push(Listed { file, id, lost: Arc::new(Flag::new()), unshared: true });
        }
    }

    fn keep(&mut self, file: KnownFile, unshared: bool) -> KeptFd {
        let (fd, mark, id) = (file.as_fd().as_raw_fd(), file.mark(), new_id());
        // If the kernel gives out the number of a listed descriptor again, the program has closed
        // that descriptor.
        for mut before in self.kept.listed.extract_if(.., |listed| listed.file.as_fd().as_raw_fd() == fd) {
            before.file.forget();
            before.lost.set(true);
        }
        let lost = Arc::new(Flag::new());
        self.kept.listed.push(Listed { file, id, lost: Arc::clone(&lost), unshared });
        self.raise(self.kept.listed.len() - 1);
        KeptFd { fd, mark, id, lost }
    }
}

/// Closes the descriptor when it is dropped, unless its number belongs to another owner by then. The
/// program may have closed the descriptor and opened another file under its number. This notices
/// every other `KeptFd`, and any open file without the same mark.
#[derive(Debug)]
pub(crate) struct KeptFd {
    fd: RawFd,
    mark: Mark,
    id: u64,
    lost: Arc<Flag>,
}

impl KeptFd {
    pub(crate) fn new(file: KnownFile) -> KeptFd {
        no_forks().keep(file, false)
    }

    /// Keeps a descriptor that `open` makes, so that no other thread sees it before it is listed.
    pub(crate) fn open(open: impl FnOnce() -> Result<KnownFile, Errno>) -> Result<KeptFd, Errno> {
        let mut no_forks = no_forks();
        open().map(|file| no_forks.keep(file, false))
    }

    /// The descriptor, if the program has left it open.
    pub(crate) fn intact(&self) -> Option<BorrowedFd<'_>> {
        self.is_intact().then(|| self.as_fd())
    }

    /// Whether the program has left it open.
    pub(crate) fn is_intact(&self) -> bool {
        !self.lost.is_set() && self.mark.is_on(self.as_fd())
    }
}

impl AsFd for KeptFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        known::borrow(self.fd, self)
    }
}

impl Drop for KeptFd {
    fn drop(&mut self) {
        // Close under the lock: a child that was forked meanwhile would close another file with
        // that number.
        no_forks().kept.listed.retain(|listed| listed.id != self.id);
    }
}

/// A descriptor that every forked child closes: before fork returns there, or at the child's first
/// look if no handler runs. This process closes it when this is dropped.
#[derive(Debug)]
pub(crate) struct Unshared {
    kept: KeptFd,
    generation: u32,
}

impl Unshared {
    pub(crate) fn open(
        forks_wait: &mut NoForks,
        open: impl FnOnce() -> Result<KnownFile, Errno>,
    ) -> Result<Unshared, Errno> {
        let file = open()?;
        Ok(Unshared { kept: forks_wait.keep(file, true), generation: generation() })
    }

    /// False in a forked child, because the child has closed it.
    pub(crate) fn is_here(&self) -> bool {
        self.generation == generation()
    }

    /// Whether it is here, and the program has left it open.
    pub(crate) fn is_intact(&self) -> bool {
        self.is_here() && self.kept.is_intact()
    }

    /// The result of `call` for the descriptor; `None` in a forked child, because the child has
    /// closed it.
    pub(crate) fn with<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.is_here().then(|| call(self.kept.as_fd()))
    }
}

// ---------------------------------------------------------------- addresses

/// Ranges of addresses that a signal handler can look up: as many as memory allows. A block that
/// was added is never removed, so a handler may walk the blocks at any time.
pub(crate) struct Ranges {
    here: [Range; 256],
    /// How many entries of this block are in use. Only a thread that has [`NoForks`] uses it.
    used: process::AtomicUsize,
    more: std::sync::OnceLock<Box<Ranges>>,
}

#[derive(Debug)]
pub(crate) struct Range {
    /// 0 in an unused entry.
    start: process::AtomicUsize,
    end: process::AtomicUsize,
    /// How many times an address in the range was found.
    found: process::AtomicU32,
}

impl Range {
    const fn unused() -> Range {
        Range {
            start: process::AtomicUsize::new(0),
            end: process::AtomicUsize::new(0),
            found: process::AtomicU32::new(0),
        }
    }

    /// Whether an address in the range was found.
    #[inline]
    pub(crate) fn was_found(&self) -> bool {
        // Acquire: a thread that has read from a page that a handler has replaced also sees that
        // the handler had found its range before.
        process::fence(process::Ordering::Acquire);
        self.found.load(process::Ordering::Relaxed) > 0
    }
}

impl Ranges {
    pub(crate) const fn new() -> Ranges {
        Ranges {
            here: [const { Range::unused() }; 256],
            used: process::AtomicUsize::new(0),
            more: std::sync::OnceLock::new(),
        }
    }

    /// Adds a range; returns its entry.
    pub(crate) fn add(&self, start: usize, end: usize) -> &Range {
        // One thread at a time writes; a handler reads at any time.
        let _alone = no_forks();
        let unused = |range: &&Range| range.start.load(process::Ordering::Relaxed) == 0;
        let mut block = self;
        let free = loop {
            let used = block.used.load(process::Ordering::Relaxed);
            let free = if used < block.here.len() { block.here.iter().find(unused) } else { None };
            if let Some(free) = free {
                block.used.store(used + 1, process::Ordering::Relaxed);
                break free;
            }
            block = block.more.get_or_init(|| Box::new(Ranges::new()));
        };
        free.end.store(end, process::Ordering::Relaxed);
        free.found.store(0, process::Ordering::Relaxed);
        // Release: pairs with the Acquire in `find`, which then sees the end that belongs to this
        // start.
        free.start.store(start, process::Ordering::Release);
        free
    }

    /// Removes a range that [`add`](Ranges::add) has returned.
    pub(crate) fn remove(&self, range: &Range) {
        let _alone = no_forks();
        range.start.store(0, process::Ordering::Relaxed);
        let has_it = |block: &&Ranges| block.here.as_ptr_range().contains(&std::ptr::from_ref(range));
        if let Some(block) = self.blocks().find(has_it) {
            let used = block.used.load(process::Ordering::Relaxed);
            block.used.store(used.saturating_sub(1), process::Ordering::Relaxed);
        }
    }

    /// The range that contains `address`, and how many times this has found it before.
    pub(crate) fn find(&self, address: usize) -> Option<(std::ops::Range<usize>, u32)> {
        self.all().find_map(|range| {
            let start = range.start.load(process::Ordering::Acquire);
            let end = range.end.load(process::Ordering::Relaxed);
            (start != 0 && (start..end).contains(&address))
                .then(|| (start..end, range.found.fetch_add(1, process::Ordering::Relaxed)))
        })
    }

    fn all(&self) -> impl Iterator<Item = &Range> {
        self.blocks().flat_map(|block| &block.here)
    }

    fn blocks(&self) -> impl Iterator<Item = &Ranges> {
        std::iter::successors(Some(self), |block| block.more.get().map(|more| &**more))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_yields_the_added_numbers_in_order() {
        let numbers = Numbers::below(130);
        for number in [129, 0, 64, 63, 0] {
            numbers.add(number);
        }
        assert!(numbers.from(0).eq([0, 63, 64, 129]));
        assert!(numbers.from(64).eq([64, 129]) && numbers.from(65).eq([129]));
        assert!(Numbers::below(64).from(0).next().is_none());
    }

    #[test]
    fn ranges_finds_what_was_added_and_uses_entries_again() {
        let ranges = Ranges::new();
        let added: Vec<_> = (1..=600).map(|number| ranges.add(number * 10, number * 10 + 5)).collect();
        assert_eq!(ranges.find(6003), Some((6000..6005, 0)));
        ranges.remove(added[3]);
        ranges.remove(added[599]);
        assert_eq!((ranges.find(6003), ranges.find(43)), (None, None));
        assert!(std::ptr::eq(ranges.add(1, 2), added[3]) && std::ptr::eq(ranges.add(2, 3), added[599]));
        assert_eq!(ranges.all().count(), 3 * 256);
    }

    /// A waiter of real-time priority would keep the lock's owner from running.
    #[test]
    fn waiter_for_a_short_lock_sleeps() {
        let lock = ShortLock::default();
        let held = lock.lock();
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::channel();
            let lock = &lock;
            scope.spawn(move || {
                send.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                drop(lock.lock());
            });
            let path = std::path::Path::new("/proc").join(receive.recv().unwrap()).join("status");
            // The kernel does not count here that a thread has yielded.
            let sleeps = || -> u64 {
                let status = std::fs::read_to_string(&path).unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                line.unwrap().trim().parse().unwrap()
            };
            let begun = std::time::Instant::now();
            while sleeps() < 5 && begun.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            let sleeps = sleeps();
            drop(held);
            assert!(sleeps >= 5, "it has slept {sleeps} times");
        });
    }

    #[test]
    fn afford_limits_the_share_of_time_spent_in_fences() {
        let fences = Fences { last_ns: Hint::new(0), took_ns: Hint::new(0) };
        assert!(fences.afford(1), "the cost of the first one is unknown");
        fences.took(1_000, 3_000);
        assert!(!fences.afford(3_000 + 2_000 * 32 - 1));
        assert!(fences.afford(3_000 + 2_000 * 32));
        // A thread that measures this was not running.
        fences.took(0, 1_000_000_000);
        assert!(fences.afford(1_000_000_000 + 100_000 * 32));
    }
}
