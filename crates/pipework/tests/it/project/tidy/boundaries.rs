//! Names that only a few files may use: system calls, locks, standard streams, `unsafe`.

use std::collections::BTreeSet;

use super::lexer::{code, flat_uses, names, names_whole, numbered, without_tests};
use super::{BOUNDARIES, C_LIBRARY, COMMAND, CORE, Fault, File, UNSAFE, hold, tree};

#[test]
fn names_behind_a_boundary_are_used_only_there() {
    fn rule(file: &File) -> Vec<Fault> {
        let Some(path) = file.in_core() else { return vec![] };
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&without_tests(&code(&file.text)))) {
            let at_home =
                |home: &&str| path.split(['/', '.']).next() == home.strip_suffix(".rs") || path == *home;
            for (words, homes) in BOUNDARIES.iter().filter(|(_, homes)| !homes.iter().any(at_home)) {
                faults.extend(words.iter().filter(|word| names(line, word)).map(|word| {
                    (
                        number,
                        format!(
                            "`{word}` belongs behind a boundary: call what {} offers",
                            homes.join(" or ")
                        ),
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
    /// One file names the locks, and lends a lock's value only to closures that are `Send`. Calls
    /// that make a `Python` token out of nothing, which could be made inside such a closure, are
    /// named in a few files.
    const NAMED_IN: [(&[&str], &[&str]); 2] = [
        (&["Mutex", "RwLock", "Condvar", ".lock(", ".try_lock("], &["locked.rs"]),
        (&["Python::attach", "try_attach", "attach_unchecked"], &["asyncio.rs", "handle.rs", "wait.rs"]),
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
        // The old value would be dropped inside, together with its Python objects.
        faults.extend(
            lent(&code(&file.text)).into_iter().filter(|(_, body)| sets_option(body)).map(|(number, _)| {
                (number, "an `Option` is set under the lock: `replace` or `take` it".into())
            }),
        );
        faults
    }
    /// The closures that get a lock's value, with their lines.
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
    /// Whether an existing variable is set to an `Option`, and not a new one.
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
fn command_uses_standard_streams_through_one_file() {
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
fn unsafe_appears_only_in_the_listed_files() {
    fn has_unsafe(file: &File) -> bool {
        file.is_rust() && numbered(&code(&file.text)).any(|(_, line)| is_unsafe(file, line))
    }
    assert!(has_unsafe(&File::sample("a.rs", "fn f() { unsafe { g() } }")));
    assert!(has_unsafe(&File::sample("a.rs", EXPORT)));
    assert!(!has_unsafe(&File::sample(&format!("{C_LIBRARY}a.rs"), EXPORT)));
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

/// Before a function that C calls: unsafe, since two libraries may give a function the same name.
const EXPORT: &str = "#[unsafe(no_mangle)]";

/// Whether something on a line of code is unsafe. Names of the C library begin with `pwk_`, which
/// says that they are its own.
fn is_unsafe(file: &File, line: &str) -> bool {
    let is_ours = file.path.starts_with(C_LIBRARY) && line.trim() == EXPORT;
    !is_ours && names_whole(line, "unsafe")
}

#[test]
fn functions_for_c_have_the_pwk_prefix() {
    fn rule(file: &File) -> Vec<Fault> {
        let code = code(&file.text);
        // In code without literals, the text "C" is gone.
        let pairs = numbered(&code).zip(file.text.lines().skip(1));
        let exported = pairs.filter(|((_, line), _)| file.is_rust() && line.trim() == EXPORT);
        let foreign = exported.filter(|(_, next)| !next.starts_with("pub extern \"C\" fn pwk_"));
        foreign
            .map(|((number, _), _)| (number, "what C calls is `pub extern \"C\" fn pwk_..`".into()))
            .collect()
    }
    let function = |head: &str| format!("{EXPORT}\npub {head}() {{}}\n");
    let bad = [function("extern \"C\" fn call"), function("fn pwk_call")];
    let bad = bad.each_ref().map(|text| (C_LIBRARY, "a.rs", &**text));
    hold(rule, &bad, &[(C_LIBRARY, "a.rs", &function("extern \"C\" fn pwk_call"))]);
}

#[test]
fn every_unsafe_says_why_it_is_sound() {
    /// Searches from the line with `unsafe` upwards, as far as its statement or item extends.
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
            .filter(|i| is_unsafe(file, code[*i]) && !is_argued(&lines, &code, *i))
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
