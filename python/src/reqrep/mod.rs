//! `pipework.reqrep`: request and response over shared memory.
//!
//! Bytes and integers are the same ends twice: what they have in common is written once, in `Calls` and `Taking`, for whatever the payload is.

mod segment;
mod shared;
mod calls;
mod client;
mod open;
mod taking;
mod turns;
mod server;

use pyo3::prelude::*;

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<segment::Segment>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<client::IntClient>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<server::Request>()?;
    module.add_class::<server::IntServer>()?;
    module.add_class::<server::IntRequest>()?;
    module.add_class::<turns::Requests>()
}
