//! Blobs: memory that is filled once, frozen, and read in place by every process that holds it.
//!
//! A program makes a draft in a segment, fills it, freezes it to a blob, and attaches the blob to
//! messages of that segment. A message names its blobs and copies none of their bytes. A blob is
//! freed when its last holder has dropped it or died, and no message on its way names it. If a
//! process dies, at any instruction, the others lose nothing.
//!
//! Every function here that returns a blob returns a new handle, which the program frees with
//! pwk_blob_free or pwk_blobs_free. A handle that is attached to a message still belongs to the
//! program, which may free it as soon as the function returns.
//!
//! The functions that receive into memory of the program's, pwk_client_call_into and
//! pwk_client_recv_into, drop the blobs of a reply: what arrives as a blob needs no such memory. The
//! reason of pwk_server_fail is short, and has no blobs.

use std::ffi::c_void;

use pipework::ErrorKind;
use pipework::reqrep::{Blob, BlobMut, Message, Ticket};

use super::client::{pwk_client, recv_any, send, send_many, taken, try_recv, try_send};
use super::segment::pwk_segment;
use super::server::{give_part, pwk_server, reply_until, with};
use super::stream::{begin, next_part, pwk_stream};
use crate::bytes::{pwk_buffer, pwk_bytes, pwk_space};
use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Name, Out, Space, done, free, get, hand_out, run};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};

/// Bytes in shared memory that do not change as long as any process holds them. Any threads may use
/// one at the same time. A forked child may read those that it inherits. It frees its own handles,
/// and the memory stays until both processes have freed theirs. Free a blob with pwk_blob_free.
pub struct pwk_blob(Blob);

/// Memory for a blob. Only this process can access it until it is frozen. Any threads may write to
/// its memory; one thread at a time may call functions on it. A forked child cannot use it, and may
/// free it. Free a draft with pwk_blob_draft_free, also after it was frozen.
pub struct pwk_blob_draft(Option<BlobMut>);

/// Makes a draft of `len` bytes, for messages of this segment. Its memory may hold bytes of an earlier
/// blob of this process, so fill all of it.
///
/// It does not wait for other processes. The first blob of a size has its memory allocated here;
/// later ones use it again.
///
/// Fails with PWK_OS: with ENOSPC if there is no memory for it, with EMFILE if no descriptor is left,
/// or with the kernel's number for the folder beside the segment. PWK_TOO_LONG if this process would
/// hold more than blob_limit.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_draft_new(
    segment: In<'_, pwk_segment>,
    len: usize,
    draft: Out<'_, Handle<pwk_blob_draft>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_blob_draft_new", error, |name| {
        let (segment, draft) = (&name.given(segment)?.segment, name.given(draft)?);
        hand_out(draft, segment.blob(len)?.into())
    })
}

/// The memory of a draft, lent until it is frozen or freed. It begins at a page. NULL and 0 after
/// pwk_blob_draft_freeze, in a forked child, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_draft_space(draft: InOut<'_, pwk_blob_draft>) -> pwk_space {
    get(pwk_space::NONE, || {
        let draft = draft.and_then(|draft| draft.0.as_mut()).filter(|draft| draft.is_here());
        draft.map_or(pwk_space::NONE, |draft| pwk_space::lend(draft))
    })
}

/// Makes a blob of a draft: from now on no process changes its bytes. The program must neither
/// write to the memory that pwk_blob_draft_space returned nor read from it. The draft is of no more
/// use, but must still be freed.
///
/// Fails with PWK_STALE if it was frozen before, or belongs to the parent of this process. Fails
/// with PWK_CORRUPT if its file was cut short and bytes are lost; its memory is given back.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_draft_freeze(
    draft: InOut<'_, pwk_blob_draft>,
    blob: Out<'_, Handle<pwk_blob>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_blob_draft_freeze", error, |name| {
        let (draft, blob) = (name.given(draft)?, name.given(blob)?);
        let whole = draft.0.take_if(|draft| draft.is_here());
        hand_out(blob, pwk_blob(whole.ok_or_else(|| name.failure(ErrorKind::Stale))?.freeze()?))
    })
}

/// Frees a draft. If it was not frozen, its memory is used for a later blob.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_draft_free(draft: Handle<pwk_blob_draft>) {
    free(draft);
}

/// The bytes of a blob, lent until its handle is freed. NULL and 0 for NULL. Writing to them ends the
/// program with SIGSEGV, or changes a copy.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_bytes(blob: In<'_, pwk_blob>) -> pwk_bytes {
    get(pwk_bytes::NONE, || blob.map_or(pwk_bytes::NONE, |blob| pwk_bytes::lend(&blob.0)))
}

/// Whether this process got its own copy of a blob, because another user owns its file or may
/// change it; false for NULL. pwk_blob_stats.copied counts these copies, too.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_is_copied(blob: In<'_, pwk_blob>) -> bool {
    get(false, || blob.is_some_and(|blob| blob.0.is_copied()))
}

/// Fails with PWK_CORRUPT if bytes of a blob are lost, because a process has cut its file short.
/// The lost bytes read as zero.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_check(blob: In<'_, pwk_blob>, error: Out<'_, pwk_error>) -> pwk_status {
    run("pwk_blob_check", error, |name| done(name.given(blob)?.0.check()))
}

/// Makes another handle of the same blob. The bytes are not copied.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_clone(
    blob: In<'_, pwk_blob>,
    clone: Out<'_, Handle<pwk_blob>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_blob_clone", error, |name| {
        let (blob, clone) = (name.given(blob)?, name.given(clone)?);
        hand_out(clone, pwk_blob(blob.0.clone()))
    })
}

/// Frees a handle of a blob. The memory is freed with the last handle of the last process, when no
/// message on its way names it.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blob_free(blob: Handle<pwk_blob>) {
    free(blob);
}

/// The most blobs that a message can carry. pwk_geometry.blobs is the limit of one segment.
pub const PWK_MAX_BLOBS: u32 = 8;

/// The blobs that came with a message. A program sets it to PWK_BLOBS before the first use, may use
/// it many times, and gives it to pwk_blobs_free in the end. It may take a handle out, and must
/// then set its place to NULL. One thread at a time may use it.
#[repr(C)]
pub struct pwk_blobs {
    /// The first `count` of them; the others are NULL.
    pub blobs: [Handle<pwk_blob>; 8],
    /// The number of blobs that came.
    pub count: usize,
}

/// No blobs: the initial value.
pub const PWK_BLOBS: pwk_blobs = pwk_blobs { blobs: [const { None }; 8], count: 0 };

/// Frees the blobs. `blobs` is empty then, and may be used again. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_blobs_free(blobs: InOut<'_, pwk_blobs>) {
    get((), || blobs.into_iter().for_each(|blobs| *blobs = PWK_BLOBS));
}

/// A request, a reply, a part of a reply, or a message of broadcast, with blobs. Everything in it is lent
/// for the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_message {
    /// The bytes; may be NULL if `len` is 0.
    pub data: Lent<'static, c_void>,
    /// The number of bytes.
    pub len: usize,
    /// An array of the blobs; may be NULL if `blob_count` is 0. A blob of another segment, and one that
    /// was copied, is copied into a new blob of this segment.
    pub blobs: Lent<'static, In<'static, pwk_blob>>,
    /// The number of blobs: up to pwk_geometry.blobs, which is at most PWK_MAX_BLOBS.
    pub blob_count: usize,
    /// The user's 32 bits that go with it.
    pub flags: u32,
}

/// As pwk_client_call_message, with blobs both ways. The blobs of the reply replace the content of
/// `blobs`, which is freed. After any failure, `blobs` is empty. If `blobs` is NULL, the blobs are
/// dropped.
///
/// Fails as pwk_client_call. Also fails with PWK_TOO_LONG if the message has more blobs than the
/// segment allows, or if this process would hold more than blob_limit; with PWK_CORRUPT or PWK_OS
/// if a blob of the reply cannot be opened.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_call_blobs(
    client: In<'_, pwk_client>,
    request: In<'_, pwk_message>,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_call_blobs", error, |name| {
        // In this order: the request may have the blobs that the reply's blobs replace.
        let (request, keep) = (Attached::of(request, name)?, storing(blobs));
        let (client, mut reply) =
            (&name.given(client)?.client, name.given(reply)?.lend_beside(request.bytes, name)?);
        reply.clear();
        taken(client.call(request.message(), at(deadline)), reply, flags, keep)
    })
}

/// As pwk_client_send_message, with blobs.
///
/// Fails as pwk_client_send. Also fails with PWK_TOO_LONG if the message has more blobs than the
/// segment allows.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_blobs(
    client: In<'_, pwk_client>,
    request: In<'_, pwk_message>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_blobs", error, |name| {
        send(client, Attached::of(request, name)?.message(), deadline, ticket, name)
    })
}

/// As pwk_client_try_send_message, with blobs. Fails as pwk_client_send_blobs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_send_blobs(
    client: In<'_, pwk_client>,
    request: In<'_, pwk_message>,
    ticket: Out<'_, u64>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_send_blobs", error, |name| {
        try_send(client, Attached::of(request, name)?.message(), ticket, name)
    })
}

/// As pwk_client_send_many, with blobs, and with flags for each request.
///
/// Fails as pwk_client_send_blobs, if none could be sent.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_send_many_blobs(
    client: In<'_, pwk_client>,
    requests: Lent<'_, pwk_message>,
    count: usize,
    deadline: pwk_deadline,
    tickets: Space<'_, u64>,
    sent: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_send_many_blobs", error, |name| {
        let requests = requests.array(count, name)?.iter();
        let requests = requests.map(|request| Attached::of(Some(request), name));
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let messages = requests.iter().map(Attached::message).collect();
        send_many(client, messages, deadline, tickets.array(count, name)?, sent, name)
    })
}

/// As pwk_client_recv_message, with the blobs of the reply, as pwk_client_call_blobs.
///
/// Fails as pwk_client_recv. If a blob cannot be opened, the call is over, with PWK_TOO_LONG,
/// PWK_CORRUPT or PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_blobs(
    client: In<'_, pwk_client>,
    ticket: u64,
    deadline: pwk_deadline,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_blobs", error, |name| {
        let (keep, client) = (storing(blobs), &name.given(client)?.client);
        let mut reply = name.given(reply)?.lend(name)?;
        reply.clear();
        taken(client.recv(Ticket::from_bits(ticket), at(deadline)), reply, flags, keep)
    })
}

/// As pwk_client_try_recv_message, with the blobs of the reply. Fails as pwk_client_recv_blobs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_try_recv_blobs(
    client: In<'_, pwk_client>,
    ticket: u64,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_try_recv_blobs", error, |name| {
        try_recv(client, ticket, reply, flags, storing(blobs), name)
    })
}

/// As pwk_client_recv_any_message, with the blobs of the reply.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_recv_any_blobs(
    client: In<'_, pwk_client>,
    deadline: pwk_deadline,
    ticket: Out<'_, u64>,
    reply: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_recv_any_blobs", error, |name| {
        recv_any(client, deadline, ticket, reply, flags, storing(blobs), name)
    })
}

/// As pwk_client_stream, with blobs. Fails as pwk_client_send_blobs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_client_stream_blobs(
    client: In<'_, pwk_client>,
    request: In<'_, pwk_message>,
    deadline: pwk_deadline,
    stream: Out<'_, Handle<pwk_stream>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_client_stream_blobs", error, |name| {
        begin(client, Attached::of(request, name)?.message(), deadline, stream, name)
    })
}

/// As pwk_stream_next_part, with the blobs of the part, as pwk_client_call_blobs.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_stream_next_part_blobs(
    stream: InOut<'_, pwk_stream>,
    deadline: pwk_deadline,
    part: InOut<'_, pwk_buffer>,
    flags: Out<'_, u32>,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_stream_next_part_blobs", error, |name| {
        next_part(stream, deadline, part, flags, storing(blobs), name)
    })
}

/// The blobs of a request that a server has taken. They replace the content of `blobs`. A program
/// can ask for them until it answers the request, and keeps them after that.
///
/// Fails with PWK_STALE if this server has no open request with that ticket. If a blob cannot be
/// opened: PWK_TOO_LONG, PWK_CORRUPT or PWK_OS. Then the request must still be answered.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_blobs(
    server: In<'_, pwk_server>,
    ticket: u64,
    blobs: InOut<'_, pwk_blobs>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_blobs", error, |name| {
        let (server, blobs) = (&name.given(server)?.server, name.given(blobs)?);
        *blobs = PWK_BLOBS;
        *blobs = with(server, ticket, name, |request| Ok(pwk_blobs::of(request.read_blobs()?)))?;
        Ok(PWK_OK)
    })
}

/// As pwk_server_reply_until, with blobs.
///
/// Fails as pwk_server_reply_until. Also fails with PWK_TOO_LONG if the message has more blobs than
/// the segment allows: then the request must still be answered.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_reply_blobs(
    server: In<'_, pwk_server>,
    ticket: u64,
    reply: In<'_, pwk_message>,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_reply_blobs", error, |name| {
        reply_until(server, ticket, Attached::of(reply, name)?.message(), deadline, wanted, name)
    })
}

/// As pwk_server_part, with blobs.
///
/// Fails as pwk_server_part. Also fails with PWK_TOO_LONG if the message has more blobs than the
/// segment allows.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_server_part_blobs(
    server: In<'_, pwk_server>,
    ticket: u64,
    part: In<'_, pwk_message>,
    deadline: pwk_deadline,
    wanted: Out<'_, bool>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_server_part_blobs", error, |name| {
        give_part(server, ticket, Attached::of(part, name)?.message(), deadline, wanted, name)
    })
}

// ---------------------------------------------------------------- on this side

impl pwk_blobs {
    pub(crate) fn of(found: &[Blob]) -> pwk_blobs {
        let mut blobs = PWK_BLOBS;
        for (place, blob) in blobs.blobs.iter_mut().zip(found) {
            *place = Some(Box::new(pwk_blob(blob.clone())));
            blobs.count += 1;
        }
        blobs
    }
}

impl From<BlobMut> for pwk_blob_draft {
    fn from(draft: BlobMut) -> pwk_blob_draft {
        pwk_blob_draft(Some(draft))
    }
}

/// A message from C, with handles of its blobs.
pub(crate) struct Attached<'a> {
    bytes: &'a [u8],
    blobs: Vec<Blob>,
    flags: u32,
}

impl Attached<'_> {
    pub(crate) fn of<'a>(message: In<'a, pwk_message>, name: Name) -> Result<Attached<'a>> {
        let &pwk_message { data, len, blobs, blob_count, flags } = name.given(message)?;
        let blobs = blobs.array(blob_count, name)?.iter().map(|blob| Ok(name.given(*blob)?.0.clone()));
        Ok(Attached { bytes: data.bytes(len, name)?, blobs: blobs.collect::<Result<_>>()?, flags })
    }

    pub(crate) fn message(&self) -> Message<'_> {
        Message::new(self.bytes).flags(self.flags).attach(&self.blobs)
    }
}

/// Empties the variable in which C wants the blobs of a reply, and returns a function that stores
/// them there.
fn storing(mut blobs: InOut<'_, pwk_blobs>) -> impl FnOnce(&[Blob]) {
    let mut store = move |found: &[Blob]| {
        if let Some(blobs) = &mut blobs {
            **blobs = pwk_blobs::of(found);
        }
    };
    store(&[]);
    store
}
