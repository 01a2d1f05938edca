//! Processes of this program that take part in a demonstration or a measurement, the segment that
//! they meet in, and the cost of a run.

use crate::failure::{Failure, at};
use crate::sys;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// This program again, in the role that its first argument names; it does not outlive this process.
pub(crate) fn start(part: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    sys::end_with_parent(&mut command);
    command.arg(part);
    Ok(command)
}

/// A segment's name, which goes when this does.
pub(crate) struct Name(pub(crate) PathBuf);

impl Name {
    pub(crate) fn new(purpose: &str) -> Self {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.into() } else { std::env::temp_dir() };
        Self(folder.join(format!("pipework-{purpose}-{}", std::process::id())))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // It may never have come into being.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Processes that take part; those that still run when this is dropped are killed.
#[derive(Default)]
pub(crate) struct Children(pub(crate) Vec<Child>);

impl Children {
    /// Waits for all of them, which must succeed.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        for mut child in self.0.drain(..) {
            let status = child.wait().map_err(at("waiting for a process that takes part"))?;
            if !status.success() {
                return Err(Failure::new(format!("a process that takes part failed: {status}")));
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

/// The cost of a run.
pub(crate) struct Cost {
    pub(crate) elapsed: Duration,
    /// CPU time of this process.
    pub(crate) own: Duration,
    /// CPU time of the processes that it started and waited for.
    pub(crate) children: Duration,
}

pub(crate) fn measure(work: impl FnOnce() -> Result<(), Failure>) -> Result<Cost, Failure> {
    let (own, children) = sys::cpu_time();
    let start = Instant::now();
    work()?;
    let elapsed = start.elapsed();
    let (own_after, children_after) = sys::cpu_time();
    Ok(Cost { elapsed, own: own_after - own, children: children_after - children })
}
