//! Every subcommand: on a terminal, before and behind other commands, and with the examples of its
//! help. A subcommand that is in none of these lists fails here.

use crate::terminal::Terminal;
use crate::{Folder, clean, sh};
use std::collections::BTreeSet;

/// The subcommands, as the help lists them.
pub(crate) fn subcommands() -> BTreeSet<String> {
    let help = clean("pipework --help");
    let list = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(String::from).collect()
}

/// Prepares a FIFO, and a stand-in for the program that `nats` becomes.
const BEFORE: &str = "mkfifo fifo; PATH=.:$PATH; printf '#!/bin/sh\\necho \"program: $*\"' > pipework-nats
chmod +x pipework-nats;";

/// The script typed on a terminal, the text that it shows, the keys pressed then, the last text
/// shown.
const ON_A_TERMINAL: [(&str, &str, &str, &str, &str); 14] = [
    ("send", "pipework send | pipework recv", "Ctrl-D ends it", "hello\n\x04", "received 1 message, 6 B"),
    ("recv", "pipework recv", "", "", "it is a terminal"),
    ("run", "pipework run --tag cat", "", "hello\n\x04", "[cat] hello"),
    ("tee", "pipework send --mixed hello | pipework tee --mixed log | pipework recv -m", "", "", "hello"),
    ("serve", "pipework serve channel -- cat", "serving channel with cat; Ctrl-C stops it", "\x03", "^C"),
    (
        "call",
        "(pipework serve -q channel -- tr a-z A-Z & pipework call --wait channel; echo next; kill $!)",
        "Ctrl-D ends it",
        "hello\n\x04",
        "HELLO\nnext",
    ),
    ("ls", "pipework ls", "", "", "unused  FIFO"),
    ("top", "pipework top fifo", "q quit", "q", ""),
    ("doctor", "pipework doctor --fifos fifo", "remove it? [y/N]", "y\n", "removed"),
    ("bench", "pipework bench --quick pipe", "", "", "a pipe"),
    ("demo", "pipework demo --quick", "Ctrl-C ends it", "", "every call was answered or reported"),
    ("nats", "pipework nats expose channel", "", "", "program: expose channel"),
    ("completions", "pipework completions bash", "", "", "complete "),
    ("man", "pipework man", "", "", "man \\-l \\-"),
];

#[test]
fn every_subcommand_runs_on_a_terminal() {
    let names: BTreeSet<_> = ON_A_TERMINAL.iter().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(names, subcommands());
    for (name, script, seen, keys, at_last) in ON_A_TERMINAL {
        let folder = Folder::new();
        let places = "export TMPDIR=$PWD XDG_RUNTIME_DIR=$PWD";
        let script = format!("trap : INT; {BEFORE} {places}; {script}; echo \"it ended with $?\"");
        let mut terminal = Terminal::run(&folder, (24, 80), &script);
        terminal.wait_for(seen);
        terminal.press(keys);
        terminal.wait_for("it ended with ");
        let text = terminal.text();
        assert!(text.contains(at_last), "{name}: no {at_last:?} in\n{text}");
        let status = if name == "recv" { 1 } else { 0 };
        assert!(text.contains(&format!("it ended with {status}")), "{name}:\n{text}");
        assert!(!terminal.is_taken() && terminal.has_cursor(), "{name}");
        terminal.end();
    }
}

/// Arguments that make the subcommand print to standard output; empty if it never prints.
const PRINTING: [(&str, &str); 14] = [
    ("send", "pipework send hello"),
    ("recv", "pipework send hello 2> sent | pipework recv"),
    ("run", "pipework run echo hello"),
    ("tee", "pipework send hello 2> sent | pipework tee log"),
    ("serve", ""),
    ("call", "pipework call --wait channel hello"),
    ("ls", "pipework ls ."),
    ("top", "pipework top --once --interval 0.1 fifo"),
    ("doctor", "pipework doctor ."),
    ("bench", "pipework bench --quick pipe"),
    ("demo", "pipework demo --quick"),
    // Another program prints.
    ("nats", ""),
    ("completions", "pipework completions bash"),
    ("man", "pipework man"),
];

#[test]
fn every_subcommand_reports_an_output_that_it_cannot_write() {
    let names: BTreeSet<_> = PRINTING.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, subcommands());
    for (name, print) in PRINTING.into_iter().filter(|(_, print)| !print.is_empty()) {
        let serve = if name == "call" { "pipework serve -q channel -- cat & S=$!" } else { "S=0" };
        // The last reader leaves before the first byte.
        let script = format!(
            "{BEFORE} {serve}
            {print} > /dev/full 2> full; echo $?; {print} >&- 2> closed; echo $?
            (until [ -e gone ]; do sleep 0.02; done; {print}; echo $? > status) 2> left |
                {{ exec <&-; : > gone; until [ -s status ]; do sleep 0.02; done; }}
            cat status; grep -c . full closed left; [ $S = 0 ] || kill $S"
        );
        let done = sh(&Folder::new(), &script);
        // `send` loses its message, which is a failure; for the others a reader that leaves is not.
        let left = if name == "send" { (1, 1) } else { (141, 0) };
        let expected = format!("1\n1\n{}\nfull:1\nclosed:1\nleft:{}\n", left.0, left.1);
        assert_eq!((&*done.out, &*done.err), (&*expected, ""), "{name}");
    }
}

#[test]
fn every_subcommand_has_a_test_of_its_examples() {
    let tests = include_str!("examples.rs");
    for name in subcommands() {
        assert!(tests.contains(&format!("#[test]\nfn examples_of_{name}() {{")), "{name}");
    }
}
