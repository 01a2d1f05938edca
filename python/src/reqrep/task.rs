//! Futures of the core, as coroutines await them: `pipework/_tasks.py` polls a `Task`, and its event loop watches an `Inbox`.
//!
//! Whatever wakes a task only writes its number down and rings: that needs no interpreter. A loop is told once for however many.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pipework::reqrep::Bell;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::named::Named;

const TASKS: &str = "pipework._tasks";

type Polled = dyn FnMut(Python<'_>, &mut Context<'_>) -> Poll<PyResult<Py<PyAny>>> + Send;

/// A future of the core. Once it is over or dropped, there is nothing left in it.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Task(Mutex<Option<Box<Polled>>>);

impl Task {
    /// `give` makes of what the future comes to what Python gets, which is not None.
    pub(super) fn new<T>(
        future: impl Future<Output = T> + Send + 'static,
        give: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Task {
        let mut future = Box::pin(future);
        let polled: Box<Polled> = Box::new(move |py, cx| future.as_mut().poll(cx).map(|done| give(py, done)));
        Task(Mutex::new(Some(polled)))
    }

    /// The coroutine.
    pub(super) fn start(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static FINISH: Named = Named::new(TASKS, "finish");
        FINISH.call(py, (self,))
    }

    fn future(&self) -> MutexGuard<'_, Option<Box<Polled>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests, one after the other, for `async for`.
pub(super) fn requests<'py>(py: Python<'py>, server: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    static REQUESTS: Named = Named::new(TASKS, "Requests");
    REQUESTS.call(py, (server,))
}

#[pymethods]
impl Task {
    /// What has come of it, once; None while there is nothing. `inbox` is told under `number` when it is worth to ask again.
    fn poll(&self, py: Python<'_>, inbox: &Inbox, number: u64) -> PyResult<Option<Py<PyAny>>> {
        let mut future = self.future();
        let Some(polled) = future.as_mut() else {
            return Err(PyRuntimeError::new_err("this task is over"));
        };
        let waker = Waker::from(Arc::new(Woken { post: Arc::clone(&inbox.0), number }));
        match polled(py, &mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(done) => {
                *future = None;
                done.map(Some)
            }
        }
    }

    /// Gives it up, if it is not over.
    fn drop(&self) {
        let future = self.future().take();
        drop(future);
    }
}

/// Where an event loop hears which of its tasks are to be asked again.
#[pyclass(frozen, module = "pipework._core")]
pub(crate) struct Inbox(Arc<Post>);

#[derive(Default)]
struct Post {
    bell: Bell,
    numbers: Mutex<Vec<u64>>,
}

impl Post {
    fn numbers(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Inbox {
    #[new]
    fn new() -> Inbox {
        Inbox(Arc::new(Post::default()))
    }

    /// The descriptor to watch: readable while there is something to take.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.0.bell.create().map(|eventfd| eventfd.as_raw_fd()).or_raise(py)
    }

    /// The numbers of those that are to be asked again.
    fn take(&self) -> Vec<u64> {
        // First this: what is written down after it rings once more.
        self.0.bell.consume();
        std::mem::take(&mut *self.0.numbers())
    }
}

/// Wakes one task.
struct Woken {
    post: Arc<Post>,
    number: u64,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let mut numbers = self.post.numbers();
        numbers.push(self.number);
        let is_first = numbers.len() == 1;
        drop(numbers);
        if is_first {
            self.post.bell.ring();
        }
    }
}
