//! The module `fd`: its cases and targets, as data, and the code that runs them: accepting, holding,
//! opening, reading, writing and copying.
//!
//! The cases are those that IO::FD publishes, so that its tables can be laid beside these. Where
//! nothing is moved, an operation counts as one byte, so that speeds compare.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use pipework::Deadline;
use pipework::fd::{self, Stopped};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::measure::{Case, Contender, Cost, Crew, Failure, Sample, alone};
use crate::report::Target;

/// Connections in one run of an accepting contender, for every backlog.
const CONNECTIONS: usize = 4000;
/// Sockets made, files opened, descriptors held in one run.
const MADE: usize = 10_000;
/// Reads or writes in one run, in a file of so many bytes.
const CALLS: usize = 20_000;
const FILE_BYTES: usize = 1 << 20;
/// Bytes that one run copies.
const COPIED: usize = 64 << 20;
/// Bytes that one read by hand asks for.
const BLOCK: usize = 64 * 1024;
/// The flags of each accepted connection.
const BOTH: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const MANY: &str = "pipework accept_many";
const FDS: &str = "pipework accept_fds";
const BARE_ACCEPT: &str = "accept4, no peers";
const STD_ACCEPT: &str = "std accept, 1 by 1";
const COPY: &str = "pipework copy_all";
const STD_COPY: &str = "std io::copy";
const READ_FULL: &str = "pipework read_full";
const WRITE_ALL: &str = "pipework write_all";
const WRITE: &str = "rustix write";
const STD_FILE: &str = "std File";

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    Target { name: "fd/accept/backlog-10/vs-std",   of: ("accept/backlog-10", MANY),   slower_of: &[("accept/backlog-10", STD_ACCEPT)],   at_least: 1.0 },
    Target { name: "fd/accept/backlog-100/vs-std",  of: ("accept/backlog-100", MANY),  slower_of: &[("accept/backlog-100", STD_ACCEPT)],  at_least: 1.0 },
    Target { name: "fd/accept/backlog-1000/vs-std", of: ("accept/backlog-1000", MANY), slower_of: &[("accept/backlog-1000", STD_ACCEPT)], at_least: 1.0 },
    Target { name: "fd/accept/backlog-100/vs-bare", of: ("accept/backlog-100", FDS),   slower_of: &[("accept/backlog-100", BARE_ACCEPT)],  at_least: 0.95 },
    Target { name: "fd/write/4k/vs-write",          of: ("write/4k", WRITE_ALL),       slower_of: &[("write/4k", WRITE)],                  at_least: 0.91 },
    Target { name: "fd/copy/file-file/vs-std",      of: ("copy/file-file", COPY),      slower_of: &[("copy/file-file", STD_COPY)],        at_least: 0.9 },
    Target { name: "fd/copy/file-pipe/vs-std",      of: ("copy/file-pipe", COPY),      slower_of: &[("copy/file-pipe", STD_COPY)],        at_least: 1.0 },
    Target { name: "fd/copy/file-tcp/vs-std",       of: ("copy/file-tcp", COPY),       slower_of: &[("copy/file-tcp", STD_COPY)],         at_least: 0.9 },
];

/// The cases of this module, ready to run.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, backlog) in
        [("accept/backlog-10", 10), ("accept/backlog-100", 100), ("accept/backlog-1000", 1000)]
    {
        let contenders = vec![
            contender(MANY, accept(backlog, accept_many)),
            contender(FDS, accept(backlog, accept_fds)),
            contender(STD_ACCEPT, accept(backlog, accept_std)),
            contender(BARE_ACCEPT, accept(backlog, accept_bare)),
        ];
        cases.push(Case { name, quick: true, contenders });
    }
    cases.push(Case { name: "held", quick: true, contenders: held() });
    cases.push(Case { name: "socket", quick: true, contenders: sockets() });
    cases.push(Case { name: "open-close", quick: true, contenders: open_close() });
    for (read, write, kib) in [
        ("read/1k", "write/1k", 1),
        ("read/2k", "write/2k", 2),
        ("read/4k", "write/4k", 4),
        ("read/8k", "write/8k", 8),
        ("read/16k", "write/16k", 16),
    ] {
        let quick = [1, 4, 16].contains(&kib);
        cases.push(Case { name: read, quick, contenders: reads(kib * 1024) });
        cases.push(Case { name: write, quick, contenders: writes(kib * 1024) });
    }
    for (name, target) in [
        ("copy/file-file", Destination::File),
        ("copy/file-pipe", Destination::Pipe),
        ("copy/file-tcp", Destination::Tcp),
    ] {
        let contenders = [
            (COPY, Copying::Pipework { hurried: false }),
            ("pipework, deadline", Copying::Pipework { hurried: true }),
            (STD_COPY, Copying::Std),
            ("read, write, 64 KiB", Copying::Plain),
        ];
        let contenders = contenders.map(|(name, way)| contender(name, move || copy(target, way)));
        cases.push(Case { name, quick: true, contenders: contenders.into() });
    }
    cases
}

fn contender(name: &'static str, run: impl FnMut() -> Result<Sample, Failure> + 'static) -> Contender {
    Contender { name, rounds_at_most: usize::MAX, run: Box::new(run) }
}

/// A contender that does something `count` times in this process.
fn counted(
    name: &'static str,
    count: usize,
    bytes_each: usize,
    mut once: impl FnMut() -> Result<(), Failure> + 'static,
) -> Contender {
    contender(name, move || {
        let ((), cost) = alone(|| (0..count).try_for_each(|_| once()))?;
        Ok(Sample { ops: count as u64, bytes: (count * bytes_each) as u64, wire: None, cost })
    })
}

// ---------------------------------------------------------------- accepting

/// Repeatedly fills the backlog and times `all`, which accepts until no connection waits.
/// Connecting and closing are not timed.
fn accept<T>(
    backlog: usize,
    all: fn(&TcpListener) -> Result<Vec<T>, Failure>,
) -> impl FnMut() -> Result<Sample, Failure> {
    move || {
        more_descriptors();
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, BOTH, None)?;
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
        rustix::net::listen(&socket, backlog as i32)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        let mut spent = Cost::default();
        let mut ops = 0;
        while ops < CONNECTIONS {
            let clients: Vec<TcpStream> =
                (0..backlog).map(|_| TcpStream::connect(address)).collect::<Result<_, _>>()?;
            let (accepted, cost) = alone(|| all(&listener))?;
            if accepted.len() != backlog {
                return Err(format!("{} accepted of {backlog}", accepted.len()).into());
            }
            for client in &clients {
                // Closed with SO_LINGER 0 and before its peer, a connection frees its port at once.
                sockopt::set_socket_linger(client, Some(Duration::ZERO))?;
            }
            drop(clients);
            ops += backlog;
            spent.wall += cost.wall;
            spent.cpu_here += cost.cpu_here;
        }
        Ok(Sample { ops: ops as u64, bytes: ops as u64, wire: None, cost: spent })
    }
}

fn accept_many(listener: &TcpListener) -> Result<Vec<fd::Connection>, Failure> {
    let accepted = fd::accept_many(listener, usize::MAX);
    match accepted.stopped {
        Stopped::WouldBlock => Ok(accepted.connections),
        other => Err(format!("{other:?}").into()),
    }
}

fn accept_fds(listener: &TcpListener) -> Result<Vec<OwnedFd>, Failure> {
    let mut fds = Vec::new();
    match fd::accept_fds(listener, usize::MAX, &mut fds) {
        Stopped::WouldBlock => Ok(fds),
        other => Err(format!("{other:?}").into()),
    }
}

/// The standard library's `accept`, and `set_nonblocking` for each connection.
fn accept_std(listener: &TcpListener) -> Result<Vec<(TcpStream, SocketAddr)>, Failure> {
    let mut accepted = Vec::new();
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(true)?;
                accepted.push((stream, peer));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(accepted),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The system call alone, with flags that save a second call, and without the peer's address.
fn accept_bare(listener: &TcpListener) -> Result<Vec<OwnedFd>, Failure> {
    let mut accepted = Vec::new();
    loop {
        match rustix::net::accept_with(listener, BOTH) {
            Ok(connection) => accepted.push(connection),
            Err(Errno::AGAIN) => return Ok(accepted),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Raises this process's limit on descriptors to its maximum.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If the kernel refuses, the contenders that need more report it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

// ---------------------------------------------------------------- holding, making, opening

/// What a held descriptor costs: the time to get it, and its memory, which stands in the contender's
/// name. No contender uses memory outside its type.
fn held() -> Vec<Contender> {
    fn hold<T: 'static>(what: &str, wrap: fn(OwnedFd) -> T) -> Contender {
        // Leaks the name: the program makes one for each contender.
        let name = format!("{what}, {} B", size_of::<T>()).leak();
        contender(name, move || {
            more_descriptors();
            let file = memfd_create("held", MemfdFlags::CLOEXEC)?;
            let get = || Ok(wrap(fcntl_dupfd_cloexec(&file, 0)?));
            let (_held, cost) = alone(|| (0..MADE).map(|_| get()).collect::<Result<Vec<T>, Failure>>())?;
            Ok(Sample { ops: MADE as u64, bytes: MADE as u64, wire: None, cost })
        })
    }
    vec![
        hold("pipework Connection", |fd| fd::Connection { fd, peer: None }),
        hold("OwnedFd", |fd| fd),
        hold("std File", File::from),
    ]
}

fn sockets() -> Vec<Contender> {
    let bare = |name, family| {
        counted(name, MADE, 1, move || {
            socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            Ok(())
        })
    };
    vec![
        bare("rustix, INET", AddressFamily::INET),
        bare("rustix, INET6", AddressFamily::INET6),
        bare("rustix, UNIX", AddressFamily::UNIX),
        counted("std, UNIX", MADE, 1, || {
            UnixDatagram::unbound()?;
            Ok(())
        }),
    ]
}

fn open_close() -> Vec<Contender> {
    vec![
        counted("rustix open", MADE, 1, || {
            rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(())
        }),
        counted("std File::open", MADE, 1, || {
            File::open("/dev/null")?;
            Ok(())
        }),
    ]
}

// ---------------------------------------------------------------- reading and writing

/// A file in memory.
fn file() -> Result<File, Failure> {
    let mut file = File::from(memfd_create("bench", MemfdFlags::CLOEXEC)?);
    file.write_all(&vec![7; FILE_BYTES])?;
    Ok(file)
}

/// A contender that goes through a file in steps of `size`, again from the beginning whenever it has
/// come to the end.
fn stepping(
    name: &'static str,
    size: usize,
    step: fn(&mut File, u64, &mut [u8]) -> Result<(), Failure>,
) -> Contender {
    contender(name, move || {
        let (mut file, mut block) = (file()?, vec![7; size]);
        let ((), cost) = alone(|| {
            for call in 0..CALLS {
                let offset = call % (FILE_BYTES / size) * size;
                if offset == 0 {
                    file.seek(SeekFrom::Start(0))?;
                }
                step(&mut file, offset as u64, &mut block)?;
            }
            Ok(())
        })?;
        Ok(Sample { ops: CALLS as u64, bytes: (CALLS * size) as u64, wire: None, cost })
    })
}

fn reads(size: usize) -> Vec<Contender> {
    vec![
        stepping(
            READ_FULL,
            size,
            |file, _, block| Ok(fd::read_full(file, block, Deadline::NEVER).map(drop)?),
        ),
        stepping("pipework pread_full", size, |file, offset, block| {
            Ok(fd::pread_full(file, block, offset).map(drop)?)
        }),
        stepping("rustix read", size, |file, _, block| Ok(rustix::io::read(file, block).map(drop)?)),
        stepping(STD_FILE, size, |file, _, block| Ok(file.read_exact(block)?)),
    ]
}

fn writes(size: usize) -> Vec<Contender> {
    vec![
        stepping(WRITE_ALL, size, |file, _, block| Ok(fd::write_all(file, block, Deadline::NEVER)?)),
        stepping("pipework pwrite_all", size, |file, offset, block| Ok(fd::pwrite_all(file, block, offset)?)),
        stepping(WRITE, size, |file, _, block| Ok(rustix::io::write(file, block).map(drop)?)),
        stepping(STD_FILE, size, |file, _, block| Ok(file.write_all(block)?)),
    ]
}

// ---------------------------------------------------------------- copying

#[derive(Clone, Copy)]
enum Destination {
    File,
    Pipe,
    Tcp,
}

#[derive(Clone, Copy)]
enum Copying {
    /// With or without a deadline, which forbids calls that wait in the kernel.
    Pipework {
        hurried: bool,
    },
    Std,
    /// 64 KiB at a time by way of this process.
    Plain,
}

/// Copies a file. If the destination is no file, this process empties it, and a forked process makes
/// the copy.
fn copy(target: Destination, way: Copying) -> Result<Sample, Failure> {
    let source = File::from(memfd_create("source", MemfdFlags::CLOEXEC)?);
    let block = vec![7; BLOCK];
    (0..COPIED / BLOCK).try_for_each(|_| (&source).write_all(&block))?;
    (&source).seek(SeekFrom::Start(0))?;
    let (arrived, cost) = match target {
        Destination::File => {
            let target = File::from(memfd_create("target", MemfdFlags::CLOEXEC)?);
            alone(|| way.copy(&source, &target))?
        }
        Destination::Pipe => {
            let (read, write) = std::io::pipe()?;
            beside(source, OwnedFd::from(write), read, way)?
        }
        Destination::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let write = TcpStream::connect(listener.local_addr()?)?;
            beside(source, OwnedFd::from(write), listener.accept()?.0, way)?
        }
    };
    if arrived != COPIED as u64 {
        return Err(format!("{arrived} bytes arrived of {COPIED}").into());
    }
    Ok(Sample { ops: (COPIED / BLOCK) as u64, bytes: COPIED as u64, wire: None, cost })
}

fn beside(source: File, write: OwnedFd, mut read: impl Read, way: Copying) -> Result<(u64, Cost), Failure> {
    let crew = Crew::fork(1, write, |_, write, start| {
        start.wait()?;
        way.copy(&source, &File::from(write)).map(drop)
    })?;
    crew.run(|| {
        let (mut block, mut arrived) = (vec![0; BLOCK], 0);
        loop {
            match read.read(&mut block)? {
                0 => return Ok(arrived),
                len => arrived += len as u64,
            }
        }
    })
}

impl Copying {
    fn copy(self, mut source: &File, mut target: &File) -> Result<u64, Failure> {
        match self {
            Copying::Pipework { hurried } => {
                let deadline =
                    if hurried { Deadline::after(Duration::from_secs(60)) } else { Deadline::NEVER };
                Ok(fd::copy_all(source.as_fd(), target.as_fd(), u64::MAX, deadline)?)
            }
            Copying::Std => Ok(std::io::copy(&mut source, &mut target)?),
            Copying::Plain => {
                let (mut block, mut copied) = (vec![0; BLOCK], 0);
                loop {
                    match source.read(&mut block)? {
                        0 => return Ok(copied),
                        len => target.write_all(&block[..len])?,
                    }
                    copied += BLOCK as u64;
                }
            }
        }
    }
}
