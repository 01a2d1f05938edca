//! A process that was started, together with its descendants.
//!
//! Apart, it has a process group of its own, and signals go to the group, so a shell's children end
//! with their shell. Otherwise it stays in the group of `pipework`: Ctrl-C and Ctrl-Z of a terminal
//! reach all of it, and it may read there; then signals go to its descendants one by one, for the
//! group may hold others, the pager at the end of a pipeline for instance.

use crate::sys::{self, Signals};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

/// How processes are started, which is the same for all.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) signals: &'a Signals,
    /// Whether each gets a process group of its own.
    pub(crate) apart: bool,
}

impl Start<'_> {
    /// To be called before a command is spawned whose child becomes a [`Group`].
    pub(crate) fn prepare(self, command: &mut Command) {
        self.signals.give_back(command);
        sys::end_with_parent(command);
        if self.apart {
            command.process_group(0);
        }
    }

    pub(crate) fn group(self, child: Child) -> Group {
        Group { child, apart: self.apart }
    }
}

/// A process and its descendants.
pub(crate) struct Group {
    child: Child,
    apart: bool,
}

impl Group {
    /// Sends a signal to all of it. The process may have ended, but not been waited for: until then
    /// no other process can get its number.
    pub(crate) fn signal(&self, number: i32) {
        let id = self.child.id() as i32;
        if self.apart {
            sys::signal_group(id, number);
            // One that is stopped takes no notice before it goes on.
            sys::signal_group(id, libc::SIGCONT);
        } else {
            // List the descendants before the parent exits and they are re-parented.
            let descendants = sys::descendants_in_our_group(id);
            descendants.into_iter().chain([id]).for_each(|id| sys::signal(id, number));
        }
    }

    /// Its process's status if that has ended; it is left unwaited for.
    pub(crate) fn ended(&self) -> io::Result<Option<ExitStatus>> {
        sys::ended(self.child.id() as i32)
    }

    /// A descriptor that becomes readable when its process ends.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        sys::end_of(self.child.id() as i32)
    }

    /// The same, waited for.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its process; from then on it must not be signalled.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}
