//! Futures of the core, as an event loop runs them: `lib/loop.js` makes a promise of each.
//!
//! A task that is not ready leaves its number. Waking it, in any thread, only writes the number
//! down, and calls the loop once for any number of tasks. Tasks are polled and dropped on the
//! thread of their loop alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;

use crate::value::Value;

/// Calls a function of JavaScript on its own thread. It does not keep the event loop alive.
type Call = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The tasks of one event loop.
#[napi]
pub struct Inbox(Tasks);

/// The same, as handles hold it.
#[derive(Clone)]
pub(crate) struct Tasks(Rc<State>);

struct State {
    post: Arc<Post>,
    tasks: RefCell<Numbered<Task>>,
    last: Cell<u32>,
    /// Results that `take` gives out.
    ended: RefCell<Vec<(u32, Value)>>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = Value>>>,
    waker: Waker,
}

struct Post {
    call: Call,
    /// The numbers of tasks that were woken. The loop is called for the first one.
    woken: Mutex<Vec<u32>>,
}

#[napi]
impl Inbox {
    /// `call` is called when tasks were woken. Numbers follow `last`, which is 0 except in tests.
    #[napi(constructor)]
    pub fn new(call: Function<'_, (), ()>, last: Option<u32>) -> napi::Result<Inbox> {
        let call = call.build_threadsafe_function::<()>().weak::<true>().build()?;
        let post = Arc::new(Post { call, woken: Mutex::default() });
        let (tasks, last, ended) = (RefCell::default(), Cell::new(last.unwrap_or(0)), RefCell::default());
        Ok(Inbox(Tasks(Rc::new(State { post, tasks, last, ended }))))
    }

    /// The numbers of tasks that have ended, each followed by its result.
    #[napi]
    pub fn take(&self) -> Vec<Value> {
        let ended = self.0.0.ended.take();
        ended.into_iter().flat_map(|(number, value)| [Value::Number(number), value]).collect()
    }

    /// Drops a task. Returns whether it had not ended.
    #[napi]
    pub fn give_up(&self, number: u32) -> bool {
        let task = self.0.0.tasks.borrow_mut().remove(&number);
        task.is_some()
    }
}

/// The loop is ending.
impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl Inbox {
    pub(crate) fn tasks(&self) -> Tasks {
        self.0.clone()
    }
}

impl Tasks {
    /// Starts a task. Returns its result if it ends at once, and else its number.
    pub(crate) fn start(&self, future: impl Future<Output = Value> + 'static) -> Value {
        let number = self.number();
        self.start_as(number, future).unwrap_or(Value::Number(number))
    }

    /// A number that no task has, and not 0. After an hour of a million calls a second they come again.
    pub(crate) fn number(&self) -> u32 {
        let Tasks(state) = self;
        let mut number = state.last.get().wrapping_add(1);
        while number == 0 || state.tasks.borrow().contains_key(&number) {
            number = number.wrapping_add(1);
        }
        state.last.set(number);
        number
    }

    /// The same, and one that is free in `table`.
    pub(crate) fn number_in<T>(&self, table: &RefCell<Numbered<T>>) -> u32 {
        loop {
            let number = self.number();
            if !table.borrow().contains_key(&number) {
                return number;
            }
        }
    }

    /// Starts a task under a number that it has already. Returns its result if it ends at once.
    pub(crate) fn start_as(
        &self,
        number: u32,
        future: impl Future<Output = Value> + 'static,
    ) -> Option<Value> {
        let Tasks(state) = self;
        let waker = Waker::from(Arc::new(Woken { post: Arc::clone(&state.post), number }));
        state.poll(number, Task { future: Box::pin(future), waker })
    }

    /// Polls the tasks that were woken, and calls `end` with the number and the result of each that
    /// has ended.
    pub(crate) fn poll_woken(&self, mut end: impl FnMut(u32, Value)) {
        let Tasks(state) = self;
        let woken = std::mem::take(&mut *state.post.woken());
        for number in woken {
            // Out of the table while it is polled: it may have been woken twice, or be given up.
            let Some(task) = state.tasks.borrow_mut().remove(&number) else { continue };
            if let Some(value) = state.poll(number, task) {
                end(number, value);
            }
        }
    }

    /// Drops all tasks and results.
    pub(crate) fn clear(&self) {
        // Out of their tables first: dropping one may use the tables.
        let dropped = (self.0.tasks.take(), self.0.ended.take());
        drop(dropped);
    }

    /// How many results `take` has.
    pub(crate) fn left(&self) -> usize {
        self.0.ended.borrow().len()
    }

    /// Leaves a result for `take`.
    pub(crate) fn leave(&self, number: u32, value: Value) {
        self.0.ended.borrow_mut().push((number, value));
    }
}

impl State {
    /// Its result; if it has none yet, it is kept.
    fn poll(&self, number: u32, mut task: Task) -> Option<Value> {
        match task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => {
                self.tasks.borrow_mut().insert(number, task);
                None
            }
        }
    }
}

impl Post {
    fn woken(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Things by the numbers that `Tasks::number` gives out.
pub(crate) type Numbered<T> = HashMap<u32, T, BuildHasherDefault<Mixed>>;

/// A hash for numbers that no stranger chooses. The default one takes 15 ns each time, which is six
/// times in a call and its answer.
#[derive(Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // Knuth's multiplier: 2 to the 64th, divided by the golden ratio.
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Wakes one task.
struct Woken {
    post: Arc<Post>,
    number: u32,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_first = {
            let mut woken = self.post.woken();
            woken.push(self.number);
            woken.len() == 1
        };
        if is_first {
            // It fails only if the loop is ending.
            let _ = self.post.call.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}
