//! Puts parts together into messages, for each writer separately. Pure.
//!
//! Invariant: a message is given out only if its parts came with ids that descend by one to 0,
//! starting at one that is known to be the first if its writer marks first parts, and if they match
//! the check that it sent. Everything else ends in exactly one [`Torn`] report. Unfinished data
//! never exceeds `max_message` for one message and `max_unfinished` for all.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeSet, HashMap, VecDeque};

use super::check::Sums;
use super::frame::{PartHeader, PartKind};
use super::item::{Limit, Torn, Unfit, WriterKey};

/// The cost of an unfinished message beside its data: its entry in the map, rounded up. It limits
/// how many there can be.
const OVERHEAD: usize = 256;

/// Memory that is reserved for the size that a first part announces, and charged in full. Growth
/// beyond it is charged by its bytes.
const BELIEVED: usize = 64 << 10;

/// Messages that were given up and whose last part has not come yet. Only a hostile peer causes
/// more than this.
const MAX_GIVEN_UP: usize = 65_536;

/// How much memory a peer can make the decoder use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) pipe_buf: usize,
    /// One message, before and after decompression; also one line.
    pub(super) max_message: usize,
    /// All unfinished messages together; also bytes that were read and not yet parsed.
    pub(super) max_unfinished: usize,
}

/// The keys come from the pipe. The standard library's hash keeps a peer from choosing keys that
/// collide, which faster hashes do not promise. Compared with copying a part it costs little: where
/// the parts of 1 to 4,000 writers alternate, it takes from 4 % less to 5 % more CPU time per part
/// than foldhash, in runs that differed by 7 % among themselves. A message whose parts lie in a row
/// is not hashed at all. The methods that hash are not inlined: a message of 890 bytes would take 4 %
/// longer, although none of them runs for it.
#[derive(Debug)]
pub(super) struct Assembly {
    unfinished: HashMap<WriterKey, PartialMessage, RandomState>,
    /// Writers whose message was given up: the rest of it is skipped.
    given_up: HashMap<WriterKey, GivenUp, RandomState>,
    /// Where in the stream each unfinished message begins.
    begun: BTreeSet<u64>,
    /// Counts parts.
    clock: u64,
    /// The cost of all unfinished messages.
    held: usize,
    /// Bytes of data of all unfinished messages.
    buffered: usize,
    /// Reports that no call has returned yet.
    reports: VecDeque<Torn>,
}

#[derive(Debug)]
struct PartialMessage {
    /// The header of its latest part. The next part has the same key, and an id that is less by
    /// one.
    header: PartHeader,
    parts: u32,
    data: Vec<u8>,
    sums: Sums,
    /// Where in the stream its first part begins.
    began: u64,
    /// When its latest part came.
    stamp: u64,
}

/// The header of the latest part that came, or should have come, and when that was.
#[derive(Debug)]
struct GivenUp {
    header: PartHeader,
    stamp: u64,
}

/// The effect of a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// The message is not finished.
    Nothing,
    /// The part is the whole message.
    Single,
    /// The part completes a message.
    Whole { data: Vec<u8>, parts: u32 },
}

/// The relation of a part to the state of its writer.
enum Belongs {
    /// It begins here.
    Here,
    /// It is unfinished, and this is its next part.
    ToUnfinished,
    /// Its message is already reported.
    ToGivenUp,
    /// The first part of its message never came.
    ToUnknown,
}

impl Assembly {
    pub(super) fn new() -> Assembly {
        Assembly {
            unfinished: HashMap::default(),
            given_up: HashMap::default(),
            begun: BTreeSet::new(),
            clock: 0,
            held: 0,
            buffered: 0,
            reports: VecDeque::new(),
        }
    }

    /// Whether it holds no state of any message.
    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_empty() && self.reports.is_empty()
    }

    /// Where in the stream the first of the unfinished messages begins.
    pub(super) fn began(&self) -> Option<u64> {
        self.begun.first().copied()
    }

    /// Bytes of data that belong to unfinished messages.
    pub(super) fn buffered(&self) -> usize {
        self.buffered
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// The next report of a message that is lost.
    pub(super) fn report(&mut self) -> Option<Torn> {
        self.reports.pop_front()
    }

    /// Takes the next part in the order of the pipe, which is at `pos` in the stream.
    pub(super) fn push(&mut self, pos: u64, header: PartHeader, part: &[u8], limits: &Limits) -> PartOutcome {
        match self.belongs(header) {
            Belongs::Here => self.begin(pos, header, part, limits),
            Belongs::ToUnfinished => self.go_on(header, part, limits),
            Belongs::ToGivenUp => PartOutcome::Nothing,
            Belongs::ToUnknown => {
                self.reports.push_back(Torn::incomplete(Some(header.writer()), 1, part.len()));
                self.pass_over_after(header);
                PartOutcome::Nothing
            }
        }
    }

    /// Whether a message may begin with `first`, and no message of its writer is unfinished. If all
    /// parts of such a message have come and [`Assembly::would_keep`] it, it needs no assembly: put
    /// together part by part, it would come out whole and break no sequence.
    pub(super) fn begins_unknown(&self, first: PartHeader) -> bool {
        first.kind() != PartKind::Later && !self.knows(first.writer())
    }

    /// Whether another message of `len` bytes is within the limits.
    pub(super) fn would_keep(&self, len: usize, limits: &Limits) -> bool {
        len <= limits.max_message && self.held + OVERHEAD + len.max(BELIEVED) <= limits.max_unfinished
    }

    /// Reports the message of a part of which only `len` bytes of data came, and skips the rest of
    /// the message: whole parts in order, which together are not the message that was sent.
    pub(super) fn cut_off(&mut self, header: PartHeader, len: usize) {
        let writer = header.writer();
        let torn = match self.belongs(header) {
            Belongs::ToGivenUp => return,
            Belongs::ToUnfinished => self.remove(writer).torn(writer),
            Belongs::Here | Belongs::ToUnknown => Torn::incomplete(Some(writer), 0, 0),
        };
        self.reports.push_back(torn.and_part(len));
        self.pass_over_after(header);
    }

    /// Whether a message of this writer is unfinished or being skipped.
    pub(super) fn knows(&self, writer: WriterKey) -> bool {
        self.unfinished.contains_key(&writer) || self.given_up.contains_key(&writer)
    }

    /// Reports all unfinished messages: the pipe has ended, or no writer is left.
    pub(super) fn end(&mut self) {
        for writer in self.oldest_first() {
            let torn = self.remove(writer).torn(writer);
            self.reports.push_back(torn);
        }
        self.given_up.clear();
    }

    /// Determines where a part belongs, and reports the message whose sequence it breaks: its
    /// writer gave that message up or died, or a relay lost a part.
    fn belongs(&mut self, header: PartHeader) -> Belongs {
        if self.unfinished.is_empty() && self.given_up.is_empty() {
            return Belongs::alone(header);
        }
        self.belongs_among(header)
    }

    #[inline(never)]
    fn belongs_among(&mut self, header: PartHeader) -> Belongs {
        let writer = header.writer();
        if self.passes_over(header, writer) {
            return Belongs::ToGivenUp;
        }
        match self.unfinished.get(&writer).map(|message| message.header) {
            None => Belongs::alone(header),
            Some(before) if before.is_before(header) => Belongs::ToUnfinished,
            Some(before) => {
                let torn = self.remove(writer).torn(writer);
                self.reports.push_back(torn);
                if header.kind() == PartKind::Later && header.is_of_the_same(before) {
                    self.pass_over_after(header);
                    Belongs::ToGivenUp
                } else {
                    Belongs::alone(header)
                }
            }
        }
    }

    fn begin(&mut self, pos: u64, header: PartHeader, part: &[u8], limits: &Limits) -> PartOutcome {
        let (sums, stamp) = (Sums::new(), self.clock);
        let mut message = PartialMessage { header, parts: 0, data: Vec::new(), sums, began: pos, stamp };
        if part.len() > limits.max_message {
            self.give_up(header, message, part.len(), Limit::MaxMessage);
            return PartOutcome::Nothing;
        }
        if header.following() == 0 {
            return PartOutcome::Single;
        }
        // The number of parts that a first part claims is not believed beyond this. The first part
        // may be shorter than the others.
        let expected = (header.following() as usize).saturating_mul(4096).saturating_add(part.len());
        if !message.add(header, part, expected.min(BELIEVED).min(limits.max_message)) {
            self.give_up(header, message, part.len(), Limit::Memory);
            return PartOutcome::Nothing;
        }
        self.keep(header.writer(), message, limits);
        PartOutcome::Nothing
    }

    #[inline(never)]
    fn go_on(&mut self, header: PartHeader, part: &[u8], limits: &Limits) -> PartOutcome {
        let writer = header.writer();
        let Entry::Occupied(mut entry) = self.unfinished.entry(writer) else {
            unreachable!("the caller has seen it")
        };
        let message = entry.get_mut();
        self.held -= message.cost();
        self.buffered -= message.data.len();
        let len = message.data.len() + part.len();
        // Doubles as a vector does, but never beyond the largest size of the message.
        let wanted = (2 * message.data.capacity()).min(limits.max_message).max(len);
        let limit = match len > limits.max_message {
            true => Some(Limit::MaxMessage),
            false => (!message.add(header, part, wanted)).then_some(Limit::Memory),
        };
        if let Some(limit) = limit {
            let message = entry.remove();
            self.begun.remove(&message.began);
            self.give_up(header, message, part.len(), limit);
            return PartOutcome::Nothing;
        }
        if header.following() > 0 {
            self.clock += 1;
            message.stamp = self.clock;
            self.held += message.cost();
            self.buffered += len;
            self.keep_within(limits.max_unfinished);
            return PartOutcome::Nothing;
        }
        let message = entry.remove();
        self.begun.remove(&message.began);
        if header.check().is_some_and(|check| check != message.sums.check(&message.data)) {
            self.reports.push_back(message.torn(writer).unfit(Unfit::Corrupt));
            return PartOutcome::Nothing;
        }
        PartOutcome::Whole { data: message.data, parts: message.parts }
    }

    #[inline(never)]
    fn keep(&mut self, writer: WriterKey, mut message: PartialMessage, limits: &Limits) {
        self.clock += 1;
        message.stamp = self.clock;
        self.held += message.cost();
        self.buffered += message.data.len();
        self.begun.insert(message.began);
        self.unfinished.insert(writer, message);
        self.keep_within(limits.max_unfinished);
    }

    /// Once the limit is exceeded, gives up the messages that have waited longest for a part,
    /// because their writers are most likely dead. Frees an eighth of the memory at once, so that
    /// the parts that used it up pay for the search. An ordered map by age would take a tenth of the reader's
    /// own time, although memory hardly ever runs out.
    fn keep_within(&mut self, max_unfinished: usize) {
        if self.held <= max_unfinished {
            return;
        }
        for writer in self.oldest_first() {
            if self.held <= max_unfinished - max_unfinished / 8 {
                break;
            }
            let message = self.remove(writer);
            self.pass_over_after(message.header);
            self.reports.push_back(message.torn(writer).unfit(Unfit::TooLong(Limit::MaxUnfinished)));
        }
    }

    fn oldest_first(&self) -> Vec<WriterKey> {
        let mut by_age: Vec<(u64, WriterKey)> =
            self.unfinished.iter().map(|(writer, message)| (message.stamp, *writer)).collect();
        by_age.sort_unstable();
        by_age.into_iter().map(|(_, writer)| writer).collect()
    }

    fn remove(&mut self, writer: WriterKey) -> PartialMessage {
        let message = self.unfinished.remove(&writer).expect("the caller has seen it");
        self.held -= message.cost();
        self.buffered -= message.data.len();
        self.begun.remove(&message.began);
        message
    }

    /// Reports a message that exceeds a limit with a part of `len` bytes, and skips the rest of it.
    fn give_up(&mut self, header: PartHeader, message: PartialMessage, len: usize, limit: Limit) {
        let torn = message.torn(header.writer()).and_part(len);
        self.reports.push_back(torn.unfit(Unfit::TooLong(limit)));
        self.pass_over_after(header);
    }

    fn pass_over_after(&mut self, header: PartHeader) {
        if header.following() == 0 {
            return;
        }
        if self.given_up.len() >= MAX_GIVEN_UP {
            // Forgets the half that has waited longest: those writers are most likely dead.
            let mut stamps: Vec<u64> = self.given_up.values().map(|given_up| given_up.stamp).collect();
            let (_, &mut median, _) = stamps.select_nth_unstable(MAX_GIVEN_UP / 2);
            self.given_up.retain(|_, given_up| given_up.stamp > median);
        }
        self.clock += 1;
        self.given_up.insert(header.writer(), GivenUp { header, stamp: self.clock });
    }

    /// Whether the part belongs to a message that was given up. If first parts are marked, parts in
    /// between may be missing.
    fn passes_over(&mut self, header: PartHeader, writer: WriterKey) -> bool {
        if self.given_up.is_empty() {
            return false;
        }
        let Entry::Occupied(mut entry) = self.given_up.entry(writer) else { return false };
        let before = entry.get().header;
        let goes_on = match header.kind() {
            PartKind::Only | PartKind::First => false,
            PartKind::Later => header.is_of_the_same(before) && header.following() < before.following(),
            PartKind::Untold => before.is_before(header),
        };
        if goes_on && header.following() > 0 {
            self.clock += 1;
            entry.insert(GivenUp { header, stamp: self.clock });
        } else {
            entry.remove();
        }
        goes_on
    }

    /// The invariants that the fuzzer checks after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self, limits: &Limits) {
        let held: usize = self.unfinished.values().map(PartialMessage::cost).sum();
        assert_eq!(held, self.held, "`held` is the sum of all costs");
        let buffered: usize = self.unfinished.values().map(|message| message.data.len()).sum();
        assert_eq!(buffered, self.buffered, "`buffered` is the sum of all data");
        let begun: BTreeSet<u64> = self.unfinished.values().map(|message| message.began).collect();
        assert_eq!(begun, self.begun, "`begun` holds each message's position");
        assert!(held <= limits.max_unfinished, "all messages together keep the limit");
        assert!(
            self.unfinished
                .values()
                .all(|message| message.data.capacity() <= limits.max_message.max(BELIEVED)),
            "each message keeps the limit"
        );
        assert!(self.given_up.len() <= MAX_GIVEN_UP);
    }
}

impl Belongs {
    /// Where a part belongs if nothing is known of its writer.
    fn alone(header: PartHeader) -> Belongs {
        if header.kind() == PartKind::Later { Belongs::ToUnknown } else { Belongs::Here }
    }
}

impl PartialMessage {
    fn cost(&self) -> usize {
        OVERHEAD + self.data.len().max(self.data.capacity().min(BELIEVED))
    }

    /// Adds a part, in memory for `wanted` bytes, or as many as it needs; returns false if memory
    /// is exhausted.
    fn add(&mut self, header: PartHeader, part: &[u8], wanted: usize) -> bool {
        let len = self.data.len();
        if self.data.capacity() - len < part.len() {
            let (wanted, needed) = (wanted.max(len + part.len()) - len, part.len());
            let space = self.data.try_reserve_exact(wanted).or_else(|_| self.data.try_reserve_exact(needed));
            if space.is_err() {
                return false;
            }
        }
        self.data.extend_from_slice(part);
        if header.check().is_some() {
            self.sums.add(&self.data);
        }
        self.parts = self.parts.saturating_add(1);
        self.header = header;
        true
    }

    fn torn(&self, writer: WriterKey) -> Torn {
        Torn::incomplete(Some(writer), self.parts, self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const NO_LIMIT: usize = usize::MAX;

    fn part(writer: i32, id: u32, data: &[u8]) -> (PartHeader, Vec<u8>) {
        (PartHeader { pid: writer, tid: 1, id, len: data.len() as u32 }, data.to_vec())
    }

    fn push(
        assembly: &mut Assembly,
        (header, data): (PartHeader, Vec<u8>),
        max_message: usize,
        max_unfinished: usize,
    ) -> PartOutcome {
        // No two parts have the same position.
        let pos = assembly.begun.last().map_or(0, |last| last + 1);
        let limits = Limits { pipe_buf: 4096, max_message, max_unfinished };
        let step = assembly.push(pos, header, &data, &limits);
        assembly.check(&limits);
        step
    }

    #[test]
    fn assembly_keeps_writers_apart() {
        let mut assembly = Assembly::new();
        assert_eq!(push(&mut assembly, part(1, 1, b"a"), NO_LIMIT, NO_LIMIT), PartOutcome::Nothing);
        assert_eq!(push(&mut assembly, part(2, 1, b"x"), NO_LIMIT, NO_LIMIT), PartOutcome::Nothing);
        assert_eq!(push(&mut assembly, part(3, 0, b"."), NO_LIMIT, NO_LIMIT), PartOutcome::Single);
        assert_eq!(
            push(&mut assembly, part(1, 0, b"b"), NO_LIMIT, NO_LIMIT),
            PartOutcome::Whole { data: b"ab".to_vec(), parts: 2 }
        );
        assert_eq!(
            push(&mut assembly, part(2, 0, b"y"), NO_LIMIT, NO_LIMIT),
            PartOutcome::Whole { data: b"xy".to_vec(), parts: 2 }
        );
        assert!(assembly.is_empty());
    }

    #[test]
    fn a_broken_sequence_is_reported_and_never_spliced() {
        let mut assembly = Assembly::new();
        push(&mut assembly, part(1, 5, b"dead"), NO_LIMIT, NO_LIMIT);
        assert_eq!(push(&mut assembly, part(1, 1, b"new"), NO_LIMIT, NO_LIMIT), PartOutcome::Nothing);
        let torn = assembly.report().expect("a report");
        assert_eq!((torn.parts, torn.bytes, torn.kind), (1, 4, ErrorKind::Torn));
        assert_eq!(
            push(&mut assembly, part(1, 0, b"er"), NO_LIMIT, NO_LIMIT),
            PartOutcome::Whole { data: b"newer".to_vec(), parts: 2 }
        );
    }

    #[test]
    fn message_over_max_message_is_reported_once_and_the_next_arrives() {
        let mut assembly = Assembly::new();
        for id in (0..6).rev() {
            assert_eq!(push(&mut assembly, part(1, id, b"1234"), 10, NO_LIMIT), PartOutcome::Nothing);
        }
        let torn = assembly.report().expect("a report");
        assert_eq!((torn.parts, torn.bytes, torn.kind), (3, 12, ErrorKind::TooLong));
        assert_eq!(assembly.report(), None);
        assert_eq!(push(&mut assembly, part(1, 0, b"next"), 10, NO_LIMIT), PartOutcome::Single);
    }

    #[test]
    fn assembly_gives_up_the_oldest_messages_over_max_unfinished() {
        let mut assembly = Assembly::new();
        let limit = 15 * (OVERHEAD + 300);
        for writer in 1..=16 {
            push(&mut assembly, part(writer, 2, &[0; 100]), 300, limit);
        }
        let reports: Vec<_> = std::iter::from_fn(|| assembly.report()).collect();
        assert!(
            reports.iter().all(|torn| (torn.parts, torn.bytes, torn.kind) == (1, 100, ErrorKind::TooLong))
        );
        let writers: Vec<_> =
            reports.iter().filter_map(|torn| torn.writer).map(|writer| writer.pid).collect();
        assert_eq!(writers, [1, 2, 3], "16 of 15 go down to seven eighths of 15");
        for writer in writers {
            assert_eq!(
                push(&mut assembly, part(writer, 1, b"late"), 300, limit),
                PartOutcome::Nothing,
                "its rest is skipped"
            );
            assert_eq!(push(&mut assembly, part(writer, 0, b"late"), 300, limit), PartOutcome::Nothing);
            assert_eq!(push(&mut assembly, part(writer, 0, b"new"), 300, limit), PartOutcome::Single);
        }
        assert_eq!(push(&mut assembly, part(4, 1, b"x"), 300, limit), PartOutcome::Nothing);
        assert!(
            matches!(push(&mut assembly, part(4, 0, b"y"), 300, limit), PartOutcome::Whole { parts: 3, .. }),
            "the others go on"
        );
        assert_eq!(assembly.report(), None);
    }

    /// As a writer of this library marks the first part.
    fn marked(id: u32, data: &[u8]) -> (PartHeader, Vec<u8>) {
        (PartHeader { pid: 1, tid: 70_001, id, len: data.len() as u32 }, data.to_vec())
    }

    const FIRST: u32 = 1 << 31;

    #[test]
    fn message_without_its_first_part_is_reported_once() {
        let mut assembly = Assembly::new();
        let mut push = |part| (push(&mut assembly, part, NO_LIMIT, NO_LIMIT), assembly.report());
        let torn = |parts, bytes| Torn::incomplete(Some(WriterKey { pid: 1, tid: 70_000 }), parts, bytes);
        assert_eq!(push(marked(5, b"tail")), (PartOutcome::Nothing, Some(torn(1, 4))));
        for id in [4, 2, 0] {
            assert_eq!(push(marked(id, b"tail")), (PartOutcome::Nothing, None), "it is known to be lost");
        }
        assert_eq!(push(marked(0, b"of another")), (PartOutcome::Nothing, Some(torn(1, 10))));
        assert_eq!(push(marked(FIRST | 1, b"wh")), (PartOutcome::Nothing, None));
        assert_eq!(push(marked(0, b"ole")), (PartOutcome::Whole { data: b"whole".to_vec(), parts: 2 }, None));
        // A part is missing in the middle; then the last part of one message and the first of the
        // next.
        assert_eq!(push(marked(FIRST | 3, b"one")), (PartOutcome::Nothing, None));
        assert_eq!(push(marked(1, b"two")), (PartOutcome::Nothing, Some(torn(1, 3))));
        assert_eq!(push(marked(2, b"another's")), (PartOutcome::Nothing, Some(torn(1, 9))));
        // A repeated part breaks the message, a first part as well; the message then begins again.
        assert_eq!(push(marked(FIRST | 1, b"wh")), (PartOutcome::Nothing, None));
        assert_eq!(push(marked(FIRST | 1, b"wh")), (PartOutcome::Nothing, Some(torn(1, 2))));
        assert_eq!(push(marked(0, b"ole")), (PartOutcome::Whole { data: b"whole".to_vec(), parts: 2 }, None));
        // A writer that goes on to a message of one part has given up the one before.
        assert_eq!(push(marked(FIRST | 1, b"wh")), (PartOutcome::Nothing, None));
        let only = PartHeader { tid: 70_000, ..marked(0, b"").0 };
        assert_eq!(push((only, vec![])), (PartOutcome::Single, Some(torn(1, 2))));
    }

    #[test]
    fn assembly_charges_a_growing_message_by_its_bytes() {
        let mut assembly = Assembly::new();
        let (part, limit) = (vec![7; 4000], 8_000_000);
        for nth in (1..1999).rev() {
            let id = if nth == 1998 { FIRST | nth } else { nth };
            assert_eq!(push(&mut assembly, marked(id, &part), limit, limit + OVERHEAD), PartOutcome::Nothing);
        }
        assert!(matches!(
            push(&mut assembly, marked(0, &part), limit, limit + OVERHEAD),
            PartOutcome::Whole { parts: 1999, .. }
        ));
    }

    #[test]
    fn end_reports_every_unfinished_message_in_order() {
        let mut assembly = Assembly::new();
        for writer in [3, 1, 2] {
            push(&mut assembly, part(writer, 1, b"x"), NO_LIMIT, NO_LIMIT);
        }
        assembly.end();
        let order: Vec<_> = std::iter::from_fn(|| assembly.report())
            .filter_map(|torn| torn.writer)
            .map(|key| key.pid)
            .collect();
        assert_eq!(order, [3, 1, 2]);
        assert!(assembly.is_empty());
    }
}
