//! Opens the byte vectors of `vectors/broadcast`: checks the refusals and their error texts, the contents
//! of the others, what recovery makes of them, and what is received and published then.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pipework::broadcast::{Audit, Options, RecvError, Segment, Start, Subscriber, SubscriberOptions};
use pipework::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::harness::Folder;

#[test]
fn broadcast_vectors_are_refused_with_the_error_text_of_the_index() {
    let (vectors, folder) = (index(), Folder::new());
    let evil: Vec<_> = vectors.iter().filter(|vector| !vector["refused"].is_null()).collect();
    assert!(evil.len() > 10);
    for vector in evil {
        let path = laid_out(vector, &folder);
        let refused = Options::new().open(&path).map(drop).map_err(|error| error.to_string());
        assert_eq!(refused, Err(vector["refused"].as_str().unwrap().into()), "{}", name(vector));
        assert_eq!(fs::metadata(&path).unwrap().len(), vector["len"], "a refusal changes nothing");
    }
}

#[test]
fn opened_broadcast_vectors_hold_what_the_index_says() {
    let (vectors, folder) = (index(), Folder::new());
    let good: Vec<_> = vectors.iter().filter(|vector| !vector["opens"].is_null()).collect();
    assert!(good.len() > 10);
    for vector in good {
        let segment = Options::new().open(laid_out(vector, &folder)).unwrap();
        let found = segment.geometry();
        let sizes = json!({
            "messages": found.messages, "message_bytes": found.message_bytes, "members": found.members,
            "blobs": found.blobs, "observers": found.observers,
        });
        assert_eq!(sizes, vector["opens"], "{}", name(vector));
        holds(&segment, vector);
    }
}

/// Checks the contents behind the header.
fn holds(segment: &Segment, vector: &Value) {
    let (stats, name) = (segment.stats(), name(vector));
    assert_eq!(json!({"published": stats.published, "skipped": stats.skipped}), vector["stats"], "{name}");
    assert_eq!(states(segment), vector["audit"], "{name}");
    assert_eq!(vector["recovered"], segment.recover().unwrap(), "{name}");
    assert_eq!(states(segment), vector["audit_after"], "{name}");
    assert_eq!(segment.members().unwrap(), [], "{name}");
    for must_see_all in [false, true] {
        let begin = SubscriberOptions::new().start(Start::Oldest).must_see_all(must_see_all);
        let received = segment.subscriber_with(&begin).map(received);
        if !vector["received"].is_null() {
            assert_eq!(Value::from(received.unwrap()), vector["received"], "{name}, {must_see_all}");
        }
    }
    let publisher = segment.publisher().unwrap();
    let number = match publisher.try_publish("x") {
        Ok(number) => Value::from(number.expect("nobody must see all")),
        Err(error) => failure(error),
    };
    assert!(vector["publishes"].is_null() || vector["publishes"] == number, "{name}: {number}");
}

fn states(segment: &Segment) -> Value {
    let Audit { empty, writing, done, skipped, dropped, orphaned, .. } = segment.audit().unwrap();
    json!({
        "empty": empty, "writing": writing, "done": done, "skipped": skipped, "dropped": dropped,
        "orphaned": orphaned,
    })
}

/// All that can be received now.
fn received(mut subscriber: Subscriber) -> Vec<Value> {
    let most = 2 * subscriber.segment().geometry().messages as usize;
    let next = || match subscriber.try_recv() {
        Ok(None) => None,
        Ok(Some(message)) => {
            let data = String::from_utf8(message.to_vec()).unwrap();
            Some(json!({"number": message.number(), "data": data, "flags": message.flags()}))
        }
        Err(RecvError::Lagged(missed)) => Some(json!({"missed": missed})),
        Err(RecvError::Failed(error)) => Some(failure(error)),
    };
    std::iter::from_fn(next).take(most).collect()
}

fn failure(error: Error) -> Value {
    match error.kind() {
        ErrorKind::Corrupt => "corrupt".into(),
        ErrorKind::Os => "missing".into(),
        _ => panic!("{error}"),
    }
}

#[test]
fn index_of_broadcast_lists_every_vector_file_and_no_other() {
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/broadcast")
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

/// Writes the vector as a file: its bytes, zeros behind them, and its end.
fn laid_out(vector: &Value, folder: &Folder) -> PathBuf {
    let path = folder.join(name(vector));
    fs::copy(self::folder().join(format!("{}.bin", name(vector))), &path).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let len = vector["len"].as_u64().unwrap();
    file.set_len(len).unwrap();
    if let Some(end) = vector["end"].as_str() {
        let end = u64::from_str_radix(end, 16).unwrap().to_be_bytes();
        file.write_all_at(&end, len - 8).unwrap();
    }
    path
}
