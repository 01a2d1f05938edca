//! The map in ARCHITECTURE.md: every source file of the core, of the command and of the C library
//! has its row, and no row is of a file that is gone.

use super::lexer::numbered;
use super::{C_LIBRARY, COMMAND, CORE, Fault, File, hold, read, root};

/// The files that a row of the map is of, and those that the rest of it may name.
struct Row {
    number: usize,
    files: Vec<String>,
    named: Vec<String>,
}

/// The rows of the tables of core, command and C library, with paths from the root of the project.
fn rows(page: &str) -> Vec<Row> {
    let (mut base, mut folder) = (None, String::new());
    let mut rows = vec![];
    for (number, line) in numbered(page) {
        if let Some(heading) = line.strip_prefix("## ") {
            folder.clear();
            base = match heading.split(',').next() {
                Some("The core") => Some(CORE),
                Some("The command") => Some(COMMAND),
                Some("The C library") => Some(C_LIBRARY),
                _ => None,
            };
        } else if let Some((inside, _)) = line.strip_prefix("Inside `").and_then(|rest| rest.split_once('`'))
        {
            folder = inside.into();
        }
        let Some((base, (first, rest))) =
            base.zip(line.strip_prefix("| ").and_then(|row| row.split_once('|')))
        else {
            continue;
        };
        let quoted = |cell: &str| -> Vec<String> {
            cell.split('`').skip(1).step_by(2).map(|name| format!("{base}{folder}{name}")).collect()
        };
        let (folders, files): (Vec<_>, Vec<_>) =
            quoted(first).into_iter().partition(|name| name.ends_with('/'));
        let names = rest.split('`').skip(1).step_by(2);
        let inside = names.flat_map(|name| folders.iter().map(move |folder| format!("{folder}{name}")));
        let named = quoted(rest).into_iter().chain(inside).collect();
        rows.push(Row { number, files, named });
    }
    rows
}

#[test]
fn every_source_file_has_its_row_in_the_map() {
    fn rule(file: &File) -> Vec<Fault> {
        if file.path == "ARCHITECTURE.md" {
            let gone = |path: &&String| !root().join(path).exists();
            let faults_of = |row: &Row| -> Vec<Fault> {
                row.files.iter().filter(gone).map(|path| (row.number, format!("{path} is gone"))).collect()
            };
            return rows(&file.text).iter().flat_map(faults_of).collect();
        }
        let is_on_map =
            file.is_source() && [CORE, COMMAND, C_LIBRARY].iter().any(|base| file.path.starts_with(base));
        // A mod.rs is its folder, and lib.rs the crate.
        let is_folder = file.path.ends_with("/mod.rs") || file.path.ends_with("/lib.rs");
        let page = read("ARCHITECTURE.md");
        let has_row = || {
            rows(&page).iter().any(|row| row.files.iter().chain(&row.named).any(|path| *path == file.path))
        };
        if !is_on_map || is_folder || has_row() {
            return vec![];
        }
        vec![(1, "ARCHITECTURE.md has no row for it: say there what it owns".into())]
    }
    let gone = "## The core, in reading order\n| `error.rs`, `gone.rs` | errors |";
    let bad = [
        (CORE, "unheard.rs", ""),
        (CORE, "pipe/spin.rs", ""),
        (COMMAND, "run/ring.rs", ""),
        (C_LIBRARY, "reqrep/ring.rs", ""),
        ("", "ARCHITECTURE.md", gone),
    ];
    let good = [
        (CORE, "spin.rs", ""),
        (CORE, "pipe/ring.rs", ""),
        (CORE, "sys/file.rs", ""),
        (CORE, "pipe/mod.rs", ""),
        (COMMAND, "run/job.rs", ""),
        (C_LIBRARY, "reqrep/segment.rs", ""),
        ("python/src/", "unheard.rs", ""),
    ];
    hold(rule, &bad, &good);
}
