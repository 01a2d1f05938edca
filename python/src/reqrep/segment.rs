//! The segment: how it is made, opened and passed on, and its counts.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, UNIX_EPOCH};

use pipework::reqrep::{
    self, Geometry, MAX_BLOBS, MAX_MEMBERS, MAX_PAYLOAD, MAX_QUEUE, MAX_SLOTS, Options, Role,
};
use pipework::{Deadline, ErrorKind, fd};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyFileNotFoundError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::blobs::{Blob, BlobMut};
use crate::buffer::Source;
use crate::error::{Advised, OrRaise, Raise, at, invalid, of_kind};
use crate::fd::take_over;
use crate::handle::{drop_detached, drop_slowly};
use crate::imports::Import;
use crate::keywords::{self, FilePath};
use crate::locked::Locked;
use crate::wait::{Used, wait};

/// The Python module with the named tuples and other Python of `reqrep`.
pub(super) const MODULE: &str = "pipework._reqrep";

/// The options as `inspect.signature` shows them.
macro_rules! options_text {
    () => {
        "slots=None, queue=None, request_bytes=None, reply_bytes=None, members=None, blobs=None, \
         blob_pool=None, blob_limit=None, mode=384, max_bytes=None, sparse=False, \
         any_owner=False, spin=2e-05"
    };
}
pub(super) use options_text;

#[doc = concat!("Segment(path, *, ", options_text!(), ")\n--\n")]
/// A segment that this process has opened: the shared memory in which clients and servers meet.
///
/// `Segment(path)` opens the one at `path`, or makes it if there is none; the keyword arguments are
/// those of `Options`. If sizes are given and the existing segment has others, it is refused
/// (`Incompatible`). A segment on /dev/shm lies in memory alone. It can be pickled for other
/// processes: by its path, or else its descriptor goes along, as with sockets in `multiprocessing`.
///
/// The numbers that it returns may be outdated as soon as they are returned.
///
/// >>> from pipework.reqrep import Client, Segment, Server
/// >>> segment = Segment.anonymous(slots=8, request_bytes=100)
/// >>> server, client = Server(segment), Client(segment)
/// >>> ticket = client.send(b"hello")
/// >>> segment.waiting, segment.audit().free
/// (1, 7)
#[pyclass(frozen, weakref, module = "pipework.reqrep")]
pub(crate) struct Segment {
    /// None once it is closed.
    segment: Locked<Option<reqrep::Segment>>,
    geometry: Geometry,
    path: Option<PathBuf>,
    /// Those of the keyword arguments that are for this process, and go along to another one.
    own: Py<PyDict>,
}

#[pymethods]
impl Segment {
    #[new]
    #[pyo3(signature = (path, **options), text_signature = None)]
    fn open_or_create(
        py: Python<'_>,
        path: Absolute,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Segment> {
        Settings::of(py, options)?.make_at(py, &path.0, |options| options.open_or_create(&path.0))
    }

    #[doc = concat!("create(path, *, ", options_text!(), ")\n--\n")]
    /// Makes a segment at `path`. The name appears when the segment is complete.
    ///
    /// Raises `FileExistsError` if the file exists; `Invalid` for impossible sizes; `OSError` with
    /// ENOSPC if the file system is full.
    #[staticmethod]
    #[pyo3(signature = (path, **options), text_signature = None)]
    fn create(py: Python<'_>, path: Absolute, options: Option<&Bound<'_, PyDict>>) -> PyResult<Segment> {
        Settings::of(py, options)?.make_at(py, &path.0, |options| options.create(&path.0))
    }

    #[doc = concat!("open(path, *, ", options_text!(), ")\n--\n")]
    /// Opens the segment at `path`. Sizes that are asked for must be those that it has; `max_bytes`
    /// is the largest file to open.
    ///
    /// Raises `FileNotFoundError` if the file does not exist; `Invalid` for a symbolic link, for
    /// anything but a regular file, or another user's file; `Incompatible` for a file that is no
    /// segment, or is one of another format or of other sizes; `Corrupt` for one that was damaged
    /// or cut short.
    #[staticmethod]
    #[pyo3(signature = (path, **options), text_signature = None)]
    fn open(py: Python<'_>, path: Absolute, options: Option<&Bound<'_, PyDict>>) -> PyResult<Segment> {
        Settings::of(py, options)?.make_at(py, &path.0, |options| options.open(&path.0))
    }

    #[doc = concat!("anonymous(*, ", options_text!(), ")\n--\n")]
    /// Makes a segment without a name: for threads, for processes that are forked from this one,
    /// and for those it is pickled for.
    #[staticmethod]
    #[pyo3(signature = (**options), text_signature = None)]
    fn anonymous(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Segment> {
        Settings::of(py, options)?.make(py, |options| options.anonymous())
    }

    #[doc = concat!("memfd(name, *, ", options_text!(), ")\n--\n")]
    /// As `anonymous`; `name` shows up in /proc/PID/maps. Another process that is given the
    /// descriptor opens it by `from_fd`.
    #[staticmethod]
    #[pyo3(signature = (name, **options), text_signature = None)]
    fn memfd(py: Python<'_>, name: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Segment> {
        Settings::of(py, options)?.make(py, |options| options.memfd(name))
    }

    #[doc = concat!("from_fd(fd, *, ", options_text!(), ")\n--\n")]
    /// Opens the segment behind a descriptor and takes the descriptor over. Raises as `open`; then
    /// it stays the caller's.
    #[staticmethod]
    #[pyo3(signature = (fd, **options), text_signature = None)]
    fn from_fd(py: Python<'_>, fd: i32, options: Option<&Bound<'_, PyDict>>) -> PyResult<Segment> {
        let settings = Settings::of(py, options)?;
        let segment =
            take_over(py, fd, |fd| settings.options.dup_fd(fd).map(drop), |fd| settings.options.from_fd(fd))?;
        Ok(Segment::new(segment, settings.own))
    }

    /// The path at which it was made or opened; None for one without a name.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// Its sizes, as a `Geometry`.
    #[getter]
    fn geometry(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static GEOMETRY: Import = Import::new(MODULE, "Geometry");
        let Geometry { slots, queue, request_bytes, reply_bytes, members, blobs } = self.geometry;
        let fields = PyDict::new(py);
        fields.set_item("slots", slots)?;
        fields.set_item("queue", queue)?;
        fields.set_item("request_bytes", request_bytes)?;
        fields.set_item("reply_bytes", reply_bytes)?;
        fields.set_item("members", members)?;
        fields.set_item("blobs", blobs)?;
        GEOMETRY.make_by_name(py, fields)
    }

    /// Memory for a blob of `nbytes` bytes, as a `BlobMut`: to be filled, frozen, and attached to
    /// messages of this segment.
    ///
    /// Raises `OSError` with ENOSPC if there is no memory for it, and with EMFILE if no descriptor is
    /// left; `TooLong` if this process would hold more than `blob_limit`.
    ///
    /// >>> from pipework.reqrep import Client, Segment, Server
    /// >>> segment = Segment.anonymous()
    /// >>> with segment.blob(8 << 20) as draft:
    /// ...     memoryview(draft)[:5] = b"image"
    /// ...     blob = draft.freeze()
    /// >>> server, client = Server(segment), Client(segment)
    /// >>> ticket = client.send(b"cut", blobs=[blob])
    /// >>> with server.recv() as request:
    /// ...     bytes(memoryview(request.blobs[0])[:5]), request.reply(b"", blobs=request.blobs)
    /// (b'image', True)
    /// >>> client.recv_message(ticket).blobs
    /// (<Blob of 8388608 bytes>,)
    fn blob(&self, py: Python<'_>, nbytes: usize) -> PyResult<BlobMut> {
        BlobMut::new(py, &self.get(py)?, nbytes)
    }

    /// A blob with a copy of the bytes of `buffer`: of `bytes`, an array, or any other contiguous
    /// buffer. Raises as `blob`.
    ///
    /// >>> from pipework.reqrep import Segment
    /// >>> Segment.anonymous().blob_from(b"image").tobytes()
    /// b'image'
    fn blob_from(&self, py: Python<'_>, buffer: Source<'_, '_>) -> PyResult<Blob> {
        Blob::copy_of(py, &self.get(py)?, &buffer)
    }

    /// The blobs of this segment that this process has, as `BlobStats`.
    fn blob_stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static BLOB_STATS: Import = Import::new(MODULE, "BlobStats");
        let stats = self.get(py)?.blob_stats();
        let fields = PyDict::new(py);
        fields.set_item("held", stats.held)?;
        fields.set_item("copied", stats.copied)?;
        BLOB_STATS.make_by_name(py, fields)
    }

    /// Requests that wait for a server. Calls that were cancelled there count until a server comes
    /// past.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.waiting())
    }

    /// The counts so far, as `Stats`: of all members together, those of the past included.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static STATS: Import = Import::new(MODULE, "Stats");
        STATS.make_by_name(py, self.get(py)?.stats().by_name())
    }

    /// The attached members, and those that died attached and were not noticed yet: a list of
    /// `Member`.
    fn members(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        static MEMBER: Import = Import::new(MODULE, "Member");
        let make = |member: reqrep::Member| {
            let role = if member.role == Role::Client { "client" } else { "server" };
            let since = member.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let fields = PyDict::new(py);
            fields.set_item("number", member.number)?;
            fields.set_item("role", role)?;
            fields.set_item("pid", member.pid)?;
            fields.set_item("since", since)?;
            fields.set_item("is_alive", member.is_alive)?;
            MEMBER.make_by_name(py, fields)
        };
        self.get(py)?.members().or_raise(py)?.into_iter().map(make).collect()
    }

    /// Accounts for every slot, as an `Audit`. While the segment is in use, its counts are not of
    /// one single moment.
    fn audit(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        static AUDIT: Import = Import::new(MODULE, "Audit");
        AUDIT.make_by_name(py, self.get(py)?.audit().or_raise(py)?.by_name())
    }

    /// Recovers the slots of dead members; returns their number. It happens by itself, where
    /// the client waits for it.
    fn recover(&self, py: Python<'_>) -> PyResult<usize> {
        let segment = self.get(py)?;
        py.detach(|| segment.recover()).or_raise(py)
    }

    /// Writes the segment to the storage that its file lies on, if it lies on any, and waits for
    /// that.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let segment = self.get(py)?;
        py.detach(|| segment.sync()).or_raise(py)
    }

    /// Removes its name, if that still leads here; False if it does not. Attached members stay
    /// attached. Then it frees the blobs of processes that have ended. Raises `Invalid` for a segment
    /// without a name.
    fn unlink(&self, py: Python<'_>) -> PyResult<bool> {
        let segment = self.get(py)?;
        let unlinked = py.detach(|| segment.unlink());
        match &self.path {
            Some(path) => unlinked.or_raise_at(py, path),
            None => unlinked.or_raise(py),
        }
    }

    /// The descriptor of its file, for instance to pass it on. It holds no lock.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.get(py)?.as_fd().as_raw_fd())
    }

    /// Lets go of the segment: nothing can be attached through this object any more. Attached
    /// clients and servers stay so, and the memory stays until they have left. A second call does
    /// nothing.
    fn close(&self, py: Python<'_>) {
        // A large mapping takes its time.
        drop_detached(py, self.segment.take());
    }

    /// Whether this object is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.segment.with(|segment| segment.is_none())
    }

    fn __enter__(slf: Py<Segment>) -> Py<Segment> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __reduce__(slf: &Bound<'_, Segment>) -> PyResult<Py<PyAny>> {
        static REDUCE: Import = Import::new(MODULE, "reduce_segment");
        let (py, this) = (slf.py(), slf.get());
        REDUCE.make(py, (this.path(), this.fileno(py)?, &this.own))
    }

    fn __repr__(&self) -> String {
        let Geometry { slots, members, .. } = self.geometry;
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<Segment {}, {slots} slots, {members} members{closed}>", self.place())
    }
}

/// The parts from which `pickle` makes an object: a function, its arguments, and the attributes
/// that a subclass has given it.
pub(super) type Reduced<A> = (Py<PyAny>, (Py<PyType>, Py<PyType>, A), Option<Py<PyAny>>);

/// `arguments` are those of the class `T`: a subclass may take others.
pub(super) fn reduce<T: PyTypeInfo, A>(object: &Bound<'_, T>, arguments: A) -> PyResult<Reduced<A>> {
    let object = object.as_any();
    static REBUILD: Import = Import::new(MODULE, "rebuild");
    let (py, attributes) = (object.py(), object.getattr_opt("__dict__")?.map(Bound::unbind));
    let classes = (py.get_type::<T>().unbind(), object.get_type().unbind());
    Ok((REBUILD.get(py)?.clone().unbind(), (classes.0, classes.1, arguments), attributes))
}

/// An absolute path, which stays right after a change of the working directory.
pub(super) struct Absolute(PathBuf);

impl FromPyObject<'_, '_> for Absolute {
    type Error = PyErr;

    fn extract(path: Borrowed<'_, '_, PyAny>) -> PyResult<Absolute> {
        let FilePath(path) = path.extract()?;
        // One that cannot be is for the core to refuse.
        Ok(Absolute(absolute(&path).unwrap_or(path)))
    }
}

/// The segment itself, or its path: where an end is to be attached.
pub(super) enum Place<'a, 'py> {
    Segment(Borrowed<'a, 'py, Segment>),
    Path(Absolute),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Place<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Place<'a, 'py>> {
        match object.cast::<Segment>() {
            Ok(segment) => Ok(Place::Segment(segment)),
            Err(_) => object
                .extract()
                .map(Place::Path)
                .map_err(|_| PyTypeError::new_err("an end is attached to a Segment, or to the path of one")),
        }
    }
}

impl Place<'_, '_> {
    /// The segment, which is there already.
    pub(super) fn opened(self, py: Python<'_>) -> PyResult<Py<Segment>> {
        match self {
            Place::Segment(segment) => Ok(segment.to_owned().unbind()),
            Place::Path(path) => Py::new(py, Segment::open(py, path, None)?),
        }
    }

    /// The segment, as soon as a server is attached to it. The process that made one at the path
    /// may have gone, and another may come with another segment.
    pub(super) fn served(self, py: Python<'_>, deadline: Deadline) -> PyResult<Py<Segment>> {
        let mut pause = Duration::from_millis(1);
        loop {
            let found = match &self {
                Place::Segment(segment) => Some((**segment).clone().unbind()),
                Place::Path(path) => {
                    match Settings::of(py, None)?.make_at(py, &path.0, |now| now.open(&path.0)) {
                        Err(error) if error.is_instance_of::<PyFileNotFoundError>(py) => None,
                        opened => Some(Py::new(py, opened?)?),
                    }
                }
            };
            if let Some(segment) = found
                && segment.get().has_server(py)?
            {
                return Ok(segment);
            }
            if deadline.has_passed() {
                let late = of_kind(py, ErrorKind::TimedOut, "reqrep client", "there is no server yet");
                return Err(match &self {
                    Place::Segment(_) => late,
                    Place::Path(path) => at(py, late, &path.0),
                });
            }
            let until = deadline.capped(pause);
            wait(py, &Used::Nothing, || Ok(py.detach(|| fd::poll(&mut [], until))))?.or_raise(py)?;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// The segment, which is made if it does not exist.
    pub(super) fn made(self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<Segment>> {
        match self {
            Place::Segment(_) if options.is_some_and(|options| !options.is_empty()) => {
                Err(PyTypeError::new_err("options are for a path: this segment exists already"))
            }
            Place::Segment(segment) => Ok(segment.to_owned().unbind()),
            Place::Path(path) => {
                let settings = Settings::of(py, options)?;
                let made = settings.make_at(py, &path.0, |options| options.open_or_create(&path.0));
                Py::new(py, made?)
            }
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        drop_slowly(self.segment.take());
    }
}

impl Segment {
    /// Makes a client or a server of it.
    pub(super) fn attach<T>(
        &self,
        py: Python<'_>,
        attach: impl FnOnce(&reqrep::Segment) -> pipework::Result<T>,
    ) -> PyResult<T> {
        attach(&self.get(py)?).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                let members = self.geometry.members;
                let advice = format!(
                    "it has {members}: make it with more `members`, or keep a client and use it for all calls"
                );
                Advised { error, advice: &advice }.raise(py)
            }
            _ => error.raise(py),
        })
    }

    fn new(segment: reqrep::Segment, own: Py<PyDict>) -> Segment {
        let (geometry, path) = (*segment.geometry(), segment.path().map(PathBuf::from));
        Segment { segment: Locked::new(Some(segment)), geometry, path, own }
    }

    pub(super) fn get(&self, py: Python<'_>) -> PyResult<reqrep::Segment> {
        self.segment
            .with(|segment| segment.clone())
            .ok_or_else(|| invalid(py, "reqrep segment", "this segment is closed"))
    }

    fn has_server(&self, py: Python<'_>) -> PyResult<bool> {
        let members = self.get(py)?.members().or_raise(py)?;
        Ok(members.iter().any(|member| member.role == Role::Server && member.is_alive))
    }

    pub(super) fn sizes(&self) -> &Geometry {
        &self.geometry
    }

    /// Its place, for people.
    pub(super) fn place(&self) -> String {
        let number =
            || self.segment.with(|segment| segment.as_ref().map(|segment| segment.as_fd().as_raw_fd()));
        match (&self.path, number()) {
            (Some(path), _) => format!("{path:?}"),
            (None, Some(fd)) => format!("descriptor {fd}"),
            (None, None) => String::from("a segment without a name"),
        }
    }
}

/// How long to wait, at most, before looking again for a server.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Options that may be None: then the existing segment's value counts, or else the core's default.
const UNSET: [&str; 10] = [
    "slots",
    "queue",
    "request_bytes",
    "reply_bytes",
    "members",
    "blobs",
    "blob_pool",
    "blob_limit",
    "max_bytes",
    "spin",
];

/// Options that are for the process that opens the segment.
const OWN: [&str; 4] = ["blob_pool", "blob_limit", "any_owner", "spin"];

/// The keyword arguments.
struct Settings {
    options: Options,
    /// The part of them that matters for opening a segment of any sizes.
    plain: Options,
    /// Those of the options that are for this process.
    own: Py<PyDict>,
    /// The sizes that were asked for.
    sizes: Vec<(&'static str, u32)>,
}

impl Settings {
    fn of(py: Python<'_>, named: Option<&Bound<'_, PyDict>>) -> PyResult<Settings> {
        let (mut options, mut plain, mut sizes) = (Options::new(), Options::new(), Vec::new());
        let own = PyDict::new(py);
        keywords::each("reqrep", named, |name, value| {
            if UNSET.contains(&name) && value.is_none() {
                return Ok(true);
            }
            if OWN.contains(&name) {
                own.set_item(name, value.extract::<Bound<'_, PyAny>>()?)?;
            }
            let mut size = |name, range| -> PyResult<u32> {
                let size = value.number(range)?;
                sizes.push((name, size));
                Ok(size)
            };
            let now = options.clone();
            options = match name {
                "slots" => now.slots(size("slots", 1..=MAX_SLOTS.into())?),
                "queue" => now.queue(value.number(0..=MAX_QUEUE.into())?),
                "request_bytes" => now.request_bytes(size("request_bytes", 0..=MAX_PAYLOAD.into())?),
                "reply_bytes" => now.reply_bytes(size("reply_bytes", 0..=MAX_PAYLOAD.into())?),
                "members" => now.members(size("members", 1..=MAX_MEMBERS.into())?),
                "blobs" => now.blobs(size("blobs", 0..=MAX_BLOBS.into())?),
                "blob_pool" => now.blob_pool(value.number(0..=i64::MAX)?),
                "blob_limit" => now.blob_limit(value.number(0..=i64::MAX)?),
                "max_bytes" => {
                    let max_bytes = value.number(0..=i64::MAX)?;
                    plain = plain.clone().max_bytes(max_bytes);
                    now.max_bytes(max_bytes)
                }
                "mode" => now.mode(value.number(0..=0o777)?),
                "sparse" => now.sparse(value.yes_or_no()?),
                "any_owner" => {
                    let any_owner = value.yes_or_no()?;
                    plain = plain.clone().any_owner(any_owner);
                    now.any_owner(any_owner)
                }
                "spin" => now.spin(value.seconds(0.001)?),
                _ => return Ok(false),
            };
            Ok(true)
        })?;
        Ok(Settings { options, plain, own: own.unbind(), sizes })
    }

    /// Opens or makes the segment at `path`, with the sizes that were asked for.
    fn make_at(
        self,
        py: Python<'_>,
        path: &Path,
        make: impl FnOnce(&Options) -> pipework::Result<reqrep::Segment> + Send,
    ) -> PyResult<Segment> {
        let made = py.detach(|| make(&self.options));
        let sizes = match &made {
            Ok(made) => Some(*made.geometry()),
            // Refused for its sizes, perhaps: then it can be opened, and its sizes read.
            Err(error) if error.kind() == ErrorKind::Incompatible => {
                self.plain.open(path).ok().map(|segment| *segment.geometry())
            }
            Err(_) => None,
        };
        let differ = sizes.and_then(|sizes| self.sizes.iter().find_map(|asked| differ(&sizes, *asked)));
        if let Some(text) = differ {
            return Err(at(py, of_kind(py, ErrorKind::Incompatible, "reqrep open", &text), path));
        }
        let segment = made.or_raise_at(py, path)?;
        Ok(Segment::new(segment, self.own))
    }

    fn make(
        self,
        py: Python<'_>,
        make: impl FnOnce(&Options) -> pipework::Result<reqrep::Segment> + Send,
    ) -> PyResult<Segment> {
        // Memory that is reserved may take a while.
        let segment = py.detach(|| make(&self.options)).or_raise(py)?;
        Ok(Segment::new(segment, self.own))
    }
}

/// The error text if the size that was asked for is another one.
fn differ(sizes: &Geometry, (name, asked): (&str, u32)) -> Option<String> {
    let is = match name {
        "slots" => sizes.slots,
        "request_bytes" => sizes.request_bytes,
        "reply_bytes" => sizes.reply_bytes,
        "blobs" => sizes.blobs,
        _ => sizes.members,
    };
    (is != asked).then(|| format!("{name} is {is} in the segment that is there, and {asked} was asked for"))
}
