//! `pipework bench`: every contender runs and has a row. No test can say whether a number is good.

use crate::terminal::Terminal;
use crate::{Folder, clean, fails, sh};

#[test]
fn bench_prints_a_row_for_every_contender() {
    let folder = Folder::new();
    let done = sh(&folder, "pipework bench --quick");
    assert_eq!((done.status, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert!(done.out.starts_with("machine: ") && done.out.contains("Linux "), "{}", done.out);
    let rows: Vec<&str> =
        done.out.lines().filter(|line| line.starts_with("  ") && line.contains(" %")).collect();
    assert_eq!(rows.len(), 8, "{}", done.out);
    for row in rows {
        assert!(
            row.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).any(|figure| figure > 0.0)
        );
    }
}

#[test]
fn bench_runs_only_the_modules_named() {
    let out = clean("pipework bench --quick pipe fd");
    assert!(out.contains("\npipe: ") && out.contains("\nfd: ") && !out.contains("reqrep"), "{out}");
}

#[test]
fn bench_fits_on_a_terminal_and_ends_with_ctrl_c() {
    let folder = Folder::new();
    let mut terminal = Terminal::run(&folder, (24, 80), "pipework bench --quick reqrep; echo over $?");
    terminal.wait_for("over 0");
    let text = terminal.text();
    let row = text.lines().find(|line| line.contains("Unix sockets")).unwrap();
    assert!(row.contains(" x ") && text.contains("Ctrl-C ends it"), "{text}");
    terminal.end();

    let script = "trap : INT; pipework bench pipe; echo ended $?";
    let mut terminal = Terminal::run(&folder, (24, 80), script);
    terminal.wait_for("machine");
    terminal.press("\x03");
    terminal.wait_for("ended 130");
    terminal.end();
}

#[test]
fn bench_fails_on_bad_arguments_or_a_full_output() {
    fails(2, &["one of atomic, reqrep, pipe, fd"], "pipework bench nothing");
    fails(1, &["No space"], "pipework bench --quick pipe > /dev/full");
    // Too few descriptors for anything.
    fails(1, &["Too many open files"], "ulimit -n 5; pipework bench --quick");
}
