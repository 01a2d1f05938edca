//! The vectors of `vectors/`, read by C: the result for each file must equal the index's entry.

mod atomic;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};

use crate::programs::compiled;
use crate::{Folder, done, home};

#[test]
fn c_reads_the_segments_as_the_index_says() {
    let folder = Folder::new();
    let program = compiled(&home().join("tests/c/with_arguments/vectors_reqrep.c"), &folder);
    let vectors = home().join("../../vectors/reqrep");
    let index: Value =
        serde_json::from_str(&fs::read_to_string(vectors.join("index.json")).unwrap()).unwrap();
    let index = index["vectors"].as_array().expect("a list");
    assert!(index.len() > 50);
    for vector in index {
        let name = vector["name"].as_str().expect("it has a name");
        let path = folder.join(name);
        fs::copy(vectors.join(format!("{name}.bin")), &path).unwrap();
        lay_out(&path, vector);
        let said = done(Command::new(&program).arg(&path));
        let found: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once(' ')).collect();
        for (key, value) in expected(vector) {
            assert_eq!(found.get(&*key).copied(), Some(&*value), "{name}: {key} of\n{said}");
        }
        fs::remove_file(&path).unwrap();
    }
}

/// The expected output of the program, as far as the index knows.
fn expected(vector: &Value) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    // Everything beside the sizes is read while no other program has the segment open.
    let parts =
        if vector["audit"].is_null() { &["opens"][..] } else { &["opens", "stats", "audit", "audit_after"] };
    for part in parts {
        lines.extend(vector[part].as_object().into_iter().flat_map(|found| flat(part, found)));
    }
    lines.extend(vector["refused"].as_str().map(|text| ("refused".into(), text.into())));
    if !vector["audit"].is_null() {
        lines.insert("recovered".into(), vector["recovered"].to_string());
        lines.insert("attached".into(), "0".into());
    }
    match vector.get("recv") {
        Some(Value::Object(request)) => {
            lines.extend(flat("recv", request));
            lines.insert("replied".into(), "0".into());
        }
        Some(Value::String(text)) => _ = lines.insert("recv".into(), text.clone()),
        Some(_) => _ = lines.insert("recv".into(), "null".into()),
        None => {}
    }
    lines
}

/// Null in the index: it depends on the reader's way of looking.
fn flat(part: &str, found: &Map<String, Value>) -> Vec<(String, String)> {
    let known = found.iter().filter(|(_, value)| !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    known.map(|(key, value)| (format!("{part}.{key}"), text(value))).collect()
}

/// Makes the first bytes of a file the whole of it.
fn lay_out(path: &Path, vector: &Value) {
    let file = File::options().write(true).open(path).unwrap();
    let len = vector["len"].as_u64().expect("a number");
    file.set_len(len).unwrap();
    if let Some(end) = vector["end"].as_str() {
        let end = u64::from_str_radix(end, 16).unwrap().to_be_bytes();
        file.write_all_at(&end, len - 8).unwrap();
    }
}
