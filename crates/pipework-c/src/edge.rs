//! Boundary: values that C hands in, and results that it gets back.
//!
//! The head of the header lists the promises of a C program. The types of arguments represent them:
//! only C can make a [`Lent`], a [`Space`] or a [`Number`], and code that has one may rely on its
//! promise. This file knows no module.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::slice;

use libc::{pollfd, sockaddr, sockaddr_storage, socklen_t};
use pipework::ErrorKind;
use pipework::fd::{CWD, PollFd, PollFlags, SocketAddrAny, raw};

use crate::error::{Failure, PWK_OK, PWK_WOULD_BLOCK, Result, pwk_error, pwk_status};

/// An object that C has, or NULL.
pub(crate) type Handle<T> = Option<Box<T>>;
/// One that is lent for a call, or NULL.
pub(crate) type In<'a, T> = Option<&'a T>;
/// One that is lent to one thread for a call, or NULL.
pub(crate) type InOut<'a, T> = Option<&'a mut T>;
/// The place of a result, or NULL.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Runs the body of the function `name`: its failure is put where C wants it, and a panic ends
/// here.
#[inline]
pub(crate) fn run(
    name: &'static str,
    error: Out<'_, pwk_error>,
    body: impl FnOnce(Name) -> Result<pwk_status>,
) -> pwk_status {
    let _errno = Errno::kept();
    let failure = match catch_unwind(AssertUnwindSafe(|| body(Name(name)))) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        // Its text went to standard error.
        Err(_) => Failure::bug(name),
    };
    if let Some(error) = error {
        error.write(failure.to_c());
    }
    failure.status()
}

/// As [`run`], for functions that return a number or a pointer, and no status: `or` after a panic.
#[inline]
pub(crate) fn get<T>(or: T, body: impl FnOnce() -> T) -> T {
    let _errno = Errno::kept();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(or)
}

/// As [`run`], for functions that return nothing and free their argument.
pub(crate) fn free<T>(handle: Handle<T>) {
    get((), || drop(handle));
}

/// This thread's errno, which is put back as it was.
struct Errno {
    place: *mut c_int,
    before: c_int,
}

impl Errno {
    #[inline]
    fn kept() -> Errno {
        // SAFETY: it returns where this thread's errno is.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        Errno { place, before: unsafe { *place } }
    }
}

impl Drop for Errno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is this thread's, which no other code touches, and no thread takes an `Errno`
        // to another.
        unsafe { *self.place = self.before };
    }
}

/// The name of the function that C has called.
#[derive(Clone, Copy)]
pub(crate) struct Name(&'static str);

impl Name {
    /// For functions that report no failure.
    pub(crate) const NONE: Name = Name("");

    /// `Invalid`, from this function.
    #[cold]
    pub(crate) fn invalid(self) -> Failure {
        self.failure(ErrorKind::Invalid)
    }

    #[cold]
    pub(crate) fn failure(self, kind: ErrorKind) -> Failure {
        Failure::new(kind, self.0)
    }

    #[cold]
    pub(crate) fn no_memory(self) -> Failure {
        Failure::no_memory(self.0)
    }

    /// A pointer that must not be NULL.
    #[inline]
    pub(crate) fn given<T>(self, argument: Option<T>) -> Result<T> {
        argument.ok_or_else(|| self.invalid())
    }
}

/// The result of a function that has done its work and returns no value.
#[inline]
pub(crate) fn done(result: pipework::Result<()>) -> Result<pwk_status> {
    Ok(result.map(|()| PWK_OK)?)
}

/// The result of a `try_` function, which may have nothing now.
#[inline]
pub(crate) fn or_would_block<T>(
    found: Option<T>,
    done: impl FnOnce(T) -> Result<pwk_status>,
) -> Result<pwk_status> {
    found.map_or(Ok(PWK_WOULD_BLOCK), done)
}

/// Puts a result where C wants it, if it does.
#[inline]
pub(crate) fn put<T>(out: Out<'_, T>, value: T) -> Result<pwk_status> {
    if let Some(out) = out {
        out.write(value);
    }
    Ok(PWK_OK)
}

/// Hands a new object out.
pub(crate) fn hand_out<T>(out: &mut MaybeUninit<Handle<T>>, object: T) -> Result<pwk_status> {
    put(Some(out), Some(Box::new(object)))
}

// ---------------------------------------------------------------- memory

/// Memory that C lends for a call, to be read: an array, a string or bytes, or NULL.
#[repr(transparent)]
pub struct Lent<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Clone for Lent<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lent<'_, T> {}

/// Memory that C lends for a call, to be written, or NULL.
#[repr(transparent)]
pub struct Space<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A truth value from C, which may be any byte: in a struct that a program has left as it was, or
/// from a language that has no `bool`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Truth(u8);

impl Truth {
    pub(crate) const fn of(value: bool) -> Truth {
        Truth(value as u8)
    }

    pub(crate) fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl<'a, T> Lent<'a, T> {
    pub(crate) const NULL: Lent<'a, T> = Lent(std::ptr::null(), PhantomData);

    /// An array of `count`. NULL is one of 0.
    #[inline]
    pub(crate) fn array(self, count: usize, name: Name) -> Result<&'a [T]> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || !fits::<T>(count) {
            return Err(name.invalid());
        }
        // SAFETY: the caller lends `count` of them for the call, and they are no more than an
        // object can have.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

impl Lent<'static, c_void> {
    /// The way back: bytes that the library lends, in a struct for C. Nothing here reads them.
    pub(crate) fn to_c(bytes: &[u8]) -> Lent<'static, c_void> {
        Lent(bytes.as_ptr().cast(), PhantomData)
    }
}

impl<'a> Lent<'a, c_void> {
    /// Bytes.
    #[inline]
    pub(crate) fn bytes(self, len: usize, name: Name) -> Result<&'a [u8]> {
        Lent(self.0.cast::<u8>(), PhantomData).array(len, name)
    }
}

impl<'a> Lent<'a, c_char> {
    /// A string, which ends with NUL.
    pub(crate) fn text(self, name: Name) -> Result<&'a CStr> {
        if self.0.is_null() {
            return Err(name.invalid());
        }
        // SAFETY: the caller lends a string for the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// A path.
    pub(crate) fn path(self, name: Name) -> Result<&'a Path> {
        Ok(Path::new(OsStr::from_bytes(self.text(name)?.to_bytes())))
    }
}

impl<'a, T> Space<'a, T> {
    /// An uninitialized array of `count`. NULL is one of 0.
    #[inline]
    pub(crate) fn array(self, count: usize, name: Name) -> Result<&'a mut [MaybeUninit<T>]> {
        if count == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() || !fits::<T>(count) {
            return Err(name.invalid());
        }
        // SAFETY: the caller lends space for `count`, no other code uses it during the call, and
        // any bits are good for `MaybeUninit`.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), count) })
    }
}

impl<'a> Space<'a, c_void> {
    /// Bytes.
    pub(crate) fn bytes(self, len: usize, name: Name) -> Result<&'a mut [u8]> {
        let bytes: &mut [MaybeUninit<u8>] = Space(self.0.cast::<u8>(), PhantomData).array(len, name)?;
        // SAFETY: memory of another language holds bytes, whichever they are; and nothing here
        // reads them before they are written.
        Ok(unsafe { &mut *(&raw mut *bytes as *mut [u8]) })
    }

    /// The same, where others are read meanwhile: they must lie elsewhere.
    pub(crate) fn bytes_beside(self, len: usize, read: &[u8], name: Name) -> Result<&'a mut [u8]> {
        if overlaps(read, self.0, len) { Err(name.invalid()) } else { self.bytes(len, name) }
    }
}

/// Whether bytes lie where others are to be written, if only some: C may lend the same memory
/// twice.
#[inline]
pub(crate) fn overlaps(bytes: &[u8], space: *const c_void, len: usize) -> bool {
    let (one, two) = (bytes.as_ptr() as usize, space as usize);
    !bytes.is_empty() && one < two.saturating_add(len) && two < one + bytes.len()
}

impl<'a> Space<'a, c_char> {
    /// A string, to be changed in place.
    pub(crate) fn text(self, name: Name) -> Result<&'a mut [u8]> {
        let len = Lent(self.0.cast_const(), PhantomData).text(name)?.count_bytes();
        // SAFETY: `len` bytes are the string that the caller lends, to be written.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}

impl<'a> Space<'a, pollfd> {
    /// An array of `count`, and the descriptors in it: those whose numbers are not negative.
    pub(crate) fn polled(self, count: usize, name: Name) -> Result<(&'a mut [pollfd], Vec<PollFd<'a>>)> {
        let space = self.array(count, name)?;
        // SAFETY: the caller has filled it in, with numbers.
        let all = unsafe { &mut *(&raw mut *space as *mut [pollfd]) };
        let lent = all.iter().filter(|one| one.fd >= 0).map(|one| {
            // SAFETY: the caller keeps it open for the call.
            let fd = unsafe { raw::borrow(one.fd) }?;
            Ok(PollFd::from_borrowed_fd(fd, PollFlags::from_bits_retain(one.events as u16)))
        });
        let lent = lent.collect::<Result<_>>()?;
        Ok((all, lent))
    }
}

fn fits<T>(count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|len| len <= isize::MAX as usize)
}

// ---------------------------------------------------------------- structs that may grow

/// A struct to which later versions add fields, at its end.
///
/// # Safety
///
/// Any bytes are good for any of its fields.
pub unsafe trait Growing: Copy {}

/// One that comes in: its first field is its size as the program was compiled.
///
/// # Safety
///
/// It begins with a field `size: usize`.
pub unsafe trait Options: Growing {
    /// The value if a program sets none.
    const DEFAULT: Self;
}

impl<T: Options> Lent<'_, T> {
    /// The options, and the defaults for those that the program does not know. NULL is the
    /// defaults.
    pub(crate) fn options(self, name: Name) -> Result<T> {
        let mut options = T::DEFAULT;
        if self.0.is_null() {
            return Ok(options);
        }
        // SAFETY: a size is the first of the fields.
        let size = unsafe { self.0.cast::<usize>().read() };
        if size < size_of::<usize>() {
            return Err(name.invalid());
        }
        let given = Lent(self.0.cast::<u8>(), PhantomData).array(size, name)?;
        let (known, unknown) = given.split_at(size.min(size_of::<T>()));
        // Fields that this library does not know must be zero, as if they were not there.
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(name.invalid());
        }
        // SAFETY: no more than its size is written, and any bytes are good for its fields.
        unsafe { (&raw mut options).cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
        Ok(options)
    }
}

impl<T: Options> Space<'_, T> {
    /// Fills in the defaults.
    pub(crate) fn init(self, size: usize) -> Result<pwk_status> {
        let place: *mut T = self.0;
        let filled = self.fill(&T::DEFAULT, size, Name::NONE)?;
        if size >= size_of::<usize>() {
            // SAFETY: a size is the first of the fields, and has space there. It is that of the
            // program, which may know more or less than this library.
            unsafe { place.cast::<usize>().write(size) };
        }
        Ok(filled)
    }
}

impl<T: Growing> Space<'_, T> {
    /// Fills in as much as the program knows, and zeros beyond what this library knows.
    pub(crate) fn fill(self, value: &T, size: usize, name: Name) -> Result<pwk_status> {
        let space = Space(self.0.cast::<u8>(), PhantomData).array(size, name)?;
        if size == 0 {
            return Err(name.invalid());
        }
        let (known, unknown) = space.split_at_mut(size.min(size_of::<T>()));
        // SAFETY: `value` is as long, and its padding may be any bytes.
        let bytes = unsafe { slice::from_raw_parts((&raw const *value).cast(), known.len()) };
        known.copy_from_slice(bytes);
        unknown.fill(MaybeUninit::new(0));
        Ok(PWK_OK)
    }
}

// ---------------------------------------------------------------- descriptors

/// The number of a descriptor that C lends for a call or for the life of a handle, or gives.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Number(c_int);

impl Number {
    /// The descriptor, for as long as the call.
    pub(crate) fn lend(&self) -> Result<BorrowedFd<'_>> {
        // SAFETY: the caller keeps it open for the call.
        unsafe { raw::borrow(self.0) }.map_err(Failure::from)
    }

    /// The descriptor, valid as long as the object that is made with it.
    pub(crate) fn lend_on(self) -> Result<BorrowedFd<'static>> {
        // SAFETY: the caller keeps it open for as long as the handle.
        unsafe { raw::borrow(self.0) }.map_err(Failure::from)
    }

    /// The folder that it is, or the current one for AT_FDCWD.
    pub(crate) fn folder(&self) -> Result<BorrowedFd<'_>> {
        if self.0 == libc::AT_FDCWD { Ok(CWD) } else { self.lend() }
    }

    /// A duplicate of it, which is the library's.
    pub(crate) fn duplicate(self, name: Name) -> Result<OwnedFd> {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        self.lend()?.try_clone_to_owned().map_err(|error| Failure::of_os(name.0, errno(error)))
    }

    /// The descriptor, which is the library's from now on.
    pub(crate) fn take(self, name: Name) -> Result<OwnedFd> {
        // SAFETY: it asks for flags, if the number is that of a descriptor.
        if unsafe { libc::fcntl(self.0, libc::F_GETFD) } < 0 {
            return Err(Failure::of_os(name.0, libc::EBADF));
        }
        // SAFETY: it is open, and the caller has given it away.
        Ok(unsafe { OwnedFd::from_raw_fd(self.0) })
    }
}

/// Closes a descriptor that C gives up.
pub(crate) fn close_range(first: u32, last: u32) -> pipework::Result<()> {
    // SAFETY: the caller has promised that no handle has one of them.
    unsafe { raw::close_range(first, last) }
}

// ---------------------------------------------------------------- addresses

impl Lent<'_, sockaddr> {
    /// An address of that length. NULL is none.
    pub(crate) fn address(self, len: socklen_t, name: Name) -> Result<Option<SocketAddrAny>> {
        if self.0.is_null() {
            return Ok(None);
        }
        if !(size_of::<libc::sa_family_t>()..=size_of::<sockaddr_storage>()).contains(&(len as usize)) {
            return Err(name.invalid());
        }
        // SAFETY: it is as long as its family at least, which may lie anywhere.
        let family = unsafe { (&raw const (*self.0).sa_family).read_unaligned() };
        // A program may say how much space it has for an address, and not how long that is.
        let (least, most) = match c_int::from(family) {
            libc::AF_INET => (size_of::<libc::sockaddr_in>(), size_of::<libc::sockaddr_in>()),
            libc::AF_INET6 => (size_of::<libc::sockaddr_in6>(), size_of::<libc::sockaddr_in6>()),
            _ => (0, len as usize),
        };
        if (len as usize) < least {
            return Err(name.invalid());
        }
        // SAFETY: the caller lends `most` bytes, which are enough for the family.
        Ok(Some(unsafe { SocketAddrAny::read(self.0.cast(), most as socklen_t) }))
    }
}

impl Lent<'static, sockaddr> {
    /// The way back, as [`Lent::to_c`], with its length.
    pub(crate) fn address_to_c(address: Option<&SocketAddrAny>) -> (Lent<'static, sockaddr>, socklen_t) {
        let (place, len) =
            address.map_or((std::ptr::null(), 0), |address| (address.as_ptr().cast(), address.addr_len()));
        (Lent(place, PhantomData), len)
    }
}

/// The same, copied, and zeros behind it.
pub(crate) fn address_to_c(address: Option<&SocketAddrAny>) -> (sockaddr_storage, socklen_t) {
    // SAFETY: numbers.
    let mut copy: sockaddr_storage = unsafe { zeroed() };
    let Some(address) = address else { return (copy, 0) };
    let len = address.addr_len();
    // SAFETY: an address has `len` bytes, and is never longer than the space for any.
    unsafe { (&raw mut copy).cast::<u8>().copy_from_nonoverlapping(address.as_ptr().cast(), len as usize) };
    (copy, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{PWK_BUG, PWK_INVALID};

    #[test]
    fn a_panic_is_a_status_and_the_next_call_works() {
        let mut error = MaybeUninit::zeroed();
        let _errno = Errno::kept();
        // SAFETY: it is this thread's.
        let set = |errno| unsafe { *libc::__errno_location() = errno };
        set(77);
        assert_eq!(run("pwk_client_call", Some(&mut error), |_| panic!("made for the test")), PWK_BUG);
        // SAFETY: it was filled in, and would be good if it was not.
        let filled = unsafe { error.assume_init_ref() };
        assert_eq!(
            (filled.kind, filled.to_string()),
            (PWK_BUG, "pwk_client_call: a broken invariant of pipework".into())
        );
        assert_eq!(run("pwk_client_call", None, |_| panic!("made for the test")), PWK_BUG);
        assert_eq!(get(7, || panic!("made for the test")), 7);
        assert_eq!(run("pwk_client_call", Some(&mut error), |_| Ok(PWK_OK)), PWK_OK);
        assert_eq!(run("pwk_client_call", None, |name| Err(name.invalid())), PWK_INVALID);
        assert_eq!(Errno::kept().before, 77);
    }
}
