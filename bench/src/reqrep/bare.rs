//! Calls over bare primitives of the machine and its kernel, without any protocol on top.
//!
//! Flags and futexes only signal a call and carry no bytes, so they bound what
//! anything over shared memory can reach. The others carry the bytes: one client and one server
//! know how many belong to a call.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::mqueue::{MQ_OFlag, MqAttr, MqdT, mq_close, mq_open, mq_receive, mq_send, mq_unlink};
use nix::sys::stat::Mode;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::net::{SocketAddrUnix, sockopt};
use rustix::thread::futex::{self, Timespec};

use super::calls::{Carrier, Client, Job, Server};
use crate::measure::Failure;

// ---------------------------------------------------------------- flags

/// How a side waits for its flag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It spins.
    Looking,
    /// On a futex.
    Parked,
    /// On a futex, and up every 50 ms to see whether the other side lives: what the timer costs.
    ParkedInSlices,
}

/// Never comes back.
pub fn park_in_slices(slice: Duration) -> Result<(), Failure> {
    let word = AtomicU32::new(0);
    let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
    loop {
        match futex::wait(&word, futex::Flags::empty(), 0, Some(&slice)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// The memory that forked processes share: the number of the last request and of the last reply, on
/// cache lines that prefetching does not pair.
#[derive(Default)]
pub struct Flags {
    request: Line<AtomicU32>,
    reply: Line<AtomicU32>,
    /// Tells spinning servers to end.
    #[cfg(feature = "peers")]
    pub end: Line<std::sync::atomic::AtomicBool>,
}

#[derive(Default)]
#[repr(align(128))]
pub struct Line<T>(pub T);

impl Flags {
    /// Makes new flags, all zero. The page is never unmapped: a run takes one.
    pub fn shared() -> Result<&'static Flags, Failure> {
        // SAFETY: the mapping is new, so nothing else is overwritten.
        let page = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size_of::<Flags>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )?
        };
        let page = NonNull::new(page).ok_or("no page")?.cast::<Flags>();
        // SAFETY: a page is large enough and aligned, zero is a value of every flag, all of them
        // are atomics, and it is never unmapped.
        Ok(unsafe { page.as_ref() })
    }
}

/// Two flags. Both sides look until they change, or park on them.
pub struct PingPong {
    flags: &'static Flags,
    waiting: Waiting,
    bytes: usize,
}

impl PingPong {
    /// Calls that count as so many bytes.
    pub fn new(bytes: usize, waiting: Waiting) -> Result<PingPong, Failure> {
        Ok(PingPong { flags: Flags::shared()?, waiting, bytes })
    }

    pub fn end(&self) -> PingPongEnd {
        PingPongEnd { flags: self.flags, waiting: self.waiting, bytes: self.bytes, turn: 0 }
    }
}

impl Carrier for PingPong {
    type Client = PingPongEnd;
    type Server = PingPongEnd;

    fn client(&self, _nth: usize) -> Result<PingPongEnd, Failure> {
        Ok(self.end())
    }

    fn server(&self, _nth: usize) -> Result<PingPongEnd, Failure> {
        Ok(self.end())
    }
}

pub struct PingPongEnd {
    flags: &'static Flags,
    waiting: Waiting,
    bytes: usize,
    turn: u32,
}

impl PingPongEnd {
    fn set(&self, flag: &AtomicU32) -> Result<(), Failure> {
        flag.store(self.turn, Ordering::Release);
        if self.waiting != Waiting::Looking {
            futex::wake(flag, futex::Flags::empty(), 1)?;
        }
        Ok(())
    }

    /// Waits for the other side to set the flag to this turn's number.
    fn wait(&self, flag: &AtomicU32) -> Result<(), Failure> {
        loop {
            let now = flag.load(Ordering::Acquire);
            if now == self.turn {
                return Ok(());
            }
            let limit = match self.waiting {
                Waiting::Looking => {
                    std::hint::spin_loop();
                    continue;
                }
                Waiting::Parked => None,
                Waiting::ParkedInSlices => Some(Timespec { tv_sec: 0, tv_nsec: 50_000_000 }),
            };
            match futex::wait(flag, futex::Flags::empty(), now, limit.as_ref()) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}

impl Client for PingPongEnd {
    fn send(&mut self, _request: &[u8]) -> Result<(), Failure> {
        self.turn = self.turn.wrapping_add(1);
        self.set(&self.flags.request.0)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        self.wait(&self.flags.reply.0)?;
        Ok(self.bytes)
    }
}

/// The server's side in two steps.
impl PingPongEnd {
    /// Waits for a request.
    pub fn take(&mut self) -> Result<(), Failure> {
        self.turn = self.turn.wrapping_add(1);
        self.wait(&self.flags.request.0)
    }

    /// Answers it.
    pub fn give(&self) -> Result<(), Failure> {
        self.set(&self.flags.reply.0)
    }
}

impl Server for PingPongEnd {
    fn answer(&mut self) -> Result<bool, Failure> {
        self.take()?;
        self.give()?;
        Ok(true)
    }
}

// ---------------------------------------------------------------- streams

/// Two connected ends of a stream, one for each side.
pub struct Streams<T> {
    client: T,
    server: T,
    bytes: usize,
}

/// A stream that both sides read and write.
pub trait Stream: Read + Write + Sized {
    fn another(&self) -> std::io::Result<Self>;
}

impl Stream for UnixStream {
    fn another(&self) -> std::io::Result<UnixStream> {
        self.try_clone()
    }
}

impl Stream for TcpStream {
    fn another(&self) -> std::io::Result<TcpStream> {
        self.try_clone()
    }
}

/// One pipe each way.
pub struct Pipes {
    read: OwnedFd,
    write: OwnedFd,
}

impl Read for Pipes {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(&self.read, bytes)?)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(rustix::io::write(&self.write, bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream for Pipes {
    fn another(&self) -> std::io::Result<Pipes> {
        Ok(Pipes { read: self.read.try_clone()?, write: self.write.try_clone()? })
    }
}

impl Streams<Pipes> {
    pub fn pipes(job: &Job) -> Result<Streams<Pipes>, Failure> {
        let (there, here) = (rustix::pipe::pipe()?, rustix::pipe::pipe()?);
        let client = Pipes { read: here.0, write: there.1 };
        let server = Pipes { read: there.0, write: here.1 };
        Ok(Streams { client, server, bytes: job.bytes })
    }
}

impl Streams<UnixStream> {
    pub fn unix(job: &Job) -> Result<Streams<UnixStream>, Failure> {
        /// At least the overhead that the kernel counts for a small message.
        const OVERHEAD: usize = 2048;
        let (client, server) = UnixStream::pair()?;
        // All calls in progress must fit, or both sides wait for each other to read.
        let space = job.depth * (job.bytes + OVERHEAD);
        for end in [&client, &server] {
            if sockopt::socket_send_buffer_size(end)? < space {
                sockopt::set_socket_send_buffer_size_force(end, space)?;
            }
        }
        Ok(Streams { client, server, bytes: job.bytes })
    }
}

impl Streams<TcpStream> {
    pub fn tcp(job: &Job) -> Result<Streams<TcpStream>, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Streams { client, server, bytes: job.bytes })
    }
}

impl<T: Stream> Carrier for Streams<T> {
    type Client = StreamEnd<T>;
    type Server = StreamEnd<T>;

    fn client(&self, _nth: usize) -> Result<StreamEnd<T>, Failure> {
        Ok(StreamEnd { stream: self.client.another()?, buffer: vec![0; self.bytes] })
    }

    fn server(&self, _nth: usize) -> Result<StreamEnd<T>, Failure> {
        Ok(StreamEnd { stream: self.server.another()?, buffer: vec![0; self.bytes] })
    }
}

pub struct StreamEnd<T> {
    stream: T,
    buffer: Vec<u8>,
}

impl<T: Stream> Client for StreamEnd<T> {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(request)?)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        self.stream.read_exact(&mut self.buffer)?;
        Ok(self.buffer.len())
    }
}

impl<T: Stream> Server for StreamEnd<T> {
    fn answer(&mut self) -> Result<bool, Failure> {
        self.stream.read_exact(&mut self.buffer)?;
        self.stream.write_all(&self.buffer)?;
        Ok(true)
    }
}

// ---------------------------------------------------------------- datagrams

/// Unix datagrams: one socket that all servers read, and one for each client, whose name tells
/// servers where a request came from.
pub struct Datagrams {
    server: UnixDatagram,
    bytes: usize,
}

impl Datagrams {
    pub fn new(job: &Job) -> Result<Datagrams, Failure> {
        Ok(Datagrams { server: named()?, bytes: job.bytes })
    }
}

/// A socket with a name that the kernel has chosen, and no file.
fn named() -> Result<UnixDatagram, Failure> {
    let socket = UnixDatagram::unbound()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    Ok(socket)
}

impl Carrier for Datagrams {
    type Client = DatagramEnd;
    type Server = DatagramEnd;

    fn client(&self, _nth: usize) -> Result<DatagramEnd, Failure> {
        let socket = named()?;
        socket.connect_addr(&self.server.local_addr()?)?;
        Ok(DatagramEnd { socket, buffer: vec![0; self.bytes] })
    }

    fn server(&self, _nth: usize) -> Result<DatagramEnd, Failure> {
        Ok(DatagramEnd { socket: self.server.try_clone()?, buffer: vec![0; self.bytes] })
    }
}

pub struct DatagramEnd {
    socket: UnixDatagram,
    buffer: Vec<u8>,
}

impl Client for DatagramEnd {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        Ok(self.socket.send(request).map(drop)?)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        Ok(self.socket.recv(&mut self.buffer)?)
    }
}

impl Server for DatagramEnd {
    fn answer(&mut self) -> Result<bool, Failure> {
        let (len, from) = self.socket.recv_from(&mut self.buffer)?;
        self.socket.send_to_addr(&self.buffer[..len], &from)?;
        Ok(true)
    }
}

// ---------------------------------------------------------------- POSIX message queues

/// One queue of requests for all servers, and one of replies for each client. The first byte of a
/// request is the client's number.
pub struct Queues {
    requests: Arc<Queue>,
    replies: Vec<Arc<Queue>>,
    bytes: usize,
}

/// What a queue holds where the kernel's own limits are the usual ones.
const USUAL_DEPTH: usize = 10;

impl Queues {
    pub fn new(job: &Job) -> Result<Queues, Failure> {
        let depth = (job.clients * job.depth).max(USUAL_DEPTH);
        let queue = |name| Queue::new(name, depth, job.bytes).map(Arc::new);
        let replies = (0..job.clients).map(|nth| queue(format!("reply-{nth}")));
        let replies = replies.collect::<Result<Vec<_>, Failure>>()?;
        Ok(Queues { requests: queue("requests".to_owned())?, replies, bytes: job.bytes })
    }
}

impl Carrier for Queues {
    type Client = QueueClient;
    type Server = QueueServer;

    fn client(&self, nth: usize) -> Result<QueueClient, Failure> {
        let (requests, replies) = (Arc::clone(&self.requests), Arc::clone(&self.replies[nth]));
        Ok(QueueClient { requests, replies, number: nth as u8, buffer: vec![0; self.bytes] })
    }

    fn server(&self, _nth: usize) -> Result<QueueServer, Failure> {
        let (requests, replies) = (Arc::clone(&self.requests), self.replies.clone());
        Ok(QueueServer { requests, replies, buffer: vec![0; self.bytes] })
    }
}

pub struct QueueClient {
    requests: Arc<Queue>,
    replies: Arc<Queue>,
    number: u8,
    buffer: Vec<u8>,
}

impl Client for QueueClient {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.buffer.copy_from_slice(request);
        self.buffer[0] = self.number;
        self.requests.send(&self.buffer)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        self.replies.receive(&mut self.buffer)
    }
}

pub struct QueueServer {
    requests: Arc<Queue>,
    replies: Vec<Arc<Queue>>,
    buffer: Vec<u8>,
}

impl Server for QueueServer {
    fn answer(&mut self) -> Result<bool, Failure> {
        let len = self.requests.receive(&mut self.buffer)?;
        self.replies[usize::from(self.buffer[0])].send(&self.buffer[..len])?;
        Ok(true)
    }
}

/// A queue without a name, closed when it is dropped.
struct Queue(Option<MqdT>);

impl Queue {
    fn new(name: String, depth: usize, bytes: usize) -> Result<Queue, Failure> {
        let name = format!("/pipework-bench-{}-{name}", std::process::id());
        let attributes = MqAttr::new(0, depth.try_into()?, bytes.try_into()?, 0);
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR;
        let queue = mq_open(name.as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR, Some(&attributes))
            .map_err(|why| format!("no queue of {depth} times {bytes} bytes here: {why}"))?;
        mq_unlink(name.as_str())?;
        Ok(Queue(Some(queue)))
    }

    fn open(&self) -> &MqdT {
        self.0.as_ref().expect("it is closed by drop only")
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(mq_send(self.open(), bytes, 0)?)
    }

    fn receive(&self, bytes: &mut [u8]) -> Result<usize, Failure> {
        Ok(mq_receive(self.open(), bytes, &mut 0)?)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // It can fail only for a descriptor that is none.
        self.0.take().map(mq_close);
    }
}
