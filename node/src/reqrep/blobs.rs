//! Blobs: memory that is filled once, frozen, and read in place.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::{Either, Undefined};
use napi_derive::napi;
use pipework::reqrep;

use crate::error::{Failure, OrThrow};
use crate::memory::{External, external};
use crate::value::Value;

/// Memory that has to be filled.
#[napi]
pub struct BlobMut {
    len: usize,
    /// `None` once it is frozen or closed. An `ArrayBuffer` holds it as well, and keeps it open.
    draft: Rc<RefCell<Option<reqrep::BlobMut>>>,
}

#[napi]
impl BlobMut {
    /// Its memory, in place; undefined if this runtime does not allow that. The caller detaches it
    /// before it freezes the draft.
    #[napi]
    pub fn memory(&self, env: Env) -> napi::Result<Either<External, Undefined>> {
        let mut draft = self.draft.borrow_mut();
        let draft = draft.as_mut().ok_or_else(|| gone(MEMORY).thrown(&env))?;
        let memory: *mut [u8] = &mut draft[..];
        // SAFETY: the draft is taken out of its cell only by `freeze` and `close`, after the
        // `ArrayBuffer` was detached.
        let made = unsafe { external(&env, memory, Rc::clone(&self.draft)) }?;
        Ok(made.map_or(Either::B(()), Either::A))
    }

    /// Copies `data` to its beginning: for a runtime without `memory`.
    #[napi]
    pub fn fill(&self, env: Env, data: &[u8]) -> napi::Result<()> {
        let mut draft = self.draft.borrow_mut();
        let draft = draft.as_mut().ok_or_else(|| gone(FREEZE).thrown(&env))?;
        draft[..data.len()].copy_from_slice(data);
        Ok(())
    }

    #[napi]
    pub fn freeze(&self, env: Env) -> napi::Result<Blob> {
        let draft = self.draft.borrow_mut().take().ok_or_else(|| gone(FREEZE).thrown(&env))?;
        Ok(Blob::new(draft.freeze().or_throw(&env)?))
    }

    #[napi]
    pub fn close(&self) {
        drop(self.draft.borrow_mut().take());
    }

    #[napi(getter)]
    pub fn byte_length(&self) -> f64 {
        self.len as f64
    }
}

impl BlobMut {
    pub(super) fn new(draft: reqrep::BlobMut) -> BlobMut {
        BlobMut { len: draft.len(), draft: Rc::new(RefCell::new(Some(draft))) }
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
    /// `None` once it is closed. An `ArrayBuffer` holds it as well, and keeps it open.
    blob: Rc<RefCell<Option<reqrep::Blob>>>,
}

#[napi]
impl Blob {
    /// Its memory, in place; undefined if this runtime does not allow that. The caller detaches it
    /// before it closes the blob.
    #[napi]
    pub fn memory(&self, env: Env) -> napi::Result<Either<External, Undefined>> {
        let blob = self.get(&env, MEMORY)?;
        let memory: *const [u8] = &blob[..];
        // SAFETY: the core maps it for reading and writing. The blob is taken out of its cell only
        // by `close`, after the `ArrayBuffer` was detached.
        let made = unsafe { external(&env, memory.cast_mut(), Rc::clone(&self.blob)) }?;
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

    #[napi]
    pub fn close(&self) {
        drop(self.blob.borrow_mut().take());
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
        Blob { len, is_copied, blob: Rc::new(RefCell::new(Some(blob))) }
    }

    pub(super) fn get(&self, env: &Env, op: &'static str) -> napi::Result<reqrep::Blob> {
        self.blob.borrow().clone().ok_or_else(|| Failure::invalid(op, "this blob is closed").thrown(env))
    }
}
