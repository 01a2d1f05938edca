//! The headers of a message that goes from pipe to pipe: [BRIDGE.md](../BRIDGE.md) is the
//! specification. Pure.
//!
//! Reading any headers, hostile ones too, returns a meaning or says what is wrong with them.

use crate::message::{Wrong, mark, number, text};
use async_nats::HeaderMap;
use pipework::atomic::WriterKey;

const WRITER: &str = "Pipework-Writer";
const KIND: &str = "Pipework-Type";
const MESSAGE: &str = "Pipework-Message";
const OFFSET: &str = "Pipework-Offset";
const MORE: &str = "Pipework-More";

/// The longest name of a message that goes in pieces.
const NAME: usize = 128;

/// The kind of an item in the pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A message.
    #[default]
    Message,
    /// A burst.
    Burst,
    /// A line of text, without its end.
    Line,
}

/// The description of a message in its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The kind of the item in the pipe.
    pub kind: Kind,
    /// The writer, if the pipe named it.
    pub writer: Option<WriterKey>,
    /// Which piece of which message this is, if it is not all of it.
    pub piece: Option<Piece>,
}

/// A piece of a message that is longer than the server takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The message, by a name that no other has.
    pub message: String,
    /// How many bytes of the message come before it.
    pub offset: u64,
    /// Others follow.
    pub more: bool,
}

impl Envelope {
    /// Reads the headers of a message.
    ///
    /// # Errors
    ///
    /// In words, the fault of the headers.
    pub fn read(headers: Option<&HeaderMap>) -> Result<Envelope, Wrong> {
        let Some(headers) = headers else { return Ok(Envelope::default()) };
        let kind = match text(headers, KIND) {
            None => Kind::Message,
            Some("burst") => Kind::Burst,
            Some("line") => Kind::Line,
            Some(_) => return Err("Pipework-Type: neither burst nor line"),
        };
        let writer = text(headers, WRITER).map(writer).transpose()?;
        let piece = match (text(headers, MESSAGE), number(headers, OFFSET)?, mark(headers, MORE)?) {
            (None, None, false) => None,
            (Some(name), Some(offset), more) => Some(Piece::read(name, offset, more)?),
            _ => return Err("Pipework-Message and Pipework-Offset: one without the other"),
        };
        Ok(Envelope { kind, writer, piece })
    }

    /// Adds the headers that say it.
    pub fn write(&self, headers: &mut HeaderMap) {
        match self.kind {
            Kind::Message => {}
            Kind::Burst => headers.insert(KIND, "burst"),
            Kind::Line => headers.insert(KIND, "line"),
        }
        if let Some(writer) = self.writer {
            headers.insert(WRITER, writer.to_string());
        }
        if let Some(Piece { message, offset, more }) = &self.piece {
            headers.insert(MESSAGE, message.as_str());
            headers.insert(OFFSET, offset.to_string());
            if *more {
                headers.insert(MORE, "1");
            }
        }
    }
}

impl Piece {
    fn read(name: &str, offset: u64, more: bool) -> Result<Piece, Wrong> {
        if name.is_empty() || name.len() > NAME {
            return Err("Pipework-Message: empty, or longer than 128 bytes");
        }
        Ok(Piece { message: name.to_owned(), offset, more })
    }
}

fn writer(text: &str) -> Result<WriterKey, Wrong> {
    let wrong = "Pipework-Writer: not two numbers with a colon between";
    let (pid, tid) = text.split_once(':').ok_or(wrong)?;
    let number = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+')).ok_or(wrong);
    Ok(WriterKey { pid: number(pid)?, tid: number(tid)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn messages_match_the_vectors() {
        let all: Value = serde_json::from_str(include_str!("../../../vectors/nats/messages.json")).unwrap();
        for vector in all["messages"].as_array().unwrap() {
            let mut headers = HeaderMap::new();
            for (name, value) in vector["headers"].as_object().unwrap() {
                headers.insert(name.as_str(), value.as_str().unwrap());
            }
            let read = Envelope::read(Some(&headers));
            if vector["malformed"] == true {
                assert!(read.is_err(), "{}", vector["name"]);
                continue;
            }
            let meant = &vector["message"];
            let envelope = Envelope {
                kind: match meant["type"].as_str() {
                    None => Kind::Message,
                    Some("burst") => Kind::Burst,
                    _ => Kind::Line,
                },
                writer: meant["pid"]
                    .as_i64()
                    .map(|pid| WriterKey { pid: pid as i32, tid: meant["tid"].as_i64().unwrap() as i32 }),
                piece: meant["name"].as_str().map(|name| Piece {
                    message: name.to_owned(),
                    offset: meant["offset"].as_u64().unwrap(),
                    more: meant["more"] == true,
                }),
            };
            assert_eq!(read, Ok(envelope.clone()), "{}", vector["name"]);
            let mut written = HeaderMap::new();
            envelope.write(&mut written);
            if vector["only_read"] != true {
                assert_eq!(written, headers, "{}", vector["name"]);
            }
        }
        assert_eq!(Envelope::read(None), Ok(Envelope::default()));
    }
}
