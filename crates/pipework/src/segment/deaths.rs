//! News of deaths: the kernel reports each close of a segment's file, and a thread of this process
//! then recovers the members that are gone, which wakes all that wait for them, in any process.
//!
//! Two processes listen for each segment: those that hold the locks of two bytes of its file. If one
//! of them dies, the other hears of it, and the next process that waits takes its place.
//!
//! The proof of a death stays the lock of the member, and a tick finds every death that no report
//! comes for. So all of this may fail in silence: without /proc, without a thread, or when the user
//! has no inotify instance left. If the program closes the descriptor, the next wait begins again.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::mapping::LISTENERS;
use super::member::Membership;
use super::recovery::Recover;
use crate::deadline::Deadline;
use crate::sync::{self, Flag, NoForks, Own, Unshared};
use crate::sys::known::KnownFile;
use crate::sys::{self, Errno, For, closes, memory};

/// The variable that keeps a process from having the thread: `off`.
const VARIABLE: &str = "PIPEWORK_DEATH_THREAD";

/// A process listens from this time after its first wait on. When a process ends, the kernel closes
/// its inotify instance, and that waits for the work on those of others: 5 to 30 ms, but seconds where
/// many such processes end at a time. So processes that live for a moment have no instance.
const SETTLED: Duration = Duration::from_secs(1);

/// A report comes before the kernel releases the locks of that file, and a dying process may have
/// several. So the thread looks again after each of these pauses.
const AGAIN: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(2)];

/// How many times the thread goes on with a recovery at once. If that cannot finish now, it leaves the
/// rest to ticks.
const MOST_LOOKS: u32 = 64;

/// The thread rests this many times as long as its looks took, but no longer than a tick would take.
const REST: u32 = 20;
const LONGEST_REST: Duration = Duration::from_millis(50);
/// If reports come sooner than this after a rest, the next rest is twice as long, up to this time. So
/// programs that open and close the file all the time cost this process a few hundredths of a CPU.
const BUSY: Duration = Duration::from_millis(2);

static DEATHS: Own<Deaths> = Own::new(Deaths {
    first_wait: None,
    instance: None,
    running: None,
    is_ending: false,
    is_off: false,
    files: Vec::new(),
});

/// What this process watches. A forked child starts with nothing.
#[derive(Default)]
struct Deaths {
    first_wait: Option<Instant>,
    /// It stays open: if it had watches, closing it takes milliseconds, on a busy machine many. For
    /// the same reason it is closed last when this process dies.
    instance: Option<Arc<Unshared>>,
    running: Option<Running>,
    /// Whether a thread waits for the report that ends it. Another thread must not begin until then: it
    /// would read that report, and the first one would wait for ever.
    is_ending: bool,
    /// Whether the thread cannot run, or is not wanted.
    is_off: bool,
    files: Vec<Watched>,
}

/// Recovers dead members for some time; returns true if there is no more to do.
type Recovering = dyn Fn() -> bool + Send + Sync;

struct Watched {
    /// Device and inode.
    file: (u64, u64),
    /// Of the watch.
    number: i32,
    /// The address of the member in whose name this process listens.
    member: usize,
    recover: Arc<Recovering>,
    /// The open file that has the lock of a listener.
    _lock: Arc<Unshared>,
}

struct Running {
    stop: Arc<Flag>,
    /// Not dropped in a forked child, where the thread does not exist.
    thread: ManuallyDrop<JoinHandle<()>>,
}

impl Deaths {
    fn has(&self, instance: &Arc<Unshared>) -> bool {
        self.instance.as_ref().is_some_and(|known| Arc::ptr_eq(known, instance))
    }

    /// Starts from nothing; the thread ends with the next report. Drop the result where forks do not
    /// wait.
    fn begin_again(&mut self) -> impl Sized + use<> {
        let (first_wait, is_off) = (self.first_wait, self.is_off);
        let left = std::mem::replace(self, Deaths { first_wait, is_off, ..Deaths::default() });
        left.running.as_ref().inspect(|running| running.stop.set(true));
        let thread = left.running.map(|running| ManuallyDrop::into_inner(running.thread));
        (left.files, left.instance, thread)
    }
}

/// The result of `call` for the inotify instance. EBADF if the program has closed it.
fn with<T>(instance: &Unshared, call: impl FnOnce(BorrowedFd<'_>) -> sys::Result<T>) -> sys::Result<T> {
    if instance.is_intact() { instance.with(call).unwrap_or(Err(Errno::BADF)) } else { Err(Errno::BADF) }
}

pub(super) enum Listening {
    Not,
    /// It has begun, in the name of the member: call [`forget`] when that leaves.
    Begun,
    /// Two processes listen already.
    Others,
}

/// Makes this process one that listens for the segment, if it has [settled](SETTLED), does not listen
/// yet, and there are fewer than two.
#[cold]
pub(super) fn listen<C: Recover>(member: &Arc<Membership<C>>) -> Listening {
    let shared = member.shared();
    let file = shared.identity();
    let does_not_begin = |deaths: &mut Deaths| {
        let first_wait = *deaths.first_wait.get_or_insert_with(Instant::now);
        let is_known = deaths.files.iter().any(|known| known.file == file);
        deaths.is_off || deaths.is_ending || first_wait.elapsed() < SETTLED || is_known
    };
    // This also drops what a parent had, before forks wait: closing a descriptor waits for forks.
    let lost = DEATHS.with(|deaths| {
        let is_lost = deaths.instance.as_ref().is_some_and(|instance| !instance.is_intact());
        is_lost.then(|| deaths.begin_again())
    });
    drop(lost);
    if DEATHS.with(does_not_begin) || shared.is_lost() {
        return Listening::Not;
    }
    let is_free = |byte: &u64| memory::is_locked(shared.file(), *byte) == Ok(false);
    let Some(byte) = LISTENERS.into_iter().find(is_free) else { return Listening::Others };
    // For the same reason, these are declared first.
    let (opened, lock);
    // One thread at a time starts to listen, and no process forks meanwhile.
    let mut forks_wait = sync::no_forks();
    if DEATHS.with(does_not_begin) {
        return Listening::Not;
    }
    lock = Unshared::open(&mut forks_wait, || shared.open_again()).map(Arc::new);
    let Ok(lock) = &lock else { return Listening::Not };
    if lock.with(|fd| memory::try_lock(fd, byte)) != Some(Ok(true)) {
        return Listening::Not;
    }
    opened = DEATHS.with(|deaths| deaths.instance.clone()).or_else(|| open(&mut forks_wait));
    let Some(instance) = &opened else {
        DEATHS.with(|deaths| deaths.is_off = true);
        return Listening::Not;
    };
    let Ok(number) = with(instance, |instance| closes::add(instance, shared.file())) else {
        return Listening::Not;
    };
    forks_wait.close_last(instance);
    let runs = DEATHS.with(|deaths| {
        deaths.instance = Some(Arc::clone(instance));
        let (recover, _lock) = (recovering(Arc::downgrade(member)), Arc::clone(lock));
        deaths.files.push(Watched { file, number, member: Arc::as_ptr(member).addr(), recover, _lock });
        deaths.running.is_some()
    });
    if !runs {
        let (stop, heard) = (Arc::new(Flag::new()), Arc::clone(instance));
        let is_over = Arc::clone(&stop);
        let thread = sys::start_thread("pipework-deaths", move || {
            hear(&heard, &is_over);
            DEATHS.with(|deaths| deaths.is_ending &= !deaths.has(&heard));
        });
        DEATHS.with(|deaths| match thread {
            Ok(thread) => deaths.running = Some(Running { stop, thread: ManuallyDrop::new(thread) }),
            Err(_) => deaths.is_off = true,
        });
    }
    Listening::Begun
}

fn open(forks_wait: &mut NoForks) -> Option<Arc<Unshared>> {
    let is_wanted = std::env::var_os(VARIABLE).is_none_or(|set| set != "off");
    let open = || closes::open().and_then(KnownFile::nameless);
    is_wanted.then(|| Unshared::open(forks_wait, open).ok().map(Arc::new)).flatten()
}

/// Whether the kernel would report deaths to this process now. It does not if this user has no
/// inotify instance left (`fs.inotify.max_user_instances`), or if the variable
/// `PIPEWORK_DEATH_THREAD` is `off`. If no process of a channel can listen, a wait notices a death
/// within 250 ms instead of 2 ms.
pub fn hears_of_deaths() -> bool {
    let mut forks_wait = sync::no_forks();
    let opened = open(&mut forks_wait);
    drop(forks_wait);
    opened.is_some()
}

/// Called when a member that listens leaves: the next one that waits takes its place. The thread
/// ends with the last file.
pub(super) fn forget<C: Recover>(member: &Arc<Membership<C>>) {
    // As above.
    DEATHS.with(|_| ());
    let (gone, ended, is_woken) = {
        // Until the watch is gone, no other thread may ask for one of the same file.
        let _forks_wait = sync::no_forks();
        let (gone, ended, instance) = DEATHS.with(|deaths| {
            let is_mine = |watched: &mut Watched| watched.member == Arc::as_ptr(member).addr();
            let gone: Vec<Watched> = deaths.files.extract_if(.., is_mine).collect();
            let ended = deaths.running.take_if(|_| deaths.files.is_empty());
            deaths.is_ending |= ended.is_some();
            (gone, ended, deaths.instance.clone())
        });
        ended.as_ref().inspect(|ended| ended.stop.set(true));
        // The kernel reports that a watch is gone, and so wakes the thread.
        let remove = |watched: &Watched| {
            let instance = instance.as_ref()?;
            with(instance, |instance| closes::remove(instance, watched.number)).ok()
        };
        let is_woken = gone.iter().filter_map(remove).count() > 0;
        if !is_woken && ended.is_some() {
            // Its watch was gone before. It ends when it next reads a report.
            DEATHS.with(|deaths| deaths.is_ending = false);
        }
        (gone, ended, is_woken)
    };
    drop(gone);
    let Some(ended) = ended else { return };
    let thread = ManuallyDrop::into_inner(ended.thread);
    thread.thread().unpark();
    // The program may unload this library next. The thread itself may be what drops the last handle.
    if is_woken && thread.thread().id() != thread::current().id() {
        // It does not panic: it runs no foreign code.
        let _ = thread.join();
    }
}

/// An error comes with the next tick of whatever waits.
fn recovering<C: Recover>(member: Weak<Membership<C>>) -> Arc<Recovering> {
    const OP: &str = "recover after a report";
    Arc::new(move || {
        let Some(member) = member.upgrade().filter(|member| !member.has_left()) else { return true };
        let shared = member.shared();
        let looked = shared.check_whole(OP).and_then(|()| shared.recover_dead(|_| true, |_| false, OP));
        looked.map_or(true, |looked| looked.is_done)
    })
}

/// The thread.
fn hear(instance: &Arc<Unshared>, is_over: &Flag) {
    let (mut numbers, mut pauses, mut rest) = (BTreeSet::new(), [].iter(), Duration::ZERO);
    loop {
        #[cfg(all(test, not(loom)))]
        held::before_a_report();
        let (pause, rested) = (pauses.next(), Instant::now());
        let deadline = pause.map_or(Deadline::NEVER, |pause| Deadline::after(*pause));
        let waited = with(instance, |instance| sys::wait(&[instance], For::Reading, deadline));
        // The program may have closed the descriptor while this waited. Then the kernel has still
        // reported something, and the number may belong to an instance of the program.
        let taken = match waited {
            Ok(true) => with(instance, |instance| closes::take(instance, &mut numbers)),
            waited => waited.map(drop),
        };
        if is_over.is_set() {
            return;
        }
        match (waited, taken) {
            (_, Err(_)) => _ = numbers.insert(None),
            (Ok(true), Ok(())) => pauses = AGAIN.iter(),
            _ => {}
        }
        let is_reported =
            |watched: &&Watched| numbers.contains(&Some(watched.number)) || numbers.contains(&None);
        let recoveries: Vec<Arc<Recovering>> = DEATHS.with(|deaths| {
            deaths.files.iter().filter(is_reported).map(|watched| Arc::clone(&watched.recover)).collect()
        });
        let began = Instant::now();
        for recover in recoveries {
            let _ = (0..MOST_LOOKS).find(|_| recover());
        }
        if let Err(errno) = taken {
            return give_up(instance, errno);
        }
        if pauses.len() == 0 {
            numbers.clear();
        }
        // The kernel keeps what it reports meanwhile, and reports equal events once.
        let at_least = if began - rested < BUSY { (2 * rest).min(BUSY) } else { Duration::ZERO };
        rest = at_least.max(began.elapsed() * REST).min(LONGEST_REST);
        thread::park_timeout(rest);
    }
}

/// Ends the thread. If the program has closed its descriptor, the next wait may start another one;
/// if the kernel has no memory, this process listens no more.
fn give_up(instance: &Arc<Unshared>, errno: Errno) {
    let left = DEATHS.with(|deaths| {
        // Another thread may have begun again with another instance.
        deaths.has(instance).then(|| {
            deaths.is_off = errno != Errno::BADF;
            deaths.begin_again()
        })
    });
    drop(left);
}

/// What tests of deaths need.
#[cfg(all(test, not(loom)))]
pub(crate) mod held {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender};

    use super::*;

    /// Holds the next thread that is about to wait for a report: it tells the one, and waits for the
    /// other.
    pub(crate) static HELD: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

    pub(super) fn before_a_report() {
        let held = HELD.lock().unwrap().take();
        if let Some((arrived, goes_on)) = held {
            arrived.send(()).unwrap();
            goes_on.recv().unwrap();
        }
    }

    /// This process listens from its next look on, as if it had waited for a second.
    pub(crate) fn settle() {
        DEATHS.with(|deaths| deaths.first_wait = Some(Instant::now() - SETTLED));
    }

    /// Whether this process listens: for this file, or for any.
    pub(crate) fn listens(file: Option<(u64, u64)>) -> bool {
        DEATHS.with(|deaths| deaths.files.iter().any(|known| file.is_none_or(|file| known.file == file)))
    }

    pub(crate) fn has_thread() -> bool {
        DEATHS.with(|deaths| deaths.running.is_some())
    }
}
