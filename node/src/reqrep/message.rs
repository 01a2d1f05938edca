//! What travels: payloads with their flags and blobs, to the core and to JavaScript.

use napi::Env;
use napi::bindgen_prelude::ClassInstance;
use pipework::reqrep::{self, Message, Reply};

use super::blobs::Blob;
use crate::value::Value;

/// The blobs that a message is to carry.
pub(super) type Blobs<'env> = Option<Vec<ClassInstance<'env, Blob>>>;

pub(super) fn attached(env: &Env, blobs: Blobs<'_>) -> napi::Result<Vec<reqrep::Blob>> {
    blobs.into_iter().flatten().map(|blob| blob.get(env, "blob attach")).collect()
}

/// A message in memory of its own, for a call that must wait.
pub(super) struct Held {
    pub(super) data: Vec<u8>,
    pub(super) flags: u32,
    pub(super) blobs: Vec<reqrep::Blob>,
}

impl Held {
    pub(super) fn message(&self) -> Message<'_> {
        Message::new(&self.data).flags(self.flags).attach(&self.blobs)
    }
}

/// A reply for JavaScript: its bytes; or `whole`, with its flags and blobs.
pub(super) fn received(reply: Reply, whole: bool) -> Value {
    if !whole {
        return Value::Bytes(reply.into_vec());
    }
    let (flags, blobs) = (reply.flags(), listed(reply.blobs()));
    Value::List(vec![Value::Bytes(reply.into_vec()), Value::Number(flags), blobs])
}

pub(super) fn listed(blobs: &[reqrep::Blob]) -> Value {
    Value::List(blobs.iter().map(|blob| Value::instance(Blob::new(blob.clone()))).collect())
}
