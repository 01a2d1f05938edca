//! The bytes of a pipe, kept until all that they make is acknowledged.
//!
//! Bytes go from the pipe into the journal's file in one system call that takes out only what it
//! puts in, so no kill comes between. Each item is known by where it ends in the stream, which does
//! not depend on how often the bytes are read: a bridge that starts again publishes the same names.
//!
//! The file begins with a head of 80 bytes in the machine's byte order: the magic number, the
//! journal's name, the options that decide what the bytes mean, where in the stream the file's
//! first byte stands, from where on to read again, up to which item all is acknowledged, and which
//! start of the machine this is. When much of it is not needed any more, a new file takes its place
//! by `rename`.
//!
//! A machine that loses its power may forget the last bytes of the file. Other bytes would then get
//! the names of those that were published, and be mistaken for them. So a journal gets another name
//! after the machine was restarted.

use crate::channel::{Failure, at};
use crate::names::digest;
use pipework::{Deadline, ErrorKind, fd};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: [u8; 16] = *b"pipework-nats 2\n";
const HEAD: u64 = 80;
/// Offsets in the head: each acknowledgement changes `PROGRESS`.
const NAME: u64 = 16;
const BASE: u64 = 32;
const PROGRESS: u64 = 40;
const BOOT: u64 = 64;

/// When this many bytes are not needed any more, the file is written again without them.
const STALE: u64 = 4 << 20;
/// An unfinished message that began this many bytes ago is not kept for another start.
const LONGEST: u64 = 1 << 30;
/// Bytes that are taken out of the pipe at once.
const BLOCK: u64 = 64 << 10;

/// The end of an item in the stream; of several that end at one place, which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) end: u64,
    pub(crate) nth: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nth {
            0 => write!(f, "{}", self.end),
            nth => write!(f, "{}.{nth}", self.end),
        }
    }
}

impl Place {
    /// Reads the output of `to_string`, and nothing else.
    pub(crate) fn read(text: &str) -> Option<Place> {
        let (end, nth) = text.split_once('.').unwrap_or((text, "0"));
        let place = Place { end: end.parse().ok()?, nth: nth.parse().ok()? };
        (place.to_string() == text).then_some(place)
    }
}

/// The result of looking into the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes.
    Bytes(u64),
    /// Nothing is there now.
    Nothing,
    /// The pipe is empty, and no process has it open for writing.
    NoWriter,
}

#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// None for one that ends with the process.
    path: Option<PathBuf>,
    name: [u8; 8],
    options: u64,
    base: u64,
    from: u64,
    acked: Place,
    end: u64,
}

impl Journal {
    /// Opens the journal at `path`, or makes it; without a path, one that ends with the process.
    pub(crate) fn open(path: Option<&Path>, options: u64) -> Result<Journal, Failure> {
        let Some(path) = path else {
            let file = unnamed().map_err(at("memory for what is not acknowledged"))?;
            return Journal::new(file, None, options).map_err(at("memory for what is not acknowledged"));
        };
        let failed = || at(path.display());
        loop {
            let file = match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (file, aside) = create(path, &std::process::id().to_string()).map_err(failed())?;
                    let journal = Journal::new(file, Some(path.into()), options).map_err(failed())?;
                    // Another process may have been quicker and made it.
                    let linked = std::fs::hard_link(&aside, path);
                    std::fs::remove_file(&aside).map_err(failed())?;
                    match linked {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                        linked => linked.map_err(failed())?,
                    }
                    return Ok(journal);
                }
                Err(error) => return Err(failed()(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure(format!("{}: another program uses this journal", path.display())));
                }
                Err(TryLockError::Error(error)) => return Err(failed()(error)),
            }
            // Another program may have put a new file in its place before the lock.
            let (ours, there) = (file.metadata().map_err(failed())?, std::fs::metadata(path));
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                return Journal::read(file, path, options);
            }
        }
    }

    fn new(file: File, path: Option<PathBuf>, options: u64) -> io::Result<Journal> {
        let name = new_name()?;
        let (base, from, acked, end) = (0, 0, Place::default(), 0);
        let journal = Journal { file, path, name, options, base, from, acked, end };
        journal.write_head(&journal.file)?;
        if journal.path.is_some() {
            journal.file.try_lock().map_err(io::Error::from)?;
        }
        Ok(journal)
    }

    fn read(mut file: File, path: &Path, options: u64) -> Result<Journal, Failure> {
        let refused = |why: &str| Failure(format!("{}: {why}", path.display()));
        let mut head = [0; HEAD as usize];
        let read = file.read_exact_at(&mut head, 0);
        if read.is_err() || head[..16] != MAGIC {
            return Err(refused("this is no journal of `pipework nats publish`"));
        }
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        if word(24) != options {
            return Err(refused("this journal is of a pipe with other options (--mixed, --lines, --zstd)"));
        }
        let len = file.seek(SeekFrom::End(0)).map_err(at(path.display()))?;
        let (base, from, acked) = (word(32), word(40), Place { end: word(48), nth: word(56) });
        let mut name = head[16..24].try_into().expect("eight bytes");
        let (mut base, mut end) = (base, base.saturating_add(len - HEAD));
        let boot = boot();
        if head[BOOT as usize..] != boot {
            let renamed = new_name().and_then(|new| {
                name = new;
                file.write_all_at(&name, NAME)?;
                // The missing bytes were acknowledged.
                if from > end {
                    file.set_len(HEAD)?;
                    file.write_all_at(&from.to_ne_bytes(), BASE)?;
                    (base, end) = (from, from);
                }
                file.write_all_at(&boot, BOOT)
            });
            renamed.map_err(at(path.display()))?;
        }
        if from < base || from > end {
            return Err(refused("this journal is damaged"));
        }
        file.seek(SeekFrom::End(0)).map_err(at(path.display()))?;
        Ok(Journal { file, path: Some(path.into()), name, options, base, from, acked, end })
    }

    fn write_head(&self, file: &File) -> io::Result<()> {
        let mut head = MAGIC.to_vec();
        head.extend(self.name);
        for word in [self.options, self.from, self.from, self.acked.end, self.acked.nth] {
            head.extend(word.to_ne_bytes());
        }
        head.extend(boot());
        file.write_all_at(&head, 0)?;
        (&*file).seek(SeekFrom::End(0)).map(drop)
    }

    /// Names the item that ends at `place`, for all time.
    pub(crate) fn name_of(&self, place: Place) -> String {
        format!("{:016x}.{place}", u64::from_be_bytes(self.name))
    }

    /// The end of the known part of the stream.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Up to which item all is acknowledged.
    pub(crate) fn acked(&self) -> Place {
        self.acked
    }

    /// From where on the stream is to be read.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// Whether another start reads it again.
    pub(crate) fn stays(&self) -> bool {
        self.path.is_some()
    }

    /// Takes bytes out of the pipe without waiting.
    pub(crate) fn take(&mut self, pipe: &File) -> Result<Taken, Failure> {
        let now = Deadline::from(Duration::ZERO);
        let is_fifo = pipe.metadata().map_err(at("the pipe"))?.file_type().is_fifo();
        let moved = match is_fifo {
            true => fd::splice_all(pipe, &self.file, BLOCK, now),
            // Of a socket the bytes are read first: there a kill may come between.
            false => fd::copy_all(pipe, &self.file, BLOCK, now),
        };
        let (done, has_ended) = match moved {
            Ok(done) => (done, done < BLOCK),
            Err(stopped) if matches!(stopped.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                (stopped.done, false)
            }
            Err(stopped) => {
                self.end += stopped.done;
                return Err(at("from the pipe into the journal")(stopped.error));
            }
        };
        self.end += done;
        Ok(match (done, has_ended) {
            (0, true) => Taken::NoWriter,
            (0, false) => Taken::Nothing,
            _ => Taken::Bytes(done),
        })
    }

    /// Puts the bytes from `position` of the stream on into `pipe`, as many as it has space for;
    /// says how many.
    pub(crate) fn feed(&self, position: u64, pipe: impl AsFd) -> Result<u64, Failure> {
        let (offset, len) = (HEAD + position - self.base, self.end - position);
        match fd::sendfile_all(pipe, &self.file, offset, len, Deadline::from(Duration::ZERO)) {
            Ok(done) => Ok(done),
            Err(stopped) if matches!(stopped.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                Ok(stopped.done)
            }
            Err(stopped) => Err(at("from the journal")(stopped.error)),
        }
    }

    /// All up to `acked` is acknowledged, and all that is not began at `from` or later. A message
    /// that began long before `parsed` is not kept for ever.
    pub(crate) fn advance(&mut self, from: u64, parsed: u64, acked: Place) -> Result<(), Failure> {
        let from = if parsed.saturating_sub(from) > LONGEST { parsed } else { from };
        if (from, acked) <= (self.from, self.acked) {
            return Ok(());
        }
        (self.from, self.acked) = (from.max(self.from), acked.max(self.acked));
        let (stale, kept) = (self.from - self.base, self.end - self.from);
        if stale >= STALE.max(kept) {
            return self.begin_anew().map_err(at("the journal"));
        }
        let mut progress = [0; 24];
        for (at, word) in [self.from, self.acked.end, self.acked.nth].into_iter().enumerate() {
            progress[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        self.file.write_all_at(&progress, PROGRESS).map_err(at("the journal"))
    }

    /// Continues in a new file that holds only the bytes still needed.
    fn begin_anew(&mut self) -> io::Result<()> {
        let (file, aside) = match &self.path {
            None => (unnamed()?, None),
            Some(path) => create(path, "new").map(|(file, aside)| (file, Some(aside)))?,
        };
        self.write_head(&file)?;
        self.file.seek(SeekFrom::Start(HEAD + self.from - self.base))?;
        io::copy(&mut (&self.file).take(self.end - self.from), &mut &file)?;
        if let (Some(aside), Some(path)) = (aside, &self.path) {
            file.try_lock().map_err(io::Error::from)?;
            std::fs::rename(aside, path)?;
        }
        (self.file, self.base) = (file, self.from);
        Ok(())
    }
}

fn new_name() -> io::Result<[u8; 8]> {
    let mut name = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut name)?;
    Ok(name)
}

/// Identifies this start of the machine; if that is not possible, the same value for all.
fn boot() -> [u8; 16] {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    digest(&id).to_ne_bytes()
}

/// A file in memory without a path.
fn unnamed() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("pipework-nats", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// A new file beside `path`, for its owner only.
fn create(path: &Path, suffix: &str) -> io::Result<(File, PathBuf)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    let aside = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    Ok((options.open(&aside)?, aside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn places_round_trip() {
        for (end, nth) in [(0, 0), (7, 0), (7, 1), (u64::MAX, u64::MAX)] {
            let place = Place { end, nth };
            assert_eq!(Place::read(&place.to_string()), Some(place));
        }
        for wrong in ["", ".", "7.", ".7", "7.0", "07", "+7", "7.1.1", "18446744073709551616", "x"] {
            assert_eq!(Place::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn journal_keeps_its_name_until_the_machine_restarts() {
        let path = std::env::temp_dir().join(format!("pipework-journal-{}", std::process::id()));
        let open = || Journal::open(Some(&path), 0);
        let fill = |journal: &mut Journal, bytes: &[u8]| {
            let (reading, mut writing) = io::pipe().unwrap();
            io::Write::write_all(&mut writing, bytes).unwrap();
            let taken = journal.take(&File::from(OwnedFd::from(reading))).unwrap();
            assert_eq!(taken, Taken::Bytes(bytes.len() as u64));
        };
        let mut journal = open().unwrap();
        fill(&mut journal, &[7; 1000]);
        let name = journal.name;
        journal.advance(600, 1000, Place { end: 600, nth: 0 }).unwrap();
        drop(journal);
        let journal = open().unwrap();
        assert_eq!((journal.name, journal.from, journal.end), (name, 600, 1000));
        drop(journal);
        let start_anew = || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[0; 16], BOOT).unwrap();
            file
        };
        drop(start_anew());
        let journal = open().unwrap();
        assert_ne!(journal.name, name);
        let (name, known) = (journal.name, (journal.from, journal.acked.end, journal.end));
        assert_eq!(known, (600, 600, 1000));
        drop(journal);
        assert_eq!(open().unwrap().name, name, "only once");
        // Shorter than the acknowledged part: refused, unless its machine has lost the rest.
        let cut = || OpenOptions::new().write(true).open(&path).unwrap().set_len(HEAD + 100).unwrap();
        cut();
        assert!(open().unwrap_err().0.contains("damaged"));
        start_anew().set_len(HEAD + 100).unwrap();
        let mut journal = open().unwrap();
        assert_eq!((journal.base, journal.from, journal.end), (600, 600, 600));
        fill(&mut journal, b"more");
        drop(journal);
        let journal = open().unwrap();
        assert_eq!((journal.base, journal.from, journal.end), (600, 600, 604));
        std::fs::remove_file(&path).unwrap();
    }
}
