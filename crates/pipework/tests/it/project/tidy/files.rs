//! The opening of a file, its name, and forbidden contents.

use super::lexer::{names, numbered};
use super::{CORE, Fault, File, hold};

#[test]
fn files_open_with_a_description() {
    fn rule(file: &File) -> Vec<Fault> {
        let is_open = !file.is_rust() || file.text.starts_with("//!");
        if is_open { vec![] } else { vec![(1, "open with `//!`: what it is, what it keeps".into())] }
    }
    hold(rule, &[("", "a.rs", "fn f() {}")], &[(CORE, "a.rs", "//! Fits.\nfn f() {}")]);
}

#[test]
fn file_names_say_what_the_file_holds() {
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
fn files_contain_no_unfinished_marks() {
    fn rule(file: &File) -> Vec<Fault> {
        // Split, so that this file does not find itself.
        let marks =
            [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("TO", "DO"), concat!("FIX", "ME")];
        let found = numbered(&file.text).filter(|(_, line)| marks.iter().any(|mark| names(line, mark)));
        found.map(|(number, line)| (number, format!("finish it, or take it out: {}", line.trim()))).collect()
    }
    let bad = [("", "a.rs", concat!("fn f() { to", "do!() }")), ("", "a.md", concat!("FIX", "ME: later"))];
    hold(rule, &bad, &[("", "a.md", "a method, a to-do list")]);
}

#[test]
fn files_contain_no_path_of_one_machine() {
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
