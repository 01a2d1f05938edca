//! Module `fd` on real descriptors.
//!
//! Every test runs in a process of its own, which counts its descriptors before and after.

mod accept;
mod copy;
mod calls;
mod datagrams;
mod hostile;

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pipework::fd::{CWD, mkstemp_at, slurp};
use pipework::{ErrorKind, Unfinished};
use rustix::process::{Resource, Rlimit};

use crate::harness::{PATIENCE, Random};

const SHORT: Duration = Duration::from_millis(20);

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

fn refusal(outcome: Result<u64, Unfinished>) -> (u64, ErrorKind, Option<i32>) {
    let unfinished = outcome.expect_err("a refusal");
    (unfinished.done, unfinished.kind(), unfinished.error.errno())
}

/// Bytes in which a shift always shows.
fn pattern(len: usize) -> Vec<u8> {
    Random::new(4).bytes(len)
}

/// The kinds of descriptors that bytes go into and come out of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    File,
    Pipe,
    Local,
    Tcp,
}

const KINDS: [Kind; 4] = [Kind::File, Kind::Pipe, Kind::Local, Kind::Tcp];

impl Kind {
    /// The end to write and the end to read.
    fn ends(self) -> (OwnedFd, OwnedFd) {
        match self {
            Kind::File => {
                let (fd, path) =
                    mkstemp_at(CWD, std::env::temp_dir().join("pipework-test-XXXXXX").as_os_str()).unwrap();
                let again = File::open(&path).unwrap();
                fs::remove_file(path).unwrap();
                (fd, again.into())
            }
            Kind::Pipe => {
                let (read, write) = std::io::pipe().unwrap();
                (write.into(), read.into())
            }
            Kind::Local => {
                let (near, far) = UnixStream::pair().unwrap();
                (near.into(), far.into())
            }
            Kind::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                (near.into(), listener.accept().unwrap().0.into())
            }
        }
    }
}

fn drain(fd: impl AsFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    slurp(fd, &mut bytes, usize::MAX, PATIENCE).unwrap();
    bytes
}

/// Lets this process open `count` more descriptors, and returns its old limit.
fn leave_descriptors(count: usize) -> Rlimit {
    let before = rustix::process::getrlimit(Resource::Nofile);
    // A new descriptor has the lowest free number, and the limit applies to numbers.
    let next: Vec<_> = (0..=count).map(|_| rustix::io::dup(std::io::stdin()).unwrap()).collect();
    let limit = next[count].as_raw_fd() as u64;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    before
}
