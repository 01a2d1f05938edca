//! The two ends, and how they are made.

use std::ffi::c_char;
use std::io;

use pipework::ErrorKind;
use pipework::pipe::{self, Reader, Writer};

use crate::edge::{Handle, Lent, Name, Out, Space, hand_out, run};
use crate::error::{pwk_error, pwk_status};
use crate::text::write_line;

/// The reading end of a pipe. One thread at a time, whatever the other end's thread does. It is
/// freed with pwk_pipe_reader_free or pwk_pipe_reader_close_with_error.
pub struct pwk_pipe_reader(pub(super) Reader);

/// The writing end of a pipe. One thread at a time, whatever the other end's thread does. It is
/// freed with pwk_pipe_writer_finish, pwk_pipe_writer_free or pwk_pipe_writer_close_with_error.
pub struct pwk_pipe_writer(pub(super) Writer);

/// A capacity in bytes that suits most programs: the capacity of a pipe of the kernel.
pub const PWK_PIPE_CAPACITY: usize = 65536;

/// Makes a pipe that holds up to `capacity` bytes, rounded up to a power of two, and takes the
/// memory for them.
///
/// Fails with PWK_INVALID if the capacity is 0 or more than half of the address space; PWK_OS with
/// ENOMEM if the memory does not suffice.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_pipe_pair(
    capacity: usize,
    reader: Out<'_, Handle<pwk_pipe_reader>>,
    writer: Out<'_, Handle<pwk_pipe_writer>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_pipe_pair", error, |name| {
        let (reader, writer) = (name.given(reader)?, name.given(writer)?);
        let (reading, writing) = pipe::pipe(capacity)?;
        hand_out(reader, pwk_pipe_reader(reading))?;
        hand_out(writer, pwk_pipe_writer(writing))
    })
}

const _: () = assert!(PWK_PIPE_CAPACITY == pipe::CAPACITY, "as the core says");

// ---------------------------------------------------------------- on this side

/// The reason that an end closes with, in the program's words.
pub(super) fn failure(reason: Lent<'_, c_char>) -> io::Error {
    let reason = reason.text(Name::NONE).map(|text| text.to_string_lossy()).unwrap_or_default();
    // The length says whether the program gave one.
    if reason.is_empty() { io::Error::other(ErrorKind::Failed.to_string()) } else { io::Error::other(reason) }
}

/// Puts what the other end closed with where C wants it, and says how long that is.
pub(super) fn write_failure(failure: Option<io::Error>, text: Space<'_, c_char>, size: usize) -> usize {
    write_line(&failure.map(|failure| failure.to_string()).unwrap_or_default(), text, size)
}
