//! Compares the output of a storm with the deeds of its writers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

use pipework::atomic::{Item, Message, Reader, WriterKey};
use pipework::{Deadline, Error, ErrorKind};
use rustix::event::PollFlags;

use super::{Deed, Progress, Run, SURVIVORS, Take, Tally};
use crate::harness::{PATIENCE, is_ready};

/// The items that have arrived so far.
pub(super) struct Check<'a> {
    run: &'a Run,
    page: &'a [AtomicU64],
    keys: HashMap<WriterKey, usize>,
    /// Deeds that have arrived from each writer.
    come: Vec<u64>,
    torn: Vec<bool>,
    /// Writer, parts, bytes.
    pub(super) reports: BTreeSet<(WriterKey, u32, usize)>,
    tally: Tally,
}

impl Check<'_> {
    pub(super) fn new<'a>(run: &'a Run, page: &'a [AtomicU64]) -> Check<'a> {
        let writers = SURVIVORS + run.kills;
        Check {
            run,
            page,
            keys: HashMap::new(),
            come: vec![0; writers],
            torn: vec![false; writers],
            reports: BTreeSet::new(),
            tally: Tally { kills: run.kills, ..Tally::default() },
        }
    }

    pub(super) fn read(&mut self, reader: &mut Reader) {
        let mut items = 0;
        while let Some(item) = self.run.take.next(reader) {
            self.item(item);
            items += 1;
            if self.run.slow && items % 64 == 0 {
                sleep(Duration::from_millis(1));
            }
        }
        assert!(reader.is_eof());
        assert!(self.run.take.next(reader).is_none(), "the end is final");
    }

    fn item(&mut self, item: Item<'_>) {
        let seed = self.run.seed;
        let (number, deed) = match item {
            Item::Message(message) => {
                self.tally.messages += 1;
                self.tally.bytes += message.len();
                (self.sender(&message), Deed::Message(message.into_vec()))
            }
            Item::Burst(burst) => {
                self.tally.bursts += 1;
                (number_in(&burst), Deed::Burst(burst.data.into_owned()))
            }
            Item::Line(line) => {
                self.tally.lines += 1;
                (number_in(&line), Deed::Line(line.data.into_owned()))
            }
            Item::Torn(torn) => {
                self.tally.torn += 1;
                let writer = torn.writer.expect("only messages can be torn here");
                let number = *self.keys.get(&writer).expect("a writer's first message is never torn");
                assert_eq!(torn.kind, ErrorKind::Torn, "{torn}");
                assert!(number >= SURVIVORS, "run {seed}: survivor {number}: {torn}");
                assert!(!self.torn[number], "run {seed}: a second remainder of writer {number}: {torn}");
                self.torn[number] = true;
                self.reports.insert((writer, torn.parts, torn.bytes));
                return;
            }
        };
        let n = self.come[number];
        assert!(!self.torn[number], "run {seed}: writer {number} goes on after its remainder was reported");
        // Not assert_eq, which would print a megabyte.
        assert!(
            deed == self.run.deed(number, n),
            "run {seed}: not deed {n} of writer {number}: {deed:.200?}"
        );
        self.come[number] += 1;
    }

    fn sender(&mut self, message: &Message<'_>) -> usize {
        if let Some(number) = self.keys.get(&message.writer) {
            return *number;
        }
        let number = number_in(message);
        assert_eq!(self.come[number], 0, "writer {number} has changed its key");
        self.keys.insert(message.writer, number);
        number
    }

    /// After the end: every deed that was certainly delivered has arrived, and no deed that was
    /// never begun.
    pub(super) fn settle(self) -> Tally {
        for (number, come) in self.come.iter().copied().enumerate() {
            let progress = Progress::of(self.page, number);
            let (begun, done) = (progress.begun.load(SeqCst), progress.done.load(SeqCst));
            let who = format!("run {}, writer {number}: begun {begun}, done {done}", self.run.seed);
            assert!(done <= come && come <= begun, "{who}, come {come}");
            assert!(number >= SURVIVORS || done == begun, "{who}: a survivor finishes its work");
            assert!(
                !self.torn[number] || come < begun,
                "{who}: all deeds arrived, but one was reported torn"
            );
        }
        self.tally
    }
}

impl Take {
    /// The next item; `None` at the end of the pipe.
    fn next(self, reader: &mut Reader) -> Option<Item<'static>> {
        let poll = self == Take::Poll && !reader.is_eof();
        if self == Take::Recv {
            return match reader.recv(PATIENCE).map(Message::into_owned) {
                Ok(message) => Some(Item::Message(message)),
                Err(error) if error.kind() == ErrorKind::Torn => Some(Item::Torn(reader.torn().unwrap())),
                Err(error) => end(error),
            };
        }
        loop {
            let item = match self {
                Take::Wait => reader.next_item(Deadline::NEVER).map(Some),
                Take::Deadline => reader.next_item(PATIENCE).map(Some),
                _ => reader.try_next_item(),
            };
            match item {
                Ok(Some(item)) => return Some(item.into_owned()),
                Ok(None) => assert!(poll && is_ready(&*reader, PollFlags::IN, PATIENCE), "stuck"),
                Err(error) => return end(error),
            }
        }
    }
}

fn end(error: Error) -> Option<Item<'static>> {
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    None
}

/// The writer's number in `writer 7`, `burst 7 ...` or `line 7 ...`.
fn number_in(text: &[u8]) -> usize {
    let word = text.split(|byte| *byte == b' ').nth(1).and_then(|word| std::str::from_utf8(word).ok());
    let number = word.and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no writer sent this: {text:.200?}"))
}

// ---------------------------------------------------------------- the record

/// The messages that end with their writer: key, parts, bytes. Plain mode, in the simplest form.
pub(super) fn unfinished(mut bytes: &[u8]) -> BTreeSet<(WriterKey, u32, usize)> {
    let mut begun: BTreeMap<WriterKey, (u32, usize)> = BTreeMap::new();
    while !bytes.is_empty() {
        let word = |n: usize| i32::from_ne_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap());
        // Beside the writer, the numbers contain the check, whether there are several parts, and
        // whether they are compressed.
        let writer = WriterKey { pid: word(0) & 0x3F_FFFF, tid: word(1) & !(1 | 1 << 30) };
        let (id, len) = (word(2), word(3) as usize);
        let (parts, sum) = begun.remove(&writer).unwrap_or_default();
        if id != 0 {
            begun.insert(writer, (parts + 1, sum + len));
        }
        bytes = &bytes[16 + len..];
    }
    begun.into_iter().map(|(writer, (parts, sum))| (writer, parts, sum)).collect()
}
