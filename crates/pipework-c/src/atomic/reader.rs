//! The reading end.

use std::ffi::{c_char, c_int};

use pipework::Deadline;
use pipework::atomic::{Item, Options, Reader};

use super::item::{Loan, pwk_item};
use super::options::{number, pwk_atomic_options};
use crate::bytes::pwk_buffer;
use crate::deadline::{PWK_NEVER, at, pwk_deadline};
use crate::descriptor::{Passed, pwk_fd_how};
use crate::edge::{
    Handle, In, InOut, Lent, Name, Number, Out, Truth, done, free, get, hand_out, or_would_block, put, run,
};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};

/// The reading end of a pipe, FIFO or Unix stream socket. One thread at a time;
/// pwk_atomic_reader_clone makes another for another thread. Only one process can read from a pipe
/// in this way: a child that was forked may use the reader if the parent had nothing buffered, and
/// gets PWK_STALE otherwise. It is freed with pwk_atomic_reader_free.
pub struct pwk_atomic_reader {
    pub(super) reader: Reader,
    pub(super) loan: Loan,
}

/// Opens the FIFO at `path` for reading, at once. The pipe ends when its last writer has left;
/// before the first has come, calls wait for it.
///
/// Fails with PWK_INVALID if `path` is a symbolic link or no FIFO; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_open_fifo(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_atomic_options>,
    reader: Out<'_, Handle<pwk_atomic_reader>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_atomic_reader_open_fifo", options, reader, error, |options, name| {
        Ok(options.read_fifo(path.path(name)?)?)
    })
}

/// As pwk_atomic_reader_open_fifo, but the pipe never ends: when the last writer has left, what it
/// did not finish is reported, and calls wait for the next one. It needs /proc, and the right to
/// open the FIFO again later.
///
/// Fails as pwk_atomic_reader_open_fifo.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_listen_fifo(
    path: Lent<'_, c_char>,
    options: Lent<'_, pwk_atomic_options>,
    reader: Out<'_, Handle<pwk_atomic_reader>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    make("pwk_atomic_reader_listen_fifo", options, reader, error, |options, name| {
        Ok(options.listen_fifo(path.path(name)?)?)
    })
}

/// Reads from a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family.
///
/// Fails with PWK_INVALID if it is none of these, or not open for reading, which pwk_error_text
/// says; PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_from_fd(
    fd: Number,
    how: pwk_fd_how,
    options: Lent<'_, pwk_atomic_options>,
    reader: Out<'_, Handle<pwk_atomic_reader>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_from_fd", error, |name| {
        let (fd, reader) = (Passed::of(fd, how, name)?, name.given(reader)?);
        let options = options.options(name)?.options(name)?;
        hand_out(
            reader,
            made(match fd {
                Passed::Own(fd) => options.reader(fd)?,
                Passed::Lent(fd) => options.reader_on(fd)?,
            }),
        )
    })
}

/// Closes this end; the pipe's reading end is closed with the last of its clones.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_free(reader: Handle<pwk_atomic_reader>) {
    free(reader);
}

/// Another reader of the same pipe, for another thread. Clones share one buffer: each item goes to
/// one of them.
///
/// Fails with PWK_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_clone(
    reader: In<'_, pwk_atomic_reader>,
    clone: Out<'_, Handle<pwk_atomic_reader>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_clone", error, |name| {
        let (reader, clone) = (name.given(reader)?, name.given(clone)?);
        hand_out(clone, made(reader.reader.try_clone()?))
    })
}

/// Waits for the next message.
///
/// Fails with PWK_CLOSED if the pipe has ended, and all is given out. PWK_TORN, PWK_TOO_LONG,
/// PWK_CORRUPT: a message is lost; pwk_atomic_reader_torn says whose, and the next call goes on.
/// (Where it says nothing, the stream makes no sense, and stays so.) PWK_INCOMPATIBLE: the message
/// is compressed, and this reader does not decompress; or the messages are those of mixed mode, and
/// stay so. PWK_TIMED_OUT and PWK_INTERRUPTED: nothing is lost, call again. PWK_INVALID in mixed
/// mode, where pwk_atomic_reader_next_item gives out text, too. PWK_STALE in a child, if the parent
/// had read what it had not used. PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_recv(
    reader: InOut<'_, pwk_atomic_reader>,
    deadline: pwk_deadline,
    message: Out<'_, pwk_item>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_recv", error, |name| {
        let (pwk_atomic_reader { reader, loan }, message) = (name.given(reader)?, name.given(message)?);
        loan.end();
        put(Some(message), loan.lend(Item::Message(reader.recv(at(deadline))?)))
    })
}

/// The next message if it is there, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pwk_atomic_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_try_recv(
    reader: InOut<'_, pwk_atomic_reader>,
    message: Out<'_, pwk_item>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_try_recv", error, |name| {
        let (pwk_atomic_reader { reader, loan }, message) = (name.given(reader)?, name.given(message)?);
        loan.end();
        or_would_block(reader.try_recv()?, |found| put(Some(message), loan.lend(Item::Message(found))))
    })
}

/// Waits for the next line, burst, message or report of a lost message.
///
/// Fails with PWK_CLOSED if the pipe has ended, and all items were returned. PWK_CORRUPT: a plain
/// stream that makes no sense; with `strict`, bytes that open like a part and are none.
/// PWK_INCOMPATIBLE: a mixed reader's stream begins with a message of plain mode; this is returned
/// once, and the next call gives the bytes as text. PWK_TIMED_OUT, PWK_INTERRUPTED, PWK_STALE and
/// PWK_OS as pwk_atomic_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_next_item(
    reader: InOut<'_, pwk_atomic_reader>,
    deadline: pwk_deadline,
    item: Out<'_, pwk_item>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_next_item", error, |name| {
        let (pwk_atomic_reader { reader, loan }, item) = (name.given(reader)?, name.given(item)?);
        loan.end();
        put(Some(item), loan.lend(reader.next_item(at(deadline))?))
    })
}

/// The next item if it is there, else PWK_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pwk_atomic_reader_next_item.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_try_next_item(
    reader: InOut<'_, pwk_atomic_reader>,
    item: Out<'_, pwk_item>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_try_next_item", error, |name| {
        let (pwk_atomic_reader { reader, loan }, item) = (name.given(reader)?, name.given(item)?);
        loan.end();
        or_would_block(reader.try_next_item()?, |found| put(Some(item), loan.lend(found)))
    })
}

/// Fills in the report of the loss for which pwk_atomic_reader_recv or pwk_atomic_reader_try_recv
/// failed last; false if the last call lost nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_torn(
    reader: In<'_, pwk_atomic_reader>,
    report: Out<'_, pwk_item>,
) -> bool {
    get(false, || {
        let torn = reader.and_then(|reader| reader.reader.torn());
        torn.is_some_and(|torn| put(report, torn.into()).is_ok())
    })
}

/// Puts the text of a line that has begun and not ended into `text`, as far as it has come; nothing
/// if no line has begun. It does not read: call it when pwk_atomic_reader_try_next_item has
/// nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_peek(
    reader: InOut<'_, pwk_atomic_reader>,
    text: InOut<'_, pwk_buffer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_peek", error, |name| {
        let (reader, mut text) = (&mut name.given(reader)?.reader, name.given(text)?.lend(name)?);
        text.clear();
        text.extend(reader.peek().unwrap_or_default());
        Ok(PWK_OK)
    })
}

/// By when to call again although the descriptor is not readable; PWK_NEVER: not before it is. For
/// event loops, to be asked after a `try_` function had nothing: at that time a part that waits for
/// its rest becomes text, or more is in the pipe than one call looks at.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_next_timeout(reader: In<'_, pwk_atomic_reader>) -> pwk_deadline {
    get(PWK_NEVER, || {
        reader.and_then(|reader| reader.reader.next_timeout()).map_or(PWK_NEVER, Deadline::as_ns)
    })
}

/// Waits for bytes and reads them without looking at them, to make space for writers. `len` says
/// how many they are: up to the read size, and 0 at the end of the pipe.
///
/// Fails with PWK_TOO_LONG once max_unfinished bytes lie there; PWK_TIMED_OUT; PWK_INTERRUPTED;
/// PWK_STALE; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_read_ahead(
    reader: InOut<'_, pwk_atomic_reader>,
    deadline: pwk_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_read_ahead", error, |name| put(len, open(reader, name)?.read_ahead(at(deadline))?))
}

/// Whether the pipe has ended, and all is given out. It does not read: pwk_atomic_reader_wait_eof
/// does.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_is_eof(reader: In<'_, pwk_atomic_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.is_eof()))
}

/// Waits until it is known whether the pipe has ended, and all is given out; `is_eof` is false as
/// soon as something is there, even the beginning of a message. It reads, and gives nothing out.
///
/// Fails with PWK_TIMED_OUT if neither has come. PWK_INTERRUPTED; PWK_CORRUPT and PWK_INCOMPATIBLE
/// as pwk_atomic_reader_next_item; PWK_STALE; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_wait_eof(
    reader: InOut<'_, pwk_atomic_reader>,
    deadline: pwk_deadline,
    is_eof: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_wait_eof", error, |name| put(is_eof, open(reader, name)?.wait_eof(at(deadline))?))
}

/// Takes no more from the pipe, as if it had ended here. It does not wait.
///
/// Fails with PWK_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_finish(
    reader: InOut<'_, pwk_atomic_reader>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_finish", error, |name| done(open(reader, name)?.finish()))
}

/// How many bytes were read and not given out; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_buffered(reader: In<'_, pwk_atomic_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.reader.buffered()))
}

/// Whether nothing is held: no bytes, no line that has begun, no part of a message. After
/// pwk_atomic_reader_set_exact it is so between the messages of a single writer, and another reader
/// may read on there.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_is_empty(reader: In<'_, pwk_atomic_reader>) -> bool {
    get(true, || reader.is_none_or(|reader| reader.reader.is_empty()))
}

/// Whether another reader reads from the same FIFO now, which both have opened by its path. Both get
/// pieces of the stream, and messages are lost to both.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_has_other_reader(reader: In<'_, pwk_atomic_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.has_other_reader()))
}

/// The descriptor, for an event loop, lent until the handle is freed; -1 for NULL. When it is
/// readable, call a `try_` function until that has nothing, and then
/// pwk_atomic_reader_next_timeout. A listener has another one after its first call in a forked
/// child. Between clones, an item may also wait in the buffer that they share.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_fd(reader: In<'_, pwk_atomic_reader>) -> c_int {
    number(reader.map(|reader| &reader.reader))
}

/// Bytes that one read asks for; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_read_size(reader: In<'_, pwk_atomic_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.reader.read_size()))
}

/// Sets how many bytes one read asks for: from 1 to 16 MiB. NULL is allowed, here and below.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_read_size(reader: InOut<'_, pwk_atomic_reader>, bytes: usize) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_read_size(bytes)));
}

/// Makes reads stop at the end of the given item, counted from here on, and then of each further
/// one, so that the bytes behind it stay in the pipe for another reader. 0: they read ahead, as at
/// first. Reports of lost messages do not count. For each 64 KiB it costs two system calls and a
/// copy.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_exact(reader: InOut<'_, pwk_atomic_reader>, items: u64) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_exact(items)));
}

/// Sets whether items come with the zstd frame that held them.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_keep_compressed(reader: InOut<'_, pwk_atomic_reader>, keep: Truth) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_keep_compressed(keep.is_set())));
}

/// Whether text may lie between the messages.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_is_mixed(reader: In<'_, pwk_atomic_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.is_mixed()))
}

/// Changes the mode for all that is not given out yet. Writers must do the same at the same place
/// of the stream.
///
/// Fails with PWK_WOULD_BLOCK while a line is unfinished; PWK_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_mixed(
    reader: InOut<'_, pwk_atomic_reader>,
    mixed: Truth,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_set_mixed", error, |name| done(open(reader, name)?.set_mixed(mixed.is_set())))
}

/// Sets how messages are decompressed, for all that were not returned yet: as `compress`,
/// `dictionary` and `accept_unchecked` of the options say; the other fields are ignored. NULL: not
/// at all.
///
/// Fails with PWK_INVALID if the level or the dictionary is none; PWK_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_zstd(
    reader: InOut<'_, pwk_atomic_reader>,
    options: Lent<'_, pwk_atomic_options>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_set_zstd", error, |name| {
        done(open(reader, name)?.set_zstd(options.options(name)?.zstd(name)?))
    })
}

/// How many bytes the pipe holds before a writer waits.
///
/// Fails with PWK_UNSUPPORTED for a socket, here and below; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_capacity(
    reader: In<'_, pwk_atomic_reader>,
    bytes: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_capacity", error, |name| put(bytes, name.given(reader)?.reader.capacity()?))
}

/// Asks for a capacity; `now` says which one the kernel chose, at least as large.
///
/// Fails with PWK_OS, with EPERM past the limit of an unprivileged user, with EBUSY below the number
/// of bytes in the pipe. The capacity stays as it was then.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_capacity(
    reader: InOut<'_, pwk_atomic_reader>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_set_capacity", error, |name| put(now, open(reader, name)?.set_capacity(bytes)?))
}

/// As pwk_atomic_reader_set_capacity, with pwk_atomic_max_capacity bytes at the most.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_reader_set_capacity_or_max(
    reader: InOut<'_, pwk_atomic_reader>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_atomic_reader_set_capacity_or_max", error, |name| {
        put(now, open(reader, name)?.set_capacity_or_max(bytes)?)
    })
}

// ---------------------------------------------------------------- on this side

pub(super) fn made(reader: Reader) -> pwk_atomic_reader {
    pwk_atomic_reader { reader, loan: Loan::default() }
}

/// Every function that makes a reader of a path.
fn make(
    name: &'static str,
    options: Lent<'_, pwk_atomic_options>,
    reader: Out<'_, Handle<pwk_atomic_reader>>,
    error: Out<'_, pwk_error>,
    make: impl FnOnce(Options, Name) -> Result<Reader>,
) -> pwk_status {
    run(name, error, |name| {
        let reader = name.given(reader)?;
        hand_out(reader, made(make(options.options(name)?.options(name)?, name)?))
    })
}

/// The reader of a call that lends nothing, and ends the loan of earlier bytes.
fn open(reader: InOut<'_, pwk_atomic_reader>, name: Name) -> Result<&mut Reader> {
    let pwk_atomic_reader { reader, loan } = name.given(reader)?;
    loan.end();
    Ok(reader)
}
