//! Other languages call the installed library, where their compilers are.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::install::make;
use crate::programs::examples_of;
use crate::{Folder, done, home, left_out, read};

/// Whether the compiler of a language is here, and what finds the library for it.
fn is_here(program: &str) -> bool {
    let answers = |program: &str| Command::new(program).arg("version").output().is_ok();
    let missing = [program, "pkg-config"].into_iter().find(|program| !answers(program));
    if let Some(missing) = missing {
        left_out(&format!("programs for {program}"), &format!("no {missing}"));
    }
    missing.is_none()
}

/// A command in a folder, which finds the library.
fn command(program: &str, folder: &Path, prefix: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

/// What the examples print: the reply to a call, and the parts of another.
fn said(language: &str) -> String {
    format!("hello from {language}\npart: hello \npart: from \npart: {language}\n")
}

#[test]
fn programs_in_go_call_and_stream_and_that_of_the_page_calls_from_many_goroutines() {
    if !is_here("go") {
        return;
    }
    let (prefix, folder) = (Folder::new(), Folder::new());
    make("install", &prefix);
    let go =
        |folder: &Path| done(command("go", folder, &prefix).args(["run", "."]).env("GOFLAGS", "-mod=mod"));
    assert_eq!(go(&home().join("examples/go")), said("Go"));
    let page = read("../../docs/start/go.md");
    let [program] = &examples_of(&page, "```go", "```")[..] else { panic!("the page shows one program") };
    fs::write(folder.join("main.go"), program).unwrap();
    fs::write(folder.join("go.mod"), "module hello\n\ngo 1.19\n").unwrap();
    assert_eq!(go(&folder), "hello\n");
}

/// While signals come, each request is carried out once.
#[test]
fn program_in_crystal_calls_once_and_streams_and_sends_while_signals_come() {
    if !is_here("crystal") {
        return;
    }
    let (prefix, folder) = (Folder::new(), Folder::new());
    make("install", &prefix);
    let program = folder.join("main");
    let crystal = |name: &str| command(name, &home().join("examples/crystal"), &prefix);
    let flags = done(crystal("pkg-config").args(["--libs", "pipework"]));
    done(crystal("crystal").args(["build", "main.cr", "--link-flags", flags.trim(), "-o"]).arg(&program));
    let mut command = command("env", &folder, &prefix);
    command.args(["--default-signal", "./main"]).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    // Crystal handles the signal; its default would be to do nothing.
    let mut signals = Command::new("sh");
    let id = child.id();
    signals.args(["-c", &format!("while kill -CHLD {id}; do sleep 0.002; done 2> /dev/null")]);
    let mut signals = signals.spawn().unwrap();
    let output = child.wait_with_output();
    signals.kill().unwrap();
    signals.wait().unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let calls = said("Crystal");
    let (call, parts) = calls.split_once('\n').unwrap();
    let asked = "asked: hello from Crystal\n";
    let messages: String = (1..=3).map(|number| format!("message: 100000 times {number}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{asked}{call}\n{asked}{parts}{messages}"));
}
