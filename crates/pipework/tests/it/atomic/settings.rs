//! The effect of different settings at the two ends of a pipe: an error or a report that names the
//! setting, and never bytes that look like what was sent. Bytes that merely look like such a
//! mistake are left alone.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use pipework::atomic::{Item, Options, Reader, Writer, Zstd};
use pipework::{Deadline, ErrorKind};

use crate::harness::{PATIENCE, Random};

/// The ends of one pipe, each with settings of its own.
fn unlike(read: &Options, write: &Options) -> (Reader, Writer) {
    let (reader, writer) = std::io::pipe().unwrap();
    (read.reader(reader).unwrap(), write.writer(writer).unwrap())
}

/// A file that prints into the pipe of `writer`.
fn printer(writer: &Writer) -> File {
    File::from(writer.as_fd().try_clone_to_owned().unwrap())
}

#[test]
fn mixed_reader_reports_messages_sent_in_plain_mode() {
    let (plain, mixed) = (Options::new(), Options::new().mixed(true));
    for len in [0, 5, 4080, 4081, 300_000] {
        for read_size in [1, 7, 64 << 10] {
            let (mut reader, mut writer) = unlike(&mixed.clone().read_size(read_size), &plain);
            let sender = std::thread::spawn(move || {
                // The reader may close the pipe before it takes all of it.
                let _ = writer.send(vec![b'x'; len], PATIENCE);
            });
            let error = loop {
                match reader.next_item(PATIENCE) {
                    // A header may contain the end of a line, or bytes that look like a burst, and
                    // reads may stop in the middle of it.
                    Ok(Item::Line(line)) => assert!(line.len() < 16, "{len} bytes: {line:?}"),
                    Ok(Item::Burst(burst)) => assert!(burst.len() < 16, "{len} bytes: {burst:?}"),
                    Ok(item) => panic!("{len} bytes in reads of {read_size}: {item:?}"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Incompatible, "{len} bytes in reads of {read_size}: {error}");
            assert!(error.to_string().contains("is `mixed` set on both sides?"), "{error}");
            // It is reported once; the next call returns the bytes as text, and anything that looks
            // like a burst in them.
            assert!(matches!(reader.next_item(PATIENCE), Ok(Item::Line(_) | Item::Burst(_))));
            drop(reader);
            sender.join().unwrap();
        }
    }
}

#[test]
fn plain_reader_reports_messages_sent_in_mixed_mode() {
    let (plain, mixed) = (Options::new(), Options::new().mixed(true));
    for (len, text) in [(5, ""), (4077, ""), (9000, ""), (5, "printed first, as programs do\n")] {
        let (mut reader, mut writer) = unlike(&plain, &mixed);
        printer(&writer).write_all(text.as_bytes()).unwrap();
        writer.send(vec![b'x'; len], Deadline::NEVER).unwrap();
        for _ in 0..2 {
            let error = reader.recv(PATIENCE).map(drop).expect_err("no message");
            // Text may be anything that is no message; a part between its control bytes is
            // unambiguous.
            let kind = if text.is_empty() { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
            assert_eq!(error.kind(), kind, "{len} bytes: {error}");
            assert!(error.to_string().contains("is `mixed` set on both sides?"), "{error}");
        }
    }
}

#[test]
fn reader_without_zstd_reports_compressed_messages() {
    let plain = Options::new();
    let zstd = plain.clone().zstd(Zstd::new().with_level(1));
    // A file that a user has compressed, and sends.
    let frame = {
        let mut file = vec![0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 5 << 3 | 1, 0, 0];
        file.extend(b"bytes");
        file
    };
    let large = Random::new(1).bytes(20_000);
    for mixed in [false, true] {
        let (mut reader, mut writer) = unlike(&plain.clone().mixed(mixed), &zstd.clone().mixed(mixed));
        for data in [&b"small"[..], b"", &large] {
            writer.send(data, PATIENCE).unwrap();
            let item = reader.next_item(PATIENCE).unwrap();
            let Item::Torn(torn) = item else { panic!("{item:?}") };
            assert_eq!((torn.kind, torn.writer), (ErrorKind::Incompatible, Some(writer.key())));
            assert!(torn.to_string().contains("is `zstd` set on both sides?"), "{torn}");
        }
        if !mixed {
            writer.send("small", PATIENCE).unwrap();
            let error = reader.recv(PATIENCE).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible);
            assert!(error.to_string().contains("is `zstd` set on both sides?"), "{error}");
            assert!(reader.torn().is_some());
        }
        // The writer marks it, so it is not guessed from the bytes; and it changes with the
        // message.
        writer.enqueue("compressed").unwrap();
        writer.flush(PATIENCE).unwrap();
        writer.set_zstd(None).unwrap();
        writer.send(&frame, PATIENCE).unwrap();
        assert!(matches!(reader.next_item(PATIENCE).unwrap(), Item::Torn(_)));
        let item = reader.next_item(PATIENCE).unwrap();
        let Item::Message(message) = item else { panic!("{item:?}") };
        assert_eq!((&*message.data, message.writer), (&frame[..], writer.key()));
    }
    // In the opposite case it is no frame.
    let (mut reader, mut writer) = unlike(&zstd, &plain);
    writer.send("small", PATIENCE).unwrap();
    assert_eq!(reader.recv(PATIENCE).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Pending messages stay compressed, or not, as they were when they were taken.
#[test]
fn pending_messages_keep_their_compression_after_set_zstd() {
    let plain = Options::new();
    let zstd = plain.clone().zstd(Zstd::new().with_level(1));
    let large = Random::new(1).bytes(300_000);
    for data in [&b"small"[..], &large] {
        for is_queued in [true, false] {
            for (before, after) in [(&plain, Some(Zstd::new())), (&zstd, None)] {
                let (mut reader, mut writer) = unlike(before, before);
                if is_queued {
                    writer.enqueue(data).unwrap();
                } else {
                    // The first fills the pipe if it is large, and the second waits behind it.
                    writer.set_max_pending(usize::MAX);
                    (0..2).for_each(|_| assert!(writer.try_send(data).unwrap().is_some()));
                }
                writer.set_zstd(after).unwrap();
                let sender = std::thread::spawn(move || writer.flush(PATIENCE));
                for _ in 0..if is_queued { 1 } else { 2 } {
                    assert!(*reader.recv(PATIENCE).unwrap() == *data, "{} bytes", data.len());
                }
                sender.join().unwrap().unwrap();
            }
        }
    }
}

#[test]
fn mixed_reader_treats_printed_bytes_as_text() {
    let numbers = |numbers: [u32; 4]| numbers.map(u32::to_le_bytes).concat();
    let printed = [
        b"$ ".to_vec(),
        b"a line of sixteen bytes and more\n".to_vec(),
        // An ELF file, a gzip file with a date, an icon, zeros, numbers in rows.
        b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3E\0\n".to_vec(),
        b"\x1F\x8B\x08\0\x7A\xC1\x4F\x65\x02\x03\xCB\x48\xCD\xC9\xC9\x07\n".to_vec(),
        b"\0\0\x01\0\x01\0\x10\x10\0\0\x01\0\x20\0\x68\x04\0\0\n".to_vec(),
        [0; 32].to_vec(),
        [1; 32].to_vec(),
        numbers([1, 2, 3, 4]),
        numbers([70_000, 70_001, 70_002, 70_003]),
    ];
    for bytes in printed {
        let (mut reader, writer) = Options::new().mixed(true).pair().unwrap();
        printer(&writer).write_all(&bytes).unwrap();
        drop(writer);
        let lines = reader.items().map(|item| match item.unwrap() {
            Item::Line(line) => line.data.into_owned(),
            item => panic!("{item:?}"),
        });
        assert_eq!(lines.collect::<Vec<_>>().concat(), bytes);
    }
}
