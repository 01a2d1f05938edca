//! The boundary to bytes that another thread or process may touch: mapped, copied in, copied out,
//! bounds checked, never lent.
//!
//! A misbehaving peer may change such bytes in the middle of a copy. The copy then holds some
//! mixture of bytes, and that is the only effect: bytes have no invalid values, and no code here
//! reads the original twice.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::sync::{self, Range, Ranges};
use crate::sys::{Errno, memory};

/// A whole file in memory, shared with all other processes that map it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Its entry in the list of mapped ranges of this process.
    place: &'static Range,
}

// SAFETY: it is an address and a length; the code that uses the address upholds the rules of
// access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Every mapping of this process.
static MAPPED: Ranges = Ranges::new();

/// How many pages of a mapping are replaced one by one before the whole mapping is. Each can add
/// two more mappings, and the kernel allows a process 65,530.
const HOLES: u32 = 64;

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least that long. If the file is truncated
    /// later, the missing part reads as zero here.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
        Mapping::with_access(fd, len, false)
    }

    /// As `new`; any write to it ends this process if it is `only_to_read`.
    pub(crate) fn with_access(fd: BorrowedFd<'_>, len: usize, only_to_read: bool) -> Result<Mapping, Errno> {
        {
            // No fork in here: a child could wait for ever for the thread that is in here.
            let _forks_wait = sync::no_forks();
            memory::catch_bus_errors(|address| {
                let (mapping, holes) = MAPPED.find(address)?;
                Some(if holes < HOLES { address..address + 1 } else { mapping })
            });
        }
        let start = memory::map(fd, len, only_to_read)?;
        let address = start.as_ptr() as usize;
        Ok(Mapping { start, len, place: MAPPED.add(address, address + len) })
    }

    /// False once a page was missing when it was touched: its replacement is not shared.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        !self.place.was_found()
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the changes to the file's storage, and blocks until that is done.
    pub(crate) fn write_back(&self) -> Result<(), Errno> {
        // SAFETY: it is mapped for as long as `self` lives.
        unsafe { memory::write_back(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPED.remove(self.place);
        // SAFETY: it was mapped by `new`, and every user of its address kept this alive.
        unsafe { memory::unmap(self.start, self.len) };
    }
}

/// A range of shared bytes. Its creator keeps the memory mapped for longer than the region lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
    /// `len`, plus the padding behind it that may be read as well.
    space: usize,
    /// See [`overtaken`](Region::overtaken).
    #[cfg(thread_sanitizer)]
    is_overtaken: bool,
}

// SAFETY: it only copies from and to its bytes, and their owner decides which thread may do that
// when.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// The `space` bytes from `start` on are mapped readable and writable for as long as this region, or
    /// a part of it, is used, and no Rust reference to any of them is used meanwhile. `space` is at least
    /// `len`.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize, space: usize) -> Region {
        debug_assert!(len <= space);
        Region {
            start,
            len,
            space,
            #[cfg(thread_sanitizer)]
            is_overtaken: false,
        }
    }

    /// The same bytes, for a copy that another copy may overtake: its owner finds that out afterwards, and
    /// throws away what was copied out. ThreadSanitizer would take that for an error, so for it such bytes
    /// are copied one by one, each atomically. Both sides have to say so; it still finds a copy that is not
    /// expected to be overtaken.
    #[inline]
    pub(crate) fn overtaken(self) -> Region {
        Region {
            #[cfg(thread_sanitizer)]
            is_overtaken: true,
            ..self
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first `len` bytes of the region; `None` if it has fewer.
    pub(crate) fn first(self, len: usize) -> Option<Region> {
        (len <= self.len).then_some(Region { len, ..self })
    }

    /// The region without its first `len` bytes; `None` if it has fewer.
    pub(crate) fn rest(self, len: usize) -> Option<Region> {
        if len > self.len {
            return None;
        }
        // SAFETY: the address is inside the region, or one past its end.
        let start = unsafe { self.start.add(len) };
        Some(Region {
            start,
            len: self.len - len,
            space: self.space - len,
            #[cfg(thread_sanitizer)]
            is_overtaken: self.is_overtaken,
        })
    }

    /// Copies `bytes` to the beginning; returns false if they do not fit.
    #[must_use]
    #[inline]
    pub(crate) fn copy_in(&self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.len;
        if fits {
            #[cfg(thread_sanitizer)]
            if self.is_overtaken {
                for (at, byte) in bytes.iter().enumerate() {
                    self.byte(at).store(*byte, sync::Ordering::Relaxed);
                }
                return true;
            }
            // SAFETY: the target is mapped and long enough, and no reference points into it, so the
            // slice does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Copies the first `len` bytes out, and possibly some of the padding; returns false if the
    /// region or `bytes` is shorter than `len`.
    #[must_use]
    #[inline]
    pub(crate) fn copy_few<const N: usize>(&self, len: usize, bytes: &mut [u8; N]) -> bool {
        let fits = len <= self.len && len <= N;
        if fits {
            #[cfg(thread_sanitizer)]
            if self.is_overtaken {
                bytes[..len].iter_mut().enumerate().for_each(|(at, byte)| *byte = self.load(at));
                return true;
            }
            // SAFETY: both are at least `len` bytes long, and the target is borrowed exclusively.
            unsafe { self.copy_rounded::<N>(len, bytes.as_mut_ptr()) };
        }
        fits
    }

    #[cfg(thread_sanitizer)]
    fn byte(&self, at: usize) -> &sync::AtomicU8 {
        assert!(at < self.len);
        // SAFETY: it is inside the region, and both sides of a copy that may be overtaken come here.
        unsafe { sync::AtomicU8::from_ptr(self.start.as_ptr().add(at)) }
    }

    #[cfg(thread_sanitizer)]
    fn load(&self, at: usize) -> u8 {
        self.byte(at).load(sync::Ordering::Relaxed)
    }

    /// For a few bytes, a copy of fixed size compiles to one or two moves. It also avoids a stall
    /// when the bytes are moved on: no wide load waits for narrow stores.
    ///
    /// # Safety
    ///
    /// The region has at least `len` bytes. `to` has space for N bytes, N is at least `len`, and
    /// `to` does not overlap the region.
    #[inline]
    unsafe fn copy_rounded<const N: usize>(&self, len: usize, to: *mut u8) {
        let whole = match len {
            ..=16 if N >= 16 => 16,
            ..=32 if N >= 32 => 32,
            _ => N,
        };
        let len = if whole <= self.space { whole } else { len };
        let from = self.start.as_ptr();
        // SAFETY: the source is mapped for `space` bytes, and the target has N; `len` is at most
        // both.
        unsafe {
            match len {
                16 => std::ptr::copy_nonoverlapping(from, to, 16),
                32 => std::ptr::copy_nonoverlapping(from, to, 32),
                _ if len == N => std::ptr::copy_nonoverlapping(from, to, N),
                _ => std::ptr::copy_nonoverlapping(from, to, len),
            }
        }
    }

    /// Fills `bytes` from the beginning; returns false if the region is shorter.
    #[must_use]
    pub(crate) fn copy_out(&self, bytes: &mut [u8]) -> bool {
        let fits = bytes.len() <= self.len;
        if fits {
            // SAFETY: the source is mapped and long enough, and no reference points into it, so the
            // target does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        }
        fits
    }

    /// Appends the first `len` bytes to `bytes`; returns false if the region is shorter. `NOMEM` if
    /// memory for that many cannot be allocated.
    #[inline]
    pub(crate) fn append_to(&self, len: usize, bytes: &mut Vec<u8>) -> Result<bool, Errno> {
        /// Up to this length, a copy of fixed size is worth reserving space for.
        const FEW: usize = 64;
        if len > self.len {
            return Ok(false);
        }
        let space = len.max(FEW);
        if bytes.capacity() - bytes.len() < space {
            reserve(bytes, space)?;
        }
        #[cfg(thread_sanitizer)]
        if self.is_overtaken {
            bytes.extend((0..len).map(|at| self.load(at)));
            return Ok(true);
        }
        // SAFETY: the source is mapped and long enough; the reserved space behind the vector's end
        // belongs to the vector, and is filled before it is counted.
        unsafe {
            let end = bytes.as_mut_ptr().add(bytes.len());
            match len {
                ..=FEW => self.copy_rounded::<FEW>(len, end),
                _ => std::ptr::copy_nonoverlapping(self.start.as_ptr(), end, len),
            }
            bytes.set_len(bytes.len() + len);
        }
        Ok(true)
    }
}

/// Reserves space for `more` bytes.
#[cold]
pub(crate) fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Errno> {
    /// From this size on, large pages save more than they can waste.
    const LARGE: usize = 4 << 20;
    let before = bytes.capacity();
    bytes.try_reserve(more).map_err(|_| Errno::NOMEM)?;
    if bytes.capacity() >= LARGE && bytes.capacity() != before {
        memory::prefer_large_pages(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_inside_the_region() {
        let mut memory = [0u8; 8];
        // SAFETY: the array lives to the end of the test and is not used until then; both regions
        // are inside it.
        let [all, part] = [(0, 8), (2, 4)]
            .map(|(off, len)| unsafe { Region::new(NonNull::from(&mut memory).cast().add(off), len, len) });
        assert!(part.copy_in(b"abcd") && !part.copy_in(b"abcde"));
        let (mut out, mut appended) = ([0; 6], vec![b'x']);
        assert!(all.copy_few(6, &mut out) && !part.copy_few(6, &mut out));
        assert_eq!(&out, b"\0\0abcd");
        assert_eq!(
            (part.append_to(3, &mut appended), part.append_to(5, &mut appended)),
            (Ok(true), Ok(false))
        );
        assert_eq!(appended, b"xabc");
    }

    #[test]
    fn copy_few_copies_the_bytes_with_and_without_padding() {
        let mut memory = std::array::from_fn::<u8, 64, _>(|at| at as u8);
        let start = NonNull::from(&mut memory).cast();
        for (len, space) in
            [(0, 0), (5, 5), (5, 15), (5, 16), (16, 17), (17, 64), (32, 48), (48, 48), (48, 64)]
        {
            // SAFETY: the array lives to the end of the test and is not used until then; the region
            // is inside it.
            let region = unsafe { Region::new(start, len, space) };
            for few in 0..=len {
                let mut bytes = [0xFF; 48];
                assert!(region.copy_few(few, &mut bytes), "{few} of {len} in {space}");
                assert!(
                    bytes[..few].iter().zip(0..).all(|(byte, at)| *byte == at),
                    "{few} of {len} in {space}"
                );
            }
            assert!(!region.copy_few(len + 1, &mut [0; 48]) && !region.copy_few(len.max(1), &mut [0; 0]));
        }
        assert!(memory.iter().zip(0..).all(|(byte, at)| *byte == at));
    }

    #[test]
    fn append_of_many_bytes_uses_large_pages() {
        if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            return; // This kernel has no large pages.
        }
        let mut memory = vec![7; 64 << 10];
        // SAFETY: the vector lives to the end of the test and is not used meanwhile.
        let region = unsafe { Region::new(NonNull::from(&mut memory[0]), 64 << 10, 64 << 10) };
        let mut bytes = Vec::new();
        (0..128).for_each(|_| assert_eq!(region.append_to(64 << 10, &mut bytes), Ok(true)));
        assert!(bytes.len() == 8 << 20 && bytes.iter().all(|byte| *byte == 7));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let place = bytes.as_ptr().addr();
        let is_its = |line: &&str| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            range.is_some_and(|(start, end)| {
                let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16));
                start.is_ok_and(|start| start <= place) && end.is_ok_and(|end| place < end)
            })
        };
        let flags = maps.lines().skip_while(|line| !is_its(line)).find(|line| line.starts_with("VmFlags"));
        assert!(flags.is_some_and(|flags| flags.contains(" hg")), "{flags:?}");
    }
}
