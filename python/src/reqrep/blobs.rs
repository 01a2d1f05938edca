//! **Boundary**: blobs for Python: memory that is filled once, frozen, and read in place.
//!
//! Python code accesses the memory of a blob by its address, through the buffer protocol. So no
//! buffer of a draft may outlive the draft: while a buffer is in use, the draft is not frozen, and
//! its memory is not used for anything else. A buffer refers to its object, so a blob lives as long
//! as a buffer of it.

#![allow(unsafe_code)]

use std::ffi::c_int;

use pipework::{ErrorKind, reqrep};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::{Memory, Source, bytes, export, unless_small};
use crate::error::{Advised, OrRaise, Raise, at, invalid, of_kind};
use crate::handle::{drop_slowly, forks};
use crate::interpreter;
use crate::locked::Locked;

const FREEZE: &str = "blob freeze";

/// Memory for a blob that has to be filled: `Segment.blob` returns it.
///
/// It is a writable buffer: use `memoryview(draft)[:5] = b"hello"`, `file.readinto(draft)` or
/// `numpy.frombuffer(draft, dtype)`. It may hold bytes of an earlier blob of this process, so fill
/// all of it, and then `freeze()` it. As a context manager, it gives the memory back if the block
/// ends without a `freeze`. A forked child cannot use a draft of its parent.
#[pyclass(frozen, weakref, module = "pipework.reqrep")]
pub(crate) struct BlobMut {
    memory: Memory,
    /// The value of `forks()` in the process that made it.
    forks: u32,
    state: Locked<State>,
}

struct State {
    /// None once it is frozen, or once its memory was given back.
    draft: Option<reqrep::BlobMut>,
    /// The number of its buffers in use.
    exports: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Open,
    Frozen,
    /// Closed: the last buffer gives the memory back.
    Closed,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Open => "open",
            Stage::Frozen => "frozen",
            Stage::Closed => "closed",
        }
    }
}

#[pymethods]
impl BlobMut {
    /// Makes a `Blob` of it: from now on no process changes the bytes, and messages can carry them.
    /// This object is of no more use.
    ///
    /// Raises `BufferError` while a buffer of it is in use: an array or a memoryview that could
    /// still write to it. Delete those first (`del array`). Raises `Corrupt` if another process has
    /// cut the memory short, and `Stale` in a forked child.
    fn freeze(&self, py: Python<'_>) -> PyResult<Blob> {
        if self.forks != forks() {
            let text = "this draft is the parent's: make another one";
            return Err(of_kind(py, ErrorKind::Stale, FREEZE, text));
        }
        let taken = self.state.with(|state| match (state.stage, state.exports) {
            (Stage::Open, 0) => {
                state.stage = Stage::Frozen;
                Ok(state.draft.take())
            }
            refused => Err(refused),
        });
        match taken {
            Ok(draft) => Ok(Blob::new(draft.expect("it is open").freeze().or_raise(py)?)),
            Err((Stage::Open, count)) => Err(PyBufferError::new_err(format!(
                "{FREEZE}: arrays or memoryviews still refer to this draft ({count}): delete them first"
            ))),
            Err((stage, _)) => Err(invalid(py, FREEZE, &format!("this draft is {} already", stage.name()))),
        }
    }

    /// Gives the memory back if it was not frozen, as soon as no buffer of it is in use. A second
    /// call does nothing.
    fn close(&self) {
        let draft = self.state.with(|state| {
            if state.stage == Stage::Open {
                state.stage = Stage::Closed;
            }
            state.unused()
        });
        drop_large(self.memory.len(), draft);
    }

    /// Whether it is frozen or closed.
    #[getter]
    fn closed(&self) -> bool {
        self.stage() != Stage::Open
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len()
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn __enter__(slf: Py<BlobMut>) -> Py<BlobMut> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a BlobMut cannot be pickled: freeze it and attach the Blob to a message"))
    }

    fn __repr__(&self) -> String {
        match self.stage() {
            Stage::Open => format!("<BlobMut of {} bytes>", self.memory.len()),
            stage => format!("<BlobMut of {} bytes, {}>", self.memory.len(), stage.name()),
        }
    }

    // SAFETY: only Python calls it, with a `view` to fill in.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: as above.
        unsafe { (*view).obj = std::ptr::null_mut() };
        if this.forks != forks() {
            return Err(PyBufferError::new_err("this draft is the parent's: make another one"));
        }
        let stage = this.state.with(|state| {
            state.exports += usize::from(state.stage == Stage::Open);
            state.stage
        });
        if stage != Stage::Open {
            let advice = if stage == Stage::Frozen { ": use what freeze() returned" } else { "" };
            return Err(PyBufferError::new_err(format!("this draft is {}{advice}", stage.name())));
        }
        // SAFETY: the draft keeps its memory while a buffer of it is counted, and Rust code does
        // not use the memory meanwhile.
        let exported = unsafe { export(slf, this.memory, view, flags) };
        exported.inspect_err(|_| this.released())
    }

    // SAFETY: it does not use the pointer.
    unsafe fn __releasebuffer__(&self, _view: *mut Py_buffer) {
        self.released();
    }
}

impl BlobMut {
    pub(super) fn new(py: Python<'_>, segment: &reqrep::Segment, len: usize) -> PyResult<BlobMut> {
        let mut draft = draft(py, segment, len)?;
        let memory = Memory::to_write(&mut draft);
        let state = State { draft: Some(draft), exports: 0, stage: Stage::Open };
        Ok(BlobMut { memory, forks: forks(), state: Locked::new(state) })
    }

    fn stage(&self) -> Stage {
        self.state.with(|state| state.stage)
    }

    /// Counts one buffer less.
    fn released(&self) {
        let draft = self.state.with(|state| {
            state.exports -= 1;
            state.unused()
        });
        drop_large(self.memory.len(), draft);
    }
}

impl Drop for BlobMut {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// Takes the draft out if its memory can be given back.
    fn unused(&mut self) -> Option<reqrep::BlobMut> {
        if self.stage == Stage::Closed && self.exports == 0 { self.draft.take() } else { None }
    }
}

/// Bytes in shared memory that do not change for as long as any process holds them.
///
/// It is a read-only buffer: `memoryview(blob)`, `numpy.frombuffer(blob, dtype)` and
/// `file.write(blob)` do not copy it. Send it with any message by `blobs=[blob]`. The receiver
/// finds it in `blobs` of the `Request` or `Message`, and may send it on. The memory is freed when
/// all processes have dropped the blob or died, and no message has it any more. This process drops
/// it when neither this object nor a buffer of it is left.
///
/// A blob is equal only to itself. To compare bytes, compare `memoryview(blob)`.
#[pyclass(frozen, weakref, module = "pipework.reqrep")]
pub(crate) struct Blob {
    /// Present until the object is dropped.
    blob: Option<reqrep::Blob>,
}

#[pymethods]
impl Blob {
    /// A copy of its bytes.
    fn tobytes(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        bytes(py, [self.get()])
    }

    /// Raises `Corrupt` if bytes of it are lost, because another process has cut its memory short.
    /// The lost bytes read as zero.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.get().check().or_raise(py)
    }

    /// Whether this process got its own copy, because another user may change the memory.
    #[getter]
    fn is_copied(&self) -> bool {
        self.get().is_copied()
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.get().len()
    }

    fn __len__(&self) -> usize {
        self.get().len()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Blob cannot be pickled: attach it to a message, as one of its `blobs`"))
    }

    fn __repr__(&self) -> String {
        let copied = if self.is_copied() { ", copied" } else { "" };
        format!("<Blob of {} bytes{copied}>", self.nbytes())
    }

    // SAFETY: only Python calls it, with a `view` to fill in.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        unsafe { (*view).obj = std::ptr::null_mut() };
        let memory = Memory::to_read(slf.get().get());
        // SAFETY: the blob lives as long as its object, and no process changes its bytes.
        unsafe { export(slf, memory, view, flags) }
    }
}

impl Blob {
    fn new(blob: reqrep::Blob) -> Blob {
        Blob { blob: Some(blob) }
    }

    /// A blob with the bytes of `source`.
    pub(super) fn copy_of(
        py: Python<'_>,
        segment: &reqrep::Segment,
        source: &Source<'_, '_>,
    ) -> PyResult<Blob> {
        let mut draft = draft(py, segment, source.len())?;
        source.copy_to(py, &mut draft);
        Ok(Blob::new(draft.freeze().or_raise(py)?))
    }

    fn get(&self) -> &reqrep::Blob {
        self.blob.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        let blob = self.blob.take();
        drop_large(blob.as_ref().map_or(0, |blob| blob.len()), blob);
    }
}

fn draft(py: Python<'_>, segment: &reqrep::Segment, len: usize) -> PyResult<reqrep::BlobMut> {
    let made = unless_small(py, len, || segment.blob(len)).map_err(|error| match error.kind() {
        ErrorKind::TooLong => {
            let held = segment.blob_stats().held;
            let advice = format!("{held} are held, and {len} more were asked for");
            Advised { error, advice: &advice }.raise(py)
        }
        _ => error.raise(py),
    });
    made.map_err(|raised| match segment.path() {
        Some(path) => at(py, raised, path),
        None => raised,
    })
}

/// From this size on, unmapping takes longer than releasing the interpreter lock.
const LARGE: usize = 1 << 20;

fn drop_large<T: Send>(len: usize, memory: Option<T>) {
    if len < LARGE { drop(memory) } else { drop_slowly(memory) }
}

/// The blobs that a message is to carry: `blobs=[...]`.
#[derive(Default)]
pub(super) struct Attached(pub(super) Vec<reqrep::Blob>);

impl FromPyObject<'_, '_> for Attached {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Attached> {
        let one = |value: &Bound<'_, PyAny>| match value.cast::<Blob>() {
            Ok(blob) => Ok(blob.get().get().clone()),
            Err(_) => Err(refused(value)),
        };
        match interpreter::collect(&value) {
            Ok(blobs) => blobs.iter().map(one).collect::<PyResult<_>>().map(Attached),
            Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {
                let refused = refused(&value);
                refused.set_cause(value.py(), Some(error));
                Err(refused)
            }
            Err(error) => Err(error),
        }
    }
}

fn refused(value: &Bound<'_, PyAny>) -> PyErr {
    let advice = if value.cast::<BlobMut>().is_ok() {
        ": freeze() it first"
    } else if value.cast::<Blob>().is_ok() {
        ": write blobs=[blob]"
    } else {
        ": segment.blob_from(buffer) makes one of any buffer"
    };
    let kind = value.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    PyTypeError::new_err(format!("blobs must be a list of Blob objects, not {kind}{advice}"))
}

/// The blobs that came with a message, for Python.
pub(super) fn received<'py>(py: Python<'py>, blobs: &[reqrep::Blob]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, blobs.iter().map(|blob| Blob::new(blob.clone())))
}
