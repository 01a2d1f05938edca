//! Datagrams in batches: many per system call, whether the socket blocks or not.

use std::os::fd::{AsFd, BorrowedFd};

use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result, Unfinished};
use crate::sys::net::{self, Arrived, BATCH, SocketAddrAny};
use crate::sys::timed_fd::Pauses;
use crate::sys::{self, Errno, For};

/// Space for datagrams, used again for each receive.
///
/// # Examples
///
/// ```
/// use pipework::fd::{Inbox, send_many};
/// use std::{net::UdpSocket, time::Duration};
///
/// let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// let to = there.local_addr()?.into();
/// send_many(&here, &[(b"one", Some(&to)), (b"two", Some(&to))], Duration::from_secs(1))?;
///
/// let mut inbox = Inbox::new(64, 1500)?;
/// let mut come = Vec::new();
/// while come.len() < 2 {
///     inbox.recv(&there, Duration::from_secs(1))?;
///     come.extend(inbox.iter().map(|datagram| datagram.bytes.to_vec()));
/// }
/// assert_eq!(come, [b"one", b"two"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Inbox {
    places: Vec<u8>,
    place_bytes: usize,
    arrived: Vec<Arrived>,
}

/// A datagram in an [`Inbox`].
#[derive(Clone, Debug)]
pub struct Datagram<'inbox> {
    /// The content, truncated to the space that there was.
    pub bytes: &'inbox [u8],
    /// The sender's address; `None` if the kernel reports none.
    pub from: Option<&'inbox SocketAddrAny>,
    /// Whether the datagram was longer, so that its end is lost.
    pub is_cut: bool,
}

impl Inbox {
    /// The largest number of datagrams that one call takes: the size of the batch in one system
    /// call.
    pub const MOST: usize = BATCH;

    /// Allocates space for `max` datagrams of at most `max_bytes` each; a `max` above
    /// [`Inbox::MOST`] counts as [`Inbox::MOST`]. All memory is allocated at once.
    ///
    /// # Errors
    ///
    /// `Invalid` if one of them is 0; ENOMEM if the memory cannot be allocated.
    pub fn new(max: usize, max_bytes: usize) -> Result<Inbox> {
        const OP: &str = "fd inbox";
        if max == 0 || max_bytes == 0 {
            return Err(Error::new(ErrorKind::Invalid, OP));
        }
        let max = max.min(Inbox::MOST);
        let no_memory = Errno::NOMEM.at(OP);
        let len = max.checked_mul(max_bytes).ok_or(no_memory)?;
        let mut places = Vec::new();
        places.try_reserve_exact(len).map_err(|_| no_memory)?;
        places.resize(len, 0);
        Ok(Inbox { places, place_bytes: max_bytes, arrived: Vec::with_capacity(max) })
    }

    /// Discards its content, waits for a datagram, takes all that have arrived and fit, and returns
    /// how many that was.
    ///
    /// Descriptors that a sender attaches are closed.
    pub fn recv(&mut self, socket: impl AsFd, deadline: impl Into<Deadline>) -> Result<usize> {
        let (socket, deadline) = (socket.as_fd(), deadline.into());
        self.arrived.clear();
        let mut all = || loop {
            match net::recv_batch(socket, &mut self.places, self.place_bytes, |one| self.arrived.push(one)) {
                Err(Errno::AGAIN) => wait(socket, For::Reading, deadline)?,
                done => return done,
            }
        };
        all().map_err(|errno| errno.at("fd recv many"))
    }

    /// The datagrams of the last [`Inbox::recv`], in the order in which they arrived.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        let places = self.places.chunks_exact(self.place_bytes);
        self.arrived.iter().zip(places).map(|(arrived, place)| Datagram {
            bytes: &place[..arrived.len],
            from: arrived.from.as_ref(),
            is_cut: arrived.is_cut,
        })
    }
}

/// Sends each of `datagrams` to its address, or to the socket's own peer, waiting for space until
/// the deadline. No SIGPIPE.
///
/// # Errors
///
/// The first `done` datagrams have been sent, and the next one failed. A stream socket is
/// `Unsupported`.
pub fn send_many(
    socket: impl AsFd,
    datagrams: &[(&[u8], Option<&SocketAddrAny>)],
    deadline: impl Into<Deadline>,
) -> std::result::Result<(), Unfinished> {
    let mut done = 0;
    let all = || {
        let (socket, deadline) = (socket.as_fd(), deadline.into());
        if net::is_stream(socket)? {
            return Err(Errno::OPNOTSUPP);
        }
        let mut pauses = Pauses::new();
        while done < datagrams.len() {
            match net::send_batch(socket, &datagrams[done..]) {
                Ok(sent) => {
                    done += sent;
                    pauses = Pauses::new();
                }
                // A local socket polls as writable even if the queue of an unconnected receiver is
                // full.
                Err(Errno::AGAIN) => {
                    wait(socket, For::Writing, deadline)?;
                    pauses.pause(deadline)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    };
    let outcome = all();
    outcome.map_err(|errno| errno.after(done, "fd send many"))
}

fn wait(socket: BorrowedFd<'_>, what: For, deadline: Deadline) -> sys::Result<()> {
    if sys::wait(&[socket], what, deadline)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
}
