//! The file that `pipework tee` writes, by a thread of its own: a disk may be slow, full, or gone,
//! and the caller that hands an entry over does not wait for it.
//!
//! Data that cannot be written stays in memory and is tried again; beyond a limit, entries are left
//! out and counted. An entry is written whole, or it is the last one and the file could take no
//! more: then the part that the file took is taken back.

use crate::failure::{Failure, at, words};
use crate::log_file::{self, LogFile};
use crate::progress::say;
use std::io::{self, PipeReader, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How soon a file that has failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes of one write. While a write stands still, the number of bytes that it has taken is
/// unknown.
const PIECE: usize = 64 << 10;

/// The file that the thread writes to.
pub(super) trait Target: Write + Send + 'static {
    /// Opens a FIFO if it has a reader, and else fails with ENXIO.
    fn try_open(&mut self) -> io::Result<()>;

    /// Takes back the last `bytes` bytes written; returns whether it could.
    fn take_back(&mut self, bytes: usize) -> bool;
}

impl Target for LogFile {
    fn try_open(&mut self) -> io::Result<()> {
        LogFile::try_open(self)
    }

    fn take_back(&mut self, bytes: usize) -> bool {
        LogFile::take_back(self, bytes)
    }
}

/// Entries in their order, ready to be written.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// The end of each.
    ends: Vec<usize>,
}

impl Entries {
    /// Adds an entry, which `append` writes to the end of its argument.
    pub(super) fn add(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Moves the first of `other` to the end, as many as fit into `space` bytes; drops the others,
    /// and returns how many these were.
    fn take_from(&mut self, other: &mut Self, space: usize) -> u64 {
        let before = self.bytes.len();
        let count = other.ends.iter().take_while(|end| **end <= space).count();
        let len = count.checked_sub(1).map_or(0, |last| other.ends[last]);
        self.bytes.extend_from_slice(&other.bytes[..len]);
        self.ends.extend(other.ends[..count].iter().map(|end| before + end));
        let left = other.ends.len() - count;
        other.bytes.clear();
        other.ends.clear();
        left as u64
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many end beyond the first `written` bytes.
    fn beyond(&self, written: usize) -> u64 {
        (self.ends.len() - self.whole(written)) as u64
    }

    /// How many of the first `written` bytes belong to an entry that goes on behind them.
    fn cut(&self, written: usize) -> usize {
        written - self.whole(written).checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// How many end within the first `written` bytes.
    fn whole(&self, written: usize) -> usize {
        self.ends.partition_point(|end| *end <= written)
    }
}

/// The entries that are handed over.
struct Queue {
    waiting: Entries,
    /// Bytes that the thread is about to write.
    in_hand: usize,
    /// Entries that it has not written whole, as far as that is known.
    unwritten: u64,
    /// Bytes that it has written, ever.
    written: u64,
    /// How many bytes may wait, those in hand included; a single entry may be longer.
    limit: usize,
    /// Entries that were left out.
    lost: u64,
    ended: bool,
    /// A reader of a FIFO that has not come yet is not waited for any more.
    hurried: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when it has something new.
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log as its writers see it.
pub(super) struct Log {
    name: String,
    shared: Arc<Shared>,
    /// At its end when the thread has ended.
    ended: PipeReader,
}

impl Log {
    /// Starts the thread that writes to `file`, which is called `name`: `front` first, when there
    /// is an entry.
    pub(super) fn start(
        mut file: impl Target,
        name: String,
        limit: usize,
        front: &[u8],
    ) -> Result<Self, Failure> {
        let (ended, alive) = io::pipe().map_err(at("pipe"))?;
        let waiting = Entries { bytes: front.to_vec(), ends: Vec::new() };
        let queue = Mutex::new(Queue {
            waiting,
            in_hand: 0,
            unwritten: 0,
            written: 0,
            limit,
            lost: 0,
            ended: false,
            hurried: false,
        });
        let shared = Arc::new(Shared { queue, news: Condvar::new() });
        let (theirs, its_name) = (Arc::clone(&shared), name.clone());
        let work = move || {
            wait_for_reader(&mut file, &its_name, &theirs);
            write_all(file, &its_name, &theirs);
            drop(alive);
        };
        thread::Builder::new().spawn(work).map_err(at("threads"))?;
        Ok(Self { name, shared, ended })
    }

    /// Hands entries over, which leaves none. Whether one is left out for the first time.
    pub(super) fn put(&self, entries: &mut Entries) -> bool {
        if entries.is_empty() {
            return false;
        }
        let mut queue = self.shared.lock();
        let is_idle = queue.in_hand == 0 && queue.waiting.is_empty();
        let space = match queue.limit.checked_sub(queue.in_hand + queue.waiting.bytes.len()) {
            space if is_idle => space.unwrap_or(0).max(entries.ends[0]),
            space => space.unwrap_or(0),
        };
        let lost = queue.waiting.take_from(entries, space);
        let is_first = queue.lost == 0 && lost > 0;
        queue.lost += lost;
        self.shared.news.notify_one();
        is_first
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.shared.lock().ended = true;
        self.shared.news.notify_one();
    }

    /// A signal to stop has come: a FIFO without a reader is given up.
    pub(super) fn hurry(&self) {
        self.shared.lock().hurried = true;
    }

    /// A pipe that becomes readable when all is written, or given up.
    pub(super) fn ended(&self) -> &PipeReader {
        &self.ended
    }

    /// Whether entries were left out.
    pub(super) fn is_incomplete(&self) -> bool {
        self.shared.lock().lost > 0
    }

    /// How many bytes have been written.
    pub(super) fn written(&self) -> u64 {
        self.shared.lock().written
    }

    /// How many entries may be missing if this process ends now.
    pub(super) fn missing(&self) -> u64 {
        let queue = self.shared.lock();
        queue.lost + queue.unwritten + queue.waiting.beyond(0)
    }
}

/// Waits until a FIFO has a reader, or is given up.
fn wait_for_reader(file: &mut impl Target, name: &str, shared: &Shared) {
    let mut looks = 0;
    // The first write reports any other error of the file.
    while file.try_open().is_err_and(|error| log_file::is_unread(&error)) && !shared.lock().hurried {
        if log_file::LOOK * looks == log_file::PATIENCE {
            say(format!("{name}: it has no reader yet; the stream goes on"));
        }
        looks += 1;
        thread::sleep(log_file::LOOK);
    }
}

/// Writes what is handed over, until its end.
fn write_all(mut file: impl Target, name: &str, shared: &Shared) {
    let mut entries = Entries::default();
    let mut written = 0;
    let mut failed = false;
    loop {
        let mut queue = shared.lock();
        while entries.is_empty() && queue.waiting.is_empty() && !queue.ended {
            queue = shared.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if entries.is_empty() && !queue.waiting.is_empty() {
            entries = mem::take(&mut queue.waiting);
            queue.in_hand = entries.bytes.len();
            queue.unwritten = entries.beyond(0);
        }
        let ended = queue.ended;
        drop(queue);
        match write_some(&mut file, &entries, &mut written, shared) {
            Ok(()) => {
                (entries, written, failed) = (Entries::default(), 0, false);
                let mut queue = shared.lock();
                queue.in_hand = 0;
                if queue.ended && queue.waiting.is_empty() {
                    break tell_loss(name, queue.lost);
                }
            }
            Err(error) if ended => {
                if !failed {
                    say(format!("{name}: {}", words(error)));
                }
                let cut = entries.cut(written);
                if cut > 0 && !file.take_back(cut) {
                    say(format!("{name}: its last entry is cut"));
                }
                let mut queue = shared.lock();
                queue.lost += entries.beyond(written) + queue.waiting.beyond(0);
                break tell_loss(name, queue.lost);
            }
            Err(error) => {
                if !mem::replace(&mut failed, true) {
                    say(format!("{name}: {}; the stream goes on", words(error)));
                }
                drop(shared.news.wait_timeout_while(shared.lock(), AGAIN, |queue| !queue.ended));
            }
        }
    }
}

fn tell_loss(name: &str, lost: u64) {
    match lost {
        0 => {}
        1 => say(format!("{name}: 1 entry was left out")),
        _ => say(format!("{name}: {lost} entries were left out")),
    }
}

/// Writes what is left of the entries; `written` says how far it is.
fn write_some(
    file: &mut impl Write,
    entries: &Entries,
    written: &mut usize,
    shared: &Shared,
) -> io::Result<()> {
    let bytes = &entries.bytes;
    while *written < bytes.len() {
        match file.write(&bytes[*written..bytes.len().min(*written + PIECE)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => {
                *written += more;
                let mut queue = shared.lock();
                queue.unwritten = entries.beyond(*written);
                queue.written += more as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `space` bytes, a few at a time, then nothing until it gets more space.
    struct Disk {
        holds: Arc<Mutex<Vec<u8>>>,
        space: Arc<Mutex<usize>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut space = self.space.lock().unwrap();
            let len = bytes.len().min(*space).min(3);
            *space -= len;
            self.holds.lock().unwrap().extend_from_slice(&bytes[..len]);
            match len {
                0 => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(len),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Target for Disk {
        fn try_open(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn take_back(&mut self, bytes: usize) -> bool {
            let mut holds = self.holds.lock().unwrap();
            let len = holds.len() - bytes;
            holds.truncate(len);
            true
        }
    }

    fn entries(texts: &[&str]) -> Entries {
        let mut entries = Entries::default();
        texts.iter().for_each(|text| entries.add(|out| out.extend_from_slice(text.as_bytes())));
        entries
    }

    #[test]
    fn take_from_counts_entries_that_do_not_fit() {
        let mut waiting = entries(&["aa"]);
        let mut more = entries(&["b", "cc", "d"]);
        assert_eq!(waiting.take_from(&mut more, 3), 1);
        assert_eq!((&*waiting.bytes, &*waiting.ends), (&b"aabcc"[..], &[2, 3, 5][..]));
        assert!(more.is_empty() && more.bytes.is_empty());
        assert_eq!((waiting.beyond(0), waiting.beyond(2), waiting.beyond(4)), (3, 2, 1));
    }

    #[test]
    fn log_writes_waiting_entries_once_the_disk_has_space() {
        let (holds, space) = (Arc::default(), Arc::new(Mutex::new(5)));
        let disk = Disk { holds: Arc::clone(&holds), space: Arc::clone(&space) };
        let log = Log::start(disk, "disk".into(), 12, b"").unwrap();
        let wait = |text: &str| {
            while *holds.lock().unwrap() != text.as_bytes() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        log.put(&mut entries(&["one ", "two "]));
        wait("one t");
        // The eight bytes above still count.
        assert!(log.put(&mut entries(&["abc ", "left out "])));
        assert!(!log.put(&mut entries(&["too"])));
        assert_eq!(log.missing(), 4);
        assert!(log.is_incomplete());
        *space.lock().unwrap() = 1000;
        wait("one two abc ");
        log.put(&mut entries(&["longer than all that may wait"]));
        log.end();
        let end = io::read_to_string(log.ended()).unwrap();
        assert_eq!((&*end, log.shared.lock().lost), ("", 2));
        assert!(holds.lock().unwrap().ends_with(b"abc longer than all that may wait"));
    }

    #[test]
    fn log_counts_and_removes_an_unfinished_entry() {
        let (holds, space) = (Arc::default(), Arc::new(Mutex::new(6)));
        let disk = Disk { holds: Arc::clone(&holds), space };
        let log = Log::start(disk, "disk".into(), 100, b"\n").unwrap();
        log.put(&mut entries(&["one ", "two ", "three "]));
        log.end();
        io::read_to_string(log.ended()).unwrap();
        assert_eq!(log.shared.lock().lost, 2);
        assert_eq!(*holds.lock().unwrap(), b"\none ");
    }
}
