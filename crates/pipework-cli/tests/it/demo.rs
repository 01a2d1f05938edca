//! `pipework demo` on text of the machine and on awkward files.

use crate::{Folder, clean, fails, sh};
use std::fs;

fn shown(folder: &Folder, arguments: &str) {
    let done = sh(folder, &format!("pipework demo --quick {arguments}"));
    assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert!(
        done.out.ends_with("every record arrived once and whole, every call was answered or reported\n"),
        "{}",
        done.out
    );
    assert!(done.out.lines().skip(2).all(|line| line.len() <= 80), "{}", done.out);
    for row in [
        "a pipe of pipework",
        "bare pipe",
        "messages and stray text",
        "zstd",
        "reqrep: 2 clients",
        "every slot is free",
    ] {
        assert!(done.out.contains(row), "{}", done.out);
    }
}

#[test]
fn demo_runs_on_the_text_of_this_machine() {
    shown(&Folder::new(), "");
}

#[test]
fn demo_runs_on_files_of_every_kind() {
    let folder = Folder::new();
    let long = "long ".repeat(100_000);
    let control: String = (1u8..128).map(char::from).collect();
    let files = [
        ("one record without a newline", "x".to_string()),
        ("empty records", "\n\n\n".into()),
        ("control bytes", format!("{control}\n{control}{control}\n")),
        ("records of every length", (0..3000).map(|i| format!("{}\n", &long[..i * 4])).collect()),
        ("a record much larger than the pipe", format!("a\n{long}{long}{long}\nb\n")),
    ];
    for (name, content) in files {
        fs::write(folder.join("text"), content).unwrap();
        println!("{name}");
        for writers in [1, 3, 8] {
            shown(&folder, &format!("--writers {writers} text"));
        }
    }
    // An endless file is read up to a limit.
    shown(&folder, "/dev/zero");
}

#[test]
fn demo_ends_quietly_when_its_reader_leaves() {
    // The reader leaves before the first line, or after it.
    for reader in ["{ exec <&-; : > closed; }", "{ : > closed; head -n 1 > line; }"] {
        let script = "until [ -e closed ]; do sleep 0.01; done; pipework demo --quick; echo $? > status";
        assert_eq!(clean(&format!("({script}) | {reader}; cat status")), "141\n", "{reader}");
    }
}

#[test]
fn demo_fails_on_an_empty_or_missing_file() {
    fails(1, &["empty"], "touch text; pipework demo text");
    fails(1, &["nowhere: No such file"], "pipework demo nowhere");
}
