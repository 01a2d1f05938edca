//! Where `pipework run` puts messages: among the text, in a file or descriptor, or into commands.

use super::args::Destination;
use crate::failure::{Failure, at};
use crate::form::Form;
use crate::group::Group;
use crate::location::{self, Location};
use crate::outlet::Outlet;
use crate::streams::Stream;
use crate::sys;
use std::ffi::OsString;
use std::fs::File;

/// Where messages and bursts go.
pub(super) enum Messages {
    /// Between the lines, on standard output.
    WithText,
    Outlet(Outlet),
    /// A shell line, and the process that has the latest message.
    Command(OsString, Option<Group>),
}

impl Messages {
    /// Before a descriptor of our own could have the number of the user's.
    pub(super) fn open(
        destination: Option<&Destination>,
        append: bool,
        stdout: Stream,
    ) -> Result<Self, Failure> {
        let place = match destination {
            None => return Ok(Self::WithText),
            Some(Destination::Command(line)) => return Ok(Self::Command(line.clone(), None)),
            Some(Destination::Descriptor(number)) => Location::Descriptor(*number),
            Some(Destination::File(path)) => Location::of(path, 1),
        };
        // Two ways into one file would cut each other's lines, and one might empty what the other
        // has.
        match place {
            Location::Descriptor(number) => {
                let fd = location::inherited(number)?;
                let shared = sys::same_file(&fd, stdout).map_err(at(format!("descriptor {number}")))?;
                Ok(if shared { Self::WithText } else { Self::Outlet(Outlet::new(fd)) })
            }
            Location::Path(path) if sys::is_file_at(stdout, &path) => Ok(Self::WithText),
            Location::Path(path) => {
                let mut options = File::options();
                let options = if append { options.append(true) } else { options.write(true).truncate(true) };
                let file = options.create(true).open(&path).map_err(at(path.display()))?;
                Ok(Self::Outlet(Outlet::new(file)))
            }
        }
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

    /// What is to be written to, if anything is.
    pub(super) fn outlet(&self) -> Option<&Outlet> {
        match self {
            Self::Outlet(outlet) => Some(outlet),
            _ => None,
        }
    }
}
