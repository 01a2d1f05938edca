//! One end of a pipe, or of a socket that serves as one: the base of `atomic`.
//!
//! Invariant: the flags of an open file that others may share are never changed. To avoid waiting,
//! a call asks for that per call, or uses an open file description of our own.
//!
//! A connected stream socket of the Unix family serves as well as a pipe: Linux queues the bytes of
//! one send call as one piece, up to the size that [`PipeEnd::whole_write`] returns, and delivers
//! the pieces in order. Node and others give their children such sockets as stdin and stdout.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::peek::Peek;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Explanation, Result};
use crate::interrupt;
use crate::spin::Spin;
use crate::sync::Flag;
use crate::sys::known::KnownFile;
use crate::sys::net::{self, Take};
use crate::sys::timed_fd::Pauses;
use crate::sys::{self, Access, Blocking, Carrier, Errno, For};

/// One end of a pipe, FIFO or Unix stream socket: reads or writes with a deadline and without
/// SIGPIPE.
#[derive(Debug)]
pub(crate) struct PipeEnd {
    fd: Held,
    access: Access,
    non_blocking: NonBlocking,
    /// Whether SIGPIPE is blocked around the writes.
    guarded: bool,
    /// Whether a write has raised it.
    raised: bool,
    /// The open file of a FIFO whose lock tells others that it has a reader; clones share it.
    claim: Option<Arc<KnownFile>>,
    peek: Peek,
}

/// The descriptor of an end.
#[derive(Debug)]
pub(crate) enum Held {
    /// It belongs to the end: close-on-exec, and closed with it.
    Own(KnownFile),
    /// It belongs to the caller, and so do its flags.
    Lent(BorrowedFd<'static>),
}

impl Held {
    /// A descriptor that the caller has given away.
    pub(crate) fn own(fd: OwnedFd) -> Held {
        Held::Own(KnownFile::passed(fd))
    }

    /// The descriptor of a FIFO that was opened here by its path. The program may open the same FIFO.
    pub(crate) fn opened(fd: OwnedFd) -> sys::Result<Held> {
        KnownFile::nameless(fd).map(Held::Own)
    }

    /// Whether it is what it was, so far as the end answers for that.
    fn is_intact(&self) -> bool {
        match self {
            Held::Own(fd) => fd.is_intact(),
            Held::Lent(_) => true,
        }
    }

    fn keep_from_exec(&self) -> sys::Result<()> {
        match self {
            Held::Own(fd) => sys::set_cloexec(fd.as_fd()),
            Held::Lent(_) => Ok(()),
        }
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Held::Own(fd) => fd.as_fd(),
            Held::Lent(fd) => *fd,
        }
    }
}

/// An end whose writes share one SIGPIPE guard for as long as this lives. A panic ends the guard
/// too, before the end is dropped and writes its pending data.
struct Guarded<'o, O, E: Fn(&mut O) -> &mut PipeEnd> {
    owner: &'o mut O,
    end: E,
}

impl<'o, O, E: Fn(&mut O) -> &mut PipeEnd> Guarded<'o, O, E> {
    fn new(owner: &'o mut O, end: E) -> Guarded<'o, O, E> {
        let mut guarded = Guarded { owner, end };
        let end = guarded.end();
        (end.guarded, end.raised) = (true, false);
        guarded
    }

    fn end(&mut self) -> &mut PipeEnd {
        (self.end)(self.owner)
    }
}

impl<O, E: Fn(&mut O) -> &mut PipeEnd> Drop for Guarded<'_, O, E> {
    fn drop(&mut self) {
        self.end().guarded = false;
    }
}

/// How a non-blocking call is made.
#[derive(Debug)]
enum NonBlocking {
    /// `RWF_NOWAIT`: anonymous pipes on Linux 6.5 and later.
    PerCall,
    /// On an open file of our own, which was opened non-blocking: FIFOs, and older kernels.
    Reopened(KnownFile),
    /// The descriptor was opened here, non-blocking, as a FIFO by its path.
    Native,
    /// As `Native`, but the pipe is reopened whenever its last writer has left. This is an epoll
    /// descriptor around it, so that an event loop sees one descriptor for as long as the reader
    /// lives.
    Listening(KnownFile),
    /// `MSG_DONTWAIT`: sockets.
    Socket,
    /// A terminal, a file or a device, to which bytes are printed. Printing may wait.
    Print,
    /// The kernel granted neither (no /proc, or the pipe belongs to another user): poll first. If
    /// another reader or writer of the same pipe acts between poll and call, the call blocks beyond
    /// the deadline.
    PollFirst,
}

/// The effect of a read on the bytes behind those that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The kernel drops the rest of a packet. A read with space for the largest packet, which is
    /// PIPE_BUF bytes, loses none.
    Any,
    /// All of them stay in the pipe. That takes one more system call.
    Stays,
}

impl PipeEnd {
    /// Checks that a descriptor is a pipe opened the right way or a Unix stream socket, and marks
    /// it close-on-exec if it is the end's own.
    pub(crate) fn new(fd: Held, wanted: Access, op: &'static str) -> Result<PipeEnd> {
        let carrier = sys::carrier(fd.as_fd()).map_err(|errno| errno.at(op))?;
        let non_blocking = match carrier {
            Carrier::Pipe(access) if access == wanted || access == Access::Both => NonBlocking::PerCall,
            Carrier::Socket => NonBlocking::Socket,
            other => return Err(Error::with_explanation(ErrorKind::Invalid, op, refusal(other, wanted))),
        };
        fd.keep_from_exec().map_err(|errno| errno.at(op))?;
        Ok(PipeEnd::with(fd, wanted, non_blocking))
    }

    /// As [`PipeEnd::new`], for writing, or for printing if it is a terminal, a file or a device.
    pub(crate) fn new_or_print(fd: Held, op: &'static str) -> Result<PipeEnd> {
        match sys::carrier(fd.as_fd()).map_err(|errno| errno.at(op))? {
            Carrier::Terminal | Carrier::File | Carrier::Device => {
                fd.keep_from_exec().map_err(|errno| errno.at(op))?;
                Ok(PipeEnd::with(fd, Access::Write, NonBlocking::Print))
            }
            _ => PipeEnd::new(fd, Access::Write, op),
        }
    }

    /// Whether the output is text for people, not for a reader.
    pub(crate) fn prints(&self) -> bool {
        matches!(self.non_blocking, NonBlocking::Print)
    }

    /// Which end of a pipe the descriptor is.
    pub(crate) fn access(fd: BorrowedFd<'_>, op: &'static str) -> Result<Access> {
        let explanation = match sys::carrier(fd).map_err(|errno| errno.at(op))? {
            Carrier::Pipe(access @ (Access::Read | Access::Write)) => return Ok(access),
            Carrier::Pipe(Access::Both) | Carrier::Socket => Explanation::BothDirections,
            other => refusal(other, Access::Read),
        };
        Err(Error::with_explanation(ErrorKind::Invalid, op, explanation))
    }

    fn with(fd: Held, access: Access, non_blocking: NonBlocking) -> PipeEnd {
        PipeEnd { fd, access, non_blocking, guarded: false, raised: false, claim: None, peek: Peek::new() }
    }

    /// As [`PipeEnd::new`], for a FIFO that was just opened here for reading, non-blocking.
    pub(crate) fn fifo_reader(fd: OwnedFd, op: &'static str) -> Result<PipeEnd> {
        let fd = Held::opened(fd).map_err(|errno| errno.at(op))?;
        PipeEnd { non_blocking: NonBlocking::Native, ..PipeEnd::new(fd, Access::Read, op)? }.claimed(op)
    }

    /// As [`PipeEnd::fifo_reader`], for use with [`PipeEnd::forget_writers`].
    pub(crate) fn fifo_listener(fd: OwnedFd, op: &'static str) -> Result<PipeEnd> {
        let fd = Held::opened(fd).map_err(|errno| errno.at(op))?;
        let end = PipeEnd::new(fd, Access::Read, op)?.claimed(op)?;
        let epoll = around(end.fd.as_fd()).map_err(|errno| errno.at(op))?;
        Ok(PipeEnd { non_blocking: NonBlocking::Listening(epoll), ..end })
    }

    /// Tells others that this FIFO has a reader.
    fn claimed(self, op: &'static str) -> Result<PipeEnd> {
        let claim = sys::duplicate(self.fd.as_fd()).and_then(KnownFile::nameless);
        let claim = claim.map_err(|errno| errno.at(op))?;
        // On a file system without locks, other readers cannot be detected either.
        let _ = sys::memory::lock_shared(claim.as_fd(), 0);
        Ok(PipeEnd { claim: Some(Arc::new(claim)), ..self })
    }

    /// Whether another open file of the same FIFO has been claimed. The kernel releases a claim
    /// when its holder dies.
    pub(crate) fn has_other_reader(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| sys::memory::is_locked(claim.as_fd(), 0) == Ok(true))
    }

    pub(crate) fn is_listener(&self) -> bool {
        matches!(self.non_blocking, NonBlocking::Listening(_))
    }

    /// Another descriptor of the same pipe.
    pub(crate) fn try_clone(&self, op: &'static str) -> Result<PipeEnd> {
        let cloned = || {
            let fd = Held::own(sys::duplicate(self.fd.as_fd())?);
            let non_blocking = match self.non_blocking {
                NonBlocking::Listening(_) => NonBlocking::Listening(around(fd.as_fd())?),
                NonBlocking::Native => NonBlocking::Native,
                NonBlocking::Socket => NonBlocking::Socket,
                NonBlocking::Print => NonBlocking::Print,
                _ => NonBlocking::PerCall,
            };
            Ok(PipeEnd { claim: self.claim.clone(), ..PipeEnd::with(fd, self.access, non_blocking) })
        };
        cloned().map_err(|errno: Errno| errno.at(op))
    }

    /// Reopens a listener's pipe: the new description has no record of the writers that have left.
    /// Bytes in the pipe stay.
    pub(crate) fn forget_writers(&mut self) -> sys::Result<()> {
        if let NonBlocking::Listening(epoll) = &mut self.non_blocking {
            let reopened = Held::opened(sys::reopen_nonblocking(self.fd.as_fd(), Access::Read)?)?;
            if epoll.is_intact() {
                sys::epoll_add(epoll.as_fd(), reopened.as_fd())?;
                // Closing is not enough: a clone may hold the same description, and epoll watches
                // descriptions.
                sys::epoll_remove(epoll.as_fd(), self.fd.as_fd())?;
            } else {
                *epoll = around(reopened.as_fd())?;
            }
            self.fd = reopened;
        }
        Ok(())
    }

    /// In a forked child: makes new descriptions if they were made for this end alone, because the
    /// child shares those with the parent.
    pub(crate) fn after_fork(&mut self) -> sys::Result<()> {
        // The pipe that peeks copy into is shared with the parent as well.
        self.peek = Peek::new();
        if let NonBlocking::Listening(inherited) = &mut self.non_blocking {
            *inherited = around(self.fd.as_fd())?;
        }
        Ok(())
    }

    /// Whether the program has left the descriptor open, if it is the end's own.
    pub(crate) fn is_intact(&self) -> bool {
        self.fd.is_intact()
    }

    fn is_socket(&self) -> bool {
        matches!(self.non_blocking, NonBlocking::Socket)
    }

    fn is_fifo_reader(&self) -> bool {
        matches!(self.non_blocking, NonBlocking::Native | NonBlocking::Listening(_))
    }

    /// Reads what is available now; `None` if nothing is. 0 is end of file, which a FIFO reports
    /// only after its first writer has come.
    pub(crate) fn try_read(&mut self, buf: &mut [u8], behind: Behind) -> sys::Result<Option<usize>> {
        let mut read = |end: &mut PipeEnd| match end.read_now(buf, behind) {
            Ok(len) => Ok(Some(len)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        };
        match read(self)? {
            Some(0) if self.is_fifo_reader() => {
                // Once a writer has come and all have left, a second read is final. The first may
                // have been before they came.
                if sys::writers_have_left(self.fd.as_fd())? { read(self) } else { Ok(None) }
            }
            done => Ok(done),
        }
    }

    fn read_now(&mut self, buf: &mut [u8], behind: Behind) -> sys::Result<usize> {
        let is_socket = self.is_socket();
        if behind == Behind::Stays
            && !is_socket
            && let Some(len) = self.peek.take(self.fd.as_fd(), buf)?
        {
            return Ok(len);
        }
        self.nowait(|fd, nowait| match nowait {
            true if is_socket => read_socket(fd, buf, true),
            true => sys::read_nowait(fd, buf),
            false => sys::read(fd, buf),
        })
    }

    /// Copies what is available into `buf`, as much as fits, and takes nothing. Returns how many
    /// bytes it copied: 0 also at the end of file, and if the kernel cannot show anything.
    pub(crate) fn peek(&mut self, buf: &mut [u8]) -> usize {
        match self.is_socket() {
            true => net::recv(self.fd.as_fd(), buf, Take::Nothing, true),
            false => self.peek.look(self.fd.as_fd(), buf, true),
        }
        .unwrap_or(0)
    }

    /// Reads what is available, or waits for the first bytes. 0 is end of file.
    pub(crate) fn read(
        &mut self,
        buf: &mut [u8],
        behind: Behind,
        deadline: Deadline,
        spin: &Spin,
    ) -> sys::Result<usize> {
        if let Some(len) = self.try_read(buf, behind)? {
            return Ok(len);
        }
        // Both halves of the wait need the end and the buffer, one after the other.
        let place = RefCell::new((self, buf));
        spin.wait(
            None,
            deadline,
            || {
                let (end, buf) = &mut *place.borrow_mut();
                end.try_read(buf, behind)
            },
            || {
                let (end, buf) = &mut *place.borrow_mut();
                end.read_parked(buf, behind, deadline)
            },
        )
    }

    fn read_parked(&mut self, buf: &mut [u8], behind: Behind, deadline: Deadline) -> sys::Result<usize> {
        loop {
            // A read that may wait for ever waits in the kernel: one system call instead of try, poll and try.
            if interrupt::kernel_may_wait(deadline) && !self.is_fifo_reader() && behind == Behind::Any {
                let fd = self.fd.as_fd();
                let read = if self.is_socket() { read_socket(fd, buf, false) } else { sys::read(fd, buf) };
                match read {
                    // Another process that shares the open file has made it non-blocking.
                    Err(Errno::AGAIN) => {}
                    done => return done,
                }
            } else if let Some(len) = self.try_read(buf, behind)? {
                return Ok(len);
            }
            self.wait(For::Reading, deadline)?;
        }
    }

    /// Runs `write_much` with SIGPIPE blocked in this thread. For more than a handful of writes,
    /// that is cheaper than asking each of them not to raise it.
    pub(crate) fn guard<O, T>(
        owner: &mut O,
        end: impl Fn(&mut O) -> &mut PipeEnd,
        write_much: impl FnOnce(&mut O) -> T,
    ) -> T {
        let writes = || {
            let mut guarded = Guarded::new(owner, end);
            let done = write_much(guarded.owner);
            (done, guarded.end().raised)
        };
        sys::without_sigpipe(writes, |(_, raised)| *raised).0
    }

    /// Writes all of `buf`, at most PIPE_BUF bytes, in one piece; returns false if there is no
    /// space for it now.
    pub(crate) fn try_write(&mut self, buf: &[u8]) -> sys::Result<bool> {
        let (is_socket, guarded) = (self.is_socket(), self.guarded);
        let blocking = |nowait| if nowait { Blocking::Never } else { Blocking::Native };
        let done = self.nowait(|fd, nowait| match is_socket {
            true => net::send(fd, buf, nowait),
            false => write(fd, buf, blocking(nowait), guarded),
        });
        match self.noting_signal(done) {
            Ok(len) => whole(len, buf).map(|()| true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Writes all of `buf`, at most PIPE_BUF bytes, in one piece, as soon as there is space.
    pub(crate) fn write(&mut self, buf: &[u8], deadline: Deadline) -> sys::Result<()> {
        loop {
            if interrupt::kernel_may_wait(deadline) {
                let fd = self.fd.as_fd();
                let done = match self.is_socket() {
                    true => net::send(fd, buf, false),
                    false => write(fd, buf, Blocking::Native, self.guarded),
                };
                match self.noting_signal(done) {
                    Ok(len) => return whole(len, buf),
                    Err(Errno::AGAIN) => {}
                    Err(errno) => return Err(errno),
                }
            } else if self.try_write(buf)? {
                return Ok(());
            }
            self.wait(For::Writing, deadline)?;
        }
    }

    /// Writes `text` to a terminal, file or device, in as many pieces as it takes, and leaves the
    /// unwritten rest in `text`. A descriptor that blocks may wait beyond the deadline.
    pub(crate) fn print(&self, text: &mut &[u8], deadline: Deadline) -> sys::Result<()> {
        let mut pauses = Pauses::new();
        while !text.is_empty() {
            match sys::write(self.fd.as_fd(), text, Blocking::Native) {
                Ok(0) => return Err(Errno::IO),
                Ok(len) => (*text, pauses) = (&text[len..], Pauses::new()),
                Err(Errno::AGAIN) => {
                    self.wait(For::Writing, deadline)?;
                    pauses.pause(deadline)?;
                }
                Err(Errno::INTR) if interrupt::goes_on() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Under the guard, a write to a pipe that fails with EPIPE has raised a signal that must be
    /// taken back.
    fn noting_signal<T>(&mut self, done: sys::Result<T>) -> sys::Result<T> {
        self.raised |= self.guarded && !self.is_socket() && matches!(done, Err(Errno::PIPE));
        done
    }

    /// Waits until a call may succeed; [`Errno::TIMEDOUT`] once the deadline has passed.
    fn wait(&self, what: For, deadline: Deadline) -> sys::Result<()> {
        if sys::wait(&[self.as_fd()], what, deadline)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
    }

    /// Makes a call that must not wait, in the best way that kernel and descriptor allow, and
    /// remembers that way.
    fn nowait(
        &mut self,
        mut call: impl FnMut(BorrowedFd<'_>, bool) -> sys::Result<usize>,
    ) -> sys::Result<usize> {
        if let NonBlocking::PerCall = self.non_blocking {
            match call(self.fd.as_fd(), true) {
                Err(Errno::OPNOTSUPP) => self.non_blocking = self.without_per_call()?,
                done => return done,
            }
        }
        if let NonBlocking::Reopened(own) = &self.non_blocking
            && !own.is_intact()
        {
            self.non_blocking = self.without_per_call()?;
        }
        match &self.non_blocking {
            NonBlocking::Reopened(own) => call(own.as_fd(), false),
            NonBlocking::Native | NonBlocking::Listening(_) => call(self.fd.as_fd(), false),
            NonBlocking::Socket => call(self.fd.as_fd(), true),
            NonBlocking::PerCall | NonBlocking::PollFirst | NonBlocking::Print => {
                let what = if self.access == Access::Write { For::Writing } else { For::Reading };
                if sys::wait(&[self.fd.as_fd()], what, Deadline::now())? {
                    call(self.fd.as_fd(), false)
                } else {
                    Err(Errno::AGAIN)
                }
            }
        }
    }

    fn without_per_call(&self) -> sys::Result<NonBlocking> {
        match sys::reopen_nonblocking(self.fd.as_fd(), self.access) {
            Ok(own) => KnownFile::nameless(own).map(NonBlocking::Reopened),
            // ENXIO from opening a pipe for writing means that it has no reader.
            Err(Errno::NXIO) => Err(Errno::PIPE),
            // Descriptors have run out for now: this call polls first, and a later one tries again.
            Err(Errno::MFILE | Errno::NFILE) => Ok(NonBlocking::PerCall),
            Err(_) => Ok(NonBlocking::PollFirst),
        }
    }

    /// The largest write that stays in one piece, in bytes. The writer at the other end of a socket
    /// may have a smaller limit, never a larger one.
    pub(crate) fn whole_write(&self, op: &'static str) -> Result<usize> {
        let pipe_buf = sys::pipe_buf(self.fd.as_fd());
        if !self.is_socket() || self.access == Access::Read {
            return Ok(pipe_buf);
        }
        let queued = net::whole_send(self.fd.as_fd()).map_err(|errno| errno.at(op))?;
        Ok(pipe_buf.min(queued))
    }

    pub(crate) fn capacity(&self) -> Result<usize> {
        const OP: &str = "get pipe capacity";
        self.refuse_no_pipe(OP)?;
        sys::pipe_capacity(self.fd.as_fd()).map_err(|errno| errno.at(OP))
    }

    pub(crate) fn set_capacity(&self, bytes: usize) -> Result<usize> {
        const OP: &str = "set pipe capacity";
        self.refuse_no_pipe(OP)?;
        sys::set_pipe_capacity(self.fd.as_fd(), bytes).map_err(|errno| errno.at(OP))
    }

    fn refuse_no_pipe(&self, op: &'static str) -> Result<()> {
        if self.is_socket() || self.prints() { Err(Error::new(ErrorKind::Unsupported, op)) } else { Ok(()) }
    }

    pub(crate) fn set_capacity_or_max(&self, bytes: usize) -> Result<usize> {
        self.set_capacity(bytes.min(max_capacity()?))
    }
}

impl AsFd for PipeEnd {
    /// The descriptor to poll: the pipe itself, except for a listener.
    fn as_fd(&self) -> BorrowedFd<'_> {
        if let NonBlocking::Listening(epoll) = &self.non_blocking { epoll.as_fd() } else { self.fd.as_fd() }
    }
}

/// An epoll instance that is readable whenever `fd` is.
fn around(fd: BorrowedFd<'_>) -> sys::Result<KnownFile> {
    let epoll = sys::epoll().and_then(KnownFile::nameless)?;
    sys::epoll_add(epoll.as_fd(), fd)?;
    Ok(epoll)
}

/// The largest capacity in bytes that an unprivileged process may give a pipe
/// (`/proc/sys/fs/pipe-max-size`).
pub(crate) fn max_capacity() -> Result<usize> {
    sys::max_pipe_capacity().map_err(|errno| errno.at("get largest pipe capacity"))
}

/// Why a descriptor of that kind cannot be the end of a pipe.
fn refusal(carrier: Carrier, wanted: Access) -> Explanation {
    match (carrier, wanted) {
        (Carrier::Pipe(_) | Carrier::Socket, _) => Explanation::OtherDirection,
        (Carrier::OtherSocket, _) => Explanation::OtherSocket,
        (Carrier::Terminal, Access::Write) => Explanation::WriteTerminal,
        (Carrier::Terminal, _) => Explanation::ReadTerminal,
        (Carrier::File, Access::Write) => Explanation::WriteFile,
        (Carrier::File, _) => Explanation::ReadFile,
        (Carrier::Device, Access::Write) => Explanation::WriteDevice,
        (Carrier::Device, _) => Explanation::ReadDevice,
    }
}

/// Set once the kernel has refused to write without SIGPIPE something that it then wrote with it.
pub(crate) static NOSIGNAL_REFUSED: Flag = Flag::new();

/// Reads from a socket. The other side may leave before it has read what was sent to it. The kernel
/// then reports a reset, once, after all bytes from there. It counts as the end.
fn read_socket(fd: BorrowedFd<'_>, buf: &mut [u8], nowait: bool) -> sys::Result<usize> {
    match net::recv(fd, buf, Take::Out, nowait) {
        Err(Errno::CONNRESET) => Ok(0),
        done => done,
    }
}

/// Writes without ever raising SIGPIPE, even if the program has changed the handling of that
/// signal.
fn write(fd: BorrowedFd<'_>, buf: &[u8], blocking: Blocking, guarded: bool) -> sys::Result<usize> {
    if guarded {
        return sys::write(fd, buf, blocking);
    }
    if !NOSIGNAL_REFUSED.is_set() {
        match sys::write_nosignal(fd, buf, blocking) {
            Err(Errno::OPNOTSUPP) => {}
            done => return done,
        }
    }
    // An older kernel, or a pipe that cannot be asked not to wait: only repeating the write without
    // the flag tells which.
    let done = sys::without_sigpipe(|| sys::write(fd, buf, blocking), sys::met_closed_end);
    if done != Err(Errno::OPNOTSUPP) {
        NOSIGNAL_REFUSED.set(true);
    }
    done
}

/// POSIX promises that a write of at most PIPE_BUF bytes is one piece. On a kernel that splits it,
/// no pipe is reliable.
fn whole(len: usize, buf: &[u8]) -> sys::Result<()> {
    if len == buf.len() { Ok(()) } else { Err(Errno::CUT) }
}
