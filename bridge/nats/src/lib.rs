//! Carries the channels and message pipes of pipework from machine to machine over NATS: the
//! library of the program `pipework-nats`. [BRIDGE.md](../BRIDGE.md) says how a call becomes
//! messages.
//!
//! Everything runs on one thread: in a [`tokio::task::LocalSet`] of a runtime of the current
//! thread. It uses the public interface of the crate `pipework` only.

// In reading order: the wire, the part that both directions share, the two directions of calls;
// then those of messages, in the same way.
pub mod message;
#[path = "../../../crates/pipework-cli/src/openmetrics.rs"]
mod openmetrics;
pub mod figures;
mod group;
pub mod connection;
mod mailboxes;
mod parts;
mod channel;
mod spin;
mod bridge;
mod expose;
mod attach;
mod join;
pub mod envelope;
mod ready;
mod journal;
mod inlet;
mod publish;
mod gather;
mod names;
mod written;
mod outlet;
mod alone;
mod subscribe;

pub use attach::attach;
pub use bridge::{Bridge, Settings, Stop};
pub use channel::Failure;
pub use expose::expose;
pub use join::join;
pub use publish::{Publishing, publish};
pub use subscribe::{Subscribing, subscribe};
