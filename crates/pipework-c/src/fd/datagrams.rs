//! Datagrams by the batch: many in one system call, whether the socket blocks or not.

use std::ffi::c_void;

use libc::{sockaddr, socklen_t};
use pipework::fd::{Inbox, send_many};

use crate::deadline::{at, pwk_deadline};
use crate::edge::{Handle, In, InOut, Lent, Number, Out, Truth, free, hand_out, put, run};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};

/// A datagram that has come, lent until the inbox receives again or is freed; or one to be sent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_datagram {
    /// The first byte; may be NULL if the datagram is empty.
    pub data: Lent<'static, c_void>,
    /// How many.
    pub len: usize,
    /// The sender or the receiver. NULL if the kernel does not know the sender, or for the receiver
    /// that the socket is connected to.
    pub address: Lent<'static, sockaddr>,
    /// How long the address is.
    pub address_len: socklen_t,
    /// It was longer than its space, and its end is lost. Means nothing when it is sent.
    pub is_cut: Truth,
}

/// Space for datagrams, to be received into again and again. One thread at a time. It is freed with
/// pwk_inbox_free.
pub struct pwk_inbox(Inbox);

/// Makes space for `max` datagrams of up to `max_bytes` bytes each; more than 64 count as 64, which
/// one system call takes. All memory is taken at once.
///
/// Fails with PWK_INVALID if one of them is 0; PWK_OS with ENOMEM if the memory does not suffice.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_inbox_new(
    max: usize,
    max_bytes: usize,
    inbox: Out<'_, Handle<pwk_inbox>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_inbox_new", error, |name| hand_out(name.given(inbox)?, pwk_inbox(Inbox::new(max, max_bytes)?)))
}

/// Forgets what the inbox holds, waits for a datagram, and takes all that are there, as many as
/// fit. `count` is set to their number. Descriptors that a sender sends along are closed.
///
/// Fails with PWK_TIMED_OUT; PWK_INTERRUPTED; PWK_OS.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_inbox_recv(
    inbox: InOut<'_, pwk_inbox>,
    socket: Number,
    deadline: pwk_deadline,
    count: Out<'_, usize>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_inbox_recv", error, |name| put(count, name.given(inbox)?.0.recv(socket.lend()?, at(deadline))?))
}

/// Lends one of the datagrams that the last pwk_inbox_recv has taken: `i` counts from 0, in the
/// order in which they came.
///
/// Fails with PWK_INVALID if `i` is too large.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_inbox_get(
    inbox: In<'_, pwk_inbox>,
    i: usize,
    datagram: Out<'_, pwk_datagram>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_inbox_get", error, |name| {
        let found = name.given(name.given(inbox)?.0.iter().nth(i))?;
        let (address, address_len) = Lent::address_to_c(found.from);
        put(
            Some(name.given(datagram)?),
            pwk_datagram {
                data: Lent::to_c(found.bytes),
                len: found.bytes.len(),
                address,
                address_len,
                is_cut: Truth::of(found.is_cut),
            },
        )
    })
}

/// Frees the inbox, and everything that it has lent.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_inbox_free(inbox: Handle<pwk_inbox>) {
    free(inbox);
}

/// Sends each of `count` datagrams, and waits for space until the deadline.
///
/// The first pwk_error.done have been sent when it fails, and it failed at the next one.
/// PWK_UNSUPPORTED for a stream socket; PWK_INVALID for an address that is too short or too long
/// for its family.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_send_many(
    socket: Number,
    datagrams: Lent<'_, pwk_datagram>,
    count: usize,
    deadline: pwk_deadline,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_send_many", error, |name| {
        let datagrams = datagrams.array(count, name)?;
        let addresses = datagrams.iter().map(|one| one.address.address(one.address_len, name));
        let addresses = addresses.collect::<Result<Vec<_>>>()?;
        let with_addresses = datagrams.iter().zip(&addresses);
        let datagrams = with_addresses.map(|(one, to)| Ok((one.data.bytes(one.len, name)?, to.as_ref())));
        send_many(socket.lend()?, &datagrams.collect::<Result<Vec<_>>>()?, at(deadline))?;
        Ok(PWK_OK)
    })
}
