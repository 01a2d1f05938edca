//! The reading end.
//!
//! Invariant: bytes leave the pipe under the lock of the one [`Source`] that all clones share, so
//! no clone ever parses what another has read half of. A reader without clones takes no lock and
//! may block in the read itself. With clones, waiting happens outside the lock, on the pipe and on
//! an eventfd that is rung for what another clone has read and not used; and so does decompressing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use super::decoder::{Decoder, Tail};
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
use crate::spin::Spin;
use crate::sync;
use crate::sys::{self, Errno, For};

/// The operation that makes one of a descriptor.
pub(super) const READING: &str = "use as the reading end of a pipe";

/// The reading end of a pipe, FIFO or Unix stream socket.
///
/// Calls that can wait take a [`Deadline`]; each has a `try_` form that does not wait. Items come
/// in the order of the pipe; the messages of one writer keep their order. Only one process can read
/// from a pipe in this way: a reader that was inherited by `fork` works in the child only if the
/// parent had nothing buffered, and otherwise says `Stale`. (A fork that goes around the C library,
/// by a bare system call, is not noticed.)
pub struct Reader {
    end: PipeEnd,
    clones: Arc<Clones>,
    generation: u32,
    torn: Option<Torn>,
    /// Where there are clones, each unpacks its items itself, outside their lock.
    unpacker: Unpacker,
}

/// What the clones of a reader share.
struct Clones {
    source: Mutex<Source>,
    /// Readable while bytes that one clone has read wait for another; there once the reader has
    /// been cloned.
    eventfd: OnceLock<OwnedFd>,
}

impl Reader {
    pub(super) fn new(
        end: PipeEnd,
        decoder: Decoder,
        read_size: usize,
        frame_timeout: Duration,
        spin: Spin,
    ) -> Reader {
        let unpacker = Unpacker::new(0);
        let source = Source::new(decoder, read_size, frame_timeout, spin);
        let clones = Arc::new(Clones { source: Mutex::new(source), eventfd: OnceLock::new() });
        Reader { end, clones, generation: sync::generation(), torn: None, unpacker }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// - `Closed`: the pipe has ended and everything usable has been given out.
    /// - `Torn`, `TooLong`, `Corrupt`: a message is lost; [`Reader::torn`] says whose. The stream
    ///   goes on: call again. (Only a plain stream that makes no sense at all is `Corrupt` for
    ///   good; then `torn` is `None`.)
    /// - `Incompatible`: the message is compressed, and this reader has no zstd; the stream goes
    ///   on. Or, for good and with `torn` being `None`: the messages were sent in mixed mode.
    /// - `TimedOut`; `Interrupted` by a signal handler: nothing is lost, call again.
    /// - `Invalid` in mixed mode, where [`Reader::next_item`] gives lines and bursts as well.
    /// - `Stale` in a forked child, if the parent had read what it had not used.
    /// - `Os` with the kernel's number, for instance when a listener cannot open its FIFO again.
    pub fn recv(&mut self, deadline: impl Into<Deadline>) -> Result<Message<'_>> {
        self.refuse_mixed()?;
        match self.message(Some(deadline.into()))? {
            Some(message) => Ok(message),
            None => unreachable!("a call with a deadline ends in an item or an error"),
        }
    }

    /// The next message if it is there; `None` if it is not. Never waits.
    ///
    /// # Errors
    /// As [`Reader::recv`], but for `TimedOut`.
    pub fn try_recv(&mut self) -> Result<Option<Message<'_>>> {
        self.refuse_mixed()?;
        self.message(None)
    }

    /// Waits for the next line, burst, message or report of a lost message.
    ///
    /// # Errors
    /// - `Closed`: the pipe has ended and everything has been given out.
    /// - `TimedOut`, `Interrupted`, `Stale`, `Os` as [`Reader::recv`].
    /// - `Corrupt`: a plain stream that makes no sense; in strict mode, anything that opens like a
    ///   frame and is none.
    /// - `Incompatible`: a mixed reader's stream begins with a message that was sent in plain mode.
    ///   It is said once; whoever calls again gets the bytes as text. (Only for writers of this
    ///   library: those of Atomic::Pipe cannot be told from text.)
    pub fn next_item(&mut self, deadline: impl Into<Deadline>) -> Result<Item<'_>> {
        match self.item(Some(deadline.into()))? {
            Some(item) => Ok(item),
            None => unreachable!("a call with a deadline ends in an item or an error"),
        }
    }

    /// The next item if it is there; `None` if it is not. Never waits.
    ///
    /// # Errors
    /// As [`Reader::next_item`], but for `TimedOut`.
    pub fn try_next_item(&mut self) -> Result<Option<Item<'_>>> {
        self.item(None)
    }

    /// The report of the loss that [`Reader::recv`] told of last.
    pub fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The text of a line that has begun and not ended, as far as it has been parsed; `None` if
    /// there is none. Does not read: call it when [`Reader::try_next_item`] has nothing.
    pub fn peek(&mut self) -> Option<Vec<u8>> {
        let line = self.look(Vec::new(), |source| source.decoder.unfinished_line().to_vec());
        (!line.is_empty()).then_some(line)
    }

    /// Takes what [`Reader::peek`] shows; what still comes of the line is given out as a line of
    /// its own. For text that has to be seen before its line ends, or whose lines may have no end:
    /// what is taken does not stay in memory. Where it ends with `\r`, a `\n` behind that comes
    /// alone.
    pub fn take_peeked(&mut self) -> Option<Vec<u8>> {
        self.check_fork(OP).ok()?;
        self.look(None, |source| source.decoder.take_unfinished_line())
    }

    /// By when an event loop should call again although the descriptor is not readable; `None`: not
    /// before it is. Ask after a `try_` method had nothing. A frame that waits for its rest becomes
    /// text then (see [`Options::frame_timeout`]), a line that ends with `\r` is given out, or the call came back before it had looked at
    /// all that is in the pipe: the deadline has passed already.
    ///
    /// [`Options::frame_timeout`]: super::Options::frame_timeout
    pub fn next_timeout(&self) -> Option<Deadline> {
        self.look(None, Source::next_timeout)
    }

    /// Waits for bytes and reads up to the read size of them without parsing any, to make space for
    /// writers. Returns how many it read; 0 at the end of the pipe. A listener's writers end what
    /// they have written when they leave: 0 until all of that is given out, and then it waits for
    /// the next one.
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
                // A listener's writers may come and go for ever.
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

    /// Waits until it is known whether the pipe has ended: true once it has, and all is given out;
    /// false as soon as something is there, be it the beginning of a message. Reads, and gives
    /// nothing out.
    ///
    /// What is there need not make an item, so the next call may wait, or say `Closed`. Of a
    /// listener's pipe it is never true, unless [`Reader::finish`] has ended it.
    ///
    /// # Errors
    /// - `TimedOut`: the pipe has not ended, and nothing has come. `Interrupted` by a signal
    ///   handler: call again.
    /// - `Corrupt`, `Incompatible`: as [`Reader::next_item`], whose stream makes no sense.
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
                // What is there is for any of the clones, and so is the end.
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

    /// Whether the pipe has ended and everything usable has been given out. Does not read: it turns
    /// true with the `Closed` of another call, or just before it. [`Reader::wait_eof`] reads.
    pub fn is_eof(&self) -> bool {
        self.look(false, |source| {
            let ended = source.tail == Tail::Ended && (source.finished || !self.end.is_listener());
            ended && source.decoder.is_empty()
        })
    }

    /// Takes no more from the pipe, as if it had ended here: the calls that follow give out what
    /// has been read, report the messages that have begun and are not whole, and then say `Closed`.
    /// For clones, too. Does not wait.
    ///
    /// # Errors
    /// `Stale` in a forked child, if the parent had read what it had not used.
    pub fn finish(&mut self) -> Result<()> {
        self.check_fork("finish reading")?;
        let mut source = self.clones.lock();
        (source.tail, source.finished) = (Tail::Ended, true);
        self.clones.wake_others(&source);
        Ok(())
    }

    /// Whether nothing is held: no bytes that were read ahead, no line that has begun, no part of a
    /// message. With [`Reader::set_exact`] it is so between the messages of a single writer, and
    /// somebody else may go on reading there.
    pub fn is_empty(&self) -> bool {
        self.look(false, |source| source.decoder.is_empty())
    }

    /// Bytes that were read and not given out: what is not parsed yet, the text of a line that has
    /// begun, and the data of messages that are not whole. Only this reader and its clones can give
    /// them out.
    pub fn buffered(&self) -> usize {
        self.look(0, |source| source.decoder.buffered())
    }

    /// How many bytes of the pipe were parsed: where the item that was given out last ends, unless
    /// [`Reader::try_clone`] has made others that take items, too. For those who keep the bytes of
    /// a stream, or number its items by what they were made of.
    pub fn position(&self) -> u64 {
        self.look(0, |source| source.decoder.position())
    }

    /// How many bytes of the pipe lie before all that has begun and was not given out: from there
    /// on, another reader that gets the same bytes gives out the same items. What ended earlier and
    /// reaches beyond that place may come as [`Item::Torn`] there.
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

    /// Whether somebody else reads from the same FIFO now: another reader that was opened by the
    /// FIFO's path, as this one was, anywhere on the machine. Both get pieces of the stream. No
    /// piece is taken for a message, but messages are lost to both: ask after opening, and when a
    /// message is reported as `Torn`. Readers of another kind, and those that were given a
    /// descriptor, are not seen.
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
            let eventfd = sys::eventfd().map_err(|errno| errno.at(OP))?;
            // Another clone may have been quicker; its eventfd is as good.
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

    /// Sets how many bytes one read asks for: from 1 to 16 MiB. Where a writer's end has `O_DIRECT`,
    /// so that each of its writes is a packet, the kernel drops what a read has no space for: there
    /// it must be 4096 at least.
    pub fn set_read_size(&mut self, bytes: usize) {
        self.look((), |source| source.read_size = read_size_within_limits(bytes));
    }

    /// Makes reads stop at the end of the so many-th item from here on, and then of each further
    /// one, so that what lies behind it stays in the pipe for somebody else. 0: they go ahead, as
    /// at first. Reports of lost messages do not count, and what was read before is not put back.
    ///
    /// What is in the pipe is looked at before it is taken: for each 64 KiB that costs three system
    /// calls more, and a second copy. Where the kernel does not let it be looked at, each message
    /// takes two reads or more, and each byte of text one. What lies behind stays, too, if it came
    /// in the same packet (a writer whose end has `O_DIRECT`), except where the kernel cannot move
    /// bytes from pipe to pipe, or no descriptors are left for another pipe: there it is lost.
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

    /// Changes the mode for all that has not been given out yet. The writers must do the same at
    /// the same place of the stream.
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

    /// Sets how messages are compressed, for all that has not been given out yet.
    ///
    /// # Errors
    /// `Invalid`: there is no such level, or the dictionary is none. `Stale` in a forked child, as
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
    /// refusal (`Os` with EPERM past the limits of an unprivileged user, with EBUSY below what lies
    /// in the pipe) leaves the pipe as it was.
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
            // Another clone has turned the stream into a mixed one meanwhile.
            Some(_) => Err(Error::new(ErrorKind::Invalid, OP)),
        }
    }

    fn item(&mut self, deadline: Option<Deadline>) -> Result<Option<Item<'_>>> {
        self.check_fork(OP)?;
        next(&mut self.clones, &mut self.end, &mut self.unpacker, deadline)
    }

    /// Looks at what the clones share, or changes it. `stale` in a forked child where a thread that
    /// did not come along held the lock.
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

    /// A child inherits a copy of the buffer. What lies in it is the parent's, and where it ends
    /// the child's first read would begin.
    fn check_fork(&mut self, op: &'static str) -> Result<()> {
        let generation = sync::generation();
        if generation == self.generation {
            return Ok(());
        }
        // A clone's lock may have been held by a thread that the child does not have, so it is not
        // even asked.
        if !sole(&mut self.clones).is_some_and(|source| source.decoder.is_empty()) {
            return Err(Error::new(ErrorKind::Stale, op));
        }
        self.end.after_fork().map_err(|errno| errno.at(op))?;
        self.generation = generation;
        Ok(())
    }
}

impl Clones {
    /// The next item for one of several clones, as it came; without a deadline, only if it is
    /// there.
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
            // Who took something, or met the end, tells the others what they cannot see from the
            // pipe. Who found nothing stays silent, or clones would wake each other for ever over
            // an unfinished frame.
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

    /// Waits until bytes come, or another clone has news, or the deadline passes: look again.
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
            Some(eventfd) => sys::wait(&[end.as_fd(), eventfd.as_fd()], For::Reading, deadline),
            None => sys::wait(&[end.as_fd()], For::Reading, deadline),
        };
        self.lock().waiting -= 1;
        // Only a clone that looks again may clear the eventfd; one that leaves would take the
        // others' wake-up with it.
        if woken.map_err(|errno| errno.at(op))?
            && let Some(eventfd) = self.eventfd.get()
        {
            sys::eventfd_clear(eventfd.as_fd());
        }
        Ok(())
    }

    /// A panic cannot leave the source in a state that the next call would misread: it is changed
    /// by whole steps.
    fn lock(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_others(&self, source: &Source) {
        if source.waiting > 0
            && let Some(eventfd) = self.eventfd.get()
        {
            sys::eventfd_ring(eventfd.as_fd());
        }
    }
}

/// Bytes of the largest [`read_size`](super::Options::read_size). More gains nothing, for no pipe
/// holds more at once unless its owner is privileged.
pub const MAX_READ_SIZE: usize = 16 << 20;

pub(super) fn read_size_within_limits(bytes: usize) -> usize {
    bytes.clamp(1, MAX_READ_SIZE)
}

/// The next item; without a deadline, only if it is there. The caller has looked for a fork.
fn next<'a>(
    clones: &'a mut Arc<Clones>,
    end: &mut PipeEnd,
    unpacker: &'a mut Unpacker,
    deadline: Option<Deadline>,
) -> Result<Option<Item<'a>>> {
    // Only a look, so that what costs a locked instruction is done once for an item.
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
    /// For an event loop: when it is readable, call a `try_` method until that has nothing, and
    /// then ask [`Reader::next_timeout`]. It stays the same for the reader's life, but for a
    /// listener in a forked child, which has another after its first call there. With clones, an
    /// item may also wait in the buffer that they share.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("end", &self.end).finish_non_exhaustive()
    }
}
