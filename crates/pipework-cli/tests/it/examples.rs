//! The examples of docs/command.md print what the page says, and those of help can be run.

use crate::ls::segment;
use crate::{Folder, clean, sh};
use pipework::atomic::create_fifo;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

/// What one block of the page has behind its prompts, and what it shows as printed.
struct Example {
    script: String,
    out: String,
}

/// The blocks of a page that show a console.
fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(example).collect()
}

/// A line behind `$ ` is a command, and so is what follows a `\` at its end.
fn example(block: &str) -> Example {
    let mut example = Example { script: String::new(), out: String::new() };
    let mut goes_on = false;
    for line in block.split_inclusive('\n') {
        match line.strip_prefix("$ ") {
            Some(command) => example.script.push_str(command),
            None if goes_on => example.script.push_str(line),
            None => {
                example.out.push_str(line);
                continue;
            }
        }
        goes_on = line.ends_with("\\\n");
    }
    example
}

/// Without the numbers that name a process, which are others each time.
fn masked(out: &str) -> String {
    ["\"pid\":", "\"writer\":\""].iter().fold(out.to_string(), |out, key| {
        let pieces = out.split(key).enumerate().map(|(n, piece)| match n {
            0 => piece,
            _ => piece.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':'),
        });
        pieces.collect::<Vec<_>>().join(key)
    })
}

#[test]
fn examples_print_what_the_page_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
    let examples = examples(&fs::read_to_string(path).unwrap());
    assert!(examples.len() >= 5, "{} examples were found", examples.len());
    for example in examples {
        let done = sh(&Folder::new(), &format!("{}wait\n", example.script));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{}", example.script);
        assert_eq!(masked(&done.out), masked(&example.out), "{}", example.script);
    }
}

#[test]
fn only_what_names_a_process_is_masked() {
    let line = r#"{"pid":12,"writer":"12:70000","parts":1}"#;
    assert_eq!(masked(line), r#"{"pid":,"writer":"","parts":1}"#);
    assert_ne!(masked(line), masked(&line.replace("\"parts\":1", "\"parts\":2")));
}

/// The examples of a command's help: what stands indented under each title.
fn of_help(command: &str) -> Vec<String> {
    let help = clean(&format!("pipework {command} --help"));
    let section = help.split("\nExamples:\n").nth(1).unwrap();
    let lines = section.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    let mut examples: Vec<String> = vec![];
    for line in lines.filter(|line| !line.is_empty()) {
        match line.strip_prefix("    ") {
            Some(code) => examples.last_mut().expect("a title comes first").extend([code, "\n"]),
            None => examples.push(String::new()),
        }
    }
    examples
}

/// Runs the examples of a command's help beside a segment, which they call /dev/shm/work, and a
/// FIFO, /dev/shm/inbox, and with folders of their own for the usual places.
fn run_those_of(command: &str, how_many: usize) {
    let examples = of_help(command);
    assert!(examples.len() >= how_many, "{examples:?}");
    for example in examples {
        let folder = Folder::new();
        fs::create_dir(folder.join("shm")).unwrap();
        let segment = segment(folder.join("shm/work"));
        let _server = segment.server().unwrap();
        create_fifo(folder.join("shm/inbox")).unwrap();
        // A port that nobody has.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = example.replace("/dev/shm", "shm").replace("9464", &port.to_string());
        let done =
            sh(&folder, &format!("set -e; export TMPDIR=$PWD/shm XDG_RUNTIME_DIR=$PWD/shm\n{script}wait\n"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(!done.out.is_empty(), "{example}");
    }
}

#[test]
fn examples_of_ls() {
    run_those_of("ls", 4);
}

#[test]
fn examples_of_doctor() {
    run_those_of("doctor", 5);
}

#[test]
fn examples_of_top() {
    run_those_of("top", 4);
}
