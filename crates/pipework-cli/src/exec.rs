//! A command run for one message.
//!
//! The message is on the command's standard input as an unnamed file in memory, not as a pipe: so
//! no process has to feed it, a command that reads only a part of it causes no failure, and it may
//! seek.

use crate::failure::Failure;
use crate::form::Parts;
use crate::sys;
use pipework::atomic::Item;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The statuses of a shell for a command that it cannot start.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// A failure if the command `name` is not there to be run; it ends with `so`. To be asked before
/// anything is taken that no command could get.
pub(crate) fn find(name: &OsStr, so: &str) -> Result<(), Failure> {
    let path = Path::new(name);
    let found = if name.as_bytes().contains(&b'/') {
        match (runs(path), path.is_file()) {
            (true, _) => has_interpreter(path),
            (_, true) => Err((CANNOT_EXECUTE, "it is not executable".into())),
            _ => Err((NOT_FOUND, "there is no such command".into())),
        }
    } else {
        // Without PATH the C library has one of its own, which includes these.
        let folders = std::env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
        let mut found = std::env::split_paths(&folders).map(|folder| folder.join(path));
        match found.find(|path| runs(path)) {
            Some(path) => has_interpreter(&path),
            None => Err((NOT_FOUND, "no folder of PATH has it".into())),
        }
    };
    let what = path.display();
    found.map_err(|(status, why)| Failure::new(format!("cannot run {what}: {why}; {so}")).with_status(status))
}

fn runs(path: &Path) -> bool {
    path.is_file() && sys::may_execute(path)
}

/// Whether the program is there that the first line of a script names; of a file that cannot be
/// read or is no script nothing is known.
fn has_interpreter(path: &Path) -> Result<(), (u8, String)> {
    let mut line = [0; 256];
    let read = File::open(path).and_then(|mut file| file.read(&mut line)).unwrap_or(0);
    let line = line[..read].split(|&byte| byte == b'\n').next().unwrap_or_default();
    let Some(words) = line.strip_prefix(b"#!") else { return Ok(()) };
    let interpreter = words.trim_ascii().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    match runs(interpreter) {
        true => Ok(()),
        false => {
            let why = format!("its first line names {}, which cannot be run", interpreter.display());
            Err((CANNOT_EXECUTE, why))
        }
    }
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
