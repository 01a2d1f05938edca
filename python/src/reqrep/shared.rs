//! One end of a segment, as Python holds it: threads use it at the same time, until one of them
//! closes it.
//!
//! Each call works on a clone of its own, so that nothing is locked while a thread waits, and no
//! child can inherit a lock.

use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use pipework::Deadline;
use pipework::reqrep::KeptDescriptor;
use pyo3::prelude::*;

use crate::error::{OrRaise, Raise, invalid};
use crate::handle::{attached, drop_slowly, forks};
use crate::locked::Locked;
use crate::task::SecondLooks;
use crate::wait::{Used, wait};

pub(super) struct Shared<T> {
    /// Its name in messages: "server".
    noun: &'static str,
    state: Arc<Locked<State<T>>>,
    /// Set once, when the end is taken out of the state. Calls look at it while they wait.
    closed: Arc<AtomicBool>,
    second_looks: Arc<SecondLooks>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        let (state, closed) = (Arc::clone(&self.state), Arc::clone(&self.closed));
        Shared { noun: self.noun, state, closed, second_looks: Arc::clone(&self.second_looks) }
    }
}

struct State<T> {
    /// None once it is closed.
    end: Option<T>,
    /// Tasks to wake at its end.
    tasks: HashMap<u64, Waker>,
    /// The doorbell that `fileno` returns, and `forks()` when it was asked for: a forked child has
    /// its own. Another one takes its place if the program has closed it.
    bell: Option<(u32, KeptDescriptor)>,
}

impl<T: Clone + Send> Shared<T> {
    pub(super) fn new(noun: &'static str, end: T) -> Shared<T> {
        Shared {
            noun,
            state: Arc::new(Locked::new(State { end: Some(end), tasks: HashMap::new(), bell: None })),
            closed: Arc::default(),
            second_looks: Arc::default(),
        }
    }

    /// Those of its tasks.
    pub(super) fn second_looks(&self) -> &Arc<SecondLooks> {
        &self.second_looks
    }

    /// The end, for one call.
    pub(super) fn get(&self, py: Python<'_>, op: &str) -> PyResult<T> {
        let end = self.state.with(|state| state.end.clone());
        end.ok_or_else(|| closed(py, self.noun, op))
    }

    /// The end that a call uses: once the end is closed, the call stops waiting.
    pub(super) fn used(&self) -> Used {
        Used::Held(Arc::clone(&self.closed))
    }

    /// Makes `call` with the end, until it ends, or the end is closed. It gives the interpreter lock
    /// away by itself.
    pub(super) fn wait<O, E: Raise>(
        &self,
        py: Python<'_>,
        deadline: Deadline,
        op: &str,
        mut call: impl FnMut(&T, Deadline) -> Result<O, E>,
    ) -> PyResult<O> {
        wait(py, &self.used(), || Ok(call(&self.get(py, op)?, deadline)))?.or_raise(py)
    }

    /// The output of `future`, or None as soon as the end is closed.
    pub(super) fn until_closed<O, F: Future<Output = O> + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<O>> + Send + use<T, O, F>
    where
        T: Send,
    {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let place = Place { state: Arc::clone(&self.state), number: LAST.fetch_add(1, Ordering::Relaxed) };
        async move {
            let mut future = pin!(future);
            poll_fn(|cx| {
                if let Poll::Ready(done) = future.as_mut().poll(cx) {
                    return Poll::Ready(Some(done));
                }
                let waker = cx.waker().clone();
                // A poll that copies much is detached.
                let (is_open, _before) = attached(|| {
                    place.state.with(|state| {
                        let is_open = state.end.is_some();
                        (is_open, is_open.then(|| state.tasks.insert(place.number, waker)))
                    })
                });
                if is_open { Poll::Pending } else { Poll::Ready(None) }
            })
            .await
        }
    }

    /// The number of a descriptor that `doorbell` makes, the same each time, until this is closed.
    pub(super) fn fileno(
        &self,
        py: Python<'_>,
        op: &str,
        doorbell: impl FnOnce(&T) -> pipework::Result<OwnedFd>,
    ) -> PyResult<i32> {
        let end = self.get(py, op)?;
        let number = |state: &State<T>| {
            let is_usable =
                |(forks, bell): &&(u32, KeptDescriptor)| *forks == self::forks() && bell.is_intact();
            state.bell.as_ref().filter(is_usable).map(|(_, bell)| bell.number())
        };
        if let Some(number) = self.state.with(|state| number(state)) {
            return Ok(number);
        }
        let bell = doorbell(&end).and_then(KeptDescriptor::new).or_raise(py)?;
        let (told, unused) = self.state.with(|state| match (number(state), &state.end) {
            // Another thread was first, or has closed it meanwhile.
            (told @ Some(_), _) => (told, Some((0, bell))),
            (None, None) => (None, Some((0, bell))),
            (None, Some(_)) => (Some(bell.number()), state.bell.replace((forks(), bell))),
        });
        drop(unused);
        told.ok_or_else(|| closed(py, self.noun, op))
    }

    /// Takes the end out permanently. Running calls go on with their own.
    pub(super) fn close(&self) {
        let (end, bell, tasks) =
            self.state.with(|state| (state.end.take(), state.bell.take(), std::mem::take(&mut state.tasks)));
        self.closed.store(true, Ordering::Relaxed);
        // The last one that leaves a segment unmaps it, which may take its time.
        drop_slowly((end, bell));
        tasks.into_values().for_each(Waker::wake);
    }

    /// `place`, and whether it is closed.
    pub(super) fn describe(&self, place: String) -> String {
        if self.is_closed() { place + ", closed" } else { place }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.with(|state| state.end.is_none())
    }
}

/// The exception for an end that is closed.
pub(super) fn closed(py: Python<'_>, noun: &str, op: &str) -> PyErr {
    invalid(py, op, &format!("this {noun} is closed"))
}

/// The slot of a task's waker.
struct Place<T: Send> {
    state: Arc<Locked<State<T>>>,
    number: u64,
}

impl<T: Send> Drop for Place<T> {
    fn drop(&mut self) {
        drop(attached(|| self.state.with(|state| state.tasks.remove(&self.number))));
    }
}
