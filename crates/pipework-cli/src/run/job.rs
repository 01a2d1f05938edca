//! One command of `pipework run`: its name, its process, and the pipe that is its standard output.
//!
//! A job is over when its process has ended and its pipe is at its end. The two come in either
//! order: a process may leave others behind that still hold the pipe, and may close its output
//! early.

use crate::exec::{CANNOT_EXECUTE, NOT_FOUND};
use crate::failure::Failure;
use crate::group::{Group, Start};
use crate::progress::say;
use pipework::Deadline;
use pipework::atomic::{Options, Reader};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// A command that runs, or has run.
pub(crate) struct Job {
    pub(crate) name: String,
    /// None at the end of the pipe.
    pub(crate) reader: Option<Reader>,
    /// The reader may hold items already read, which no poll would tell of.
    pub(crate) ready: bool,
    /// Bytes of the unfinished line that a person has seen already.
    pub(crate) shown: usize,
    /// None if it could not be started.
    group: Option<Group>,
    /// Once its process has ended.
    status: Option<u8>,
}

impl Job {
    /// Starts a command. That it cannot be started is its exit status, as in a shell.
    pub(crate) fn start(
        plan: Plan,
        stdin: Stdio,
        options: &Options,
        start: Start<'_>,
    ) -> Result<Self, Failure> {
        let Plan { words, name } = plan;
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
        let (reader, writer) = options.pair().map_err(|error| failed(&error))?;
        let stdout = writer.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let mut command = Command::new(&words[0]);
        start.prepare(&mut command);
        let spawned = command.args(&words[1..]).stdin(stdin).stdout(stdout).spawn();
        // Our copies of the writing end would keep the pipe from ever ending.
        drop((command, writer));
        let (group, status) = match spawned {
            Ok(child) => (Some(start.group(child)), None),
            Err(error) => {
                say(format!("cannot run {}: {error}", words[0].display()));
                let found = error.kind() != std::io::ErrorKind::NotFound;
                (None, Some(if found { CANNOT_EXECUTE } else { NOT_FOUND }))
            }
        };
        Ok(Self { name, reader: Some(reader), ready: true, shown: 0, group, status })
    }

    /// Takes note if the process has ended.
    pub(crate) fn look_after(&mut self) -> std::io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        if let Some(status) = self.group.as_ref().map(Group::ended).transpose()?.flatten() {
            self.status = Some(status_of(status));
            // Where only this was waited for, the pipe is looked at once more.
            self.ready = true;
        }
        Ok(())
    }

    /// Its reader has something to decide although nothing has come.
    pub(crate) fn is_due(&self) -> bool {
        let due = self.reader.as_ref().and_then(Reader::due);
        due.is_some_and(Deadline::has_passed)
    }

    /// Hands a signal on to the process and to what it has started, as long as any of them may be
    /// there.
    pub(crate) fn signal(&self, number: i32) {
        if let Some(group) = self.group.as_ref().filter(|_| !self.is_over()) {
            group.signal(number);
        }
    }

    /// The process has ended; others may still hold the pipe.
    pub(crate) fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// The process has ended and the pipe is at its end.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.reader.is_none()
    }

    /// Its exit status, or 0 while it has none.
    pub(crate) fn status(&self) -> u8 {
        self.status.unwrap_or(0)
    }
}

/// An exit status as a shell gives it.
fn status_of(status: ExitStatus) -> u8 {
    let number = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// What is to be run, and what it is called.
pub(crate) struct Plan {
    pub(crate) words: Vec<OsString>,
    pub(crate) name: String,
}

impl Plan {
    /// A command, called by its file name.
    pub(crate) fn command(words: &[OsString]) -> Self {
        let path = Path::new(&words[0]);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { words: words.to_vec(), name }
    }

    /// A line for the shell, called by its first word.
    pub(crate) fn shell(line: &OsString) -> Self {
        let text = line.to_string_lossy();
        let first = text.split(|c: char| c.is_whitespace() || ";|&()".contains(c));
        let name = first.into_iter().find(|word| !word.is_empty()).unwrap_or("sh").to_string();
        Self { words: vec!["sh".into(), "-c".into(), line.clone()], name }
    }
}

/// Numbers those that are called the same: NAME.1, NAME.2.
pub(crate) fn tell_apart(plans: &mut [Plan]) {
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    for (place, name) in names.iter().enumerate() {
        let count = |among: &[String]| among.iter().filter(|other| *other == name).count();
        if count(&names) > 1 {
            plans[place].name = format!("{name}.{}", count(&names[..=place]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_commands_apart() {
        let shell = |line: &str| Plan::shell(&line.into());
        let mut plans = [
            Plan::command(&["/bin/make".into(), "a".into()]),
            shell("(cd x; ls)"),
            Plan::command(&["make".into()]),
            shell(" "),
            shell("make b; make c"),
        ];
        tell_apart(&mut plans);
        let names: Vec<_> = plans.iter().map(|plan| &*plan.name).collect();
        assert_eq!(names, ["make.1", "cd", "make.2", "sh", "make.3"]);
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(status_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_of(ExitStatus::from_raw(9)), 137);
    }
}
