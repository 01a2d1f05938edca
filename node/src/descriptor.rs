//! **Boundary**: descriptors that programs name by their numbers.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use napi::Env;
use napi_derive::napi;
use pipework::ErrorKind;
use pipework::fd::{self, raw};

use crate::error::{Failure, OrThrow};
use crate::inbox::{Inbox, Tasks};
use crate::value::{Value, milliseconds};
use crate::watch::{For, Wait};

const GUARD: &str = "guard stdout";

/// Borrows a descriptor. Fails if it is not open.
pub(crate) fn borrow(number: i32) -> Result<BorrowedFd<'static>, Failure> {
    // SAFETY: the caller of JavaScript answers for the number, as for those of module `fs`.
    unsafe { raw::borrow(number) }.map_err(Failure::from)
}

/// Takes a descriptor over that `check` accepts; otherwise it stays the caller's.
pub(crate) fn take_over<T>(
    number: i32,
    check: impl FnOnce(BorrowedFd<'_>) -> pipework::Result<()>,
    make: impl FnOnce(OwnedFd) -> pipework::Result<T>,
) -> Result<T, Failure> {
    check(borrow(number)?)?;
    // SAFETY: it is open, and the caller has given it away.
    Ok(make(unsafe { OwnedFd::from_raw_fd(number) })?)
}

/// A duplicate of a descriptor, close-on-exec. It belongs to the caller.
#[napi]
pub fn duplicate(env: Env, number: i32) -> napi::Result<i32> {
    let copy = borrow(number).or_throw(&env)?.try_clone_to_owned();
    copy.map(IntoRawFd::into_raw_fd).map_err(|error| napi::Error::from_reason(error.to_string()))
}

/// Makes descriptor 1 another name of descriptor 2: from now on what is printed goes to stderr.
#[napi]
pub fn send_stdout_to_stderr(env: Env) -> napi::Result<()> {
    let done = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
    done.map_err(|error| Failure::of_kernel(GUARD, &error.into())).or_throw(&env)
}

/// Makes descriptor 1 another name of the descriptor `number`.
#[napi]
pub fn restore_stdout(env: Env, number: i32) -> napi::Result<()> {
    let done = rustix::stdio::dup2_stdout(borrow(number).or_throw(&env)?);
    done.map_err(|error| Failure::of_kernel(GUARD, &error.into())).or_throw(&env)
}

/// Writes what a descriptor takes within `time` milliseconds. Returns how many bytes that were.
#[napi]
pub fn write(env: Env, number: i32, data: &[u8], time: f64) -> napi::Result<f64> {
    let fd = borrow(number).or_throw(&env)?;
    match fd::write_all(fd, data, milliseconds(time)) {
        Ok(()) => Ok(data.len() as f64),
        Err(unfinished) if unfinished.kind() == ErrorKind::TimedOut => Ok(unfinished.done as f64),
        Err(unfinished) => Err(Failure::from(unfinished.error).thrown(&env)),
    }
}

/// A task: waits until a descriptor can be written to.
#[napi]
pub fn writable(env: Env, inbox: &Inbox, number: i32) -> napi::Result<Value> {
    Ok(ready(&inbox.tasks(), borrow(number).or_throw(&env)?, For::Writing, GUARD))
}

/// A task: waits until a descriptor is ready.
pub(crate) fn ready(tasks: &Tasks, fd: BorrowedFd<'_>, direction: For, op: &'static str) -> Value {
    let wait = Wait::new(fd, direction);
    tasks.start(async move {
        let ready = match &wait {
            Ok(wait) => wait.ready().await,
            Err(error) => return Value::Failure(Failure::of_kernel(op, error)),
        };
        ready.map_or_else(|error| Value::Failure(Failure::of_kernel(op, &error)), |()| Value::Undefined)
    })
}
