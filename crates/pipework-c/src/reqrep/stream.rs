//! A reply that is received part by part, as its server gives it.

use std::ffi::c_void;

use pipework::ErrorKind;
use pipework::reqrep::{Blob, Message, Stream};

use super::client::{message, pwk_client, taken};
use crate::bytes::pwk_buffer;
use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Name, Out, free, hand_out, run};
use crate::error::{Result, pwk_error, pwk_status};

/// The parts of a reply. One thread at a time. Freeing it, with pwk_stream_free, before its end
/// cancels the call, and the server learns this with its next part.
pub struct pwk_stream(pub(super) Stream);

/// Sends a request whose reply is received part by part. A server that answers at once gives one
/// part. An empty last reply only ends the stream.
///
/// Waits and fails as pwk_client_send.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_stream(
    client: In<'_, pwk_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pwk_deadline,
    stream: Out<'_, Handle<pwk_stream>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_stream", error, |name| {
        begin(client, message(data.bytes(len, name)?, flags), deadline, stream, name)
    })
}

/// Waits for the next part, whose bytes replace the content of `part`.
///
/// Fails with PWK_CLOSED after the last. PWK_TIMED_OUT and PWK_INTERRUPTED: the stream goes on,
/// call again. It is over after anything else: PWK_FAILED, where `part` holds the reason that the
/// server gave, if it gave one; PWK_PEER_DIED, PWK_NO_SERVER, PWK_TOO_LONG, PWK_CORRUPT and PWK_OS
/// as pwk_client_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_stream_next_part(
    stream: InOut<'_, pwk_stream>,
    deadline: pwk_deadline,
    part: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_stream_next_part", error, |name| next_part(stream, deadline, part, flags, |_| (), name))
}

/// Ends the call, if it is not over.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_stream_free(stream: Handle<pwk_stream>) {
    free(stream);
}

// ---------------------------------------------------------------- with blobs or without

pub(super) fn begin(
    client: In<'_, pwk_client>,
    request: Message<'_>,
    deadline: pwk_deadline,
    stream: Out<'_, Handle<pwk_stream>>,
    name: Name,
) -> Result<pwk_status> {
    let (client, stream) = (&name.given(client)?.client, name.given(stream)?);
    hand_out(stream, pwk_stream(client.stream_by(request, at(deadline))?))
}

pub(super) fn next_part(
    stream: InOut<'_, pwk_stream>,
    deadline: pwk_deadline,
    part: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    keep: impl FnOnce(&[Blob]),
    name: Name,
) -> Result<pwk_status> {
    let (stream, mut into) = (&mut name.given(stream)?.0, name.given(part)?.lend(name)?);
    into.clear();
    let part = stream.next_part(at(deadline)).transpose();
    taken(part.ok_or_else(|| name.failure(ErrorKind::Closed))?, into, flags, keep)
}
