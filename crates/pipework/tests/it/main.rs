//! The integration tests: the crate as its users see it, in real processes.

mod interop;
mod role;
mod storm;
mod fifos;
mod processes;
mod strangers;
mod waiting;
mod clones;
mod offers;
mod tidy;
mod vectors;
