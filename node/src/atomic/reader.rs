//! The receiving end.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};

use napi::Env;
use napi_derive::napi;
use pipework::atomic::{self, Item, Limit, WriterKey};

use super::options::{Options, Zstd};
use crate::descriptor::{borrow, ready, take_over};
use crate::error::{Failure, OrThrow};
use crate::inbox::{Inbox, Tasks};
use crate::value::Value;
use crate::watch::For;

const RECV: &str = "atomic recv";

#[napi]
pub struct AtomicReader {
    /// None once it is closed.
    reader: RefCell<Option<atomic::Reader>>,
    tasks: Tasks,
}

#[napi]
impl AtomicReader {
    #[napi(factory)]
    pub fn from_fd(
        env: Env,
        inbox: &Inbox,
        fd: i32,
        takes_over: bool,
        options: Options,
    ) -> napi::Result<AtomicReader> {
        let options = options.options();
        let reader = match takes_over {
            true => take_over(fd, |fd| options.dup_reader(fd).map(drop), |fd| options.reader(fd)),
            false => borrow(fd).and_then(|fd| Ok(options.reader_on(fd)?)),
        };
        reader.map(|reader| AtomicReader::new(reader, inbox)).or_throw(&env)
    }

    #[napi(factory)]
    pub fn fifo(env: Env, inbox: &Inbox, path: String, options: Options) -> napi::Result<AtomicReader> {
        AtomicReader::at(&env, inbox, &path, options.options().read_fifo(&path))
    }

    #[napi(factory)]
    pub fn listen(env: Env, inbox: &Inbox, path: String, options: Options) -> napi::Result<AtomicReader> {
        AtomicReader::at(&env, inbox, &path, options.options().listen_fifo(&path))
    }

    #[napi(factory)]
    pub fn stdin(env: Env, inbox: &Inbox, options: Options) -> napi::Result<AtomicReader> {
        options.options().stdin().map(|reader| AtomicReader::new(reader, inbox)).or_throw(&env)
    }

    /// Up to `max` items that are there, each as a list: its kind and its fields. An error comes
    /// last, and is not thrown.
    #[napi]
    pub fn try_items(&self, env: Env, max: u32) -> napi::Result<Vec<Value>> {
        let mut items = Vec::new();
        self.with(&env, |reader| {
            while items.len() < max as usize {
                match reader.try_next_item() {
                    Ok(Some(item)) => items.push(fields(item)),
                    Ok(None) => break,
                    Err(error) => {
                        items.push(Value::Failure(error.into()));
                        break;
                    }
                }
            }
        })?;
        Ok(items)
    }

    /// A message that is there; undefined if none is. If it is torn, the report is an item of
    /// `torn`.
    #[napi]
    pub fn try_recv(&self, env: Env) -> napi::Result<Value> {
        let received = self.with(&env, |reader| match reader.try_recv() {
            Ok(Some(message)) => Ok(Value::Bytes(message.into_vec())),
            Ok(None) => Ok(Value::Undefined),
            Err(error) => Err(error),
        })?;
        received.or_throw(&env)
    }

    /// The report of the loss that `tryRecv` has thrown last.
    #[napi]
    pub fn torn(&self, env: Env) -> napi::Result<Value> {
        let torn = self.with(&env, |reader| reader.torn())?;
        Ok(torn.map_or(Value::Undefined, |torn| fields(Item::Torn(torn))))
    }

    /// A task: waits until there is something to read.
    #[napi]
    pub fn ready(&self, env: Env) -> napi::Result<Value> {
        self.with(&env, |reader| ready(&self.tasks, reader.as_fd(), For::Reading, RECV))
    }

    /// After how many milliseconds to try again although there is nothing to read.
    #[napi]
    pub fn next_timeout(&self, env: Env) -> napi::Result<Option<f64>> {
        let due = self.with(&env, |reader| reader.next_timeout())?;
        Ok(due.map(|due| due.remaining().map_or(f64::INFINITY, |left| left.as_secs_f64() * 1000.0)))
    }

    /// The text of a line that has begun and not ended.
    #[napi]
    pub fn peek(&self, env: Env) -> napi::Result<Value> {
        Ok(Value::bytes_or_undefined(self.with(&env, |reader| reader.peek())?))
    }

    #[napi(getter)]
    pub fn is_eof(&self, env: Env) -> napi::Result<bool> {
        self.with(&env, |reader| reader.is_eof())
    }

    #[napi(getter)]
    pub fn fd(&self, env: Env) -> napi::Result<i32> {
        self.with(&env, |reader| reader.as_fd().as_raw_fd())
    }

    #[napi(getter)]
    pub fn mixed(&self, env: Env) -> napi::Result<bool> {
        self.with(&env, |reader| reader.is_mixed())
    }

    #[napi(setter)]
    pub fn set_mixed(&self, env: Env, mixed: bool) -> napi::Result<()> {
        self.with(&env, |reader| reader.set_mixed(mixed))?.or_throw(&env)
    }

    #[napi]
    pub fn compress(&self, env: Env, zstd: Option<Zstd>) -> napi::Result<()> {
        self.with(&env, |reader| reader.set_zstd(zstd.map(|zstd| zstd.zstd())))?.or_throw(&env)
    }

    #[napi(getter)]
    pub fn capacity(&self, env: Env) -> napi::Result<f64> {
        self.with(&env, |reader| reader.capacity())?.map(|bytes| bytes as f64).or_throw(&env)
    }

    #[napi(setter)]
    pub fn set_capacity(&self, env: Env, bytes: f64) -> napi::Result<()> {
        self.with(&env, |reader| reader.set_capacity(bytes as usize))?.map(drop).or_throw(&env)
    }

    #[napi]
    pub fn close(&self) {
        drop(self.reader.take());
    }
}

impl AtomicReader {
    pub(super) fn new(reader: atomic::Reader, inbox: &Inbox) -> AtomicReader {
        AtomicReader { reader: RefCell::new(Some(reader)), tasks: inbox.tasks() }
    }

    fn at(
        env: &Env,
        inbox: &Inbox,
        path: &str,
        made: pipework::Result<atomic::Reader>,
    ) -> napi::Result<AtomicReader> {
        let made = made.map_err(|error| Failure::from(error).at(path).thrown(env));
        made.map(|reader| AtomicReader::new(reader, inbox))
    }

    fn with<T>(&self, env: &Env, call: impl FnOnce(&mut atomic::Reader) -> T) -> napi::Result<T> {
        let mut reader = self.reader.borrow_mut();
        let closed = || Failure::invalid(RECV, "this reader is closed").thrown(env);
        reader.as_mut().map(call).ok_or_else(closed)
    }
}

/// The kind of an item, and its fields in the order of the public class.
fn fields(item: Item<'_>) -> Value {
    let count = |count: u32| Value::Number(count);
    Value::List(match item {
        Item::Message(message) => {
            let compressed = message.compressed.as_deref().map(<[u8]>::to_vec);
            let (writer, parts) = (key(message.writer), count(message.parts));
            let data = Value::Bytes(message.into_vec());
            vec![text("message"), data, writer, parts, Value::bytes_or_undefined(compressed)]
        }
        Item::Burst(burst) => {
            let compressed = burst.compressed.as_deref().map(<[u8]>::to_vec);
            let data = Value::Bytes(burst.data.into_owned());
            vec![text("burst"), data, Value::bytes_or_undefined(compressed)]
        }
        Item::Line(line) => {
            let content = count(line.content().len() as u32);
            vec![text("line"), Value::Bytes(line.data.into_owned()), content]
        }
        Item::Torn(torn) => vec![
            text("torn"),
            torn.writer.map_or(Value::Undefined, key),
            count(torn.parts),
            Value::Real(torn.bytes as f64),
            text(&format!("{:?}", torn.kind)),
            torn.limit.map(Limit::name).map_or(Value::Undefined, text),
        ],
    })
}

/// The name of a writer.
pub(super) fn key(key: WriterKey) -> Value {
    Value::Text(key.to_string())
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}
