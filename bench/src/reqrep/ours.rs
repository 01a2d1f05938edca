//! The module `reqrep` as a carrier of calls, and the cost of idle waiters.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use pipework::Deadline;
use pipework::reqrep::{self, Options, Segment, Ticket};

use super::calls::{Carrier, Client, Job, Server};
use crate::c;
use crate::measure::{Cost, Crew, Failure, Sample};

/// The settings in which the contenders differ.
#[derive(Clone, Copy)]
pub struct Settings {
    pub slots: u32,
    /// Attached in all; those that are too many do nothing.
    pub members: usize,
    /// False parks at once.
    pub spin: bool,
    /// Whether calls have a deadline, which never passes.
    pub deadline: bool,
    /// Bytes of a slot each way; `None` for as many as the payloads have.
    pub slot_bytes: Option<usize>,
    /// Whether payloads are read into memory that is kept from call to call, and replies that fit
    /// into a slot are written where they lie.
    pub in_place: bool,
}

/// As `Options` has it, one client and one server.
pub const USUAL: Settings =
    Settings { slots: 64, members: 2, spin: true, deadline: false, slot_bytes: None, in_place: false };

/// Payloads up to this are answered by way of a buffer, larger ones with the vector that they came
/// in.
const SMALL: usize = 64;

pub struct Pipework {
    segment: Segment,
    settings: Settings,
    _idle: Vec<reqrep::Client>,
}

impl Pipework {
    pub fn new(job: &Job, settings: Settings) -> Result<Pipework, Failure> {
        let slot = settings.slot_bytes.unwrap_or(job.bytes) as u32;
        let options = Options::new().slots(settings.slots).request_bytes(slot).reply_bytes(slot);
        let options = if settings.spin { options } else { options.spin(Duration::ZERO) };
        let segment = options.anonymous()?;
        let idle = (2..settings.members).map(|_| segment.client());
        let idle = idle.collect::<pipework::Result<_>>()?;
        Ok(Pipework { segment, settings, _idle: idle })
    }
}

impl Carrier for Pipework {
    type Client = PipeworkClient;
    type Server = PipeworkServer;

    fn client(&self, _nth: usize) -> Result<PipeworkClient, Failure> {
        let client = self.segment.client()?;
        let Settings { deadline, in_place, .. } = self.settings;
        Ok(PipeworkClient { client, deadline, in_place, tickets: VecDeque::new(), reply: Vec::new() })
    }

    fn server(&self, _nth: usize) -> Result<PipeworkServer, Failure> {
        let in_place = self.settings.in_place;
        Ok(PipeworkServer { server: self.segment.server()?, in_place, reply: Vec::new() })
    }
}

pub struct PipeworkClient {
    client: reqrep::Client,
    deadline: bool,
    in_place: bool,
    tickets: VecDeque<Ticket>,
    /// The buffer for replies that are read in place.
    reply: Vec<u8>,
}

impl PipeworkClient {
    /// The time that a call may take.
    fn patience(&self) -> Option<Duration> {
        self.deadline.then_some(Duration::from_secs(60))
    }
}

impl Client for PipeworkClient {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.tickets.push_back(self.client.send(request, self.patience())?);
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        let ticket = self.tickets.pop_front().ok_or("nothing was sent")?;
        Ok(self.client.recv(ticket, self.patience())?.len())
    }

    fn call(&mut self, request: &[u8]) -> Result<usize, Failure> {
        if !self.in_place {
            return Ok(self.client.call(request, self.patience())?.len());
        }
        let patience = self.patience();
        self.client.call_into(request, &mut self.reply, patience)?;
        Ok(self.reply.len())
    }
}

pub struct PipeworkServer {
    server: reqrep::Server,
    in_place: bool,
    reply: Vec<u8>,
}

impl Server for PipeworkServer {
    fn answer(&mut self) -> Result<bool, Failure> {
        if self.in_place {
            let mut request = self.server.claim(Deadline::NEVER)?;
            let (size, slot) = (request.size(), self.server.segment().geometry().reply_bytes as usize);
            if self.reply.len() < size {
                self.reply.resize(size, 0);
            }
            let len = request.read_into(&mut self.reply)?;
            let is_short = len <= slot;
            let reply = &self.reply[..len];
            match is_short {
                true => request.reply_with(len, |space| space.put(reply))?,
                false => request.reply(reply)?,
            };
            return Ok(true);
        }
        let mut request = self.server.recv(Deadline::NEVER)?;
        if request.len() > SMALL {
            self.reply = request.take_payload();
        } else {
            self.reply.clear();
            self.reply.extend_from_slice(&request);
        }
        request.reply(&self.reply)?;
        Ok(true)
    }
}

/// The C library, loaded as C programs load it, in a segment of the same sizes as [`Pipework`]'s.
pub struct PipeworkC(c::Segment);

impl PipeworkC {
    pub fn new(job: &Job, settings: Settings) -> Result<PipeworkC, Failure> {
        let made = Pipework::new(job, settings)?;
        c::Segment::open(made.segment.as_fd()).map(PipeworkC)
    }
}

impl Carrier for PipeworkC {
    type Client = CClient;
    type Server = c::Server;

    fn client(&self, _nth: usize) -> Result<CClient, Failure> {
        Ok(CClient { client: self.0.client()?, tickets: VecDeque::new() })
    }

    fn server(&self, _nth: usize) -> Result<c::Server, Failure> {
        self.0.server()
    }
}

pub struct CClient {
    client: c::Client,
    tickets: VecDeque<u64>,
}

impl Client for CClient {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.tickets.push_back(self.client.send(request)?);
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        self.client.recv(self.tickets.pop_front().ok_or("nothing was sent")?)
    }

    fn call(&mut self, request: &[u8]) -> Result<usize, Failure> {
        self.client.call(request)
    }
}

impl Server for c::Server {
    fn answer(&mut self) -> Result<bool, Failure> {
        c::Server::answer(self).map(|()| true)
    }
}

/// A stream of parts: each part of an endless reply counts as a call.
pub struct PipeworkParts(Pipework, usize);

impl PipeworkParts {
    pub fn new(job: &Job) -> Result<PipeworkParts, Failure> {
        Pipework::new(job, USUAL).map(|segment| PipeworkParts(segment, job.bytes))
    }
}

impl Carrier for PipeworkParts {
    type Client = PartsClient;
    type Server = PartsServer;

    fn client(&self, _nth: usize) -> Result<PartsClient, Failure> {
        Ok(PartsClient { client: self.0.segment.client()?, stream: None })
    }

    fn server(&self, _nth: usize) -> Result<PartsServer, Failure> {
        Ok(PartsServer { server: self.0.segment.server()?, request: None, part: vec![7; self.1] })
    }
}

pub struct PartsClient {
    client: reqrep::Client,
    stream: Option<reqrep::Stream>,
}

impl Client for PartsClient {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        if self.stream.is_none() {
            self.stream = Some(self.client.stream(request, Duration::from_secs(60))?);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        let stream = self.stream.as_mut().ok_or("nothing was sent")?;
        Ok(stream.next_part(Deadline::NEVER)?.ok_or("it has ended")?.len())
    }
}

pub struct PartsServer {
    server: reqrep::Server,
    request: Option<reqrep::Request<'static>>,
    part: Vec<u8>,
}

impl Server for PartsServer {
    fn answer(&mut self) -> Result<bool, Failure> {
        let request = match &mut self.request {
            Some(request) => request,
            none => none.insert(self.server.recv(Deadline::NEVER)?.into_owned()),
        };
        if !request.part(&self.part, Deadline::NEVER)? {
            self.request = None;
        }
        Ok(true)
    }
}

/// Only the copies of an echo: into shared memory and out of it, twice, in one thread.
pub struct Copies(usize);

impl Copies {
    pub fn new(job: &Job) -> Result<Copies, Failure> {
        Ok(Copies(job.bytes))
    }
}

impl Carrier for Copies {
    type Client = Copier;
    type Server = NoServer;

    fn client(&self, _nth: usize) -> Result<Copier, Failure> {
        Ok(Copier([(); 4].map(|()| vec![0; self.0])))
    }

    fn server(&self, _nth: usize) -> Result<NoServer, Failure> {
        Ok(NoServer)
    }
}

/// A slot's request, the server's copy, the slot's reply, the client's copy.
pub struct Copier([Vec<u8>; 4]);

impl Client for Copier {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let [slot, server, reply, client] = &mut self.0;
        slot.copy_from_slice(request);
        server.copy_from_slice(std::hint::black_box(slot));
        reply.copy_from_slice(std::hint::black_box(server));
        client.copy_from_slice(std::hint::black_box(reply));
        Ok(())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        Ok(std::hint::black_box(&self.0[3]).len())
    }
}

pub struct NoServer;

impl Server for NoServer {
    fn answer(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }
}

/// Clients and servers that wait, in a process each.
const WAITERS: usize = 10;
const IDLE: Duration = Duration::from_secs(10);

/// The CPU time of idle waiters. It takes the place of the time on the clock; an operation is one
/// waiter's second.
pub fn idle() -> Result<Sample, Failure> {
    let segment = Options::new().anonymous()?;
    // This process takes the requests and keeps them, so that their clients wait for replies and
    // the servers for requests.
    let holder = segment.server()?;
    let mut clients = Crew::fork(WAITERS / 2, (), |_, (), start| {
        let client = segment.client()?;
        start.wait()?;
        Ok(client.call("wait", Deadline::NEVER).map(drop)?)
    })?;
    clients.go();
    let _held = (0..WAITERS / 2)
        .map(|_| holder.recv(Duration::from_secs(10)))
        .collect::<pipework::Result<Vec<_>>>()?;
    let mut servers = Crew::fork(WAITERS - WAITERS / 2, (), |_, (), start| {
        let server = segment.server()?;
        start.wait()?;
        Ok(server.recv(Deadline::NEVER).map(drop)?)
    })?;
    servers.go();
    let sample = idle_sample(&[&clients, &servers]);
    // Kill them before their requests are given up, which they would report.
    drop(clients);
    sample
}

/// The same for waiters that wake as often and do no work.
pub fn idle_bare() -> Result<Sample, Failure> {
    let mut waiters = Crew::fork(WAITERS, (), |_, (), start| {
        start.wait()?;
        super::bare::park_in_slices(Duration::from_millis(250))
    })?;
    waiters.go();
    idle_sample(&[&waiters])
}

/// The CPU time that these processes use while this one sleeps.
fn idle_sample(waiters: &[&Crew]) -> Result<Sample, Failure> {
    let used = || waiters.iter().map(|crew| crew.cpu_time()).sum::<Result<Duration, Failure>>();
    // The first slices are shorter than all that follow; they are the beginning of a wait, and
    // belong to it.
    std::thread::sleep(Duration::from_secs(1));
    let before = used()?;
    std::thread::sleep(IDLE);
    let cpu = used()? - before;
    let ops = WAITERS as u64 * IDLE.as_secs();
    Ok(Sample { ops, bytes: ops, wire: None, cost: Cost { wall: cpu, cpu_there: cpu, ..Cost::default() } })
}
