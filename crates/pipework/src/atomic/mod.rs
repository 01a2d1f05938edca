//! Module `atomic`: whole messages of any size from many writers over one POSIX pipe or FIFO.
//!
//! A pipe keeps a write of at most PIPE_BUF bytes (4096 on Linux) in one piece, and tears anything
//! larger. This module cuts messages into parts of that size, each with the name of its writer, and
//! the reader puts them together again: any number of processes and threads send messages of any
//! size into one pipe, and each message comes out whole, once, and in the order of its writer.
//!
//! In **mixed mode** the same pipe carries ordinary text as well, so that a child process can print
//! to its stdout as usual, and send messages through it at the same time; the reader tells lines
//! from messages.
//!
//! ```
//! use pipework::{Deadline, atomic::{Item, Options}};
//! use std::io::Write;
//!
//! let (mut reader, mut writer) = Options::new().mixed(true).pair()?;
//! # use std::os::fd::AsFd;
//! let mut stdout = std::fs::File::from(writer.as_fd().try_clone_to_owned()?); // what a child would print to
//! stdout.write_all(b"loading...\n")?;
//! writer.send(vec![7; 50_000], Deadline::NEVER)?; // less than a pipe holds: nobody reads yet
//! drop((stdout, writer));
//!
//! let items: Vec<Item> = reader.items().collect::<Result<_, _>>()?;
//! assert!(matches!(&items[0], Item::Line(line) if line.content() == b"loading..."));
//! assert!(matches!(&items[1], Item::Message(message) if message.len() == 50_000 && message.parts == 13));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs of Atomic::Pipe 0.027 may be at either end. `WIRE.md` describes the bytes:
#![doc = include_str!("WIRE.md")]

mod item;
mod check;
mod frame;
mod zstd;
mod assembly;
mod mixed;
mod ahead;
mod unpacker;
mod decoder;
mod source;
mod reader;
mod items;
mod packer;
mod writer;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::defaults;
use crate::error::Result;
use crate::fd::{Held, PipeEnd};
use crate::interrupt;
use crate::spin::{Looks, Spin};
use crate::sys::{self, Access, Errno, Open};

pub use self::item::{Burst, Item, Limit, Line, Message, Torn, WriterKey};
pub use self::items::{Items, Messages};
pub use self::reader::{MAX_READ_SIZE, Reader};
pub use self::writer::Writer;
pub use self::zstd::Zstd;

use self::assembly::Limits;
use self::decoder::Decoder;
use self::frame::Mode;
use self::reader::READING;
use self::source::Source;
use self::writer::WRITING;

/// A new pipe in plain mode with the default [`Options`].
///
/// # Errors
/// `Os` with the kernel's number when descriptors have run out.
pub fn pair() -> Result<(Reader, Writer)> {
    Options::new().pair()
}

/// Makes a FIFO at `path` that only the current user may open (mode 0600).
///
/// # Errors
/// `Os` with the kernel's number, EEXIST if the path exists already.
pub fn create_fifo(path: impl AsRef<Path>) -> Result<()> {
    sys::make_fifo(path.as_ref()).map_err(|errno| errno.at("create fifo"))
}

/// The largest capacity in bytes that an unprivileged user may give a pipe.
///
/// # Errors
/// `Os` with the kernel's number if /proc is not mounted.
pub fn max_capacity() -> Result<usize> {
    crate::fd::max_capacity()
}

/// Either end of a pipe, as [`Options::end`] determines it.
#[derive(Debug)]
pub enum End {
    /// It was open for reading.
    Reader(Reader),
    /// It was open for writing.
    Writer(Writer),
}

/// The settings of the ends of a pipe. Both ends take the same type; some settings concern only
/// one.
#[derive(Clone, Debug)]
pub struct Options {
    mode: Mode,
    strict: bool,
    bursts: bool,
    zstd: Option<Zstd>,
    keep_compressed: bool,
    max_message: usize,
    /// `None`: enough for [`AT_ONCE`] messages of the largest size.
    max_unfinished: Option<usize>,
    read_size: usize,
    frame_timeout: Duration,
    max_pending: usize,
    or_print: bool,
    spin: Duration,
}

/// This many writers may be in the middle of a message of the largest size. Each of them has to
/// send it first, so a mere claim reserves no memory.
const AT_ONCE: usize = 8;
/// The minimum: enough for many writers with small messages.
const LEAST_UNFINISHED: usize = 1 << 30;

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Plain,
            strict: false,
            bursts: true,
            zstd: None,
            keep_compressed: false,
            max_message: defaults::MAX_MESSAGE,
            max_unfinished: None,
            read_size: defaults::READ_SIZE,
            frame_timeout: defaults::FRAME_TIMEOUT,
            max_pending: defaults::MAX_PENDING,
            or_print: false,
            spin: defaults::SPIN,
        }
    }
}

/// Settings that both ends agree on, and the limits of each.
impl Options {
    /// Plain mode, no compression, the limits below.
    pub fn new() -> Options {
        Options::default()
    }

    /// Whether ordinary text may lie between the messages. Both ends must agree.
    pub fn mixed(self, mixed: bool) -> Options {
        Options { mode: if mixed { Mode::Mixed } else { Mode::Plain }, ..self }
    }

    /// Reader, mixed mode: whether a control byte `0x0E` that opens no well-formed part or burst is
    /// an error, as in Atomic::Pipe. By default it is text.
    pub fn strict(self, strict: bool) -> Options {
        Options { strict, ..self }
    }

    /// Reader, mixed mode: whether bursts are recognised. Default true. Without them only parts of
    /// messages are frames, and bytes between `0x0E` and `0x0F` are text: for the output of
    /// programs that may print any bytes. A sender's bursts then come out as text. So does the only
    /// part of a message that is not whole, if nothing else is known of its writer.
    pub fn bursts(self, bursts: bool) -> Options {
        Options { bursts, ..self }
    }

    /// Compresses each message and burst. Both ends must agree.
    pub fn zstd(self, zstd: Zstd) -> Options {
        Options { zstd: Some(zstd), ..self }
    }

    /// Reader: whether messages and bursts come with the zstd frame that held them.
    pub fn keep_compressed(self, keep: bool) -> Options {
        Options { keep_compressed: keep, ..self }
    }

    /// Reader: the largest message in bytes, compressed or not, and the longest line that is given
    /// out in one piece. Default 256 MiB.
    pub fn max_message(self, bytes: usize) -> Options {
        Options { max_message: bytes, ..self }
    }

    /// Reader: the bytes of all unfinished messages together, with 256 for each beside its data.
    /// Past this limit, the message that has waited longest is given up, and its report names the
    /// limit. Also how much [`Reader::read_ahead`] may buffer. Default: 8 times `max_message`, so
    /// that as many writers may be in the middle of the largest message, and at least 1 GiB. It
    /// limits the reader's memory, together with one message, one line and one decompressed
    /// message, each of `max_message` bytes at most. (A growing message takes up to twice its bytes
    /// of address space, of which the system provides only the pages that are written to.)
    pub fn max_unfinished(self, bytes: usize) -> Options {
        Options { max_unfinished: Some(bytes), ..self }
    }

    /// Reader: how many bytes one read asks for, from 1 to 16 MiB. Default 64 KiB, which is what a
    /// pipe holds unless it was resized.
    pub fn read_size(self, bytes: usize) -> Options {
        Options { read_size: reader::read_size_within_limits(bytes), ..self }
    }

    /// Reader, mixed mode, not strict: how long the reader waits for the rest of a part or burst
    /// while no byte arrives. After that the bytes of the frame are text, and its message is
    /// reported as `Torn`. Default 5 s: a relay between the ends (`tee`, ssh, a log collector) may
    /// cut anywhere and stop for a while, and a frame that is given up too early is lost. A stray
    /// `0x0E` in text delays the bytes that follow for as long, or until 4096 bytes have arrived.
    /// Zero is right if all writers write into this very pipe; `Duration::MAX` waits for the end.
    /// The time counts from the last byte that arrived, by the clock, across calls; event loops ask
    /// [`Reader::next_timeout`].
    pub fn frame_timeout(self, time: Duration) -> Options {
        Options { frame_timeout: time, ..self }
    }

    /// Writer: how many bytes may be pending before `try_send` takes no more. Default 1 MiB.
    pub fn max_pending(self, bytes: usize) -> Options {
        Options { max_pending: bytes, ..self }
    }

    /// Writer: what to do if the descriptor is a terminal, a file or a device, so that no reader
    /// will take messages apart: false for an error, the default; true to print each message and
    /// burst there as a line, uncompressed and without a header. For programs that usually send to
    /// the program that started them, and that people sometimes start by hand, or with output to a
    /// log. If the descriptor blocks, printing may wait, in the `try_` calls and beyond deadlines
    /// too. A message whose call fails may have been printed in part; the next one begins a line.
    /// [`Writer::is_printing`] says whether it prints.
    pub fn or_print(self, print: bool) -> Options {
        Options { or_print: print, ..self }
    }

    /// Reader: how long it spins before it sleeps, as long as recent waits ended within that time;
    /// zero for never. Spinning uses CPU time to spare the writers the cost of waking the reader.
    /// At most 1 ms. Default 20 microseconds, and never where this process may use only one CPU.
    pub fn spin(self, limit: Duration) -> Options {
        Options { spin: limit, ..self }
    }
}

/// Constructors.
impl Options {
    /// A new pipe. Both descriptors are close-on-exec and block; to let a child inherit one, pass
    /// it as its stdin or stdout.
    ///
    /// # Errors
    /// `Os` with the kernel's number when descriptors have run out; `Invalid` for a zstd level that
    /// does not exist.
    pub fn pair(&self) -> Result<(Reader, Writer)> {
        let (reader, writer) = sys::pipe().map_err(|errno| errno.at("create pipe"))?;
        Ok((self.reader(reader)?, self.writer(writer)?))
    }

    /// Opens the FIFO at `path` for reading, at once. The pipe ends when the last writer has left;
    /// before the first has come, calls wait for it. Does not follow a symbolic link.
    ///
    /// # Errors
    /// `Os` with the kernel's number; `Invalid` if `path` is a symbolic link (ELOOP) or not a FIFO.
    pub fn read_fifo(&self, path: impl AsRef<Path>) -> Result<Reader> {
        const OP: &str = "open fifo for reading";
        let fd = sys::open_fifo(path.as_ref(), Open::Read).map_err(|errno| errno.at(OP))?;
        self.read_from(PipeEnd::fifo_reader(fd, OP)?)
    }

    /// As [`Options::read_fifo`], but the pipe never ends: when the last writer has left, its
    /// unfinished messages are reported, and calls wait for the next writer. A writer that dies at
    /// the very moment of that change is reported at the next one. Needs /proc, and permission to
    /// open the FIFO again later.
    ///
    /// # Errors
    /// As [`Options::read_fifo`].
    pub fn listen_fifo(&self, path: impl AsRef<Path>) -> Result<Reader> {
        const OP: &str = "open fifo for reading";
        let fd = sys::open_fifo(path.as_ref(), Open::Read).map_err(|errno| errno.at(OP))?;
        self.read_from(PipeEnd::fifo_listener(fd, OP)?)
    }

    /// Opens the FIFO at `path` for writing as soon as it has a reader. Does not follow a symbolic
    /// link.
    ///
    /// # Errors
    /// `TimedOut`: it has no reader. `Interrupted`: call again. Others as [`Options::read_fifo`].
    pub fn write_fifo(&self, path: impl AsRef<Path>, deadline: impl Into<Deadline>) -> Result<Writer> {
        const OP: &str = "open fifo for writing";
        let fd = open_for_writing(path.as_ref(), deadline.into()).map_err(|errno| errno.at(OP))?;
        let fd = Held::opened(fd).map_err(|errno| errno.at(OP))?;
        self.write_to(PipeEnd::new(fd, Access::Write, OP)?)
    }

    /// Reads from a descriptor, which now belongs to the reader and becomes close-on-exec: a pipe,
    /// a FIFO, or a connected stream socket of the Unix family.
    ///
    /// # Errors
    /// `Invalid` if it is none of these, or not open for reading;
    /// [`Error::explanation`](crate::Error::explanation) says what it is.
    pub fn reader(&self, fd: impl Into<OwnedFd>) -> Result<Reader> {
        self.read_from(PipeEnd::new(Held::own(fd.into()), Access::Read, READING)?)
    }

    /// Writes to a descriptor, which now belongs to the writer and becomes close-on-exec: a pipe, a
    /// FIFO, or a connected stream socket of the Unix family.
    ///
    /// # Errors
    /// `Invalid` if it is none of these, or not open for writing;
    /// [`Error::explanation`](crate::Error::explanation) says what it is.
    pub fn writer(&self, fd: impl Into<OwnedFd>) -> Result<Writer> {
        self.write_through(Held::own(fd.into()))
    }

    /// Reads from a descriptor that stays the caller's, of the kinds that [`Options::reader`]
    /// takes. The reader never closes it and never changes its flags, so it is close-on-exec and
    /// blocks only if it was made so. `'static` is the promise that no code closes it, or replaces
    /// it with another file, while the reader is used: the reader would read from that file.
    /// [`raw::borrow`](crate::fd::raw::borrow) makes such a borrow of a number.
    ///
    /// Deadlines hold and messages are whole as with any other reader. A clone has a duplicate of
    /// its own, which is close-on-exec. Where the kernel cannot be asked per call not to wait (a
    /// FIFO; Linux before 6.5), the reader opens the pipe once more for itself, so the pipe has a
    /// reader until both that and the descriptor are closed.
    ///
    /// # Errors
    /// As [`Options::reader`]; `Invalid` with EBADF if it is not open.
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, atomic::Options, fd::raw};
    /// use std::os::fd::AsRawFd;
    ///
    /// let (read, write) = std::io::pipe()?;
    /// // SAFETY: `read` and `write` are open until both ends are dropped.
    /// let (mut reader, mut writer) = unsafe {
    ///     let (read, write) = (raw::borrow(read.as_raw_fd())?, raw::borrow(write.as_raw_fd())?);
    ///     (Options::new().reader_on(read)?, Options::new().writer_on(write)?)
    /// };
    /// writer.send("hello", Deadline::NEVER)?;
    /// assert_eq!(&*reader.recv(Deadline::NEVER)?, b"hello");
    /// drop((reader, writer)); // `read` and `write` are as they were
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reader_on(&self, fd: BorrowedFd<'static>) -> Result<Reader> {
        self.read_from(PipeEnd::new(Held::Lent(fd), Access::Read, READING)?)
    }

    /// Writes to a descriptor that stays the caller's, of the kinds that [`Options::writer`] takes;
    /// otherwise as [`Options::reader_on`]. Dropping the writer writes its pending data: drop it,
    /// or [`discard`](Writer::discard) the data, before the descriptor is closed.
    ///
    /// # Errors
    /// As [`Options::writer`]; `Invalid` with EBADF if it is not open.
    pub fn writer_on(&self, fd: BorrowedFd<'static>) -> Result<Writer> {
        self.write_through(Held::Lent(fd))
    }

    /// Reads from a duplicate of a descriptor.
    ///
    /// # Errors
    /// As [`Options::reader`]; `Os` when descriptors have run out.
    pub fn dup_reader(&self, fd: impl AsFd) -> Result<Reader> {
        self.reader(sys::duplicate(fd.as_fd()).map_err(|errno| errno.at(READING))?)
    }

    /// Writes to a duplicate of a descriptor.
    ///
    /// # Errors
    /// As [`Options::writer`]; `Os` when descriptors have run out.
    pub fn dup_writer(&self, fd: impl AsFd) -> Result<Writer> {
        self.writer(sys::duplicate(fd.as_fd()).map_err(|errno| errno.at(WRITING))?)
    }

    /// A reader or a writer, depending on how the descriptor was opened.
    ///
    /// # Errors
    /// `Invalid` if it is not a pipe or FIFO, or open for both directions, as every socket is.
    pub fn end(&self, fd: impl Into<OwnedFd>) -> Result<End> {
        const OP: &str = "use as the end of a pipe";
        let fd = fd.into();
        match PipeEnd::access(fd.as_fd(), OP)? {
            Access::Write => self.writer(fd).map(End::Writer),
            _ => self.reader(fd).map(End::Reader),
        }
    }

    /// Reads the pipe that is this process's stdin. It does not see bytes that `std::io::stdin` has
    /// buffered already.
    ///
    /// # Errors
    /// As [`Options::reader`]; `Os` when descriptors have run out.
    pub fn stdin(&self) -> Result<Reader> {
        self.dup_reader(std::io::stdin())
    }

    /// Writes to this process's stdout; [`Options::or_print`] also supports programs that are run
    /// by hand. Text that the program prints there goes through the standard library's own buffer:
    /// end the line, or flush, before a message that must come after it.
    ///
    /// # Errors
    /// As [`Options::writer`]; `Os` when descriptors have run out.
    pub fn stdout(&self) -> Result<Writer> {
        self.dup_writer(std::io::stdout())
    }

    fn read_from(&self, end: PipeEnd) -> Result<Reader> {
        let decoder = self.decoder(end.whole_write(READING)?)?;
        let spin = Spin::new(self.spin, Looks::Call);
        Ok(Reader::new(end, Source::new(decoder, self.read_size, self.frame_timeout, spin)))
    }

    fn decoder(&self, pipe_buf: usize) -> Result<Decoder> {
        let limits = Limits { pipe_buf, max_message: self.max_message, max_unfinished: self.unfinished() };
        let mut decoder = Decoder::new(self.mode, self.strict, limits);
        decoder.unpacker_mut().set_zstd(self.zstd.clone())?;
        decoder.set_bursts(self.bursts);
        decoder.unpacker_mut().set_keep_compressed(self.keep_compressed);
        Ok(decoder)
    }

    fn unfinished(&self) -> usize {
        let enough = self.max_message.saturating_mul(AT_ONCE).max(LEAST_UNFINISHED);
        self.max_unfinished.unwrap_or(enough)
    }

    fn write_through(&self, fd: Held) -> Result<Writer> {
        match self.or_print {
            true => self.write_to(PipeEnd::new_or_print(fd, WRITING)?),
            false => self.write_to(PipeEnd::new(fd, Access::Write, WRITING)?),
        }
    }

    fn write_to(&self, end: PipeEnd) -> Result<Writer> {
        Writer::new(end, self.mode, self.max_pending, self.zstd.clone())
    }
}

/// Without a deadline the kernel waits for the reader, unless an interrupt hook must be asked
/// meanwhile. With a deadline, there is nothing to poll: a FIFO without a reader cannot be opened
/// for writing only. So opening is repeated at growing intervals, at least 16 times a second.
fn open_for_writing(path: &Path, deadline: Deadline) -> sys::Result<OwnedFd> {
    if interrupt::kernel_may_wait(deadline) {
        return sys::open_fifo(path, Open::WriteWaiting);
    }
    // A program that wants to remove an unused FIFO can see by this that a writer waits for it.
    let _shown = sys::show(path);
    let mut pause = Duration::from_millis(1);
    loop {
        match sys::open_fifo(path, Open::WriteAtOnce) {
            // Sockets return the same, and will always do so.
            Err(Errno::NXIO) if sys::is_fifo(path)? => {}
            Err(Errno::NXIO) => return Err(Errno::INVAL),
            done => return done,
        }
        let left = deadline.remaining().unwrap_or(pause);
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        sys::sleep(pause.min(left))?;
        pause = (pause * 2).min(Duration::from_millis(64));
    }
}
