//! Help, completions and man pages: made from one set of definitions, and complete.

use crate::{Folder, clean, fails, sh};
use std::collections::BTreeSet;
use std::fs;

const COMMANDS: [&str; 14] = [
    "send",
    "recv",
    "run",
    "tee",
    "serve",
    "call",
    "ls",
    "top",
    "doctor",
    "bench",
    "demo",
    "nats",
    "completions",
    "man",
];

/// The long options that the help of a command names at the start of its lines.
fn options(command: &str) -> BTreeSet<String> {
    clean(&format!("pipework {command} --help"))
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split([' ', '=', '[']).find(|word| word.starts_with("--")))
        .map(String::from)
        .collect()
}

#[test]
fn help_of_every_subcommand_has_examples() {
    let top = clean("pipework --help");
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        assert!(clean(&format!("pipework {command} --help")).contains("Examples:\n"), "{command}");
    }
    assert!(!top.contains("demo-writer") && !top.contains("bench-peer"));
    assert_eq!(clean("pipework help"), top);
    assert_eq!(clean("pipework help recv"), clean("pipework recv --help"));
    fails(2, &["recieve"], "pipework help recieve");
    assert!(options("recv").contains("--max-message"));
    assert!(clean("pipework --version").starts_with("pipework "));
    fails(2, &["Usage:"], "pipework");
    fails(2, &["recv"], "pipework recieve");
}

#[test]
fn completions_name_subcommands_and_options_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = clean(&format!("pipework completions {shell}"));
        for word in COMMANDS.into_iter().chain(["max-message", "dictionary", "separator"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("demo-writer"), "{shell}: the hidden subcommand of the demo is offered");
    }
    clean("pipework completions bash > script; if command -v bash > /dev/null; then bash -n script; fi");
    fails(2, &["bash", "zsh"], "pipework completions csh");
}

#[test]
fn man_pages_name_every_option() {
    let folder = Folder::new();
    let done = sh(&folder, "pipework man pages/man1");
    assert_eq!((done.status, done.out.as_str(), done.err.as_str()), (Some(0), "", ""));
    let page = |name: &str| {
        let text = fs::read_to_string(folder.join("pages/man1").join(name)).unwrap();
        assert!(text.contains(".TH"), "{name}");
        text.replace('\\', "")
    };
    for command in COMMANDS {
        let text = page(&format!("pipework-{command}.1"));
        assert!(text.contains("\n.SH EXAMPLES\n"), "{command}");
        for option in options(command) {
            assert!(text.contains(&option), "{command}: {option}");
        }
        assert!(text.ends_with("\n.SH SEE ALSO\n.BR pipework (1)\n"), "{command}");
    }
    let whole = page("pipework.1");
    let listed = whole.lines().filter_map(|line| line.strip_prefix("pipework-")?.strip_suffix("(1)"));
    assert_eq!(BTreeSet::from_iter(listed), BTreeSet::from(COMMANDS));
    assert!(whole.ends_with("\n.SH SEE ALSO\n.BR pipework (3)\n"), "the C library has a page");
    assert_eq!(fs::read_dir(folder.join("pages/man1")).unwrap().count(), 1 + COMMANDS.len());
    let all = clean("pipework man");
    assert_eq!(all.matches(".TH ").count(), 1 + COMMANDS.len());
}
