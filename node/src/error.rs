//! The one error map: an error of the core becomes an error of JavaScript.
//!
//! `lib/errors.js` decides which class that is; here an error only gives up its fields.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;

use napi::Env;
use napi::bindgen_prelude::{Buffer, FnArgs, FunctionRef, Unknown};
use napi_derive::napi;
use pipework::reqrep::CallError;
use pipework::{Error, ErrorKind};

type Fields = FnArgs<(i32, String, Option<i32>, String, Option<Buffer>, Option<String>)>;
type Make = FunctionRef<Fields, Unknown<'static>>;

thread_local! {
    /// The function that makes errors, of each environment of this thread. Environments that end
    /// release their references themselves, before this thread ends.
    static MAKE: RefCell<HashMap<usize, ManuallyDrop<Make>>> = RefCell::default();
}

/// Sets the function that makes the errors of this environment: of a kind, an operation, the
/// kernel's number, a text, the reason of a server, and a path.
#[napi]
pub fn set_error_maker(env: Env, make: Make) {
    MAKE.with_borrow_mut(|makers| makers.insert(env.raw() as usize, ManuallyDrop::new(make)));
}

/// The names of the kinds of errors, in the order of their numbers, which begin with 1.
#[napi]
pub fn kinds() -> Vec<String> {
    ErrorKind::ALL.iter().map(|kind| format!("{kind:?}")).collect()
}

/// An error on its way to JavaScript.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    op: &'static str,
    errno: Option<i32>,
    text: String,
    reason: Option<Vec<u8>>,
    path: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, op: &'static str, text: &str) -> Failure {
        Failure { kind, op, errno: None, text: format!("{op}: {text}"), reason: None, path: None }
    }

    pub(crate) fn invalid(op: &'static str, text: &str) -> Failure {
        Failure::new(ErrorKind::Invalid, op, text)
    }

    /// The same, of an operation on the file at `path`.
    pub(crate) fn at(self, path: &str) -> Failure {
        Failure { path: Some(path.into()), ..self }
    }

    /// The same, of the operation that the program has called.
    pub(crate) fn of(self, op: &'static str) -> Failure {
        let text = self.text.strip_prefix(self.op).map(|rest| format!("{op}{rest}"));
        Failure { op, text: text.unwrap_or(self.text), ..self }
    }

    /// The same, followed by advice.
    pub(crate) fn advised(self, advice: &str) -> Failure {
        Failure { text: format!("{}: {advice}", self.text), ..self }
    }

    /// The same, for a payload of `len` bytes. If that is longer than `most`, it names the option
    /// that limits it.
    pub(crate) fn of_payload(self, len: usize, option: &str, most: usize) -> Failure {
        if self.kind != ErrorKind::TooLong || len <= most {
            return self;
        }
        let text = format!("{}: {len} bytes, and {option} is {most}", self.text);
        Failure { text, ..self }
    }

    /// The error of JavaScript.
    pub(crate) fn made<'env>(self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        MAKE.with_borrow(|makers| {
            let make =
                makers.get(&(env.raw() as usize)).ok_or_else(|| napi::Error::from_reason(&*self.text))?;
            let reason = self.reason.map(Buffer::from);
            let fields = (self.kind as i32, self.op.into(), self.errno, self.text, reason, self.path);
            make.borrow_back(env)?.call(fields.into())
        })
    }

    /// The same, to be thrown.
    pub(crate) fn thrown(self, env: &Env) -> napi::Error {
        self.made(env).map_or_else(|error| error, napi::Error::from)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (kind, op, errno) = (error.kind(), error.op(), error.errno());
        Failure { kind, op, errno, text: error.to_string(), reason: None, path: None }
    }
}

impl Failure {
    /// An error of the kernel.
    pub(crate) fn of_kernel(op: &'static str, error: &std::io::Error) -> Failure {
        let errno = error.raw_os_error();
        Failure { errno, ..Failure::new(ErrorKind::Os, op, &error.to_string()) }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        let reason = match error.kind() {
            ErrorKind::Failed => Some(error.reason().map_or_else(Vec::new, |reason| reason.to_vec())),
            _ => None,
        };
        Failure { reason, ..Failure::from(error.error()) }
    }
}

/// For the `?` of functions that JavaScript calls.
pub(crate) trait OrThrow<T> {
    fn or_throw(self, env: &Env) -> napi::Result<T>;
}

impl<T, E: Into<Failure>> OrThrow<T> for Result<T, E> {
    fn or_throw(self, env: &Env) -> napi::Result<T> {
        self.map_err(|error| error.into().thrown(env))
    }
}
