//! The integration tests: the crate as its users see it, in real processes.

mod interop;
mod role;
mod damage;
#[cfg(target_arch = "x86_64")]
mod tracee;
mod storm;
mod reqstorm;
mod reqprocs;
mod reqbells;
mod reqdisk;
mod reqfiles;
mod reqhostile;
mod fd;
mod pipe;
mod fifos;
mod processes;
mod strangers;
mod waiting;
mod clones;
mod relays;
mod offers;
mod settings;
mod sockets;
mod sanitizer;
#[cfg(target_arch = "x86_64")]
mod crash;
mod tidy;
mod vectors;
mod reqvectors;

#[cfg(not(target_arch = "x86_64"))]
#[test]
#[ignore = "only x86-64 is stepped through"]
fn crash() {}
