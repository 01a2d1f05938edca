//! The writing end.
//!
//! Invariant: every `write` is at most PIPE_BUF bytes and holds whole parts only, so a writer that
//! is killed at any moment leaves whole parts in the pipe. If the rest of a message will not be
//! written, its writer key is abandoned with it: under the next key, no reader can take the message
//! for the beginning of another one.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use super::frame::{DATA_LINK_ESCAPE, Mode, SHIFT_IN, SHIFT_OUT, parts_of};
use super::item::WriterKey;
use super::packer::{Cut, Packer};
use super::zstd::{Compressor, Zstd};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::fd::PipeEnd;
use crate::interrupt;
use crate::sync;
use crate::sys::{self, Errno};

/// The operation that makes a writer of a descriptor.
pub(super) const WRITING: &str = "use as the writing end of a pipe";

/// The writing end of a pipe, FIFO or Unix stream socket.
///
/// One writer serves one thread; [`Writer::try_clone`] makes another for another thread, and any
/// number of processes can have their own. In a forked child the writer is separate: it has another
/// key, and not the parent's pending data. Dropping a writer writes its pending data, for as long
/// as that takes; [`Writer::close`] does it with a deadline.
pub struct Writer {
    end: PipeEnd,
    key: WriterKey,
    generation: u32,
    /// Bytes of the next write.
    packer: Packer,
    /// Data to be written after those.
    queue: VecDeque<Queued>,
    /// The cost of all entries of `queue`.
    queued: usize,
    max_pending: usize,
    /// Whether the last write ended inside a message.
    inside: bool,
    zstd: Option<Compressor>,
    /// The compressed form of the latest message: memory that is reused.
    frame: Vec<u8>,
}

/// A pending message or burst. `cut` counts within `data`.
struct Queued {
    data: Vec<u8>,
    cut: Cut,
    is_burst: bool,
}

impl Writer {
    pub(super) fn new(end: PipeEnd, mode: Mode, max_pending: usize, zstd: Option<Zstd>) -> Result<Writer> {
        let packer = Packer::new(end.whole_write(WRITING)?, mode, end.prints());
        Ok(Writer {
            zstd: zstd.filter(|_| !packer.prints()).map(Compressor::new).transpose()?,
            end,
            key: draw_key()?,
            generation: sync::generation(),
            packer,
            queue: VecDeque::new(),
            queued: 0,
            max_pending,
            inside: false,
            frame: Vec::new(),
        })
    }

    /// Sends one message, after any pending data. Waits until all of it is in the pipe. Returns the
    /// number of parts, at least 1.
    ///
    /// # Errors
    /// After any error the message is not delivered, and it is safe to send it again.
    /// - `TimedOut`: parts that were in the pipe already reach the reader as a `Torn` report.
    /// - `Interrupted` by a signal handler before the first part was written. Later signals do not
    ///   interrupt. (An [interrupt hook](crate::interrupt) may end both.)
    /// - `Closed`: no reader is left. Pending data is dropped.
    /// - `TooLong`: more parts than can be counted (over 8 TiB).
    /// - `Corrupt`: the kernel has cut a write that POSIX promises to keep whole.
    /// - `Os` with the kernel's number.
    pub fn send(&mut self, data: impl AsRef<[u8]>, deadline: impl Into<Deadline>) -> Result<u32> {
        const OP: &str = "atomic send";
        let deadline = deadline.into();
        self.flush_for(deadline, OP)?;
        self.with_payload(data.as_ref(), OP, |writer, payload| {
            let parts = writer.count_parts(payload.len(), OP)?;
            writer.guarded(payload.len(), |writer| {
                let mut cut = Cut::new(writer.zstd.is_some());
                while !cut.is_done() {
                    writer.packer.push_part(writer.key, payload, &mut cut);
                    writer.write_packed(deadline, OP)?;
                }
                Ok(parts)
            })
        })
    }

    /// Sends one message without waiting. The part that the pipe has no space for stays pending,
    /// and is written by the next call of any kind that writes, or by the drop. Returns the number
    /// of parts; `None`, with nothing taken, if the pending data and the message exceed
    /// `max_pending` bytes. (With nothing pending, and once the pipe has taken the first part, a
    /// message of any size is taken.)
    ///
    /// # Errors
    /// `Closed`, `TooLong`, `Os` as [`Writer::send`].
    pub fn try_send(&mut self, data: impl AsRef<[u8]>) -> Result<Option<u32>> {
        const OP: &str = "atomic send";
        let idle = self.try_flush_for(OP)?;
        self.with_payload(data.as_ref(), OP, |writer, payload| {
            let parts = writer.count_parts(payload.len(), OP)?;
            if !idle {
                return Ok(writer.queue_if_space(payload, false).then_some(parts));
            }
            let mut cut = Cut::new(writer.zstd.is_some());
            while !cut.is_done() {
                let before = cut;
                writer.packer.push_part(writer.key, payload, &mut cut);
                if writer.try_write_packed(OP)? {
                    continue;
                }
                if !before.has_begun() && !writer.inside {
                    // Nothing is in the pipe yet, so the message can still be refused.
                    writer.packer.clear();
                    return Ok(writer.queue_if_space(payload, false).then_some(parts));
                }
                if !cut.is_done() {
                    writer.queue(payload[cut.off..].to_vec(), cut.of_the_rest(), false);
                }
                break;
            }
            Ok(Some(parts))
        })
    }

    /// Sends messages in their order, several small ones in one `write`. Waits until all are in the
    /// pipe. Returns how many were sent whole: all of them, or fewer if the deadline passed (or a
    /// signal handler ran) in between; then send the rest again.
    ///
    /// # Errors
    /// As [`Writer::send`], if not one message was sent.
    pub fn send_many<T: AsRef<[u8]>>(
        &mut self,
        messages: &[T],
        deadline: impl Into<Deadline>,
    ) -> Result<usize> {
        const OP: &str = "atomic send_many";
        let deadline = deadline.into();
        self.flush_for(deadline, OP)?;
        let len = messages.iter().map(|message| message.as_ref().len()).sum();
        self.guarded(len, |writer| writer.send_each(messages, deadline, OP))
    }

    /// Appends one message to the pending data and writes nothing: for callers that
    /// [`Writer::flush`] by themselves. Returns the number of parts. Only memory limits the amount.
    ///
    /// # Errors
    /// `TooLong` as [`Writer::send`].
    pub fn enqueue(&mut self, data: impl AsRef<[u8]>) -> Result<u32> {
        const OP: &str = "atomic enqueue";
        self.after_fork();
        self.with_payload(data.as_ref(), OP, |writer, payload| {
            let parts = writer.count_parts(payload.len(), OP)?;
            writer.queue(payload.to_vec(), Cut::new(writer.zstd.is_some()), false);
            Ok(parts)
        })
    }

    /// Sends bytes in one write, after any pending data, without a header: in mixed mode between two
    /// control bytes, in plain mode as they are, for readers other than [`Reader`](super::Reader).
    ///
    /// # Errors
    /// - `TooLong`: it does not fit in one write; see [`Writer::fits_in_burst`].
    /// - `Invalid`, in mixed mode without compression: it contains `0x0E` or `0x0F`, or begins with
    ///   `0x10`. Send it as a message.
    /// - `TimedOut`, `Interrupted`, `Closed`, `Os`: it was not sent.
    pub fn burst(&mut self, data: impl AsRef<[u8]>, deadline: impl Into<Deadline>) -> Result<()> {
        const OP: &str = "atomic burst";
        let deadline = deadline.into();
        self.flush_for(deadline, OP)?;
        self.with_payload(data.as_ref(), OP, |writer, payload| {
            writer.check_burst(payload, OP)?;
            writer.packer.push_burst(payload);
            writer.write_packed(deadline, OP)
        })
    }

    /// As [`Writer::burst`], without waiting. The burst may stay pending, as with
    /// [`Writer::try_send`]; false if it was not taken.
    ///
    /// # Errors
    /// As [`Writer::burst`], except `TimedOut` and `Interrupted`.
    pub fn try_burst(&mut self, data: impl AsRef<[u8]>) -> Result<bool> {
        const OP: &str = "atomic burst";
        let idle = self.try_flush_for(OP)?;
        self.with_payload(data.as_ref(), OP, |writer, payload| {
            writer.check_burst(payload, OP)?;
            if idle {
                writer.packer.push_burst(payload);
                // A burst that was printed in part is taken, and the rest of it is pending.
                if writer.try_write_packed(OP)? || writer.inside {
                    return Ok(true);
                }
                writer.packer.clear();
            }
            Ok(writer.queue_if_space(payload, true))
        })
    }

    /// The number of bytes that a burst would take on the wire; `None` if it does not fit in one
    /// write. With compression this compresses. It does not check for the control bytes that
    /// [`Writer::burst`] refuses.
    ///
    /// # Errors
    /// `TooLong`: zstd cannot compress it.
    pub fn fits_in_burst(&mut self, data: impl AsRef<[u8]>) -> Result<Option<usize>> {
        self.with_payload(data.as_ref(), "atomic burst", |writer, payload| {
            let len = payload.len() + writer.packer.mode().burst_overhead();
            Ok((len <= writer.packer.limit()).then_some(len))
        })
    }

    /// Bytes that are taken and not yet written: payload, plus the overhead of one part for each
    /// message.
    pub fn pending(&self) -> usize {
        if self.generation == sync::generation() { self.packer.bytes().len() + self.queued } else { 0 }
    }

    /// Writes the pending data; small messages share writes.
    ///
    /// # Errors
    /// - `TimedOut`, `Interrupted`: the rest is still pending. Call again.
    /// - `Closed`, `Os`: the pending data is dropped.
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<()> {
        self.flush_for(deadline.into(), "atomic flush")
    }

    /// Writes as much as the pipe has space for. Returns true if nothing is pending any more.
    ///
    /// # Errors
    /// `Closed`, `Os`: the pending data is dropped.
    pub fn try_flush(&mut self) -> Result<bool> {
        self.try_flush_for("atomic flush")
    }

    /// Drops the pending data. A message that was written in part reaches the reader as a `Torn`
    /// report.
    pub fn discard(&mut self) {
        self.after_fork();
        self.abandon();
    }

    /// Writes the pending data and closes this handle. Dropping does the same without a deadline
    /// and without a report.
    ///
    /// # Errors
    /// As [`Writer::flush`]; the handle is closed in any case, and data that is still pending is
    /// dropped.
    pub fn close(mut self, deadline: impl Into<Deadline>) -> Result<()> {
        let done = self.flush_for(deadline.into(), "atomic close");
        self.discard();
        done
    }

    /// Another writer of the same pipe with a key of its own, for another thread. Pending data
    /// stays in this one.
    ///
    /// # Errors
    /// `Os` with the kernel's number when descriptors have run out.
    pub fn try_clone(&self) -> Result<Writer> {
        let end = self.end.try_clone("clone writer")?;
        Writer::new(end, self.packer.mode(), self.max_pending, self.zstd().cloned())
    }

    /// The key of the next message.
    pub fn key(&mut self) -> WriterKey {
        self.after_fork();
        self.key
    }

    /// The largest write that the kernel never splits, in bytes: 4096 on Linux; less into a socket
    /// with small buffers.
    pub fn pipe_buf(&self) -> usize {
        self.packer.limit()
    }

    /// The largest message, in bytes on the wire, that is sent as a single part.
    pub fn max_part(&self) -> usize {
        self.packer.max_part()
    }

    /// Whether messages are printed as lines, because no reader takes them apart:
    /// [`Options::or_print`](super::Options::or_print).
    pub fn is_printing(&self) -> bool {
        self.packer.prints()
    }

    /// Whether text may lie between the messages.
    pub fn is_mixed(&self) -> bool {
        self.packer.mode() == Mode::Mixed
    }

    /// Changes the mode. The reader must do the same at the same position of the stream.
    ///
    /// # Errors
    /// `WouldBlock` while anything is pending: it was cut for the old mode.
    pub fn set_mixed(&mut self, mixed: bool) -> Result<()> {
        if self.pending() > 0 {
            return Err(Error::new(ErrorKind::WouldBlock, "set mixed mode"));
        }
        self.after_fork();
        self.packer.set_mode(if mixed { Mode::Mixed } else { Mode::Plain });
        Ok(())
    }

    /// How messages are compressed.
    pub fn zstd(&self) -> Option<&Zstd> {
        self.zstd.as_ref().map(Compressor::settings)
    }

    /// Sets how messages are compressed from now on; `None` turns it off.
    ///
    /// # Errors
    /// `Invalid`: no such level exists, or the dictionary is not one. The old setting stays.
    pub fn set_zstd(&mut self, zstd: Option<Zstd>) -> Result<()> {
        self.zstd = zstd.filter(|_| !self.packer.prints()).map(Compressor::new).transpose()?;
        Ok(())
    }

    /// How many bytes may be pending before `try_send` takes no more.
    pub fn max_pending(&self) -> usize {
        self.max_pending
    }

    /// Sets how many bytes may be pending before `try_send` takes no more.
    pub fn set_max_pending(&mut self, bytes: usize) {
        self.max_pending = bytes;
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

    /// As [`Writer::set_capacity`], with at most [`max_capacity`](super::max_capacity) bytes.
    ///
    /// # Errors
    /// `Os` with the kernel's number.
    pub fn set_capacity_or_max(&mut self, bytes: usize) -> Result<usize> {
        self.end.set_capacity_or_max(bytes)
    }

    /// Lends `use_it` the payload: `data`, or the frame that it is compressed into.
    fn with_payload<T>(
        &mut self,
        data: &[u8],
        op: &'static str,
        use_it: impl FnOnce(&mut Writer, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let Some(zstd) = &mut self.zstd else { return use_it(self, data) };
        let mut frame = std::mem::take(&mut self.frame);
        let done = zstd.compress(data, &mut frame, op).and_then(|()| use_it(self, &frame));
        self.frame = frame;
        done
    }

    fn send_each<T: AsRef<[u8]>>(
        &mut self,
        messages: &[T],
        deadline: Deadline,
        op: &'static str,
    ) -> Result<usize> {
        // `packed` counts messages whose last part is in the packer or further, `sent` those whose
        // last part is in the pipe.
        let (mut packed, mut sent) = (0, 0);
        let outcome = messages.iter().try_for_each(|message| {
            self.with_payload(message.as_ref(), op, |writer, payload| {
                writer.count_parts(payload.len(), op)?;
                let mut cut = Cut::new(writer.zstd.is_some());
                while !cut.is_done() {
                    // Printing may stop anywhere, so each message is written by itself: those that
                    // were printed whole count as sent.
                    let is_apart = writer.packer.prints() && !writer.packer.is_empty();
                    if !is_apart && writer.packer.push_part(writer.key, payload, &mut cut) {
                        continue;
                    }
                    writer.write_packed(deadline, op)?;
                    sent = packed;
                }
                packed += 1;
                Ok(())
            })
        });
        let outcome = outcome.and_then(|()| {
            if !self.packer.is_empty() {
                self.write_packed(deadline, op)?;
            }
            sent = packed;
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(sent),
            Err(error) => {
                // Messages that were packed and not written are not sent; a failed write has
                // dropped them already.
                self.abandon();
                if sent == 0 { Err(error) } else { Ok(sent) }
            }
        }
    }

    /// Runs `write`, which writes about `len` bytes. Up to four writes suppress SIGPIPE one by one.
    fn guarded<T>(&mut self, len: usize, write: impl FnOnce(&mut Writer) -> T) -> T {
        match len / self.packer.limit() {
            0..4 => write(self),
            _ => PipeEnd::guard(self, |writer| &mut writer.end, write),
        }
    }

    fn count_parts(&self, len: usize, op: &'static str) -> Result<u32> {
        parts_of(len, self.packer.max_part()).ok_or(Error::new(ErrorKind::TooLong, op))
    }

    fn check_burst(&self, payload: &[u8], op: &'static str) -> Result<()> {
        let ambiguous = |byte: &u8| *byte == SHIFT_OUT || *byte == SHIFT_IN;
        // The zstd frame itself marks the bounds of a compressed burst.
        let framed = self.packer.opens_bursts() && self.zstd.is_none();
        if payload.len() + self.packer.mode().burst_overhead() > self.packer.limit() {
            Err(Error::new(ErrorKind::TooLong, op))
        } else if framed && (payload.first() == Some(&DATA_LINK_ESCAPE) || payload.iter().any(ambiguous)) {
            Err(Error::new(ErrorKind::Invalid, op))
        } else {
            Ok(())
        }
    }

    fn queue(&mut self, data: Vec<u8>, cut: Cut, is_burst: bool) {
        self.queued += data.len() + self.packer.mode().part_overhead();
        self.queue.push_back(Queued { data, cut, is_burst });
    }

    fn queue_if_space(&mut self, payload: &[u8], is_burst: bool) -> bool {
        let fits = self.pending() + payload.len() + self.packer.mode().part_overhead() <= self.max_pending;
        if fits {
            self.queue(payload.to_vec(), Cut::new(self.zstd.is_some()), is_burst);
        }
        fits
    }

    fn flush_for(&mut self, deadline: Deadline, op: &'static str) -> Result<()> {
        self.after_fork();
        while self.pack_queue() {
            match self.write_or_print(deadline) {
                Ok(()) => self.written(),
                Err(errno @ (Errno::TIMEDOUT | Errno::INTR)) => return Err(errno.at(op)),
                Err(errno) => return Err(self.fail(errno, op)),
            }
        }
        Ok(())
    }

    fn try_flush_for(&mut self, op: &'static str) -> Result<bool> {
        self.after_fork();
        while self.pack_queue() {
            if !self.try_write_packed(op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills the packer from the queue, if it is empty. Returns false if both are empty.
    fn pack_queue(&mut self) -> bool {
        if !self.packer.is_empty() {
            return true;
        }
        while let Some(front) = self.queue.front_mut() {
            let off = front.cut.off;
            let taken = match front.is_burst {
                true => self.packer.push_burst(&front.data),
                false => self.packer.push_part(self.key, &front.data, &mut front.cut),
            };
            if !taken {
                break;
            }
            let left = if front.is_burst { 0 } else { front.data.len() - front.cut.off };
            self.queued -= front.data.len() - off - left;
            if front.is_burst || front.cut.is_done() {
                self.queued -= self.packer.mode().part_overhead();
                self.queue.pop_front();
            }
        }
        !self.packer.is_empty()
    }

    /// Writes the packer's bytes, which have not been queued. Inside a message signals do not
    /// interrupt, because the caller could not repeat the remaining half; only an interrupt hook
    /// that says so does.
    fn write_packed(&mut self, deadline: Deadline, op: &'static str) -> Result<()> {
        loop {
            match self.write_or_print(deadline) {
                Ok(()) => break,
                Err(Errno::INTR) if self.inside && !interrupt::is_hooked() => {}
                Err(errno) => return Err(self.fail(errno, op)),
            }
        }
        self.written();
        Ok(())
    }

    fn write_or_print(&mut self, deadline: Deadline) -> sys::Result<()> {
        if self.end.prints() { self.print(deadline) } else { self.end.write(self.packer.bytes(), deadline) }
    }

    /// Prints the packer's bytes. If an error stops it, the printed bytes stay printed, and only
    /// the rest is left in the packer.
    fn print(&mut self, deadline: Deadline) -> sys::Result<()> {
        let mut rest = self.packer.bytes();
        let outcome = self.end.print(&mut rest, deadline);
        let printed = self.packer.bytes().len() - rest.len();
        if outcome.is_err() && printed > 0 {
            self.packer.printed(printed);
            self.inside = true;
        }
        outcome
    }

    fn try_print(&mut self) -> sys::Result<bool> {
        match self.print(Deadline::now()) {
            Ok(()) => Ok(true),
            Err(Errno::TIMEDOUT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn try_write_packed(&mut self, op: &'static str) -> Result<bool> {
        let done = match self.end.prints() {
            true => self.try_print(),
            false => self.end.try_write(self.packer.bytes()),
        };
        match done {
            Ok(true) => {
                self.written();
                Ok(true)
            }
            Ok(false) => Ok(false),
            // A call that does not wait is not interrupted; if a kernel says so, treat it as no
            // space.
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(self.fail(errno, op)),
        }
    }

    fn written(&mut self) {
        self.inside = !self.packer.ends_whole();
        self.packer.written();
    }

    fn fail(&mut self, errno: Errno, op: &'static str) -> Error {
        self.abandon();
        errno.at(op)
    }

    fn abandon(&mut self) {
        self.packer.clear();
        self.queue.clear();
        self.queued = 0;
        if std::mem::take(&mut self.inside) {
            // If the kernel refuses, the next number is different, too.
            self.key = draw_key().unwrap_or(self.key.next(sys::process_id()));
        }
    }

    /// In a forked child, the pending data is the parent's to write, and so is the key.
    fn after_fork(&mut self) {
        let generation = sync::generation();
        if self.generation != generation {
            self.generation = generation;
            self.inside = true;
            self.abandon();
            self.packer.forget_line();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A drop cannot report errors; `close` can. If the program has closed the descriptor, the rest
        // must not go to whatever has the number now.
        while self.pending() > 0
            && self.end.is_intact()
            && matches!(self.flush(Deadline::NEVER), Err(error) if error.kind() == ErrorKind::Interrupted)
            && !interrupt::is_hooked()
        {}
    }
}

impl AsFd for Writer {
    /// The pipe's descriptor, which blocks unless other code has changed that: pass it to a child
    /// as its stdout, or poll it for writing.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("end", &self.end).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Random bits beside the process number: neither a reused number, nor another pid namespace on the
/// same FIFO, nor a second handle in the same thread has the same key while one of its messages is
/// unfinished.
fn draw_key() -> Result<WriterKey> {
    loop {
        let bits = sys::random().map_err(|errno| errno.at("draw writer key"))?;
        if let Some(key) = WriterKey::draw(sys::process_id(), bits) {
            return Ok(key);
        }
    }
}
