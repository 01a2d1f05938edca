//! The engines of the module `pipe`: ours and the peers, each with the sides that it can have.
//!
//! In every engine both sides start together, a writer writes all blocks, a reader reads them with a
//! buffer of a block's size, and the contender fails if the number of bytes is wrong.
//! Threads and runtimes are made before the clock starts.

use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pipework::pipe::pipe;
use ringbuf::HeapRb;
use ringbuf::traits::Split;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio_util::compat::{FuturesAsyncReadCompatExt, FuturesAsyncWriteCompatExt};

use crate::machine::{pin, two_cpus};
use crate::measure::{Failure, Sample, alone};

/// The pipe or ring that moves the bytes.
#[derive(Clone, Copy, PartialEq)]
pub enum Engine {
    Pipework,
    /// A pipe of the kernel, resized to the same capacity.
    Kernel,
    /// Bare rings of bytes, whose sides spin where they cannot go on.
    Rtrb,
    Ringbuf,
    /// `tokio::io::duplex`, one direction of it.
    Duplex,
    /// The byte pipe of the smol family.
    Piper,
}

/// The threads or tasks at the two ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Sides {
    /// One thread, which reads each block as soon as it has written it.
    OneThread,
    TwoThreads,
    /// Two tasks on two threads of a runtime.
    TwoTasks,
    /// Two tasks that share one thread.
    OneWorker,
    /// A thread writes, a task reads.
    Mixed,
    /// So many pairs of threads that send a block there through one pipe and back through another,
    /// and sleep meanwhile. Those of a pair are on two CPUs.
    Asleep(usize),
}

/// The blocks that an engine has to move.
#[derive(Clone, Copy)]
pub struct Job {
    pub sides: Sides,
    pub block: usize,
    pub blocks: usize,
    pub capacity: usize,
}

impl Engine {
    /// Does the job once.
    pub fn run(self, job: Job) -> Result<Sample, Failure> {
        let capacity = job.capacity;
        match (job.sides, self) {
            (Sides::OneThread, Engine::Pipework) => {
                let (reader, writer) = pipe(capacity)?;
                one_thread(job, writer, reader)
            }
            (Sides::OneThread, Engine::Kernel) => {
                let (reader, writer) = kernel(capacity)?;
                one_thread(job, writer, reader)
            }
            (Sides::OneThread, Engine::Rtrb) => {
                let (producer, consumer) = rtrb::RingBuffer::new(capacity);
                one_thread(job, Spinning(producer), Spinning(consumer))
            }
            (Sides::OneThread, Engine::Ringbuf) => {
                let (producer, consumer) = HeapRb::new(capacity).split();
                one_thread(job, Spinning(producer), Spinning(consumer))
            }
            (Sides::TwoThreads, Engine::Pipework) => {
                let (reader, writer) = pipe(capacity)?;
                two_threads(job, writer, reader)
            }
            (Sides::TwoThreads, Engine::Kernel) => {
                let (reader, writer) = kernel(capacity)?;
                two_threads(job, writer, reader)
            }
            (Sides::TwoThreads, Engine::Rtrb) => {
                let (producer, consumer) = rtrb::RingBuffer::new(capacity);
                two_threads(job, Spinning(producer), Spinning(consumer))
            }
            (Sides::TwoThreads, Engine::Ringbuf) => {
                let (producer, consumer) = HeapRb::new(capacity).split();
                two_threads(job, Spinning(producer), Spinning(consumer))
            }
            (Sides::TwoTasks | Sides::OneWorker, Engine::Pipework) => {
                let (reader, writer) = pipe(capacity)?;
                tasks(job, writer.into_async(), reader.into_async())
            }
            (Sides::TwoThreads, Engine::Duplex) => {
                let (writer, reader) = tokio::io::duplex(capacity);
                task_on_each_thread(job, writer, reader)
            }
            (Sides::TwoTasks | Sides::OneWorker, Engine::Duplex) => {
                let (writer, reader) = tokio::io::duplex(capacity);
                tasks(job, writer, reader)
            }
            (Sides::TwoTasks | Sides::OneWorker, Engine::Piper) => {
                let (reader, writer) = piper::pipe(capacity);
                tasks(job, writer.compat_write(), reader.compat())
            }
            (Sides::Mixed, Engine::Pipework) => {
                let (reader, writer) = pipe(capacity)?;
                mixed(job, writer, || Ok(reader.into_async()))
            }
            (Sides::Mixed, Engine::Kernel) => {
                let (reader, writer) = kernel(capacity)?;
                let reader = std::os::fd::OwnedFd::from(reader);
                mixed(job, writer, || tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(reader))
            }
            (Sides::Asleep(pairs), Engine::Pipework) => {
                let asleep = || {
                    let (mut reader, mut writer) = pipe(capacity)?;
                    reader.set_spin(Duration::ZERO);
                    writer.set_spin(Duration::ZERO);
                    Ok((reader, writer))
                };
                there_and_back(job, pairs, asleep)
            }
            (Sides::Asleep(pairs), Engine::Kernel) => there_and_back(job, pairs, || kernel(capacity)),
            _ => Err("it cannot be on these sides".into()),
        }
    }
}

fn kernel(capacity: usize) -> Result<(io::PipeReader, io::PipeWriter), Failure> {
    let (reader, writer) = io::pipe()?;
    fcntl_setpipe_size(&writer, capacity)?;
    Ok((reader, writer))
}

impl Job {
    fn bytes(&self) -> u64 {
        (self.block * self.blocks) as u64
    }

    fn sample(&self, bytes: u64, cost: crate::measure::Cost) -> Result<Sample, Failure> {
        if bytes != self.bytes() {
            return Err(format!("{bytes} bytes arrived of {}", self.bytes()).into());
        }
        Ok(Sample { ops: self.blocks as u64, bytes, wire: None, cost })
    }
}

fn one_thread(job: Job, mut writer: impl Write, mut reader: impl Read) -> Result<Sample, Failure> {
    let (block, mut buffer) = (vec![7; job.block], vec![0; job.block]);
    let (bytes, cost) = alone(|| {
        for _ in 0..job.blocks {
            writer.write_all(black_box(&block))?;
            reader.read_exact(black_box(&mut buffer))?;
        }
        Ok(job.bytes())
    })?;
    job.sample(bytes, cost)
}

/// Each thread has a CPU of its own, where there are two: a round is shorter than the scheduler
/// takes to part two new threads that it has put on one.
fn two_threads(job: Job, writer: impl Write + Send, mut reader: impl Read + Send) -> Result<Sample, Failure> {
    let start = Barrier::new(2);
    let cpus = two_cpus();
    let pinned = |nth: usize| cpus.map_or(Ok(()), |cpus| pin(cpus[nth])).map_err(io::Error::from);
    thread::scope(|scope| {
        // Both sides reach the start, even if something fails before it.
        let writer = scope.spawn(|| {
            let pinned = pinned(1);
            write_blocks(job, writer, &start).and(pinned)
        });
        let read = scope.spawn(|| {
            let pinned = pinned(0);
            let mut buffer = vec![0; job.block];
            start.wait();
            let read = alone(|| {
                let mut bytes = 0;
                while bytes < job.bytes() {
                    match reader.read(black_box(&mut buffer))? {
                        0 => break,
                        len => bytes += len as u64,
                    }
                }
                Ok(bytes)
            });
            pinned.and(read.map_err(|failure| io::Error::other(failure.to_string())))
        });
        let read = read.join().expect("a reader does not panic");
        writer.join().expect("a writer does not panic")?;
        let (bytes, cost) = read?;
        job.sample(bytes, cost)
    })
}

fn there_and_back<R: Read + Send, W: Write + Send>(
    job: Job,
    pairs: usize,
    pipe: impl Fn() -> Result<(R, W), Failure>,
) -> Result<Sample, Failure> {
    let [here, there] = two_cpus().ok_or("there is one CPU only")?;
    let blocks = job.blocks / pairs;
    let pipes: Vec<_> = (0..pairs).map(|_| Ok((pipe()?, pipe()?))).collect::<Result<_, Failure>>()?;
    let start = Barrier::new(2 * pairs + 1);
    // All sides reach the start, even if something fails before it. A side that fails drops its end,
    // so that the other side fails as well.
    let pinned = |cpu| {
        let pinned = pin(cpu);
        start.wait();
        pinned.map_err(io::Error::from)
    };
    thread::scope(|scope| {
        let mut sides = vec![];
        for ((mut request, mut ask), (mut reply, mut answer)) in pipes {
            sides.push(scope.spawn(move || {
                let mut echoed = vec![0; job.block];
                pinned(there)?;
                (0..blocks).try_for_each(|_| {
                    request.read_exact(&mut echoed)?;
                    answer.write_all(&echoed)
                })
            }));
            sides.push(scope.spawn(move || {
                let (block, mut buffer) = (vec![7; job.block], vec![0; job.block]);
                pinned(here)?;
                (0..blocks).try_for_each(|_| {
                    ask.write_all(&block)?;
                    reply.read_exact(&mut buffer)
                })
            }));
        }
        start.wait();
        let ((), cost) = alone(|| {
            sides.into_iter().try_for_each(|side| side.join().expect("no side panics"))?;
            Ok(())
        })?;
        job.sample((job.block * blocks * pairs) as u64, cost)
    })
}

fn write_blocks(job: Job, mut writer: impl Write, start: &Barrier) -> io::Result<()> {
    let block = vec![7; job.block];
    start.wait();
    (0..job.blocks).try_for_each(|_| writer.write_all(black_box(&block)))
}

fn tasks(
    job: Job,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    mut reader: impl AsyncRead + Unpin + Send + 'static,
) -> Result<Sample, Failure> {
    let writing = write_all(job, writer);
    let reading = async move { read_all(job, &mut reader).await };
    let (bytes, cost) = if job.sides == Sides::OneWorker {
        let runtime = runtime(1)?;
        alone(|| {
            let (written, bytes) = runtime.block_on(async { tokio::join!(writing, reading) });
            written.and(Ok(bytes?)).map_err(Failure::from)
        })?
    } else {
        let runtime = runtime(2)?;
        alone(|| {
            let (writing, reading) = (runtime.spawn(writing), runtime.spawn(reading));
            let (written, bytes) = runtime.block_on(async { (writing.await, reading.await) });
            written??;
            Ok(bytes??)
        })?
    };
    job.sample(bytes, cost)
}

/// Two tasks, each of which has a thread and a runtime to itself.
fn task_on_each_thread(
    job: Job,
    writer: impl AsyncWrite + Unpin + Send,
    mut reader: impl AsyncRead + Unpin,
) -> Result<Sample, Failure> {
    let (here, there) = (runtime(1)?, runtime(1)?);
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            start.wait();
            there.block_on(write_all(job, writer))
        });
        start.wait();
        let (bytes, cost) = alone(|| Ok(here.block_on(read_all(job, &mut reader))?))?;
        writer.join().expect("a writer does not panic")?;
        job.sample(bytes, cost)
    })
}

fn mixed<R: AsyncRead + Unpin>(
    job: Job,
    writer: impl Write + Send,
    reader: impl FnOnce() -> io::Result<R>,
) -> Result<Sample, Failure> {
    let runtime = runtime(1)?;
    // A reader of the kernel's pipe is registered with the runtime that it is made in.
    let mut reader = {
        let _inside = runtime.enter();
        reader()?
    };
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_blocks(job, writer, &start));
        start.wait();
        let (bytes, cost) = alone(|| Ok(runtime.block_on(read_all(job, &mut reader))?))?;
        writer.join().expect("a writer does not panic")?;
        job.sample(bytes, cost)
    })
}

async fn write_all(job: Job, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let block = vec![7; job.block];
    for _ in 0..job.blocks {
        writer.write_all(black_box(&block)).await?;
    }
    Ok(())
}

async fn read_all(job: Job, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; job.block], 0);
    while bytes < job.bytes() {
        match reader.read(black_box(&mut buffer)).await? {
            0 => break,
            len => bytes += len as u64,
        }
    }
    Ok(bytes)
}

fn runtime(workers: usize) -> io::Result<Runtime> {
    match workers {
        1 => Builder::new_current_thread().enable_io().build(),
        _ => Builder::new_multi_thread().worker_threads(workers).build(),
    }
}

// ---------------------------------------------------------------- peers

/// One side of a bare ring, which returns `WouldBlock` if it cannot go on: tried again until it
/// can.
struct Spinning<S>(S);

impl<S> Spinning<S> {
    #[inline]
    fn until_done(&mut self, mut call: impl FnMut(&mut S) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match call(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => spin_loop(),
                done => return done,
            }
        }
    }
}

impl<S: Write> Write for Spinning<S> {
    #[inline]
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.until_done(|side| side.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Read> Read for Spinning<S> {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.until_done(|side| side.read(buf))
    }
}
