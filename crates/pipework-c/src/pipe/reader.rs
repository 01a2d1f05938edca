//! The reading end: takes bytes out, or lends them where they lie.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use super::ends::{failure, pwk_pipe_reader, write_failure};
use crate::bytes::pwk_bytes;
use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Number, Out, Space, done, free, get, or_would_block, put, run};
use crate::error::{pwk_error, pwk_status};

/// Waits for the first byte and takes the bytes that are there, up to `space`, to `into`. `len` is
/// set to their number; 0 is the end of the stream.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: nothing was taken, call again. PWK_FAILED if the
/// writer gave up, and everything before that has been taken; pwk_pipe_reader_failure says why.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_recv(
    reader: InOut<'_, pwk_pipe_reader>,
    into: Space<'_, c_void>,
    space: usize,
    deadline: pwk_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_recv", error, |name| {
        let (reader, into) = (name.given(reader)?, into.bytes(space, name)?);
        put(len, reader.0.recv(into, at(deadline))?)
    })
}

/// Takes what is there now; PWK_WOULD_BLOCK if nothing is. It does not wait. Otherwise it is as
/// pwk_pipe_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_try_recv(
    reader: InOut<'_, pwk_pipe_reader>,
    into: Space<'_, c_void>,
    space: usize,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_try_recv", error, |name| {
        let (reader, into) = (name.given(reader)?, into.bytes(space, name)?);
        or_would_block(reader.0.try_recv(into)?, |taken| put(len, taken))
    })
}

/// Takes until the `space` bytes at `into` are full. `len` is set to their number: fewer only at
/// the end of the stream.
///
/// Fails as pwk_pipe_reader_recv. The bytes taken before lie at `into`, and pwk_error.done is their
/// number: go on behind them.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_recv_full(
    reader: InOut<'_, pwk_pipe_reader>,
    into: Space<'_, c_void>,
    space: usize,
    deadline: pwk_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_recv_full", error, |name| {
        let (reader, into) = (name.given(reader)?, into.bytes(space, name)?);
        put(len, reader.0.recv_full(into, at(deadline))?)
    })
}

/// Takes up to and with the first byte that equals `delimiter`, or until the `space` bytes at
/// `into` are full. `len` is set to their number. Without that byte at their end, either `into` is
/// full or the stream has ended.
///
/// Fails as pwk_pipe_reader_recv_full.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_recv_until(
    reader: InOut<'_, pwk_pipe_reader>,
    delimiter: u8,
    into: Space<'_, c_void>,
    space: usize,
    deadline: pwk_deadline,
    len: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_recv_until", error, |name| {
        let (reader, into) = (name.given(reader)?, into.bytes(space, name)?);
        put(len, reader.0.recv_until(delimiter, into, at(deadline))?)
    })
}

/// Waits until at least `min` bytes are there and lends them where they lie, in `pieces[0]` and
/// `pieces[1]`: the second is empty unless they reach round the end of the memory. It lends fewer
/// only at the end of the stream. With `min` 0 it does not wait, and lends the bytes that are
/// there.
///
/// They are lent until the next call on this end. Meanwhile the writer may add to them, but not
/// change them.
///
/// Fails with PWK_TOO_LONG if `min` is more than the capacity; otherwise as pwk_pipe_reader_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_peek(
    reader: InOut<'_, pwk_pipe_reader>,
    min: usize,
    deadline: pwk_deadline,
    pieces: Space<'_, pwk_bytes>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_peek", error, |name| {
        let (reader, pieces) = (name.given(reader)?, pieces.array(2, name)?);
        let (first, second) = reader.0.peek(min, at(deadline))?;
        put(Some(&mut pieces[0]), pwk_bytes::lend(first))?;
        put(Some(&mut pieces[1]), pwk_bytes::lend(second))
    })
}

/// Consumes the first `len` bytes that pwk_pipe_reader_peek lent.
///
/// Fails with PWK_INVALID if it lent fewer.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_consume(
    reader: InOut<'_, pwk_pipe_reader>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_consume", error, |name| done(name.given(reader)?.0.consume(len)))
}

/// Copies `len` bytes to a descriptor, or as many as the stream has; UINT64_MAX is everything.
/// `copied` says how many. Whether the descriptor blocks does not matter.
///
/// Fails as pwk_pipe_reader_recv; with PWK_CLOSED if the descriptor has no reader any more; PWK_OS.
/// pwk_error.done bytes have arrived, and no other has left the pipe: the same call may be made
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_copy_to_fd(
    reader: InOut<'_, pwk_pipe_reader>,
    fd: Number,
    len: u64,
    deadline: pwk_deadline,
    copied: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_reader_copy_to_fd", error, |name| {
        put(copied, name.given(reader)?.0.copy_to_fd(fd.lend()?, len, at(deadline))?)
    })
}

/// Whether the writer has finished or was freed; false for NULL. There may be bytes left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_is_closed(reader: In<'_, pwk_pipe_reader>) -> bool {
    get(false, || reader.is_some_and(|reader| reader.0.is_closed()))
}

/// Writes why the writer gave up into `text`, which has space for `size` bytes with the NUL at the
/// end, and cuts it off there. Returns how long that is, without the NUL, as snprintf does; 0 if
/// the writer did not give up. There may be bytes left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_failure(
    reader: In<'_, pwk_pipe_reader>,
    text: Space<'_, c_char>,
    size: usize,
) -> usize {
    get(0, || write_failure(reader.and_then(|reader| reader.0.failure()), text, size))
}

/// Bytes that can be taken now; 0 for NULL. The writer may add to them at any time.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_len(reader: In<'_, pwk_pipe_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.0.len()))
}

/// Bytes that the pipe holds at most; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_capacity(reader: In<'_, pwk_pipe_reader>) -> usize {
    get(0, || reader.map_or(0, |reader| reader.0.capacity()))
}

/// Sets for how long this end's thread spins before it sleeps, while recent waits have ended
/// within that time: PWK_DEFAULT_SPIN_NS by default, up to 1 ms, 0 for never. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_set_spin(reader: InOut<'_, pwk_pipe_reader>, ns: u64) {
    get((), || reader.into_iter().for_each(|reader| reader.0.set_spin(Duration::from_nanos(ns))));
}

/// Frees this end with a reason, a string, which the writer gets by pwk_pipe_writer_failure; its
/// calls fail with PWK_FAILED. NULL is no particular reason. NULL as `reader` is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_close_with_error(
    reader: Handle<pwk_pipe_reader>,
    reason: Lent<'_, c_char>,
) {
    get((), || reader.into_iter().for_each(|reader| reader.0.close_with_error(failure(reason))));
}

/// Frees this end: unread bytes are lost, and the writer's calls fail with PWK_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_reader_free(reader: Handle<pwk_pipe_reader>) {
    free(reader);
}
