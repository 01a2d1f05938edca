//! Module broadcast: one message to many receivers through shared memory. Any number of publishers and
//! subscribers, no broker.
//!
//! A channel is a ring of messages in a file in shared memory, at a path or without a name. All
//! subscribers get the messages in one order, each message once and whole. Each subscriber decides what
//! happens if it is too slow. By default it may lag: publishers never wait for it, and PWK_LAGGED says how
//! many messages it has missed. With must_see_all, publishers wait for it.
//!
//! Any process may be killed at any instruction, and the others go on. A message of a publisher that was
//! killed is received by all or by none. A process that is stopped is alive: a stopped subscriber that
//! must see all holds up publishers until their deadline, and pwk_error_process names it.
//!
//! A message has a number: the first one of a channel has 1. A subscriber may go on after the number that
//! it received last, also after a restart.
//!
//! Make cells as long as the usual short message. A longer message is copied into a file in memory,
//! unseen, and subscribers read it there.

pub mod channel;
pub mod publisher;
pub mod subscriber;
