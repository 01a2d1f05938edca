//! Whole messages, requests and bytes between the processes and threads of one machine.
//!
//! | module | carries | between |
//! | --- | --- | --- |
//! | [`atomic`] | whole messages of any size through one pipe, also between printed text | many processes and one reader |
//! | [`reqrep`] | calls and replies through shared memory | many clients and many competing servers |
//! | [`broadcast`] | each message to every receiver, through shared memory | publishers and subscribers |
//! | [`pipe`] | bytes, without a system call while neither side waits | two threads or tasks |
//! | [`fd`] | complete reads, writes and copies; one that fails says how far it got | any two descriptors |
//!
//! Every blocking call takes a [`Deadline`], except iterators and drops; every failure is an
//! [`Error`] that names its operation. Linux 5.10 and later.
//!
//! ```
//! use pipework::{Deadline, atomic};
//!
//! let (mut reader, mut writer) = atomic::pair()?;
//! std::thread::spawn(move || writer.send("hello", Deadline::NEVER));
//! assert_eq!(&*reader.recv(Deadline::NEVER)?, b"hello");
//! # Ok::<(), pipework::Error>(())
//! ```

#![deny(unsafe_code)]

mod error;
pub mod defaults;
mod clock;
mod deadline;
pub mod interrupt;
mod sys;
mod sync;
mod spin;
mod region;
mod event;
mod blob;
pub mod fd;
pub mod pipe;
pub mod atomic;
mod segment;
pub mod reqrep;
pub mod broadcast;

pub use deadline::Deadline;
pub use error::{Error, ErrorKind, Result, Unfinished};
#[doc(hidden)]
pub use error::{describe, process_of};

/// Properties that must hold for any input.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::atomic::fuzzing::*;
    pub use crate::broadcast::fuzzing::*;
    pub use crate::reqrep::fuzzing::*;
}

/// The Rust examples of the README and of docs/, as tests. They exist only in the repository, which
/// .cargo/config.toml announces, and in no package.
#[cfg(all(doctest, repository))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../crates/pipework/README.md")]
    struct CrateReadme;
    #[doc = include_str!("../../../docs/rust/atomic.md")]
    struct Atomic;
    #[doc = include_str!("../../../docs/rust/reqrep.md")]
    struct Reqrep;
    #[doc = include_str!("../../../docs/rust/broadcast.md")]
    struct Broadcast;
    #[doc = include_str!("../../../docs/rust/pipe.md")]
    struct Pipe;
    #[doc = include_str!("../../../docs/rust/fd.md")]
    struct Fd;
    #[doc = include_str!("../../../docs/rust/async.md")]
    struct Tasks;
    #[doc = include_str!("../../../docs/objects.md")]
    struct Objects;
    #[doc = include_str!("../../../docs/start/rust.md")]
    struct StartPage;
    #[doc = include_str!("../../../docs/recipes/job-runner.md")]
    struct JobRunner;
    #[doc = include_str!("../../../docs/recipes/web-workers.md")]
    struct WebWorkers;
    #[doc = include_str!("../../../docs/recipes/queue.md")]
    struct QueueRecipe;
}
