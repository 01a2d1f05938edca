//! Sockets: accepting, bytes without waiting and without SIGPIPE, options, datagrams in batches.

use std::ffi::c_int;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

pub use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrStorage;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Errno, Result, checked};

// ---------------------------------------------------------------- connections

impl Errno {
    /// Whether accepting failed for a single connection that is gone or forbidden, so that the next
    /// may succeed: accept(2), "Error handling" and "ERRORS". (EOPNOTSUPP means that only on a
    /// socket that listens; callers of this have checked that it does.)
    pub(crate) fn is_of_one_connection(self) -> bool {
        let errors = [
            libc::ECONNABORTED,
            libc::ECONNRESET,
            libc::EOPNOTSUPP,
            libc::EPERM,
            libc::EPROTONOSUPPORT,
            libc::ESOCKTNOSUPPORT,
            libc::ETIMEDOUT,
            libc::EHOSTDOWN,
            libc::EHOSTUNREACH,
            libc::ENETDOWN,
            libc::ENETUNREACH,
            libc::ENONET,
            libc::ENOPROTOOPT,
            libc::EPROTO,
        ];
        errors.contains(&self.0)
    }
}

/// The flags of a connection from its first moment.
const ACCEPTED: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Accepts the next connection.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    opens!("accept", rustix::net::accept_with(listener, ACCEPTED))
}

/// As [`accept`], with the peer's address.
pub(crate) fn accept_from(listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
    opens!("accept", rustix::net::acceptfrom_with(listener, ACCEPTED))
}

/// Whether the socket accepts connections.
pub(crate) fn is_listening(socket: BorrowedFd<'_>) -> Result<bool> {
    sys!("getsockopt", rustix::net::sockopt::socket_acceptconn(socket))
}

/// Whether the socket is a stream of bytes, not of messages.
pub(crate) fn is_stream(socket: BorrowedFd<'_>) -> Result<bool> {
    sys!("getsockopt", rustix::net::sockopt::socket_type(socket)).map(|kind| kind == SocketType::STREAM)
}

/// Whether the socket is a stream of bytes between two processes of this machine, and not one that
/// listens or has yet to connect.
pub(crate) fn is_unix_stream(socket: BorrowedFd<'_>) -> Result<bool> {
    if sys!("getsockopt", rustix::net::sockopt::socket_domain(socket))? != AddressFamily::UNIX
        || !is_stream(socket)?
        || is_listening(socket)?
    {
        return Ok(false);
    }
    match sys!("getpeername", rustix::net::getpeername(socket)) {
        Ok(_) => Ok(true),
        Err(Errno(libc::ENOTCONN)) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether peeking misses the first bytes: some program has set `SO_PEEK_OFF`, and each peek moves
/// that offset.
pub(crate) fn has_peek_offset(socket: BorrowedFd<'_>) -> Result<bool> {
    let mut off = [0; size_of::<c_int>()];
    match option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &mut off) {
        Ok(_) => Ok(c_int::from_ne_bytes(off) >= 0),
        // Sockets of this kind have no such option.
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The largest number of bytes that a Unix stream socket queues as one piece, however many others
/// write into it: what the kernel takes at once, which is half of the send buffer minus 64 bytes
/// (net/unix/af_unix.c, `unix_stream_sendmsg`). PIPE_BUF would be too many: with the smallest buffer, 4608
/// bytes, the third write of four processes was torn. With these 2240 bytes none of 60,000 was.
pub(crate) fn whole_send(socket: BorrowedFd<'_>) -> Result<usize> {
    let buffer = sys!("getsockopt", rustix::net::sockopt::socket_send_buffer_size(socket))?;
    Ok((buffer / 2).saturating_sub(64))
}

// ---------------------------------------------------------------- bytes

/// The action on the bytes that a call receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Out,
    /// They stay in the socket.
    Nothing,
    /// They are removed, and the buffer may not hold them.
    Away,
}

pub(crate) fn recv(socket: BorrowedFd<'_>, buf: &mut [u8], take: Take, nowait: bool) -> Result<usize> {
    let buf = allowed!("recv", buf);
    let flags = match take {
        Take::Out => RecvFlags::empty(),
        Take::Nothing => RecvFlags::PEEK,
        Take::Away => RecvFlags::TRUNC,
    };
    let nowait = if nowait { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    rustix::net::recv(socket, buf, flags | nowait).map(|(len, _)| len).map_err(Errno::from)
}

/// Returns EPIPE, without SIGPIPE, if the other side does not receive.
pub(crate) fn send(socket: BorrowedFd<'_>, buf: &[u8], nowait: bool) -> Result<usize> {
    let len = capped!("send", buf.len());
    let nowait = if nowait { SendFlags::DONTWAIT } else { SendFlags::empty() };
    rustix::net::send(socket, &buf[..len], SendFlags::NOSIGNAL | nowait).map_err(Errno::from)
}

// ---------------------------------------------------------------- options

/// Fills the beginning of `value`; returns the length of the option.
pub(crate) fn option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    // Some options take addresses from the caller's buffer. Zeros hold none.
    value.fill(0);
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `len` bytes, which exist.
    let mut call =
        || unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) };
    sys!("getsockopt", checked(call()))?;
    Ok((len as usize).min(value.len()))
}

/// Sets an option to the bytes of `value`.
///
/// # Safety
///
/// If the option takes addresses inside `value`, they are valid for everything that the kernel does
/// with them.
pub(crate) unsafe fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads at most `len` bytes, which exist; the caller is responsible for
    // their meaning.
    let call = || unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    sys!("setsockopt", checked(call())).map(drop)
}

/// Sets an option that is an integer.
pub(crate) fn set_number(socket: BorrowedFd<'_>, level: i32, name: i32, value: c_int) -> Result<()> {
    // SAFETY: four bytes are too short for an address, and an option that takes one refuses them.
    unsafe { set_option(socket, level, name, &value.to_ne_bytes()) }
}

// ---------------------------------------------------------------- datagrams

/// The number of datagrams that one system call moves here at most.
pub(crate) const BATCH: usize = 64;

/// The kernel's facts about a datagram that it has written into its slot.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) len: usize,
    pub(crate) from: Option<SocketAddrAny>,
    /// Whether the datagram was longer than its slot.
    pub(crate) is_cut: bool,
}

/// Receives what is available, at most [`BATCH`] datagrams, each into `place_bytes` bytes of
/// `places`, and calls `arrived` for each. [`Errno::AGAIN`] if there is none. The kernel closes
/// descriptors that come along.
pub(crate) fn recv_batch(
    socket: BorrowedFd<'_>,
    places: &mut [u8],
    place_bytes: usize,
    mut arrived: impl FnMut(Arrived),
) -> Result<usize> {
    // SAFETY: all of these are plain numbers and null pointers when zeroed.
    let (mut headers, mut vectors, mut names): (
        [libc::mmsghdr; BATCH],
        [libc::iovec; BATCH],
        [MaybeUninit<SocketAddrStorage>; BATCH],
    ) = unsafe { (zeroed(), zeroed(), zeroed()) };
    let mut count = 0;
    for (place, ((header, vector), name)) in
        places.chunks_exact_mut(place_bytes).zip(headers.iter_mut().zip(&mut vectors).zip(&mut names))
    {
        *vector = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_name = name.as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = size_of::<SocketAddrStorage>() as libc::socklen_t;
        count += 1;
    }
    let count = capped!("recvmmsg", count);
    // SAFETY: `count` headers point at places and names that live here and do not overlap.
    let got = unsafe {
        let (flags, forever) = (libc::MSG_DONTWAIT as _, std::ptr::null_mut());
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as _, flags, forever)
    };
    let got = usize::try_from(got).map_err(|_| Errno::last())?;
    for (header, name) in headers.iter().zip(&names).take(got) {
        let len = header.msg_hdr.msg_namelen;
        arrived(Arrived {
            len: (header.msg_len as usize).min(place_bytes),
            // SAFETY: the kernel has written `len` bytes of an address there.
            from: (len >= 2).then(|| unsafe { SocketAddrAny::read(name.as_ptr(), len) }),
            is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        });
    }
    Ok(got)
}

/// Sends as many datagrams as there is space for, at most [`BATCH`], without waiting and without
/// SIGPIPE; returns how many were sent.
pub(crate) fn send_batch(
    socket: BorrowedFd<'_>,
    datagrams: &[(&[u8], Option<&SocketAddrAny>)],
) -> Result<usize> {
    // SAFETY: all of these are plain numbers and null pointers when zeroed.
    let (mut headers, mut vectors): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
        unsafe { (zeroed(), zeroed()) };
    for ((header, vector), (bytes, to)) in headers.iter_mut().zip(&mut vectors).zip(datagrams) {
        *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if let Some(to) = to {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.addr_len();
        }
    }
    let count = capped!("sendmmsg", datagrams.len().min(BATCH));
    // SAFETY: `count` headers point at bytes and addresses that outlive the call, which only reads
    // them.
    let sent = unsafe {
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _;
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as _, flags)
    };
    usize::try_from(sent).map_err(|_| Errno::last())
}
