//! Module `reqrep`: the compiled halves of its classes.

mod blobs;
mod message;
mod segment;
mod calls;
mod parts;
mod client;
mod server;
