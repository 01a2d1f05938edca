//! Accepting many connections at once, and handling a lack of descriptors.
//!
//! Linux looks for a free descriptor before it looks for a connection. So no connection is lost if
//! descriptors have run out, but the listener stays readable, and an event loop that just tries
//! again spins. Either it stops watching the listener until a descriptor is closed, or it keeps a
//! pwk_reserve and turns the waiting connections away.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use libc::{sockaddr_storage, socklen_t};
use pipework::fd::{Connection, Reserve, Stopped, accept_many};

use crate::edge::{Handle, In, InOut, Number, Out, Space, address_to_c, free, get, hand_out, put, run};
use crate::error::{Failure, Result, pwk_error, pwk_status};

/// Why accepting stopped: one of PWK_STOPPED_WOULD_BLOCK to PWK_STOPPED_FAILED.
pub type pwk_stopped = u32;

/// No other connection is waiting.
pub const PWK_STOPPED_WOULD_BLOCK: pwk_stopped = 1;
/// As many as were asked for have been taken; there may be more.
pub const PWK_STOPPED_LIMIT: pwk_stopped = 2;
/// No descriptor is left in this process or on this machine. The connections that wait go on
/// waiting: close something, or call pwk_reserve_shed.
pub const PWK_STOPPED_NO_DESCRIPTORS: pwk_stopped = 3;
/// Anything else, after some were taken: the next call fails with it.
pub const PWK_STOPPED_FAILED: pwk_stopped = 4;

/// An accepted connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_connection {
    /// Its descriptor, which is the program's; it does not block.
    pub fd: c_int,
    /// How long the address is; 0 where the kernel does not say who has connected.
    pub peer_len: socklen_t,
    /// The address of the peer; zeros behind its end.
    pub peer: sockaddr_storage,
}

/// Accepts the connections that are there, up to `max`, into the array `connections`. `count`,
/// which must not be NULL, is set to their number, and `stopped` to the reason why there are not
/// more. It does not wait.
///
/// A connection that its peer has given up meanwhile, or that a firewall forbids, counts as one of
/// `max` and is not among them. The listener should not block: one that does is polled first, and
/// if another process is quicker, the call waits for the next connection.
///
/// Fails only if none was accepted, and for another reason than PWK_STOPPED_WOULD_BLOCK, _LIMIT and
/// _NO_DESCRIPTORS, which are no failures.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_accept_many(
    listener: Number,
    connections: Space<'_, pwk_connection>,
    max: usize,
    count: Out<'_, usize>,
    stopped: Out<'_, pwk_stopped>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_accept_many", error, |name| {
        let (space, count) = (connections.array(max, name)?, name.given(count)?);
        let accepted = accept_many(listener.lend()?, max);
        let len = accepted.connections.len();
        put(stopped, reason(accepted.stopped, len)?)?;
        let connections = accepted.connections.into_iter().map(pwk_connection::from);
        space.iter_mut().zip(connections).for_each(|(place, connection)| _ = place.write(connection));
        put(Some(count), len)
    })
}

/// A descriptor that is given up when none is left, so that connections can be turned away instead
/// of left to wait. One thread at a time. It is freed with pwk_reserve_free.
pub struct pwk_reserve(Reserve);

/// Takes a descriptor to hold.
///
/// Fails with PWK_OS if none is left.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_reserve_new(
    reserve: Out<'_, Handle<pwk_reserve>>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_reserve_new", error, |name| hand_out(name.given(reserve)?, pwk_reserve(Reserve::new()?)))
}

/// Whether it holds a descriptor to give up; false for NULL. If not, the next pwk_reserve_shed
/// tries to take one again.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_reserve_is_held(reserve: In<'_, pwk_reserve>) -> bool {
    get(false, || reserve.is_some_and(|reserve| reserve.0.is_held()))
}

/// Accepts up to `max` connections and closes each at once, so that their peers learn that they
/// will not be served. `turned_away` is set to their number, and `stopped` to the reason why there
/// were not more. It does not wait. The descriptor is given up meanwhile; if another thread takes
/// it first, the reserve is not held any more.
///
/// Fails as pwk_fd_accept_many.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_reserve_shed(
    reserve: InOut<'_, pwk_reserve>,
    listener: Number,
    max: usize,
    turned_away: Out<'_, usize>,
    stopped: Out<'_, pwk_stopped>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_reserve_shed", error, |name| {
        let shed = name.given(reserve)?.0.shed(listener.lend()?, max);
        put(stopped, reason(shed.stopped, shed.turned_away)?)?;
        put(turned_away, shed.turned_away)
    })
}

/// Frees the reserve, and closes its descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_reserve_free(reserve: Handle<pwk_reserve>) {
    free(reserve);
}

// ---------------------------------------------------------------- on this side

/// Why accepting stopped after `count` connections: an error counts only if `count` is 0.
fn reason(stopped: Stopped, count: usize) -> Result<pwk_stopped> {
    match stopped {
        Stopped::WouldBlock => Ok(PWK_STOPPED_WOULD_BLOCK),
        Stopped::Limit => Ok(PWK_STOPPED_LIMIT),
        Stopped::NoDescriptors(_) => Ok(PWK_STOPPED_NO_DESCRIPTORS),
        Stopped::Failed(error) if count == 0 => Err(Failure::from(error)),
        Stopped::Failed(_) => Ok(PWK_STOPPED_FAILED),
    }
}

impl From<Connection> for pwk_connection {
    fn from(connection: Connection) -> pwk_connection {
        let (peer, peer_len) = address_to_c(connection.peer.as_ref());
        pwk_connection { fd: connection.fd.into_raw_fd(), peer_len, peer }
    }
}
