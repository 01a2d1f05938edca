//! The writing end: puts bytes in, or lends the space for them.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use super::ends::{failure, pwk_pipe_writer, write_failure};
use crate::bytes::pwk_space;
use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Number, Out, Space, done, free, get, or_would_block, put, run};
use crate::error::{PWK_OK, pwk_error, pwk_status};

/// Waits for space for the first byte and puts in as many bytes as fit. `sent` is set to their
/// number.
///
/// Fails with PWK_TIMED_OUT and PWK_INTERRUPTED: nothing was put in, call again. PWK_CLOSED if the
/// reader is gone; PWK_FAILED if the reader gave up, and pwk_pipe_writer_failure says why.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_send(
    writer: InOut<'_, pwk_pipe_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    sent: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_send", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        put(sent, writer.0.send(data, at(deadline))?)
    })
}

/// Puts in as many bytes as fit now; PWK_WOULD_BLOCK if the pipe is full. It does not wait.
/// Otherwise it is as pwk_pipe_writer_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_try_send(
    writer: InOut<'_, pwk_pipe_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    sent: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_try_send", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        or_would_block(writer.0.try_send(data)?, |put_in| put(sent, put_in))
    })
}

/// Puts in all `len` bytes.
///
/// Fails as pwk_pipe_writer_send. pwk_error.done says how many were put in before: go on behind
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_send_all(
    writer: InOut<'_, pwk_pipe_writer>,
    data: Lent<'_, c_void>,
    len: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_send_all", error, |name| {
        let (writer, data) = (name.given(writer)?, data.bytes(len, name)?);
        writer.0.send_all(data, at(deadline))?;
        Ok(PWK_OK)
    })
}

/// Waits until at least `min` bytes are free and lends that space, in `pieces[0]` and `pieces[1]`:
/// the second is empty unless the space reaches round the end of the memory. With `min` 0 it does
/// not wait, and lends the free space.
///
/// It is lent until the next call on this end, and holds old bytes. The reader does not see them
/// before pwk_pipe_writer_commit.
///
/// Fails with PWK_TOO_LONG if `min` is more than the capacity; otherwise as pwk_pipe_writer_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_reserve(
    writer: InOut<'_, pwk_pipe_writer>,
    min: usize,
    deadline: pwk_deadline,
    pieces: Space<'_, pwk_space>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_reserve", error, |name| {
        let (writer, pieces) = (name.given(writer)?, pieces.array(2, name)?);
        let (first, second) = writer.0.reserve(min, at(deadline))?;
        put(Some(&mut pieces[0]), pwk_space::lend(first))?;
        put(Some(&mut pieces[1]), pwk_space::lend(second))
    })
}

/// Puts in the first `len` bytes of the space that pwk_pipe_writer_reserve lent.
///
/// Fails with PWK_INVALID if it lent less.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_commit(
    writer: InOut<'_, pwk_pipe_writer>,
    len: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_commit", error, |name| done(name.given(writer)?.0.commit(len)))
}

/// Copies `len` bytes from a descriptor, or all if it has fewer; UINT64_MAX is everything. `copied`
/// is set to their number. Whether the descriptor blocks does not matter. It notices that the
/// reader is gone when it has bytes for it, not before.
///
/// Fails as pwk_pipe_writer_send; with PWK_OS. pwk_error.done bytes are in the pipe, and no other
/// has left the descriptor: the same call may be made again.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_copy_from_fd(
    writer: InOut<'_, pwk_pipe_writer>,
    fd: Number,
    len: u64,
    deadline: pwk_deadline,
    copied: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_copy_from_fd", error, |name| {
        put(copied, name.given(writer)?.0.copy_from_fd(fd.lend()?, len, at(deadline))?)
    })
}

/// Whether the reader was freed; false for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_is_closed(writer: In<'_, pwk_pipe_writer>) -> bool {
    get(false, || writer.is_some_and(|writer| writer.0.is_closed()))
}

/// Writes why the reader gave up into `text`, as pwk_pipe_reader_failure does; returns 0 if it did
/// not.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_failure(
    writer: In<'_, pwk_pipe_writer>,
    text: Space<'_, c_char>,
    size: usize,
) -> usize {
    get(0, || write_failure(writer.and_then(|writer| writer.0.failure()), text, size))
}

/// Bytes that wait to be read now; 0 for NULL. The reader may take some at any time.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_len(writer: In<'_, pwk_pipe_writer>) -> usize {
    get(0, || writer.map_or(0, |writer| writer.0.len()))
}

/// Bytes that the pipe holds at most; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_capacity(writer: In<'_, pwk_pipe_writer>) -> usize {
    get(0, || writer.map_or(0, |writer| writer.0.capacity()))
}

/// As pwk_pipe_reader_set_spin.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_set_spin(writer: InOut<'_, pwk_pipe_writer>, ns: u64) {
    get((), || writer.into_iter().for_each(|writer| writer.0.set_spin(Duration::from_nanos(ns))));
}

/// From now on, pwk_pipe_writer_free is a failure: unless pwk_pipe_writer_finish has ended the
/// stream, its reader gets PWK_FAILED behind the last byte. For a producer that may leave early and
/// free everything on its way: half a document then never looks like a whole one. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_must_finish(writer: InOut<'_, pwk_pipe_writer>) {
    get((), || writer.into_iter().for_each(|writer| writer.0.set_must_finish()));
}

/// Ends the stream, and frees this end in any case: the reader gets what is in the pipe and then
/// the end. Whether it takes the rest is not waited for.
///
/// Fails with PWK_CLOSED or PWK_FAILED if the reader is gone already, and so has not got all of it.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_finish(
    writer: Handle<pwk_pipe_writer>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_writer_finish", error, |name| done(name.given(writer)?.0.finish()))
}

/// Frees this end with a reason, a string: the reader gets what is in the pipe and then PWK_FAILED,
/// and the reason by pwk_pipe_reader_failure. NULL is no particular reason. NULL as `writer` is
/// allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_close_with_error(
    writer: Handle<pwk_pipe_writer>,
    reason: Lent<'_, c_char>,
) {
    get((), || writer.into_iter().for_each(|writer| writer.0.close_with_error(failure(reason))));
}

/// Frees this end: the reader gets what is in the pipe and then the end, unless this end must
/// finish.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_writer_free(writer: Handle<pwk_pipe_writer>) {
    free(writer);
}
