//! The file that `pipework tee` writes, by a thread of its own: a disk may be slow, full, or gone,
//! and nobody who hands something over waits for it.
//!
//! What cannot be written stays in memory and is tried again; beyond a limit, entries are left out
//! and counted. An entry is written whole, or it is the last one and the file could take no more.

use crate::failure::{Failure, at};
use crate::progress::say;
use std::io::{self, PipeReader, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How soon a file that has failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Entries in their order, ready to be written.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Entries {
    /// Adds an entry, which `append` writes to the end of what is given to it.
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

    /// How many there are beyond the first so many bytes.
    fn beyond(&self, written: usize) -> u64 {
        self.ends.iter().filter(|end| **end > written).count() as u64
    }
}

/// What is handed over.
struct Queue {
    waiting: Entries,
    /// Bytes that the thread is about to write.
    in_hand: usize,
    /// How many bytes may wait, those in hand included; a single entry may be longer.
    limit: usize,
    /// Entries that were left out.
    lost: u64,
    /// What is to be said on standard error, which may stand still as any file.
    words: Vec<String>,
    ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// There is something new in it.
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log as those see it who write to it.
pub(super) struct Log {
    shared: Arc<Shared>,
    /// At its end when the thread has ended.
    ended: PipeReader,
}

impl Log {
    /// Starts the thread that writes to `file`, which is called `name`.
    pub(super) fn start(
        file: impl Write + Send + 'static,
        name: String,
        limit: usize,
    ) -> Result<Self, Failure> {
        let (ended, alive) = io::pipe().map_err(at("pipe"))?;
        let waiting = Entries::default();
        let queue = Mutex::new(Queue { waiting, in_hand: 0, limit, lost: 0, words: vec![], ended: false });
        let shared = Arc::new(Shared { queue, news: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let work = move || {
            write_all(file, &name, &theirs);
            drop(alive);
        };
        thread::Builder::new().spawn(work).map_err(at("threads"))?;
        Ok(Self { shared, ended })
    }

    /// Hands entries over, which leaves none.
    pub(super) fn put(&self, entries: &mut Entries) {
        if entries.is_empty() {
            return;
        }
        let mut queue = self.shared.lock();
        let waits = queue.in_hand + queue.waiting.bytes.len();
        let space = match waits {
            0 => queue.limit.max(entries.ends[0]),
            _ => queue.limit.saturating_sub(waits),
        };
        queue.lost += queue.waiting.take_from(entries, space);
        self.shared.news.notify_one();
    }

    /// Says something on standard error.
    pub(super) fn say(&self, words: String) {
        self.shared.lock().words.push(words);
        self.shared.news.notify_one();
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.shared.lock().ended = true;
        self.shared.news.notify_one();
    }

    /// What becomes readable when all is written, or given up.
    pub(super) fn ended(&self) -> &PipeReader {
        &self.ended
    }

    /// Whether entries were left out.
    pub(super) fn is_incomplete(&self) -> bool {
        self.shared.lock().lost > 0
    }
}

/// Writes what is handed over, until its end.
fn write_all(mut file: impl Write, name: &str, shared: &Shared) {
    let mut entries = Entries::default();
    let mut written = 0;
    let mut failed = false;
    loop {
        let mut queue = shared.lock();
        while entries.is_empty() && queue.waiting.is_empty() && queue.words.is_empty() && !queue.ended {
            queue = shared.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let (words, ended) = (mem::take(&mut queue.words), queue.ended);
        if entries.is_empty() {
            entries = mem::take(&mut queue.waiting);
            queue.in_hand = entries.bytes.len();
        }
        drop(queue);
        words.iter().for_each(say);
        match write_some(&mut file, &entries.bytes, &mut written) {
            Ok(()) => {
                (entries, written, failed) = (Entries::default(), 0, false);
                let mut queue = shared.lock();
                queue.in_hand = 0;
                if queue.ended && queue.waiting.is_empty() && queue.words.is_empty() {
                    break tell_loss(name, queue.lost);
                }
            }
            Err(error) if ended => {
                say(format!("{name}: {error}"));
                let mut queue = shared.lock();
                queue.lost += entries.beyond(written) + queue.waiting.beyond(0);
                break tell_loss(name, queue.lost);
            }
            Err(error) => {
                if !mem::replace(&mut failed, true) {
                    say(format!("{name}: {error}; the stream goes on"));
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

/// Writes what is left of `bytes`; `written` says how far it is.
fn write_some(file: &mut impl Write, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match file.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => *written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `space` bytes, a few at a time, then nothing until there is more space.
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

    fn entries(texts: &[&str]) -> Entries {
        let mut entries = Entries::default();
        texts.iter().for_each(|text| entries.add(|out| out.extend_from_slice(text.as_bytes())));
        entries
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut waiting = entries(&["aa"]);
        let mut more = entries(&["b", "cc", "d"]);
        assert_eq!(waiting.take_from(&mut more, 3), 1);
        assert_eq!((&*waiting.bytes, &*waiting.ends), (&b"aabcc"[..], &[2, 3, 5][..]));
        assert!(more.is_empty() && more.bytes.is_empty());
        assert_eq!((waiting.beyond(0), waiting.beyond(2), waiting.beyond(4)), (3, 2, 1));
    }

    #[test]
    fn a_disk_that_has_space_again_gets_what_waited() {
        let (holds, space) = (Arc::default(), Arc::new(Mutex::new(5)));
        let disk = Disk { holds: Arc::clone(&holds), space: Arc::clone(&space) };
        let log = Log::start(disk, "disk".into(), 12).unwrap();
        let wait = |text: &str| {
            while *holds.lock().unwrap() != text.as_bytes() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        log.put(&mut entries(&["one ", "two "]));
        wait("one t");
        // The eight bytes above still count.
        log.put(&mut entries(&["abc ", "left out "]));
        log.put(&mut entries(&["too"]));
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
    fn what_was_never_written_is_counted_at_the_end() {
        let (holds, space) = (Arc::default(), Arc::new(Mutex::new(5)));
        let log = Log::start(Disk { holds, space }, "disk".into(), 100).unwrap();
        log.put(&mut entries(&["one ", "two ", "three "]));
        log.end();
        io::read_to_string(log.ended()).unwrap();
        assert_eq!(log.shared.lock().lost, 2);
    }
}
