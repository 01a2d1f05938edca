//! The C library, loaded at run time as in a C program, so that no function is inlined here.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::measure::Failure;

/// `pwk_status`: 0 is success.
type Status = i32;
/// `PWK_NEVER`.
const NEVER: i64 = i64::MAX;
/// A handle, or a struct that these contenders never read.
type Handle = *mut c_void;
type Error = *mut c_void;

/// `pwk_buffer`.
#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    pub len: usize,
    capacity: usize,
}

/// `pwk_request`.
#[repr(C)]
#[derive(Default)]
struct Request {
    ticket: u64,
    offset: usize,
    len: usize,
    flags: u32,
    redeliveries: u16,
}

/// The fields of `pwk_item` that are read here.
#[repr(C)]
#[derive(Default)]
struct Item {
    kind: u32,
    parts: u32,
    writer: [u32; 2],
    data: usize,
    len: usize,
    rest: [u64; 4],
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $returned:ty)?;)*) => {
        /// The functions of the header that these contenders call.
        struct Functions {
            // SAFETY: to be called as the header says.
            $($name: unsafe extern "C" fn($($argument),*) $(-> $returned)?,)*
        }

        impl Functions {
            fn load(library: *mut c_void) -> Result<Functions, Failure> {
                Ok(Functions {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes())?;
                        // SAFETY: the library stays loaded, and the name ends with a NUL.
                        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
                        if found.is_null() {
                            return Err(format!("the C library has no {name:?}").into());
                        }
                        // SAFETY: the header has the function with these arguments.
                        unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) $(-> $returned)?>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    pwk_atomic_pair: fn(*const c_void, *mut Handle, *mut Handle, Error) -> Status;
    pwk_atomic_writer_send: fn(Handle, *const u8, usize, i64, Error) -> Status;
    pwk_atomic_writer_close: fn(Handle, i64, Error) -> Status;
    pwk_atomic_reader_recv: fn(Handle, i64, *mut Item, Error) -> Status;
    pwk_atomic_reader_free: fn(Handle);
    pwk_segment_from_fd: fn(i32, u32, *const c_void, *mut Handle, Error) -> Status;
    pwk_client_new: fn(Handle, *const c_void, *mut Handle, Error) -> Status;
    pwk_server_new: fn(Handle, *const c_void, *mut Handle, Error) -> Status;
    pwk_client_call: fn(Handle, *const u8, usize, i64, *mut Buffer, Error) -> Status;
    pwk_client_send: fn(Handle, *const u8, usize, i64, *mut u64, Error) -> Status;
    pwk_client_recv: fn(Handle, u64, i64, *mut Buffer, Error) -> Status;
    pwk_server_recv: fn(Handle, i64, *mut Buffer, *mut Request, Error) -> Status;
    pwk_server_reply: fn(Handle, u64, *const u8, usize, Error) -> Status;
}

fn functions() -> Result<&'static Functions, Failure> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        let target = std::env::var("CARGO_TARGET_DIR");
        let target = target.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into());
        let path = Path::new(&target).join("release/libpipework_c.so");
        let name = std::ffi::CString::new(path.to_string_lossy().as_bytes())?;
        // SAFETY: the library's initialisers have no preconditions.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err("not built: cargo build --release --package pipework-c".into());
        }
        Functions::load(library)
    };
    let loaded = LOADED.get_or_init(|| load().map_err(|why: Failure| why.to_string()));
    loaded.as_ref().map_err(|why| why.as_str().into())
}

fn done(status: Status) -> Result<(), Failure> {
    if status == 0 { Ok(()) } else { Err(format!("the C library says {status}").into()) }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer { data: null_mut(), len: 0, capacity: 0 }
    }
}

// ---------------------------------------------------------------- atomic

pub struct Writer(Handle, &'static Functions);

pub struct Reader(Handle, &'static Functions);

/// A pipe in plain mode.
pub fn pair() -> Result<(Reader, Writer), Failure> {
    let (functions, mut reader, mut writer) = (functions()?, null_mut(), null_mut());
    // SAFETY: NULL is allowed for options and error.
    done(unsafe { (functions.pwk_atomic_pair)(null(), &mut reader, &mut writer, null_mut()) })?;
    Ok((Reader(reader, functions), Writer(writer, functions)))
}

impl Writer {
    pub fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let (data, len) = (message.as_ptr(), message.len());
        // SAFETY: the message is lent for the call.
        done(unsafe { (self.1.pwk_atomic_writer_send)(self.0, data, len, NEVER, null_mut()) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: the handle is not used afterwards. Nothing is pending after a send that waits.
        unsafe { (self.1.pwk_atomic_writer_close)(self.0, NEVER, null_mut()) };
    }
}

impl Reader {
    /// The length of the next message; `None` at the end.
    pub fn recv(&mut self) -> Result<Option<usize>, Failure> {
        /// `PWK_CLOSED`.
        const CLOSED: Status = 4;
        let mut item = Item::default();
        // SAFETY: what it fills in is this function's.
        match unsafe { (self.1.pwk_atomic_reader_recv)(self.0, NEVER, &mut item, null_mut()) } {
            CLOSED => Ok(None),
            status => done(status).map(|()| Some(item.len)),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { (self.1.pwk_atomic_reader_free)(self.0) };
    }
}

// ---------------------------------------------------------------- reqrep

/// A segment. No handle is given back: a run ends with its process.
pub struct Segment(Handle, &'static Functions);

impl Segment {
    pub fn open(fd: BorrowedFd<'_>) -> Result<Segment, Failure> {
        /// `PWK_FD_DUP`.
        const DUP: u32 = 2;
        let (functions, mut segment) = (functions()?, null_mut());
        let (open, fd) = (functions.pwk_segment_from_fd, fd.as_raw_fd());
        // SAFETY: NULL is allowed for options and error.
        done(unsafe { open(fd, DUP, null(), &mut segment, null_mut()) })?;
        Ok(Segment(segment, functions))
    }

    pub fn client(&self) -> Result<Client, Failure> {
        let mut client = null_mut();
        // SAFETY: as above.
        done(unsafe { (self.1.pwk_client_new)(self.0, null(), &mut client, null_mut()) })?;
        Ok(Client { client, functions: self.1, reply: Buffer::default() })
    }

    pub fn server(&self) -> Result<Server, Failure> {
        let mut server = null_mut();
        // SAFETY: as above.
        done(unsafe { (self.1.pwk_server_new)(self.0, null(), &mut server, null_mut()) })?;
        Ok(Server { server, functions: self.1, data: Buffer::default() })
    }
}

pub struct Client {
    client: Handle,
    functions: &'static Functions,
    reply: Buffer,
}

impl Client {
    pub fn call(&mut self, request: &[u8]) -> Result<usize, Failure> {
        let (call, reply) = (self.functions.pwk_client_call, &mut self.reply);
        let (data, len) = (request.as_ptr(), request.len());
        // SAFETY: the request is lent for the call, and the buffer is the library's own.
        done(unsafe { call(self.client, data, len, NEVER, reply, null_mut()) })?;
        Ok(self.reply.len)
    }

    pub fn send(&mut self, request: &[u8]) -> Result<u64, Failure> {
        let (send, mut ticket) = (self.functions.pwk_client_send, 0);
        let (data, len) = (request.as_ptr(), request.len());
        // SAFETY: as above.
        done(unsafe { send(self.client, data, len, NEVER, &mut ticket, null_mut()) })?;
        Ok(ticket)
    }

    pub fn recv(&mut self, ticket: u64) -> Result<usize, Failure> {
        let (recv, reply) = (self.functions.pwk_client_recv, &mut self.reply);
        // SAFETY: as above.
        done(unsafe { recv(self.client, ticket, NEVER, reply, null_mut()) })?;
        Ok(self.reply.len)
    }
}

pub struct Server {
    server: Handle,
    functions: &'static Functions,
    data: Buffer,
}

// SAFETY: any thread may use a server, and the buffer is its own.
unsafe impl Send for Server {}

impl Server {
    /// Answers a request with its own bytes.
    pub fn answer(&mut self) -> Result<(), Failure> {
        let (Functions { pwk_server_recv, pwk_server_reply, .. }, mut request) =
            (self.functions, Request::default());
        // SAFETY: what it fills in is this function's.
        done(unsafe { pwk_server_recv(self.server, NEVER, &mut self.data, &mut request, null_mut()) })?;
        let Buffer { data, len, .. } = self.data;
        // SAFETY: the bytes stay in the buffer for the length of the call.
        done(unsafe { pwk_server_reply(self.server, request.ticket, data, len, null_mut()) })
    }
}
