//! Bytes that are lent, and memory that the library grows.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::edge::{InOut, Lent, Name, Out, get, overlaps, run};
use crate::error::{PWK_OK, Result, pwk_error, pwk_status};

/// Bytes that are lent: the library's until the next call on the handle that they came from, or the
/// program's for the length of a call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_bytes {
    /// The first byte; may be NULL if `len` is 0.
    pub data: Lent<'static, c_void>,
    /// How many.
    pub len: usize,
}

/// Memory that the library lends, to be written.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct pwk_space {
    /// The first byte; may be NULL if `len` is 0.
    data: *mut c_void,
    /// How many bytes.
    len: usize,
}

/// Memory that the library grows as getline does, to be used again and again. A program sets it to
/// PWK_BUFFER before the first use, reads `data` and `len`, and gives it to pwk_buffer_free in the
/// end. One thread at a time.
#[repr(C)]
pub struct pwk_buffer {
    /// The bytes of the buffer. They may move with every call that fills the buffer.
    data: *mut c_void,
    /// How many bytes.
    len: usize,
    /// The allocated memory, in bytes. Only the library writes this.
    capacity: usize,
}

/// An empty buffer, to initialise one with.
pub const PWK_BUFFER: pwk_buffer = pwk_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };

/// Makes space for `capacity` bytes in all, so that a call which needs no more does not ask for
/// memory. The bytes in the buffer stay there.
///
/// Fails with PWK_OS and ENOMEM if the memory does not suffice.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_buffer_reserve(
    buffer: InOut<'_, pwk_buffer>,
    capacity: usize,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_buffer_reserve", error, |name| {
        let mut bytes = name.given(buffer)?.lend(name)?;
        let more = capacity.saturating_sub(bytes.len());
        bytes.try_reserve_exact(more).map_err(|_| name.no_memory())?;
        Ok(PWK_OK)
    })
}

/// Gives the memory back. The buffer is empty then, and may be used again. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_buffer_free(buffer: InOut<'_, pwk_buffer>) {
    get((), || {
        if let Some(buffer) = buffer
            && let Ok(mut bytes) = buffer.lend(Name::NONE)
        {
            drop(std::mem::take(&mut *bytes));
        }
    });
}

// ---------------------------------------------------------------- on this side

impl pwk_bytes {
    pub(crate) const NONE: pwk_bytes = pwk_bytes { data: Lent::NULL, len: 0 };

    /// Bytes of the library's, for C to read.
    pub(crate) fn lend(bytes: &[u8]) -> pwk_bytes {
        pwk_bytes { data: Lent::to_c(bytes), len: bytes.len() }
    }

    /// Bytes of the program's.
    #[inline]
    pub(crate) fn read(&self, name: Name) -> Result<&[u8]> {
        self.data.bytes(self.len, name)
    }
}

impl pwk_space {
    pub(crate) const NONE: pwk_space = pwk_space { data: ptr::null_mut(), len: 0 };

    /// Memory of the library's, for C to write.
    pub(crate) fn lend(space: &mut [u8]) -> pwk_space {
        pwk_space { data: space.as_mut_ptr().cast(), len: space.len() }
    }
}

impl pwk_buffer {
    /// Its memory as a vector, until that is dropped.
    #[inline]
    pub(crate) fn lend(&mut self, name: Name) -> Result<Lending<'_>> {
        let bytes = match (self.data.is_null(), self.capacity) {
            (true, 0) if self.len == 0 => Vec::new(),
            (false, 1..) if self.len <= self.capacity => {
                // SAFETY: only this file writes data and capacity, and both are those of a vector
                // that was taken apart below. So many of its bytes have been written.
                unsafe { Vec::from_raw_parts(self.data.cast(), self.len, self.capacity) }
            }
            _ => return Err(name.invalid()),
        };
        Ok(Lending { buffer: self, bytes: ManuallyDrop::new(bytes) })
    }

    /// The same, where `bytes` are read meanwhile: they must lie elsewhere.
    #[inline]
    pub(crate) fn lend_beside(&mut self, bytes: &[u8], name: Name) -> Result<Lending<'_>> {
        if overlaps(bytes, self.data, self.capacity) {
            return Err(name.invalid());
        }
        self.lend(name)
    }
}

/// The memory of a buffer, as a vector.
pub(crate) struct Lending<'a> {
    buffer: &'a mut pwk_buffer,
    bytes: ManuallyDrop<Vec<u8>>,
}

impl Deref for Lending<'_> {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Lending<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Lending<'_> {
    #[inline]
    fn drop(&mut self) {
        let (bytes, buffer) = (&mut self.bytes, &mut *self.buffer);
        buffer.capacity = bytes.capacity();
        buffer.len = bytes.len();
        // A vector without memory has a pointer that means nothing to C.
        buffer.data = if buffer.capacity == 0 { ptr::null_mut() } else { bytes.as_mut_ptr().cast() };
    }
}
