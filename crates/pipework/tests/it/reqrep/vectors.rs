//! Opens the byte vectors of `vectors/reqrep`: checks the refusals and their error texts, the
//! contents of the others, and the result of recovery.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pipework::ErrorKind;
use pipework::reqrep::{Audit, Options, Segment};
use serde_json::Value;

use crate::harness::Folder;

#[test]
fn vectors_are_refused_with_the_error_text_of_the_index() {
    let (vectors, folder) = (index(), Folder::new());
    let evil: Vec<_> = vectors.iter().filter(|vector| !vector["refused"].is_null()).collect();
    assert!(evil.len() > 30);
    for vector in evil {
        let path = laid_out(vector, &folder);
        let said = [Options::new().open(&path), Options::new().from_fd(open(&path).into())];
        for refused in said.map(|opened| opened.map(drop).map_err(|error| error.to_string())) {
            assert_eq!(refused, Err(text(&vector["refused"])), "{}", name(vector));
        }
        let len = fs::metadata(&path).unwrap().len();
        assert!(
            len == vector["len"] && contents(&path, vector) == bytes(vector),
            "a refusal changes nothing"
        );
    }
}

#[test]
fn opened_vectors_hold_what_the_index_says() {
    let (vectors, folder) = (index(), Folder::new());
    let good: Vec<_> = vectors.iter().filter(|vector| !vector["opens"].is_null()).collect();
    assert!(good.len() > 10);
    for vector in good {
        let segment = Options::new().open(laid_out(vector, &folder)).unwrap();
        let (found, said) = (segment.geometry(), &vector["opens"]);
        let sizes = [
            ("slots", found.slots),
            ("queue", found.queue),
            ("request_bytes", found.request_bytes),
            ("reply_bytes", found.reply_bytes),
            ("members", found.members),
            ("blobs", found.blobs),
        ];
        sizes.iter().for_each(|(size, found)| assert_eq!(said[size], *found, "{}: {size}", name(vector)));
        if !vector["audit"].is_null() {
            holds(&segment, vector);
        }
    }
}

/// Checks the contents behind the header.
fn holds(segment: &Segment, vector: &Value) {
    let stats = segment.stats();
    let counted = (&vector["stats"]["requests"], &vector["stats"]["replies"]);
    assert_eq!(counted, (&stats.requests.into(), &stats.replies.into()), "{}", name(vector));
    accounts(&segment.audit().unwrap(), &vector["audit"], name(vector));
    assert_eq!(vector["recovered"], segment.recover().unwrap(), "{}", name(vector));
    accounts(&segment.audit().unwrap(), &vector["audit_after"], name(vector));
    assert_eq!(segment.members().unwrap(), [], "{}", name(vector));
    let Some(recv) = vector.get("recv") else { return };
    let server = segment.server().unwrap();
    let taken = server.try_recv();
    match recv {
        Value::Null => assert!(taken.unwrap().is_none(), "{}", name(vector)),
        Value::String(_) => {
            let kind = taken.map(|_| ()).map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::Corrupt), "{}", name(vector));
        }
        said => {
            let request = taken.unwrap().expect("one waits");
            assert_eq!(
                (text(&said["data"]).as_bytes(), &said["flags"]),
                (&*request, &request.flags().into())
            );
            assert_eq!(said["redeliveries"], request.redeliveries());
            assert_eq!(request.reply("too late for the dead"), Ok(true));
        }
    }
}

/// Null in the index means that the value depends on the observer.
fn accounts(found: &Audit, said: &Value, name: &str) {
    let places = [
        ("free", found.free),
        ("filling", found.filling),
        ("waiting", found.waiting),
        ("taken", found.taken),
        ("dropped", found.dropped),
        ("done", found.done),
        ("damaged", found.damaged),
        ("orphaned", found.orphaned),
        ("unqueued", found.unqueued),
        ("entries", found.entries),
    ];
    for (place, found) in places {
        assert!(said[place].is_null() || said[place] == found, "{name}: {found} {place} of {said}");
    }
}

#[test]
fn index_lists_every_vector_file_and_no_other() {
    let files =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> =
        files.filter_map(|file| file.strip_suffix(".bin").map(String::from)).collect();
    let index = index();
    let said: BTreeSet<String> = index.iter().map(|vector| name(vector).into()).collect();
    assert_eq!((&files, said.len()), (&said, index.len()));
}

// ---------------------------------------------------------------- the index

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/reqrep")
}

fn index() -> Vec<Value> {
    let text = fs::read_to_string(folder().join("index.json")).unwrap();
    let mut index: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&index["byte_order"], &index["format"]), (&Value::from("little"), &Value::from(5)));
    match index["vectors"].take() {
        Value::Array(vectors) => vectors,
        other => panic!("`vectors` is a list, not {other}"),
    }
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().into()
}

fn bytes(vector: &Value) -> Vec<u8> {
    fs::read(folder().join(format!("{}.bin", name(vector)))).unwrap()
}

/// Writes the vector as a file: its bytes, zeros behind them, and its end.
fn laid_out(vector: &Value, folder: &Folder) -> PathBuf {
    let path = folder.join(name(vector));
    fs::write(&path, bytes(vector)).unwrap();
    let (file, len) = (open(&path), vector["len"].as_u64().unwrap());
    file.set_len(len).unwrap();
    if let Some(end) = vector["end"].as_str() {
        let end = u64::from_str_radix(end, 16).unwrap().to_be_bytes();
        file.write_all_at(&end, len - 8).unwrap();
    }
    path
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// The first bytes of a file, as many as the vector has.
fn contents(path: &Path, vector: &Value) -> Vec<u8> {
    let mut contents = fs::read(path).unwrap();
    contents.truncate(bytes(vector).len());
    contents
}
