//! Module reqrep: request and response over shared memory. Many clients, many competing servers, no
//! broker.
//!
//! A segment is a file in shared memory, at a path or without a name. Clients put requests into it,
//! each request goes to one of the servers, and each reply goes back to the client that asked. Any
//! process may be killed at any instruction: the others go on, a caller gets PWK_PEER_DIED within
//! 250 ms of the kernel closing that process's files, and the slots of the dead process are taken
//! back.
//!
//! A ticket, 64 bits and never 0, identifies a call: on both sides, from when the request is sent
//! until its reply is received.
//!
//! A call has a slot. It keeps the slot until its client receives the result; or its client cancels
//! it before a server takes it; or, if a server has it and its client no longer waits, that server
//! answers or gives it up. So one thread that sends more calls than there are slots receives in
//! between: pwk_client_try_send, and when that has no slot pwk_client_recv_any. And a server
//! answers each request that it has taken, also if `wanted` is false, with pwk_server_reply or
//! pwk_server_fail.
//!
//! Make slots as long as the usual short request and reply. A longer message is copied into a file in
//! memory, unseen, and its receiver copies it out of that.

pub mod segment;
pub mod client;
pub mod stream;
pub mod server;
pub mod blob;
