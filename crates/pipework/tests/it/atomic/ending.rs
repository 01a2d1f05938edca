//! `wait_eof`, which tells whether a pipe has ended, and the data that a reader holds meanwhile.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pipework::atomic::{Item, Options, Reader, Writer, create_fifo, pair};
use pipework::{Error, ErrorKind};

use crate::harness::{Folder, PATIENCE, alone, fork};

const NOW: Duration = Duration::ZERO;
const SHORT: Duration = Duration::from_millis(20);

fn kind<T>(outcome: Result<T, Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// Writes text into the writer's pipe, as a program that prints.
fn print(writer: &Writer, bytes: &[u8]) {
    File::from(writer.as_fd().try_clone_to_owned().unwrap()).write_all(bytes).unwrap();
}

/// The ends of a pipe, of a FIFO and of a socket, with those options.
fn all_kinds(options: &Options) -> Vec<(Reader, Writer)> {
    let folder = Folder::new();
    let path = folder.join("fifo");
    create_fifo(&path).unwrap();
    let (reader, writer) = UnixStream::pair().unwrap();
    vec![
        options.pair().unwrap(),
        (options.read_fifo(&path).unwrap(), options.write_fifo(&path, PATIENCE).unwrap()),
        (options.reader(reader).unwrap(), options.writer(writer).unwrap()),
    ]
}

#[test]
fn wait_eof_is_false_while_items_are_left_and_then_true() {
    for mixed in [false, true] {
        for (mut reader, mut writer) in all_kinds(&Options::new().mixed(mixed)) {
            assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::TimedOut));
            assert_eq!(kind(reader.wait_eof(SHORT)), Some(ErrorKind::TimedOut));
            assert_eq!((reader.buffered(), reader.is_eof()), (0, false));

            assert_eq!(writer.send_many(&["one", "two"], PATIENCE), Ok(2));
            assert_eq!((reader.wait_eof(PATIENCE), reader.wait_eof(NOW)), (Ok(false), Ok(false)));
            let len = 3 + writer.pipe_buf() - writer.max_part();
            assert_eq!(reader.buffered(), 2 * len, "both, as they came");
            for (expected, left) in [("one", len), ("two", 0)] {
                let item = reader.next_item(NOW).unwrap().into_owned();
                assert!(matches!(item, Item::Message(message) if *message == *expected.as_bytes()));
                assert_eq!(reader.buffered(), left);
            }

            assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::TimedOut));
            writer.send("last", PATIENCE).unwrap();
            drop(writer);
            assert_eq!(reader.wait_eof(PATIENCE), Ok(false), "not all items are given out");
            assert!(reader.next_item(NOW).is_ok());
            assert_eq!((reader.wait_eof(PATIENCE), reader.is_eof()), (Ok(true), true));
            assert_eq!(
                (reader.wait_eof(NOW), kind(reader.next_item(NOW))),
                (Ok(true), Some(ErrorKind::Closed))
            );
        }
    }
}

#[test]
fn wait_eof_waits_for_bytes_or_the_end() {
    for (mut reader, mut writer) in all_kinds(&Options::new()) {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                writer.send("late", PATIENCE).unwrap();
                thread::sleep(SHORT);
                drop(writer);
            });
            assert_eq!(reader.wait_eof(PATIENCE), Ok(false));
            assert_eq!(*reader.recv(NOW).unwrap(), *b"late");
            assert_eq!(reader.wait_eof(PATIENCE), Ok(true));
        });
    }
}

#[test]
fn buffered_counts_lines_and_messages_that_have_begun() {
    // A line, a part of a message, and then a part of a part.
    let (mut reader, writer) = Options::new().mixed(true).pair().unwrap();
    print(&writer, b"text");
    assert_eq!((reader.wait_eof(NOW), reader.buffered()), (Ok(false), 4));
    assert!(reader.try_next_item().unwrap().is_none());
    assert_eq!((reader.peek().as_deref(), reader.buffered()), (Some(&b"text"[..]), 4));
    assert_eq!(reader.wait_eof(NOW), Ok(false));
    let mut part = vec![0x0E, 0x10];
    for word in [7u32, 9, 1, 4] {
        part.extend(word.to_ne_bytes());
    }
    print(&writer, &[&part, &b"head\x0F"[..], &part].concat());
    assert!(reader.try_next_item().unwrap().is_none());
    assert_eq!(reader.buffered(), 4 + 4 + part.len(), "the line, the data, and the bytes of the part");
    drop(writer);
    let mut given_out = 0;
    while !reader.wait_eof(NOW).unwrap() {
        reader.next_item(NOW).unwrap();
        given_out += 1;
    }
    assert_eq!((given_out > 1, reader.buffered(), reader.is_eof()), (true, 0, true));
}

#[test]
fn wait_eof_reports_a_stream_that_cannot_be_decoded() {
    let (mut reader, writer) = pair().unwrap();
    print(&writer, &[0xFF; 100]);
    drop(writer);
    assert_eq!(reader.wait_eof(NOW), Ok(false), "the bytes are not decoded yet");
    assert_eq!(kind(reader.recv(NOW)), Some(ErrorKind::Corrupt));
    assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::Corrupt));

    let (mut reader, mut writer) = pair().unwrap();
    reader.set_mixed(true).unwrap();
    writer.send("plain", PATIENCE).unwrap();
    assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::Incompatible), "reported once, as by any call");
    assert_eq!(reader.wait_eof(NOW), Ok(false));
}

#[test]
fn wait_eof_of_a_listener_is_true_only_after_finish() {
    let folder = Folder::new();
    let path = folder.join("fifo");
    create_fifo(&path).unwrap();
    let mut reader = Options::new().listen_fifo(&path).unwrap();
    for _ in 0..3 {
        assert_eq!(kind(reader.wait_eof(SHORT)), Some(ErrorKind::TimedOut));
        let mut writer = Options::new().write_fifo(&path, PATIENCE).unwrap();
        assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::TimedOut));
        writer.send("one", PATIENCE).unwrap();
        drop(writer);
        assert_eq!(reader.wait_eof(PATIENCE), Ok(false));
        assert_eq!(*reader.recv(NOW).unwrap(), *b"one");
    }
    assert_eq!(kind(reader.wait_eof(NOW)), Some(ErrorKind::TimedOut), "another writer may come");
    reader.finish().unwrap();
    assert_eq!(reader.wait_eof(PATIENCE), Ok(true));
}

/// All clones in `wait_eof` return when bytes arrive for one of them, and none takes the wake-up of
/// a clone that waits for a message.
#[test]
fn wait_eof_of_a_clone_takes_no_wake_up_from_others() {
    alone(|| {
        let (reader, mut writer) = pair().unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                let mut reader = reader.try_clone().unwrap();
                let over = &over;
                scope.spawn(move || {
                    while !reader.wait_eof(PATIENCE).expect("messages arrive all the time") {}
                    assert!(over.load(SeqCst), "there is a writer");
                });
            }
            let (sender, taken) = channel();
            let mut taker = reader.try_clone().unwrap();
            scope.spawn(move || {
                while let Ok(message) = taker.recv(PATIENCE) {
                    sender.send(message.into_vec()).unwrap();
                }
            });
            for round in 0..2000u32 {
                // Once immediately, once while it sleeps.
                thread::sleep(Duration::from_micros(u64::from(round % 2) * 100));
                writer.send(round.to_ne_bytes(), PATIENCE).unwrap();
                assert_eq!(taken.recv_timeout(PATIENCE / 2).expect("it is woken"), round.to_ne_bytes());
            }
            over.store(true, SeqCst);
            drop(writer);
        });
    });
}

#[test]
fn wait_eof_of_a_clone_returns_after_another_clones_finish() {
    let (mut reader, _writer) = pair().unwrap();
    thread::scope(|scope| {
        let mut clone = reader.try_clone().unwrap();
        let asked = scope.spawn(move || clone.wait_eof(PATIENCE));
        thread::sleep(SHORT);
        reader.finish().unwrap();
        assert_eq!(asked.join().unwrap(), Ok(true));
        assert_eq!(reader.wait_eof(NOW), Ok(true));
    });
    let (reader, _writer) = pair().unwrap();
    let mut clone = reader.try_clone().unwrap();
    for deadline in [NOW, SHORT] {
        assert_eq!(kind(clone.wait_eof(deadline)), Some(ErrorKind::TimedOut), "clones keep deadlines");
    }
}

#[test]
fn wait_eof_in_a_child_is_stale_if_the_parent_buffered_bytes() {
    alone(|| {
        let (mut reader, mut writer) = pair().unwrap();
        let mut other = pair().unwrap().0;
        assert_eq!(writer.send_many(&["one", "two"], PATIENCE), Ok(2));
        assert_eq!(*reader.recv(NOW).unwrap(), *b"one");
        fork(|| {
            assert_eq!(kind(reader.wait_eof(PATIENCE)), Some(ErrorKind::Stale));
            assert_eq!(other.wait_eof(PATIENCE), Ok(true), "the parent held nothing of that one");
        })
        .join();
        assert_eq!(reader.wait_eof(NOW), Ok(false));
    });
}
