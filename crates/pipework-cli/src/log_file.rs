//! A file to which messages are written, one behind the other.
//!
//! It is opened without blocking: a FIFO without a reader is tried again by a caller that has other
//! work meanwhile. No entry runs into the bytes before it, and of an entry that a full disk has cut
//! nothing stays behind, unless another process writes to the file.

use crate::failure::{Failure, at};
use crate::location::{self, Location};
use crate::progress::say;
use crate::streams::{self, Stream};
use crate::sys;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How soon a FIFO without a reader is tried again.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// How long a reader may take to come before anything is said.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct LogFile {
    /// Its user's name for it.
    pub(crate) name: String,
    way: Way,
    /// It ends in the middle of an entry.
    pub(crate) ends_inside: bool,
}

enum Way {
    Open(File),
    /// A FIFO without a reader so far. The descriptor shows others that it is waited for.
    Unread(PathBuf, #[expect(dead_code, reason = "it is held, not used")] OwnedFd),
}

impl LogFile {
    /// The file at `path`, which is emptied unless `append`; `None` if that is `stdout`, which is
    /// not touched. `end` is the byte that ends an entry. To be called before a descriptor of our
    /// own could have the number of the user's.
    pub(crate) fn open(path: &Path, append: bool, end: u8, stdout: Stream) -> Result<Option<Self>, Failure> {
        let name = path.display().to_string();
        let path = match Location::of(path, 1) {
            Location::Descriptor(number) => return Self::inherited(number, name, end, stdout),
            Location::Path(path) => path,
        };
        if sys::is_file_at(stdout, &path) {
            return Ok(None);
        }
        let comes_from_there = |stdin: Stream| sys::is_file_at(stdin, &path);
        if !append && path.is_file() && streams::stdin().is_ok_and(comes_from_there) {
            let text = format!("{name}: standard input comes from there; name another file, or --append");
            return Err(Failure::new(text));
        }
        let mut options = File::options();
        options.write(true).create(true).append(append).truncate(!append).custom_flags(libc::O_NONBLOCK);
        let way = match options.open(&path) {
            Ok(file) => {
                sys::wait_again(&file).map_err(at(&name))?;
                Way::Open(file)
            }
            Err(error) if is_unread(&error) && is_fifo(&path) => {
                Way::Unread(path.clone(), sys::find(&path).map_err(at(&name))?)
            }
            Err(error) => return Err(at(name)(error)),
        };
        Ok(Some(Self { name, way, ends_inside: append && ends_inside(&path, end) }))
    }

    /// A descriptor that is open already.
    pub(crate) fn inherited(
        number: i32,
        name: String,
        end: u8,
        stdout: Stream,
    ) -> Result<Option<Self>, Failure> {
        let fd = location::inherited(number)?;
        if sys::same_file(&fd, stdout).map_err(at(&name))? {
            return Ok(None);
        }
        let file = File::from(fd);
        let itself = PathBuf::from(format!("/proc/self/fd/{number}"));
        let ends_inside = sys::appends(&file) && ends_inside(&itself, end);
        Ok(Some(Self { name, way: Way::Open(file), ends_inside }))
    }

    /// A file that is open already.
    pub(crate) fn of(file: File, name: String) -> Self {
        Self { name, way: Way::Open(file), ends_inside: false }
    }

    /// Opens a FIFO if it has a reader, and else fails with ENXIO.
    pub(crate) fn try_open(&mut self) -> io::Result<()> {
        if let Way::Unread(path, _) = &self.way {
            let fifo = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            sys::wait_again(&fifo)?;
            self.way = Way::Open(fifo);
        }
        Ok(())
    }

    /// The file, if it can take data without further steps.
    pub(crate) fn into_file(mut self) -> Result<File, Failure> {
        let mut looks = 0;
        while let Err(error) = self.try_open() {
            if !is_unread(&error) {
                return Err(at(self.name)(error));
            }
            if LOOK * looks == PATIENCE {
                say(format!("{}: waiting for a reader", self.name));
            }
            looks += 1;
            thread::sleep(LOOK);
        }
        match self.way {
            Way::Open(file) => Ok(file),
            Way::Unread(..) => unreachable!("it was opened"),
        }
    }

    /// Takes back the end of the bytes written; see [`take_back`].
    pub(crate) fn take_back(&mut self, bytes: usize) -> bool {
        match &mut self.way {
            Way::Open(file) => take_back(file, bytes),
            Way::Unread(..) => false,
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.way {
            Way::Open(file) => file.write(bytes),
            Way::Unread(..) => Err(Errno::NXIO.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes back the last `bytes` bytes written; false if it cannot, or another process has written
/// behind them.
pub(crate) fn take_back(file: &mut File, bytes: usize) -> bool {
    let ours = file.stream_position().ok().and_then(|end| Some((end, end.checked_sub(bytes as u64)?)));
    let Some((end, begin)) = ours else { return false };
    let is_last = file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == end);
    is_last && file.set_len(begin).is_ok() && file.seek(SeekFrom::Start(begin)).is_ok()
}

/// The FIFO has no reader.
pub(crate) fn is_unread(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NXIO)
}

fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
}

/// Whether a file ends with anything but `end`: its writer was killed, or the disk was full. One
/// that may not be read is taken to be whole.
fn ends_inside(path: &Path, end: u8) -> bool {
    let mut last = [end];
    let mut look = || -> io::Result<()> {
        let meta = path.metadata()?;
        if meta.is_file() && meta.len() > 0 {
            File::open(path)?.read_exact_at(&mut last, meta.len() - 1)?;
        }
        Ok(())
    };
    look().is_ok() && last != [end]
}
