//! Module atomic: whole messages of any size from many writers over one pipe, FIFO or Unix stream
//! socket.
//!
//! A pipe keeps a write of up to 4096 bytes in one piece, and tears anything larger. Here a message
//! is cut into parts of that size, each with the name of its writer, and the reader puts them
//! together: each message comes out whole, once, and in the order of its writer. A message that a
//! killed writer did not finish is reported: when the pipe ends, or max_unfinished is exceeded,
//! because the reader cannot know sooner that nothing more comes.
//!
//! In mixed mode the same pipe carries ordinary text, too: a process prints any text to its stdout,
//! and sends messages through it at the same time. Text comes out in the place where the kernel
//! received it, in pieces of up to 4096 bytes that stay together, and has no sender. Stdio buffers
//! its output to a pipe: a program whose lines are to stay whole, and in order with its messages,
//! sets line buffering, setvbuf(stdout, NULL, _IOLBF, 0), or calls fflush before it sends.
//!
//! A pipe ends when its last writer is closed. A process that forks its writers closes its own.

pub mod options;
pub mod item;
pub mod reader;
pub mod writer;
