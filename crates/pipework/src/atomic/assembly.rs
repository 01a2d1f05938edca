//! Puts parts together into messages, for each writer by itself. Pure.
//!
//! Invariant: a message is given out only if its parts came with ids that descend by one to 0; everything else ends in exactly one
//! [`Torn`] report. Memory for what is unfinished never exceeds `max_message` for one and `max_unfinished` for all.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use super::frame::Header;
use super::item::{Torn, WriterKey};
use crate::error::ErrorKind;

/// What an unfinished message costs beside its data: its entries in the two maps, rounded up. It bounds how many there can be.
const OVERHEAD: usize = 256;

/// Messages that were given up and whose last part has not come yet. More than so many only a hostile peer makes.
const MAX_GIVEN_UP: usize = 65_536;

#[derive(Debug)]
pub(super) struct Assembly {
    unfinished: HashMap<WriterKey, Unfinished>,
    /// The unfinished messages by the time of their latest part, oldest first.
    order: BTreeMap<u64, WriterKey>,
    /// Writers whose message was given up, with the id that comes next: its remaining parts are passed over.
    given_up: HashMap<WriterKey, u32>,
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
            unfinished: HashMap::new(),
            order: BTreeMap::new(),
            given_up: HashMap::new(),
            clock: 0,
            held: 0,
            reports: VecDeque::new(),
        }
    }

    /// Whether it remembers anything of any message.
    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.is_empty() && self.reports.is_empty()
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
        match self.unfinished.entry(header.writer) {
            Entry::Occupied(entry) if entry.get().next_id == header.id => {
                if entry.get().data.len() + part.len() > max_message {
                    self.give_up(header, part.len(), ErrorKind::TooLong);
                    return Step::Nothing;
                }
            }
            // The sequence is broken: the writer gave its message up, or died and its number was taken by another.
            Entry::Occupied(_) => {
                let torn = self.remove(header.writer, ErrorKind::Torn);
                self.reports.push_back(torn);
                return self.begin(header, part, max_message, max_unfinished);
            }
            Entry::Vacant(_) => return self.begin(header, part, max_message, max_unfinished),
        }
        self.go_on(header, part, max_message, max_unfinished)
    }

    /// Reports all that is unfinished: the pipe has ended, or no writer is left.
    pub(super) fn end(&mut self) {
        let writers: Vec<WriterKey> = self.order.values().copied().collect();
        for writer in writers {
            let torn = self.remove(writer, ErrorKind::Torn);
            self.reports.push_back(torn);
        }
        self.given_up.clear();
    }

    fn begin(&mut self, header: Header, part: &[u8], max_message: usize, max_unfinished: usize) -> Step {
        if part.len() > max_message {
            self.give_up(header, part.len(), ErrorKind::TooLong);
            return Step::Nothing;
        }
        if header.id == 0 {
            return Step::Single;
        }
        let stamp = self.tick();
        self.order.insert(stamp, header.writer);
        self.unfinished
            .insert(header.writer, Unfinished { next_id: header.id, parts: 0, data: Vec::new(), stamp });
        self.held += OVERHEAD;
        self.go_on(header, part, max_message, max_unfinished)
    }

    /// Adds a part that has its place.
    fn go_on(&mut self, header: Header, part: &[u8], max_message: usize, max_unfinished: usize) -> Step {
        let stamp = self.tick();
        let Some(message) = self.unfinished.get_mut(&header.writer) else { return Step::Nothing };
        let before = message.data.capacity();
        if before - message.data.len() < part.len() {
            // Doubles as a vector does, but not beyond what the message may ever need.
            let len = message.data.len();
            message.data.reserve_exact((2 * before).min(max_message).max(len + part.len()) - len);
        }
        message.data.extend_from_slice(part);
        message.parts += 1;
        self.held += message.data.capacity() - before;
        self.order.remove(&message.stamp);
        if header.id == 0 {
            let message = self.unfinished.remove(&header.writer).expect("it was there");
            self.held -= OVERHEAD + message.data.capacity();
            return Step::Whole { data: message.data, parts: message.parts };
        }
        message.next_id = header.id - 1;
        message.stamp = stamp;
        self.order.insert(stamp, header.writer);
        self.keep_within(max_unfinished);
        Step::Nothing
    }

    /// Gives up the messages that waited longest for a part, until the rest keeps the limit: theirs is the likeliest dead writer.
    fn keep_within(&mut self, max_unfinished: usize) {
        while self.held > max_unfinished
            && let Some((_, &writer)) = self.order.first_key_value()
        {
            let next_id = self.unfinished[&writer].next_id;
            let torn = self.remove(writer, ErrorKind::TooLong);
            self.reports.push_back(torn);
            self.pass_over_from(writer, next_id);
        }
    }

    /// Reports a message that goes over its limit with the part of `header`, and passes over the rest of it.
    fn give_up(&mut self, header: Header, part_len: usize, kind: ErrorKind) {
        let mut torn = match self.unfinished.contains_key(&header.writer) {
            true => self.remove(header.writer, kind),
            false => Torn { writer: Some(header.writer), parts: 0, bytes: 0, kind },
        };
        torn.parts += 1;
        torn.bytes += part_len;
        self.reports.push_back(torn);
        if let Some(next_id) = header.id.checked_sub(1) {
            self.pass_over_from(header.writer, next_id);
        }
    }

    fn pass_over_from(&mut self, writer: WriterKey, next_id: u32) {
        if self.given_up.len() >= MAX_GIVEN_UP {
            self.given_up.clear();
        }
        self.given_up.insert(writer, next_id);
    }

    /// Whether the part belongs to a message that was given up.
    fn passes_over(&mut self, header: Header) -> bool {
        if self.given_up.is_empty() {
            return false;
        }
        let Entry::Occupied(mut entry) = self.given_up.entry(header.writer) else { return false };
        if *entry.get() != header.id {
            // It begins another message.
            entry.remove();
            return false;
        }
        match header.id.checked_sub(1) {
            Some(next_id) => *entry.get_mut() = next_id,
            None => drop(entry.remove()),
        }
        true
    }

    fn remove(&mut self, writer: WriterKey, kind: ErrorKind) -> Torn {
        let message = self.unfinished.remove(&writer).expect("the caller has seen it");
        self.order.remove(&message.stamp);
        self.held -= OVERHEAD + message.data.capacity();
        Torn { writer: Some(writer), parts: message.parts, bytes: message.data.len(), kind }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// What the fuzzer checks after every step.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self, max_message: usize, max_unfinished: usize) {
        assert_eq!(self.order.len(), self.unfinished.len());
        let held: usize = self.unfinished.values().map(|message| OVERHEAD + message.data.capacity()).sum();
        assert_eq!(held, self.held, "the sum is kept");
        assert!(held <= max_unfinished, "all keep the limit");
        assert!(
            self.unfinished.values().all(|message| message.data.capacity() <= max_message.max(1 << 16)),
            "each keeps the limit"
        );
        assert!(self.given_up.len() <= MAX_GIVEN_UP);
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
    fn over_the_limit_for_all_the_oldest_goes() {
        let mut assembly = Assembly::new();
        let limit = 2 * (OVERHEAD + 100);
        for writer in 1..=3 {
            push(&mut assembly, part(writer, 2, &[0; 100]), NO_LIMIT, limit);
        }
        let torn = assembly.report().expect("a report");
        assert_eq!((torn.writer.map(|writer| writer.pid), torn.kind), (Some(1), ErrorKind::TooLong));
        assert_eq!(
            push(&mut assembly, part(1, 1, b"late"), NO_LIMIT, limit),
            Step::Nothing,
            "its rest is passed over"
        );
        assert_eq!(push(&mut assembly, part(1, 0, b"late"), NO_LIMIT, limit), Step::Nothing);
        assert_eq!(push(&mut assembly, part(1, 0, b"new"), NO_LIMIT, limit), Step::Single);
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
