//! Turns the bytes of a pipe into items, however reads cut them. Pure: it is fed and does not read.
//!
//! Invariant: bytes are given out once, in the order of the pipe, and looked at a bounded number of
//! times each, so the cost of an item does not grow with the bytes that are buffered behind it.
//! Memory keeps the limits of [`Limits`]. Damage to one message is a [`Torn`] report. Only a plain
//! stream whose part sizes are impossible is lost as a whole.

use std::borrow::Cow;
use std::ops::Range;

use super::ahead::{self, Beginning};
use super::assembly::{Assembly, Limits, PartOutcome};
use super::frame::{self, Mode, PartHeader};
use super::item::{Burst, Item, Line, Message, Torn, Unfit, WriterKey};
use super::mixed::{self, LineAt, Lines, Rest, Rules};
use super::unpacker::Unpacker;
use crate::error::{Error, ErrorKind, Explanation, Result};

const OP: &str = "atomic recv";

/// What is known about the pipe behind the bytes that were fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing: more may come.
    Unknown,
    /// Nothing has come for so long that no frame that has begun will be completed.
    Silent,
    /// It has ended.
    Ended,
}

/// An item as it arrived, as ranges of the decoder's memory that stay valid until it is fed again.
#[derive(Debug)]
pub(super) enum RawItem {
    Line(Data),
    Burst(Data),
    Message { data: Data, writer: WriterKey, parts: u32 },
    Torn(Torn),
}

/// Where the bytes of an item are.
#[derive(Debug)]
pub(super) enum Data {
    /// In the buffer.
    Buffer(Range<usize>),
    Own(Vec<u8>),
}

impl RawItem {
    #[inline(always)]
    fn lend(self, buf: &[u8]) -> Item<'_> {
        let cow = |data| match data {
            Data::Buffer(range) => Cow::Borrowed(&buf[range]),
            Data::Own(data) => Cow::Owned(data),
        };
        match self {
            RawItem::Line(data) => Item::Line(Line { data: cow(data) }),
            RawItem::Burst(data) => Item::Burst(Burst { data: cow(data), compressed: None }),
            RawItem::Message { data, writer, parts } => {
                Item::Message(Message { data: cow(data), writer, parts, compressed: None })
            }
            RawItem::Torn(torn) => Item::Torn(torn),
        }
    }
}

pub(super) struct Decoder {
    /// `buf[start..end]` was read and has not been given out.
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// How many bytes were fed in total.
    fed: u64,
    /// This many bytes at `start` are known to be text.
    text: usize,
    mode: Mode,
    strict: bool,
    bursts: bool,
    limits: Limits,
    assembly: Assembly,
    lines: Lines,
    /// Where in the stream the unfinished line begins, if any.
    line_began: u64,
    unpacker: Unpacker,
    /// An item that waits behind a report, and where in the stream it begins.
    next: Option<(RawItem, u64)>,
    /// Why the rest of the stream cannot be decoded.
    lost: Option<Error>,
}

impl Decoder {
    pub(super) fn new(mode: Mode, strict: bool, limits: Limits) -> Decoder {
        Decoder {
            buf: Vec::new(),
            start: 0,
            end: 0,
            fed: 0,
            text: 0,
            mode,
            strict,
            bursts: true,
            limits,
            assembly: Assembly::new(),
            lines: Lines::new(),
            line_began: 0,
            unpacker: Unpacker::new(limits.max_message),
            next: None,
            lost: None,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn pipe_buf(&self) -> usize {
        self.limits.pipe_buf
    }

    /// Applies to the bytes that have not been given out yet.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.text = 0;
    }

    /// The unpacker, which takes items out of their frames.
    pub(super) fn unpacker(&self) -> &Unpacker {
        &self.unpacker
    }

    /// The unpacker, for changing its settings.
    pub(super) fn unpacker_mut(&mut self) -> &mut Unpacker {
        &mut self.unpacker
    }

    pub(super) fn set_bursts(&mut self, bursts: bool) {
        self.bursts = bursts;
    }

    /// Whether bytes wait to be parsed.
    pub(super) fn has_bytes(&self) -> bool {
        self.start < self.end || self.next.is_some()
    }

    /// Whether a frame has begun that becomes text if nothing completes it. A strict reader, and a
    /// plain stream, wait for the end.
    pub(super) fn awaits_rest(&self) -> bool {
        self.mode == Mode::Mixed && !self.strict && self.start < self.end
    }

    /// Whether it may have another item without being fed more.
    pub(super) fn has_more(&self) -> bool {
        self.has_bytes() || self.assembly.has_reports()
    }

    /// How many bytes can be read without reading past the next `items` items, if the first
    /// `peeked` of them lie in [`Decoder::space`] already: at least 1.
    pub(super) fn certain(&self, peeked: usize, items: u64) -> usize {
        let place = match self.mode {
            Mode::Plain => Beginning::Plain { pipe_buf: self.limits.pipe_buf },
            Mode::Mixed => Beginning::Mixed {
                text: self.text,
                line: self.lines.state(),
                max_line: self.limits.max_message,
                rules: self.rules(),
            },
        };
        let certain = ahead::certain(&self.buf[self.start..self.end + peeked], place, items);
        certain.saturating_sub(self.end - self.start).max(1)
    }

    /// Whether it holds nothing of the stream.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_bytes() && self.assembly.is_empty() && self.lines.begun().is_empty()
    }

    /// The opposite of [`Decoder::is_empty`], or why the stream cannot be decoded.
    pub(super) fn holds_any(&self) -> Result<bool> {
        self.lost.map_or(Ok(!self.is_empty()), Err)
    }

    /// Bytes that were fed and that no item has given out.
    pub(super) fn buffered(&self) -> usize {
        let next = self.next.as_ref().map_or(0, |(found, _)| match found {
            RawItem::Line(data) | RawItem::Burst(data) | RawItem::Message { data, .. } => {
                self.bytes(data).len()
            }
            RawItem::Torn(_) => 0,
        });
        self.end - self.start + next + self.lines.begun().len() + self.assembly.buffered()
    }

    /// How many bytes of the stream were parsed.
    pub(super) fn position(&self) -> u64 {
        self.fed - (self.end - self.start) as u64
    }

    /// How many bytes of the stream lie before everything that has begun and was not given out.
    pub(super) fn settled(&self) -> u64 {
        let line = (!self.lines.begun().is_empty()).then_some(self.line_began);
        let next = self.next.as_ref().map(|(_, began)| *began);
        let began = [self.assembly.began(), line, next].into_iter().flatten().min();
        began.unwrap_or(u64::MAX).min(self.position())
    }

    /// The unfinished line.
    pub(super) fn unfinished_line(&self) -> &[u8] {
        self.lines.begun()
    }

    /// Where in the stream the unfinished line begins, if it ends with `\r`: the next byte of text
    /// may be its `\n`.
    pub(super) fn awaits_line_feed(&self) -> Option<u64> {
        self.unfinished_line().ends_with(b"\r").then_some(self.line_began)
    }

    /// Takes the unfinished line; its remaining bytes begin another line.
    pub(super) fn take_unfinished_line(&mut self) -> Option<Vec<u8>> {
        self.lines.end()
    }

    /// Space to read up to `len` bytes into. `TooLong` if too many bytes lie there unparsed.
    pub(super) fn space(&mut self, len: usize) -> Result<&mut [u8]> {
        let held = self.end - self.start;
        if held.saturating_add(len) > self.limits.max_unfinished.max(len + self.limits.pipe_buf) {
            return Err(Error::new(ErrorKind::TooLong, "atomic read_ahead"));
        }
        if held == 0 {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > 4 * (len + self.limits.pipe_buf) {
                self.buf = Vec::new();
            }
        }
        if self.buf.len() - self.end < len {
            // This moves no more bytes than were given out since the last move.
            if held <= self.start {
                self.buf.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, held);
            }
            // Most reads leave less than a frame: with space for that, the buffer keeps its size.
            let needed = self.end + len;
            if self.buf.len() < needed {
                self.buf.resize(needed.max(len + self.limits.pipe_buf), 0);
            }
        }
        Ok(&mut self.buf[self.end..self.end + len])
    }

    /// `len` bytes were read into [`Decoder::space`].
    pub(super) fn fed(&mut self, len: usize) {
        self.end += len;
        self.fed += len as u64;
    }

    /// The next item of the bytes that were fed; `None` if that takes more bytes.
    ///
    /// # Errors
    /// `Corrupt`, or `Incompatible` if it was sent in mixed mode, for good, if the stream cannot be
    /// decoded.
    pub(super) fn next(&mut self, tail: Tail) -> Result<Option<RawItem>> {
        if let Some(error) = self.lost {
            return Err(error);
        }
        loop {
            if let Some(torn) = self.assembly.report() {
                return Ok(Some(RawItem::Torn(torn)));
            }
            if let Some((found, _)) = self.next.take() {
                return Ok(Some(found));
            }
            let step = match self.mode {
                _ if self.start == self.end => DecodeStep::Stuck,
                Mode::Plain => self.plain(tail)?,
                Mode::Mixed => self.mixed(tail)?,
            };
            match step {
                DecodeStep::Found(found) => return Ok(Some(found)),
                DecodeStep::Parsed => {}
                DecodeStep::Stuck if tail == Tail::Ended => return Ok(self.end_of_pipe()),
                DecodeStep::Stuck => return Ok(None),
            }
        }
    }

    fn plain(&mut self, tail: Tail) -> Result<DecodeStep> {
        let bytes = &self.buf[self.start..self.end];
        let header = PartHeader::from_bytes(bytes);
        if let Some(header) = header {
            if !header.is_possible(self.limits.pipe_buf - PartHeader::LEN) {
                let is_mixed = frame::shows_mixed(bytes, self.limits.pipe_buf);
                let (kind, explanation) = if is_mixed {
                    (ErrorKind::Incompatible, Explanation::SentMixed)
                } else {
                    (ErrorKind::Corrupt, Explanation::NoMessages)
                };
                return Err(self.lose(Error::with_explanation(kind, OP, explanation)));
            }
            if bytes.len() >= PartHeader::LEN + header.len as usize {
                return Ok(self.part(header, PartHeader::LEN, PartHeader::LEN + header.len as usize));
            }
        }
        if tail != Tail::Ended {
            return Ok(DecodeStep::Stuck);
        }
        // A part is written in one piece: a stream that ends inside one was not written by a writer
        // of this library.
        let len = bytes.len();
        self.start = self.end;
        let Some(header) = header else {
            return Ok(DecodeStep::Found(RawItem::Torn(Torn::incomplete(None, 0, len))));
        };
        self.assembly.cut_off(header, len - PartHeader::LEN);
        Ok(DecodeStep::Parsed)
    }

    fn mixed(&mut self, tail: Tail) -> Result<DecodeStep> {
        if self.text > 0 {
            return Ok(self.line());
        }
        let rules = self.rules();
        let rest = if tail == Tail::Unknown { Rest::Possible } else { Rest::Impossible };
        match mixed::scan(&self.buf[self.start..self.end], rest, rules) {
            mixed::Start::Text(len) => {
                self.text = len;
                Ok(self.line())
            }
            mixed::Start::Broken { header, came, len } => {
                // Any program may print such bytes, so they are a loss only if a message is known
                // to be missing. In text, the only part of a message of an unknown writer is no
                // proof of one.
                let is_only = header.kind() == frame::PartKind::Only;
                let begins = header.begins_message() && (self.bursts || !is_only);
                if begins || self.assembly.knows(header.writer()) {
                    self.assembly.cut_off(header, came);
                }
                self.text = len;
                Ok(DecodeStep::Parsed)
            }
            mixed::Start::Part { header, data, len } => Ok(self.part(header, data.start, len)),
            mixed::Start::Burst { data, len } => {
                let data = Data::Buffer(self.start + data.start..self.start + data.end);
                self.start += len;
                Ok(DecodeStep::Found(RawItem::Burst(data)))
            }
            mixed::Start::Undecided => Ok(DecodeStep::Stuck),
            mixed::Start::NoFrame => Err(self.lose(Error::new(ErrorKind::Corrupt, OP))),
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            limit: self.limits.pipe_buf,
            zstd: self.unpacker.zstd().is_some(),
            strict: self.strict,
            bursts: self.bursts,
        }
    }

    /// Takes a line, or the beginning of one, out of the text at `start`.
    fn line(&mut self) -> DecodeStep {
        let text = &self.buf[self.start..self.start + self.text];
        if self.lines.begun().is_empty() {
            self.line_began = self.fed - (self.end - self.start) as u64;
        }
        let (len, line) = self.lines.take(text, self.limits.max_message);
        let at = self.start;
        self.start += len;
        self.text -= len;
        match line {
            Some(LineAt::Start(len)) => DecodeStep::Found(RawItem::Line(Data::Buffer(at..at + len))),
            Some(LineAt::Own(line)) => DecodeStep::Found(RawItem::Line(Data::Own(line))),
            None => DecodeStep::Parsed,
        }
    }

    /// Takes the part at `start`, `len` bytes in all, whose data begins at `data` in it.
    fn part(&mut self, header: PartHeader, data: usize, len: usize) -> DecodeStep {
        let pos = self.position();
        let data = self.start + data..self.start + data + header.len as usize;
        self.start += len;
        let (data, parts) = match self.join(header, data.clone()) {
            Some(joined) => joined,
            None => {
                let part = &self.buf[data.clone()];
                match self.assembly.push(pos, header, part, &self.limits) {
                    PartOutcome::Nothing => return DecodeStep::Parsed,
                    PartOutcome::Single => (data, 1),
                    PartOutcome::Whole { data, parts } => {
                        return self.whole(pos, Data::Own(data), header, parts);
                    }
                }
            }
        };
        // Between text, a part whose check does not match is not treated as a part at all.
        let is_checked = self.mode == Mode::Mixed && parts == 1;
        if !is_checked && !header.vouches_for(&self.buf[data.clone()]) {
            let torn = Torn::incomplete(Some(header.writer()), parts, data.len());
            self.next = Some((RawItem::Torn(torn.unfit(Unfit::Corrupt)), pos));
            return DecodeStep::Parsed;
        }
        self.whole(pos, Data::Buffer(data), header, parts)
    }

    /// Joins a message of several parts in place, if all of them are there, one behind the other:
    /// that takes neither memory nor an entry among the unfinished. The data of the first part are
    /// at `data`; the others begin at `start`. Returns the payload's range, and the number of
    /// parts.
    fn join(&mut self, first: PartHeader, mut data: Range<usize>) -> Option<(Range<usize>, u32)> {
        // Ask this first, so that each part is looked at once here: if the loop below finds no end
        // of the message, the assembly knows its writer, and its next parts are not looked at.
        if first.following() == 0 || !self.assembly.begins_unknown(first) {
            return None;
        }
        // Until it is known that no part is missing, everything stays in place.
        let pipe_buf = self.limits.pipe_buf;
        let (mut latest, mut len, mut end) = (first, data.len(), self.start);
        while latest.following() > 0 {
            let next = PartHeader::of_whole_part(&self.buf[end..self.end], self.mode, pipe_buf)?;
            if !latest.is_before(next) {
                return None;
            }
            (latest, len) = (next, len + next.len as usize);
            end += self.mode.part_overhead() + next.len as usize;
        }
        if !self.assembly.would_keep(len, &self.limits) {
            return None;
        }
        while self.start < end {
            let header = PartHeader::of_whole_part(&self.buf[self.start..end], self.mode, pipe_buf)
                .expect("it was there, and moved data stays in front of it");
            let (from, len) = (self.start + self.mode.prefix() + PartHeader::LEN, header.len as usize);
            self.buf.copy_within(from..from + len, data.end);
            data.end += len;
            self.start += self.mode.part_overhead() + len;
        }
        Some((data, first.following() + 1))
    }

    /// Gives out a message, all of which is at `data`. If it was not assembled before, it begins at
    /// `pos` in the stream; only then can it be behind a report.
    fn whole(&mut self, pos: u64, data: Data, header: PartHeader, parts: u32) -> DecodeStep {
        let found = self.message(data, header, parts);
        match self.assembly.report() {
            // The report concerns an earlier message of the same writer, so it goes first.
            Some(torn) => {
                self.next = Some((self.detached(found), pos));
                DecodeStep::Found(RawItem::Torn(torn))
            }
            None => DecodeStep::Found(found),
        }
    }

    fn message(&self, data: Data, header: PartHeader, parts: u32) -> RawItem {
        let (bytes, writer) = (self.bytes(&data).len(), header.writer());
        if self.unpacker.zstd().is_none() && header.is_compressed() {
            // The frame differs from what was sent, and its user could not tell.
            let torn = Torn::incomplete(Some(writer), parts, bytes);
            return RawItem::Torn(torn.unfit(Unfit::Incompatible));
        }
        RawItem::Message { data, writer, parts }
    }

    /// The same item in memory of its own, which later parsing does not change.
    fn detached(&self, found: RawItem) -> RawItem {
        let own = |data: Data| match data {
            Data::Own(data) => Data::Own(data),
            data => Data::Own(self.bytes(&data).to_vec()),
        };
        match found {
            RawItem::Line(line) => RawItem::Line(own(line)),
            RawItem::Burst(data) => RawItem::Burst(own(data)),
            RawItem::Message { data, writer, parts } => RawItem::Message { data: own(data), writer, parts },
            RawItem::Torn(torn) => RawItem::Torn(torn),
        }
    }

    /// The remaining items once all bytes are parsed and no more will come.
    fn end_of_pipe(&mut self) -> Option<RawItem> {
        if let Some(line) = self.lines.end() {
            return Some(RawItem::Line(Data::Own(line)));
        }
        self.assembly.end();
        self.assembly.report().map(RawItem::Torn)
    }

    fn lose(&mut self, error: Error) -> Error {
        self.lost = Some(error);
        error
    }

    fn bytes<'a>(&'a self, data: &'a Data) -> &'a [u8] {
        match data {
            Data::Buffer(range) => &self.buf[range.clone()],
            Data::Own(data) => data,
        }
    }

    /// The item that was found, as it was sent.
    #[inline(always)]
    pub(super) fn item(&mut self, found: RawItem) -> Item<'_> {
        let Decoder { buf, unpacker, .. } = self;
        // An item is moved as rarely as possible: each move costs as much as finding it.
        match unpacker.zstd() {
            None => found.lend(buf),
            Some(_) => unpacker.unpack(found.lend(buf)),
        }
    }

    /// The same item as it arrived, for another unpacker.
    pub(super) fn packed_item(&self, found: RawItem) -> Item<'static> {
        found.lend(&self.buf).into_owned()
    }

    /// The invariants that the fuzzer checks after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.start <= self.end && self.end <= self.buf.len());
        assert!(self.text <= self.end - self.start);
        assert!(self.lines.begun().len() <= self.limits.max_message.max(1) + 1);
        self.unpacker.check();
        self.assembly.check(&self.limits);
    }
}

/// The result of one look at the buffer.
enum DecodeStep {
    Found(RawItem),
    /// Bytes were taken; look again.
    Parsed,
    /// The bytes there are incomplete.
    Stuck,
}
