//! Room reqrep: request and response over shared memory. Many clients, many competing servers, no
//! broker.
//!
//! A segment is a file in shared memory, at a path or without a name. Clients put requests into it,
//! each request goes to one of the servers, and each reply goes back to the client that asked. Any
//! process may be killed at any instruction: the others go on, a caller gets PW_PEER_DIED within
//! 250 ms of the kernel closing that process's files, and what the dead process held is taken back.
//!
//! A ticket, 64 bits and never 0, stands for a call: on both sides, from when the request is sent
//! until its reply is received.
//!
//! Make slots as long as the usual request and reply: what is longer goes in parts, for which the
//! two sides take turns. A server that has a part to give waits until the client takes it, and a
//! client takes the parts of a call only while it receives that call; pw_client_recv_any takes
//! those of all, but for streams. So one thread with several calls in progress needs slots that
//! hold its requests, and pw_client_recv_any; otherwise a thread for each call. Else client and
//! server may wait for each other, until the server's part_timeout_ns has passed and the call fails
//! with PW_FAILED.

pub mod segment;
pub mod client;
pub mod stream;
pub mod server;
pub mod int;
pub mod eventfd;
