//! Plays the byte vectors of `vectors/atomic` through a reader in C.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::programs::compiled;
use crate::{Folder, done, home};

#[test]
fn reader_decodes_the_vectors_as_the_index_says() {
    let folder = Folder::new();
    let program = compiled(&home().join("tests/c/with_arguments/vectors_atomic.c"), &folder);
    let index: Value =
        serde_json::from_str(&fs::read_to_string(vectors().join("index.json")).unwrap()).unwrap();
    let vectors = index["vectors"].as_array().unwrap();
    assert!(vectors.len() > 50);
    for vector in vectors {
        let printed = done(Command::new(&program).args(arguments(vector)));
        // However many bytes a read asks for.
        assert!(printed == expected(vector).repeat(4), "{}: it printed\n{printed}", vector["name"]);
    }
}

fn vectors() -> PathBuf {
    home().join("../../vectors/atomic")
}

fn arguments(vector: &Value) -> Vec<OsString> {
    let yes = |is_so: bool| OsString::from(if is_so { "1" } else { "0" });
    let zstd = &vector["zstd"];
    vec![
        vectors().join(format!("{}.bin", vector["name"].as_str().unwrap())).into(),
        yes(vector["mode"] == "mixed"),
        yes(vector["strict"] == true),
        vector["max_message"].as_u64().unwrap_or(0).to_string().into(),
        yes(!zstd.is_null()),
        yes(zstd["accept_unchecked"] == true),
        zstd["dictionary"].as_str().map_or_else(|| "0".into(), |file| vectors().join(file).into()),
    ]
}

/// The expected output of the program for one size of reads.
fn expected(vector: &Value) -> String {
    let items = vector["items"].as_array().unwrap().iter().map(line);
    let end = match vector["ends"].as_str().unwrap() {
        "closed" => 4,
        "corrupt" => 10,
        other => panic!("a pipe cannot end {other}"),
    };
    items.collect::<String>() + &format!("{end}\n")
}

/// The numbers are those that the header gives them.
fn line(item: &Value) -> String {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let kind = match item["type"].as_str().unwrap() {
        "line" => 1,
        "burst" => 2,
        "message" => 3,
        "torn" => 4,
        other => panic!("a pipe does not give out {other}"),
    };
    let (torn, limit) = match item["kind"].as_str() {
        None => (0, 0),
        Some("too_long") => (5, 1),
        Some("torn") => (9, 0),
        Some("corrupt") => (10, 0),
        Some("incompatible") => (11, 0),
        Some(other) => panic!("nothing is lost in the way of {other}"),
    };
    let (pid, tid) = (number(&item["writer"][0]), number(&item["writer"][1]));
    let (parts, bytes) = (number(&item["parts"]), number(&item["bytes"]));
    let data: String = data(&item["data"]).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind} {pid}:{tid} {parts} {torn}:{limit}:{bytes} {data}\n")
}

/// A string means bytes, one for each character; an object the numbers from `count_from` on, each
/// with a space behind it; nothing means no bytes.
fn data(said: &Value) -> Vec<u8> {
    if let Some(text) = said.as_str() {
        return text.chars().map(|byte| u8::try_from(byte).unwrap()).collect();
    }
    let len = said["len"].as_u64().unwrap_or(0) as usize;
    let numbers = said["count_from"].as_u64().unwrap_or(0)..;
    numbers.flat_map(|number| format!("{number} ").into_bytes()).take(len).collect()
}
