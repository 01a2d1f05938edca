//! Plays the byte vectors of `vectors/atomic` through real pipes: a reader gives the listed items,
//! and a writer writes the same bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pipework::ErrorKind;
use pipework::atomic::{Burst, Item, Limit, Line, Message, Options, Torn, WriterKey, Zstd};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

/// How the bytes of a vector reach the reader.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Bytes of each write.
    write: usize,
    /// Bytes of each read.
    read: usize,
    /// Whether the reader finds the pipe empty before it finds it closed.
    drained: bool,
}

#[test]
fn reader_decodes_the_vectors_as_the_index_says() {
    for vector in index() {
        let (wire, expected) = (wire(&vector), items(&vector));
        let ways = [1, 2, 3, 16, 17, 4095, 4096, 4097, 65536]
            .into_iter()
            .flat_map(|read| [false, true].map(|drained| Way { write: 65536, read, drained }))
            .chain([1, 7, 4096].map(|write| Way { write, read: 65536, drained: false }));
        for way in ways {
            let found = read(&vector, &wire, way);
            let same =
                found.0.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
            let (first, other) = (said(found.0.get(same)), said(expected.get(same)));
            assert!(
                found.0 == expected,
                "{}, {way:?}, item {same}: {first} instead of {other}",
                name(&vector)
            );
            assert_eq!(found.1, end(&vector), "the end of {}, {way:?}", name(&vector));
        }
    }
}

#[test]
fn recv_yields_the_messages_of_a_plain_pipe_and_reports_lost_ones() {
    for vector in index().iter().filter(|vector| vector["mode"] == "plain") {
        let (mut reader, writer) = options(vector).pair().unwrap();
        File::from(writer.as_fd().try_clone_to_owned().unwrap()).write_all(&wire(vector)).unwrap();
        drop(writer);
        for item in items(vector) {
            match (item, reader.recv(SOON).map(Message::into_owned)) {
                (Item::Message(expected), Ok(found)) => assert!(found == expected, "{}", name(vector)),
                (Item::Torn(expected), Err(error)) => {
                    assert_eq!(error.kind(), expected.kind, "{}", name(vector));
                    assert_eq!(reader.torn(), Some(expected), "{}", name(vector));
                }
                (expected, Ok(_)) => {
                    panic!("{}: a message instead of {}", name(vector), said(Some(&expected)))
                }
                (expected, Err(error)) => {
                    panic!("{}: {error} instead of {}", name(vector), said(Some(&expected)))
                }
            }
        }
        assert_eq!(reader.recv(SOON).map(drop).map_err(|error| error.kind()), Err(end(vector)));
        assert_eq!(reader.torn(), None);
    }
}

#[test]
fn a_writer_writes_the_same_bytes() {
    let mut compared = 0;
    for vector in index().iter().filter(|vector| !vector["write"].is_null()) {
        let (keys, mut found) = write(vector);
        if let Some(theirs) = vector["items"].as_array().unwrap().iter().find_map(writer_key) {
            rename(&mut found, vector["mode"] == "mixed", &keys, theirs);
        }
        let expected = wire(vector);
        let same = found.iter().zip(&expected).take_while(|(ours, theirs)| ours == theirs).count();
        assert!(found == expected, "{}: after {same} bytes the rest differs", name(vector));
        compared += 1;
    }
    assert!(compared >= 15, "{compared} vectors say how to write them");
}

#[test]
fn every_file_has_its_entry() {
    let named: BTreeSet<String> = index().iter().map(|vector| format!("{}.bin", name(vector))).collect();
    let files =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = files.filter(|name| name.ends_with(".bin")).collect();
    assert_eq!(named, found);
}

/// Everything that comes out of a pipe that holds `wire`, and the error that ends it.
fn read(vector: &Value, wire: &[u8], way: Way) -> (Vec<Item<'static>>, ErrorKind) {
    let (mut reader, writer) = options(vector).read_size(way.read).pair().unwrap();
    assert!(wire.len() <= writer.capacity().unwrap() * 7 / 8, "{} fits in a pipe", name(vector));
    let mut pipe = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    for chunk in wire.chunks(way.write) {
        pipe.write_all(chunk).unwrap();
    }
    let mut open = Some((writer, pipe));
    let mut found = vec![];
    let mut closed = Instant::now();
    if !way.drained {
        open = None;
    }
    let error = loop {
        match reader.try_next_item() {
            Ok(Some(item)) => found.push(item.into_owned()),
            Ok(None) if open.take().is_some() => closed = Instant::now(),
            // A child that another test starts keeps this process's descriptors open until its
            // exec.
            Ok(None) if closed.elapsed() < SOON => thread::sleep(Duration::from_millis(1)),
            Ok(None) => panic!("a pipe that is closed has ended: {}", name(vector)),
            Err(error) => break error,
        }
    };
    let again = reader.next_item(SOON).expect_err(&format!("{} after {error}", name(vector)));
    assert_eq!(again.kind(), error.kind(), "the second answer at the end of {}", name(vector));
    assert_eq!(reader.is_eof(), error.kind() == ErrorKind::Closed, "{}", name(vector));
    (found, error.kind())
}

/// The bytes that writers make of the items of a vector, and the keys that they used. A long
/// message begins where its writer left off the page, so each item has a writer of its own;
/// messages that share writes have one writer together.
fn write(vector: &Value) -> (Vec<WriterKey>, Vec<u8>) {
    let (reader, mut writer) = options(vector).pair().unwrap();
    assert_eq!(writer.pipe_buf(), 4096, "the vectors are made for Linux");
    writer.set_capacity(128 << 10).unwrap();
    let mut pipe = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    let (mut keys, mut together) = (vec![writer.key()], vec![]);
    for item in items(vector) {
        let mut own = writer.try_clone().unwrap();
        keys.push(own.key());
        match item {
            Item::Line(line) => pipe.write_all(&line).unwrap(),
            Item::Burst(burst) => own.burst(&*burst, SOON).unwrap(),
            Item::Message(message) if vector["write"] == "together" => together.push(message),
            Item::Message(message) => {
                assert_eq!(own.send(&*message, SOON).unwrap(), message.parts, "{}", name(vector));
            }
            Item::Torn(_) => panic!("{} cannot be written", name(vector)),
        }
    }
    let together: Vec<&[u8]> = together.iter().map(|message| &**message).collect();
    assert_eq!(writer.send_many(&together, SOON).unwrap(), together.len());
    drop((pipe, writer));
    let mut bytes = vec![];
    File::from(reader.as_fd().try_clone_to_owned().unwrap()).read_to_end(&mut bytes).unwrap();
    (keys, bytes)
}

/// An item in one line, however long it is.
fn said(item: Option<&Item>) -> String {
    let mut said = item.map_or("nothing".into(), |item| match item {
        Item::Line(line) => format!("line {}", line.escape_ascii()),
        Item::Burst(burst) => format!("burst {}", burst.escape_ascii()),
        Item::Message(message) => {
            format!("message of {} in {} parts: {}", message.writer, message.parts, message.escape_ascii())
        }
        Item::Torn(torn) => format!("{torn:?}"),
    });
    said.truncate(200);
    said
}

// ---------------------------------------------------------------- the index

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/atomic")
}

fn index() -> Vec<Value> {
    let text = fs::read_to_string(folder().join("index.json")).unwrap();
    let mut index: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&index["byte_order"], &index["pipe_buf"]), (&Value::from("little"), &Value::from(4096)));
    match index["vectors"].take() {
        Value::Array(vectors) => vectors,
        other => panic!("`vectors` is a list, not {other}"),
    }
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().unwrap()
}

fn wire(vector: &Value) -> Vec<u8> {
    fs::read(folder().join(format!("{}.bin", name(vector)))).unwrap()
}

fn options(vector: &Value) -> Options {
    let mut options =
        Options::new().mixed(vector["mode"] == "mixed").strict(vector["strict"].as_bool().unwrap());
    if let Some(bytes) = vector["max_message"].as_u64() {
        options = options.max_message(bytes as usize);
    }
    let Some(said) = vector["zstd"].as_object() else { return options };
    let mut zstd = Zstd::new().accept_unchecked(said["accept_unchecked"].as_bool().unwrap());
    if let Some(file) = said["dictionary"].as_str() {
        zstd = zstd.with_dictionary_file(folder().join(file)).unwrap();
    }
    options.zstd(zstd)
}

fn end(vector: &Value) -> ErrorKind {
    match vector["ends"].as_str().unwrap() {
        "closed" => ErrorKind::Closed,
        "corrupt" => ErrorKind::Corrupt,
        other => panic!("a pipe cannot end {other}"),
    }
}

fn items(vector: &Value) -> Vec<Item<'static>> {
    vector["items"].as_array().unwrap().iter().map(item).collect()
}

fn item(item: &Value) -> Item<'static> {
    let count = |name: &str| item[name].as_u64().unwrap();
    match item["type"].as_str().unwrap() {
        "line" => Item::Line(Line { data: data(&item["data"]).into() }),
        "burst" => Item::Burst(Burst { data: data(&item["data"]).into(), compressed: None }),
        "message" => Item::Message(Message {
            data: data(&item["data"]).into(),
            writer: writer_key(item).unwrap(),
            parts: count("parts") as u32,
            compressed: None,
        }),
        "torn" => Item::Torn(Torn {
            writer: writer_key(item),
            parts: count("parts") as u32,
            bytes: count("bytes") as usize,
            limit: (item["kind"] == "too_long").then_some(Limit::MaxMessage),
            kind: match item["kind"].as_str().unwrap() {
                "torn" => ErrorKind::Torn,
                "too_long" => ErrorKind::TooLong,
                "incompatible" => ErrorKind::Incompatible,
                "corrupt" => ErrorKind::Corrupt,
                other => panic!("nothing is lost in the way of {other}"),
            },
        }),
        other => panic!("a pipe does not give out {other}"),
    }
}

/// A string stands for bytes, one for each character up to U+00FF; an object stands for the numbers
/// from `count_from` on.
fn data(said: &Value) -> Vec<u8> {
    if let Some(text) = said.as_str() {
        return text.chars().map(|byte| u8::try_from(byte).unwrap()).collect();
    }
    let (first, len) = (said["count_from"].as_u64().unwrap(), said["len"].as_u64().unwrap() as usize);
    let mut data: Vec<u8> = vec![];
    for number in first.. {
        if data.len() >= len {
            break;
        }
        data.extend_from_slice(format!("{number} ").as_bytes());
    }
    data.truncate(len);
    data
}

fn writer_key(item: &Value) -> Option<WriterKey> {
    let number = |at: usize| item["writer"][at].as_i64().map(|number| i32::try_from(number).unwrap());
    Some(WriterKey { pid: number(0)?, tid: number(1)? })
}

/// Puts another key into each header. If that key is Atomic::Pipe's, clears the bits that
/// Atomic::Pipe does not set.
fn rename(bytes: &mut [u8], mixed: bool, keys: &[WriterKey], theirs: WriterKey) {
    let mut at = 0;
    while at < bytes.len() {
        if mixed && !bytes[at..].starts_with(&[0x0E, 0x10]) {
            at += 1;
            continue;
        }
        let header = at + if mixed { 2 } else { 0 };
        let word = |nth: usize| -> [u8; 4] { bytes[header + 4 * nth..][..4].try_into().unwrap() };
        let [pid, tid, id, len] = [0, 1, 2, 3].map(|nth| u32::from_le_bytes(word(nth)));
        let key = WriterKey { pid: (pid & 0x3F_FFFF) as i32, tid: (tid & 0xBFFF_FFFE) as i32 };
        assert!(keys.contains(&key), "{key} is one of the writers");
        let says_more = theirs.tid >= 65536;
        let renamed = [
            theirs.pid as u32 | if says_more { pid & !0x3F_FFFF } else { 0 },
            theirs.tid as u32 | if says_more { tid & 1 } else { 0 },
            if says_more { id } else { id & !(1 << 31) },
        ];
        bytes[header..header + 12].copy_from_slice(&renamed.map(u32::to_le_bytes).concat());
        at = header + 16 + len as usize + usize::from(mixed);
    }
}
