//! Standard error, written so that no thread that handles signals waits for it.
//!
//! While signals are held, a thread of its own writes. A standard error that stands still (a full
//! pipe, a stopped terminal) stops that thread and nothing else. Lines that it does not take wait in
//! memory, up to a limit. Lines beyond the limit are left out, and their number is printed in their
//! place. While no signals are held, the caller writes: any signal ends that wait.

use crate::{streams, sys};
use std::io::{self, Write};
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that may wait, besides those that the thread is writing.
const MOST: usize = 64 << 10;
/// Bytes of one write: a pipe keeps them together, so that lines of several programs do not mix.
const PIECE: usize = 4096;
/// How long a caller waits for space, once, and how long the end of the command waits for
/// everything to be written when it was a signal that ended it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

static WORDS: Words = Words::new();

/// Writes text, which is whole lines, or lets it wait.
pub(crate) fn put(text: &str) {
    pass_on(text.as_bytes());
}

/// The same with the output of a command.
pub(crate) fn pass_on(text: &[u8]) {
    if sys::are_signals_held() || !WORDS.lock().is_empty() {
        WORDS.put(text, stderr, PATIENCE);
    } else {
        // If it cannot be written, no other place is left to report it.
        let _ = streams::stderr().write_all(text);
    }
}

/// Writes text that is out of date by the next one: it is dropped if it would have to wait.
pub(crate) fn put_if_idle(text: &str) {
    if WORDS.lock().is_empty() {
        put(text);
    }
}

/// Waits until everything is written. After a signal to stop it waits for a moment only; otherwise
/// until a signal ends the process, so none is held any more.
pub(crate) fn finish() {
    if WORDS.lock().is_empty() {
        return;
    }
    let until = sys::has_heard_stop().then(|| Instant::now() + PATIENCE);
    if until.is_none() {
        sys::give_signals_back();
    }
    WORDS.finish(until);
}

fn stderr(bytes: &[u8]) -> io::Result<()> {
    streams::stderr().write_all(bytes)
}

struct Words {
    queue: Mutex<Queue>,
    /// Signalled when it has text to write.
    news: Condvar,
    /// The thread has taken what waited, or has written it.
    space: Condvar,
}

struct Queue {
    waiting: Vec<u8>,
    /// The thread has bytes that are not written yet.
    is_writing: bool,
    has_thread: bool,
    /// Lines that were left out and that nothing has been said of.
    lost: u64,
    /// A thread has waited for space without success. No thread waits until space is free.
    stands_still: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing && self.lost == 0
    }

    fn has_space(&self, len: usize) -> bool {
        self.waiting.is_empty() || self.waiting.len() + len <= MOST
    }

    /// Appends the text about lines that were left out.
    fn say_loss(&mut self) {
        let words = match mem::take(&mut self.lost) {
            0 => return,
            1 => "pipework: 1 line was left out here\n".to_string(),
            many => format!("pipework: {many} lines were left out here\n"),
        };
        self.waiting.extend_from_slice(words.as_bytes());
    }
}

impl Words {
    const fn new() -> Self {
        Self {
            queue: Mutex::new(Queue {
                waiting: Vec::new(),
                is_writing: false,
                has_thread: false,
                lost: 0,
                stands_still: false,
            }),
            news: Condvar::new(),
            space: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands text to the thread, which writes it with `write`. Waits this long for space, unless
    /// that was of no use the last time.
    fn put(
        &'static self,
        text: &[u8],
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        patience: Duration,
    ) {
        let mut queue = self.lock();
        if !queue.has_space(text.len()) && !queue.stands_still {
            let waited = self.space.wait_timeout_while(queue, patience, |queue| !queue.has_space(text.len()));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.stands_still = !queue.has_space(text.len());
        }
        if !queue.has_space(text.len()) {
            queue.lost += text.iter().filter(|&&byte| byte == b'\n').count() as u64;
            return;
        }
        queue.say_loss();
        queue.waiting.extend_from_slice(text);
        if !queue.has_thread {
            // Its signals are those of the thread that starts it, all of which are held.
            queue.has_thread = thread::Builder::new().spawn(move || self.write_all(write)).is_ok();
        }
        self.news.notify_one();
    }

    /// The work of the thread, until the process ends.
    fn write_all(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut queue = self.lock();
        loop {
            queue = self
                .news
                .wait_while(queue, |queue| queue.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            let bytes = mem::take(&mut queue.waiting);
            (queue.is_writing, queue.stands_still) = (true, false);
            drop(queue);
            self.space.notify_all();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(piece(rest));
                // If it cannot be written, no other place is left to report it.
                let _ = write(piece);
                rest = more;
            }
            queue = self.lock();
            queue.is_writing = false;
            if queue.waiting.is_empty() {
                queue.say_loss();
            }
            self.space.notify_all();
        }
    }

    /// Waits until everything is written, at most until `until`.
    fn finish(&self, until: Option<Instant>) {
        let mut queue = self.lock();
        while queue.has_thread && !queue.is_empty() {
            let left = until.map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            queue = self.space.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How much of it to write at once: whole lines, as far as they are short enough.
fn piece(rest: &[u8]) -> usize {
    let most = rest.len().min(PIECE);
    let end = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
    end(&rest[..most]).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn lines_over_the_limit_are_counted_in_their_place() {
        static WORDS: Words = Words::new();
        let (go, gone) = mpsc::channel::<()>();
        let (written, seen) = mpsc::channel();
        let write = move |bytes: &[u8]| {
            gone.recv().map_err(io::Error::other)?;
            written.send(bytes.to_vec()).map_err(io::Error::other)
        };
        WORDS.put(b"first\n", write, Duration::ZERO);
        // From now on the thread writes, and does not come back.
        while !WORDS.lock().is_writing || !WORDS.lock().waiting.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let none = |_: &[u8]| Ok(());
        let line = [vec![b'x'; 999], vec![b'\n']].concat();
        for _ in 0..MOST / line.len() + 7 {
            WORDS.put(&line, none, Duration::ZERO);
        }
        let queue = WORDS.lock();
        assert_eq!((queue.lost, queue.waiting.len()), (7, MOST / line.len() * line.len()));
        assert!(queue.stands_still);
        drop(queue);
        drop((0..MOST).map(|_| go.send(())).collect::<Vec<_>>());
        WORDS.finish(None);
        let all = seen.try_iter().flatten().collect::<Vec<_>>();
        let lines: Vec<_> = all.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(lines[0], b"first\n");
        assert_eq!(lines.last().unwrap(), b"pipework: 7 lines were left out here\n");
        assert_eq!(lines.len(), MOST / line.len() + 2);
    }

    #[test]
    fn piece_is_whole_lines_if_they_are_short() {
        assert_eq!(piece(b"a\nb\nc"), 4);
        assert_eq!(piece(b"abc"), 3);
        assert_eq!(piece(&[vec![b'x'; 5000], vec![b'\n']].concat()), PIECE);
    }

    #[test]
    fn end_after_a_signal_does_not_wait_for_a_stuck_writer() {
        static WORDS: Words = Words::new();
        WORDS.put(
            b"never\n",
            |_| loop {
                thread::park()
            },
            Duration::ZERO,
        );
        WORDS.finish(Some(Instant::now()));
        assert!(!WORDS.lock().is_empty());
    }
}
