//! A reply that is received part by part, as its server gives it.

use std::ffi::c_void;

use pipework::ErrorKind;
use pipework::reqrep::Stream;

use super::client::{failed, fill, message, pwk_client};
use crate::bytes::pwk_buffer;
use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Out, free, hand_out, put, run};
use crate::error::{pwk_error, pwk_status};

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
        let (client, stream) = (&name.given(client)?.client, name.given(stream)?);
        let request = message(data.bytes(len, name)?, flags);
        hand_out(stream, pwk_stream(client.stream_by(request, at(deadline))?))
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
    run("pwk_stream_next_part", error, |name| {
        let (stream, mut into) = (&mut name.given(stream)?.0, name.given(part)?.lend(name)?);
        into.clear();
        match stream.next_part(at(deadline)) {
            Ok(Some(part)) => {
                let sent_with = part.flags();
                fill(&mut into, part);
                put(flags, sent_with)
            }
            Ok(None) => Err(name.failure(ErrorKind::Closed)),
            Err(error) => Err(failed(error, &mut into)),
        }
    })
}

/// Ends the call, if it is not over.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_stream_free(stream: Handle<pwk_stream>) {
    free(stream);
}
