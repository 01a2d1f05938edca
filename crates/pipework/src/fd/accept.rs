//! Accepting many connections at once, and what to do when descriptors run out.
//!
//! Invariant: every accepted connection is handed out, whatever happens next. Each call accepts at
//! most as many as requested and never waits.
//!
//! Linux looks for a free descriptor before it looks for a connection. So nothing is lost when
//! there is none, but the listener stays readable, and an event loop that just tries again spins.
//! Either the loop stops watching the listener until a descriptor is closed, or it keeps a
//! [`Reserve`] and turns the waiting connections away.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::sys::net::{self, SocketAddrAny};
use crate::sys::{self, Errno, For, file};

/// The connections that [`accept_many`] has accepted, and why it stopped.
#[derive(Debug)]
pub struct Accepted {
    /// In the order in which they arrived.
    pub connections: Vec<Connection>,
    /// Why there are no more.
    pub stopped: Stopped,
}

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// Close-on-exec and non-blocking, both from the first moment.
    pub fd: OwnedFd,
    /// The peer's address as the kernel reports it; `None` if it reports none.
    pub peer: Option<SocketAddrAny>,
}

/// Why accepting stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// No further connection is waiting.
    WouldBlock,
    /// As many connections as requested were taken off the backlog; there may be more.
    Limit,
    /// No descriptor is left in this process (EMFILE) or on this machine (ENFILE). Any waiting
    /// connections go on waiting, and it is not known whether there are any: close something, or
    /// [`Reserve::shed`].
    NoDescriptors(Error),
    /// Anything else; trying again at once would fail again.
    Failed(Error),
}

/// Accepts up to `max` of the connections that are waiting, and does not wait for more.
///
/// A connection that its peer gave up while it waited, or that a firewall forbids, counts toward
/// `max`, and is not among the accepted.
///
/// The listener may be of any kind that accepts. It should be non-blocking; if it is not, it is
/// polled before every accept, and if another thread or process accepts between poll and accept,
/// the call waits for the next connection.
///
/// # Examples
///
/// ```
/// use pipework::fd::{Stopped, accept_many};
/// use std::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// listener.set_nonblocking(true)?;
/// let clients = [(); 3].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
/// let accepted = accept_many(&listener, 64);
/// assert_eq!((accepted.connections.len(), accepted.stopped), (3, Stopped::WouldBlock));
/// let first = std::net::SocketAddr::try_from(accepted.connections[0].peer.clone().unwrap()).unwrap();
/// assert_eq!(first, clients[0].local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn accept_many(listener: impl AsFd, max: usize) -> Accepted {
    let mut connections = Vec::new();
    let taken = |(fd, peer)| connections.push(Connection { fd, peer });
    let stopped = each(listener.as_fd(), max, "fd accept many", net::accept_from, taken);
    Accepted { connections, stopped }
}

/// As [`accept_many`], for servers that do not need the peer's address: not asking the kernel for
/// it saves a tenth of the time. Appends the descriptors to `fds`, and returns why there are no
/// more.
pub fn accept_fds(listener: impl AsFd, max: usize, fds: &mut Vec<OwnedFd>) -> Stopped {
    each(listener.as_fd(), max, "fd accept", net::accept, |fd| fds.push(fd))
}

/// A descriptor that is given up when none is left, so that waiting connections can be turned away
/// instead of left to wait.
///
/// # Examples
///
/// ```no_run
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
/// use pipework::fd::{Reserve, Stopped, accept_many};
///
/// let mut reserve = Reserve::new()?;
/// let accepted = accept_many(&listener, 64);
/// if let Stopped::NoDescriptors(_) = accepted.stopped {
///     let shed = reserve.shed(&listener, 64);
///     eprintln!("turned away {}", shed.turned_away);
/// }
/// # Ok::<(), pipework::Error>(())
/// ```
#[derive(Debug)]
pub struct Reserve(
    /// `None` after another thread took the descriptor that was given up.
    Option<OwnedFd>,
);

/// The result of [`Reserve::shed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// How many connections were accepted and closed at once.
    pub turned_away: usize,
    /// Why there were no more: [`Stopped::NoDescriptors`] if another thread takes every descriptor
    /// first.
    pub stopped: Stopped,
}

impl Reserve {
    /// Takes a descriptor to hold.
    pub fn new() -> Result<Reserve> {
        // An eventfd needs no path, unlike /dev/null. A copy of the listener would keep its port open.
        let held = sys::eventfd().map_err(|errno| errno.at("fd reserve"))?;
        Ok(Reserve(Some(held)))
    }

    /// Whether a descriptor is held. If not, the next [`Reserve::shed`] tries to take one again.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Accepts up to `max` connections and closes each at once, so that their peers learn that they
    /// will not be served; never waits.
    ///
    /// Gives up the held descriptor meanwhile and takes it again afterwards. If another thread
    /// takes it first, the reserve is not held any more, and [`is_held`](Reserve::is_held) says so.
    pub fn shed(&mut self, listener: impl AsFd, max: usize) -> Shed {
        self.0 = None;
        let mut turned_away = 0;
        let stopped = each(listener.as_fd(), max, "fd shed", net::accept, |fd| {
            drop(fd);
            turned_away += 1;
        });
        self.0 = sys::eventfd().ok();
        Shed { turned_away, stopped }
    }
}

/// Accepts up to `max` connections and passes each to `taken`.
fn each<T>(
    listener: BorrowedFd<'_>,
    max: usize,
    op: &'static str,
    accept: impl Fn(BorrowedFd<'_>) -> sys::Result<T>,
    mut accepted: impl FnMut(T),
) -> Stopped {
    // A descriptor that does not listen fails at once, with the reason, whether it blocks or not.
    let facts = file::blocks(listener).and_then(|blocks| Ok((blocks, net::is_listening(listener)?)));
    let (may_wait, listens) = match facts {
        Ok((blocks, listens)) => (blocks && listens, listens),
        Err(errno) => return Stopped::Failed(errno.at(op)),
    };
    let accept = || match may_wait && !sys::wait(&[listener], For::Reading, Deadline::now())? {
        true => Err(Errno::AGAIN),
        false => accept(listener),
    };
    for _ in 0..max {
        match accept() {
            Ok(connection) => accepted(connection),
            Err(Errno::AGAIN) => return Stopped::WouldBlock,
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Stopped::NoDescriptors(errno.at(op)),
            // The call does not wait, so an interruption does not concern the caller.
            Err(Errno::INTR) => {}
            Err(errno) if listens && errno.is_of_one_connection() => {}
            Err(errno) => return Stopped::Failed(errno.at(op)),
        }
    }
    Stopped::Limit
}
