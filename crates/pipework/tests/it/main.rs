//! The integration tests: the crate as its users see it, in real processes.
//!
//! A module for each public module, with its `storm` of kills, its `vectors` and its `hostile`
//! peers under these names; `faults` makes system calls fail in each, and `project` checks the tree
//! around the code.

mod harness;
mod interrupt;
mod fd;
mod pipe;
mod atomic;
mod reqrep;
mod broadcast;
#[cfg(target_arch = "x86_64")]
mod faults;
mod project;
