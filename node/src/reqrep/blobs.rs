//! Blobs: memory that is filled once, frozen, and read in place.

#![allow(unsafe_code)]

use napi::Env;
use napi::bindgen_prelude::{ArrayBuffer, Either, Undefined};
use napi_derive::napi;
use pipework::reqrep;

use crate::error::{Failure, OrThrow};
use crate::memory::{External, Shown, Transferred};
use crate::value::Value;

/// Memory that has to be filled.
#[napi]
pub struct BlobMut {
    len: usize,
    draft: Shown<reqrep::BlobMut>,
}

#[napi]
impl BlobMut {
    /// Its memory, in place; undefined if this runtime does not allow that. Only once.
    #[napi]
    pub fn memory(&self, env: Env) -> napi::Result<Either<External, Undefined>> {
        // SAFETY: the core maps it for writing until the draft is dropped or frozen, and only `take` and
        // `close` have the draft.
        let shown = unsafe { self.draft.show(&env, |draft| &mut draft[..]) };
        let made = shown.ok_or_else(|| gone(MEMORY).thrown(&env))??;
        Ok(made.map_or(Either::B(()), Either::A))
    }

    /// Copies `data` to its beginning: for a runtime without `memory`.
    #[napi]
    pub fn fill(&self, env: Env, data: &[u8]) -> napi::Result<()> {
        let filled = self.draft.with(|draft| draft[..data.len()].copy_from_slice(data));
        filled.ok_or_else(|| gone(FREEZE).thrown(&env))
    }

    /// Freezes it; `buffer` is that of `memory`.
    #[napi]
    pub fn freeze(&self, env: Env, buffer: Option<ArrayBuffer<'_>>) -> napi::Result<Blob> {
        let taken = self.draft.take(buffer).map_err(|Transferred| {
            let text = "its buffer was transferred, and can still be written to: fill another draft";
            Failure::invalid(FREEZE, text).thrown(&env)
        })?;
        let draft = taken.ok_or_else(|| gone(FREEZE).thrown(&env))?;
        Ok(Blob::new(draft.freeze().or_throw(&env)?))
    }

    /// Gives it back; `buffer` is that of `memory`.
    #[napi]
    pub fn close(&self, buffer: Option<ArrayBuffer<'_>>) {
        self.draft.close(buffer);
    }

    #[napi(getter)]
    pub fn byte_length(&self) -> f64 {
        self.len as f64
    }
}

impl BlobMut {
    pub(super) fn new(draft: reqrep::BlobMut) -> BlobMut {
        BlobMut { len: draft.len(), draft: Shown::new(draft) }
    }
}

const MEMORY: &str = "blob buffer";
const FREEZE: &str = "blob freeze";

fn gone(op: &'static str) -> Failure {
    Failure::invalid(op, "this draft is frozen or closed already")
}

/// Bytes in shared memory that no process changes.
#[napi]
pub struct Blob {
    len: usize,
    is_copied: bool,
    blob: Shown<reqrep::Blob>,
}

#[napi]
impl Blob {
    /// Its memory, in place; undefined if this runtime does not allow that. Only once.
    #[napi]
    pub fn memory(&self, env: Env) -> napi::Result<Either<External, Undefined>> {
        // SAFETY: the core maps it for reading and writing until the blob is dropped, which only `close`
        // has.
        let shown = unsafe {
            self.blob.show(&env, |blob| {
                let memory: *const [u8] = &blob[..];
                memory.cast_mut()
            })
        };
        let made = shown.ok_or_else(|| closed(MEMORY).thrown(&env))??;
        Ok(made.map_or(Either::B(()), Either::A))
    }

    /// A copy of its bytes from `from` to `to`, which are within it.
    #[napi]
    pub fn copy(&self, env: Env, from: f64, to: f64) -> napi::Result<Value> {
        let blob = self.get(&env, "blob toBuffer")?;
        Ok(Value::Bytes(blob[from as usize..to as usize].to_vec()))
    }

    #[napi]
    pub fn check(&self, env: Env) -> napi::Result<()> {
        self.get(&env, "blob check")?.check().or_throw(&env)
    }

    /// Lets go of it; `buffer` is that of `memory`.
    #[napi]
    pub fn close(&self, buffer: Option<ArrayBuffer<'_>>) {
        self.blob.close(buffer);
    }

    #[napi(getter)]
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    #[napi(getter)]
    pub fn byte_length(&self) -> f64 {
        self.len as f64
    }
}

impl Blob {
    pub(super) fn new(blob: reqrep::Blob) -> Blob {
        let (len, is_copied) = (blob.len(), blob.is_copied());
        Blob { len, is_copied, blob: Shown::new(blob) }
    }

    pub(super) fn get(&self, env: &Env, op: &'static str) -> napi::Result<reqrep::Blob> {
        self.blob.with(|blob| blob.clone()).ok_or_else(|| closed(op).thrown(env))
    }
}

fn closed(op: &'static str) -> Failure {
    Failure::invalid(op, "this blob is closed")
}
