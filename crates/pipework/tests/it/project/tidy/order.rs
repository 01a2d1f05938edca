//! Which module may use which, and in which order they stand.

use super::lexer::{code, first_word, flat_uses, names_whole, numbered, without_tests};
use super::{CORE, Fault, File, ORDER, ROOM_STANDS_ON, ROOMS, hold};

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
