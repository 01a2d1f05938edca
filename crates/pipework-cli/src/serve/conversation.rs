//! Records to a command that stays, and records from it: lines, NUL-terminated ones, or messages.
//!
//! Nothing here waits. Bytes that the pipe has no space for are pending, and records that have come
//! are taken as far as they are whole.

use super::args::ServeArgs;
use super::service::Service;
use crate::failure::words;
use crate::records::Records;
use crate::sys;
use pipework::atomic::{Item, Options, Reader, Writer};
use pipework::{Deadline, ErrorKind};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The error for messages that were not sent between text.
const NOT_MIXED: &str = "its messages are to be sent with --mixed, as `pipework send --mixed` does";

/// The byte that ends a record; `None` where records are messages.
fn end(args: &ServeArgs) -> Option<u8> {
    match (args.messages, args.nul) {
        (true, _) => None,
        (_, true) => Some(0),
        _ => Some(b'\n'),
    }
}

/// The input of the command.
pub(super) enum Input {
    Bytes(Bytes),
    Messages(Box<Writer>),
    /// The command reads no more.
    Closed,
}

/// A pipe for records that end with a byte.
///
/// The end of a record is held back until the command has read all bytes before it. A command reads
/// on when it has printed all that it had to, and cannot answer a record that has not ended. So
/// everything that it has printed by then is no answer to this record, and everything after that
/// is. The pipe has space for one page: it polls as writable only when the command has read
/// everything.
pub(super) struct Bytes {
    pipe: PipeWriter,
    end: u8,
    pending: Vec<u8>,
    /// How much of `pending` was written.
    written: usize,
    /// The end of the record is not in `pending` yet.
    holds_end: bool,
}

impl Input {
    pub(super) fn new(args: &ServeArgs, pipe: PipeWriter) -> io::Result<Self> {
        Ok(match end(args) {
            None => Self::Messages(Box::new(Options::new().writer(OwnedFd::from(pipe))?)),
            Some(end) => {
                sys::never_wait(&pipe)?;
                sys::resize(&pipe, 1);
                Self::Bytes(Bytes { pipe, end, pending: Vec::new(), written: 0, holds_end: false })
            }
        })
    }

    /// Puts a record behind the pending bytes; if it cannot be a record, returns why.
    pub(super) fn put(&mut self, record: &[u8]) -> Result<(), String> {
        match self {
            Self::Bytes(bytes) => bytes.put(record),
            Self::Messages(writer) => writer.enqueue(record).map(drop).map_err(words),
            Self::Closed => Ok(()),
        }
    }

    /// The descriptor to wait for while bytes are pending.
    pub(super) fn pending(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Bytes(bytes) => {
                let waits = bytes.pending.len() > bytes.written || (bytes.holds_end && !bytes.is_read());
                waits.then(|| bytes.pipe.as_fd())
            }
            Self::Messages(writer) => (writer.pending() > 0).then(|| writer.as_fd()),
            Self::Closed => None,
        }
    }

    /// Writes as many bytes as fit. It is no failure if a command reads no more: it may answer all
    /// the same.
    pub(super) fn write(&mut self) {
        let is_open = match self {
            Self::Bytes(bytes) => bytes.write(),
            Self::Messages(writer) => writer.try_flush().is_ok(),
            Self::Closed => true,
        };
        if !is_open {
            // This includes the pending bytes. They stay, to show how many of them were read.
            match self {
                Self::Bytes(bytes) => bytes.pending.truncate(bytes.written),
                Self::Messages(_) | Self::Closed => *self = Self::Closed,
            }
        }
    }

    /// Whether the command may have read all of the record, which it has not before its end.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Bytes(bytes) => !bytes.holds_end && bytes.is_read(),
            Self::Messages(_) | Self::Closed => true,
        }
    }

    /// Whether all of the record was read but its end, which is still to be given.
    pub(super) fn wants_end(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.holds_end && bytes.is_read(),
            Self::Messages(_) | Self::Closed => false,
        }
    }

    /// Gives the end of the record.
    pub(super) fn give_end(&mut self) {
        if let Self::Bytes(bytes) = self {
            bytes.pending.push(bytes.end);
            bytes.holds_end = false;
        }
        self.write();
    }

    /// The command does not read any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Bytes(bytes) => !sys::has_reader(&bytes.pipe),
            Self::Messages(writer) => !sys::has_reader(writer.as_fd()),
            Self::Closed => true,
        }
    }

    /// Ends the command's input.
    pub(super) fn close(&mut self) {
        if let Self::Messages(writer) = self {
            // Dropping it would wait for the pending bytes.
            writer.discard();
        }
        *self = Self::Closed;
    }
}

impl Bytes {
    fn put(&mut self, record: &[u8]) -> Result<(), String> {
        let content = record.strip_suffix(&[self.end]).unwrap_or(record);
        if content.contains(&self.end) {
            let (byte, other) = match self.end {
                0 => ("a NUL byte", ""),
                _ => ("a newline", "--nul, "),
            };
            return Err(format!("a request with {byte} inside cannot be one record: {other}--messages can"));
        }
        (self.written, self.pending, self.holds_end) = (0, content.to_vec(), true);
        Ok(())
    }

    /// All that was given so far was read.
    fn is_read(&self) -> bool {
        self.written == self.pending.len() && sys::unread(&self.pipe) == 0
    }

    /// False if the command does not read any more.
    fn write(&mut self) -> bool {
        while self.written < self.pending.len() {
            match self.pipe.write(&self.pending[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    kind => return kind == io::ErrorKind::WouldBlock,
                },
            }
        }
        true
    }
}

/// The output of the command.
pub(super) enum Output {
    Bytes { pipe: PipeReader, records: Records, has_ended: bool },
    Messages { reader: Box<Reader>, has_ended: bool },
}

/// A record, and the byte that ends it.
pub(super) struct Record {
    pub(super) whole: Vec<u8>,
    /// Without that byte.
    pub(super) len: usize,
}

impl Output {
    pub(super) fn new(service: &Service<'_>, pipe: PipeReader) -> io::Result<Self> {
        Ok(match end(service.args) {
            None => {
                let options = Options::new().mixed(true).max_message(service.longest());
                Self::Messages { reader: Box::new(options.reader(OwnedFd::from(pipe))?), has_ended: false }
            }
            Some(end) => Self::Bytes { pipe, records: Records::new(end), has_ended: false },
        })
    }

    /// The descriptor to wait for; `None` at its end.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Bytes { pipe, has_ended: false, .. } => Some(pipe.as_fd()),
            Self::Messages { reader, has_ended: false } => Some(reader.as_fd()),
            _ => None,
        }
    }

    /// By when to look although nothing has come.
    pub(super) fn due(&self) -> Deadline {
        match self {
            Self::Messages { reader, has_ended: false } => reader.next_timeout().unwrap_or(Deadline::NEVER),
            _ => Deadline::NEVER,
        }
    }

    /// The beginning of a record whose end has not come.
    pub(super) fn begun(&self) -> &[u8] {
        match self {
            Self::Bytes { records, .. } => records.rest(),
            Self::Messages { .. } => &[],
        }
    }

    /// The next record, if it has come. Text between messages is passed on.
    ///
    /// # Errors
    ///
    /// The output is none of the records that are asked for.
    pub(super) fn next(&mut self, service: &Service<'_>) -> Result<Option<Record>, String> {
        match self {
            Self::Bytes { pipe, records, has_ended } => loop {
                if let Some(whole) = records.first().map(<[u8]>::to_vec) {
                    records.pass();
                    return Ok(Some(Record { len: whole.len() - 1, whole }));
                }
                if records.len() > service.longest() {
                    return Err(format!("a record is longer than {} bytes", service.longest()));
                }
                match records.read(pipe) {
                    _ if *has_ended => return Ok(None),
                    Ok(true) => {}
                    Ok(false) => *has_ended = true,
                    Err(error) => match error.kind() {
                        io::ErrorKind::Interrupted => {}
                        io::ErrorKind::WouldBlock => return Ok(None),
                        _ => return Err(words(error)),
                    },
                }
            },
            Self::Messages { reader, has_ended } => loop {
                match reader.try_next_item() {
                    Ok(None) => return Ok(None),
                    Ok(Some(Item::Message(message))) => {
                        let whole = message.data.into_owned();
                        return Ok(Some(Record { len: whole.len(), whole }));
                    }
                    Ok(Some(Item::Line(line))) => service.pass_on(&line.data),
                    Ok(Some(Item::Torn(torn))) => return Err(torn.to_string()),
                    Ok(Some(Item::Burst(_))) => {}
                    Err(error) => match error.kind() {
                        ErrorKind::Interrupted => {}
                        ErrorKind::Closed => {
                            *has_ended = true;
                            return Ok(None);
                        }
                        _ if error.explanation().is_some() => return Err(NOT_MIXED.into()),
                        _ => return Err(words(error)),
                    },
                }
            },
        }
    }
}
