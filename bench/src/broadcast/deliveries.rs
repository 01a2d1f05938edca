//! Measures publishing, with any way to carry messages to several receivers.
//!
//! The publisher and each subscriber are processes of their own, and the subscribers are there before
//! the first message. The publisher takes the time: from its first message until the last subscriber
//! has said that it has the last one. They say so by a futex in memory that all share, the same for
//! every contender. A message begins with its number, by which a subscriber finds out how many it got.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::futex::{self, Timespec};

use crate::measure::{Cost, Crew, Failure, Sample};
use crate::reqrep::bare::Line;
use crate::reqrep::calls::{self, Carrier, Client, Cpus, Job, LATENCIES, Place, Server, calibrate, latency};

/// The messages to publish: their size, the subscribers and the CPUs.
#[derive(Clone, Copy)]
pub struct Task {
    /// Of a message; at least those of its number.
    pub bytes: usize,
    pub subscribers: usize,
    pub pace: Pace,
    /// The publisher has one of two CPUs, and all subscribers the other.
    pub cpus: Cpus,
}

/// What a publisher waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Only what the channel makes it wait for.
    Stream,
    /// Before each message, until all subscribers have the one before. All sleep meanwhile.
    Turns,
    /// The message goes there and back over two channels, between two processes.
    PingPong,
    /// There is one thread, which receives each message after it has published it.
    OneThread,
}

impl Task {
    /// Whether a side that waits sleeps.
    pub fn sleeps(&self) -> bool {
        self.pace == Pace::Turns
    }
}

/// Bytes of the number at the beginning of a message.
pub const NUMBER: usize = size_of::<u64>();

pub fn number(message: &[u8]) -> Result<u64, Failure> {
    let bytes = message.first_chunk().ok_or("a message is too short")?;
    Ok(u64::from_ne_bytes(*bytes))
}

/// A way to carry messages. It is made before the processes are forked, and its ends in the processes
/// that use them.
pub trait Channel {
    type Publisher: Publish;
    type Subscriber: Receive;

    fn publisher(&self) -> Result<Self::Publisher, Failure>;

    fn subscriber(&self, nth: usize) -> Result<Self::Subscriber, Failure>;

    /// As [`Carrier::ask_to_end`], of the process that sends messages back.
    fn ask_to_end(&self) -> bool {
        false
    }
}

pub trait Publish {
    /// Publishes a message that begins with this number.
    fn publish(&mut self, number: u64) -> Result<(), Failure>;

    /// Whether messages are lost without a word, the last one as well: it is then published again.
    fn is_lossy(&self) -> bool {
        false
    }
}

pub trait Receive {
    /// Waits for the next message that it gets, and returns its number. `None` if it was asked to end.
    fn receive(&mut self) -> Result<Option<u64>, Failure>;
}

/// A channel as a contender.
pub fn run<C: Channel + 'static>(
    task: Task,
    make: impl Fn(&Task) -> Result<C, Failure> + 'static,
) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    if task.pace == Pace::PingPong {
        return ping_pong(task, make);
    }
    let mut known = None;
    Box::new(move || {
        let mut once = |messages| deliver(&task, &make(&task)?, messages);
        let messages = match known {
            Some(messages) => messages,
            None => *known.insert(calibrate(pilot(&task), &mut once)?),
        };
        once(messages)
    })
}

/// Messages with which a run begins to find out how many it needs.
fn pilot(task: &Task) -> u64 {
    if task.bytes >= LARGE { 8 } else { 500 }
}

/// Bytes of a message that does not fit into a cell.
const LARGE: usize = 64 << 10;

// ---------------------------------------------------------------- one way

/// Memory that all processes share.
#[derive(Default)]
struct Board {
    /// Subscribers that have said so, of all messages for which they do.
    said: Line<AtomicU32>,
    /// How many times all have said so.
    all: Line<AtomicU32>,
    /// Measured messages that have arrived, at all subscribers together.
    arrived: Line<AtomicU64>,
}

impl Board {
    fn shared() -> Result<&'static Board, Failure> {
        memory()
    }

    /// One of `subscribers` has a message for which each says so.
    fn say(&self, subscribers: usize) -> Result<(), Failure> {
        let said = self.said.0.fetch_add(1, Ordering::AcqRel) + 1;
        if said.is_multiple_of(subscribers as u32) {
            self.all.0.fetch_add(1, Ordering::Release);
            futex::wake(&self.all.0, futex::Flags::empty(), 1)?;
        }
        Ok(())
    }

    /// Waits until all have said so so many times. False if that takes longer than the limit.
    fn wait(&self, times: u32, limit: Option<&Timespec>) -> Result<bool, Failure> {
        loop {
            let now = self.all.0.load(Ordering::Acquire);
            if now == times {
                return Ok(true);
            }
            match futex::wait(&self.all.0, futex::Flags::empty(), now, limit) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => return Ok(false),
                Err(why) => return Err(why.into()),
            }
        }
    }
}

/// Zeroed memory that forked processes share. It is never unmapped: a run takes a page or so.
///
/// `T` consists of atomics, of which zero is a value.
pub fn memory<T: Default>() -> Result<&'static T, Failure> {
    let (len, protection) = (size_of::<T>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the mapping is new, so nothing else is overwritten.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::SHARED)? };
    let page = NonNull::new(page).ok_or("no page")?.cast::<T>();
    // SAFETY: it is large enough and aligned to a page, and nobody else has it yet.
    unsafe { page.write(T::default()) };
    // SAFETY: as above, and it is never unmapped.
    Ok(unsafe { page.as_ref() })
}

/// Numbers of the messages of a run: some before the clock starts, then `measured` ones.
#[derive(Clone, Copy)]
struct Numbers {
    warm: u64,
    last: u64,
}

impl Numbers {
    fn new(task: &Task, measured: u64) -> Numbers {
        // More than the pieces of memory that any contender uses in turn: the ring keeps so many bytes of
        // long messages.
        let kept = if task.bytes >= LARGE { pipework::defaults::KEEP_BYTES / task.bytes as u64 } else { 0 };
        let warm = (measured / 8).clamp(8, 10_000).max(kept + 16);
        Numbers { warm, last: warm + measured }
    }
}

fn deliver<C: Channel>(task: &Task, channel: &C, messages: u64) -> Result<Sample, Failure> {
    let (numbers, board) = (Numbers::new(task, messages), Board::shared()?);
    let count = if task.pace == Pace::OneThread { 0 } else { task.subscribers };
    let mut subscribers = Crew::fork(count, (), |nth, (), start| {
        task.cpus.pin(true)?;
        let subscriber = channel.subscriber(nth)?;
        start.wait()?;
        receive(task, subscriber, numbers, board)
    })?;
    subscribers.go();
    let findings = memory::<Findings>()?;
    let publisher = Crew::fork(1, (), |_, (), start| {
        task.cpus.pin(false)?;
        let own = (task.pace == Pace::OneThread).then(|| channel.subscriber(0)).transpose()?;
        let mut publisher = Publisher { publisher: channel.publisher()?, own, task, board, said: 0 };
        publisher.drive(1..=numbers.warm, 0)?;
        start.wait()?;
        findings.set(publisher.drive(numbers.warm + 1..=numbers.last, LATENCIES)?)
    })?;
    let before = subscribers.cpu_time()?;
    let (_, mut cost) = publisher.run(|| Ok(()))?;
    cost.cpu_here = subscribers.cpu_time()? - before;
    subscribers.finish()?;
    (cost.wall, cost.latency) = findings.get()?;
    let expected = messages * count as u64;
    let arrived = board.arrived.0.load(Ordering::Acquire);
    cost.arrived = (arrived < expected).then(|| arrived as f64 / expected as f64);
    Ok(Sample { ops: messages, bytes: messages * task.bytes as u64, wire: None, cost })
}

fn receive(
    task: &Task,
    mut subscriber: impl Receive,
    numbers: Numbers,
    board: &Board,
) -> Result<(), Failure> {
    let (mut arrived, mut before) = (0, 0);
    loop {
        let number = subscriber.receive()?.ok_or("it was not asked to end")?;
        if number == before {
            continue;
        }
        if number < before {
            return Err(format!("message {number} came after {before}").into());
        }
        before = number;
        arrived += u64::from(number > numbers.warm);
        let is_last = number == numbers.last;
        if is_last {
            board.arrived.0.fetch_add(arrived, Ordering::AcqRel);
        }
        if task.pace == Pace::Turns || number == numbers.warm || is_last {
            board.say(task.subscribers)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// After which the last message of a lossy channel is published again.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

struct Publisher<'a, P, S> {
    publisher: P,
    /// Of the same thread.
    own: Option<S>,
    task: &'a Task,
    board: &'a Board,
    /// How many times all subscribers have said that they have a message.
    said: u32,
}

impl<P: Publish, S: Receive> Publisher<'_, P, S> {
    /// Publishes these messages, and waits until all subscribers have the last one.
    fn drive(
        &mut self,
        numbers: std::ops::RangeInclusive<u64>,
        latencies: u64,
    ) -> Result<(Duration, Vec<u64>), Failure> {
        let (count, last) = (numbers.end() - numbers.start() + 1, *numbers.end());
        let stride = count.div_ceil(latencies.max(1));
        // In a stream, a publisher's time says little: how long it waits, it does at some messages.
        let is_timed = self.task.pace == Pace::Turns && latencies > 0;
        let mut latencies_ns = Vec::with_capacity(if is_timed { latencies as usize } else { 0 });
        let began = Instant::now();
        for number in numbers {
            let asked = (is_timed && number % stride == 0).then(Instant::now);
            self.publisher.publish(number)?;
            if let Some(own) = &mut self.own {
                if own.receive()? != Some(number) {
                    return Err("another message came".into());
                }
            } else if self.task.subscribers > 0 && (self.task.pace == Pace::Turns || number == last) {
                self.said += 1;
                let limit = self.publisher.is_lossy().then_some(&PATIENCE);
                while !self.board.wait(self.said, limit)? {
                    self.publisher.publish(number)?;
                }
            }
            latencies_ns.extend(asked.map(|asked| asked.elapsed().as_nanos() as u64));
        }
        Ok((began.elapsed(), latencies_ns))
    }
}

/// What the publisher has found, for the process that has started it.
struct Findings {
    wall_ns: AtomicU64,
    count: AtomicU64,
    latencies_ns: [AtomicU64; LATENCIES as usize],
}

impl Default for Findings {
    fn default() -> Findings {
        Findings {
            wall_ns: AtomicU64::default(),
            count: AtomicU64::default(),
            latencies_ns: [const { AtomicU64::new(0) }; LATENCIES as usize],
        }
    }
}

impl Findings {
    fn set(&self, (wall, latencies_ns): (Duration, Vec<u64>)) -> Result<(), Failure> {
        self.wall_ns.store(wall.as_nanos() as u64, Ordering::Release);
        self.count.store(latencies_ns.len().min(LATENCIES as usize) as u64, Ordering::Release);
        for (place, ns) in self.latencies_ns.iter().zip(latencies_ns) {
            place.store(ns, Ordering::Release);
        }
        Ok(())
    }

    fn get(&self) -> Result<(Duration, Option<crate::measure::Latency>), Failure> {
        let count = self.count.load(Ordering::Acquire) as usize;
        let found: Vec<u64> =
            self.latencies_ns[..count].iter().map(|ns| ns.load(Ordering::Acquire)).collect();
        Ok((Duration::from_nanos(self.wall_ns.load(Ordering::Acquire)), latency(found.iter())?))
    }
}

// ---------------------------------------------------------------- there and back

/// Two channels, as a carrier of calls. An operation is half of a call: one message, one way.
fn ping_pong<C: Channel + 'static>(
    task: Task,
    make: impl Fn(&Task) -> Result<C, Failure> + 'static,
) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
    let (bytes, cpus) = (task.bytes, task.cpus);
    let job = Job { bytes, moved: 0, clients: 1, servers: 1, depth: 1, place: Place::Processes, cpus };
    let mut round_trips = calls::between_processes(job, move |_| {
        Ok(PingPong { there: make(&task)?, back: make(&task)?, bytes })
    });
    Box::new(move || {
        let both = round_trips()?;
        let latency = both.cost.latency.map(|latency| latency.halved());
        let cost = Cost { latency, ..both.cost };
        Ok(Sample { ops: 2 * both.ops, bytes: 2 * both.bytes, cost, ..both })
    })
}

struct PingPong<C> {
    there: C,
    back: C,
    bytes: usize,
}

impl<C: Channel> Carrier for PingPong<C> {
    type Client = Here<C::Publisher, C::Subscriber>;
    type Server = There<C::Publisher, C::Subscriber>;

    fn client(&self, _nth: usize) -> Result<Self::Client, Failure> {
        let (subscriber, publisher) = (self.back.subscriber(0)?, self.there.publisher()?);
        Ok(Here { subscriber, publisher, number: 0, bytes: self.bytes })
    }

    fn server(&self, _nth: usize) -> Result<Self::Server, Failure> {
        let (subscriber, publisher) = (self.there.subscriber(0)?, self.back.publisher()?);
        Ok(There { subscriber, publisher })
    }

    fn ask_to_end(&self) -> bool {
        // Both channels must be told.
        self.there.ask_to_end() | self.back.ask_to_end()
    }
}

pub struct Here<P, S> {
    publisher: P,
    subscriber: S,
    number: u64,
    bytes: usize,
}

impl<P: Publish, S: Receive> Client for Here<P, S> {
    fn send(&mut self, _request: &[u8]) -> Result<(), Failure> {
        self.number += 1;
        self.publisher.publish(self.number)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        match self.subscriber.receive()? {
            Some(number) if number == self.number => Ok(self.bytes),
            other => Err(format!("{other:?} came back, not {}", self.number).into()),
        }
    }
}

pub struct There<P, S> {
    publisher: P,
    subscriber: S,
}

impl<P: Publish, S: Receive> Server for There<P, S> {
    fn answer(&mut self) -> Result<bool, Failure> {
        let Some(number) = self.subscriber.receive()? else { return Ok(false) };
        self.publisher.publish(number)?;
        Ok(true)
    }
}
