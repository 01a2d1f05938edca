//! The measurements: a case for each module, with our contender first and then the kernel's. A
//! contender runs for a time, and returns how often it did its work.

use super::args::{BENCH_PEER, BenchPeerArgs, Module, Role};
use crate::failure::{Failure, STDOUT, at, during, uninterrupted};
use crate::peers::{Children, Name, measure, start};
use crate::{channel, streams, sys};
use pipework::atomic::{self, Item};
use pipework::reqrep::Options;
use pipework::{Deadline, ErrorKind, fd, pipe};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const CALL: usize = 12;
const MESSAGE: usize = 5000;
const BLOCK: usize = 1 << 10;
const PIECE: usize = 64 << 10;
/// The file that goes to a socket.
const FILE: usize = 8 << 20;
/// So many turns between two looks at the clock.
const TURNS: u64 = 16;
/// The longest that the other process may take to come or to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way to do something, and the kernel's.
pub(super) struct Case {
    pub(super) module: Module,
    pub(super) title: &'static str,
    /// Bytes of one call, message, block or piece.
    pub(super) bytes: usize,
    /// The module's own way first.
    pub(super) contenders: [Contender; 2],
}

/// A name, and the function that runs it for a time.
pub(super) type Contender = (&'static str, fn(Duration) -> Result<Sample, Failure>);

/// The result of one run.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) count: u64,
    pub(super) elapsed: Duration,
    /// Of both sides.
    pub(super) cpu: Duration,
}

pub(super) const CASES: [Case; 4] = [
    Case {
        module: Module::Reqrep,
        title: "reqrep: a call of 12 bytes and its reply, two processes",
        bytes: CALL,
        contenders: [("pipework", call), ("Unix sockets", echo)],
    },
    Case {
        module: Module::Atomic,
        title: "atomic: messages of 5000 bytes between text, two processes",
        bytes: MESSAGE,
        contenders: [("pipework", messages), ("a pipe, bytes", bytes)],
    },
    Case {
        module: Module::Pipe,
        title: "pipe: blocks of 1 KiB, two threads",
        bytes: BLOCK,
        contenders: [("pipework", our_pipe), ("a pipe", kernels_pipe)],
    },
    Case {
        module: Module::Fd,
        title: "fd: a file to a TCP connection, 64 KiB of it",
        bytes: PIECE,
        contenders: [("pipework, copy_all", copy_all), ("std, io::copy", io_copy)],
    },
];

/// Measures work that returns how often it was done, and in what time.
fn sample(work: impl FnOnce() -> Result<(u64, Duration), Failure>) -> Result<Sample, Failure> {
    let (mut count, mut elapsed) = (0, Duration::ZERO);
    let cost = measure(|| {
        (count, elapsed) = work()?;
        Ok(())
    })?;
    Ok(Sample { count: count.max(1), elapsed, cpu: cost.own + cost.children })
}

/// Does something again and again for a time.
fn repeat(time: Duration, mut turn: impl FnMut() -> Result<(), Failure>) -> Result<(u64, Duration), Failure> {
    // The first ones wake the other side and touch memory that is new.
    (0..TURNS).try_for_each(|_| turn())?;
    let begin = Instant::now();
    let mut count = 0;
    while begin.elapsed() < time {
        (0..TURNS).try_for_each(|_| turn())?;
        count += TURNS;
    }
    Ok((count, begin.elapsed()))
}

// ---------------------------------------------------------------- calls

fn call(time: Duration) -> Result<Sample, Failure> {
    let name = Name::new("bench");
    let segment = Options::new().create(&name.0).map_err(during("making a channel"))?;
    sample(|| {
        let mut server = start(BENCH_PEER).map_err(at("starting a process"))?;
        server.arg("serve").arg(format!("--segment={}", name.0.display()));
        let server = Children(vec![server.spawn().map_err(at("starting a process"))?]);
        let begin = Instant::now();
        while segment.members().map_err(during("asking for members"))?.is_empty() {
            if begin.elapsed() > PATIENCE {
                return Err(Failure::new("the other process did not start"));
            }
            thread::sleep(Duration::from_micros(200));
        }
        // No other process has to find it, and so nothing is left behind, however this ends.
        drop(name);
        let client = segment.client().map_err(during("attaching"))?;
        let mut reply = Vec::new();
        let done = repeat(time, || {
            uninterrupted(|| client.call_into(&[7; CALL][..], &mut reply, Deadline::NEVER))
                .map(drop)
                .map_err(during("calling"))
        })?;
        // An empty one sends it home.
        client.call("", PATIENCE).map_err(during("calling"))?;
        server.finish()?;
        Ok(done)
    })
}

fn echo(time: Duration) -> Result<Sample, Failure> {
    let (mut near, far) = UnixStream::pair().map_err(at("a connection"))?;
    let stdin = OwnedFd::from(far.try_clone().map_err(at("a connection"))?);
    sample(|| {
        let other = other("echo", stdin.into(), OwnedFd::from(far).into(), time)?;
        let mut reply = [0; CALL];
        let done = repeat(time, || {
            near.write_all(&[7; CALL]).and_then(|()| near.read_exact(&mut reply)).map_err(at("a call"))
        })?;
        drop(near);
        other.finish()?;
        Ok(done)
    })
}

/// Starts the other process.
fn other(role: &str, stdin: Stdio, stdout: Stdio, time: Duration) -> Result<Children, Failure> {
    let spawned = start(BENCH_PEER).and_then(|mut command| {
        command.arg(role).arg(format!("--millis={}", time.as_millis())).stdin(stdin).stdout(stdout).spawn()
    });
    Ok(Children(vec![spawned.map_err(at("starting a process"))?]))
}

// ---------------------------------------------------------------- messages

fn messages(time: Duration) -> Result<Sample, Failure> {
    let (read, write) = io::pipe().map_err(at("pipe"))?;
    sample(|| {
        let other = other("send", Stdio::null(), write.into(), time)?;
        let mut reader = atomic::Options::new().mixed(true).reader(read).map_err(during("pipe"))?;
        let (mut begin, mut count) = (None, 0);
        loop {
            match reader.next_item(Deadline::NEVER) {
                Ok(Item::Message(message)) if message.data.len() == MESSAGE => match begin {
                    None => begin = Some(Instant::now()),
                    Some(_) => count += 1,
                },
                Ok(_) => return Err(Failure::new("unexpected bytes arrived")),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::Closed => break,
                Err(error) => return Err(during("receiving")(error)),
            }
        }
        let elapsed = begin.map_or(time, |begin| begin.elapsed());
        other.finish()?;
        Ok((count, elapsed))
    })
}

fn bytes(time: Duration) -> Result<Sample, Failure> {
    let (read, write) = io::pipe().map_err(at("pipe"))?;
    sample(|| {
        let other = other("write", Stdio::null(), write.into(), time)?;
        let (bytes, elapsed) = drain(read, PIECE).map_err(at("reading"))?;
        other.finish()?;
        Ok((bytes / MESSAGE as u64, elapsed))
    })
}

/// Reads to the end; returns how many bytes, and in what time since the first.
fn drain(mut source: impl Read, at_once: usize) -> io::Result<(u64, Duration)> {
    let mut block = vec![0; at_once];
    let (mut total, mut begin) = (0, None);
    loop {
        match source.read(&mut block)? {
            0 => return Ok((total, begin.map_or(Duration::ZERO, |begin: Instant| begin.elapsed()))),
            _ if begin.is_none() => begin = Some(Instant::now()),
            len => total += len as u64,
        }
    }
}

// ---------------------------------------------------------------- bytes between threads

fn our_pipe(time: Duration) -> Result<Sample, Failure> {
    let (reader, writer) = pipe::pipe(pipe::CAPACITY).map_err(during("pipe"))?;
    threads(time, reader, writer)
}

fn kernels_pipe(time: Duration) -> Result<Sample, Failure> {
    let (reader, writer) = io::pipe().map_err(at("pipe"))?;
    threads(time, reader, writer)
}

fn threads(time: Duration, reader: impl Read, mut writer: impl Write + Send) -> Result<Sample, Failure> {
    sample(|| {
        thread::scope(|scope| {
            let write = scope.spawn(move || {
                repeat(time, || writer.write_all(&[7; BLOCK]).map_err(at("writing"))).map(drop)
            });
            let (bytes, elapsed) = drain(reader, BLOCK).map_err(at("reading"))?;
            write.join().expect("it does not panic")?;
            Ok((bytes / BLOCK as u64, elapsed))
        })
    })
}

// ---------------------------------------------------------------- a file to a socket

fn copy_all(time: Duration) -> Result<Sample, Failure> {
    to_socket(time, |file, socket| {
        fd::copy_all(file, socket, u64::MAX, Deadline::NEVER).map(drop).map_err(io::Error::other)
    })
}

fn io_copy(time: Duration) -> Result<Sample, Failure> {
    to_socket(time, |mut file, mut socket| io::copy(&mut file, &mut socket).map(drop))
}

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    Ok((near, listener.accept()?.0))
}

fn to_socket(time: Duration, copy: fn(&File, &TcpStream) -> io::Result<()>) -> Result<Sample, Failure> {
    let file = sys::file_in_memory(&vec![7; FILE]).map_err(at("a file in memory"))?;
    let (near, far) = connection().map_err(at("a connection"))?;
    sample(|| {
        thread::scope(|scope| {
            let read = scope.spawn(|| drain(&far, PIECE));
            let begin = Instant::now();
            let sent = loop {
                let done = (&file).rewind().and_then(|()| copy(&file, &near));
                if done.is_err() || begin.elapsed() >= time {
                    break done;
                }
            };
            // Or the other thread would wait for ever.
            let ended = near.shutdown(Shutdown::Write);
            let (bytes, elapsed) = read.join().expect("it does not panic").map_err(at("reading"))?;
            sent.and(ended).map_err(at("copying"))?;
            Ok((bytes / PIECE as u64, elapsed))
        })
    })
}

// ---------------------------------------------------------------- the other process

/// Is the other process.
pub(super) fn peer(args: &BenchPeerArgs) -> Result<(), Failure> {
    let time = Duration::from_millis(args.millis);
    let stdout = || -> Result<File, Failure> {
        Ok(File::from(streams::stdout()?.as_fd().try_clone_to_owned().map_err(at(STDOUT))?))
    };
    match args.role {
        Role::Serve => {
            let segment = channel::open(args.segment.as_deref().unwrap_or("".as_ref()), false)?;
            let server = segment.server().map_err(during("attaching a server"))?;
            loop {
                let request = uninterrupted(|| server.recv(Deadline::NEVER)).map_err(during("receiving"))?;
                let is_last = request.is_empty();
                let mut echo = [0; CALL];
                let len = request.len().min(CALL);
                echo[..len].copy_from_slice(&request[..len]);
                request.reply(&echo[..len]).map_err(during("replying"))?;
                if is_last {
                    return Ok(());
                }
            }
        }
        Role::Echo => {
            let (mut stdin, mut stdout) = (streams::stdin()?, stdout()?);
            let mut payload = [0; CALL];
            while stdin.read_exact(&mut payload).is_ok() {
                stdout.write_all(&payload).map_err(at(STDOUT))?;
            }
            Ok(())
        }
        Role::Send => {
            let options = atomic::Options::new().mixed(true);
            let mut writer = options.stdout().map_err(during(STDOUT))?;
            repeat(time, || {
                writer.send(&[7; MESSAGE][..], Deadline::NEVER).map(drop).map_err(during("sending"))
            })?;
            writer.close(Deadline::NEVER).map_err(during("sending"))
        }
        Role::Write => {
            let mut stdout = stdout()?;
            repeat(time, || stdout.write_all(&[7; MESSAGE]).map_err(at(STDOUT))).map(drop)
        }
    }
}
