//! A command run for one message.
//!
//! The message is on the command's standard input as an unnamed file in memory, not as a pipe: so
//! nobody has to feed it, a command that reads only a part of it fails nobody, and it may seek.

use crate::failure::Failure;
use crate::form::Parts;
use crate::sys;
use pipework::atomic::Item;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The statuses of a shell for a command that it cannot start.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// A failure if the command `name` is not there to be run; it ends with `so`. To be asked before
/// anything is taken that could not be given to anybody.
pub(crate) fn find(name: &OsStr, so: &str) -> Result<(), Failure> {
    let is_file = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file());
    let runs = |path: &Path| is_file(path) && sys::may_execute(path);
    let named = |path: &Path| match (runs(path), is_file(path)) {
        (true, _) => Ok(()),
        (_, true) => Err((CANNOT_EXECUTE, "it is not executable")),
        _ => Err((NOT_FOUND, "there is no such command")),
    };
    let path = Path::new(name);
    let found = if name.as_bytes().contains(&b'/') {
        named(path)
    } else {
        // Without PATH the C library has one of its own, which includes these.
        let folders = std::env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
        let mut found = std::env::split_paths(&folders).map(|folder| folder.join(path));
        match found.any(|path| runs(&path)) {
            true => Ok(()),
            false => Err((NOT_FOUND, "no folder of PATH has it")),
        }
    };
    let what = path.display();
    found.map_err(|(status, why)| Failure::new(format!("cannot run {what}: {why}; {so}")).with_status(status))
}

/// Starts `command` for a message or burst; the caller waits for it.
pub(crate) fn start(command: &mut Command, item: &Item<'_>) -> io::Result<Child> {
    let Some(parts) = Parts::of(item) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    command.env("PIPEWORK_TYPE", parts.kind);
    match parts.origin {
        Some((writer, count)) => command
            .env("PIPEWORK_PID", writer.pid.to_string())
            .env("PIPEWORK_WRITER", writer.to_string())
            .env("PIPEWORK_PARTS", count.to_string()),
        // Set for an outer command perhaps, but not true of this one.
        None => command.env_remove("PIPEWORK_PID").env_remove("PIPEWORK_WRITER").env_remove("PIPEWORK_PARTS"),
    };
    command.stdin(Stdio::from(sys::file_in_memory(parts.whole)?)).spawn()
}
