//! Puts parts together into messages, for each writer by itself. Pure.
//!
//! Invariant: a message is given out only if its parts came with ids that descend by one to 0; everything else ends in exactly one
//! [`Torn`] report. Memory for what is unfinished never exceeds `max_message` for one and `max_unfinished` for all.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::frame::Header;
use super::item::{Torn, WriterKey};
use crate::error::ErrorKind;

/// What an unfinished message costs beside its data: its entry in the map, rounded up. It bounds how many there can be.
const OVERHEAD: usize = 256;

/// Messages that were given up and whose last part has not come yet. More than so many only a hostile peer makes.
const MAX_GIVEN_UP: usize = 65_536;

#[derive(Debug)]
pub(super) struct Assembly {
    unfinished: HashMap<WriterKey, Unfinished, RandomState>,
    /// Writers whose message was given up, with the id that comes next and when the latest part came: the rest is passed over.
    given_up: HashMap<WriterKey, (u32, u64), RandomState>,
    /// Counts parts.
    clock: u64,
    /// Allocated bytes and overhead of all that is unfinished.
    held: usize,
    /// Reports that had no call to return them yet.
    reports: VecDeque<Torn>,
}

#[derive(Debug)]
struct Unfinished {
    next_id: u32,
    parts: u32,
    data: Vec<u8>,
    /// When its latest part came.
    stamp: u64,
}

/// What a part led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The message is not finished.
    Nothing,
    /// The part is the whole message.
    Single,
    /// The part completes a message.
    Whole { data: Vec<u8>, parts: u32 },
}

impl Assembly {
    pub(super) fn new() -> Assembly {
        Assembly {
            unfinished: HashMap::default(),
            given_up: HashMap::default(),
            clock: 0,
            held: 0,
            reports: VecDeque::new(),
        }
    }

    /// Whether it remembers anything of any message.
    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_empty() && self.reports.is_empty()
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// The next report of a message that is lost.
    pub(super) fn report(&mut self) -> Option<Torn> {
        self.reports.pop_front()
    }

    /// Takes the next part in the order of the pipe.
    pub(super) fn push(
        &mut self,
        header: Header,
        part: &[u8],
        max_message: usize,
        max_unfinished: usize,
    ) -> Step {
        if self.passes_over(header) {
            return Step::Nothing;
        }
        self.clock += 1;
        let mut message = match self.unfinished.entry(header.writer) {
            Entry::Occupied(entry) if entry.get().next_id == header.id => entry,
            Entry::Occupied(entry) => {
                // The sequence is broken: the writer gave its message up, or died and its number was taken by another.
                self.held -= entry.get().cost();
                self.reports.push_back(entry.remove().torn(header.writer, ErrorKind::Torn));
                return self.begin(header, part, max_message, max_unfinished);
            }
            Entry::Vacant(_) => return self.begin(header, part, max_message, max_unfinished),
        };
        self.held -= message.get().cost();
        if message.get().data.len() + part.len() > max_message {
            let message = message.remove();
            self.give_up(header, message, part.len());
            return Step::Nothing;
        }
        message.get_mut().add(header, part, self.clock, max_message);
        if header.id == 0 {
            let Unfinished { data, parts, .. } = message.remove();
            return Step::Whole { data, parts };
        }
        self.held += message.get().cost();
        self.keep_within(max_unfinished);
        Step::Nothing
    }

    /// Reports the message of a part of which only `len` bytes of data came, and passes over the rest of it.
    pub(super) fn cut_off(&mut self, header: Header, len: usize) {
        if self.passes_over(header) {
            return;
        }
        let nothing = Torn { writer: Some(header.writer), parts: 0, bytes: 0, kind: ErrorKind::Torn };
        let mut torn = nothing;
        if let Some(next_id) = self.unfinished.get(&header.writer).map(|message| message.next_id) {
            torn = self.remove(header.writer).torn(header.writer, ErrorKind::Torn);
            if next_id != header.id {
                self.reports.push_back(std::mem::replace(&mut torn, nothing));
            }
        }
        self.reports.push_back(Torn { parts: torn.parts.saturating_add(1), bytes: torn.bytes + len, ..torn });
        if let Some(next_id) = header.id.checked_sub(1) {
            self.pass_over_from(header.writer, next_id);
        }
    }

    /// Reports all that is unfinished: the pipe has ended, or no writer is left.
    pub(super) fn end(&mut self) {
        for writer in self.oldest_first() {
            let torn = self.remove(writer).torn(writer, ErrorKind::Torn);
            self.reports.push_back(torn);
        }
        self.given_up.clear();
    }

    fn begin(&mut self, header: Header, part: &[u8], max_message: usize, max_unfinished: usize) -> Step {
        let mut message = Unfinished { next_id: header.id, parts: 0, data: Vec::new(), stamp: 0 };
        if part.len() > max_message {
            self.give_up(header, message, part.len());
            return Step::Nothing;
        }
        if header.id == 0 {
            return Step::Single;
        }
        // Parts are mostly alike in size. What the first one says of their number is not believed beyond this.
        const BELIEVED: usize = 64 << 10;
        let expected = (header.id as usize + 1).saturating_mul(part.len());
        message.data.reserve_exact(expected.min(BELIEVED).min(max_message));
        message.add(header, part, self.clock, max_message);
        self.held += message.cost();
        self.unfinished.insert(header.writer, message);
        self.keep_within(max_unfinished);
        Step::Nothing
    }

    /// Once the limit is passed, gives up the messages that waited longest for a part, for theirs is the likeliest dead writer; an eighth
    /// of the memory at once, so that finding them is paid for by the parts that used it up.
    fn keep_within(&mut self, max_unfinished: usize) {
        if self.held <= max_unfinished {
            return;
        }
        for writer in self.oldest_first() {
            if self.held <= max_unfinished - max_unfinished / 8 {
                break;
            }
            let message = self.remove(writer);
            self.pass_over_from(writer, message.next_id);
            self.reports.push_back(message.torn(writer, ErrorKind::TooLong));
        }
    }

    fn oldest_first(&self) -> Vec<WriterKey> {
        let mut by_age: Vec<(u64, WriterKey)> =
            self.unfinished.iter().map(|(writer, message)| (message.stamp, *writer)).collect();
        by_age.sort_unstable();
        by_age.into_iter().map(|(_, writer)| writer).collect()
    }

    fn remove(&mut self, writer: WriterKey) -> Unfinished {
        let message = self.unfinished.remove(&writer).expect("the caller has seen it");
        self.held -= message.cost();
        message
    }

    /// Reports a message that goes over its limit with a part of `len` bytes, and passes over the rest of it.
    fn give_up(&mut self, header: Header, message: Unfinished, len: usize) {
        let torn = message.torn(header.writer, ErrorKind::TooLong);
        self.reports.push_back(Torn { parts: torn.parts.saturating_add(1), bytes: torn.bytes + len, ..torn });
        if let Some(next_id) = header.id.checked_sub(1) {
            self.pass_over_from(header.writer, next_id);
        }
    }

    fn pass_over_from(&mut self, writer: WriterKey, next_id: u32) {
        if self.given_up.len() >= MAX_GIVEN_UP {
            // Forgets the half that waited longest: the likeliest dead writers.
            let mut stamps: Vec<u64> = self.given_up.values().map(|(_, stamp)| *stamp).collect();
            let (_, &mut median, _) = stamps.select_nth_unstable(MAX_GIVEN_UP / 2);
            self.given_up.retain(|_, (_, stamp)| *stamp > median);
        }
        self.given_up.insert(writer, (next_id, self.clock));
    }

    /// Whether the part belongs to a message that was given up.
    fn passes_over(&mut self, header: Header) -> bool {
        if self.given_up.is_empty() {
            return false;
        }
        let Entry::Occupied(mut entry) = self.given_up.entry(header.writer) else { return false };
        if entry.get().0 != header.id {
            // It begins another message.
            entry.remove();
            return false;
        }
        match header.id.checked_sub(1) {
            Some(next_id) => *entry.get_mut() = (next_id, self.clock),
            None => drop(entry.remove()),
        }
        true
    }

    /// What the fuzzer checks after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self, max_message: usize, max_unfinished: usize) {
        let held: usize = self.unfinished.values().map(Unfinished::cost).sum();
        assert_eq!(held, self.held, "the sum is kept");
        assert!(held <= max_unfinished, "all keep the limit");
        assert!(
            self.unfinished.values().all(|message| message.data.capacity() <= max_message.max(1 << 16)),
            "each keeps the limit"
        );
        assert!(self.given_up.len() <= MAX_GIVEN_UP);
    }
}

impl Unfinished {
    fn cost(&self) -> usize {
        OVERHEAD + self.data.capacity()
    }

    fn add(&mut self, header: Header, part: &[u8], stamp: u64, max_message: usize) {
        let (len, room) = (self.data.len(), self.data.capacity() - self.data.len());
        if room < part.len() {
            // Doubles as a vector does, but not beyond what the message may ever need.
            self.data.reserve_exact((2 * self.data.capacity()).min(max_message).max(len + part.len()) - len);
        }
        self.data.extend_from_slice(part);
        self.parts = self.parts.saturating_add(1);
        self.stamp = stamp;
        self.next_id = header.id.saturating_sub(1);
    }

    fn torn(&self, writer: WriterKey, kind: ErrorKind) -> Torn {
        Torn { writer: Some(writer), parts: self.parts, bytes: self.data.len(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    fn part(writer: i32, id: u32, data: &[u8]) -> (Header, Vec<u8>) {
        (Header { writer: WriterKey { pid: writer, tid: 1 }, id, len: data.len() as u32 }, data.to_vec())
    }

    fn push(
        assembly: &mut Assembly,
        (header, data): (Header, Vec<u8>),
        max_message: usize,
        max_unfinished: usize,
    ) -> Step {
        let step = assembly.push(header, &data, max_message, max_unfinished);
        assembly.check(max_message, max_unfinished);
        step
    }

    #[test]
    fn writers_do_not_mix() {
        let mut assembly = Assembly::new();
        assert_eq!(push(&mut assembly, part(1, 1, b"a"), NO_LIMIT, NO_LIMIT), Step::Nothing);
        assert_eq!(push(&mut assembly, part(2, 1, b"x"), NO_LIMIT, NO_LIMIT), Step::Nothing);
        assert_eq!(push(&mut assembly, part(3, 0, b"."), NO_LIMIT, NO_LIMIT), Step::Single);
        assert_eq!(
            push(&mut assembly, part(1, 0, b"b"), NO_LIMIT, NO_LIMIT),
            Step::Whole { data: b"ab".to_vec(), parts: 2 }
        );
        assert_eq!(
            push(&mut assembly, part(2, 0, b"y"), NO_LIMIT, NO_LIMIT),
            Step::Whole { data: b"xy".to_vec(), parts: 2 }
        );
        assert!(assembly.is_empty());
    }

    #[test]
    fn a_broken_sequence_is_reported_and_never_spliced() {
        let mut assembly = Assembly::new();
        push(&mut assembly, part(1, 5, b"dead"), NO_LIMIT, NO_LIMIT);
        assert_eq!(push(&mut assembly, part(1, 1, b"new"), NO_LIMIT, NO_LIMIT), Step::Nothing);
        let torn = assembly.report().expect("a report");
        assert_eq!((torn.parts, torn.bytes, torn.kind), (1, 4, ErrorKind::Torn));
        assert_eq!(
            push(&mut assembly, part(1, 0, b"er"), NO_LIMIT, NO_LIMIT),
            Step::Whole { data: b"newer".to_vec(), parts: 2 }
        );
    }

    #[test]
    fn a_message_over_its_limit_is_reported_once_and_the_next_one_arrives() {
        let mut assembly = Assembly::new();
        for id in (0..6).rev() {
            assert_eq!(push(&mut assembly, part(1, id, b"1234"), 10, NO_LIMIT), Step::Nothing);
        }
        let torn = assembly.report().expect("a report");
        assert_eq!((torn.parts, torn.bytes, torn.kind), (3, 12, ErrorKind::TooLong));
        assert_eq!(assembly.report(), None);
        assert_eq!(push(&mut assembly, part(1, 0, b"next"), 10, NO_LIMIT), Step::Single);
    }

    #[test]
    fn over_the_limit_for_all_the_oldest_go() {
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
                Step::Nothing,
                "its rest is passed over"
            );
            assert_eq!(push(&mut assembly, part(writer, 0, b"late"), 300, limit), Step::Nothing);
            assert_eq!(push(&mut assembly, part(writer, 0, b"new"), 300, limit), Step::Single);
        }
        assert_eq!(push(&mut assembly, part(4, 1, b"x"), 300, limit), Step::Nothing);
        assert!(
            matches!(push(&mut assembly, part(4, 0, b"y"), 300, limit), Step::Whole { parts: 3, .. }),
            "the others go on"
        );
        assert_eq!(assembly.report(), None);
    }

    #[test]
    fn the_end_reports_everybody_in_order() {
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
