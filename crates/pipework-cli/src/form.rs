//! How messages, bursts and lines are written out: as they are, ended by a newline or a NUL, or as
//! JSON.
//!
//! A form appends bytes to a buffer; it neither writes nor waits. Torn reports are not data: only
//! JSON has a form for them, elsewhere their place is standard error.

use crate::args::FormArgs;
use crate::failure::of_the_command;
use crate::table::count;
use pipework::ErrorKind;
use pipework::atomic::{Item, Line, Torn, WriterKey};
use serde_json::Value;
use std::borrow::Cow;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The separator between one message and the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// Nothing.
    Raw,
    /// A newline.
    Lines,
    /// A NUL byte, behind text lines too.
    Nul,
    /// Each item is a JSON object on a line.
    Json,
}

impl Form {
    /// The form that was asked for, or else `default`.
    pub(crate) fn of(args: &FormArgs, default: Form) -> Form {
        match (args.json, args.nul) {
            (true, _) => Form::Json,
            (_, true) => Form::Nul,
            _ => default,
        }
    }

    /// The byte that ends an entry of a file.
    pub(crate) fn end(self) -> u8 {
        if self == Form::Nul { 0 } else { b'\n' }
    }

    /// Appends `item` to `out`; `command` names the sender if there are several, and `line` is of
    /// the text that the item comes from. Returns whether the item cuts a line.
    pub(crate) fn append(
        self,
        out: &mut Vec<u8>,
        item: &Item<'_>,
        command: Option<&[u8]>,
        line: &mut OpenLine,
    ) -> bool {
        if let (Form::Json, Item::Torn(torn)) = (self, item) {
            append_torn(out, torn, command);
        }
        let Some(parts) = Parts::of(item) else { return false };
        let before = *line;
        match item {
            Item::Line(text) => *line = OpenLine::after(text),
            _ => line.end(self, out),
        }
        let is_text = matches!(item, Item::Line(_));
        let goes_on = is_text && before != OpenLine::None;
        match self {
            Form::Json if is_text => parts.append_piece(out, command, before, line),
            Form::Json => parts.append_json(out, command, goes_on),
            Form::Nul => out.extend_from_slice(parts.content),
            Form::Raw | Form::Lines => out.extend_from_slice(parts.whole),
        }
        match self {
            Form::Nul if !is_text || *line == OpenLine::None => out.push(0),
            Form::Lines if !is_text => out.push(b'\n'),
            _ => {}
        }
        goes_on && (self == Form::Json || before == OpenLine::Ended)
    }
}

/// The text about a lost message, for a user who may have left out an option.
pub(crate) fn loss(torn: &Torn, zstd: bool, mixed: bool) -> String {
    match torn.kind {
        ErrorKind::Corrupt if zstd => {
            format!("{torn}: was it sent without --zstd, or with another dictionary?")
        }
        _ if !mixed && torn.writer.is_none() => format!("{NO_MESSAGE} ({})", count(torn.bytes, "byte")),
        _ => of_the_command(&torn.to_string()),
    }
}

/// The text about a stream that is something else.
pub(crate) const NO_MESSAGE: &str =
    "what comes is no message; if text shares the pipe, both ends need --mixed";

/// The text about a line that is cut.
pub(crate) const CUT: &str = "a line longer than --max-message was cut";

/// The state of the latest line of some text, as it was written out. One that is longer than
/// `--max-message` comes in pieces, of which the last has the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum OpenLine {
    /// It has its end, or no line has begun.
    #[default]
    None,
    /// It has no end yet.
    Open,
    /// The same, and an object with the next piece begins with these bytes, of a character that the
    /// cut has divided.
    Inside(Begun),
    /// It was given one, for something else stands behind it. If more of it comes, it is cut.
    Ended,
}

/// The first bytes of a character of UTF-8, 1 to 3 of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Begun {
    bytes: [u8; 3],
    len: u8,
}

impl Begun {
    /// Those at the end of a text that is UTF-8 up to there.
    fn at_end_of(text: &[u8]) -> Option<Self> {
        let error = std::str::from_utf8(text).err().filter(|error| error.error_len().is_none())?;
        let begun = &text[error.valid_up_to()..];
        let mut bytes = [0; 3];
        bytes.get_mut(..begun.len())?.copy_from_slice(begun);
        Some(Self { bytes, len: begun.len() as u8 })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl OpenLine {
    /// The state after a line, or a piece of one.
    pub(crate) fn after(line: &Line<'_>) -> Self {
        match line.data.last() {
            Some(b'\n' | b'\r') => Self::None,
            _ => Self::Open,
        }
    }

    /// Ends it, where a form has ends, so that something else may stand behind it. (Objects are
    /// apart anyway.)
    pub(crate) fn end(&mut self, form: Form, out: &mut Vec<u8>) {
        if *self == Self::Open && matches!(form, Form::Lines | Form::Nul) {
            out.push(form.end());
            *self = Self::Ended;
        }
    }

    /// Whether `finish` appends anything.
    pub(crate) fn has_rest(&self, form: Form) -> bool {
        matches!((form, self), (Form::Nul, Self::Open) | (Form::Json, Self::Inside(_)))
    }

    /// No more text comes. The last line of a text may lack a newline; every record has its NUL.
    pub(crate) fn finish(&mut self, form: Form, out: &mut Vec<u8>, command: Option<&[u8]>) {
        match (form, *self) {
            (Form::Nul, _) => self.end(form, out),
            (Form::Json, Self::Inside(begun)) => {
                let content = begun.bytes();
                let rest = Parts { kind: "line", whole: content, content, origin: None };
                rest.append_json(out, command, true);
                *self = Self::Open;
            }
            _ => {}
        }
    }
}

/// An item taken apart for writing and for the environment of a command.
pub(crate) struct Parts<'a> {
    /// message, burst or line.
    pub(crate) kind: &'static str,
    /// All of it.
    pub(crate) whole: &'a [u8],
    /// The same, but a line without its end.
    content: &'a [u8],
    /// Writer and number of parts; only a message knows them.
    pub(crate) origin: Option<(WriterKey, u32)>,
}

impl<'a> Parts<'a> {
    /// The parts of anything but a torn report.
    pub(crate) fn of(item: &'a Item<'_>) -> Option<Self> {
        let (kind, whole, content, origin) = match item {
            Item::Line(line) => ("line", &*line.data, line.content(), None),
            Item::Burst(burst) => ("burst", &*burst.data, &*burst.data, None),
            Item::Message(message) => {
                ("message", &*message.data, &*message.data, Some((message.writer, message.parts)))
            }
            Item::Torn(_) => return None,
        };
        Some(Self { kind, whole, content, origin })
    }

    /// A piece of a line, behind the bytes of a character that the piece before has left, and without
    /// those of one that goes on in the next.
    fn append_piece(&self, out: &mut Vec<u8>, command: Option<&[u8]>, before: OpenLine, line: &mut OpenLine) {
        let mut content = Cow::Borrowed(self.content);
        if let OpenLine::Inside(begun) = before {
            content = Cow::Owned([begun.bytes(), self.content].concat());
        }
        if *line == OpenLine::Open
            && let Some(begun) = Begun::at_end_of(&content)
        {
            let len = content.len() - begun.bytes().len();
            content.to_mut().truncate(len);
            *line = OpenLine::Inside(begun);
        }
        let piece = Parts { kind: self.kind, whole: self.whole, content: &content, origin: self.origin };
        piece.append_json(out, command, before != OpenLine::None);
    }

    /// `goes_on`: the item continues the line before.
    fn append_json(&self, out: &mut Vec<u8>, command: Option<&[u8]>, goes_on: bool) {
        open_json(out, self.kind, command, self.origin.map(|(writer, _)| writer));
        if let Some((_, parts)) = self.origin {
            write!(out, ",\"parts\":{parts}").expect(IN_MEMORY);
        }
        if goes_on {
            out.extend_from_slice(b",\"continued\":true");
        }
        append_bytes(out, "data", self.content);
        out.extend_from_slice(b"}\n");
    }
}

/// Appends bytes to an object that has begun: as a string, or in base64 if they are not UTF-8.
pub(crate) fn append_bytes(out: &mut Vec<u8>, key: &str, bytes: &[u8]) {
    let (ending, text) = match std::str::from_utf8(bytes) {
        Ok(text) => ("", Cow::Borrowed(text)),
        Err(_) => ("_base64", Cow::Owned(base64(bytes))),
    };
    write!(out, ",\"{key}{ending}\":").expect(IN_MEMORY);
    serde_json::to_writer(out, text.as_ref()).expect(IN_MEMORY);
}

const IN_MEMORY: &str = "writing to a Vec cannot fail";

/// The beginning of every object.
fn open_json(out: &mut Vec<u8>, kind: &str, command: Option<&[u8]>, writer: Option<WriterKey>) {
    write!(out, "{{\"type\":\"{kind}\"").expect(IN_MEMORY);
    if let Some(command) = command {
        append_bytes(out, "command", command);
    }
    if let Some(writer) = writer {
        write!(out, ",\"pid\":{},\"writer\":\"{writer}\"", writer.pid).expect(IN_MEMORY);
    }
}

/// The report of a lost message as an object: the bytes that had come, and why it is lost.
fn append_torn(out: &mut Vec<u8>, torn: &Torn, command: Option<&[u8]>) {
    open_json(out, "torn", command, torn.writer);
    write!(out, ",\"parts\":{},\"bytes\":{},\"reason\":", torn.parts, torn.bytes).expect(IN_MEMORY);
    serde_json::to_writer(&mut *out, &torn.to_string()).expect(IN_MEMORY);
    out.extend_from_slice(b"}\n");
}

/// Appends how a command has ended, as an object.
pub(crate) fn append_exit(out: &mut Vec<u8>, command: &[u8], status: u8) {
    open_json(out, "exit", Some(command), None);
    writeln!(out, ",\"status\":{status}}}").expect(IN_MEMORY);
}

/// The entry of a command in a log of jobs.
pub(crate) struct Entry<'a> {
    /// From 1.
    pub(crate) index: u64,
    pub(crate) command: &'a [u8],
    pub(crate) start: SystemTime,
    pub(crate) time: Duration,
    pub(crate) status: u8,
    pub(crate) signal: Option<i32>,
}

impl Entry<'_> {
    /// Appends it as an object.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let since = self.start.duration_since(UNIX_EPOCH).unwrap_or_default();
        write!(out, "{{\"index\":{}", self.index).expect(IN_MEMORY);
        append_bytes(out, "command", self.command);
        let (start, seconds) = (since.as_secs_f64(), self.time.as_secs_f64());
        write!(out, ",\"start\":{start:.6},\"seconds\":{seconds:.6},\"status\":{}", self.status)
            .expect(IN_MEMORY);
        match self.signal {
            Some(number) => writeln!(out, ",\"signal\":{number}}}"),
            None => writeln!(out, ",\"signal\":null}}"),
        }
        .expect(IN_MEMORY);
    }
}

/// A path as a key and its value; one that is not UTF-8 is encoded.
pub(crate) fn path(path: &Path) -> (&'static str, Value) {
    match path.to_str() {
        Some(text) => ("path", text.into()),
        None => ("path_base64", base64(path.as_os_str().as_bytes()).into()),
    }
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 3];
        padded[..group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
        for place in 0..4 {
            // A group of n bytes fills n + 1 characters.
            let character = match place <= group.len() {
                true => ALPHABET[(bits >> (18 - 6 * place)) as usize & 63],
                false => b'=',
            };
            text.push(char::from(character));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipework::atomic::{Burst, Message};

    fn written(form: Form, item: &Item<'_>) -> String {
        let mut out = Vec::new();
        form.append(&mut out, item, None, &mut OpenLine::default());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn base64_matches_the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn write_formats_every_item_in_every_form() {
        let message = Item::Message(Message {
            data: b"a \"b\"".into(),
            writer: WriterKey { pid: 7, tid: 9 },
            parts: 2,
            compressed: None,
        });
        let burst = Item::Burst(Burst { data: b"\xff\n".into(), compressed: None });
        let line = Item::Line(Line { data: b"text\r\n".into() });
        let writer = Some(WriterKey { pid: 7, tid: 9 });
        let torn = Torn { writer, parts: 2, bytes: 5000, kind: ErrorKind::Torn, limit: None };
        let reason = format!("\"bytes\":5000,\"reason\":\"{torn}\"}}\n");
        let report = format!("{{\"type\":\"torn\",\"pid\":7,\"writer\":\"7:9\",\"parts\":2,{reason}");
        assert_eq!(written(Form::Json, &Item::Torn(torn)), report);
        assert_eq!(written(Form::Lines, &Item::Torn(torn)), "");
        let expected = [
            (Form::Raw, &message, "a \"b\""),
            (Form::Lines, &message, "a \"b\"\n"),
            (Form::Nul, &message, "a \"b\"\0"),
            (
                Form::Json,
                &message,
                "{\"type\":\"message\",\"pid\":7,\"writer\":\"7:9\",\"parts\":2,\"data\":\"a \\\"b\\\"\"}\n",
            ),
            (Form::Json, &burst, "{\"type\":\"burst\",\"data_base64\":\"/wo=\"}\n"),
            (Form::Raw, &line, "text\r\n"),
            (Form::Lines, &line, "text\r\n"),
            (Form::Nul, &line, "text\0"),
            (Form::Json, &line, "{\"type\":\"line\",\"data\":\"text\"}\n"),
        ];
        for (form, item, text) in expected {
            assert_eq!(written(form, item), text, "{form:?}");
        }
    }

    /// Pieces of a line, and a message between two of them.
    #[test]
    fn lines_in_pieces_are_joined_or_marked() {
        let line = |text: &'static str| Item::Line(Line { data: text.as_bytes().into() });
        let burst = || Item::Burst(Burst { data: b"B".into(), compressed: None });
        let written = |form: Form, items: &[Item<'_>]| {
            let (mut out, mut open, mut cuts) = (Vec::new(), OpenLine::default(), 0);
            for item in items {
                cuts += u32::from(form.append(&mut out, item, None, &mut open));
            }
            open.finish(form, &mut out, None);
            (String::from_utf8(out).unwrap(), cuts)
        };
        let pieces = [line("ab"), line("cd"), line("\n"), line("e")];
        let apart = [line("ab"), burst(), line("cd\n"), burst()];
        assert_eq!(written(Form::Lines, &pieces), ("abcd\ne".into(), 0));
        assert_eq!(written(Form::Nul, &pieces), ("abcd\0e\0".into(), 0));
        assert_eq!(written(Form::Lines, &apart), ("ab\nB\ncd\nB\n".into(), 1));
        assert_eq!(written(Form::Nul, &apart), ("ab\0B\0cd\0B\0".into(), 1));
        assert_eq!(written(Form::Raw, &apart), ("abBcd\nB".into(), 0));
        let (objects, cuts) = written(Form::Json, &pieces);
        let marked: Vec<bool> = objects.lines().map(|object| object.contains("continued\":true")).collect();
        assert_eq!((marked, cuts), (vec![false, true, true, false], 2));
        assert_eq!(written(Form::Json, &apart).1, 1);
    }

    #[test]
    fn json_cuts_a_line_between_characters() {
        let text = "aä€😀z".as_bytes();
        let data = |object: &str| {
            let object: Value = serde_json::from_str(object).unwrap();
            object["data"].as_str().expect("text, not base64").to_owned()
        };
        for size in 1..=text.len() {
            let (mut out, mut open) = (Vec::new(), OpenLine::default());
            for piece in text.chunks(size) {
                let item = Item::Line(Line { data: piece.into() });
                Form::Json.append(&mut out, &item, None, &mut open);
            }
            open.finish(Form::Json, &mut out, None);
            let objects = String::from_utf8(out).unwrap();
            assert_eq!(objects.lines().map(data).collect::<String>().as_bytes(), text, "{size}");
        }
        // Other bytes are encoded as before, and the end of a text that lacks some is not lost.
        let written = |pieces: &[&'static [u8]]| {
            let (mut out, mut open) = (Vec::new(), OpenLine::default());
            for piece in pieces {
                let item = Item::Line(Line { data: (*piece).into() });
                Form::Json.append(&mut out, &item, None, &mut open);
            }
            open.finish(Form::Json, &mut out, None);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&[b"\xffab", b"c\n"]).matches("base64").count(), 1);
        assert!(written(&[b"ab\xe2\x82"]).ends_with("\"continued\":true,\"data_base64\":\"4oI=\"}\n"));
        assert!(written(&[b"ab\xe2", b"\n"]).ends_with("\"continued\":true,\"data_base64\":\"4g==\"}\n"));
    }
}
