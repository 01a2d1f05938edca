//! The writing end, and pipes with both ends.

use std::ffi::{c_char, c_int, c_void};

use pipework::atomic::Writer;

use super::item::{NOBODY, pwk_key};
use super::options::{number, pwk_atomic_options};
use super::reader::{self, pwk_atomic_reader};
use crate::bytes::pwk_bytes;
use crate::deadline::{at, pwk_deadline};
use crate::descriptor::{Passed, pwk_fd_how};
use crate::edge::{
    Handle, In, InOut, Lent, Number, Out, Truth, done, free, get, hand_out, or_would_block, put, run,
};
use crate::error::{PWK_OK, PWK_WOULD_BLOCK, Result, pwk_error, pwk_status};

/// The writing end of a pipe, FIFO or Unix stream socket. One thread at a time;
/// pwk_atomic_writer_clone makes another for another thread, and any number of processes can have
/// theirs. In a child that was forked it is a writer of its own, without the parent's pending data.
/// It is freed with pwk_atomic_writer_free, or with pwk_atomic_writer_close.
/// pending. It is freed with pwk_atomic_writer_free, or with pwk_atomic_writer_close.
pub struct pwk_atomic_writer(pub(crate) Writer);

/// Makes a new pipe. A child that prints and sends into it gets pwk_atomic_writer_fd as its
/// stdout, by dup2, and makes a writer there: pwk_atomic_writer_from_fd(1, PWK_FD_LEND, ..) with
/// the same options.
///
/// Fails with PWK_INVALID if the level or the dictionary is none; PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_pair(
    options: Lent<'_, pwk_atomic_options>,
    reader: Out<'_, Handle<pwk_atomic_reader>>,
    writer: Out<'_, Handle<pwk_atomic_writer>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_pair", error, |name| {
        let (reader, writer) = (name.given(reader)?, name.given(writer)?);
        let (reading, writing) = options.options(name)?.options(name)?.pair()?;
        hand_out(reader, reader::made(reading))?;
        hand_out(writer, pwk_atomic_writer(writing))
    })
}

/// Opens the FIFO at `path` for writing as soon as it has a reader.
///
/// Fails with PWK_TIMED_OUT: the FIFO has no reader. PWK_INTERRUPTED: call again. PWK_INVALID if
/// `path` is a symbolic link or no FIFO; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_open_fifo(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_atomic_options>,
    deadline: pwk_deadline,
    writer: Out<'_, Handle<pwk_atomic_writer>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_open_fifo", error, |name| {
        let (path, writer) = (path.path(name)?, name.given(writer)?);
        let options = options.options(name)?.options(name)?;
        hand_out(writer, pwk_atomic_writer(options.write_fifo(path, at(deadline))?))
    })
}

/// Writes to a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family; with
/// `or_print`, to a terminal, a file or a device, too. Free the handle before you close a
/// descriptor that you have lent: that writes what is pending.
///
/// Fails with PWK_INVALID if it is none of these, or not open for writing, which pwk_error_text
/// says; PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_from_fd(
    fd: Number,
    how: pwk_fd_how,
    options: Lent<'_, pwk_atomic_options>,
    writer: Out<'_, Handle<pwk_atomic_writer>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_from_fd", error, |name| {
        let (fd, writer) = (Passed::of(fd, how, name)?, name.given(writer)?);
        let options = options.options(name)?.options(name)?;
        hand_out(
            writer,
            pwk_atomic_writer(match fd {
                Passed::Own(fd) => options.writer(fd)?,
                Passed::Lent(fd) => options.writer_on(fd)?,
            }),
        )
    })
}

/// Writes what is pending, for as long as that takes, and closes this end. pwk_atomic_writer_close
/// has a deadline, and pwk_atomic_writer_discard drops what is pending.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_free(writer: Handle<pwk_atomic_writer>) {
    free(writer);
}

/// Writes what is pending and frees the handle, in any case: after a failure, what is left is
/// dropped.
///
/// Fails as pwk_atomic_writer_flush, which is to be called first where a signal must not drop
/// anything.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_close(
    writer: Handle<pwk_atomic_writer>,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_close", error, |name| done(name.given(writer)?.0.close(at(deadline))))
}

/// Another writer of the same pipe with a key of its own, for another thread. Pending data stays
/// here.
///
/// Fails with PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_clone(
    writer: In<'_, pwk_atomic_writer>,
    clone: Out<'_, Handle<pwk_atomic_writer>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_clone", error, |name| {
        let (writer, clone) = (name.given(writer)?, name.given(clone)?);
        hand_out(clone, pwk_atomic_writer(writer.0.try_clone()?))
    })
}

/// Sends one message, after all pending data, and waits until all of it is in the pipe.
///
/// After any failure the message is not delivered, and may be sent again. Fails with PWK_TIMED_OUT:
/// parts that were in the pipe already reach the reader as a report. PWK_INTERRUPTED, if nothing
/// was in the pipe yet: later signals do not interrupt. PWK_CLOSED: the pipe has no reader; pending
/// data is dropped. PWK_TOO_LONG: more parts than can be counted. PWK_CORRUPT: the kernel has cut a
/// write that POSIX promises to keep whole. PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_send(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_send", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        done(writer.0.send(data, at(deadline)).map(drop))
    })
}

/// As pwk_atomic_writer_send. `parts` says in how many parts the message goes, at least 1.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_send_message(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    parts: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_send_message", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        put(parts, writer.0.send(data, at(deadline))?)
    })
}

/// Sends one message, and does not wait. The bytes that the pipe has no space for are pending, and
/// are written by the next call that writes, or when the handle is freed. PWK_WOULD_BLOCK, and
/// nothing is taken, if more than max_pending bytes would be pending. A longer message than that is
/// taken if nothing is pending and the pipe has space for its first part. PWK_OK may mean that
/// nothing of it is written yet: pwk_atomic_writer_pending says.
///
/// Fails with PWK_CLOSED, PWK_TOO_LONG, PWK_CORRUPT and PWK_OS as pwk_atomic_writer_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_try_send(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_try_send", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        or_would_block(writer.0.try_send(data)?, |_| Ok(PWK_OK))
    })
}

/// As pwk_atomic_writer_try_send. `parts` says in how many parts the message goes, at least 1.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_try_send_message(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    parts: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_try_send_message", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        or_would_block(writer.0.try_send(data)?, |sent| put(parts, sent))
    })
}

/// Sends `count` messages in their order, several small ones in one write, and waits until all are
/// in the pipe. `sent`, which must not be NULL, says how many were sent whole: fewer if the
/// deadline has passed or a signal came in between; then send the rest again.
///
/// Fails as pwk_atomic_writer_send, if not one was sent.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_send_many(
    writer: InOut<'_, pwk_atomic_writer>,
    messages: Lent<'_, pwk_bytes>,
    count: usize,
    deadline: pwk_deadline,
    sent: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_send_many", error, |name| {
        let (writer, sent) = (name.given(writer)?, name.given(sent)?);
        let messages = messages.array(count, name)?.iter().map(|message| message.read(name));
        let messages = messages.collect::<Result<Vec<&[u8]>>>()?;
        put(Some(sent), writer.0.send_many(&messages, at(deadline))?)
    })
}

/// Adds one message to the pending data, and writes nothing: for programs that call
/// pwk_atomic_writer_flush. It has no limit but memory.
///
/// Fails with PWK_TOO_LONG as pwk_atomic_writer_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_enqueue(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    parts: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_enqueue", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        put(parts, writer.0.enqueue(data)?)
    })
}

/// Sends bytes in one write, after all pending data, without a sender's name: in mixed mode between
/// two control bytes, in plain mode as they are, for a reader that is not of this kind.
///
/// Fails with PWK_TOO_LONG if they do not fit in one write, as pwk_atomic_writer_fits_in_burst
/// says. PWK_INVALID in mixed mode without compression, if they hold 0x0E or 0x0F, or begin with
/// 0x10: they can go as a message. PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_CLOSED, PWK_OS: they were
/// not sent.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_burst(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_burst", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        done(writer.0.burst(data, at(deadline)))
    })
}

/// As pwk_atomic_writer_burst, without waiting; pending data and PWK_WOULD_BLOCK as
/// pwk_atomic_writer_try_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_try_burst(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_try_burst", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        or_would_block(writer.0.try_burst(data)?.then_some(()), |()| Ok(PWK_OK))
    })
}

/// Says whether bytes fit in a burst, and how many it takes in the pipe then, 0 otherwise. If
/// messages are compressed, this compresses.
///
/// Fails with PWK_TOO_LONG if they are too long for zstd.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_fits_in_burst(
    writer: InOut<'_, pwk_atomic_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    fits: Out<'_, bool>,
    in_pipe: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_fits_in_burst", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        let found = writer.0.fits_in_burst(data)?;
        put(fits, found.is_some())?;
        put(in_pipe, found.unwrap_or(0))
    })
}

/// How many bytes are taken and not yet written; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_pending(writer: In<'_, pwk_atomic_writer>) -> usize {
    get(0, || writer.map_or(0, |writer| writer.0.pending()))
}

/// Writes what is pending; small messages share writes.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: the rest is still pending, call again. PWK_CLOSED,
/// PWK_CORRUPT and PWK_OS: pending data is dropped.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_flush(
    writer: InOut<'_, pwk_atomic_writer>,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_flush", error, |name| done(name.given(writer)?.0.flush(at(deadline))))
}

/// Writes what the pipe has space for; PWK_WOULD_BLOCK while anything is still pending. Otherwise
/// it is as pwk_atomic_writer_flush.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_try_flush(
    writer: InOut<'_, pwk_atomic_writer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_try_flush", error, |name| {
        Ok(if name.given(writer)?.0.try_flush()? { PWK_OK } else { PWK_WOULD_BLOCK })
    })
}

/// Drops what is pending. A message that was written in part reaches the reader as a report. NULL
/// is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_discard(writer: InOut<'_, pwk_atomic_writer>) {
    get((), || writer.into_iter().for_each(|writer| writer.0.discard()));
}

/// The key under which the next message goes out; zeros for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_key(writer: InOut<'_, pwk_atomic_writer>) -> pwk_key {
    get(NOBODY, || writer.map_or(NOBODY, |writer| writer.0.key().into()))
}

/// The pipe's descriptor, lent until the handle is freed; -1 for NULL. A child may get it as its
/// stdout, and an event loop may poll it for writing.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_fd(writer: In<'_, pwk_atomic_writer>) -> c_int {
    number(writer.map(|writer| &writer.0))
}

/// Bytes of the largest write that the kernel never splits: 4096, or less for a socket with small
/// buffers; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_pipe_buf(writer: In<'_, pwk_atomic_writer>) -> usize {
    get(0, || writer.map_or(0, |writer| writer.0.pipe_buf()))
}

/// Bytes of the largest message, as it is in the pipe, that goes out as a single part; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_max_part(writer: In<'_, pwk_atomic_writer>) -> usize {
    get(0, || writer.map_or(0, |writer| writer.0.max_part()))
}

/// Whether messages are printed as lines: see pwk_atomic_options.or_print.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_is_printing(writer: In<'_, pwk_atomic_writer>) -> bool {
    get(false, || writer.is_some_and(|writer| writer.0.is_printing()))
}

/// Whether text may lie between the messages.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_is_mixed(writer: In<'_, pwk_atomic_writer>) -> bool {
    get(false, || writer.is_some_and(|writer| writer.0.is_mixed()))
}

/// Changes the mode. The reader must do the same at the same place of the stream.
///
/// Fails with PWK_WOULD_BLOCK while anything is pending.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_mixed(
    writer: InOut<'_, pwk_atomic_writer>,
    mixed: Truth,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_set_mixed", error, |name| done(name.given(writer)?.0.set_mixed(mixed.is_set())))
}

/// Sets how messages are compressed from now on: as `compress`, `level` and `dictionary` of the
/// options say; the other fields are ignored. NULL: not at all.
///
/// Fails with PWK_INVALID if the level or the dictionary is none. The former setting stays then.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_zstd(
    writer: InOut<'_, pwk_atomic_writer>,
    options: Lent<'_, pwk_atomic_options>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_set_zstd", error, |name| {
        done(name.given(writer)?.0.set_zstd(options.options(name)?.zstd(name)?))
    })
}

/// Sets how many bytes may be pending before pwk_atomic_writer_try_send takes no more. NULL is
/// allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_max_pending(writer: InOut<'_, pwk_atomic_writer>, bytes: usize) {
    get((), || writer.into_iter().for_each(|writer| writer.0.set_max_pending(bytes)));
}

/// How many bytes the pipe holds before a writer waits.
///
/// Fails with PWK_UNSUPPORTED for a socket, here and below; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_capacity(
    writer: In<'_, pwk_atomic_writer>,
    bytes: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_capacity", error, |name| put(bytes, name.given(writer)?.0.capacity()?))
}

/// Asks for a capacity; `now` says which one the kernel chose, at least as large. Fails as
/// pwk_atomic_reader_set_capacity.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_capacity(
    writer: InOut<'_, pwk_atomic_writer>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_set_capacity", error, |name| put(now, name.given(writer)?.0.set_capacity(bytes)?))
}

/// As pwk_atomic_writer_set_capacity, with pwk_atomic_max_capacity bytes at the most.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_capacity_or_max(
    writer: InOut<'_, pwk_atomic_writer>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_writer_set_capacity_or_max", error, |name| {
        put(now, name.given(writer)?.0.set_capacity_or_max(bytes)?)
    })
}
