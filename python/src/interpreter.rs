//! **Wall**: the interpreter that the package is imported in.
//!
//! A thread of the core that wakes a task finds its way into the main interpreter, and no other;
//! classes and exceptions are made once for a process. So no other is let in. From Python 3.12 on,
//! one with a lock of its own is refused before this is asked.
//!
//! It also says how a thread ends with the interpreter: before Python 3.14, a daemon thread that
//! asks for the interpreter lock of a program that is ending is ended by `pthread_exit`, which
//! unwinds its stack. Rust allows no such unwinding through its frames and aborts the process. Any
//! call of Python may ask for the lock: a constructor that is written in Python, a finalizer, an
//! `__index__`. So threads that come here get a handler that stops them before the first frame is
//! unwound, for ever. Python does the same from 3.14 on.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::thread;

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The number of the main interpreter.
const MAIN: i64 = 0;

/// Raises ImportError in a subinterpreter.
pub(crate) fn refuse_others(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread has the lock of the interpreter that it runs, which is alive.
    let number = unsafe { PyInterpreterState_GetID(PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    let text = "pipework can be imported in the main interpreter only, and this is a subinterpreter \
                (with mod_wsgi: WSGIApplicationGroup %{GLOBAL})";
    Err(PyImportError::new_err(text))
}

/// Whether only one thread at a time runs Python's code. In a free-threaded build this is false, even
/// if the interpreter lock is in use: an import takes it for a moment and releases it again.
pub(crate) fn has_lock(py: Python<'_>) -> bool {
    static HAS_LOCK: PyOnceLock<bool> = PyOnceLock::new();
    let flags = || py.import("sys")?.getattr("abiflags")?.extract::<String>();
    *HAS_LOCK.get_or_init(py, || flags().is_ok_and(|flags| !flags.contains('t')))
}

/// Makes this thread park for ever where Python would unwind it, from now on. It is called before
/// anything that may run Python's code, and does its work once for each thread.
pub(crate) fn park_at_the_end() {
    thread_local! {
        static HANDLER: Handler = Handler::new();
    }
    // A thread whose variables are gone already runs no Python any more.
    let _ = HANDLER.try_with(|_| ());
}

/// All that an iterable gives.
pub(crate) fn collect<'py>(iterable: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    park_at_the_end();
    iterable.try_iter()?.collect()
}

/// Calls the method of that name without arguments: a subclass may have one of its own.
pub(crate) fn call_method(object: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    park_at_the_end();
    object.call_method0(name).map(drop)
}

/// The C library calls this when this thread is unwound, before it leaves the first frame: it takes
/// a handler of this kind for one of the frames below the address of its buffer, and the heap is on
/// no side of a stack but those two that count as below. (glibc: `unwind_stop`. musl unwinds
/// nothing, and calls it first.)
struct Handler(Box<UnsafeCell<Buffer>>);

impl Handler {
    fn new() -> Handler {
        let empty = Buffer { routine: None, argument: null_mut(), canceltype: 0, previous: null_mut() };
        let handler = Handler(Box::new(UnsafeCell::new(empty)));
        // SAFETY: the buffer stays where it is until it is popped, in `drop`, by the same thread.
        unsafe { _pthread_cleanup_push(handler.0.get(), Some(park_if_ending), null_mut()) };
        handler
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: it was pushed by this thread. Others of its kind are popped by the functions that
        // push them, so that it is the last one again. It is not called.
        unsafe { _pthread_cleanup_pop(self.0.get(), 0) };
    }
}

extern "C" fn park_if_ending(_argument: *mut c_void) {
    // A program may end a thread of its own for another reason, when it has left this package.
    while is_ending() {
        thread::park();
    }
}

/// Whether the interpreter is being taken down.
fn is_ending() -> bool {
    // Each version has one of the two, and the stable ABI none of both.
    static ASK: OnceLock<Option<extern "C" fn() -> c_int>> = OnceLock::new();
    let ask = ASK.get_or_init(|| {
        let names = [c"Py_IsFinalizing", c"_Py_IsFinalizing"];
        // SAFETY: a function of either name takes nothing and returns an int, in all versions.
        names.into_iter().find_map(|name| unsafe { function(name) })
    });
    ask.is_none_or(|ask| ask() != 0)
}

/// A function that the process has under that name.
///
/// # Safety
///
/// `name` must name a function without arguments that returns an int.
unsafe fn function(name: &CStr) -> Option<extern "C" fn() -> c_int> {
    // SAFETY: null asks all libraries of the process; the name ends with a zero.
    let found = unsafe { dlsym(null(), name.as_ptr()) };
    // SAFETY: an address of a function, or null, which is None; the caller vouches for its type.
    unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn() -> c_int>>(found) }
}

/// `_pthread_cleanup_buffer` of glibc; the one of musl is shorter, and this is only its space.
#[repr(C)]
struct Buffer {
    routine: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    canceltype: c_int,
    previous: *mut Buffer,
}

// SAFETY: these are the functions of the C library, with their types; the first two belong to the
// Linux Standard Base.
unsafe extern "C" {
    fn _pthread_cleanup_push(
        buffer: *mut Buffer,
        routine: Option<extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
    fn dlsym(handle: *const c_void, name: *const c_char) -> *mut c_void;
}
