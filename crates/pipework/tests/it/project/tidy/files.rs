//! How long a file is, how it opens, what it is called, and what it must not hold.

use super::lexer::{code, names, numbered, without_tests};
use super::{CORE, Fault, File, MAX_CODE_LINES, MAX_OPENING_LINES, hold};

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
