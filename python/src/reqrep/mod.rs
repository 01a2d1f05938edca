//! `pipework.reqrep`: request and response over shared memory.
//!
//! The work of the ends is in `calls.rs` and `taking.rs`; their methods, as Python has them, are in
//! `client.rs`, `server.rs` and `request.rs`. Blobs are in `blobs.rs`.

mod blobs;
mod segment;
mod shared;
mod codec;
mod calls;
mod streams;
mod client;
mod open;
mod taking;
mod turns;
mod request;
mod server;

use pyo3::prelude::*;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<blobs::Blob>()?;
    module.add_class::<blobs::BlobMut>()?;
    module.add_class::<segment::Segment>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<streams::Stream>()?;
    module.add_class::<streams::Parts>()?;
    module.add_class::<streams::Completed>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<turns::Requests>()
}
