//! The part of the library that a compiled program relies on: `abi/symbols.txt` are the functions,
//! `abi/layout.txt` the structs and constants as a C compiler sees them.
//!
//! An added line keeps every program working. A changed or removed line needs another soname. Until
//! the first release, remove the line by hand together with its function or constant.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::header::header;
use crate::install::series;
use crate::sources::{Entry, entries};
use crate::{Folder, built, cc, done, is_written, read};

const SYMBOLS: &str = "abi/symbols.txt";
const LAYOUT: &str = "abi/layout.txt";

/// Every function, by its name.
pub(crate) fn functions() -> BTreeSet<String> {
    let names = entries().into_iter().filter_map(|entry| match entry {
        Entry::Function { name, .. } => Some(name),
        _ => None,
    });
    names.collect()
}

#[test]
fn functions_of_the_abi_exist() {
    let found = functions();
    keeps(SYMBOLS, &found);
    is_written(SYMBOLS, &found.iter().map(|name| format!("{name}\n")).collect::<String>());
}

#[test]
fn structs_and_constants_match_the_abi() {
    let folder = Folder::new();
    fs::write(folder.join("layout.c"), printer()).unwrap();
    // The file of the sources, even if another file has its place.
    fs::write(folder.join("pipework.h"), header()).unwrap();
    done(cc("c11").arg(folder.join("layout.c")).arg("-o").arg(folder.join("layout")));
    let found = done(&mut Command::new(folder.join("layout")));
    keeps(LAYOUT, &found.lines().map(String::from).collect());
    is_written(LAYOUT, &found);
}

#[test]
fn shared_library_exports_only_the_functions() {
    let listed = done(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(built()));
    assert_eq!(symbols(&listed), functions());
}

/// The names in the output of `nm`.
pub(crate) fn symbols(listed: &str) -> BTreeSet<String> {
    let lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.len() == 3).map(|words| words[2].to_string()).collect()
}

#[test]
fn shared_library_has_its_soname_and_stays_loaded() {
    let said = done(Command::new("readelf").arg("--dynamic").arg(built()));
    assert!(said.contains(&format!("soname: [libpipework.so.{}]", series())), "{said}");
    assert!(said.contains("NODELETE"), "{said}");
}

/// Every line of the list is among those that were found.
fn keeps(path: &str, found: &BTreeSet<String>) {
    let listed = read(path);
    let gone: Vec<&str> = listed.lines().filter(|line| !found.contains(*line)).collect();
    assert!(gone.is_empty(), "{path}: changed or gone, which asks for another soname: {gone:?}");
}

/// A program that prints the lines of `LAYOUT`.
fn printer() -> String {
    let mut lines = String::new();
    for entry in entries() {
        match entry {
            Entry::Struct { name, fields, .. } => {
                lines += &format!(
                    "    printf(\"{name}: %zu bytes, aligned to %zu\\n\", sizeof({name}), _Alignof({name}));\n"
                );
                for field in fields {
                    let field = field.name;
                    lines += &format!(
                        "    printf(\"{name}.{field}: at %zu, %zu bytes\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));\n"
                    );
                }
            }
            Entry::Alias { name, .. } => {
                lines += &format!("    printf(\"{name}: %zu bytes\\n\", sizeof({name}));\n");
            }
            // An initialiser is no number.
            Entry::Constant { name, value, .. } if !value.starts_with('{') => {
                lines += &format!("    printf(\"{name}: %lld\\n\", (long long)({name}));\n");
            }
            _ => {}
        }
    }
    format!("#include \"pipework.h\"\n#include <stdio.h>\n\nint main(void) {{\n{lines}    return 0;\n}}\n")
}
