//! Properties that must hold for any bytes in a segment. The fuzz target and the tests share them.
//!
//! The input says how a segment is made, or is a segment itself. The rest of it is a script, in which two
//! publishers, subscribers of both policies and an observer take turns with a vandal, which writes
//! arbitrary values into their segment. The result may be errors and lost service, and nothing else.

// The fuzz target reaches it, under cfg(fuzzing); the tests need no more than the crate.
#![allow(unreachable_pub)]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::layout::Layout;
use super::*;
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::segment::header::{self, CHECKSUM_AT, FIXED, Header};
use crate::sys::memory;

/// No bytes in a segment make a process panic, loop, or use more memory than its sizes allow.
pub fn broadcast(data: &[u8]) {
    let mut script = Script(data);
    let opened = match script.byte() % 3 {
        0 => any_file(&mut script),
        _ => Some(well_formed(&mut script)),
    };
    if let Some(segment) = opened {
        Company::new(&segment).play(&mut script);
    }
}

/// The longest file that is made. A larger one behaves the same, only slower.
const MAX_LEN: u64 = 1 << 18;

/// More steps than this show nothing new: the effects of one step show within the next few.
const STEPS: usize = 200;

// ---------------------------------------------------------------- the script

/// The input; zeros follow its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::from(u16::from_le_bytes(self.bytes())) % limit.max(1)
    }
}

// ---------------------------------------------------------------- the segment

fn geometry(script: &mut Script<'_>) -> Geometry {
    let [messages, message_bytes, members, blobs, observers] = script.bytes();
    Geometry {
        messages: 2 << (messages % 4),
        message_bytes: message_bytes.into(),
        members: 1 + u32::from(members % 6),
        blobs: u32::from(blobs % 3),
        observers: observers % 2 == 1,
    }
}

fn well_formed(script: &mut Script<'_>) -> Segment {
    let sizes = geometry(script);
    let Geometry { messages, message_bytes, members, blobs, observers } = sizes;
    let options = Options::new().messages(messages).message_bytes(message_bytes).members(members);
    let segment = options.blobs(blobs).observers(observers).anonymous();
    let segment = segment.expect("the sizes are possible, and memory is left");
    assert_eq!(*segment.geometry(), sizes);
    segment
}

/// A file that the script wrote, if it can be opened.
fn any_file(script: &mut Script<'_>) -> Option<Segment> {
    let how = script.byte();
    let said = |geometry: Geometry| {
        let (sizes, len) = (geometry.to_sizes(), Layout::new(geometry).len as u64);
        Header { kind: 1, sizes, sparse: false, len, identity: (0, 0), random: 0 }
    };
    let mut header = if how & 1 == 0 { script.bytes() } else { header::encode(&said(geometry(script))) };
    for _ in 0..how >> 6 {
        let at = 4 * script.below(FIXED / 4);
        header[at..at + 4].copy_from_slice(&script.bytes::<4>());
    }
    if how & 2 != 0 {
        let checksum = header::fnv1a(&header[..CHECKSUM_AT]);
        header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }
    let said = u64::from_le_bytes(header[40..48].try_into().expect("eight bytes"));
    let len = if how & 4 != 0 { script.below(usize::from(u16::MAX)) as u64 } else { said.min(MAX_LEN) };
    let file = File::from(memory::create_in_memory(c"fuzz").expect("descriptors and memory are left"));
    file.write_all_at(&header, 0).expect("memory is left");
    if how & 8 != 0 {
        // The rest of the header, the members and the ring are the next bytes of the input, which are the
        // script as well.
        file.write_all_at(script.0, FIXED as u64).expect("memory is left");
    }
    file.set_len(len).expect("memory is left");
    if how & 16 == 0 && len >= FIXED as u64 {
        file.write_all_at(&header[CHECKSUM_AT..], len - 8).expect("memory is left");
    }
    match Options::new().from_fd(file.into()) {
        Ok(segment) => {
            let sizes = *segment.geometry();
            let geometry = Geometry::checked(&sizes.to_sizes()).expect("sizes in their ranges");
            assert_eq!((Layout::new(geometry).len as u64, len), (said, said));
            Some(segment)
        }
        Err(error) => {
            let kinds = [ErrorKind::Incompatible, ErrorKind::Corrupt];
            assert!(kinds.contains(&error.kind()) && error.errno().is_none(), "{error}");
            None
        }
    }
}

// ---------------------------------------------------------------- the peers

/// Bytes of the longest message.
const MAX_MESSAGE: usize = 1000;

/// A publisher that soon drops its messages.
fn publisher(segment: &Segment) -> Option<Publisher> {
    segment.publisher_with(&PublisherOptions::new().max_message(MAX_MESSAGE).keep_bytes(2000)).ok()
}

fn subscriber(segment: &Segment, start: Start, must_see_all: bool) -> Option<Subscriber> {
    let begin = SubscriberOptions::new().max_message(MAX_MESSAGE).start(start);
    segment.subscriber_with(&begin.must_see_all(must_see_all)).ok()
}

/// All that use one segment.
struct Company<'a> {
    segment: &'a Segment,
    observed: Option<Segment>,
    vandal: File,
    publishers: [Option<Publisher>; 2],
    /// One that may lag, one that must see all, and an observer.
    subscribers: [Option<Subscriber>; 3],
    held: Vec<Received>,
}

impl Company<'_> {
    fn new(segment: &Segment) -> Company<'_> {
        let vandal = File::from(segment.as_fd().try_clone_to_owned().expect("descriptors are left"));
        let observed = Options::new().read_only(true).dup_fd(segment.as_fd()).ok();
        let publishers = [publisher(segment), publisher(segment)];
        let mut company = Company {
            segment,
            observed,
            vandal,
            publishers,
            subscribers: [const { None }; 3],
            held: Vec::new(),
        };
        (0..3).for_each(|who| company.subscribe(who, Start::Oldest));
        company
    }

    fn play(mut self, script: &mut Script<'_>) {
        for _ in 0..STEPS {
            if script.0.is_empty() {
                break;
            }
            self.step(script);
        }
        self.check();
        drop((self.publishers, self.subscribers, self.held));
        self.segment.recover().ok();
        works_after_zeroing(self.segment, &self.vandal);
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 32 {
            0..=9 => self.vandalise(script),
            10..=15 => self.publish(script),
            16..=23 => self.receive(script),
            24..=26 => {
                let [who, how, number] = script.bytes();
                let all = [Start::Now, Start::Oldest, Start::Latest, Start::After(number.into())];
                self.subscribe(usize::from(who % 3), all[usize::from(how % 4)]);
            }
            27 => {
                let who = usize::from(script.byte() % 2);
                self.publishers[who] = None;
                self.publishers[who] = publisher(self.segment);
            }
            28 => drop(self.segment.recover()),
            29 => self.held.clear(),
            30 => self.watch(script),
            _ => self.check(),
        }
    }

    fn subscribe(&mut self, who: usize, start: Start) {
        self.subscribers[who] = None;
        let segment = if who == 2 { self.observed.as_ref() } else { Some(self.segment) };
        self.subscribers[who] = segment.and_then(|segment| subscriber(segment, start, who == 1));
    }

    /// Writes one word of the segment, behind the bytes that are read only once: all of it, or a part.
    fn vandalise(&self, script: &mut Script<'_>) {
        let layout = Layout::new(*self.segment.geometry());
        let sizes = layout.geometry;
        let [place, how] = script.bytes();
        let cell = script.below(sizes.messages as usize) as u32;
        let at = match place % 8 {
            0..=2 => layout.cell(cell),
            3 => layout.cell(cell) + 8 * script.below(4),
            4 => layout.handles(cell).0 + 8 * script.below(4 * (sizes.blobs as usize + 1)),
            5 => {
                let member = sizes.to_sizes().member(1 + script.below(sizes.members as usize) as u16);
                member.expect("it is one of them") + 8 * script.below(12)
            }
            6 => FIXED + 64 * script.below(5),
            _ => FIXED + 8 * script.below(49),
        } as u64;
        let mut word = [0; 8];
        self.vandal.read_exact_at(&mut word, at).expect("it is inside the segment");
        match how % 8 {
            0 => word = script.bytes(),
            1 => word = [script.byte(); 8],
            // Near to what others expect, and to the last number of all.
            2 => word = (u64::from(script.byte() % 16) + u64::from(how / 8)).wrapping_sub(8).to_le_bytes(),
            3 => word = (i64::from(script.byte() as i8)).to_le_bytes(),
            4 => word[0] = word[0].wrapping_add(script.byte()),
            5 => word[2] = script.byte(),
            _ => word[script.below(8)] = script.byte(),
        }
        self.vandal.write_all_at(&word, at).expect("it is inside the segment");
    }

    fn publish(&mut self, script: &mut Script<'_>) {
        let [who, how, len] = script.bytes();
        let Some(publisher) = &self.publishers[usize::from(who % 2)] else { return };
        let message = vec![who; usize::from(len) * usize::from(1 + how / 8 % 4)];
        let blobs = self.held.last().map_or(&[][..], Received::blobs);
        match how % 8 {
            0..=2 => publisher.try_publish(&message).map(drop).ok(),
            3 => publisher.publish(Message::new(&message).attach(blobs), Deadline::now()).map(drop).ok(),
            4 => {
                let Ok(mut draft) = self.segment.blob(1 + message.len()) else { return };
                draft.fill(len);
                let blob = draft.freeze().expect("no other process acts meanwhile");
                publisher.try_publish(Message::new("").attach(&[blob.clone(), blob])).map(drop).ok()
            }
            5 => publisher.publish_many([&message, &message[..], b"three"], Deadline::now()).map(drop).ok(),
            _ => publisher.publish(Message::new("short").flags(len.into()), Deadline::now()).map(drop).ok(),
        };
    }

    fn receive(&mut self, script: &mut Script<'_>) {
        let [who, how] = script.bytes();
        let Some(subscriber) = &mut self.subscribers[usize::from(who % 3)] else { return };
        let received = match how % 8 {
            0..=3 => subscriber.try_recv().ok().flatten(),
            4 => subscriber.recv(Deadline::now()).ok(),
            5 => subscriber.recv_latest(Deadline::now()).ok(),
            _ => subscriber.try_recv_latest().ok().flatten(),
        };
        subscriber.lag();
        if let Some(received) = received {
            let most = MAX_MESSAGE.max(self.segment.geometry().message_bytes as usize);
            assert!(received.len() <= most && received.blobs().len() <= MAX_BLOBS as usize);
            assert!(received.number() > 0 || received.flags() > 0 || received.is_empty());
            self.held.push(received);
        }
    }

    /// Starts the threads of an event loop's ends, which look at the segment as well.
    fn watch(&mut self, script: &mut Script<'_>) {
        let who = usize::from(script.byte() % 3);
        if let Some(subscriber) = &self.subscribers[who] {
            subscriber.doorbell().ok();
        }
        if let Some(publisher) = &self.publishers[who % 2] {
            publisher.doorbell().ok();
        }
    }

    /// The numbers that the segment reports stay within its sizes.
    fn check(&self) {
        let sizes = self.segment.geometry();
        for segment in [Some(self.segment), self.observed.as_ref()].into_iter().flatten() {
            let audit = segment.audit().expect("the kernel reports the locks");
            let Audit { empty, writing, done, skipped, dropped, orphaned } = audit;
            assert_eq!(empty + writing + done + skipped + dropped, sizes.messages as usize);
            assert!(orphaned <= writing + sizes.members as usize);
            assert!(segment.members().is_ok_and(|members| members.len() <= sizes.members as usize));
            segment.stats();
            segment.newest();
        }
    }
}

/// Writes zeros between the first bytes and the last, after which any segment is as good as new.
fn works_after_zeroing(segment: &Segment, vandal: &File) {
    let layout = Layout::new(*segment.geometry());
    let zeros = vec![0; layout.len - 8 - FIXED];
    vandal.write_all_at(&zeros, FIXED as u64).expect("it is inside the segment");
    if layout.geometry.members < 3 {
        return;
    }
    let publisher = segment.publisher().expect("no other member is attached");
    let mut subscribers = [false, true].map(|must_see_all| {
        subscriber(segment, Start::Now, must_see_all).expect("there is a place for each")
    });
    let text = &[1; 8][..8.min(layout.geometry.message_bytes as usize)];
    for number in 1..=2 * u64::from(layout.geometry.messages) {
        assert_eq!(publisher.try_publish(text), Ok(Some(number)));
        for subscriber in &mut subscribers {
            let received = subscriber.try_recv().expect("nothing is damaged").expect("it was published");
            assert_eq!((received.number(), &*received), (number, text));
        }
    }
    drop((publisher, subscribers));
    let done = layout.geometry.messages as usize;
    assert_eq!(segment.audit(), Ok(Audit { done, ..Audit::default() }));
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn any_bytes_in_a_broadcast_cause_only_errors_and_lost_service(
            how in 0u8..=255,
            data in prop::collection::vec(any::<u8>(), 0..1500),
        ) {
            broadcast(&[&[how], &data[..]].concat());
        }

        #[test]
        fn ends_behave_as_a_list_of_all_messages_would(
            cells in 1u32..4,
            steps in prop::collection::vec(step(), 0..80),
        ) {
            follow(1 << cells, &steps);
        }
    }

    // ---------------------------------------------------------------- an oracle

    /// What is done, by publishers 0 and 1 and subscribers 0 to 3.
    #[derive(Clone, Debug)]
    enum Step {
        Publish(usize, usize),
        Subscribe(usize, Begin, bool),
        Leave(usize),
        Receive(usize),
        Latest(usize),
    }

    #[derive(Clone, Copy, Debug)]
    enum Begin {
        Now,
        Oldest,
        Latest,
        /// So many before the newest.
        Before(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let begin = prop_oneof![
            Just(Begin::Now),
            Just(Begin::Oldest),
            Just(Begin::Latest),
            (0u64..12).prop_map(Begin::Before),
        ];
        prop_oneof![
            6 => (0usize..2, prop_oneof![Just(8), Just(1500), Just(3000)]).prop_map(|(who, len)| Step::Publish(who, len)),
            2 => (0usize..4, begin, any::<bool>()).prop_map(|(who, begin, all)| Step::Subscribe(who, begin, all)),
            1 => (0usize..4).prop_map(Step::Leave),
            6 => (0usize..4).prop_map(Step::Receive),
            1 => (0usize..4).prop_map(Step::Latest),
        ]
    }

    const KEEP: u64 = 5000;

    /// Every message that was published, as its length; dropped ones are `None`.
    #[derive(Default)]
    struct All {
        cells: u64,
        messages: Vec<Option<usize>>,
        /// Of each publisher, the positions and lengths of those in blobs.
        kept: [VecDeque<(u64, u64)>; 2],
    }

    /// A subscriber of the oracle.
    #[derive(Clone, Copy)]
    struct Reader {
        next: u64,
        missed: u64,
        /// The message that it has ready.
        ready: Option<Got>,
        must_see_all: bool,
    }

    /// What a subscriber gets: the number and length of a message, or how many it has missed.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Got {
        Message(u64, usize),
        Missed(u64),
        Nothing,
    }

    impl All {
        fn tail(&self) -> u64 {
            self.messages.len() as u64
        }

        fn oldest(&self) -> u64 {
            self.tail().saturating_sub(self.cells)
        }

        fn at(&self, position: u64) -> Option<usize> {
            self.messages[position as usize].filter(|_| position >= self.oldest())
        }

        fn newest(&self, from: u64) -> Option<u64> {
            (from.max(self.oldest())..self.tail()).rev().find(|position| self.at(*position).is_some())
        }

        fn publish(&mut self, who: usize, len: usize, readers: &[Option<Reader>]) -> Option<u64> {
            let needed = readers.iter().flatten().filter(|reader| reader.must_see_all);
            let needed = needed.map(|reader| reader.next).min().unwrap_or(u64::MAX);
            let is_long = len > 40;
            if is_long && !self.drop_oldest(who, len as u64, needed) {
                return None;
            }
            if self.tail() >= self.cells && needed <= self.tail() - self.cells {
                return None;
            }
            self.messages.push(Some(len));
            if is_long {
                let position = self.tail() - 1;
                while self.kept[who].pop_front_if(|(before, _)| *before + self.cells <= position).is_some() {}
                self.kept[who].push_back((position, len as u64));
                self.drop_oldest(who, 0, needed);
            }
            Some(self.tail())
        }

        /// All but the newest, until so many bytes more have space. False if one is needed.
        fn drop_oldest(&mut self, who: usize, more: u64, needed: u64) -> bool {
            while self.kept[who].len() > 1
                && self.kept[who].iter().map(|(_, len)| len).sum::<u64>() + more > KEEP
                && let Some((position, _)) = self.kept[who].front().copied()
            {
                if self.at(position).is_some() {
                    if needed <= position {
                        return false;
                    }
                    self.messages[position as usize] = None;
                }
                self.kept[who].pop_front();
            }
            true
        }

        fn subscribe(&self, begin: Begin, must_see_all: bool) -> Reader {
            let first_there = || (self.oldest()..self.tail()).find(|position| self.at(*position).is_some());
            let next = match begin {
                Begin::Now => self.tail(),
                Begin::Oldest => first_there().unwrap_or(self.tail()),
                Begin::Latest => self.newest(0).unwrap_or(self.tail()),
                Begin::Before(count) => self.tail().saturating_sub(count),
            };
            let mut reader = Reader { next, missed: 0, ready: None, must_see_all };
            let safe = (self.tail() + 1).saturating_sub(self.cells);
            // The oldest message of a full ring may be lost at any time.
            let is_unsafe = must_see_all && next < safe;
            if matches!(begin, Begin::Latest) || is_unsafe {
                let until = if is_unsafe { safe } else { next + 1 };
                while reader.next < until.min(self.tail()) {
                    match self.at(reader.next) {
                        Some(len) => reader.ready = Some(Got::Message(reader.next + 1, len)),
                        None => reader.missed += 1,
                    }
                    reader.next += 1;
                }
            }
            reader
        }

        fn receive(&self, reader: &mut Reader) -> Got {
            while reader.ready.is_none() && reader.next < self.tail() {
                match self.at(reader.next) {
                    Some(len) => reader.ready = Some(Got::Message(reader.next + 1, len)),
                    None => reader.missed += 1,
                }
                reader.next += 1;
            }
            match (std::mem::take(&mut reader.missed), reader.ready) {
                (0, _) => reader.ready.take().unwrap_or(Got::Nothing),
                (missed, _) => Got::Missed(missed),
            }
        }

        fn latest(&self, reader: &mut Reader) -> Got {
            if let Some(newest) = self.newest(reader.next) {
                *reader = Reader { next: newest, missed: 0, ready: None, ..*reader };
            }
            loop {
                match self.receive(reader) {
                    Got::Missed(_) => {}
                    got => return got,
                }
            }
        }
    }

    fn got(received: std::result::Result<Option<Received>, RecvError>) -> Got {
        match received {
            Ok(Some(message)) => {
                assert!(message.iter().all(|byte| *byte == message.number() as u8), "of one message");
                Got::Message(message.number(), message.len())
            }
            Ok(None) => Got::Nothing,
            Err(RecvError::Lagged(missed)) => Got::Missed(missed),
            Err(RecvError::Failed(error)) => panic!("{error}"),
        }
    }

    fn follow(cells: u32, steps: &[Step]) {
        let segment = Options::new().messages(cells).message_bytes(40).members(8).anonymous();
        let segment = segment.expect("memory is left");
        let options = PublisherOptions::new().keep_bytes(KEEP);
        let publishers = [(); 2].map(|()| segment.publisher_with(&options).expect("there is a place"));
        let mut all = All { cells: cells.into(), ..All::default() };
        let mut readers = [None; 4];
        let mut subscribers = [const { None::<Subscriber> }; 4];
        for step in steps {
            match *step {
                Step::Publish(who, len) => {
                    let text = vec![all.tail() as u8 + 1; len];
                    assert_eq!(publishers[who].try_publish(&text), Ok(all.publish(who, len, &readers)));
                }
                Step::Subscribe(who, begin, must_see_all) => {
                    subscribers[who] = None;
                    readers[who] = None;
                    let start = match begin {
                        Begin::Now => Start::Now,
                        Begin::Oldest => Start::Oldest,
                        Begin::Latest => Start::Latest,
                        Begin::Before(count) => Start::After(all.tail().saturating_sub(count)),
                    };
                    let options = SubscriberOptions::new().start(start).must_see_all(must_see_all);
                    subscribers[who] = Some(segment.subscriber_with(&options).expect("there is a place"));
                    readers[who] = Some(all.subscribe(begin, must_see_all));
                }
                Step::Leave(who) => (subscribers[who], readers[who]) = (None, None),
                Step::Receive(who) => {
                    let (Some(reader), Some(subscriber)) = (&mut readers[who], &mut subscribers[who]) else {
                        continue;
                    };
                    assert_eq!(got(subscriber.try_recv()), all.receive(reader), "{step:?}");
                }
                Step::Latest(who) => {
                    let (Some(reader), Some(subscriber)) = (&mut readers[who], &mut subscribers[who]) else {
                        continue;
                    };
                    let received = subscriber.try_recv_latest().map_err(RecvError::from);
                    assert_eq!(got(received), all.latest(reader), "{step:?}");
                }
            }
        }
    }
}
