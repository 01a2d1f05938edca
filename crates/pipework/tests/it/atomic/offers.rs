//! The calls of the module beside sending and receiving, one after the other, as a user would
//! try it.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use pipework::atomic::{End, Item, Message, Options, Reader, Writer, Zstd, max_capacity, pair};
use pipework::{Deadline, ErrorKind, Result};

const NOW: Duration = Duration::ZERO;

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Sends `data` and receives it; returns the frame that it came in, if any.
fn passes(writer: &mut Writer, reader: &mut Reader, data: &[u8]) -> Option<Vec<u8>> {
    writer.send(data, Deadline::NEVER).unwrap();
    let Message { data: come, compressed, .. } = reader.recv(NOW).unwrap();
    assert!(*come == *data);
    compressed.map(|frame| frame.into_owned())
}

#[test]
fn set_zstd_changes_compression_between_messages() {
    let (mut reader, mut writer) = pair().unwrap();
    let data = b"{\"level\":\"info\",\"message\":\"the same again\"}".repeat(40);
    assert!(writer.zstd().is_none() && reader.zstd().is_none());
    assert_eq!(passes(&mut writer, &mut reader, &data), None);

    reader.set_keep_compressed(true);
    assert_eq!(passes(&mut writer, &mut reader, &data), None, "no frame to keep");

    let file = std::env::temp_dir().join(format!("pipework-dictionary-{}", std::process::id()));
    fs::write(&file, &data[..200]).unwrap();
    let with_file = Zstd::new().with_dictionary_file(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let mut sizes = Vec::new();
    for zstd in [
        Zstd::new().with_level(-5),
        Zstd::new().with_level(19),
        Zstd::new().with_dictionary(&data[..200]),
        with_file.clone(),
    ] {
        writer.set_zstd(Some(zstd.clone())).unwrap();
        reader.set_zstd(Some(zstd.clone())).unwrap();
        assert_eq!((writer.zstd(), reader.zstd()), (Some(&zstd), Some(zstd.clone())));
        let frame = passes(&mut writer, &mut reader, &data).expect("it was kept");
        assert!(frame.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) && frame.len() < data.len() / 4);
        sizes.push(frame.len());
        assert!(passes(&mut writer, &mut reader, b"").is_some(), "an empty message has a frame, too");
    }
    assert_eq!(sizes[2], sizes[3], "bytes and file are the same dictionary");

    assert_eq!(kind(writer.set_zstd(Some(Zstd::new().with_level(23)))), Some(ErrorKind::Invalid));
    assert_eq!(writer.zstd(), Some(&with_file), "the old setting stays");
    reader.set_keep_compressed(false);
    assert_eq!(passes(&mut writer, &mut reader, &data), None, "the frame is not kept");
    writer.set_zstd(None).unwrap();
    reader.set_zstd(None).unwrap();
    assert_eq!(passes(&mut writer, &mut reader, &data), None);
    assert_eq!(kind(Zstd::new().with_dictionary_file(&file)), Some(ErrorKind::Os), "the file is gone");
}

#[test]
fn keep_compressed_keeps_the_frame_of_a_burst() {
    let options = Options::new().mixed(true).zstd(Zstd::new()).keep_compressed(true);
    let (mut reader, mut writer) = options.pair().unwrap();
    let data = [b'a'; 20_000];
    assert!(writer.fits_in_burst(data).unwrap().is_some_and(|len| len < 100), "compressed it is small");
    writer.burst(data, Deadline::NEVER).unwrap();
    let Ok(Item::Burst(burst)) = reader.next_item(NOW) else { panic!("a burst") };
    assert!(*burst == data && burst.compressed.is_some_and(|frame| frame.len() < 100));
}

#[test]
fn burst_is_limited_to_one_write() {
    let (mut reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    assert_eq!((writer.pipe_buf(), writer.max_part()), (4096, 4077));
    assert_eq!(writer.fits_in_burst([b'x'; 4094]), Ok(Some(4096)));
    assert_eq!(writer.fits_in_burst([b'x'; 4095]), Ok(None));
    assert_eq!(kind(writer.burst([b'x'; 4095], Deadline::NEVER)), Some(ErrorKind::TooLong));
    for data in ["\u{e}", "a\u{e}", "a\u{f}b", "\u{10}a"] {
        assert_eq!(kind(writer.burst(data, Deadline::NEVER)), Some(ErrorKind::Invalid), "{data:?}");
        assert_eq!(kind(writer.try_burst(data)), Some(ErrorKind::Invalid), "{data:?}");
    }
    writer.burst("a\u{10}", Deadline::NEVER).unwrap();
    assert!(matches!(reader.next_item(NOW), Ok(Item::Burst(burst)) if *burst == *b"a\x10"));

    let (_reader, mut writer) = pair().unwrap();
    assert_eq!(
        (writer.max_part(), writer.fits_in_burst([0; 4096])),
        (4080, Ok(Some(4096))),
        "bare in plain mode"
    );
}

#[test]
fn reader_without_bursts_extracts_only_messages_from_text() {
    for zstd in [false, true] {
        let options = Options::new().mixed(true).bursts(false);
        let options = if zstd { options.zstd(Zstd::new()) } else { options };
        let (mut reader, mut writer) = options.pair().unwrap();
        let mut stdout = fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
        let all: Vec<u8> = (0..=255).chain([0x0E, b'x', 0x0F, 0x0E]).collect();
        stdout.write_all(&all).unwrap();
        writer.burst("burst", Deadline::NEVER).unwrap();
        writer.send("message", Deadline::NEVER).unwrap();
        stdout.write_all(&all).unwrap();
        drop((stdout, writer));
        let (mut text, mut messages) = (Vec::new(), Vec::new());
        for item in reader.items() {
            match item.unwrap() {
                Item::Line(line) => text.extend_from_slice(&line.data),
                Item::Message(message) => messages.push(message.data.into_owned()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(messages, [b"message"]);
        let around = text.len() - 2 * all.len();
        assert!(text.starts_with(&all) && text.ends_with(&all) && around >= 7, "zstd {zstd}");
    }
}

#[test]
fn finish_reports_every_message_that_has_begun() {
    let (mut reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    let mut other = reader.try_clone().unwrap();
    reader.set_exact(1);
    assert!(reader.is_empty());
    let mut stdout = fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    let mut part = vec![0x0E, 0x10];
    for word in [7u32, 9, 1, 4] {
        part.extend(word.to_ne_bytes());
    }
    stdout.write_all(&[&part[..], b"head\x0F", b"text"].concat()).unwrap();
    writer.send("wanted", Deadline::NEVER).unwrap();
    writer.send("left in the pipe", Deadline::NEVER).unwrap();
    assert!(matches!(reader.next_item(NOW), Ok(Item::Message(message)) if message.data == &b"wanted"[..]));
    assert!(!reader.is_empty() && !reader.is_eof());

    reader.finish().unwrap();
    assert!(matches!(other.next_item(Deadline::NEVER), Ok(Item::Line(line)) if line.data == &b"text"[..]));
    let torn = reader.next_item(Deadline::NEVER).unwrap().into_owned();
    assert!(matches!(torn, Item::Torn(torn) if torn.bytes == 4), "{torn:?}");
    for reader in [&mut reader, &mut other] {
        assert_eq!(kind(reader.next_item(Deadline::NEVER).map(drop)), Some(ErrorKind::Closed));
        assert_eq!(reader.read_ahead(Deadline::NEVER), Ok(0));
        assert!(reader.is_empty() && reader.is_eof());
    }
    let mut next = Options::new().mixed(true).dup_reader(&reader).unwrap();
    assert!(
        matches!(next.next_item(NOW), Ok(Item::Message(message)) if message.data == &b"left in the pipe"[..])
    );

    // Also for a listener, whose pipe has no other end.
    let path = std::env::temp_dir().join(format!("pipework-finish-{}", std::process::id()));
    pipework::atomic::create_fifo(&path).unwrap();
    let mut listener = Options::new().listen_fifo(&path).unwrap();
    fs::remove_file(&path).unwrap();
    listener.finish().unwrap();
    assert_eq!(kind(listener.recv(Deadline::NEVER).map(drop)), Some(ErrorKind::Closed));
    assert!(listener.is_eof());
}

#[test]
fn peek_shows_an_unfinished_line() {
    let (mut reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    let mut print = fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    assert_eq!(reader.peek(), None);
    print.write_all(b"whole\nPassword: ").unwrap();
    assert!(matches!(reader.try_next_item(), Ok(Some(Item::Line(line))) if *line == *b"whole\n"));
    assert_eq!(reader.try_next_item(), Ok(None));
    assert_eq!(reader.peek().as_deref(), Some(&b"Password: "[..]));
    writer.send("between", Deadline::NEVER).unwrap();
    assert!(matches!(reader.try_next_item(), Ok(Some(Item::Message(_)))));
    assert_eq!(kind(reader.set_mixed(false)), Some(ErrorKind::WouldBlock));
    print.write_all(b"secret\r").unwrap();
    assert_eq!(reader.try_next_item(), Ok(None), "it may be half of a line feed with carriage return");
    assert_eq!(reader.peek().as_deref(), Some(&b"Password: secret\r"[..]));
    drop((writer, print));
    assert!(matches!(reader.next_item(NOW), Ok(Item::Line(line)) if line.content() == b"Password: secret"));
    assert_eq!(
        (reader.peek(), kind(reader.next_item(NOW)), reader.is_eof()),
        (None, Some(ErrorKind::Closed), true)
    );
}

#[test]
fn take_peeked_takes_an_unfinished_line() {
    let (mut reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    let mut print = fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    print.write_all(b"Password: ").unwrap();
    assert_eq!(reader.take_peeked(), None, "it has not been parsed yet");
    assert_eq!(reader.try_next_item(), Ok(None));
    assert_eq!(reader.take_peeked().as_deref(), Some(&b"Password: "[..]));
    assert_eq!((reader.peek(), reader.take_peeked(), reader.buffered()), (None, None, 0));
    writer.send("between", Deadline::NEVER).unwrap();
    print.write_all(b"secret\nnext").unwrap();
    assert!(matches!(reader.try_next_item(), Ok(Some(Item::Message(_)))));
    assert!(matches!(reader.try_next_item(), Ok(Some(Item::Line(line))) if *line == *b"secret\n"));
    assert_eq!(reader.try_next_item(), Ok(None));
    assert_eq!(reader.take_peeked().as_deref(), Some(&b"next"[..]));
    drop((writer, print));
    assert_eq!(kind(reader.next_item(NOW)), Some(ErrorKind::Closed));
}

#[test]
fn set_mixed_changes_the_mode_between_messages() {
    let (mut reader, mut writer) = pair().unwrap();
    for mixed in [true, false, true] {
        reader.set_mixed(mixed).unwrap();
        writer.set_mixed(mixed).unwrap();
        assert_eq!((reader.is_mixed(), writer.is_mixed()), (mixed, mixed));
        writer.send([b'm'; 9000], Deadline::NEVER).unwrap();
        let come = reader.next_item(NOW).map(Item::into_owned);
        assert!(matches!(come, Ok(Item::Message(message)) if message.len() == 9000));
    }
    assert_eq!(kind(reader.recv(NOW)), Some(ErrorKind::Invalid), "messages alone would drop the text");
    writer.enqueue("pending").unwrap();
    assert_eq!(kind(writer.set_mixed(false)), Some(ErrorKind::WouldBlock));
}

#[test]
fn message_has_its_writer_and_part_count() {
    let (mut reader, mut writer) = pair().unwrap();
    let mut other = writer.try_clone().unwrap();
    let (one, two) = (writer.key(), other.key());
    assert!(one != two && one.pid == std::process::id() as i32 && one.tid > 0);
    for (len, parts) in [(0, 1), (1, 1), (4080, 1), (4081, 2), (8160, 2), (8161, 3)] {
        assert_eq!(writer.send(vec![1; len], Deadline::NEVER), Ok(parts));
        assert_eq!(other.send(vec![2; len], Deadline::NEVER), Ok(parts));
        for key in [one, two] {
            let message = reader.recv(NOW).unwrap();
            assert_eq!((message.writer, message.parts, message.len()), (key, parts, len));
        }
    }
}

#[test]
fn end_of_a_pipe_descriptor_passes_messages() {
    let (reader, writer) = std::io::pipe().unwrap();
    let Ok(End::Reader(mut reader)) = Options::new().end(reader) else { panic!("it reads") };
    let Ok(End::Writer(mut writer)) = Options::new().end(writer) else { panic!("it writes") };
    assert!(
        writer.set_capacity_or_max(usize::MAX).unwrap()
            >= max_capacity().unwrap().min(reader.capacity().unwrap())
    );
    assert_eq!(passes(&mut writer, &mut reader, b"through"), None);
    reader.set_read_size(usize::MAX);
    assert_eq!(reader.read_size(), 16 << 20);
    assert_eq!(passes(&mut writer, &mut reader, b"in large reads"), None);
}
