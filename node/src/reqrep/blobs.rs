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
        let draft = draft.as_mut().ok_or_else(|| gone().thrown(&env))?;
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
        let draft = draft.as_mut().ok_or_else(|| gone().thrown(&env))?;
        draft[..data.len()].copy_from_slice(data);
        Ok(())
    }

    #[napi]
    pub fn freeze(&self, env: Env) -> napi::Result<Blob> {
        let draft = self.draft.borrow_mut().take().ok_or_else(|| gone().thrown(&env))?;
        Ok(Blob { blob: draft.freeze().or_throw(&env)? })
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

fn gone() -> Failure {
    Failure::invalid("blob freeze", "this draft is frozen or closed already")
}

/// Bytes in shared memory that no process changes.
#[napi]
pub struct Blob {
    pub(crate) blob: reqrep::Blob,
}

#[napi]
impl Blob {
    /// Its memory, in place; undefined if this runtime does not allow that.
    #[napi]
    pub fn memory(&self, env: Env) -> napi::Result<Either<External, Undefined>> {
        let memory: *const [u8] = &self.blob[..];
        // SAFETY: the clone keeps the memory, which the core maps for reading and writing.
        let made = unsafe { external(&env, memory.cast_mut(), self.blob.clone()) }?;
        Ok(made.map_or(Either::B(()), Either::A))
    }

    /// A copy of its bytes from `from` to `to`, which are within it.
    #[napi]
    pub fn copy(&self, from: f64, to: f64) -> Value {
        Value::Bytes(self.blob[from as usize..to as usize].to_vec())
    }

    #[napi]
    pub fn check(&self, env: Env) -> napi::Result<()> {
        self.blob.check().or_throw(&env)
    }

    #[napi(getter)]
    pub fn is_copied(&self) -> bool {
        self.blob.is_copied()
    }

    #[napi(getter)]
    pub fn byte_length(&self) -> f64 {
        self.blob.len() as f64
    }
}
