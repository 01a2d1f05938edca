//! A program between the two ends: relays that cut anywhere, pause, and stop; and frames that
//! nothing completes.
//!
//! `PIPEWORK_RELAYS=100` asks for that many rounds.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pipework::atomic::{Item, Options, Reader, Torn, Writer, WriterKey};
use pipework::{Deadline, ErrorKind};

use crate::harness::{PATIENCE, setting, tolerance};

/// One part of one message from process 1234, and the prefixes of it.
const PART: &[u8] = b"\x0e\x10\xd2\x04\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0hello\x0f";
const KEY: WriterKey = WriterKey { pid: 1234, tid: 7 };

/// The messages to send: many small ones, or fewer from 20 to 9000 bytes.
fn records(small: bool) -> Vec<Vec<u8>> {
    match small {
        true => (0..20_000).map(|nth| format!("message {nth}").into_bytes()).collect(),
        false => (0..2_000_usize)
            .map(|nth| {
                nth.to_string().into_bytes().into_iter().cycle().take(20 + nth * 7919 % 8981).collect()
            })
            .collect(),
    }
}

/// Sends the records, some of them in shared writes, with lines of text in between.
fn send_all(mut writer: Writer, records: &[Vec<u8>]) {
    let mut print = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    for (nth, some) in records.chunks(100).enumerate() {
        writeln!(print, "line {nth}").unwrap();
        if nth % 2 == 0 {
            assert_eq!(writer.send_many(some, PATIENCE).unwrap(), some.len());
        } else {
            send_plain(&mut writer, some);
        }
    }
}

/// Takes the items that `records` and their lines should give, and no others.
fn expect_all(mut reader: Reader, records: &[Vec<u8>], relay: &str) {
    let mixed = reader.is_mixed();
    let (mut messages, mut lines) = (records.iter(), 0);
    loop {
        match reader.next_item(PATIENCE) {
            Ok(Item::Message(message)) => {
                let expected = messages.next().expect("no more than were sent");
                assert!(*message == **expected, "{relay}: a message of {} bytes", message.len());
            }
            Ok(Item::Line(line)) => {
                assert_eq!(line.content(), format!("line {lines}").as_bytes(), "{relay}");
                lines += 1;
            }
            Ok(other) => panic!("{relay}: {other:?}"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed, "{relay}"),
        }
    }
    assert_eq!((messages.len(), lines), (0, if mixed { records.len() / 100 } else { 0 }), "{relay}");
}

#[test]
fn messages_arrive_whole_through_any_relay() {
    let programs: [&[&str]; 4] = [
        &["cat"],
        &["tee", "/dev/null"],
        &["dd", "bs=1000", "status=none"],
        &["dd", "bs=32k", "status=none"],
    ];
    for _ in 0..setting("PIPEWORK_RELAYS").unwrap_or(1) {
        for (program, small) in programs.into_iter().flat_map(|program| [(program, true), (program, false)]) {
            let (source, writer) = Options::new().mixed(true).pair().unwrap();
            let (reader, sink) = Options::new().mixed(true).pair().unwrap();
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).stdin(owned(&source)).stdout(owned(&sink));
            let mut relay = command.stderr(Stdio::inherit()).spawn().unwrap();
            drop((source, sink, command));
            let records = records(small);
            thread::scope(|scope| {
                scope.spawn(|| send_all(writer, &records));
                expect_all(reader, &records, &format!("{program:?}"));
            });
            assert!(relay.wait().unwrap().success());
        }
    }
}

#[test]
fn messages_arrive_whole_in_delayed_pieces() {
    for mixed in [false, true] {
        for (piece, small, pause) in [(1400, true, 500), (1400, false, 100), (1, true, 0), (4095, false, 10)]
        {
            let (source, writer) = Options::new().mixed(mixed).pair().unwrap();
            let (reader, sink) = Options::new().mixed(mixed).pair().unwrap();
            let records = records(small);
            let some = if piece == 1 { &records[..2000] } else { &records[..] };
            let (mut from, mut to) = (File::from(owned(&source)), File::from(owned(&sink)));
            drop((source, sink));
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut writer = writer;
                    if mixed { send_all(writer, some) } else { send_plain(&mut writer, some) }
                });
                scope.spawn(move || {
                    let mut bytes = vec![0; piece];
                    for nth in 0.. {
                        let len = from.read(&mut bytes).unwrap();
                        if len == 0 {
                            break;
                        }
                        to.write_all(&bytes[..len]).unwrap();
                        if pause > 0 && nth % pause == 0 {
                            thread::sleep(Duration::from_millis(2));
                        }
                    }
                });
                expect_all(reader, some, &format!("pieces of {piece} bytes, mixed: {mixed}"));
            });
        }
    }
}

fn send_plain(writer: &mut Writer, records: &[Vec<u8>]) {
    for record in records {
        writer.send(record, PATIENCE).unwrap();
    }
}

/// A frame waits, together with the bytes behind it; after the timeout it is text, and its message
/// is lost.
#[test]
fn unfinished_frame_becomes_text_after_the_frame_timeout() {
    const TIME: Duration = Duration::from_millis(500);
    let lost = Torn { writer: Some(KEY), parts: 1, bytes: 3, kind: ErrorKind::Torn, limit: None };
    for patient in [false, true] {
        let (mut reader, mut print) = mixed(Options::new().frame_timeout(TIME));
        print.write_all(b"prompt> ").unwrap();
        print.write_all(&PART[..21]).unwrap();
        let begin = Instant::now();
        assert_eq!(kind(reader.next_item(Deadline::now())), Err(ErrorKind::TimedOut));
        assert_eq!(reader.peek().as_deref(), Some(&b"prompt> "[..]), "a waiting frame is not text yet");
        let due = reader.next_timeout().expect("a time to call again").remaining().unwrap();
        assert!(due <= TIME);
        if patient {
            assert_eq!(reader.next_item(PATIENCE), Ok(Item::Torn(lost)));
        } else {
            assert_eq!(kind(reader.try_next_item()), Ok(false));
            thread::sleep(TIME);
            assert_eq!(reader.try_next_item(), Ok(Some(Item::Torn(lost))));
        }
        assert!(begin.elapsed() >= TIME);
        assert_eq!(kind(reader.try_next_item()), Ok(false));
        assert_eq!(reader.next_timeout(), None);
        assert_eq!(reader.peek().unwrap(), [b"prompt> ", &PART[..21]].concat());
        // The rest arrives too late, and does not damage what follows it.
        print.write_all(&[&PART[21..], b"\n", PART].concat()).unwrap();
        let line = reader.next_item(PATIENCE).unwrap().into_owned();
        assert!(matches!(line, Item::Line(line) if *line == [b"prompt> ", PART, b"\n"].concat()));
        let message = reader.next_item(PATIENCE).unwrap().into_owned();
        assert!(matches!(message, Item::Message(message) if *message == *b"hello"));
    }
}

/// Also if clones share the buffer, and each waits outside its lock.
#[test]
fn waiting_clone_gives_up_a_frame_after_the_frame_timeout() {
    let (reader, mut print) = mixed(Options::new().frame_timeout(Duration::from_millis(100)));
    let mut clone = reader.try_clone().unwrap();
    print.write_all(b"\x0estray\n").unwrap();
    assert!(matches!(clone.next_item(PATIENCE), Ok(Item::Line(line)) if *line == *b"\x0estray\n"));
}

#[test]
fn arriving_bytes_restart_the_frame_timeout() {
    const TIME: Duration = Duration::from_millis(500);
    let (mut reader, mut print) = mixed(Options::new().frame_timeout(TIME));
    for byte in PART {
        print.write_all(&[*byte]).unwrap();
        thread::sleep(TIME / 16);
        if *byte == PART[0] {
            assert_eq!(kind(reader.try_next_item()), Ok(false));
        }
    }
    assert!(matches!(reader.next_item(PATIENCE), Ok(Item::Message(message)) if *message == *b"hello"));
}

#[test]
fn frame_is_decided_at_once_by_the_end_or_a_wrong_byte() {
    let (mut reader, mut print) = mixed(Options::new().frame_timeout(Duration::MAX));
    print.write_all(&[&PART[..PART.len() - 1], b"!\n\x0ehalf"].concat()).unwrap();
    assert!(matches!(reader.next_item(PATIENCE), Ok(Item::Torn(torn)) if torn.writer == Some(KEY)));
    assert!(matches!(reader.next_item(PATIENCE), Ok(Item::Line(line)) if line.ends_with(b"hello!\n")));
    assert_eq!(
        (kind(reader.try_next_item()), reader.next_timeout()),
        (Ok(false), None),
        "it would wait for ever"
    );
    drop(print);
    assert!(matches!(reader.next_item(PATIENCE), Ok(Item::Line(line)) if *line == *b"\x0ehalf"));
    assert_eq!(kind(reader.next_item(PATIENCE)), Err(ErrorKind::Closed));
}

/// Bytes that arrive for ever and make no item hold no call beyond its time.
#[test]
fn calls_keep_their_deadline_although_bytes_keep_arriving() {
    let (mut reader, print) = mixed(Options::new());
    let mut clone = reader.try_clone().unwrap();
    let flood = thread::spawn(move || {
        let mut print = print;
        while print.write_all(&[b'x'; 4096]).is_ok() {}
    });
    for shared in [true, false] {
        // Less than 256 MiB arrive in this time: a longer line is given out in pieces.
        let short = Duration::from_millis(20);
        let reader = if shared { &mut clone } else { &mut reader };
        let begin = Instant::now();
        assert_eq!(kind(reader.next_item(short)), Err(ErrorKind::TimedOut));
        assert_eq!(kind(reader.try_next_item()), Ok(false));
        assert!(begin.elapsed() < short + tolerance(), "{:?}", begin.elapsed());
        if shared {
            // From now on the other reader has no clone to share with.
            clone = mixed(Options::new()).0;
        }
    }
    drop((reader, clone));
    flood.join().unwrap();
}

/// A call that does not wait reports that there is more, because a descriptor that stays readable
/// need not report it again.
#[test]
fn next_timeout_is_now_if_a_try_call_stopped_early() {
    let (mut reader, mut print) = mixed(Options::new().read_size(1));
    print.write_all(&[b'x'; 8192]).unwrap();
    assert_eq!(kind(reader.try_next_item()), Ok(false));
    assert!(reader.next_timeout().is_some_and(Deadline::has_passed));
    let mut calls = 1;
    while reader.next_timeout().is_some() {
        assert_eq!(kind(reader.try_next_item()), Ok(false));
        calls += 1;
    }
    assert_eq!((reader.peek().map(|text| text.len()), calls), (Some(8192), 3));
}

// ---------------------------------------------------------------- pipes

fn mixed(options: Options) -> (Reader, File) {
    let (reader, writer) = options.mixed(true).pair().unwrap();
    let print = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    (reader, print)
}

fn owned(end: &impl AsFd) -> std::os::fd::OwnedFd {
    end.as_fd().try_clone_to_owned().unwrap()
}

/// Whether there was an item, or the kind of the error.
fn kind<'a>(outcome: pipework::Result<impl Into<Option<Item<'a>>>>) -> Result<bool, ErrorKind> {
    outcome.map(|item| item.into().is_some()).map_err(|error| error.kind())
}
