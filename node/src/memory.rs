//! **Boundary**: memory of blobs as an `ArrayBuffer` of JavaScript.
//!
//! The memory stays where it is if the runtime allows that: Node does, and Electron and other builds
//! with V8's sandbox do not. Then the caller copies.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null_mut;

use napi::bindgen_prelude::{ArrayBuffer, ToNapiValue, TypeName};
use napi::{Env, Result, Status, ValueType, sys};
use napi_derive::napi;

/// An `ArrayBuffer`.
pub(crate) struct External(sys::napi_value);

impl TypeName for External {
    fn type_name() -> &'static str {
        "ArrayBuffer"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl ToNapiValue for External {
    // SAFETY: it uses no pointer.
    unsafe fn to_napi_value(_env: sys::napi_env, external: External) -> Result<sys::napi_value> {
        Ok(external.0)
    }
}

/// The memory that `owner` holds, as an `ArrayBuffer` that keeps `owner`; `None` if this runtime
/// takes only memory of its own.
///
/// # Safety
///
/// `memory` stays mapped, and writable, for as long as `owner` lives.
pub(crate) unsafe fn external<T: 'static>(
    env: &Env,
    memory: *mut [u8],
    owner: T,
) -> Result<Option<External>> {
    let (mut value, owner) = (null_mut(), Box::into_raw(Box::new(owner)));
    // SAFETY: the environment is that of the call under way. The memory is there until
    // `drop_owner` has run, which gets the owner back.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env.raw(),
            memory.cast(),
            memory.len(),
            Some(drop_owner::<T>),
            owner.cast(),
            &mut value,
        )
    };
    if status == sys::Status::napi_ok {
        return Ok(Some(External(value)));
    }
    // SAFETY: without a buffer, there is no call of `drop_owner`.
    drop(unsafe { Box::from_raw(owner) });
    match status {
        sys::Status::napi_no_external_buffers_allowed => Ok(None),
        _ => Err(napi::Error::from_status(Status::from(status))),
    }
}

// SAFETY: only the runtime calls it, once, with the owner of the memory.
unsafe extern "C" fn drop_owner<T>(_env: sys::napi_env, _memory: *mut c_void, owner: *mut c_void) {
    // SAFETY: `external` made it, and the runtime calls this once.
    drop(unsafe { Box::from_raw(owner.cast::<T>()) });
}

/// Takes an `ArrayBuffer` of [`external`] its memory away: it is empty from now on.
#[napi]
pub fn detach(buffer: ArrayBuffer<'_>) -> napi::Result<()> {
    buffer.detach()
}
