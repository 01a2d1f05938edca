//! One end of something, as Python holds it: any thread may call it, one at a time, and any thread
//! may close it.
//!
//! A call takes the end out of its handle until the core asks whether to go on, and puts it back.
//! Then Python's signal handlers run, and they, or another thread, may use the end before the call
//! takes its turn again. A call that cannot be made again keeps the end until it is done. No lock
//! here is held while a thread waits. Only a thread that is attached to the interpreter takes one,
//! and Python forks while no other thread is attached, so no child inherits a held lock.

use std::collections::VecDeque;
use std::ffi::CString;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread, ThreadId};

use pipework::defaults::SLICE;
use pipework::{Deadline, ErrorKind};
use pyo3::exceptions::{PyResourceWarning, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{OrRaise, Raise, invalid, of_kind};
use crate::locked::Locked;
use crate::wait::{Used, report_raised, wait};

pub(crate) struct Handle<T: Send> {
    /// Its name in messages: "reader".
    noun: &'static str,
    in_child: InChild<T>,
    state: Locked<State<T>>,
    /// Set once, under the lock of the state. Calls that keep the end look at it while they wait.
    closed: Arc<AtomicBool>,
}

struct State<T> {
    /// None while a call has it, or once it is closed.
    end: Option<Box<T>>,
    holder: Option<ThreadId>,
    /// Whether the call that has the end does not wait.
    is_brief: bool,
    /// The threads that want it next, in order. No other takes it meanwhile, or a call that is made
    /// again and again would have it for ever.
    waiting: VecDeque<Thread>,
    /// `forks()` in the process of these threads. A forked child inherits the notes, but not the
    /// threads.
    forks: u32,
    /// Applied to the end by the call that has it, when the call leaves and the handle was closed
    /// meanwhile.
    parting: Option<Parting<T>>,
}

type Parting<T> = Box<dyn FnOnce(Python<'_>, Box<T>) + Send>;

/// What a forked child can do with a handle that it has inherited.
pub(crate) enum InChild<T> {
    /// It uses the end, unless a thread of the parent had it.
    Used,
    /// As `Used`; and if a thread of the parent had the end, the child makes another from what that
    /// stands on, to use it.
    Renewed(Renewal<T>),
    /// As `Renewed`, but only to close it.
    Closed(Renewal<T>),
    /// It can only be closed: the other end is in the memory of the parent.
    Copied,
}

/// Makes an end that takes the place of the lost one. After the outer error the lost one is as it
/// was, after the inner one nothing is left to make an end from.
pub(crate) type Renewal<T> = Box<dyn Fn(Python<'_>) -> PyResult<PyResult<T>> + Send + Sync>;

impl<T: Send> Handle<T> {
    pub(crate) fn new(noun: &'static str, end: T, in_child: InChild<T>) -> Handle<T> {
        let end = Some(Box::new(end));
        let (holder, waiting) = (None, VecDeque::new());
        let state = State { end, holder, is_brief: false, waiting, forks: forks(), parting: None };
        Handle { noun, in_child, state: Locked::new(state), closed: Arc::default() }
    }

    /// Makes `call` with the end, again after each interruption, until it ends in something else. It
    /// gives the interpreter lock away by itself where it waits, and loses nothing when it ends
    /// early.
    pub(crate) fn wait<O, E: Raise>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        op: &'static str,
        mut call: impl FnMut(&mut T) -> Result<O, E>,
    ) -> PyResult<O> {
        wait(py, &Used::Turn, || Ok(call(&mut *self.turn(py, deadline, op, false)?)))?.or_raise(py)
    }

    /// As [`Handle::wait`], for a call that loses something when it ends early: it keeps the end, and
    /// only an exception, or a `close`, interrupts it.
    pub(crate) fn hold<O, E: Raise>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        op: &'static str,
        mut call: impl FnMut(&mut T) -> Result<O, E>,
    ) -> PyResult<O> {
        let used = Used::Held(Arc::clone(&self.closed));
        wait(py, &used, || Ok(call(&mut *self.turn(py, deadline, op, false)?)))?.or_raise(py)
    }

    /// Makes a call that does not wait. If another thread has the end, this one waits for its
    /// turn.
    pub(crate) fn with<O>(
        &self,
        py: Python<'_>,
        op: &'static str,
        call: impl FnOnce(&mut T) -> O,
    ) -> PyResult<O> {
        let turn = self.brief_turn(py, op)?;
        Ok(call(&mut *turn.map_or_else(|| self.turn(py, Deadline::NEVER, op, true), Ok)?))
    }

    /// As [`Handle::with`]; None, with nothing done, while another thread is in a call that waits.
    pub(crate) fn try_with<O>(
        &self,
        py: Python<'_>,
        op: &'static str,
        call: impl FnOnce(&mut T) -> O,
    ) -> PyResult<Option<O>> {
        Ok(self.brief_turn(py, op)?.map(|mut turn| call(&mut turn)))
    }

    /// Closes the handle: `parting` gets the end, at once, or from a call that has it as soon as
    /// that leaves it, within 250 ms. A second time does nothing.
    pub(crate) fn close(&self, py: Python<'_>, parting: impl FnOnce(Python<'_>, Box<T>) + Send + 'static) {
        let parting: Parting<T> = Box::new(parting);
        if let InChild::Renewed(renew) | InChild::Closed(renew) = &self.in_child {
            // If that fails, nothing of it can be closed here.
            self.renew(py, renew).unwrap_or_else(|error| error.write_unraisable(py, None));
        }
        let left = self.state.with(|state| {
            if self.closed.swap(true, Ordering::Relaxed) {
                return (Some(parting), None);
            }
            match state.end.take() {
                None => (state.parting.replace(parting), None),
                end => {
                    state.wake_all();
                    (Some(parting), end)
                }
            }
        });
        // Unused values are dropped here, out of the lock: they may contain an exception.
        if let (Some(parting), Some(end)) = left {
            parting(py, end);
        }
    }

    /// Whether this thread has the end: then a signal handler asks, in the middle of a call.
    pub(crate) fn is_under_way_here(&self) -> bool {
        let this_thread = thread::current().id();
        self.state.with(|state| state.holder == Some(this_thread))
    }

    /// The result of `tell` for the end, behind its `noun`. It waits for no call that has the end.
    pub(crate) fn describe(&self, noun: &str, tell: impl FnOnce(&T) -> String + Send) -> String {
        let told = self.state.with(|state| state.end.as_ref().map(|end| tell(end)));
        let without = if self.is_closed() { ", closed" } else { ", in use" };
        format!("{noun}{}", told.as_deref().unwrap_or(without))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// For a call that does not wait; None while a call that waits has the end, or is next. Without
    /// the interpreter lock, another thread may be reading a property meanwhile.
    fn brief_turn(&self, py: Python<'_>, op: &'static str) -> PyResult<Option<Turn<'_, T>>> {
        loop {
            if let Some(turn) = self.try_turn(py, op, true)? {
                return Ok(Some(turn));
            }
            let is_free_soon = |state: &mut State<T>| state.is_brief || state.end.is_some();
            if !self.state.with(|state| is_free_soon(state) && state.waiting.is_empty()) {
                return Ok(None);
            }
            py.detach(thread::yield_now);
        }
    }

    fn turn(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        op: &'static str,
        is_brief: bool,
    ) -> PyResult<Turn<'_, T>> {
        if let Some(turn) = self.try_turn(py, op, is_brief)? {
            return Ok(turn);
        }
        let _place = Place::behind_the_others(self);
        loop {
            if let Some(turn) = self.try_turn(py, op, is_brief)? {
                return Ok(turn);
            }
            if deadline.has_passed() {
                return Err(of_kind(py, ErrorKind::TimedOut, op, "another thread is using it"));
            }
            // The core does not wait here, so this loop itself must ask.
            let time = deadline.remaining().map_or(SLICE, |left| left.min(SLICE));
            py.detach(|| thread::park_timeout(time));
            py.check_signals()?;
        }
    }

    /// The end, if no call has it and no other call is next.
    fn try_turn(&self, py: Python<'_>, op: &'static str, is_brief: bool) -> PyResult<Option<Turn<'_, T>>> {
        let noun = self.noun;
        match self.state.with(|state| self.take_end(state, is_brief)) {
            Ok(end) => Ok(end.map(|end| Turn { handle: self, end: Some(end) })),
            Err(Refused::Closed) => Err(invalid(py, op, &format!("this {noun} is closed"))),
            Err(Refused::Forked) => {
                if let InChild::Renewed(renew) = &self.in_child {
                    self.renew(py, renew)?;
                    // Another thread may have the new end; then this one waits for its turn.
                    return self.try_turn(py, op, is_brief);
                }
                let text = format!(
                    "another thread was using this {noun} when the process was forked: make another in the child"
                );
                Err(of_kind(py, ErrorKind::Stale, op, &text))
            }
            Err(Refused::Copied) => {
                let text = format!(
                    "this {noun} is a copy that came with a fork: its other end is in the process that made it"
                );
                Err(of_kind(py, ErrorKind::Stale, op, &text))
            }
            Err(Refused::UnderWay) => {
                Err(PyRuntimeError::new_err(format!("{op}: a call of this {noun} is under way")))
            }
        }
    }

    /// Makes the end again that a thread of the parent had at the fork.
    fn renew(&self, py: Python<'_>, renew: &Renewal<T>) -> PyResult<()> {
        let now = forks();
        let this_thread = thread::current().id();
        let lost = self.state.with(|state| {
            // A signal handler that forks returns into the call that it has interrupted: in the child,
            // too, that has the end.
            let is_lost = state.forks != now
                && state.end.is_none()
                && state.holder != Some(this_thread)
                && !self.is_closed();
            is_lost.then(|| {
                state.waiting.clear();
                // Other threads of the child wait for their turn meanwhile.
                (state.holder, state.is_brief) = (Some(this_thread), true);
                std::mem::replace(&mut state.forks, now)
            })
        });
        let Some(before) = lost else { return Ok(()) };
        let (error, is_over) = match renew(py) {
            Ok(Ok(end)) => {
                drop(Turn { handle: self, end: Some(Box::new(end)) });
                return Ok(());
            }
            Ok(Err(error)) => (error, true),
            Err(error) => (error, false),
        };
        self.state.with(|state| {
            (state.holder, state.is_brief, state.forks) = (None, false, before);
            self.closed.fetch_or(is_over, Ordering::Relaxed);
            state.wake_all();
        });
        Err(error)
    }

    fn take_end(&self, state: &mut State<T>, is_brief: bool) -> Result<Option<Box<T>>, Refused> {
        if self.is_closed() {
            return Err(Refused::Closed);
        }
        let this_thread = thread::current().id();
        if state.holder == Some(this_thread) {
            return Err(Refused::UnderWay);
        }
        let now = forks();
        if state.forks != now {
            if matches!(self.in_child, InChild::Copied) {
                return Err(Refused::Copied);
            }
            if state.end.is_none() {
                return Err(Refused::Forked);
            }
            state.waiting.clear();
            state.forks = now;
        }
        if state.waiting.front().is_some_and(|next| next.id() != this_thread) {
            return Ok(None);
        }
        let end = state.end.take();
        if end.is_some() {
            (state.holder, state.is_brief) = (Some(this_thread), is_brief);
        }
        Ok(end)
    }
}

/// Why a call gets no turn.
enum Refused {
    Closed,
    Forked,
    Copied,
    UnderWay,
}

/// A place in the queue of waiting calls.
struct Place<'a, T: Send> {
    handle: &'a Handle<T>,
}

impl<T: Send> Place<'_, T> {
    fn behind_the_others(handle: &Handle<T>) -> Place<'_, T> {
        let this_thread = thread::current();
        handle.state.with(|state| state.waiting.push_back(this_thread));
        Place { handle }
    }
}

impl<T: Send> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let this_thread = thread::current().id();
        self.handle.state.with(|state| {
            if let Some(index) = state.waiting.iter().position(|thread| thread.id() == this_thread) {
                state.waiting.remove(index);
            }
            // A call that leaves without the end may have been woken for it, so pass the wake-up
            // on.
            if state.end.is_some() {
                state.wake_next();
            }
        });
    }
}

impl<T> State<T> {
    fn wake_next(&self) {
        if let Some(next) = self.waiting.front() {
            next.unpark();
        }
    }

    /// Once the handle is closed, each of them fails.
    fn wake_all(&self) {
        self.waiting.iter().for_each(Thread::unpark);
    }
}

/// The end, for one call.
struct Turn<'a, T: Send> {
    handle: &'a Handle<T>,
    end: Option<Box<T>>,
}

impl<T: Send> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.end.as_ref().expect("a turn has its end until it is dropped")
    }
}

impl<T: Send> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.end.as_mut().expect("a turn has its end until it is dropped")
    }
}

impl<T: Send> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let end = self.end.take().expect("a turn has its end until it is dropped");
        let left = self.handle.state.with(|state| {
            (state.holder, state.is_brief) = (None, false);
            let Some(parting) = state.parting.take() else {
                let none = state.end.replace(end);
                state.wake_next();
                return (None, none);
            };
            state.wake_all();
            (Some(parting), Some(end))
        });
        if let (Some(parting), Some(end)) = left {
            Python::attach(|py| parting(py, end));
        }
    }
}

impl<T: Send> Drop for Handle<T> {
    fn drop(&mut self) {
        // No call is under way, for it would hold the handle.
        let end = self.state.with(|state| state.end.take());
        drop_slowly(end);
    }
}

/// Does `work` in a thread that is attached to the interpreter, if there is one. Python forks while no
/// other thread is attached, so a lock that is taken in here is free in every child.
pub(crate) fn attached<R>(work: impl FnOnce() -> R) -> R {
    let mut work = Some(work);
    let mut once = || work.take().map(|work| work());
    let done = Python::try_attach(|_| once()).unwrap_or_else(&mut once);
    done.expect("it is done once")
}

/// As [`drop_detached`], if the caller does not know whether the interpreter still exists. Without
/// one there is no lock to give away: the closure is dropped, and the end with it.
pub(crate) fn drop_slowly<T: Send>(end: T) {
    Python::try_attach(|py| drop_detached(py, end));
}

/// Drops a value whose drop may wait or take long.
pub(crate) fn drop_detached<T: Send>(py: Python<'_>, end: T) {
    py.detach(|| drop(end));
    report_raised(py);
}

/// Says that something was dropped that had not been closed, as Python's own files do.
pub(crate) fn warn_unclosed(what: impl FnOnce() -> String) {
    // The interpreter may have gone already; then do nothing.
    Python::try_attach(|py| {
        // It may be dropped because of an exception, which is not to be lost.
        let raised = PyErr::take(py);
        let warned = CString::new(format!("unclosed {}", what())).map(|text| {
            PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1)
                .unwrap_or_else(|error| error.write_unraisable(py, None));
        });
        // A path has no zero byte.
        debug_assert!(warned.is_ok());
        raised.inspect(|raised| raised.clone_ref(py).restore(py));
    });
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How often this process, and those it comes from, were forked by Python.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Lets Python say when it has forked.
pub(crate) fn watch_forks(py: Python<'_>) -> PyResult<()> {
    #[pyfunction]
    fn after_fork() {
        // A child has one thread only, so this pairs with no other access.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks)).map(drop)
}
