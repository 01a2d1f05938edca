//! Properties that must hold for any bytes, shared by the fuzz targets and the property tests.
//!
//! [`naive`] is the specification of the mixed stream, byte by byte, in the plainest way; the
//! decoder must agree with it however reads cut the bytes.

#![allow(unreachable_pub)] // The fuzz targets reach it, under cfg(fuzzing); the tests need no more than the crate.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;

use super::Options;
use super::decoder::{Decoder, RawItem, Tail};
use super::frame::{DATA_LINK_ESCAPE, Mode, PartHeader, SHIFT_IN, SHIFT_OUT};
use super::item::{Item, WriterKey};
use super::packer::check_round_trip;
use super::zstd::Zstd;
use crate::deadline::Deadline;
use crate::error::ErrorKind;

/// Payloads cut out of `data` survive being packed into writes.
pub fn frame(data: &[u8]) {
    let Some((&[limit, mode, width], payloads)) = data.split_first_chunk() else { return };
    let limit = 512 + usize::from(limit) * 16;
    let (mode, each) = (if mode & 1 == 0 { Mode::Plain } else { Mode::Mixed }, mode & 2 != 0);
    let payloads: Vec<&[u8]> = payloads.chunks(1 + usize::from(width) * 40).collect();
    check_round_trip(limit, mode, each, &payloads);
    if let Some(header) = PartHeader::from_bytes(data) {
        assert_eq!(header.to_bytes(), data[..PartHeader::LEN]);
    }
}

/// The decoder agrees with [`naive`] on `data`, with reads of any size.
pub fn mixed(data: &[u8]) {
    let Some((&[max, cut, step], stream)) = data.split_first_chunk() else { return };
    let max_message = 1 + usize::from(max) * 32;
    let expected = naive(stream, 512, max_message);
    for reads in [[stream.len(), 1], [1, 1], [1 + usize::from(cut), 1 + usize::from(step)]] {
        assert_eq!(decode(stream, &reads, 512, max_message), expected, "reads of {reads:?} bytes");
    }
    for mixed in [false, true] {
        exactly(stream, mixed, max_message, 1 + usize::from(cut) * 16, 1 + u64::from(step % 8));
    }
}

/// A reader that looks before it reads stops where a reader of single bytes has the last wanted
/// item.
pub(crate) fn exactly(stream: &[u8], mixed: bool, max_message: usize, peek: usize, items: u64) {
    let new = || {
        let options = Options::new().mixed(mixed).max_message(max_message);
        options.decoder(512).expect("the options are valid")
    };
    let count = |decoder: &mut Decoder| {
        let mut found = 0;
        while let Ok(Some(item)) = decoder.next(Tail::Unknown) {
            found += u64::from(!matches!(item, RawItem::Torn(_)));
        }
        found
    };
    let (mut plain, mut exact, mut fed) = (new(), new(), 0);
    let (mut found, mut wanted) = (0, items);
    for (at, byte) in stream.iter().enumerate() {
        plain.space(1).expect("space")[0] = *byte;
        plain.fed(1);
        found += count(&mut plain);
        if found < wanted {
            continue;
        }
        // As above for the other mode, which was never read past an item.
        let mut left = wanted;
        while left > 0 {
            let rest = &stream[fed..];
            let peeked = if exact.has_bytes() { 0 } else { peek.min(rest.len()) };
            exact.space(peek).expect("space")[..peeked].copy_from_slice(&rest[..peeked]);
            let len = exact.certain(peeked, left);
            assert!(fed + len <= at + 1, "reads {} bytes past item {wanted}", fed + len - at - 1);
            exact.space(len).expect("space").copy_from_slice(&rest[..len]);
            exact.fed(len);
            fed += len;
            left = left.saturating_sub(count(&mut exact));
        }
        (found, wanted) = (0, items);
        assert_eq!(fed, at + 1);
    }
}

/// No bytes make the decoder panic, loop, or use more memory than its limits allow.
pub fn reader(data: &[u8]) {
    let Some((&[flags, max, cut, drain], stream)) = data.split_first_chunk() else { return };
    let mut options =
        Options::new().mixed(flags & 1 != 0).strict(flags & 2 != 0).keep_compressed(flags & 4 != 0);
    options = options.max_message(usize::from(max) * 64).max_unfinished(4096 + usize::from(max) * 64);
    if flags & 8 != 0 {
        options = options.zstd(Zstd::new());
    } else if flags & 16 != 0 {
        options = options.zstd(
            Zstd::new().with_dictionary(b"{\"level\":\"info\"}".repeat(8)).accept_unchecked(flags & 32 != 0),
        );
    }
    let mut decoder = options.decoder(4096).expect("the options are valid");
    for (nth, chunk) in stream.chunks(1 + usize::from(cut)).enumerate() {
        // Unparsed bytes never exceed a frame, so there is space for a read that is no larger than
        // the limit.
        decoder.space(chunk.len()).expect("space").copy_from_slice(chunk);
        decoder.fed(chunk.len());
        let drained = drain > 0 && nth % usize::from(drain) == 0;
        let tail = if drained { Tail::Silent } else { Tail::Unknown };
        if !take_all(&mut decoder, tail, chunk.len() + 4096) {
            return;
        }
    }
    if take_all(&mut decoder, Tail::Ended, stream.len() + 4096) {
        assert!(decoder.is_empty(), "nothing is left at the end");
    }
    through_a_pipe(&options.read_size(1 + usize::from(cut)), stream);
}

/// The same bytes through a real pipe, as many as fit into it, and a reader.
fn through_a_pipe(options: &Options, stream: &[u8]) {
    let (mut reader, writer) = options.pair().expect("descriptors are left");
    let is_mixed = reader.is_mixed();
    let mut pipe = std::fs::File::from(writer.as_fd().try_clone_to_owned().expect("descriptors are left"));
    pipe.write_all(&stream[..stream.len().min(32 << 10)]).expect("an empty pipe takes it");
    drop((writer, pipe));
    let mut late = 0;
    loop {
        match reader.next_item(Deadline::now()) {
            Ok(_) => {}
            // So many small reads without an item that the call returned.
            Err(error) if error.kind() == ErrorKind::TimedOut && late < stream.len() / 4096 => late += 1,
            // The bytes happen to begin as a plain stream does: that is reported once, and then
            // they are text.
            Err(error) if error.kind() == ErrorKind::Incompatible && is_mixed => {}
            Err(error) => {
                let kinds = [ErrorKind::Closed, ErrorKind::Corrupt, ErrorKind::Incompatible];
                assert!(kinds.contains(&error.kind()), "{error}");
                assert!(reader.next_item(Deadline::now()).is_err(), "the end is final");
                return;
            }
        }
    }
}

/// Takes all available items; returns false if the stream is lost. Each item uses up a byte, or
/// memory of one that did.
fn take_all(decoder: &mut Decoder, tail: Tail, most: usize) -> bool {
    for _ in 0..=most + 65_536 {
        let next = decoder.next(tail);
        decoder.check();
        match next {
            Ok(Some(found)) => drop(decoder.item(found)),
            Ok(None) => return true,
            Err(_) => {
                assert!(decoder.next(tail).is_err(), "a lost stream stays lost");
                return false;
            }
        }
    }
    panic!("the decoder gives out more than it was fed");
}

/// An item without its borrow and its compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlainItem {
    Line(Vec<u8>),
    Burst(Vec<u8>),
    Message(WriterKey, Vec<u8>),
    /// Torn or too long, after this many parts.
    Lost(WriterKey, u32),
}

/// The decoder's items for `stream`, read in blocks of the given sizes, in turn.
pub(crate) fn decode(stream: &[u8], reads: &[usize], pipe_buf: usize, max_message: usize) -> Vec<PlainItem> {
    let options = Options::new().mixed(true).max_message(max_message);
    let mut decoder = options.decoder(pipe_buf).expect("the options are valid");
    let (mut events, mut rest) = (Vec::new(), stream);
    for &len in reads.iter().cycle() {
        let (block, after) = rest.split_at(len.clamp(1, rest.len().max(1)).min(rest.len()));
        decoder.space(block.len()).expect("space").copy_from_slice(block);
        decoder.fed(block.len());
        let tail = if after.is_empty() { Tail::Ended } else { Tail::Unknown };
        while let Some(found) = decoder.next(tail).expect("a mixed stream is never lost") {
            events.push(event(&mut decoder, found));
            decoder.check();
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    events
}

fn event(decoder: &mut Decoder, found: RawItem) -> PlainItem {
    match decoder.item(found) {
        Item::Line(line) => PlainItem::Line(line.to_vec()),
        Item::Burst(burst) => PlainItem::Burst(burst.to_vec()),
        Item::Message(message) => PlainItem::Message(message.writer, message.into_vec()),
        Item::Torn(torn) => PlainItem::Lost(torn.writer.expect("only a burst has none"), torn.parts),
    }
}

/// The specification of the mixed stream.
pub(crate) fn naive(stream: &[u8], pipe_buf: usize, max_message: usize) -> Vec<PlainItem> {
    let mut events = Vec::new();
    let mut writers = NaiveWriters::default();
    let mut line = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        if let Some((frame, len)) = naive_frame(&stream[at..], pipe_buf) {
            match frame {
                NaiveFrame::Burst(data) => events.push(PlainItem::Burst(data)),
                NaiveFrame::Part(header, data) => writers.part(header, data, max_message, &mut events),
            }
            at += len;
            continue;
        }
        if let Some(header) = naive_beginning(&stream[at..], pipe_buf) {
            writers.cut_off(header, &mut events);
        }
        let byte = stream[at];
        let joins = line.last() == Some(&b'\r') && byte == b'\n';
        if !joins && (line.last() == Some(&b'\r') || line.len() >= max_message) {
            events.push(PlainItem::Line(std::mem::take(&mut line)));
        }
        line.push(byte);
        if byte == b'\n' {
            events.push(PlainItem::Line(std::mem::take(&mut line)));
        }
        at += 1;
    }
    if !line.is_empty() {
        events.push(PlainItem::Line(line));
    }
    writers.end(&mut events);
    events
}

enum NaiveFrame {
    Part(PartHeader, Vec<u8>),
    Burst(Vec<u8>),
}

fn naive_frame(bytes: &[u8], pipe_buf: usize) -> Option<(NaiveFrame, usize)> {
    if bytes[0] != SHIFT_OUT {
        return None;
    }
    if *bytes.get(1)? == DATA_LINK_ESCAPE {
        let header = PartHeader::from_bytes(&bytes[2..])?;
        let len = header.len as usize;
        let whole = naive_is_possible(header, pipe_buf) && *bytes.get(18 + len)? == SHIFT_IN;
        let only = header.tid >= 65536 && header.tid % 2 == 0 && header.id == 0;
        let whole = whole && (!only || header.vouches_for(&bytes[18..18 + len]));
        return whole.then(|| (NaiveFrame::Part(header, bytes[18..18 + len].to_vec()), 19 + len));
    }
    for at in 1..pipe_buf {
        match *bytes.get(at)? {
            SHIFT_IN => return Some((NaiveFrame::Burst(bytes[1..at].to_vec()), at + 1)),
            SHIFT_OUT => return None,
            _ => {}
        }
    }
    None
}

/// The header of bytes that begin like a part and are none.
fn naive_beginning(bytes: &[u8], pipe_buf: usize) -> Option<PartHeader> {
    if !bytes.starts_with(&[SHIFT_OUT, DATA_LINK_ESCAPE]) {
        return None;
    }
    PartHeader::from_bytes(&bytes[2..]).filter(|header| naive_is_possible(*header, pipe_buf))
}

fn naive_is_possible(header: PartHeader, pipe_buf: usize) -> bool {
    let numbers = match (header.tid, header.id) {
        (..=65535, _) => header.pid != 0,
        (tid, id) => header.pid & 0x3F_FFFF != 0 && if tid % 2 == 0 { id == 0 } else { id != 1 << 31 },
    };
    numbers && header.len as usize <= pipe_buf - 19
}

/// Whether a header may begin a message if nothing else is known of it.
fn naive_begins_message(header: PartHeader) -> bool {
    match (header.tid, header.id) {
        (..0, _) => false,
        (0..=65535, id) => (1..=0x40_0000).contains(&header.pid) && id < 1 << 20,
        (_, 0) => header.tid % 2 == 0,
        (_, id) => id >= 1 << 31 && id - (1 << 31) < 1 << 20,
    }
}

#[derive(Default)]
struct NaiveWriters {
    /// The latest header, parts, data; in the order of the latest part.
    unfinished: Vec<(PartHeader, u32, Vec<u8>)>,
    given_up: HashMap<WriterKey, PartHeader>,
}

impl NaiveWriters {
    fn part(&mut self, header: PartHeader, data: Vec<u8>, max_message: usize, events: &mut Vec<PlainItem>) {
        let Some((parts, before)) = self.message_of(header, events) else { return };
        let (parts, payload, writer) = (parts + 1, [before, data].concat(), header.writer());
        let headless = parts == 1 && !is_first(header);
        if headless || payload.len() > max_message {
            events.push(PlainItem::Lost(writer, parts));
            self.pass_over_after(header);
        } else if header.following() > 0 {
            self.unfinished.push((header, parts, payload));
        } else if header.vouches_for(&payload) && !header.is_compressed() {
            events.push(PlainItem::Message(writer, payload));
        } else {
            events.push(PlainItem::Lost(writer, parts));
        }
    }

    /// A part that turned out not to be one: its message is lost.
    fn cut_off(&mut self, header: PartHeader, events: &mut Vec<PlainItem>) {
        let writer = header.writer();
        let known = |(other, ..): &(PartHeader, u32, Vec<u8>)| other.writer() == writer;
        let is_known = self.given_up.contains_key(&writer) || self.unfinished.iter().any(known);
        if !is_known && !naive_begins_message(header) {
            return;
        }
        if let Some((parts, _)) = self.message_of(header, events) {
            events.push(PlainItem::Lost(header.writer(), parts + 1));
            self.pass_over_after(header);
        }
    }

    /// The unfinished message of the part; `None` if it is lost already.
    fn message_of(&mut self, header: PartHeader, events: &mut Vec<PlainItem>) -> Option<(u32, Vec<u8>)> {
        let writer = header.writer();
        if let Some(lost) = self.given_up.remove(&writer)
            && !is_only_or_marked(header)
            && same(lost, header)
            && (goes_on(lost, header) || is_marked(header) && lost.following() > header.following())
        {
            self.pass_over_after(header);
            return None;
        }
        let Some(at) = self.unfinished.iter().position(|(known, ..)| known.writer() == writer) else {
            return Some((0, vec![]));
        };
        let (known, parts, payload) = self.unfinished.remove(at);
        if !is_only_or_marked(header) && same(known, header) && goes_on(known, header) {
            return Some((parts, payload));
        }
        events.push(PlainItem::Lost(writer, parts));
        if is_marked(header) && !is_first(header) && same(known, header) {
            self.pass_over_after(header);
            return None;
        }
        Some((0, vec![]))
    }

    /// After the last part of a message, nothing is left to skip.
    fn pass_over_after(&mut self, header: PartHeader) {
        if header.following() > 0 {
            self.given_up.insert(header.writer(), header);
        }
    }

    fn end(self, events: &mut Vec<PlainItem>) {
        let lost = |(header, parts, _): (PartHeader, u32, Vec<u8>)| PlainItem::Lost(header.writer(), parts);
        events.extend(self.unfinished.into_iter().map(lost));
    }
}

fn same(one: PartHeader, two: PartHeader) -> bool {
    (one.pid, one.tid) == (two.pid, two.tid)
}

/// Whether the numbers of two parts are consecutive.
fn goes_on(one: PartHeader, two: PartHeader) -> bool {
    u64::from(one.following()) == u64::from(two.following()) + 1
}

/// Whether its writer marks first parts.
fn is_marked(header: PartHeader) -> bool {
    header.tid >= 65536
}

fn is_only_or_marked(header: PartHeader) -> bool {
    is_marked(header) && is_first(header)
}

/// Whether it may be the first of its message.
fn is_first(header: PartHeader) -> bool {
    !is_marked(header) || if header.tid % 2 == 0 { header.id == 0 } else { header.id > 1 << 31 }
}
