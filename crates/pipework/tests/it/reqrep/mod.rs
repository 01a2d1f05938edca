//! Module `reqrep`: calls between processes that are killed, stopped, forked and fed with hostile
//! data.

mod files;
mod disk;
mod parts;
mod blobs;
mod processes;
mod doorbells;
mod tasks;
mod two_users;
mod hostile;
mod storm;
#[cfg(target_arch = "x86_64")]
mod crash;
mod vectors;
mod ways;

#[cfg(not(target_arch = "x86_64"))]
#[test]
#[ignore = "only x86-64 is stepped through"]
fn crash() {}
