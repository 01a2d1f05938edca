//! Ways to hand memory from one process to another: pipework's, and the kernel's.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use pipework::Deadline;
use pipework::reqrep::{self, Blob, ClientOptions, Message, Options, Segment, ServerOptions};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::measure::{Failure, Sample};
use crate::reqrep::bare::{PingPong, PingPongEnd, Waiting};
use crate::reqrep::calls::{Carrier, Client, Job, Server, between_processes};

/// The memory that goes along with each request.
#[derive(Clone, Copy)]
pub struct Task {
    /// A multiple of a page.
    pub bytes: usize,
    /// Whether client and server look at a word of each page.
    pub reads: bool,
    /// Whether both sides sleep until it is their turn.
    pub sleeps: bool,
}

const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();

impl Task {
    /// Writes the number of the request into each page.
    pub fn write(&self, memory: &mut [u8], number: u64) {
        if self.reads {
            memory.chunks_mut(PAGE).for_each(|page| page[..WORD].copy_from_slice(&number.to_ne_bytes()));
        }
    }

    /// The sum of these words, which is the answer.
    pub fn read(&self, memory: &[u8]) -> Result<u64, Failure> {
        if memory.len() != self.bytes {
            return Err(format!("{} bytes came of {}", memory.len(), self.bytes).into());
        }
        let word = |page: &[u8]| u64::from_ne_bytes(*page.first_chunk().expect("a page has a word"));
        let pages = if self.reads { memory.chunks(PAGE) } else { [].chunks(PAGE) };
        Ok(pages.map(word).sum())
    }

    fn expected(&self, number: u64) -> u64 {
        if self.reads { number * (self.bytes / PAGE) as u64 } else { 0 }
    }
}

/// The client's side of a way to hand memory over.
pub trait Giver {
    /// Hands over memory for the request of this number, and waits for the answer.
    fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure>;
}

/// A way to hand memory over. It is made before the processes are forked.
pub trait Way {
    type Giver: Giver;
    type Taker: Server;

    fn giver(&self, task: &Task) -> Result<Self::Giver, Failure>;

    fn taker(&self, task: &Task) -> Result<Self::Taker, Failure>;

    /// As [`Carrier::ask_to_end`].
    fn ask_to_end(&self) -> bool {
        false
    }
}

/// A way as a contender.
pub fn run<W: Way + 'static>(
    job: Job,
    task: Task,
    make: impl Fn(&Task) -> Result<W, Failure> + 'static,
) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    between_processes(job, move |_| Ok(Handing { way: make(&task)?, task }))
}

struct Handing<W> {
    way: W,
    task: Task,
}

impl<W: Way> Carrier for Handing<W> {
    type Client = HandingClient<W::Giver>;
    type Server = W::Taker;

    fn client(&self, _nth: usize) -> Result<HandingClient<W::Giver>, Failure> {
        Ok(HandingClient { giver: self.way.giver(&self.task)?, task: self.task, number: 0, answer: 0 })
    }

    fn server(&self, _nth: usize) -> Result<W::Taker, Failure> {
        self.way.taker(&self.task)
    }

    fn ask_to_end(&self) -> bool {
        self.way.ask_to_end()
    }
}

pub struct HandingClient<G> {
    giver: G,
    task: Task,
    number: u64,
    answer: u64,
}

impl<G: Giver> Client for HandingClient<G> {
    fn send(&mut self, _request: &[u8]) -> Result<(), Failure> {
        self.number += 1;
        self.answer = self.giver.give(&self.task, self.number)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        let expected = self.task.expected(self.number);
        if self.answer != expected {
            return Err(format!("the server read {}, not {expected}", self.answer).into());
        }
        Ok(WORD)
    }
}

/// The word of an answer.
fn word(bytes: &[u8]) -> Result<u64, Failure> {
    Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| "an answer of the wrong size")?))
}

// ---------------------------------------------------------------- pipework

/// A channel as it is made by default, but its pool holds two blobs of any size: when the client makes
/// the next one, the server may not have dropped the last one yet.
fn channel(task: &Task) -> Result<Segment, Failure> {
    let options = Options::new().blob_pool(pipework::defaults::BLOB_POOL.max(2 * task.bytes as u64));
    let options = if task.sleeps { options.spin(Duration::ZERO) } else { options };
    Ok(options.anonymous()?)
}

/// A blob that is made for each request, of memory that is used again.
pub struct Blobs(Segment);

impl Blobs {
    pub fn new(task: &Task) -> Result<Blobs, Failure> {
        channel(task).map(Blobs)
    }
}

impl Way for Blobs {
    type Giver = BlobGiver;
    type Taker = BlobTaker;

    fn giver(&self, task: &Task) -> Result<BlobGiver, Failure> {
        // Both blobs of the pool are made before the clock starts.
        drop([self.0.blob(task.bytes)?, self.0.blob(task.bytes)?]);
        Ok(BlobGiver(self.0.client()?))
    }

    fn taker(&self, task: &Task) -> Result<BlobTaker, Failure> {
        Ok(BlobTaker { server: self.0.server()?, task: *task })
    }
}

pub struct BlobGiver(reqrep::Client);

impl Giver for BlobGiver {
    fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
        let mut draft = self.0.segment().blob(task.bytes)?;
        task.write(&mut draft, number);
        let blob = draft.freeze()?;
        word(&self.0.call(Message::new(b"").attach(&blob), Deadline::NEVER)?)
    }
}

pub struct BlobTaker {
    server: reqrep::Server,
    task: Task,
}

impl Server for BlobTaker {
    fn answer(&mut self) -> Result<bool, Failure> {
        let request = self.server.recv(Deadline::NEVER)?;
        let sum = self.task.read(&request.blobs()[0])?;
        request.reply(&sum.to_ne_bytes())?;
        Ok(true)
    }
}

/// The same blob with every request, and back with every reply.
pub struct SameBlob(Segment);

impl SameBlob {
    pub fn new(task: &Task) -> Result<SameBlob, Failure> {
        channel(task).map(SameBlob)
    }
}

impl Way for SameBlob {
    type Giver = SameGiver;
    type Taker = SameTaker;

    fn giver(&self, task: &Task) -> Result<SameGiver, Failure> {
        Ok(SameGiver { client: self.0.client()?, blob: self.0.blob(task.bytes)?.freeze()? })
    }

    fn taker(&self, _task: &Task) -> Result<SameTaker, Failure> {
        Ok(SameTaker(self.0.server()?))
    }
}

pub struct SameGiver {
    client: reqrep::Client,
    blob: Blob,
}

impl Giver for SameGiver {
    fn give(&mut self, task: &Task, _number: u64) -> Result<u64, Failure> {
        let reply = self.client.call(Message::new(b"").attach(&self.blob), Deadline::NEVER)?;
        task.read(&reply.blobs()[0])
    }
}

pub struct SameTaker(reqrep::Server);

impl Server for SameTaker {
    fn answer(&mut self) -> Result<bool, Failure> {
        let request = self.0.recv(Deadline::NEVER)?;
        let blob = request.blobs()[0].clone();
        request.reply(Message::new(b"").attach(&blob))?;
        Ok(true)
    }
}

/// A payload that is longer than its slot: the client copies it, and the server reads it in place.
pub struct LongPayloads(Segment);

impl LongPayloads {
    pub fn new(task: &Task) -> Result<LongPayloads, Failure> {
        channel(task).map(LongPayloads)
    }
}

impl Way for LongPayloads {
    type Giver = LongGiver;
    type Taker = LongTaker;

    fn giver(&self, task: &Task) -> Result<LongGiver, Failure> {
        let options = ClientOptions::new().max_message(task.bytes);
        Ok(LongGiver { client: self.0.client_with(&options)?, payload: vec![1; task.bytes] })
    }

    fn taker(&self, task: &Task) -> Result<LongTaker, Failure> {
        let options = ServerOptions::new().max_message(task.bytes);
        Ok(LongTaker { server: self.0.server_with(&options)?, task: *task })
    }
}

pub struct LongGiver {
    client: reqrep::Client,
    payload: Vec<u8>,
}

impl Giver for LongGiver {
    fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
        task.write(&mut self.payload, number);
        word(&self.client.call(&self.payload, Deadline::NEVER)?)
    }
}

pub struct LongTaker {
    server: reqrep::Server,
    task: Task,
}

impl Server for LongTaker {
    fn answer(&mut self) -> Result<bool, Failure> {
        let request = self.server.recv(Deadline::NEVER)?;
        let sum = self.task.read(request.payload())?;
        request.reply(&sum.to_ne_bytes())?;
        Ok(true)
    }
}

// ---------------------------------------------------------------- the kernel's

/// Shared memory of this process, unmapped when it is dropped.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn of(file: &OwnedFd, bytes: usize, protection: ProtFlags, flags: MapFlags) -> Result<Mapping, Failure> {
        // SAFETY: the kernel chooses a place where nothing is.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED | flags, file, 0)? };
        Mapping::at(start, bytes)
    }

    /// Memory that forked processes share.
    fn shared(bytes: usize) -> Result<Mapping, Failure> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED)? };
        Mapping::at(start, bytes)
    }

    fn at(start: *mut std::ffi::c_void, bytes: usize) -> Result<Mapping, Failure> {
        Ok(Mapping { start: NonNull::new(start).ok_or("no mapping")?.cast(), bytes })
    }

    /// # Safety
    ///
    /// No process changes the bytes meanwhile.
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped as long as `self` is there; the caller knows that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// # Safety
    ///
    /// It is mapped for writing, and no process uses the bytes meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the processes take turns")]
    unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A file in memory, whose descriptor goes through a Unix socket with every request. The server
/// maps it, because it cannot know which file it got.
pub struct Memfd {
    client: UnixStream,
    server: UnixStream,
}

impl Memfd {
    pub fn new(_task: &Task) -> Result<Memfd, Failure> {
        let (client, server) = UnixStream::pair()?;
        Ok(Memfd { client, server })
    }
}

impl Way for Memfd {
    type Giver = MemfdGiver;
    type Taker = MemfdTaker;

    fn giver(&self, task: &Task) -> Result<MemfdGiver, Failure> {
        let file = memfd_create("handed", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, task.bytes as u64)?;
        let mapping = Mapping::of(&file, task.bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::empty())?;
        Ok(MemfdGiver { socket: self.client.try_clone()?, file, mapping })
    }

    fn taker(&self, task: &Task) -> Result<MemfdTaker, Failure> {
        Ok(MemfdTaker { socket: self.server.try_clone()?, task: *task })
    }
}

pub struct MemfdGiver {
    socket: UnixStream,
    file: OwnedFd,
    mapping: Mapping,
}

impl Giver for MemfdGiver {
    fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
        // SAFETY: it is mapped for writing, and the server is done with it once it has answered.
        task.write(unsafe { self.mapping.bytes_mut() }, number);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [self.file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&self.socket, &[IoSlice::new(&[1])], &mut control, SendFlags::empty())?;
        let mut answer = [0; WORD];
        self.socket.read_exact(&mut answer)?;
        word(&answer)
    }
}

pub struct MemfdTaker {
    socket: UnixStream,
    task: Task,
}

impl Server for MemfdTaker {
    fn answer(&mut self) -> Result<bool, Failure> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&self.socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let files = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let file = files.ok_or("no descriptor came")?;
        // Page by page it takes longer.
        let flags = if self.task.reads { MapFlags::POPULATE } else { MapFlags::empty() };
        let mapping = Mapping::of(&file, self.task.bytes, ProtFlags::READ, flags)?;
        // SAFETY: the client does not write before it has the answer.
        let sum = self.task.read(unsafe { mapping.bytes() })?;
        self.socket.write_all(&sum.to_ne_bytes())?;
        Ok(true)
    }
}

/// Memory that both processes have mapped, and two words that say whose turn it is: the time of the
/// memory itself.
pub struct Bare {
    turns: PingPong,
    memory: Rc<Mapping>,
    /// The answer.
    sum: Rc<Mapping>,
}

impl Bare {
    pub fn new(task: &Task) -> Result<Bare, Failure> {
        let waiting = if task.sleeps { Waiting::Parked } else { Waiting::Looking };
        let shared = |bytes| Mapping::shared(bytes).map(Rc::new);
        Ok(Bare { turns: PingPong::new(WORD, waiting)?, memory: shared(task.bytes)?, sum: shared(WORD)? })
    }

    fn end(&self, task: &Task) -> BareEnd {
        let (memory, sum) = (Rc::clone(&self.memory), Rc::clone(&self.sum));
        BareEnd { turns: self.turns.end(), memory, sum, task: *task }
    }
}

impl Way for Bare {
    type Giver = BareEnd;
    type Taker = BareEnd;

    fn giver(&self, task: &Task) -> Result<BareEnd, Failure> {
        Ok(self.end(task))
    }

    fn taker(&self, task: &Task) -> Result<BareEnd, Failure> {
        Ok(self.end(task))
    }
}

pub struct BareEnd {
    turns: PingPongEnd,
    memory: Rc<Mapping>,
    sum: Rc<Mapping>,
    task: Task,
}

impl Giver for BareEnd {
    fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
        // SAFETY: it is this side's turn.
        task.write(unsafe { self.memory.bytes_mut() }, number);
        self.turns.send(&[])?;
        self.turns.receive()?;
        // SAFETY: it is this side's turn again.
        word(unsafe { self.sum.bytes() })
    }
}

impl Server for BareEnd {
    fn answer(&mut self) -> Result<bool, Failure> {
        self.turns.take()?;
        // SAFETY: it is this side's turn.
        let sum = self.task.read(unsafe { self.memory.bytes() })?;
        // SAFETY: as above.
        unsafe { self.sum.bytes_mut() }.copy_from_slice(&sum.to_ne_bytes());
        self.turns.give()?;
        Ok(true)
    }
}
