//! The layer for files that processes share: what every segment needs, whatever lies in it.
//!
//! A module on top of it says what lies there and which words name members ([`mapping::Contents`],
//! [`recovery::Recover`]), whose deaths matter to an end ([`liveness::Needs`]), and what event loops and
//! tasks wait for ([`watch::Topic`]). The layer does the rest: it makes and opens the file, joins
//! members, proves their deaths, wakes waiters, and counts the handles that name blobs. FILE.md is the
//! format, with a death after each step.

pub(crate) mod operations;
pub(crate) mod header;
pub(crate) mod mapping;
pub(crate) mod naming;
pub(crate) mod message;
pub(crate) mod recovery;
pub(crate) mod member;
pub(crate) mod deaths;
pub(crate) mod liveness;
pub(crate) mod waiters;
pub(crate) mod watch;
#[cfg(all(test, not(loom)))]
mod tests;
