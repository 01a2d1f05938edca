//! Finds parts and bursts between ordinary text. Pure.
//!
//! Bytes that open like a frame and are not well formed are text, so a stray control byte breaks
//! nothing. A well-formed beginning waits for its rest: a part or burst is written by one atomic
//! `write`, but a relay between the two ends may cut anywhere. [`scan`] looks at the start of a
//! buffer; [`Lines`] divides the text that it finds.

use std::ops::Range;

use memchr::{memchr, memchr2};

use super::frame::{DATA_LINK_ESCAPE, Mode, PartHeader, PartKind, SHIFT_IN, SHIFT_OUT};
use super::zstd;

/// The beginning of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// This many bytes of text.
    Text(usize),
    /// Bytes that began like a part, with `came` bytes of its data, and are none: the first `len`
    /// bytes are text.
    Broken { header: PartHeader, came: usize, len: usize },
    /// A part, `len` bytes in all.
    Part { header: PartHeader, data: Range<usize>, len: usize },
    /// A burst, `len` bytes in all.
    Burst { data: Range<usize>, len: usize },
    /// The next bytes decide.
    Undecided,
    /// The bytes that open here are no frame, and that is an error if the caller is strict.
    NoFrame,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// PIPE_BUF: no frame is longer.
    pub(super) limit: usize,
    /// Bursts hold zstd frames, which may contain any control byte: the zstd format tells where
    /// they end.
    pub(super) zstd: bool,
    /// A burst ends at the first [`SHIFT_IN`] and may contain [`SHIFT_OUT`]; malformed frames are
    /// not text.
    pub(super) strict: bool,
    /// Whether bursts are recognised; otherwise only a part is a frame, and anything else that
    /// opens like one is text.
    pub(super) bursts: bool,
}

impl Rules {
    /// The most data that a part can hold.
    fn max_part(self) -> usize {
        self.limit - Mode::Mixed.part_overhead()
    }
}

/// Whether an incomplete frame at the end of a buffer can still be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It may: more bytes may come.
    Possible,
    /// It cannot: the pipe has ended, or nothing has come for too long.
    Impossible,
}

/// Looks at the start of `bytes`, which are not empty.
pub(super) fn scan(bytes: &[u8], rest: Rest, rules: Rules) -> Start {
    if bytes[0] != SHIFT_OUT {
        return Start::Text(memchr(SHIFT_OUT, bytes).unwrap_or(bytes.len()));
    }
    match frame(bytes, rest, rules) {
        Start::Undecided if rest == Rest::Possible => Start::Undecided,
        Start::Undecided | Start::NoFrame if rules.strict => Start::NoFrame,
        Start::Undecided | Start::NoFrame => {
            let len = 1 + memchr(SHIFT_OUT, &bytes[1..]).unwrap_or(bytes.len() - 1);
            match part_header(bytes, rules) {
                Some(header) => {
                    let came = (bytes.len() - DATA).min(header.len as usize);
                    Start::Broken { header, came, len }
                }
                None => Start::Text(len),
            }
        }
        found => found,
    }
}

/// Where the data of a part begins.
const DATA: usize = Mode::Mixed.prefix() + PartHeader::LEN;

/// The header of the part that `bytes` begin with; `None` if it is incomplete, or cannot be a
/// part's.
fn part_header(bytes: &[u8], rules: Rules) -> Option<PartHeader> {
    if !bytes.starts_with(&[SHIFT_OUT, DATA_LINK_ESCAPE]) {
        return None;
    }
    PartHeader::from_bytes(&bytes[Mode::Mixed.prefix()..])
        .filter(|header| header.is_possible_in_text(rules.max_part()))
}

/// The frame that [`SHIFT_OUT`] at the start of `bytes` opens.
fn frame(bytes: &[u8], rest: Rest, rules: Rules) -> Start {
    match bytes.get(1) {
        None => Start::Undecided,
        Some(&DATA_LINK_ESCAPE) => part(bytes, rules),
        Some(_) if !rules.bursts => Start::NoFrame,
        Some(_) if rules.zstd && zstd::is_frame(&bytes[1..]) => compressed_burst(bytes, rest, rules),
        Some(_) => burst(bytes, rules),
    }
}

fn part(bytes: &[u8], rules: Rules) -> Start {
    let Some(header) = PartHeader::from_bytes(&bytes[Mode::Mixed.prefix()..]) else {
        return Start::Undecided;
    };
    if !header.is_possible_in_text(rules.max_part()) {
        return Start::NoFrame;
    }
    let len = header.len as usize;
    match bytes.get(DATA + len) {
        None => Start::Undecided,
        Some(&SHIFT_IN) if !is_damaged(header, &bytes[DATA..DATA + len]) => {
            Start::Part { header, data: DATA..DATA + len, len: DATA + len + 1 }
        }
        Some(_) => Start::NoFrame,
    }
}

/// How many bytes of an [undecided](Start::Undecided) frame it takes to know more: for a part its
/// header, then all of it; for a burst, one more byte.
pub(super) fn len_to_decide(bytes: &[u8], rules: Rules) -> usize {
    match part_header(bytes, rules) {
        Some(header) => Mode::Mixed.part_overhead() + header.len as usize,
        None if bytes.starts_with(&[SHIFT_OUT, DATA_LINK_ESCAPE]) => DATA,
        None => bytes.len() + 1,
    }
}

/// Whether a part is known to differ from what was sent. Its range may contain intact parts.
fn is_damaged(header: PartHeader, data: &[u8]) -> bool {
    header.kind() == PartKind::Only && !header.vouches_for(data)
}

fn burst(bytes: &[u8], rules: Rules) -> Start {
    let window = &bytes[1..bytes.len().min(rules.limit)];
    let end = if rules.strict { memchr(SHIFT_IN, window) } else { memchr2(SHIFT_IN, SHIFT_OUT, window) };
    match end.map(|at| at + 1) {
        Some(at) if bytes[at] == SHIFT_IN => Start::Burst { data: 1..at, len: at + 1 },
        Some(_) => Start::NoFrame,
        None if bytes.len() >= rules.limit => Start::NoFrame,
        None => Start::Undecided,
    }
}

fn compressed_burst(bytes: &[u8], rest: Rest, rules: Rules) -> Start {
    let window = &bytes[1..bytes.len().min(rules.limit)];
    match zstd::frame_len(window) {
        Some(len) if bytes.get(1 + len) == Some(&SHIFT_IN) && len + 2 <= rules.limit => {
            Start::Burst { data: 1..1 + len, len: len + 2 }
        }
        Some(len) if 1 + len < bytes.len() => burst(bytes, rules),
        // Incomplete, or not zstd after all: wait while more bytes may come.
        _ if rest == Rest::Possible && bytes.len() < rules.limit => Start::Undecided,
        _ => burst(bytes, rules),
    }
}

/// Divides text into lines: `\n`, `\r\n` and `\r` end one.
///
/// A `\r` at the end of the known text waits for the next byte of text, so that lines do not depend
/// on how reads cut the stream. The caller decides how long it waits.
#[derive(Debug)]
pub(super) struct Lines {
    /// The text of the line that has not ended yet.
    begun: Vec<u8>,
}

/// The facts about an unfinished line that are needed to find its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineState {
    /// Its length in bytes.
    len: usize,
    /// Whether its last byte is `\r`.
    returned: bool,
}

impl LineState {
    /// How many bytes of `text`, which is not empty, belong to the line, and whether the line ends
    /// with them. A line of more than `max` bytes ends in pieces; a terminator stays with its line
    /// even then.
    pub(super) fn take(&mut self, text: &[u8], max: usize) -> (usize, bool) {
        let LineState { len: begun, returned } =
            std::mem::replace(self, LineState { len: 0, returned: false });
        if returned {
            return (usize::from(text[0] == b'\n'), true);
        }
        let space = max.max(1).saturating_sub(begun);
        let window = &text[..text.len().min(space)];
        let end = match memchr2(b'\n', b'\r', window) {
            Some(at) if text[at] == b'\n' => Some(at + 1),
            Some(at) => text.get(at + 1).map(|next| at + 1 + usize::from(*next == b'\n')),
            None if space < text.len() => Some(space),
            None => None,
        };
        if let Some(len) = end.or((space == 0).then_some(0)) {
            return (len, true);
        }
        *self = LineState { len: begun + text.len(), returned: text.ends_with(b"\r") };
        (text.len(), false)
    }
}

/// Where a line lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineAt {
    /// The first bytes of the text, this many.
    Start(usize),
    /// A line that began in earlier text.
    Own(Vec<u8>),
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { begun: Vec::new() }
    }

    /// The text of the unfinished line.
    pub(super) fn begun(&self) -> &[u8] {
        &self.begun
    }

    pub(super) fn state(&self) -> LineState {
        LineState { len: self.begun.len(), returned: self.begun.ends_with(b"\r") }
    }

    /// Takes text from the start of `text` up to the end of the next line. Returns how many bytes
    /// it took, and the line if it has ended. If memory for a line is exhausted, the line is given
    /// out in pieces.
    pub(super) fn take(&mut self, text: &[u8], max: usize) -> (usize, Option<LineAt>) {
        if text.is_empty() {
            return (0, None);
        }
        let (len, ended) = self.state().take(text, max);
        if ended {
            return (len, Some(self.ended(&text[..len])));
        }
        if self.begun.try_reserve(text.len()).is_err() {
            return match self.end() {
                Some(begun) => (0, Some(LineAt::Own(begun))),
                None => (text.len(), Some(LineAt::Start(text.len()))),
            };
        }
        self.begun.extend_from_slice(text);
        (text.len(), None)
    }

    /// The unfinished line, for when nothing will finish it, or when it is wanted as it is.
    pub(super) fn end(&mut self) -> Option<Vec<u8>> {
        (!self.begun.is_empty()).then(|| std::mem::take(&mut self.begun))
    }

    fn ended(&mut self, last: &[u8]) -> LineAt {
        if self.begun.is_empty() {
            return LineAt::Start(last.len());
        }
        let mut line = std::mem::take(&mut self.begun);
        line.extend_from_slice(last);
        LineAt::Own(line)
    }
}
