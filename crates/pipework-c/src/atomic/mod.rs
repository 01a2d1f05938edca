//! Room atomic: whole messages of any size from many writers over one pipe, FIFO or Unix stream
//! socket.
//!
//! A pipe keeps a write of up to 4096 bytes in one piece, and tears anything larger. Here a message
//! is cut into parts of that size, each with the name of its writer, and the reader puts them
//! together: each message comes out whole, once, and in the order of its writer. What a writer that
//! was killed did not finish is reported.
//!
//! In mixed mode the same pipe carries ordinary text, too: a process prints to its stdout whatever
//! it likes, and sends messages through it at the same time.

pub mod options;
pub mod item;
pub mod reader;
pub mod writer;
