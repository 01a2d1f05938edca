//! Module `reqrep`: request and response over shared memory. Many clients, many competing servers, no
//! broker.
//!
//! A **segment** is a file in shared memory, at a path or without a name. Clients put requests into
//! it, each request goes to one of the servers, and each reply goes back to the client that asked.
//! Any process may be killed at any instruction: the others go on, a caller gets the error
//! `PeerDied`, and everything that the dead process held is recovered.
//!
//! ```
//! use pipework::{Deadline, reqrep::Options};
//! use std::{thread, time::Duration};
//!
//! let segment = Options::new().anonymous()?;
//! let server = segment.server()?;
//! thread::spawn(move || {
//!     while let Ok(request) = server.recv(Deadline::NEVER) {
//!         let answer = request.to_ascii_uppercase();
//!         let _ = request.reply(&answer);
//!     }
//! });
//! let client = segment.client()?;
//! assert_eq!(&*client.call("hello", Duration::from_secs(5))?, b"HELLO");
//! # Ok::<(), pipework::Error>(())
//! ```
//!
//! # What is promised
//!
//! A request is taken by at most one live server. A reply reaches only the client that asked. The
//! death of a server is noticed within 250 ms of the kernel closing the files of its process, and
//! so is a wake-up that was lost with a process. The kernel closes them after it has written a core
//! dump, and after much memory is freed: 290 ms after `kill -9` for 4 GiB, and 38 s where they are
//! dumped first. A process that is stopped, debugged or swapped out is alive, whatever its pid
//! namespace. A process that may write to the segment can cause errors and lost service, and
//! nothing else.
//!
//! Not promised: a client that lives and does not receive its replies keeps their slots
//! ([`Client::pending`] says how many, [`ClientOptions::max_in_flight`] limits them). A request that a
//! server was working on when it died may have been carried out. Whether another server gets it is
//! the caller's choice ([`ClientOptions::redeliveries`]).

#![doc = include_str!("SEGMENT.md")]
#![doc = include_str!("../segment/FILE.md")]

mod layout;
mod word;
mod queue;
mod slot;
mod shared;
mod payload;
mod calls;
mod waiting;
mod segment;
mod place;
mod reply;
mod client;
mod receiving;
mod serving;
mod request;
mod server;
mod future;
mod bindings;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
#[cfg(all(test, not(loom)))]
mod faults;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
#[cfg(all(test, not(loom)))]
mod blobs;
#[cfg(all(test, not(loom)))]
mod deaths;
#[cfg(all(test, not(loom)))]
mod watching;
#[cfg(all(test, not(loom)))]
mod waking;
#[cfg(all(test, not(loom)))]
mod beside;

pub use crate::blob::{Blob, BlobAudit, BlobMut, BlobStats};
pub use crate::segment::deaths::hears_of_deaths;
pub use crate::segment::header::MAX_MEMBERS;
pub use crate::segment::message::{Message, Space};
#[doc(hidden)]
pub use bindings::{KeptDescriptor, KeptRequest};
pub use client::{Client, ClientOptions};
#[doc(hidden)]
pub use future::only_looks;
pub use layout::{Geometry, MAX_BLOBS, MAX_PAYLOAD, MAX_QUEUE, MAX_SLOTS};
pub use receiving::Stream;
pub use reply::{CallError, Completion, Reply};
pub use request::Request;
pub use segment::{Audit, Call, Member, Options, Segment, Stage, Stats};
pub use server::{Requests, Server};
pub use serving::ServerOptions;
pub use shared::Role;
pub use word::{MAX_REDELIVERIES, Ticket};
