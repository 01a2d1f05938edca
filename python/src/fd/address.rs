//! Socket addresses as Python's `socket` module has them: tuples for the Internet, strings and
//! bytes for local sockets.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use pipework::fd::SocketAddrAny;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{SocketAddrUnix, SocketAddrV4};

/// The address as Python sees it; None where the kernel says nothing, or where the family has no
/// form here.
pub(super) fn to_python(py: Python<'_>, address: Option<&SocketAddrAny>) -> PyResult<Py<PyAny>> {
    let Some(address) = address else { return Ok(py.None()) };
    if let Ok(address) = SocketAddrUnix::try_from(address.clone()) {
        return local_to_python(py, &address);
    }
    let found = match SocketAddr::try_from(address.clone()) {
        Ok(SocketAddr::V4(v4)) => (v4.ip().to_string(), v4.port()).into_pyobject(py)?.into_any(),
        Ok(SocketAddr::V6(v6)) => {
            (v6.ip().to_string(), v6.port(), v6.flowinfo(), v6.scope_id()).into_pyobject(py)?.into_any()
        }
        Err(_) => return Ok(py.None()),
    };
    Ok(found.unbind())
}

fn local_to_python(py: Python<'_>, address: &SocketAddrUnix) -> PyResult<Py<PyAny>> {
    let found = match (address.abstract_name(), address.path_bytes()) {
        (Some(name), _) if !name.is_empty() => PyBytes::new(py, &[b"\0", name].concat()).into_any(),
        (_, Some(path)) => {
            // The kernel ends a path with a zero byte, and says so in its length.
            let path = path.strip_suffix(b"\0").unwrap_or(path);
            OsStr::from_bytes(path).into_pyobject(py)?.into_any()
        }
        (_, None) => PyString::new(py, "").into_any(),
    };
    Ok(found.unbind())
}

/// An address that Python gives: a tuple with a numeric host and a port, or the name of a local
/// socket.
pub(super) struct Address(pub(super) SocketAddrAny);

impl FromPyObject<'_, '_> for Address {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Address> {
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return Ok(Address(internet(&tuple)?.as_any()));
        }
        let local = if let Ok(name) = object.cast::<PyBytes>() {
            local(name.as_bytes())
        } else {
            let path = object.extract::<std::path::PathBuf>().map_err(|_| {
                PyTypeError::new_err("an address is a tuple (host, port), or the name of a local socket")
            })?;
            local(path.as_os_str().as_bytes())
        };
        Ok(Address(local?.as_any()))
    }
}

fn internet(tuple: &Bound<'_, PyTuple>) -> PyResult<SocketAddr> {
    let item = |index: usize| -> PyResult<u32> {
        if index < tuple.len() { tuple.get_item(index)?.extract() } else { Ok(0) }
    };
    if !(2..=4).contains(&tuple.len()) {
        return Err(PyTypeError::new_err(
            "an address is a tuple (host, port), or the name of a local socket",
        ));
    }
    let host: String = tuple.get_item(0)?.extract()?;
    let port: u16 = tuple.get_item(1)?.extract()?;
    match host.parse() {
        Ok(IpAddr::V4(ip)) => Ok(SocketAddr::V4(SocketAddrV4::new(ip, port))),
        Ok(IpAddr::V6(ip)) => Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, item(2)?, item(3)?))),
        Err(_) => {
            Err(PyValueError::new_err("the host must be a number: socket.getaddrinfo finds those of names"))
        }
    }
}

fn local(name: &[u8]) -> PyResult<SocketAddrUnix> {
    let made = match name.strip_prefix(b"\0") {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(name),
    };
    made.map_err(|_| {
        PyValueError::new_err(
            "the name of a local socket has at most 107 bytes, none of them 0 but the first",
        )
    })
}
