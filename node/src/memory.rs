//! **Boundary**: memory of blobs as an `ArrayBuffer` of JavaScript.
//!
//! The memory stays where it is if the runtime allows that: Node does, and Electron and other builds
//! with V8's sandbox do not. Then the caller copies.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::rc::Rc;

use napi::bindgen_prelude::{ArrayBuffer, ToNapiValue, TypeName};
use napi::{Env, Result, Status, ValueType, sys};

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

/// Something whose memory an `ArrayBuffer` may show.
///
/// JavaScript can move that memory into another `ArrayBuffer`, of which nothing here learns: by
/// `transfer`, or as a chunk of a stream of bytes. So the `ArrayBuffer` has a share of the thing,
/// which the runtime gives back when no `ArrayBuffer` has the memory any more.
pub(crate) struct Shown<T>(RefCell<Option<Share<T>>>);

type Share<T> = Rc<RefCell<Option<T>>>;

/// The `ArrayBuffer` has lost its memory to another one.
#[derive(Debug)]
pub(crate) struct Transferred;

impl<T: 'static> Shown<T> {
    pub(crate) fn new(thing: T) -> Shown<T> {
        Shown(RefCell::new(Some(Rc::new(RefCell::new(Some(thing))))))
    }

    /// The result of `call`; `None` if the thing was taken or dropped.
    pub(crate) fn with<O>(&self, call: impl FnOnce(&mut T) -> O) -> Option<O> {
        let share = self.0.borrow();
        let mut thing = share.as_ref()?.borrow_mut();
        thing.as_mut().map(call)
    }

    /// The memory that `memory` returns, as an `ArrayBuffer`. The first `None` if the thing was taken
    /// or dropped; the second if this runtime takes only memory of its own.
    ///
    /// # Safety
    ///
    /// The memory stays mapped, and writable, for as long as the thing lives.
    pub(crate) unsafe fn show(
        &self,
        env: &Env,
        memory: impl FnOnce(&mut T) -> *mut [u8],
    ) -> Option<Result<Option<External>>> {
        let memory = self.with(memory)?;
        let share = self.0.borrow().clone()?;
        // SAFETY: as the caller promises. `take` has the thing only after the `ArrayBuffer` has lost the
        // memory.
        Some(unsafe { external(env, memory, share) })
    }

    /// Takes the memory away from the `ArrayBuffer` of [`show`](Shown::show), which is empty from now
    /// on, and the thing out. `None` if it was taken or dropped.
    pub(crate) fn take(
        &self,
        buffer: Option<ArrayBuffer<'_>>,
    ) -> std::result::Result<Option<T>, Transferred> {
        if let Some(buffer) = buffer
            && (buffer.is_detached().unwrap_or(true) || buffer.detach().is_err())
        {
            return Err(Transferred);
        }
        Ok(self.0.take().and_then(|share| share.take()))
    }

    /// Drops the thing. If another `ArrayBuffer` has the memory, it lives as long as that.
    pub(crate) fn close(&self, buffer: Option<ArrayBuffer<'_>>) {
        let thing = self.take(buffer);
        drop((thing, self.0.take()));
    }
}

/// The memory of the thing in `owner`, as an `ArrayBuffer` that has that share of it; `None` if this
/// runtime takes only memory of its own.
///
/// # Safety
///
/// `memory` stays mapped, and writable, for as long as the thing is in `owner` and has a share.
unsafe fn external<T: 'static>(env: &Env, memory: *mut [u8], owner: Share<T>) -> Result<Option<External>> {
    let (mut value, shares) = (null_mut(), Rc::strong_count(&owner));
    let given = Rc::into_raw(Rc::clone(&owner));
    // SAFETY: the environment is that of the call under way. The memory is there until `drop_share` has
    // run, which gets the share back.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env.raw(),
            memory.cast(),
            memory.len(),
            Some(drop_share::<T>),
            given.cast_mut().cast(),
            &mut value,
        )
    };
    if status == sys::Status::napi_ok {
        return Ok(Some(External(value)));
    }
    // Some versions of Node call `drop_share` although they fail, and others do not.
    if Rc::strong_count(&owner) > shares {
        // SAFETY: it was given away above, and not given back.
        drop(unsafe { Rc::from_raw(given) });
    }
    match status {
        sys::Status::napi_no_external_buffers_allowed => Ok(None),
        _ => Err(napi::Error::from_status(Status::from(status))),
    }
}

// SAFETY: only the runtime calls it, once, with the share of the memory's owner.
unsafe extern "C" fn drop_share<T>(_env: sys::napi_env, _memory: *mut c_void, share: *mut c_void) {
    // SAFETY: `external` has given it away, and the runtime calls this once.
    drop(unsafe { Rc::from_raw(share.cast_const().cast::<RefCell<Option<T>>>()) });
}
