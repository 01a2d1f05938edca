//! Copying between any two descriptors, inside the kernel where it can.
//!
//! Invariant: bytes that have left the source have arrived. The kernel's own calls
//! (`copy_file_range`, `sendfile`, `splice`) take out only what they put in. A copy by hand looks
//! first, writes, and takes out what was written: a file is rewound, a socket is peeked, and the
//! content of a pipe is copied to a pipe of our own by `tee`. Terminals, devices and sockets with a
//! peek offset cannot be read twice: they are read in small pieces, once there is space, and only a
//! write that fails then loses one.
//!
//! If the kernel refuses one way, the next one is tried. 0 counts as the end only if a plain read
//! returned it: some file systems return it to a `copy_file_range` of a file whose length they do
//! not know.

use std::os::fd::{AsFd, BorrowedFd};

use super::peek::Peek;
use crate::deadline::Deadline;
use crate::error::Unfinished;
use crate::interrupt;
use crate::sys::file::{self, Kind};
use crate::sys::net::{self, Take};
use crate::sys::timed_fd::{Pauses, SMALL, TimedFd};
use crate::sys::{self, Errno, For};

/// The number of bytes that one call inside the kernel is asked to move, and that may move before
/// the deadline is checked.
const STEP: u64 = 4 << 20;
/// The number of bytes that are read and written at once by hand, and that a pipe holds.
const BLOCK: u64 = 64 << 10;

/// Copies `len` bytes, or as many as there are, and returns how many that was. `u64::MAX` copies
/// everything.
///
/// Both positions move along. Either side may be a file, a pipe, a stream socket, a terminal or a
/// device, blocking or not. Datagram sockets, whose messages would run together, are `Unsupported`,
/// and a file or pipe that is both sides at once is `Invalid`. The call itself picks the best of
/// `copy_file_range`, `splice`, `sendfile` and plain reading and writing. A pipe or socket without
/// a reader gives `Closed`, without SIGPIPE.
///
/// The deadline is checked in every wait, and after every 4 MiB that needed none, so a large file
/// does not outlast it. A deadline that has passed allows everything that needs no waiting.
///
/// # Errors
///
/// `done` bytes have arrived at `to`, and no other has left `from`, so the same call may be
/// repeated. The exception is a source that cannot be read twice, which is a terminal, a device, or
/// a socket with `SO_PEEK_OFF` set: if a write fails, up to 4096 bytes that were read from there
/// are lost.
///
/// # Concurrency
///
/// A source has one reader. A copy looks at bytes before it takes them out, so two calls that copy
/// from the same socket or pipe at the same time (or one call, and any other reader) can both write
/// the same bytes. Many may write to one destination.
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
            // Pages of a file that are put into a pipe are cold for the CPU that reads them there,
            // and reading cannot overlap with putting them in.
            (Kind::File, Kind::Pipe) => Way::ByHand,
            (Kind::Pipe, _) | (_, Kind::Pipe) => Way::Splice { only: false },
            (Kind::File, _) => copy.sendfile(),
            _ => Way::ByHand,
        };
        Ok(())
    })
}

/// Sends `len` bytes of the file `from`, beginning at `offset`, or as many as there are, and
/// returns how many that was.
///
/// The position of `from` does not move, so many callers can send from one file. Otherwise as
/// [`copy_all`].
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

/// Moves `len` bytes, or as many as there are, with `splice` only, and returns how many that was.
/// One side must be a pipe.
///
/// # Errors
///
/// As with [`copy_all`]; `Invalid` if neither side is a pipe, or if the kernel cannot splice (into
/// a file that is open for appending, for instance).
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
    /// The offset to read from, if not the source's own position.
    offset: Option<u64>,
    way: Way,
    /// Whether a deadline or an interrupt hook is set, so that no call may wait for a pipe inside
    /// the kernel.
    nowait: bool,
    hand: Hand,
}

/// A way to move bytes.
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

/// The resources of a copy by hand, allocated when first needed.
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
        // The file would read back what it has written, for as long as there is space on the disk.
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

    /// Moves `len` bytes, or as many as there are, and adds the number that arrived to `done`.
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

    /// Moves up to `len` bytes, waiting for both sides, and adds the number that arrived to `done`:
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

    /// Switches to the next way; returns false if there is none.
    fn next_way(&mut self) -> bool {
        self.way = match self.way {
            Way::Range => self.sendfile(),
            Way::Sendfile | Way::Splice { only: false } => Way::ByHand,
            Way::Splice { only: true } | Way::ByHand => return false,
        };
        true
    }

    fn splice(&mut self, len: usize) -> Result<usize, Errno> {
        // The pipe is asked not to wait. The other side cannot be asked in this call, so it is
        // polled first.
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
        // The first error: a closed end reports itself there, and its SIGPIPE must be taken back.
        outcome.and(taken)
    }
}

impl Hand {
    /// Fills the block with the next bytes of the source, and returns how many there are. They stay
    /// in the source if the source can keep them.
    fn look(&mut self, from: &TimedFd<'_>, offset: Option<u64>, nowait: bool) -> Result<usize, Errno> {
        match (from.kind, offset) {
            (Kind::File, Some(offset)) => file::pread(from.fd, &mut self.block, offset),
            (Kind::File, _) => from.read(&mut self.block),
            _ if !self.keeps => from.read(&mut self.block),
            (Kind::Socket, _) => net::recv(from.fd, &mut self.block, Take::Nothing, from.may_block),
            (Kind::Pipe | Kind::Other, _) => self.peek.look(from.fd, &mut self.block, nowait),
        }
    }

    /// Takes the bytes that were written out of the source.
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

/// Fills `buf` from a source that is known to hold enough bytes. Signals do not stop it, because no
/// caller could account for half a step.
fn fill(buf: &mut [u8], mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        match read(&mut buf[done..]) {
            // Another reader of the same source took the bytes first; neither of us gets them now.
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(len) => done += len,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
