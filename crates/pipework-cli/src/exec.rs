//! A command run for one message.
//!
//! The message is on the command's standard input as an unnamed file in memory, not as a pipe: so
//! nobody has to feed it, a command that reads only a part of it fails nobody, and it may seek.

use crate::form::Parts;
use crate::sys;
use pipework::atomic::Item;
use std::io;
use std::process::{Child, Command, Stdio};

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
