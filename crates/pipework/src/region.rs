//! The wall to bytes that another thread or process may touch: mapped, copied in, copied out, bounds checked, never lent.
//!
//! A peer that breaks its promises may change such bytes in the middle of a copy. The copy then holds some mixture of bytes, which is
//! all that it can do: bytes have no invalid values, and nobody here looks twice at the original.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::sync::Ranges;
use crate::sys::{Errno, memory};

/// A whole file in memory, shared with whoever else maps it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address and a length; what may be done there is decided by who uses the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Every mapping of this process.
static MAPPED: Ranges = Ranges::new();

/// Pages of a mapping that are replaced one by one before the whole of it is: each can make two more mappings, and the kernel allows a process
/// 65,530.
const HOLES: u32 = 64;

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least so long. If it is cut short later, what is gone reads as zero here.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
        memory::catch_bus_errors(|address| {
            let (mapping, holes) = MAPPED.find(address)?;
            Some(if holes < HOLES { address..address + 1 } else { mapping })
        });
        let mapping = Mapping { start: memory::map(fd, len)?, len };
        let start = mapping.start.as_ptr() as usize;
        if MAPPED.add(start, start + len) { Ok(mapping) } else { Err(Errno::NOMEM) }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes what was changed to the file's storage, and waits for it.
    pub(crate) fn write_back(&self) -> Result<(), Errno> {
        // SAFETY: it is mapped for as long as this lives.
        unsafe { memory::write_back(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPED.remove(self.start.as_ptr() as usize);
        // SAFETY: it was mapped by `new`, and whoever used its address kept this alive.
        unsafe { memory::unmap(self.start, self.len) };
    }
}

/// A range of shared bytes. Whoever made it keeps the memory behind it mapped for longer than it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: copying from and to it is all that it offers, and who may do that at which moment is decided by the owner of its bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// From `start` on, `len` bytes are mapped readable and writable for as long as this, or a part of it, is used, and no Rust reference to
    /// any of them is used meanwhile.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Region {
        Region { start, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` to the beginning; false if they do not fit.
    #[must_use]
    #[inline]
    pub(crate) fn copy_in(&self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.len;
        if fits {
            // SAFETY: the target is mapped and long enough, and nobody has a reference into it, the slice least of all.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Copies the first bytes out, as many as `bytes` holds; false if there are fewer.
    #[must_use]
    #[inline]
    pub(crate) fn copy_out(&self, bytes: &mut [u8]) -> bool {
        let fits = bytes.len() <= self.len;
        if fits {
            // SAFETY: the source is mapped and long enough; the target is exclusively borrowed, so it is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        }
        fits
    }

    /// Appends the first `len` bytes to `bytes`; false if there are fewer.
    #[must_use]
    pub(crate) fn append_to(&self, len: usize, bytes: &mut Vec<u8>) -> bool {
        let fits = len <= self.len;
        if fits {
            bytes.reserve(len);
            // SAFETY: the source is mapped and long enough; the reserved space behind the vector's end is nobody else's, and is filled
            // before it is counted.
            unsafe {
                let end = bytes.as_mut_ptr().add(bytes.len());
                std::ptr::copy_nonoverlapping(self.start.as_ptr(), end, len);
                bytes.set_len(bytes.len() + len);
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_stays_inside() {
        let mut memory = [0u8; 8];
        // SAFETY: the array lives to the end of the test and is not used until then; both regions are inside it.
        let [all, part] = [(0, 8), (2, 4)]
            .map(|(off, len)| unsafe { Region::new(NonNull::from(&mut memory).cast().add(off), len) });
        assert!(part.copy_in(b"abcd") && !part.copy_in(b"abcde"));
        let (mut out, mut appended) = ([0; 6], vec![b'x']);
        assert!(all.copy_out(&mut out) && !part.copy_out(&mut out));
        assert_eq!(&out, b"\0\0abcd");
        assert!(part.append_to(3, &mut appended) && !part.append_to(5, &mut appended));
        assert_eq!(appended, b"xabc");
    }
}
