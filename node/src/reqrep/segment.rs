//! The segment: how it is made and opened, and its counts.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::time::UNIX_EPOCH;

use napi::Env;
use napi_derive::napi;
use pipework::ErrorKind;
use pipework::reqrep::{self, Geometry, Options, Role};

use super::blobs::{Blob, BlobMut};
use crate::descriptor::borrow;
use crate::error::{Failure, OrThrow};
use crate::value::milliseconds;

/// The options; `lib/options.js` has checked their ranges. Times are milliseconds.
#[napi(object, object_to_js = false)]
pub struct SegmentOptions {
    pub slots: Option<u32>,
    pub queue: Option<u32>,
    pub request_bytes: Option<u32>,
    pub reply_bytes: Option<u32>,
    pub members: Option<u32>,
    pub blobs: Option<u32>,
    pub blob_pool: Option<f64>,
    pub blob_limit: Option<f64>,
    pub max_bytes: Option<f64>,
    pub mode: Option<u32>,
    pub sparse: Option<bool>,
    pub any_owner: Option<bool>,
    pub spin: Option<f64>,
}

impl SegmentOptions {
    fn options(&self) -> Options {
        let mut options = Options::new();
        macro_rules! set {
            ($($name:ident: $of:expr;)*) => {
                $(if let Some(value) = self.$name {
                    options = options.$name($of(value));
                })*
            };
        }
        let bytes = |bytes: f64| bytes as u64;
        set! {
            slots: u32::from; queue: u32::from; request_bytes: u32::from; reply_bytes: u32::from;
            members: u32::from; blobs: u32::from; blob_pool: bytes; blob_limit: bytes; max_bytes: bytes;
            mode: u32::from; sparse: bool::from; any_owner: bool::from; spin: milliseconds;
        }
        options
    }
}

/// Number, whether it is a server, process, milliseconds since 1970, and whether it lives.
type MemberFields = (u32, bool, u32, f64, bool);

#[napi]
pub struct Segment {
    /// None once it is closed.
    segment: RefCell<Option<reqrep::Segment>>,
    geometry: Geometry,
}

#[napi]
impl Segment {
    #[napi(factory)]
    pub fn open_or_create(env: Env, path: String, options: SegmentOptions) -> napi::Result<Segment> {
        Segment::at(&env, &path, options.options().open_or_create(&path))
    }

    #[napi(factory)]
    pub fn create(env: Env, path: String, options: SegmentOptions) -> napi::Result<Segment> {
        Segment::at(&env, &path, options.options().create(&path))
    }

    #[napi(factory)]
    pub fn open(env: Env, path: String, options: SegmentOptions) -> napi::Result<Segment> {
        Segment::at(&env, &path, options.options().open(&path))
    }

    #[napi(factory)]
    pub fn anonymous(env: Env, options: SegmentOptions) -> napi::Result<Segment> {
        options.options().anonymous().map(Segment::new).or_throw(&env)
    }

    #[napi(factory)]
    pub fn memfd(env: Env, name: String, options: SegmentOptions) -> napi::Result<Segment> {
        options.options().memfd(&name).map(Segment::new).or_throw(&env)
    }

    #[napi(factory)]
    pub fn from_fd(env: Env, fd: i32, options: SegmentOptions) -> napi::Result<Segment> {
        let fd = borrow(fd).or_throw(&env)?;
        options.options().dup_fd(fd).map(Segment::new).or_throw(&env)
    }

    #[napi(getter)]
    pub fn path(&self) -> Option<String> {
        self.segment.borrow().as_ref()?.path().map(|path| path.to_string_lossy().into_owned())
    }

    #[napi(getter)]
    pub fn fd(&self, env: Env) -> napi::Result<i32> {
        Ok(self.get(&env)?.as_fd().as_raw_fd())
    }

    /// Its sizes, in the order of the public class.
    #[napi]
    pub fn geometry(&self) -> Vec<u32> {
        let Geometry { slots, queue, request_bytes, reply_bytes, members, blobs } = self.geometry;
        vec![slots, queue, request_bytes, reply_bytes, members, blobs]
    }

    #[napi(getter)]
    pub fn waiting(&self, env: Env) -> napi::Result<u32> {
        Ok(self.get(&env)?.waiting() as u32)
    }

    /// Names and numbers by turns.
    #[napi]
    pub fn stats(&self, env: Env) -> napi::Result<Vec<(String, f64)>> {
        let stats = self.get(&env)?.stats();
        Ok(stats.by_name().map(|(name, number)| (name.into(), number as f64)).collect())
    }

    #[napi]
    pub fn audit(&self, env: Env) -> napi::Result<Vec<(String, f64)>> {
        let audit = self.get(&env)?.audit().or_throw(&env)?;
        Ok(audit.by_name().map(|(name, number)| (name.into(), number as f64)).collect())
    }

    #[napi]
    pub fn members(&self, env: Env) -> napi::Result<Vec<MemberFields>> {
        let members = self.get(&env)?.members().or_throw(&env)?;
        let member = |member: &reqrep::Member| {
            let since = member.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1000.0;
            (u32::from(member.number), member.role == Role::Server, member.pid, since, member.is_alive)
        };
        Ok(members.iter().map(member).collect())
    }

    #[napi]
    pub fn recover(&self, env: Env) -> napi::Result<u32> {
        self.get(&env)?.recover().map(|count| count as u32).or_throw(&env)
    }

    #[napi]
    pub fn unlink(&self, env: Env) -> napi::Result<bool> {
        self.get(&env)?.unlink().or_throw(&env)
    }

    #[napi]
    pub fn blob(&self, env: Env, len: f64) -> napi::Result<BlobMut> {
        self.draft(&env, len as usize).map(BlobMut::new)
    }

    #[napi]
    pub fn blob_from(&self, env: Env, data: &[u8]) -> napi::Result<Blob> {
        let mut draft = self.draft(&env, data.len())?;
        draft.copy_from_slice(data);
        Ok(Blob::new(draft.freeze().or_throw(&env)?))
    }

    /// Bytes of blobs that this process holds, and how many blobs it has received as copies.
    #[napi]
    pub fn blob_stats(&self, env: Env) -> napi::Result<Vec<f64>> {
        let stats = self.get(&env)?.blob_stats();
        Ok(vec![stats.held as f64, stats.copied as f64])
    }

    #[napi]
    pub fn close(&self) {
        drop(self.segment.take());
    }

    #[napi(getter)]
    pub fn closed(&self) -> bool {
        self.segment.borrow().is_none()
    }
}

/// The error of a client or a server that cannot attach.
pub(super) fn refused(error: pipework::Error) -> Failure {
    match error.kind() {
        ErrorKind::WouldBlock => Failure::from(error)
            .advised("close the clients and servers that are not used any more, or make the segment with more `members`"),
        _ => Failure::from(error),
    }
}

impl Segment {
    fn new(segment: reqrep::Segment) -> Segment {
        Segment { geometry: *segment.geometry(), segment: RefCell::new(Some(segment)) }
    }

    fn at(env: &Env, path: &str, made: pipework::Result<reqrep::Segment>) -> napi::Result<Segment> {
        made.map(Segment::new).map_err(|error| Failure::from(error).at(path).thrown(env))
    }

    pub(super) fn get(&self, env: &Env) -> napi::Result<reqrep::Segment> {
        let segment = self.segment.borrow().clone();
        segment.ok_or_else(|| Failure::invalid("reqrep segment", "this segment is closed").thrown(env))
    }

    fn draft(&self, env: &Env, len: usize) -> napi::Result<reqrep::BlobMut> {
        let segment = self.get(env)?;
        segment.blob(len).map_err(|error| {
            let failure = Failure::from(error);
            let failure = match error.kind() {
                ErrorKind::TooLong => failure.advised(&format!(
                    "{} are held, and {len} more were asked for",
                    segment.blob_stats().held
                )),
                _ => failure,
            };
            match segment.path() {
                Some(path) => failure.at(&path.to_string_lossy()),
                None => failure,
            }
            .thrown(env)
        })
    }
}
