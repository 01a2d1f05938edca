//! The sending end.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};

use napi::Env;
use napi_derive::napi;
use pipework::{Deadline, atomic};

use super::options::{Options, Zstd};
use super::reader::key;
use crate::descriptor::{borrow, ready, take_over};
use crate::error::{Failure, OrThrow};
use crate::inbox::{Inbox, Tasks};
use crate::value::Value;
use crate::watch::For;

const SEND: &str = "atomic send";

#[napi]
pub struct AtomicWriter {
    /// None once it is closed.
    writer: RefCell<Option<atomic::Writer>>,
    tasks: Tasks,
}

#[napi]
impl AtomicWriter {
    #[napi(factory)]
    pub fn from_fd(
        env: Env,
        inbox: &Inbox,
        fd: i32,
        takes_over: bool,
        options: Options,
    ) -> napi::Result<AtomicWriter> {
        let options = options.options();
        let writer = match takes_over {
            true => take_over(fd, |fd| options.dup_writer(fd).map(drop), |fd| options.writer(fd)),
            false => borrow(fd).and_then(|fd| Ok(options.writer_on(fd)?)),
        };
        writer.map(|writer| AtomicWriter::new(writer, inbox)).or_throw(&env)
    }

    /// Fails with `TimedOut` if the FIFO has no reader.
    #[napi(factory)]
    pub fn fifo(env: Env, inbox: &Inbox, path: String, options: Options) -> napi::Result<AtomicWriter> {
        let opened = options.options().write_fifo(&path, Deadline::at_ns(0));
        let opened = opened.map_err(|error| Failure::from(error).at(&path).thrown(&env));
        opened.map(|writer| AtomicWriter::new(writer, inbox))
    }

    #[napi(factory)]
    pub fn stdout(env: Env, inbox: &Inbox, options: Options) -> napi::Result<AtomicWriter> {
        options.options().stdout().map(|writer| AtomicWriter::new(writer, inbox)).or_throw(&env)
    }

    /// Sends without waiting. False if nothing was taken; what the pipe has no space for is pending.
    #[napi]
    pub fn try_send(&self, env: Env, data: &[u8]) -> napi::Result<bool> {
        self.with(&env, |writer| writer.try_send(data))?.map(|parts| parts.is_some()).or_throw(&env)
    }

    #[napi]
    pub fn try_burst(&self, env: Env, data: &[u8]) -> napi::Result<bool> {
        self.with(&env, |writer| writer.try_burst(data))?.or_throw(&env)
    }

    #[napi]
    pub fn fits_in_burst(&self, env: Env, data: &[u8]) -> napi::Result<bool> {
        self.with(&env, |writer| writer.fits_in_burst(data))?.map(|fits| fits.is_some()).or_throw(&env)
    }

    /// Writes as much as the pipe has space for. Returns whether nothing is pending.
    #[napi]
    pub fn try_flush(&self, env: Env) -> napi::Result<bool> {
        self.with(&env, |writer| writer.try_flush())?.or_throw(&env)
    }

    #[napi]
    pub fn discard(&self, env: Env) -> napi::Result<()> {
        self.with(&env, |writer| writer.discard())
    }

    /// A task: waits until there is space.
    #[napi]
    pub fn ready(&self, env: Env) -> napi::Result<Value> {
        self.with(&env, |writer| ready(&self.tasks, writer.as_fd(), For::Writing, SEND))
    }

    #[napi(getter)]
    pub fn pending(&self, env: Env) -> napi::Result<f64> {
        self.with(&env, |writer| writer.pending() as f64)
    }

    #[napi(getter)]
    pub fn key(&self, env: Env) -> napi::Result<Value> {
        self.with(&env, |writer| key(writer.key()))
    }

    #[napi(getter)]
    pub fn fd(&self, env: Env) -> napi::Result<i32> {
        self.with(&env, |writer| writer.as_fd().as_raw_fd())
    }

    #[napi(getter)]
    pub fn is_printing(&self, env: Env) -> napi::Result<bool> {
        self.with(&env, |writer| writer.is_printing())
    }

    #[napi(getter)]
    pub fn mixed(&self, env: Env) -> napi::Result<bool> {
        self.with(&env, |writer| writer.is_mixed())
    }

    #[napi(setter)]
    pub fn set_mixed(&self, env: Env, mixed: bool) -> napi::Result<()> {
        self.with(&env, |writer| writer.set_mixed(mixed))?.or_throw(&env)
    }

    #[napi]
    pub fn compress(&self, env: Env, zstd: Option<Zstd>) -> napi::Result<()> {
        self.with(&env, |writer| writer.set_zstd(zstd.map(|zstd| zstd.zstd())))?.or_throw(&env)
    }

    #[napi(getter)]
    pub fn capacity(&self, env: Env) -> napi::Result<f64> {
        self.with(&env, |writer| writer.capacity())?.map(|bytes| bytes as f64).or_throw(&env)
    }

    #[napi(setter)]
    pub fn set_capacity(&self, env: Env, bytes: f64) -> napi::Result<()> {
        self.with(&env, |writer| writer.set_capacity(bytes as usize))?.map(drop).or_throw(&env)
    }

    /// Drops what is pending.
    #[napi]
    pub fn close(&self) {
        if let Some(mut writer) = self.writer.take() {
            // Its drop would wait for the reader.
            writer.discard();
        }
    }
}

impl AtomicWriter {
    pub(super) fn new(writer: atomic::Writer, inbox: &Inbox) -> AtomicWriter {
        AtomicWriter { writer: RefCell::new(Some(writer)), tasks: inbox.tasks() }
    }

    fn with<T>(&self, env: &Env, call: impl FnOnce(&mut atomic::Writer) -> T) -> napi::Result<T> {
        let mut writer = self.writer.borrow_mut();
        let closed = || Failure::invalid(SEND, "this writer is closed").thrown(env);
        writer.as_mut().map(call).ok_or_else(closed)
    }
}

impl Drop for AtomicWriter {
    fn drop(&mut self) {
        self.close();
    }
}
