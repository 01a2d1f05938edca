//! Datagrams by the batch: many in one system call, whether the socket blocks or not.

use std::ffi::c_void;

use libc::{sockaddr, socklen_t};
use pipework::fd::{Inbox, send_many};

use crate::deadline::{at, pw_deadline};
use crate::edge::{Handle, In, InOut, Lent, Number, Out, Truth, free, hand_out, put, run};
use crate::error::{PW_OK, Result, pw_error, pw_status};

/// A datagram that has come, lent until the inbox receives again or is freed; or one to be sent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pw_datagram {
    /// The first byte; may be NULL if there are none.
    pub data: Lent<'static, c_void>,
    /// How many.
    pub len: usize,
    /// Who has sent it, or who is to get it. NULL where the kernel does not say, or for the one
    /// that the socket is connected to.
    pub address: Lent<'static, sockaddr>,
    /// How long the address is.
    pub address_len: socklen_t,
    /// It was longer than its space, and its end is lost. Means nothing when it is sent.
    pub is_cut: Truth,
}

/// Space for datagrams, to be received into again and again. One thread at a time. It is freed with
/// pw_inbox_free.
pub struct pw_inbox(Inbox);

/// Makes space for `max` datagrams of up to `max_bytes` bytes each; more than 64 count as 64, which
/// one system call takes. All memory is taken at once.
///
/// Fails with PW_INVALID if one of them is 0; PW_OS with ENOMEM if there is not so much memory.
#[unsafe(no_mangle)]
pub extern "C" fn pw_inbox_new(
    max: usize,
    max_bytes: usize,
    inbox: Out<'_, Handle<pw_inbox>>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_inbox_new", error, |name| hand_out(name.given(inbox)?, pw_inbox(Inbox::new(max, max_bytes)?)))
}

/// Forgets what the inbox holds, waits for a datagram, and takes all that are there, as many as
/// fit. `count` says how many. Descriptors that somebody sends along are closed.
///
/// Fails with PW_TIMED_OUT; PW_INTERRUPTED; PW_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pw_inbox_recv(
    inbox: InOut<'_, pw_inbox>,
    socket: Number,
    deadline: pw_deadline,
    count: Out<'_, usize>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_inbox_recv", error, |name| put(count, name.given(inbox)?.0.recv(socket.lend()?, at(deadline))?))
}

/// Lends one of the datagrams that the last pw_inbox_recv has taken: `i` counts from 0, in the
/// order in which they came.
///
/// Fails with PW_INVALID if there are not so many.
#[unsafe(no_mangle)]
pub extern "C" fn pw_inbox_get(
    inbox: In<'_, pw_inbox>,
    i: usize,
    datagram: Out<'_, pw_datagram>,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_inbox_get", error, |name| {
        let found = name.given(name.given(inbox)?.0.iter().nth(i))?;
        let (address, address_len) = Lent::address_to_c(found.from);
        put(
            Some(name.given(datagram)?),
            pw_datagram {
                data: Lent::to_c(found.bytes),
                len: found.bytes.len(),
                address,
                address_len,
                is_cut: Truth::of(found.is_cut),
            },
        )
    })
}

/// Frees the inbox, and what it has lent.
#[unsafe(no_mangle)]
pub extern "C" fn pw_inbox_free(inbox: Handle<pw_inbox>) {
    free(inbox);
}

/// Sends each of `count` datagrams, and waits for space until the deadline.
///
/// The first pw_error.done have been sent when it fails, and the next one is what it failed at.
/// PW_UNSUPPORTED for a stream socket; PW_INVALID for an address that is too short or too long for
/// its family.
#[unsafe(no_mangle)]
pub extern "C" fn pw_fd_send_many(
    socket: Number,
    datagrams: Lent<'_, pw_datagram>,
    count: usize,
    deadline: pw_deadline,
    error: Out<'_, pw_error>,
) -> pw_status {
    run("pw_fd_send_many", error, |name| {
        let datagrams = datagrams.array(count, name)?;
        let addresses = datagrams.iter().map(|one| one.address.address(one.address_len, name));
        let addresses = addresses.collect::<Result<Vec<_>>>()?;
        let with_addresses = datagrams.iter().zip(&addresses);
        let datagrams = with_addresses.map(|(one, to)| Ok((one.data.bytes(one.len, name)?, to.as_ref())));
        send_many(socket.lend()?, &datagrams.collect::<Result<Vec<_>>>()?, at(deadline))?;
        Ok(PW_OK)
    })
}
