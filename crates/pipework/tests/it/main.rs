//! The integration tests: the crate as its users see it, in real processes.
//!
//! A module for each room, which has its `storm` of kills, its `vectors` and its `hostile` peers
//! under these names; `project` tests what is around the code.

mod harness;
mod fd;
mod pipe;
mod atomic;
mod reqrep;
mod project;
