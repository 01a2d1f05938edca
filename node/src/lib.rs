//! The core of pipework as a Node addon.
//!
//! It converts arguments, polls futures of the core on the thread of an event loop, and maps
//! errors. The crate `pipework` decides what everything does, and `lib/` holds the classes that
//! programs use. Nothing here waits: a future that is not ready leaves its number in the
//! [`Inbox`](inbox::Inbox) of its loop.

// The macros of napi take public items only.
#![allow(unreachable_pub, private_interfaces)]

mod error;
mod memory;
mod value;
mod inbox;
mod watch;
mod descriptor;
mod slot;
mod reqrep;
mod atomic;
