//! The reading end.
//!
//! Invariant: bytes leave the pipe under the lock of the one [`Source`] that all clones share, so
//! no clone ever parses what another has read half of. A reader without clones takes no lock and
//! may block in the read itself. With clones, a reader waits outside the lock, on the pipe and on
//! an eventfd that signals data that another clone has read and not used; decompressing happens
//! outside the lock too.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use super::decoder::Tail;
use super::frame::Mode;
use super::item::{Item, Message, Torn};
use super::source::{OP, Source};
use super::unpacker::Unpacker;
use super::zstd::Zstd;
use crate::deadline::Deadline;
use crate::defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::fd::PipeEnd;
use crate::interrupt;
use crate::sync::{self, KeptFd};
use crate::sys::known::KnownFile;
use crate::sys::{self, Errno, For};

/// The operation that makes a reader of a descriptor.
pub(super) const READING: &str = "use as the reading end of a pipe";

/// The reading end of a pipe, FIFO or Unix stream socket.
///
/// Calls that can wait take a [`Deadline`]; each has a `try_` form that does not wait. Items come
/// in the order of the pipe; the messages of one writer keep their order. Only one process can read
/// from a pipe in this way: a reader that was inherited by `fork` works in the child only if the
/// parent had nothing buffered, and otherwise returns `Stale`. (A fork that bypasses the C library,
/// by a bare system call, is not detected.)
pub struct Reader {
    end: PipeEnd,
    clones: Arc<Clones>,
    generation: u32,
    torn: Option<Torn>,
    /// If there are clones, each unpacks its items itself, outside their lock.
    unpacker: Unpacker,
}

/// The state that the clones of a reader share.
struct Clones {
    source: Mutex<Source>,
    /// Readable while bytes that one clone has read wait for another; created when the reader is
    /// first cloned.
    eventfd: OnceLock<KeptFd>,
}

impl Reader {
    pub(super) fn new(end: PipeEnd, source: Source) -> Reader {
        let unpacker = Unpacker::new(0);
        let clones = Arc::new(Clones { source: Mutex::new(source), eventfd: OnceLock::new() });
        Reader { end, clones, generation: sync::generation(), torn: None, unpacker }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// - `Closed`: the pipe has ended and everything usable has been given out.
    /// - `Torn`, `TooLong`, `Corrupt`: a message is lost; [`Reader::torn`] says whose. The stream
    ///   continues: call again. (Only a plain stream that cannot be decoded at all is `Corrupt` for
    ///   good; then `torn` is `None`.)
    /// - `Incompatible`: the message is compressed, and this reader has no zstd; the stream
    ///   continues. Or, for good and with `torn` being `None`: the messages were sent in mixed mode.
    /// - `TimedOut`; `Interrupted` by a signal handler: nothing is lost, call again.
    /// - `Invalid` in mixed mode, where [`Reader::next_item`] returns lines and bursts as well.
    /// - `Stale` in a forked child, if the parent had read bytes that it had not used.
    /// - `Os` with the kernel's number, for instance when a listener cannot open its FIFO again.
    pub fn recv(&mut self, deadline: impl Into<Deadline>) -> Result<Message<'_>> {
        self.refuse_mixed()?;
        match self.message(Some(deadline.into()))? {
            Some(message) => Ok(message),
            None => unreachable!("a call with a deadline ends in an item or an error"),
        }
    }

    /// The next message if it is available; `None` if it is not. Never waits.
    ///
    /// # Errors
    /// As [`Reader::recv`], except `TimedOut`.
    pub fn try_recv(&mut self) -> Result<Option<Message<'_>>> {
        self.refuse_mixed()?;
        self.message(None)
    }

    /// Waits for the next line, burst, message or report of a lost message.
    ///
    /// # Errors
    /// - `Closed`: the pipe has ended and everything has been given out.
    /// - `TimedOut`, `Interrupted`, `Stale`, `Os` as [`Reader::recv`].
    /// - `Corrupt`: a plain stream that cannot be decoded; in strict mode, anything that opens like a
    ///   frame and is none.
    /// - `Incompatible`: a mixed reader's stream begins with a message that was sent in plain mode.
    ///   This is reported once; the next call returns the bytes as text. (Only for writers of this
    ///   library: those of Atomic::Pipe cannot be told from text.)
    pub fn next_item(&mut self, deadline: impl Into<Deadline>) -> Result<Item<'_>> {
        match self.item(Some(deadline.into()))? {
            Some(item) => Ok(item),
            None => unreachable!("a call with a deadline ends in an item or an error"),
        }
    }

    /// The next item if it is available; `None` if it is not. Never waits.
    ///
    /// # Errors
    /// As [`Reader::next_item`], except `TimedOut`.
    pub fn try_next_item(&mut self) -> Result<Option<Item<'_>>> {
        self.item(None)
    }

    /// The report of the loss that [`Reader::recv`] returned last.
    pub fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The parsed text of a line that has begun and not ended; `None` if there is none. Does not
    /// read: call it when [`Reader::try_next_item`] has nothing.
    pub fn peek(&mut self) -> Option<Vec<u8>> {
        let line = self.look(Vec::new(), |source| source.decoder.unfinished_line().to_vec());
        (!line.is_empty()).then_some(line)
    }

    /// Takes the text that [`Reader::peek`] returns; the rest of the line is later given out as a
    /// line of its own. For text that has to be seen before its line ends, or whose lines may have
    /// no end: taken text does not stay in memory. If it ends with `\r`, a `\n` that follows is
    /// given out alone.
    pub fn take_peeked(&mut self) -> Option<Vec<u8>> {
        self.check_fork(OP).ok()?;
        self.look(None, |source| source.decoder.take_unfinished_line())
    }

    /// When an event loop should call again although the descriptor is not readable; `None`: not
    /// before it is readable. Ask after a `try_` method returned nothing. At that time a frame that
    /// waits for its rest becomes text (see [`Options::frame_timeout`]), or a line that ends with
    /// `\r` is given out. If the call returned before it had looked at everything in the pipe, the
    /// deadline has already passed.
    ///
    /// The descriptor has no timer of its own: that would be an epoll around the pipe, which a child could
    /// not read.
    ///
    /// [`Options::frame_timeout`]: super::Options::frame_timeout
    pub fn next_timeout(&self) -> Option<Deadline> {
        self.look(None, Source::next_timeout)
    }

    /// Waits for bytes and reads up to the read size of them without parsing any, to make space for
    /// writers. Returns how many it read; 0 at the end of the pipe. When the writers of a listener
    /// leave, their data ends too: the call returns 0 until all of that is given out, and then
    /// waits for the next writer.
    ///
    /// # Errors
    /// `TooLong` once `max_unfinished` bytes lie unparsed; `TimedOut`, `Interrupted`, `Stale`.
    pub fn read_ahead(&mut self, deadline: impl Into<Deadline>) -> Result<usize> {
        const OP: &str = "atomic read_ahead";
        let deadline = deadline.into();
        loop {
            self.check_fork(OP)?;
            let mut source = self.clones.lock();
            if source.tail == Tail::Ended
                && (!source.decoder.is_empty() || source.has_ended(&mut self.end, OP)?)
            {
                return Ok(0);
            }
            if let Some(len) = source.feed(&mut self.end, None, OP)? {
                self.clones.wake_others(&source);
                if len > 0 {
                    return Ok(len);
                }
                // The writers of a listener may come and go for ever.
                let is_last = self.end.is_listener() && source.decoder.is_empty();
                if is_last && deadline.has_passed() {
                    return Err(Errno::TIMEDOUT.at(OP));
                }
                drop(source);
                if is_last && interrupt::is_stopped() {
                    return Err(Errno::INTR.at(OP));
                }
                continue;
            }
            drop(source);
            if !sys::wait(&[self.end.as_fd()], For::Reading, deadline).map_err(|errno| errno.at(OP))? {
                return Err(Errno::TIMEDOUT.at(OP));
            }
        }
    }

    /// Waits until it is known whether the pipe has ended. Returns true once it has ended and
    /// everything is given out; false as soon as bytes are there, even the beginning of a message.
    /// Reads, and gives nothing out.
    ///
    /// The bytes that are there need not make an item, so the next call may wait, or return
    /// `Closed`. For a listener's pipe it never returns true, unless [`Reader::finish`] has ended
    /// the pipe.
    ///
    /// # Errors
    /// - `TimedOut`: the pipe has not ended, and nothing has arrived. `Interrupted` by a signal
    ///   handler: call again.
    /// - `Corrupt`, `Incompatible`: the stream cannot be decoded, as for [`Reader::next_item`].
    /// - `Stale`, `Os` as [`Reader::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, atomic};
    ///
    /// let (mut reader, mut writer) = atomic::pair()?;
    /// writer.send("hello", Deadline::NEVER)?;
    /// drop(writer);
    /// let mut messages = 0;
    /// while !reader.wait_eof(Deadline::NEVER)? {
    ///     messages += reader.try_recv()?.map_or(0, |_| 1);
    /// }
    /// assert_eq!(messages, 1);
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn wait_eof(&mut self, deadline: impl Into<Deadline>) -> Result<bool> {
        const OP: &str = "atomic wait_eof";
        let deadline = deadline.into();
        self.check_fork(OP)?;
        if let Some(source) = sole(&mut self.clones) {
            return source.is_at_end(&mut self.end, Some(deadline), OP)?.ok_or(Errno::TIMEDOUT.at(OP));
        }
        loop {
            let mut source = self.clones.lock();
            let known = source.is_at_end(&mut self.end, None, OP);
            if !matches!(known, Ok(None)) {
                // The bytes that are there are for any of the clones, and so is the end.
                self.clones.wake_others(&source);
            }
            if let Some(known) = known? {
                return Ok(known);
            }
            if deadline.has_passed() {
                return Err(Errno::TIMEDOUT.at(OP));
            }
            self.clones.wait(source, &self.end, deadline, OP)?;
        }
    }

    /// Whether the pipe has ended and everything usable has been given out. Does not read: it
    /// becomes true with the `Closed` of another call, or just before it. [`Reader::wait_eof`]
    /// reads.
    pub fn is_eof(&self) -> bool {
        self.look(false, |source| {
            let ended = source.tail == Tail::Ended && (source.finished || !self.end.is_listener());
            ended && source.decoder.is_empty()
        })
    }

    /// Takes no more from the pipe, as if it had ended here: the next calls return the data that
    /// has been read, report the messages that have begun and are not whole, and then return
    /// `Closed`. This applies to clones, too. Does not wait.
    ///
    /// # Errors
    /// `Stale` in a forked child, if the parent had read bytes that it had not used.
    pub fn finish(&mut self) -> Result<()> {
        self.check_fork("finish reading")?;
        let mut source = self.clones.lock();
        (source.tail, source.finished) = (Tail::Ended, true);
        self.clones.wake_others(&source);
        Ok(())
    }

    /// Whether nothing is held: no bytes that were read ahead, no line that has begun, no part of a
    /// message. With [`Reader::set_exact`] this is true between the messages of a single writer,
    /// and another reader may continue there.
    pub fn is_empty(&self) -> bool {
        self.look(false, |source| source.decoder.is_empty())
    }

    /// Bytes that were read and not given out: bytes that are not parsed yet, the text of a line
    /// that has begun, and the data of messages that are not whole. Only this reader and its clones
    /// can give them out.
    pub fn buffered(&self) -> usize {
        self.look(0, |source| source.decoder.buffered())
    }

    /// How many bytes of the pipe were parsed: the end of the last item given out, unless
    /// [`Reader::try_clone`] has made other readers that take items, too. For programs that keep
    /// the bytes of a stream, or number its items by their position.
    pub fn position(&self) -> u64 {
        self.look(0, |source| source.decoder.position())
    }

    /// How many bytes of the pipe lie before everything that has begun and was not given out:
    /// another reader that gets the bytes from there on gives out the same items. Messages that
    /// ended earlier and extend beyond that position may be reported as [`Item::Torn`] there.
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, atomic};
    ///
    /// let (mut reader, mut writer) = atomic::pair()?;
    /// writer.send("whole", Deadline::NEVER)?;
    /// reader.recv(Deadline::NEVER)?;
    /// assert_eq!(reader.settled(), reader.position());
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn settled(&self) -> u64 {
        self.look(0, |source| source.decoder.settled())
    }

    /// Whether another reader takes bytes from the same FIFO now: one that was opened by the FIFO's
    /// path, as this one was, anywhere on the machine. Each gets pieces of the stream. No piece is
    /// taken for a message, but messages are lost to both: ask after opening, and when a message is
    /// reported as `Torn`. Other kinds of readers, and readers of a given descriptor, are not
    /// detected.
    pub fn has_other_reader(&self) -> bool {
        self.end.has_other_reader()
    }

    /// Another reader of the same pipe, for another thread. The clones share one buffer: each item
    /// goes to one of them, which decompresses it while the others go on.
    ///
    /// # Errors
    /// `Os` with the kernel's number when descriptors have run out.
    pub fn try_clone(&self) -> Result<Reader> {
        const OP: &str = "clone reader";
        let end = self.end.try_clone(OP)?;
        if self.clones.eventfd.get().is_none() {
            let made = KeptFd::open(|| sys::eventfd().and_then(KnownFile::nameless));
            let eventfd = made.map_err(|errno| errno.at(OP))?;
            // Another clone may have set it first; its eventfd is as good.
            let _ = self.clones.eventfd.set(eventfd);
        }
        let (clones, unpacker) = (Arc::clone(&self.clones), Unpacker::new(0));
        Ok(Reader { end, clones, generation: self.generation, torn: None, unpacker })
    }

    /// Closes this handle; the pipe's reading end is closed with its last handle. Dropping does the
    /// same.
    pub fn close(self) {}

    /// Bytes that one read asks for.
    pub fn read_size(&self) -> usize {
        self.look(defaults::READ_SIZE, |source| source.read_size)
    }

    /// Sets how many bytes one read asks for: from 1 to 16 MiB. If a writer's end has `O_DIRECT`,
    /// so that each of its writes is a packet, the kernel drops the part of a packet that a read
    /// has no space for: there it must be at least 4096.
    pub fn set_read_size(&mut self, bytes: usize) {
        self.look((), |source| source.read_size = read_size_within_limits(bytes));
    }

    /// Makes reads stop after `items` more items, and then after each further one, so that the
    /// bytes behind stay in the pipe for another reader. 0: they read ahead, which is the default.
    /// Reports of lost messages do not count, and bytes that were read before are not put back.
    ///
    /// The reader looks at the content of the pipe before it takes it: that costs three more system
    /// calls for each 64 KiB, and a second copy. Where the kernel does not allow a look, each
    /// message takes two reads or more, and each byte of text one. The bytes behind the last item
    /// also stay if they came in the same packet (a writer whose end has `O_DIRECT`), except where
    /// the kernel cannot move bytes from pipe to pipe, or no descriptors are left for another pipe:
    /// there they are lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use pipework::{Deadline, atomic};
    ///
    /// let (mut reader, mut writer) = atomic::pair()?;
    /// writer.send_many(&["one", "two", "for somebody else"], Deadline::NEVER)?;
    /// reader.set_exact(2);
    /// assert_eq!(&reader.recv(Deadline::NEVER)?[..], b"one");
    /// assert_eq!(&reader.recv(Deadline::NEVER)?[..], b"two");
    /// assert!(reader.is_empty());
    /// # Ok::<(), pipework::Error>(())
    /// ```
    pub fn set_exact(&mut self, items: u64) {
        self.look((), |source| source.exact = items);
    }

    /// The number of items after which reads stop; 0 if they do not.
    pub fn exact(&self) -> u64 {
        self.look(0, |source| source.exact)
    }

    /// Whether text may lie between the messages.
    pub fn is_mixed(&self) -> bool {
        self.look(false, |source| source.decoder.mode() == Mode::Mixed)
    }

    /// Changes the mode for everything that has not been given out yet. The writers must do the
    /// same at the same position of the stream.
    ///
    /// # Errors
    /// `WouldBlock` while a line is unfinished, which only a mixed stream can give out. `Stale` in
    /// a forked child, as elsewhere.
    pub fn set_mixed(&mut self, mixed: bool) -> Result<()> {
        const OP: &str = "set mixed mode";
        self.look(Err(Error::new(ErrorKind::Stale, OP)), |source| {
            if !source.decoder.unfinished_line().is_empty() {
                return Err(Error::new(ErrorKind::WouldBlock, OP));
            }
            source.decoder.set_mode(if mixed { Mode::Mixed } else { Mode::Plain });
            Ok(())
        })
    }

    /// How messages are compressed.
    pub fn zstd(&self) -> Option<Zstd> {
        self.look(None, |source| source.decoder.unpacker().zstd().cloned())
    }

    /// Sets how messages are compressed, for everything that has not been given out yet.
    ///
    /// # Errors
    /// `Invalid`: no such level exists, or the dictionary is not one. `Stale` in a forked child, as
    /// elsewhere.
    pub fn set_zstd(&mut self, zstd: Option<Zstd>) -> Result<()> {
        let stale = Err(Error::new(ErrorKind::Stale, "set zstd decompression"));
        self.look(stale, |source| source.decoder.unpacker_mut().set_zstd(zstd))
    }

    /// Whether messages and bursts come with the zstd frame that held them.
    pub fn keeps_compressed(&self) -> bool {
        self.look(false, |source| source.decoder.unpacker().keeps_compressed())
    }

    /// Sets whether messages and bursts come with the zstd frame that held them.
    pub fn set_keep_compressed(&mut self, keep: bool) {
        self.look((), |source| source.decoder.unpacker_mut().set_keep_compressed(keep));
    }

    /// Bytes that the pipe holds before a writer waits.
    ///
    /// # Errors
    /// `Os` with the kernel's number; `Unsupported` for a socket, here and in the next two.
    pub fn capacity(&self) -> Result<usize> {
        self.end.capacity()
    }

    /// Asks for another capacity; returns the one that the kernel chose, at least as large. A
    /// refusal (`Os` with EPERM past the limits of an unprivileged user, with EBUSY for less than
    /// the pipe's content) leaves the pipe as it was.
    ///
    /// # Errors
    /// `Os` with the kernel's number.
    pub fn set_capacity(&mut self, bytes: usize) -> Result<usize> {
        self.end.set_capacity(bytes)
    }

    /// As [`Reader::set_capacity`], with at most [`max_capacity`](super::max_capacity) bytes.
    ///
    /// # Errors
    /// `Os` with the kernel's number.
    pub fn set_capacity_or_max(&mut self, bytes: usize) -> Result<usize> {
        self.end.set_capacity_or_max(bytes)
    }

    fn refuse_mixed(&mut self) -> Result<()> {
        self.check_fork(OP)?;
        let mode = match sole(&mut self.clones) {
            Some(source) => source.decoder.mode(),
            None => self.clones.lock().decoder.mode(),
        };
        if mode == Mode::Mixed { Err(Error::new(ErrorKind::Invalid, OP)) } else { Ok(()) }
    }

    fn message(&mut self, deadline: Option<Deadline>) -> Result<Option<Message<'_>>> {
        self.torn = None;
        match next(&mut self.clones, &mut self.end, &mut self.unpacker, deadline)? {
            None => Ok(None),
            Some(Item::Message(message)) => Ok(Some(message)),
            Some(Item::Torn(torn)) => {
                self.torn = Some(torn);
                Err(torn.error(OP))
            }
            // Another clone has switched the stream to mixed mode meanwhile.
            Some(_) => Err(Error::new(ErrorKind::Invalid, OP)),
        }
    }

    fn item(&mut self, deadline: Option<Deadline>) -> Result<Option<Item<'_>>> {
        self.check_fork(OP)?;
        next(&mut self.clones, &mut self.end, &mut self.unpacker, deadline)
    }

    /// Reads or changes the state that the clones share. Returns `stale` in a forked child if a
    /// thread that does not exist there held the lock.
    fn look<T>(&self, stale: T, look: impl FnOnce(&mut Source) -> T) -> T {
        if sync::generation() == self.generation {
            return look(&mut self.clones.lock());
        }
        match self.clones.source.try_lock() {
            Ok(mut source) => look(&mut source),
            Err(TryLockError::Poisoned(source)) => look(&mut source.into_inner()),
            Err(TryLockError::WouldBlock) => stale,
        }
    }

    /// A child inherits a copy of the buffer. The bytes in it are the parent's, and the child's
    /// first read would begin where they end.
    fn check_fork(&mut self, op: &'static str) -> Result<()> {
        let generation = sync::generation();
        if generation == self.generation {
            return Ok(());
        }
        // A thread that the child does not have may hold a clone's lock, so the lock is not even
        // tried.
        if !sole(&mut self.clones).is_some_and(|source| source.decoder.is_empty()) {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        self.end.after_fork().map_err(|errno| errno.at(op))?;
        self.generation = generation;
        Ok(())
    }
}

impl Clones {
    /// The next item for one of several clones, as it arrived; without a deadline, only if it is
    /// available.
    fn next(
        &self,
        end: &mut PipeEnd,
        unpacker: &mut Unpacker,
        deadline: Option<Deadline>,
    ) -> Result<Option<Item<'static>>> {
        loop {
            let mut source = self.lock();
            unpacker.follow(source.decoder.unpacker())?;
            let found = source.next(end, None);
            // A clone that took something, or reached the end, tells the others what they cannot
            // see from the pipe. A clone that found nothing stays silent, or clones would wake each
            // other for ever over an unfinished frame.
            let more = source.decoder.has_more() || source.tail == Tail::Ended;
            if found.is_err() || (matches!(found, Ok(Some(_))) && more) {
                self.wake_others(&source);
            }
            if let Some(found) = found? {
                return Ok(Some(source.decoder.packed_item(found)));
            }
            let Some(deadline) = deadline else { return Ok(None) };
            if deadline.has_passed() {
                return Err(Errno::TIMEDOUT.at(OP));
            }
            let wait = source.next_timeout().map_or(deadline, |due| deadline.or_earlier(due));
            self.wait(source, end, wait, OP)?;
        }
    }

    /// Waits until bytes come, another clone has news, or the deadline passes: then check again.
    fn wait(
        &self,
        mut source: MutexGuard<'_, Source>,
        end: &PipeEnd,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<()> {
        source.waiting += 1;
        drop(source);
        let woken = match self.eventfd.get() {
            Some(eventfd) => match eventfd.intact() {
                Some(eventfd) => sys::wait(&[end.as_fd(), eventfd], For::Reading, deadline),
                // The program has closed it, so no clone can wake another.
                None => sys::wait(&[end.as_fd()], For::Reading, deadline.capped(WITHOUT_WAKE_UPS)),
            },
            None => sys::wait(&[end.as_fd()], For::Reading, deadline),
        };
        self.lock().waiting -= 1;
        // Only a clone that checks again may clear the eventfd; one that leaves would consume the
        // others' wake-up.
        if woken.map_err(|errno| errno.at(op))?
            && let Some(eventfd) = self.eventfd.get().and_then(KeptFd::intact)
        {
            sys::eventfd_clear(eventfd);
        }
        Ok(())
    }

    /// A panic cannot leave the source in a state that the next call would misread, because each
    /// change is a whole step.
    fn lock(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_others(&self, source: &Source) {
        if source.waiting > 0
            && let Some(eventfd) = self.eventfd.get().and_then(KeptFd::intact)
        {
            sys::eventfd_ring(eventfd);
        }
    }
}

/// How long a clone waits before it looks again, if clones cannot wake each other.
const WITHOUT_WAKE_UPS: Duration = Duration::from_millis(50);

/// Bytes of the largest [`read_size`](super::Options::read_size). More gains nothing, because no
/// pipe holds more at once unless its owner is privileged.
pub const MAX_READ_SIZE: usize = 16 << 20;

pub(super) fn read_size_within_limits(bytes: usize) -> usize {
    bytes.clamp(1, MAX_READ_SIZE)
}

/// The next item; without a deadline, only if it is available. The caller has checked for a fork.
fn next<'a>(
    clones: &'a mut Arc<Clones>,
    end: &mut PipeEnd,
    unpacker: &'a mut Unpacker,
    deadline: Option<Deadline>,
) -> Result<Option<Item<'a>>> {
    // Only a read, so that the locked instruction is executed once per item.
    if Arc::strong_count(clones) > 1 {
        let item = clones.next(end, unpacker, deadline)?;
        return Ok(item.map(|item| unpacker.unpack(item)));
    }
    let source = sole(clones).expect("the only handle makes no other meanwhile");
    let found = source.next(end, deadline)?;
    Ok(found.map(|found| source.decoder.item(found)))
}

/// The source of a reader without clones, which needs no lock.
fn sole(clones: &mut Arc<Clones>) -> Option<&mut Source> {
    Arc::get_mut(clones).map(|clones| clones.source.get_mut().unwrap_or_else(PoisonError::into_inner))
}

impl AsFd for Reader {
    /// For an event loop: when it is readable, call a `try_` method until that returns nothing, and
    /// then ask [`Reader::next_timeout`]. It stays the same for the reader's life, except that a
    /// listener in a forked child has another after its first call there. With clones, an item may
    /// also wait in the buffer that they share.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("end", &self.end).finish_non_exhaustive()
    }
}
