//! Tools for tests: processes, damage to them, victims that are run step by step; and time limits,
//! random numbers, folders.

mod process;
pub(crate) mod damage;
pub(crate) mod theirs;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tracee;
#[cfg(target_arch = "x86_64")]
pub(crate) mod fate;
#[cfg(target_arch = "x86_64")]
pub(crate) mod scenes;

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime};

use pipework::reqrep::{Blob, BlobMut};
use pipework::{broadcast, reqrep};
use rustix::event::{PollFd, PollFlags, Timespec};

pub(crate) use process::*;

/// How long an action may take that should take no time at all. Long, so that a busy machine does
/// not fail a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a live process may wait for one that has died, or for a wake-up that was lost with one.
pub(crate) const PROMPT: Duration = Duration::from_millis(250);
/// The delay that the machine may add: 2 s, and more if its CPUs are shared by many.
pub(crate) fn tolerance() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Duration::from_secs(2).mul_f64((load / cpus as f64).max(1.0))
}

/// A number that a test gets from its environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// The seed of a test's random choices: PIPEWORK_SEED, or a new number.
pub(crate) fn seed() -> u64 {
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    setting("PIPEWORK_SEED").unwrap_or_else(clock)
}

/// Prints past the test harness, which hides the `println!` output of a passing test.
pub(crate) fn say(line: &str) {
    // In one write, because others print at the same time.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Reports that a test, or a part of it, cannot run here; `make test` lists it at its end.
pub(crate) fn left_out(what: &str, why: &str) {
    say(&format!("left out: {what}: {why}"));
}

/// Whether `make test` leaves this test to `make test-all`, because of what it does many times or
/// waits for. `make test` counts such tests at its end.
pub(crate) fn left_to_test_all(why: &str) -> bool {
    let is_left = std::env::var_os("PIPEWORK_SHORT").is_some();
    if is_left {
        say(&format!("long: {}: {why}", thread::current().name().unwrap_or("a test")));
    }
    is_left
}

/// Runs a task to its end, which must come within [`PATIENCE`]. It needs no descriptors.
pub(crate) fn in_a_task<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await.expect("it is woken") })
}

/// Runs a task on this thread, without a runtime.
pub(crate) fn block_on<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

/// Waits until `fd` is ready for `what`, no longer than [`PATIENCE`].
pub(crate) fn wait_for(fd: impl AsFd, what: PollFlags) {
    assert!(is_ready(fd, what, PATIENCE), "stuck for {PATIENCE:?}");
}

/// Whether `fd` becomes ready for `what` within `time`. Signals do not shorten it.
pub(crate) fn is_ready(fd: impl AsFd, what: PollFlags, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    loop {
        match rustix::event::poll(&mut [PollFd::new(&fd, what)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.expect("poll") > 0,
        }
    }
}

/// A folder that is removed with everything in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::SeqCst);
            let path = std::env::temp_dir().join(format!("pipework-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Folder(path),
                // A killed test has left it behind, and its process number has been reused.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        Path::join(&self.0, name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        if fs::remove_dir_all(&self.0).is_err_and(busy) && damage::unmount_in(&self.0).is_ok() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A channel of calls, or of a broadcast.
pub(crate) trait Channel: AsFd {
    fn path(&self) -> Option<&Path>;
    fn blob(&self, len: usize) -> pipework::Result<BlobMut>;
}

impl Channel for reqrep::Segment {
    fn path(&self) -> Option<&Path> {
        self.path()
    }

    fn blob(&self, len: usize) -> pipework::Result<BlobMut> {
        self.blob(len)
    }
}

impl Channel for broadcast::Segment {
    fn path(&self) -> Option<&Path> {
        self.path()
    }

    fn blob(&self, len: usize) -> pipework::Result<BlobMut> {
        self.blob(len)
    }
}

/// The folder of a channel's blobs, as FILE.md says.
pub(crate) fn blob_folder(segment: &dyn Channel) -> PathBuf {
    let mut random = [0; 8];
    rustix::io::pread(segment.as_fd(), &mut random, 48).expect("a segment is a file");
    let name = format!("{:016x}.blobs", u64::from_le_bytes(random));
    match segment.path() {
        Some(path) => path.with_extension(name),
        None => Path::new(&format!("/dev/shm/pipework-{}", rustix::process::getuid().as_raw())).join(name),
    }
}

/// What lies in that folder.
pub(crate) fn blob_files(segment: &dyn Channel) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(blob_folder(segment)) else { return vec![] };
    entries.map(|entry| entry.expect("a folder can be read").path()).collect()
}

/// A blob with these bytes.
pub(crate) fn blob_of(segment: &dyn Channel, bytes: &[u8]) -> Blob {
    let mut draft = segment.blob(bytes.len()).expect("there is memory for it");
    draft.copy_from_slice(bytes);
    draft.freeze().expect("it is whole")
}

/// Numbers that look random, always the same for the same seed: splitmix64 (Steele, Lea, Flood
/// 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Bytes of any value, a megabyte in a millisecond.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&self.next().to_ne_bytes()[..chunk.len()]));
        bytes
    }
}
