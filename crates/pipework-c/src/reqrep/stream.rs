//! A reply that is received part by part, as its server gives it.

use std::ffi::c_void;

use pipework::ErrorKind;
use pipework::reqrep::Stream;

use super::client::{fill, message, pw_client};
use crate::bytes::pw_buffer;
use crate::deadline::{at, pw_deadline};
use crate::edge::{Handle, In, InOut, Lent, Out, free, hand_out, put, run};
use crate::error::{pw_error, pw_status};

/// The parts of a reply. One thread at a time. Freeing it, with pw_stream_free, before its end
/// cancels the call, which the server is told with its next part.
pub struct pw_stream(Stream);

/// Sends a request whose reply is received part by part. A server that answers at once gives one
/// part. An empty last reply only ends the stream.
///
/// Waits and fails as pw_client_send.
#[unsafe(no_mangle)]
pub extern "C" fn pw_client_stream(
    client: In<'_, pw_client>,
    data: Lent<'_, c_void>,
    len: usize,
    flags: u32,
    deadline: pw_deadline,
    stream: Out<'_, Handle<pw_stream>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_client_stream", error, |name| {
        let (client, stream) = (name.given(client)?.of_bytes(name)?, name.given(stream)?);
        let request = message(data.bytes(len, name)?, flags);
        hand_out(stream, pw_stream(client.stream_by(request, at(deadline))?))
    })
}

/// Waits for the next part, whose bytes replace what `part` holds.
///
/// Fails with PW_CLOSED after the last. PW_TIMED_OUT and PW_INTERRUPTED: the stream goes on, call
/// again. It is over after anything else: PW_FAILED, where `part` holds the reason that the server
/// gave, if it gave one; PW_PEER_DIED, PW_NO_SERVER, PW_TOO_LONG, PW_CORRUPT and PW_OS as
/// pw_client_recv.
#[unsafe(no_mangle)]
pub extern "C" fn pw_stream_next_part(
    stream: InOut<'_, pw_stream>,
    deadline: pw_deadline,
    part: InOut<'_, pw_buffer>,
    flags: Out<'_, u32>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_stream_next_part", error, |name| {
        let (stream, mut into) = (&mut name.given(stream)?.0, name.given(part)?.lend(name)?);
        into.clear();
        match stream.next_part(at(deadline)) {
            Ok(Some(part)) => {
                let sent_with = part.flags();
                fill(&mut into, part);
                put(flags, sent_with)
            }
            Ok(None) => Err(name.failure(ErrorKind::Closed)),
            Err(error) => {
                if error.kind() == ErrorKind::Failed
                    && let Some(reason) = stream.reason()
                {
                    into.extend_from_slice(reason);
                }
                Err(error.into())
            }
        }
    })
}

/// Ends the call, if it is not over.
#[unsafe(no_mangle)]
pub extern "C" fn pw_stream_free(stream: Handle<pw_stream>) {
    free(stream);
}
