//! Paths that are no plain files: process substitutions, names of descriptors, and links.

use crate::{Folder, clean, fails, left_out, sh};
use std::fs;

#[test]
fn paths_may_name_descriptors() {
    let both = "pipework send a b |";
    for from in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        assert_eq!(clean(&format!("{both} pipework recv --lines --from {from}")), "a\nb\n", "{from}");
    }
    for to in ["-", "/dev/stdout", "/dev/fd/1"] {
        assert_eq!(clean(&format!("pipework send a b --to {to} | pipework recv --lines")), "a\nb\n");
    }
    let script = "mkfifo f; exec 3<>f; pipework send a b --to /dev/fd/3; \
                  pipework recv --lines --count 2 --from /dev/fd/3";
    assert_eq!(clean(script), "a\nb\n");
    assert_eq!(clean("echo x | pipework send -f /dev/stdin | pipework recv"), "x\n");
    fails(1, &["descriptor 3"], "pipework recv --from /dev/fd/3 3<&-");
    fails(1, &["/dev/stdin", "it is a device"], "pipework recv --from /dev/stdin < /dev/null");
    fails(1, &["descriptor 1 is closed"], "pipework send x --to - >&-");
    fails(1, &["--forever", "path"], "pipework send x | pipework recv --forever --from -");
}

#[test]
fn process_substitution_of_bash_works() {
    if sh(&Folder::new(), "bash -c true").status != Some(0) {
        return;
    }
    let bash = |line: &str| clean(&format!("bash -c '{line}'"));
    assert_eq!(bash("pipework recv --lines --from <(pipework send a b)"), "a\nb\n");
    let line = "pipework send a b --to >(pipework recv --lines > out; : > done)";
    assert_eq!(bash(&format!("{line}; until [ -e done ]; do sleep 0.01; done; cat out")), "a\nb\n");
    let line = "pipework run -m >(cat > out; : > done) -s \"echo text; pipework send -m message\"";
    let out = bash(&format!("{line}; until [ -e done ]; do sleep 0.01; done; cat out"));
    assert_eq!(out, "text\nmessage\n");
}

#[test]
fn symbolic_links_to_fifos_are_followed() {
    let script = "mkdir d; mkfifo d/f; ln -s d/f one; ln -s one two; exec 9<>d/f; \
                  pipework send --to two a; pipework recv --from one --create --count 1";
    assert_eq!(clean(script), "a");
    fails(1, &["nothing", "--create"], "ln -s nothing dangling; pipework recv --from dangling");
}

/// With fs.protected_symlinks, the kernel follows no link of another user in a folder such as /tmp, if
/// the path that it is given leads through that link.
#[test]
fn paths_of_outputs_are_opened_as_they_are_given() {
    let folder = Folder::new();
    if sh(&folder, "strace -qq true").status != Some(0) {
        return left_out(
            "paths_of_outputs_are_opened_as_they_are_given",
            "no strace, or it is not permitted",
        );
    }
    sh(&folder, "mkdir shared; : > target; ln -s ../target shared/log");
    for command in ["tee shared/log < /dev/null", "run -m shared/log true", "run --append -m shared/log true"]
    {
        let traced = sh(&folder, &format!("strace -f -qq -e trace=?open,openat -o trace pipework {command}"));
        assert_eq!(traced.status, Some(0), "{traced:?}");
        let trace = fs::read_to_string(folder.join("trace")).unwrap();
        let opened = |path: &str| trace.lines().any(|line| line.contains(&format!("{path}\", O_WRONLY")));
        assert!(opened("\"shared/log") && !opened("target"), "{command}: {trace}");
    }
}

/// The same where the kernel has that setting.
#[test]
fn link_of_another_user_in_a_shared_folder_is_not_followed() {
    let folder = Folder::new();
    let link = folder.join("shared/log");
    sh(&folder, "mkdir -m 1777 shared; echo kept > target; ln -s ../target shared/log");
    if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() || fs::read(&link).is_ok() {
        return left_out("links of strangers", "this kernel follows them, or this is no superuser");
    }
    let script = "pipework send x | pipework tee shared/log > out || echo refused
        pipework run -m shared/log true || echo refused
        pipework run --append -m shared/log true || echo refused; cat target";
    let done = sh(&folder, script);
    assert_eq!(done.out, "refused\nrefused\nrefused\nkept\n", "{done:?}");
}

#[test]
fn run_keeps_lines_whole_if_messages_share_standard_output() {
    // Each line is printed in two pieces, so text and messages on two paths would mix within lines.
    let job = "--shell 'for i in $(seq 300); do printf line-; echo end; done' \
               --shell 'seq 300 | sed s/^/message-/ | pipework send --mixed --lines'";
    let lines = "sort | uniq -c | sort -rn | sed 's/^ *//' | head -2";
    for to in ["fd:1", "/dev/stdout", "/dev/fd/1", "-", "fd:3 3>&1"] {
        let script = format!("pipework run --messages {to} {job} | sed 's/-[0-9]*$//' | {lines}");
        assert_eq!(clean(&script), "300 message\n300 line-end\n", "{to}");
    }
    // A log that is open for appending keeps its contents.
    for to in ["fd:1", "/dev/stdout", "log", "./log"] {
        let script =
            format!("echo before > log; pipework run -m {to} {job} >> log; wc -l < log; head -1 log");
        assert_eq!(clean(&script), "601\nbefore\n", "{to}");
    }
    let script = "echo before > log; pipework run -m /dev/stderr pipework send -m x 2>> log; cat log";
    assert_eq!(clean(script), "before\nx\n");
}
