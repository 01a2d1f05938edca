//! The targets of messages in `pipework run`: among the text, in a file or descriptor, or into commands.

use super::args::Destination;
use crate::failure::Failure;
use crate::form::Form;
use crate::group::Group;
use crate::log_file::LogFile;
use crate::outlet::Outlet;
use crate::streams::Stream;
use std::ffi::OsString;

/// The target of messages and bursts.
pub(super) enum Messages {
    /// Between the lines, on standard output.
    WithText,
    Outlet(Outlet),
    /// A shell line, and the process that has the latest message.
    Command(OsString, Option<Group>),
}

impl Messages {
    /// To be called before a descriptor of our own could have the number of the user's. `end` is
    /// the byte that ends a message.
    pub(super) fn open(
        destination: Option<&Destination>,
        append: bool,
        end: u8,
        stdout: Stream,
    ) -> Result<Self, Failure> {
        let file = match destination {
            None => return Ok(Self::WithText),
            Some(Destination::Command(line)) => return Ok(Self::Command(line.clone(), None)),
            Some(Destination::Descriptor(number)) => {
                LogFile::inherited(*number, format!("descriptor {number}"), end, stdout)?
            }
            Some(Destination::File(path)) => LogFile::open(path, append, end, stdout)?,
        };
        // Two ways into one file would cut each other's lines, and one might empty what the other
        // has.
        let Some(file) = file else { return Ok(Self::WithText) };
        let ends_inside = file.ends_inside;
        let mut outlet = Outlet::new(file.into_file()?);
        if ends_inside {
            outlet.buffer().push(end);
            outlet.end_entry();
        }
        Ok(Self::Outlet(outlet))
    }

    /// The form of lines, which share that of the messages only where they share their destination.
    pub(super) fn form_of_lines(&self, form: Form) -> Form {
        match self {
            Self::WithText => form,
            _ => Form::Lines,
        }
    }

    /// Another message has to wait.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::WithText => false,
            Self::Outlet(outlet) => outlet.is_full(),
            Self::Command(_, group) => group.is_some(),
        }
    }

    /// The outlet to write to, if it has data.
    pub(super) fn outlet(&self) -> Option<&Outlet> {
        match self {
            Self::Outlet(outlet) => Some(outlet),
            _ => None,
        }
    }
}
