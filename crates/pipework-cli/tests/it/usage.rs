//! Command lines with mistakes: every subcommand reports them in the same words.

use crate::{Folder, fails, sh};

#[test]
fn wrong_value_is_named_with_its_option_and_range() {
    for (command, said) in [
        ("serve --slots 0 ch -- cat", "--slots '0': it takes a whole number from 1 to 1048576"),
        ("serve --slots -1 ch -- cat", "--slots '-1': it takes a whole number from 1 to 1048576"),
        ("serve --members 70000 ch -- cat", "--members '70000': it takes a whole number from 2 to 65535"),
        ("serve --workers=-1 ch -- cat", "--workers '-1': it takes a whole number from 1 to 4096"),
        ("serve --request-bytes -5 ch -- cat", "--request-bytes '-5': it takes a number of bytes from 1"),
        ("serve --mode 066 ch -- cat", "--mode '066': it takes permissions in octal"),
        ("serve --timeout nan ch -- cat", "--timeout 'nan': it takes a number of seconds"),
        ("call --timeout -1 ch", "--timeout '-1': it takes a number of seconds that is not negative"),
        ("call -n -1 ch", "--in-flight '-1': it takes a whole number from 1 to 4096"),
        ("call --retries 9 ch", "--retries '9': it takes a whole number from 0 to 3"),
        ("recv --count 0", "--count '0': it takes a whole number from 1"),
        ("recv --max-message -1", "--max-message '-1': it takes a number of bytes from 1"),
        ("send --zstd=23 x", "--zstd '23': it takes a whole number from -131072 to 22"),
        ("top --interval 0.01", "--interval '0.01': it takes a number of seconds from 0.1 to 3600"),
        ("top --sort size", "--sort 'size': it takes one of name, rate, waiting, age"),
        ("top --sort", "--sort takes one of name, rate, waiting, age"),
        ("bench everything", "MODULE 'everything': it takes one of atomic, reqrep, pipe, fd"),
        ("demo --writers 65", "--writers '65': it takes a whole number from 1 to 64"),
    ] {
        is_misread(command, said);
    }
}

#[test]
fn missing_unknown_and_superfluous_arguments_are_named() {
    for (command, said) in [
        ("serve", "missing: CHANNEL, CMD"),
        ("serve ch cat", "'cat' is one argument too many; the command follows --"),
        ("demo one two", "'two' is one argument too many"),
        ("call ch --time 3", "there is no option --time here; is --timeout meant?"),
        ("call ch --fast", "there is no option --fast here"),
        ("call --lines ch x", "--lines does not go together with DATA"),
        ("call --json --json ch", "--json is given more than once"),
        ("doctor --system --fifos", "--system does not go together with --fifos"),
        ("cal", "there is no command 'cal'; is call meant?"),
        ("--fast", "there is no option --fast here"),
    ] {
        is_misread(command, said);
    }
}

/// Checks the three lines of the report: the mistake, the usage, and where to find more.
fn is_misread(command: &str, said: &str) {
    let done = sh(&Folder::new(), &format!("pipework {command}"));
    let lines: Vec<_> = done.err.lines().collect();
    let [first, usage, more] = lines[..] else { panic!("{command}: {}", done.err) };
    assert!(first.starts_with(&format!("pipework: {said}")), "{command}: {first}");
    let name = command.split(' ').next().filter(|name| !name.starts_with('-') && *name != "cal");
    let name = name.map_or("pipework".into(), |name| format!("pipework {name}"));
    assert!(usage.starts_with(&format!("Usage: {name} ")), "{command}: {usage}");
    assert_eq!(more, format!("`{name} --help` says more"));
    assert_eq!((done.status, &*done.out), (Some(2), ""), "{command}");
}

#[test]
fn pipework_without_arguments_prints_help() {
    fails(2, &["Usage: pipework", "Commands:"], "pipework");
}
