//! The C library as C programs get it: the header, the exported symbols, programs in C against both
//! libraries, and the files that `make install` installs.
//!
//! Files that are written from the sources (the header, the lists in `abi/`) are updated on a
//! developer's machine, and are an error in CI, as with a lock file.

mod sources;
mod header;
mod abi;
mod programs;
mod vectors;
mod install;
mod languages;

use std::fs;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The folder of the crate.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(home().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks a file that is written from the sources. If it differs, writes it, except in CI.
fn is_written(path: &str, text: &str) {
    if fs::read_to_string(home().join(path)).is_ok_and(|found| found == text) {
        return;
    }
    assert!(std::env::var_os("CI").is_none(), "{path} is not what the sources say: run the tests on a desk");
    fs::write(home().join(path), text).unwrap();
    panic!("{path} was not what the sources say, and is now: look at what has changed");
}

/// The shared library as cargo builds it, which it does not do for a test.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", "pipework-c", "--message-format", "json-render-diagnostics"]);
        let messages = done(cargo.current_dir(home()));
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = messages.filter(|message| message["target"]["name"] == "pipework_c");
        let names = ours.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
        let shared = names.filter_map(|name| name.as_str().map(PathBuf::from));
        let shared = shared.into_iter().find(|name| name.extension().is_some_and(|ending| ending == "so"));
        shared.expect("cargo says what it has built")
    })
}

/// Reports that a test cannot run here, past the harness, which hides what a passing test prints;
/// `make test` lists it at its end.
fn left_out(what: &str, why: &str) {
    // In one write, because others print at the same time.
    let _ = io::stderr().write_all(format!("left out: {what}: {why}\n").as_bytes());
}

/// The output of a command; it must succeed.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    String::from_utf8(output.stdout).expect("it prints text")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A C compiler, as strict as a program may set it.
fn cc(standard: &str) -> Command {
    let is_cpp = standard.starts_with("c++");
    let mut cc = Command::new(if is_cpp { "c++" } else { "cc" });
    cc.args([&format!("-std={standard}"), "-pedantic", "-Wall", "-Wextra", "-Werror", "-g"]);
    if !is_cpp {
        cc.arg("-Wstrict-prototypes");
    }
    cc.arg("-I").arg(home().join("include"));
    cc
}

/// A folder of its own for one test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}
