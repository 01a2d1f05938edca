//! Sockets on plain integers, one system call each. Nothing here owns a descriptor of the caller's,
//! so no signal handler can close one.
//!
//! Calls that block give the interpreter lock away; a signal ends the system call, its handlers
//! run, and the call is made again.

use std::os::fd::{BorrowedFd, IntoRawFd};

use pipework::fd::{self, PollFd, PollFlags, SocketAddrAny};
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::address::{Address, to_python};
use super::bytes::{space_for, zeros};
use super::raw::{borrow, set_option_bytes};
use crate::buffer::{Bytes, bytes};
use crate::error::OrRaise;
use crate::imports::Import;
use crate::wait::{Used, wait};

pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(socket, module)?)?;
    module.add_function(wrap_pyfunction!(socketpair, module)?)?;
    module.add_function(wrap_pyfunction!(bind, module)?)?;
    module.add_function(wrap_pyfunction!(listen, module)?)?;
    module.add_function(wrap_pyfunction!(accept, module)?)?;
    module.add_function(wrap_pyfunction!(accept4, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(send, module)?)?;
    module.add_function(wrap_pyfunction!(recv, module)?)?;
    module.add_function(wrap_pyfunction!(recvfrom, module)?)?;
    module.add_function(wrap_pyfunction!(getsockname, module)?)?;
    module.add_function(wrap_pyfunction!(getpeername, module)?)?;
    module.add_function(wrap_pyfunction!(getsockopt, module)?)?;
    module.add_function(wrap_pyfunction!(setsockopt, module)?)
}

/// Makes one system call, and repeats it after a signal unless a handler raises.
fn call<T: Send>(py: Python<'_>, call: impl Fn() -> Result<T, Errno> + Sync) -> PyResult<T> {
    loop {
        match py.detach(&call) {
            Err(Errno::INTR) => py.check_signals()?,
            done => return done.map_err(|errno| refused(py, errno)),
        }
    }
}

/// The kernel's refusal, as the functions of `os` raise it.
fn refused(py: Python<'_>, errno: Errno) -> PyErr {
    static STRERROR: Import = Import::new("os", "strerror");
    let number = errno.raw_os_error();
    match STRERROR.make(py, (number,)) {
        Ok(text) => PyOSError::new_err((number, text)),
        Err(error) => error,
    }
}

/// A new socket. `type` may hold SOCK_NONBLOCK. It is never inherited, SOCK_CLOEXEC or not.
#[pyfunction]
#[pyo3(signature = (family, r#type, proto=0))]
fn socket(py: Python<'_>, family: u16, r#type: u32, proto: u32) -> PyResult<i32> {
    let (kind, flags, proto) = kind_of(r#type, proto);
    let made = call(py, || net::socket_with(AddressFamily::from_raw(family), kind, flags, proto));
    made.map(IntoRawFd::into_raw_fd)
}

/// Two sockets that are connected with each other. `type` may hold SOCK_NONBLOCK. They are never
/// inherited.
#[pyfunction]
#[pyo3(signature = (family, r#type, proto=0))]
fn socketpair(py: Python<'_>, family: u16, r#type: u32, proto: u32) -> PyResult<(i32, i32)> {
    let (kind, flags, proto) = kind_of(r#type, proto);
    let (one, other) = call(py, || net::socketpair(AddressFamily::from_raw(family), kind, flags, proto))?;
    Ok((one.into_raw_fd(), other.into_raw_fd()))
}

fn kind_of(kind: u32, proto: u32) -> (SocketType, SocketFlags, Option<Protocol>) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let asked = SocketFlags::from_bits_truncate(kind) & flags;
    let proto = std::num::NonZeroU32::new(proto).map(Protocol::from_raw);
    (SocketType::from_raw(kind & !flags.bits()), asked | SocketFlags::CLOEXEC, proto)
}

/// Gives a socket its address.
#[pyfunction]
fn bind(py: Python<'_>, fd: i32, address: &Bound<'_, PyAny>) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    let address = resolved(fd, address)?;
    call(py, || net::bind(fd, &address))
}

/// Lets others connect; up to `backlog` of them wait.
#[pyfunction]
fn listen(py: Python<'_>, fd: i32, backlog: i32) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    call(py, || net::listen(fd, backlog))
}

/// Waits for a connection, if the listener blocks: its descriptor, which blocks, and its peer.
#[pyfunction]
fn accept(py: Python<'_>, fd: i32) -> PyResult<(i32, Py<PyAny>)> {
    accept4(py, fd, 0)
}

/// As `accept`; with SOCK_NONBLOCK the connection does not block. None is ever inherited,
/// SOCK_CLOEXEC or not.
#[pyfunction]
fn accept4(py: Python<'_>, fd: i32, flags: u32) -> PyResult<(i32, Py<PyAny>)> {
    let fd = borrow(py, fd)?;
    let flags = SocketFlags::from_bits_truncate(flags) & SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (made, peer) = call(py, || net::acceptfrom_with(fd, flags))?;
    // The fallible steps come first, while the connection still closes itself.
    let peer = to_python(py, peer.as_ref())?;
    Ok((made.into_raw_fd(), peer))
}

/// Connects. A socket that does not block raises `BlockingIOError` (EINPROGRESS), and is writable
/// when it is done.
#[pyfunction]
fn connect(py: Python<'_>, fd: i32, address: &Bound<'_, PyAny>) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    let address = resolved(fd, address)?;
    match py.detach(|| net::connect(fd, &address)) {
        // Connecting goes on by itself; asked again, the kernel would refuse. See connect(2),
        // "Errors".
        Err(Errno::INTR) => py.check_signals()?,
        done => return done.map_err(|errno| refused(py, errno)),
    }
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let connected = || Ok(py.detach(|| fd::poll(&mut polled, pipework::Deadline::NEVER)));
    wait(py, &Used::Nothing, connected)?.or_raise(py)?;
    let connected = net::sockopt::socket_error(fd).and_then(|connected| connected);
    connected.map_err(|errno| refused(py, errno))
}

/// Ends a direction of a connection: 0 for reading, 1 for writing, 2 for both.
#[pyfunction]
fn shutdown(py: Python<'_>, fd: i32, how: i32) -> PyResult<()> {
    let fd = borrow(py, fd)?;
    let how = match how {
        0 => Shutdown::Read,
        1 => Shutdown::Write,
        2 => Shutdown::Both,
        _ => return Err(refused(py, Errno::INVAL)),
    };
    call(py, || net::shutdown(fd, how))
}

/// Sends as many bytes as there is space for, to an address or to the socket's peer. Returns their
/// number.
#[pyfunction]
#[pyo3(signature = (fd, data, flags=0, *, address=None))]
fn send(
    py: Python<'_>,
    fd: i32,
    data: Bytes<'_, '_>,
    flags: u32,
    address: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    let (fd, data): (_, &[u8]) = (borrow(py, fd)?, &data);
    let flags = SendFlags::from_bits_retain(flags) | SendFlags::NOSIGNAL;
    match address.map(|address| resolved(fd, address)).transpose()? {
        Some(to) => call(py, || net::sendto(fd, data, flags, &to)),
        None => call(py, || net::send(fd, data, flags)),
    }
}

/// Receives the bytes that are there, up to `count`; b"" at the end of a stream.
#[pyfunction]
#[pyo3(signature = (fd, count, flags=0))]
fn recv(py: Python<'_>, fd: i32, count: usize, flags: u32) -> PyResult<Py<PyBytes>> {
    let (fd, flags) = (borrow(py, fd)?, RecvFlags::from_bits_retain(flags));
    let came = call(py, || {
        let mut space = space_for(count).map_err(|_| Errno::NOMEM)?;
        net::recv(fd, spare_capacity(&mut space), flags).map(|_| space)
    })?;
    bytes(py, [&came])
}

/// As `recv`, with the address of the sender.
#[pyfunction]
#[pyo3(signature = (fd, count, flags=0))]
fn recvfrom(py: Python<'_>, fd: i32, count: usize, flags: u32) -> PyResult<(Py<PyBytes>, Py<PyAny>)> {
    let (fd, flags) = (borrow(py, fd)?, RecvFlags::from_bits_retain(flags));
    let (came, from) = call(py, || {
        let mut space = space_for(count).map_err(|_| Errno::NOMEM)?;
        let (_, _, from) = net::recvfrom(fd, spare_capacity(&mut space), flags)?;
        Ok((space, from))
    })?;
    Ok((bytes(py, [&came])?, to_python(py, from.as_ref())?))
}

/// The socket's own address.
#[pyfunction]
fn getsockname(py: Python<'_>, fd: i32) -> PyResult<Py<PyAny>> {
    let fd = borrow(py, fd)?;
    to_python(py, Some(&call(py, || net::getsockname(fd))?))
}

/// The address of its peer.
#[pyfunction]
fn getpeername(py: Python<'_>, fd: i32) -> PyResult<Py<PyAny>> {
    let fd = borrow(py, fd)?;
    to_python(py, call(py, || net::getpeername(fd))?.as_ref())
}

/// An option that is a number; or, with `buflen`, up to `buflen` bytes.
#[pyfunction]
#[pyo3(signature = (fd, level, name, buflen=0))]
fn getsockopt(py: Python<'_>, fd: i32, level: i32, name: i32, buflen: usize) -> PyResult<Py<PyAny>> {
    let fd = borrow(py, fd)?;
    if buflen == 0 {
        return Ok(fd::option_number(fd, level, name).or_raise(py)?.into_pyobject(py)?.into_any().unbind());
    }
    let mut value = zeros(buflen)?;
    let len = fd::option_bytes(fd, level, name, &mut value).or_raise(py)?;
    Ok(bytes(py, [&value[..len]])?.into_any())
}

/// Sets an option to a number or to bytes.
#[pyfunction]
fn setsockopt(py: Python<'_>, fd: i32, level: i32, name: i32, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(bytes) = value.extract::<Bytes<'_, '_>>() {
        return set_option_bytes(py, fd, level, name, &bytes);
    }
    let value = value
        .extract()
        .map_err(|_| PyTypeError::new_err("the value of an option is a number of 32 bits, or bytes"))?;
    fd::set_option_number(borrow(py, fd)?, level, name, value).or_raise(py)
}

/// The address, in which a host may have a name: that is looked up, before the system call.
fn resolved(fd: BorrowedFd<'_>, address: &Bound<'_, PyAny>) -> PyResult<SocketAddrAny> {
    let numeric = address.extract::<Address>();
    let (Err(error), Ok(tuple)) = (&numeric, address.cast::<PyTuple>()) else {
        return numeric.map(|address| address.0);
    };
    let py = address.py();
    let named = tuple.len() >= 2 && tuple.get_item(0)?.extract::<&str>().is_ok();
    if !named || !error.is_instance_of::<pyo3::exceptions::PyValueError>(py) {
        return numeric.map(|address| address.0);
    }
    static LOOK_UP: Import = Import::new("socket", "getaddrinfo");
    static PASSIVE: i32 = 1;
    let domain = net::sockopt::socket_domain(fd).map_err(|errno| refused(py, errno))?;
    let host = tuple.get_item(0)?;
    // An empty name is any address, to bind to.
    let host = if host.extract::<&str>()?.is_empty() { py.None().into_bound(py) } else { host };
    let found = LOOK_UP.call(py, (host, tuple.get_item(1)?, domain.as_raw(), 0, 0, PASSIVE))?;
    Ok(found.get_item(0)?.get_item(4)?.extract::<Address>()?.0)
}
