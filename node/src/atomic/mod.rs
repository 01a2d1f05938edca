//! Module `atomic`: the compiled halves of its classes.

mod options;
mod reader;
mod writer;

use napi::Env;
use napi_derive::napi;
use pipework::atomic;

use crate::error::{Failure, OrThrow};
use crate::inbox::Inbox;
use options::Options;
use reader::AtomicReader;
use writer::AtomicWriter;

#[napi]
pub fn pair(env: Env, inbox: &Inbox, options: Options) -> napi::Result<(AtomicReader, AtomicWriter)> {
    let (reader, writer) = options.options().pair().or_throw(&env)?;
    Ok((AtomicReader::new(reader, inbox), AtomicWriter::new(writer, inbox)))
}

#[napi]
pub fn create_fifo(env: Env, path: String) -> napi::Result<()> {
    atomic::create_fifo(&path).map_err(|error| Failure::from(error).at(&path).thrown(&env))
}

#[napi]
pub fn max_capacity(env: Env) -> napi::Result<f64> {
    atomic::max_capacity().map(|bytes| bytes as f64).or_throw(&env)
}
