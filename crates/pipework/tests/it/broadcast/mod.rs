//! Module `broadcast`: one message to many processes that are killed, stopped and forked.

mod disk;
mod ways;
mod waits;
mod many;
mod storm;
#[cfg(target_arch = "x86_64")]
mod crash;
mod vectors;

#[cfg(not(target_arch = "x86_64"))]
#[test]
#[ignore = "only x86-64 is stepped through"]
fn crash() {}
