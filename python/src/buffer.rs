//! Bytes in and out: any object with Python's buffer protocol.
//!
//! `bytes` cannot change, so they are lent as they are, also while the interpreter lock is released.
//! Everything else is copied first, because another thread could write to it meanwhile. A caller's
//! buffer is filled under the lock, after the wait; new `bytes` are filled without it if that takes
//! long.
//!
//! Without an interpreter lock, another thread may write to a buffer while it is copied, as it may
//! while any function of Python copies it. Then the copy is a mixture of both. So memory that Python's
//! code may write to is copied by address: no reference to it exists, which would promise that it
//! does not change.
//!
//! A blob is lent to Python as a buffer, by [`export`].

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::Deref;
use std::ptr::null;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi::{
    Py_buffer, Py_ssize_t, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyBytes_AsString, PyBytes_FromStringAndSize, PyObject_CheckBuffer, PyObject_GetBuffer,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interpreter;

pub(crate) fn is_bytes_like(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: it is an object, and this thread has the interpreter.
    unsafe { PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// Any bytes-like object, as an argument.
pub(crate) enum Bytes<'a, 'py> {
    Lent(Borrowed<'a, 'py, PyBytes>),
    Copied(Vec<u8>),
}

impl Deref for Bytes<'_, '_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Lent(bytes) => bytes.as_bytes(),
            Bytes::Copied(copy) => copy,
        }
    }
}

impl AsRef<[u8]> for Bytes<'_, '_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Bytes<'a, 'py>> {
        interpreter::park_at_the_end();
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Bytes::Lent(bytes)),
            Err(_) => Ok(Bytes::Copied(Exported::of(&object, PyBUF_SIMPLE)?.into_copy(object.py()))),
        }
    }
}

/// Any bytes-like object that is copied once, to where it is to lie.
pub(crate) enum Source<'a, 'py> {
    Bytes(Borrowed<'a, 'py, PyBytes>),
    Exported(Exported, Python<'py>),
}

impl Source<'_, '_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.as_bytes().len(),
            Source::Exported(exported, _) => exported.len(),
        }
    }

    /// `to` has that length.
    pub(crate) fn copy_to(&self, py: Python<'_>, to: &mut [u8]) {
        match self {
            Source::Bytes(bytes) => {
                let bytes = bytes.as_bytes();
                unless_small(py, bytes.len(), || to.copy_from_slice(bytes));
            }
            Source::Exported(exported, _) => exported.copy_to(py, to),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Source<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Source<'a, 'py>> {
        interpreter::park_at_the_end();
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Source::Bytes(bytes)),
            Err(_) => Ok(Source::Exported(Exported::of(&object, PyBUF_SIMPLE)?, object.py())),
        }
    }
}

impl Drop for Source<'_, '_> {
    fn drop(&mut self) {
        if let Source::Exported(exported, py) = self {
            exported.release(*py);
        }
    }
}

/// A writable buffer that belongs to the caller. It cannot be resized while this is there.
pub(crate) struct Space<'py> {
    exported: Exported,
    py: Python<'py>,
}

impl Space<'_> {
    pub(crate) fn len(&self) -> usize {
        self.exported.len()
    }

    /// Has `write` fill the beginning. It needs `most` bytes, and gets fewer if there are no more. It
    /// returns how many it has written, and another result.
    pub(crate) fn write<T, E>(
        &mut self,
        py: Python<'_>,
        most: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(usize, T), E>,
    ) -> Result<(usize, T), E> {
        let space = self.len();
        if space > 0 && interpreter::has_lock(py) {
            // SAFETY: the buffer was exported as writable and has that many bytes, for as long as this
            // is there. The interpreter lock is held while `write` runs, so no Python code reads or
            // writes them meanwhile.
            return write(unsafe { std::slice::from_raw_parts_mut(self.exported.0.buf.cast(), space) });
        }
        let mut copy = vec![0; most.min(space)];
        let (len, other) = write(&mut copy)?;
        self.fill(0, &copy[..len]);
        Ok((len, other))
    }

    /// Copies `data` to the place `at`; both must lie within the buffer.
    pub(crate) fn fill(&mut self, at: usize, data: &[u8]) {
        assert!(data.len() <= self.len() && at <= self.len() - data.len(), "the caller has looked at len()");
        if data.is_empty() {
            return;
        }
        // SAFETY: the buffer was exported as writable and has `len` bytes, of which these are
        // within; `data` is no part of it, as nothing of the core lies in a Python object.
        unsafe {
            self.exported.0.buf.cast::<u8>().add(at).copy_from_nonoverlapping(data.as_ptr(), data.len())
        };
    }
}

impl<'py> FromPyObject<'_, 'py> for Space<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Space<'py>> {
        interpreter::park_at_the_end();
        Ok(Space { exported: Exported::of(&object, PyBUF_WRITABLE)?, py: object.py() })
    }
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        self.exported.release(self.py);
    }
}

/// Bytes-like, valid without limit and without the interpreter lock: the data that a task sends.
pub(crate) enum Held {
    /// The address of its bytes is taken once: they neither move nor change.
    Bytes {
        _object: Py<PyBytes>,
        start: *const u8,
        len: usize,
    },
    Copied(Vec<u8>),
}

// SAFETY: a `Py` may go to any thread; the pointer leads into its object, which is alive as long as
// it is, and whose bytes never change.
unsafe impl Send for Held {}
// SAFETY: as above: all that is shared is read.
unsafe impl Sync for Held {}

impl Bytes<'_, '_> {
    /// The same, for longer than a call.
    pub(crate) fn hold(self) -> Held {
        match self {
            Bytes::Lent(bytes) => {
                let (start, len) = (bytes.as_bytes().as_ptr(), bytes.as_bytes().len());
                Held::Bytes { _object: bytes.to_owned().unbind(), start, len }
            }
            Bytes::Copied(copy) => Held::Copied(copy),
        }
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the object is alive, as `self` refers to it, and its bytes lie there and
            // never change.
            Held::Bytes { start, len, .. } => unsafe { std::slice::from_raw_parts(*start, *len) },
            Held::Copied(copy) => copy,
        }
    }
}

/// New `bytes` with these pieces, one after the other.
pub(crate) fn bytes<const N: usize>(py: Python<'_>, pieces: [&[u8]; N]) -> PyResult<Py<PyBytes>> {
    let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
    if N == 1 && len <= SMALL {
        return Ok(PyBytes::new(py, pieces[0]).unbind());
    }
    let (made, mut space) = unfilled(py, len)?;
    unless_small(py, len, move || {
        for piece in pieces {
            space = space.fill(piece);
        }
    });
    Ok(made)
}

/// New `bytes` of that length; `fill` writes all of them, without the interpreter lock.
pub(crate) fn filled<T: Send>(
    py: Python<'_>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> T + Send,
) -> PyResult<(Py<PyBytes>, T)> {
    let (made, space) = unfilled(py, len)?;
    let filled = unless_small(py, len, move || {
        let Fresh(start) = space.zeroed(len);
        // SAFETY: the object has `len` bytes there, which are zero, and no other code knows of it.
        fill(unsafe { std::slice::from_raw_parts_mut(start, len) })
    });
    Ok((made, filled))
}

/// New `bytes` with space that is still to be written.
fn unfilled(py: Python<'_>, len: usize) -> PyResult<(Py<PyBytes>, Fresh)> {
    let wanted = Py_ssize_t::try_from(len).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: without bytes to copy, the function makes an object with space for `wanted`, or sets
    // an exception.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, PyBytes_FromStringAndSize(null(), wanted)) }?;
    let made = made.cast_into::<PyBytes>()?;
    // SAFETY: it is such an object.
    let space = Fresh(unsafe { PyBytes_AsString(made.as_ptr()) }.cast());
    Ok((made.unbind(), space))
}

/// The rest of the space in an object that no other code has seen yet.
struct Fresh(*mut u8);

// SAFETY: until `bytes` returns, only its owner knows of the object.
unsafe impl Send for Fresh {}

impl Fresh {
    /// The same, with `len` zeros in it.
    fn zeroed(self, len: usize) -> Fresh {
        // SAFETY: the space has at least `len` bytes.
        unsafe { self.0.write_bytes(0, len) };
        self
    }

    fn fill(self, piece: &[u8]) -> Fresh {
        // SAFETY: `bytes` made space for all pieces, and this is the place of this one; nothing of
        // the core lies in a Python object.
        unsafe {
            self.0.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            Fresh(self.0.add(piece.len()))
        }
    }
}

/// Up to this many bytes, copying takes less time than giving the interpreter lock away and getting
/// it again.
pub(crate) const SMALL: usize = 16 << 10;

/// Does `work` that copies `len` bytes: without the interpreter lock, unless `len` is small.
pub(crate) fn unless_small<T: Send>(py: Python<'_>, len: usize, work: impl FnOnce() -> T + Send) -> T {
    if len <= SMALL { work() } else { py.detach(work) }
}

/// The memory of an object that Python's code reads, or writes to, in place.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    start: *const u8,
    len: usize,
    is_writable: bool,
}

// SAFETY: it is an address and a length; `export` says who may use them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn to_read(bytes: &[u8]) -> Memory {
        Memory { start: bytes.as_ptr(), len: bytes.len(), is_writable: false }
    }

    pub(crate) fn to_write(bytes: &mut [u8]) -> Memory {
        Memory { start: bytes.as_mut_ptr(), len: bytes.len(), is_writable: true }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Fills in `view`: a buffer of `owner`, whose memory this is. For the `__getbuffer__` of its class.
///
/// # Safety
///
/// `view` is the one that `__getbuffer__` got, with no object in it. Until `owner` is dropped and this
/// buffer was released, the memory is there; no Rust code refers to it if Python may write to it, and
/// no code writes to it if Python may not.
pub(crate) unsafe fn export(
    owner: &Bound<'_, PyAny>,
    memory: Memory,
    view: *mut Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let Memory { start, len, is_writable } = memory;
    let (start, len) = (start.cast_mut().cast(), Py_ssize_t::try_from(len)?);
    // SAFETY: the caller vouches for `view`, into which the function puts `owner` with a reference of
    // its own; if it fails, it sets an exception.
    let filled =
        unsafe { PyBuffer_FillInfo(view, owner.as_ptr(), start, len, c_int::from(!is_writable), flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// A contiguous row of bytes that an object has exported.
pub(crate) struct Exported(Box<Py_buffer>);

impl Exported {
    fn of(object: &Bound<'_, PyAny>, how: c_int) -> PyResult<Exported> {
        let mut buffer = Box::new(Py_buffer::new());
        // SAFETY: the object is alive and this thread attached; on success the function has filled
        // the structure in.
        let got = unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *buffer, how) };
        if got == 0 { Ok(Exported(buffer)) } else { Err(PyErr::fetch(object.py())) }
    }

    fn len(&self) -> usize {
        usize::try_from(self.0.len).unwrap_or(0)
    }

    /// Copies the bytes to `to`, which has the same length.
    fn copy_to(&self, _py: Python<'_>, to: &mut [u8]) {
        assert_eq!(to.len(), self.len());
        if to.is_empty() {
            return;
        }
        // SAFETY: the buffer has that many bytes, and they are not those of `to`, which no other code
        // has.
        unsafe { self.0.buf.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    /// A copy of the bytes; the buffer is given back.
    fn into_copy(mut self, py: Python<'_>) -> Vec<u8> {
        let len = self.len();
        let mut copy = Vec::with_capacity(len);
        if len > 0 {
            // SAFETY: the buffer has `len` bytes, and the copy has space for as many.
            unsafe {
                self.0.buf.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr(), len);
                copy.set_len(len);
            }
        }
        self.release(py);
        copy
    }

    /// Gives the buffer back. A second time does nothing.
    fn release(&mut self, _py: Python<'_>) {
        // SAFETY: the structure was filled in by `PyObject_GetBuffer`; released ones have no object
        // and are left alone.
        unsafe { PyBuffer_Release(&mut *self.0) };
    }
}
