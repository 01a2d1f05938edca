//! The reading end.

use std::ffi::{c_char, c_int};

use pipework::Deadline;
use pipework::atomic::{Item, Options, Reader};

use super::item::{Loan, pw_item};
use super::options::{number, pw_atomic_options};
use crate::bytes::pw_buffer;
use crate::deadline::{PW_NEVER, at, pw_deadline};
use crate::descriptor::{Passed, pw_fd_how};
use crate::edge::{
    Handle, In, InOut, Lent, Name, Number, Out, Truth, done, free, get, hand_out, or_would_block, put, run,
};
use crate::error::{PW_OK, Result, pw_error, pw_status};

/// The reading end of a pipe, FIFO or Unix stream socket. One thread at a time; pw_reader_clone
/// makes another for another thread. Only one process can read from a pipe in this way: a child
/// that was forked may use the reader if the parent had nothing buffered, and gets PW_STALE
/// otherwise. It is freed with pw_reader_free.
pub struct pw_reader {
    pub(super) reader: Reader,
    pub(super) loan: Loan,
}

/// Opens the FIFO at `path` for reading, at once. The pipe ends when its last writer has left;
/// before the first has come, calls wait for it.
///
/// Fails with PW_INVALID if `path` is a symbolic link or no FIFO; PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_atomic_read_fifo(
    path: Lent<'_, c_char>,
    options: Lent<'_, pw_atomic_options>,
    reader: Out<'_, Handle<pw_reader>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    make("pw_atomic_read_fifo", options, reader, error, |options, name| {
        Ok(options.read_fifo(path.path(name)?)?)
    })
}

/// As pw_atomic_read_fifo, but the pipe never ends: when the last writer has left, what it did not
/// finish is reported, and calls wait for the next one. It needs /proc, and the right to open the
/// FIFO again later.
///
/// Fails as pw_atomic_read_fifo.
#[unsafe(no_mangle)]
pub extern "C" fn pw_atomic_listen_fifo(
    path: Lent<'_, c_char>,
    options: Lent<'_, pw_atomic_options>,
    reader: Out<'_, Handle<pw_reader>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    make("pw_atomic_listen_fifo", options, reader, error, |options, name| {
        Ok(options.listen_fifo(path.path(name)?)?)
    })
}

/// Reads from a descriptor: a pipe, a FIFO, or a connected stream socket of the Unix family.
///
/// Fails with PW_INVALID if it is none of these, or not open for reading, which pw_error_text says;
/// PW_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pw_atomic_read_fd(
    fd: Number,
    how: pw_fd_how,
    options: Lent<'_, pw_atomic_options>,
    reader: Out<'_, Handle<pw_reader>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_atomic_read_fd", error, |name| {
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
pub extern "C" fn pw_reader_free(reader: Handle<pw_reader>) {
    free(reader);
}

/// Another reader of the same pipe, for another thread. Clones share one buffer: each item goes to
/// one of them.
///
/// Fails with PW_OS if no descriptor is left.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_clone(
    reader: In<'_, pw_reader>,
    clone: Out<'_, Handle<pw_reader>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_clone", error, |name| {
        let (reader, clone) = (name.given(reader)?, name.given(clone)?);
        hand_out(clone, made(reader.reader.try_clone()?))
    })
}

/// Waits for the next message.
///
/// Fails with PW_CLOSED if the pipe has ended, and all is given out. PW_TORN, PW_TOO_LONG,
/// PW_CORRUPT: a message is lost; pw_reader_torn says whose, and the next call goes on. (Where it
/// says nothing, the stream makes no sense, and stays so.) PW_INCOMPATIBLE: the message is
/// compressed, and this reader does not decompress; or the messages are those of mixed mode, and
/// stay so. PW_TIMED_OUT and PW_INTERRUPTED: nothing is lost, call again. PW_INVALID in mixed mode,
/// where pw_reader_next_item gives out text, too. PW_STALE in a child, if the parent had read what
/// it had not used. PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_recv(
    reader: InOut<'_, pw_reader>,
    deadline: pw_deadline,
    message: Out<'_, pw_item>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_recv", error, |name| {
        let (pw_reader { reader, loan }, message) = (name.given(reader)?, name.given(message)?);
        loan.end();
        put(Some(message), loan.lend(Item::Message(reader.recv(at(deadline))?)))
    })
}

/// The next message if it is there, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pw_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_try_recv(
    reader: InOut<'_, pw_reader>,
    message: Out<'_, pw_item>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_try_recv", error, |name| {
        let (pw_reader { reader, loan }, message) = (name.given(reader)?, name.given(message)?);
        loan.end();
        or_would_block(reader.try_recv()?, |found| put(Some(message), loan.lend(Item::Message(found))))
    })
}

/// Waits for the next line, burst, message or report of a lost message.
///
/// Fails with PW_CLOSED if the pipe has ended, and all is given out. PW_CORRUPT: a plain stream
/// that makes no sense; with `strict`, what opens like a part and is none. PW_INCOMPATIBLE: a mixed
/// reader's stream begins with a message of plain mode, which is said once; who calls again gets it
/// as text. PW_TIMED_OUT, PW_INTERRUPTED, PW_STALE and PW_OS as pw_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_next_item(
    reader: InOut<'_, pw_reader>,
    deadline: pw_deadline,
    item: Out<'_, pw_item>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_next_item", error, |name| {
        let (pw_reader { reader, loan }, item) = (name.given(reader)?, name.given(item)?);
        loan.end();
        put(Some(item), loan.lend(reader.next_item(at(deadline))?))
    })
}

/// The next item if it is there, else PW_WOULD_BLOCK. It does not wait. Otherwise it is as
/// pw_reader_next_item.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_try_next_item(
    reader: InOut<'_, pw_reader>,
    item: Out<'_, pw_item>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_try_next_item", error, |name| {
        let (pw_reader { reader, loan }, item) = (name.given(reader)?, name.given(item)?);
        loan.end();
        or_would_block(reader.try_next_item()?, |found| put(Some(item), loan.lend(found)))
    })
}

/// Fills in the report of the loss that pw_reader_recv or pw_reader_try_recv told of last; false if
/// the last one told of none.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_torn(reader: In<'_, pw_reader>, report: Out<'_, pw_item>) -> bool {
    get(false, || {
        let torn = reader.and_then(|reader| reader.reader.torn());
        torn.is_some_and(|torn| put(report, torn.into()).is_ok())
    })
}

/// Puts the text of a line that has begun and not ended into `text`, as far as it has come; nothing
/// if there is none. It does not read: call it when pw_reader_try_next_item has nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_peek(
    reader: InOut<'_, pw_reader>,
    text: InOut<'_, pw_buffer>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_peek", error, |name| {
        let (reader, mut text) = (&mut name.given(reader)?.reader, name.given(text)?.lend(name)?);
        text.clear();
        text.extend(reader.peek().unwrap_or_default());
        Ok(PW_OK)
    })
}

/// By when to call again although the descriptor is not readable; PW_NEVER: not before it is. For
/// event loops, to be asked after a `try_` function had nothing: a part that waits for its rest
/// becomes text then, or there is more in the pipe than one call looks at.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_due(reader: In<'_, pw_reader>) -> pw_deadline {
    get(PW_NEVER, || reader.and_then(|reader| reader.reader.due()).map_or(PW_NEVER, Deadline::as_ns))
}

/// Waits for bytes and reads them without looking at them, to make space for writers. `len` says
/// how many they are: up to the read size, and 0 at the end of the pipe.
///
/// Fails with PW_TOO_LONG once max_unfinished bytes lie there; PW_TIMED_OUT; PW_INTERRUPTED;
/// PW_STALE; PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_fill(
    reader: InOut<'_, pw_reader>,
    deadline: pw_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_fill", error, |name| put(len, open(reader, name)?.fill(at(deadline))?))
}

/// Whether the pipe has ended, and all is given out. It does not read: pw_reader_wait_eof does.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_is_eof(reader: In<'_, pw_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.is_eof()))
}

/// Waits until it is known whether the pipe has ended, and all is given out; `is_eof` is false as
/// soon as something is there, be it the beginning of a message. It reads, and gives nothing out.
///
/// Fails with PW_TIMED_OUT if neither has come. PW_INTERRUPTED; PW_CORRUPT and PW_INCOMPATIBLE as
/// pw_reader_next_item; PW_STALE; PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_wait_eof(
    reader: InOut<'_, pw_reader>,
    deadline: pw_deadline,
    is_eof: Out<'_, bool>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_wait_eof", error, |name| put(is_eof, open(reader, name)?.wait_eof(at(deadline))?))
}

/// Takes no more from the pipe, as if it had ended here. It does not wait.
///
/// Fails with PW_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_finish(reader: InOut<'_, pw_reader>, error: Out<'_, pw_error>) -> pw_status {
    run("pw_reader_finish", error, |name| done(open(reader, name)?.finish()))
}

/// How many bytes were read and not given out; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_buffered(reader: In<'_, pw_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.reader.buffered()))
}

/// Whether nothing is held: no bytes, no line that has begun, no part of a message. After
/// pw_reader_set_exact it is so between the messages of a single writer, and somebody else may read
/// on there.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_is_empty(reader: In<'_, pw_reader>) -> bool {
    get(true, || reader.is_none_or(|reader| reader.reader.is_empty()))
}

/// Whether somebody else reads from the same FIFO now, which both have opened by its path. Both get
/// pieces of the stream, and messages are lost to both.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_has_rival(reader: In<'_, pw_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.has_rival()))
}

/// The descriptor, for an event loop, lent until the handle is freed; -1 for NULL. When it is
/// readable, call a `try_` function until that has nothing, and then pw_reader_due. A listener has
/// another one after its first call in a forked child. Between clones, an item may also wait in the
/// buffer that they share.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_fd(reader: In<'_, pw_reader>) -> c_int {
    number(reader.map(|reader| &reader.reader))
}

/// Bytes that one read asks for; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_read_size(reader: In<'_, pw_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.reader.read_size()))
}

/// Sets how many bytes one read asks for: from 1 to 16 MiB. NULL is allowed, here and below.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_read_size(reader: InOut<'_, pw_reader>, bytes: usize) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_read_size(bytes)));
}

/// Makes reads stop at the end of the so many-th item from here on, and then of each further one,
/// so that what lies behind it stays in the pipe for somebody else. 0: they go ahead, as at first.
/// Reports of lost messages do not count. For each 64 KiB it costs two system calls and a copy.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_exact(reader: InOut<'_, pw_reader>, items: u64) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_exact(items)));
}

/// Sets whether items come with the zstd frame that held them.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_keep_compressed(reader: InOut<'_, pw_reader>, keep: Truth) {
    get((), || reader.into_iter().for_each(|reader| reader.reader.set_keep_compressed(keep.is_set())));
}

/// Whether text may lie between the messages.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_is_mixed(reader: In<'_, pw_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.reader.is_mixed()))
}

/// Changes the mode for all that is not given out yet. Writers must do the same at the same place
/// of the stream.
///
/// Fails with PW_WOULD_BLOCK while a line is unfinished; PW_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_mixed(
    reader: InOut<'_, pw_reader>,
    mixed: Truth,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_set_mixed", error, |name| done(open(reader, name)?.set_mixed(mixed.is_set())))
}

/// Sets how messages are decompressed, for all that is not given out yet: as `compress`,
/// `dictionary` and `accept_unchecked` of the options say, whose other fields mean nothing here.
/// NULL: not at all.
///
/// Fails with PW_INVALID if the level or the dictionary is none; PW_STALE.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_zstd(
    reader: InOut<'_, pw_reader>,
    options: Lent<'_, pw_atomic_options>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_set_zstd", error, |name| {
        done(open(reader, name)?.set_zstd(options.options(name)?.zstd(name)?))
    })
}

/// How many bytes the pipe holds before a writer waits.
///
/// Fails with PW_UNSUPPORTED for a socket, here and below; PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_capacity(
    reader: In<'_, pw_reader>,
    bytes: Out<'_, usize>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_capacity", error, |name| put(bytes, name.given(reader)?.reader.capacity()?))
}

/// Asks for a capacity; `now` says which one the kernel chose, at least as large.
///
/// Fails with PW_OS, with EPERM past the limit of an unprivileged user, with EBUSY below what lies
/// in the pipe. The capacity stays as it was then.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_capacity(
    reader: InOut<'_, pw_reader>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_set_capacity", error, |name| put(now, open(reader, name)?.set_capacity(bytes)?))
}

/// As pw_reader_set_capacity, with pw_atomic_max_capacity bytes at the most.
#[unsafe(no_mangle)]
pub extern "C" fn pw_reader_set_capacity_or_max(
    reader: InOut<'_, pw_reader>,
    bytes: usize,
    now: Out<'_, usize>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_reader_set_capacity_or_max", error, |name| {
        put(now, open(reader, name)?.set_capacity_or_max(bytes)?)
    })
}

// ---------------------------------------------------------------- on this side

pub(super) fn made(reader: Reader) -> pw_reader {
    pw_reader { reader, loan: Loan::default() }
}

/// Every function that makes a reader of a path.
fn make(
    name: &'static str,
    options: Lent<'_, pw_atomic_options>,
    reader: Out<'_, Handle<pw_reader>>,
    error: Out<'_, pw_error>,
    make: impl FnOnce(Options, Name) -> Result<Reader>,
) -> pw_status {
    run(name, error, |name| {
        let reader = name.given(reader)?;
        hand_out(reader, made(make(options.options(name)?.options(name)?, name)?))
    })
}

/// The reader of a call that lends nothing, and ends what was lent.
fn open(reader: InOut<'_, pw_reader>, name: Name) -> Result<&mut Reader> {
    let pw_reader { reader, loan } = name.given(reader)?;
    loan.end();
    Ok(reader)
}
