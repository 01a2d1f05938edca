//! The engines of the module `atomic`: ours and the peers.
//!
//! Every engine moves all records of its job from forked writers to one reader in this process, and
//! fails if a byte is missing at the other end. All preparation comes before the clock starts.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use pipework::atomic::{Item, Options, Reader, Zstd};
use pipework::{Deadline, ErrorKind};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use zstd::bulk::{Compressor, Decompressor};

use crate::c;
use crate::corpus::{Corpus, Records};
use crate::measure::{Cost, Crew, Failure, Sample, alone};

/// A way to move a job.
#[derive(Clone, Copy)]
pub enum Engine {
    /// This project: mixed or plain mode, zstd level, records handed over in one call.
    Pipework {
        mixed: bool,
        level: Option<i32>,
        batch: usize,
    },
    /// Plain mode, by the C library.
    C,
    /// Bare writes and 64 KiB reads, on a pipe or a packet socket. Several writers mix, so this
    /// bounds what a protocol can reach.
    Bare {
        block: Block,
        packets: bool,
    },
    /// Records behind their length, each written under an exclusive file lock, as many programs do
    /// by hand.
    Locked,
    /// zstd in this process alone, one context, one frame a record.
    Compress {
        level: i32,
    },
    Decompress {
        level: i32,
    },
    /// Both at the same time in two processes, with no pipe between them: the speed of this machine
    /// with two busy processes.
    Halves {
        level: i32,
    },
    /// Atomic::Pipe in Perl, for writers and reader.
    Original {
        level: Option<i32>,
    },
    /// Fills the reader with `at_once` messages of 100 bytes without parsing, then times the
    /// parsing alone.
    Waiting {
        at_once: u64,
    },
}

/// Bytes of one bare write.
#[derive(Clone, Copy)]
pub enum Block {
    Bytes(usize),
    Record,
}

/// Bytes of one bare read, as pipework's own default.
const READ_BYTES: usize = 64 * 1024;
/// No record is longer.
const MAX_RECORD: usize = 10_000;
/// Atomic::Pipe moves about this much of the corpus, once. Its cost per message grows with what its
/// reader has buffered, so that the whole larger corpus would take it minutes: the slice flatters
/// it. Speeds in bytes per second are compared.
const ORIGINAL_BYTES: usize = 20 << 20;

/// The records that an engine has to move.
#[derive(Clone, Copy)]
pub struct Job {
    pub corpus: Corpus,
    pub passes: usize,
    pub writers: usize,
}

/// The payload that a reader received.
#[derive(Clone, Copy, Default)]
struct Got {
    records: u64,
    bytes: u64,
}

impl Engine {
    /// The engine with its job, ready to run again and again.
    pub fn runner(self, job: Job) -> Box<dyn FnMut() -> Result<Sample, Failure>> {
        match self {
            Engine::Pipework { mixed, level, batch } => {
                Box::new(move || pipework_moves(job, mixed, level, batch))
            }
            Engine::C => Box::new(move || c_moves(job)),
            Engine::Bare { block, packets } => Box::new(move || bare(job, block, packets)),
            Engine::Locked => Box::new(move || locked(job)),
            Engine::Compress { level } => Box::new(move || compress(job, level)),
            Engine::Decompress { level } => {
                let mut frames = Vec::new();
                Box::new(move || decompress(job, level, &mut frames))
            }
            Engine::Halves { level } => {
                let mut frames = Vec::new();
                Box::new(move || halves(job, level, &mut frames))
            }
            Engine::Original { level } => Box::new(move || original(job, level)),
            Engine::Waiting { at_once } => Box::new(move || waiting(at_once)),
        }
    }
}

impl Job {
    fn records(&self) -> &'static Records {
        self.corpus.records()
    }

    fn everything(&self) -> Range<usize> {
        0..self.records().len()
    }

    /// The records that the nth writer sends in each pass.
    fn share(&self, nth: usize) -> Range<usize> {
        let len = self.records().len();
        nth * len / self.writers..(nth + 1) * len / self.writers
    }

    fn bytes(&self) -> u64 {
        (self.records().text(self.everything()).len() * self.passes) as u64
    }

    /// A finished run, unless the reader did not get `bytes` of payload.
    fn sample(&self, bytes: u64, cost: Cost) -> Result<Sample, Failure> {
        if bytes != self.bytes() {
            return Err(format!("{bytes} bytes arrived of {}", self.bytes()).into());
        }
        Ok(Sample { ops: (self.records().len() * self.passes) as u64, bytes, wire: None, cost })
    }
}

fn pipework_moves(job: Job, mixed: bool, level: Option<i32>, batch: usize) -> Result<Sample, Failure> {
    let options = Options::new().mixed(mixed);
    let options = level.map_or(options.clone(), |level| options.zstd(Zstd::new().with_level(level)));
    let (mut reader, writer) = options.pair()?;
    let crew = Crew::fork(job.writers, writer, |nth, mut writer, start| {
        let records = job.records().slices(job.share(nth));
        start.wait()?;
        for _ in 0..job.passes {
            for some in records.chunks(batch) {
                match some {
                    [one] => writer.send(one, Deadline::NEVER).map(drop)?,
                    _ => writer.send_many(some, Deadline::NEVER).map(drop)?,
                }
            }
        }
        Ok(writer.close(Deadline::NEVER)?)
    })?;
    let (got, cost) = crew.run(|| receive(&mut reader))?;
    let sample = job.sample(got.bytes, cost)?;
    if got.records != sample.ops {
        return Err(format!("{} messages arrived of {}", got.records, sample.ops).into());
    }
    Ok(sample)
}

/// In plain mode, by the C library.
fn c_moves(job: Job) -> Result<Sample, Failure> {
    let (mut reader, writer) = c::pair()?;
    let crew = Crew::fork(job.writers, writer, |nth, mut writer, start| {
        let records = job.records().slices(job.share(nth));
        start.wait()?;
        for _ in 0..job.passes {
            records.iter().try_for_each(|record| writer.send(record))?;
        }
        Ok(())
    })?;
    let (bytes, cost) = crew.run(|| {
        let mut bytes = 0;
        while let Some(len) = reader.recv()? {
            bytes += len as u64;
        }
        Ok(bytes)
    })?;
    job.sample(bytes, cost)
}

fn receive(reader: &mut Reader) -> Result<Got, Failure> {
    let mut got = Got::default();
    loop {
        match reader.next_item(Deadline::NEVER) {
            Ok(Item::Message(message)) => {
                got.records += 1;
                got.bytes += message.len() as u64;
            }
            Ok(Item::Torn(torn)) => return Err(format!("damaged: {torn}").into()),
            Ok(_) => return Err("unexpected text arrived".into()),
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(got),
            Err(error) => return Err(error.into()),
        }
    }
}

fn bare(job: Job, block: Block, packets: bool) -> Result<Sample, Failure> {
    let (read_end, write_end) = if packets {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?
    } else {
        pipe_with(PipeFlags::CLOEXEC)?
    };
    let crew = Crew::fork(job.writers, write_end, |nth, write_end, start| {
        let share = job.share(nth);
        let blocks: Vec<&[u8]> = match block {
            Block::Bytes(size) => job.records().text(share).chunks(size).collect(),
            Block::Record => job.records().slices(share),
        };
        start.wait()?;
        (0..job.passes).try_for_each(|_| blocks.iter().try_for_each(|block| write_all(&write_end, block)))
    })?;
    let mut buffer = vec![0; READ_BYTES];
    let (bytes, cost) = crew.run(|| {
        let mut bytes = 0;
        loop {
            match rustix::io::read(&read_end, &mut buffer)? {
                0 => return Ok(bytes),
                len => bytes += len as u64,
            }
        }
    })?;
    job.sample(bytes, cost)
}

fn locked(job: Job) -> Result<Sample, Failure> {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let lock = memfd_create("lock", MemfdFlags::CLOEXEC)?;
    let crew = Crew::fork(job.writers, write_end, |nth, write_end, start| {
        // A lock belongs to the open file description, and the inherited one is shared by all.
        let lock = File::open(format!("/proc/self/fd/{}", lock.as_raw_fd()))?;
        let records = job.records().slices(job.share(nth));
        let mut framed = Vec::with_capacity(4 + MAX_RECORD);
        start.wait()?;
        for _ in 0..job.passes {
            for record in &records {
                framed.clear();
                framed.extend_from_slice(&(record.len() as u32).to_ne_bytes());
                framed.extend_from_slice(record);
                flock(&lock, FlockOperation::LockExclusive)?;
                write_all(&write_end, &framed)?;
                flock(&lock, FlockOperation::Unlock)?;
            }
        }
        Ok(())
    })?;
    let (bytes, cost) = crew.run(|| receive_framed(&read_end))?;
    job.sample(bytes, cost)
}

/// Reads records behind their length and returns the number of payload bytes.
fn receive_framed(read_end: &OwnedFd) -> Result<u64, Failure> {
    let mut buffer = vec![0; READ_BYTES + 4 + MAX_RECORD];
    let (mut bytes, mut len) = (0, 0);
    loop {
        match rustix::io::read(read_end, &mut buffer[len..])? {
            0 => return Ok(bytes),
            more => len += more,
        }
        let mut rest = &buffer[..len];
        while let Some((size, body)) = rest.split_first_chunk() {
            let Some((record, after)) = body.split_at_checked(u32::from_ne_bytes(*size) as usize) else {
                break;
            };
            bytes += record.len() as u64;
            rest = after;
        }
        let kept = rest.len();
        buffer.copy_within(len - kept..len, 0);
        len = kept;
    }
}

fn compress(job: Job, level: i32) -> Result<Sample, Failure> {
    let mut compress_all = compressing(job, level)?;
    let (wire, cost) = alone(&mut compress_all)?;
    Ok(Sample { wire: Some(wire), ..job.sample(job.bytes(), cost)? })
}

/// `frames` keeps the compressed records from round to round.
fn decompress(job: Job, level: i32, frames: &mut Vec<Vec<u8>>) -> Result<Sample, Failure> {
    let (bytes, cost) = alone(decompressing(job, level, frames)?)?;
    job.sample(bytes, cost)
}

fn halves(job: Job, level: i32, frames: &mut Vec<Vec<u8>>) -> Result<Sample, Failure> {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let crew = Crew::fork(job.writers, write_end, |_, _until_done, start| {
        let mut compress_all = compressing(job, level)?;
        start.wait()?;
        compress_all().map(drop)
    })?;
    let decompress_all = decompressing(job, level, frames)?;
    let (bytes, cost) = crew.run(|| {
        let bytes = decompress_all()?;
        // Nothing is written: the read ends together with the other half.
        rustix::io::read(&read_end, &mut [0; 1])?;
        Ok(bytes)
    })?;
    job.sample(bytes, cost)
}

/// Returns a function that compresses the whole job once and returns the size of the frames.
fn compressing(job: Job, level: i32) -> Result<impl FnMut() -> Result<u64, Failure>, Failure> {
    let records = job.records().slices(job.everything());
    let mut compressor = Compressor::new(level)?;
    let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(MAX_RECORD));
    Ok(move || {
        let mut wire = 0;
        for _ in 0..job.passes {
            for record in &records {
                frame.clear();
                wire += compressor.compress_to_buffer(record, &mut frame)? as u64;
            }
        }
        Ok(wire)
    })
}

/// Returns a function that decompresses the whole job once and returns the size of the records.
fn decompressing(
    job: Job,
    level: i32,
    frames: &mut Vec<Vec<u8>>,
) -> Result<impl FnOnce() -> Result<u64, Failure>, Failure> {
    if frames.is_empty() {
        let mut compressor = Compressor::new(level)?;
        for record in job.records().slices(job.everything()) {
            frames.push(compressor.compress(record)?);
        }
    }
    let mut decompressor = Decompressor::new()?;
    let mut record = Vec::with_capacity(MAX_RECORD);
    Ok(move || {
        let mut bytes = 0;
        for _ in 0..job.passes {
            for frame in &*frames {
                record.clear();
                bytes += decompressor.decompress_to_buffer(frame, &mut record)? as u64;
            }
        }
        Ok(bytes)
    })
}

fn original(job: Job, level: Option<i32>) -> Result<Sample, Failure> {
    let mut lines = Vec::with_capacity(ORIGINAL_BYTES + MAX_RECORD);
    let mut sent = Got::default();
    for record in job.records().slices(job.everything()) {
        if lines.len() >= ORIGINAL_BYTES {
            break;
        }
        lines.extend_from_slice(record);
        lines.push(b'\n');
        sent.records += 1;
        sent.bytes += record.len() as u64;
    }
    let level = level.map_or("plain".to_owned(), |level| level.to_string());
    let mut perl = Command::new("perl")
        .args(["-e", include_str!("../../peer/atomic_pipe.pl"), "--", &level, &job.writers.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|_| "not installed: perl")?;
    // A script that ends early explains itself on its standard error, which says more than the
    // broken pipe here.
    let _ = perl.stdin.take().expect("standard input is a pipe").write_all(&lines);
    let said = perl.wait_with_output()?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        let missing = ["Atomic/Pipe.pm", "Compress::Zstd", "Compress/Zstd.pm"]
            .into_iter()
            .find(|name| why.contains(name));
        return Err(missing.map_or(why.trim().to_owned(), |name| format!("not installed: {name}")).into());
    }
    let numbers: Vec<f64> = String::from_utf8(said.stdout)?.split_whitespace().flat_map(str::parse).collect();
    let &[records, bytes, wall, there, here] = &numbers[..] else {
        return Err("no five numbers came back".into());
    };
    if (records as u64, bytes as u64) != (sent.records, sent.bytes) {
        return Err(format!("{records} records arrived of {}", sent.records).into());
    }
    let [wall, cpu_there, cpu_here] = [wall, there, here].map(Duration::from_secs_f64);
    Ok(Sample {
        ops: sent.records,
        bytes: sent.bytes,
        wire: None,
        cost: Cost { wall, cpu_here, cpu_there, ..Cost::default() },
    })
}

fn waiting(at_once: u64) -> Result<Sample, Failure> {
    const MESSAGES: u64 = 1_000_000;
    const BODY_BYTES: u64 = 100;
    /// Body, part header and the three control bytes of mixed mode.
    const WIRE_BYTES: u64 = BODY_BYTES + 16 + 3;
    let (mut reader, writer) = Options::new().mixed(true).pair()?;
    let crew = Crew::fork(1, writer, |_, mut writer, start| {
        let batch = [[b'm'; BODY_BYTES as usize]; 100];
        start.wait()?;
        for _ in 0..MESSAGES / batch.len() as u64 {
            writer.send_many(&batch, Deadline::NEVER)?;
        }
        Ok(writer.close(Deadline::NEVER)?)
    })?;
    let (spent, _) = crew.run(|| {
        let (mut spent, mut filled) = (Cost::default(), 0);
        for parsed in (at_once..=MESSAGES).step_by(at_once as usize) {
            while filled < parsed * WIRE_BYTES {
                match reader.read_ahead(Deadline::NEVER)? {
                    0 => return Err("the stream ended early".into()),
                    len => filled += len as u64,
                }
            }
            let ((), cost) = alone(|| {
                for _ in 0..at_once {
                    let Some(Item::Message(_)) = reader.try_next_item()? else {
                        return Err("no message".into());
                    };
                }
                Ok(())
            })?;
            spent.wall += cost.wall;
            spent.cpu_here += cost.cpu_here;
        }
        Ok(spent)
    })?;
    Ok(Sample { ops: MESSAGES, bytes: MESSAGES * BODY_BYTES, wire: None, cost: spent })
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let len = rustix::io::write(to, bytes)?;
        bytes = &bytes[len..];
    }
    Ok(())
}
