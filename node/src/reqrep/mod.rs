//! Module `reqrep`: the compiled halves of its classes.

mod blobs;
mod segment;
mod calls;
mod client;
mod parts;
mod server;

pub(crate) use blobs::Blob;
pub(crate) use parts::Parts;

use napi::bindgen_prelude::ClassInstance;
use pipework::reqrep::{self, Message, Reply};

use crate::value::Value;

/// The blobs that a message is to carry.
type Blobs<'env> = Option<Vec<ClassInstance<'env, Blob>>>;

fn attached(blobs: Blobs<'_>) -> Vec<reqrep::Blob> {
    blobs.into_iter().flatten().map(|blob| blob.blob.clone()).collect()
}

/// A message in memory of its own, for a call that must wait.
struct Held {
    data: Vec<u8>,
    flags: u32,
    blobs: Vec<reqrep::Blob>,
}

impl Held {
    fn message(&self) -> Message<'_> {
        Message::new(&self.data).flags(self.flags).attach(&self.blobs)
    }
}

/// A reply for JavaScript: its bytes; or `whole`, with its flags and blobs.
fn received(reply: Reply, whole: bool) -> Value {
    if !whole {
        return Value::Bytes(reply.into_vec());
    }
    let (flags, blobs) = (reply.flags(), listed(reply.blobs()));
    Value::List(vec![Value::Bytes(reply.into_vec()), Value::Number(flags), blobs])
}

fn listed(blobs: &[reqrep::Blob]) -> Value {
    Value::List(blobs.iter().map(|blob| Value::Blob(Blob { blob: blob.clone() })).collect())
}
