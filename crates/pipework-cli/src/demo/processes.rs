//! Processes of the demo, and what a run takes.

use crate::failure::{Failure, at};
use crate::sys;
use std::process::Child;
use std::time::{Duration, Instant};

/// Processes of the demo; those that still run when this is dropped are killed.
#[derive(Default)]
pub(super) struct Children(pub(super) Vec<Child>);

impl Children {
    /// Waits for all, who must end well.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for mut child in self.0.drain(..) {
            let status = child.wait().map_err(at("waiting for a process of the demo"))?;
            if !status.success() {
                return Err(Failure::new(format!("a process of the demo failed: {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a run took.
pub(super) struct Cost {
    pub(super) elapsed: Duration,
    /// CPU time of this process.
    pub(super) own: Duration,
    /// CPU time of the processes that it started and waited for.
    pub(super) children: Duration,
}

pub(super) fn measure(work: impl FnOnce() -> Result<(), Failure>) -> Result<Cost, Failure> {
    let (own, children) = sys::cpu_time();
    let start = Instant::now();
    work()?;
    let elapsed = start.elapsed();
    let (own_after, children_after) = sys::cpu_time();
    Ok(Cost { elapsed, own: own_after - own, children: children_after - children })
}
