//! Copying between any two descriptors, inside the kernel where it can.
//!
//! Invariant: what has left the source has arrived. A call of the kernel's own (`copy_file_range`,
//! `sendfile`, `splice`) takes out only what it puts in. A copy by hand looks first, writes, and
//! takes out what was written: a file is rewound, a socket peeked at, and what stands in a pipe is
//! copied to a pipe of our own by `tee`. Terminals, devices and sockets that somebody peeks into at
//! an offset cannot be asked twice: they are read in small pieces, after there is space, and only a
//! write that fails then loses one.
//!
//! Where the kernel refuses a way, the next one is tried. 0 is the end only when a plain read has
//! said it: some file systems say it to a `copy_file_range` of a file whose length they do not
//! know.

use std::os::fd::{AsFd, BorrowedFd};

use super::peek::Peek;
use crate::deadline::Deadline;
use crate::error::Unfinished;
use crate::interrupt;
use crate::sys::file::{self, Kind};
use crate::sys::net::{self, Take};
use crate::sys::timed_fd::{Pauses, SMALL, TimedFd};
use crate::sys::{self, Errno, For};

/// What one call inside the kernel is asked to move, and how much may move before the deadline is
/// looked at.
const STEP: u64 = 4 << 20;
/// What is read and written at once by hand, and what a pipe holds.
const BLOCK: u64 = 64 << 10;

/// Copies `len` bytes, or as many as there are, and says how many that was. `u64::MAX` is
/// everything.
///
/// Both positions move along. Either side may be a file, a pipe, a stream socket, a terminal or a
/// device, blocking or not; datagram sockets, whose messages would run together, are `Unsupported`,
/// and a file or pipe that is both sides at once is `Invalid`. The best of `copy_file_range`,
/// `splice`, `sendfile` and plain reading and writing is found by itself. A pipe or socket that
/// nobody reads is `Closed`, without SIGPIPE.
///
/// The deadline is looked at in every wait, and after every 4 MiB that needed none, so a large file
/// does not outlast it. One that has passed allows what needs no waiting.
///
/// # Errors
///
/// `done` bytes have arrived at `to`, and no other has left `from`, so that the same call may be
/// made again. The exception is a source that cannot be asked twice, which is a terminal, a device,
/// or a socket with `SO_PEEK_OFF` set: if a write fails, up to 4096 bytes that were read from there
/// are lost.
///
/// # Concurrency
///
/// One source has one reader. A copy looks at what it will take out, so two calls that copy from
/// the same socket or pipe at the same time (or one, and anybody else who reads there) can both
/// write the same bytes. Many may write to one destination.
///
/// # Examples
///
/// ```
/// use pipework::{Deadline, fd};
/// use std::{fs::File, io::Write, os::unix::net::UnixStream, time::Duration};
///
/// let (near, far) = UnixStream::pair()?;
/// (&near).write_all(b"whatever comes")?;
/// drop(near);
/// let copied = fd::copy_all(&far, File::create("/dev/null")?, u64::MAX, Duration::from_secs(1))?;
/// assert_eq!(copied, 14);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy_all(
    from: impl AsFd,
    to: impl AsFd,
    len: u64,
    deadline: impl Into<Deadline>,
) -> Result<u64, Unfinished> {
    run("fd copy", &from, &to, len, deadline.into(), |copy| {
        copy.way = match (copy.from.kind, copy.to.kind) {
            (Kind::File, Kind::File) => Way::Range,
            // Pages of a file that are put into a pipe are new to the CPU that reads them there,
            // and nothing is read while they are put in.
            (Kind::File, Kind::Pipe) => Way::ByHand,
            (Kind::Pipe, _) | (_, Kind::Pipe) => Way::Splice { only: false },
            (Kind::File, _) => copy.sendfile(),
            _ => Way::ByHand,
        };
        Ok(())
    })
}

/// Sends `len` bytes of the file `from`, beginning at `offset`, or as many as there are, and says
/// how many that was.
///
/// The position of `from` stays where it is, so that many can send from one file. The rest is as
/// with [`copy_all`].
///
/// # Errors
///
/// As with [`copy_all`]; `Invalid` if `from` has no positions.
pub fn sendfile_all(
    to: impl AsFd,
    from: impl AsFd,
    offset: u64,
    len: u64,
    deadline: impl Into<Deadline>,
) -> Result<u64, Unfinished> {
    run("fd sendfile", &from, &to, len, deadline.into(), |copy| {
        if copy.from.kind != Kind::File {
            return Err(Errno::INVAL);
        }
        copy.offset = Some(offset);
        copy.way = copy.sendfile();
        Ok(())
    })
}

/// Moves `len` bytes, or as many as there are, through `splice` alone, and says how many that was.
/// One side must be a pipe.
///
/// # Errors
///
/// As with [`copy_all`]; `Invalid` if neither side is a pipe, or where the kernel cannot splice
/// (into a file that is open for appending, for instance).
pub fn splice_all(
    from: impl AsFd,
    to: impl AsFd,
    len: u64,
    deadline: impl Into<Deadline>,
) -> Result<u64, Unfinished> {
    run("fd splice", &from, &to, len, deadline.into(), |copy| {
        copy.way = Way::Splice { only: true };
        Ok(())
    })
}

fn run<'fd>(
    op: &'static str,
    from: &'fd impl AsFd,
    to: &'fd impl AsFd,
    len: u64,
    deadline: Deadline,
    choose: impl FnOnce(&mut Copy<'fd>) -> Result<(), Errno>,
) -> Result<u64, Unfinished> {
    let mut done = 0;
    let all = || {
        let mut copy = Copy::new(from.as_fd(), to.as_fd(), deadline)?;
        choose(&mut copy)?;
        // `sendfile` and `splice` into a socket raise SIGPIPE as writes to a pipe do.
        match copy.to.kind {
            Kind::Pipe | Kind::Socket => {
                sys::without_sigpipe(|| copy.all(len, deadline, &mut done), sys::met_closed_end)
            }
            Kind::File | Kind::Other => copy.all(len, deadline, &mut done),
        }
    };
    let outcome = all();
    outcome.map_err(|errno| Unfinished { done, error: errno.at(op) }).map(|()| done)
}

#[derive(Debug)]
struct Copy<'fd> {
    from: TimedFd<'fd>,
    to: TimedFd<'fd>,
    /// Where to read, if not at the source's own position.
    offset: Option<u64>,
    way: Way,
    /// Whether there is a deadline, or somebody to ask, so that no pipe may be waited for inside the
    /// kernel.
    nowait: bool,
    hand: Hand,
}

/// How bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `copy_file_range`: between files.
    Range,
    /// `sendfile`: from a file.
    Sendfile,
    /// `splice`: from or to a pipe.
    Splice {
        only: bool,
    },
    ByHand,
}

/// What is needed to copy by hand, made when it is.
#[derive(Debug)]
struct Hand {
    /// Whether the source can be looked at before anything is taken out.
    keeps: bool,
    block: Vec<u8>,
    /// For a source that is a pipe.
    peek: Peek,
}

impl<'fd> Copy<'fd> {
    fn new(from: BorrowedFd<'fd>, to: BorrowedFd<'fd>, deadline: Deadline) -> Result<Copy<'fd>, Errno> {
        let (from, to) = (TimedFd::new(from, deadline)?, TimedFd::new(to, deadline)?);
        for end in [&from, &to] {
            if end.kind == Kind::Socket && !net::is_stream(end.fd)? {
                return Err(Errno::OPNOTSUPP);
            }
        }
        // It would read what it has written, for as long as there is space on the disk.
        let has_bytes = [Kind::File, Kind::Pipe].contains(&from.kind);
        if has_bytes && from.stat.identity == to.stat.identity {
            return Err(Errno::INVAL);
        }
        let keeps = match from.kind {
            Kind::File | Kind::Pipe => true,
            Kind::Socket => !net::has_peek_offset(from.fd)?,
            Kind::Other => false,
        };
        let nowait = !interrupt::kernel_may_wait(deadline);
        let hand = Hand { keeps, block: vec![], peek: Peek::new() };
        Ok(Copy { from, to, offset: None, way: Way::ByHand, nowait, hand })
    }

    /// Moves `len` bytes, or as many as there are, and adds to `done` what has arrived.
    fn all(&mut self, len: u64, deadline: Deadline, done: &mut u64) -> Result<(), Errno> {
        let mut next_look = STEP;
        while *done < len {
            if *done >= next_look {
                if deadline.has_passed() {
                    return Err(Errno::TIMEDOUT);
                }
                if interrupt::is_stopped() {
                    return Err(Errno::INTR);
                }
                next_look = *done + STEP;
            }
            let before = *done;
            self.step(len - before, done)?;
            if *done == before {
                break;
            }
        }
        Ok(())
    }

    /// `sendfile`, unless that could wait beyond the deadline.
    fn sendfile(&self) -> Way {
        if self.to.may_block || self.from.is_made_up { Way::ByHand } else { Way::Sendfile }
    }

    /// Moves up to `len` bytes, waiting for both sides, and adds to `done` what has arrived:
    /// nothing at the end.
    fn step(&mut self, len: u64, done: &mut u64) -> Result<(), Errno> {
        let mut pauses = Pauses::new();
        loop {
            let step = len.min(STEP) as usize;
            let outcome = match self.way {
                Way::Range => file::copy_range(self.from.fd, self.offset.as_mut(), self.to.fd, step),
                Way::Sendfile => file::sendfile(self.from.fd, self.offset.as_mut(), self.to.fd, step),
                Way::Splice { .. } => self.splice(step),
                Way::ByHand => return self.by_hand(len.min(BLOCK) as usize, done),
            };
            match outcome {
                Ok(0) if self.from.kind == Kind::File && self.next_way() => {}
                Ok(moved) => {
                    *done += moved as u64;
                    return Ok(());
                }
                Err(errno) if errno.is_refusal() && self.next_way() => {}
                Err(Errno::AGAIN) => {
                    self.from.wait_again(For::Reading, &mut pauses)?;
                    self.to.wait_again(For::Writing, &mut pauses)?;
                }
                Err(Errno::INTR) if interrupt::goes_on() => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Goes over to the next way; false if there is none.
    fn next_way(&mut self) -> bool {
        self.way = match self.way {
            Way::Range => self.sendfile(),
            Way::Sendfile | Way::Splice { only: false } => Way::ByHand,
            Way::Splice { only: true } | Way::ByHand => return false,
        };
        true
    }

    fn splice(&mut self, len: usize) -> Result<usize, Errno> {
        // The pipe is asked not to wait. What is not a pipe cannot be asked here, so it is polled
        // first.
        let mut len = len;
        if self.from.may_block && self.from.kind != Kind::Pipe {
            self.from.wait(For::Reading)?;
        }
        if self.to.may_block && self.to.kind != Kind::Pipe {
            self.to.wait(For::Writing)?;
            len = len.min(SMALL);
        }
        file::splice(self.from.fd, self.offset.as_mut(), self.to.fd, len, self.nowait)
    }

    fn by_hand(&mut self, mut len: usize, done: &mut u64) -> Result<(), Errno> {
        if !self.hand.keeps {
            self.to.wait(For::Writing)?;
            len = len.min(SMALL);
        }
        let Copy { from, to, offset, nowait, hand, .. } = self;
        hand.block.resize(len, 0);
        let seen = from.until_done(For::Reading, || hand.look(from, *offset, *nowait))?;
        let (mut written, mut outcome) = (0, Ok(()));
        while written < seen && outcome.is_ok() {
            outcome = to
                .until_done(For::Writing, || to.write(&hand.block[written..seen]))
                .map(|len| written += len);
        }
        *done += written as u64;
        let taken = hand.take(from, offset, seen, written);
        // The first error: by that of a closed end its SIGPIPE is known.
        outcome.and(taken)
    }
}

impl Hand {
    /// Fills the block with what comes next, and says how much that is. It stays in the source if
    /// the source can keep it.
    fn look(&mut self, from: &TimedFd<'_>, offset: Option<u64>, nowait: bool) -> Result<usize, Errno> {
        match (from.kind, offset) {
            (Kind::File, Some(offset)) => file::pread(from.fd, &mut self.block, offset),
            (Kind::File, _) => from.read(&mut self.block),
            _ if !self.keeps => from.read(&mut self.block),
            (Kind::Socket, _) => net::recv(from.fd, &mut self.block, Take::Nothing, from.may_block),
            (Kind::Pipe | Kind::Other, _) => self.peek.look(from.fd, &mut self.block, nowait),
        }
    }

    /// Takes out of the source what was written of what had been seen.
    fn take(
        &mut self,
        from: &TimedFd<'_>,
        offset: &mut Option<u64>,
        seen: usize,
        written: usize,
    ) -> Result<(), Errno> {
        let taken = &mut self.block[..written];
        match (from.kind, offset) {
            _ if !self.keeps => {}
            (Kind::File, Some(offset)) => *offset += written as u64,
            (Kind::File, None) if written < seen => file::rewind(from.fd, seen - written)?,
            (Kind::File | Kind::Other, _) => {}
            (Kind::Socket, _) => fill(taken, |rest| net::recv(from.fd, rest, Take::Away, true))?,
            // A plain read drops the rest of a packet, so it is the second choice.
            (Kind::Pipe, _) => fill(taken, |rest| match self.peek.take(from.fd, rest) {
                Ok(Some(len)) => Ok(len),
                Err(Errno::INTR) => Err(Errno::INTR),
                _ => from.read(rest),
            })?,
        }
        Ok(())
    }
}

/// Fills `buf` from where as many bytes are known to be. Signals do not stop it: half a step would
/// be known to nobody.
fn fill(buf: &mut [u8], mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        match read(&mut buf[done..]) {
            // Somebody else reads the same source and has been quicker: the bytes are gone, to both
            // of us.
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(len) => done += len,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
