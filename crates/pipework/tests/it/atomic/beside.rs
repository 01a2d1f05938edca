//! Every public method beside every other one, from two threads: each has a clone of the same
//! reader, or of the same writer. No message may be lost, doubled, torn or mixed, and no call may
//! wait while it has something to do.
//!
//! The tables are compared with the source, so a new method without an entry fails.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use pipework::atomic::{Item, Message, Options, Reader, Writer};
use pipework::{Deadline, ErrorKind, Result};

use crate::harness::{PATIENCE, alone_for};

/// The public methods of the files of a type.
fn public_methods(files: &[&str]) -> HashSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/atomic");
    let texts = files.iter().map(|file| fs::read_to_string(folder.join(file)).unwrap());
    let names = |text: String| -> Vec<String> {
        let methods = text.lines().filter_map(|line| line.strip_prefix("    pub fn "));
        methods.map(|rest| rest.split(['(', '<']).next().unwrap().to_string()).collect()
    };
    texts.flat_map(names).collect()
}

fn assert_complete<'a>(files: &[&str], table: impl Iterator<Item = &'a str>) {
    let table: HashSet<String> = table.map(String::from).collect();
    let methods = public_methods(files);
    assert!(methods.len() > 20, "the source is read: {methods:?}");
    let missing: Vec<_> = methods.symmetric_difference(&table).collect();
    assert!(missing.is_empty(), "in the source or in the table, not in both: {missing:?}");
}

/// Runs `scene`, which must end.
fn in_time(what: &str, scene: impl FnOnce()) {
    let (over, is_over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if is_over.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: a call waits although it has something to do");
                std::process::abort();
            }
        });
        scene();
        drop(over);
    });
}

/// A message that contains its number in every position.
fn message(number: u64) -> Vec<u8> {
    let times = match number % 7 {
        3 => 1200,
        4 => 0,
        short => short as usize,
    };
    number.to_ne_bytes().repeat(1 + times)
}

fn number_of(message: &[u8]) -> u64 {
    assert!(message.chunks(8).all(|chunk| chunk == &message[..8]), "mixed: {}", message.escape_ascii());
    let number = u64::from_ne_bytes(message[..8].try_into().unwrap());
    assert_eq!(message, self::message(number), "cut");
    number
}

// ---------------------------------------------------------------- readers

/// The items that the clones of a reader have received.
#[derive(Default)]
struct Got {
    messages: AtomicU64,
    /// Bytes of text.
    text: AtomicU64,
    /// Bursts that were sent and taken.
    round: AtomicU64,
    is_finished: AtomicBool,
    is_over: AtomicBool,
}

/// A clone at work.
struct Taker<'a> {
    reader: Reader,
    got: &'a Got,
    numbers: Sender<u64>,
    /// Calls so far.
    nth: u64,
}

/// The pipe has ended.
struct Over;

type Step = std::result::Result<(), Over>;

impl Taker<'_> {
    /// A deadline of each kind.
    fn deadline(&self) -> Deadline {
        match self.nth % 3 {
            0 => Deadline::NEVER,
            1 => Deadline::after(Duration::from_millis(1)),
            _ => Deadline::now(),
        }
    }

    fn message(&self, message: Result<Message<'static>>) -> Step {
        self.item(message.map(Item::Message))
    }

    fn item(&self, item: Result<Item<'static>>) -> Step {
        match item {
            Ok(Item::Message(message)) => {
                let round = self.got.round.load(SeqCst);
                self.numbers.send(number_of(&message)).unwrap();
                self.got.messages.fetch_add(1, SeqCst);
                self.leave_the_rest(round);
            }
            Ok(Item::Line(line)) => {
                let round = self.got.round.load(SeqCst);
                self.text(&line.data);
                self.leave_the_rest(round);
            }
            // A message that had begun when another thread finished.
            Ok(Item::Torn(_)) if self.got.is_finished.load(SeqCst) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => match error.kind() {
                ErrorKind::Closed => return Err(Over),
                // `recv` of a mixed stream is invalid.
                ErrorKind::TimedOut | ErrorKind::Invalid => return self.nothing(()),
                ErrorKind::Torn if self.got.is_finished.load(SeqCst) => {}
                _ => panic!("{error}"),
            },
        }
        Ok(())
    }

    /// Each takes one item of a burst. So a call that missed its wake-up is not rescued by one that
    /// comes back for the next item.
    fn leave_the_rest(&self, round: u64) {
        let got = self.got;
        while got.round.load(SeqCst) == round && !got.is_finished.load(SeqCst) {
            thread::yield_now();
        }
    }

    fn text(&self, text: &[u8]) {
        // A frame of which only the beginning was read when another thread finished comes as text.
        let is_text = text.iter().all(|byte| b"text\n".contains(byte));
        assert!(is_text || self.got.is_finished.load(SeqCst), "mixed: {}", text.escape_ascii());
        self.got.text.fetch_add(text.len() as u64, SeqCst);
    }

    /// Checks a call that gives out nothing.
    fn nothing<T>(&self, _: T) -> Step {
        thread::yield_now();
        if self.got.is_over.load(SeqCst) { Err(Over) } else { Ok(()) }
    }
}

/// Whether a call of that name takes an item each time.
fn takes(name: &str, mixed: bool) -> bool {
    match name {
        "recv" | "try_recv" | "messages" => !mixed,
        "next_item" | "try_next_item" | "items" => true,
        _ => false,
    }
}

type ReaderCall = (&'static str, fn(&mut Taker<'_>) -> Step);

const READER_CALLS: [ReaderCall; 35] = [
    ("recv", |taker| {
        let deadline = taker.deadline();
        let message = taker.reader.recv(deadline).map(Message::into_owned);
        taker.message(message)
    }),
    ("try_recv", |taker| match taker.reader.try_recv().map(|message| message.map(Message::into_owned)) {
        Ok(None) => taker.nothing(()),
        Ok(Some(message)) => taker.message(Ok(message)),
        Err(error) => taker.message(Err(error)),
    }),
    ("next_item", |taker| {
        let deadline = taker.deadline();
        let item = taker.reader.next_item(deadline).map(Item::into_owned);
        taker.item(item)
    }),
    ("try_next_item", |taker| match taker.reader.try_next_item().map(|item| item.map(Item::into_owned)) {
        Ok(None) => taker.nothing(()),
        Ok(Some(item)) => taker.item(Ok(item)),
        Err(error) => taker.item(Err(error)),
    }),
    ("messages", |taker| match taker.reader.messages().next() {
        Some(message) => taker.message(message),
        None => Err(Over),
    }),
    ("items", |taker| match taker.reader.items().next() {
        Some(item) => taker.item(item),
        None => Err(Over),
    }),
    ("torn", |taker| taker.nothing(taker.reader.torn())),
    ("peek", |taker| {
        let text = taker.reader.peek();
        let is_text = text.is_none_or(|text| text.iter().all(|byte| b"text".contains(byte)));
        assert!(is_text || taker.got.is_finished.load(SeqCst));
        taker.nothing(())
    }),
    ("take_peeked", |taker| {
        if let Some(text) = taker.reader.take_peeked() {
            taker.text(&text);
        }
        taker.nothing(())
    }),
    ("next_timeout", |taker| taker.nothing(taker.reader.next_timeout())),
    ("read_ahead", |taker| {
        let deadline = taker.deadline();
        match taker.reader.read_ahead(deadline) {
            Ok(_) => taker.nothing(()),
            Err(error) => taker.item(Err(error)),
        }
    }),
    ("wait_eof", |taker| {
        let deadline = taker.deadline();
        match taker.reader.wait_eof(deadline) {
            Ok(true) => Err(Over),
            Ok(false) => taker.nothing(()),
            Err(error) => taker.item(Err(error)),
        }
    }),
    ("is_eof", |taker| taker.nothing(taker.reader.is_eof())),
    ("finish", |taker| {
        if taker.nth == 5 {
            taker.got.is_finished.store(true, SeqCst);
            taker.reader.finish().unwrap();
        }
        taker.nothing(())
    }),
    ("is_empty", |taker| taker.nothing(taker.reader.is_empty())),
    ("buffered", |taker| taker.nothing(taker.reader.buffered())),
    ("position", |taker| {
        let before = taker.reader.position();
        assert!(before <= taker.reader.position());
        taker.nothing(())
    }),
    ("settled", |taker| {
        let before = taker.reader.settled();
        assert!(before <= taker.reader.position());
        taker.nothing(())
    }),
    ("has_other_reader", |taker| {
        assert!(!taker.reader.has_other_reader());
        taker.nothing(())
    }),
    ("try_clone", |taker| {
        let reader = taker.reader.try_clone().unwrap();
        let before = std::mem::replace(&mut taker.reader, reader);
        taker.nothing(before)
    }),
    ("close", |taker| {
        taker.reader.try_clone().unwrap().close();
        taker.nothing(())
    }),
    ("read_size", |taker| {
        assert!(taker.reader.read_size() > 0);
        taker.nothing(())
    }),
    ("set_read_size", |taker| {
        taker.reader.set_read_size([1, 100, 5000, 1 << 16][taker.nth as usize % 4]);
        taker.nothing(())
    }),
    ("exact", |taker| taker.nothing(taker.reader.exact())),
    ("set_exact", |taker| {
        taker.reader.set_exact(taker.nth % 3);
        taker.nothing(())
    }),
    ("is_mixed", |taker| taker.nothing(taker.reader.is_mixed())),
    // Sets the current mode again: the other mode could not decode the bytes.
    ("set_mixed", |taker| {
        if let Err(error) = taker.reader.set_mixed(taker.reader.is_mixed()) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        taker.nothing(())
    }),
    ("zstd", |taker| {
        assert!(taker.reader.zstd().is_none());
        taker.nothing(())
    }),
    ("set_zstd", |taker| {
        taker.reader.set_zstd(None).unwrap();
        taker.nothing(())
    }),
    ("keeps_compressed", |taker| taker.nothing(taker.reader.keeps_compressed())),
    ("set_keep_compressed", |taker| {
        taker.reader.set_keep_compressed(taker.nth.is_multiple_of(2));
        taker.nothing(())
    }),
    ("capacity", |taker| {
        assert!(taker.reader.capacity().unwrap() >= 4096);
        taker.nothing(())
    }),
    ("set_capacity", |taker| {
        let bytes = [4096, 1 << 16][taker.nth as usize % 2];
        let outcome = taker.reader.set_capacity(bytes);
        assert!(outcome.is_ok() || outcome.unwrap_err().errno() == Some(16), "EBUSY if it is too full");
        taker.nothing(())
    }),
    ("set_capacity_or_max", |taker| {
        // More than a user may have in all pipes together is refused.
        let _ = taker.reader.set_capacity_or_max(1 << 17);
        taker.nothing(())
    }),
    ("as_fd", |taker| {
        let events = rustix::event::PollFlags::IN;
        taker.nothing(crate::harness::is_ready(&taker.reader, events, Duration::ZERO))
    }),
];

fn two_readers(mixed: bool, calls: [ReaderCall; 2]) {
    let (reader, mut writer) = Options::new().mixed(mixed).read_size(100).pair().unwrap();
    let mut print = fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    let (got, (numbers, come)) = (Got::default(), channel());
    let mut sent = 0;
    thread::scope(|scope| {
        let takers = calls.iter().map(|call| call.1);
        // The third takes the items that the two do not.
        let rest: fn(&mut Taker<'_>) -> Step = |taker| {
            let item = taker.reader.next_item(Deadline::NEVER).map(Item::into_owned);
            taker.item(item)
        };
        for take in takers.chain([rest]) {
            let (reader, got, numbers) = (reader.try_clone().unwrap(), &got, numbers.clone());
            let mut taker = Taker { reader, got, numbers, nth: 0 };
            scope.spawn(move || {
                while take(&mut taker).is_ok() {
                    taker.nth += 1;
                }
            });
        }
        drop((reader, numbers));
        // One item for each clone that takes any.
        let items = 1 + calls.iter().filter(|call| takes(call.0, mixed)).count() as u64;
        let mut text = 0;
        for burst in 0..25 {
            let lines = u64::from(mixed && burst % 3 == 0);
            if lines > 0 {
                print.write_all(b"texttext\n").unwrap();
                text += 9;
            }
            let messages: Vec<Vec<u8>> = (sent..sent + items - lines).map(message).collect();
            assert_eq!(writer.send_many(&messages, Deadline::NEVER), Ok(messages.len()));
            sent += messages.len() as u64;
            let given = || got.messages.load(SeqCst) == sent && got.text.load(SeqCst) == text;
            while !given() && !got.is_finished.load(SeqCst) {
                thread::yield_now();
            }
            got.round.fetch_add(1, SeqCst);
            // No reader is left, and the pipe would fill up at some point.
            if got.is_finished.load(SeqCst) {
                break;
            }
        }
        drop((writer, print));
        got.is_over.store(true, SeqCst);
    });
    let mut numbers: Vec<u64> = come.iter().collect();
    numbers.sort_unstable();
    match got.is_finished.load(SeqCst) {
        true => assert!(numbers.is_sorted_by(|one, two| one < two), "doubled: {numbers:?}"),
        false => assert_eq!(numbers, Vec::from_iter(0..sent)),
    }
}

#[test]
fn every_method_of_a_reader_beside_every_other_of_its_clone() {
    assert_complete(
        &["reader.rs", "items.rs"],
        READER_CALLS.iter().map(|(name, _)| *name).filter(|name| *name != "as_fd"),
    );
    alone_for(4 * PATIENCE, || {
        for (nth, one) in READER_CALLS.iter().enumerate() {
            for two in &READER_CALLS[..=nth] {
                for mixed in [false, true] {
                    let what = format!("{} beside {}, mixed {mixed}", one.0, two.0);
                    in_time(&what, || two_readers(mixed, [*one, *two]));
                }
            }
        }
    });
}

// ---------------------------------------------------------------- writers

/// A clone of a writer at work.
struct Giver {
    writer: Writer,
    /// The number of the next message.
    next: u64,
    /// Numbers of messages that must arrive.
    given: Vec<u64>,
    /// Calls so far.
    nth: u64,
}

impl Giver {
    fn next(&mut self) -> (u64, Vec<u8>) {
        self.next += 1;
        (self.next, message(self.next))
    }

    fn deadline(&self) -> Deadline {
        if self.nth.is_multiple_of(2) { Deadline::NEVER } else { Deadline::after(PATIENCE) }
    }

    /// A message that fits into a burst of a mixed stream.
    fn next_burst(&mut self) -> Option<Vec<u8>> {
        if !self.writer.is_mixed() {
            return None;
        }
        // Without the bytes that open and close frames.
        loop {
            let (_, message) = self.next();
            if message.len() < 100 && !message.iter().any(|byte| (0x0E..=0x10).contains(byte)) {
                return Some(message);
            }
        }
    }
}

type WriterCall = (&'static str, fn(&mut Giver));

const WRITER_CALLS: [WriterCall; 27] = [
    ("send", |giver| {
        let (number, message) = giver.next();
        giver.writer.send(message, giver.deadline()).unwrap();
        giver.given.push(number);
    }),
    ("try_send", |giver| {
        let (number, message) = giver.next();
        if giver.writer.try_send(message).unwrap().is_some() {
            giver.given.push(number);
        }
    }),
    ("send_many", |giver| {
        let (numbers, messages): (Vec<_>, Vec<_>) = (0..5).map(|_| giver.next()).unzip();
        assert_eq!(giver.writer.send_many(&messages, giver.deadline()), Ok(5));
        giver.given.extend(numbers);
    }),
    ("enqueue", |giver| {
        let (number, message) = giver.next();
        giver.writer.enqueue(message).unwrap();
        giver.given.push(number);
    }),
    ("burst", |giver| {
        if let Some(message) = giver.next_burst() {
            giver.writer.burst(message, giver.deadline()).unwrap();
            giver.given.push(giver.next);
        }
    }),
    ("try_burst", |giver| {
        if let Some(message) = giver.next_burst()
            && giver.writer.try_burst(message).unwrap()
        {
            giver.given.push(giver.next);
        }
    }),
    ("fits_in_burst", |giver| assert!(giver.writer.fits_in_burst("small").unwrap().is_some())),
    ("pending", |giver| _ = giver.writer.pending()),
    ("flush", |giver| {
        let (number, message) = giver.next();
        giver.writer.enqueue(message).unwrap();
        giver.writer.flush(giver.deadline()).unwrap();
        giver.given.push(number);
    }),
    ("try_flush", |giver| _ = giver.writer.try_flush().unwrap()),
    ("discard", |giver| {
        giver.writer.flush(Deadline::NEVER).unwrap();
        let (_, message) = giver.next();
        giver.writer.enqueue(message).unwrap();
        giver.writer.discard();
    }),
    ("close", |giver| {
        let mut writer = giver.writer.try_clone().unwrap();
        giver.writer.flush(Deadline::NEVER).unwrap();
        let (number, message) = giver.next();
        writer.enqueue(message).unwrap();
        writer.close(giver.deadline()).unwrap();
        giver.given.push(number);
    }),
    ("try_clone", |giver| {
        let writer = giver.writer.try_clone().unwrap();
        // The drop writes pending data.
        drop(std::mem::replace(&mut giver.writer, writer));
    }),
    ("key", |giver| assert_eq!(giver.writer.key(), giver.writer.key())),
    ("pipe_buf", |giver| assert!(giver.writer.pipe_buf() >= 512)),
    ("max_part", |giver| assert!(giver.writer.max_part() < giver.writer.pipe_buf())),
    ("is_printing", |giver| assert!(!giver.writer.is_printing())),
    ("is_mixed", |giver| _ = giver.writer.is_mixed()),
    ("set_mixed", |giver| {
        let mixed = giver.writer.is_mixed();
        let is_pending = giver.writer.pending() > 0;
        assert_eq!(giver.writer.set_mixed(mixed).is_err(), is_pending);
    }),
    ("zstd", |giver| assert!(giver.writer.zstd().is_none())),
    ("set_zstd", |giver| giver.writer.set_zstd(None).unwrap()),
    ("max_pending", |giver| assert!(giver.writer.max_pending() >= 1000)),
    ("set_max_pending", |giver| giver.writer.set_max_pending(1000)),
    ("capacity", |giver| assert!(giver.writer.capacity().unwrap() >= 4096)),
    ("set_capacity", |giver| {
        let outcome = giver.writer.set_capacity([4096, 1 << 16][giver.nth as usize % 2]);
        assert!(outcome.is_ok() || outcome.unwrap_err().errno() == Some(16), "EBUSY if it is too full");
    }),
    ("set_capacity_or_max", |giver| _ = giver.writer.set_capacity_or_max(1 << 17)),
    ("as_fd", |giver| drop(giver.writer.as_fd().try_clone_to_owned().unwrap())),
];

/// The distance between the numbers of one writer and those of the next.
const APART: u64 = 1 << 32;

fn two_writers(mixed: bool, calls: [WriterCall; 2]) {
    let (mut reader, writer) = Options::new().mixed(mixed).pair().unwrap();
    let (mut given, mut come) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let givers = [0, 1].map(|side| {
            let (writer, call) = (writer.try_clone().unwrap(), calls[side].1);
            let mut giver = Giver { writer, next: side as u64 * APART, given: vec![], nth: 0 };
            scope.spawn(move || {
                for nth in 0..12 {
                    giver.nth = nth;
                    call(&mut giver);
                    // After any data that the other call left pending.
                    if nth % 3 == 0 {
                        let (number, message) = giver.next();
                        giver.writer.send(message, Deadline::NEVER).unwrap();
                        giver.given.push(number);
                    }
                }
                giver.writer.close(Deadline::NEVER).unwrap();
                giver.given
            })
        });
        drop(writer);
        for item in reader.items() {
            match item.unwrap() {
                Item::Message(message) => come.push(number_of(&message)),
                Item::Burst(burst) => come.push(number_of(&burst)),
                other => panic!("{other:?}"),
            }
        }
        given.extend(givers.into_iter().flat_map(|giver| giver.join().unwrap()));
    });
    for side in 0..2 {
        let of_side = |numbers: &[u64]| -> Vec<u64> {
            numbers.iter().copied().filter(|number| number / APART == side).collect()
        };
        assert_eq!(of_side(&come), of_side(&given), "in order, all, and nothing else");
    }
}

#[test]
fn every_method_of_a_writer_beside_every_other_of_its_clone() {
    assert_complete(
        &["writer.rs"],
        WRITER_CALLS.iter().map(|(name, _)| *name).filter(|name| *name != "as_fd"),
    );
    alone_for(4 * PATIENCE, || {
        for (nth, one) in WRITER_CALLS.iter().enumerate() {
            for two in &WRITER_CALLS[..=nth] {
                for mixed in [false, true] {
                    let what = format!("{} beside {}, mixed {mixed}", one.0, two.0);
                    in_time(&what, || two_writers(mixed, [*one, *two]));
                }
            }
        }
    });
}
