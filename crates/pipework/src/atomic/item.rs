//! The items that a reader gives out.
//!
//! Data is borrowed from the reader's buffer if all of it lies there, and owned if it had to be
//! assembled; `into_owned` makes any of these independent of the reader.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use crate::error::{Error, ErrorKind, Explanation};

/// Names one writer on the wire. Opaque: two writers that are alive at the same time have different
/// keys, whatever their processes, threads or pid namespaces (except for a chance of one in a
/// thousand million if their process numbers are the same).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriterKey {
    /// The sender's process number, in the sender's own pid namespace.
    pub pid: i32,
    /// An even random number from 65536 on, drawn for each writer and again after a fork.
    /// (Atomic::Pipe puts the thread's number here.)
    pub tid: i32,
}

impl fmt::Display for WriterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.tid)
    }
}

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The bytes that were sent.
    pub data: Cow<'a, [u8]>,
    /// The writer that sent it.
    pub writer: WriterKey,
    /// The number of parts in which it came; at least 1.
    pub parts: u32,
    /// The zstd frame that it came in, if the reader was set to keep it.
    pub compressed: Option<Cow<'a, [u8]>>,
}

impl Message<'_> {
    /// The same message, independent of the reader.
    pub fn into_owned(self) -> Message<'static> {
        Message { data: owned(self.data), compressed: self.compressed.map(owned), ..self }
    }

    /// The data alone, as a vector of its own.
    pub fn into_vec(self) -> Vec<u8> {
        self.data.into_owned()
    }
}

/// A burst: bytes that were sent in one write, without a sender's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst<'a> {
    /// The bytes that were sent.
    pub data: Cow<'a, [u8]>,
    /// The zstd frame that it came in, if the reader was set to keep it.
    pub compressed: Option<Cow<'a, [u8]>>,
}

impl Burst<'_> {
    /// The same burst, independent of the reader.
    pub fn into_owned(self) -> Burst<'static> {
        Burst { data: owned(self.data), compressed: self.compressed.map(owned) }
    }
}

/// A line of ordinary text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The text with its terminator: `\n`, `\r\n` or `\r`. (A `\r` waits up to 100 ms for a `\n`; a
    /// later `\n` is a line of its own.) The last line before the end of the pipe may have no
    /// terminator, nor does a piece of a line that is longer than the reader's `max_message`.
    pub data: Cow<'a, [u8]>,
}

impl Line<'_> {
    /// The text without its terminator.
    pub fn content(&self) -> &[u8] {
        let data = &self.data;
        let cut = if data.ends_with(b"\r\n") {
            2
        } else {
            usize::from(data.ends_with(b"\n") || data.ends_with(b"\r"))
        };
        &data[..data.len() - cut]
    }

    /// The same line, independent of the reader.
    pub fn into_owned(self) -> Line<'static> {
        Line { data: owned(self.data) }
    }
}

/// Lets an item be used as its bytes.
macro_rules! as_its_data {
    ($item:ident) => {
        impl AsRef<[u8]> for $item<'_> {
            fn as_ref(&self) -> &[u8] {
                &self.data
            }
        }

        impl Deref for $item<'_> {
            type Target = [u8];

            fn deref(&self) -> &[u8] {
                &self.data
            }
        }
    };
}

as_its_data!(Message);
as_its_data!(Burst);
as_its_data!(Line);

/// A report of a message or burst that cannot be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Its writer, if the wire names one.
    pub writer: Option<WriterKey>,
    /// Parts that had arrived.
    pub parts: u32,
    /// Bytes of data that had arrived.
    pub bytes: usize,
    /// `Torn`: its beginning, its rest or a part in between never arrived. `TooLong`: over `limit`.
    /// `Corrupt`: it differs from what was sent, or does not decompress. `Incompatible`: it is
    /// compressed, and the reader has no zstd.
    pub kind: ErrorKind,
    /// The limit that a message that is `TooLong` exceeded.
    pub limit: Option<Limit>,
}

/// A limit of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Options::max_message`](super::Options::max_message): the message, or its decompressed
    /// size.
    MaxMessage,
    /// [`Options::max_unfinished`](super::Options::max_unfinished): all unfinished messages
    /// together.
    MaxUnfinished,
    /// The memory that the system has left.
    Memory,
}

impl Limit {
    /// Its name: `max_message`, `max_unfinished`, or `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Limit::MaxMessage => "max_message",
            Limit::MaxUnfinished => "max_unfinished",
            Limit::Memory => "memory",
        }
    }
}

impl Torn {
    /// Reports a message that never came whole.
    pub(super) fn incomplete(writer: Option<WriterKey>, parts: u32, bytes: usize) -> Torn {
        Torn { writer, parts, bytes, kind: ErrorKind::Torn, limit: None }
    }

    /// The same report, for a message that cannot be given out for the reason `unfit`.
    pub(super) fn unfit(self, unfit: Unfit) -> Torn {
        match unfit {
            Unfit::Corrupt => Torn { kind: ErrorKind::Corrupt, limit: None, ..self },
            Unfit::Incompatible => Torn { kind: ErrorKind::Incompatible, limit: None, ..self },
            Unfit::TooLong(limit) => Torn { kind: ErrorKind::TooLong, limit: Some(limit), ..self },
        }
    }

    /// The report as an error, for a call that gives out messages only.
    pub(super) fn error(self, op: &'static str) -> Error {
        match self.kind {
            ErrorKind::Incompatible => Error::with_explanation(self.kind, op, Explanation::SentCompressed),
            kind => Error::new(kind, op),
        }
    }

    /// The same report, with another part of `len` bytes.
    pub(super) fn and_part(self, len: usize) -> Torn {
        Torn { parts: self.parts.saturating_add(1), bytes: self.bytes + len, ..self }
    }
}

/// Why a complete message cannot be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Corrupt,
    /// Compressed, for a reader without zstd.
    Incompatible,
    TooLong(Limit),
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writer {
            Some(writer) => write!(f, "message of writer {writer}")?,
            None => f.write_str("data without a writer's name")?,
        }
        match self.kind {
            ErrorKind::Incompatible => write!(f, ": {}", Explanation::SentCompressed)?,
            kind => write!(f, ": {kind}")?,
        }
        if let Some(limit) = self.limit {
            write!(f, ", {}", limit.name())?;
        }
        let (parts, bytes) = (self.parts, self.bytes);
        let [s_of_parts, s_of_bytes] = [parts == 1, bytes == 1].map(|is_one| if is_one { "" } else { "s" });
        write!(f, " (after {parts} part{s_of_parts} and {bytes} byte{s_of_bytes})")
    }
}

/// Any item that comes out of a pipe in mixed mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A line of ordinary text.
    Line(Line<'a>),
    /// A burst.
    Burst(Burst<'a>),
    /// A message.
    Message(Message<'a>),
    /// The report of a lost message.
    Torn(Torn),
}

impl Item<'_> {
    /// The same item, independent of the reader.
    pub fn into_owned(self) -> Item<'static> {
        match self {
            Item::Line(line) => Item::Line(line.into_owned()),
            Item::Burst(burst) => Item::Burst(burst.into_owned()),
            Item::Message(message) => Item::Message(message.into_owned()),
            Item::Torn(torn) => Item::Torn(torn),
        }
    }
}

fn owned(data: Cow<'_, [u8]>) -> Cow<'static, [u8]> {
    Cow::Owned(data.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_content_excludes_the_terminator() {
        for (data, content) in
            [("a\n", "a"), ("a\r\n", "a"), ("a\r", "a"), ("a", "a"), ("\n", ""), ("", ""), ("\n\n", "\n")]
        {
            assert_eq!(Line { data: data.as_bytes().into() }.content(), content.as_bytes(), "{data:?}");
        }
    }

    #[test]
    fn torn_displays_the_writer_the_reason_and_the_counts() {
        let torn = Torn::incomplete(Some(WriterKey { pid: 5, tid: 9 }), 1, 4077);
        assert_eq!(
            torn.to_string(),
            "message of writer 5:9: a part of the message never came (after 1 part and 4077 bytes)"
        );
        assert_eq!(
            torn.unfit(Unfit::TooLong(Limit::MaxUnfinished)).to_string(),
            "message of writer 5:9: larger than the limit, max_unfinished (after 1 part and 4077 bytes)"
        );
        assert!(Torn { bytes: 1, parts: 0, ..torn }.to_string().ends_with("(after 0 parts and 1 byte)"));
        assert!(torn.unfit(Unfit::Incompatible).to_string().contains("is `zstd` set on both sides?"));
    }
}
