//! What tests are made of: processes, damage to them, and victims that are run step by step.

mod process;
pub(crate) mod damage;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tracee;

pub(crate) use process::*;
