//! Futures of the core, as coroutines await them: `pipework/_asyncio_tasks.py` polls a `Task`, and
//! its event loop watches an `Inbox`.
//!
//! Waking a task only writes its number down and rings: that needs no interpreter. A loop is
//! notified once for any number of tasks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use pipework::reqrep::{KeptDescriptor, only_looks};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::buffer::unless_small;
use crate::error::OrRaise;
use crate::fd::take_over;
use crate::handle::forks;
use crate::imports::Import;
use crate::locked::Locked;
use crate::wait::Seconds;

const MODULE: &str = "pipework._asyncio_tasks";

type Polled = dyn FnMut(Python<'_>, &Waker) -> Poll<PyResult<Py<PyAny>>> + Send;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    only_looks();
    module.add_class::<Task>()?;
    module.add_class::<Inbox>()?;
    module.add_class::<Descriptor>()
}

/// A future of the core.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Task {
    /// Empty once it is over or dropped.
    polled: Locked<Option<Box<Polled>>>,
    second_looks: Arc<SecondLooks>,
    has_looked: AtomicBool,
}

/// Decides which waits of a handle have a second look, at the next turn of their loop, before they
/// register to be woken. That costs little, and is enough where the other side answers while other
/// tasks run. Each handle decides for itself: a gateway waits for its clients and its servers in turn, and only
/// one of the two may be slow. After a second look that finds nothing, the next waits register at once: 1, then 3, 7
/// and so on.
#[derive(Default)]
pub(crate) struct SecondLooks {
    left_out: AtomicU32,
    to_leave_out: AtomicU32,
}

/// At most this many waits in a row have no second look.
const MOST_LEFT_OUT: u32 = 63;

impl SecondLooks {
    fn is_due(&self) -> bool {
        let left = self.to_leave_out.load(Ordering::Relaxed);
        if left > 0 {
            self.to_leave_out.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    fn ended(&self, has_found: bool) {
        let before = self.left_out.load(Ordering::Relaxed);
        let next = if has_found { 0 } else { (2 * before + 1).min(MOST_LEFT_OUT) };
        self.left_out.store(next, Ordering::Relaxed);
        self.to_leave_out.store(next, Ordering::Relaxed);
    }
}

impl Task {
    /// `give` turns the future's output into Python's result, which is not None. `len` returns how
    /// many bytes the next poll would copy.
    pub(crate) fn new<T: Send>(
        second_looks: &Arc<SecondLooks>,
        len: impl Fn() -> usize + Send + 'static,
        future: impl Future<Output = T> + Send + 'static,
        give: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Task {
        let mut future = Box::pin(future);
        let polled: Box<Polled> = Box::new(move |py, waker| {
            let poll = || future.as_mut().poll(&mut Context::from_waker(waker));
            unless_small(py, len(), poll).map(|done| give(py, done))
        });
        let (polled, second_looks) = (Locked::new(Some(polled)), Arc::clone(second_looks));
        Task { polled, second_looks, has_looked: AtomicBool::new(false) }
    }

    /// The coroutine, of the operation that is called `op` when the time is over.
    pub(crate) fn start<'py>(
        self,
        py: Python<'py>,
        op: &str,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static FINISH: Import = Import::new(MODULE, "finish");
        FINISH.call(py, (self, op, timeout.map(Seconds::to_f64)))
    }
}

#[pymethods]
impl Task {
    /// Whether to look twice, one turn of the loop apart, before an inbox is given to `poll`.
    fn has_second_look(&self) -> bool {
        self.second_looks.is_due()
    }

    /// Its output, once; None until it has one. Then `inbox` gets `number` when polling again may
    /// help. Without an inbox, this only looks.
    #[pyo3(signature = (inbox=None, number=0))]
    fn poll(&self, py: Python<'_>, inbox: Option<&Inbox>, number: u64) -> PyResult<Option<Py<PyAny>>> {
        // Out of the lock while it is polled, which makes Python objects.
        let Some(mut polled) = self.polled.take() else {
            return Err(PyRuntimeError::new_err("this task is over"));
        };
        let waker = inbox.map(|inbox| inbox.waker(number));
        let done = polled(py, waker.as_ref().unwrap_or_else(|| only_looks()));
        if inbox.is_none() && self.has_looked.swap(true, Ordering::Relaxed) {
            self.second_looks.ended(done.is_ready());
        }
        match done {
            Poll::Pending => {
                // None, unless another thread polls as well.
                drop(self.polled.replace(polled));
                Ok(None)
            }
            Poll::Ready(done) => done.map(Some),
        }
    }

    /// Gives it up, if it is not over.
    fn drop(&self) {
        let future = self.polled.take();
        drop(future);
    }
}

/// Tells an event loop which of its tasks to poll again.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Inbox(Arc<Post>);

struct Post {
    eventfd: KeptDescriptor,
    numbers: Locked<Vec<u64>>,
    /// `forks()` in the process that made it. In a forked child no task waits for it, and its lock
    /// may have been held by a thread that the child does not have.
    forks: u32,
}

impl Post {
    fn is_of_this_process(&self) -> bool {
        self.forks == forks()
    }

    fn tell(&self, number: u64) {
        if !self.is_of_this_process() {
            return;
        }
        let is_first = self.numbers.with(|numbers| {
            numbers.push(number);
            numbers.len() == 1
        });
        if is_first {
            self.eventfd.ring();
        }
    }
}

impl Inbox {
    /// Wakes the task of that number.
    pub(crate) fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Woken { post: Arc::clone(&self.0), number }))
    }
}

#[pymethods]
impl Inbox {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Inbox> {
        let eventfd = KeptDescriptor::eventfd().or_raise(py)?;
        let (numbers, forks) = (Locked::new(Vec::new()), forks());
        Ok(Inbox(Arc::new(Post { eventfd, numbers, forks })))
    }

    /// The descriptor to watch: readable while a number is to be taken.
    fn fileno(&self) -> i32 {
        self.0.eventfd.number()
    }

    /// Whether the program has left the descriptor open.
    fn is_intact(&self) -> bool {
        self.0.eventfd.is_intact()
    }

    /// Makes the descriptor readable, although no number is to be taken.
    fn ring(&self) {
        if self.0.is_of_this_process() {
            self.0.eventfd.ring();
        }
    }

    /// Has the task of that number ask again. Any thread may call it.
    fn tell(&self, number: u64) {
        self.0.tell(number);
    }

    /// The numbers of those that are to be asked again.
    fn take(&self) -> Vec<u64> {
        if !self.0.is_of_this_process() {
            return Vec::new();
        }
        // Read first: a number that is written down after it rings once more.
        self.0.eventfd.clear();
        self.0.numbers.with(std::mem::take)
    }
}

/// Wakes one task.
struct Woken {
    post: Arc<Post>,
    number: u64,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.post.tell(self.number);
    }
}

/// A descriptor that this package keeps by its number: a doorbell or a pidfd, whose open file nobody
/// else has. If the program closes it, what it opens next under the number is left alone.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Descriptor(Locked<Option<KeptDescriptor>>);

#[pymethods]
impl Descriptor {
    /// Takes over the descriptor of that number.
    #[new]
    fn new(py: Python<'_>, number: i32) -> PyResult<Descriptor> {
        take_over(py, number, |_| Ok(()), KeptDescriptor::new).map(|kept| Descriptor(Locked::new(Some(kept))))
    }

    /// Its number; -1 once it is closed.
    fn fileno(&self) -> i32 {
        self.0.with(|kept| kept.as_ref().map_or(-1, KeptDescriptor::number))
    }

    /// Whether neither this nor the program has closed it.
    fn is_intact(&self) -> bool {
        self.0.with(|kept| kept.as_ref().is_some_and(KeptDescriptor::is_intact))
    }

    /// Closes it, unless the program has.
    fn close(&self) {
        let kept = self.0.take();
        drop(kept);
    }
}
