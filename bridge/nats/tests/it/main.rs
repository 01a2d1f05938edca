//! The bridge with a real NATS server: `make nats` installs one and runs these tests. Without one
//! they do nothing, unless PIPEWORK_NATS says that there must be one.

mod harness;
mod calls;
mod blobs;
mod endings;
mod strangers;
mod cluster;
mod messages;
mod twice;
mod stream;
mod secrets;
mod page;
mod restarts;
mod damage;
