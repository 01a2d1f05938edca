//! The items of a pipe, each with the place that it has in the stream, by way of the journal.

use crate::channel::{Failure, at};
use crate::envelope::{Envelope, Kind};
use crate::journal::{Journal, Place, Taken};
use crate::ready::Ready;
use bytes::Bytes;
use pipework::atomic::{Item, Options, Reader, Torn};
use pipework::fd::{PollFd, PollFlags};
use pipework::{Deadline, ErrorKind};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::PipeWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to look for another reader.
const TURN: Duration = Duration::from_millis(100);

/// An item that came out of the pipe.
#[derive(Debug)]
pub(crate) enum Found {
    /// To be passed on.
    Message {
        place: Place,
        /// The one before it, or before which all is acknowledged.
        after: Place,
        /// From here on the stream has all of it.
        from: u64,
        envelope: Envelope,
        data: Bytes,
    },
    /// Lost before it came here.
    Torn(Torn),
}

/// The result of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Bytes(u64),
    /// The last writer has left.
    Ended,
}

/// The pipe, the journal behind it, and the reader that makes items of both.
pub(crate) struct Inlet {
    pipe: File,
    /// The same pipe, to wait for bytes.
    ready: Ready,
    path: Option<PathBuf>,
    /// Its lock keeps other readers away, and its end the FIFO open.
    _lock: Option<File>,
    pub(crate) journal: Journal,
    options: Options,
    lines: bool,
    reader: Reader,
    /// Into the reader's pipe; none once that has ended.
    feed: Option<PipeWriter>,
    /// The position in the stream at which the reader began.
    start: u64,
    /// The number of bytes that were fed to readers.
    fed: u64,
    /// From here on the stream has all that the next item may consist of.
    settled: u64,
    last: Place,
    /// The last one that was given out.
    given: Place,
}

impl Inlet {
    /// Opens the FIFO at `path`, or takes standard input.
    pub(crate) async fn open(
        path: Option<&Path>,
        options: Options,
        lines: bool,
        journal: Journal,
    ) -> Result<Inlet, Failure> {
        let (pipe, lock) = match path {
            Some(path) => {
                let lock = turn(path).await?;
                (fifo(path)?, Some(lock))
            }
            None => (standard_input()?, None),
        };
        let ready = watched(&pipe)?;
        let (reader, feed) = reader(&options)?;
        let (start, given, path) = (journal.from(), journal.acked(), path.map(Path::to_path_buf));
        let last = Place { end: start, nth: 0 };
        let feed = Some(feed);
        let (fed, settled) = (start, start);
        Ok(Inlet {
            pipe,
            ready,
            path,
            _lock: lock,
            journal,
            options,
            lines,
            reader,
            feed,
            start,
            fed,
            settled,
            last,
            given,
        })
    }

    /// The next item of the bytes in the journal; `None` if it needs more bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Failure> {
        loop {
            match self.reader.try_next_item() {
                Ok(Some(item)) => {
                    let (envelope, data) = match item {
                        Item::Torn(torn) => {
                            // The rest of a message that was published by an earlier start.
                            if self.parsed() <= self.journal.acked().end {
                                continue;
                            }
                            return Ok(Some(Found::Torn(torn)));
                        }
                        Item::Line(_) if !self.lines => continue,
                        Item::Line(line) => (kind(Kind::Line), Bytes::copy_from_slice(line.content())),
                        Item::Burst(burst) => (kind(Kind::Burst), Bytes::copy_from_slice(&burst)),
                        Item::Message(message) => {
                            let envelope = Envelope { writer: Some(message.writer), ..Envelope::default() };
                            (envelope, Bytes::copy_from_slice(&message))
                        }
                    };
                    let place = self.place();
                    if place > self.journal.acked() {
                        let after = std::mem::replace(&mut self.given, place);
                        return Ok(Some(Found::Message { place, after, from: self.settled, envelope, data }));
                    }
                }
                Ok(None) if self.fed < self.journal.end() => self.feed()?,
                Ok(None) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let why = "what comes is no message; if text shares the pipe, both ends need --mixed";
                    return Err(Failure(why.into()));
                }
                Err(error) => return Err(at("receiving")(error)),
            }
        }
    }

    fn place(&mut self) -> Place {
        let end = self.parsed();
        let nth = if end == self.last.end { self.last.nth + 1 } else { 0 };
        self.last = Place { end, nth };
        self.last
    }

    /// The number of bytes that have become items.
    pub(crate) fn parsed(&self) -> u64 {
        self.start + self.reader.position()
    }

    /// From where on another start has to read, as long as nothing waits to be acknowledged.
    pub(crate) fn settled(&self) -> u64 {
        // A journal that does not stay leaves the bytes to the reader.
        if self.journal.stays() { self.start + self.reader.settled() } else { self.fed }
    }

    fn feed(&mut self) -> Result<(), Failure> {
        self.settled = self.settled();
        if let Some(feed) = &self.feed {
            self.fed += self.journal.feed(self.fed, feed)?;
        }
        Ok(())
    }

    /// Waits for bytes, and takes them into the journal.
    pub(crate) async fn more(&mut self) -> Result<More, Failure> {
        loop {
            let mut ready = self.ready.readable().await.map_err(at("the pipe"))?;
            match self.journal.take(&self.pipe)? {
                Taken::Bytes(bytes) => return Ok(More::Bytes(bytes)),
                Taken::NoWriter if has_ended(&self.pipe)? => return Ok(More::Ended),
                // There has not been one yet.
                Taken::NoWriter | Taken::Nothing => ready.clear_ready(),
            }
        }
    }

    /// The same without waiting; none if nothing is there.
    pub(crate) fn more_now(&mut self) -> Result<Option<u64>, Failure> {
        match self.journal.take(&self.pipe)? {
            Taken::Bytes(bytes) => Ok(Some(bytes)),
            Taken::NoWriter | Taken::Nothing => Ok(None),
        }
    }

    /// No more bytes come: unfinished messages are lost, and the next items report them.
    pub(crate) fn end(&mut self) {
        self.feed = None;
    }

    /// After the end: the pipe begins again with its next writer.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Failure> {
        if let Some(path) = &self.path {
            self.pipe = fifo(path)?;
            self.ready = watched(&self.pipe)?;
        }
        let (reader, feed) = reader(&self.options)?;
        (self.reader, self.feed) = (reader, Some(feed));
        (self.start, self.settled) = (self.fed, self.fed);
        Ok(())
    }
}

fn kind(kind: Kind) -> Envelope {
    Envelope { kind, ..Envelope::default() }
}

fn reader(options: &Options) -> Result<(Reader, PipeWriter), Failure> {
    let (reading, feed) = std::io::pipe().map_err(at("a pipe"))?;
    let reader = options.reader(OwnedFd::from(reading)).map_err(at("a pipe"))?;
    Ok((reader, feed))
}

fn watched(pipe: &File) -> Result<Ready, Failure> {
    let same = pipe.try_clone().map_err(at("the pipe"))?;
    Ready::to_read(same).map_err(at("the pipe"))
}

fn fifo(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
    options.read(true).custom_flags(nonblock.cast_signed());
    let file = options.open(path).map_err(at(path.display()))?;
    match file.metadata().map_err(at(path.display()))?.file_type().is_fifo() {
        true => Ok(file),
        false => Err(Failure(format!("{}: it is not a FIFO; `mkfifo` makes one", path.display()))),
    }
}

/// Waits until no other process reads, as `pipework recv` does with the same lock.
async fn turn(path: &Path) -> Result<File, Failure> {
    let file = fifo(path)?;
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if !said => {
                eprintln!("pipework nats: {}: waiting for another receiver to leave", path.display());
                said = true;
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(TURN).await,
            Err(TryLockError::Error(error)) => return Err(at(path.display())(error)),
        }
    }
}

fn standard_input() -> Result<File, Failure> {
    let failed = || at("standard input");
    let file = File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed())?);
    let kind = file.metadata().map_err(failed())?.file_type();
    match kind.is_fifo() || kind.is_socket() {
        true => Ok(file),
        false => Err(Failure("standard input is no pipe; name a FIFO, or pipe a sender into it".into())),
    }
}

/// Whether nothing can come any more from a pipe that had nothing.
fn has_ended(pipe: &File) -> Result<bool, Failure> {
    if !pipe.metadata().map_err(at("the pipe"))?.file_type().is_fifo() {
        return Ok(true);
    }
    let mut asked = [PollFd::new(pipe, PollFlags::IN)];
    pipework::fd::poll(&mut asked, Deadline::from(Duration::ZERO)).map_err(at("the pipe"))?;
    Ok(asked[0].revents().contains(PollFlags::HUP))
}
