//! Lints the project itself: the rules of ARCHITECTURE.md that no compiler knows.
//!
//! A rule is a function from one file to its faults, each a line number and a sentence that says what to do instead. Every
//! test first shows that its rule bites, on samples that break it, and then holds the rule against the whole tree.
//! Rules read code without comments and literals; they do not parse Rust, and what a macro builds escapes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lexer::{code, first_word, flat_uses, names, names_whole, numbered, without_tests};

mod lexer;

/// The modules of the core in reading order: each may use those before it, rooms only where `ROOM_STANDS_ON` says so.
const ORDER: [&str; 11] =
    ["error", "deadline", "sys", "sync", "spin", "region", "event", "fd", "pipe", "atomic", "reqrep"];
const ROOMS: [&str; 4] = ["fd", "pipe", "atomic", "reqrep"];
const ROOM_STANDS_ON: [(&str, &str); 1] = [("atomic", "fd")];

/// The walls: what only the files behind them may name. A file's folder belongs to it.
const WALLS: [(&[&str], &[&str]); 5] = [
    (&["rustix::", "libc::", "unsafe extern"], &["sys.rs"]),
    (&["sync::atomic"], &["sync.rs"]),
    (&["futex"], &["sys.rs", "sync.rs"]),
    (
        &["ptr::copy", "copy_to_nonoverlapping", "copy_from_nonoverlapping", "copy_nonoverlapping"],
        &["region.rs"],
    ),
    (&["mmap"], &["sys.rs"]),
];

/// Every file with `unsafe` in it. A new entry is a decision: it is reviewed as one.
const UNSAFE: [&str; 17] = [
    "bench/src/measure.rs",
    "bench/src/reqrep/bare.rs",
    "crates/pipework-cli/src/sys.rs",
    "crates/pipework/src/fd/raw.rs",
    "crates/pipework/src/pipe/ring.rs",
    "crates/pipework/src/region.rs",
    "crates/pipework/src/reqrep/segment.rs",
    "crates/pipework/src/sys.rs",
    "crates/pipework/src/sys/file.rs",
    "crates/pipework/src/sys/memory.rs",
    "crates/pipework/src/sys/net.rs",
    "crates/pipework/tests/it/harness/damage.rs",
    "crates/pipework/tests/it/harness/process.rs",
    "crates/pipework/tests/it/project/sanitizer.rs",
    "crates/pipework/tests/it/harness/tracee.rs",
    "python/src/buffer.rs",
    "python/src/fd/raw.rs",
];

/// Lines that are neither blank nor comment nor test, in one source file of a crate. The aim is about 400.
const MAX_CODE_LINES: usize = 420;
/// Lines of `//!` that open a file.
const MAX_OPENING_LINES: usize = 15;

const CORE: &str = "crates/pipework/src/";

/// A line number, counted from 1, and what to do about it.
type Fault = (usize, String);

struct File {
    /// From the root of the project, with `/` between its parts.
    path: String,
    text: String,
}

impl File {
    fn sample(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    /// The path inside the core's source folder, if this is one of its modules and not its map or its tests.
    fn in_core(&self) -> Option<&str> {
        self.path.strip_prefix(CORE).filter(|path| self.is_source() && *path != "lib.rs")
    }

    /// A source file of any of the crates, tests not included.
    fn is_source(&self) -> bool {
        let in_src = self.path.starts_with("crates/") && self.path.contains("/src/");
        (in_src || self.path.starts_with("python/src/"))
            && self.is_rust()
            && !self.path.ends_with("/tests.rs")
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

// ---------------------------------------------------------------- the rules

#[test]
fn what_a_wall_holds_is_named_behind_it_only() {
    fn rule(file: &File) -> Vec<Fault> {
        let Some(path) = file.in_core() else { return vec![] };
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&without_tests(&code(&file.text)))) {
            let at_home =
                |home: &&str| path.split(['/', '.']).next() == home.strip_suffix(".rs") || path == *home;
            for (words, homes) in WALLS.iter().filter(|(_, homes)| !homes.iter().any(at_home)) {
                faults.extend(words.iter().filter(|word| names(line, word)).map(|word| {
                    (
                        number,
                        format!("`{word}` belongs behind a wall: call what {} offers", homes.join(" or ")),
                    )
                }));
            }
        }
        faults
    }
    let bad = [
        (CORE, "pipe.rs", "fn f() {\n    rustix::io::read(fd, buf)\n}"),
        (CORE, "atomic/writer.rs", "use rustix::{io, pipe};"),
        (CORE, "event.rs", "use std::sync::{\n    Arc,\n    atomic::{AtomicU32, Ordering},\n};"),
        (CORE, "event.rs", "fn f() { sys::futex_wait(word) }"),
        (CORE, "pipe.rs", "unsafe { std::ptr::copy_nonoverlapping(from, to, len) }"),
        (CORE, "reqrep/queue.rs", "let map = sys::mmap(fd)?;"),
        (CORE, "fd.rs", "unsafe extern \"C\" { fn accept4(fd: i32) -> i32; }"),
    ];
    let good = [
        (CORE, "sys.rs", "use rustix::io;"),
        (CORE, "sys/memory.rs", "let map = rustix::mm::mmap(fd)?;"),
        (CORE, "pipe.rs", "// rustix::io says so\nlet text = \"libc::read\"; // libc::"),
        (CORE, "pipe.rs", "#[cfg(test)]\nmod tests {\n    use std::sync::atomic::AtomicU32;\n}"),
        ("crates/pipework-cli/src/", "run.rs", "use rustix::process;"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn no_python_runs_under_a_lock() {
    /// What a lock needs is named in one file, whose lock is lent to closures that are `Send`; what makes a `Python` token out of nothing, and could do so in
    /// such a closure, is named in few.
    const NAMED_IN: [(&[&str], &[&str]); 2] = [
        (&["Mutex", "RwLock", "Condvar", ".lock(", ".try_lock("], &["locked.rs"]),
        (&["Python::attach", "try_attach", "attach_unchecked"], &["aio.rs", "handle.rs", "wait.rs"]),
    ];
    fn rule(file: &File) -> Vec<Fault> {
        let Some(path) = file.path.strip_prefix("python/src/") else { return vec![] };
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&code(&file.text))) {
            for (words, homes) in NAMED_IN.iter().filter(|(_, homes)| !homes.contains(&path)) {
                faults.extend(words.iter().filter(|word| line.contains(*word)).map(|word| {
                    (number, format!("`{word}` is for {} only: share by `Locked`", homes.join(", ")))
                }));
            }
        }
        // What stood there would be dropped inside, Python objects and all.
        faults.extend(
            lent(&code(&file.text)).into_iter().filter(|(_, body)| sets_option(body)).map(|(number, _)| {
                (number, "an `Option` is set under the lock: `replace` or `take` it".into())
            }),
        );
        faults
    }
    /// The closures that a lock's value is lent to, with their lines.
    fn lent(code: &str) -> Vec<(usize, &str)> {
        let starts = code.match_indices(".with(|").map(|(at, _)| at);
        let body = |at: usize| {
            let mut depth = 0;
            let end = code[at..].find(|char: char| {
                depth += i32::from(char == '(') - i32::from(char == ')');
                char == ')' && depth == 0
            });
            (code[..at].matches('\n').count() + 1, &code[at..end.map_or(code.len(), |end| at + end)])
        };
        starts.map(body).collect()
    }
    /// Whether a place, and no new variable, gets one.
    fn sets_option(body: &str) -> bool {
        body.split([';', '{', '|']).any(|statement| {
            let sets = statement.contains(" = Some(") || statement.trim_end().ends_with(" = None");
            sets && !statement.trim_start().starts_with("let ") && !statement.contains(" let ")
        })
    }
    const FACE: &str = "python/src/";
    let bad = [
        (FACE, "reqrep/turns.rs", "fn f() { self.0.with(|future| *future = Some(polled)); }"),
        (FACE, "task.rs", "fn f() { self.0.with(|state| { state.end = None; }) }"),
        (FACE, "reqrep/shared.rs", "use std::sync::{Arc, Mutex};"),
        (FACE, "pipe.rs", "fn f() { state.lock().end.clone().ok_or_else(|| closed(py)) }"),
        (FACE, "task.rs", "fn f() { self.0.with(|_| Python::attach(|py| py.None())) }"),
    ];
    let good = [
        (FACE, "locked.rs", "use std::sync::Mutex;"),
        (FACE, "task.rs", "fn f() { self.0.with(|x| { if let Some(y) = x { y.on = true } }); a = None; }"),
        (FACE, "wait.rs", "fn f() { Python::try_attach(|py| py.check_signals()) }"),
        (CORE, "fd.rs", "use std::sync::Mutex;"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn the_command_uses_standard_streams_by_way_of_one_file() {
    const COMMAND: &str = "crates/pipework-cli/src/";
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.starts_with(COMMAND) || file.path.ends_with("/streams.rs") {
            return vec![];
        }
        let ways = ["io::stdin", "io::stdout", "io::stderr", "stdio::"];
        let macros = ["print!", "println!", "eprint!", "eprintln!"];
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&without_tests(&code(&file.text)))) {
            let ways = ways.iter().filter(|way| names(line, way));
            let macros =
                macros.iter().filter(|name| line.split_whitespace().any(|word| word.starts_with(*name)));
            faults.extend(ways.chain(macros).map(|name| {
                (number, format!("`{name}` hides a closed or non-blocking stream: use streams.rs"))
            }));
        }
        faults
    }
    let bad = [
        (COMMAND, "man.rs", "fn f() { io::stdout().write_all(page); }"),
        (COMMAND, "man.rs", "use std::io::{Write, stdout};"),
        (COMMAND, "demo/pipe.rs", "fn f() {\n    println!(\"{}\", 1);\n}"),
    ];
    let good = [
        (COMMAND, "streams.rs", "fn f() { rustix::stdio::stdout(); }"),
        (COMMAND, "man.rs", "fn f() { streams::stdout(); }"),
        (CORE, "atomic/mod.rs", "fn f() { std::io::stdin(); }"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn modules_use_only_what_stands_before_them() {
    fn may_use(user: &str, used: &str) -> bool {
        let place = |name| ORDER.iter().position(|module| *module == name);
        let rooms = ROOMS.contains(&user) && ROOMS.contains(&used);
        place(used) <= place(user) && (!rooms || user == used || ROOM_STANDS_ON.contains(&(user, used)))
    }
    fn rule(file: &File) -> Vec<Fault> {
        let Some(path) = file.in_core() else { return vec![] };
        let user = path.split(['/', '.']).next().unwrap_or(path);
        if !ORDER.contains(&user) {
            return vec![(
                1,
                format!("module `{user}` has no place in the reading order (ORDER, ARCHITECTURE.md)"),
            )];
        }
        let code = flat_uses(&without_tests(&code(&file.text)));
        let mut faults = vec![];
        for (number, line) in numbered(&code) {
            for used in line.match_indices("crate::").map(|(at, root)| first_word(&line[at + root.len()..])) {
                if !ORDER.contains(&used) {
                    faults.push((
                        number,
                        format!("`crate::{used}`: name it through the module that it comes from"),
                    ));
                } else if !may_use(user, used) {
                    faults.push((
                        number,
                        format!("`{user}` must not use `{used}`, which stands after it or is another room"),
                    ));
                }
            }
            let climbs =
                if path.contains('/') && !path.ends_with("mod.rs") { "super::super::" } else { "super::" };
            if line.contains(climbs) {
                faults.push((number, format!("`{climbs}` leaves the room by the window: write `crate::`")));
            }
        }
        faults
    }
    let bad = [
        (CORE, "deadline.rs", "use crate::event::Event;"),
        (CORE, "pipe.rs", "use crate::{error::Error, fd};"),
        (CORE, "fd.rs", "fn f() -> crate::atomic::Reader {}"),
        (CORE, "reqrep/slot.rs", "use crate::atomic::frame;"),
        (CORE, "pipe.rs", "use crate::Error;"),
        (CORE, "pipe.rs", "use super::fd;"),
        (CORE, "atomic/reader.rs", "use super::super::pipe;"),
        (CORE, "thing.rs", ""),
    ];
    let good = [
        (CORE, "atomic/reader.rs", "use crate::{error::Error, fd::PipeEnd, sys};\nuse super::frame;"),
        (CORE, "pipe.rs", "use crate::event;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn what_calls_itself_pure_touches_nothing_outside() {
    fn rule(file: &File) -> Vec<Fault> {
        let opening = file.text.lines().take_while(|line| line.starts_with("//!"));
        if file.in_core().is_none() || !opening.into_iter().any(|line| names_whole(line, "Pure")) {
            return vec![];
        }
        let outside =
            ["std::fs", "std::io", "std::os", "std::process", "std::thread", "std::time", "std::env"];
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&without_tests(&code(&file.text)))) {
            let modules =
                ORDER.iter().filter(|module| **module != "error").map(|module| format!("crate::{module}"));
            let named = modules.chain(outside.map(String::from)).find(|path| names_whole(line, path));
            faults.extend(named.map(|path| (number, format!("a pure file has no business with `{path}`"))));
        }
        faults
    }
    let bad = [
        (CORE, "atomic/frame.rs", "//! Parts. Pure.\nuse crate::{error, sys};"),
        (CORE, "atomic/mixed.rs", "//! Text. Pure: it is fed.\nfn f() { std::thread::yield_now() }"),
    ];
    let good = [
        (CORE, "atomic/frame.rs", "//! Parts. Pure.\nuse crate::error::Result;\nuse super::item::WriterKey;"),
        (CORE, "atomic/reader.rs", "//! Reads.\nuse crate::sys;"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn modules_are_declared_in_reading_order() {
    fn rule(file: &File) -> Vec<Fault> {
        if file.path != format!("{CORE}lib.rs") {
            return vec![];
        }
        let code = code(&file.text);
        let declared = numbered(&code).filter_map(|(number, line)| {
            let name = line.trim().strip_suffix(';')?.split_once("mod ")?.1;
            Some((number, ORDER.iter().position(|module| *module == name)?))
        });
        let mut last = 0;
        let mut faults = vec![];
        for (number, place) in declared {
            if place < last {
                faults.push((number, format!("`{}` is declared after `{}`", ORDER[place], ORDER[last])));
            }
            last = place;
        }
        faults
    }
    let bad = [(CORE, "lib.rs", "mod deadline;\npub mod atomic;\nmod error;")];
    let good = [(CORE, "lib.rs", "mod error;\nmod deadline;\n#[cfg(fuzzing)]\npub mod fuzzing;")];
    hold(rule, &bad, &good);
}

#[test]
fn unsafe_stands_in_the_listed_files_only() {
    fn has_unsafe(file: &File) -> bool {
        file.is_rust() && numbered(&code(&file.text)).any(|(_, line)| names_whole(line, "unsafe"))
    }
    assert!(has_unsafe(&File::sample("a.rs", "fn f() { unsafe { g() } }")));
    assert!(!has_unsafe(&File::sample(
        "a.rs",
        "#![deny(unsafe_code)] // unsafe\nfn f() { say(\"unsafe\") }"
    )));

    let found: BTreeSet<String> = tree().into_iter().filter(has_unsafe).map(|file| file.path).collect();
    let listed: BTreeSet<String> = UNSAFE.map(String::from).into();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty(),
        "unsafe outside the listed files; a safe way, or a review and a line in UNSAFE: {new:?}"
    );
    assert!(gone.is_empty(), "these hold no unsafe any more: take them off UNSAFE: {gone:?}");
}

#[test]
fn every_unsafe_says_why_it_is_sound() {
    /// From the line with `unsafe` upwards, as far as the statement or the item that it is in reaches.
    fn is_argued(lines: &[&str], code: &[&str], at: usize) -> bool {
        let says = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
        let above = (0..at)
            .rev()
            .take(12)
            .take_while(|i| !lines[*i].trim().is_empty() && !names_whole(code[*i], "unsafe"));
        says(lines[at]) || above.into_iter().any(|i| says(lines[i]))
    }
    fn rule(file: &File) -> Vec<Fault> {
        if !file.is_rust() {
            return vec![];
        }
        let code = code(&file.text);
        let (lines, code): (Vec<_>, Vec<_>) = (file.text.lines().collect(), code.lines().collect());
        (0..code.len())
            .filter(|i| names_whole(code[*i], "unsafe") && !is_argued(&lines, &code, *i))
            .map(|i| {
                (i + 1, "say above it why it is sound: `// SAFETY: ...`, or `# Safety` for a caller".into())
            })
            .collect()
    }
    let bad = [
        ("", "a.rs", "fn f() {\n    unsafe { g() }\n}"),
        (
            "",
            "a.rs",
            "// SAFETY: two for the price of one.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}",
        ),
        ("", "a.rs", "// SAFETY: too far off.\n\nunsafe impl Send for A {}"),
    ];
    let good = [
        ("", "a.rs", "/// Does.\n///\n/// # Safety\n///\n/// The caller knows.\n#[inline]\nunsafe fn f() {}"),
        ("", "a.rs", "// SAFETY: g is harmless.\nlet answer =\n    unsafe { g() };"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn files_open_with_what_they_are_and_stay_small() {
    fn rule(file: &File) -> Vec<Fault> {
        let mut faults = vec![];
        // The front pages, lib.rs and mod.rs, are documentation for users and may be long.
        let is_front_page = file.path.ends_with("lib.rs") || file.path.ends_with("mod.rs");
        let opening = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        if file.is_rust() && (opening == 0 || (opening > MAX_OPENING_LINES && !is_front_page)) {
            faults.push((
                1,
                format!("open with 1 to {MAX_OPENING_LINES} lines of `//!`: what it is, what it keeps, what it leaves out"),
            ));
        }
        let code = if file.is_source() { without_tests(&code(&file.text)) } else { String::new() };
        let len = code.lines().filter(|line| !line.trim().is_empty()).count();
        if len > MAX_CODE_LINES {
            faults.push((
                1,
                format!("{len} lines of code, {MAX_CODE_LINES} at most: look for the second thing in it"),
            ));
        }
        faults
    }
    let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(MAX_CODE_LINES + 1));
    let fits = format!("//! Fits.\n// Why.\n\n{}", "fn f() {}\n".repeat(MAX_CODE_LINES));
    let talks = format!("{}fn f() {{}}", "//! Talk.\n".repeat(MAX_OPENING_LINES + 1));
    hold(
        rule,
        &[(CORE, "a.rs", &long), (CORE, "a.rs", &talks), ("", "a.rs", "fn f() {}")],
        &[(CORE, "a.rs", &fits)],
    );
}

#[test]
fn no_file_is_named_for_nothing() {
    fn rule(file: &File) -> Vec<Fault> {
        const EMPTY: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "types", "misc", "stuff"];
        let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        parts
            .filter(|part| EMPTY.contains(part))
            .map(|part| (1, format!("`{part}` says nothing: name the idea")))
            .collect()
    }
    hold(rule, &[("", "a/utils.rs", ""), ("", "common/a.rs", "")], &[("", "a/commonly.rs", "")]);
}

#[test]
fn nothing_is_left_unfinished() {
    fn rule(file: &File) -> Vec<Fault> {
        // Taken apart, so that this file does not find itself.
        let marks =
            [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("TO", "DO"), concat!("FIX", "ME")];
        let found = numbered(&file.text).filter(|(_, line)| marks.iter().any(|mark| names(line, mark)));
        found.map(|(number, line)| (number, format!("finish it, or take it out: {}", line.trim()))).collect()
    }
    let bad = [("", "a.rs", concat!("fn f() { to", "do!() }")), ("", "a.md", concat!("FIX", "ME: later"))];
    hold(rule, &bad, &[("", "a.md", "a method, a to-do list")]);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    fn rule(file: &File) -> Vec<Fault> {
        let homes =
            [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
        let found = numbered(&file.text).filter(|(_, line)| homes.iter().any(|home| line.contains(home)));
        found
            .map(|(number, line)| {
                (number, format!("a path that exists on one machine only: {}", line.trim()))
            })
            .collect()
    }
    hold(
        rule,
        &[("", "a.json", concat!("{\"file\": \"/ro", "ot/words\"}"))],
        &[("", "a.md", "/usr/share/dict/words")],
    );
}

#[test]
fn links_between_documents_resolve() {
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let folder = root().join(&file.path).parent().expect("a file lies in a folder").to_path_buf();
        let mut faults = vec![];
        for (number, line) in numbered(&file.text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
            // What holds a colon is a web address or a path of Rust, which rustdoc checks.
            let local = targets.filter(|target| !target.is_empty() && !target.contains(':'));
            let missing = local.filter(|target| !folder.join(target).exists());
            faults.extend(missing.map(|target| (number, format!("`{target}` does not exist"))));
        }
        faults
    }
    let bad = [("", "README.md", "See [the guide](docs/nowhere.md#start).")];
    hold(
        rule,
        &bad,
        &[("", "README.md", "[a](Makefile) [b](#here) [c](https://example.org) [d](crate::atomic)")],
    );
}

#[test]
fn documents_name_make_targets_that_exist() {
    fn rule(file: &File) -> Vec<Fault> {
        let makefile = read("Makefile");
        let heads = makefile.lines().filter_map(|line| line.split_once(':')).map(|(head, _)| head);
        let targets: BTreeSet<&str> = heads.flat_map(str::split_whitespace).collect();
        let quoted = |line: &str| -> Vec<String> {
            let commands = line.split('`').chain(line.strip_prefix("$ "));
            commands.filter_map(|command| command.strip_prefix("make ")).map(String::from).collect()
        };
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let mut faults = vec![];
        for (number, line) in numbered(&file.text) {
            for command in quoted(line.trim_start()) {
                let words = command.split_whitespace().take_while(|word| *word != "#");
                let unknown = words.filter(|word| !word.contains('=') && !targets.contains(word));
                faults.extend(unknown.map(|word| (number, format!("`make {word}` does not exist"))));
            }
        }
        faults
    }
    let bad = [("", "a.md", "Run `make coffee`."), ("", "a.md", "```\n$ make demo coffee\n```")];
    hold(rule, &bad, &[("", "a.md", "```\nmake demo FILE=words.txt # shows it\n```\nDo make sure to.")]);
}

#[test]
fn promises_name_tests_that_exist() {
    /// The names in the rows of its tables that are no test of `files`.
    fn unknown<'a>(page: &'a str, files: &[File]) -> Vec<&'a str> {
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|name| name.contains('_'));
        let is_test = |name: &str| {
            let heads = [format!("fn {name}("), format!("def {name}(")];
            files.iter().any(|file| heads.iter().any(|head| file.text.contains(head)))
        };
        quoted.filter(|name| !is_test(name)).collect()
    }
    let sample = [File::sample("a.rs", "#[test]\nfn it_is_kept() {}")];
    assert_eq!(unknown("| P1 | all | `it_is_kept`, `it_is_broken` |", &sample), ["it_is_broken"]);
    let page = read("docs/promises.md");
    assert!(page.matches("| P").count() >= 13, "the promises were found");
    assert_eq!(
        unknown(&page, &tree()),
        Vec::<&str>::new(),
        "docs/promises.md names tests that are not there"
    );
}

#[test]
fn the_changelog_begins_with_the_version_of_the_workspace() {
    fn version_of(manifest: &str) -> Option<&str> {
        let package = manifest.split_once("[workspace.package]")?.1;
        package
            .lines()
            .find_map(|line| line.strip_prefix("version = "))?
            .trim()
            .strip_prefix('"')?
            .strip_suffix('"')
    }
    /// The version in the first heading that holds one: `## 0.1.0 (2026-01-01)`, `## [0.1.0]`.
    fn newest(changelog: &str) -> Option<&str> {
        let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
        headings.find_map(|heading| {
            let version = heading.trim_start_matches(['[', 'v']).split([']', ' ']).next()?;
            version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
        })
    }
    let manifest = "[workspace.package]\nversion = \"0.2.0\"\n";
    assert_eq!(version_of(manifest), Some("0.2.0"));
    assert_eq!(
        newest("# Changes\n\n## Unreleased\n\n## [0.2.0] - today\n\n## 0.1.0\n"),
        version_of(manifest)
    );
    assert_ne!(newest("# Changes\n\n## 0.1.0\n"), version_of(manifest));

    let (manifest, changelog) = (read("Cargo.toml"), read("CHANGELOG.md"));
    let version = version_of(&manifest).expect("Cargo.toml gives the version under [workspace.package]");
    assert_eq!(
        newest(&changelog),
        Some(version),
        "the newest entry of CHANGELOG.md is not the version of Cargo.toml"
    );
}

// ---------------------------------------------------------------- holding a rule

/// Shows that `rule` finds a fault in each of the `bad` samples and none in the `good` ones; then holds it against the tree.
/// A sample is a folder, a file name and a text.
fn hold(rule: fn(&File) -> Vec<Fault>, bad: &[(&str, &str, &str)], good: &[(&str, &str, &str)]) {
    let sample = |(folder, name, text): &(&str, &str, &str)| File::sample(&format!("{folder}{name}"), text);
    for file in bad.iter().map(sample) {
        assert!(
            !rule(&file).is_empty(),
            "the rule does not see what is wrong with {}:\n{}",
            file.path,
            file.text
        );
    }
    for file in good.iter().map(sample) {
        assert_eq!(rule(&file), [], "the rule is too strict with {}:\n{}", file.path, file.text);
    }
    let mut faults = BTreeSet::new();
    for file in tree() {
        faults
            .extend(rule(&file).into_iter().map(|(number, what)| format!("{}:{number}: {what}", file.path)));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.into_iter().collect::<Vec<_>>().join("\n"));
}

// ---------------------------------------------------------------- the tree

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file of the project. Left out: what cargo, Python or the fuzzer built, and what is hidden, but for CI.
fn tree() -> Vec<File> {
    fn walk(folder: &Path, path: &str, files: &mut Vec<File>) {
        let found = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in found.map(|entry| entry.expect("a folder can be read to its end")) {
            let name = entry.file_name().into_string().expect("names are UTF-8");
            let place = entry.path();
            // Cargo marks only a folder that it has made itself, and `target` may be made by others first.
            let is_built = place.join("CACHEDIR.TAG").exists()
                || ["target", "corpus", "artifacts", "__pycache__"].contains(&name.as_str());
            if is_built || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            let path = format!("{path}{name}");
            if place.is_dir() {
                walk(&place, &format!("{path}/"), files);
            } else if let Ok(text) = fs::read_to_string(&place) {
                files.push(File { path, text });
            }
        }
    }
    let mut files = vec![];
    walk(&root(), "", &mut files);
    assert!(files.iter().any(|file| file.path == "Makefile"), "the tree was found");
    files
}
