//! One end of a pipe: its side of the ring, how it waits for the other end, and how it closes.
//!
//! Both ends are this type, with the direction as a parameter, so the contract of waiting, closing
//! and failing is written once. An end waits until it owns as many bytes as it wants (filled ones
//! for the reader, free ones for the writer), or until no more will come because an end is closed.
//! `Reader` and `Writer` decide what that means.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::bell::Bell;
use super::ring::{self, FILLED, FREE, Window};
use crate::deadline::Deadline;
use crate::defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Wait;
use crate::spin::{Looks, Spin};
use crate::sync::{AtomicU32, Ordering, Reach, has_fence_heavy};

pub(super) struct Endpoint<const SIDE: bool> {
    window: Window<SIDE>,
    ends: Arc<Ends>,
    spin: Spin,
    /// Calls of a task since it last had to wait, at most [`TURN`].
    turn: u8,
    /// Whether dropping this end before the stream was ended is a failure. Writers only.
    must_finish: bool,
    /// The thread that made this end while it was panicking. A pipe that a destructor uses is not
    /// cut short by the panic that runs the destructor.
    made_in_panic: Option<ThreadId>,
}

/// After this many calls that need not wait, a task yields its thread once. tokio allows its tasks
/// the same number.
const TURN: u8 = 128;

/// The state that both ends share about each other. It changes only when an end sleeps, wakes or
/// closes, so it stays in the caches of two busy ends.
#[repr(align(128))]
struct Ends {
    /// `{ writer: 1, reader: 1 }`: which ends are closed. Bits are set and never cleared.
    closed: AtomicU32,
    reader: EndState,
    writer: EndState,
}

struct EndState {
    /// The bell on which this end waits.
    bell: Bell,
    /// The error that it closed with, if any. Set before it is closed.
    failure: OnceLock<Arc<io::Error>>,
}

/// The two ends of a new pipe.
pub(super) fn endpoints(capacity: usize, op: &'static str) -> Result<(Endpoint<FILLED>, Endpoint<FREE>)> {
    let (free, filled) = ring::ring(capacity, op)?;
    let has_fence_heavy = has_fence_heavy();
    let end = || EndState { bell: Bell::new(has_fence_heavy), failure: OnceLock::new() };
    let ends = Arc::new(Ends { closed: AtomicU32::new(0), reader: end(), writer: end() });
    let made_in_panic = thread::panicking().then(|| thread::current().id());
    let (reader_ends, writer_ends) = (Arc::clone(&ends), ends);
    Ok((Endpoint::new(filled, reader_ends, made_in_panic), Endpoint::new(free, writer_ends, made_in_panic)))
}

impl<const SIDE: bool> Endpoint<SIDE> {
    fn new(window: Window<SIDE>, ends: Arc<Ends>, made_in_panic: Option<ThreadId>) -> Endpoint<SIDE> {
        let spin = Spin::new(defaults::SPIN, Looks::Load);
        Endpoint { window, ends, spin, turn: 0, must_finish: false, made_in_panic }
    }

    /// Waits until this end owns `min` bytes, or no more will come. If it already owns `want`
    /// bytes, it does not even check the other end.
    #[inline]
    pub(super) fn wait_for(
        &mut self,
        min: usize,
        want: usize,
        deadline: Deadline,
        op: &'static str,
    ) -> Result<()> {
        if self.window.len() >= want || self.window.refresh() >= min {
            return Ok(());
        }
        self.wait_for_more(min, deadline, op)
    }

    #[inline(never)]
    fn wait_for_more(&mut self, min: usize, deadline: Deadline, op: &'static str) -> Result<()> {
        self.refuse_more_than_fits(min, op)?;
        let Endpoint { window, ends, spin, .. } = self;
        let wait = Wait { deadline, spin, reach: Reach::Process, tick: None, long: None, op };
        ends.end(SIDE).bell.wait(&wait, || need_not_wait(window, ends, min))
    }

    /// Whether [`Endpoint::wait_for`] would return at once.
    #[inline]
    pub(super) fn is_ready(&mut self, min: usize, want: usize) -> bool {
        self.window.len() >= want || need_not_wait(&mut self.window, &self.ends, min)
    }

    /// As [`Endpoint::wait_for`], for a task, which may give up at any time: no bytes move before
    /// the call is ready.
    ///
    /// A task that always finds something would keep its thread from all others, so now and then it
    /// returns pending and is woken at once.
    pub(super) fn poll_for(
        &mut self,
        min: usize,
        want: usize,
        cx: &Context<'_>,
        op: &'static str,
    ) -> Poll<Result<()>> {
        self.refuse_more_than_fits(min, op)?;
        let is_ready = self.is_ready(min, want);
        if is_ready && self.turn < TURN {
            self.turn += 1;
            return Poll::Ready(Ok(()));
        }
        self.turn = 0;
        if is_ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Endpoint { window, ends, .. } = self;
        ends.end(SIDE).bell.poll(cx, || need_not_wait(window, ends, min)).map(Ok)
    }

    fn refuse_more_than_fits(&self, min: usize, op: &'static str) -> Result<()> {
        if min > self.window.capacity() { Err(Error::new(ErrorKind::TooLong, op)) } else { Ok(()) }
    }

    /// The bytes that this end owns.
    pub(super) fn window(&mut self) -> &mut Window<SIDE> {
        &mut self.window
    }

    /// Passes the first `len` of this end's bytes to the other end.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        self.window.advance(len);
        self.ends.end(!SIDE).bell.ring();
    }

    /// Bytes in the pipe now.
    pub(super) fn buffered(&self) -> usize {
        self.window.buffered()
    }

    pub(super) fn capacity(&self) -> usize {
        self.window.capacity()
    }

    pub(super) fn set_spin(&mut self, limit: Duration) {
        self.spin = Spin::new(limit, Looks::Load);
    }

    pub(super) fn must_finish(&mut self) {
        self.must_finish = true;
    }

    /// Closes this end. Closing it again changes nothing.
    pub(super) fn close(&self, failure: Option<io::Error>) {
        if self.ends.is_closed(SIDE) {
            return;
        }
        if let Some(failure) = failure {
            // This end is closed only here, so nothing was set before.
            let _ = self.ends.end(SIDE).failure.set(Arc::new(failure));
        }
        // Release: pairs with the Acquire in `is_closed`. A thread that sees the end closed also
        // sees the failure and the last position.
        self.ends.closed.fetch_or(bit(SIDE), Ordering::Release);
        self.ends.end(!SIDE).bell.ring();
    }

    /// Whether an end is closed. This end can be, if a task has shut it down and still uses it.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.ends.is_over()
    }

    /// Whether the other end is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.ends.is_closed(!SIDE)
    }

    /// The error that the other end closed with, if any.
    pub(super) fn failure(&self) -> Option<io::Error> {
        if !self.is_closed() {
            return None;
        }
        self.ends.end(!SIDE).failure.get().map(tell)
    }

    /// The error of a call that found an end closed.
    pub(super) fn ended(&self, op: &'static str) -> Error {
        let failed = self.is_closed() && self.ends.end(!SIDE).failure.get().is_some();
        Error::new(if failed { ErrorKind::Failed } else { ErrorKind::Closed }, op)
    }

    /// The same for the traits of `std::io`, with the full error of the other end.
    pub(super) fn in_full(&self, error: Error) -> io::Error {
        let failure = if error.kind() == ErrorKind::Failed { self.failure() } else { None };
        failure.unwrap_or_else(|| error.into())
    }
}

/// Whether `min` bytes are there, or no more will come. In the second case the other end may have
/// moved since this one read the ring: a caller that finds too little reads it once more.
fn need_not_wait<const SIDE: bool>(window: &mut Window<SIDE>, ends: &Ends, min: usize) -> bool {
    window.refresh() >= min || ends.is_over()
}

impl Ends {
    fn end(&self, side: bool) -> &EndState {
        if side == FREE { &self.writer } else { &self.reader }
    }

    #[inline]
    fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `Endpoint::close`.
        self.closed.load(Ordering::Acquire) != 0
    }

    fn is_closed(&self, side: bool) -> bool {
        self.closed.load(Ordering::Acquire) & bit(side) != 0
    }
}

fn bit(side: bool) -> u32 {
    if side == FREE { 2 } else { 1 }
}

impl<const SIDE: bool> Drop for Endpoint<SIDE> {
    /// A stream that was cut short must not look complete.
    fn drop(&mut self) {
        let panics = || thread::panicking() && self.made_in_panic != Some(thread::current().id());
        let cut = match SIDE == FREE && panics() {
            true => Some("the writer's thread panicked before the end of the stream"),
            false if self.must_finish => Some("the writer was dropped before the end of the stream"),
            false => None,
        };
        self.close(cut.map(io::Error::other));
        self.ends.end(SIDE).bell.forget();
    }
}

impl<const SIDE: bool> fmt::Debug for Endpoint<SIDE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(if SIDE == FREE { "Writer" } else { "Reader" })
            .field("len", &self.buffered())
            .field("capacity", &self.capacity())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// Copies the failure, so that each call can return it.
fn tell(failure: &Arc<io::Error>) -> io::Error {
    match failure.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(failure.kind(), SharedFailure(Arc::clone(failure))),
    }
}

#[derive(Debug)]
struct SharedFailure(Arc<io::Error>);

impl fmt::Display for SharedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedFailure {
    /// The cause of the other end's error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.get_ref().map(|error| error as _)
    }
}
