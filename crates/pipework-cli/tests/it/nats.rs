//! `pipework nats` runs another program, or says how to get it.

use crate::{Folder, PIPEWORK, sh};
use std::fs;

/// A program that prints its arguments and ends with status 7.
const PROGRAM: &str =
    "mkdir bin; printf '#!/bin/sh\\necho \"$0\" \"$@\"; exit 7\\n' > bin/pipework-nats; chmod +x bin/*";

#[test]
fn nats_passes_its_arguments_on_unchanged() {
    let folder = Folder::new();
    let done =
        sh(&folder, &format!("{PROGRAM}; PATH=$PWD/bin:$PATH pipework nats expose -q --help 'a b' -- x"));
    let path = folder.join("bin/pipework-nats");
    let said = format!("{} expose -q --help a b -- x\n", path.display());
    assert_eq!((done.status, done.out, done.err), (Some(7), said, String::new()));
}

#[test]
fn nats_prefers_the_program_beside_the_command() {
    let folder = Folder::new();
    let script = format!(
        "{PROGRAM}; mkdir own; cp bin/pipework-nats own; ln {PIPEWORK} own/pipework 2>/dev/null \
        || cp {PIPEWORK} own/pipework; PATH=$PWD/bin:$PATH own/pipework nats attach"
    );
    let done = sh(&folder, &script);
    let own = fs::canonicalize(folder.join("own")).unwrap().join("pipework-nats");
    assert_eq!((done.status, done.out), (Some(7), format!("{} attach\n", own.display())), "{}", done.err);
}

#[test]
fn nats_without_its_program_says_how_to_get_it() {
    let done = sh(
        &Folder::new(),
        "mkdir none; ln -s $(command -v pipework) none; PATH=$PWD/none pipework nats expose x",
    );
    assert_eq!(done.status, Some(127));
    assert!(
        done.err.contains("pipework-nats") && done.err.contains("cargo install --path bridge/nats"),
        "{}",
        done.err
    );
}
