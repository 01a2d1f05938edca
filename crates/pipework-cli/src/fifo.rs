//! A FIFO among receivers that come and go: one reads at a time, and bytes that none has taken are
//! kept.
//!
//! Two receivers at once would tear each other's messages, so each takes turns under a lock of the
//! kernel (flock), which ends with its holder. And a FIFO holds its bytes only while a process has
//! it open: if the senders are gone, a receiver that stops in the middle would drop the rest. So a
//! receiver that is the last to leave starts a keeper: a process that holds the writing end, as if
//! the senders were still there, until another process reads again, or the FIFO is removed. No job
//! of a loop around `pipework recv --count 1` is lost.

use crate::failure::{Failure, at, words};
use crate::streams;
use crate::sys::{self, Stir};
use pipework::atomic::Reader;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The first argument that makes this process a keeper. It is no subcommand, so that it appears in
/// no help, completion or page.
pub(crate) const FIFO_KEEPER: &str = "fifo-keeper";

/// A keeper that stays for longer than this does not run.
const STUCK: Duration = Duration::from_secs(1);

/// A turn at reading a FIFO, and the right to take the next one.
pub(crate) struct Turn {
    /// An open file of our own, for the lock belongs to it.
    fifo: OwnedFd,
    /// The path at which it was opened. Another file may be there by now.
    path: PathBuf,
    is_held: Cell<bool>,
}

impl Turn {
    /// For the FIFO at `path`; to be called before it is opened for messages. `rest` has kept what
    /// lies there until now. None if it cannot be opened, which the next one who opens it learns.
    pub(crate) fn at(path: &Path, rest: Option<Rest>) -> Option<Self> {
        let fifo = sys::open_fifo(path, sys::FifoEnd::Reading).ok()?;
        // The end that was just opened keeps it from now on.
        drop(rest);
        Some(Self { fifo, path: path.to_path_buf(), is_held: Cell::new(false) })
    }

    /// Refuses the FIFO of another user. That user may have made it where ours is expected, and
    /// could send any data.
    pub(crate) fn refuse_other_owner(&self) -> Result<(), Failure> {
        let path = self.path.display();
        match sys::owner(&self.fifo).map_err(at(&path))? == sys::user() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{path}: it belongs to another user, who decides what comes through it; without \
                 --create it is used all the same"
            ))),
        }
    }

    /// Whether the path still refers to this FIFO.
    pub(crate) fn is_at_its_path(&self) -> bool {
        sys::is_file_at(&self.fifo, &self.path)
    }

    /// Lets a reader that was just opened end with the senders of the bytes in the FIFO. The reader
    /// never saw senders that had left before, so it would wait for a first one.
    pub(crate) fn count_earlier_senders(&self) {
        if sys::unread(&self.fifo) > 0 {
            // This end replaces theirs. If it cannot be opened, nothing can be done.
            drop(self.writing_end());
        }
    }

    /// Takes the turn if no other process reads; returns whether it did. Sends a keeper away, whose
    /// end would otherwise look like that of the last sender.
    pub(crate) fn try_take(&self) -> Result<bool, Failure> {
        self.taken(sys::try_lock(&self.fifo))
    }

    /// The same, as soon as no other process reads, unless `gives_up`, which is called again and
    /// again.
    pub(crate) fn take_unless(&self, gives_up: impl FnMut() -> bool) -> Result<bool, Failure> {
        self.taken(sys::lock_unless(&self.fifo, gives_up))
    }

    fn taken(&self, outcome: io::Result<bool>) -> Result<bool, Failure> {
        let taken = outcome.map_err(at(self.path.display()))?;
        if taken {
            self.is_held.set(true);
            let began = Instant::now();
            // It goes as soon as it sees us, unless it was stopped.
            while !sys::is_free_of_keepers(&self.fifo) && began.elapsed() < STUCK {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(taken)
    }

    /// The turn did not come in time.
    pub(crate) fn overdue(&self) -> Failure {
        let path = self.path.display();
        Failure::timeout(format!("{path}: another receiver reads from it, and did not leave in time"))
    }

    /// Lets others read; to be called when this process holds nothing that belongs to what they
    /// will read.
    pub(crate) fn give(&self) -> Result<(), Failure> {
        self.is_held.set(false);
        sys::unlock(&self.fifo).map_err(at(self.path.display()))
    }

    /// Closes the FIFO. Returns the bytes that would be lost if this was the last process with it
    /// open for reading. Fails if bytes may be lost because this process may not write to the FIFO.
    pub(crate) fn leave(self, reader: Option<Reader>) -> Result<Option<Rest>, Failure> {
        // A sender may have seen this end only, and write just now.
        let is_held = self.is_held.get() || sys::try_lock(&self.fifo).unwrap_or(true);
        let unread = sys::unread(&self.fifo);
        if !is_held && unread == 0 {
            // To the receiver that has the turn, the end below would be that of a sender.
            return Ok(None);
        }
        // With a writing end open the bytes stay.
        let fifo = match (self.writing_end(), unread) {
            (Ok(fifo), _) => fifo,
            (Err(_), 0) => return Ok(None),
            (Err(error), bytes) => {
                let unless = "are lost unless somebody else has it open";
                return Err(lost(&self.path, bytes, unless, error));
            }
        };
        let rest = Rest { fifo, path: self.path };
        // Before the turn ends: the holder of the next one sees that this end is no sender's. The
        // keeper inherits the mark.
        sys::try_to_keep(&rest.fifo);
        drop((reader, self.fifo));
        Ok(rest.is_abandoned().then_some(rest))
    }

    /// Opens the writing end of this very FIFO, which may have another name by now, or another FIFO
    /// its name.
    fn writing_end(&self) -> io::Result<OwnedFd> {
        let link = format!("/proc/self/fd/{}", self.fifo.as_raw_fd());
        match sys::open_again(Path::new(&link), sys::FifoEnd::Writing) {
            // The system has no /proc.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_at_its_path() => {
                sys::open_fifo(&self.path, sys::FifoEnd::Writing)
            }
            opened => opened,
        }
    }
}

/// The bytes in a FIFO that no process reads any more.
pub(crate) struct Rest {
    /// The writing end.
    fifo: OwnedFd,
    path: PathBuf,
}

impl Rest {
    /// Whether the FIFO has bytes and no reader, and one may still come.
    fn is_abandoned(&self) -> bool {
        sys::unread(&self.fifo) > 0 && !sys::has_reader(&self.fifo) && !sys::is_unlinked(&self.fifo)
    }

    /// Starts a keeper.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Self { fifo, path } = self;
        let bytes = sys::unread(&fifo);
        let mut command = Command::new("/proc/self/exe");
        // The name in the list of processes says what it is, and which FIFO it keeps.
        command.arg0("pipework").arg(FIFO_KEEPER).arg(std::path::absolute(&path).unwrap_or(path.clone()));
        command.current_dir("/").process_group(0);
        command.stdin(fifo).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(drop).map_err(|error| lost(&path, bytes, "are lost", error))
    }
}

fn lost(path: &Path, bytes: u64, are_lost: &str, error: io::Error) -> Failure {
    let path = path.display();
    Failure::new(format!("{path}: {bytes} unread bytes {are_lost}: {}", words(error)))
}

/// Is a keeper: standard input is the writing end of a FIFO.
pub(crate) fn keep() -> Result<u8, Failure> {
    // A process that waits for the end of another pipe must not wait for this one.
    sys::close_all_but_standard();
    sys::name_thread(c"pipework");
    let fifo = streams::stdin()?.as_fd().try_clone_to_owned().map_err(at(FIFO_KEEPER))?;
    let rest = Rest { fifo, path: PathBuf::new() };
    let stir = Stir::watch(&rest.fifo);
    // One is enough; this one waits, lest the other one has just decided to go.
    sys::keep_in_turn(&rest.fifo);
    while rest.is_abandoned() {
        stir.wait();
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipework::atomic::{Options, create_fifo};
    use std::io::Write;

    #[test]
    fn turn_with_a_kept_rest_is_free_of_keepers() {
        let path = std::env::temp_dir().join(format!("pipework-fifo-{}", std::process::id()));
        create_fifo(&path).unwrap();
        let turn = Turn::at(&path, None).unwrap();
        assert!(turn.try_take().unwrap());
        let reader = Options::new().read_fifo(&path).unwrap();
        let sender = sys::open_fifo(&path, sys::FifoEnd::Writing).unwrap();
        std::fs::File::from(sender).write_all(b"unread").unwrap();
        let rest = turn.leave(Some(reader)).unwrap().expect("it would be lost");
        let turn = Turn::at(&path, Some(rest)).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(sys::is_free_of_keepers(&turn.fifo));
        assert_eq!(sys::unread(&turn.fifo), 6);
    }
}
